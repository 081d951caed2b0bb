//! A peer of ours that lies: what it says is refused by every server, and nobody beside it notices. Before
//! servers looked at who speaks, each of these was done: parameters set, objects destroyed, a target
//! registered elsewhere with the highest epoch there is, another client's session taken over.

use anyhow::{Context, Result, bail, ensure};
use model::{Errno, Fid, Nid, ObjectId, TargetId};
use std::net::TcpStream;
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, stripe_64k, tool};
use tests::peer::{self, Session};
use wire::frame::FLAG_REPLAY;
use wire::msg::config::Config;
use wire::msg::destroy::Destroy;
use wire::msg::param::{GetParam, SetParam};
use wire::msg::register::{EXTRA_TARGET_KEY, Register};
use wire::proof::Claimant;

const LIMIT: Duration = Duration::from_secs(60);
const META: usize = 0;
const OSS: usize = 1;

fn addresses(fs: &TestFs) -> Result<Vec<String>> {
    let s = fs.status()?;
    let list = s["processes"].as_array().context("processes")?;
    let of = |p: &serde_json::Value| p["nid"].as_str()?.strip_suffix("@tcp").map(str::to_string);
    Ok(list.iter().filter(|p| p["role"] != "client").filter_map(of).collect())
}

/// Resident memory of a process, MiB.
fn resident_mib(pid: i32) -> Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.split_ascii_whitespace().next().context("a number")?.parse::<usize>()? >> 10)
}

/// Peers that send as much as they can and never end: 640 MiB, of which the server keeps a tenth. The mount
/// beside them works on, and keeps its session.
#[test]
fn a_flood_of_data_does_not_take_a_servers_memory() -> Result<()> {
    const PEERS: u8 = 40;
    let fs = TestFs::up("flood", 1, 1)?;
    let at = addresses(&fs)?;
    let oss = fs.processes()?.iter().rfind(|(role, _)| role == "oss").context("no process of OSTs")?.1;
    let lctl = |args: &[&str]| ok_within(tool("lctl").args(args), LIMIT);
    let usual = lctl(&["get_param", "-n", "req_memory_max_mb"])?;
    let usual = usual.split_whitespace().next().context("req_memory_max_mb")?.to_string();
    lctl(&["set_param", "req_memory_max_mb=64"])?;
    let before = resident_mib(oss)?;
    let mut peers = Vec::new();
    for n in 0..PEERS {
        let conn = peer::connect(&at[OSS])?;
        let said = Session::hello(conn, TargetId::ost(0), fs.fsname(), [100 + n; 16], &[])?;
        let mut s = said.map_err(|e| anyhow::anyhow!("hello {n}: {e}"))?;
        s.send_most(&Destroy { objects: Vec::new() })?;
        peers.push(s);
    }
    let file = fs.mount(0).join("file");
    let data: Vec<u8> = (0..24_000_000u32).map(|i| (i % 251) as u8).collect();
    let copy = format!("dd if=/dev/stdin of={} bs=1M conv=fsync status=none", file.display());
    let source = fs.scratch().join("source");
    std::fs::write(&source, &data)?;
    tests::cluster::sh(&format!("{copy} < {}", source.display()), LIMIT)?;
    let grown = resident_mib(oss)?.saturating_sub(before);
    let shown = lctl(&["get_param", "-n", "req_memory"])?;
    drop(peers);
    lctl(&["set_param", &format!("req_memory_max_mb={usual}")])?;
    ensure!(grown < 200, "the OSS grew by {grown} MiB; {shown}");
    let put_off = |l: &str| l.strip_prefix("put_off: ")?.parse::<u32>().ok();
    ensure!(shown.lines().filter_map(put_off).any(|n| n >= 30), "{shown}");
    ensure!(std::fs::read(&file)? == data, "the file is what was written");
    Ok(())
}

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T, Errno>, want: Errno) -> Result<()> {
    match answer {
        Err(e) if e == want => Ok(()),
        other => bail!("{what}: {other:?}, not {want:?}"),
    }
}

#[test]
fn a_peer_that_lies_is_refused() -> Result<()> {
    let fs = TestFs::up("hostile", 2, 1)?;
    let file = fs.mount(0).join("precious");
    stripe_64k(&file, 1)?;
    std::fs::write(&file, vec![7; 3 << 20])?;
    std::fs::File::open(&file)?.sync_all()?;
    let at = addresses(&fs)?;
    let (mgt, mdt, ost) = (TargetId::MGT, TargetId::mdt(0), TargetId::ost(0));

    // As an ordinary user: no port below 1024.
    for addr in &at {
        let s = TcpStream::connect((addr.as_str(), peer::PORT))?;
        let said = Session::hello(s, mdt, fs.fsname(), [9; 16], &[])?;
        refused("a port of an ordinary user", said.map(|_| ()), Errno::EACCES)?;
    }

    // As root of a host that is none of ours: a port below 1024, and no key.
    let hello = |node: usize, target, keys: &[_]| {
        Session::hello(peer::connect(&at[node])?, target, fs.fsname(), [9; 16], keys)?
            .map_err(|e| anyhow::anyhow!("the hello is refused: {e}"))
    };
    let mut mgs = hello(META, mgt, &[])?;
    let config =
        mgs.ask(0, &[], &Config { fsname: fs.fsname().into() })?.map_err(|e| anyhow::anyhow!("{e}"))?;
    ensure!(config.extra.is_empty(), "the configuration tells keys");
    let known = config.targets.iter().find(|t| t.target == ost).context("OST0000 is registered")?.clone();
    let claim = |epoch, replace| Register {
        fsname: fs.fsname().into(),
        target: ost,
        fs_uuid: config.fs_uuid,
        target_uuid: known.target_uuid,
        nids: vec!["127.0.0.1@tcp".parse::<Nid>().expect("a NID")],
        epoch,
        first_time: false,
        replace,
        params: Vec::new(),
    };
    refused("register without a proof", mgs.ask(0, &[], &claim(known.epoch, false))?, Errno::EPERM)?;
    let mut mgs = hello(META, mgt, &[(Claimant::Target(known.target_uuid), [1; 32])])?;
    let key = [(EXTRA_TARGET_KEY, vec![1; 32])];
    refused(
        "register with a wrong key",
        mgs.ask(0, &key, &claim(known.epoch + 1, false))?,
        Errno::EKEYREJECTED,
    )?;
    refused("an epoch that cannot be", mgs.ask(0, &key, &claim(u32::MAX, false))?, Errno::EINVAL)?;
    refused("an epoch that is far", mgs.ask(0, &key, &claim(known.epoch + 5000, false))?, Errno::ERANGE)?;
    let mut other = hello(META, mgt, &[(Claimant::Target([5; 16]), [1; 32])])?;
    let takes = Register { target_uuid: [5; 16], ..claim(1, true) };
    refused("taking an index", other.ask(0, &key, &takes)?, Errno::EACCES)?;
    let set = SetParam { name: "mdt.*.ack".into(), value: "durable".into(), permanent: false, delete: false };
    let mut mds = hello(META, mdt, &[])?;
    refused("set_param at the MDT", mds.ask(0, &[], &set)?, Errno::EPERM)?;
    let permanent = SetParam { permanent: true, ..set };
    refused("set_param -P", other.ask(0, &[], &permanent)?, Errno::EPERM)?;
    let mut oss = hello(OSS, ost, &[(Claimant::Server, [1; 32])])?;
    let objects = vec![ObjectId { origin: Fid::ROOT, component: 0, stripe: 0 }];
    refused("destroy", oss.ask(0, &[], &Destroy { objects })?, Errno::EPERM)?;
    let all = GetParam { pattern: "obdfilter.*.uuid".into() };
    ensure!(oss.ask(0, &[], &all)?.is_ok(), "what clients may ask is answered");
    refused("a replay without a restart", oss.ask(FLAG_REPLAY, &[], &all)?, Errno::EPERM)?;

    // In the name of the mount.
    let shown = format!("mdt.{}-MDT0000.exports.*.uuid", fs.fsname());
    let shown = ok_within(tool("lctl").args(["get_param", "-n", &shown]), LIMIT)?;
    let mut victims = 0;
    for uuid in shown.split_whitespace() {
        let hex: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
        let Ok(n) = u128::from_str_radix(&hex, 16) else { continue };
        if hex.len() != 32 || n.to_be_bytes() == [9; 16] {
            continue;
        }
        victims += 1;
        for (node, target) in [(META, mdt), (OSS, ost)] {
            let said = Session::hello(peer::connect(&at[node])?, target, fs.fsname(), n.to_be_bytes(), &[])?;
            if target == mdt {
                refused("another client's session", said.map(|_| ()), Errno::EACCES)?;
            }
        }
    }
    ensure!(victims > 0, "no client was found to speak for: {shown}");

    // Nobody noticed, and every target is let in again.
    ensure!(std::fs::read(&file)? == vec![7; 3 << 20], "the file is what it was");
    fs.down()?;
    fs.up_again()?;
    ensure!(std::fs::read(&file)? == vec![7; 3 << 20], "the file is what it was after a restart");
    Ok(())
}

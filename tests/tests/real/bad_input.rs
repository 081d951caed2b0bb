//! What must not be believed: bytes on the listeners, folders that are no targets of ours, full and read-only
//! disks. Each gives one clear error, nothing is lost, nobody panics.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Scratch, TestFs, ok_within, run_within, sh, tool, wait_until};
use tests::rng::Rng;
use wire::frame::HEADER_BYTES;
use wire::{Frame, FrameKind, Header};

const LIMIT: Duration = Duration::from_secs(60);

/// (pid, address) of every server.
fn servers(fs: &TestFs) -> Result<Vec<(i64, String)>> {
    let s = fs.status()?;
    let list = s["processes"].as_array().context("processes")?;
    let of = |p: &serde_json::Value| {
        let nid = p["nid"].as_str()?.strip_suffix("@tcp")?.to_string();
        Some((p["pid"].as_i64()?, nid))
    };
    Ok(list.iter().filter(|p| p["role"] != "client").filter_map(of).collect())
}

/// The server must end the conversation by itself; what it says meanwhile does not matter.
fn send_and_expect_close(addr: &str, bytes: &[u8], finish: bool) -> Result<()> {
    let mut s = tests::peer::connect(addr).with_context(|| format!("connect to {addr}"))?;
    s.set_read_timeout(Some(Duration::from_secs(30)))?;
    let _ = s.write_all(bytes); // it may have hung up already
    if finish {
        let _ = s.shutdown(std::net::Shutdown::Write); // likewise
    }
    let mut sink = [0; 4096];
    loop {
        match s.read(&mut sink) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => anyhow::bail!("{addr} kept the connection after {} bad bytes: {e}", bytes.len()),
        }
    }
}

/// A header whose bytes were changed, with a checksum that is right again.
fn forged(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut v = Frame::new(Header::new(FrameKind::Request), vec![1, 2, 3], wire::Bulk::default()).encode();
    change(&mut v[..HEADER_BYTES]);
    let crc = wire::frame::crc32c(&v[..HEADER_BYTES - 4]);
    v[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    v
}

fn logs_without_panic(fs: &TestFs) -> Result<()> {
    for e in std::fs::read_dir(fs.dir().join("log"))? {
        let path = e?.path();
        let log = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
        ensure!(!log.contains("panicked"), "{}:\n{log}", path.display());
    }
    Ok(())
}

#[test]
fn listeners_survive_garbage() -> Result<()> {
    let fs = TestFs::up("garbage", 2, 1)?;
    std::fs::write(fs.mount(0).join("f"), b"before")?;
    let before = servers(&fs)?;
    let mut rng = Rng::new(7);
    let mut random = |n: usize| (0..n).map(|_| rng.below(256) as u8).collect::<Vec<u8>>();
    let good = Frame::new(Header::new(FrameKind::Request), b"body".to_vec(), wire::Bulk::default()).encode();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        // first: what a listener says of bad frames is said once
        ("another version", forged(|h| h[4] = 99)),
        ("nothing", Vec::new()),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec().repeat(4)),
        ("random header", random(64)),
        ("random megabyte", random(1 << 20)),
        ("half a header", good[..30].to_vec()),
        ("half a body", forged(|h| h[48..52].copy_from_slice(&1000u32.to_le_bytes()))),
        ("request before connect", good.clone()),
        ("unknown kind", forged(|h| h[6] = 77)),
        ("body of 4 GiB", forged(|h| h[48..52].copy_from_slice(&u32::MAX.to_le_bytes()))),
        ("bulk of 4 GiB", forged(|h| h[52..56].copy_from_slice(&u32::MAX.to_le_bytes()))),
        ("wrong epoch and session", forged(|h| h[16..24].copy_from_slice(&u64::MAX.to_le_bytes()))),
        (
            "connect without a body",
            Frame::new(Header::new(FrameKind::Connect), Vec::new(), wire::Bulk::default()).encode(),
        ),
        (
            "connect of garbage",
            Frame::new(Header::new(FrameKind::Connect), random(500), wire::Bulk::default()).encode(),
        ),
    ];
    for (_, addr) in &before {
        for (what, bytes) in &cases {
            send_and_expect_close(addr, bytes, true).with_context(|| what.to_string())?;
        }
        // random damage of a good frame
        for _ in 0..50 {
            let mut bad = good.clone();
            let at = rng.below(bad.len() as u64) as usize;
            bad[at] ^= 1 << rng.below(8);
            send_and_expect_close(addr, &bad, true)?;
        }
    }
    std::fs::write(fs.mount(0).join("g"), b"after")?;
    ensure!(std::fs::read(fs.mount(0).join("f"))? == b"before", "the file system goes on");
    ensure!(servers(&fs)? == before, "a server was restarted");
    let log = std::fs::read_to_string(fs.dir().join("log/nacred-1.log"))?;
    ensure!(log.contains("version 99"), "the log names the other version:\n{log}");
    logs_without_panic(&fs)
}

fn mkfs(args: &[&str], dir: &Path) -> Result<()> {
    ok_within(tool("mkfs.nacre").arg("--quiet").args(args).arg(dir), LIMIT).map(drop)
}

/// nacred must refuse to start, soon, with these words.
fn nacred_refuses(args: &[&str], dirs: &[&Path], part: &str) -> Result<()> {
    let o = run_within(tool("nacred").args(args).args(dirs), Duration::from_secs(20))?;
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(!o.status.success(), "nacred took {dirs:?}");
    ensure!(err.contains(part), "nacred on {dirs:?} does not say '{part}':\n{err}");
    ensure!(!err.contains("panicked"), "{err}");
    Ok(())
}

#[test]
fn folders_that_are_no_targets_are_refused() -> Result<()> {
    let s = Scratch::new("folders");
    let dir = |n: &str| s.path().join(n);
    let nid = ["--nid", "127.250.1.77@tcp"];
    let mgs = "--mgsnode=127.250.1.77@tcp";
    nacred_refuses(&nid, &[&dir("missing")], "No such file")?;
    std::fs::create_dir(dir("empty"))?;
    nacred_refuses(&nid, &[&dir("empty")], "not formatted")?;
    mkfs(&["--ost", "--fsname=one", "--index=0", mgs], &dir("one"))?;
    mkfs(&["--ost", "--fsname=two", "--index=1", mgs], &dir("two"))?;
    nacred_refuses(&nid, &[&dir("one"), &dir("two")], "belongs to file system 'two'")?;
    mkfs(&["--ost", "--fsname=one", "--index=0", mgs], &dir("again"))?;
    nacred_refuses(&nid, &[&dir("one"), &dir("again")], "both OST0000")?;
    // half written: the superblock comes last
    mkfs(&["--ost", "--fsname=one", "--index=2", mgs], &dir("half"))?;
    for n in ["superblock", "superblock.1"] {
        let _ = std::fs::remove_file(dir("half").join(n));
    }
    nacred_refuses(&nid, &[&dir("half")], "half formatted")?;
    // damaged and of another version
    mkfs(&["--ost", "--fsname=one", "--index=3", mgs], &dir("damaged"))?;
    for n in ["superblock", "superblock.1"] {
        let path = dir("damaged").join(n);
        if let Ok(mut b) = std::fs::read(&path) {
            let middle = b.len() / 2;
            b[middle..].fill(0x55);
            std::fs::write(&path, b)?;
        }
    }
    nacred_refuses(&nid, &[&dir("damaged")], "damaged")?;
    // formatted already
    let o = run_within(
        tool("mkfs.nacre").args(["--ost", "--fsname=one", "--index=0", mgs]).arg(dir("one")),
        LIMIT,
    )?;
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(
        o.status.code() == Some(17) && err.contains("already formatted as one-OST0000"),
        "{} {err}",
        o.status
    );
    mkfs(&["--reformat", "--ost", "--fsname=new", "--index=0", mgs], &dir("one"))?;
    // not ours at all
    std::fs::create_dir(dir("foreign"))?;
    std::fs::write(dir("foreign/thesis.tex"), b"precious")?;
    let o = run_within(
        tool("mkfs.nacre")
            .args(["--reformat", "--ost", "--fsname=one", "--index=0", mgs])
            .arg(dir("foreign")),
        LIMIT,
    )?;
    ensure!(
        !o.status.success() && String::from_utf8_lossy(&o.stderr).contains("thesis.tex"),
        "a foreign folder was taken"
    );
    ensure!(std::fs::read(dir("foreign/thesis.tex"))? == b"precious", "and destroyed");
    Ok(())
}

#[test]
fn a_target_in_use_is_left_alone() -> Result<()> {
    let fs = TestFs::up("inuse", 1, 1)?;
    let ost = fs.dir().join("ost0000");
    nacred_refuses(&["--nid", "127.250.1.78@tcp"], &[&ost], "in use by")?;
    let o = run_within(
        tool("mkfs.nacre")
            .args(["--reformat", "--ost", "--fsname=x", "--index=0", "--mgsnode=127.0.0.1@tcp"])
            .arg(&ost),
        LIMIT,
    )?;
    ensure!(
        !o.status.success() && String::from_utf8_lossy(&o.stderr).contains("in use by"),
        "mkfs took a living target"
    );
    let o = run_within(tool("tunefs.nacre").args(["--param", "a.b=c"]).arg(&ost), LIMIT)?;
    ensure!(
        !o.status.success() && String::from_utf8_lossy(&o.stderr).contains("in use by"),
        "tunefs took a living target"
    );
    // the same address again
    let s = Scratch::new("second");
    mkfs(&["--mgs"], s.path())?;
    let nid = fs.status()?["processes"][0]["nid"].as_str().context("nid")?.to_string();
    nacred_refuses(&["--nid", &nid], &[s.path()], "another server listens there")?;
    std::fs::write(fs.mount(0).join("f"), b"unharmed")?;
    fs.fsck()
}

/// An OST of another file system with the same name must not slip in.
#[test]
fn an_ost_of_another_file_system_is_refused() -> Result<()> {
    let fs = TestFs::up("fsa", 1, 1)?;
    let s = Scratch::new("stranger");
    let source = fs.status()?["source"].as_str().context("source")?.to_string();
    let mgs = source.split(":/").next().unwrap_or("").to_string();
    // the index is taken
    mkfs(
        &["--ost", &format!("--fsname={}", fs.fsname()), "--index=0", &format!("--mgsnode={mgs}")],
        s.path(),
    )?;
    nacred_refuses(&["--nid", "127.250.1.79@tcp"], &[s.path()], "another --index")?;
    ensure!(std::fs::write(fs.mount(0).join("f"), b"x").is_ok(), "the file system goes on");
    Ok(())
}

/// A target that was taken along from a file system of the same name.
#[test]
fn a_target_of_a_namesake_is_refused() -> Result<()> {
    let s = Scratch::new("twins");
    let nacre = |verb: &str, name: &str| -> Result<String> {
        let mut c = tool("nacre");
        c.arg(verb).arg("--dir").arg(s.path().join(name));
        match verb {
            "up" => c.args(["--osts", "1", "--fsname", "twin"]),
            "status" => c.arg("--json"),
            _ => &mut c,
        };
        ok_within(&mut c, LIMIT)
    };
    nacre("up", "a")?;
    nacre("down", "a")?;
    nacre("up", "b")?;
    let status: serde_json::Value = serde_json::from_str(&nacre("status", "b")?)?;
    let result = (|| -> Result<()> {
        let mgs = status["processes"][0]["nid"].as_str().context("nid")?;
        let ost = s.path().join("a/ost0000");
        ok_within(tool("tunefs.nacre").arg("--quiet").arg(format!("--mgsnode={mgs}")).arg(&ost), LIMIT)?;
        nacred_refuses(&["--nid", "127.250.1.81@tcp"], &[&ost], "another file system of the name 'twin'")
    })();
    nacre("down", "b")?;
    result
}

/// A small disk in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: PathBuf, size: &str) -> Result<SmallDisk> {
        std::fs::create_dir_all(&at)?;
        ok_within(
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&at),
            LIMIT,
        )?;
        Ok(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_full_disk_says_so_and_space_comes_back() -> Result<()> {
    let s = Scratch::new("full");
    let (dir, mnt) = (s.path().join("fs"), s.path().join("mnt"));
    let _disk = SmallDisk::new(dir.join("ost0000"), "300m")?;
    let up = |verb: &str| -> Result<()> {
        let mut c = tool("nacre");
        c.arg(verb).arg("--dir").arg(&dir);
        if verb == "up" {
            c.arg("--mount").arg(&mnt).args(["--osts", "1", "--fsname", "full"]);
        }
        ok_within(&mut c, LIMIT).map(drop)
    };
    up("up")?;
    let result = (|| -> Result<()> {
        std::fs::write(mnt.join("kept"), vec![7; 100_000])?;
        let big = mnt.join("big");
        let mut f = std::fs::File::create(&big)?;
        let error = (0..400).find_map(|_| f.write_all(&vec![1; 1 << 20]).err());
        let error = error.context("400 MiB fit on a disk of 300")?;
        ensure!(error.raw_os_error() == Some(28), "ENOSPC was expected: {error}");
        drop(f);
        ensure!(std::fs::read(mnt.join("kept"))? == vec![7; 100_000], "other files are as they were");
        let df = ok_within(tool("lfs").arg("df").arg(&mnt), LIMIT)?;
        ensure!(df.contains("[OST:0]"), "{df}");
        std::fs::remove_file(&big)?;
        wait_until("space comes back", LIMIT, || {
            std::fs::write(mnt.join("again"), vec![2; 20 << 20]).is_ok()
        })?;
        ensure!(std::fs::read(mnt.join("again"))? == vec![2; 20 << 20], "after the disk was full");
        Ok(())
    })();
    let down = up("down");
    result?;
    down?;
    ok_within(tool("nacre").arg("fsck").arg(&dir), LIMIT).map(drop)
}

#[test]
fn a_read_only_disk_is_named() -> Result<()> {
    let s = Scratch::new("rodisk");
    let disk = SmallDisk::new(s.path().join("disk"), "200m")?;
    let target = disk.0.join("ost");
    mkfs(&["--ost", "--fsname=ro", "--index=0", "--mgsnode=127.250.1.80@tcp"], &target)?;
    sh(&format!("mount -o remount,ro {}", disk.0.display()), LIMIT)?;
    nacred_refuses(&["--nid", "127.250.1.80@tcp"], &[&target], "Read-only file system")?;
    let o = run_within(
        tool("mkfs.nacre")
            .args(["--ost", "--fsname=ro", "--index=0", "--mgsnode=127.250.1.80@tcp"])
            .arg(disk.0.join("new")),
        LIMIT,
    )?;
    let err = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(30) && err.contains("Read-only file system"), "{} {err}", o.status);
    Ok(())
}

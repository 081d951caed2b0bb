//! Mapped files on two mounts: what one stores the other loads, and nothing hangs (decision 0016). The
//! programs are in `mapped.py`.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, stripe_64k, tool, wait_until, where_they_stand};

fn program(fs: &TestFs, name: &str) -> Result<Command> {
    let path = fs.scratch().join("mapped.py");
    std::fs::write(&path, include_str!("mapped.py"))?;
    let mut c = Command::new("python3");
    c.arg(path).arg(name);
    Ok(c)
}

/// A file with `stripes` stripes (0: it lies with its inode until it is stored into) and so many zeros, on
/// each mount.
fn file(fs: &TestFs, name: &str, stripes: u32, size: usize) -> Result<Vec<PathBuf>> {
    let path = fs.mount(0).join(name);
    if stripes > 0 {
        stripe_64k(&path, stripes)?;
    }
    let mut f = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
    std::io::Write::write_all(&mut f, &vec![0; size])?;
    Ok(fs.mounts().iter().map(|m| m.join(name)).collect())
}

/// (name, stripes, bytes)
const FILES: [(&str, u32, usize); 3] = [("small", 0, 32_768), ("one", 1, 1 << 20), ("wide", 3, 1 << 20)];

#[test]
fn stores_are_loaded_on_the_other_mount_at_once() -> Result<()> {
    let fs = TestFs::up("mapped", 3, 2)?;
    for (name, stripes, size) in FILES {
        let n = size.to_string();
        let followed = file(&fs, &format!("{name}-followed"), stripes, size)?;
        ok_within(program(&fs, "read_only")?.args(followed).arg(&n), Duration::from_secs(60))
            .context(name)?;
        let turns = file(&fs, &format!("{name}-turns"), stripes, size)?;
        ok_within(program(&fs, "in_turns")?.args(turns).arg(&n), Duration::from_secs(60)).context(name)?;
        let over = file(&fs, &format!("{name}-over"), stripes, size)?;
        ok_within(program(&fs, "handed_over")?.args(over).args([&n, "300"]), Duration::from_secs(60))
            .context(name)?;
    }
    fs.fsck()
}

#[test]
fn a_storm_of_revocations_neither_hangs_nor_loses_a_store() -> Result<()> {
    let fs = TestFs::up("storm", 3, 2)?;
    for (name, stripes, size) in FILES {
        let paths = file(&fs, name, stripes, size)?;
        let mut c = program(&fs, "storm")?;
        let seconds = if name == "wide" { "12" } else { "3" };
        let out = ok_within(c.args(paths).args([seconds, &size.to_string()]), Duration::from_secs(60));
        println!("{name}: {}", out.context(name)?.trim());
    }
    for m in fs.mounts() {
        let out = run_within(Command::new("umount").arg(m), Duration::from_secs(10))?;
        ensure!(out.status.success(), "umount: {}", String::from_utf8_lossy(&out.stderr));
    }
    fs.up_again()?;
    fs.fsck()
}

#[test]
fn cuts_appends_holes_and_copies_show_in_mappings() -> Result<()> {
    let fs = TestFs::up("cuts", 3, 2)?;
    for stripes in [1, 3] {
        for name in ["bus_error", "appended", "holes_and_copies"] {
            let paths = file(&fs, &format!("{name}{stripes}"), stripes, 0)?;
            ok_within(program(&fs, name)?.args(paths), Duration::from_secs(60))
                .with_context(|| format!("{name}, {stripes} stripes"))?;
        }
        let paths = file(&fs, &format!("cut{stripes}"), stripes, 0)?;
        ok_within(program(&fs, "cut_and_store")?.args(paths).arg("4"), Duration::from_secs(60))
            .with_context(|| format!("cut_and_store, {stripes} stripes"))?;
    }
    for name in ["appended", "database"] {
        let paths: Vec<PathBuf> = fs.mounts().iter().map(|m| m.join(format!("{name}-small"))).collect();
        ok_within(program(&fs, name)?.args(paths), Duration::from_secs(60)).context(name)?;
    }
    fs.fsck()
}

/// The pages of a program stay from one start to the next, and lead nobody to run what another mount has
/// replaced.
#[test]
fn a_program_is_read_once_and_anew_when_it_was_rewritten() -> Result<()> {
    let fs = TestFs::up("started", 3, 2)?;
    let limit = Duration::from_secs(60);
    for (name, stripes) in [("small", 0), ("one", 1), ("wide", 3)] {
        let paths = file(&fs, name, stripes, 0)?;
        ok_within(program(&fs, "rewritten")?.args(&paths).arg("60"), limit).context(name)?;
        let reads = || {
            let out = ok_within(tool("lctl").args(["get_param", "-n", "llite.*.stats"]), limit)?;
            let of = |l: &str| l.strip_prefix("read ")?.split_whitespace().next()?.parse::<u64>().ok();
            Ok::<u64, anyhow::Error>(out.lines().filter_map(of).sum())
        };
        std::fs::copy("/bin/true", &paths[0])?;
        let start = || ok_within(&mut Command::new(&paths[0]), limit);
        start()?;
        let before = reads()?;
        ensure!(before > 0, "{name}: nothing was read");
        (0..5).try_for_each(|_| start().map(drop))?;
        let after = reads()?;
        ensure!(after == before, "{name}: {} reads for five starts", after - before);
    }
    fs.fsck()
}

/// What pages of the kernel could not give (0016, "Pages for read(2)"): read(2) is exact.
#[test]
fn reads_see_every_append_and_whole_records() -> Result<()> {
    let fs = TestFs::up("exact", 3, 2)?;
    for (name, stripes, size) in [("tiny", 0, 200), ("one", 1, 1 << 18), ("wide", 3, 1 << 18)] {
        let paths = file(&fs, name, stripes, 0)?;
        let size = size.to_string();
        ok_within(program(&fs, "exact")?.args(paths).args(["3", &size]), Duration::from_secs(60))
            .context(name)?;
    }
    fs.fsck()
}

/// fsync after stores makes them durable: the client dies, and all servers with it.
#[test]
fn stores_are_durable_after_msync_and_fsync() -> Result<()> {
    let fs = TestFs::up("msync", 2, 2)?;
    for how in ["fsync", "msync"] {
        let path = fs.mount(0).join(how);
        let mut c = program(&fs, "durable")?;
        let mut child =
            c.arg(&path).arg(how).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("python3")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it is piped")?).read_line(&mut line)?;
        ensure!(line == "done\n", "{line:?}");
        for pid in fs.clients()?.into_iter().chain(fs.servers()?) {
            kill(pid, Signal::KILL)?;
        }
        child.kill()?;
        child.wait()?;
        for m in fs.mounts() {
            let _ = Command::new("umount").arg("-fl").arg(m).stderr(Stdio::null()).status();
        }
        fs.up_again()?;
        let data = std::fs::read(fs.mount(1).join(how))?;
        ensure!(data.len() == 1 << 20 && data.chunks(4096).all(|p| &p[..4] == b"kept"), "{how}");
    }
    fs.fsck()
}

/// kill -9 of a client daemon in the middle of a storm: its mount ends at once, although threads of it wait
/// for pages that only the mount's end unlocks, and nobody who used it is left behind; the other mount goes
/// on.
#[test]
fn a_client_killed_in_a_storm_leaves_nobody_behind() -> Result<()> {
    use std::os::unix::process::CommandExt;
    let fs = TestFs::up("killed", 2, 2)?;
    // Whoever wants what a dead client had waits for its eviction, which the rounds do not.
    let files = (0..ROUNDS).map(|r| file(&fs, &format!("f{r}"), 1, 1 << 20));
    for (round, paths) in files.collect::<Result<Vec<_>>>()?.into_iter().enumerate() {
        let mut c = program(&fs, "storm")?;
        c.args(paths).args(["60", "1048576"]).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = c.spawn().context("python3")?;
        std::thread::sleep(Duration::from_millis(1500)); // the storm itself
        let (dead, mount) = (fs.clients()?[round % 2], fs.mount(round % 2));
        kill(dead, Signal::KILL)?;
        let gone = wait_until("the mount ends", Duration::from_secs(10), || {
            let stat = run_within(Command::new("stat").arg("-f").arg(mount), Duration::from_secs(2));
            stat.is_ok_and(|o| String::from_utf8_lossy(&o.stderr).contains("not connected"))
        });
        let storm = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(storm, Signal::KILL)?;
        let ended = wait_until("all of the storm end", Duration::from_secs(40), || {
            let _ = child.try_wait();
            rustix::process::test_kill_process_group(storm).is_err()
        });
        let left = if ended.is_err() { where_they_stand(storm.as_raw_pid()) } else { String::new() };
        let _ = Command::new("umount").arg("-fl").arg(mount).stderr(Stdio::null()).status();
        gone.and(ended).with_context(|| format!("round {round}, process {dead}{left}"))?;
        let proc = format!("/proc/{dead}");
        wait_until("its last thread ends", Duration::from_secs(10), || {
            !std::path::Path::new(&proc).exists()
        })?;
        fs.up_again()?;
    }
    for m in fs.mounts() {
        for round in 0..ROUNDS {
            ensure!(std::fs::read(m.join(format!("f{round}")))?.len() == 1 << 20);
        }
    }
    fs.fsck()
}

const ROUNDS: usize = 5;

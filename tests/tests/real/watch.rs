//! What `nacre up` leaves behind starts again what was killed, and nothing else.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;
use tests::cluster::{TestFs, alive, kill, ok_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// What `nacre status` says of the process with this first target, or mount.
fn row(fs: &TestFs, target: &str) -> Result<Value> {
    let s = fs.status()?;
    let list = s["processes"].as_array().context("processes")?;
    let ours =
        |p: &&Value| p["targets"].as_array().is_some_and(|t| t.iter().any(|t| t.as_str() == Some(target)));
    list.iter().find(ours).cloned().with_context(|| format!("no {target} in {s}"))
}

fn pid(fs: &TestFs, target: &str) -> i32 {
    row(fs, target).ok().and_then(|r| r["pid"].as_i64()).unwrap_or(0) as i32
}

fn watcher(fs: &TestFs) -> Result<i32> {
    Ok(fs.status()?["watch"].as_i64().unwrap_or(0) as i32)
}

#[test]
fn what_was_killed_is_started_again() -> Result<()> {
    let fs = TestFs::up_watched("watch", 2, 1)?;
    let (ost, mdt) = (format!("{}-OST0001", fs.fsname()), format!("{}-MDT0000", fs.fsname()));
    ensure!(watcher(&fs)? > 0, "nothing watches");
    let file = fs.mount(0).join("file");
    ok_within(tool("lfs").args(["setstripe", "-c", "2"]).arg(&file), LIMIT)?;
    std::fs::write(&file, vec![7; 3_000_000])?;
    for (round, target) in [&ost, &mdt, &ost].into_iter().enumerate() {
        let old = pid(&fs, target);
        kill(old, Signal::KILL)?;
        wait_until("it is started again", LIMIT, || {
            let r = row(&fs, target).unwrap_or_default();
            r["state"] == "up" && r["pid"] != old
        })?;
        ensure!(std::fs::read(&file)? == vec![7; 3_000_000], "after kill {round}");
    }
    ensure!(row(&fs, &ost)?["started_again"] == 2, "{}", row(&fs, &ost)?);
    ensure!(row(&fs, &mdt)?["started_again"] == 1, "{}", row(&fs, &mdt)?);

    let mount = fs.mount(0).display().to_string();
    kill(pid(&fs, &mount), Signal::KILL)?;
    wait_until("it is mounted again", LIMIT, || {
        std::fs::metadata(&file).is_ok_and(|m| m.len() == 3_000_000)
    })?;

    // Nobody notices when the watcher ends, and the next `nacre up` brings another.
    let (old, servers) = (watcher(&fs)?, fs.servers()?);
    for ignored in [Signal::HUP, Signal::INT] {
        kill(old, ignored)?;
    }
    ensure!(alive(old), "it ends by accident");
    kill(old, Signal::KILL)?;
    wait_until("status says that it is gone", LIMIT, || watcher(&fs).is_ok_and(|w| w == 0))?;
    fs.up_again()?;
    ensure!(fs.servers()? == servers && watcher(&fs)? > 0, "only the watcher is new");
    kill(pid(&fs, &ost), Signal::KILL)?;
    wait_until("the new one does its work", LIMIT, || row(&fs, &ost).is_ok_and(|r| r["state"] == "up"))?;
    fs.down()?;
    ensure!(watcher(&fs)? == 0 && fs.servers()?.is_empty(), "{}", fs.status()?);
    fs.fsck()
}

/// As after a panic (decision 0053): the process aborts.
#[test]
fn what_panicked_is_started_again_and_a_mount_is_mounted_anew_within_5_s() -> Result<()> {
    let fs = TestFs::up_watched("panic", 1, 1)?;
    let (mount, file) = (fs.mount(0).display().to_string(), fs.mount(0).join("file"));
    std::fs::write(&file, "kept")?;
    std::fs::File::open(&file)?.sync_all()?;
    let mdt = format!("{}-MDT0000", fs.fsname());
    let old = pid(&fs, &mdt);
    kill(old, Signal::ABORT)?;
    wait_until("it is started again", LIMIT, || {
        let r = row(&fs, &mdt).unwrap_or_default();
        r["state"] == "up" && r["pid"] != old
    })?;
    ensure!(std::fs::read_to_string(&file)? == "kept", "after the server's");
    kill(pid(&fs, &mount), Signal::ABORT)?;
    wait_until("it is mounted anew", Duration::from_secs(5), || {
        std::fs::read_to_string(&file).is_ok_and(|s| s == "kept")
    })?;
    fs.down()?;
    fs.fsck()
}

#[test]
fn the_kernel_is_asked_to_spare_daemons_when_memory_is_short() -> Result<()> {
    let of = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
    let own = of("self")?;
    // In some containers not even root may.
    let may = std::fs::write("/proc/self/oom_score_adj", "-900").is_ok();
    std::fs::write("/proc/self/oom_score_adj", own.trim())?;
    if !may {
        println!("this host does not let root ask");
        return Ok(());
    }
    let fs = TestFs::up_watched("oom", 1, 1)?;
    for pid in fs.servers()?.into_iter().chain(fs.clients()?).chain([watcher(&fs)?]) {
        ensure!(of(&pid.to_string())?.trim() == "-900", "pid {pid}: {}", of(&pid.to_string())?);
    }
    fs.fsck()
}

#[test]
fn who_was_told_to_end_or_ended_for_its_disk_is_left_alone() -> Result<()> {
    let fs = TestFs::up_watched("alone", 2, 1)?;
    let (ost, mdt) = (format!("{}-OST0001", fs.fsname()), format!("{}-MDT0000", fs.fsname()));
    kill(pid(&fs, &ost), Signal::TERM)?;
    wait_until("it is known why", LIMIT, || row(&fs, &ost).is_ok_and(|r| r["ended"] == "told to end"))?;
    ok_within(tool("lctl").arg("set_param").arg(format!("osd-nacre.{mdt}.disk_fault=flush=EIO")), LIMIT)?;
    // It may have to wait: what is told is the end of its server.
    let dir = fs.mount(0).join("dir");
    let made = std::thread::spawn(move || std::fs::create_dir(dir));
    let disk = |r: Value| r["ended"].as_str().is_some_and(|w| w.contains("disk failed"));
    wait_until("it is known why", LIMIT, || row(&fs, &mdt).is_ok_and(disk))?;
    // Longer than it would take.
    std::thread::sleep(Duration::from_secs(3));
    ensure!(pid(&fs, &ost) == 0 && pid(&fs, &mdt) == 0, "{}", fs.status()?);
    // A person knows better.
    fs.up_again()?;
    made.join().expect("no panic")?;
    for target in [&ost, &mdt] {
        ensure!(row(&fs, target)?["state"] == "up", "{}", row(&fs, target)?);
    }
    fs.fsck()
}

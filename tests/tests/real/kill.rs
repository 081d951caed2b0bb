//! Daemons are killed under a verifying load; applications notice nothing.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, tool, wait_until};
use tests::load;
use tests::rng::Rng;

/// Rounds of the kill test: 50 in `make test`; `NACRE_KILL_ROUNDS` runs more.
fn rounds() -> u64 {
    std::env::var("NACRE_KILL_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(50)
}

/// Kills a random server again and again under the load; returns what the load saw.
fn killing(fs: &TestFs, rounds: u64, seed: u64) -> Result<load::LoadReport> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        let load = s.spawn(|| load::run(fs.mounts(), 4, seed, &stop, &done));
        let mut rng = Rng::new(seed);
        let mut round = |n: u64| -> Result<()> {
            let pids = fs.servers()?;
            let victim = pids[rng.below(pids.len() as u64) as usize];
            kill(victim, Signal::KILL)?;
            fs.up_again()?;
            let before = done.load(Ordering::Relaxed);
            wait_until(&format!("round {n}: the load goes on"), Duration::from_secs(60), || {
                load.is_finished() || done.load(Ordering::Relaxed) > before + 40
            })
        };
        let result = (0..rounds).take_while(|_| !load.is_finished()).try_for_each(&mut round);
        stop.store(true, Ordering::Relaxed);
        let report = load.join().expect("load");
        result.map(|()| report)
    })
}

fn seed() -> u64 {
    std::env::var("NACRE_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(20_261_121)
}

#[test]
fn servers_die_and_no_application_notices() -> Result<()> {
    let fs = TestFs::up("kill", 3, 2)?;
    let report = killing(&fs, rounds(), seed())?;
    println!(
        "{} rounds, {} operations, {} errors (seed {})",
        rounds(),
        report.operations,
        report.errors.len(),
        seed()
    );
    ensure!(report.errors.is_empty(), "application errors:\n{}", report.errors.join("\n"));
    fs.fsck()
}

/// The same with answers that come when the change is on disk.
#[test]
fn servers_die_with_durable_answers() -> Result<()> {
    let fs = TestFs::up("durable", 2, 2)?;
    let limit = Duration::from_secs(20);
    for kind in ["obdfilter", "mdt"] {
        let param = format!("{kind}.{}-*.ack", fs.fsname());
        ok_within(
            tool("lctl").args(["set_param", "-P", &format!("{param}=durable")]).current_dir(fs.mount(0)),
            limit,
        )?;
    }
    let durable = || -> Result<bool> {
        let all =
            ok_within(tool("lctl").args(["get_param", "-n", &format!("*.{}-*.ack", fs.fsname())]), limit)?;
        Ok(all.lines().count() == 3 && all.lines().all(|l| l == "durable"))
    };
    wait_until("every target answers durably", limit, || durable().unwrap_or(false))?;
    let report = killing(&fs, rounds() / 5, seed() + 2)?;
    ensure!(report.errors.is_empty(), "application errors:\n{}", report.errors.join("\n"));
    wait_until("and still does after a restart", limit, || durable().unwrap_or(false))?;
    fs.fsck()
}

/// The daemons run over a disk that drops every write not flushed when they are killed: a loss of power.
#[test]
fn power_fails_and_nothing_acknowledged_is_lost() -> Result<()> {
    let fs = TestFs::up_with("power", 3, 2, vec![("NACRE_VOLATILE_DISK", "1".to_string())])?;
    let report = killing(&fs, rounds() / 2, seed() + 1)?;
    println!("{} operations, {} errors (seed {})", report.operations, report.errors.len(), seed() + 1);
    ensure!(report.errors.is_empty(), "application errors:\n{}", report.errors.join("\n"));
    fs.fsck()
}

/// A killed client daemon: ENOTCONN, its locks are free soon, `nacre up` brings the mount back.
#[test]
fn a_killed_client_leaves_nothing_behind() -> Result<()> {
    let fs = TestFs::up("client", 2, 2)?;
    let path = fs.mount(0).join("f");
    std::fs::write(&path, b"kept")?;
    let held = std::fs::File::open(&path)?;
    held.sync_all()?; // what is not dies with its client
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive)?;
    let orphan = fs.mount(0).join("orphan");
    std::fs::write(&orphan, vec![1; 100_000])?;
    let open = std::fs::File::open(&orphan)?;
    std::fs::remove_file(&orphan)?;
    let other = std::fs::File::open(fs.mount(1).join("f"))?;
    ensure!(
        rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err(),
        "locked"
    );
    for pid in fs.clients()? {
        let cmdline = std::fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
        if cmdline.contains("mnt0") {
            kill(pid, Signal::KILL)?;
        }
    }
    wait_until("ENOTCONN", Duration::from_secs(5), || {
        std::fs::metadata(&path).is_err_and(|e| e.raw_os_error() == Some(107))
    })?;
    wait_until("the dead client's lock is free", Duration::from_secs(40), || {
        rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    })?;
    drop((held, open));
    fs.up_again()?;
    ensure!(std::fs::read(&path)? == b"kept", "the mount is back");
    drop(other);
    fs.fsck()
}

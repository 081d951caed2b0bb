//! Daemons are killed under a verifying load; applications notice nothing.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool, wait_until};
use tests::load;
use tests::rng::Rng;

/// Rounds of the kill test: 50 in `make test`; `NACRE_KILL_ROUNDS` runs more.
fn rounds() -> u64 {
    tests::env_number("NACRE_KILL_ROUNDS").unwrap_or(50)
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
    tests::env_number("NACRE_SEED").unwrap_or(20_261_121)
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

/// A client and a server die together. Others wait for that client as long as they are told to, can see so,
/// and go on when an administrator does not want to wait.
#[test]
fn an_administrator_ends_a_recovery_that_waits_for_a_dead_client() -> Result<()> {
    let fs = TestFs::up("abortrec", 1, 2)?;
    let limit = Duration::from_secs(20);
    let label = format!("{}-MDT0000", fs.fsname());
    let patience = format!("mdt.{label}.recovery_time_soft");
    ok_within(tool("lctl").args(["set_param", "-P", &format!("{patience}=600")]), limit)?;
    let get = |name: &str| ok_within(tool("lctl").args(["get_param", "-n", name]), limit);
    wait_until("the parameter is there", limit, || get(&patience).is_ok_and(|v| v.trim() == "600"))?;
    std::fs::write(fs.mount(1).join("f"), "kept")?;
    std::fs::write(fs.mount(0).join("g"), "lost with its client")?;
    let clients = fs.processes()?.into_iter().filter(|(role, _)| role == "client");
    let first = clients.map(|(_, pid)| pid).find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split('\0').any(|w| fs.mount(0).to_str() == Some(w)))
    });
    let servers = fs.servers()?;
    for pid in first.into_iter().chain(servers) {
        kill(pid, Signal::KILL)?;
    }
    // The mount comes back when nobody is waited for any more.
    let mut up = fs.up_command().stdout(std::process::Stdio::null()).spawn()?;
    let status =
        || -> Result<String> { ok_within(tool("nacre").args(["status", "--dir"]).arg(fs.dir()), limit) };
    let waits = format!("{label} recovers: 1 of ");
    wait_until("it is seen to wait", limit, || status().is_ok_and(|s| s.contains(&waits)))?;
    let patient = |s: String| s.starts_with("status: RECOVERING") && s.contains("time_remaining: 5");
    wait_until("minutes are left", limit, || {
        get(&format!("mdt.{label}.recovery_status")).is_ok_and(patient)
    })?;
    ok_within(tool("lctl").args(["--device", &label, "abort_recovery"]), limit)?;
    wait_until("it is over", limit, || {
        get(&format!("mdt.{label}.recovery_status")).is_ok_and(|s| s.starts_with("status: COMPLETE"))
    })?;
    ensure!(std::fs::read_to_string(fs.mount(1).join("f"))? == "kept", "after the recovery");
    std::fs::write(fs.mount(1).join("f"), "new")?;
    wait_until("nacre up ends", Duration::from_secs(60), || up.try_wait().is_ok_and(|s| s.is_some()))?;
    ensure!(up.wait()?.success(), "nacre up");
    ensure!(std::fs::read_to_string(fs.mount(0).join("f"))? == "new", "through the new client");
    let o = run_within(tool("lctl").args(["--device", "nobody-OST0000", "abort_recovery"]), limit)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(19) && said.contains("no nacred of this host serves it"), "{said}");
    // A mount's own connection, made anew.
    let devices = ok_within(tool("lctl").arg("dl"), limit)?;
    let ours = format!("{}-OST0000-osc-", fs.fsname());
    let of_mount = |w: &&str| w.starts_with(&ours) && !w.ends_with("_UUID") && !w.contains("-osc-MDT");
    let device = devices.split_whitespace().find(of_mount);
    let device = device.context("no such device")?;
    ok_within(tool("lctl").args(["--device", device, "recover"]), limit)?;
    let import = format!("osc.{device}.import");
    wait_until("it is connected again", limit, || get(&import).is_ok_and(|s| s.contains("state: FULL")))?;
    std::fs::write(fs.mount(1).join("f"), vec![1; 200_000])?;
    Ok(())
}

/// Four clients with 10,000 operations between them that no server has, when the MDT dies: they are all done
/// by whoever serves it next. Prints how long that takes, from its start on.
#[test]
fn ten_thousand_operations_outlive_their_server() -> Result<()> {
    const CLIENTS: usize = 4;
    const EACH: usize = 2500;
    let fs = TestFs::up("tenk", 2, CLIENTS)?;
    let dirs: Vec<_> = (0..CLIENTS).map(|c| fs.mount(c).join(format!("of{c}"))).collect();
    dirs.iter().try_for_each(std::fs::create_dir)?;
    for d in &dirs {
        // From here on the directory is this mount's own.
        (0..3).try_for_each(|i| std::fs::write(d.join(format!("first{i}")), b""))?;
    }
    let pid = fs.servers()?[0];
    kill(pid, Signal::STOP)?;
    let made = std::thread::scope(|s| -> Result<()> {
        let make = |d: &std::path::PathBuf| -> std::io::Result<()> {
            (0..EACH).try_for_each(|i| std::fs::File::create_new(d.join(format!("f{i}"))).map(drop))
        };
        let all: Vec<_> = dirs.iter().map(|d| s.spawn(move || make(d))).collect();
        let began = std::time::Instant::now();
        // With the server asleep: who needs it for a name waits until it is started anew.
        wait_until("the operations are answered", Duration::from_secs(5), || {
            all.iter().all(|t| t.is_finished())
        })
        .ok();
        let answered = all.iter().filter(|t| t.is_finished()).count();
        println!(
            "{answered} of {CLIENTS} clients had all their answers after {:.1} s",
            began.elapsed().as_secs_f64()
        );
        kill(pid, Signal::KILL)?;
        let start = std::time::Instant::now();
        fs.up_again()?;
        for t in all {
            t.join().expect("a client")?;
        }
        for d in &dirs {
            std::fs::File::open(d)?.sync_all()?;
        }
        println!(
            "{} operations are durable {:.2} s after the start of nacre up",
            CLIENTS * EACH,
            start.elapsed().as_secs_f64()
        );
        Ok(())
    });
    made?;
    for c in 0..CLIENTS {
        let seen = std::fs::read_dir(fs.mount((c + 1) % CLIENTS).join(format!("of{c}")))?.count();
        ensure!(seen == EACH + 3, "{seen} names of client {c}");
    }
    fs.fsck()
}

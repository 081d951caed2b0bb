//! All servers stand still, as on a laptop that is closed, under a paused hypervisor, over a disk that
//! stalls: when they go on they are out of time, find that nobody took their targets, and start again by
//! themselves. Programs go on, too.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, kill, ok_within, run_within, wait_until};
use tests::env_number;

/// Between the wake-up and the first operation that every program has begun and ended since.
const GOES_ON_WITHIN: Duration = Duration::from_secs(5);

/// One program: it makes files, writes, flushes, reads back, renames and removes; the first error ends it.
struct Program {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<()>>,
}

fn one_round(dir: &Path, n: u64, bytes: usize) -> Result<()> {
    let (a, b) = (dir.join(format!("a{}", n % 40)), dir.join(format!("b{}", n % 40)));
    let data: Vec<u8> = (0..bytes).map(|i| (i as u64).wrapping_mul(n | 1) as u8).collect();
    let f = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&a);
    let f = f.context("open")?;
    f.write_all_at(&data, 0).context("write")?;
    f.sync_all().context("fsync")?;
    let mut back = vec![0; bytes];
    f.read_exact_at(&mut back, 0).context("read")?;
    ensure!(back == data, "{}: other bytes than were written", a.display());
    drop(f);
    std::fs::rename(&a, &b).context("rename")?;
    ensure!(std::fs::read(&b).context("read after rename")? == data, "{}: other bytes", b.display());
    std::fs::remove_file(&b).context("unlink")
}

impl Program {
    fn start(dir: PathBuf, bytes: usize) -> Result<Program> {
        std::fs::create_dir_all(&dir)?;
        let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (r, s) = (rounds.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut n = 0;
            while !s.load(Ordering::Relaxed) {
                one_round(&dir, n, bytes).with_context(|| format!("{}, round {n}", dir.display()))?;
                n += 1;
                r.store(n, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Program { rounds, stop, thread })
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Rounds of pauses under load. What the worst one took from the wake-up on.
fn rounds_of(fs: &TestFs, rounds: u64, pause: Duration) -> Result<Duration> {
    let mut programs = Vec::new();
    for i in 0..fs.mounts().len() {
        // Small files live on the MDT, the others on OSTs.
        for (j, bytes) in [3_000, 300_000].into_iter().enumerate() {
            programs.push(Program::start(fs.mount(i).join(format!("load{i}{j}")), bytes)?);
        }
    }
    let servers = fs.servers()?;
    let mut worst = Duration::ZERO;
    for round in 0..rounds {
        let begun: Vec<u64> = programs.iter().map(|p| p.rounds.load(Ordering::Relaxed)).collect();
        wait_until("every program works", Duration::from_secs(60), || {
            programs.iter().zip(&begun).all(|(p, b)| p.rounds.load(Ordering::Relaxed) > b + 2)
        })?;
        servers.iter().try_for_each(|pid| kill(*pid, Signal::STOP))?;
        std::thread::sleep(pause); // It is what is tested.
        let before: Vec<u64> = programs.iter().map(|p| p.rounds.load(Ordering::Relaxed)).collect();
        servers.iter().try_for_each(|pid| kill(*pid, Signal::CONT))?;
        let woken = Instant::now();
        // The round that was under way, and one more.
        let went_on = wait_until("every program goes on", Duration::from_secs(60), || {
            programs.iter().all(|p| p.thread.is_finished())
                || programs.iter().zip(&before).all(|(p, b)| p.rounds.load(Ordering::Relaxed) > b + 1)
        });
        let took = woken.elapsed();
        println!("round {round}: programs went on {:.2} s after the wake-up", took.as_secs_f64());
        worst = worst.max(took);
        if went_on.is_err() || programs.iter().any(|p| p.thread.is_finished()) {
            for p in programs {
                p.end()?;
            }
            return went_on.map(|()| worst);
        }
    }
    for p in programs {
        p.end()?;
    }
    ensure!(fs.servers()? == servers, "the same processes serve");
    Ok(worst)
}

fn again(fs: &TestFs) -> Result<Vec<u64>> {
    let status = fs.status()?;
    let servers = status["processes"].as_array().context("no processes")?;
    let servers = servers.iter().filter(|p| p["role"] != "client" && p["role"] != "console");
    Ok(servers.filter_map(|p| p["started_again"].as_u64()).collect())
}

/// Pauses of which programs see nothing but that they last.
fn pauses(name: &str, env: Vec<(&'static str, String)>, rounds: u64) -> Result<TestFs> {
    let fs = TestFs::up_with(name, 2, 2, env)?;
    let seconds = env_number("NACRE_PAUSE_SECONDS").unwrap_or(12);
    let worst = rounds_of(&fs, rounds, Duration::from_secs(seconds))?;
    println!("{rounds} rounds of {seconds} s: at most {:.2} s", worst.as_secs_f64());
    ensure!(worst <= GOES_ON_WITHIN, "programs went on after {worst:?} only");
    Ok(fs)
}

/// `NACRE_PAUSE_ROUNDS=20 NACRE_PAUSE_SECONDS=60` for more of it.
#[test]
fn servers_that_stood_still_start_again_by_themselves() -> Result<()> {
    let rounds = env_number("NACRE_PAUSE_ROUNDS").unwrap_or(2);
    let fs = pauses("pause", Vec::new(), rounds)?;
    ensure!(again(&fs)?.iter().all(|n| *n == rounds), "each server started again each time");
    fs.fsck()
}

/// As on a paused guest: only the wall clock tells the servers afterwards that they were away.
#[test]
fn servers_whose_clocks_stood_still_go_on() -> Result<()> {
    let rounds = env_number("NACRE_PAUSE_ROUNDS").unwrap_or(1);
    let fs = pauses("clocks", vec![("NACRE_STOPPED_CLOCKS", "1".into())], rounds)?;
    ensure!(again(&fs)?.iter().all(|n| *n <= rounds), "no server starts again without a pause");
    fs.fsck()
}

/// A client that was at work and stands still is waited for once, by the MDT and the OSTs together, and then
/// evicted: whoever reads after it waits for about 20 s, not for one target after the other. When it wakes up
/// it is told, and works again.
#[test]
fn a_client_that_stands_still_is_waited_for_once() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let fs = TestFs::up("asleep", 2, 2)?;
    let (asleep, awake) = (fs.mount(0), fs.mount(1));
    std::fs::write(asleep.join("flushed"), vec![5; 400_000])?;
    std::fs::File::open(asleep.join("flushed"))?.sync_all()?;
    // It has the directory and the object for itself. Nothing of it is open here any more: whoever closed it
    // then, a program that is started, too, would wait in the kernel for a process that stands still.
    std::fs::File::options().write(true).open(asleep.join("flushed"))?.write_all_at(&[6; 1000], 0)?;
    std::fs::write(asleep.join("another"), b"text")?;
    let of_the_first = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(asleep.to_str().unwrap_or("?"))
    };
    let client = fs.clients()?.into_iter().find(of_the_first).context("the process of the first mount")?;
    kill(client, Signal::STOP)?;
    let start = Instant::now();
    let read =
        || ok_within(Command::new("sh").arg("-c").arg("ls && wc -c < flushed").current_dir(awake), LIMIT);
    let shown = read();
    let took = start.elapsed();
    kill(client, Signal::CONT)?;
    let shown = shown?;
    ensure!(shown.trim().ends_with("400000"), "the file has its size: {shown}");
    println!("a reader waited {:.1} s", took.as_secs_f64());
    ensure!(took < Duration::from_secs(27), "a reader waited {took:?}");
    // Whatever it was told first, it is back.
    wait_until("the first mount works", LIMIT, || {
        run_within(Command::new("touch").arg(asleep.join("back")), LIMIT).is_ok_and(|o| o.status.success())
    })?;
    ensure!(awake.join("back").exists());
    fs.fsck()
}

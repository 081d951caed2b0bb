//! Targets on storage that two hosts reach move between them while applications work, and none of those notices. Who
//! decides that a host is dead stands outside Nacre; here it is the test, which ends the old server before it starts the
//! new one, as fencing does.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, ok_within, run_within, tool, wait_until};
use tests::hosts::Hosts;
use tests::load;
use tests::rng::Rng;

const LIMIT: Duration = Duration::from_secs(60);
const MGS: u32 = 1;
const CLIENT: u32 = 6;

/// Moves of targets: 12 in `make test`; `NACRE_FAILOVERS` makes more.
fn moves() -> u64 {
    std::env::var("NACRE_FAILOVERS").ok().and_then(|v| v.parse().ok()).unwrap_or(12)
}

fn seed() -> u64 {
    std::env::var("NACRE_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(20_261_122)
}

/// Targets that one of two hosts serves.
struct Pair {
    hosts: [u32; 2],
    /// Index into `hosts`.
    at: usize,
    dirs: Vec<PathBuf>,
}

impl Pair {
    fn here(&self) -> u32 {
        self.hosts[self.at]
    }

    fn service(&self) -> String {
        self.hosts.map(Hosts::nid).join(":")
    }
}

struct Site {
    scratch: Scratch,
    hosts: Hosts,
    mount: PathBuf,
    pairs: [Pair; 2],
}

impl Site {
    fn up() -> Result<Site> {
        let scratch = Scratch::new("failover");
        let mount = scratch.path().join("mnt");
        std::fs::create_dir(&mount)?;
        let dir = |n: &str| scratch.path().join(n);
        let mut pairs = [
            Pair { hosts: [2, 3], at: 0, dirs: vec![dir("mdt0")] },
            Pair { hosts: [4, 5], at: 0, dirs: vec![dir("ost0"), dir("ost1")] },
        ];
        let mgs = format!("--mgsnode={}", Hosts::nid(MGS));
        let mkfs = |args: &[&str], dir: &PathBuf| ok_within(tool("mkfs.nacre").args(args).arg(dir), LIMIT);
        mkfs(&["--mgs"], &dir("mgt"))?;
        for (kind, pair) in ["--mdt", "--ost"].iter().zip(&pairs) {
            let service = format!("--servicenode={}", pair.service());
            for (i, d) in pair.dirs.iter().enumerate() {
                mkfs(&[kind, "--fsname=fail", &format!("--index={i}"), &mgs, &service], d)?;
            }
        }
        let mut hosts = Hosts::new(CLIENT, &mount)?;
        hosts.nacred(MGS, &[dir("mgt")], &dir("log-mgs"))?;
        for pair in &mut pairs {
            hosts.nacred(pair.here(), &pair.dirs, &dir(&format!("log{}", pair.here())))?;
        }
        let source = format!("{}:/fail", Hosts::nid(MGS));
        wait_until("the client mounts", LIMIT, || {
            run_within(hosts.on(CLIENT, "mount.nacre").arg(&source).arg(&mount), Duration::from_secs(40))
                .is_ok_and(|o| o.status.success())
        })?;
        wait_until("both OSTs are known", LIMIT, || {
            run_within(tool("lfs").arg("osts").arg(&mount), LIMIT)
                .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).matches(" ACTIVE").count() == 2)
        })?;
        Ok(Site { scratch, hosts, mount, pairs })
    }

    /// One host goes in some way, the other takes its targets.
    fn fail_over(&mut self, rng: &mut Rng) -> Result<&'static str> {
        let pair = &mut self.pairs[rng.below(2) as usize];
        let old = pair.here();
        let how = ["killed", "unplugged and fenced", "stopped in an orderly way"][rng.below(3) as usize];
        match how {
            "killed" => self.hosts.end(old, Signal::KILL)?,
            "stopped in an orderly way" => self.hosts.end(old, Signal::TERM)?,
            _ => {
                // Nobody hears that its connections end.
                self.hosts.link(old, false)?;
                self.hosts.end(old, Signal::KILL)?;
            }
        }
        pair.at = 1 - pair.at;
        let new = pair.here();
        self.hosts.link(new, true)?;
        let log = self.scratch.path().join(format!("log{new}"));
        self.hosts.nacred(new, &pair.dirs, &log)?;
        Ok(how)
    }

    fn said(&self) -> String {
        let log = |n: u32| std::fs::read_to_string(self.scratch.path().join(format!("log{n}")));
        let all = (2..=5).map(|n| format!("host {n}:\n{}", log(n).unwrap_or_default()));
        let mut text = all.collect::<Vec<_>>().join("\n");
        let keep = text.len().saturating_sub(20_000);
        text.split_off((keep..).find(|i| text.is_char_boundary(*i)).expect("the end is one"))
    }
}

#[test]
fn targets_move_between_hosts_and_no_application_notices() -> Result<()> {
    let mut site = Site::up()?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mount = [site.mount.clone()];
    let mut times: Vec<Duration> = Vec::new();
    let report = std::thread::scope(|s| {
        let load = s.spawn(|| load::run(&mount, 4, seed(), &stop, &done));
        let mut rng = Rng::new(seed());
        let mut turn = |n: u64| -> Result<()> {
            let start = Instant::now();
            let how = site.fail_over(&mut rng)?;
            let before = done.load(Ordering::Relaxed);
            let goes_on = || load.is_finished() || done.load(Ordering::Relaxed) > before + 40;
            wait_until(&format!("move {n} ({how}): the load goes on"), LIMIT, goes_on)
                .with_context(|| site.said())?;
            times.push(start.elapsed());
            Ok(())
        };
        let result = (0..moves()).take_while(|_| !load.is_finished()).try_for_each(&mut turn);
        stop.store(true, Ordering::Relaxed);
        let report = load.join().expect("load");
        result.map(|()| report)
    })?;
    times.sort();
    let at = |p: usize| times.get((times.len() * p / 100).min(times.len().saturating_sub(1))).copied();
    println!(
        "{} moves, {} operations, {} errors (seed {}); until the load went on: p50 {:?}, max {:?}",
        times.len(),
        report.operations,
        report.errors.len(),
        seed(),
        at(50).unwrap_or_default(),
        times.last().copied().unwrap_or_default()
    );
    ensure!(report.errors.is_empty(), "application errors:\n{}\n{}", report.errors.join("\n"), site.said());
    ensure!(times.len() as u64 == moves(), "the load ended early");
    ok_within(Command::new("umount").arg(&site.mount), LIMIT)?;
    for pair in &site.pairs {
        site.hosts.end(pair.here(), Signal::TERM)?;
    }
    site.hosts.end(MGS, Signal::TERM)?;
    let dirs = site.pairs.iter().flat_map(|p| &p.dirs);
    ok_within(tool("nacre").arg("fsck").args(dirs), Duration::from_secs(300)).map(drop)
}

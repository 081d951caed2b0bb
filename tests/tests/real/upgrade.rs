//! A cluster goes from an older build to this one, one daemon after the other, while programs on two clients
//! work and check what they read; and back, if the older build opens what this one leaves. `make
//! upgrade-drill FROM=commit` builds the older one and says where it is (`NACRE_OLD_PROGRAMS`).
//! With one that cannot meet this build (decision 0098) all is stopped in between.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, bin_dir, fsck_when_free, lctl, nacre, ok_within, sh, stripe_64k, wait_until};
use tests::hosts::{self, Hosts, Pair};
use tests::rng::Rng;
use tests::thrash::seed;
use tests::{load, programs};

const LIMIT: Duration = Duration::from_secs(120);
const MGS: u32 = 1;
const CLIENTS: [u32; 2] = [6, 7];
/// Workers of the load: two on each client.
const WORKERS: usize = 4;
/// Operations behind a step by which the load is known to go on.
const GOES_ON: u64 = 100;
/// Files that are written at the beginning, and compared whenever somebody else serves or mounts.
const KEPT: usize = 60;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    Old,
    New,
}

/// What happens while the load runs.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The MGS ends in an orderly way and starts again as this build.
    Mgs(Build),
    /// The idle host of a pair gets this build, and takes the targets over from the other one.
    Over(usize, Build),
    /// The serving host of a pair is killed; the other one, of whatever build, takes over.
    Killed(usize),
}

/// What the pairs serve.
const SERVED: [&str; 2] = ["MDT0000", "OST0000 and OST0001"];

struct Drill {
    // Mounts go before the folders that they are on.
    hosts: Hosts,
    scratch: Scratch,
    mounts: Vec<PathBuf>,
    pairs: [Pair; 2],
    old: PathBuf,
    builds: BTreeMap<u32, Build>,
    kept: BTreeMap<String, Vec<u8>>,
    begun: Instant,
    phases: u32,
    operations: u64,
    programs: u64,
    /// How long old and new stand beside each other after each step.
    dwell: Duration,
}

impl Drill {
    fn up(old: PathBuf) -> Result<Drill> {
        let scratch = Scratch::new("upgrade");
        let dir = |n: &str| scratch.path().join(n);
        let pairs = [
            Pair { hosts: [2, 3], at: 0, dirs: vec![dir("mdt0")] },
            Pair { hosts: [4, 5], at: 0, dirs: vec![dir("ost0"), dir("ost1")] },
        ];
        let mounts: Vec<PathBuf> = CLIENTS.iter().map(|c| dir(&format!("mnt{c}"))).collect();
        let hosts = Hosts::new(CLIENTS[1], &mounts)?;
        let dwell = Duration::from_secs(tests::env_number("NACRE_DWELL_SECONDS").unwrap_or(10));
        let mut d = Drill {
            hosts,
            scratch,
            mounts,
            pairs,
            old,
            builds: BTreeMap::new(),
            kept: BTreeMap::new(),
            begun: Instant::now(),
            phases: 0,
            operations: 0,
            programs: 0,
            dwell,
        };
        (MGS..=CLIENTS[1]).for_each(|h| d.install(h, Build::Old));
        d.format()?;
        d.start_all()?;
        d.write_kept()?;
        Ok(d)
    }

    fn say(&self, text: &str) {
        println!("{:5.0} s  {text}", self.begun.elapsed().as_secs_f64());
    }

    fn install(&mut self, host: u32, build: Build) {
        let programs = if build == Build::Old { self.old.clone() } else { bin_dir() };
        self.hosts.install(host, &programs);
        self.builds.insert(host, build);
    }

    /// By the older build, as everything that an upgrade meets was.
    fn format(&self) -> Result<()> {
        let mkfs = |args: &[&str], dir: &Path| {
            ok_within(Command::new(self.old.join("mkfs.nacre")).args(args).arg(dir), LIMIT)
        };
        mkfs(&["--mgs"], &self.scratch.path().join("mgt"))?;
        let mgs = format!("--mgsnode={}", Hosts::nid(MGS));
        for (kind, pair) in ["--mdt", "--ost"].iter().zip(&self.pairs) {
            let service = format!("--servicenode={}", pair.service());
            for (i, d) in pair.dirs.iter().enumerate() {
                mkfs(&[kind, "--fsname=drill", &format!("--index={i}"), &mgs, &service], d)?;
            }
        }
        Ok(())
    }

    fn log(&self, host: u32) -> PathBuf {
        self.scratch.path().join(format!("log{host}"))
    }

    fn start(&mut self, host: u32, dirs: &[PathBuf]) -> Result<()> {
        let log = self.log(host);
        self.hosts.nacred(host, &[], dirs, &log)
    }

    /// The servers, and the mounts of both clients.
    fn start_all(&mut self) -> Result<()> {
        self.start(MGS, &[self.scratch.path().join("mgt")])?;
        for p in 0..2 {
            self.start(self.pairs[p].here(), &self.pairs[p].dirs.clone())?;
        }
        (0..2).try_for_each(|c| self.mount(c))
    }

    fn mount(&self, client: usize) -> Result<()> {
        let source = format!("{}:/drill", Hosts::nid(MGS));
        hosts::mount(|| self.hosts.on(CLIENTS[client], "mount.nacre"), &source, &self.mounts[client], LIMIT)
    }

    /// A client gets this build: it is unmounted for that.
    fn remount(&mut self, client: usize, build: Build) -> Result<()> {
        self.say(&format!("client {}: unmounted, {build:?} mounted", CLIENTS[client]));
        ok_within(Command::new("umount").arg(&self.mounts[client]), LIMIT)?;
        self.install(CLIENTS[client], build);
        self.mount(client)?;
        self.compare()
    }

    fn write_kept(&mut self) -> Result<()> {
        let mut rng = Rng::new(seed());
        let dir = self.mounts[0].join("kept");
        fs::create_dir(&dir)?;
        for n in 0..KEPT {
            let (name, path) = (format!("f{n}"), dir.join(format!("f{n}")));
            if n % 3 == 1 {
                stripe_64k(&path, 2)?;
            }
            let data = rng.bytes([0, 1, 4000, 70_000, 900_000][n % 5]);
            fs::write(&path, &data)?;
            self.kept.insert(name, data);
        }
        sh(&format!("sync -f {}", dir.display()), LIMIT)?;
        self.compare()
    }

    /// The files of the beginning, by both mounts.
    fn compare(&self) -> Result<()> {
        for m in &self.mounts {
            for (name, want) in &self.kept {
                let path = m.join("kept").join(name);
                let got = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                ensure!(&got == want, "{}: wrong bytes ({} of {})", path.display(), got.len(), want.len());
            }
        }
        Ok(())
    }

    /// What the servers logged, for the message of a failure.
    fn said(&self) -> String {
        let log = |n: u32| fs::read_to_string(self.log(n)).unwrap_or_default();
        let tail = |t: String| {
            t.lines().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        };
        (1..=5).map(|n| format!("host {n} ({:?}):\n{}\n", self.builds[&n], tail(log(n)))).collect()
    }

    /// `None`: done. Words: the build that was to take over refuses the targets, which are where they were.
    fn take(&mut self, step: Step) -> Result<Option<String>> {
        match step {
            Step::Mgs(build) => {
                self.say(&format!("MGS: host {MGS} restarts as {build:?}"));
                self.hosts.end(MGS, Signal::TERM)?;
                self.install(MGS, build);
                self.start(MGS, &[self.scratch.path().join("mgt")])?;
                Ok(None)
            }
            Step::Over(p, build) => {
                let (from, to) = (self.pairs[p].here(), self.pairs[p].hosts[self.pairs[p].at ^ 1]);
                self.say(&format!("{}: from host {from} to host {to}, which is {build:?}", SERVED[p]));
                self.install(to, build);
                self.move_on(p, Signal::TERM)
            }
            Step::Killed(p) => {
                let from = self.pairs[p].here();
                self.say(&format!("{}: host {from} is killed", SERVED[p]));
                self.move_on(p, Signal::KILL)
            }
        }
    }

    fn move_on(&mut self, p: usize, signal: Signal) -> Result<Option<String>> {
        self.hosts.end(self.pairs[p].here(), signal)?;
        self.pairs[p].at ^= 1;
        let (here, dirs) = (self.pairs[p].here(), self.pairs[p].dirs.clone());
        let before = fs::read_to_string(self.log(here)).unwrap_or_default().len();
        self.start(here, &dirs)?;
        // Who refuses a target does so at once.
        let refuses =
            wait_until("it ends", Duration::from_secs(3), || self.hosts.is_over(here).unwrap_or(true));
        if refuses.is_err() {
            return Ok(None);
        }
        self.hosts.ends_by_itself(here)?;
        let words = fs::read_to_string(self.log(here))?.split_off(before);
        self.pairs[p].at ^= 1;
        self.start(self.pairs[p].here(), &dirs)?;
        Ok(Some(words.trim().to_string()))
    }

    /// The load runs on both mounts while the steps are taken; the first refusal ends them.
    fn under_load(&mut self, name: &str, steps: &[Step]) -> Result<Option<String>> {
        self.phases += 1;
        self.say(&format!("--- {name}"));
        let dirs: Vec<PathBuf> =
            self.mounts.iter().map(|m| m.join(format!("phase{}", self.phases))).collect();
        fs::create_dir(&dirs[0])?;
        let (stop, done, programs_done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let (seed, scratch) = (seed() + u64::from(self.phases) * 100, self.scratch.path().to_path_buf());
        let (report, more, refused) = std::thread::scope(|s| {
            let load = s.spawn(|| load::run(&dirs, WORKERS, seed, &stop, &done));
            let programs = s.spawn(|| programs::run(&dirs, &scratch, &stop, &programs_done));
            let ended = || load.is_finished() || programs.is_finished();
            let goes_on = |d: &Drill| {
                let before = done.load(Relaxed);
                let more = || ended() || done.load(Relaxed) > before + GOES_ON;
                wait_until("the load goes on", LIMIT, more).with_context(|| d.said())?;
                let end = Instant::now() + d.dwell;
                wait_until("old and new stood beside each other", d.dwell * 2, || {
                    ended() || Instant::now() > end
                })
            };
            let mut all = || -> Result<Option<String>> {
                goes_on(self)?;
                for step in steps {
                    let refused = self.take(*step).with_context(|| format!("{step:?}"))?;
                    goes_on(self).with_context(|| format!("after {step:?}"))?;
                    if refused.is_some() || ended() {
                        return Ok(refused);
                    }
                }
                Ok(None)
            };
            let result = all().inspect_err(|e| println!("FAILED: {e:#}"));
            stop.store(true, Relaxed);
            let (report, more) = (load.join().expect("load"), programs.join().expect("programs"));
            result.map(|refused| (report, more, refused))
        })?;
        self.operations += report.operations;
        self.programs += programs_done.into_inner();
        let errors: Vec<String> = report.errors.into_iter().chain(more).collect();
        ensure!(errors.is_empty(), "{name}: application errors:\n{}\n{}", errors.join("\n"), self.said());
        self.compare().with_context(|| format!("after: {name}"))?;
        self.say(&format!("{} operations, {} programs so far, no error", self.operations, self.programs));
        Ok(refused)
    }

    fn upgrade(&mut self) -> Result<()> {
        use Build::New;
        let steps = [
            Step::Mgs(New),
            Step::Over(1, New),
            Step::Over(1, New),
            Step::Over(0, New),
            Step::Over(0, New),
            Step::Killed(1),
            Step::Killed(0),
        ];
        let refused = self.under_load("servers to the new build under old clients", &steps)?;
        ensure!(refused.is_none(), "the new build refuses what the old one left: {refused:?}");
        self.remount(0, New)?;
        self.under_load("an old and a new client side by side", &[Step::Killed(0)])?;
        self.remount(1, New)?;
        self.under_load("everything new", &[Step::Killed(1)])?;
        self.say("checked as it is served");
        nacre(&["fsck", "--online", "--across"]).map(drop)
    }

    /// What the old build says of the targets, if it refuses them.
    fn downgrade(&mut self) -> Result<Option<String>> {
        use Build::Old;
        let steps =
            [Step::Over(1, Old), Step::Over(1, Old), Step::Over(0, Old), Step::Over(0, Old), Step::Mgs(Old)];
        if let Some(words) = self.under_load("servers back to the old build under new clients", &steps)? {
            return Ok(Some(words));
        }
        self.remount(0, Old)?;
        self.under_load("an old and a new client on old servers", &[Step::Killed(0)])?;
        self.remount(1, Old)?;
        self.under_load("everything old again", &[])?;
        Ok(None)
    }

    /// Everything is stopped, gets the new build, and starts. The servers end by `signal`, so that there are
    /// journals of the old build or none.
    fn upgrade_stopped(&mut self, signal: Signal) -> Result<()> {
        self.under_load("everything old", &[])?;
        self.stop(signal)?;
        self.say(&format!("all is stopped ({signal:?}), and starts as the new build"));
        (MGS..=CLIENTS[1]).for_each(|h| self.install(h, Build::New));
        self.start_all()?;
        self.compare().with_context(|| self.said())?;
        self.under_load("everything new", &[Step::Killed(0), Step::Killed(1)])?;
        self.say("checked as it is served");
        nacre(&["fsck", "--online", "--across"]).map(drop)
    }

    fn stop(&mut self, signal: Signal) -> Result<()> {
        for m in &self.mounts {
            ok_within(Command::new("umount").arg(m), LIMIT)?;
        }
        for p in 0..2 {
            self.hosts.end(self.pairs[p].here(), signal)?;
        }
        self.hosts.end(MGS, signal)
    }

    fn down(&mut self) -> Result<()> {
        self.stop(Signal::TERM)?;
        self.say("checked offline by the new build");
        fsck_when_free(self.pairs.iter().flat_map(|p| &p.dirs))
    }
}

/// Two releases on one host: `old` is installed beside this one, and each mounts the file system by itself.
fn side_by_side(d: &mut Drill) -> Result<()> {
    let second = d.scratch.path().join("second");
    let client = CLIENTS[0];
    let other = if d.builds[&client] == Build::Old { Build::New } else { Build::Old };
    let was = d.builds[&client];
    d.install(client, other);
    let source = format!("{}:/drill", Hosts::nid(MGS));
    hosts::mount(|| d.hosts.on(client, "mount.nacre"), &source, &second, LIMIT)?;
    d.install(client, was);
    d.say(&format!("client {client}: {was:?} and {other:?} each have a mount"));
    let there = d.mounts[0].join("from the first");
    fs::write(&there, b"first")?;
    ensure!(fs::read(second.join("from the first"))? == b"first");
    fs::write(second.join("from the first"), b"second one")?;
    ensure!(fs::read(&there)? == b"second one");
    // The tools of one release know the mounts of both.
    let both = lctl(&["get_param", "-n", "llite.*.uuid"])?;
    ok_within(Command::new("umount").arg(&second), LIMIT)?;
    fs::remove_file(&there)?;
    ensure!(both.lines().count() == 3, "lctl of one release sees the mounts of both: {both}");
    Ok(())
}

/// Whether it is no older than the rules on who may speak (0040), by an option that came with them.
fn may_meet(old: &Path) -> Result<bool> {
    Ok(ok_within(Command::new(old.join("nacred")).arg("--help"), LIMIT)?.contains("--accept"))
}

fn stopped_in_between(old: &Path) -> Result<()> {
    let mut done = Vec::new();
    for (signal, how) in [(Signal::TERM, "stopped"), (Signal::KILL, "killed")] {
        let mut d = Drill::up(old.to_path_buf())?;
        d.upgrade_stopped(signal)?;
        d.down()?;
        done.push(format!("{how}: {} operations and {} programs", d.operations, d.programs));
    }
    println!(
        "upgrade drill: all servers of the old build, {}; no error, no wrong byte; checks clean",
        done.join("; ")
    );
    Ok(())
}

#[test]
#[ignore = "needs an older build: make upgrade-drill FROM=commit"]
fn a_cluster_goes_from_an_older_build_to_this_one_and_no_program_notices() -> Result<()> {
    let old =
        std::env::var("NACRE_OLD_PROGRAMS").context("NACRE_OLD_PROGRAMS: the folder of the older build")?;
    let old = PathBuf::from(old);
    if !may_meet(&old)? {
        return stopped_in_between(&old);
    }
    let mut d = Drill::up(old)?;
    side_by_side(&mut d)?;
    d.upgrade()?;
    let refused = d.downgrade()?;
    d.down()?;
    let back = match refused {
        None => "and back to the old build".to_string(),
        Some(words) => {
            format!("the old build refuses what the new one leaves: {}", words.replace('\n', " | "))
        }
    };
    println!(
        "upgrade drill: {} operations and {} programs, no error, no wrong byte; checks clean; {back}",
        d.operations, d.programs
    );
    Ok(())
}

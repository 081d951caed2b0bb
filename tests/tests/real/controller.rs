//! Three server hosts with controllers over a three-member etcd, two clients that work: hosts, links, members of etcd and its
//! majority come and go, and no application notices.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, ok_within, run_within, tool, wait_until};
use tests::controllers::{Controllers, SERVERS, TERM};
use tests::load;
use tests::rng::Rng;

const LIMIT: Duration = Duration::from_secs(90);
const CLIENTS: [u32; 2] = [4, 5];
const TARGETS: [&str; 3] = ["mdt0", "ost0", "ost1"];
const FAULTS: [Fault; 9] = [
    Fault::ServerKilled,
    Fault::HandOver,
    Fault::HostDead,
    Fault::ControllerKilled,
    Fault::Frozen,
    Fault::LinkCut,
    Fault::MemberLost,
    Fault::MajorityLost,
    Fault::MgsKilled,
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fault {
    /// Its controller starts it again.
    ServerKilled,
    /// `nacre ha takeover`, `giveback`, and an orderly end of a controller.
    HandOver,
    /// With its member of etcd; nobody hears that connections end.
    HostDead,
    /// It is started again, and finds its servers well.
    ControllerKilled,
    /// Everything on a host sleeps for longer than its lease, and wakes up later.
    Frozen,
    /// The host lives and is alone.
    LinkCut,
    MemberLost,
    /// Nobody may act until it is back.
    MajorityLost,
    MgsKilled,
}

fn seed() -> u64 {
    tests::env_number("NACRE_SEED").unwrap_or(20_261_122)
}

struct Site {
    c: Controllers,
    scratch: Scratch,
    mounts: Vec<PathBuf>,
    /// What is put right before the next fault.
    off: Option<u32>,
    cut: Option<u32>,
    frozen: Option<u32>,
    members: Vec<u32>,
    moved: u64,
}

impl Site {
    fn up() -> Result<Site> {
        let scratch = Scratch::new("etcd");
        let dir = |n: &str| scratch.path().join(n);
        let mounts: Vec<PathBuf> = CLIENTS.iter().map(|c| dir(&format!("mnt{c}"))).collect();
        let mut c = Controllers::new(2, scratch.path(), &mounts)?;
        SERVERS.iter().try_for_each(|h| c.boot(*h))?;
        for (t, name) in TARGETS.iter().enumerate() {
            let kind = if name.starts_with("mdt") { "--mdt" } else { "--ost" };
            let index = format!("--index={}", &name[3..]);
            let service = SERVERS.map(|h| Controllers::place(h, t)).join(":");
            let args = [
                kind,
                "--fsname=ec",
                &index,
                &format!("--mgsnode={}", Controllers::mgs()),
                &format!("--servicenode={service}"),
            ];
            ok_within(tool("mkfs.nacre").args(args).arg(dir(name)), LIMIT)?;
        }
        wait_until("etcd serves", LIMIT, || c.ha(&["status"]).is_ok())?;
        for (t, name) in TARGETS.iter().enumerate() {
            // Each has another host that it prefers.
            let on = |i: usize| {
                let h = SERVERS[(t + i) % 3];
                format!("--on={}={}", Controllers::name(h), Controllers::place(h, t))
            };
            let folder = dir(name);
            let (a, b, d) = (on(0), on(1), on(2));
            // Heartbeats that count for five seconds: a sleeping server is not waited for so long.
            let args = [
                "define",
                &a,
                &b,
                &d,
                "--options=--mmp-interval 500",
                name,
                folder.to_str().context("UTF-8")?,
            ];
            c.ha(&args)?;
        }
        c.all_served(&[])?;
        let site =
            Site { c, scratch, mounts, off: None, cut: None, frozen: None, members: Vec::new(), moved: 0 };
        for (client, mount) in CLIENTS.iter().zip(&site.mounts) {
            std::fs::create_dir(mount)?;
            site.mount(*client, mount)?;
        }
        Ok(site)
    }

    fn mount(&self, client: u32, mount: &Path) -> Result<()> {
        let source = format!("{}:/ec", Controllers::mgs());
        let mounted = wait_until("the client mounts", LIMIT, || {
            let mut c = self.c.hosts.on(client, "mount.nacre");
            run_within(c.arg(&source).arg(mount), Duration::from_secs(40)).is_ok_and(|o| o.status.success())
        });
        mounted.with_context(|| self.c.said())?;
        wait_until("both OSTs are known", LIMIT, || {
            run_within(tool("lfs").arg("osts").arg(mount), LIMIT)
                .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).matches(" ACTIVE").count() == 2)
        })
    }

    fn dirs_of(&self, host: u32) -> Result<Vec<PathBuf>> {
        let name = Controllers::name(host);
        let all = self.c.status()?;
        let here = all.iter().filter(|t| t.1.as_ref() == Some(&name));
        Ok(here.map(|t| self.scratch.path().join(&t.0)).collect())
    }

    fn happens(&mut self, fault: Fault, rng: &mut Rng) -> Result<()> {
        let target = TARGETS[rng.below(3) as usize];
        let host = self.c.owner(target)?;
        let dirs = self.dirs_of(host)?;
        let other = SERVERS.into_iter().find(|h| *h != host).context("another host")?;
        match fault {
            Fault::ServerKilled => {
                let dir = self.scratch.path().join(target);
                let killed = self.c.signal(host, dir.to_str().context("UTF-8")?, Signal::KILL);
                ensure!(killed == 1, "{killed} servers of {target} were killed on host {host}");
            }
            Fault::HandOver => {
                self.c.ha(&["takeover", "--to", &Controllers::name(other), target])?;
                ensure!(self.c.owner(target)? == other, "it did not move");
                let said = self.c.ha(&["giveback", target])?;
                ensure!(said.contains(&format!("{target}: serving on ")), "{said}");
                // The whole host, in order.
                let host = self.c.owner(target)?;
                self.moved += 2 + self.dirs_of(host)?.len() as u64;
                self.c.signal(host, "controller", Signal::TERM);
                wait_until("another host has it", LIMIT, || self.c.owner(target).is_ok_and(|h| h != host))
                    .with_context(|| self.c.said())?;
            }
            Fault::HostDead => {
                self.c.power_off(host)?;
                (self.off, self.moved) = (Some(host), self.moved + dirs.len() as u64);
                self.c.all_served(&[host])?;
            }
            Fault::ControllerKilled => {
                let killed = self.c.signal(host, "controller", Signal::KILL);
                ensure!(killed == 1, "{killed} controllers were killed");
                std::thread::sleep(Duration::from_secs(2));
                ensure!(
                    self.c.owner(target)? == host,
                    "it moved although its server was well:\n{}",
                    self.c.said()
                );
            }
            Fault::Frozen => {
                self.c.freeze(host, true);
                let all: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
                self.c.forget_locks(&all)?;
                (self.frozen, self.moved) = (Some(host), self.moved + dirs.len() as u64);
                self.c.all_served(&[host])?;
            }
            Fault::LinkCut => {
                self.c.hosts.link(host, false)?;
                (self.cut, self.moved) = (Some(host), self.moved + dirs.len() as u64);
                self.c.all_served(&[host])?;
            }
            Fault::MemberLost => {
                self.c.member_off(other)?;
                self.members = vec![other];
                self.c.all_served(&[])?;
            }
            Fault::MajorityLost => {
                self.members = vec![host, other];
                self.c.member_off(host)?;
                self.c.member_off(other)?;
                std::thread::sleep(Duration::from_secs(u64::from(TERM) + 1));
                let ended = dirs.iter().all(|d| self.c.signal(host, &d.to_string_lossy(), Signal::CONT) == 0);
                ensure!(ended, "a server goes on without a lease:\n{}", self.c.said());
                self.members_back()?;
                self.c.all_served(&[])?;
            }
            Fault::MgsKilled => {
                let before = self.c.active_mgs()?;
                let host = SERVERS
                    .into_iter()
                    .find(|h| before.contains(&Controllers::name(*h)))
                    .context("a host")?;
                self.c.signal(host, "--mgs-store", Signal::KILL);
                wait_until("another MGS is active", LIMIT, || {
                    self.c.active_mgs().is_ok_and(|now| now != before)
                })?;
                // It knows what the one before knew: a mount finds it and everything else.
                let mount = self.scratch.path().join("mnt-new");
                std::fs::create_dir_all(&mount)?;
                self.mount(CLIENTS[0], &mount)?;
                ok_within(Command::new("umount").arg(&mount), LIMIT)?;
            }
        }
        Ok(())
    }

    fn members_back(&mut self) -> Result<()> {
        std::mem::take(&mut self.members).into_iter().try_for_each(|m| self.c.member_on(m))
    }

    fn put_right(&mut self) -> Result<()> {
        self.members_back()?;
        if let Some(h) = self.off.take() {
            self.c.power_on(h)?;
        }
        if let Some(h) = self.cut.take() {
            self.c.hosts.link(h, true)?;
        }
        if let Some(h) = self.frozen.take() {
            self.c.freeze(h, false);
            let log = self.c.log(h);
            wait_until("the host that slept ends its servers", LIMIT, || {
                std::fs::read_to_string(&log).is_ok_and(|t| t.contains("all servers of this host were ended"))
            })
            .with_context(|| self.c.said())?;
        }
        wait_until("all controllers take part", LIMIT, || {
            self.c.ha(&["status"]).is_ok_and(|s| s.contains("controllers: server1, server2, server3"))
        })
        .with_context(|| self.c.said())?;
        self.c.all_served(&[])
    }
}

/// Each fault once in `make test`; `NACRE_THRASH_MINUTES` goes on by chance.
#[test]
fn controllers_move_targets_and_no_application_notices() -> Result<()> {
    let mut site = Site::up()?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mounts = site.mounts.clone();
    let (mut times, mut faults): (Vec<Duration>, BTreeMap<Fault, u64>) = Default::default();
    let end = tests::env_number("NACRE_THRASH_MINUTES").map(|m| Instant::now() + Duration::from_secs(60 * m));
    let report = std::thread::scope(|s| {
        let load = s.spawn(|| load::run(&mounts, 4, seed(), &stop, &done));
        let mut rng = Rng::new(seed());
        let mut turn = |n: u64| -> Result<()> {
            let fault = if n < 9 { FAULTS[n as usize] } else { FAULTS[rng.below(9) as usize] };
            let start = Instant::now();
            site.happens(fault, &mut rng).with_context(|| format!("fault {n} ({fault:?})"))?;
            let before = done.load(Ordering::Relaxed);
            let goes_on = || load.is_finished() || done.load(Ordering::Relaxed) > before + 40;
            wait_until(&format!("fault {n} ({fault:?}): the load goes on"), LIMIT, goes_on)
                .with_context(|| site.c.said())?;
            println!("{fault:?}: the load went on after {:.1?}", start.elapsed());
            times.push(start.elapsed());
            *faults.entry(fault).or_default() += 1;
            site.put_right().with_context(|| format!("after fault {n} ({fault:?})"))
        };
        let more = |n: &u64| !load.is_finished() && (*n < 9 || end.is_some_and(|t| Instant::now() < t));
        let result = (0..).take_while(more).try_for_each(&mut turn);
        stop.store(true, Ordering::Relaxed);
        let report = load.join().expect("load");
        result.map(|()| report)
    })?;
    times.sort();
    let at = |p: usize| times[(times.len() * p / 100).min(times.len() - 1)];
    let wrong = report.errors.iter().filter(|e| e.contains("instead of")).count();
    println!(
        "until the load went on: p50 {:.1?}, p99 {:.1?}, max {:.1?}; {} operations (seed {}); faults {faults:?}",
        at(50),
        at(99),
        at(100),
        report.operations,
        seed(),
    );
    println!(
        "{} failovers, {} faults, {} application errors, {wrong} files with wrong bytes",
        site.moved,
        times.len(),
        report.errors.len() - wrong
    );
    ensure!(report.errors.is_empty(), "application errors:\n{}\n{}", report.errors.join("\n"), site.c.said());
    ensure!(FAULTS.iter().all(|f| faults.contains_key(f)), "faults that never were: {faults:?}");
    for m in &site.mounts {
        ok_within(Command::new("umount").arg(m), LIMIT)?;
    }
    site.c.undefine(&TARGETS)?;
    let dirs = TARGETS.map(|t| site.scratch.path().join(t));
    ok_within(tool("nacre").arg("fsck").args(dirs), Duration::from_secs(300)).map(drop)
}

/// What an MGS in a folder knows goes into an etcd and back, and nobody who saw it before is put off.
#[test]
fn the_data_of_an_mgs_moves_into_etcd_and_back() -> Result<()> {
    let scratch = Scratch::new("mgt");
    let dir = |n: &str| scratch.path().join(n);
    let mnt = dir("mnt");
    std::fs::create_dir(&mnt)?;
    let mut c = Controllers::new(1, scratch.path(), std::slice::from_ref(&mnt))?;
    let mkfs = |args: &[&str], d: &str| ok_within(tool("mkfs.nacre").args(args).arg(dir(d)), LIMIT);
    let mgs = format!("--mgsnode={}", Controllers::mgs());
    mkfs(&["--mgs"], "mgt")?;
    mkfs(&["--mdt", "--fsname=ec", "--index=0", &mgs], "mdt0")?;
    mkfs(&["--ost", "--fsname=ec", "--index=0", &mgs, "--param=osc.*.max_dirty_mb=7"], "ost0")?;
    // The MGT on server 1, the targets on servers 2 and 3, from beginning to end.
    c.hosts.nacred(1, &[], &[dir("mgt")], &dir("log1"))?;
    c.hosts.nacred(2, &[], &[dir("mdt0")], &dir("log2"))?;
    c.hosts.nacred(3, &[], &[dir("ost0")], &dir("log3"))?;
    let source = format!("{}:/ec", Controllers::mgs());
    let mount = |c: &Controllers| -> Result<()> {
        wait_until("the client mounts", LIMIT, || {
            let mut m = c.hosts.on(CLIENTS[0], "mount.nacre");
            run_within(m.arg(&source).arg(&mnt), Duration::from_secs(40)).is_ok_and(|o| o.status.success())
        })
    };
    mount(&c)?;
    std::fs::write(mnt.join("file"), "before")?;
    let (mgt, url) = (dir("mgt").display().to_string(), Controllers::url());
    let ask = |c: &Controllers, args: &[&str]| -> Result<(bool, String)> {
        let o = run_within(c.hosts.on(4, "nacre").arg("mgt").args(args), LIMIT)?;
        let said = [o.stdout, o.stderr].map(|s| String::from_utf8_lossy(&s).into_owned()).concat();
        Ok((o.status.success(), said))
    };
    let (well, said) = ask(&c, &["import", &mgt, &url])?;
    ensure!(!well && said.contains("is in use by pid"), "its MGS runs: {said}");
    c.hosts.end(1, Signal::TERM)?;
    let (well, said) = ask(&c, &["import", &mgt, &url])?;
    ensure!(well && said.contains("1 file systems with 2 targets, 1 permanent parameters"), "{said}");
    let (well, said) = ask(&c, &["import", &mgt, &url])?;
    ensure!(!well && said.contains("holds a configuration already"), "{said}");

    c.hosts.nacred(1, &["--mgs-store", &url, "--mgs-term", "5"], &[], &dir("log1"))?;
    wait_until("an MGS is active", LIMIT, || c.active_mgs().is_ok())?;
    ensure!(std::fs::read_to_string(mnt.join("file"))? == "before");
    ok_within(Command::new("umount").arg(&mnt), LIMIT)?;
    mount(&c)?;
    ensure!(std::fs::read_to_string(mnt.join("file"))? == "before");
    let (well, said) = ask(&c, &["export", &url, &mgt, "--replace"])?;
    ensure!(!well && said.contains("is active (on "), "{said}");
    let both = run_within(c.hosts.on(4, "nacred").args(["--mgs-store", &url]).arg(&mgt), LIMIT)?;
    let said = String::from_utf8_lossy(&both.stderr).into_owned();
    ensure!(
        !both.status.success() && said.contains("nacre mgt import"),
        "two places for the same data: {said}"
    );
    c.hosts.end(1, Signal::TERM)?;
    ensure!(c.active_mgs().is_err(), "an orderly end leaves nobody waiting");
    let (well, said) = ask(&c, &["export", &url, &mgt])?;
    ensure!(!well && said.contains("--replace"), "{said}");
    let (well, said) = ask(&c, &["export", &url, &mgt, "--replace"])?;
    ensure!(well && said.contains("1 permanent parameters"), "{said}");
    c.hosts.nacred(1, &[], &[dir("mgt")], &dir("log1"))?;
    ok_within(Command::new("umount").arg(&mnt), LIMIT)?;
    mount(&c)?;
    ensure!(std::fs::read_to_string(mnt.join("file"))? == "before");
    ok_within(Command::new("umount").arg(&mnt), LIMIT)?;
    (1..=3).try_for_each(|h| c.hosts.end(h, Signal::TERM))
}

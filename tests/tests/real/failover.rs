//! Targets on storage that two hosts reach move between them while applications on three clients work, and
//! none of those notices. Who decides that a host is dead stands outside Nacre; here it is the test, which
//! ends the old server before it starts the new one, as fencing does, or only believes to have done so.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tests::cluster::{Scratch, fsck_when_free, ok_within, tool};
use tests::hosts::{self, Hosts, Pair};
use tests::logs::{self, Happened, HostLog};
use tests::rng::Rng;
use tests::thrash;

const LIMIT: Duration = Duration::from_secs(90);
const MGS: u32 = 1;
const CLIENTS: [u32; 3] = [6, 7, 8];

/// What happens to a server before its targets move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fault {
    Killed,
    /// In an orderly way.
    Stopped,
    /// Nobody hears that its connections end.
    Unplugged,
    /// It hears and is not heard.
    Dumb,
    /// It goes on; one packet in ten of its host is lost.
    Lossy,
    /// Servers of both pairs are killed.
    Both,
    /// So is the one that takes over, at once.
    InRecovery,
    /// The MGS is away: nobody is told where the targets are.
    NoMgs,
    /// The fence lies: the old server only sleeps, for longer than its heartbeat counts, and wakes up later.
    Zombie,
}

struct Site {
    // Mounts go before the folders that they are on.
    hosts: Hosts,
    scratch: Scratch,
    mounts: Vec<PathBuf>,
    pairs: [Pair; 2],
    /// What is put right before the next fault.
    lossy: Option<u32>,
    no_mgs: bool,
    zombie: Option<u32>,
    happened: Vec<Happened>,
}

impl Site {
    fn up() -> Result<Site> {
        let scratch = Scratch::new("failover");
        let dir = |n: &str| scratch.path().join(n);
        let pairs = [
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
        let mounts: Vec<PathBuf> = CLIENTS.iter().map(|c| dir(&format!("mnt{c}"))).collect();
        let hosts = Hosts::new(CLIENTS[2], &mounts)?;
        let mut site = Site {
            scratch,
            hosts,
            mounts,
            pairs,
            lossy: None,
            no_mgs: true,
            zombie: None,
            happened: Vec::new(),
        };
        site.mgs_up()?;
        (0..2).try_for_each(|p| site.start(p))?;
        let source = format!("{}:/fail", Hosts::nid(MGS));
        let mut mounts = CLIENTS.iter().zip(&site.mounts);
        mounts.try_for_each(|(client, m)| {
            let log = format!("log={}", site.log(*client).display());
            let mounter = || {
                let mut c = site.hosts.on(*client, "mount.nacre");
                c.args(["-o", &log]);
                c
            };
            hosts::mount(mounter, &source, m, LIMIT)
        })?;
        Ok(site)
    }

    fn log(&self, host: u32) -> PathBuf {
        self.scratch.path().join(format!("log{host}"))
    }

    fn start(&mut self, pair: usize) -> Result<()> {
        let p = &self.pairs[pair];
        self.hosts.link(p.here(), true)?;
        self.hosts.filter(p.here(), "")?;
        // Heartbeats that count for five seconds: a sleeping server is not waited for so long.
        let log = self.log(p.here());
        self.hosts.nacred(p.here(), &["--mmp-interval", "500"], &p.dirs, &log)
    }

    fn mgs_up(&mut self) -> Result<()> {
        let (dir, log) = (self.scratch.path().join("mgt"), self.log(MGS));
        self.hosts.nacred(MGS, &[], &[dir], &log)?;
        self.no_mgs = false;
        Ok(())
    }

    /// The old server ends, and the other host serves.
    fn move_on(&mut self, pair: usize, signal: Signal) -> Result<()> {
        self.hosts.end(self.pairs[pair].here(), signal)?;
        self.pairs[pair].at ^= 1;
        self.note(pair);
        self.start(pair)
    }

    /// What the logs must tell of a move: the host that serves now, and a client.
    fn note(&mut self, pair: usize) {
        let to = self.pairs[pair].here();
        let label = ["fail-MDT0000", "fail-OST0001"][pair];
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_string()).collect();
        let told = vec![
            (host(to), words(&["[N601", label])),
            (host(to), words(&["[N302", label])),
            (host(CLIENTS[0]), words(&["[N202", label])),
        ];
        let what = format!("{label} moved to {}", host(to));
        self.happened.push(Happened { what, at: SystemTime::now(), told });
    }

    fn logs(&self) -> Vec<HostLog> {
        let of = |n: u32| HostLog { host: host(n), path: self.log(n) };
        (MGS..=5).chain(CLIENTS).map(of).collect()
    }

    /// The locks on files are of this kernel, which is both hosts' here and would give the lie away.
    fn forget_locks(&self, pair: usize) -> Result<()> {
        for d in &self.pairs[pair].dirs {
            std::fs::remove_file(d.join("lock"))?;
            std::fs::copy(d.join("table.redb"), d.join("table.copy"))?;
            std::fs::rename(d.join("table.copy"), d.join("table.redb"))?;
        }
        Ok(())
    }
}

impl thrash::Site for Site {
    type Fault = Fault;
    const FAULTS: &'static [Fault] = &[
        Fault::Killed,
        Fault::Stopped,
        Fault::Unplugged,
        Fault::Dumb,
        Fault::Lossy,
        Fault::Both,
        Fault::InRecovery,
        Fault::NoMgs,
        Fault::Zombie,
    ];
    const LIMIT: Duration = LIMIT;

    fn happens(&mut self, fault: Fault, rng: &mut Rng) -> Result<u64> {
        let pair = rng.below(2) as usize;
        let old = self.pairs[pair].here();
        match fault {
            Fault::Killed => self.move_on(pair, Signal::KILL),
            Fault::Stopped => self.move_on(pair, Signal::TERM),
            Fault::Unplugged => {
                self.hosts.link(old, false)?;
                self.move_on(pair, Signal::KILL)
            }
            Fault::Dumb => {
                self.hosts.filter(old, "drop")?;
                self.move_on(pair, Signal::KILL)
            }
            Fault::Lossy => {
                self.lossy = Some(old);
                self.hosts.filter(old, "numgen random mod 10 == 0 drop")
            }
            Fault::Both => {
                self.move_on(0, Signal::KILL)?;
                self.move_on(1, Signal::KILL)
            }
            Fault::InRecovery => {
                self.move_on(pair, Signal::KILL)?;
                // That one served for no time that a log would have to tell of.
                self.happened.pop();
                self.move_on(pair, Signal::KILL)
            }
            Fault::NoMgs => {
                self.hosts.end(MGS, Signal::KILL)?;
                self.no_mgs = true;
                self.move_on(pair, Signal::KILL)
            }
            Fault::Zombie => {
                self.hosts.signal(old, Signal::STOP)?;
                self.forget_locks(pair)?;
                self.zombie = Some(old);
                self.pairs[pair].at ^= 1;
                self.start(pair)
            }
        }?;
        Ok(failovers(fault))
    }

    /// After the load went on.
    fn put_right(&mut self) -> Result<()> {
        if let Some(host) = self.lossy.take() {
            self.hosts.filter(host, "")?;
        }
        if self.no_mgs {
            self.mgs_up()?;
        }
        if let Some(host) = self.zombie.take() {
            self.hosts.signal(host, Signal::CONT)?;
            self.hosts.ends_by_itself(host).context("the zombie goes on")?;
            let said = std::fs::read_to_string(self.log(host))?;
            ensure!(said.contains("STOPPING"), "the zombie said:\n{said}");
        }
        Ok(())
    }

    fn said(&self) -> String {
        let log = |n: u32| std::fs::read_to_string(self.log(n)).unwrap_or_default();
        let mut text = (1..=5).map(|n| format!("host {n}:\n{}", log(n))).collect::<Vec<_>>().join("\n");
        let keep = text.len().saturating_sub(20_000);
        text.split_off((keep..).find(|i| text.is_char_boundary(*i)).expect("the end is one"))
    }
}

fn host(n: u32) -> String {
    format!("host {n}")
}

/// How often targets moved.
fn failovers(f: Fault) -> u64 {
    match f {
        Fault::Lossy => 0,
        Fault::Both | Fault::InRecovery => 2,
        _ => 1,
    }
}

/// Each fault once in `make test`.
#[test]
fn targets_move_between_hosts_and_no_application_notices() -> Result<()> {
    let mut site = Site::up()?;
    let mounts = site.mounts.clone();
    let scratch = site.scratch.path().to_path_buf();
    thrash::run("by hand", &mut site, &mounts, &scratch, <Site as thrash::Site>::FAULTS.len())?;
    // A lines' bound only makes sense at a pace: NACRE_LOG_LINES.
    let most = logs::volume("by hand", &site.logs())?;
    if let Some(bound) = tests::env_number("NACRE_LOG_LINES") {
        logs::story(&site.logs(), &site.happened, LIMIT)?;
        ensure!(most as u64 <= bound, "{most} lines of one host, {bound} are allowed");
    }
    for m in &site.mounts {
        ok_within(Command::new("umount").arg(m), LIMIT)?;
    }
    for pair in &site.pairs {
        site.hosts.end(pair.here(), Signal::TERM)?;
    }
    site.hosts.end(MGS, Signal::TERM)?;
    fsck_when_free(site.pairs.iter().flat_map(|p| &p.dirs))
}

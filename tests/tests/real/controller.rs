//! Three server hosts with controllers over a three-member etcd, three clients that work: hosts, links,
//! members of etcd and its majority come and go, and no application notices.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, fsck_when_free, ok_within, run_within, tool, wait_until};
use tests::controllers::{Controllers, SERVERS, TERM};
use tests::hosts;
use tests::rng::Rng;
use tests::thrash;

const LIMIT: Duration = Duration::from_secs(90);
const CLIENTS: [u32; 3] = [4, 5, 6];
const TARGETS: [&str; 3] = ["mdt0", "ost0", "ost1"];

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
    /// The server dies until another host has its target, and is wanted back at once.
    KilledTwice,
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
}

impl Site {
    fn up() -> Result<Site> {
        let scratch = Scratch::new("etcd");
        let dir = |n: &str| scratch.path().join(n);
        let mounts: Vec<PathBuf> = CLIENTS.iter().map(|c| dir(&format!("mnt{c}"))).collect();
        let mut c = Controllers::new(CLIENTS.len() as u32, scratch.path(), &mounts)?;
        // Notes whom it was asked to fence, and says that it is done: the old servers' heartbeats have to
        // tell.
        let fence = dir("fence.sh");
        std::fs::write(&fence, format!("#!/bin/sh\necho \"$1\" >>{}\n", dir("fenced").display()))?;
        std::fs::set_permissions(&fence, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        c.options = format!("--fence {}", fence.display());
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
        let site = Site { c, scratch, mounts, off: None, cut: None, frozen: None, members: Vec::new() };
        CLIENTS.iter().zip(&site.mounts).try_for_each(|(client, m)| site.mount(*client, m))?;
        Ok(site)
    }

    fn mount(&self, client: u32, mount: &Path) -> Result<()> {
        let source = format!("{}:/ec", Controllers::mgs());
        let mounter = || self.c.hosts.on(client, "mount.nacre");
        hosts::mount(mounter, &source, mount, LIMIT).with_context(|| self.c.said())
    }

    fn dirs_of(&self, host: u32) -> Result<Vec<PathBuf>> {
        let name = Controllers::name(host);
        let all = self.c.status()?;
        let here = all.iter().filter(|t| t.1.as_ref() == Some(&name));
        Ok(here.map(|t| self.scratch.path().join(&t.0)).collect())
    }

    /// Hosts that were fenced so far.
    fn fenced(&self) -> Vec<String> {
        let all = std::fs::read_to_string(self.scratch.path().join("fenced")).unwrap_or_default();
        all.lines().map(str::to_string).collect()
    }

    fn log_of(&self, host: u32) -> String {
        std::fs::read_to_string(self.c.log(host)).unwrap_or_default()
    }

    fn members_back(&mut self) -> Result<()> {
        std::mem::take(&mut self.members).into_iter().try_for_each(|m| self.c.member_on(m))
    }

    fn kill_server(&self, target: &str, host: u32) -> Result<()> {
        let dir = self.scratch.path().join(target);
        let dir = dir.to_str().context("UTF-8")?;
        // It may just have been killed, and is to be started again; or it is another host's by now.
        let kill =
            || self.c.signal(host, dir, Signal::KILL) == 1 || self.c.owner(target).is_ok_and(|o| o != host);
        wait_until(&format!("a server of {target} on host {host} is killed"), LIMIT, kill)
            .with_context(|| self.c.said())
    }

    /// Nobody may act, and `host` is a little later than the others when they may again.
    fn majority_lost(&mut self, host: u32, other: u32, dirs: &[PathBuf]) -> Result<()> {
        self.members = vec![host, other];
        let (before, said) = (self.fenced().len(), SERVERS.map(|h| self.log_of(h).len()));
        self.c.member_off(host)?;
        self.c.member_off(other)?;
        std::thread::sleep(Duration::from_secs(u64::from(TERM) + 1));
        let ended = dirs.iter().all(|d| self.c.signal(host, &d.to_string_lossy(), Signal::CONT) == 0);
        ensure!(ended, "a server goes on without a lease:\n{}", self.c.said());
        // It comes back a little later than the others, who are ready to take its targets.
        self.c.signal(host, "controller", Signal::STOP);
        self.members_back()?;
        let news = |h: u32| self.log_of(h)[said[h as usize - 1]..].to_string();
        wait_until("the others take part", LIMIT, || {
            SERVERS.iter().all(|h| *h == host || news(*h).contains("takes part"))
        })?;
        self.c.signal(host, "controller", Signal::CONT);
        self.c.all_served(&[])?;
        for name in &self.fenced()[before..] {
            // One that was not heard of for a whole term is fenced, and rightly.
            let lives = SERVERS.into_iter().find(|h| *name == Controllers::name(*h)).map(news);
            let lives = lives.context("a host")?;
            ensure!(!lives.contains("nobody needs to fence"), "a host that lives was fenced: {lives}");
        }
        Ok(())
    }
}

impl thrash::Site for Site {
    type Fault = Fault;
    const FAULTS: &'static [Fault] = &[
        Fault::ServerKilled,
        Fault::HandOver,
        Fault::HostDead,
        Fault::ControllerKilled,
        Fault::Frozen,
        Fault::LinkCut,
        Fault::MemberLost,
        Fault::MajorityLost,
        Fault::MgsKilled,
        Fault::KilledTwice,
    ];
    const LIMIT: Duration = LIMIT;

    fn happens(&mut self, fault: Fault, rng: &mut Rng) -> Result<u64> {
        let target = TARGETS[rng.below(3) as usize];
        let host = self.c.owner_soon(target)?;
        let dirs = self.dirs_of(host)?;
        let other = SERVERS.into_iter().find(|h| *h != host).context("another host")?;
        match fault {
            Fault::ServerKilled => {
                self.kill_server(target, host)?;
            }
            Fault::KilledTwice => {
                let name = Controllers::name(host);
                let mut kills = 0;
                while self.c.owner_soon(target)? == host {
                    kills += 1;
                    ensure!(kills <= 5, "it stays on {name}:\n{}", self.c.said());
                    self.kill_server(target, host)?;
                    self.c.all_served(&[])?;
                }
                // That this host gave it up a moment ago is no reason not to take it back.
                let said = self.c.ha(&["takeover", "--to", &name, target])?;
                ensure!(said.contains(&format!("{target}: serving on {name}")), "{said}");
                return Ok(2);
            }
            Fault::HandOver => {
                self.c.ha(&["takeover", "--to", &Controllers::name(other), target])?;
                ensure!(self.c.owner(target)? == other, "it did not move");
                let said = self.c.ha(&["giveback", target])?;
                ensure!(said.contains(&format!("{target}: serving on ")), "{said}");
                // The whole host, in order.
                let host = self.c.owner(target)?;
                let moved = 2 + self.dirs_of(host)?.len() as u64;
                self.c.signal(host, "controller", Signal::TERM);
                wait_until("another host has it", LIMIT, || self.c.owner(target).is_ok_and(|h| h != host))
                    .with_context(|| self.c.said())?;
                return Ok(moved);
            }
            Fault::HostDead => {
                self.c.power_off(host)?;
                self.off = Some(host);
                let before = self.fenced().len();
                self.c.all_served(&[host])?;
                let fenced = self.fenced();
                ensure!(fenced[before..].contains(&Controllers::name(host)), "it was not fenced: {fenced:?}");
                return Ok(dirs.len() as u64);
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
                self.frozen = Some(host);
                self.c.all_served(&[host])?;
                return Ok(dirs.len() as u64);
            }
            Fault::LinkCut => {
                self.c.hosts.link(host, false)?;
                self.cut = Some(host);
                self.c.all_served(&[host])?;
                return Ok(dirs.len() as u64);
            }
            Fault::MemberLost => {
                self.c.member_off(other)?;
                self.members = vec![other];
                self.c.all_served(&[])?;
            }
            Fault::MajorityLost => self.majority_lost(host, other, &dirs)?,
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
                self.mount(CLIENTS[0], &mount)?;
                ok_within(Command::new("umount").arg(&mount), LIMIT)?;
            }
        }
        Ok(0)
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

    fn said(&self) -> String {
        self.c.said()
    }
}

/// Each fault once in `make test`.
#[test]
fn controllers_move_targets_and_no_application_notices() -> Result<()> {
    let mut site = Site::up()?;
    let mounts = site.mounts.clone();
    let scratch = site.scratch.path().to_path_buf();
    thrash::run("etcd", &mut site, &mounts, &scratch, <Site as thrash::Site>::FAULTS.len())?;
    for m in &site.mounts {
        ok_within(Command::new("umount").arg(m), LIMIT)?;
    }
    site.c.undefine(&TARGETS)?;
    fsck_when_free(TARGETS.map(|t| site.scratch.path().join(t)))
}

/// All of a host's targets at once, by the words of Heartbeat.
#[test]
fn controllers_move_all_targets_of_a_host_by_the_words_of_heartbeat() -> Result<()> {
    let site = Site::up()?;
    let owners = || -> Result<Vec<u32>> { TARGETS.iter().map(|t| site.c.owner_soon(t)).collect() };
    let at = |want: [u32; 3], after: &str| -> Result<()> {
        let now = owners()?;
        ensure!(now == want, "after {after}: {now:?} instead of {want:?}\n{}", site.c.said());
        Ok(())
    };
    // Each is at home on the host of its number, plus one.
    site.c.ha(&["takeover", "all", "--to", "server2"])?;
    at([2, 2, 2], "takeover all")?;
    let said = site.c.ha(&["giveback", "foreign", "--from", "server2"])?;
    ensure!(said.contains("2 of 2: ost1") && said.contains("ost1: serving on server3"), "{said}");
    at([1, 2, 3], "giveback foreign")?;
    site.c.ha(&["takeover", "foreign", "--to", "server1"])?;
    at([1, 1, 1], "takeover foreign")?;
    site.c.ha(&["takeover", "failback", "--to", "server3"])?;
    at([1, 1, 3], "takeover failback")?;
    // Its own one goes to the next of its list, the other one goes home.
    site.c.ha(&["giveback", "all", "--from", "server1"])?;
    at([2, 2, 3], "giveback all")?;
    let said = site.c.ha(&["takeover", "local", "--to", "server3"])?;
    ensure!(said == "no target is to move\n", "{said}");
    let refused = site.c.ha(&["takeover", "all", "--to", "nowhere"]).unwrap_err().to_string();
    ensure!(refused.contains("no controller runs on host nowhere"), "{refused}");
    let named = site.c.ha(&["define", "--on=server1", "failback", "/x"]).unwrap_err().to_string();
    ensure!(named.contains("takeover and giveback call several targets"), "{named}");
    site.c.ha(&["diff", "--remote", "false"]).unwrap_err();
    for m in &site.mounts {
        std::fs::write(m.join("after"), "moved")?;
        ok_within(Command::new("umount").arg(m), LIMIT)?;
    }
    site.c.undefine(&TARGETS)?;
    fsck_when_free(TARGETS.map(|t| site.scratch.path().join(t)))
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

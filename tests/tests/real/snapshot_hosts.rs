//! Snapshots and barriers of a file system whose targets are served by four hosts, asked for on the host of
//! its MGS. Each host has a run directory of its own, so that no control socket of another is seen.

use super::barrier::{Load, tree};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, Scratch, fsck_when_free, kill, ok_within, run_within, tool, wait_until};
use tests::hosts::{self, Hosts};

const LIMIT: Duration = Duration::from_secs(120);
const MGS: u32 = 1;
const CLIENT: u32 = 5;
/// Folders of the targets, each on the host of its place.
const TARGETS: [&str; 4] = ["mgt", "mdt0", "ost0", "ost1"];

struct Site {
    // Mounts go before the folders that they are on.
    daemons: Vec<Option<Running>>,
    hosts: Hosts,
    disk: PathBuf,
    scratch: Scratch,
}

impl Site {
    /// `None`: nobody can make loop devices here.
    fn up(name: &str) -> Result<Option<Site>> {
        let scratch = Scratch::new(name);
        let (disk, image) = (scratch.path().join("disk"), scratch.path().join("image"));
        fs::create_dir(&disk)?;
        ok_within(Command::new("truncate").args(["-s", "2G"]).arg(&image), LIMIT)?;
        ok_within(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image), LIMIT)?;
        if let Err(e) = ok_within(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&disk), LIMIT) {
            eprintln!("NOT TESTED: no loop devices here: {e:#}");
            return Ok(None);
        }
        let mounts = ["mnt", "other", "snap"].map(|m| scratch.path().join(m));
        let hosts = Hosts::new(CLIENT, &mounts)?;
        let mut site = Site { daemons: (0..4).map(|_| None).collect(), hosts, disk, scratch };
        let mkfs = |args: &[&str], dir: &str| {
            ok_within(tool("mkfs.nacre").args(args).arg(site.disk.join(dir)), LIMIT).map(drop)
        };
        let mgs = format!("--mgsnode={}", Hosts::nid(MGS));
        mkfs(&["--mgs"], "mgt")?;
        mkfs(&["--mdt", "--fsname=far", "--index=0", &mgs], "mdt0")?;
        mkfs(&["--ost", "--fsname=far", "--index=0", &mgs], "ost0")?;
        mkfs(&["--ost", "--fsname=far", "--index=1", &mgs], "ost1")?;
        (1..=4).try_for_each(|h| site.start(h))?;
        let source = format!("{}:/far", Hosts::nid(MGS));
        hosts::mount(|| site.on(CLIENT, "mount.nacre"), &source, &site.mount(), LIMIT)?;
        hosts::mount(|| site.on(CLIENT, "mount.nacre"), &source, &site.other(), LIMIT)?;
        Ok(Some(site))
    }

    fn mount(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// The same from another mount: in the first one the kernel holds a directory while something is made in
    /// it.
    fn other(&self) -> PathBuf {
        self.scratch.path().join("other")
    }

    fn on(&self, host: u32, program: &str) -> Command {
        let mut c = self.hosts.on(host, program);
        if host != CLIENT {
            c.env("NACRE_RUN_DIR", self.scratch.path().join(format!("run{host}")));
        }
        c
    }

    fn start(&mut self, host: u32) -> Result<()> {
        let at = host as usize - 1;
        let log = self.scratch.path().join(format!("log{host}"));
        let log = fs::File::options().create(true).append(true).open(log)?;
        let mut c = self.on(host, "nacred");
        c.args(["--nid", &Hosts::nid(host)]).arg(self.disk.join(TARGETS[at]));
        c.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons[at] = Some(Running(c.spawn()?));
        Ok(())
    }

    fn pid(&self, host: u32) -> Result<i32> {
        Ok(self.daemons[host as usize - 1].as_ref().context("it runs")?.0.id() as i32)
    }

    /// On the host of the MGS, required to succeed.
    fn nacre(&self, args: &[&str]) -> Result<String> {
        ok_within(self.on(MGS, "nacre").args(args), LIMIT)
    }

    fn lctl(&self, args: &[&str]) -> Result<String> {
        ok_within(self.on(MGS, "lctl").args(args), LIMIT)
    }

    fn list(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.nacre(&["snapshot", "list", "--json"])?)?)
    }

    fn fails(&self, args: &[&str], code: i32, part: &str) -> Result<()> {
        let o = run_within(self.on(MGS, "nacre").args(args), LIMIT)?;
        let said = String::from_utf8_lossy(&o.stderr).into_owned();
        ensure!(o.status.code() == Some(code) && said.contains(part), "{args:?}: {}: {said}", o.status);
        Ok(())
    }

    /// What is left of snapshots, in all targets.
    fn left(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for t in TARGETS {
            let Ok(there) = fs::read_dir(self.disk.join(t).join("snapshots")) else { continue };
            for e in there {
                all.insert(format!("{t}/{}", e?.file_name().to_string_lossy()));
            }
        }
        Ok(all)
    }

    /// Mounts a snapshot on the client's host and looks at it.
    fn within<T>(&self, name: &str, look: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let at = self.scratch.path().join("snap");
        fs::create_dir_all(&at)?;
        let said = self.nacre(&["snapshot", "mount", name])?;
        let line = said.lines().find(|l| l.starts_with("mount -t nacre")).context(said.clone())?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["mount", "-t", "nacre", "-o", options, source, "DIR"] = words[..] else {
            anyhow::bail!("no command in {said}");
        };
        ok_within(self.on(CLIENT, "mount.nacre").arg(source).arg(&at).args(["-o", options]), LIMIT)?;
        let seen = look(&at);
        ok_within(Command::new("umount").arg(&at), LIMIT)?;
        self.nacre(&["snapshot", "umount", name])?;
        seen
    }

    fn down(&mut self) -> Result<()> {
        ok_within(Command::new("umount").arg(self.mount()), LIMIT)?;
        ok_within(Command::new("umount").arg(self.other()), LIMIT)?;
        for h in [4, 3, 2, 1] {
            let pid = self.pid(h)?;
            kill(pid, Signal::TERM)?;
            let child = &mut self.daemons[h as usize - 1].as_mut().context("it runs")?.0;
            wait_until("the server ends", LIMIT, || child.try_wait().is_ok_and(|s| s.is_some()))?;
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let gone = |m: &str| {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.scratch.path().join(m))
                .stderr(Stdio::null())
                .status();
        };
        gone("snap");
        gone("mnt");
        gone("other");
        self.daemons.clear();
        // A snapshot's servers, if the test ended early.
        let mine = self.disk.display().to_string();
        for e in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = e.file_name().to_str().and_then(|p| p.parse::<i32>().ok());
            let line = fs::read_to_string(e.path().join("cmdline")).unwrap_or_default();
            if let Some(pid) = pid.filter(|_| line.contains("nacred") && line.contains(&mine)) {
                let _ = kill(pid, Signal::KILL);
            }
        }
        let umount = || Command::new("umount").arg(&self.disk).output().is_ok_and(|o| o.status.success());
        if wait_until("the disk is free", Duration::from_secs(10), umount).is_err() {
            gone("disk");
        }
    }
}

#[test]
fn a_snapshot_of_four_hosts_is_of_one_moment_and_each_host_serves_its_part() -> Result<()> {
    let Some(mut site) = Site::up("far")? else { return Ok(()) };
    let big = site.mount().join("big");
    ok_within(tool("lfs").args(["setstripe", "-c", "-1", "-S", "64K"]).arg(&big), LIMIT)?;
    fs::write(&big, vec![1; 5 << 20])?;
    fs::File::open(&big)?.sync_all()?;
    let load = Load::start(site.mount().join("load"));
    wait_until("the load is under way", LIMIT, || load.count() > 300)?;

    // The barrier is that of a metadata target on another host.
    site.lctl(&["barrier_freeze", "far", "600"])?;
    ensure!(site.lctl(&["barrier_stat", "-s", "far"])? == "frozen\n");
    let moment = tree(&site.other().join("load"))?;
    site.fails(&["snapshot", "create", "one"], 114, "frozen already")?;
    ensure!(site.left()?.is_empty(), "{:?}", site.left()?);
    site.nacre(&["snapshot", "create", "one", "-b", "off", "-c", "the first"])?;
    site.lctl(&["barrier_thaw", "far"])?;
    let at = load.count();
    wait_until("the load goes on", LIMIT, || load.count() > at + 300)?;
    site.nacre(&["snapshot", "create", "two", "-t", "60"])?;
    fs::write(&big, vec![2; 5 << 20])?;
    fs::File::open(&big)?.sync_all()?;
    let all = site.list()?;
    ensure!(all[0]["name"] == "one" && all[1]["status"] == "not mount", "{all}");
    let targets = all[1]["targets"].as_array().context("targets")?;
    ensure!(targets.len() == 4 && targets[2]["nids"][0] == Hosts::nid(4), "{all}");

    // What was written anew since, the snapshots have for themselves, or with each other.
    site.nacre(&["snapshot", "destroy", "two"])?;
    let detail: Value = serde_json::from_str(&site.nacre(&["snapshot", "list", "-d", "--json"])?)?;
    let own = detail[0]["own_bytes"].as_u64().context("a size")?;
    ensure!(own >= 5 << 20, "{detail}");
    ensure!(site.nacre(&["snapshot", "list", "-d"])?.contains(" of its own"));

    let then = site.within("one", |at| {
        ensure!(site.lctl(&["snapshot_list", "-F", "far", "-n", "one"])?.contains("status: mounted"));
        ensure!(fs::read(at.join("big"))? == vec![1; 5 << 20]);
        site.fails(&["snapshot", "destroy", "one"], 16, "it is mounted")?;
        tree(&at.join("load"))
    })?;
    let differ: Vec<_> = then.symmetric_difference(&moment).take(5).collect();
    ensure!(differ.is_empty(), "{differ:?}");
    load.end()?;
    site.nacre(&["snapshot", "modify", "one", "-N", "eins"])?;
    ensure!(site.list()?[0]["name"] == "eins");
    fsck_when_free(TARGETS.iter().map(|t| site.disk.join(t).join("snapshots/eins")))?;
    site.nacre(&["snapshot", "destroy", "eins"])?;
    ensure!(site.left()?.is_empty(), "{:?}", site.left()?);
    site.down()?;
    fsck_when_free(TARGETS.iter().map(|t| site.disk.join(t)))
}

#[test]
fn a_host_that_is_down_is_named_and_nothing_is_left_of_who_dies_in_the_middle() -> Result<()> {
    let Some(mut site) = Site::up("fardie")? else { return Ok(()) };
    for n in 0..200 {
        fs::write(site.mount().join(format!("f{n}")), vec![n as u8; 50_000])?;
    }
    fs::File::open(site.mount().join("f0"))?.sync_all()?;
    site.nacre(&["snapshot", "create", "kept"])?;

    // A host is down: it is named, and nothing is begun.
    let pid = site.pid(4)?;
    kill(pid, Signal::KILL)?;
    site.daemons[3] = None;
    site.fails(&["snapshot", "create", "a"], 110, "far-OST0001")?;
    site.fails(&["snapshot", "mount", "kept"], 110, &Hosts::nid(4))?;
    site.fails(&["snapshot", "destroy", "kept"], 110, "far-OST0001")?;
    ensure!(!site.left()?.iter().any(|n| n.contains("/a") || n.contains("/.a")), "{:?}", site.left()?);
    let o = run_within(site.on(MGS, "nacre").args(["snapshot", "list", "-d"]), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    ensure!(
        said.contains("status: unknown") && said.contains("far-OST0001: its server does not answer"),
        "{said}"
    );
    site.start(4)?;
    wait_until("it is back", LIMIT, || {
        site.nacre(&["snapshot", "list"]).is_ok_and(|s| s.contains("not mount"))
    })?;

    // Who asks is killed: servers give up by themselves, or because the next one begins.
    let load = Load::start(site.mount().join("load"));
    let mut cut = 0;
    for n in 0..8u64 {
        let mut c =
            site.on(MGS, "nacre").args(["snapshot", "create", &format!("s{n}"), "-t", "2"]).spawn()?;
        std::thread::sleep(Duration::from_millis(20 + 60 * n));
        let _ = kill(c.id() as i32, Signal::KILL);
        cut += u32::from(!c.wait()?.success());
        let at = load.count();
        wait_until("the load goes on", LIMIT, || load.count() > at + 5)?;
        for s in site.list()?.as_array().context("a list")? {
            if s["name"] != "kept" {
                site.nacre(&["snapshot", "destroy", s["name"].as_str().context("a name")?])?;
            }
        }
    }
    ensure!(cut > 0, "none was in time");
    let hidden = || site.left().is_ok_and(|l| !l.iter().any(|n| n.contains("/.")));
    wait_until("what was given up is gone", LIMIT, hidden)?;

    // A server of a part dies meanwhile: there is none, anywhere.
    let mut c = site.on(MGS, "nacre").args(["snapshot", "create", "half"]).stderr(Stdio::null()).spawn()?;
    let there = || site.left().is_ok_and(|l| l.contains("ost0/.half.new"));
    let _ = wait_until("it is under way", Duration::from_secs(5), there);
    let pid = site.pid(3)?;
    kill(pid, Signal::KILL)?;
    let done = c.wait()?.success();
    site.start(3)?;
    wait_until("it is back", LIMIT, || {
        site.list().is_ok_and(|l| l.as_array().is_some_and(|l| !l.is_empty()))
    })?;
    if !done {
        let all = site.list()?;
        let status = |s: &Value| s["name"] == "half" && s["status"] != "incomplete";
        ensure!(!all.as_array().context("a list")?.iter().any(status), "{all}");
    }
    load.end()?;
    site.nacre(&["snapshot", "create", "last"])?;
    let open = site.left()?.into_iter().filter(|n| n.contains("/.")).collect::<Vec<_>>();
    ensure!(open.is_empty(), "{open:?}");
    fsck_when_free(TARGETS.iter().map(|t| site.disk.join(t).join("snapshots/last")))?;
    site.down()?;
    fsck_when_free(TARGETS.iter().map(|t| site.disk.join(t)))
}

//! Snapshots on real mounts: of a load's moment on XFS, mounted beside the file system, and refused by name
//! where they cannot be made.

use super::barrier::{Load, tree};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{
    TestFs, fails, fsck_when_free, kill, lctl, nacre, nacre_json as json, ok_within, tool, wait_until,
};

const LIMIT: Duration = Duration::from_secs(120);

/// A file system whose targets lie on an XFS of their own.
pub(super) struct OnXfs {
    pub(super) fs: TestFs,
    dir: PathBuf,
}

impl OnXfs {
    /// `None`: nobody can make loop devices here.
    pub(super) fn up(name: &str) -> Result<Option<OnXfs>> {
        let fs = TestFs::up(name, 2, 2)?;
        fs.down()?;
        let (dir, image, was) = (fs.dir(), fs.scratch().join("image"), fs.scratch().join("was"));
        ok_within(Command::new("truncate").args(["-s", "2G"]).arg(&image), LIMIT)?;
        ok_within(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image), LIMIT)?;
        fs::rename(&dir, &was)?;
        fs::create_dir(&dir)?;
        if let Err(e) = ok_within(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir), LIMIT) {
            eprintln!("NOT TESTED: no loop devices here: {e:#}");
            return Ok(None);
        }
        let on = OnXfs { fs, dir };
        ok_within(Command::new("cp").arg("-a").arg(was.join(".")).arg(&on.dir), LIMIT)?;
        on.fs.up_again()?;
        Ok(Some(on))
    }

    pub(super) fn targets(&self) -> Vec<PathBuf> {
        ["mgt", "mdt0000", "ost0000", "ost0001"].iter().map(|t| self.dir.join(t)).collect()
    }

    /// What is left of snapshots, in all targets.
    fn left(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for t in self.targets() {
            let Ok(there) = fs::read_dir(t.join("snapshots")) else { continue };
            for e in there {
                all.insert(e?.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(all)
    }

    /// Mounts a snapshot, with these options as well, and looks at it.
    pub(super) fn within<T>(
        &self,
        name: &str,
        options: &str,
        look: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let at = self.fs.scratch().join("snapshot");
        fs::create_dir_all(&at)?;
        let said = nacre(&["snapshot", "mount", name])?;
        let line = said.lines().find(|l| l.starts_with("mount -t nacre")).context(said.clone())?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["mount", "-t", "nacre", "-o", given, source, "DIR"] = words[..] else {
            anyhow::bail!("no command in {said}");
        };
        let options = given.replace("ro", options);
        ok_within(tool("mount.nacre").arg(source).arg(&at).args(["-o", &options]), LIMIT)?;
        let seen = look(&at);
        ok_within(Command::new("umount").arg(&at), LIMIT)?;
        nacre(&["snapshot", "umount", name])?;
        seen
    }
}

impl Drop for OnXfs {
    fn drop(&mut self) {
        let _ = self.fs.down();
        let umount = || Command::new("umount").arg(&self.dir).output().is_ok_and(|o| o.status.success());
        if wait_until("the disk is free", Duration::from_secs(10), umount).is_err() {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

fn differ(a: &BTreeSet<String>, b: &BTreeSet<String>) -> String {
    format!("{:?}", a.symmetric_difference(b).take(5).collect::<Vec<_>>())
}

#[test]
fn a_snapshot_under_load_is_of_its_moment_and_nobody_changes_it() -> Result<()> {
    let Some(on) = OnXfs::up("snap")? else { return Ok(()) };
    let (fs, name) = (&on.fs, on.fs.fsname());
    // Of a size that goes to objects, and striped over both.
    let big = fs.mount(0).join("big");
    ok_within(tool("lfs").args(["setstripe", "-c", "-1", "-S", "64K"]).arg(&big), LIMIT)?;
    fs::write(&big, vec![1; 5 << 20])?;
    fs::File::open(&big)?.sync_all()?;
    let load = Load::start(fs.mount(0).join("load"));
    wait_until("the load is under way", LIMIT, || load.count() > 300)?;
    // An operator's barrier is the moment, so that it can be looked at.
    lctl(&["barrier_freeze", name, "600"])?;
    let first = tree(&fs.mount(1).join("load"))?;
    fails("nacre", &["snapshot", "create", "one"], 114, "frozen already")?;
    ensure!(on.left()?.is_empty(), "{:?}", on.left()?);
    nacre(&["snapshot", "create", "one", "-b", "off", "-c", "the first"])?;
    lctl(&["barrier_thaw", name])?;
    let at = load.count();
    wait_until("the load goes on", LIMIT, || load.count() > at + 300)?;
    // Under a barrier of its own, by the names that users of Lustre know.
    lctl(&["snapshot_create", "-F", name, "-n", "two", "-t", "60"])?;
    fs::write(&big, vec![2; 5 << 20])?;
    fs::File::open(&big)?.sync_all()?;
    let at = load.count();
    wait_until("the load goes on", LIMIT, || load.count() > at + 100)?;
    let all = json(&["snapshot", "list", "--json"])?;
    ensure!(
        all[0]["name"] == "one" && all[0]["comment"] == "the first" && all[0]["barrier"] == false,
        "{all}"
    );
    ensure!(all[1]["name"] == "two" && all[1]["status"] == "not mount" && all[1]["barrier"] == true, "{all}");
    ensure!(all[1]["targets"].as_array().map(Vec::len) == Some(4), "{all}");
    fails("nacre", &["snapshot", "create", "two"], 17, "File exists")?;

    let (then, refused) = on.within("one", "ro", |at| {
        fails("nacre", &["snapshot", "destroy", "one"], 16, "it is mounted")?;
        fails("nacre", &["snapshot", "mount", "one"], 114, "it is mounted already")?;
        ensure!(lctl(&["snapshot_list", "-F", name, "-n", "one"])?.contains("status: mounted"));
        ensure!(fs::read(at.join("big"))? == vec![1; 5 << 20]);
        // What is about all that is here is not about it.
        ensure!(lctl(&["barrier_rescan", name])?.starts_with("0 of 1 MDT(s)"));
        let shown = json(&["config", "show", "--json"])?;
        ensure!(shown["file_systems"].as_array().map(Vec::len) == Some(1), "{shown}");
        ensure!(shown["file_systems"][0]["fsname"] == name, "{shown}");
        lctl(&["lfsck_start"])?;
        Ok((tree(&at.join("load"))?, fs::write(at.join("new"), "x").unwrap_err()))
    })?;
    ensure!(first == then, "{}", differ(&first, &then));
    ensure!(refused.raw_os_error() == Some(30), "{refused}");
    // Mounted without ro it is the servers that let nobody change it.
    let (then, refused) = on.within("two", "rw", |at| {
        ensure!(fs::read(at.join("big"))? == vec![1; 5 << 20]);
        Ok((tree(&at.join("load"))?, fs::remove_file(at.join("big")).unwrap_err()))
    })?;
    ensure!(refused.raw_os_error() == Some(30), "{refused}");
    ensure!(then.len() > first.len(), "it is of a later moment");
    load.end()?;
    ensure!(fs::read(fs.mount(1).join("big"))? == vec![2; 5 << 20], "the original goes its own way");
    // What was mounted once is mounted again, and is the same.
    ensure!(on.within("one", "ro", |at| tree(&at.join("load")))? == first);

    for s in ["one", "two"] {
        fsck_when_free(on.targets().iter().map(|t| t.join("snapshots").join(s)))?;
    }
    nacre(&["snapshot", "modify", "two", "-N", "zwei", "-c", "renamed"])?;
    let all = json(&["snapshot", "list", "zwei", "--json"])?;
    ensure!(all[0]["name"] == "zwei" && all[0]["comment"] == "renamed", "{all}");
    fails("nacre", &["snapshot", "modify", "zwei", "-N", "one"], 17, "there is a snapshot one")?;
    fs::rename(on.dir.join("ost0001/snapshots/zwei"), on.dir.join("gone"))?;
    fails("nacre", &["snapshot", "mount", "zwei"], 2, "it is not whole")?;
    ensure!(nacre(&["snapshot", "list", "zwei"])?.contains("status: incomplete"));
    fs::remove_dir_all(on.dir.join("gone"))?;
    nacre(&["snapshot", "destroy", "zwei"])?;
    lctl(&["snapshot_destroy", "-F", name, "-n", "one"])?;
    ensure!(on.left()?.is_empty(), "{:?}", on.left()?);
    ensure!(nacre(&["snapshot", "list"])?.is_empty());
    down_with_a_mounted_snapshot(&on)?;
    fs.down()?;
    fsck_when_free([&on.dir])
}

/// Its server is no part of the file system, and lies in its folders.
fn down_with_a_mounted_snapshot(on: &OnXfs) -> Result<()> {
    nacre(&["snapshot", "create", "three"])?;
    nacre(&["snapshot", "mount", "three"])?;
    let dir = on.fs.dir().display().to_string();
    fails("nacre", &["down", "--dir", &dir], 16, "snapshot 'three' is mounted")?;
    ensure!(fs::read(on.fs.mount(1).join("big"))?.len() == 5 << 20, "everything else is as it was");
    nacre(&["down", "--force", "--dir", &dir])?;
    fsck_when_free(on.targets().iter().map(|t| t.join("snapshots/three")))
}

#[test]
fn who_dies_while_he_makes_a_snapshot_leaves_none_and_holds_up_nobody() -> Result<()> {
    let Some(on) = OnXfs::up("snapdie")? else { return Ok(()) };
    let fs = &on.fs;
    for n in 0..300 {
        fs::write(fs.mount(0).join(format!("f{n}")), vec![n as u8; 100_000])?;
    }
    fs::File::open(fs.mount(0).join("f0"))?.sync_all()?;
    let load = Load::start(fs.mount(0).join("load"));
    let mut cut = 0;
    for n in 0..12u64 {
        let signal = if n % 2 == 0 { Signal::KILL } else { Signal::INT };
        let mut c = tool("nacre").args(["snapshot", "create", &format!("s{n}"), "-t", "2"]).spawn()?;
        std::thread::sleep(Duration::from_millis(3 + 7 * n));
        let _ = kill(c.id() as i32, signal);
        cut += u32::from(!c.wait()?.success());
        let at = load.count();
        wait_until("the load goes on", LIMIT, || load.count() > at + 5)?;
        let listed = json(&["snapshot", "list", "--json"])?;
        let all = listed.as_array().context("a list")?;
        let halves = all.iter().filter(|s| s["status"] == "incomplete" && s["name"] == format!("s{n}"));
        // Killed between the first name and the last, it is known for what it is.
        for s in halves {
            nacre(&["snapshot", "destroy", s["name"].as_str().context("a name")?])?;
        }
    }
    ensure!(cut > 0, "none was in time");
    // The barrier of one that was killed when it had just been asked for ends after its two seconds.
    let last = || nacre(&["snapshot", "create", "last", "-t", "60"]).is_ok();
    wait_until("another one is made", LIMIT, last)?;
    ensure!(on.left()?.iter().all(|n| !n.starts_with('.')), "{:?}", on.left()?);
    load.end()?;
    fsck_when_free(on.targets().iter().map(|t| t.join("snapshots/last")))?;
    fs.down()?;
    fsck_when_free([&on.dir])
}

#[test]
fn where_snapshots_cannot_be_made_it_is_said_why_and_what_else_there_is() -> Result<()> {
    let fs = TestFs::up("nosnap", 1, 1)?;
    let name = fs.fsname();
    fails("nacre", &["snapshot"], 4, "say what")?;
    fails("nacre", &["snapshot", "make", "a"], 4, "'make' is none")?;
    fails("nacre", &["snapshot", "create"], 4, "name a snapshot")?;
    fails("nacre", &["snapshot", "create", "a/b"], 4, "is no name of a snapshot")?;
    fails("nacre", &["snapshot", "create", "a", "-b", "maybe"], 4, "on or off")?;
    fails("nacre", &["snapshot", "create", "a", "-t", "0"], 4, "whole seconds")?;
    fails(
        "lctl",
        &["snapshot_create", "-F", name, "-n", "a", "-r", "ssh"],
        4,
        "no shell is needed on other hosts",
    )?;
    fails("lctl", &["snapshot_create", "-F", "other", "-n", "a"], 19, "no MGS of this host knows it")?;
    fails("lctl", &["snapshot_destroy", "-F", name, "-n", "a"], 2, "has no snapshot of this name")?;
    fails("nacre", &["snapshot", "modify", "a"], 4, "say what")?;
    ensure!(lctl(&["snapshot_list", "-F", name])?.is_empty());
    // The same folder on a file system that has no clones.
    fs.down()?;
    let (ost, was) = (fs.dir().join("ost0000"), fs.scratch().join("was"));
    fs::rename(&ost, &was)?;
    fs::create_dir(&ost)?;
    ok_within(Command::new("mount").args(["-t", "tmpfs", "-o", "size=200m", "none"]).arg(&ost), LIMIT)?;
    ok_within(Command::new("cp").arg("-a").arg(was.join(".")).arg(&ost), LIMIT)?;
    fs.up_again()?;
    fails("nacre", &["snapshot", "create", "a"], 95, "files cannot be cloned")?;
    for t in ["mgt", "mdt0000", "ost0000"] {
        let left = fs::read_dir(fs.dir().join(t).join("snapshots")).map_or(0, Iterator::count);
        ensure!(left == 0, "{t} has something left");
    }
    let osts = fs.oss(0)?;
    kill(osts, Signal::KILL)?;
    wait_until("the server ended", LIMIT, || !tests::cluster::alive(osts))?;
    fails("nacre", &["snapshot", "create", "a"], 110, "did not answer within")?;
    fs.down()?;
    ok_within(Command::new("umount").arg(&ost), LIMIT).map(drop)
}

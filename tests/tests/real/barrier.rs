//! The write barrier on real mounts: a load stands still, names stay as they are, also over a death of the
//! metadata server, and everything goes on at the thaw or at the barrier's end.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, fails, kill, lctl, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// Makes, renames and removes files in directories of its own, until it is dropped or told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    pub done: Arc<AtomicU64>,
    work: Option<JoinHandle<Result<()>>>,
}

impl Load {
    pub fn start(dir: PathBuf) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (s, d) = (stop.clone(), done.clone());
        let work = std::thread::spawn(move || -> Result<()> {
            for n in 0.. {
                if s.load(Ordering::Relaxed) {
                    break;
                }
                let sub = dir.join(format!("d{}", n % 7));
                if n < 7 {
                    fs::create_dir_all(&sub)?;
                }
                let (old, new) = (sub.join(format!("t{n}")), sub.join(format!("f{n}")));
                fs::write(&old, format!("content of {n}"))?;
                fs::rename(&old, &new)?;
                if n % 5 == 4 {
                    fs::remove_file(&new)?;
                }
                d.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Load { stop, done, work: Some(work) }
    }

    pub fn count(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// What it came to.
    pub fn end(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let work = self.work.take().context("it runs")?;
        work.join().map_err(|_| anyhow::anyhow!("the load panicked"))?.context("the load")?;
        Ok(self.count())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Every name below a directory, with type and content of regular files.
pub fn tree(root: &Path) -> Result<BTreeSet<String>> {
    let (mut all, mut todo) = (BTreeSet::new(), vec![root.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            let (e, path) = e.map(|e| (e.file_type(), e.path()))?;
            let name = path.strip_prefix(root)?.display().to_string();
            if e?.is_dir() {
                all.insert(format!("{name}/"));
                todo.push(path);
            } else {
                let text = fs::read(&path).with_context(|| format!("reading {name}"))?;
                all.insert(format!("{name}: {}", String::from_utf8_lossy(&text)));
            }
        }
    }
    Ok(all)
}

#[test]
fn a_load_stands_still_at_a_barrier_also_when_its_server_dies() -> Result<()> {
    let fs = TestFs::up("barrier", 2, 2)?;
    let name = fs.fsname();
    ensure!(lctl(&["barrier_stat", name])? == "state: init\ntimeout: 0 seconds\n");
    let load = Load::start(fs.mount(0).join("load"));
    wait_until("the load is under way", LIMIT, || load.count() > 300)?;
    ensure!(lctl(&["barrier_freeze", name, "300"])?.is_empty());
    ensure!(lctl(&["barrier_stat", "-s", name])? == "frozen\n");
    let left: u32 = lctl(&["barrier", "stat", "--timeout", name])?.trim().parse()?;
    ensure!((250..=300).contains(&left), "{left}");
    let before = tree(fs.mount(1))?;
    let at = load.count();
    fails("lctl", &["barrier_freeze", name], 114, "frozen already")?;
    kill(fs.mds()?, Signal::KILL)?;
    fs.up_again()?;
    ensure!(lctl(&["barrier_stat", "-s", name])? == "frozen\n", "a restart does not end it");
    let (after, moved) = (tree(fs.mount(1))?, load.count());
    ensure!(before == after, "{:?}", before.symmetric_difference(&after).take(5).collect::<Vec<_>>());
    // The operation that was under way in the load's own mount may have been done there.
    ensure!(moved <= at + 1, "the load went on from {at} to {moved}");
    lctl(&["barrier_thaw", name])?;
    ensure!(lctl(&["barrier_stat", "--json", name])?.contains("\"state\":\"thawed\""));
    wait_until("the load goes on", LIMIT, || load.count() > moved + 100)?;
    load.end()?;
    ensure!(tree(fs.mount(0))? == tree(fs.mount(1))?);
    fs.fsck()
}

#[test]
fn who_waits_at_a_barrier_can_be_killed_and_goes_on_when_it_expires() -> Result<()> {
    let fs = TestFs::up("expire", 1, 2)?;
    let name = fs.fsname();
    lctl(&["barrier_freeze", name, "120"])?;
    let mut waits = Command::new("mkdir").arg(fs.mount(0).join("killed")).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(waits.try_wait()?.is_none(), "it waits");
    // In its own mount the kernel has the directory locked while something is made in it.
    ensure!(fs::read_dir(fs.mount(1))?.count() == 0, "looks do not wait");
    waits.kill()?;
    let killed = Instant::now();
    ensure!(waits.wait()?.signal() == Some(9) && killed.elapsed() < Duration::from_secs(5));
    lctl(&["barrier_thaw", name])?;
    lctl(&["barrier_freeze", name, "2"])?;
    let begun = Instant::now();
    fs::create_dir(fs.mount(0).join("later"))?;
    ensure!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    ensure!(lctl(&["barrier_stat", "-s", name])? == "expired\n");
    fails("lctl", &["barrier_thaw", name], 110, "expired")?;
    lctl(&["barrier_freeze", name])?;
    lctl(&["barrier_thaw", name])?;
    fails("lctl", &["barrier_thaw", name], 114, "is not frozen")?;
    fails("lctl", &["barrier_freeze", "other"], 19, "no nacred of this host serves")?;
    fails("lctl", &["barrier_freeze", name, "3601"], 4, "whole seconds, 1 to 3600")?;
    fails("lctl", &["barrier_stat", "a/b"], 4, "no name of a file system")?;
    ensure!(
        lctl(&["barrier_rescan", name])? == format!("0 of 1 MDT(s) in the filesystem {name} are inactive\n")
    );
    let mut nobody = tool("lctl");
    nobody.args(["barrier_freeze", name]).uid(65534).gid(65534);
    let refused = run_within(&mut nobody, LIMIT)?;
    ensure!(!refused.status.success(), "only root freezes a file system");
    // That there is an MGS is not denied to who may not ask it.
    let pool = format!("{name}.flash");
    let orders: [(&str, &[&str]); 3] = [
        ("nacre", &["config", "show"]),
        ("lctl", &["pool_new", &pool]),
        ("lctl", &["set_param", "-P", "a.b=1"]),
    ];
    for (program, args) in orders {
        let o = run_within(tool(program).args(args).uid(65534).gid(65534), LIMIT)?;
        let said = String::from_utf8_lossy(&o.stderr).into_owned();
        ensure!(o.status.code() == Some(13) && said.contains("only root may"), "{args:?}: {said}");
    }
    ensure!(lctl(&["barrier_stat", "-s", name])? == "thawed\n");
    fs.fsck()
}

//! `nacre up`.

use super::cluster::{self, Cluster, Node};
use super::probe::Processes;
use super::{Result, UpArgs, UpError, address, dashboard, probe, rootless, watch};
use crate::mount::{self, MountRequest};
use crate::nacred::ended;
use crate::{links, log};
use admin::command::mkfs;
use indicatif::{ProgressBar, ProgressStyle};
use model::{HostNid, Nid, TargetId};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::format::Superblock;
use world::World;
use world::sys::{Deadline, files, mounts, process};

const START_PATIENCE: Duration = Duration::from_secs(60);
/// Of a target whose disk failed: only another start can make it take changes again.
const READ_ONLY: &str = "read-only";
const PROBE_PATIENCE: Duration = Duration::from_secs(3);
/// A server that was killed may have its address for so long.
const DYING: Duration = Duration::from_secs(2);

/// Words while it works: a spinner on a terminal, lines otherwise.
struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    fn new(quiet: bool) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let b = ProgressBar::new_spinner();
            if let Ok(s) = ProgressStyle::with_template("{spinner} {msg}") {
                b.set_style(s);
            }
            b.enable_steady_tick(Duration::from_millis(100));
            b
        });
        Progress { bar, quiet }
    }

    fn say(&self, text: String) {
        match &self.bar {
            Some(b) => b.set_message(text),
            None if !self.quiet => println!("{text}"),
            None => {}
        }
    }

    fn done(&self) {
        if let Some(b) = &self.bar {
            b.finish_and_clear();
        }
    }
}

pub fn up(a: UpArgs) -> Result<i32> {
    if world::sys::euid() != 0 {
        let text = format!(
            "'{}' has a server that an ordinary user started without namespaces: end it first",
            a.dir.display()
        );
        return Err(UpError::new(text));
    }
    check_fuse()?;
    rootless::loopback()?;
    files::create_dir_all(&a.dir).map_err(|e| UpError::io("cannot make", &a.dir, &e))?;
    let dir = files::canonical(&a.dir).map_err(|e| UpError::io("cannot use", &a.dir, &e))?;
    if dir.to_str().is_none() {
        return Err(UpError::new(format!("'{}' is not UTF-8: choose another folder", dir.display())));
    }
    let _lock = cluster::lock(&dir)?;
    rootless::check_here(&dir)?;
    let (world, _runtime) =
        world::real::start(1).map_err(|e| UpError::new(format!("cannot start threads: {e}")))?;
    let progress = Progress::new(a.quiet);
    let c = prepare(&world, &a, &dir)?;
    let r = bring_up(&world, &c, !a.no_watch, &progress);
    progress.done();
    let fresh = r?;
    if !a.quiet {
        summary(&c, fresh);
    }
    Ok(0)
}

fn check_fuse() -> Result<()> {
    match mount::open_fuse_device() {
        Ok(()) => Ok(()),
        Err(e) => Err(UpError::new(e)),
    }
}

/// The cluster as it shall be: what the folder says, and what the arguments add.
fn prepare(world: &World, a: &UpArgs, dir: &Path) -> Result<Cluster> {
    let mut c = match Cluster::load(dir)? {
        Some(c) => {
            if let Some(n) = a.fsname.as_ref().filter(|n| **n != c.fsname) {
                return Err(UpError::new(format!(
                    "'{}' holds file system '{}', not '{n}': leave --fsname out, or give another --dir",
                    dir.display(),
                    c.fsname
                )));
            }
            c
        }
        None => {
            let fsname = a.fsname.clone().unwrap_or_else(|| "nacre".to_string());
            if !model::target::fsname_is_valid(&fsname) {
                return Err(UpError::new(format!("--fsname '{fsname}': 1 to 8 of A-Z a-z 0-9 _ -")));
            }
            let osts = a.osts.unwrap_or(4);
            let block = address::choose(world, osts + 1, model::limits::PORT)?;
            Cluster::new(dir.to_path_buf(), fsname, block, osts)
        }
    };
    if let Some(n) = a.osts.filter(|n| usize::from(*n) < c.osts_in_use()) {
        let text = format!("there are {} OSTs, not {n}: nacre remove OST takes one away", c.osts_in_use());
        return Err(UpError::new(text));
    }
    c.osts = c.osts.max(a.osts.unwrap_or(0));
    if let Some(port) = a.metrics {
        c.metrics = Some(port).filter(|p| *p != 0);
    }
    if let Some(port) = a.dashboard {
        c.dashboard = Some(port).filter(|p| *p != 0);
    }
    if let Some(o) = &a.options {
        mount::check_options(o).map_err(UpError)?;
        c.options.clone_from(o);
    }
    for m in &a.mount {
        let m = mount_point(m)?;
        if m.starts_with(dir) || dir.starts_with(&m) {
            let text = format!(
                "mount point '{}' and --dir '{}' must not contain each other",
                m.display(),
                dir.display()
            );
            return Err(UpError::new(text));
        }
        if !c.mounts.contains(&m) {
            c.mounts.push(m);
        }
    }
    c.save()?;
    Ok(c)
}

/// Absolute and without symbolic links; made if missing. A dead mount there is no obstacle.
fn mount_point(m: &Path) -> Result<PathBuf> {
    let absolute = files::absolute(m).map_err(|e| UpError::io("cannot use", m, &e))?;
    let (parent, name) = match (absolute.parent(), absolute.file_name()) {
        (Some(p), Some(n)) => (p, n),
        _ => return Err(UpError::new("the root directory cannot be the mount point")),
    };
    files::create_dir_all(parent).map_err(|e| UpError::io("cannot make", parent, &e))?;
    let parent = files::canonical(parent).map_err(|e| UpError::io("cannot use", parent, &e))?;
    let path = parent.join(name);
    if matches!(mounts::at(&path), Ok(Some(_))) {
        return Ok(path);
    }
    files::create_dir_all(&path).map_err(|e| UpError::io("cannot make mount point", &path, &e))?;
    files::canonical(&path).map_err(|e| UpError::io("cannot use", &path, &e))
}

/// What a target of this cluster is.
fn label_of(world: &World, c: &Cluster, dir: &Path) -> Superblock {
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let target = match name.strip_prefix("ost") {
        Some(hex) => TargetId::ost(u16::from_str_radix(hex, 16).expect("made by Cluster::nodes")),
        None if name == "mgt" => TargetId::MGT,
        None => TargetId::mdt(0),
    };
    let mgt = target == TargetId::MGT;
    let mgs = HostNid::from(Nid { addr: c.address(0).into(), net: 0 });
    let fsname = if mgt { String::new() } else { c.fsname.clone() };
    Superblock {
        mgs_nids: if mgt { Vec::new() } else { vec![mgs] },
        key: Some(world.random_key()),
        ..Superblock::fresh(target, fsname, world.random_uuid())
    }
}

/// Formats the folders that hold no target yet. A half made one (no superblock) is made again: nothing was
/// ever stored in it.
fn format_missing(world: &World, c: &Cluster, progress: &Progress) -> Result<bool> {
    let mut fresh = false;
    for dir in c.nodes().iter().flat_map(|n| &n.dirs) {
        let text = dir.to_str().expect("checked when the folder was given");
        if files::stat(&dir.join("superblock"), false).is_ok()
            || files::stat(&dir.join("superblock.1"), false).is_ok()
        {
            continue;
        }
        progress.say(format!("Formatting {}", dir.display()));
        remove_half_made(dir)?;
        mkfs::format(world, text, &label_of(world, c, dir)).map_err(|f| UpError::new(f.to_string()))?;
        fresh = true;
    }
    Ok(fresh)
}

/// What an interrupted format left. The folder itself stays: it may be the mount point of a disk.
fn remove_half_made(dir: &Path) -> Result<()> {
    for name in mkfs::OWN_NAMES {
        let path = dir.join(name);
        let gone = match files::stat(&path, false) {
            Ok(s) if s.is_dir() => files::remove_tree(&path),
            Ok(_) => files::remove_file(&path),
            Err(_) => Ok(()),
        };
        gone.map_err(|e| UpError::io("cannot remove half made", &path, &e))?;
    }
    Ok(())
}

/// Its addresses were taken by somebody else while everything was down: take others, and tell the targets.
fn move_if_taken(world: &World, c: &mut Cluster) -> Result<()> {
    let nodes = c.nodes();
    let now = Processes::look();
    if nodes.iter().any(|n| probe::server(n, &now).pid.is_some()) {
        return Ok(());
    }
    let dying = Deadline::after(DYING);
    while !dying.passed() {
        if address::is_free(c.block, c.osts + 1, c.port).is_ok() {
            return Ok(());
        }
        world::sys::sleep(Duration::from_millis(50));
    }
    c.block = address::choose(world, c.osts + 1, c.port)?;
    let mgs = HostNid::from(Nid { addr: c.address(0).into(), net: 0 });
    for dir in nodes.iter().flat_map(|n| &n.dirs) {
        let text = dir.to_str().expect("checked when the folder was given");
        let change = || -> std::result::Result<(), store::StoreError> {
            let _lock = Superblock::lock(world, text)?;
            let mut s = Superblock::read(world, text)?;
            if !s.mgs_nids.is_empty() {
                s.mgs_nids = vec![mgs.clone()];
                s.config.clear();
                s.write(world, text)?;
            }
            Ok(())
        };
        change().map_err(|e| UpError::new(format!("cannot change the address in '{text}': {e}")))?;
    }
    c.save()
}

/// A server that was started just now.
pub(super) struct Started {
    daemon: process::Detached,
    log: PathBuf,
}

impl Started {
    pub(super) fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// After its end.
    pub(super) fn reap(&mut self) {
        let _ = self.daemon.ended();
    }
}

/// `watched`: somebody starts it again when it is killed.
pub(super) fn start_node(c: &Cluster, n: &Node, exe: &Path, watched: bool) -> Result<Started> {
    let log = c.log_dir().join(format!("nacred-{}.log", n.number + 1));
    let mut args: Vec<OsString> =
        vec!["--nid".into(), n.nid().into(), "--port".into(), c.port.to_string().into()];
    if let Some(at) = c.metrics_of(n) {
        args.extend(["--metrics".into(), at.to_string().into()]);
    }
    args.extend(n.dirs.iter().map(|d| d.clone().into_os_string()));
    let env = [(ended::WATCHED, "1".to_string())];
    let env = if watched { &env[..] } else { &[] };
    let d = process::Daemon { exe, arg0: "nacred", args: &args, env, log: &log };
    let daemon = process::spawn_detached(&d).map_err(|e| UpError::io("cannot start", exe, &e))?;
    Ok(Started { daemon, log })
}

/// Every server up and known to the MGS: starts those that do not run, also one that dies while this looks
/// on. One whose OST was taken out of the file system is left out from then on.
fn start_servers(c: &mut Cluster, exe: &Path, watched: bool, progress: &Progress) -> Result<()> {
    let mut started: BTreeMap<u16, Started> = BTreeMap::new();
    let end = Deadline::after(START_PATIENCE);
    let mut shown = usize::MAX;
    loop {
        let mut waiting = Vec::new();
        let now = Processes::look();
        for n in &c.nodes() {
            if let Some(s) = started.get_mut(&n.number)
                && let Ok(Some(how)) = s.daemon.ended()
            {
                if how.status == Some(ended::REMOVED) && n.number > 0 {
                    progress.say(format!(
                        "{} was removed from the file system: it is not started any more, and its folder can go: {}",
                        n.labels.join(" and "),
                        n.dirs[0].display()
                    ));
                    c.note_removed(n)?;
                    continue;
                }
                return Err(UpError::new(format!(
                    "the server of {} ended with {how}. The last lines of {}:{}",
                    n.labels.join(" and "),
                    s.log.display(),
                    log::last_lines(&s.log)
                )));
            }
            let state = probe::server(n, &now);
            if state.pid.is_none() && !started.contains_key(&n.number) {
                progress.say(format!("Starting {} at {}", n.labels.join(" and "), n.nid()));
                let other = started.insert(n.number, start_node(c, n, exe, watched)?);
                assert!(other.is_none(), "a server is started once");
            }
            if let Some(pid) =
                state.pid.filter(|_| state.word() == READ_ONLY && !started.contains_key(&n.number))
            {
                progress.say(format!("Ending {} (pid {pid}): its disk failed", n.labels.join(" and ")));
                let _ = process::kill(pid, process::SIGTERM);
            }
            // What was started just now is not seen yet.
            let word = if state.pid.is_none() { "starting" } else { state.word() };
            if word != "up" {
                waiting.push(format!("{} ({word})", n.labels.join("+")));
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if end.passed() {
            return Err(UpError::new(format!(
                "not up after {} s: {}. Logs: {}",
                START_PATIENCE.as_secs(),
                waiting.join(", "),
                c.log_dir().display()
            )));
        }
        if shown != waiting.len() {
            shown = waiting.len();
            progress.say(format!("Waiting for {}", waiting.join(", ")));
        }
        world::sys::sleep(Duration::from_millis(50));
    }
}

fn bring_up(world: &World, c: &Cluster, watched: bool, progress: &Progress) -> Result<bool> {
    let mut c = c.clone();
    let log_dir = c.log_dir();
    files::create_dir_all(&log_dir).map_err(|e| UpError::io("cannot make", &log_dir, &e))?;
    let exe = process::own_executable()
        .map_err(|e| UpError::new(format!("cannot find the program itself: {e}")))?;
    if let Some(d) = exe.parent() {
        // A working installation beside the binary; a read-only place is fine too.
        let _ = links::install(d);
    }
    let fresh = format_missing(world, &c, progress)?;
    move_if_taken(world, &mut c)?;
    let replaces = |d: &Path| d.to_str().is_some_and(|t| Superblock::read(world, t).is_ok_and(|s| s.replace));
    c.note_replaced(replaces)?;
    c.save_metrics()?;
    start_servers(&mut c, &exe, watched, progress)?;
    if watched {
        watch::ensure(&c, &exe)?;
    }
    for (i, m) in c.mounts.iter().enumerate() {
        bring_mount_up(&c, i, m, progress)?;
    }
    dashboard::ensure(world, &c, &exe)?;
    Ok(fresh)
}

fn bring_mount_up(c: &Cluster, number: usize, m: &Path, progress: &Progress) -> Result<()> {
    let source = c.source();
    // A mount may wait for the recovery of servers that were just started.
    let end = Deadline::after(START_PATIENCE);
    let state = end.wait_for(|| {
        let s = probe::mount_state(&source, m, PROBE_PATIENCE);
        (s != probe::MountState::Waiting).then_some(s)
    });
    match state.unwrap_or(probe::MountState::Waiting) {
        probe::MountState::Up => return Ok(()),
        probe::MountState::Waiting => {
            let text = format!(
                "the mount at '{}' does not answer although all servers are up: see {}",
                m.display(),
                c.log_dir().display()
            );
            return Err(UpError::new(text));
        }
        probe::MountState::Foreign => {
            // One of our own from before the addresses were moved may be dead there.
            let dead = matches!(probe::answers(m, PROBE_PATIENCE), Some(Err(e)) if probe::is_dead(&e));
            if !dead {
                return Err(UpError::new(format!("something else is mounted at '{}'", m.display())));
            }
            unmount_dead(m)?;
        }
        probe::MountState::Dead => {
            progress.say(format!("The daemon of {} died: mounting it again", m.display()));
            unmount_dead(m)?;
        }
        probe::MountState::Absent => {}
    }
    files::create_dir_all(m).map_err(|e| UpError::io("cannot make mount point", m, &e))?;
    progress.say(format!("Mounting {source} at {}", m.display()));
    let metrics = c.metrics_of_mount(number).map(|at| format!("metrics={at}"));
    let options = [Some(c.options.clone()), metrics].into_iter().flatten().filter(|o| !o.is_empty());
    let r = MountRequest {
        source,
        dir: m.to_path_buf(),
        options: options.collect::<Vec<_>>().join(","),
        log: Some(c.log_dir().join(format!("mount-{}.log", number + 1))),
    };
    mount::mount(&r).map_err(UpError)
}

/// For whoever looks after it: nothing is said.
pub(super) fn mount_again(c: &Cluster, number: usize, m: &Path) -> Result<()> {
    bring_mount_up(c, number, m, &Progress::new(true))
}

fn unmount_dead(m: &Path) -> Result<()> {
    mounts::unmount(m, mounts::Unmount::Lazy)
        .map_err(|e| UpError::io("cannot take away the dead mount at", m, &e))
}

fn summary(c: &Cluster, fresh: bool) {
    let what = if fresh { "File system" } else { "Again up: file system" };
    println!("{what} '{}': MGT, MDT0000 and {} OSTs, in {}", c.fsname, c.osts_in_use(), c.dir.display());
    for m in &c.mounts {
        let size = mounts::total_bytes(m).map(|b| admin::size::human(b, 1024)).unwrap_or_default();
        println!("  mounted at {} ({size}), source {}", m.display(), c.source());
    }
    if let Some(port) = c.metrics {
        println!("  metrics of each at http://ADDRESS:{port}/metrics, see {}/metrics.json", c.dir.display());
    }
    if let Some(at) = c.dashboard_at() {
        println!("  console at http://{at}/, its token in {}", dashboard::token_file(c).display());
    }
    let Some(m) = c.mounts.first() else {
        println!("Mount it with: mount.nacre {} DIR", c.source());
        return;
    };
    let m = m.display();
    let bin = process::own_executable().ok().and_then(|e| Some(e.parent()?.display().to_string()));
    println!("\nThree things to try:");
    if rootless::is_inside(&c.dir) {
        println!("  nacre shell --dir {}       # only in there its mounts are seen", c.dir.display());
    } else if let Some(b) = bin {
        println!("  export PATH={b}:$PATH");
    }
    println!("  cp -r /usr/share/doc {m}/ && lfs df -h {m}");
    println!("  lfs setstripe -c -1 {m}/wide && cp /bin/bash {m}/wide && lfs getstripe {m}/wide");
    println!("  nacre status --dir {}      # kill -9 one of them: it is started again", c.dir.display());
}

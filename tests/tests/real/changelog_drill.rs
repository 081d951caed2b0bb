//! Three mounts work at random while the metadata server, the mounts and the consumer of the changelog are
//! killed in turns: the consumer is told of each change once, of each directory in its order, and of nothing
//! else. A consumer that nobody runs any more is dropped, and keeps no space.
//!
//! `NACRE_CHANGELOG_OPS=100000 NACRE_CHANGELOG_KILLS=30` for more of it (`scripts/campaign.sh changelog`).

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tests::cluster::{TestFs, kill, ok_within, tool, wait_until};
use tests::rng::Rng;

const LIMIT: Duration = Duration::from_secs(90);
const MOUNTS: usize = 3;
/// Operations between two fsyncs: behind one nothing is lost with a mount.
const BETWEEN_FSYNCS: usize = 60;
/// Files of a mount that it goes on with.
const FILES_MAX: usize = 100;
/// The consumer that nobody runs is away for too long after so much.
const IDLE_MAX_S: u64 = 30;
/// What is compared; other records are about data, and come when it is written.
const KINDS: [&str; 6] = ["CREAT", "MKDIR", "RENME", "UNLNK", "RMDIR", "SATTR"];

/// A change that was asked for.
struct Step {
    dir: String,
    what: String,
    /// False: the mount died before it knew that this lasts.
    certain: bool,
}

/// What all of them share.
struct Drill {
    fs: TestFs,
    mdt: String,
    total: u64,
    done: AtomicU64,
    /// How often each mount came back.
    lives: [AtomicU64; MOUNTS],
    kill_consumer: AtomicBool,
    /// All work is done, or something is wrong.
    over: AtomicBool,
}

struct Known {
    dir: usize,
    made_as: String,
    name: String,
    is_dir: bool,
}

/// Who works on a mount.
struct Worker<'a> {
    drill: &'a Drill,
    mount: usize,
    rng: Rng,
    steps: Vec<Step>,
    made: u64,
}

/// A mount between two of its deaths: the shared directory, and one that nobody else looks into.
struct Life {
    number: u64,
    dirs: [(String, File); 2],
    files: Vec<Known>,
    fsynced: usize,
}

fn opened(at: impl AsFd, name: &str) -> Result<File, Errno> {
    Ok(File::from(openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
}

impl Worker<'_> {
    fn run(mut self) -> Result<Vec<Step>> {
        while self.drill.done.load(Relaxed) < self.drill.total && !self.drill.over.load(Relaxed) {
            let life = self.drill.lives[self.mount].load(Relaxed);
            let first = self.steps.len();
            let Err((e, fsynced)) = self.live(life) else { return Ok(self.steps) };
            for s in &mut self.steps[fsynced.max(first)..] {
                s.certain = false;
            }
            let came_back = || self.drill.lives[self.mount].load(Relaxed) > life;
            wait_until(&format!("mount {} comes back after {e}", self.mount), LIMIT, came_back)?;
        }
        Ok(self.steps)
    }

    fn note(&mut self, dir: &str, what: String) {
        self.steps.push(Step { dir: dir.into(), what, certain: true });
        self.drill.done.fetch_add(1, Relaxed);
    }

    /// Until all is done; an error says that the mount is gone, and which steps are certain to last.
    fn live(&mut self, number: u64) -> Result<(), (Errno, usize)> {
        let begun = self.steps.len();
        let mut life = self.begin(number).map_err(|e| (e, begun))?;
        life.fsynced = begun;
        loop {
            let over = self.drill.done.load(Relaxed) >= self.drill.total;
            if over || self.drill.over.load(Relaxed) || self.steps.len() - life.fsynced >= BETWEEN_FSYNCS {
                self.fsync(&mut life).map_err(|e| (e, life.fsynced))?;
            }
            if over || self.drill.over.load(Relaxed) {
                return Ok(());
            }
            self.one(&mut life).map_err(|e| (e, life.fsynced))?;
        }
    }

    fn begin(&mut self, number: u64) -> Result<Life, Errno> {
        let root = opened(rustix::fs::CWD, self.drill.fs.mount(self.mount).to_str().expect("plain"))?;
        let own = format!("own-{}-{number}", self.mount);
        self.note("/", format!("MKDIR {own}"));
        mkdirat(&root, &own, Mode::RWXU)?;
        let dirs = [("shared".to_string(), opened(&root, "shared")?), (own.clone(), opened(&root, &own)?)];
        Ok(Life { number, dirs, files: Vec::new(), fsynced: 0 })
    }

    fn fsync(&self, life: &mut Life) -> Result<(), Errno> {
        for (_, d) in &life.dirs {
            rustix::fs::fsync(d)?;
        }
        life.fsynced = self.steps.len();
        Ok(())
    }

    /// One operation. It is noted first: what is not answered may have happened.
    fn one(&mut self, life: &mut Life) -> Result<(), Errno> {
        let dice = self.rng.below(10);
        if life.files.is_empty() || (dice < 4 && life.files.len() < FILES_MAX) {
            return self.make(life, dice == 0);
        }
        let at = self.rng.below(life.files.len() as u64) as usize;
        let f = &mut life.files[at];
        let (dir_name, dir) = &life.dirs[f.dir];
        match dice {
            0..6 => {
                let flags = if f.is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let kind = if f.is_dir { "RMDIR" } else { "UNLNK" };
                self.note(dir_name, format!("{kind} {}", f.name));
                unlinkat(dir, &f.name, flags)?;
                life.files.swap_remove(at);
            }
            6..8 => {
                // Some go to the other directory.
                let to = if self.rng.below(3) == 0 { 1 - f.dir } else { f.dir };
                let (to_name, to_dir) = &life.dirs[to];
                self.made += 1;
                let new = format!("{}-r{}", f.made_as, self.made);
                self.note(to_name, format!("RENME {} {new}", f.name));
                renameat(dir, &f.name, to_dir, &new)?;
                (f.dir, f.name) = (to, new);
            }
            8 => {
                self.note(dir_name, format!("SATTR {}", f.made_as));
                let mode = Mode::from_raw_mode(0o700 | self.rng.below(0o100) as u32);
                rustix::fs::chmodat(dir, &f.name, mode, AtFlags::empty())?;
            }
            _ if f.is_dir => {}
            _ => {
                let file =
                    openat(dir, &f.name, OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC, Mode::empty())?;
                File::from(file)
                    .write_all(b"more")
                    .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            }
        }
        Ok(())
    }

    fn make(&mut self, life: &mut Life, is_dir: bool) -> Result<(), Errno> {
        self.made += 1;
        let dir = usize::from(self.rng.below(3) > 0);
        let name = format!("w{}-{}-{}", self.mount, life.number, self.made);
        let (dir_name, fd) = &life.dirs[dir];
        if is_dir {
            self.note(dir_name, format!("MKDIR {name}"));
            mkdirat(fd, &name, Mode::RWXU)?;
        } else {
            self.note(dir_name, format!("CREAT {name}"));
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            openat(fd, &name, flags, Mode::RUSR | Mode::WUSR)?;
        }
        life.files.push(Known { dir, made_as: name.clone(), name, is_dir });
        Ok(())
    }
}

/// What the consumer was told, as [`Step`]s have it, by directory and who worked there.
#[derive(Default)]
struct Told {
    last: u64,
    lists: BTreeMap<(String, String), Vec<String>>,
    /// Directories by their FIDs; of each file what it was made as, and where it is.
    dirs: BTreeMap<String, String>,
    files: BTreeMap<String, (String, String)>,
}

/// Whose a name is: all lives of a mount are one worker.
fn worker(name: &str) -> String {
    name.trim_start_matches("own-").trim_start_matches('w').split('-').next().unwrap_or_default().to_string()
}

impl Told {
    fn take(&mut self, line: &str) -> Result<()> {
        let r: Value = serde_json::from_str(line).with_context(|| format!("'{line}' is no record"))?;
        let index = r["index"].as_u64().context("an index")?;
        ensure!(index == self.last + 1, "record {index} follows record {}", self.last);
        self.last = index;
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        let (kind, fid, name) = (text(&r["type"]), text(&r["fid"]), text(&r["name"]));
        if !KINDS.contains(&kind.as_str()) {
            return Ok(());
        }
        let parent = self.dirs.get(&text(&r["parent"])).cloned().unwrap_or_else(|| "/".into());
        let (dir, by, what) = match kind.as_str() {
            "SATTR" => {
                let (made_as, dir) = self.files.get(&fid).cloned().unwrap_or_default();
                (dir, worker(&made_as), format!("SATTR {made_as}"))
            }
            "RENME" => {
                let (moved, old) = (text(&r["source"]["fid"]), text(&r["source"]["name"]));
                ensure!(!moved.is_empty(), "a rename has both names: {line}");
                if let Some(f) = self.files.get_mut(&moved) {
                    f.1.clone_from(&parent);
                }
                (parent, worker(&name), format!("RENME {old} {name}"))
            }
            _ => {
                if parent == "/" {
                    self.dirs.insert(fid.clone(), name.clone());
                }
                if matches!(kind.as_str(), "CREAT" | "MKDIR") {
                    self.files.insert(fid, (name.clone(), parent.clone()));
                }
                (parent, worker(&name), format!("{kind} {name}"))
            }
        };
        self.lists.entry((dir, by)).or_default().push(what);
        Ok(())
    }

    /// Compares it with what a worker did.
    fn compare(&mut self, by: usize, steps: &[Step]) -> Result<()> {
        let mut wanted: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
        steps.iter().for_each(|s| wanted.entry(&s.dir).or_default().push(s));
        for (dir, steps) in wanted {
            let told = self.lists.remove(&(dir.to_string(), by.to_string())).unwrap_or_default();
            let mut at = 0;
            for s in steps {
                if told.get(at) == Some(&s.what) {
                    at += 1;
                } else {
                    let near = &told[at.saturating_sub(3)..told.len().min(at + 3)];
                    ensure!(!s.certain, "mount {by}, {dir}: '{}' is missing at {at}: {near:?}", s.what);
                }
            }
            ensure!(at == told.len(), "mount {by}, {dir}: nobody did '{}'", told[at]);
        }
        Ok(())
    }
}

/// Ends with the consumer.
struct Follower {
    child: Child,
    out: PathBuf,
    read: u64,
}

impl Follower {
    fn start(d: &Drill, from: u64) -> Result<Follower> {
        let out = d.fs.scratch().join(format!("records-{from}"));
        let (file, from) = (File::create(&out)?, from.to_string());
        let mut c = tool("lfs");
        c.args(["changelog", "-f", "--json", "-u", "cl1", &d.mdt, &from]).stdout(file).stderr(Stdio::null());
        Ok(Follower { child: c.spawn()?, out, read: 0 })
    }

    /// Whole lines that came since.
    fn lines(&mut self) -> Result<String> {
        let mut file = File::open(&self.out)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        text.truncate(text.rfind('\n').map_or(0, |n| n + 1));
        self.read += text.len() as u64;
        Ok(text)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.out);
    }
}

/// Reads until it was told of all; the most bytes that the changelog took meanwhile.
fn consume(d: &Drill, told: &mut Told) -> Result<u64> {
    let (mut follower, mut cleared, mut most) = (Follower::start(d, 1)?, 0, 0);
    let mut since = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let killed = d.kill_consumer.swap(false, Relaxed);
        if killed {
            follower.child.kill()?;
        }
        let ended = killed || follower.child.try_wait()?.is_some();
        if killed {
            follower.child.wait()?;
        }
        let lines = follower.lines()?;
        lines.lines().try_for_each(|l| told.take(l))?;
        if !lines.is_empty() {
            since = Instant::now();
        }
        let over = d.over.load(Relaxed);
        ensure!(since.elapsed() < LIMIT || !over, "no record for {LIMIT:?}, the last was {}", told.last);
        if ended {
            // It goes on with what it was not told whole.
            follower = Follower::start(d, told.last + 1)?;
        }
        if told.last > cleared {
            // While servers or the mount are away it does not succeed.
            let mut clear = tool("lfs");
            clear.args(["changelog_clear", &d.mdt, "cl1", &told.last.to_string()]);
            if ok_within(&mut clear, LIMIT).is_ok() {
                cleared = told.last;
            }
        }
        most = most.max(d.param("changelog_size").ok().and_then(|s| s.parse().ok()).unwrap_or(0));
        if over && d.newest().is_ok_and(|newest| newest == told.last && newest == cleared) {
            return Ok(most);
        }
    }
}

impl Drill {
    fn lctl(&self, args: &[&str]) -> Result<String> {
        Ok(ok_within(tool("lctl").args(args), LIMIT)?.trim().to_string())
    }

    fn param(&self, name: &str) -> Result<String> {
        self.lctl(&["get_param", "-n", &format!("mdd.{}.{name}", self.mdt)])
    }

    fn newest(&self) -> Result<u64> {
        let users = self.param("changelog_users")?;
        let line = users.lines().next().and_then(|l| l.strip_prefix("current_index: "));
        Ok(line.context("no current index")?.parse()?)
    }

    /// Operations that mounts executed by themselves since they came back last.
    fn executed(&self) -> Result<u64> {
        let all = self.lctl(&["get_param", "-n", "llite.*.md_writeback_stats"])?;
        Ok(all.lines().filter_map(|l| l.trim().strip_prefix("executed: ")?.parse::<u64>().ok()).sum())
    }

    /// The process with this role, and of a client with this mount.
    fn process(&self, role: &str, of: Option<&Path>) -> Result<i32> {
        let is_it = |pid: i32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            of.is_none_or(|m| line.split('\0').any(|w| m.to_str() == Some(w)))
        };
        let all = self.fs.processes()?;
        let it = all.iter().find(|(r, pid)| r.contains(role) && *pid > 0 && is_it(*pid));
        it.map(|(_, pid)| *pid).with_context(|| format!("no {role}: {all:?}"))
    }

    /// Kills one after the other, as the work goes on.
    fn torment(&self, kills: u64) -> Result<()> {
        for n in 0..kills {
            let due = self.total * (n + 1) / (kills + 1);
            let before = Instant::now();
            while self.done.load(Relaxed) < due {
                std::thread::sleep(Duration::from_millis(2));
                ensure!(
                    before.elapsed() < 10 * LIMIT,
                    "the work does not go on: {}",
                    self.done.load(Relaxed)
                );
                if self.over.load(Relaxed) {
                    return Ok(());
                }
            }
            match n % 3 {
                0 => {
                    kill(self.process("mds", None)?, Signal::KILL)?;
                    self.fs.up_again()?;
                }
                1 => {
                    let m = (n / 3) as usize % MOUNTS;
                    kill(self.process("client", Some(self.fs.mount(m)))?, Signal::KILL)?;
                    self.fs.up_again()?;
                    self.lives[m].fetch_add(1, Relaxed);
                }
                _ => self.kill_consumer.store(true, Relaxed),
            }
        }
        Ok(())
    }
}

fn joined<T>(name: &str, h: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    h.join().map_err(|_| anyhow::anyhow!("{name} panicked"))?.context(name.to_string())
}

#[test]
fn a_consumer_is_told_once_while_everybody_is_killed() -> Result<()> {
    let total = tests::env_number("NACRE_CHANGELOG_OPS").unwrap_or(3_000);
    let kills = tests::env_number("NACRE_CHANGELOG_KILLS").unwrap_or(6);
    let fs = TestFs::up("chlogdrill", 1, MOUNTS)?;
    let mdt = format!("{}-MDT0000", fs.fsname());
    let (lives, done) = (Default::default(), AtomicU64::new(0));
    let (kill_consumer, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let d = Drill { fs, mdt, total, done, lives, kill_consumer, over };
    for (name, value) in [("changelog_max_idle_time", IDLE_MAX_S), ("changelog_min_gc_interval", 1)] {
        d.lctl(&["set_param", "-P", &format!("mdd.{}.{name}={value}", d.mdt)])?;
        let is_set = || d.param(name).is_ok_and(|v| v == value.to_string());
        wait_until("the parameter is there", LIMIT, is_set)?;
    }
    for _ in 0..2 {
        d.lctl(&["--device", &d.mdt, "changelog_register"])?;
    }
    std::fs::create_dir(d.fs.mount(0).join("shared"))?;
    let (mut told, begun) = (Told::default(), Instant::now());
    let (steps, most) = std::thread::scope(|s| -> Result<_> {
        let drill = &d;
        let work =
            |mount| Worker { drill, mount, rng: Rng::new(mount as u64 + 65), steps: Vec::new(), made: 0 };
        let workers: Vec<_> = (0..MOUNTS).map(|m| s.spawn(move || work(m).run())).collect();
        let consumer = s.spawn(|| consume(drill, &mut told));
        let killed = drill.torment(kills);
        if killed.is_err() {
            drill.over.store(true, Relaxed);
        }
        let steps: Result<Vec<_>> = workers.into_iter().map(|w| joined("a mount", w)).collect();
        drill.over.store(true, Relaxed);
        let most = joined("the consumer", consumer);
        killed?;
        Ok((steps?, most?))
    })?;
    let executed = d.executed()?;
    ensure!(executed > 0, "no mount executed anything by itself");
    let uncertain = steps.iter().flatten().filter(|s| !s.certain).count();
    println!(
        "{} operations in {:?}, {kills} kills, {} records, at most {most} bytes; {uncertain} operations may have gone with their mounts; {executed} were executed by mounts themselves since those came back last",
        d.done.load(Relaxed),
        begun.elapsed(),
        told.last
    );
    for (m, steps) in steps.iter().enumerate() {
        told.compare(m, steps)?;
    }
    told.lists.remove(&("/".into(), "shared".into()));
    if let Some((who, what)) = told.lists.first_key_value() {
        bail!("nobody did that: {who:?} {what:?}");
    }
    wait_until("the consumer that is away is dropped", LIMIT, || {
        // A clear has somebody look who is away.
        let _ = ok_within(tool("lfs").args(["changelog_clear", &d.mdt, "cl1", "0"]), LIMIT);
        d.param("changelog_users").is_ok_and(|users| users.contains("cl1 ") && !users.contains("cl2 "))
    })?;
    wait_until("nothing is kept", LIMIT, || d.param("changelog_size").is_ok_and(|s| s == "0"))?;
    d.fs.fsck()
}

//! Every kind of layout under programs that read back all they write; and while the data is moved from one to
//! the other.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, tool, wait_until};
use tests::exerciser::{Exerciser, appenders};
use tests::programs::fsx;
use tests::rng::Rng;

const LIMIT: Duration = Duration::from_secs(60);
const FSX_LIMIT: Duration = Duration::from_secs(400);

/// Layouts of all kinds, all of whose components a file of a few MiB has.
const KINDS: [(&str, &[&str]); 5] = [
    (
        "dom",
        &["-E", "64k", "-L", "mdt", "-E", "512k", "-c", "1", "-S", "64k", "-E", "-1", "-c", "3", "-S", "64k"],
    ),
    ("extending", &["-E", "1M", "-c", "1", "-S", "64k", "-E", "-1", "-z", "64M", "-c", "2", "-S", "64k"]),
    ("overstriped", &["-C", "7", "-S", "64k"]),
    ("pool", &["-p", "pair", "-c", "-1", "-S", "64k"]),
    (
        "steps",
        &["-E", "128k", "-c", "1", "-S", "64k", "-E", "1M", "-C", "5", "-S", "64k", "-E", "-1", "-p", "pair"],
    ),
];

fn lfs(args: &[&str], dir: &Path) -> Result<String> {
    ok_within(tool("lfs").args(args).current_dir(dir), LIMIT)
}

/// A file system with the pool that some of [`KINDS`] name.
fn up(name: &str, mounts: usize) -> Result<TestFs> {
    let fs = TestFs::up(name, 4, mounts)?;
    let lctl = |args: &[&str]| ok_within(tool("lctl").args(args), LIMIT);
    lctl(&["pool_new", &format!("{}.pair", fs.fsname())])?;
    lctl(&["pool_add", &format!("{}.pair", fs.fsname()), "OST[1-2]"])?;
    Ok(fs)
}

/// A folder whose files get that layout.
fn folder(fs: &TestFs, name: &str, layout: &[&str]) -> Result<PathBuf> {
    let dir = fs.mount(0).join(name);
    fs::create_dir(&dir)?;
    lfs(&[&["setstripe"], layout, &["."]].concat(), &dir)?;
    Ok(dir)
}

fn empty_file(fs: &TestFs, dir: &str, name: &str) -> Result<Vec<PathBuf>> {
    fs::File::create_new(fs.mount(0).join(dir).join(name))?;
    Ok(fs.mounts().iter().map(|m| m.join(dir).join(name)).collect())
}

#[test]
fn programs_find_what_they_wrote_in_every_kind_of_layout() -> Result<()> {
    let ops = tests::env_number("NACRE_FSX_OPS").unwrap_or(400) as u32;
    let fs = up("kinds", 2)?;
    for (seed, (name, layout)) in (tests::env_number("NACRE_SEED").unwrap_or(30)..).zip(KINDS) {
        let dir = folder(&fs, name, layout)?;
        fsx(&dir.join("fsx"), seed, ops, None, fs.scratch(), FSX_LIMIT)
            .with_context(|| format!("{name}, seed {seed}"))?;
        for (file, mmap, steps) in [("f", false, u64::from(ops) / 5), ("mapped", true, u64::from(ops) / 10)] {
            let paths = empty_file(&fs, name, file)?;
            Exerciser::new(paths, seed, mmap)?.run(steps).with_context(|| format!("{name}, seed {seed}"))?;
        }
        appenders(&empty_file(&fs, name, "log")?, 4, 100).with_context(|| name.to_string())?;
    }
    fs.fsck()
}

/// Moves a file from one kind of layout to the next, until `stop`; how often. A server that dies makes an
/// attempt fail, no more.
fn keep_moving(path: &Path, moves: &AtomicU64, stop: &AtomicBool, may_fail: bool) -> Result<()> {
    let dir = path.parent().context("a file has a folder")?;
    let name = path.file_name().and_then(|n| n.to_str()).context("a name of ours")?;
    for (_, layout) in KINDS.iter().cycle() {
        if stop.load(Relaxed) {
            return Ok(());
        }
        match lfs(&[&["migrate"], *layout, &[name]].concat(), dir) {
            Ok(_) => drop(moves.fetch_add(1, Relaxed)),
            Err(e) if may_fail => println!("a move failed: {e:#}"),
            Err(e) => return Err(e),
        }
    }
    unreachable!("a cycle has no end")
}

/// Two mounts use a file (read, write, truncate, append, holes, mappings, direct) while it is moved `least`
/// times; `deaths`: a server is killed every few seconds; `small`: it has room with its inode most of the
/// time. How often it was moved, and servers were killed.
fn moved_while_used(fs: &TestFs, least: u64, (seed, small): (u64, bool), deaths: bool) -> Result<(u64, u64)> {
    let paths = empty_file(fs, ".", &format!("moved{seed}{small}"))?;
    let (moves, killed, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        let mover = s.spawn(|| keep_moving(&paths[1], &moves, &stop, deaths));
        let killer = s.spawn(|| -> Result<()> {
            let mut rng = Rng::new(seed);
            while deaths && !stop.load(Relaxed) {
                let before = moves.load(Relaxed);
                let _ = wait_until("a move", Duration::from_secs(5), || {
                    stop.load(Relaxed) || moves.load(Relaxed) > before
                });
                let pids = fs.servers()?;
                kill(pids[rng.below(pids.len() as u64) as usize], Signal::KILL)?;
                fs.up_again()?;
                killed.fetch_add(1, Relaxed);
            }
            Ok(())
        });
        let used = || -> Result<()> {
            let mut exerciser = Exerciser::new(paths.clone(), seed, true)?;
            if small {
                exerciser = exerciser.small();
            }
            while moves.load(Relaxed) < least && !mover.is_finished() {
                exerciser.run(40)?;
            }
            Ok(())
        };
        let used = used().with_context(|| format!("seed {seed}, after {} moves", moves.load(Relaxed)));
        stop.store(true, Relaxed);
        let moved = mover.join().expect("the mover");
        killer.join().expect("the killer")?;
        used.and(moved)
    })?;
    Ok((moves.into_inner(), killed.into_inner()))
}

/// A large file and a small one: how often they were moved, and servers were killed.
fn both_kinds(fs: &TestFs, least: u64, seed: u64, deaths: bool) -> Result<(u64, u64)> {
    let seed = tests::env_number("NACRE_SEED").unwrap_or(seed);
    let least = tests::env_number("NACRE_MOVES").unwrap_or(least);
    let mut all = (0, 0);
    for small in [false, true] {
        let (moves, killed) = moved_while_used(fs, least, (seed, small), deaths)?;
        ensure!(moves >= least, "moved {moves} times");
        all = (all.0 + moves, all.1 + killed);
    }
    println!("moved {} times, {} servers killed", all.0, all.1);
    Ok(all)
}

#[test]
fn a_file_in_use_is_the_same_however_often_it_is_moved() -> Result<()> {
    let fs = up("moved", 2)?;
    both_kinds(&fs, 6, 1, false)?;
    fs.fsck()
}

#[test]
fn a_file_in_use_is_the_same_though_servers_die_while_it_is_moved() -> Result<()> {
    let fs = up("mvdie", 2)?;
    let (_, killed) = both_kinds(&fs, 4, 2, true)?;
    ensure!(killed > 0, "nobody died");
    fs.fsck()
}

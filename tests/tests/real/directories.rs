//! Directories with a quota, as an administrator gives them and users meet them.

use crate::limits::{fill, open};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool, wait_until};
use tests::users::as_user;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

fn lfs(args: &[&str], dir: &Path) -> Result<String> {
    ok_within(tool("lfs").args(args).arg(dir), LIMIT)
}

fn open_to_all(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?)
}

/// (inodes, bytes) as they are counted.
fn counted(dir: &Path) -> Result<(u64, u64)> {
    let rows: Value = serde_json::from_str(&lfs(&["quota", "--json", "-d"], dir)?)?;
    let row = &rows[0];
    ensure!(row["complete"] == true, "{row}");
    let number = |key: &str| row[key].as_u64().context("a number");
    Ok((number("inodes")?, number("bytes")?))
}

/// The same as a walk finds it.
fn there(dir: &Path) -> Result<(u64, u64)> {
    let m = fs::symlink_metadata(dir)?;
    let mut sum = (1, m.blocks() * 512);
    if m.is_dir() {
        for e in fs::read_dir(dir)? {
            let below = there(&e?.path())?;
            sum = (sum.0 + below.0, sum.1 + below.1);
        }
    }
    Ok(sum)
}

/// What is counted comes to what a walk finds.
fn agree(dirs: &[&Path]) -> Result<()> {
    rustix::fs::sync();
    for dir in dirs {
        let mut last = String::new();
        let agrees = wait_until("what is counted is there", LIMIT, || {
            let (counted, there) = (counted(dir), there(dir));
            last = format!("{}: {counted:?} are counted, {there:?} are there", dir.display());
            counted.is_ok_and(|c| there.is_ok_and(|t| c == t))
        });
        agrees.with_context(|| last.clone())?;
    }
    Ok(())
}

/// Files and directories of several kinds.
fn plant(dir: &Path, files: usize) -> Result<()> {
    fs::create_dir(dir)?;
    for i in 0..files {
        let len = [50, 5000, 90_000][i % 3];
        fs::write(dir.join(format!("f{i}")), vec![7; len])?;
    }
    std::os::unix::fs::symlink("f0", dir.join("link"))?;
    Ok(())
}

#[test]
fn directories_count_what_lies_below_wherever_it_came_from() -> Result<()> {
    let t = TestFs::up("dirquota", 2, 2)?;
    let (one, other) = (t.mount(0), t.mount(1));
    let (home, anna, ben) = (one.join("home"), one.join("home/anna"), one.join("home/ben"));
    for dir in [&home, &anna, &ben] {
        open_to_all(dir)?;
    }
    plant(&anna.join("tree"), 200)?;
    plant(&anna.join("tree/below"), 30)?;
    for dir in [&home, &anna, &ben] {
        ensure!(lfs(&["setquota", "-d"], dir)?.is_empty(), "it says nothing if all is well");
    }
    agree(&[&home, &anna, &ben])?;
    // By renames on both mounts, of a file and of a tree, and what is made by a mount by itself.
    fs::write(other.join("home/anna/big"), vec![1; 3 << 20])?;
    fs::rename(anna.join("big"), ben.join("big"))?;
    let before = (counted(&anna)?.0, counted(&ben)?.0);
    fs::rename(other.join("home/anna/tree"), other.join("home/ben/tree"))?;
    let moved = 1 + 200 + 1 + 1 + 30 + 1;
    let after = (counted(&anna)?.0, counted(&ben)?.0);
    ensure!(after == (before.0 - moved, before.1 + moved), "{before:?}, {after:?}");
    let linked = fs::hard_link(ben.join("big"), anna.join("big"));
    ensure!(linked.is_err_and(|e| e.kind() == ErrorKind::CrossesDevices), "a link would lie in both");
    agree(&[&home, &anna, &ben])?;

    t.servers()?.into_iter().try_for_each(|pid| kill(pid, Signal::KILL))?;
    t.up_again()?;
    plant(&anna.join("later"), 20)?;
    fs::rename(ben.join("tree"), one.join("tree"))?;
    agree(&[&home, &anna, &ben])?;
    let all = lfs(&["quota", "-a", "-d"], one)?;
    for dir in [&home, &anna, &ben] {
        ensure!(all.contains(dir.to_str().context("a name")?), "{all}");
    }
    // A quota goes, and what it counted stays counted around it.
    lfs(&["setquota", "--delete", "-d"], &anna)?;
    let none = run_within(tool("lfs").args(["quota", "-d"]).arg(&anna), LIMIT)?;
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    ensure!(none.status.code() == Some(61) && said.contains("it lies in"), "{said}");
    agree(&[&home, &ben])?;
    fs::remove_dir_all(&ben)?;
    agree(&[&home])?;
    let verify = ok_within(tool("nacre").args(["quota", "verify"]).arg(one), LIMIT)?;
    ensure!(verify.lines().count() == 3 && !verify.contains("differed"), "{verify}");
    t.fsck()
}

#[test]
fn users_get_no_more_in_a_directory_than_it_may_have() -> Result<()> {
    let t = TestFs::up("dirlimits", 2, 2)?;
    let (one, other) = (t.mount(0), t.mount(1));
    fs::set_permissions(one, fs::Permissions::from_mode(0o777))?;
    let (outer, inner) = (one.join("outer"), one.join("outer/inner"));
    for dir in [&outer, &inner] {
        open_to_all(dir)?;
    }
    lfs(&["setquota", "-I", "20", "-B", "64M", "-d"], &outer)?;
    lfs(&["setquota", "-d"], &inner)?;
    // Inodes: exact, in the inner one and by renames as well.
    let mut made = 0;
    for i in 0..100 {
        let dir = if i % 2 == 0 { &inner } else { &outer };
        match as_user(|| fs::write(dir.join(format!("f{i}")), b"")) {
            Ok(()) => made += 1,
            Err(e) if e.kind() == ErrorKind::QuotaExceeded => break,
            Err(e) => return Err(e.into()),
        }
    }
    ensure!(made == 18, "{made} files in two directories that may be 20 inodes");
    as_user(|| -> Result<()> {
        plant(&one.join("tree"), 50)?;
        fs::write(one.join("file"), b"x")?;
        for name in ["tree", "file"] {
            let moved = fs::rename(one.join(name), inner.join(name));
            ensure!(moved.is_err_and(|e| e.kind() == ErrorKind::QuotaExceeded), "{name} has no room there");
            ensure!(one.join(name).exists() && !inner.join(name).exists(), "it stays");
        }
        Ok(())
    })?;
    lfs(&["setquota", "-I", "0", "-d"], &outer)?;
    as_user(|| fs::rename(one.join("tree"), inner.join("tree")))?;
    agree(&[&outer, &inner])?;

    // Space: what the inner one has counts in the outer one, from both mounts.
    let files = [open(&inner.join("direct"), 0o40000)?, open(&other.join("outer/direct"), 0o40000)?];
    let ends = std::thread::scope(|s| {
        let all: Vec<_> = files.iter().map(|f| s.spawn(move || as_user(|| fill(f, 0, MIB)))).collect();
        all.into_iter().map(|t| t.join().expect("a writer panicked")).collect::<Result<Vec<u64>>>()
    })?;
    agree(&[&outer, &inner])?;
    let all = counted(&outer)?.1;
    eprintln!("direct: {ends:?}, {all} bytes used, {} KiB of the limit", all as i64 / 1024 - (64 << 10));
    ensure!((64 * MIB - 128 * KIB..=64 * MIB + 4 * KIB).contains(&all), "{all} of 64 MiB, {ends:?}");
    // A killed server knows of it; a higher limit helps.
    t.servers()?.into_iter().try_for_each(|pid| kill(pid, Signal::KILL))?;
    t.up_again()?;
    ensure!(as_user(|| fill(&files[0], ends[0], 4 * KIB))? <= ends[0] + 64 * KIB, "it is full");
    lfs(&["setquota", "-B", "65M", "-d"], &outer)?;
    let more = as_user(|| fill(&files[1], ends[1], 4 * KIB))?;
    ensure!(more >= ends[1] + MIB - 64 * KIB, "{more} after {}", ends[1]);
    drop(files);
    t.fsck()
}

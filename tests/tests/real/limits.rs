//! Limits as an administrator sets them and users meet them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool};
use tests::users::{USER, as_user};

const LIMIT: Duration = Duration::from_secs(60);

fn lfs(args: &[&str]) -> Result<String> {
    ok_within(tool("lfs").args(args), LIMIT)
}

/// It fails with this status and these words.
fn fails(args: &[&str], code: i32, part: &str) -> Result<()> {
    let o = run_within(tool("lfs").args(args), LIMIT)?;
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    ensure!(o.status.code() == Some(code) && said.contains(part), "{args:?}: {}: {said}", o.status);
    Ok(())
}

/// Files that the user can make until he may have no more.
fn make_all(dir: &Path, prefix: &str) -> Result<usize> {
    for i in 0..10_000 {
        let path = dir.join(format!("{prefix}{i}"));
        match as_user(|| fs::write(&path, b"some words")) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::QuotaExceeded => return Ok(i),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        }
    }
    anyhow::bail!("no limit after 10,000 files")
}

fn limits(m: &str) -> Result<Value> {
    let text = lfs(&["quota", "--json", "-u", &USER.to_string(), m])?;
    let rows: Value = serde_json::from_str(&text)?;
    Ok(rows[0].clone())
}

#[test]
fn users_get_what_they_may_have_and_edquot() -> Result<()> {
    let t = TestFs::up("limits", 1, 1)?;
    let mount = t.mount(0);
    let (m, user) = (mount.to_str().context("a name")?, USER.to_string());
    fs::set_permissions(mount, fs::Permissions::from_mode(0o777))?;
    let dir = mount.join("his");
    as_user(|| fs::create_dir(&dir))?;
    ensure!(lfs(&["quota", "-t", "-u", m])? == "Block grace time: 1w; Inode grace time: 1w\n");

    // Far away: as without one.
    lfs(&["setquota", "-u", &user, "-i", "900000", "-I", "1000000", m])?;
    for i in 0..99 {
        as_user(|| fs::write(dir.join(format!("far{i}")), b"x"))?;
    }
    lfs(&["setquota", "-u", &user, "-i", "110", "-I", "120", m])?;
    ensure!(make_all(&dir, "near")? == 20, "99 files and the directory were there");
    let shown = lfs(&["quota", "-u", &user, m])?;
    ensure!(shown.contains("120*     110     120 "), "{shown}");
    let inodes = limits(m)?["limits"]["inodes"].clone();
    let left = inodes["grace_left_s"].as_u64().context("a grace time")?;
    ensure!(inodes["soft"] == 110 && (600_000..=604_800).contains(&left), "{inodes}");
    as_user(|| fs::remove_file(dir.join("far0")))?;
    ensure!(make_all(&dir, "freed")? == 1);

    // A killed server knows of it.
    t.servers()?.into_iter().try_for_each(|pid| kill(pid, Signal::KILL))?;
    t.up_again()?;
    ensure!(make_all(&dir, "after")? == 0);
    lfs(&["setquota", "-t", "-u", "-i", "0", m])?;
    for i in 0..9 {
        as_user(|| fs::remove_file(dir.join(format!("near{i}"))))?;
    }
    let shown = lfs(&["quota", "-u", &user, m])?;
    ensure!(shown.contains("expired"), "{shown}");
    ensure!(make_all(&dir, "late")? == 0, "111 are more than 110, whose time is over");
    lfs(&["setquota", "-t", "-u", "-i", "notify", m])?;
    ensure!(make_all(&dir, "notified")? == 9);

    // Root gives what it likes; who has no limits of his own has the default ones.
    fs::write(dir.join("root's"), b"")?;
    lfs(&["setquota", "-U", "-I", "5", m])?;
    lfs(&["setquota", "--delete", "-u", &user, m])?;
    ensure!(lfs(&["quota", "-U", m])?.contains("       5"));
    ensure!(make_all(&dir, "default")? == 0);
    let enabled = |v: &str| {
        ok_within(tool("lctl").args(["set_param", &format!("osd-*.*MDT*.quota_slave.enabled={v}")]), LIMIT)
    };
    enabled("gp")?;
    as_user(|| fs::write(dir.join("free"), b""))?;
    enabled("ugp")?;
    ensure!(make_all(&dir, "enforced")? == 0);

    fails(&["setquota", "-u", "root", "-I", "5", m], 22, "root")?;
    fails(&["setquota", "-u", "nobody-of-that-name", "-I", "5", m], 2, "unknown user")?;
    let as_him = as_user(|| run_within(tool("lfs").args(["setquota", "-u", &user, "-I", "0", m]), LIMIT))?;
    ensure!(as_him.status.code() == Some(1), "{as_him:?}");
    t.fsck()
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes for O_DIRECT: where a page begins.
#[repr(align(4096))]
struct Pages([u8; MIB as usize]);

/// Writes steps of so many bytes from `off` on until no byte more may be written; the step is halved down to
/// 4 KiB. Returns where it ended.
fn fill(file: &File, mut off: u64, mut step: u64) -> Result<u64> {
    let pages = Box::new(Pages([7; MIB as usize]));
    ensure!(step <= MIB, "a step is one write");
    loop {
        match file.write_at(&pages.0[..step as usize], off) {
            Ok(n) => off += n as u64,
            Err(e) if e.kind() == ErrorKind::QuotaExceeded && step > 4 * KIB => step /= 2,
            Err(e) if e.kind() == ErrorKind::QuotaExceeded => return Ok(off),
            Err(e) => return Err(e).with_context(|| format!("at {off}")),
        }
        ensure!(off < 64 << 30, "no limit");
    }
}

fn open(path: &Path, flags: i32) -> Result<File> {
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(false).custom_flags(flags);
    as_user(|| how.open(path)).with_context(|| path.display().to_string())
}

/// Bytes that the user has, as `lfs quota` shows them when nothing changes any more.
fn used(m: &str) -> Result<u64> {
    rustix::fs::sync();
    let start = std::time::Instant::now();
    let shown = || -> Result<u64> { limits(m)?["bytes"].as_u64().context("bytes") };
    let (mut was, mut since) = (shown()?, std::time::Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        ensure!(start.elapsed() < LIMIT, "usage changes although nobody writes");
        std::thread::sleep(Duration::from_millis(100));
        let now = shown()?;
        if now != was {
            (was, since) = (now, std::time::Instant::now());
        }
    }
    Ok(was)
}

/// All of them write at once, as the user.
fn fill_all(files: &[File], step: u64) -> Result<Vec<u64>> {
    std::thread::scope(|s| {
        let all: Vec<_> = files.iter().map(|f| s.spawn(move || as_user(|| fill(f, 0, step)))).collect();
        all.into_iter().map(|t| t.join().expect("a writer panicked")).collect()
    })
}

#[test]
fn four_writers_on_two_mounts_stop_at_a_limit_on_space() -> Result<()> {
    let t = TestFs::up("space-limits", 3, 2)?;
    let (m, user) = (t.mount(0).to_str().context("a name")?, USER.to_string());
    fs::set_permissions(t.mount(0), fs::Permissions::from_mode(0o777))?;
    let path = |i: usize, name: &str| t.mount(i % 2).join(format!("{name}{i}"));
    let wide = path(3, "kept");
    as_user(|| lfs(&["setstripe", "-c", "3", wide.to_str().context("a name")?]))?;

    lfs(&["setquota", "-u", &user, "-b", "0", "-B", "1G", m])?;
    let kept: Vec<File> = (0..4).map(|i| open(&path(i, "kept"), 0)).collect::<Result<_>>()?;
    let ends = fill_all(&kept, MIB)?;
    let all = used(m)?;
    eprintln!("kept: {ends:?}, {all} bytes used, {} KiB of the limit", all as i64 / 1024 - (1 << 20));
    ensure!((1016 * MIB..=1025 * MIB).contains(&all), "{all} bytes of 1 GiB, files end at {ends:?}");
    kept.iter().try_for_each(|f| f.sync_all()).context("what was accepted is written")?;
    let shown = lfs(&["quota", "-u", &user, m])?;
    ensure!(shown.contains(" 1048576 "), "{shown}");
    fs::write(t.mount(0).join("root's"), vec![1; 4 << 20])?;

    // Killed servers know of it; freeing some on one mount lets the other one write.
    t.servers()?.into_iter().try_for_each(|pid| kill(pid, Signal::KILL))?;
    t.up_again()?;
    ensure!(fill_all(&kept[..1], 64 * KIB)?[0] <= ends[0] + 8 * MIB);
    drop(kept);
    for i in 0..4 {
        fs::remove_file(path(i, "kept"))?;
    }

    // Around the caches, to the block.
    lfs(&["setquota", "-u", &user, "-B", "256M", m])?;
    let direct: Vec<File> = (0..4).map(|i| open(&path(i, "direct"), 0o40000)).collect::<Result<_>>()?;
    let ends = fill_all(&direct, MIB)?;
    let all = used(m)?;
    eprintln!("direct: {ends:?}, {all} bytes used, {} KiB of the limit", all as i64 / 1024 - (256 << 10));
    ensure!((256 * MIB - 64 * KIB..=256 * MIB + 4 * KIB).contains(&all), "{all} of 256 MiB, {ends:?}");
    lfs(&["setquota", "-u", &user, "-B", "257M", m])?;
    let more = as_user(|| fill(&direct[0], ends[0], 4 * KIB))?;
    ensure!(more >= ends[0] + MIB - 64 * KIB, "{more} after {}", ends[0]);
    drop(direct);
    t.fsck()
}

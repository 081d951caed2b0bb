//! Limits as an administrator sets them and users meet them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool, wait_until};
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
pub fn fill(file: &File, mut off: u64, mut step: u64) -> Result<u64> {
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

pub fn open(path: &Path, flags: i32) -> Result<File> {
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

/// Of the user on the OSTs of a pool, as `lfs quota --pool` shows it.
fn in_pool(m: &str, pool: &str) -> Result<Value> {
    let text = lfs(&["quota", "--json", "-u", &USER.to_string(), "--pool", pool, m])?;
    let rows: Value = serde_json::from_str(&text)?;
    Ok(rows[0].clone())
}

#[test]
fn the_smallest_limit_of_pool_and_file_system_holds() -> Result<()> {
    let t = TestFs::up("pool-limits", 3, 2)?;
    let (m, user, f) = (t.mount(0).to_str().context("a name")?, USER.to_string(), t.fsname());
    fs::set_permissions(t.mount(0), fs::Permissions::from_mode(0o777))?;
    let lctl = |args: &[&str]| ok_within(tool("lctl").args(args), LIMIT);
    lctl(&["pool_new", &format!("{f}.flash")])?;
    lctl(&["pool_add", &format!("{f}.flash"), "OST0000"])?;
    fails(&["setquota", "-u", &user, "--pool", "none-such", "-B", "5M", m], 2, "no such pool")?;
    fails(&["setquota", "-u", &user, "--pool", "other.flash", "-B", "5M", m], 22, "not of 'other'")?;
    let pool = format!("{f}.flash");
    lfs(&["setquota", "-u", &user, "--pool", &pool, "-b", "0", "-B", "64M", m])?;

    // Only the pool limits him: elsewhere he writes what he likes.
    let on = |mount: usize, name: &str, layout: &[&str]| -> Result<File> {
        let path = t.mount(mount).join(name);
        let text = path.to_str().context("a name")?;
        as_user(|| lfs(&[&["setstripe"], layout, &[text]].concat()))?;
        open(&path, 0o40000)
    };
    let (one, two) = (on(0, "one", &["-p", "flash"])?, on(1, "two", &["-o", "0"])?);
    let elsewhere = on(0, "elsewhere", &["-o", "1,2", "-c", "2"])?;
    as_user(|| elsewhere.write_all_at(&vec![7; 100 << 20], 0))?;
    let ends = fill_all(&[one, two], MIB)?;
    used(m)?;
    let shown = in_pool(m, "flash")?;
    let all = shown["bytes"].as_u64().context("bytes")?;
    // The host may need a block more for each file, in which it notes where the others lie.
    ensure!((64 * MIB - 64 * KIB..=64 * MIB + 8 * KIB).contains(&all), "{all} of 64 MiB: {ends:?}");
    ensure!(shown["limits"]["bytes"]["hard"] == 64 << 20, "{shown}");
    ensure!(shown["targets"].as_array().is_some_and(|t| t.len() == 1), "{shown}");
    let text = lfs(&["quota", "-u", &user, "--pool", "flash", m])?;
    ensure!(text.contains("Quotas for pool: flash\n") && text.contains(" 65536 "), "{text}");
    ensure!(lfs(&["quota", "-a", "-u", "--pool", "flash", m])?.contains("65536"), "one line of all");

    // The limit of the file system is the smaller one now; killed servers know of both.
    t.servers()?.into_iter().try_for_each(|pid| kill(pid, Signal::KILL))?;
    t.up_again()?;
    let one = open(&t.mount(0).join("one"), 0o40000)?;
    // What two writers at once had left over, and no more.
    let end = as_user(|| fill(&one, ends[0], 4 * KIB))?;
    ensure!(end <= ends[0] + 64 * KIB, "a killed server knows the limit: {end} after {}", ends[0]);
    used(m)?;
    let all = in_pool(m, "flash")?["bytes"].as_u64().context("bytes")?;
    ensure!(all <= 64 * MIB + 8 * KIB, "{all} of 64 MiB after a restart");
    drop(one);
    lfs(&["setquota", "-u", &user, "-B", "200M", m])?;
    fs::remove_file(t.mount(0).join("two"))?;
    let more = as_user(|| fill(&elsewhere, 100 << 20, 64 * KIB))?;
    let all = used(m)?;
    ensure!((200 * MIB - 64 * KIB..=200 * MIB + 4 * KIB).contains(&all), "{all} of 200 MiB, {more}");
    lfs(&["setquota", "-u", &user, "-B", "0", m])?;

    // Whoever comes to be in the pool counts.
    lctl(&["pool_add", &pool, "OST0001"])?;
    // Where nothing is yet: what has its blocks needs no room. One of its two OSTs is in the pool.
    let mut at = more;
    let is_over = || {
        let shown = in_pool(m, "flash").unwrap_or_default();
        let refused = (0..2).any(|_| {
            at += 4 * MIB;
            as_user(|| elsewhere.write_at(&[7; 4096], at)).is_err()
        });
        shown["targets"].as_array().is_some_and(|t| t.len() == 2) && refused
    };
    wait_until("an OST that comes to be in the pool counts", Duration::from_secs(20), is_over)?;
    lfs(&["setquota", "--delete", "-u", &user, "--pool", "flash", m])?;
    as_user(|| elsewhere.write_all_at(&vec![7; 8 << 20], more))?;
    drop(elsewhere);
    t.fsck()
}

/// Of the user, around the caches.
fn direct_file(path: &Path, mib: u64) -> Result<()> {
    let f = open(path, 0o40000)?;
    let pages = Box::new(Pages([7; MIB as usize]));
    as_user(|| (0..mib).try_for_each(|n| f.write_all_at(&pages.0, n * MIB)))?;
    Ok(())
}

fn bytes_below(dir: &str) -> Result<u64> {
    let rows: Value = serde_json::from_str(&lfs(&["quota", "--json", "-d", dir])?)?;
    rows[0]["bytes"].as_u64().context("bytes")
}

#[test]
fn files_that_come_to_somebody_need_room_in_what_he_may_have() -> Result<()> {
    let t = TestFs::up("arrivals", 2, 1)?;
    let m = t.mount(0);
    let (mount, limited) = (m.to_str().context("a name")?, m.join("limited"));
    fs::set_permissions(m, fs::Permissions::from_mode(0o777))?;
    as_user(|| fs::create_dir(&limited))?;
    let dir = limited.to_str().context("a name")?;
    lfs(&["setquota", "-d", dir, "-B", "20M"])?;
    let refused = |r: std::io::Result<()>| r.is_err_and(|e| e.kind() == ErrorKind::QuotaExceeded);
    let outside = |name: &str| m.join(name);

    direct_file(&outside("large"), 30)?;
    ensure!(refused(as_user(|| fs::rename(outside("large"), limited.join("large")))), "30 MiB into 20");
    ensure!(outside("large").exists(), "it is where it was");
    for n in 0..3 {
        direct_file(&outside(&format!("f{n}")), 8)?;
    }
    let moved = |n: u32| {
        let name = format!("f{n}");
        as_user(|| fs::rename(outside(&name), limited.join(&name)))
    };
    // One behind the other: object servers have not heard of the first ones yet.
    moved(0)?;
    moved(1)?;
    ensure!(refused(moved(2)), "the third 8 MiB into 20");

    // A tree goes as a whole, or not at all.
    let tree = outside("tree");
    as_user(|| fs::create_dir_all(tree.join("below")))?;
    for n in 0..5 {
        direct_file(&tree.join("below").join(n.to_string()), 1)?;
    }
    ensure!(refused(as_user(|| fs::rename(&tree, limited.join("tree")))), "5 MiB where 4 are left");
    fs::remove_file(tree.join("below/0"))?;
    fs::remove_file(tree.join("below/1"))?;
    as_user(|| fs::rename(&tree, limited.join("tree")))?;
    // One with a quota of its own brings along what it has.
    let inner = outside("inner");
    as_user(|| fs::create_dir(&inner))?;
    direct_file(&inner.join("f"), 8)?;
    lfs(&["setquota", "-d", inner.to_str().context("a name")?])?;
    ensure!(refused(as_user(|| fs::rename(&inner, limited.join("inner")))), "8 MiB where 1 is left");
    wait_until("what was moved is counted", Duration::from_secs(20), || {
        bytes_below(dir).is_ok_and(|n| n >= 19 * MIB)
    })?;
    ensure!(bytes_below(dir)? <= 20 * MIB, "{}", bytes_below(dir)?);

    // A project, which users may choose here.
    ok_within(tool("lctl").args(["set_param", "mdt.*.enable_chprojid_gid=-1"]), LIMIT)?;
    lfs(&["setquota", "-p", "77", "-B", "10M", mount])?;
    let to_project = |name: &str| {
        let path = outside(name);
        as_user(|| run_within(tool("lfs").args(["project", "-p", "77"]).arg(path), LIMIT))
    };
    direct_file(&outside("more"), 8)?;
    ensure!(to_project("f2")?.status.success());
    let second = to_project("more")?;
    ensure!(second.status.code() == Some(122), "{second:?}");
    lfs(&["setquota", "-p", "77", "-B", "17M", mount])?;
    ensure!(to_project("more")?.status.success());
    t.fsck()
}

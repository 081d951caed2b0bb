//! Names and attributes on two mounts: what one changes the other never shows as it was.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tests::cluster::{TestFs, ok_within, tool};
use tests::rng::Rng;

/// Rounds of each test; `NACRE_COHERENCE_ROUNDS` runs more.
fn rounds() -> usize {
    tests::env_number("NACRE_COHERENCE_ROUNDS").unwrap_or(8) as usize
}

fn names_in(dir: &Path) -> Result<BTreeSet<OsString>> {
    fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect()
}

#[test]
fn attributes_changed_on_one_mount_are_seen_on_the_other() -> Result<()> {
    let fs = TestFs::up("cattr", 2, 2)?;
    let (a, b) = (fs.mount(0), fs.mount(1));
    for r in 0..rounds() {
        for (kind, make) in [("dir", true), ("file", false)] {
            let name = format!("{kind}{r}");
            let (x, y) = (a.join(&name), b.join(&name));
            if make {
                fs::create_dir(&x)?
            } else {
                fs::write(&x, b"1234")?
            }
            for i in 0..20u32 {
                let (by, seen) = if i % 2 == 0 { (&x, &y) } else { (&y, &x) };
                // Both look, so that both have something to lose.
                ensure!(fs::metadata(&x)?.mode() == fs::metadata(&y)?.mode(), "{name} before change {i}");
                let mode = 0o700 | (i % 64);
                fs::set_permissions(by, fs::Permissions::from_mode(mode))?;
                let got = fs::metadata(seen)?.mode() & 0o777;
                ensure!(got == mode, "{name}: mode {mode:o} set, {got:o} seen on the other mount");
            }
            std::os::unix::fs::chown(&y, Some(7), Some(8))?;
            let m = fs::metadata(&x)?;
            ensure!((m.uid(), m.gid()) == (7, 8), "owner of {name}");
        }
        let (x, y) = (a.join(format!("file{r}")), b.join(format!("file{r}")));
        for n in [10u64, 70_000, 3] {
            File::options().write(true).open(&x)?.set_len(n)?;
            ensure!(fs::metadata(&y)?.len() == n, "size {n} set on the other mount");
        }
        fs::hard_link(&x, a.join(format!("link{r}")))?;
        ensure!(fs::metadata(&y)?.nlink() == 2, "a link made on the other mount");
        fs::remove_file(b.join(format!("link{r}")))?;
        ensure!(fs::metadata(&x)?.nlink() == 1, "a link removed on the other mount");
        // An ACL, and an attribute of the user.
        ensure!(xattr(&y, "user.k")?.is_none());
        ok_within(std::process::Command::new("setfattr").args(["-n", "user.k", "-v", "v"]).arg(&x), MINUTE)?;
        ensure!(xattr(&y, "user.k")?.is_some(), "an attribute set on the other mount");
    }
    fs.fsck()
}

const MINUTE: Duration = Duration::from_secs(60);

fn xattr(path: &Path, name: &str) -> Result<Option<String>> {
    let out = tests::cluster::run_within(
        std::process::Command::new("getfattr").args(["--only-values", "-n", name]).arg(path),
        MINUTE,
    )?;
    Ok(out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned()))
}

#[test]
fn names_that_are_not_there_are_seen_when_they_come() -> Result<()> {
    let fs = TestFs::up("cneg", 2, 2)?;
    let (a, b) = (fs.mount(0), fs.mount(1));
    for r in 0..rounds() * 10 {
        let d = format!("d{r}");
        fs::create_dir(a.join(&d))?;
        for i in 0..6 {
            let name = format!("{d}/n{i}");
            for m in [a, b] {
                ensure!(!m.join(&name).exists(), "{name} before it was made");
            }
            let (by, other) = if i % 2 == 0 { (a, b) } else { (b, a) };
            match i % 3 {
                0 => drop(File::create_new(by.join(&name))?),
                1 => fs::create_dir(by.join(&name))?,
                _ => symlink("target", by.join(&name))?,
            }
            ensure!(fs::symlink_metadata(other.join(&name)).is_ok(), "{name} on the other mount");
        }
        ensure!(fs::read_link(b.join(format!("{d}/n2")))? == Path::new("target"));
        let (from, to) = (format!("{d}/n0"), format!("{d}/m0"));
        fs::rename(b.join(&from), b.join(&to))?;
        ensure!(!a.join(&from).exists() && a.join(&to).exists(), "{from} was renamed on the other mount");
        fs::rename(a.join(&to), a.join(format!("r{r}")))?;
        ensure!(!b.join(&to).exists() && b.join(format!("r{r}")).exists(), "{to} was moved");
        fs::remove_dir_all(b.join(&d))?;
        ensure!(!a.join(&d).exists(), "{d} was removed on the other mount");
    }
    fs.fsck()
}

/// One of many wins, whatever mount it is on.
#[test]
fn exclusive_creates_and_mkdirs_have_one_winner() -> Result<()> {
    let fs = TestFs::up("cexcl", 2, 2)?;
    for r in 0..rounds() * 20 {
        let wins = AtomicUsize::new(0);
        let dir = r % 2 == 0;
        std::thread::scope(|s| -> Result<()> {
            let mut all = Vec::new();
            for i in 0..4 {
                let path = fs.mount(i % 2).join(format!("x{r}"));
                let wins = &wins;
                all.push(s.spawn(move || -> Result<()> {
                    // It was just looked up as absent.
                    let _ = fs::symlink_metadata(&path);
                    let made = if dir { fs::create_dir(&path) } else { File::create_new(&path).map(drop) };
                    match made {
                        Ok(()) => drop(wins.fetch_add(1, Ordering::SeqCst)),
                        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                        Err(e) => bail!("{}: {e}", path.display()),
                    }
                    ensure!(fs::symlink_metadata(&path).is_ok(), "{} after it was made", path.display());
                    Ok(())
                }));
            }
            all.into_iter().try_for_each(|t| t.join().expect("no panic"))
        })?;
        ensure!(wins.into_inner() == 1, "round {r}: one of four makes the name");
    }
    fs.fsck()
}

#[test]
fn an_open_file_outlives_its_name_on_the_other_mount() -> Result<()> {
    let fs = TestFs::up("corph", 2, 2)?;
    let (a, b) = (fs.mount(0), fs.mount(1));
    for r in 0..rounds() * 5 {
        let name = format!("f{r}");
        fs::write(a.join(&name), format!("content {r}"))?;
        let mut open = File::open(b.join(&name))?;
        ensure!(open.metadata()?.nlink() == 1);
        fs::remove_file(a.join(&name))?;
        ensure!(!b.join(&name).exists(), "{name} has no name any more");
        ensure!(open.metadata()?.nlink() == 0, "{name}, open");
        let mut text = String::new();
        open.read_to_string(&mut text)?;
        ensure!(text == format!("content {r}"), "{name} holds '{text}'");
    }
    fs.fsck()
}

/// A large directory is listed on one mount while the other makes and removes names in it: names that are
/// there all the time are shown once each.
#[test]
fn a_large_directory_changes_while_it_is_listed() -> Result<()> {
    let fs = TestFs::up("cbig", 2, 2)?;
    let (a, b) = (fs.mount(0).join("d"), fs.mount(1).join("d"));
    fs::create_dir(&a)?;
    let steady = tests::env_number("NACRE_COHERENCE_FILES").unwrap_or(3000) as usize;
    for i in 0..steady {
        File::create_new(a.join(format!("steady{i}")))?;
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|s| -> Result<()> {
        let noise = s.spawn(|| -> Result<()> {
            let mut rng = Rng::new(1);
            while !over.load(Ordering::SeqCst) {
                let path = b.join(format!("noise{}", rng.below(500)));
                match File::create_new(&path) {
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => fs::remove_file(&path)?,
                    Err(e) => bail!("{}: {e}", path.display()),
                }
            }
            Ok(())
        });
        let listed = (0..rounds()).try_for_each(|r| -> Result<()> {
            for dir in [&a, &b] {
                let mut seen = BTreeSet::new();
                for e in fs::read_dir(dir)? {
                    let name = e?.file_name();
                    if name.to_string_lossy().starts_with("steady") {
                        ensure!(seen.insert(name.clone()), "round {r}: {name:?} is listed twice");
                    }
                }
                ensure!(
                    seen.len() == steady,
                    "round {r}: {} of {steady} steady names are listed",
                    seen.len()
                );
            }
            Ok(())
        });
        over.store(true, Ordering::SeqCst);
        noise.join().expect("no panic")?;
        listed
    })?;
    ensure!(names_in(&a)? == names_in(&b)?, "both mounts list the same in the end");
    // The other mount removes it all: nothing is left to be seen here.
    fs::remove_dir_all(&b)?;
    ensure!(!a.exists());
    fs.fsck()
}

/// Each mount makes, lists and removes in both directories, at the same time: nobody waits for ever, and what
/// a call that returned has made is seen by every call after it.
#[test]
fn two_mounts_create_and_list_crosswise() -> Result<()> {
    let fs = TestFs::up("cross", 2, 2)?;
    for d in ["one", "two"] {
        fs::create_dir(fs.mount(0).join(d))?;
    }
    std::thread::scope(|s| -> Result<()> {
        let mut all = Vec::new();
        for t in 0..4usize {
            let (make, list) = (fs.mount(t % 2), fs.mount((t + 1) % 2));
            let (mine, other) = if t < 2 { ("one", "two") } else { ("two", "one") };
            all.push(s.spawn(move || -> Result<()> {
                for r in 0..rounds() * 20 {
                    let name = format!("t{t}r{r}");
                    File::create_new(make.join(mine).join(&name)).context(name.clone())?;
                    let seen = names_in(&list.join(mine))?;
                    ensure!(seen.contains(&OsString::from(&name)), "{name} is not listed on the other mount");
                    ensure!(list.join(mine).join(&name).exists(), "{name} is not found on the other mount");
                    names_in(&make.join(other))?;
                    fs::rename(make.join(mine).join(&name), make.join(other).join(&name))?;
                    ensure!(!list.join(mine).join(&name).exists(), "{name} was moved away");
                    ensure!(list.join(other).join(&name).exists(), "{name} was moved here");
                    fs::remove_file(list.join(other).join(&name))?;
                    ensure!(!make.join(other).join(&name).exists(), "{name} was removed");
                }
                Ok(())
            }));
        }
        all.into_iter().try_for_each(|t| t.join().expect("no panic"))
    })?;
    for m in fs.mounts() {
        for d in ["one", "two"] {
            ensure!(names_in(&m.join(d))?.is_empty(), "{d} is empty in the end");
        }
    }
    fs.fsck()
}

/// What is kept answers without the server, and goes back when it is told to.
#[test]
fn what_is_kept_is_counted_and_can_be_dropped() -> Result<()> {
    let fs = TestFs::up("ckeep", 2, 2)?;
    let a = fs.mount(0);
    fs::create_dir(a.join("d"))?;
    for i in 0..50 {
        fs::create_dir(a.join(format!("d/s{i}")))?;
    }
    let count = |what: &str| -> Result<u64> {
        let out = ok_within(tool("lctl").args(["get_param", "-n", what]), MINUTE)?;
        Ok(out.lines().filter_map(|l| l.trim().parse::<u64>().ok()).max().unwrap_or(0))
    };
    ensure!(count("ldlm.namespaces.*.lock_count")? >= 50, "leases on what was made");
    ok_within(tool("lctl").args(["set_param", "ldlm.namespaces.*.lru_size=clear"]), MINUTE)?;
    ensure!(count("ldlm.namespaces.*.lock_count")? < 10, "leases after they were given back");
    for m in fs.mounts() {
        ensure!(names_in(&m.join("d"))?.len() == 50);
        ensure!(fs::metadata(m.join("d/s7"))?.is_dir());
    }
    fs.fsck()
}

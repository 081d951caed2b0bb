//! What owners use, as servers count it, is what a walk finds, also after servers were killed.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tests::cluster::{TestFs, kill, ok_within, run_within, tool, wait_until};
use tests::rng::Rng;

const LIMIT: Duration = Duration::from_secs(60);
const USERS: std::ops::Range<u32> = 4001..4004;

/// Servers that are killed: 6 in `make test`; `NACRE_KILL_ROUNDS` kills more.
fn rounds() -> u64 {
    tests::env_number("NACRE_KILL_ROUNDS").unwrap_or(6)
}

/// (inodes, blocks) by user and by group.
type Sums = BTreeMap<(char, u32), (u64, u64)>;

fn walk(dir: &Path, sums: &mut Sums) -> Result<()> {
    let add = |m: &fs::Metadata, sums: &mut Sums| {
        for owner in [('u', m.uid()), ('g', m.gid())] {
            let s = sums.entry(owner).or_default();
            *s = (s.0 + 1, s.1 + m.blocks());
        }
    };
    add(&fs::symlink_metadata(dir)?, sums);
    for e in fs::read_dir(dir)? {
        let e = e?;
        if e.file_type()?.is_dir() { walk(&e.path(), sums)? } else { add(&e.metadata()?, sums) }
    }
    Ok(())
}

fn counted(m: &Path) -> Result<Sums> {
    let mut sums = Sums::new();
    for letter in ['u', 'g'] {
        let flag = format!("-{letter}");
        let text = ok_within(tool("lfs").args(["quota", "-a", &flag, "--json"]).arg(m), LIMIT)?;
        let all: Value = serde_json::from_str(&text)?;
        for row in all.as_array().context("a list")? {
            ensure!(row["complete"] == true, "{text}");
            let number = |key: &str| row[key].as_u64().context("a number");
            let id = u32::try_from(number("id")?)?;
            sums.insert((letter, id), (number("inodes")?, number("bytes")? / 512));
        }
    }
    Ok(sums)
}

/// What one process does to files of all users below its folder, until it is told to stop.
fn work(dir: &Path, seed: u64, stop: &AtomicBool, done: &AtomicU64) -> Result<()> {
    let mut rng = Rng::new(seed);
    fs::create_dir(dir)?;
    while !stop.load(Ordering::Relaxed) {
        let path = dir.join(format!("f{}", rng.below(60)));
        let uid = USERS.start + rng.below(3) as u32;
        let said = || format!("{}", path.display());
        match rng.below(8) {
            0 => drop(fs::remove_file(&path)),
            1 if path.exists() => {
                let f = fs::File::options().write(true).open(&path).with_context(said)?;
                f.set_len(rng.below(400_000)).with_context(said)?;
            }
            2 if path.exists() => std::os::unix::fs::chown(&path, Some(uid), Some(uid)).with_context(said)?,
            _ => {
                let f = fs::File::options().create(true).truncate(false).write(true).open(&path);
                let f = f.with_context(said)?;
                let len = [50, 3000, 50_000, 300_000][rng.below(4) as usize];
                f.write_all_at(&vec![7; len], rng.below(200_000)).with_context(said)?;
                std::os::unix::fs::fchown(&f, Some(uid), Some(uid)).with_context(said)?;
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// `nacre top users` shows the users of a walk, who has most blocks first.
fn heaviest_first(m: &Path, walked: &Sums) -> Result<()> {
    let text = ok_within(tool("nacre").args(["top", "users", "--json"]).arg(m), LIMIT)?;
    let said: Value = serde_json::from_str(&text)?;
    let owners = said["file_systems"][0]["owners"].as_array().context("owners")?;
    let blocks: Vec<(u32, u64)> = owners
        .iter()
        .map(|o| Some((u32::try_from(o["id"].as_u64()?).ok()?, o["bytes"].as_u64()? / 512)))
        .collect::<Option<_>>()
        .context("ids and bytes")?;
    ensure!(blocks.is_sorted_by(|a, b| a.1 >= b.1), "{text}");
    let mut users: Vec<(u32, u64)> = walked
        .iter()
        .filter(|((of, _), _)| *of == 'u')
        .map(|((_, id), (_, blocks))| (*id, *blocks))
        .collect();
    let mut shown = blocks;
    users.sort_unstable();
    shown.sort_unstable();
    ensure!(users == shown, "a walk finds {users:?}, shown are {shown:?}");
    Ok(())
}

#[test]
fn after_servers_were_killed_usage_is_what_a_walk_finds() -> Result<()> {
    let fs = TestFs::up("usage", 3, 2)?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| -> Result<()> {
        let workers: Vec<_> = (0..3)
            .map(|n: usize| {
                let dir = fs.mount(n % 2).join(format!("d{n}"));
                let (stop, done) = (&stop, &done);
                s.spawn(move || work(&dir, 77 + n as u64, stop, done))
            })
            .collect();
        let mut rng = Rng::new(5);
        let killed = (0..rounds()).try_for_each(|n| {
            let pids = fs.servers()?;
            kill(pids[rng.below(pids.len() as u64) as usize], Signal::KILL)?;
            fs.up_again()?;
            let before = done.load(Ordering::Relaxed);
            wait_until(&format!("round {n}: the work goes on"), LIMIT, || {
                done.load(Ordering::Relaxed) > before + 40 || workers.iter().any(|w| w.is_finished())
            })
        });
        stop.store(true, Ordering::Relaxed);
        for w in workers {
            w.join().expect("a worker")?;
        }
        killed
    })?;
    ok_within(tool("lfs").arg("sync").arg(fs.mount(0)).arg(fs.mount(1)), LIMIT)?;
    // A mount shows the blocks of a file that it keeps as they were after its last write: disks allocate
    // later.
    fs.down()?;
    fs.up_again()?;
    let mut sums = [Sums::new(), Sums::new()];
    wait_until("both are the same", LIMIT, || {
        let mut walked = Sums::new();
        let Ok(said) = walk(fs.mount(0), &mut walked).and_then(|()| counted(fs.mount(0))) else {
            return false;
        };
        sums = [walked, said];
        sums[0] == sums[1]
    })
    .with_context(|| format!("a walk finds {:?}, servers say {:?}", sums[0], sums[1]))?;
    ensure!(sums[0].len() >= 7, "root and three users have something: {sums:?}");
    println!("{} operations, {} servers killed", done.load(Ordering::Relaxed), rounds());
    heaviest_first(fs.mount(1), &sums[0])?;
    let verified = run_within(tool("nacre").args(["quota", "verify"]).arg(fs.mount(1)), LIMIT)?;
    let text = String::from_utf8_lossy(&verified.stdout);
    ensure!(verified.status.success() && text.lines().count() == 4, "{text}");
    fs.fsck()
}

#[test]
fn users_ask_about_themselves_in_the_usual_shape() -> Result<()> {
    let fs = TestFs::up("quota", 2, 1)?;
    let m = fs.mount(0);
    let file = m.join("f");
    fs::write(&file, vec![1; 1 << 20])?;
    std::os::unix::fs::chown(&file, Some(4001), Some(4002))?;
    ok_within(tool("lfs").arg("sync").arg(m), LIMIT)?;
    let quota = |args: &[&str]| tool("lfs").arg("quota").args(args).arg(m).output();
    let columns = "      Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace";
    wait_until("a MiB is counted", LIMIT, || {
        let out = quota(&["-u", "4001"]).expect("it runs");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines.first() == Some(&"Disk quotas for usr 4001 (uid 4001):")
            && lines.get(1) == Some(&columns)
            && text.split_whitespace().any(|w| w == "1024")
    })?;
    let as_user = |uid: &str, args: &[&str]| {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_string()];
        let mut c = std::process::Command::new("setpriv");
        c.args(ids).arg(tests::cluster::bin_dir().join("lfs")).arg("quota").args(args).arg(m);
        run_within(&mut c, LIMIT)
    };
    let own = as_user("4001", &[])?;
    let text = String::from_utf8_lossy(&own.stdout);
    ensure!(own.status.success() && text.contains("usr 4001") && text.contains("grp 4001"), "{text}");
    let other = as_user("4003", &["-u", "4001"])?;
    ensure!(other.status.code() == Some(1), "EPERM: {other:?}");
    let by_pool = quota(&["--pool", "p", "-u", "4001"])?;
    ensure!(by_pool.status.code() == Some(2), "ENOENT: {by_pool:?}");
    let verbose = quota(&["-v", "-g", "4002"])?;
    let text = String::from_utf8_lossy(&verbose.stdout);
    ensure!(text.contains("MDT0000_UUID") && text.contains("OST0001_UUID"), "{text}");
    fs.fsck()
}

#[test]
fn a_project_is_what_is_made_in_its_directories_and_nothing_else_comes_in() -> Result<()> {
    let fs = TestFs::up("projects", 2, 1)?;
    let m = fs.mount(0);
    let lfs = |args: &[&str]| ok_within(tool("lfs").args(args).current_dir(m), LIMIT);
    fs::create_dir_all(m.join("p/old"))?;
    fs::write(m.join("p/old/f"), b"x")?;
    lfs(&["project", "-p", "77", "-s", "-r", "p"])?;
    fs::create_dir(m.join("p/new"))?;
    fs::write(m.join("p/new/g"), vec![1; 1 << 20])?;
    std::os::unix::fs::symlink("g", m.join("p/new/l"))?;
    let listed = lfs(&["project", "-r", "p"])?;
    for line in ["   77 P p", "   77 P p/old", "   77 - p/old/f", "   77 P p/new", "   77 - p/new/l"] {
        ensure!(listed.lines().any(|l| l == line), "no '{line}' in\n{listed}");
    }
    fs::write(m.join("stranger"), b"y")?;
    for (what, done) in [
        ("rename", fs::rename(m.join("stranger"), m.join("p/s"))),
        ("link", fs::hard_link(m.join("stranger"), m.join("p/s"))),
    ] {
        let errno = done.err().and_then(|e| e.raw_os_error());
        ensure!(errno == Some(18), "{what}: EXDEV, not {errno:?}");
    }
    fs::rename(m.join("p/old/f"), m.join("p/new/f"))?;
    fs::rename(m.join("p/new/f"), m.join("f"))?;
    ok_within(std::process::Command::new("mv").arg(m.join("stranger")).arg(m.join("p")), LIMIT)?;
    lfs(&["sync", "."])?;
    wait_until("the project is counted", LIMIT, || {
        let Ok(text) = lfs(&["quota", "-q", "-p", "77", "."]) else { return false };
        let words: Vec<&str> = text.split_whitespace().collect();
        // p, old, new, g, l, f (which has left the directory, not the project), stranger.
        words.get(5) == Some(&"7")
            && words.get(1).and_then(|k| k.parse().ok()).is_some_and(|k: u64| k >= 1024)
    })?;
    lfs(&["project", "-p", "78", "p/new/g"])?;
    let said = lfs(&["project", "-c", "-r", "p"])?;
    ensure!(said.trim() == "p/new/g - project identifier is not set (inode=78, tree=77)", "{said}");
    lfs(&["project", "-C", "-r", "p"])?;
    let listed = lfs(&["project", "-d", "p"])?;
    ensure!(listed == "    0 - p\n", "{listed}");
    let as_user = ["--reuid=4001", "--regid=4001", "--clear-groups"];
    let own = m.join("own");
    fs::write(&own, b"z")?;
    std::os::unix::fs::chown(&own, Some(4001), Some(4001))?;
    let set = |id: &str| {
        let mut c = std::process::Command::new("setpriv");
        c.args(as_user).arg(tests::cluster::bin_dir().join("lfs")).args(["project", "-p", id]).arg(&own);
        run_within(&mut c, LIMIT)
    };
    ensure!(set("5")?.status.code() == Some(1), "EPERM");
    let param = format!("mdt.{}-MDT0000.enable_chprojid_gid", fs.fsname());
    ok_within(tool("lctl").args(["set_param", &format!("{param}=4001")]), LIMIT)?;
    ensure!(set("5")?.status.success(), "his group may");
    fs.fsck()
}

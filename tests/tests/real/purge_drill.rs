//! Many files of known ages and owners on a file system that is full: who is told, what goes in which order
//! and what stays is what the rules say, while users touch what is about to go, and work on other files.
//!
//! `NACRE_PURGE_FILES=200000` for more of it (`scripts/campaign.sh purge`). What it took is printed.

use crate::policy::Policy;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tests::cluster::{ok_within, tool, wait_until};
use tests::disks::OnDisks;
use tests::rng::Rng;

const LIMIT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(1800);
const DAY_S: u64 = 86_400;
const FULL_PERCENT: u64 = 92;
const UNTIL_PERCENT: u64 = 85;
/// One has half of the files, one a third: what is touched does not change who is heavier.
const OWNERS: [u32; 6] = [4001, 4002, 4001, 4002, 4001, 4004];
const EXEMPT: u32 = 4003;
/// What the index is asked for at once.
const OLDEST: usize = 10_000;

/// One of the files.
#[derive(Clone)]
struct Made {
    path: PathBuf,
    uid: u32,
    size: u64,
    /// Seconds since 1970.
    accessed: u64,
    fits: bool,
}

/// Ages are all different, and follow no order of names: a fifth is too young, a tenth an exempt user's, a
/// tenth in an exempt directory.
fn plan(files: u64, now: u64) -> Vec<Made> {
    // No power of two or five: it has no divisor in common with a round number of files.
    let mixed = |i: u64| i * 7919 % files;
    // Smaller ones lie in the target's table, whose file does not shrink: the host has no more room then.
    let size = if files > 20_000 { 8 << 10 } else { 64 << 10 };
    (0..files)
        .map(|i| {
            let owner = OWNERS[(i / 10) as usize % OWNERS.len()];
            let old = now - 40 * DAY_S - mixed(i) * 60;
            let (uid, folder, accessed) = match i % 10 {
                0 | 1 => (owner, format!("u{owner}"), now - 5 * DAY_S - mixed(i)),
                2 => (EXEMPT, "exempt".to_string(), old),
                3 => (owner, "keep".to_string(), old),
                _ => (owner, format!("u{owner}"), old),
            };
            let path = PathBuf::from(format!("scratch/{folder}/d{}/f{i}", i / 1000));
            Made { path, uid, size, accessed, fits: i % 10 > 3 }
        })
        .collect()
}

fn make(mount: &Path, m: &Made) -> Result<()> {
    let path = mount.join(&m.path);
    let mut f = match File::create(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().context("it has one")?)?;
            File::create(&path)?
        }
        made => made?,
    };
    f.write_all(&vec![7; m.size as usize])?;
    std::os::unix::fs::fchown(&f, Some(m.uid), Some(m.uid))?;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(m.accessed);
    Ok(f.set_times(FileTimes::new().set_accessed(then).set_modified(then))?)
}

/// On both mounts; directories alternate, so that each has the one it works in for itself.
fn make_all(s: &OnDisks, all: &[Made]) -> Result<()> {
    std::thread::scope(|scope| {
        let one = |n: usize| {
            let mount = s.mount(n);
            let mut of = all.chunks(1000).skip(n).step_by(2).flatten();
            scope.spawn(move || of.try_for_each(|m| make(&mount, m)))
        };
        let both = [one(0), one(1)];
        both.into_iter().try_for_each(|h| h.join().map_err(|_| anyhow::anyhow!("a maker panicked"))?)
    })
}

/// Bytes of the object target: used, available.
fn space(mount: &Path) -> Result<(u64, u64)> {
    let text = ok_within(tool("lfs").arg("df").arg(mount), LIMIT)?;
    let line = text.lines().find(|l| l.starts_with("filesystem_summary")).context("no summary")?;
    let n: Vec<u64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    ensure!(n.len() >= 3, "{line}");
    Ok((n[1] << 10, n[2] << 10))
}

/// Fills it up with what no rule is about.
fn fill(mount: &Path) -> Result<()> {
    fs::create_dir_all(mount.join("home"))?;
    let mut f = File::create(mount.join("home/ballast"))?;
    wait_until("it is full", LONG, || {
        let Ok((used, available)) = space(mount) else { return false };
        let want = ((used + available) * FULL_PERCENT / 100).saturating_sub(used);
        if want > 0 {
            let piece = vec![1; want.clamp(1 << 16, 32 << 20) as usize];
            let _ = f.write_all(&piece).and_then(|()| f.sync_all());
        }
        want == 0
    })
}

/// What users did meanwhile.
#[derive(Default)]
struct Worked {
    touched: BTreeSet<PathBuf>,
    live: BTreeSet<PathBuf>,
    operations: u64,
}

/// Users touch files that are about to go, and write and remove others, until `over`.
fn work(mount: &Path, targets: &[Made], over: &AtomicBool) -> Result<Worked> {
    let (mut rng, mut w) = (Rng::new(1), Worked::default());
    let live = mount.join("scratch/live");
    fs::create_dir_all(&live)?;
    while !over.load(Relaxed) || w.operations < 100 {
        w.operations += 1;
        let m = &targets[rng.below(targets.len() as u64) as usize];
        match rng.below(3) {
            0 if w.touched.len() * 10 < targets.len() => {
                // It fails if the file has gone.
                let now = FileTimes::new().set_accessed(SystemTime::now());
                let done = File::open(mount.join(&m.path)).and_then(|f| f.set_times(now));
                if done.is_ok() {
                    w.touched.insert(m.path.clone());
                }
            }
            1 if !w.live.is_empty() && rng.below(2) == 0 => {
                let gone = w.live.pop_first().context("there is one")?;
                fs::remove_file(&gone)?;
            }
            _ => {
                let path = live.join(format!("l{}", w.operations));
                fs::write(&path, b"live")?;
                w.live.insert(path);
            }
        }
        // Users are not all there is on this host.
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(w)
}

fn rules(mount: &Path, tell: &Path) -> String {
    format!(
        "directory = {}\n\
         [tell]\nwhen space > 90%\npath = scratch/*\naccessed > 30d\nexempt user = {EXEMPT}\naction = notify\n\
         command = {}\nusers = 2\n\
         [purge]\nwhen space > 91% until {UNTIL_PERCENT}%\npath = scratch/*\naccessed > 30d\n\
         exempt user = {EXEMPT}\nexempt path = scratch/keep/*\norder = accessed\nlimit = 1000000\naction = purge\n",
        mount.display(),
        tell.display()
    )
}

/// The first files in the order of a rule, as `nacre policy` finds them: how long it takes to list them for
/// an archive, and to show them and count all others, the best of three each.
fn oldest(p: &Policy, mount: &Path, all: &[&Made], count: usize) -> Result<[Duration; 2]> {
    let (file, list) = (p.file.with_extension("oldest"), p.file.with_extension("list"));
    let text = format!(
        "directory = {}\n[oldest]\npath = scratch/*\norder = accessed\nlimit = {count}\naction = archive\nlist = {}\n",
        mount.display(),
        list.display()
    );
    fs::write(&file, text)?;
    let q = Policy { file, state: p.state.with_extension("index") };
    let want: Vec<String> =
        all.iter().take(count).map(|m| mount.join(&m.path).display().to_string()).collect();
    let mut best = [LONG; 2];
    for _ in 0..3 {
        let begun = Instant::now();
        q.json_within(&["run"], LONG)?;
        best[0] = best[0].min(begun.elapsed());
        let rows = fs::read_to_string(&list)?;
        let rows: Vec<Value> = rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(rows.iter().filter_map(|r| r["path"].as_str()).eq(want.iter()), "the oldest files");
        let begun = Instant::now();
        let said = q.json_within(&["run", "--dry-run"], LONG)?;
        best[1] = best[1].min(begun.elapsed());
        let rule = &said["rules"][0];
        ensure!(paths(&rule["files"]).into_iter().eq(want.iter()), "the oldest files, shown");
        ensure!(rule["fitting_files"].as_u64() == Some(all.len() as u64), "{} fit", rule["fitting_files"]);
    }
    Ok(best)
}

fn paths(rows: &Value) -> Vec<&str> {
    rows.as_array().into_iter().flatten().filter_map(|r| r["path"].as_str()).collect()
}

/// What was listed is the beginning of what fits, without what users touched, with owners and sizes.
fn check_list(list: &[Value], due: &[&Made], w: &Worked, mount: &Path) -> Result<()> {
    let by_path: BTreeMap<PathBuf, usize> =
        due.iter().enumerate().map(|(i, m)| (mount.join(&m.path), i)).collect();
    let mut before = None;
    let mut gone = BTreeSet::new();
    for row in list {
        let path = PathBuf::from(row["path"].as_str().context("a path")?);
        let at = *by_path.get(&path).with_context(|| format!("{path:?} does not fit the rule"))?;
        let m = due[at];
        ensure!(before.is_none_or(|b| b < at), "{path:?} is out of order");
        ensure!(row["uid"] == m.uid && row["size"] == m.size && row["certain"] == true, "{row}");
        ensure!(!w.touched.contains(&m.path), "{path:?} was touched, and deleted after that");
        before = Some(at);
        gone.insert(at);
    }
    let last = before.context("nothing is listed")?;
    for (i, m) in due.iter().enumerate().take(last) {
        ensure!(gone.contains(&i) || w.touched.contains(&m.path), "{:?} was passed over", m.path);
    }
    Ok(())
}

/// Files below a directory.
fn walk(dir: &Path, out: &mut BTreeMap<PathBuf, u64>) -> Result<()> {
    for e in fs::read_dir(dir)? {
        let e = e?;
        if e.file_type()?.is_dir() {
            walk(&e.path(), out)?;
        } else {
            out.insert(e.path(), e.metadata()?.size());
        }
    }
    Ok(())
}

#[test]
fn what_goes_and_stays_is_what_the_rules_say() -> Result<()> {
    let files = tests::env_number("NACRE_PURGE_FILES").unwrap_or(1_000);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let all = plan(files, now);
    let bytes: u64 = all.iter().map(|m| m.size).sum();
    let s = OnDisks::up("purgedr", 1, &format!("{}m", 300 + (bytes >> 19)))?;
    let (a, b) = (s.mount(0), s.mount(1));
    ok_within(tool("lfs").args(["setstripe", "-c", "1"]).arg(&a), LIMIT)?;
    let begun = Instant::now();
    make_all(&s, &all)?;
    let _ = run_sync();
    println!("{files} files of {} MiB made in {:?}", bytes >> 20, begun.elapsed());
    fill(&a)?;

    let mut by_age: Vec<&Made> = all.iter().collect();
    by_age.sort_by_key(|m| m.accessed);
    let due: Vec<&Made> = by_age.iter().copied().filter(|m| m.fits).collect();
    let (p, told) =
        (Policy { file: s.dir().join("policy.conf"), state: s.dir().join("policy") }, s.dir().join("told"));
    let count = OLDEST.min(all.len() / 2);
    let [listed, shown] = oldest(&p, &a, &by_age, count)?;
    println!("the oldest {count} of {files} files listed in {listed:?}, shown with all counted in {shown:?}");
    let tell = s.dir().join("tell");
    fs::write(&tell, format!("#!/bin/sh\n(echo \"to $1\"; cat) >> {}\n", told.display()))?;
    fs::set_permissions(&tell, fs::Permissions::from_mode(0o755))?;
    fs::write(&p.file, rules(&a, &tell))?;
    let dry = p.json_within(&["run", "--dry-run"], LONG)?;
    let planned = paths(&dry["rules"][1]["files"]);
    ensure!(planned.len() > 20 && planned.len() < due.len(), "{} of {}", planned.len(), due.len());
    let first = due.iter().take(planned.len()).map(|m| a.join(&m.path).display().to_string());
    ensure!(
        planned.iter().copied().eq(first.collect::<Vec<_>>().iter().map(String::as_str)),
        "the first ones"
    );

    // Before users touch anything: how much everybody has is in the letters.
    p.json_within(&["run", "--rule", "tell"], LONG)?;
    check_letters(&told, &all)?;
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let targets: Vec<Made> = due.iter().take(planned.len()).map(|m| (*m).clone()).collect();
    let (done, worked) = std::thread::scope(|scope| {
        let users = scope.spawn(|| work(&b, &targets, &over));
        let done = p.json_within(&["run"], LONG);
        over.store(true, Relaxed);
        (done, users.join().expect("users"))
    });
    let (done, worked, took) = (done?, worked?, begun.elapsed());
    let result = &done["rules"][1]["result"];
    println!(
        "purged {} files in {took:?}: {result}; users did {} operations and touched {} of what was to go",
        result["done"],
        worked.operations,
        worked.touched.len()
    );
    ensure!(result["failed"] == 0 && result["gone"] == 0, "{result}");
    // Nobody is told twice.
    check_letters(&told, &all)?;
    let list = p.listed("purge")?;
    ensure!(result["done"].as_u64() == Some(list.len() as u64), "{} are listed: {result}", list.len());
    check_list(&list, &due, &worked, &a)?;
    check_end(&b, &a, (&all, &list, &worked))?;
    // What users touched stays, and what they made came meanwhile, a block each.
    let kept: u64 = all.iter().filter(|m| worked.touched.contains(&m.path)).map(|m| m.size).sum();
    let more = kept + worked.live.len() as u64 * 4096;
    let is_free =
        || space(&a).is_ok_and(|(used, free)| used <= (used + free) * (UNTIL_PERCENT + 1) / 100 + more);
    wait_until("so much is free", LIMIT, is_free)
        .with_context(|| format!("used and free {:?}, and {more} bytes more may be used", space(&a)))?;

    let again = p.json_within(&["run"], LONG)?;
    ensure!(again["rules"].as_array().is_some_and(|r| r.iter().all(|r| r["due"] == false)), "{again}");
    ensure!(p.listed("purge")?.len() == list.len(), "a second run does nothing");
    s.down()
}

fn run_sync() -> Result<String> {
    ok_within(&mut Command::new("sync"), LONG)
}

/// The two users with the most bytes that fit are told, the heavier one first.
fn check_letters(told: &Path, all: &[Made]) -> Result<()> {
    let mut of: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    // What is in the exempt directory is old as well: the rule that tells does not exempt it.
    for m in all.iter().filter(|m| m.uid != EXEMPT && (m.fits || m.path.starts_with("scratch/keep"))) {
        let user = of.entry(m.uid).or_default();
        *user = (user.0 + m.size, user.1 + 1);
    }
    let mut heavy: Vec<(u32, u64, u64)> = of.into_iter().map(|(u, (bytes, n))| (u, bytes, n)).collect();
    heavy.sort_by_key(|(uid, bytes, n)| (std::cmp::Reverse((*bytes, *n)), *uid));
    let letters = fs::read_to_string(told)?;
    let to: Vec<String> = letters.lines().filter(|l| l.starts_with("to ")).map(str::to_string).collect();
    let want: Vec<String> = heavy.iter().take(2).map(|(uid, ..)| format!("to {uid}")).collect();
    ensure!(to == want, "told {to:?}, not {want:?}");
    for (uid, _, n) in &heavy[..2] {
        ensure!(letters.contains(&format!("{uid}: {n} files of ")), "{uid} has {n} files");
    }
    Ok(())
}

/// Exactly what is listed is gone, and all else is there.
fn check_end(mount: &Path, listed: &Path, (all, list, w): (&[Made], &[Value], &Worked)) -> Result<()> {
    let gone: BTreeSet<PathBuf> = list
        .iter()
        .filter_map(|r| Path::new(r["path"].as_str()?).strip_prefix(listed).ok().map(Path::to_path_buf))
        .collect();
    let mut there = BTreeMap::new();
    walk(&mount.join("scratch"), &mut there)?;
    for m in all {
        let size = there.remove(&mount.join(&m.path));
        let want = (!gone.contains(&m.path)).then_some(m.size);
        ensure!(size == want, "{:?}: {size:?} bytes are there, not {want:?}", m.path);
    }
    ensure!(there.keys().eq(w.live.iter()), "what users made meanwhile is as they left it");
    Ok(())
}

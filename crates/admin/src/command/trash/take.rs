//! How files get out of the trash.

use super::items::{self, Item};
use super::{GO_ON, NAME, explained, place};
use crate::failure::{Failure, FirstError};
use crate::getopt::Parsed;
use crate::interrupt::{self, Interrupt};
use crate::live::ProgressLine;
use crate::local::{ask, inode_of, mount_point, strange};
use crate::size::parse_age;
use crate::{output, say};
use client::control::{Packed, Reply, Request};
use model::{Errno, Fid, FileType};
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use wire::msg::trashtake::{FILES_MAX, Takeout, Trashtake};
use world::sys::{self, files};

/// Bytes of names in one message.
const NAMES_BYTES: usize = 4096;

/// Another directory, and perhaps another name there.
pub type Target<'a> = (Fid, Option<&'a [u8]>);

/// A file that is to get out, and how it is shown.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    pub fid: Fid,
    pub how: Takeout,
    pub shown: String,
}

/// Why one stays, in words.
fn why(e: Errno, how: &Takeout) -> Option<&'static str> {
    Some(match (e, how) {
        (Errno::EEXIST, _) => "the name is taken: --as NAME, or --to DIR",
        (Errno::ESTALE, _) => "its directory is gone: --to DIR",
        (Errno::EPERM, _) => "only its owner and root may",
        (Errno::ENOENT, _) => "it is not in the trash any more",
        (Errno::EACCES, _) => "the directory may not be written",
        (Errno::EXDEV, _) => "the directory belongs to another project: --to DIR",
        (Errno::EDQUOT, _) => "the directory's quota has no room for it",
        _ => return None,
    })
}

/// Parts of as many files as one message may have.
fn chunks(steps: &[Step]) -> Vec<&[Step]> {
    let (mut out, mut from, mut bytes) = (Vec::new(), 0, 0usize);
    for (n, s) in steps.iter().enumerate() {
        let name = if let Takeout::To(_, name) = &s.how { name.len() } else { 0 };
        if n - from == FILES_MAX || bytes + name > NAMES_BYTES {
            out.push(&steps[from..n]);
            (from, bytes) = (n, 0);
        }
        bytes += name;
    }
    if from < steps.len() {
        out.push(&steps[from..]);
    }
    out
}

/// What came of the steps.
#[derive(Default)]
struct Outcome {
    done: usize,
    rows: Vec<Value>,
}

fn send(mount: &Path, steps: &[Step]) -> Result<Vec<u16>, Failure> {
    let files = steps.iter().map(|s| (s.fid, s.how.clone())).collect();
    let files = Packed::of(&Trashtake { files });
    match ask(mount, &Request::TrashTake { files }) {
        Ok(Reply::Results(r)) if r.len() == steps.len() => Ok(r),
        Ok(other) => Err(strange(mount, &other)),
        Err(f) => Err(explained("cannot take from the trash of", &mount.display().to_string(), f)),
    }
}

/// Does them, many in one request; says of each that stays why.
fn work(
    mount: &Path,
    steps: &[Step],
    (verb, interrupt, done): (&str, &Interrupt, &AtomicUsize),
    errors: &mut FirstError,
) -> Outcome {
    let mut out = Outcome::default();
    for chunk in chunks(steps) {
        if interrupt.stopped() {
            break;
        }
        let results = match send(mount, chunk) {
            Ok(r) => r,
            Err(f) => {
                errors.report(NAME, &f);
                break;
            }
        };
        for (s, code) in chunk.iter().zip(results) {
            let e = Errno(code.into());
            out.rows.push(json!({"fid": s.fid.to_string(), "path": s.shown, "errno": code}));
            if code == 0 {
                out.done += 1;
                continue;
            }
            let what = format!("cannot {verb}");
            errors.report(
                NAME,
                &match why(e, &s.how) {
                    Some(text) => Failure::explained(&what, &s.shown, e, text),
                    None => Failure::op(&what, &s.shown, e),
                },
            );
        }
        done.store(out.done, Relaxed);
    }
    out
}

/// Runs the steps with progress, or shows them.
fn run(
    p: &Parsed,
    mount: &Path,
    steps: &[Step],
    (verb, past): (&'static str, &str),
    mut errors: FirstError,
) -> i32 {
    if p.has("dry-run") {
        if p.has("json") {
            let row = |s: &Step| json!({"fid": s.fid.to_string(), "path": s.shown});
            output::json(&json!({"dry_run": true, "files": steps.iter().map(row).collect::<Vec<_>>()}));
        } else {
            steps.iter().for_each(|s| say!("{} {}", s.fid, s.shown));
        }
        return errors.exit_code();
    }
    let line = Arc::new(ProgressLine::for_terminal(p.has("quiet") || p.has("json")));
    let (done, total) = (Arc::new(AtomicUsize::new(0)), steps.len());
    let (shown, ticking) = (done.clone(), line.clone());
    let so_far = past.to_string();
    let tick = move || ticking.show(|| format!("{} of {total} {so_far}", shown.load(Relaxed)));
    let (out, signalled) = interrupt::guarded(tick, |i| work(mount, steps, (verb, i, &done), &mut errors));
    line.clear();
    match p.has("json") {
        true => output::json(&json!({"dry_run": false, "done": out.done, "files": out.rows})),
        false => say!("{} of {total} {past}", out.done),
    }
    if let Some(code) = signalled {
        errors.interrupted_so(NAME, GO_ON, code);
    }
    errors.exit_code()
}

/// Without `.` and `..`, and without asking the disk for what is not there.
fn plain(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display().to_string();
    let mut out = match path.is_absolute() {
        true => PathBuf::new(),
        false => files::canonical(Path::new(".")).map_err(|e| Failure::io("cannot find", &shown, e))?,
    };
    for c in path.components() {
        match c {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            c => out.push(c),
        }
    }
    Ok(out)
}

/// The nearest directory above a path, or at it, that is there, and the rest of the way.
fn anchor(path: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let whole = plain(path)?;
    for dir in whole.ancestors() {
        if files::stat(dir, true).is_ok_and(|s| s.is_dir()) {
            let rest = whole.strip_prefix(dir).unwrap_or(Path::new("")).to_path_buf();
            mount_point(dir)?;
            return Ok((dir.to_path_buf(), rest));
        }
    }
    Err(Failure::op("cannot find", &path.display().to_string(), Errno::ENOENT))
}

/// The youngest of each path, in the order in which they were removed.
pub fn youngest(items: Vec<Item>) -> Vec<Item> {
    let mut last: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (n, i) in items.iter().enumerate() {
        if let Some(p) = i.path() {
            last.insert(p, n);
        }
    }
    let kept: BTreeSet<usize> = last.into_values().collect();
    items.into_iter().enumerate().filter(|(n, _)| kept.contains(n)).map(|(_, i)| i).collect()
}

/// What was removed below directories, each asked for once.
#[derive(Default)]
struct Lists(BTreeMap<PathBuf, Vec<Item>>);

impl Lists {
    fn below(&mut self, dir: &Path) -> Result<&[Item], Failure> {
        Ok(match self.0.entry(dir.to_path_buf()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(items::below(dir, false)?),
        })
    }
}

/// What is restored for one operand that is a path.
fn at_path(lists: &mut Lists, path: &Path, deep: bool) -> Result<(PathBuf, Vec<Item>), Failure> {
    let shown = path.display().to_string();
    let (dir, rest) = anchor(path)?;
    let all = lists.below(&dir)?;
    if rest.as_os_str().is_empty() {
        if !deep {
            let why = "it is there; -r restores what was removed below it";
            return Err(Failure::explained("cannot restore", &shown, Errno::EEXIST, why));
        }
        return Ok((dir, youngest(all.iter().filter(|i| i.path().is_some()).cloned().collect())));
    }
    let fits = |p: PathBuf| p == rest || (deep && p.starts_with(&rest));
    let found = youngest(all.iter().filter(|i| i.path().is_some_and(fits)).cloned().collect());
    if found.is_empty() {
        let why = "nothing of that name of yours is in the trash: nacre trash list";
        return Err(Failure::explained("cannot restore", &shown, Errno::ENOENT, why));
    }
    Ok((dir, found))
}

/// In which order, and where to: directories come before what lay in them.
pub fn plan(dir: &Path, items: &[Item], to: Option<Target<'_>>) -> Vec<Step> {
    let chosen: BTreeSet<Fid> = items.iter().map(Item::fid).collect();
    let mut steps: BTreeMap<(usize, usize), Step> = BTreeMap::new();
    let mut known: BTreeSet<Fid> = BTreeSet::new();
    for (n, i) in items.iter().enumerate() {
        let f = &i.file;
        // Of one without a way it is known which directories are to come before it.
        let depth = i.path().map_or(f.removed.len(), |p| p.components().count());
        let how = match to {
            // It goes along with its directory.
            Some(_) if chosen.contains(&f.parent) => Takeout::Back,
            Some((fid, name)) => Takeout::To(fid, name.map_or_else(|| f.name.clone(), <[u8]>::to_vec)),
            None => Takeout::Back,
        };
        if to.is_none() {
            for (level, fid) in f.removed.iter().enumerate() {
                if !chosen.contains(fid) && known.insert(*fid) {
                    let above = depth.saturating_sub(f.removed.len() - level);
                    let shown = format!("the directory of {}", i.shown(dir));
                    steps.insert((above, items.len() + n), Step { fid: *fid, how: Takeout::Back, shown });
                }
            }
        }
        steps.insert((depth, n), Step { fid: i.fid(), how, shown: i.shown(dir) });
    }
    steps.into_values().collect()
}

/// `--to` and `--as`: the directory that is meant, and the name.
fn target(p: &Parsed) -> Result<Option<Target<'_>>, Failure> {
    let name = p.value("as").map(str::as_bytes);
    if name.is_some_and(|n| n.contains(&b'/')) {
        return Err(Failure::usage("--as is a name; --to says in which directory"));
    }
    let Some(dir) = p.value("to") else { return Ok(name.map(|n| (Fid::NONE, Some(n)))) };
    let i = inode_of(Path::new(dir), "cannot restore to")?;
    if i.attr.kind != FileType::Directory {
        return Err(Failure::op("cannot restore to", dir, Errno::ENOTDIR));
    }
    Ok(Some((i.attr.fid, name)))
}

/// Each file once: what two operands name, and a directory that files of both lay in.
pub fn once(mut steps: Vec<Step>) -> Vec<Step> {
    let mut met = BTreeSet::new();
    steps.retain(|s| met.insert(s.fid));
    steps
}

pub fn restore(p: &Parsed) -> Result<i32, Failure> {
    let deep = p.has("recursive");
    let to = target(p)?;
    if to.is_some_and(|(_, name)| name.is_some()) && (deep || p.operands.len() > 1) {
        return Err(Failure::usage("--as is the name of one file"));
    }
    let (mut errors, mut lists) = (FirstError::default(), Lists::default());
    let (mut steps, mut mount) = (Vec::new(), None);
    for o in &p.operands {
        let shown = o.to_string_lossy();
        let found = match shown.parse::<Fid>() {
            Ok(fid) => by_fid(&mut lists, p, fid),
            Err(_) => at_path(&mut lists, Path::new(o), deep),
        };
        match found {
            Ok((dir, items)) => {
                // By another name, in the directory that it was in.
                let to = to.map(|(fid, n)| (if fid == Fid::NONE { items[0].file.parent } else { fid }, n));
                steps.extend(plan(&dir, &items, to));
                let here = mount_point(&dir)?;
                if mount.get_or_insert_with(|| here.clone()) != &here {
                    return Err(Failure::usage("the files of one file system at a time"));
                }
            }
            Err(f) => errors.report(NAME, &f),
        }
    }
    let steps = once(steps);
    match mount {
        Some(m) => Ok(run(p, &m, &steps, ("restore", "restored"), errors)),
        None => Ok(errors.exit_code()),
    }
}

/// One file of the file system that `--to` lies in, or that one stands in.
fn by_fid(lists: &mut Lists, p: &Parsed, fid: Fid) -> Result<(PathBuf, Vec<Item>), Failure> {
    let mount = mount_point(Path::new(p.value("to").unwrap_or(".")))?;
    let found = lists.below(&mount)?.iter().find(|i| i.fid() == fid).cloned();
    match found {
        Some(i) => Ok((mount, vec![i])),
        None => {
            let why = "it is not in the trash, or not yours: nacre trash list";
            Err(Failure::explained("cannot restore", &fid.to_string(), Errno::ENOENT, why))
        }
    }
}

pub fn empty(p: &Parsed) -> Result<i32, Failure> {
    let older = match (p.value("older"), p.has("all")) {
        (Some(_), true) | (None, false) => return Err(Failure::usage("what: --older AGE, or --all?")),
        (None, true) => None,
        (Some(t), false) => {
            Some(parse_age(t).ok_or_else(|| Failure::usage(format!("'{t}' is no age, as 30d or 12h are")))?)
        }
    };
    let dir = place(p)?;
    let mount = mount_point(&dir)?;
    let before = older.map(|s| sys::wall_seconds().saturating_sub(s));
    let mut all = items::below(&dir, false)?;
    all.retain(|i| before.is_none_or(|b| i.file.when.sec <= b));
    let step = |i: &Item| Step { fid: i.fid(), how: Takeout::Gone, shown: i.shown(&dir) };
    let steps: Vec<Step> = all.iter().map(step).collect();
    Ok(run(p, &mount, &steps, ("remove", "removed for good"), FirstError::default()))
}

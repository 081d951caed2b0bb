//! `nacre top dirs`: the directories below some place with most space or most files, by one scan or walk.

use super::{below, each_file};
use crate::command::find::candidate::Candidate;
use crate::command::top::{COUNT_DEFAULT, COUNT_MAX};
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag, value};
use crate::interrupt;
use crate::live::ProgressLine;
use crate::output;
use crate::size::human;
use crate::walk::{self, Place, Run, Visitor};
use client::control::Listed;
use model::mutex::Mutex;
use model::{Fid, Set};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Directories that are told apart; what lies in others is counted together.
const DIRS_MAX: usize = 1 << 20;
/// Files with several names that are remembered, so that they are counted once.
const LINKED_MAX: usize = 1 << 20;
const DEPTH_MAX: u64 = 64;

/// Inodes, and bytes of space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    files: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What lies in each directory so many levels below a root, and in those above them by themselves.
#[derive(Default)]
struct Sums {
    dirs: BTreeMap<PathBuf, Sum>,
    /// In directories beyond those that are told apart.
    others: Sum,
    all: Sum,
    linked: Set<Fid>,
}

struct Counter<'a> {
    root: &'a Path,
    depth: usize,
    dirs_max: usize,
    sums: Mutex<Sums>,
}

impl Counter<'_> {
    /// The directory that something is counted for.
    fn home(&self, c: &Candidate) -> PathBuf {
        let inside = if c.is_dir() { Some(c.path.as_path()) } else { c.path.parent() };
        let below = inside.and_then(|p| p.strip_prefix(self.root).ok()).unwrap_or(Path::new(""));
        below.components().take(self.depth).collect()
    }
}

impl Visitor for Counter<'_> {
    fn wants_inodes(&self) -> bool {
        true
    }

    fn max_depth(&self) -> u32 {
        u32::MAX
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        each_file(at, entries, run, |c| {
            let (home, bytes) = (self.home(&c), c.blocks().saturating_mul(512));
            self.sums.lock().add(home, &c, bytes, self.dirs_max);
        });
    }
}

impl Sums {
    /// A file is counted once, for the first of its names that is met.
    fn add(&mut self, home: PathBuf, c: &Candidate, bytes: u64, dirs_max: usize) {
        let attr = &c.inode().attr;
        let is_linked = attr.nlink > 1 && !c.is_dir() && self.linked.len() < LINKED_MAX;
        if is_linked && !self.linked.insert(attr.fid) {
            return;
        }
        self.all.add(bytes);
        match self.dirs.len() < dirs_max || self.dirs.contains_key(&home) {
            true => self.dirs.entry(home).or_default().add(bytes),
            false => self.others.add(bytes),
        }
    }

    /// The heaviest first.
    fn first(&self, by_files: bool, count: usize) -> Vec<(&Path, Sum)> {
        let mut all: Vec<(&Path, Sum)> = self.dirs.iter().map(|(p, s)| (p.as_path(), *s)).collect();
        let weight = |s: &Sum| if by_files { (s.files, s.bytes) } else { (s.bytes, s.files) };
        all.sort_by_key(|(p, s)| (std::cmp::Reverse(weight(s)), *p));
        all.truncate(count);
        all
    }
}

fn share(part: u64, all: u64) -> u64 {
    (u128::from(part) * 100).checked_div(u128::from(all)).unwrap_or(0) as u64
}

fn text(root: &Path, sums: &Sums, by_files: bool, count: usize) -> String {
    let plural = if sums.dirs.len() == 1 { "directory" } else { "directories" };
    let heading = format!("{}, {} {plural}", root.display(), sums.dirs.len());
    let what = if by_files { "Files%" } else { "Space%" };
    let mut out = format!("{:>10} {:>10} {what:>6} {heading}\n", "Used", "Files");
    let mut row = |name: String, s: Sum| {
        let part = if by_files { share(s.files, sums.all.files) } else { share(s.bytes, sums.all.bytes) };
        let _ = writeln!(out, "{:>10} {:>10} {part:>6} {name}", human(s.bytes, 1024), s.files);
    };
    for (path, s) in sums.first(by_files, count) {
        row(shown(path), s);
    }
    if sums.others.files > 0 {
        row("(in directories that are not told apart)".into(), sums.others);
    }
    out
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".into() } else { path.display().to_string() }
}

fn as_json(root: &Path, sums: &Sums, by_files: bool, count: usize, complete: bool) -> Value {
    let row = |(p, s): (&Path, Sum)| json!({"path": shown(p), "bytes": s.bytes, "inodes": s.files});
    let dirs: Vec<Value> = sums.first(by_files, count).into_iter().map(row).collect();
    json!({"root": root.display().to_string(), "number": sums.dirs.len(), "bytes": sums.all.bytes,
        "inodes": sums.all.files, "complete": complete, "directories": dirs,
        "others": {"bytes": sums.others.bytes, "inodes": sums.others.files}})
}

/// What is asked for.
#[derive(Debug)]
struct Options {
    roots: Vec<PathBuf>,
    count: usize,
    depth: usize,
    by_files: bool,
    json: bool,
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let opts = [value('n', "count"), value('\0', "by"), value('\0', "depth"), flag('\0', "json")];
    let p = getopt::parse(args, &opts)?;
    let by_files = match p.value("by") {
        None | Some("space") => false,
        Some("files") => true,
        Some(other) => return Err(Failure::usage(format!("--by space or --by files, not '{other}'"))),
    };
    if p.operands.is_empty() {
        return Err(Failure::usage("no directory given: nacre top dirs DIR"));
    }
    Ok(Options {
        roots: p.operands.iter().map(PathBuf::from).collect(),
        count: p.number("count", COUNT_MAX)?.unwrap_or(COUNT_DEFAULT) as usize,
        depth: p.number("depth", DEPTH_MAX)?.unwrap_or(1) as usize,
        by_files,
        json: p.has("json"),
    })
}

/// The command: arguments behind `top dirs`. Returns the exit status.
pub fn run(args: &[OsString]) -> Result<i32, Failure> {
    let o = parse(args)?;
    let seen = Arc::new(AtomicU64::new(0));
    let line = Arc::new(ProgressLine::for_terminal(o.json));
    let (counted, ticking) = (seen.clone(), line.clone());
    let tick = move || ticking.show(|| format!("{} files looked at", counted.load(Ordering::Relaxed)));
    let ((all, mut errors), signalled): ((Vec<Sums>, FirstError), _) = interrupt::guarded(tick, |i| {
        let run = Run::new("nacre top", i, &seen);
        let of = |root: &PathBuf| {
            let counter = Counter { root, depth: o.depth, dirs_max: DIRS_MAX, sums: Mutex::default() };
            if let Err(f) = below(root, (None, walk::default_threads()), &counter, &run) {
                run.report(&f);
            }
            counter.sums.into_inner()
        };
        (o.roots.iter().map(of).collect(), run.finish())
    });
    line.clear();
    let complete = signalled.is_none() && errors.exit_code() == 0;
    let mut shown = Vec::new();
    for (root, sums) in o.roots.iter().zip(&all) {
        match o.json {
            true => shown.push(as_json(root, sums, o.by_files, o.count, complete)),
            false => output::bytes(text(root, sums, o.by_files, o.count).as_bytes()),
        }
    }
    if o.json {
        output::json(&json!({"places": shown}));
    }
    if let Some(code) = signalled {
        errors.interrupted("nacre top", code);
    }
    Ok(errors.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;
    use crate::walk::fake::Fake;
    use model::FileType;

    fn tree() -> Fake {
        let mut t = Fake::new();
        for (path, mib) in [("a/x", 1), ("a/b/y", 5), ("a/b/z", 0), ("c/w", 4), ("top", 1)] {
            for dir in Path::new(path).ancestors().skip(1).filter(|d| !d.as_os_str().is_empty()) {
                t.add(dir.to_str().unwrap(), FileType::Directory);
            }
            t.add(path, FileType::Regular).attr.blocks = mib * 2048;
        }
        let linked = t.files[Path::new("/m/a/x")].attr.clone();
        for path in ["a/x", "c/x"] {
            t.add(path, FileType::Regular);
            let f = t.files.get_mut(&Path::new("/m").join(path)).unwrap();
            f.attr = model::Attr { nlink: 2, ..linked.clone() };
        }
        t
    }

    fn sums(depth: usize, dirs_max: usize) -> Sums {
        let (t, seen, i) = (tree(), AtomicU64::new(0), Interrupt::default());
        let run = Run::new("test", &i, &seen);
        let counter = Counter { root: &t.root, depth, dirs_max, sums: Mutex::default() };
        walk::walk(&t, &t.root, 1, &counter, &run);
        counter.sums.into_inner()
    }

    #[test]
    fn the_heaviest_directories_come_first_and_each_file_is_counted_once() {
        let all = sums(1, 100);
        let by_space = text(Path::new("/m"), &all, false, 2);
        let expected = "      Used      Files Space% /m, 3 directories\n";
        assert!(by_space.starts_with(expected), "{by_space}");
        assert_eq!((all.all, all.dirs.len()), (Sum { files: 9, bytes: 11 << 20 }, 3));
        let top = all.first(false, 9);
        assert_eq!(top[0].0, Path::new("a"));
        assert_eq!(top[2], (Path::new(""), Sum { files: 2, bytes: 1 << 20 }));
        let both: u64 = top.iter().map(|(_, s)| s.bytes).sum();
        assert_eq!(both, 11 << 20, "what is in several is counted for one");
        let deep = sums(2, 100);
        assert_eq!(deep.dirs[Path::new("a/b")], Sum { files: 3, bytes: 5 << 20 });
        let by_files = deep.first(true, 1);
        assert_eq!(by_files[0].0, Path::new("a/b"));
        let json = as_json(Path::new("/m"), &deep, true, 1, true);
        assert_eq!((&json["number"], &json["directories"][0]["inodes"]), (&json!(4), &json!(3)));
    }

    #[test]
    fn directories_are_bounded() {
        let few = sums(2, 1);
        assert_eq!((few.dirs.len(), few.all.bytes), (1, 11 << 20));
        let kept: u64 = few.dirs.values().map(|s| s.bytes).sum();
        assert_eq!(kept + few.others.bytes, 11 << 20);
        assert!(text(Path::new("/m"), &few, false, 9).contains("not told apart"));
    }

    #[test]
    fn options_are_checked() {
        let of = |args: &[&str]| parse(&args.iter().map(OsString::from).collect::<Vec<_>>());
        let o = of(&["--by=files", "--depth", "3", "-n", "5", "--json", "/mnt"]).unwrap();
        assert_eq!((o.by_files, o.depth, o.count, o.json, o.roots.len()), (true, 3, 5, true, 1));
        for bad in [&[][..], &["--by", "x", "/"], &["--depth", "0", "/"], &["--depth", "65", "/"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}

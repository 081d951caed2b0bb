//! Walks of a tree in memory.

use super::fake::{Fake, PAGE};
use super::*;
use model::{Errno, FileType};
use std::collections::BTreeSet;

/// Remembers what it was shown, and stops the walk after so many files.
struct Collector<'a> {
    shown: Mutex<Vec<PathBuf>>,
    max_depth: u32,
    stop: Option<(&'a Interrupt, usize)>,
}

impl Visitor for Collector<'_> {
    fn wants_inodes(&self) -> bool {
        false
    }

    fn max_depth(&self) -> u32 {
        self.max_depth
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, _run: &Run<'_>) {
        let mut shown = self.shown.lock();
        for e in &entries {
            let path = at.of(&e.name);
            let depth = path.components().count() - at.root.components().count();
            assert_eq!(at.depth as usize, depth, "{path:?}");
            shown.push(path);
        }
        if let Some((interrupt, n)) = self.stop
            && shown.len() >= n
        {
            interrupt.stop();
        }
    }
}

fn collect(tree: &Fake, threads: usize, max_depth: u32) -> (Vec<PathBuf>, i32, u64) {
    let (interrupt, seen) = (Interrupt::default(), AtomicU64::new(0));
    let run = Run::new("test", &interrupt, &seen);
    let c = Collector { shown: Mutex::default(), max_depth, stop: None };
    walk(tree, &tree.root, threads, &c, &run);
    (c.shown.into_inner(), run.finish().exit_code(), seen.load(Ordering::Relaxed))
}

/// Directories of all shapes: wide, deep, empty.
fn tree() -> Fake {
    let mut t = Fake::new();
    let mut deep = String::new();
    for i in 0..60 {
        deep = if deep.is_empty() { "deep".into() } else { format!("{deep}/d") };
        t.add(&deep, FileType::Directory);
        t.add(&format!("{deep}/f{i}"), FileType::Regular);
    }
    t.add("wide", FileType::Directory);
    for i in 0..50 {
        t.add(&format!("wide/d{i}"), FileType::Directory);
        for j in 0..i % 7 {
            t.add(&format!("wide/d{i}/f{j}"), FileType::Regular);
        }
    }
    t
}

#[test]
fn each_file_is_shown_once_whatever_the_number_of_threads() {
    let t = tree();
    let all: BTreeSet<PathBuf> = t.files.keys().cloned().collect();
    for threads in [1, 2, 3, 8, THREADS_MAX] {
        let (shown, code, seen) = collect(&t, threads, u32::MAX);
        assert_eq!((shown.len(), code, seen), (all.len(), 0, all.len() as u64));
        assert_eq!(shown.iter().cloned().collect::<BTreeSet<_>>(), all, "{threads} threads");
        let place = |p: &Path| shown.iter().position(|s| s == p);
        for p in &shown {
            assert!(p == &t.root || place(p.parent().unwrap()) < place(p), "{p:?} before its directory");
        }
    }
}

#[test]
fn one_thread_goes_down_before_it_goes_on() {
    let (shown, ..) = collect(&tree(), 1, u32::MAX);
    let place = |p: &str| shown.iter().position(|s| s.ends_with(p)).unwrap();
    assert!(place("deep/d/d/d/f3") < place("wide/d0"), "what is remembered is as much as there are levels");
    assert_eq!(shown[0], Path::new("/m"));
}

#[test]
fn directories_below_the_greatest_depth_are_not_opened() {
    let t = tree();
    let (shown, ..) = collect(&t, 2, 1);
    assert_eq!(shown.len(), 3);
    assert_eq!(t.asked.plain_pages.load(Ordering::Relaxed), 1, "the root's page");
    assert_eq!(collect(&t, 2, 0).0, [PathBuf::from("/m")]);
}

#[test]
fn a_directory_that_cannot_be_read_is_reported_and_passed_over() {
    let mut t = tree();
    t.add("wide/locked", FileType::Directory).refused = Some(Errno::EACCES);
    t.add("wide/locked/hidden", FileType::Regular);
    let (shown, code, _) = collect(&t, 3, u32::MAX);
    assert_eq!(code, Errno::EACCES.0);
    assert_eq!(shown.len(), t.files.len() - 1, "all but what is in it");
}

#[test]
fn a_walk_that_is_interrupted_ends_with_its_page() {
    let t = tree();
    for threads in [1, 4] {
        let (interrupt, seen) = (Interrupt::default(), AtomicU64::new(0));
        let run = Run::new("test", &interrupt, &seen);
        let c = Collector { shown: Mutex::default(), max_depth: u32::MAX, stop: Some((&interrupt, 20)) };
        walk(&t, &t.root, threads, &c, &run);
        let n = c.shown.into_inner().len();
        assert!((20..20 + PAGE * threads.max(2)).contains(&n), "{n} files, {threads} threads");
        assert_eq!(interrupt.exit_code(), Some(130));
    }
}

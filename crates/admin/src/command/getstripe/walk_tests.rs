//! Layouts of all that lies in a tree in memory: the same as of each file by itself, whoever walks.

use super::*;
use crate::walk::fake::{Fake, PAGE, striped};
use model::mutex::Mutex;
use model::{Errno, LayoutSpec};
use serde_json::Value;
use std::collections::BTreeSet;

/// What `-r` prints of the tree with some options, and the exit status.
fn shown(tree: &Fake, args: &[&str]) -> (String, i32) {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let p = getopt::parse(&args, OPTS).unwrap();
    let threads = p.number("threads", THREADS_MAX as u64).unwrap().unwrap_or(1) as usize;
    let (interrupt, seen, out) = (Interrupt::default(), AtomicU64::new(0), Mutex::new(Vec::new()));
    let run = Run::new("test", &interrupt, &seen);
    let write = |b: &[u8]| out.lock().extend_from_slice(b);
    let printer = Printer::new(&p).unwrap();
    let output = LayoutOutput::new(&printer, &p, &write);
    walk::walk_below(tree, &tree.root, (&tree.root, 0), threads, &output, &run);
    output.end();
    (String::from_utf8(out.into_inner()).unwrap(), run.finish().exit_code())
}

/// As it would be printed of one file or directory.
fn alone(path: &str, s: &Stripe, args: &[&str]) -> String {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let p = getopt::parse(&args, OPTS).unwrap();
    let printer = Printer::new(&p).unwrap();
    let mut piece = Piece::default();
    match s.kind {
        FileType::Directory => printer.dir(Path::new(path), s, &mut piece),
        _ => printer.file(Path::new(path), s, &mut piece),
    }
    piece.text
}

fn spec(stripe_count: i32) -> LayoutSpec {
    LayoutSpec { stripe_count, stripe_size: 1 << 20, ..LayoutSpec::default() }
}

/// Directories `a`, `a/b`, `c`, of more than a page, and `d`, with files of all kinds.
fn tree() -> Fake {
    let mut t = Fake::new();
    for dir in ["a", "a/b", "c", "d"] {
        t.add(dir, FileType::Directory).default = (dir == "c").then(|| spec(3));
    }
    for n in 0..2 * PAGE {
        t.add(&format!("c/small{n:02}"), FileType::Regular).grows_into = Some(spec(1 + n as i32 % 2));
        t.add(&format!("a/b/wide{n:02}"), FileType::Regular).layout = Some(striped(&[3, 1], 65536, ""));
    }
    t.add("a/empty", FileType::Regular).layout = None;
    t.add("a/flash", FileType::Regular).layout = Some(striped(&[2], 65536, "flash"));
    t.add("a/link", FileType::Symlink);
    t.add("d/fifo", FileType::Fifo);
    t
}

fn stripes(t: &Fake) -> Vec<(String, Stripe)> {
    let shown = |k: FileType| matches!(k, FileType::Directory | FileType::Regular);
    let below = t.files.iter().filter(|(p, f)| **p != t.root && shown(f.attr.kind));
    below.map(|(p, f)| (p.display().to_string(), f.stripe())).collect()
}

fn asked(t: &Fake) -> usize {
    t.asked.defaults.load(Ordering::Relaxed)
}

#[test]
fn a_walk_prints_what_each_file_would_say_by_itself_and_asks_for_directories_only() {
    for args in [&[][..], &["-v"], &["-c", "-S"], &["-F"], &["-q"], &["--component-flags=^init"]] {
        let t = tree();
        let (text, code) = shown(&t, &[&["-r"], args].concat());
        let all = stripes(&t);
        let total: usize = all.iter().map(|(p, s)| alone(p, s, args).len()).sum();
        assert_eq!((text.len(), code), (total, 0), "{args:?}");
        for (p, s) in &all {
            assert!(text.contains(&alone(p, s, args)), "{p} {args:?}");
        }
        assert_eq!(asked(&t), 4, "one question a directory, none a file");
        for threads in ["2", "8"] {
            let (other, code) = shown(&tree(), &[&["-r", "--threads", threads], args].concat());
            let lines = |t: &str| -> BTreeSet<String> { t.lines().map(str::to_string).collect() };
            assert_eq!((other.len(), code, lines(&other)), (text.len(), 0, lines(&text)));
            for (p, s) in &all {
                assert!(other.contains(&alone(p, s, args)), "lines of two threads are mixed: {p}");
            }
        }
    }
}

#[test]
fn one_thread_prints_what_is_in_a_directory_before_what_is_deeper_and_sorted() {
    let (text, _) = shown(&tree(), &["-r", "-D"]);
    let dirs: Vec<&str> = text.lines().filter(|l| l.starts_with('/')).collect();
    assert_eq!(dirs, ["/m/a", "/m/c", "/m/d", "/m/a/b"], "only directories have defaults");
    let (text, _) = shown(&tree(), &["-r", "--threads=1"]);
    let place = |p: &str| text.lines().position(|l| l == p).unwrap();
    assert!(place("/m/a/flash") < place("/m/a/b/wide00") && place("/m/a/b/wide31") < place("/m/c/small00"));
    assert!(place("/m/c/small30") < place("/m/c/small31"));
}

#[test]
fn without_recursion_one_level_is_shown() {
    let (text, _) = shown(&tree(), &[]);
    let paths: Vec<&str> = text.lines().filter(|l| l.starts_with('/')).collect();
    assert_eq!(paths, ["/m/a", "/m/c", "/m/d"]);
}

#[test]
fn servers_that_do_not_say_what_files_grow_into_are_asked_file_by_file() {
    let t = Fake { is_of_old: true, ..tree() };
    assert_eq!(shown(&t, &["-r"]), shown(&tree(), &["-r"]));
    assert_eq!(asked(&t), 4 + 2 * PAGE, "directories, and files that lie with their inode");
}

#[test]
fn yaml_is_a_document_each_whoever_prints_it() {
    let documents = |args: &[&str]| -> BTreeSet<String> {
        let (text, _) = shown(&tree(), args);
        assert!(!text.starts_with("---") && !text.contains("---\n---"), "{text}");
        text.split("---\n").map(str::to_string).collect()
    };
    let all = documents(&["-r", "-y"]);
    assert_eq!(all.len(), stripes(&tree()).len() - 1, "all but the file without a layout");
    for (p, s) in stripes(&tree()) {
        let one = alone(&p, &s, &["-y"]);
        assert!(one.is_empty() || all.contains(one.trim_start_matches("---\n")), "{p}");
    }
    assert_eq!(documents(&["-r", "-y", "--threads=4"]), all);
}

#[test]
fn files_on_an_ost_are_picked() {
    let (text, _) = shown(&tree(), &["-r", "-O", "2"]);
    let paths: Vec<&str> = text.lines().filter(|l| l.starts_with('/')).collect();
    assert_eq!(paths, ["/m/a/flash"], "{text}");
}

#[test]
fn json_is_one_array_of_the_rows_of_all() {
    let want: BTreeSet<String> = stripes(&tree())
        .iter()
        .map(|(p, s)| as_json(Path::new(p), s, &Filter::default()).to_string())
        .collect();
    for threads in ["1", "4"] {
        let (text, code) = shown(&tree(), &["-r", "--json", "--threads", threads]);
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!((rows.len(), code), (want.len(), 0));
        assert_eq!(rows.iter().map(Value::to_string).collect::<BTreeSet<_>>(), want);
        assert_eq!(text, format!("{:#}\n", json!(rows)), "as if it was printed at once");
    }
    let nothing = Fake::new();
    assert_eq!(shown(&nothing, &["-r", "--json"]).0, "[]\n");
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_is_shown() {
    let mut t = tree();
    t.files.get_mut(Path::new("/m/a/b")).unwrap().refused = Some(Errno::EACCES);
    let (text, code) = shown(&t, &["-r", "--threads=3"]);
    assert_eq!(code, Errno::EACCES.0);
    assert!(text.contains("/m/a/b\n") && !text.contains("wide") && text.contains("/m/c/small31\n"));
    let mut t = tree();
    t.files.get_mut(Path::new("/m/a/b")).unwrap().may_not_search = true;
    let (text, code) = shown(&t, &["-r"]);
    assert_eq!(code, Errno::EACCES.0, "names alone say nothing of layouts");
    assert!(!text.contains("wide") && text.contains("/m/c/small31\n"));
}

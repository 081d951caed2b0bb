//! Scans of temporary directories: right and wrong files, and scans that were ended.

use super::*;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU32, Ordering};
use world::sys::tree::{Folder, Node};

static SERIAL: AtomicU32 = AtomicU32::new(0);
const ATTRIBUTE: &str = "user.storm.checksum.adler32";

struct Scratch(PathBuf);

impl Scratch {
    /// 60 files in six folders; `None` where the file system keeps no attributes.
    fn new() -> Option<Scratch> {
        let n = SERIAL.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("nacre-checksum-{}-{n}", std::process::id()));
        let s = Scratch(dir);
        for i in 0..60 {
            let below = s.0.join(format!("tree/d{}", i % 6));
            files::create_dir_all(&below).unwrap();
            files::replace(below.join(format!("f{i}")), format!("file {i}").as_bytes()).unwrap();
        }
        let d = Folder::open(&s.0).unwrap();
        Node::Named(&d, OsStr::new("tree")).set_xattr(OsStr::new("user.x"), b"x").ok()?;
        Some(s)
    }

    fn args(&self, more: &[&str]) -> ScanArgs {
        let dir = self.0.join("tree").into_os_string();
        let words = [NAME.into(), "scan".into(), dir].into_iter();
        let Command::Scan(args) =
            Args::try_parse_from(words.chain(more.iter().map(OsString::from))).unwrap().command;
        args
    }

    fn scan(&self, more: &[&str], stop: &Stop) -> Totals {
        command(&self.args(more), stop, &ProgressLine::none()).unwrap()
    }

    fn all(&self, more: &[&str]) -> Totals {
        self.scan(more, &Stop::default())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.0);
    }
}

#[test]
fn a_file_that_is_not_what_its_checksum_says_is_found() {
    let Some(s) = Scratch::new() else { return };
    let t = s.all(&[]);
    assert_eq!((t.files, t.without, t.bytes, t.is_well()), (60, 60, 0, true));
    let t = s.all(&["--set"]);
    assert_eq!((t.set, t.without), (60, 0));
    assert_eq!(s.all(&[]).matched, 60);
    let d = Folder::open(&s.0.join("tree/d0")).unwrap();
    let kept = Node::Named(&d, OsStr::new("f6")).xattr(OsStr::new(ATTRIBUTE)).unwrap().unwrap();
    assert_eq!(kept, b"07cc01f7", "{}", String::from_utf8_lossy(&kept));
    d.write_file(OsStr::new("f6")).unwrap().write_at(b"F", 0).unwrap();
    Node::Named(&d, OsStr::new("f12")).set_xattr(OsStr::new(ATTRIBUTE), b"no sum").unwrap();
    let t = s.all(&["--set"]);
    assert_eq!((t.matched, t.mismatched, t.set), (58, 2, 0), "a wrong one is not set right: {t:?}");
    let wrong = t.mismatches.iter().find(|f| f.path.ends_with("d0/f6")).unwrap();
    assert_eq!(wrong.kept.as_deref(), Some("07cc01f7"));
    assert!(!t.is_well());
}

#[test]
fn the_kind_comes_from_the_name_or_is_said() {
    let Some(s) = Scratch::new() else { return };
    for kind in ["crc32c", "md5", "sha256"] {
        let name = format!("user.sum.{kind}");
        assert_eq!(s.all(&["--set", "--xattr", &name]).set, 60);
        assert_eq!(s.all(&["--xattr", &name, "--type", kind]).matched, 60);
    }
    let unknown = |more: &[&str]| command(&s.args(more), &Stop::default(), &ProgressLine::none()).is_err();
    assert!(unknown(&["--xattr", "user.sum"]) && unknown(&["--type", "crc64"]));
    assert_eq!(s.all(&["--since", "1h"]).files, 60);
    assert_eq!(age("2w"), Ok(1_209_600));
    assert!(age("x").is_err() && age("-1").is_err());
}

#[test]
fn a_scan_that_was_ended_goes_on_behind_the_directories_that_are_done() {
    let Some(s) = Scratch::new() else { return };
    s.all(&["--set"]);
    let d = Folder::open(&s.0.join("tree/d3")).unwrap();
    d.write_file(OsStr::new("f3")).unwrap().write_at(b"F", 0).unwrap();
    let file = s.0.join("state").display().to_string();
    let state = ["--state", &file, "--threads", "1"];
    let mut runs = 0;
    let mut read = 0;
    let last = loop {
        let before = files::read(&file).map_or(0, |t| t.len());
        // Somebody cut the last line short.
        if before > 0 {
            let mut torn = files::read(&file).unwrap();
            torn.extend(b"{\"done\":[");
            files::replace(&file, &torn).unwrap();
        }
        let stop = Stop::after(35);
        let t = s.scan(&state, &stop);
        runs += 1;
        assert!(runs < 20, "each run gets further");
        read = t.files.max(read);
        if !stop.wanted() {
            break t;
        }
    };
    assert!(runs > 1);
    assert_eq!((last.files, last.matched, last.mismatched), (60, 59, 1), "found in whichever run: {last:?}");
    assert_eq!(last.mismatches.len(), 1);
    assert!(files::read(&file).is_err(), "a complete scan leaves no state");
}

#[test]
fn the_state_of_another_scan_is_refused() {
    let Some(s) = Scratch::new() else { return };
    let file = s.0.join("state").display().to_string();
    s.scan(&["--state", &file], &Stop::after(3));
    let other = s.args(&["--state", &file, "--set"]);
    let refused = command(&other, &Stop::default(), &ProgressLine::none()).unwrap_err();
    assert!(refused.to_string().contains("another scan"), "{refused}");
    files::replace(&file, b"something else\n").unwrap();
    assert!(command(&s.args(&["--state", &file]), &Stop::default(), &ProgressLine::none()).is_err());
}

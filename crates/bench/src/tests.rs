//! Small runs on a folder of the host, processes played by threads.

use crate::args::{Io500Args, IorArgs, IozoneArgs, MdtestArgs};
use crate::crew::Stop;
use crate::layout::FileLayout;
use crate::{io500, ior, iozone, mdtest, pattern, report, sweep};
use anyhow::Result;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use world::sys::{files, load};

static SERIAL: AtomicU32 = AtomicU32::new(0);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let n = SERIAL.fetch_add(1, Ordering::Relaxed);
        let p = std::env::temp_dir().join(format!("nacre-bench-{}-{n}", std::process::id()));
        files::create_dir_all(&p).unwrap();
        Scratch(p)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        files::list(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.0);
    }
}

fn parsed<A: Parser>(dir: &Path, line: &str) -> Result<A> {
    let line = line.replace("DIR", &dir.display().to_string());
    let words = ["bench", "--threads", "--json"].into_iter().chain(line.split_whitespace());
    Ok(A::try_parse_from(words)?)
}

fn run_ior(dir: &Path, line: &str) -> Result<Vec<crate::Row>> {
    ior::run(&parsed::<IorArgs>(dir, line)?.settle()?, &Stop::default(), None)
}

fn run_mdtest(dir: &Path, line: &str) -> Result<Vec<crate::Row>> {
    mdtest::run(&parsed::<MdtestArgs>(dir, line)?.settle()?, &Stop::default(), None)
}

fn fails<T>(r: Result<T>, part: &str) {
    match r {
        Ok(_) => panic!("no error that says '{part}'"),
        Err(e) => assert!(format!("{e:#}").contains(part), "'{e:#}' does not say '{part}'"),
    }
}

#[test]
fn a_shared_file_of_records_is_exact() {
    let s = Scratch::new();
    let rows = run_ior(&s.0, "--procs 3 -t 47008 -b 94016 -s 4 -C -e -R -k DIR").unwrap();
    let total = 3 * 94_016 * 4;
    for (r, phase) in rows.iter().zip(["write", "read"]) {
        assert_eq!((r.phase.as_str(), r.bytes, r.steps, r.wrong), (phase, total, 24, 0));
        assert!(r.rate > 0.0 && r.seconds > 0.0 && r.latency_us.p99 >= r.latency_us.p50);
    }
    let got = files::read(s.file("nacre-bench.ior")).unwrap();
    let mut want = vec![0; total as usize];
    pattern::fill(&mut want, pattern::key(0), 0);
    assert!(got == want, "each record at its place");
}

#[test]
fn files_of_their_own_random_direct() {
    let s = Scratch::new();
    run_ior(&s.0, "--procs 2 -F -t 4k -b 64k -s 2 -z -B -Y -R -w -k DIR").unwrap();
    assert_eq!(s.names(), ["nacre-bench.ior.00000000", "nacre-bench.ior.00000001"]);
    for rank in 0..2 {
        let got = files::read(s.file(&s.names()[rank])).unwrap();
        let mut want = vec![0; 128 << 10];
        pattern::fill(&mut want, pattern::key(rank as u64), 0);
        assert!(got == want, "file of {rank}");
    }
    // in one more run, which removes them at its end
    let rows = run_ior(&s.0, "--procs 2 -F -t 4k -b 64k -s 2 -z -C -R -r -i 2 DIR").unwrap();
    assert_eq!(
        rows.iter().map(|r| (r.bytes, r.wrong, r.iteration)).collect::<Vec<_>>(),
        [(256 << 10, 0, 0), (256 << 10, 0, 1)]
    );
    assert!(s.names().is_empty());
}

#[test]
fn a_flipped_bit_is_found() {
    let s = Scratch::new();
    run_ior(&s.0, "--procs 2 -t 1k -b 8k -w -R -k DIR").unwrap();
    let how = load::OpenHow { write: true, ..Default::default() };
    let f = load::LoadFile::open(&s.file("nacre-bench.ior"), how).unwrap();
    let mut byte = [0];
    f.read_at(&mut byte, 9000).unwrap();
    f.write_at(&[byte[0] ^ 4], 9000).unwrap();
    let rows = run_ior(&s.0, "--procs 2 -t 1k -b 8k -r -R -k DIR").unwrap();
    assert_eq!((rows[0].wrong, rows[0].steps), (1, 16));
    fails(run_ior(&s.0, "--procs 2 -t 1k -b 16k -r -k DIR"), "ends at");
    assert_eq!(s.names(), ["nacre-bench.ior"], "a run that only reads and fails removes nothing");
}

#[test]
fn a_time_limit_wears_out_and_is_remembered() {
    let s = Scratch::new();
    let line =
        "--procs 3 -F -t 4k -b 1g -D 0.2 -O stoneWallingWearOut=1 -O stoneWallingStatusFile=DIR/st -w -k DIR";
    let rows = run_ior(&s.0, line).unwrap();
    let each = rows[0].steps / 3;
    assert!(each > 0 && rows[0].steps < 3 << 18, "{}", rows[0].steps);
    assert_eq!(rows[0].done, [each; 3], "all did the same");
    assert!(!rows[0].samples.is_empty());
    assert_eq!(files::read_to_string(s.file("st")).unwrap(), format!("{each}\n"));
    let rows = run_ior(&s.0, "--procs 3 -F -t 4k -b 1g --status-file DIR/st -C -r DIR").unwrap();
    assert_eq!(rows[0].steps, each * 3, "no further than was written");
}

#[test]
fn several_directories_share_the_processes() {
    let s = Scratch::new();
    for d in ["a", "b"] {
        files::create_dir_all(s.file(d)).unwrap();
    }
    // two directories that are not the same file system show who goes where
    run_ior(&s.0, "--procs 3 -F -w -k --dirs DIR/a,DIR/b -o f").unwrap();
    assert_eq!(files::list(s.file("a")).unwrap(), ["f.00000000", "f.00000002"]);
    assert_eq!(files::list(s.file("b")).unwrap(), ["f.00000001"]);
}

#[test]
fn mdtest_counts_and_leaves_nothing() {
    let s = Scratch::new();
    for (line, trees) in [("-u", 3), ("", 1)] {
        let line = format!("--procs 3 -n 20 -z 2 -b 2 -N 1 -w 100 -e 100 -R -X {line} DIR");
        let rows = run_mdtest(&s.0, &line).unwrap();
        let got: Vec<(&str, u64, u64)> = rows.iter().map(|r| (r.phase.as_str(), r.steps, r.bytes)).collect();
        assert_eq!(
            got,
            [
                ("Tree creation", 7 * trees, 0),
                ("Directory creation", 60, 0),
                ("Directory stat", 60, 0),
                ("Directory removal", 60, 0),
                ("File creation", 60, 6000),
                ("File stat", 60, 0),
                ("File read", 60, 6000),
                ("File removal", 60, 0),
                ("Tree removal", 7 * trees, 0),
            ]
        );
        assert!(rows.iter().all(|r| r.wrong == 0));
        assert!(s.names().is_empty(), "{:?}", s.names());
    }
}

#[test]
fn mdtest_phases_by_themselves_work_on_what_is_there() {
    let s = Scratch::new();
    let common = "--procs 2 -n 100000 -F -P -N 1 -d DIR/md -x DIR/st";
    let made = run_mdtest(&s.0, &format!("{common} -C -W 0.2 -w 10")).unwrap();
    let each = made[1].steps / 2;
    assert!(each > 0 && each < 100_000, "{each}");
    let rows = run_mdtest(&s.0, &format!("{common} -T -E -e 10")).unwrap();
    assert_eq!(rows.iter().map(|r| r.steps).collect::<Vec<_>>(), [each * 2, each * 2]);
    fails(run_mdtest(&s.0, &format!("{common} -E -e 11")), "has 10 bytes");
    run_mdtest(&s.0, &format!("{common} -r")).unwrap();
    assert_eq!(files::list(s.file("md")).unwrap(), Vec::<String>::new());
}

#[test]
fn io500_has_its_phases_and_a_score() {
    let s = Scratch::new();
    let line =
        "--procs 2 --seconds 0.05 --easy-block 4m --hard-segments 20 --easy-files 30 --hard-files 20 DIR";
    let a = parsed::<Io500Args>(&s.0, line).unwrap().settle().unwrap();
    let rows = io500::run(&a, &Stop::default()).unwrap();
    let names: Vec<&str> = rows.iter().map(|r| r.phase.as_str()).collect();
    assert_eq!(
        names,
        [
            "ior-easy-write",
            "mdtest-easy-write",
            "ior-hard-write",
            "mdtest-hard-write",
            "find",
            "ior-easy-read",
            "mdtest-easy-stat",
            "ior-hard-read",
            "mdtest-hard-stat",
            "mdtest-easy-delete",
            "mdtest-hard-read",
            "mdtest-hard-delete",
        ]
    );
    let score = io500::score(&rows);
    assert!(score.bandwidth > 0.0 && score.metadata > 0.0);
    assert!((score.total.powi(2) - score.bandwidth * score.metadata).abs() < 1e-6);
    // all files, the data files and the directories above them
    let files_made = rows[1].steps + rows[3].steps;
    assert_eq!(rows[4].steps, files_made + 3 + 2 + 2 + 3);
    assert!(s.names().is_empty());
}

#[test]
fn the_json_document_has_what_scripts_read() {
    let s = Scratch::new();
    let a = parsed::<IorArgs>(&s.0, "--procs 2 -i 2 DIR").unwrap();
    let rows = ior::run(&a.clone().settle().unwrap(), &Stop::default(), None).unwrap();
    let doc = report::document("ior", &a, &rows, None);
    assert_eq!((&doc["benchmark"], &doc["options"]["common"]["procs"]), (&"ior".into(), &2.into()));
    assert_eq!(doc["rows"].as_array().unwrap().len(), 4);
    let row = &doc["rows"][0];
    for key in ["seconds", "rate", "open_seconds", "move_seconds", "close_seconds"] {
        assert!(row[key].is_f64(), "{key}");
    }
    assert_eq!((&row["phase"], &row["unit"]), (&"write".into(), &"MiB/s".into()));
    assert_eq!((&row["bytes"], &row["steps"], &row["wrong"]), (&(2 << 20).into(), &8.into(), &0.into()));
    assert!(row["latency_us"]["p99"].is_f64() && row["samples"].is_array());
    assert_eq!(doc["summary"][1]["phase"], "read");
    assert!(doc["summary"][1]["spread"].is_f64() && doc["inventory"]["kernel"].is_string());
    assert!(doc["summary"][1]["max"].as_f64() >= doc["summary"][1]["mean"].as_f64());
}

#[test]
fn sweeps_make_points() {
    let s = Scratch::new();
    let a = parsed::<IorArgs>(&s.0, "--sweep transfer=64k,100k -b 200k -w DIR").unwrap();
    let mut rows = Vec::new();
    for (label, one) in sweep::ior(&a).unwrap() {
        rows.extend(ior::run(&one.settle().unwrap(), &Stop::default(), label).unwrap());
    }
    assert_eq!(rows.iter().map(|r| r.bytes).collect::<Vec<_>>(), [192 << 10, 200 << 10]);
    let chart = sweep::chart("t", &a.common, &rows);
    assert_eq!(chart.series.len(), 1);
    assert_eq!(chart.series[0].points.iter().map(|p| p.0).collect::<Vec<_>>(), [65_536.0, 102_400.0]);
    fails(sweep::ior(&parsed(&s.0, "--sweep nonsense=1 DIR").unwrap()), "procs and transfer");
    fails(sweep::ior(&parsed(&s.0, "--sweep procs=0 DIR").unwrap()), "1 to 4096");
    fails(sweep::mdtest(&parsed(&s.0, "--sweep items=x DIR").unwrap()), "'x'");
}

#[test]
fn an_interrupted_run_removes_what_it_made() {
    let s = Scratch::new();
    let stop = Stop::default();
    let a = parsed::<IorArgs>(&s.0, "--procs 2 -t 4k -b 64m -D 20 -w DIR").unwrap().settle().unwrap();
    let (there, killer) = (s.file("nacre-bench.ior"), stop.clone());
    world::sys::thread("killer", move || {
        let d = world::sys::Deadline::after(std::time::Duration::from_secs(10));
        d.wait_for(|| files::stat(&there, true).ok().filter(|s| s.size > 0));
        killer.now();
    })
    .unwrap();
    fails(ior::run(&a, &stop, None), "interrupted");
    assert!(s.names().is_empty());
}

#[test]
fn lines_of_published_studies_are_taken_as_written() {
    let s = Scratch::new();
    let line = "-a POSIX -N 3 -b 8k -d 0 -t 1k -o DIR/FILE -e -g -w -r -s 1 -i 2 -vv -F -C";
    let rows = run_ior(&s.0, line).unwrap();
    assert_eq!(rows.iter().map(|r| (r.procs, r.bytes)).collect::<Vec<_>>(), [(3, 24 << 10); 4]);
    run_ior(&s.0, "-a POSIX -b 16k -w -t 4k -o DIR/kept -F -k -B").unwrap();
    assert_eq!(run_ior(&s.0, "-a POSIX -b 16k -t 4k -o DIR/kept -F -r").unwrap()[0].bytes, 16 << 10);
    // twice -u, and -r where nothing was left behind
    let rows = run_mdtest(&s.0, "-u -d DIR/md -i 3 -b 3 -z 1 -L -I 2 -y -u -t -r").unwrap();
    assert_eq!(
        rows.iter().filter(|r| r.phase == "File creation").map(|r| r.steps).collect::<Vec<_>>(),
        [6; 3]
    );
    let rows = run_mdtest(&s.0, "-i 5 -F -w 4096 -L -n 4 -d DIR/md -v").unwrap();
    assert_eq!(rows.iter().filter(|r| r.phase == "File removal").count(), 5);
    assert!(s.names().is_empty(), "{:?}", s.names());
}

#[test]
fn iozone_goes_through_records_in_its_orders() {
    let s = Scratch::new();
    let run = |line: &str| iozone::run(&parsed::<IozoneArgs>(&s.0, line)?.settle()?, &Stop::default());
    let rows = run("-e -+u -t 2 -r 16k -s 1m -i0 -i1 -i 5 -i 8 DIR").unwrap();
    let names: Vec<&str> = rows.iter().map(|r| r.phase.as_str()).collect();
    assert_eq!(names, ["write", "rewrite", "read", "reread", "stride", "mixed"]);
    assert!(rows.iter().all(|r| r.bytes == 2 << 20 && r.steps == 128 && r.rate > 0.0));
    // each order finds what was written at each place
    let rows = run("--verify -t 2 -r 4 -s 404k -i 0 -i 1 -i 2 -i 3 -i 5 -i 8 -w DIR").unwrap();
    assert_eq!(rows.len(), 9);
    assert!(rows.iter().all(|r| r.wrong == 0), "{rows:?}");
    assert_eq!(run("--verify -t 2 -r 4k -s 404k -i 3 -w DIR").unwrap()[0].wrong, 0);
    run("-t 2 -i 0 DIR").unwrap();
    assert!(s.names().is_empty(), "{:?}", s.names());
    fails(run("-+m LIST -h HOST -e -+u -t 10 -r 1024k -s 24g -i0 -i1 -i 5 -i 8"), "run it on each");
    fails(run("-i 7 DIR"), "-i 7");
    fails(run("-i 1 DIR"), "-i 0 writes");
    fails(run("-r 2m -s 1m DIR"), "not more than -s");
}

#[test]
fn mistakes_have_words() {
    let s = Scratch::new();
    fails(run_ior(&s.0, "-t 3 -b 10 DIR"), "multiple");
    fails(run_ior(&s.0, "-t 0 DIR"), "1 byte");
    fails(run_ior(&s.0, "-a MPIIO DIR"), "POSIX");
    fails(run_ior(&s.0, "-O what=1 DIR"), "what");
    fails(run_ior(&s.0, "-b 8e -t 1m -s 4 DIR"), "more than a file");
    fails(run_ior(&s.0, ""), "which directory");
    fails(run_ior(&s.0, "DIR/missing"), "No such file");
    fails(run_ior(&s.0, "-r DIR"), "No such file");
    fails(run_ior(&s.0, "--hook false DIR"), "hook");
    fails(run_mdtest(&s.0, "-F -D DIR"), "nothing to do");
    fails(run_mdtest(&s.0, "-z 60 -b 10 DIR"), "too many directories");
    fails(run_mdtest(&s.0, "-T DIR"), "No such file");
    fails(parsed::<IorArgs>(&s.0, "-t 1x DIR"), "1x");
    fails(parsed::<IorArgs>(&s.0, "--procs 0 DIR"), "1 to 4096");
    let l = FileLayout { procs: 1, block: 1, transfer: 1, segments: 1, shared: true };
    assert_eq!(l.total(), 1);
    assert!(s.names().is_empty());
}

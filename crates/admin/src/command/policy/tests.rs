//! Rules over trees in memory: what they take, what becomes of it, and what is said about it.

use super::actor::Actor;
use super::gather::{SelectionVisitor, Taken, entry};
use super::parse::parse;
use super::rules::{Entry, Order, Rule, Time, at_latest};
use super::run::{PolicyContext, Progress, Worker, row};
use super::select::{Due, Selection, due_by_space};
use super::show;
use super::state::Store;
use crate::command::df::Numbers;
use crate::command::find::candidate::Candidate;
use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use crate::walk::fake::{Fake, striped};
use crate::walk::index::{self, Answer, Index, ScanPlan};
use crate::walk::{self, Run, Tree};
use client::control::{Completed, Name, OfObjects};
use model::mutex::Mutex;
use model::{Errno, Fid, FileType, Timestamp};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use wire::msg::scan::{Cursor, Test};

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 86400;
const MIB: u64 = 1 << 20;

fn rules(text: &str) -> Vec<Rule> {
    parse(text).unwrap_or_else(|wrong| panic!("{wrong:?}"))
}

fn mistakes(text: &str) -> Vec<String> {
    let wrong = parse(text).expect_err("something is wrong in it");
    wrong.into_iter().map(|m| format!("{}: {}", m.line, m.text)).collect()
}

const SITE: &str = "\
# What a site wants.
directory = /m

[tell-the-heaviest]
when space > 70%
accessed > 10d
exempt user = 70003
action = notify
command = /bin/tell --policy
users = 2

[purge-the-oldest]
when space > 90% until 60%
path = scratch/*   # and all below
accessed > 30d
size > 0
exempt path = scratch/keep/* and size < 1G
exempt user = 70003
order = accessed
action = purge
rate = 100000
";

#[test]
fn a_file_of_rules_is_read() {
    let all = rules(SITE);
    let lines: Vec<String> = all.iter().map(show::rule_line).collect();
    assert_eq!(
        lines,
        [
            "tell-the-heaviest: notify 2 users with /bin/tell --policy below /m: 1 condition, 1 exemption; \
             space above 70% until 70%; in no order; 100000 files at most",
            "purge-the-oldest: purge below /m: 3 conditions, 2 exemptions; space above 90% until 60%; longest \
             not accessed first; 100000 files at most; 100000 files a second",
        ]
    );
    assert!(all[1].text.contains("path = scratch/*\n"), "comments are no part of a rule");
    assert_eq!(show::rule_row(&all[1])["when"], "space above 90% until 60%");
}

#[test]
fn every_mistake_is_told_with_its_line() {
    let text = "\
size > 1M
[a]
directory = relative
acces > 30d
accessed = 30d
accessed > 30
size > much
user < 3
exempt order = size
exempt = user root
when full
when space > 80% until 90%
order = name
order = size
rate = 0
action = burn
[a
[b/c]
[p]
directory = /m
action = purge
[n]
directory = /m
action = notify
to = fast
[q]
directory = /m
path = x
";
    let told = mistakes(text);
    let lines: Vec<&str> = told.iter().filter_map(|t| t.split(':').next()).collect();
    let expected = [
        "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "17", "18", "19",
        "22", "26",
    ];
    assert_eq!(lines, expected, "{told:#?}");
    for part in [
        "1: 'size > 1M' stands before the first rule, where only directory = DIR may",
        "3: 'relative' is no path from / on",
        "4: 'acces' is nothing that a rule has: accessed, action,",
        "5: 'accessed' is compared with <, <=, > or >=, not '='",
        "6: '30' is no age: numbers with s, m, h, d, w or y behind them, as 30d",
        "7: 'much' is no size",
        "8: 'user' has '=' behind it, not '<'",
        "9: 'order' is no condition",
        "12: 'when space > 80% until 90%': what is freed ends above where it begins",
        "14: 'order' is said twice",
        "19: rule 'p': its action 'purge' needs 'at least one condition on files'",
        "22: rule 'n': 'to' is for 'action = migrate' alone",
        "26: rule 'q' has no action",
    ] {
        assert!(told.iter().any(|t| t.starts_with(part)), "{part}\n{told:#?}");
    }
    assert_eq!(mistakes("# nothing\n"), ["1: there is no rule: one begins with its name, [NAME]"]);
    let twice = mistakes("directory = /m\n[a]\naction = report\n[a]\naction = report\n");
    assert!(twice[0].contains("two rules of the name 'a'"), "{twice:?}");
}

#[test]
fn the_example_of_the_manual_is_right() {
    let page = include_str!("../../../../../docs/man/nacre-policy.8");
    let example = page.split(".nf\n").nth(1).and_then(|t| t.split(".fi\n").next()).expect("an example");
    let all = rules(&example.replace("\\-", "-"));
    let names: Vec<&str> = all.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["tell-the-heaviest", "purge-scratch"]);
}

fn at(sec: i64) -> Timestamp {
    Timestamp { sec, nsec: 0 }
}

fn file(n: u32, uid: u32, atime: i64, space: u64) -> Entry {
    Entry {
        path: Name(format!("scratch/f{n}").into_bytes()),
        fid: Fid::new(7, n, 0),
        uid,
        gid: uid,
        projid: 0,
        nlink: 1,
        size: space,
        space,
        atime: at(atime),
        mtime: at(atime),
        ctime: at(atime),
        btime: at(atime),
        pool: String::new(),
        osts: Vec::new(),
    }
}

proptest! {
    /// All that fit, sorted, as many as are needed and may be taken: whatever order they were met in.
    #[test]
    fn a_selection_takes_what_a_sorted_list_would(
        files in proptest::collection::vec((0u32..4, 0i64..50, 0u64..9), 0..60),
        need in proptest::option::of(0u64..200),
        limit in 1usize..40,
        which in 0usize..3,
    ) {
        let mut rule = rules("directory = /m\n[r]\naccessed > 10s\nexempt user = 2\naction = purge\n").remove(0);
        rule.limit = limit;
        rule.order = [Order::None, Order::OldestFirst(Time::Accessed), Order::LargestFirst][which];
        let due = need.map_or(Due::All, Due::Bytes);
        let all: Vec<Entry> =
            files.iter().zip(1..).map(|((uid, t, space), n)| file(n, *uid, *t, *space)).collect();
        let mut s = Selection::new(&rule, &due, 50);
        for e in all.iter().rev() {
            // What a scan leaves out meanwhile changes nothing.
            if s.bound().is_none_or(|(time, latest)| e.time(time) <= latest) {
                s.offer(e.clone());
            }
        }
        let has_more = s.has_more();
        let got = s.into_entries();

        let mut naive: Vec<Entry> =
            all.into_iter().filter(|e| 50 - e.atime.sec > 10 && e.uid != 2).collect();
        match rule.order {
            Order::None => naive.sort_by_key(|e| e.fid),
            Order::LargestFirst => naive.sort_by_key(|e| (std::cmp::Reverse(e.space), e.fid)),
            Order::OldestFirst(_) => naive.sort_by_key(|e| (e.atime.sec, e.fid)),
        }
        let fitting = naive.len();
        if let Some(need) = need {
            let mut sum = 0;
            let mut wanted = 0;
            while sum < need && wanted < naive.len() {
                sum += naive[wanted].space;
                wanted += 1;
            }
            naive.truncate(wanted);
        }
        let wanted = naive.len();
        naive.truncate(limit);
        prop_assert_eq!(has_more, wanted > limit, "{} of {}", wanted, fitting);
        prop_assert_eq!(got, naive);
    }

    /// The metadata server's part of a rule never leaves out a file that fits, nor exempts one that is not.
    #[test]
    fn tests_of_the_index_leave_out_nothing_that_fits(
        uid in 0u32..5, atime in 0i64..100, size in 0u64..100, age in 0i64..100, bytes in 0u64..100,
        op in 0usize..4,
    ) {
        let op = ["<", "<=", ">", ">="][op];
        let text = format!(
            "directory = /m\n[r]\nuser = 1, 3\naccessed {op} {age}s\nsize {op} {bytes}\n\
             exempt user = 3 and size {op} {age}\nexempt path = x and user = 1\naction = report\n");
        let rule = rules(&text).remove(0);
        let e = file(1, uid, atime, size);
        let holds = |t: &wire::msg::scan::Test| match &t.condition {
            wire::msg::scan::Condition::Within(of, from, to) => {
                let n = match of {
                    wire::msg::scan::Number::Uid => i64::from(uid),
                    wire::msg::scan::Number::Atime => atime,
                    wire::msg::scan::Number::Size => size as i64,
                    other => panic!("{other:?}"),
                };
                (*from..=*to).contains(&n)
            }
            _ => true,
        };
        let may = rule.tests(100).iter().all(holds);
        prop_assert!(!rule.fits(&e, 100) || may);
        let unless = rule.unless(100);
        prop_assert_eq!(unless.len(), 1, "paths are not the index's business");
        let exempt = rule.exempt.iter().any(|x| x.iter().all(|c| c.holds(&e, 100)));
        prop_assert_eq!(unless[0].iter().all(holds), exempt, "its path is no exempt one");
    }
}

#[test]
fn space_makes_a_rule_due() {
    let rule = |when: &str, action: &str| {
        rules(&format!("directory = /m\n[r]\npath = *\nwhen {when}\naction = {action}\n")).remove(0)
    };
    let of = |used| Numbers { total: 120, used, available: 100 - used };
    let purge = rule("space > 80% until 50%", "purge");
    assert_eq!(due_by_space(&purge, of(81)), Due::Bytes(31));
    assert_eq!(due_by_space(&purge, of(80)), Due::Not("80% are used, not more than 80%".into()));
    assert_eq!(due_by_space(&rule("space > 80% until 50%", "report"), of(81)), Due::All);
    assert_eq!(due_by_space(&rule("space > 80%", "purge"), of(90)), Due::Bytes(10));
    assert_eq!(due_by_space(&rule("always", "purge"), of(0)), Due::All);
    assert!(matches!(due_by_space(&purge, Numbers::default()), Due::Not(_)));
}

/// A file system in memory.
struct FakeContext {
    tree: Mutex<Fake>,
    /// Bytes that its files can have.
    capacity: u64,
    told: Mutex<Vec<(String, String)>>,
    deleted: Mutex<Vec<PathBuf>>,
    /// Open files, and those that change behind each look.
    open: BTreeSet<PathBuf>,
    restless: BTreeSet<PathBuf>,
    /// Deletions up to an interrupt.
    patience: AtomicUsize,
    interrupt: Interrupt,
    now: AtomicU64,
    by_index: bool,
}

impl FakeContext {
    fn new(tree: Fake, capacity: u64) -> FakeContext {
        FakeContext {
            tree: Mutex::new(tree),
            capacity,
            told: Mutex::default(),
            deleted: Mutex::default(),
            open: BTreeSet::new(),
            restless: BTreeSet::new(),
            patience: AtomicUsize::new(usize::MAX),
            interrupt: Interrupt::default(),
            now: AtomicU64::new(NOW as u64),
            by_index: true,
        }
    }

    fn place(e: &Entry) -> PathBuf {
        Path::new("/m").join(OsStr::from_bytes(&e.path.0))
    }

    fn left(&self) -> Vec<String> {
        let tree = self.tree.lock();
        let files = tree.files.iter().filter(|(_, f)| f.attr.kind == FileType::Regular);
        files.map(|(p, _)| p.strip_prefix("/m").unwrap().display().to_string()).collect()
    }
}

impl Actor for FakeContext {
    fn look(&self, _rule: &Rule, e: &Entry) -> Result<Option<Entry>, Failure> {
        let (tree, path) = (self.tree.lock(), FakeContext::place(e));
        let Some(dir) = tree.open(path.parent().unwrap())? else { return Ok(None) };
        let name = Name(path.file_name().unwrap().as_bytes().to_vec());
        let Some(listed) = dir.inode(&name)?.filter(|l| l.fid == e.fid) else { return Ok(None) };
        let mut c = Candidate::new(path, 0, listed);
        Ok(crate::command::report::look(&mut c, &*dir)?.then(|| entry(&c, e.path.clone())))
    }

    fn purge(&self, _rule: &Rule, e: &Entry, _now: i64) -> Result<(), Failure> {
        let (mut tree, path) = (self.tree.lock(), FakeContext::place(e));
        let refused = |errno| Err(Failure::op("cannot purge", &path.display().to_string(), errno));
        if self.open.contains(&path) {
            return refused(Errno::EBUSY);
        }
        if self.restless.contains(&path) {
            tree.files.get_mut(&path).unwrap().attr.atime = at(NOW);
            return refused(Errno::ECANCELED);
        }
        tree.files.remove(&path).expect("it was there a moment ago");
        self.deleted.lock().push(path.strip_prefix("/m").unwrap().to_path_buf());
        if self.patience.fetch_sub(1, Relaxed) == 1 {
            self.interrupt.stop();
        }
        Ok(())
    }

    fn migrate(&self, _rule: &Rule, e: &Entry, pool: &str) -> Result<(), Failure> {
        let mut tree = self.tree.lock();
        tree.files.get_mut(&FakeContext::place(e)).unwrap().layout = Some(striped(&[5], 65536, pool));
        Ok(())
    }

    fn tell(&self, command: &[String], user: &str, text: &str) -> Result<(), Failure> {
        if user == "70009" {
            return Err(Failure::op("cannot run", &command[0], Errno::ENOENT));
        }
        self.told.lock().push((format!("{} {user}", command.join(" ")), text.to_string()));
        Ok(())
    }
}

impl PolicyContext for FakeContext {
    fn space(&self, _rule: &Rule) -> Result<Numbers, Failure> {
        let used = self.tree.lock().files.values().map(|f| f.attr.blocks * 512).sum();
        Ok(Numbers { total: self.capacity, used, available: self.capacity - used })
    }

    fn users_above(&self, _rule: &Rule, bytes: u64) -> Result<BTreeSet<u32>, Failure> {
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for f in self.tree.lock().files.values() {
            *sums.entry(f.attr.uid).or_default() += f.attr.blocks * 512;
        }
        Ok(sums.into_iter().filter(|(_, n)| *n > bytes).map(|(u, _)| u).collect())
    }

    fn gather(
        &self,
        rule: &Rule,
        due: &Due,
        (now, counts_all): (i64, bool),
    ) -> Result<(Taken, FirstError), Failure> {
        let (tree, seen) = (self.tree.lock(), AtomicU64::new(0));
        let run = Run::new("test", &self.interrupt, &seen);
        let (g, tests) = (SelectionVisitor::new(rule, due, now, counts_all), rule.tests(now));
        if self.by_index {
            let objects = Some(OfObjects::Space);
            let root = &rule.directory;
            let plan = ScanPlan { root, tests: &tests, objects, threads: 2, is_forced: true };
            index::scan(&*tree, &*tree, &plan, &g, &run);
        } else {
            walk::walk(&*tree, &rule.directory, 2, &g, &run);
        }
        Ok((g.finish(), run.finish()))
    }

    fn settle(&self, _rule: &Rule, _patience: Duration) {}

    fn now(&self) -> i64 {
        self.now.load(Relaxed) as i64
    }
}

/// A tree that remembers with which tests it was asked.
struct AskedTree<'a> {
    tree: &'a Fake,
    tests: Mutex<Vec<Vec<Test>>>,
}

impl Index for AskedTree<'_> {
    fn page(
        &self,
        after: Option<Cursor>,
        tests: &[Test],
        objects: Option<OfObjects>,
    ) -> Result<Completed, Answer> {
        self.tests.lock().push(tests.to_vec());
        self.tree.page(after, tests, objects)
    }
}

#[test]
fn a_scan_asks_for_nothing_younger_than_what_is_taken_unless_all_are_counted() {
    let mut tree = Fake::new();
    (0..60).for_each(|n| add(&mut tree, &format!("f{n}"), 70001, 100 + i64::from(n % 7), 1));
    let text = "directory = /m\n[r]\norder = accessed\nlimit = 3\naction = archive\nlist = /l\n";
    let rule = rules(text).remove(0);
    for counts_all in [false, true] {
        let asked = AskedTree { tree: &tree, tests: Mutex::default() };
        let (seen, interrupt, tests) = (AtomicU64::new(0), Interrupt::default(), rule.tests(NOW));
        let run = Run::new("test", &interrupt, &seen);
        let visitor = SelectionVisitor::new(&rule, &Due::All, NOW, counts_all);
        let (root, objects) = (&rule.directory, Some(OfObjects::Space));
        let plan = ScanPlan { root, tests: &tests, objects, threads: 1, is_forced: true };
        index::scan(&tree, &asked, &plan, &visitor, &run);
        let taken = visitor.finish();
        assert!(taken.entries.iter().all(|e| e.atime == at(NOW - 106 * DAY)) && taken.has_more);
        assert_eq!((taken.entries.len(), taken.fitting.map(|f| f.0)), (3, counts_all.then_some(60)));
        let last = asked.tests.lock().last().cloned().unwrap();
        let bound = at_latest(Time::Accessed, NOW - 106 * DAY);
        assert_eq!(last.contains(&bound), !counts_all, "{last:?}");
        assert_eq!(asked.tests.lock()[0], tests, "nobody knows a bound at first");
    }
}

/// A file of an owner, last read so many days ago, of so many MiB.
fn add(tree: &mut Fake, path: &str, uid: u32, days: i64, mib: u64) {
    for dir in Path::new(path).ancestors().skip(1).filter(|d| !d.as_os_str().is_empty()) {
        tree.add(dir.to_str().unwrap(), FileType::Directory);
    }
    let f = tree.add(path, FileType::Regular);
    f.attr.uid = uid;
    f.attr.gid = 50;
    (f.attr.size, f.attr.blocks) = (mib * MIB, mib * 2048);
    (f.attr.atime, f.attr.mtime, f.attr.ctime) = (at(NOW - days * DAY), at(NOW - days * DAY), at(NOW - DAY));
}

/// At 95 of 100 MiB: what a purge meets.
fn full() -> Fake {
    let mut t = Fake::new();
    add(&mut t, "scratch/a/old", 70001, 90, 10);
    add(&mut t, "scratch/a/older", 70001, 100, 10);
    add(&mut t, "scratch/b/oldest", 70002, 200, 5);
    add(&mut t, "scratch/b/recent", 70002, 20, 20);
    add(&mut t, "scratch/b/new", 70002, 1, 10);
    add(&mut t, "scratch/exempt", 70003, 400, 10);
    add(&mut t, "scratch/keep/x", 70001, 300, 10);
    add(&mut t, "home/x", 70001, 500, 10);
    add(&mut t, "scratch/c/31", 70004, 31, 10);
    t
}

/// A folder of its own for each test.
struct State(PathBuf);

impl State {
    fn new(name: &str) -> State {
        let dir = std::env::temp_dir().join(format!("nacre-policy-{}-{name}", std::process::id()));
        let _ = world::sys::files::remove_tree(&dir);
        world::sys::files::create_dir_all(&dir).unwrap();
        State(dir)
    }

    fn lines(&self, name: &str) -> Vec<serde_json::Value> {
        let text = world::sys::files::read(self.0.join(name)).unwrap_or_default();
        text.split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = world::sys::files::remove_tree(&self.0);
    }
}

/// What all rules come to, as it is printed, and the exit status.
fn run_all(site: &FakeContext, state: &State, text: &str, is_dry: bool) -> (String, i32) {
    let (store, progress, errors) =
        (Store::new(&state.0), Progress::default(), Mutex::new(FirstError::default()));
    let _lock = store.lock().unwrap();
    let interrupt = &site.interrupt;
    let worker = Worker { context: site, store: &store, interrupt, progress: &progress, errors: &errors };
    let all = rules(text);
    let came = super::run_all(&all, &worker, is_dry);
    let shown = came.iter().map(|(r, c)| show::came_text(r, c, is_dry)).collect();
    (shown, errors.into_inner().exit_code())
}

const PURGED: [&str; 4] = ["scratch/b/oldest", "scratch/a/older", "scratch/a/old", "scratch/c/31"];

#[test]
fn a_drill_tells_the_heaviest_and_deletes_the_oldest_in_order_until_there_is_room() {
    for by_index in [true, false] {
        let (state, site) = (State::new(&format!("drill{by_index}")), FakeContext::new(full(), 100 * MIB));
        let site = FakeContext { by_index, ..site };
        let expected = "\
tell-the-heaviest: would tell 2 users (7 fit, of 75.0M)
  70001                       4 files      40.0M
  70002                       2 files      25.0M
purge-the-oldest: would purge 4 files of 35.0M (4 fit, of 35.0M)
  70002             5.0M 2026-06-29T08:00:00Z /m/scratch/b/oldest
  70001            10.0M 2026-10-07T08:00:00Z /m/scratch/a/older
  70001            10.0M 2026-10-17T08:00:00Z /m/scratch/a/old
  70004            10.0M 2026-12-15T08:00:00Z /m/scratch/c/31
";
        assert_eq!(run_all(&site, &state, SITE, true), (expected.to_string(), 0));
        assert!(site.deleted.lock().is_empty() && site.told.lock().is_empty(), "nothing was done");
        assert!(state.lines("history").is_empty());

        let expected = "\
tell-the-heaviest: told 2 users (7 fit, of 75.0M)
  70001                       4 files      40.0M
  70002                       2 files      25.0M
purge-the-oldest: purged 4 files of 35.0M
";
        assert_eq!(run_all(&site, &state, SITE, false), (expected.to_string(), 0));
        let told = site.told.lock().clone();
        assert_eq!(
            told.iter().map(|t| t.0.as_str()).collect::<Vec<_>>(),
            ["/bin/tell --policy 70001", "/bin/tell --policy 70002"]
        );
        let expected = "\
70002: 2 files of 25.0M below /m (rule tell-the-heaviest)
/m/scratch/b/oldest 5.0M last accessed 2026-06-29T08:00:00Z
/m/scratch/b/recent 20.0M last accessed 2026-12-26T08:00:00Z
";
        assert_eq!(told[1].1, expected);
        let order: Vec<String> = site.deleted.lock().iter().map(|p| p.display().to_string()).collect();
        assert_eq!(order, PURGED);
        assert_eq!(
            site.left(),
            ["home/x", "scratch/b/new", "scratch/b/recent", "scratch/exempt", "scratch/keep/x"]
        );
        let list = state.lines("purge-the-oldest.deleted");
        let listed: Vec<&str> = list.iter().map(|l| l["path"].as_str().unwrap()).collect();
        assert_eq!(listed, PURGED.map(|p| format!("/m/{p}")));
        let first = &list[0];
        let of = ["uid", "size", "space", "atime", "certain"].map(|k| first[k].to_string());
        assert_eq!(of, ["70002", "5242880", "5242880", "1782720000", "true"]);
        assert_eq!(
            (&first["rule"], &first["when"]),
            (&serde_json::json!("purge-the-oldest"), &serde_json::json!("2027-01-15T08:00:00Z"))
        );

        // A second run has nothing to do: who was told is not told again, and there is room.
        let (again, code) = run_all(&site, &state, SITE, false);
        let expected = "\
tell-the-heaviest: not due: 60% are used, not more than 70%
purge-the-oldest: not due: 60% are used, not more than 90%
";
        assert_eq!((again.as_str(), code), (expected, 0));
        assert_eq!((site.deleted.lock().len(), site.told.lock().len()), (4, 2));
        let store = Store::new(&state.0);
        let history: Vec<String> = store.history().unwrap().iter().map(show::ended_line).collect();
        assert_eq!(
            history,
            [
                "2027-01-15T08:00:00Z notify tell-the-heaviest: 2 users told: complete",
                "2027-01-15T08:00:00Z purge purge-the-oldest: 4 files of 35.0M: complete",
            ]
        );
        assert!(store.plans().unwrap().is_empty());
    }
}

#[test]
fn no_more_goes_than_is_needed() {
    let (state, site) = (State::new("needed"), FakeContext::new(full(), 100 * MIB));
    let text = SITE.replace("until 60%", "until 85%");
    assert_eq!(run_all(&site, &state, &text, false).1, 0);
    let gone: Vec<String> = site.deleted.lock().iter().map(|p| p.display().to_string()).collect();
    assert_eq!(gone, PURGED[..2], "the oldest two are 15 MiB, and 10 are to go");
}

#[test]
fn a_run_that_was_ended_goes_on_with_its_list() {
    let (state, mut site) = (State::new("resumed"), FakeContext::new(full(), 100 * MIB));
    site.patience = AtomicUsize::new(2);
    let purge = SITE.replace("when space > 70%", "when space > 99%");
    let (said, _) = run_all(&site, &state, &purge, false);
    let expected = "\
tell-the-heaviest: not due: 95% are used, not more than 99%
purge-the-oldest: purged 2 files of 15.0M
  it was stopped: run it again to go on
";
    assert_eq!(said, expected);
    let store = Store::new(&state.0);
    let plan = store.plans().unwrap().remove(0);
    assert_eq!(
        show::plan_line(&plan, false),
        "purge-the-oldest: purge since 2027-01-15T08:00:00Z, ended before its end: run it again to go on: 2 of 4 \
         files are over (of 35.0M): 2 files of 15.0M"
    );
    assert_eq!(show::plan_row(&plan, true)["needed_bytes"], 35 * MIB);

    // What was under way when it was killed has happened, and half a line was written.
    site.tree.lock().files.remove(Path::new("/m/scratch/a/old"));
    super::state::append(&state.0.join("purge-the-oldest.done"), b"{\"outco").unwrap();
    // An older file that came meanwhile is not on the list.
    add(&mut site.tree.lock(), "scratch/late", 70001, 900, 1);
    site.interrupt = Interrupt::default();
    site.patience = AtomicUsize::new(usize::MAX);
    let (said, code) = run_all(&site, &state, &purge, false);
    assert!(said.contains("purged 1 files of 10.0M, 1 were gone, going on with an earlier run"), "{said}");
    assert_eq!(code, 0);
    let list = state.lines("purge-the-oldest.deleted");
    let certain: Vec<bool> = list.iter().map(|l| l["certain"].as_bool().unwrap()).collect();
    assert_eq!((certain, list.len()), (vec![true, true, false, true], 4));
    assert!(site.left().contains(&"scratch/late".to_string()));
    let ended = store.history().unwrap().remove(0);
    assert_eq!((ended.tally.done, ended.tally.gone, ended.result.as_str()), (3, 1, "complete"));
}

#[test]
fn a_list_of_a_rule_that_was_changed_is_given_up() {
    let (state, mut site) = (State::new("changed"), FakeContext::new(full(), 100 * MIB));
    site.patience = AtomicUsize::new(1);
    run_all(&site, &state, SITE, false);
    site.interrupt = Interrupt::default();
    site.patience = AtomicUsize::new(usize::MAX);
    let text =
        SITE.replace("exempt user = 70003\norder", "exempt user = 70001\norder").replace("> 90%", "> 85%");
    let (said, _) = run_all(&site, &state, &text, false);
    assert!(said.contains("purge-the-oldest: purged 2 files of 20.0M\n"), "{said}");
    let gone: Vec<String> = site.deleted.lock().iter().map(|p| p.display().to_string()).collect();
    assert_eq!(gone, ["scratch/b/oldest", "scratch/exempt", "scratch/c/31"], "as the new rule says");
    let results: Vec<String> =
        Store::new(&state.0).history().unwrap().into_iter().map(|e| e.result).collect();
    assert!(results.contains(&"given up: the rule was changed".to_string()), "{results:?}");
}

#[test]
fn what_changed_is_open_or_fails_stays_and_is_counted() {
    let (state, mut site) = (State::new("stays"), FakeContext::new(full(), 100 * MIB));
    site.open.insert("/m/scratch/b/oldest".into());
    site.restless.insert("/m/scratch/a/older".into());
    site.tree.lock().files.get_mut(Path::new("/m/scratch/a/old")).unwrap().attr.nlink = 2;
    let (said, code) = run_all(&site, &state, SITE, false);
    assert!(
        said.ends_with("purge-the-oldest: purged 1 files of 10.0M, 1 had changed, 1 were open\n"),
        "{said}"
    );
    assert_eq!(code, 0);
    assert_eq!(site.deleted.lock().len(), 1, "a file of two names is no candidate");
}

#[test]
fn who_cannot_be_told_is_told_the_next_time_and_others_are_not_told_twice() {
    let (state, site) = (State::new("told"), FakeContext::new(full(), 100 * MIB));
    site.tree.lock().files.get_mut(Path::new("/m/home/x")).unwrap().attr.uid = 70009;
    let text =
        "directory = /m\n[tell]\naccessed > 10d\naction = notify\ncommand = tell\nusers = 9\nremind = 5d\n";
    let (said, code) = run_all(&site, &state, text, false);
    assert!(said.contains("told 4 users, 1 could not be told"), "{said}");
    assert_eq!(code, Errno::ENOENT.0);
    assert_eq!(
        run_all(&site, &state, text, true).0,
        "\
tell: would tell 1 users (8 fit, of 85.0M)
  70009                       1 files      10.0M
"
    );
    site.now.store((NOW + 6 * DAY) as u64, Relaxed);
    assert!(run_all(&site, &state, text, true).0.contains("would tell 5 users"), "after five days all are");
}

#[test]
fn files_are_reported_listed_and_moved() {
    let (state, site) = (State::new("others"), FakeContext::new(full(), 100 * MIB));
    for path in ["scratch/b/new", "scratch/b/recent"] {
        let mut tree = site.tree.lock();
        let f = tree.files.get_mut(&Path::new("/m").join(path)).unwrap();
        f.layout = Some(striped(&[1, 2], 65536, if path.ends_with("new") { "fast" } else { "slow" }));
        let (of, a) = (|t: Timestamp| (t.sec, t.nsec), f.attr.clone());
        let (atime, mtime, ctime) = (of(a.atime), of(a.mtime), of(a.ctime));
        let (size, blocks) = (a.size, a.blocks);
        f.stat = Ok(world::sys::walk::FullStat { size, blocks, atime, mtime, ctime, btime: None });
    }
    let list = state.0.join("archive.list");
    let text = format!(
        "directory = /m\n[report]\nuser = 70002\norder = size\naction = report\n\
         [archive]\npath = home/*\naction = archive\nlist = {}\n\
         [move]\npath = scratch/*\nlayout = objects\naction = migrate\nto = slow\n",
        list.display()
    );
    let expected = "\
report: 3 files of 35.0M (3 fit, of 35.0M)
  70002            20.0M 2026-12-26T08:00:00Z /m/scratch/b/recent
  70002            10.0M 2027-01-14T08:00:00Z /m/scratch/b/new
  70002             5.0M 2026-06-29T08:00:00Z /m/scratch/b/oldest
archive: listed 1 files of 10.0M
move: moved 1 files of 10.0M
";
    assert_eq!(run_all(&site, &state, &text, false), (expected.to_string(), 0));
    assert_eq!(state.lines("archive.list")[0]["path"], "/m/home/x");
    let pool = site.tree.lock().files[Path::new("/m/scratch/b/new")].layout.clone().unwrap();
    assert_eq!(pool.components[0].pool, "slow");
    let (said, _) = run_all(&site, &state, &text, false);
    assert!(said.ends_with("move: moved 0 files of 0\n"), "{said}");
}

#[test]
fn users_of_much_space_make_a_rule_due() {
    let (state, site) = (State::new("usage"), FakeContext::new(full(), 100 * MIB));
    let of = |n| format!("directory = /m\n[r]\naccessed > 50d\nwhen usage > {n}\naction = report\n");
    assert_eq!(run_all(&site, &state, &of("1G"), false).0, "r: not due: no user uses more than 1.0G\n");
    let (said, _) = run_all(&site, &state, &of("36M"), false);
    assert!(said.starts_with("r: 4 files of 40.0M (4 fit, of 40.0M)\n") && !said.contains("70002"), "{said}");
}

#[test]
fn two_runs_do_not_work_at_once_and_a_damaged_list_is_not_used() {
    let (state, site) = (State::new("lock"), FakeContext::new(full(), 100 * MIB));
    let store = Store::new(&state.0);
    assert!(!store.is_locked().unwrap());
    {
        let _lock = store.lock().unwrap();
        assert!(store.is_locked().unwrap());
        let refused = store.lock().err().map(|f| f.to_string()).unwrap_or_default();
        assert!(refused.contains("another run has it: see 'nacre policy status'"), "{refused}");
    }
    super::state::append(&state.0.join("purge-the-oldest.plan"), b"no line of a plan\n").unwrap();
    let (_, code) = run_all(&site, &state, SITE, false);
    assert_eq!(code, Errno::EINVAL.0);
    assert!(site.deleted.lock().is_empty());
}

#[test]
fn a_file_is_shown_with_its_owner_and_times() {
    let rule = rules("directory = /m\n[r]\naction = report\n").remove(0);
    let r = row(&rule, &file(3, 70001, 12, 4096));
    assert_eq!(
        (&r["path"], &r["fid"]),
        (&serde_json::json!("/m/scratch/f3"), &serde_json::json!("[0x7:0x3:0x0]"))
    );
    assert_eq!(
        (&r["user"], &r["atime"], &r["space"]),
        (&serde_json::json!("70001"), &serde_json::json!(12), &serde_json::json!(4096))
    );
}

#[test]
fn options_are_checked() {
    let of = |args: &[&str]| super::command(&args.iter().map(std::ffi::OsString::from).collect::<Vec<_>>());
    for (args, part) in [
        (&[][..], "say what"),
        (&["purge"], "'purge' is none"),
        (&["check", "--dry-run"], "'--dry-run' says nothing to 'nacre policy check'"),
        (&["status", "file"], "takes no file"),
        (&["run", "a", "b"], "takes one file of rules"),
        (&["history", "-n", "0", "--state", "/nowhere"], "bad value '0' of --count"),
        (&["check", "/nowhere/policy"], "cannot read '/nowhere/policy': No such file or directory"),
    ] {
        let told = of(args).expect_err("it is wrong").to_string();
        assert!(told.contains(part), "{args:?}: {told}");
    }
    assert_eq!(of(&["status", "--state", "/nowhere"]).ok(), Some(0));
}

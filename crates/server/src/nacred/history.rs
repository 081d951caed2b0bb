//! Each hour every target of this daemon records its files, its space and how long requests took, in the file
//! `history` of its folder, for a year: `nacre history`. What jumps is an event.
//!
//! A thread of its own does it: a disk that hangs holds up nobody else.

use admin::command::mkfs::HISTORY_FILE;
use model::history::{self, Jump, KEPT_MAX, Record, Records};
use model::mutex::Mutex;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use world::sys::{self, files};

/// Between two looks whether an interval is over.
const LOOK: Duration = Duration::from_secs(1);
/// The file is made anew, without those that are older than a year, when it has so many records more.
const SLACK: usize = 30 * 24;

/// Inodes or objects, and bytes.
pub struct Room {
    pub files: u64,
    pub files_free: u64,
    pub bytes: u64,
    pub bytes_free: u64,
}

/// A target, as far as its history needs it.
pub trait HasHistory: Send + Sync {
    fn name(&self) -> String;
    fn folder(&self) -> &str;
    fn history(&self) -> &History;
    /// `None`: it has no files.
    fn room(&self) -> Option<Room>;
    /// Requests that were served, and the microseconds that they took: without those that may wait for a
    /// lock for as long as its holder likes.
    fn served(&self) -> (u64, u64);
}

/// Of one target.
#[derive(Default)]
pub struct History(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order of their times.
    records: Vec<Record>,
    /// Lines of the file; `None`: it was not looked at yet.
    in_file: Option<usize>,
    /// Requests, and the microseconds that they took, when the last record was made.
    counted: (u64, u64),
}

/// One record a line; a line that was cut short, or is of a later version, is none.
fn parse(text: &str, now: i64) -> Vec<Record> {
    let mut all: Vec<Record> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    // A clock that was ahead for a while leaves nothing behind.
    all.retain(|r| r.at <= now);
    all.sort_by_key(|r| r.at);
    all.dedup_by_key(|r| r.at);
    all.drain(..all.len().saturating_sub(KEPT_MAX));
    all
}

fn lines(all: &[Record]) -> String {
    all.iter().map(|r| format!("{}\n", serde_json::to_string(r).expect("plain data encodes"))).collect()
}

/// What is so now, with requests since `before`; `None`: it has no files.
fn measure(t: &dyn HasHistory, at: i64, before: (u64, u64)) -> Option<(Record, (u64, u64))> {
    let Room { files, files_free, bytes, bytes_free } = t.room()?;
    let now = t.served();
    // Somebody may have cleared them.
    let since = |now: u64, before: u64| if now < before { now } else { now - before };
    let requests = since(now.0, before.0);
    let record = Record {
        at,
        files_used: files.saturating_sub(files_free),
        files_total: files,
        bytes_used: bytes.saturating_sub(bytes_free),
        bytes_total: bytes,
        requests,
        response_us: since(now.1, before.1).checked_div(requests).unwrap_or(0),
    };
    Some((record, now))
}

/// What jumped, said as an event.
fn tell(label: &str, jump: Jump, last: &Record, now: &Record) {
    let change = |before: u64, after: u64, what: &str| {
        let word = if after >= before { "more" } else { "less" };
        format!("{} {what} {word} than at the record before ({before}, now {after})", after.abs_diff(before))
    };
    match jump {
        Jump::Files => {
            let text = change(last.files_used, now.files_used, "files");
            model::event!(WARN, SpaceJumped, label, "{label}: {text}: nacre history shows when it began");
        }
        Jump::Space => {
            let text = change(last.bytes_used, now.bytes_used, "bytes");
            model::event!(WARN, SpaceJumped, label, "{label}: {text}: nacre history shows when it began");
        }
        Jump::Response => {
            let (us, n) = (now.response_us, now.requests);
            model::event!(
                WARN,
                ResponseJumped,
                label,
                "{label}: {n} requests took {us} us each, far longer than in the hours before: nacre history shows when it began"
            );
        }
    }
}

fn path(t: &dyn HasHistory) -> PathBuf {
    Path::new(t.folder()).join(HISTORY_FILE)
}

/// What earlier daemons recorded is known then.
fn recall(t: &dyn HasHistory, now: i64) -> io::Result<()> {
    let state = &t.history().0;
    if state.lock().in_file.is_some() {
        return Ok(());
    }
    let (text, failed) = match files::read(path(t)) {
        Ok(bytes) => (String::from_utf8_lossy(&bytes).into_owned(), None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (String::new(), None),
        // It is said once, and not tried again.
        Err(e) => (String::new(), Some(e)),
    };
    let counted = t.served();
    let mut s = state.lock();
    s.records = parse(&text, now);
    s.in_file = Some(text.lines().count());
    s.counted = counted;
    assert!(s.records.len() <= KEPT_MAX, "a year is kept");
    failed.map_or(Ok(()), Err)
}

/// Makes a record, and says what jumped. The disk is waited for with nothing held.
fn record(t: &dyn HasHistory, at: i64) -> io::Result<()> {
    let state = &t.history().0;
    let before = state.lock().counted;
    let Some((new, counted)) = measure(t, at, before) else { return Ok(()) };
    let (jumps, last, anew, in_file) = {
        let mut s = state.lock();
        s.records.retain(|r| r.at < at);
        let (jumps, last) = (history::jumps(&s.records, &new), s.records.last().copied());
        s.records.push(new);
        let over = s.records.len().saturating_sub(KEPT_MAX);
        s.records.drain(..over);
        s.counted = counted;
        let in_file = s.in_file.unwrap_or(0) + 1;
        let anew = in_file > s.records.len() + SLACK || in_file == 1;
        assert!(s.records.is_sorted_by_key(|r| r.at), "in the order of their times");
        (jumps, last, anew.then(|| s.records.clone()), in_file)
    };
    for jump in jumps {
        tell(&t.name(), jump, &last.unwrap_or_default(), &new);
    }
    let in_file = match anew {
        Some(all) => {
            files::replace_private(path(t), lines(&all).as_bytes())?;
            all.len()
        }
        None => {
            files::open_private_log(&path(t))?.write_all(lines(&[new]).as_bytes())?;
            in_file
        }
    };
    state.lock().in_file = Some(in_file);
    Ok(())
}

impl History {
    /// Those younger than `since`.
    pub fn records(&self, since: i64) -> Records {
        history::answer(&self.0.lock().records, since)
    }
}

/// What is served, with the seconds between two records of each, 0 for none; `None`: the daemon ended.
pub type Served = Option<(Vec<Arc<dyn HasHistory>>, u64)>;

/// Records of what is served until that ends.
pub fn start(served: impl Fn() -> Served + Send + 'static) {
    if let Err(e) = sys::thread("history", move || work(&served)) {
        tracing::warn!("no history is recorded: {e}");
    }
}

fn work(served: &dyn Fn() -> Served) {
    // The interval, and which one, counted from 1970, the last look was in.
    let mut last: Option<(u64, i64)> = None;
    while let Some((all, interval)) = served() {
        let now = sys::wall_seconds();
        let count = i64::try_from(interval).ok().and_then(|i| now.checked_div(i));
        let this = count.map(|n| (interval, n));
        let due = matches!((last, this), (Some(l), Some(t)) if l.0 == t.0 && l.1 != t.1);
        for t in &all {
            let known = recall(&**t, now);
            if let Err(e) = known.and_then(|()| if due { record(&**t, now) } else { Ok(()) }) {
                tracing::warn!("{}: its history is not recorded: '{}': {e}", t.name(), path(&**t).display());
            }
        }
        last = this;
        drop(all);
        sys::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    struct Fake(PathBuf, History, std::sync::atomic::AtomicU64);

    impl HasHistory for Fake {
        fn name(&self) -> String {
            "t-OST0000".into()
        }
        fn folder(&self) -> &str {
            self.0.to_str().unwrap()
        }
        fn history(&self) -> &History {
            &self.1
        }
        fn room(&self) -> Option<Room> {
            Some(Room { files: 100, files_free: 90, bytes: 1000, bytes_free: 400 })
        }
        fn served(&self) -> (u64, u64) {
            let n = self.2.load(Relaxed);
            (n, 30 * n)
        }
    }

    #[test]
    fn an_hour_has_its_own_requests_and_a_daemon_that_starts_knows_the_hours_before() {
        let dir = std::env::temp_dir().join(format!("nacre-history-{}", std::process::id()));
        files::create_dir_all(&dir).unwrap();
        let fake = || Fake(dir.clone(), History::default(), 0.into());
        let t = fake();
        recall(&t, 1).unwrap();
        for (at, count) in [(3600, 5), (7200, 12), (10_800, 2)] {
            t.2.store(count, Relaxed);
            record(&t, at).unwrap();
        }
        let of = |t: &Fake| t.1.records(0).records.into_iter().map(|(r, _)| r).collect::<Vec<_>>();
        let seen: Vec<_> = of(&t).iter().map(|r| (r.at, r.requests, r.response_us)).collect();
        // They were cleared before the last.
        assert_eq!(seen, [(3600, 5, 30), (7200, 7, 30), (10_800, 2, 30)]);
        assert_eq!((of(&t)[0].files_used, of(&t)[0].bytes_used), (10, 600));
        assert_eq!(files::stat(&path(&t), true).unwrap().mode & 0o777, 0o600);
        let again = fake();
        recall(&again, 20_000).unwrap();
        assert_eq!(of(&again), of(&t));
        record(&again, 14_400).unwrap();
        assert_eq!(files::read_to_string(path(&t)).unwrap().lines().count(), 4);
        files::remove_tree(&dir).unwrap();
    }

    #[test]
    fn what_was_recorded_is_known_again_in_order_and_what_is_none_is_passed_over() {
        let of = |at| Record { at, files_used: 5, ..Record::default() };
        let text = lines(&[of(7200), of(3600), of(3600), of(99_999)]) + "{\"at\":1";
        assert_eq!(parse(&text, 10_000), [of(3600), of(7200)]);
        assert_eq!(parse("", 0), []);
        let many: Vec<Record> = (0..KEPT_MAX as i64 + 5).map(of).collect();
        let kept = parse(&lines(&many), i64::MAX);
        assert_eq!((kept.len(), kept[0].at), (KEPT_MAX, 5));
        assert!(lines(&many[..1]).len() < 150, "a year of them is small");
    }
}

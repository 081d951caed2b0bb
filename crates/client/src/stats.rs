//! Counters of a mount: `llite.*.stats`.

use model::Timestamp;
use std::fmt::Write as _;
use std::sync::Mutex;

macro_rules! verbs {
    ($($v:ident = $name:literal,)*) => {
        /// What a mount counts, under Lustre's names.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Verb { $($v,)* }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

verbs! {
    ReadBytes = "read_bytes", WriteBytes = "write_bytes", Read = "read", Write = "write", Open = "open",
    Close = "close", Fsync = "fsync", Readdir = "readdir", Setattr = "setattr", Truncate = "truncate", Flock = "flock",
    Getattr = "getattr", Lookup = "lookup", Create = "create", Link = "link", Unlink = "unlink", Symlink = "symlink",
    Readlink = "readlink", Mkdir = "mkdir", Rmdir = "rmdir", Mknod = "mknod", Rename = "rename", Statfs = "statfs",
    Setxattr = "setxattr", Getxattr = "getxattr", Listxattr = "listxattr", Removexattr = "removexattr",
    Fallocate = "fallocate", Seek = "seek", CopyFileRange = "copy_file_range", Layout = "layout", Getpath = "getpath",
}

#[derive(Clone, Copy, Default)]
struct Counter {
    count: u64,
    min: u64,
    max: u64,
    sum: u64,
    sum_of_squares: f64,
}

struct State {
    since: Timestamp,
    counters: Vec<Counter>,
}

pub(crate) struct Stats {
    state: Mutex<State>,
}

impl Stats {
    pub(crate) fn new(now: Timestamp) -> Stats {
        Stats { state: Mutex::new(State { since: now, counters: vec![Counter::default(); NAMES.len()] }) }
    }

    /// One sample: microseconds, or bytes.
    pub(crate) fn add(&self, v: Verb, value: u64) {
        let mut s = self.state.lock().expect("no panic while locked");
        let c = &mut s.counters[v as usize];
        c.min = if c.count == 0 { value } else { c.min.min(value) };
        c.max = c.max.max(value);
        c.count += 1;
        c.sum = c.sum.saturating_add(value);
        c.sum_of_squares += value as f64 * value as f64;
    }

    pub(crate) fn clear(&self, now: Timestamp) {
        *self.state.lock().expect("no panic while locked") =
            State { since: now, counters: vec![Counter::default(); NAMES.len()] };
    }

    /// As Lustre prints it; counters that never counted are left out.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        let s = self.state.lock().expect("no panic while locked");
        let elapsed = Timestamp::from_nanos((now.as_nanos() - s.since.as_nanos()).max(0));
        let mut out = String::new();
        for (name, t) in [("snapshot_time", now), ("start_time", s.since), ("elapsed_time", elapsed)] {
            let _ = writeln!(out, "{name:<25} {}.{:09} secs.nsecs", t.sec, t.nsec);
        }
        for (name, c) in NAMES.iter().zip(&s.counters).filter(|(_, c)| c.count > 0) {
            let unit = if name.ends_with("_bytes") { "bytes" } else { "usecs" };
            let _ = writeln!(
                out,
                "{name:<25} {} samples [{unit}] {} {} {} {:.0}",
                c.count, c.min, c.max, c.sum, c.sum_of_squares
            );
        }
        out.truncate(out.trim_end().len());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_printed_as_lustre_prints_them() {
        let s = Stats::new(Timestamp { sec: 100, nsec: 0 });
        for n in [10, 900] {
            s.add(Verb::Open, n);
        }
        let text = s.text(Timestamp { sec: 101, nsec: 5 });
        assert!(text.starts_with("snapshot_time             101.000000005 secs.nsecs\n"), "{text}");
        assert!(text.ends_with("open                      2 samples [usecs] 10 900 910 810100"), "{text}");
        s.clear(Timestamp::ZERO);
        assert!(!s.text(Timestamp::ZERO).contains("open"));
    }
}

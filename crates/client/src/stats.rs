//! Counters of a mount: `llite.*.stats`.

use model::Timestamp;
use model::counters::{Counters, Histogram, extents_table, times};
use model::mutex::Mutex;

/// `extents_stats` counts sizes in these.
const EXTENT_BYTES: u64 = 4096;

macro_rules! verbs {
    ($($v:ident = $name:literal,)*) => {
        /// What a mount counts, under Lustre's names.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Verb { $($v,)* }

        const TABLE: &[(&str, &str)] = &[$(($name, unit_of($name)),)*];
    };
}

verbs! {
    ReadBytes = "read_bytes", WriteBytes = "write_bytes", Read = "read", Write = "write", Open = "open",
    Close = "close", Fsync = "fsync", Readdir = "readdir", Setattr = "setattr", Truncate = "truncate", Flock = "flock",
    Getattr = "getattr", Lookup = "lookup", Create = "create", Link = "link", Unlink = "unlink", Symlink = "symlink",
    Readlink = "readlink", Mkdir = "mkdir", Rmdir = "rmdir", Mknod = "mknod", Rename = "rename", Statfs = "statfs",
    Setxattr = "setxattr", Getxattr = "getxattr", Listxattr = "listxattr", Removexattr = "removexattr",
    Fallocate = "fallocate", Seek = "seek", CopyFileRange = "copy_file_range", Layout = "layout", Getpath = "getpath",
    Ostfiles = "ostfiles",
}

impl Verb {
    /// What `dirsync` is about.
    pub(crate) fn changes_names(self) -> bool {
        use Verb::{Create, Link, Mkdir, Mknod, Rename, Rmdir, Symlink, Unlink};
        matches!(self, Create | Link | Mkdir | Mknod | Rename | Rmdir | Symlink | Unlink)
    }
}

/// Names that end in `_bytes` count those, the others time.
const fn unit_of(name: &str) -> &'static str {
    if name.len() > 6 && name.as_bytes()[name.len() - 6] == b'_' { "bytes" } else { "usecs" }
}

/// Sizes of reads and writes.
struct Extents {
    since: Timestamp,
    read: Histogram,
    write: Histogram,
}

pub(crate) struct Stats {
    counters: Counters,
    /// `None` unless an administrator wants them.
    extents: Mutex<Option<Extents>>,
}

impl Stats {
    pub(crate) fn new(now: Timestamp) -> Stats {
        Stats { counters: Counters::new(TABLE, now), extents: Mutex::new(None) }
    }

    /// One sample: microseconds, or bytes.
    pub(crate) fn add(&self, v: Verb, value: u64) {
        self.counters.add(v as usize, value);
        if matches!(v, Verb::ReadBytes | Verb::WriteBytes)
            && let Some(e) = self.lock().as_mut()
        {
            let side = if v == Verb::ReadBytes { &mut e.read } else { &mut e.write };
            side.add_log2(value.div_ceil(EXTENT_BYTES));
        }
    }

    fn lock(&self) -> model::mutex::MutexGuard<'_, Option<Extents>> {
        self.extents.lock()
    }

    pub(crate) fn clear(&self, now: Timestamp) {
        self.counters.clear(now);
    }

    /// As Lustre prints it; counters that never counted are left out.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        self.counters.text(now)
    }

    /// Begins to count sizes, from nothing, or ends it.
    pub(crate) fn count_extents(&self, wanted: bool, now: Timestamp) {
        let fresh = || Extents { since: now, read: Histogram::default(), write: Histogram::default() };
        *self.lock() = wanted.then(fresh);
    }

    /// `extents_stats`.
    pub(crate) fn extents_text(&self, now: Timestamp) -> String {
        let g = self.lock();
        let Some(e) = g.as_ref() else {
            return "disabled\n write anything to this file to activate, then '0' or 'disable' to deactivate\n".into();
        };
        let mut s = String::new();
        times(&mut s, 25, now, e.since);
        extents_table(&mut s, &e.read, &e.write);
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_when_wanted() {
        let s = Stats::new(Timestamp::ZERO);
        s.add(Verb::ReadBytes, 5000);
        assert!(s.extents_text(Timestamp::ZERO).starts_with("disabled"));
        s.count_extents(true, Timestamp::ZERO);
        s.add(Verb::ReadBytes, 5000);
        s.add(Verb::Read, 7);
        let text = s.extents_text(Timestamp::ZERO);
        assert!(
            text.lines().any(|l| l.trim_start().starts_with("4K -    8K :              1  100  100")),
            "{text}"
        );
        assert!(
            s.text(Timestamp::ZERO).contains("read_bytes                2 samples [bytes] 5000 5000 10000")
        );
        assert!(s.text(Timestamp::ZERO).contains("read                      1 samples [usecs] 7 7 7 49"));
    }
}

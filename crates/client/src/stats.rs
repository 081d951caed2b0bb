//! Counters of a mount: `llite.*.stats`.

use model::Timestamp;
use model::counters::{Counters, Samples};
use model::histogram::{Histogram, Histograms, Scale, Shape, Sides, Table};
use model::mutex::Mutex;
use model::param::Value;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// `extents_stats` counts sizes in these.
const EXTENT_BYTES: u64 = 4096;

model::counters! {
    /// What a mount counts, under Lustre's names.
    pub(crate) enum Verb {
        ReadBytes = "read_bytes" in "bytes",
        WriteBytes = "write_bytes" in "bytes",
        Read = "read" in "usecs",
        Write = "write" in "usecs",
        Open = "open" in "usecs",
        Close = "close" in "usecs",
        Fsync = "fsync" in "usecs",
        Readdir = "readdir" in "usecs",
        Setattr = "setattr" in "usecs",
        Truncate = "truncate" in "usecs",
        Flock = "flock" in "usecs",
        Getattr = "getattr" in "usecs",
        Lookup = "lookup" in "usecs",
        Create = "create" in "usecs",
        Link = "link" in "usecs",
        Unlink = "unlink" in "usecs",
        Symlink = "symlink" in "usecs",
        Readlink = "readlink" in "usecs",
        Mkdir = "mkdir" in "usecs",
        Rmdir = "rmdir" in "usecs",
        Mknod = "mknod" in "usecs",
        Rename = "rename" in "usecs",
        Statfs = "statfs" in "usecs",
        Setxattr = "setxattr" in "usecs",
        Getxattr = "getxattr" in "usecs",
        Listxattr = "listxattr" in "usecs",
        Removexattr = "removexattr" in "usecs",
        Fallocate = "fallocate" in "usecs",
        Seek = "seek" in "usecs",
        CopyFileRange = "copy_file_range" in "usecs",
        Layout = "layout" in "usecs",
        Getpath = "getpath" in "usecs",
        Ostfiles = "ostfiles" in "usecs",
        Scan = "scan" in "usecs",
        Changelog = "changelog" in "usecs",
        Setquota = "setquota" in "usecs",
        Quotadir = "quotadir" in "usecs",
        Trashdir = "trashdir" in "usecs",
        Trashlist = "trashlist" in "usecs",
        Trashtake = "trashtake" in "usecs",
    }
}

impl Verb {
    /// Waits while the file system is closed for maintenance: not what ends something, makes durable what was
    /// done, or tells of space.
    pub(crate) fn waits_when_closed(self) -> bool {
        !matches!(self, Verb::Close | Verb::Fsync | Verb::Statfs)
    }

    /// Nothing of this kind is done on a mount that is read-only, which is asked where each operation begins.
    /// Of `Open` and `Layout` only some do change anything: these ask for themselves.
    pub(crate) fn changes(self) -> bool {
        use Verb::{
            CopyFileRange, Fallocate, Removexattr, Setattr, Setxattr, Trashdir, Trashtake, Truncate, Write,
        };
        self.changes_names()
            || matches!(self, Write | Setattr | Truncate | Setxattr | Removexattr | Fallocate)
            || matches!(self, CopyFileRange | Trashdir | Trashtake)
    }

    /// Some of this kind change something.
    pub(crate) fn may_change(self) -> bool {
        self.changes() || matches!(self, Verb::Open | Verb::Layout)
    }

    /// What `dirsync` is about.
    pub(crate) fn changes_names(self) -> bool {
        use Verb::{Create, Link, Mkdir, Mknod, Rename, Rmdir, Symlink, Unlink};
        matches!(self, Create | Link | Mkdir | Mknod | Rename | Rmdir | Symlink | Unlink)
    }
}

/// Sizes of reads and writes.
#[derive(Default)]
struct Extents {
    /// An administrator wants them.
    wanted: AtomicBool,
    since: Mutex<Timestamp>,
    read: Histogram,
    write: Histogram,
}

pub(crate) struct Stats {
    counters: Counters<Verb>,
    extents: Extents,
}

impl Stats {
    pub(crate) fn new(now: Timestamp) -> Stats {
        Stats { counters: Counters::of_set(now), extents: Extents::default() }
    }

    /// One sample: microseconds, or bytes.
    pub(crate) fn add(&self, v: Verb, value: u64) {
        self.counters.add(v, value);
        let side = match v {
            Verb::ReadBytes => &self.extents.read,
            Verb::WriteBytes => &self.extents.write,
            _ => return,
        };
        if self.extents.wanted.load(Relaxed) {
            side.add_log2(value.div_ceil(EXTENT_BYTES));
        }
    }

    pub(crate) fn clear(&self, now: Timestamp) {
        self.counters.clear(now);
    }

    /// Counters that never counted are left out of the text.
    pub(crate) fn read(&self, now: Timestamp) -> Samples {
        self.counters.read(now)
    }

    /// Begins to count sizes, from nothing, or ends it.
    pub(crate) fn count_extents(&self, wanted: bool, now: Timestamp) {
        let e = &self.extents;
        e.wanted.store(wanted, Relaxed);
        *e.since.lock() = now;
        e.read.clear();
        e.write.clear();
    }

    /// `extents_stats`.
    pub(crate) fn extents(&self, now: Timestamp) -> Value {
        let e = &self.extents;
        if !e.wanted.load(Relaxed) {
            return "disabled\n write anything to this file to activate, then '0' or 'disable' to deactivate\n".into();
        }
        let since = *e.since.lock();
        let sides = Sides::ReadWrite(Box::new([e.read.read(), e.write.read()]));
        let tables = vec![Table { what: "extents", unit: "calls", scale: Scale::Log2, sides }];
        Value::Histograms(Histograms { now, since, shape: Shape::Extents, under_way: Vec::new(), tables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_when_wanted() {
        let s = Stats::new(Timestamp::ZERO);
        s.add(Verb::ReadBytes, 5000);
        assert!(s.extents(Timestamp::ZERO).to_string().starts_with("disabled"));
        s.count_extents(true, Timestamp::ZERO);
        s.add(Verb::ReadBytes, 5000);
        s.add(Verb::Read, 7);
        let text = s.extents(Timestamp::ZERO).to_string();
        assert!(
            text.lines().any(|l| l.trim_start().starts_with("4K -    8K :              1  100  100")),
            "{text}"
        );
        assert!(
            s.read(Timestamp::ZERO)
                .to_string()
                .contains("read_bytes                2 samples [bytes] 5000 5000 10000")
        );
        assert!(
            s.read(Timestamp::ZERO)
                .to_string()
                .contains("read                      1 samples [usecs] 7 7 7 49")
        );
    }
}

//! Writes that failed after write(2) had returned: which file, which range, why. Bounded;
//! `llite.*.write_errors`.

use model::mutex::Mutex;
use model::{Errno, Fid, Timestamp};
use std::collections::VecDeque;

/// Entries that are kept; the oldest go first.
const KEPT_MAX: usize = 1000;

struct Entry {
    when: Timestamp,
    fid: Fid,
    object: String,
    start: u64,
    end: u64,
    errno: Errno,
}

#[derive(Default)]
struct ErrorLog {
    kept: VecDeque<Entry>,
    total: u64,
}

/// The failed background writes of a mount.
#[derive(Default)]
pub(crate) struct WriteErrors(Mutex<ErrorLog>);

impl WriteErrors {
    pub fn add(&self, when: Timestamp, fid: Fid, object: String, (start, end): (u64, u64), errno: Errno) {
        tracing::error!("{fid}: bytes {start}..{end} of {object} could not be written and are lost: {errno}");
        let mut s = self.0.lock();
        s.total += 1;
        if s.kept.len() >= KEPT_MAX {
            s.kept.pop_front();
        }
        s.kept.push_back(Entry { when, fid, object, start, end, errno });
    }

    /// An operation on names or attributes that had been answered.
    pub fn add_operation(&self, when: Timestamp, fid: Fid, what: String, errno: Errno) {
        tracing::error!("{fid}: {what} was answered and is lost: {errno}");
        let mut s = self.0.lock();
        s.total += 1;
        if s.kept.len() >= KEPT_MAX {
            s.kept.pop_front();
        }
        s.kept.push_back(Entry { when, fid, object: what, start: 0, end: 0, errno });
    }

    pub fn clear(&self) {
        *self.0.lock() = ErrorLog::default();
    }

    /// One line for each: when, file, object, range in the object, why.
    pub fn text(&self) -> String {
        let s = self.0.lock();
        let mut lines = vec![format!("total: {}", s.total)];
        lines.extend(s.kept.iter().map(|e| {
            format!(
                "{}.{:09} {} {} {}..{} {}",
                e.when.sec,
                e.when.nsec,
                e.fid,
                e.object,
                e.start,
                e.end,
                e.errno.name()
            )
        }));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_says_what() {
        let w = WriteErrors::default();
        for i in 0..1200u64 {
            w.add(Timestamp::ZERO, Fid::new(1, 2, 0), "o".into(), (i, i + 1), Errno::ENOSPC);
        }
        let text = w.text();
        assert!(text.starts_with("total: 1200\n") && text.lines().count() == KEPT_MAX + 1);
        assert!(text.ends_with("o 1199..1200 ENOSPC"));
        w.clear();
        assert_eq!(w.text(), "total: 0");
    }
}

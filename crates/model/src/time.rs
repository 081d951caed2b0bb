//! Wall-clock time stamps as POSIX files carry them.

use serde::{Deserialize, Serialize};

/// Seconds since 1970 (may be negative) and nanoseconds 0..1_000_000_000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, Hash)]
pub struct Timestamp {
    pub sec: i64,
    pub nsec: u32,
}

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp { sec: 0, nsec: 0 };
    pub const MAX: Timestamp = Timestamp { sec: i64::MAX, nsec: 999_999_999 };

    pub fn from_nanos(ns: i128) -> Timestamp {
        let sec = ns.div_euclid(1_000_000_000);
        let sec = i64::try_from(sec).unwrap_or(if sec < 0 { i64::MIN } else { i64::MAX });
        Timestamp { sec, nsec: ns.rem_euclid(1_000_000_000) as u32 }
    }

    pub fn as_nanos(self) -> i128 {
        i128::from(self.sec) * 1_000_000_000 + i128::from(self.nsec)
    }

    /// This time moved by `ns` nanoseconds.
    pub fn plus_nanos(self, ns: i64) -> Timestamp {
        Timestamp::from_nanos(self.as_nanos() + i128::from(ns))
    }
}

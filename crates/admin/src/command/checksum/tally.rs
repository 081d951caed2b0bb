//! What a scan found, of a directory or of all.

use serde::{Deserialize, Serialize};

/// Of each list; what comes later is only counted.
const LISTED_MAX: usize = 10_000;

/// A file that is not what its checksum says, or could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// For people and JSON: what is not UTF-8 in it is replaced.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// The checksum that is kept with the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The one of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    pub files: u64,
    /// That were read.
    pub bytes: u64,
    pub matched: u64,
    pub mismatched: u64,
    /// Files that have no checksum, those that got one now not among them.
    pub without: u64,
    /// That got one now.
    pub set: u64,
    /// That changed while they were read: neither right nor wrong.
    pub changed: u64,
    pub errors: u64,
    pub mismatches: Vec<Finding>,
    pub failures: Vec<Finding>,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.matched += other.matched;
        self.mismatched += other.mismatched;
        self.without += other.without;
        self.set += other.set;
        self.changed += other.changed;
        self.errors += other.errors;
        for (to, from) in [(&mut self.mismatches, &other.mismatches), (&mut self.failures, &other.failures)] {
            let room = LISTED_MAX.saturating_sub(to.len());
            to.extend(from.iter().take(room).cloned());
        }
    }

    pub fn mismatch(&mut self, f: Finding) {
        self.mismatched += 1;
        if self.mismatches.len() < LISTED_MAX {
            self.mismatches.push(f);
        }
    }

    pub fn error(&mut self, f: Finding) {
        self.errors += 1;
        if self.failures.len() < LISTED_MAX {
            self.failures.push(f);
        }
    }

    /// Whether nothing is wrong, as far as it is known.
    pub fn is_well(&self) -> bool {
        self.mismatched == 0 && self.errors == 0
    }
}

//! How much lies in the trash: of whom, and of which directories.

use super::items::Item;
use crate::command::changelog::when;
use crate::names;
use crate::size::human;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Of several things in the trash.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Total {
    pub files: u64,
    /// Of those whose size is known.
    pub bytes: u64,
    /// Those whose size no object server said.
    pub unknown: u64,
    /// When the oldest was removed, in seconds since 1970.
    pub oldest: Option<i64>,
}

impl Total {
    fn add(&mut self, i: &Item) {
        self.files += 1;
        match i.size {
            Some(n) => self.bytes = self.bytes.saturating_add(n),
            None => self.unknown += 1,
        }
        let removed = i.file.when.sec;
        self.oldest = Some(self.oldest.map_or(removed, |o| o.min(removed)));
    }

    fn json(&self) -> Value {
        json!({"files": self.files, "bytes": self.bytes, "unknown_sizes": self.unknown, "oldest": self.oldest})
    }

    fn words(&self) -> String {
        let more = match self.unknown {
            0 => String::new(),
            n => format!(" and {n} of unknown size"),
        };
        let oldest = self.oldest.map_or_else(String::new, |o| format!(", the oldest of {}", when(o)));
        format!("{} removed, {}{more}{oldest}", self.files, human(self.bytes, 1024))
    }
}

/// What was removed below a directory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    pub all: Total,
    /// By the owner's number.
    pub users: BTreeMap<u32, Total>,
    /// By the name in that directory; `.`: itself, `?`: it is gone, or closed to the caller.
    pub directories: BTreeMap<String, Total>,
}

impl Totals {
    pub fn of(items: &[Item]) -> Totals {
        let mut t = Totals::default();
        for i in items {
            t.all.add(i);
            t.users.entry(i.file.attr.uid).or_default().add(i);
            let name = match i.file.way.as_deref() {
                None => "?".to_string(),
                Some(way) => {
                    let first = way.split(|b| *b == b'/').next().unwrap_or_default();
                    if first.is_empty() { ".".into() } else { String::from_utf8_lossy(first).into_owned() }
                }
            };
            t.directories.entry(name).or_default().add(i);
        }
        assert_eq!(t.all.files, items.len() as u64, "each is counted once");
        t
    }

    pub fn json(&self) -> Value {
        let user = |(uid, t): (&u32, &Total)| {
            let mut v = t.json();
            (v["uid"], v["user"]) = (json!(uid), json!(names::user(*uid)));
            v
        };
        let directory = |(name, t): (&String, &Total)| {
            let mut v = t.json();
            v["name"] = json!(name);
            v
        };
        let mut all = self.all.json();
        all["users"] = self.users.iter().map(user).collect();
        all["directories"] = self.directories.iter().map(directory).collect();
        all
    }

    /// Nothing, if nothing lies there.
    pub fn text(&self) -> String {
        if self.all.files == 0 {
            return String::new();
        }
        let mut out = format!("  {}\n", self.all.words());
        for (uid, t) in &self.users {
            out.push_str(&format!("  user {}: {}\n", names::user(*uid), t.words()));
        }
        for (name, t) in &self.directories {
            out.push_str(&format!("  below {name}: {}\n", t.words()));
        }
        out
    }
}

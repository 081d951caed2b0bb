//! What a rule says, and of which files. Nothing here asks anybody: a file, the time and the rule give the
//! answer.

use crate::glob;
use client::control::{Name, Seen};
use model::{Fid, Timestamp};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::path::PathBuf;
use wire::msg::scan::{self, Number, Test};

/// A file as rules look at it, its objects' part included.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Below the directory of the rule.
    pub path: Name,
    pub fid: Fid,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes of space that it takes.
    pub space: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    /// Of the component that tells.
    pub pool: String,
    /// On which it has objects; empty: its data lies with its inode, or it has none.
    pub osts: Vec<u16>,
}

impl Entry {
    pub fn seen(&self) -> Seen {
        let Entry { fid, uid, gid, projid, size, atime, mtime, ctime, .. } = *self;
        Seen { fid, uid, gid, projid, size, atime, mtime, ctime }
    }

    pub fn time(&self, which: Time) -> i64 {
        match which {
            Time::Accessed => self.atime.sec,
            Time::Modified => self.mtime.sec,
            Time::Changed => self.ctime.sec,
            Time::Created => self.btime.sec,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    Accessed,
    Modified,
    Changed,
    Created,
}

impl Time {
    pub const ALL: [(&'static str, Time); 4] = [
        ("accessed", Time::Accessed),
        ("modified", Time::Modified),
        ("changed", Time::Changed),
        ("created", Time::Created),
    ];

    fn number(self) -> Number {
        match self {
            Time::Accessed => Number::Atime,
            Time::Modified => Number::Mtime,
            Time::Changed => Number::Ctime,
            Time::Created => Number::Btime,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    Less,
    AtMost,
    AtLeast,
    More,
}

impl Compare {
    pub const ALL: [(&'static str, Compare); 4] =
        [("<=", Compare::AtMost), (">=", Compare::AtLeast), ("<", Compare::Less), (">", Compare::More)];

    fn holds(self, a: i128, b: i128) -> bool {
        match (self, a.cmp(&b)) {
            (Compare::Less, o) => o == Ordering::Less,
            (Compare::AtMost, o) => o != Ordering::Greater,
            (Compare::AtLeast, o) => o != Ordering::Less,
            (Compare::More, o) => o == Ordering::Greater,
        }
    }

    /// The first and the last number that it holds for.
    fn bounds(self, n: i64) -> (i64, i64) {
        match self {
            Compare::Less => (i64::MIN, n.saturating_sub(1)),
            Compare::AtMost => (i64::MIN, n),
            Compare::AtLeast => (n, i64::MAX),
            Compare::More => (n.saturating_add(1), i64::MAX),
        }
    }

    /// Of the time at which something happened, that of its age being given.
    fn reversed(self) -> Compare {
        match self {
            Compare::Less => Compare::More,
            Compare::AtMost => Compare::AtLeast,
            Compare::AtLeast => Compare::AtMost,
            Compare::More => Compare::Less,
        }
    }
}

/// One condition on a file. Of several values one is enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    Path(Vec<String>),
    User(Vec<u32>),
    Group(Vec<u32>),
    Project(Vec<u32>),
    Pool(Vec<String>),
    Ost(Vec<u16>),
    /// Whether it has objects.
    HasObjects(bool),
    /// Bytes.
    Size(Compare, u64),
    /// Seconds.
    Age(Time, Compare, i64),
}

impl Condition {
    pub fn holds(&self, e: &Entry, now: i64) -> bool {
        match self {
            Condition::Path(globs) => globs.iter().any(|g| glob::matches(g.as_bytes(), &e.path.0)),
            Condition::User(ids) => ids.contains(&e.uid),
            Condition::Group(ids) => ids.contains(&e.gid),
            Condition::Project(ids) => ids.contains(&e.projid),
            Condition::Pool(names) => names.contains(&e.pool),
            Condition::Ost(list) => e.osts.iter().any(|o| list.contains(o)),
            Condition::HasObjects(has) => *has != e.osts.is_empty(),
            Condition::Size(c, n) => c.holds(e.size.into(), (*n).into()),
            Condition::Age(t, c, n) => c.holds(i128::from(now) - i128::from(e.time(*t)), (*n).into()),
        }
    }

    /// The same as the metadata server understands it: no file that fits is without it. Whether it says just
    /// the same, or only less.
    fn test(&self, now: i64) -> Option<(Test, bool)> {
        let ids = |of, ids: &[u32]| {
            let (from, to) = (*ids.iter().min()?, *ids.iter().max()?);
            Some((within(of, (from.into(), to.into())), ids.len() == 1))
        };
        match self {
            Condition::Path(_) | Condition::HasObjects(_) => None,
            Condition::User(all) => ids(Number::Uid, all),
            Condition::Group(all) => ids(Number::Gid, all),
            Condition::Project(all) => ids(Number::Project, all),
            Condition::Pool(names) => match names.as_slice() {
                [one] => Some((plain(scan::Condition::Pool(one.clone().into_bytes())), true)),
                _ => None,
            },
            Condition::Ost(list) => Some((plain(scan::Condition::Osts(list.clone())), true)),
            Condition::Size(c, n) => {
                let n = i64::try_from(*n).unwrap_or(i64::MAX);
                Some((within(Number::Size, c.bounds(n)), true))
            }
            Condition::Age(t, c, n) => {
                Some((within(t.number(), c.reversed().bounds(now.saturating_sub(*n))), true))
            }
        }
    }
}

fn plain(condition: scan::Condition) -> Test {
    Test { negated: false, condition }
}

/// That time of a file is no later.
pub fn at_latest(time: Time, latest: i64) -> Test {
    within(time.number(), (i64::MIN, latest))
}

fn within(of: Number, (from, to): (i64, i64)) -> Test {
    plain(scan::Condition::Within(of, from, to))
}

/// When a rule is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    /// Above so many percent, until there are so many.
    Space {
        of: Of,
        above: u64,
        until: u64,
    },
    /// Users who use more bytes than that; the rule is about their files alone.
    Usage {
        above: u64,
    },
}

/// Whose space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Of {
    FileSystem,
    Pool(String),
    Ost(u16),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By their FIDs.
    None,
    OldestFirst(Time),
    LargestFirst,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Report,
    Purge,
    /// A program with its arguments, for each of so many of the heaviest users, at most once in so many
    /// seconds.
    Notify {
        command: Vec<String>,
        users: usize,
        remind: i64,
    },
    Migrate {
        pool: String,
    },
    Archive {
        list: PathBuf,
    },
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Action::Report => "report",
            Action::Purge => "purge",
            Action::Notify { .. } => "notify",
            Action::Migrate { .. } => "migrate",
            Action::Archive { .. } => "archive",
        }
    }
}

/// One rule of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub name: String,
    /// Its lines, without comments: a run that was ended goes on only if they are the same.
    pub text: String,
    pub directory: PathBuf,
    /// All of them must hold.
    pub scope: Vec<Condition>,
    /// A file stays if all conditions of one of these hold.
    pub exempt: Vec<Vec<Condition>>,
    pub when: When,
    pub order: Order,
    pub action: Action,
    /// Files a second; `None`: as many as can be.
    pub rate: Option<u32>,
    /// Files at most.
    pub limit: usize,
    /// Where is written what was deleted; `None`: beside the state.
    pub list: Option<PathBuf>,
}

impl Rule {
    /// Whether the rule is about a file. A file with several names is not purged: another of them may be why
    /// somebody keeps it.
    pub fn fits(&self, e: &Entry, now: i64) -> bool {
        let all = |c: &[Condition]| c.iter().all(|c| c.holds(e, now));
        let one_name = self.action != Action::Purge || e.nlink == 1;
        let moves = match &self.action {
            Action::Migrate { pool } => e.pool != *pool && !e.osts.is_empty(),
            _ => true,
        };
        one_name && moves && all(&self.scope) && !self.exempt.iter().any(|x| all(x))
    }

    /// What the metadata server can look at: conditions that must hold.
    pub fn tests(&self, now: i64) -> Vec<Test> {
        let mut out = vec![plain(scan::Condition::Types(1 << model::FileType::Regular.d_type()))];
        if self.action == Action::Purge {
            out.push(within(Number::Links, (1, 1)));
        }
        out.extend(self.scope.iter().filter_map(|c| c.test(now)).map(|(t, _)| t));
        out.truncate(scan::TESTS_MAX);
        out
    }

    /// And exemptions of which it can look at every condition just as it is written.
    pub fn unless(&self, now: i64) -> Vec<Vec<Test>> {
        let exact = |c: &Condition| c.test(now).filter(|(_, exact)| *exact).map(|(t, _)| t);
        let groups = self.exempt.iter().filter_map(|x| x.iter().map(exact).collect::<Option<Vec<Test>>>());
        groups.take(wire::msg::purge::EXEMPTIONS_MAX).collect()
    }
}

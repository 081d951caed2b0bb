//! What changed in the configuration: an entry for each version that changed a permanent parameter, a pool or
//! a target. Bounded; from the last state back, each entry says what was there before it (decision 0077).

use crate::state::{FsRecord, MgsState, TAG, decode, encode};
use model::{Pool, domain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Txn;
use wire::msg::config::TargetEntry;

/// Entries that are kept; the oldest go.
pub const HISTORY_MAX: usize = 1000;
/// Changes that the log names of one version.
const TOLD_MAX: usize = 3;
/// Of names and values in all of them.
const HISTORY_MAX_BYTES: usize = 8 << 20;
/// Of names and values in one: it is one value of the table, or of etcd. What is larger is not recorded.
const ENTRY_MAX_BYTES: usize = 512 << 10;

/// Of names and values in one answer, which is JSON on the control socket, with what is around each of them.
const ANSWER_MAX_BYTES: usize = 5 << 20;
const ROW_BYTES: usize = 160;

/// What a change is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A permanent parameter, by its name.
    Param(String),
    Pool {
        fsname: String,
        pool: String,
    },
    /// By its label.
    Target(String),
}

impl Subject {
    /// Rolled back and imported; targets come and go by themselves.
    pub fn is_restorable(&self) -> bool {
        !matches!(self, Subject::Target(_))
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Param(name) => f.write_str(name),
            Subject::Pool { fsname, pool } => write!(f, "pool {fsname}.{pool}"),
            Subject::Target(label) => write!(f, "target {label}"),
        }
    }
}

/// One thing that is not what it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    pub subject: Subject,
    /// Of a parameter its value, of a pool its members' indices, of a target its addresses and state; `None`:
    /// there was none.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// One version of the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Version {
    pub version: u64,
    /// Seconds since 1970, by the clock of the MGS's host.
    pub time: i64,
    /// Who made it: the address of a node, or the administrator on the MGS's host.
    pub by: String,
    /// By which command or message.
    pub how: String,
    pub changes: Vec<Change>,
    /// What changed up to this version is not recorded, or not all of it.
    pub unrecorded: bool,
}

impl Version {
    fn bytes(&self) -> usize {
        let of = |v: &Option<String>| v.as_ref().map_or(0, String::len);
        let one = |c: &Change| c.subject.to_string().len() + of(&c.before) + of(&c.after);
        self.changes.iter().map(one).sum()
    }
}

/// Who changes something, and by what.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub by: String,
    pub how: String,
}

impl Origin {
    /// An administrator on the host of the MGS.
    pub fn here(how: impl Into<String>) -> Origin {
        Origin { by: "MGS host".into(), how: how.into() }
    }
}

/// Everything in a configuration that a change may be of, as text.
pub(crate) type Facts = BTreeMap<Subject, String>;

/// A pool's members as they are written in a [`Change`].
pub(crate) fn members_text(osts: &[u16]) -> String {
    osts.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// The inverse; what is no index is none.
pub(crate) fn members(text: &str) -> Vec<u16> {
    text.split(',').filter_map(|w| w.parse().ok()).collect()
}

/// Of a target what an administrator may want to know again: not the epoch, which each start changes.
fn target_text(fs: &FsRecord, t: &TargetEntry) -> String {
    let nids: Vec<String> = t.nids.iter().map(ToString::to_string).collect();
    let state = if t.active { "active" } else { "inactive" };
    let place = domain::text(&domain::place(&t.domains, t.nids.first().copied()));
    let uuid = model::hex(&t.target_uuid);
    let open = if fs.is_open(t.target) { " may be replaced" } else { "" };
    format!("{} {state} domain {place} uuid {uuid}{open}", nids.join(","))
}

pub(crate) fn facts(s: &MgsState) -> Facts {
    let mut all: Facts = s.params.iter().map(|(n, v)| (Subject::Param(n.clone()), v.clone())).collect();
    for (fsname, fs) in &s.file_systems {
        let pool =
            |p: Pool| (Subject::Pool { fsname: fsname.clone(), pool: p.name.clone() }, members_text(&p.osts));
        all.extend(fs.pools().into_iter().map(pool));
        let target = |t: &TargetEntry| (Subject::Target(t.target.label(fsname)), target_text(fs, t));
        all.extend(fs.targets.iter().map(target));
    }
    all
}

/// From one to the other, in the order of names.
pub(crate) fn changes(before: &Facts, after: &Facts) -> Vec<Change> {
    let one = |subject: &Subject| {
        let (b, a) = (before.get(subject), after.get(subject));
        (a != b).then(|| Change { subject: subject.clone(), before: b.cloned(), after: a.cloned() })
    };
    let gone = before.keys().filter(|k| !after.contains_key(k));
    let mut all: Vec<Change> = after.keys().chain(gone).filter_map(one).collect();
    all.sort_by(|a, b| a.subject.cmp(&b.subject));
    all
}

const COVERED_KEY: [u8; 2] = [TAG, b'c'];

fn key(version: u64) -> Vec<u8> {
    [&[TAG, b'h'], &version.to_be_bytes()[..]].concat()
}

/// First and last key of the history's entries, the last one excluded.
pub(crate) const KEYS: ([u8; 2], [u8; 2]) = ([TAG, b'h'], [TAG, b'i']);

/// The versions that are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    entries: BTreeMap<u64, Arc<Version>>,
    /// The last version of which the history says what changed. An MGS that keeps none leaves it behind.
    covered: u64,
}

impl History {
    /// What was stored; `version` is the configuration's.
    pub(crate) fn read(version: u64, covered: Option<&[u8]>, stored: Vec<(Vec<u8>, Vec<u8>)>) -> History {
        let covered = covered.and_then(|v| decode("history", v).ok()).unwrap_or(0);
        let mut h = History { entries: BTreeMap::new(), covered };
        for (k, v) in stored {
            let Some(at) = k.get(2..).and_then(|n| n.try_into().ok()).map(u64::from_be_bytes) else {
                continue;
            };
            // An entry that cannot be read ends nothing but the way back over it.
            let entry = decode("history", &v).unwrap_or_else(|e| {
                tracing::warn!("MGS: version {at} of the configuration's history: {e}");
                unrecorded(at, "by a later program")
            });
            h.entries.insert(at, Arc::new(entry));
        }
        if covered < version {
            h.entries.insert(version, Arc::new(unrecorded(version, "by an MGS that keeps no history")));
        }
        h
    }

    /// Oldest first.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.entries.values().map(|v| &**v)
    }

    /// The last so many before this version, oldest first; fewer if they would not fit into an answer, but
    /// one if there is one.
    pub(crate) fn newest(&self, before: u64, count: usize) -> Vec<Version> {
        let (mut room, mut is_first) = (ANSWER_MAX_BYTES, true);
        let fits = |v: &&Version| {
            let takes = v.bytes() + (v.changes.len() + 1) * ROW_BYTES;
            let is_room = takes <= room || is_first;
            (room, is_first) = (room.saturating_sub(takes), false);
            is_room
        };
        let older = self.entries.range(..before).rev().map(|(_, v)| &**v);
        let mut last: Vec<Version> = older.take(count).take_while(fits).cloned().collect();
        last.reverse();
        last
    }

    /// The last change of each subject that is known.
    pub fn last_of(&self) -> BTreeMap<&Subject, &Version> {
        self.versions().flat_map(|v| v.changes.iter().map(move |c| (&c.subject, v))).collect()
    }

    /// Everything anew, for another place to keep it in.
    pub(crate) fn all(&self, version: u64, txn: &mut Txn) {
        self.entries.iter().for_each(|(at, e)| txn.put(key(*at), encode(&**e)));
        txn.put(COVERED_KEY, encode(&version));
    }

    /// Takes up what became of `before`, whose version was `was`.
    fn add(&mut self, was: u64, entry: Option<Version>, version: u64, txn: &mut Txn) {
        if self.covered != was
            && let Some(gap) = self.entries.get(&was)
        {
            txn.put(key(was), encode(&**gap));
        }
        self.covered = version;
        txn.put(COVERED_KEY, encode(&version));
        if let Some(e) = entry {
            assert!(self.entries.keys().next_back().is_none_or(|last| *last < version), "versions only grow");
            txn.put(key(version), encode(&e));
            self.entries.insert(version, Arc::new(e));
        }
        let mut bytes: usize = self.versions().map(Version::bytes).sum();
        while self.entries.len() > HISTORY_MAX || bytes > HISTORY_MAX_BYTES {
            let Some((at, gone)) = self.entries.pop_first() else { break };
            bytes -= gone.bytes();
            txn.delete(key(at));
        }
        assert!(self.entries.len() <= HISTORY_MAX, "the history is bounded");
    }
}

fn unrecorded(version: u64, by: &str) -> Version {
    Version { version, time: 0, by: String::new(), how: by.into(), changes: Vec::new(), unrecorded: true }
}

/// Key of what [`History::read`] takes as `covered`.
pub(crate) fn covered_key() -> &'static [u8] {
    &COVERED_KEY
}

/// For the log: who changed what.
fn tell(v: &Version) {
    let some = v.changes.iter().take(TOLD_MAX).map(|c| c.subject.to_string()).collect::<Vec<_>>().join(", ");
    let more = match v.changes.len().saturating_sub(TOLD_MAX) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    model::event!(
        INFO,
        ConfigChanged,
        "MGS",
        "MGS: version {} of the configuration ({}; by {}): {some}{more}",
        v.version,
        v.how,
        v.by
    );
}

/// Writes down what became of `before`; `now`: seconds since 1970. What only a target's new start changed
/// leaves no entry.
pub(crate) fn record(before: &MgsState, after: &mut MgsState, origin: &Origin, now: i64, txn: &mut Txn) {
    assert!(after.version > before.version, "a change has a version of its own");
    let changes = changes(&facts(before), &facts(after));
    let mut entry = Version {
        version: after.version,
        time: now,
        by: origin.by.clone(),
        how: origin.how.clone(),
        changes,
        unrecorded: false,
    };
    if entry.bytes() > ENTRY_MAX_BYTES {
        entry.how = format!("{}: {} changes, too large to be kept", entry.how, entry.changes.len());
        (entry.changes, entry.unrecorded) = (Vec::new(), true);
    }
    let is_something = entry.unrecorded || !entry.changes.is_empty();
    if is_something {
        tell(&entry);
    }
    let version = after.version;
    after.history.add(before.version, is_something.then_some(entry), version, txn);
}

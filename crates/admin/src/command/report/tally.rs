//! What is counted of the files of a tree, and the tables it becomes.

use super::tables::{share, table};
use crate::command::find::candidate::{Candidate, Time};
use crate::command::getstripe::pattern_word;
use crate::failure::Failure;
use crate::names;
use crate::size::human;
use model::layout::{Component, ComponentSpec};
use model::{Fid, FileType, Layout, LayoutSpec, Map, Set};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Rows of a table; what would be more is counted together.
const ROWS_MAX: usize = 10_000;
/// Files with several names that are remembered, so that they are counted once.
const LINKED_MAX: usize = 1 << 20;
/// Users that a row of layouts names.
const OWNERS_SHOWN: usize = 3;
/// Bytes up to which files are of the first size that is not zero; each next is four times as much.
const FIRST_SIZE: u64 = 4096;
/// 4 KiB to 1 TiB, and more.
const SIZES: usize = 16;
/// Days up to which ages reach, and older.
const AGES: [(i64, &str); 8] = [
    (1, "up to a day"),
    (7, "up to a week"),
    (30, "up to 30 days"),
    (90, "up to 90 days"),
    (180, "up to 180 days"),
    (365, "up to a year"),
    (730, "up to 2 years"),
    (i64::MAX, "older"),
];
const DAY_SECONDS: i64 = 86400;

/// What a report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Striping,
    Owners,
    Sizes,
    Ages,
}

impl Subject {
    pub fn parse(s: &str) -> Result<Subject, Failure> {
        let all = [Subject::Striping, Subject::Owners, Subject::Sizes, Subject::Ages];
        let bad = || Failure::usage(format!("no report of '{s}': of striping, owners, sizes, ages"));
        all.into_iter().find(|a| a.name() == s).ok_or_else(bad)
    }

    pub fn name(self) -> &'static str {
        match self {
            Subject::Striping => "striping",
            Subject::Owners => "owners",
            Subject::Sizes => "sizes",
            Subject::Ages => "ages",
        }
    }
}

/// Files, their bytes, and the space that they take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    pub files: u64,
    pub bytes: u64,
    pub used: u64,
}

impl Sum {
    fn add(&mut self, c: &Candidate) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(c.size());
        self.used = self.used.saturating_add(c.blocks().saturating_mul(512));
    }
}

/// How a file is striped, as far as people choose it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Shape {
    pattern: &'static str,
    stripe_count: usize,
    stripe_size: u32,
    pool: String,
    components: usize,
}

#[derive(Debug, Default)]
struct Striping {
    sum: Sum,
    by_hand: u64,
    /// Files by hand of each user.
    owners: BTreeMap<u32, u64>,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Tally {
    subject: Subject,
    now: i64,
    regular: Sum,
    directories: u64,
    others: u64,
    striping: BTreeMap<Option<Shape>, Striping>,
    users: Map<u32, Sum>,
    groups: Map<u32, Sum>,
    /// Users and groups beyond those.
    more_owners: (Sum, Sum),
    sizes: [Sum; SIZES + 1],
    read: [Sum; AGES.len()],
    written: [Sum; AGES.len()],
    linked: Set<Fid>,
}

impl Tally {
    pub fn new(subject: Subject) -> Tally {
        Tally {
            subject,
            now: world::sys::wall_seconds(),
            regular: Sum::default(),
            directories: 0,
            others: 0,
            striping: BTreeMap::new(),
            users: Map::default(),
            groups: Map::default(),
            more_owners: Default::default(),
            sizes: Default::default(),
            read: Default::default(),
            written: Default::default(),
            linked: Set::default(),
        }
    }

    /// Counts a file once, however many names it has. `default`: what its directory gives new files.
    pub fn add(&mut self, c: &Candidate, default: Option<&LayoutSpec>) {
        let attr = &c.inode().attr;
        if attr.nlink > 1 && !c.is_dir() && self.linked.len() < LINKED_MAX && !self.linked.insert(attr.fid) {
            return;
        }
        match c.kind() {
            FileType::Regular => self.regular.add(c),
            FileType::Directory => self.directories += 1,
            _ => self.others += 1,
        }
        match self.subject {
            Subject::Owners => self.add_owner(c),
            _ if c.kind() != FileType::Regular => {}
            Subject::Striping => self.add_striping(c, default),
            Subject::Sizes => self.sizes[size_index(c.size())].add(c),
            Subject::Ages => {
                let age = |t| self.now.saturating_sub(c.time(t).0);
                let (read, written) = (age_index(age(Time::Access)), age_index(age(Time::Modify)));
                self.read[read].add(c);
                self.written[written].add(c);
            }
        }
    }

    fn add_owner(&mut self, c: &Candidate) {
        let attr = &c.inode().attr;
        let (more_users, more_groups) = (&mut self.more_owners.0, &mut self.more_owners.1);
        for (all, id, more) in
            [(&mut self.users, attr.uid, more_users), (&mut self.groups, attr.gid, more_groups)]
        {
            if all.len() < ROWS_MAX || all.contains_key(&id) {
                all.entry(id).or_default().add(c);
            } else {
                more.add(c);
            }
        }
    }

    fn add_striping(&mut self, c: &Candidate, default: Option<&LayoutSpec>) {
        let Some((layout, main)) = c.layout().zip(c.component()) else { return };
        let shape = Shape {
            pattern: pattern_word(main.pattern),
            stripe_count: main.objects.len(),
            stripe_size: main.stripe_size,
            pool: main.pool.clone(),
            components: layout.components.len(),
        };
        let known = self.striping.len() < ROWS_MAX || self.striping.contains_key(&Some(shape.clone()));
        let row = self.striping.entry(known.then_some(shape)).or_default();
        row.sum.add(c);
        if default.is_some_and(|d| is_by_hand(layout, d)) {
            row.by_hand += 1;
            let uid = c.inode().attr.uid;
            if row.owners.len() < ROWS_MAX || row.owners.contains_key(&uid) {
                *row.owners.entry(uid).or_default() += 1;
            }
        }
    }

    /// The table, and a total below it.
    pub fn lines(&self) -> Vec<String> {
        let mut out = match self.subject {
            Subject::Striping => self.striping_table(),
            Subject::Owners => {
                let mut out = owner_table("user", &self.users, self.more_owners.0, names::user);
                out.push(String::new());
                out.extend(owner_table("group", &self.groups, self.more_owners.1, names::group));
                out
            }
            Subject::Sizes => self.size_table(),
            Subject::Ages => self.age_table(),
        };
        let Sum { files, bytes, used } = self.regular;
        let (bytes, used) = (human(bytes, 1024), human(used, 1024));
        out.push(String::new());
        out.push(format!(
            "total: {files} files of {bytes} in {used}, {} directories, {} others",
            self.directories, self.others
        ));
        out
    }

    fn striping_table(&self) -> Vec<String> {
        let heads = ["layout", "stripes", "stripe size", "pool", "files", "bytes", "by hand", "by whom"];
        let mut rows: Vec<_> = self.striping.iter().collect();
        rows.sort_by_key(|(_, r)| std::cmp::Reverse(r.sum.files));
        let cells = |(shape, r): (&Option<Shape>, &Striping)| {
            let (layout, stripes, size, pool) = match shape {
                Some(s) => {
                    let several =
                        if s.components > 1 { format!(", {} parts", s.components) } else { String::new() };
                    let size = human(u64::from(s.stripe_size), 1024);
                    (format!("{}{several}", s.pattern), s.stripe_count.to_string(), size, s.pool.clone())
                }
                None => ("others".into(), "-".into(), "-".into(), String::new()),
            };
            let (files, bytes) = (r.sum.files.to_string(), human(r.sum.bytes, 1024));
            vec![layout, stripes, size, pool, files, bytes, r.by_hand.to_string(), by_whom(&r.owners)]
        };
        table(&heads, &[0, 3, 7], &rows.into_iter().map(cells).collect::<Vec<_>>())
    }

    fn size_table(&self) -> Vec<String> {
        let Sum { files, bytes, .. } = self.regular;
        let row = |(i, s): (usize, &Sum)| {
            let (n, b) = (s.files.to_string(), human(s.bytes, 1024));
            vec![size_name(i), n, share(s.files, files), b, share(s.bytes, bytes)]
        };
        let last = self.sizes.iter().rposition(|s| s.files > 0).map_or(0, |i| i + 1);
        let rows: Vec<_> = self.sizes.iter().enumerate().take(last).map(row).collect();
        table(&["size", "files", "of all", "bytes", "of all"], &[0], &rows)
    }

    fn age_table(&self) -> Vec<String> {
        let Sum { bytes, .. } = self.regular;
        let row = |i: usize| {
            let (r, w) = (&self.read[i], &self.written[i]);
            let cells = |s: &Sum| [s.files.to_string(), human(s.bytes, 1024), share(s.bytes, bytes)];
            [AGES[i].1.to_string()].into_iter().chain(cells(r)).chain(cells(w)).collect()
        };
        let heads = ["age", "files read", "bytes", "of all", "files written", "bytes", "of all"];
        table(&heads, &[0], &(0..AGES.len()).map(row).collect::<Vec<_>>())
    }

    /// The rows of the table for programs; `now`: seconds since 1970.
    pub fn rows(&self, now: i64) -> Value {
        let sum = |s: &Sum| json!({"files": s.files, "bytes": s.bytes, "used_bytes": s.used});
        match self.subject {
            Subject::Striping => self.striping.iter().map(|(shape, r)| {
                let layout = shape.as_ref().map(|s| json!({"pattern": s.pattern, "stripe_count": s.stripe_count,
                    "stripe_size": s.stripe_size, "pool": s.pool, "components": s.components}));
                let owners: Vec<_> = r.owners.iter().map(|(uid, n)| json!({"uid": uid, "files": n})).collect();
                json!({"layout": layout, "sum": sum(&r.sum), "by_hand": r.by_hand, "owners": owners})
            }).collect(),
            Subject::Owners => {
                let of = |all: &Map<u32, Sum>, name: fn(u32) -> String| {
                    let mut ids: Vec<_> = all.iter().collect();
                    ids.sort_by_key(|(id, _)| **id);
                    let row = |(id, s): (&u32, &Sum)| json!({"id": id, "name": name(*id), "sum": sum(s)});
                    ids.into_iter().map(row).collect::<Vec<_>>()
                };
                json!({"users": of(&self.users, names::user), "groups": of(&self.groups, names::group),
                    "more_users": sum(&self.more_owners.0), "more_groups": sum(&self.more_owners.1)})
            }
            Subject::Sizes => self.sizes.iter().enumerate()
                .map(|(i, s)| json!({"up_to_bytes": size_end(i), "sum": sum(s)})).collect(),
            Subject::Ages => (0..AGES.len()).map(|i| {
                let days = Some(AGES[i].0).filter(|d| *d < i64::MAX);
                json!({"up_to_days": days, "until": now, "read": sum(&self.read[i]), "written": sum(&self.written[i])})
            }).collect(),
        }
    }

    pub fn total_row(&self) -> Value {
        let Sum { files, bytes, used } = self.regular;
        json!({"files": files, "bytes": bytes, "used_bytes": used, "directories": self.directories,
            "others": self.others})
    }
}

/// A layout that the file's directory would not give it today.
pub(super) fn is_by_hand(l: &Layout, default: &LayoutSpec) -> bool {
    if l.mdt_component().is_some() || !l.has_objects() {
        return false;
    }
    let wanted = match default.full_components() {
        Ok(parts) if !parts.is_empty() => parts,
        _ => vec![ComponentSpec {
            stripe_count: default.stripe_count,
            stripe_size: default.stripe_size,
            pool: default.pool.clone(),
            ..ComponentSpec::default()
        }],
    };
    let same_ends = l.components.iter().map(|c| c.end).eq(wanted.iter().map(|w| w.end));
    // What grows ends where it has come to, and others may have taken over what was its.
    let grows = wanted.iter().any(|w| w.extension_bytes > 0);
    let compared = if grows { 1 } else { wanted.len() };
    let pairs = l.components.iter().zip(&wanted).take(compared);
    (!same_ends && !grows) || pairs.filter(|(c, _)| c.is_instantiated()).any(|(c, w)| differs(c, w))
}

/// Whether a component with objects is not what is wanted. More stripes than there are OSTs are never had,
/// and how many there were is not known.
fn differs(c: &Component, wanted: &ComponentSpec) -> bool {
    let count = usize::try_from(wanted.stripe_count).ok().filter(|n| *n > 0);
    let other_count = count.is_some_and(|n| c.objects.len() > n || (n == 1) != (c.objects.len() == 1));
    other_count || u64::from(c.stripe_size) != wanted.stripe_size || c.pool != wanted.pool
}

fn by_whom(owners: &BTreeMap<u32, u64>) -> String {
    let mut all: Vec<_> = owners.iter().collect();
    all.sort_by_key(|(uid, n)| (std::cmp::Reverse(**n), **uid));
    let named: Vec<String> =
        all.iter().take(OWNERS_SHOWN).map(|(uid, n)| format!("{} ({n})", names::user(**uid))).collect();
    match all.len().saturating_sub(OWNERS_SHOWN) {
        0 => named.join(", "),
        more => format!("{}, {more} more", named.join(", ")),
    }
}

fn owner_table(head: &str, all: &Map<u32, Sum>, more: Sum, name: fn(u32) -> String) -> Vec<String> {
    let mut ids: Vec<_> = all.iter().collect();
    ids.sort_by_key(|(id, s)| (std::cmp::Reverse(s.bytes), **id));
    let cells = |name: String, id: String, s: &Sum| {
        vec![name, id, s.files.to_string(), human(s.bytes, 1024), human(s.used, 1024)]
    };
    let mut rows: Vec<_> = ids.into_iter().map(|(id, s)| cells(name(*id), id.to_string(), s)).collect();
    if more.files > 0 {
        rows.push(cells("others".into(), "-".into(), &more));
    }
    table(&[head, "id", "files", "bytes", "space"], &[0], &rows)
}

/// Zero bytes are the first; the last has no end.
fn size_index(bytes: u64) -> usize {
    (0..SIZES).find(|i| size_end(*i).is_some_and(|end| bytes <= end)).unwrap_or(SIZES)
}

fn size_end(i: usize) -> Option<u64> {
    match i {
        0 => Some(0),
        SIZES => None,
        i => Some(FIRST_SIZE << (2 * (i - 1))),
    }
}

fn size_name(i: usize) -> String {
    match size_end(i) {
        Some(0) => "empty".into(),
        Some(end) => format!("up to {}", human(end, 1024).replace(".0", "")),
        None => "larger".into(),
    }
}

fn age_index(seconds: i64) -> usize {
    let days = |d: i64| d.saturating_mul(DAY_SECONDS);
    AGES.iter().position(|(d, _)| seconds <= days(*d)).unwrap_or(AGES.len() - 1)
}

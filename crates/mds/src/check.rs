//! Looks at everything in a metadata target's table and says what does not fit together. Changes nothing.
//! Used by `nacre fsck` and, after each run, by the simulator. Memory is bounded: it walks the keys in order
//! and looks the counterparts up one by one.

use crate::MdsError;
use crate::changelog::check::LogCheck;
use crate::labels::check::LabelCheck;
use crate::schema::inode::{DATA_BLOCK_BYTES, DataState};
use crate::schema::limits::{LimitsKey, OwnerLimits, PoolLimits, TypeLimits};
use crate::schema::value::{self, OrphanKind, OutboxRecord};
use crate::schema::{DentryValue, Inode, Lease, key};
use crate::trash;
use crate::walk::{walk, walk_some};
use model::{Fid, FileType, ObjectId};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use store::Read;
use store::usage::Counted;

/// What kind of rule is broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// A value does not decode, or a key is of no known form.
    Damaged,
    /// A name leads to no inode, to another type, or has no back-pointer.
    Name,
    /// A back-pointer without its name.
    Backpointer,
    /// nlink, or a directory's count of entries.
    Count,
    /// A directory that cannot be reached from the root, or whose `..` is wrong.
    Parent,
    /// A file without names that is neither an orphan nor in the trash, or one of those with names.
    Orphan,
    /// Layout and reverse index differ, or an object belongs to two.
    Layout,
    /// An object of a living file is to be destroyed.
    Outbox,
    /// A FID of a sequence that was never leased.
    Sequence,
    /// Counters of the target.
    State,
    /// What owners use.
    Usage,
    /// Large attributes without a file, or miscounted.
    Xattr,
    /// Bytes with an inode: without a file, beside objects, miscounted or behind the file's end.
    Data,
    /// A file is counted to another directory with a quota than it lies in.
    Directory,
    /// Records of the changelog that are missing, freed or miscounted, and consumers that do not fit them.
    Changelog,
}

/// One thing that does not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub rule: Rule,
    /// The file concerned; NONE if it is not about one.
    pub fid: Fid,
    pub what: String,
    /// The record that was looked at; empty if it was none in particular.
    pub at: Vec<u8>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fid == Fid::NONE { f.write_str(&self.what) } else { write!(f, "{}: {}", self.fid, self.what) }
    }
}

/// What was looked at.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub inodes: u64,
    pub names: u64,
    pub objects: u64,
    pub orphans: u64,
    /// Outbox records that wait for OSTs.
    pub outbox: u64,
    /// Records of the changelog.
    pub log_records: u64,
    pub findings: Vec<Finding>,
    /// Findings beyond the limit were not kept.
    pub more: u64,
}

/// Findings that are kept.
const FINDINGS_MAX: usize = 100_000;
/// Steps towards the root before a loop is assumed.
const DEPTH_MAX: usize = 1 << 20;

/// Checks the whole table. An error means it could not be read; what is wrong with it is in the summary.
pub fn check(db: &dyn Read) -> Result<Summary, MdsError> {
    check_watched(db, &Watch::default())
}

/// A check under way, for whoever waits for it.
#[derive(Default, Debug)]
pub struct Watch {
    /// Records looked at.
    pub looked: AtomicU64,
    /// Set by whoever does not want it any more.
    pub stop: AtomicBool,
}

/// As [`check`]; `Refused` if it was stopped.
pub fn check_watched(db: &dyn Read, watch: &Watch) -> Result<Summary, MdsError> {
    let (mut out, mut records) = (Summary::default(), Vec::new());
    let labels = LabelCheck::new(db, |fid, what| {
        records.push(Finding { rule: Rule::Directory, fid, what, at: Vec::new() });
    })?;
    out.findings = records;
    let mut c = Checker::new(db, watch, labels, out);
    c.state()?;
    c.inodes()?;
    c.names()?;
    c.backpointers()?;
    c.reverse_index()?;
    c.orphans()?;
    c.trash()?;
    c.outbox()?;
    c.xattrs()?;
    c.data()?;
    c.leases()?;
    c.clients()?;
    c.changelog()?;
    c.limits()?;
    c.counters()?;
    Ok(c.out)
}

/// The parts of a table in the order in which a repair needs them: names and back-pointers before what is
/// counted of them, inodes before what belongs to one, counters of everything at the end.
const ORDER: [u8; 14] = [
    key::DENTRY,
    key::BACKPTR,
    key::INODE,
    key::REVERSE,
    key::ORPHAN,
    key::TRASH,
    key::OUTBOX,
    key::XATTR,
    key::DATA,
    key::LEASE,
    key::CLIENT,
    key::LIMITS,
    key::CHANGELOG,
    key::STATE,
];

/// Some of a table, looked at.
pub struct Part {
    pub summary: Summary,
    /// Where to go on; `None`: that was the end.
    pub next: Option<Vec<u8>>,
}

/// Looks at about `records` records from key `from` on (empty: from the beginning), in the order of
/// [`ORDER`]. The changelog and the counters are looked at at once, each.
pub fn check_part(db: &dyn Read, from: &[u8], records: usize, watch: &Watch) -> Result<Part, MdsError> {
    assert!(records > 0, "a part has something");
    let tag = from.first().copied().unwrap_or(ORDER[0]);
    let place = ORDER.iter().position(|t| *t == tag);
    let place =
        place.ok_or_else(|| MdsError::Refused(format!("no check goes on at key {}", value::hex(from))))?;
    // Names are compared with all directories that have a quota; these themselves come last.
    let mut wrong = Vec::new();
    let labels = match tag {
        key::DENTRY | key::STATE => LabelCheck::new(db, |fid, what| wrong.push((fid, what)))?,
        _ => LabelCheck::default(),
    };
    let mut c = Checker::new(db, watch, labels, Summary::default());
    for (fid, what) in wrong.into_iter().filter(|_| tag == key::STATE) {
        c.found(Rule::Directory, fid, what);
    }
    let from = if from.is_empty() { vec![tag] } else { from.to_vec() };
    c.span = Some(Span { from, left: records, next: None });
    match tag {
        key::DENTRY => c.names()?,
        key::BACKPTR => c.backpointers()?,
        key::INODE => c.inodes()?,
        key::REVERSE => c.reverse_index()?,
        key::ORPHAN => c.orphans()?,
        key::TRASH => c.trash()?,
        key::OUTBOX => c.outbox()?,
        key::XATTR => c.xattrs()?,
        key::DATA => c.data()?,
        key::LEASE => c.leases()?,
        key::CLIENT => c.clients()?,
        key::LIMITS => c.limits()?,
        key::CHANGELOG => {
            c.span = None;
            c.changelog()?;
        }
        _ => c.state()?,
    }
    let rest = c.span.take().and_then(|s| s.next);
    let next = rest.or_else(|| ORDER.get(place + 1).map(|t| vec![*t]));
    Ok(Part { summary: c.out, next })
}

/// Every object that a file has, in order of OSTs: (OST, object, file). What an OST holds beyond these and
/// the outbox is leaked; what it lacks was never written.
pub fn expected_objects(
    db: &dyn Read,
    mut f: impl FnMut(u16, ObjectId, Fid) -> Result<(), MdsError>,
) -> Result<(), MdsError> {
    walk(db, &[key::REVERSE], &[key::REVERSE + 1], |k, v| match key::parse_reverse(k) {
        Some((ost, object)) => f(ost, object, value::decode_owner(k, v)?),
        None => Ok(()),
    })
}

/// Objects that OSTs are still to destroy: (OST, object).
pub fn doomed_objects(db: &dyn Read, mut f: impl FnMut(u16, ObjectId)) -> Result<(), MdsError> {
    walk(db, &[key::OUTBOX], &[key::OUTBOX + 1], |k, v| {
        if let Some((ost, _)) = key::parse_outbox(k)
            && let OutboxRecord::Destroy(objects) = value::decode_outbox(k, v)?
        {
            objects.into_iter().for_each(|o| f(ost, o));
        }
        Ok(())
    })
}

struct Checker<'a> {
    db: &'a dyn Read,
    watch: &'a Watch,
    out: Summary,
    /// What owners use by the inodes so far.
    counted: Counted,
    labels: LabelCheck,
    /// The record that is looked at.
    at: Vec<u8>,
    /// Only some records are.
    span: Option<Span>,
}

/// Which records are looked at, of one kind.
struct Span {
    from: Vec<u8>,
    left: usize,
    /// Behind the last one; `None`: there are no more.
    next: Option<Vec<u8>>,
}

impl<'a> Checker<'a> {
    fn new(db: &'a dyn Read, watch: &'a Watch, labels: LabelCheck, out: Summary) -> Checker<'a> {
        Checker { db, watch, out, counted: Counted::default(), labels, at: Vec::new(), span: None }
    }

    fn found(&mut self, rule: Rule, fid: Fid, what: impl Into<String>) {
        if self.out.findings.len() < FINDINGS_MAX {
            self.out.findings.push(Finding { rule, fid, what: what.into(), at: self.at.clone() });
        } else {
            self.out.more += 1;
        }
    }

    /// One more record.
    fn next(&self) -> Result<(), MdsError> {
        self.watch.looked.fetch_add(1, Relaxed);
        if self.watch.stop.load(Relaxed) {
            Err(MdsError::Refused("the check was stopped".into()))
        } else {
            Ok(())
        }
    }

    /// Walks all keys of a tag, or those of the span; what does not decode is a finding.
    fn each(
        &mut self,
        tag: u8,
        mut f: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), MdsError>,
    ) -> Result<(), MdsError> {
        let db = self.db;
        let (mut from, mut most) = (vec![tag], usize::MAX);
        if let Some(s) = &self.span {
            assert_eq!(s.from[0], tag, "a part is of one kind");
            (from, most) = (s.from.clone(), s.left);
        }
        let next = walk_some(db, &from, &[tag + 1], most, |k, v| {
            self.at.clear();
            self.at.extend_from_slice(k);
            match self.next().and_then(|()| f(self, k, v)) {
                Err(e @ MdsError::Damaged { .. }) => {
                    self.found(Rule::Damaged, key::parse_fid(k).unwrap_or(Fid::NONE), e.to_string());
                    Ok(())
                }
                r => r,
            }
        })?;
        if let Some(s) = &mut self.span {
            s.next = next;
        }
        self.at.clear();
        Ok(())
    }

    fn key_damaged(&mut self, k: &[u8]) {
        self.found(Rule::Damaged, Fid::NONE, format!("key {} is of no known form", value::hex(k)));
    }

    /// The inode, `None` if there is none or it does not decode (which `inodes` reports).
    fn inode(&self, fid: Fid) -> Result<Option<Inode>, MdsError> {
        Ok(self.db.get(&key::inode(fid))?.and_then(|v| Inode::decode(fid, &v).ok()))
    }

    fn state(&mut self) -> Result<(), MdsError> {
        for k in [key::STATE_HASH_KEY, key::STATE_NEXT_SEQ, key::STATE_INODES] {
            if self.db.get(k)?.is_none() {
                let name = String::from_utf8_lossy(k).into_owned();
                self.found(Rule::State, Fid::NONE, format!("the target's record {name} is missing"));
            }
        }
        match self.inode(Fid::ROOT)? {
            Some(i) if i.is_dir() && i.parent == Fid::ROOT => {}
            Some(_) => self.found(Rule::Parent, Fid::ROOT, "the root is no directory or has a parent"),
            None => self.found(Rule::Parent, Fid::ROOT, "there is no root directory"),
        }
        Ok(())
    }

    fn next_seq(&self) -> Result<u64, MdsError> {
        let k = key::STATE_NEXT_SEQ;
        Ok(self.db.get(k)?.and_then(|v| value::decode_u64(k, &v).ok()).unwrap_or(0))
    }

    fn inodes(&mut self) -> Result<(), MdsError> {
        let next = self.next_seq()?;
        self.each(key::INODE, |c, k, v| {
            let Some(fid) = key::parse_fid(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            c.out.inodes += 1;
            let i = Inode::decode(fid, v)?;
            if fid != Fid::ROOT && fid.seq >= next {
                c.found(Rule::Sequence, fid, "its sequence was never leased");
            }
            let (owner, usage) = i.usage();
            c.counted.add(owner, usage);
            c.links(fid, &i)?;
            c.layout(fid, &i)?;
            c.large_xattrs(fid, &i)?;
            c.data_of(fid, &i)?;
            if i.acl.as_ref().is_some_and(|a| a.mode_bits() != i.mode & 0o777) {
                c.found(Rule::Count, fid, "its access list and its mode differ");
            }
            Ok(())
        })
    }

    /// Names, counts and the way to the root of one inode.
    fn links(&mut self, fid: Fid, i: &Inode) -> Result<(), MdsError> {
        let mut names = 0u64;
        let mut parents = Vec::new();
        let prefix = key::backptr_prefix(fid);
        walk(self.db, &prefix, &key::behind(&prefix), |k, _| {
            names += 1;
            if let (Some((_, parent, _)), true) = (key::parse_backptr(k), parents.len() < 2) {
                parents.push(parent);
            }
            Ok(())
        })?;
        let orphan = self.db.get(&key::orphan(fid))?.is_some();
        if let Some(what) = trash::check::of_inode(self.db, fid, i)? {
            self.found(Rule::Orphan, fid, what);
        }
        match (i.nlink == 0, orphan, i.removed.is_some()) {
            (_, true, true) => self.found(Rule::Orphan, fid, "is an orphan, and lies in the trash"),
            (false, true, _) => self.found(Rule::Orphan, fid, "is listed as an orphan but has links"),
            (true, false, false) => {
                self.found(Rule::Orphan, fid, "has no links and is neither an orphan nor in the trash");
            }
            _ => {}
        }
        if !i.is_dir() {
            if u64::from(i.nlink) != names {
                self.found(Rule::Count, fid, format!("nlink is {}, but it has {names} names", i.nlink));
            }
            if let Some(what) = self.labels.of_links(self.db, fid, i)? {
                self.found(Rule::Directory, fid, what);
            }
            return Ok(());
        }
        let (mut entries, mut dirs) = (0u64, 0u64);
        walk(self.db, &key::dentry_from(fid, 0), &key::dentry_end(fid), |k, v| {
            entries += 1;
            dirs += u64::from(DentryValue::decode(k, v).is_ok_and(|d| d.kind == FileType::Directory));
            Ok(())
        })?;
        if entries != i.entries {
            self.found(Rule::Count, fid, format!("it counts {} entries, but has {entries}", i.entries));
        }
        let want = if i.nlink == 0 { 0 } else { 2 + dirs };
        if u64::from(i.nlink) != want {
            self.found(Rule::Count, fid, format!("nlink is {}, but it has {dirs} subdirectories", i.nlink));
        }
        if fid == Fid::ROOT || fid == Fid::LOST_FOUND || i.nlink == 0 {
            return Ok(());
        }
        if parents != [i.parent] {
            let what = format!("its '..' is {}, but its names are in {parents:?}", i.parent);
            self.found(Rule::Parent, fid, what);
        }
        self.reaches_root(fid, i.parent)
    }

    fn reaches_root(&mut self, fid: Fid, parent: Fid) -> Result<(), MdsError> {
        let mut at = parent;
        for _ in 0..DEPTH_MAX {
            if at == Fid::ROOT {
                return Ok(());
            }
            match self.inode(at)? {
                Some(i) if at != fid => at = i.parent,
                Some(_) => break,
                None => {
                    self.found(
                        Rule::Parent,
                        fid,
                        format!("the way to the root ends at {at}, which does not exist"),
                    );
                    return Ok(());
                }
            }
        }
        self.found(Rule::Parent, fid, "it is cut off from the root: its parents form a loop");
        Ok(())
    }

    fn layout(&mut self, fid: Fid, i: &Inode) -> Result<(), MdsError> {
        for o in i.objects() {
            let k = key::reverse(o.ost, o.id);
            match self.db.get(&k)?.map(|v| value::decode_owner(&k, &v)) {
                Some(Ok(owner)) if owner == fid => {}
                Some(Ok(owner)) => {
                    self.found(
                        Rule::Layout,
                        fid,
                        format!("the reverse index gives its object {} to {owner}", o.id),
                    );
                }
                Some(Err(_)) => {}
                None => {
                    let what =
                        format!("its object {} on OST {:04x} is not in the reverse index", o.id, o.ost);
                    self.found(Rule::Layout, fid, what);
                }
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<(), MdsError> {
        let mut missing_dir = Fid::NONE;
        let mut seen_dir = Fid::NONE;
        let mut last = (Fid::NONE, 0);
        let mut at = None;
        self.each(key::DENTRY, |c, k, v| {
            let Some((dir, cookie, name)) = key::parse_dentry(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            c.out.names += 1;
            let d = DentryValue::decode(k, v)?;
            let shown = String::from_utf8_lossy(name).into_owned();
            if dir != seen_dir && dir != missing_dir {
                seen_dir = dir;
                at = c.inode(dir)?.filter(|i| i.is_dir());
                if at.is_none() {
                    missing_dir = dir;
                    c.found(Rule::Name, dir, "it has entries but is no directory");
                }
            }
            if last == (dir, cookie) {
                c.found(Rule::Name, dir, format!("two entries have the cookie of '{shown}'"));
            }
            last = (dir, cookie);
            if !(16..=i64::MAX as u64).contains(&cookie) {
                c.found(Rule::Name, dir, format!("the cookie of '{shown}' is out of range"));
            }
            match c.inode(d.fid)? {
                None => c.found(Rule::Name, d.fid, format!("'{shown}' in {dir} leads to no file")),
                Some(i) if i.kind != d.kind => {
                    c.found(
                        Rule::Name,
                        d.fid,
                        format!("'{shown}' in {dir} says {:?}, it is {:?}", d.kind, i.kind),
                    );
                }
                Some(i) => {
                    if let Some(what) = at.as_ref().and_then(|at| c.labels.in_place(at, d.fid, &i)) {
                        c.found(Rule::Directory, d.fid, what);
                    }
                }
            }
            let b = key::backptr(d.fid, dir, cookie);
            match c.db.get(&b)?.map(|v| value::decode_name(&b, &v)) {
                Some(Ok(n)) if n == name => {}
                _ => c.found(Rule::Name, d.fid, format!("its name '{shown}' in {dir} has no back-pointer")),
            }
            Ok(())
        })
    }

    fn backpointers(&mut self) -> Result<(), MdsError> {
        self.each(key::BACKPTR, |c, k, v| {
            let Some((fid, parent, cookie)) = key::parse_backptr(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            let name = value::decode_name(k, v)?;
            let d = key::dentry(parent, cookie, &name);
            match c.db.get(&d)?.map(|v| DentryValue::decode(&d, &v)) {
                Some(Ok(v)) if v.fid == fid => {}
                _ => {
                    let shown = String::from_utf8_lossy(&name).into_owned();
                    c.found(
                        Rule::Backpointer,
                        fid,
                        format!("it points back to '{shown}' in {parent}, which is not it"),
                    );
                }
            }
            Ok(())
        })
    }

    fn reverse_index(&mut self) -> Result<(), MdsError> {
        self.each(key::REVERSE, |c, k, v| {
            let Some((ost, object)) = key::parse_reverse(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            c.out.objects += 1;
            let owner = value::decode_owner(k, v)?;
            if !c.inode(owner)?.is_some_and(|i| i.has_object(ost, object)) {
                c.found(
                    Rule::Layout,
                    owner,
                    format!(
                        "the reverse index gives it object {object} on OST {ost:04x}, its layout does not"
                    ),
                );
            }
            Ok(())
        })
    }

    fn orphans(&mut self) -> Result<(), MdsError> {
        self.each(key::ORPHAN, |c, k, v| {
            c.out.orphans += 1;
            OrphanKind::decode(k, v)?;
            match key::parse_fid(k) {
                None => c.key_damaged(k),
                Some(fid) if c.db.get(&key::inode(fid))?.is_none() => {
                    c.found(Rule::Orphan, fid, "is listed as an orphan but does not exist");
                }
                Some(_) => {}
            }
            Ok(())
        })
    }

    fn trash(&mut self) -> Result<(), MdsError> {
        self.each(key::TRASH, |c, k, _| {
            if let Some((fid, what)) = trash::check::of_record(c.db, k)? {
                c.found(Rule::Orphan, fid, what);
            }
            Ok(())
        })
    }

    fn outbox(&mut self) -> Result<(), MdsError> {
        self.each(key::OUTBOX, |c, k, v| {
            let Some((ost, _)) = key::parse_outbox(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            c.out.outbox += 1;
            let OutboxRecord::Destroy(objects) = value::decode_outbox(k, v)? else { return Ok(()) };
            for o in objects {
                if c.db.get(&key::reverse(ost, o))?.is_some() {
                    c.found(
                        Rule::Outbox,
                        o.origin,
                        format!("object {o} on OST {ost:04x} is in use but to be destroyed"),
                    );
                }
            }
            Ok(())
        })
    }

    /// Large attributes of one inode, counted.
    fn large_xattrs(&mut self, fid: Fid, i: &Inode) -> Result<(), MdsError> {
        if i.large_xattrs == 0 {
            // If there are any all the same, `xattrs` meets them.
            return Ok(());
        }
        let prefix = key::xattr_prefix(fid);
        let mut count = 0u32;
        walk(self.db, &prefix, &key::behind(&prefix), |_, _| {
            count += 1;
            Ok(())
        })?;
        if i.large_xattrs != count {
            self.found(
                Rule::Xattr,
                fid,
                format!("it counts {} large attributes, but has {count}", i.large_xattrs),
            );
        }
        Ok(())
    }

    fn xattrs(&mut self) -> Result<(), MdsError> {
        let mut last = Fid::NONE;
        self.each(key::XATTR, |c, k, v| {
            let Some((fid, _)) = key::parse_xattr(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            value::decode_xattr(k, v)?;
            if fid == last {
                return Ok(());
            }
            last = fid;
            match c.inode(fid)? {
                None => c.found(Rule::Xattr, fid, "it has extended attributes but does not exist"),
                Some(i) if i.large_xattrs == 0 => {
                    c.found(Rule::Xattr, fid, "it counts no large attributes, but has some")
                }
                Some(_) => {}
            }
            Ok(())
        })
    }

    /// Data of one inode: counted, and within its bounds.
    fn data_of(&mut self, fid: Fid, i: &Inode) -> Result<(), MdsError> {
        if i.data_room().is_none_or(|room| i.data.size > room) && i.data != DataState::default() {
            let what =
                format!("it has {} bytes with its inode, for which its layout has no room", i.data.size);
            self.found(Rule::Data, fid, what);
        }
        if i.data.blocks == 0 {
            // If there are any all the same, `data` meets them.
            return Ok(());
        }
        let prefix = key::data_prefix(fid);
        let (mut blocks, mut behind) = (0u32, false);
        walk(self.db, &prefix, &key::behind(&prefix), |k, v| {
            blocks += 1;
            if let (Some((_, block)), Ok(bytes)) = (key::parse_data(k), value::decode_data(k, v)) {
                let start = u64::from(block) * DATA_BLOCK_BYTES as u64;
                behind |= !bytes.is_empty() && start + bytes.len() as u64 > i.data.size;
            }
            Ok(())
        })?;
        if i.data.blocks != blocks {
            let what = format!("it counts {} blocks of data, but has {blocks}", i.data.blocks);
            self.found(Rule::Data, fid, what);
        }
        if behind {
            self.found(Rule::Data, fid, "it has data behind its end");
        }
        Ok(())
    }

    fn data(&mut self) -> Result<(), MdsError> {
        let mut last = Fid::NONE;
        self.each(key::DATA, |c, k, v| {
            let Some((fid, _)) = key::parse_data(k) else {
                c.key_damaged(k);
                return Ok(());
            };
            value::decode_data(k, v)?;
            if fid == last {
                return Ok(());
            }
            last = fid;
            match c.inode(fid)? {
                None => c.found(Rule::Data, fid, "it has data but does not exist"),
                Some(i) if i.data.blocks == 0 => c.found(Rule::Data, fid, "it counts no data, but has some"),
                Some(_) => {}
            }
            Ok(())
        })
    }

    fn leases(&mut self) -> Result<(), MdsError> {
        let next = self.next_seq()?;
        self.each(key::LEASE, |c, k, v| {
            Lease::decode(k, v)?;
            match key::parse_lease(k) {
                None => c.key_damaged(k),
                Some(seq) if seq >= next => {
                    c.found(
                        Rule::Sequence,
                        Fid::NONE,
                        format!("sequence {seq:#x} is leased but not handed out yet"),
                    );
                }
                Some(_) => {}
            }
            Ok(())
        })
    }

    fn clients(&mut self) -> Result<(), MdsError> {
        self.each(key::CLIENT, |c, k, v| {
            match key::parse_client(k) {
                None => c.key_damaged(k),
                Some(_) => {
                    value::ClientRecord::decode(k, v)?;
                }
            }
            Ok(())
        })
    }

    fn changelog(&mut self) -> Result<(), MdsError> {
        let mut log = match LogCheck::new(self.db) {
            Ok(log) => log,
            Err(e @ MdsError::Damaged { .. }) => {
                self.found(Rule::Damaged, Fid::NONE, e.to_string());
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        self.each(key::CHANGELOG, |c, k, v| {
            match key::parse_changelog(k) {
                None => c.key_damaged(k),
                Some(index) => {
                    if let Some(what) = log.next(index, k, v)? {
                        c.found(Rule::Changelog, Fid::NONE, what);
                    }
                }
            }
            Ok(())
        })?;
        self.out.log_records = log.count;
        for what in log.end() {
            self.found(Rule::Changelog, Fid::NONE, what);
        }
        Ok(())
    }

    fn limits(&mut self) -> Result<(), MdsError> {
        self.each(key::LIMITS, |c, k, v| {
            let read = match LimitsKey::decode(k) {
                Some(LimitsKey::Owner(_)) => OwnerLimits::decode(k, v).map(drop),
                Some(LimitsKey::Type(_)) => TypeLimits::decode(k, v).map(drop),
                Some(LimitsKey::Pool(..)) => PoolLimits::decode(k, v).map(drop),
                None => {
                    c.key_damaged(k);
                    return Ok(());
                }
            };
            if let Err(e) = read {
                c.found(Rule::Damaged, Fid::NONE, e.to_string());
            }
            Ok(())
        })
    }

    fn counters(&mut self) -> Result<(), MdsError> {
        let k = key::STATE_INODES;
        let stored = self.db.get(k)?.and_then(|v| value::decode_u64(k, &v).ok());
        if stored.is_some_and(|n| n != self.out.inodes) {
            let what = format!("{} inodes are counted, there are {}", stored.unwrap_or(0), self.out.inodes);
            self.found(Rule::State, Fid::NONE, what);
        }
        // Where an inode cannot be read nobody knows what its owner has.
        let damaged = self.out.findings.iter().any(|f| f.rule == Rule::Damaged);
        let counted = std::mem::take(&mut self.counted).into_totals();
        if let Some(what) = store::usage::difference(self.db, &counted)?.filter(|_| !damaged) {
            self.found(Rule::Usage, Fid::NONE, what);
        }
        Ok(())
    }
}

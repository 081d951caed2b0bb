//! Looks at everything in a metadata target's table and says what does not fit together. Changes nothing.
//! Used by `nacre fsck` and, after each run, by the simulator. Memory is bounded: it walks the keys in order
//! and looks the counterparts up one by one.

use crate::MdsError;
use crate::changelog::check::LogCheck;
use crate::schema::inode::{DATA_BLOCK_BYTES, DataState};
use crate::schema::limits::{LimitsKey, OwnerLimits, TypeLimits};
use crate::schema::value::{self, OrphanKind, OutboxRecord};
use crate::schema::{DentryValue, Inode, Lease, key};
use crate::walk::walk;
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
    /// A file without names that is no orphan, or an orphan with names.
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
    let mut c = Checker { db, watch, out: Summary::default(), counted: Counted::default() };
    c.state()?;
    c.inodes()?;
    c.names()?;
    c.backpointers()?;
    c.reverse_index()?;
    c.orphans()?;
    c.outbox()?;
    c.xattrs()?;
    c.data()?;
    c.clients_and_leases()?;
    c.changelog()?;
    c.limits()?;
    c.counters()?;
    Ok(c.out)
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
}

impl Checker<'_> {
    fn found(&mut self, rule: Rule, fid: Fid, what: impl Into<String>) {
        if self.out.findings.len() < FINDINGS_MAX {
            self.out.findings.push(Finding { rule, fid, what: what.into() });
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

    /// Walks all keys of a tag; what does not decode is a finding.
    fn each(
        &mut self,
        tag: u8,
        mut f: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), MdsError>,
    ) -> Result<(), MdsError> {
        let db = self.db;
        walk(db, &[tag], &[tag + 1], |k, v| match self.next().and_then(|()| f(self, k, v)) {
            Err(e @ MdsError::Damaged { .. }) => {
                self.found(Rule::Damaged, key::parse_fid(k).unwrap_or(Fid::NONE), e.to_string());
                Ok(())
            }
            r => r,
        })
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
        if (i.nlink == 0) != orphan {
            let what =
                if orphan { "is listed as an orphan but has links" } else { "has no links and is no orphan" };
            self.found(Rule::Orphan, fid, what);
        }
        if !i.is_dir() {
            if u64::from(i.nlink) != names {
                self.found(Rule::Count, fid, format!("nlink is {}, but it has {names} names", i.nlink));
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
        if fid == Fid::ROOT || i.nlink == 0 {
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
                if !c.inode(dir)?.is_some_and(|i| i.is_dir()) {
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
                Some(_) => {}
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
            if !c.inode(owner)?.is_some_and(|i| i.objects().any(|o| o.ost == ost && o.id == object)) {
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

    fn clients_and_leases(&mut self) -> Result<(), MdsError> {
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
        })?;
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

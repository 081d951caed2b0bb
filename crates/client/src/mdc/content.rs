//! Whole small files: the data that lies with inodes, and extended attributes, as far as this mount knows
//! them.
//!
//! A state machine without I/O, a part of [`super::cache::Cache`], which says when something of it may be
//! used. What is kept here is what a file held at one version of its inode, which is true for ever; it may be
//! used while that is the inode's version, and that is known as long as the inode is
//! ([`super::cache::Cache::entry`]): under its lease, not while this mount changes it. A change of this
//! mount's own that took the inode from the version kept here to the next one is made here too, if it was the
//! only one meanwhile; after any other nothing is kept.

use bytes::{Bytes, BytesMut};
use model::planted::{self, Bug};
use model::{Fid, Map};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Largest file that is kept.
pub(crate) const CONTENT_MAX_BYTES: usize = 64 << 10;
/// About what a file costs besides its bytes.
const FILE_BYTES: usize = 160;
/// Largest value of an extended attribute that is kept, and how many of a file.
const XATTR_MAX_BYTES: usize = 4096;
const XATTRS_MAX: usize = 32;
/// How many lookups in a row may bring data that nobody reads.
const CREDIT_MAX: u32 = 64;
/// Without credit, one lookup in so many asks for data all the same, to find out.
const PROBE_EVERY: u32 = 32;

/// What brought data that nobody has read yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// Somebody reads it.
    Asked,
    /// The answer to a lookup.
    Lookup,
    /// It was fetched because the files before it were read.
    Ahead,
}

/// What an own change did to a file's data.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) enum Edit {
    /// Nobody knows.
    #[default]
    Unknown,
    Nothing,
    Write {
        off: u64,
        data: Bytes,
    },
    /// Cut or extended by zeros.
    Size(u64),
}

/// Extended attributes by whether root asks (others are not shown all) and name; an absent one is known, too.
#[derive(Default, Debug)]
struct Xattrs {
    version: u64,
    values: BTreeMap<(bool, Vec<u8>), Option<Vec<u8>>>,
    names: [Option<Vec<Vec<u8>>>; 2],
}

impl Xattrs {
    fn bytes(&self) -> usize {
        let values = self.values.iter().map(|(k, v)| 64 + k.1.len() + v.as_ref().map_or(0, Vec::len));
        let names = self.names.iter().flatten().flatten().map(|n| 32 + n.len());
        values.sum::<usize>() + names.sum::<usize>()
    }
}

#[derive(Default, Debug)]
struct Kept {
    /// Of this version of the inode.
    data: Option<(u64, Bytes)>,
    /// Nobody read it yet.
    unread: Option<Came>,
    xattrs: Option<Box<Xattrs>>,
    /// Accounted for.
    bytes: usize,
    used: u64,
}

/// All that is kept, bounded, the least recently used goes first.
pub(crate) struct Contents {
    files: Map<Fid, Kept>,
    order: BTreeMap<u64, Fid>,
    clock: u64,
    bytes: usize,
    /// The same for those who do not ask here.
    shown: Arc<AtomicU64>,
    max_bytes: usize,
    credit: u32,
    probe: u32,
}

impl Contents {
    /// `shown` is kept equal to what all of it takes.
    pub fn new(max_bytes: usize, shown: Arc<AtomicU64>) -> Contents {
        Contents {
            files: Map::default(),
            order: BTreeMap::new(),
            clock: 0,
            bytes: 0,
            shown,
            max_bytes,
            credit: CREDIT_MAX,
            probe: 0,
        }
    }

    /// 0: nothing is kept.
    pub fn set_max_bytes(&mut self, max: usize) {
        self.max_bytes = max;
        self.shrink();
    }

    pub fn clear(&mut self) {
        self.files.clear();
        self.order.clear();
        self.set_bytes(0);
    }

    fn set_bytes(&mut self, n: usize) {
        // Of several targets it is the sum.
        self.shown.fetch_add((n as u64).wrapping_sub(self.bytes as u64), Relaxed);
        self.bytes = n;
    }

    fn touch(&mut self, fid: Fid) {
        self.clock += 1;
        if let Some(k) = self.files.get_mut(&fid) {
            self.order.remove(&k.used);
            k.used = self.clock;
            self.order.insert(self.clock, fid);
        }
    }

    /// After a change of what is kept of a file.
    fn account(&mut self, fid: Fid) {
        let Some(k) = self.files.get_mut(&fid) else { return };
        if k.data.is_none() && k.xattrs.is_none() {
            return self.remove(fid);
        }
        let is = FILE_BYTES
            + k.data.as_ref().map_or(0, |d| d.1.len())
            + k.xattrs.as_ref().map_or(0, |x| x.bytes());
        let was = std::mem::replace(&mut k.bytes, is);
        assert!(self.bytes >= was, "bytes that are kept are counted");
        self.set_bytes(self.bytes + is - was);
        self.touch(fid);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.max_bytes
            && let Some((_, fid)) = self.order.pop_first()
        {
            self.remove(fid);
        }
        assert!(self.bytes <= self.max_bytes, "small files have a bound");
    }

    /// Drops what is kept of a file.
    pub fn remove(&mut self, fid: Fid) {
        if let Some(k) = self.files.remove(&fid) {
            self.order.remove(&k.used);
            assert!(self.bytes >= k.bytes, "bytes that are kept are counted");
            self.set_bytes(self.bytes - k.bytes);
        }
    }

    // data

    /// The file's data at this version of its inode, and what brought it if nobody read it before.
    pub fn get(&mut self, fid: Fid, version: u64) -> Option<(Bytes, Option<Came>)> {
        let k = self.files.get_mut(&fid)?;
        let (of, data) = k.data.as_ref()?;
        if *of != version && !ignores_versions() {
            return None;
        }
        let out = (data.clone(), k.unread.take());
        if out.1 == Some(Came::Lookup) {
            self.credit = (self.credit + 2).min(CREDIT_MAX);
        }
        self.touch(fid);
        Some(out)
    }

    /// Whether [`Contents::get`] has it.
    pub fn has(&self, fid: Fid, version: u64) -> bool {
        self.files.get(&fid).is_some_and(|k| k.data.as_ref().is_some_and(|d| d.0 == version))
    }

    /// All of the file's data at this version of its inode. Older than what is kept, or too much, is left.
    pub fn put(&mut self, fid: Fid, version: u64, data: Bytes, came: Came) {
        let newer = |k: &Kept| k.data.as_ref().is_some_and(|d| d.0 >= version) && !ignores_versions();
        if data.len() > CONTENT_MAX_BYTES || self.max_bytes == 0 || self.files.get(&fid).is_some_and(newer) {
            return;
        }
        if came == Came::Lookup && !data.is_empty() {
            self.credit = self.credit.saturating_sub(1);
        }
        let k = self.files.entry(fid).or_default();
        k.data = Some((version, data));
        k.unread = (came != Came::Asked).then_some(came);
        self.account(fid);
    }

    /// This mount's own change took the inode to `version`. What is not known to be right after it is
    /// dropped.
    pub fn changed(&mut self, fid: Fid, version: u64, edit: &Edit) {
        let Some(k) = self.files.get_mut(&fid) else { return };
        // A write leaves them as they are; other changes may be of them.
        let same = |x: &Xattrs| matches!(edit, Edit::Write { .. }) && x.version + 1 == version;
        k.xattrs = k.xattrs.take().filter(|x| x.version >= version || same(x));
        if let Some(x) = k.xattrs.as_mut().filter(|x| x.version < version) {
            x.version = version;
        }
        if let Some((of, data)) = k.data.take() {
            k.data = match of {
                // What is kept was read after that change.
                v if v >= version => Some((v, data)),
                v if v + 1 == version => edit.apply(data).map(|d| (version, d)),
                _ => None,
            };
        }
        self.account(fid);
    }

    /// A read had to ask for data that lies with an inode.
    pub fn missed(&mut self) {
        self.credit = (self.credit + 2).min(CREDIT_MAX);
    }

    /// Whether a lookup is worth asking for data, too: not if what came that way lately was not read.
    pub fn wish(&mut self) -> bool {
        if self.credit > 0 {
            return self.max_bytes > 0;
        }
        self.probe = (self.probe + 1) % PROBE_EVERY;
        self.probe == 0 && self.max_bytes > 0
    }

    // extended attributes

    /// The value of one at this version of the inode: `Some(None)` if there is none.
    pub fn xattr(&mut self, fid: Fid, version: u64, root: bool, name: &[u8]) -> Option<Option<Vec<u8>>> {
        let x = self.files.get(&fid)?.xattrs.as_ref().filter(|x| x.version == version)?;
        let v = x.values.get(&(root, name.to_vec()))?.clone();
        self.touch(fid);
        Some(v)
    }

    /// The names of all at this version of the inode.
    pub fn xattr_names(&mut self, fid: Fid, version: u64, root: bool) -> Option<Vec<Vec<u8>>> {
        let x = self.files.get(&fid)?.xattrs.as_ref().filter(|x| x.version == version)?;
        let v = x.names[usize::from(root)].clone()?;
        self.touch(fid);
        Some(v)
    }

    pub fn put_xattr(&mut self, fid: Fid, version: u64, root: bool, name: &[u8], value: Option<Vec<u8>>) {
        if value.as_ref().is_none_or(|v| v.len() <= XATTR_MAX_BYTES) {
            self.with_xattrs(fid, version, |x| {
                if x.values.len() < XATTRS_MAX {
                    x.values.insert((root, name.to_vec()), value);
                }
            });
        }
    }

    pub fn put_xattr_names(&mut self, fid: Fid, version: u64, root: bool, names: Vec<Vec<u8>>) {
        if names.iter().map(Vec::len).sum::<usize>() <= XATTR_MAX_BYTES {
            self.with_xattrs(fid, version, |x| x.names[usize::from(root)] = Some(names));
        }
    }

    fn with_xattrs(&mut self, fid: Fid, version: u64, f: impl FnOnce(&mut Xattrs)) {
        if self.max_bytes == 0 {
            return;
        }
        let x = self.files.entry(fid).or_default().xattrs.get_or_insert_default();
        if x.version != version {
            **x = Xattrs { version, ..Xattrs::default() };
        }
        f(x);
        self.account(fid);
    }
}

impl Edit {
    /// The data after the change; `None` if that is not known, or too much to keep.
    fn apply(&self, old: Bytes) -> Option<Bytes> {
        let max = CONTENT_MAX_BYTES as u64;
        match self {
            Edit::Unknown => None,
            Edit::Nothing => Some(old),
            Edit::Write { .. } | Edit::Size(_) if planted::on(Bug::ContentWithoutOwnWrite) => Some(old),
            Edit::Write { off, data } => {
                let end = off.checked_add(data.len() as u64).filter(|e| *e <= max)? as usize;
                if *off == 0 && end >= old.len() {
                    // Not the request's whole buffer.
                    return Some(Bytes::copy_from_slice(data));
                }
                let mut b = owned(old, end);
                if b.len() < end {
                    b.resize(end, 0);
                }
                b[*off as usize..end].copy_from_slice(data);
                Some(b.freeze())
            }
            Edit::Size(n) if *n > max => None,
            Edit::Size(n) if *n as usize <= old.len() => Some(Bytes::copy_from_slice(&old[..*n as usize])),
            Edit::Size(n) => {
                let mut b = owned(old, *n as usize);
                b.resize(*n as usize, 0);
                Some(b.freeze())
            }
        }
    }
}

/// Without the rule of versions a mistake in the others shows.
fn ignores_versions() -> bool {
    planted::on(Bug::ContentKeptAfterRevoke)
}

/// The same bytes, to be changed: not copied if nobody else has them.
fn owned(b: Bytes, room: usize) -> BytesMut {
    b.try_into_mut().unwrap_or_else(|b| {
        let mut m = BytesMut::with_capacity(room.max(b.len()));
        m.extend_from_slice(&b);
        m
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(n: u32) -> Fid {
        Fid::new(9, n, 0)
    }

    fn contents(max: usize) -> Contents {
        Contents::new(max, Arc::default())
    }

    fn data(c: &mut Contents, n: u32, version: u64) -> Option<Vec<u8>> {
        c.get(fid(n), version).map(|(b, _)| b.to_vec())
    }

    fn write(off: u64, data: &'static [u8]) -> Edit {
        Edit::Write { off, data: Bytes::from_static(data) }
    }

    #[test]
    fn own_changes_are_made_here_too_if_none_is_missing() {
        let mut c = contents(1 << 20);
        c.put(fid(1), 3, Bytes::from_static(b"abc"), Came::Asked);
        assert_eq!((data(&mut c, 1, 3), data(&mut c, 1, 4)), (Some(b"abc".to_vec()), None));
        c.changed(fid(1), 4, &write(5, b"xy"));
        assert_eq!((data(&mut c, 1, 3), data(&mut c, 1, 4)), (None, Some(b"abc\0\0xy".to_vec())));
        c.changed(fid(1), 5, &Edit::Size(2));
        c.changed(fid(1), 6, &Edit::Size(4));
        c.changed(fid(1), 7, &write(1, b"q"));
        assert_eq!(data(&mut c, 1, 7), Some(b"aq\0\0".to_vec()));
        c.changed(fid(1), 7, &write(0, b"no"));
        assert_eq!(data(&mut c, 1, 7), Some(b"aq\0\0".to_vec()), "that is in it");
        c.put(fid(1), 6, Bytes::from_static(b"old"), Came::Asked);
        assert_eq!(data(&mut c, 1, 7), Some(b"aq\0\0".to_vec()), "an older answer comes late");
        c.changed(fid(1), 9, &Edit::Nothing);
        assert_eq!((data(&mut c, 1, 8), data(&mut c, 1, 9)), (None, None), "one is missing");
        c.put(fid(1), 9, Bytes::from_static(b"abc"), Came::Asked);
        c.changed(fid(1), 10, &Edit::Unknown);
        assert_eq!((data(&mut c, 1, 10), c.bytes), (None, 0));
        c.put(fid(1), 11, Bytes::from_static(b"abc"), Came::Asked);
        c.changed(fid(1), 12, &write(CONTENT_MAX_BYTES as u64, b"x"));
        assert_eq!((data(&mut c, 1, 12), c.bytes), (None, 0), "too much");
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let mut c = contents(3 * (FILE_BYTES + 1000));
        for n in 1..=3 {
            c.put(fid(n), 1, vec![n as u8; 1000].into(), Came::Asked);
        }
        assert!(data(&mut c, 1, 1).is_some());
        c.put(fid(4), 1, vec![4; 1000].into(), Came::Asked);
        let there: Vec<bool> = (1..=4).map(|n| c.has(fid(n), 1)).collect();
        assert_eq!(there, [true, false, true, true]);
        assert_eq!((c.bytes, c.shown.load(Relaxed)), (3 * (FILE_BYTES + 1000), c.bytes as u64));
        c.set_max_bytes(0);
        assert_eq!((c.bytes, c.files.len(), c.order.len()), (0, 0, 0));
        c.put(fid(1), 1, Bytes::new(), Came::Asked);
        assert_eq!(c.bytes, 0);
    }

    #[test]
    fn lookups_that_nobody_reads_after_stop_asking_for_data() {
        let mut c = contents(1 << 20);
        let mut asked = 0;
        for n in 0..1000 {
            if c.wish() {
                asked += 1;
                c.put(fid(n), 1, Bytes::from_static(b"x"), Came::Lookup);
            }
        }
        assert!((64..=100).contains(&asked), "{asked}");
        c.missed();
        assert!(c.wish(), "somebody reads");
        for n in 2000..3000 {
            assert!(c.wish());
            c.put(fid(n), 1, Bytes::from_static(b"x"), Came::Lookup);
            assert_eq!(c.get(fid(n), 1).unwrap().1, Some(Came::Lookup));
            assert_eq!(c.get(fid(n), 1).unwrap().1, None);
        }
    }

    #[test]
    fn extended_attributes_are_of_one_version() {
        let mut c = contents(1 << 20);
        c.put_xattr(fid(1), 1, true, b"user.a", Some(b"v".to_vec()));
        c.put_xattr(fid(1), 1, true, b"user.b", None);
        c.put_xattr_names(fid(1), 1, false, vec![b"user.a".to_vec()]);
        assert_eq!(c.xattr(fid(1), 1, true, b"user.a"), Some(Some(b"v".to_vec())));
        assert_eq!(c.xattr(fid(1), 1, true, b"user.b"), Some(None));
        assert_eq!(c.xattr(fid(1), 1, false, b"user.a"), None, "root may see more");
        assert_eq!(c.xattr_names(fid(1), 1, false), Some(vec![b"user.a".to_vec()]));
        assert_eq!((c.xattr_names(fid(1), 1, true), c.xattr(fid(1), 2, true, b"user.a")), (None, None));
        c.put_xattr(fid(1), 2, true, b"user.c", None);
        assert_eq!(c.xattr(fid(1), 2, true, b"user.a"), None);
        c.changed(fid(1), 3, &Edit::Nothing);
        assert_eq!((c.xattr(fid(1), 2, true, b"user.c"), c.bytes), (None, 0));
    }
}

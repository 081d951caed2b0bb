//! Node ids: the kernel's names for inodes. They are made from FIDs, so that a file handle
//! (name_to_handle_at(2), NFS), which is a node id and a generation, leads to its file when the kernel has
//! forgotten the inode, and on every later mount (decision 0047).
//!
//! The kernel counts how often it was told one and forgets it by that count, so the table is as large as the
//! kernel's inode cache and no larger.

use model::mutex::Mutex;
use model::{Attr, Errno, Fid, FileType, Map};

/// Bits of an id that are the FID's object number: sequences have 2^17 of them.
const OID_BITS: u32 = model::fid::SEQ_WIDTH.trailing_zeros();
const _: () = assert!(model::fid::SEQ_WIDTH == 1 << OID_BITS);
/// Marks ids of FIDs that do not fit: they are numbered as they come.
const NUMBERED: u64 = 1 << 63;
/// Marks ids of symbolic links to directories that are made from FIDs.
pub const LINKS: u64 = 1 << 62;
/// Ids below the first that is made from a FID: no files.
const FIRST_MADE: u64 = 1 << OID_BITS;

/// Whether an id is of something that is shown to the kernel and is no file of the file system's. Nothing is
/// kept of these.
pub fn is_made_up(id: u64) -> bool {
    id < FIRST_MADE || id & (NUMBERED | LINKS) == LINKS
}

/// The id of a symbolic link to a directory; none if its FID does not fit.
pub fn link_to(fid: Fid) -> Option<u64> {
    made_from(fid).map(|id| id | LINKS)
}

/// Where such a link leads.
pub fn linked(id: u64) -> Option<Fid> {
    if id & (NUMBERED | LINKS) == LINKS { fid_in(id & !LINKS) } else { None }
}

/// The id that is made from a FID; none if it does not fit.
fn made_from(fid: Fid) -> Option<u64> {
    let fits = fid.seq > 0 && fid.seq < LINKS >> OID_BITS && fid.oid < model::fid::SEQ_WIDTH && fid.ver == 0;
    fits.then_some((fid.seq << OID_BITS) | u64::from(fid.oid))
}

/// The FID from which such an id is made.
fn fid_in(id: u64) -> Option<Fid> {
    let oid = u32::try_from(id & u64::from(model::fid::SEQ_WIDTH - 1)).ok()?;
    let fid = Fid::new(id >> OID_BITS, oid, 0);
    (made_from(fid) == Some(id)).then_some(fid)
}

/// What the kernel is told of a file: its id and, for file handles, a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId {
    pub id: u64,
    pub generation: u64,
}

/// Generations of file handles.
#[derive(Clone, Copy, Debug)]
pub struct Generations {
    /// Tells file systems from each other: FIDs begin at the same number in each.
    of_fs: u32,
    /// Of this mount: ids that are numbered mean nothing to another.
    of_mount: u32,
}

impl Generations {
    pub fn new(fs_uuid: &[u8; 16], random: u64) -> Generations {
        let words = fs_uuid.chunks_exact(4).map(|w| w.iter().fold(0u32, |n, b| (n << 8) | u32::from(*b)));
        Generations { of_fs: words.fold(0, |all, w| all ^ w), of_mount: random as u32 }
    }

    fn of(&self, id: u64) -> u64 {
        u64::from(if id & NUMBERED == 0 { self.of_fs } else { self.of_mount })
    }
}

struct Node {
    fid: Fid,
    lookups: u64,
    /// Of a directory: what was shown of it last. It is all that is left when somebody removes it, and
    /// whoever works in it, or has it open, looks on.
    dir: Option<Box<Attr>>,
}

struct NodeTable {
    by_id: Map<u64, Node>,
    /// Of those whose ids are not made from their FIDs.
    numbered: Map<Fid, u64>,
    next: u64,
}

impl NodeTable {
    fn id(&self, fid: Fid) -> Option<u64> {
        match made_from(fid) {
            Some(id) => self.by_id.contains_key(&id).then_some(id),
            None => self.numbered.get(&fid).copied(),
        }
    }
}

/// Node id ↔ FID.
pub struct Nodes {
    generations: Generations,
    inner: Mutex<NodeTable>,
}

impl Nodes {
    pub fn new(generations: Generations) -> Nodes {
        let inner = NodeTable { by_id: Map::default(), numbered: Map::default(), next: NUMBERED };
        Nodes { generations, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> model::mutex::MutexGuard<'_, NodeTable> {
        self.inner.lock()
    }

    /// The kernel is about to be told of `fid` once more.
    pub fn remember(&self, fid: Fid) -> NodeId {
        let mut t = self.lock();
        let id = match t.id(fid).or_else(|| made_from(fid)) {
            Some(id) => id,
            None => {
                let id = t.next;
                t.next += 1;
                let other = t.numbered.insert(fid, id);
                assert!(other.is_none(), "a file has one number");
                id
            }
        };
        assert!(!is_made_up(id), "{fid} is a file");
        let node = t.by_id.entry(id).or_insert(Node { fid, lookups: 0, dir: None });
        assert!(node.fid == fid, "an id stands for one file");
        node.lookups += 1;
        NodeId { id, generation: self.generations.of(id) }
    }

    /// The kernel forgot `count` of the times it was told `id`.
    pub fn forget(&self, id: u64, count: u64) {
        if is_made_up(id) {
            return;
        }
        let mut t = self.lock();
        let Some(n) = t.by_id.get_mut(&id) else {
            tracing::warn!(id, count, "the kernel forgets a node it does not know");
            return;
        };
        n.lookups = n.lookups.saturating_sub(count);
        if n.lookups == 0 {
            let fid = n.fid;
            t.by_id.remove(&id);
            let numbered = t.numbered.remove(&fid).is_some();
            assert_eq!(
                numbered,
                id & NUMBERED != 0,
                "a number is kept as long as its node, others have none"
            );
        }
    }

    /// This is what stat(2) shows of a file from now on.
    pub fn note(&self, attr: &Attr) {
        if attr.kind != FileType::Directory {
            return;
        }
        let mut t = self.lock();
        let id = t.id(attr.fid);
        if let Some(n) = id.and_then(|id| t.by_id.get_mut(&id)) {
            assert_eq!(n.fid, attr.fid, "a node keeps attributes of its own file");
            n.dir = Some(Box::new(attr.clone()));
        }
    }

    /// What is left of a directory that was removed: nothing if the kernel does not know it.
    pub fn removed_dir(&self, fid: Fid) -> Option<Attr> {
        let t = self.lock();
        let last = t.by_id.get(&t.id(fid)?)?.dir.as_deref()?;
        assert_eq!(last.kind, FileType::Directory, "attributes are kept of directories only");
        Some(Attr { nlink: 0, ..last.clone() })
    }

    /// `ESTALE` for an id that the kernel should not know any more.
    pub fn fid(&self, id: u64) -> Result<Fid, Errno> {
        self.lock().by_id.get(&id).map(|n| n.fid).ok_or(Errno::ESTALE)
    }

    /// As [`Nodes::fid`], of an id out of a file handle: the kernel may have forgotten it, or anybody may
    /// have made it up. `ESTALE` if it cannot be told what it stood for.
    pub fn fid_of_handle(&self, id: u64) -> Result<Fid, Errno> {
        self.fid(id).or_else(|e| fid_in(id).ok_or(e))
    }

    /// The kernel's name for a file, if it knows it or is about to be told.
    pub fn id(&self, fid: Fid) -> Option<u64> {
        self.lock().id(fid)
    }

    /// Everything that the kernel knows, or is about to be told.
    pub fn all(&self) -> Vec<(u64, Fid)> {
        self.lock().by_id.iter().map(|(id, n)| (*id, n.fid)).collect()
    }

    pub fn count(&self) -> usize {
        self.lock().by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ROOT_ID;
    use model::fid::{SEQ_NORMAL, SEQ_WIDTH};
    use proptest::prelude::*;

    fn nodes() -> Nodes {
        Nodes::new(Generations::new(b"0123456789abcdef", 7))
    }

    #[test]
    fn a_node_lives_as_long_as_the_kernel_counts() {
        let n = nodes();
        for f in [Fid::new(SEQ_NORMAL + 1, 1, 0), Fid::new(SEQ_NORMAL + 1, 1, 1)] {
            let id = n.remember(f).id;
            assert_eq!((n.remember(f).id, n.id(f)), (id, Some(id)));
            n.forget(id, 1);
            assert_eq!(n.fid(id), Ok(f));
            n.forget(id, 1);
            assert_eq!((n.fid(id), n.id(f)), (Err(Errno::ESTALE), None));
        }
        n.forget(ROOT_ID, 1000);
        assert_eq!((n.fid(ROOT_ID), n.count()), (Err(Errno::ESTALE), 0));
        n.forget(99, 1);
    }

    #[test]
    fn a_handle_leads_to_its_file_after_the_kernel_forgot_and_on_the_next_mount() {
        let (first, next) = (nodes(), nodes());
        let f = Fid::new(SEQ_NORMAL, SEQ_WIDTH - 1, 0);
        let told = first.remember(f);
        first.forget(told.id, 1);
        for n in [first, next] {
            assert_eq!(n.fid(told.id), Err(Errno::ESTALE), "only a handle may lead there");
            assert_eq!(n.fid_of_handle(told.id), Ok(f));
            assert_eq!(n.remember(f), told);
        }
        let other = Nodes::new(Generations::new(b"another file sys", 7));
        assert_ne!(other.remember(f).generation, told.generation, "a handle is of one file system");
    }

    #[test]
    fn a_handle_of_what_does_not_fit_ends_with_the_kernels_inode() {
        let n = nodes();
        let f = Fid::new(SEQ_NORMAL, 1, 1);
        let told = n.remember(f);
        assert_eq!(n.fid_of_handle(told.id), Ok(f));
        n.forget(told.id, 1);
        assert_eq!(n.fid_of_handle(told.id), Err(Errno::ESTALE));
        assert_ne!(n.remember(f).id, told.id, "its number is never used again");
        let later = Nodes::new(Generations::new(b"0123456789abcdef", 8));
        assert_ne!(later.remember(f).generation, told.generation);
    }

    #[test]
    fn a_handle_of_a_root_is_good_on_every_mount() {
        let n = nodes();
        for root in [Fid::ROOT, Fid::new(SEQ_NORMAL, 3, 0)] {
            let told = n.remember(root);
            assert_ne!(told.id, ROOT_ID);
            assert_eq!((nodes().fid_of_handle(told.id), nodes().remember(root)), (Ok(root), told));
        }
    }

    proptest! {
        #[test]
        fn ids_go_there_and_back(id in any::<u64>(), seq in any::<u64>(), oid in any::<u32>(), ver in 0u32..2) {
            if let Some(fid) = fid_in(id) {
                prop_assert_eq!(made_from(fid), Some(id));
                prop_assert!(!is_made_up(id) && id & NUMBERED == 0);
                prop_assert_eq!(link_to(fid).and_then(linked), Some(fid));
                prop_assert!(is_made_up(id | LINKS));
            }
            let fid = Fid::new(seq >> 17, oid >> 15, ver);
            prop_assert_eq!(made_from(fid).and_then(fid_in), made_from(fid).map(|_| fid));
        }
    }
}

//! The ways from a directory down to others. Each directory on them must let the caller read and search it,
//! as in a walk; what was found of one is remembered for a page.

use crate::MdsError;
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::perm::{self, MAY_EXEC, MAY_READ};
use model::{Cred, Errno, Fid, Map};
use wire::msg::scan::{Directory, ROOT_PLACE};

/// Levels that are climbed.
const LEVELS_MAX: usize = 8192;
/// Longest path that is told; kernels know none above 4 KiB, who goes step by step does.
const PATH_MAX_BYTES: usize = 64 << 10;
/// What reading a directory and its name counts, in records looked at.
const DIRECTORY_COST: usize = 4;

/// Where a directory is, seen from the root of the scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// It is reached: its place among [`DirectoryWays::dirs`] and the bytes of the path.
    Below(u32, usize),
    /// Elsewhere, or removed.
    Outside,
    /// The caller may not read and search everything on the way.
    Refused,
    TooLong,
}

/// One step up.
struct Step {
    fid: Fid,
    name: Vec<u8>,
    is_open: bool,
}

pub struct DirectoryWays<'a> {
    root: Fid,
    cred: &'a Cred,
    known: Map<Fid, Way>,
    /// Those that are reached, each behind its parent.
    pub dirs: Vec<Directory>,
    /// Those whose records cannot be read: what is below them is not reached.
    pub damaged: Vec<Fid>,
    /// What was read so far, in records; the first way counts nothing, so that a page comes to more than the
    /// way to a deep directory.
    pub cost: usize,
    /// About the bytes of `dirs`, likewise.
    pub bytes: usize,
}

/// Whether the caller may list what is in a directory with its inodes.
pub fn is_open_to(cred: &Cred, dir: &Inode) -> bool {
    perm::access(cred, &dir.subject(), MAY_READ | MAY_EXEC).is_ok()
}

impl<'a> DirectoryWays<'a> {
    /// `ENOTDIR` if the root is no directory, `EACCES` if it is closed to the caller.
    pub fn new(tx: &mut Tx, root: Fid, cred: &'a Cred) -> Result<DirectoryWays<'a>, Errno> {
        if !is_open_to(cred, &tx.dir(root)?) {
            return Err(Errno::EACCES);
        }
        let known = [(root, Way::Below(ROOT_PLACE, 0))].into_iter().collect();
        Ok(DirectoryWays { root, cred, known, dirs: Vec::new(), damaged: Vec::new(), cost: 0, bytes: 0 })
    }

    /// Where `dir` is.
    pub fn way(&mut self, tx: &mut Tx, dir: Fid) -> Result<Way, Errno> {
        let is_first = self.dirs.is_empty();
        let mut steps: Vec<Step> = Vec::new();
        let mut at = dir;
        let mut way = loop {
            if let Some(w) = self.known.get(&at) {
                break *w;
            }
            if at == Fid::ROOT {
                break Way::Outside;
            }
            if steps.len() >= LEVELS_MAX {
                break Way::TooLong;
            }
            self.cost = self.cost.saturating_add(DIRECTORY_COST);
            match self.up(tx, at) {
                Ok(Some((parent, step))) => {
                    steps.push(step);
                    at = parent;
                }
                Ok(None) => break Way::Outside,
                Err(MdsError::Damaged { .. }) => {
                    self.damaged.push(at);
                    break Way::Refused;
                }
                Err(e) => return Err(e.into()),
            }
        };
        assert!(steps.iter().all(|s| s.fid != self.root), "nobody climbs past the root");
        while let Some(step) = steps.pop() {
            let fid = step.fid;
            way = self.step_down(way, step);
            self.known.insert(fid, way);
        }
        if is_first && !self.dirs.is_empty() {
            (self.cost, self.bytes) = (0, 0);
        }
        Ok(way)
    }

    /// The parent of a directory, and the step down from there; `None` if it is not there any more.
    fn up(&self, tx: &mut Tx, dir: Fid) -> Result<Option<(Fid, Step)>, MdsError> {
        let Some(inode) = tx.try_inode(dir)? else { return Ok(None) };
        // A directory has one name; one that was removed has none.
        let Some((parent, _, name)) = names(tx, dir, None, 1)?.pop() else { return Ok(None) };
        Ok(Some((parent, Step { fid: dir, name, is_open: is_open_to(self.cred, &inode) })))
    }

    fn step_down(&mut self, above: Way, step: Step) -> Way {
        let Way::Below(parent, len) = above else { return above };
        if !step.is_open {
            return Way::Refused;
        }
        let len = len.saturating_add(step.name.len()).saturating_add(1);
        if len > PATH_MAX_BYTES {
            return Way::TooLong;
        }
        let Ok(place) = u32::try_from(self.dirs.len()) else { return Way::TooLong };
        assert!(parent == ROOT_PLACE || parent < place, "a directory stands behind its parent");
        self.bytes = self.bytes.saturating_add(step.name.len()).saturating_add(size_of::<Directory>());
        self.dirs.push(Directory { fid: step.fid, parent, name: step.name });
        Way::Below(place, len)
    }
}

/// Behind which name of a file others stand: its parent and cookie.
pub type Behind = Option<(Fid, u64)>;

/// Names of a file, at most `max`, behind one of them: (parent, cookie, name).
pub fn names(
    tx: &mut Tx,
    fid: Fid,
    behind: Behind,
    max: usize,
) -> Result<Vec<(Fid, u64, Vec<u8>)>, MdsError> {
    let prefix = key::backptr_prefix(fid);
    let from = behind.map_or_else(|| prefix.clone(), |(p, c)| key::behind(&key::backptr(fid, p, c)));
    let found = tx.scan(&from, &key::behind(&prefix), max)?;
    let each = |(k, v): (Vec<u8>, Vec<u8>)| {
        let name = value::decode_name(&k, &v)?;
        let (_, parent, cookie) = key::parse_backptr(&k).ok_or_else(|| MdsError::Damaged {
            what: "back-pointer",
            key: fid.to_string(),
            why: "its key is short".into(),
        })?;
        Ok((parent, cookie, name))
    };
    found.into_iter().map(each).collect()
}

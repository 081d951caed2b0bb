//! One page of a scan.

use super::filter::Filter;
use super::paths::{Behind, DirectoryWays, Way, is_open_to, names};
use crate::MdsError;
use crate::schema::{Inode, key};
use crate::tx::Tx;
use model::{Cred, Errno, Fid, FileType};
use wire::msg::scan::{Cursor, Found, Name, Scan, ScanReply};

/// How large one page may become.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What it may read, in records: others wait while it is made.
    pub cost: usize,
    /// About its bytes.
    pub bytes: usize,
    /// Names that are told of one file.
    pub names: usize,
}

/// Of every page.
pub const BOUNDS: Bounds = Bounds { cost: 4096, bytes: 256 << 10, names: 512 };
/// Inodes that are read at a time.
const SCAN: usize = 512;
/// What a name counts, in records.
const NAME_COST: usize = 2;
/// About what a file takes besides its names, and each object of its layout.
const FILE_BYTES: usize = 160;
const OBJECT_BYTES: usize = 40;

/// Everything that one page is made of.
struct Maker<'a> {
    filter: Filter<'a>,
    ways: DirectoryWays<'a>,
    cred: &'a Cred,
    bounds: Bounds,
    reply: ScanReply,
    cost: usize,
    bytes: usize,
}

/// Files behind the cursor that may fit. `EACCES` if the root is closed to the caller, `ENOTDIR`, `ESTALE`
/// and the like if it is no directory, `E2BIG` for too many conditions.
pub fn page(tx: &mut Tx, cred: &Cred, m: &Scan, bounds: Bounds) -> Result<ScanReply, Errno> {
    let filter = Filter::new(&m.tests)?;
    let ways = DirectoryWays::new(tx, m.root, cred)?;
    let mut maker = Maker { filter, ways, cred, bounds, reply: ScanReply::default(), cost: 0, bytes: 0 };
    let from = match m.after {
        Some(Cursor { file, name: Some(name) }) => {
            let next = maker.rest_of(tx, file, name)?;
            if next.is_some() || maker.is_full() {
                return Ok(maker.finish(Some(Cursor { file, name: next })));
            }
            key::behind(&key::inode(file))
        }
        Some(Cursor { file, name: None }) => key::behind(&key::inode(file)),
        None => vec![key::INODE],
    };
    let next = maker.fill(tx, from, m.root)?;
    Ok(maker.finish(next))
}

impl Maker<'_> {
    fn is_full(&self) -> bool {
        let cost = self.cost.saturating_add(self.ways.cost);
        let bytes = self.bytes.saturating_add(self.ways.bytes);
        cost >= self.bounds.cost || bytes >= self.bounds.bytes
    }

    fn finish(mut self, next: Option<Cursor>) -> ScanReply {
        assert!(self.reply.files.iter().all(|f| !f.names.is_empty()), "what is told of has a name");
        assert!(
            next.is_none() || self.reply.looked > 0 || self.cost > 0,
            "a page that is not the last goes on"
        );
        self.reply.damaged.append(&mut self.ways.damaged);
        ScanReply { dirs: self.ways.dirs, next, ..self.reply }
    }

    /// Looks at inodes until the page is full: then says where it ends.
    fn fill(&mut self, tx: &mut Tx, mut from: Vec<u8>, root: Fid) -> Result<Option<Cursor>, Errno> {
        let end = [key::INODE.saturating_add(1)];
        loop {
            let records = tx.scan(&from, &end, SCAN)?;
            let is_last = records.len() < SCAN;
            let Some((last, _)) = records.last() else { return Ok(None) };
            from = key::behind(last);
            for (k, v) in records {
                let fid = key::parse_fid(&k).ok_or_else(|| MdsError::Damaged {
                    what: "inode",
                    key: crate::schema::value::hex(&k),
                    why: "its key is no FID".into(),
                })?;
                self.cost = self.cost.saturating_add(1);
                self.reply.looked = self.reply.looked.saturating_add(1);
                let name = if fid == root { None } else { self.look(tx, fid, &v)? };
                if name.is_some() || self.is_full() {
                    return Ok(Some(Cursor { file: fid, name }));
                }
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    /// Looks at one file. A name of it, if it has more behind that.
    fn look(&mut self, tx: &mut Tx, fid: Fid, record: &[u8]) -> Result<Behind, Errno> {
        let Ok(fixed) = Inode::decode_fixed(fid, record) else { return Ok(self.is_damaged(fid)) };
        // Nobody reaches a file without a name. Whether a directory is closed is asked of each.
        let may_be_closed = fixed.is_dir() && !self.cred.is_root();
        if fixed.nlink == 0 || (!self.filter.may_fit_by_fixed(&fixed) && !may_be_closed) {
            return Ok(None);
        }
        if may_be_closed {
            let Ok(dir) = Inode::decode(fid, record) else { return Ok(self.is_damaged(fid)) };
            if !is_open_to(self.cred, &dir) {
                let names = self.named(tx, fid, None)?.0;
                self.reply.closed.extend(names);
            }
        }
        if !self.filter.may_fit_by_fixed(&fixed) {
            return Ok(None);
        }
        let Ok(inode) = Inode::decode_shown(fid, record) else { return Ok(self.is_damaged(fid)) };
        if !self.filter.may_fit(&inode) {
            return Ok(None);
        }
        self.tell(tx, fid, &inode, None)
    }

    fn is_damaged(&mut self, fid: Fid) -> Behind {
        self.reply.damaged.push(fid);
        self.bytes = self.bytes.saturating_add(size_of::<Fid>());
        None
    }

    /// The names of a file behind one that was told.
    fn rest_of(&mut self, tx: &mut Tx, fid: Fid, name: (Fid, u64)) -> Result<Behind, Errno> {
        match tx.try_inode(fid)? {
            Some(inode) => self.tell(tx, fid, &inode, Some(name)),
            None => Ok(None),
        }
    }

    fn tell(&mut self, tx: &mut Tx, fid: Fid, inode: &Inode, behind: Behind) -> Result<Behind, Errno> {
        let (names, next) = self.named(tx, fid, behind)?;
        if !names.is_empty() {
            let layout = inode.layout.clone().filter(|_| inode.kind == FileType::Regular);
            let objects = layout.as_ref().map_or(0, |l| l.objects().count());
            self.bytes =
                objects.saturating_mul(OBJECT_BYTES).saturating_add(FILE_BYTES).saturating_add(self.bytes);
            self.reply.files.push(Found { attr: inode.attr(fid), layout, names });
        }
        Ok(next)
    }

    /// The names of a file that the caller reaches, and the last one that was looked at if there are more.
    fn named(&mut self, tx: &mut Tx, fid: Fid, behind: Behind) -> Result<(Vec<Name>, Behind), Errno> {
        let all = match names(tx, fid, behind, self.bounds.names) {
            Err(MdsError::Damaged { .. }) => return Ok((Vec::new(), self.is_damaged(fid))),
            all => all?,
        };
        assert!(all.len() <= self.bounds.names, "no more names are read than were asked for");
        let next = all.last().map(|(p, c, _)| (*p, *c)).filter(|_| all.len() == self.bounds.names);
        let mut reached = Vec::new();
        for (parent, _, name) in all {
            self.cost = self.cost.saturating_add(NAME_COST);
            match self.ways.way(tx, parent)? {
                Way::Below(parent, _) => {
                    self.bytes = self.bytes.saturating_add(name.len()).saturating_add(size_of::<Name>());
                    reached.push(Name { parent, name });
                }
                Way::TooLong => self.reply.too_long = self.reply.too_long.saturating_add(1),
                Way::Outside | Way::Refused => {}
            }
        }
        Ok((reached, next))
    }
}

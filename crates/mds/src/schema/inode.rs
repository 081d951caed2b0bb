//! The inode: a fixed part and tagged values. Unknown tags of later versions are kept as they are.

use super::value::{VERSION, kind_from_u8, kind_to_u8};
use crate::MdsError;
use model::acl::Acl;
use model::inode_rules::{self, Fields, RuledInode};
use model::layout::LayoutObject;
use model::nodemap::Owner;
use model::perm::Subject;
use model::usage::Usage;
use model::{Attr, Fid, FileType, Layout, LayoutSpec, Timestamp, limits};
use serde::{Deserialize, Serialize};

const TAG_SYMLINK: u16 = 1;
const TAG_LAYOUT: u16 = 2;
const TAG_XATTR: u16 = 3;
const TAG_DEFAULT_LAYOUT: u16 = 4;
const TAG_ACL: u16 = 5;
const TAG_DEFAULT_ACL: u16 = 6;
const TAG_DATA: u16 = 7;
const TAG_GROWTH: u16 = 8;
const TAG_DIRECTORY: u16 = 9;
const TAG_TRASHED: u16 = 10;

/// Values up to this size lie in the inode while it has room, larger ones under a key of their own.
pub const XATTR_INLINE_MAX_BYTES: usize = 512;
/// All inline attributes together.
pub const XATTR_INLINE_TOTAL_BYTES: usize = 2048;

/// Bytes in one `M` key.
pub const DATA_BLOCK_BYTES: usize = inode_rules::DATA_BLOCK_BYTES as usize;

/// What lies with an inode whose layout says so; nothing otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataState {
    /// Bytes of the file.
    pub size: u64,
    /// `M` keys.
    pub blocks: u32,
    /// Grows with each change of the bytes or the size.
    pub version: u64,
}

/// How far the file came on its way to objects.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Growth {
    /// Attempts that began: each has a component id of its own, so that none meets what another left.
    pub attempts: u32,
    /// Where the present attempt, or one that a crash ended, puts the data. The objects are in the reverse
    /// index.
    pub target: Option<Layout>,
}

/// How a file in the trash came there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Removed {
    /// By the server's clock.
    pub when: Timestamp,
    /// Who did it.
    pub by: u32,
    /// Its last name.
    pub parent: Fid,
    pub name: Vec<u8>,
}

/// One file of the metadata target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    pub kind: FileType,
    /// `mode & 0o7777`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// The innermost directory with a quota that it lies in; 0: none.
    pub directory: u32,
    pub nlink: u32,
    /// FS_*_FL.
    pub flags: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub mtime_stamp: Timestamp,
    pub rdev: u64,
    /// Grows with each change.
    pub version: u64,
    /// Of a directory: where `..` leads (the root: itself).
    pub parent: Fid,
    /// Of a directory: its entries.
    pub entries: u64,
    /// Attributes under keys of their own.
    pub large_xattrs: u32,
    pub symlink: Vec<u8>,
    pub layout: Option<Layout>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of a directory: for new files in it. Of a file without objects: what it is to get.
    pub default_layout: Option<LayoutSpec>,
    pub data: DataState,
    pub growth: Growth,
    /// It lies in the trash, and has no names.
    pub removed: Option<Removed>,
    /// The access list where it says more than the mode; its bits always agree with `mode`.
    pub acl: Option<Acl>,
    pub default_acl: Option<Acl>,
    /// Tags that this version does not know.
    pub extra: Vec<(u16, Vec<u8>)>,
    /// As whose, and how much, it is counted in the table.
    pub counted: CountedAs,
}

/// What of an inode is in its owner's usage as its transaction has it so far; `None`: it is new. It says
/// nothing of the file, so inodes that differ in it alone are equal.
#[derive(Clone, Copy, Default, Debug)]
pub struct CountedAs(pub Option<(Owner, Usage)>);

impl PartialEq for CountedAs {
    fn eq(&self, _: &CountedAs) -> bool {
        true
    }
}

impl Eq for CountedAs {}

impl RuledInode for Inode {
    fn subject(&self) -> Subject<'_> {
        Subject {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            flags: self.flags,
            acl: self.acl.as_ref(),
        }
    }

    fn fields(&mut self) -> Fields<'_> {
        Fields {
            kind: self.kind,
            mode: &mut self.mode,
            nlink: &mut self.nlink,
            uid: &mut self.uid,
            gid: &mut self.gid,
            projid: &mut self.projid,
            flags: &mut self.flags,
            atime: &mut self.atime,
            mtime: &mut self.mtime,
            ctime: &mut self.ctime,
            mtime_stamp: &mut self.mtime_stamp,
            version: &mut self.version,
            acl: self.acl.as_mut(),
        }
    }

    fn set_entries(&mut self, n: u64) {
        self.entries = n;
    }

    fn data_size(&self) -> u64 {
        self.data.size
    }

    fn set_data_size(&mut self, n: u64) {
        self.data.size = n;
    }
}

impl Inode {
    pub fn new(kind: FileType, mode: u32, uid: u32, gid: u32, now: Timestamp) -> Inode {
        Inode {
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            projid: 0,
            directory: 0,
            nlink: inode_rules::first_links(kind),
            flags: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            mtime_stamp: now,
            rdev: 0,
            version: 0,
            parent: Fid::NONE,
            entries: 0,
            large_xattrs: 0,
            symlink: Vec::new(),
            layout: None,
            xattrs: Vec::new(),
            default_layout: None,
            data: DataState::default(),
            growth: Growth::default(),
            removed: None,
            acl: None,
            default_acl: None,
            extra: Vec::new(),
            counted: CountedAs::default(),
        }
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// As the permission rules see it.
    pub fn subject(&self) -> Subject<'_> {
        RuledInode::subject(self)
    }

    pub fn touch_ctime(&mut self, now: Timestamp) {
        inode_rules::touch_ctime(self, now);
    }

    pub fn size(&self) -> u64 {
        match self.kind {
            FileType::Directory => inode_rules::dir_size(self.entries),
            FileType::Symlink => self.symlink.len() as u64,
            _ => self.data.size,
        }
    }

    pub fn blocks(&self) -> u64 {
        let data = u64::from(self.data.blocks) * inode_rules::DATA_BLOCK_BYTES;
        inode_rules::sectors(if self.is_dir() { self.size() } else { data })
    }

    pub fn owner(&self) -> Owner {
        Owner { directory: self.directory, ..Owner::new(self.uid, self.gid, self.projid) }
    }

    /// What it takes of its owner's usage: blocks of objects are counted where they are.
    pub fn usage(&self) -> (Owner, Usage) {
        (self.owner(), Usage { inodes: 1, blocks: self.blocks() })
    }

    /// Bytes that may lie with the inode; `None` if the file's data does not.
    pub fn data_room(&self) -> Option<u64> {
        self.layout.as_ref()?.data_room()
    }

    /// Every object that belongs to the file, those of a growth under way included.
    pub fn objects(&self) -> impl Iterator<Item = &LayoutObject> {
        let target = self.growth.target.iter().flat_map(|l| l.objects_beside(self.layout.as_ref()));
        self.layout.iter().flat_map(|l| l.objects()).chain(target)
    }

    pub fn has_object(&self, ost: u16, id: model::ObjectId) -> bool {
        self.objects().any(|o| (o.ost, o.id) == (ost, id))
    }

    pub fn attr(&self, fid: Fid) -> Attr {
        let size = self.size();
        Attr {
            fid,
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            projid: self.projid,
            special: if self.kind.is_device() { self.rdev } else { u64::from(self.directory) },
            size,
            blocks: self.blocks(),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            mtime_stamp: self.mtime_stamp,
            flags: self.flags,
            version: self.version,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.mode & !0o7777, 0, "a stored mode has no other bits");
        let mut v = Vec::with_capacity(256 + self.symlink.len());
        v.extend_from_slice(&[VERSION, kind_to_u8(self.kind)]);
        v.extend_from_slice(&(self.mode as u16).to_le_bytes());
        for n in [self.uid, self.gid, self.projid, self.nlink, self.flags, self.large_xattrs] {
            v.extend_from_slice(&n.to_le_bytes());
        }
        for n in [self.rdev, self.version, self.entries] {
            v.extend_from_slice(&n.to_le_bytes());
        }
        for t in [self.atime, self.mtime, self.ctime, self.btime, self.mtime_stamp] {
            v.extend_from_slice(&t.sec.to_le_bytes());
            v.extend_from_slice(&t.nsec.to_le_bytes());
        }
        v.extend_from_slice(&self.parent.to_bytes());
        if !self.symlink.is_empty() {
            tlv(&mut v, TAG_SYMLINK, &self.symlink);
        }
        if let Some(l) = &self.layout {
            tlv(&mut v, TAG_LAYOUT, &postcard::to_stdvec(l).expect("plain data encodes"));
        }
        for (name, value) in &self.xattrs {
            let mut x = Vec::with_capacity(1 + name.len() + value.len());
            assert!(
                name.len() <= usize::from(u8::MAX),
                "an attribute's name is looked at before it is stored"
            );
            x.push(name.len() as u8);
            x.extend_from_slice(name);
            x.extend_from_slice(value);
            tlv(&mut v, TAG_XATTR, &x);
        }
        if let Some(s) = &self.default_layout {
            tlv(&mut v, TAG_DEFAULT_LAYOUT, &postcard::to_stdvec(s).expect("plain data encodes"));
        }
        if self.data != DataState::default() {
            let d = &self.data;
            let mut x = Vec::with_capacity(20);
            x.extend_from_slice(&d.size.to_le_bytes());
            x.extend_from_slice(&d.blocks.to_le_bytes());
            x.extend_from_slice(&d.version.to_le_bytes());
            tlv(&mut v, TAG_DATA, &x);
        }
        if self.growth != Growth::default() {
            tlv(&mut v, TAG_GROWTH, &postcard::to_stdvec(&self.growth).expect("plain data encodes"));
        }
        if let Some(a) = &self.acl {
            tlv(&mut v, TAG_ACL, &a.to_xattr());
        }
        if let Some(a) = &self.default_acl {
            tlv(&mut v, TAG_DEFAULT_ACL, &a.to_xattr());
        }
        if self.directory != 0 {
            tlv(&mut v, TAG_DIRECTORY, &self.directory.to_le_bytes());
        }
        if let Some(r) = &self.removed {
            tlv(&mut v, TAG_TRASHED, &postcard::to_stdvec(r).expect("plain data encodes"));
        }
        for (tag, value) in &self.extra {
            tlv(&mut v, *tag, value);
        }
        v
    }

    pub fn decode(fid: Fid, bytes: &[u8]) -> Result<Inode, MdsError> {
        let mut i = Inode::decode_tags(fid, bytes, |_| true)?;
        i.counted = CountedAs(Some(i.usage()));
        Ok(i)
    }

    /// What attributes and the layout are made of; everything else is empty, for most of the time goes there.
    pub fn decode_shown(fid: Fid, bytes: &[u8]) -> Result<Inode, MdsError> {
        Inode::decode_tags(fid, bytes, |tag| {
            matches!(tag, TAG_SYMLINK | TAG_LAYOUT | TAG_DATA | TAG_DIRECTORY)
        })
    }

    fn decode_tags(fid: Fid, bytes: &[u8], wanted: impl Fn(u16) -> bool) -> Result<Inode, MdsError> {
        let mut r = Reader { bytes, fid };
        let mut i = Inode::read_fixed(&mut r)?;
        while !r.bytes.is_empty() {
            let tag = u16::from_le_bytes(r.array("tag")?);
            let len = u32::from_le_bytes(r.array("length")?) as usize;
            let value = r.take(len, "tagged value")?;
            if wanted(tag) {
                i.set_tag(&r, tag, value)?;
            }
        }
        Ok(i)
    }

    /// What stands in the fixed part; everything else is empty.
    pub fn decode_fixed(fid: Fid, bytes: &[u8]) -> Result<Inode, MdsError> {
        Inode::read_fixed(&mut Reader { bytes, fid })
    }

    fn read_fixed(r: &mut Reader) -> Result<Inode, MdsError> {
        let version = r.array::<1>("version")?[0];
        if version != VERSION {
            return Err(r.damaged(format!("its version is {version}, this program knows {VERSION}")));
        }
        let kind = r.array::<1>("type")?[0];
        let kind = kind_from_u8(kind).ok_or_else(|| r.damaged(format!("{kind} is no file type")))?;
        let mode = u32::from(u16::from_le_bytes(r.array("mode")?));
        let mut i = Inode::new(kind, mode, 0, 0, Timestamp::ZERO);
        for n in [&mut i.uid, &mut i.gid, &mut i.projid, &mut i.nlink, &mut i.flags, &mut i.large_xattrs] {
            *n = u32::from_le_bytes(r.array("numbers")?);
        }
        for n in [&mut i.rdev, &mut i.version, &mut i.entries] {
            *n = u64::from_le_bytes(r.array("numbers")?);
        }
        for t in [&mut i.atime, &mut i.mtime, &mut i.ctime, &mut i.btime, &mut i.mtime_stamp] {
            t.sec = i64::from_le_bytes(r.array("times")?);
            t.nsec = u32::from_le_bytes(r.array("times")?);
        }
        i.parent = Fid::from_bytes(&r.array("parent")?);
        Ok(i)
    }

    fn set_tag(&mut self, r: &Reader, tag: u16, value: &[u8]) -> Result<(), MdsError> {
        match tag {
            TAG_SYMLINK => self.symlink = value.to_vec(),
            TAG_LAYOUT => {
                let (l, _) =
                    postcard::take_from_bytes(value).map_err(|e| r.damaged(format!("layout: {e}")))?;
                self.layout = Some(l);
            }
            TAG_XATTR => {
                let (&n, rest) = value.split_first().ok_or_else(|| r.damaged("attribute without a name"))?;
                let (name, val) =
                    rest.split_at_checked(n.into()).ok_or_else(|| r.damaged("attribute cut short"))?;
                self.xattrs.push((name.to_vec(), val.to_vec()));
            }
            TAG_DEFAULT_LAYOUT => {
                let (s, _) = postcard::take_from_bytes(value)
                    .map_err(|e| r.damaged(format!("default layout: {e}")))?;
                self.default_layout = Some(s);
            }
            TAG_DATA => {
                let mut r = Reader { bytes: value, fid: r.fid };
                self.data = DataState {
                    size: u64::from_le_bytes(r.array("data size")?),
                    blocks: u32::from_le_bytes(r.array("data blocks")?),
                    version: u64::from_le_bytes(r.array("data version")?),
                };
                if self.data.size > limits::MDT_DATA_MAX_BYTES {
                    return Err(r.damaged(format!("{} bytes of data", self.data.size)));
                }
            }
            TAG_GROWTH => {
                let (g, _) =
                    postcard::take_from_bytes(value).map_err(|e| r.damaged(format!("growth: {e}")))?;
                self.growth = g;
            }
            TAG_TRASHED => {
                let (r, _) =
                    postcard::take_from_bytes(value).map_err(|e| r.damaged(format!("trash: {e}")))?;
                self.removed = Some(r);
            }
            TAG_DIRECTORY => {
                let mut r = Reader { bytes: value, fid: r.fid };
                self.directory = u32::from_le_bytes(r.array("directory")?);
            }
            TAG_ACL => self.acl = Acl::from_xattr(value).map_err(|e| r.damaged(format!("ACL: {e}")))?,
            TAG_DEFAULT_ACL => {
                self.default_acl =
                    Acl::from_xattr(value).map_err(|e| r.damaged(format!("default ACL: {e}")))?;
            }
            _ => self.extra.push((tag, value.to_vec())),
        }
        Ok(())
    }
}

fn tlv(v: &mut Vec<u8>, tag: u16, value: &[u8]) {
    assert!(u32::try_from(value.len()).is_ok(), "a tagged value's length has its field");
    v.extend_from_slice(&tag.to_le_bytes());
    v.extend_from_slice(&(value.len() as u32).to_le_bytes());
    v.extend_from_slice(value);
}

struct Reader<'a> {
    bytes: &'a [u8],
    fid: Fid,
}

impl<'a> Reader<'a> {
    fn damaged(&self, why: impl Into<String>) -> MdsError {
        MdsError::Damaged { what: "inode", key: self.fid.to_string(), why: why.into() }
    }

    fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8], MdsError> {
        let (head, rest) =
            self.bytes.split_at_checked(n).ok_or_else(|| self.damaged(format!("cut short in its {what}")))?;
        self.bytes = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], MdsError> {
        Ok(self.take(N, what)?.try_into().expect("as many bytes as asked for"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Inode {
        let t = |n| Timestamp { sec: n, nsec: 5 };
        let mut i = Inode::new(FileType::Regular, 0o4640, 7, 8, t(-3));
        (i.atime, i.mtime, i.mtime_stamp) = (t(1), t(2), t(3));
        (i.rdev, i.version, i.entries, i.large_xattrs, i.nlink, i.projid) = (1, 2, 3, 4, 5, 6);
        i.directory = 77;
        i.parent = Fid::ROOT;
        i.symlink = b"target".to_vec();
        i.layout = Some(Layout::plain(Fid::new(9, 9, 0), 65536, "p", &[1, 2]));
        i.xattrs = vec![(b"user.a".to_vec(), b"v".to_vec()), (b"user.b".to_vec(), Vec::new())];
        i.default_layout = Some(LayoutSpec::builtin());
        i.acl = Some(Acl::from_mode(0o640));
        i.default_acl = Some(Acl::from_mode(0o750));
        i.data = DataState { size: 5000, blocks: 2, version: 9 };
        i.growth = Growth { attempts: 2, target: Some(Layout::striped((Fid::ROOT, 3), 1, 65536, "", &[7])) };
        i.extra = vec![(999, b"later".to_vec())];
        i
    }

    #[test]
    fn everything_goes_there_and_back() {
        let i = sample();
        let bytes = i.encode();
        assert_eq!(Inode::decode(Fid::ROOT, &bytes).unwrap(), i);
        let shown = Inode::decode_shown(Fid::ROOT, &bytes).unwrap();
        assert_eq!((shown.attr(Fid::ROOT), &shown.layout), (i.attr(Fid::ROOT), &i.layout));
        assert!(shown.default_layout.is_none() && shown.xattrs.is_empty(), "and nothing else");
        let fixed = Inode::decode_fixed(Fid::ROOT, &bytes).unwrap();
        assert_eq!((fixed.uid, fixed.atime, fixed.parent, fixed.layout), (i.uid, i.atime, i.parent, None));
    }

    #[test]
    fn a_cut_inode_is_an_error_or_a_shorter_one_never_a_panic() {
        let good = sample().encode();
        for cut in 0..good.len() {
            if let Ok(i) = Inode::decode(Fid::ROOT, &good[..cut]) {
                assert_ne!(i, sample());
            }
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics(v in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..300, b: u8) {
            let _ = Inode::decode(Fid::ROOT, &v);
            let mut good = sample().encode();
            if at < good.len() {
                good[at] = b;
            }
            let _ = Inode::decode(Fid::ROOT, &good);
        }
    }
}

//! Where files go that have no name any more, and bytes that nobody can read: the directory lost+found, whose
//! FID everybody knows ([`Fid::LOST_FOUND`]). Root alone may look into it.

use super::mend::Mend;
use crate::ops::allocseq;
use crate::schema::inode::DATA_BLOCK_BYTES;
use crate::schema::{Inode, key, value};
use crate::tx::Found;
use model::inode_rules::NamesChange;
use model::{Errno, Fid, FileType, Layout, limits};

/// Names that are tried for one file.
const NAMES_TRIED: u32 = 1000;
/// Bytes of a record that are kept as they were; of a longer one its beginning.
const RECORD_KEPT_BYTES: usize = 256 << 10;

/// Why a file is there, as its name says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It has no name.
    Nameless,
    /// Only its data was there.
    Data,
    /// An object that no file has.
    Object,
    /// A record that could not be read.
    Record,
    /// Its inode was lost, and it is put together from what its objects know.
    Rebuilt,
}

impl Why {
    fn letter(self) -> char {
        match self {
            Why::Nameless => 'N',
            Why::Data => 'D',
            Why::Object => 'O',
            Why::Record => 'Q',
            Why::Rebuilt => 'R',
        }
    }
}

impl Mend<'_, '_> {
    /// The directory, which is made when it is needed first.
    fn lost_found(&mut self) -> Result<Inode, Errno> {
        if let Some(i) = self.inode(Fid::LOST_FOUND)? {
            return Ok(i);
        }
        let mut i = Inode::new(FileType::Directory, 0o700, 0, 0, self.now);
        i.parent = Fid::ROOT;
        self.tx.add_inode(Fid::LOST_FOUND, &mut i);
        Ok(i)
    }

    /// Gives a file a name there: its own FID's, or that of what it is made of. The inode is the caller's to
    /// write.
    pub fn attach(&mut self, fid: Fid, i: &mut Inode, (of, why): (Fid, Why)) -> Result<String, Errno> {
        assert_ne!(fid, Fid::LOST_FOUND, "lost+found does not lie in itself");
        let mut dir = self.lost_found()?;
        for n in 0..NAMES_TRIED {
            let name = format!("{of}-{}-{n}", why.letter());
            let Found::Free(cookie) = self.tx.find(Fid::LOST_FOUND, name.as_bytes())? else { continue };
            self.tx.put_name(Fid::LOST_FOUND, cookie, name.as_bytes(), fid, i.kind);
            self.tx.names_changed(Fid::LOST_FOUND, &mut dir, NamesChange::added(i.kind), self.now);
            if i.is_dir() {
                i.parent = Fid::LOST_FOUND;
            }
            assert!(dir.entries > 0, "lost+found counts what it has");
            i.directory = dir.directory;
            return Ok(name);
        }
        Err(Errno::EEXIST)
    }

    /// A FID that nobody has.
    pub fn new_fid(&mut self) -> Result<Fid, Errno> {
        Ok(Fid::new(allocseq::next_sequence(self.tx)?, 1, 0))
    }

    /// A file of root's there with these bytes. Its name.
    pub fn keep_bytes(&mut self, of: (Fid, Why), bytes: &[u8]) -> Result<String, Errno> {
        assert!(!bytes.is_empty(), "what is kept is something");
        let fid = self.new_fid()?;
        let mut i = Inode::new(FileType::Regular, 0o600, 0, 0, self.now);
        i.layout = Some(Layout::on_mdt(limits::MDT_DATA_MAX_BYTES as u32));
        i.data.size = bytes.len() as u64;
        for (block, part) in (0u32..).zip(bytes.chunks(DATA_BLOCK_BYTES)) {
            self.tx.put(key::data(fid, block), value::encode_data(part));
            i.data.blocks += 1;
        }
        assert!(i.data.size <= limits::MDT_DATA_MAX_BYTES, "what is kept has room with its inode");
        let name = self.attach(fid, &mut i, of)?;
        self.tx.add_inode(fid, &mut i);
        Ok(name)
    }

    /// A record that nobody can read, as text in a file there. The record is the caller's to remove.
    pub fn keep_record(&mut self, of: Fid, k: &[u8], v: &[u8]) -> Result<String, Errno> {
        let part = &v[..v.len().min(RECORD_KEPT_BYTES)];
        let text = format!("key {}\nvalue of {} bytes {}\n", value::hex(k), v.len(), model::hex(part));
        self.keep_bytes((of, Why::Record), text.as_bytes())
    }
}

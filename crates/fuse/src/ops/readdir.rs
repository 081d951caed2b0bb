//! READDIR and READDIRPLUS: a page of a directory. An offset is the cookie of the entry before it, so a
//! listing can go on from anywhere; `.` and `..` have offsets below those of all entries.
//!
//! READDIRPLUS says that the program is going to look at the files: their inodes are fetched with the names.
//! But the answer shows the kernel none of them. It would link their names without a look at the epoch
//! (`kernel.rs`), so they could not be kept, and would have to be looked up before their first use all the
//! same; and names that it keeps from former lookups, with access lists, would be given up for that.

use super::Cx;
use crate::abi::{DIRENT_BYTES, DirentHead, ENTRY_OUT_BYTES, EntryOut, ReadIn};
use crate::reply::{Answer, Reply};
use model::FileType;
use zerocopy::IntoBytes;

const DOT: u64 = 1;
const DOTDOT: u64 = 2;

/// Entries, as the kernel wants them.
pub struct Page {
    pub out: Vec<u8>,
    room: usize,
    plus: bool,
}

impl Page {
    pub fn new(room: u32, plus: bool) -> Page {
        Page { out: Vec::new(), room: room as usize, plus }
    }

    fn size(&self, name: &[u8]) -> usize {
        let head = DIRENT_BYTES + if self.plus { ENTRY_OUT_BYTES } else { 0 };
        (head + name.len()).next_multiple_of(8)
    }

    pub fn fits(&self, name: &[u8]) -> bool {
        self.out.len() + self.size(name) <= self.room
    }

    pub fn push(&mut self, ino: u64, off: u64, kind: FileType, name: &[u8]) {
        let end = self.out.len() + self.size(name);
        assert!(end <= self.room, "whether an entry fits is looked at before it is added");
        if self.plus {
            self.out.extend_from_slice(EntryOut::default().as_bytes());
        }
        let kind = u32::from(kind.d_type());
        let head = DirentHead { ino, off, namelen: name.len() as u32, kind };
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(name);
        self.out.resize(end, 0);
    }
}

pub async fn run(cx: Cx, a: ReadIn, plus: bool) -> Answer {
    let fid = cx.bridge.handles.dir(a.fh)?.fid;
    let mut page = Page::new(a.size, plus);
    if a.offset < DOT && page.fits(b".") {
        page.push(fid.ino(), DOT, FileType::Directory, b".");
    }
    let cookie = if a.offset <= DOTDOT { 0 } else { a.offset };
    let (entries, parent, _) = cx.fs().readdir(cx.call_by_handle(), fid, cookie, a.size, plus).await?;
    if a.offset < DOTDOT && page.fits(b"..") {
        let up = if fid == cx.bridge.fs.root() { fid } else { parent };
        page.push(up.ino(), DOTDOT, FileType::Directory, b"..");
    }
    for e in entries {
        if !page.fits(&e.name) {
            break;
        }
        page.push(e.fid.ino(), e.cookie, e.kind, &e.name);
    }
    Ok(Reply::data(page.out))
}

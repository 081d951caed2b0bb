//! READDIR and READDIRPLUS: a page of a directory. An offset is the cookie of the entry before it, so a listing
//! can go on from anywhere; `.` and `..` have offsets below those of all entries.

use super::Cx;
use crate::abi::{DIRENT_BYTES, DirentHead, ENTRY_OUT_BYTES, EntryOut, ReadIn};
use crate::reply::{Answer, Reply, entry_out, valid};
use model::{Attr, Fid, FileType};
use std::time::Duration;
use zerocopy::IntoBytes;

const DOT: u64 = 1;
const DOTDOT: u64 = 2;

struct Page {
    out: Vec<u8>,
    room: usize,
    plus: bool,
}

impl Page {
    fn size(&self, name: &[u8]) -> usize {
        let head = DIRENT_BYTES + if self.plus { ENTRY_OUT_BYTES } else { 0 };
        (head + name.len()).next_multiple_of(8)
    }

    fn fits(&self, name: &[u8]) -> bool {
        self.out.len() + self.size(name) <= self.room
    }

    fn push(&mut self, entry: &EntryOut, fid: Fid, off: u64, kind: FileType, name: &[u8]) {
        let end = self.out.len() + self.size(name);
        if self.plus {
            self.out.extend_from_slice(entry.as_bytes());
        }
        let kind = u32::from(kind.d_type());
        let head = DirentHead { ino: fid.ino(), off, namelen: name.len() as u32, kind };
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(name);
        self.out.resize(end, 0);
    }
}

pub async fn run(cx: Cx, a: ReadIn, plus: bool) -> Answer {
    let fid = cx.bridge.handles.dir(a.fh)?.fid;
    let mut page = Page { out: Vec::new(), room: a.size as usize, plus };
    let none = EntryOut::default();
    if a.offset < DOT && page.fits(b".") {
        page.push(&none, fid, DOT, FileType::Directory, b".");
    }
    let cookie = if a.offset <= DOTDOT { 0 } else { a.offset };
    let (entries, parent, _) = cx.fs().readdir(cx.call_by_handle(), fid, cookie, a.size, plus).await?;
    if a.offset < DOTDOT && page.fits(b"..") {
        let up = if fid == cx.bridge.fs.root() { fid } else { parent };
        page.push(&none, up, DOTDOT, FileType::Directory, b"..");
    }
    for e in entries {
        if !page.fits(&e.name) {
            break;
        }
        let known: Option<Attr> = e.entry.filter(|_| plus).map(|x| x.attr);
        let entry = match &known {
            // The kernel links names of pages without a look at the epoch: only attributes may be kept.
            Some(attr) => {
                let out = entry_out(cx.bridge.nodes.remember(attr.fid), attr);
                valid(out, Duration::ZERO, cx.attr_valid(attr))
            }
            None => none,
        };
        page.push(&entry, e.fid, e.cookie, e.kind, &e.name);
    }
    Ok(Reply::data(page.out))
}

//! readdir: a page of a directory, in the order of its cookies.

use crate::MdsError;
use crate::names::{self, OpContext};
use crate::schema::{DentryValue, Inode, key, value};
use crate::tx::Tx;
use model::{Errno, Fid, LayoutSpec};
use wire::msg::lookup::{Entry, bits};
use wire::msg::readdir::{Dirent, GrowsInto, Readdir, ReaddirReply};
use wire::trailing::Trailing;

/// A page never holds more, whatever was asked for: it must fit into a message.
const PAGE_MAX_BYTES: usize = 1 << 20;
/// About what an entry takes besides its name; with attributes; and each object of a layout.
const ENTRY_BYTES: usize = 32;
const PLUS_BYTES: usize = 160;
const OBJECT_BYTES: usize = 24;
/// Entries of one page with attributes: others wait while it is made.
const PLUS_ENTRIES_MAX: usize = 1024;
/// Keys read at a time.
const SCAN: usize = 256;

pub fn run(tx: &mut Tx, _ctx: &OpContext, m: Readdir) -> Result<ReaddirReply, Errno> {
    page(tx, m, names::entry)
}

/// A page; `entry` says what an inode looks like in it, and grants what there is to grant.
pub fn page(
    tx: &mut Tx,
    m: Readdir,
    entry_of: impl Fn(&mut Tx, Fid, &Inode) -> Entry,
) -> Result<ReaddirReply, Errno> {
    let dir = tx.dir(m.fid)?;
    let room = (m.max_bytes as usize).min(PAGE_MAX_BYTES);
    let end = key::dentry_end(m.fid);
    let mut reply = ReaddirReply {
        entries: Vec::new(),
        parent: dir.parent,
        end: false,
        grant: tx.offer(m.fid, bits::LOOKUP),
        grows_into: Trailing(m.grows_into.0.filter(|wanted| *wanted && m.plus).map(|_| GrowsInto::default())),
    };
    let (mut cookie, mut used) = (m.cookie, 0usize);
    loop {
        let Some(from) = cookie.checked_add(1).filter(|&c| c <= i64::MAX as u64) else {
            reply.end = true;
            return Ok(reply);
        };
        let page = tx.scan(&key::dentry_from(m.fid, from), &end, SCAN)?;
        let last_page = page.len() < SCAN;
        for (k, v) in page {
            let (_, c, name) = key::parse_dentry(&k).ok_or_else(|| MdsError::Damaged {
                what: "directory entry",
                key: value::hex(&k),
                why: "its key is short".into(),
            })?;
            let d = DentryValue::decode(&k, &v)?;
            let mut size = name.len().saturating_add(ENTRY_BYTES);
            let (mut entry, mut spec) = (None, None);
            if m.plus
                && let Some(i) = tx.try_inode(d.fid)?
            {
                let objects = i.layout.as_ref().map_or(0, |l| l.objects().count());
                size = objects.saturating_mul(OBJECT_BYTES).saturating_add(PLUS_BYTES).saturating_add(size);
                entry = Some(entry_of(tx, d.fid, &i));
                let grows = i.data_room().is_some() && reply.grows_into.0.is_some();
                spec = i.default_layout.filter(|_| grows);
            }
            let known = reply.grows_into.0.as_ref().zip(spec.as_ref()).map(|(g, s)| place_of(g, s));
            if let (Some(None), Some(s)) = (known, &spec) {
                size = size.saturating_add(encoded_bytes(s));
            }
            let full =
                used.saturating_add(size) > room || (m.plus && reply.entries.len() >= PLUS_ENTRIES_MAX);
            if !reply.entries.is_empty() && full {
                return Ok(reply);
            }
            used = used.saturating_add(size);
            assert!(used <= room || reply.entries.is_empty(), "a page has the room that it was given");
            cookie = c;
            if let (Some(g), Some(s)) = (&mut reply.grows_into.0, spec) {
                let place = place_of(g, &s).unwrap_or_else(|| {
                    let place = g.specs.len();
                    g.specs.push(s);
                    place
                });
                g.of.push((reply.entries.len() as u32, place as u32));
            }
            reply.entries.push(Dirent { cookie: c, fid: d.fid, kind: d.kind, name: name.to_vec(), entry });
        }
        if last_page {
            reply.end = true;
            return Ok(reply);
        }
    }
}

/// Files that were made one after the other get the same, mostly.
fn place_of(g: &GrowsInto, s: &LayoutSpec) -> Option<usize> {
    g.specs.iter().rposition(|known| known == s)
}

fn encoded_bytes(s: &LayoutSpec) -> usize {
    postcard::to_stdvec(s).expect("plain data encodes").len()
}

//! own: a directory becomes one client's alone for a while: it changes it by itself and tells later, in
//! batches.

use crate::mdt::Mdt;
use crate::names::{self, OpContext};
use crate::ops::readdir;
use crate::tx::Tx;
use model::{Errno, Fid};
use wire::encode_message;
use wire::msg::lookup::{Entry, bits};
use wire::msg::own::{Own, OwnReply};
use wire::msg::readdir::Readdir;

pub fn run(mdt: &Mdt, tx: &mut Tx, ctx: &OpContext, m: &Own) -> Result<Vec<u8>, Errno> {
    let dir = tx.dir(m.dir)?;
    if dir.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    let promised = mdt.shared.leases.promised_bytes(Some(ctx.client));
    let grant = if mdt.db.space_low_beside(promised) { None } else { tx.claim(m.dir, bits::DIRECTORY) };
    let whole = grant.as_ref().is_some_and(|g| g.bits == bits::DIRECTORY);
    let entry = names::entry(tx, m.dir, &dir);
    let mut reply = OwnReply {
        dir: Entry { grant: grant.or(entry.grant), ..entry },
        entries: Vec::new(),
        end: false,
        file_layout: tx.shared.plain_layout(dir.default_layout.as_ref()),
        defaults: if whole { tx.offer(Fid::DEFAULTS, bits::UPDATE) } else { None },
    };
    if whole && m.max_bytes > 0 {
        let page = Readdir { fid: m.dir, cookie: m.cookie, max_bytes: m.max_bytes, plus: m.children };
        let page = readdir::page(tx, page, |tx, fid, i| Entry {
            grant: tx.claim(fid, bits::UPDATE),
            ..names::entry(tx, fid, i)
        })?;
        (reply.entries, reply.end) = (page.entries, page.end);
    }
    Ok(encode_message(&reply))
}

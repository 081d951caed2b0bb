//! own: a directory becomes one client's alone for a while: it changes it by itself and tells later, in
//! batches.

use crate::mdt::Mdt;
use crate::names::{self, OpContext};
use crate::ops::readdir;
use crate::schema::Inode;
use crate::shared::Shared;
use crate::tx::Tx;
use model::inode_rules::FLAG_TRASH;
use model::{Errno, Fid};
use wire::encode_message;
use wire::msg::lookup::{Entry, bits};
use wire::msg::own::{Own, OwnReply};
use wire::msg::readdir::Readdir;
use wire::trailing::Trailing;

pub fn run(mdt: &Mdt, tx: &mut Tx, ctx: &OpContext, m: &Own) -> Result<Vec<u8>, Errno> {
    let dir = tx.dir(m.dir)?;
    if dir.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    let may = may_have_alone(mdt, ctx, m, &dir);
    let grant = if may { tx.claim(m.dir, bits::DIRECTORY) } else { None };
    let whole = grant.as_ref().is_some_and(|g| g.bits == bits::DIRECTORY);
    let entry = names::entry(tx, m.dir, &dir);
    let mut reply = OwnReply {
        dir: Entry { grant: grant.or(entry.grant), ..entry },
        entries: Vec::new(),
        end: false,
        file_layout: tx.shared.plain_layout(dir.default_layout.as_ref()),
        defaults: if whole { tx.offer(Fid::DEFAULTS, bits::UPDATE) } else { None },
        limited: mdt.shared.quotas.is_active().into(),
    };
    if whole && m.max_bytes > 0 {
        let page = Readdir {
            fid: m.dir,
            cookie: m.cookie,
            max_bytes: m.max_bytes,
            plus: m.children,
            grows_into: Trailing(None),
        };
        let page = readdir::page(tx, page, |tx, fid, i| Entry {
            grant: tx.claim(fid, bits::UPDATE),
            ..names::entry(tx, fid, i)
        })?;
        (reply.entries, reply.end) = (page.entries, page.end);
    }
    Ok(encode_message(&reply))
}

/// Whether there is room for what the client would do without asking, on the disk and in the limits of the
/// directory's owner, and no barrier for which all has to be told.
fn may_have_alone(mdt: &Mdt, ctx: &OpContext, m: &Own, dir: &Inode) -> bool {
    let Shared { leases, quotas, usage, .. } = &*mdt.shared;
    let promised = leases.promised_bytes(Some(ctx.client));
    let others = leases.owners().saturating_sub(usize::from(leases.is_owner(ctx.client)));
    let knows = m.knows_limits.0 == Some(true) || !quotas.is_active();
    let tells = !mdt.shared.barrier.is_wanted();
    // Names that go into the trash are removed here.
    let trash = dir.flags & FLAG_TRASH != 0;
    knows
        && tells
        && !trash
        && !mdt.db.space_low_beside(promised)
        && quotas.may_have_alone(&dir.owner(), usage, others)
}

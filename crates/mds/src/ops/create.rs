//! create: a regular file, usually opened at once; with an empty name an unnamed file (O_TMPFILE).

use super::open::register;
use crate::names::{self, OpContext};
use crate::schema::{Inode, OrphanKind, key};
use crate::tx::{Found, Tx};
use model::{Errno, FileType, inode_rules};
use wire::msg::create::{Create, CreateReply, OpenSpec};
use wire::msg::lookup::{Entry, bits};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Create) -> Result<CreateReply, Errno> {
    if m.name.is_empty() {
        return tmpfile(tx, ctx, &m);
    }
    inode_rules::check_name(&m.name)?;
    let dir = names::searched(tx, ctx, m.parent)?;
    if inode_rules::is_dots(&m.name) {
        return Err(if m.exclusive { Errno::EEXIST } else { Errno::EISDIR });
    }
    let cookie = match tx.find(m.parent, &m.name)? {
        Found::Entry(_) if m.exclusive => return Err(Errno::EEXIST),
        Found::Entry(d) => {
            let mut i = tx.promised(d.fid)?;
            match d.kind {
                FileType::Regular => {}
                FileType::Directory => return Err(Errno::EISDIR),
                // The caller looked it up as absent: it must look again and follow or open what is there now.
                _ => return Err(Errno::EEXIST),
            }
            if let Some(open) = &m.open {
                // The client keeps the handle under the FID that it chose until it has this answer, so it
                // could not say that it has this file open if it were asked for the lease before.
                let open = OpenSpec { lease: false, ..open.clone() };
                super::open::open_existing(tx, ctx, d.fid, &mut i, &open)?;
            }
            let entry = Entry { dir_grant: tx.offer(m.parent, bits::LOOKUP), ..names::entry(tx, d.fid, &i) };
            return Ok(CreateReply { created: false, entry });
        }
        Found::Free(cookie) => cookie,
    };
    names::may_add(ctx, &dir)?;
    names::check_new_fid(tx, ctx, m.fid)?;
    let mut i = new_file(tx, ctx, &m, &dir)?;
    if let Some(open) = &m.open {
        register(tx, ctx, m.fid, &i, open)?;
    }
    names::add_file(tx, ctx, (m.parent, dir), (cookie, &m.name), (m.fid, &mut i));
    if let Some(open) = &m.open {
        tx.notes.add_open(ctx.now, m.fid, open.flags);
    }
    Ok(CreateReply { created: true, entry: names::named(tx, m.parent, m.fid, &i) })
}

fn tmpfile(tx: &mut Tx, ctx: &OpContext, m: &Create) -> Result<CreateReply, Errno> {
    // Without an open nothing would ever remove it.
    let open = m.open.as_ref().ok_or(Errno::EINVAL)?;
    let dir = names::searched(tx, ctx, m.parent)?;
    names::may_add(ctx, &dir)?;
    names::check_new_fid(tx, ctx, m.fid)?;
    let mut i = new_file(tx, ctx, m, &dir)?;
    i.nlink = 0;
    register(tx, ctx, m.fid, &i, open)?;
    tx.add_inode(m.fid, &mut i);
    let kind = if m.exclusive { OrphanKind::TmpfileExclusive } else { OrphanKind::Tmpfile };
    tx.put(key::orphan(m.fid), kind.encode());
    Ok(CreateReply { created: true, entry: names::entry(tx, m.fid, &i) })
}

fn new_file(tx: &mut Tx, ctx: &OpContext, m: &Create, dir: &Inode) -> Result<Inode, Errno> {
    if let Some(spec) = &m.layout {
        super::setlayout::check_spec(tx, spec)?;
    }
    let mut i = names::new_inode(ctx, dir, FileType::Regular, m.mode, m.umask);
    if m.no_objects {
        // What it is to get later, when it is opened for writing.
        i.default_layout = match (&m.layout, &dir.default_layout) {
            (Some(l), Some(d)) => Some(l.clone().inherit(d)),
            (l, d) => l.as_ref().or(d.as_ref()).cloned(),
        };
    } else {
        names::lay_out(tx, m.fid, &mut i, m.layout.as_ref(), dir.default_layout.as_ref())?;
    }
    Ok(i)
}

//! Rules that several operations share: names, new inodes, access to files for open.

use crate::changelog::Change;
use crate::data;
use crate::schema::{Inode, Lease, key};
use crate::tx::{Dentry, Found, Tx};
use model::inode_rules::{self, NamesChange, NewFile, Parent, check_name, is_dots};
use model::nodemap::Nodemap;
use model::perm::{self, MAY_EXEC};
use model::{Cred, Errno, Fid, FileType, LayoutSpec, Timestamp, limits};
use rpc::ClientId;
use wire::msg::lookup::{Entry, bits};
use wire::msg::unlink::Changed;

/// On whose behalf an operation runs, and when.
#[derive(Clone, Debug)]
pub struct OpContext {
    pub client: ClientId,
    pub cred: Cred,
    /// Whom the client's users are here.
    pub nodemap: Nodemap,
    /// The request's time, clamped.
    pub now: Timestamp,
    /// The server's clock; of a replayed request, as it was the first time.
    pub wall: Timestamp,
}

/// A directory that the caller may search.
pub fn searched(tx: &mut Tx, ctx: &OpContext, dir: Fid) -> Result<Inode, Errno> {
    let i = tx.dir(dir)?;
    perm::access(&ctx.cred, &i.subject(), MAY_EXEC)?;
    Ok(i)
}

/// A place for a new name: the directory and the cookie. `EEXIST` if the name is there (also for somebody
/// who may not write the directory), `ENOENT` in a removed directory.
pub fn vacant(tx: &mut Tx, ctx: &OpContext, dir: Fid, name: &[u8]) -> Result<(Inode, u64), Errno> {
    check_name(name)?;
    let parent = searched(tx, ctx, dir)?;
    if is_dots(name) {
        return Err(Errno::EEXIST);
    }
    match tx.find(dir, name)? {
        Found::Entry(_) => Err(Errno::EEXIST),
        Found::Free(cookie) => {
            may_add(ctx, &parent)?;
            Ok((parent, cookie))
        }
    }
}

/// Names may be added to this directory by the caller.
pub fn may_add(ctx: &OpContext, dir: &Inode) -> Result<(), Errno> {
    inode_rules::may_add(&ctx.cred, &dir.subject(), dir.nlink)
}

/// A name that may be taken out: (directory, entry, its inode), all permission checks done.
pub fn removable(
    tx: &mut Tx,
    ctx: &OpContext,
    dir: Fid,
    name: &[u8],
) -> Result<(Inode, Dentry, Inode), Errno> {
    let parent = searched(tx, ctx, dir)?;
    let d = tx.entry(dir, name)?;
    let victim = tx.promised(d.fid)?;
    perm::may_delete(&ctx.cred, &parent.subject(), &victim.subject())?;
    Ok((parent, d, victim))
}

/// The FID that a client chose for a new file lies in a sequence leased to it and is unused. `ESTALE` if the
/// client has no such lease (it asks for a new one), `EINVAL` otherwise.
pub fn check_new_fid(tx: &mut Tx, ctx: &OpContext, fid: Fid) -> Result<(), Errno> {
    if !tx.is_replay() {
        tx.check_space()?;
    }
    let k = key::lease(fid.seq);
    let lease = tx.get(&k)?.map(|v| Lease::decode(&k, &v)).transpose()?;
    let lease = lease.filter(|l| l.client == ctx.client.0).ok_or(Errno::ESTALE)?;
    if fid.oid == 0 || fid.oid > lease.width || fid.ver != 0 || tx.get(&key::inode(fid))?.is_some() {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The inode of a new file in `dir`.
pub fn new_inode(ctx: &OpContext, dir: &Inode, kind: FileType, mode: u32, umask: u32) -> Inode {
    let parent = Parent {
        subject: dir.subject(),
        projid: dir.projid,
        directory: dir.directory,
        default_acl: dir.default_acl.as_ref(),
    };
    let n = inode_rules::new_inode(&parent, &NewFile { cred: &ctx.cred, kind, mode, umask, now: ctx.now });
    let bare = Inode::new(n.kind, n.mode, n.uid, n.gid, n.time);
    Inode {
        nlink: n.nlink,
        projid: n.projid,
        directory: n.directory,
        flags: n.flags,
        acl: n.acl,
        default_acl: n.default_acl,
        ..bare
    }
}

/// Writes a new file: inode, name, and the directory's change.
pub fn add_file(
    tx: &mut Tx,
    ctx: &OpContext,
    (dir_fid, mut dir): (Fid, Inode),
    (cookie, name): (u64, &[u8]),
    (fid, i): (Fid, &mut Inode),
) {
    assert!(i.nlink > 0, "a file that gets a name has one");
    assert_ne!(dir_fid, fid, "a directory does not lie in itself");
    if i.is_dir() {
        i.parent = dir_fid;
    }
    tx.add_inode(fid, i);
    tx.put_name(dir_fid, cookie, name, fid, i.kind);
    tx.names_changed(dir_fid, &mut dir, NamesChange::added(i.kind), ctx.now);
    tx.notes.add(ctx.now, Change::made(i.kind, fid).named(dir_fid, name));
}

/// open(2)'s check of an existing file.
pub fn may_open(ctx: &OpContext, i: &Inode, flags: u32) -> Result<(), Errno> {
    perm::may_open(&ctx.cred, &i.subject(), flags)
}

/// A file made without a layout gets one when somebody is going to write. True if it did.
pub fn instantiate(tx: &mut Tx, fid: Fid, i: &mut Inode) -> Result<bool, Errno> {
    if i.kind != FileType::Regular || i.layout.is_some() {
        return Ok(false);
    }
    let wanted = i.default_layout.take();
    lay_out(tx, fid, i, wanted.as_ref(), None)?;
    tx.index_objects(fid, i);
    tx.notes.add_layout(tx.shared.world.wall(), fid);
    Ok(true)
}

/// Gives a new regular file its layout: objects, or a place with its inode.
pub fn lay_out(
    tx: &Tx,
    fid: Fid,
    i: &mut Inode,
    spec: Option<&LayoutSpec>,
    dir_default: Option<&LayoutSpec>,
) -> Result<(), Errno> {
    assert!(i.layout.is_none() && i.kind == FileType::Regular, "{fid} gets a layout once, if it has data");
    let (layout, later) = tx.allocate(fid, spec, dir_default)?;
    (i.layout, i.default_layout) = (Some(layout), later);
    Ok(())
}

/// What a lease on a file's inode covers.
fn bits_of(i: &Inode) -> u8 {
    if i.kind == FileType::Regular { bits::INODE } else { bits::UPDATE }
}

/// What most operations answer.
pub fn entry(tx: &mut Tx, fid: Fid, i: &Inode) -> Entry {
    entry_with(tx, fid, i, bits_of(i))
}

/// As [`entry`], with a lease on more.
pub fn entry_with(tx: &mut Tx, fid: Fid, i: &Inode, bits: u8) -> Entry {
    Entry {
        attr: i.attr(fid),
        layout: i.layout.clone(),
        grant: tx.offer(fid, bits),
        dir_grant: None,
        parent: if i.is_dir() { i.parent } else { Fid::NONE },
        symlink: i.symlink.clone(),
        plain: i.xattrs.is_empty() && i.large_xattrs == 0 && i.acl.is_none() && i.default_acl.is_none(),
        content: None,
    }
}

/// Adds the file's data to the answer if it lies with the inode and is no more than `max` bytes (0: it is not
/// wanted). Not in an answer that is kept, which would promise data that is not kept with it.
pub fn with_content(tx: &mut Tx, e: Entry, i: &Inode, max: u32) -> Result<Entry, Errno> {
    let fits = i.data.size <= u64::from(max).min(limits::MDT_DATA_MAX_BYTES);
    if max == 0 || i.data_room().is_none() || !fits || tx.writes() {
        return Ok(e);
    }
    let bytes = data::read(tx, e.attr.fid, i, 0, i.data.size)?;
    assert!(bytes.len() as u64 <= u64::from(max), "no more data is added than was asked for");
    tx.reply_data.extend_from_slice(&bytes);
    Ok(Entry { content: Some(bytes.len() as u32), ..e })
}

/// What an operation answers that gave a file a name.
pub fn named(tx: &mut Tx, dir: Fid, fid: Fid, i: &Inode) -> Entry {
    // A new directory is empty, which is worth knowing.
    let bits = if i.is_dir() { bits::DIRECTORY } else { bits_of(i) };
    Entry { dir_grant: tx.offer(dir, bits::LOOKUP), ..entry_with(tx, fid, i, bits) }
}

/// What a transaction did to inodes so far, for its client.
pub fn changed(tx: &mut Tx) -> Result<Changed, Errno> {
    let mut out = Changed { entries: Vec::new(), gone: Vec::new() };
    for fid in tx.changed_files() {
        match tx.try_inode(fid)? {
            Some(i) => out.entries.push(entry(tx, fid, &i)),
            None => out.gone.push(fid),
        }
    }
    Ok(out)
}

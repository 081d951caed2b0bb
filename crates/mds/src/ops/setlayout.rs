//! setlayout: `lfs setstripe` on a file without objects and data, or on a directory (its default for new
//! files; the root directory's is the file system's).

use crate::changelog::Change;
use crate::names::{self, OpContext};
use crate::relayout;
use crate::tx::Tx;
use model::changelog::RecordKind;
use model::layout::ComponentSpec;
use model::perm;
use model::{Errno, Fid, FileType, LayoutSpec};
use wire::msg::lookup::Entry;
use wire::msg::setlayout::Setlayout;

/// `EINVAL` for settings that no file system, or not this one, could satisfy: OSTs that do not exist or are
/// not in the pool, pools that do not exist or have no OSTs.
pub fn check_spec(tx: &Tx, spec: &LayoutSpec) -> Result<(), Errno> {
    spec.check()?;
    let parts = spec.components()?;
    let all: Vec<LayoutSpec> =
        std::iter::once(spec.clone()).chain(parts.iter().map(ComponentSpec::as_spec)).collect();
    let osts = &tx.shared.osts;
    for s in &all {
        let start_ok = u16::try_from(s.stripe_start).map_or(true, |i| osts.exists(i));
        if !start_ok || !s.osts.iter().all(|&i| osts.exists(i)) {
            return Err(Errno::EINVAL);
        }
        osts.pools.check(s)?;
    }
    Ok(())
}

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Setlayout) -> Result<Entry, Errno> {
    let mut i = tx.inode(m.fid)?;
    if !perm::owns(&ctx.cred, i.uid) {
        return Err(Errno::EPERM);
    }
    if let Some(spec) = &m.spec {
        check_spec(tx, spec)?;
    }
    match i.kind {
        FileType::Directory => {
            i.default_layout = m.spec;
            tx.notes.add(ctx.now, Change::of(RecordKind::Setxattr, m.fid).xattr(b"trusted.lov"));
            if m.fid == Fid::ROOT {
                tx.change_defaults();
            }
        }
        FileType::Regular => {
            let spec = m.spec.ok_or(Errno::EINVAL)?;
            if i.layout.is_some() {
                relayout::lay_out_empty(tx, m.fid, &mut i, &spec)?;
            } else {
                let wanted = i.default_layout.take();
                names::lay_out(tx, m.fid, &mut i, Some(&spec), wanted.as_ref())?;
                tx.index_objects(m.fid, &i);
                tx.notes.add_layout(ctx.now, m.fid);
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    i.touch_ctime(ctx.now);
    tx.put_inode(m.fid, &mut i);
    Ok(names::entry(tx, m.fid, &i))
}

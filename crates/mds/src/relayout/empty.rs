//! A file without data gets another layout, because somebody says so before the first byte is written
//! (`lfs setstripe`, setxattr of `lustre.lov`).

use super::grow::possible;
use super::{WITHOUT_DATA, adopt, movable, next_component, settle};
use crate::layouts::ComponentIds;
use crate::schema::Inode;
use crate::tx::Tx;
use model::{Errno, Fid, LayoutSpec};

/// What `spec` leaves open is as it was to be. The inode is the caller's to write. `EEXIST` for a file that
/// has objects or data, `EGROWING` while one moves.
pub fn lay_out_empty(tx: &mut Tx, fid: Fid, i: &mut Inode, spec: &LayoutSpec) -> Result<(), Errno> {
    movable(tx, fid)?;
    // A mount that met the file without a layout asks for nothing; another one was faster.
    if *spec == LayoutSpec::default() || i.data_room().is_none() || i.data.blocks > 0 || i.data.size > 0 {
        return Err(Errno::EEXIST);
    }
    settle(tx, fid, i);
    let old = i.layout.as_ref().expect("there is room with the inode");
    let generation = old.generation.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    let asked = tx.shared.resolve(Some(spec), i.default_layout.as_ref());
    let (target, later) = match tx.first_layout() {
        Some(l) if l.generation == generation && l.mdt_component().is_some() => {
            (l.clone(), Some(tx.shared.wanted(Some(spec), i.default_layout.as_ref())))
        }
        Some(l) if possible(l, fid, i) => (l.clone(), None),
        Some(_) => return Err(Errno::EPROTO),
        None => {
            let ids = ComponentIds { first: WITHOUT_DATA | tx.shared.epoch, next: next_component(i) };
            tx.shared.allocate_as(fid, ids, generation, asked)?
        }
    };
    adopt(tx, fid, i, target);
    i.default_layout = later;
    Ok(())
}

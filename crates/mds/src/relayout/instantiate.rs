//! Components get their objects when somebody is about to write there: no data moves, the layout becomes one
//! generation newer, and whoever has it is asked before.

use super::{movable, next_component, settle};
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names;
use crate::schema::Inode;
use crate::tx::Tx;
use model::planted::{self, Bug};
use model::{Errno, Fid, FileType};
use std::sync::Arc;
use wire::encode_message;

/// Every byte of `range` has an object afterwards; the answer is the file with its layout. It is durable:
/// what a client puts there must not lie on objects of which nobody knows any more. `ENODATA` for a range
/// behind the last component, `ESTALE` for a file that is gone.
pub async fn instantiate(mdt: &Arc<Mdt>, to: &ReplyTo, fid: Fid, range: (u64, u64)) -> Done {
    let done = mdt.transactions.settled(to, |tx| at_once(tx, fid, range)).await;
    Done { durable: true, ..done }
}

fn at_once(tx: &mut Tx, fid: Fid, (start, end): (u64, u64)) -> Result<Vec<u8>, Errno> {
    let mut i = movable(tx, fid)?;
    if i.kind != FileType::Regular || start >= end {
        return Err(Errno::EINVAL);
    }
    let mut changed = settle(tx, fid, &mut i);
    let layout = i.layout.clone().ok_or(Errno::ENODATA)?;
    match layout.check_range(start, end) {
        Ok(()) => {}
        Err(Errno::EUNINIT) => {
            cover(tx, fid, &mut i, (start, end))?;
            changed = true;
        }
        Err(e) => return Err(e),
    }
    if changed {
        tx.put_inode(fid, &mut i);
    }
    Ok(encode_message(&names::entry(tx, fid, &i)))
}

fn cover(tx: &mut Tx, fid: Fid, i: &mut Inode, range: (u64, u64)) -> Result<(), Errno> {
    tx.check_space()?;
    let first = next_component(i);
    let mut next = first;
    let mut layout = i.layout.clone().expect("looked at by the caller");
    tx.shared.cover(&mut layout, fid, range, &mut next)?;
    layout.generation = layout.generation.checked_add(1).ok_or(Errno::EOVERFLOW)?;
    i.layout = Some(layout.marked(|ost| tx.shared.osts.mark(ost)));
    i.growth.attempts += next - first;
    // Room that was used up is no component any more, and its id is not given again.
    i.growth.attempts += next.saturating_sub(next_component(i));
    if !planted::on(Bug::InstantiatedUnasked) {
        tx.change_layout(fid);
    }
    tx.index_objects(fid, i);
    tx.notes.add_layout(tx.shared.world.wall(), fid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Rig, create_msg};
    use model::layout::{ComponentSpec, EOF};
    use model::{LayoutSpec, limits};
    use wire::msg::create::Create;
    use wire::msg::lookup::bits;

    #[test]
    fn who_has_the_layout_is_asked_before_a_component_gets_objects() {
        let rig = Rig::new();
        let of = |end| ComponentSpec { end, stripe_count: 1, ..ComponentSpec::default() };
        let middle = limits::STRIPE_SIZE_DEFAULT_BYTES;
        let mut spec = LayoutSpec::default();
        spec.set_components(&[of(middle), of(EOF)]);
        let m = Create { layout: Some(spec), ..create_msg(Fid::ROOT, "f", rig.fid(), 0o644) };
        let fid = rig.root(m).unwrap().entry.attr.fid;
        let core = rig.mdt.core.read();
        let claims = |start, end| {
            let mut tx = Tx::new(rig.mdt.db.view(), &core.opens, &rig.mdt.shared);
            at_once(&mut tx, fid, (start, end)).unwrap();
            tx.finish().claims.get(&fid).copied().unwrap_or(0)
        };
        assert_eq!(claims(0, middle), 0, "it has all that");
        assert_eq!(claims(middle, middle + 1), bits::LAYOUT);
    }
}

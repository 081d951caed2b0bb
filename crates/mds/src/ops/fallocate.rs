//! fallocate: reserves, zeroes or punches a range of bytes that lie with their inode.

use crate::changelog::Change;
use crate::data;
use crate::names::OpContext;
use crate::tx::Tx;
use model::changelog::RecordKind;
use model::{Errno, ObjectAttr, inode_rules, limits};
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, Fallocate};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Fallocate) -> Result<ObjectAttr, Errno> {
    let known = FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE;
    let has = |bit| m.mode & bit != 0;
    let (keep, punch, zero) = (has(FALLOC_KEEP_SIZE), has(FALLOC_PUNCH_HOLE), has(FALLOC_ZERO_RANGE));
    if m.mode & !known != 0 || (punch && (zero || !keep)) {
        return Err(Errno::EOPNOTSUPP);
    }
    if m.len == 0 {
        return Err(Errno::EINVAL);
    }
    let end = m.offset.checked_add(m.len).filter(|e| *e <= limits::FILE_SIZE_MAX_BYTES);
    let end = end.ok_or(Errno::EFBIG)?;
    let fid = m.object.origin;
    let mut i = data::of(tx, m.object)?;
    if punch {
        // What lies behind the end is a hole already, or reserved and stays so.
        let end = end.min(i.data.size);
        data::check_change(tx, fid, &i, end)?;
        if m.offset < end {
            data::zero(tx, fid, &mut i, m.offset, end, false)?;
        }
    } else {
        data::check_change(tx, fid, &i, end)?;
        tx.check_space()?;
        if zero {
            data::zero(tx, fid, &mut i, m.offset, end, true)?;
        } else {
            data::reserve(tx, fid, &mut i, m.offset, end)?;
        }
        if !keep {
            inode_rules::grow_to(&mut i, end);
        }
    }
    data::touch(&mut i, ctx.now);
    tx.put_inode(fid, &mut i);
    tx.notes.add(ctx.now, Change::of(RecordKind::Mtime, fid));
    Ok(data::attr(&i))
}

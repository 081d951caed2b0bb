//! Bytes that lie with their inode: blocks of 4 KiB under keys of their own, so that looking at the inode
//! stays cheap. A block that is not there is a hole; a block's value ends where its zeros begin, or before.
//! Nothing but zeros lies behind the file's size. All functions stage changes in a transaction and leave the
//! inode itself to the caller to write.

use crate::MdsError;
use crate::schema::inode::DATA_BLOCK_BYTES;
use crate::schema::{Inode, key, value};
use crate::tx::Tx;
use model::{Errno, Fid, FileType, ObjectAttr, ObjectId, Timestamp, inode_rules, limits};

const BLOCK: u64 = inode_rules::DATA_BLOCK_BYTES;

/// The file that an operation on data concerns. `ERELAYOUT` if its data does not lie here (any more),
/// `ESTALE` if it is gone.
pub fn of(tx: &mut Tx, object: ObjectId) -> Result<Inode, Errno> {
    let i = tx.try_inode(object.origin)?.ok_or(Errno::ESTALE)?;
    if i.kind != FileType::Regular {
        return Err(Errno::EINVAL);
    }
    let here = i.layout.as_ref().and_then(|l| l.mdt_component());
    let old = model::planted::on(model::planted::Bug::OldLayoutAccepted);
    if object.stripe == 0 && (old || here.is_some_and(|c| c.id == object.component)) {
        Ok(i)
    } else {
        Err(Errno::ERELAYOUT)
    }
}

/// Where `len` bytes from `off` on end. `EFBIG` if that is beyond the largest file.
pub fn end_of(off: u64, len: u64) -> Result<u64, Errno> {
    off.checked_add(len).filter(|e| *e <= limits::FILE_SIZE_MAX_BYTES).ok_or(Errno::EFBIG)
}

/// Whether the bytes up to `end` may lie with the inode, now. `EGROW` if they need objects, `EGROWING` while
/// the data is on its way there.
pub fn check_change(tx: &Tx, fid: Fid, i: &Inode, end: u64) -> Result<(), Errno> {
    if tx.shared.growing.contains(fid) {
        return Err(Errno::EGROWING);
    }
    if i.data_room().is_some_and(|room| end > room) { Err(Errno::EGROW) } else { Ok(()) }
}

/// The data changed.
pub fn touch(i: &mut Inode, now: Timestamp) {
    i.data.version += 1;
    inode_rules::data_changed(i, now);
}

/// As an object server describes an object.
pub fn attr(i: &Inode) -> ObjectAttr {
    ObjectAttr {
        size: i.data.size,
        blocks: inode_rules::sectors(u64::from(i.data.blocks) * BLOCK),
        mtime: i.mtime,
        ctime: i.ctime,
        data_version: i.data.version,
    }
}

fn block_of(off: u64) -> u32 {
    u32::try_from(off / BLOCK).expect("data on the MDT is bounded")
}

fn get(tx: &mut Tx, fid: Fid, block: u32) -> Result<Option<Vec<u8>>, MdsError> {
    let k = key::data(fid, block);
    tx.get(&k)?.map(|v| value::decode_data(&k, &v)).transpose()
}

/// Blocks `from..to` that are there, in order.
fn blocks(tx: &mut Tx, fid: Fid, from: u32, to: u32) -> Result<Vec<(u32, Vec<u8>)>, MdsError> {
    let page = tx.scan(&key::data(fid, from), &key::data(fid, to), usize::MAX)?;
    let mut out = Vec::with_capacity(page.len());
    for (k, v) in page {
        let (_, block) = key::parse_data(&k).ok_or_else(|| MdsError::Damaged {
            what: "data of a file",
            key: value::hex(&k),
            why: "its key is short".into(),
        })?;
        out.push((block, value::decode_data(&k, &v)?));
    }
    Ok(out)
}

fn set(tx: &mut Tx, fid: Fid, i: &mut Inode, block: u32, existed: bool, bytes: &[u8]) {
    i.data.blocks += u32::from(!existed);
    tx.put(key::data(fid, block), value::encode_data(bytes));
}

fn unset(tx: &mut Tx, fid: Fid, i: &mut Inode, block: u32) {
    i.data.blocks = i.data.blocks.saturating_sub(1);
    tx.delete(key::data(fid, block));
}

/// Bytes `off..off + len`, as far as the file reaches; holes are zeros.
pub fn read(tx: &mut Tx, fid: Fid, i: &Inode, off: u64, len: u64) -> Result<Vec<u8>, MdsError> {
    let end = off.saturating_add(len).min(i.data.size);
    if off >= end {
        return Ok(Vec::new());
    }
    let mut out = vec![0; (end - off) as usize];
    for (block, bytes) in blocks(tx, fid, block_of(off), block_of(end - 1) + 1)? {
        let start = u64::from(block) * BLOCK;
        let (from, to) = (off.max(start), end.min(start + bytes.len() as u64));
        if from < to {
            out[(from - off) as usize..(to - off) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
    }
    Ok(out)
}

/// The parts of `off..end` in each block: (block, start within it, end within it).
fn parts(off: u64, end: u64) -> impl Iterator<Item = (u32, usize, usize)> {
    inode_rules::blocks_of(off, end).map(move |b| {
        let start = b * BLOCK;
        (block_of(start), (off.max(start) - start) as usize, (end.min(start + BLOCK) - start) as usize)
    })
}

/// Writes at `off`; the file grows to the end of it.
pub fn write(
    tx: &mut Tx,
    fid: Fid,
    i: &mut Inode,
    off: u64,
    bytes: &[u8],
    now: Timestamp,
) -> Result<(), MdsError> {
    let end = off + bytes.len() as u64;
    for (block, from, to) in parts(off, end) {
        let at = u64::from(block) * BLOCK + from as u64 - off;
        let new = &bytes[at as usize..at as usize + (to - from)];
        let old = get(tx, fid, block)?;
        let existed = old.is_some();
        let mut v = old.unwrap_or_default();
        if v.len() < to {
            v.resize(to, 0);
        }
        v[from..to].copy_from_slice(new);
        set(tx, fid, i, block, existed, &v);
    }
    i.data.version += 1;
    inode_rules::wrote(i, off, end, now);
    Ok(())
}

/// Sets the size: cuts what lies behind it, or adds a hole.
pub fn cut(tx: &mut Tx, fid: Fid, i: &mut Inode, size: u64) -> Result<(), MdsError> {
    let shorter = size < i.data.size;
    let Some(keep) = inode_rules::cut(i, size).filter(|_| i.data.blocks > 0) else { return Ok(()) };
    let keep = u32::try_from(keep).expect("data on the MDT is bounded");
    let rest = (size % BLOCK) as usize;
    if shorter
        && rest > 0
        && let Some(v) = get(tx, fid, keep - 1)?
        && v.len() > rest
    {
        set(tx, fid, i, keep - 1, true, &v[..rest]);
    }
    for (block, _) in blocks(tx, fid, keep, u32::MAX)? {
        unset(tx, fid, i, block);
    }
    Ok(())
}

/// Makes `off..end` zeros. `keep_blocks`: whole blocks stay allocated (or become so), else they become holes.
pub fn zero(
    tx: &mut Tx,
    fid: Fid,
    i: &mut Inode,
    off: u64,
    end: u64,
    keep_blocks: bool,
) -> Result<(), MdsError> {
    for (block, from, to) in parts(off, end) {
        let Some(mut v) = get(tx, fid, block)? else {
            if keep_blocks {
                set(tx, fid, i, block, false, &[]);
            }
            continue;
        };
        let whole = from == 0 && to == DATA_BLOCK_BYTES;
        match (whole, keep_blocks) {
            (true, true) => set(tx, fid, i, block, true, &[]),
            (true, false) => unset(tx, fid, i, block),
            _ => {
                let to = to.min(v.len());
                if from < to {
                    v[from..to].fill(0);
                    set(tx, fid, i, block, true, &v);
                }
            }
        }
    }
    Ok(())
}

/// Allocates the blocks of `off..end` that are holes.
pub fn reserve(tx: &mut Tx, fid: Fid, i: &mut Inode, off: u64, end: u64) -> Result<(), MdsError> {
    for (block, _, _) in parts(off, end) {
        if tx.get(&key::data(fid, block))?.is_none() {
            set(tx, fid, i, block, false, &[]);
        }
    }
    Ok(())
}

/// The next data, or hole, at or behind `off`. The file's end counts as a hole; `None` behind it.
pub fn seek(tx: &mut Tx, fid: Fid, i: &Inode, off: u64, hole: bool) -> Result<Option<u64>, MdsError> {
    let size = i.data.size;
    if off >= size {
        return Ok(None);
    }
    let mut at = off;
    for (block, _) in blocks(tx, fid, block_of(off), block_of(size.div_ceil(BLOCK) * BLOCK))? {
        let start = u64::from(block) * BLOCK;
        if hole {
            if start > at {
                break;
            }
            at = start + BLOCK;
        } else {
            return Ok(Some(off.max(start)));
        }
    }
    Ok(hole.then_some(at.min(size)))
}

/// All of it as (offset, bytes) of what is no hole, neighbours together.
pub fn runs(tx: &mut Tx, fid: Fid) -> Result<Vec<(u64, Vec<u8>)>, MdsError> {
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for (block, bytes) in blocks(tx, fid, 0, u32::MAX)? {
        let start = u64::from(block) * BLOCK;
        match out.last_mut() {
            _ if bytes.is_empty() => {}
            Some((off, run)) if *off + run.len() as u64 == start => run.extend_from_slice(&bytes),
            _ => out.push((start, bytes)),
        }
    }
    Ok(out)
}

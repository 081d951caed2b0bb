//! allocseq: leases a FID sequence (2^17 ids) to the client. Sequences are never leased twice.

use crate::MdsError;
use crate::names::OpContext;
use crate::schema::{Lease, key, value};
use crate::tx::Tx;
use model::Errno;
use model::fid::SEQ_WIDTH;
use wire::msg::allocseq::{Allocseq, AllocseqReply};

/// Ids in a sequence: `st_ino` has room for oid < 2^17.
const WIDTH: u32 = SEQ_WIDTH - 1;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Allocseq) -> Result<AllocseqReply, Errno> {
    if m.kind != 0 {
        return Err(Errno::EINVAL);
    }
    let seq = next_sequence(tx)?;
    tx.put(key::lease(seq), Lease { client: ctx.client.0, width: WIDTH }.encode());
    Ok(AllocseqReply { seq, width: WIDTH })
}

/// A sequence that nobody has had.
pub fn next_sequence(tx: &mut Tx) -> Result<u64, Errno> {
    let k = key::STATE_NEXT_SEQ;
    let missing = || MdsError::Missing { what: "next sequence", fid: model::Fid::ROOT };
    let v = tx.get(k)?.ok_or_else(missing)?;
    let seq = value::decode_u64(k, &v)?;
    let next = seq.checked_add(1).ok_or(Errno::ENOSPC)?;
    assert!(next > seq, "no sequence is given twice");
    tx.put(k.to_vec(), value::encode_u64(next));
    Ok(seq)
}

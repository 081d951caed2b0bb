//! batch: several operations in one message. Each change of an object is a transaction of its own that also
//! says how far the batch got, so that a batch which is sent again after a crash goes on where it was.
//! Reads and writes of data do not come in batches: their bulk stands alone.

use super::{Cx, Done, run_single};
use crate::slot::{Progress, STATUS_PROGRESS, decode_progress};
use bytes::Bytes;
use model::{Errno, limits};
use store::{Lsn, Seen};
use wire::msg::batch::{Batch, BatchOp, BatchReply};
use wire::verb::BulkSide;
use wire::{Op, Sender, encode_message};

/// Results of one batch; the operation that comes after so many fails with `EMSGSIZE`.
const RESULTS_MAX_BYTES: usize = 256 << 10;

pub async fn run(cx: &Cx, m: Batch) -> Result<Done, Errno> {
    if m.ops.len() > limits::BATCH_OPS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    if m.owned {
        return Err(Errno::EOPNOTSUPP);
    }
    for op in &m.ops {
        check(op)?;
    }
    let mut results = progress(cx)?;
    let mut changed: Option<Lsn> = if results.is_empty() { None } else { Some(cx.ost.db.last_committed()) };
    let first = cx.first_reply::<BatchReply>().map(|b| b.results);
    let (mut seen, mut durable) = (Seen::default(), 0);
    let mut bytes = results.iter().map(|(_, b)| b.len()).sum::<usize>();
    for op in m.ops.iter().skip(results.len()) {
        if bytes > RESULTS_MAX_BYTES {
            results.push((Errno::EMSGSIZE.0 as u16, Vec::new()));
            break;
        }
        let mut inner = cx.clone();
        inner.slot.progress = Some(results.clone());
        inner.replay =
            first.as_ref().map(|f| f.get(results.len()).map_or(Bytes::new(), |(_, b)| b.clone().into()));
        let opcode = Op::from_u16(op.opcode).map_err(|_| Errno::EPROTO)?;
        match run_single(&inner, opcode, &op.body, Bytes::new()).await {
            Ok(done) => {
                changed = changed.max(done.changed);
                seen.merge(done.seen);
                durable = durable.max(done.durable);
                bytes = bytes.saturating_add(done.body.len());
                results.push((0, done.body));
            }
            Err(e) => {
                results.push((e.0 as u16, Vec::new()));
                break;
            }
        }
    }
    Ok(Done {
        body: encode_message(&BatchReply { results, grants: Vec::new() }),
        changed,
        seen,
        durable,
        ..Done::default()
    })
}

/// `EPROTO` for a batch in a batch and unknown opcodes, `EOPNOTSUPP` for operations with bulk.
fn check(op: &BatchOp) -> Result<(), Errno> {
    match Op::from_u16(op.opcode) {
        Err(_) => Err(Errno::EPROTO),
        Ok(o) if !o.verb().in_batch => Err(Errno::EPROTO),
        Ok(o) if o.verb().bulk != BulkSide::None => Err(Errno::EOPNOTSUPP),
        // Who the sender is was looked at for the batch.
        Ok(o) if o.verb().sender != Sender::Client => Err(Errno::EPERM),
        Ok(_) if op.bulk > 0 => Err(Errno::EPROTO),
        Ok(_) => Ok(()),
    }
}

/// Results of this very batch from before a crash.
fn progress(cx: &Cx) -> Result<Progress, Errno> {
    let stored = cx.ost.db.reply(&cx.slot.client.0, cx.slot.slot).map_err(|e| e.errno())?;
    match stored {
        Some(r) if r.xid == cx.slot.xid && r.status == STATUS_PROGRESS => {
            decode_progress(&r.body).ok_or(Errno::EIO)
        }
        _ => Ok(Progress::new()),
    }
}

//! batch: many small operations in one message and one transaction. They run in order; the first that fails
//! stops the rest, those before it stand.

use crate::dispatch;
use crate::names::OpContext;
use crate::tx::Tx;
use model::{Errno, limits};
use wire::Op;
use wire::msg::batch::{Batch, BatchReply};

/// When the results are larger than this no further operation runs: the reply must fit into a message and
/// the transaction into a record.
const RESULTS_MAX_BYTES: usize = 1 << 20;

/// `replay`: the reply of the first time, and whether recovery is going on.
pub fn run(tx: &mut Tx, ctx: &OpContext, m: &Batch, replay: Option<(&[u8], bool)>) -> Result<Vec<u8>, Errno> {
    if m.ops.len() > limits::BATCH_OPS_MAX {
        return Err(Errno::E2BIG);
    }
    let first =
        replay.map(|(r, recovering)| (dispatch::decode::<BatchReply>(r).map(|b| b.results), recovering));
    let mut results = Vec::new();
    let mut bytes = 0;
    for (i, op) in m.ops.iter().enumerate() {
        let before = tx.savepoint();
        if let (Some((first, recovering)), Ok(code)) = (&first, Op::from_u16(op.opcode)) {
            let reply = first.as_ref().ok().and_then(|r| r.get(i)).map_or(&[][..], |(_, body)| body);
            tx.replay(code, reply, *recovering);
        }
        let r = Op::from_u16(op.opcode)
            .map_err(|_| Errno::EOPNOTSUPP)
            .and_then(|code| dispatch::execute(tx, ctx, code, &op.body));
        match r {
            Ok(body) => {
                bytes += body.len() + 8;
                results.push((0, body));
            }
            Err(e) => {
                tx.rollback(before);
                results.push((u16::try_from(e.0).unwrap_or(Errno::EIO.0 as u16), Vec::new()));
                break;
            }
        }
        if bytes > RESULTS_MAX_BYTES {
            break;
        }
    }
    Ok(dispatch::encode(&BatchReply { results }))
}

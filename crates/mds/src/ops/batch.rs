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

pub fn run(tx: &mut Tx, ctx: &OpContext, m: &Batch) -> Result<Vec<u8>, Errno> {
    if m.ops.len() > limits::BATCH_OPS_MAX {
        return Err(Errno::E2BIG);
    }
    let mut results = Vec::new();
    let mut bytes = 0;
    for op in &m.ops {
        let before = tx.savepoint();
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

//! cancel: gives locks back, or stops waiting for one.

use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::msg::cancel::{Cancel, CancelWhat};

pub fn run(mdt: &Mdt, ctx: &OpContext, m: Cancel) -> Result<(), Errno> {
    let client = ctx.client.0;
    match m.what {
        CancelWhat::Id(id) => {
            let events = mdt.locks.lock().cancel(client, m.fid, id);
            mdt.tell(events);
            Ok(())
        }
        CancelWhat::Range { kind, owner, start, end } => {
            let step = mdt.locks.lock().cancel_range(client, m.fid, kind, owner, start, end);
            mdt.tell(step.events);
            step.result.map(|_| ())
        }
    }
}

//! cancel: gives locks back, or stops waiting for one.

use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::msg::cancel::{Cancel, CancelWhat};

pub fn run(mdt: &Mdt, ctx: &OpContext, m: Cancel) -> Result<(), Errno> {
    match m.what {
        CancelWhat::Id(id) => {
            mdt.locks.cancel(ctx.client, m.fid, id);
            Ok(())
        }
        CancelWhat::Range { kind, owner, start, end } => {
            mdt.locks.cancel_range(ctx.client, m.fid, kind, owner, (start, end))
        }
    }
}

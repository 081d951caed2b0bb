//! withdraw: a movement that its client gave up ends (`relayout/movements.rs`).

use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::msg::withdraw::Withdraw;

/// Whether there was such a movement.
pub fn run(mdt: &Mdt, ctx: &OpContext, m: &Withdraw) -> Result<bool, Errno> {
    Ok(mdt.shared.movements.withdraw(ctx.client, m.ticket))
}

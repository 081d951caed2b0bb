//! sync: everything this target did so far becomes durable.

use super::{Cx, Done};
use model::Errno;
use store::Seen;
use wire::msg::sync::Sync;

pub fn run(cx: &Cx, _m: &Sync) -> Result<Done, Errno> {
    cx.ost.writable()?;
    Ok(Done { durable: cx.ost.db.last_submitted(), ..Done::looked(&(), Seen::default()) })
}

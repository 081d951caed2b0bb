//! sync: everything acknowledged so far is durable already; this waits for what is still on its way.

use super::{Cx, Done};
use model::Errno;
use wire::msg::sync::Sync;

pub fn run(cx: &Cx, _m: &Sync) -> Result<Done, Errno> {
    cx.ost.writable()?;
    Ok(Done::looked(&(), cx.ost.db.last_submitted()))
}

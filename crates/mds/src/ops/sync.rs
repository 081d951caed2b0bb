//! sync: everything this target did so far becomes durable.

use crate::dispatch::{Done, encode};
use crate::service::Mdt;
use store::Seen;
use wire::msg::sync::Sync;

pub fn run(mdt: &Mdt, _m: Sync) -> Done {
    let newest = mdt.db.last_submitted();
    let done = Done::looked(Ok(encode(&())), Seen { newest, ..Seen::default() });
    Done { durable: true, ..done }
}

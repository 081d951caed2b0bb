//! sync: everything this target did so far becomes durable.

use crate::done::Done;
use crate::mdt::Mdt;
use store::Seen;
use wire::encode_message;
use wire::msg::sync::Sync;

pub fn run(mdt: &Mdt, _m: Sync) -> Done {
    let newest = mdt.db.last_submitted();
    let done = Done::looked(Ok(encode_message(&())), Seen { newest, ..Seen::default() });
    Done { durable: true, ..done }
}

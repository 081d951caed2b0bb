//! One file for each message the MGS answers.

// Numbers from outside: nothing here may overflow or go past an end (decision 0039).
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod config;
mod configview;
mod param;
mod register;

use crate::history::Origin;
use crate::service::Mgs;
use model::{Errno, Nid};
use rpc::Incoming;
use serde::Serialize;
use store::Lsn;
use wire::{Op, decode_request, encode_message};

/// An encoded reply, and the transaction it waits for.
pub struct Done {
    pub body: Vec<u8>,
    pub lsn: Lsn,
    pub changed: bool,
}

fn done<R: Serialize>(reply: &R, lsn: Lsn, changed: bool) -> Done {
    Done { body: encode_message(reply), lsn, changed }
}

/// The node that asks, for the history.
fn origin(req: &Incoming, how: &str) -> Origin {
    Origin { by: Nid { addr: req.from.address, net: 0 }.to_string(), how: how.into() }
}

/// Executes one message; `ENOSYS` for those that are not the MGS's.
pub fn run(mgs: &Mgs, req: &Incoming) -> Result<Done, Errno> {
    if !req.bulk.is_empty() {
        return Err(Errno::EPROTO);
    }
    match req.op {
        Op::Register => register::run(mgs, req, decode_request(&req.body)?),
        Op::Config => config::run(mgs, req, &decode_request(&req.body)?),
        Op::Configview => configview::run(mgs, req, &decode_request(&req.body)?),
        Op::GetParam => param::get(mgs, &decode_request(&req.body)?),
        Op::SetParam => param::set(mgs, req, &decode_request(&req.body)?),
        _ => Err(Errno::ENOSYS),
    }
}

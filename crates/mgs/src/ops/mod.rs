//! One file for each message the MGS answers.

// Numbers from outside: nothing here may overflow or go past an end (decision 0039).
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod config;
mod param;
mod register;

use crate::service::Mgs;
use model::Errno;
use rpc::Incoming;
use serde::{Serialize, de::DeserializeOwned};
use store::Lsn;
use wire::Op;

/// An encoded reply, and the transaction it waits for.
pub struct Done {
    pub body: Vec<u8>,
    pub lsn: Lsn,
    pub changed: bool,
}

fn done<R: Serialize>(reply: &R, lsn: Lsn, changed: bool) -> Done {
    Done { body: postcard::to_stdvec(reply).expect("plain data encodes"), lsn, changed }
}

fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, Errno> {
    postcard::take_from_bytes(body).map(|(m, _)| m).map_err(|_| Errno::EPROTO)
}

/// Executes one message; `ENOSYS` for those that are not the MGS's.
pub fn run(mgs: &Mgs, req: &Incoming) -> Result<Done, Errno> {
    if !req.bulk.is_empty() {
        return Err(Errno::EPROTO);
    }
    match req.op {
        Op::Register => register::run(mgs, req, decode(&req.body)?),
        Op::Config => config::run(mgs, &decode(&req.body)?),
        Op::GetParam => param::get(mgs, &decode(&req.body)?),
        Op::SetParam => param::set(mgs, req, &decode(&req.body)?),
        _ => Err(Errno::ENOSYS),
    }
}

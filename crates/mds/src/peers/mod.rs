//! Other targets, and what this one has to do with them. `session` is a session with a target of any kind;
//! `osts` keeps one with each OST as the configuration says, `outbox` tells OSTs what to destroy and
//! who owns what, `owners` does so for files of before that, `shares` which part of limits they have, `space`
//! asks them for theirs.

mod osts;
mod outbox;
mod owners;
pub mod session;
mod shares;
mod space;

pub(crate) use owners::OwnersTold;
pub(crate) use shares::keep_shares;

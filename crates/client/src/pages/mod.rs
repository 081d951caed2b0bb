//! What a kernel keeps in pages of its own, and how it and this mount stay in step. Only `fuse` switches it on.
//!
//! `fill` fills pages and writes them back, `beside` keeps writes apart from pages that
//! are stored into, `validity` says how long attributes and names may be kept. The kernel itself is a
//! [`crate::Keeper`].

mod beside;
mod fill;
mod small;
mod validity;

pub(crate) use beside::Writing;
pub(crate) use fill::GRACE;

//! What a kernel keeps in pages of its own, and how it and this mount stay in step. Only `fuse` switches it
//! on.
//!
//! `fill` fills pages and writes them back, `validity` says how long attributes and names may be kept. The
//! kernel itself is a [`crate::CacheHolder`].

mod fill;
mod small;
mod validity;

use fill::GRACE;

use crate::Fs;
use std::sync::Arc;

/// A mount as a kernel sees it, which keeps pages, names and attributes of its own.
pub struct Pages<'a>(pub &'a Arc<Fs>);

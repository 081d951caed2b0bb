//! grow: a file whose data lies with its inode gets objects, and its data moves there (`relayout/grow.rs`).

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::relayout;
use std::sync::Arc;
use wire::msg::grow::Grow;

/// `replay`: the reply of the first time, and whether recovery is going on.
pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, m: Grow, replay: Option<(&[u8], bool)>) -> Done {
    relayout::grow(mdt, to, m.fid, replay).await.unwrap_or_else(Done::error)
}

//! instantiate: components of a file get their objects (`relayout/instantiate.rs`).

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::relayout;
use std::sync::Arc;
use wire::msg::instantiate::Instantiate;

pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, m: Instantiate) -> Done {
    relayout::instantiate(mdt, to, m.fid, (m.start, m.end)).await
}

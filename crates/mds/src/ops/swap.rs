//! swap: two files have each other's data (`relayout/swap.rs`).

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::relayout;
use std::sync::Arc;
use wire::msg::swap::Swap;

pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Swap) -> Done {
    relayout::swap(mdt, to, ctx, m).await.unwrap_or_else(Done::error)
}

//! recreate: lost objects of a file become new, empty ones (`relayout/recreate.rs`).

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::relayout;
use std::sync::Arc;
use wire::msg::recreate::Recreate;

pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Recreate) -> Done {
    relayout::recreate(mdt, to, ctx, m).await
}

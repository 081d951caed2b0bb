//! components: the components of a file that has some change (`relayout/components.rs`).

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::relayout;
use std::sync::Arc;
use wire::msg::components::Components;

pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Components) -> Done {
    relayout::change_components(mdt, to, ctx, m).await.unwrap_or_else(Done::error)
}

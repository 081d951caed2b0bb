//! migrate: a file's data moves to new objects while it is in use (`relayout/migrate.rs`).

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::relayout;
use std::sync::Arc;
use wire::msg::migrate::Migrate;

pub async fn run(mdt: &Arc<Mdt>, to: &ReplyTo, ctx: &OpContext, m: &Migrate) -> Done {
    relayout::migrate(mdt, to, &ctx.cred, m).await.unwrap_or_else(Done::error)
}

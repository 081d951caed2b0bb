//! changelog: records of this target's changes, in their order. An answer shows nothing that a crash could
//! take back.

use crate::changelog;
use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use model::Errno;
use wire::encode_message;
use wire::msg::changelog::Changelog;

/// `EPERM` for anybody but root: it tells of files whatever their directories let the caller see.
pub async fn run(mdt: &Mdt, ctx: &OpContext, to: &ReplyTo, m: &Changelog) -> Done {
    if !ctx.cred.is_root() {
        return Done::error(Errno::EPERM);
    }
    if m.told
        && let Err(e) = mdt.transactions.owners_told(Some(to.client)).await
    {
        return Done::error(e);
    }
    let (page, seen) = mdt.transactions.peek(to, |tx| changelog::page(tx, m));
    let done = Done::looked(page.map(|p| encode_message(&p)), seen);
    Done { durable: true, ..done }
}

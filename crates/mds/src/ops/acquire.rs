//! acquire: more of what an owner may have, for an object target whose share is used up.

use crate::mdt::Mdt;
use crate::quotas::{ShareHolder, Want};
use model::Errno;
use model::usage::QuotaId;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::msg::acquire::Acquire;

/// `EDQUOT`: the owner has what he may have.
pub async fn run(mdt: &Arc<Mdt>, m: &Acquire) -> Result<(), Errno> {
    let ids: BTreeSet<QuotaId> = m.owner.quota_ids().filter(|id| id.is_limited()).collect();
    assert!(ids.len() <= 3, "a user, a group and a project");
    mdt.transactions.acquire(&ids, Want { holder: ShareHolder::Ost(m.ost), bytes: m.bytes }).await
}

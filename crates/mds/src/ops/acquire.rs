//! acquire: more of what an owner may have, for an object target whose share is used up.

use crate::mdt::Mdt;
use crate::quotas::{ShareHolder, Want};
use model::Errno;
use model::limits::DIRECTORY_DEPTH_MAX;
use model::usage::QuotaId;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::msg::acquire::Acquire;

/// `EDQUOT`: the owner has what he may have.
pub async fn run(mdt: &Arc<Mdt>, m: &Acquire) -> Result<(), Errno> {
    let all = mdt.shared.usage.quota_ids(m.owner()).into_iter();
    let ids: BTreeSet<QuotaId> = all.filter(|id| id.is_limited()).collect();
    assert!(ids.len() <= 3 + DIRECTORY_DEPTH_MAX, "a user, a group, a project and directories");
    mdt.transactions.acquire(&ids, Want { holder: ShareHolder::Ost(m.ost), bytes: m.bytes }).await
}

//! What each object target may let owners use by itself is told to those that come, or come back.

use crate::mdt::Mdt;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether somebody is to be told.
const LOOK: Duration = Duration::from_secs(1);
/// At so many of these looks also whether soft limits are exceeded still, and their grace times last.
const SOFT_EVERY: u32 = 5;

/// Until the target stops.
pub(crate) async fn keep_shares(mdt: Arc<Mdt>) {
    let mut looks = 0u32;
    while !mdt.stop.pause(LOOK).await {
        looks = looks.wrapping_add(1);
        if mdt.recovery.recovering() {
            continue;
        }
        if let Err(e) = mdt.transactions.keep_shares(looks.is_multiple_of(SOFT_EVERY)).await {
            tracing::warn!("shares of limits are given out later: {e}");
        }
    }
}

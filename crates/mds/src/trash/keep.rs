//! What lies in the trash goes for good when it is old, when all of it takes too much space, and before
//! anybody is refused space: the oldest first, so many at a time.

use super::empty;
use crate::mdt::Mdt;
use crate::schema::key;
use crate::tx::Tx;
use model::usage::TRASH;
use model::{Errno, Fid, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use world::Instant;

/// How often it is looked whether something has to go.
const LOOK: Duration = Duration::from_secs(1);
/// How often object targets are asked how much of theirs is trash.
const ASK: Duration = Duration::from_secs(10);
/// Files that go in one transaction, and at each look: more than that are not removed in a second.
const AT_ONCE: usize = 100;
const AT_A_LOOK: usize = 2000;
/// This target's own space is short when there is so much left before it refuses requests.
const OWN_EARLY_BYTES: u64 = 256 << 20;

/// What was done for which answers of object targets: they hear of it a while later, and say what they have
/// a while after that.
#[derive(Default)]
struct Acted {
    asked: Option<Instant>,
    /// Bytes of a file in the trash, on the average, when that was asked last and all answered.
    mean: u64,
    heard: BTreeMap<u16, Instant>,
}

/// Until the target stops.
pub async fn keep(mdt: Arc<Mdt>) {
    let mut acted = Acted::default();
    while !mdt.stop.pause(LOOK).await {
        // Clients do again what they did: nothing may be gone that they speak of.
        if mdt.recovery.recovering() {
            continue;
        }
        if let Err(e) = look(&mdt, &mut acted).await {
            tracing::warn!("the trash is emptied later: {e}");
        }
    }
}

/// One look. How many files went.
async fn look(mdt: &Mdt, acted: &mut Acted) -> Result<usize, Errno> {
    let s = &mdt.shared.settings;
    if oldest(mdt, &[key::TRASH], 1)?.is_empty() {
        return Ok(0);
    }
    let age = i64::try_from(s.trash_max_age_s.load(Relaxed)).unwrap_or(i64::MAX);
    let now = mdt.world.wall();
    let before = (age > 0).then(|| Timestamp { sec: now.sec.saturating_sub(age), nsec: now.nsec });
    let mut went = match before {
        Some(t) => remove_oldest(mdt, AT_A_LOOK, Some(t)).await?,
        None => 0,
    };
    let promised = mdt.shared.leases.promised_bytes(None);
    if mdt.db.space_low_beside(promised.saturating_add(OWN_EARLY_BYTES)) {
        went += remove_oldest(mdt, AT_A_LOOK, None).await?;
    }
    let bytes = too_much(mdt, acted).await;
    if bytes > 0 {
        went += remove_oldest(mdt, files_of(acted.mean, bytes), None).await?;
    }
    if went > 0 {
        tracing::info!("{went} files in the trash were removed for good: old, or space was needed");
    }
    Ok(went)
}

/// The oldest ones from a key on, in their order.
pub(super) fn oldest(mdt: &Mdt, from: &[u8], most: usize) -> Result<Vec<(Timestamp, Fid)>, Errno> {
    let page = mdt.db.scan(from, &[key::TRASH + 1], most).map_err(|e| e.errno())?;
    Ok(page.iter().filter_map(|(k, _)| key::parse_trash(k)).collect())
}

/// Removes so many, and only those from before a time if one is given. How many went.
async fn remove_oldest(mdt: &Mdt, most: usize, before: Option<Timestamp>) -> Result<usize, Errno> {
    let (mut went, mut from) = (0usize, vec![key::TRASH]);
    while went < most && !mdt.stop.is_begun() {
        let mut part = oldest(mdt, &from, AT_ONCE.min(most - went))?;
        part.retain(|(when, _)| before.is_none_or(|b| *when <= b));
        let Some((when, last)) = part.last() else { break };
        from = key::behind(&key::trash(*when, *last));
        let files: Vec<Fid> = part.iter().map(|(_, fid)| *fid).collect();
        went += remove(mdt, &files).await?;
    }
    Ok(went)
}

/// Removes these for good. How many went: others may have taken some out.
pub(super) async fn remove(mdt: &Mdt, files: &[Fid]) -> Result<usize, Errno> {
    let mut went = 0usize;
    // No more go at once than a transaction has room for.
    for part in files.chunks(AT_ONCE) {
        let mut gone = 0;
        let work = |tx: &mut Tx| {
            gone = 0;
            for fid in part {
                gone += usize::from(empty(tx, *fid)?);
            }
            Ok(Vec::new())
        };
        let done = mdt.transactions.transact(None, work).await;
        done.result?;
        assert!(gone <= part.len(), "nothing goes that was not named");
        went += gone;
        // Not more in memory than the journal has taken.
        mdt.db.durable(done.wait).await.map_err(|e| e.errno())?;
    }
    Ok(went)
}

/// How many of the oldest files have about so many bytes: as many as if all were equal.
fn files_of(mean: u64, bytes: u64) -> usize {
    let n = bytes.div_ceil(mean.max(1)).clamp(1, AT_A_LOOK as u64);
    usize::try_from(n).unwrap_or(AT_A_LOOK)
}

/// By how many bytes the trash is too large, or somebody's free space too small.
async fn too_much(mdt: &Mdt, acted: &mut Acted) -> u64 {
    let s = &mdt.shared.settings;
    let osts = mdt.shared.osts.list();
    let min_free = u128::from(s.trash_min_free.load(Relaxed));
    let mut short = 0u64;
    let mut total = 0u64;
    for (index, o) in &osts {
        let Some(space) = o.space else { continue };
        total = total.saturating_add(space.total);
        let wanted = u128::from(space.total) * min_free / 100;
        let lacks = wanted.saturating_sub(u128::from(space.available));
        // What was removed for an answer shows in a later one.
        let is_news = o.heard.is_none_or(|h| acted.heard.insert(*index, h) != Some(h));
        if is_news {
            short = short.saturating_add(u64::try_from(lacks).unwrap_or(u64::MAX));
        }
    }
    let share = u128::from(s.trash_max_space.load(Relaxed));
    let now = mdt.world.now();
    if total == 0 || acted.asked.is_some_and(|t| now.since(t) < ASK) {
        return short;
    }
    acted.asked = Some(now);
    let has = match mdt.transactions.bytes_everywhere(TRASH).await {
        Ok(has) => has,
        // What others lack goes all the same.
        Err(e) => {
            tracing::debug!("how much lies in the trash is not known: {e}");
            return short;
        }
    };
    acted.mean = has / mdt.shared.usage.get(TRASH).inodes.max(1);
    let may = u64::try_from(u128::from(total) * share.min(100) / 100).unwrap_or(u64::MAX);
    if share >= 100 { short } else { short.max(has.saturating_sub(may)) }
}

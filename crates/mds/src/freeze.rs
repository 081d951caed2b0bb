//! What an administrator asks of the write barrier (`barrier`): freezing, with mounts asked to tell what they
//! did, thawing, and the end of its time.

use crate::barrier::wall_ms;
use crate::mdt::Mdt;
use crate::schema::{key, value};
use model::barrier::{BARRIER_MAX_S, BarrierOrder, BarrierStanding, BarrierState};
use model::{Errno, TargetId};
use std::sync::Arc;
use std::time::Duration;
use store::{Lsn, StoreError, Txn};
use world::{Either, select};

/// Between two looks for owners that came to be one while others were asked.
const OWNERS_AGAIN: Duration = Duration::from_millis(5);

fn label(mdt: &Mdt) -> String {
    TargetId::mdt(mdt.cfg.index).label(&mdt.cfg.fsname)
}

/// Does what an administrator asks, and says how it stands then. Freezing goes on in the background. The
/// error's text is for him.
pub async fn order(mdt: &Arc<Mdt>, order: BarrierOrder) -> Result<BarrierStanding, (Errno, String)> {
    match order {
        BarrierOrder::Stat => {}
        BarrierOrder::Freeze { timeout_s } => begin(mdt, timeout_s)?,
        BarrierOrder::Thaw => thaw(mdt).await?,
    }
    Ok(mdt.shared.barrier.standing())
}

fn begin(mdt: &Arc<Mdt>, timeout_s: u32) -> Result<(), (Errno, String)> {
    if timeout_s == 0 || timeout_s > BARRIER_MAX_S {
        return Err((Errno::EINVAL, format!("a barrier holds for 1 to {BARRIER_MAX_S} seconds")));
    }
    if mdt.recovery.recovering() {
        let why = format!("{} waits for clients of before its restart: try again then", label(mdt));
        return Err((Errno::EBUSY, why));
    }
    let round = {
        let mut i = mdt.shared.barrier.inner.lock();
        match i.state {
            BarrierState::Frozen => {
                return Err((Errno::EALREADY, format!("{} is frozen already", label(mdt))));
            }
            s if s.is_freezing() || s == BarrierState::Thawing => {
                return Err((Errno::EBUSY, format!("the barrier of {} is in '{s}'", label(mdt))));
            }
            _ => {}
        }
        i.round += 1;
        (i.state, i.why) = (BarrierState::FreezingP1, None);
        i.until = mdt.world.now().plus(Duration::from_secs(u64::from(timeout_s)));
        assert!(i.round > 0 && i.state.is_freezing(), "each barrier has a number of its own");
        i.round
    };
    tracing::info!("{}: the barrier is asked for, for {timeout_s} s", label(mdt));
    mdt.world.spawn("barrier", freeze(mdt.clone(), round));
    Ok(())
}

/// Of what the table told at the start.
pub fn go_on(mdt: &Arc<Mdt>) {
    let standing = mdt.shared.barrier.standing();
    match standing.state {
        BarrierState::Frozen => {
            tracing::info!("{}: frozen still, for {} s", label(mdt), standing.left_s);
            mdt.world.spawn("barrier's end", expire(mdt.clone(), standing.round));
        }
        BarrierState::Expired => over(mdt),
        _ => {}
    }
}

async fn freeze(mdt: Arc<Mdt>, round: u64) {
    let barrier = &mdt.shared.barrier;
    let until = barrier.inner.lock().until;
    let left = until.since(mdt.world.now());
    let work = Box::pin(freeze_all(&mdt, round));
    let failed = match select(work, mdt.world.sleep(left)).await {
        // One task does both: one frozen at the last moment has nobody else who would end it.
        Either::Left(Ok(())) => return expire(mdt.clone(), round).await,
        Either::Left(Err(e)) => e,
        Either::Right(()) => {
            "mounts did not tell all that they had done before its time was over".to_string()
        }
    };
    let from = [BarrierState::FreezingP1, BarrierState::FreezingP2];
    if barrier.step(round, &from, BarrierState::Failed, Some(failed.clone())) {
        tracing::warn!("{}: no barrier: {failed}", label(&mdt));
        over(&mdt);
    }
}

async fn freeze_all(mdt: &Arc<Mdt>, round: u64) -> Result<(), String> {
    let barrier = &mdt.shared.barrier;
    let lsn = loop {
        mdt.transactions.owners_told(None).await.map_err(|e| e.text().to_string())?;
        if let Some(lsn) = close(mdt, round)? {
            break lsn;
        }
        mdt.world.sleep(OWNERS_AGAIN).await;
    };
    mdt.db.durable(lsn).await.map_err(|e| e.to_string())?;
    if barrier.step(round, &[BarrierState::FreezingP2], BarrierState::Frozen, None) {
        tracing::info!("{}: frozen at transaction {lsn}", label(mdt));
    }
    Ok(())
}

/// From here on nothing is modified, unless somebody has a directory for himself again. The position of the
/// last transaction.
fn close(mdt: &Mdt, round: u64) -> Result<Option<Lsn>, String> {
    let barrier = &mdt.shared.barrier;
    let _alone = mdt.core.write();
    if mdt.shared.leases.owners() > 0 {
        return Ok(None);
    }
    if !barrier.step(round, &[BarrierState::FreezingP1], BarrierState::FreezingP2, None) {
        return Err("it was thawed while it was asked for".into());
    }
    let left = barrier.inner.lock().until.since(mdt.world.now());
    let left = u64::try_from(left.as_millis()).unwrap_or(0);
    let until = wall_ms(&mdt.world).saturating_add(left);
    let mut txn = Txn::new();
    txn.put(key::STATE_BARRIER, value::encode_barrier(until, left));
    let lsn = mdt.db.submit(txn).map_err(|e| e.to_string())?;
    assert_eq!(mdt.shared.leases.owners(), 0, "nobody has a directory for himself at a barrier");
    Ok(Some(lsn))
}

/// It thaws by itself, whoever wanted it.
async fn expire(mdt: Arc<Mdt>, round: u64) {
    let barrier = &mdt.shared.barrier;
    let until = barrier.inner.lock().until;
    if mdt.stop.pause(until.since(mdt.world.now())).await {
        return;
    }
    if barrier.step(round, &[BarrierState::Frozen], BarrierState::Expired, None) {
        model::event!(
            WARN,
            BarrierFrozen,
            label(&mdt),
            "{}: the barrier was not thawed in its time: modifications go on",
            label(&mdt)
        );
        over(&mdt);
    }
}

async fn thaw(mdt: &Arc<Mdt>) -> Result<(), (Errno, String)> {
    let barrier = &mdt.shared.barrier;
    let (round, state) = {
        let i = barrier.inner.lock();
        (i.round, i.state)
    };
    let holds = [BarrierState::FreezingP1, BarrierState::FreezingP2, BarrierState::Frozen];
    if !barrier.step(round, &holds, BarrierState::Thawing, None) {
        return Err(match state {
            BarrierState::Expired => {
                let why = format!("the barrier of {} expired: modifications went on before this", label(mdt));
                (Errno::ETIMEDOUT, why)
            }
            s => (Errno::EALREADY, format!("{} is not frozen: its barrier is in '{s}'", label(mdt))),
        });
    }
    let done = match forget(mdt) {
        Ok(lsn) => mdt.db.durable(lsn).await,
        Err(e) => Err(e),
    };
    barrier.step(round, &[BarrierState::Thawing], BarrierState::Thawed, None);
    tracing::info!("{}: thawed", label(mdt));
    done.map_err(|e| (e.errno(), format!("{}: a restart would freeze it again: {e}", label(mdt))))
}

/// The table knows of no barrier any more.
fn forget(mdt: &Mdt) -> Result<Lsn, StoreError> {
    let mut txn = Txn::new();
    txn.delete(key::STATE_BARRIER.to_vec());
    mdt.db.submit(txn)
}

/// As [`forget`], where nobody waits for it.
fn over(mdt: &Mdt) {
    if let Err(e) = forget(mdt) {
        tracing::error!("{}: that the barrier is over cannot be written: {e}", label(mdt));
    }
}

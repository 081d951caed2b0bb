//! Files go from the fullest OSTs to the emptiest by themselves, one after the other and beside all else,
//! when the OSTs differ by more than an administrator allows (`mdt.*.rebalance_threshold`; 0: never). What
//! would gain something follows from `model::rebalance`, as for `nacre rebalance`.
//!
//! It yields: copies go as fast as servers have nothing else to do (`yielding.rs`), and a file that is used
//! meanwhile stays where it is. Nothing is kept over a restart: how full the OSTs are says what is left to
//! do.

use super::migrate;
use crate::alloc::STATE_REFUSES;
use crate::mdt::Mdt;
use crate::rebalance::State;
use crate::schema::{key, value};
use crate::settings::seconds;
use crate::tx::Tx;
use model::rebalance::{Candidate, OstSpace, Piece, Plan, Pools, elsewhere, is_bound};
use model::{Errno, Fid, FileType, Layout, LayoutSpec};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use world::{Either, select};

/// Ages of what is known of OSTs' space between two looks at it: then each has said it anew.
const LOOK_AGAIN_AGES: u32 = 2;
/// After a pass over the OSTs in which no file could go.
const NOTHING_TO_MOVE: Duration = Duration::from_secs(600);
/// How long OSTs may take to destroy what was moved away from them before it is looked again.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(60);
/// Entries of the reverse index that are read at a time.
const PAGE: usize = 256;
/// Files that are moved at a time.
const AT_ONCE: usize = 2;
/// Files that are remembered as looked at; with more of them some are looked at again.
const REMEMBERED_MAX: usize = 10_000;
/// Files that cannot be moved for another reason than that they are used: with more of them a pass ends.
const FAILED_MAX: u64 = 100;

/// Looks after it until the target stops.
pub async fn run(mdt: Arc<Mdt>) {
    let rebalance = &mdt.shared.rebalance;
    let mut changed = rebalance.settings();
    loop {
        let rest = match rebalance.threshold() {
            0 => {
                rebalance.show(State::Off, mdt.world.wall(), 0);
                None
            }
            percent => Some(look(&mdt, percent * 100).await),
        };
        let again = async {
            match rest {
                Some(rest) => {
                    select(changed.changed(), mdt.world.sleep(rest)).await;
                }
                // The sender lives as long as the target.
                None => {
                    let _ = changed.changed().await;
                }
            }
        };
        if let Either::Left(()) = select(mdt.stop.begun(), Box::pin(again)).await {
            return;
        }
    }
}

/// Makes the OSTs even if they differ by more than `allowed` hundredths of a percent. After how long it is to
/// be looked again.
async fn look(mdt: &Arc<Mdt>, allowed: u64) -> Duration {
    let (rebalance, mut plan) = (&mdt.shared.rebalance, plan(mdt));
    if mdt.transactions.are_replayed() || plan.spread() <= allowed {
        rebalance.show(State::Even, mdt.world.wall(), plan.spread());
        return look_again(mdt);
    }
    // Once begun it goes on for a while: there is no end to it at the very edge.
    let mut pass = Pass { mdt, enough: allowed / 2, seen: BTreeSet::new(), moved: 0, failed: 0 };
    // Where nothing may leave the fullest, the next one is as good.
    for place in plan.fullest() {
        if pass.is_over(&plan) || pass.moved > 0 {
            break;
        }
        for ost in place.osts {
            rebalance.show(State::Moving, mdt.world.wall(), plan.spread());
            pass.empty_some(ost, &mut plan).await;
        }
    }
    if pass.moved == 0 && rebalance.threshold() > 0 && !mdt.stop.is_begun() {
        rebalance.show(State::Stuck, mdt.world.wall(), plan.spread());
        return NOTHING_TO_MOVE;
    }
    rebalance.show(State::Settling, mdt.world.wall(), plan.spread());
    let end = mdt.world.now().plus(REMOVAL_PATIENCE);
    let osts: Vec<u16> = mdt.shared.osts.list().into_iter().map(|(i, _)| i).collect();
    while osts.iter().any(|i| mdt.has_outbox_pending(*i)) && mdt.world.now() < end {
        if mdt.stop.pause(Duration::from_secs(1)).await {
            break;
        }
    }
    look_again(mdt)
}

fn look_again(mdt: &Mdt) -> Duration {
    seconds(&mdt.shared.settings.qos_maxage_s) * LOOK_AGAIN_AGES
}

/// How full the OSTs are that answer and are not deactivated.
fn plan(mdt: &Mdt) -> Plan {
    let (now, max_age) = (mdt.world.now(), seconds(&mdt.shared.settings.qos_maxage_s));
    let in_use = mdt.shared.osts.list().into_iter().filter(|(_, o)| o.configured && o.enabled);
    let space = |(index, o): (u16, crate::osts::Ost)| {
        let s = o.space.filter(|_| crate::osts::Osts::reachable(&o, now, max_age))?;
        Some(OstSpace {
            index,
            disk: o.import.as_ref().map_or(0, |i| i.disk()),
            used: s.total.saturating_sub(s.free),
            available: s.available,
            takes: s.state & STATE_REFUSES == 0 && o.max_create_count > 0 && !o.pace.is_slow(),
        })
    };
    Plan::of(in_use.filter_map(space))
}

/// One way over the files of the fullest OSTs.
struct Pass<'a> {
    mdt: &'a Arc<Mdt>,
    /// It ends when they differ by no more, hundredths of a percent.
    enough: u64,
    seen: BTreeSet<Fid>,
    moved: u64,
    failed: u64,
}

/// A file that is to move, and where to.
struct Step {
    fid: Fid,
    spec: LayoutSpec,
    pieces: Vec<Piece>,
}

impl Pass<'_> {
    fn is_over(&self, plan: &Plan) -> bool {
        let off = self.mdt.shared.rebalance.threshold() == 0 || self.mdt.stop.is_begun();
        off || plan.spread() <= self.enough || self.failed >= FAILED_MAX
    }

    /// Moves files away from an OST until that is enough, or there are no more.
    async fn empty_some(&mut self, ost: u16, plan: &mut Plan) {
        let mut from = key::reverse_prefix(ost);
        let end = key::behind(&from);
        while !self.is_over(plan) {
            let page = match self.mdt.db.scan(&from, &end, PAGE) {
                Ok(page) => page,
                Err(e) => return tracing::warn!("the objects on OST{ost:04} cannot be listed: {e}"),
            };
            let Some((last, _)) = page.last() else { return };
            from = key::behind(last);
            let mut steps = Vec::with_capacity(AT_ONCE);
            for (k, v) in &page {
                // A damaged entry is the checker's.
                let Ok(fid) = value::decode_owner(k, v) else { continue };
                if self.seen.len() >= REMEMBERED_MAX {
                    self.seen.clear();
                }
                if !self.seen.insert(fid) || self.is_over(plan) {
                    continue;
                }
                steps.extend(self.step(fid, ost, plan).await);
                if steps.len() == AT_ONCE {
                    self.make(&mut steps, plan).await;
                }
            }
            self.make(&mut steps, plan).await;
        }
    }

    /// How a file is to move, if it may and that gains something. In `plan` it is made.
    async fn step(&mut self, fid: Fid, from: u16, plan: &mut Plan) -> Option<Step> {
        let (spec, pieces) = match self.candidate(fid, from, plan).await {
            Ok(found) => found?,
            // It went, or is on its way elsewhere.
            Err(Errno::ENOENT | Errno::ESTALE | Errno::ERELAYOUT | Errno::EGROWING) => return None,
            Err(e) => {
                self.note_failed(fid, e);
                return None;
            }
        };
        pieces.iter().for_each(|p| plan.moved(p.from, p.to, p.bytes));
        Some(Step { fid, spec, pieces })
    }

    async fn candidate(
        &self,
        fid: Fid,
        from: u16,
        plan: &Plan,
    ) -> Result<Option<(LayoutSpec, Vec<Piece>)>, Errno> {
        let Some(layout) = layout_of(self.mdt, fid).await? else { return Ok(None) };
        if !layout.objects().any(|o| o.ost == from) {
            return Ok(None);
        }
        if is_bound(&layout) {
            self.mdt.shared.rebalance.tally().bound += 1;
            return Ok(None);
        }
        let attrs = super::copy::attrs_of_file(self.mdt, &layout).await?;
        let bytes: Vec<u64> = attrs.iter().map(|a| a.blocks.saturating_mul(512)).collect();
        let size = super::copy::size_of(&layout, &attrs);
        let of_pool = |name: &String| {
            let pool = self.mdt.shared.osts.pools.get(name)?;
            Some((name.clone(), pool.osts().into_iter().collect()))
        };
        let pools: Pools = layout.components.iter().map(|c| &c.pool).filter_map(of_pool).collect();
        elsewhere(&Candidate { layout: &layout, bytes: &bytes, size }, from, &pools, plan)
    }

    /// Moves them, all at a time.
    async fn make(&mut self, steps: &mut Vec<Step>, plan: &mut Plan) {
        let rebalance = &self.mdt.shared.rebalance;
        let moves = steps.iter().map(|s| -> super::copy::Work<'_, Result<(), Errno>> {
            Box::pin(migrate::in_background(self.mdt, s.fid, &s.spec))
        });
        let results = world::future::join_all(moves.collect()).await;
        for (s, r) in steps.drain(..).zip(results) {
            let bytes: u64 = s.pieces.iter().map(|p| p.bytes).fold(0, u64::saturating_add);
            if r.is_err() {
                s.pieces.iter().for_each(|p| plan.moved(p.to, p.from, p.bytes));
            }
            match r {
                Ok(()) => {
                    self.moved += 1;
                    let mut t = rebalance.tally();
                    t.moved += 1;
                    t.bytes = t.bytes.saturating_add(bytes);
                }
                Err(Errno::EBUSY | Errno::EAGAIN) => rebalance.tally().used += 1,
                Err(Errno::ESTALE | Errno::ESHUTDOWN) => {}
                Err(e) => self.note_failed(s.fid, e),
            }
        }
        rebalance.show(State::Moving, self.mdt.world.wall(), plan.spread());
    }

    fn note_failed(&mut self, fid: Fid, e: Errno) {
        tracing::warn!("{fid} cannot be moved to a less full OST: {e}");
        self.failed += 1;
        self.mdt.shared.rebalance.tally().failed += 1;
    }
}

/// Where a file lies, if it is one that has a name.
async fn layout_of(mdt: &Arc<Mdt>, fid: Fid) -> Result<Option<Layout>, Errno> {
    let mut found = None;
    let look = |tx: &mut Tx| {
        let i = tx.try_inode(fid)?.ok_or(Errno::ESTALE)?;
        found = i.layout.filter(|l| i.kind == FileType::Regular && i.nlink > 0 && l.has_objects());
        Ok(Vec::new())
    };
    mdt.transactions.transact(None, look).await.result?;
    Ok(found)
}

//! Shares of limits on space: how much of what somebody may have each target may let him use by itself
//! (decision 0069). This target gives them, to the object targets and to itself, so that they never come to
//! more than the limit; where one is used up it looks at what all of them have and divides what is left anew.

use crate::done::{Done, ReplyTo};
use crate::quotas::{Admission, Arrival, ArrivalOf, Bound, Division, ShareHolder, ShareNeeds, Want};
use crate::schema::key;
use crate::transact::Transactions;
use crate::tx::Tx;
use model::debug::QUOTA;
use model::planted::{self, Bug};
use model::quota::{Enforced, Standing};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Errno, ObjectId};
use rpc::{Import, ImportState};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::glimpse::Glimpse;
use wire::msg::quotactl::{QuotaAsk, Quotactl};
use wire::msg::quotashare::{ORDERS_MAX, Quotashare, ShareChange, ShareOrder, ShareState};
use wire::trailing::Trailing;
use wire::{Message, RequestContext};
use world::future::join_all;

/// An object target that does not answer for so long is left out: it keeps what it has.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often an object target is asked that does not answer.
const TRIES_MAX: u32 = 10;
/// How often, and for how long, it is waited until an object target was told to whom files are counted.
const BEHIND_TRIES_MAX: u32 = 250;
const BEHIND_WAIT: Duration = Duration::from_millis(20);
/// How much of an arrival an object target has.
type ArrivalLook<'a> = Pin<Box<dyn Future<Output = Result<(u16, &'a Arrival, u64), Errno>> + Send + 'a>>;
type BytesLook<'a> = Pin<Box<dyn Future<Output = Result<u64, Errno>> + Send + 'a>>;
/// Object targets that answer at the moment.
type Sessions = BTreeMap<u16, Arc<Import>>;

impl Transactions {
    /// Whoever may have more gets more where he wants it. `EDQUOT`: he has what he may have. `EIO`: the
    /// object target is out of this target's reach.
    pub async fn acquire(&self, ids: &BTreeSet<QuotaId>, want: Want) -> Result<(), Errno> {
        for _ in 0..TRIES_MAX {
            if let ShareHolder::Ost(index) = want.holder {
                let import = self.shared.osts.get(index).and_then(|o| o.import).ok_or(Errno::ENODEV)?;
                if let Some(Err(e)) = self.shared.world.timeout(ANSWER_MAX, import.connected()).await {
                    return Err(e);
                }
            }
            let _one = self.shared.shares.dividing.lock().await;
            match self.acquire_each(ids, want).await {
                Err(Errno::EAGAIN) => {}
                done => return done,
            }
        }
        Err(Errno::EIO)
    }

    async fn acquire_each(&self, ids: &BTreeSet<QuotaId>, want: Want) -> Result<(), Errno> {
        for id in ids {
            if !self.divide(&[*id], Some(want)).await? {
                return Err(Errno::EDQUOT);
            }
        }
        Ok(())
    }

    /// More for this target, for a transaction that needs it and then runs again; who cannot have more is
    /// denied. `EDQUOT`: somebody would get objects that he may not have.
    pub async fn admit(&self, needs: &ShareNeeds, admission: &mut Admission<'_>) -> Result<(), Errno> {
        assert!(!needs.ids.is_empty() || !needs.arrivals.is_empty(), "somebody's share is used up");
        if !needs.ids.is_empty() {
            match self.acquire(&needs.ids, Want { holder: ShareHolder::Mdt, bytes: needs.bytes }).await {
                Err(Errno::EDQUOT) => admission.deny(&needs.ids),
                done => done?,
            }
        }
        let mut who: BTreeMap<u16, BTreeSet<QuotaId>> = BTreeMap::new();
        for (ost, a, bytes) in self.look_at_arrivals(&needs.arrivals).await? {
            admission.enter(ost, a, bytes);
            who.entry(ost).or_default().extend(&a.ids);
        }
        for (ost, ids) in who {
            let mut tries = 0;
            // What was told to an object target a moment ago may be counted twice.
            loop {
                match self.acquire(&ids, Want { holder: ShareHolder::Ost(ost), bytes: 0 }).await {
                    Err(Errno::EDQUOT)
                        if tries < BEHIND_TRIES_MAX && self.shared.shares.arrivals.is_behind(ost) =>
                    {
                        tries += 1;
                        self.shared.world.sleep(BEHIND_WAIT).await;
                    }
                    done => break done?,
                }
            }
        }
        admission.arrived(&needs.arrivals);
        Ok(())
    }

    /// How many bytes of each arrival lie where. `EIO`: an object target does not answer.
    async fn look_at_arrivals<'a>(
        &'a self,
        all: &'a [Arrival],
    ) -> Result<Vec<(u16, &'a Arrival, u64)>, Errno> {
        let mut asked: Vec<ArrivalLook<'_>> = Vec::new();
        for a in all {
            match &a.what {
                ArrivalOf::Objects(objects, generation) => {
                    let mut by_ost: BTreeMap<u16, Vec<ObjectId>> = BTreeMap::new();
                    objects.iter().for_each(|o| by_ost.entry(o.ost).or_default().push(o.id));
                    for (ost, objects) in by_ost {
                        // One that an administrator took out of use is not asked.
                        let import = self.shared.osts.get(ost).and_then(|o| o.import);
                        if let Some(import) = import.filter(|i| i.is_active()) {
                            let look = self.bytes_of_objects(import, objects, *generation);
                            asked.push(Box::pin(async move { Ok((ost, a, look.await?)) }));
                        }
                    }
                }
                ArrivalOf::Below(id) => {
                    let of = QuotaId { of: QuotaType::Directory, id: *id };
                    for (ost, import) in self.answering() {
                        let look = self.bytes_of_owner(ost, import, of);
                        asked.push(Box::pin(async move { Ok((ost, a, look.await?)) }));
                    }
                }
            }
        }
        let found: Result<Vec<_>, Errno> = join_all(asked).await.into_iter().collect();
        Ok(found?.into_iter().filter(|(_, _, bytes)| *bytes > 0).collect())
    }

    /// `EIO`: the object target does not answer.
    async fn ask<M: Message + Send + 'static>(
        &self,
        import: &Arc<Import>,
        ctx: RequestContext,
        message: M,
    ) -> Result<M::Reply, Errno> {
        let asked = import.call(ctx, message, bytes::Bytes::new());
        let answer = self.shared.world.timeout(ANSWER_MAX, asked).await;
        answer.unwrap_or(Err(Errno::EIO)).map(|r| r.reply)
    }

    /// Objects that are gone, or moved meanwhile, have nothing.
    async fn bytes_of_objects(
        &self,
        import: Arc<Import>,
        objects: Vec<ObjectId>,
        generation: u32,
    ) -> Result<u64, Errno> {
        let ctx = RequestContext { layout_generation: generation, ..RequestContext::default() };
        let blocks = match self.ask(&import, ctx, Glimpse { objects }).await {
            Ok(r) => r.attrs.iter().fold(0u64, |sum, a| sum.saturating_add(a.blocks)),
            Err(Errno::ESTALE | Errno::ERELAYOUT | Errno::ELOST) => 0,
            Err(e) => return Err(e),
        };
        Ok(Usage { inodes: 0, blocks }.bytes())
    }

    /// Returns when an object target was told all that stood in its outbox: what it counts is true then.
    /// `EIO`: it is not told in time.
    pub async fn all_told(&self, ost: u16) -> Result<(), Errno> {
        let (mark, from) = (self.shared.next_outbox_seq(), key::outbox_prefix(ost));
        for _ in 0..BEHIND_TRIES_MAX {
            let first = self.db.scan(&from, &key::behind(&from), 1).map_err(|e| e.errno())?.pop();
            let waits = first.and_then(|(k, _)| key::parse_outbox(&k)).is_some_and(|(_, seq)| seq < mark);
            if !waits {
                return Ok(());
            }
            self.shared.world.sleep(BEHIND_WAIT).await;
        }
        Err(Errno::EIO)
    }

    /// What an owner has on all targets that answer. `EIO`: one of them does not in time.
    pub async fn bytes_everywhere(&self, of: QuotaId) -> Result<u64, Errno> {
        let here = self.shared.usage.get(of).bytes();
        let mut asked: Vec<BytesLook<'_>> = Vec::new();
        for (ost, import) in self.answering() {
            asked.push(Box::pin(self.bytes_of_owner(ost, import, of)));
        }
        let found: Result<Vec<u64>, Errno> = join_all(asked).await.into_iter().collect();
        Ok(found?.into_iter().fold(here, u64::saturating_add))
    }

    async fn bytes_of_owner(&self, ost: u16, import: Arc<Import>, of: QuotaId) -> Result<u64, Errno> {
        // Files may be counted to it since a moment ago.
        self.all_told(ost).await?;
        let message = Quotactl { ask: QuotaAsk::Of(vec![of]) };
        let r = self.ask(&import, RequestContext::default(), message).await?;
        Ok(r.usage.first().map_or(0, |(_, u)| u.bytes()))
    }

    /// As [`Transactions::settled`]; where a share of this target is used up it gets what others have left.
    pub async fn within_shares(
        &self,
        to: &ReplyTo,
        f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        self.within_shares_by(Some(to.client), to, f).await
    }

    /// As [`Transactions::within_shares`]; `by`: whose leases are not in its way.
    pub async fn within_shares_by(
        &self,
        by: Option<rpc::ClientId>,
        to: &ReplyTo,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let (mut needs, mut arriving) = (ShareNeeds::default(), Vec::new());
        let mut admission = Admission::new(&self.shared.shares.arrivals);
        loop {
            let known = admission.known();
            let work = |tx: &mut Tx| {
                tx.admitted.clone_from(&known);
                let result = f(tx);
                needs = std::mem::take(&mut tx.needs);
                arriving = std::mem::take(&mut tx.arriving);
                result
            };
            let done = self.settled_by(by, to, work).await;
            if !matches!(done.result, Err(Errno::ESHARE)) {
                if done.result.is_ok() {
                    admission.done(&arriving);
                }
                return done;
            }
            if let Err(e) = self.admit(&needs, &mut admission).await {
                return Done::error(e);
            }
        }
    }

    /// Limits of these, or whether they are enforced, are others now; of nobody: those of whole types.
    pub async fn share_out(&self, ids: &[QuotaId]) -> Result<(), Errno> {
        let _one = self.shared.shares.dividing.lock().await;
        if ids.is_empty() {
            self.divide(&[], None).await?;
        }
        for ids in ids.chunks(ORDERS_MAX) {
            self.divide(ids, None).await?;
        }
        Ok(())
    }

    /// As [`Transactions::share_out`], of everybody whom it may concern: who has limits of his own, and who
    /// has anything where a whole type is limited.
    pub async fn share_out_all(&self) -> Result<(), Errno> {
        let mut ids = self.shared.quotas.with_space();
        ids.extend(self.shared.shares.known.lock().last.keys().map(|(id, _)| *id));
        let limited = self.shared.quotas.limited_types();
        for of in QuotaType::ALL.into_iter().filter(|of| limited.has(*of)) {
            let here = self.shared.usage.page(of, None, usize::MAX);
            ids.extend(here.into_iter().map(|(id, _)| QuotaId { of, id }));
        }
        let ids: Vec<QuotaId> = ids.into_iter().filter(|id| id.is_limited()).collect();
        self.share_out(&ids).await
    }

    fn answering(&self) -> Sessions {
        let all = self.shared.osts.list().into_iter();
        let up = all.filter_map(|(index, o)| Some((index, o.import?)));
        up.filter(|(_, i)| i.is_active() && i.state() == ImportState::Full).collect()
    }

    /// Divides what these may have. False: somebody cannot have what is wanted. `EAGAIN`: the object target
    /// that it is wanted on did not answer.
    async fn divide(&self, ids: &[QuotaId], want: Option<Want>) -> Result<bool, Errno> {
        assert!(ids.len() <= ORDERS_MAX, "an object target takes so many orders at once");
        if ids.iter().any(|id| id.of == QuotaType::Directory) {
            self.tell_tree().await;
        }
        let osts = self.answering();
        let limited = self.shared.quotas.limited_types();
        let now = self.shared.world.wall().sec;
        tracing::debug!(target: QUOTA, "shares of {ids:?} are made anew for {want:?}");
        let look = ids.iter().map(|of| ShareOrder { of: *of, change: ShareChange::Look }).collect();
        let answered = self.order_all(&osts, |_| Vec::clone(&look), None).await;
        if let Some(Want { holder: ShareHolder::Ost(index), .. }) = want
            && !answered.contains(&index)
        {
            return Err(Errno::EAGAIN);
        }
        // Who is away is told when he is back.
        self.shared.shares.known.lock().told.retain(|index, _| osts.contains_key(index));
        let before: Vec<Division> = ids.iter().filter_map(|of| self.division(*of)).collect();
        // Whoever wants no more than he has been given is to have room for that.
        let is_more = |w: Want| w.bytes > 0 || before.iter().any(|d| !d.has_room_for(w));
        if want.is_some_and(|w| !is_more(w)) {
            return Ok(true);
        }
        let free: Vec<QuotaId> =
            ids.iter().filter(|id| !before.iter().any(|d| d.of == **id)).copied().collect();
        self.own_shares_end(&free);
        let up: Vec<_> = before.iter().map(|d| (d.of, d.given_up(&d.parts(want, now)))).collect();
        let unlimited = |_: u16| {
            let order = |of: &QuotaId| ShareOrder { of: *of, change: no_limit(*of, limited) };
            free.iter().map(order).collect()
        };
        // Nobody gets more before others have less.
        self.set_shares(&osts, &up, unlimited, Some(limited)).await;
        let between: Vec<Division> = before.iter().filter_map(|d| self.division(d.of)).collect();
        let more: Vec<_> = between.iter().map(|d| (d.of, d.given(want, now))).collect();
        self.set_shares(&osts, &more, |_| Vec::new(), None).await;
        let after: Vec<Division> = between.iter().filter_map(|d| self.division(d.of)).collect();
        let all_get_it = want.is_none_or(|w| after.iter().all(|d| d.has_room_for(w)));
        for d in &after {
            self.note_soft(d, want.filter(|_| all_get_it), now).await?;
        }
        Ok(all_get_it)
    }

    /// How somebody stands, as all said a moment ago; `None`: his space is not limited.
    fn division(&self, of: QuotaId) -> Option<Division> {
        let (standing, by_pool) = self.shared.quotas.space_of(of)?;
        // A pool that is gone limits nobody.
        let in_pool = |(name, standing): (String, Standing)| {
            let osts = self.shared.osts.pools.get(&name)?.osts();
            Some(Bound { pool: Some((name, osts)), standing })
        };
        let forgotten = planted::on(Bug::PoolLimitForgotten);
        let by_pool = by_pool.into_iter().filter(|_| !forgotten).filter_map(in_pool);
        let bounds = [Bound { pool: None, standing }].into_iter().chain(by_pool).collect();
        let known = self.shared.shares.known.lock();
        let last = known.last.range((of, 0)..=(of, u16::MAX));
        let there = last.filter(|((_, o), _)| self.shared.osts.get(*o).is_some());
        let with_coming = |((_, o), s): (&(QuotaId, u16), &ShareState)| {
            let coming = self.shared.shares.arrivals.coming(of, *o);
            (ShareHolder::Ost(*o), ShareState { used: s.used.saturating_add(coming), ..*s })
        };
        let osts = there.map(with_coming);
        let used = self.shared.usage.get(of).bytes();
        let here = ShareState { used, share: Some(self.shared.quotas.own_share(of).max(used)) };
        let holders = osts.chain([(ShareHolder::Mdt, here)]).collect();
        Some(Division { of, bounds, holders })
    }

    /// Sets the shares of each owner in a list, and gives each object target `others` as well.
    async fn set_shares(
        &self,
        osts: &Sessions,
        shares: &[(QuotaId, BTreeMap<ShareHolder, u64>)],
        others: impl Fn(u16) -> Vec<ShareOrder>,
        limited: Option<Enforced>,
    ) {
        {
            // No transaction is under way that was admitted by what this target had.
            let _alone = self.core.write();
            for (of, parts) in shares {
                if let Some(bytes) = parts.get(&ShareHolder::Mdt) {
                    let used = self.shared.usage.get(*of).bytes();
                    self.shared.quotas.set_own_share(*of, Some(used.max(*bytes)));
                }
            }
        }
        let orders = |index: u16| {
            let one = |(of, parts): &(QuotaId, BTreeMap<ShareHolder, u64>)| {
                let bytes = *parts.get(&ShareHolder::Ost(index))?;
                Some(ShareOrder { of: *of, change: ShareChange::Set(bytes) })
            };
            shares.iter().filter_map(one).chain(others(index)).collect()
        };
        self.order_all(osts, orders, limited).await;
    }

    fn own_shares_end(&self, of: &[QuotaId]) {
        let _alone = self.core.write();
        of.iter().for_each(|id| self.shared.quotas.set_own_share(*id, None));
        self.shared.shares.known.lock().last.retain(|(id, _), _| !of.contains(id));
    }

    /// Since when a soft limit is exceeded is written when that begins, and taken away when it ends.
    async fn note_soft(&self, d: &Division, want: Option<Want>, now: i64) -> Result<(), Errno> {
        for b in &d.bounds {
            let over = b.standing.over_since_with(d.used_with(b, want), now);
            if over.is_some() == b.standing.over_since.is_some() {
                continue;
            }
            let pool = b.pool.as_ref().map(|(name, _)| name.as_str());
            let work = |tx: &mut Tx| {
                match self.shared.quotas.with_space_over(d.of, pool, over) {
                    (k, Some(v)) => tx.put(k.encode(), v),
                    (k, None) => tx.delete(k.encode()),
                }
                Ok(Vec::new())
            };
            self.transact(None, work).await.result?;
        }
        Ok(())
    }

    /// Gives each of these object targets its orders, at once. Which of them answered.
    async fn order_all(
        &self,
        osts: &Sessions,
        orders: impl Fn(u16) -> Vec<ShareOrder>,
        limited: Option<Enforced>,
    ) -> BTreeSet<u16> {
        let mut all: Vec<Pin<Box<dyn Future<Output = Option<u16>> + Send + '_>>> = Vec::new();
        for (index, import) in osts {
            let message = Quotashare { orders: orders(*index), limited, tree: Trailing(None) };
            if !message.orders.is_empty() || limited.is_some() {
                all.push(Box::pin(self.order(*index, import.clone(), message)));
            }
        }
        join_all(all).await.into_iter().flatten().collect()
    }

    /// Object targets hear which directories with a quota lie in which, if they do not know yet.
    pub async fn tell_tree(&self) {
        let _one = self.shared.shares.telling.lock().await;
        let arrivals = &self.shared.shares.arrivals;
        let moved = arrivals.trees();
        self.tell_tree_alone().await;
        for (ost, fid) in moved {
            let told = self.shared.shares.tree_told.lock().get(&ost).map(|(_, changes)| *changes);
            if told.is_some_and(|t| t >= self.shared.directories.changes()) {
                arrivals.told(ost, [fid].into_iter());
            }
        }
    }

    async fn tell_tree_alone(&self) {
        let changes = self.shared.directories.changes();
        let lives: BTreeMap<u16, (u64, u64)> =
            self.answering().iter().map(|(o, i)| (*o, (i.life(), changes))).collect();
        let known = |o: &u16, at: &(u64, u64)| self.shared.shares.tree_told.lock().get(o) == Some(at);
        let untold: BTreeMap<u16, (u64, u64)> =
            lives.into_iter().filter(|(o, at)| changes > 0 && !known(o, at)).collect();
        if untold.is_empty() {
            return;
        }
        let tree: Vec<(u32, u32)> = self.shared.usage.with_tree(|tree| tree.iter().collect());
        let osts = self.answering();
        let each = untold.iter().filter_map(|(o, at)| Some((*o, *at, osts.get(o)?.clone())));
        let told = each.map(|(index, at, import)| {
            let message = Quotashare { orders: Vec::new(), limited: None, tree: tree.clone().into() };
            Box::pin(async move {
                let done = self.ask(&import, RequestContext::default(), message).await;
                matches!(done, Ok(_) | Err(Errno::ENOSYS)).then_some((index, at))
            }) as Pin<Box<dyn Future<Output = Option<(u16, (u64, u64))>> + Send + '_>>
        });
        let told = join_all(told.collect()).await;
        self.shared.shares.tree_told.lock().extend(told.into_iter().flatten());
    }

    /// Gives one object target its orders, and remembers what it says. If it does not answer it is told
    /// later.
    async fn order(&self, index: u16, import: Arc<Import>, message: Quotashare) -> Option<u16> {
        let ids: Vec<QuotaId> = message.orders.iter().map(|o| o.of).collect();
        let changes =
            message.limited.is_some() || message.orders.iter().any(|o| o.change != ShareChange::Look);
        let answer = self.ask(&import, RequestContext::default(), message).await;
        let mut known = self.shared.shares.known.lock();
        match answer {
            Ok(r) if r.states.len() == ids.len() => {
                let states = ids.into_iter().zip(r.states);
                known.last.extend(states.map(|(id, s)| ((id, index), s)));
                Some(index)
            }
            // An older one counts, and limits nobody.
            Err(Errno::ENOSYS) => Some(index),
            _ => {
                if changes {
                    known.told.remove(&index);
                }
                None
            }
        }
    }

    /// Object targets that came, or did not answer when shares were changed: they are told; so are all when
    /// others are in pools. Soft limits whose grace time is over hold from then on.
    pub async fn keep_shares(&self, look_at_soft: bool) -> Result<(), Errno> {
        let book = &self.shared.shares;
        let lives: BTreeMap<u16, u64> = self.answering().iter().map(|(o, i)| (*o, i.life())).collect();
        let untold = lives.iter().any(|(o, life)| book.known.lock().told.get(o) != Some(life));
        let pools = self.shared.osts.pools.changes();
        let others = book.known.lock().pools != pools && self.shared.quotas.limits_by_pool();
        if (untold || others) && !planted::on(Bug::LimitChangeUntold) {
            let tells = self.shared.quotas.limits_space() || !book.known.lock().last.is_empty();
            {
                let mut known = book.known.lock();
                known.told.extend(lives);
                known.pools = pools;
            }
            if tells {
                self.share_out_all().await?;
            }
        }
        let over = if look_at_soft { self.shared.quotas.over_soft_space() } else { Vec::new() };
        if over.is_empty() { Ok(()) } else { self.share_out(&over).await }
    }
}

/// How an object target knows that somebody may use as much as he likes.
fn no_limit(of: QuotaId, limited: Enforced) -> ShareChange {
    if limited.has(of.of) { ShareChange::Set(u64::MAX) } else { ShareChange::Remove }
}

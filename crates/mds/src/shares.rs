//! Shares of limits on space: how much of what somebody may have each target may let him use by itself
//! (decision 0069). This target gives them, to the object targets and to itself, so that they never come to
//! more than the limit; where one is used up it looks at what all of them have and divides what is left anew.

use crate::done::{Done, ReplyTo};
use crate::quotas::{Division, ShareHolder, ShareNeeds, Want};
use crate::schema::limits::LimitsKey;
use crate::transact::Transactions;
use crate::tx::Tx;
use model::Errno;
use model::planted::{self, Bug};
use model::quota::Enforced;
use model::usage::{QuotaId, QuotaType};
use rpc::{Import, ImportState};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use wire::RequestContext;
use wire::msg::quotashare::{ORDERS_MAX, Quotashare, ShareChange, ShareOrder, ShareState};
use world::future::join_all;

/// An object target that does not answer for so long is left out: it keeps what it has.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How often an object target is asked that does not answer.
const TRIES_MAX: u32 = 10;
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

    /// As [`Transactions::settled`]; where a share of this target is used up it gets what others have left.
    pub async fn within_shares(
        &self,
        to: &ReplyTo,
        mut f: impl FnMut(&mut Tx) -> Result<Vec<u8>, Errno> + Send,
    ) -> Done {
        let (mut needs, mut denied) = (ShareNeeds::default(), BTreeSet::new());
        loop {
            let work = |tx: &mut Tx| {
                tx.denied.clone_from(&denied);
                let result = f(tx);
                needs = std::mem::take(&mut tx.needs);
                result
            };
            let done = self.settled(to, work).await;
            if !matches!(done.result, Err(Errno::ESHARE)) {
                return done;
            }
            assert!(!needs.ids.is_empty(), "somebody's share is used up");
            match self.acquire(&needs.ids, Want { holder: ShareHolder::Mdt, bytes: needs.bytes }).await {
                Ok(()) => {}
                Err(Errno::EDQUOT) => denied.extend(needs.ids.iter().copied()),
                Err(e) => return Done::error(e),
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
        let osts = self.answering();
        let limited = self.shared.quotas.limited_types();
        let now = self.shared.world.wall().sec;
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
        let standing = self.shared.quotas.space_of(of)?;
        let known = self.shared.shares.known.lock();
        let last = known.last.range((of, 0)..=(of, u16::MAX));
        let there = last.filter(|((_, o), _)| self.shared.osts.get(*o).is_some());
        let osts = there.map(|((_, o), s)| (ShareHolder::Ost(*o), *s));
        let used = self.shared.usage.get(of).bytes();
        let here = ShareState { used, share: Some(self.shared.quotas.own_share(of).max(used)) };
        let holders = osts.chain([(ShareHolder::Mdt, here)]).collect();
        Some(Division { of, standing, holders })
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
        let used = d.used().saturating_add(want.map_or(0, |w| w.bytes));
        let over = d.standing.over_since_with(used, now);
        if over.is_some() == d.standing.over_since.is_some() {
            return Ok(());
        }
        let work = |tx: &mut Tx| {
            match self.shared.quotas.with_space_over(d.of, over) {
                Some(v) => tx.put(LimitsKey::Owner(d.of).encode(), v),
                None => tx.delete(LimitsKey::Owner(d.of).encode()),
            }
            Ok(Vec::new())
        };
        self.transact(None, work).await.result.map(drop)
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
            let message = Quotashare { orders: orders(*index), limited };
            if !message.orders.is_empty() || limited.is_some() {
                all.push(Box::pin(self.order(*index, import.clone(), message)));
            }
        }
        join_all(all).await.into_iter().flatten().collect()
    }

    /// Gives one object target its orders, and remembers what it says. If it does not answer it is told
    /// later.
    async fn order(&self, index: u16, import: Arc<Import>, message: Quotashare) -> Option<u16> {
        let ids: Vec<QuotaId> = message.orders.iter().map(|o| o.of).collect();
        let changes =
            message.limited.is_some() || message.orders.iter().any(|o| o.change != ShareChange::Look);
        let asked = import.call(RequestContext::default(), message, bytes::Bytes::new());
        let answer = self.shared.world.timeout(ANSWER_MAX, asked).await;
        let mut known = self.shared.shares.known.lock();
        match answer {
            Some(Ok(r)) if r.reply.states.len() == ids.len() => {
                let states = ids.into_iter().zip(r.reply.states);
                known.last.extend(states.map(|(id, s)| ((id, index), s)));
                Some(index)
            }
            // An older one counts, and limits nobody.
            Some(Err(Errno::ENOSYS)) => Some(index),
            _ => {
                if changes {
                    known.told.remove(&index);
                }
                None
            }
        }
    }

    /// Object targets that came, or did not answer when shares were changed: they are told. Soft limits whose
    /// grace time is over hold from then on.
    pub async fn keep_shares(&self, look_at_soft: bool) -> Result<(), Errno> {
        let book = &self.shared.shares;
        let lives: BTreeMap<u16, u64> = self.answering().iter().map(|(o, i)| (*o, i.life())).collect();
        let untold = lives.iter().any(|(o, life)| book.known.lock().told.get(o) != Some(life));
        if untold && !planted::on(Bug::LimitChangeUntold) {
            let tells = self.shared.quotas.limits_space() || !book.known.lock().last.is_empty();
            book.known.lock().told.extend(lives);
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

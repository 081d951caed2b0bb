//! Taking leases back: a change that meets leases of other clients asks for them and waits, each client for
//! as long as it may take and no longer; and what clients say unasked.

use crate::leases::{LeaseNeeds, RevokeGuard, Touched};
use crate::mdt::Mdt;
use crate::opens::{Open, OpenChange};
use crate::schema::key;
use crate::settings::seconds;
use model::planted::{self, Bug};
use model::{Errno, Fid};
use rpc::{ClientId, Principal};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::msg::lookup::bits;
use wire::msg::notify::{LEASE_ITEMS_MAX, LeaseItem, Notice, Notify};
use wire::msg::reclaim::OpenRecord;
use world::{Instant, select};

/// A revocation that is not answered is sent again after so long: its connection may have broken.
const SAY_AGAIN: Duration = Duration::from_secs(1);
/// Who goes on telling what it has done may take so many times as long as who says nothing.
const TELLING_MAX: u32 = 10;

/// Since when each lease is waited for. Others may be granted something while the first ones have their time:
/// theirs begins later.
#[derive(Default)]
struct Waits(BTreeMap<(ClientId, Fid), Instant>);

impl Waits {
    /// Whose time is over: who has said nothing for `patience`, or told what it has done for very much
    /// longer.
    fn late(
        &mut self,
        held: &[(ClientId, LeaseItem)],
        told: &BTreeMap<ClientId, Instant>,
        now: Instant,
        patience: Duration,
    ) -> BTreeSet<ClientId> {
        self.0.retain(|k, _| held.iter().any(|(c, i)| (*c, i.fid) == *k));
        let mut is_late = |(c, i): &(ClientId, LeaseItem)| {
            let since = *self.0.entry((*c, i.fid)).or_insert(now);
            let heard = told.get(c).copied().unwrap_or(since).max(since);
            now.since(heard) >= patience || now.since(since) >= patience * TELLING_MAX
        };
        let late = held.iter().filter(|h| is_late(h)).map(|(c, _)| *c).collect();
        assert!(self.0.len() <= held.len(), "only what is held is waited for");
        late
    }
}

impl Mdt {
    /// Asks other clients for what is to be changed and waits until they gave it back; who does not answer in
    /// time is evicted. `ENOTCONN` when the client that waits departs itself, `ESHUTDOWN` when the target
    /// stops.
    pub(crate) async fn await_cancels(&self, by: Option<ClientId>, wanted: &LeaseNeeds) -> Result<(), Errno> {
        let start = self.world.now();
        let mut asked: BTreeSet<(ClientId, Fid, bool)> = BTreeSet::new();
        let mut waits = Waits::default();
        let mut said = start;
        loop {
            let mut changed = Box::pin(self.shared.leases.changed().notified());
            changed.as_mut().enable();
            let held = self.shared.leases.conflicts(by, wanted);
            assert!(held.iter().all(|(c, _)| Some(*c) != by), "a client's own leases are never in its way");
            if held.is_empty() {
                if planted::on(Bug::GrantWhileRevoking) {
                    self.world.sleep(Duration::from_millis(2)).await;
                }
                return Ok(());
            }
            if by.is_some_and(|c| self.shared.leases.is_leaving(c)) {
                return Err(Errno::ENOTCONN);
            }
            if *self.stopping.borrow() {
                return Err(Errno::ESHUTDOWN);
            }
            let now = self.world.now();
            let patience = self.callback_timeout();
            let late = waits.late(&held, &self.shared.leases.told(), now, patience);
            self.give_up_on(&held, late);
            if now.since(said) >= SAY_AGAIN {
                said = now;
                asked.clear();
            }
            self.revoke(held.into_iter().filter(|(c, i)| asked.insert((*c, i.fid, i.look))));
            let mut stopping = self.stopping.subscribe();
            let stopped = async move { drop(stopping.wait_for(|s| *s).await) };
            let rest = SAY_AGAIN.saturating_sub(now.since(said)).max(Duration::from_millis(1));
            let _ = select(changed, select(stopped, self.world.sleep(rest))).await;
        }
    }

    /// Whether `look` meets what other clients own.
    pub(crate) fn watches(&self, client: Option<ClientId>) -> bool {
        self.shared.leases.others_own(client)
    }

    /// A setting of the file system from which new files' layouts come has changed: waits until no owner goes
    /// by the old one. `ESHUTDOWN` when the target stops.
    pub(crate) async fn defaults_changed(&self) -> Result<(), Errno> {
        let wanted =
            LeaseNeeds { change: Touched::from([(Fid::DEFAULTS, bits::UPDATE)]), look: Touched::new() };
        let mut marks = RevokeGuard::new(&self.shared.leases);
        let blocked = {
            let _alone = self.core_write();
            marks.mark_conflicts(None, &wanted)
        };
        if blocked { self.await_cancels(None, &wanted).await } else { Ok(()) }
    }

    /// It has changed whose root is root. Waits until nobody who is squashed keeps anything that was shown to
    /// root. `ESHUTDOWN` when the target stops.
    pub(crate) async fn squash_changed(&self) -> Result<(), Errno> {
        let all = self.peers.list().into_iter().map(|p| p.who);
        let squashed = |p: &Principal| self.shared.settings.nodemap(p).squashes_root();
        let clients: Vec<ClientId> = all.filter(squashed).map(|p| p.client).collect();
        let mut marks = RevokeGuard::new(&self.shared.leases);
        let wanted = {
            let _alone = self.core_write();
            let wanted = LeaseNeeds { change: self.shared.leases.files_of(&clients), look: Touched::new() };
            if !marks.mark_conflicts(None, &wanted) {
                return Ok(());
            }
            wanted
        };
        self.await_cancels(None, &wanted).await
    }

    /// Space is low: owners are to tell what they have done, for which it was promised, and to ask from now
    /// on.
    pub(crate) fn shed_owners(&self) {
        self.revoke(self.shared.leases.to_shed(self.world.now(), SAY_AGAIN).into_iter());
    }

    fn revoke(&self, items: impl Iterator<Item = (ClientId, LeaseItem)>) {
        let mut of: BTreeMap<ClientId, Vec<LeaseItem>> = BTreeMap::new();
        for (client, item) in items {
            of.entry(client).or_default().push(item);
        }
        for (client, items) in of {
            for part in items.chunks(LEASE_ITEMS_MAX) {
                self.peers.notify(client, Notify::Revoke { items: part.to_vec() });
            }
        }
    }

    /// How long a client may take to give back a lease, or to go on telling what it has done under it. By
    /// then one that is cut off has stopped using it.
    fn callback_timeout(&self) -> Duration {
        let wanted = seconds(&self.shared.settings.callback_timeout_s);
        wanted.max(self.peers.lease_life())
    }

    /// Who had its time is evicted. Who has no session (any more) is not there to use what it has.
    fn give_up_on(&self, held: &[(ClientId, LeaseItem)], late: BTreeSet<ClientId>) {
        let clients: BTreeSet<ClientId> = held.iter().map(|(c, _)| *c).collect();
        assert!(late.is_subset(&clients), "only who holds something is late with it");
        for client in clients {
            let there =
                if late.contains(&client) { self.peers.condemn(client) } else { self.peers.has(client) };
            if !there {
                self.shared.leases.client_gone(client, false);
            }
        }
    }

    /// What a client says unasked.
    pub(crate) fn told(&self, client: ClientId, notice: Notice) {
        match notice {
            Notice::Cancelled { items } => self.shared.leases.cancel(client, &items),
            Notice::Opened { opens } => self.opened(client, opens),
            // For an OST.
            Notice::Released { .. } | Notice::Kept { .. } => {}
            // The session layer's own.
            Notice::Proof { .. } | Notice::ClientEvicted { .. } => {}
        }
    }

    /// A client has files open under leases that it is about to give back. Permission was checked when it
    /// opened them. Files that are not there are ignored: their removal did not wait for this client, so it
    /// was its own.
    fn opened(&self, client: ClientId, opens: Vec<OpenRecord>) {
        let mut core = self.core_write();
        if !core.clients.contains_key(&client) {
            return;
        }
        for o in opens {
            // If that cannot be read: better one open too many than a file lost.
            let gone = matches!(self.db.get(&key::inode(o.fid)), Ok(None));
            if !gone && core.opens.check_room(client).is_ok() {
                let open = Open { fid: o.fid, flags: o.flags };
                core.opens.apply(OpenChange::Add { client, handle: o.handle, open });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_telling_has_more_time_but_not_for_ever() {
        let (fid, patience) = (Fid::new(9, 1, 0), Duration::from_secs(20));
        let at = |s: u64| Instant(s * 1_000_000_000);
        let client = |n: u8| ClientId([n; 16]);
        let item = |n| (client(n), LeaseItem { fid, bits: bits::UPDATE, seq: 1, look: false });
        let held = [item(1), item(2)];
        let mut waits = Waits::default();
        let mut late = |s: u64, told: u64| {
            let told = BTreeMap::from([(client(2), at(told))]);
            waits.late(&held, &told, at(s), patience).into_iter().collect::<Vec<_>>()
        };
        assert!(late(100, 90).is_empty());
        assert!(late(119, 90).is_empty(), "what it told before it was asked does not count");
        assert_eq!(late(120, 110), [client(1)], "the other one is at it");
        assert_eq!(late(130, 110), [client(1), client(2)], "not any more");
        assert_eq!(late(150, 149), [client(1)]);
        assert_eq!(late(300, 299), [client(1), client(2)], "ten times as long");
    }
}

//! Clients that are gone: silent for too long, thrown out, or after their good-bye.

use super::session::{Session, Why, same};
use super::{ClientId, Departure, EVICT_DOUBTED_INTERVALS, EVICT_INTERVALS, Peer, Peers, Server, Target};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::Sender;
use wire::msg::notify::Notify;
use world::{Either, select};

/// So many tenths of the life of a lease are over for a client whose clock is slower, too.
const LEASE_MARGIN_X10: u32 = 11;

impl Peers {
    /// Has a client evicted that came back after a restart and does not say in time what it had. False: it
    /// has no session.
    pub fn evict_slow(&self, client: ClientId) -> bool {
        let session = self.get(client);
        session.iter().for_each(|s| s.condemn(Why::Unrecovered));
        self.look_now(session.is_some());
        session.is_some()
    }
}

/// Evicts silent clients until the server stops.
pub(super) async fn watch(server: Arc<Server>) {
    let mut last = server.world.now();
    loop {
        let step = (server.ping_interval() / 2).max(Duration::from_millis(5));
        let mut stop = Box::pin(server.stopped.notified());
        stop.as_mut().enable();
        if server.stopping.load(Ordering::Acquire) {
            return;
        }
        let look = select(server.evictor.notified(), server.world.sleep(step));
        if let Either::Left(()) = select(stop, look).await {
            return;
        }
        let now = server.world.now();
        // A server that was stopped or starved for a while has not heard anybody: that is not their fault.
        let overslept = now.since(last) > step + server.ping_interval();
        last = now;
        let targets = server.lock_targets().clone();
        for t in targets {
            t.peers.look_at_told(server.ping_ms.load(Ordering::Relaxed));
            for s in t.peers.all() {
                if overslept && s.condemned().is_none() {
                    s.touch(now);
                } else {
                    check(&server, &t, s);
                }
            }
        }
    }
}

fn check(server: &Arc<Server>, t: &Arc<Target>, s: Arc<Session>) {
    let Some(heard) = s.last_heard() else { return };
    let silent = server.world.now().since(heard);
    let condemned = s.condemned();
    let doubted = s.is_doubted();
    let patience = if doubted { EVICT_DOUBTED_INTERVALS } else { EVICT_INTERVALS };
    let ping = Duration::from_millis(s.ping_ms().into()).max(server.ping_interval());
    if silent < ping * patience && condemned.is_none() {
        return;
    }
    let Peer { who, name, .. } = s.describe();
    let why = match (condemned, doubted) {
        (Some(Why::Callback), _) => "it does not answer to a lock callback".to_string(),
        (Some(Why::Unrecovered), _) => "it does not end its recovery in time".to_string(),
        (Some(Why::Administrator), _) => "an administrator wants it".to_string(),
        (None, false) => format!("silent for {} ms", silent.as_millis()),
        (None, true) => format!("another target evicted it, and it is silent for {} ms", silent.as_millis()),
    };
    model::event!(
        WARN,
        ClientEvicted,
        t.label,
        "{}: evicting client '{name}' ({}, at {}): {why}",
        t.label,
        who.client,
        who.address
    );
    server.world.spawn("rpc-depart", depart(server.clone(), t.clone(), s, Departure::Evicted));
}

/// A client that is gone from one target is doubted by the others: those of this server, and those that have
/// sessions with it.
fn tell_others(server: &Server, target: &Arc<Target>, client: ClientId) {
    let now = server.world.now();
    let targets = server.lock_targets().clone();
    targets.iter().filter(|t| !Arc::ptr_eq(t, target)).for_each(|t| t.peers.doubt(client, now));
    for s in target.peers.all() {
        if target.service.sender(&s.principal()) >= Sender::Server {
            s.notify(&Notify::ClientEvicted { client: client.0 });
        }
    }
    target.service.evicted(client);
}

/// Ends a session for good: nothing new starts, what runs ends, the service drops the client, and only
/// then may it come again. The connection of an evicted client is closed at once; one that says good-bye
/// gets its answer first.
pub(super) async fn depart(server: Arc<Server>, target: Arc<Target>, session: Arc<Session>, how: Departure) {
    let heard = session.last_heard();
    if !session.leave() {
        return;
    }
    if how == Departure::Evicted {
        session.close_link();
        target.peers.evicted.fetch_add(1, Ordering::Relaxed);
        tell_others(&server, &target, session.client);
        // Who was heard of late uses what was leased to it until it knows, or its lease is over.
        let life = target.peers.lease_life() * LEASE_MARGIN_X10 / 10;
        let rest = heard.map_or(life, |t| life.saturating_sub(server.world.now().since(t)));
        let mut stop = Box::pin(server.stopped.notified());
        stop.as_mut().enable();
        if !server.stopping.load(Ordering::Acquire) {
            select(stop, server.world.sleep(rest)).await;
        }
    }
    drop(server);
    target.service.leaving(session.client);
    session.idle().await;
    assert!(session.is_over(), "no request outlives its client");
    target.service.clone().departed(session.client, how).await;
    let mut g = target.peers.map();
    if g.get(&session.client).is_some_and(|s| same(s, &session)) {
        g.remove(&session.client);
    }
}

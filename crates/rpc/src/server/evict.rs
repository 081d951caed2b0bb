//! Clients that are gone: silent for too long, thrown out, or after their good-bye.

use super::session::{Session, same};
use super::{Departure, EVICT_INTERVALS, Server, Target};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use world::{Either, select};

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
        if let Either::Left(()) = select(stop, server.world.sleep(step)).await {
            return;
        }
        let now = server.world.now();
        // A server that was stopped or starved for a while has not heard anybody: that is not their fault.
        let overslept = now.since(last) > step + server.ping_interval();
        last = now;
        let targets = server.lock_targets().clone();
        for t in targets {
            for s in t.peers.all() {
                if overslept && !s.is_condemned() {
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
    let condemned = s.is_condemned();
    if silent < server.ping_interval() * EVICT_INTERVALS && !condemned {
        return;
    }
    let (client, name, peer, _) = s.describe();
    let why = match condemned {
        true => "it does not answer to a lock callback".to_string(),
        false => format!("silent for {} ms", silent.as_millis()),
    };
    tracing::warn!("{}: evicting client '{name}' ({client}, at {peer}): {why}", t.label);
    server.world.spawn("rpc-depart", depart(t.clone(), s, Departure::Evicted));
}

/// Ends a session for good: nothing new starts, what runs ends, the service drops the client, and only
/// then may it come again. The connection of an evicted client is closed at once; one that says good-bye
/// gets its answer first.
pub(super) async fn depart(target: Arc<Target>, session: Arc<Session>, how: Departure) {
    if !session.leave() {
        return;
    }
    if how == Departure::Evicted {
        session.close_link();
    }
    target.service.leaving(session.client);
    session.idle().await;
    target.service.clone().departed(session.client, how).await;
    let mut g = target.peers.map();
    if g.get(&session.client).is_some_and(|s| same(s, &session)) {
        g.remove(&session.client);
    }
}

//! A server with an address on each of several networks, one of which says nothing any more: is it slow, or
//! is it the network? A server that works on something answers a new connection all the same. If an address
//! on another network answers and this one does not, the session goes there, long before a ping counts as
//! lost. Addresses on the same network are of other hosts, which answer for themselves.

use crate::probe;
use model::Nid;
use model::planted::{self, Bug};
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::Duration;
use world::{BoxFuture, Either, World, select};

/// Without a word for so long, with a request under way, a server is asked for one.
pub(super) const QUIET: Duration = Duration::from_millis(200);
/// Without an answer for so long its addresses are asked.
pub(super) const UNANSWERED: Duration = Duration::from_millis(200);
/// How often it is looked, while requests are under way and while none are.
pub(super) const LOOK_BUSY: Duration = Duration::from_millis(50);
pub(super) const LOOK_IDLE: Duration = Duration::from_millis(200);
/// After an answer nobody is asked again for so long.
pub(super) const PEACE: Duration = Duration::from_secs(1);
/// So long another address may take to answer, and this one after it.
const OTHERS: Duration = Duration::from_secs(1);
const AFTER_OTHERS: Duration = Duration::from_millis(200);
/// More are not asked: a target has a few addresses.
const OTHERS_MAX: usize = 8;

type Asked = BoxFuture<bool>;

/// Where a target's addresses are asked from, and at which port.
pub(super) struct Way {
    pub world: World,
    pub bind: Option<IpAddr>,
    pub port: u16,
}

/// Whether a server answers there.
fn ask(way: &Way, nid: Nid) -> Asked {
    let (w, bind, to) = (way.world.clone(), way.bind, SocketAddr::new(nid.addr, way.port));
    Box::pin(async move {
        let asked = async { probe(&w, bind, to, "a client that hears nothing").await };
        w.timeout(OTHERS, asked).await.is_some_and(|answer| answer.is_ok())
    })
}

/// The first that ends, which is taken out. The one that was begun first goes before others that are ready
/// too.
pub(super) async fn first<T>(under_way: &mut Vec<(Nid, BoxFuture<T>)>) -> (Nid, T) {
    std::future::poll_fn(|cx| {
        for (i, (_, one)) in under_way.iter_mut().enumerate() {
            if let Poll::Ready(outcome) = one.as_mut().poll(cx) {
                let (nid, _ended) = under_way.remove(i);
                return Poll::Ready((nid, outcome));
            }
        }
        Poll::Pending
    })
    .await
}

/// The first that answers.
async fn any(mut asked: Vec<(Nid, Asked)>) -> Option<Nid> {
    while !asked.is_empty() {
        if let (nid, true) = first(&mut asked).await {
            return Some(nid);
        }
    }
    None
}

/// Whether the server that is heard at `here` may be heard on another network, too.
pub(super) fn has_other_way(nids: &[Nid], here: Nid) -> bool {
    nids.iter().any(|n| n.net != here.net)
}

/// An address on another network that answers while `nid` does not; `None`: `nid` answers, or nobody does.
pub(super) fn look(way: &Way, nids: &[Nid], nid: Nid) -> BoxFuture<Option<Nid>> {
    let others: Vec<Nid> = nids.iter().filter(|n| n.net != nid.net).take(OTHERS_MAX).copied().collect();
    assert!(others.len() <= OTHERS_MAX, "a few are asked");
    let there = any(others.into_iter().map(|n| (n, ask(way, n))).collect());
    let (mut here, w) = (ask(way, nid), way.world.clone());
    Box::pin(async move {
        let mut there = Box::pin(there);
        match select(&mut here, &mut there).await {
            Either::Left(true) => None,
            Either::Left(false) => there.await,
            Either::Right(None) => None,
            Either::Right(Some(other)) => match w.timeout(AFTER_OTHERS, here).await {
                Some(true) => None,
                Some(false) | None if planted::on(Bug::SilentAddressKept) => None,
                Some(false) | None => Some(other),
            },
        }
    })
}

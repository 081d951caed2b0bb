//! Connections to the addresses of a target, begun one soon after the other: a host that is gone, or asleep,
//! says nothing for seconds, and costs no more than the moment until the next one is asked. After RFC 8305
//! ("Happy Eyeballs"), §5.

use super::Core;
use super::doubt::first;
use crate::probe;
use model::Nid;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use world::{BoxFuture, Conn, Either, World, select};

const PATIENCE: Duration = Duration::from_secs(5);
/// The next address is asked so long after the last one, if none has answered: RFC 8305's "Connection Attempt
/// Delay".
const NEXT_AFTER: Duration = Duration::from_millis(250);

type Dialling = BoxFuture<io::Result<Arc<dyn Conn>>>;

/// One round over the addresses of a target. Dropping it gives up what is under way.
pub(super) struct Dial {
    world: World,
    bind: Option<std::net::IpAddr>,
    port: u16,
    /// Only then there is somebody else to ask.
    several: bool,
    todo: VecDeque<Nid>,
    under_way: Vec<(Nid, Dialling)>,
}

impl Dial {
    pub(super) fn new(core: &Core, nids: Vec<Nid>) -> Dial {
        let (bind, port) = (core.cfg.bind, core.cfg.port);
        let (several, todo) = (nids.len() > 1, nids.into());
        Dial { world: core.world.clone(), bind, port, several, todo, under_way: Vec::new() }
    }

    /// The next address that has an outcome, in the order in which they come; `None` after all of them. With
    /// several of them a server that answers listens there.
    pub(super) async fn next(&mut self) -> Option<(Nid, io::Result<Arc<dyn Conn>>)> {
        loop {
            if self.under_way.is_empty() && !self.begin() {
                return None;
            }
            let w = self.world.clone();
            if self.todo.is_empty() {
                return Some(first(&mut self.under_way).await);
            }
            match select(first(&mut self.under_way), w.sleep(NEXT_AFTER)).await {
                Either::Left(outcome) => return Some(outcome),
                Either::Right(()) => self.begin(),
            };
        }
    }

    /// Asks one more address; false if there is none.
    fn begin(&mut self) -> bool {
        let Some(nid) = self.todo.pop_front() else { return false };
        let (w, bind, to) = (self.world.clone(), self.bind, SocketAddr::new(nid.addr, self.port));
        let several = self.several;
        let dial = async move {
            let reached = async {
                // The kernel of a host whose server is stopped takes connections all the same.
                if several {
                    probe(&w, bind, to, "a client that looks for a target").await?;
                }
                w.net.connect(bind, to).await
            };
            let silent = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
            w.timeout(PATIENCE, reached).await.unwrap_or_else(|| Err(silent()))
        };
        self.under_way.push((nid, Box::pin(dial)));
        true
    }
}

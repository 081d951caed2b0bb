//! The addresses of hosts that are named: looked up when they are used, so that a host whose address changed
//! is found again.

use model::{HostNid, Nid};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;
use world::World;

/// A name service that says nothing costs no more than this; the other hosts are asked then.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of some hosts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// Their addresses, in the order of the hosts, none twice.
    pub nids: Vec<Nid>,
    /// The hosts that have none, and why.
    pub unknown: Vec<(HostNid, String)>,
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<Vec<Nid>, String>> + Send + 'a>>;

async fn one(world: &World, host: &HostNid) -> Result<Vec<Nid>, String> {
    let (name, net) = match host {
        HostNid::Addr(nid) => return Ok(vec![*nid]),
        HostNid::Name { host, net } => (host, *net),
    };
    let mut found = match world.timeout(PATIENCE, world.net.resolve(name)).await {
        None => return Err(format!("the name service did not answer within {} s", PATIENCE.as_secs())),
        Some(Err(e)) => return Err(format!("no host of this name is known ({e})")),
        Some(Ok(found)) => found,
    };
    // Debian's /etc/hosts gives a host an address in 127.0.0.0/8 beside its own: nobody else finds it there.
    if found.iter().any(|a| !a.is_loopback()) {
        found.retain(|a| !a.is_loopback());
    }
    if found.is_empty() {
        return Err("it has no address".to_string());
    }
    Ok(found.into_iter().map(|addr| Nid { addr, net }).collect())
}

/// The addresses of these hosts; all names are looked up at the same time.
pub async fn look_up(world: &World, hosts: &[HostNid]) -> LookedUp {
    let asked = hosts.iter().map(|h| -> Asked<'_> { Box::pin(one(world, h)) }).collect();
    let answers = world::future::join_all(asked).await;
    assert_eq!(answers.len(), hosts.len(), "each host has an answer");
    let (mut out, mut seen) = (LookedUp::default(), BTreeSet::new());
    for (host, answer) in hosts.iter().zip(answers) {
        match answer {
            Ok(nids) => out.nids.extend(nids.into_iter().filter(|n| seen.insert(*n))),
            Err(why) => out.unknown.push((host.clone(), why)),
        }
    }
    out
}

//! An MGS, metadata targets and object targets, each a server with an address of its own, for the layers that
//! know all of them.

use super::{Answers, Fake, FakeMdt, FakeMgs, FakeOst, ip, serve};
use model::{HostNid, Nid, TargetId};
use rpc::testing::Lab;
use rpc::{Peers, Server};
use std::net::IpAddr;
use std::sync::Arc;
use world::World;

const CLIENT: u8 = 200;
const FIRST_MDT: u8 = 10;
const FIRST_OST: u8 = 100;

/// A target and its server.
pub(crate) struct FakeServer<A> {
    pub fake: Arc<Fake<A>>,
    pub server: Arc<Server>,
    pub peers: Peers,
    pub at: IpAddr,
}

impl<A: Answers> FakeServer<A> {
    async fn new(lab: &Lab, id: TargetId, n: u8, answers: A) -> FakeServer<A> {
        let (world, at) = (node(lab, n), ip(n));
        let fake = Fake::new(&world, id, answers);
        let (server, peers) = serve(&world, at, fake.clone()).await;
        FakeServer { fake, server, peers, at }
    }

    /// As after a crash.
    pub fn restart(&self) {
        self.fake.restart(&self.server, &self.peers);
    }
}

/// See the module.
pub(crate) struct Cluster {
    lab: Lab,
    /// The client's.
    pub world: World,
    pub mgs: FakeServer<FakeMgs>,
    pub mdts: Vec<FakeServer<FakeMdt>>,
    pub osts: Vec<FakeServer<FakeOst>>,
}

impl Cluster {
    /// All of them are in the target map.
    pub async fn new(lab: &Lab, mdts: u16, osts: u16) -> Cluster {
        let mgs = FakeServer::new(lab, TargetId::MGT, 1, FakeMgs::new()).await;
        let (mut all_osts, mut all_mdts) = (Vec::new(), Vec::new());
        for i in 0..osts {
            let (id, n) = (TargetId::ost(i), FIRST_OST + i as u8);
            all_osts.push(FakeServer::new(lab, id, n, FakeOst::new()).await);
            mgs.fake.place(id, ip(n));
        }
        for i in 0..mdts {
            let (id, n) = (TargetId::mdt(i), FIRST_MDT + i as u8);
            let answers = FakeMdt::new(all_osts.iter().map(|o| o.fake.clone()).collect());
            all_mdts.push(FakeServer::new(lab, id, n, answers).await);
            mgs.fake.place(id, ip(n));
        }
        Cluster { lab: lab.clone(), world: node(lab, CLIENT), mgs, mdts: all_mdts, osts: all_osts }
    }

    /// One more object target, which is not in the target map.
    pub async fn add_ost(&mut self) {
        let i = self.osts.len() as u16;
        let site = FakeServer::new(&self.lab, TargetId::ost(i), FIRST_OST + i as u8, FakeOst::new()).await;
        self.osts.push(site);
    }

    /// One more host.
    pub fn node(&self, n: u8) -> World {
        node(&self.lab, n)
    }

    pub fn mgs_nids(&self) -> Vec<HostNid> {
        vec![Nid { addr: self.mgs.at, net: 0 }.into()]
    }

    /// A server is away: its connections are broken, and nobody reaches it.
    pub fn away(&self, at: IpAddr) {
        self.lab.silence(at, true);
        self.lab.cut(at);
    }

    pub fn back(&self, at: IpAddr) {
        self.lab.silence(at, false);
    }

    /// Requests that any server has executed or refused.
    pub fn requests(&self) -> usize {
        let mdts = self.mdts.iter().map(|s| s.fake.seen().len());
        let osts = self.osts.iter().map(|s| s.fake.seen().len());
        self.mgs.fake.seen().len() + mdts.chain(osts).sum::<usize>()
    }
}

fn node(lab: &Lab, n: u8) -> World {
    lab.node(ip(n), Arc::new(world::mem::MemDisk::new())).0
}

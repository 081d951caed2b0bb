//! Several MGSs over one etcd: one is active, its end is not noticed, and one that woke up late changes
//! nothing.

use crate::etcd::{EtcdBook, TakeError, vacancy};
use crate::testing::{Open, TheirServer, register};
use crate::{Book, Mgs};
use bytes::Bytes;
use etcd::Etcd;
use etcd::fake::{Fake, Member};
use model::{Errno, Nid, TargetId};
use rpc::testing::Lab;
use rpc::{Import, ImportConfig, Peers, Server};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use store::{StoreError, Txn};
use wire::msg::config::Config;
use wire::msg::param::SetParam;
use wire::msg::register::Register;
use wire::{Message, RequestContext};
use world::World;
use world::mem::MemDisk;

const PORT: u16 = 988;
const TERM: Duration = Duration::from_secs(10);

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

struct Host {
    world: World,
    node: u64,
    n: u8,
    etcd: Arc<Etcd>,
}

fn host(lab: &Lab, fake: &Fake, n: u8) -> Host {
    let (w, node) = lab.node(ip(n), Arc::new(MemDisk::new()));
    let world = fake.reach(&w);
    let etcd = Etcd::new(&world, &fake.url().parse().unwrap());
    Host { world, node, n, etcd }
}

fn lab(seed: u64) -> (Lab, Fake) {
    let lab = Lab::new(seed);
    let (w, _) = lab.node(ip(200), Arc::new(MemDisk::new()));
    let fake = Fake::new(&w, 3);
    (lab, fake)
}

impl Host {
    async fn take(&self) -> Result<Arc<EtcdBook>, TakeError> {
        EtcdBook::take(&self.etcd, &format!("host{}", self.n), TERM, 0).await
    }

    async fn serve(&self, book: Arc<EtcdBook>) -> Arc<Mgs> {
        let peers = Peers::new();
        let mgs = Mgs::open(&self.world, book, peers.clone()).unwrap();
        let server = Server::new(self.world.clone(), format!("host{}", self.n));
        server.set_abort_on_panic(false);
        server.add(Arc::new(Open(mgs.clone())), peers);
        let listener = self.world.net.listen(SocketAddr::new(ip(self.n), PORT)).await.unwrap();
        self.world.spawn("server", async move { server.run(listener).await });
        mgs
    }
}

fn client(lab: &Lab, n: u8) -> Arc<Import> {
    let (w, _) = lab.node(ip(n), Arc::new(MemDisk::new()));
    let nids = [1, 2].map(|n| Nid { addr: ip(n), net: 0 }).to_vec();
    let cfg = ImportConfig {
        target: TargetId::MGT,
        fsname: "demo".into(),
        nids,
        port: PORT,
        bind: None,
        networks: Default::default(),
        client_uuid: [n; 16],
        client_name: format!("node {n}"),
        slots: 4,
        hooks: Arc::new(TheirServer),
        adaptive: Arc::default(),
    };
    Import::new(w, cfg)
}

async fn ask<M: Message>(i: &Arc<Import>, m: M) -> Result<M::Reply, Errno> {
    i.call(RequestContext::default(), m, Bytes::new()).await.map(|r| r.reply)
}

fn target(index: u16, uuid: u8) -> Register {
    Register {
        fsname: "demo".into(),
        target: TargetId::ost(index),
        fs_uuid: [0; 16],
        target_uuid: [uuid; 16],
        nids: vec![Nid { addr: ip(uuid), net: 0 }],
        epoch: 1,
        first_time: true,
        replace: false,
        params: (0..150).map(|n| (format!("osc.*.many{n}"), "1".into())).collect(),
    }
}

fn permanent(name: &str, value: &str) -> SetParam {
    SetParam { name: name.into(), value: value.into(), permanent: true, delete: false }
}

#[test]
fn another_host_goes_on_where_the_active_one_died() {
    for seed in 0..8 {
        let (lab, fake) = lab(seed);
        lab.run(async {
            let (a, b) = (host(&lab, &fake, 1), host(&lab, &fake, 2));
            let book = a.take().await.unwrap();
            assert!(book.is_empty() && book.epoch() == 1);
            a.serve(book).await;
            let Err(TakeError::Busy(who)) = b.take().await else { panic!("two are active") };
            assert_eq!(who, "host1");
            let i = client(&lab, 10);
            // More than etcd takes at a time.
            register(&i, target(0, 20)).await.unwrap();
            ask(&i, permanent("osc.*.checksums", "0")).await.unwrap();
            let before = ask(&i, Config { fsname: "demo".into() }).await.unwrap();
            assert_eq!(before.params.len(), 151);
            let call = ask(&i, permanent("osc.*.checksums", "1"));
            lab.kill(a.node, ip(1));
            let t = b.world.now();
            vacancy(&b.etcd).await.unwrap();
            let took = b.world.now().since(t);
            assert!(took <= TERM + Duration::from_secs(2), "{took:?}");
            let book = b.take().await.unwrap();
            assert_eq!(book.epoch(), 2);
            let mgs = b.serve(book.clone()).await;
            call.await.unwrap();
            let after = ask(&i, Config { fsname: "demo".into() }).await.unwrap();
            assert_eq!(after.version, before.version + 1, "once");
            assert_eq!(after.targets, before.targets);
            assert_eq!(mgs.config("demo").unwrap(), after);
            // In order: nobody has to wait.
            book.end().await;
            let book = host(&lab, &fake, 3).take().await.unwrap();
            assert_eq!(book.epoch(), 3);
            assert_eq!(crate::load_config(&*book, "demo").unwrap().unwrap(), after);
        });
    }
}

#[test]
fn one_that_lost_its_lease_writes_and_says_nothing() {
    let (lab, fake) = lab(1);
    lab.run(async {
        let (a, b) = (host(&lab, &fake, 1), host(&lab, &fake, 2));
        let old = a.take().await.unwrap();
        let put = |v: &str| {
            let mut t = Txn::new();
            t.put(*b"Gvx", v.as_bytes());
            t
        };
        let lsn = old.submit(put("1")).unwrap();
        old.clone().durable(lsn).await.unwrap();
        let leader = fake.dump().iter().filter(|(k, _)| k == "/test/mgs/leader").count();
        assert_eq!(leader, 1);
        // A process that slept: it does not know yet.
        for id in 101..110 {
            fake.end_lease(id);
        }
        let new = b.take().await.unwrap();
        assert!(old.is_held(), "it believes so");
        let lsn = old.submit(put("2")).unwrap();
        let said = old.clone().durable(lsn).await.unwrap_err();
        assert!(matches!(&said, StoreError::Stopped(w) if w.contains("host2")), "{said}");
        assert!(!old.is_held() && old.submit(put("3")).is_err());
        assert!(old.lost().await.contains("another MGS took over"));
        assert_eq!(new.get(b"Gvx").unwrap().unwrap(), b"1");
        assert!(!fake.dump().iter().any(|(k, v)| k.ends_with("Gvx") && v != "1"));
    });
}

#[test]
fn an_answer_that_is_lost_changes_nothing_and_no_majority_ends_it() {
    let (lab, fake) = lab(2);
    lab.run(async {
        let a = host(&lab, &fake, 1);
        let book = a.take().await.unwrap();
        let put = |v: u32| {
            let mut t = Txn::new();
            t.put(*b"Gvx", v.to_string());
            t
        };
        for n in 0..30 {
            let member = lab.random(3) as usize;
            fake.set(member, Member::Forgetful);
            let lsn = book.submit(put(n)).unwrap();
            book.clone().durable(lsn).await.unwrap();
            fake.set(member, Member::Up);
        }
        assert!(fake.dump().iter().any(|(k, v)| k.ends_with("Gvx") && v == "29"));
        fake.set_all(Member::NoLeader);
        let lsn = book.submit(put(30)).unwrap();
        a.world.sleep(Duration::from_secs(2)).await;
        assert!(book.is_held(), "a short pause is waited for");
        fake.set_all(Member::Up);
        book.clone().durable(lsn).await.unwrap();
        fake.set_all(Member::NoLeader);
        let lsn = book.submit(put(31)).unwrap();
        let t = a.world.now();
        let said = book.clone().durable(lsn).await.unwrap_err().to_string();
        assert!(a.world.now().since(t) <= Duration::from_secs(8), "it has an end");
        assert!(said.contains("half its term"), "{said}");
        fake.set_all(Member::Up);
        a.world.sleep(TERM).await;
        let book = a.take().await.unwrap();
        assert!(!book.is_empty(), "what was there is there");
    });
}

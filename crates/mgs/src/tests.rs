//! The MGS over sessions, in the small world of `rpc::testing`: with restarts, power cuts and several
//! clients.

use crate::mounts::{Mounts, Standing};
use crate::registration::Order;
use crate::restore::{ConfigAnswer, ConfigOrder};
use crate::testing::{Open, TheirServer, key_of, register};
use crate::{Mgs, load_config};
use bytes::Bytes;
use model::mutex::Mutex;
use model::param::testing::every_declaration_holds;
use model::{Cred, Errno, Nid, TargetId};
use rpc::testing::{Faults, Lab};
use rpc::{Import, ImportConfig, ImportHooks, NoHooks, Peers, Server};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use store::{Db, DbOptions};
use wire::context::MaintenanceStanding;
use wire::msg::config::{Config, ConfigReply, EXTRA_SERVER_KEY};
use wire::msg::configview::{Configview, ConfigviewReply, PIECE_MAX_BYTES, View};
use wire::msg::connect::extra_key;
use wire::msg::notify::Notify;
use wire::msg::param::{GetParam, SetParam};
use wire::msg::register::{EXTRA_DOMAIN, EXTRA_TARGET_KEY, Register, RegisterReply};
use wire::proof::{Claimant, Key};
use wire::{Message, RequestContext};
use world::World;
use world::mem::MemDisk;
use world::rng::Rng;

const PORT: u16 = 988;
const DIR: &str = "/mgt";

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

struct Site {
    lab: Lab,
    disk: MemDisk,
    node: u64,
    epoch: u32,
    mgs: Option<Arc<Mgs>>,
    db: Option<Arc<Db>>,
}

impl Site {
    fn new(seed: u64) -> Site {
        let lab = Lab::new(seed);
        let disk = MemDisk::new();
        let (w, _) = lab.node(ip(200), Arc::new(disk.clone()));
        w.disk.mkdir(DIR).unwrap();
        w.disk.sync_dir("/").unwrap();
        Db::create(&w, DIR).unwrap();
        Site { lab, disk, node: 0, epoch: 0, mgs: None, db: None }
    }

    async fn start(&mut self) {
        self.epoch += 1;
        let (w, node) = self.lab.node(ip(1), Arc::new(self.disk.clone()));
        self.node = node;
        let db = Db::open(&w, DIR, self.epoch, DbOptions::default()).unwrap();
        let peers = Peers::new();
        let mgs = Mgs::open(&w, db.clone(), peers.clone()).unwrap();
        let server = Server::new(w.clone(), "mgs".into());
        server.set_abort_on_panic(false);
        server.add(Arc::new(Open(mgs.clone())), peers);
        let listener = w.net.listen(SocketAddr::new(ip(1), PORT)).await.unwrap();
        w.spawn("server", async move { server.run(listener).await });
        (self.mgs, self.db) = (Some(mgs), Some(db));
    }

    /// The machine loses its power.
    fn crash(&mut self, seed: u64) {
        self.lab.kill(self.node, ip(1));
        (self.mgs, self.db) = (None, None);
        self.disk.crash(&mut Rng::new(seed));
    }

    fn client(&self, n: u8, hooks: Arc<dyn ImportHooks>) -> (World, Arc<Import>) {
        let (w, _) = self.lab.node(ip(n), Arc::new(MemDisk::new()));
        let cfg = ImportConfig {
            target: TargetId::MGT,
            fsname: "demo".into(),
            nids: vec![Nid { addr: ip(1), net: 0 }],
            port: PORT,
            bind: None,
            networks: Default::default(),
            client_uuid: [n; 16],
            client_name: format!("node {n}"),
            slots: 4,
            hooks,
            adaptive: Arc::default(),
        };
        (w.clone(), Import::new(w, cfg))
    }
}

async fn ask<M: Message>(i: &Arc<Import>, m: M) -> Result<M::Reply, Errno> {
    i.call(RequestContext::default(), m, Bytes::new()).await.map(|r| r.reply)
}

fn target(fsname: &str, target: TargetId, uuid: u8, epoch: u32) -> Register {
    Register {
        fsname: fsname.into(),
        target,
        fs_uuid: [0; 16],
        target_uuid: [uuid; 16],
        nids: vec![Nid { addr: ip(uuid), net: 0 }],
        epoch,
        first_time: epoch == 1,
        replace: false,
        params: Vec::new(),
    }
}

fn permanent(name: &str, value: &str) -> SetParam {
    SetParam { name: name.into(), value: value.into(), permanent: true, delete: false }
}

async fn config(i: &Arc<Import>, fsname: &str) -> Result<ConfigReply, Errno> {
    ask(i, Config { fsname: fsname.into() }).await
}

#[derive(Default)]
struct Ears(Mutex<Vec<u64>>);

impl ImportHooks for Ears {
    fn notify(&self, n: Notify) {
        if let Notify::ConfigChanged { version } = n {
            self.0.lock().push(version);
        }
    }
}

#[test]
fn targets_register_in_any_order_and_survive_a_power_cut() {
    let mut s = Site::new(1);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let ears = Arc::new(Ears::default());
        let (w, i) = s.client(10, ears.clone());
        let (_, other) = s.client(11, Arc::new(TheirServer));
        assert_eq!(config(&i, "demo").await, Err(Errno::ENOENT));
        // An OST is first; it gives the file system its identity.
        let mut first = target("demo", TargetId::ost(0), 20, 1);
        first.params = vec![("osc.*.max_dirty_mb".into(), "64".into()), ("bad name".into(), "x".into())];
        let r: RegisterReply = register(&other, first).await.unwrap();
        assert_ne!(r.fs_uuid, [0; 16]);
        let r2 = register(&other, target("demo", TargetId::mdt(0), 21, 1)).await.unwrap();
        assert_eq!(r2.fs_uuid, r.fs_uuid);
        let r3 = register(&other, target("second", TargetId::mdt(0), 22, 1)).await.unwrap();
        assert_ne!(r3.fs_uuid, r.fs_uuid);
        let c = config(&i, "demo").await.unwrap();
        assert_eq!(
            c.targets.iter().map(|t| t.target).collect::<Vec<_>>(),
            [TargetId::mdt(0), TargetId::ost(0)]
        );
        assert_eq!(c.params, [("osc.*.max_dirty_mb".to_string(), "64".to_string())]);
        assert_eq!(config(&i, "second").await.unwrap().targets.len(), 1);
        assert_eq!(config(&i, "third").await, Err(Errno::ENOENT));
        // Everybody heard of each change.
        while ears.0.lock().len() < 3 {
            w.sleep(Duration::from_millis(1)).await;
        }
        assert!(ears.0.lock().is_sorted());
        let v = c.version;
        s.crash(5);
        s.start().await;
        let c2 = config(&i, "demo").await.unwrap();
        assert_eq!(ConfigReply { version: v, ..c2.clone() }, ConfigReply { version: v, ..c.clone() });
        assert!(c2.version >= v);
        assert_eq!(load_config(&**s.db.as_ref().unwrap(), "demo").unwrap(), Some(c2));
        assert_eq!(load_config(&**s.db.as_ref().unwrap(), "none").unwrap(), None);
        // The restarted target comes with a new epoch and another address.
        let again =
            Register { nids: vec![Nid { addr: ip(99), net: 0 }], ..target("demo", TargetId::ost(0), 20, 2) };
        let r = register(&other, again).await.unwrap();
        assert_eq!(r.config.targets[1].nids, [Nid { addr: ip(99), net: 0 }]);
        assert!(r.config.version > v);
    });
}

#[test]
fn a_target_says_where_it_stands_and_an_older_one_stays_where_it_was() {
    let mut s = Site::new(3);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (_, i) = s.client(10, Arc::new(TheirServer));
        let ost = TargetId::ost(0);
        let say = async |epoch: u32, domain: Option<&[u8]>| {
            let placed = domain.map(|d| (EXTRA_DOMAIN, d.to_vec()));
            let extra = placed.into_iter().chain([(EXTRA_TARGET_KEY, key_of([20; 16]).to_vec())]).collect();
            let ctx = RequestContext { extra, ..RequestContext::default() };
            let done = i.call(ctx, target("demo", ost, 20, epoch), Bytes::new()).await;
            done.map(|r| r.reply.config.targets[0].domains.join("/"))
        };
        assert_eq!(say(1, Some(b"rack1/host3")).await, Ok("rack1/host3".into()));
        assert_eq!(say(2, None).await, Ok("rack1/host3".into()), "an older server knows no domains");
        for bad in [&b"/"[..], b"a b", b"\xff", &[b'x'; 5000]] {
            assert_eq!(say(3, Some(bad)).await, Err(Errno::EINVAL), "{bad:?}");
        }
        s.crash(4);
        s.start().await;
        assert_eq!(say(3, Some(b"rack2/host3")).await, Ok("rack2/host3".into()), "it was moved");
        let told = s.mgs.clone().unwrap().administer("demo-OST0000", &Order::Show).await.unwrap();
        assert!(told.contains("domain: rack2/host3\n"), "{told}");
        assert_eq!(say(4, Some(b"")).await, Ok(String::new()));
        let told = s.mgs.clone().unwrap().administer("demo-OST0000", &Order::Show).await.unwrap();
        assert!(told.contains(&format!("domain: {}\n", Nid { addr: ip(20), net: 0 })), "{told}");
    });
}

#[test]
fn an_index_in_use_is_refused_and_replaced_when_allowed() {
    let mut s = Site::new(2);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (_, i) = s.client(10, Arc::new(TheirServer));
        register(&i, target("demo", TargetId::ost(3), 20, 4)).await.unwrap();
        assert_eq!(
            register(&i, target("demo", TargetId::ost(3), 21, 1)).await.err(),
            Some(Errno::EADDRINUSE)
        );
        assert_eq!(register(&i, target("demo", TargetId::ost(3), 20, 3)).await.err(), Some(Errno::ESTALE));
        let foreign = Register { fs_uuid: [77; 16], ..target("demo", TargetId::ost(4), 22, 1) };
        assert_eq!(register(&i, foreign).await.err(), Some(Errno::EINVAL));
        let new = Register { replace: true, ..target("demo", TargetId::ost(3), 21, 1) };
        assert_eq!(register(&i, new.clone()).await.err(), Some(Errno::EACCES), "nobody allowed it");
        let mgs = s.mgs.clone().unwrap();
        let told = mgs.administer("demo-OST0003", &Order::Open).await.unwrap();
        assert!(told.contains("may be replaced: yes"), "{told}");
        // What an administrator allowed is remembered.
        s.crash(3);
        s.start().await;
        let r = register(&i, new).await.unwrap();
        assert_eq!(r.config.targets.len(), 1);
        assert_eq!(r.config.targets[0].target_uuid, [21; 16]);
    });
}

#[test]
fn parameters_are_checked_stored_and_taken_back() {
    let mut s = Site::new(3);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (_, i) = s.client(10, Arc::new(TheirServer));
        register(&i, target("demo", TargetId::ost(0), 20, 1)).await.unwrap();
        ask(&i, permanent("osc.*.checksums", "0")).await.unwrap();
        assert_eq!(ask(&i, permanent("no blanks.x", "0")).await.err(), Some(Errno::EINVAL));
        let user = RequestContext { cred: Cred::new(1000, 1000), ..RequestContext::default() };
        let r = i.call(user, permanent("osc.*.checksums", "1"), Bytes::new()).await;
        assert_eq!(r.err(), Some(Errno::EPERM));
        s.crash(9);
        s.start().await;
        assert_eq!(
            config(&i, "demo").await.unwrap().params,
            [("osc.*.checksums".to_string(), "0".to_string())]
        );
        let shown = ask(&i, GetParam { pattern: "mgs.*.filesystems".into() }).await.unwrap();
        assert_eq!(shown.values, [("mgs.MGS.filesystems".to_string(), "demo".to_string())]);
        assert_eq!(ask(&i, GetParam { pattern: "mdt.*".into() }).await.err(), Some(Errno::ENOENT));
        let mgs = s.mgs.clone().unwrap();
        every_declaration_holds(&mgs.params("mgs.*.*"));
        every_declaration_holds(&mgs.params("mgs.MGS.live.*"));
        let all = ask(&i, GetParam { pattern: "mgs.*.*".into() }).await.unwrap();
        let names: Vec<&str> = all.values.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["mgs.MGS.filesystems", "mgs.MGS.num_exports", "mgs.MGS.params"]);
        let live = ask(&i, GetParam { pattern: "mgs.MGS.live.*".into() }).await.unwrap();
        assert_eq!(live.values.len(), 1);
        assert!(live.values[0].1.starts_with("demo-OST0000 epoch 1 "), "{live:?}");
        ask(&i, SetParam { delete: true, ..permanent("osc.*.checksums", "") }).await.unwrap();
        assert_eq!(config(&i, "demo").await.unwrap().params, []);
        ask(&i, permanent("osc.demo-OST0000*.active", "0")).await.unwrap();
        assert!(!config(&i, "demo").await.unwrap().targets[0].active);
    });
}

#[test]
fn changes_are_made_once_and_in_order_through_cuts_and_restarts() {
    for seed in 0..12 {
        let mut s = Site::new(100 + seed);
        let lab = s.lab.clone();
        lab.faults(Faults { cut_ppm: 30_000, delay_max_us: 3000 });
        lab.run(async {
            s.start().await;
            let (w, i) = s.client(10, Arc::new(TheirServer));
            let (_, j) = s.client(11, Arc::new(TheirServer));
            register(&i, target("demo", TargetId::ost(0), 20, 1)).await.unwrap();
            let start = config(&i, "demo").await.unwrap().version;
            let done = Arc::new(Mutex::new(0));
            let changes = done.clone();
            w.spawn("changes", async move {
                for n in 0..30 {
                    // The other one's change is the later one: a repeat of the first would undo it.
                    ask(&i, permanent("a.b", &format!("first {n}"))).await.unwrap();
                    ask(&j, permanent("a.b", &format!("second {n}"))).await.unwrap();
                    let c = config(&i, "demo").await.unwrap();
                    assert_eq!(c.params[0].1, format!("second {n}"));
                    assert_eq!(c.version, start + 2 * (n + 1), "each change counts once");
                    *changes.lock() += 1;
                }
            });
            let (clock, _) = lab.node(ip(201), Arc::new(MemDisk::new()));
            let mut k = 0;
            while *done.lock() < 30 {
                clock.sleep(Duration::from_millis(100 + lab.random(400))).await;
                k += 1;
                if k < 5 {
                    s.crash(seed * 10 + k);
                    s.start().await;
                }
                assert!(k < 10_000, "the changes do not come to an end");
            }
        });
    }
}

#[test]
fn clients_that_do_not_come_back_are_forgotten() {
    let mut s = Site::new(4);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (w, stays) = s.client(10, Arc::new(TheirServer));
        let (_, goes) = s.client(11, Arc::new(TheirServer));
        let (_, leaves) = s.client(12, Arc::new(TheirServer));
        for i in [&stays, &goes, &leaves] {
            register(i, target("demo", TargetId::ost(0), 20, 1)).await.unwrap();
        }
        let records = |s: &Site| {
            let db = s.db.as_ref().unwrap();
            (db.scan(b"N", b"O", 9).unwrap().len(), db.scan(b"R", b"S", 9).unwrap().len())
        };
        assert_eq!(records(&s), (3, 3));
        leaves.disconnect().await;
        assert_eq!(records(&s), (2, 2));
        s.crash(1);
        drop(goes);
        s.start().await;
        w.sleep(Duration::from_secs(90)).await;
        assert_eq!(records(&s), (1, 1));
        config(&stays, "demo").await.unwrap();
    });
}

#[test]
fn a_target_is_known_by_its_key() {
    let mut s = Site::new(5);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (_, its) = s.client(10, Arc::new(TheirServer));
        let ost = |epoch| target("demo", TargetId::ost(0), 20, epoch);
        assert_eq!(
            ask(&its, ost(1)).await.err(),
            Some(Errno::ENOKEY),
            "it is asked, and not believed before"
        );
        assert_eq!(config(&its, "demo").await, Err(Errno::ENOENT));
        let r = register(&its, ost(1)).await.unwrap();
        let secret = extra_key(&r.config.extra, EXTRA_SERVER_KEY).unwrap();
        assert!(config(&its, "demo").await.unwrap().extra.is_empty(), "that is for servers");
        // Somebody who read UUID, index and epoch in the configuration, says what he likes, and has another
        // key.
        struct Thief;
        impl ImportHooks for Thief {
            fn keys(&self) -> Vec<(Claimant, Key)> {
                vec![(Claimant::Target([20; 16]), [9; 32])]
            }
        }
        let (_, thief) = s.client(11, Arc::new(Thief));
        s.crash(2);
        s.start().await;
        let key = |k: u8| RequestContext {
            extra: vec![(EXTRA_TARGET_KEY, vec![k; 32])],
            ..RequestContext::default()
        };
        let elsewhere = Register { nids: vec![Nid { addr: ip(66), net: 0 }], ..ost(2) };
        for ctx in [RequestContext::default(), key(9), key(20 ^ 0xff)] {
            let said = thief.call(ctx, elsewhere.clone(), Bytes::new()).await.err();
            assert_eq!(said, Some(Errno::EKEYREJECTED));
        }
        assert_eq!(register(&its, ost(2)).await.unwrap().config.extra.len(), 1);
        assert_eq!(extra_key(&ask(&its, ost(2)).await.unwrap().config.extra, EXTRA_SERVER_KEY), Some(secret));
        let mgs = s.mgs.clone().unwrap();
        mgs.administer("demo-OST0000", &Order::NewKey).await.unwrap();
        // Known, but by no key (as of before there were keys): who comes first is believed, where it was.
        let said = thief.call(key(9), elsewhere, Bytes::new()).await.err();
        assert_eq!(said, Some(Errno::EKEYREJECTED));
        register(&its, ost(3)).await.unwrap();
    });
}

#[test]
fn nobody_on_the_network_is_an_administrator_nor_a_target_without_proof() {
    let lab = Lab::new(6);
    lab.run(async {
        let (w, _) = lab.node(ip(1), Arc::new(MemDisk::new()));
        w.disk.mkdir(DIR).unwrap();
        w.disk.sync_dir("/").unwrap();
        Db::create(&w, DIR).unwrap();
        let (db, peers) = (Db::open(&w, DIR, 1, DbOptions::default()).unwrap(), Peers::new());
        let server = Server::new(w.clone(), "mgs".into());
        server.add(Mgs::open(&w, db, peers.clone()).unwrap(), peers);
        let listener = w.net.listen(SocketAddr::new(ip(1), PORT)).await.unwrap();
        w.spawn("server", async move { server.run(listener).await });
        let (cw, _) = lab.node(ip(9), Arc::new(MemDisk::new()));
        let i = Import::new(
            cw,
            ImportConfig {
                target: TargetId::MGT,
                fsname: "demo".into(),
                nids: vec![Nid { addr: ip(1), net: 0 }],
                port: PORT,
                bind: None,
                networks: Default::default(),
                client_uuid: [9; 16],
                client_name: "somebody".into(),
                slots: 4,
                hooks: Arc::new(NoHooks),
                adaptive: Arc::default(),
            },
        );
        assert_eq!(ask(&i, permanent("osc.*.checksums", "0")).await.err(), Some(Errno::EPERM));
        assert_eq!(ask(&i, target("demo", TargetId::ost(0), 20, 1)).await.err(), Some(Errno::EPERM));
    });
}

#[test]
fn the_history_survives_power_cuts_and_names_who_changed_what() {
    let mut site = Site::new(77);
    let lab = site.lab.clone();
    lab.run(async move {
        site.start().await;
        let (_, c) = site.client(7, Arc::new(TheirServer));
        register(&c, target("demo", TargetId::ost(0), 20, 1)).await.unwrap();
        let mgs = site.mgs.clone().unwrap();
        for value in ["8", "16"] {
            mgs.set_permanent("osc.*.max_rpcs_in_flight", value, false).await.unwrap();
        }
        let history = |mgs: &Arc<Mgs>| {
            let mgs = mgs.clone();
            async move {
                match mgs.configure(&ConfigOrder::History(100)).await.unwrap() {
                    ConfigAnswer::History(h) => h,
                    other => panic!("{other:?}"),
                }
            }
        };
        let all = history(&mgs).await;
        assert_eq!(all.iter().map(|v| v.version).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((all[0].by.as_str(), all[0].how.as_str()), ("10.0.0.7@tcp", "register"));
        assert_eq!((all[2].by.as_str(), all[2].how.as_str()), ("MGS host", "set_param -P"));
        let roll = |dry| ConfigOrder::Rollback(2, dry);
        match mgs.configure(&roll(true)).await.unwrap() {
            ConfigAnswer::Changes(c) => assert_eq!((c.changes.len(), c.applied, c.to), (1, false, 3)),
            other => panic!("{other:?}"),
        }
        assert_eq!(history(&mgs).await, all, "a dry run changes nothing");
        mgs.configure(&roll(false)).await.unwrap();
        let all = history(&mgs).await;
        assert_eq!(all.last().unwrap().how, "config rollback 2");
        for seed in 0..3 {
            drop(mgs.clone());
            site.crash(seed);
            site.start().await;
            assert_eq!(history(&site.mgs.clone().unwrap()).await, all, "restart {seed}");
        }
        let config = site.mgs.as_ref().unwrap().config("demo").unwrap();
        assert_eq!(config.params, [("osc.*.max_rpcs_in_flight".to_string(), "8".to_string())]);
    });
}

/// All pieces of an answer, and how many they were.
async fn seen(i: &Arc<Import>, view: View) -> (String, u32) {
    let (mut text, mut version, mut pieces) = (Vec::new(), 0, 0);
    loop {
        let piece =
            ask(i, Configview { view, from: text.len() as u64, version }).await.unwrap().said.unwrap();
        assert!(piece.text.len() <= PIECE_MAX_BYTES && !piece.text.is_empty());
        text.extend(piece.text);
        (version, pieces) = (piece.version, pieces + 1);
        if text.len() as u64 == piece.total {
            return (String::from_utf8(text).unwrap(), pieces);
        }
    }
}

#[test]
fn root_of_any_host_sees_what_the_mgs_keeps_in_bounded_pieces() {
    let mut site = Site::new(78);
    let lab = site.lab.clone();
    lab.run(async move {
        site.start().await;
        let (_, c) = site.client(7, Arc::new(TheirServer));
        register(&c, target("demo", TargetId::ost(0), 20, 1)).await.unwrap();
        let mgs = site.mgs.clone().unwrap();
        let name = |n: u32| format!("llite.demo-{}{n}.statfs_max_age", "f".repeat(400));
        for n in 0..600 {
            mgs.set_permanent(&name(n), "7", false).await.unwrap();
        }
        // The same as on its own host, whatever it is.
        for (view, order) in [
            (View::Show, ConfigOrder::Show),
            (View::Export, ConfigOrder::Export),
            (View::Diff { from: 1, to: None }, ConfigOrder::Diff(1, None)),
            (View::Diff { from: 1, to: Some(3) }, ConfigOrder::Diff(1, Some(3))),
            (View::History { before: 0, count: 500 }, ConfigOrder::History(500)),
            (View::History { before: 4, count: 2 }, ConfigOrder::Older(4, 2)),
        ] {
            let (text, pieces) = seen(&c, view).await;
            let answer: ConfigAnswer = serde_json::from_str(&text).unwrap();
            assert_eq!(answer, mgs.configure(&order).await.unwrap(), "{view:?}");
            let least = text.len().div_ceil(PIECE_MAX_BYTES) as u32;
            assert_eq!(pieces, least, "{view:?} has {} bytes", text.len());
            match (view, answer) {
                (View::History { before: 4, .. }, ConfigAnswer::History(h)) => {
                    assert_eq!(h.iter().map(|v| v.version).collect::<Vec<_>>(), [2, 3]);
                }
                (View::Show | View::History { .. }, _) => assert!(pieces > 1, "{view:?}"),
                _ => {}
            }
        }
        // What cannot be, in the MGS's words.
        let m = |view, from, version| Configview { view, from, version };
        let refused = |r: ConfigviewReply| r.said.map(drop).unwrap_err();
        let (e, why) = refused(ask(&c, m(View::Diff { from: 9999, to: None }, 0, 0)).await.unwrap());
        assert!(Errno(e) == Errno::ENOENT && why.contains("there is no version 9999"), "{why}");
        let far = refused(ask(&c, m(View::Export, u64::MAX, 601)).await.unwrap());
        assert_eq!(Errno(far.0), Errno::EINVAL);
        // Half of one version and half of the next would be neither.
        mgs.set_permanent(&name(0), "9", false).await.unwrap();
        let changed = refused(ask(&c, m(View::Show, 9, 601)).await.unwrap());
        assert_eq!(Errno(changed.0), Errno::ESTALE);
        let user = RequestContext { cred: Cred { uid: 1000, ..Cred::root() }, ..RequestContext::default() };
        let said = c.call(user, m(View::Show, 0, 0), Bytes::new()).await;
        assert_eq!(said.err(), Some(Errno::EPERM), "others than root are shown nothing");
    });
}

#[test]
fn the_mgs_knows_which_mounts_are_quiet() {
    let mut s = Site::new(9);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (_, server) = s.client(20, Arc::new(TheirServer));
        let (_, a) = s.client(10, Arc::new(Ears::default()));
        let (_, b) = s.client(11, Arc::new(Ears::default()));
        register(&server, target("demo", TargetId::mdt(0), 21, 1)).await.unwrap();
        let says = async |i: &Arc<Import>, standing: Option<&MaintenanceStanding>| {
            let ctx = RequestContext::default().standing(standing);
            let m = Config { fsname: "demo".into() };
            i.call(ctx, m, Bytes::new()).await.map(|r| r.reply.version).unwrap()
        };
        says(&a, None).await;
        says(&b, None).await;
        let order = async |mgs: &Arc<Mgs>, text: &str| {
            mgs.set_permanent("*.demo-*.maintenance", text, false).await.unwrap();
            mgs.config("demo").unwrap().version
        };
        let mgs = s.mgs.clone().unwrap();
        let known = |mgs: &Mgs| mgs.mounts("demo").mounts.into_iter().map(|m| m.standing).collect::<Vec<_>>();
        let v = order(&mgs, "closed fs=demo reason=x").await;
        assert_eq!(known(&mgs), [Standing::Silent, Standing::Silent]);
        let quiet = |version| MaintenanceStanding { version, held: 2, quiet: true, ..Default::default() };
        says(&a, Some(&quiet(v - 1))).await;
        assert_eq!(known(&mgs)[0], Standing::Silent, "that was of an earlier order");
        says(&a, Some(&quiet(v))).await;
        let long = format!("\u{7}{}", "\u{e9}".repeat(200));
        says(&b, Some(&MaintenanceStanding { waits: long, quiet: false, lost: 3, ..quiet(v) })).await;
        let all = mgs.mounts("demo");
        assert_eq!(known(&mgs), [Standing::Quiet, Standing::Waits("\u{e9}".repeat(128))]);
        assert_eq!((all.mounts[1].lost, all.mounts[1].nid.as_str(), all.missing), (3, "10.0.0.11@tcp", 0));
        assert_eq!(all.mounts[1].name, "node 11");
        assert_eq!(mgs.mounts("other"), Mounts::default());
        let later = order(&mgs, "closed fs=demo except=10.0.0.11@tcp reason=x").await;
        assert_eq!(known(&mgs), [Standing::Silent, Standing::Silent], "it was ordered anew");
        says(&b, Some(&MaintenanceStanding { held: 0, quiet: false, ..quiet(later) })).await;
        says(&a, Some(&quiet(later))).await;
        assert_eq!(known(&mgs), [Standing::Quiet, Standing::LeftAlone]);
        drop(mgs);
        // After a restart it knows who is to come back, and nothing that they said.
        s.crash(3);
        s.start().await;
        let mgs = s.mgs.clone().unwrap();
        assert!(mgs.mounts("demo").missing >= 2, "{:?}", mgs.mounts("demo"));
        says(&a, Some(&quiet(later))).await;
        says(&b, None).await;
        assert_eq!(known(&mgs), [Standing::Quiet, Standing::Silent]);
    });
}

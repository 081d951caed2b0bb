//! Who speaks in whose name, what a client hears of its eviction, and who may send what; frames by hand.

use super::admission::{hello, refused, say_hello};
use super::*;
use wire::frame::FLAG_REPLAY;
use wire::msg::connect::{
    Connect, ConnectFeatures, ConnectReply, EXTRA_LAST_SESSION, EXTRA_NONCE, EXTRA_TOKEN, FEATURE_PROOF,
    FEATURES_NEEDED, extra_key,
};
use wire::msg::destroy::Destroy;
use wire::msg::notify::Notice;
use wire::proof::{CLAIMS_MAX, Challenge, Claimant};
use wire::{Frame, FrameKind, Header, Message, ReplyContext, decode_body, encode_body};
use world::Conn;

const OST0: TargetId = TargetId::ost(0);

/// A server whose disk survives.
struct Place {
    lab: Lab,
    disk: Arc<Mutex<Disk>>,
    seen: Arc<Mutex<Seen>>,
    node: u64,
    target: TargetId,
}

impl Place {
    fn new(seed: u64, target: TargetId) -> Place {
        Place { lab: Lab::new(seed), disk: Arc::default(), seen: Arc::default(), node: 0, target }
    }

    async fn start(&mut self) -> Arc<Server> {
        let (w, n) = node(&self.lab, 1);
        self.node = n;
        let mut c = Counter::start(&w, self.target, &self.disk, &self.seen);
        Arc::get_mut(&mut c).unwrap().strict = true;
        serve(&w, 1, vec![c], &Peers::new()).await
    }

    fn crash(&self) {
        self.lab.kill(self.node, ip(1));
    }
}

fn with_token(c: Connect, token: u8) -> Connect {
    Connect { extra: vec![(EXTRA_TOKEN, vec![token; 32])], ..c }
}

/// As a client that received the answer to `session` of `epoch` last.
fn back(epoch: u32, session: u64) -> Connect {
    let extra = vec![(EXTRA_TOKEN, vec![1; 32]), (EXTRA_LAST_SESSION, session.to_le_bytes().to_vec())];
    Connect { last_epoch: epoch, extra, ..hello() }
}

async fn welcome(w: &World, target: TargetId, c: &Connect) -> (Arc<dyn Conn>, ConnectReply) {
    let (conn, f) = say_hello(w, target.to_u32(), c).await;
    assert_eq!(f.header.status, 0, "{f:?}");
    let (_, r): (ReplyContext, ConnectReply) = decode_body(&f.body).unwrap();
    (conn, r)
}

#[test]
fn an_eviction_is_told_over_a_restart_until_it_is_heard() {
    let mut p = Place::new(31, TargetId::mdt(0));
    let lab = p.lab.clone();
    lab.run(async {
        let server = p.start().await;
        let (w, _) = node(&p.lab, 9);
        let (_, first) = welcome(&w, p.target, &back(0, 0)).await;
        assert!(first.new_client);
        let (_, same) = welcome(&w, p.target, &back(1, first.session)).await;
        assert!(!same.new_client);
        assert!(server.evict(p.target, ClientId([7; 16])));
        until(&w, "the eviction", || !lock(&p.seen).departed.is_empty()).await;
        // The answer that says so is lost …
        let (_, lost) = welcome(&w, p.target, &back(1, same.session)).await;
        assert!(lost.new_client);
        // … and the server restarts before the client is back.
        p.crash();
        p.start().await;
        let (_, told) = welcome(&w, p.target, &back(1, same.session)).await;
        assert!(told.new_client, "it does not know yet, and would repeat and reclaim what it had");
        assert!(!told.recovering, "nothing of before the restart is its own");
        // Once more, and now it hears.
        p.crash();
        p.start().await;
        let (_, told) = welcome(&w, p.target, &back(1, same.session)).await;
        assert!(told.new_client);
        let (_, r) = welcome(&w, p.target, &back(3, told.session)).await;
        assert!(!r.new_client);
        p.crash();
        p.start().await;
        let (_, r) = welcome(&w, p.target, &back(3, r.session)).await;
        assert!(!r.new_client && r.recovering, "from then on it is a client as any other");
    });
}

#[test]
fn nobody_speaks_in_the_name_of_a_client() {
    let mut p = Place::new(32, OST0);
    let lab = p.lab.clone();
    lab.run(async {
        p.start().await;
        let (w, _) = node(&p.lab, 9);
        let (conn, _) = welcome(&w, OST0, &with_token(hello(), 1)).await;
        for thief in [with_token(hello(), 2), hello()] {
            let (e, why) = refused(&w, OST0.to_u32(), &thief).await;
            assert_eq!(e, Errno::EACCES);
            assert!(why.contains("does not know its secret"), "{why}");
        }
        p.crash();
        drop(conn);
        p.start().await;
        assert_eq!(refused(&w, OST0.to_u32(), &with_token(hello(), 2)).await.0, Errno::EACCES, "durably");
        welcome(&w, OST0, &with_token(hello(), 1)).await;
    });
}

#[test]
fn a_client_of_before_is_bound_when_it_shows_a_token() {
    let mut p = Place::new(33, OST0);
    lock(&p.disk).clients.insert(ClientId([7; 16]), Identity::default());
    let lab = p.lab.clone();
    lab.run(async {
        p.start().await;
        let (w, _) = node(&p.lab, 9);
        assert!(!welcome(&w, OST0, &hello()).await.1.new_client, "an older client");
        assert!(!welcome(&w, OST0, &with_token(hello(), 1)).await.1.new_client, "upgraded");
        assert_eq!(refused(&w, OST0.to_u32(), &hello()).await.0, Errno::EACCES);
    });
}

/// Sends a message on a connection and returns the status of the answer.
async fn ask<M: Message>(conn: &Arc<dyn Conn>, r: &ConnectReply, xid: u64, flags: u8, m: &M) -> u16 {
    let mut h = Header::new(FrameKind::Request);
    h.target = OST0.to_u32();
    (h.opcode, h.slot, h.xid, h.flags) = (M::OP as u16, 1, xid, flags);
    (h.session, h.epoch) = (r.session, r.epoch);
    let mut body = encode_body(&RequestContext::default(), m);
    if flags & FLAG_REPLAY != 0 {
        let tail = wire::replay::Tail { wall: model::Timestamp::ZERO, reply: Vec::new() };
        body = wire::replay::append(&body, &tail);
    }
    conn.send(Frame::new(h, body, Bytes::new())).await.unwrap();
    conn.recv().await.unwrap().header.status
}

#[test]
fn each_message_is_for_those_who_may_send_it() {
    let mut p = Place::new(34, OST0);
    let lab = p.lab.clone();
    lab.run(async {
        p.start().await;
        let (w, _) = node(&p.lab, 9);
        let features = ConnectFeatures { compat: FEATURE_PROOF | FEATURES_NEEDED, incompat: 0 };
        let (conn, r) = welcome(&w, OST0, &Connect { features, ..hello() }).await;
        let nonce = extra_key(&r.extra, EXTRA_NONCE).unwrap();
        let challenge = Challenge { nonce, session: r.session, target: OST0.to_u32(), client: [7; 16] };
        let claim = async |key: &Key| {
            let mut h = Header::new(FrameKind::Notify);
            (h.target, h.session, h.epoch) = (OST0.to_u32(), r.session, r.epoch);
            let n = Notice::Proof { claims: vec![challenge.claim(key, Claimant::Server)] };
            conn.send(Frame::new(h, wire::encode_message(&n), Bytes::new())).await.unwrap();
        };
        let eperm = Errno::EPERM.0 as u16;
        let (get, destroy) = (GetParam { pattern: "a".into() }, Destroy { objects: vec![] });
        let set = SetParam { name: "a".into(), value: String::new(), permanent: false, delete: false };
        assert_eq!(ask(&conn, &r, 1, 0, &get).await, 0);
        assert_eq!(ask(&conn, &r, 2, FLAG_REPLAY, &get).await, eperm, "there was no restart");
        assert_eq!(ask(&conn, &r, 3, 0, &destroy).await, eperm);
        claim(&[1; 32]).await;
        assert_eq!(ask(&conn, &r, 4, 0, &destroy).await, eperm, "a wrong key");
        claim(&SERVER_KEY).await;
        assert_eq!(
            ask(&conn, &r, 5, 0, &destroy).await,
            Errno::EOPNOTSUPP.0 as u16,
            "it comes to the service"
        );
        assert_eq!(ask(&conn, &r, 6, 0, &set).await, eperm, "an administrator's, who does not come this way");
        assert!(lock(&p.disk).executed.is_empty());
        // The proof is the connection's, not the client's.
        let (conn, r) = welcome(&w, OST0, &Connect { features: r.features.clone(), ..hello() }).await;
        assert_eq!(ask(&conn, &r, 7, 0, &destroy).await, eperm);
    });
}

/// The claims of a server of many targets come in parts, and a connection has so many at most.
#[test]
fn a_server_of_many_targets_shows_that_it_is_each_of_them() {
    let mut p = Place::new(36, OST0);
    let lab = p.lab.clone();
    lab.run(async {
        p.start().await;
        let (w, _) = node(&p.lab, 9);
        for (targets, parts_of, holds) in
            [(300, CLAIMS_MAX, true), (65, 65, false), (1100, CLAIMS_MAX, false)]
        {
            let features = ConnectFeatures { compat: FEATURE_PROOF | FEATURES_NEEDED, incompat: 0 };
            let (conn, r) = welcome(&w, OST0, &Connect { features, ..hello() }).await;
            let nonce = extra_key(&r.extra, EXTRA_NONCE).unwrap();
            let challenge = Challenge { nonce, session: r.session, target: OST0.to_u32(), client: [7; 16] };
            let mut all = vec![challenge.claim(&SERVER_KEY, Claimant::Server)];
            let uuid = |n: u16| [n.to_le_bytes(); 8].concat().try_into().unwrap();
            all.extend((1..targets).map(|n| challenge.claim(&[2; 32], Claimant::Target(uuid(n)))));
            for claims in all.chunks(parts_of) {
                let mut h = Header::new(FrameKind::Notify);
                (h.target, h.session, h.epoch) = (OST0.to_u32(), r.session, r.epoch);
                let n = Notice::Proof { claims: claims.to_vec() };
                let _ = conn.send(Frame::new(h, wire::encode_message(&n), Bytes::new())).await;
            }
            if holds {
                let status = ask(&conn, &r, 1, 0, &Destroy { objects: vec![] }).await;
                assert_eq!(status, Errno::EOPNOTSUPP.0 as u16, "what was said first counts still");
            } else {
                // It is told why, if anything.
                let _ = conn.recv().await;
                assert!(conn.recv().await.is_err(), "{targets} in parts of {parts_of}");
            }
        }
    });
}

#[test]
fn ports_of_ordinary_users_are_not_let_in() {
    let mut p = Place::new(35, OST0);
    let lab = p.lab.clone();
    lab.run(async {
        let server = p.start().await;
        let (w, _) = node(&p.lab, 9);
        lab.user_ports(true);
        let (e, why) = refused(&w, OST0.to_u32(), &hello()).await;
        assert_eq!(e, Errno::EACCES);
        assert!(why.contains("lets in only ports below 1024"), "{why}");
        let i = Import::new(w.clone(), config(8, OST0, &[1]));
        assert_eq!(i.connected().await.unwrap_err(), Errno::EACCES, "it is told, and does not wait");
        server.set_secure(false);
        welcome(&w, OST0, &hello()).await;
    });
}

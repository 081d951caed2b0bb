//! Who is let in, and what a peer that breaks the rules gets; frames by hand.

use super::*;
use wire::frame::VERSION;
use wire::msg::connect::{
    Connect, ConnectFeatures, ConnectRefused, ConnectReply, EXTRA_LAST_SESSION, FEATURES_NEEDED, SLOT_NONE,
};
use wire::msg::ping::Ping;
use wire::{Frame, FrameKind, Header, Message, ReplyContext, decode_body, encode_body};
use world::Conn;

pub fn hello() -> Connect {
    Connect {
        client_uuid: [7; 16],
        client_name: "by hand".into(),
        fsname: "fs".into(),
        version: VERSION,
        features: ConnectFeatures { compat: FEATURES_NEEDED, incompat: 0 },
        last_epoch: 0,
        slots: 8,
        lane: 0,
        extra: vec![(77, b"of a later version".to_vec())],
    }
}

async fn dial(w: &World) -> Arc<dyn Conn> {
    w.net.connect(None, SocketAddr::new(ip(1), PORT)).await.unwrap()
}

pub async fn say_hello(w: &World, target: u32, c: &Connect) -> (Arc<dyn Conn>, Frame) {
    let conn = dial(w).await;
    let mut h = Header::new(FrameKind::Connect);
    h.target = target;
    conn.send(Frame::new(h, encode_body(&RequestContext::default(), c), Bytes::new())).await.unwrap();
    let f = conn.recv().await.unwrap();
    assert_eq!(f.header.kind, FrameKind::ConnectReply);
    (conn, f)
}

pub async fn refused(w: &World, target: u32, c: &Connect) -> (Errno, String) {
    let (conn, f) = say_hello(w, target, c).await;
    let (_, r): (ReplyContext, ConnectRefused) = decode_body(&f.body).unwrap();
    assert!(conn.recv().await.is_err(), "the connection ends");
    (Errno(i32::from(f.header.status)), r.message)
}

async fn accepted(w: &World) -> (Arc<dyn Conn>, ConnectReply) {
    let (conn, f) = say_hello(w, TargetId::ost(0).to_u32(), &hello()).await;
    assert_eq!(f.header.status, 0);
    let (ctx, r): (ReplyContext, ConnectReply) = decode_body(&f.body).unwrap();
    assert_eq!(ctx.credits, 8);
    (conn, r)
}

fn ping(r: &ConnectReply) -> Frame {
    let mut h = Header::new(FrameKind::Request);
    h.target = TargetId::ost(0).to_u32();
    (h.opcode, h.slot, h.xid) = (Ping::OP as u16, SLOT_NONE, 5);
    (h.session, h.epoch) = (r.session, r.epoch);
    Frame::new(h, encode_body(&RequestContext::default(), &Ping { nonce: 5 }), Bytes::new())
}

fn run(seed: u64, f: impl AsyncFnOnce(Arc<Server>, World, Arc<Mutex<Seen>>)) {
    let lab = Lab::new(seed);
    let (s, _) = node(&lab, 1);
    let (w, _) = node(&lab, 9);
    let seen = Arc::default();
    lab.run(async {
        let c = Counter::start(&s, TargetId::ost(0), &Arc::default(), &seen);
        let server = serve(&s, 1, vec![c], &Peers::new()).await;
        f(server, w, seen.clone()).await;
    });
}

#[test]
fn refusals_say_why_and_name_both_sides() {
    run(1, async |_, w, _| {
        let ost0 = TargetId::ost(0).to_u32();
        let (e, t) = refused(&w, ost0, &Connect { version: 9, ..hello() }).await;
        assert_eq!(e, Errno::EPROTONOSUPPORT);
        assert_eq!(
            t,
            "client 'by hand' speaks protocol version 9, server 'server-1' version 1: upgrade the older one"
        );
        let features = ConnectFeatures { compat: 1 << 40, incompat: 4 };
        let (e, t) = refused(&w, ost0, &Connect { features, ..hello() }).await;
        assert_eq!(e, Errno::EPROTONOSUPPORT);
        assert!(t.contains("needs features 0x4 that server 'server-1'"), "{t}");
        let (e, t) = refused(&w, ost0, &Connect { fsname: "wrong".into(), ..hello() }).await;
        assert_eq!(e, Errno::ENOENT);
        assert_eq!(t, "server 'server-1' has fs-OST0000, not wrong-OST0000: wrong file system name?");
        let (e, t) = refused(&w, TargetId::ost(9).to_u32(), &hello()).await;
        assert_eq!((e, t.as_str()), (Errno::ENODEV, "target fs-OST0009 is not served by 'server-1' (now)"));
        assert_eq!(refused(&w, 0xdead_beef, &hello()).await.0, Errno::ENODEV);
        let (e, t) = refused(&w, ost0, &Connect { last_epoch: 5, ..hello() }).await;
        assert_eq!(e, Errno::ESTALE);
        assert!(t.contains("has seen epoch 5 of fs-OST0000, this server 'server-1' has 1"), "{t}");
        let (e, t) = refused(&w, ost0, &Connect { client_name: "unwanted".into(), ..hello() }).await;
        assert_eq!((e, t.as_str()), (Errno::EACCES, "fs-OST0000: not on the list"));
        assert_eq!(refused(&w, ost0, &Connect { client_uuid: [0; 16], ..hello() }).await.0, Errno::EINVAL);
        let features = ConnectFeatures { compat: !FEATURES_NEEDED, incompat: 0 };
        let (e, t) = refused(&w, ost0, &Connect { features, ..hello() }).await;
        assert_eq!(e, Errno::EPROTONOSUPPORT);
        assert!(t.starts_with("client 'by hand' is too old for server 'server-1'"), "{t}");
        assert!(t.ends_with("it does not know directories: upgrade the client"), "{t}");
        let features = ConnectFeatures { compat: 1 << 40 | FEATURES_NEEDED, incompat: 0 };
        let (_, f) = say_hello(&w, ost0, &Connect { features, ..hello() }).await;
        assert_eq!(f.header.status, 0, "compatible features need not be known");
    });
}

#[test]
fn a_server_that_is_too_old_is_not_used() {
    let lab = Lab::new(3);
    lab.run(async {
        let (a, _) = node(&lab, 1);
        let listener = a.net.listen(SocketAddr::new(ip(1), PORT)).await.unwrap();
        a.spawn("old", async move {
            while let Ok(conn) = listener.accept().await {
                let hello = conn.recv().await.unwrap().header;
                let reply = ConnectReply {
                    session: 1,
                    epoch: 1,
                    features: ConnectFeatures { compat: !FEATURES_NEEDED, incompat: 0 },
                    slots: 8,
                    new_client: true,
                    recovering: false,
                    ping_interval_ms: 5000,
                    server_name: "nacred 0.1.0 on old".into(),
                    extra: Vec::new(),
                };
                let mut h = Header::new(FrameKind::ConnectReply);
                (h.target, h.session, h.epoch) = (hello.target, 1, 1);
                let body = encode_body(&ReplyContext::default(), &reply);
                conn.send(Frame::new(h, body, bytes::Bytes::new())).await.unwrap();
            }
        });
        let (w, _) = node(&lab, 9);
        let i = Import::new(w.clone(), config(7, TargetId::ost(0), &[1]));
        assert_eq!(i.connected().await.unwrap_err(), Errno::EPROTONOSUPPORT);
        let (_, text) = i.refusal().unwrap();
        assert!(text.starts_with("server 'nacred 0.1.0 on old' is too old for this client"), "{text}");
        assert!(text.contains("it does not know directories: upgrade the server"), "{text}");
    });
}

#[test]
fn an_import_that_is_refused_for_good_says_so() {
    run(2, async |_, w, _| {
        let i = Import::new(
            w.clone(),
            ImportConfig { fsname: "wrong".into(), ..config(7, TargetId::ost(0), &[1]) },
        );
        assert_eq!(i.connected().await.unwrap_err(), Errno::ENOENT);
        assert!(i.refusal().unwrap().1.contains("wrong file system name?"));
        assert_eq!(set(&i, "a").await.unwrap_err(), Errno::ENOENT);
        // Not served now is no refusal for good.
        let i = Import::new(w.clone(), config(7, TargetId::ost(5), &[1]));
        assert!(w.timeout(Duration::from_secs(30), i.connected()).await.is_none());
        assert_eq!(i.refusal().unwrap().0, Errno::ENODEV);
    });
}

#[test]
fn broken_rules_end_the_connection_and_nothing_else() {
    run(3, async |_, w, seen| {
        // Any frame but a connect comes first.
        let conn = dial(&w).await;
        conn.send(Frame::new(Header::new(FrameKind::Request), vec![], Bytes::new())).await.unwrap();
        let f = conn.recv().await.unwrap();
        assert_eq!(f.header.status, Errno::EPROTO.0 as u16);
        assert!(conn.recv().await.is_err());
        // A connect that does not decode.
        let conn = dial(&w).await;
        conn.send(Frame::new(Header::new(FrameKind::Connect), vec![0xff; 50], Bytes::new())).await.unwrap();
        assert_eq!(conn.recv().await.unwrap().header.status, Errno::EPROTO.0 as u16);
        // Says nothing.
        let conn = dial(&w).await;
        let start = w.now();
        assert!(conn.recv().await.is_err());
        assert!(w.now().since(start) >= Duration::from_secs(10));
        type Spoil = fn(&mut Header);
        let spoil: [(&str, Spoil); 6] = [
            ("epoch", |h| h.epoch += 1),
            ("old epoch", |h| h.epoch -= 1),
            ("session", |h| h.session += 1),
            ("target", |h| h.target += 1),
            ("slot", |h| {
                h.slot = model::limits::SLOTS_PER_SESSION;
                h.opcode = Op::GetParam as u16;
            }),
            ("kind", |h| h.kind = FrameKind::Connect),
        ];
        for (what, f) in spoil {
            let (conn, r) = accepted(&w).await;
            let mut p = ping(&r);
            f(&mut p.header);
            conn.send(p).await.unwrap();
            let got = conn.recv().await.unwrap().header;
            assert_eq!(got.kind, FrameKind::ConnectReply, "{what}");
            assert_ne!(got.status, 0, "{what}");
            assert!(conn.recv().await.is_err(), "{what}");
        }
        // Unknown opcodes and bad bodies are errors of the request alone.
        let (conn, r) = accepted(&w).await;
        for (opcode, body, want) in
            [(999u16, vec![], Errno::EOPNOTSUPP), (Op::GetParam as u16, vec![0xff; 9], Errno::EBADMSG)]
        {
            let mut p = ping(&r);
            (p.header.opcode, p.header.slot) = (opcode, 3);
            conn.send(Frame::new(p.header, body, Bytes::new())).await.unwrap();
            assert_eq!(conn.recv().await.unwrap().header.status, want.0 as u16);
        }
        conn.send(ping(&r)).await.unwrap();
        assert_eq!(conn.recv().await.unwrap().header.slot, SLOT_NONE);
        assert!(lock(&seen).order.is_empty(), "nothing of this was executed");
    });
}

#[test]
fn a_client_that_did_not_hear_that_it_is_new_is_told_again() {
    run(4, async |_, w, _| {
        let (first, one) = accepted(&w).await;
        assert!(one.new_client);
        let (second, two) = accepted(&w).await;
        assert!(two.new_client, "it did not show that it heard the first answer");
        assert!(first.recv().await.is_err(), "replaced");
        second.send(ping(&two)).await.unwrap();
        second.recv().await.unwrap();
        for (session, epoch, new) in
            [(one.session, 1, false), (two.session, 1, false), (0, 1, true), (9999, 0, true)]
        {
            let extra = vec![(EXTRA_LAST_SESSION, session.to_le_bytes().to_vec())];
            let c = Connect { last_epoch: epoch, extra, ..hello() };
            let (_, f) = say_hello(&w, TargetId::ost(0).to_u32(), &c).await;
            let (_, r): (ReplyContext, ConnectReply) = decode_body(&f.body).unwrap();
            assert_eq!(r.new_client, new, "session {session} of epoch {epoch}");
        }
    });
}

#[test]
fn connections_are_limited() {
    run(5, async |server, w, _| {
        server.set_connection_limit(2);
        let (_a, _) = accepted(&w).await;
        let _b = dial(&w).await;
        let c = dial(&w).await;
        assert!(c.recv().await.is_err());
        w.sleep(Duration::from_secs(12)).await;
        let (_, r) = accepted(&w).await;
        assert!(r.session > 0, "the silent one made room");
    });
}

#[test]
fn an_administrator_evicts() {
    run(6, async |server, w, seen| {
        let i = Import::new(w.clone(), config(7, TargetId::ost(0), &[1]));
        set(&i, "a").await.unwrap();
        assert!(!server.evict(TargetId::ost(0), ClientId([8; 16])));
        assert!(server.evict(TargetId::ost(0), ClientId([7; 16])));
        until(&w, "evicted", || lock(&seen).departed.len() == 1).await;
        assert_eq!(set(&i, "b").await.unwrap(), "1", "it comes back as a new client");
    });
}

/// A flood of connections that say nothing, of hellos of strangers and of hellos that are too long, and
/// honest clients beside it.
#[test]
fn a_flood_leaves_honest_clients_their_sessions() {
    run(7, async |_, w, seen| {
        let honest = Import::new(w.clone(), config(1, TargetId::ost(0), &[1]));
        set(&honest, "a").await.unwrap();
        let ost0 = TargetId::ost(0).to_u32();
        let mut silent = Vec::new();
        let mut turned_away = 0;
        for n in 0..1500u32 {
            let conn = dial(&w).await;
            let over = n >= model::limits::HELLOS_PER_ADDRESS_MAX as u32;
            if over {
                turned_away += u32::from(conn.recv().await.is_err());
            }
            silent.push(conn);
        }
        assert_eq!(turned_away, 1500 - model::limits::HELLOS_PER_ADDRESS_MAX as u32);
        assert_eq!(set(&honest, "a").await.unwrap(), "2", "its session goes on");
        drop(silent);
        w.sleep(Duration::from_secs(11)).await;
        let long = Connect { extra: vec![(9, vec![0; 5000])], ..hello() };
        assert_eq!(refused(&w, ost0, &long).await.0, Errno::EMSGSIZE);
        let mut let_in = 0;
        let start = w.now();
        for n in 0..3000u32 {
            let mut client_uuid = [9; 16];
            client_uuid[..4].copy_from_slice(&n.to_le_bytes());
            let (_, f) = say_hello(&w, ost0, &Connect { client_uuid, ..hello() }).await;
            let_in += u64::from(f.header.status == 0);
        }
        let rate = u64::from(model::limits::NEW_CLIENTS_PER_SECOND) * (w.now().since(start).as_secs() + 1);
        assert!(let_in <= u64::from(model::limits::NEW_CLIENTS_AT_ONCE) + rate, "{let_in}");
        assert_eq!(set(&honest, "a").await.unwrap(), "3");
        let s = lock(&seen);
        assert!(s.departed.iter().all(|(c, _)| *c != ClientId([1; 16])), "the honest one was never evicted");
    });
}

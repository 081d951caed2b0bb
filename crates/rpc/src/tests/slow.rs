//! Adaptive timeouts and early replies: a slow server is left at work, a lost request is sent again.

use super::*;
use wire::frame::FLAG_UNDER_WAY;
use wire::msg::connect::{ConnectFeatures, ConnectReply, SLOT_NONE};
use wire::under_way::UnderWay;
use wire::{Frame, FrameKind, Header, ReplyContext, encode_body};
use world::Conn;

#[test]
fn a_slow_server_is_left_at_work() {
    let lab = Lab::new(31);
    lab.run(async {
        let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
        let (a, _) = node(&lab, 1);
        let slow = Counter::start(&a, TargetId::ost(0), &disk, &seen);
        serve(&a, 1, vec![slow.clone()], &Peers::new()).await;
        let (w, _) = node(&lab, 9);
        let i = Import::new(w.clone(), config(7, TargetId::ost(0), &[1]));
        set(&i, "a").await.unwrap();
        assert!(i.service().current(w.now().seconds()) < Duration::from_millis(50));
        *lock(&slow.stall) = Duration::from_secs(300);
        let start = w.now();
        assert_eq!(set(&i, "a").await.unwrap(), "2");
        assert!(w.now().since(start) >= Duration::from_secs(300));
        assert_eq!(lock(&disk).executed["a"], 2, "once each");
        assert_eq!(lock(&seen).order.len(), 2, "and sent once each");
        assert!(i.service().current(w.now().seconds()) >= Duration::from_secs(300), "it is expected now");
    });
}

/// A server that loses each request that comes on its first connection, and answers pings all the same.
struct Forgetful {
    world: World,
    /// Connections so far, requests of the second and later ones.
    met: Mutex<(u64, Vec<u8>)>,
    /// It is of a version that does not say what it is at work on.
    old: bool,
}

impl Forgetful {
    async fn run(self: Arc<Self>) {
        let listener = self.world.net.listen(SocketAddr::new(ip(1), PORT)).await.unwrap();
        while let Ok(conn) = listener.accept().await {
            let me = self.clone();
            self.world.spawn("conn", async move { drop(me.serve(conn).await) });
        }
    }

    async fn serve(&self, conn: Arc<dyn Conn>) -> std::io::Result<()> {
        let hello = conn.recv().await?.header;
        let number = {
            let mut m = lock(&self.met);
            m.0 += 1;
            m.0
        };
        let features = ConnectFeatures::OURS;
        let reply = ConnectReply {
            session: number,
            epoch: 1,
            features,
            slots: 8,
            new_client: number == 1,
            recovering: false,
            ping_interval_ms: 5000,
            server_name: "forgetful".into(),
            extra: Vec::new(),
        };
        let mut h = Header::new(FrameKind::ConnectReply);
        (h.target, h.session, h.epoch) = (hello.target, number, 1);
        conn.send(Frame::new(h, encode_body(&ReplyContext::default(), &reply), Bytes::new())).await?;
        loop {
            let f = conn.recv().await?.header;
            let mut context = ReplyContext::default();
            if f.slot != SLOT_NONE {
                if number == 1 {
                    continue;
                }
                lock(&self.met).1.push(f.flags);
            } else if f.flags & FLAG_UNDER_WAY != 0 && !self.old {
                context.extra.push(UnderWay::default().encode());
            }
            let mut h = Header::new(FrameKind::Reply);
            (h.target, h.session, h.epoch) = (f.target, number, 1);
            (h.opcode, h.slot, h.xid) = (f.opcode, f.slot, f.xid);
            let body = GetParamReply { values: vec![("a".into(), "found".into())] };
            conn.send(Frame::new(h, encode_body(&context, &body), Bytes::new())).await?;
        }
    }
}

fn forgetful(lab: &Lab, old: bool) -> (Arc<Forgetful>, Arc<Import>, Arc<AdaptiveLimits>, World) {
    let (a, _) = node(lab, 1);
    let server = Arc::new(Forgetful { world: a.clone(), met: Mutex::default(), old });
    a.spawn("forgetful", server.clone().run());
    let (w, _) = node(lab, 9);
    let limits = Arc::new(AdaptiveLimits::default());
    let cfg = ImportConfig { adaptive: limits.clone(), ..config(7, TargetId::ost(0), &[1]) };
    (server, Import::new(w.clone(), cfg), limits, w)
}

#[test]
fn a_lost_request_is_sent_again() {
    let lab = Lab::new(32);
    lab.run(async {
        let (server, i, _, w) = forgetful(&lab, false);
        let start = w.now();
        assert_eq!(get(&i, "a").await.unwrap(), "found");
        let took = w.now().since(start);
        assert!((5..15).contains(&took.as_secs()), "{took:?}");
        let m = lock(&server.met);
        assert_eq!(m.0, 2, "connections");
        assert_eq!(m.1.len(), 1);
        assert!(m.1[0] & wire::frame::FLAG_RESENT != 0);
    });
}

#[test]
fn at_max_zero_and_servers_that_do_not_say_wait_for_ever() {
    for old in [true, false] {
        let lab = Lab::new(33);
        lab.run(async {
            let (server, i, limits, w) = forgetful(&lab, old);
            if !old {
                limits.set_max_s(0);
            }
            assert!(w.timeout(Duration::from_secs(400), get(&i, "a")).await.is_none());
            assert_eq!(lock(&server.met).0, 1);
            // An administrator's remedy.
            i.reconnect();
            until(&w, "it is found", || !lock(&server.met).1.is_empty()).await;
        });
    }
}

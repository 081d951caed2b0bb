//! A server's memory for requests: greedy clients beside honest ones, and what others wait for.

use super::*;

const KIB: usize = 1 << 10;

/// A change with so many bytes of data.
async fn send(i: &Arc<Import>, name: String, bulk: usize, terms: Terms) -> Result<String, Errno> {
    let m = SetParam { name, value: String::new(), permanent: false, delete: false };
    let r = i.call_with(RequestContext::default(), m, Bytes::from(vec![1; bulk]), terms).await?;
    Ok(r.reply.values[0].1.clone())
}

/// A client that has as much under way as it may: so many changes of 8 KiB.
fn flood(w: &World, uuid: u8, changes: usize) -> Arc<Mutex<Vec<Result<String, Errno>>>> {
    let i = Import::new(w.clone(), config(uuid, TargetId::ost(0), &[1]));
    let done: Arc<Mutex<Vec<_>>> = Arc::default();
    for n in 0..changes {
        let (i, done) = (i.clone(), done.clone());
        w.spawn("flood", async move {
            let r = send(&i, format!("{uuid}.{n}"), 8 * KIB, Terms::default()).await;
            lock(&done).push(r);
        });
    }
    done
}

/// A request that is larger than all memory, which it has for so long from now on; those that come after it
/// take no time.
async fn hog(w: &World, counter: &Counter, stall: Duration) {
    *lock(&counter.stall) = stall;
    let hog = Import::new(w.clone(), config(9, TargetId::ost(0), &[1]));
    w.spawn("hog", async move { drop(send(&hog, "hog".into(), 1024 * KIB, Terms::default()).await) });
    until(w, "it runs", || lock(&counter.seen).running == 1).await;
    *lock(&counter.stall) = Duration::ZERO;
}

/// As [`admission::run`], with the service, and so much memory for requests.
fn run(seed: u64, max_bytes: usize, f: impl AsyncFnOnce(Arc<Server>, World, Arc<Counter>)) {
    let lab = Lab::new(seed);
    let (sw, _) = node(&lab, 1);
    let (w, _) = node(&lab, 2);
    lab.run(async {
        let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
        let counter = Counter::start(&sw, TargetId::ost(0), &disk, &seen);
        let server = serve(&sw, 1, vec![counter.clone()], &Peers::new()).await;
        server.inbound().set_max_bytes(max_bytes);
        f(server, w, counter).await;
    });
}

#[test]
fn greedy_clients_leave_memory_for_others_and_all_is_done_once() {
    run(21, 128 * KIB, async |server, w, counter| {
        let honest = Import::new(w.clone(), config(1, TargetId::ost(0), &[1]));
        set(&honest, "before").await.unwrap();
        *lock(&counter.stall) = Duration::from_secs(2);
        let floods: Vec<_> = (10..14).map(|uuid| flood(&w, uuid, 20)).collect();
        until(&w, "the memory is taken", || server.inbound().refused() > 20).await;
        for n in 0..10 {
            let start = w.now();
            assert_eq!(set(&honest, &n.to_string()).await.unwrap(), "1");
            let took = w.now().since(start);
            assert!(took < Duration::from_secs(4), "an honest client waited {took:?}");
            let (used, max) = (server.inbound().used_bytes(), server.inbound().max_bytes());
            assert!(used <= max, "{used} of {max}");
        }
        until(&w, "all is done", || floods.iter().all(|f| lock(f).len() == 20)).await;
        assert!(floods.iter().all(|f| lock(f).iter().all(|r| r.as_deref() == Ok("1"))));
        assert!(lock(&counter.disk).executed.values().all(|n| *n == 1));
        assert!(lock(&counter.seen).departed.is_empty(), "nobody was evicted");
        until(&w, "all memory is back", || server.inbound().used_bytes() == 0).await;
    });
}

#[test]
fn what_others_wait_for_has_memory_left() {
    run(22, 128 * KIB, async |server, w, counter| {
        let other = Import::new(w.clone(), config(1, TargetId::ost(0), &[1]));
        set(&other, "before").await.unwrap();
        hog(&w, &counter, Duration::from_secs(1000)).await;
        let patience = Duration::from_secs(30);
        let plain = send(&other, "plain".into(), KIB, Terms::default());
        assert!(w.timeout(patience, plain).await.is_none(), "there is no memory for it");
        let terms = Terms { waited_for: true, ..Terms::default() };
        let waited = send(&other, "waited".into(), 8 * KIB, terms);
        assert_eq!(w.timeout(patience, waited).await.expect("soon").as_deref(), Ok("1"));
        assert!(server.inbound().refused() > 0 && other.state() == ImportState::Full);
        // What is put off is not lost, though nobody waits for it any more.
        w.sleep(Duration::from_secs(1000)).await;
        until(&w, "it is done", || lock(&counter.disk).executed.get("plain") == Some(&1)).await;
    });
}

#[test]
fn a_put_off_request_outlives_its_connection() {
    run(23, 128 * KIB, async |server, w, counter| {
        hog(&w, &counter, Duration::from_secs(60)).await;
        let other = Import::new(w.clone(), config(1, TargetId::ost(0), &[1]));
        let call = {
            let other = other.clone();
            async move { send(&other, "plain".into(), KIB, Terms::default()).await }
        };
        let (tx, rx) = world::sync::oneshot::channel();
        w.spawn("other", async move { drop(tx.send(call.await)) });
        for _ in 0..5 {
            let before = server.inbound().refused();
            until(&w, "it is put off", || server.inbound().refused() > before).await;
            other.reconnect();
        }
        let r = w.timeout(Duration::from_secs(100), rx).await.expect("the hog ends").unwrap();
        assert_eq!(r.as_deref(), Ok("1"));
        assert_eq!(lock(&counter.disk).executed["plain"], 1);
    });
}

/// An older client takes an answer for an answer: it loses its connection instead, and connects anew.
#[test]
fn who_cannot_be_told_to_come_later_is_cut_off() {
    run(24, 128 * KIB, async |server, w, counter| {
        hog(&w, &counter, Duration::from_secs(60)).await;
        let ost0 = TargetId::ost(0).to_u32();
        let (conn, f) = admission::say_hello(&w, ost0, &admission::hello()).await;
        let (_, r): (wire::ReplyContext, wire::msg::connect::ConnectReply) =
            wire::decode_body(&f.body).unwrap();
        let mut h = wire::Header::new(wire::FrameKind::Request);
        (h.target, h.opcode, h.slot, h.xid) = (ost0, Op::GetParam as u16, 1, 1);
        (h.session, h.epoch) = (r.session, r.epoch);
        let body = wire::encode_body(&RequestContext::default(), &GetParam { pattern: "x".into() });
        conn.send(wire::Frame::new(h, body, Bytes::new())).await.unwrap();
        let said = conn.recv().await.unwrap().header;
        assert_eq!((said.kind, said.status), (wire::FrameKind::ConnectReply, Errno::EBUSY.0 as u16));
        assert!(conn.recv().await.is_err(), "the connection ends");
        assert_eq!(server.inbound().refused(), 1);
    });
}

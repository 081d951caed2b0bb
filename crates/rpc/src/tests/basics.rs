//! Without faults: calls, slots, dropped futures, several targets, good-bye.

use super::*;

struct Bench {
    lab: Lab,
    server: World,
    client: World,
    disk: Arc<Mutex<Disk>>,
    seen: Arc<Mutex<Seen>>,
}

fn bench(seed: u64) -> Bench {
    let lab = Lab::new(seed);
    let (server, _) = node(&lab, 1);
    let (client, _) = node(&lab, 9);
    Bench { lab, server, client, disk: Arc::default(), seen: Arc::default() }
}

impl Bench {
    fn counter(&self) -> Arc<Counter> {
        Counter::start(&self.server, TargetId::ost(0), &self.disk, &self.seen)
    }
}

#[test]
fn a_call_goes_there_and_back() {
    let b = bench(1);
    b.lab.run(async {
        let peers = Peers::new();
        serve(&b.server, 1, vec![b.counter()], &peers).await;
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1]));
        assert_eq!(i.state(), ImportState::New);
        assert_eq!(set(&i, "a").await.unwrap(), "1");
        assert_eq!(set(&i, "a").await.unwrap(), "2");
        assert_eq!(get(&i, "a").await.unwrap(), "2");
        assert_eq!(get(&i, "missing").await.unwrap_err(), Errno::ENOENT);
        assert_eq!(i.state(), ImportState::Full);
        assert_eq!(i.current_nid().to_string(), "10.0.0.1@tcp");
        let [peer] = &peers.list()[..] else { panic!("one session") };
        assert_eq!((peer.who.client, peer.who.address), (ClientId([7; 16]), ip(9)));
        assert_eq!((peer.name.as_str(), peer.connected), ("client-7", true));
        // Idle for long: pings keep the session.
        b.client.sleep(Duration::from_secs(120)).await;
        assert!(lock(&b.seen).departed.is_empty());
        i.disconnect().await;
        assert_eq!(lock(&b.seen).departed, vec![(ClientId([7; 16]), Departure::Disconnected)]);
        assert_eq!(get(&i, "a").await.unwrap_err(), Errno::ESHUTDOWN);
        assert_eq!(i.connected().await.unwrap_err(), Errno::ESHUTDOWN);
        assert_eq!(i.state(), ImportState::Closed);
        assert_eq!(peers.count(), 0);
    });
}

#[test]
fn slots_bound_what_runs_and_serve_in_order() {
    let b = bench(2);
    b.lab.run(async {
        serve(&b.server, 1, vec![b.counter()], &Peers::new()).await;
        let i = Import::new(b.client.clone(), ImportConfig { slots: 3, ..config(7, TargetId::ost(0), &[1]) });
        i.connected().await.unwrap();
        let calls = (0..60).map(|n| {
            let i = i.clone();
            Box::pin(async move { set(&i, &format!("{n:02}")).await }) as BoxFuture<Result<String, Errno>>
        });
        let all = world::future::join_all(calls.collect()).await;
        assert!(all.iter().all(|r: &Result<String, Errno>| r.as_deref() == Ok("1")));
        let s = lock(&b.seen);
        assert_eq!(s.running_max, 3);
        assert_eq!(s.order.len(), 60);
        let first = s.started.iter().min().unwrap();
        for (at, xid) in s.started.iter().enumerate() {
            let n = usize::try_from(xid - first).unwrap();
            assert!(n.abs_diff(at) < 3, "call {n} was served as number {at}: not in turn");
        }
    });
}

#[test]
fn dropped_calls_go_on_once_sent_and_go_away_before() {
    let b = bench(3);
    b.lab.run(async {
        let c = b.counter();
        serve(&b.server, 1, vec![c], &Peers::new()).await;
        let i = Import::new(b.client.clone(), ImportConfig { slots: 1, ..config(7, TargetId::ost(0), &[1]) });
        i.connected().await.unwrap();
        let w = &b.client;
        let wait = Duration::from_micros(200);
        assert!(w.timeout(wait, set(&i, "sent")).await.is_none());
        assert_eq!(i.load(), (1, 0), "the dropped call keeps its slot");
        assert!(w.timeout(wait, set(&i, "queued")).await.is_none());
        assert_eq!(i.load().1, 0, "a call without a slot goes with its future");
        assert_eq!(set(&i, "next").await.unwrap(), "1");
        let d = lock(&b.disk);
        assert_eq!(d.executed.get("sent"), Some(&1));
        assert_eq!(d.executed.get("queued"), None);
    });
}

#[test]
fn two_targets_and_two_file_systems_share_an_endpoint() {
    let b = bench(4);
    b.lab.run(async {
        let (d1, d2, d3) = (Arc::default(), Arc::default(), Arc::default());
        let (a, c) = (TargetId::ost(0), TargetId::mdt(0));
        let mut other = Counter::start(&b.server, a, &d3, &Arc::default());
        Arc::get_mut(&mut other).unwrap().fsname = "other".into();
        let s = serve(&b.server, 1, vec![Counter::start(&b.server, a, &d1, &b.seen)], &Peers::new()).await;
        s.add(Counter::start(&b.server, c, &d2, &b.seen), Peers::new());
        s.add(other, Peers::new());
        let one = Import::new(b.client.clone(), config(7, a, &[1]));
        let two = Import::new(b.client.clone(), config(7, c, &[1]));
        let three =
            Import::new(b.client.clone(), ImportConfig { fsname: "other".into(), ..config(7, a, &[1]) });
        set(&one, "x").await.unwrap();
        set(&two, "y").await.unwrap();
        set(&three, "z").await.unwrap();
        assert_eq!(lock(&d1).executed.keys().collect::<Vec<_>>(), ["x"]);
        assert_eq!(lock(&d2).executed.keys().collect::<Vec<_>>(), ["y"]);
        assert_eq!(lock(&d3).executed.keys().collect::<Vec<_>>(), ["z"]);
        // A target that is taken away ends its sessions only.
        s.remove(c);
        until(&b.client, "the session ends", || two.state() != ImportState::Full).await;
        assert_eq!(one.state(), ImportState::Full);
        set(&one, "x").await.unwrap();
    });
}

#[test]
fn a_deactivated_target_fails_at_once() {
    let b = bench(5);
    b.lab.run(async {
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1]));
        let w = b.client.clone();
        let off = async {
            w.sleep(Duration::from_secs(3)).await;
            i.set_active(false);
            std::future::pending::<()>().await;
        };
        match world::select(set(&i, "never"), off).await {
            world::Either::Left(r) => assert_eq!(r.unwrap_err(), Errno::EIO),
            world::Either::Right(()) => unreachable!(),
        }
        assert_eq!(set(&i, "never").await.unwrap_err(), Errno::EIO);
        i.set_active(true);
        serve(&b.server, 1, vec![b.counter()], &Peers::new()).await;
        assert_eq!(set(&i, "now").await.unwrap(), "1");
        assert_eq!(lock(&b.disk).executed.get("never"), None);
    });
}

struct Ears(Arc<Mutex<Vec<wire::msg::notify::Notify>>>);

impl ImportHooks for Ears {
    fn notify(&self, n: wire::msg::notify::Notify) {
        lock(&self.0).push(n);
    }
}

#[test]
fn notifies_arrive_and_a_stop_is_told() {
    use wire::msg::notify::Notify;
    let b = bench(6);
    b.lab.run(async {
        let peers = Peers::new();
        let s = serve(&b.server, 1, vec![b.counter()], &peers).await;
        let heard = Arc::default();
        let hooks = Arc::new(Ears(Arc::clone(&heard)));
        let i = Import::new(b.client.clone(), ImportConfig { hooks, ..config(7, TargetId::ost(0), &[1]) });
        i.connected().await.unwrap();
        peers.notify(ClientId([7; 16]), Notify::LockGranted { id: 5, errno: 0 });
        peers.notify(ClientId([8; 16]), Notify::LockGranted { id: 6, errno: 0 });
        peers.notify_all(Notify::ConfigChanged { version: 3 });
        until(&b.client, "two notifies", || lock(&heard).len() == 2).await;
        s.stop().await;
        until(&b.client, "the stop is told", || lock(&heard).contains(&Notify::Stopping)).await;
        until(&b.client, "disconnected", || i.state() != ImportState::Full).await;
        assert!(lock(&b.seen).departed.is_empty(), "a stop is no departure");
    });
}

//! A client that one target has evicted, at the others.

use super::*;
use wire::msg::notify::Notify;
use wire::proof::Claimant;

const OST0: TargetId = TargetId::ost(0);
const A: ClientId = ClientId([9; 16]);
const B: ClientId = ClientId([8; 16]);

/// A server of another target, that this one knows by its key; or somebody who says so.
struct Teller {
    key: Key,
    told: Mutex<Vec<[u8; 16]>>,
}

impl ImportHooks for Teller {
    fn keys(&self) -> Vec<(Claimant, Key)> {
        vec![(Claimant::Server, self.key)]
    }
    fn notify(&self, n: Notify) {
        if let Notify::ClientEvicted { client } = n {
            lock(&self.told).push(client);
        }
    }
}

struct Scene {
    lab: Lab,
    seen: Arc<Mutex<Seen>>,
    server: Option<Arc<Server>>,
    peers: Peers,
    teller: Arc<Teller>,
    world: Option<World>,
    imports: Vec<Arc<Import>>,
}

impl Scene {
    fn new(seed: u64, key: Key) -> Scene {
        let teller = Arc::new(Teller { key, told: Mutex::default() });
        Scene {
            lab: Lab::new(seed),
            seen: Arc::default(),
            server: None,
            peers: Peers::new(),
            teller,
            world: None,
            imports: vec![],
        }
    }

    /// A at address 9 and B at 8; the teller is the third.
    async fn start(&mut self) {
        let (host, _) = node(&self.lab, 1);
        let mut service = Counter::start(&host, OST0, &Arc::default(), &self.seen);
        Arc::get_mut(&mut service).unwrap().strict = true;
        self.server = Some(serve(&host, 1, vec![service], &self.peers).await);
        for n in [9, 8, 7] {
            let (w, _) = node(&self.lab, n);
            let mut cfg = config(n, OST0, &[1]);
            if n == 7 {
                cfg.hooks = self.teller.clone();
            }
            let i = Import::new(w.clone(), cfg);
            get(&i, "a").await.unwrap();
            self.imports.push(i);
            self.world = Some(w);
        }
    }

    /// How long A, silent from now on, stays: after 8 s the teller says that A and B were evicted elsewhere.
    async fn stays(&mut self) -> Duration {
        let w = self.world.clone().unwrap();
        self.lab.silence(ip(9), true);
        let start = w.now();
        w.sleep(Duration::from_secs(8)).await;
        for c in [A, B] {
            self.imports[2].tell_evicted(c.0);
        }
        until(&w, "A is evicted", || !lock(&self.seen).departed.is_empty()).await;
        let stayed = w.now().since(start);
        w.sleep(Duration::from_secs(60)).await;
        assert_eq!(lock(&self.seen).departed, [(A, Departure::Evicted)], "B is heard from, and stays");
        stayed
    }
}

#[test]
fn a_client_that_is_silent_here_too_goes_sooner() {
    let mut s = Scene::new(51, SERVER_KEY);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let stayed = s.stays().await;
        let leases = crate::lease_life(Duration::from_secs(5));
        assert!(stayed > leases && stayed < Duration::from_secs(18), "{stayed:?}");
    });
}

#[test]
fn only_servers_are_believed() {
    let mut s = Scene::new(52, [1; 32]);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let stayed = s.stays().await;
        assert!(stayed >= Duration::from_secs(30), "{stayed:?}");
    });
}

#[test]
fn servers_are_told_of_an_eviction_and_clients_are_not() {
    for (key, told) in [(SERVER_KEY, vec![A.0]), ([1; 32], vec![])] {
        let mut s = Scene::new(53, key);
        let lab = s.lab.clone();
        lab.run(async {
            s.start().await;
            assert!(s.server.as_ref().unwrap().evict(OST0, A));
            let w = s.world.clone().unwrap();
            w.sleep(Duration::from_secs(1)).await;
            assert_eq!(*lock(&s.teller.told), told);
        });
    }
}

/// By address or UUID; a server's sessions are none that an address names.
#[test]
fn an_administrator_evicts_clients_by_nid_and_uuid_and_no_server_by_nid() {
    let mut s = Scene::new(55, SERVER_KEY);
    let lab = s.lab.clone();
    lab.run(async {
        s.start().await;
        let (peers, w) = (s.peers.clone(), s.world.clone().unwrap());
        for nobody in [format!("nid:{}@tcp", ip(6)), format!("nid:{}", ip(7)), ClientId([6; 16]).to_string()]
        {
            assert_eq!(peers.evict_client(&nobody), Err(Errno::ENXIO), "{nobody}");
        }
        assert_eq!(peers.evict_client("nid:everybody"), Err(Errno::EINVAL));
        peers.evict_client(&format!("nid:{}@tcp1", ip(9))).unwrap();
        until(&w, "evicted", || lock(&s.seen).departed == [(A, Departure::Evicted)]).await;
        peers.evict_client(&ClientId([8; 16]).to_string()).unwrap();
        until(&w, "evicted too", || lock(&s.seen).departed.len() == 2).await;
        assert_eq!((peers.eviction_count(), lock(&s.teller.told).len()), (2, 2));
        get(&s.imports[0], "a").await.expect("it comes back as a new client");
    });
}

/// Targets of one server need no network for it.
#[test]
fn targets_of_one_server_know_at_once() {
    let lab = Lab::new(54);
    let seen = [Arc::<Mutex<Seen>>::default(), Arc::default()];
    lab.run(async {
        let (host, _) = node(&lab, 1);
        let server = serve(&host, 1, vec![], &Peers::new()).await;
        let targets = [OST0, TargetId::ost(1)];
        let (w, _) = node(&lab, 9);
        for (id, seen) in targets.iter().zip(&seen) {
            server.add(Counter::start(&host, *id, &Arc::default(), seen), Peers::new());
            get(&Import::new(w.clone(), config(9, *id, &[1])), "a").await.unwrap();
        }
        lab.silence(ip(9), true);
        w.sleep(Duration::from_secs(20)).await;
        assert!(seen.iter().all(|s| lock(s).departed.is_empty()));
        server.evict(OST0, A);
        w.sleep(Duration::from_millis(100)).await;
        assert!(seen.iter().all(|s| lock(s).departed == [(A, Departure::Evicted)]));
    });
}

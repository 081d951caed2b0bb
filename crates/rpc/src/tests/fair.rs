//! Who begins next when not all can, with a service whose requests cost time.

use super::*;
use crate::credits::Role;
use crate::nrs::{Holders, Nrs};
use model::{Cred, ObjectId};
use wire::msg::read::{Read, ReadReply};
use wire::msg::statfs::{Statfs, StatfsReply};
use wire::msg::sync::Sync;
use world::Instant;

const OST: TargetId = TargetId::ost(0);
const MS: Duration = Duration::from_millis(1);
/// Whose requests are never answered.
const STUCK: u32 = 666;

/// A target with two processors, on which requests take their turns.
struct Mill {
    world: World,
    work: Duration,
    free: Mutex<[Instant; 2]>,
    /// Users, in the order in which their requests began.
    begun: Mutex<Vec<u32>>,
    /// Somebody waits for what these have.
    awaited: Mutex<BTreeSet<ClientId>>,
    departed: Mutex<Vec<ClientId>>,
}

impl Service for Mill {
    fn target(&self) -> TargetId {
        OST
    }
    fn fsname(&self) -> String {
        "fs".into()
    }
    fn epoch(&self) -> u32 {
        1
    }
    fn last_committed(&self) -> u64 {
        0
    }
    fn connect(self: Arc<Self>, _: Greeting) -> BoxFuture<Result<ConnectOutcome, (Errno, String)>> {
        Box::pin(async { Ok(ConnectOutcome { new_client: true, recovering: false }) })
    }
    fn stored_reply(&self, _: ClientId, _: u16) -> Option<StoredReply> {
        None
    }
    fn handle(self: Arc<Self>, req: Incoming) -> BoxFuture<Outgoing> {
        Box::pin(async move {
            let uid = req.ctx.cred.uid;
            lock(&self.begun).push(uid);
            if uid == STUCK && req.op != Op::Statfs {
                std::future::pending::<()>().await;
            }
            let now = self.world.now();
            let done = {
                let mut free = lock(&self.free);
                let first = if free[0] <= free[1] { 0 } else { 1 };
                free[first] = free[first].max(now).plus(self.work);
                free[first]
            };
            self.world.sleep(done.since(now)).await;
            match req.op {
                Op::Sync => Outgoing::ok(&(), 0),
                Op::Statfs => Outgoing::ok(&StatfsReply::default(), 0),
                _ => Outgoing::ok(&ReadReply { len: 0, object_size: 0, block_crcs: Vec::new() }, 0),
            }
        })
    }
    fn departed(self: Arc<Self>, client: ClientId, _: Departure) -> BoxFuture<()> {
        lock(&self.departed).push(client);
        Box::pin(async {})
    }
}

impl Holders for Mill {
    fn awaited(&self, client: ClientId) -> bool {
        lock(&self.awaited).contains(&client)
    }
}

struct Rig {
    w: World,
    server: Arc<Server>,
    nrs: Arc<Nrs>,
    mill: Arc<Mill>,
}

fn run<T>(seed: u64, work: Duration, f: impl AsyncFnOnce(Rig) -> T) -> T {
    let lab = Lab::new(seed);
    let (sw, _) = node(&lab, 1);
    let (w, _) = node(&lab, 2);
    lab.run(async {
        let mill = Arc::new(Mill {
            world: sw.clone(),
            work,
            free: Mutex::default(),
            begun: Mutex::default(),
            awaited: Mutex::default(),
            departed: Mutex::default(),
        });
        let peers = Peers::new();
        peers.set_holders(&mill);
        let server = serve(&sw, 1, vec![mill.clone()], &peers).await;
        f(Rig { w, server, nrs: peers.nrs().clone(), mill }).await
    })
}

fn ctx(uid: u32, job: &str) -> RequestContext {
    RequestContext { cred: Cred::new(uid, uid), jobid: job.into(), ..RequestContext::default() }
}

impl Rig {
    fn mount(&self, uuid: u8) -> Arc<Import> {
        Import::new(self.w.clone(), ImportConfig { slots: 32, ..config(uuid, OST, &[1]) })
    }

    /// A mount that asks for all slots.
    fn full_mount(&self, uuid: u8) -> Arc<Import> {
        let slots = model::limits::SLOTS_PER_SESSION;
        Import::new(self.w.clone(), ImportConfig { slots, ..config(uuid, OST, &[1]) })
    }

    /// So many requests at once; how many were answered.
    fn send(&self, i: &Arc<Import>, uid: u32, n: usize) -> Arc<Mutex<Vec<Duration>>> {
        let done: Arc<Mutex<Vec<Duration>>> = Arc::default();
        for k in 0..n {
            let (i, w, done) = (i.clone(), self.w.clone(), done.clone());
            self.w.spawn("send", async move {
                let start = w.now();
                let r = i.call(ctx(uid, &format!("j.{k}")), Sync { object: None }, Bytes::new()).await;
                if r.is_ok() {
                    lock(&done).push(w.now().since(start));
                }
            });
        }
        done
    }

    /// How long one request takes.
    async fn one(&self, i: &Arc<Import>, uid: u32) -> Duration {
        let start = self.w.now();
        i.call(ctx(uid, "ls"), Sync { object: None }, Bytes::new()).await.unwrap();
        self.w.now().since(start)
    }

    /// A user's requests that are never answered wait for one another, more of them than there are places.
    async fn clog(&self, places: u64) -> Arc<Import> {
        self.nrs.set_places(places);
        let stuck = self.mount(66);
        drop(self.send(&stuck, STUCK, 30));
        until(&self.w, "all are there", || self.nrs.depth() == (30 - places as usize, places as usize)).await;
        stuck
    }
}

/// 32 processes on each of four mounts as one user, and another user's `ls`: how long its requests take, and
/// what the first one got done.
async fn flood(rig: &Rig, policy: &str) -> (Vec<Duration>, usize) {
    rig.nrs.set_policy(policy).unwrap();
    let done: Arc<Mutex<usize>> = Arc::default();
    let over: Arc<AtomicBool> = Arc::default();
    for uuid in 10..14 {
        let mount = rig.mount(uuid);
        for k in 0..32 {
            let (mount, done, over) = (mount.clone(), done.clone(), over.clone());
            rig.w.spawn("flood", async move {
                while !over.load(Ordering::Relaxed) {
                    let ctx = ctx(1000, &format!("small.{uuid}.{k}"));
                    mount.call(ctx, Sync { object: None }, Bytes::new()).await.unwrap();
                    *lock(&done) += 1;
                }
            });
        }
    }
    let (ls, start) = (rig.mount(20), rig.w.now());
    let mut took = Vec::new();
    rig.w.sleep(MS * 200).await;
    for _ in 0..300 {
        took.push(rig.one(&ls, 2000).await);
        rig.w.sleep(MS * 5).await;
    }
    over.store(true, Ordering::Relaxed);
    let per_second = *lock(&done) as f64 / rig.w.now().since(start).as_secs_f64();
    took.sort_unstable();
    (took, per_second as usize)
}

#[test]
fn a_flood_of_one_user_leaves_the_others_their_turn() {
    let of = |policy: &'static str| run(31, MS / 2, async |rig| flood(&rig, policy).await);
    let p = |t: &[Duration], percent: usize| t[(t.len() - 1) * percent / 100];
    let mut p99 = Vec::new();
    for policy in ["fifo", "fair", "tbf uid"] {
        let (took, rate) = of(policy);
        println!(
            "{policy:8} ls beside 128 processes: p50 {:?} p99 {:?} max {:?}; the flood gets {rate}/s",
            p(&took, 50),
            p(&took, 99),
            took[took.len() - 1]
        );
        p99.push(p(&took, 99));
        assert!(rate > 3500, "two processors do 4000 in a second, and nothing is wasted: {rate}");
    }
    assert!(p99[0] > MS * 25, "what comes first is first: {p99:?}");
    assert!(p99[1] < MS * 8 && p99[2] < MS * 8, "{p99:?}");
}

#[test]
fn without_contention_nobody_waits() {
    run(32, MS, async |rig| {
        let mount = rig.mount(1);
        let done = rig.send(&mount, 1, 10);
        until(&rig.w, "done", || lock(&done).len() == 10).await;
        assert!(lock(&done).iter().all(|t| *t < MS * 7), "{done:?}", done = lock(&done));
        let text = rig.nrs.stats_text();
        assert!(text.contains("begun_at_once: 10\n") && text.ends_with("classes:"), "{text}");
        assert_eq!(rig.nrs.depth(), (0, 0));
    });
}

/// Requests that wait for ever, for a lock or a disk or for one another, do not keep others out.
#[test]
fn what_is_never_answered_stops_nobody() {
    run(33, MS, async |rig| {
        let stuck = rig.clog(2).await;
        let other = rig.mount(1);
        for _ in 0..20 {
            let took = rig.one(&other, 1).await;
            assert!(took < MS * 50, "{took:?}");
        }
        until(&rig.w, "they begin, too", || rig.nrs.depth().0 == 0).await;
        assert_eq!(lock(&rig.mill.begun).iter().filter(|u| **u == STUCK).count(), 30);
        drop(stuck);
    });
}

#[test]
fn what_unblocks_others_takes_no_place() {
    run(34, MS, async |rig| {
        rig.nrs.set_place_ms(1000);
        let (w, stuck) = (rig.w.clone(), rig.clog(1).await);
        let other = rig.mount(1);
        let soon = |f| w.timeout(MS * 20, f);
        let statfs = stuck.call(ctx(STUCK, ""), Statfs { flags: 0 }, Bytes::new());
        assert!(soon(statfs).await.expect("it asks for space").is_ok());
        let waited = Terms { waited_for: true, ..Terms::default() };
        let sync = other.call_with(ctx(1, ""), Sync { object: None }, Bytes::new(), waited);
        assert!(w.timeout(MS * 20, sync).await.expect("others may wait for it").is_ok());
        // Data under a lock goes before others only if somebody waits for that.
        let checksum = wire::checksum::ChecksumType::default();
        let read = Read { object: ObjectId::from_bytes(&[1; 24]), offset: 0, len: 4096, checksum, lock: 7 };
        let again = || other.call_with(ctx(1, ""), read.clone(), Bytes::new(), waited);
        assert!(w.timeout(MS * 20, again()).await.is_none());
        lock(&rig.mill.awaited).insert(ClientId([1; 16]));
        assert!(w.timeout(MS * 20, again()).await.expect("somebody waits now").is_ok());
        assert!(rig.nrs.stats_text().contains("went_ahead: 3\n"), "{}", rig.nrs.stats_text());
    });
}

#[test]
fn rules_hold_and_do_not_get_a_client_evicted() {
    run(35, MS / 10, async |rig| {
        rig.nrs.order("start slow uid={5} rate=10; start never jobid={x} rate=1").unwrap();
        let (a, b) = (rig.mount(1), rig.mount(2));
        let start = rig.w.now();
        let done = rig.send(&a, 5, 23);
        let took = rig.one(&b, 6).await;
        assert!(took < MS * 10, "no rule is for this one: {took:?}");
        until(&rig.w, "done", || lock(&done).len() == 23).await;
        let took = rig.w.now().since(start);
        assert!((MS * 1990..MS * 2200).contains(&took), "3 at once, then 10 in a second: {took:?}");
        assert!(rig.nrs.rules_text().contains("slow uid={5} 10, ref 1"), "{}", rig.nrs.rules_text());
        // Somebody comes to wait for what the slow one has.
        rig.nrs.order("change slow rate=1").unwrap();
        let (done, start) = (rig.send(&a, 5, 30), rig.w.now());
        rig.w.sleep(MS * 100).await;
        lock(&rig.mill.awaited).insert(ClientId([1; 16]));
        until(&rig.w, "done", || lock(&done).len() == 30).await;
        let took = rig.w.now().since(start);
        assert!(took < MS * 1500, "{took:?}");
    });
}

#[test]
fn a_rule_that_is_stopped_holds_nobody() {
    run(36, MS / 10, async |rig| {
        rig.nrs.order("start slow jobid={j.*} rate=1").unwrap();
        let a = rig.mount(1);
        let done = rig.send(&a, 5, 30);
        // One bucket for each job: all begin.
        until(&rig.w, "done", || lock(&done).len() == 30).await;
        rig.nrs.order("stop slow; start slow uid={5} rate=1").unwrap();
        let done = rig.send(&a, 5, 30);
        rig.w.sleep(MS * 500).await;
        assert_eq!(lock(&done).len(), 3);
        rig.nrs.order("stop slow").unwrap();
        rig.w.sleep(MS * 50).await;
        assert_eq!(lock(&done).len(), 30);
        // And fifo holds nobody either.
        rig.nrs.order("start slow uid={5} rate=1").unwrap();
        let done = rig.send(&a, 5, 30);
        rig.w.sleep(MS * 500).await;
        assert_eq!((lock(&done).len(), rig.nrs.depth().0), (3, 27));
        rig.nrs.set_policy("fifo").unwrap();
        rig.w.sleep(MS * 50).await;
        assert_eq!((lock(&done).len(), rig.nrs.depth()), (30, (0, 0)));
    });
}

#[test]
fn a_session_that_ends_and_a_server_that_stops_wait_for_nobody() {
    run(37, MS / 10, async |rig| {
        rig.nrs.order("start slow uid={5} rate=1").unwrap();
        let (a, b) = (rig.mount(1), rig.mount(2));
        let (one, two) = (rig.send(&a, 5, 30), rig.send(&b, 5, 30));
        until(&rig.w, "they wait", || rig.nrs.depth().0 == 57).await;
        let start = rig.w.now();
        assert!(rig.server.evict(OST, ClientId([1; 16])));
        until(&rig.w, "it is gone", || lock(&rig.mill.departed).contains(&ClientId([1; 16]))).await;
        let took = rig.w.now().since(start);
        assert!(took < Duration::from_secs(17), "its lease, not its requests: {took:?}");
        assert!(rig.nrs.depth().0 <= 30, "only the other one waits");
        let start = rig.w.now();
        rig.server.stop().await;
        assert!(rig.w.now().since(start) < MS * 500);
        assert_eq!(rig.nrs.depth().0, 0);
        drop((one, two, a, b));
    });
}

/// Jobs of one user share his part.
#[test]
fn many_jobs_of_one_user_get_one_part() {
    run(38, MS, async |rig| {
        rig.nrs.set_places(4);
        let (a, b, c) = (rig.mount(1), rig.mount(2), rig.mount(3));
        for i in [&a, &b, &c] {
            rig.one(i, 1).await;
        }
        let many = [rig.send(&a, 5, 32), rig.send(&b, 5, 32)];
        rig.w.sleep(MS * 4).await;
        let few = rig.send(&c, 6, 6);
        while lock(&few).len() < 6 {
            rig.w.sleep(MS / 2).await;
        }
        let others: usize = many.iter().map(|m| lock(m).len()).sum();
        assert!((10..26).contains(&others), "as many, and those that had begun before: {others} of 64");
        until(&rig.w, "all are done", || many.iter().all(|m| lock(m).len() == 32)).await;
    });
}

/// One with all slots of a session, and more to send than they are.
#[test]
fn who_sends_more_than_he_has_slots_waits_on_his_own_side() {
    run(41, MS, async |r| {
        let (credits, flood, other) = (r.nrs.credits(), r.full_mount(7), r.mount(8));
        r.nrs.set_policy("fifo").unwrap();
        r.one(&flood, 5).await;
        let all = u64::from(model::limits::SLOTS_PER_SESSION);
        let (low, one) = (credits.slots_low(Role::Client), "one is the session's, and one was used");
        assert_eq!(low, all - 2, "{one}");
        credits.clear_low(Role::Client);
        // It holds for sessions that are there, from the next answer on.
        credits.set_slots_max(Role::Client, 40);
        r.one(&flood, 5).await;
        let done = r.send(&flood, STUCK, 200);
        until(&r.w, "as many are there as may be", || lock(&r.mill.begun).len() >= 41).await;
        for _ in 0..20 {
            r.one(&other, 6).await;
        }
        let stuck = lock(&r.mill.begun).iter().filter(|u| **u == STUCK).count();
        assert_eq!(stuck, 39, "the others wait where they were sent");
        assert_eq!((credits.slots_low(Role::Client), credits.slots_low(Role::Server)), (0, all - 1));
        credits.clear_low(Role::Client);
        assert_eq!(credits.slots_low(Role::Client), 39);
        credits.set_slots_max(Role::Client, 64);
        r.one(&other, 6).await;
        assert!(lock(&done).is_empty());
    });
}

//! Sessions against a fake target: what a mount sends, how much of it at a time, and what it makes of the
//! answers, in virtual time.

use super::{SessionOwner, Target};
use crate::base::Context;
use crate::testing::{self, Fake, FakeOst, Hold, ip};
use bytes::Bytes;
use model::mutex::Mutex;
use model::{Errno, Fid, Nid, ObjectId, TargetId, Timestamp, limits};
use rpc::testing::Lab;
use rpc::{ClientId, ImportState, Peers, Server, Terms};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use wire::checksum::ChecksumType;
use wire::msg::extent::{ExtentMode, ExtentSpec};
use wire::msg::getattr::Getattr;
use wire::msg::glimpse::Glimpse;
use wire::msg::mkdir::Mkdir;
use wire::msg::notify::Notify;
use wire::msg::read::Read;
use wire::msg::reclaim::{Reclaim, ReclaimReply};
use wire::msg::truncate::Truncate;
use wire::msg::write::Write;
use wire::msg::writelist::Writelist;
use wire::{Bulk, Op};
use world::{BoxFuture, World};

const OST: TargetId = TargetId::ost(0);
const MDT: TargetId = TargetId::mdt(0);
const FILE: Fid = Fid::new(9, 1, 0);
const OBJECT: ObjectId = ObjectId { origin: FILE, component: 1, stripe: 0 };
const CLIENT: u8 = 9;

/// What the layer above was told, and what it says.
#[derive(Default)]
struct Owner {
    has: Mutex<Vec<Reclaim>>,
    reclaimed: Mutex<Vec<ReclaimReply>>,
    lost: Mutex<Vec<Op>>,
    notices: AtomicUsize,
    evictions: AtomicUsize,
    /// Something was executed that the server must be told first, which takes a second.
    barrier: AtomicBool,
    passed: AtomicUsize,
    world: Mutex<Option<World>>,
}

impl SessionOwner for Owner {
    fn reclaim(&self) -> Vec<Reclaim> {
        self.has.lock().clone()
    }
    fn reclaimed(&self, lost: &ReclaimReply) {
        self.reclaimed.lock().push(lost.clone());
    }
    fn request_lost(&self, op: Op, _: &Bytes, _: &Bytes) {
        self.lost.lock().push(op);
    }
    fn notice(self: Arc<Self>, _: Notify) {
        self.notices.fetch_add(1, SeqCst);
    }
    fn evicted(&self) {
        self.evictions.fetch_add(1, SeqCst);
    }
    fn has_barrier(&self) -> bool {
        self.barrier.load(SeqCst)
    }
    fn pass_barrier(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            let world = self.world.lock().clone().expect("set at the beginning");
            world.sleep(Duration::from_secs(1)).await;
            self.passed.fetch_add(1, SeqCst);
        })
    }
}

struct Rig {
    lab: Lab,
    cx: Arc<Context>,
    world: World,
    fake: Arc<Fake<FakeOst>>,
    server: Arc<Server>,
    peers: Peers,
    target: Arc<Target>,
    owner: Arc<Owner>,
}

impl Rig {
    fn client(&self) -> ClientId {
        ClientId(self.cx.uuid)
    }

    async fn until(&self, what: &str, f: impl Fn() -> bool) {
        testing::until(&self.world, what, f).await;
    }

    /// Writes ranges of the object under a lock, as write-back does.
    async fn write(&self, runs: &[(u64, &[u8])]) -> Result<(), Errno> {
        let data = |(off, b): &(u64, &[u8])| (*off, Bulk::from(Bytes::copy_from_slice(b)));
        let m = Write {
            object: OBJECT,
            offset: runs[0].0,
            append: false,
            file: FILE,
            uid: 0,
            gid: 0,
            projid: 0,
            inode_ctime: Timestamp::ZERO,
            block_crcs: Vec::new(),
            checksum: ChecksumType::None,
            lock: 7,
            granted: false,
        };
        let sent = self.target.send_summed(self.cx.own(), m, runs.iter().map(data).collect(), false);
        sent.await.map(drop)
    }

    /// `lock`: 0, if the server has to keep others off.
    async fn read(&self, offset: u64, len: u32, lock: u64) -> Result<Bytes, Errno> {
        let m = Read { object: OBJECT, offset, len, checksum: ChecksumType::None, lock };
        Ok(self.target.fetch_summed(self.cx.own(), FILE, m).await?.bulk)
    }

    async fn glimpse(&self) -> Result<(), Errno> {
        self.target.call(self.cx.own(), Glimpse { objects: vec![OBJECT] }).await.map(drop)
    }

    fn errors(&self) -> u64 {
        self.target.checksums.errors.load(SeqCst)
    }

    /// Something that goes on beside the test; how often it ended, and how it did last.
    fn beside(&self, f: impl Future<Output = Result<(), Errno>> + Send + 'static) -> Arc<Mutex<Ended>> {
        let ended: Arc<Mutex<Ended>> = Arc::default();
        let of_it = ended.clone();
        self.world.spawn("beside", async move { *of_it.lock() = Some(f.await) });
        ended
    }

    /// A call that changes nothing, beside the test.
    fn call_beside(&self) -> Arc<Mutex<Ended>> {
        let (t, ctx) = (self.target.clone(), self.cx.own());
        self.beside(async move { t.call(ctx, Glimpse { objects: vec![OBJECT] }).await.map(drop) })
    }
}

type Ended = Option<Result<(), Errno>>;

/// A session with a target that is told beforehand what `before` says.
fn run_with<F: Future<Output = ()>>(
    seed: u64,
    id: TargetId,
    before: impl FnOnce(&Fake<FakeOst>),
    test: impl FnOnce(Rig) -> F,
) {
    let lab = Lab::new(seed);
    let node = |n: u8| lab.node(ip(n), Arc::new(world::mem::MemDisk::new())).0;
    let (server_world, world) = (node(1), node(CLIENT));
    lab.run(async {
        let fake = Fake::new(&server_world, id, FakeOst::new());
        before(&fake);
        let (server, peers) = testing::serve(&server_world, ip(1), fake.clone()).await;
        let cx = testing::context(&world);
        let owner = Arc::new(Owner::default());
        *owner.world.lock() = Some(world.clone());
        let weak: std::sync::Weak<Owner> = Arc::downgrade(&owner);
        let target = Target::new(&cx, id, vec![Nid { addr: ip(1), net: 0 }], weak);
        target.import.connected().await.unwrap();
        test(Rig { lab: lab.clone(), cx, world, fake, server, peers, target, owner }).await;
    });
}

fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rig) -> F) {
    run_with(seed, OST, |_| {}, test);
}

#[test]
fn data_that_is_damaged_on_its_way_to_the_server_goes_again_and_is_stored_whole() {
    run(1, |r| async move {
        r.fake.script().damaged_writes = 2;
        let data = vec![7; 10_000];
        assert_eq!(r.write(&[(100, &data)]).await, Ok(()));
        assert_eq!(r.fake.script().bytes(OBJECT)[100..], data[..]);
        assert_eq!((r.errors(), r.fake.count(Op::Write)), (2, 3), "each difference is counted");
        r.fake.script().damaged_writes = 100;
        assert_eq!(r.write(&[(0, b"never whole")]).await, Err(Errno::EIO), "it is not tried for ever");
        let tries = limits::DAMAGED_RESENDS_MAX as usize + 1;
        assert_eq!(r.fake.count(Op::Write), 3 + tries);
        assert_eq!(r.fake.script().bytes(OBJECT)[..11], [0; 11], "damaged data is not stored");
    });
}

#[test]
fn a_read_never_returns_data_that_was_damaged_on_its_way() {
    run(2, |r| async move {
        *r.fake.script().bytes(OBJECT) = b"as it was written".to_vec();
        r.fake.script().damaged_reads = 1;
        assert_eq!(r.read(0, 100, 7).await.as_deref(), Ok(&b"as it was written"[..]));
        assert_eq!((r.errors(), r.fake.script().reads), (1, 2));
        r.fake.script().damaged_reads = 100;
        assert_eq!(r.read(3, 5, 7).await, Err(Errno::EIO));
        assert_eq!(r.fake.script().reads, 2 + limits::DAMAGED_RESENDS_MAX as usize + 1);
        // Without checksums nobody would notice, and nobody is asked to compute them.
        r.target.checksums.set_on(false);
        r.fake.script().damaged_reads = 1;
        assert_eq!(r.read(0, 2, 7).await.as_deref(), Ok(&b"`s"[..]));
    });
}

#[test]
fn every_type_of_checksum_finds_damage_in_every_range_of_a_list_of_writes() {
    let ranges = |f: &Fake<FakeOst>| f.write_ranges.store(100, SeqCst);
    run_with(3, OST, ranges, |r| async move {
        assert_eq!(r.target.write_ranges(), 100);
        for (i, kind) in ChecksumType::ALL.into_iter().enumerate() {
            assert!(r.target.checksums.set_kind(kind.name()));
            r.fake.script().damaged_writes = 1;
            let block = vec![1 + i as u8; 9000];
            assert_eq!(r.write(&[(10, b"first"), (4090, &block), (20_000, b"last")]).await, Ok(()));
            assert_eq!(r.errors(), 1 + i as u64, "{}", kind.name());
            assert_eq!(r.fake.asked::<Writelist>().last().unwrap().write.checksum, kind);
            let mut s = r.fake.script();
            assert_eq!(s.bytes(OBJECT)[10..15], *b"first");
            assert_eq!(s.bytes(OBJECT)[4090..13_090], block[..]);
            assert_eq!(s.bytes(OBJECT)[20_000..], *b"last");
        }
        assert_eq!(r.fake.count(Op::Writelist), 6);
    });
}

#[test]
fn messages_are_as_large_as_both_the_mount_and_the_target_want_and_no_larger() {
    run_with(
        4,
        OST,
        |f| f.bulk_bytes.store(1 << 20, SeqCst),
        |r| async move {
            let t = &r.target;
            assert_eq!(t.bulk_bytes(), 1 << 20, "the target said so when it was connected to");
            t.set_bulk_bytes(64 << 10);
            assert_eq!(t.bulk_bytes(), 64 << 10, "an administrator wants less");
            let told = |bytes: u64| r.peers.notify(r.client(), Notify::BulkLimit { bytes });
            told(10_000);
            r.until("whole pages", || t.bulk_bytes() == 8192).await;
            told(1);
            r.until("a page at least", || t.bulk_bytes() == 4096).await;
            told(u64::MAX);
            r.until("what a frame takes at most", || t.bulk_limit() == limits::RPC_BULK_MAX_BYTES).await;
            assert_eq!((t.bulk_bytes(), t.write_ranges()), (64 << 10, 1));
            assert_eq!(r.owner.notices.load(SeqCst), 0, "that is about the session itself");
        },
    );
}

#[test]
fn no_more_requests_are_under_way_than_max_rpcs_in_flight_says_also_when_it_changes() {
    run(5, |r| async move {
        r.target.turns.set_limit(4, &r.world);
        r.fake.hold(Hold::Everything);
        let calls: Vec<_> = (0..20).map(|_| r.call_beside()).collect();
        r.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(r.fake.running(), 4);
        r.target.turns.set_limit(9, &r.world);
        r.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(r.fake.running(), 9, "more go at once");
        r.target.turns.set_limit(2, &r.world);
        r.fake.hold(Hold::Nothing);
        r.until("all are answered", || calls.iter().all(|c| *c.lock() == Some(Ok(())))).await;
        r.fake.most_running();
        *r.fake.stall.lock() = Duration::from_secs(1);
        let calls: Vec<_> = (0..6).map(|_| r.call_beside()).collect();
        r.until("all are answered", || calls.iter().all(|c| *c.lock() == Some(Ok(())))).await;
        assert_eq!((r.fake.most_running(), r.target.turns.limit()), (2, 2));
    });
}

#[test]
fn changes_of_a_metadata_target_leave_room_for_those_who_only_look() {
    run_with(
        6,
        MDT,
        |_| {},
        |r| async move {
            r.target.mod_turns.set_limit(3, &r.world);
            r.fake.hold(Hold::Of(Op::Mkdir));
            for i in 0..40 {
                let name = vec![b'a' + i % 26];
                let msg = Mkdir { parent: Fid::ROOT, name, fid: Fid::NONE, mode: 0o755, umask: 0 };
                let (t, ctx) = (r.target.clone(), r.cx.own());
                r.beside(async move { t.call(ctx, msg).await.map(drop) });
            }
            r.until("some arrived", || r.fake.running() > 0).await;
            r.world.sleep(Duration::from_secs(1)).await;
            assert_eq!(r.fake.running(), 3, "max_mod_rpcs_in_flight");
            let look = r.target.call(r.cx.own(), Getattr { fid: Fid::ROOT });
            let answer = r.world.timeout(Duration::from_secs(1), look).await.expect("at once");
            assert_eq!(answer.map(drop), Err(Errno::EOPNOTSUPP), "as this server answers everything");
        },
    );
}

#[test]
fn data_under_a_lock_passes_any_number_of_requests_that_wait_for_locks() {
    run(7, |r| async move {
        r.fake.hold(Hold::Of(Op::Read));
        for _ in 0..100 {
            let (t, ctx) = (r.target.clone(), r.cx.own());
            let m = Read { object: OBJECT, offset: 0, len: 9, checksum: ChecksumType::None, lock: 0 };
            r.beside(async move { t.fetch_summed(ctx, FILE, m).await.map(drop) });
        }
        r.until("as many wait as may", || r.fake.running() == 32).await;
        r.world.sleep(Duration::from_secs(1)).await;
        let write = r.write(&[(0, b"what they wait for")]);
        assert_eq!(r.world.timeout(Duration::from_secs(1), write).await, Some(Ok(())));
        assert_eq!(r.fake.running(), 32);
    });
}

#[test]
fn a_restarted_server_hears_in_several_messages_what_this_mount_has_and_then_that_this_was_all() {
    run(8, |r| async move {
        let lock = |id| ExtentSpec { object: OBJECT, id, mode: ExtentMode::Write, start: 0, end: 9 };
        let piece = |id| Reclaim { extents: vec![lock(id)], ..Reclaim::default() };
        *r.owner.has.lock() = (1..=3).map(piece).collect();
        *r.fake.lost_locks.lock() = vec![1, 3];
        assert_eq!(r.glimpse().await, Ok(()));
        assert_eq!(r.fake.reclaims.lock().len(), 0);
        r.fake.restart(&r.server, &r.peers);
        let up = r.target.up.notified();
        assert_eq!(r.glimpse().await, Ok(()), "it waits until the server is back");
        let came: Vec<_> = r.fake.reclaims.lock().iter().map(|m| (m.extents.len(), m.last)).collect();
        assert_eq!(came, [(1, false), (1, false), (1, false), (0, true)]);
        assert_eq!(r.owner.reclaimed.lock()[0].lost_locks, [1, 3], "of all messages together");
        assert_eq!((r.owner.evictions.load(SeqCst), r.target.recoveries.load(SeqCst)), (0, 1));
        assert!(r.world.timeout(Duration::from_secs(1), up).await.is_some(), "who waits for it is woken");
    });
}

#[test]
fn a_request_for_which_the_server_has_no_memory_is_answered_later_without_an_error() {
    run(9, |r| async move {
        r.server.inbound().set_max_bytes(128 << 10);
        r.fake.hold(Hold::Of(Op::Read));
        // All memory there is, for as long as it is held.
        let big = vec![1; 1 << 20];
        let (t, ctx) = (r.target.clone(), r.cx.own());
        let m = Read { object: OBJECT, offset: 0, len: 1, checksum: ChecksumType::None, lock: 0 };
        let hog = r.beside(async move { t.call_bulk(ctx, m, Bytes::from(big)).await.map(drop) });
        r.until("it is there", || r.fake.running() == 1).await;
        let call = r.call_beside();
        r.until("it is put off", || r.server.inbound().refused() > 2).await;
        assert!(call.lock().is_none());
        r.fake.hold(Hold::Nothing);
        r.until("it is answered", || call.lock().is_some()).await;
        assert_eq!((*call.lock(), r.fake.count(Op::Glimpse)), (Some(Ok(())), 1));
        r.until("the other as well", || hog.lock().is_some()).await;
    });
}

#[test]
fn a_request_that_fits_into_no_message_fails_alone() {
    run(10, |r| async move {
        let objects = vec![OBJECT; limits::RPC_BODY_MAX_BYTES / 4];
        let all = r.target.call(r.cx.own(), Glimpse { objects }).await;
        assert_eq!(all.map(drop), Err(Errno::EMSGSIZE));
        let data = Bytes::from(vec![0; limits::RPC_BULK_MAX_BYTES + 1]);
        let msg = Read { object: OBJECT, offset: 0, len: 1, checksum: ChecksumType::None, lock: 0 };
        let big = r.target.call_now(r.cx.own(), msg, data).await;
        assert_eq!(big.map(drop), Err(Errno::EMSGSIZE));
        assert_eq!((r.glimpse().await, r.fake.seen().len()), (Ok(()), 1), "the session goes on");
        assert_eq!(r.owner.evictions.load(SeqCst), 0);
    });
}

#[test]
fn what_was_executed_here_is_told_before_every_request_but_those_that_pass() {
    run_with(
        11,
        MDT,
        |_| {},
        |r| async move {
            r.owner.barrier.store(true, SeqCst);
            let start = r.world.now();
            drop(r.target.call(r.cx.own(), Getattr { fid: Fid::ROOT }).await);
            assert_eq!(r.owner.passed.load(SeqCst), 1, "before the request went out");
            assert!(r.world.now().since(start) >= Duration::from_secs(1));
            let more = wire::msg::allocseq::Allocseq { kind: 0 };
            drop(r.target.send(r.cx.own(), more, Bytes::new(), Terms::default()).await);
            assert_eq!((r.owner.passed.load(SeqCst), r.fake.count(Op::Allocseq)), (1, 1));
        },
    );
}

#[test]
fn what_a_server_granted_is_not_relied_on_once_it_is_silent_and_is_again_when_it_is_back() {
    run(12, |r| async move {
        r.glimpse().await.unwrap();
        r.world.sleep(Duration::from_secs(600)).await;
        assert!(r.target.is_leased(), "an idle session asks by itself");
        r.lab.silence(ip(1), true);
        let silent = r.world.now();
        r.until("it is over", || !r.target.is_leased()).await;
        let relied = r.world.now().since(silent);
        assert!(relied <= r.peers.lease_life(), "{relied:?}: the server evicts later than that");
        r.lab.silence(ip(1), false);
        r.until("it is back", || r.target.is_leased()).await;
    });
}

#[test]
fn calls_to_a_deactivated_target_fail_at_once_also_those_under_way_and_those_that_wait_for_it() {
    run(13, |r| async move {
        r.fake.hold(Hold::Everything);
        let under_way = r.call_beside();
        r.until("it arrived", || r.fake.running() == 1).await;
        r.lab.silence(ip(1), true);
        r.lab.cut(ip(1));
        r.until("the session is down", || r.target.import.state() != ImportState::Full).await;
        let waiting = r.call_beside();
        r.world.sleep(Duration::from_secs(1)).await;
        r.target.set_active(false);
        r.until("both failed", || under_way.lock().is_some() && waiting.lock().is_some()).await;
        assert_eq!((*under_way.lock(), *waiting.lock()), (Some(Err(Errno::EIO)), Some(Err(Errno::EIO))));
        let start = r.world.now();
        assert_eq!(r.glimpse().await, Err(Errno::EIO));
        assert_eq!(r.world.now(), start, "nobody waits for it");
        r.fake.hold(Hold::Nothing);
        r.lab.silence(ip(1), false);
        r.target.set_active(true);
        assert_eq!(r.glimpse().await, Ok(()));
    });
}

#[test]
fn an_eviction_fails_changes_under_way_and_answers_questions_all_the_same() {
    run(14, |r| async move {
        r.fake.hold(Hold::Everything);
        let question = r.call_beside();
        let (t, ctx) = (r.target.clone(), r.cx.own());
        let msg = Truncate {
            object: OBJECT,
            size: 5,
            file: FILE,
            inode_ctime: Timestamp::ZERO,
            keep_times: true,
            lock: 7,
        };
        let change = r.beside(async move { t.call(ctx, msg).await.map(drop) });
        r.until("both arrived", || r.fake.running() == 2).await;
        r.lab.silence(ip(1), true);
        assert!(r.server.evict(OST, r.client()));
        r.fake.hold(Hold::Nothing);
        r.until("they ended there", || r.fake.running() == 0).await;
        r.lab.cut(ip(1));
        r.lab.silence(ip(1), false);
        r.until("both are answered", || change.lock().is_some() && question.lock().is_some()).await;
        assert_eq!(*change.lock(), Some(Err(Errno::EIO)), "nobody can know whether it was done");
        assert_eq!(*question.lock(), Some(Ok(())));
        assert_eq!(r.owner.evictions.load(SeqCst), 1);
    });
}

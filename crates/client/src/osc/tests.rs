//! Objects against a fake OST: real sessions in virtual time, a server that answers as it is told.

use super::{LockRequest, Look, Object, ObjectCache, ObjectHolder, Osc, Outcome, WriteMeta};
use crate::base::Context;
use crate::testing::{self, Fake, FakeOst, ip};
use crate::{BoxFutureOf, Call};
use bytes::Bytes;
use model::{Cred, Errno, Fid, Nid, ObjectId, TargetId};
use rpc::testing::Lab;
use rpc::{ClientId, Peers, Server};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::checksum::ChecksumType;
use wire::context::{FileOwner, LimitsKnown};
use wire::msg::extent::ExtentMode;
use wire::msg::fallocate::FALLOC_PUNCH_HOLE;
use wire::msg::notify::Notify;
use wire::msg::read::Read;
use wire::msg::seek::Whence;
use world::World;

const OST: TargetId = TargetId::ost(0);
const FILE: Fid = Fid::new(9, 1, 0);
const OBJECT: ObjectId = ObjectId { origin: FILE, component: 1, stripe: 0 };
const CLIENT: u8 = 9;

/// Who has the object open; keeps no pages.
struct Holder;

impl ObjectHolder for Holder {
    fn pages_given_up<'a>(&'a self, _: &'a Object, _: Vec<(u64, u64)>) -> BoxFutureOf<'a, ()> {
        Box::pin(async {})
    }
    fn pages_void(self: Arc<Self>, _: &Object, _: Vec<(u64, u64)>) {}
    fn is_grouped(&self, _: ExtentMode) -> bool {
        false
    }
}

struct Rig {
    cx: Arc<Context>,
    world: World,
    ost: Arc<Fake<FakeOst>>,
    server: Arc<Server>,
    peers: Peers,
    osc: Arc<Osc>,
    object: Arc<Object>,
    _holder: Arc<Holder>,
}

impl Rig {
    fn client(&self) -> ClientId {
        ClientId(self.cx.uuid)
    }

    /// A lock on all of the object; the caller unpins it.
    async fn lock(&self, write: bool) -> u64 {
        let want = LockRequest::new(write, 0, u64::MAX);
        loop {
            let mut changed = Box::pin(self.object.changed.notified());
            changed.as_mut().enable();
            match self.object.look(&want, true) {
                Look::Pinned(id) => return id,
                Look::Wait(_) => changed.await,
                Look::NoLease => self.world.sleep(Duration::from_millis(10)).await,
                Look::Contended | Look::Inactive => panic!("asked for with force"),
            }
        }
    }

    /// As a write(2) does: grant, bytes, and the word that they are dirty.
    async fn write(&self, off: u64, data: &'static [u8]) {
        assert!(self.osc.take_grant(data.len() as u64).await, "there is grant");
        {
            let mut s = self.object.lock();
            let replaced = s.segs.write(off, Bytes::from_static(data));
            let time = self.world.wall();
            s.wrote(off, off + data.len() as u64, WriteMeta { time, ..WriteMeta::default() });
            self.osc.give_back_grant(replaced);
            self.object.account(&mut s);
        }
        self.osc.cache.note_dirty(&self.object);
    }

    async fn until(&self, what: &str, f: impl Fn() -> bool) {
        testing::until(&self.world, what, f).await;
    }
}

/// Runs a test in virtual time.
fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rig) -> F) {
    let lab = Lab::new(seed);
    let disk = || Arc::new(world::mem::MemDisk::new());
    let (server_world, _) = lab.node(ip(1), disk());
    let (world, _) = lab.node(ip(CLIENT), disk());
    lab.run(async {
        let ost = Fake::new(&server_world, OST, FakeOst::new());
        let (server, peers) = testing::serve(&server_world, ip(1), ost.clone()).await;
        let cx = testing::context(&world);
        let cache = ObjectCache::new(cx.clone(), 1 << 30, Arc::default());
        let osc = Osc::new(&cache, OST, vec![Nid { addr: ip(1), net: 0 }]);
        osc.target.checksums.set_on(false);
        osc.target.import.connected().await.unwrap();
        let holder = Arc::new(Holder);
        let weak: Weak<Holder> = Arc::downgrade(&holder);
        let object = Object::new((OBJECT, FILE), (1, None), osc.clone(), Arc::default(), weak);
        cache.add(&object);
        test(Rig { cx, world, ost, server, peers, osc, object, _holder: holder }).await;
    });
}

#[test]
fn what_is_written_is_kept_and_goes_out_as_one_message_when_it_is_asked_for() {
    run(1, |r| async move {
        let id = r.lock(true).await;
        r.write(0, b"hello ").await;
        r.write(6, b"world").await;
        assert!(r.ost.script().writes.is_empty(), "it is kept");
        assert_eq!(r.object.attr_if_locked().unwrap().size, 11, "nobody else can change it");
        r.object.flush_durably().await.unwrap();
        {
            let mut s = r.ost.script();
            assert_eq!(s.bytes(OBJECT), b"hello world");
            assert_eq!(s.writes, [(0, 11, true)]);
        }
        assert_eq!(
            (r.osc.unwritten.load(std::sync::atomic::Ordering::Relaxed), r.object.lock().segs.count()),
            (0, 1)
        );
        r.object.lock().unpin(id);
        assert_eq!(r.ost.script().locks, [id], "one lock was asked for");
    });
}

#[test]
fn old_bytes_go_out_by_themselves() {
    run(2, |r| async move {
        r.lock(true).await;
        r.write(0, b"old").await;
        r.until("a second passed", || !r.ost.script().writes.is_empty()).await;
        r.until("it is answered", || r.object.lock().segs.unwritten_bytes() == 0).await;
    });
}

#[test]
fn a_lock_that_others_want_goes_back_after_its_bytes() {
    run(3, |r| async move {
        let id = r.lock(true).await;
        r.write(0, b"mine").await;
        r.peers.notify(r.client(), Notify::BlockExtent { object: OBJECT, id });
        r.world.sleep(Duration::from_secs(1)).await;
        assert!(r.ost.script().released.is_empty(), "an operation relies on it");
        r.object.lock().unpin(id);
        r.object.changed.notify_waiters();
        r.until("it is released", || r.ost.script().released == [id]).await;
        assert_eq!(r.ost.script().bytes(OBJECT), b"mine", "the bytes were there before");
        let s = r.object.lock();
        assert!(s.is_idle() && s.segs.count() == 0, "and nothing is kept without it");
    });
}

#[test]
fn bytes_that_a_server_does_not_take_are_lost_and_the_fsync_says_so() {
    run(4, |r| async move {
        let open = r.cx.told.open(FILE);
        r.lock(true).await;
        r.ost.script().write_error = Some(Errno::ENOSPC);
        r.write(0, b"too much").await;
        r.object.flush_range(0, u64::MAX).await.unwrap();
        assert_eq!(open.check(), Err(Errno::ENOSPC));
        let s = r.object.lock();
        assert!(s.segs.unwritten_bytes() == 0 && !s.size_known(), "only the server knows the size");
    });
}

#[test]
fn an_eviction_takes_locks_and_what_was_not_written() {
    run(5, |r| async move {
        let open = r.cx.told.open(FILE);
        let id = r.lock(true).await;
        r.write(0, b"gone").await;
        assert!(r.server.evict(OST, r.client()));
        r.until("it noticed", || r.object.lock().locks.is_empty()).await;
        assert_eq!(open.check(), Err(Errno::EIO));
        assert!(!r.object.lock().unpin(id), "who relied on it finds it gone");
        assert!(r.ost.script().bytes(OBJECT).is_empty() && r.osc.grant_left() == 0);
    });
}

#[test]
fn without_grant_a_write_goes_through_and_is_kept_as_read() {
    run(6, |r| async move {
        r.ost.script().grant = 0;
        let id = r.lock(true).await;
        assert!(!r.osc.take_grant(4).await, "the server has no room to promise");
        let meta = WriteMeta { time: r.world.wall(), ..WriteMeta::default() };
        r.object.write_through(0, Bytes::from_static(b"data"), meta, id).await.unwrap();
        assert_eq!(r.ost.script().bytes(OBJECT), b"data");
        let s = r.object.lock();
        assert_eq!(s.segs.slice(0, 4).as_deref(), Some(&b"data"[..]), "it is here as well");
        assert_eq!((s.segs.unwritten_bytes(), s.size), (0, 4));
    });
}

#[test]
fn what_was_read_is_kept_unless_it_changed_meanwhile() {
    run(7, |r| async move {
        *r.ost.script().bytes(OBJECT) = b"0123456789".to_vec();
        let id = r.lock(true).await;
        let begin = |from: u64, to: u64| {
            let gap = r.object.begin_fetch(&mut r.object.lock(), from, to);
            super::Fetching::new(
                r.object.clone(),
                gap,
                None,
                &Call { cred: Cred::new(7, 8), ..Call::default() },
            )
        };
        assert_eq!(begin(0, 4).run(id).await, Ok(None));
        assert_eq!(r.object.lock().segs.slice(0, 4).as_deref(), Some(&b"0123"[..]));
        assert_eq!(begin(8, 20).run(id).await, Ok(Some(10)), "the object ends within it");
        *r.ost.stall.lock() = Duration::from_millis(50);
        let late = begin(4, 8);
        r.object.lock().taint(4, 8);
        assert_eq!(late.run(id).await, Ok(None));
        assert!(r.object.lock().segs.slice(4, 8).is_none(), "it may be older than what was written");
        assert_eq!((r.ost.script().reads, r.object.lock().fetches.len()), (3, 0));
        assert_eq!(r.ost.script().reader, 7, "the target shares itself out among users");
    });
}

#[test]
fn a_contended_object_is_left_alone_for_a_while_unless_it_must_be_had() {
    run(8, |r| async move {
        r.ost.script().contended = true;
        let want = LockRequest::new(false, 0, 9);
        let Look::Wait(asked) = r.object.look(&want, false) else { panic!("it has to be asked for") };
        r.until("it is answered", || asked.outcome().is_some()).await;
        assert_eq!(asked.outcome(), Some(Outcome::Contended));
        assert!(matches!(r.object.look(&want, false), Look::Contended), "it is not asked again at once");
        let id = r.lock(false).await;
        assert_eq!(r.ost.script().locks, [id]);
        assert!(r.object.kept().is_none(), "who only reads adds nothing to what the server knows");
    });
}

/// A reader whose answer was made before the bytes came that its own mount had kept under a lock on its way
/// back, and comes behind their answer.
#[test]
fn what_a_grant_says_of_an_object_is_not_from_before_this_mounts_own_writes() {
    run(10, |r| async move {
        let first = r.lock(true).await;
        r.write(0, b"mine").await;
        r.object.lock().unpin(first);
        // It goes back when an operation on its way has ended: until then its bytes stay, unsent.
        r.object.lock().lock_mut(first).unwrap().pin();
        r.peers.notify(r.client(), Notify::BlockExtent { object: OBJECT, id: first });
        r.until("it is going", || r.object.lock().locks.iter().all(|l| l.going)).await;
        *r.ost.late.lock() = Some(wire::Op::Extent);
        let asked = r.object.look(&LockRequest::new(false, 0, 99), true);
        assert!(matches!(asked, Look::Wait(_)), "a lock that goes is no new reader's");
        r.until("the server has granted it", || r.ost.script().locks.len() == 2).await;
        r.object.lock().unpin(first);
        r.object.changed.notify_waiters();
        r.until("the first goes back", || r.ost.script().released == [first]).await;
        *r.ost.late.lock() = None;
        let second = r.lock(false).await;
        assert_ne!(second, first);
        let attr = r.object.attr_if_locked().expect("a lock on all of it tells everything");
        assert_eq!((r.ost.script().bytes(OBJECT).len(), attr.size), (4, 4), "as large as this mount made it");
    });
}

/// As above, of a mount that goes on writing: what the server says may always be from before.
#[test]
fn where_an_object_ends_that_is_being_written_is_asked_for_by_whoever_needs_it() {
    run(11, |r| async move {
        *r.ost.script().bytes(OBJECT) = b"0123456789".to_vec();
        // A lock on a part, under which a write is on its way all the time.
        r.ost.script().granted_to = Some(99);
        let part = LockRequest::new(true, 0, 9);
        let Look::Wait(asked) = r.object.look(&part, true) else { panic!("it has to be asked for") };
        r.until("it is granted", || asked.outcome() == Some(Outcome::Granted)).await;
        r.ost.script().granted_to = None;
        r.write(0, b"again").await;
        r.ost.hold(testing::Hold::Of(wire::Op::Write));
        r.object.kick();
        r.until("it is on its way", || !r.object.lock().busy.is_empty()).await;
        r.lock(false).await;
        assert_eq!(r.ost.asked::<wire::msg::extent::Extent>().len(), 4, "it was asked three times");
        assert!(r.object.attr_if_locked().is_none(), "and is not believed");
        assert_eq!(r.object.lock().size_at_least(), 5, "but for what is here");
        r.ost.hold(testing::Hold::Nothing);
        r.object.flush_range(0, u64::MAX).await.unwrap();
    });
}

/// Others may wait for the lock: the server has granted it already, or it is in use until the answer comes.
#[test]
fn what_is_asked_under_a_lock_or_for_one_is_answered_when_the_server_has_no_memory_left() {
    run(9, |r| async move {
        *r.ost.script().bytes(OBJECT) = b"0123456789".to_vec();
        let id = r.lock(true).await;
        r.server.inbound().set_max_bytes(128 << 10);
        *r.ost.stall.lock() = Duration::from_secs(10_000);
        let (target, ctx, data) = (r.osc.target.clone(), r.cx.own(), Bytes::from(vec![1; 1 << 20]));
        let all = Read { object: OBJECT, offset: 0, len: 1, checksum: ChecksumType::None, lock: 0 };
        r.world.spawn("hog", async move { drop(target.call_bulk(ctx, all.clone(), data).await) });
        r.until("all memory is taken", || r.server.inbound().used_bytes() > 1 << 20).await;
        *r.ost.stall.lock() = Duration::ZERO;
        let meta = WriteMeta { time: r.world.wall(), ..WriteMeta::default() };
        let of = FileOwner { as_of: r.world.wall(), ..FileOwner::default() };
        let work = async {
            r.object.write_through(0, Bytes::from_static(b"data"), meta, id).await.unwrap();
            r.object.seek(0, Whence::Hole, id, &None).await.unwrap();
            r.object
                .fallocate((2, 2), FALLOC_PUNCH_HOLE, (of, LimitsKnown::Acquires), id, &None)
                .await
                .unwrap();
            assert_eq!(r.object.truncate(5, of, id, &None).await.unwrap().size, 5);
            let gap = r.object.begin_fetch(&mut r.object.lock(), 0, 5);
            super::Fetching::new(
                r.object.clone(),
                gap,
                None,
                &Call { cred: Cred::new(7, 8), ..Call::default() },
            )
            .run(id)
            .await
            .unwrap();
            r.object.lock().unpin(id);
            r.object.give_up_locks().await;
            r.lock(false).await;
        };
        assert!(
            r.world.timeout(Duration::from_secs(30), Box::pin(work)).await.is_some(),
            "a request waits for memory"
        );
        assert_eq!(r.ost.script().bytes(OBJECT), b"da\0\x004");
    });
}

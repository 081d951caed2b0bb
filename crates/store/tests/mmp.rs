//! Heartbeats: who may use a target that two hosts reach, and when the other one stops.

mod common;
use model::nodemap::Owner;

use bytes::Bytes;
use common::Bed;
use model::Fid;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use store::format::Superblock;
use store::mmp::{self, Heartbeat, Times, Who};
use store::object::{FinishTxn, ObjectMeta, Objects};
use store::{Db, DbOptions, Lease, StoreError, Txn};
use world::future::join_all;
use world::gate::{GatedDisk, Kind};
use world::jumps::Jumps;
use world::{BoxFuture, Clock, Instant, OpenMode, World};

const TIMES: Times = Times { interval: Duration::from_millis(20), term: Duration::from_millis(400) };
const LIMIT: Duration = Duration::from_secs(20);

fn host(n: u8) -> Who {
    Who { words: format!("pid {n} on host h{n}"), boot: [n; 16], lock: [9; 16] }
}

fn bed() -> Bed {
    let bed = Bed::new();
    common::format(&bed.world);
    bed
}

fn db(bed: &Bed, lease: Lease) -> Arc<Db> {
    Db::open(&bed.world, "/t", 1, DbOptions { lease, ..DbOptions::default() }).unwrap()
}

fn put(db: &Db) -> Result<u64, StoreError> {
    let mut t = Txn::new();
    t.put(b"k".to_vec(), b"v".to_vec());
    db.submit(t)
}

async fn until(bed: &Bed, what: &str, cond: impl Fn() -> bool) {
    let end = bed.world.now().plus(LIMIT);
    while !cond() {
        assert!(bed.world.now() < end, "{what}");
        bed.world.sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn the_next_server_of_the_host_comes_at_once_and_another_host_after_the_term() {
    let bed = bed();
    bed.rt.block_on(async {
        // Never used: only whether somebody else comes too is looked at.
        let start = bed.world.now();
        let first = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        assert!(bed.world.now().since(start) >= TIMES.interval * 2);
        drop(first); // killed
        let start = bed.world.now();
        let again = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        assert!(bed.world.now().since(start) < TIMES.term / 2, "its lock says that the one before is dead");
        drop(again);
        let start = bed.world.now();
        let second = Heartbeat::take(&bed.world, "/t", host(2), TIMES).await.unwrap();
        assert!(bed.world.now().since(start) > TIMES.term, "it might have been alive");
        // In an orderly way.
        let db = db(&bed, second.lease());
        db.close().await.unwrap();
        second.leave().await;
        let start = bed.world.now();
        Heartbeat::take(&bed.world, "/t", host(3), TIMES).await.unwrap();
        assert!(bed.world.now().since(start) < TIMES.term / 2, "nobody to wait for");
        // Another lock file in the place of the old one proves nothing.
        let start = bed.world.now();
        let other = Who { lock: [8; 16], ..host(3) };
        Heartbeat::take(&bed.world, "/t", other, TIMES).await.unwrap();
        assert!(bed.world.now().since(start) > TIMES.term);
    });
}

/// What `a` gives, while `b` is done as well.
async fn beside<T: Send>(a: impl Future<Output = T> + Send, b: impl Future<Output = ()> + Send) -> T {
    let all: Vec<Pin<Box<dyn Future<Output = Option<T>> + Send>>> = vec![
        Box::pin(async { Some(a.await) }),
        Box::pin(async {
            b.await;
            None
        }),
    ];
    join_all(all).await.remove(0).expect("the first")
}

/// A host that was cut off stops its targets itself, later than the engine on the others starts them: a start
/// that is refused then would not be tried again for a minute.
#[test]
fn an_engine_may_wait_for_a_living_holder_to_end() {
    let bed = bed();
    bed.rt.block_on(async {
        let take = |n: u8, patience: Duration| {
            let world = bed.world.clone();
            async move { Heartbeat::take_within(&world, "/t", host(n), TIMES, patience).await }
        };
        let start = bed.world.now();
        let first = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        let e = take(2, TIMES.interval * 4).await.err().unwrap();
        assert!(e.to_string().contains("pid 1 on host h1: its heartbeat goes on"), "{e}");
        assert!(bed.world.now().since(start) >= TIMES.interval * 4);
        // One that leaves, and one that stops without a word: the term of that is waited for, from its last
        // beat on.
        let second = beside(take(2, LIMIT), async {
            bed.world.sleep(TIMES.interval * 6).await;
            first.leave().await;
        });
        let second = second.await.unwrap();
        let dropped = std::sync::OnceLock::new();
        let third = beside(take(3, LIMIT), async {
            bed.world.sleep(TIMES.interval * 6).await;
            dropped.set(bed.world.now()).unwrap();
            drop(second);
        });
        third.await.unwrap();
        let dropped = *dropped.get().unwrap();
        assert!(bed.world.now().since(dropped) > TIMES.term);
    });
}

#[test]
fn a_living_holder_is_named_and_left_alone() {
    let bed = bed();
    bed.rt.block_on(async {
        let beating = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        let db = db(&bed, beating.lease());
        let e = Heartbeat::take(&bed.world, "/t", host(2), TIMES).await.err().unwrap();
        assert_eq!(
            e.to_string(),
            "'/t' is in use by pid 1 on host h1: its heartbeat goes on; stop that server first"
        );
        // Programs of that host that work on targets which nobody serves.
        let lock = Superblock::lock(&bed.world, "/t").unwrap();
        let e =
            mmp::wait_idle(&bed.world, "/t", &lock, |_| world::sys::sleep(TIMES.interval * 3)).unwrap_err();
        assert!(e.to_string().contains("pid 1 on host h1"), "{e}");
        put(&db).unwrap();
        db.close().await.unwrap();
        beating.leave().await;
        mmp::wait_idle(&bed.world, "/t", &lock, |_| panic!("nobody is there")).unwrap();
    });
}

#[test]
fn of_two_at_a_time_one_serves() {
    for _ in 0..10 {
        let bed = bed();
        bed.rt.block_on(async {
            let take = |n: u8| -> world::BoxFuture<Result<Heartbeat, StoreError>> {
                let w = bed.world.clone();
                Box::pin(async move { Heartbeat::take(&w, "/t", host(n), TIMES).await })
            };
            let all = world::future::join_all((1..=4).map(take).collect::<Vec<_>>()).await;
            assert_eq!(all.iter().filter(|r| r.is_ok()).count(), 1, "one of four");
        });
    }
}

#[test]
fn a_holder_that_lost_the_target_writes_nothing_more() {
    let bed = bed();
    bed.rt.block_on(async {
        let beating = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        let db = db(&bed, beating.lease());
        put(&db).unwrap();
        // Somebody who did not wait, as fencing that lied would have it.
        let other = bed.disk.fork();
        let elsewhere = bed.world_on(&other);
        let theirs = Heartbeat::take(&elsewhere, "/t", host(1), TIMES).await.unwrap();
        drop(theirs);
        let mut block = vec![0; mmp::BLOCK_BYTES];
        elsewhere.disk.open("/t/mmp", OpenMode::READ).unwrap().read_at(&mut block, 0).unwrap();
        bed.world.disk.open("/t/mmp", OpenMode::WRITE).unwrap().write_at(&block, 0).unwrap();
        until(&bed, "it sees the other's block", || db.stopped().is_some()).await;
        assert!(db.stopped().unwrap().contains("was taken over by pid 1 on host h1"), "{:?}", db.stopped());
        assert!(matches!(put(&db), Err(StoreError::Stopped(_))));
    });
}

#[test]
fn a_holder_that_cannot_beat_stops_before_anybody_takes_the_target() {
    let bed = bed();
    bed.rt.block_on(async {
        let h = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        let db = db(&bed, h.lease());
        put(&db).unwrap();
        // The task that beats is gone, as if the process had been stopped for long.
        drop(h);
        let taken = Heartbeat::take(&bed.world, "/t", host(2), TIMES).await.unwrap();
        assert!(matches!(put(&db), Err(StoreError::Stopped(_))), "the zombie writes nothing");
        assert!(db.stopped().unwrap().contains("half its term"), "{:?}", db.stopped());
        drop(taken);
    });
}

#[test]
fn it_beats_while_the_target_is_opened_however_long_that_takes() {
    let bed = bed();
    bed.rt.block_on(async {
        let h = Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap();
        // The journal is replayed for longer than a term.
        bed.world.sleep(TIMES.term * 2).await;
        let e = Heartbeat::take(&bed.world, "/t", host(2), TIMES).await.err().unwrap();
        assert!(e.to_string().contains("pid 1 on host h1"), "{e}");
        let db = db(&bed, h.lease());
        put(&db).unwrap();
        db.close().await.unwrap();
        h.leave().await;
    });
}

#[test]
fn a_target_is_not_opened_under_a_lease_that_is_over() {
    let bed = bed();
    let lease = Lease::until(bed.world.now());
    let e = Db::open(&bed.world, "/t", 1, DbOptions { lease, ..DbOptions::default() }).err().unwrap();
    assert!(e.to_string().contains("half its term"), "{e}");
}

#[test]
fn a_torn_or_foreign_block_is_no_holder_s_and_is_waited_for() {
    let bed = bed();
    bed.rt.block_on(async {
        drop(Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap());
        for at in [0, 8, 17, 30, 60, 511] {
            bed.disk.corrupt("/t/mmp", at, 1).unwrap();
            let start = bed.world.now();
            drop(Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap());
            assert!(bed.world.now().since(start) > TIMES.term, "byte {at}");
        }
        bed.world.disk.open("/t/mmp", OpenMode::WRITE).unwrap().set_len(7).unwrap();
        drop(Heartbeat::take(&bed.world, "/t", host(1), TIMES).await.unwrap());
    });
}

/// It sleeps in the middle of making an object; its successor makes the same object's file.
#[test]
fn a_server_that_lost_its_target_leaves_the_files_of_objects_alone() {
    let bed = bed();
    let lease = Lease::default();
    let open = |world: &World, lease: Lease| {
        let db = Db::open(world, "/t", 1, DbOptions { lease, ..common::tiny() }).unwrap();
        Objects::open(db).unwrap()
    };
    let write = |o: &Arc<Objects>, n: u32, finish: FinishTxn| {
        let data = Bytes::from(vec![7; 100_000]);
        let file = Fid::new(1, 2, 3);
        let meta = ObjectMeta {
            file,
            owner: Owner::new(0, 0, 0),
            owner_as_of: None,
            time: None,
            data_version: None,
            label: None,
        };
        bed.rt.block_on(o.write(common::id(n), Some(0), data, meta, finish))
    };
    // On another disk, to learn the file's name.
    let elsewhere = bed.world_on(&bed.disk.fork());
    write(&open(&elsewhere, Lease::default()), 1, common::nothing()).unwrap();
    let list = |dir: &str| elsewhere.disk.list(dir).unwrap();
    let file = list("/t/objects/own").iter().find_map(|d| {
        let dir = format!("/t/objects/own/{d}");
        list(&dir).first().map(|name| format!("{dir}/{name}"))
    });
    let path = file.expect("it is in a file of its own");

    let ours = open(&bed.world, lease.clone());
    write(&ours, 2, common::nothing()).unwrap();
    let (world, there) = (bed.world.clone(), path.clone());
    // Before the change is submitted, and after its file was made.
    let asleep: FinishTxn = Box::new(move |_, _, _| {
        assert!(world.disk.exists(&there).unwrap());
        let anew = OpenMode { truncate: true, ..OpenMode::CREATE };
        world.disk.open(&there, anew).unwrap().write_at(b"theirs", 0).unwrap();
        lease.lose("taken over");
    });
    assert!(write(&ours, 1, asleep).is_err());
    assert!(write(&ours, 2, common::nothing()).is_err());
    let mut got = vec![0; 100];
    let n = bed.world.disk.open(&path, OpenMode::READ).unwrap().read_at(&mut got, 0).unwrap();
    assert_eq!(&got[..n], b"theirs");
}

/// It sleeps in any call of a checkpoint, and its successor has the target when it wakes up: that call
/// reaches the disk, nothing that comes after it does.
#[test]
fn a_server_that_slept_in_a_checkpoint_goes_no_further() {
    let mut calls = 1;
    loop {
        let bed = bed();
        let lease = Lease::default();
        // Calls until it falls asleep, and what came after it woke up.
        let (left, late) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::new(AtomicU64::new(0)));
        let (l, n, lost) = (left.clone(), late.clone(), lease.clone());
        let gate = move |kind, path: &str| {
            if kind != Kind::Read && path.ends_with("table.redb") {
                match l.fetch_sub(1, SeqCst) {
                    1 => lost.lose("taken over by the successor"),
                    i64::MIN..=0 => drop(n.fetch_add(1, SeqCst)),
                    _ => {}
                }
            }
            Ok(())
        };
        let disk = Arc::new(GatedDisk::new(bed.world.disk.clone(), Arc::new(gate)));
        let world = World { disk, ..bed.world.clone() };
        let db = Db::open(&world, "/t", 1, DbOptions { lease, ..DbOptions::default() }).unwrap();
        for i in 0..200u32 {
            let mut t = Txn::new();
            t.put(i.to_be_bytes().to_vec(), vec![1; 500]);
            db.submit(t).unwrap();
        }
        left.store(calls, SeqCst);
        let closed = bed.rt.block_on(db.close());
        drop(db);
        assert_eq!(late.load(SeqCst), 0, "calls that came after number {calls}");
        if left.load(SeqCst) > 0 {
            assert!(closed.is_ok() && calls > 5, "{closed:?} after {calls} calls");
            return;
        }
        calls += 1;
    }
}

/// It sleeps as a checkpoint begins, and wakes up over the table of its successor, whose pages make no sense
/// to it (seed 16615176): the disk is well, and nobody is told otherwise.
#[test]
fn a_server_that_finds_its_successor_s_table_does_not_call_it_damaged() {
    for lost_in_time in [true, false] {
        let bed = bed();
        let put_some = |db: &Db| {
            for i in 0..200u32 {
                let mut t = Txn::new();
                t.put(i.to_be_bytes().to_vec(), vec![1; 500]);
                db.submit(t).unwrap();
            }
        };
        let first = db(&bed, Lease::default());
        put_some(&first);
        bed.rt.block_on(first.close()).unwrap();
        drop(first);
        let (lease, asleep) = (Lease::default(), Arc::new(AtomicBool::new(false)));
        let (lost, sleeps, disk) = (lease.clone(), asleep.clone(), bed.disk.clone());
        let gate = move |kind, path: &str| {
            if kind == Kind::Read && path.ends_with("table.redb") && sleeps.swap(false, SeqCst) {
                (4096..200_000).for_each(|at| disk.corrupt("/t/table.redb", at, 0xa5).unwrap());
                if lost_in_time {
                    lost.lose("taken over by the successor");
                }
            }
            Ok(())
        };
        let world = World {
            disk: Arc::new(GatedDisk::new(bed.world.disk.clone(), Arc::new(gate))),
            ..bed.world.clone()
        };
        let old = Db::open(&world, "/t", 2, DbOptions { lease, ..common::tiny() }).unwrap();
        asleep.store(true, SeqCst);
        put_some(&old);
        assert!(bed.rt.block_on(old.close()).is_err());
        let why = old.stopped().expect("it cannot go on");
        assert!(!asleep.load(SeqCst), "the table was read");
        assert_eq!(old.is_out_of_time(), lost_in_time, "{why}");
        let words =
            if lost_in_time { "taken over by the successor" } else { "table '/t/table.redb' is damaged" };
        assert!(why.contains(words), "{why}");
        let read = old.get(&0u32.to_be_bytes());
        assert!(matches!(&read, Err(StoreError::Stopped(_)) | Ok(_)), "{read:?}");
    }
}

/// The clocks of a virtual machine: while it is paused they stand still, and its timers with them; then
/// somebody sets the wall clock right.
struct Guest {
    host: Arc<dyn Clock>,
    jumps: Jumps,
    /// When it was paused; 0: it runs.
    paused: AtomicU64,
    lost: AtomicU64,
    step: AtomicI64,
    asleep: AtomicBool,
}

impl Guest {
    /// A world of its own over the same disk.
    fn of(bed: &Bed) -> (Arc<Guest>, World) {
        let host = bed.world.clock.clone();
        let (now, wall) = (host.now(), host.wall().as_nanos() as i64);
        let guest = Arc::new(Guest {
            host,
            jumps: Jumps::new(now, wall),
            paused: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            step: AtomicI64::new(0),
            asleep: AtomicBool::new(false),
        });
        (guest.clone(), World { clock: guest, ..bed.world.clone() })
    }

    fn pause(&self) {
        self.asleep.store(true, SeqCst);
        self.paused.store(self.host.now().0, SeqCst);
    }

    /// Its timers come later.
    fn resume(&self) {
        let passed = self.host.now().0 - self.paused.swap(0, SeqCst);
        self.lost.fetch_add(passed, SeqCst);
    }
}

impl Clock for Guest {
    fn now(&self) -> Instant {
        let paused = self.paused.load(SeqCst);
        let now = if paused > 0 { paused } else { self.host.now().0 };
        Instant(now - self.lost.load(SeqCst))
    }

    fn wall(&self) -> model::Timestamp {
        self.host.wall().plus_nanos(self.step.load(SeqCst))
    }

    fn jumped(&self) -> Instant {
        self.jumps.last(|| (self.now(), self.wall().as_nanos() as i64))
    }

    fn sleep(&self, d: Duration) -> BoxFuture<()> {
        if self.asleep.load(SeqCst) { Box::pin(std::future::pending()) } else { self.host.sleep(d) }
    }
}

/// The next server of the same host, which need not wait for anybody, is stopped in the write of its first
/// block. It reaches the disk when another host serves the target: from then on one of them uses it, and no
/// moment both. With its clocks, the host takes the block for a fresh one of its own (seed 26365391).
#[test]
fn a_start_that_slept_in_its_first_block_waits_for_whoever_came_meanwhile() {
    for clocks_stop in [false, true] {
        let bed = bed();
        let times = Times { interval: Duration::from_millis(50), term: Duration::from_millis(1000) };
        bed.rt.block_on(async {
            drop(Heartbeat::take(&bed.world, "/t", host(1), times).await.unwrap()); // killed
            let (guest, world) = Guest::of(&bed);
            // The write waits until it is let go on.
            let (stopped, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (s, g, clocks) = (stopped.clone(), go.clone(), guest.clone());
            let gate = move |kind, path: &str| {
                if kind == Kind::Write && path.ends_with("/mmp") && !s.swap(true, SeqCst) {
                    if clocks_stop {
                        clocks.paused.store(clocks.host.now().0, SeqCst);
                    }
                    while !g.load(SeqCst) {
                        world::sys::sleep(Duration::from_millis(1));
                    }
                    if clocks_stop {
                        clocks.resume();
                    }
                }
                Ok(())
            };
            let world = World { disk: Arc::new(GatedDisk::new(world.disk.clone(), Arc::new(gate))), ..world };
            let first = async { Heartbeat::take(&world, "/t", host(1), times).await.unwrap() };
            let others = async {
                until(&bed, "it is not stopped", || stopped.load(SeqCst)).await;
                let second = Heartbeat::take(&bed.world, "/t", host(2), times).await.unwrap();
                let lease = second.lease();
                lease.check(&bed.world, "/t").unwrap();
                go.store(true, SeqCst);
                until(&bed, "the other host goes on", || lease.check(&bed.world, "/t").is_err()).await;
                let e = lease.check(&bed.world, "/t").unwrap_err().to_string();
                assert!(e.contains("was taken over by pid 1 on host h1"), "{e}");
            };
            // Who was stopped has the target only when the other one has ended.
            let ended = AtomicBool::new(false);
            let first = beside(
                async {
                    let first = first.await;
                    assert!(ended.load(SeqCst), "both use it, clocks stopped: {clocks_stop}");
                    first
                },
                async {
                    others.await;
                    ended.store(true, SeqCst);
                },
            );
            first.await.lease().check(&world, "/t").unwrap();
        });
    }
}

/// A paused guest, live migration: the lease seems good, and another host has the target.
#[test]
fn a_server_whose_clocks_stood_still_looks_at_its_heartbeat_before_it_writes() {
    let bed = bed();
    bed.rt.block_on(async {
        let times = Times { interval: Duration::from_millis(100), term: Duration::from_millis(1000) };
        let (guest, world) = Guest::of(&bed);
        let first = Heartbeat::take(&world, "/t", host(1), times).await.unwrap();
        let old =
            Db::open(&world, "/t", 1, DbOptions { lease: first.lease(), ..DbOptions::default() }).unwrap();
        put(&old).unwrap();
        // Not in the middle of a heartbeat: the last one before stands for all.
        guest.asleep.store(true, SeqCst);
        bed.world.sleep(times.interval * 2).await;
        guest.pause();
        let second = Heartbeat::take(&bed.world, "/t", host(2), times).await.unwrap();
        guest.resume();
        let e = put(&old).unwrap_err().to_string();
        assert!(e.contains("was taken over by pid 2 on host h2"), "{e}");
        assert!(!old.is_held());
        second.lease().check(&bed.world, "/t").unwrap();
    });
}

/// NTP sets a clock: that is looked at once, and nobody is stopped.
/// Nobody came while it stood still: it goes on, and does not start again as if a heartbeat had been on its
/// way when the clocks stopped.
#[test]
fn a_server_whose_clocks_stood_still_for_a_term_goes_on_if_nobody_came() {
    let bed = bed();
    bed.rt.block_on(async {
        let times = Times { interval: Duration::from_millis(50), term: Duration::from_millis(1000) };
        let (guest, world) = Guest::of(&bed);
        // Nothing of a host that is paused goes on.
        let g = guest.clone();
        let gate = move |_: Kind, _: &str| {
            while g.paused.load(SeqCst) > 0 {
                world::sys::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let world = World { disk: Arc::new(GatedDisk::new(world.disk.clone(), Arc::new(gate))), ..world };
        let beating = Heartbeat::take(&world, "/t", host(1), times).await.unwrap();
        let lease = beating.lease();
        for _ in 0..3 {
            guest.paused.store(guest.host.now().0, SeqCst);
            bed.world.sleep(times.term * 2).await;
            guest.resume();
            for _ in 0..6 {
                lease.check(&world, "/t").unwrap();
                bed.world.sleep(times.interval).await;
            }
        }
    });
}

#[test]
fn a_step_of_the_wall_clock_costs_a_server_one_look() {
    let bed = bed();
    bed.rt.block_on(async {
        let reads = Arc::new(AtomicU64::new(0));
        let counted = {
            let reads = reads.clone();
            move |kind: Kind, path: &str| {
                if kind == Kind::Read && path.ends_with("/mmp") {
                    reads.fetch_add(1, SeqCst);
                }
                Ok(())
            }
        };
        let (guest, world) = Guest::of(&bed);
        let world = World { disk: Arc::new(GatedDisk::new(world.disk.clone(), Arc::new(counted))), ..world };
        let times = Times { interval: Duration::from_secs(20), term: Duration::from_secs(200) };
        // The lock says that nobody else is there: it begins at once.
        let mut who = host(1);
        let made = Heartbeat::take(&bed.world, "/t", who.clone(), TIMES).await.unwrap();
        drop(made);
        who.words = "pid 2 on host h1".into();
        let beat = Heartbeat::take(&world, "/t", who, times).await.unwrap();
        let db =
            Db::open(&world, "/t", 1, DbOptions { lease: beat.lease(), ..DbOptions::default() }).unwrap();
        put(&db).unwrap();
        let before = reads.load(SeqCst);
        for step in [3_600_000_000_000, -7_200_000_000_000] {
            guest.step.fetch_add(step, SeqCst);
            for _ in 0..20 {
                put(&db).unwrap();
            }
        }
        assert!(db.is_held());
        db.close().await.unwrap();
        assert_eq!(reads.load(SeqCst) - before, 2);
    });
}

/// What a server that stopped may do about it: start again if it lacked time only, and nobody came meanwhile.
#[test]
fn a_holder_that_is_out_of_time_knows_whether_its_target_is_still_its_own() {
    let bed = bed();
    bed.rt.block_on(async {
        let (guest, world) = Guest::of(&bed);
        let first = Heartbeat::take(&world, "/t", host(1), TIMES).await.unwrap();
        let old =
            Db::open(&world, "/t", 1, DbOptions { lease: first.lease(), ..DbOptions::default() }).unwrap();
        assert!(!old.is_out_of_time());
        guest.asleep.store(true, SeqCst);
        until(&bed, "out of time", || old.is_out_of_time()).await;
        assert!(first.is_still_own().await.unwrap());
        let second = Heartbeat::take(&bed.world, "/t", host(2), TIMES).await.unwrap();
        assert!(!first.is_still_own().await.unwrap(), "another host has it");
        second.leave().await;
        assert!(!first.is_still_own().await.unwrap(), "and left it again: its epoch counts");
    });
}

/// An error of the disk stays one, however long ago the lease ended since.
#[test]
fn a_target_that_stopped_for_its_disk_is_not_out_of_time() {
    let bed = bed();
    bed.rt.block_on(async {
        let fails = Arc::new(AtomicBool::new(false));
        let gate = {
            let fails = fails.clone();
            move |kind: Kind, path: &str| match kind {
                Kind::Flush if fails.load(SeqCst) && path.contains("journal") => {
                    Err(std::io::Error::from_raw_os_error(5))
                }
                _ => Ok(()),
            }
        };
        let world = World {
            disk: Arc::new(GatedDisk::new(bed.world.disk.clone(), Arc::new(gate))),
            ..bed.world.clone()
        };
        let first = Heartbeat::take(&world, "/t", host(1), TIMES).await.unwrap();
        let lease = first.lease();
        let old =
            Db::open(&world, "/t", 1, DbOptions { lease: lease.clone(), ..DbOptions::default() }).unwrap();
        fails.store(true, SeqCst);
        put(&old).unwrap();
        until(&bed, "its disk fails", || old.stopped().is_some()).await;
        assert!(lease.check(&world, "/t").is_ok());
        lease.lose("late");
        assert!(old.stopped().is_some() && !old.is_held());
        assert!(!old.is_out_of_time());
    });
}

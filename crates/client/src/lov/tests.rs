//! Files against fake object targets, in virtual time. Below is the real `osc`: `File` holds objects of that
//! type, and what it promises (order, locks, what is kept) is made of theirs. The seam is above the network,
//! where the same fake is `osc`'s own, and at [`LayoutHolder`], which stands for the metadata server.

use super::map::{self, merge_seek};
use super::pin::HOLD_MAX;
use super::{File, LayoutHolder, Lov, Placed, Written, glimpse_each};
use crate::base::Context;
use crate::osc::{ObjectCache, Osc, WriteMeta};
use crate::testing::{self, Fake, FakeOst, Hold, ip};
use crate::{BoxFutureOf, Call, R};
use bytes::Bytes;
use model::layout::{ComponentSpec, EOF, LayoutObject};
use model::mutex::Mutex;
use model::{Errno, Fid, Layout, Nid, ObjectAttr, ObjectId, TargetId};
use rpc::testing::Lab;
use rpc::{ClientId, Peers};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use wire::Op;
use wire::context::FileOwner;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE};
use wire::msg::glimpselist::Glimpselist;
use wire::msg::notify::Notify;
use wire::msg::read::Read;
use world::World;

const FILE: Fid = Fid::new(9, 1, 0);
const CLIENT: u8 = 9;
const UNIT: u64 = 64 << 10;
const OSTS: u16 = 3;

/// The metadata server, as far as a file asks it.
struct FakeHolder {
    /// Generation that the file has; 0: there is no answer.
    generation: Mutex<u32>,
    asked: Mutex<usize>,
}

impl LayoutHolder for FakeHolder {
    fn confirm<'a>(&'a self, _: Fid, layout: &'a Layout) -> BoxFutureOf<'a, R<()>> {
        Box::pin(async move {
            *self.asked.lock() += 1;
            let now = *self.generation.lock();
            match now {
                0 => std::future::pending().await,
                n if n == layout.generation => Ok(()),
                _ => Err(Errno::ERELAYOUT),
            }
        })
    }
}

struct Side {
    ost: Arc<Fake<FakeOst>>,
    peers: Peers,
    osc: Arc<Osc>,
}

struct Rig {
    cx: Arc<Context>,
    world: World,
    lov: Arc<Lov>,
    sides: Vec<Side>,
    holder: Arc<FakeHolder>,
}

impl Rig {
    fn open(&self, layout: &Layout) -> Arc<File> {
        let oscs = layout.objects().map(|o| self.sides[usize::from(o.ost)].osc.clone()).collect();
        self.lov.open(FILE, &Arc::new(layout.clone()), oscs, self.holder.clone()).0
    }

    /// A file with an object on each OST.
    fn striped(&self) -> Arc<File> {
        let osts: Vec<u16> = (0..OSTS).collect();
        self.open(&Layout::striped((FILE, 1), 1, UNIT as u32, "", &osts))
    }

    async fn until(&self, what: &str, f: impl Fn() -> bool) {
        testing::until(&self.world, what, f).await;
    }

    /// What the OST of an object has of it.
    fn stored(&self, f: &File, number: usize) -> Vec<u8> {
        let o = f.layout.objects().nth(number).expect("it is the layout's");
        self.sides[usize::from(o.ost)].ost.script().bytes(o.id).clone()
    }

    /// Somebody else wants the lock on an object back.
    fn block(&self, f: &File, number: usize) -> u64 {
        let o = &f.objects[number];
        let id = o.lock().locks.first().expect("there is a lock").id;
        let side = &self.sides[usize::from(o.osc.target.id.index)];
        side.peers.notify(ClientId(self.cx.uuid), Notify::BlockExtent { object: o.id, id });
        id
    }

    fn released(&self, ost: usize) -> Vec<u64> {
        self.sides[ost].ost.script().released.clone()
    }

    fn writes(&self) -> usize {
        self.sides.iter().map(|s| s.ost.script().writes.len()).sum()
    }

    fn reads(&self) -> usize {
        self.sides.iter().map(|s| s.ost.script().reads).sum()
    }
}

async fn write(f: &Arc<File>, off: u64, data: impl Into<Vec<u8>>) -> R<()> {
    match f.write(Some(off), Bytes::from(data.into()), WriteMeta::default(), None).await? {
        Written::At(at) => assert_eq!(at, off),
        Written::Contended(_) | Written::NoObjects(_) => panic!("it is no append of a contended object"),
    }
    Ok(())
}

async fn append(f: &Arc<File>, data: &'static [u8]) -> R<Result<u64, u64>> {
    match f.write(None, Bytes::from_static(data), WriteMeta::default(), None).await? {
        Written::At(at) => Ok(Ok(at)),
        Written::NoObjects(at) => Ok(Err(at)),
        Written::Contended(_) => panic!("it is forced"),
    }
}

async fn read(f: &Arc<File>, off: u64, len: usize) -> R<Vec<u8>> {
    Ok(f.read(&Call::default(), off, len, true).await?.expect("asked for with force").to_vec())
}

/// A different byte at each place, or nearly; never zero.
fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rig) -> F) {
    let lab = Lab::new(seed);
    let node = |n: u8| lab.node(ip(n), Arc::new(world::mem::MemDisk::new())).0;
    let (world, servers) = (node(CLIENT), (0..OSTS as u8).map(|n| node(n + 1)).collect::<Vec<_>>());
    lab.run(async {
        let cx = testing::context(&world);
        let cache = ObjectCache::new(cx.clone(), 1 << 30, Arc::default());
        let mut sides = Vec::new();
        for (i, w) in servers.iter().enumerate() {
            let (id, at) = (TargetId::ost(i as u16), ip(i as u8 + 1));
            let ost = Fake::new(w, id, FakeOst::new());
            let (_, peers) = testing::serve(w, at, ost.clone()).await;
            let osc = Osc::new(&cache, id, vec![Nid { addr: at, net: 0 }]);
            osc.target.import.connected().await.unwrap();
            sides.push(Side { ost, peers, osc });
        }
        let lov = Arc::new(Lov::new(cx.clone(), cache, world.wall()));
        let holder = Arc::new(FakeHolder { generation: Mutex::new(1), asked: Mutex::new(0) });
        test(Rig { cx, world, lov, sides, holder }).await;
    });
}

#[test]
fn what_is_written_is_read_back_at_once_and_each_server_gets_its_stripes() {
    run(1, |r| async move {
        let (f, data) = (r.striped(), pattern(5 * UNIT));
        write(&f, 100, data.clone()).await.unwrap();
        assert_eq!((read(&f, 100, data.len()).await.unwrap(), r.writes(), r.reads()), (data.clone(), 0, 0));
        f.flush().await.unwrap();
        let file = [vec![0; 100], data].concat();
        for stripe in 0..usize::from(OSTS) {
            let of_it = file.chunks(UNIT as usize).skip(stripe).step_by(usize::from(OSTS));
            assert_eq!(r.stored(&f, stripe), of_it.collect::<Vec<_>>().concat(), "stripe {stripe}");
        }
    });
}

#[test]
fn appends_that_come_together_follow_each_other_wherever_the_file_ends() {
    run(2, |r| async move {
        let f = r.striped();
        // The end lies on the second server, and only that one knows.
        let second = f.objects[1].id;
        r.sides[1].ost.script().bytes(second).extend(pattern(10));
        let ends: Arc<Mutex<Vec<u64>>> = Arc::default();
        for _ in 0..10 {
            let (f, ends) = (f.clone(), ends.clone());
            r.world.spawn("append", async move {
                let at = append(&f, b"a record").await.unwrap().unwrap();
                ends.lock().push(at);
            });
        }
        r.until("all are written", || ends.lock().len() == 10).await;
        let mut at = ends.lock().clone();
        at.sort_unstable();
        let first = UNIT + 10;
        assert_eq!(at, (0..10).map(|i| first + i * 8).collect::<Vec<_>>());
        assert_eq!(read(&f, first, 1000).await.unwrap(), b"a record".repeat(10));
    });
}

#[test]
fn an_append_after_bytes_were_lost_lands_where_the_servers_say_that_the_file_ends() {
    run(15, |r| async move {
        let f = r.striped();
        write(&f, 0, pattern(UNIT + 10)).await.unwrap();
        f.flush().await.unwrap();
        r.sides[2].ost.script().write_error = Some(Errno::ENOSPC);
        write(&f, 2 * UNIT, pattern(5)).await.unwrap();
        assert_eq!(f.size_known(&f.lock()), Some(2 * UNIT + 5));
        f.flush().await.unwrap();
        assert_eq!(f.size_known(&f.lock()), None, "what was to be the end is not there");
        assert_eq!(append(&f, b"behind").await, Ok(Ok(UNIT + 10)));
    });
}

#[test]
fn a_truncate_takes_what_was_not_written_yet_and_what_comes_back_is_zeros() {
    run(3, |r| async move {
        let (f, data) = (r.striped(), pattern(4 * UNIT));
        write(&f, 0, data.clone()).await.unwrap();
        let cut = UNIT + 10;
        let call = Call::default();
        assert!(f.cut(&call, FileOwner::default(), cut).await.unwrap().is_some(), "it concerned all objects");
        assert_eq!(read(&f, 0, data.len()).await.unwrap(), data[..cut as usize], "the file ends there");
        assert!(f.cut(&call, FileOwner::default(), 3 * UNIT).await.unwrap().is_some());
        let whole = [&data[..cut as usize], &vec![0; (3 * UNIT - cut) as usize]].concat();
        assert_eq!(read(&f, 0, data.len()).await.unwrap(), whole);
        f.flush().await.unwrap();
        assert_eq!(r.stored(&f, 0), data[..UNIT as usize]);
        assert_eq!(r.stored(&f, 1)[..10], data[UNIT as usize..cut as usize]);
        assert!(r.stored(&f, 1)[10..].iter().chain(&r.stored(&f, 2)).all(|b| *b == 0), "nothing came back");
    });
}

#[test]
fn seek_finds_data_that_only_this_mount_has_and_the_holes_between() {
    run(4, |r| async move {
        let f = r.striped();
        write(&f, 10, pattern(5)).await.unwrap();
        write(&f, 4 * UNIT, pattern(7)).await.unwrap();
        for (from, hole, at) in [
            (0, false, Ok(10)),
            (12, true, Ok(15)),
            (15, false, Ok(4 * UNIT)),
            (4 * UNIT + 3, true, Ok(4 * UNIT + 7)),
            (4 * UNIT + 7, false, Err(Errno::ENXIO)),
        ] {
            let found = f.seek(&Call::default(), from, hole).await.unwrap();
            assert_eq!(merge_seek(&f.layout, from, hole, &found), at, "from {from}, a hole: {hole}");
        }
    });
}

#[test]
fn a_punched_hole_reads_as_zeros_though_its_bytes_were_kept_and_space_made_behind_the_end_is_the_files() {
    run(5, |r| async move {
        let (f, mut data) = (r.striped(), pattern(3 * UNIT));
        write(&f, 0, data.clone()).await.unwrap();
        let hole = (UNIT - 5, UNIT + 10);
        let punch = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        f.fallocate(&Call::default(), FileOwner::default(), punch, hole).await.unwrap();
        data[hole.0 as usize..(hole.0 + hole.1) as usize].fill(0);
        assert_eq!(read(&f, 0, data.len()).await.unwrap(), data);
        f.fallocate(&Call::default(), FileOwner::default(), 0, (3 * UNIT, 20)).await.unwrap();
        assert_eq!(append(&f, b"behind").await, Ok(Ok(3 * UNIT + 20)));
        f.flush().await.unwrap();
        assert_eq!(r.stored(&f, 0).len() as u64, UNIT + 26, "servers know the end as well");
    });
}

#[test]
fn a_file_that_is_read_from_its_start_is_fetched_before_it_is_asked_for_and_never_behind_its_end() {
    run(6, |r| async move {
        let f = r.striped();
        let size = 20 * UNIT;
        let data = pattern(size);
        for (number, o) in f.objects.iter().enumerate() {
            let of_it = data.chunks(UNIT as usize).skip(number).step_by(usize::from(OSTS));
            *r.sides[number].ost.script().bytes(o.id) = of_it.collect::<Vec<_>>().concat();
        }
        let (step, first) = (UNIT as usize / 2, 3 * UNIT as usize);
        assert_eq!(read(&f, 0, first).await.unwrap(), data[..first]);
        r.until("it is read ahead", || r.lov.cache.reading_ahead.load(SeqCst) == 0).await;
        assert_eq!(r.reads(), 6, "of each object what was asked for, and what comes next");
        for off in (first..1 << 20).step_by(step) {
            assert_eq!(read(&f, off as u64, step).await.unwrap(), data[off..off + step]);
        }
        assert_eq!(read(&f, size - 10, 100).await.unwrap(), data[size as usize - 10..]);
        r.world.sleep(Duration::from_secs(1)).await;
        assert!(r.reads() <= 12, "{} reads: a few large ones", r.reads());
        for (o, s) in f.objects.iter().zip(&r.sides) {
            let size = s.ost.script().bytes(o.id).len() as u64;
            let behind = |m: &Read| m.offset + u64::from(m.len) > size;
            assert!(!s.ost.asked().iter().any(behind), "nobody asks behind the end");
        }
        let kept: u64 = f.objects.iter().map(|o| o.lock().segs.end()).sum();
        assert_eq!(kept, size, "all of it, and no byte more");
    });
}

#[test]
fn nobody_joins_a_file_that_another_group_has_until_the_last_of_it_leaves() {
    run(7, |r| async move {
        let f = r.striped();
        let (one, two) = (f.lock_group(7, true).await.unwrap(), f.lock_group(7, false).await.unwrap());
        assert_eq!((one.gid, f.lock_group(8, false).await.err()), (7, Some(Errno::EAGAIN)));
        let got: Arc<Mutex<Option<u64>>> = Arc::default();
        let (f2, got2) = (f.clone(), got.clone());
        r.world.spawn("other group", async move {
            let g = f2.lock_group(8, true).await.unwrap();
            *got2.lock() = Some(g.gid);
        });
        write(&f, 0, pattern(3 * UNIT)).await.unwrap();
        one.leave().await.unwrap();
        assert_eq!(r.stored(&f, 2), pattern(3 * UNIT)[2 * UNIT as usize..], "members elsewhere see it");
        r.world.sleep(Duration::from_secs(10)).await;
        assert_eq!(*got.lock(), None, "one member is left");
        two.leave().await.unwrap();
        r.until("it is the other group's", || *got.lock() == Some(8)).await;
    });
}

#[test]
fn a_group_lock_that_cannot_be_had_at_once_leaves_no_lock_behind() {
    run(8, |r| async move {
        let f = r.striped();
        r.sides[2].ost.script().waits = true;
        assert_eq!(f.lock_group(7, false).await.err(), Some(Errno::EAGAIN));
        assert!(f.group.lock().is_none(), "nobody is in the group");
        r.until("the server forgets the question", || !r.released(2).is_empty()).await;
        r.sides[2].ost.script().waits = false;
        assert!(f.lock_group(8, false).await.is_ok());
    });
}

fn components(second_has_objects: bool) -> Layout {
    let part = |end| ComponentSpec { end, stripe_count: 1, stripe_size: UNIT, ..ComponentSpec::default() };
    let mut l = Layout::composite(1, 1, &[part(UNIT), part(EOF)]);
    l.instantiate(0, FILE, ("", &[0]));
    if second_has_objects {
        l.instantiate(1, FILE, ("", &[1]));
        l.generation = 2;
    }
    l
}

#[test]
fn a_component_that_gets_objects_leaves_what_was_kept_of_the_others_as_it_was() {
    run(9, |r| async move {
        let f = r.open(&components(false));
        write(&f, UNIT - 4, *b"kept").await.unwrap();
        assert_eq!(write(&f, UNIT - 1, *b"no").await, Err(Errno::EUNINIT), "half of it has no place yet");
        assert_eq!(append(&f, b"behind").await, Ok(Err(UNIT)), "where the objects are to begin");
        *r.holder.generation.lock() = 2;
        let g = r.open(&components(true));
        assert!(Arc::ptr_eq(&f.objects[0], &g.objects[0]), "an object is open once");
        assert_eq!(append(&g, b" and more").await, Ok(Ok(UNIT)));
        assert_eq!(read(&g, UNIT - 4, 100).await.unwrap(), b"kept and more");
        assert_eq!((r.writes(), r.reads()), (0, 0), "nothing was flushed for it");
        g.flush().await.unwrap();
        assert_eq!(
            (&r.stored(&g, 0)[UNIT as usize - 4..], &r.stored(&g, 1)[..]),
            (&b"kept"[..], &b" and more"[..])
        );
        let carried = r.sides[0].ost.script().generations.last().copied();
        assert_eq!(carried, Some(2), "requests for it say by which layout");
        assert_eq!(r.lov.by_all_layouts(FILE).len(), 2, "the older one is in use here");
    });
}

#[test]
fn that_a_file_ends_or_has_a_hole_where_it_has_no_objects_is_believed_only_if_that_is_still_so() {
    run(10, |r| async move {
        let f = r.open(&components(false));
        write(&f, 0, *b"four").await.unwrap();
        assert_eq!(read(&f, 0, 4).await.unwrap(), b"four");
        assert_eq!(*r.holder.asked.lock(), 0, "what is there is there");
        assert_eq!(read(&f, 0, 9).await.unwrap(), b"four");
        assert_eq!(*r.holder.asked.lock(), 1, "where it ends nobody knows but the metadata server");
        *r.holder.generation.lock() = 2;
        assert_eq!(read(&f, 0, 9).await, Err(Errno::ERELAYOUT), "another mount wrote there");
        assert_eq!(append(&f, b"x").await, Err(Errno::ERELAYOUT));
        let call = Call::default();
        assert_eq!(f.cut(&call, FileOwner::default(), 2).await.err(), Some(Errno::ERELAYOUT));
        assert_eq!(f.seek(&call, 0, true).await.err(), Some(Errno::ERELAYOUT));
        *r.holder.generation.lock() = 0;
        let start = r.world.now();
        assert_eq!(read(&f, 0, 9).await, Err(Errno::ERELAYOUT), "a silent server keeps no lock here");
        assert!(r.world.now().since(start) <= HOLD_MAX * 2);
        r.block(&f, 0);
        r.until("another mount has the lock", || !r.released(0).is_empty()).await;
        assert_eq!(r.stored(&f, 0), b"four");
    });
}

#[test]
fn what_was_written_by_a_layout_that_is_no_more_is_kept_until_it_is_with_the_servers() {
    run(11, |r| async move {
        let f = r.striped();
        write(&f, 0, pattern(UNIT)).await.unwrap();
        let moved = r.open(&Layout::striped((FILE, 2), 2, UNIT as u32, "", &[2]));
        let older = |r: &Rig| r.lov.all_files().len() - 1;
        let (object, first) = (f.objects[0].id, Arc::downgrade(&f));
        drop(f);
        assert_eq!((older(&r), moved.objects.len()), (1, 1));
        assert_eq!(r.lov.known(FILE).unwrap().layout.generation, 2);
        first.upgrade().expect("bytes are left").flush().await.unwrap();
        assert_eq!(*r.sides[0].ost.script().bytes(object), pattern(UNIT));
        first.upgrade().expect("locks are left").give_up_locks().await;
        drop(moved);
        r.world.sleep(Duration::from_secs(1)).await;
        r.open(&Layout::striped((FILE, 3), 3, UNIT as u32, "", &[2]));
        assert!(first.upgrade().is_none() && r.lov.cache.get(object).is_none(), "nothing is kept for ever");
    });
}

#[test]
fn locks_of_one_server_are_not_kept_while_another_does_not_answer() {
    run(12, |r| async move {
        let f = r.striped();
        r.sides[1].ost.hold(Hold::Of(Op::Extent));
        let done: Arc<Mutex<Option<R<()>>>> = Arc::default();
        let (f2, done2) = (f.clone(), done.clone());
        r.world.spawn("write", async move { *done2.lock() = Some(write(&f2, 0, pattern(2 * UNIT)).await) });
        r.until("it has one lock", || f.objects[0].lock().locks.iter().any(|l| l.pins > 0)).await;
        let id = r.block(&f, 0);
        r.world.sleep(HOLD_MAX + Duration::from_secs(1)).await;
        assert_eq!(r.released(0), [id], "another mount has it, though the write is not over");
        assert_eq!(*done.lock(), None);
        r.sides[1].ost.hold(Hold::Nothing);
        r.until("it is over", || *done.lock() == Some(Ok(()))).await;
        assert_eq!(read(&f, 0, 3 * UNIT as usize).await.unwrap(), pattern(2 * UNIT));
    });
}

#[test]
fn a_write_for_which_one_server_has_no_room_to_promise_goes_to_all_of_them_at_once() {
    run(13, |r| async move {
        let f = r.striped();
        r.sides[1].ost.script().grant = 0;
        assert!(r.sides[0].osc.take_grant(1).await);
        let left = r.sides[0].osc.grant_left();
        write(&f, 0, pattern(3 * UNIT)).await.unwrap();
        assert_eq!((0..3).map(|n| r.stored(&f, n)).collect::<Vec<_>>().concat(), pattern(3 * UNIT));
        assert_eq!(r.sides[0].osc.grant_left(), left, "what others had promised is not used up");
        assert_eq!((read(&f, 0, 3 * UNIT as usize).await.unwrap(), r.reads()), (pattern(3 * UNIT), 0));
    });
}

#[test]
fn of_who_is_limited_only_so_much_is_kept_as_the_server_allows() {
    run(10, |r| async move {
        const MAY_KEEP: u64 = 8 << 20;
        r.sides[0].ost.script().may_keep = Some(MAY_KEEP);
        let f = r.open(&Layout::striped((FILE, 1), 1, 1 << 16, "", &[0]));
        let there = || r.stored(&f, 0).len() as u64;
        write(&f, 0, pattern(100)).await.unwrap();
        assert_eq!(there(), 100, "nothing is known of him: not even the first write is kept");
        write(&f, 100, pattern(900)).await.unwrap();
        assert_eq!(there(), 100, "as much as he may");
        r.until("what is kept is sent at once", || there() == 1000).await;
        write(&f, 1000, pattern(MAY_KEEP + 1)).await.unwrap();
        let mut end = 1000 + MAY_KEEP + 1;
        assert_eq!(there(), end, "more than that");
        let direct = WriteMeta { direct: true, ..WriteMeta::default() };
        let written = f.write(Some(end), pattern(10).into(), direct, None).await;
        assert!(matches!(written, Ok(Written::At(_))));
        end += 10;
        assert_eq!(there(), end, "whoever waits for the server has its answer");
        write(&f, end, pattern(1)).await.unwrap();
        assert_eq!(there(), end, "it may be kept");
        r.world.sleep(Duration::from_millis(10)).await;
        end += 1;
        assert_eq!(there(), end);
        write(&f, end, pattern(1)).await.unwrap();
        end += 1;
        assert_eq!(there(), end, "others may have used up what was left since it was said");
        // His limit is taken away.
        r.sides[0].ost.script().may_keep = None;
        r.world.sleep(Duration::from_secs(2)).await;
        write(&f, end, pattern(1)).await.unwrap();
        end += 1;
        assert_eq!(there(), end, "nobody has told this client yet");
        let answered = r.sides[0].ost.count(Op::Write);
        for n in 0..100 {
            write(&f, end + n, pattern(1)).await.unwrap();
        }
        assert!(r.sides[0].ost.count(Op::Write) < answered + 10, "they are kept again");
    });
}

#[test]
fn a_contended_object_is_used_without_locks_but_a_file_of_several_is_read_as_of_one_moment() {
    run(14, |r| async move {
        r.sides.iter().for_each(|s| s.ost.script().contended = true);
        let f = r.striped();
        assert_eq!(f.read(&Call::default(), 0, 10, false).await, Ok(None), "through the server");
        let one = f.write(Some(0), Bytes::from_static(b"x"), WriteMeta::default(), None).await;
        assert!(matches!(one, Ok(Written::Contended(None))));
        assert!(r.sides[0].ost.script().locks.is_empty());
        let whole = f.read(&Call::default(), 0, 2 * UNIT as usize, false).await;
        assert_eq!(whole.unwrap().expect("under locks").len(), 0);
        assert!(r.sides[..2].iter().all(|s| s.ost.script().locks.len() == 1));
        let places = map::places(&f.layout, FILE);
        let ids: Vec<ObjectId> = places.iter().map(|p| p.id).collect();
        assert_eq!(ids, f.objects.iter().map(|o| o.id).collect::<Vec<_>>());
    });
}

#[test]
fn many_objects_are_asked_about_at_once_and_properly_only_those_that_others_may_have_changed() {
    run(41, |r| async move {
        let (f, g) = (r.striped(), Layout::striped((Fid::new(9, 2, 0), 1), 1, UNIT as u32, "", &[0, 1, 2]));
        write(&f, 0, pattern(10)).await.unwrap();
        let placed = |o: &LayoutObject, generation| Placed {
            osc: r.sides[usize::from(o.ost)].osc.clone(),
            id: o.id,
            generation,
        };
        let all: Vec<Placed> = f.layout.objects().chain(g.objects()).map(|o| placed(o, 1)).collect();
        for (o, n) in g.objects().zip([5, 6, 7]) {
            r.sides[usize::from(o.ost)].ost.script().bytes(o.id).extend(pattern(n));
        }
        let count = |op: Op| r.sides.iter().map(|s| s.ost.count(op)).collect::<Vec<_>>();
        let sizes =
            |attrs: Vec<R<ObjectAttr>>| attrs.into_iter().map(|a| a.map(|a| a.size)).collect::<Vec<_>>();
        let before = count(Op::Glimpse);
        // The first one is known by this mount's lock, and its server has nothing of it yet.
        let known = [Ok(10), Ok(0), Ok(0), Ok(5), Ok(6), Ok(7)];
        assert_eq!(sizes(glimpse_each(&all, false).await), known);
        assert_eq!((count(Op::Glimpselist), r.writes()), (vec![1, 1, 1], 0));
        let asked: Vec<Glimpselist> = r.sides[0].ost.asked();
        assert_eq!(asked[0].objects, [(all[3].id, 1)]);
        assert_eq!(count(Op::Glimpse), before, "nobody may have changed any");
        r.sides[1].ost.script().kept_elsewhere = Some(all[4].id);
        assert_eq!(sizes(glimpse_each(&all, false).await), known);
        let mut once = before.clone();
        once[1] += 1;
        assert_eq!(count(Op::Glimpse), once);
        // One that is refused says nothing of the others.
        r.sides[2].ost.script().oldest_generation = 2;
        let mut newer = all.clone();
        newer[5].generation = 2;
        let refused = Err(Errno::ERELAYOUT);
        let now = [known[0], known[1], refused, known[3], known[4], known[5]];
        assert_eq!(sizes(glimpse_each(&newer, false).await), now);
    });
}

#[test]
fn a_server_that_knows_no_lists_is_asked_by_glimpses_and_not_sent_another_list_at_once() {
    run(42, |r| async move {
        let layout = Layout::striped((FILE, 1), 1, UNIT as u32, "", &[0, 0, 1]);
        let placed = |o: &LayoutObject| Placed {
            osc: r.sides[usize::from(o.ost)].osc.clone(),
            id: o.id,
            generation: 1,
        };
        let all: Vec<Placed> = layout.objects().map(placed).collect();
        for (o, n) in layout.objects().zip([5, 6, 7]) {
            r.sides[usize::from(o.ost)].ost.script().bytes(o.id).extend(pattern(n));
        }
        r.sides[0].ost.script().is_older = true;
        for times in 1..=2 {
            let sizes: Vec<u64> =
                glimpse_each(&all, true).await.into_iter().map(|a| a.unwrap().size).collect();
            assert_eq!(sizes, [5, 6, 7]);
            let ost = |n: usize, op| r.sides[n].ost.count(op);
            assert_eq!((ost(0, Op::Glimpselist), ost(0, Op::Glimpse)), (1, times), "both objects at once");
            assert_eq!((ost(1, Op::Glimpselist), ost(1, Op::Glimpse)), (times, 0));
        }
        r.sides[0].ost.script().is_older = false;
        r.world.sleep(Duration::from_secs(61)).await;
        assert!(glimpse_each(&all, true).await.iter().all(R::is_ok));
        assert_eq!(r.sides[0].ost.count(Op::Glimpselist), 2, "it may be of this version by now");
    });
}

/// What is done with all objects of a file at once, under locks of this mount.
#[derive(Clone, Copy, Debug)]
enum OfAll {
    Cut,
    Punch,
    Seek,
}

impl OfAll {
    const ALL: [(OfAll, Op); 3] =
        [(OfAll::Cut, Op::Truncate), (OfAll::Punch, Op::Fallocate), (OfAll::Seek, Op::Seek)];

    async fn run(self, f: &Arc<File>) -> R<()> {
        match self {
            OfAll::Cut => f.cut(&Call::default(), FileOwner::default(), 0).await.map(drop),
            OfAll::Punch => {
                let of = FileOwner::default();
                f.fallocate(&Call::default(), of, FALLOC_PUNCH_HOLE, (0, 3 * UNIT)).await
            }
            OfAll::Seek => f.seek(&Call::default(), 0, true).await.map(drop),
        }
    }
}

/// A file with a stripe on each OST, under locks of this mount.
async fn written(r: &Rig) -> Arc<File> {
    let f = r.striped();
    write(&f, 0, pattern(3 * UNIT)).await.unwrap();
    f.flush().await.unwrap();
    f
}

#[test]
fn an_ost_that_does_not_answer_keeps_no_lock_of_the_others() {
    for (n, (what, op)) in OfAll::ALL.into_iter().enumerate() {
        run(43 + n as u64, |r| async move {
            let f = written(&r).await;
            r.sides[1].ost.hold(Hold::Of(op));
            let (file, done) = (f.clone(), Arc::new(Mutex::new(None)));
            let told = done.clone();
            r.world.spawn("all", async move { *told.lock() = Some(what.run(&file).await) });
            r.until("it is there", || r.sides[1].ost.running() == 1).await;
            let start = r.world.now();
            let first = r.block(&f, 0);
            r.until("another mount has the lock", || r.released(0).contains(&first)).await;
            assert!(r.world.now().since(start) <= HOLD_MAX * 2, "{what:?}");
            assert!(done.lock().is_none(), "{what:?}: it is not done before all have answered");
            r.sides[1].ost.hold(Hold::Nothing);
            r.until("it is done", || done.lock().is_some()).await;
            assert_eq!(*done.lock(), Some(Ok(())), "{what:?}");
        });
    }
}

#[test]
fn a_lock_that_the_server_took_away_meanwhile_is_asked_for_anew() {
    for (n, (what, _)) in OfAll::ALL.into_iter().enumerate() {
        run(53 + n as u64, |r| async move {
            let f = written(&r).await;
            let lost = f.objects[0].lock().locks.first().expect("it was written under one").id;
            r.sides[0].ost.script().forgotten_locks = vec![lost];
            assert_eq!(what.run(&f).await, Ok(()), "{what:?}");
            assert!(f.objects[0].lock().locks.iter().all(|l| l.id != lost), "{what:?}");
        });
    }
}

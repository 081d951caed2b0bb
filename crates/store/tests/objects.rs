//! Objects against a reference model, with power cuts at every point.

mod common;

use bytes::Bytes;
use common::{
    Bed, Ost, after_power_cut, format, id, nothing, open, open_with, tiny, tiny_or_held, write_journal_back,
};
use model::{Errno, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::object::{FinishTxn, Found, ListPart, ObjectMeta, Objects};
use store::{Db, StoreError, Txn};
use wire::checksum::ChecksumType;
use world::mem::{CrashMode, FaultPlan, MemDisk};
use world::rng::Rng;
use world::{BoxFuture, Clock, Either, Instant, World, select};

const MARK: &[u8] = b"Zmark";

fn meta(t: i64) -> ObjectMeta {
    ObjectMeta { time: Some(Timestamp { sec: t, nsec: 0 }), ..common::meta() }
}

type State = BTreeMap<u32, Vec<u8>>;

/// What the model knows of one operation.
#[derive(Clone, Debug)]
struct Step {
    what: String,
    object: u32,
    /// Bytes the operation may have changed.
    touched: std::ops::Range<u64>,
    /// It is several transactions, perhaps.
    list: bool,
    after: State,
}

#[derive(Clone, Debug)]
enum Op {
    Write {
        n: u32,
        off: Option<u64>,
        data: Vec<u8>,
    },
    /// Offsets in order and apart.
    WriteList {
        n: u32,
        parts: Vec<(u64, Vec<u8>)>,
    },
    Truncate {
        n: u32,
        size: u64,
    },
    Fallocate {
        n: u32,
        mode: u32,
        off: u64,
        len: u64,
    },
    Destroy {
        n: u32,
    },
}

fn sized(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..=3 => rng.range(1, 300),
        4..=6 => rng.range(1, 6000),
        7..=8 => rng.range(1, 40_000),
        _ => rng.range(65_000, 120_000),
    }
}

fn pick(rng: &mut Rng, names: &mut [u32; 3], fresh: &mut u32, value: u8) -> Op {
    let slot = rng.below(3) as usize;
    let n = names[slot];
    let off = if rng.below(3) == 0 { 0 } else { sized(rng) };
    match rng.below(20) {
        0..=3 => {
            let (mut at, mut parts) = (off, Vec::new());
            for _ in 0..rng.range(1, 6) {
                let len = if rng.below(2) == 0 { sized(rng) } else { rng.range(30_000, 60_000) };
                parts.push((at, vec![value; len as usize]));
                at += len + [0, rng.range(1, 5000), rng.range(1, 60_000)][rng.below(3) as usize];
            }
            Op::WriteList { n, parts }
        }
        4..=11 => {
            let data = vec![value; sized(rng) as usize];
            let off = (rng.below(4) != 0).then_some(off);
            Op::Write { n, off, data }
        }
        12..=15 => Op::Truncate { n, size: off },
        16..=18 => {
            let mode = [0, 1, 3, 0x10, 0x11][rng.below(5) as usize];
            Op::Fallocate { n, mode, off, len: sized(rng) }
        }
        _ => {
            *fresh += 1;
            names[slot] = *fresh;
            Op::Destroy { n }
        }
    }
}

fn step(before: &State, op: &Op) -> Step {
    let mut after = before.clone();
    let what = match op {
        Op::Write { n, off, data } => format!("write {n} at {off:?} len {}", data.len()),
        Op::WriteList { n, parts } => {
            let parts: Vec<_> = parts.iter().map(|(off, data)| (off, data.len())).collect();
            format!("write list {n} {parts:?}")
        }
        other => format!("{other:?}"),
    };
    let (object, touched) = match op {
        Op::Write { n, off, data } => {
            let o = after.entry(*n).or_default();
            let off = off.map_or(o.len(), |x| x as usize);
            let end = off + data.len();
            if o.len() < end {
                o.resize(end, 0);
            }
            o[off..end].copy_from_slice(data);
            (*n, off as u64..end as u64)
        }
        Op::WriteList { n, parts } => {
            let o = after.entry(*n).or_default();
            let mut end = 0;
            for (off, data) in parts {
                end = *off as usize + data.len();
                o.resize(o.len().max(end), 0);
                o[*off as usize..end].copy_from_slice(data);
            }
            (*n, parts[0].0..end as u64)
        }
        Op::Truncate { n, size } => {
            let o = after.entry(*n).or_default();
            let from = (*size).min(o.len() as u64);
            o.resize(*size as usize, 0);
            (*n, from..u64::MAX)
        }
        Op::Fallocate { n, mode, off, len } => {
            let o = after.entry(*n).or_default();
            let end = off + len;
            if mode & 1 == 0 && (o.len() as u64) < end {
                o.resize(end as usize, 0);
            }
            if mode & 0x12 != 0 {
                let (a, b) = ((*off as usize).min(o.len()), (end as usize).min(o.len()));
                o[a..b].fill(0);
            }
            (*n, *off..end)
        }
        Op::Destroy { n } => {
            after.remove(n);
            (*n, 0..u64::MAX)
        }
    };
    Step { what, object, touched, list: matches!(op, Op::WriteList { .. }), after }
}

async fn perform(o: &Ost, op: &Op, mark: u64) -> u64 {
    try_perform(o, op, mark).await.unwrap()
}

async fn try_perform(o: &Ost, op: &Op, mark: u64) -> Result<u64, StoreError> {
    let finish: FinishTxn = Box::new(move |t: &mut Txn, _, _| t.put(MARK, mark.to_le_bytes()));
    let m = meta(mark as i64);
    match op.clone() {
        Op::Write { n, off, data } => Ok(o.objects.write(id(n), off, Bytes::from(data), m, finish).await?.2),
        Op::WriteList { n, parts } => {
            let of = |(off, data): (u64, Vec<u8>)| {
                // As often as not by a caller that has them.
                let crcs = mark.is_multiple_of(2).then(|| ChecksumType::Crc32c.of_write(off, &data));
                ListPart { off, data: Bytes::from(data), crcs }
            };
            let each = || -> FinishTxn { Box::new(|_, _, _| {}) };
            let parts = parts.into_iter().map(of).collect();
            Ok(o.objects.write_list(id(n), parts, m, each, finish).await?.2)
        }
        Op::Truncate { n, size } => Ok(o.objects.truncate(id(n), size, m, finish).await?.1),
        Op::Fallocate { n, mode, off, len } => {
            Ok(o.objects.fallocate(id(n), mode, off, len, m, finish).await?.1)
        }
        Op::Destroy { n } => o.objects.destroy(vec![id(n)], finish).await,
    }
}

async fn content(o: &Ost, n: u32) -> Vec<u8> {
    let found = match o.objects.read(id(n), 0, 2 << 20).await {
        Err(StoreError::Errno(Errno::ESTALE)) => return Vec::new(),
        other => other.unwrap(),
    };
    assert_eq!(found.data.len() as u64, found.size);
    found.data.to_vec()
}

/// What recovery found, against what may be there: `steps[..=started]` were begun, `steps[..acked]` done.
async fn check(o: &Ost, steps: &[Step], acked: u64, started: u64, names: u32, why: &str) -> u64 {
    let mark = o.db.get(MARK).unwrap().map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
    assert!(
        mark >= acked && mark <= started,
        "{why}: recovered {mark}, acknowledged {acked}, begun {started}"
    );
    for n in 1..=names {
        let empty = Vec::new();
        let want = steps[mark as usize].after.get(&n).unwrap_or(&empty);
        let got = content(o, n).await;
        // Of a list the first parts may be there without the rest.
        let begun = steps.get(mark as usize + 1).filter(|s| s.list && s.object == n && mark < started);
        let (got, more) = got.split_at(got.len().min(want.len()));
        let partly =
            begun.is_some_and(|s| s.after[&n].get(want.len()..).is_some_and(|b| b.starts_with(more)));
        assert!(
            got.len() == want.len() && (more.is_empty() || partly),
            "{why}: size of {n} at step {mark} is {}, not {}: {}",
            got.len() + more.len(),
            want.len(),
            steps[mark as usize].what
        );
        for (i, v) in got.iter().enumerate().filter(|(i, v)| **v != want[*i]) {
            let newer = steps[mark as usize + 1..=started as usize].iter().any(|s| {
                s.object == n
                    && s.touched.contains(&(i as u64))
                    && s.after.get(&n).and_then(|c| c.get(i)) == Some(v)
            });
            let history: Vec<_> = steps.iter().filter(|s| s.object == n).map(|s| &s.what).collect();
            assert!(
                newer,
                "{why}: byte {i} of {n} is {v}, not {} (step {mark} of {started}); history {history:#?}",
                want[i]
            );
        }
    }
    mark
}

#[test]
fn power_cuts_at_every_point_keep_what_was_acknowledged() {
    for seed in 0..8 {
        enumerate(seed);
    }
}

fn enumerate(seed: u64) {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.disk.record();
    let mut rng = Rng::new(seed);
    let (mut names, mut fresh) = ([1, 2, 3], 3);
    let mut steps =
        vec![Step { what: "start".into(), object: 0, touched: 0..0, list: false, after: State::new() }];
    bed.rt.block_on(async {
        for i in 1..80u64 {
            let op = pick(&mut rng, &mut names, &mut fresh, i as u8);
            steps.push(step(&steps.last().unwrap().after, &op));
            bed.world.disk.mkdir(&format!("/begin.{i}")).unwrap();
            let lsn = perform(&o, &op, i).await;
            let n = steps.last().unwrap().object;
            let want = steps.last().unwrap().after.get(&n).cloned().unwrap_or_default();
            assert!(content(&o, n).await == want, "seed {seed} step {i}: {}", steps.last().unwrap().what);
            if rng.below(2) == 0 {
                o.db.durable(lsn).await.unwrap();
                bed.world.disk.mkdir(&format!("/acked.{i}")).unwrap();
            }
        }
    });
    drop(o);
    let images = bed.disk.images();
    let (mut acked, mut started) = (0, 0);
    let stride = (images.len() as u64 / 250).max(1);
    for (at, image) in images.iter().enumerate() {
        if let Some(i) = image.what.strip_prefix("mkdir /acked.") {
            acked = i.parse().unwrap();
        }
        if let Some(i) = image.what.strip_prefix("mkdir /begin.") {
            started = i.parse().unwrap();
        }
        if rng.below(stride) != 0 {
            continue;
        }
        let disk = image.disk();
        let mode = [CrashMode::Random, CrashMode::Random, CrashMode::LoseAll, CrashMode::KeepAll]
            [rng.below(4) as usize];
        let journal_first = rng.below(3) == 0;
        if journal_first {
            write_journal_back(&bed.world_on(&disk));
        }
        disk.crash_with(mode, &mut rng);
        let why = format!("seed {seed} image {at} ({}) {mode:?} journal first {journal_first}", image.what);
        bed.rt.block_on(second_life(&bed, &disk, &steps, acked, started, fresh, &mut rng, &why));
    }
}

/// Recovers, checks, goes on with some operations, and does it all again.
#[allow(clippy::too_many_arguments)]
async fn second_life(
    bed: &Bed,
    disk: &MemDisk,
    steps: &[Step],
    acked: u64,
    started: u64,
    mut fresh: u32,
    rng: &mut Rng,
    why: &str,
) {
    let world = bed.world_on(disk);
    let options = tiny_or_held(rng);
    let why = &format!("{why}, checkpoints {}", options.checkpoints);
    let o = open_with(&world, 2, options);
    let mark = check(&o, steps, acked, started, fresh, why).await;
    let mut found = State::new();
    for n in 1..=fresh {
        found.insert(n, content(&o, n).await);
    }
    // Go on with what is there: destroyed objects would refuse.
    let mut living = steps[mark as usize].after.keys().rev();
    let names = &mut std::array::from_fn(|_| {
        living.next().copied().unwrap_or_else(|| {
            fresh += 1;
            fresh
        })
    });
    let mut again =
        vec![Step { what: "recovered".into(), object: 0, touched: 0..0, list: false, after: found }];
    let lsn = o.db.submit({
        let mut t = Txn::new();
        t.put(MARK, 0u64.to_le_bytes());
        t
    });
    o.db.durable(lsn.unwrap()).await.unwrap();
    let mut acked = 0;
    for i in 1..5u64 {
        let op = pick(rng, names, &mut fresh, 200 + i as u8);
        again.push(step(&again.last().unwrap().after, &op));
        let lsn = perform(&o, &op, i).await;
        if rng.below(2) == 0 {
            o.db.durable(lsn).await.unwrap();
            acked = i;
        }
    }
    let disk = after_power_cut(disk, rng);
    drop(o);
    let o = open(&bed.world_on(&disk), 3);
    check(&o, &again, acked, 4, fresh, &format!("{why}, second life")).await;
}

#[test]
fn objects_behave_like_byte_vectors_over_restarts() {
    for seed in 100..104 {
        let bed = Bed::new();
        format(&bed.world);
        let mut disk = bed.disk.clone();
        let mut rng = Rng::new(seed);
        let (mut names, mut fresh, mut state) = ([1, 2, 3], 3, State::new());
        for epoch in 1..9 {
            let o = open_with(&bed.world_on(&disk), epoch, tiny_or_held(&mut rng));
            bed.rt.block_on(async {
                for n in 1..=fresh {
                    assert!(
                        content(&o, n).await == state.get(&n).cloned().unwrap_or_default(),
                        "seed {seed}"
                    );
                }
                let mut last = 0;
                for i in 0..120u64 {
                    let op = pick(&mut rng, &mut names, &mut fresh, i as u8);
                    let s = step(&state, &op);
                    last = perform(&o, &op, i).await;
                    let want = s.after.get(&s.object).cloned().unwrap_or_default();
                    assert!(content(&o, s.object).await == want, "seed {seed} step {i}: {}", s.what);
                    state = s.after;
                }
                o.db.durable(last).await.unwrap();
                if epoch % 4 == 0 {
                    o.db.close().await.unwrap();
                }
            });
            if epoch % 4 > 0 {
                disk = after_power_cut(&disk, &mut rng);
            }
            drop(o);
        }
    }
}

#[test]
fn destroyed_objects_are_stale_and_their_space_is_free() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        let w = |n: u32, len: usize| {
            o.objects.write(id(n), Some(0), Bytes::from(vec![7; len]), meta(1), nothing())
        };
        w(1, 100).await.unwrap();
        w(2, 10_000).await.unwrap();
        let (_, attr, lsn) = w(3, 1 << 20).await.unwrap();
        assert_eq!((attr.size, attr.blocks), (1 << 20, 2048));
        o.db.durable(lsn).await.unwrap();
        let before = bed.disk.used_bytes();
        let lsn = o.objects.destroy(vec![id(3), id(1), id(2), id(9), id(3)], nothing()).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        for n in [1, 2, 3, 9] {
            assert_eq!(w(n, 5).await.unwrap_err().errno(), Errno::ESTALE);
            assert_eq!(o.objects.read(id(n), 0, 5).await.unwrap_err().errno(), Errno::ESTALE);
            assert_eq!(o.objects.attr(id(n)).unwrap().0.size, 0);
        }
        o.db.close().await.unwrap();
        assert!(bed.disk.used_bytes() + (1 << 20) <= before + 100_000);
        assert_eq!(o.objects.list(None, 10).err().map(|e| e.errno()), Some(Errno::EROFS));
    });
}

/// A clock on which no time passes for those who sleep.
struct Sleepless(Arc<dyn Clock>);

impl Clock for Sleepless {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }

    fn jumped(&self) -> Instant {
        self.0.jumped()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Small writes wait for others to go to the files with, but never let anybody wait: nor a reader, nor who
/// needs the file as it is, nor a checkpoint, nor a writer that finds too many.
#[test]
fn gathered_writes_go_to_the_file_when_somebody_waits() {
    let bed = Bed::new();
    format(&bed.world);
    let world = World { clock: Arc::new(Sleepless(bed.world.clock.clone())), ..bed.world.clone() };
    let o = open_with(&world, 1, tiny());
    bed.rt.block_on(async {
        let steps = async {
            for n in 1..4 {
                perform(&o, &Op::Write { n, off: None, data: vec![7; 60_000] }, 1).await;
                let over = Op::Write { n, off: Some(4096), data: vec![9; 4096] };
                let lsn = perform(&o, &over, 2).await;
                o.db.durable(lsn).await.unwrap();
                assert_eq!(content(&o, n).await[4095..8193], [&[7][..], &[9; 4096], &[7]].concat());
            }
            perform(&o, &Op::Truncate { n: 1, size: 5000 }, 3).await;
            assert_eq!(content(&o, 1).await.len(), 5000);
            o.objects.destroy(vec![id(2)], nothing()).await.unwrap();
            // 80 MiB, where 64 may wait.
            for k in 0..1300 {
                let over = Op::Write { n: 3, off: Some(0), data: vec![k as u8; 60_000] };
                let lsn = perform(&o, &over, 4 + k).await;
                o.db.durable(lsn).await.unwrap();
            }
        };
        let late = bed.world.sleep(Duration::from_secs(60));
        assert!(matches!(select(steps, late).await, Either::Left(())), "somebody waits for ever");
    });
}

/// Bytes behind the new end belong to the old record until the cut is committed: a crash brings both back.
#[test]
fn nothing_is_appended_over_what_an_uncommitted_cut_took_away() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        let whole = Op::Write { n: 1, off: None, data: vec![7; 25_578] };
        let lsn = perform(&o, &whole, 1).await;
        o.db.durable(lsn).await.unwrap();
        bed.disk.record();
        perform(&o, &Op::Truncate { n: 1, size: 4479 }, 2).await;
        let lsn = perform(&o, &Op::Write { n: 1, off: None, data: vec![9; 110] }, 3).await;
        o.db.durable(lsn).await.unwrap();
    });
    drop(o);
    let mut rng = Rng::new(1);
    let (mut sizes, images) = (Vec::new(), bed.disk.images());
    for image in images.iter().flat_map(|i| std::iter::repeat_n(i, 8)) {
        let disk = image.disk();
        disk.crash_with(CrashMode::Random, &mut rng);
        let o = open(&bed.world_on(&disk), 2);
        let got = bed.rt.block_on(content(&o, 1));
        let old = got.len().min(if got.len() == 25_578 { got.len() } else { 4479 });
        assert!(got[..old].iter().all(|b| *b == 7) && got[old..].iter().all(|b| *b == 9), "{}", image.what);
        sizes.push(got.len());
    }
    assert!(sizes.contains(&25_578) && sizes.contains(&4589), "before and after were met");
    assert!(sizes.iter().all(|s| [25_578, 4479, 4589].contains(s)), "{sizes:?}");
}

#[test]
fn sparse_and_impossible_sizes() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        let write = |off: u64, len: usize| {
            o.objects.write(id(1), Some(off), Bytes::from(vec![7; len]), meta(1), nothing())
        };
        assert_eq!(write(u64::MAX - 3, 10).await.unwrap_err().errno(), Errno::EFBIG);
        assert_eq!(write((1 << 62) + 1, 10).await.unwrap_err().errno(), Errno::EFBIG);
        assert_eq!(o.objects.attr(id(1)).unwrap().0.size, 0);
        let (at, attr, _) = write(1 << 40, 10).await.unwrap();
        assert_eq!((at, attr.size), (1 << 40, (1 << 40) + 10));
        assert!(attr.blocks <= 16);
        let (data, size) = o.objects.seek(id(1), 0, false).unwrap();
        assert_eq!((data, size), (Some(1 << 40), (1 << 40) + 10));
        assert_eq!(o.objects.seek(id(1), 0, true).unwrap().0, Some(0));
        assert_eq!(o.objects.seek(id(1), 1 << 40, true).unwrap().0, Some((1 << 40) + 10));
        assert_eq!(o.objects.seek(id(1), size, false).unwrap().0, None);
        let t = o.objects.truncate(id(2), 1 << 62, meta(1), nothing()).await;
        assert_eq!(t.unwrap_err().errno(), Errno::EFBIG);
        assert_eq!(write(u64::MAX, 0).await.unwrap_err().errno(), Errno::EFBIG);
        let f = o.objects.fallocate(id(1), 0x20, 0, 1, meta(1), nothing()).await;
        assert_eq!(f.unwrap_err().errno(), Errno::EOPNOTSUPP);
        assert_eq!(o.db.stopped(), None);
    });
}

#[test]
fn a_full_disk_gives_enospc_and_goes_on() {
    let bed = Bed::new();
    format(&bed.world);
    bed.disk.set_faults(FaultPlan { capacity_bytes: Some(64 << 20), ..FaultPlan::default() });
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        let mut written = Vec::new();
        let e = loop {
            let n = written.len() as u32 + 1;
            assert!(n < 200, "the disk must get full");
            match o
                .objects
                .write(id(n), Some(0), Bytes::from(vec![n as u8; 1 << 20]), meta(1), nothing())
                .await
            {
                Ok((_, _, lsn)) => {
                    o.db.durable(lsn).await.unwrap();
                    written.push(n);
                }
                Err(e) => break e,
            }
        };
        assert_eq!(e.errno(), Errno::ENOSPC);
        assert!(written.len() > 20, "{}", written.len());
        assert_eq!(o.db.stopped(), None);
        // Overwriting needs no space, deleting makes some.
        o.objects.write(id(1), Some(0), Bytes::from(vec![99; 1 << 20]), meta(2), nothing()).await.unwrap();
        let lsn = o.objects.destroy(vec![id(2), id(3)], nothing()).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        // The files go after the commit: until then there may be no room.
        let end = bed.world.now().plus(std::time::Duration::from_secs(20));
        loop {
            let w =
                o.objects.write(id(300), Some(0), Bytes::from(vec![5; 1 << 20]), meta(2), nothing()).await;
            match w {
                Ok(_) => break,
                Err(e) => assert_eq!(e.errno(), Errno::ENOSPC),
            }
            assert!(bed.world.now() < end, "space of destroyed objects is never free");
            bed.world.sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(content(&o, 4).await, vec![4; 1 << 20]);
    });
}

#[test]
fn a_hard_enospc_in_the_middle_of_a_write_leaves_the_object_as_it_was() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        let write = |n: u32, off: u64, len: usize| {
            o.objects.write(id(n), Some(off), Bytes::from(vec![n as u8; len]), meta(1), nothing())
        };
        let (_, _, lsn) = write(1, 0, 200_000).await.unwrap();
        write(2, 0, 60_000).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        // Only object files see a full disk, and only after the headroom was looked at.
        let plan = FaultPlan {
            capacity_bytes: Some(bed.disk.used_bytes() + 40_000),
            only_below: Some("/t/objects".into()),
            ..FaultPlan::default()
        };
        bed.disk.set_faults(plan);
        for n in [1, 2] {
            assert_eq!(write(n, 190_000, 300_000).await.unwrap_err().errno(), Errno::ENOSPC);
            assert_eq!(content(&o, n).await.len(), if n == 1 { 200_000 } else { 60_000 });
        }
        assert_eq!(o.db.stopped(), None);
        bed.disk.set_faults(FaultPlan::default());
        // The gap behind the end is zeros, whatever the failed write left there.
        write(1, 400_000, 10).await.unwrap();
        let got = content(&o, 1).await;
        assert!(got[..190_000].iter().all(|b| *b == 1) && got[200_000..400_000].iter().all(|b| *b == 0));
    });
}

#[test]
fn a_failed_flush_stops_the_target() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        let write =
            |len: usize| o.objects.write(id(1), Some(0), Bytes::from(vec![1; len]), meta(1), nothing());
        let (_, _, lsn) = write(100_000).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        let plan = FaultPlan {
            sync_error_ppm: 1_000_000,
            only_below: Some("/t/objects".into()),
            ..FaultPlan::default()
        };
        bed.disk.set_faults(plan);
        // The bytes are in the journal; that they are not in their file counts when the journal is to be
        // given up.
        let (_, _, lsn) = write(100_000).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        assert!(o.db.close().await.is_err());
        assert!(o.db.stopped().unwrap().contains("cannot flush object file"), "{:?}", o.db.stopped());
        bed.disk.set_faults(FaultPlan::default());
        assert_eq!(write(10).await.unwrap_err().errno(), Errno::EROFS);
    });
}

#[test]
fn files_of_unfinished_writes_are_removed_at_the_next_start() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let big = Bytes::from(vec![1; 100_000]);
    bed.rt.block_on(async {
        let (_, _, lsn) = o.objects.write(id(1), Some(0), big.clone(), meta(1), nothing()).await.unwrap();
        o.db.durable(lsn).await.unwrap();
    });
    let files = |disk: &MemDisk| -> usize {
        let w = bed.world_on(disk);
        let subs = w.disk.list("/t/objects/own").unwrap();
        subs.iter().map(|s| w.disk.list(&format!("/t/objects/own/{s}")).unwrap().len()).sum()
    };
    bed.disk.record();
    bed.rt.block_on(async { o.objects.write(id(2), Some(0), big, meta(1), nothing()).await.unwrap() });
    let images = bed.disk.images();
    let image = images.iter().rfind(|i| i.what.starts_with("create /t/objects")).expect("a file was made");
    let disk = image.disk();
    disk.kill();
    assert_eq!(files(&disk), 2);
    let again = open(&bed.world_on(&disk), 2);
    let end = bed.world.now().plus(std::time::Duration::from_secs(20));
    while files(&disk) != 1 {
        assert!(bed.world.now() < end, "the stray file is never removed");
        bed.rt.block_on(bed.world.sleep(std::time::Duration::from_millis(5)));
    }
    drop(again);
}

#[test]
fn a_gap_never_shows_what_an_unfinished_write_left() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let write = |o: &Ost, off: u64, len: usize, v: u8| {
        o.objects.write(id(1), Some(off), Bytes::from(vec![v; len]), meta(1), nothing())
    };
    bed.rt.block_on(async {
        let (_, _, lsn) = write(&o, 0, 70_000, 1).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        bed.disk.record();
        let (_, _, lsn) = write(&o, 100_000, 100_000, 2).await.unwrap();
        o.db.durable(lsn).await.unwrap();
    });
    // The data is on disk, its record is not.
    let images = bed.disk.images();
    let image = images.iter().rfind(|i| i.what.starts_with("sync /t/objects/own")).expect("data is flushed");
    let mut rng = Rng::new(5);
    for round in 0..40 {
        let disk = image.disk();
        disk.crash_with(CrashMode::LoseAll, &mut rng);
        let o = open(&bed.world_on(&disk), 2);
        bed.rt.block_on(async {
            assert_eq!(content(&o, 1).await, vec![1; 70_000]);
            let lsn = match round % 3 {
                0 => write(&o, 150_000, 10, 3).await.unwrap().2,
                1 => o.objects.truncate(id(1), 150_010, meta(1), nothing()).await.unwrap().1,
                _ => o.objects.fallocate(id(1), 0, 150_000, 10, meta(1), nothing()).await.unwrap().1,
            };
            o.db.durable(lsn).await.unwrap();
        });
        let disk = after_power_cut(&disk, &mut rng);
        let o = open(&bed.world_on(&disk), 3);
        let got = bed.rt.block_on(content(&o, 1));
        assert_eq!(got.len(), 150_010);
        assert!(
            got[..70_000].iter().all(|b| *b == 1) && got[70_000..150_000].iter().all(|b| *b == 0),
            "round {round}"
        );
    }
}

/// Runs blocking work only while its gate is open: a committer that is late.
struct Gated {
    inner: Arc<dyn world::Spawn>,
    gate: Arc<world::sync::Semaphore>,
}

impl world::Spawn for Gated {
    fn spawn(&self, name: &'static str, f: world::BoxFuture<()>) {
        self.inner.spawn(name, f);
    }

    fn run_blocking(&self, f: Box<dyn FnOnce() + Send>) -> world::BoxFuture<()> {
        let (inner, gate) = (self.inner.clone(), self.gate.clone());
        Box::pin(async move {
            let _open = gate.acquire().await.expect("never closed");
            inner.run_blocking(f).await;
        })
    }
}

#[test]
fn a_slot_is_not_reused_before_the_move_out_of_it_is_committed() {
    let bed = Bed::new();
    format(&bed.world);
    let gate = Arc::new(world::sync::Semaphore::new(1000));
    let world = World {
        tasks: Arc::new(Gated { inner: bed.world.tasks.clone(), gate: gate.clone() }),
        ..bed.world.clone()
    };
    let o = open(&world, 1);
    bed.rt.block_on(async {
        let write = |n: u32, off: u64, len: usize| {
            o.objects.write(id(n), Some(off), Bytes::from(vec![n as u8; len]), meta(1), nothing())
        };
        let (_, _, lsn) = write(1, 0, 8000).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        o.db.close().await.unwrap();
    });
    drop(o);
    let o = open(&world, 2);
    let mut rng = Rng::new(1);
    bed.rt.block_on(async {
        let write = |n: u32, off: u64, len: usize| {
            o.objects.write(id(n), Some(off), Bytes::from(vec![n as u8; len]), meta(1), nothing())
        };
        let all = gate.acquire_many(1000).await.unwrap();
        write(1, 8000, 8000).await.unwrap();
        for n in 2..20 {
            write(n, 0, 8000).await.unwrap();
        }
        // All writes of containers reach the disk, none of the journal does.
        let crashed = bed.disk.fork();
        for name in crashed_packed(&bed.world) {
            let f = bed.world_on(&crashed).disk.open(&name, world::OpenMode::WRITE).unwrap();
            f.sync_data().unwrap();
        }
        crashed.crash_with(CrashMode::LoseAll, &mut rng);
        let again = open(&bed.world_on(&crashed), 3);
        assert_eq!(content(&again, 1).await, vec![1; 8000]);
        drop(all);
    });
}

fn crashed_packed(world: &World) -> Vec<String> {
    let names = world.disk.list("/t/objects/packed").unwrap();
    names.into_iter().map(|n| format!("/t/objects/packed/{n}")).collect()
}

#[test]
fn a_write_whose_caller_went_away_is_done_or_not_begun() {
    let bed = Bed::new();
    format(&bed.world);
    let gate = Arc::new(world::sync::Semaphore::new(1000));
    let world = World {
        tasks: Arc::new(Gated { inner: bed.world.tasks.clone(), gate: gate.clone() }),
        ..bed.world.clone()
    };
    let o = open(&world, 1);
    bed.rt.block_on(async {
        for round in 1..30u8 {
            let big = Bytes::from(vec![round; 100_000]);
            let before = content(&o, 1).await;
            let all = gate.acquire_many(1000).await.unwrap();
            let write = o.objects.write(id(1), Some(0), big.clone(), meta(1), nothing());
            // Gives up while the write waits for its thread, or soon after.
            let given_up =
                bed.world.timeout(std::time::Duration::from_micros(u64::from(round) * 50), write).await;
            assert!(given_up.is_none());
            drop(all);
            let now = content(&o, 1).await;
            assert!(now == before || now == big, "round {round}");
            // Nothing keeps the object locked.
            let (_, _, lsn) = o.objects.write(id(1), Some(0), big.clone(), meta(1), nothing()).await.unwrap();
            o.db.durable(lsn).await.unwrap();
            assert!(content(&o, 1).await == big);
        }
    });
}

#[test]
fn errors_of_the_disk_never_lose_what_was_acknowledged() {
    let mut stopped = 0;
    for seed in 0..60 {
        let bed = Bed::new();
        format(&bed.world);
        let o = open(&bed.world, 1);
        let mut rng = Rng::new(seed);
        let (mut names, mut fresh) = ([1, 2, 3], 3);
        let mut steps =
            vec![Step { what: "start".into(), object: 0, touched: 0..0, list: false, after: State::new() }];
        let (mut acked, mut started) = (0, 0);
        let plan = FaultPlan { seed, sync_error_ppm: 10_000, write_error_ppm: 2_000, ..FaultPlan::default() };
        bed.disk.set_faults(plan);
        bed.rt.block_on(async {
            for i in 1..150u64 {
                let op = pick(&mut rng, &mut names, &mut fresh, i as u8);
                steps.push(step(&steps.last().unwrap().after, &op));
                started = i;
                let Ok(lsn) = try_perform(&o, &op, i).await else { break };
                if rng.below(2) == 0 {
                    match o.db.durable(lsn).await {
                        Ok(()) => acked = i,
                        Err(_) => break,
                    }
                }
            }
        });
        stopped += u32::from(o.db.stopped().is_some());
        bed.disk.set_faults(FaultPlan::default());
        let disk = after_power_cut(&bed.disk, &mut rng);
        drop(o);
        bed.rt.block_on(async {
            let o = open(&bed.world_on(&disk), 2);
            check(&o, &steps, acked, started, fresh, &format!("seed {seed}")).await;
        });
    }
    assert!(stopped > 20, "{stopped} of 60 targets stopped");
}

#[test]
fn appends_of_many_tasks_lose_nothing() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    const TASKS: u8 = 8;
    const EACH: usize = 60;
    bed.rt.block_on(async {
        let mut done = Vec::new();
        for t in 0..TASKS {
            let (tx, rx) = world::sync::oneshot::channel();
            let (objects, db) = (o.objects.clone(), o.db.clone());
            bed.world.spawn("appender", async move {
                for i in 0..EACH {
                    // From inline over slots into a file of its own; some payloads large enough to be
                    // flushed.
                    let len = if i % 20 == 19 { 70_000 } else { 100 + i };
                    let data = Bytes::from(vec![t; len]);
                    let (at, attr, lsn) = objects.write(id(1), None, data, meta(1), nothing()).await.unwrap();
                    assert!(attr.size >= at + len as u64);
                    db.durable(lsn).await.unwrap();
                }
                let _ = tx.send(());
            });
            done.push(rx);
        }
        for d in done {
            d.await.unwrap();
        }
        let Found { data: bytes, size, .. } = o.objects.read(id(1), 0, u32::MAX).await.unwrap();
        assert_eq!(bytes.len() as u64, size);
        let each: usize = (0..EACH).map(|i| if i % 20 == 19 { 70_000 } else { 100 + i }).sum();
        for t in 0..TASKS {
            assert_eq!(bytes.iter().filter(|b| **b == t).count(), each, "task {t}");
        }
    });
}

#[test]
fn a_small_disk_fills_up_and_empties_without_stopping() {
    let bed = Bed::new();
    format(&bed.world);
    bed.disk.set_faults(FaultPlan { capacity_bytes: Some(96 << 20), ..FaultPlan::default() });
    let db = Db::open(&bed.world, "/t", 1, store::DbOptions::default()).unwrap();
    let objects = Objects::open(db.clone()).unwrap();
    let o = Ost { db, objects };
    let mut rng = Rng::new(9);
    bed.rt.block_on(async {
        for round in 0..3u32 {
            let mut n = round * 100_000;
            let end = n + 20_000;
            let full = loop {
                n += 1;
                assert!(n < end, "the disk must get full");
                let data = Bytes::from(vec![1; rng.range(1, 60_000) as usize]);
                match o.objects.write(id(n), Some(0), data, meta(1), nothing()).await {
                    Ok((_, _, lsn)) => o.db.durable(lsn).await.unwrap(),
                    Err(e) => break e,
                }
            };
            assert_eq!((full.errno(), o.db.stopped()), (Errno::ENOSPC, None), "round {round}");
            // Deleting always works; slots are used again.
            for ids in (round * 100_000 + 1..=n).map(id).collect::<Vec<_>>().chunks(100) {
                let lsn = o.objects.destroy(ids.to_vec(), nothing()).await.unwrap();
                o.db.durable(lsn).await.unwrap();
            }
            // Space is free some time after the answer.
            let end = bed.world.now().plus(std::time::Duration::from_secs(20));
            while bed.disk.used_bytes() > 40 << 20 {
                assert!(bed.world.now() < end, "round {round}: {} bytes stay in use", bed.disk.used_bytes());
                bed.world.sleep(std::time::Duration::from_millis(5)).await;
            }
            assert!(n - round * 100_000 > 1000, "round {round}: {n}");
        }
        o.db.close().await.unwrap();
    });
}

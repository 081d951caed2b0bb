//! Checksums at rest: every flipped bit is found and named, no crash is taken for one.

mod common;
use model::nodemap::Owner;

use bytes::Bytes;
use common::{Bed, Ost, after_power_cut, format, id, nothing, open};
use model::{Errno, Fid, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use store::object::location::{self, Location, ObjectRecord};
use store::object::scrub::{Bad, Cursor};
use store::object::sums::{TAG_SUMS, ZERO_BLOCK_CRC, sums_key};
use store::object::unfinished::TAG_OPEN;
use store::object::{Found, ObjectMeta};
use store::{StoreError, Txn};
use wire::frame::crc32c;
use world::mem::{CrashMode, MemDisk};
use world::rng::Rng;

const FILE: Fid = Fid { seq: 1, oid: 2, ver: 3 };

fn meta() -> ObjectMeta {
    let time = Some(Timestamp { sec: 1, nsec: 0 });
    ObjectMeta {
        file: FILE,
        owner: Owner::new(1, 2, 3),
        owner_as_of: None,
        time,
        data_version: None,
        label: None,
    }
}

impl Ost {
    async fn write(&self, n: u32, off: u64, data: Vec<u8>) -> Result<(), StoreError> {
        let (.., lsn) = self.objects.write(id(n), Some(off), data.into(), meta(), nothing()).await?;
        self.db.durable(lsn).await
    }

    async fn read(&self, n: u32, off: u64, len: u32) -> Result<Found, StoreError> {
        self.objects.read(id(n), off, len).await
    }

    fn record(&self, n: u32) -> ObjectRecord {
        let v = self.db.get(&location::object_key(id(n))).unwrap().unwrap();
        ObjectRecord::decode(id(n), &v).unwrap()
    }

    /// Where byte `off` of an object lies, if it lies in a file.
    fn place(&self, n: u32, off: u64) -> Option<(String, u64)> {
        match self.record(n).location {
            Location::Inline(_) => None,
            Location::Packed(p) => {
                Some((location::container_path("/t", p.class, p.container), p.start() + off))
            }
            Location::Own => Some((location::own_path("/t", id(n)), off)),
        }
    }

    fn groups(&self) -> usize {
        self.db.scan(&[TAG_SUMS], &[TAG_SUMS + 1], usize::MAX).unwrap().len()
    }
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// A few changes of every kind.
async fn churn(o: &Ost, rng: &mut Rng, state: &mut BTreeMap<u32, Vec<u8>>, steps: usize) {
    for _ in 0..steps {
        let n = rng.range(1, 5) as u32;
        let c = state.entry(n).or_default();
        let top = c.len() as u64 + 9000;
        let off = rng.below(top) & if rng.below(2) == 0 { !4095 } else { !0 };
        let len = [rng.range(1, 300), rng.range(1, 9000), 4096, rng.range(1, 150_000)][rng.below(4) as usize];
        match rng.below(10) {
            0..=6 => {
                let data = noise(rng, len as usize);
                let end = (off + len) as usize;
                c.resize(c.len().max(end), 0);
                c[off as usize..end].copy_from_slice(&data);
                o.objects.write(id(n), Some(off), data.into(), meta(), nothing()).await.unwrap();
            }
            7 => {
                c.resize(off as usize, 0);
                o.objects.truncate(id(n), off, meta(), nothing()).await.unwrap();
            }
            _ => {
                let mode = [0, 3, 0x10, 0x11][rng.below(4) as usize];
                let end = (off + len) as usize;
                if mode & 1 == 0 {
                    c.resize(c.len().max(end), 0);
                }
                if mode != 0 {
                    let size = c.len();
                    c[(off as usize).min(size)..end.min(size)].fill(0);
                }
                o.objects.fallocate(id(n), mode, off, len, meta(), nothing()).await.unwrap();
            }
        }
    }
}

async fn all_right(o: &Ost, state: &BTreeMap<u32, Vec<u8>>, why: &str) {
    for (n, want) in state {
        let f = o.read(*n, 0, 16 << 20).await.unwrap_or_else(|e| panic!("{why}: object {n}: {e}"));
        assert!(f.data == want[..], "{why}: object {n}");
        for (i, block) in want.chunks(4096).enumerate() {
            let mut whole = block.to_vec();
            whole.resize(4096, 0);
            assert_eq!(f.crcs[i], crc32c(&whole), "{why}: block {i} of object {n}");
        }
    }
}

#[test]
fn sums_follow_every_change_over_restarts() {
    for seed in 0..12 {
        let bed = Bed::new();
        format(&bed.world);
        let mut disk = bed.disk.clone();
        let (mut rng, mut state) = (Rng::new(seed), BTreeMap::new());
        for epoch in 1..5 {
            let o = open(&bed.world_on(&disk), epoch);
            bed.rt.block_on(async {
                for i in 0..12 {
                    churn(&o, &mut rng, &mut state, 4).await;
                    all_right(&o, &state, &format!("seed {seed} epoch {epoch} round {i}")).await;
                    for n in 1..5 {
                        let off = rng.below(200_000);
                        let f = o.read(n, off, rng.range(1, 20_000) as u32).await.unwrap();
                        pieces_agree(&f, off);
                    }
                }
                o.db.durable(o.db.last_submitted()).await.unwrap();
            });
            if epoch % 2 == 0 {
                disk = after_power_cut(&disk, &mut rng);
            } else {
                bed.rt.block_on(o.db.close()).unwrap();
            }
            drop(o);
        }
    }
}

/// What a reader can check: blocks it has all of by the stored sum, others by that of their piece.
fn pieces_agree(f: &Found, off: u64) {
    let end = off + f.data.len() as u64;
    let mut at = off;
    for crc in &f.crcs {
        let stop = ((at / 4096 + 1) * 4096).min(end);
        let mut piece = f.data[(at - off) as usize..(stop - off) as usize].to_vec();
        if at.is_multiple_of(4096) && stop == f.size {
            piece.resize(4096, 0);
        }
        assert_eq!(crc32c(&piece), *crc, "{at}..{stop}");
        at = stop;
    }
    assert_eq!(at, end);
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    for seed in 20..30 {
        let bed = Bed::new();
        format(&bed.world);
        let (mut rng, mut state) = (Rng::new(seed), BTreeMap::new());
        let o = open(&bed.world, 1);
        bed.rt.block_on(async {
            churn(&o, &mut rng, &mut state, 25).await;
            o.db.close().await.unwrap();
        });
        drop(o);
        for round in 0..40 {
            let disk = bed.disk.fork();
            let o = open(&bed.world_on(&disk), 2);
            let n = rng.range(1, 5) as u32;
            let size = state.get(&n).map_or(0, Vec::len) as u64;
            let Some((path, at)) = (size > 0).then(|| rng.below(size)).and_then(|at| {
                let (path, pos) = o.place(n, at)?;
                let byte = |d: &MemDisk| {
                    let f = bed.world_on(d).disk.open(&path, world::OpenMode::READ).unwrap();
                    let mut b = [0];
                    f.read_at(&mut b, pos).unwrap();
                    b[0]
                };
                let before = byte(&disk);
                disk.corrupt(&path, pos, 1 << rng.below(8)).unwrap();
                // A hole has no bytes that could go wrong.
                (byte(&disk) != before).then_some((path, at))
            }) else {
                continue;
            };
            // A block of an own file that has no checksum is zeros, whatever is there.
            let block = &state[&n][(at & !4095) as usize..size.min((at & !4095) + 4096) as usize];
            if o.record(n).location == Location::Own
                && block.iter().all(|b| *b == 0)
                && let Ok(f) = bed.rt.block_on(o.read(n, at, 1))
            {
                assert_eq!(f.data[..], [0]);
                continue;
            }
            let before = o.objects.counters.checksum_errors.load(Relaxed);
            bed.rt.block_on(async {
                let e = o.read(n, at, 1).await.unwrap_err();
                assert_eq!(e.errno(), Errno::EIO);
                let StoreError::Checksum { object, file, offset, path: p, .. } = e else { panic!("{e}") };
                assert_eq!((object, file, offset), (id(n), FILE, at & !4095), "seed {seed} round {round}");
                assert_eq!(p, path);
                assert_eq!(o.objects.counters.checksum_errors.load(Relaxed), before + 1);
                assert_eq!(o.db.stopped(), None);
                // Others are fine, and so is the rest of this one.
                for m in (1..5).filter(|m| *m != n) {
                    o.read(m, 0, 16 << 20).await.unwrap();
                }
                let (from, to) = (at & !4095, (at & !4095) + 4096);
                o.read(n, 0, from as u32).await.unwrap();
                o.read(n, to, 16 << 20).await.unwrap();
                // A part of the block cannot be written, all of it can.
                assert_eq!(o.write(n, from + 1, vec![1; 9]).await.unwrap_err().errno(), Errno::EIO);
                o.write(n, from, vec![7; 4096]).await.unwrap();
                assert_eq!(o.read(n, 0, 16 << 20).await.unwrap().data[at as usize], 7);
            });
        }
    }
}

#[test]
fn a_part_of_a_damaged_block_survives_no_cut() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        o.write(1, 0, vec![3; 200_000]).await.unwrap();
        let (path, _) = o.place(1, 0).unwrap();
        bed.disk.corrupt(&path, 100_000, 4).unwrap();
        let cut = |to| o.objects.truncate(id(1), to, meta(), nothing());
        assert_eq!(cut(100_001).await.unwrap_err().errno(), Errno::EIO);
        let punch = o.objects.fallocate(id(1), 3, 99_000, 500, meta(), nothing());
        assert_eq!(punch.await.unwrap_err().errno(), Errno::EIO);
        assert_eq!(o.read(1, 0, 1).await.unwrap().size, 200_000);
        // Whole blocks may go.
        o.objects.fallocate(id(1), 3, 98_304, 4096, meta(), nothing()).await.unwrap();
        let f = o.read(1, 98_304, 8192).await.unwrap();
        assert_eq!(f.crcs[0], ZERO_BLOCK_CRC);
        cut(98_304).await.unwrap();
        o.read(1, 0, 1 << 20).await.unwrap();
    });
}

#[test]
fn large_overwrites_are_done_or_not_done_and_damage_elsewhere_is_found() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let mut rng = Rng::new(3);
    let (old, new) = (noise(&mut rng, 400_000), noise(&mut rng, 200_001));
    let mut over = old.clone();
    over[50_000..250_001].copy_from_slice(&new);
    bed.rt.block_on(async {
        o.write(1, 0, old.clone()).await.unwrap();
        o.db.close().await.unwrap();
    });
    drop(o);
    let o = open(&bed.world, 2);
    bed.disk.record();
    bed.rt.block_on(async {
        o.write(1, 50_000, new).await.unwrap();
        o.db.close().await.unwrap();
    });
    let mut found = [0, 0];
    for (i, image) in bed.disk.images().iter().enumerate() {
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll].into_iter().chain([CrashMode::Random; 6]) {
            let disk = image.disk();
            disk.crash_with(mode, &mut rng);
            let why = format!("image {i} ({}) {mode:?}", image.what);
            // Outside of what was written, damage is damage.
            let damaged = disk.fork();
            damaged.corrupt(&location::own_path("/t", id(1)), 300_000, 1).unwrap();
            let o = open(&bed.world_on(&damaged), 3);
            bed.rt.block_on(async {
                let e = o.read(1, 0, 1 << 20).await.unwrap_err();
                assert!(matches!(e, StoreError::Checksum { offset: 299_008, .. }), "{why}: {e}");
            });
            let o = open(&bed.world_on(&disk), 3);
            bed.rt.block_on(async {
                let f = o.read(1, 0, 1 << 20).await.unwrap_or_else(|e| panic!("{why}: {e}"));
                assert!(f.data == old || f.data == over, "{why}");
                found[usize::from(f.data == over)] += 1;
                o.db.close().await.unwrap();
            });
            disk.corrupt(&location::own_path("/t", id(1)), 100_000, 1).unwrap();
            let o = open(&bed.world_on(&disk), 4);
            assert!(bed.rt.block_on(o.read(1, 100_000, 1)).is_err(), "{why}");
        }
    }
    assert!(found.iter().all(|n| *n > 20), "old, new: {found:?}");
}

#[test]
fn what_an_earlier_nacre_left_half_written_is_taken_as_found() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let path = location::own_path("/t", id(1));
    bed.rt.block_on(async {
        o.write(1, 0, vec![3; 200_000]).await.unwrap();
        // Blocks 2..4 were about to be written, with these checksums.
        let mut key = sums_key(id(1), 2);
        key[0] = TAG_OPEN;
        let mut t = Txn::new();
        t.put(key, [[1, 0, 0, 0], 2u32.to_le_bytes(), [9; 4], [9; 4]].concat());
        let lsn = o.db.submit(t).unwrap();
        o.db.durable(lsn).await.unwrap();
    });
    drop(o);
    bed.disk.corrupt(&path, 3 * 4096, 1).unwrap();
    bed.disk.corrupt(&path, 7 * 4096, 1).unwrap();
    let o = open(&bed.world_on(&bed.disk.fork()), 2);
    bed.rt.block_on(async {
        assert_eq!(o.read(1, 0, 7 * 4096).await.unwrap().data[3 * 4096], 2);
        let e = o.read(1, 7 * 4096, 1).await.unwrap_err();
        assert!(matches!(e, StoreError::Checksum { offset: 28_672, .. }), "{e}");
        o.db.close().await.unwrap();
    });
}

#[test]
fn objects_of_a_time_before_checksums_are_read_and_get_them_when_written() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        o.write(1, 0, vec![3; 200_000]).await.unwrap();
        let rec = ObjectRecord { summed: false, ..o.record(1) };
        let mut t = Txn::new();
        t.put(location::object_key(id(1)), rec.encode());
        for (k, _) in o.db.scan(&[TAG_SUMS], &[TAG_SUMS + 1], 100).unwrap() {
            t.delete(k);
        }
        o.db.submit(t).unwrap();
        let (path, _) = o.place(1, 0).unwrap();
        bed.disk.corrupt(&path, 5000, 1).unwrap();
        assert_eq!(o.read(1, 4096, 4096).await.unwrap().data[904], 2);
        o.write(1, 100_000, vec![4; 10]).await.unwrap();
        bed.disk.corrupt(&path, 100_500, 1).unwrap();
        assert!(o.read(1, 100_000, 10).await.is_err());
        bed.disk.corrupt(&path, 100_500, 1).unwrap();
        assert!(!o.record(1).summed);
        o.read(1, 0, 1 << 20).await.unwrap();
    });
}

#[test]
fn sums_of_what_is_cut_or_destroyed_go() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let group = 64 * 4096;
    bed.rt.block_on(async {
        for n in [1, 2] {
            for g in 0..300u64 {
                o.objects
                    .write(id(n), Some(g * group), Bytes::from(vec![5; 4096]), meta(), nothing())
                    .await
                    .unwrap();
            }
        }
        assert_eq!(o.groups(), 600);
        // More than one transaction takes: the rest goes later, and is not seen meanwhile.
        o.objects.truncate(id(1), 100, meta(), nothing()).await.unwrap();
        o.objects.truncate(id(1), 300 * group, meta(), nothing()).await.unwrap();
        assert_eq!(o.read(1, 7 * group, 4096).await.unwrap().crcs, [ZERO_BLOCK_CRC]);
        o.write(1, 9 * group, vec![6; 100]).await.unwrap();
        o.read(1, 9 * group, 4096).await.unwrap();
        assert_eq!(o.groups(), 302);
        let lsn = o.objects.destroy(vec![id(1), id(2)], nothing()).await.unwrap();
        o.db.durable(lsn).await.unwrap();
        let end = bed.world.now().plus(std::time::Duration::from_secs(20));
        while o.groups() > 0 {
            assert!(bed.world.now() < end, "{} groups stay", o.groups());
            bed.world.sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn power_cuts_while_many_sums_go() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    let group = 64 * 4096;
    let mut rng = Rng::new(1);
    bed.rt.block_on(async {
        for g in 0..300u64 {
            o.objects
                .write(id(1), Some(g * group), Bytes::from(vec![5; 4096]), meta(), nothing())
                .await
                .unwrap();
        }
        o.db.close().await.unwrap();
    });
    drop(o);
    let o = open(&bed.world, 2);
    bed.disk.record();
    bed.rt.block_on(async {
        o.objects.truncate(id(1), 100, meta(), nothing()).await.unwrap();
        o.objects.truncate(id(1), 300 * group, meta(), nothing()).await.unwrap();
        o.write(1, 290 * group, vec![6; 100]).await.unwrap();
    });
    for image in bed.disk.images().iter().filter(|_| rng.below(4) == 0).collect::<Vec<_>>() {
        let disk = image.disk();
        disk.crash(&mut rng);
        let o = open(&bed.world_on(&disk), 3);
        bed.rt.block_on(async {
            for g in 0..300u64 {
                o.read(1, g * group, 4096).await.unwrap_or_else(|e| panic!("{}: {e}", image.what));
            }
            o.write(1, 5 * group + 7, vec![6; 100]).await.unwrap();
            o.read(1, 5 * group, 4096).await.unwrap();
        });
    }
}

/// Everything a scrub finds, step by step.
async fn scrub(o: &Ost) -> (u64, u64, Vec<Bad>) {
    let (mut at, mut bytes, mut objects, mut bad) = (Cursor::default(), 0, 0, Vec::new());
    loop {
        let s = o.objects.scrub(at, 64 << 10).await.unwrap();
        bytes += s.bytes;
        objects += s.objects;
        bad.extend(s.bad);
        match s.next {
            Some(n) => at = n,
            None => return (objects, bytes, bad),
        }
    }
}

#[test]
fn scrubbing_finds_every_damaged_block_and_skips_holes() {
    let bed = Bed::new();
    format(&bed.world);
    let o = open(&bed.world, 1);
    bed.rt.block_on(async {
        assert_eq!(scrub(&o).await, (0, 0, Vec::new()));
        o.write(1, 0, vec![1; 100]).await.unwrap();
        o.write(2, 0, vec![2; 20_000]).await.unwrap();
        o.write(3, 0, vec![3; 300_000]).await.unwrap();
        o.write(3, 1 << 40, vec![3; 5000]).await.unwrap();
        let (objects, bytes, bad) = scrub(&o).await;
        assert_eq!((objects, bad.len()), (3, 0));
        assert!((325_100..500_000).contains(&bytes), "{bytes}");
        let mut want = Vec::new();
        for (n, off) in [(2, 5000), (3, 0), (3, 299_999), (3, (1 << 40) + 4096)] {
            let (path, at) = o.place(n, off).unwrap();
            bed.disk.corrupt(&path, at, 0x10).unwrap();
            want.push((id(n), FILE, off & !4095, path));
        }
        let got: Vec<_> =
            scrub(&o).await.2.into_iter().map(|b| (b.object, b.file, b.offset, b.path)).collect();
        assert_eq!(got, want);
        // Bytes that vanished are damage as well.
        let f = bed.world.disk.open(&location::own_path("/t", id(3)), world::OpenMode::WRITE).unwrap();
        f.allocate(3, 8192, 8192).unwrap();
        assert_eq!(scrub(&o).await.2.len(), want.len() + 2);
        assert_eq!(o.db.stopped(), None);
    });
}

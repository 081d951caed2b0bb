//! A world for tests: real threads and clock, a disk in memory.

#![allow(dead_code)] // each test binary uses its part
use model::nodemap::Owner;

use bytes::Bytes;
use model::{Fid, ObjectId, Timestamp};
use std::sync::Arc;
use store::object::{FinishTxn, Found, ObjectMeta, Objects};
use store::{Db, DbOptions, Lsn, StoreError, Txn};
use world::mem::MemDisk;
use world::real::Runtime;
use world::rng::Rng;
use world::{OpenMode, World};

pub struct Bed {
    pub world: World,
    pub disk: MemDisk,
    pub rt: Runtime,
}

impl Bed {
    pub fn new() -> Bed {
        Bed::with(MemDisk::new())
    }

    pub fn with(disk: MemDisk) -> Bed {
        let (mut world, rt) = world::real::start(2).expect("threads start");
        world.disk = Arc::new(disk.clone());
        Bed { world, disk, rt }
    }

    /// The same threads over another disk.
    pub fn world_on(&self, disk: &MemDisk) -> World {
        World { disk: Arc::new(disk.clone()), ..self.world.clone() }
    }
}

/// Small limits, so that segments roll and checkpoints happen all the time.
pub fn tiny() -> DbOptions {
    DbOptions {
        segment_bytes: 8192,
        checkpoint_txns: 20,
        checkpoint_bytes: 1 << 20,
        table_cache_bytes: 1 << 20,
        ..DbOptions::default()
    }
}

/// As `tiny`; in half of the cases what was replayed stays in the journal, and the next start finds it again.
pub fn tiny_or_held(rng: &mut Rng) -> DbOptions {
    DbOptions { checkpoints: rng.below(2) == 0, ..tiny() }
}

/// What a power cut leaves, as a disk of its own: background work of the old life, which a test cannot stop
/// at once, goes on with the old disk.
pub fn after_power_cut(disk: &MemDisk, rng: &mut Rng) -> MemDisk {
    let next = disk.fork();
    next.crash(rng);
    next
}

/// The host writes all of the journal to the disk, and nothing else: what a power cut may come upon at any
/// time.
pub fn write_journal_back(world: &World) {
    for name in world.disk.list("/t/journal").unwrap() {
        world.disk.open(&format!("/t/journal/{name}"), OpenMode::WRITE).unwrap().sync_data().unwrap();
    }
    world.disk.sync_dir("/t/journal").unwrap();
}

pub fn id(n: u32) -> ObjectId {
    ObjectId { origin: Fid::new(0x2_0000_0400, n, 0), component: 1, stripe: 0 }
}

/// The caller's part of a transaction: none.
pub fn nothing() -> FinishTxn {
    Box::new(|_, _, _| {})
}

/// One OST's table and objects, in `/t`.
pub struct Ost {
    pub db: Arc<Db>,
    pub objects: Arc<Objects>,
}

/// Attributes of a write that are of no interest.
pub fn meta() -> ObjectMeta {
    let time = Some(Timestamp { sec: 1, nsec: 0 });
    ObjectMeta {
        file: Fid::new(1, 2, 3),
        owner: Owner::new(1, 2, 3),
        owner_as_of: None,
        time,
        data_version: None,
        label: None,
    }
}

impl Ost {
    pub async fn submit_write(&self, n: u32, off: u64, data: Vec<u8>) -> Result<Lsn, StoreError> {
        Ok(self.objects.write(id(n), Some(off), Bytes::from(data), meta(), nothing()).await?.2)
    }

    pub async fn all(&self, n: u32) -> Result<Vec<u8>, StoreError> {
        let Found { data, .. } = self.objects.read(id(n), 0, 16 << 20).await?;
        Ok(data.to_vec())
    }
}

pub fn format(world: &World) {
    world.disk.mkdir("/t").unwrap();
    Db::create(world, "/t").unwrap();
    Objects::create(world, "/t").unwrap();
    world.disk.sync_dir("/").unwrap();
}

pub fn open(world: &World, epoch: u32) -> Ost {
    open_with(world, epoch, tiny())
}

pub fn open_with(world: &World, epoch: u32, options: DbOptions) -> Ost {
    let db = Db::open(world, "/t", epoch, options).unwrap();
    let objects = Objects::open(db.clone()).unwrap();
    Ost { db, objects }
}

/// The only journal segment of a database, the process killed: three transactions, and a fourth that stores
/// `value`. All are durable; the key `seq` says which was the last.
pub fn killed_with_value(bed: &Bed, value: impl FnOnce(&Bed, &str) -> Vec<u8>) -> String {
    bed.world.disk.mkdir("/t").unwrap();
    bed.world.disk.sync_dir("/").unwrap();
    Db::create(&bed.world, "/t").unwrap();
    let opt = DbOptions { checkpoint_txns: 1 << 20, segment_bytes: 1 << 20, ..tiny() };
    let db = Db::open(&bed.world, "/t", 1, opt).unwrap();
    let put = |n: u64, value: Option<Vec<u8>>| {
        let mut t = Txn::new();
        t.put("seq", n.to_le_bytes());
        value.into_iter().for_each(|v| t.put("value", v));
        let lsn = db.submit(t).unwrap();
        bed.rt.block_on(db.durable(lsn)).unwrap();
    };
    (1..=3).for_each(|n| put(n, None));
    let logs = bed.world.disk.list("/t/journal").unwrap();
    let log = format!("/t/journal/{}", logs.iter().find(|l| l.ends_with(".log")).expect("one segment"));
    put(4, Some(value(bed, &log)));
    bed.disk.kill();
    log
}

/// A whole file.
pub fn bytes_of(bed: &Bed, path: &str) -> Vec<u8> {
    let f = bed.world.disk.open(path, OpenMode::READ).unwrap();
    let mut bytes = vec![0; f.stat().unwrap().len as usize];
    f.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// The last `len` bytes of the last record are zeros, as a power cut in its flush leaves them.
pub fn tear(bed: &Bed, log: &str, len: usize) {
    let bytes = bytes_of(bed, log);
    // Not the copy of the header.
    let used = bytes[..bytes.len() - 4096].iter().rposition(|b| *b != 0).unwrap() + 1;
    let f = bed.world.disk.open(log, OpenMode::WRITE).unwrap();
    f.write_at(&vec![0; len], (used - len) as u64).unwrap();
}

/// Which transaction was the last.
pub fn seq_of(db: &Db) -> u64 {
    u64::from_le_bytes(db.get(b"seq").unwrap().unwrap().try_into().unwrap())
}

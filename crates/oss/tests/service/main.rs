//! An OST over a disk in memory: exactly once, atomic appends, limits, full and failing disks.

mod echo;
mod probes;
mod shares;

use bytes::Bytes;
use model::param::testing::every_declaration_holds;
use model::{Errno, Fid, ObjectAttr, ObjectId, Timestamp, limits};
use oss::{Birth, DiskBook, DiskBooks, Ost, OstConfig};
use rpc::{ClientId, Departure, Incoming, Outgoing, Peers, Replay, Service};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use store::object::Objects;
use store::{Db, DbOptions};
use wire::checksum::ChecksumType;
use wire::msg::batch::{Batch, BatchOp, BatchReply};
use wire::msg::connect::{Connect, ConnectFeatures};
use wire::msg::destroy::Destroy;
use wire::msg::extent::{Extent, ExtentAnswer, ExtentMode, ExtentReply, ExtentSpec};
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, Fallocate};
use wire::msg::fence::Fence;
use wire::msg::glimpse::{Glimpse, GlimpseReply};
use wire::msg::glimpselist::{GLIMPSES_MAX, Glimpsed, Glimpselist};
use wire::msg::grant::{Grant, GrantReply};
use wire::msg::lookup::Lookup;
use wire::msg::notify::Notice;
use wire::msg::param::{GetParam, GetParamReply, SetParam};
use wire::msg::read::{Read, ReadReply};
use wire::msg::reclaim::Reclaim;
use wire::msg::seek::{Seek, SeekReply, Whence};
use wire::msg::statfs::{Statfs, StatfsReply};
use wire::msg::sync::Sync;
use wire::msg::truncate::Truncate;
use wire::msg::write::{Write, WriteReply};
use wire::msg::writelist::{RANGES_MAX, WriteRange, Writelist};
use wire::trailing::Trailing;
use wire::{Message, RequestContext};
use world::mem::{CrashMode, FaultPlan, MemDisk};
use world::real::Runtime;
use world::rng::Rng;
use world::{OpenMode, World};

const DIR: &str = "/ost";
const CLIENT: ClientId = ClientId([7; 16]);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Bed {
    world: World,
    disk: MemDisk,
    rt: Runtime,
}

struct Up {
    ost: Arc<Ost>,
    db: Arc<Db>,
}

fn tiny() -> DbOptions {
    DbOptions {
        segment_bytes: 1 << 20,
        checkpoint_txns: 50,
        checkpoint_bytes: 1 << 20,
        table_cache_bytes: 1 << 20,
        ..DbOptions::default()
    }
}

impl Bed {
    fn new(disk: MemDisk) -> Bed {
        let (mut world, rt) = world::real::start(2).unwrap();
        world.disk = Arc::new(disk.clone());
        world.disk.mkdir(DIR).unwrap();
        Db::create(&world, DIR).unwrap();
        Objects::create(&world, DIR).unwrap();
        world.disk.sync_dir("/").unwrap();
        Bed { world, disk, rt }
    }

    fn start(&self, epoch: u32) -> Up {
        let db = Db::open(&self.world, DIR, epoch, tiny()).unwrap();
        let objects = Objects::open(db.clone()).unwrap();
        let cfg = OstConfig {
            fsname: "demo".into(),
            index: 3,
            dir: DIR.into(),
            birth: Birth::default(),
            book: Arc::default(),
        };
        let ost = Ost::open(&self.world, db.clone(), objects, Peers::new(), cfg).unwrap();
        ost.set_params("obdfilter.*.ack", "durable").unwrap();
        Up { ost, db }
    }

    /// The process dies. The next one gets a disk of its own with what is there: background work of the old
    /// life, a checkpoint say, cannot be stopped at once, and goes on with the old disk.
    fn killed(&mut self, up: Up) {
        self.disk = self.disk.fork();
        self.world.disk = Arc::new(self.disk.clone());
        drop(up);
    }

    fn wait<T>(&self, f: impl Future<Output = T>) -> T {
        self.rt.block_on(within_a_minute(&self.world, f))
    }

    fn connect(&self, up: &Up, client: ClientId) -> bool {
        let outcome = self.wait(up.ost.clone().connect(greeting(hello(client, "demo")))).unwrap();
        if outcome.recovering {
            let all = Reclaim { last: true, ..Reclaim::default() };
            let reclaim = Incoming { from: at(client), ..request(0, 0, &all, Bytes::new()) };
            self.send(up, reclaim).status.unwrap();
        }
        outcome.new_client
    }

    fn send(&self, up: &Up, req: Incoming) -> Outgoing {
        self.wait(up.ost.clone().handle(req))
    }

    fn call<M: Message>(&self, up: &Up, xid: u64, m: &M) -> Result<M::Reply, Errno> {
        let out = self.send(up, request(0, xid, m, Bytes::new()));
        out.status.map(|()| postcard::from_bytes(&out.body).unwrap())
    }

    fn write(&self, up: &Up, xid: u64, off: Option<u64>, data: &[u8]) -> Result<WriteReply, Errno> {
        let out = self.send(up, request(0, xid, &write(off), Bytes::copy_from_slice(data)));
        out.status.map(|()| postcard::from_bytes(&out.body).unwrap())
    }

    fn read(&self, up: &Up) -> Vec<u8> {
        let m = Read { object: object(1), offset: 0, len: 1 << 20, checksum: ChecksumType::None, lock: 0 };
        let out = self.send(up, request(0, 0, &m, Bytes::new()));
        out.status.unwrap();
        let r: ReadReply = postcard::from_bytes(&out.body).unwrap();
        assert_eq!(r.len as usize, out.bulk.len());
        assert_eq!(r.object_size, out.bulk.len() as u64);
        out.bulk.into_bytes().to_vec()
    }
}

/// Nothing here takes longer than a minute, unless it hangs.
async fn within_a_minute<T>(world: &World, f: impl Future<Output = T>) -> T {
    let mut f: Pin<&mut dyn Future<Output = T>> = pin!(f);
    let mut end = world.sleep(std::time::Duration::from_secs(60));
    std::future::poll_fn(move |cx| {
        if let std::task::Poll::Ready(v) = f.as_mut().poll(cx) {
            return std::task::Poll::Ready(v);
        }
        assert!(end.as_mut().poll(cx).is_pending(), "it hangs");
        std::task::Poll::Pending
    })
    .await
}

fn object(n: u32) -> ObjectId {
    ObjectId { origin: Fid::new(0x2_0000_0400, n, 0), component: 1, stripe: 0 }
}

fn hello(client: ClientId, fsname: &str) -> Connect {
    Connect {
        client_uuid: client.0,
        client_name: "test".into(),
        fsname: fsname.into(),
        version: 1,
        features: ConnectFeatures::OURS,
        last_epoch: 0,
        slots: 8,
        lane: 0,
        extra: Vec::new(),
    }
}

fn write(off: Option<u64>) -> Write {
    Write {
        object: object(1),
        offset: off.unwrap_or(0),
        append: off.is_none(),
        file: Fid::new(0x2_0000_0400, 1, 0),
        uid: 1,
        gid: 2,
        projid: 3,
        inode_ctime: Timestamp::ZERO,
        block_crcs: Vec::new(),
        checksum: ChecksumType::None,
        lock: 0,
        granted: false,
    }
}

fn truncate(size: u64) -> Truncate {
    Truncate {
        object: object(1),
        size,
        file: object(1).origin,
        inode_ctime: Timestamp::ZERO,
        keep_times: false,
        lock: 0,
    }
}

fn at(client: ClientId) -> rpc::Principal {
    rpc::Principal::new(client, PEER)
}

fn greeting(connect: Connect) -> rpc::Greeting {
    let from = at(ClientId(connect.client_uuid));
    rpc::Greeting { connect, from, session: 1, known: true, digest: None }
}

fn request<M: Message>(slot: u16, xid: u64, m: &M, bulk: Bytes) -> Incoming {
    Incoming {
        from: at(CLIENT),
        op: M::OP,
        slot,
        xid,
        resent: false,
        durable: false,
        wall: Timestamp::ZERO,
        replay: None,
        ctx: RequestContext::default(),
        body: postcard::to_stdvec(m).unwrap().into(),
        bulk,
    }
}

fn sub<M: Message>(m: &M) -> BatchOp {
    BatchOp::plain(M::OP as u16, postcard::to_stdvec(m).unwrap())
}

#[test]
fn bytes_come_back_and_attributes_follow() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    assert!(bed.connect(&up, CLIENT));
    assert!(!bed.connect(&up, CLIENT), "known by now");
    let w = bed.write(&up, 1, Some(3), b"hello").unwrap();
    assert_eq!((w.offset, w.attr.size), (3, 8));
    assert_eq!(bed.read(&up), b"\0\0\0hello");
    assert_eq!(bed.write(&up, 2, None, &[9; 100_000]).unwrap().offset, 8);
    let a = bed.call(&up, 3, &truncate(10)).unwrap();
    assert_eq!(a.size, 10);
    assert_eq!(bed.read(&up), b"\0\0\0hello\x09\x09");
    let g = bed.call(&up, 0, &Glimpse { objects: vec![object(1), object(2)] }).unwrap();
    // Space is given back after the answer.
    let settled = ObjectAttr { blocks: g.attrs[0].blocks, ..a };
    assert_eq!(g, GlimpseReply { attrs: vec![settled, ObjectAttr::default()] });
    let s = bed.call(&up, 0, &Seek { object: object(1), offset: 0, whence: Whence::Hole, lock: 0 }).unwrap();
    assert_eq!(s, SeekReply { offset: Some(10), object_size: 10 });
    bed.call(&up, 0, &Sync { object: None }).unwrap();
    assert_eq!(up.ost.counter("write_bytes"), (2, 100_005));
    assert_eq!(up.ost.counter("read_bytes").0, 2);
}

#[test]
fn a_change_is_durable_and_its_answer_too_before_it_is_given() {
    let mut bed = Bed::new(MemDisk::new());
    let mut up = bed.start(1);
    bed.connect(&up, CLIENT);
    let mut rng = Rng::new(5);
    let mut expected = Vec::new();
    for n in 1..=20u8 {
        let data = vec![n; if n % 5 == 0 { 70_000 } else { 10 + usize::from(n) }];
        let slot = u16::from(n % 4);
        let out = bed.send(&up, request(slot, u64::from(n), &write(None), Bytes::from(data.clone())));
        out.status.unwrap();
        expected.extend_from_slice(&data);
        // The power fails right after the answer.
        bed.killed(up);
        bed.disk.crash_with(CrashMode::LoseAll, &mut rng);
        up = bed.start(1 + u32::from(n));
        let stored = up.ost.stored_reply(CLIENT, slot).expect("the answer survived");
        assert_eq!((stored.xid, stored.status, &stored.body), (u64::from(n), 0, &out.body));
        assert_eq!(stored.transno, out.transno);
        assert!(up.ost.last_committed() >= stored.transno);
        assert!(!bed.connect(&up, CLIENT), "the client's record survived");
        assert_eq!(bed.read(&up), expected);
    }
}

#[test]
fn appends_of_many_neither_lose_nor_tear_a_record() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let (done, mut got) = world::sync::mpsc::unbounded_channel();
    for slot in 0..16u16 {
        let (ost, done) = (up.ost.clone(), done.clone());
        bed.world.spawn("append", async move {
            for n in 0..20u64 {
                let record = vec![slot as u8 + 1; 333];
                let out = ost.clone().handle(request(slot, n + 1, &write(None), record.into())).await;
                let r: WriteReply = postcard::from_bytes(&out.body).unwrap();
                done.send((r.offset, slot)).unwrap();
            }
        });
    }
    drop(done);
    let mut offsets = Vec::new();
    while let Some(o) = bed.wait(got.recv()) {
        offsets.push(o);
    }
    offsets.sort_unstable();
    let all = bed.read(&up);
    assert_eq!((offsets.len(), all.len()), (320, 320 * 333));
    for (n, (offset, slot)) in offsets.into_iter().enumerate() {
        assert_eq!(offset, n as u64 * 333);
        assert!(all[n * 333..(n + 1) * 333].iter().all(|&b| u16::from(b) == slot + 1), "record {n} is torn");
    }
}

#[test]
fn a_destroyed_object_stays_destroyed() {
    let mut bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.write(&up, 1, Some(0), b"data").unwrap();
    bed.call(&up, 2, &Destroy { objects: vec![object(1), object(2)] }).unwrap();
    bed.call(&up, 3, &Destroy { objects: vec![object(1)] }).unwrap();
    assert_eq!(bed.write(&up, 4, Some(0), b"late"), Err(Errno::ESTALE));
    assert_eq!(bed.call(&up, 5, &truncate(1)), Err(Errno::ESTALE));
    bed.killed(up);
    let up = bed.start(2);
    assert_eq!(bed.write(&up, 4, Some(0), b"late"), Err(Errno::ESTALE));
}

#[test]
fn a_list_of_glimpses_says_of_each_object_what_it_is_or_why_not() {
    let other = ClientId([8; 16]);
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.connect(&up, other);
    let list = |objects: Vec<(ObjectId, u32)>| Glimpselist { objects, space: true };
    bed.write(&up, 1, Some(0), b"data").unwrap();
    let attr = bed.call(&up, 0, &Glimpse { objects: vec![object(1)] }).unwrap().attrs[0];
    let [destroyed, fenced, locked] = [object(2), object(3), object(4)];
    bed.call(&up, 2, &Destroy { objects: vec![destroyed] }).unwrap();
    let fence = Fence { object: fenced, file: Fid::new(9, 1, 0), generation: 3, times: None };
    bed.call(&up, 3, &fence).unwrap();
    let lock = ExtentSpec { object: locked, id: 9, mode: ExtentMode::Write, start: 0, end: 9 };
    let lock = request(0, 1, &Extent { lock, force: true }, Bytes::new());
    bed.send(&up, Incoming { from: at(other), ..lock }).status.unwrap();
    let none = ObjectId { origin: Fid::NONE, ..object(1) };
    let asked = vec![(object(1), 0), (destroyed, 0), (fenced, 2), (fenced, 3), (locked, 0), (none, 0)];
    let (empty, failed) = (Glimpsed::Attr(ObjectAttr::default()), Glimpsed::Failed);
    let said = bed.call(&up, 0, &list(asked.clone())).unwrap().objects;
    let fences = bed.call(&up, 0, &list(vec![(fenced, 4)])).unwrap().objects[0];
    assert_eq!(
        said,
        [
            Glimpsed::Attr(attr),
            failed(Errno::ESTALE),
            failed(Errno::ERELAYOUT),
            fences,
            Glimpsed::Locked,
            failed(Errno::EINVAL)
        ]
    );
    // Who holds the lock knows itself what it keeps.
    let holders = Incoming { from: at(other), ..request(0, 2, &list(vec![(locked, 0)]), Bytes::new()) };
    let said = bed.send(&up, holders);
    assert_eq!(postcard::from_bytes::<Vec<Glimpsed>>(&said.body).unwrap(), [empty]);
    let many = |n| list((0..n).map(|n| (object(n as u32 + 10), 0)).collect());
    assert_eq!(bed.call(&up, 0, &many(GLIMPSES_MAX)).unwrap().objects, vec![empty; GLIMPSES_MAX]);
    assert_eq!(bed.call(&up, 0, &many(GLIMPSES_MAX + 1)).unwrap_err(), Errno::EMSGSIZE);
    let batched = Batch { ops: vec![sub(&many(1))], owned: false, creds: Vec::new() };
    assert_eq!(bed.call(&up, 4, &batched).unwrap_err(), Errno::EPROTO);
}

#[test]
fn what_comes_by_a_layout_from_before_a_fence_is_refused() {
    let mut bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.write(&up, 1, Some(0), b"data").unwrap();
    let fence =
        |n, generation, times| Fence { object: object(n), file: Fid::new(9, 1, 0), generation, times };
    let a = bed.call(&up, 2, &fence(1, 3, None)).unwrap();
    assert_eq!(a.size, 4, "it says what is there");
    // Of a stripe without bytes as well, and with times that are not later than those that it has.
    let times = Some((Timestamp { sec: 5, nsec: 6 }, Timestamp { sec: 7, nsec: 8 }));
    let a = bed.call(&up, 3, &fence(2, 3, times)).unwrap();
    assert_eq!((a.size, Some((a.mtime, a.ctime))), (0, times));
    bed.killed(up);
    bed.disk.crash_with(CrashMode::LoseAll, &mut Rng::new(1));
    let up = bed.start(2);
    bed.connect(&up, CLIENT);
    let by = |generation: u32, op: &dyn Fn(u64) -> Incoming| {
        let mut req = op(10 + u64::from(generation));
        req.ctx.layout_generation = generation;
        bed.send(&up, req).status
    };
    let extent = ExtentSpec { object: object(1), id: 9, mode: ExtentMode::Read, start: 0, end: 9 };
    let read = Read { object: object(1), offset: 0, len: 9, checksum: ChecksumType::None, lock: 0 };
    let seek = Seek { object: object(1), offset: 0, whence: Whence::Data, lock: 0 };
    let all: [(&str, &dyn Fn(u64) -> Incoming); 7] = [
        ("read", &|x| request(1, x, &read, Bytes::new())),
        ("write", &|x| request(2, x, &write(Some(0)), Bytes::from_static(b"x"))),
        ("append", &|x| request(3, x, &write(None), Bytes::from_static(b"x"))),
        ("truncate", &|x| request(4, x, &truncate(2), Bytes::new())),
        ("glimpse", &|x| request(5, x, &Glimpse { objects: vec![object(2), object(1)] }, Bytes::new())),
        ("seek", &|x| request(6, x, &seek, Bytes::new())),
        ("extent", &|x| request(7, x, &Extent { lock: extent.clone(), force: true }, Bytes::new())),
    ];
    for (what, op) in all {
        for old in [0, 2] {
            assert_eq!(by(old, op), Err(Errno::ERELAYOUT), "{what} by layout {old}");
        }
    }
    for generation in [3, 4] {
        // The lock, which is never given back, is asked for last.
        for (what, op) in all.into_iter().filter(|(what, _)| generation == 4 || *what != "extent") {
            assert_eq!(by(generation, op), Ok(()), "{what} by layout {generation}");
        }
    }
}

/// Whoever says that a request was answered before says it; the answer need not fit the request.
#[test]
fn a_write_done_again_goes_where_it_says_whatever_its_answer_was() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.write(&up, 1, Some(0), &[1; 8192]).unwrap();
    let attr = ObjectAttr { data_version: u64::MAX, ..ObjectAttr::default() };
    let mut xid = 1;
    let mut again = |op, body: Vec<u8>, offset: u64| {
        xid += 1;
        let reply = WriteReply { offset, attr, entry: None, may_keep: Trailing(None) };
        let reply = Replay { transno: u64::MAX, reply: postcard::to_stdvec(&reply).unwrap().into() };
        let data = Bytes::from_static(&[2; 4096]);
        let req = request(0, xid, &write(None), data);
        bed.send(&up, Incoming { op, body: body.into(), replay: Some(reply), ..req }).status
    };
    let sums = ChecksumType::Crc32c.of_write(0, &[2; 4096]);
    let m = Write { checksum: ChecksumType::Crc32c, block_crcs: sums, ..write(Some(0)) };
    let body = postcard::to_stdvec(&m).unwrap();
    for offset in [1, 4095, 4096, u64::MAX, u64::MAX - 4096] {
        assert_eq!(again(wire::Op::Write, body.clone(), offset), Err(Errno::EPROTO), "{offset}");
        let append = postcard::to_stdvec(&Write { append: true, ..m.clone() }).unwrap();
        let far = offset > limits::FILE_SIZE_MAX_BYTES;
        assert_eq!(again(wire::Op::Write, append, offset).err(), far.then_some(Errno::EFBIG), "{offset}");
        let list = Writelist { write: m.clone(), ranges: vec![WriteRange { offset: 0, len: 4096 }] };
        again(wire::Op::Writelist, postcard::to_stdvec(&list).unwrap(), offset).unwrap();
    }
    // Whatever number it was given, the object can be written on.
    bed.write(&up, 1000, Some(0), &[3; 100_000]).unwrap();
    bed.call(&up, 1001, &truncate(3)).unwrap();
    assert_eq!(bed.read(&up), [3; 3]);
}

#[test]
fn what_is_out_of_bounds_or_no_message_of_an_ost_is_refused() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let max = limits::FILE_SIZE_MAX_BYTES;
    assert_eq!(bed.write(&up, 1, Some(max - 3), b"four"), Err(Errno::EFBIG));
    assert_eq!(bed.write(&up, 1, Some(u64::MAX), b"four"), Err(Errno::EFBIG));
    assert_eq!(bed.call(&up, 1, &truncate(max + 1)), Err(Errno::EFBIG));
    assert_eq!(bed.write(&up, 1, Some(0), b""), Err(Errno::EPROTO));
    let read = |offset, len| Read { object: object(1), offset, len, checksum: ChecksumType::Crc32c, lock: 0 };
    assert_eq!(bed.call(&up, 0, &read(0, (16 << 20) + 1)).unwrap_err(), Errno::EMSGSIZE);
    assert_eq!(bed.call(&up, 0, &read(u64::MAX, 1)).unwrap_err(), Errno::EFBIG);
    let many = Glimpse { objects: vec![object(1); limits::OBJECTS_PER_RPC_MAX + 1] };
    assert_eq!(bed.call(&up, 0, &many).unwrap_err(), Errno::EMSGSIZE);
    let fallocate = |mode, len| Fallocate {
        object: object(1),
        mode,
        offset: 0,
        len,
        file: object(1).origin,
        inode_ctime: Timestamp::ZERO,
        lock: 0,
    };
    assert_eq!(bed.call(&up, 1, &fallocate(0, 0)), Err(Errno::EINVAL));
    assert_eq!(bed.call(&up, 1, &fallocate(0x40, 9)), Err(Errno::EOPNOTSUPP));
    assert_eq!(bed.call(&up, 1, &fallocate(FALLOC_PUNCH_HOLE, 9)), Err(Errno::EOPNOTSUPP));
    bed.call(&up, 1, &fallocate(FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 9)).unwrap();
    let lookup = Lookup { parent: Fid::ROOT, name: b"a".to_vec(), data: 0 };
    assert_eq!(bed.call(&up, 1, &lookup).unwrap_err(), Errno::ENOSYS);
    let mut garbage = request(0, 1, &truncate(5), Bytes::new());
    garbage.body = Bytes::from_static(&[0xff; 3]);
    assert_eq!(bed.send(&up, garbage).status, Err(Errno::EPROTO));
    let bulky = request(0, 1, &truncate(5), Bytes::from_static(b"?"));
    assert_eq!(bed.send(&up, bulky).status, Err(Errno::EPROTO));
    let foreign = bed.wait(up.ost.clone().connect(greeting(hello(CLIENT, "other"))));
    assert_eq!(foreign.unwrap_err().0, Errno::EINVAL);
}

#[test]
fn times_are_later_than_the_inode_and_clamped() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let now = bed.world.wall();
    let mut req = request(0, 1, &write(Some(0)), Bytes::from_static(b"x"));
    req.ctx.client_time = Timestamp { sec: now.sec + 1_000_000, nsec: 0 };
    let r: WriteReply = postcard::from_bytes(&bed.send(&up, req).body).unwrap();
    assert!(r.attr.mtime <= bed.world.wall().plus_nanos(1_000_000_000), "not from the far future");
    let later = now.plus_nanos(50_000_000_000);
    let m = Write { inode_ctime: later, ..write(Some(0)) };
    let r: WriteReply =
        postcard::from_bytes(&bed.send(&up, request(0, 2, &m, Bytes::from_static(b"y"))).body).unwrap();
    assert!(r.attr.ctime > later);
    let kept = bed.call(&up, 3, &Truncate { keep_times: true, ..truncate(0) }).unwrap();
    assert_eq!((kept.mtime, kept.ctime), (r.attr.mtime, r.attr.ctime));
    // Cut again it is no change: done again by its client, after a change of another's, it could become one.
    let again = Truncate { keep_times: true, ..truncate(0) };
    let out = bed.send(&up, request(0, 4, &again, Bytes::new()));
    assert_eq!((out.status, out.transno), (Ok(()), 0));
    assert_eq!(out.body, postcard::to_stdvec(&kept).unwrap());
}

#[test]
fn a_full_disk_says_so_before_anything_is_written_and_can_be_emptied() {
    let disk = MemDisk::new();
    let bed = Bed::new(disk.clone());
    disk.set_faults(FaultPlan { capacity_bytes: Some(64 << 20), ..FaultPlan::default() });
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let piece = vec![1u8; 1 << 20];
    let mut xid = 0;
    let full = loop {
        xid += 1;
        assert!(xid < 100, "never full");
        match bed.write(&up, xid, None, &piece) {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(full, Errno::ENOSPC);
    assert_eq!(up.db.stopped(), None, "a full disk stops nothing");
    let written = (xid - 1) << 20;
    let s: StatfsReply = bed.call(&up, 0, &Statfs { flags: 0 }).unwrap();
    assert!(s.available < 2 << 20 && s.free > s.available, "{s:?}");
    // Writing over what is there, cutting and removing still work.
    bed.write(&up, 1000, Some(0), &[2; 4096]).unwrap();
    assert_eq!(bed.call(&up, 1001, &truncate(1 << 20)).unwrap().size, 1 << 20);
    assert!(written > 8 << 20, "only {written} bytes fit");
    // The cut file gives its space back after the answer.
    let end = bed.world.now().plus(std::time::Duration::from_secs(20));
    while let Err(e) = bed.write(&up, 1002, None, &piece) {
        assert!(e == Errno::ENOSPC && bed.world.now() < end, "{e}");
        bed.wait(bed.world.sleep(std::time::Duration::from_millis(5)));
    }
    bed.call(&up, 1003, &Destroy { objects: vec![object(1)] }).unwrap();
}

#[test]
fn a_failed_flush_makes_the_target_read_only() {
    let disk = MemDisk::new();
    let bed = Bed::new(disk.clone());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.write(&up, 1, Some(0), b"safe").unwrap();
    disk.set_faults(FaultPlan { sync_error_ppm: 1_000_000, ..FaultPlan::default() });
    assert_eq!(bed.write(&up, 2, Some(0), b"lost"), Err(Errno::EROFS));
    assert_eq!(bed.write(&up, 3, Some(0), b"more"), Err(Errno::EROFS));
    let s: StatfsReply = bed.call(&up, 0, &Statfs { flags: 0 }).unwrap();
    assert_eq!(s.state & 2, 2, "shown as read-only");
    // What is not on disk is not shown to anybody.
    let out = bed.send(
        &up,
        request(
            0,
            0,
            &Read { object: object(1), offset: 0, len: 4, checksum: ChecksumType::Crc32c, lock: 0 },
            Bytes::new(),
        ),
    );
    assert_eq!(out.status, Err(Errno::EIO));
}

#[test]
fn a_batch_goes_on_where_it_was() {
    let mut bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.write(&up, 1, Some(0), b"0123456789").unwrap();
    let batch = Batch::plain(vec![
        sub(&truncate(5)),
        sub(&Glimpse { objects: vec![object(1)] }),
        sub(&truncate(8)),
        sub(&truncate(3)),
    ]);
    let first = bed.send(&up, request(2, 7, &batch, Bytes::new()));
    let r: BatchReply = postcard::from_bytes(&first.body).unwrap();
    assert_eq!(r.results.iter().map(|(s, _)| *s).collect::<Vec<_>>(), [0; 4]);
    let stored = up.ost.stored_reply(CLIENT, 2).unwrap();
    assert_eq!(stored.status, rpc::server::STATUS_UNFINISHED, "a batch's progress is no answer");
    // Another client writes, then the batch is sent again to a server that was restarted.
    bed.write(&up, 8, Some(0), b"abcdefgh").unwrap();
    bed.killed(up);
    let up = bed.start(2);
    bed.connect(&up, CLIENT);
    let again = bed.send(&up, request(2, 7, &batch, Bytes::new()));
    assert_eq!(again.body, first.body);
    assert_eq!(bed.read(&up), b"abcdefgh", "nothing was done twice");
    let stops = Batch::plain(vec![sub(&truncate(u64::MAX)), sub(&truncate(1))]);
    let r = bed.call(&up, 9, &stops).unwrap();
    assert_eq!(r.results, [(Errno::EFBIG.0 as u16, Vec::new())]);
    let nested = Batch::plain(vec![sub(&stops)]);
    assert_eq!(bed.call(&up, 10, &nested).unwrap_err(), Errno::EPROTO);
    assert_eq!(bed.call(&up, 11, &Batch::plain(vec![sub(&write(None))])).unwrap_err(), Errno::EOPNOTSUPP);
}

#[test]
fn a_client_that_leaves_takes_its_records_along() {
    let mut bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.connect(&up, ClientId([8; 16]));
    bed.write(&up, 1, Some(0), b"x").unwrap();
    assert!(up.ost.stored_reply(CLIENT, 0).is_some());
    bed.wait(up.ost.clone().departed(CLIENT, Departure::Evicted));
    assert_eq!(up.ost.stored_reply(CLIENT, 0), None);
    // A straggler leaves no reply behind.
    bed.write(&up, 2, Some(0), b"y").unwrap();
    assert_eq!(up.ost.stored_reply(CLIENT, 0), None);
    bed.killed(up);
    let up = bed.start(2);
    assert_eq!(up.ost.exports().len(), 1);
    assert!(bed.connect(&up, CLIENT), "new again");
}

#[test]
fn parameters_are_read_and_set() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    // The bed set it before.
    up.ost.set_params("obdfilter.*.ack", "exec").unwrap();
    every_declaration_holds(&up.ost.params("obdfilter.*.*"));
    every_declaration_holds(&up.ost.params("ost.OSS.ost_io.*"));
    assert_eq!(up.ost.set_params("ost.OSS.*.nrs_policies", "tbf nobody"), Err(Errno::EINVAL));
    up.ost.set_params("ost.OSS.*.nrs_policies", "tbf jobid").unwrap();
    let policies = up.ost.get_params("ost.OSS.ost_io.nrs_policies")[0].1.clone();
    assert!(policies.contains("  - name: tbf jobid\n    state: started\n"), "{policies}");
    let all = bed.call(&up, 0, &GetParam { pattern: "obdfilter.*.*".into() }).unwrap();
    assert_eq!(all.values.len(), oss::TABLE.params.len() + oss::CACHES.params.len());
    assert!(all.values.is_sorted());
    let set = |name: &str, value: &str| SetParam {
        name: name.into(),
        value: value.into(),
        permanent: false,
        delete: false,
    };
    let r = bed.call(&up, 1, &set("obdfilter.*.readonly", "1")).unwrap();
    assert_eq!(r, GetParamReply { values: vec![("obdfilter.demo-OST0003.readonly".into(), "1".into())] });
    assert_eq!(bed.write(&up, 2, Some(0), b"x"), Err(Errno::EROFS));
    bed.call(&up, 3, &set("obdfilter.demo-OST0003.readonly", "0")).unwrap();
    bed.write(&up, 4, Some(0), b"x").unwrap();
    for (name, value, e) in [
        ("obdfilter.*.readonly", "2", Errno::ERANGE),
        ("obdfilter.*.readonly", "x", Errno::EINVAL),
        ("obdfilter.*.kbytesfree", "1", Errno::EACCES),
        ("obdfilter.*.nothing", "1", Errno::ENOENT),
        ("mdt.*.readonly", "1", Errno::ENOENT),
    ] {
        assert_eq!(bed.call(&up, 5, &set(name, value)).unwrap_err(), e, "{name}={value}");
    }
    let mut user = request(0, 6, &set("obdfilter.*.readonly", "1"), Bytes::new());
    user.ctx.cred.uid = 1000;
    assert_eq!(bed.send(&up, user).status, Err(Errno::EPERM));
    let stats = bed.call(&up, 0, &GetParam { pattern: "obdfilter.*.stats".into() }).unwrap();
    every_declaration_holds(&up.ost.params("obdfilter.*.exports.*.*"));
    assert!(stats.values[0].1.contains("write_bytes               1 samples [bytes] 1 1 1 1"), "{stats:?}");
}

#[test]
fn data_that_changed_on_the_way_is_refused_and_sums_come_back_as_they_were_sent() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let data: Vec<u8> = (0..10_000u32).map(|i| (i * i) as u8).collect();
    for (xid, t) in (1..).zip([ChecksumType::Crc32c, ChecksumType::Crc32, ChecksumType::Adler32]) {
        let m = Write { block_crcs: t.of_write(8192, &data), checksum: t, ..write(Some(8192)) };
        let mut bad = data.clone();
        bad[5000] ^= 1;
        let out = bed.send(&up, request(0, 2 * xid, &m, Bytes::from(bad)));
        assert_eq!(out.status, Err(Errno::EBADMSG));
        assert_eq!(up.ost.counter("checksum_wire_errors"), (xid, xid));
        let out = bed.send(&up, request(0, 2 * xid + 1, &m, Bytes::from(data.clone())));
        assert_eq!(out.status, Ok(()));
        for (off, len) in [(0, 1 << 20), (8192, 4096), (9000, 5000), (12_288, 5904)] {
            let m = Read { object: object(1), offset: off, len, checksum: t, lock: 0 };
            let out = bed.send(&up, request(0, 0, &m, Bytes::new()));
            let r: ReadReply = postcard::from_bytes(&out.body).unwrap();
            assert_eq!(
                t.differs_in_read(off, &out.bulk.clone().into_bytes(), r.object_size, &r.block_crcs),
                None,
                "{t:?} {off}"
            );
        }
    }
    // Appends: pieces count from the data's beginning.
    let m = Write {
        block_crcs: ChecksumType::Crc32c.of_write(0, &data),
        checksum: ChecksumType::Crc32c,
        ..write(None)
    };
    assert_eq!(bed.send(&up, request(0, 99, &m, Bytes::from(data.clone()))).status, Ok(()));
    assert!(bed.read(&up).ends_with(&data));
    assert_eq!(up.ost.get_params("obdfilter.*.checksum_errors")[0].1, "0");
}

#[test]
fn a_scrub_runs_beside_the_service() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.write(&up, 1, Some(0), &[7; 300_000]).unwrap();
    let name = "obdfilter.*.scrub";
    for bad in ["", "start x", "start 0", "stop 1", "clear"] {
        assert_eq!(up.ost.set_params(name, bad), Err(Errno::EINVAL), "{bad}");
    }
    assert!(up.ost.get_params(name)[0].1.starts_with("status: never\n"));
    up.ost.set_params(name, "start 1000").unwrap();
    let end = bed.world.now().plus(std::time::Duration::from_secs(20));
    let text = loop {
        let text = up.ost.get_params(name)[0].1.clone();
        if !text.starts_with("status: running") {
            break text;
        }
        assert!(bed.world.now() < end, "{text}");
        bed.rt.block_on(bed.world.sleep(std::time::Duration::from_millis(5)));
    };
    assert!(text.starts_with("status: completed\nrate_mib: 1000\n"), "{text}");
    assert!(text.contains("\nobjects: 1\nbytes: 300000\nbad_blocks: 0\n"), "{text}");
}

#[test]
fn what_is_done_again_waits_for_no_lock_and_never_changes_what_others_hold() {
    let other = ClientId([8; 16]);
    let mut bed = Bed::new(MemDisk::new());
    let lock = |id| ExtentSpec { object: object(1), id, mode: ExtentMode::Write, start: 0, end: u64::MAX };
    let from = |client, r: Incoming| Incoming { from: at(client), ..r };
    let again = |xid, data: &'static [u8]| {
        let m = Write { lock: 5, ..write(Some(0)) };
        let reply = Bytes::new();
        Incoming {
            replay: Some(Replay { transno: xid, reply }),
            ..request(3, xid, &m, Bytes::from_static(data))
        }
    };
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    bed.connect(&up, other);
    bed.killed(up);
    let up = bed.start(2);
    // Both are awaited: what was done under a lock that was given back since is done again.
    let outcome = bed.wait(up.ost.clone().connect(greeting(hello(CLIENT, "demo")))).unwrap();
    assert!(outcome.recovering && up.ost.recovering());
    bed.send(&up, again(10, b"again")).status.unwrap();
    bed.connect(&up, CLIENT);
    bed.connect(&up, other);
    assert!(!up.ost.recovering());
    assert_eq!(bed.read(&up), b"again");
    // Later on: not behind the back of one who holds a lock, and not waiting for him either.
    let asked = request(0, 0, &Extent { lock: lock(9), force: true }, Bytes::new());
    let out = bed.send(&up, from(other, asked));
    let r: ExtentReply = postcard::from_bytes(&out.body).unwrap();
    assert!(matches!(r.answer, ExtentAnswer::Granted { .. }));
    assert_eq!(bed.send(&up, again(11, b"late!")).status, Err(Errno::ENOLCK));
    up.ost.notice(other, Notice::Released { locks: vec![(object(1), 9)] });
    bed.send(&up, again(12, b"later")).status.unwrap();
    assert_eq!(bed.read(&up), b"later");
}

fn list(ranges: &[(u64, u32)], t: ChecksumType, data: &[u8]) -> Writelist {
    let (mut block_crcs, mut at) = (Vec::new(), 0);
    for (offset, len) in ranges {
        block_crcs.extend(t.of_write(*offset, &data[at..at + *len as usize]));
        at += *len as usize;
    }
    let write = Write { block_crcs, checksum: t, ..write(Some(ranges[0].0)) };
    Writelist { write, ranges: ranges.iter().map(|&(offset, len)| WriteRange { offset, len }).collect() }
}

#[test]
fn several_ranges_are_written_at_once_and_survive_a_crash_with_their_answer() {
    let mut bed = Bed::new(MemDisk::new());
    let mut up = bed.start(1);
    bed.connect(&up, CLIENT);
    let whole = |bed: &Bed, up: &Up| {
        let m = Read { object: object(1), offset: 0, len: 16 << 20, checksum: ChecksumType::None, lock: 0 };
        bed.send(up, request(0, 0, &m, Bytes::new())).bulk.into_bytes()
    };
    bed.write(&up, 1, Some(0), &[1; 300_000]).unwrap();
    let mut want = vec![1; 300_000];
    let data: Vec<u8> = (0..250_000u64).map(|i| (i * i) as u8).collect();
    for (xid, t) in (2..).zip([ChecksumType::Crc32c, ChecksumType::Adler32, ChecksumType::None]) {
        let far = 1_000_000 * xid;
        let ranges = [
            (5_000, 47_008),
            (99_016, 47_008),
            (far, 100_000),
            (far + 200_000, 4_096),
            (far + 205_000, 51_888),
        ];
        let m = list(&ranges, t, &data);
        if t != ChecksumType::None {
            let mut bad = data.clone();
            bad[249_999] ^= 1;
            let out = bed.send(&up, request(0, 100 + xid, &m, bad.into()));
            assert_eq!(out.status, Err(Errno::EBADMSG));
            assert!(whole(&bed, &up) == want, "nothing was written");
        }
        let out = bed.send(&up, request(2, xid, &m, data.clone().into()));
        out.status.unwrap();
        let mut at = 0;
        for (off, len) in ranges {
            let (off, len) = (off as usize, len as usize);
            want.resize(want.len().max(off + len), 0);
            want[off..off + len].copy_from_slice(&data[at..at + len]);
            at += len;
        }
        let r: WriteReply = postcard::from_bytes(&out.body).unwrap();
        assert_eq!((r.offset, r.attr.size), (5_000, want.len() as u64), "where it began, however it was cut");
        bed.killed(up);
        bed.disk.crash_with(CrashMode::LoseAll, &mut Rng::new(xid));
        up = bed.start(xid as u32);
        assert_eq!(up.ost.stored_reply(CLIENT, 2).unwrap().body, out.body);
        bed.connect(&up, CLIENT);
        assert!(whole(&bed, &up) == want, "{t:?}");
    }
    let stats = bed.call(&up, 0, &GetParam { pattern: "obdfilter.*.stats".into() }).unwrap();
    let _ = bed
        .send(&up, request(2, 9, &list(&[(0, 1), (9, 1)], ChecksumType::None, &[1; 2]), vec![1; 2].into()));
    assert!(!stats.values[0].1.contains("write_bytes"), "{stats:?}");
    let stats = bed.call(&up, 0, &GetParam { pattern: "obdfilter.*.stats".into() }).unwrap();
    assert!(stats.values[0].1.contains("write_bytes               1 samples [bytes] 2 2 2 4"), "{stats:?}");
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    let bed = Bed::new(MemDisk::new());
    let up = bed.start(1);
    bed.connect(&up, CLIENT);
    let none = ChecksumType::None;
    let many: Vec<(u64, u32)> = (0..=RANGES_MAX as u64).map(|i| (2 * i, 1)).collect();
    let good = || list(&[(0, 4), (10, 6)], none, &[0; 10]);
    let append = Writelist { write: write(None), ..good() };
    let unlocked = Writelist { write: Write { lock: 5, ..write(Some(0)) }, ..good() };
    for (m, len, e) in [
        (Writelist { ranges: Vec::new(), ..good() }, 0, Errno::EPROTO),
        (good(), 9, Errno::EPROTO),
        (good(), 11, Errno::EPROTO),
        (list(&[(0, 4), (3, 6)], none, &[0; 10]), 10, Errno::EPROTO),
        (list(&[(10, 4), (0, 6)], none, &[0; 10]), 10, Errno::EPROTO),
        (list(&[(0, 4), (u64::MAX - 1, 6)], none, &[0; 10]), 10, Errno::EPROTO),
        (append, 10, Errno::EPROTO),
        (list(&[(0, 4), (limits::FILE_SIZE_MAX_BYTES, 6)], none, &[0; 10]), 10, Errno::EFBIG),
        (list(&many, none, &[0; RANGES_MAX + 1]), RANGES_MAX + 1, Errno::EMSGSIZE),
        (unlocked, 10, Errno::ENOLCK),
    ] {
        assert_eq!(bed.send(&up, request(0, 1, &m, vec![7; len].into())).status, Err(e), "{m:?}");
        assert_eq!(bed.read(&up), b"");
    }
    let batch = Batch::plain(vec![sub(&good())]);
    let done = bed.call(&up, 2, &batch);
    assert_eq!(done.err(), Some(Errno::EOPNOTSUPP));
    bed.send(&up, request(0, 3, &good(), vec![7; 10].into())).status.unwrap();
    assert_eq!(bed.read(&up).len(), 16);
}

/// An OST of its own folder on a disk.
fn on_disk(world: &World, index: u16, book: Arc<DiskBook>) -> Arc<Ost> {
    let dir = format!("/ost{index}");
    world.disk.mkdir(&dir).unwrap();
    Db::create(world, &dir).unwrap();
    Objects::create(world, &dir).unwrap();
    let db = Db::open(world, &dir, 1, tiny()).unwrap();
    let objects = Objects::open(db.clone()).unwrap();
    let cfg = OstConfig { fsname: "demo".into(), index, dir, birth: Birth::default(), book };
    Ost::open(world, db, objects, Peers::new(), cfg).unwrap()
}

/// Two servers, a target each, as two processes are: their books know each other by a folder only.
#[test]
fn servers_that_share_a_disk_promise_its_room_once_and_forget_who_is_gone() {
    const MANY: u64 = 1 << 40;
    let (world, rt) = world::real::start(2).unwrap();
    let disk = MemDisk::new();
    let world = World { disk: Arc::new(disk.clone()), ..world };
    let book = || Arc::new(DiskBook::shared(&world, "/space"));
    let osts = [on_disk(&world, 0, book()), on_disk(&world, 1, book())];
    let capacity = disk.used_bytes() + (96 << 20);
    disk.set_faults(FaultPlan { capacity_bytes: Some(capacity), ..FaultPlan::default() });
    let ask = |ost: &Arc<Ost>, client: ClientId, have: u64| {
        rt.block_on(within_a_minute(&world, ost.clone().connect(greeting(hello(client, "demo"))))).unwrap();
        let m = request(0, 1, &Grant { have, want: MANY }, Bytes::new());
        let out = rt.block_on(within_a_minute(
            &world,
            ost.clone().handle(Incoming { from: at(client), xid: u64::from(client.0[0]), ..m }),
        ));
        out.status.unwrap();
        postcard::from_bytes::<GrantReply>(&out.body).unwrap().have
    };
    let mut sum = 0;
    for n in 1..=40 {
        sum += osts.iter().map(|o| ask(o, ClientId([n; 16]), 0)).sum::<u64>();
    }
    let free = || world.disk.space("/ost0").unwrap().available;
    assert!(sum > 20 << 20 && sum <= free(), "{sum} bytes promised of {}", free());
    // Nor has a stranger at the one what the other promised.
    let stranger = ClientId([99; 16]);
    rt.block_on(within_a_minute(&world, osts[0].clone().connect(greeting(hello(stranger, "demo"))))).unwrap();
    let block = Bytes::from(vec![1; 1 << 20]);
    for n in 0u64.. {
        let m = request(0, 0, &Write { object: object(99), ..write(Some(n << 20)) }, block.clone());
        let m = Incoming { from: at(stranger), xid: n + 2, ..m };
        match rt.block_on(within_a_minute(&world, osts[0].clone().handle(m))).status {
            Ok(()) => assert!(n < 200, "the disk does not fill"),
            Err(e) => {
                assert_eq!(e, Errno::ENOSPC);
                break;
            }
        }
    }
    assert!(free() >= sum, "{} bytes are left, {sum} are promised", free());
    // What a server that was killed left in the folder, which nobody has locked, counts no more.
    assert_eq!(world.disk.list("/space").unwrap().len(), 2);
    world.disk.open("/space/0123456789abcdef", OpenMode::CREATE_NEW).unwrap().write_at(&[7; 28], 0).unwrap();
    let [a, b] = osts;
    let before = ask(&a, ClientId([50; 16]), 0);
    assert_eq!(world.disk.list("/space").unwrap().len(), 2, "it is removed");
    rt.block_on(within_a_minute(&world, b.stop()));
    drop(b);
    let after = ask(&a, ClientId([51; 16]), 0);
    assert!(after > before + (1 << 20), "there is room again: {after} after {before}");
}

/// Clients keep what they were promised room for, and tell their programs that it is written. Three targets
/// on one disk promise as much as one.
#[test]
fn targets_on_one_disk_promise_its_room_once() {
    const MANY: u64 = 1 << 40;
    let (world, rt) = world::real::start(2).unwrap();
    let disk = MemDisk::new();
    let world = World { disk: Arc::new(disk.clone()), ..world };
    let book = DiskBooks::default();
    let osts: Vec<Arc<Ost>> = (0..3).map(|i| on_disk(&world, i, book.of(7, DiskBook::default))).collect();
    let capacity = disk.used_bytes() + (96 << 20);
    disk.set_faults(FaultPlan { capacity_bytes: Some(capacity), ..FaultPlan::default() });
    let send = |ost: &Arc<Ost>, client: ClientId, xid: u64, m: Incoming| {
        let req = Incoming { from: at(client), xid, ..m };
        rt.block_on(within_a_minute(&world, ost.clone().handle(req)))
    };
    let clients: Vec<ClientId> = (1..=20).map(|n| ClientId([n; 16])).collect();
    let mut promised = Vec::new();
    for (ost, client) in osts.iter().flat_map(|o| clients.iter().map(move |c| (o, *c))) {
        rt.block_on(within_a_minute(&world, ost.clone().connect(greeting(hello(client, "demo"))))).unwrap();
        let ask = Grant { have: 0, want: MANY };
        let out = send(ost, client, 1, request(0, 1, &ask, Bytes::new()));
        out.status.unwrap();
        let have = postcard::from_bytes::<GrantReply>(&out.body).unwrap().have;
        promised.push((ost.clone(), client, have));
    }
    let sum: u64 = promised.iter().map(|p| p.2).sum();
    let free = world.disk.space("/ost0").unwrap().available;
    assert!(sum > 20 << 20, "it is of use: {sum}");
    assert!(sum <= free, "{sum} bytes promised of {free}");
    let number =
        |ost: &Arc<Ost>, name: &str| ost.get_params(&format!("obdfilter.*.{name}"))[0].1.parse::<u64>();
    let granted = || osts.iter().map(|o| number(o, "tot_granted").unwrap()).collect::<Vec<_>>();
    let of = |n: usize| promised.iter().filter(|p| Arc::ptr_eq(&p.0, &osts[n])).map(|p| p.2).sum::<u64>();
    assert_eq!(granted(), [of(0), of(1), of(2)], "each says what its own clients have");
    // Somebody without a promise takes what is left.
    let stranger = ClientId([99; 16]);
    rt.block_on(within_a_minute(&world, osts[0].clone().connect(greeting(hello(stranger, "demo"))))).unwrap();
    let block = Bytes::from(vec![1; 1 << 20]);
    let mut taken = 0;
    let full = loop {
        let m = Write { object: object(99), ..write(Some(taken << 20)) };
        match send(&osts[0], stranger, taken + 2, request(0, 0, &m, block.clone())).status {
            Ok(()) => taken += 1,
            Err(e) => break e,
        }
        assert!(taken < 200, "the disk does not fill");
    };
    assert_eq!(full, Errno::ENOSPC);
    // What was promised has its room all the same, on each of them.
    for (n, (ost, client, have)) in (1u32..).zip(&promised) {
        let mut at = 0;
        while at < *have {
            let len = (have - at).min(1 << 20);
            let m = Write { object: object(n), granted: true, ..write(Some(at)) };
            let data = block.slice(..len as usize);
            let out = send(ost, *client, at + 2, request(0, 0, &m, data));
            assert_eq!(out.status, Ok(()), "byte {at} of {have} promised to {client} by OST {}", ost.label());
            at += len;
        }
    }
    assert_eq!(granted(), [0; 3], "it was all used");
    assert_eq!(number(&osts[0], "tot_pending"), Ok(0));
}

//! The metadata target over a disk in memory: each operation, random operations against a model, crashes.

mod acl;
mod barrier;
mod big;
mod changelog;
mod components;
mod damage;
mod data;
mod directories;
mod layout;
mod leases;
mod lfsck;
mod limits;
mod model;
mod names;
mod osts;
mod own;
mod pools;
mod posix;
mod probes;
mod purge;
mod recovery;
mod recreate;
mod scan;
mod swap;
mod trash;
mod usage;

use crate::check;
use crate::mdt::{Mdt, MdtConfig};
use crate::osts::Ost;
use ::model::{Cred, Errno, Fid, FileType, LayoutSpec, ObjectId, SetAttr, Timestamp};
use bytes::Bytes;
use rpc::{ClientId, Departure, Incoming, Peers, Service};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use store::{Db, DbOptions};
use wire::msg::connect::{Connect, ConnectFeatures};
use wire::msg::create::{Create, CreateReply, OpenSpec};
use wire::msg::lookup::Entry;
use wire::msg::statfs::StatfsReply;
use wire::msg::write::WriteReply;
use wire::trailing::Trailing;
use wire::{Message, RequestContext, msg};
use world::mem::MemDisk;
use world::{Disk, World, block_on};

pub const A: ClientId = ClientId([0xa; 16]);
pub const B: ClientId = ClientId([0xb; 16]);
const DIR: &str = "/mdt";

/// One metadata target, its disk, and what a client would keep.
pub struct Rig {
    pub disk: MemDisk,
    pub world: World,
    pub mdt: Arc<Mdt>,
    _rt: Arc<world::real::Runtime>,
    next_xid: AtomicU64,
    next_oid: AtomicU32,
    next_handle: AtomicU64,
    /// Sequence of client A, and of client B.
    pub seqs: [u64; 2],
}

fn local(client: ClientId) -> rpc::Principal {
    rpc::Principal::new(client, IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn greeting(client: ClientId) -> rpc::Greeting {
    let connect = Connect {
        client_uuid: client.0,
        client_name: "test".into(),
        fsname: "test".into(),
        version: wire::frame::VERSION,
        features: ConnectFeatures::OURS,
        last_epoch: 0,
        slots: 8,
        lane: 0,
        extra: Vec::new(),
    };
    rpc::Greeting { connect, from: local(client), session: 1, known: true, digest: None }
}

fn start(world: &World, epoch: u32) -> Arc<Mdt> {
    let db = Db::open(world, DIR, epoch, DbOptions::default()).unwrap();
    let cfg = MdtConfig {
        fsname: "test".into(),
        index: 0,
        dir: DIR.into(),
        port: 988,
        bind: None,
        networks: Default::default(),
    };
    let mdt = Mdt::open(world.clone(), db, Peers::new(), cfg).unwrap();
    world::block_on(mdt.set_params("mdt.*.ack", "durable")).unwrap();
    for i in 0..4u16 {
        let space = StatfsReply { total: 1 << 40, available: 1 << 39, ..StatfsReply::default() };
        let ost = Ost {
            import: None,
            nids: vec![format!("127.0.0.{}@tcp", 2 + i / 2).parse().unwrap()],
            domain: Vec::new(),
            mark: ::model::TargetMark::of(&[i as u8 + 1; 16]),
            configured: true,
            enabled: true,
            max_create_count: crate::osts::CREATE_COUNT_DEFAULT,
            space: Some(space),
            heard: None,
            pace: crate::passed_over::Pace::default(),
            passed_over: 0,
            wake: Arc::default(),
        };
        mdt.shared.osts.insert(i, ost);
    }
    mdt
}

impl Rig {
    pub fn new() -> Rig {
        let (mut world, rt) = world::real::start(1).unwrap();
        let disk = MemDisk::new();
        disk.mkdir(DIR).unwrap();
        disk.sync_dir("/").unwrap();
        world.disk = Arc::new(disk.clone());
        Db::create(&world, DIR).unwrap();
        let mdt = start(&world, 1);
        let mut rig = Rig {
            disk,
            world,
            mdt,
            _rt: Arc::new(rt),
            next_xid: AtomicU64::new(1),
            next_oid: AtomicU32::new(1),
            next_handle: AtomicU64::new(1),
            seqs: [0; 2],
        };
        for (i, c) in [A, B].into_iter().enumerate() {
            assert!(rig.connect(c).new_client);
            let r = rig.call(c, &Cred::root(), msg::allocseq::Allocseq { kind: 0 }).unwrap();
            rig.seqs[i] = r.seq;
        }
        rig
    }

    pub fn connect(&self, client: ClientId) -> rpc::ConnectOutcome {
        block_on(self.mdt.clone().connect(greeting(client))).unwrap()
    }

    pub fn incoming<M: Message>(&self, client: ClientId, cred: &Cred, m: &M) -> Incoming {
        Incoming {
            from: local(client),
            op: M::OP,
            slot: 0,
            xid: self.next_xid.fetch_add(1, Ordering::Relaxed),
            resent: false,
            durable: false,
            wall: self.world.wall(),
            replay: None,
            ctx: RequestContext { cred: cred.clone(), ..RequestContext::default() },
            body: Bytes::from(postcard::to_stdvec(m).unwrap()),
            bulk: Bytes::new(),
        }
    }

    pub fn call<M: Message>(&self, client: ClientId, cred: &Cred, m: M) -> Result<M::Reply, Errno> {
        let out = block_on(self.mdt.clone().handle(self.incoming(client, cred, &m)));
        out.status?;
        assert!(M::OP.verb().modifies || out.transno == 0, "{:?} changed something", M::OP);
        Ok(postcard::from_bytes(&out.body).unwrap())
    }

    /// As root, from client A.
    pub fn root<M: Message>(&self, m: M) -> Result<M::Reply, Errno> {
        self.call(A, &Cred::root(), m)
    }

    pub fn fid(&self) -> Fid {
        Fid::new(self.seqs[0], self.next_oid.fetch_add(1, Ordering::Relaxed), 0)
    }

    pub fn handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    pub fn create_as(&self, cred: &Cred, parent: Fid, name: &str, mode: u32) -> Result<CreateReply, Errno> {
        self.call(A, cred, create_msg(parent, name, self.fid(), mode))
    }

    pub fn create(&self, parent: Fid, name: &str) -> Fid {
        self.create_as(&Cred::root(), parent, name, 0o644).unwrap().entry.attr.fid
    }

    /// With objects from the beginning.
    pub fn create_striped(&self, parent: Fid, name: &str, stripes: i32) -> Fid {
        let layout = Some(LayoutSpec { stripe_count: stripes, ..LayoutSpec::default() });
        let m = Create { layout, ..create_msg(parent, name, self.fid(), 0o644) };
        self.root(m).unwrap().entry.attr.fid
    }

    /// Sends a request with bulk; the reply and its bulk.
    pub fn call_bulk<M: Message>(&self, m: &M, bulk: Bytes) -> Result<(M::Reply, Bytes), Errno> {
        let req = Incoming { bulk, ..self.incoming(A, &Cred::root(), m) };
        let out = block_on(self.mdt.clone().handle(req));
        out.status?;
        Ok((postcard::from_bytes(&out.body).unwrap(), out.bulk.into_bytes()))
    }

    /// Writes data beside the inode of a file in its first layout.
    pub fn write(&self, fid: Fid, off: u64, data: &[u8]) -> Result<WriteReply, Errno> {
        self.call_bulk(&write_msg(fid, Some(off)), Bytes::copy_from_slice(data)).map(|r| r.0)
    }

    pub fn mkdir_as(&self, cred: &Cred, parent: Fid, name: &str, mode: u32) -> Result<Entry, Errno> {
        let m = msg::mkdir::Mkdir { parent, name: name.into(), fid: self.fid(), mode, umask: 0 };
        self.call(A, cred, m)
    }

    pub fn mkdir(&self, parent: Fid, name: &str) -> Fid {
        self.mkdir_as(&Cred::root(), parent, name, 0o755).unwrap().attr.fid
    }

    pub fn lookup(&self, parent: Fid, name: &str) -> Result<Entry, Errno> {
        self.root(msg::lookup::Lookup { parent, name: name.into(), data: 0 })?.entry.ok_or(Errno::ENOENT)
    }

    pub fn attr(&self, fid: Fid) -> ::model::Attr {
        self.root(msg::getattr::Getattr { fid }).unwrap().attr
    }

    pub fn setattr(&self, cred: &Cred, fid: Fid, set: SetAttr) -> Result<Entry, Errno> {
        self.call(A, cred, msg::setattr::Setattr { fid, set })
    }

    pub fn chmod(&self, fid: Fid, mode: u32) {
        self.setattr(&Cred::root(), fid, SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
    }

    pub fn chown(&self, fid: Fid, uid: u32, gid: u32) {
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.setattr(&Cred::root(), fid, set).unwrap();
    }

    pub fn unlink(&self, parent: Fid, name: &str) -> Result<(), Errno> {
        self.root(msg::unlink::Unlink { parent, name: name.into() }).map(drop)
    }

    pub fn rmdir(&self, parent: Fid, name: &str) -> Result<(), Errno> {
        self.root(msg::rmdir::Rmdir { parent, name: name.into() }).map(drop)
    }

    pub fn link(&self, fid: Fid, parent: Fid, name: &str) -> Result<Entry, Errno> {
        self.root(msg::link::Link { fid, parent, name: name.into() })
    }

    pub fn rename(&self, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Result<(), Errno> {
        self.root(rename_msg(from, to, flags)).map(drop)
    }

    pub fn open(&self, fid: Fid, flags: u32) -> u64 {
        let handle = self.handle();
        self.root(msg::open::Open { fid, open: OpenSpec { handle, flags, lease: false }, data: 0 }).unwrap();
        handle
    }

    pub fn close(&self, fid: Fid, handle: u64) {
        self.root(msg::close::Close { fid, handle, atime: None }).unwrap();
    }

    pub fn names(&self, fid: Fid) -> Vec<String> {
        let m = msg::readdir::Readdir {
            fid,
            cookie: 0,
            max_bytes: 1 << 20,
            plus: false,
            grows_into: Trailing(None),
        };
        let r = self.root(m).unwrap();
        let mut n: Vec<_> = r.entries.into_iter().map(|e| String::from_utf8(e.name).unwrap()).collect();
        n.sort();
        n
    }

    /// Everything fits together.
    pub fn assert_clean(&self) -> check::Summary {
        let s = check::check(&self.mdt.db).unwrap();
        assert!(s.findings.is_empty(), "{:#?}", s.findings);
        s
    }

    /// Power fails; the target starts again with the next epoch. On a disk of its own: background work of the
    /// old life, a checkpoint say, cannot be stopped at once, and goes on with the old disk.
    pub fn crash(&mut self, seed: u64) {
        let epoch = self.mdt.shared.epoch + 1;
        block_on(self.mdt.stop());
        self.disk = self.disk.fork();
        self.disk.crash(&mut world::rng::Rng::new(seed));
        self.world.disk = Arc::new(self.disk.clone());
        self.mdt = start(&self.world, epoch);
    }

    /// A client comes back after a restart and says what it had open.
    pub fn reclaim(&self, client: ClientId, opens: &[(Fid, u64)]) -> msg::reclaim::ReclaimReply {
        self.connect(client);
        let opens =
            opens.iter().map(|&(fid, handle)| msg::reclaim::OpenRecord { fid, handle, flags: 0 }).collect();
        self.call(
            client,
            &Cred::root(),
            msg::reclaim::Reclaim { opens, last: true, ..msg::reclaim::Reclaim::default() },
        )
        .unwrap()
    }

    pub fn depart(&self, client: ClientId, how: Departure) {
        block_on(self.mdt.clone().departed(client, how));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        block_on(self.mdt.stop());
    }
}

pub fn create_msg(parent: Fid, name: &str, fid: Fid, mode: u32) -> Create {
    Create {
        parent,
        name: name.into(),
        fid,
        mode,
        umask: 0,
        exclusive: true,
        open: None,
        layout: None,
        no_objects: false,
    }
}

/// `off` `None`: at the end.
pub fn write_msg(fid: Fid, off: Option<u64>) -> msg::write::Write {
    msg::write::Write {
        object: ObjectId { origin: fid, component: 1, stripe: 0 },
        offset: off.unwrap_or(0),
        append: off.is_none(),
        file: fid,
        uid: 0,
        gid: 0,
        projid: 0,
        inode_ctime: Timestamp::ZERO,
        block_crcs: Vec::new(),
        checksum: wire::checksum::ChecksumType::None,
        lock: 0,
        granted: false,
    }
}

/// A close in a batch, made at that time ([`Timestamp::ZERO`]: when it is sent), of a file that was open
/// under a lease.
pub fn late_close(fid: Fid, atime: Timestamp, at: Timestamp) -> msg::batch::Batch {
    let close = msg::close::Close { fid, handle: 77, atime: Some(atime) };
    let body = postcard::to_stdvec(&close).unwrap();
    let plain = msg::batch::BatchOp::plain(msg::close::Close::OP as u16, body);
    msg::batch::Batch::plain(vec![msg::batch::BatchOp { time: at, ..plain }])
}

pub fn rename_msg(from: (Fid, &str), to: (Fid, &str), flags: u32) -> msg::rename::Rename {
    msg::rename::Rename {
        parent: from.0,
        name: from.1.into(),
        new_parent: to.0,
        new_name: to.1.into(),
        flags,
    }
}

pub fn user(uid: u32) -> Cred {
    Cred::new(uid, uid)
}

pub fn kind_of(e: &Entry) -> FileType {
    e.attr.kind
}

pub fn later(a: Timestamp, b: Timestamp) -> bool {
    a > b
}

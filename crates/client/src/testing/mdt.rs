//! The answers of a metadata target: inodes and names in memory, data with inodes, every lock and lease, and
//! otherwise as a test tells it. It checks no permission: what is to be refused a test says
//! ([`super::Fake::refuse`]).

use super::{Answers, Fake, FakeOst, message};
use bytes::Bytes;
use model::layout::Layout;
use model::mutex::{Mutex, MutexGuard};
use model::{Attr, Errno, Fid, FileType, ObjectAttr, SetAttr, SetTime, Timestamp, perm};
use rpc::{Incoming, Outgoing};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::Op;
use wire::msg::allocseq::AllocseqReply;
use wire::msg::batch::{Batch, BatchReply};
use wire::msg::close::CloseReply;
use wire::msg::create::{Create, CreateReply};
use wire::msg::enqueue::{Enqueue, EnqueueReply};
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, Fallocate};
use wire::msg::fetch::{Fetch, FetchReply};
use wire::msg::getattr::Getattr;
use wire::msg::getxattr::{Getxattr, GetxattrReply};
use wire::msg::grow::Grow;
use wire::msg::instantiate::Instantiate;
use wire::msg::lookup::{Entry, Grant, Lookup, LookupReply, bits};
use wire::msg::mkdir::Mkdir;
use wire::msg::notify::{LeaseItem, Notice};
use wire::msg::open::Open;
use wire::msg::own::{Own, OwnReply};
use wire::msg::read::{Read, ReadReply};
use wire::msg::readdir::{Dirent, Readdir, ReaddirReply};
use wire::msg::reclaim::OpenRecord;
use wire::msg::removexattr::Removexattr;
use wire::msg::setattr::Setattr;
use wire::msg::setlayout::Setlayout;
use wire::msg::statfs::StatfsReply;
use wire::msg::unlink::{Changed, Unlink};
use wire::msg::write::{Write, WriteReply};
use wire::trailing::Trailing;

/// Of the first epoch: as transactions and leases are numbered.
const EPOCH: u64 = 1 << 40;

/// A file or directory.
pub(crate) struct Inode {
    pub attr: Attr,
    pub layout: Option<Layout>,
    /// What lies with it.
    pub data: Vec<u8>,
    /// Where its data goes when there is no more room for it.
    pub grows_into: Option<Layout>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What the server was told, and how it is to answer.
#[derive(Default)]
pub(crate) struct MdtState {
    inodes: BTreeMap<Fid, Inode>,
    /// By directory and cookie.
    names: BTreeMap<(Fid, u64), (Vec<u8>, Fid)>,
    /// Counts transactions and leases.
    count: u64,
    /// Answers grant leases on what they show.
    pub leases: bool,
    /// Directories are a client's alone if it asks.
    pub owns: bool,
    /// Who asks for a lock of a file has to wait.
    pub waits: bool,
    /// Entries in an answer to readdir, at most.
    pub page: usize,
    pub cancelled: Vec<LeaseItem>,
    pub opened: Vec<OpenRecord>,
    pub space: StatfsReply,
}

impl MdtState {
    pub fn inode(&mut self, fid: Fid) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&fid).ok_or(Errno::ENOENT)
    }

    pub fn add(&mut self, fid: Fid, kind: FileType, layout: Option<Layout>) -> &mut Inode {
        let attr = Attr { mode: 0o644, version: 1, ..super::attr(fid, kind) };
        let (data, xattrs) = (Vec::new(), BTreeMap::new());
        self.inodes.entry(fid).or_insert(Inode { attr, layout, data, grows_into: None, xattrs })
    }

    pub fn add_name(&mut self, dir: Fid, name: &[u8], leads: Fid) {
        self.count += 1;
        self.names.insert((dir, self.count), (name.to_vec(), leads));
    }

    fn named(&self, dir: Fid, name: &[u8]) -> Option<(u64, Fid)> {
        let found = self.names.iter().find(|(k, v)| k.0 == dir && v.0 == name);
        found.map(|(k, v)| (k.1, v.1))
    }

    /// The number of something that happens now: a transaction, or a lease that is granted.
    pub fn transno(&mut self) -> u64 {
        self.count += 1;
        EPOCH | self.count
    }

    fn grant(&mut self, bits: u8, exclusive: bool) -> Option<Grant> {
        let granted = self.leases || exclusive;
        granted.then(|| Grant { bits, seq: self.transno(), exclusive })
    }

    fn shown(&mut self, fid: Fid) -> Result<Entry, Errno> {
        let grant = self.grant(bits::INODE, false);
        let i = self.inode(fid)?;
        let (layout, plain) = (i.layout.clone(), i.xattrs.is_empty());
        Ok(Entry { layout, plain, grant, ..super::entry(i.attr.clone()) })
    }

    /// With its data, if that lies with it.
    fn shown_whole(&mut self, fid: Fid) -> Result<(Entry, Vec<u8>), Errno> {
        let mut e = self.shown(fid)?;
        let i = self.inode(fid)?;
        let data = if i.room().is_ok() { i.data.clone() } else { Vec::new() };
        e.content = i.room().is_ok().then_some(data.len() as u32);
        Ok((e, data))
    }

    /// Changes an inode, as a transaction.
    fn change(&mut self, fid: Fid, f: impl FnOnce(&mut Inode) -> Result<(), Errno>) -> Result<Entry, Errno> {
        self.count += 1;
        let sec = self.count as i64;
        let i = self.inode(fid)?;
        f(i)?;
        i.attr.version += 1;
        i.attr.ctime = Timestamp { sec, nsec: 0 };
        if i.is_small() {
            i.attr.size = i.data.len() as u64;
        }
        self.shown(fid)
    }

    fn create(&mut self, m: &Create) -> Result<CreateReply, Errno> {
        let found = self.named(m.parent, &m.name);
        if found.is_some() && m.exclusive {
            return Err(Errno::EEXIST);
        }
        let fid = found.map_or(m.fid, |f| f.1);
        if found.is_none() {
            self.add(fid, FileType::Regular, Some(Layout::on_mdt(64 << 10)));
            self.add_name(m.parent, &m.name, fid);
        }
        Ok(CreateReply { created: found.is_none(), entry: self.shown(fid)? })
    }

    fn lookup(&mut self, m: &Lookup) -> Result<LookupReply, Errno> {
        let found = self.named(m.parent, &m.name);
        let entry = found.map(|f| self.shown(f.1)).transpose()?;
        Ok(LookupReply { entry, dir_grant: self.grant(bits::LOOKUP, false) })
    }

    fn readdir(&mut self, m: &Readdir) -> Result<ReaddirReply, Errno> {
        let behind = (m.fid, m.cookie + 1)..=(m.fid, u64::MAX);
        let mut all: Vec<_> = self.names.range(behind).map(|(k, v)| (k.1, v.clone())).collect();
        let end = all.len() <= self.page;
        all.truncate(self.page);
        let mut entries = Vec::new();
        for (cookie, (name, fid)) in all {
            let entry = if m.plus { Some(self.shown(fid)?) } else { None };
            entries.push(Dirent { cookie, fid, kind: self.inode(fid)?.attr.kind, name, entry });
        }
        let (grant, grows_into) = (self.grant(bits::LOOKUP, false), Trailing(None));
        Ok(ReaddirReply { entries, parent: Fid::ROOT, end, grant, grows_into })
    }

    fn unlink(&mut self, m: &Unlink) -> Result<Changed, Errno> {
        let (cookie, fid) = self.named(m.parent, &m.name).ok_or(Errno::ENOENT)?;
        self.names.remove(&(m.parent, cookie));
        let file = self.change(fid, |i| {
            i.attr.nlink -= 1;
            Ok(())
        })?;
        Ok(Changed { entries: vec![self.change(m.parent, |_| Ok(()))?, file], gone: Vec::new() })
    }

    fn own(&mut self, m: &Own) -> Result<OwnReply, Errno> {
        let owned = self.owns;
        let grant = if owned { self.grant(bits::ALL, true) } else { None };
        let defaults = if owned { self.grant(bits::UPDATE, true) } else { None };
        let defaults = defaults.map(|g| Grant { exclusive: false, ..g });
        let dir = Entry { grant, ..self.shown(m.dir)? };
        Ok(OwnReply {
            dir,
            entries: Vec::new(),
            end: true,
            file_layout: None,
            defaults,
            limited: false.into(),
        })
    }

    fn fetch(&mut self, m: &Fetch) -> (FetchReply, Vec<u8>) {
        let (mut entries, mut bulk) = (Vec::new(), Vec::new());
        for fid in &m.fids {
            let found = self.shown_whole(*fid).ok();
            entries.push(found.map(|(e, data)| {
                bulk.extend(data);
                e
            }));
        }
        (FetchReply { entries }, bulk)
    }

    fn read(&mut self, m: &Read) -> Result<(ReadReply, Vec<u8>), Errno> {
        let i = self.inode(m.object.origin)?;
        i.room()?;
        let size = i.data.len();
        let from = (m.offset as usize).min(size);
        let part = i.data[from..(from + m.len as usize).min(size)].to_vec();
        let block_crcs = m.checksum.of_read(m.offset, &part, size as u64);
        Ok((ReadReply { len: part.len() as u32, object_size: size as u64, block_crcs }, part))
    }

    fn write(&mut self, m: &Write, data: &[u8]) -> Result<WriteReply, Errno> {
        let mut offset = m.offset;
        let e = self.change(m.file, |i| {
            if m.append {
                offset = i.data.len() as u64;
            }
            let end = offset + data.len() as u64;
            if end > i.room()? {
                return Err(Errno::EGROW);
            }
            i.data.resize(i.data.len().max(end as usize), 0);
            i.data[offset as usize..end as usize].copy_from_slice(data);
            Ok(())
        })?;
        Ok(WriteReply {
            offset,
            attr: ObjectAttr::default(),
            entry: Some(Box::new(e)),
            may_keep: Trailing(None),
        })
    }

    fn fallocate(&mut self, m: &Fallocate) -> Result<ObjectAttr, Errno> {
        let end = m.offset + m.len;
        self.change(m.file, |i| {
            if end > i.room()? {
                return Err(Errno::EGROW);
            }
            if m.mode & FALLOC_KEEP_SIZE == 0 {
                i.data.resize(i.data.len().max(end as usize), 0);
            }
            Ok(())
        })?;
        Ok(ObjectAttr::default())
    }

    /// Components that hold a byte of the range get an object, the n-th on OST n.
    fn instantiate(&mut self, m: &Instantiate) -> Result<Entry, Errno> {
        self.change(m.fid, |i| {
            let l = i.layout.as_mut().ok_or(Errno::ENODATA)?;
            while let Some(n) = l.uninstantiated(m.start, m.end) {
                l.instantiate(n, m.fid, ("", &[n as u16]));
                l.generation += 1;
            }
            Ok(())
        })
    }

    fn batch(&self, m: &Batch) -> BatchReply {
        let answer = |_| (0, wire::encode_message(&CloseReply { entry: None }));
        BatchReply { results: m.ops.iter().map(answer).collect(), grants: Vec::new() }
    }
}

impl Inode {
    fn is_small(&self) -> bool {
        self.attr.kind == FileType::Regular
            && self.layout.as_ref().is_none_or(|l| l.mdt_component().is_some())
    }

    /// Bytes that may lie with it. `ERELAYOUT` if none do.
    fn room(&self) -> Result<u64, Errno> {
        self.layout.as_ref().and_then(Layout::data_room).ok_or(Errno::ERELAYOUT)
    }

    fn set(&mut self, s: &SetAttr) -> Result<(), Errno> {
        let a = &mut self.attr;
        a.mode = s.mode.unwrap_or(a.mode);
        a.uid = s.uid.unwrap_or(a.uid);
        a.flags = s.flags.unwrap_or(a.flags);
        if let Some(SetTime::At(t)) = s.mtime {
            a.mtime = t;
        }
        if s.kill_suid_sgid {
            a.mode = perm::kill_suid_sgid(a.kind, a.mode);
            self.xattrs.remove(model::attr::XATTR_CAPABILITY);
        }
        if let Some(size) = s.size
            && self.is_small()
        {
            if self.room().is_ok_and(|room| size > room) {
                return Err(Errno::EGROW);
            }
            self.data.resize(size as usize, 0);
        }
        Ok(())
    }
}

/// See the module.
pub(crate) struct FakeMdt {
    script: Mutex<MdtState>,
    /// Where data goes that has no more room.
    osts: Vec<Arc<Fake<FakeOst>>>,
}

impl FakeMdt {
    pub fn new(osts: Vec<Arc<Fake<FakeOst>>>) -> FakeMdt {
        let mut state = MdtState { leases: true, page: usize::MAX, ..MdtState::default() };
        state.add(Fid::ROOT, FileType::Directory, None);
        FakeMdt { script: Mutex::new(state), osts }
    }

    pub fn script(&self) -> MutexGuard<'_, MdtState> {
        self.script.lock()
    }

    fn grow(&self, s: &mut MdtState, m: &Grow) -> Result<Entry, Errno> {
        s.change(m.fid, |i| {
            let Some(l) = i.grows_into.take() else { return Ok(()) };
            for e in l.extents(0, i.data.len() as u64) {
                let (from, to) = (e.file_offset as usize, (e.file_offset + e.len) as usize);
                let mut ost = self.osts[usize::from(e.object.ost)].script();
                ost.put(e.object.id, e.object_offset, &i.data[from..to]);
            }
            i.data.clear();
            i.layout = Some(l);
            Ok(())
        })
    }
}

fn with_bulk<R: serde::Serialize>(reply: &R, bulk: Vec<u8>) -> Outgoing {
    Outgoing { bulk: Bytes::from(bulk).into(), ..Outgoing::ok(reply, 0) }
}

fn looked<R: serde::Serialize>(r: Result<R, Errno>) -> Outgoing {
    r.map_or_else(Outgoing::err, |r| Outgoing::ok(&r, 0))
}

fn changed<R: serde::Serialize>(s: &mut MdtState, r: Result<R, Errno>) -> Outgoing {
    r.map_or_else(Outgoing::err, |r| Outgoing::ok(&r, s.transno()))
}

impl FakeMdt {
    /// What changes nothing.
    fn look(s: &mut MdtState, r: &Incoming) -> Outgoing {
        match r.op {
            Op::Getattr => looked(s.shown(message::<Getattr>(r).fid)),
            Op::Layout => looked(s.shown(message::<wire::msg::layout::Layout>(r).fid)),
            Op::Lookup => looked(s.lookup(&message(r))),
            Op::Readdir => looked(s.readdir(&message(r))),
            Op::Fetch => {
                let (reply, bulk) = s.fetch(&message(r));
                with_bulk(&reply, bulk)
            }
            Op::Read => s.read(&message(r)).map_or_else(Outgoing::err, |(reply, b)| with_bulk(&reply, b)),
            Op::Getxattr => {
                let m: Getxattr = message(r);
                let value = s.inode(m.fid).and_then(|i| i.xattrs.get(&m.name).cloned().ok_or(Errno::ENODATA));
                looked(value.map(|value| GetxattrReply { value }))
            }
            Op::Statfs => Outgoing::ok(&s.space, 0),
            Op::Sync | Op::Cancel => Outgoing::ok(&(), 0),
            Op::Enqueue => {
                let m: Enqueue = message(r);
                let granted = !s.waits;
                looked(if granted || m.wait { Ok(EnqueueReply { granted }) } else { Err(Errno::EAGAIN) })
            }
            _ => Outgoing::err(Errno::EOPNOTSUPP),
        }
    }

    fn change(&self, s: &mut MdtState, r: &Incoming) -> Outgoing {
        let done = match r.op {
            Op::Setattr => {
                let m: Setattr = message(r);
                s.change(m.fid, |i| {
                    if m.set.mtime.is_some() {
                        i.attr.mtime_stamp = r.ctx.client_time;
                    }
                    i.set(&m.set)
                })
            }
            Op::Setlayout => {
                let m: Setlayout = message(r);
                s.change(m.fid, |i| {
                    i.layout = Some(Layout::striped((m.fid, 1), 1, 64 << 10, "", &[0]));
                    Ok(())
                })
            }
            Op::Grow => self.grow(s, &message(r)),
            Op::Instantiate => s.instantiate(&message(r)),
            Op::Mkdir => {
                let m: Mkdir = message(r);
                s.add(m.fid, FileType::Directory, None);
                s.add_name(m.parent, &m.name, m.fid);
                s.shown(m.fid)
            }
            _ => return Self::look(s, r),
        };
        changed(s, done)
    }
}

impl Answers for FakeMdt {
    fn answer(&self, r: &Incoming) -> Outgoing {
        let s = &mut *self.script();
        match r.op {
            Op::Open => {
                let m: Open = message(r);
                match s.shown_whole(m.fid) {
                    Ok((e, data)) if m.data > 0 => with_bulk(&e, data),
                    Ok((e, _)) => Outgoing::ok(&Entry { content: None, ..e }, 0),
                    Err(e) => Outgoing::err(e),
                }
            }
            Op::Create => {
                let done = s.create(&message(r));
                changed(s, done)
            }
            Op::Write => {
                let done = s.write(&message(r), &r.bulk);
                changed(s, done)
            }
            Op::Fallocate => {
                let done = s.fallocate(&message(r));
                changed(s, done)
            }
            Op::Unlink => {
                let done = s.unlink(&message(r));
                changed(s, done)
            }
            Op::Removexattr => {
                let m: Removexattr = message(r);
                let done = s.change(m.fid, |i| i.xattrs.remove(&m.name).map(drop).ok_or(Errno::ENODATA));
                changed(s, done.map(drop))
            }
            Op::Close => Outgoing::ok(&CloseReply { entry: None }, s.transno()),
            Op::Own => looked(s.own(&message(r))),
            Op::Allocseq => {
                let seq = 0x2_0000_0400 + s.transno();
                Outgoing::ok(&AllocseqReply { seq, width: 1 << 17 }, s.transno())
            }
            Op::Batch => {
                let reply = s.batch(&message(r));
                Outgoing::ok(&reply, s.transno())
            }
            _ => self.change(s, r),
        }
    }

    fn notice(&self, n: Notice) {
        match n {
            Notice::Cancelled { items } => self.script().cancelled.extend(items),
            Notice::Opened { opens } => self.script().opened.extend(opens),
            _ => {}
        }
    }
}

//! The answers of an object target that keeps bytes in memory, grants every lock on all of an object, and
//! does as a test tells it.

use super::{Answers, message};
use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use model::{Errno, ObjectAttr, ObjectId, Timestamp};
use rpc::{Incoming, Outgoing};
use std::collections::BTreeMap;
use wire::Op;
use wire::checksum::sums_of_ranges;
use wire::msg::extent::{Extent, ExtentAnswer, ExtentReply};
use wire::msg::fallocate::{FALLOC_PUNCH_HOLE, Fallocate};
use wire::msg::glimpse::{Glimpse, GlimpseReply};
use wire::msg::glimpselist::{Glimpsed, Glimpselist, GlimpselistReply};
use wire::msg::grant::{Grant, GrantReply};
use wire::msg::notify::Notice;
use wire::msg::read::{Read, ReadReply};
use wire::msg::seek::{Seek, SeekReply, Whence};
use wire::msg::statfs::StatfsReply;
use wire::msg::truncate::Truncate;
use wire::msg::write::{Write, WriteReply};
use wire::msg::writelist::{WriteRange, Writelist};
use wire::trailing::Trailing;

/// What the server was sent, and how it is to answer.
#[derive(Default)]
pub(crate) struct OstState {
    /// What it has. Zeros are holes to those who seek.
    objects: BTreeMap<ObjectId, Vec<u8>>,
    /// (offset, length, durable) of each write that was executed or refused with `write_error`.
    pub writes: Vec<(u64, usize, bool)>,
    pub reads: usize,
    /// For which user the last of them was.
    pub reader: u32,
    pub locks: Vec<u64>,
    /// Writes, truncate, fallocate and seek under these are refused.
    pub forgotten_locks: Vec<u64>,
    pub released: Vec<u64>,
    /// Of layouts, as requests for data carried them.
    pub generations: Vec<u32>,
    /// Of the next writes.
    pub write_error: Option<Errno>,
    /// So many of the next writes, and reads, have a byte changed on their way.
    pub damaged_writes: usize,
    pub damaged_reads: usize,
    pub contended: bool,
    /// Of an object that others may have changed in their caches.
    pub kept_elsewhere: Option<ObjectId>,
    /// A server of a version that does not know lists of glimpses.
    pub is_older: bool,
    /// Locks are granted up to here, and not to the end of everything.
    pub granted_to: Option<u64>,
    /// Who asks for a lock has to wait.
    pub waits: bool,
    /// No grant beyond this.
    pub grant: u64,
    /// Somebody is limited there: so many bytes may be kept for anybody.
    pub may_keep: Option<u64>,
    /// Requests by older layouts are refused with `ERELAYOUT`.
    pub oldest_generation: u32,
    /// When objects were written last, as they show it.
    pub ctime: Timestamp,
    pub space: StatfsReply,
}

impl OstState {
    /// What it has of an object: nothing, if nobody wrote there.
    pub fn bytes(&mut self, id: ObjectId) -> &mut Vec<u8> {
        self.objects.entry(id).or_default()
    }

    fn attr(&mut self, id: ObjectId) -> ObjectAttr {
        let (size, ctime) = (self.bytes(id).len() as u64, self.ctime);
        ObjectAttr { size, ctime, mtime: ctime, ..ObjectAttr::default() }
    }

    pub fn put(&mut self, id: ObjectId, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        let bytes = self.bytes(id);
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(data);
    }
}

/// See the module.
pub(crate) struct FakeOst {
    script: Mutex<OstState>,
}

impl FakeOst {
    pub fn new() -> FakeOst {
        FakeOst { script: Mutex::new(OstState { grant: 1 << 30, ..OstState::default() }) }
    }

    pub fn script(&self) -> MutexGuard<'_, OstState> {
        self.script.lock()
    }

    fn extent(s: &mut OstState, m: &Extent) -> Outgoing {
        let answer = if s.contended && !m.force {
            ExtentAnswer::Contended
        } else if s.waits {
            ExtentAnswer::Waits
        } else {
            s.locks.push(m.lock.id);
            let end = s.granted_to.unwrap_or(u64::MAX);
            ExtentAnswer::Granted { start: 0, end, attr: s.attr(m.lock.object) }
        };
        Outgoing::ok(&ExtentReply { answer }, 0)
    }

    /// As a server does: what differs from its sums, or relies on a lock that is gone, is not written.
    fn write(s: &mut OstState, r: &Incoming, m: &Write, ranges: &[WriteRange]) -> Outgoing {
        if s.forgotten_locks.contains(&m.lock) {
            return Outgoing::err(Errno::ENOLCK);
        }
        let mut data = r.bulk.to_vec();
        if s.damaged_writes > 0 {
            s.damaged_writes -= 1;
            data[0] ^= 1;
        }
        let mut parts = Vec::new();
        let mut rest = &data[..];
        for (w, sums) in ranges.iter().zip(sums_of_ranges(&m.block_crcs, ranges)) {
            let (part, behind) = rest.split_at(w.len as usize);
            if m.checksum.differs_in_write(w.offset, part, sums).is_some() {
                return Outgoing::err(Errno::EBADMSG);
            }
            parts.push((w.offset, part));
            rest = behind;
        }
        assert!(rest.is_empty(), "the ranges are all of the data");
        for (offset, part) in &parts {
            s.writes.push((*offset, part.len(), r.durable));
        }
        if let Some(e) = s.write_error {
            return Outgoing::err(e);
        }
        parts.iter().for_each(|(offset, part)| s.put(m.object, *offset, part));
        let offset = ranges.last().expect("a write has a range").offset;
        let transno = 1 << 40 | s.writes.len() as u64;
        Outgoing::ok(
            &WriteReply { offset, attr: s.attr(m.object), entry: None, may_keep: Trailing(s.may_keep) },
            transno,
        )
    }

    fn read(s: &mut OstState, m: &Read) -> Outgoing {
        s.reads += 1;
        let damaged = s.damaged_reads > 0;
        s.damaged_reads -= usize::from(damaged);
        let bytes = s.bytes(m.object);
        let size = bytes.len();
        let from = (m.offset as usize).min(size);
        let to = (m.offset as usize + m.len as usize).min(size);
        let mut part = bytes[from..to].to_vec();
        let block_crcs = m.checksum.of_read(m.offset, &part, size as u64);
        if damaged {
            part[0] ^= 1;
        }
        let reply = ReadReply { len: part.len() as u32, object_size: size as u64, block_crcs };
        Outgoing { bulk: Bytes::from(part).into(), ..Outgoing::ok(&reply, 0) }
    }

    fn fallocate(s: &mut OstState, m: &Fallocate) -> Outgoing {
        let (from, to) = (m.offset as usize, (m.offset + m.len) as usize);
        let bytes = s.bytes(m.object);
        if m.mode & FALLOC_PUNCH_HOLE == 0 {
            bytes.resize(bytes.len().max(to), 0);
        } else {
            let len = bytes.len();
            bytes[from.min(len)..to.min(len)].fill(0);
        }
        Outgoing::ok(&s.attr(m.object), 1 << 40 | 1)
    }

    fn seek(s: &mut OstState, m: &Seek) -> Outgoing {
        let (bytes, from) = (s.bytes(m.object), m.offset as usize);
        let is_hole = m.whence == Whence::Hole;
        let found = (from..bytes.len()).find(|i| (bytes[*i] == 0) == is_hole);
        let found = found.or((is_hole && from <= bytes.len()).then_some(bytes.len()));
        let reply = SeekReply { offset: found.map(|at| at as u64), object_size: bytes.len() as u64 };
        Outgoing::ok(&reply, 0)
    }
}

impl Answers for FakeOst {
    fn answer(&self, r: &Incoming) -> Outgoing {
        let mut s = self.script();
        if !matches!(r.op, Op::Grant | Op::Statfs | Op::Sync | Op::Glimpselist) {
            s.generations.push(r.ctx.layout_generation);
            if r.ctx.layout_generation < s.oldest_generation {
                return Outgoing::err(Errno::ERELAYOUT);
            }
        }
        let forgotten = |s: &OstState, lock| s.forgotten_locks.contains(&lock);
        match r.op {
            Op::Extent => Self::extent(&mut s, &message(r)),
            Op::Write => {
                let m: Write = message(r);
                let all = WriteRange { offset: m.offset, len: r.bulk.len() as u32 };
                Self::write(&mut s, r, &m, &[all])
            }
            Op::Writelist => {
                let m: Writelist = message(r);
                Self::write(&mut s, r, &m.write, &m.ranges)
            }
            Op::Read => {
                s.reader = r.ctx.cred.uid;
                Self::read(&mut s, &message(r))
            }
            Op::Grant => {
                let m: Grant = message(r);
                let have = m.want.min(s.grant).max(m.have.min(s.grant));
                Outgoing::ok(&GrantReply { have, limits: s.may_keep.is_some().into() }, 0)
            }
            Op::Glimpse => {
                let m: Glimpse = message(r);
                let attrs = m.objects.iter().map(|id| s.attr(*id)).collect();
                Outgoing::ok(&GlimpseReply { attrs }, 0)
            }
            Op::Glimpselist if !s.is_older => {
                let m: Glimpselist = message(r);
                let of = |(id, generation): &(ObjectId, u32)| match *generation < s.oldest_generation {
                    true => Glimpsed::Failed(Errno::ERELAYOUT),
                    false if s.kept_elsewhere == Some(*id) => Glimpsed::Locked,
                    false => Glimpsed::Attr(s.attr(*id)),
                };
                Outgoing::ok(&GlimpselistReply { objects: m.objects.iter().map(of).collect() }, 0)
            }
            Op::Truncate if forgotten(&s, message::<Truncate>(r).lock) => Outgoing::err(Errno::ENOLCK),
            Op::Fallocate if forgotten(&s, message::<Fallocate>(r).lock) => Outgoing::err(Errno::ENOLCK),
            Op::Seek if forgotten(&s, message::<Seek>(r).lock) => Outgoing::err(Errno::ENOLCK),
            Op::Truncate => {
                let m: Truncate = message(r);
                s.bytes(m.object).resize(m.size as usize, 0);
                Outgoing::ok(&s.attr(m.object), 1 << 40 | 1)
            }
            Op::Fallocate => Self::fallocate(&mut s, &message(r)),
            Op::Seek => Self::seek(&mut s, &message(r)),
            Op::Statfs => Outgoing::ok(&s.space, 0),
            Op::Sync => Outgoing::ok(&(), 0),
            _ => Outgoing::err(Errno::EOPNOTSUPP),
        }
    }

    fn notice(&self, n: Notice) {
        if let Notice::Released { locks } = n {
            self.script().released.extend(locks.iter().map(|l| l.1));
        }
    }

    fn departed(&self) {
        let mut s = self.script();
        let gone = std::mem::take(&mut s.locks);
        s.forgotten_locks.extend(gone);
    }
}

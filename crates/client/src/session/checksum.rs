//! Checksums of data between this mount and the OSTs: made here when data is sent, compared here when it
//! comes. A difference on the wire is counted and the request sent again, a few times; damage that the OST
//! found on its disk is the caller's EIO, and named here with its file.

use super::Target;
use crate::R;
use model::{Errno, Fid, limits};
use rpc::{Response, Terms};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use wire::checksum::ChecksumType;
use wire::msg::read::{Read, ReadReply};
use wire::msg::write::{Write, WriteReply};
use wire::msg::writelist::{WriteRange, Writelist};
use wire::{Bulk, Message, RequestContext};

/// `osc.*.checksums`, `osc.*.checksum_type` and what was found with them.
pub(crate) struct Checksums {
    off: AtomicBool,
    /// Index into [`ChecksumType::ALL`].
    kind: AtomicU8,
    /// Differences on the wire, each of which made a request go again.
    pub errors: AtomicU64,
}

impl Checksums {
    pub(crate) fn new() -> Checksums {
        let c = Checksums { off: AtomicBool::new(false), kind: AtomicU8::new(0), errors: AtomicU64::new(0) };
        assert!(c.set_kind(ChecksumType::Crc32c.name()), "it can be chosen");
        c
    }

    /// What the next request uses.
    pub(crate) fn used(&self) -> ChecksumType {
        if self.off.load(Relaxed) { ChecksumType::None } else { self.kind() }
    }

    fn kind(&self) -> ChecksumType {
        ChecksumType::ALL[usize::from(self.kind.load(Relaxed))]
    }

    pub(crate) fn on(&self) -> bool {
        !self.off.load(Relaxed)
    }

    pub(crate) fn set_on(&self, on: bool) {
        self.off.store(!on, Relaxed);
    }

    /// All types, the chosen one in brackets.
    pub(crate) fn kinds_text(&self) -> String {
        let chosen = self.kind();
        let name =
            |t: ChecksumType| if t == chosen { format!("[{}]", t.name()) } else { t.name().to_string() };
        ChecksumType::ALL.map(name).join(" ")
    }

    /// Whether `checksum_type` can be that.
    pub(crate) fn is_kind(name: &str) -> R<()> {
        ChecksumType::parse(name).map(drop).ok_or(Errno::EINVAL)
    }

    /// False if there is no such type.
    pub(crate) fn set_kind(&self, name: &str) -> bool {
        let Some(t) = ChecksumType::parse(name) else { return false };
        let i = ChecksumType::ALL.iter().position(|x| *x == t).expect("parsed from these");
        self.kind.store(i as u8, Relaxed);
        true
    }
}

impl Target {
    /// Sends a write with the checksums of its data (`m.block_crcs` and `m.checksum` are filled here), or one
    /// of several ranges, each with its offset, in order. Pieces of a range meet at block boundaries.
    /// `durable`: as [`Target::send`], for a write under a lock.
    pub(crate) async fn send_summed(
        &self,
        mut ctx: RequestContext,
        mut m: Write,
        runs: Vec<(u64, Bulk)>,
        durable: bool,
    ) -> R<Response<WriteReply>> {
        m.checksum = self.checksums.used();
        for (offset, data) in &runs {
            let mut at = if m.append { 0 } else { *offset };
            for part in data.parts() {
                m.block_crcs.extend(m.checksum.of_write(at, part));
                at += part.len() as u64;
            }
        }
        let of = |(offset, data): &(u64, Bulk)| WriteRange { offset: *offset, len: data.len() as u32 };
        let ranges: Vec<WriteRange> = runs.iter().map(of).collect();
        let data = Bulk::of_parts(runs.iter().flat_map(|(_, data)| data.parts()).cloned());
        let data = data.summed(m.checksum != ChecksumType::None);
        for again in 0.. {
            let sent = if ranges.len() > 1 {
                let list = Writelist { write: m.clone(), ranges: ranges.clone() };
                data_call(self, m.lock, ctx.clone(), list, data.clone(), durable).await
            } else {
                data_call(self, m.lock, ctx.clone(), m.clone(), data.clone(), durable).await
            };
            match sent {
                Err(Errno::EBADMSG) => self.damaged_on_the_way("write", m.file, m.offset, again)?,
                // It may not have heard that a maintenance is over. Bytes that were taken are not to be lost
                // for that.
                Err(Errno::EROFS) if self.cx.hold.tell() => {
                    ctx = ctx.maintained_by(self.cx.hold.told_version().unwrap_or(0));
                }
                other => {
                    if matches!(other, Err(Errno::EIO)) {
                        self.io_error("write", m.file, m.offset, data.len());
                    }
                    return other;
                }
            }
        }
        unreachable!("the loop ends with an answer or an error")
    }

    /// Reads and compares (`m.checksum` is filled here). `fid`: the file, for messages.
    pub(crate) async fn fetch_summed(
        &self,
        ctx: RequestContext,
        fid: Fid,
        mut m: Read,
    ) -> R<Response<ReadReply>> {
        m.checksum = self.checksums.used();
        for again in 0.. {
            let sent = data_call(self, m.lock, ctx.clone(), m.clone(), Bulk::default(), false).await;
            let r = sent.inspect_err(|e| {
                if *e == Errno::EIO {
                    self.io_error("read", fid, m.offset, m.len as usize);
                }
            })?;
            let size = r.reply.object_size;
            match m.checksum.differs_in_read(m.offset, &r.bulk, size, &r.reply.block_crcs) {
                None => return Ok(r),
                Some(at) => self.damaged_on_the_way("read", fid, at, again)?,
            }
        }
        unreachable!("the loop ends with an answer or an error")
    }

    fn damaged_on_the_way(&self, what: &str, fid: Fid, at: u64, again: u32) -> R<()> {
        self.checksums.errors.fetch_add(1, Relaxed);
        model::event!(
            WARN,
            ChangedOnTheWay,
            self.id,
            "{}: {what} of file {fid} at object offset {at}: the data changed on the way",
            self.id
        );
        if again < limits::DAMAGED_RESENDS_MAX {
            return Ok(());
        }
        tracing::error!(
            "{}: {what} of file {fid} at object offset {at}: the data changed on the way {} times: given up",
            self.id,
            again + 1
        );
        Err(Errno::EIO)
    }

    fn io_error(&self, what: &str, fid: Fid, at: u64, len: usize) {
        model::event!(
            ERROR,
            BlockDamaged,
            self.id,
            "{}: {what} of file {fid}, {len} bytes at object offset {at}: EIO; the OST's log says why, `lfs fid2path` which \
             file it is",
            self.id
        );
    }
}

/// Under a lock of this mount's a request never waits for locks, and its sender has a turn of its own.
async fn data_call<M: Message>(
    ost: &Target,
    lock: u64,
    ctx: RequestContext,
    m: M,
    data: Bulk,
    durable: bool,
) -> R<Response<M::Reply>> {
    if lock == 0 {
        ost.call_bulk(ctx, m, data).await
    } else {
        ost.send(ctx, m, data, Terms { durable, waited_for: true, ..Terms::default() }).await
    }
}

//! One file for each message an OST answers: `VERB.rs`, the same names as in `wire/src/msg`.

// Numbers from outside: nothing here may overflow or go past an end (decision 0039).
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod batch;
mod destroy;
mod extent;
mod fallocate;
mod fence;
mod glimpse;
mod glimpselist;
mod grant;
mod objectlist;
mod param;
mod quotactl;
mod quotashare;
mod read;
mod reclaim;
mod seek;
mod setowner;
mod statfs;
mod sync;
mod truncate;
mod write;
mod writelist;

use crate::locks::ServerLock;
use crate::service::Ost;
use crate::shares::ShareUse;
use crate::slot::Slot;
use bytes::Bytes;
use model::nodemap::{Nodemap, Owner};
use model::planted::{self, Bug};
use model::{Errno, Fid, ObjectAttr, ObjectId, Timestamp, limits};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;
use store::object::ObjectMeta;
use store::{Lsn, Seen};
use wire::context::LimitsKnown;
use wire::trailing::Trailing;
use wire::verb::BulkSide;
use wire::{Bulk, Op, RequestContext, decode_message, decode_request, encode_message};

/// How far a client's clock may be behind and ahead of the server's before its stamps are changed.
const CLOCK_BEHIND_MAX_NS: i64 = 3600 * 1_000_000_000;
const CLOCK_AHEAD_MAX_NS: i64 = 1_000_000_000;

/// What an operation knows besides its message.
#[derive(Clone)]
pub struct Cx {
    pub ost: Arc<Ost>,
    /// With its sender mapped.
    pub ctx: Arc<RequestContext>,
    /// Whom the sender's users are here: others whom the message names pass it.
    pub map: Nodemap,
    pub slot: Slot,
    /// The server's clock; of a replayed request, as it was the first time.
    pub wall: Timestamp,
    /// The request is done again after a restart: what it came to the first time.
    pub replay: Option<Bytes>,
}

/// What an operation did.
#[derive(Default)]
pub struct Done {
    /// The encoded reply.
    pub body: Vec<u8>,
    pub bulk: Bulk,
    /// The transaction of the change; its answer waits for it.
    pub changed: Option<Lsn>,
    /// What the answer of a look depends on.
    pub seen: Seen,
    /// Everything up to here must be durable before the answer, whatever `ack` says.
    pub durable: Lsn,
    /// Data moved, for the counters.
    pub bytes: u64,
}

impl Done {
    fn looked<R: Serialize>(reply: &R, seen: Seen) -> Done {
        Done { body: encode_message(reply), seen, ..Done::default() }
    }

    fn changed<R: Serialize>(reply: &R, lsn: Lsn) -> Done {
        assert!(lsn > 0, "a change has a transaction");
        Done { body: encode_message(reply), changed: Some(lsn), ..Done::default() }
    }
}

/// Executes one message. `ENOSYS` for those that are not an OST's.
pub async fn run(cx: &Cx, op: Op, body: &[u8], bulk: Bytes) -> Result<Done, Errno> {
    match op {
        Op::Batch if bulk.is_empty() => batch::run(cx, decode_request(body)?).await,
        _ => run_single(cx, op, body, bulk).await,
    }
}

/// Executes a message that is no batch.
async fn run_single(cx: &Cx, op: Op, body: &[u8], bulk: Bytes) -> Result<Done, Errno> {
    if op.verb().bulk != BulkSide::Request && !bulk.is_empty() {
        return Err(Errno::EPROTO);
    }
    match op {
        Op::Read => read::run(cx, decode_request(body)?).await,
        Op::Write => write::run(cx, decode_request(body)?, bulk).await,
        Op::Writelist => writelist::run(cx, decode_request(body)?, bulk).await,
        Op::Truncate => truncate::run(cx, decode_request(body)?).await,
        Op::Fallocate => fallocate::run(cx, decode_request(body)?).await,
        Op::Seek => seek::run(cx, &decode_request(body)?).await,
        Op::Glimpse => glimpse::run(cx, &decode_request(body)?).await,
        Op::Glimpselist => glimpselist::run(cx, &decode_request(body)?).await,
        Op::Extent => extent::run(cx, &decode_request(body)?),
        Op::Grant => grant::run(cx, &decode_request(body)?),
        Op::Destroy => destroy::run(cx, decode_request(body)?).await,
        Op::Fence => fence::run(cx, decode_request(body)?).await,
        Op::Setowner => setowner::run(cx, decode_request(body)?).await,
        Op::Reclaim => reclaim::run(cx, &decode_request(body)?),
        Op::Sync => sync::run(cx, &decode_request(body)?),
        Op::Statfs => statfs::run(cx, &decode_request(body)?),
        Op::Quotactl => quotactl::run(cx, decode_request(body)?).await,
        Op::Quotashare => quotashare::run(cx, decode_request(body)?).await,
        Op::Objectlist => objectlist::run(cx, &decode_request(body)?),
        Op::GetParam => param::get(cx, &decode_request(body)?),
        Op::SetParam => param::set(cx, &decode_request(body)?),
        _ => Err(Errno::ENOSYS),
    }
}

/// The last byte of `len` from `offset` on; of nothing: `offset` itself.
fn last_byte(offset: u64, len: u64) -> u64 {
    offset.saturating_add(len.saturating_sub(1))
}

/// The attributes to answer with, and to store, for a request that was answered with `first` before: whether
/// blocks were allocated the same way again is nobody's business, not even after one more restart.
fn same_blocks(
    first: Option<&ObjectAttr>,
) -> impl Fn(&ObjectAttr) -> ObjectAttr + Copy + Send + Sync + 'static + use<> {
    let blocks = first.map(|a| a.blocks);
    move |now| ObjectAttr { blocks: blocks.unwrap_or(now.blocks), ..*now }
}

impl Cx {
    /// When a change happens: the client's time as far as it is credible, and later than the inode's ctime.
    fn stamp(&self, inode_ctime: Timestamp) -> Timestamp {
        let now = self.wall;
        let client = self.ctx.client_time;
        let (low, high) = (now.plus_nanos(-CLOCK_BEHIND_MAX_NS), now.plus_nanos(CLOCK_AHEAD_MAX_NS));
        let credible = if client == Timestamp::ZERO { now } else { client.clamp(low, high) };
        Timestamp::from_nanos(credible.as_nanos()).max(inode_ctime.plus_nanos(1))
    }

    /// What the newest transaction of something means to this client.
    fn seen(&self, lsn: Lsn) -> Seen {
        self.ost.db.seen(lsn, &self.slot.author)
    }

    /// The right to work on `range` (both ends are in it), as `Locks::guard` gives it. What is done again
    /// after a restart waits for nobody: its client gives nothing back before it is through. `ERELAYOUT` if
    /// the request is by an older layout than the object's.
    async fn guard(
        &self,
        object: ObjectId,
        lock: u64,
        write: bool,
        range: (u64, u64),
    ) -> Result<Option<ServerLock>, Errno> {
        let client = self.slot.client;
        let held = if self.replay.is_some() {
            self.ost.locks.guard_replayed(client, object, lock, write, range)?
        } else {
            self.ost.locks.guard(client, object, lock, write, range).await?
        };
        // No fence comes between a request and the lock that it holds.
        if held.is_some() || lock == 0 {
            self.check_generation(self.ost.objects.generation(object).map_err(|e| e.errno())?)?;
        }
        Ok(held)
    }

    /// `ERELAYOUT` for a request by an older layout than the object's.
    fn check_generation(&self, generation: u32) -> Result<(), Errno> {
        if is_old(self.ctx.layout_generation, generation) { Err(Errno::ERELAYOUT) } else { Ok(()) }
    }

    /// What an object is like, as [`Cx::check_generation`]. `ESTALE` if it was destroyed.
    fn attr(&self, object: ObjectId) -> Result<(ObjectAttr, store::Lsn), Errno> {
        let (attr, generation, lsn) = self.ost.objects.attr_of_layout(object).map_err(|e| e.errno())?;
        self.check_generation(generation)?;
        Ok((attr, lsn))
    }

    /// The reply of the first time, if this request is done again and its client knows it.
    fn first_reply<R: DeserializeOwned>(&self) -> Option<R> {
        self.replay.as_ref().and_then(|r| decode_message(r).ok())
    }

    /// As [`same_blocks`], for requests that are answered with attributes alone.
    fn same_attr(&self) -> impl Fn(&ObjectAttr) -> ObjectAttr + Copy + Send + Sync + 'static + use<> {
        same_blocks(self.first_reply().as_ref())
    }

    /// For whom a change is made: the file's owner if the sender names him, else the caller.
    fn meta(&self, file: Fid, time: Option<Timestamp>) -> ObjectMeta {
        let named = self.ctx.file_owner();
        let caller = Owner::new(self.ctx.cred.uid, self.ctx.cred.gid, self.ctx.projid);
        let caller = Owner { directory: self.ctx.directory(), ..caller };
        ObjectMeta {
            file,
            owner: named.map_or(caller, |n| self.map.owner(n.owner)),
            owner_as_of: named.map(|n| n.as_of),
            time,
            data_version: None,
            label: self.ctx.object_label().map(<[u8]>::to_vec),
        }
    }
}

impl Cx {
    /// Admits so many new bytes for an owner ([`crate::shares`]). `EDQUOT` in the place of `ESHARE` to who
    /// does not know that. `kept`: the data was accepted by the client that kept it.
    async fn within_share(
        &self,
        object: ObjectId,
        owner: Owner,
        bytes: u64,
        kept: bool,
    ) -> Result<Option<ShareUse>, Errno> {
        let ost = &self.ost;
        let known = self.ctx.limits_known();
        let exempt = known == Some(LimitsKnown::Exempt) && self.ctx.cred.is_root();
        let refuses = !kept && !exempt && self.replay.is_none();
        match ost.shares.admit(&ost.objects, object, owner, bytes, refuses).await {
            Err(Errno::ESHARE) if known.is_none() => Err(Errno::EDQUOT),
            admitted => admitted,
        }
    }

    /// What an object is like, whatever its layout. `ESTALE` if it was destroyed.
    fn attr_now(&self, object: ObjectId) -> Result<ObjectAttr, Errno> {
        self.ost.objects.attr(object).map(|(attr, _)| attr).map_err(|e| e.errno())
    }

    /// Bytes that the sender may keep for an owner.
    fn may_keep(&self, owner: Owner) -> Trailing<u64> {
        let ost = &self.ost;
        Trailing(ost.shares.may_keep(ost.objects.usage(), owner, ost.clients.len()))
    }
}

impl Cx {
    /// `ELOST` for an object that lay on the target that this one replaced.
    fn check_not_lost(&self, id: ObjectId) -> Result<(), Errno> {
        if self.ost.is_lost(id)? { Err(Errno::ELOST) } else { Ok(()) }
    }
}

/// Whether what is asked by the layout of one generation is refused, for the object is of a newer one.
fn is_old(asked_by: u32, generation: u32) -> bool {
    asked_by < generation && !planted::on(Bug::OldGenerationAccepted)
}

/// `EINVAL` for an object of no file.
fn check_object(id: ObjectId) -> Result<(), Errno> {
    if id.origin == Fid::NONE { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Where `len` bytes from `offset` on end; `EFBIG` if that is beyond the largest file.
fn check_range(offset: u64, len: u64) -> Result<u64, Errno> {
    offset.checked_add(len).filter(|end| *end <= limits::FILE_SIZE_MAX_BYTES).ok_or(Errno::EFBIG)
}

//! Brings the bytes of a file to its new objects, durably.
//!
//! Of a file with objects most is copied while it is in use, so that its users wait for a moment only: what
//! they changed meanwhile shows in the versions of the old objects once those are fenced, and then all of it
//! is copied again, while they wait.

use super::movements::{self, Movement};
use super::to_inode::FileData;
use super::{Attempt, Copied, Source, last_times, of_owner, session};
use crate::mdt::Mdt;
use bytes::Bytes;
use model::layout::{LayoutObject, ObjectLabel};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use model::{Cred, Errno, Fid, Layout, ObjectAttr, Timestamp};
use rpc::{Import, Terms};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::checksum::ChecksumType;
use wire::context::LimitsKnown;
use wire::msg::fence::Fence;
use wire::msg::glimpse::Glimpse;
use wire::msg::read::Read;
use wire::msg::seek::{Seek, Whence};
use wire::msg::sync::Sync;
use wire::msg::truncate::Truncate;
use wire::msg::write::Write;
use wire::{Message, RequestContext};
use world::future::join_all;
use world::{Either, select};

pub(super) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Bytes that one message moves from an object to others.
const PIECE_BYTES: u64 = 1 << 20;
/// A piece without a byte that is not zero is a hole at the new place.
const HOLE_BYTES: usize = 4096;

/// How long the fences of a file may wait for those who have locks. A page that waits for the end of the
/// attempt may be what a lock on another object waits for (`client/src/pages/fill.rs`), so this is shorter
/// than the patience of object servers.
const FENCE_PATIENCE: Duration = Duration::from_secs(5);
/// What each object adds to it: a fence is durable before it is answered, and a wide file has thousands.
const FENCE_OF_ONE: Duration = Duration::from_millis(5);

/// How long those who have locks on so many objects may take to let go of them.
pub(super) fn fence_patience(objects: usize) -> Duration {
    FENCE_PATIENCE + FENCE_OF_ONE.saturating_mul(u32::try_from(objects).unwrap_or(u32::MAX))
}

/// Requests of the file's users wait for a copy, and a copy waits for no client. A fence does, and so does
/// what is copied before: where servers have memory only for what others wait for, they must not take that of
/// the writes which they wait for (seed 248).
const WAITED_FOR: Terms = Terms { durable: false, life: None, waited_for: true };
/// Files of at least so many bytes are copied before their objects are fenced.
const AHEAD_MIN_BYTES: u64 = 64 << 10;
/// Pieces of one object that are on their way at a time.
const PIECES_AT_ONCE: usize = 4;
/// Objects of one file that are copied at a time. With the pieces of each this bounds what a movement has in
/// memory, however wide the file is.
const OBJECTS_AT_ONCE: usize = 16;

/// `progress` grows with what is done.
pub(super) async fn copy(
    mdt: &Arc<Mdt>,
    fid: Fid,
    a: &Attempt,
    progress: &AtomicU64,
) -> Result<Copied, Errno> {
    let copier = Copier { mdt, fid, a, progress, terms: WAITED_FOR };
    let nothing = Copied { newest: Timestamp::ZERO, to_inode: None };
    match &a.source {
        Source::Dropped { old, .. } => return copier.let_go(old).await.map(|()| nothing),
        Source::Room => return Ok(nothing),
        Source::Inode(_) | Source::Objects(_) => {}
    }
    // An object server that restarts before all is durable may have lost what it answered.
    let before = copier.epochs()?;
    let copied = match &a.source {
        Source::Inode(runs) => Copied { newest: copier.copy_from_inode(runs).await?, ..nothing },
        Source::Objects(old) if a.target.has_objects() => {
            Copied { newest: copier.copy_from_objects(old).await?, ..nothing }
        }
        Source::Objects(old) => Copied { to_inode: Some(copier.copy_to_inode(old).await?), ..nothing },
        Source::Dropped { .. } | Source::Room => unreachable!("looked at above"),
    };
    if copier.epochs()? != before {
        return Err(Errno::ETIMEDOUT);
    }
    Ok(copied)
}

#[derive(Clone, Copy)]
struct Copier<'a> {
    mdt: &'a Arc<Mdt>,
    fid: Fid,
    a: &'a Attempt,
    progress: &'a AtomicU64,
    terms: Terms,
}

/// What was copied while the file was in use.
struct Ahead {
    /// Of each old object, before.
    versions: Vec<u64>,
    /// Of each new object where it ends; `None`: the file was changed on the way.
    ends: Option<Vec<u64>>,
}

impl Copier<'_> {
    fn epochs(&self) -> Result<Vec<u32>, Errno> {
        let old = match &self.a.source {
            Source::Inode(_) | Source::Room | Source::Dropped { .. } => None,
            Source::Objects(old) => Some(old),
        };
        let objects = self.target().objects().chain(old.into_iter().flat_map(Layout::objects));
        objects.map(|o| session(self.mdt, o).map(|s| Import::epoch(&s))).collect()
    }

    fn target(&self) -> &Layout {
        &self.a.target
    }

    /// `EBUSY` if the file became so large that the new layout has no objects for its end: the next attempt
    /// knows it as it is then.
    fn check_target(&self, start: u64, end: u64) -> Result<(), Errno> {
        match self.target().check_range(start, end) {
            Err(Errno::EUNINIT) => Err(Errno::EBUSY),
            r => r,
        }
    }

    /// By the new layout, for the file's owner.
    async fn call<M: Message>(
        &self,
        o: &LayoutObject,
        msg: M,
        bulk: Bytes,
    ) -> Result<(M::Reply, Bytes), Errno> {
        let ctx = of_owner(&self.a.inode, self.a.target.generation);
        self.call_as(self.labelled(ctx, o), o, msg, bulk).await
    }

    /// The object remembers what it is part of, as clients have it remember that.
    fn labelled(&self, ctx: RequestContext, o: &LayoutObject) -> RequestContext {
        let l = self.target();
        let part = l.components.iter().find(|c| c.objects.contains(o));
        ctx.labelled(part.and_then(|c| ObjectLabel::encoded_of(l, c)).as_deref())
    }

    async fn call_as<M: Message>(
        &self,
        ctx: RequestContext,
        o: &LayoutObject,
        msg: M,
        bulk: Bytes,
    ) -> Result<(M::Reply, Bytes), Errno> {
        let r = session(self.mdt, o)?.call_with(ctx, msg, bulk, self.terms).await?;
        self.progress.fetch_add(1, Ordering::Relaxed);
        Ok((r.reply, r.bulk))
    }

    fn movement(&self) -> Option<&Movement> {
        self.a.movement.as_deref()
    }

    /// Users of the file are not to wait for a copy of it.
    fn is_non_block(&self) -> bool {
        self.movement().is_some_and(Movement::is_non_block)
    }

    fn copied(&self, bytes: u64) {
        if let Some(m) = self.movement() {
            m.copied(bytes);
        }
    }

    fn ended(&self) -> Result<(), Errno> {
        self.movement().map_or(Ok(()), Movement::check)
    }

    /// Waits until `bytes` more may be copied: not while users of the file wait for it.
    async fn pace(&self, bytes: u64) -> Result<(), Errno> {
        let progress = || {
            self.progress.fetch_add(1, Ordering::Relaxed);
        };
        match self.movement() {
            Some(m) if !self.terms.waited_for => movements::pace(self.mdt, m, bytes, progress).await,
            _ => self.ended(),
        }
    }

    /// As this one, for what waits for clients.
    fn patient(&self) -> Self {
        Copier { terms: Terms::default(), ..*self }
    }

    /// Writes bytes of the file to its new objects: of each that it wrote to (number, attributes).
    async fn write(&self, off: u64, bytes: &Bytes) -> Result<Vec<(usize, ObjectAttr)>, Errno> {
        let i = &self.a.inode;
        // No limit holds what somebody has already.
        let as_root = RequestContext { cred: Cred::root(), ..of_owner(i, self.a.target.generation) };
        let ctx = as_root.with_limits(LimitsKnown::Exempt);
        let mut out = Vec::new();
        self.check_target(off, off + bytes.len() as u64)?;
        for e in self.a.target.extents(off, bytes.len() as u64) {
            let at = (e.file_offset - off) as usize;
            let part = bytes.slice(at..at + e.len as usize);
            let checksum = ChecksumType::Crc32c;
            let msg = Write {
                object: e.object.id,
                offset: e.object_offset,
                append: false,
                file: self.fid,
                uid: i.uid,
                gid: i.gid,
                projid: i.projid,
                inode_ctime: i.ctime,
                block_crcs: checksum.of_write(e.object_offset, &part),
                checksum,
                lock: 0,
                granted: false,
            };
            out.push((
                e.number,
                self.call_as(self.labelled(ctx.clone(), &e.object), &e.object, msg, part).await?.0.attr,
            ));
        }
        Ok(out)
    }

    /// A new object gets the size that it has in a file of `file_size` bytes, unless it has it: `end` is
    /// where it ends now.
    async fn resize(&self, number: usize, end: u64, file_size: u64) -> Result<Option<ObjectAttr>, Errno> {
        let (c, stripe) = self.target().stripe_of(number);
        let (o, size) = (&c.objects[stripe], c.object_size_for(stripe, file_size));
        if end == size {
            return Ok(None);
        }
        let (file, inode_ctime) = (self.fid, self.a.inode.ctime);
        let msg = Truncate { object: o.id, size, file, inode_ctime, keep_times: true, lock: 0 };
        Ok(Some(self.call(o, msg, Bytes::new()).await?.0))
    }

    /// As [`Copier::resize`], of all new objects.
    async fn resize_all(&self, ends: &[u64], file_size: u64) -> Result<Vec<Option<ObjectAttr>>, Errno> {
        assert_eq!(ends.len(), self.target().object_count(), "each new object ends somewhere");
        let one = |(number, end): (usize, &u64)| -> Work<'_, Result<Option<ObjectAttr>, Errno>> {
            Box::pin(self.resize(number, *end, file_size))
        };
        all(ends.iter().enumerate().map(one)).await
    }

    /// What lay with the inode.
    async fn copy_from_inode(&self, runs: &[(u64, Vec<u8>)]) -> Result<Timestamp, Errno> {
        let l = self.target();
        let mut newest = Timestamp::ZERO;
        let mut ends = vec![0; l.object_count()];
        for (off, bytes) in runs {
            for (number, attr) in self.write(*off, &Bytes::copy_from_slice(bytes)).await? {
                newest = newest.max(attr.ctime);
                ends[number] = ends[number].max(attr.size);
            }
        }
        let size = self.a.inode.data.size;
        for attr in self.resize_all(&ends, size).await?.into_iter().flatten() {
            newest = newest.max(attr.ctime);
        }
        let written = l.objects().enumerate().filter(|(number, _)| l.object_size_for(*number, size) > 0);
        let synced = written.map(|(_, o)| -> Work<'_, Result<(), Errno>> {
            let msg = Sync { object: Some(o.id) };
            Box::pin(async move { self.call(o, msg, Bytes::new()).await.map(|_| ()) })
        });
        all(synced).await?;
        // Who writes more dates the file; a move is no change of it.
        let i = &self.a.inode;
        if self.movement().is_some() { self.date((i.mtime, i.ctime)).await } else { Ok(newest) }
    }

    /// What lies on other objects, which nobody reaches by the old layout afterwards.
    async fn copy_from_objects(&self, old: &Layout) -> Result<Timestamp, Errno> {
        let patient = self.patient();
        let early = if planted::on(Bug::SizeOfOldObjects) { Some(patient.attrs(old).await?) } else { None };
        let ahead = patient.copy_ahead(old).await?;
        if let Some(m) = self.movement() {
            m.switches();
        }
        let attrs = self.soon(patient.fence(old.objects()), old.object_count()).await?;
        let attrs = early.unwrap_or(attrs);
        let ends = match ahead {
            Some(Ahead { versions, ends: Some(ends) }) if is_whole(&attrs, &versions) => ends,
            // It was used meanwhile.
            Some(_) if self.is_non_block() => return Err(Errno::EBUSY),
            Some(_) => {
                self.empty_new().await?;
                self.copy_all(old, &attrs).await?
            }
            None => self.copy_all(old, &attrs).await?,
        };
        let size = size_of(old, &attrs);
        self.check_target(size.saturating_sub(1), size)?;
        self.resize_all(&ends, size).await?;
        self.date(last_times(&attrs).expect("a file that is moved has objects")).await
    }

    /// What comes to the inode. `EBUSY` if it has no room there any more: the next attempt knows it as it is
    /// then.
    async fn copy_to_inode(&self, old: &Layout) -> Result<FileData, Errno> {
        let patient = self.patient();
        // Who is not to wait for a copy finds it made.
        let ahead = if self.is_non_block() { Some(patient.read_all(old).await?) } else { None };
        if let Some(m) = self.movement() {
            m.switches();
        }
        let attrs = self.soon(patient.fence(old.objects()), old.object_count()).await?;
        match ahead {
            Some(d) if are_fenced_only(&attrs, &d.versions()) => Ok(FileData { attrs, ..d }),
            Some(_) => Err(Errno::EBUSY),
            None => self.read_all(old).await,
        }
    }

    /// All bytes of a file that is to lie with its inode.
    async fn read_all(&self, old: &Layout) -> Result<FileData, Errno> {
        let attrs = self.attrs(old).await?;
        let size = size_of(old, &attrs);
        if self.target().data_room().is_none_or(|room| size > room) {
            return Err(Errno::EBUSY);
        }
        if let Some(m) = self.movement() {
            m.copies(size);
        }
        let mut runs = Vec::new();
        for (number, (o, a)) in old.objects().zip(&attrs).enumerate() {
            for (from, len) in self.runs_of(o, a.size).await? {
                let data = self.read_object(o, from, len).await?;
                runs.extend(in_file(old, number, from, &data));
                self.copied(len);
            }
        }
        Ok(FileData { size, runs, attrs })
    }

    /// Where an object has data: (offset, bytes), the holes between left out.
    async fn runs_of(&self, o: &LayoutObject, size: u64) -> Result<Vec<(u64, u64)>, Errno> {
        let (mut at, mut out) = (0, Vec::new());
        while let Some((start, hole)) = self.next_run(o, at, size).await? {
            let pieces = (start..hole).step_by(PIECE_BYTES as usize);
            out.extend(pieces.map(|from| (from, PIECE_BYTES.min(hole - from))));
            at = hole;
        }
        Ok(out)
    }

    /// Where an object's next data begins and ends, from `at` on.
    async fn next_run(&self, o: &LayoutObject, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
        if at >= size {
            return Ok(None);
        }
        let msg = Seek { object: o.id, offset: at, whence: Whence::Data, lock: 0 };
        let Some(start) = self.call(o, msg, Bytes::new()).await?.0.offset else { return Ok(None) };
        let msg = Seek { object: o.id, offset: start, whence: Whence::Hole, lock: 0 };
        let hole = self.call(o, msg, Bytes::new()).await?.0.offset.unwrap_or(size).min(size);
        if start < at || hole <= start { Err(Errno::EPROTO) } else { Ok(Some((start, hole))) }
    }

    /// Bytes of an old object, which has them, as they were written.
    async fn read_object(&self, o: &LayoutObject, from: u64, len: u64) -> Result<Bytes, Errno> {
        assert!(len <= PIECE_BYTES, "one message brings it");
        let checksum = ChecksumType::Crc32c;
        let msg = Read { object: o.id, offset: from, len: len as u32, checksum, lock: 0 };
        let (r, data) = self.call(o, msg, Bytes::new()).await?;
        let differs = checksum.differs_in_read(from, &data, r.object_size, &r.block_crcs);
        if data.len() as u64 != len || differs.is_some() {
            return Err(Errno::EIO);
        }
        Ok(data)
    }

    /// What waits for those who have locks on so many objects. `EBUSY` if they do not let go of them soon.
    async fn soon<T: Send>(
        &self,
        work: impl Future<Output = Result<T, Errno>> + Send,
        objects: usize,
    ) -> Result<T, Errno> {
        let given_up = async {
            match self.movement() {
                Some(m) => movements::ended(self.mdt, m).await,
                None => self.mdt.stop.begun().await,
            }
        };
        let end = select(Box::pin(given_up), self.mdt.stop.pause(fence_patience(objects)));
        match select(Box::pin(work), Box::pin(end)).await {
            Either::Left(r) => r,
            Either::Right(Either::Left(())) => Err(self.ended().err().unwrap_or(Errno::ESHUTDOWN)),
            Either::Right(Either::Right(true)) => Err(Errno::ESHUTDOWN),
            Either::Right(Either::Right(false)) => Err(Errno::EBUSY),
        }
    }

    /// Takes all locks on the old objects back and keeps requests by the old layout from them; what they are
    /// like then.
    async fn fence(&self, old: impl Iterator<Item = &LayoutObject> + Send) -> Result<Vec<ObjectAttr>, Errno> {
        let (generation, file) = (self.a.target.generation, self.fid);
        let fences = old.map(|o| -> Work<'_, Result<ObjectAttr, Errno>> {
            let msg = Fence { object: o.id, file, generation, times: None };
            Box::pin(async move { Ok(self.call(o, msg, Bytes::new()).await?.0) })
        });
        all(fences).await
    }

    /// Nobody reaches the objects of `old` afterwards that the new layout does not have.
    async fn let_go(&self, old: &Layout) -> Result<(), Errno> {
        if planted::on(Bug::GoneBesideLocks) {
            return Ok(());
        }
        let going = old.objects_beside(Some(self.target()));
        self.soon(self.patient().fence(going), old.object_count()).await.map(|_| ())
    }

    /// The new objects get times of the old ones, (mtime, ctime): the data is as old as it was, and who
    /// changed it last knows when that was.
    async fn date(&self, (mtime, ctime): (Timestamp, Timestamp)) -> Result<Timestamp, Errno> {
        let (generation, file) = (self.a.target.generation, self.fid);
        if planted::on(Bug::SwitchedBeforeDurable) {
            return Ok(ctime); // the objects' servers commit before they answer that they have the times
        }
        let times = Some((mtime, ctime));
        let dated = self.target().objects().map(|o| -> Work<'_, Result<(), Errno>> {
            let msg = Fence { object: o.id, file, generation, times };
            Box::pin(async move { self.call(o, msg, Bytes::new()).await.map(|_| ()) })
        });
        all(dated).await?;
        Ok(ctime)
    }

    /// Copies what there is while others use the file. `None`: there is too little for that.
    async fn copy_ahead(&self, old: &Layout) -> Result<Option<Ahead>, Errno> {
        if planted::on(Bug::FenceBesideLocks) {
            return Ok(None); // a fence alone would not be seen to go wrong
        }
        // What clients keep is written for this: it looks at all of each object.
        let looks = old.objects().map(|o| -> Work<'_, Result<(), Errno>> {
            let msg = Seek { object: o.id, offset: 0, whence: Whence::Data, lock: 0 };
            Box::pin(async move { self.call(o, msg, Bytes::new()).await.map(|_| ()) })
        });
        self.soon(all(looks), old.object_count()).await?;
        let attrs = self.attrs(old).await?;
        let small = size_of(old, &attrs) < AHEAD_MIN_BYTES && !planted::on(Bug::LastMomentsNotCopied);
        if small && !self.is_non_block() {
            return Ok(None);
        }
        let versions = attrs.iter().map(|a| a.data_version).collect();
        let ends = match self.copy_all(old, &attrs).await {
            Ok(ends) => Some(ends),
            // It was cut meanwhile.
            Err(Errno::EIO | Errno::EPROTO) => None,
            Err(e) => return Err(e),
        };
        Ok(Some(Ahead { versions, ends }))
    }

    /// What was copied of a file that was changed meanwhile goes.
    async fn empty_new(&self) -> Result<(), Errno> {
        let cuts = (0..self.target().object_count()).map(|number| -> Work<'_, Result<(), Errno>> {
            Box::pin(async move { self.resize(number, u64::MAX, 0).await.map(|_| ()) })
        });
        all(cuts).await.map(|_| ())
    }

    async fn attrs(&self, l: &Layout) -> Result<Vec<ObjectAttr>, Errno> {
        let asked = l.objects().map(|o| -> Work<'_, Result<Vec<ObjectAttr>, Errno>> {
            let msg = Glimpse { objects: vec![o.id] };
            Box::pin(async move { Ok(self.call(o, msg, Bytes::new()).await?.0.attrs) })
        });
        let out: Vec<ObjectAttr> = all(asked).await?.into_iter().flatten().collect();
        if out.len() == l.object_count() { Ok(out) } else { Err(Errno::EPROTO) }
    }

    /// Copies what all old objects have. Of each new object where it ends at least, afterwards.
    async fn copy_all(&self, old: &Layout, attrs: &[ObjectAttr]) -> Result<Vec<u64>, Errno> {
        let copies =
            old.objects().zip(attrs).enumerate().map(|(number, (o, a))| -> Work<'_, _> {
                Box::pin(self.copy_object(old, (number, o), a.size))
            });
        if let Some(m) = self.movement() {
            m.copies(attrs.iter().map(|a| a.size).sum());
        }
        let mut ends = vec![0; self.target().object_count()];
        for (number, end) in some(OBJECTS_AT_ONCE, copies).await?.into_iter().flatten() {
            ends[number] = end.max(ends[number]);
        }
        Ok(ends)
    }

    /// Copies what an old object has but for its holes. Of each new object that it wrote to where that ends
    /// at least, afterwards.
    async fn copy_object(
        &self,
        old: &Layout,
        (number, o): (usize, &LayoutObject),
        size: u64,
    ) -> Result<BTreeMap<usize, u64>, Errno> {
        let mut ends = BTreeMap::new();
        let mut at = 0;
        while let Some((start, hole)) = self.next_run(o, at, size).await? {
            self.copied(start - at);
            at = hole;
            let pieces: Vec<u64> = (start..hole).step_by(PIECE_BYTES as usize).collect();
            for some in pieces.chunks(PIECES_AT_ONCE) {
                let copies = some.iter().map(|&from| -> Work<'_, Result<Vec<(usize, u64)>, Errno>> {
                    Box::pin(self.copy_piece(old, (number, o), from, PIECE_BYTES.min(hole - from)))
                });
                for (i, end) in all(copies).await?.into_iter().flatten() {
                    let known = ends.entry(i).or_insert(0);
                    *known = end.max(*known);
                }
            }
        }
        self.copied(size - at);
        Ok(ends)
    }

    /// Copies `len` bytes from `from` of an old object on, but for zeros.
    async fn copy_piece(
        &self,
        old: &Layout,
        (number, o): (usize, &LayoutObject),
        from: u64,
        len: u64,
    ) -> Result<Vec<(usize, u64)>, Errno> {
        self.pace(len).await?;
        let start = self.mdt.world.now();
        let data = self.read_object(o, from, len).await?;
        let mut out = Vec::new();
        for (at, run) in in_file(old, number, from, &data) {
            let wrote = self.write(at, &run).await?;
            out.extend(wrote.into_iter().map(|(i, attr)| (i, attr.size)));
        }
        if let Some(m) = self.movement() {
            movements::took(self.mdt, m, start);
        }
        self.copied(len);
        Ok(out)
    }
}

/// Where bytes of an object lie in the file, and which: those that lie together there, zeros left out.
fn in_file(l: &Layout, number: usize, from: u64, data: &Bytes) -> Vec<(u64, Bytes)> {
    let (c, stripe) = l.stripe_of(number);
    let (unit, behind) = (u64::from(c.stripe_size), from + data.len() as u64);
    assert!(unit > 0, "a component with objects has a stripe size");
    let mut out = Vec::new();
    let mut at = from;
    while at < behind {
        let end = if c.stripes() == 1 { behind } else { ((at / unit + 1) * unit).min(behind) };
        let part = data.slice((at - from) as usize..(end - from) as usize);
        let runs = without_holes(&part).into_iter();
        out.extend(runs.map(|(skip, run)| (c.file_offset(stripe, at + skip as u64), run)));
        at = end;
    }
    out
}

/// Whether what was copied while the file was in use is all of it.
fn is_whole(now: &[ObjectAttr], versions: &[u64]) -> bool {
    are_fenced_only(now, versions) || planted::on(Bug::LastMomentsNotCopied)
}

/// Whether nothing was done to objects but that they were fenced, which is a change as well.
fn are_fenced_only(now: &[ObjectAttr], versions: &[u64]) -> bool {
    assert_eq!(now.len(), versions.len(), "each object has a version");
    now.iter().zip(versions).all(|(a, v)| a.data_version == v + 1)
}

/// The file's, if these are its objects.
pub(super) fn size_of(l: &Layout, attrs: &[ObjectAttr]) -> u64 {
    attrs.iter().enumerate().map(|(number, a)| l.file_size_from(number, a.size)).max().unwrap_or(0)
}

/// The objects of a file as their servers know them.
pub(crate) async fn attrs_of_file(mdt: &Mdt, l: &Layout) -> Result<Vec<ObjectAttr>, Errno> {
    let ctx = RequestContext { layout_generation: l.generation, ..RequestContext::default() };
    let asked = l.objects().map(|o| -> Work<'_, Result<Vec<ObjectAttr>, Errno>> {
        let (session, ctx, msg) = (session(mdt, o), ctx.clone(), Glimpse { objects: vec![o.id] });
        Box::pin(async move {
            Ok(session?.call_with(ctx, msg, Bytes::new(), Terms::default()).await?.reply.attrs)
        })
    });
    let attrs: Vec<ObjectAttr> = all(asked).await?.into_iter().flatten().collect();
    if attrs.len() == l.object_count() { Ok(attrs) } else { Err(Errno::EPROTO) }
}

/// The runs of blocks that have a byte that is not zero, and where they begin.
fn without_holes(data: &Bytes) -> Vec<(usize, Bytes)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (i, block) in data.chunks(HOLE_BYTES).enumerate() {
        let start = i * HOLE_BYTES;
        if block.iter().all(|b| *b == 0) {
            continue;
        }
        match out.last_mut() {
            Some((_, end)) if *end == start => *end += block.len(),
            _ => out.push((start, start + block.len())),
        }
    }
    out.into_iter().map(|(from, to)| (from, data.slice(from..to))).collect()
}

async fn all<'a, T: Send + 'a>(
    work: impl Iterator<Item = Work<'a, Result<T, Errno>>>,
) -> Result<Vec<T>, Errno> {
    join_all(work.collect()).await.into_iter().collect()
}

/// As [`all`], but `most` at a time; what comes of them in any order.
async fn some<'a, T: Send + 'a>(
    most: usize,
    work: impl Iterator<Item = Work<'a, Result<T, Errno>>> + Send,
) -> Result<Vec<T>, Errno> {
    assert!(most > 0, "somebody works");
    let queue = Mutex::new(work);
    let one = || async {
        let mut out = Vec::new();
        loop {
            let next = queue.lock().next();
            match next {
                Some(w) => out.push(w.await?),
                None => return Ok(out),
            }
        }
    };
    let workers = (0..most).map(|_| -> Work<'_, Result<Vec<T>, Errno>> { Box::pin(one()) });
    Ok(all(workers).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_not_copied() {
        let mut data = vec![0; 5 * HOLE_BYTES + 10];
        assert!(without_holes(&data.clone().into()).is_empty());
        data[HOLE_BYTES] = 1;
        data[3 * HOLE_BYTES - 1] = 2;
        data[5 * HOLE_BYTES + 9] = 3;
        let runs: Vec<(usize, usize)> =
            without_holes(&data.into()).into_iter().map(|(at, run)| (at, run.len())).collect();
        assert_eq!(runs, [(HOLE_BYTES, 2 * HOLE_BYTES), (5 * HOLE_BYTES, 10)]);
    }
}

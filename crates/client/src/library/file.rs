//! An open file of a user.

use super::error::{Failed, Result};
use super::flags::{O_ACCMODE, O_APPEND, O_DSYNC, O_RDONLY, O_WRONLY};
use super::user::User;
use crate::{ErrorCursor, Locks, OpenHandle, PosixLock};
use bytes::Bytes;
use model::limits::{FILE_SIZE_MAX_BYTES, RPC_BULK_MAX_BYTES};
use model::{Attr, Errno, Fid, SetAttr};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use wire::msg::enqueue::LockMode;
use world::sync::Mutex;

type R<T> = std::result::Result<T, Failed>;

/// An open file, or a directory opened for reading. Closed when it is dropped; who wants to know of errors
/// calls [`OpenFile::close`], and who wants the data to be on disk [`OpenFile::fsync`] before.
pub struct OpenFile {
    user: User,
    path: Vec<u8>,
    what: What,
    /// Where `read` and `write` go on.
    position: Mutex<u64>,
    /// Whose its locks are.
    owner: u64,
    flocked: AtomicBool,
    closed: bool,
}

enum What {
    File(Arc<OpenHandle>),
    Directory(ErrorCursor),
}

/// Where [`OpenFile::seek`] leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    Start(u64),
    Current(i64),
    End(i64),
    /// The next byte that is no hole, from here on (`ENXIO`: there is none).
    Data(u64),
    /// The next hole, from here on; the end of the file is one.
    Hole(u64),
}

/// Bytes of a file to be locked: `end` is the last one, `u64::MAX` for all there will ever be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    pub const ALL: Range = Range { start: 0, end: u64::MAX };
}

impl OpenFile {
    pub(super) fn file(user: &User, path: &[u8], handle: OpenHandle) -> OpenFile {
        OpenFile::new(user, path, What::File(Arc::new(handle)))
    }

    pub(super) fn directory(user: &User, path: &[u8], errors: ErrorCursor) -> OpenFile {
        OpenFile::new(user, path, What::Directory(errors))
    }

    fn new(user: &User, path: &[u8], what: What) -> OpenFile {
        OpenFile {
            user: user.clone(),
            path: path.to_vec(),
            what,
            position: Mutex::new(0),
            owner: user.fs.cx.number(),
            flocked: AtomicBool::new(false),
            closed: false,
        }
    }

    pub fn fid(&self) -> Fid {
        match &self.what {
            What::File(f) => f.fid,
            What::Directory(errors) => errors.fid(),
        }
    }

    /// The file, if it is open for what `allowed` wants of its access mode.
    fn handle(&self, allowed: impl Fn(u32) -> bool) -> R<&Arc<OpenHandle>> {
        match &self.what {
            What::Directory(_) => Err(Errno::EISDIR.into()),
            What::File(f) if allowed(f.flags & O_ACCMODE) => Ok(f),
            What::File(_) => Err(Errno::EBADF.into()),
        }
    }

    fn readable(&self) -> R<&Arc<OpenHandle>> {
        self.handle(|mode| mode != O_WRONLY)
    }

    fn writable(&self) -> R<&Arc<OpenHandle>> {
        self.handle(|mode| mode != O_RDONLY)
    }

    fn errors(&self) -> &ErrorCursor {
        match &self.what {
            What::File(f) => &f.errors,
            What::Directory(errors) => errors,
        }
    }

    async fn told<T>(&self, what: &str, work: impl Future<Output = R<T>>) -> Result<T> {
        self.user.told(what, &self.path, work).await
    }

    /// Attributes as they are now.
    pub async fn stat(&self) -> Result<Attr> {
        let work = async { Ok(self.user.fs.clone().getattr(self.user.call(), self.fid()).await?) };
        self.told("stat", work).await
    }

    /// As many bytes at `off` as there are, at most `len` and 16 MiB; none at the end.
    pub async fn read_at(&self, off: u64, len: usize) -> Result<Bytes> {
        self.told("read", self.pread(off, len)).await
    }

    async fn pread(&self, off: u64, len: usize) -> R<Bytes> {
        let file = self.readable()?.clone();
        let len = len.min(RPC_BULK_MAX_BYTES) as u32;
        let data = self.user.fs.clone().read(self.user.call(), file, off, len).await?;
        assert!(data.len() <= len as usize, "no more than was asked for");
        Ok(data)
    }

    /// The same where the last `read`, `write` or `seek` ended.
    pub async fn read(&self, len: usize) -> Result<Bytes> {
        let work = async {
            let mut at = self.position.lock().await;
            let data = self.pread(*at, len).await?;
            *at += data.len() as u64;
            Ok(data)
        };
        self.told("read", work).await
    }

    /// Writes at `off`; with O_APPEND at the end, whatever it is by then. How many bytes were written: fewer
    /// than all of `data` only if an error came after them, which the next call meets.
    pub async fn write_at(&self, off: u64, data: impl Into<Bytes>) -> Result<usize> {
        let data = data.into();
        self.told("write", async { Ok(self.pwrite(off, data).await?.1) }).await
    }

    /// The same where the last `read`, `write` or `seek` ended.
    pub async fn write(&self, data: impl Into<Bytes>) -> Result<usize> {
        let data = data.into();
        let work = async {
            let mut at = self.position.lock().await;
            let (end, n) = self.pwrite(*at, data).await?;
            *at = end;
            Ok(n)
        };
        self.told("write", work).await
    }

    /// Where it ended, and how many bytes.
    async fn pwrite(&self, off: u64, mut data: Bytes) -> R<(u64, usize)> {
        let file = self.writable()?;
        let append = file.flags & O_APPEND != 0;
        // Who is not root may not keep set-id bits.
        let kill = !self.user.call.cred.is_root();
        let (mut end, mut done) = (off, 0);
        while !data.is_empty() {
            let part = data.split_to(data.len().min(RPC_BULK_MAX_BYTES));
            let len = part.len();
            let fs = self.user.fs.clone();
            match fs.write(self.user.call(), file.fid, end, append, kill, part).await {
                Ok(at) => (end, done) = (at + len as u64, done + len),
                Err(e) if done == 0 => return Err(e.into()),
                Err(_) => break,
            }
        }
        if done > 0 && (file.flags & O_DSYNC != 0 || file.sync) {
            self.user.fs.clone().fsync_open(self.user.call(), &file.errors).await?;
        }
        Ok((end, done))
    }

    /// Where `read` and `write` go on from now.
    pub async fn seek(&self, to: Seek) -> Result<u64> {
        let work = async {
            let mut at = self.position.lock().await;
            let from = |base: u64, by: i64| base.checked_add_signed(by).ok_or(Failed::from(Errno::EINVAL));
            let new = match to {
                Seek::Start(n) => n,
                Seek::Current(by) => from(*at, by)?,
                Seek::End(by) => {
                    let attr = self.user.fs.clone().getattr(self.user.call(), self.fid()).await?;
                    from(attr.size, by)?
                }
                Seek::Data(n) | Seek::Hole(n) => {
                    let file = self.handle(|_| true)?;
                    let hole = matches!(to, Seek::Hole(_));
                    self.user.fs.clone().seek(self.user.call(), file.fid, n, hole).await?
                }
            };
            if new > FILE_SIZE_MAX_BYTES {
                return Err(Errno::EINVAL.into());
            }
            *at = new;
            Ok(new)
        };
        self.told("seek in", work).await
    }

    /// Makes it durable, with its names, and everything else that this mount did on the metadata servers
    /// before. Tells each error of writing that came since the open once.
    pub async fn fsync(&self) -> Result<()> {
        let work = async { Ok(self.user.fs.clone().fsync_open(self.user.call(), self.errors()).await?) };
        self.told("make durable", work).await
    }

    /// ftruncate(2). `EINVAL` if it is not open for writing.
    pub async fn truncate(&self, size: u64) -> Result<()> {
        let work = async {
            let file = self.writable().map_err(|_| Errno::EINVAL)?;
            let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
            self.user.fs.clone().setattr(self.user.call(), file.fid, set).await?;
            Ok(())
        };
        self.told("truncate", work).await
    }

    /// fallocate(2): mode 0, FALLOC_FL_KEEP_SIZE (1), with it FALLOC_FL_PUNCH_HOLE (2), FALLOC_FL_ZERO_RANGE
    /// (0x10).
    pub async fn fallocate(&self, mode: u32, off: u64, len: u64) -> Result<()> {
        let work = async {
            let file = self.writable()?;
            Ok(self.user.fs.clone().fallocate(self.user.call(), file.fid, mode, off, len).await?)
        };
        self.told("allocate space of", work).await
    }

    /// Locks a range for this open file against all others, here and on other hosts; with `wait` until it is
    /// free. `EAGAIN`: it is not. Open file description locks: they go when it is closed.
    pub async fn lock(&self, range: Range, mode: LockMode, wait: bool) -> Result<()> {
        let work = async {
            let file = match mode {
                LockMode::Read => self.readable()?,
                _ => self.writable()?,
            };
            let lock = self.posix(range, mode);
            Ok(Locks(&self.user.fs).setlk(file.fid, lock, wait).await?)
        };
        self.told("lock", work).await
    }

    pub async fn unlock(&self, range: Range) -> Result<()> {
        let work = async {
            let file = self.handle(|_| true)?;
            Ok(Locks(&self.user.fs).unlk(file.fid, self.owner, range.start, range.end).await?)
        };
        self.told("unlock", work).await
    }

    /// A lock that is in the way of this one, if there is any.
    pub async fn conflict(&self, range: Range, mode: LockMode) -> Result<Option<(Range, LockMode)>> {
        let work = async {
            let file = self.handle(|_| true)?;
            let found = Locks(&self.user.fs).getlk(file.fid, self.posix(range, mode)).await?;
            Ok(found.map(|l| (Range { start: l.start, end: l.end }, l.mode)))
        };
        self.told("ask for locks of", work).await
    }

    /// flock(2) of the whole file; one that it has gets the new mode instead.
    pub async fn flock(&self, mode: LockMode, wait: bool) -> Result<()> {
        let work = async {
            let file = self.handle(|_| true)?;
            self.flocked.store(true, Relaxed);
            Ok(Locks(&self.user.fs).flock(file.fid, self.owner, 0, mode, wait).await?)
        };
        self.told("lock", work).await
    }

    pub async fn funlock(&self) -> Result<()> {
        let work = async {
            let file = self.handle(|_| true)?;
            Ok(Locks(&self.user.fs).funlock(file.fid, self.owner).await?)
        };
        self.told("unlock", work).await
    }

    fn posix(&self, range: Range, mode: LockMode) -> PosixLock {
        PosixLock { owner: self.owner, pid: 0, mode, start: range.start, end: range.end }
    }

    /// What was written may still be on its way; an error of writing that is known and that no fsync told is
    /// said here.
    pub async fn close(mut self) -> Result<()> {
        let told = match &self.what {
            What::File(f) => f.error_at_close(),
            What::Directory(_) => Ok(()),
        };
        let work = self.take_close();
        let user = self.user.clone();
        let path = std::mem::take(&mut self.path);
        user.told("close", &path, async {
            if let Some(work) = work {
                work.await?;
            }
            Ok(told?)
        })
        .await
    }

    /// The end of it, once.
    fn take_close(&mut self) -> Option<world::BoxFuture<crate::R<()>>> {
        let What::File(file) = &self.what else { return None };
        if std::mem::replace(&mut self.closed, true) {
            return None;
        }
        let (fs, file, owner) = (self.user.fs.clone(), file.clone(), self.owner);
        let flocked = self.flocked.load(Relaxed);
        Some(Box::pin(async move {
            if Locks(&fs).has_posix_locks(file.fid, owner) {
                Locks(&fs).unlk(file.fid, owner, 0, u64::MAX).await?;
            }
            if flocked {
                Locks(&fs).funlock(file.fid, owner).await?;
            }
            fs.close(file).await
        }))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(work) = self.take_close() {
            self.user.fs.cx.world.spawn("client-close", async move {
                if let Err(e) = work.await {
                    tracing::warn!("a file that was dropped cannot be closed: {e}");
                }
            });
        }
    }
}

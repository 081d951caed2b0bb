//! What the operations ask first: execute it here. `None`: ask the server.

use super::Mdc;
use super::cache::{Cache, Who};
use crate::base::jobid::JobId;
use crate::{Call, R};
use bytes::Bytes;
use model::mutex::Mutex;
use model::{Attr, Cred, Fid, FileType, SetAttr, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use wire::RequestContext;
use wire::msg::create::Create;
use wire::msg::lookup::Entry;
use wire::msg::mkdir::Mkdir;
use wire::msg::rename::Rename;
use wire::msg::rmdir::Rmdir;
use wire::msg::symlink::Symlink;
use wire::msg::unlink::Unlink;
use wire::msg::write::Write;

impl Mdc {
    /// Executes something on the cache, if leases on `fid` are good. For which job, `job` looks up: the
    /// process may be gone when the server is told.
    fn execute<T>(
        self: &Arc<Self>,
        fid: Fid,
        (cred, time): (&Cred, Timestamp),
        job: impl FnOnce() -> JobId,
        f: impl FnOnce(&mut Cache, &Who) -> Option<T>,
    ) -> Option<T> {
        if !self.executes_here(fid) || !self.meta.leases_good() {
            return None;
        }
        let job = job();
        let done = self.meta.with_cache(|c, now| f(c, &Who { cred, job, time, now }))?;
        self.shared.executed.fetch_add(1, Relaxed);
        self.send_pending();
        Some(done)
    }

    /// Makes a file in `parent` with a FID of its own.
    async fn make(
        self: &Arc<Self>,
        call: &Call,
        parent: Fid,
        f: impl Fn(&mut Cache, &Who, &dyn Fn() -> Option<Fid>) -> Option<Arc<Entry>> + Send + Sync,
    ) -> R<Option<Arc<Entry>>> {
        if !self.prepare(parent, false).await {
            return Ok(None);
        }
        for _ in 0..2 {
            let short = AtomicBool::new(false);
            let made = {
                let fid = || {
                    let fid = self.fids.at_hand();
                    short.store(fid.is_none(), Relaxed);
                    fid
                };
                let by = (&call.cred, self.cx.world.wall());
                self.execute(parent, by, || self.cx.job_of(call), |c, w| f(c, w, &fid))
            };
            if made.is_some() || !short.load(Relaxed) {
                return Ok(made);
            }
            self.fids.more().await?;
        }
        Ok(None)
    }

    /// The file that was made, and its open handle.
    pub(crate) async fn create_here(
        self: &Arc<Self>,
        call: &Call,
        msg: &Create,
        flags: u32,
    ) -> R<Option<(Arc<Entry>, u64)>> {
        let handle = Mutex::new(None);
        let made = self.make(call, msg.parent, |c, w, fid| {
            c.create(w, msg.clone(), || {
                let fid = fid()?;
                // In the table before anybody can find the file.
                let h = self.shared.opens.reserve(fid, flags, &call.cred, w.job.clone()).ok()?;
                *handle.lock() = Some(h);
                Some(fid)
            })
        });
        let Some(e) = made.await? else { return Ok(None) };
        let handle = handle.into_inner().expect("reserved for the file");
        assert_eq!(e.attr.kind, FileType::Regular, "what is created is a file");
        self.shared.opens.opened(handle, &e, true);
        Ok(Some((e, handle)))
    }

    pub(crate) async fn mkdir_here(self: &Arc<Self>, call: &Call, msg: &Mkdir) -> R<Option<Attr>> {
        let made = self.make(call, msg.parent, |c, w, fid| c.mkdir(w, msg.clone(), fid)).await?;
        Ok(made.map(|e| e.attr.clone()))
    }

    pub(crate) async fn symlink_here(self: &Arc<Self>, call: &Call, msg: &Symlink) -> R<Option<Attr>> {
        let made = self.make(call, msg.parent, |c, w, fid| c.symlink(w, msg.clone(), fid)).await?;
        Ok(made.map(|e| e.attr.clone()))
    }

    /// Takes names away; the inodes that they lead to may have to be asked for first.
    async fn remove(
        self: &Arc<Self>,
        call: &Call,
        dirs: [Fid; 2],
        f: impl Fn(&mut Cache, &Who) -> Option<()> + Send + Sync,
    ) -> bool {
        for dir in dirs {
            if !self.prepare(dir, true).await {
                return false;
            }
        }
        let done = || {
            let by = (&call.cred, self.cx.world.wall());
            self.execute(dirs[0], by, || self.cx.job_of(call), &f).is_some()
        };
        if done() {
            return true;
        }
        let mut more = false;
        for dir in dirs {
            more |= self.prepare_children(dir).await;
        }
        more && done()
    }

    pub(crate) async fn unlink_here(self: &Arc<Self>, call: &Call, msg: &Unlink) -> bool {
        self.remove(call, [msg.parent; 2], |c, w| c.unlink(w, msg, |f| self.shared.opens.is_open(f))).await
    }

    pub(crate) async fn rmdir_here(self: &Arc<Self>, call: &Call, msg: &Rmdir) -> bool {
        self.remove(call, [msg.parent; 2], |c, w| c.rmdir(w, msg, |f| self.shared.opens.is_open(f))).await
    }

    pub(crate) async fn rename_here(self: &Arc<Self>, call: &Call, msg: &Rename) -> bool {
        let dirs = [msg.parent, msg.new_parent];
        self.remove(call, dirs, |c, w| c.rename(w, msg, |f| self.shared.opens.is_open(f))).await
    }

    /// Changes of one inode ask for nothing first.
    pub(crate) async fn setattr_here(
        self: &Arc<Self>,
        ctx: &RequestContext,
        fid: Fid,
        set: &SetAttr,
    ) -> Option<Entry> {
        if !self.executes_here(fid) {
            return None;
        }
        self.pending_room().await;
        let job = || (!ctx.jobid.is_empty()).then(|| ctx.jobid.as_str().into());
        let e = self.execute(fid, (&ctx.cred, ctx.client_time), job, |c, w| c.setattr(w, fid, set))?;
        self.shared.opens.learn(&e);
        // Who asks for a change knows of it; that a mode lost bits with a write or an open is not in their
        // answers.
        if set.kill_suid_sgid || set.size.is_some() {
            self.cx.cache_holder.changed(fid);
        }
        Some((*e).clone())
    }

    /// Returns where it went.
    pub(crate) async fn write_here(self: &Arc<Self>, call: &Call, msg: &Write, data: &Bytes) -> Option<u64> {
        if !self.executes_here(msg.file) {
            return None;
        }
        self.pending_room().await;
        assert!(!data.is_empty(), "a write of {} has bytes", msg.file);
        // Whether the caller may write was decided when the file was opened.
        let cred = Cred::root();
        let by = (&cred, self.cx.world.wall());
        let write = |c: &mut Cache, w: &Who| c.write(w, msg.clone(), data.clone());
        let (at, e) = self.execute(msg.file, by, || self.cx.job_of(call), write)?;
        // The kernel knows by its answer that size and times are others now.
        self.shared.opens.learn(&e);
        Some(at)
    }
}

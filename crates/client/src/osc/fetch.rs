//! Bytes from the server, under a lock, into what is kept.

use super::object::{Fetch, Object};
use crate::base::jobid::JobId;
use crate::{Call, R};
use model::{Cred, Errno};
use std::sync::Arc;
use wire::checksum::ChecksumType;
use wire::context::RequestContext;
use wire::msg::read::Read;

/// A range of an object that must come from its server. The end is exclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub start: u64,
    pub end: u64,
    pub token: u64,
}

/// A gap that is being fetched; over when dropped.
pub(crate) struct Fetching {
    pub object: Arc<Object>,
    pub gap: Gap,
    /// For which job.
    pub job: JobId,
    /// For whom: targets share themselves out among users.
    pub by: Cred,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.object.lock().fetches.retain(|f| f.token != self.gap.token);
        self.object.changed.notify_waiters();
    }
}

impl Object {
    /// Notes that a range is being fetched; `s` is this object's state.
    pub(crate) fn begin_fetch(&self, s: &mut super::ObjectState, start: u64, end: u64) -> Gap {
        assert!(start < end, "something is fetched");
        let token = self.osc.cx.number();
        s.fetches.push(Fetch { token, start, end, tainted: false });
        Gap { start, end, token }
    }
}

impl Fetching {
    /// For whoever asked for it, or for what comes behind that.
    pub(crate) fn new(object: Arc<Object>, gap: Gap, job: JobId, call: &Call) -> Fetching {
        Fetching { object, gap, job, by: Cred::new(call.cred.uid, call.cred.gid) }
    }

    /// Reads the gap from its server and keeps what came, unless it was changed meanwhile. Returns the
    /// object's size if it ends within the gap.
    pub(crate) async fn run(self, lock: u64) -> R<Option<u64>> {
        let (g, o) = (self.gap, self.object.clone());
        let target = &o.osc.target;
        let turn = o.locked_rpc().await?;
        let (len, checksum) = ((g.end - g.start) as u32, ChecksumType::None);
        let msg = Read { object: o.id, offset: g.start, len, checksum, lock };
        let ctx = RequestContext { cred: self.by.clone(), ..o.request(&self.job) };
        let r = target.fetch_summed(ctx, o.file, msg).await;
        drop(turn);
        let r = match r {
            Ok(r) => r,
            // The lock is lost: whoever reads finds out.
            Err(Errno::ENOLCK) => {
                o.lock_lost(lock);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        if r.bulk.len() != r.reply.len as usize || r.bulk.len() as u64 > g.end - g.start {
            tracing::error!("{}: read of {} answered with {} bytes", target.id, o.id, r.bulk.len());
            return Err(Errno::EPROTO);
        }
        let short = (r.bulk.len() as u64) < g.end - g.start;
        {
            let mut s = o.lock();
            let still = s.fetches.iter().any(|x| x.token == g.token && !x.tainted)
                && s.locks.iter().any(|l| l.id == lock);
            if !still {
                return Ok(None);
            }
            if !r.bulk.is_empty() {
                s.segs.fill(g.start, &r.bulk);
                o.account(&mut s);
            }
        }
        drop(self);
        o.osc.cache.evict_clean();
        Ok(short.then_some(r.reply.object_size))
    }
}

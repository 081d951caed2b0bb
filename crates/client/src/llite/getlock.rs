//! getlock: which lock would conflict (F_GETLK).

use crate::stats::Verb;
use crate::{Fs, PosixLock, R};
use model::Fid;
use std::sync::Arc;
use wire::msg::getlock::Getlock;
use world::BoxFuture;

impl Fs {
    pub fn getlk(self: Arc<Self>, fid: Fid, lock: PosixLock) -> BoxFuture<R<Option<PosixLock>>> {
        Box::pin(async move {
            let work = async {
                let r = self
                    .lmv
                    .mdc_of(fid)
                    .await?
                    .target
                    .call(self.cx.own(), Getlock { lock: lock.spec(0, fid) })
                    .await?;
                Ok(r.conflict.map(|l| PosixLock {
                    owner: l.owner,
                    pid: l.pid,
                    mode: l.mode,
                    start: l.start,
                    end: l.end,
                }))
            };
            self.run(Verb::Flock, work).await
        })
    }
}

//! getlock: which lock would conflict (F_GETLK).

use super::Locks;
use crate::stats::Verb;
use crate::{PosixLock, R};
use model::Fid;
use wire::msg::getlock::Getlock;
use world::BoxFuture;

impl Locks<'_> {
    pub fn getlk(self, fid: Fid, lock: PosixLock) -> BoxFuture<R<Option<PosixLock>>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let r = fs
                    .lmv
                    .mdc_of(fid)
                    .await?
                    .target
                    .call(fs.cx.own(), Getlock { lock: lock.spec(0, fid) })
                    .await?;
                Ok(r.conflict.map(|l| PosixLock {
                    owner: l.owner,
                    pid: l.pid,
                    mode: l.mode,
                    start: l.start,
                    end: l.end,
                }))
            };
            fs.run(Verb::Flock, work).await
        })
    }
}

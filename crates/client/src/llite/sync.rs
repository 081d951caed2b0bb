//! sync: what was done so far becomes durable: a file's objects, and names and small files' data on
//! the metadata servers.

use super::Data;
use crate::BoxFutureOf;
use crate::session::Target;
use crate::stats::Verb;
use crate::{Call, ErrorCursor, ErrorMark, Fs, R};
use model::{Errno, Fid, TargetId};
use rpc::ImportState;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::sync::Sync;
use world::BoxFuture;
use world::future::join_all;

impl Fs {
    /// Writes what this mount keeps of a file to the servers, durable or not. An error of the file that came
    /// after `since` is the caller's: one of what it wrote is. The file's next fsync says it, too.
    pub fn flush(self: Arc<Self>, fid: Fid, since: ErrorMark) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let work = async {
                let mut written = Ok(());
                for file in self.lov.by_all_layouts(fid) {
                    written = written.and(file.flush().await);
                }
                self.lmv.tell_pending().await;
                written.and_then(|()| self.cx.told.since(fid, since))
            };
            self.run(Verb::Fsync, work).await
        })
    }

    /// fsync(2) of a file or a directory. When it returns, the file with its names, and everything else that
    /// this mount did on the metadata servers before, is durable. Costs one flush on each target concerned,
    /// at once.
    ///
    /// `open` says for whom: what went wrong with the file in the background since it was opened is told
    /// here, once ([`crate::base::errseq`]).
    pub async fn fsync_open(self: Arc<Self>, call: Call, open: &ErrorCursor) -> R<()> {
        let work = async {
            let done = self.data.make_durable(&call, open.fid()).await;
            // With nothing to wait for in between: who is not told because it is not there any more has not
            // taken anything.
            open.advance().and(done)
        };
        self.run(Verb::Fsync, work).await
    }

    /// `lfs sync`: everything that was done through this mount so far becomes durable, data and names. `EIO`
    /// if something that was answered cannot be; that is told by the fsync of whoever did it as well.
    pub fn sync(self: Arc<Self>) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let work = async {
                let before = self.cx.told.mark();
                self.lov.cache.flush_now().await?;
                self.lmv.tell_pending_durably().await;
                // One that is away and owes this mount nothing is not waited for.
                let owes = |t: &Arc<Target>| {
                    t.is_active() && (t.import.uncommitted().0 > 0 || t.import.state() == ImportState::Full)
                };
                let calls =
                    self.lmv.all_targets().into_iter().filter(owes).map(|t| -> BoxFutureOf<'_, R<()>> {
                        let ctx = self.cx.own();
                        Box::pin(async move { t.call(ctx, Sync { object: None }).await })
                    });
                join_all(calls.collect()).await.into_iter().collect::<R<()>>()?;
                self.cx.told.any_since(before)
            };
            self.run(Verb::Fsync, work).await
        })
    }

    /// As [`Fs::fsync_open`], of a file or directory that is opened for it.
    pub fn fsync(self: Arc<Self>, call: Call, fid: Fid) -> BoxFuture<R<()>> {
        Box::pin(async move {
            let open = self.watch_errors(fid);
            self.fsync_open(call, &open).await
        })
    }

    /// What this mount knows of each target: the newest transaction it was answered, up to which everything
    /// is durable, and how many requests it keeps.
    pub fn commit_state(&self) -> BTreeMap<TargetId, (u64, u64, usize)> {
        let of = |t: &Arc<Target>| {
            let i = &t.import;
            (t.id, (i.last_transno(), i.last_committed(), i.uncommitted().0))
        };
        self.lmv.all_targets().iter().map(of).collect()
    }

    /// Answered operations that could not be done again after a server's restart.
    pub fn replay_failures(&self) -> u64 {
        self.lmv.all_targets().iter().map(|t| t.import.replay_failures()).sum()
    }
}

impl Data {
    async fn make_durable(self: &Arc<Self>, call: &Call, fid: Fid) -> R<()> {
        // What is kept here goes first: the servers then commit it with the rest.
        let safe = self.flush_data_durably(fid).await?;
        let layout = match self.file_state(fid).await {
            // A directory that was removed while it is open: that it is gone is among the names.
            Err(Errno::ENOENT | Errno::ESTALE) => None,
            r => r?.layout,
        };
        // What another mount wrote to it is also to be durable.
        let with_inode = layout.as_ref().is_some_and(|l| l.mdt_component().is_some());
        let home = if with_inode { Some(self.lmv.mdc_of(fid).await?.target.id) } else { None };
        let told = self.lmv.tell_pending_durably().await;
        let names = self.commit_mdts(home, &told);
        let data = self.commit_objects(call, layout, &safe);
        let all: Vec<BoxFutureOf<'_, R<()>>> = vec![Box::pin(names), Box::pin(data)];
        join_all(all).await.into_iter().collect::<R<()>>()
    }
}

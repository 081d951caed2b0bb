//! Checkpoints: the overlay into the table, then the journal's beginning is given up.
//!
//! Order: freeze; wait until everything frozen is committed; make the files of data objects durable; one
//! table transaction; trim. So whatever the table's position covers is durable outside the journal.

use crate::StoreError;
use crate::core::{BACKLOG_FACTOR, Core, Inner};
use crate::journal::{Lsn, journal_dir};
use crate::options::DbOptions;
use std::sync::Arc;

impl Inner {
    fn over(&self, opt: &DbOptions, factor: usize) -> bool {
        self.overlay_txns >= opt.checkpoint_txns.max(1) * factor
            || self.overlay_bytes >= opt.checkpoint_bytes.max(1) * factor
            || self.journal_bytes as u64 >= opt.segment_bytes.max(1) * factor as u64
    }

    pub fn backlogged(&self, opt: &DbOptions) -> bool {
        self.over(opt, BACKLOG_FACTOR)
    }
}

impl Core {
    pub fn checkpoint_due(&self, inner: &Inner) -> bool {
        inner.checkpoint_wanted || self.opt.checkpoints && inner.over(&self.opt, 1)
    }

    pub async fn checkpointer(self: Arc<Self>) {
        while self.check().is_ok() {
            let due = {
                let mut inner = self.lock();
                let due = self.checkpoint_due(&inner);
                inner.checkpoint_wanted = false;
                due
            };
            if !due {
                self.wake_checkpointer.notified().await;
                continue;
            }
            if let Err(e) = self.checkpoint().await {
                self.fail(&e);
            }
        }
    }

    async fn checkpoint(&self) -> Result<(), StoreError> {
        let (batch, upto) = {
            let mut inner = self.lock();
            assert!(inner.frozen.is_none(), "one checkpoint at a time");
            if inner.overlay.is_empty() && self.state.borrow().applied == inner.journal.last_lsn() {
                return Ok(());
            }
            let batch = Arc::new(std::mem::take(&mut inner.overlay));
            inner.frozen = Some(batch.clone());
            (inner.overlay_bytes, inner.overlay_txns, inner.journal_bytes) = (0, 0, 0);
            (batch, inner.journal.last_lsn())
        };
        self.state.send_if_modified(|s| std::mem::replace(&mut s.backlog, false));
        self.committed(upto).await?;
        let hook = self.hook.lock().clone();
        if let Some(h) = hook {
            h.flush().await?;
        }
        let table = self.table.lock().clone();
        let table = table.ok_or_else(|| StoreError::Stopped("the database was closed".into()))?;
        self.check()?;
        let snapshot = self
            .world
            .blocking(move || {
                table.apply(&batch, upto)?;
                table.snapshot()
            })
            .await?;
        self.check()?;
        {
            let mut inner = self.lock();
            inner.snapshot = Some(snapshot);
            let applied = inner.frozen.take();
            assert!(applied.is_some(), "the overlay that was applied stood frozen until now");
            inner.journal.trim(upto)?;
        }
        self.state.send_modify(|s| {
            assert!(s.applied <= upto, "the table's position only grows");
            assert!(upto <= s.committed, "only what is committed goes to the table");
            s.applied = upto;
        });
        Ok(())
    }

    /// Waits until the table holds everything up to `lsn`.
    pub async fn applied(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.lock().checkpoint_wanted = true;
        self.wake_checkpointer.notify_one();
        let mut rx = self.state.subscribe();
        let s =
            rx.wait_for(|s| s.applied >= lsn || s.stopped.is_some()).await.expect("the sender is in self");
        match &s.stopped {
            Some(r) if s.applied < lsn => Err(StoreError::Stopped(r.to_string())),
            _ => Ok(()),
        }
    }

    pub async fn close(self: &Arc<Self>) -> Result<(), StoreError> {
        let last = {
            let mut inner = self.lock();
            inner.closing = true;
            inner.journal.last_lsn()
        };
        self.check()?;
        self.committed(last).await?;
        self.applied(last).await?;
        self.stop("the database was closed");
        let core = self.clone();
        self.world
            .blocking(move || {
                {
                    let mut inner = core.lock();
                    let above = inner.overlay.len() + inner.frozen.as_ref().map_or(0, |f| f.len());
                    assert_eq!(above, 0, "at an orderly end the table holds everything");
                    inner.journal.trim_all()?;
                }
                let dir = journal_dir(&core.dir);
                core.world.disk.sync_dir(&dir).map_err(StoreError::io("cannot flush the folder", &dir))?;
                core.lock().snapshot = None;
                let table = core.table.lock().take();
                drop(table);
                Ok(())
            })
            .await
    }
}

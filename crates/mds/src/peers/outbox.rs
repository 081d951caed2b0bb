//! What OSTs are still to be told: objects of removed files, to be destroyed, and new owners of files.
//! Records are written in the transaction that removed the file or changed its owner, sent when that is
//! durable, and deleted when the OST said yes; an OST that is away gets them when it is back.

use crate::MdsError;
use crate::mdt::Mdt;
use crate::schema::value::OutboxRecord;
use crate::schema::{key, value};
use model::limits::OBJECTS_PER_RPC_MAX;
use model::planted::{self, Bug};
use model::{Errno, Fid, ObjectId};
use rpc::Import;
use std::sync::Arc;
use std::time::Duration;
use store::Txn;
use wire::RequestContext;
use wire::msg::destroy::Destroy;
use wire::msg::setowner::{OwnerOf, Setowner};

/// One message's worth of records of one kind.
#[derive(Default)]
struct OutboxMessage {
    destroy: Vec<ObjectId>,
    owners: Vec<OwnerOf>,
    objects: usize,
}

impl OutboxMessage {
    /// Takes a record along; false if it must wait for the next message.
    fn takes(&mut self, record: OutboxRecord) -> bool {
        let n = record.objects().len();
        let other = match &record {
            OutboxRecord::Destroy(_) => !self.owners.is_empty(),
            OutboxRecord::Owner(_) => !self.destroy.is_empty(),
        };
        if other || (self.objects > 0 && self.objects + n > OBJECTS_PER_RPC_MAX) {
            return false;
        }
        self.objects += n;
        match record {
            OutboxRecord::Destroy(objects) => self.destroy.extend(objects),
            OutboxRecord::Owner(o) => self.owners.push(o),
        }
        true
    }

    async fn send(self, index: u16, import: &Arc<Import>) -> Result<(), Errno> {
        let (ctx, nothing) = (RequestContext::default(), bytes::Bytes::new());
        if self.owners.is_empty() {
            return import.call(ctx, Destroy { objects: self.destroy }, nothing).await.map(drop);
        }
        match import.call(ctx, Setowner::new(self.owners), nothing).await {
            // It is older than this message, and counts for nobody: when it does, it counts anew.
            Err(Errno::ENOSYS) => {
                tracing::warn!("OST {index} is of a version that does not count who uses what");
                Ok(())
            }
            told => told.map(drop),
        }
    }
}

/// Records read at a time; each names at most a few hundred objects.
const RECORDS_AT_ONCE: usize = 512;
const RETRY: Duration = Duration::from_secs(1);
/// Records counted for `destroys_pending`.
const COUNT_MAX: usize = 1_000_000;

impl Mdt {
    /// Records that wait for this OST (at most a million are counted).
    pub(crate) fn outbox_pending(&self, index: u16) -> usize {
        self.count_outbox(index, COUNT_MAX)
    }

    pub(crate) fn has_outbox_pending(&self, index: u16) -> bool {
        self.count_outbox(index, 1) > 0
    }

    pub(super) fn count_outbox(&self, index: u16, most: usize) -> usize {
        let from = key::outbox_prefix(index);
        self.db.scan(&from, &key::behind(&from), most).map_or(0, |v| v.len())
    }

    /// Tells an OST what stands in its outbox, until the target stops, or the OST is removed.
    pub(crate) async fn send_outbox(self: Arc<Self>, index: u16, import: Arc<Import>) {
        let Some(ost) = self.shared.osts.get(index) else { return };
        // Numbers only grow: what comes later stands behind what was sent.
        let mut from = key::outbox_prefix(index);
        while !self.stop.is_begun() && self.is_session_of(index, &import) {
            match self.send_some(index, &import, &mut from).await {
                Ok(true) => {}
                // A record submitted after the look made a permit: nothing is missed.
                Ok(false) => ost.wake.notified().await,
                Err(e) => {
                    tracing::debug!("destroying objects on OST {index}: {e}; trying again");
                    if self.stop.pause(RETRY).await {
                        return;
                    }
                }
            }
        }
    }

    /// Sends one message's worth, from key `from` on, and moves that; false if there was nothing to send.
    async fn send_some(
        self: &Arc<Self>,
        index: u16,
        import: &Arc<Import>,
        from: &mut Vec<u8>,
    ) -> Result<bool, MdsError> {
        let mut view = self.db.view();
        let page = view.scan(from, &key::behind(&key::outbox_prefix(index)), RECORDS_AT_ONCE)?;
        if page.is_empty() {
            return Ok(false);
        }
        let (mut message, mut keys) = (OutboxMessage::default(), Vec::new());
        for (k, v) in page {
            if !message.takes(value::decode_outbox(&k, &v)?) {
                break;
            }
            keys.push(k);
        }
        assert!(!keys.is_empty(), "each message says what a record says");
        // Not before the file's end is durable: a crash must not bring back a file without its objects.
        // There is no hurry: the committer need not flush for this.
        if !planted::on(Bug::DestroyedBeforeDurable) {
            self.db.durable_in_time(view.seen()).await?;
        }
        let files: Vec<Fid> = message.owners.iter().map(|o| o.file).collect();
        message.send(index, import).await.map_err(store::StoreError::Errno)?;
        self.shared.shares.arrivals.told(index, files.into_iter());
        let mut txn = Txn::new();
        if let Some(last) = keys.last() {
            assert!(*last >= *from, "what comes later stands behind what was sent");
            from.clone_from(last);
            from.push(0);
        }
        for k in keys {
            txn.delete(k);
        }
        // If this is lost, the objects are destroyed once more, which is no error.
        let lsn = self.db.submit(txn)?;
        self.db.durable_in_time(lsn).await?;
        Ok(true)
    }
}

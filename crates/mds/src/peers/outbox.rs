//! What OSTs are still to be told: objects of removed files, to be destroyed. Records are written in the
//! transaction that removed the file, sent when that is durable, and deleted when the OST said yes; an OST
//! that is away gets them when it is back.

use crate::MdsError;
use crate::mdt::Mdt;
use crate::schema::{key, value};
use model::limits::OBJECTS_PER_RPC_MAX;
use model::planted::{self, Bug};
use rpc::Import;
use std::sync::Arc;
use std::time::Duration;
use store::Txn;
use wire::RequestContext;
use wire::msg::destroy::Destroy;

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

    fn count_outbox(&self, index: u16, most: usize) -> usize {
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
        let (mut objects, mut keys) = (Vec::new(), Vec::new());
        for (k, v) in page {
            let o = value::decode_outbox(&k, &v)?;
            if !objects.is_empty() && objects.len() + o.len() > OBJECTS_PER_RPC_MAX {
                break;
            }
            objects.extend(o);
            keys.push(k);
        }
        assert!(!keys.is_empty(), "each message says what a record says");
        // Not before the file's end is durable: a crash must not bring back a file without its objects.
        // There is no hurry: the committer need not flush for this.
        if !planted::on(Bug::DestroyedBeforeDurable) {
            self.db.durable_in_time(view.seen()).await?;
        }
        let sent = import.call(RequestContext::default(), Destroy { objects }, bytes::Bytes::new()).await;
        sent.map_err(store::StoreError::Errno)?;
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

//! An MGS's book in etcd, and which of several MGSs may write it: the one whose lease the key `leader` is
//! under. Each transaction has the condition that this key still is the one that was made when it became
//! active, so that one that woke up late writes nothing. Keys: `docs/formats/mgt.md`.

use crate::book::Book;
use crate::state::TAG;
use etcd::{Compare, Error, Etcd, Lease, Op};
use model::mutex::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Lsn, StoreError, StoredReply, Txn};
use world::{BoxFuture, Either, World, select, sync};

/// Changes of one transaction of etcd (its own limit is 128).
const OPS_MAX: usize = 100;
/// Bytes of one transaction of etcd (its own limit is 1.5 MiB with keys in base64).
const BYTES_MAX: usize = 512 << 10;
/// One value.
const VALUE_MAX_BYTES: usize = 768 << 10;
/// One try to write, before the lease is looked at again.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(200);
/// How often a standing-by MGS looks for itself whether nobody is active.
const LOOK: Duration = Duration::from_secs(10);

type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Why the book cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error("another MGS is active: {0}")]
    Busy(String),
    #[error(transparent)]
    Etcd(#[from] Error),
    #[error("{0}")]
    Damaged(String),
}

struct EtcdSession {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    queue: VecDeque<(Lsn, Writes)>,
    submitted: Lsn,
}

#[derive(Clone, Default)]
struct Progress {
    committed: Lsn,
    stopped: Option<String>,
}

/// What an active MGS knows, in memory and in etcd.
pub struct EtcdBook {
    world: World,
    etcd: Arc<Etcd>,
    lease: Lease,
    /// Revision that made the key `leader`.
    reign: i64,
    epoch: u32,
    inner: Mutex<EtcdSession>,
    work: sync::Notify,
    progress: sync::watch::Sender<Progress>,
}

/// A key of the table as a name that etcd's tools can show: `%` and what is not plain text as `%xx`.
fn name_of(key: &[u8]) -> String {
    let mut out = String::new();
    for b in key {
        match b {
            b'!'..=b'~' if *b != b'%' => out.push(char::from(*b)),
            _ => out.push_str(&format!("%{b:02x}")),
        }
    }
    out
}

fn key_of(name: &str) -> Option<Vec<u8>> {
    let mut parts = name.split('%');
    let mut out = parts.next()?.as_bytes().to_vec();
    for p in parts {
        out.push(u8::from_str_radix(p.get(..2)?, 16).ok()?);
        out.extend_from_slice(&p.as_bytes()[2..]);
    }
    Some(out)
}

fn leader_key(etcd: &Etcd) -> String {
    etcd.key("mgs/leader")
}

/// Waits until no MGS is active (or may be: look by trying to [`EtcdBook::take`]).
pub async fn vacancy(etcd: &Arc<Etcd>) -> Result<(), Error> {
    let key = leader_key(etcd);
    loop {
        let Some(kv) = etcd.get(&key).await? else { return Ok(()) };
        etcd.watch(&key, kv.mod_revision + 1, LOOK).await?;
    }
}

/// Becomes the leader, or says who is. The revision that made its key.
async fn lead(etcd: &Etcd, lease: &Lease, who: &str) -> Result<i64, TakeError> {
    let key = leader_key(etcd);
    let mine = [Op::Put(key.clone(), who.as_bytes().to_vec(), lease.id()), Op::Get(key.clone())];
    let done = etcd.txn(&[Compare::Created(key.clone(), 0)], &mine, &[Op::Get(key)]).await?;
    let there = done.found.into_iter().next().flatten();
    let there = there.ok_or_else(|| TakeError::Damaged("etcd does not show what it was given".into()))?;
    // The answer to an earlier try may have been lost.
    if done.succeeded || there.lease == lease.id() {
        return Ok(there.create_revision);
    }
    Err(TakeError::Busy(String::from_utf8_lossy(&there.value).into_owned()))
}

/// A new epoch, greater than any before and than `least`.
async fn reign(etcd: &Etcd, leader: &Compare, least: u32) -> Result<u32, TakeError> {
    let (key, at) = (etcd.key("mgs/epoch"), etcd.key("mgs/at"));
    loop {
        let old = etcd.get(&key).await?;
        let text = old.as_ref().map_or("0".into(), |kv| kv.text().1);
        let last: u32 = text
            .parse()
            .map_err(|_| TakeError::Damaged(format!("key '{key}' in etcd is no number: '{text}'")))?;
        let next = last
            .max(least)
            .checked_add(1)
            .ok_or_else(|| TakeError::Damaged("the MGS's epochs are used up".into()))?;
        let conditions =
            [leader.clone(), Compare::Modified(key.clone(), old.map_or(0, |kv| kv.mod_revision))];
        let then =
            [Op::Put(key.clone(), next.to_string().into_bytes(), 0), Op::Put(at.clone(), word(next, 0), 0)];
        let done = etcd.txn(&conditions, &then, &[Op::Get(leader_key(etcd))]).await?;
        if done.succeeded {
            return Ok(next);
        }
        // Made already and not heard (one more epoch does no harm), or not the leader any more.
        let there = done.found.into_iter().next().flatten();
        if !matches!(leader, Compare::Created(_, r) if there.as_ref().is_some_and(|kv| kv.create_revision == *r))
        {
            return Err(TakeError::Busy(there.map_or("nobody by now".into(), |kv| kv.text().1)));
        }
    }
}

/// How far an epoch's transactions have come.
fn word(epoch: u32, transaction: u64) -> Vec<u8> {
    format!("{epoch}.{transaction}").into_bytes()
}

impl EtcdBook {
    /// Makes this process the active MGS, under a lease of length `term`, and reads everything. `who` is what
    /// others are told. [`TakeError::Busy`]: another one is.
    pub async fn take(
        etcd: &Arc<Etcd>,
        who: &str,
        term: Duration,
        least_epoch: u32,
    ) -> Result<Arc<EtcdBook>, TakeError> {
        if let Some(kv) = etcd.get(&leader_key(etcd)).await? {
            return Err(TakeError::Busy(kv.text().1));
        }
        let lease = Lease::take(etcd, term).await?;
        let taken = EtcdBook::read(etcd, &lease, who, least_epoch).await;
        let (made, epoch, map) = match taken {
            Ok(t) => t,
            Err(e) => {
                let _ = lease.end().await;
                return Err(e);
            }
        };
        let book = Arc::new(EtcdBook {
            world: etcd.world.clone(),
            etcd: etcd.clone(),
            lease,
            reign: made,
            epoch,
            inner: Mutex::new(EtcdSession { map, queue: VecDeque::new(), submitted: 0 }),
            work: sync::Notify::new(),
            progress: sync::watch::channel(Progress::default()).0,
        });
        let writer = book.clone();
        book.world.spawn("mgs-etcd", async move { writer.write_out().await });
        Ok(book)
    }

    async fn read(
        etcd: &Arc<Etcd>,
        lease: &Lease,
        who: &str,
        least_epoch: u32,
    ) -> Result<(i64, u32, BTreeMap<Vec<u8>, Vec<u8>>), TakeError> {
        let made = lead(etcd, lease, who).await?;
        let epoch = reign(etcd, &Compare::Created(leader_key(etcd), made), least_epoch).await?;
        let prefix = etcd.key("mgs/data/");
        let mut map = BTreeMap::new();
        for kv in etcd.list(&prefix).await?.1 {
            let name = String::from_utf8_lossy(&kv.key).into_owned();
            let key = name.strip_prefix(&prefix).and_then(key_of);
            let key =
                key.ok_or_else(|| TakeError::Damaged(format!("key '{name}' in etcd is not one of ours")))?;
            map.insert(key, kv.value);
        }
        Ok((made, epoch, map))
    }

    fn lock(&self) -> MutexGuard<'_, EtcdSession> {
        self.inner.lock()
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.etcd.url().to_string()
    }

    /// Of this MGS: greater than that of each before.
    pub fn epoch_number(&self) -> u32 {
        self.epoch
    }

    /// Whether nothing of a configuration is there.
    pub fn is_empty(&self) -> bool {
        !self.lock().map.keys().any(|k| k.first() == Some(&TAG))
    }

    /// Keys of the configuration, for whoever replaces it.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.lock().map.keys().cloned().collect()
    }

    fn stop(&self, why: String) {
        self.progress.send_if_modified(|p| {
            let first = p.stopped.is_none();
            if first {
                p.stopped = Some(why);
            }
            first
        });
        self.work.notify_one();
    }

    /// Waits until this MGS may not act any more; why.
    pub async fn lost(&self) -> String {
        let mut seen = self.progress.subscribe();
        let stopped = async {
            let p = seen.wait_for(|p| p.stopped.is_some()).await.expect("the sender is here");
            p.stopped.clone().unwrap_or_default()
        };
        match select(stopped, self.lease.lost()).await {
            Either::Left(why) => why,
            Either::Right(()) => {
                self.stop("its lease in etcd was not renewed for half its term".into());
                self.stopped().unwrap_or_default()
            }
        }
    }

    /// Orderly: what was submitted is in etcd, and another MGS may be active at once.
    pub async fn end(self: Arc<Self>) {
        let last = self.last_submitted();
        let written = self.clone().durable(last).await;
        self.stop("it was ended".into());
        if let Err(e) = written {
            tracing::warn!("MGS: {e}");
        }
        if let Err(e) = self.lease.end().await {
            tracing::warn!("MGS: its lease stays in etcd until it is over: {e}");
        }
    }

    /// What is to be written next, and the last transaction of it. A large one comes in parts (the
    /// configuration's version and the reply behind the rest); only the last part counts as it.
    fn next(&self) -> Option<(Lsn, Writes)> {
        let mut g = self.lock();
        let (mut lsn, mut out, mut bytes) = (0, Writes::new(), 0);
        let size = |k: &[u8], v: &Option<Vec<u8>>| k.len() + v.as_ref().map_or(0, Vec::len);
        while let Some((at, writes)) = g.queue.front_mut() {
            let all: usize = writes.iter().map(|(k, v)| size(k, v)).sum();
            if out.len() + writes.len() <= OPS_MAX && bytes + all <= BYTES_MAX {
                bytes += all;
                lsn = *at;
                out.extend(std::mem::take(writes));
                g.queue.pop_front();
                continue;
            }
            if out.is_empty() {
                while let Some((k, v)) = writes.first_key_value() {
                    if !out.is_empty() && (out.len() == OPS_MAX || bytes + size(k, v) > BYTES_MAX) {
                        break;
                    }
                    bytes += size(k, v);
                    out.extend(writes.pop_first());
                }
                if writes.is_empty() {
                    lsn = *at;
                    g.queue.pop_front();
                }
            }
            break;
        }
        (!out.is_empty() || lsn != 0).then_some((lsn, out))
    }

    async fn write_out(self: Arc<Self>) {
        let mut count = 0;
        loop {
            if self.progress.borrow().stopped.is_some() {
                return;
            }
            let Some((lsn, writes)) = self.next() else {
                self.work.notified().await;
                continue;
            };
            count += 1;
            if !self.write(&writes, count).await {
                return;
            }
            self.progress.send_modify(|p| p.committed = p.committed.max(lsn));
        }
    }

    /// False: it was not written, nor will anything else be.
    async fn write(&self, writes: &Writes, count: u64) -> bool {
        let (leader, at) = (leader_key(&self.etcd), self.etcd.key("mgs/at"));
        let conditions = [
            Compare::Created(leader.clone(), self.reign),
            Compare::Value(at.clone(), word(self.epoch, count - 1)),
        ];
        let name = |k: &[u8]| self.etcd.key(&format!("mgs/data/{}", name_of(k)));
        let mut then: Vec<Op> = writes
            .iter()
            .map(|(k, v)| match v {
                Some(v) => Op::Put(name(k), v.clone(), 0),
                None => Op::Delete(name(k)),
            })
            .collect();
        then.push(Op::Put(at.clone(), word(self.epoch, count), 0));
        let otherwise = [Op::Get(leader), Op::Get(at)];
        loop {
            if !self.is_held() {
                self.stop("its lease in etcd was not renewed for half its term".into());
                return false;
            }
            match self.etcd.txn_within(&conditions, &then, &otherwise, WRITE_PATIENCE).await {
                Ok(o) if o.succeeded => return true,
                Ok(o) => {
                    let found = |i: usize| o.found.get(i).cloned().flatten();
                    let mine = found(0).is_some_and(|kv| kv.create_revision == self.reign);
                    if mine && found(1).is_some_and(|kv| kv.value == word(self.epoch, count)) {
                        // An earlier try was made, and its answer lost.
                        return true;
                    }
                    let who = found(0).map_or("nobody".to_string(), |kv| kv.text().1);
                    self.stop(format!("another MGS took over ({who} by now)"));
                    return false;
                }
                Err(e @ Error::Unreachable { .. }) => {
                    tracing::warn!("MGS: {e}");
                    self.world.sleep(AGAIN).await;
                }
                Err(e) => {
                    self.stop(e.to_string());
                    return false;
                }
            }
        }
    }
}

impl Book for EtcdBook {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock().map.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let g = self.lock();
        let all = g.map.range(from.to_vec()..to.to_vec());
        Ok(all.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn submit(&self, txn: Txn) -> Result<Lsn, StoreError> {
        if !self.is_held() {
            return Err(StoreError::Stopped(self.stopped().unwrap_or_else(|| "its lease is over".into())));
        }
        let mut g = self.lock();
        if txn.is_empty() {
            return Ok(g.submitted);
        }
        let lsn = g.submitted + 1;
        // One change of a key in a transaction is all that etcd takes.
        let writes: Writes = txn.into_writes(self.transno(lsn)).into_iter().collect();
        if writes.values().flatten().any(|v| v.len() > VALUE_MAX_BYTES) {
            return Err(StoreError::Errno(model::Errno::E2BIG));
        }
        g.submitted = lsn;
        for (k, v) in &writes {
            match v {
                Some(v) => g.map.insert(k.clone(), v.clone()),
                None => g.map.remove(k),
            };
        }
        g.queue.push_back((lsn, writes));
        drop(g);
        self.work.notify_one();
        Ok(lsn)
    }

    fn durable(self: Arc<Self>, lsn: Lsn) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(async move {
            let mut seen = self.progress.subscribe();
            let p = seen.wait_for(|p| p.committed >= lsn || p.stopped.is_some()).await;
            let p = p.expect("the sender is here");
            match &p.stopped {
                Some(why) if p.committed < lsn => Err(StoreError::Stopped(why.clone())),
                _ => Ok(()),
            }
        })
    }

    fn last_submitted(&self) -> Lsn {
        self.lock().submitted
    }

    fn last_committed(&self) -> Lsn {
        self.progress.borrow().committed
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn transno(&self, lsn: Lsn) -> u64 {
        // As a database's: the epoch above, with room for 2^40 transactions.
        (u64::from(self.epoch) << 40) + lsn
    }

    fn reply(&self, client: &[u8; 16], slot: u16) -> Result<Option<StoredReply>, StoreError> {
        let key = StoredReply::key(client, slot);
        let Some(v) = self.get(&key)? else { return Ok(None) };
        match StoredReply::decode(&v) {
            Some(r) => Ok(Some(r)),
            None => {
                let why = format!("reply slot '{}' in etcd does not decode", name_of(&key));
                self.stop(why.clone());
                Err(StoreError::Stopped(why))
            }
        }
    }

    fn delete_replies(&self, client: &[u8; 16], txn: &mut Txn) -> Result<(), StoreError> {
        let (from, mut to) = (StoredReply::key(client, 0), StoredReply::key(client, u16::MAX));
        to.push(0);
        for (k, _) in self.scan(&from, &to, usize::MAX)? {
            txn.delete(k);
        }
        Ok(())
    }

    fn is_held(&self) -> bool {
        self.progress.borrow().stopped.is_none() && self.lease.held()
    }

    fn stopped(&self) -> Option<String> {
        self.progress.borrow().stopped.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_text_and_read_back() {
        for key in [&b"Gfdemo"[..], b"Gposc.*.max_dirty_mb", b"N\x00\xff%/ \x7f", b""] {
            let name = name_of(key);
            assert!(name.bytes().all(|b| b.is_ascii_graphic()), "{name}");
            assert_eq!(key_of(&name).as_deref(), Some(key));
        }
        assert_eq!(name_of(b"N\x00%"), "N%00%25");
        assert_eq!(key_of("a%4"), None);
        assert_eq!(key_of("a%zz"), None);
    }
}

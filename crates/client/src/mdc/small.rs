//! Small files' data and extended attributes, between the cache and the sessions: what is known without
//! asking, and fetching it, of one file or of those that will be read next.

use super::Shared;
use super::cache::{Brought, ToFetch, Token};
use super::content::{CONTENT_MAX_BYTES, Came};
use super::meta_cache::MetaCache;
use crate::Call;
use crate::base::Context;
use crate::session::Target;
use bytes::Bytes;
use model::mutex::Mutex;
use model::{Errno, Fid, Set};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::msg::lookup::Entry;
use world::sync::Notify;

/// Small files of one metadata target: what the cache has of them, and those that are being fetched.
pub(crate) struct SmallFiles {
    cx: Arc<Context>,
    pub(super) shared: Arc<Shared>,
    pub(super) target: Arc<Target>,
    pub(super) meta: Arc<MetaCache>,
    fetching: Mutex<Set<Fid>>,
    /// Told when some were fetched.
    ended: Notify,
}

/// Files are fetched by whoever holds this.
struct Fetching {
    of: Arc<SmallFiles>,
    files: Vec<Fid>,
}

impl Fetching {
    /// Those of `files` that nobody else fetches.
    fn begin(of: &Arc<SmallFiles>, files: impl IntoIterator<Item = Fid>) -> Fetching {
        let mut busy = of.fetching.lock();
        let files = files.into_iter().filter(|f| busy.insert(*f)).collect();
        Fetching { of: of.clone(), files }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let mut busy = self.of.fetching.lock();
        for f in &self.files {
            let was = busy.remove(f);
            assert!(was, "one fetches a file at a time");
        }
        drop(busy);
        self.of.ended.notify_waiters();
    }
}

/// The data that an answer brought with an inode: all of its bulk.
pub(crate) fn brought(e: Option<&Entry>, bulk: &Bytes, came: Came) -> Brought {
    let len = e?.content?;
    if bulk.len() != len as usize {
        tracing::error!("an answer with {} bytes of data says that it has {len}", bulk.len());
        return None;
    }
    Some((bulk.clone(), came))
}

impl SmallFiles {
    pub(super) fn new(meta: &Arc<MetaCache>) -> Arc<SmallFiles> {
        Arc::new(SmallFiles {
            cx: meta.cx.clone(),
            shared: meta.shared.clone(),
            target: meta.target.clone(),
            meta: meta.clone(),
            fetching: Mutex::default(),
            ended: Notify::new(),
        })
    }

    fn is_fetched(&self, fid: Fid) -> bool {
        self.fetching.lock().contains(&fid)
    }

    /// All data of a file, if it is known.
    pub(crate) fn known(self: &Arc<Self>, fid: Fid) -> Option<Bytes> {
        if !self.meta.leases_good() {
            return None;
        }
        let (data, next) = self.meta.lock().content(fid, self.cx.world.now())?;
        self.shared.content_hits.fetch_add(1, Relaxed);
        self.fetch_following(next);
        Some(data)
    }

    /// All data of a file whose data lies with its inode, fetched and kept if it may be. `None`: it is too
    /// much, lies elsewhere by now, or cannot be kept because this mount is changing it.
    pub(crate) async fn fetch(self: &Arc<Self>, call: &Call, fid: Fid) -> Result<Option<Bytes>, Errno> {
        let mut ended = Box::pin(self.ended.notified());
        ended.as_mut().enable();
        let mut mine = Fetching::begin(self, [fid]);
        if mine.files.is_empty() {
            // Somebody is at it: its answer serves if it is kept.
            loop {
                ended.await;
                if let Some(data) = self.known(fid) {
                    return Ok(Some(data));
                }
                ended = Box::pin(self.ended.notified());
                ended.as_mut().enable();
                if !self.is_fetched(fid) {
                    break;
                }
            }
            // If others were faster again: once without them.
            mine = Fetching::begin(self, [fid]);
        }
        let next = {
            let mut c = self.meta.lock();
            if c.busy.inode(fid) {
                return Ok(None);
            }
            self.shared.content_misses.fetch_add(1, Relaxed);
            c.missed_content(fid)
        };
        self.fetch_following(next);
        let got = self.fetch_files(self.cx.of(call), &[fid], Came::Asked).await?;
        drop(mine);
        Ok(got.into_iter().next().flatten().and_then(|(_, data)| data))
    }

    /// Fetches files that will be read next, in the background.
    fn fetch_following(self: &Arc<Self>, next: Option<ToFetch>) {
        let Some(ToFetch { dir, run, files }) = next else { return };
        if self.cx.max_read_ahead.load(Relaxed) == 0 {
            return self.meta.lock().followed(dir, run, &[], None);
        }
        let mine = Fetching::begin(self, files);
        let me = self.clone();
        self.cx.world.spawn("client-fetch-ahead", async move {
            let got = if mine.files.is_empty() {
                Ok(Vec::new())
            } else {
                me.fetch_files(me.cx.own(), &mine.files, Came::Ahead).await
            };
            let got = got.unwrap_or_default();
            let came = |(f, g): (&Fid, &Option<(_, Option<Bytes>)>)| {
                g.as_ref().is_some_and(|(_, d)| d.is_some()).then_some(*f)
            };
            let brought: Vec<Fid> = mine.files.iter().zip(&got).filter_map(came).collect();
            let last = got.len().checked_sub(1).map(|i| mine.files[i]);
            me.shared.content_ahead.fetch_add(brought.len() as u64, Relaxed);
            me.meta.lock().followed(dir, run, &brought, last);
            drop(mine);
        });
    }

    /// What small files may take in memory changed.
    pub(crate) fn resized(&self, max: u64) {
        self.meta.lock().contents.set_max_bytes(usize::try_from(max).unwrap_or(usize::MAX));
    }

    /// How much data a lookup asks for.
    pub(crate) fn lookup_data(&self) -> u32 {
        if self.meta.lock().contents.wish() { CONTENT_MAX_BYTES as u32 } else { 0 }
    }

    // extended attributes

    /// The value of one, if it is known: `Some(None)` if there is none.
    pub(crate) fn known_xattr(&self, fid: Fid, root: bool, name: &[u8]) -> Option<Option<Vec<u8>>> {
        if !self.meta.leases_good() {
            return None;
        }
        let mut c = self.meta.lock();
        let version = c.version(fid, self.cx.world.now())?;
        c.contents.xattr(fid, version, root, name)
    }

    /// The names of all, if they are known.
    pub(crate) fn known_xattr_names(&self, fid: Fid, root: bool) -> Option<Vec<Vec<u8>>> {
        if !self.meta.leases_good() {
            return None;
        }
        let mut c = self.meta.lock();
        let version = c.version(fid, self.cx.world.now())?;
        c.contents.xattr_names(fid, version, root)
    }

    /// What an answer to a question of `t` said of one; `None`: there is none.
    pub(crate) fn keep_xattr(&self, t: Token, fid: Fid, root: bool, name: &[u8], value: Option<Vec<u8>>) {
        let mut c = self.meta.lock();
        if let Some(v) = c.version_since(t, fid) {
            c.contents.put_xattr(fid, v, root, name, value);
        }
    }

    pub(crate) fn keep_xattr_names(&self, t: Token, fid: Fid, root: bool, names: &[Vec<u8>]) {
        let mut c = self.meta.lock();
        if let Some(v) = c.version_since(t, fid) {
            c.contents.put_xattr_names(fid, v, root, names.to_vec());
        }
    }
}

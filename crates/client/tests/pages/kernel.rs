//! A page cache.

use crate::harness::call;
use bytes::Bytes;
use client::{CacheHolder, CancelOnDrop, Fs, OpenHandle, Revoked};
use model::Fid;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use world::sync;

pub const PAGE: u64 = 4096;

struct Page {
    data: Vec<u8>,
    dirty: bool,
}

/// Locked while it is filled and while it is written; `None`: it is not there.
type Slot = Arc<sync::Mutex<Option<Page>>>;

pub struct Kernel {
    pub fs: Arc<Fs>,
    pages: Arc<Pages>,
}

#[derive(Default)]
struct Pages(Mutex<BTreeMap<(Fid, u64), Slot>>);

impl Pages {
    fn slot(&self, fid: Fid, n: u64) -> Slot {
        self.0.lock().unwrap().entry((fid, n)).or_default().clone()
    }

    /// Writes and drops what touches the range.
    async fn give_up(&self, fs: &Arc<Fs>, fid: Fid, (start, end): (u64, u64)) {
        let range = (fid, start / PAGE)..(fid, end.div_ceil(PAGE));
        let all: Vec<_> = self.0.lock().unwrap().range(range).map(|(k, s)| (k.1, s.clone())).collect();
        for (n, slot) in all {
            let mut page = slot.lock().await;
            if let Some(p) = page.take_if(|_| true)
                && p.dirty
            {
                // An error loses it, as with Linux.
                let _ = client::Pages(fs).write_pages(fid, n * PAGE, p.data.into()).await;
            }
        }
    }
}

struct Forgets {
    fs: std::sync::Weak<Fs>,
    world: world::World,
    pages: Arc<Pages>,
}

impl CacheHolder for Forgets {
    fn lapsed(&self, _: Vec<Revoked>, leave: CancelOnDrop) {
        drop(leave);
    }

    fn forget_all(&self) {}

    fn forget_pages(&self, fid: Fid, ranges: Vec<(u64, u64)>, over: CancelOnDrop) {
        let (Some(fs), pages) = (self.fs.upgrade(), self.pages.clone()) else { return };
        self.world.spawn("test-forget", async move {
            for r in ranges {
                pages.give_up(&fs, fid, r).await;
            }
            drop(over);
        });
    }

    fn changed(&self, _: Fid) {}
}

impl Kernel {
    pub fn new(fs: Arc<Fs>, world: world::World) -> Arc<Kernel> {
        let pages: Arc<Pages> = Arc::default();
        client::Pages(&fs).set_keeper(Arc::new(Forgets {
            fs: Arc::downgrade(&fs),
            world,
            pages: pages.clone(),
        }));
        Arc::new(Kernel { fs, pages })
    }

    pub async fn open(self: &Arc<Kernel>, fid: Fid, flags: u32) -> Open {
        let file = Arc::new(self.fs.clone().open(call(), fid, flags).await.unwrap());
        Open { kernel: self.clone(), file }
    }
}

#[derive(Clone)]
pub struct Open {
    kernel: Arc<Kernel>,
    file: Arc<OpenHandle>,
}

impl Open {
    pub fn fid(&self) -> Fid {
        self.file.fid
    }

    /// Works on a page that is there, filled if it was not.
    async fn page<T>(&self, n: u64, f: impl FnOnce(&mut Page) -> T) -> Result<T, String> {
        let slot = self.kernel.pages.slot(self.file.fid, n);
        let mut page = slot.lock().await;
        if page.is_none() {
            let fill = client::Pages(&self.kernel.fs).fill(call(), self.file.clone(), n * PAGE, PAGE as u32);
            let got = fill.await.map_err(|e| format!("a fill of page {n}: {e}"))?;
            let mut data = got.to_vec();
            data.resize(PAGE as usize, 0);
            *page = Some(Page { data, dirty: false });
        }
        Ok(f(page.as_mut().expect("filled")))
    }

    pub async fn load(&self, at: u64, len: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        while out.len() < len {
            let at = at + out.len() as u64;
            let from = (at % PAGE) as usize;
            let n = (len - out.len()).min(PAGE as usize - from);
            out.extend(self.page(at / PAGE, |p| p.data[from..from + n].to_vec()).await?);
        }
        Ok(out)
    }

    pub async fn store(&self, at: u64, data: &[u8]) -> Result<(), String> {
        let mut done = 0;
        while done < data.len() {
            let at = at + done as u64;
            let from = (at % PAGE) as usize;
            let n = (data.len() - done).min(PAGE as usize - from);
            let part = &data[done..done + n];
            self.page(at / PAGE, |p| {
                p.data[from..from + n].copy_from_slice(part);
                p.dirty = true;
            })
            .await?;
            done += n;
        }
        Ok(())
    }

    /// As Linux does a write to a file that is open for direct I/O and mapped.
    pub async fn write(&self, at: u64, data: &[u8]) {
        let (fs, range) = (&self.kernel.fs, (at, at + data.len() as u64));
        self.kernel.pages.give_up(fs, self.file.fid, range).await;
        let data = Bytes::copy_from_slice(data);
        fs.clone().write(call(), self.file.fid, at, false, false, data).await.unwrap();
        self.kernel.pages.give_up(fs, self.file.fid, range).await;
    }

    pub async fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let (fs, range) = (&self.kernel.fs, (at, at + len as u64));
        // Linux writes what is dirty and leaves it there; that it is filled again makes no difference.
        self.kernel.pages.give_up(fs, self.file.fid, range).await;
        fs.clone().read(call(), self.file.clone(), at, len as u32).await.unwrap().to_vec()
    }

    pub async fn seek_data(&self, from: u64) {
        self.kernel.fs.clone().seek(call(), self.file.fid, from, false).await.unwrap();
    }
}

//! Echo objects: an administrator measures the object path of a served OST without clients and network
//! (`obdfilter-survey case=disk`). Data goes the way of any write and read behind the locks, into objects of
//! no file, which are gone with the survey.

use crate::service::{Ost, Running};
use crate::space::Need;
use bytes::Bytes;
use model::mutex::Mutex;
use model::nodemap::Owner;
use model::{Errno, Fid, ObjectId, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use store::Lsn;
use store::object::ObjectMeta;
use world::{Instant, buffer};

/// Sequence of the files that echo objects would belong to: as Lustre's.
const SEQ_ECHO: u64 = 2;
const OBJECTS_MAX: u32 = 4096;
const THREADS_MAX: u32 = 4096;
/// What the requests of a run may take of the server's memory.
const MEMORY_MAX_BYTES: u64 = 1 << 30;
/// A survey that asked nothing for so long is gone, and its objects go too.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is to be done: `bytes` in all, in requests of `request` bytes, by tasks that share objects evenly.
#[derive(Clone, Copy, Debug)]
pub struct EchoLoad {
    pub write: bool,
    pub objects: u32,
    pub threads: u32,
    pub bytes: u64,
    pub request: u32,
}

impl EchoLoad {
    fn check(&self) -> Result<(), String> {
        let EchoLoad { objects, threads, bytes, request, .. } = *self;
        if objects == 0 || objects > OBJECTS_MAX || threads == 0 || threads > THREADS_MAX {
            return Err(format!("1 to {OBJECTS_MAX} objects and 1 to {THREADS_MAX} threads"));
        }
        if !threads.is_multiple_of(objects) {
            return Err(format!("{threads} threads do not share {objects} objects evenly"));
        }
        if request == 0 || request as usize > limits::RPC_BULK_MAX_BYTES {
            return Err(format!("requests of 1 to {} bytes", limits::RPC_BULK_MAX_BYTES));
        }
        if u64::from(threads) * u64::from(request) > MEMORY_MAX_BYTES {
            return Err(format!("ENOMEM: requests would take more than {} MiB", MEMORY_MAX_BYTES >> 20));
        }
        if self.count() == 0 || bytes > limits::FILE_SIZE_MAX_BYTES {
            return Err(format!("{bytes} bytes are too few or too many for {threads} threads"));
        }
        Ok(())
    }

    /// Requests of each thread.
    fn count(&self) -> u64 {
        self.bytes / u64::from(self.request) / u64::from(self.threads)
    }

    /// Which object a thread works on, and where it begins there.
    fn place(&self, thread: u32) -> (u32, u64) {
        let company = self.threads / self.objects;
        let place = (thread / company, u64::from(thread % company) * self.count() * u64::from(self.request));
        assert!(place.0 < self.objects, "threads share the objects that there are");
        place
    }
}

/// How a run stands.
#[derive(Clone, Debug, Default)]
pub struct EchoState {
    pub running: bool,
    pub bytes: u64,
    pub nanos: u64,
    pub failed: Option<String>,
}

/// A run under way, or the last one.
struct EchoRun {
    begun: Instant,
    moved: AtomicU64,
    left: AtomicUsize,
    nanos: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<String>>,
}

impl EchoRun {
    fn running(&self) -> bool {
        self.left.load(Relaxed) > 0
    }
}

/// What an OST knows of them.
#[derive(Default)]
pub struct Echo(Mutex<EchoBook>);

#[derive(Default)]
struct EchoBook {
    run: Option<Arc<EchoRun>>,
    /// Tells these objects from those of earlier surveys, which stay destroyed.
    serial: u32,
    /// So many objects may be there.
    objects: u32,
    asked: Instant,
    kept: bool,
}

fn id(serial: u32, n: u32) -> ObjectId {
    ObjectId { origin: Fid::new(SEQ_ECHO, n + 1, serial), component: 0, stripe: 0 }
}

/// The echo objects of an OST.
#[derive(Clone)]
pub struct EchoObjects(Arc<Ost>);

impl EchoObjects {
    pub fn of(ost: &Arc<Ost>) -> EchoObjects {
        EchoObjects(ost.clone())
    }

    /// Begins a run. Objects that are there are written over.
    pub fn start(&self, load: EchoLoad) -> Result<(), (Errno, String)> {
        load.check().map_err(|why| (Errno::EINVAL, why))?;
        if load.write {
            self.0.writable().map_err(|e| (e, format!("{} takes no changes", self.0.label())))?;
        }
        let mut book = self.0.echo.0.lock();
        book.asked = self.0.world.now();
        if book.run.as_ref().is_some_and(|r| r.running()) {
            return Err((Errno::EBUSY, format!("{} is being surveyed already", self.0.label())));
        }
        if book.objects == 0 {
            book.serial = self.0.world.random_u64() as u32;
        }
        book.objects = book.objects.max(load.objects);
        let run = Arc::new(EchoRun {
            begun: self.0.world.now(),
            moved: AtomicU64::new(0),
            left: AtomicUsize::new(load.threads as usize),
            nanos: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failed: Mutex::new(None),
        });
        book.run = Some(run.clone());
        let (serial, keep) = (book.serial, !std::mem::replace(&mut book.kept, true));
        drop(book);
        let data = content(load.request as usize);
        for t in 0..load.threads {
            let (me, run, data) = (self.clone(), run.clone(), data.clone());
            self.0.world.spawn("echo", async move {
                let done = me.thread(load, t, serial, &run, data).await;
                if let Err(why) = done {
                    run.failed.lock().get_or_insert(why);
                    run.stop.store(true, Relaxed);
                }
                let ns = me.0.world.now().since(run.begun).as_nanos();
                run.nanos.fetch_max(u64::try_from(ns).unwrap_or(u64::MAX), Relaxed);
                run.left.fetch_sub(1, Relaxed);
            });
        }
        if keep {
            let me = self.clone();
            self.0.world.spawn("echo-keeper", async move { me.keep().await });
        }
        Ok(())
    }

    async fn thread(
        &self,
        load: EchoLoad,
        t: u32,
        serial: u32,
        run: &EchoRun,
        data: Bytes,
    ) -> Result<(), String> {
        let _running = Running::enter(&self.0);
        let (object, base) = load.place(t);
        let object = id(serial, object);
        let mut last: Lsn = 0;
        for n in 0..load.count() {
            if run.stop.load(Relaxed) || self.0.is_stopping() {
                return Err("stopped".into());
            }
            let at = base + n * u64::from(load.request);
            let step = if load.write {
                self.write(object, at, data.clone(), &mut last).await
            } else {
                self.read(object, at, load.request).await
            };
            let verb = if load.write { "write to" } else { "read of" };
            step.map_err(|e| {
                format!("{}: {verb} echo object {object} at {at}: {}", self.0.label(), e.text())
            })?;
            run.moved.fetch_add(u64::from(load.request), Relaxed);
        }
        // What is measured is the disk, not what may be lost with the server.
        self.0.db.durable(last).await.map_err(|e| format!("{}: {e}", self.0.label()))
    }

    async fn write(&self, object: ObjectId, at: u64, data: Bytes, last: &mut Lsn) -> Result<(), Errno> {
        let _space = self.0.space.admit(Need::Grow(data.len() as u64), self.0.settings.reserve())?;
        let meta = ObjectMeta {
            file: object.origin,
            owner: Owner::new(0, 0, 0),
            owner_as_of: None,
            time: Some(self.0.world.wall()),
            data_version: None,
            label: None,
        };
        let nothing = Box::new(|_: &mut store::Txn, _, _: &model::ObjectAttr| ());
        let written = self.0.objects.write_summed(object, Some(at), data, None, meta, nothing).await;
        *last = written.map_err(|e| e.errno())?.2;
        Ok(())
    }

    async fn read(&self, object: ObjectId, at: u64, len: u32) -> Result<(), Errno> {
        let found = self.0.objects.read(object, at, len).await.map_err(|e| e.errno())?;
        // it was written with fewer bytes
        if found.data.len() as u64 == u64::from(len) { Ok(()) } else { Err(Errno::ENODATA) }
    }

    /// How the newest run stands.
    pub fn look(&self) -> EchoState {
        let mut book = self.0.echo.0.lock();
        book.asked = self.0.world.now();
        let Some(run) = &book.run else { return EchoState::default() };
        EchoState {
            running: run.running(),
            bytes: run.moved.load(Relaxed),
            nanos: run.nanos.load(Relaxed),
            failed: run.failed.lock().clone(),
        }
    }

    /// Ends a run, if there is one, and removes what all wrote.
    pub async fn clean(&self) -> Result<(), String> {
        let (run, serial, count) = {
            let mut book = self.0.echo.0.lock();
            book.asked = self.0.world.now();
            (book.run.take(), book.serial, std::mem::take(&mut book.objects))
        };
        if let Some(run) = run {
            run.stop.store(true, Relaxed);
            while run.running() {
                self.0.world.sleep(Duration::from_millis(1)).await;
            }
        }
        let _running = Running::enter(&self.0);
        let ids: Vec<ObjectId> = (0..count).map(|n| id(serial, n)).collect();
        for some in ids.chunks(limits::OBJECTS_PER_RPC_MAX) {
            let destroyed = self.0.objects.destroy(some.to_vec(), Box::new(|_, _, _| ())).await;
            let lsn =
                destroyed.map_err(|e| format!("{}: cannot remove echo objects: {e}", self.0.label()))?;
            self.0.db.durable(lsn).await.map_err(|e| format!("{}: {e}", self.0.label()))?;
        }
        Ok(())
    }

    /// Removes the objects of a survey that was killed.
    async fn keep(&self) {
        loop {
            self.0.world.sleep(LOOK_EVERY).await;
            let now = self.0.world.now();
            let gone = {
                let mut book = self.0.echo.0.lock();
                if book.objects == 0 || self.0.is_stopping() {
                    book.kept = false;
                    return;
                }
                now.since(book.asked) > PATIENCE
            };
            if gone {
                tracing::warn!(
                    "{}: whoever surveyed this target is gone: its objects go too",
                    self.0.label()
                );
                if let Err(e) = self.clean().await {
                    tracing::warn!("{e}");
                }
            }
        }
    }
}

/// Bytes that no disk stores as nothing.
fn content(len: usize) -> Bytes {
    let mut b = buffer::bulk(len);
    for (i, byte) in b.iter_mut().enumerate() {
        *byte = (i as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0] | 1;
    }
    b.share(0..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_objects_without_overlap() {
        let l = EchoLoad { write: true, objects: 2, threads: 6, bytes: 60 << 10, request: 1 << 10 };
        assert_eq!((l.check(), l.count()), (Ok(()), 10));
        let places: Vec<(u32, u64)> = (0..6).map(|t| l.place(t)).collect();
        assert_eq!(places, [(0, 0), (0, 10240), (0, 20480), (1, 0), (1, 10240), (1, 20480)]);
    }

    #[test]
    fn what_is_too_much_is_refused_with_words() {
        let good = EchoLoad { write: true, objects: 1, threads: 1, bytes: 1 << 20, request: 1 << 20 };
        let says = |l: EchoLoad, part: &str| {
            let why = l.check().unwrap_err();
            assert!(why.contains(part), "{why}");
        };
        says(EchoLoad { objects: 0, ..good }, "1 to 4096 objects");
        says(EchoLoad { objects: 2, threads: 3, ..good }, "evenly");
        says(EchoLoad { request: 32 << 20, ..good }, "requests of");
        says(EchoLoad { threads: 4096, ..good }, "ENOMEM");
        says(EchoLoad { threads: 2, ..good }, "too few");
    }
}

//! Who is told of an error: a client is evicted with bytes and names that only it has. Each handle of a file
//! or directory that lost something is told at its next fsync, once, whatever was closed before; handles of
//! others are not.

use crate::cluster::Cluster;
use crate::exec::{O_RDWR, call, file, read_at};
use crate::run::Violation;
use ::world::rng::Rng;
use bytes::Bytes;
use client::{ErrorCursor, Fs, OpenHandle};
use model::{Errno, Fid};
use std::sync::Arc;
use std::time::Duration;

const O_RDONLY: u32 = 0;
/// On an object server, and with the inode.
const SIZES: [usize; 2] = [40_000, 3000];
const OLD: u8 = 1;
const NEW: u8 = 2;
/// What the client makes in the directory that it may lose.
const NAME: &[u8] = b"new";
/// It has come back to all servers after so many tries, of so long each.
const TRIES: u32 = 100;
const TRY_AGAIN: Duration = Duration::from_secs(1);

fn gave(what: &'static str) -> impl Fn(Errno) -> Violation {
    move |e| format!("who is told: {what} gave {e}")
}

/// A file with handles.
struct Open {
    fid: Fid,
    size: usize,
    handles: Vec<Arc<OpenHandle>>,
}

impl Open {
    async fn new(fs: &Arc<Fs>, dir: Fid, name: &str, stripes: i32, size: usize) -> Result<Open, Violation> {
        let fid = file(fs, dir, name, stripes).await.map_err(gave("create"))?;
        let mut handles = Vec::new();
        for flags in [O_RDWR, O_RDWR, O_RDONLY] {
            handles.push(Arc::new(fs.clone().open(call(), fid, flags).await.map_err(gave("open"))?));
        }
        let open = Open { fid, size, handles };
        open.fill(fs, OLD).await?;
        open.fsync(fs, 0).await.map_err(gave("fsync"))?;
        Ok(open)
    }

    async fn fill(&self, fs: &Arc<Fs>, value: u8) -> Result<(), Violation> {
        let data = Bytes::from(vec![value; self.size]);
        fs.clone().write(call(), self.fid, 0, false, false, data).await.map(drop).map_err(gave("write"))
    }

    async fn fsync(&self, fs: &Arc<Fs>, handle: usize) -> Result<(), Errno> {
        fs.clone().fsync_open(call(), &self.handles[handle].errors).await
    }

    async fn close(self, fs: &Arc<Fs>) {
        for h in self.handles {
            let _ = fs.clone().close(h).await;
        }
    }
}

/// What a client stands to lose, and what it does not.
pub struct Stakes {
    fs: Arc<Fs>,
    top: Fid,
    name: String,
    files: Vec<Open>,
    calm: Open,
    dir: (Fid, [ErrorCursor; 2]),
    calm_dir: ErrorCursor,
}

impl Stakes {
    /// Everything is on the servers' disks.
    pub async fn new(fs: &Arc<Fs>, osts: usize, rng: &mut Rng) -> Result<Stakes, Violation> {
        let name = format!("told{}", rng.below(u64::MAX));
        let mkdir = |dir: Fid, name: &str| {
            let made = fs.clone().mkdir(call(), dir, name.as_bytes().to_vec(), 0o755);
            async move { made.await.map(|a| a.fid).map_err(gave("mkdir")) }
        };
        let top = mkdir(fs.root(), &name).await?;
        let (dir, calm_dir) = (mkdir(top, "dir").await?, mkdir(top, "calm-dir").await?);
        let mut files = Vec::new();
        for (i, size) in SIZES.into_iter().enumerate() {
            files.push(Open::new(fs, top, &format!("f{i}"), 1 - i as i32, size).await?);
        }
        let calm = Open::new(fs, top, "calm", osts as i32, SIZES[0]).await?;
        fs.clone().fsync(call(), top).await.map_err(gave("fsync"))?;
        let watch = |fid| fs.watch_errors(fid);
        let (dir, calm_dir) = ((dir, [watch(dir), watch(dir)]), watch(calm_dir));
        Ok(Stakes { fs: fs.clone(), top, name, files, calm, dir, calm_dir })
    }

    /// From now on there is something to lose.
    pub async fn put(&self) -> Result<(), Violation> {
        for f in &self.files {
            f.fill(&self.fs, NEW).await?;
        }
        let made = self.fs.clone().mkdir(call(), self.dir.0, NAME.to_vec(), 0o755).await;
        made.map(drop).map_err(gave("mkdir"))
    }

    /// The client has slept. `other` sees what it lost.
    pub async fn check(self, c: &Cluster, other: &Arc<Fs>) -> Result<(), Violation> {
        self.come_back(c).await?;
        for (i, f) in self.files.iter().enumerate() {
            let told = self.tell(f).await.map_err(|e| format!("file {i}, {}: {e}", f.fid))?;
            let seen = read_at(other, f.fid, 0, f.size).await.map_err(gave("another client's read"))?;
            let lost = seen.len() != f.size || seen.iter().any(|b| *b != NEW);
            if lost && !told {
                return Err(format!("who is told: nobody, though bytes of {} are lost", f.fid));
            }
        }
        let told = self.tell_dir().await?;
        match other.clone().lookup(call(), self.dir.0, NAME.to_vec()).await {
            Err(Errno::ENOENT) if !told => {
                return Err(format!("who is told: nobody, though a name in {} is lost", self.dir.0));
            }
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(gave("another client's lookup")(e)),
        }
        let calm = [&self.calm.handles[0].errors, &self.calm.handles[2].errors, &self.calm_dir];
        for cursor in calm {
            self.fs.clone().fsync_open(call(), cursor).await.map_err(gave("fsync of what lost nothing"))?;
        }
        self.clear(other).await
    }

    /// Until every server answers this client again.
    async fn come_back(&self, c: &Cluster) -> Result<(), Violation> {
        let (fs, mut last) = (&self.fs, Errno::EIO);
        for i in 0..TRIES {
            let all = async {
                fs.clone().mkdir(call(), self.top, format!("try{i}").into_bytes(), 0o755).await?;
                fs.clone().fsync(call(), self.top).await?;
                fs.clone().fsync(call(), self.calm.fid).await
            };
            match all.await {
                Ok(()) => return Ok(()),
                Err(e) => last = e,
            }
            c.sim.sleep(TRY_AGAIN).await;
        }
        Err(gave("coming back")(last))
    }

    /// Whether the handles of a file are told of an error: all or none, and once.
    async fn tell(&self, f: &Open) -> Result<bool, Violation> {
        let fs = &self.fs;
        // A child that inherited the first ends; somebody who only reads closes.
        let child = f.handles[0].error_at_close();
        f.handles[2].error_at_close().map_err(gave("a reader's close"))?;
        let late = Arc::new(fs.clone().open(call(), f.fid, O_RDWR).await.map_err(gave("open"))?);
        let mut told = Vec::new();
        for (i, h) in f.handles.iter().chain([&late]).enumerate() {
            told.push(fs.clone().fsync_open(call(), &h.errors).await.is_err());
            let again = fs.clone().fsync_open(call(), &h.errors).await;
            again.map_err(|e| format!("who is told: handle {i} twice, {e}"))?;
        }
        if told.iter().any(|t| *t != told[0]) || (child.is_err() && !told[0]) {
            return Err(format!("who is told: the handles {told:?}, a child's close {child:?}"));
        }
        let after = Arc::new(fs.clone().open(call(), f.fid, O_RDWR).await.map_err(gave("open"))?);
        fs.clone().fsync_open(call(), &after.errors).await.map_err(gave("fsync of who came later"))?;
        for h in [late, after] {
            fs.clone().close(h).await.map_err(gave("close"))?;
        }
        Ok(told[0])
    }

    async fn tell_dir(&self) -> Result<bool, Violation> {
        let late = self.fs.watch_errors(self.dir.0);
        let mut told = Vec::new();
        for c in self.dir.1.iter().chain([&late]) {
            told.push(self.fs.clone().fsync_open(call(), c).await.is_err());
            let again = self.fs.clone().fsync_open(call(), c).await;
            again.map_err(gave("another fsync of a directory"))?;
        }
        if told.iter().any(|t| *t != told[0]) {
            return Err(format!("who is told: of a directory {told:?}"));
        }
        Ok(told[0])
    }

    /// Takes everything away again, by the other client.
    async fn clear(self, other: &Arc<Fs>) -> Result<(), Violation> {
        let Stakes { fs, top, name, files, calm, dir, calm_dir } = self;
        for f in files.into_iter().chain([calm]) {
            f.close(&fs).await;
        }
        drop((dir, calm_dir));
        let mut todo = vec![(other.root(), name.into_bytes(), top, false)];
        while let Some((parent, name, fid, emptied)) = todo.pop() {
            if emptied {
                other.clone().rmdir(call(), parent, name).await.map_err(gave("rmdir"))?;
                continue;
            }
            todo.push((parent, name, fid, true));
            for (name, child, kind) in
                crate::exec::list(other, fid, 4096, false).await.map_err(gave("readdir"))?
            {
                match child {
                    Some(child) if kind == model::FileType::Directory => todo.push((fid, name, child, false)),
                    _ => other.clone().unlink(call(), fid, name).await.map_err(gave("unlink"))?,
                }
            }
        }
        Ok(())
    }
}

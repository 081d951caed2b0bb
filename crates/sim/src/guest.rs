//! A client that sleeps for so long that it is evicted, and goes on as if nothing had been: it must not show
//! what it kept, nor write it over what others wrote meanwhile.

use crate::Rest;
use crate::cluster::Cluster;
use crate::exec::{call, file, read_at};
use crate::nemesis::Nemesis;
use crate::run::{Violation, Work, until_first_error};
use crate::told::Stakes;
use bytes::Bytes;
use client::Fs;
use model::{Errno, Fid};
use std::sync::Arc;
use std::time::Duration;

/// A client that woke up has been told of its eviction after so long, or has nothing to say to that server.
const HEARS: Duration = Duration::from_secs(5);
/// Sooner than a client whose connection broke comes again.
const LOOK: Duration = Duration::from_millis(2);

/// On an object server, and with the inode.
const SIZES: [usize; 2] = [40_000, 3000];

fn gave(what: &'static str) -> impl Fn(Errno) -> Violation {
    move |e| format!("stale client: {what} gave {e}")
}

async fn fill(fs: &Arc<Fs>, fid: Fid, bytes: usize, value: u8) -> Result<(), Errno> {
    let data = Bytes::from(vec![value; bytes]);
    fs.clone().write(call(), fid, 0, false, false, data).await.map(drop)
}

/// All bytes are this.
async fn holds(fs: &Arc<Fs>, fid: Fid, bytes: usize, value: u8) -> Result<bool, Errno> {
    let seen = read_at(fs, fid, 0, bytes).await?;
    Ok(seen.len() == bytes && seen.iter().all(|b| *b == value))
}

/// An error is an honest answer of a client that was thrown out: that its bytes or locks are lost, or its
/// handle.
fn honest(e: Errno) -> Result<bool, Errno> {
    if matches!(e, Errno::EIO | Errno::ESTALE | Errno::ENOLCK) { Ok(true) } else { Err(e) }
}

impl Nemesis {
    pub(crate) async fn stale_client(&mut self, c: &Arc<Cluster>) -> Result<(), Violation> {
        let guest = c.guest.clone();
        c.mount_on(&guest, c.mounts.len()).await.map_err(|e| e.to_string())?;
        let (fs, _) = guest.get().ok_or("the guest is gone")?;
        let (other, _) = c.mounts[self.rng.index(c.mounts.len())].get().ok_or("a mount is gone")?;
        let mut files = Vec::new();
        for (i, bytes) in SIZES.into_iter().enumerate() {
            let name = format!("guest{}", self.rng.below(u64::MAX));
            let fid = file(&fs, fs.root(), &name, 1 - i as i32).await.map_err(gave("create"))?;
            fill(&fs, fid, bytes, 1).await.map_err(gave("write"))?;
            fs.clone().fsync(call(), fid).await.map_err(gave("fsync"))?;
            if !holds(&fs, fid, bytes, 1).await.map_err(gave("read"))? {
                return Err("stale client: it does not read what it wrote".into());
            }
            files.push((fid, name, bytes));
        }
        let stakes = Stakes::new(&fs, c.servers.len() - 1, &mut self.rng).await?;
        // Some of this may stay with the guest.
        for (fid, _, bytes) in &files {
            fill(&fs, *fid, *bytes, 2).await.map_err(gave("write"))?;
        }
        stakes.put().await?;
        let before = self.rng.below(30_000);
        c.sim.sleep(Duration::from_micros(before)).await;
        guest.node.pause_with(*self.rng.pick(&Rest::ALL));
        c.sim.count("stale_client");
        let asleep = Duration::from_secs(self.rng.range(36, 90));
        let wakes = async {
            c.sim.sleep(asleep).await;
            guest.node.resume();
            Ok(())
        };
        let wait = Duration::from_secs(self.rng.below(30));
        let changes = async {
            c.sim.sleep(wait).await;
            for (fid, _, bytes) in &files {
                fill(&other, *fid, *bytes, 3).await.map_err(gave("another client's write"))?;
                other.clone().fsync(call(), *fid).await.map_err(gave("another client's fsync"))?;
            }
            Ok(())
        };
        let untold = self.rng.coin();
        if untold {
            c.sim.lose_word_of_eviction(&guest.node);
        }
        let until = asleep + HEARS;
        let restarts = async {
            let start = c.sim.now();
            while untold && c.sim.now() - start < until.as_nanos() as u64 {
                let said = |s: &usize| c.sim.word_of_eviction_was_lost(c.servers[*s].node());
                if let Some(s) = (0..c.servers.len()).find(said) {
                    c.sim.keep_word_of_eviction();
                    let power = self.rng.coin();
                    self.restart(c, &[s], power).await;
                    break;
                }
                c.sim.sleep(LOOK).await;
            }
            c.sim.keep_word_of_eviction();
            Ok(())
        };
        let all: Vec<Work<'_>> = vec![Box::pin(wakes), Box::pin(changes), Box::pin(restarts)];
        until_first_error(all).await?;
        for (fid, _, bytes) in &files {
            let held = holds(&fs, *fid, *bytes, 3).await;
            held.or_else(honest).map_err(gave("an evicted client's read"))?;
            if let Ok(false) = held {
                let seen = read_at(&fs, *fid, 0, *bytes).await.map(|d| (d.len(), d.first().copied()));
                return Err(format!(
                    "a client that was evicted reads what it kept: {fid}, {bytes} bytes: {seen:?}"
                ));
            }
            fs.clone()
                .fsync(call(), *fid)
                .await
                .map(|()| true)
                .or_else(honest)
                .map_err(gave("an evicted client's fsync"))?;
            if !holds(&other, *fid, *bytes, 3).await.map_err(gave("another client's read"))? {
                return Err("a client that was evicted wrote over what others wrote meanwhile".into());
            }
        }
        stakes.check(c, &other).await?;
        drop(fs);
        c.leave(&guest).await;
        for (_, name, _) in files {
            other.clone().unlink(call(), other.root(), name.into_bytes()).await.map_err(gave("unlink"))?;
        }
        Ok(())
    }
}

//! Faults with a look of their own: what random operations beside random faults meet once in a thousand runs.

use crate::cluster::Cluster;
use crate::exec::{call, file, read_at};
use crate::nemesis::Nemesis;
use crate::run::{Violation, Work, until_first_error};
use ::world::rng::Rng;
use bytes::Bytes;
use client::Fs;
use model::{Errno, TargetId};
use std::sync::Arc;
use std::time::Duration;

/// Of the file that is overwritten.
const FILE_BYTES: usize = 150_000;

fn gave(what: &'static str) -> impl Fn(Errno) -> Violation {
    move |e| format!("{what} around a crash gave {e}")
}

fn new_name(rng: &mut Rng) -> String {
    format!("drill{}", rng.below(u64::MAX))
}

/// Two mounts that are there, perhaps the same one; with the number of the first.
fn two(c: &Cluster, rng: &mut Rng) -> Option<(usize, Arc<Fs>, Arc<Fs>)> {
    let (a, b) = (rng.index(c.mounts.len()), rng.index(c.mounts.len()));
    Some((a, c.mounts[a].get()?.0, c.mounts[b].get()?.0))
}

impl Nemesis {
    /// The MDT goes down while a client has something to tell it, and hears of nothing but that the client is
    /// back: others must wait for what it has to tell.
    pub(crate) async fn crash_mds_and_cut(
        &mut self,
        c: &Arc<Cluster>,
        pause: Duration,
    ) -> Result<(), Violation> {
        let Some((a, owner, other)) = two(c, &mut self.rng) else { return Ok(()) };
        let name = new_name(&mut self.rng).into_bytes();
        let dir = owner.clone().mkdir(call(), owner.root(), name.clone(), 0o755).await;
        let dir = dir.map_err(gave("mkdir"))?.fid;
        let children: Vec<Vec<u8>> = (0..5).map(|i| vec![b'0' + i]).collect();
        for child in &children {
            owner.clone().mkdir(call(), dir, child.clone(), 0o755).await.map_err(gave("mkdir of a child"))?;
        }
        let power = self.rng.coin();
        self.restart(c, &[0], power).await;
        let mdt = TargetId::mdt(0);
        let back =
            |fs: &Arc<Fs>| client::Admin(fs).targets().iter().any(|t| t.target == mdt && t.state == "FULL");
        for _ in 0..20_000 {
            if back(&owner) {
                break;
            }
            c.sim.sleep(Duration::from_micros(30)).await;
        }
        c.sim.partition(&c.mounts[a].node, c.servers[0].node(), false);
        c.sim.count("cut_after_restart");
        let heal = async {
            c.sim.sleep(pause).await;
            c.sim.heal();
            Ok(())
        };
        let look = async {
            for child in &children {
                let seen = other.clone().lookup(call(), dir, child.clone()).await;
                seen.map_err(gave("looking for what another client made"))?;
            }
            for child in children.iter().rev() {
                other.clone().rmdir(call(), dir, child.clone()).await.map_err(gave("rmdir of a child"))?;
            }
            other.clone().rmdir(call(), other.root(), name.clone()).await.map_err(gave("rmdir"))
        };
        let both: Vec<Work<'_>> = vec![Box::pin(heal), Box::pin(look)];
        until_first_error(both).await
    }

    /// The power of all OSTs fails while a file is overwritten and flushed.
    pub(crate) async fn crash_osts_under_flush(&mut self, c: &Arc<Cluster>) -> Result<(), Violation> {
        let Some((_, writer, reader)) = two(c, &mut self.rng) else { return Ok(()) };
        let name = new_name(&mut self.rng);
        let fid = file(&writer, writer.root(), &name, 1).await.map_err(gave("create"))?;
        let write = |value: u8| {
            let data = Bytes::from(vec![value; FILE_BYTES]);
            let (w, w2) = (writer.clone(), writer.clone());
            async move {
                w.write(call(), fid, 0, false, false, data).await.map_err(gave("overwriting"))?;
                w2.fsync(call(), fid).await.map_err(gave("fsync"))
            }
        };
        write(1).await?;
        // Data and journal are on their way to the disk for long.
        let osts = &c.servers[1..];
        let before: Vec<(u64, u64)> = osts.iter().map(|s| s.set_blocking_time(200, 6000)).collect();
        let rounds = 4;
        for value in 2..2 + rounds {
            let soon = Duration::from_micros(self.rng.range(1, 12_000));
            let all: Vec<usize> = (1..c.servers.len()).collect();
            let power = async {
                c.sim.sleep(soon).await;
                self.restart(c, &all, true).await;
                Ok(())
            };
            let both: Vec<Work<'_>> = vec![Box::pin(write(value)), Box::pin(power)];
            until_first_error(both).await?;
            let data = read_at(&reader, fid, 0, FILE_BYTES).await;
            let data = data.map_err(gave("reading what was overwritten"))?;
            if data.len() != FILE_BYTES || data.iter().any(|b| *b != value) {
                return Err(format!(
                    "a file that was overwritten with {value} while power failed: {} bytes",
                    data.len()
                ));
            }
        }
        for (s, (min, max)) in osts.iter().zip(before) {
            s.set_blocking_time(min, max);
        }
        c.sim.count("power_loss_under_flush");
        writer.clone().unlink(call(), writer.root(), name.into_bytes()).await.map_err(gave("unlink"))
    }
}

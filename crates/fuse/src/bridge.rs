//! What all requests of one mount share.

use crate::control::ReplyParts;
use crate::handles::Handles;
use crate::interrupt::Table;
use crate::kernel::Kernel;
use crate::nodes::Nodes;
use crate::options::FileLocks;
use crate::recent::Recent;
use crate::session::Config;
use crate::writeback::Writeback;
use client::{CacheHolder, Fs, UnderWay};
use model::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use world::World;

/// Time for the answer to a shutdown.
const ANSWER: Duration = Duration::from_millis(20);

/// State of one mount between the kernel and the client.
pub struct Bridge {
    pub world: World,
    pub fs: Arc<Fs>,
    pub nodes: Arc<Nodes>,
    pub handles: Handles,
    /// Supplementary groups of callers (thread, user, group). FUSE does not tell them, and a look into /proc
    /// is dear (`world::host`).
    ///
    /// The kernel checks each permission itself, with the groups that the caller has (`default_permissions`):
    /// who has left a group meanwhile is refused there. Who has come into one could be refused by a server
    /// that is told the old ones, so whoever is refused is looked at again (`ops::start`).
    pub groups: Recent<(u32, u32, u32), Vec<u32>>,
    pub table: Table,
    pub writeback: Arc<Writeback>,
    pub kernel: Arc<Kernel>,
    /// Unlocks by closes that nobody waits for.
    pub releases: Arc<UnderWay>,
    pub pages: ReplyParts,
    pub readdirplus: bool,
    pub locks: FileLocks,
    /// The last close that had to wait for the servers waited in vain.
    pub slow_close: AtomicBool,
    /// Writing "1" ends the connection at once.
    abort: Option<OwnedFd>,
    dead: AtomicBool,
}

impl Bridge {
    pub fn new(
        world: World,
        fs: Arc<Fs>,
        kernel: Arc<Kernel>,
        nodes: Arc<Nodes>,
        writeback: Arc<Writeback>,
        config: &Config,
        abort: Option<OwnedFd>,
    ) -> Bridge {
        Bridge {
            world,
            fs,
            nodes,
            handles: Handles::default(),
            groups: Recent::default(),
            table: Table::default(),
            writeback,
            kernel,
            releases: Arc::default(),
            pages: ReplyParts::default(),
            readdirplus: config.readdirplus,
            locks: config.locks,
            slow_close: AtomicBool::new(false),
            abort,
            dead: AtomicBool::new(false),
        }
    }

    /// Every request fails from now on, nothing is answered from what the kernel keeps either, and the kernel
    /// ends the connection a moment later: whoever asked for it gets an answer first.
    pub async fn shut_down(self: &Arc<Self>) {
        self.dead.store(true, Ordering::Release);
        let kernel = self.kernel.clone();
        self.world.blocking(move || kernel.forget_all()).await;
        // The request that asks for it is among them: it must not wait for anything after this.
        self.table.cancel_all(Errno::EIO);
        let b = self.clone();
        self.world.spawn("fuse-shutdown", async move {
            b.world.sleep(ANSWER).await;
            let Some(fd) = &b.abort else { return };
            if let Err(e) = rustix::io::write(fd, b"1") {
                tracing::error!("the connection to the kernel cannot be aborted: {e}");
            }
        });
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }
}

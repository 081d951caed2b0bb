//! Mount points that stand for targets: `mount -t nacre FOLDER MOUNT_POINT` starts a target, `umount` of the
//! mount point stops it. Targets of one address share a process, so they come to it and leave it.

use super::ended::StartError;
use super::target::{self, Held};
use super::{Node, args, registration};
use admin::local::DaemonReply;
use model::Errno;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::format::Superblock;
use world::sys::{files, mounts};

/// The same folder may be on its way out after an umount.
const LEAVING_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A target's folder and the mount point that stands for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub folder: String,
    at: PathBuf,
}

impl Mark {
    pub fn new(folder: &str, at: &str) -> Mark {
        Mark { folder: folder.to_string(), at: PathBuf::from(at) }
    }

    /// For a daemon that is to have it.
    pub fn arguments(&self) -> [OsString; 3] {
        [args::Options::MOUNTED.into(), self.folder.clone().into(), self.at.clone().into_os_string()]
    }

    /// Whether the host's table of mounts has it.
    fn is_listed(&self) -> std::io::Result<bool> {
        Ok(mounts::list()?.iter().any(|m| m.dir == self.at && m.is_mark_of(&self.folder)))
    }

    /// What cannot be looked at is there still.
    pub fn is_there(&self) -> bool {
        self.is_listed().unwrap_or(true)
    }

    /// After another start it is there already.
    pub fn place(&self) -> Result<(), StartError> {
        if self.is_listed().unwrap_or(false) {
            return Ok(());
        }
        mounts::mark(&self.folder, &self.at).map_err(|e| {
            StartError::new(format!("cannot mount '{}' at '{}': {e}", self.folder, self.at.display()))
        })
    }

    /// When its target ends for another reason.
    pub fn take_away(&self) {
        if self.is_there()
            && let Err(e) = mounts::unmount(&self.at, mounts::Unmount::Lazy)
        {
            tracing::warn!("cannot unmount '{}': {e}", self.at.display());
        }
    }
}

/// One that is to be served as well.
pub struct Arrival {
    folder: String,
    /// Why it is not.
    failed: Option<StartError>,
}

/// What the daemon knows of mount points.
#[derive(Default)]
pub struct Marks {
    pub all: Vec<Mark>,
    arrivals: Vec<Arrival>,
    /// Nothing is taken any more.
    ending: bool,
}

impl Node {
    /// Those that are served.
    pub fn marks(&self) -> Vec<Mark> {
        self.marks.lock().all.clone()
    }

    /// After a start: the mount points appear when the targets are served.
    pub fn place_marks(&self, marks: Vec<Mark>) -> Result<(), StartError> {
        for m in &marks {
            m.place()?;
        }
        self.marks.lock().all.extend(marks);
        Ok(())
    }

    /// Folders that will be free in a moment.
    pub fn leaving(&self) -> Vec<String> {
        let (all, ending) = {
            let g = self.marks.lock();
            (g.all.clone(), g.ending)
        };
        if ending {
            return self.targets().iter().map(|t| t.dir.clone()).collect();
        }
        all.into_iter().filter(|m| !m.is_there()).map(|m| m.folder).collect()
    }

    /// Nothing is taken any more: it ends.
    pub fn begin_to_end(&self) {
        self.marks.lock().ending = true;
    }

    /// Whether everything that was mounted is gone, and there is nothing else: no more is taken then.
    pub fn ends_by_umount(&self) -> bool {
        let mut g = self.marks.lock();
        let over = !self.options.mounted.is_empty()
            && self.standby.is_none()
            && g.all.is_empty()
            && !g.arrivals.iter().any(|j| j.failed.is_none())
            && self.targets.lock().is_empty();
        g.ending |= over;
        assert!(!over || g.all.is_empty(), "a server ends after its targets");
        over
    }

    /// Targets whose mount points were unmounted are served no more.
    pub async fn take_out_unmounted(&self) {
        for m in self.marks().into_iter().filter(|m| !m.is_there()) {
            tracing::info!("'{}' was unmounted: stopping '{}'", m.at.display(), m.folder);
            self.take_out(&m.folder).await;
            self.marks.lock().all.retain(|other| *other != m);
        }
    }

    /// Stops what is in a folder, and lets it go.
    async fn take_out(&self, folder: &str) {
        let its: Vec<_> = self.targets().into_iter().filter(|t| t.is_in(folder)).collect();
        let served: Vec<_> = its.iter().filter(|t| !t.taken_out.swap(true, Relaxed)).collect();
        for t in &served {
            self.end(t).await;
        }
        for t in &served {
            t.leave().await;
        }
        its.iter().for_each(|t| t.let_go());
        self.targets.lock().retain(|t| !t.is_in(folder));
        registration::look_again(&its);
        assert!(!self.targets().iter().any(|t| t.is_in(folder)), "what was let go is served no more");
    }

    /// Begins to serve one more target; [`Node::joined`] says how that went.
    pub fn join(self: &Arc<Self>, folder: &str, at: PathBuf, abort_recov: bool) -> DaemonReply {
        {
            let mut g = self.marks.lock();
            if g.ending {
                return DaemonReply::Error { errno: Errno::ESHUTDOWN.0, message: "it ends".to_string() };
            }
            if g.arrivals.iter().any(|j| j.folder == folder && j.failed.is_none()) {
                let message = "somebody mounts it at the moment".to_string();
                return DaemonReply::Error { errno: Errno::EALREADY.0, message };
            }
            g.arrivals.retain(|j| j.folder != folder);
            g.arrivals.push(Arrival { folder: folder.to_string(), failed: None });
        }
        let (node, mark) = (self.clone(), Mark { folder: folder.to_string(), at });
        self.world.spawn("join", async move {
            let done = node.take_in(&mark, abort_recov).await;
            let mut g = node.marks.lock();
            g.arrivals.retain(|j| j.folder != mark.folder);
            match done {
                Ok(()) => {
                    tracing::info!("serving '{}' as well, by '{}'", mark.folder, mark.at.display());
                    g.all.push(mark);
                }
                Err(failed) => g.arrivals.push(Arrival { folder: mark.folder, failed: Some(failed) }),
            }
        });
        DaemonReply::Done
    }

    /// What became of [`Node::join`].
    pub fn joined(&self, folder: &str) -> DaemonReply {
        let mut g = self.marks.lock();
        // The mount point of before may still be on its way out.
        let Some(i) = g.arrivals.iter().position(|j| j.folder == folder) else {
            let its = self.targets().into_iter().filter(|t| t.is_in(folder)).map(|t| t.label());
            let its = its.collect::<Vec<_>>().join(" ");
            return match g.all.iter().any(|m| m.folder == folder) {
                true => DaemonReply::Text(its),
                false => {
                    DaemonReply::Error { errno: Errno::ENOENT.0, message: "it was unmounted".to_string() }
                }
            };
        };
        match &g.arrivals[i].failed {
            None => DaemonReply::Done,
            Some(e) => {
                let message = e.text.clone();
                g.arrivals.remove(i);
                DaemonReply::Error { errno: Errno::EIO.0, message }
            }
        }
    }

    fn labels(&self) -> Vec<(String, Superblock)> {
        self.targets().iter().map(|t| (t.dir.clone(), t.label_on_disk())).collect()
    }

    async fn take_in(self: &Arc<Self>, mark: &Mark, abort_recov: bool) -> Result<(), StartError> {
        let begun = self.world.now();
        while self.marks().iter().any(|m| m.folder == mark.folder && !m.is_there())
            && self.world.now().since(begun) < LEAVING_PATIENCE
        {
            self.world.sleep(LOOK_AGAIN).await;
        }
        if self.targets().iter().any(|t| t.is_in(&mark.folder)) {
            return Err(StartError::new(format!("target '{}' is served already", mark.folder)));
        }
        let folders = [mark.folder.clone()];
        let patience = self.options.patience();
        let labels = target::read_labels(&self.world, &folders, &self.labels(), patience).await?;
        let held = target::hold(&self.world, labels, self.options.mmp_times(), patience).await?;
        let (known, new): (Vec<Held>, Vec<Held>) =
            held.into_iter().partition(|h| h.label().target.is_assigned());
        let served = match self.open(known, abort_recov).await {
            Ok(known) => {
                registration::start(self, &known);
                self.open_new(new, abort_recov).await
            }
            Err(e) => Err(e),
        };
        let placed = served.and_then(|()| mark.place());
        if placed.is_err() {
            self.take_out(&mark.folder).await;
        }
        let served = self.targets().iter().any(|t| t.is_in(&mark.folder));
        assert_eq!(served, placed.is_ok(), "a mount point stands for a target that is served");
        placed
    }
}

/// The folder as the daemon knows it.
pub fn canonical(folder: &str) -> Result<String, String> {
    let path = files::canonical(folder).map_err(|e| format!("cannot use target '{folder}': {e}"))?;
    path.into_os_string()
        .into_string()
        .map_err(|_| format!("cannot use target '{folder}': its path is not UTF-8"))
}

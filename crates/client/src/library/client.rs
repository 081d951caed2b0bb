//! A mounted file system, and who works in it.

use super::error::{Error, Failed, Result};
use super::user::User;
use crate::{Call, Fs, FsSpace, MountOptions, R};
use model::limits::{GROUPS_MAX, JOBID_MAX_BYTES};
use model::{Cred, Errno};
use std::sync::Arc;
use world::{BoxFuture, World};

/// A mounted file system. Clones are the same mount.
#[derive(Clone)]
pub struct Client {
    fs: Arc<Fs>,
}

/// As whom a [`User`] works.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Permission bits that new files do not get, unless a default access list of their directory says what
    /// they get.
    pub umask: u32,
    /// Under which the servers count its requests; at most 31 bytes. Empty: as `jobid_var` and `jobid_name`
    /// say.
    pub jobid: String,
}

impl Client {
    /// Connects and finds the root. Fails after a bounded time.
    pub async fn mount(world: &World, options: MountOptions) -> Result<Client> {
        Ok(Client { fs: Fs::mount(world.clone(), options).await? })
    }

    /// Of a file system that is mounted already.
    pub fn of(fs: Arc<Fs>) -> Client {
        Client { fs }
    }

    /// Who works in it. `EINVAL` for more groups than there can be, or a job id that is too long.
    pub fn user(&self, who: Identity) -> Result<User> {
        let invalid = |message: String| Err(Error { errno: Errno::EINVAL, message });
        if who.groups.len() > GROUPS_MAX {
            return invalid(format!("user {} has more than {GROUPS_MAX} groups", who.uid));
        }
        if who.jobid.len() > JOBID_MAX_BYTES {
            return invalid(format!("job id '{}' has more than {JOBID_MAX_BYTES} bytes", who.jobid));
        }
        let call = Call {
            cred: Cred { uid: who.uid, gid: who.gid, groups: who.groups },
            pid: 0,
            umask: who.umask & 0o777,
            jobid: (!who.jobid.is_empty()).then(|| who.jobid.into()),
            direct: false,
        };
        Ok(User::new(self.fs.clone(), call))
    }

    /// Space, as statfs(2) tells it.
    pub async fn statfs(&self) -> Result<FsSpace> {
        self.told("ask for the space of", self.fs.clone().statfs()).await
    }

    /// Everything that was done so far becomes durable. `EIO` if something that was answered is lost.
    pub async fn sync(&self) -> Result<()> {
        self.told("make durable", self.fs.clone().sync()).await
    }

    /// Says good-bye to the servers: what is open is closed, what was written and not sent is sent first.
    /// Bounded: a server that does not answer finds out by itself.
    pub async fn unmount(self) {
        self.fs.unmount().await;
    }

    async fn told<T>(&self, what: &str, work: BoxFuture<R<T>>) -> Result<T> {
        let r = if self.fs.cx.is_closed() { Err(Errno::ESHUTDOWN) } else { work.await };
        r.map_err(|e| Failed::from(e).of(what, self.fs.fsname().as_bytes()))
    }
}

//! A mounted file system as a library.
//!
//! [`Client`], [`User`] and [`OpenFile`] are for programs without a mount: each call names its user and is
//! checked (`library/`, docs/library.md). [`Fs`] is what lies below: operations on files by their FIDs, for
//! `fuse`, in front of which a kernel checks, and for the simulator.
//!
//! It stands in layers, from below: `base` (what all share), `session` (one target), `osc` (one OST, objects
//! by their ids) and `mdc` (one MDT: names, attributes, small files under leases, what is not told yet),
//! `lov` (layouts and files), `lmv` (the targets, and which MDT), `llite` (POSIX, one file a verb), `pages`
//! (what a kernel keeps), `library` (users, beside it). `llite::mount` puts them together, `llite::params`
//! shows and sets what can be set. A layer uses what lies below it (`xtask/src/rooms.rs`).

pub mod admin;
mod base;
pub mod control;
mod library;
mod llite;
mod lmv;
mod lov;
mod mdc;
mod osc;
mod pages;
mod session;
mod stats;
#[cfg(test)]
mod testing;

pub use base::cache_holder::{CacheHolder, CancelOnDrop, Revoked};
pub use base::errseq::{ErrorCursor, ErrorMark};
pub use base::under_way::{Piece, UnderWay};
pub use library::{Client, DirEntry, Error, Identity, OpenFile, Range, Result, Seek, Source, User, flags};
pub use llite::params::declare;
pub use llite::{Admin, Fs, Locks, Victim, is_virtual_xattr};
pub use pages::Pages;
pub use wire::msg::enqueue::LockMode;
pub use wire::msg::migrate::Pace;

use model::mutex::Mutex;
use model::{Cred, Errno, Fid};
use wire::msg::enqueue::{LockKind, LockSpec};

/// What an operation gives.
pub(crate) type R<T> = std::result::Result<T, Errno>;

/// A boxed future that borrows.
pub(crate) type BoxFutureOf<'a, T> = std::pin::Pin<Box<dyn std::future::Future<Output = T> + Send + 'a>>;

/// On whose behalf, and from where, an operation runs.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub cred: Cred,
    pub pid: u32,
    pub umask: u32,
    /// Instead of what `jobid_var` and `jobid_name` say.
    pub jobid: Option<std::sync::Arc<str>>,
    /// By a descriptor that was opened with O_DIRECT.
    pub direct: bool,
}

pub struct MountOptions {
    /// Names are looked up whenever the MGS is sought.
    pub mgs_nids: Vec<model::HostNid>,
    pub fsname: String,
    /// Directory of the file system to show as the root; empty for its root.
    pub subdir: String,
    pub port: u16,
    /// Source address for connections.
    pub bind: Option<std::net::IpAddr>,
    /// `network=`: nothing but addresses on these networks is asked. Empty: those on the networks of
    /// `mgs_nids` first.
    pub networks: Vec<u16>,
    pub client_name: String,
    /// `soft,timeo=`: give up with EIO after so many milliseconds; `None`: wait for ever (interruptible).
    pub soft_timeout_ms: Option<u64>,
    pub read_only: bool,
}

/// Why a mount failed, in words for its user, and the errno for its exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct MountError {
    pub errno: Errno,
    pub message: String,
}

/// An open file: what the kernel's file handle stands for.
pub struct OpenHandle {
    pub fid: Fid,
    /// The handle the metadata server knows.
    pub handle: u64,
    pub flags: u32,
    /// Each write is durable when it returns: the file has FS_SYNC_FL.
    pub sync: bool,
    /// Up to where its users were told of errors.
    pub errors: ErrorCursor,
    times: Mutex<mdc::ReadTimes>,
    /// Its group lock.
    group: Mutex<Option<lov::GroupLock>>,
}

/// What statfs(2) shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsSpace {
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
}

#[derive(Clone, Debug)]
pub struct PosixLock {
    pub owner: u64,
    pub pid: u32,
    pub mode: LockMode,
    pub start: u64,
    /// Inclusive; `u64::MAX`: to the end.
    pub end: u64,
}

impl PosixLock {
    /// As servers are asked for it.
    fn spec(&self, id: u64, fid: Fid) -> LockSpec {
        let PosixLock { owner, pid, mode, start, end } = *self;
        LockSpec { id, fid, kind: LockKind::Posix, mode, owner, pid, start, end }
    }
}

/// One target as `lfs df`, `lfs check` and `lctl dl` show it.
#[derive(Clone, Debug)]
pub struct TargetState {
    pub target: model::TargetId,
    /// `fsname-OST0000_UUID`.
    pub uuid: String,
    pub nid: model::Nid,
    /// `FULL`, `CONNECTING` …
    pub state: String,
    pub active: bool,
    /// What its server called itself; empty: it was never reached.
    pub server: String,
    /// When it said something last.
    pub heard: model::Timestamp,
    /// Since when the session is not up.
    pub away: Option<model::Timestamp>,
    /// Why the server does not let this client in, or its name leads nowhere.
    pub refusal: Option<String>,
    /// The failure domain that it was placed in, outermost first; empty: in none but its server.
    pub domain: Vec<String>,
    /// Targets with the same number share a disk; 0: not known.
    pub disk: u64,
}

//! A mounted file system as a library: what FUSE, gateways and the simulator call.
//!
//! `ops/VERB.rs` holds one operation each. Nothing is cached between calls: every call asks the servers.

pub mod control;

use bytes::Bytes;
use model::{Attr, Cred, Errno, Fid, Layout, LayoutSpec, ObjectAttr, SetAttr};
use std::sync::Arc;
use wire::msg::config::ConfigReply;
use wire::msg::enqueue::LockMode;
use wire::msg::readdir::Dirent;
use world::World;

/// On whose behalf, and from where, an operation runs.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub cred: Cred,
    pub pid: u32,
    pub umask: u32,
}

pub struct MountOptions {
    pub mgs_nids: Vec<model::Nid>,
    pub fsname: String,
    /// Directory of the file system to show as the root; empty for its root.
    pub subdir: String,
    pub port: u16,
    /// Source address for connections.
    pub bind: Option<std::net::IpAddr>,
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
pub struct OpenFile {
    pub fid: Fid,
    /// The handle the metadata server knows.
    pub handle: u64,
    pub flags: u32,
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
}

/// A mounted file system.
pub struct Fs {
    _todo: (),
}

type R<T> = Result<T, Errno>;

#[allow(clippy::unused_async, unused_variables)]
impl Fs {
    pub async fn mount(world: World, opt: MountOptions) -> Result<Arc<Fs>, MountError> { unimplemented!() }
    /// Closes every handle, drops every lock, says good-bye to the servers.
    pub async fn unmount(self: Arc<Self>) { unimplemented!() }
    pub fn root(&self) -> Fid { unimplemented!() }
    pub fn fsname(&self) -> String { unimplemented!() }
    /// 16 hex digits: `fsname-INSTANCE` names this mount in `lfs getname` and `lctl dl`.
    pub fn instance(&self) -> String { unimplemented!() }
    pub fn fs_uuid(&self) -> [u8; 16] { unimplemented!() }
    pub fn config(&self) -> ConfigReply { unimplemented!() }
    pub fn targets(&self) -> Vec<TargetState> { unimplemented!() }

    // names
    pub async fn lookup(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> R<Attr> { unimplemented!() }
    pub async fn getattr(self: Arc<Self>, call: Call, fid: Fid) -> R<Attr> { unimplemented!() }
    /// Includes truncate: cuts the objects under an exclusive lock where several stripes are concerned.
    pub async fn setattr(self: Arc<Self>, call: Call, fid: Fid, set: SetAttr) -> R<Attr> { unimplemented!() }
    /// `created` false: an existing file was opened (no `exclusive`). O_TRUNC in `flags` cuts it.
    pub async fn create(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>, mode: u32, flags: u32, layout: Option<LayoutSpec>) -> R<(Attr, OpenFile)> { unimplemented!() }
    pub async fn tmpfile(self: Arc<Self>, call: Call, parent: Fid, mode: u32, flags: u32) -> R<(Attr, OpenFile)> { unimplemented!() }
    pub async fn mkdir(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>, mode: u32) -> R<Attr> { unimplemented!() }
    /// `mode` with the S_IFMT bits.
    pub async fn mknod(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>, mode: u32, rdev: u64) -> R<Attr> { unimplemented!() }
    pub async fn symlink(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>, target: Vec<u8>) -> R<Attr> { unimplemented!() }
    pub async fn readlink(self: Arc<Self>, call: Call, fid: Fid) -> R<Vec<u8>> { unimplemented!() }
    pub async fn link(self: Arc<Self>, call: Call, fid: Fid, parent: Fid, name: Vec<u8>) -> R<Attr> { unimplemented!() }
    pub async fn unlink(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> R<()> { unimplemented!() }
    pub async fn rmdir(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> R<()> { unimplemented!() }
    pub async fn rename(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>, new_parent: Fid, new_name: Vec<u8>, flags: u32) -> R<()> { unimplemented!() }
    /// O_TRUNC in `flags` cuts the file.
    pub async fn open(self: Arc<Self>, call: Call, fid: Fid, flags: u32) -> R<OpenFile> { unimplemented!() }
    pub async fn close(self: Arc<Self>, file: Arc<OpenFile>) -> R<()> { unimplemented!() }
    /// Entries behind `cookie`, with attributes (sizes included) if `plus`; (entries, parent, end).
    pub async fn readdir(self: Arc<Self>, call: Call, fid: Fid, cookie: u64, max_bytes: u32, plus: bool) -> R<(Vec<Dirent>, Fid, bool)> { unimplemented!() }
    pub async fn getxattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> R<Vec<u8>> { unimplemented!() }
    pub async fn setxattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>, value: Vec<u8>, flags: u32, kill_sgid: bool) -> R<()> { unimplemented!() }
    pub async fn listxattr(self: Arc<Self>, call: Call, fid: Fid) -> R<Vec<Vec<u8>>> { unimplemented!() }
    pub async fn removexattr(self: Arc<Self>, call: Call, fid: Fid, name: Vec<u8>) -> R<()> { unimplemented!() }
    pub async fn statfs(self: Arc<Self>) -> R<FsSpace> { unimplemented!() }

    // data
    pub async fn read(self: Arc<Self>, call: Call, file: Arc<OpenFile>, off: u64, len: u32) -> R<Bytes> { unimplemented!() }
    /// `append`: at the end, whatever it is by then; returns the offset that was written.
    /// `kill_suid_sgid`: also drop the set-id bits (HANDLE_KILLPRIV_V2).
    pub async fn write(self: Arc<Self>, call: Call, fid: Fid, off: u64, append: bool, kill_suid_sgid: bool, data: Bytes) -> R<u64> { unimplemented!() }
    pub async fn fallocate(self: Arc<Self>, call: Call, fid: Fid, mode: u32, off: u64, len: u64) -> R<()> { unimplemented!() }
    /// SEEK_DATA (`hole` false) or SEEK_HOLE; ENXIO behind the end.
    pub async fn seek(self: Arc<Self>, call: Call, fid: Fid, off: u64, hole: bool) -> R<u64> { unimplemented!() }
    pub async fn fsync(self: Arc<Self>, call: Call, fid: Fid) -> R<()> { unimplemented!() }
    /// Bytes copied; may be fewer than asked for.
    pub async fn copy_file_range(self: Arc<Self>, call: Call, from: Fid, from_off: u64, to: Fid, to_off: u64, len: u64) -> R<u64> { unimplemented!() }

    // locks; dropping the future of a waiting one stops waiting
    pub async fn getlk(self: Arc<Self>, fid: Fid, lock: PosixLock) -> R<Option<PosixLock>> { unimplemented!() }
    pub async fn setlk(self: Arc<Self>, fid: Fid, lock: PosixLock, wait: bool) -> R<()> { unimplemented!() }
    pub async fn unlk(self: Arc<Self>, fid: Fid, owner: u64, start: u64, end: u64) -> R<()> { unimplemented!() }
    pub async fn flock(self: Arc<Self>, fid: Fid, owner: u64, pid: u32, mode: LockMode, wait: bool) -> R<()> { unimplemented!() }
    pub async fn funlock(self: Arc<Self>, fid: Fid, owner: u64) -> R<()> { unimplemented!() }
    /// Whether this owner has POSIX locks on the file (so that close must drop them).
    pub fn has_posix_locks(&self, fid: Fid, owner: u64) -> bool { unimplemented!() }

    // layouts and identities (lfs)
    pub async fn getlayout(self: Arc<Self>, call: Call, fid: Fid) -> R<Option<Layout>> { unimplemented!() }
    /// A directory's own default, if it has one; of the root: the file system's.
    pub async fn getdefault(self: Arc<Self>, call: Call, fid: Fid) -> R<Option<LayoutSpec>> { unimplemented!() }
    pub async fn setlayout(self: Arc<Self>, call: Call, fid: Fid, spec: Option<LayoutSpec>) -> R<()> { unimplemented!() }
    /// Paths below the mount's root, and (parent, name) of each link.
    pub async fn getpath(self: Arc<Self>, call: Call, fid: Fid) -> R<(Vec<Vec<u8>>, Vec<(Fid, Vec<u8>)>)> { unimplemented!() }
    /// Size, blocks, times of each object, for `lfs` and fsck.
    pub async fn glimpse(self: Arc<Self>, fid: Fid) -> R<Vec<ObjectAttr>> { unimplemented!() }
    /// Space of each target; an unreachable one gives its errno. Never waits longer than a second for one.
    pub async fn df(self: Arc<Self>) -> Vec<(TargetState, R<FsSpace>, u32)> { unimplemented!() }
    pub fn get_param(&self, pattern: &str) -> Vec<(String, String)> { unimplemented!() }
    pub fn set_param(&self, name: &str, value: &str) -> R<()> { unimplemented!() }
}

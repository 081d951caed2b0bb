//! One file a verb: the kernel's request to client calls, and their result back.

use crate::abi::{self, EntryOut};
use crate::bridge::Bridge;
use crate::interrupt::Kind;
use crate::nodes::NodeId;
use crate::reply::{Answer, Reply, entry_out, valid};
use crate::request::{Op, Request};
use bytes::Bytes;
use client::{Call, Fs, Pages};
use model::{Attr, Cred, Errno, Fid};
use std::sync::Arc;
use std::time::Duration;
use world::BoxFuture;

mod by_fid;
mod copy_file_range;
mod create;
mod fallocate;
mod flush;
mod fsync;
mod getattr;
mod getlk;
mod getxattr;
mod init;
mod ioctl;
mod kernel_root;
mod link;
mod listxattr;
mod lookup;
mod lseek;
mod mkdir;
mod mknod;
mod open;
mod opendir;
mod read;
mod readdir;
mod readlink;
pub mod release;
mod removexattr;
mod rename;
mod rmdir;
mod setattr;
mod setlk;
mod setxattr;
mod statfs;
mod statx;
mod symlink;
mod tmpfile;
mod unlink;
mod write;

pub use init::negotiate;

/// Where a request comes from.
#[derive(Clone)]
pub struct Cx {
    pub bridge: Arc<Bridge>,
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub tid: u32,
    /// Groups of the caller that the kernel told, to make a file under the group of a directory.
    pub groups: Vec<u32>,
    /// Groups that the caller had a moment ago: to be used for what is asked again if it is refused.
    remembered: Option<Vec<u32>>,
}

impl Cx {
    pub fn new(bridge: Arc<Bridge>, h: &abi::InHeader) -> Cx {
        let (groups, remembered) = (Vec::new(), None);
        Cx { bridge, node: h.nodeid, uid: h.uid, gid: h.gid, tid: h.pid, groups, remembered }
    }

    pub fn fs(&self) -> Arc<Fs> {
        self.bridge.fs.clone()
    }

    /// The file the request is about.
    pub fn fid(&self) -> Result<Fid, Errno> {
        self.bridge.nodes.fid(self.node)
    }

    /// On whose behalf.
    pub fn call(&self) -> Call {
        self.call_with_umask(0)
    }

    /// As [`Cx::call`], where what counts was decided when the file was opened: without the groups, which
    /// cost a look into /proc.
    pub fn call_by_handle(&self) -> Call {
        let (uid, gid) = self.ids();
        Call { cred: Cred { uid, gid, groups: Vec::new() }, pid: self.tid, ..Call::default() }
    }

    /// Requests that nobody made come with an invalid id; they are the kernel's own.
    fn ids(&self) -> (u32, u32) {
        if self.uid == abi::INVALID_ID { (0, 0) } else { (self.uid, self.gid) }
    }

    pub fn call_with_umask(&self, umask: u32) -> Call {
        let (uid, gid) = self.ids();
        let mut groups = self.supplementary(uid, gid).unwrap_or_default();
        // Of a caller that cannot be looked at the kernel tells this one all the same.
        let more: Vec<u32> =
            self.groups.iter().filter(|g| uid != 0 && !groups.contains(g)).copied().collect();
        groups.extend(more);
        Call { cred: Cred { uid, gid, groups }, pid: self.tid, umask, ..Call::default() }
    }

    /// `None`: nobody can tell.
    fn supplementary(&self, uid: u32, gid: u32) -> Option<Vec<u32>> {
        if uid == 0 {
            return Some(Vec::new());
        }
        self.remembered.clone().or_else(|| {
            let groups = world::host::groups_of(self.tid, uid, gid)?;
            self.bridge.groups.note((self.tid, uid, gid), groups.clone(), self.bridge.world.now());
            Some(groups)
        })
    }

    /// On whose behalf a name is looked up. The kernel has checked that the caller may; of one whose groups
    /// nobody can tell the server could not say the same, so the mount asks for itself.
    pub fn call_to_search(&self) -> Call {
        let (uid, gid) = self.ids();
        match self.supplementary(uid, gid) {
            Some(groups) => Call { cred: Cred { uid, gid, groups }, pid: self.tid, ..Call::default() },
            None => Call { pid: self.tid, ..Call::default() },
        }
    }

    /// What the kernel is told of a file that it may not know yet.
    pub fn node(&self, attr: &Attr) -> NodeId {
        let node = self.bridge.nodes.remember(attr.fid);
        self.bridge.nodes.note(attr);
        node
    }

    /// Whether this is a directory that was removed while somebody works in it or has it open.
    pub fn is_removed_dir(&self, fid: Fid, e: Errno) -> bool {
        matches!(e, Errno::ENOENT | Errno::ESTALE) && self.bridge.nodes.removed_dir(fid).is_some()
    }

    /// A name that was found: the kernel knows the node once more, before it is asked what it may keep of it.
    pub fn found(&self, dir: Fid, name: &[u8], attr: &Attr) -> Reply {
        let out = entry_out(self.node(attr), attr);
        Reply::of(&valid(out, self.name_valid(dir, name, Some(attr.fid)), self.attr_valid(attr)))
    }

    /// A name that was made. Its attributes the kernel would take over without a look at what was revoked
    /// since it asked: it is to ask again.
    pub fn made(&self, dir: Fid, name: &[u8], attr: &Attr) -> EntryOut {
        let out = entry_out(self.node(attr), attr);
        valid(out, self.name_valid(dir, name, Some(attr.fid)), Duration::ZERO)
    }

    /// As [`Cx::made`], of a file that is open. The thread that asks is remembered until it is back, so that
    /// the kernel may keep the attributes of a file that it cannot know yet: otherwise it asks for them
    /// before it lets the program go on.
    pub fn made_open(&self, dir: Fid, name: &[u8], attr: &Attr) -> EntryOut {
        let new = attr.version == 1 && attr.nlink == 1 && self.bridge.nodes.id(attr.fid).is_none();
        let out = self.made(dir, name, attr);
        let life = if new && self.bridge.kernel.making.begin(self.tid, attr.fid) {
            self.attr_valid(attr)
        } else {
            Duration::ZERO
        };
        EntryOut { attr_valid: life.as_secs(), attr_valid_nsec: life.subsec_nanos(), ..out }
    }

    /// How long the kernel may use attributes, in an answer that it compares with what was revoked since it
    /// asked.
    pub fn attr_valid(&self, attr: &Attr) -> Duration {
        let keeps = self.bridge.kernel.keeps_attrs();
        let kept = if keeps { Pages(&self.bridge.fs).inode_kept(attr) } else { None };
        kept.unwrap_or_default()
    }

    /// How long the kernel may use that a name leads to a file, or (`None`) that there is none.
    pub fn name_valid(&self, dir: Fid, name: &[u8], leads: Option<Fid>) -> Duration {
        let b = &self.bridge;
        if !b.kernel.keeps_names() {
            return Duration::ZERO;
        }
        let Some(life) = Pages(&b.fs).name_kept(dir, name, leads) else { return Duration::ZERO };
        // Asked once more when it is noted: a lease that goes from here on takes the kernel's names along.
        b.kernel.note_names(dir, life);
        Pages(&b.fs).name_kept(dir, name, leads).map_or(Duration::ZERO, |l| l.min(life))
    }
}

/// The error of a file that the kernel knows and that is gone: whoever has a path to it looks for the name
/// again (another file may have it by now), and a handle is stale.
pub fn gone(e: Errno) -> Errno {
    if e == Errno::ENOENT { Errno::ESTALE } else { e }
}

/// How an interrupt is taken by a request.
pub fn kind_of(op: &Op) -> Kind {
    match op {
        Op::Setlk { wait: true, .. } => Kind::LockWait,
        Op::Read(r) if r.read_flags & abi::READ_LOCKOWNER == 0 => Kind::PageRead,
        Op::Write(w, _) if w.write_flags & abi::WRITE_CACHE != 0 => Kind::Bounded,
        Op::Read(r) if r.flags & libc::O_DIRECT as u32 != 0 => Kind::Direct,
        Op::Write(w, _) if w.flags & libc::O_DIRECT as u32 != 0 => Kind::Direct,
        _ => Kind::Ordinary,
    }
}

/// Whether the thread that sent it waits for the answer, whatever it is about: what it asked before is over.
pub fn is_waited_for(op: &Op) -> bool {
    matches!(
        op,
        Op::Lookup(_)
            | Op::Getattr(_)
            | Op::Setattr(_)
            | Op::Create(..)
            | Op::Open(_)
            | Op::Flush(_)
            | Op::Mkdir(..)
            | Op::Unlink(_)
            | Op::Rename { .. }
            | Op::Getxattr(..)
    )
}

/// What the kernel has permitted with the groups that the caller has now, and what nothing is done of if a
/// server refuses it. Neither is true of changes of owners, groups and set-id bits.
fn may_be_asked_again(op: &Op) -> bool {
    matches!(
        op,
        Op::Lookup(_)
            | Op::Readlink
            | Op::Symlink { .. }
            | Op::Mknod(..)
            | Op::Mkdir(..)
            | Op::Unlink(_)
            | Op::Rmdir(_)
            | Op::Rename { .. }
            | Op::Link(..)
            | Op::Open(_)
            | Op::Create(..)
            | Op::Tmpfile(_)
            | Op::Getxattr(..)
            | Op::Listxattr(_)
    )
}

/// The operation behind a request. `data`: that of a WRITE.
pub fn start(mut cx: Cx, request: Request, data: Bytes) -> BoxFuture<Answer> {
    if let Some(answer) = kernel_root::answer(&cx, &request.op) {
        return now(answer);
    }
    if let Some(answer) = by_fid::answer(&cx, &request.op) {
        return answer;
    }
    if cx.uid == 0 || !may_be_asked_again(&request.op) {
        return run(cx, request.op, data);
    }
    cx.remembered = cx.bridge.groups.get(&(cx.tid, cx.uid, cx.gid), cx.bridge.world.now());
    if cx.remembered.is_none() {
        return run(cx, request.op, data);
    }
    Box::pin(async move {
        match run(cx.clone(), request.op.clone(), Bytes::new()).await {
            Err(Errno::EACCES | Errno::EPERM) => run(Cx { remembered: None, ..cx }, request.op, data).await,
            answer => answer,
        }
    })
}

fn run(cx: Cx, op: Op, data: Bytes) -> BoxFuture<Answer> {
    match op {
        Op::Lookup(name) => Box::pin(lookup::run(cx, name)),
        Op::Getattr(a) => Box::pin(getattr::run(cx, a)),
        Op::Setattr(a) => Box::pin(setattr::run(cx, a)),
        Op::Readlink => Box::pin(readlink::run(cx)),
        Op::Symlink { name, target } => Box::pin(symlink::run(cx, name, target)),
        Op::Mknod(a, name) => Box::pin(mknod::run(cx, a, name)),
        Op::Mkdir(a, name) => Box::pin(mkdir::run(cx, a, name)),
        Op::Unlink(name) => Box::pin(unlink::run(cx, name)),
        Op::Rmdir(name) => Box::pin(rmdir::run(cx, name)),
        Op::Rename { newdir, flags, name, new_name } => {
            Box::pin(rename::run(cx, newdir, flags, name, new_name))
        }
        Op::Link(a, name) => Box::pin(link::run(cx, a, name)),
        Op::Open(a) => Box::pin(open::run(cx, a)),
        Op::Create(a, name) => Box::pin(create::run(cx, a, name)),
        Op::Tmpfile(a) => Box::pin(tmpfile::run(cx, a)),
        Op::Read(a) => Box::pin(read::run(cx, a)),
        Op::Write(a, _) => Box::pin(write::run(cx, a, data)),
        Op::Statfs => Box::pin(statfs::run(cx)),
        Op::Fsync(a) => Box::pin(fsync::run(cx, a)),
        Op::Fsyncdir(a) => Box::pin(fsync::run_dir(cx, a)),
        Op::Flush(a) => Box::pin(flush::run(cx, a)),
        Op::Setxattr { arg, name, value } => Box::pin(setxattr::run(cx, arg, name, value)),
        Op::Getxattr(a, name) => Box::pin(getxattr::run(cx, a, name)),
        Op::Listxattr(a) => Box::pin(listxattr::run(cx, a)),
        Op::Removexattr(name) => Box::pin(removexattr::run(cx, name)),
        Op::Opendir(_) => Box::pin(opendir::run(cx)),
        Op::Readdir { arg, plus } => Box::pin(readdir::run(cx, arg, plus)),
        Op::Getlk(a) => Box::pin(getlk::run(cx, a)),
        Op::Setlk { arg, wait } => Box::pin(setlk::run(cx, arg, wait)),
        Op::Ioctl(a, input) => Box::pin(ioctl::run(cx, a, input)),
        Op::Fallocate(a) => Box::pin(fallocate::run(cx, a)),
        Op::Lseek(a) => Box::pin(lseek::run(cx, a)),
        Op::CopyFileRange { arg, wide } => Box::pin(copy_file_range::run(cx, arg, wide)),
        Op::Statx(a) => Box::pin(statx::run(cx, a)),
        // Every acknowledged change is on disk already.
        Op::Syncfs | Op::Destroy => now(Ok(Reply::empty())),
        // The kernel checks permissions itself (default_permissions); there is nothing to poll and no block
        // map.
        Op::Access(_) | Op::Bmap | Op::Poll | Op::NotifyReply => now(Err(Errno::ENOSYS)),
        Op::Init(_)
        | Op::Interrupt(_)
        | Op::Forget(_)
        | Op::BatchForget(_)
        | Op::Release(_)
        | Op::Releasedir(_) => now(Err(Errno::EIO)),
    }
}

fn now(a: Answer) -> BoxFuture<Answer> {
    Box::pin(std::future::ready(a))
}

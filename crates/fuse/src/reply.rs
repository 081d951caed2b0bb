//! Answers to the kernel.

use crate::abi::{self, AttrOut, EntryOut, FuseAttr};
use crate::nodes::NodeId;
use bytes::Bytes;
use model::{Attr, Errno};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// What follows the header of a successful answer.
#[derive(Debug, Default)]
pub struct Reply {
    pub fixed: Vec<u8>,
    pub data: Bytes,
}

/// What an operation gives.
pub type Answer = Result<Reply, Errno>;

impl Reply {
    pub fn empty() -> Reply {
        Reply::default()
    }

    pub fn of<T: IntoBytes + Immutable>(v: &T) -> Reply {
        Reply { fixed: v.as_bytes().to_vec(), data: Bytes::new() }
    }

    pub fn pair<A: IntoBytes + Immutable, B: IntoBytes + Immutable>(a: &A, b: &B) -> Reply {
        Reply { fixed: [a.as_bytes(), b.as_bytes()].concat(), data: Bytes::new() }
    }

    pub fn data(data: impl Into<Bytes>) -> Reply {
        Reply { fixed: Vec::new(), data: data.into() }
    }

    /// Attributes that the kernel may use for `valid`.
    pub fn attr(attr: &Attr, valid: Duration) -> Reply {
        let (attr_valid, attr_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
        Reply::of(&AttrOut { attr_valid, attr_valid_nsec, attr: fuse_attr(attr), ..AttrOut::default() })
    }
}

/// `st_blksize`: what stdio and copying programs use as their buffer.
pub const BLOCK_SIZE_BYTES: u32 = 65536;

/// Attributes of what is shown to the kernel and is no file: `mode` with its type.
pub fn made_up(ino: u64, mode: u32) -> FuseAttr {
    let nlink = if mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 };
    FuseAttr { ino, mode, nlink, blksize: BLOCK_SIZE_BYTES, ..FuseAttr::default() }
}

/// Attributes as the kernel wants them.
pub fn fuse_attr(a: &Attr) -> FuseAttr {
    FuseAttr {
        ino: a.fid.ino(),
        size: a.size,
        blocks: a.blocks,
        atime: a.atime.sec as u64,
        mtime: a.mtime.sec as u64,
        ctime: a.ctime.sec as u64,
        atimensec: a.atime.nsec,
        mtimensec: a.mtime.nsec,
        ctimensec: a.ctime.nsec,
        mode: a.st_mode(),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.device() as u32,
        blksize: BLOCK_SIZE_BYTES,
        flags: 0,
    }
}

/// A name's inode, of which the kernel may keep nothing.
pub fn entry_out(node: NodeId, a: &Attr) -> EntryOut {
    EntryOut { nodeid: node.id, generation: node.generation, attr: fuse_attr(a), ..EntryOut::default() }
}

/// How long the kernel may use a name, and the attributes that come with it.
pub fn valid(e: EntryOut, name: Duration, attr: Duration) -> EntryOut {
    EntryOut {
        entry_valid: name.as_secs(),
        entry_valid_nsec: name.subsec_nanos(),
        attr_valid: attr.as_secs(),
        attr_valid_nsec: attr.subsec_nanos(),
        ..e
    }
}

/// One (cloned) descriptor of /dev/fuse. A request must be answered where it was read.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Channel {
    pub fn new(fd: OwnedFd) -> Channel {
        Channel { fd }
    }

    /// Another descriptor of the same connection.
    pub fn try_clone(&self) -> io::Result<Channel> {
        crate::mount::clone_device(self.fd.as_fd()).map(Channel::new)
    }

    /// The next request, into `buf`.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.fd, buf)?)
    }

    /// Tells the kernel something unasked. `ENOENT`: it does not know what this is about.
    pub fn notify(&self, code: i32, body: &[u8]) -> Result<(), Errno> {
        let len = size_of::<abi::OutHeader>() + body.len();
        let head = abi::OutHeader { len: len as u32, error: code, unique: 0 };
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(body)];
        loop {
            match rustix::io::writev(&self.fd, &parts) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(e) => return Err(Errno(e.raw_os_error())),
            }
        }
    }

    /// Answers request `unique`. A request that is gone meanwhile (the mount was aborted) is no error.
    pub fn answer(&self, unique: u64, answer: &Answer) {
        let nothing = Reply::empty();
        let (error, body) = match answer {
            Ok(r) => (0, r),
            Err(e) => (-e.0, &nothing),
        };
        let len = size_of::<abi::OutHeader>() + body.fixed.len() + body.data.len();
        let head = abi::OutHeader { len: len as u32, error, unique };
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(&body.fixed), IoSlice::new(&body.data)];
        loop {
            match rustix::io::writev(&self.fd, &parts) {
                Ok(_) => return,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::CONNABORTED) => {
                    return;
                }
                Err(e) => {
                    tracing::error!(unique, error, len, "the kernel refuses an answer: {e}");
                    if error == 0 {
                        // What was refused was the body; the caller must not wait for ever.
                        self.answer(unique, &Err(Errno::EIO));
                    }
                    return;
                }
            }
        }
    }
}

/// A request that must be answered. Dropped without an answer (a panic, a runtime that ends) it fails with
/// EIO: a caller that nobody answers could not even be killed.
pub struct ReplyOnDrop {
    channel: Arc<Channel>,
    unique: u64,
    answered: bool,
}

impl ReplyOnDrop {
    pub fn new(channel: Arc<Channel>, unique: u64) -> ReplyOnDrop {
        ReplyOnDrop { channel, unique, answered: false }
    }

    pub fn answer(mut self, a: &Answer) {
        self.answered = true;
        self.channel.answer(self.unique, a);
    }
}

impl Drop for ReplyOnDrop {
    fn drop(&mut self) {
        if !self.answered {
            tracing::error!(unique = self.unique, "a request was lost");
            self.channel.answer(self.unique, &Err(Errno::EIO));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, Read};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A connection whose other end is a pipe that the kernel would read.
    fn connection() -> (Arc<Channel>, PipeReader) {
        let (kernel, daemon) = io::pipe().unwrap();
        (Arc::new(Channel::new(daemon.into())), kernel)
    }

    fn answered(mut kernel: &PipeReader) -> (u64, i32) {
        let mut buf = [0; size_of::<abi::OutHeader>()];
        kernel.read_exact(&mut buf).unwrap();
        let int = |at: usize| <[u8; 4]>::try_from(&buf[at..at + 4]).unwrap();
        let unique = u64::from(u32::from_ne_bytes(int(8))) | u64::from(u32::from_ne_bytes(int(12))) << 32;
        (unique, i32::from_ne_bytes(int(4)))
    }

    #[test]
    fn an_operation_that_panics_fails_and_the_next_one_is_served() {
        let (channel, kernel) = connection();
        let (world, runtime) = world::real::start(2).unwrap();
        runtime.end_on_panic(&["fuse-op"]);
        // On the thread that read it, as `worker` runs it, and on the runtime, as `hand_over` does.
        let pending = ReplyOnDrop::new(channel.clone(), 7);
        let run = move || {
            let _pending = pending;
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert_eq!(answered(&kernel), (7, -Errno::EIO.0));
        let pending = ReplyOnDrop::new(channel.clone(), 8);
        world.spawn("fuse-op", async move {
            let _pending = pending;
            panic!("on purpose");
        });
        assert_eq!(answered(&kernel), (8, -Errno::EIO.0));
        runtime.block_on(world.sleep(Duration::from_millis(1)));
        let pending = ReplyOnDrop::new(channel, 9);
        world.spawn("fuse-op", async move { pending.answer(&Ok(Reply::empty())) });
        assert_eq!(answered(&kernel), (9, 0));
    }
}

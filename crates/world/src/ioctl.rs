//! Asking a mounted file system something by ioctl(2) (see `client::control`).

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Opens `path` read-only for an ioctl: does not wait for the other end of a FIFO.
pub fn open_for_call(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// One ioctl that reads and fills `buf`. The size encoded in `number` must be the buffer's.
/// `InvalidInput` if it is not; otherwise the system call's error.
#[allow(unsafe_code)] // ioctl(2) has no safe form
pub fn ioctl_call(fd: BorrowedFd<'_>, number: u32, buf: &mut [u8]) -> io::Result<()> {
    let encoded = (number >> 16 & 0x3fff) as usize;
    if encoded != buf.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the kernel reads and writes at most the size encoded in the number, which is the length of
    // `buf`, which lives throughout the call.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), number as libc::Ioctl, buf.as_mut_ptr()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

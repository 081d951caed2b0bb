//! A shared mapping of a file: how tests look at a file the way a program with mmap(2) does, and how the host
//! is asked which of its pages it has in memory.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

/// Bytes `start..start + len` of a file, mapped shared; `start` is a multiple of the page size.
pub struct Mapping {
    ptr: *mut libc::c_void,
    len: usize,
}

impl Mapping {
    /// The range must lie within the file, and nobody may cut the file while the mapping lives (SIGBUS).
    pub fn shared(file: &impl AsRawFd, start: u64, len: usize, write: bool) -> io::Result<Mapping> {
        let prot = libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 };
        let off = libc::off_t::try_from(start).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), off) };
        if ptr == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Mapping { ptr, len }) }
    }

    /// A copy of the mapped bytes from `at` on.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len, "behind the mapping");
        let mut out = vec![0; len];
        // SAFETY: the range lies within the mapping; `out` is ours and of that length.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.cast::<u8>().add(at), out.as_mut_ptr(), len) };
        out
    }

    /// Stores `data` at `at` through the mapping, which must have been made with `write`.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.len, "behind the mapping");
        // SAFETY: the range lies within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.ptr.cast::<u8>().add(at), data.len()) };
    }

    /// Which of its pages are in memory, whoever brought them there; none is by this.
    pub fn resident(&self) -> io::Result<Vec<bool>> {
        let mut out = vec![0u8; self.len.div_ceil(rustix::param::page_size())];
        // SAFETY: the mapping made in `shared`; `out` has a byte for each of its pages.
        let r = unsafe { libc::mincore(self.ptr, self.len, out.as_mut_ptr()) };
        if r == 0 {
            Ok(out.into_iter().map(|b| b & 1 != 0).collect())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// msync(MS_SYNC).
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping made in `shared`.
        let r = unsafe { libc::msync(self.ptr, self.len, libc::MS_SYNC) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `shared`; nothing borrows from it.
        unsafe { libc::munmap(self.ptr, self.len) };
    }
}

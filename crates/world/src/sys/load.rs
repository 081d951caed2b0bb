//! What a load generator asks of the host: plain system calls on files, one at a time, and the processes that
//! make them. Nothing is buffered, cached or tried again in secret: what a call costs is what is measured.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

/// Nanoseconds of a clock that all processes of this host share and nobody sets.
pub fn monotonic_ns() -> u64 {
    crate::real::clock::nanos(rustix::time::ClockId::Monotonic)
}

const ALIGNMENT: usize = 4096;

/// Memory that begins at a multiple of 4 KiB, as O_DIRECT wants it.
pub struct Buffer {
    memory: Vec<u8>,
    at: usize,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Buffer {
        let memory = vec![0; len + ALIGNMENT];
        let at = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(at < ALIGNMENT, "one of so many bytes in a row is aligned");
        Buffer { memory, at, len }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.at..self.at + self.len]
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..self.at + self.len]
    }
}

/// Flags of open(2); for reading and writing when `write`, for reading otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    pub write: bool,
    /// O_CREAT, mode 0644.
    pub create: bool,
    /// O_DIRECT.
    pub direct: bool,
}

/// An open file.
pub struct LoadFile {
    fd: OwnedFd,
}

impl From<OwnedFd> for LoadFile {
    fn from(fd: OwnedFd) -> LoadFile {
        LoadFile { fd }
    }
}

impl AsFd for LoadFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LoadFile {
    pub fn open(path: &Path, how: OpenHow) -> io::Result<LoadFile> {
        let mut flags = OFlags::CLOEXEC | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        if how.create {
            flags |= OFlags::CREATE;
        }
        if how.direct {
            flags |= OFlags::DIRECT;
        }
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)))?;
        Ok(LoadFile { fd })
    }

    /// All of `buf`, by as few pwrite(2) as the file system allows.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let n = retry_on_intr(|| rustix::io::pwrite(&self.fd, &buf[done..], offset + done as u64))?;
            if n == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero));
            }
            done += n;
        }
        Ok(())
    }

    /// Fills `buf` as far as the file reaches; returns how far.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let n = retry_on_intr(|| rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64))?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(done)
    }

    /// Cuts the file, or lets it grow by a hole.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.fd, size))?)
    }

    pub fn fsync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fsync(&self.fd))?)
    }

    /// close(2), whose error may tell of lost writes.
    pub fn close(self) -> io::Result<()> {
        let fd = self.fd.into_raw_fd();
        // SAFETY: the descriptor was owned and nothing else refers to it.
        if unsafe { libc::close(fd) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// mkdir(2), mode 0755.
pub fn mkdir(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))?)
}

pub fn rmdir(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::rmdir(path)?)
}

pub fn unlink(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::unlink(path)?)
}

/// Calls `f` with each name in a folder and whether it is a folder itself, in the file system's order.
pub fn each_entry(
    path: &Path,
    mut f: impl FnMut(std::ffi::OsString, bool) -> io::Result<()>,
) -> io::Result<()> {
    for e in std::fs::read_dir(path)? {
        let e = e?;
        let dir = e.file_type()?.is_dir();
        f(e.file_name(), dir)?;
    }
    Ok(())
}

/// syncfs(2) on the file system that holds `path`.
pub fn sync_filesystem(path: &Path) -> io::Result<()> {
    let fd = super::files::open_read(path, true)?;
    Ok(rustix::fs::syncfs(fd.as_fd())?)
}

/// Empties the kernel's page, entry and inode caches of what is clean. Needs root.
pub fn drop_kernel_caches() -> io::Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3\n")
}

/// Opens all signals for a child between fork and exec.
fn unblock_signals() {
    // SAFETY: sigemptyset and sigprocmask are async-signal-safe; the set is live.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// `sh -c LINE` in `/` with some variables more; what it prints goes to standard error. Returns its exit
/// status, 128 + signal for a killed one.
pub fn shell(line: &str, env: &[(&str, &str)]) -> io::Result<i32> {
    let mut cmd = Command::new("sh");
    cmd.args(["-c", line]).current_dir("/").stdin(Stdio::null()).stdout(io::stderr());
    cmd.envs(env.iter().copied());
    // SAFETY: only async-signal-safe calls happen between fork and exec.
    unsafe {
        cmd.pre_exec(|| {
            unblock_signals();
            Ok(())
        });
    }
    let s = cmd.status()?;
    Ok(s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0)))
}

/// A child process that is spoken to through its standard input and output. It has a process group of its
/// own, so that a terminal's Ctrl-C reaches only its parent, and is killed when the parent's thread that
/// started it ends.
pub struct Worker {
    child: Child,
}

impl Worker {
    /// Starts `exe`, shown as `arg0`.
    pub fn start(exe: &Path, arg0: &str, args: &[&str]) -> io::Result<(Worker, ChildStdin, ChildStdout)> {
        let mut cmd = Command::new(exe);
        cmd.arg0(arg0).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        // SAFETY: prctl and sigprocmask are async-signal-safe, and nothing else happens between fork and
        // exec.
        unsafe {
            cmd.pre_exec(|| {
                unblock_signals();
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut child = cmd.spawn()?;
        let (i, o) = (child.stdin.take().expect("it was piped"), child.stdout.take().expect("it was piped"));
        Ok((Worker { child }, i, o))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it unless it has ended by itself within `patience`; says how it ended, `None` if it does not end
    /// even so (it hangs in the kernel).
    pub fn end(&mut self, patience: Duration) -> Option<String> {
        let words = |s: std::process::ExitStatus| match (s.code(), s.signal()) {
            (Some(c), _) => format!("exit status {c}"),
            (None, s) => format!("signal {}", s.unwrap_or(0)),
        };
        let mut wait = |d: Duration| super::Deadline::after(d).wait_for(|| self.child.try_wait().ok()?);
        if let Some(s) = wait(patience) {
            return Some(words(s));
        }
        let _ = super::process::kill(self.child.id(), libc::SIGKILL);
        let mut wait = |d: Duration| super::Deadline::after(d).wait_for(|| self.child.try_wait().ok()?);
        wait(Duration::from_secs(5)).map(words)
    }
}

/// Ends this process now, without waiting for its threads.
pub fn exit(status: i32) -> ! {
    std::process::exit(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_buffers_and_processes() {
        let dir = std::env::temp_dir().join(format!("nacre-load-{}", std::process::id()));
        mkdir(&dir).unwrap();
        let b = Buffer::new(5000);
        assert_eq!((b.as_ptr() as usize % ALIGNMENT, b.len()), (0, 5000));
        let f = LoadFile::open(&dir.join("f"), OpenHow { write: true, create: true, direct: false }).unwrap();
        f.write_at(b"hello", 3).unwrap();
        f.fsync().unwrap();
        let mut got = [9u8; 10];
        assert_eq!(f.read_at(&mut got, 0).unwrap(), 8);
        assert_eq!(&got, b"\0\0\0hello\x09\x09");
        f.close().unwrap();
        let mut names = Vec::new();
        each_entry(&dir, |n, d| {
            names.push((n, d));
            Ok(())
        })
        .unwrap();
        assert_eq!(names, [("f".into(), false)]);
        unlink(&dir.join("f")).unwrap();
        rmdir(&dir).unwrap();
        assert_eq!(shell("exit $A", &[("A", "7")]).unwrap(), 7);
        let (mut w, i, mut o) = Worker::start(Path::new("/bin/cat"), "cat", &[]).unwrap();
        io::Write::write_all(&mut &i, b"x").unwrap();
        let mut c = [0; 1];
        io::Read::read_exact(&mut o, &mut c).unwrap();
        assert_eq!(&c, b"x");
        assert_eq!(w.end(Duration::from_millis(1)), Some("signal 9".into()));
        drop(i);
    }

    #[test]
    fn the_clock_goes_on() {
        let a = monotonic_ns();
        assert!(monotonic_ns() >= a);
    }
}

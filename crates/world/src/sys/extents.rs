//! How many bytes files have for themselves, on file systems whose files can share them (FIEMAP).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `_IOWR('f', 11, struct fiemap)`, whose size is that of the header.
const FIEMAP: u32 = 0xC020_660B;
const HEADER_BYTES: usize = 32;
const EXTENT_BYTES: usize = 56;
/// Extents of one call.
const EXTENTS: usize = 256;
const LAST: u32 = 0x1;
/// Another file has it as well.
const SHARED: u32 = 0x2000;
/// Folders in one another, at most.
const DEPTH_MAX: usize = 64;

/// Bytes of the regular files below a folder that no other file has as well. `None`: the file system does not
/// tell. `one` is called for each file; false ends it with `Interrupted`.
pub fn own_bytes(dir: &str, one: &mut dyn FnMut() -> bool) -> io::Result<Option<u64>> {
    folder(Path::new(dir), 0, one)
}

fn folder(dir: &Path, depth: usize, one: &mut dyn FnMut() -> bool) -> io::Result<Option<u64>> {
    if depth > DEPTH_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut all = 0u64;
    for e in fs::read_dir(dir)? {
        let e = e?;
        let kind = e.file_type()?;
        let own = if kind.is_dir() {
            folder(&e.path(), depth + 1, one)?
        } else if kind.is_file() {
            let own = of_file(&e.path())?;
            if !one() {
                return Err(rustix::io::Errno::INTR.into());
            }
            own
        } else {
            Some(0)
        };
        let Some(own) = own else { return Ok(None) };
        all = all.saturating_add(own);
    }
    Ok(Some(all))
}

fn of_file(path: &Path) -> io::Result<Option<u64>> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = match File::options().read(true).custom_flags(flags.cast_signed()).open(path) {
        // It was removed meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some(0)),
        other => other?,
    };
    let (mut own, mut from) = (0u64, 0u64);
    loop {
        let (extents, told) = match map(&file, from) {
            Ok(m) => m,
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL)) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        for e in &extents {
            if e.flags & SHARED == 0 {
                own = own.saturating_add(e.len);
            }
        }
        match extents.last() {
            Some(e) if e.flags & LAST == 0 && told == EXTENTS => {
                let next = e.at.saturating_add(e.len);
                assert!(next > from, "extents lie one behind the other");
                from = next;
            }
            _ => return Ok(Some(own)),
        }
    }
}

struct Extent {
    at: u64,
    len: u64,
    flags: u32,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("so many bytes")
}

/// The extents from an offset on, as many as fit.
#[allow(unsafe_code)] // ioctl(2) has no safe form
fn map(file: &File, from: u64) -> io::Result<(Vec<Extent>, usize)> {
    let mut buf = vec![0u8; HEADER_BYTES + EXTENTS * EXTENT_BYTES];
    buf[0..8].copy_from_slice(&from.to_ne_bytes());
    buf[8..16].copy_from_slice(&(u64::MAX - from).to_ne_bytes());
    buf[24..28].copy_from_slice(&(EXTENTS as u32).to_ne_bytes());
    // SAFETY: the kernel reads the header and writes as many extents behind it as it says there is room for,
    // which is in `buf`, which lives throughout the call.
    let r = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP as libc::Ioctl, buf.as_mut_ptr()) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    let told = (u32::from_ne_bytes(number(&buf, 20)) as usize).min(EXTENTS);
    let one = |n: usize| {
        let at = HEADER_BYTES + n * EXTENT_BYTES;
        Extent {
            at: u64::from_ne_bytes(number(&buf, at)),
            len: u64::from_ne_bytes(number(&buf, at + 16)),
            flags: u32::from_ne_bytes(number(&buf, at + 40)),
        }
    };
    Ok(((0..told).map(one).collect(), told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_its_own_has_its_bytes_or_nothing_is_told() {
        let dir = std::env::temp_dir().join(format!("nacre-extents-{}", std::process::id()));
        fs::create_dir_all(dir.join("sub")).unwrap();
        let f = dir.join("sub/a");
        fs::write(&f, vec![1; 1 << 20]).unwrap();
        File::open(&f).unwrap().sync_all().unwrap();
        let mut n = 0;
        let own = own_bytes(dir.to_str().unwrap(), &mut || {
            n += 1;
            true
        });
        let own = own.unwrap();
        assert!(own.is_none_or(|n| n >= 1 << 20), "{own:?}");
        assert!(own_bytes(dir.to_str().unwrap(), &mut || false).is_ok_and(|o| o.is_none()) || n == 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}

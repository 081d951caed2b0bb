//! Zeros in a host's file.

use model::Errno;
use std::io;
use wire::msg::fallocate::{FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE};
use world::DiskFile;

const ZEROS_BYTES: usize = 1 << 20;

/// Writes zeros in bounded pieces.
fn write_zeros(file: &dyn DiskFile, mut off: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES.min(usize::try_from(end.saturating_sub(off)).unwrap_or(usize::MAX))];
    while off < end {
        let n = zeros.len().min(usize::try_from(end - off).unwrap_or(usize::MAX));
        file.write_at(&zeros[..n], off)?;
        off += n as u64;
    }
    Ok(())
}

/// The host's fallocate; where the host cannot punch or zero a range, zeros are written instead (within
/// the file's length: what is behind reads as zeros anyway).
pub(crate) fn allocate_or_zero(file: &dyn DiskFile, mode: u32, off: u64, len: u64) -> io::Result<()> {
    match file.allocate(mode, off, len) {
        Err(e) if mode & (FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE) != 0 => {
            if Errno::from(e) == Errno::EIO {
                return Err(Errno::EIO.into());
            }
            write_zeros(file, off, off.saturating_add(len).min(file.stat()?.len))
        }
        other => other,
    }
}

//! INIT: what both sides can do.

use crate::abi::{InitIn, InitOut, MAX_IO_BYTES, MINOR, MINOR_MIN, VERSION, init};
use crate::options::FileLocks;
use model::Errno;

/// Asked for if the kernel offers it. Not here: write-back cache (it ignores other clients' sizes),
/// READDIRPLUS (asked for unless the mount says no), symlink cache, splice; O_TRUNC in OPEN, which would cut
/// a program that runs before the kernel finds that it does (ETXTBSY): it opens first and sets the size then.
const WANTED: u64 = init::ASYNC_READ
    | init::POSIX_LOCKS
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::FLOCK_LOCKS
    | init::HAS_IOCTL_DIR
    | init::AUTO_INVAL_DATA
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::CREATE_SUPP_GROUP
    | init::DIRECT_IO_ALLOW_MMAP;

/// Without these the daemon cannot keep its promises.
const NEEDED: u64 =
    init::BIG_WRITES | init::MAX_PAGES | init::POSIX_LOCKS | init::FLOCK_LOCKS | init::SETXATTR_EXT;

const LOCKS: u64 = init::POSIX_LOCKS | init::FLOCK_LOCKS;

const PAGE_BYTES: usize = 4096;
/// Requests the kernel keeps for which no process waits.
const BACKGROUND_MAX: u16 = 256;

/// The answer to INIT, or what is wrong with the kernel.
pub fn negotiate(a: &InitIn, readdirplus: bool, locks: FileLocks) -> Result<InitOut, (Errno, String)> {
    if a.major != VERSION || a.minor < MINOR_MIN {
        let text = format!(
            "this kernel speaks FUSE protocol {}.{}; {VERSION}.{MINOR_MIN} or later of version {VERSION} is needed (Linux 5.2)",
            a.major, a.minor
        );
        return Err((Errno::EPROTO, text));
    }
    let mut offered = u64::from(a.flags);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(a.flags2) << 32;
    }
    if offered & NEEDED != NEEDED {
        let text = format!(
            "this kernel lacks FUSE features {:#x}; Linux 5.11 or later is needed",
            NEEDED & !offered
        );
        return Err((Errno::EPROTO, text));
    }
    let mut wanted = WANTED;
    if readdirplus {
        wanted |= init::DO_READDIRPLUS | init::READDIRPLUS_AUTO;
    }
    let flags = wanted & offered;
    assert_eq!(flags & NEEDED, NEEDED, "what the daemon cannot do without is asked for");
    // The kernel keeps locks itself then.
    let flags = if locks == FileLocks::Local { flags & !LOCKS } else { flags };
    Ok(InitOut {
        major: VERSION,
        minor: MINOR,
        max_readahead: a.max_readahead.min(MAX_IO_BYTES as u32),
        flags: flags as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: MAX_IO_BYTES as u32,
        time_gran: 1,
        max_pages: (MAX_IO_BYTES / PAGE_BYTES) as u16,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_refused_by_name_and_new_ones_get_what_they_offer() {
        let old = InitIn { major: 7, minor: 30, ..InitIn::default() };
        assert!(negotiate(&old, false, FileLocks::Shared).unwrap_err().1.contains("7.30"));
        let poor = InitIn { major: 7, minor: 40, ..InitIn::default() };
        assert!(negotiate(&poor, false, FileLocks::Shared).unwrap_err().1.contains("lacks"));
        let all = InitIn { major: 7, minor: 45, flags: u32::MAX, flags2: u32::MAX, ..InitIn::default() };
        let out = negotiate(&all, false, FileLocks::Shared).unwrap();
        assert_eq!(u64::from(out.flags) & LOCKS, LOCKS);
        let local = negotiate(&all, false, FileLocks::Local).unwrap();
        assert_eq!(u64::from(local.flags) & LOCKS, 0, "the kernel asks nobody");
        let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
        assert_eq!(flags, WANTED);
        assert_eq!(flags & init::WRITEBACK_CACHE, 0);
        let no_ext = InitIn { flags: NEEDED as u32, ..all };
        assert_eq!(negotiate(&no_ext, true, FileLocks::Shared).unwrap().flags2, 0);
    }
}

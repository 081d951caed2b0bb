//! What the kernel and the daemon say to each other over /dev/fuse: numbers and structures of protocol 7.45
//! (`linux/fuse.h`), as facts. All fields are in the host's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const VERSION: u32 = 7;
/// The minor version this code speaks.
pub const MINOR: u32 = 45;
/// From this one on FUSE_NOTIFY_INC_EPOCH is known (Linux 6.16).
pub const MINOR_EPOCH: u32 = 44;
/// The lowest one it can speak: 7.31 has FUSE_MAX_PAGES, copy_file_range and kill-priv writes.
pub const MINOR_MIN: u32 = 31;
/// Node id of the mount's root.
pub const ROOT_ID: u64 = 1;
/// Bit in `unique` of INTERRUPT requests.
pub const INTERRUPT_BIT: u64 = 1;
/// Uid and gid of requests that nobody made (write-back, forget).
pub const INVALID_ID: u32 = u32::MAX;

/// Largest WRITE's and READ's data.
pub const MAX_IO_BYTES: usize = 1 << 20;
/// Largest request: a WRITE, its header and room for names of the others.
pub const REQUEST_MAX_BYTES: usize = MAX_IO_BYTES + 64 * 1024 + 4096;

/// Operation codes.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SETUPMAPPING: u32 = 48;
    pub const REMOVEMAPPING: u32 = 49;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// INIT flags; bits 32 and up travel in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Bits of `fuse_setattr_in.valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// What the daemon tells the kernel unasked: codes in `OutHeader.error`, with `unique` 0.
pub const NOTIFY_INVAL_INODE: i32 = 2;
pub const NOTIFY_INC_EPOCH: i32 = 8;

/// In an OPEN's flags: to be executed. No program can set it (open(2) takes it away).
pub const FMODE_EXEC: u32 = 0x20;
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// [`ExtHeader::kind`]: a count and as many groups.
pub const EXT_GROUPS: u32 = 32;

pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub const GETATTR_FH: u32 = 1 << 0;
pub const LK_FLOCK: u32 = 1 << 0;
/// The page cache writes back: nobody waits who could be interrupted.
pub const WRITE_CACHE: u32 = 1 << 0;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Set in READs of read(2), clear in READs that fill the page cache.
pub const READ_LOCKOWNER: u32 = 1 << 1;
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

pub const SETXATTR_IN_SHORT_BYTES: usize = 8;
pub const INIT_IN_SHORT_BYTES: usize = 16;
/// `fuse_dirent` before the name.
pub const DIRENT_BYTES: usize = 24;
pub const ENTRY_OUT_BYTES: usize = 128;

/// statx(2) masks that the reply fills in.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
pub const STATX_BTIME: u32 = 0x800;

macro_rules! abi {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            pub struct $name { $(pub $field: $ty),* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

abi! {
    /// Before each request.
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before each reply.
    OutHeader = 16 { len: u32, error: i32, unique: u64 }

    FuseAttr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: FuseAttr,
    }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FuseAttr }
    ForgetIn = 8 { nlookup: u64 }
    ForgetOne = 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn = 8 { count: u32, dummy: u32 }
    GetattrIn = 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn = 8 { mode: u32, umask: u32 }
    RenameIn = 8 { newdir: u64 }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn = 8 { oldnodeid: u64 }
    SetattrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    OpenIn = 8 { flags: u32, open_flags: u32 }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// Also of READDIR and READDIRPLUS.
    ReadIn = 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn = 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut = 8 { size: u32, padding: u32 }
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn = 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn = 8 { size: u32, padding: u32 }
    GetxattrOut = 8 { size: u32, padding: u32 }
    FileLock = 24 { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn = 48 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    LkOut = 24 { lk: FileLock }
    AccessIn = 8 { mask: u32, padding: u32 }
    InitIn = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// Before each extension behind a request's arguments; `size` with this, a multiple of 8.
    ExtHeader = 8 { size: u32, kind: u32 }
    InterruptIn = 8 { unique: u64 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut = 8 { offset: u64 }
    CopyFileRangeIn = 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    CopyFileRangeOut = 8 { bytes_copied: u64 }
    SxTime = 16 { sec: i64, nsec: u32, reserved: i32 }
    Statx = 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    StatxOut = 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    NotifyInvalInode = 24 { ino: u64, off: i64, len: i64 }
    /// Before the name in a directory listing; padded to 8 bytes after it.
    DirentHead = 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
}

//! STATX: attributes with the time of birth.

use super::{Cx, getattr};
use crate::abi::{FuseAttr, STATX_BASIC_STATS, STATX_BTIME, Statx, StatxIn, StatxOut, SxTime};
use crate::reply::{Answer, BLOCK_SIZE_BYTES, Reply};
use model::{Attr, Timestamp};

const FS_IMMUTABLE_FL: u32 = 0x10;
const FS_APPEND_FL: u32 = 0x20;
const FS_NODUMP_FL: u32 = 0x40;

pub async fn run(cx: Cx, _a: StatxIn) -> Answer {
    let fid = cx.fid()?;
    let attr = getattr::of(&cx, fid).await?;
    cx.bridge.nodes.note(&attr);
    let valid = cx.attr_valid(&attr);
    let (attr_valid, attr_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
    Ok(Reply::of(&StatxOut { attr_valid, attr_valid_nsec, stat: statx(&attr), ..StatxOut::default() }))
}

/// Of what is no file.
pub fn of_fuse(a: &FuseAttr) -> Statx {
    Statx {
        mask: STATX_BASIC_STATS,
        blksize: a.blksize,
        nlink: a.nlink,
        mode: a.mode as u16,
        ino: a.ino,
        ..Statx::default()
    }
}

fn statx(a: &Attr) -> Statx {
    let time = |t: Timestamp| SxTime { sec: t.sec, nsec: t.nsec, reserved: 0 };
    // STATX_ATTR_IMMUTABLE, _APPEND and _NODUMP have the values of the FS_*_FL flags.
    let shown = FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL;
    Statx {
        mask: STATX_BASIC_STATS | STATX_BTIME,
        blksize: BLOCK_SIZE_BYTES,
        attributes: u64::from(a.flags & shown),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: a.st_mode() as u16,
        ino: a.fid.ino(),
        size: a.size,
        blocks: a.blocks,
        attributes_mask: u64::from(shown),
        atime: time(a.atime),
        btime: time(a.btime),
        ctime: time(a.ctime),
        mtime: time(a.mtime),
        rdev_major: libc::major(a.device()),
        rdev_minor: libc::minor(a.device()),
        ..Statx::default()
    }
}

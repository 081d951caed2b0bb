//! IOCTL: control requests of `lfs` and `lctl`, inode flags, and root's shutdown for crash tests.

use super::Cx;
use crate::abi::{IoctlIn, IoctlOut};
use crate::reply::{Answer, Reply};
use client::control::IOCTL_CALL;
use model::Errno;
use model::inode_rules::FLAG_PROJINHERIT;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `_IOR('X', 125, u32)`.
const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;
/// `_IOR('f', 1, long)`; the kernel moves four bytes.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `_IOR('X', 31, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// Lustre's `LL_IOC_GROUP_LOCK`, `_IOW('f', 158, long)`, and `LL_IOC_GROUP_UNLOCK`. The argument points to
/// the group's number: a file system in user space cannot be given it as the argument itself.
const LL_IOC_GROUP_LOCK: u32 = 0x4008_669e;
const LL_IOC_GROUP_UNLOCK: u32 = 0x4008_669f;

const FS_SYNC_FL: u32 = 0x8;
const FS_IMMUTABLE_FL: u32 = 0x10;
const FS_APPEND_FL: u32 = 0x20;
const FS_NODUMP_FL: u32 = 0x40;
const FS_NOATIME_FL: u32 = 0x80;

#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Fsxattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}
const _: () = assert!(size_of::<Fsxattr>() == 28);

/// FS_XFLAG_* for FS_*_FL.
const XFLAGS: [(u32, u32); 6] = [
    (0x8, FS_IMMUTABLE_FL),
    (0x10, FS_APPEND_FL),
    (0x20, FS_SYNC_FL),
    (0x40, FS_NOATIME_FL),
    (0x80, FS_NODUMP_FL),
    (0x200, FLAG_PROJINHERIT),
];

pub async fn run(cx: Cx, a: IoctlIn, input: Vec<u8>) -> Answer {
    match a.cmd {
        IOCTL_CALL => {
            let out = crate::control::answer(&cx, &input).await?;
            Ok(with_data(out, a.out_size))
        }
        FS_IOC_SHUTDOWN if cx.uid != 0 => Err(Errno::EPERM),
        FS_IOC_SHUTDOWN => {
            tracing::warn!("shut down by FS_IOC_SHUTDOWN");
            cx.bridge.shut_down().await;
            Ok(with_data(Vec::new(), a.out_size))
        }
        FS_IOC_GETFLAGS => {
            let attr = cx.fs().getattr(cx.call(), cx.fid()?).await?;
            Ok(with_data(attr.flags.to_ne_bytes().to_vec(), a.out_size))
        }
        FS_IOC_SETFLAGS => {
            let flags =
                u32::from_ne_bytes(input.get(..4).and_then(|b| b.try_into().ok()).ok_or(Errno::EINVAL)?);
            set_flags(&cx, flags, None).await?;
            Ok(with_data(Vec::new(), a.out_size))
        }
        FS_IOC_FSGETXATTR => {
            let attr = cx.fs().getattr(cx.call(), cx.fid()?).await?;
            let xflags = XFLAGS.iter().filter(|(_, f)| attr.flags & f != 0).fold(0, |x, (bit, _)| x | bit);
            let x = Fsxattr { xflags, projid: attr.projid, ..Fsxattr::default() };
            Ok(with_data(x.as_bytes().to_vec(), a.out_size))
        }
        FS_IOC_FSSETXATTR => {
            let (x, _) = Fsxattr::read_from_prefix(&input).map_err(|_| Errno::EINVAL)?;
            let known = XFLAGS.iter().fold(0, |x, (bit, _)| x | bit);
            if x.xflags & !known != 0 || x.extsize != 0 || x.cowextsize != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let flags = XFLAGS.iter().filter(|(bit, _)| x.xflags & bit != 0).fold(0, |f, (_, flag)| f | flag);
            set_flags(&cx, flags, Some(x.projid)).await?;
            Ok(with_data(Vec::new(), a.out_size))
        }
        LL_IOC_GROUP_LOCK | LL_IOC_GROUP_UNLOCK => {
            group(&cx, &a, &input).await?;
            Ok(with_data(Vec::new(), a.out_size))
        }
        _ => Err(Errno::ENOTTY),
    }
}

async fn group(cx: &Cx, a: &IoctlIn, input: &[u8]) -> Result<(), Errno> {
    let gid = i64::from_ne_bytes(input.get(..8).and_then(|b| b.try_into().ok()).ok_or(Errno::EINVAL)?);
    let gid = u64::try_from(gid).map_err(|_| Errno::EINVAL)?;
    let file = cx.bridge.handles.file(a.fh)?.file.clone();
    if a.cmd == LL_IOC_GROUP_UNLOCK {
        return cx.fs().group_unlock(file, gid).await;
    }
    let wait = file.flags & libc::O_NONBLOCK as u32 == 0;
    cx.fs().group_lock(file, gid, wait).await
}

fn with_data(mut out: Vec<u8>, room: u32) -> Reply {
    out.truncate(room as usize);
    let head = IoctlOut::default();
    Reply { fixed: head.as_bytes().to_vec(), data: out.into() }
}

async fn set_flags(cx: &Cx, flags: u32, projid: Option<u32>) -> Result<(), Errno> {
    client::admin::set_flags(&cx.fs(), cx.call(), cx.fid()?, flags, projid).await
}

//! GETATTR: of a node, or of an open file (which may have no name any more).

use super::Cx;
use crate::abi::GetattrIn;
use crate::reply::{Answer, Reply};
use model::{Attr, Errno, Fid};

pub async fn run(cx: Cx, _arg: GetattrIn) -> Answer {
    let fid = cx.fid()?;
    let attr = of(&cx, fid).await?;
    cx.bridge.nodes.note(&attr);
    Ok(Reply::attr(&attr, cx.attr_valid(&attr)))
}

/// What stat(2) shows.
///
/// The kernel asks the same when it checks a permission. Of a file with lost objects it gets what the
/// metadata server knows then: to be truncated to nothing the file has to be opened.
pub async fn of(cx: &Cx, fid: Fid) -> Result<Attr, Errno> {
    cx.bridge.writeback.settle(fid).await;
    let call = cx.call_by_handle();
    if fid == cx.bridge.fs.root() {
        return cx.fs().getattr_root(call).await;
    }
    match cx.fs().getattr(call.clone(), fid).await {
        Err(Errno::ENOENT | Errno::ESTALE) => cx.bridge.nodes.removed_dir(fid).ok_or(Errno::ESTALE),
        Err(Errno::EIO) if opens_or_cuts(cx.tid) => cx.fs().getattr_for_open(call, fid).await,
        r => r,
    }
}

#[cfg(target_arch = "x86_64")]
const OPEN_OR_CUT: &[libc::c_long] =
    &[libc::SYS_open, libc::SYS_creat, libc::SYS_openat, libc::SYS_openat2, libc::SYS_truncate];
#[cfg(not(target_arch = "x86_64"))]
const OPEN_OR_CUT: &[libc::c_long] = &[libc::SYS_openat, libc::SYS_openat2, libc::SYS_truncate];

/// Whether the thread is in a call for which the kernel looks at permissions only. Its process is in no
/// execve(2) that has come as far as to lock what is read here: that ends the other threads before.
fn opens_or_cuts(tid: u32) -> bool {
    let text = world::sys::files::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
    let number = text.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
    number.is_some_and(|n| OPEN_OR_CUT.contains(&n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_calls_open_nothing() {
        assert!(!opens_or_cuts(crate::process::this_thread()), "it reads");
        assert!(!opens_or_cuts(u32::MAX));
    }
}

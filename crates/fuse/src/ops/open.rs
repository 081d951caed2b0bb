//! OPEN: a file that exists.

use super::{Cx, gone};
use crate::abi::{
    FMODE_EXEC, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_PARALLEL_DIRECT_WRITES, OpenIn, OpenOut,
};
use crate::handles::FileHandle;
use crate::reply::{Answer, Reply};
use client::OpenHandle;

/// read(2) and write(2) go past the kernel's pages, side by side: a call is one step, and where a file ends
/// is what it is at that moment (decision 0016 says why pages cannot give that).
const DIRECT: u32 = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;

pub async fn run(cx: Cx, a: OpenIn) -> Answer {
    let file = cx.fs().open(cx.call(), cx.fid()?, a.flags).await.map_err(gone)?;
    Ok(Reply::of(&opened(&cx, file)))
}

/// Keeps the file under a handle number.
pub fn opened(cx: &Cx, file: OpenHandle) -> OpenOut {
    let open_flags = flags(file.flags);
    let fh = cx.bridge.handles.insert_file(FileHandle::new(file));
    OpenOut { fh, open_flags, backing_id: 0 }
}

/// How the kernel treats a file that was opened with these flags. Pages that are there stay in any case: they
/// lie under locks, and are given up before those are (`pages.rs`).
fn flags(open: u32) -> u32 {
    // A program that is started is read by the kernel alone. Mapped through a handle of the other kind it
    // would lose its pages at each start, those that run included.
    let how = if open & FMODE_EXEC == 0 { DIRECT } else { 0 };
    how | FOPEN_KEEP_CACHE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_is_started_is_read_through_pages() {
        for open in [0, libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECT] {
            assert_eq!(flags(open as u32), DIRECT | FOPEN_KEEP_CACHE);
        }
        assert_eq!(flags(FMODE_EXEC | libc::O_LARGEFILE as u32), FOPEN_KEEP_CACHE);
    }
}

//! Errors of what had been answered: told to each who had the file or directory open, once, and to nobody
//! else.

use crate::data::{striped, write};
use crate::harness::{Cluster, O_RDWR, call};
use client::{ErrorCursor, Fs, OpenHandle};
use model::{Errno, Fid};
use std::sync::Arc;

const BYTES: usize = 256 << 10;
const FAR: u64 = 8 << 20;
/// More than a mount keeps something of.
const MANY: u64 = 10_001;

async fn open(fs: &Arc<Fs>, fid: Fid, flags: u32) -> Arc<OpenHandle> {
    Arc::new(fs.clone().open(call(), fid, flags).await.unwrap())
}

async fn fsync(fs: &Arc<Fs>, c: &ErrorCursor) -> Result<(), Errno> {
    fs.clone().fsync_open(call(), c).await
}

/// The file's bytes do not fit on the disk any more, which turns out when they are written in the background.
async fn lose(c: &Cluster, fs: &Arc<Fs>, f: &OpenHandle) {
    let lost = || fs.get_param("llite.*.write_errors")[0].1.matches(&f.fid.to_string()).count();
    let before = lost();
    c.bound_ost_disk(0, Some(0));
    // What is written over has its room already.
    write(fs, f, FAR, vec![7; BYTES]).await;
    c.until("the write in the background fails", || async { lost() > before }).await;
    c.bound_ost_disk(0, None);
}

#[test]
fn each_open_file_is_told_of_a_lost_write_once() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let (one, other) = (striped(&a, "f", 1).await, striped(&a, "other", 1).await);
        let (two, reader) = (open(&a, one.fid, O_RDWR).await, open(&a, one.fid, 0).await);
        write(&a, &one, 0, vec![1; BYTES]).await;
        write(&a, &other, 0, vec![1; BYTES]).await;
        for f in [&one, &two, &reader, &other] {
            fsync(&a, &f.errors).await.unwrap();
        }
        lose(&c, &a, &one).await;
        // Closes of inherited descriptors, and of one that only reads: they take nothing.
        let full = Err(Errno::ENOSPC);
        assert_eq!(
            [one.error_at_close(), one.error_at_close(), reader.error_at_close()],
            [full, full, Ok(())]
        );
        assert_eq!(fsync(&a, &other.errors).await, Ok(()));
        for f in [&one, &two, &reader] {
            assert_eq!(fsync(&a, &f.errors).await, full);
            assert_eq!((fsync(&a, &f.errors).await, f.error_at_close()), (Ok(()), Ok(())));
        }
        let late = open(&a, one.fid, O_RDWR).await;
        assert_eq!(fsync(&a, &late.errors).await, Ok(()), "it was told before it came");
        write(&a, &one, 0, vec![2; BYTES]).await;
        fsync(&a, &one.errors).await.unwrap();
    });
}

#[test]
fn an_error_that_nobody_was_told_waits_for_who_opens_the_file() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let f = striped(&a, "f", 1).await;
        let fid = f.fid;
        write(&a, &f, 0, vec![1; BYTES]).await;
        fsync(&a, &f.errors).await.unwrap();
        lose(&c, &a, &f).await;
        a.clone().close(f).await.unwrap();
        // Nothing that is kept of other files takes it away: their number is bounded.
        for i in 0..MANY {
            let g = striped(&a, &format!("g{i}"), 1).await;
            write(&a, &g, 0, vec![1]).await;
            a.clone().close(g).await.unwrap();
        }
        let (one, two) = (open(&a, fid, O_RDWR).await, open(&a, fid, O_RDWR).await);
        assert_eq!(fsync(&a, &one.errors).await, Err(Errno::ENOSPC));
        assert_eq!(fsync(&a, &two.errors).await, Err(Errno::ENOSPC));
        assert_eq!(fsync(&a, &one.errors).await, Ok(()));
    });
}

#[test]
fn a_direct_write_is_told_of_its_own_error_only() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let f = striped(&a, "f", 1).await;
        write(&a, &f, 0, vec![1; BYTES]).await;
        fsync(&a, &f.errors).await.unwrap();
        let before = a.error_mark();
        lose(&c, &a, &f).await;
        assert_eq!(a.clone().flush(f.fid, before).await, Err(Errno::ENOSPC));
        let before = a.error_mark();
        write(&a, &f, 0, vec![2; BYTES]).await;
        assert_eq!(a.clone().flush(f.fid, before).await, Ok(()));
        assert_eq!(fsync(&a, &f.errors).await, Err(Errno::ENOSPC), "it is not told by that");
    });
}

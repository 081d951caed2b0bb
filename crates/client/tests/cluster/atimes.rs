//! Access times are stored behind the back of whoever closes a file: in batches, never over a later change,
//! and before the mount is gone.

use crate::data::{striped, write};
use crate::harness::{Cluster, at, call};
use crate::small::requests_of;
use client::Fs;
use model::{Fid, SetAttr, SetTime, Timestamp};
use std::sync::Arc;

const O_RDONLY: u32 = 0;

async fn read_and_close(fs: &Arc<Fs>, name: &str) -> Fid {
    let fid = fs.clone().lookup(call(), fs.root(), name.into()).await.unwrap().fid;
    let f = Arc::new(fs.clone().open(call(), fid, O_RDONLY).await.unwrap());
    assert_eq!(fs.clone().read(call(), f.clone(), 0, 1 << 20).await.unwrap().len(), 100);
    fs.clone().close(f).await.unwrap();
    fid
}

async fn atime(fs: &Arc<Fs>, fid: Fid) -> Timestamp {
    fs.clone().getattr(call(), fid).await.unwrap().atime
}

/// Files are made, then written, then read.
async fn is_stored(fs: &Arc<Fs>, fid: Fid) -> bool {
    let attr = fs.clone().getattr(call(), fid).await.unwrap();
    attr.atime > attr.mtime
}

async fn make(fs: &Arc<Fs>, files: usize) {
    for i in 0..files {
        let f = striped(fs, &format!("f{i}"), 0).await;
        write(fs, &f, 0, vec![1; 100]).await;
        fs.clone().close(f).await.unwrap();
    }
}

/// The first files of [`make`].
async fn read_all(fs: &Arc<Fs>, files: usize) -> Vec<Fid> {
    let mut fids = Vec::new();
    for i in 0..files {
        fids.push(read_and_close(fs, &format!("f{i}")).await);
    }
    fids
}

#[test]
fn files_read_one_after_the_other_have_their_times_stored_together() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        make(&a, 300).await;
        let fids = read_all(&b, 300).await;
        for fs in [&b, &a] {
            for fid in &fids {
                c.until("its time is stored", || async { is_stored(fs, *fid).await }).await;
            }
        }
        // An open that meets the mount's own fetching ahead is one that the server knows of, with a close of
        // its own.
        let told = requests_of(&b, "mds_close") + requests_of(&b, "mds_batch");
        assert!(told <= 60, "{told} requests for 300 files");
        // What is stored is not stored again.
        let batches = requests_of(&b, "mds_batch");
        read_and_close(&b, "f7").await;
        b.clone().unmount().await;
        assert_eq!(requests_of(&b, "mds_batch"), batches);
    });
}

#[test]
fn a_time_that_is_set_after_the_close_stays() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        make(&a, 40).await;
        let old = SetAttr { atime: Some(SetTime::At(at(1_000))), ..SetAttr::default() };
        let mut fids = Vec::new();
        for i in 0..40 {
            let fid = read_and_close(&b, &format!("f{i}")).await;
            let who = if i % 2 == 0 { &a } else { &b };
            who.clone().setattr(call(), fid, old.clone()).await.unwrap();
            fids.push(fid);
        }
        b.clone().unmount().await;
        for fid in fids {
            assert_eq!(atime(&a, fid).await, at(1_000));
        }
    });
}

#[test]
fn an_unmount_stores_the_last_ones() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        make(&a, 3).await;
        let fids = read_all(&b, 3).await;
        b.clone().unmount().await;
        for fid in fids {
            assert!(is_stored(&a, fid).await);
        }
    });
}

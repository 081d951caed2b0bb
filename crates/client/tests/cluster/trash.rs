//! The trash, between mounts.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, call, user};
use client::control::{Packed, Reply, Request};
use client::{Call, Fs, admin};
use model::{Errno, Fid, SetAttr};
use std::sync::Arc;
use wire::msg::trashlist::Trashed;
use wire::msg::trashtake::{Takeout, Trashtake};

async fn ask(fs: &Arc<Fs>, call: Call, at: Fid, r: Request) -> Result<Reply, Errno> {
    admin::answer(fs, call, at, r).await.map_err(|e| Errno(e.errno))
}

async fn switch(fs: &Arc<Fs>, dir: Fid, on: bool) {
    let r = Request::TrashSet { on };
    assert_eq!(ask(fs, call(), dir, r).await, Ok(Reply::Done));
}

async fn list(fs: &Arc<Fs>, who: Call, under: Fid) -> Vec<Trashed> {
    match ask(fs, who, under, Request::TrashList { after: None, sizes: true }).await {
        Ok(Reply::Trashed { page, unknown }) => {
            assert!(unknown.is_empty(), "all sizes are known");
            page.open().unwrap().files
        }
        other => panic!("no list: {other:?}"),
    }
}

async fn take(fs: &Arc<Fs>, who: Call, files: Vec<(Fid, Takeout)>) -> Vec<u16> {
    let r = Request::TrashTake { files: Packed::of(&Trashtake { files }) };
    match ask(fs, who, fs.root(), r).await {
        Ok(Reply::Results(r)) => r,
        other => panic!("no results: {other:?}"),
    }
}

async fn mkdir(fs: &Arc<Fs>, parent: Fid, name: &str, mode: u32) -> Fid {
    fs.clone().mkdir(call(), parent, name.into(), mode).await.unwrap().fid
}

async fn lookup(fs: &Arc<Fs>, dir: Fid, name: &str) -> Result<Fid, Errno> {
    fs.clone().lookup(call(), dir, name.into()).await.map(|a| a.fid)
}

/// In a layout of so many stripes; 0: its data lies with its inode.
fn one_file(stripes: i32) {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let d = mkdir(&a, a.root(), "d", 0o777).await;
        switch(&a, d, true).await;
        let f = striped(&a, "f", stripes).await;
        let fid = lookup(&a, a.root(), "f").await.unwrap();
        a.clone().rename(call(), a.root(), b"f".to_vec(), d, b"f".to_vec(), 0).await.unwrap();
        // Not told to anybody when its last name goes.
        write(&a, &f, 0, vec![7; 5000]).await;
        a.clone().close(f).await.unwrap();
        assert_eq!(lookup(&b, d, "f").await, Ok(fid));
        a.clone().unlink(call(), d, b"f".to_vec()).await.unwrap();
        for fs in [&a, &b] {
            assert_eq!(lookup(fs, d, "f").await, Err(Errno::ENOENT));
        }
        let all = list(&b, call(), b.root()).await;
        let seen: Vec<_> = all.iter().map(|t| (t.attr.fid, t.attr.size, t.way.clone())).collect();
        assert_eq!(seen, [(fid, 5000, Some(b"d".to_vec()))]);
        assert_eq!(take(&b, call(), vec![(fid, Takeout::Back)]).await, [0]);
        for fs in [&a, &b] {
            assert_eq!(lookup(fs, d, "f").await, Ok(fid), "who knew it as absent knows it again");
            let attr = fs.clone().getattr(call(), fid).await.unwrap();
            assert_eq!((attr.nlink, attr.size), (1, 5000));
            let f = Arc::new(fs.clone().open(call(), fid, 0).await.unwrap());
            assert_eq!(read(fs, &f, 0, 6000).await, vec![7; 5000]);
            fs.clone().close(f).await.unwrap();
        }
        // The mount that restores knew it as absent, too.
        b.clone().unlink(call(), d, b"f".to_vec()).await.unwrap();
        assert_eq!(lookup(&b, d, "f").await, Err(Errno::ENOENT));
        assert_eq!(take(&b, call(), vec![(fid, Takeout::Back)]).await, [0]);
        assert_eq!(lookup(&b, d, "f").await, Ok(fid));
        b.clone().unlink(call(), d, b"f".to_vec()).await.unwrap();
        assert_eq!(take(&a, call(), vec![(fid, Takeout::Gone)]).await, [0]);
        assert_eq!(a.clone().getattr(call(), fid).await.err(), Some(Errno::ENOENT));
        assert!(list(&a, call(), a.root()).await.is_empty());
    });
}

#[test]
fn a_file_with_objects_comes_back_from_the_trash_with_what_was_written_last() {
    one_file(2);
}

#[test]
fn a_file_whose_data_lies_with_its_inode_comes_back_from_the_trash_with_what_was_written_last() {
    one_file(0);
}

#[test]
fn a_mount_that_had_the_directory_for_itself_removes_nothing_by_itself_any_more() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let d = mkdir(&a, a.root(), "d", 0o777).await;
        let mut fids = Vec::new();
        for n in 0..20 {
            let name = format!("f{n}");
            let (attr, f) = a.clone().create(call(), d, name.into(), 0o644, 0o102, None).await.unwrap();
            a.clone().close(Arc::new(f)).await.unwrap();
            fids.push(attr.fid);
        }
        // By the mount that has it, then by another one.
        for (n, fs) in [(0, &a), (10, &b)] {
            switch(fs, d, true).await;
            for n in n..n + 5 {
                a.clone().unlink(call(), d, format!("f{n}").into()).await.unwrap();
            }
            switch(fs, d, false).await;
            for n in n + 5..n + 10 {
                a.clone().unlink(call(), d, format!("f{n}").into()).await.unwrap();
            }
        }
        let mut there: Vec<Fid> = list(&b, call(), d).await.iter().map(|t| t.attr.fid).collect();
        there.sort();
        let want: Vec<Fid> = fids[..5].iter().chain(&fids[10..15]).copied().collect();
        assert_eq!(there, want);
    });
}

#[test]
fn an_open_file_in_the_trash_has_no_links_and_a_user_gets_his_own_back() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let d = mkdir(&a, a.root(), "d", 0o777).await;
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        a.clone().setattr(call(), d, set).await.unwrap();
        switch(&a, d, true).await;
        let (attr, f) = a.clone().create(user(7), d, b"f".to_vec(), 0o600, 0o102, None).await.unwrap();
        let f = Arc::new(f);
        a.clone().unlink(user(7), d, b"f".to_vec()).await.unwrap();
        assert_eq!(a.clone().getattr(call(), attr.fid).await.unwrap().nlink, 0);
        write(&a, &f, 0, b"late".to_vec()).await;
        a.clone().close(f).await.unwrap();
        assert_eq!(list(&a, user(8), a.root()).await.len(), 0);
        assert_eq!(list(&a, user(7), a.root()).await[0].attr.size, 4);
        let back = || vec![(attr.fid, Takeout::Back)];
        assert_eq!(take(&a, user(8), back()).await, [Errno::EPERM.0 as u16]);
        assert_eq!(take(&a, user(7), back()).await, [0]);
        assert_eq!(a.clone().getattr(call(), attr.fid).await.unwrap().nlink, 1);
    });
}

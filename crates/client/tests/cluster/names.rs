//! Names and attributes, seen from two mounts.

use crate::data::{striped, write};
use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, at, call, user};
use bytes::Bytes;
use client::Fs;
use model::{Errno, Fid, FileType, LayoutSpec, SetAttr, SetTime};
use std::sync::Arc;
use std::time::Duration;

async fn file(fs: &Arc<Fs>, name: &str) -> Fid {
    let (a, f) =
        fs.clone().create(call(), fs.root(), name.into(), 0o644, O_CREAT | O_RDWR, None).await.unwrap();
    fs.clone().close(Arc::new(f)).await.unwrap();
    a.fid
}

#[test]
fn names_come_and_go_on_all_mounts() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let d = a.clone().mkdir(call(), root, b"d".to_vec(), 0o755).await.unwrap();
        assert_eq!(b.clone().lookup(call(), root, b"d".to_vec()).await.unwrap().fid, d.fid);
        assert_eq!(b.clone().mkdir(call(), root, b"d".to_vec(), 0o755).await.unwrap_err(), Errno::EEXIST);
        let (fa, f) = b
            .clone()
            .create(call(), d.fid, b"f".to_vec(), 0o640, O_CREAT | O_EXCL | O_RDWR, None)
            .await
            .unwrap();
        assert_eq!((fa.kind, fa.mode, fa.size), (FileType::Regular, 0o640, 0));
        let again =
            a.clone().create(call(), d.fid, b"f".to_vec(), 0o640, O_CREAT | O_EXCL | O_RDWR, None).await;
        assert_eq!(again.err(), Some(Errno::EEXIST));
        a.clone().link(call(), fa.fid, root, b"g".to_vec()).await.unwrap();
        assert_eq!(b.clone().getattr(call(), fa.fid).await.unwrap().nlink, 2);
        a.clone().rename(call(), root, b"g".to_vec(), d.fid, b"h".to_vec(), 0).await.unwrap();
        assert_eq!(b.clone().lookup(call(), root, b"g".to_vec()).await.unwrap_err(), Errno::ENOENT);
        assert_eq!(b.clone().rmdir(call(), root, b"d".to_vec()).await.unwrap_err(), Errno::ENOTEMPTY);
        a.clone().unlink(call(), d.fid, b"f".to_vec()).await.unwrap();
        a.clone().unlink(call(), d.fid, b"h".to_vec()).await.unwrap();
        b.clone().rmdir(call(), root, b"d".to_vec()).await.unwrap();
        // Open on b still: alive, without a name.
        assert_eq!(a.clone().getattr(call(), fa.fid).await.unwrap().nlink, 0);
        b.clone().write(call(), fa.fid, 0, false, false, Bytes::from_static(b"still here")).await.unwrap();
        let f = Arc::new(f);
        assert_eq!(&b.clone().read(call(), f.clone(), 0, 100).await.unwrap()[..], b"still here");
        b.clone().close(f).await.unwrap();
        assert!(matches!(a.clone().getattr(call(), fa.fid).await, Err(Errno::ENOENT | Errno::ESTALE)));
    });
}

/// Opening and closing what is known costs no request, and nothing that is open is lost, whoever removes it
/// and whatever restarts.
#[test]
fn files_are_opened_under_leases() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let mut open = Vec::new();
        for name in ["f", "g", "h", "i"] {
            let fid = file(&a, name).await;
            a.clone().write(call(), fid, 0, false, false, Bytes::from_static(b"data")).await.unwrap();
            // Nothing is under way that would be counted meanwhile.
            a.clone().fsync(call(), fid).await.unwrap();
            let sent = requests(&a);
            let f = a.clone().open(call(), fid, O_RDWR).await.unwrap();
            let again = a.clone().open(call(), fid, O_RDWR).await.unwrap();
            a.clone().close(Arc::new(again)).await.unwrap();
            assert_eq!(requests(&a), sent, "not one request");
            let refused = a.clone().open(user(7), fid, O_RDWR).await;
            assert_eq!(refused.err(), Some(Errno::EACCES));
            open.push(Arc::new(f));
        }
        a.clone().unlink(call(), root, b"f".to_vec()).await.unwrap();
        b.clone().unlink(call(), root, b"g".to_vec()).await.unwrap();
        a.clone().rename(call(), root, b"i".to_vec(), root, b"h".to_vec(), 0).await.unwrap();
        c.stop_mdt().await;
        c.start_mdt().await;
        b.clone().unlink(call(), root, b"h".to_vec()).await.unwrap();
        for f in &open {
            assert_eq!(&a.clone().read(call(), f.clone(), 0, 100).await.unwrap()[..], b"data");
            assert_eq!(b.clone().getattr(call(), f.fid).await.unwrap().nlink, 0);
        }
        for f in open {
            let fid = f.fid;
            a.clone().close(f).await.unwrap();
            let gone = b.clone().getattr(call(), fid).await;
            assert!(matches!(gone, Err(Errno::ENOENT | Errno::ESTALE)), "{gone:?}");
        }
    });
}

/// Answered requests to the metadata server so far.
fn requests(fs: &Fs) -> u64 {
    let all = fs.get_param("mdc.*.stats");
    let of = |l: &str| l.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    let lines = all.iter().flat_map(|(_, v)| v.lines());
    lines.filter(|l| l.contains("samples") && !l.starts_with("ping")).filter_map(of).sum()
}

#[test]
fn other_kinds_of_files() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let s = a.clone().symlink(call(), root, b"s".to_vec(), b"/some/where".to_vec()).await.unwrap();
        assert_eq!(b.clone().readlink(call(), s.fid).await.unwrap(), b"/some/where");
        let n = a.clone().mknod(call(), root, b"n".to_vec(), 0o020_600, 0x105).await.unwrap();
        assert_eq!((n.kind, n.device()), (FileType::CharDevice, 0x105));
        a.clone().mknod(call(), root, b"p".to_vec(), 0o010_600, 0).await.unwrap();
        let r = a.clone().mknod(call(), root, b"r".to_vec(), 0o100_600, 0).await.unwrap();
        b.clone().write(call(), r.fid, 5, false, false, Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(a.clone().getattr(call(), r.fid).await.unwrap().size, 6);
        assert_eq!(
            a.clone().mknod(call(), root, b"q".to_vec(), 0o040_600, 0).await.unwrap_err(),
            Errno::EPERM
        );
    });
}

#[test]
fn unnamed_files_get_a_name_or_go() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let (attr, f) = a.clone().tmpfile(call(), a.root(), 0o600, O_RDWR).await.unwrap();
        a.clone().write(call(), attr.fid, 0, false, false, Bytes::from_static(b"tmp")).await.unwrap();
        let linked = a.clone().link(call(), attr.fid, a.root(), b"named".to_vec()).await.unwrap();
        assert_eq!((linked.nlink, linked.size), (1, 3));
        a.clone().close(Arc::new(f)).await.unwrap();
        assert_eq!(a.clone().lookup(call(), a.root(), b"named".to_vec()).await.unwrap().size, 3);
        let (gone, f) = a.clone().tmpfile(call(), a.root(), 0o600, O_RDWR).await.unwrap();
        a.clone().close(Arc::new(f)).await.unwrap();
        assert!(a.clone().getattr(call(), gone.fid).await.is_err());
    });
}

/// Of files whose data lies on the metadata server, of those that the mount has locks on, and of others.
#[test]
fn directory_pages_show_sizes() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for i in 0..60usize {
            let spec =
                LayoutSpec { stripe_count: (i % 4) as i32, stripe_size: 65536, ..LayoutSpec::default() };
            let spec = (i % 4 > 0).then_some(spec);
            let name = format!("f{i:03}").into_bytes();
            let (attr, f) =
                a.clone().create(call(), a.root(), name, 0o644, O_CREAT | O_RDWR, spec).await.unwrap();
            a.clone()
                .write(call(), attr.fid, 0, false, false, Bytes::from(vec![7; i * 1000 + 1]))
                .await
                .unwrap();
            a.clone().close(Arc::new(f)).await.unwrap();
        }
        for fs in [&a, &b] {
            let mut seen = std::collections::BTreeMap::new();
            let (mut cookie, mut end) = (0, false);
            while !end {
                let (entries, parent, e) =
                    fs.clone().readdir(call(), fs.root(), cookie, 4096, true).await.unwrap();
                assert_eq!(parent, fs.root());
                for d in entries {
                    assert!(d.cookie > cookie);
                    cookie = d.cookie;
                    seen.insert(d.name, d.entry.map(|e| e.attr.size));
                }
                end = e;
            }
            assert_eq!(seen.len(), 60);
            for i in 0..60u64 {
                let name = format!("f{i:03}").into_bytes();
                assert_eq!(seen[&name], Some(i * 1000 + 1), "file {i}");
                let size = fs.clone().lookup(call(), fs.root(), name).await.unwrap().size;
                assert_eq!(size, i * 1000 + 1, "file {i}");
            }
        }
    });
}

/// A directory is listed although an OST is away that has a file of it; only who asks for that file waits.
#[test]
fn a_listing_waits_for_no_object_server() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for i in 0..8 {
            let f = striped(&a, &format!("f{i}"), 1).await;
            write(&a, &f, 0, "text").await;
        }
        a.clone().unmount().await;
        c.stop_ost(1).await;
        let list = b.clone().readdir(call(), b.root(), 0, 65536, true);
        let (page, _, end) = c.within_secs(5, list).await.unwrap();
        assert!(end && page.len() == 8);
        let moment = Duration::from_millis(500);
        let mut waits = 0;
        for i in 0..8 {
            let stat = b.clone().lookup(call(), b.root(), format!("f{i}").into_bytes());
            match c.world.timeout(moment, stat).await {
                Some(r) => assert_eq!(r.unwrap().size, 4),
                None => waits += 1,
            }
        }
        assert!((1..8).contains(&waits), "of 8 files on two OSTs {waits} wait");
    });
}

#[test]
fn times_follow_writes_and_utimes() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fid = file(&a, "t").await;
        let created = a.clone().getattr(call(), fid).await.unwrap();
        b.clone().write(call(), fid, 0, false, false, Bytes::from_static(b"1")).await.unwrap();
        let written = a.clone().getattr(call(), fid).await.unwrap();
        assert!(written.mtime > created.mtime && written.ctime == written.mtime);
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let moded = a.clone().setattr(call(), fid, set).await.unwrap();
        assert_eq!(moded.mtime, written.mtime, "chmod does not move the mtime");
        assert!(moded.ctime > written.ctime);
        let set = SetAttr { mtime: Some(SetTime::At(at(1000))), ..SetAttr::default() };
        assert_eq!(b.clone().setattr(call(), fid, set).await.unwrap().mtime, at(1000));
        assert_eq!(a.clone().getattr(call(), fid).await.unwrap().mtime, at(1000));
        a.clone().write(call(), fid, 0, false, false, Bytes::from_static(b"2")).await.unwrap();
        assert!(b.clone().getattr(call(), fid).await.unwrap().mtime > moded.ctime);
    });
}

#[test]
fn access_times_are_relative() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let fid = file(&a, "r").await;
        a.clone().write(call(), fid, 0, false, false, Bytes::from_static(b"data")).await.unwrap();
        let read = async || {
            let f = Arc::new(a.clone().open(call(), fid, 0).await.unwrap());
            a.clone().read(call(), f.clone(), 0, 4).await.unwrap();
            a.clone().close(f).await.unwrap();
            a.clone().getattr(call(), fid).await.unwrap()
        };
        let first = read().await;
        assert!(first.atime > first.mtime, "{first:?}");
        let second = read().await;
        assert_eq!(second.atime, first.atime, "nothing was written since");
        a.clone().write(call(), fid, 0, false, false, Bytes::from_static(b"more")).await.unwrap();
        client::Admin(&a).set_noatime(true);
        assert_eq!(read().await.atime, second.atime, "noatime");
        client::Admin(&a).set_noatime(false);
        let third = read().await;
        assert!(third.atime > third.mtime && third.atime > first.atime, "{third:?}");
    });
}

#[test]
fn extended_attributes_and_permissions() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fid = file(&a, "x").await;
        a.clone().setxattr(call(), fid, b"user.k".to_vec(), b"v".to_vec(), 1, false).await.unwrap();
        assert_eq!(b.clone().getxattr(call(), fid, b"user.k".to_vec()).await.unwrap(), b"v");
        assert_eq!(b.clone().listxattr(call(), fid).await.unwrap(), [b"user.k".to_vec()]);
        b.clone().removexattr(call(), fid, b"user.k".to_vec()).await.unwrap();
        assert_eq!(a.clone().getxattr(call(), fid, b"user.k".to_vec()).await.unwrap_err(), Errno::ENODATA);
        let stranger = user(1000);
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        assert_eq!(b.clone().setattr(stranger.clone(), fid, set).await.unwrap_err(), Errno::EPERM);
        assert_eq!(b.clone().open(stranger, fid, O_RDWR).await.err(), Some(Errno::EACCES));
    });
}

#[test]
fn set_id_bits_go_with_a_write() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let fid = file(&a, "suid").await;
        let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
        a.clone().setattr(call(), fid, set).await.unwrap();
        a.clone().write(call(), fid, 0, false, true, Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(a.clone().getattr(call(), fid).await.unwrap().mode, 0o755);
    });
}

#[test]
fn layouts_are_asked_for_and_inherited() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let d = a.clone().mkdir(call(), a.root(), b"striped".to_vec(), 0o755).await.unwrap().fid;
        assert_eq!(client::Admin(&b).getdefault(call(), d).await.unwrap(), None);
        let spec = LayoutSpec { stripe_count: -1, stripe_size: 131_072, ..LayoutSpec::default() };
        client::Admin(&a).setlayout(call(), d, Some(spec.clone())).await.unwrap();
        assert_eq!(client::Admin(&b).getdefault(call(), d).await.unwrap(), Some(spec));
        let (attr, f) =
            b.clone().create(call(), d, b"f".to_vec(), 0o644, O_CREAT | O_RDWR, None).await.unwrap();
        let l = client::Admin(&a).getlayout(call(), attr.fid).await.unwrap().unwrap();
        assert_eq!((l.stripe_count(), l.shown().stripe_size), (3, 131_072));
        assert_eq!(client::Admin(&a).glimpse(attr.fid).await.unwrap().len(), 3);
        let spec = LayoutSpec { stripe_count: 1, ..LayoutSpec::default() };
        assert_eq!(
            client::Admin(&a).setlayout(call(), attr.fid, Some(spec)).await.unwrap_err(),
            Errno::EEXIST
        );
        b.clone().close(Arc::new(f)).await.unwrap();
        client::Admin(&a).setlayout(call(), d, None).await.unwrap();
        assert_eq!(client::Admin(&b).getdefault(call(), d).await.unwrap(), None);
        let (paths, links) = client::Admin(&a).getpath(call(), attr.fid).await.unwrap();
        assert_eq!(paths, [b"striped/f".to_vec()]);
        assert_eq!(links, [(d, b"f".to_vec())]);
    });
}

#[test]
fn opening_with_o_trunc_empties_a_file() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let spec = LayoutSpec { stripe_count: 3, stripe_size: 65536, ..LayoutSpec::default() };
        let (attr, f) = a
            .clone()
            .create(call(), a.root(), b"o".to_vec(), 0o644, O_CREAT | O_RDWR, Some(spec))
            .await
            .unwrap();
        let fill = Bytes::from(vec![1; 300_000]);
        a.clone().write(call(), attr.fid, 0, false, false, fill.clone()).await.unwrap();
        let g = b.clone().open(call(), attr.fid, O_RDWR | O_TRUNC).await.unwrap();
        assert_eq!(a.clone().getattr(call(), attr.fid).await.unwrap().size, 0);
        a.clone().write(call(), attr.fid, 0, false, false, fill).await.unwrap();
        let (again, h) = b
            .clone()
            .create(call(), a.root(), b"o".to_vec(), 0o644, O_CREAT | O_RDWR | O_TRUNC, None)
            .await
            .unwrap();
        assert_eq!((again.fid, again.size), (attr.fid, 0));
        for (fs, f) in [(&a, f), (&b, g), (&b, h)] {
            fs.clone().close(Arc::new(f)).await.unwrap();
        }
    });
}

/// chattr +i: not even its times, and nothing is copied into it by those who have it open for writing.
#[test]
fn an_immutable_file_stays_as_it_is() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let (from, to) = (file(&a, "from").await, file(&a, "to").await);
        for fid in [from, to] {
            a.clone().write(call(), fid, 0, false, false, Bytes::from_static(b"data")).await.unwrap();
        }
        let open = Arc::new(a.clone().open(call(), to, O_RDWR).await.unwrap());
        let flags = |f: u32| SetAttr { flags: Some(f), ..SetAttr::default() };
        let touch = |t| SetAttr { atime: Some(t), mtime: Some(t), ..SetAttr::default() };
        a.clone().setattr(call(), to, flags(model::perm::FLAG_IMMUTABLE)).await.unwrap();
        for t in [SetTime::Now, SetTime::At(at(1000))] {
            assert_eq!(a.clone().setattr(call(), to, touch(t)).await.err(), Some(Errno::EPERM));
        }
        let copy = async || a.clone().copy_file_range(call(), from, 0, to, 0, 4).await;
        assert_eq!(copy().await, Err(Errno::EPERM));
        a.clone().setattr(call(), to, flags(model::perm::FLAG_APPEND)).await.unwrap();
        a.clone().setattr(call(), to, touch(SetTime::Now)).await.unwrap();
        let past = a.clone().setattr(call(), to, touch(SetTime::At(at(1000)))).await;
        assert_eq!(past.err(), Some(Errno::EPERM));
        a.clone().setattr(call(), to, flags(0)).await.unwrap();
        assert_eq!(copy().await, Ok(4));
        a.clone().close(open).await.unwrap();
    });
}

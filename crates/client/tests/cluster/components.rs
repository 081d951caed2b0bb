//! Files with layouts in components, used by two mounts while components get their objects.

use crate::data::{read, write};
use crate::harness::{Cluster, O_RDWR, call};
use client::{Fs, OpenHandle};
use model::layout::{ComponentSpec, EOF};
use model::{Errno, Fid, LayoutSpec, SetAttr};
use std::sync::Arc;

const K: u64 = 1 << 10;

fn spec(parts: &[(u64, i32, u64)]) -> LayoutSpec {
    let of = |&(end, stripe_count, extension_bytes): &(u64, i32, u64)| ComponentSpec {
        end,
        stripe_count,
        stripe_size: 65536,
        extension_bytes,
        ..ComponentSpec::default()
    };
    let mut s = LayoutSpec::default();
    s.set_components(&parts.iter().map(of).collect::<Vec<_>>());
    s
}

/// 64 KiB on one object, then up to 256 KiB on two, then three.
fn three() -> LayoutSpec {
    spec(&[(64 * K, 1, 0), (256 * K, 2, 0), (EOF, 3, 0)])
}

async fn create(fs: &Arc<Fs>, name: &str, layout: LayoutSpec) -> Arc<OpenHandle> {
    let created = fs.clone().create(call(), fs.root(), name.into(), 0o644, O_RDWR, Some(layout)).await;
    Arc::new(created.unwrap().1)
}

async fn open(fs: &Arc<Fs>, fid: Fid) -> Arc<OpenHandle> {
    Arc::new(fs.clone().open(call(), fid, O_RDWR).await.unwrap())
}

async fn cut(fs: &Arc<Fs>, fid: Fid, size: u64) -> Result<u64, Errno> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.clone().setattr(call(), fid, set).await.map(|a| a.size)
}

async fn size(fs: &Arc<Fs>, fid: Fid) -> u64 {
    fs.clone().getattr(call(), fid).await.unwrap().size
}

/// Objects of each component.
async fn objects(fs: &Arc<Fs>, fid: Fid) -> Vec<usize> {
    let l = client::Admin(fs).getlayout(call(), fid).await.unwrap().unwrap();
    l.components.iter().map(|c| c.objects.len()).collect()
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 7 + n) as u8).collect()
}

#[test]
fn what_one_mount_writes_beyond_the_first_component_the_other_sees() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        write(&a, &fa, 0, bytes(1, 1000)).await;
        assert_eq!((objects(&a, fid).await, size(&b, fid).await), (vec![1, 0, 0], 1000));
        assert_eq!(read(&b, &fb, 0, 1 << 20).await, bytes(1, 1000));
        // The other mount knows the layout and that there is nothing.
        write(&a, &fa, 300 * K, bytes(2, 5000)).await;
        assert_eq!(objects(&b, fid).await, [1, 0, 3], "what is left out has no objects");
        assert_eq!(size(&b, fid).await, 300 * K + 5000);
        let mut want = vec![0; 300 * 1024 + 5000];
        want[..1000].copy_from_slice(&bytes(1, 1000));
        want[300 * 1024..].copy_from_slice(&bytes(2, 5000));
        assert!(read(&b, &fb, 0, 1 << 20).await == want);
        assert!(read(&b, &fb, 100 * K, 4096).await == vec![0; 4096], "a hole without objects");
        // Across two borders, and back.
        let long = bytes(3, 250 * 1024);
        write(&b, &fb, 60 * K, long.clone()).await;
        want.resize(310 * 1024, 0);
        want[60 * 1024..].copy_from_slice(&long);
        assert_eq!(objects(&a, fid).await, [1, 2, 3]);
        assert!(read(&a, &fa, 0, 1 << 20).await == want);
        a.clone().fsync(call(), fid).await.unwrap();
    });
}

#[test]
fn appends_and_truncates_find_the_end_wherever_it_is() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let fid = fa.fid;
        let mut want = Vec::new();
        for n in 0..80 {
            let fs = if n % 3 == 0 { &b } else { &a };
            let part = bytes(n, 5000);
            fs.clone().write(call(), fid, 0, true, false, part.clone().into()).await.unwrap();
            want.extend_from_slice(&part);
        }
        assert_eq!(objects(&b, fid).await, [1, 2, 3]);
        let fb = open(&b, fid).await;
        assert!(read(&b, &fb, 0, 1 << 20).await == want);
        for to in [260 * K, 100 * K, 64 * K, 200 * K, 64 * K + 1, 10, 0, 300 * K] {
            let fs = if to % 3 == 0 { &a } else { &b };
            assert_eq!(cut(fs, fid, to).await, Ok(to));
            want.resize(to as usize, 0);
            assert_eq!((size(&a, fid).await, size(&b, fid).await), (to, to));
            assert!(read(&a, &fa, 0, 1 << 20).await == want, "cut to {to}");
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "cut to {to}, the other mount");
        }
        let sparse = create(&b, "sparse", three()).await;
        assert_eq!(cut(&a, sparse.fid, 100 * K).await, Ok(100 * K));
        assert_eq!((size(&b, sparse.fid).await, objects(&b, sparse.fid).await), (100 * K, vec![1, 2, 0]));
        write(&b, &sparse, 400 * K, bytes(4, 10)).await;
        let find = |hole, off| a.clone().seek(call(), sparse.fid, off, hole);
        assert_eq!((find(false, 0).await, find(true, 0).await), (Ok(400 * K), Ok(0)));
        assert_eq!(
            (find(true, 400 * K).await, find(false, 400 * K + 10).await),
            (Ok(400 * K + 10), Err(Errno::ENXIO))
        );
        assert_eq!(cut(&a, sparse.fid, 200 * K).await, Ok(200 * K));
        assert_eq!(find(false, 0).await, Err(Errno::ENXIO));
    });
}

#[test]
fn a_file_whose_layout_ends_does_not_grow_beyond() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        let f = create(&a, "f", spec(&[(128 * K, 1, 0)])).await;
        write(&a, &f, 0, bytes(1, 128 * 1024)).await;
        let more = |off, append| a.clone().write(call(), f.fid, off, append, false, vec![1].into());
        assert_eq!(more(128 * K, false).await.unwrap_err(), Errno::ENODATA);
        assert_eq!(more(0, true).await.unwrap_err(), Errno::ENODATA);
        assert_eq!(cut(&a, f.fid, 128 * K + 1).await.unwrap_err(), Errno::ENODATA);
        let room = a.clone().fallocate(call(), f.fid, 0, 64 * K, 128 * K).await;
        assert_eq!(room.unwrap_err(), Errno::ENODATA);
        assert!(read(&a, &f, 0, 1 << 20).await == bytes(1, 128 * 1024));
    });
}

#[test]
fn room_is_reserved_where_there_were_no_objects() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = create(&a, "f", three()).await;
        a.clone().fallocate(call(), f.fid, 0, 0, 300 * K).await.unwrap();
        assert_eq!((size(&b, f.fid).await, objects(&b, f.fid).await), (300 * K, vec![1, 2, 3]));
        let g = create(&a, "g", three()).await;
        write(&a, &g, 0, bytes(1, 70 * 1024)).await;
        let punch = 3;
        b.clone().fallocate(call(), g.fid, punch, 4 * K, 400 * K).await.unwrap();
        let mut want = vec![0; 70 * 1024];
        want[..4096].copy_from_slice(&bytes(1, 4096));
        assert!(read(&a, &g, 0, 1 << 20).await == want);
        assert_eq!(objects(&a, g.fid).await, [1, 2, 0], "a hole needs no object");
    });
}

#[test]
fn a_component_that_grows_takes_what_comes() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = create(&a, "f", spec(&[(256 * K, 1, 64 * K), (EOF, 2, 128 * K)])).await;
        let mut want = Vec::new();
        for n in 0..60 {
            let part = bytes(n, 9000);
            let fs = if n % 2 == 0 { &a } else { &b };
            fs.clone()
                .write(call(), f.fid, want.len() as u64, false, false, part.clone().into())
                .await
                .unwrap();
            want.extend_from_slice(&part);
        }
        let fb = open(&b, f.fid).await;
        assert!(read(&a, &f, 0, 1 << 20).await == want);
        assert!(read(&b, &fb, 0, 1 << 20).await == want);
        let l = client::Admin(&b).getlayout(call(), f.fid).await.unwrap().unwrap();
        let shape: Vec<_> = l.components.iter().map(|c| (c.end, c.objects.len())).collect();
        assert_eq!(shape, [(256 * K, 1), (640 * K, 2), (EOF, 0)]);
    });
}

#[test]
fn files_move_between_plain_layouts_and_components() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = create(&a, "f", three()).await;
        write(&a, &f, 0, bytes(1, 100 * 1024)).await;
        write(&a, &f, 300 * K, bytes(2, 100 * 1024)).await;
        let mut want = vec![0; 400 * 1024];
        want[..100 * 1024].copy_from_slice(&bytes(1, 100 * 1024));
        want[300 * 1024..].copy_from_slice(&bytes(2, 100 * 1024));
        let fb = open(&b, f.fid).await;
        let plain = LayoutSpec { stripe_count: 2, stripe_size: 65536, ..LayoutSpec::default() };
        let grows = spec(&[(128 * K, 1, 64 * K), (EOF, 2, 0)]);
        for (n, to) in [plain.clone(), three(), grows, three(), plain].into_iter().enumerate() {
            let fs = if n % 2 == 0 { &a } else { &b };
            client::Admin(fs).migrate(call(), f.fid, to).await.unwrap();
            assert!(read(&a, &f, 0, 1 << 20).await == want, "after move {n}");
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "after move {n}, the other mount");
            let part = bytes(n as u64, 3000);
            write(&b, &fb, n as u64 * 62 * K, part.clone()).await;
            want[n * 62 * 1024..n * 62 * 1024 + 3000].copy_from_slice(&part);
        }
        assert!(read(&a, &f, 0, 1 << 20).await == want);
    });
}

#[test]
fn a_group_locks_what_the_file_is_ever_to_have() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let fb = open(&b, fa.fid).await;
        a.clone().group_lock(fa.clone(), 7, true).await.unwrap();
        assert_eq!(objects(&a, fa.fid).await, [1, 2, 3]);
        b.clone().group_lock(fb.clone(), 7, true).await.unwrap();
        write(&a, &fa, 0, bytes(1, 4096)).await;
        write(&b, &fb, 300 * K, bytes(2, 4096)).await;
        a.clone().group_unlock(fa.clone(), 7).await.unwrap();
        b.clone().group_unlock(fb.clone(), 7).await.unwrap();
        assert_eq!(read(&a, &fa, 300 * K, 4096).await, bytes(2, 4096));
    });
}

//! Two files swap their data while two mounts use them.

use crate::data::{read, write};
use crate::harness::{Cluster, O_RDWR, call};
use client::{Admin, Fs, OpenHandle};
use model::layout::{ComponentSpec, EOF};
use model::{Errno, Fid, LayoutSpec, ObjectId};
use std::collections::BTreeSet;
use std::sync::Arc;

fn striped(count: i32) -> LayoutSpec {
    LayoutSpec { stripe_count: count, stripe_size: 65536, ..LayoutSpec::default() }
}

/// 64 KiB on one object, then two.
fn in_parts() -> LayoutSpec {
    let of = |(end, stripe_count)| ComponentSpec {
        end,
        stripe_count,
        stripe_size: 65536,
        ..ComponentSpec::default()
    };
    let mut s = LayoutSpec::default();
    s.set_components(&[of((65536, 1)), of((EOF, 2))]);
    s
}

async fn create(fs: &Arc<Fs>, name: &str, layout: Option<LayoutSpec>) -> Arc<OpenHandle> {
    let created = fs.clone().create(call(), fs.root(), name.into(), 0o644, O_RDWR, layout).await;
    Arc::new(created.unwrap().1)
}

async fn open(fs: &Arc<Fs>, fid: Fid) -> Arc<OpenHandle> {
    Arc::new(fs.clone().open(call(), fid, O_RDWR).await.unwrap())
}

async fn objects(fs: &Arc<Fs>, fid: Fid) -> BTreeSet<ObjectId> {
    let l = Admin(fs).getlayout(call(), fid).await.unwrap().unwrap();
    l.objects().map(|o| o.id).collect()
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 7 + n) as u8).collect()
}

#[test]
fn open_files_of_both_mounts_go_on_with_the_other_data_and_keep_all_else() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let (fx, fy) = (create(&a, "x", Some(striped(1))).await, create(&a, "y", Some(striped(3))).await);
        let (gx, gy) = (open(&b, fx.fid).await, open(&b, fy.fid).await);
        // What was written is still with its mount, on each side.
        write(&a, &fx, 0, bytes(1, 100_000)).await;
        write(&b, &gy, 0, bytes(2, 300_000)).await;
        assert_eq!(read(&b, &gx, 0, 1 << 20).await, bytes(1, 100_000));
        write(&a, &fx, 100_000, bytes(3, 5)).await;
        let was = [&fx, &fy].map(|f| f.fid);
        let x = a.clone().getattr(call(), was[0]).await.unwrap();
        let y = a.clone().getattr(call(), was[1]).await.unwrap();
        let before = [objects(&a, was[0]).await, objects(&a, was[1]).await];
        Admin(&b).swap(call(), (was[0], was[1]), true).await.unwrap();

        let whole = [bytes(1, 100_000), bytes(3, 5)].concat();
        for (fs, of_x, of_y) in [(&a, &fx, &fy), (&b, &gx, &gy)] {
            assert!(read(fs, of_x, 0, 1 << 20).await == bytes(2, 300_000));
            assert!(read(fs, of_y, 0, 1 << 20).await == whole);
            let (nx, ny) = (
                fs.clone().getattr(call(), was[0]).await.unwrap(),
                fs.clone().getattr(call(), was[1]).await.unwrap(),
            );
            assert_eq!((nx.size, ny.size), (300_000, 100_005));
            assert_eq!((nx.mtime, nx.atime, nx.uid), (x.mtime, x.atime, x.uid));
            assert_eq!((ny.mtime, ny.atime, ny.uid), (y.mtime, y.atime, y.uid));
        }
        assert_eq!([objects(&b, was[1]).await, objects(&b, was[0]).await], before);

        // Both go on being written by both, and nothing gets to the other file.
        write(&a, &fx, 0, bytes(4, 70_000)).await;
        write(&b, &gy, 0, bytes(5, 70_000)).await;
        assert!(read(&b, &gx, 0, 70_000).await == bytes(4, 70_000));
        assert!(read(&a, &fy, 0, 70_000).await == bytes(5, 70_000));
        // And back again; this time it counts as a change.
        Admin(&a).swap(call(), (was[1], was[0]), false).await.unwrap();
        assert!(read(&a, &fx, 0, 70_000).await == bytes(5, 70_000));
        assert!(read(&b, &gy, 0, 70_000).await == bytes(4, 70_000));
        assert!(a.clone().getattr(call(), was[0]).await.unwrap().mtime > x.mtime);
    });
}

#[test]
fn parts_that_get_objects_after_a_swap_get_none_that_the_other_file_has() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let (fx, fy) = (create(&a, "x", Some(in_parts())).await, create(&b, "y", Some(in_parts())).await);
        // One has all its objects, the other those of the first part.
        write(&a, &fx, 0, bytes(1, 200_000)).await;
        write(&b, &fy, 0, bytes(2, 1000)).await;
        Admin(&a).swap(call(), (fx.fid, fy.fid), true).await.unwrap();
        assert!(read(&a, &fx, 0, 1 << 20).await == bytes(2, 1000));
        write(&a, &fx, 100_000, bytes(3, 100_000)).await;
        let gy = open(&a, fy.fid).await;
        assert!(read(&a, &gy, 0, 1 << 20).await == bytes(1, 200_000), "nothing of it was written over");
        assert!(read(&b, &fy, 0, 1 << 20).await == bytes(1, 200_000));
        let (of_x, of_y) = (objects(&a, fx.fid).await, objects(&a, fy.fid).await);
        assert!(of_x.is_disjoint(&of_y), "{of_x:?} {of_y:?}");
        // Over and over, with files that grow between.
        for n in 0..3u8 {
            Admin(&b).swap(call(), (fx.fid, fy.fid), n == 1).await.unwrap();
            write(&a, &fx, 400_000 + u64::from(n), vec![n; 10]).await;
        }
        assert!(objects(&b, fx.fid).await.is_disjoint(&objects(&b, fy.fid).await));
    });
}

#[test]
fn small_files_get_objects_first_and_what_cannot_be_swapped_is_refused() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        let (fx, fy) = (create(&a, "x", None).await, create(&a, "y", Some(striped(1))).await);
        write(&a, &fx, 0, bytes(1, 100)).await;
        write(&a, &fy, 0, bytes(2, 200)).await;
        let swap = |x: Fid, y: Fid| Admin(&a).swap(call(), (x, y), true);
        assert_eq!(swap(fx.fid, fy.fid).await, Err(Errno::EOPNOTSUPP), "its data lies with the inode");
        Admin(&a).grow_for(call(), fx.fid).await.unwrap();
        swap(fx.fid, fy.fid).await.unwrap();
        assert!(read(&a, &fx, 0, 1000).await == bytes(2, 200));
        assert!(read(&a, &fy, 0, 1000).await == bytes(1, 100));
        assert_eq!(swap(fx.fid, fx.fid).await, Err(Errno::EINVAL));
        assert_eq!(swap(fx.fid, a.root()).await, Err(Errno::EINVAL));
        let nobody = Fid::new(fx.fid.seq, 9999, 0);
        assert_eq!(swap(fx.fid, nobody).await, Err(Errno::ESTALE));
        let foreign = create(&a, "z", Some(striped(1))).await;
        let set = model::SetAttr { uid: Some(7), ..model::SetAttr::default() };
        a.clone().setattr(call(), foreign.fid, set).await.unwrap();
        assert_eq!(swap(fx.fid, foreign.fid).await, Err(Errno::EPERM), "they have different owners");
        let user = client::Call { cred: model::Cred { uid: 7, gid: 7, ..model::Cred::default() }, ..call() };
        assert_eq!(Admin(&a).swap(user.clone(), (fx.fid, fy.fid), true).await, Err(Errno::EPERM));
        assert_eq!(Admin(&a).grow_for(user, fx.fid).await, Err(Errno::EPERM));
        assert!(read(&a, &fx, 0, 1000).await == bytes(2, 200));
    });
}

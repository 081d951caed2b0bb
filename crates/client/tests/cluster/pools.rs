//! OST pools: from the MGS to the mounts and the MDT, and into layouts.

use crate::harness::{Cluster, call};
use client::{Admin, Fs};
use mgs::pools::PoolVerb::{Add, Destroy, New, Remove};
use model::{Errno, Fid, Layout, LayoutSpec, Pool};
use std::sync::Arc;

fn spec(pool: &str, stripe_count: i32) -> LayoutSpec {
    LayoutSpec { stripe_count, pool: pool.into(), ..LayoutSpec::default() }
}

/// As `lfs setstripe`.
async fn create(fs: &Arc<Fs>, dir: Fid, name: &str, layout: Option<LayoutSpec>) -> Result<Fid, Errno> {
    // O_CREAT, O_EXCL, O_WRONLY
    let flags = 0o100 | 0o200 | 1;
    let (attr, file) = fs.clone().create(call(), dir, name.into(), 0o644, flags, layout).await?;
    fs.clone().close(Arc::new(file)).await.unwrap();
    Ok(attr.fid)
}

/// Pool and OSTs, in the order of indices.
fn place(l: &Layout) -> (&str, Vec<u16>) {
    let mut osts: Vec<u16> = l.objects().map(|o| o.ost).collect();
    osts.sort_unstable();
    (&l.shown().pool, osts)
}

#[test]
fn a_pool_of_the_mgs_is_where_files_of_every_mount_go() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        c.change_pool("flash", New).await;
        c.change_pool("flash", Add(vec![0, 2])).await;
        let flash = Pool { name: "flash".into(), osts: vec![0, 2] };
        for fs in [&a, &b] {
            c.until("the mount is told", || async { fs.config().pools() == [flash.clone()] }).await;
            let shown = fs.get_param("lov.*.pools.flash");
            assert_eq!(shown[0].1, "demo-OST0000_UUID\ndemo-OST0002_UUID");
        }
        let fid = create(&a, a.root(), "f", Some(spec("flash", -1))).await.unwrap();
        let l = Admin(&b).getlayout(call(), fid).await.unwrap().unwrap();
        assert_eq!(place(&l), ("flash", vec![0, 2]));
        assert_eq!(create(&a, a.root(), "x", Some(spec("gone", 1))).await, Err(Errno::EINVAL));

        // Moved into another pool, and the default of a directory.
        c.change_pool("one", New).await;
        c.change_pool("one", Add(vec![1])).await;
        let l = Admin(&b).migrate(call(), fid, spec("one", 1)).await.unwrap();
        assert_eq!(place(&l), ("one", vec![1]));
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        Admin(&a).setlayout(call(), dir, Some(spec("one", -1))).await.unwrap();
        let inherits = create(&b, dir, "inherits", None).await.unwrap();
        let l = Admin(&a).getlayout(call(), inherits).await.unwrap().unwrap();
        assert_eq!(place(&l), ("one", vec![1]));

        // A small file is in no pool until it grows.
        let mut small = spec("flash", 2);
        small.set_mdt_bytes(65536);
        let fid = create(&a, a.root(), "small", Some(small)).await.unwrap();
        let l = Admin(&b).getlayout(call(), fid).await.unwrap().unwrap();
        assert_eq!(place(&l), ("", vec![]));
        b.clone().write(call(), fid, 0, false, false, vec![7; 200_000].into()).await.unwrap();
        let l = Admin(&a).getlayout(call(), fid).await.unwrap().unwrap();
        assert_eq!(place(&l), ("flash", vec![0, 2]));

        // They outlive the MGS and the MDT.
        c.stop_mgs().await;
        c.start_mgs().await;
        c.stop_mdt().await;
        c.start_mdt().await;
        let fid = create(&b, dir, "later", None).await.unwrap();
        let l = Admin(&a).getlayout(call(), fid).await.unwrap().unwrap();
        assert_eq!(place(&l), ("one", vec![1]));

        // Nobody is refused for what he inherits.
        c.change_pool("one", Remove(vec![1])).await;
        c.change_pool("one", Destroy).await;
        let fid = create(&a, dir, "after", None).await.unwrap();
        let l = Admin(&a).getlayout(call(), fid).await.unwrap().unwrap();
        assert_eq!(place(&l), ("", vec![0, 1, 2]));
        c.until("the other mount is told", || async { b.config().pools() == [flash.clone()] }).await;
    });
}

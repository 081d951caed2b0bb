//! Calls that are dropped before they end: nothing leaks.

use crate::data::striped;
use crate::harness::{Cluster, O_CREAT, O_RDWR, call};
use bytes::Bytes;
use model::Errno;
use std::time::Duration;
use world::rng::Rng;

/// Opens and creates dropped after random times: afterwards an unlinked file has no opens left and is gone.
#[test]
fn dropped_opens_are_closed() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let mut rng = Rng::new(7);
        let f = striped(&a, "f", 1).await;
        let fid = f.fid;
        a.clone().close(f).await.unwrap();
        for i in 0..200 {
            let patience = Duration::from_micros(rng.below(1500));
            if i % 2 == 0 {
                if let Some(r) = c.world.timeout(patience, b.clone().open(call(), fid, O_RDWR)).await {
                    b.clone().close(std::sync::Arc::new(r.unwrap())).await.unwrap();
                }
            } else {
                let create = b.clone().create(call(), b.root(), b"f".to_vec(), 0o644, O_CREAT | O_RDWR, None);
                if let Some(r) = c.world.timeout(patience, create).await {
                    b.clone().close(std::sync::Arc::new(r.unwrap().1)).await.unwrap();
                }
            }
        }
        let open = || b.get_param("llite.*.open_files")[0].1.clone();
        c.until("all handles are closed", || async { open() == "0" }).await;
        a.clone().unlink(call(), a.root(), b"f".to_vec()).await.unwrap();
        c.until("the file is gone", || async {
            matches!(a.clone().getattr(call(), fid).await, Err(Errno::ENOENT | Errno::ESTALE))
        })
        .await;
    });
}

/// Striped writes and truncates dropped at random times give their locks back.
#[test]
fn dropped_writes_leave_no_lock() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let mut rng = Rng::new(8);
        let f = striped(&a, "f", 3).await;
        for i in 0..150u32 {
            let patience = Duration::from_micros(rng.below(4000));
            let data = Bytes::from(vec![i as u8; 200_000]);
            let _ =
                c.world.timeout(patience, b.clone().write(call(), f.fid, 0, i % 3 == 0, false, data)).await;
        }
        let set = model::SetAttr { size: Some(0), ..model::SetAttr::default() };
        c.within(a.clone().setattr(call(), f.fid, set)).await.unwrap();
        c.within(a.clone().write(call(), f.fid, 0, false, false, Bytes::from(vec![1; 200_000])))
            .await
            .unwrap();
    });
}

#[test]
fn a_soft_mount_gives_up() {
    let c = Cluster::start(1);
    c.run(async {
        let mut o = c.options();
        o.soft_timeout_ms = Some(300);
        let a = client::Fs::mount(c.world.clone(), o).await.unwrap();
        let f = striped(&a, "f", 1).await;
        c.stop_ost(0).await;
        let r = a.clone().write(call(), f.fid, 0, false, false, Bytes::from_static(b"x")).await;
        assert_eq!(r, Err(Errno::EIO));
        let df = c.within(client::Admin(&a).df()).await;
        assert!(df.iter().any(|d| d.1.is_err()));
        c.start_ost(0).await;
        c.until("the OST is back", || async {
            a.clone().write(call(), f.fid, 0, false, false, Bytes::from_static(b"x")).await.is_ok()
        })
        .await;
    });
}

/// With every server dead an unmount ends soon, and so does what waited for them.
#[test]
fn an_unmount_does_not_wait_for_the_dead() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let f = striped(&a, "f", 1).await;
        c.stop_ost(0).await;
        c.stop_mdt().await;
        c.stop_mgs().await;
        let (fs, fid) = (a.clone(), f.fid);
        let write =
            c.spawn(async move { fs.write(call(), fid, 0, false, false, Bytes::from_static(b"x")).await });
        let fs = a.clone();
        let look = c.spawn(async move { fs.clone().lookup(call(), fs.root(), b"f".to_vec()).await });
        c.world.sleep(Duration::from_millis(50)).await;
        let start = c.world.now();
        a.clone().unmount().await;
        assert!(c.world.now().since(start) < Duration::from_secs(3));
        assert!(c.within(write).await.unwrap().is_err());
        assert!(c.within(look).await.unwrap().is_err());
    });
}

//! Limits on inodes, while mounts make files by themselves in directories that they have alone.

use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, call, user};
use client::{Admin, Fs};
use model::quota::{LimitChange, LimitOrder};
use model::usage::{QuotaId, QuotaType};
use model::{Cred, Errno, Fid, SetAttr};
use std::sync::Arc;
use std::time::Duration;

async fn limit(fs: &Arc<Fs>, of: QuotaId, hard: u64) {
    let inodes = LimitChange { soft: None, hard: Some(hard) };
    let order = LimitOrder::Own { of, space: LimitChange::default(), inodes };
    Admin(fs).setquota(call(), order).await.unwrap();
}

async fn make(fs: &Arc<Fs>, by: client::Call, dir: Fid, name: &str) -> Result<(), Errno> {
    let flags = O_RDWR | O_CREAT | O_EXCL;
    let (_, f) = fs.clone().create(by, dir, name.as_bytes().to_vec(), 0o644, flags, None).await?;
    fs.clone().close(Arc::new(f)).await
}

/// Makes files until the mount does so without asking. Returns how many.
async fn make_until_alone(c: &Cluster, fs: &Arc<Fs>, dir: Fid, prefix: &str) -> u64 {
    let before = fs.pending_state().0;
    for i in 0..500 {
        make(fs, user(7), dir, &format!("{prefix}{i}")).await.unwrap();
        if fs.pending_state().0 > before {
            return i + 1;
        }
        // A directory that somebody else asked for is left alone for a while.
        c.world.sleep(Duration::from_millis(20)).await;
    }
    panic!("the mount asks each time, although its user is far from his limit");
}

/// Files made until there may be no more.
async fn make_all(fs: &Arc<Fs>, dir: Fid, prefix: &str) -> u64 {
    for i in 0..10_000 {
        match make(fs, user(7), dir, &format!("{prefix}{i}")).await {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e, Errno::EDQUOT);
                return i;
            }
        }
    }
    panic!("no limit");
}

#[test]
fn two_mounts_together_get_what_one_may_have() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        a.clone().setattr(call(), a.root(), all).await.unwrap();
        let da = a.clone().mkdir(user(7), a.root(), b"a".to_vec(), 0o755).await.unwrap().fid;
        let db = b.clone().mkdir(user(7), b.root(), b"b".to_vec(), 0o755).await.unwrap().fid;
        let of = QuotaId { of: QuotaType::User, id: 7 };
        limit(&a, of, 1 << 40).await;
        let there = make_until_alone(&c, &a, da, "a").await + make_until_alone(&c, &b, db, "b").await;
        for i in 0..50 {
            make(&a, user(7), da, &format!("{i}")).await.unwrap();
            make(&b, user(7), db, &format!("{i}")).await.unwrap();
        }

        // Of another group's limits only the server knows.
        let group = client::Call { cred: Cred::new(7, 8), ..user(7) };
        let before = a.pending_state().0;
        make(&a, group, da, "of group 8").await.unwrap();
        assert_eq!(a.pending_state().0, before, "it was asked");

        // The two directories, those of before, and 101 files.
        let there = there + 103;
        limit(&a, of, there + 40).await;
        let (left, right) = world::future::join(make_all(&a, da, "x"), make_all(&b, db, "x")).await;
        assert_eq!(left + right, 40, "{left} and {right}");
        for i in 0..5 {
            b.clone().unlink(user(7), db, format!("{i}").into_bytes()).await.unwrap();
        }
        assert_eq!(make_all(&a, da, "y").await, 5, "what was freed may be used by whom it likes");
        limit(&a, of, there + 47).await;
        assert_eq!(make_all(&b, db, "z").await, 7);
        limit(&a, of, 1 << 40).await;
        make_until_alone(&c, &b, db, "w").await;
    });
}

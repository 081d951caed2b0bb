//! What owners use, as mounts ask it of all targets, while files are written and change hands.

use crate::data::write;
use crate::harness::{Cluster, O_RDWR, call, user};
use client::{Admin, Fs};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Errno, Fid, LayoutSpec, SetAttr};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::quotactl::QuotaAsk;

fn of_user(id: u32) -> QuotaId {
    QuotaId { of: QuotaType::User, id }
}

/// Of all targets together; all of them answer.
async fn usage(fs: &Arc<Fs>, id: QuotaId) -> Usage {
    let (said, _) = Admin(fs).quotactl(call(), QuotaAsk::Of(vec![id])).await.unwrap();
    assert!(said.len() > 1);
    said.iter().fold(Usage::default(), |sum, (_, r)| sum.plus(r.as_ref().unwrap().usage[0].1))
}

async fn until(c: &Cluster, fs: &Arc<Fs>, id: QuotaId, want: Usage) {
    for _ in 0..1000 {
        if usage(fs, id).await == want {
            return;
        }
        c.world.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(usage(fs, id).await, want, "{id}");
}

async fn blocks(fs: &Arc<Fs>, fid: Fid) -> u64 {
    fs.clone().getattr(call(), fid).await.unwrap().blocks
}

#[test]
fn the_sum_is_what_stat_shows_and_goes_along_with_a_chown() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        a.clone().setattr(call(), a.root(), all).await.unwrap();
        let layout = Some(LayoutSpec { stripe_count: 3, stripe_size: 65536, ..LayoutSpec::default() });
        let made =
            a.clone().create(user(7), a.root(), "f".into(), 0o644, O_RDWR, layout.clone()).await.unwrap();
        let f = Arc::new(made.1);
        write(&a, &f, 0, vec![1; 500_000]).await;
        a.clone().fsync(call(), f.fid).await.unwrap();
        let made = a.clone().create(user(7), a.root(), "small".into(), 0o644, O_RDWR, None).await.unwrap();
        let small = Arc::new(made.1);
        write(&a, &small, 0, vec![1; 5000]).await;
        a.clone().fsync(call(), small.fid).await.unwrap();
        let has = Usage { inodes: 2, blocks: blocks(&b, f.fid).await + blocks(&b, small.fid).await };
        assert!(has.blocks >= 1000);
        until(&c, &b, of_user(7), has).await;

        // More is kept by the mount that does not know of the new owner yet when it writes it.
        write(&a, &f, 500_000, vec![2; 300_000]).await;
        let to_8 = SetAttr { uid: Some(8), gid: Some(8), ..SetAttr::default() };
        b.clone().setattr(call(), f.fid, to_8).await.unwrap();
        a.clone().fsync(call(), f.fid).await.unwrap();
        let has = Usage { inodes: 1, blocks: blocks(&b, f.fid).await };
        until(&c, &b, of_user(8), has).await;
        let left = Usage { inodes: 1, blocks: blocks(&b, small.fid).await };
        until(&c, &b, of_user(7), left).await;

        // Truncates and fallocates are the file's owner's, whoever makes them.
        let made = a.clone().create(user(8), a.root(), "g".into(), 0o644, O_RDWR, layout).await;
        let g = Arc::new(made.unwrap().1);
        b.clone().fallocate(call(), g.fid, 0, 0, 300_000).await.unwrap();
        let has = Usage { inodes: 2, blocks: has.blocks + blocks(&b, g.fid).await };
        until(&c, &b, of_user(8), has).await;

        a.clone().close(f).await.unwrap();
        a.clone().unlink(call(), a.root(), "f".into()).await.unwrap();
        until(&c, &b, of_user(8), Usage { inodes: 1, blocks: blocks(&b, g.fid).await }).await;
        for (target, said) in Admin(&b).quotactl(call(), QuotaAsk::Verify).await.unwrap().0 {
            assert_eq!(said.unwrap().differed, [], "{}", target.target);
        }
    });
}

#[test]
fn users_see_themselves_and_pages_of_all_targets_fit_together() {
    let c = Cluster::start(2);
    c.run(async {
        let fs = c.mount().await;
        let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        fs.clone().setattr(call(), fs.root(), all).await.unwrap();
        for uid in [5, 6] {
            let name = format!("f{uid}").into();
            let layout = Some(LayoutSpec { stripe_count: 1, ..LayoutSpec::default() });
            let made = fs.clone().create(user(uid), fs.root(), name, 0o644, O_RDWR, layout).await.unwrap();
            let f = Arc::new(made.1);
            write(&fs, &f, 0, vec![1; 4096]).await;
            fs.clone().fsync(call(), f.fid).await.unwrap();
        }
        let ask = |uid, ask| Admin(&fs).quotactl(user(uid), ask);
        assert!(ask(5, QuotaAsk::Of(vec![of_user(5)])).await.is_ok());
        assert_eq!(ask(5, QuotaAsk::Of(vec![of_user(6)])).await.err(), Some(Errno::EPERM));
        let page = QuotaAsk::All { of: QuotaType::User, after: Some(0) };
        assert_eq!(ask(5, page.clone()).await.err(), Some(Errno::EPERM));
        let (said, next) = Admin(&fs).quotactl(call(), page).await.unwrap();
        assert_eq!(next, None);
        let mut sums = std::collections::BTreeMap::<u32, Usage>::new();
        for (id, u) in said.into_iter().flat_map(|(_, r)| r.unwrap().usage) {
            let sum = sums.entry(id.id).or_default();
            *sum = sum.plus(u);
        }
        let one = Usage { inodes: 1, blocks: 8 };
        assert_eq!(sums.into_iter().collect::<Vec<_>>(), [(5, one), (6, one)]);
    });
}

//! Limits on space: what all mounts and all targets together let somebody have.

use crate::harness::{Cluster, O_RDWR, call, user};
use client::{Admin, Fs, OpenHandle};
use model::quota::{Grace, LimitChange, LimitOrder, Standings};
use model::usage::{QuotaId, QuotaType};
use model::{Errno, LayoutSpec, SetAttr};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::quotactl::QuotaAsk;

const MIB: u64 = 1 << 20;
const UID: u32 = 7;
const HIM: QuotaId = QuotaId { of: QuotaType::User, id: UID };

async fn order(fs: &Arc<Fs>, order: LimitOrder) {
    Admin(fs).setquota(call(), order).await.unwrap();
}

async fn limit(fs: &Arc<Fs>, of: QuotaId, soft: u64, hard: u64) {
    let space = LimitChange { soft: Some(soft), hard: Some(hard) };
    order(fs, LimitOrder::Own { of, space, inodes: LimitChange::default() }).await;
}

/// Bytes that he uses on all targets, and how he stands.
async fn usage(fs: &Arc<Fs>) -> (u64, Option<Standings>) {
    let (said, _) = Admin(fs).quotactl(call(), QuotaAsk::Of(vec![HIM])).await.unwrap();
    let all: Vec<_> = said.into_iter().map(|(_, r)| r.unwrap()).collect();
    let limits = all.iter().find_map(|r| r.limits.0.as_ref()).and_then(|l| l.owners.first().map(|(_, s)| *s));
    (all.iter().map(|r| r.usage[0].1.bytes()).sum(), limits)
}

/// What he uses once nothing is on its way.
async fn settled(c: &Cluster, fs: &Arc<Fs>) -> u64 {
    let mut was = usage(fs).await.0;
    let mut same = 0;
    while same < 10 {
        c.world.sleep(Duration::from_millis(150)).await;
        let now = usage(fs).await.0;
        same = if now == was { same + 1 } else { 0 };
        was = now;
    }
    was
}

/// Everybody may make files in the root directory.
async fn open_to_all(fs: &Arc<Fs>) {
    let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    fs.clone().setattr(call(), fs.root(), all).await.unwrap();
}

async fn make(fs: &Arc<Fs>, name: &str, stripes: u16) -> Arc<OpenHandle> {
    let spec = LayoutSpec { stripe_count: i32::from(stripes), stripe_size: 1 << 16, ..LayoutSpec::default() };
    let layout = (stripes > 0).then_some(spec);
    let made = fs.clone().create(user(UID), fs.root(), name.into(), 0o644, O_RDWR, layout).await;
    Arc::new(made.unwrap().1)
}

async fn write(fs: &Arc<Fs>, f: &OpenHandle, off: u64, len: usize) -> Result<(), Errno> {
    fs.clone().write(user(UID), f.fid, off, false, false, vec![1; len].into()).await.map(drop)
}

/// Writes to a file until it may have no more; how many bytes.
async fn fill(fs: &Arc<Fs>, f: &OpenHandle, step: usize) -> u64 {
    let mut off = 0;
    loop {
        match write(fs, f, off, step).await {
            Ok(()) => off += step as u64,
            Err(e) => {
                assert_eq!(e, Errno::EDQUOT, "at {off}");
                fs.clone().fsync(call(), f.fid).await.expect("what was accepted is written");
                return off;
            }
        }
        assert!(off < 4096 * MIB, "no limit");
    }
}

#[test]
fn four_writers_on_two_mounts_stop_at_the_limit() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        open_to_all(&a).await;
        limit(&a, HIM, 0, 64 * MIB).await;
        let files =
            [make(&a, "0", 1).await, make(&a, "1", 3).await, make(&b, "2", 1).await, make(&b, "3", 2).await];
        let (left, right) = world::future::join(
            world::future::join(fill(&a, &files[0], 100_000), fill(&a, &files[1], 65_536)),
            world::future::join(fill(&b, &files[2], 4096), fill(&b, &files[3], 300_000)),
        )
        .await;
        let used = settled(&c, &b).await;
        let said = format!("{} bytes used, {left:?} and {right:?} written", used);
        assert!(used <= 65 * MIB, "{said}");
        assert!(used >= 62 * MIB, "{said}");

        // Others are not concerned, and what lies there may be written over.
        let made = b.clone().create(user(8), b.root(), "other".into(), 0o644, O_RDWR, None).await;
        let other = made.unwrap().1;
        b.clone().write(user(8), other.fid, 0, false, false, vec![1; 3_000_000].into()).await.unwrap();
        write(&a, &files[0], 0, 5000).await.unwrap();
        assert_eq!(write(&b, &files[3], right.1, 1_000_000).await, Err(Errno::EDQUOT));

        // What is freed on one target may be used on all.
        a.clone().unlink(call(), a.root(), "1".into()).await.unwrap();
        a.clone().close(files[1].clone()).await.unwrap();
        c.within(async {
            while usage(&a).await.0 + left.1 > used + MIB {
                c.world.sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        write(&b, &files[3], right.1, 1_000_000).await.unwrap();
        fill(&b, &files[2], 50_000).await;
        let used = settled(&c, &b).await;
        assert!((62 * MIB..=65 * MIB).contains(&used), "{used}");

        // More is allowed, and then nothing is limited any more.
        limit(&b, HIM, 0, 80 * MIB).await;
        fill(&a, &files[0], 200_000).await;
        let used = settled(&c, &b).await;
        assert!((78 * MIB..=81 * MIB).contains(&used), "{used}");
        limit(&b, HIM, 0, 0).await;
        write(&a, &files[0], 0, 16_000_000).await.unwrap();
        write(&a, &files[0], 100 * MIB, 16_000_000).await.unwrap();
        a.clone().fsync(call(), files[0].fid).await.unwrap();
    });
}

#[test]
fn what_somebody_has_may_be_moved_though_he_may_have_no_more() {
    let c = Cluster::start(3);
    c.run(async {
        let a = c.mount().await;
        open_to_all(&a).await;
        limit(&a, HIM, 0, 4 * MIB).await;
        let f = make(&a, "f", 1).await;
        let len = fill(&a, &f, 65_536).await;
        let spec = LayoutSpec { stripe_count: 2, stripe_size: 1 << 16, ..LayoutSpec::default() };
        let moved = Admin(&a).migrate(call(), f.fid, spec).await.unwrap();
        assert_eq!(moved.object_count(), 2);
        let used = settled(&c, &a).await;
        assert!(used <= 4 * MIB + 65_536, "{used}: the old objects are gone");
        let data = a.clone().read(user(UID), f.clone(), len - 4096, 4096).await.unwrap();
        assert!(data.len() == 4096 && data.iter().all(|x| *x == 1));
        assert_eq!(write(&a, &f, len, 1 << 20).await, Err(Errno::EDQUOT), "and he may have no more");
    });
}

#[test]
fn root_is_held_up_by_nothing_and_fallocate_is() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        open_to_all(&a).await;
        limit(&a, HIM, 0, 4 * MIB).await;
        let f = make(&a, "f", 2).await;
        assert_eq!(a.clone().fallocate(user(UID), f.fid, 0, 0, 16 * MIB).await, Err(Errno::EDQUOT));
        a.clone().fallocate(user(UID), f.fid, 0, 0, MIB).await.unwrap();
        fill(&a, &f, 65_536).await;
        let used = settled(&c, &a).await;
        assert!((3 * MIB..=4 * MIB + 65_536).contains(&used), "{used}");
        a.clone().write(call(), f.fid, 20 * MIB, false, false, vec![1; 1 << 20].into()).await.unwrap();
        a.clone().fallocate(call(), f.fid, 0, 30 * MIB, MIB).await.unwrap();
        a.clone().fsync(call(), f.fid).await.unwrap();
        assert_eq!(write(&a, &f, 40 * MIB, 4096).await, Err(Errno::EDQUOT));
    });
}

#[test]
fn small_files_and_objects_count_together() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        open_to_all(&a).await;
        limit(&a, HIM, 0, 8 * MIB).await;
        let big = make(&a, "big", 1).await;
        write(&a, &big, 0, 4 << 20).await.unwrap();
        a.clone().fsync(call(), big.fid).await.unwrap();
        let mut made = 0;
        let refused = loop {
            let f = match a
                .clone()
                .create(user(UID), a.root(), format!("s{made}").into(), 0o644, O_RDWR, None)
                .await
            {
                Ok((_, f)) => f,
                Err(e) => break e,
            };
            let r = write(&a, &f, 0, 4096).await;
            a.clone().close(Arc::new(f)).await.unwrap();
            if let Err(e) = r {
                break e;
            }
            made += 1;
            assert!(made < 5000, "no limit");
        };
        assert_eq!(refused, Errno::EDQUOT);
        let used = settled(&c, &a).await;
        assert!((7 * MIB..=8 * MIB + 65_536).contains(&used), "{used} bytes, {made} small files");
    });
}

#[test]
fn a_soft_limit_holds_when_its_grace_time_is_over() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        open_to_all(&a).await;
        limit(&a, HIM, 4 * MIB, 12 * MIB).await;
        let f = make(&a, "f", 2).await;
        write(&a, &f, 0, 3 << 20).await.unwrap();
        a.clone().fsync(call(), f.fid).await.unwrap();
        assert_eq!(usage(&a).await.1.unwrap().space.over_since, None);
        write(&a, &f, 3 * MIB, 5 << 20).await.unwrap();
        a.clone().fsync(call(), f.fid).await.unwrap();
        // The metadata server hears of it with the next word from the object servers.
        let mut left = None;
        for _ in 0..1000 {
            left = usage(&a).await.1.unwrap().space_grace_left;
            if left.is_some() {
                break;
            }
            c.world.sleep(Duration::from_millis(20)).await;
        }
        assert!(left.is_some_and(|s| s > 600_000), "the grace time, a week, runs: {left:?}");
        let now = Grace::Seconds(0);
        order(&a, LimitOrder::Grace { of: QuotaType::User, space: Some(now), inodes: None }).await;
        let mut off = 9 * MIB;
        while write(&a, &f, off, 4096).await != Err(Errno::EDQUOT) {
            // The mount hears of it with its next write to a server, which it makes within a second.
            off += 4096;
            assert!(off < 10 * MIB, "no limit");
            c.world.sleep(Duration::from_millis(20)).await;
        }
        let cut = SetAttr { size: Some(MIB), ..SetAttr::default() };
        a.clone().setattr(user(UID), f.fid, cut).await.unwrap();
        settled(&c, &a).await;
        write(&a, &f, MIB, 1 << 20).await.unwrap();
        for _ in 0..1000 {
            if usage(&a).await.1.unwrap().space.over_since.is_none() {
                return;
            }
            c.world.sleep(Duration::from_millis(20)).await;
        }
        panic!("the soft limit is not exceeded any more, and nobody knows");
    });
}

#[test]
fn what_holds_for_all_users_holds_for_each() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        open_to_all(&a).await;
        let space = LimitChange { soft: None, hard: Some(4 * MIB) };
        order(&a, LimitOrder::Default { of: QuotaType::User, space, inodes: LimitChange::default() }).await;
        let f = make(&a, "f", 2).await;
        let g = make(&b, "g", 1).await;
        world::future::join(fill(&a, &f, 10_000), fill(&b, &g, 65_536)).await;
        let used = settled(&c, &a).await;
        assert!((3 * MIB..=4 * MIB + 65_536).contains(&used), "{used}");
        limit(&a, HIM, 0, 6 * MIB).await;
        fill(&a, &f, 10_000).await;
        let used = settled(&c, &a).await;
        assert!((5 * MIB..=6 * MIB + 65_536).contains(&used), "{used}");
        order(&a, LimitOrder::UseDefault { of: HIM }).await;
        assert_eq!(write(&b, &g, 30 * MIB, 4096).await, Err(Errno::EDQUOT));
        let none = LimitChange { soft: Some(0), hard: Some(0) };
        order(&a, LimitOrder::Default { of: QuotaType::User, space: none, inodes: none }).await;
        write(&b, &g, 30 * MIB, 8 << 20).await.unwrap();
        b.clone().fsync(call(), g.fid).await.unwrap();
    });
}

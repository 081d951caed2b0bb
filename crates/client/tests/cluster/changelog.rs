//! A consumer of the changelog: it is told of each change once and in order, whichever mount made it, by
//! itself or through the server, and over restarts of the metadata server.

use crate::data::write;
use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, call, user};
use client::admin::answer;
use client::control::Request;
use client::{Admin, Fs};
use model::changelog::{Mask, Order, Record, RecordKind};
use model::{Errno, Fid, LayoutSpec, TargetId};
use std::sync::Arc;
use wire::msg::changelog::Changelog;

const MDT: TargetId = TargetId::mdt(0);

async fn register(c: &Cluster, mask: &str) -> String {
    let order = Order::Register { name: String::new(), mask: Some(mask.into()) };
    mds::changelog_order(&c.mdt(), &order).await.unwrap()
}

fn wanted(start: u64) -> Changelog {
    Changelog { start, end: 0, consumer: "cl1".into(), mask: Mask::NONE, told: true }
}

/// What waits for the consumer from `start` on.
async fn read(fs: &Arc<Fs>, start: u64) -> Vec<Record> {
    let (mut m, mut all) = (wanted(start), Vec::new());
    loop {
        let page = Admin(fs).changelog(call(), MDT, m.clone()).await.unwrap();
        all.extend(page.records);
        if page.end {
            return all;
        }
        m.start = page.next;
    }
}

fn said(records: &[Record]) -> Vec<String> {
    let one = |r: &Record| format!("{} {}", r.kind.word(), String::from_utf8_lossy(&r.name));
    records.iter().map(one).collect()
}

async fn make(fs: &Arc<Fs>, dir: Fid, name: &str) {
    let flags = O_RDWR | O_CREAT | O_EXCL;
    let made = fs.clone().create(call(), dir, name.into(), 0o644, flags, None).await.unwrap();
    fs.clone().close(Arc::new(made.1)).await.unwrap();
}

#[test]
fn what_a_mount_executes_by_itself_is_told_once_and_in_order() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        register(&c, "-MTIME,-CLOSE,-MARK").await;
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let mut want = vec!["MKDIR d".to_string()];
        for i in 0..300 {
            make(&a, dir, &format!("f{i}")).await;
            want.push(format!("CREAT f{i}"));
            if i % 3 == 0 {
                a.clone().unlink(call(), dir, format!("f{i}").into_bytes()).await.unwrap();
                want.push(format!("UNLNK f{i}"));
            }
        }
        assert!(a.pending_state().0 > 300, "the mount executes them by itself");
        // The other mount is told of all of it, also of what the first one had not told yet.
        let all = read(&b, 0).await;
        assert_eq!(said(&all), want);
        let indexes: Vec<u64> = all.iter().map(|r| r.index).collect();
        assert_eq!(indexes, (1..=want.len() as u64).collect::<Vec<_>>());
        assert!(all.windows(2).all(|w| w[0].time <= w[1].time), "each at its time");
        // What is cleared does not come again; the rest does, as often as it is asked for.
        Admin(&b).changelog_clear(call(), MDT, "cl1".into(), 100).await.unwrap();
        assert_eq!(said(&read(&a, 0).await), want[100..]);
        assert_eq!(said(&read(&b, 0).await), want[100..]);
    });
}

#[test]
fn a_consumer_goes_on_over_restarts_of_the_metadata_server() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        register(&c, "CREAT RENME UNLNK").await;
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let (mut want, mut got) = (Vec::new(), Vec::new());
        for round in 0..4 {
            for i in 0..50 {
                // By turns, so that now the one executes by itself and now the server does.
                let fs = if i % 10 < 5 { &a } else { &b };
                let (old, new) = (format!("t{round}-{i}"), format!("f{round}-{i}"));
                make(fs, dir, &old).await;
                fs.clone().rename(call(), dir, old.clone().into(), dir, new.clone().into(), 0).await.unwrap();
                want.extend([format!("CREAT {old}"), format!("RENME {new}")]);
            }
            // With some of it told and some not, some durable and some not.
            c.stop_mdt().await;
            c.start_mdt().await;
            let some = c.within(read(&b, 0)).await;
            if let Some(last) = some.last() {
                Admin(&b).changelog_clear(call(), MDT, "cl1".into(), last.index).await.unwrap();
            }
            got.extend(some);
        }
        assert_eq!(said(&got), want);
        let indexes: Vec<u64> = got.iter().map(|r| r.index).collect();
        assert_eq!(indexes, (1..=want.len() as u64).collect::<Vec<_>>());
    });
}

#[test]
fn files_that_get_objects_and_opens_are_told_of() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        register(&c, "LYOUT OPEN CLOSE TRUNC").await;
        let spec = Some(LayoutSpec { stripe_count: 2, stripe_size: 65536, ..LayoutSpec::default() });
        let flags = O_RDWR | O_CREAT;
        let (attr, f) = a.clone().create(call(), a.root(), b"f".to_vec(), 0o644, flags, spec).await.unwrap();
        let f = Arc::new(f);
        write(&a, &f, 0, vec![1; 100_000]).await;
        a.clone().close(f).await.unwrap();
        // Each later one too, though the mount knows the file.
        for _ in 0..3 {
            let f = Arc::new(a.clone().open(call(), attr.fid, O_RDWR).await.unwrap());
            write(&a, &f, 0, vec![2; 100]).await;
            a.clone().close(f).await.unwrap();
        }
        a.clone().fsync(call(), a.root()).await.unwrap();
        let all = read(&a, 0).await;
        let of = |k: RecordKind| all.iter().filter(|r| r.kind == k && r.fid == attr.fid).count();
        assert_eq!((of(RecordKind::Open), of(RecordKind::Close)), (4, 4), "{:?}", said(&all));
        // A small file that outgrows its inode.
        let (small, f) = a.clone().create(call(), a.root(), b"g".to_vec(), 0o644, flags, None).await.unwrap();
        let f = Arc::new(f);
        write(&a, &f, 0, vec![3; 300_000]).await;
        a.clone().fsync(call(), small.fid).await.unwrap();
        let all = read(&a, 0).await;
        assert!(all.iter().any(|r| r.kind == RecordKind::Layout && r.fid == small.fid), "{:?}", said(&all));
    });
}

#[test]
fn only_root_is_answered() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let ask = |by, request| answer(&a, by, a.root(), request);
        let read = Request::Changelog { target: MDT, wanted: wanted(0) };
        let clear = |target, end| Request::ChangelogClear { target, consumer: "cl1".into(), end };
        for request in [read.clone(), clear(MDT, 0)] {
            let refused = ask(user(5), request.clone()).await.unwrap_err();
            assert_eq!((refused.errno, refused.message.contains("only root")), (Errno::EPERM.0, true));
            assert_eq!(ask(call(), request).await.unwrap_err().errno, Errno::ENOENT.0);
        }
        register(&c, "CREAT").await;
        assert_eq!(ask(call(), clear(MDT, 9)).await.unwrap_err().errno, Errno::EINVAL.0);
        ask(call(), clear(MDT, 0)).await.unwrap();
        let nowhere = ask(call(), clear(TargetId::mdt(7), 0)).await.unwrap_err();
        assert_eq!(nowhere.errno, Errno::ENODEV.0);
    });
}

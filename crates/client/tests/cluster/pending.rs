//! Operations that a mount executes by itself: the other mount must not notice, and nothing may differ from
//! what the server makes of them.

use crate::data::{read, write};
use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, call, user};
use client::{Fs, OpenHandle};
use model::{Attr, Errno, Fid, LayoutSpec, SetAttr, SetTime};
use std::sync::Arc;

async fn make(fs: &Arc<Fs>, dir: Fid, name: &str) -> (Attr, Arc<OpenHandle>) {
    let flags = O_RDWR | O_CREAT | O_EXCL;
    let (a, f) = fs.clone().create(call(), dir, name.into(), 0o640, flags, None).await.unwrap();
    (a, Arc::new(f))
}

async fn names(fs: &Arc<Fs>, dir: Fid) -> Vec<String> {
    let (page, _, end) = fs.clone().readdir(call(), dir, 0, 1 << 20, false).await.unwrap();
    assert!(end);
    let mut all: Vec<String> = page.into_iter().map(|d| String::from_utf8(d.name).unwrap()).collect();
    all.sort();
    all
}

fn executed(fs: &Fs) -> u64 {
    fs.pending_state().0
}

#[test]
fn the_other_mount_sees_everything_as_the_server_makes_it() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let dir = a.clone().mkdir(call(), root, b"d".to_vec(), 0o2775).await.unwrap().fid;
        let sub = a.clone().mkdir(call(), dir, b"sub".to_vec(), 0o755).await.unwrap().fid;
        let link = a.clone().symlink(call(), dir, b"l".to_vec(), b"where".to_vec()).await.unwrap().fid;
        let (attr, f) = make(&a, sub, "f").await;
        write(&a, &f, 0, vec![7; 5000]).await;
        write(&a, &f, 40_000, vec![8; 10]).await;
        let cut = SetAttr { size: Some(41_000), by_handle: true, ..SetAttr::default() };
        a.clone().setattr(call(), f.fid, cut).await.unwrap();
        let touch = SetAttr {
            mtime: Some(SetTime::At(crate::harness::at(77))),
            mode: Some(0o4755),
            ..SetAttr::default()
        };
        a.clone().setattr(call(), f.fid, touch).await.unwrap();
        let (old, _) = make(&a, dir, "old").await;
        a.clone().rename(call(), dir, b"l".to_vec(), sub, b"m".to_vec(), 0).await.unwrap();
        let (gone, handle) = make(&a, dir, "gone").await;
        a.clone().close(handle).await.unwrap();
        a.clone().unlink(call(), dir, b"gone".to_vec()).await.unwrap();
        assert!(executed(&a) >= 12, "only {} operations were executed by the mount", executed(&a));
        // What it says of them is what the server says.
        let mut mine = Vec::new();
        for fid in [root, dir, sub, link, attr.fid, old.fid] {
            mine.push(a.clone().getattr(call(), fid).await.unwrap());
        }
        assert_eq!(b.clone().lookup(call(), root, b"d".to_vec()).await.unwrap().fid, dir);
        assert_eq!(b.clone().lookup(call(), dir, b"gone".to_vec()).await.unwrap_err(), Errno::ENOENT);
        assert_eq!(b.clone().getattr(call(), gone.fid).await.unwrap_err(), Errno::ENOENT);
        assert_eq!(names(&b, dir).await, ["old", "sub"]);
        assert_eq!(names(&b, sub).await, ["f", "m"]);
        for m in mine {
            assert_eq!(b.clone().getattr(call(), m.fid).await.unwrap(), m);
        }
        assert_eq!(b.clone().readlink(call(), link).await.unwrap(), b"where");
        let theirs = Arc::new(b.clone().open(call(), attr.fid, 0).await.unwrap());
        let data = read(&b, &theirs, 0, 100_000).await;
        assert_eq!((data.len(), data[4999], data[5000], data[40_005], data[40_010]), (41_000, 7, 0, 8, 0));
        assert_eq!(a.get_param("llite.*.md_pending_ops")[0].1, "0");
    });
}

#[test]
fn errors_come_at_the_call() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let (_, f) = make(&a, dir, "f").await;
        let flags = O_RDWR | O_CREAT | O_EXCL;
        let again = a.clone().create(call(), dir, b"f".to_vec(), 0o644, flags, None).await;
        assert_eq!(again.err(), Some(Errno::EEXIST));
        let stranger = a.clone().create(user(7), dir, b"g".to_vec(), 0o644, flags, None).await;
        assert_eq!(stranger.err(), Some(Errno::EACCES));
        assert_eq!(a.clone().unlink(user(7), dir, b"f".to_vec()).await, Err(Errno::EACCES));
        assert_eq!(a.clone().unlink(call(), dir, b"none".to_vec()).await, Err(Errno::ENOENT));
        assert_eq!(a.clone().rmdir(call(), a.root(), b"d".to_vec()).await, Err(Errno::ENOTEMPTY));
        let long = a.clone().mkdir(call(), dir, vec![b'x'; 256], 0o755).await;
        assert_eq!(long.err(), Some(Errno::ENAMETOOLONG));
        // Open when its name goes: it lives on.
        write(&a, &f, 0, vec![1; 100]).await;
        a.clone().unlink(call(), dir, b"f".to_vec()).await.unwrap();
        assert_eq!(read(&a, &f, 0, 200).await, vec![1; 100]);
        a.clone().close(f).await.unwrap();
        a.clone().rmdir(call(), a.root(), b"d".to_vec()).await.unwrap();
        assert_eq!(a.clone().lookup(call(), a.root(), b"d".to_vec()).await.unwrap_err(), Errno::ENOENT);
        a.clone().fsync(call(), a.root()).await.unwrap();
    });
}

/// `lru_size=clear` is over when the leases are gone, those too under which something waits to be sent; that
/// is not waited for without end.
#[test]
fn cleared_leases_are_gone() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let leases = |fs: &Fs| fs.get_param("ldlm.namespaces.*.lock_count")[0].1.parse::<u64>().unwrap();
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        for round in 0..20 {
            for i in 0..10 {
                a.clone().mkdir(call(), dir, format!("{round}.{i}").into_bytes(), 0o755).await.unwrap();
            }
            assert!(leases(&a) >= 10, "{}", leases(&a));
            a.set_param("ldlm.namespaces.*.lru_size", "clear").unwrap();
            c.within(client::Admin(&a).leases_dropped()).await.unwrap();
            assert_eq!(leases(&a), 0);
        }
        a.clone().mkdir(call(), dir, b"own".to_vec(), 0o755).await.unwrap();
        c.stop_mdt().await;
        a.clone().mkdir(call(), dir, b"kept".to_vec(), 0o755).await.unwrap();
        a.set_param("ldlm.namespaces.*.lru_size", "clear").unwrap();
        assert_eq!(c.within(client::Admin(&a).leases_dropped()).await, Err(Errno::EAGAIN));
        // Nobody else who sets something waits for them.
        let clears = |name, value| client::Admin(&a).clears_leases(name, value);
        assert!(clears("ldlm.namespaces.*.lru_size", "clear") && clears("ldlm.namespaces.*.lru_*", "clear"));
        assert!(!clears("ldlm.namespaces.*.lru_size", "100") && !clears("llite.*.stats", "clear"));
        c.start_mdt().await;
        c.within(async { while client::Admin(&a).leases_dropped().await.is_err() {} }).await;
        assert_eq!(leases(&a), 0);
    });
}

/// Bytes that a new file's data may take with its inode; whether it was made by the mount itself.
async fn room_of_new(fs: &Arc<Fs>, dir: Fid, name: &str) -> (u64, bool) {
    let before = executed(fs);
    let (attr, f) = make(fs, dir, name).await;
    let layout = client::Admin(fs).getlayout(call(), attr.fid).await.unwrap();
    let room = layout.as_ref().and_then(|l| l.mdt_component()).map_or(0, |c| u64::from(c.stripe_size));
    fs.clone().close(f).await.unwrap();
    (room, executed(fs) > before)
}

#[test]
fn a_changed_default_layout_reaches_owners_before_it_is_answered() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let sub = a.clone().mkdir(call(), dir, b"sub".to_vec(), 0o755).await.unwrap().fid;
        let mdt = |v: u64| {
            let mut s = LayoutSpec::default();
            s.set_mdt_bytes(v);
            s
        };
        let objects = LayoutSpec { stripe_count: 1, ..LayoutSpec::default() };
        assert_eq!(room_of_new(&a, sub, "f0").await, (65536, true));
        // Another mount changes the file system's, and takes it back.
        client::Admin(&b).setlayout(call(), b.root(), Some(objects.clone())).await.unwrap();
        assert_eq!(room_of_new(&a, sub, "f1").await, (0, false));
        client::Admin(&b).setlayout(call(), b.root(), Some(mdt(131_072))).await.unwrap();
        c.until("the directory is owned again", || async {
            let name = format!("g{}", executed(&a));
            c.world.sleep(std::time::Duration::from_millis(50)).await;
            let (room, here) = room_of_new(&a, sub, &name).await;
            let _ = a.clone().unlink(call(), sub, name.into_bytes()).await;
            assert_eq!(room, 131_072);
            here
        })
        .await;
        // This mount itself does, for the file system and for the directory.
        client::Admin(&a).setlayout(call(), a.root(), Some(mdt(196_608))).await.unwrap();
        assert_eq!(room_of_new(&a, sub, "f2").await.0, 196_608);
        client::Admin(&a).setlayout(call(), sub, Some(objects)).await.unwrap();
        assert_eq!(room_of_new(&a, sub, "f3").await, (0, false));
        client::Admin(&a).setlayout(call(), a.root(), None).await.unwrap();
        // A parameter of the target.
        assert_eq!(room_of_new(&a, dir, "f4").await.0, 65536);
        c.set_mdt_param("mdt.*.dom_stripesize", "128K").await;
        assert_eq!(room_of_new(&a, dir, "f5").await.0, 131_072);
    });
}

#[test]
fn an_fsync_of_what_was_executed_here_is_one_request() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let requests = || {
            let text = a.get_param("mdc.*.stats").remove(0).1;
            let of = |kind: &str| {
                let line = text.lines().find(|l| l.split_whitespace().next() == Some(kind));
                line.map_or(0, |l| l.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
            };
            (of("mds_batch"), of("mds_sync"))
        };
        make(&a, dir, "first").await;
        a.clone().fsync(call(), dir).await.unwrap();
        // On a busy machine what was made goes out by itself before the fsync is asked for: those rounds say
        // nothing.
        let (mut one, mut rounds) = (0, 0);
        while one < 5 {
            let before = requests();
            let (_, f) = make(&a, dir, &format!("f{rounds}")).await;
            write(&a, &f, 0, vec![7; 4096]).await;
            a.clone().fsync(call(), f.fid).await.unwrap();
            let after = requests();
            assert!(executed(&a) > 2 * rounds, "executed by the mount");
            let sent = (after.0 - before.0, after.1 - before.1);
            rounds += 1;
            one += u32::from(sent == (1, 0));
            assert!(sent.0 + sent.1 <= 3 && rounds < 200, "{sent:?} in round {rounds}");
            let (end, over, durable) = a.pending_state();
            assert!(end == over && over == durable);
        }
    });
}

#[test]
fn what_was_fsynced_or_unmounted_is_there_and_a_restart_loses_nothing() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        for i in 0..50 {
            let (_, f) = make(&a, dir, &format!("f{i}")).await;
            a.clone().close(f).await.unwrap();
        }
        a.clone().fsync(call(), dir).await.unwrap();
        let (end, over, durable) = a.pending_state();
        assert!(end == over && over == durable && end >= 50);
        for i in 50..100 {
            make(&a, dir, &format!("f{i}")).await;
        }
        // With something in the log, or in flight, or answered and not durable.
        c.stop_mdt().await;
        c.start_mdt().await;
        assert_eq!(c.within(async { names(&b, dir).await }).await.len(), 100);
        for i in 100..130 {
            make(&a, dir, &format!("f{i}")).await;
        }
        a.unmount().await;
        assert_eq!(names(&b, dir).await.len(), 130);
    });
}

#[test]
fn two_mounts_in_one_directory_take_turns() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        b.clone().lookup(call(), b.root(), b"d".to_vec()).await.unwrap();
        let mut won = 0;
        for i in 0..60 {
            let flags = O_RDWR | O_CREAT | O_EXCL;
            let name = format!("f{i}").into_bytes();
            let one = a.clone().create(call(), dir, name.clone(), 0o644, flags, None);
            let two = b.clone().create(call(), dir, name, 0o644, flags, None);
            let (one, two) = (c.spawn(one), c.spawn(two));
            let (one, two) = (one.await.unwrap().map(drop), two.await.unwrap().map(drop));
            assert!(one.is_ok() != two.is_ok(), "exactly one makes it: {one:?}, {two:?}");
            assert_eq!(one.and(two), Err(Errno::EEXIST));
            won += 1;
        }
        assert_eq!(names(&a, dir).await.len(), won);
        assert_eq!(names(&b, dir).await.len(), won);
        for fs in [&a, &b] {
            fs.clone().fsync(call(), dir).await.unwrap();
        }
    });
}

//! What ordinary users' writes cost, and what they take away from programs.

use crate::cache::requests;
use crate::data::striped;
use crate::harness::{Cluster, O_RDWR, call, user};
use bytes::Bytes;
use client::{Call, Fs};
use model::attr::XATTR_CAPABILITY;
use model::{Errno, Fid, SetAttr};
use std::sync::Arc;
use std::time::Duration;

/// `cap_setuid+ep`, as setcap(8) stores it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const USER: u32 = 1000;

async fn set(fs: &Arc<Fs>, fid: Fid, set: SetAttr) -> u32 {
    fs.clone().setattr(call(), fid, set).await.unwrap().mode
}

async fn mode(fs: &Arc<Fs>, fid: Fid) -> u32 {
    fs.clone().getattr(call(), fid).await.unwrap().mode
}

async fn give_capability(fs: &Arc<Fs>, fid: Fid) {
    let (name, value) = (XATTR_CAPABILITY.to_vec(), CAPABILITY.to_vec());
    fs.clone().setxattr(call(), fid, name, value, 0, false).await.unwrap();
}

async fn is_capable(fs: &Arc<Fs>, fid: Fid) -> bool {
    match fs.clone().getxattr(call(), fid, XATTR_CAPABILITY.to_vec()).await {
        Ok(v) => v == CAPABILITY,
        Err(e) => {
            assert_eq!(e, Errno::ENODATA);
            false
        }
    }
}

/// A program of root's that everybody may write, on this many objects (0: its data lies with its inode).
async fn program(fs: &Arc<Fs>, name: &str, count: i32) -> Fid {
    let f = striped(fs, name, count).await;
    fs.clone().write(call(), f.fid, 0, false, false, Bytes::from_static(&[7; 8192])).await.unwrap();
    set(fs, f.fid, SetAttr { mode: Some(0o777), ..SetAttr::default() }).await;
    f.fid
}

#[test]
fn a_write_that_takes_nothing_away_costs_no_request() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for count in [0, 1] {
            let fid = program(&a, &format!("f{count}"), count).await;
            let attributed = program(&a, &format!("x{count}"), count).await;
            a.clone()
                .setxattr(call(), attributed, b"user.note".to_vec(), b"v".to_vec(), 0, false)
                .await
                .unwrap();
            for fid in [fid, attributed] {
                // Each mount opens it, as a program does, which brings what is known of the inode.
                for fs in [&a, &b] {
                    let f = fs.clone().open(user(USER), fid, O_RDWR).await.unwrap();
                    let kinds = ["setattr", "getattr", "getxattr", "removexattr"];
                    let sent = || kinds.map(|k| requests(fs, k));
                    fs.clone()
                        .write(user(USER), fid, 0, false, true, Bytes::from_static(b"0"))
                        .await
                        .unwrap();
                    let before = sent();
                    for i in 0..1000 {
                        let data = Bytes::from_static(b"abcd");
                        fs.clone().write(user(USER), fid, i * 4, i % 2 == 0, true, data).await.unwrap();
                    }
                    assert_eq!(sent(), before, "{count} objects, {kinds:?}");
                    fs.clone().close(Arc::new(f)).await.unwrap();
                }
            }
        }
    });
}

/// Calls that change data, by number.
async fn change(fs: &Arc<Fs>, call: Call, fid: Fid, from: Fid, how: usize) -> &'static str {
    let kill = !call.cred.is_root();
    let data = Bytes::from_static(b"new");
    let by_handle = SetAttr { by_handle: true, kill_suid_sgid: kill, ..SetAttr::default() };
    let fs = fs.clone();
    match how {
        0 => fs.write(call, fid, 3, false, kill, data).await.map(|_| "write"),
        1 => fs.write(call, fid, 0, true, kill, data).await.map(|_| "append"),
        2 => fs.setattr(call, fid, SetAttr { size: Some(100), ..by_handle }).await.map(|_| "truncate"),
        3 => fs.fallocate(call, fid, 0, 0, 20_000).await.map(|()| "fallocate"),
        4 => fs.fallocate(call, fid, 3, 0, 100).await.map(|()| "punch"),
        5 => fs.fallocate(call, fid, 0x10, 0, 100).await.map(|()| "zero"),
        6 => fs.copy_file_range(call, from, 0, fid, 0, 1000).await.map(|_| "copy_file_range"),
        7 => {
            let set = SetAttr { uid: Some(USER), ..SetAttr::default() };
            fs.setattr(Call::default(), fid, set).await.map(|_| "chown")
        }
        _ => unreachable!("eight of them"),
    }
    .unwrap()
}

#[test]
fn every_change_of_a_program_takes_its_privileges_away() {
    let c = Cluster::start(2);
    c.run(async {
        // One that made the program, and one that knows it from before it was given privileges.
        let (a, b) = (c.mount().await, c.mount().await);
        for count in [0, 1] {
            let source = program(&a, &format!("source{count}"), count).await;
            for how in 0..8 {
                for by in [USER, 0] {
                    let fid = program(&a, &format!("p{count}.{how}.{by}"), count).await;
                    let f = b.clone().open(user(USER), fid, O_RDWR).await.unwrap();
                    give_capability(&a, fid).await;
                    assert_eq!(
                        set(&a, fid, SetAttr { mode: Some(0o6777), ..SetAttr::default() }).await,
                        0o6777
                    );
                    let what = change(&b, user(by), fid, source, how).await;
                    let what = format!("{what} of {count} objects by {by}");
                    for fs in [&a, &b] {
                        assert!(!is_capable(fs, fid).await, "{what}");
                        let kept = if by == 0 && how != 7 { 0o6777 } else { 0o777 };
                        assert_eq!(mode(fs, fid).await, kept, "{what}");
                    }
                    b.clone().close(Arc::new(f)).await.unwrap();
                }
            }
        }
    });
}

#[test]
fn who_may_keep_set_id_bits_writes_while_the_metadata_server_is_away() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let fid = program(&a, "f", 1).await;
        let f = a.clone().open(call(), fid, O_RDWR).await.unwrap();
        a.clone().fsync(call(), fid).await.unwrap();
        c.stop_mdt().await;
        // Nothing is known any more once the leases are over.
        let ask = || c.world.timeout(Duration::from_millis(100), a.clone().getattr(call(), fid));
        c.until("the leases are over", || async { ask().await.is_none() }).await;
        for off in [0, 5000] {
            c.within(a.clone().write(call(), fid, off, false, false, Bytes::from_static(b"x")))
                .await
                .unwrap();
        }
        c.start_mdt().await;
        a.clone().close(Arc::new(f)).await.unwrap();
    });
}

/// Root of a host is an ordinary user from the moment that `set_param` is through, whatever its mount has
/// kept until then; other users of the host, and other hosts, are not concerned.
#[test]
fn root_of_a_squashed_host_is_an_ordinary_user() {
    let c = Cluster::start(1);
    c.run(async {
        let at = |last: u8| client::MountOptions { bind: Some(c.nid(last).addr), ..c.options() };
        let there = Fs::mount(c.world.clone(), at(31)).await.unwrap();
        let here = Fs::mount(c.world.clone(), at(30)).await.unwrap();
        let secret = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let mut files = Vec::new();
        for (name, count) in [("small", 0), ("large", 1)] {
            let f = striped(&there, name, count).await;
            there.clone().write(call(), f.fid, 0, false, false, Bytes::from_static(b"secret")).await.unwrap();
            set(&there, f.fid, secret.clone()).await;
            files.push(f.fid);
        }
        let open = there.clone().mkdir(call(), there.root(), b"open".to_vec(), 0o777).await.unwrap().fid;
        set(&there, open, SetAttr { mode: Some(0o777), ..SetAttr::default() }).await;
        let read = async |fs: &Arc<Fs>, who: Call, fid| -> Result<Vec<u8>, Errno> {
            let f = Arc::new(fs.clone().open(who.clone(), fid, 0).await?);
            let data = fs.clone().read(who, f.clone(), 0, 100).await;
            fs.clone().close(f).await?;
            Ok(data?.to_vec())
        };
        let make = async |fs: &Arc<Fs>, who: Call, dir, name: &str| -> Result<(u32, u32), Errno> {
            let (a, f) = fs.clone().create(who, dir, name.into(), 0o644, O_RDWR, None).await?;
            fs.clone().close(Arc::new(f)).await?;
            Ok((a.uid, a.gid))
        };
        for fid in &files {
            assert_eq!(read(&here, call(), *fid).await.unwrap(), b"secret", "it is root, and keeps it");
        }
        // Done by root, and perhaps not told yet.
        assert_eq!(make(&here, call(), here.root(), "before").await, Ok((0, 0)));
        c.set_mdt_param("mdt.*.nosquash_nids", &c.nid(31).to_string()).await;
        c.set_mdt_param("mdt.*.root_squash", "99:98").await;
        for fid in &files {
            assert_eq!(read(&here, call(), *fid).await, Err(Errno::EACCES));
            assert_eq!(read(&there, call(), *fid).await.unwrap(), b"secret");
        }
        assert_eq!(make(&here, call(), here.root(), "mine").await, Err(Errno::EACCES));
        for n in 0..3 {
            assert_eq!(make(&here, call(), open, &format!("root{n}")).await, Ok((99, 98)));
            assert_eq!(make(&here, user(USER), open, &format!("user{n}")).await, Ok((USER, USER)));
        }
        let chown = SetAttr { uid: Some(99), ..SetAttr::default() };
        assert_eq!(here.clone().setattr(call(), files[0], chown).await.err(), Some(Errno::EPERM));
        let before = there.clone().lookup(call(), there.root(), b"before".to_vec()).await.unwrap();
        assert_eq!((before.uid, before.gid), (0, 0), "what it was told had been done is done");
        let shown = there.clone().lookup(call(), open, b"root0".to_vec()).await.unwrap();
        assert_eq!((shown.uid, shown.gid), (99, 98));
        // As `lctl set_param -P` on the MGS, and off again.
        c.set_mdt_param("mdt.*.root_squash", "0:0").await;
        assert_eq!(read(&here, call(), files[0]).await.unwrap(), b"secret");
        c.set_permanent("mdt.demo-MDT0000.root_squash", "97:96").await;
        c.stop_mdt().await;
        c.start_mdt().await;
        assert_eq!(make(&here, call(), open, "permanent").await, Ok((97, 96)));
        assert_eq!(read(&here, call(), files[1]).await, Err(Errno::EACCES));
    });
}

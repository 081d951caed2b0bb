//! Names, directories, and files that are open by them.

use super::*;
use crate::testing::Hold;
use wire::Op;
use wire::msg::open::Open;
use wire::msg::readdir::Readdir;

impl Rig {
    /// Files, with their handles, of which the server heard that they are open.
    fn told_opens(&self) -> Vec<(Fid, u64)> {
        self.mdt().asked::<Open>().iter().map(|m| (m.fid, m.open.handle)).collect()
    }
}

/// All names of the root, page by page, as a kernel with so much room asks for them.
async fn walk(r: &Rig, room: u32) -> (Vec<String>, usize) {
    let (mut names, mut cookie, mut pages) = (Vec::new(), 0, 0);
    loop {
        let page = r.fs.clone().readdir(Call::default(), Fid::ROOT, cookie, room, false).await;
        let (entries, _, end) = page.unwrap();
        pages += 1;
        cookie = entries.last().map_or(cookie, |d| d.cookie);
        names.extend(entries.into_iter().map(|d| String::from_utf8(d.name).unwrap()));
        if end {
            return (names, pages);
        }
    }
}

#[test]
fn pages_of_a_directory_go_on_where_the_one_before_ended_whatever_their_sizes() {
    run(1, |r| async move {
        let all: Vec<String> = (10..22).map(|n| format!("f{n}")).collect();
        for (n, name) in all.iter().enumerate() {
            let fid = r.small(n as u32 + 1, b"");
            r.mdt().script().add_name(Fid::ROOT, name.as_bytes(), fid);
        }
        r.mdt().script().page = 6;
        // What a mount keeps needs the directory's inode as well.
        r.size(Fid::ROOT).await.unwrap();
        assert_eq!(walk(&r, 100).await, (all.clone(), 6), "two names fit, and the server gives six");
        let cookies: Vec<u64> = r.mdt().asked::<Readdir>().iter().map(|m| m.cookie).collect();
        assert_eq!((cookies.len(), cookies[0]), (2, 0), "what did not fit is not asked for again");
        assert_eq!(walk(&r, 1 << 20).await, (all, 1), "and now all of it is known");
        assert_eq!(r.mdt().count(Op::Readdir), 2);
    });
}

#[test]
fn a_file_is_opened_and_closed_under_its_lease_without_a_word_and_by_nobody_who_may_not() {
    run(2, |r| async move {
        let fid = r.small(1, b"data");
        r.mdt().script().inode(fid).unwrap().attr.mode = 0o600;
        r.size(fid).await.unwrap();
        let before = r.c.requests();
        let f = r.open(fid, O_RDWR).await;
        let refused = r.fs.clone().open(user(), fid, O_RDONLY).await;
        assert_eq!(refused.map(drop), Err(Errno::EACCES));
        r.fs.clone().close(f).await.unwrap();
        assert_eq!((r.c.requests(), r.fs.meta.opens.len()), (before, 0));
        r.mdt().script().leases = false;
        let other = r.small(2, b"");
        let f = r.open(other, O_RDWR).await;
        r.fs.clone().close(f).await.unwrap();
        assert_eq!((r.mdt().count(Op::Open), r.mdt().count(Op::Close)), (1, 1), "without a lease it is told");
    });
}

#[test]
fn before_a_name_is_removed_the_server_hears_that_its_file_is_open_here() {
    run(3, |r| async move {
        let (fid, other) = (r.small(1, b"data"), r.small(2, b""));
        for (fid, name) in [(fid, b"a"), (other, b"b")] {
            r.mdt().script().add_name(Fid::ROOT, name, fid);
            r.fs.clone().lookup(Call::default(), Fid::ROOT, name.to_vec()).await.unwrap();
        }
        let (f, _o) = (r.open(fid, O_RDWR).await, r.open(other, O_RDWR).await);
        assert_eq!(r.mdt().count(Op::Open), 0, "under leases");
        r.fs.clone().unlink(Call::default(), Fid::ROOT, b"a".to_vec()).await.unwrap();
        assert_eq!(r.told_opens(), [(fid, f.handle)], "of that file");
        let seen = r.mdt().seen().clone();
        let place = |op| seen.iter().position(|o| *o == op).unwrap();
        assert!(place(Op::Open) < place(Op::Unlink), "{seen:?}");
        assert_eq!(r.read(fid, 0, 9).await.unwrap(), b"data");
        r.fs.clone().close(f).await.unwrap();
        assert_eq!(r.mdt().count(Op::Close), 1, "now it knows of it");
        let gone = r.fs.clone().lookup(Call::default(), Fid::ROOT, b"a".to_vec()).await;
        assert_eq!(gone.map(drop), Err(Errno::ENOENT));
    });
}

#[test]
fn a_create_that_opened_an_older_file_while_the_server_restarted_says_again_that_it_is_open() {
    run(4, |r| async move {
        let fid = r.small(1, b"data");
        r.mdt().script().add_name(Fid::ROOT, b"f", fid);
        let name = || b"f".to_vec();
        let again = r.fs.clone().create(Call::default(), Fid::ROOT, name(), 0o644, O_RDWR, None).await;
        assert_eq!(again.map(|(a, _)| (a.fid, a.size)), Ok((fid, 4)));
        assert_eq!(r.mdt().count(Op::Open), 0);
        r.fs.clone().sync().await.unwrap();
        r.mdt().hold(Hold::Of(Op::Create));
        let fs = r.fs.clone();
        let opened =
            r.beside(async move { fs.create(Call::default(), Fid::ROOT, name(), 0o644, O_RDWR, None).await });
        r.until("it is at the server", || r.mdt().running() == 1).await;
        r.c.mdts[0].restart();
        r.until("it is back", || r.mdt().reclaims.lock().iter().any(|m| m.last)).await;
        r.mdt().hold(Hold::Nothing);
        r.until("it is open", || opened.lock().is_some()).await;
        let f = opened.lock().take().unwrap().unwrap().1;
        assert_eq!(r.told_opens(), [(fid, f.handle)]);
        assert_eq!(f.fid, fid);
    });
}

#[test]
fn with_dirsync_a_name_is_on_disk_when_its_call_returns() {
    run(5, |r| async move {
        let mkdir = |name: &[u8]| r.fs.clone().mkdir(Call::default(), Fid::ROOT, name.to_vec(), 0o755);
        mkdir(b"later").await.unwrap();
        assert_eq!(r.mdt().count(Op::Sync), 0);
        super::super::Admin(&r.fs).set_dirsync(true);
        mkdir(b"now").await.unwrap();
        assert_eq!(r.mdt().seen().last(), Some(&Op::Sync));
        r.mdt().refuse(Op::Sync, Errno::EIO, 1);
        assert_eq!(mkdir(b"never").await.map(drop), Err(Errno::EIO), "or its caller is told");
        r.mdt().refuse(Op::Mkdir, Errno::EEXIST, 1);
        let syncs = r.mdt().count(Op::Sync);
        assert_eq!(mkdir(b"now").await.map(drop), Err(Errno::EEXIST));
        assert_eq!(r.mdt().count(Op::Sync), syncs, "nothing happened");
    });
}

#[test]
fn nothing_above_the_root_of_the_mount_is_shown() {
    run(6, |r| async move {
        let up = r.fs.clone().lookup(Call::default(), Fid::ROOT, b"..".to_vec()).await;
        assert_eq!((up.map(|a| a.fid), r.mdt().count(Op::Lookup)), (Ok(Fid::ROOT), 0));
        let name = || b"x".to_vec();
        let (before, fs) = (r.c.requests(), || r.fs.clone());
        assert_eq!(
            fs().rename(Call::default(), Fid::ROOT, name(), Fid::ROOT, name(), 4).await,
            Err(Errno::EINVAL)
        );
        let dir = fs().mknod(Call::default(), Fid::ROOT, name(), 0o040_755, 0).await;
        assert_eq!((dir.map(drop), r.c.requests()), (Err(Errno::EPERM), before));
    });
}

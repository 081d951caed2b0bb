//! The library as its users see it: paths, what they may do and what not, open files.
#![allow(clippy::disallowed_methods)] // what the example copies lies on the host

use crate::harness::{Cluster, call};
use bytes::Bytes;
use client::flags::*;
use client::{Client, Fs, Identity, LockMode, Range, Seek, User};
use model::acl::{Acl, Entry, Who, XATTR_ACCESS, XATTR_DEFAULT};
use model::perm::{self, FLAG_APPEND, FLAG_IMMUTABLE, MAY_EXEC, MAY_READ, MAY_WRITE, Subject};
use model::{Attr, Cred, Errno, Fid, LayoutSpec, SetAttr, SetTime};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const PARAM_LRU: &str = "ldlm.namespaces.*.lru_size";

#[path = "../../examples/copy.rs"]
#[allow(dead_code)]
mod copy;

fn who(uid: u32, gid: u32, groups: &[u32]) -> Identity {
    Identity { uid, gid, groups: groups.to_vec(), umask: 0o022, ..Identity::default() }
}

async fn mounted(c: &Cluster) -> (Arc<Fs>, Client) {
    let fs = c.mount().await;
    (fs.clone(), Client::of(fs))
}

fn user(c: &Client, uid: u32) -> User {
    c.user(who(uid, uid, &[])).unwrap()
}

fn errno<T>(r: client::Result<T>) -> Result<T, Errno> {
    r.map_err(|e| {
        assert!(e.message.starts_with("cannot "), "{e}");
        e.errno
    })
}

async fn put(u: &User, path: &str, mode: u32, text: &str) {
    let f = u.open(path, O_CREAT | O_EXCL | O_WRONLY, mode).await.unwrap();
    f.write(text.as_bytes().to_vec()).await.unwrap();
    f.close().await.unwrap();
}

async fn text(u: &User, path: &str) -> Result<String, Errno> {
    let f = errno(u.open(path, O_RDONLY, 0).await)?;
    let data = errno(f.read(1 << 20).await)?;
    errno(f.close().await)?;
    Ok(String::from_utf8(data.to_vec()).unwrap())
}

/// An inode as it is drawn.
#[derive(Clone, Debug)]
struct Drawn {
    mode: u32,
    uid: u32,
    gid: u32,
    flags: u32,
    /// Permissions of user 2, of the group, of group 3, and the mask.
    acl: Option<[u8; 4]>,
}

fn drawn(flags: Vec<u32>, bits: u32) -> impl Strategy<Value = Drawn> {
    let acl = proptest::option::of(proptest::array::uniform4(0u8..8));
    (0..=bits, 1u32..4, 1u32..4, proptest::sample::select(flags), acl)
        .prop_map(|(mode, uid, gid, flags, acl)| Drawn { mode, uid, gid, flags, acl })
}

impl Drawn {
    fn list(&self) -> Option<Acl> {
        let [user, group, other_group, mask] = self.acl?;
        let e = |who, perm| Entry { who, perm };
        let entries = vec![
            e(Who::UserObj, (self.mode >> 6 & 7) as u8),
            e(Who::User(2), user),
            e(Who::GroupObj, group),
            e(Who::Group(3), other_group),
            e(Who::Mask, mask),
            e(Who::Other, (self.mode & 7) as u8),
        ];
        Some(Acl::new(entries).unwrap())
    }

    /// Makes an inode so, whatever it is.
    async fn make(&self, fs: &Arc<Fs>, fid: Fid) {
        let set = async |s: SetAttr| fs.clone().setattr(call(), fid, s).await.unwrap();
        set(SetAttr { flags: Some(0), ..SetAttr::default() }).await;
        set(SetAttr { uid: Some(self.uid), gid: Some(self.gid), ..SetAttr::default() }).await;
        match self.list() {
            Some(l) => {
                fs.clone()
                    .setxattr(call(), fid, XATTR_ACCESS.to_vec(), l.to_xattr(), 0, false)
                    .await
                    .unwrap();
                let mode = Some(self.mode & !0o777 | l.mode_bits());
                set(SetAttr { mode, ..SetAttr::default() }).await;
            }
            None => {
                fs.clone().removexattr(call(), fid, XATTR_ACCESS.to_vec()).await.unwrap();
                set(SetAttr { mode: Some(self.mode), ..SetAttr::default() }).await;
            }
        }
        set(SetAttr { flags: Some(self.flags), ..SetAttr::default() }).await;
    }
}

fn subject<'a>(a: &Attr, acl: &'a Option<Acl>) -> Subject<'a> {
    Subject { kind: a.kind, mode: a.mode, uid: a.uid, gid: a.gid, flags: a.flags, acl: acl.as_ref() }
}

/// What is tried; those from `Chmod` on change something if they succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Try {
    Stat,
    List,
    OpenRead,
    OpenWrite,
    OpenBoth,
    OpenAppend,
    ReadXattr,
    Chmod,
    Chown,
    Chgrp,
    TouchNow,
    TouchThen,
    Truncate,
    OpenTruncate,
    WriteXattr,
    WriteAcl,
    Create,
    Mkdir,
    Unlink,
}

const TRIES: [Try; 19] = [
    Try::Stat,
    Try::List,
    Try::OpenRead,
    Try::OpenWrite,
    Try::OpenBoth,
    Try::OpenAppend,
    Try::ReadXattr,
    Try::Chmod,
    Try::Chown,
    Try::Chgrp,
    Try::TouchNow,
    Try::TouchThen,
    Try::Truncate,
    Try::OpenTruncate,
    Try::WriteXattr,
    Try::WriteAcl,
    Try::Create,
    Try::Mkdir,
    Try::Unlink,
];

/// What the rules say.
fn verdict(t: Try, c: &Cred, d: &Subject, f: &Subject) -> Result<(), Errno> {
    let frozen = if f.flags & (FLAG_APPEND | FLAG_IMMUTABLE) != 0 { Err(Errno::EPERM) } else { Ok(()) };
    let owner = if perm::owns(c, f.uid) { Ok(()) } else { Err(Errno::EPERM) };
    let writes = || perm::access(c, f, MAY_WRITE);
    if t == Try::List {
        return perm::access(c, d, MAY_READ);
    }
    perm::access(c, d, MAY_EXEC)?;
    match t {
        Try::Stat | Try::List => Ok(()),
        Try::OpenRead => perm::may_open(c, f, O_RDONLY),
        Try::OpenWrite => perm::may_open(c, f, O_WRONLY),
        Try::OpenBoth => perm::may_open(c, f, O_RDWR),
        Try::OpenAppend => perm::may_open(c, f, O_WRONLY | O_APPEND),
        Try::OpenTruncate => perm::may_open(c, f, O_WRONLY | O_TRUNC),
        Try::ReadXattr => perm::access(c, f, MAY_READ),
        Try::Chmod | Try::TouchThen | Try::WriteAcl => frozen.and(owner),
        Try::Chown => frozen.and_then(|()| perm::may_chown(c, f, Some(77), None)),
        Try::Chgrp => frozen.and_then(|()| perm::may_chown(c, f, None, Some(3))),
        Try::TouchNow if f.flags & FLAG_IMMUTABLE != 0 => Err(Errno::EPERM),
        Try::TouchNow => owner.or_else(|_| writes()),
        Try::Truncate | Try::WriteXattr => frozen.and_then(|()| writes()),
        Try::Create | Try::Mkdir => perm::may_create(c, d),
        Try::Unlink => perm::may_delete(c, d, f),
    }
}

async fn attempt(t: Try, u: &User) -> Result<(), Errno> {
    let open = async |path: &str, flags| errno(errno(u.open(path, flags, 0o600).await)?.close().await);
    let now = Some(SetTime::Now);
    let then = Some(SetTime::At(crate::harness::at(1000)));
    errno(match t {
        Try::Stat => u.stat("/d/f").await.map(drop),
        Try::List => u.readdir("d").await.map(drop),
        Try::OpenRead => return open("d/f", O_RDONLY).await,
        Try::OpenWrite => return open("d/f", O_WRONLY).await,
        Try::OpenBoth => return open("d/f", O_RDWR).await,
        Try::OpenAppend => return open("d/f", O_WRONLY | O_APPEND).await,
        Try::OpenTruncate => return open("d/f", O_WRONLY | O_TRUNC).await,
        Try::Create => return open("d/new", O_WRONLY | O_CREAT | O_EXCL).await,
        Try::ReadXattr => u.getxattr("d/f", "user.x").await.map(drop),
        Try::Chmod => u.chmod("d/f", 0o640).await,
        Try::Chown => u.chown("d/f", Some(77), None).await,
        Try::Chgrp => u.chown("d/f", None, Some(3)).await,
        Try::TouchNow => u.utimes("d/f", now, now).await,
        Try::TouchThen => u.utimes("d/f", then, then).await,
        Try::Truncate => u.truncate("d/f", 3).await,
        Try::WriteXattr => u.setxattr("d/f", "user.x", "other", 0).await,
        Try::WriteAcl => u.setxattr("d/f", XATTR_ACCESS, Acl::from_mode(0o640).to_xattr(), 0).await,
        Try::Mkdir => u.mkdir("d/new", 0o700).await,
        Try::Unlink => u.unlink("d/f").await,
    })
}

/// Names back where they were, and the inodes as they were drawn. The file and the directory.
async fn prepare(fs: &Arc<Fs>, root: &User, dir: &Drawn, file: &Drawn) -> (Attr, Attr) {
    let d = match root.stat("d").await {
        Ok(a) => a.fid,
        Err(_) => {
            root.mkdir("d", 0o755).await.unwrap();
            root.stat("d").await.unwrap().fid
        }
    };
    fs.clone().setattr(call(), d, SetAttr { flags: Some(0), ..SetAttr::default() }).await.unwrap();
    let _ = root.unlink("d/new").await;
    let _ = root.rmdir("d/new").await;
    if root.stat("d/f").await.is_err() {
        put(root, "d/f", 0o600, "content").await;
    }
    let f = root.stat("d/f").await.unwrap().fid;
    file.make(fs, f).await;
    fs.clone().setattr(call(), f, SetAttr { flags: Some(0), ..SetAttr::default() }).await.unwrap();
    root.setxattr("d/f", "user.x", "value", 0).await.unwrap();
    file.make(fs, f).await;
    dir.make(fs, d).await;
    (root.stat("d/f").await.unwrap(), root.stat("d").await.unwrap())
}

/// Whatever is kept, and whatever is not: the verdict is that of the rules.
#[test]
fn verdicts_are_those_of_the_rules_with_caches_warm_and_cold() {
    let c = Cluster::start(1);
    let (fs, client) = c.run(mounted(&c));
    let root = user(&client, 0);
    let flags = vec![0, 0, 0, FLAG_APPEND, FLAG_IMMUTABLE];
    let identity =
        (proptest::sample::select(vec![0u32, 1, 2, 3, 4]), 1u32..5, proptest::collection::vec(1u32..4, 0..2));
    let strategy = (drawn(vec![0, 0, 0, FLAG_APPEND], 0o3777), drawn(flags, 0o7777), identity);
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&strategy, |(dir, file, (uid, gid, groups))| {
        c.run(c.within_secs(120, async {
            let u = client.user(who(uid, gid, &groups)).unwrap();
            let cred = Cred { uid, gid, groups: groups.clone() };
            for cold in [false, true] {
                let (mut f, mut d) = prepare(&fs, &root, &dir, &file).await;
                for t in TRIES {
                    if cold {
                        fs.set_param(PARAM_LRU, "clear").unwrap();
                        client::Admin(&fs).leases_dropped().await.unwrap();
                    }
                    let lists = (dir.list(), file.list());
                    let want = verdict(t, &cred, &subject(&d, &lists.0), &subject(&f, &lists.1));
                    let got = attempt(t, &u).await;
                    assert_eq!(got, want, "{t:?} by {cred:?}, cold {cold}, of {f:?} in {d:?}, {lists:?}");
                    if got.is_ok() && t as usize >= Try::Chmod as usize {
                        (f, d) = prepare(&fs, &root, &dir, &file).await;
                    }
                }
            }
        }));
        Ok(())
    });
    result.unwrap();
}

#[test]
fn paths_are_walked_as_a_kernel_walks_them() {
    let c = Cluster::start(1);
    c.run(async {
        let (_, client) = mounted(&c).await;
        let (root, u) = (user(&client, 0), user(&client, 7));
        root.chmod("/", 0o777).await.unwrap();
        for dir in ["a", "a/b", "a/b/c"] {
            u.mkdir(dir, 0o755).await.unwrap();
        }
        put(&u, "a/f", 0o644, "text").await;
        let is = async |path: &str, same: &str| {
            assert_eq!(u.stat(path).await.unwrap().fid, u.stat(same).await.unwrap().fid, "{path}");
        };
        for (path, same) in [
            ("/", "."),
            ("//a///b/", "a/b"),
            ("a/./b/../b/c/..", "a/b"),
            ("../../..", "/"),
            ("..", "/"),
            ("a/b/../../a/f", "a/f"),
        ] {
            is(path, same).await;
        }
        u.symlink("b/c", "a/relative").await.unwrap();
        u.symlink("/a/b", "a/absolute").await.unwrap();
        u.symlink("nowhere", "a/dangling").await.unwrap();
        u.symlink("../../f", "a/b/c/up").await.unwrap();
        u.symlink("me", "me").await.unwrap();
        is("a/relative", "a/b/c").await;
        is("a/relative/", "a/b/c").await;
        is("a/absolute/c", "a/b/c").await;
        is("a/relative/..", "a/b").await;
        assert_eq!(u.lstat("a/relative").await.unwrap().kind, model::FileType::Symlink);
        assert_eq!(u.lstat("a/relative/").await.unwrap().kind, model::FileType::Directory);
        assert_eq!(u.readlink("a/absolute").await.unwrap(), b"/a/b");
        is("a/b/c/up", "a/f").await;
        let long = "x".repeat(256);
        let deep = "a/".repeat(2048);
        for (path, e) in [
            ("", Errno::ENOENT),
            ("a/none", Errno::ENOENT),
            ("a/none/f", Errno::ENOENT),
            ("a/f/", Errno::ENOTDIR),
            ("a/f/x", Errno::ENOTDIR),
            ("a/f/..", Errno::ENOTDIR),
            ("a/dangling", Errno::ENOENT),
            ("me", Errno::ELOOP),
            ("a/\0", Errno::EINVAL),
            (&long, Errno::ENAMETOOLONG),
            (&deep, Errno::ENAMETOOLONG),
        ] {
            assert_eq!(errno(u.stat(path).await).err(), Some(e), "{path}");
        }
        // Forty links are followed, no more.
        u.symlink("a/f", "l0").await.unwrap();
        for n in 1..41 {
            u.symlink(format!("l{}", n - 1), format!("l{n}")).await.unwrap();
        }
        is("l39", "a/f").await;
        assert_eq!(errno(u.stat("l40").await).err(), Some(Errno::ELOOP));
        last_parts(&u).await;
        client.unmount().await;
    });
}

/// What calls say of last parts that are no names, and of slashes behind names.
async fn last_parts(u: &User) {
    let e = |r: client::Result<()>| errno(r).err();
    let open = async |path: &str, flags| errno(u.open(path, flags, 0o644).await).err();
    assert_eq!(e(u.mkdir("/", 0o755).await), Some(Errno::EEXIST));
    assert_eq!(e(u.mkdir("a/.", 0o755).await), Some(Errno::EEXIST));
    assert_eq!(e(u.mkdir("a/b/", 0o755).await), Some(Errno::EEXIST));
    assert_eq!(e(u.mkdir("a/slash/", 0o755).await), None);
    assert_eq!(e(u.unlink("a/b/").await), Some(Errno::EISDIR));
    assert_eq!(e(u.unlink("a/f/").await), Some(Errno::ENOTDIR));
    assert_eq!(e(u.unlink("a/..").await), Some(Errno::EISDIR));
    assert_eq!(e(u.rmdir("/").await), Some(Errno::EBUSY));
    assert_eq!(e(u.rmdir("a/.").await), Some(Errno::EINVAL));
    assert_eq!(e(u.rmdir("a/b/..").await), Some(Errno::ENOTEMPTY));
    assert_eq!(e(u.rmdir("a/f").await), Some(Errno::ENOTDIR));
    assert_eq!(e(u.rmdir("a/slash/").await), None);
    assert_eq!(e(u.symlink("x", "a/new/").await), Some(Errno::ENOENT));
    assert_eq!(e(u.symlink("x", "a/b/").await), Some(Errno::EEXIST));
    assert_eq!(e(u.symlink("", "a/new").await), Some(Errno::ENOENT));
    assert_eq!(e(u.link("a/f", "a/new/").await), Some(Errno::ENOENT));
    assert_eq!(e(u.link("a/b", "a/new").await), Some(Errno::EPERM));
    assert_eq!(e(u.rename("a/f/", "a/g", 0).await), Some(Errno::ENOTDIR));
    assert_eq!(e(u.rename("a/f", "a/g/", 0).await), Some(Errno::ENOTDIR));
    assert_eq!(e(u.rename("a/.", "a/g", 0).await), Some(Errno::EBUSY));
    assert_eq!(e(u.rename("a/f", "a/b", 0).await), Some(Errno::EISDIR));
    assert_eq!(e(u.rename("a/f", "l0", 1).await), Some(Errno::EEXIST));
    assert_eq!(open("a/b", O_WRONLY).await, Some(Errno::EISDIR));
    assert_eq!(open("a/b", O_CREAT | O_WRONLY).await, Some(Errno::EISDIR));
    assert_eq!(open("a/new/", O_CREAT | O_WRONLY).await, Some(Errno::EISDIR));
    assert_eq!(open("a/f", O_DIRECTORY).await, Some(Errno::ENOTDIR));
    assert_eq!(open("a/relative", O_NOFOLLOW).await, Some(Errno::ELOOP));
    assert_eq!(open("a/relative", O_CREAT | O_EXCL | O_WRONLY).await, Some(Errno::EEXIST));
    assert_eq!(open("a/f", O_CREAT | O_EXCL | O_WRONLY).await, Some(Errno::EEXIST));
    assert_eq!(open("me", O_CREAT | O_WRONLY).await, Some(Errno::ELOOP));
    assert_eq!(open("a/f", 3).await, Some(Errno::EINVAL));
    assert_eq!(open("a/b", O_RDONLY | O_DIRECTORY).await, None);
    // What a dangling link names is made.
    put_through(u, "a/dangling", "made").await;
    assert_eq!(text(u, "a/nowhere").await.unwrap(), "made");
}

async fn put_through(u: &User, path: &str, text: &str) {
    let f = u.open(path, O_CREAT | O_WRONLY, 0o644).await.unwrap();
    f.write(text.as_bytes().to_vec()).await.unwrap();
    f.close().await.unwrap();
}

#[test]
fn open_files_do_what_they_were_opened_for() {
    let c = Cluster::start(2);
    c.run(async {
        let (_, client) = mounted(&c).await;
        let (root, u) = (user(&client, 0), user(&client, 7));
        root.chmod("/", 0o1777).await.unwrap();
        let f = u.open("f", O_CREAT | O_RDWR, 0o666).await.unwrap();
        assert_eq!(f.stat().await.unwrap().mode, 0o644, "the umask");
        assert_eq!(f.write(&b"hello, "[..]).await.unwrap(), 7);
        assert_eq!(f.write(&b"world"[..]).await.unwrap(), 5);
        assert_eq!(f.seek(Seek::End(-5)).await.unwrap(), 7);
        assert_eq!(f.read(100).await.unwrap(), "world");
        assert_eq!(f.read(100).await.unwrap(), "");
        assert_eq!(f.read_at(0, 5).await.unwrap(), "hello");
        assert_eq!(f.seek(Seek::Hole(0)).await.unwrap(), 12);
        assert_eq!(errno(f.seek(Seek::Data(12)).await), Err(Errno::ENXIO));
        assert_eq!(errno(f.seek(Seek::Current(-13)).await), Err(Errno::EINVAL));
        f.fsync().await.unwrap();
        f.truncate(5).await.unwrap();
        f.fallocate(0, 0, 100).await.unwrap();
        assert_eq!(u.stat("f").await.unwrap().size, 100);

        let a = u.open("f", O_WRONLY | O_APPEND, 0).await.unwrap();
        assert_eq!(a.write_at(0, &b"end"[..]).await.unwrap(), 3);
        assert_eq!(f.read_at(100, 10).await.unwrap(), "end");
        assert_eq!(errno(a.read(1).await), Err(Errno::EBADF));
        let r = u.open("f", O_RDONLY, 0).await.unwrap();
        assert_eq!(errno(r.write(&b"x"[..]).await), Err(Errno::EBADF));
        assert_eq!(errno(r.truncate(0).await), Err(Errno::EINVAL));
        assert_eq!(errno(r.fallocate(0, 0, 1).await), Err(Errno::EBADF));
        let d = u.open("/", O_RDONLY, 0).await.unwrap();
        d.fsync().await.unwrap();
        assert_eq!(errno(d.read(1).await), Err(Errno::EISDIR));

        locks(&f, &a, &r).await;
        f.close().await.unwrap();
        drop((a, r, d));
        // What is larger than one message.
        let big = u.create_striped("big", 0o600, LayoutSpec { stripe_count: 2, ..LayoutSpec::default() });
        let big = big.await.unwrap();
        assert_eq!(big.write(vec![7; (17 << 20) + 3]).await.unwrap(), (17 << 20) + 3);
        big.close().await.unwrap();
        assert_eq!(u.stat("big").await.unwrap().size, (17 << 20) + 3);
        assert_eq!(u.getstripe("big").await.unwrap().layout.unwrap().stripe_count(), 2);
        let mut names: Vec<_> = u.readdir("/").await.unwrap().into_iter().map(|d| d.name).collect();
        names.sort();
        assert_eq!(names, [b"big".to_vec(), b"f".to_vec()]);
        assert!(client.statfs().await.unwrap().total > 0 && u.statfs("f").await.unwrap().total > 0);
        client.sync().await.unwrap();
        client.unmount().await;
        assert_eq!(errno(u.stat("f").await).err(), Some(Errno::ESHUTDOWN));
    });
}

async fn locks(f: &client::OpenFile, a: &client::OpenFile, r: &client::OpenFile) {
    let head = Range { start: 0, end: 9 };
    f.lock(head, LockMode::Write, false).await.unwrap();
    assert_eq!(errno(a.lock(Range::ALL, LockMode::Write, false).await), Err(Errno::EAGAIN));
    assert_eq!(errno(a.lock(head, LockMode::Read, false).await), Err(Errno::EBADF));
    assert_eq!(r.conflict(Range::ALL, LockMode::Read).await.unwrap(), Some((head, LockMode::Write)));
    f.unlock(head).await.unwrap();
    a.lock(Range::ALL, LockMode::Write, false).await.unwrap();
    a.unlock(Range::ALL).await.unwrap();
    r.flock(LockMode::Read, false).await.unwrap();
    assert_eq!(errno(f.flock(LockMode::Write, false).await), Err(Errno::EAGAIN));
    r.funlock().await.unwrap();
    f.flock(LockMode::Write, false).await.unwrap();
}

#[test]
fn writes_take_privileges_and_new_files_get_what_their_directory_says() {
    let c = Cluster::start(1);
    c.run(async {
        let (fs, client) = mounted(&c).await;
        let (root, u) = (user(&client, 0), user(&client, 7));
        root.chmod("/", 0o777).await.unwrap();
        for (how, by, mode) in [(0, 7, 0o777), (1, 7, 0o777), (2, 7, 0o777), (3, 7, 0o777), (0, 0, 0o6777)] {
            put(&root, "p", 0o600, "program").await;
            root.chmod("p", 0o6777).await.unwrap();
            let u = user(&client, by);
            let f = u.open("p", O_WRONLY, 0).await.unwrap();
            match how {
                0 => drop(f.write(&b"x"[..]).await.unwrap()),
                1 => f.truncate(1).await.unwrap(),
                2 => f.fallocate(0, 0, 10).await.unwrap(),
                _ => u.truncate("p", 1).await.unwrap(),
            }
            assert_eq!(u.stat("p").await.unwrap().mode, mode, "{how} by {by}");
            root.unlink("p").await.unwrap();
        }
        // A default access list instead of the umask.
        u.mkdir("d", 0o777).await.unwrap();
        assert_eq!(u.stat("d").await.unwrap().mode, 0o755);
        u.setxattr("d", XATTR_DEFAULT, Acl::from_mode(0o775).to_xattr(), 0).await.unwrap();
        put(&u, "d/f", 0o666, "").await;
        assert_eq!(u.stat("d/f").await.unwrap().mode, 0o664);
        // Opened before it became immutable, or append-only.
        let f = u.open("d/f", O_RDWR, 0).await.unwrap();
        assert_eq!(errno(u.setflags("d/f", FLAG_APPEND).await), Err(Errno::EPERM));
        root.setflags("d/f", FLAG_APPEND).await.unwrap();
        assert_eq!(errno(f.truncate(0).await), Err(Errno::EPERM));
        assert_eq!(errno(u.open("d/f", O_WRONLY, 0).await).err(), Some(Errno::EPERM));
        let a = u.open("d/f", O_WRONLY | O_APPEND, 0).await.unwrap();
        a.write(&b"more"[..]).await.unwrap();
        root.setflags("d/f", FLAG_IMMUTABLE).await.unwrap();
        assert_eq!(errno(f.write_at(0, &b"x"[..]).await), Err(Errno::EPERM));
        assert_eq!(errno(a.write(&b"x"[..]).await), Err(Errno::EPERM));
        root.setflags("d/f", 0).await.unwrap();
        // Whose access times are left alone.
        assert_eq!(
            errno(user(&client, 8).open("d/f", O_RDONLY | O_NOATIME, 0).await).err(),
            Some(Errno::EPERM)
        );
        u.open("d/f", O_RDONLY | O_NOATIME, 0).await.unwrap();
        // On whose behalf: what the servers are told.
        let job = client.user(Identity { jobid: "job.1".into(), ..who(7, 7, &[]) }).unwrap();
        put(&job, "d/job", 0o600, "").await;
        assert!(client.user(Identity { jobid: "x".repeat(32), ..who(7, 7, &[]) }).is_err());
        drop((fs, f, a));
    });
}

fn make_tree(at: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::remove_dir_all(at.parent().unwrap());
    fs::create_dir_all(at.join("sub/empty")).unwrap();
    fs::write(at.join("one"), "first").unwrap();
    fs::write(at.join("nothing"), "").unwrap();
    let large: Vec<u8> = (0..(5 << 20) + 7u32).map(|n| (n / 7) as u8).collect();
    fs::write(at.join("sub/large"), large).unwrap();
    fs::write(at.join("sub/odd \u{e4} name"), "third").unwrap();
    std::os::unix::fs::symlink("../one", at.join("sub/link")).unwrap();
    fs::set_permissions(at.join("sub/large"), fs::Permissions::from_mode(0o640)).unwrap();
}

fn same_trees(a: &Path, b: &Path) {
    let names = |p: &Path| {
        let mut v: Vec<_> = fs::read_dir(p).unwrap().map(|e| e.unwrap().file_name()).collect();
        v.sort();
        v
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let (x, y) = (a.join(&name), b.join(&name));
        let (k, l) = (fs::symlink_metadata(&x).unwrap(), fs::symlink_metadata(&y).unwrap());
        assert_eq!((k.file_type(), k.permissions()), (l.file_type(), l.permissions()), "{name:?}");
        if k.is_dir() {
            same_trees(&x, &y);
        } else if k.is_symlink() {
            assert_eq!(fs::read_link(&x).unwrap(), fs::read_link(&y).unwrap());
        } else {
            assert!(fs::read(&x).unwrap() == fs::read(&y).unwrap(), "{name:?}");
        }
    }
}

/// Two users of one library: what one may, and has in the mount's caches, the other may not.
#[test]
fn a_tree_goes_in_and_out_by_a_user_who_may_do_no_more() {
    let c = Cluster::start(2);
    let host = std::env::temp_dir().join(format!("nacre-copy-{}", std::process::id()));
    let (tree, back) = (host.join("tree"), host.join("back"));
    let source = format!("{}:/demo", c.nid(1));
    let job = |from: &str, to: &str| {
        let args = [&source, "7:7,70", from, to, "20988"].map(String::from);
        copy::parse(&args).unwrap()
    };
    make_tree(&tree);
    c.run(async {
        let (_, client) = mounted(&c).await;
        let (root, u) = (user(&client, 0), user(&client, 7));
        root.chmod("/", 0o1777).await.unwrap();
        let inward = job(tree.to_str().unwrap(), "fs:/tree");
        let done = copy::run(&c.world, &inward, &|_| {}).await.unwrap();
        assert_eq!((done.directories, done.files, done.links), (3, 4, 1));
        let attr = u.stat("tree/sub/large").await.unwrap();
        assert_eq!((attr.uid, attr.gid, attr.mode), (7, 7, 0o640));
        let outward = job("fs:/tree", back.to_str().unwrap());
        assert_eq!(copy::run(&c.world, &outward, &|_| {}).await.unwrap(), done);
        same_trees(&tree, &back);

        // What is another's, known to this mount by its owner.
        let other = user(&client, 8);
        put(&other, "secret", 0o600, "secret").await;
        other.mkdir("private", 0o700).await.unwrap();
        put(&other, "private/open", 0o666, "hidden").await;
        let hidden = other.path2fid("private/open").await.unwrap();
        other.mkdir("fixed", 0o555).await.unwrap();
        assert_eq!(text(&other, "secret").await.unwrap(), "secret");
        assert_eq!(text(&other, "private/open").await.unwrap(), "hidden");
        assert_eq!(other.fid2path(hidden).await.unwrap(), [b"private/open".to_vec()]);
        assert_eq!(other.readdir("private").await.unwrap().len(), 1);
        forbidden(&u, hidden).await;
        for name in ["secret", "private/open", "private/none"] {
            let e = copy::run(&c.world, &job(&format!("fs:/{name}"), "/nowhere"), &|_| {}).await.unwrap_err();
            assert!(e.contains("Permission denied"), "{e}");
        }
        let e = u.stat("/private/open").await.unwrap_err();
        assert_eq!(
            e.to_string(),
            "cannot stat '/private/open': Permission denied: user 7 may not search directory '/private'"
        );
    });
    fs::remove_dir_all(&host).unwrap();
}

async fn forbidden(u: &User, hidden: Fid) {
    let is = |what: &str, r: Result<(), Errno>, e: Errno| assert_eq!(r, Err(e), "{what}");
    let open = async |path: &str, flags| errno(u.open(path, flags, 0o644).await).map(drop);
    for again in ["cold", "warm"] {
        is(again, open("secret", O_RDONLY).await, Errno::EACCES);
        is(again, open("secret", O_WRONLY).await, Errno::EACCES);
        is(again, open("private/open", O_RDONLY).await, Errno::EACCES);
        is(again, open("private/new", O_WRONLY | O_CREAT).await, Errno::EACCES);
        is(again, open("fixed/new", O_WRONLY | O_CREAT).await, Errno::EACCES);
        is(again, errno(u.readdir("private").await).map(drop), Errno::EACCES);
        is(again, errno(u.stat("private/open").await).map(drop), Errno::EACCES);
        is(again, errno(u.stat("private/none").await).map(drop), Errno::EACCES);
        is(again, errno(u.stat("private/../secret").await).map(drop), Errno::EACCES);
        is(again, errno(u.link("private/open", "mine").await), Errno::EACCES);
        is(again, errno(u.unlink("secret").await), Errno::EPERM);
        is(again, errno(u.rename("secret", "mine", 0).await), Errno::EPERM);
        is(again, errno(u.rmdir("private").await), Errno::EPERM);
        is(again, errno(u.truncate("secret", 0).await), Errno::EACCES);
        is(again, errno(u.chmod("secret", 0o666).await), Errno::EPERM);
        is(again, errno(u.chown("secret", Some(7), None).await), Errno::EPERM);
        is(again, errno(u.chown("tree/one", Some(8), None).await), Errno::EPERM);
        is(again, errno(u.chown("tree/one", None, Some(8)).await), Errno::EPERM);
        is(again, errno(u.setxattr("secret", "user.x", "y", 0).await), Errno::EACCES);
        is(again, errno(u.setxattr("tree/one", "trusted.x", "y", 0).await), Errno::EPERM);
        is(again, errno(u.setxattr("tree/one", "trusted.lov", "y", 0).await), Errno::EPERM);
        let acl = Acl::from_mode(0o777).to_xattr();
        is(again, errno(u.setxattr("secret", XATTR_ACCESS, acl, 0).await), Errno::EPERM);
        is(again, errno(u.setstripe("secret", Some(LayoutSpec::default())).await), Errno::EPERM);
        is(again, errno(u.setstripe("fixed", Some(LayoutSpec::default())).await), Errno::EPERM);
        is(again, errno(u.path2fid("private/open").await).map(drop), Errno::EACCES);
        is(again, errno(u.getstripe("private/open").await).map(drop), Errno::EACCES);
        is(again, errno(u.fid2path(hidden).await).map(drop), Errno::EACCES);
    }
    assert_eq!(u.fid2path(u.path2fid("tree/one").await.unwrap()).await.unwrap(), [b"tree/one".to_vec()]);
    u.setxattr("tree/one", "user.x", Bytes::from_static(b"y"), 0).await.unwrap();
    assert_eq!(u.listxattr("tree/one").await.unwrap(), [b"user.x".to_vec()]);
    u.removexattr("tree/one", "user.x").await.unwrap();
}

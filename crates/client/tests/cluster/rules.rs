//! Random operations that a mount executes by itself as far as it may: what it says of the inodes afterwards
//! is what the server made of them. Both go by `model::inode_rules`; this tests that they ask the rules the
//! same questions.

use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, at, call};
use bytes::Bytes;
use client::{Call, Fs};
use model::acl::{Acl, Entry, Who};
use model::inode_rules::FLAG_PROJINHERIT;
use model::perm::{FLAG_NOATIME, FLAG_NODUMP};
use model::{Attr, Cred, Errno, Fid, FileType, SetAttr, SetTime};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::sync::Arc;

const CASES: u32 = 200;
/// Names of each directory, and what a file's data may take with its inode.
const NAMES: usize = 4;
const ROOM: u64 = 65_536;

/// How the directory is in which everything happens.
#[derive(Clone, Debug)]
struct Top {
    mode: u32,
    gid: u32,
    projid: u32,
    flags: u32,
    default_acl: bool,
}

/// A name in one of the directories that there are.
type Place = (usize, usize);

#[derive(Clone, Debug)]
enum Act {
    Create(Place, u32),
    Mkdir(Place, u32),
    Symlink(Place),
    Fifo(Place, u32),
    Link(usize, Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place),
    Exchange(Place, Place),
    Set(usize, SetAttr),
    Write(usize, u64, usize),
    Append(usize, usize),
}

/// Who does it, under which umask, and what.
type Step = (usize, u32, Act);

fn caller(who: usize, umask: u32) -> Call {
    let users = [Cred::root(), Cred { uid: 7, gid: 7, groups: vec![50] }, Cred::new(9, 9)];
    Call { cred: users[who].clone(), pid: 1, umask, ..Call::default() }
}

fn a_top() -> impl Strategy<Value = Top> {
    let mode = prop::sample::select(vec![0o777, 0o755, 0o2777, 0o2775, 0o1777, 0o3777]);
    let gid = prop::sample::select(vec![0u32, 7, 50]);
    let inherited = [0, FLAG_PROJINHERIT, FLAG_PROJINHERIT | FLAG_NODUMP, FLAG_NOATIME];
    let flags = prop::sample::select(inherited.to_vec());
    (mode, gid, 0u32..3, flags, prop::bool::weighted(0.15))
        .prop_map(|(mode, gid, projid, flags, default_acl)| Top { mode, gid, projid, flags, default_acl })
}

fn a_mode() -> impl Strategy<Value = u32> {
    prop_oneof![3 => prop::sample::select(vec![0o644, 0o755, 0o777, 0o2755, 0o4711]), 1 => 0u32..0o10000]
}

fn a_time() -> impl Strategy<Value = Option<SetTime>> {
    prop_oneof![
        4 => Just(None),
        2 => Just(Some(SetTime::Now)),
        2 => (1i64..3_000_000_000).prop_map(|sec| Some(SetTime::At(at(sec)))),
    ]
}

fn a_change() -> impl Strategy<Value = SetAttr> {
    let seldom = |p, of: Vec<u32>| prop::option::weighted(p, prop::sample::select(of));
    let ids = (seldom(0.2, vec![0, 7, 9]), seldom(0.2, vec![0, 7, 50]), seldom(0.05, vec![0, 5]));
    let size = prop::option::weighted(0.3, 0..ROOM);
    let bits = (prop::bool::weighted(0.2), prop::bool::weighted(0.3));
    let mode = prop::option::weighted(0.4, a_mode());
    (mode, ids, size, a_time(), a_time(), bits, seldom(0.05, vec![0, FLAG_NODUMP])).prop_map(
        |(mode, (uid, gid, projid), size, atime, mtime, (kill_suid_sgid, by_handle), flags)| SetAttr {
            mode,
            uid,
            gid,
            projid,
            size,
            atime,
            mtime,
            kill_suid_sgid,
            flags,
            by_handle,
        },
    )
}

fn an_act() -> impl Strategy<Value = Act> {
    let place = || (0usize..6, 0..NAMES);
    let file = 0usize..16;
    prop_oneof![
        6 => (place(), a_mode()).prop_map(|(p, m)| Act::Create(p, m)),
        4 => (place(), a_mode()).prop_map(|(p, m)| Act::Mkdir(p, m)),
        2 => place().prop_map(Act::Symlink),
        1 => (place(), a_mode()).prop_map(|(p, m)| Act::Fifo(p, m)),
        1 => (file.clone(), place()).prop_map(|(f, p)| Act::Link(f, p)),
        3 => place().prop_map(Act::Unlink),
        2 => place().prop_map(Act::Rmdir),
        4 => (place(), place()).prop_map(|(a, b)| Act::Rename(a, b)),
        1 => (place(), place()).prop_map(|(a, b)| Act::Exchange(a, b)),
        6 => (file.clone(), a_change()).prop_map(|(f, s)| Act::Set(f, s)),
        4 => (file.clone(), 0..ROOM - 9000, 1usize..9000).prop_map(|(f, off, len)| Act::Write(f, off, len)),
        2 => (file, 1usize..5000).prop_map(|(f, len)| Act::Append(f, len)),
    ]
}

/// What was made, gone or not.
struct Files {
    fs: Arc<Fs>,
    dirs: Vec<Fid>,
    all: Vec<(Fid, FileType)>,
}

impl Files {
    fn place(&self, (dir, name): Place) -> (Fid, Vec<u8>) {
        (self.dirs[dir % self.dirs.len()], vec![b'a' + name as u8])
    }

    fn one(&self, n: usize) -> (Fid, FileType) {
        self.all[n % self.all.len()]
    }

    fn made(&mut self, r: Result<Attr, Errno>) -> Result<(), Errno> {
        let a = r?;
        self.all.push((a.fid, a.kind));
        if a.kind == FileType::Directory {
            self.dirs.push(a.fid);
        }
        Ok(())
    }

    async fn act(&mut self, (who, umask, act): Step) -> Result<(), Errno> {
        let (fs, call) = (self.fs.clone(), caller(who, umask));
        match act {
            Act::Create(p, mode) => {
                let (dir, name) = self.place(p);
                let flags = O_RDWR | O_CREAT | O_EXCL;
                let (attr, f) = fs.clone().create(call, dir, name, mode, flags, None).await?;
                fs.close(Arc::new(f)).await?;
                self.made(Ok(attr))
            }
            Act::Mkdir(p, mode) => {
                let (dir, name) = self.place(p);
                let r = fs.mkdir(call, dir, name, mode).await;
                self.made(r)
            }
            Act::Symlink(p) => {
                let (dir, name) = self.place(p);
                let r = fs.symlink(call, dir, name, b"somewhere".to_vec()).await;
                self.made(r)
            }
            Act::Fifo(p, mode) => {
                let (dir, name) = self.place(p);
                let r = fs.mknod(call, dir, name, FileType::Fifo.mode_bits() | mode, 0).await;
                self.made(r)
            }
            Act::Link(f, p) => {
                let (dir, name) = self.place(p);
                fs.link(call, self.one(f).0, dir, name).await.map(drop)
            }
            Act::Unlink(p) => {
                let (dir, name) = self.place(p);
                fs.unlink(call, dir, name).await
            }
            Act::Rmdir(p) => {
                let (dir, name) = self.place(p);
                fs.rmdir(call, dir, name).await
            }
            Act::Rename(a, b) => self.rename(call, a, b, 0).await,
            Act::Exchange(a, b) => self.rename(call, a, b, wire::msg::rename::RENAME_EXCHANGE).await,
            Act::Set(f, set) => fs.setattr(call, self.one(f).0, set).await.map(drop),
            Act::Write(f, off, len) => self.write(call, f, Some(off), len).await,
            Act::Append(f, len) => self.write(call, f, None, len).await,
        }
    }

    async fn rename(&self, call: Call, a: Place, b: Place, flags: u32) -> Result<(), Errno> {
        let ((from, name), (to, new)) = (self.place(a), self.place(b));
        self.fs.clone().rename(call, from, name, to, new, flags).await
    }

    /// As long as it has room with the inode: objects have times of their own.
    async fn write(&self, call: Call, f: usize, off: Option<u64>, len: usize) -> Result<(), Errno> {
        let (fid, kind) = self.one(f);
        let size = self.fs.clone().getattr(crate::harness::call(), fid).await?.size;
        if kind != FileType::Regular || off.unwrap_or(size) + len as u64 > ROOM {
            return Err(Errno::EINVAL);
        }
        let (append, data) = (off.is_none(), Bytes::from(vec![5; len]));
        let kill = !call.cred.is_root();
        self.fs.clone().write(call, fid, off.unwrap_or(0), append, kill, data).await.map(drop)
    }
}

/// The directory of one case, as the server makes it.
async fn make_top(fs: &Arc<Fs>, nth: u32, top: &Top) -> Fid {
    let name = format!("case{nth}").into_bytes();
    let fid = fs.clone().mkdir(call(), fs.root(), name, 0o755).await.unwrap().fid;
    if top.default_acl {
        let all = [(Who::UserObj, 7), (Who::User(9), 7), (Who::GroupObj, 5), (Who::Mask, 7), (Who::Other, 1)];
        let acl = Acl::new(all.map(|(who, perm)| Entry { who, perm }).to_vec()).unwrap();
        let name = b"system.posix_acl_default".to_vec();
        fs.clone().setxattr(call(), fid, name, acl.to_xattr(), 0, false).await.unwrap();
    }
    let set = SetAttr {
        mode: Some(top.mode),
        gid: Some(top.gid),
        projid: Some(top.projid),
        flags: Some(top.flags),
        ..SetAttr::default()
    };
    fs.clone().setattr(call(), fid, set).await.unwrap();
    fid
}

async fn listing(fs: &Arc<Fs>, dir: Fid) -> Result<Vec<(Vec<u8>, Fid)>, Errno> {
    let (page, _, end) = fs.clone().readdir(call(), dir, 0, 1 << 20, false).await?;
    assert!(end);
    let mut all: Vec<_> = page.into_iter().map(|d| (d.name, d.fid)).collect();
    all.sort();
    Ok(all)
}

#[test]
fn random_operations_make_of_inodes_what_the_server_makes_of_them() {
    let c = Cluster::start(1);
    let (a, b) = c.run(async { (c.mount().await, c.mount().await) });
    let (nth, done) = (Cell::new(0), Cell::new(0u64));
    let steps =
        prop::collection::vec((0usize..3, prop::sample::select(vec![0u32, 0o22, 0o77]), an_act()), 1..60);
    let config =
        Config { cases: CASES, max_shrink_iters: 400, failure_persistence: None, ..Config::default() };
    let r = TestRunner::new(config).run(&(a_top(), steps), |(top, steps)| {
        nth.set(nth.get() + 1);
        c.run(async {
            let dir = make_top(&a, nth.get(), &top).await;
            let all = vec![(dir, FileType::Directory)];
            let mut files = Files { fs: a.clone(), dirs: vec![dir], all };
            for s in steps {
                done.set(done.get() + u64::from(files.act(s).await.is_ok()));
            }
            let mut mine = Vec::new();
            for (fid, _) in &files.all {
                mine.push(a.clone().getattr(call(), *fid).await);
            }
            let mut names = Vec::new();
            for fid in &files.dirs {
                names.push(listing(&a, *fid).await);
            }
            for ((fid, _), m) in files.all.iter().zip(mine) {
                prop_assert_eq!(b.clone().getattr(call(), *fid).await, m);
            }
            for (fid, n) in files.dirs.iter().zip(names) {
                prop_assert_eq!(listing(&b, *fid).await, n);
            }
            Ok(())
        })
    });
    r.unwrap();
    let here = a.pending_state().0;
    assert!(here * 2 > done.get(), "{here} of {} operations were executed by the mount", done.get());
}

/// ENOENT of a link is about the file: the name may well be there.
#[test]
fn a_link_to_what_is_gone_says_nothing_of_its_name() {
    let c = Cluster::start(1);
    c.run(async {
        let fs = c.mount().await;
        let make = |name: &'static [u8]| fs.clone().mknod(call(), fs.root(), name.to_vec(), 0o100644, 0);
        let (there, gone) = (make(b"there").await.unwrap(), make(b"gone").await.unwrap());
        fs.clone().unlink(call(), fs.root(), b"gone".to_vec()).await.unwrap();
        let linked = fs.clone().link(call(), gone.fid, fs.root(), b"there".to_vec()).await;
        assert_eq!(linked.map(drop), Err(Errno::ENOENT));
        let made = fs.clone().mkdir(call(), fs.root(), b"there".to_vec(), 0o755).await;
        assert_eq!(made.map(drop), Err(Errno::EEXIST), "the name leads to a file");
        let found = fs.clone().lookup(call(), fs.root(), b"there".to_vec()).await;
        assert_eq!(found.map(|a| a.fid), Ok(there.fid));
    });
}

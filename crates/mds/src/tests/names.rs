//! Names: create, link, unlink, rename and their errors.

use super::*;
use wire::msg::rename::{RENAME_EXCHANGE, RENAME_NOREPLACE};
use world::mem::FaultPlan;

const R: Fid = Fid::ROOT;

#[test]
fn files_come_and_go() {
    let rig = Rig::new();
    let f = rig.create_striped(R, "f", 1);
    let e = rig.lookup(R, "f").unwrap();
    assert_eq!((e.attr.fid, kind_of(&e), e.attr.mode, e.attr.nlink), (f, FileType::Regular, 0o644, 1));
    assert_eq!(rig.create_as(&Cred::root(), R, "f", 0o600).unwrap_err(), Errno::EEXIST);
    assert_eq!(rig.lookup(R, "g").unwrap_err(), Errno::ENOENT);
    assert_eq!(rig.lookup(f, "x").unwrap_err(), Errno::ENOTDIR);
    assert_eq!(rig.lookup(R, &"n".repeat(256)).unwrap_err(), Errno::ENAMETOOLONG);
    rig.create(R, &"n".repeat(255));
    assert_eq!(rig.unlink(R, "f"), Ok(()));
    assert_eq!(rig.unlink(R, "f"), Err(Errno::ENOENT));
    assert_eq!(rig.root(msg::getattr::Getattr { fid: f }).unwrap_err(), Errno::ENOENT);
    let s = rig.assert_clean();
    assert_eq!((s.inodes, s.names, s.outbox), (2, 1, 1), "the removed file's object waits for its OST");
}

#[test]
fn a_create_finds_what_is_there() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let again = Create { exclusive: false, ..create_msg(R, "f", rig.fid(), 0o600) };
    let r = rig.root(again.clone()).unwrap();
    assert!(!r.created);
    assert_eq!(r.entry.attr.fid, f);
    rig.mkdir(R, "d");
    assert_eq!(rig.root(Create { name: b"d".to_vec(), ..again.clone() }).unwrap_err(), Errno::EISDIR);
    let foreign = Create { fid: Fid::new(rig.seqs[1], 1, 0), name: b"x".to_vec(), ..again.clone() };
    assert_eq!(rig.root(foreign).unwrap_err(), Errno::ESTALE, "somebody else's sequence");
    let used = Create { fid: f, name: b"x".to_vec(), ..again };
    assert_eq!(rig.root(used).unwrap_err(), Errno::EINVAL);
    rig.assert_clean();
}

#[test]
fn directories_count_their_subdirectories() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let e = rig.mkdir(d, "e");
    assert_eq!((rig.attr(R).nlink, rig.attr(d).nlink, rig.attr(e).nlink), (3, 3, 2));
    assert_eq!(rig.lookup(e, "..").unwrap().attr.fid, d);
    assert_eq!(rig.lookup(R, "..").unwrap().attr.fid, R);
    assert_eq!(rig.rmdir(R, "d"), Err(Errno::ENOTEMPTY));
    assert_eq!(rig.unlink(R, "d"), Err(Errno::EISDIR));
    rig.create(R, "f");
    assert_eq!(rig.rmdir(R, "f"), Err(Errno::ENOTDIR));
    assert_eq!(rig.rmdir(R, "."), Err(Errno::EINVAL));
    assert_eq!(rig.rmdir(R, ".."), Err(Errno::ENOTEMPTY));
    assert_eq!(rig.rmdir(d, "e"), Ok(()));
    assert_eq!(rig.rmdir(R, "d"), Ok(()));
    assert_eq!(rig.attr(R).nlink, 2);
    rig.assert_clean();
}

#[test]
fn links_count_up_to_the_limit() {
    let rig = Rig::new();
    let (f, d) = (rig.create(R, "f"), rig.mkdir(R, "d"));
    assert_eq!(rig.link(f, d, "g").unwrap().attr.nlink, 2);
    assert_eq!(rig.link(f, d, "g").unwrap_err(), Errno::EEXIST);
    assert_eq!(rig.link(d, R, "x").unwrap_err(), Errno::EPERM);
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.attr(f).nlink, 1);
    let paths = rig.root(msg::getpath::Getpath { fid: f, root: R, max_paths: 9 }).unwrap();
    assert_eq!(paths.paths, [b"d/g".to_vec()]);
    rig.assert_clean();
    // Near the limit without making 65000 names.
    let mut i = rig
        .mdt
        .db
        .get(&crate::schema::key::inode(f))
        .unwrap()
        .map(|v| crate::schema::Inode::decode(f, &v).unwrap())
        .unwrap();
    i.nlink = ::model::limits::LINK_MAX_LINKS;
    let mut txn = store::Txn::new();
    txn.put(crate::schema::key::inode(f), i.encode());
    rig.mdt.db.submit(txn).unwrap();
    assert_eq!(rig.link(f, R, "more").unwrap_err(), Errno::EMLINK);
}

#[test]
fn rename_moves_replaces_and_refuses() {
    let rig = Rig::new();
    let (f, g) = (rig.create(R, "f"), rig.create(R, "g"));
    let (d, e) = (rig.mkdir(R, "d"), rig.mkdir(R, "e"));
    assert_eq!(rig.rename((R, "f"), (d, "f2"), 0), Ok(()));
    assert_eq!(rig.lookup(d, "f2").unwrap().attr.fid, f);
    assert_eq!(rig.rename((R, "nope"), (d, "x"), 0), Err(Errno::ENOENT));
    assert_eq!(rig.rename((R, "g"), (R, "d"), 0), Err(Errno::EISDIR));
    assert_eq!(rig.rename((R, "d"), (R, "g"), 0), Err(Errno::ENOTDIR));
    assert_eq!(rig.rename((R, "e"), (R, "d"), 0), Err(Errno::ENOTEMPTY));
    assert_eq!(rig.rename((R, "g"), (d, "f2"), RENAME_NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(rig.rename((R, "g"), (d, "f2"), 0), Ok(()));
    assert_eq!(rig.root(msg::getattr::Getattr { fid: f }).unwrap_err(), Errno::ENOENT, "replaced");
    let inner = rig.mkdir(e, "inner");
    assert_eq!(rig.rename((R, "e"), (inner, "x"), 0), Err(Errno::EINVAL), "below itself");
    assert_eq!(rig.rename((e, "inner"), (R, "e"), 0), Err(Errno::ENOTEMPTY), "onto its parent");
    assert_eq!(rig.rename((e, "inner"), (d, "inner"), 0), Ok(()));
    assert_eq!(rig.lookup(inner, "..").unwrap().attr.fid, d);
    assert_eq!((rig.attr(e).nlink, rig.attr(d).nlink), (2, 3));
    assert_eq!(rig.rename((R, "e"), (d, "inner"), 0), Ok(()), "over an empty directory");
    assert_eq!((rig.attr(R).nlink, rig.attr(d).nlink), (3, 3));
    rig.link(g, R, "same").unwrap();
    assert_eq!(rig.rename((R, "same"), (d, "f2"), 0), Ok(()), "two names of one file: nothing happens");
    assert_eq!(rig.names(R), ["d", "same"]);
    assert_eq!(rig.rename((R, "d"), (R, "."), 0), Err(Errno::EBUSY));
    assert_eq!(rig.rename((R, "d"), (R, "x"), 4), Err(Errno::EINVAL), "whiteouts");
    rig.assert_clean();
}

#[test]
fn exchange_swaps_files_and_directories() {
    let rig = Rig::new();
    let (d, e) = (rig.mkdir(R, "d"), rig.mkdir(R, "e"));
    let (f, sub) = (rig.create(d, "f"), rig.mkdir(e, "sub"));
    assert_eq!(rig.rename((d, "f"), (e, "none"), RENAME_EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(rig.rename((d, "f"), (e, "sub"), RENAME_EXCHANGE), Ok(()));
    assert_eq!(rig.lookup(d, "f").unwrap().attr.fid, sub);
    assert_eq!(rig.lookup(e, "sub").unwrap().attr.fid, f);
    assert_eq!(rig.lookup(sub, "..").unwrap().attr.fid, d);
    assert_eq!((rig.attr(d).nlink, rig.attr(e).nlink), (3, 2));
    assert_eq!(rig.rename((R, "d"), (d, "f"), RENAME_EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(rig.rename((d, "f"), (R, "d"), RENAME_EXCHANGE), Err(Errno::EINVAL));
    rig.assert_clean();
}

#[test]
fn open_files_outlive_their_names() {
    let rig = Rig::new();
    let f = rig.create_striped(R, "f", 1);
    let h = rig.open(f, 0);
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.attr(f).nlink, 0);
    assert_eq!(rig.link(f, R, "back").unwrap_err(), Errno::ENOENT);
    assert_eq!(rig.assert_clean().orphans, 1);
    rig.close(f, h);
    rig.close(f, h);
    assert_eq!(rig.root(msg::getattr::Getattr { fid: f }).unwrap_err(), Errno::ENOENT);
    let s = rig.assert_clean();
    assert_eq!((s.orphans, s.outbox, s.inodes), (0, 1, 1));

    // A removed directory that somebody is in.
    let d = rig.mkdir(R, "d");
    let h = rig.open(d, 0);
    rig.rmdir(R, "d").unwrap();
    assert_eq!(rig.create_as(&Cred::root(), d, "x", 0o644).unwrap_err(), Errno::ENOENT);
    assert!(rig.names(d).is_empty());
    rig.close(d, h);
    rig.assert_clean();
}

#[test]
fn unnamed_files_can_be_named_once() {
    let rig = Rig::new();
    let tmp = |exclusive| {
        let (fid, handle) = (rig.fid(), rig.handle());
        let open = Some(OpenSpec { handle, flags: 2, lease: false });
        rig.root(Create { exclusive, open, ..create_msg(R, "", fid, 0o600) }).unwrap();
        (fid, handle)
    };
    let (f, h) = tmp(false);
    assert_eq!(rig.attr(f).nlink, 0);
    assert_eq!(rig.link(f, R, "named").unwrap().attr.nlink, 1);
    rig.close(f, h);
    assert_eq!(rig.lookup(R, "named").unwrap().attr.fid, f);
    let (g, h) = tmp(true);
    assert_eq!(rig.link(g, R, "never").unwrap_err(), Errno::ENOENT, "O_EXCL");
    rig.close(g, h);
    assert_eq!(rig.root(msg::getattr::Getattr { fid: g }).unwrap_err(), Errno::ENOENT);
    let s = rig.assert_clean();
    assert_eq!((s.orphans, s.inodes), (0, 2));
    assert_eq!(rig.root(create_msg(R, "", rig.fid(), 0o600)).unwrap_err(), Errno::EINVAL, "without an open");
}

#[test]
fn symlinks_and_nodes_keep_what_they_are_given() {
    let rig = Rig::new();
    let sym = |name: &str, target: Vec<u8>| {
        rig.root(msg::symlink::Symlink { parent: R, name: name.into(), fid: rig.fid(), target })
    };
    let e = sym("s", vec![b't'; 4095]).unwrap();
    assert_eq!((e.attr.size, e.attr.mode), (4095, 0o777));
    assert_eq!(rig.root(msg::readlink::Readlink { fid: e.attr.fid }).unwrap().target.len(), 4095);
    assert_eq!(sym("t", vec![b't'; 4096]).unwrap_err(), Errno::ENAMETOOLONG);
    assert_eq!(sym("t", Vec::new()).unwrap_err(), Errno::ENOENT);
    assert_eq!(rig.root(msg::readlink::Readlink { fid: R }).unwrap_err(), Errno::EINVAL);
    let node = |cred: &Cred, name: &str, kind, rdev| {
        rig.call(
            A,
            cred,
            msg::mknod::Mknod {
                parent: R,
                name: name.into(),
                fid: rig.fid(),
                kind,
                mode: 0o666,
                umask: 0o22,
                rdev,
            },
        )
    };
    let root = Cred::root();
    let e = node(&root, "null", FileType::CharDevice, 0x103).unwrap();
    assert_eq!((e.attr.device(), e.attr.mode), (0x103, 0o644));
    node(&root, "fifo", FileType::Fifo, 0).unwrap();
    node(&root, "sock", FileType::Socket, 0).unwrap();
    assert!(node(&root, "reg", FileType::Regular, 0).unwrap().layout.is_some());
    assert_eq!(node(&root, "dir", FileType::Directory, 0).unwrap_err(), Errno::EPERM);
    rig.chmod(R, 0o777);
    assert_eq!(node(&user(5), "dev", FileType::BlockDevice, 1).unwrap_err(), Errno::EPERM);
    node(&user(5), "fifo2", FileType::Fifo, 0).unwrap();
    rig.assert_clean();
}

#[test]
fn batches_stop_at_the_first_failure_and_keep_what_went_before() {
    let rig = Rig::new();
    let op = |m: &dyn Fn() -> (u16, Vec<u8>)| {
        let (opcode, body) = m();
        msg::batch::BatchOp::plain(opcode, body)
    };
    fn raw<M: Message>(m: &M) -> (u16, Vec<u8>) {
        (M::OP as u16, postcard::to_stdvec(m).unwrap())
    }
    let d = rig.fid();
    let mk = msg::mkdir::Mkdir { parent: R, name: b"d".to_vec(), fid: d, mode: 0o755, umask: 0 };
    let (f1, f2) = (rig.fid(), rig.fid());
    let ops = vec![
        op(&|| raw(&mk)),
        op(&|| raw(&create_msg(d, "one", f1, 0o644))),
        op(&|| raw(&rename_msg((d, "one"), (R, "two"), 0))),
        op(&|| raw(&create_msg(d, "one", f2, 0o644))),
        op(&|| raw(&msg::rmdir::Rmdir { parent: R, name: b"d".to_vec() })),
        op(&|| raw(&create_msg(d, "three", rig.fid(), 0o644))),
    ];
    let r = rig.root(msg::batch::Batch::plain(ops)).unwrap();
    let status: Vec<u16> = r.results.iter().map(|r| r.0).collect();
    assert_eq!(status, [0, 0, 0, 0, Errno::ENOTEMPTY.0 as u16]);
    assert_eq!((rig.names(R), rig.names(d)), (vec!["d".into(), "two".to_string()], vec!["one".to_string()]));
    let e: Entry = postcard::from_bytes(&r.results[0].1).unwrap();
    assert_eq!(e.attr.fid, d);
    let nested = msg::batch::Batch::plain(vec![op(&|| raw(&msg::batch::Batch::plain(Vec::new())))]);
    assert_eq!(rig.root(nested).unwrap().results[0].0, Errno::EOPNOTSUPP.0 as u16);
    rig.assert_clean();
}

#[test]
fn paths_are_found_from_back_pointers() {
    let rig = Rig::new();
    let (a, secret) = (rig.mkdir(R, "a"), rig.mkdir(R, "secret"));
    let b = rig.mkdir(a, "b");
    let f = rig.create(b, "f");
    rig.link(f, secret, "g").unwrap();
    rig.chmod(secret, 0o700);
    let get = |cred: &Cred, fid, root, max| {
        rig.call(A, cred, msg::getpath::Getpath { fid, root, max_paths: max }).map(|r| {
            let mut p: Vec<_> = r.paths.into_iter().map(|p| String::from_utf8(p).unwrap()).collect();
            p.sort();
            p
        })
    };
    assert_eq!(get(&Cred::root(), f, R, 10).unwrap(), ["a/b/f", "secret/g"]);
    assert_eq!(get(&Cred::root(), f, a, 10).unwrap(), ["b/f"]);
    assert_eq!(
        get(&user(5), f, R, 10).unwrap(),
        ["a/b/f"],
        "no names out of directories that one may not search"
    );
    rig.chmod(a, 0o711);
    assert_eq!(get(&user(5), f, R, 10), Err(Errno::EACCES), "nor out of those that one may not list");
    rig.chmod(a, 0o755);
    rig.chmod(b, 0o711);
    assert_eq!(get(&user(5), f, R, 10), Err(Errno::EACCES));
    assert_eq!(get(&user(5), b, R, 10).unwrap(), ["a/b"]);
    rig.chmod(b, 0o755);
    assert_eq!(get(&Cred::root(), R, R, 10).unwrap(), ["/"]);
    assert_eq!(get(&Cred::root(), a, b, 10), Err(Errno::ENOENT));
    assert_eq!(get(&Cred::root(), f, R, 1).unwrap().len(), 1);
}

/// Deeper than a rename looks by itself.
#[test]
fn directories_move_far_down_and_never_below_themselves() {
    let rig = Rig::new();
    let top = rig.mkdir(R, "top");
    let mut deep = vec![top];
    for _ in 0..3000 {
        deep.push(rig.mkdir(*deep.last().unwrap(), "d"));
    }
    let (half, end) = (deep[1500], deep[3000]);
    assert_eq!(rig.rename((R, "top"), (end, "x"), 0), Err(Errno::EINVAL));
    assert_eq!(rig.rename((deep[1499], "d"), (end, "x"), 0), Err(Errno::EINVAL));
    let other = rig.mkdir(R, "other");
    assert_eq!(rig.rename((R, "other"), (end, "x"), 0), Ok(()));
    assert_eq!(rig.lookup(other, "..").unwrap().attr.fid, end);
    assert_eq!(rig.rename((end, "x"), (R, "top"), 0), Err(Errno::ENOTEMPTY), "onto what lies above it");
    // The lower half goes elsewhere: now the upper one may lie below it.
    assert_eq!(rig.rename((deep[1499], "d"), (R, "half"), 0), Ok(()));
    assert_eq!(rig.rename((R, "top"), (end, "y"), 0), Ok(()));
    assert_eq!(rig.rename((R, "half"), (deep[1499], "z"), 0), Err(Errno::EINVAL));
    assert_eq!(rig.lookup(top, "..").unwrap().attr.fid, end);
    assert_eq!(rig.lookup(half, "..").unwrap().attr.fid, R);
}

#[test]
fn who_has_no_room_left_can_still_remove_and_rename() {
    let rig = Rig::new();
    let dir = rig.mkdir(R, "dir");
    let files: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
    for n in &files {
        rig.create(dir, n);
    }
    let striped = rig.create_striped(dir, "striped", 4);
    // Less than what is left for the journal and the table.
    let capacity_bytes = Some(rig.disk.used_bytes() + (12 << 20));
    rig.disk.set_faults(FaultPlan { capacity_bytes, ..FaultPlan::default() });
    // The host is asked now and then.
    let mut made: Vec<String> = Vec::new();
    let full = loop {
        let name = format!("last{}", made.len());
        match rig.create_as(&Cred::root(), dir, &name, 0o644) {
            Ok(_) if made.len() < 2000 => made.push(name),
            other => break other,
        }
    };
    assert_eq!(full.err(), Some(Errno::ENOSPC), "after {} files", made.len());
    assert_eq!(rig.create_as(&Cred::root(), dir, "more", 0o644).err(), Some(Errno::ENOSPC));
    assert_eq!(rig.mkdir_as(&Cred::root(), dir, "more", 0o755).err(), Some(Errno::ENOSPC));
    rig.rename((dir, "f0"), (dir, "renamed"), 0).unwrap();
    rig.chmod(striped, 0o600);
    rig.unlink(dir, "renamed").unwrap();
    files[1..].iter().chain(&made).for_each(|n| rig.unlink(dir, n).unwrap());
    rig.unlink(dir, "striped").unwrap();
    rig.rmdir(R, "dir").unwrap();
    rig.disk.set_faults(FaultPlan::default());
    rig.create(R, "more");
    rig.assert_clean();
}

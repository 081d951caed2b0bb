//! Extended attributes and ACLs.

use super::*;
use ::model::acl::{Acl, Entry as AclEntry, Who, XATTR_ACCESS, XATTR_DEFAULT};
use wire::msg::setxattr::{XATTR_CREATE, XATTR_REPLACE};

const R: Fid = Fid::ROOT;

fn set(rig: &Rig, cred: &Cred, fid: Fid, name: &[u8], value: &[u8], flags: u32) -> Result<(), Errno> {
    let m =
        msg::setxattr::Setxattr { fid, name: name.to_vec(), value: value.to_vec(), flags, kill_sgid: false };
    rig.call(A, cred, m)
}

fn get(rig: &Rig, cred: &Cred, fid: Fid, name: &[u8]) -> Result<Vec<u8>, Errno> {
    rig.call(A, cred, msg::getxattr::Getxattr { fid, name: name.to_vec() }).map(|r| r.value)
}

fn list(rig: &Rig, cred: &Cred, fid: Fid) -> Vec<String> {
    let r = rig.call(A, cred, msg::listxattr::Listxattr { fid }).unwrap();
    r.names.into_iter().map(|n| String::from_utf8(n).unwrap()).collect()
}

fn acl(list: &[(Who, u8)]) -> Acl {
    Acl::new(list.iter().map(|&(who, perm)| AclEntry { who, perm }).collect()).unwrap()
}

#[test]
fn small_and_large_values_live_side_by_side() {
    let rig = Rig::new();
    let (f, root) = (rig.create(R, "f"), Cred::root());
    let big = vec![7u8; 65536];
    set(&rig, &root, f, b"user.small", b"v", 0).unwrap();
    set(&rig, &root, f, b"user.big", &big, XATTR_CREATE).unwrap();
    set(&rig, &root, f, b"user.empty", b"", 0).unwrap();
    assert_eq!(get(&rig, &root, f, b"user.big").unwrap(), big);
    assert_eq!(get(&rig, &root, f, b"user.small").unwrap(), b"v");
    assert_eq!(get(&rig, &root, f, b"user.empty").unwrap(), b"");
    assert_eq!(list(&rig, &root, f), ["user.big", "user.empty", "user.small"]);
    rig.assert_clean();
    assert_eq!(set(&rig, &root, f, b"user.big", b"", XATTR_CREATE), Err(Errno::EEXIST));
    assert_eq!(set(&rig, &root, f, b"user.none", b"", XATTR_REPLACE), Err(Errno::ENODATA));
    assert_eq!(set(&rig, &root, f, b"user.huge", &vec![0; 65537], 0), Err(Errno::E2BIG));
    set(&rig, &root, f, b"user.big", b"small now", XATTR_REPLACE).unwrap();
    set(&rig, &root, f, b"user.small", &big, 0).unwrap();
    assert_eq!(get(&rig, &root, f, b"user.big").unwrap(), b"small now");
    rig.assert_clean();
    let rm = |name: &[u8]| rig.root(msg::removexattr::Removexattr { fid: f, name: name.to_vec() });
    assert_eq!(rm(b"user.none"), Err(Errno::ENODATA));
    rm(b"user.big").unwrap();
    assert_eq!(get(&rig, &root, f, b"user.big"), Err(Errno::ENODATA));
    rig.unlink(R, "f").unwrap();
    rig.assert_clean();
}

#[test]
fn name_spaces_have_their_rules() {
    let rig = Rig::new();
    let (f, root, u) = (rig.create(R, "f"), Cred::root(), user(5));
    set(&rig, &root, f, b"trusted.t", b"v", 0).unwrap();
    set(&rig, &root, f, b"security.s", b"v", 0).unwrap();
    assert_eq!(get(&rig, &u, f, b"trusted.t"), Err(Errno::ENODATA));
    assert_eq!(set(&rig, &u, f, b"trusted.t", b"v", 0), Err(Errno::EPERM));
    assert_eq!(get(&rig, &u, f, b"security.s").unwrap(), b"v");
    assert_eq!(set(&rig, &u, f, b"security.s", b"v", 0), Err(Errno::EPERM));
    assert_eq!(set(&rig, &u, f, b"user.u", b"v", 0), Err(Errno::EACCES));
    assert_eq!(list(&rig, &u, f), ["security.s"]);
    assert_eq!(set(&rig, &root, f, b"bogus.x", b"v", 0), Err(Errno::EOPNOTSUPP));
    let s = msg::symlink::Symlink { parent: R, name: b"s".to_vec(), fid: rig.fid(), target: b"t".to_vec() };
    let s = rig.root(s).unwrap().attr.fid;
    assert_eq!(set(&rig, &root, s, b"user.u", b"v", 0), Err(Errno::EPERM));
    set(&rig, &root, s, b"trusted.t", b"v", 0).unwrap();
    let t = rig.mkdir(R, "tmp");
    rig.chmod(t, 0o1777);
    assert_eq!(set(&rig, &u, t, b"user.u", b"v", 0), Err(Errno::EPERM), "sticky, and not the owner");
    rig.assert_clean();
}

#[test]
fn access_lists_and_modes_are_one_thing() {
    let rig = Rig::new();
    let (f, root) = (rig.create(R, "f"), Cred::root());
    rig.chmod(f, 0o600);
    let a = acl(&[(Who::UserObj, 6), (Who::User(5), 6), (Who::GroupObj, 0), (Who::Mask, 6), (Who::Other, 0)]);
    assert_eq!(set(&rig, &user(5), f, XATTR_ACCESS, &a.to_xattr(), 0), Err(Errno::EPERM));
    set(&rig, &root, f, XATTR_ACCESS, &a.to_xattr(), 0).unwrap();
    assert_eq!(rig.attr(f).mode, 0o660);
    assert_eq!(get(&rig, &user(9), f, XATTR_ACCESS).unwrap(), a.to_xattr());
    assert_eq!(list(&rig, &root, f), ["system.posix_acl_access"]);
    let open = |uid, flags| {
        let m =
            msg::open::Open { fid: f, open: OpenSpec { handle: rig.handle(), flags, lease: false }, data: 0 };
        rig.call(A, &user(uid), m).map(|_| ())
    };
    assert_eq!(open(5, 2), Ok(()));
    assert_eq!(open(6, 0), Err(Errno::EACCES));
    rig.chmod(f, 0o640);
    assert_eq!(open(5, 2), Err(Errno::EACCES), "chmod moved the mask");
    assert_eq!(open(5, 0), Ok(()));
    rig.assert_clean();
    set(&rig, &root, f, XATTR_ACCESS, &Acl::from_mode(0o604).to_xattr(), 0).unwrap();
    assert_eq!(rig.attr(f).mode, 0o604);
    assert_eq!(get(&rig, &root, f, XATTR_ACCESS), Err(Errno::ENODATA), "the bits say it all");
    assert_eq!(set(&rig, &root, f, XATTR_DEFAULT, &a.to_xattr(), 0), Err(Errno::EACCES), "no directory");
    assert_eq!(set(&rig, &root, f, XATTR_ACCESS, b"junk", 0), Err(Errno::EOPNOTSUPP));
    rig.assert_clean();
}

#[test]
fn default_lists_are_inherited_instead_of_the_umask() {
    let rig = Rig::new();
    let (d, root) = (rig.mkdir(R, "d"), Cred::root());
    let a = acl(&[(Who::UserObj, 7), (Who::User(5), 7), (Who::GroupObj, 5), (Who::Mask, 7), (Who::Other, 5)]);
    set(&rig, &root, d, XATTR_DEFAULT, &a.to_xattr(), 0).unwrap();
    let m = Create { umask: 0o077, ..create_msg(d, "f", rig.fid(), 0o664) };
    let f = rig.root(m).unwrap().entry.attr;
    assert_eq!(f.mode, 0o664, "the umask plays no part");
    let got = Acl::from_xattr(&get(&rig, &root, f.fid, XATTR_ACCESS).unwrap()).unwrap().unwrap();
    assert!(got.entries().contains(&AclEntry { who: Who::Mask, perm: 6 }));
    let sub = rig.mkdir(d, "sub");
    assert_eq!(get(&rig, &root, sub, XATTR_DEFAULT).unwrap(), a.to_xattr());
    rig.root(msg::removexattr::Removexattr { fid: sub, name: XATTR_DEFAULT.to_vec() }).unwrap();
    assert_eq!(get(&rig, &root, sub, XATTR_DEFAULT), Err(Errno::ENODATA));
    rig.assert_clean();
}

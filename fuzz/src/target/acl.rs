//! POSIX ACLs as setxattr(2) brings them.

use super::Target;
use model::acl::Acl;

pub const TARGET: Target = Target {
    name: "acl",
    what: "system.posix_acl_* values",
    run,
    samples,
    fix: None,
    words: &[&[2, 0, 0, 0], &[1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff], &[0x10, 0], &[0x20, 0]],
    max_bytes: 16384,
};

fn run(bytes: &[u8]) {
    if let Ok(Some(acl)) = Acl::from_xattr(bytes) {
        assert_eq!(Acl::from_xattr(&acl.to_xattr()), Ok(Some(acl)));
    }
}

fn samples() -> Vec<Vec<u8>> {
    let minimal = Acl::from_mode(0o640).to_xattr();
    let entry = |tag: u16, perm: u16, id: u32| {
        [tag.to_le_bytes().as_slice(), &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let full = [
        2u32.to_le_bytes().to_vec(),
        entry(1, 6, none),
        entry(2, 4, 1000),
        entry(4, 4, none),
        entry(8, 6, 1000),
        entry(0x10, 7, none),
        entry(0x20, 0, none),
    ];
    vec![minimal, full.concat()]
}

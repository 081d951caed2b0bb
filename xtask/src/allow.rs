//! The exceptions from the rules, each with its reason. One that is not needed any more is itself a finding.

use crate::source::{Finding, Tree};
use crate::{boundary, docs, messages};

/// `token` may be used in files whose path starts with `path`.
pub struct Allowed {
    pub path: &'static str,
    pub token: &'static str,
    pub reason: &'static str,
}

/// Outside things used outside `world`.
pub const BOUNDARY: &[Allowed] = &[
    Allowed {
        path: "crates/fuse/",
        token: "libc",
        reason: "the kernel's protocol is made of its numbers and structures",
    },
    Allowed {
        path: "crates/fuse/",
        token: "rustix",
        reason: "mount(2) and /dev/fuse are what this crate is",
    },
    Allowed {
        path: "crates/admin/src/output.rs",
        token: "std::process",
        reason: "a reader that closed the pipe ends the command",
    },
    Allowed {
        path: "crates/client/examples/",
        token: "std::fs",
        reason: "a program that uses the library: it copies from and to the host's files",
    },
    Allowed {
        path: "crates/client/tests/cluster/library.rs",
        token: "std::fs",
        reason: "what that program copies lies on the host",
    },
    Allowed {
        path: "crates/rpc/src/tests/",
        token: "std::net::TcpStream",
        reason: "sends garbage over a real socket",
    },
];

/// Version constants of formats that are described elsewhere.
pub const FORMATS: &[Allowed] = &[
    Allowed { path: "crates/fuse/src/abi.rs", token: "VERSION", reason: "the kernel's: linux/fuse.h" },
    Allowed {
        path: "crates/model/src/acl.rs",
        token: "VERSION",
        reason: "the kernel's: linux/posix_acl_xattr.h",
    },
];

/// Messages that nobody sends yet, or that are answered elsewhere than in `ops/VERB.rs`.
pub const MESSAGES: &[Allowed] = &[];

pub fn allows(list: &[Allowed], path: &str, token: &str) -> bool {
    list.iter().any(|a| path.starts_with(a.path) && a.token == token)
}

/// Allowances that nothing uses.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let unused = |a: &Allowed, used: bool, list: &str| {
        (!used).then(|| Finding {
            path: "xtask/src/allow.rs".into(),
            line: 1,
            what: format!("{list}: '{}' for '{}' is not needed any more", a.token, a.path),
            remedy: format!("remove it (its reason was: {})", a.reason),
        })
    };
    let b = BOUNDARY.iter().filter_map(|a| unused(a, boundary::uses(tree, a.path, a.token), "BOUNDARY"));
    let m = MESSAGES.iter().filter_map(|a| unused(a, messages::lacks(tree, a.path, a.token), "MESSAGES"));
    let f = FORMATS.iter().filter_map(|a| unused(a, docs::lacks(tree, a.path, a.token), "FORMATS"));
    b.chain(m).chain(f).collect()
}

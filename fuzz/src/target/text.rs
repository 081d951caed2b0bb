//! What users and peers write as text: FIDs, NIDs, parameter globs, names of file systems.

use super::Target;
use model::param::glob_match;
use model::{Fid, Nid};

pub const TARGET: Target = Target {
    name: "text",
    what: "FID, NID, NID lists, parameter globs, sizes, lists of targets",
    run,
    samples,
    fix: None,
    words: &[
        b"0x",
        b"[",
        b":",
        b"@tcp",
        b";",
        b"mds05",
        b"*",
        b"?",
        b"[a-z]",
        b"::1",
        b"10.0.0.1",
        b"0-65535,",
        b"OST",
        b"_UUID",
        b"18446744073709551615",
        b"EiB",
    ],
    max_bytes: 512,
};

fn run(bytes: &[u8]) {
    let Ok(s) = std::str::from_utf8(bytes) else { return };
    if let Ok(fid) = s.parse::<Fid>() {
        assert_eq!(fid.to_string().parse::<Fid>(), Ok(fid));
    }
    if let Ok(nid) = s.parse::<Nid>() {
        assert_eq!(nid.to_string().parse::<Nid>(), Ok(nid));
    }
    if let Ok(all) = model::nid::parse_nid_list(s) {
        let again = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(":");
        assert_eq!(model::nid::parse_nid_list(&again), Ok(all));
    }
    let _ = model::target::fsname_is_valid(s);
    sizes(s);
    if let Some((pattern, name)) = s.split_once(' ') {
        let _ = glob_match(pattern, name);
    }
}

/// What lfs and lctl take.
fn sizes(s: &str) {
    let _ = (admin::size::parse_bytes(s, 1 << 10), admin::size::parse_stripe_size(s));
    let _ = (admin::size::parse_int(s), admin::size::parse_index(s));
    if let Ok(list) = admin::size::parse_index_list(s) {
        assert!(list.len() <= 1 << 16, "{} indices from {} bytes", list.len(), s.len());
    }
}

fn samples() -> Vec<Vec<u8>> {
    [
        "[0x200000401:0x7:0x0]",
        "10.0.0.1@tcp,10.0.1.1@tcp1:[::1]@tcp",
        "fd00::1@tcp:fd00::2@tcp7",
        "demo",
        "osc.*.max_[a-z]* osc.x.max_rpcs",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect()
}

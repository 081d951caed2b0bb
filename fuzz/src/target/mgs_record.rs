//! Records of an MGT's table, and the cached configuration of the other targets.

use super::{Target, round_trip};
use model::{Nid, Pool, TargetId};
use wire::msg::config::{ConfigReply, TargetEntry};

pub const TARGET: Target = Target {
    name: "mgs_record",
    what: "records of file systems, OST pools, cached configuration",
    run,
    samples,
    fix: None,
    words: &[b"demo"],
    max_bytes: 4096,
};

fn run(bytes: &[u8]) {
    round_trip::<mgs::FsRecord>(bytes);
    round_trip::<ConfigReply>(bytes);
    if let Some(p) = Pool::decode(bytes) {
        assert_eq!(Pool::decode(&p.encode()), Some(p));
    }
}

fn samples() -> Vec<Vec<u8>> {
    let nid: Nid = "10.0.0.1@tcp".parse().expect("a NID");
    let entry = TargetEntry {
        target: TargetId::ost(3),
        target_uuid: [5; 16],
        nids: vec![nid],
        epoch: 4,
        active: true,
        domains: vec!["rack1".into()],
    };
    let config = ConfigReply {
        version: 9,
        fsname: "demo".into(),
        fs_uuid: [6; 16],
        targets: vec![entry],
        params: vec![("a".into(), "b".into())],
        extra: vec![(1, vec![2])],
    };
    let pool = Pool { name: "flash".into(), osts: vec![1, 3, 300] };
    vec![postcard::to_stdvec(&config).expect("plain data encodes"), pool.encode(), vec![0; 32], vec![1; 64]]
}

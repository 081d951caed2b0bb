//! Records of an OST's table: clients, batches that were interrupted.

use super::Target;

pub const TARGET: Target = Target {
    name: "oss_record",
    what: "client records and reply slots of an OST",
    run,
    samples,
    fix: None,
    words: &[],
    max_bytes: 2048,
};

fn run(bytes: &[u8]) {
    oss::fuzz::client_record(bytes);
    oss::fuzz::batch_progress(bytes);
}

fn samples() -> Vec<Vec<u8>> {
    let record = oss::ClientRecord {
        name: "client".into(),
        address: "127.0.0.1".into(),
        since: model::Timestamp { sec: 5, nsec: 6 },
        epoch: 7,
        slots: 8,
        awaited: true,
        identity: Default::default(),
    };
    vec![record.encode(), postcard::to_stdvec(&vec![(0u16, vec![1u8, 2]), (5, vec![])]).expect("encodes")]
}

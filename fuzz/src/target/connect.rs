//! connect and its answer, and what servers tell unasked: the first bytes a stranger can send.

use super::{Target, round_trip};
use wire::msg::connect::{Connect, ConnectFeatures, ConnectReply};
use wire::msg::notify::Notify;

pub const TARGET: Target = Target {
    name: "connect",
    what: "connect, its reply, notify",
    run,
    samples,
    fix: None,
    words: &[b"demo"],
    max_bytes: 4096,
};

fn run(bytes: &[u8]) {
    let Some((&which, rest)) = bytes.split_first() else { return };
    match which % 3 {
        0 => round_trip::<Connect>(rest),
        1 => round_trip::<ConnectReply>(rest),
        _ => round_trip::<Notify>(rest),
    }
}

fn samples() -> Vec<Vec<u8>> {
    let features = ConnectFeatures { compat: 1, incompat: 2 };
    let connect = Connect {
        client_uuid: [7; 16],
        client_name: "nacre-client 0.1.0 on host".into(),
        fsname: "demo".into(),
        version: 1,
        features: features.clone(),
        last_epoch: 3,
        slots: 64,
        lane: 0,
        extra: vec![(1, vec![2, 3])],
    };
    let reply = ConnectReply {
        session: 1 << 40,
        epoch: 4,
        features,
        slots: 64,
        new_client: true,
        recovering: false,
        ping_interval_ms: 5000,
        server_name: "nacred".into(),
        extra: Vec::new(),
    };
    let with = |n: u8, v: Vec<u8>| [vec![n], v].concat();
    let bytes = |v: &dyn Fn() -> Vec<u8>| v();
    vec![
        with(0, bytes(&|| postcard::to_stdvec(&connect).expect("encodes"))),
        with(1, bytes(&|| postcard::to_stdvec(&reply).expect("encodes"))),
        with(2, bytes(&|| postcard::to_stdvec(&Notify::LockGranted { id: 9, errno: 35 }).expect("encodes"))),
        with(2, bytes(&|| postcard::to_stdvec(&Notify::ConfigChanged { version: 9 }).expect("encodes"))),
    ]
}

//! What local programs send: requests of lfs to a mount's ioctl, of lctl to a daemon's control socket, and
//! the answers.

use super::Target;
use admin::local::{DaemonReply, DaemonRequest};
use client::control::{Reply, Request};

pub const TARGET: Target = Target {
    name: "control",
    what: "requests to mounts and control sockets, and answers",
    run,
    samples,
    fix: None,
    words: &[
        b"\"name\":",
        b"null",
        b"[0,255]",
        b"\"get_param\"",
        b"\"pattern\":",
        b"18446744073709551616",
        b"-1",
        b"[[[[[[",
    ],
    max_bytes: 12288,
};

fn run(bytes: &[u8]) {
    if let Ok(r) = serde_json::from_slice::<Request>(bytes) {
        let again = serde_json::to_vec(&r).expect("plain data encodes");
        assert_eq!(serde_json::from_slice::<Request>(&again).expect("what was encoded decodes"), r);
    }
    let _ = serde_json::from_slice::<Reply>(bytes);
    let _ = serde_json::from_slice::<DaemonRequest>(bytes);
    let _ = serde_json::from_slice::<DaemonReply>(bytes);
    if bytes.len() >= client::control::HEADER_BYTES {
        let _ = client::control::header(bytes);
    }
}

fn samples() -> Vec<Vec<u8>> {
    let requests = [
        Request::Getname,
        Request::Path2fid { name: Some(vec![0xff, b'a'].into()) },
        Request::Fid2path { fid: model::Fid::ROOT },
        Request::Getstripe { name: None },
    ];
    let daemon = [
        DaemonRequest::Status,
        DaemonRequest::GetParam { pattern: "*.*.stats".into() },
        DaemonRequest::SetPermanent { name: "a.b.c".into(), value: "1".into(), delete: false },
    ];
    let replies = [DaemonReply::Done, DaemonReply::Error { errno: 2, message: "gone".into() }];
    let json = |v: serde_json::Result<Vec<u8>>| v.expect("plain data encodes");
    let mut out: Vec<Vec<u8>> = requests.iter().map(|r| json(serde_json::to_vec(r))).collect();
    out.extend(daemon.iter().map(|r| json(serde_json::to_vec(r))));
    out.extend(replies.iter().map(|r| json(serde_json::to_vec(r))));
    out
}

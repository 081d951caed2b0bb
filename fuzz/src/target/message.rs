//! Bodies of all messages, by opcode: context and request, context and reply.

use super::Target;
use model::{Cred, Fid, FileType, LayoutSpec, ObjectId, SetAttr, Timestamp};
use wire::msg::*;
use wire::{CodecError, Message, Op, ReplyContext, RequestContext, decode_body, encode_body};

pub const REQUEST: Target = Target {
    name: "message_request",
    what: "request bodies of every opcode",
    run: run_request,
    samples: request_samples,
    fix: None,
    words: &[b"name", &[0xff, 0xff, 0xff, 0xff, 0x0f]],
    max_bytes: 4096,
};

pub const REPLY: Target = Target {
    name: "message_reply",
    what: "reply bodies of every opcode",
    run: run_reply,
    samples: reply_samples,
    fix: None,
    words: &[&[0xff, 0xff, 0xff, 0xff, 0x0f]],
    max_bytes: 4096,
};

fn request<M: Message + PartialEq>(body: &[u8]) -> Result<(), CodecError> {
    let (ctx, m) = decode_body::<RequestContext, M>(body)?;
    assert_eq!(decode_body::<RequestContext, M>(&encode_body(&ctx, &m))?, (ctx, m));
    Ok(())
}

fn reply<M: Message>(body: &[u8]) -> Result<(), CodecError>
where
    M::Reply: PartialEq,
{
    let (ctx, m) = decode_body::<ReplyContext, M::Reply>(body)?;
    assert_eq!(decode_body::<ReplyContext, M::Reply>(&encode_body(&ctx, &m))?, (ctx, m));
    Ok(())
}

macro_rules! by_opcode {
    ($($op:ident => $t:ty,)*) => {
        fn decode_request(op: Op, body: &[u8]) -> Result<(), CodecError> {
            match op { $(Op::$op => request::<$t>(body),)* }
        }

        fn decode_reply(op: Op, body: &[u8]) -> Result<(), CodecError> {
            match op { $(Op::$op => reply::<$t>(body),)* }
        }
    };
}

wire::for_each_message!(by_opcode);

fn run_request(bytes: &[u8]) {
    if let Some((&op, body)) = bytes.split_first() {
        let _ = Op::from_u16(u16::from(op)).and_then(|op| decode_request(op, body));
    }
}

fn run_reply(bytes: &[u8]) {
    if let Some((&op, body)) = bytes.split_first() {
        let _ = Op::from_u16(u16::from(op)).and_then(|op| decode_reply(op, body));
    }
}

fn sample<M: Message>(m: &M) -> Vec<u8> {
    let ctx = RequestContext {
        cred: Cred { uid: 1000, gid: 1000, groups: vec![4, 27] },
        jobid: "dd.1000".into(),
        client_time: Timestamp { sec: 1_700_000_000, nsec: 5 },
        extra: vec![(9, vec![1])],
        ..RequestContext::default()
    };
    [vec![M::OP as u8], encode_body(&ctx, m)].concat()
}

fn request_samples() -> Vec<Vec<u8>> {
    let (parent, fid) = (Fid::ROOT, Fid::new(0x2_0000_0401, 7, 0));
    let name = b"name".to_vec();
    let object = ObjectId { origin: fid, component: 1, stripe: 0 };
    let open = create::OpenSpec { handle: 5, flags: 2, lease: true };
    let layout = Some(LayoutSpec { osts: vec![0, 1], pool: "flash".into(), ..LayoutSpec::builtin() });
    let lock = enqueue::LockSpec {
        id: 1,
        fid,
        kind: enqueue::LockKind::Posix,
        mode: enqueue::LockMode::Write,
        owner: 8,
        pid: 9,
        start: 0,
        end: u64::MAX,
    };
    let mode = extent::ExtentMode::Write;
    let extent_lock = extent::ExtentSpec { object, id: 1, mode, start: 0, end: u64::MAX };
    let mut all = vec![
        sample(&create::Create {
            parent,
            name: name.clone(),
            fid,
            mode: 0o644,
            umask: 0o22,
            exclusive: true,
            open: Some(open),
            layout,
            no_objects: false,
        }),
        sample(&setattr::Setattr { fid, set: SetAttr { mode: Some(0o600), ..SetAttr::default() } }),
        sample(&mknod::Mknod {
            parent,
            name: name.clone(),
            fid,
            kind: FileType::Fifo,
            mode: 0o600,
            umask: 0,
            rdev: 0,
        }),
        sample(&rename::Rename {
            parent,
            name: name.clone(),
            new_parent: fid,
            new_name: name.clone(),
            flags: 1,
        }),
        sample(&setxattr::Setxattr {
            fid,
            name: name.clone(),
            value: vec![1; 20],
            flags: 0,
            kill_sgid: false,
        }),
        sample(&reclaim::Reclaim {
            opens: vec![reclaim::OpenRecord { fid, handle: 1, flags: 0 }],
            locks: vec![lock.clone()],
            last: true,
            extents: vec![extent_lock.clone()],
            owned: vec![notify::LeaseItem { fid, bits: 3, seq: 9, look: true }],
        }),
        sample(&extent::Extent { lock: extent_lock, force: false }),
        sample(&enqueue::Enqueue { lock, wait: true }),
        sample(&glimpse::Glimpse { objects: vec![object; 3] }),
        sample(&glimpselist::Glimpselist { objects: vec![(object, 1); 3], space: true }),
        sample(&barrier::Barrier { order: model::barrier::BarrierOrder::Freeze { timeout_s: 9 } }),
        sample(&snapshot::Snapshot { order: model::snapshot::SnapshotOrder::Begin { name: "daily".into() } }),
        sample(&configview::Configview {
            view: configview::View::History { before: 9, count: 20 },
            from: 3,
            version: 8,
        }),
        sample(&objectlist::Objectlist {
            after: Some(object),
            limit: 9,
            only: vec![object; 2],
            labels: true.into(),
        }),
        sample(&batch::Batch {
            ops: vec![batch::BatchOp::plain(86, vec![0])],
            owned: true,
            creds: vec![model::Cred::default()],
        }),
        sample(&param::SetParam { name: "a.*.b".into(), value: "1".into(), permanent: true, delete: false }),
    ];
    // The others: their opcode, an empty context and zeros decode as something.
    all.extend(Op::ALL.iter().map(|&op| [vec![op as u8], vec![0; 64]].concat()));
    all
}

fn reply_samples() -> Vec<Vec<u8>> {
    Op::ALL
        .iter()
        .flat_map(|&op| [[vec![op as u8], vec![0; 128]].concat(), [vec![op as u8], vec![1; 128]].concat()])
        .collect()
}

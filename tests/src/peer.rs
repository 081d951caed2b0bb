//! A peer of ours that speaks the protocol and keeps to none of its rules: hello and requests by hand.

use anyhow::{Context, Result};
use model::{Errno, TargetId};
use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect as connect_to, socket, sockopt};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;
use wire::frame::{FLAG_REPLAY, HEADER_BYTES};
use wire::msg::connect::{
    Connect, ConnectFeatures, ConnectReply, EXTRA_NONCE, FEATURE_PROOF, FEATURES_NEEDED, extra_key,
};
use wire::msg::notify::Notice;
use wire::proof::{Challenge, Claimant, Key};
use wire::{Frame, FrameKind, Header, Message, ReplyContext, RequestContext, decode_body, encode_body};

pub const PORT: u16 = 988;

/// A connection to a server, from a port that servers let in.
pub fn connect(addr: &str) -> Result<TcpStream> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let to = SocketAddrV4::new(addr.parse().with_context(|| format!("'{addr}' is no address"))?, PORT);
    let mut last = None;
    for _ in 0..400 {
        let port = 600 + NEXT.fetch_add(1, Ordering::Relaxed) % 300;
        let s = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&s, true)?;
        let done =
            bind(&s, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).and_then(|()| connect_to(&s, &to));
        match done {
            Ok(()) => return Ok(TcpStream::from(s)),
            Err(e @ (rustix::io::Errno::ADDRINUSE | rustix::io::Errno::ADDRNOTAVAIL)) => last = Some(e),
            Err(e) => return Err(e).with_context(|| format!("connect to {to} from port {port}")),
        }
    }
    Err(last.expect("tried")).context("no free port below 1024")
}

/// A session outlives its connection, and remembers numbers that it has seen.
static XID: AtomicU64 = AtomicU64::new(1 << 60);

/// A session that was let in.
pub struct Session {
    conn: TcpStream,
    target: TargetId,
    number: u64,
    epoch: u32,
    xid: u64,
}

fn frame(conn: &mut TcpStream) -> Result<Frame> {
    let mut head = [0; HEADER_BYTES];
    conn.read_exact(&mut head)?;
    let (_, lengths) = Frame::decode_header(&head)?;
    let mut all = head.to_vec();
    all.resize(HEADER_BYTES + lengths.total(), 0);
    conn.read_exact(&mut all[HEADER_BYTES..])?;
    Ok(Frame::decode(&all)?.0)
}

impl Session {
    /// Says hello under a UUID and proves `keys`; the errno with which it is refused otherwise.
    ///
    /// # Errors
    /// The conversation broke off.
    pub fn hello(
        mut conn: TcpStream,
        target: TargetId,
        fsname: &str,
        client: [u8; 16],
        keys: &[(Claimant, Key)],
    ) -> Result<Result<Session, Errno>> {
        conn.set_read_timeout(Some(Duration::from_secs(30)))?;
        let c = Connect {
            client_uuid: client,
            client_name: "somebody".into(),
            fsname: fsname.into(),
            version: wire::frame::VERSION,
            features: ConnectFeatures { compat: FEATURE_PROOF | FEATURES_NEEDED, incompat: 0 },
            last_epoch: 0,
            slots: 8,
            lane: 0,
            extra: Vec::new(),
        };
        let mut h = Header::new(FrameKind::Connect);
        h.target = target.to_u32();
        let hello = Frame::new(h, encode_body(&RequestContext::default(), &c), wire::Bulk::default());
        conn.write_all(&hello.encode())?;
        let f = frame(&mut conn).context("the answer to connect")?;
        if f.header.status != 0 {
            return Ok(Err(Errno(i32::from(f.header.status))));
        }
        let (_, r): (ReplyContext, ConnectReply) = decode_body(&f.body)?;
        let nonce = extra_key(&r.extra, EXTRA_NONCE).context("no nonce")?;
        if !keys.is_empty() {
            let challenge = Challenge { nonce, session: r.session, target: target.to_u32(), client };
            let claims = keys.iter().map(|(by, key)| challenge.claim(key, *by)).collect();
            let mut h = Header::new(FrameKind::Notify);
            (h.target, h.session, h.epoch) = (target.to_u32(), r.session, r.epoch);
            let n = Frame::new(h, wire::encode_message(&Notice::Proof { claims }), wire::Bulk::default());
            conn.write_all(&n.encode())?;
        }
        Ok(Ok(Session { conn, target, number: r.session, epoch: r.epoch, xid: 0 }))
    }

    fn header<M: Message>(&mut self) -> Header {
        self.xid = XID.fetch_add(1, Ordering::Relaxed);
        let mut h = Header::new(FrameKind::Request);
        (h.target, h.session, h.epoch) = (self.target.to_u32(), self.number, self.epoch);
        (h.opcode, h.slot, h.xid) = (M::OP as u16, 1, self.xid);
        h
    }

    /// Sends the most data that a request may have, but for its last bytes: the server waits for them.
    ///
    /// # Errors
    /// The connection ended.
    pub fn send_most<M: Message>(&mut self, m: &M) -> Result<()> {
        let h = self.header::<M>();
        let data = vec![1; model::limits::RPC_BULK_MAX_BYTES];
        let all = Frame::new(h, encode_body(&RequestContext::default(), m), data).encode();
        self.conn.write_all(&all[..all.len() - 10])?;
        Ok(())
    }

    /// The answer to a request of root's, with flags of its frame and extras of its context.
    ///
    /// # Errors
    /// The conversation broke off.
    pub fn ask<M: Message>(
        &mut self,
        flags: u8,
        extra: &[(u16, Vec<u8>)],
        m: &M,
    ) -> Result<Result<M::Reply, Errno>> {
        let mut h = self.header::<M>();
        h.flags = flags;
        let mut body = encode_body(&RequestContext { extra: extra.to_vec(), ..RequestContext::default() }, m);
        if flags & FLAG_REPLAY != 0 {
            let tail = wire::replay::Tail { wall: model::Timestamp::ZERO, reply: Vec::new() };
            body = wire::replay::append(&body, &tail);
        }
        self.conn.write_all(&Frame::new(h, body, wire::Bulk::default()).encode())?;
        loop {
            let f = frame(&mut self.conn).with_context(|| format!("the answer to {:?}", M::OP))?;
            if f.header.kind != FrameKind::Reply || f.header.xid != self.xid {
                continue;
            }
            if f.header.status != 0 {
                return Ok(Err(Errno(i32::from(f.header.status))));
            }
            let (_, r): (ReplyContext, M::Reply) = decode_body(&f.body)?;
            return Ok(Ok(r));
        }
    }
}

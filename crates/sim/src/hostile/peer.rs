//! One session of a hostile peer: a true hello, then whatever the dice say, and a note of what must be
//! answered.

use super::message::Made;
use crate::executor::lock;
use crate::server::{FSNAME, PORT};
use ::world::{Conn, World};
use bytes::Bytes;
use model::TargetId;
use model::mutex::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::connect::{Connect, ConnectFeatures, ConnectReply, FEATURES_NEEDED};
use wire::{Frame, FrameKind, Header, ReplyContext, decode_body, encode_body};

const HELLO_PATIENCE: Duration = Duration::from_secs(60);

/// What came back.
#[derive(Default)]
struct Inbox {
    hello: Option<Frame>,
    /// (slot, xid) that were answered.
    answered: BTreeSet<(u16, u64)>,
    /// Of the first answers, by xid.
    bodies: BTreeMap<u64, Bytes>,
    done: u64,
    refused: u64,
    closed: bool,
}

pub struct Peer {
    world: World,
    pub target: TargetId,
    addr: IpAddr,
    uuid: [u8; 16],
    conn: Option<Arc<dyn Conn>>,
    inbox: Arc<Mutex<Inbox>>,
    session: u64,
    epoch: u32,
    pub next_xid: u64,
    /// The newest request of each slot, if it must be answered, and what it was.
    open: BTreeMap<u16, (u64, String)>,
    /// Answers on earlier connections.
    before: (u64, u64),
}

impl Peer {
    pub fn new(world: World, target: TargetId, addr: IpAddr) -> Peer {
        let uuid = world.random_uuid();
        let (inbox, open) = (Arc::default(), BTreeMap::new());
        Peer {
            world,
            target,
            addr,
            uuid,
            conn: None,
            inbox,
            session: 0,
            epoch: 0,
            next_xid: 1,
            open,
            before: (0, 0),
        }
    }

    pub fn is_up(&self) -> bool {
        self.conn.is_some() && !lock(&self.inbox).closed
    }

    /// Comes back as somebody else.
    pub fn forget(&mut self) {
        self.uuid = self.world.random_uuid();
    }

    pub fn hang_up(&mut self) {
        if let Some(c) = self.conn.take() {
            c.close();
        }
        self.open.clear();
    }

    /// It said good-bye: nobody answers what is still under way.
    pub fn left(&mut self) {
        self.open.clear();
    }

    /// A true hello. False: it was refused, or nobody is there.
    pub async fn connect(&mut self) -> bool {
        self.hang_up();
        let to = SocketAddr::new(self.addr, PORT);
        let Some(Ok(conn)) = self.world.timeout(HELLO_PATIENCE, self.world.net.connect(None, to)).await
        else {
            return false;
        };
        let hello = Connect {
            client_uuid: self.uuid,
            client_name: "hostile".into(),
            fsname: FSNAME.into(),
            version: wire::frame::VERSION,
            features: ConnectFeatures { compat: FEATURES_NEEDED, incompat: 0 },
            last_epoch: 0,
            slots: 64,
            lane: 0,
            extra: Vec::new(),
        };
        let mut h = Header::new(FrameKind::Connect);
        h.target = self.target.to_u32();
        let body = encode_body(&wire::RequestContext::default(), &hello);
        if conn.send(Frame::new(h, body, Bytes::new())).await.is_err() {
            return false;
        }
        self.before = self.answers();
        self.inbox = Arc::default();
        self.world.spawn("hostile reader", read(conn.clone(), self.inbox.clone()));
        self.conn = Some(conn);
        let end = self.world.now().plus(HELLO_PATIENCE);
        let answer = loop {
            if let Some(f) = lock(&self.inbox).hello.take() {
                break f;
            }
            if lock(&self.inbox).closed || self.world.now() > end {
                return false;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        };
        let Ok((_, r)) = decode_body::<ReplyContext, ConnectReply>(&answer.body) else { return false };
        if answer.header.status != 0 {
            return false;
        }
        (self.session, self.epoch) = (r.session, r.epoch);
        true
    }

    /// The header that a right request would have.
    pub fn header(&self, kind: FrameKind) -> Header {
        let mut h = Header::new(kind);
        (h.target, h.session, h.epoch) = (self.target.to_u32(), self.session, self.epoch);
        h
    }

    /// Sends it; `expected`: its answer must come, or the connection end.
    pub async fn send(&mut self, h: Header, body: Vec<u8>, bulk: Bytes, expected: Option<String>) {
        let Some(conn) = &self.conn else { return };
        if h.kind == FrameKind::Request {
            match expected {
                Some(what) => drop(self.open.insert(h.slot, (h.xid, what))),
                None => drop(self.open.remove(&h.slot)),
            }
        }
        let (mut body, mut bulk) = (body, bulk);
        body.truncate(model::limits::RPC_BODY_MAX_BYTES);
        bulk.truncate(model::limits::RPC_BULK_MAX_BYTES);
        // Whether the connection takes it is the server's affair.
        let _ = self.world.timeout(Duration::from_secs(5), conn.send(Frame::new(h, body, bulk))).await;
    }

    /// A request that is right but for what it asks for.
    pub async fn request(&mut self, slot: u16, made: Made, ctx: &wire::RequestContext) {
        let mut h = self.header(FrameKind::Request);
        (h.slot, h.xid, h.opcode) = (slot, self.next_xid, made.op as u16);
        self.next_xid += 1;
        let mut body = postcard::to_stdvec(ctx).expect("plain data encodes");
        body.extend_from_slice(&made.body);
        self.send(h, body, made.bulk, Some(format!("{:?}", made.op))).await;
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// Asks for a sequence of file identifiers.
    pub async fn sequence(&mut self, made: Made) -> u64 {
        self.request(1, made, &wire::RequestContext::default()).await;
        let xid = self.next_xid - 1;
        loop {
            if let Some(f) = lock(&self.inbox).bodies.remove(&xid) {
                let r = decode_body::<ReplyContext, wire::msg::allocseq::AllocseqReply>(&f);
                return r.expect("an honest request is answered").1.seq;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
    }

    /// (Requests that were done, requests that were refused) on the present connection and those before.
    pub fn answers(&self) -> (u64, u64) {
        let g = lock(&self.inbox);
        (self.before.0 + g.done, self.before.1 + g.refused)
    }

    /// A request that should be answered and is not, on a connection that lives.
    pub fn unanswered(&self) -> Option<String> {
        let inbox = lock(&self.inbox);
        if self.conn.is_none() || inbox.closed {
            return None;
        }
        let open = |(slot, (xid, _)): &(&u16, &(u64, String))| !inbox.answered.contains(&(**slot, *xid));
        let (slot, (xid, what)) = self.open.iter().find(open)?;
        Some(format!("{what} (slot {slot}, xid {xid}) of a session with {:?}", self.target))
    }
}

async fn read(conn: Arc<dyn Conn>, inbox: Arc<Mutex<Inbox>>) {
    while let Ok(f) = conn.recv().await {
        let mut g = lock(&inbox);
        match f.header.kind {
            FrameKind::ConnectReply => g.hello = Some(f),
            FrameKind::Reply => {
                g.answered.insert((f.header.slot, f.header.xid));
                if f.header.status == 0 {
                    g.done += 1
                } else {
                    g.refused += 1
                }
                if g.answered.len() == 1 {
                    g.bodies.insert(f.header.xid, f.body);
                }
            }
            _ => {}
        }
    }
    lock(&inbox).closed = true;
}

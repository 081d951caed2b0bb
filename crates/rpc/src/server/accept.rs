//! A connection's first frame: who it is, what it wants, and a clear word if it is refused.

use super::admission::Counted;
use super::session::{Hello, Session, same};
use super::{ClientId, Greeting, Principal, Server, Target, dispatch, identity};
use crate::link::Link;
use bytes::Bytes;
use model::debug::NET;
use model::{Errno, TargetId, TargetKind};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::frame::VERSION;
use wire::msg::connect::{
    Connect, ConnectFeatures, ConnectRefused, ConnectReply, EXTRA_BULK_BYTES, EXTRA_DISK, EXTRA_LAST_SESSION,
    EXTRA_LAST_XID, EXTRA_NONCE, EXTRA_TOKEN, EXTRA_WRITE_RANGES, FEATURE_LATER, FEATURE_PROOF,
    FEATURES_INCOMPAT, extra_key, extra_number,
};
use wire::proof;
use wire::{Frame, FrameKind, Header, ReplyContext, RequestContext, decode_body, encode_body};
use world::Conn;
use world::inbound::Share;

/// A connection must say hello within this time.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// A refused peer has so long to read why.
const LINGER: Duration = Duration::from_secs(1);
/// Kind of the refusal for a hello to no target of no file system: `lctl ping` and monitors only want to hear
/// anything.
const PROBE: &str = "probe";
const CLIENT_NAME_MAX_BYTES: usize = 256;

/// Why a peer is turned away: for it, and (`kind`) for the log.
pub(super) struct Refusal {
    pub errno: Errno,
    pub kind: &'static str,
    pub text: String,
}

fn refuse<T>(errno: Errno, kind: &'static str, text: String) -> Result<T, Refusal> {
    Err(Refusal { errno, kind, text })
}

/// What a peer calls itself, as far as it is shown.
fn who(c: &Connect) -> String {
    c.client_name.chars().take(CLIENT_NAME_MAX_BYTES).collect()
}

/// A session that said hello, on its connection.
pub(super) struct Admitted {
    pub target: Arc<Target>,
    pub session: Arc<Session>,
    /// Session number of this connection.
    pub number: u64,
    /// What its requests may take of the server's memory.
    pub share: Arc<Share>,
    /// Its client sends again what it is told to send later.
    pub patient: bool,
}

impl Server {
    /// Takes a fresh connection, if there is room.
    pub(super) fn admit(self: &Arc<Server>, conn: Arc<dyn Conn>) {
        let max = self.connections_max.load(Ordering::Relaxed);
        let counted = match self.admission.enter(conn.peer().ip(), max) {
            Ok(c) => c,
            Err(why) => {
                self.complain(conn.peer().ip(), "limit", &why);
                conn.close();
                return;
            }
        };
        conn.expect_at_most(model::limits::HELLO_MAX_BYTES);
        let me = self.clone();
        self.world.spawn("rpc-conn", async move { me.serve(conn, counted).await });
    }

    async fn serve(self: &Arc<Server>, conn: Arc<dyn Conn>, mut counted: Counted) {
        let peer = conn.peer().ip();
        let link = Link::new(self.world.clone(), conn.clone());
        if self.secure.load(Ordering::Relaxed) && conn.peer().port() >= world::RESERVED_PORTS {
            let text = format!(
                "server '{}' lets in only ports below {}, this is {}: mount, and serve targets, as root (accept=secure)",
                self.name,
                world::RESERVED_PORTS,
                conn.peer().port()
            );
            self.turn_away(&link, None, peer, Refusal { errno: Errno::EACCES, kind: "port", text }).await;
            return;
        }
        let first = match self.world.timeout(HELLO_DEADLINE, conn.recv()).await {
            None => {
                let text = format!("no connect message within {} s", HELLO_DEADLINE.as_secs());
                self.complain(peer, "silent", &text);
                conn.close();
                return;
            }
            Some(Ok(f)) => f,
            Some(Err(e)) if e.kind() == io::ErrorKind::InvalidData => {
                let r = Refusal { errno: Errno::EPROTO, kind: "garbage", text: e.to_string() };
                self.turn_away(&link, None, peer, r).await;
                return;
            }
            Some(Err(_)) => {
                conn.close();
                return;
            }
        };
        let head = first.header;
        match self.hello(first, peer, &link).await {
            Ok(a) => {
                counted.greeted();
                conn.expect_at_most(usize::MAX);
                let why = dispatch::read_loop(self, &a, &conn).await;
                a.session.lost(a.number);
                match why {
                    Some(r) => self.turn_away(&link, Some(head), peer, r).await,
                    None => conn.close(),
                }
            }
            Err(r) => self.turn_away(&link, Some(head), peer, r).await,
        }
    }

    /// Logs once, tells the peer in a ConnectReply, gives it a moment to read, closes.
    async fn turn_away(&self, link: &Link, head: Option<Header>, peer: IpAddr, r: Refusal) {
        if r.kind != PROBE {
            self.complain(peer, r.kind, &r.text);
        }
        assert!((1..i32::from(u16::MAX)).contains(&r.errno.0), "who is turned away hears why");
        let mut h = Header::new(FrameKind::ConnectReply);
        h.status = r.errno.0 as u16;
        h.target = head.map_or(0, |h| h.target);
        let body = encode_body(&ReplyContext::default(), &ConnectRefused { message: r.text });
        link.post(Frame::new(h, body, Bytes::new()));
        let gone = async { while link.conn().recv().await.is_ok() {} };
        let _ = self.world.timeout(LINGER, gone).await;
        link.close();
    }

    async fn hello(self: &Arc<Server>, f: Frame, peer: IpAddr, link: &Link) -> Result<Admitted, Refusal> {
        if f.header.kind != FrameKind::Connect {
            return refuse(
                Errno::EPROTO,
                "order",
                format!("first frame is of kind {:?}, not Connect", f.header.kind),
            );
        }
        if f.body.len() > model::limits::HELLO_MAX_BYTES || !f.bulk.is_empty() {
            return refuse(Errno::EMSGSIZE, "connect", format!("a hello of {} bytes", f.body.len()));
        }
        let (_, c): (RequestContext, Connect) = match decode_body(&f.body) {
            Ok(v) => v,
            Err(e) => return refuse(Errno::EPROTO, "connect", e.to_string()),
        };
        self.check_versions(&c)?;
        let target = self.find(f.header.target, &c)?;
        self.check_needed(&c)?;
        let epoch = target.service.epoch();
        self.check_epoch(&target, &c, f.header.epoch)?;
        let from = Principal::new(ClientId(c.client_uuid), peer);
        let client = from.client;
        let digest = extra_key(&c.extra, EXTRA_TOKEN).map(|t| proof::digest(&t));
        let known = self.known(&target, &c, client, digest)?;
        if known.is_none() && !target.service.knows(client) {
            self.newcomer(peer, &target)?;
        }
        let number = self.next_session.fetch_add(1, Ordering::Relaxed);
        let greeting = Greeting {
            connect: c.clone(),
            from: from.clone(),
            session: number,
            known: known.is_some(),
            digest,
        };
        let outcome = match target.service.clone().connect(greeting).await {
            Ok(o) => o,
            Err((errno, text)) => return refuse(errno, "service", format!("{}: {text}", target.label)),
        };
        assert!(!(outcome.new_client && outcome.recovering), "a new client has nothing to recover");
        if !target.service.speaks() {
            return refuse(
                Errno::ENODEV,
                "target",
                format!("{} is not served by '{}' any more", target.label, self.name),
            );
        }
        let hello = Hello {
            ping_ms: self.ping_ms.load(Ordering::Relaxed),
            name: c.client_name.clone(),
            from: from.clone(),
            number,
            asked: c.slots.clamp(2, model::limits::SLOTS_PER_SESSION),
            new_client: outcome.new_client,
            last_session: if c.last_epoch == epoch { extra_number(&c.extra, EXTRA_LAST_SESSION) } else { 0 },
            digest,
            nonce: (c.features.compat & FEATURE_PROOF != 0).then(|| self.world.random_key()),
        };
        let session = self.session(&target, from, outcome.new_client);
        let stamp = dispatch::stamp(&target);
        let answer = |new_client: bool, last_xid: u64, slots: u16| {
            let mut extra = vec![
                (EXTRA_LAST_XID, last_xid.to_le_bytes().to_vec()),
                (EXTRA_BULK_BYTES, (target.service.bulk_bytes() as u64).to_le_bytes().to_vec()),
                (EXTRA_WRITE_RANGES, (target.service.write_ranges() as u64).to_le_bytes().to_vec()),
                (EXTRA_DISK, target.service.disk().to_le_bytes().to_vec()),
            ];
            extra.extend(hello.nonce.map(|n| (EXTRA_NONCE, n.to_vec())));
            let reply = ConnectReply {
                session: hello.number,
                epoch,
                features: ConnectFeatures::OURS,
                slots,
                new_client,
                recovering: outcome.recovering,
                ping_interval_ms: hello.ping_ms,
                server_name: self.name.clone(),
                extra,
            };
            let mut h = Header::new(FrameKind::ConnectReply);
            (h.target, h.session, h.epoch) = (f.header.target, hello.number, epoch);
            let context =
                ReplyContext { last_committed: stamp.last_committed, credits: slots, extra: Vec::new() };
            Frame::new(h, encode_body(&context, &reply), Bytes::new())
        };
        let Ok(new_client) = session.take_over(link.clone(), &hello, self.world.now(), stamp, answer) else {
            return refuse(
                Errno::EBUSY,
                "leaving",
                format!("{} is still evicting this client: try again", target.label),
            );
        };
        tracing::debug!(target: NET, client = %client, name = hello.name, %peer, new_client, "connected to {}", target.label);
        let (share, patient) = (self.inbound.share(), c.features.compat & FEATURE_LATER != 0);
        Ok(Admitted { target, session, number: hello.number, share, patient })
    }

    /// The session that a client has, if it is its own and there is room for one more where it has none.
    fn known(
        &self,
        target: &Arc<Target>,
        c: &Connect,
        client: ClientId,
        digest: Option<[u8; 32]>,
    ) -> Result<Option<Arc<Session>>, Refusal> {
        let known = target.peers.get(client);
        if known.as_ref().is_some_and(|s| !s.is_of(digest)) {
            let (errno, text) = identity::stranger(&c.client_name);
            return refuse(errno, "stranger", format!("{}: {text}", target.label));
        }
        if known.is_none() && target.peers.count() >= model::limits::CLIENTS_MAX {
            return refuse(
                Errno::EBUSY,
                "clients",
                format!("{} has as many clients as it can", target.label),
            );
        }
        if known.as_ref().is_some_and(|s| !s.touch(self.world.now())) {
            return refuse(
                Errno::EBUSY,
                "leaving",
                format!("{} is still evicting this client: try again", target.label),
            );
        }
        Ok(known)
    }

    /// A client of which nothing is known costs a durable record: there are only so many in a time.
    fn newcomer(&self, peer: IpAddr, target: &Target) -> Result<(), Refusal> {
        if !self.admission.room_for_strangers(self.connections_max.load(Ordering::Relaxed)) {
            let text = format!("{} takes no new clients: too many connections", target.label);
            return refuse(Errno::EBUSY, "strangers", text);
        }
        if !self.admission.newcomer(peer, self.world.now()) {
            let text = format!("{}: too many new clients from {peer} at once: try again", target.label);
            return refuse(Errno::EBUSY, "newcomers", text);
        }
        Ok(())
    }

    /// Who has seen a later start of the target is not served by this one.
    fn check_epoch(&self, target: &Target, c: &Connect, in_header: u32) -> Result<(), Refusal> {
        let (seen, epoch) = (c.last_epoch.max(in_header), target.service.epoch());
        if seen > epoch {
            return refuse(
                Errno::ESTALE,
                "epoch",
                format!(
                    "client '{}' has seen epoch {seen} of {}, this server '{}' has {epoch}: another server took the target over",
                    c.client_name, target.label, self.name
                ),
            );
        }
        Ok(())
    }

    fn check_versions(&self, c: &Connect) -> Result<(), Refusal> {
        if c.version != VERSION {
            return refuse(
                Errno::EPROTONOSUPPORT,
                "version",
                format!(
                    "client '{}' speaks protocol version {}, server '{}' version {VERSION}: upgrade the older one",
                    who(c),
                    c.version,
                    self.name
                ),
            );
        }
        let unknown = c.features.incompat & !FEATURES_INCOMPAT;
        if unknown != 0 {
            return refuse(
                Errno::EPROTONOSUPPORT,
                "features",
                format!(
                    "client '{}' needs features {unknown:#x} that server '{}' (version {}) does not know: upgrade the server",
                    who(c),
                    self.name,
                    env!("CARGO_PKG_VERSION")
                ),
            );
        }
        if c.client_name.len() > CLIENT_NAME_MAX_BYTES || c.client_uuid == [0; 16] {
            return refuse(Errno::EINVAL, "connect", "client name too long or client uuid zero".into());
        }
        Ok(())
    }

    /// Who does not know what this version needs is turned away.
    fn check_needed(&self, c: &Connect) -> Result<(), Refusal> {
        let Some(lacks) = c.features.lacking() else { return Ok(()) };
        let text = format!(
            "client '{}' is too old for server '{}' (version {}): it does not know {lacks}: upgrade the client",
            who(c),
            self.name,
            env!("CARGO_PKG_VERSION")
        );
        refuse(Errno::EPROTONOSUPPORT, "features", text)
    }

    /// The target that a hello names, of the file system that it names.
    fn find(&self, number: u32, c: &Connect) -> Result<Arc<Target>, Refusal> {
        if number == 0 && c.fsname.is_empty() {
            return refuse(Errno::ENODEV, PROBE, format!("server '{}' answers", self.name));
        }
        let Some(id) = TargetId::from_u32(number) else {
            return refuse(Errno::ENODEV, "target", format!("no target has the number {number:#x}"));
        };
        if self.stopping.load(Ordering::Acquire) {
            return refuse(Errno::ESHUTDOWN, "stopping", format!("server '{}' stops", self.name));
        }
        let here: Vec<_> = self.lock_targets().iter().filter(|t| t.service.target() == id).cloned().collect();
        let fits = |t: &&Arc<Target>| id.kind == TargetKind::Mgt || t.service.fsname() == c.fsname;
        if let Some(t) = here.iter().find(fits) {
            return Ok(t.clone());
        }
        let name: String = c.fsname.chars().take(model::limits::FSNAME_MAX_BYTES * 4).collect();
        match here.first() {
            None => refuse(
                Errno::ENODEV,
                "target",
                format!("target {} is not served by '{}' (now)", id.label(&name), self.name),
            ),
            Some(t) => refuse(
                Errno::ENOENT,
                "fsname",
                format!(
                    "server '{}' has {}, not {}: wrong file system name?",
                    self.name,
                    t.label,
                    id.label(&name)
                ),
            ),
        }
    }

    /// The client's session, made anew if there is none, or if the service forgot the client.
    fn session(&self, t: &Arc<Target>, from: Principal, new_client: bool) -> Arc<Session> {
        let client = from.client;
        let old = t.peers.get(client);
        if let Some(s) = &old
            && !new_client
        {
            return s.clone();
        }
        let number = t.service.target().to_u32();
        let fresh =
            Arc::new(Session::new(from, number, t.service.epoch(), self.world.now(), t.peers.nrs().clone()));
        if !new_client {
            fresh.restore(|slot| t.service.stored_reply(client, slot));
        }
        let (now_there, replaced) = {
            let mut g = t.peers.map();
            match (g.get(&client), &old) {
                // Another connection of this client was faster.
                (Some(s), None) => (s.clone(), None),
                (Some(s), Some(o)) if !same(s, o) => (s.clone(), None),
                _ => {
                    let replaced = g.insert(client, fresh.clone());
                    (fresh, replaced)
                }
            }
        };
        if let Some(s) = replaced {
            s.abandon();
        }
        assert_eq!(now_there.client, client, "a client gets its own session");
        now_there
    }
}

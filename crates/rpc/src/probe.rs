//! Whether a server lives at an address: a hello to no target of no file system, which any server turns away.

use std::io;
use std::net::{IpAddr, SocketAddr};
use wire::frame::VERSION;
use wire::msg::connect::{Connect, ConnectFeatures, ConnectReply};
use wire::{Frame, FrameKind, Header, ReplyContext, RequestContext, decode_body, encode_body};
use world::World;

/// Connects to `to`, from `bind` if given, as `name`, and waits for any answer; no time-out of its own.
///
/// # Errors
/// What the network says; `InvalidData` if whatever listens there is no server.
pub async fn probe(world: &World, bind: Option<IpAddr>, to: SocketAddr, name: &str) -> io::Result<()> {
    let conn = world.net.connect(bind, to).await?;
    let c = Connect {
        client_uuid: world.random_uuid(),
        client_name: name.to_string(),
        fsname: String::new(),
        version: VERSION,
        features: ConnectFeatures { compat: 0, incompat: 0 },
        last_epoch: 0,
        slots: 1,
        lane: 0,
        extra: Vec::new(),
    };
    let body = encode_body(&RequestContext::default(), &c);
    conn.send(Frame::new(Header::new(FrameKind::Connect), body, bytes::Bytes::new())).await?;
    let f = conn.recv().await?;
    conn.close();
    let is_answer = f.header.kind == FrameKind::ConnectReply;
    // An accepted connect carries a reply that must decode; a refusal carries words.
    let accepted = || decode_body::<ReplyContext, ConnectReply>(&f.body).is_ok();
    if is_answer && (f.header.status != 0 || accepted()) {
        return Ok(());
    }
    Err(io::ErrorKind::InvalidData.into())
}

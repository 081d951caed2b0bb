//! Connections from ports below 1024, which only a privileged process can have: by them a server tells this
//! host's administrator from its users. After Lustre's acceptor (512 to 1023) and bindresvport(3). Decision
//! 0040.
//!
//! Sockets of one host may share a port as long as each connects to something else, so the bound is that of
//! connections to one server.

use super::net::new_socket;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::TcpStream;

/// The ports, except that of servers themselves.
const FIRST: u16 = 512;
const COUNT: u16 = 512;

/// Where the next search begins: a port that was used last has a connection in TIME_WAIT.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A connection to `to`, from a reserved port of `from` if this process may have one, else from any.
///
/// # Errors
/// What connect(2) says. `AddrInUse`, in words: all ports are taken by connections to `to`.
pub(super) async fn connect(from: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let unspecified = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let ip = from.unwrap_or(unspecified);
    // Processes of one host begin at different ports.
    let start = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    for n in 0..u32::from(COUNT) {
        let port = FIRST + (start.wrapping_add(n) % u32::from(COUNT)) as u16;
        if port == model::limits::PORT {
            continue;
        }
        let socket = new_socket(to.ip())?;
        socket.set_reuseaddr(true)?;
        match socket.bind(SocketAddr::new(ip, port)) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AddrInUse => continue,
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return from_any(from, to).await,
            Err(e) => return Err(e),
        }
        match socket.connect(to).await {
            // Another socket has this port and this peer.
            Err(e) if matches!(e.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {}
            done => return done,
        }
    }
    Err(io::Error::new(
        ErrorKind::AddrInUse,
        format!(
            "all ports from {FIRST} to {} are taken by connections to {to}: this host has too many mounts, or makes them too fast",
            FIRST + COUNT - 1
        ),
    ))
}

/// Of an ordinary user.
async fn from_any(from: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = new_socket(to.ip())?;
    if let Some(ip) = from {
        socket.bind(SocketAddr::new(ip, 0))?;
    }
    socket.connect(to).await
}

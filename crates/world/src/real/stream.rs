//! Plain TCP for protocols of others. Tokio's sockets: nothing here is on the way of a file operation.

use super::Entered;
use super::net::{new_socket, wait_out};
use crate::{BoxFuture, Stream, StreamListener};
use bytes::Bytes;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

/// Connections that may wait to be taken.
const LISTEN_BACKLOG: u32 = 64;

struct RealStream {
    handle: Handle,
    socket: Arc<TcpStream>,
}

pub(super) fn connect(handle: &Handle, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Stream>>> {
    let handle = handle.clone();
    Box::pin(Entered::new(handle.clone(), async move {
        let socket = TcpStream::connect(to).await?;
        socket.set_nodelay(true)?;
        Ok(Arc::new(RealStream { handle, socket: Arc::new(socket) }) as Arc<dyn Stream>)
    }))
}

struct RealStreamListener {
    handle: Handle,
    inner: Arc<TcpListener>,
    local: SocketAddr,
}

pub(super) fn listen(handle: &Handle, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn StreamListener>>> {
    let handle = handle.clone();
    Box::pin(Entered::new(handle.clone(), async move {
        let socket = new_socket(at.ip())?;
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        let inner = Arc::new(socket.listen(LISTEN_BACKLOG)?);
        let local = inner.local_addr()?;
        Ok(Arc::new(RealStreamListener { handle, inner, local }) as Arc<dyn StreamListener>)
    }))
}

impl StreamListener for RealStreamListener {
    fn accept(&self) -> BoxFuture<io::Result<Arc<dyn Stream>>> {
        let (handle, inner) = (self.handle.clone(), self.inner.clone());
        Box::pin(Entered::new(handle.clone(), async move {
            loop {
                match inner.accept().await {
                    Ok((socket, _)) => {
                        let socket = Arc::new(socket);
                        return Ok(Arc::new(RealStream { handle, socket }) as Arc<dyn Stream>);
                    }
                    Err(e) => wait_out(e).await?,
                }
            }
        }))
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// A program that has the C library in it has of its modules for names of hosts only those that it has in it:
/// others, which `/etc/nsswitch.conf` may name, belong to the host's C library, which is another one.
#[cfg(target_feature = "crt-static")]
fn only_own_modules() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    #[allow(unsafe_code)] // the C library has no safe form of it
    ONCE.call_once(|| {
        // SAFETY: it is declared as the C library's `nss.h` has it.
        unsafe extern "C" {
            fn __nss_configure_lookup(db: *const libc::c_char, services: *const libc::c_char) -> libc::c_int;
        }
        // SAFETY: both are strings that end in a null byte and live as long as the program; it copies them.
        let r = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
        assert_eq!(r, 0, "'files' and 'dns' are part of the C library");
    });
}

#[cfg(not(target_feature = "crt-static"))]
fn only_own_modules() {}

pub(super) fn resolve(handle: &Handle, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
    only_own_modules();
    let name = name.to_string();
    Box::pin(Entered::new(handle.clone(), async move {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|a| a.ip()).collect())
    }))
}

impl Stream for RealStream {
    fn send(&self, bytes: Bytes) -> BoxFuture<io::Result<()>> {
        let socket = self.socket.clone();
        Box::pin(Entered::new(self.handle.clone(), async move {
            let mut left = &bytes[..];
            while !left.is_empty() {
                socket.writable().await?;
                match socket.try_write(left) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => left = &left[n..],
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        }))
    }

    fn recv(&self, limit: usize) -> BoxFuture<io::Result<Bytes>> {
        let socket = self.socket.clone();
        Box::pin(Entered::new(self.handle.clone(), async move {
            let mut buf = vec![0; limit];
            loop {
                socket.readable().await?;
                match socket.try_read(&mut buf) {
                    Ok(n) => {
                        buf.truncate(n);
                        return Ok(buf.into());
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
        }))
    }
}

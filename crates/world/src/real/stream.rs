//! Plain TCP for protocols of others. Tokio's sockets: nothing here is on the way of a file operation.

use super::Entered;
use crate::{BoxFuture, Stream};
use bytes::Bytes;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

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

pub(super) fn resolve(handle: &Handle, name: &str) -> BoxFuture<io::Result<Vec<IpAddr>>> {
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

//! A free block of loopback addresses: the whole of 127.0.0.0/8 answers on this host, so every file system
//! gets addresses of its own and no port is ever shared.

use super::{Result, UpError};
use std::net::{Ipv4Addr, SocketAddr};
use world::World;
use world::sys;

const ATTEMPTS: u32 = 200;

/// The first address of a block on which `count` nodes could listen now.
pub fn is_free(block: Ipv4Addr, count: u16, port: u16) -> std::io::Result<()> {
    for i in 1..=count {
        let addr = Ipv4Addr::from(u32::from(block) + u32::from(i));
        sys::can_listen(SocketAddr::from((addr, port)))?;
    }
    Ok(())
}

/// Draws blocks until one is free. Random, because blocks of file systems that are down must not be taken
/// either.
pub fn choose(world: &World, count: u16, port: u16) -> Result<Ipv4Addr> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let r = world.random_u64();
        // 127.16.0.0 – 127.250.255.0: below and above are addresses that people use by hand.
        let block = Ipv4Addr::new(127, 16 + (r % 235) as u8, (r >> 8) as u8, 0);
        assert!(block.is_loopback(), "addresses are drawn that this host alone has");
        match is_free(block, count, port) {
            Ok(()) => return Ok(block),
            Err(e) => last = Some(e),
        }
    }
    let why = last.map_or(String::new(), |e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => format!("port {port} needs root: run 'nacre up' as root"),
        _ => e.to_string(),
    });
    Err(UpError::new(format!("found no free loopback addresses for {count} servers: {why}")))
}

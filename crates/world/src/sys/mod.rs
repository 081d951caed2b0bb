//! What programs (daemons, commands, the mount helper) need of the host beyond [`crate::World`]: processes,
//! signals, mounts, small files, local control sockets. The simulator runs none of this.
//!
//! The names here are free functions on purpose: a command line tool has no world to be given.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // this module is the boundary
#![allow(unsafe_code)]

pub mod cgroup;
pub mod control;
pub mod extents;
pub mod files;
pub mod http;
pub mod idle;
pub mod load;
pub mod mounts;
pub mod namespace;
pub mod notify;
pub mod process;
pub mod terminal;
pub mod tree;
pub mod walk;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Blocks this thread.
pub fn sleep(d: Duration) {
    std::thread::sleep(d);
}

/// A point in time to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(std::time::Instant);

impl Deadline {
    pub fn after(d: Duration) -> Deadline {
        Deadline(std::time::Instant::now() + d)
    }

    /// Zero once it has passed.
    pub fn left(&self) -> Duration {
        self.0.saturating_duration_since(std::time::Instant::now())
    }

    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }

    /// Tries `f` every 20 ms until it gives something or the time is over.
    pub fn wait_for<T>(&self, mut f: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(v) = f() {
                return Some(v);
            }
            if self.passed() {
                return None;
            }
            sleep(Duration::from_millis(20).min(self.left()));
        }
    }
}

/// Runs `f` on a thread of its own.
pub fn thread(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_string()).spawn(f).map(|_| ())
}

/// Threads of [`at_once`] at a time.
const AT_ONCE_MAX: usize = 32;

/// Runs `f` on each item, on several at the same time, so that one that takes long holds up few others; what
/// it gave, in the order of the items.
pub fn at_once<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut out = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE_MAX) {
        std::thread::scope(|s| {
            let all: Vec<_> = some.iter().map(|i| s.spawn(|| f(i))).collect();
            out.extend(all.into_iter().map(|t| match t.join() {
                Ok(r) => r,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
        });
    }
    out
}

/// Runs `f` on so many threads at the same time; what it gave. Each is told its number, from 0 on.
pub fn together<R: Send>(threads: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    assert!(threads > 0, "somebody has to do it");
    let f = &f;
    std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|i| s.spawn(move || f(i))).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, R>| match t.join() {
            Ok(r) => r,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        all.into_iter().map(join).collect()
    })
}

/// Seconds since 1970 by the host's clock.
pub fn wall_seconds() -> i64 {
    let t = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(t.as_secs()).unwrap_or(i64::MAX)
}

/// Nanoseconds since 1970 by the host's clock.
pub fn wall_nanos() -> u128 {
    let t = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    t.as_nanos()
}

/// A moment as clocks on the walls of this host's time zone show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalTime {
    pub year: i32,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
}

/// Of seconds since 1970; `None` if no calendar has it.
pub fn local_time(seconds: i64) -> Option<LocalTime> {
    // SAFETY: plain numbers and a pointer that nobody follows here; all zeros is a value of it.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to what is alive and ours for the whole call.
    let found = unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
    if found.is_null() {
        return None;
    }
    let small = |n: libc::c_int| u8::try_from(n).ok();
    Some(LocalTime {
        year: tm.tm_year.checked_add(1900)?,
        month: small(tm.tm_mon + 1)?,
        day: small(tm.tm_mday)?,
        hour: small(tm.tm_hour)?,
        minute: small(tm.tm_min)?,
        second: small(tm.tm_sec)?,
    })
}

/// Whether a server could listen there now.
pub fn can_listen(at: SocketAddr) -> io::Result<()> {
    TcpListener::bind(at).map(|_| ())
}

/// Whether the host at an address answers there: a port that nobody listens at is an answer, too.
///
/// # Errors
/// Nothing came back within `patience`, or the network said that there is no way.
pub fn reach(at: SocketAddr, patience: Duration) -> io::Result<()> {
    match TcpStream::connect_timeout(&at, patience) {
        Err(e) if e.kind() != io::ErrorKind::ConnectionRefused => Err(e),
        _ => Ok(()),
    }
}

/// The address this host would use to talk to `peer`; nothing is sent.
pub fn address_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let s = UdpSocket::bind(any)?;
    s.connect(SocketAddr::new(peer, 9))?;
    Ok(s.local_addr()?.ip())
}

/// Addresses of this host's network interfaces that are up, loopback ones last.
pub fn host_addresses() -> io::Result<Vec<IpAddr>> {
    let mut out: Vec<IpAddr> = interface_addresses()?.into_iter().map(|(_, a)| a).collect();
    out.sort_by_key(|a| (a.is_loopback(), a.is_ipv6()));
    Ok(out)
}

/// Network interfaces that are up, by their names, and their addresses, in the kernel's order.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills `head` with a list that is freed below.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut out = Vec::new();
    let mut cur = head;
    while !cur.is_null() {
        // SAFETY: `cur` is an element of the list that getifaddrs returned.
        let entry = unsafe { &*cur };
        cur = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: the name of an element is a string that lives as long as the list.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: the kernel set the family of each address.
        match i32::from(unsafe { (*entry.ifa_addr).sa_family }) {
            libc::AF_INET => {
                // SAFETY: an AF_INET address is a sockaddr_in.
                let a = unsafe { *entry.ifa_addr.cast::<libc::sockaddr_in>() };
                out.push((name, IpAddr::from(a.sin_addr.s_addr.to_ne_bytes())));
            }
            libc::AF_INET6 => {
                // SAFETY: an AF_INET6 address is a sockaddr_in6.
                let a = unsafe { *entry.ifa_addr.cast::<libc::sockaddr_in6>() };
                out.push((name, IpAddr::from(a.sin6_addr.s6_addr)));
            }
            _ => {}
        }
    }
    // SAFETY: `head` came from getifaddrs and nothing refers to it any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(out)
}

/// Effective user of this process.
pub fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Effective group of this process.
pub fn egid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The kernel's release, as `uname -r` prints it.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// This host's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_at_once_waits_for_nobody_and_comes_in_order() {
        let all = std::sync::Barrier::new(AT_ONCE_MAX);
        let items: Vec<usize> = (0..AT_ONCE_MAX).collect();
        // Each waits for all others.
        let out = at_once(&items, |i| {
            all.wait();
            i * 2
        });
        assert_eq!(out, items.iter().map(|i| i * 2).collect::<Vec<_>>());
        assert_eq!(at_once(&[7; 100], |i| i + 1), [8; 100]);
    }
}

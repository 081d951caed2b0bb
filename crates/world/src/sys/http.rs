//! One HTTP request over a connection of its own, for commands: nothing encrypted, everything bounded.

use super::{Deadline, thread};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

/// Of an answer, its head included; more is not read.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// What is asked, and where.
pub struct Ask<'a> {
    pub method: &'a str,
    /// A name or an address.
    pub host: &'a str,
    pub port: u16,
    pub path: &'a str,
    pub content_type: &'a str,
    pub body: &'a [u8],
}

/// What came back: at most 64 KiB of it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// A resolver that hangs is not waited for; its thread ends with this program.
fn look_up(host: &str, port: u16, deadline: &Deadline) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (tx, rx) = mpsc::channel();
    let name = host.to_string();
    let run = move || drop(tx.send((name.as_str(), port).to_socket_addrs().map(Iterator::collect)));
    thread("resolver", run)?;
    rx.recv_timeout(deadline.left()).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn left(deadline: &Deadline) -> io::Result<Duration> {
    match deadline.left() {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        d => Ok(d),
    }
}

fn connect(all: &[SocketAddr], deadline: &Deadline) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for at in all {
        match TcpStream::connect_timeout(at, left(deadline)?) {
            Ok(s) => return Ok(s),
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn parse(raw: &[u8]) -> io::Result<Answer> {
    let text = String::from_utf8_lossy(raw);
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "what answers speaks no HTTP");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head.strip_prefix("HTTP/1.").and_then(|h| h.split(' ').nth(1)).ok_or_else(bad)?;
    Ok(Answer { status: status.parse().map_err(|_| bad())?, body: body.to_string() })
}

/// Asks, and waits for the answer, `patience` altogether.
///
/// # Errors
/// Nobody answers there, or not in time (`TimedOut`), or no HTTP (`InvalidData`).
pub fn ask(a: &Ask<'_>, patience: Duration) -> io::Result<Answer> {
    let deadline = Deadline::after(patience);
    let mut s = connect(&look_up(a.host, a.port, &deadline)?, &deadline)?;
    let in_brackets = if a.host.contains(':') { format!("[{}]", a.host) } else { a.host.to_string() };
    let head = format!(
        "{} {} HTTP/1.0\r\nHost: {in_brackets}:{}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        a.method,
        a.path,
        a.port,
        a.content_type,
        a.body.len()
    );
    // Who reads slowly has the same time as who does not read.
    let mut todo = [head.as_bytes(), a.body].concat();
    while !todo.is_empty() {
        s.set_write_timeout(Some(left(&deadline)?))?;
        let n = in_time(s.write(&todo))?;
        todo.drain(..n);
    }
    let (mut raw, mut part) = (Vec::new(), [0; 4096]);
    while raw.len() < ANSWER_MAX_BYTES {
        s.set_read_timeout(Some(left(&deadline)?))?;
        match in_time(s.read(&mut part))? {
            0 => break,
            n => raw.extend_from_slice(&part[..n]),
        }
    }
    parse(&raw)
}

/// A socket says `WouldBlock` when its time is over.
fn in_time(r: io::Result<usize>) -> io::Result<usize> {
    r.map_err(|e| if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn served(answer: Option<&'static str>) -> (u16, std::thread::JoinHandle<String>) {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = l.local_addr().unwrap().port();
        let run = move || {
            let (mut s, _) = l.accept().unwrap();
            let mut raw = Vec::new();
            let mut part = [0; 512];
            while !raw.ends_with(b"body") {
                let n = s.read(&mut part).unwrap();
                assert!(n > 0, "the request has its end");
                raw.extend_from_slice(&part[..n]);
            }
            match answer {
                Some(text) => s.write_all(text.as_bytes()).unwrap(),
                // Until the other side gives up.
                None => drop(s.read(&mut part)),
            }
            String::from_utf8(raw).unwrap()
        };
        (port, std::thread::spawn(run))
    }

    fn post(port: u16, patience: Duration) -> io::Result<Answer> {
        let a = Ask {
            method: "POST",
            host: "127.0.0.1",
            port,
            path: "/x",
            content_type: "text/plain",
            body: b"body",
        };
        ask(&a, patience)
    }

    #[test]
    fn a_request_is_sent_and_its_answer_read() {
        let (port, server) = served(Some("HTTP/1.1 503 Busy\r\nA: b\r\n\r\nlater"));
        let got = post(port, Duration::from_secs(20)).unwrap();
        assert_eq!((got.status, got.body.as_str()), (503, "later"));
        let asked = server.join().unwrap();
        assert!(asked.starts_with("POST /x HTTP/1.0\r\nHost: 127.0.0.1:"), "{asked}");
        assert!(asked.contains("\r\nContent-Length: 4\r\n") && asked.ends_with("\r\n\r\nbody"), "{asked}");
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for_and_others_are_told_apart() {
        let (port, server) = served(None);
        assert_eq!(post(port, Duration::from_millis(200)).unwrap_err().kind(), io::ErrorKind::TimedOut);
        server.join().unwrap();
        assert_eq!(post(port, Duration::from_secs(20)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let (port, server) = served(Some("SSH-2.0-x\r\n"));
        assert_eq!(post(port, Duration::from_secs(20)).unwrap_err().kind(), io::ErrorKind::InvalidData);
        server.join().unwrap();
    }
}

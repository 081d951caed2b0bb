//! Over real loopback sockets: garbage on the listener, and that the same code works there.

use super::*;
use world::Conn;
use world::real;

async fn endpoint(w: &World, services: Vec<Arc<dyn Service>>) -> (Arc<Server>, SocketAddr) {
    let server = Server::new(w.clone(), "here".into());
    // Whoever runs the tests, and their garbage, may have ordinary ports.
    server.set_secure(false);
    for s in services {
        server.add(s, Peers::new());
    }
    let listener = w.net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.local_addr();
    let run = server.clone();
    w.spawn("server", async move { run.run(listener).await });
    (server, at)
}

fn import(w: &World, at: SocketAddr, uuid: u8) -> Arc<Import> {
    let nids = vec![Nid { addr: at.ip(), net: 0 }];
    Import::new(w.clone(), ImportConfig { nids, port: at.port(), ..config(uuid, TargetId::ost(0), &[]) })
}

#[test]
fn calls_and_a_stop_over_sockets() {
    let (w, rt) = real::start(2).unwrap();
    rt.block_on(async {
        let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
        let (server, at) = endpoint(&w, vec![Counter::start(&w, TargetId::ost(0), &disk, &seen)]).await;
        let i = import(&w, at, 7);
        let calls = (0..500).map(|n| {
            let i = i.clone();
            Box::pin(async move { set(&i, &n.to_string()).await }) as BoxFuture<Result<String, Errno>>
        });
        let all = w.timeout(Duration::from_secs(30), world::future::join_all(calls.collect())).await.unwrap();
        assert!(all.iter().all(|r: &Result<String, Errno>| r.as_deref() == Ok("1")));
        server.stop().await;
        until(&w, "it is noticed", || i.state() != ImportState::Full).await;
        i.disconnect().await;
    });
    rt.shutdown();
}

/// Data for which there is no memory is read and forgotten, in pieces as they come.
#[test]
fn what_is_put_off_over_sockets_comes_again() {
    let (w, rt) = real::start(2).unwrap();
    rt.block_on(async {
        let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
        let counter = Counter::start(&w, TargetId::ost(0), &disk, &seen);
        let (server, at) = endpoint(&w, vec![counter]).await;
        server.inbound().set_max_bytes(1 << 20);
        let i = import(&w, at, 7);
        let calls = (0..60usize).map(|n| {
            let i = i.clone();
            Box::pin(async move {
                let m =
                    SetParam { name: n.to_string(), value: String::new(), permanent: false, delete: false };
                let data = Bytes::from(vec![1; [100, 20_000, 300_000, 2_000_000][n % 4]]);
                Ok(i.call(RequestContext::default(), m, data).await?.reply.values[0].1.clone())
            }) as BoxFuture<Result<String, Errno>>
        });
        let all = w.timeout(Duration::from_secs(30), world::future::join_all(calls.collect())).await.unwrap();
        assert!(all.iter().all(|r: &Result<String, Errno>| r.as_deref() == Ok("1")));
        assert!(server.inbound().refused() > 0, "there was memory for all");
        until(&w, "all memory is back", || server.inbound().used_bytes() == 0).await;
        i.disconnect().await;
    });
    rt.shutdown();
}

/// Bytes as they are, through a socket of the host.
#[allow(clippy::disallowed_types)] // what no Conn can send
fn throw(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut s = std::net::TcpStream::connect(at).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let _ = s.write_all(bytes);
    let _ = s.shutdown(std::net::Shutdown::Write);
    let mut back = Vec::new();
    let _ = s.read_to_end(&mut back);
    back
}

#[test]
fn garbage_is_answered_and_harmless() {
    let (w, rt) = real::start(2).unwrap();
    let (disk, seen): (Arc<Mutex<Disk>>, Arc<Mutex<Seen>>) = Default::default();
    let counter = Counter::start(&w, TargetId::ost(0), &disk, &seen);
    let (_server, at) = rt.block_on(endpoint(&w, vec![counter]));
    let i = import(&w, at, 7);
    rt.block_on(i.connected()).unwrap();
    let good =
        wire::Frame::new(wire::Header::new(wire::FrameKind::Connect), vec![1; 30], Bytes::new()).encode();
    let mut version = good.clone();
    version[4] = 9;
    let mut crc = good.clone();
    crc[70] ^= 1;
    let mut long = good.clone();
    long[48..52].copy_from_slice(&u32::MAX.to_le_bytes());
    let texts: Vec<(&str, Vec<u8>)> = vec![
        (
            "http",
            b"GET / HTTP/1.1\r\nHost: example\r\n\r\nand some more so that it fills a header and goes on"
                .to_vec(),
        ),
        ("zeros", vec![0; 4096]),
        ("version", version),
        ("crc", crc),
        ("long", long),
    ];
    for (what, bytes) in &texts {
        let back = throw(at, bytes);
        let (f, _) = wire::Frame::decode(&back).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(f.header.kind, wire::FrameKind::ConnectReply, "{what}");
        assert_eq!(f.header.status, Errno::EPROTO.0 as u16, "{what}");
        let (_, r): (wire::ReplyContext, wire::msg::connect::ConnectRefused) =
            wire::decode_body(&f.body).unwrap();
        assert!(!r.message.is_empty());
        if *what == "version" {
            assert!(r.message.contains("version 9") && r.message.contains("version 1"), "{}", r.message);
        }
    }
    let mut rng = world::rng::Rng::new(5);
    for n in 0..40 {
        let mut bytes = good.clone();
        for _ in 0..=n % 4 {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        bytes.truncate(rng.index(bytes.len() + 1));
        throw(at, &bytes);
    }
    rt.block_on(async {
        assert_eq!(set(&i, "still").await.unwrap(), "1");
        // A connection that breaks in the middle of a session.
        let conn: Arc<dyn Conn> = w.net.connect(None, at).await.unwrap();
        conn.close();
        assert_eq!(set(&i, "there").await.unwrap(), "1");
        i.disconnect().await;
    });
    rt.shutdown();
}

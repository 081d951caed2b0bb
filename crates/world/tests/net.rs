//! Frames over real loopback TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use wire::frame::{HEADER_BYTES, crc32c};
use wire::{Frame, FrameKind, Header};
use world::real::{self, Runtime};
use world::{Conn, Listener, World};

const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> (World, Runtime) {
    real::start(2).unwrap()
}

fn any_port(host: &str) -> SocketAddr {
    format!("{host}:0").parse().unwrap()
}

fn frame(xid: u64, body: usize, bulk: usize) -> Frame {
    let mut h = Header::new(FrameKind::Request);
    h.xid = xid;
    let byte = |i: usize| (i as u64 ^ xid).wrapping_mul(0x9e37_79b9) as u8;
    Frame::new(h, (0..body).map(byte).collect(), (0..bulk).map(byte).collect::<Vec<u8>>())
}

async fn pair(w: &World, host: &str) -> (Arc<dyn Conn>, Arc<dyn Conn>, Arc<dyn Listener>) {
    let l = w.net.listen(any_port(host)).await.unwrap();
    let a = w.net.connect(None, l.local_addr()).await.unwrap();
    let b = l.accept().await.unwrap();
    (a, b, l)
}

async fn in_time<T>(w: &World, f: impl Future<Output = T> + Send) -> T {
    w.timeout(PATIENCE, f).await.expect("in time")
}

#[test]
fn frames_of_all_sizes_arrive_in_order() {
    let (w, rt) = start();
    rt.block_on(async {
        for host in ["127.0.0.1", "[::1]"] {
            let (a, b, _l) = pair(&w, host).await;
            let sizes = [
                (0, 0),
                (1, 0),
                (0, 1),
                (100, 4096),
                (4 << 20, 0),
                (10, 16 << 20),
                (4 << 20, 16 << 20),
                (7, 7),
            ];
            let frames: Vec<Frame> =
                sizes.iter().enumerate().map(|(i, &(x, y))| frame(i as u64, x, y)).collect();
            let sender = a.clone();
            let to_send = frames.clone();
            w.spawn("sender", async move {
                for f in to_send {
                    sender.send(f).await.unwrap();
                }
            });
            for f in frames {
                assert!(in_time(&w, b.recv()).await.unwrap() == f);
            }
            // And back, as a reply would come.
            b.send(frame(99, 20, 20)).await.unwrap();
            assert_eq!(in_time(&w, a.recv()).await.unwrap().header.xid, 99);
        }
    });
}

#[test]
fn a_thread_outside_the_runtime_may_do_everything() {
    let (w, rt) = start();
    let l = world::block_on(w.net.listen(any_port("127.0.0.1"))).unwrap();
    let addr = l.local_addr();
    let a = world::block_on(w.net.connect(Some("127.0.0.1".parse().unwrap()), addr)).unwrap();
    let b = world::block_on(l.accept()).unwrap();
    world::block_on(a.send(frame(1, 10, 1 << 20))).unwrap();
    assert_eq!(world::block_on(b.recv()).unwrap().bulk.len(), 1 << 20);
    let t = w.now();
    world::block_on(w.sleep(Duration::from_millis(20)));
    assert!(w.now().since(t) >= Duration::from_millis(20));
    assert_eq!(world::block_on(w.blocking(|| 7)), 7);
    assert!(world::block_on(w.timeout(Duration::from_millis(10), b.recv())).is_none());
    // The dropped receiver took nothing with it.
    world::block_on(a.send(frame(2, 0, 0))).unwrap();
    assert_eq!(world::block_on(b.recv()).unwrap().header.xid, 2);
    rt.shutdown();
}

#[test]
fn concurrent_senders_do_not_mix_their_frames() {
    let (w, rt) = start();
    rt.block_on(async {
        let (a, b, _l) = pair(&w, "127.0.0.1").await;
        for task in 0..8 {
            let a = a.clone();
            w.spawn("sender", async move {
                for i in 0..50 {
                    a.send(frame(task * 1000 + i, 100, (i as usize * 7919) % 300_000)).await.unwrap();
                }
            });
        }
        let mut next = [0; 8];
        for _ in 0..400 {
            let f = in_time(&w, b.recv()).await.unwrap();
            let (task, i) = (f.header.xid / 1000, f.header.xid % 1000);
            assert_eq!(i, next[task as usize], "order within one sender");
            next[task as usize] += 1;
            assert!(f == frame(f.header.xid, 100, (i as usize * 7919) % 300_000));
        }
    });
}

#[test]
fn close_and_drop_wake_both_ends_and_what_was_taken_still_arrives() {
    let (w, rt) = start();
    rt.block_on(async {
        let (a, b, _l) = pair(&w, "127.0.0.1").await;
        let waiting = a.recv();
        let closer = a.clone();
        w.spawn("closer", async move { closer.close() });
        let e = in_time(&w, waiting).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionAborted);
        let e = in_time(&w, b.recv()).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
        assert!(a.send(frame(1, 0, 0)).await.is_err());

        let (a, b, _l) = pair(&w, "127.0.0.1").await;
        a.send(frame(1, 100, 16 << 20)).await.unwrap();
        a.send(frame(2, 100, 16 << 20)).await.unwrap();
        drop(a);
        assert_eq!(in_time(&w, b.recv()).await.unwrap().header.xid, 1);
        assert_eq!(in_time(&w, b.recv()).await.unwrap().header.xid, 2);
        assert_eq!(in_time(&w, b.recv()).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn a_peer_that_does_not_read_holds_the_sender_back() {
    let (w, rt) = start();
    rt.block_on(async {
        let (a, b, _l) = pair(&w, "127.0.0.1").await;
        let mut sent = 0;
        while w.timeout(Duration::from_millis(300), a.send(frame(sent, 0, 16 << 20))).await.is_some() {
            sent += 1;
            assert!(sent < 100, "no back-pressure");
        }
        for i in 0..sent {
            assert_eq!(in_time(&w, b.recv()).await.unwrap().header.xid, i);
        }
    });
}

#[test]
fn what_is_no_frame_is_refused_with_the_reason() {
    let (w, rt) = start();
    rt.block_on(async {
        let good = frame(5, 300, 300).encode();
        let mut oversized = good[..HEADER_BYTES].to_vec();
        oversized[48..52].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32c(&oversized[..HEADER_BYTES - 4]);
        oversized[60..].copy_from_slice(&crc.to_le_bytes());
        let mut flipped = good.clone();
        flipped[HEADER_BYTES + 310] ^= 4;
        let mut old = good.clone();
        old[4] = 77;
        let cases: [(Vec<u8>, io::ErrorKind, &str); 6] = [
            (
                b"GET / HTTP/1.1\r\nHost: example\r\n\r\n".repeat(3),
                io::ErrorKind::InvalidData,
                "not a Nacre peer",
            ),
            (oversized, io::ErrorKind::InvalidData, "over the limit"),
            (flipped, io::ErrorKind::InvalidData, "bulk checksum differs"),
            (old, io::ErrorKind::InvalidData, "version 77"),
            (good[..good.len() - 1].to_vec(), io::ErrorKind::UnexpectedEof, "middle of a frame"),
            (Vec::new(), io::ErrorKind::UnexpectedEof, "closed"),
        ];
        for (bytes, kind, words) in cases {
            let l = w.net.listen(any_port("127.0.0.1")).await.unwrap();
            let mut raw = tokio::net::TcpStream::connect(l.local_addr()).await.unwrap();
            let c = l.accept().await.unwrap();
            raw.write_all(&bytes).await.unwrap();
            drop(raw);
            let e = in_time(&w, c.recv()).await.unwrap_err();
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.to_string().contains(words), "{e}");
        }
        // A frame that trickles in byte by byte is still a frame.
        let l = w.net.listen(any_port("127.0.0.1")).await.unwrap();
        let mut raw = tokio::net::TcpStream::connect(l.local_addr()).await.unwrap();
        raw.set_nodelay(true).unwrap();
        let c = l.accept().await.unwrap();
        w.spawn("trickle", async move {
            for b in good {
                raw.write_all(&[b]).await.unwrap();
                tokio::task::yield_now().await;
            }
            std::future::pending::<()>().await;
        });
        assert_eq!(in_time(&w, c.recv()).await.unwrap().bulk, frame(5, 300, 300).bulk);
    });
}

#[test]
fn nobody_listening_is_refused_and_a_port_is_usable_again_at_once() {
    let (w, rt) = start();
    rt.block_on(async {
        let (a, b, l) = pair(&w, "127.0.0.1").await;
        let at = l.local_addr();
        drop((a, b, l));
        let e = w.net.connect(None, at).await.err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionRefused);
        w.net.listen(at).await.unwrap();
    });
}

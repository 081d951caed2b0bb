//! The engine by itself: order, time, the network's faults, crashes, and that a run repeats.

use sim::{NetFaults, Sim, Stuck};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Frame, FrameKind, Header};
use world::mem::CrashMode;
use world::{Conn, OpenMode, World};

fn ip(n: u8) -> IpAddr {
    format!("10.0.0.{n}").parse().unwrap()
}

fn at(n: u8) -> SocketAddr {
    SocketAddr::new(ip(n), 988)
}

fn frame(xid: u64) -> Frame {
    let mut h = Header::new(FrameKind::Request);
    h.xid = xid;
    Frame::new(h, vec![1, 2, 3], vec![4; 100])
}

/// Answers each frame with itself.
async fn echo(w: World, n: u8) {
    let l = w.net.listen(at(n)).await.unwrap();
    while let Ok(c) = l.accept().await {
        w.spawn("echo", async move {
            while let Ok(f) = c.recv().await {
                if c.send(f).await.is_err() {
                    break;
                }
            }
        });
    }
}

async fn client(w: World, hits: Arc<AtomicU64>) {
    loop {
        let Ok(c) = w.net.connect(None, at(1)).await else {
            w.sleep(Duration::from_millis(50)).await;
            continue;
        };
        for xid in 0.. {
            if c.send(frame(xid)).await.is_err() {
                break;
            }
            match w.timeout(Duration::from_secs(5), c.recv()).await {
                Some(Ok(f)) => assert_eq!(f, frame(xid)),
                _ => break,
            }
            hits.fetch_add(1, Ordering::Relaxed);
            let pause = w.random_u64() % 3000;
            w.sleep(Duration::from_micros(pause)).await;
        }
    }
}

fn scenario(seed: u64) -> (u64, u64, Vec<(&'static str, u64)>) {
    let sim = Sim::new(seed);
    let server = sim.add_node("server", &[ip(1)]);
    let hits = Arc::new(AtomicU64::new(0));
    for n in 2..5 {
        let c = sim.add_node("client", &[ip(n)]);
        let w = c.world();
        w.spawn("client", client(w.clone(), hits.clone()));
    }
    let w = server.world();
    w.spawn("server", echo(w.clone(), 1));
    sim.set_net_faults(NetFaults {
        // Clients are without a connection for much of the time: first packets are sent again after seconds.
        reset_ppm: 3000,
        slow_ppm: 1000,
        slow_us: 100_000,
        corrupt_ppm: 200,
        ..NetFaults::default()
    });
    let h = sim.handle();
    sim.run(Duration::from_secs(100), async move {
        for round in 0..5 {
            h.sleep(Duration::from_secs(1)).await;
            if round % 2 == 0 {
                server.crash(CrashMode::Random)
            } else {
                server.kill()
            }
            h.sleep(Duration::from_millis(300)).await;
            server.boot();
            let w = server.world();
            w.spawn("server", echo(w.clone(), 1));
            h.reset_some_connection();
        }
        h.sleep(Duration::from_secs(1)).await;
    })
    .unwrap();
    let counters = sim.counters().into_iter().collect();
    (sim.trace_hash(), hits.load(Ordering::Relaxed), counters)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (hash, hits, faults) = scenario(1);
    assert_eq!((hash, hits, faults.clone()), scenario(1));
    assert_ne!(hash, scenario(2).0);
    assert!(hits > 1000, "{hits}");
    for what in ["net_reset", "net_bit_flip", "power_loss", "process_kill", "net_slow_packet"] {
        assert!(faults.iter().any(|(w, n)| *w == what && *n > 0), "{what} in {faults:?}");
    }
}

#[test]
fn time_jumps_and_deadlocks_are_seen() {
    let sim = Sim::new(1);
    let h = sim.handle();
    sim.run(Duration::from_secs(100_000), async move { h.sleep(Duration::from_secs(86_400)).await }).unwrap();
    assert!(sim.now() >= 86_400_000_000_000);
    assert_eq!(sim.run(Duration::from_secs(1), std::future::pending::<()>()), Err(Stuck::Deadlock));
    let w = sim.driver().world();
    let forever = async move {
        loop {
            w.sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(sim.run::<()>(Duration::from_secs(1), forever), Err(Stuck::Time));
}

async fn pair(a: &World, b: &World, n: u8) -> (Arc<dyn Conn>, Arc<dyn Conn>) {
    let l = b.net.listen(at(n)).await.unwrap();
    let x = a.net.connect(None, at(n)).await.unwrap();
    (x, l.accept().await.unwrap())
}

#[test]
fn partitions_hold_packets_up_and_end_connections_that_last() {
    let sim = Sim::new(3);
    let (a, b) = (sim.add_node("a", &[ip(1)]), sim.add_node("b", &[ip(2)]));
    let h = sim.handle();
    sim.run(Duration::from_secs(1000), async move {
        let (wa, wb) = (a.world(), b.world());
        let (x, y) = pair(&wa, &wb, 2).await;
        h.partition(&a, &b, false);
        for i in 0..3 {
            x.send(frame(i)).await.unwrap();
        }
        y.send(frame(7)).await.unwrap();
        assert_eq!(x.recv().await.unwrap().header.xid, 7, "the other way is open");
        assert!(wb.timeout(Duration::from_secs(3), y.recv()).await.is_none());
        h.heal();
        for i in 0..3 {
            assert_eq!(y.recv().await.unwrap().header.xid, i);
        }
        h.partition(&a, &b, true);
        assert_eq!(wa.net.connect(None, at(2)).await.err().unwrap().kind(), io::ErrorKind::TimedOut);
        x.send(frame(9)).await.unwrap();
        assert_eq!(x.recv().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(y.recv().await.is_err());
        h.heal();
        assert_eq!(wa.net.connect(None, at(2)).await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(
            wa.net.connect(Some(ip(9)), at(2)).await.err().unwrap().kind(),
            io::ErrorKind::AddrNotAvailable
        );
    })
    .unwrap();
}

#[test]
fn close_delivers_what_was_sent_and_windows_fill() {
    let sim = Sim::new(4);
    let (a, b) = (sim.add_node("a", &[ip(1)]), sim.add_node("b", &[ip(2)]));
    sim.run(Duration::from_secs(1000), async move {
        let (wa, wb) = (a.world(), b.world());
        let (x, y) = pair(&wa, &wb, 2).await;
        let big = |xid| {
            let mut h = Header::new(FrameKind::Request);
            h.xid = xid;
            Frame::new(h, vec![], vec![0; 3 << 20])
        };
        x.send(big(0)).await.unwrap();
        x.send(big(1)).await.unwrap();
        assert!(wa.timeout(Duration::from_secs(3), x.send(big(2))).await.is_none(), "no back-pressure");
        drop(x);
        assert_eq!(y.recv().await.unwrap().header.xid, 0);
        assert_eq!(y.recv().await.unwrap().header.xid, 1);
        assert_eq!(y.recv().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    })
    .unwrap();
}

#[test]
fn a_crashed_life_does_nothing_any_more_and_a_paused_one_goes_on_later() {
    let sim = Sim::new(5);
    let n = sim.add_node("n", &[ip(1)]);
    let h = sim.handle();
    let beats = Arc::new(AtomicU64::new(0));
    let seen = beats.clone();
    sim.run(Duration::from_secs(1000), async move {
        let w = n.world();
        let (beating, tick) = (w.clone(), beats.clone());
        w.spawn("beat", async move {
            loop {
                beating.sleep(Duration::from_millis(10)).await;
                let tick = tick.clone();
                beating.blocking(move || tick.fetch_add(1, Ordering::Relaxed)).await;
            }
        });
        h.sleep(Duration::from_secs(1)).await;
        n.pause();
        let before = beats.load(Ordering::Relaxed);
        assert!(before > 50);
        h.sleep(Duration::from_secs(1)).await;
        assert_eq!(beats.load(Ordering::Relaxed), before);
        n.resume();
        h.sleep(Duration::from_secs(1)).await;
        assert!(beats.load(Ordering::Relaxed) > before + 50);

        let f = w.disk.open("/f", OpenMode::CREATE).unwrap();
        f.write_at(b"kept", 0).unwrap();
        f.sync_data().unwrap();
        w.disk.sync_dir("/").unwrap();
        f.write_at(b"lost", 0).unwrap();
        n.crash(CrashMode::LoseAll);
        let before = beats.load(Ordering::Relaxed);
        assert!(w.disk.exists("/f").is_err() && f.sync_data().is_err());
        w.spawn("ghost", async { panic!("must not run") });
        n.boot();
        h.sleep(Duration::from_secs(1)).await;
        assert_eq!(beats.load(Ordering::Relaxed), before);
        let mut b = [0; 4];
        n.world().disk.open("/f", OpenMode::READ).unwrap().read_at(&mut b, 0).unwrap();
        assert_eq!(&b, b"kept");
    })
    .unwrap();
    drop(sim);
    assert_eq!(Arc::strong_count(&seen), 1, "nothing outlives the simulation");
}

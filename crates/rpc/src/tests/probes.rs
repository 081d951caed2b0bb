//! A target's probes: what is said of one that hangs, and when none is made.

use super::*;
use crate::server::probes::{Attempt, ProbeCounter, Probes, SHOWN_MAX};
use std::sync::atomic::AtomicU64;
use wire::msg::param::SetParam;

struct Bench {
    lab: Lab,
    server: World,
    client: World,
    probes: Arc<Probes>,
    slow: Arc<Counter>,
    peers: Peers,
}

fn bench(seed: u64) -> Bench {
    let lab = Lab::new(seed);
    let ((server, _), (client, _)) = (node(&lab, 1), node(&lab, 9));
    let slow = Counter::start(&server, TargetId::ost(0), &Arc::default(), &Arc::default());
    let peers = Peers::new();
    let probes = Probes::new(&server, "fs-OST0000".into(), &peers);
    Bench { lab, server, client, probes, slow, peers }
}

/// A change of a disk that takes so long.
fn durable_after(world: &World, s: u64) -> BoxFuture<Result<(), String>> {
    let end = world.sleep(Duration::from_secs(s));
    Box::pin(async move {
        end.await;
        Ok(())
    })
}

fn change(i: &Arc<Import>, world: &World, name: &str) {
    let (i, ctx) = (i.clone(), RequestContext { jobid: format!("job\n{name}"), ..RequestContext::default() });
    let m = SetParam { name: name.into(), value: String::new(), permanent: false, delete: false };
    world.spawn("change", async move { drop(i.call(ctx, m, Bytes::new()).await) });
}

#[test]
fn of_one_that_hangs_it_is_said_while_it_hangs_what_runs_beside_it() {
    let b = bench(41);
    b.lab.run(async {
        serve(&b.server, 1, vec![b.slow.clone()], &b.peers).await;
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1]));
        i.connected().await.unwrap();
        *lock(&b.slow.stall) = Duration::from_secs(300);
        change(&i, &b.client, "first");
        b.client.sleep(Duration::from_secs(20)).await;
        change(&i, &b.client, "second");
        b.client.sleep(Duration::from_secs(1)).await;
        let (oldest, count) = b.peers.at_work(b.server.now());
        assert_eq!((count, oldest.len()), (2, 2));
        assert!(oldest[0].age > Duration::from_secs(20) && oldest[1].age < Duration::from_secs(2));
        let begun = b.server.now();
        let p = b.probes.probe(begun, durable_after(&b.server, 90)).await.unwrap();
        assert_eq!((p.took.as_secs(), p.failed.clone()), (90, None));
        let [at_once, a_minute_later] = &p.said[..] else { panic!("{:?}", p.said) };
        let starts = "fs-OST0000: a small change that is made durable now and then waits since 1.0 s; at work beside it: \
                      SetParam of client-7 at 10.0.0.9 for job job_first since 22";
        assert!(at_once.starts_with(starts), "{at_once}");
        assert!(at_once.contains("; SetParam of client-7 at 10.0.0.9 for job job_second since 2."), "{at_once}");
        assert!(a_minute_later.contains("waits since 61.0 s"), "{a_minute_later}");
        assert_eq!(b.probes.stats.total(ProbeCounter::Slow), (1, 90_000_000));
        // Requests that ended are not at work.
        b.client.sleep(Duration::from_secs(300)).await;
        assert_eq!(b.peers.at_work(b.server.now()), (Vec::new(), 0));
        let p = b.probes.probe(b.server.now(), durable_after(&b.server, 2)).await.unwrap();
        assert!(p.said.len() == 1 && p.said[0].ends_with("at work beside it: no request"), "{:?}", p.said);
    });
}

#[test]
fn few_of_many_are_named_and_the_others_counted() {
    let b = bench(42);
    b.lab.run(async {
        serve(&b.server, 1, vec![b.slow.clone()], &b.peers).await;
        let i = Import::new(b.client.clone(), config(7, TargetId::ost(0), &[1]));
        i.connected().await.unwrap();
        *lock(&b.slow.stall) = Duration::from_secs(60);
        (0..8).for_each(|n| change(&i, &b.client, &n.to_string()));
        b.client.sleep(Duration::from_secs(1)).await;
        let count = b.peers.at_work(b.server.now()).1;
        assert!(count > SHOWN_MAX, "{count} run");
        let p = b.probes.probe(b.server.now(), durable_after(&b.server, 2)).await.unwrap();
        let many = format!(" at work beside it, the oldest of {count}: SetParam of client-7 ");
        assert!(p.said[0].contains(&many), "{}", p.said[0]);
        assert_eq!(p.said[0].matches("SetParam of").count(), SHOWN_MAX);
    });
}

#[test]
fn they_come_at_random_and_as_they_are_set() {
    let b = bench(43);
    b.lab.run(async {
        let made = Arc::new(AtomicU64::new(0));
        let world = b.server.clone();
        b.probes.keep("probes", &made, move |made| match made.fetch_add(1, Ordering::Relaxed) {
            n if n % 2 == 1 => Attempt::PutOff,
            _ => Attempt::Begun(durable_after(&world, 0)),
        });
        b.server.sleep(Duration::from_secs(1000)).await;
        let n = made.load(Ordering::Relaxed);
        assert!((75..135).contains(&n), "{n} in a thousand seconds, at one in ten of them");
        let (done, put_off) = (ProbeCounter::Done, ProbeCounter::PutOff);
        assert_eq!(b.probes.stats.total(done).0 + b.probes.stats.total(put_off).0, n);
        assert_eq!((b.probes.stats.total(put_off).0, b.probes.stats.total(ProbeCounter::Slow).0), (n / 2, 0));
        b.probes.interval_s.store(0, Ordering::Relaxed);
        b.server.sleep(Duration::from_secs(1000)).await;
        let n = made.load(Ordering::Relaxed) - n;
        assert!(n <= 1, "{n} although there are to be none");
        b.probes.interval_s.store(1, Ordering::Relaxed);
        b.server.sleep(Duration::from_secs(30)).await;
        assert!(made.load(Ordering::Relaxed) - n > 110, "again, and more often");
        b.probes.stop();
        b.server.sleep(Duration::from_secs(2)).await;
        let n = made.load(Ordering::Relaxed);
        b.server.sleep(Duration::from_secs(100)).await;
        assert_eq!(made.load(Ordering::Relaxed), n, "the target stopped");
    });
}

#[test]
fn a_target_that_stops_does_not_wait_for_one_that_hangs() {
    let b = bench(44);
    b.lab.run(async {
        let (probes, world) = (b.probes.clone(), b.server.clone());
        b.server.spawn("stop", async move {
            world.sleep(Duration::from_secs(5)).await;
            probes.stop();
        });
        assert_eq!(b.probes.probe(b.server.now(), durable_after(&b.server, 10_000)).await, None);
    });
}

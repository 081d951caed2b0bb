//! How long others wait for a client that is gone, in virtual time.

use bytes::Bytes;
use model::TargetKind;
use sim::cluster::Cluster;
use sim::exec::call;
use sim::exec::{file, read_at};
use sim::{Rest, Sim};
use std::sync::Arc;
use std::time::Duration;

const OSTS: u16 = 2;
const BYTES: usize = 100_000;
/// With default settings: a lock callback has 20 s. Two targets that evict one after the other took 32.
const ONE_EVICTION: Duration = Duration::from_secs(21);

async fn mount_all(c: &Arc<Cluster>) {
    c.boot_all();
    for i in 0..c.mounts.len() {
        c.mount(i).await.unwrap();
    }
    let known = |i: usize| {
        let (fs, _) = c.mounts[i].get().unwrap();
        fs.config().targets.iter().filter(|t| t.target.kind == TargetKind::Ost).count()
    };
    while (0..c.mounts.len()).any(|i| known(i) < usize::from(OSTS)) {
        c.sim.sleep(Duration::from_secs(1)).await;
    }
}

/// A client that was active in the root directory stops; another one looks a name up there and reads the
/// file.
fn waited(seed: u64, how: Rest) -> Duration {
    let sim = Sim::new(seed);
    let c = Arc::new(Cluster::new(&sim, OSTS, 2, false));
    c.format().unwrap();
    let cluster = c.clone();
    let run = sim.run(Duration::from_secs(3600), async move {
        let c = cluster;
        mount_all(&c).await;
        let (a, _) = c.mounts[0].get().unwrap();
        let (b, _) = c.mounts[1].get().unwrap();
        let fid = file(&a, a.root(), "f", i32::from(OSTS)).await.unwrap();
        let data = |n: u8| Bytes::from(vec![n; BYTES]);
        a.clone().write(call(), fid, 0, false, false, data(1)).await.unwrap();
        a.clone().fsync(call(), fid).await.unwrap();
        a.clone().write(call(), fid, 0, false, false, data(2)).await.unwrap();
        file(&a, a.root(), "untold", 0).await.unwrap();
        c.mounts[0].node.pause_with(how);
        let start = c.sim.now();
        let found = b.clone().lookup(call(), b.root(), b"f".to_vec()).await.unwrap();
        assert_eq!(found.fid, fid);
        let seen = read_at(&b, fid, 0, BYTES).await.unwrap();
        assert!(seen.len() == BYTES && seen.iter().all(|n| *n == 1), "what was told is there");
        let waited = Duration::from_nanos(c.sim.now() - start);
        c.mounts[0].node.resume();
        waited
    });
    assert!(c.failures.lock().is_empty());
    run.unwrap()
}

#[test]
fn whoever_needs_what_a_stopped_client_has_waits_for_one_eviction() {
    for seed in 1..=4 {
        let t = waited(seed, Rest::ALL[seed as usize % Rest::ALL.len()]);
        println!("seed {seed}: {t:?}");
        assert!(t <= ONE_EVICTION, "seed {seed}: {t:?}");
    }
}

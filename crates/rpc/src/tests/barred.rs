//! A request that makes its handler panic ends one life of a server, not every one.

use super::*;
use ::world::Disk as _;
use ::world::mem::{CrashMode, MemDisk};
use std::panic::{AssertUnwindSafe, catch_unwind};

const DIR: &str = "/target";
/// Of the environment: the panic ends the process, as that of a server does.
const ENDS: &str = "NACRE_TEST_ENDS";

/// One life of a server, and what a client is answered to these requests.
fn life(
    kept: &Arc<Mutex<Disk>>,
    disk: &MemDisk,
    uuid: u8,
    ask: &[&str],
) -> Result<Vec<Result<String, Errno>>, Box<dyn std::any::Any + Send>> {
    let lab = Lab::new(1);
    let (s, _) = lab.node(ip(1), Arc::new(disk.clone()));
    let (w, _) = node(&lab, 9);
    let run = || {
        lab.run(async {
            let c = Counter::start(&s, TargetId::ost(0), kept, &Arc::default());
            let c = Arc::into_inner(c).expect("nobody else has it");
            let c = Arc::new(Counter { folder: Some(DIR.into()), ..c });
            let server = serve(&s, 1, vec![c], &Peers::new()).await;
            server.set_abort_on_panic(std::env::var_os(ENDS).is_some());
            let i = Import::new(w.clone(), config(uuid, TargetId::ost(0), &[1]));
            let mut out = Vec::new();
            for a in ask {
                out.push(get(&i, a).await);
            }
            out
        })
    };
    catch_unwind(AssertUnwindSafe(run))
}

#[test]
fn a_request_that_ended_a_server_is_refused_by_the_next_one() {
    let (kept, disk) = (Arc::default(), MemDisk::new());
    disk.mkdir(DIR).unwrap();
    disk.sync_dir("/").unwrap();
    assert!(life(&kept, &disk, 7, &["fine", "panic"]).is_err(), "the handler panics");
    // The power fails, too.
    disk.crash_with(CrashMode::LoseAll, &mut ::world::rng::Rng::new(1));
    for _ in 0..3 {
        let answers = life(&kept, &disk, 7, &["panic", "fine"]).expect("no panic any more");
        assert_eq!(answers, [Err(Errno::EIO), Ok("0".into())], "that one is refused, others are not");
    }
    assert!(life(&kept, &disk, 8, &["panic"]).is_err(), "another client has its own");
    let answers = life(&kept, &disk, 8, &["panic"]).expect("no panic any more");
    assert_eq!(answers, [Err(Errno::EIO)]);
    assert!(life(&kept, &disk, 7, &["panic"]).is_ok(), "the first one's is not forgotten");
}

#[test]
fn a_request_that_panics_ends_the_servers_process() {
    let disk = MemDisk::new();
    disk.mkdir(DIR).unwrap();
    if std::env::var_os(ENDS).is_some() {
        let _ = life(&Arc::default(), &disk, 7, &["fine", "panic"]);
        return;
    }
    let exe = ::world::sys::process::own_executable().unwrap();
    let (set, exe) = (format!("{ENDS}=1"), exe.to_str().unwrap());
    let name = "tests::barred::a_request_that_panics_ends_the_servers_process";
    let done = ::world::sys::process::run("env", &[&set, exe, "--exact", name, "--nocapture"]).unwrap();
    assert_eq!(done.status, None, "by a signal: {done:?}");
    assert!(done.err.contains("the process ends so that nobody sees half an operation"), "{done:?}");
}

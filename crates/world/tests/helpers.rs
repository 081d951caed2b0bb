//! Tasks on the executor, and threads that wait for answers beside it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use wire::{Frame, FrameKind, Header};
use world::real::{self, Runtime};
use world::sync::{Mutex, mpsc, oneshot};
use world::sys::{Deadline, thread};
use world::{BoxFuture, Conn, World};

const PATIENCE: Duration = Duration::from_secs(20);

fn frame(xid: u64, bulk: usize) -> Frame {
    let mut h = Header::new(FrameKind::Request);
    h.xid = xid;
    Frame::new(h, vec![], vec![xid as u8; bulk])
}

/// Answers every frame with itself, from a task for each.
fn echo(w: &World) -> SocketAddr {
    let l = world::block_on(w.net.listen("127.0.0.1:0".parse().unwrap())).unwrap();
    let at = l.local_addr();
    let world = w.clone();
    w.spawn("echo", async move {
        loop {
            let c = l.accept().await.unwrap();
            let w = world.clone();
            world.spawn("echo-conn", async move {
                while let Ok(f) = c.recv().await {
                    let c = c.clone();
                    w.spawn("echo-frame", async move {
                        let _ = c.send(f).await;
                    });
                }
            });
        }
    });
    at
}

type Waiting = Arc<Mutex<std::collections::BTreeMap<u64, oneshot::Sender<Frame>>>>;

/// A connection whose answers a task hands out, as an import's does.
struct Caller {
    conn: Arc<dyn Conn>,
    waiting: Waiting,
    /// Frames nobody asked for.
    unasked: Arc<AtomicUsize>,
}

fn caller(w: &World, at: SocketAddr) -> Arc<Caller> {
    let conn = world::block_on(w.net.connect(None, at)).unwrap();
    let c = Arc::new(Caller { conn: conn.clone(), waiting: Arc::default(), unasked: Arc::default() });
    let (waiting, unasked) = (c.waiting.clone(), c.unasked.clone());
    w.spawn("answers", async move {
        while let Ok(f) = conn.recv().await {
            match waiting.lock().await.remove(&f.header.xid) {
                Some(tx) => drop(tx.send(f)),
                None => drop(unasked.fetch_add(1, Ordering::SeqCst)),
            }
        }
    });
    c
}

impl Caller {
    fn call(self: &Arc<Self>, xid: u64, bulk: usize) -> BoxFuture<Frame> {
        let me = self.clone();
        Box::pin(async move {
            let (tx, rx) = oneshot::channel();
            me.waiting.lock().await.insert(xid, tx);
            me.conn.send(frame(xid, bulk)).await.unwrap();
            rx.await.unwrap()
        })
    }
}

/// Threads that call at the same time, over two connections: leaders, followers and successors.
#[test]
fn many_threads_get_their_own_answers() {
    let (server, _server_rt) = real::start(2).unwrap();
    let (w, rt) = real::start_helped(2).unwrap();
    let at = echo(&server);
    let callers = [caller(&w, at), caller(&w, at)];
    let done = Arc::new(AtomicUsize::new(0));
    for t in 0..6u64 {
        let (w, c, done) = (w.clone(), callers[t as usize % 2].clone(), done.clone());
        thread("helper", move || {
            for n in 0..1500 {
                let xid = t << 32 | n;
                let bulk = if n % 100 == 7 { 1 << 20 } else { (n % 50) as usize };
                let mut call = c.call(xid, bulk);
                let f = loop {
                    match w.block_on_for(call, Duration::from_millis(10)) {
                        Ok(f) => break f,
                        Err(rest) => call = rest,
                    }
                };
                assert_eq!((f.header.xid, f.bulk.len()), (xid, bulk));
            }
            done.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    }
    let end = Deadline::after(PATIENCE * 3);
    assert!(end.wait_for(|| (done.load(Ordering::SeqCst) == 6).then_some(())).is_some(), "all in time");
    rt.shutdown();
}

/// Nobody waits: the executor's threads look after the sockets, right after a helper left too.
#[test]
fn what_nobody_waits_for_arrives_too() {
    let (server, _server_rt) = real::start(2).unwrap();
    let (w, rt) = real::start_helped(1).unwrap();
    let c = caller(&w, echo(&server));
    for n in 0..300 {
        // One answer is waited for; the other, sent by nobody's wish, comes about when the helper leaves.
        let both = {
            let c = c.clone();
            let call = c.call(2 * n, 0);
            Box::pin(async move {
                c.conn.send(frame(2 * n + 1, 0)).await.unwrap();
                call.await
            })
        };
        assert!(w.block_on_for(both, PATIENCE).is_ok());
        let end = Deadline::after(Duration::from_secs(5));
        while c.unasked.load(Ordering::SeqCst) <= n as usize {
            assert!(!end.passed(), "frame {n} was not read while nobody waited");
            std::thread::yield_now();
        }
    }
    rt.shutdown();
}

#[test]
fn patience_ends_and_the_rest_goes_on_elsewhere() {
    let (w, rt) = real::start_helped(2).unwrap();
    let (tx, rx) = oneshot::channel();
    let f: BoxFuture<u32> = Box::pin(async move { rx.await.unwrap() });
    let t = w.now();
    let Err(rest) = w.block_on_for(f, Duration::from_millis(30)) else { panic!("nobody sent") };
    let took = w.now().since(t);
    assert!(took >= Duration::from_millis(30) && took < Duration::from_secs(5), "{took:?}");
    let (out, result) = oneshot::channel();
    w.spawn("rest", async move {
        let _ = out.send(rest.await);
    });
    tx.send(7).unwrap();
    assert_eq!(rt.block_on(w.timeout(PATIENCE, result)).unwrap(), Ok(7));
    rt.shutdown();
}

/// A leader that sleeps on the sockets is woken by what is no socket: another thread, a timer, a task.
#[test]
fn a_leader_hears_of_everything_else() {
    let (w, rt) = real::start_helped(2).unwrap();
    for n in 0..200u32 {
        let (tx, rx) = oneshot::channel();
        let w2 = w.clone();
        match n % 3 {
            0 => thread("teller", move || assert!(tx.send(n).is_ok())).unwrap(),
            1 => w.spawn("teller", async move {
                w2.sleep(Duration::from_micros(u64::from(n) * 10)).await;
                let _ = tx.send(n);
            }),
            _ => w.spawn("teller", async move { assert!(tx.send(n).is_ok()) }),
        }
        let t = w.now();
        let got = w.block_on_for(Box::pin(rx), PATIENCE);
        assert!(matches!(got, Ok(Ok(m)) if m == n));
        assert!(w.now().since(t) < PATIENCE / 2, "woken, not timed out");
    }
    let slept = w.block_on_for(w.sleep(Duration::from_millis(5)), PATIENCE);
    assert!(slept.is_ok());
    rt.shutdown();
}

struct Flag(Arc<AtomicUsize>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_shutdown_drops_what_waits_and_a_panic_ends_one_task() {
    for start in [real::start as fn(usize) -> std::io::Result<(World, Runtime)>, real::start_helped] {
        let (w, rt) = start(2).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let flag = Flag(dropped.clone());
            w.spawn("for ever", async move {
                let _flag = flag;
                std::future::pending::<()>().await;
            });
        }
        for _ in 0..4 {
            w.spawn("panics", async { panic!("on purpose") });
        }
        let (tx, rx) = oneshot::channel();
        w.spawn("after", async move { assert!(tx.send(1).is_ok()) });
        assert_eq!(rt.block_on(w.timeout(PATIENCE, rx)).unwrap(), Ok(1));
        assert_eq!(dropped.load(Ordering::SeqCst), 0, "waiting tasks are kept");
        rt.shutdown();
        assert_eq!(dropped.load(Ordering::SeqCst), 10);
        let late = Flag(dropped.clone());
        w.spawn("too late", async move {
            let _late = late;
            std::future::pending::<()>().await;
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 11, "nothing runs after a shutdown, nothing is kept");
    }
}

/// One thread, tasks that always have something to do: timers, sockets and other tasks have their turn.
#[test]
fn busy_tasks_do_not_starve_others() {
    let (w, rt) = real::start(1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tx, mut rx) = mpsc::channel::<u64>(1);
    for n in 0..2 {
        // Two that wake each other, and one that wakes itself.
        let (stop, tx) = (stop.clone(), tx.clone());
        w.spawn("busy", async move {
            while !stop.load(Ordering::Relaxed) {
                if n == 0 {
                    yield_once().await;
                } else if tx.send(1).await.is_err() {
                    return;
                }
            }
        });
    }
    w.spawn("reader", async move { while rx.recv().await.is_some() {} });
    drop(tx);
    let at = echo(&w);
    let c = caller(&w, at);
    let r = rt.block_on(w.timeout(PATIENCE, async {
        for n in 0..50 {
            assert_eq!(c.call(n, 100).await.header.xid, n);
        }
        w.sleep(Duration::from_millis(5)).await;
        w.blocking(|| 3).await
    }));
    assert_eq!(r, Some(3));
    stop.store(true, Ordering::Relaxed);
    rt.shutdown();
}

async fn yield_once() {
    let mut done = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut done, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Whether a call that blocks runs on one of the executor's own threads: they have numbers.
fn is_here() -> bool {
    let name = std::thread::current().name().unwrap_or_default().to_string();
    name.strip_prefix("nacre-").is_some_and(|n| n.parse::<usize>().is_ok())
}

#[test]
fn a_brief_call_blocks_its_own_thread_and_nobody_else() {
    let (w, rt) = real::start(2).unwrap();
    let at = echo(&w);
    let c = caller(&w, at);
    let (release, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let end = Deadline::after(PATIENCE);
    let (tx, rx) = oneshot::channel();
    {
        let (w, release, begun) = (w.clone(), release.clone(), begun.clone());
        w.clone().spawn("brief", async move {
            // At once if the other thread is idle, which it is sooner or later.
            while !w.blocking_briefly(is_here).await {
                w.sleep(Duration::from_millis(1)).await;
            }
            loop {
                let (release, begun, end) = (release.clone(), begun.clone(), Deadline::after(PATIENCE));
                let here = w.blocking_briefly(move || {
                    let here = is_here();
                    begun.store(here, Ordering::Release);
                    while here && !release.load(Ordering::Acquire) && !end.passed() {
                        world::sys::sleep(Duration::from_millis(1));
                    }
                    here
                });
                if here.await {
                    let _ = tx.send(());
                    return;
                }
            }
        });
    }
    while !begun.load(Ordering::Acquire) {
        assert!(!end.passed(), "it never runs on its own thread");
        world::sys::sleep(Duration::from_millis(1));
    }
    // One of two threads stands still.
    let (other_tx, other_rx) = oneshot::channel();
    {
        let w = w.clone();
        w.clone().spawn("second", async move {
            let _ = other_tx.send(w.blocking_briefly(is_here).await);
        });
    }
    let r = rt.block_on(w.timeout(PATIENCE, async {
        for n in 0..50 {
            assert_eq!(c.call(n, 100).await.header.xid, n);
        }
        other_rx.await
    }));
    assert_eq!(r, Some(Ok(false)), "the last thread does not block");
    release.store(true, Ordering::Release);
    assert_eq!(rt.block_on(w.timeout(PATIENCE, rx)), Some(Ok(())));
    rt.shutdown();
}

/// For [`a_panic_of_an_essential_task_ends_the_process`]: what its child does.
const ESSENTIAL: &str = "NACRE_TEST_ESSENTIAL";

/// In a process of its own: it plants a panic, and is told how that ended.
#[test]
fn a_panic_of_an_essential_task_ends_the_process() {
    if let Ok(which) = std::env::var(ESSENTIAL) {
        return panics(&which);
    }
    let child = |which: &str| {
        let exe = std::env::current_exe().unwrap();
        let name = "a_panic_of_an_essential_task_ends_the_process";
        let out = std::process::Command::new(exe).args(["--exact", name]).env(ESSENTIAL, which).output();
        out.unwrap().status
    };
    for which in ["task", "blocking", "drop", "lock"] {
        let status = child(which);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{which}: {status}");
    }
    assert!(child("other").success(), "a task that may panic ends alone");
}

fn panics(which: &str) {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "on purpose");
        }
    }
    let (w, rt) = real::start(2).unwrap();
    rt.end_on_panic(&["other"]);
    match which {
        "task" => w.spawn("committer", async { panic!("on purpose") }),
        "drop" => w.spawn("flusher", async { drop(Bad) }),
        // Nobody waits for it any more.
        "blocking" => drop(w.tasks.run_blocking(Box::new(|| panic!("on purpose")))),
        // It may panic; what it leaves half done under a lock nobody looks at.
        "lock" => {
            let m = Arc::new(model::mutex::Mutex::new(0));
            let (world, held) = (w.clone(), m.clone());
            w.spawn("other", async move {
                let _half_done = held.lock();
                panic!("on purpose");
            });
            // It may panic as well: what ends the process is that it finds the lock.
            w.spawn("other", async move {
                world.sleep(Duration::from_millis(50)).await;
                *m.lock() += 1;
            });
        }
        _ => w.spawn("other", async { panic!("on purpose") }),
    }
    let (tx, rx) = oneshot::channel();
    let patience = if which == "other" { Duration::from_millis(1) } else { PATIENCE };
    let world = w.clone();
    w.spawn("after", async move {
        world.sleep(patience).await;
        assert!(tx.send(1).is_ok());
    });
    rt.block_on(rx).unwrap();
}

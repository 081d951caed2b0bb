//! Movements of files pass one queue of their metadata server.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, call};
use client::{Admin, Fs, OpenHandle, Pace};
use model::{Errno, Fid, Layout, LayoutSpec, TargetId};
use std::sync::Arc;
use world::sync::oneshot;

const MIB: u64 = 1 << 20;

async fn movements(fs: &Arc<Fs>) -> Vec<String> {
    let of = Admin(fs).target_params(TargetId::mdt(0), "mdt.*.movements".into()).await.unwrap();
    of[0].1.lines().map(String::from).collect()
}

fn field<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('=')).expect("each field is shown")
}

fn on(ost: u16) -> LayoutSpec {
    LayoutSpec { stripe_count: 1, stripe_size: 65536, osts: vec![ost], ..LayoutSpec::default() }
}

/// Moves a file until somebody says that nobody waits for it any more.
fn moving(
    c: &Cluster,
    fs: &Arc<Fs>,
    (fid, ost): (Fid, u16),
    pace: Pace,
) -> (oneshot::Sender<()>, oneshot::Receiver<Option<Result<Layout, Errno>>>) {
    let (give_up, given_up) = oneshot::channel::<()>();
    let fs = fs.clone();
    let done = c.spawn(async move {
        match world::select(Admin(&fs).migrate_at(call(), fid, on(ost), pace), given_up).await {
            world::Either::Left(r) => Some(r),
            world::Either::Right(_) => None,
        }
    });
    (give_up, done)
}

/// A file of so many MiB on OST 0, whose bytes are known.
async fn file(fs: &Arc<Fs>, name: &str, mib: u64) -> (Arc<OpenHandle>, Vec<u8>) {
    let f = striped(fs, name, 1).await;
    Admin(fs).migrate(call(), f.fid, on(0)).await.unwrap();
    let data: Vec<u8> = (0..mib * MIB).map(|i| (i * 7 / 8) as u8 | 1).collect();
    for (n, part) in data.chunks(MIB as usize).enumerate() {
        write(fs, &f, n as u64 * MIB, part.to_vec()).await;
    }
    fs.clone().fsync(call(), f.fid).await.unwrap();
    (f, data)
}

#[test]
fn who_stops_waiting_takes_a_movement_out_of_the_queue() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        c.set_mdt_param("mdt.*.movements_max", "1").await;
        let ((f, data), (g, _)) = (file(&a, "f", 2).await, file(&a, "g", 1).await);
        let slow = Pace { bandwidth_bytes: 1000, ..Pace::default() };
        let (give_up_f, f_done) = moving(&c, &a, (f.fid, 1), slow);
        c.until("the first is copied", || async {
            movements(&b)
                .await
                .first()
                .is_some_and(|m| field(m, "state") == "copying" && !field(m, "to").is_empty())
        })
        .await;
        let (give_up_g, g_done) = moving(&c, &b, (g.fid, 1), Pace::default());
        c.until("the second waits", || async { movements(&b).await.len() == 2 }).await;
        let shown = movements(&a).await;
        let of =
            |line: &str| [field(line, "state"), field(line, "from"), field(line, "to")].map(String::from);
        assert_eq!(
            (of(&shown[0]), of(&shown[1])),
            (["copying", "0", "1"].map(String::from), ["waiting", "", ""].map(String::from))
        );
        assert_eq!(field(&shown[1], "fid"), g.fid.to_string());
        give_up_g.send(()).unwrap();
        assert!(c.within(g_done).await.unwrap().is_none());
        c.until("the second is out of the queue", || async { movements(&a).await.len() == 1 }).await;
        give_up_f.send(()).unwrap();
        assert!(c.within(f_done).await.unwrap().is_none());
        c.until("the first is out of the queue", || async { movements(&a).await.is_empty() }).await;
        for x in [&f, &g] {
            let l = Admin(&b).getlayout(call(), x.fid).await.unwrap().unwrap();
            assert_eq!(l.objects().map(|o| o.ost).collect::<Vec<_>>(), [0], "it lies where it lay");
        }
        assert!(read(&b, &f, 0, 4 << 20).await == data);
        c.within(Admin(&b).migrate(call(), f.fid, on(1))).await.unwrap();
        assert!(read(&a, &f, 0, 4 << 20).await == data);
    });
}

#[test]
fn a_file_that_is_used_meanwhile_is_not_moved_where_nobody_is_to_wait() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let (f, mut data) = file(&a, "f", 3).await;
        let pace = Pace { non_block: true, bandwidth_bytes: 4 * MIB };
        let (_wanted, done) = moving(&c, &b, (f.fid, 1), pace);
        c.until("it is copied", || async {
            movements(&b).await.first().is_some_and(|m| field(m, "total") == (3 * MIB).to_string())
        })
        .await;
        data[5] = 77;
        write(&a, &f, 5, vec![77]).await;
        assert_eq!(c.within(done).await.unwrap(), Some(Err(Errno::EBUSY)));
        assert!(read(&b, &f, 0, 4 << 20).await == data);
        c.within(Admin(&a).migrate_at(call(), f.fid, on(1), Pace { bandwidth_bytes: 0, ..pace }))
            .await
            .unwrap();
        assert!(read(&b, &f, 0, 4 << 20).await == data);
        let small = striped(&a, "small", 1).await;
        write(&a, &small, 0, vec![9; 100]).await;
        c.within(Admin(&b).migrate_at(call(), small.fid, on(1), pace)).await.unwrap();
        assert!(read(&b, &small, 0, 200).await == vec![9; 100]);
    });
}

#[test]
fn movements_leave_turns_for_what_programs_do() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let mut files = Vec::new();
        for n in 0..20 {
            files.push(c.within(file(&a, &format!("f{n}"), 2)).await.0);
        }
        c.set_mdt_param("mdt.*.movements_max", "1").await;
        let slow = Pace { bandwidth_bytes: 1000, ..Pace::default() };
        let under_way: Vec<_> = files.iter().map(|f| moving(&c, &a, (f.fid, 1), slow)).collect();
        c.until("as many as a mount may have wait", || async { movements(&b).await.len() == 16 }).await;
        for n in 0..20 {
            c.within(striped(&a, &format!("g{n}"), 1)).await;
        }
        drop(under_way);
        c.until("all are out of the queue", || async { movements(&b).await.is_empty() }).await;
    });
}

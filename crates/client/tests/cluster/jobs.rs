//! What two jobs on one mount do is counted apart, on the metadata server and on OSTs: also what the mount
//! does later on their behalf.

use crate::data::striped;
use crate::harness::{Cluster, O_CREAT, O_RDWR, call};
use bytes::Bytes;
use client::{Admin, Call, Fs, OpenHandle};
use model::{Errno, LayoutSpec, SetAttr, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// (samples, sum) of each counter of each job.
type Stats = BTreeMap<String, BTreeMap<String, (u64, u64)>>;

fn of_job(id: &str) -> Call {
    Call { jobid: Some(id.into()), ..call() }
}

async fn stats(fs: &Arc<Fs>, target: TargetId) -> Stats {
    let all = Admin(fs).target_params(target, "*.*.job_stats".into()).await.unwrap();
    let (mut out, mut id) = (Stats::new(), String::new());
    let field = |line: &str, name: &str| -> u64 {
        let (_, rest) = line.split_once(name).unwrap();
        rest.trim_start().split([',', ' ']).next().unwrap().parse().unwrap()
    };
    for line in all[0].1.lines().skip(1) {
        if let Some(job) = line.strip_prefix("- job_id:") {
            id = job.trim().to_string();
        } else if let Some((name, rest)) = line.split_once(":").filter(|(_, rest)| rest.contains('{')) {
            let counted = (field(rest, "samples:"), field(rest, "sum:"));
            out.entry(id.clone()).or_default().insert(name.trim().to_string(), counted);
        }
    }
    out
}

fn samples(s: &Stats, id: &str, name: &str) -> u64 {
    s.get(id).map_or(0, |j| j[name].0)
}

fn sum(s: &Stats, id: &str, name: &str) -> u64 {
    s.get(id).map_or(0, |j| j[name].1)
}

async fn create(fs: &Arc<Fs>, by: &Call, name: &str, spec: Option<LayoutSpec>) -> Arc<OpenHandle> {
    let flags = O_RDWR | O_CREAT;
    let made = fs.clone().create(by.clone(), fs.root(), name.into(), 0o644, flags, spec).await;
    Arc::new(made.unwrap().1)
}

#[test]
fn what_two_jobs_do_is_counted_apart() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let (one, two) = (of_job("one.1"), of_job("two.2"));
        let (mdt, ost) = (TargetId::mdt(0), TargetId::ost(0));
        let spec = || Some(LayoutSpec { stripe_count: 1, stripe_size: 65536, ..LayoutSpec::default() });
        let f = create(&a, &one, "f", spec()).await;
        let g = create(&a, &two, "g", spec()).await;
        // Kept by the mount, and sent behind the programs' backs.
        let write = |by: &Call, f: &OpenHandle, n: usize| {
            a.clone().write(by.clone(), f.fid, 0, false, false, Bytes::from(vec![7; n]))
        };
        write(&one, &f, MIB).await.unwrap();
        write(&two, &g, 3 * MIB).await.unwrap();
        let written = async || sum(&stats(&b, ost).await, "two.2", "write_bytes");
        c.until("it is written back", || async { written().await == 3 * MIB as u64 }).await;
        a.clone().fsync(call(), f.fid).await.unwrap();
        let o = stats(&b, ost).await;
        assert_eq!((sum(&o, "one.1", "write_bytes"), samples(&o, "one.1", "write")), (MIB as u64, 1));
        assert_eq!(sum(&o, "one.1", "read_bytes"), 0);
        // The last one that wrote an object counts for what goes in one message.
        write(&one, &f, 4096).await.unwrap();
        write(&two, &f, 8192).await.unwrap();
        a.clone().fsync(one.clone(), f.fid).await.unwrap();
        let o = stats(&b, ost).await;
        assert_eq!(sum(&o, "one.1", "write_bytes"), MIB as u64);
        assert_eq!(sum(&o, "two.2", "write_bytes"), 3 * MIB as u64 + 8192);
        // Who reads what is not kept, with what is read ahead; who cuts.
        let g_there = Arc::new(b.clone().open(two.clone(), g.fid, 0).await.unwrap());
        for off in (0..3 * MIB as u64).step_by(MIB / 4) {
            b.clone().read(two.clone(), g_there.clone(), off, (MIB / 4) as u32).await.unwrap();
        }
        b.clone().close(g_there).await.unwrap();
        let cut = SetAttr { size: Some(5), by_handle: true, ..SetAttr::default() };
        a.clone().setattr(one.clone(), f.fid, cut).await.unwrap();
        let o = stats(&b, ost).await;
        assert_eq!((sum(&o, "two.2", "read_bytes"), sum(&o, "one.1", "read_bytes")), (3 * MIB as u64, 0));
        assert_eq!((samples(&o, "one.1", "punch"), samples(&o, "two.2", "punch")), (1, 0));
        let m = stats(&b, mdt).await;
        assert!(samples(&m, "one.1", "open") == 1 && samples(&m, "one.1", "mknod") == 1, "{m:?}");
        assert!(samples(&m, "one.1", "setattr") == 1 && samples(&m, "two.2", "setattr") == 0, "{m:?}");
        assert!(!m.contains_key(""), "what belongs to no job is not counted");
    });
}

#[test]
fn operations_that_the_mount_executed_count_for_their_jobs() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let (one, two) = (of_job("one.1"), of_job("two.2"));
        let dir = a.clone().mkdir(call(), a.root(), b"d".to_vec(), 0o755).await.unwrap().fid;
        let before = a.pending_state().0;
        for n in 0..30 {
            let by = if n % 3 == 0 { &one } else { &two };
            let name = format!("f{n}").into_bytes();
            let made = a.clone().create(by.clone(), dir, name, 0o644, O_RDWR | O_CREAT, None).await;
            let f = Arc::new(made.unwrap().1);
            if n % 3 == 1 {
                a.clone()
                    .write(two.clone(), f.fid, 0, false, false, Bytes::from(vec![1; 100]))
                    .await
                    .unwrap();
            }
            a.clone().close(f).await.unwrap();
        }
        a.clone().mkdir(one.clone(), dir, b"sub".to_vec(), 0o755).await.unwrap();
        a.clone().rename(one.clone(), dir, b"f0".to_vec(), dir, b"g0".to_vec(), 0).await.unwrap();
        a.clone().unlink(two.clone(), dir, b"f1".to_vec()).await.unwrap();
        a.clone().mkdir(call(), dir, b"nobodys".to_vec(), 0o755).await.unwrap();
        assert!(a.pending_state().0 >= before + 30, "the mount executed them itself");
        a.clone().sync().await.unwrap();
        let m = stats(&a, TargetId::mdt(0)).await;
        let of = |id: &str| {
            ["mknod", "mkdir", "rename", "samedir_rename", "unlink", "write"]
                .map(|name| samples(&m, id, name))
        };
        assert_eq!(of("one.1"), [10, 1, 1, 1, 0, 0], "{m:?}");
        assert_eq!(of("two.2"), [20, 0, 0, 0, 1, 10], "{m:?}");
        assert_eq!(sum(&m, "two.2", "write_bytes"), 1000);
        assert_eq!(m.len(), 2);
    });
}

#[test]
fn job_ids_are_made_as_parameters_say_and_forgotten_as_they_say() {
    let c = Cluster::start(1);
    c.run(async {
        let a = c.mount().await;
        let mdt = TargetId::mdt(0);
        a.clone().getattr(call(), a.root()).await.unwrap();
        assert!(stats(&a, mdt).await.is_empty(), "none has a job id unless it is asked for");
        a.set_param("jobid_var", "nodelocal").unwrap();
        a.set_param("jobid_name", "n%u").unwrap();
        let by = Call { cred: model::Cred::new(7, 8), ..call() };
        a.clone().mkdir(by, a.root(), b"d".to_vec(), 0o755).await.unwrap_err();
        a.clone().mkdir(call(), a.root(), b"e".to_vec(), 0o755).await.unwrap();
        a.clone().sync().await.unwrap();
        let known = stats(&a, mdt).await;
        assert_eq!(known.keys().collect::<Vec<_>>(), ["n0", "n7"], "also what fails was asked for");
        assert_eq!(c.try_mdt_param("mdt.*.job_stats", "n8").await, Err(Errno::EINVAL));
        c.set_mdt_param("mdt.*.job_stats", "n7").await;
        assert_eq!(stats(&a, mdt).await.keys().collect::<Vec<_>>(), ["n0"]);
        c.set_mdt_param("mdt.*.job_stats", "clear").await;
        a.set_param("jobid_var", "disable").unwrap();
        let f = striped(&a, "f", 1).await;
        a.clone().close(f).await.unwrap();
        assert!(stats(&a, mdt).await.is_empty());
    });
}

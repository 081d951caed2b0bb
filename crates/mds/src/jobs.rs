//! What jobs do on a metadata target: `mdt.*.job_stats`, by Lustre's names of operations.

use JobCounter as C;
use model::Timestamp;
use model::jobs::Jobs;
use wire::msg::batch::Batch;
use wire::msg::rename::Rename;
use wire::{Op, RequestContext, decode_message};

model::counters! {
    /// In the order in which Lustre shows them. Those that nothing here counts are shown all the same:
    /// programs look for them.
    pub enum JobCounter {
        Open = "open" in "usecs",
        Close = "close" in "usecs",
        Mknod = "mknod" in "usecs",
        Link = "link" in "usecs",
        Unlink = "unlink" in "usecs",
        Mkdir = "mkdir" in "usecs",
        Rmdir = "rmdir" in "usecs",
        Rename = "rename" in "usecs",
        Getattr = "getattr" in "usecs",
        Setattr = "setattr" in "usecs",
        Getxattr = "getxattr" in "usecs",
        Setxattr = "setxattr" in "usecs",
        Statfs = "statfs" in "usecs",
        Sync = "sync" in "usecs",
        SamedirRename = "samedir_rename" in "usecs",
        CrossdirRename = "crossdir_rename" in "usecs",
        ReadBytes = "read_bytes" in "bytes",
        WriteBytes = "write_bytes" in "bytes",
        Read = "read" in "usecs",
        Write = "write" in "usecs",
        Punch = "punch" in "usecs",
        Migrate = "migrate" in "usecs",
        Fallocate = "fallocate" in "usecs",
        Readpage = "readpage" in "usecs",
    }
}

/// What a message counts as; `None`: it is no operation of a program.
fn counter_of(op: Op) -> Option<C> {
    Some(match op {
        Op::Open => C::Open,
        Op::Close => C::Close,
        Op::Create | Op::Mknod | Op::Symlink => C::Mknod,
        Op::Link => C::Link,
        Op::Unlink | Op::Purge => C::Unlink,
        Op::Mkdir => C::Mkdir,
        Op::Rmdir => C::Rmdir,
        Op::Rename => C::Rename,
        Op::Lookup | Op::Getattr | Op::Readlink | Op::Getpath => C::Getattr,
        Op::Setattr => C::Setattr,
        Op::Getxattr | Op::Listxattr => C::Getxattr,
        Op::Setxattr | Op::Removexattr | Op::Setlayout | Op::Components | Op::Swap => C::Setxattr,
        Op::Statfs => C::Statfs,
        Op::Sync => C::Sync,
        Op::Read | Op::Fetch => C::Read,
        Op::Write => C::Write,
        Op::Migrate => C::Migrate,
        Op::Fallocate => C::Fallocate,
        Op::Readdir => C::Readpage,
        _ => return None,
    })
}

/// An operation that was done for a job.
pub struct Done<'a> {
    pub op: Op,
    /// Its message.
    pub body: &'a [u8],
    /// Microseconds.
    pub us: u64,
    /// Data that went either way.
    pub bytes: u64,
    /// A create of its own opens the file as well; one of a batch says only that there is a file.
    pub opens: bool,
}

/// Counts an operation for the job of this id, if there is one.
pub fn count(jobs: &Jobs<JobCounter>, id: &str, done: &Done<'_>, now: impl FnOnce() -> Timestamp) {
    if id.is_empty() {
        return;
    }
    let Some(counter) = counter_of(done.op) else { return };
    let Some(job) = jobs.of(id, now) else { return };
    let s = &job.stats;
    s.add(counter, done.us);
    match counter {
        C::Mknod if done.opens && done.op == Op::Create => s.add(C::Open, done.us),
        C::Rename => match decode_message::<Rename>(done.body) {
            Ok(m) if m.parent == m.new_parent => s.add(C::SamedirRename, done.us),
            Ok(_) => s.add(C::CrossdirRename, done.us),
            Err(_) => {}
        },
        C::Read => s.add(C::ReadBytes, done.bytes),
        C::Write => s.add(C::WriteBytes, done.bytes),
        _ => {}
    }
}

/// Counts the operations of a batch, each for its job, or else for the job of the message. `us`: of each.
pub fn count_batch(
    jobs: &Jobs<JobCounter>,
    ctx: &RequestContext,
    m: &Batch,
    us: u64,
    now: impl Fn() -> Timestamp,
) {
    let of_ops = wire::msg::batch::jobs_of(ctx, m.ops.len());
    for (b, id) in m.ops.iter().zip(of_ops) {
        let Ok(op) = Op::from_u16(b.opcode) else { continue };
        let done = Done { op, body: &b.body, us, bytes: b.bulk.into(), opens: false };
        count(jobs, id, &done, &now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::counters::CounterSet;
    use model::{Fid, limits};
    use wire::encode_message;
    use wire::msg::batch::{BatchOp, set_jobs};

    fn rename(to: u32) -> Vec<u8> {
        let (parent, new_parent) = (Fid::new(5, 1, 0), Fid::new(5, to, 0));
        encode_message(&Rename { parent, name: b"a".to_vec(), new_parent, new_name: b"b".to_vec(), flags: 0 })
    }

    #[test]
    fn what_is_shown_fits_into_a_message() {
        let jobs = Jobs::<JobCounter>::of_set();
        for n in 0..limits::JOBS_MAX as i64 {
            let job =
                jobs.of(&format!("{n:#>31}"), || Timestamp { sec: 1 << 40, nsec: 999_999_999 }).unwrap();
            JobCounter::ALL.iter().for_each(|c| (0..3).for_each(|_| job.stats.add(*c, 4_000_000_000)));
        }
        let bytes = jobs.text(Timestamp { sec: 1 << 40, nsec: 999_999_999 }).len();
        assert!(bytes < limits::RPC_BODY_MAX_BYTES / 10 * 9, "{bytes}");
    }

    #[test]
    fn each_operation_counts_for_its_job() {
        let jobs = Jobs::<JobCounter>::of_set();
        let now = || Timestamp { sec: 5, nsec: 0 };
        let samples = |id: &str, c| jobs.of(id, now).unwrap().stats.total(c);
        let op = |op, body| BatchOp { bulk: 10, ..BatchOp::plain(op as u16, body) };
        let ops = vec![
            op(Op::Create, Vec::new()),
            op(Op::Write, Vec::new()),
            op(Op::Rename, rename(1)),
            op(Op::Rename, rename(2)),
        ];
        let m = Batch { owned: true, ..Batch::plain(ops) };
        let mut ctx = RequestContext { jobid: "whole".into(), ..RequestContext::default() };
        count_batch(&jobs, &ctx, &m, 3, now);
        assert_eq!((samples("whole", C::Mknod), samples("whole", C::Open)), ((1, 3), (0, 0)));
        assert_eq!((samples("whole", C::WriteBytes), samples("whole", C::Rename)), ((1, 10), (2, 6)));
        assert_eq!((samples("whole", C::SamedirRename).0, samples("whole", C::CrossdirRename).0), (1, 1));
        set_jobs(&mut ctx, ["a", "a", "", "b"]);
        count_batch(&jobs, &ctx, &m, 3, now);
        assert_eq!(
            (samples("a", C::Mknod).0, samples("a", C::Write).0, samples("b", C::Rename).0),
            (1, 1, 1)
        );
        assert_eq!(samples("whole", C::Rename).0, 2, "an operation of no job counts for none");
        let create = Done { op: Op::Create, body: &[], us: 4, bytes: 0, opens: true };
        count(&jobs, "c", &create, now);
        assert_eq!((samples("c", C::Open), samples("c", C::Mknod)), ((1, 4), (1, 4)));
        count(&jobs, "", &create, now);
        assert!(!jobs.text(now()).contains("job_id:          \n"));
    }
}

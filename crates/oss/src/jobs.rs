//! What jobs do on a target: `obdfilter.*.job_stats`, by Lustre's names of operations.

use OstJobCounter as C;
use model::Timestamp;
use model::jobs::Jobs;
use model::limits::RPC_BULK_MAX_BYTES;
use wire::Op;

model::counters! {
    /// In the order in which Lustre shows them. Those that nothing here counts are shown all the same:
    /// programs look for them.
    pub enum OstJobCounter {
        ReadBytes = "read_bytes" in "bytes",
        WriteBytes = "write_bytes" in "bytes",
        Read = "read" in "usecs",
        Write = "write" in "usecs",
        Getattr = "getattr" in "usecs",
        Setattr = "setattr" in "usecs",
        Punch = "punch" in "usecs",
        Sync = "sync" in "usecs",
        Destroy = "destroy" in "usecs",
        Create = "create" in "usecs",
        Statfs = "statfs" in "usecs",
        GetInfo = "get_info" in "usecs",
        SetInfo = "set_info" in "usecs",
        Quotactl = "quotactl" in "usecs",
        Prealloc = "prealloc" in "usecs",
        Fallocate = "fallocate" in "usecs",
        Objseek = "objseek" in "usecs",
    }
}

/// What a message counts as; `None`: it is no operation of a program.
fn counter_of(op: Op) -> Option<C> {
    Some(match op {
        Op::Read => C::Read,
        Op::Write | Op::Writelist => C::Write,
        Op::Glimpse | Op::Glimpselist => C::Getattr,
        Op::Truncate => C::Punch,
        Op::Sync => C::Sync,
        Op::Destroy => C::Destroy,
        Op::Statfs => C::Statfs,
        Op::GetParam => C::GetInfo,
        Op::SetParam => C::SetInfo,
        Op::Fallocate => C::Fallocate,
        Op::Seek => C::Objseek,
        _ => return None,
    })
}

/// Counts an operation for the job of this id, if there is one. `bytes`: data that went either way.
pub fn count(
    jobs: &Jobs<OstJobCounter>,
    id: &str,
    op: Op,
    (us, bytes): (u64, u64),
    now: impl FnOnce() -> Timestamp,
) {
    if id.is_empty() {
        return;
    }
    let Some(counter) = counter_of(op) else { return };
    let Some(job) = jobs.of(id, now) else { return };
    assert!(bytes <= RPC_BULK_MAX_BYTES as u64, "an operation moves the data of one message");
    job.stats.add(counter, us);
    match counter {
        C::Read => job.stats.add(C::ReadBytes, bytes),
        C::Write => job.stats.add(C::WriteBytes, bytes),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_count_for_their_job() {
        let jobs = Jobs::<C>::of_set();
        let now = || Timestamp { sec: 5, nsec: 0 };
        count(&jobs, "a", Op::Writelist, (7, 4096), now);
        count(&jobs, "a", Op::Ping, (7, 0), now);
        count(&jobs, "", Op::Write, (7, 10), now);
        let a = jobs.of("a", now).unwrap();
        assert_eq!((a.stats.total(C::Write), a.stats.total(C::WriteBytes)), ((1, 7), (1, 4096)));
        assert_eq!(jobs.text(now()).matches("job_id").count(), 1);
    }
}

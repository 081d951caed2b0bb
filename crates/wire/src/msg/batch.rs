//! batch: many small operations in one message and one transaction, in order.
//!
//! The first that fails stops the rest, unless the batch is an owner's.

use super::lookup::Grant;
use crate::RequestContext;
use model::{Cred, Fid, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchOp {
    pub opcode: u16,
    /// The message as it would stand in a body of its own, without context.
    pub body: Vec<u8>,
    /// On whose behalf: index into [`Batch::creds`]. Without any the sender of the message is meant.
    pub cred: u16,
    /// When the application made the call; [`Timestamp::ZERO`]: when the message was sent.
    pub time: Timestamp,
    /// Bytes of the message's bulk that belong to this operation, behind those of the ones before it.
    pub bulk: u32,
}

impl BatchOp {
    /// An operation of the message's sender, without data.
    pub fn plain(opcode: u16, body: Vec<u8>) -> BatchOp {
        BatchOp { opcode, body, cred: 0, time: Timestamp::ZERO, bulk: 0 }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// At most [`model::limits::BATCH_OPS_MAX`].
    pub ops: Vec<BatchOp>,
    /// The sender has executed them already, under exclusive leases ([`super::own`]), and answered its
    /// applications: one that fails does not stop the others, what they answer is not sent, and space was
    /// promised.
    pub owned: bool,
    /// Whose operations they are.
    pub creds: Vec<Cred>,
}

impl Batch {
    /// Operations of the sender itself, which wait for their answers.
    pub fn plain(ops: Vec<BatchOp>) -> Batch {
        Batch { ops, owned: false, creds: Vec::new() }
    }
}

/// [`RequestContext::extra`] of a batch: for which jobs its operations were done: (how many operations in a
/// row, job id), one behind the other. Without it all of them belong to the job of the message.
pub const EXTRA_JOBS: u16 = 3;

/// Says for which job each operation of a batch was done.
pub fn set_jobs<'a>(ctx: &mut RequestContext, of_ops: impl IntoIterator<Item = &'a str>) {
    let mut runs: Vec<(u16, &str)> = Vec::new();
    for id in of_ops {
        match runs.last_mut() {
            Some((n, last)) if *last == id && *n < u16::MAX => *n += 1,
            _ => runs.push((1, id)),
        }
    }
    ctx.extra.retain(|(tag, _)| *tag != EXTRA_JOBS);
    assert!(runs.iter().all(|(n, _)| *n > 0), "a run has operations");
    let value = runs.iter().flat_map(crate::encode_message).collect();
    ctx.extra.push((EXTRA_JOBS, value));
}

/// The job of each of the `ops` operations of a batch; empty: none.
pub fn jobs_of(ctx: &RequestContext, ops: usize) -> Vec<&str> {
    let said = ctx.extra.iter().find(|(tag, _)| *tag == EXTRA_JOBS);
    let Some(mut rest) = said.map(|(_, v)| &v[..]) else { return vec![&ctx.jobid; ops] };
    let mut out = Vec::with_capacity(ops);
    while out.len() < ops
        && let Ok(((n, id), more)) = postcard::take_from_bytes::<(u16, &str)>(rest)
    {
        let left = ops - out.len();
        out.extend(std::iter::repeat_n(id, usize::from(n).min(left)));
        rest = more;
    }
    out.resize(ops, "");
    assert_eq!(out.len(), ops, "each operation has a job, or none");
    out
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchReply {
    /// (status, reply body) of each operation that ran. An owner's get no bodies.
    pub results: Vec<(u16, Vec<u8>)>,
    /// Leases on the inodes that an owner's operations made.
    pub grants: Vec<(Fid, Grant)>,
}
message!(Batch, Batch, BatchReply);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_job() {
        let mut ctx = RequestContext { jobid: "mine".into(), ..RequestContext::default() };
        assert_eq!(jobs_of(&ctx, 2), ["mine", "mine"]);
        set_jobs(&mut ctx, ["a", "a", "b", "", "a"]);
        assert_eq!(jobs_of(&ctx, 5), ["a", "a", "b", "", "a"]);
        assert_eq!(jobs_of(&ctx, 3), ["a", "a", "b"], "not more than there are operations");
        assert_eq!(jobs_of(&ctx, 6)[5], "", "nor fewer");
        ctx.extra = vec![(EXTRA_JOBS, vec![255, 255, 255])];
        assert_eq!(jobs_of(&ctx, 1), [""], "what cannot be read names no job");
    }
}

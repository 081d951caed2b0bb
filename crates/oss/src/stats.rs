//! What a target counts in `obdfilter.*.stats`.

use model::counters::CounterSet;
use wire::Op;

model::counters! {
    /// Under the names that Lustre's obdfilter has.
    pub enum OstCounter {
        ReadBytes = "read_bytes" in "bytes",
        WriteBytes = "write_bytes" in "bytes",
        Read = "read" in "usecs",
        Write = "write" in "usecs",
        Getattr = "getattr" in "usecs",
        Setattr = "setattr" in "usecs",
        Punch = "punch" in "usecs",
        Fallocate = "fallocate" in "usecs",
        Objseek = "objseek" in "usecs",
        Sync = "sync" in "usecs",
        Destroy = "destroy" in "usecs",
        Fence = "fence" in "usecs",
        Statfs = "statfs" in "usecs",
        Batch = "batch" in "usecs",
        Connect = "connect" in "reqs",
        Reconnect = "reconnect" in "reqs",
        Disconnect = "disconnect" in "reqs",
        GetInfo = "get_info" in "usecs",
        SetInfo = "set_info" in "usecs",
        Quotactl = "quotactl" in "usecs",
        ChecksumWireErrors = "checksum_wire_errors" in "reqs",
        LdlmEnqueue = "ldlm_enqueue" in "usecs",
        LockCallback = "lock_callback" in "reqs",
    }
}

/// The counter of an operation's time, if it has one.
pub const fn counter_of(op: Op) -> Option<OstCounter> {
    OF_OPS[op.index()]
}

const OF_OPS: [Option<OstCounter>; Op::ALL.len()] = {
    let mut all = [None; Op::ALL.len()];
    let mut i = 0;
    while i < all.len() {
        if let Some(name) = Op::ALL[i].verb().ost_counter {
            all[i] = Some(of_name(name));
        }
        i += 1;
    }
    all
};

const fn of_name(name: &str) -> OstCounter {
    let mut i = 0;
    while i < OstCounter::ALL.len() {
        if OstCounter::TABLE[i].is(name) {
            return OstCounter::ALL[i];
        }
        i += 1;
    }
    panic!("an operation has a counter that does not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_under_their_words() {
        assert_eq!(counter_of(Op::Truncate), Some(OstCounter::Punch));
        assert_eq!(counter_of(Op::Writelist), Some(OstCounter::Write));
        assert_eq!(counter_of(Op::Ping), None);
    }
}

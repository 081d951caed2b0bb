//! What a target counts in `obdfilter.*.stats`.

use wire::Op;

/// Names as in Lustre's obdfilter, with their units.
pub const COUNTERS: &[(&str, &str)] = &[
    ("read_bytes", "bytes"),
    ("write_bytes", "bytes"),
    ("read", "usecs"),
    ("write", "usecs"),
    ("getattr", "usecs"),
    ("punch", "usecs"),
    ("fallocate", "usecs"),
    ("objseek", "usecs"),
    ("sync", "usecs"),
    ("destroy", "usecs"),
    ("statfs", "usecs"),
    ("batch", "usecs"),
    ("connect", "reqs"),
    ("reconnect", "reqs"),
    ("disconnect", "reqs"),
    ("get_info", "usecs"),
    ("set_info", "usecs"),
    ("checksum_wire_errors", "reqs"),
    ("ldlm_enqueue", "usecs"),
    ("lock_callback", "reqs"),
];

/// The counter of an operation's time; `None` for what is not counted.
pub fn counter_of(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::Read => "read",
        Op::Write | Op::Writelist => "write",
        Op::Truncate => "punch",
        Op::Fallocate => "fallocate",
        Op::Seek => "objseek",
        Op::Glimpse => "getattr",
        Op::Destroy => "destroy",
        Op::Sync => "sync",
        Op::Statfs => "statfs",
        Op::GetParam => "get_info",
        Op::SetParam => "set_info",
        Op::Batch => "batch",
        Op::Extent => "ldlm_enqueue",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_counter_that_exists() {
        for name in Op::ALL.iter().filter_map(|op| counter_of(*op)) {
            assert!(COUNTERS.contains(&(name, "usecs")), "{name}");
        }
    }
}

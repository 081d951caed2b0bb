//! What a target counts in `obdfilter.*.stats`.

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
    ("fence", "usecs"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Op;

    #[test]
    fn every_operation_has_a_counter_that_exists() {
        for name in Op::ALL.iter().filter_map(|op| op.verb().ost_counter) {
            assert!(COUNTERS.contains(&(name, "usecs")), "{name}");
        }
    }
}

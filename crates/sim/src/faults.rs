//! The faults by their names: a campaign in which one of them never fired has tested less than it says.

/// Name of the counter, and what it is.
pub const FAULTS: [(&str, &str); 36] = [
    ("net_slow_packet", "a packet is late"),
    ("net_reorder", "what an old connection carried arrives behind what the next one did"),
    ("net_duplicate", "a request arrives twice"),
    ("net_bit_flip", "a bit changes under way"),
    ("net_reset", "a connection breaks"),
    ("partition", "two nodes do not hear each other"),
    ("partition_one_way", "one of two nodes does not hear the other"),
    ("power_loss", "a server's host loses power"),
    ("process_kill", "a server's or client's process is killed"),
    ("disk_lost_write", "a write that was not flushed is lost with the power"),
    ("disk_torn_write", "a write that was not flushed is kept in part"),
    ("disk_lost_name", "a name that was not flushed is lost with the power"),
    ("disk_write_eio", "a write fails"),
    ("disk_sync_eio", "a flush fails"),
    ("disk_read_eio", "a read fails"),
    ("disk_enospc", "the disk is full"),
    ("bit_rot", "a bit changes at rest"),
    ("slow_disk", "flushes take long"),
    ("pause", "a node stops for a while"),
    ("server_suspended", "a server stops for a while, and its timers with it"),
    ("server_clocks_stopped", "a server stops for a while, and its clocks with it"),
    ("client_suspended", "a client stops for a while, and its timers with it"),
    ("client_clocks_stopped", "a client stops for a while, and its clocks with it"),
    ("zombie", "a server goes on after somebody else was to take its target"),
    ("change_under_way_at_pause", "a server stops with a change of a file under way"),
    ("failover", "a target starts on its other host"),
    ("failover_again", "a target moves in the middle of its recovery"),
    ("double_start", "both hosts start a target at once"),
    ("fence_lied", "the old server was not ended, though the fence says so"),
    ("stale_client", "a client sleeps until it is evicted, and goes on"),
    ("clock_skew", "wall clocks differ"),
    ("clock_jump", "a wall clock jumps"),
    ("clock_rate", "monotonic clocks go at different rates"),
    ("client_crash", "a client dies"),
    ("server_crash_at_await", "a server dies at a chosen await point"),
    ("client_crash_at_await", "a client dies at a chosen await point"),
];

/// Seeds of a campaign that must have met every fault.
pub const CAMPAIGN_MIN_SEEDS: u64 = 100;

//! What each profile wants of a host, and why. Pure.

/// What a host is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Large files, streams.
    Throughput,
    /// Small files and random reads.
    Iops,
    /// Servers are far away: 10 ms and more.
    Wan,
    /// Many users, who do other things as well.
    LoginNode,
    /// Little memory.
    Small,
}

impl Profile {
    pub const ALL: [Profile; 5] =
        [Profile::Throughput, Profile::Iops, Profile::Wan, Profile::LoginNode, Profile::Small];

    pub fn name(self) -> &'static str {
        match self {
            Profile::Throughput => "throughput",
            Profile::Iops => "iops",
            Profile::Wan => "wan",
            Profile::LoginNode => "login-node",
            Profile::Small => "small",
        }
    }

    pub fn parse(text: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|p| p.name() == text)
    }
}

/// What is wanted of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Want {
    Exactly(&'static str),
    AtLeast(u64),
    AtMost(u64),
    /// The last of three numbers, as `tcp_rmem` has them.
    LastAtLeast(u64),
    /// The first of these that there is; of a list with the chosen one in brackets, or of what another file
    /// lists.
    OneOf(&'static [&'static str]),
}

/// The last word that counts: the chosen one of `none [mq-deadline] bfq`, or all of it.
pub fn chosen(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text.trim(), |(word, _)| word)
}

impl Want {
    /// What it should be, if it is not as wanted. `None`: it is, or nothing that is wanted can be had.
    /// `choices`: words that there are.
    pub fn better(&self, now: &str, choices: &str) -> Option<String> {
        let number = || chosen(now).parse::<u64>().ok();
        match self {
            Want::Exactly(v) => (chosen(now) != *v).then(|| (*v).to_string()),
            Want::AtLeast(n) => number().filter(|have| have < n).map(|_| n.to_string()),
            Want::AtMost(n) => number().filter(|have| have > n).map(|_| n.to_string()),
            Want::LastAtLeast(n) => {
                let all: Vec<&str> = now.split_whitespace().collect();
                let last = all.last()?.parse::<u64>().ok().filter(|have| have < n);
                last.map(|_| format!("{}\t{}\t{n}", all[0], all[all.len() / 2]))
            }
            Want::OneOf(words) => {
                let there = |w: &str| choices.split_whitespace().any(|c| c.trim_matches(['[', ']']) == w);
                let best = words.iter().find(|w| there(w))?;
                (chosen(now) != *best).then(|| (*best).to_string())
            }
        }
    }

    /// As people read it.
    pub fn text(&self) -> String {
        match self {
            Want::Exactly(v) => (*v).to_string(),
            Want::AtLeast(n) => format!("{n} or more"),
            Want::AtMost(n) => format!("{n} or less"),
            Want::LastAtLeast(n) => format!("{n} or more at the end"),
            Want::OneOf(words) => words.join(" or "),
        }
    }
}

/// One wish: where, what, why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub name: &'static str,
    pub want: Want,
    pub why: &'static str,
}

const fn rule(name: &'static str, want: Want, why: &'static str) -> Rule {
    Rule { name, want, why }
}

const MIB: u64 = 1 << 20;

/// What links of this profile need in flight: rate times round trip, twice.
fn socket_bytes(p: Profile) -> Option<u64> {
    match p {
        Profile::Throughput => Some(32 * MIB),
        Profile::Iops | Profile::LoginNode => Some(16 * MIB),
        Profile::Wan => Some(128 * MIB),
        Profile::Small => None,
    }
}

/// Kernel settings (`/proc/sys`); `memory_kb` is that of the host.
pub fn kernel(p: Profile, memory_kb: u64) -> Vec<Rule> {
    let mut out = Vec::new();
    // Of what one link has on its way; the default lets 4 MiB out, which is 80 MiB/s at 50 ms.
    if let Some(n) = socket_bytes(p) {
        let why = "a connection has as much on its way as its buffers hold: rate times round trip";
        out.push(rule("net/core/rmem_max", Want::AtLeast(n), why));
        out.push(rule("net/core/wmem_max", Want::AtLeast(n), why));
        out.push(rule("net/ipv4/tcp_rmem", Want::LastAtLeast(n), why));
        out.push(rule("net/ipv4/tcp_wmem", Want::LastAtLeast(n), why));
    }
    for name in ["net/ipv4/tcp_window_scaling", "net/ipv4/tcp_sack", "net/ipv4/tcp_timestamps"] {
        out.push(rule(name, Want::Exactly("1"), "without it a lost packet or a long way costs a window"));
    }
    if p == Profile::Wan {
        let why = "on a long way a lost packet halves what others than BBR send";
        out.push(rule("net/ipv4/tcp_congestion_control", Want::OneOf(&["bbr", "cubic"]), why));
        out.push(rule("net/core/default_qdisc", Want::Exactly("fq"), "BBR sends by a clock, which fq keeps"));
        out.push(rule(
            "net/ipv4/tcp_mtu_probing",
            Want::Exactly("1"),
            "routers between sites hide small MTUs",
        ));
    } else {
        let why = "within a site cubic shares links with what others send; reno needs long after a loss";
        out.push(rule("net/ipv4/tcp_congestion_control", Want::OneOf(&["cubic", "bbr"]), why));
    }
    if matches!(p, Profile::Throughput | Profile::Wan) {
        let why = "requests come in bursts, and a window that starts small again wastes round trips";
        out.push(rule("net/ipv4/tcp_slow_start_after_idle", Want::Exactly("0"), why));
        out.push(rule(
            "net/core/netdev_max_backlog",
            Want::AtLeast(30_000),
            "bursts of fast links wait there",
        ));
    }
    let dirty = match p {
        Profile::Throughput => Some((20, 5)),
        Profile::Iops => Some((10, 3)),
        Profile::LoginNode => Some((10, 3)),
        Profile::Small => Some((10, 5)),
        Profile::Wan => None,
    };
    if let Some((most, background)) = dirty {
        let why = "what programs wrote goes to disk early and evenly, and a flush never meets a mountain";
        out.push(rule("vm/dirty_ratio", Want::AtMost(most), why));
        out.push(rule("vm/dirty_background_ratio", Want::AtMost(background), why));
    }
    let free_kb = (memory_kb / 100).clamp(65_536, 1 << 20);
    if p != Profile::Small {
        let why = "packets find memory at once; a hundredth of all, 64 MiB to 1 GiB";
        out.push(rule("vm/min_free_kbytes", Want::AtLeast(free_kb), why));
    }
    let why = "memory of the other socket is faster than none";
    out.push(rule("vm/zone_reclaim_mode", Want::Exactly("0"), why));
    if matches!(p, Profile::Throughput | Profile::Iops) {
        let why = "moving pages after threads costs servers more than it gains";
        out.push(rule("kernel/numa_balancing", Want::Exactly("0"), why));
        out.push(rule("vm/swappiness", Want::AtMost(10), "a server that swaps answers late"));
    }
    out
}

/// Queues of the disks under targets (`/sys/block/DISK/queue`).
pub fn queue(p: Profile, rotational: bool) -> Vec<Rule> {
    let why = "heads want neighbours together; flash has none, and every hand-over costs";
    let scheduler: &'static [&'static str] =
        if rotational { &["mq-deadline", "deadline"] } else { &["none", "noop"] };
    let mut out = vec![rule("scheduler", Want::OneOf(scheduler), why)];
    match p {
        Profile::Throughput => {
            let kb = if rotational { 4096 } else { 1024 };
            out.push(rule("read_ahead_kb", Want::AtLeast(kb), "a stream reads whole stripes of a group"));
            out.push(rule("nr_requests", Want::AtLeast(256), "more neighbours meet in the queue"));
        }
        Profile::Iops => {
            let why = "random reads would fetch what nobody asked for";
            out.push(rule("read_ahead_kb", Want::AtMost(128), why));
            let why = "a request ends on the processor that made it";
            out.push(rule("rq_affinity", Want::Exactly("2"), why));
        }
        Profile::Wan | Profile::LoginNode | Profile::Small => {}
    }
    out
}

/// A software RAID under a target (`/sys/block/MD/md`).
pub fn group(p: Profile) -> Vec<Rule> {
    match p {
        Profile::Throughput | Profile::Iops => vec![rule(
            "stripe_cache_size",
            Want::AtLeast(8192),
            "parity is made of whole stripes in memory, without reading the old ones",
        )],
        _ => Vec::new(),
    }
}

/// Our own parameters, of mounts of this host.
pub fn params(p: Profile) -> Vec<Rule> {
    let flight = "requests to one target at a time: they fill the way, and a queue of disks";
    let dirty = "what programs wrote and is not sent yet: rate times round trip, for each target";
    let ahead = "what is fetched before a stream asks";
    let mut out = vec![rule(
        "osc.*.checksums",
        Want::Exactly("1"),
        "wrong bytes are found; what they cost is in the manual (Tuning)",
    )];
    let numbers: &[(&'static str, Want, &'static str)] = match p {
        Profile::Throughput => &[
            ("osc.*.max_rpcs_in_flight", Want::AtLeast(16), flight),
            ("osc.*.max_dirty_mb", Want::AtLeast(256), dirty),
            ("llite.*.max_read_ahead_mb", Want::AtLeast(256), ahead),
            ("llite.*.max_read_ahead_per_file_mb", Want::AtLeast(64), ahead),
        ],
        Profile::Iops => &[("osc.*.max_rpcs_in_flight", Want::AtLeast(32), flight)],
        Profile::Wan => &[
            ("osc.*.max_rpcs_in_flight", Want::AtLeast(64), flight),
            ("osc.*.max_dirty_mb", Want::AtLeast(1024), dirty),
            ("llite.*.max_read_ahead_mb", Want::AtLeast(1024), ahead),
            ("llite.*.max_read_ahead_per_file_mb", Want::AtLeast(256), ahead),
        ],
        Profile::LoginNode => &[
            ("osc.*.max_dirty_mb", Want::AtMost(128), "one user's write keeps little memory from others"),
            ("llite.*.max_cached_mb", Want::AtMost(2048), "memory is for users' programs"),
        ],
        Profile::Small => &[
            ("osc.*.max_dirty_mb", Want::AtMost(32), "memory is scarce"),
            ("llite.*.max_cached_mb", Want::AtMost(256), "memory is scarce"),
            ("llite.*.max_read_ahead_mb", Want::AtMost(64), "memory is scarce"),
        ],
    };
    out.extend(numbers.iter().map(|(name, want, why)| rule(name, want.clone(), why)));
    out
}

/// Flushes a second, beyond which a disk cannot have done them: a platter turns 250 times a second at most.
pub const FLUSHES_MAX_ROTATIONAL: f64 = 300.0;
/// And flash that has a volatile cache needs some 10 us for a page.
pub const FLUSHES_MAX_FLASH: f64 = 50_000.0;

/// Whether a disk does what a flush asks, from what it says of its cache and how many it did in a second.
pub fn honesty(write_cache: &str, rotational: bool, flushes_per_s: Option<f64>) -> (bool, &'static str) {
    let volatile = write_cache.trim() == "write back";
    let most = if rotational { FLUSHES_MAX_ROTATIONAL } else { FLUSHES_MAX_FLASH };
    match flushes_per_s {
        Some(n) if volatile && n > most => (
            true,
            "it lies: no such disk flushes a volatile cache so fast; a power cut loses what was promised",
        ),
        Some(n) if rotational && n > most => (
            false,
            "write-through and faster than a platter turns: true only with a cache that outlives a power cut \
             (battery, flash); ask its controller",
        ),
        Some(_) if volatile => (false, "a volatile cache that is flushed when asked"),
        Some(_) => (false, "no volatile cache, by what it says"),
        None if volatile => (false, "a volatile cache; whether it is flushed when asked was not measured"),
        None => (false, "no volatile cache, by what it says; not measured"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_changed_only_where_it_is_not_as_wanted() {
        let rows = [
            (Want::Exactly("1"), "0\n", "", Some("1")),
            (Want::Exactly("1"), "1\n", "", None),
            (Want::AtLeast(100), "50", "", Some("100")),
            (Want::AtLeast(100), "500", "", None),
            (Want::AtLeast(100), "rubbish", "", None),
            (Want::AtMost(10), "60", "", Some("10")),
            (Want::LastAtLeast(9000), "4096\t16384\t4000", "", Some("4096\t16384\t9000")),
            (Want::LastAtLeast(9000), "4096\t16384\t9000", "", None),
            (Want::OneOf(&["none", "noop"]), "[mq-deadline] none", "[mq-deadline] none", Some("none")),
            (Want::OneOf(&["none"]), "mq-deadline [none]", "mq-deadline [none]", None),
            (Want::OneOf(&["bbr", "cubic"]), "reno", "reno cubic", Some("cubic")),
            (Want::OneOf(&["bbr"]), "reno", "reno cubic", None),
        ];
        for (want, now, choices, better) in rows {
            assert_eq!(want.better(now, choices).as_deref(), better, "{want:?} {now}");
        }
    }

    #[test]
    fn disks_that_lie_are_found_by_how_fast_they_are() {
        assert!(honesty("write back", true, Some(2000.0)).0);
        assert!(!honesty("write back", true, Some(90.0)).0);
        assert!(!honesty("write through", true, Some(2000.0)).0, "a controller with a battery may be so");
        assert!(honesty("write back", false, Some(90_000.0)).0);
        assert!(!honesty("write back\n", false, Some(9000.0)).0);
        assert!(honesty("write back", false, None).1.contains("was not measured"));
    }

    #[test]
    fn profiles_have_names_and_none_wants_two_things_of_one() {
        for p in Profile::ALL {
            assert_eq!(Profile::parse(p.name()), Some(p));
            let mut names: Vec<&str> = kernel(p, 8 << 20).iter().chain(&params(p)).map(|r| r.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|w| w[0] != w[1]), "{p:?}: {names:?}");
            assert!(params(p).iter().any(|r| r.name == "osc.*.checksums" && r.want == Want::Exactly("1")));
        }
        assert_eq!(Profile::parse("fast"), None);
        let free =
            |kb| kernel(Profile::Iops, kb).into_iter().find(|r| r.name == "vm/min_free_kbytes").unwrap().want;
        assert_eq!(free(1 << 20), Want::AtLeast(65_536));
        assert_eq!(free(16 << 20), Want::AtLeast(167_772));
        assert_eq!(free(1 << 30), Want::AtLeast(1 << 20));
    }
}

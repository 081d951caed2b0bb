//! What a cluster of so many servers and disks can do at most, and what bounds it. Pure; the manual has the
//! formulas (`docs/manual/src/planning.md`).

use model::limits::OST_INDEX_MAX;

/// Of a link's bits what is left for data: TCP segments of 1,448 bytes in Ethernet frames of 1,538 (MTU 1500
/// with preamble and gap).
pub const NET_SHARE: f64 = 1448.0 / 1538.0;
/// Of a disk what its file system leaves for data.
pub const DISK_SHARE: f64 = 0.97;
/// How full it should be at most: above, free space is in pieces and streams become slow.
pub const FILL_SHARE: f64 = 0.90;
/// Of what the disks of a local file system give, what ours gave beside it (docs/performance.md,
/// `ior_easy_fpp_1m_write` and `ior_easy_fpp_1m_read_cold`).
pub const WRITE_SHARE: f64 = 0.70;
pub const READ_SHARE: f64 = 0.52;
/// One mount with two processors, which the servers shared, bytes a second (the same rows).
pub const MOUNT_WRITE: f64 = 1543.0 * 1_048_576.0;
pub const MOUNT_READ: f64 = 1465.0 * 1_048_576.0;
/// Operations a second of one metadata target whose host has two processors and the client on it
/// (docs/performance.md, `mdtest_easy_*`).
pub const CREATES: f64 = 18_338.0;
pub const STATS: f64 = 47_667.0;
pub const REMOVALS: f64 = 23_136.0;
/// Ports of a switch, of which two are links to the other one.
const SWITCH_PORTS: u64 = 32;
const UPLINKS: u64 = 2;
/// Disks that fit into a server of two units, and into a box of four beside it.
const DISKS_IN_2U: u64 = 24;
const DISKS_IN_4U: u64 = 60;
/// More of anything is a slip of the finger.
pub const COUNT_MAX: u64 = 1_000_000;
/// Disks of a group: larger ones take days to rebuild.
const GROUP_MAX: u64 = 32;

/// A group of disks: so many with data, so many that may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raid {
    pub data: u64,
    pub parity: u64,
}

/// What there is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hardware {
    /// With OSTs.
    pub servers: u64,
    /// Of each server.
    pub disks: u64,
    pub disk_bytes: u64,
    /// Bytes a second of a disk, one stream.
    pub disk_rate: u64,
    /// Bits a second of a server's links together.
    pub net_bits: u64,
    pub clients: u64,
    /// Of a client.
    pub client_net_bits: u64,
    /// Without one a disk is an OST of its own.
    pub raid: Option<Raid>,
    /// Metadata targets, each on a host of its own.
    pub mdts: u64,
}

/// What bounds streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    Disks,
    ServerNetwork,
    ClientNetwork,
    Clients,
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::Disks => "disks",
            Bound::ServerNetwork => "server_network",
            Bound::ClientNetwork => "client_network",
            Bound::Clients => "clients",
        }
    }

    /// What would help.
    pub fn advice(self) -> &'static str {
        match self {
            Bound::Disks => "the disks: more of them, faster ones, or fewer with parity",
            Bound::ServerNetwork => "the servers' network: faster links, or the same disks in more servers",
            Bound::ClientNetwork => "the clients' network: faster links; servers and disks could do more",
            Bound::Clients => {
                "the clients: each mount does so much; with more of them the servers could do more"
            }
        }
    }
}

/// One direction: bytes a second of each part of the way, and of the whole.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stream {
    pub disks: f64,
    pub server_network: f64,
    pub client_network: f64,
    pub clients: f64,
}

impl Stream {
    fn all(&self) -> [(Bound, f64); 4] {
        [
            (Bound::Disks, self.disks),
            (Bound::ServerNetwork, self.server_network),
            (Bound::ClientNetwork, self.client_network),
            (Bound::Clients, self.clients),
        ]
    }

    /// The narrowest part of the way, and what goes through it.
    pub fn bound(&self) -> (Bound, f64) {
        let all = self.all();
        all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are four")
    }
}

/// What comes of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    pub osts_per_server: u64,
    pub osts: u64,
    /// Disks of each server that are in no group.
    pub spares_per_server: u64,
    pub raw_bytes: f64,
    pub usable_bytes: f64,
    /// What is to be in it at most.
    pub advised_bytes: f64,
    pub read: Stream,
    pub write: Stream,
    /// Through the network while one server of a pair is away, and the other one serves its disks.
    pub one_away: f64,
    pub creates: f64,
    pub stats: f64,
    pub removals: f64,
    pub rack_units: u64,
    pub switches: u64,
}

/// What cannot be, and what to do.
fn check(h: &Hardware) -> Result<(), String> {
    for (what, n) in [("servers", h.servers), ("disks", h.disks), ("clients", h.clients)] {
        if n == 0 || n > COUNT_MAX {
            return Err(format!("--{what} {n}: 1 to {COUNT_MAX}"));
        }
    }
    if h.mdts != 1 {
        let n = h.mdts;
        return Err(format!(
            "--mdts {n}: a file system has one in this release; several file systems have one each"
        ));
    }
    for (what, n) in [("disk-size", h.disk_bytes), ("disk-rate", h.disk_rate)] {
        if n == 0 {
            return Err(format!("--{what} 0: nothing would fit in or come out"));
        }
    }
    for (what, n) in [("net", h.net_bits), ("client-net", h.client_net_bits)] {
        if n < 1_000_000 {
            return Err(format!("--{what} {n} bits a second: nobody would wait for it; 10G is ten gigabits"));
        }
    }
    if h.disk_rate > h.disk_bytes {
        return Err(
            "a disk that is full in a second: --disk-size and --disk-rate are the wrong way round".into()
        );
    }
    if let Some(r) = h.raid {
        let all = r.data + r.parity;
        if r.data == 0 || r.parity == 0 {
            return Err(format!(
                "--raid {}+{}: at least one disk with data and one that may be lost; without --raid each disk is \
                 an OST of its own",
                r.data, r.parity
            ));
        }
        if r.parity > r.data {
            return Err(format!(
                "--raid {0}+{1}: more than half is parity; --raid {0}+{0} holds the same with fewer disks",
                r.data, r.parity
            ));
        }
        if all > GROUP_MAX {
            return Err(format!(
                "--raid {}+{}: {all} disks in a group, {GROUP_MAX} at most: a rebuild would take days and read all \
                 of them; take several groups, as 8+2",
                r.data, r.parity
            ));
        }
        if h.disks < all {
            let smaller = h.disks.saturating_sub(r.parity);
            let advice = if smaller >= r.parity.max(1) {
                format!("--raid {smaller}+{} fits", r.parity)
            } else {
                format!("it takes --disks {all} or more")
            };
            return Err(format!(
                "--raid {}+{} takes {all} disks of one server, and it has {}: {advice}",
                r.data, r.parity, h.disks
            ));
        }
    }
    let osts = u128::from(osts_per_server(h)) * u128::from(h.servers);
    if osts > u128::from(OST_INDEX_MAX) + 1 {
        return Err(format!(
            "{osts} OSTs, and a file system has {} at most: put disks together with --raid, or make two file systems",
            OST_INDEX_MAX + 1
        ));
    }
    Ok(())
}

fn osts_per_server(h: &Hardware) -> u64 {
    h.raid.map_or(h.disks, |r| h.disks / (r.data + r.parity).max(1))
}

/// A server with its disks, in units of a rack.
fn units_of(disks: u64) -> u64 {
    let beside = disks.saturating_sub(DISKS_IN_2U);
    2 + 4 * beside.div_ceil(DISKS_IN_4U)
}

/// The error is a sentence for who typed it.
pub fn plan(h: &Hardware) -> Result<Plan, String> {
    check(h)?;
    let per_server = osts_per_server(h);
    let osts = per_server * h.servers;
    let data_disks = h.raid.map_or(1, |r| r.data) * osts;
    assert!(data_disks <= h.disks * h.servers, "disks with data are disks");
    let data = data_disks as f64;
    let link = |bits: u64, n: u64| bits as f64 / 8.0 * NET_SHARE * n as f64;
    let (server_network, client_network) = (link(h.net_bits, h.servers), link(h.client_net_bits, h.clients));
    let stream = |share: f64, mount: f64| Stream {
        disks: data * h.disk_rate as f64 * share,
        server_network,
        client_network,
        clients: mount * h.clients as f64,
    };
    let usable = data * h.disk_bytes as f64 * DISK_SHARE;
    let mdts = h.mdts as f64;
    // Servers and metadata hosts; clients have switches of their own.
    let switches = (h.servers + h.mdts).div_ceil(SWITCH_PORTS - UPLINKS).max(2);
    let p = Plan {
        osts_per_server: per_server,
        osts,
        spares_per_server: h.disks - per_server * h.raid.map_or(1, |r| r.data + r.parity),
        raw_bytes: h.disks as f64 * h.servers as f64 * h.disk_bytes as f64,
        usable_bytes: usable,
        advised_bytes: usable * FILL_SHARE,
        read: stream(READ_SHARE, MOUNT_READ),
        write: stream(WRITE_SHARE, MOUNT_WRITE),
        one_away: link(h.net_bits, h.servers - 1),
        creates: CREATES * mdts,
        stats: STATS * mdts,
        removals: REMOVALS * mdts,
        rack_units: units_of(h.disks) * h.servers + h.mdts + switches,
        switches,
    };
    assert!(p.usable_bytes <= p.raw_bytes, "no more is usable than there is");
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TB: u64 = 1_000_000_000_000;

    fn hardware() -> Hardware {
        Hardware {
            servers: 20,
            disks: 24,
            disk_bytes: 16 * TB,
            disk_rate: 250_000_000,
            net_bits: 100_000_000_000,
            clients: 400,
            client_net_bits: 100_000_000_000,
            raid: Some(Raid { data: 8, parity: 2 }),
            mdts: 1,
        }
    }

    #[test]
    fn sites_are_planned_by_their_narrowest_part() {
        // (what, hardware, OSTs, usable TB, GB/s read, what bounds reads, GB/s written, what bounds writes)
        let h = hardware();
        let rows = [
            ("grid site", h, 40, 4966, 41.6, Bound::Disks, 56.0, Bound::Disks),
            (
                "10G",
                Hardware { net_bits: 10_000_000_000, ..h },
                40,
                4966,
                23.5,
                Bound::ServerNetwork,
                23.5,
                Bound::ServerNetwork,
            ),
            (
                "few clients",
                Hardware { clients: 10, ..h },
                40,
                4966,
                15.4,
                Bound::Clients,
                16.2,
                Bound::Clients,
            ),
            (
                "1G clients",
                Hardware { clients: 100, client_net_bits: 1_000_000_000, ..h },
                40,
                4966,
                11.8,
                Bound::ClientNetwork,
                11.8,
                Bound::ClientNetwork,
            ),
            ("single disks", Hardware { raid: None, ..h }, 480, 7449, 62.4, Bound::Disks, 84.0, Bound::Disks),
            (
                "mirrors",
                Hardware { raid: Some(Raid { data: 1, parity: 1 }), ..h },
                240,
                3724,
                31.2,
                Bound::Disks,
                42.0,
                Bound::Disks,
            ),
            (
                "one of each",
                Hardware { servers: 1, disks: 1, clients: 1, raid: None, ..h },
                1,
                15,
                0.1,
                Bound::Disks,
                0.2,
                Bound::Disks,
            ),
        ];
        for (what, h, osts, usable, read, read_bound, written, write_bound) in rows {
            let p = plan(&h).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!((p.osts, (p.usable_bytes / 1e12) as u64), (osts, usable), "{what}");
            let gb = |s: Stream| ((s.bound().1 / 1e8).round() / 10.0, s.bound().0);
            assert_eq!((gb(p.read), gb(p.write)), ((read, read_bound), (written, write_bound)), "{what}");
        }
    }

    #[test]
    fn racks_spares_and_metadata_are_counted() {
        let p = plan(&hardware()).unwrap();
        assert_eq!((p.osts_per_server, p.spares_per_server), (2, 4));
        assert_eq!((p.rack_units, p.switches), (20 * 2 + 1 + 2, 2));
        assert_eq!((p.creates, p.stats, p.removals), (18_338.0, 47_667.0, 23_136.0));
        assert!((p.one_away / p.read.server_network - 0.95).abs() < 1e-9);
        assert_eq!([1, 24, 25, 84, 85].map(units_of), [2, 2, 6, 6, 10]);
        let many = plan(&Hardware { servers: 100, ..hardware() }).unwrap();
        assert_eq!(many.switches, 4, "101 hosts at 30 ports");
        let alone = plan(&Hardware { servers: 1, ..hardware() }).unwrap();
        assert_eq!(alone.one_away, 0.0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        let raid = |data, parity| Some(Raid { data, parity });
        let h = hardware();
        let rows = [
            (Hardware { servers: 0, ..h }, "--servers 0: 1 to 1000000"),
            (
                Hardware { disks: 8, ..h },
                "--raid 8+2 takes 10 disks of one server, and it has 8: --raid 6+2 fits",
            ),
            (
                Hardware { disks: 2, ..h },
                "--raid 8+2 takes 10 disks of one server, and it has 2: it takes --disks 10 or more",
            ),
            (Hardware { raid: raid(8, 0), ..h }, "--raid 8+0: at least one disk with data"),
            (Hardware { raid: raid(2, 4), ..h }, "--raid 2+4: more than half is parity"),
            (Hardware { raid: raid(30, 3), disks: 40, ..h }, "--raid 30+3: 33 disks in a group, 32 at most"),
            (Hardware { raid: None, servers: 5000, ..h }, "120000 OSTs, and a file system has 65503 at most"),
            (Hardware { net_bits: 100, ..h }, "--net 100 bits a second"),
            (Hardware { disk_rate: 17 * TB, ..h }, "a disk that is full in a second"),
            (Hardware { disk_bytes: 0, ..h }, "--disk-size 0"),
            (Hardware { mdts: 2, ..h }, "--mdts 2: a file system has one in this release"),
        ];
        for (h, part) in rows {
            let said = plan(&h).expect_err(part);
            assert!(said.contains(part), "{said}");
        }
    }
}

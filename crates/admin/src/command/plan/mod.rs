//! `nacre plan`: what a cluster could do before somebody buys it.

mod estimate;

use self::estimate::{Bound, Hardware, Plan, Raid, Stream, plan};
use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::{output, say};
use model::Errno;
use serde_json::{Value, json};
use std::ffi::OsString;

const USAGE: &str = "\
usage: nacre plan --servers N --disks N --disk-size SIZE --disk-rate RATE
                  --net BITS --clients N [--client-net BITS] [--raid DATA+PARITY]
                  [--mdts N] [--json]

Says what such a cluster would hold and do, and what bounds it. Nothing is
asked or changed. The formulas and where their numbers come from are in the
manual (Planning). Units are those of who sells disks: 1T is 10^12.

      --servers N         with OSTs
      --disks N           of each server
      --disk-size SIZE    of a disk: 16T
      --disk-rate RATE    bytes a second of one: 250M
      --net BITS          bits a second of a server's links together: 100G
      --clients N         mounts that work at the same time
      --client-net BITS   of a client (as the servers)
      --raid DATA+PARITY  disks of a group, which is an OST: 8+2 (each disk is an
                          OST of its own)
      --mdts N            metadata targets: 1 in this release
      --json              one JSON document

exit status: 0, 4 wrong usage, 22 it cannot be built so
";

const OPTS: &[Opt] = &[
    value('\0', "servers"),
    value('\0', "disks"),
    value('\0', "disk-size"),
    value('\0', "disk-rate"),
    value('\0', "net"),
    value('\0', "clients"),
    value('\0', "client-net"),
    value('\0', "raid"),
    value('\0', "mdts"),
    flag('\0', "json"),
];

/// `16T`, `250M`, `1.6T`: powers of ten.
fn decimal(text: &str) -> Option<u64> {
    let (digits, unit) = match text.chars().last()? {
        c if c.is_ascii_digit() => (text, 1.0),
        c => (
            &text[..text.len() - c.len_utf8()],
            match c.to_ascii_lowercase() {
                'k' => 1e3,
                'm' => 1e6,
                'g' => 1e9,
                't' => 1e12,
                'p' => 1e15,
                _ => return None,
            },
        ),
    };
    let plain = digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.contains(['e', 'E']);
    let n: f64 = digits.parse().ok().filter(|_| plain)?;
    let all = n * unit;
    (all < 1e19).then_some(all as u64)
}

fn wanted<'a>(p: &'a Parsed, name: &str) -> Result<&'a str, Failure> {
    p.value(name).ok_or_else(|| Failure::usage(format!("--{name} is missing")))
}

fn amount(p: &Parsed, name: &str, example: &str) -> Result<u64, Failure> {
    let text = wanted(p, name)?;
    let bad = || {
        Failure::usage(format!("bad value '{text}' of --{name}: a number with k, M, G, T or P, as {example}"))
    };
    decimal(text).ok_or_else(bad)
}

fn count(p: &Parsed, name: &str) -> Result<u64, Failure> {
    let text = wanted(p, name)?;
    text.parse().map_err(|_| Failure::usage(format!("bad value '{text}' of --{name}: a whole number")))
}

fn raid(text: &str) -> Result<Raid, Failure> {
    let both = text.split_once('+').and_then(|(d, p)| Some((d.parse().ok()?, p.parse().ok()?)));
    let both = both.filter(|(d, p): &(u64, u64)| *d <= 1000 && *p <= 1000);
    let bad =
        || Failure::usage(format!("bad value '{text}' of --raid: disks with data and with parity, as 8+2"));
    both.map(|(data, parity)| Raid { data, parity }).ok_or_else(bad)
}

fn hardware(p: &Parsed) -> Result<Hardware, Failure> {
    let net_bits = amount(p, "net", "100G")?;
    Ok(Hardware {
        servers: count(p, "servers")?,
        disks: count(p, "disks")?,
        disk_bytes: amount(p, "disk-size", "16T")?,
        disk_rate: amount(p, "disk-rate", "250M")?,
        net_bits,
        clients: count(p, "clients")?,
        client_net_bits: if p.has("client-net") { amount(p, "client-net", "25G")? } else { net_bits },
        raid: p.value("raid").map(raid).transpose()?,
        mdts: if p.has("mdts") { count(p, "mdts")? } else { 1 },
    })
}

fn tb(bytes: f64) -> String {
    let (n, unit) = if bytes >= 1e15 { (bytes / 1e15, "PB") } else { (bytes / 1e12, "TB") };
    format!("{n:.1} {unit}")
}

fn gb(rate: f64) -> String {
    format!("{:.1} GB/s", rate / 1e9)
}

fn thousands(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// What is worth a thought though it can be built.
fn remarks(h: &Hardware, p: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    if h.raid.is_none() {
        out.push("no parity: a lost disk loses what lies on it (nacre lost lists the files)".to_string());
    }
    if p.spares_per_server > 0 && h.raid.is_some() {
        let n = p.spares_per_server;
        out.push(format!(
            "{n} disks of each server are in no group: spares, or another --raid that uses them"
        ));
    }
    if h.raid.is_some_and(|r| !r.data.is_power_of_two()) {
        out.push("an odd number of disks with data: writes of 1 MiB, 4 MiB never fill whole stripes; 4, 8 or 16 do".into());
    }
    if h.servers == 1 {
        out.push("one server: while it is away nobody reads or writes".into());
    } else if h.servers % 2 == 1 {
        out.push("an odd number of servers: pairs that take over from each other need an even one".into());
    }
    if h.mdts == 1 && p.osts > 200 {
        out.push("one metadata target for so many OSTs: file systems of fewer servers have one each".into());
    }
    out
}

fn text(h: &Hardware, p: &Plan) -> Vec<String> {
    let line = |name: &str, value: String| format!("{name:<22} {value}");
    let raid = h.raid.map_or("single disks".into(), |r| format!("{}+{}", r.data, r.parity));
    let stream = |s: &Stream| {
        let (bound, rate) = s.bound();
        let others = [
            (Bound::Disks, s.disks),
            (Bound::ServerNetwork, s.server_network),
            (Bound::ClientNetwork, s.client_network),
            (Bound::Clients, s.clients),
        ];
        let others = others.into_iter().filter(|(b, _)| *b != bound);
        let others: Vec<String> =
            others.map(|(b, r)| format!("{} {}", b.name().replace('_', " "), gb(r))).collect();
        format!("{}, bound by {}\n{:<22} ({})", gb(rate), bound.advice(), "", others.join(", "))
    };
    let mut out = vec![
        line("OSTs", format!("{} ({} a server, {raid})", p.osts, p.osts_per_server)),
        line(
            "usable",
            format!(
                "{} of {} raw; {} when 90% full",
                tb(p.usable_bytes),
                tb(p.raw_bytes),
                tb(p.advised_bytes)
            ),
        ),
        line("read", stream(&p.read)),
        line("written", stream(&p.write)),
        line("one server away", format!("{} through the network of the others", gb(p.one_away))),
        line("creates", format!("{}/s", thousands(p.creates))),
        line("stats", format!("{}/s", thousands(p.stats))),
        line(
            "removals",
            format!("{}/s (as measured with two processors a metadata target)", thousands(p.removals)),
        ),
        line("rack units", format!("{}, with {} switches, without clients", p.rack_units, p.switches)),
    ];
    out.extend(remarks(h, p).into_iter().map(|r| line("note", r)));
    out
}

fn as_json(h: &Hardware, p: &Plan) -> Value {
    let stream = |s: &Stream| {
        let (bound, rate) = s.bound();
        json!({"bytes_per_s": rate.round(), "bound_by": bound.name(), "advice": bound.advice(),
               "disks": s.disks.round(), "server_network": s.server_network.round(),
               "client_network": s.client_network.round(), "clients": s.clients.round()})
    };
    json!({"osts": p.osts, "osts_per_server": p.osts_per_server, "spares_per_server": p.spares_per_server,
           "raw_bytes": p.raw_bytes.round(), "usable_bytes": p.usable_bytes.round(), "advised_bytes": p.advised_bytes.round(),
           "read": stream(&p.read), "write": stream(&p.write), "one_server_away_bytes_per_s": p.one_away.round(),
           "creates_per_s": p.creates, "stats_per_s": p.stats, "removals_per_s": p.removals,
           "rack_units": p.rack_units, "switches": p.switches, "remarks": remarks(h, p)})
}

fn run(args: &[OsString]) -> Result<i32, Failure> {
    let p = getopt::parse(args, OPTS)?;
    if let Some(o) = p.operands.first() {
        return Err(Failure::usage(format!("'{}': it takes options only", o.to_string_lossy())));
    }
    let h = hardware(&p)?;
    let plan = plan(&h).map_err(|text| Failure::Op { text, errno: Errno::EINVAL })?;
    if p.has("json") {
        output::json(&as_json(&h, &plan));
    } else {
        text(&h, &plan).iter().for_each(|l| say!("{l}"));
    }
    Ok(0)
}

/// The command: arguments behind `plan`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre plan", USAGE), args, Failure::exit_code, run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Hardware, Failure> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        hardware(&getopt::parse(&args, OPTS)?)
    }

    const SITE: &str = "--servers 20 --disks 24 --disk-size 16T --disk-rate 250M --net 100G --clients 400";

    #[test]
    fn options_are_amounts_of_who_sells_disks() {
        let h = of(&format!("{SITE} --raid 8+2 --client-net 25G")).unwrap();
        assert_eq!(
            (h.disk_bytes, h.disk_rate, h.net_bits),
            (16_000_000_000_000, 250_000_000, 100_000_000_000)
        );
        assert_eq!(
            (h.client_net_bits, h.raid, h.mdts),
            (25_000_000_000, Some(Raid { data: 8, parity: 2 }), 1)
        );
        let amounts =
            ["7", "1.5k", "3P", "", "x", "1e9", "-1", "1Ti", "9999P", ".5G", "99999999P"].map(decimal);
        let known = [Some(7), Some(1500), Some(3_000_000_000_000_000)];
        assert_eq!((&amounts[..3], amounts[8]), (&known[..], Some(9_999_000_000_000_000_000)));
        assert!(amounts[3..8].iter().chain(&amounts[9..]).all(Option::is_none), "{amounts:?}");
        for (line, part) in [
            ("--servers 2", "--net is missing"),
            (&format!("{SITE} --raid 8"), "bad value '8' of --raid"),
            (&format!("{SITE} --mdts x"), "bad value 'x' of --mdts: a whole number"),
            (
                &format!("{SITE} --net 10Gb"),
                "bad value '10Gb' of --net: a number with k, M, G, T or P, as 100G",
            ),
        ] {
            let said = of(line).expect_err(part).to_string();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_plan_is_told_with_what_bounds_it() {
        let h = of(&format!("{SITE} --raid 8+2")).unwrap();
        let p = plan(&h).unwrap();
        let lines = text(&h, &p);
        assert_eq!(lines[0], "OSTs                   40 (2 a server, 8+2)");
        assert_eq!(lines[1], "usable                 5.0 PB of 7.7 PB raw; 4.5 PB when 90% full");
        assert!(
            lines[2].starts_with("read                   41.6 GB/s, bound by the disks: "),
            "{}",
            lines[2]
        );
        assert!(
            lines[2].ends_with("(server network 235.4 GB/s, client network 4707.4 GB/s, clients 614.5 GB/s)"),
            "{}",
            lines[2]
        );
        assert_eq!(lines[5], "creates                18,338/s");
        assert!(lines.last().is_some_and(|l| l.contains("4 disks of each server are in no group")));
        let v = as_json(&h, &p);
        assert_eq!((&v["read"]["bound_by"], &v["rack_units"]), (&json!("disks"), &json!(43)));
        let odd = of(&format!("{SITE} --servers 3 --raid 7+1")).unwrap();
        assert_eq!(remarks(&odd, &plan(&odd).unwrap()).len(), 2);
    }
}

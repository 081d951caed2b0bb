//! `nacre domains`: the failure domains of a file system, the targets in them, and their space.

use super::with_page;
use crate::command::df;
use crate::command::osts::chosen_file_systems;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::LocalMount;
use crate::size::human;
use crate::{output, say};
use client::control::{Target, TargetSpace};
use model::{Errno, TargetKind};
use serde_json::{Value, json};
use std::ffi::OsString;

const USAGE: &str = "\
usage: nacre domains [--json] [MOUNT...]

Shows the failure domains of the file systems that are mounted at these places
(of all that are mounted here without any): racks, hosts, or however targets
were placed (mkfs.nacre --domain, tunefs.nacre --domain), with the targets in
them. A target that was placed nowhere stands in its server. Stripes of a file
go to different hosts first, of these to different racks. A domain's space is
that of its OSTs, what several of them lie on once.

exit status: 0, or the errno of the first failure, 4 wrong usage
";

/// A domain, and what stands in it.
#[derive(Default)]
struct Domain<'a> {
    name: &'a str,
    domains: Vec<Domain<'a>>,
    targets: Vec<&'a TargetSpace>,
}

/// Where a target stands; the NID that it is reached at if nobody placed it.
fn place(t: &Target) -> Vec<String> {
    if t.domain.is_empty() { vec![t.nid.clone()] } else { t.domain.clone() }
}

impl<'a> Domain<'a> {
    /// A tree with these targets, each at its place; names in order.
    fn tree(all: &'a [(Vec<String>, TargetSpace)]) -> Domain<'a> {
        let mut root = Domain::default();
        for (place, target) in all {
            let mut at = &mut root;
            for name in place {
                let known = at.domains.binary_search_by(|d| d.name.cmp(name));
                let i = known.unwrap_or_else(|i| {
                    at.domains.insert(i, Domain { name, ..Domain::default() });
                    i
                });
                at = &mut at.domains[i];
            }
            at.targets.push(target);
        }
        root
    }

    fn all_targets(&self) -> Vec<&'a TargetSpace> {
        let inner = self.domains.iter().flat_map(Domain::all_targets);
        self.targets.iter().copied().chain(inner).collect()
    }

    fn space(&self) -> df::Numbers {
        let all = self.all_targets();
        df::bytes_of(all.into_iter().filter(|t| t.target.target.kind == TargetKind::Ost))
    }

    fn show(&self, depth: usize) {
        let n = self.space();
        row(depth, self.name, Some(n), "");
        self.targets.iter().for_each(|t| show_target(depth + 1, t));
        self.domains.iter().for_each(|d| d.show(depth + 1));
    }

    fn json(&self) -> Value {
        let n = self.space();
        let domains: Vec<_> = self.domains.iter().map(Domain::json).collect();
        let targets: Vec<_> = self.targets.iter().map(|t| target_json(t)).collect();
        json!({"name": self.name, "total_bytes": n.total, "used_bytes": n.used, "available_bytes": n.available,
               "domains": domains, "targets": targets})
    }
}

fn row(depth: usize, name: &str, n: Option<df::Numbers>, tail: &str) {
    let name = format!("{:1$}{name}", "", 2 * depth);
    let line = match n {
        Some(n) => {
            let show = |bytes| human(bytes, 1024);
            let percent = format!("{}%", n.percent());
            format!(
                "{name:<36} {:>9} {:>9} {:>9} {percent:>4} {tail}",
                show(n.total),
                show(n.used),
                show(n.available)
            )
        }
        None => format!("{name:<36} {tail}"),
    };
    say!("{}", line.trim_end());
}

/// Of a target itself, whether or not others share its disk.
fn show_target(depth: usize, s: &TargetSpace) {
    let name = s.target.target.to_string();
    match s.errno {
        _ if !s.target.active => row(depth, &name, None, "inactive device"),
        Some(e) => row(depth, &name, None, Errno(e).text()),
        None => row(depth, &name, Some(numbers(s)), &df::letters(s.flags)),
    }
}

fn numbers(s: &TargetSpace) -> df::Numbers {
    df::Numbers { total: s.total, used: s.total.saturating_sub(s.free), available: s.available }
}

fn target_json(s: &TargetSpace) -> Value {
    let n = numbers(s);
    json!({"target": s.target.target.to_string(), "uuid": s.target.uuid, "nid": s.target.nid,
           "placed": !s.target.domain.is_empty(), "active": s.target.active, "errno": s.errno,
           "state": df::letters(s.flags), "total_bytes": n.total, "used_bytes": n.used,
           "available_bytes": n.available})
}

fn one_mount(m: &LocalMount, as_json: bool, errors: &mut FirstError) -> Result<Value, Failure> {
    let all: Vec<_> = df::space(m, None)?.into_iter().map(|s| (place(&s.target), s)).collect();
    for (_, s) in all.iter().filter(|(_, s)| s.target.active) {
        if let Some(e) = s.errno {
            errors.report("nacre domains", &Failure::op("cannot get space of", &s.target.uuid, Errno(e)));
        }
    }
    let root = Domain { name: &m.name.fsname, ..Domain::tree(&all) };
    if as_json {
        return Ok(json!({"fsname": m.name.fsname, "mount": m.dir, "tree": root.json()}));
    }
    root.show(0);
    Ok(Value::Null)
}

fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json")])?;
    let as_json = p.has("json");
    let (mut errors, mut rows) = (FirstError::default(), Vec::new());
    let mounts = chosen_file_systems(&p.operands)?;
    if !as_json {
        let [total, used, free] = ["Size", "Used", "Available"];
        say!("{:<36} {total:>9} {used:>9} {free:>9} {:>4}", "Domain", "Use%");
    }
    for m in mounts {
        rows.push(one_mount(&m, as_json, &mut errors)?);
    }
    if as_json {
        output::json(&json!(rows));
    }
    Ok(errors)
}

/// The command: arguments behind `domains`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    let run = |args: &[OsString]| run(args).map(|errors| errors.exit_code());
    with_page(("nacre domains", USAGE), args, Failure::exit_code, run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{TargetId, domain};

    fn target(id: TargetId, domain: &str, disk: u64, total: u64) -> (Vec<String>, TargetSpace) {
        let target = Target {
            target: id,
            uuid: format!("demo-{id}_UUID"),
            nid: "10.0.0.1@tcp".into(),
            state: "FULL".into(),
            active: true,
            server: "oss1".into(),
            heard: model::Timestamp::ZERO,
            away: None,
            refusal: None,
            domain: domain::parse(domain).unwrap(),
        };
        let (free, available) = (total / 2, total / 4);
        let s = TargetSpace {
            target,
            errno: None,
            total,
            free,
            available,
            files: 9,
            files_free: 8,
            disk,
            flags: 0,
        };
        (place(&s.target), s)
    }

    #[test]
    fn targets_stand_in_their_domains_and_a_disk_of_several_is_counted_once() {
        let all = [
            target(TargetId::mdt(0), "", 1, 400),
            target(TargetId::ost(0), "rack2/host3", 1, 400),
            target(TargetId::ost(1), "rack2/host3", 1, 400),
            target(TargetId::ost(2), "rack1/host1", 2, 400),
            target(TargetId::ost(3), "", 0, 400),
        ];
        let tree = Domain::tree(&all);
        let names: Vec<_> = tree.domains.iter().map(|d| d.name).collect();
        assert_eq!(names, ["10.0.0.1@tcp", "rack1", "rack2"]);
        let host3 = &tree.domains[2].domains[0];
        assert_eq!((host3.name, host3.targets.len()), ("host3", 2));
        assert_eq!(host3.space(), df::Numbers { total: 400, used: 200, available: 100 });
        assert_eq!(tree.space().total, 1200, "three disks of OSTs");
        assert_eq!(tree.domains[0].targets.len(), 2, "what was placed nowhere stands in its server");
        let j = tree.json();
        assert_eq!(j["domains"][2]["domains"][0]["targets"][1]["target"], "OST0001");
        assert_eq!(j["domains"][0]["targets"][1]["placed"], false);
    }
}

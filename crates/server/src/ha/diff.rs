//! `nacre ha diff`: what hosts of a cluster have that should be alike, compared with what this one has; each
//! difference with the command that mends it.

use super::inventory::{self, Inventory, Item, Unit};
use super::plan::{quoted, read_plan};
use super::{FAILED, OK, etcd};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::sys::{self, files, process};

/// For a host that hangs.
const REMOTE_PATIENCE: Duration = Duration::from_secs(20);
/// More hosts than any cluster manager takes.
const MAX_HOSTS: usize = 256;

#[derive(Args)]
pub struct DiffArgs {
    /// Description of the cluster, which names the hosts
    #[arg(long, default_value = inventory::PLAN)]
    plan: PathBuf,
    /// The hosts of the targets on this etcd instead
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Option<::etcd::Url>,
    /// Runs a command on another host, whose name is added
    #[arg(long, default_value = "ssh -o BatchMode=yes -o ConnectTimeout=5")]
    remote: String,
    #[arg(long)]
    json: bool,
    /// These hosts instead
    hosts: Vec<String>,
}

/// One thing that is not alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Difference {
    host: String,
    /// `program`, `agent`, `plan`, `unit nacre-mgs.service`.
    what: String,
    how: String,
    /// A command of this host.
    mend: String,
}

#[derive(Serialize)]
struct Report<'a> {
    /// With which the others are compared.
    reference: &'a str,
    hosts: &'a [String],
    differences: &'a [Difference],
}

/// What another host says that it has.
fn ask(remote: &str, host: &str, plan: &Path) -> Result<Inventory, String> {
    let mut words: Vec<&str> = remote.split_whitespace().collect();
    let plan = quoted(&plan.display().to_string());
    words.extend([host, "nacre", "ha", "inventory", "--json", "--plan", &plan]);
    let done = process::run_within(words[0], &words[1..], REMOTE_PATIENCE);
    let done = done.map_err(|e| format!("cannot run '{}': {e}", words[0]))?;
    if done.status != Some(0) {
        return Err(done.last_words().to_string());
    }
    serde_json::from_str(&done.out).map_err(|e| format!("what it says is not understood: {e}"))
}

/// Two hosts, `a` where this runs.
struct Pair<'a> {
    a: &'a Inventory,
    b: &'a Inventory,
    /// As `b` is called here.
    host: &'a str,
    out: Vec<Difference>,
}

impl Pair<'_> {
    fn add(&mut self, what: &str, how: String, mend: String) {
        assert!(!what.is_empty() && !mend.is_empty(), "a difference has a name and a remedy");
        self.out.push(Difference { host: self.host.to_string(), what: what.to_string(), how, mend });
    }

    /// Both have it and it is alike, or none has it.
    fn file(&mut self, what: &str, a: Option<&Item>, b: Option<&Item>, then: &str) {
        let host = self.host;
        let to = |i: &Item| format!("scp {0} {host}:{0}", quoted(&i.path));
        match (a, b) {
            (Some(a), Some(b)) if a.digest != b.digest => {
                let how = format!("'{}' has {}; here {}", b.path, b.digest, a.digest);
                let from = quoted(&a.path);
                self.add(what, how, format!("scp {from} {host}:{}{then}", quoted(&b.path)));
            }
            (Some(a), None) => {
                let folder = a.path.rsplit_once('/').map_or("/", |(f, _)| f);
                let mend = format!("ssh {host} mkdir -p {} && {}{then}", quoted(folder), to(a));
                self.add(what, format!("'{}' is missing there", a.path), mend);
            }
            (None, Some(b)) => {
                let folder = quoted(b.path.rsplit_once('/').map_or("/", |(f, _)| f));
                let mend = format!("mkdir -p {folder} && scp {host}:{0} {0}", quoted(&b.path));
                self.add(what, format!("'{}' is there, and missing here", b.path), mend);
            }
            _ => {}
        }
    }

    fn program(&mut self) {
        let (a, b, host) = (self.a, self.b, self.host);
        if a.version == b.version && a.program.digest == b.program.digest {
            return;
        }
        let how =
            format!("Nacre {} ({}); here {} ({})", b.version, b.program.digest, a.version, a.program.digest);
        let (from, to) = (quoted(&a.program.path), quoted(&b.program.path));
        // A program that runs is replaced, never written to.
        let mend = format!(
            "scp {from} {host}:{to}.new && ssh {host} mv {to}.new {to}; then move its targets away and back"
        );
        self.add("program", how, mend);
    }

    fn unit(&mut self, name: &str, a: Option<&Unit>, b: Option<&Unit>) {
        let (what, host) = (format!("unit {name}"), self.host);
        let then =
            if a.is_some() { format!(" && ssh {host} systemctl daemon-reload") } else { String::new() };
        self.file(&what, a.map(|u| &u.file), b.map(|u| &u.file), &then);
        if let (Some(a), Some(b)) = (a, b)
            && a.enabled != b.enabled
        {
            let word = |on| if on { "enable" } else { "disable" };
            let (there, here) = (word(b.enabled), word(a.enabled));
            let how = format!("is {there}d there and {here}d here");
            self.add(&what, how, format!("ssh {host} systemctl {here} {name}"));
        }
    }
}

/// In what `b`, which is called `host` here, is not like `a`.
fn compare(a: &Inventory, host: &str, b: &Inventory) -> Vec<Difference> {
    let mut p = Pair { a, b, host, out: Vec::new() };
    if b.host != host {
        let how = format!("calls itself '{}': a cluster manager goes by that name", b.host);
        p.add("name", how, format!("ssh {host} hostnamectl set-hostname {host}"));
    }
    p.program();
    p.file("agent", a.agent.as_ref(), b.agent.as_ref(), "");
    p.file("plan", a.plan.as_ref(), b.plan.as_ref(), "");
    if let (Some(x), Some(y)) = (&a.defaults, &b.defaults)
        && x.digest != y.digest
    {
        let how = format!("'{}' differs in more than NACRE_NID", y.path);
        p.add("defaults", how, format!("ssh {host} cat {0} | diff - {0}", x.path));
    } else if a.defaults.is_some() != b.defaults.is_some() {
        let how = format!("'{}' is on one of the two only", inventory::DEFAULTS);
        p.add("defaults", how, "write it as docs/ha.md says, \"MGS and controllers\"".into());
    }
    let names: std::collections::BTreeSet<&String> = a.units.keys().chain(b.units.keys()).collect();
    for n in names {
        p.unit(n, a.units.get(n), b.units.get(n));
    }
    p.out
}

/// What is missing on a host, whatever the others have.
fn missing(host: &str, i: &Inventory, here: bool) -> Vec<Difference> {
    let on = if here { String::new() } else { format!("ssh {host} ") };
    let absent = i.fence_agents.iter().filter(|(_, there)| !**there).map(|(agent, _)| Difference {
        host: host.to_string(),
        what: format!("fence agent {agent}"),
        how: "is not installed: nobody can switch a host off from there".into(),
        mend: format!("{on}apt-get install fence-agents"),
    });
    let mut out: Vec<Difference> = absent.collect();
    if here && i.plan.is_some() && i.agent.is_none() {
        out.push(Difference {
            host: host.to_string(),
            what: "agent".into(),
            how: format!("'{}' is missing: Pacemaker cannot start targets", inventory::AGENT),
            mend: format!("install -D deploy/ocf/target {}", inventory::AGENT),
        });
    }
    out
}

/// By their names; with the host where this runs.
fn hosts(a: &DiffArgs) -> Result<Vec<String>, String> {
    let all = match (&a.hosts[..], &a.etcd) {
        ([_, ..], _) => a.hosts.clone(),
        ([], Some(url)) => etcd::hosts(url)?,
        ([], None) => match files::stat(&a.plan, true) {
            Ok(_) => read_plan(&a.plan)?.servers.into_iter().map(|s| s.name).collect(),
            Err(_) => {
                return Err(format!(
                    "'{}' is not there: name the hosts, or say --plan FILE or --etcd URL",
                    a.plan.display()
                ));
            }
        },
    };
    if all.len() > MAX_HOSTS {
        return Err(format!("{} hosts: no more than {MAX_HOSTS}", all.len()));
    }
    if let Some(bad) = all.iter().find(|h| h.starts_with('-') || quoted(h) != **h) {
        return Err(format!("'{bad}' is no name of a host"));
    }
    Ok(all)
}

/// Prints what differs. Status 1 if anything does, or if a host says nothing.
pub fn main(a: &DiffArgs) -> Result<i32, String> {
    if a.remote.split_whitespace().next().is_none() {
        return Err("--remote names no program".into());
    }
    let own = inventory::take(&a.plan)?;
    let others: Vec<String> = hosts(a)?.into_iter().filter(|h| *h != own.host).collect();
    if others.is_empty() {
        return Err(format!("there is no host besides {}: nothing to compare with", own.host));
    }
    let mut found = missing(&own.host, &own, true);
    let answers = sys::at_once(&others, |host| ask(&a.remote, host, &a.plan));
    for (host, answer) in others.iter().zip(answers) {
        match answer {
            Ok(there) => {
                found.extend(compare(&own, host, &there));
                found.extend(missing(host, &there, false));
            }
            Err(why) => found.push(Difference {
                host: host.clone(),
                what: "host".into(),
                how: format!("cannot be asked: {why}"),
                mend: format!("{} {host} nacre ha inventory", a.remote),
            }),
        }
    }
    let mut hosts = vec![own.host.clone()];
    hosts.extend(others);
    if a.json {
        let report = Report { reference: &own.host, hosts: &hosts, differences: &found };
        println!("{}", serde_json::to_string_pretty(&report).expect("plain data encodes"));
    } else if found.is_empty() {
        println!("{} have the same program, agent, plan and units", hosts.join(", "));
    } else {
        for d in &found {
            println!("{}: {}: {}\n    mend: {}", d.host, d.what, d.how, d.mend);
        }
    }
    Ok(if found.is_empty() { OK } else { FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn item(path: &str, digest: &str) -> Item {
        Item { path: path.into(), digest: digest.into() }
    }

    fn inventory() -> Inventory {
        let unit = Unit { file: item("/etc/systemd/system/nacre-mgs.service", "u"), enabled: true };
        Inventory {
            host: "a".into(),
            version: "1".into(),
            program: item("/usr/bin/nacre", "p"),
            agent: Some(item(inventory::AGENT, "s")),
            plan: Some(item("/etc/nacre.plan", "l")),
            units: BTreeMap::from([("nacre-mgs.service".to_string(), unit)]),
            defaults: None,
            fence_agents: BTreeMap::from([("fence_x".to_string(), true)]),
        }
    }

    #[test]
    fn hosts_that_are_alike_do_not_differ() {
        let b = Inventory { host: "b".into(), ..inventory() };
        assert_eq!(compare(&inventory(), "b", &b), []);
        assert_eq!(missing("b", &b, false), []);
    }

    #[test]
    fn each_difference_is_named_with_what_mends_it() {
        let mut b = Inventory { host: "b".into(), version: "2".into(), agent: None, ..inventory() };
        b.plan = Some(item("/etc/nacre.plan", "other"));
        b.units.get_mut("nacre-mgs.service").unwrap().enabled = false;
        b.fence_agents = BTreeMap::from([("fence_x".to_string(), false)]);
        let mut got = compare(&inventory(), "b", &b);
        got.extend(missing("b", &b, false));
        let lines: Vec<String> = got.iter().map(|d| format!("{}: {}", d.what, d.mend)).collect();
        assert_eq!(
            lines,
            [
                "program: scp /usr/bin/nacre b:/usr/bin/nacre.new && ssh b mv /usr/bin/nacre.new /usr/bin/nacre; then move its targets away and back",
                "agent: ssh b mkdir -p /usr/lib/ocf/resource.d/nacre && scp /usr/lib/ocf/resource.d/nacre/target b:/usr/lib/ocf/resource.d/nacre/target",
                "plan: scp /etc/nacre.plan b:/etc/nacre.plan",
                "unit nacre-mgs.service: ssh b systemctl enable nacre-mgs.service",
                "fence agent fence_x: ssh b apt-get install fence-agents",
            ]
        );
    }

    #[test]
    fn what_only_the_other_host_has_is_fetched_and_a_wrong_name_is_told() {
        let (mut a, b) = (inventory(), Inventory { host: "c".into(), ..inventory() });
        a.units.clear();
        let got = compare(&a, "b", &b);
        assert_eq!(got[0].what, "name");
        assert_eq!(
            got[1].mend,
            "mkdir -p /etc/systemd/system && scp b:/etc/systemd/system/nacre-mgs.service /etc/systemd/system/nacre-mgs.service"
        );
        let bare = Inventory { agent: None, ..inventory() };
        assert_eq!(missing("a", &bare, true)[0].what, "agent");
    }
}

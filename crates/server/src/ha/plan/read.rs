//! The description of a cluster: one server, target or fence a line.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

/// A host that serves targets, as the cluster calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    /// Its own, which stays where it is.
    pub address: IpAddr,
}

/// What kind of target it is; they start in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Mgs,
    Mdt,
    Ost,
}

/// A target, and where it may be served.
#[derive(Clone, Debug)]
pub struct PlannedTarget {
    /// Its label: `MGS`, `demo-MDT0000`. The resource group is called so.
    pub name: String,
    pub kind: Kind,
    pub dir: String,
    /// Goes with it.
    pub address: IpAddr,
    pub prefix: u8,
    /// The first is its home.
    pub servers: Vec<String>,
    /// Of a file system that is mounted before it, where and as what.
    pub device: Option<Device>,
    pub port: Option<u16>,
    /// Of nacred.
    pub options: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Device {
    pub path: String,
    pub mount: String,
    pub fstype: String,
}

/// How servers are switched off.
#[derive(Clone, Debug)]
pub struct Fence {
    /// `None`: all of them by one device.
    pub server: Option<String>,
    pub agent: String,
    pub options: BTreeMap<String, String>,
}

/// What Heartbeat calls so in its ha.cf; `None`: as the engine has it. Seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Whether targets go home by themselves.
    pub auto_failback: bool,
    /// Between two signs of life.
    pub keepalive: Option<u32>,
    /// Without one, and a host is dead.
    pub deadtime: Option<u32>,
    /// Without one, and it is said in the log.
    pub warntime: Option<u32>,
    /// As `deadtime`, when the cluster starts.
    pub initdead: Option<u32>,
}

/// Longer ones are mistakes.
const MAX_SECONDS: u32 = 3600;

impl Times {
    fn set(&mut self, word: &str, value: &str) -> Result<(), String> {
        if word == "auto_failback" {
            self.auto_failback = match value {
                "on" => true,
                "off" => false,
                _ => return Err(format!("'auto_failback {value}': on or off")),
            };
            return Ok(());
        }
        let n = value.parse().ok().filter(|n| (1..=MAX_SECONDS).contains(n));
        let n = n.ok_or_else(|| format!("'{word} {value}': whole seconds, 1 to {MAX_SECONDS}"))?;
        let place = match word {
            "keepalive" => &mut self.keepalive,
            "deadtime" => &mut self.deadtime,
            "warntime" => &mut self.warntime,
            "initdead" => &mut self.initdead,
            _ => return Err(format!("'{word}' is no time")),
        };
        match place.replace(n) {
            None => Ok(()),
            Some(_) => Err(format!("'{word}' is given twice")),
        }
    }

    /// Each must be shorter than the next; a warning is a part of the time until a host is dead.
    fn check(&self) -> Result<(), String> {
        let order = [
            ("keepalive", self.keepalive),
            ("warntime", self.warntime),
            ("deadtime", self.deadtime),
            ("initdead", self.initdead),
        ];
        let given: Vec<(&str, u32)> = order.into_iter().filter_map(|(w, n)| Some((w, n?))).collect();
        if let Some(w) = given.windows(2).find(|w| w[0].1 >= w[1].1) {
            let ((a, x), (b, y)) = (w[0], w[1]);
            return Err(format!("{a} ({x} s) must be shorter than {b} ({y} s)"));
        }
        if self.warntime.is_some() && self.deadtime.is_none() {
            return Err("'warntime' is a part of 'deadtime': give that, too".into());
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub timing: Times,
    pub servers: Vec<Server>,
    pub targets: Vec<PlannedTarget>,
    pub fences: Vec<Fence>,
}

/// Words of a line; double quotes keep spaces together, `#` begins a remark.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut out, mut word, mut open, mut quotes) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => (quotes, open) = (!quotes, true),
            '#' if !quotes && !open => break,
            c if c.is_whitespace() && !quotes => {
                if std::mem::take(&mut open) {
                    out.push(std::mem::take(&mut word));
                }
            }
            c if c.is_control() => return Err("a control character".into()),
            c => {
                word.push(c);
                open = true;
            }
        }
    }
    if quotes {
        return Err("a quote is not closed".into());
    }
    if open {
        out.push(word);
    }
    Ok(out)
}

/// What the cluster takes as a name of a resource or a host.
fn name(s: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.chars().all(good) && s.len() <= 64 {
        return Ok(s.to_string());
    }
    Err(format!("'{s}' is no name: a letter, then letters, digits, '-', '_' and '.'"))
}

/// `KEY=VALUE` words.
struct Values(BTreeMap<String, String>);

impl Values {
    fn read(words: &[String]) -> Result<Values, String> {
        let mut all = BTreeMap::new();
        for w in words {
            let (k, v) = w.split_once('=').ok_or_else(|| format!("'{w}' is not KEY=VALUE"))?;
            if all.insert(k.to_string(), v.to_string()).is_some() {
                return Err(format!("'{k}' is given twice"));
            }
        }
        Ok(Values(all))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    fn need(&mut self, key: &str) -> Result<String, String> {
        self.take(key).filter(|v| !v.is_empty()).ok_or_else(|| format!("'{key}=' is missing"))
    }

    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(k) => Err(format!("'{k}=' means nothing here")),
        }
    }
}

fn kind(label: &str) -> Result<Kind, String> {
    if label == "MGS" {
        return Ok(Kind::Mgs);
    }
    let index = |s: &str| s.len() == 4 && s.chars().all(|c| c.is_ascii_hexdigit());
    match label.rsplit_once('-').map(|(_, t)| t.split_at(t.len().min(3))) {
        Some(("MDT", i)) if index(i) => Ok(Kind::Mdt),
        Some(("OST", i)) if index(i) => Ok(Kind::Ost),
        _ => Err(format!("'{label}' is no target's label: MGS, demo-MDT0000, demo-OST0000")),
    }
}

fn device(v: &mut Values, dir: &str) -> Result<Option<Device>, String> {
    let Some(path) = v.take("device") else { return Ok(None) };
    let parent = dir.rsplit_once('/').map(|(p, _)| p).filter(|p| !p.is_empty());
    let mount = v.take("mount").or(parent.map(str::to_string)).ok_or("'mount=' is missing")?;
    if dir != mount && !dir.starts_with(&format!("{}/", mount.trim_end_matches('/'))) {
        return Err(format!("'{dir}' is not below '{mount}', where its device is mounted"));
    }
    Ok(Some(Device { path, mount, fstype: v.take("fstype").unwrap_or_else(|| "xfs".into()) }))
}

fn target(label: &str, words: &[String]) -> Result<PlannedTarget, String> {
    let mut v = Values::read(words)?;
    let dir = v.need("dir")?;
    if !dir.starts_with('/') || dir.contains(char::is_whitespace) {
        return Err(format!("'{dir}' is no absolute path without spaces"));
    }
    let at = v.need("address")?;
    let (address, prefix) = at.split_once('/').unwrap_or((&at, ""));
    let address: IpAddr = address.parse().map_err(|_| format!("'{address}' is no address"))?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        "" => widest,
        p => p.parse().ok().filter(|p| (1..=widest).contains(p)).ok_or(format!("'{at}': no such prefix"))?,
    };
    let servers: Vec<String> = v.need("servers")?.split(',').map(name).collect::<Result<_, _>>()?;
    let port = v.take("port").map(|p| p.parse().map_err(|_| format!("'{p}' is no port"))).transpose()?;
    let t = PlannedTarget {
        name: name(label)?,
        kind: kind(label)?,
        device: device(&mut v, &dir)?,
        dir,
        address,
        prefix,
        servers,
        port,
        options: v.take("options"),
    };
    v.end()?;
    Ok(t)
}

/// Options that an agent cannot do without; one of each list.
fn required(agent: &str) -> &'static [&'static [&'static str]] {
    const PASSWORD: &[&str] = &["password", "password_script", "identity_file"];
    match agent {
        "fence_ipmilan" => &[&["ip"], &["username"], PASSWORD],
        "fence_apc" => &[&["ip"], &["username"], PASSWORD, &["plug"]],
        "fence_virsh" => &[&["ip"], &["username"], PASSWORD],
        "fence_scsi" | "fence_mpath" => &[&["devices"]],
        _ => &[],
    }
}

fn fence(server: &str, agent: &str, words: &[String]) -> Result<Fence, String> {
    let options = Values::read(words)?.0;
    for any in required(agent) {
        if !any.iter().any(|o| options.contains_key(*o)) {
            return Err(format!("{agent} needs '{}='", any.join("=' or '")));
        }
    }
    let server = if server == "all" { None } else { Some(name(server)?) };
    match (agent, &server) {
        ("fence_scsi" | "fence_mpath", Some(_)) => {
            Err(format!("{agent} is one device for all servers: fence all {agent} ..."))
        }
        ("fence_ipmilan" | "fence_apc" | "fence_virsh", None) => {
            Err(format!("{agent} switches one server: a line for each"))
        }
        _ => Ok(Fence { server, agent: name(agent)?, options }),
    }
}

impl Plan {
    /// Programs that fence, each once.
    pub fn fence_agents(&self) -> Vec<String> {
        let mut all: Vec<String> = self.fences.iter().map(|f| f.agent.clone()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words = words(line)?;
        let w: Vec<&str> = words.iter().map(String::as_str).collect();
        match w[..] {
            [] => {}
            ["server", host, address] => {
                let address = address.parse().map_err(|_| format!("'{address}' is no address"))?;
                let server = Server { name: name(host)?, address };
                if host == "all" || self.servers.iter().any(|s| s.name == host || s.address == address) {
                    return Err(format!("server '{host}' or its address is there already"));
                }
                self.servers.push(server);
            }
            ["target", label, ..] => self.targets.push(target(label, &words[2..])?),
            [word @ ("auto_failback" | "keepalive" | "deadtime" | "warntime" | "initdead"), value] => {
                self.timing.set(word, value)?;
            }
            ["fence", server, agent, ..] => self.fences.push(fence(server, agent, &words[3..])?),
            _ => {
                return Err(
                    "expected 'server NAME ADDRESS', 'target LABEL KEY=VALUE...', 'fence SERVER AGENT KEY=VALUE...', \
                     'auto_failback on|off', or 'keepalive', 'warntime', 'deadtime' or 'initdead' and seconds"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// What no single line can be wrong about.
    fn check(&self) -> Result<(), String> {
        self.timing.check()?;
        let known = |s: &str| self.servers.iter().any(|k| k.name == s);
        for (i, t) in self.targets.iter().enumerate() {
            if let Some(s) = t.servers.iter().find(|s| !known(s)) {
                return Err(format!("{}: no server '{s}' is declared", t.name));
            }
            let earlier = &self.targets[..i];
            if let Some(o) =
                earlier.iter().find(|o| o.name == t.name || o.dir == t.dir || o.address == t.address)
            {
                return Err(format!("{} and {} have name, folder or address in common", o.name, t.name));
            }
            let device = |t: &PlannedTarget| t.device.as_ref().map(|d| d.path.clone());
            if let Some(o) = earlier.iter().find(|o| device(t).is_some() && device(o) == device(t)) {
                return Err(format!(
                    "{} and {} are on one device: a device moves as a whole",
                    o.name, t.name
                ));
            }
            if let Some(s) = self.servers.iter().find(|s| s.address == t.address) {
                return Err(format!(
                    "{}: its address is that of server {}; a target needs one that can move",
                    t.name, s.name
                ));
            }
        }
        if let Some(s) = self.fences.iter().filter_map(|f| f.server.as_ref()).find(|s| !known(s)) {
            return Err(format!("fence: no server '{s}' is declared"));
        }
        let fenced = |s: &Server| self.fences.iter().any(|f| f.server.as_ref().is_none_or(|n| *n == s.name));
        match self.servers.iter().find(|s| !fenced(s)) {
            Some(s) => Err(format!(
                "server '{0}' cannot be fenced: add 'fence {0} AGENT ...'. Without fencing no target may move",
                s.name
            )),
            None if self.servers.len() < 2 => Err("fewer than two servers: nothing can move".into()),
            None if self.targets.is_empty() => Err("no targets".into()),
            None => Ok(()),
        }
    }
}

impl FromStr for Plan {
    type Err = String;

    /// The error names the line.
    fn from_str(text: &str) -> Result<Plan, String> {
        let mut plan = Plan::default();
        for (n, line) in text.lines().enumerate() {
            plan.line(line).map_err(|e| format!("line {}: {e}", n + 1))?;
        }
        plan.check().map_err(|e| format!("as a whole: {e}"))?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: &str =
        "server a 10.0.0.1\nserver b 10.0.0.2\nfence all fence_scsi devices=/dev/sdb # both\n";

    fn said(lines: &str) -> String {
        format!("{HOSTS}{lines}").parse::<Plan>().expect_err("it is wrong")
    }

    #[test]
    fn a_description_is_read() {
        let p: Plan = format!(
            "{HOSTS}\ntarget MGS dir=/srv/mgt address=10.0.0.9/24 servers=a,b options=\"--mmp-interval 500\"\n\
             target d-OST000a dir=/srv/o/t address=fd00::7 servers=b device=/dev/sdb"
        )
        .parse()
        .unwrap();
        assert_eq!((p.servers.len(), p.targets.len(), p.fences.len()), (2, 2, 1));
        let [mgs, ost] = &p.targets[..] else { unreachable!() };
        assert_eq!(
            (mgs.kind, mgs.prefix, mgs.options.as_deref()),
            (Kind::Mgs, 24, Some("--mmp-interval 500"))
        );
        assert_eq!((ost.kind, ost.prefix), (Kind::Ost, 128));
        let d = ost.device.as_ref().unwrap();
        assert_eq!((d.mount.as_str(), d.fstype.as_str()), ("/srv/o", "xfs"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert_eq!(said("server a 10.0.0.7"), "line 4: server 'a' or its address is there already");
        assert_eq!(said("target MGS dir=/m"), "line 4: 'address=' is missing");
        assert_eq!(
            said("target MGS dir=/m address=10.0.0.9 servers=a,c"),
            "as a whole: MGS: no server 'c' is declared"
        );
        assert!(said("target X dir=/m address=10.0.0.9 servers=a").contains("no target's label"));
        assert!(said("target MGS dir=/m address=10.0.0.1 servers=a").contains("is that of server a"));
        assert!(said("target MGS dir=/m address=10.0.0.9 servers=a colour=red").contains("'colour='"));
        assert!(said("target MGS dir=\"/m").contains("quote"));
        assert!(said("fence a fence_ipmilan ip=1.2.3.4").contains("needs 'username='"));
        assert!(said("").contains("no targets"));
        let unfenced = "server a 10.0.0.1\nserver b 10.0.0.2\ntarget MGS dir=/m address=10.0.0.9 servers=a";
        assert!(unfenced.parse::<Plan>().unwrap_err().contains("server 'a' cannot be fenced"));
    }
}

//! What the console of a self test remembers between commands: a file in the run directory, named by
//! `$LST_SESSION`.

use super::proto::{Kind, PORT, Session};
use model::{HostNid, Nid};
use rpc::{LookedUp, look_up};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use world::World;
use world::sys::control::run_dir;
use world::sys::files;

/// Nodes of a group; a pattern may not name more.
pub const NODES_MAX: usize = 4096;
const NAME_MAX_BYTES: usize = 64;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    /// All of them let themselves be taken in.
    pub members: Vec<Nid>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    pub kind: Kind,
    pub from: String,
    pub to: String,
    /// So many of `from` work on so many of `to`.
    pub distribute: (usize, usize),
    pub concurrency: u32,
    pub loops: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    pub name: String,
    pub tests: Vec<Test>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Console {
    pub session: Session,
    pub force: bool,
    pub groups: Vec<Group>,
    pub batches: Vec<Batch>,
}

/// Which session, by the environment, as lst has it.
pub fn key(env: Option<String>) -> Result<String, String> {
    let k = env.ok_or("LST_SESSION is not set: export LST_SESSION=$$")?;
    let good = k.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    match k.len() {
        1..=NAME_MAX_BYTES if good => Ok(k),
        _ => Err(format!("LST_SESSION='{k}': letters and digits, as in export LST_SESSION=$$")),
    }
}

fn path(key: &str) -> PathBuf {
    run_dir().join(format!("lst-{key}.json"))
}

impl Console {
    /// `None`: no session.
    pub fn load(key: &str) -> Result<Option<Console>, String> {
        let path = path(key);
        match files::read_to_string(&path) {
            Ok(t) => serde_json::from_str(&t)
                .map(Some)
                .map_err(|e| format!("'{}' is not understood: {e}; remove it", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("cannot read '{}': {e}", path.display())),
        }
    }

    pub fn save(&self, key: &str) -> Result<(), String> {
        let path = path(key);
        let text = serde_json::to_string_pretty(self).expect("plain data encodes");
        files::create_dir_all(run_dir())
            .and_then(|()| files::replace(&path, text.as_bytes()))
            .map_err(|e| format!("cannot write '{}': {e}", path.display()))
    }

    pub fn remove(key: &str) -> Result<(), String> {
        let path = path(key);
        files::remove_file(&path).map_err(|e| format!("cannot remove '{}': {e}", path.display()))
    }

    pub fn group(&self, name: &str) -> Result<&Group, String> {
        self.groups
            .iter()
            .find(|g| g.name == name)
            .ok_or_else(|| format!("no group '{name}': lst add_group {name} NID..."))
    }

    pub fn batch(&self, name: &str) -> Result<&Batch, String> {
        self.batches
            .iter()
            .find(|b| b.name == name)
            .ok_or_else(|| format!("no batch '{name}': lst add_batch {name}"))
    }

    /// Every node once.
    pub fn nodes(&self) -> Vec<Nid> {
        let mut all: Vec<Nid> = self.groups.iter().flat_map(|g| &g.members).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

pub fn address(nid: Nid, port: u16) -> SocketAddr {
    SocketAddr::new(nid.addr, port)
}

/// The port of nodes: the usual one unless a test says otherwise.
pub fn port(env: Option<&str>) -> Result<u16, String> {
    let Some(text) = env else { return Ok(PORT) };
    text.parse().map_err(|_| format!("NACRE_LST_PORT='{text}' is no port"))
}

/// As this host's environment says.
pub fn port_here() -> Result<u16, String> {
    port(std::env::var("NACRE_LST_PORT").ok().as_deref())
}

pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    let good = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b'@');
    match name.len() {
        1..=NAME_MAX_BYTES if good => Ok(()),
        _ => Err(format!("{what} '{name}': 1 to {NAME_MAX_BYTES} letters, digits and signs without / and @")),
    }
}

/// Hosts that an argument names: `10.0.0.1@tcp`, `10.0.0.1`, `192.168.1.[1-10/2,14]@tcp`, a host's name.
pub fn expand(text: &str) -> Result<Vec<HostNid>, String> {
    let (addr, net) = text.split_once('@').unwrap_or((text, "tcp"));
    let net = if net.is_empty() { "tcp" } else { net };
    if !net.starts_with("tcp") {
        return Err(format!("'{text}': networks are tcp, not {net}"));
    }
    let mut out = Vec::new();
    for a in patterns(addr).map_err(|why| format!("'{text}': {why}"))? {
        out.push(format!("{a}@{net}").parse::<HostNid>().map_err(|e| e.to_string())?);
    }
    assert!(!out.is_empty() && out.len() <= NODES_MAX, "an argument names some nodes, and not too many");
    Ok(out)
}

/// The addresses of these hosts, one of each.
pub async fn resolve(world: &World, hosts: &[HostNid]) -> Result<Vec<Nid>, String> {
    let mut out = Vec::with_capacity(hosts.len());
    for host in hosts {
        out.push(first_of(host, look_up(world, std::slice::from_ref(host)).await)?);
    }
    Ok(out)
}

fn first_of(host: &HostNid, found: LookedUp) -> Result<Nid, String> {
    let why = found.unknown.first().map_or("it has no address", |(_, why)| why);
    found.nids.first().copied().ok_or_else(|| format!("{host}: {why}"))
}

/// Every bracket written out.
fn patterns(text: &str) -> Result<Vec<String>, String> {
    let Some((head, rest)) = text.split_once('[') else { return Ok(vec![text.to_string()]) };
    let (list, tail) = rest.split_once(']').ok_or("a '[' without its ']'")?;
    let tails = patterns(tail)?;
    let mut out = Vec::new();
    for part in list.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let number = |t: &str| t.trim().parse::<u16>().map_err(|_| format!("'{t}' is no number"));
        let (low, high, step) = (number(low)?, number(high)?, number(step)?);
        if low > high || step == 0 {
            return Err(format!("'{part}' is no range such as 1-10 or 1-10/2"));
        }
        for n in (low..=high).step_by(usize::from(step)) {
            for t in &tails {
                if out.len() >= NODES_MAX {
                    return Err(format!("more than {NODES_MAX} nodes"));
                }
                out.push(format!("{head}{n}{t}"));
            }
        }
    }
    Ok(out)
}

/// Which of `to` the n-th of `from` works on: of `s:d`, so many after each other share so many.
pub fn partners(n: usize, (s, d): (usize, usize), to: usize) -> Vec<usize> {
    assert!(s > 0 && d > 0, "a distribution has two sides");
    if to == 0 {
        return Vec::new();
    }
    let first = n / s * d;
    (first..first + d.min(to)).map(|i| i % to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_in_notes() {
        let look_up = |host: &HostNid| match host {
            HostNid::Addr(nid) => LookedUp { nids: vec![*nid], unknown: Vec::new() },
            HostNid::Name { host, net } if host == "mds05" => {
                let nids = vec![Nid { addr: "10.0.0.9".parse().unwrap(), net: *net }];
                LookedUp { nids, unknown: Vec::new() }
            }
            name => {
                LookedUp { nids: Vec::new(), unknown: vec![(name.clone(), "no host is known so".into())] }
            }
        };
        let text = |s: &str| -> Result<Vec<String>, String> {
            let one = |h: &HostNid| first_of(h, look_up(h)).map(|nid| nid.to_string());
            expand(s)?.iter().map(one).collect()
        };
        assert_eq!(text("10.144.9.1@tcp").unwrap(), ["10.144.9.1@tcp"]);
        assert_eq!(text("10.144.9.1").unwrap(), ["10.144.9.1@tcp"]);
        assert_eq!(text("mds05@tcp0").unwrap(), ["10.0.0.9@tcp"]);
        assert_eq!(
            text("1.1.1.[1-5/2,14]@tcp1").unwrap(),
            ["1.1.1.1@tcp1", "1.1.1.3@tcp1", "1.1.1.5@tcp1", "1.1.1.14@tcp1"]
        );
        assert_eq!(text("1.1.[1-2].[7-8]").unwrap().len(), 4);
        for (bad, part) in [
            ("10.0.0.1@o2ib", "not o2ib"),
            ("nobody@tcp", "no host"),
            ("1.1.1.[1-", "without its"),
            ("1.1.1.[5-1]", "no range"),
            ("1.1.[0-255].[0-255]", "more than 4096"),
        ] {
            assert!(text(bad).unwrap_err().contains(part), "{bad}: {:?}", text(bad));
        }
    }

    #[test]
    fn sources_are_spread_over_sinks() {
        let all = |froms: usize, d, to| (0..froms).map(|n| partners(n, d, to)).collect::<Vec<_>>();
        assert_eq!(all(5, (4, 1), 2), [vec![0], vec![0], vec![0], vec![0], vec![1]]);
        assert_eq!(all(2, (1, 2), 4), [vec![0, 1], vec![2, 3]]);
        assert_eq!(all(3, (1, 1), 2), [vec![0], vec![1], vec![0]]);
        // no sink twice at once
        assert_eq!(all(1, (1, 9), 2), [vec![0, 1]]);
        assert_eq!(all(1, (1, 1), 0), [Vec::<usize>::new()]);
    }

    #[test]
    fn sessions_have_plain_names() {
        assert_eq!(key(Some("4711".into())).unwrap(), "4711");
        assert!(key(None).unwrap_err().contains("export LST_SESSION"));
        for bad in ["", "../x", "a b"] {
            assert!(key(Some(bad.into())).is_err(), "{bad}");
        }
        assert!(check_name("group", "a@b").is_err());
        assert!(check_name("group", "clients").is_ok());
        assert_eq!(port(None), Ok(PORT));
        assert!(port(Some("x")).is_err());
    }
}

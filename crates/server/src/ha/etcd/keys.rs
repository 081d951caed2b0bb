//! What is in etcd, below `PREFIX/ha/`:
//!
//! | key | holds | stays |
//! |---|---|---|
//! | `targets/NAME` | [`Defined`] | |
//! | `hosts/HOST` | [`Alive`] | as long as its controller lives |
//! | `owners/NAME` | [`Owner`] | as long as its controller lives |
//! | `last/NAME` | the host that served it last and did not end in order | |
//! | `wishes/NAME` | the host that shall have it | until it has |
//! | `refused/NAME/HOST` | why this host could not serve it | half a minute |

use ::etcd::{Error, Etcd, Kv};
use model::Nid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host that may serve a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// As the host calls itself, or as its controller is told to (`--host`).
    pub host: String,
    /// Address to serve at there; none: as nacred chooses.
    pub nid: Option<Nid>,
}

/// Targets that one nacred serves, wherever that is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Defined {
    /// The first one is preferred.
    pub places: Vec<Place>,
    pub port: u16,
    /// Further options of nacred.
    pub options: String,
    pub dirs: Vec<String>,
}

/// A controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alive {
    pub pid: u32,
    /// Of the kernel that it runs on.
    pub boot: String,
    /// Seconds of its lease.
    pub term: u32,
}

/// Who has a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    pub host: String,
    /// `fencing`, `starting`, `serving`, `stopping`.
    pub state: String,
}

/// A record and where it stands.
#[derive(Clone, Debug)]
pub struct At<T> {
    pub value: T,
    pub created: i64,
    pub lease: i64,
}

/// All of it at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub revision: i64,
    pub targets: BTreeMap<String, Defined>,
    pub hosts: BTreeMap<String, At<Alive>>,
    pub owners: BTreeMap<String, At<Owner>>,
    pub last: BTreeMap<String, String>,
    pub wishes: BTreeMap<String, String>,
    /// (target, host) → why.
    pub refused: BTreeMap<(String, String), String>,
    /// Records that are not understood, with the reason.
    pub strange: Vec<String>,
}

pub fn prefix(etcd: &Etcd) -> String {
    etcd.key("ha/")
}

/// What stands in the table above.
const KINDS: [&str; 6] = ["targets", "hosts", "owners", "last", "wishes", "refused"];

pub fn key(etcd: &Etcd, kind: &str, name: &str) -> String {
    assert!(KINDS.contains(&kind), "'{kind}' is no kind of key that is read again");
    etcd.key(&format!("ha/{kind}/{name}"))
}

/// Names of targets and hosts are parts of keys.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=255).contains(&text.len()) && text.chars().all(plain)
}

fn at<T: for<'a> Deserialize<'a>>(kv: &Kv) -> Result<At<T>, String> {
    let value = serde_json::from_slice(&kv.value).map_err(|e| e.to_string())?;
    Ok(At { value, created: kv.create_revision, lease: kv.lease })
}

impl Snapshot {
    pub async fn take(etcd: &Etcd) -> Result<Snapshot, Error> {
        let prefix = prefix(etcd);
        let (revision, all) = etcd.list(&prefix).await?;
        let mut s = Snapshot { revision, ..Snapshot::default() };
        for kv in all {
            let (name, text) = kv.text();
            let short = name.strip_prefix(&prefix).unwrap_or(&name);
            if let Err(e) = s.add(short, &kv, text) {
                s.strange.push(format!("'{name}' in etcd: {e}"));
            }
        }
        Ok(s)
    }

    fn add(&mut self, short: &str, kv: &Kv, text: String) -> Result<(), String> {
        let (kind, name) = short.split_once('/').ok_or("no key of ours")?;
        let name = name.to_string();
        match kind {
            "targets" => {
                let defined: At<Defined> = at(kv)?;
                self.targets.insert(name, defined.value);
            }
            "hosts" => {
                self.hosts.insert(name, at(kv)?);
            }
            "owners" => {
                self.owners.insert(name, at(kv)?);
            }
            "last" => {
                self.last.insert(name, text);
            }
            "wishes" => {
                self.wishes.insert(name, text);
            }
            "refused" => {
                let (target, host) = name.split_once('/').ok_or("no key of ours")?;
                self.refused.insert((target.into(), host.into()), text);
            }
            _ => return Err("no key of ours".into()),
        }
        Ok(())
    }

    /// Hosts that could serve a target now, the one that should first.
    pub fn candidates(&self, name: &str) -> Vec<&str> {
        let Some(t) = self.targets.get(name) else { return Vec::new() };
        let able = |h: &&str| {
            self.hosts.contains_key(*h) && !self.refused.contains_key(&(name.to_string(), h.to_string()))
        };
        let mut all: Vec<&str> = t.places.iter().map(|p| p.host.as_str()).filter(able).collect();
        if let Some(w) = self.wishes.get(name)
            && let Some(i) = all.iter().position(|h| h == w)
        {
            let first = all.remove(i);
            all.insert(0, first);
        }
        assert!(all.iter().all(|h| self.hosts.contains_key(*h)), "only a host that lives is waited for");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_living_host_is_to_serve_unless_another_is_wished_for() {
        let mut s = Snapshot::default();
        let place = |h: &str| Place { host: h.into(), nid: None };
        let defined = Defined {
            places: vec![place("a"), place("b"), place("c")],
            port: 988,
            options: String::new(),
            dirs: vec!["/x".into()],
        };
        s.targets.insert("ost0".into(), defined);
        assert!(s.candidates("ost0").is_empty() && s.candidates("none").is_empty());
        for h in ["a", "c", "other"] {
            let value = Alive { pid: 1, boot: "x".into(), term: 15 };
            s.hosts.insert(h.into(), At { value, created: 1, lease: 1 });
        }
        assert_eq!(s.candidates("ost0"), ["a", "c"]);
        s.wishes.insert("ost0".into(), "c".into());
        assert_eq!(s.candidates("ost0"), ["c", "a"]);
        s.wishes.insert("ost0".into(), "b".into());
        assert_eq!(s.candidates("ost0"), ["a", "c"], "a dead one is not waited for");
        s.refused.insert(("ost0".into(), "a".into()), "no disk".into());
        assert_eq!(s.candidates("ost0"), ["c"]);
    }

    #[test]
    fn names_are_parts_of_keys() {
        assert!(is_name("demo-OST0000") && is_name("oss1.example"));
        assert!(!is_name("") && !is_name("a/b") && !is_name("a b") && !is_name(&"x".repeat(256)));
    }
}

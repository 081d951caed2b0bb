//! `nacre deploy inventory`: the hosts of a file as Ansible takes them: a file of its
//! YAML plugin, which reads JSON.

use super::cluster;
use super::file::{Cluster, Role, Transport};
use super::host::facts_line;
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::output;
use serde_json::{Map, Value, json};

/// How Ansible reaches a host.
fn connection(t: &Transport) -> Map<String, Value> {
    let mut out = Map::new();
    match t {
        Transport::Local => drop(out.insert("ansible_connection".into(), json!("local"))),
        Transport::Ssh(to) => match to.split_once('@') {
            Some((user, host)) => {
                out.insert("ansible_user".into(), json!(user));
                out.insert("ansible_host".into(), json!(host));
            }
            None => drop(out.insert("ansible_host".into(), json!(to))),
        },
        // Ansible has no such way: the line goes to this host, behind these words.
        Transport::Exec(prefix) => {
            out.insert("ansible_connection".into(), json!("local"));
            out.insert("nacre_exec".into(), json!(prefix.join(" ")));
        }
    }
    out
}

/// The document.
pub fn document(c: &Cluster) -> Value {
    let (mut vars, mut groups) = (Map::new(), Map::new());
    for h in &c.hosts {
        let mut v = connection(&h.transport);
        v.insert("nacre_nids".into(), json!(h.nids));
        v.insert("nacre_roles".into(), json!(h.roles));
        v.insert("nacre_location".into(), json!(h.location.clone().unwrap_or_default()));
        v.insert("nacre_facts_command".into(), json!(facts_line(c, h)));
        vars.insert(h.name.clone(), Value::Object(v));
    }
    let named = |wanted: &dyn Fn(&super::file::Host) -> bool| {
        let all = c.hosts.iter().filter(|h| wanted(h)).map(|h| (h.name.clone(), json!({})));
        Value::Object(all.collect())
    };
    for (word, role) in Role::ALL {
        groups.insert(format!("nacre_{word}"), json!({"hosts": named(&|h| h.has(role))}));
    }
    let serves = |h: &super::file::Host| c.may_serve(&h.name).next().is_some();
    groups.insert("nacre_servers".into(), json!({"hosts": named(&serves)}));
    groups.insert("nacre".into(), json!({"hosts": named(&|_| true), "vars": {"nacre_fsname": c.fsname}}));
    json!({"all": {"hosts": vars, "children": groups}})
}

/// The verb.
pub fn run(p: &Parsed) -> Result<i32, Failure> {
    output::json(&document(&cluster(p)?));
    Ok(0)
}

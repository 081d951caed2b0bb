//! What an administrator asks of Pacemaker: where targets are, and to move one. Its own programs do it
//! (`crm_resource`, `cibadmin`); what comes back as XML is read only as far as is needed here.

use super::scope::{self, Move, Placed, Scope};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use world::sys::Deadline;
use world::sys::process::{self, Finished};

/// Pacemaker's own limit for a resource is in its configuration; this only ends the waiting for it.
const MOVE_PATIENCE: Duration = Duration::from_secs(600);
/// The cluster is at rest if it says so twice: a change of its configuration reaches who decides a moment
/// later.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Should this program be killed before it takes its wish back, that ends by itself.
const WISH_LASTS: &str = "--lifetime=PT15M";

/// A target as the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Place {
    /// The resource that moves: the group, if it is in one.
    name: String,
    /// The resource of the agent itself.
    #[serde(skip)]
    server: String,
    /// Where it prefers to be.
    home: Option<String>,
    /// That may have it, those that it prefers first.
    #[serde(skip)]
    hosts: Vec<String>,
    /// Where it is.
    host: Option<String>,
}

fn run(program: &str, args: &[&str]) -> Result<Finished, String> {
    let done = process::run(program, args).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!(
            "'{program}' is not on this host: targets are moved by Pacemaker, call this on one of its nodes. Without a \
             cluster engine end nacred here and start it there: docs/recovery.md"
        ),
        _ => format!("cannot run '{program}': {e}"),
    })?;
    if done.status == Some(0) {
        return Ok(done);
    }
    let said = done.last_words();
    if ["Transport endpoint", "onnection refused", "not connected", "ould not connect"]
        .iter()
        .any(|w| done.err.contains(w))
    {
        return Err(format!("Pacemaker does not run on this host ({program}: {said})"));
    }
    Err(format!("{program} failed: {said}"))
}

/// Tags of an XML text: name (`/name` for an end) and attributes.
fn tags(xml: &str) -> impl Iterator<Item = (&str, BTreeMap<&str, &str>)> {
    xml.split('<').skip(1).map(|t| {
        let t = t.split('>').next().unwrap_or_default();
        let (name, mut rest) = t.split_once(char::is_whitespace).unwrap_or((t, ""));
        let mut attributes = BTreeMap::new();
        while let Some((key, value)) = rest.split_once("=\"") {
            let Some((value, more)) = value.split_once('"') else { break };
            attributes.insert(key.trim(), value);
            rest = more;
        }
        // `<name/>`
        (name.trim_end_matches('/'), attributes)
    })
}

/// Points of a place, as Pacemaker counts them.
const ALWAYS: i64 = 1_000_000;

/// Targets in a cluster's configuration; where they are is not in there.
fn configured(xml: &str) -> Vec<Place> {
    let (mut out, mut group) = (Vec::new(), None);
    let mut scores: BTreeMap<&str, Vec<(i64, &str)>> = BTreeMap::new();
    let mut nodes = Vec::new();
    for (tag, a) in tags(xml) {
        let of = |k: &str| a.get(k).copied().unwrap_or_default();
        match tag {
            "node" if !of("uname").is_empty() => nodes.push(of("uname")),
            "group" => group = Some(of("id")),
            "/group" => group = None,
            "primitive" if of("provider") == "nacre" && of("type") == "target" => {
                let (name, server) = (group.unwrap_or(of("id")).to_string(), of("id").to_string());
                out.push(Place { name, server, home: None, hosts: Vec::new(), host: None });
            }
            // Those that begin with cli- are wishes of `crm_resource --move`, which pass.
            "rsc_location" if !of("id").starts_with("cli-") => {
                let score = match of("score").trim_start_matches('+') {
                    "INFINITY" => ALWAYS,
                    "-INFINITY" => -ALWAYS,
                    s => s.parse().unwrap_or(-1),
                };
                scores.entry(of("rsc")).or_default().push((score, of("node")));
            }
            _ => {}
        }
    }
    for p in &mut out {
        let said = scores.get(p.name.as_str()).or_else(|| scores.get(p.server.as_str()));
        let mut said: Vec<(i64, &str)> = said.cloned().unwrap_or_default();
        let rest: Vec<_> =
            nodes.iter().filter(|n| !said.iter().any(|s| s.1 == **n)).map(|n| (0, *n)).collect();
        said.extend(rest);
        said.sort_by_key(|s| -s.0);
        p.home = said.first().filter(|h| h.0 > 0).map(|h| h.1.to_string());
        p.hosts = said.iter().filter(|s| s.0 > -ALWAYS).map(|s| s.1.to_string()).collect();
    }
    out
}

fn located(p: &Place) -> Result<Option<String>, String> {
    // Fails with words if it runs nowhere, in some versions.
    let found = match run("crm_resource", &["--resource", &p.server, "--locate", "--quiet"]) {
        Ok(f) => f.out,
        Err(e) if e.contains("does not run") || e.contains("is not on") => return Err(e),
        Err(_) => return Ok(None),
    };
    Ok(found.split_whitespace().next().map(str::to_string))
}

/// Whether nothing is under way in the cluster. `crm_resource --wait` does not count what is just starting.
fn at_rest() -> Result<bool, String> {
    // Without a controller there is an election under way.
    let Ok(who) = run("crmadmin", &["--quiet", "--dc_lookup"]) else { return Ok(false) };
    let Ok(state) = run("crmadmin", &["--status", who.out.trim()]) else { return Ok(false) };
    Ok(state.out.contains("S_IDLE"))
}

/// Returns when nothing is under way in the cluster.
fn settled() -> Result<(), String> {
    let end = Deadline::after(MOVE_PATIENCE);
    let mut rests = 0;
    while rests < 3 {
        if end.passed() {
            return Err("the cluster does not come to rest: crm_mon -1 says what is under way".into());
        }
        rests = if at_rest()? { rests + 1 } else { 0 };
        world::sys::sleep(LOOK_AGAIN);
    }
    Ok(())
}

fn targets() -> Result<Vec<Place>, String> {
    Ok(configured(&run("cibadmin", &["--query"])?.out))
}

/// Every target, its home and its host, as `nacre ha where --json` says them.
pub fn shown_places() -> Result<serde_json::Value, String> {
    let mut all = targets()?;
    for p in &mut all {
        p.host = located(p)?;
    }
    Ok(serde_json::json!(all))
}

/// Prints every target, its home and its host; if `wait`, when nothing is under way.
pub fn places(json: bool, wait: bool) -> Result<(), String> {
    let mut all = targets()?;
    if wait {
        settled()?;
    }
    for p in &mut all {
        p.host = located(p)?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&all).expect("plain data encodes"));
        return Ok(());
    }
    println!("{:<20} {:<16} {:<16}", "TARGET", "HOST", "HOME");
    for p in &all {
        let word = |w: &Option<String>| w.clone().unwrap_or_else(|| "-".into());
        println!("{:<20} {:<16} {:<16}", p.name, word(&p.host), word(&p.home));
    }
    Ok(())
}

fn find(target: &str) -> Result<Place, String> {
    let all = targets()?;
    let names: Vec<&str> = all.iter().map(|p| p.name.as_str()).collect();
    let none = || match names.is_empty() {
        true => "the cluster has no Nacre targets".to_string(),
        false => format!("the cluster has no target '{target}'; it has {}", names.join(", ")),
    };
    let mut p = all.iter().find(|p| p.name == target || p.server == target).cloned().ok_or_else(none)?;
    p.host = located(&p)?;
    Ok(p)
}

/// Returns when a target is at `host`, or the cluster is content although it is not.
fn arrived(p: &Place, host: &str) -> Result<(), String> {
    let end = Deadline::after(MOVE_PATIENCE);
    let mut rests = 0;
    while rests < 3 && !end.passed() {
        // It is said to be there from when its start begins.
        let (is_there, rest) = (located(p)?.as_deref() == Some(host), at_rest()?);
        if is_there && rest {
            return Ok(());
        }
        rests = if rest { rests + 1 } else { 0 };
        world::sys::sleep(LOOK_AGAIN / 4);
    }
    Ok(())
}

fn move_to(p: &Place, host: &str) -> Result<(), String> {
    let name = &p.name;
    if p.host.as_deref() == Some(host) {
        println!("{name} is on {host} already");
        return Ok(());
    }
    let Some(from) = &p.host else {
        return Err(format!("{name} runs nowhere: crm_mon -1 says why; the cluster starts it where it can"));
    };
    println!("{name} moves from {from} to {host}; applications wait meanwhile");
    let time = Deadline::after(MOVE_PATIENCE);
    // With --force it may not stay either, however much it sticks to where it is.
    run("crm_resource", &["--resource", name, "--move", "--node", host, "--force", WISH_LASTS])?;
    let waited = arrived(p, host);
    // The wish is taken back whatever came of it. It stays where it is then.
    run("crm_resource", &["--resource", name, "--clear"])?;
    waited?;
    match located(p)? {
        Some(now) if now == host => {
            let took = MOVE_PATIENCE - time.left();
            println!("{name} is on {host}, after {:.1} s", took.as_secs_f64());
            Ok(())
        }
        Some(now) => Err(format!("{name} is on {now}: {host} cannot take it, crm_mon -1rf says why")),
        None => Err(format!("{name} runs nowhere now: crm_mon -1rf says why")),
    }
}

fn this_host() -> Result<String, String> {
    Ok(run("crm_node", &["--name"])?.out.trim().to_string())
}

/// All targets, where they are, and the hosts that are members now.
fn placed() -> Result<(Vec<Placed>, Vec<String>), String> {
    let mut out = Vec::new();
    for p in targets()? {
        let host = located(&p)?;
        out.push(Placed { name: p.name, home: p.home, hosts: p.hosts, host });
    }
    let members = run("crm_node", &["--partition"])?.out;
    Ok((out, members.split_whitespace().map(str::to_string).collect()))
}

fn make(moves: &[Move]) -> Result<(), String> {
    scope::make(moves, |name, to| move_to(&find(name)?, to))
}

/// Moves a target, or those of a scope, to `to`, or to this host.
pub fn takeover(target: &str, to: Option<&str>) -> Result<(), String> {
    let host = to.map_or_else(this_host, |h| Ok(h.to_string()))?;
    match Scope::read(target) {
        Some(s) => {
            let (all, members) = placed()?;
            if !members.contains(&host) {
                return Err(format!("host {host} is no member of the cluster now ({})", members.join(", ")));
            }
            make(&scope::taken(&all, s, &host))
        }
        None => move_to(&find(target)?, &host),
    }
}

/// Moves a target to where it prefers to be, or those of a scope away from `from`, or from this host.
pub fn giveback(target: &str, from: Option<&str>) -> Result<(), String> {
    if let Some(s) = Scope::read(target) {
        let host = from.map_or_else(this_host, |h| Ok(h.to_string()))?;
        let (all, members) = placed()?;
        return make(&scope::given(&all, s, &host, |h| members.iter().any(|m| m == h)));
    }
    if from.is_some() {
        return Err(scope::ONLY_FOR_SCOPES.into());
    }
    let p = find(target)?;
    let Some(home) = p.home.clone() else {
        return Err(format!("{} prefers no host: it is at home everywhere", p.name));
    };
    move_to(&p, &home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_their_homes_are_found_in_a_configuration() {
        let xml = r#"<cib><configuration><nodes><node id="1" uname="a"/><node id="2" uname="b"/><node id="4" uname="d"/></nodes><resources>
  <primitive id="other" class="ocf" provider="heartbeat" type="Dummy"/>
  <group id="d-OST0000"><primitive id="d-OST0000-address" provider="heartbeat" type="IPaddr2"/>
    <primitive class="ocf" id="d-OST0000-server" provider="nacre" type="target"><operations/></primitive></group>
  <primitive id="MGS" class="ocf" provider="nacre" type="target"/>
 </resources><constraints>
  <rsc_location id="l1" node="a" rsc="d-OST0000" score="100"/>
  <rsc_location id="l2" node="b" rsc="d-OST0000" score="INFINITY"/>
  <rsc_location id="l3" node="c" rsc="d-OST0000" score="-INFINITY"/>
  <rsc_location id="cli-prefer-MGS" node="c" rsc="MGS" score="INFINITY"/>
 </constraints></configuration></cib>"#;
        let got = configured(xml);
        let place = |name: &str, server: &str, home: Option<&str>, hosts: &[&str]| Place {
            name: name.into(),
            server: server.into(),
            home: home.map(str::to_string),
            hosts: hosts.iter().map(|h| h.to_string()).collect(),
            host: None,
        };
        assert_eq!(
            got,
            [
                place("d-OST0000", "d-OST0000-server", Some("b"), &["b", "a", "d"]),
                place("MGS", "MGS", None, &["a", "b", "d"])
            ]
        );
        assert_eq!(configured("<cib/>"), []);
        assert_eq!(configured("<<<\"=\"<primitive id=\"x"), []);
    }
}

//! What administrators ask of the controllers: all through etcd, from any host.

use super::keys::{self, Defined, Place, Snapshot, is_name};
use crate::ha::scope::{self, Move, Placed, Scope};
use ::etcd::{Etcd, Op, Url};
use clap::Args;
use model::{Nid, limits};
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use world::World;
use world::sys::Deadline;

/// How long a move may take: an orderly end, a start, a fence command or a heartbeat that is watched.
const MOVE_PATIENCE: Duration = Duration::from_secs(180);
/// How long a controller that was just started may take until it is known.
const CONTROLLER_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// `HOST[=NID]`.
#[derive(Clone, Debug)]
struct On(Place);

impl std::str::FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<On, String> {
        let (host, nid) = text.split_once('=').map_or((text, None), |(h, n)| (h, Some(n)));
        if !is_name(host) {
            return Err(format!("'{host}' is no name of a host"));
        }
        let nid = nid.map(|n| n.parse::<Nid>().map_err(|e| e.to_string())).transpose()?;
        Ok(On(Place { host: host.to_string(), nid }))
    }
}

#[derive(Args)]
pub struct DefineArgs {
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Url,
    /// A host that may serve it and the address to serve at there, for example oss1=10.0.0.1@tcp; the first
    /// one is preferred
    #[arg(long = "on", required = true, value_name = "HOST[=NID]")]
    on: Vec<On>,
    #[arg(long, default_value_t = limits::PORT)]
    port: u16,
    /// Further options of nacred, in one word
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
    /// A name for it, the target's label for example
    target: String,
    /// Folders of the targets, the same on all hosts; one nacred serves them
    #[arg(required = true)]
    dirs: Vec<String>,
}

#[derive(Args)]
pub struct TargetArgs {
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Url,
    target: String,
}

#[derive(Args)]
pub struct StatusArgs {
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Url,
    /// Wait until every target is served, for three minutes at most
    #[arg(long)]
    wait: bool,
    #[arg(long)]
    json: bool,
}

fn with_etcd<T, F>(url: &Url, f: impl FnOnce(World, Arc<Etcd>) -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, String>>,
{
    let (world, runtime) = world::real::start(1).map_err(|e| format!("cannot start threads: {e}"))?;
    let etcd = Etcd::new(&world, url);
    runtime.block_on(f(world, etcd))
}

async fn look(etcd: &Etcd) -> Result<Snapshot, String> {
    Snapshot::take(etcd).await.map_err(|e| e.to_string())
}

async fn write(etcd: &Etcd, ops: &[Op]) -> Result<(), String> {
    etcd.txn(&[], ops, &[]).await.map(drop).map_err(|e| e.to_string())
}

/// Makes a target known to the controllers, or changes what they know; what runs is not moved.
pub fn define(a: &DefineArgs) -> Result<(), String> {
    if !is_name(&a.target) {
        return Err(format!("'{}' is no name for a target: letters, digits, - _ . only", a.target));
    }
    if Scope::read(&a.target).is_some() {
        return Err(format!(
            "'{}' is what takeover and giveback call several targets: give another name",
            a.target
        ));
    }
    if let Some(d) = a.dirs.iter().find(|d| !d.starts_with('/')) {
        return Err(format!("'{d}' is not absolute: it must mean the same on all hosts"));
    }
    let places: Vec<Place> = a.on.iter().map(|o| o.0.clone()).collect();
    let defined = Defined { places, port: a.port, options: a.options.clone(), dirs: a.dirs.clone() };
    with_etcd(&a.etcd, |_, etcd| async move {
        let s = look(&etcd).await?;
        let clash =
            |(name, d): &(&String, &Defined)| **name != a.target && d.dirs.iter().any(|d| a.dirs.contains(d));
        if let Some((name, _)) = s.targets.iter().find(clash) {
            return Err(format!("'{name}' has one of these folders already"));
        }
        let value = serde_json::to_vec(&defined).expect("plain data encodes");
        write(&etcd, &[Op::Put(keys::key(&etcd, "targets", &a.target), value, 0)]).await?;
        let silent: Vec<&str> =
            defined.places.iter().map(|p| p.host.as_str()).filter(|h| !s.hosts.contains_key(*h)).collect();
        println!(
            "{} is defined on {}",
            a.target,
            a.on.iter().map(|o| o.0.host.as_str()).collect::<Vec<_>>().join(", ")
        );
        if !silent.is_empty() {
            println!(
                "no controller runs yet on {}: nacre ha controller --etcd {}",
                silent.join(", "),
                a.etcd
            );
        }
        Ok(())
    })
}

/// Has the controllers forget a target; its server is ended in order.
pub fn undefine(a: &TargetArgs) -> Result<(), String> {
    with_etcd(&a.etcd, |_, etcd| async move {
        let s = look(&etcd).await?;
        known(&s, &a.target)?;
        let gone = ["targets", "wishes"].map(|k| Op::Delete(keys::key(&etcd, k, &a.target)));
        write(&etcd, &gone).await?;
        println!("{} is not looked after any more", a.target);
        Ok(())
    })
}

fn known<'a>(s: &'a Snapshot, target: &str) -> Result<&'a Defined, String> {
    s.targets.get(target).ok_or_else(|| {
        let all: Vec<&str> = s.targets.keys().map(String::as_str).collect();
        let all = if all.is_empty() { "none".to_string() } else { all.join(", ") };
        format!("no target '{target}' is defined (there are: {all}): see nacre ha define")
    })
}

/// All targets and where they are.
fn placed(s: &Snapshot) -> Vec<Placed> {
    let one = |(name, d): (&String, &Defined)| Placed {
        name: name.clone(),
        home: d.places.first().map(|p| p.host.clone()),
        hosts: d.places.iter().map(|p| p.host.clone()).collect(),
        host: s.owners.get(name).map(|o| o.value.host.clone()),
    };
    s.targets.iter().map(one).collect()
}

/// Hosts that targets are for, or on which a controller runs.
pub fn hosts(url: &Url) -> Result<Vec<String>, String> {
    let s = with_etcd(url, |_, etcd| async move { look(&etcd).await })?;
    let mut all: Vec<String> =
        s.targets.values().flat_map(|d| d.places.iter().map(|p| p.host.clone())).collect();
    all.extend(s.hosts.into_keys());
    all.sort();
    all.dedup();
    Ok(all)
}

/// Makes the moves that `choose` finds.
fn make(url: &Url, choose: impl FnOnce(&Snapshot) -> Result<Vec<Move>, String>) -> Result<(), String> {
    let moves = choose(&with_etcd(url, |_, etcd| async move { look(&etcd).await })?)?;
    scope::make(&moves, |name, to| {
        with_etcd(url, |world, etcd| async move { move_to(&world, &etcd, name, to).await })
    })
}

/// Moves a target, or those of a scope, to this host, or to `to`.
pub fn takeover(url: &Url, target: &str, to: Option<&str>) -> Result<(), String> {
    let to = to.map_or_else(world::sys::hostname, str::to_string);
    if let Some(scope) = Scope::read(target) {
        return make(url, |s| {
            if !s.hosts.contains_key(&to) {
                return Err(format!("no controller runs on host {to}: start it there first"));
            }
            Ok(scope::taken(&placed(s), scope, &to))
        });
    }
    with_etcd(url, |world, etcd| async move {
        known(&look(&etcd).await?, target)?;
        move_to(&world, &etcd, target, &to).await
    })
}

/// Moves a target back to the first host of its list, or those of a scope away from `from`, or this host.
pub fn giveback(url: &Url, target: &str, from: Option<&str>) -> Result<(), String> {
    if let Some(scope) = Scope::read(target) {
        let from = from.map_or_else(world::sys::hostname, str::to_string);
        return make(url, |s| Ok(scope::given(&placed(s), scope, &from, |h| s.hosts.contains_key(h))));
    }
    if from.is_some() {
        return Err(scope::ONLY_FOR_SCOPES.into());
    }
    with_etcd(url, |world, etcd| async move {
        let s = look(&etcd).await?;
        let to = known(&s, target)?.places[0].host.clone();
        move_to(&world, &etcd, target, &to).await
    })
}

async fn move_to(world: &World, etcd: &Arc<Etcd>, target: &str, to: &str) -> Result<(), String> {
    let s = look(etcd).await?;
    let places = &known(&s, target)?.places;
    if !places.iter().any(|p| p.host == to) {
        let all: Vec<&str> = places.iter().map(|p| p.host.as_str()).collect();
        return Err(format!(
            "{target} is not for host {to} (it is for {}): see nacre ha define",
            all.join(", ")
        ));
    }
    controller_runs(world, etcd, to).await?;
    let wish = keys::key(etcd, "wishes", target);
    if s.owners.get(target).is_none_or(|o| o.value.host != to) {
        // That it could not serve it a moment ago is known to whoever asks for it all the same.
        let refused = keys::key(etcd, "refused", &format!("{target}/{to}"));
        write(etcd, &[Op::Delete(refused), Op::Put(wish.clone(), to.as_bytes().to_vec(), 0)]).await?;
    }
    let (end, mut shown) = (Deadline::after(MOVE_PATIENCE), String::new());
    loop {
        // One that cannot be read now may be in a moment.
        if let Ok(s) = look(etcd).await {
            let owner = s.owners.get(target).map(|o| &o.value);
            let word = owner.map_or("nobody has it".to_string(), |o| format!("{} on {}", o.state, o.host));
            if word != shown {
                println!("{target}: {word}");
                shown = word;
            }
            if owner.is_some_and(|o| o.host == to && o.state == "serving") {
                return Ok(());
            }
            if let Some(why) = s.refused.get(&(target.to_string(), to.to_string())) {
                let _ = write(etcd, &[Op::Delete(wish)]).await;
                return Err(format!("host {to} cannot serve {target}: {why}"));
            }
        }
        if end.passed() {
            let _ = write(etcd, &[Op::Delete(wish)]).await;
            return Err(format!(
                "{target} is not on host {to} after {MOVE_PATIENCE:?} ({shown}): see the controllers' logs"
            ));
        }
        world.sleep(LOOK_EVERY).await;
    }
}

/// One that was just started says so in a moment.
async fn controller_runs(world: &World, etcd: &Etcd, host: &str) -> Result<(), String> {
    let (end, mut told) = (Deadline::after(CONTROLLER_PATIENCE), false);
    while !look(etcd).await?.hosts.contains_key(host) {
        if end.passed() {
            return Err(format!("no controller runs on host {host}: start it there first"));
        }
        if !std::mem::replace(&mut told, true) {
            println!("no controller runs on host {host} yet: waiting for {CONTROLLER_PATIENCE:?} at most");
        }
        world.sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Which host has what; with `--wait` once all targets are served.
/// What `nacre ha status --json` prints.
pub fn seen(url: &::etcd::Url) -> Result<serde_json::Value, String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    with_etcd(url, |world, etcd| async move {
        let said = world.timeout(PATIENCE, look(&etcd)).await;
        let seen = said.unwrap_or_else(|| Err(format!("etcd does not answer within {PATIENCE:?}")));
        Ok(as_json(&seen?))
    })
}

pub fn status(a: &StatusArgs) -> Result<(), String> {
    with_etcd(&a.etcd, |world, etcd| async move {
        let (s, outcome) = if a.wait { settled(&world, &etcd).await } else { (look(&etcd).await, Ok(())) };
        let s = s?;
        if a.json {
            println!("{}", serde_json::to_string_pretty(&as_json(&s)).expect("plain data encodes"));
        } else {
            print(&s);
        }
        outcome
    })
}

/// What was seen last, and whether every target was served then.
async fn settled(world: &World, etcd: &Etcd) -> (Result<Snapshot, String>, Result<(), String>) {
    let end = Deadline::after(MOVE_PATIENCE);
    loop {
        let seen = look(etcd).await;
        let served = |s: &Snapshot, name| s.owners.get(name).is_some_and(|o| o.value.state == "serving");
        // One that cannot be read now may be in a moment.
        if seen.as_ref().is_ok_and(|s| s.targets.keys().all(|t| served(s, t))) {
            return (seen, Ok(()));
        }
        if end.passed() {
            return (seen, Err(format!("not every target is served after {MOVE_PATIENCE:?}")));
        }
        world.sleep(LOOK_EVERY).await;
    }
}

fn as_json(s: &Snapshot) -> serde_json::Value {
    let targets: Vec<_> = s
        .targets
        .iter()
        .map(|(name, d)| {
            let owner = s.owners.get(name).map(|o| &o.value);
            let refused: Vec<_> = d
                .places
                .iter()
                .filter_map(|p| {
                    let why = s.refused.get(&(name.clone(), p.host.clone()))?;
                    Some(json!({"host": p.host, "why": why}))
                })
                .collect();
            json!({"target": name, "host": owner.map(|o| &o.host), "state": owner.map_or("free", |o| &o.state),
                "preferred": d.places[0].host, "wish": s.wishes.get(name), "dirs": d.dirs, "port": d.port,
                "places": d.places, "refused": refused})
        })
        .collect();
    json!({"targets": targets, "hosts": s.hosts.keys().collect::<Vec<_>>()})
}

fn print(s: &Snapshot) {
    println!("{:<20} {:<12} {:<10} HOSTS (* a controller runs there)", "TARGET", "HOST", "STATE");
    for (name, d) in &s.targets {
        let owner = s.owners.get(name).map(|o| &o.value);
        let hosts: Vec<String> = d
            .places
            .iter()
            .map(|p| if s.hosts.contains_key(&p.host) { format!("{}*", p.host) } else { p.host.clone() })
            .collect();
        let (host, state) = owner.map_or(("-", "free"), |o| (o.host.as_str(), o.state.as_str()));
        println!("{name:<20} {host:<12} {state:<10} {}", hosts.join(" "));
        for p in &d.places {
            if let Some(why) = s.refused.get(&(name.clone(), p.host.clone())) {
                println!("  {} could not serve it: {}", p.host, why.lines().next().unwrap_or_default());
            }
        }
    }
    let idle: Vec<&str> = s.hosts.keys().map(String::as_str).collect();
    println!("controllers: {}", if idle.is_empty() { "none".to_string() } else { idle.join(", ") });
    for w in &s.strange {
        println!("{w}");
    }
}

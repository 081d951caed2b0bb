//! What a host has that the others of its cluster should have, too: the program, the resource agent, the
//! plan, the units.

use super::plan;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use world::sys::{files, process};

/// Where Pacemaker looks for the resource agent.
pub const AGENT: &str = "/usr/lib/ocf/resource.d/nacre/target";
pub const PLAN: &str = "/etc/nacre.plan";
/// Where units are; the first one wins, as systemd has it.
const UNITS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
/// Of controllers and MGSs; what is of one host only is left out.
pub const DEFAULTS: &str = "/etc/default/nacre";
const OF_ONE_HOST: &str = "NACRE_NID=";
/// A unit of targets that are not under a cluster manager is of one host.
const INSTANCE: char = '@';

#[derive(Args)]
pub struct InventoryArgs {
    /// Description of the cluster
    #[arg(long, default_value = PLAN)]
    pub plan: PathBuf,
    #[arg(long)]
    pub json: bool,
}

/// Something that is the same on two hosts if its digest is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    pub path: String,
    pub digest: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unit {
    #[serde(flatten)]
    pub file: Item,
    /// It is started at boot.
    pub enabled: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    pub host: String,
    pub version: String,
    pub program: Item,
    pub agent: Option<Item>,
    pub plan: Option<Item>,
    /// By their names.
    pub units: BTreeMap<String, Unit>,
    pub defaults: Option<Item>,
    /// Programs that fence, which the plan names: whether they are there.
    pub fence_agents: BTreeMap<String, bool>,
}

fn digest(bytes: &[u8]) -> String {
    format!("crc32c {:08x}, {} bytes", wire::frame::crc32c(bytes), bytes.len())
}

fn item(path: &Path) -> Option<Item> {
    let bytes = files::read(path).ok()?;
    Some(Item { path: path.display().to_string(), digest: digest(&bytes) })
}

/// Without what is of this host.
fn defaults() -> Option<Item> {
    let text = files::read_to_string(Path::new(DEFAULTS)).ok()?;
    let common: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with(OF_ONE_HOST)).collect();
    Some(Item { path: DEFAULTS.into(), digest: digest(common.join("\n").as_bytes()) })
}

/// A link in `*.wants` of systemd's own folder.
fn enabled(unit: &str) -> bool {
    let folders = files::list(Path::new(UNITS[0])).unwrap_or_default();
    let wants = folders.iter().filter(|f| f.ends_with(".wants") || f.ends_with(".requires"));
    wants.into_iter().any(|f| files::stat(&Path::new(UNITS[0]).join(f).join(unit), false).is_ok())
}

fn units() -> BTreeMap<String, Unit> {
    let mut out = BTreeMap::new();
    for folder in UNITS {
        let names = files::list(Path::new(folder)).unwrap_or_default();
        for n in names.into_iter().filter(|n| n.starts_with("nacre-") && n.ends_with(".service")) {
            if let Some(file) = item(&Path::new(folder).join(&n)) {
                let is_enabled = !n.contains(INSTANCE) && enabled(&n);
                out.entry(n).or_insert(Unit { file, enabled: is_enabled });
            }
        }
    }
    assert!(out.keys().all(|n| n.starts_with("nacre-")), "only our own units are compared");
    out
}

/// Whether a program is where root finds it.
fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"]
        .iter()
        .any(|d| files::stat(&Path::new(d).join(program), true).is_ok_and(|s| s.is_file()))
}

/// Of this host. A plan that cannot be read has no fence agents here; `diff` says what is wrong with it.
pub fn take(plan: &Path) -> Result<Inventory, String> {
    let exe = process::own_executable().map_err(|e| format!("cannot find the program itself: {e}"))?;
    let program = item(&exe).ok_or_else(|| format!("cannot read '{}'", exe.display()))?;
    let agents: Vec<String> = plan::read_plan(plan).map(|p| p.fence_agents()).unwrap_or_default();
    Ok(Inventory {
        host: world::sys::hostname(),
        version: admin::VERSION.to_string(),
        program,
        agent: item(Path::new(AGENT)),
        plan: item(plan),
        units: units(),
        defaults: defaults(),
        fence_agents: agents.into_iter().map(|a| (a.clone(), is_installed(&a))).collect(),
    })
}

/// For people, or for `diff`.
pub fn print(a: &InventoryArgs) -> Result<(), String> {
    let i = take(&a.plan)?;
    if a.json {
        println!("{}", serde_json::to_string(&i).expect("plain data encodes"));
        return Ok(());
    }
    let word =
        |i: &Option<Item>| i.as_ref().map_or("not there".into(), |i| format!("{} ({})", i.path, i.digest));
    println!("host {}, Nacre {}", i.host, i.version);
    println!("program: {} ({})", i.program.path, i.program.digest);
    println!("agent: {}", word(&i.agent));
    println!("plan: {}", word(&i.plan));
    println!("defaults: {}", word(&i.defaults));
    for (name, u) in &i.units {
        let at_boot = if u.enabled { ", starts at boot" } else { "" };
        println!("unit {name}: {} ({}){at_boot}", u.file.path, u.file.digest);
    }
    for (name, there) in &i.fence_agents {
        println!("fence agent {name}: {}", if *there { "there" } else { "not there" });
    }
    Ok(())
}

//! Reads `cluster.toml`. Whatever is wrong with it is said with its line, and with what to write instead.

use super::file::{Cluster, Disk, Host, Network, PlannedMount, PlannedTarget, Role, Service, Transport};
use super::words::{self, Table};
use model::nid::parse_net;
use model::target::fsname_is_valid;
use model::{HostNid, TargetId, TargetKind, domain, limits};
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    pub line: usize,
    pub text: String,
}

impl Wrong {
    pub fn new(line: usize, text: impl Into<String>) -> Wrong {
        Wrong { line, text: text.into() }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

type R<T> = Result<T, Wrong>;

/// Hosts of one file.
const HOSTS_MAX: usize = 4096;
/// Steps at one time, unless the file says another number.
const AT_ONCE: u64 = 8;
const AT_ONCE_MAX: u64 = 64;

fn name_is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 64 && !name.starts_with('-') && name.chars().all(plain)
}

/// An absolute path that a shell, fstab and a unit take as it is.
fn path(text: &str, line: usize, key: &str) -> R<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,=".contains(c);
    let whole = text.trim_end_matches('/');
    if !whole.starts_with('/') || !text.chars().all(plain) || text.split('/').any(|p| p == ".." || p == ".") {
        return Err(Wrong::new(
            line,
            format!(
                "{key} = \"{text}\": an absolute path of letters, digits and / . _ - + @ : , = is needed"
            ),
        ));
    }
    Ok(whole.to_string())
}

fn transport(t: &Table<'_>, name: &str) -> R<Transport> {
    let (way, ssh, exec) = (t.text("transport")?, t.text("ssh")?, t.text("exec")?);
    let line = t.line;
    let both = |a: &str, b: &str| {
        Err(Wrong::new(line, format!("host '{name}': '{a}' and '{b}' exclude each other: leave one out")))
    };
    match (way.as_deref(), ssh, exec) {
        (_, Some(_), Some(_)) => both("ssh", "exec"),
        (Some("local"), Some(_), _) => both("transport = \"local\"", "ssh"),
        (Some("local"), _, Some(_)) => both("transport = \"local\"", "exec"),
        (Some("ssh"), _, Some(_)) => both("transport = \"ssh\"", "exec"),
        (Some("exec"), Some(_), _) => both("transport = \"exec\"", "ssh"),
        (Some("local"), None, None) => Ok(Transport::Local),
        (None | Some("exec"), None, Some(prefix)) => {
            let words: Vec<String> = prefix.split_whitespace().map(String::from).collect();
            match words.is_empty() {
                true => {
                    Err(Wrong::new(line, format!("host '{name}': exec is empty: \"ip netns exec {name}\"")))
                }
                false => Ok(Transport::Exec(words)),
            }
        }
        (Some("exec"), None, None) => Err(Wrong::new(
            line,
            format!(
                "host '{name}': exec is missing: the words before each command, \"ip netns exec {name}\""
            ),
        )),
        (None | Some("ssh"), to, None) => {
            let to = to.unwrap_or_else(|| name.to_string());
            if to.starts_with('-') || to.contains(char::is_whitespace) {
                return Err(Wrong::new(line, format!("ssh = \"{to}\": a destination as root@{name}")));
            }
            Ok(Transport::Ssh(to))
        }
        (Some(other), ..) => Err(Wrong::new(line, format!("transport = \"{other}\": local, ssh or exec"))),
    }
}

fn placed(text: Option<String>, line: usize) -> R<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    match domain::parse(&text) {
        Ok(names) if !names.is_empty() => Ok(Some(text)),
        _ => Err(Wrong::new(
            line,
            format!("domain = \"{text}\": names with '/' between, outermost first, as \"rack1/oss1\""),
        )),
    }
}

fn host(t: Table<'_>) -> R<Host> {
    let line = t.line;
    let name = t.need_text("name", "a name that the other parts of the file call it by")?;
    if !name_is_plain(&name) {
        return Err(Wrong::new(line, format!("name = \"{name}\": 1 to 64 letters, digits, . _ or -")));
    }
    let nids = t.need_texts("nids", "its addresses, as \"10.0.0.1@tcp\"")?;
    for n in &nids {
        n.parse::<HostNid>().map_err(|e| Wrong::new(t.line_of("nids"), format!("host '{name}': {e}")))?;
    }
    let mut roles = Vec::new();
    for word in t.need_texts("roles", "what it is for: mgs, mdt, ost, client, monitor")? {
        match Role::ALL.iter().find(|(w, _)| *w == word) {
            Some((_, r)) if !roles.contains(r) => roles.push(*r),
            Some(_) => return Err(Wrong::new(t.line_of("roles"), format!("role '{word}' is there twice"))),
            None => {
                let all: Vec<&str> = Role::ALL.iter().map(|(w, _)| *w).collect();
                let text = format!("host '{name}': no role '{word}': there are {}", all.join(", "));
                return Err(Wrong::new(t.line_of("roles"), text));
            }
        }
    }
    let transport = transport(&t, &name)?;
    let at = t.line_of("domain");
    let domain = placed(t.text("domain")?, at)?;
    let location = t.text("location")?;
    t.end("[[host]]")?;
    Ok(Host { name, nids, roles, transport, domain, location, line })
}

/// What stands in a target's folder, device and domain for its number and its home.
fn filled(text: &str, id: TargetId, home: &str) -> String {
    text.replace("{index}", &id.index.to_string()).replace("{label}", &id.to_string()).replace("{host}", home)
}

fn disk(t: &Table<'_>, dir: &str, id: TargetId, home: &str) -> R<Option<Disk>> {
    let (line, fstype, mount) = (t.line_of("device"), t.text("fstype")?, t.text("mount")?);
    let Some(device) = t.text("device")? else {
        return match fstype.or(mount) {
            Some(_) => {
                Err(Wrong::new(line, "fstype and mount are about a device, and there is none: add device"))
            }
            None => Ok(None),
        };
    };
    let device = path(&filled(&device, id, home), line, "device")?;
    let fstype = fstype.unwrap_or_else(|| "xfs".into());
    if !["xfs", "ext4"].contains(&fstype.as_str()) {
        return Err(Wrong::new(line, format!("fstype = \"{fstype}\": xfs or ext4")));
    }
    let above = dir.rsplit_once('/').map_or("", |(p, _)| p).to_string();
    let mount = mount.map(|m| path(&filled(&m, id, home), line, "mount")).transpose()?.unwrap_or(above);
    if mount.is_empty() || !dir.starts_with(&format!("{mount}/")) {
        let text = format!("'{dir}' is not below '{mount}', where {device} is mounted: name a folder in it");
        return Err(Wrong::new(line, text));
    }
    Ok(Some(Disk { device, fstype, mount }))
}

/// The targets of one table: several, if it says several numbers.
fn targets(t: Table<'_>, kind: TargetKind, fsname: &str) -> R<Vec<PlannedTarget>> {
    let (line, table) = (
        t.line,
        match kind {
            TargetKind::Mgt => "[mgs]",
            TargetKind::Mdt => "[[mdt]]",
            TargetKind::Ost => "[[ost]]",
        },
    );
    let indices = match kind {
        TargetKind::Mgt => vec![0],
        TargetKind::Mdt => t.indices("index")?.unwrap_or_else(|| vec![0]),
        TargetKind::Ost => {
            let missing =
                || Wrong::new(line, "index is missing: a number, or several as \"0-5\" or \"0,2,4\"");
            t.indices("index")?.ok_or_else(missing)?
        }
    };
    if kind == TargetKind::Mdt && indices != [0] {
        return Err(Wrong::new(t.line_of("index"), "this release has one metadata target: index = 0"));
    }
    let hosts = match (t.text("host")?, t.texts("hosts")?) {
        (Some(_), Some(_)) => {
            return Err(Wrong::new(line, "host and hosts exclude each other: hosts = [\"home\", \"other\"]"));
        }
        (Some(one), None) => vec![one],
        (None, Some(all)) if !all.is_empty() => all,
        _ => return Err(Wrong::new(line, format!("host of {table} is missing: who serves it"))),
    };
    if hosts.iter().collect::<BTreeSet<_>>().len() != hosts.len() {
        return Err(Wrong::new(t.line_of("hosts"), "a host is there twice"));
    }
    let dir = t.need_text("dir", "its folder, as \"/srv/nacre/ost{index}\"")?;
    if indices.len() > 1 && !["{index}", "{label}"].iter().any(|w| dir.contains(w)) {
        let text =
            format!("dir = \"{dir}\" is the folder of {} targets: write {{index}} in it", indices.len());
        return Err(Wrong::new(t.line_of("dir"), text));
    }
    let wanted_domain = t.text("domain")?;
    let params = t.settings("params")?;
    let mut out = Vec::new();
    for index in indices {
        let (id, home) = (TargetId { kind, index }, &hosts[0]);
        let dir = path(&filled(&dir, id, home), t.line_of("dir"), "dir")?;
        let disk = disk(&t.again(), &dir, id, home)?;
        let placed = placed(wanted_domain.as_ref().map(|d| filled(d, id, home)), t.line_of("domain"))?;
        let label = if kind == TargetKind::Mgt { "MGS".into() } else { id.label(fsname) };
        let (hosts, params, with_mgt) = (hosts.clone(), params.clone(), false);
        out.push(PlannedTarget { label, id, with_mgt, hosts, dir, disk, domain: placed, params, line });
    }
    for key in ["device", "fstype", "mount"] {
        t.text(key)?;
    }
    t.end(table)?;
    Ok(out)
}

fn mount(t: Table<'_>, clients: &[String]) -> R<PlannedMount> {
    let line = t.line;
    let hosts = t.texts("hosts")?.unwrap_or_else(|| clients.to_vec());
    let dir = path(&t.need_text("dir", "where it is mounted")?, t.line_of("dir"), "dir")?;
    let subdir = t.text("subdir")?.unwrap_or_default().trim_matches('/').to_string();
    let options = t.text("options")?.unwrap_or_default();
    if let Some(bad) = [' ', '\'', '"', '\\'].iter().find(|c| options.contains(**c) || subdir.contains(**c)) {
        return Err(Wrong::new(line, format!("a mount's options and subdir have no {bad:?}")));
    }
    t.end("[[mount]]")?;
    if hosts.is_empty() {
        let text = format!("nobody mounts {dir}: no host has the role 'client', and hosts is not there");
        return Err(Wrong::new(line, text));
    }
    Ok(PlannedMount { hosts, dir, subdir, options, line })
}

fn networks(tables: Vec<(String, Table<'_>)>) -> R<BTreeMap<String, Network>> {
    let mut out = BTreeMap::new();
    for (name, t) in tables {
        parse_net(&name).map_err(|e| Wrong::new(t.line, e.to_string()))?;
        let mtu = t.number("mtu", 576, 65_536)?.and_then(|n| u32::try_from(n).ok());
        let line = t.line;
        t.end(&format!("[network.{name}]"))?;
        out.insert(model::nid::net_name(parse_net(&name).unwrap_or(0)), Network { mtu, line });
    }
    Ok(out)
}

/// Reads a file's text.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn read(text: &str) -> R<Cluster> {
    let doc = words::parse(text)?;
    let t = doc.root();
    let fsname = t.need_text("fsname", "the name of the file system, 1 to 8 of A-Z a-z 0-9 _ -")?;
    if !fsname_is_valid(&fsname) {
        return Err(Wrong::new(
            t.line_of("fsname"),
            format!("fsname = \"{fsname}\": 1 to 8 of A-Z a-z 0-9 _ -"),
        ));
    }
    let service = match t.text("service")?.as_deref() {
        None | Some("systemd") => Service::Systemd,
        Some("process") => Service::Process,
        Some(other) => {
            let text =
                format!("service = \"{other}\": systemd (units), or process (nobody starts them at boot)");
            return Err(Wrong::new(t.line_of("service"), text));
        }
    };
    let port =
        t.number("port", 1, 65_535)?.map_or(limits::PORT, |n| u16::try_from(n).unwrap_or(limits::PORT));
    let metrics = t.number("metrics", 1, 65_000)?.and_then(|n| u16::try_from(n).ok());
    let default = format!("/etc/nacre/{fsname}-metrics.json");
    let monitor_file = t.text("monitor_file")?.unwrap_or(default);
    let monitor_file = path(&monitor_file, t.line_of("monitor_file"), "monitor_file")?;
    let at_once = t.number("at_once", 1, AT_ONCE_MAX)?.unwrap_or(AT_ONCE);
    let networks = networks(t.named("network")?)?;
    let mut hosts = Vec::new();
    for h in t.tables("host")? {
        if hosts.len() == HOSTS_MAX {
            return Err(Wrong::new(h.line, format!("there are more than {HOSTS_MAX} hosts")));
        }
        hosts.push(host(h)?);
    }
    let mut all = Vec::new();
    if let Some(m) = t.table("mgs")? {
        all.extend(targets(m, TargetKind::Mgt, &fsname)?);
    }
    for (key, kind) in [("mdt", TargetKind::Mdt), ("ost", TargetKind::Ost)] {
        for x in t.tables(key)? {
            all.extend(targets(x, kind, &fsname)?);
        }
    }
    all.sort_by_key(|x| (x.id.kind != TargetKind::Mgt, x.id.kind == TargetKind::Ost, x.id.index));
    let clients: Vec<String> = hosts.iter().filter(|h| h.has(Role::Client)).map(|h| h.name.clone()).collect();
    let mut mounts = Vec::new();
    for m in t.tables("mount")? {
        mounts.push(mount(m, &clients)?);
    }
    let (pools, params) = (t.members("pools")?, t.settings("params")?.into_iter().collect());
    let lines = (t.line_of("pools"), t.line_of("params"));
    t.end("the file")?;
    let at_once = usize::try_from(at_once).unwrap_or(1);
    let mut c = Cluster {
        fsname,
        service,
        port,
        metrics,
        monitor_file,
        at_once,
        networks,
        hosts,
        targets: all,
        mounts,
        pools,
        params,
    };
    super::agree::check(&mut c, lines)?;
    Ok(c)
}

//! What no single table of `cluster.toml` can be wrong about: whether its parts agree.

use super::file::{Cluster, Host, PlannedTarget, Role};
use super::read::Wrong;
use model::{HostNid, TargetKind, pool};
use std::collections::BTreeMap;

type R<T> = Result<T, Wrong>;

fn hosts(c: &Cluster) -> R<()> {
    if c.hosts.is_empty() {
        return Err(Wrong::new(1, "there are no hosts: [[host]], with name, nids and roles"));
    }
    let (mut names, mut nids) = (BTreeMap::new(), BTreeMap::new());
    for h in &c.hosts {
        if let Some(line) = names.insert(h.name.as_str(), h.line) {
            return Err(Wrong::new(h.line, format!("host '{}' is there already, in line {line}", h.name)));
        }
        for n in &h.nids {
            if let Some(other) = nids.insert(n.as_str(), h.name.as_str()) {
                let text = format!("host '{}' has the address {n}, which is host '{other}''s", h.name);
                return Err(Wrong::new(h.line, text));
            }
            let net = n.parse::<HostNid>().map_or(0, |n| n.net());
            let net = model::nid::net_name(net);
            if !c.networks.is_empty() && !c.networks.contains_key(&net) {
                let text = format!("host '{}' is on {net}, and there is no [network.{net}]: add it", h.name);
                return Err(Wrong::new(h.line, text));
            }
        }
    }
    Ok(())
}

/// Targets name hosts that are there and have the role.
fn servers(c: &Cluster, t: &PlannedTarget) -> R<()> {
    let roles: &[Role] = match t.id.kind {
        TargetKind::Mgt => &[Role::Mgs],
        TargetKind::Mdt if t.with_mgt => &[Role::Mdt, Role::Mgs],
        TargetKind::Mdt => &[Role::Mdt],
        TargetKind::Ost => &[Role::Ost],
    };
    for name in &t.hosts {
        let Some(h) = c.hosts.iter().find(|h| h.name == *name) else {
            return Err(Wrong::new(
                t.line,
                format!("{}: no host '{name}': add a [[host]] of that name", t.label),
            ));
        };
        if let Some(r) = roles.iter().find(|r| !h.has(**r)) {
            let text = format!(
                "{} is served by host '{name}', whose roles (line {}) lack '{}': add it there",
                t.label,
                h.line,
                r.word()
            );
            return Err(Wrong::new(t.line, text));
        }
    }
    Ok(())
}

fn targets(c: &mut Cluster) -> R<()> {
    let has_mgs = c.targets.iter().any(|t| t.id.kind == TargetKind::Mgt);
    let Some(mdt) = c.targets.iter_mut().find(|t| t.id.kind == TargetKind::Mdt) else {
        return Err(Wrong::new(1, "there is no metadata target: [[mdt]], with host and dir"));
    };
    mdt.with_mgt = !has_mgs;
    if !c.targets.iter().any(|t| t.id.kind == TargetKind::Ost) {
        return Err(Wrong::new(1, "there is no object target: [[ost]], with index, host and dir"));
    }
    let (mut labels, mut devices) = (BTreeMap::new(), BTreeMap::new());
    // By host.
    let mut folders: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for t in &c.targets {
        servers(c, t)?;
        if let Some(line) = labels.insert(t.label.clone(), t.line) {
            return Err(Wrong::new(t.line, format!("{} is there already, in line {line}", t.label)));
        }
        for h in &t.hosts {
            for (folder, other) in folders.get(h.as_str()).into_iter().flatten() {
                let within = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
                if within(folder, &t.dir) || within(&t.dir, folder) {
                    let text = format!("{} and {other} have the folder '{}' of host '{h}'", t.label, t.dir);
                    return Err(Wrong::new(t.line, text));
                }
            }
            if let Some(d) = &t.disk
                && let Some(other) = devices.insert((h.clone(), d.device.clone()), t.label.clone())
            {
                let text = format!(
                    "{} and {other} are on one device, {}: give each one of its own",
                    t.label, d.device
                );
                return Err(Wrong::new(t.line, text));
            }
        }
        for h in &t.hosts {
            folders.entry(h).or_default().push((&t.dir, &t.label));
        }
    }
    Ok(())
}

fn roles(c: &Cluster, h: &Host) -> R<()> {
    let serves = |kind: TargetKind| c.may_serve(&h.name).any(|t| t.id.kind == kind);
    let mounts = c.mounts_of(&h.name).next().is_some();
    let idle = |role: Role| match role {
        Role::Mgs => !c.may_serve(&h.name).any(PlannedTarget::is_mgs),
        Role::Mdt => !serves(TargetKind::Mdt),
        Role::Ost => !serves(TargetKind::Ost),
        Role::Client => !mounts,
        Role::Monitor => c.metrics.is_none(),
    };
    if let Some(r) = h.roles.iter().find(|r| idle(**r)) {
        let what = match r {
            Role::Mgs => "neither [mgs] nor the [[mdt]] that has the MGT names it",
            Role::Mdt => "no [[mdt]] names it",
            Role::Ost => "no [[ost]] names it",
            Role::Client => "no [[mount]] is there for it",
            Role::Monitor => "nobody tells metrics: add metrics = 9169 at the top",
        };
        return Err(Wrong::new(h.line, format!("host '{}' has the role '{}', and {what}", h.name, r.word())));
    }
    if mounts && !h.has(Role::Client) {
        let text = format!("host '{}' has a [[mount]] and not the role 'client': add it", h.name);
        return Err(Wrong::new(h.line, text));
    }
    Ok(())
}

fn mounts(c: &Cluster) -> R<()> {
    let mut met = BTreeMap::new();
    for m in &c.mounts {
        for h in &m.hosts {
            if !c.hosts.iter().any(|x| x.name == *h) {
                return Err(Wrong::new(
                    m.line,
                    format!("mount {}: no host '{h}': add a [[host]] of that name", m.dir),
                ));
            }
            if let Some(line) = met.insert((h, &m.dir), m.line) {
                return Err(Wrong::new(
                    m.line,
                    format!("host '{h}' mounts {} twice: see line {line}", m.dir),
                ));
            }
            if let Some(t) =
                c.may_serve(h).find(|t| t.dir.starts_with(&format!("{}/", m.dir)) || t.dir == m.dir)
            {
                let text = format!("mount {} hides the folder of {} on host '{h}'", m.dir, t.label);
                return Err(Wrong::new(m.line, text));
            }
        }
    }
    Ok(())
}

fn pools(c: &Cluster, line: usize) -> R<()> {
    for (name, members) in &c.pools {
        if !pool::name_is_valid(name) {
            return Err(Wrong::new(line, format!("pool '{name}': 1 to 15 letters, digits, _ or -")));
        }
        let known = |i: &u16| c.targets.iter().any(|t| t.id == model::TargetId::ost(*i));
        if let Some(i) = members.iter().find(|i| !known(i)) {
            return Err(Wrong::new(line, format!("pool '{name}': there is no [[ost]] with index {i}")));
        }
    }
    Ok(())
}

/// Checks it as a whole, and says which MDT has the MGT. `lines`: of pools and of params.
pub fn check(c: &mut Cluster, lines: (usize, usize)) -> R<()> {
    hosts(c)?;
    targets(c)?;
    mounts(c)?;
    c.hosts.iter().try_for_each(|h| roles(c, h))?;
    pools(c, lines.0)?;
    if let Some((name, _)) = c.params.iter().find(|(n, _)| !n.contains('.')) {
        let text = format!("'{name}' is no parameter of the file system: see nacre param list");
        return Err(Wrong::new(lines.1, text));
    }
    assert!(c.targets.iter().filter(|t| t.is_mgs()).count() == 1, "a file system has one MGS");
    Ok(())
}

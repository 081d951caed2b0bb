//! From the file and what was found to what is to be done: nothing here asks or changes anything.

use super::checks::{self, Problem, ProblemList, Severity};
use super::facts::Folder;
use super::file::{Cluster, Host, PlannedMount, PlannedTarget, Role, Service};
use super::gather::Found;
use super::service;
use crate::shell::quoted;
use model::TargetKind;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is done in which order; steps of one stage at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Disks,
    /// The index of a lost target is opened for another one.
    Open,
    Format,
    Mgs,
    Mdts,
    Osts,
    Mounts,
    Pools,
    Parameters,
    Monitor,
    // What `wipe` does.
    Unmount,
    StopMdts,
    StopOsts,
    StopMgs,
    Erase,
    Tidy,
}

impl Stage {
    pub fn words(self) -> &'static str {
        match self {
            Stage::Disks => "file systems on disks",
            Stage::Open => "places of lost targets",
            Stage::Format => "targets",
            Stage::Mgs => "server of the MGS",
            Stage::Mdts => "metadata servers",
            Stage::Osts => "object servers",
            Stage::Mounts => "mounts",
            Stage::Pools => "pools",
            Stage::Parameters => "parameters",
            Stage::Monitor => "addresses of metrics",
            Stage::Unmount => "mounts taken away",
            Stage::StopMdts => "metadata servers ended",
            Stage::StopOsts => "object servers ended",
            Stage::StopMgs => "server of the MGS ended",
            Stage::Erase => "targets removed",
            Stage::Tidy => "files of the configuration removed",
        }
    }

    /// How long one of its steps may take.
    pub fn patience(self) -> Duration {
        match self {
            Stage::Disks | Stage::Erase => Duration::from_secs(600),
            Stage::Mgs | Stage::Mdts | Stage::Osts => Duration::from_secs(300),
            _ => Duration::from_secs(180),
        }
    }
}

/// One line on one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    pub stage: Stage,
    pub host: String,
    /// In words.
    pub what: String,
    /// What is run there, by a shell.
    pub command: String,
}

/// What was made of it all.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    pub problems: Vec<Problem>,
    pub steps: Vec<Step>,
    /// What else there is to know.
    pub notes: Vec<String>,
    /// After these steps there are more, which depend on what they bring.
    pub partial: bool,
}

impl Plan {
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|p| p.severity == Severity::Error)
    }
}

/// What an operator asks for beside the file.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Hosts that came back empty, whose OSTs are made anew.
    pub replace: BTreeSet<String>,
    /// Hosts that are left as they are: they are away.
    pub without: BTreeSet<String>,
}

struct Planner<'a> {
    c: &'a Cluster,
    found: &'a Found,
    wishes: &'a Wishes,
    problems: ProblemList,
    plan: Plan,
    /// Labels of targets that are there, or will be when the format stage is over.
    made: BTreeSet<String>,
}

impl<'a> Planner<'a> {
    fn step(&mut self, stage: Stage, host: &str, what: String, command: String) {
        assert!(!command.is_empty() && !what.is_empty(), "a step does something, and says what");
        self.plan.steps.push(Step { stage, host: host.to_string(), what, command });
    }

    fn is_left_out(&self, host: &str) -> bool {
        self.wishes.without.contains(host) || self.found.facts(host).is_none()
    }

    fn holds(&self, t: &PlannedTarget) -> Option<&'a Folder> {
        self.found.facts(t.home())?.folder(&t.dir)
    }

    /// Hosts whose server has the target.
    fn served_at(&self, t: &PlannedTarget) -> Option<&'a str> {
        let (label, dir) = t.served_as().pop()?;
        self.found.server_of(self.c, &label, &dir).map(|(h, _)| h)
    }

    /// What the MGS knows of targets is not known, and must be before any is made.
    fn waits_for_mgs(&self) -> bool {
        let is_made = matches!(self.holds(self.c.mgs()), Some(Folder::Target(_)));
        is_made && self.found.config(self.c).is_none()
    }

    /// A target that was registered with an MGS, where the MGS's own folder is empty.
    fn knows_another_mgs(&self, t: &PlannedTarget) -> Option<&'a str> {
        let mut others = self.c.targets.iter().filter(|o| t.is_mgs() && o.label != t.label);
        others.find_map(|o| match self.holds(o) {
            Some(Folder::Target(l)) if !l.first_time => Some(o.label.as_str()),
            _ => None,
        })
    }

    fn mkfs(&self, t: &PlannedTarget, half_made: bool, replace: bool) -> String {
        let c = self.c;
        let mut words = vec!["mkfs.nacre".to_string(), "--quiet".into()];
        match t.id.kind {
            TargetKind::Mgt => words.push("--mgs".into()),
            TargetKind::Mdt if t.with_mgt => words.extend(["--mgs".into(), "--mdt".into()]),
            TargetKind::Mdt => words.push("--mdt".into()),
            TargetKind::Ost => words.push("--ost".into()),
        }
        if t.id.kind != TargetKind::Mgt {
            words.extend([format!("--fsname={}", c.fsname), format!("--index={}", t.id.index)]);
        }
        if !t.is_mgs() {
            words.push(format!("--mgsnode={}", c.mgs_nids()));
        }
        if t.hosts.len() > 1 {
            words.push(format!("--servicenode={}", c.nids_of(&t.hosts)));
        }
        let domain = t.domain.as_ref().or(c.host(t.home()).domain.as_ref());
        words.extend(domain.filter(|_| t.id.kind != TargetKind::Mgt).map(|d| format!("--domain={d}")));
        words.extend(t.params.iter().flat_map(|(k, v)| ["--param".to_string(), format!("{k}={v}")]));
        words.extend(replace.then(|| "--replace".to_string()));
        words.extend(half_made.then(|| "--reformat".to_string()));
        words.push(t.dir.clone());
        words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")
    }

    fn disk(&mut self, t: &PlannedTarget) {
        let Some((d, fact)) =
            t.disk.as_ref().and_then(|d| Some((d, self.found.facts(t.home())?.devices.get(&d.device)?)))
        else {
            return;
        };
        if fact.mounted_at.is_some() || !fact.is_there {
            return;
        }
        let (device, at) = (quoted(&d.device), quoted(&d.mount));
        let make =
            if fact.holds.is_empty() { format!("mkfs.{} -q {device} && ", d.fstype) } else { String::new() };
        let alone = t.hosts.len() == 1 && self.c.service == Service::Systemd;
        let mount = if alone {
            let line = format!("{} {} {} noatime,nofail 0 2", d.device, d.mount, d.fstype);
            format!("{{ grep -qF ' {} ' /etc/fstab || echo '{line}' >>/etc/fstab; }} && mount {at}", d.mount)
        } else {
            format!("mount -t {} -o noatime {device} {at}", d.fstype)
        };
        let what = if make.is_empty() { "mount" } else { "make and mount" };
        let what = format!("{what} {} on {} at {}", d.fstype, d.device, d.mount);
        self.step(Stage::Disks, t.home(), what, format!("{make}mkdir -p {at} && {mount}"));
    }

    /// The folder is empty: whether the target is made in it, and how.
    fn empty(&mut self, t: &PlannedTarget, half_made: bool) {
        let (c, host) = (self.c, self.c.host(t.home()));
        let fs = self.found.known(c);
        let known = fs.and_then(|fs| fs.targets.iter().find(|k| k.target == t.label));
        if fs.is_some_and(|fs| fs.removed.contains(&t.label)) {
            let what = format!("{} was taken out of the file system for good", t.label);
            self.problems.error(host, what, "take it out of the file, and give another index");
            return;
        }
        if let Some(other) = self.knows_another_mgs(t) {
            let what = format!("the folder {} of the MGS is empty, and {other} was in a file system", t.dir);
            self.problems.error(host, what, "restore it from a backup: nacre-backup(8)");
            return;
        }
        if known.is_none() {
            let what = format!("make {} in {}", t.label, t.dir);
            let command = self.mkfs(t, half_made, false);
            self.step(Stage::Format, &host.name, what, command);
            self.made.insert(t.label.clone());
            return;
        }
        if t.id.kind != TargetKind::Ost {
            let what = format!("{} was in the file system, and its folder {} is empty", t.label, t.dir);
            self.problems.error(host, what, "restore it from a backup: nacre-backup(8)");
            return;
        }
        if !self.wishes.replace.contains(&host.name) {
            let what = format!("{} was in the file system, and its folder {} is empty", t.label, t.dir);
            let help = format!(
                "mount what it lay on; if that is lost: nacre deploy apply --replace {} puts an empty one in its place",
                host.name
            );
            self.problems.error(host, what, help);
            return;
        }
        if !known.is_some_and(|k| k.may_be_replaced) {
            let what = format!("let another target take the place of {}", t.label);
            self.step(Stage::Open, c.mgs().home(), what, format!("nacre replace --no-wait {}", t.label));
        }
        if known.is_some_and(|k| !k.active) {
            self.plan.notes.push(format!(
                "{0} is deactivated: lctl set_param -P osc.{0}*.active=1 when it is back",
                t.label
            ));
        }
        let what = format!("make an empty {} in {} in place of the lost one", t.label, t.dir);
        let command = self.mkfs(t, half_made, true);
        self.step(Stage::Format, &host.name, what, command);
        self.made.insert(t.label.clone());
        let note = format!("what lay on the lost {0} is an I/O error: nacre lost {0} lists it", t.label);
        self.plan.notes.push(note);
    }

    fn format(&mut self) {
        let waits = self.waits_for_mgs();
        for t in &self.c.targets {
            if self.is_left_out(t.home()) {
                continue;
            }
            self.disk(t);
            match self.holds(t) {
                Some(Folder::Target(_)) => {
                    self.made.insert(t.label.clone());
                }
                // What it holds is known when its disk is mounted.
                _ if self.disk_is_away(t) => self.plan.partial = true,
                Some(Folder::Missing | Folder::Empty | Folder::HalfMade) if waits => self.plan.partial = true,
                Some(Folder::HalfMade) => self.empty(t, true),
                Some(Folder::Missing | Folder::Empty) => self.empty(t, false),
                _ => {}
            }
        }
        if waits && self.plan.partial {
            let note = "which targets are to be made is known when the MGS runs and says which it knows";
            self.plan.notes.push(note.into());
        }
    }

    /// A disk with a file system, which is not mounted.
    fn disk_is_away(&self, t: &PlannedTarget) -> bool {
        let fact = t.disk.as_ref().and_then(|d| self.found.facts(t.home())?.devices.get(&d.device));
        fact.is_some_and(|f| f.is_there && f.mounted_at.is_none() && !f.holds.is_empty())
    }

    fn serve(&mut self, h: &'a Host) {
        let (c, facts) = (self.c, self.found.facts(&h.name));
        let Some(facts) = facts else { return };
        // Those that another host serves at the moment stay there.
        let elsewhere = |s: &Self, t: &&PlannedTarget| s.served_at(t).is_some_and(|at| at != h.name);
        let wanted: Vec<&PlannedTarget> =
            c.homes(&h.name).filter(|t| self.made.contains(&t.label) && !elsewhere(self, t)).collect();
        let away = |t: &&PlannedTarget| self.served_at(t).filter(|at| *at != h.name);
        let told = |t: &PlannedTarget| {
            let at = away(&t)?;
            Some(format!("{} is served by {at}, not by its home {}", t.label, h.name))
        };
        let notes: Vec<String> = c.homes(&h.name).filter_map(told).collect();
        self.plan.notes.extend(notes);
        if wanted.is_empty() {
            return;
        }
        let dirs: Vec<&str> = wanted.iter().map(|t| t.dir.as_str()).collect();
        let served = |t: &&PlannedTarget| t.served_as().iter().all(|(l, d)| facts.served(l, d).is_some());
        let missing: Vec<&str> = wanted.iter().filter(|t| !served(t)).map(|t| t.label.as_str()).collect();
        let daemon = facts.daemon_of(&dirs);
        let other = daemon
            .is_some_and(|d| d.port != c.port || h.nids.iter().any(|n| is_address(n) && !d.nids.contains(n)));
        // What another host serves at the moment comes back: the unit's file has it still.
        let all_here = wanted.len() == c.homes(&h.name).count();
        let file = service::served_file(c, h, &wanted);
        let now = facts.files.get(&file.path).cloned().flatten();
        let unit = c.service == Service::Systemd && all_here && now.as_deref() != Some(&file.text);
        if missing.is_empty() && !other && !unit {
            return;
        }
        let stage = wanted.iter().map(|t| stage_of(t)).min().unwrap_or(Stage::Osts);
        match daemon {
            None => {
                let what = format!("serve {}", missing.join(", "));
                self.step(stage, &h.name, what, service::start(c, h, &wanted));
            }
            Some(d) => {
                let running: Vec<String> = d.targets.iter().map(|t| t.dir.clone()).collect();
                let why = match (missing.is_empty(), other) {
                    (false, _) => format!("serve {} as well", missing.join(", ")),
                    (true, true) => format!("serve at {}, port {}", h.nids.join(","), c.port),
                    (true, false) => format!("serve as {} is to say", file.path),
                };
                let what = format!("{why}: its server starts again, clients wait some seconds");
                let guests =
                    c.targets.iter().filter(|t| t.home() != h.name && self.served_at(t) == Some(&h.name));
                let all: Vec<&PlannedTarget> = wanted.iter().copied().chain(guests).collect();
                self.step(stage, &h.name, what, service::restart(c, h, &all, &running));
            }
        }
    }

    fn mounts(&mut self, h: &Host) {
        let (c, found) = (self.c, self.found);
        let Some(facts) = found.facts(&h.name) else { return };
        for m in c.mounts_of(&h.name) {
            let source = c.source(m);
            match facts.mounts.iter().find(|f| f.dir == m.dir) {
                None => {
                    let what = format!("mount {source} at {}", m.dir);
                    self.step(Stage::Mounts, &h.name, what, service::mount(c, h, m));
                }
                Some(f) if f.state == "dead" => {
                    let what = format!("mount {source} at {} again: its daemon died", m.dir);
                    let again = format!("umount -l {} && {}", quoted(&m.dir), service::mount(c, h, m));
                    self.step(Stage::Mounts, &h.name, what, again);
                }
                Some(f) if f.source != source => {
                    let what = format!("{} is a mount of {}", m.dir, f.source);
                    self.problems.error(h, what, format!("umount {}, or name another mount point", m.dir));
                }
                // What is mounted stays so; the unit is for the next time.
                Some(_) => self.mount_unit(h, m),
            }
        }
    }

    fn mount_unit(&mut self, h: &Host, m: &PlannedMount) {
        let Some(facts) = self.found.facts(&h.name) else { return };
        let unit = service::mount_unit(m);
        let own = service::own_files(self.c, h).into_iter().find(|f| f.path.ends_with(&format!("/{unit}")));
        let Some(file) = own else { return };
        if facts.files.get(&file.path).cloned().flatten().as_deref() != Some(&file.text) {
            let what = format!("write the unit of {}, for its next mount", m.dir);
            let enable = format!("systemctl daemon-reload && systemctl enable {}", quoted(&unit));
            self.step(Stage::Mounts, &h.name, what, format!("{} && {enable}", file.line()));
        }
    }

    fn pools(&mut self) {
        let (c, none) = (self.c, Default::default());
        let there = self.found.known(c).map_or(&none, |k| &k.pools);
        let mgs = c.mgs().home().to_string();
        for (name, wanted) in &c.pools {
            let has = there.get(name);
            // One that is not made yet, or whose host is left out, is nobody's member.
            let is_made = |i: &&u16| self.made.contains(&model::TargetId::ost(**i).label(&c.fsname));
            let not_in = |all: &[u16], i: &&u16| !all.contains(i);
            let add: Vec<u16> =
                wanted.iter().filter(|i| is_made(i) && not_in(has.map_or(&[], |h| h), i)).copied().collect();
            let drop: Vec<u16> =
                has.map_or(&[][..], |h| h).iter().filter(|i| not_in(wanted, i)).copied().collect();
            let pool = format!("{}.{name}", c.fsname);
            let mut lines = Vec::new();
            lines.extend(has.is_none().then(|| format!("lctl pool_new {pool}")));
            for (verb, all) in [("pool_add", add), ("pool_remove", drop)] {
                lines.extend((!all.is_empty()).then(|| format!("lctl {verb} {pool} {}", ranges(&all))));
            }
            if !lines.is_empty() {
                self.step(
                    Stage::Pools,
                    &mgs,
                    format!("pool {pool} is OSTs {}", ranges(wanted)),
                    lines.join(" && "),
                );
            }
        }
    }

    fn parameters(&mut self) {
        let c = self.c;
        let config = self.found.config(c);
        let mgs = c.mgs().home().to_string();
        for (name, value) in &c.params {
            let is = config.is_some_and(|s| s.params.iter().any(|p| p.name == *name && p.value == *value));
            if !is {
                let setting = format!("{name}={value}");
                let command = format!("lctl set_param -P {}", quoted(&setting));
                self.step(Stage::Parameters, &mgs, format!("set {setting}"), command);
            }
        }
    }

    fn files(&mut self, h: &Host) {
        let Some(facts) = self.found.facts(&h.name) else { return };
        if !h.has(Role::Monitor) {
            return;
        }
        let file = service::monitor_file(self.c);
        let now = facts.files.get(&file.path).cloned().flatten();
        if now.as_deref() != Some(&file.text) {
            let what = format!("write the addresses of metrics to {}", file.path);
            self.step(Stage::Monitor, &h.name, what, file.line());
        }
    }
}

fn is_address(nid: &str) -> bool {
    nid.parse::<model::Nid>().is_ok()
}

/// In which stage a target's server is started.
pub fn stage_of(t: &PlannedTarget) -> Stage {
    match t.id.kind {
        _ if t.is_mgs() => Stage::Mgs,
        TargetKind::Ost => Stage::Osts,
        _ => Stage::Mdts,
    }
}

/// `0-3,7`.
pub fn ranges(sorted: &[u16]) -> String {
    let mut out: Vec<(u16, u16)> = Vec::new();
    for &i in sorted {
        match out.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(i) => *last = i,
            _ => out.push((i, i)),
        }
    }
    let one = |(a, b): &(u16, u16)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    format!("[{}]", out.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Names that are no host's are refused, and so is to leave out the MGS, which says what there is.
fn wishes_are_hosts(c: &Cluster, wishes: &Wishes) -> Result<(), String> {
    if wishes.without.contains(c.mgs().home()) {
        return Err(format!("host '{}' has the MGS, and cannot be left out", c.mgs().home()));
    }
    let all = wishes.replace.iter().chain(&wishes.without);
    match all.into_iter().find(|h| !c.hosts.iter().any(|x| x.name == **h)) {
        Some(h) => {
            let names: Vec<&str> = c.hosts.iter().map(|h| h.name.as_str()).collect();
            Err(format!("the file has no host '{h}': there are {}", names.join(", ")))
        }
        None => Ok(()),
    }
}

/// What is to be done so that all is as the file says.
///
/// # Errors
/// A host that is wished something about is not in the file.
pub fn plan(c: &Cluster, found: &Found, wishes: &Wishes) -> Result<Plan, String> {
    wishes_are_hosts(c, wishes)?;
    let mut problems = checks::all(c, found);
    problems.0.retain(|p| !wishes.without.contains(&p.host));
    let (plan, made) = (Plan::default(), BTreeSet::new());
    let mut p = Planner { c, found, wishes, problems, plan, made };
    p.format();
    let here: Vec<&Host> = c.hosts.iter().filter(|h| !p.is_left_out(&h.name)).collect();
    here.iter().for_each(|h| p.serve(h));
    if !p.plan.partial {
        here.iter().for_each(|h| p.mounts(h));
        p.pools();
        p.parameters();
        here.iter().for_each(|h| p.files(h));
    }
    for h in &wishes.without {
        p.plan.notes.push(format!("host {h} is left out"));
    }
    let Planner { problems, mut plan, .. } = p;
    plan.problems = problems.0;
    plan.problems.sort_by_key(|p| p.severity);
    // The sort keeps the order within a stage.
    plan.steps.sort_by_key(|s| s.stage);
    Ok(plan)
}

//! The configuration as it was, as a file, and back: `nacre config show`, `history`, `diff`, `rollback`,
//! `export` and `import`.

use crate::history::{Change, Facts, HISTORY_MAX, Origin, Subject, Version, changes, facts, members};
use crate::mounts::Mounts;
use crate::registration::Refused;
use crate::service::Mgs;
use crate::state::{MgsState, active_of, encode, fs_key};
use model::limits::{POOL_MEMBERS_MAX, POOLS_MAX};
use model::{Errno, Pool, TargetId, domain, pool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::Txn;
use wire::msg::config::TargetEntry;

/// Of the file that `export` writes.
pub const DOCUMENT_FORMAT: u32 = 1;

/// What an administrator asks through the daemon of the MGS, on its host; from others only what changes
/// nothing ([`wire::msg::configview::View`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigOrder {
    Show,
    /// How the mounts of this file system stand with its maintenance: on the MGS's host alone.
    Mounts(String),
    /// The last so many versions.
    History(usize),
    /// The last so many before this one: the rest of a history that is longer than an answer.
    Older(u64, usize),
    /// From one version to another; `None`: to what is in force.
    Diff(u64, Option<u64>),
    /// Parameters and pools become what they were; true: it is only said what would change.
    Rollback(u64, bool),
    Export,
    /// Parameters and pools become what the document says; likewise.
    Import(Document, bool),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigAnswer {
    Shown(Shown),
    Mounts(Mounts),
    /// Oldest first.
    History(Vec<Version>),
    Changes(Changes),
    Document(Document),
}

/// A target as `config show` tells of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShownTarget {
    pub target: String,
    pub uuid: String,
    pub nids: Vec<String>,
    pub epoch: u32,
    pub active: bool,
    pub domain: String,
    /// Another may take its index.
    pub may_be_replaced: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShownFs {
    pub fsname: String,
    pub uuid: String,
    pub targets: Vec<ShownTarget>,
    /// Taken out for good.
    pub removed: Vec<String>,
    pub pools: BTreeMap<String, Vec<u16>>,
}

/// A permanent parameter, and its last change, if the history has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShownParam {
    pub name: String,
    pub value: String,
    pub version: Option<u64>,
    pub time: Option<i64>,
    pub by: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shown {
    pub version: u64,
    /// Versions of the history.
    pub first_kept: Option<u64>,
    pub kept: usize,
    pub file_systems: Vec<ShownFs>,
    pub params: Vec<ShownParam>,
}

/// What differs, or became different.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Changes {
    pub from: u64,
    /// The version that has them; of a dry run the one in force.
    pub to: u64,
    pub changes: Vec<Change>,
    /// What was left as it is, and why.
    pub notes: Vec<String>,
    pub applied: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsDocument {
    #[serde(default)]
    pub pools: BTreeMap<String, Vec<u16>>,
    /// For its reader: what `import` does not touch.
    #[serde(default)]
    pub targets: BTreeMap<String, TargetDocument>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetDocument {
    pub nids: Vec<String>,
    pub active: bool,
}

/// The file that `export` writes and `import` reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub format: u32,
    /// Of the configuration that was exported.
    #[serde(default)]
    pub version: u64,
    pub params: BTreeMap<String, String>,
    #[serde(default)]
    pub file_systems: BTreeMap<String, FsDocument>,
}

fn words(e: Errno) -> Refused {
    (e, e.text().to_string())
}

impl MgsState {
    fn shown(&self) -> Shown {
        let target = |fsname: &str, t: &TargetEntry, open: bool| ShownTarget {
            target: t.target.label(fsname),
            uuid: model::hex(&t.target_uuid),
            nids: t.nids.iter().map(ToString::to_string).collect(),
            epoch: t.epoch,
            active: t.active,
            domain: domain::text(&domain::place(&t.domains, t.nids.first().copied())),
            may_be_replaced: open,
        };
        let file_system = |(fsname, fs): (&String, &crate::FsRecord)| ShownFs {
            fsname: fsname.clone(),
            uuid: model::hex(&fs.fs_uuid),
            targets: fs.targets.iter().map(|t| target(fsname, t, fs.is_open(t.target))).collect(),
            removed: fs.retired_targets().map(|t| t.label(fsname)).collect(),
            pools: fs.pools().into_iter().map(|p| (p.name, p.osts)).collect(),
        };
        let last = self.history.last_of();
        let param = |(name, value): (&String, &String)| {
            let v = last.get(&Subject::Param(name.clone()));
            ShownParam {
                name: name.clone(),
                value: value.clone(),
                version: v.map(|v| v.version),
                time: v.map(|v| v.time),
                by: v.map(|v| v.by.clone()),
            }
        };
        Shown {
            version: self.version,
            first_kept: self.history.versions().next().map(|v| v.version),
            kept: self.history.versions().count(),
            file_systems: self.file_systems.iter().map(file_system).collect(),
            params: self.params.iter().map(param).collect(),
        }
    }

    fn document(&self) -> Document {
        let target = |fsname: &str, t: &TargetEntry| {
            let nids = t.nids.iter().map(ToString::to_string).collect();
            (t.target.label(fsname), TargetDocument { nids, active: t.active })
        };
        let file_system = |(fsname, fs): (&String, &crate::FsRecord)| {
            let pools = fs.pools().into_iter().map(|p| (p.name, p.osts)).collect();
            let targets = fs.targets.iter().map(|t| target(fsname, t)).collect();
            (fsname.clone(), FsDocument { pools, targets })
        };
        Document {
            format: DOCUMENT_FORMAT,
            version: self.version,
            params: self.params.clone(),
            file_systems: self.file_systems.iter().map(file_system).collect(),
        }
    }

    /// What was in force with a version. `ENOENT`: there was none of this number, or what changed since is
    /// not known.
    fn facts_at(&self, version: u64) -> Result<Facts, Refused> {
        if version > self.version {
            return Err((
                Errno::ENOENT,
                format!("there is no version {version}: the last one is {}", self.version),
            ));
        }
        let mut all = facts(self);
        let mut reached = self.version;
        for v in self.history.versions().rev() {
            if v.version <= version {
                reached = version;
                break;
            }
            if v.unrecorded {
                let why = format!(
                    "what changed up to version {} is not recorded ({}): name that one or a later one",
                    v.version, v.how
                );
                return Err((Errno::ENOENT, why));
            }
            for c in &v.changes {
                if c.subject.is_restorable() && all.get(&c.subject) != c.after.as_ref() {
                    let why = format!("version {} says of {} what is not so", v.version, c.subject);
                    return Err((Errno::EIO, why));
                }
                match &c.before {
                    Some(before) => all.insert(c.subject.clone(), before.clone()),
                    None => all.remove(&c.subject),
                };
            }
            reached = v.version.saturating_sub(1);
        }
        if version < reached {
            let why = format!(
                "the history has its last {HISTORY_MAX} changes: version {reached} is the first one that is known"
            );
            return Err((Errno::ENOENT, why));
        }
        Ok(all)
    }

    /// The state that a document asks for, with the targets that there are. `ENOENT`: it names a file system
    /// that the MGS does not know; `EINVAL`: it is none of its formats.
    fn facts_of(&self, d: &Document, notes: &mut Vec<String>) -> Result<Facts, Refused> {
        if d.format != DOCUMENT_FORMAT {
            let why = format!("it has format {}, and this MGS reads {DOCUMENT_FORMAT}: upgrade it", d.format);
            return Err((Errno::EINVAL, why));
        }
        let now = facts(self);
        let stays = |s: &Subject| match s {
            Subject::Target(_) => true,
            Subject::Pool { fsname, .. } => !d.file_systems.contains_key(fsname),
            Subject::Param(_) => false,
        };
        let mut wanted: Facts = now.into_iter().filter(|(s, _)| stays(s)).collect();
        wanted.extend(d.params.iter().map(|(n, v)| (Subject::Param(n.clone()), v.clone())));
        for (fsname, fs) in &d.file_systems {
            if !self.file_systems.contains_key(fsname) {
                let why = format!("the MGS knows no file system '{fsname}': its servers register first");
                return Err((Errno::ENOENT, why));
            }
            for (name, osts) in &fs.pools {
                if !pool::name_is_valid(name) || fs.pools.len() > POOLS_MAX {
                    let why =
                        format!("pool {fsname}.{name}: 1 to 15 of A-Z a-z 0-9 _ -, at most {POOLS_MAX}");
                    return Err((Errno::EINVAL, why));
                }
                let subject = Subject::Pool { fsname: fsname.clone(), pool: name.clone() };
                let mut sorted = osts.clone();
                sorted.sort_unstable();
                sorted.dedup();
                wanted.insert(subject, crate::history::members_text(&sorted));
            }
        }
        notes.extend(
            self.file_systems
                .keys()
                .filter(|f| !d.file_systems.contains_key(*f))
                .map(|f| format!("file system {f}: not in the document, its pools stay")),
        );
        Ok(wanted)
    }

    /// Parameters and pools become what `wanted` says, as far as the targets are there. What was left, and
    /// why, is added to the notes.
    fn restore(&mut self, wanted: &Facts, notes: &mut Vec<String>, txn: &mut Txn) -> Result<(), Refused> {
        let todo = changes(&facts(self), wanted);
        for c in todo.iter().filter(|c| c.subject.is_restorable()) {
            if let Subject::Pool { fsname, pool } = &c.subject {
                self.restore_pool(fsname, pool, c.after.as_deref(), notes, txn)?;
            }
        }
        let params = || todo.iter().filter_map(|c| Some((param_of(&c.subject)?, c.after.as_deref())));
        // What goes makes room for what comes.
        for (name, _) in params().filter(|(_, after)| after.is_none()) {
            self.set_param(name, "", true, txn).map_err(|e| (e, format!("{name}: {}", e.text())))?;
            notes.push(format!(
                "{name}: who runs keeps the value until its next start, as with set_param -P -d"
            ));
        }
        for (name, value) in params().filter_map(|(n, after)| Some((n, after?))) {
            if let Some((fsname, target)) = active_of(name)
                && !self.has_target(&fsname, target)
            {
                notes.push(format!("{name}: {} is not in the configuration any more", target.label(&fsname)));
                continue;
            }
            self.set_param(name, value, false, txn).map_err(|e| (e, format!("{name}: {}", e.text())))?;
        }
        // Two names may be about one target: what is left of them decides.
        let about: Vec<_> = self.params.iter().filter_map(|(n, v)| Some((active_of(n)?, v != "0"))).collect();
        for ((fsname, target), active) in about {
            if self.has_target(&fsname, target) {
                self.set_active(&fsname, target, active, txn).map_err(words)?;
            }
        }
        let left = changes(&facts(self), wanted).into_iter().filter(|c| !c.subject.is_restorable());
        notes.extend(left.map(|c| format!("{}: targets and their registrations stay", c.subject)));
        Ok(())
    }

    fn restore_pool(
        &mut self,
        fsname: &str,
        name: &str,
        osts: Option<&str>,
        notes: &mut Vec<String>,
        txn: &mut Txn,
    ) -> Result<(), Refused> {
        let Some(fs) = self.file_systems.get_mut(fsname) else {
            notes.push(format!("pool {fsname}.{name}: there is no file system {fsname} any more"));
            return Ok(());
        };
        let known = |i: &u16| fs.targets.iter().any(|t| t.target == TargetId::ost(*i));
        let becomes = osts.map(|text| {
            let (here, gone): (Vec<u16>, Vec<u16>) = members(text).into_iter().partition(known);
            let left =
                |i: u16| format!("pool {fsname}.{name}: there is no {}", TargetId::ost(i).label(fsname));
            notes.extend(gone.into_iter().map(left));
            Pool { name: name.to_string(), osts: here }
        });
        fs.set_pool(name, becomes.as_ref());
        let all = fs.pools();
        if all.len() > POOLS_MAX || all.iter().map(|p| p.osts.len()).sum::<usize>() > POOL_MEMBERS_MAX {
            let why = format!("pool {fsname}.{name}: pools or their members are too many");
            return Err((Errno::ENOSPC, why));
        }
        txn.put(fs_key(fsname), encode(fs));
        Ok(())
    }
}

fn param_of(s: &Subject) -> Option<&str> {
    if let Subject::Param(name) = s { Some(name) } else { None }
}

impl Mgs {
    /// `nacre config`. What changed is durable, and every node is told, when it returns.
    ///
    /// # Errors
    /// An errno, and words. `ENOENT`: there is no such version or file system, or the way back to it is not
    /// known; `EINVAL`, `E2BIG`, `ENOSPC`: it cannot be so.
    pub async fn configure(&self, order: &ConfigOrder) -> Result<ConfigAnswer, Refused> {
        match order {
            ConfigOrder::Rollback(version, dry) => {
                let how = format!("config rollback {version}");
                self.restore(*dry, how, |s, _| s.facts_at(*version)).await
            }
            ConfigOrder::Import(d, dry) => {
                self.restore(*dry, "config import".into(), |s, notes| s.facts_of(d, notes)).await
            }
            _ => self.look(order).map(|(_, answer)| answer),
        }
    }

    /// What changes nothing, and the version that it tells of.
    ///
    /// # Errors
    /// As [`Mgs::configure`]; `EINVAL`: it would change something.
    pub fn look(&self, order: &ConfigOrder) -> Result<(u64, ConfigAnswer), Refused> {
        let s = self.state(Clone::clone);
        let answer = match order {
            ConfigOrder::Show => ConfigAnswer::Shown(s.shown()),
            ConfigOrder::Mounts(fsname) => ConfigAnswer::Mounts(self.mounts(fsname)),
            ConfigOrder::Export => ConfigAnswer::Document(s.document()),
            ConfigOrder::History(count) => ConfigAnswer::History(s.history.newest(u64::MAX, *count)),
            ConfigOrder::Older(before, count) => ConfigAnswer::History(s.history.newest(*before, *count)),
            ConfigOrder::Diff(from, to) => {
                let to = to.unwrap_or(s.version);
                let changes = changes(&s.facts_at(*from)?, &s.facts_at(to)?);
                ConfigAnswer::Changes(Changes { from: *from, to, changes, notes: Vec::new(), applied: false })
            }
            ConfigOrder::Rollback(..) | ConfigOrder::Import(..) => return Err(words(Errno::EINVAL)),
        };
        Ok((s.version, answer))
    }

    async fn restore(
        &self,
        dry: bool,
        how: String,
        wanted: impl FnOnce(&MgsState, &mut Vec<String>) -> Result<Facts, Refused>,
    ) -> Result<ConfigAnswer, Refused> {
        let before = self.state(Clone::clone);
        let mut notes = Vec::new();
        if dry {
            let mut after = before.clone();
            let wanted = wanted(&before, &mut notes)?;
            after.restore(&wanted, &mut notes, &mut Txn::new())?;
            return Ok(between(&before, &after, notes, false));
        }
        let (mut why, mut was) = (None, before);
        let change = |s: &mut MgsState, txn: &mut Txn| {
            // Somebody may have changed it since.
            was = s.clone();
            let done = wanted(&was, &mut notes).and_then(|wanted| s.restore(&wanted, &mut notes, txn));
            done.map_err(|(e, words)| {
                why = Some(words);
                e
            })
        };
        let mut is = None;
        let reply = |s: &MgsState| {
            is = Some(s.clone());
            Ok(())
        };
        let done = match self.change(None, Origin::here(how.clone()), change, reply) {
            Ok(done) => done,
            Err(e) => return Err((e, why.unwrap_or_else(|| e.text().to_string()))),
        };
        self.announce(&done, was.version).await.map_err(words)?;
        let is = is.expect("the reply was made");
        tracing::warn!(
            "MGS: an administrator changed the configuration from version {} on: {how}",
            was.version
        );
        Ok(between(&was, &is, notes, is.version != was.version))
    }
}

fn between(before: &MgsState, after: &MgsState, notes: Vec<String>, applied: bool) -> ConfigAnswer {
    let changes = changes(&facts(before), &facts(after));
    ConfigAnswer::Changes(Changes { from: before.version, to: after.version, changes, notes, applied })
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;

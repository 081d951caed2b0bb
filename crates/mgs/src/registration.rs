//! Who is let into the configuration, as what, and what an administrator sets right. Decision 0040.
//!
//! What is known of a target beside its entry lies in the file system's record as tagged values.

use crate::state::{FILE_SYSTEMS_MAX, FsRecord, MgsState, active_of, encode, forget_params, fs_key};
use model::{Errno, Nid, TargetId, TargetKind, domain, target};
use rpc::Principal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use store::Txn;
use wire::msg::config::{EXTRA_RETIRED, TargetEntry};
use wire::proof::{Claimant, Key};

/// Addresses of one target.
pub(crate) const NIDS_MAX: usize = 64;
/// A target may have been started so many times since the MGS heard of it last. One that says more is none of
/// ours: its real server would never be let in again.
pub const EPOCH_JUMP_MAX: u32 = 1000;
/// Transaction numbers have 24 bits for the epoch.
const EPOCH_MAX: u32 = (1 << 24) - 1;

/// Tag of a value of [`FsRecord::extra`]: the number of a target whose index another may take, once.
const TAG_OPENED: u16 = 1;
/// The UUID of a target, and its key.
const TAG_TARGET_KEY: u16 = 2;
/// By which servers of the file system know each other.
const TAG_SERVER_KEY: u16 = 3;
/// An OST pool (`pools.rs`).
pub(crate) const TAG_POOL: u16 = 4;

/// A target that was taken out for good: its number (`u32`) and its UUID.
const TAG_RETIRED: u16 = 5;
/// Indices of a file system that are retired: they travel in one message.
const RETIRED_MAX: usize = 10_000;

/// What a target says of itself.
pub(crate) struct Claim<'a> {
    pub fsname: &'a str,
    /// Zero: it was never registered.
    pub fs_uuid: [u8; 16],
    pub entry: TargetEntry,
    /// It is to take the index of a lost one.
    pub replace: bool,
    /// It says where it was placed. One that does not is older, and stays where it was.
    pub knows_domains: bool,
    /// The key that it said, for an MGS that has none of it.
    pub key: Option<Key>,
    /// Who says it.
    pub from: &'a Principal,
}

impl Claim<'_> {
    fn shows(&self, key: &Key) -> bool {
        self.from.shows(Claimant::Target(self.entry.target_uuid), key)
    }
}

/// What the MGS makes up for a file system that has it not yet.
pub(crate) struct Fresh {
    pub fs_uuid: [u8; 16],
    pub server_key: Key,
}

/// What an administrator wants of a registration. Only through the daemon of the MGS, on its host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// How it stands.
    Show,
    /// A target made with `--replace` may take the index, once.
    Open,
    /// Not any more.
    Close,
    /// The epoch of the last start that is to count.
    Epoch(u32),
    Nids(Vec<Nid>),
    /// The key that the target proves itself with is forgotten: the next one that it says counts.
    NewKey,
    /// Takes the target out of the configuration. Only one that is deactivated.
    Remove,
    /// The same of an OST for good, with the parameters that name it: its index is free for nobody but a
    /// target made with `--replace`. Nothing is changed if that was done already.
    Retire,
}

impl Order {
    /// The command that gives it, about a target.
    pub(crate) fn command(&self, label: &str) -> String {
        let words = match self {
            Order::Show => "",
            Order::Open => " replace",
            Order::Close => " no-replace",
            Order::Epoch(_) => " epoch",
            Order::Nids(_) => " nids",
            Order::NewKey => " new-key",
            Order::Remove => " remove",
            Order::Retire => return format!("remove {label}"),
        };
        format!("registration {label}{words}")
    }
}

/// Why not, for scripts and for people.
pub type Refused = (Errno, String);

impl FsRecord {
    pub(crate) fn is_open(&self, target: TargetId) -> bool {
        self.extra.iter().any(|(t, v)| *t == TAG_OPENED && **v == target.to_u32().to_le_bytes())
    }

    fn set_open(&mut self, target: TargetId, open: bool) {
        let value = target.to_u32().to_le_bytes();
        self.extra.retain(|(t, v)| *t != TAG_OPENED || **v != value);
        if open {
            self.extra.push((TAG_OPENED, value.to_vec()));
        }
        assert_eq!(self.is_open(target), open, "an index is open to others when an administrator says so");
    }

    /// The UUID of the target that was taken out for good, if nobody has its index since.
    fn retired(&self, target: TargetId) -> Option<[u8; 16]> {
        let number = target.to_u32().to_le_bytes();
        let mut all = self.extra.iter().filter(|(t, _)| *t == TAG_RETIRED);
        all.find_map(|(_, v)| v.strip_prefix(&number)?.try_into().ok())
    }

    /// `None`: somebody may have, or has, the index again.
    fn set_retired(&mut self, target: TargetId, target_uuid: Option<[u8; 16]>) {
        let number = target.to_u32().to_le_bytes();
        self.extra.retain(|(t, v)| *t != TAG_RETIRED || !v.starts_with(&number));
        self.extra.extend(target_uuid.map(|u| (TAG_RETIRED, [&number[..], &u].concat())));
        assert_eq!(self.retired(target), target_uuid, "an index is retired once");
    }

    /// Those that were taken out for good.
    pub(crate) fn retired_targets(&self) -> impl Iterator<Item = TargetId> + '_ {
        let number = |v: Vec<u8>| Some(u32::from_le_bytes(v.try_into().ok()?));
        self.retired_extras().filter_map(move |(_, v)| TargetId::from_u32(number(v)?))
    }

    /// As nodes are told of them.
    pub(crate) fn retired_extras(&self) -> impl Iterator<Item = (u16, Vec<u8>)> + '_ {
        let all = self.extra.iter().filter(|(t, v)| *t == TAG_RETIRED && v.len() >= 4);
        all.map(|(_, v)| (EXTRA_RETIRED, v[..4].to_vec()))
    }

    fn key_of(&self, target_uuid: [u8; 16]) -> Option<Key> {
        let mut all = self.extra.iter().filter(|(t, _)| *t == TAG_TARGET_KEY);
        all.find_map(|(_, v)| v.strip_prefix(&target_uuid)?.try_into().ok())
    }

    fn set_key(&mut self, target_uuid: [u8; 16], key: Option<Key>) {
        self.extra.retain(|(t, v)| *t != TAG_TARGET_KEY || !v.starts_with(&target_uuid));
        self.extra.extend(key.map(|k| (TAG_TARGET_KEY, [&target_uuid[..], &k].concat())));
        assert_eq!(self.key_of(target_uuid), key, "a target has one key");
    }

    /// By which servers of the file system know each other.
    pub(crate) fn server_key(&self) -> Option<Key> {
        let mut all = self.extra.iter().filter(|(t, _)| *t == TAG_SERVER_KEY);
        all.find_map(|(_, v)| v.as_slice().try_into().ok())
    }

    /// Whether the claim is made by who has the target's folder. The first time whoever comes is believed, as
    /// far as nothing else changes.
    fn proves(&mut self, claim: &Claim) -> Result<(), Errno> {
        let uuid = claim.entry.target_uuid;
        if let Some(key) = self.key_of(uuid) {
            return if claim.shows(&key) { Ok(()) } else { Err(Errno::EKEYREJECTED) };
        }
        let Some(key) = claim.key else { return Err(Errno::ENOKEY) };
        let moved = |t: &&TargetEntry| {
            let set = |n: &[Nid]| n.iter().copied().collect::<BTreeSet<Nid>>();
            t.target_uuid == uuid && set(&t.nids) != set(&claim.entry.nids)
        };
        if !claim.shows(&key) || self.targets.iter().any(|t| moved(&t)) {
            return Err(Errno::EKEYREJECTED);
        }
        self.set_key(uuid, Some(key));
        Ok(())
    }

    /// Whether `claim` may be made of what is known of this index.
    fn admits(&self, claim: &Claim) -> Result<(), Errno> {
        let e = &claim.entry;
        let Some(known) = self.targets.iter().find(|t| t.target == e.target) else {
            return match self.retired(e.target) {
                Some(uuid) if uuid == e.target_uuid || !claim.replace => Err(Errno::ENODEV),
                _ => Ok(()),
            };
        };
        if known.target_uuid != e.target_uuid {
            return match (claim.replace, self.is_open(e.target)) {
                (false, _) => Err(Errno::EADDRINUSE),
                (true, false) => Err(Errno::EACCES),
                (true, true) => Ok(()),
            };
        }
        // an older epoch is a server that lost the target meanwhile
        if known.epoch > e.epoch {
            return Err(Errno::ESTALE);
        }
        if e.epoch - known.epoch > EPOCH_JUMP_MAX {
            return Err(Errno::ERANGE);
        }
        Ok(())
    }
}

impl MgsState {
    /// The index of a target that has none: the one that it was given already, or the first that neither is,
    /// nor was, another target's. `EINVAL`: there is none for this kind; `ENOSPC`: all are taken.
    pub(crate) fn next_index(
        &self,
        fsname: &str,
        kind: TargetKind,
        target_uuid: [u8; 16],
    ) -> Result<TargetId, Errno> {
        if kind != TargetKind::Ost {
            return Err(Errno::EINVAL);
        }
        let Some(fs) = self.file_systems.get(fsname) else { return Ok(TargetId::ost(0)) };
        let of_kind = || fs.targets.iter().filter(|t| t.target.kind == kind);
        if let Some(known) = of_kind().find(|t| t.target_uuid == target_uuid) {
            return Ok(known.target);
        }
        let taken: BTreeSet<u16> = of_kind().map(|t| t.target.index).collect();
        let is_free = |i: &u16| !taken.contains(i) && fs.retired(TargetId::ost(*i)).is_none();
        let last = u16::try_from(model::limits::OST_INDEX_MAX).unwrap_or(u16::MAX);
        let free = (0..=last).find(is_free).ok_or(Errno::ENOSPC)?;
        assert!(TargetId::ost(free).is_assigned(), "an index that is given is one");
        Ok(TargetId::ost(free))
    }

    /// Adds or renews a target. `fresh` is used if this is the file system's first one, whichever target that
    /// is: MDT0000 may come later. `EADDRINUSE`: another target has this index; `EACCES`: and nobody allowed
    /// that it is replaced; `EINVAL`: it belongs to another file system of this name, or its name, index,
    /// epoch or addresses are none; `ESTALE`: a later start of it is known; `ERANGE`: it cannot have been
    /// started so often; `EKEYREJECTED`: it is not the target that it says; `ENOKEY`: it is to say its key;
    /// `ENOSPC`: too many; `ENODEV`: it was taken out for good, or had its index.
    pub(crate) fn register(&mut self, claim: Claim, fresh: &Fresh, txn: &mut Txn) -> Result<(), Errno> {
        let (fsname, entry) = (claim.fsname, &claim.entry);
        let t = entry.target;
        let possible = t.kind != TargetKind::Mgt
            && u32::from(t.index) <= model::limits::OST_INDEX_MAX
            && (1..=EPOCH_MAX).contains(&entry.epoch);
        let reachable = (1..=NIDS_MAX).contains(&entry.nids.len());
        if !target::fsname_is_valid(fsname) || !possible || !reachable || entry.target_uuid == [0; 16] {
            return Err(Errno::EINVAL);
        }
        let known = self.file_systems.get(fsname);
        if known.is_none() && self.file_systems.len() >= FILE_SYSTEMS_MAX {
            return Err(Errno::ENOSPC);
        }
        // A target that knows its file system brings it to an MGS that lost its memory.
        let first = if claim.fs_uuid == [0; 16] { fresh.fs_uuid } else { claim.fs_uuid };
        let mut fs =
            known.cloned().unwrap_or(FsRecord { fs_uuid: first, targets: Vec::new(), extra: Vec::new() });
        if claim.fs_uuid != [0; 16] && claim.fs_uuid != fs.fs_uuid {
            return Err(Errno::EINVAL);
        }
        fs.admits(&claim)?;
        fs.proves(&claim)?;
        if fs.server_key().is_none() {
            fs.extra.push((TAG_SERVER_KEY, fresh.server_key.to_vec()));
        }
        let entry = claim.entry;
        match fs.targets.iter_mut().find(|t| t.target == entry.target) {
            Some(t) => {
                let other = (t.target_uuid != entry.target_uuid).then_some(t.target_uuid);
                let (target, active) = (t.target, t.active);
                let domains = match claim.knows_domains || other.is_some() {
                    true => entry.domains.clone(),
                    false => std::mem::take(&mut t.domains),
                };
                *t = TargetEntry { active, domains, ..entry };
                if let Some(lost) = other {
                    fs.set_open(target, false);
                    fs.set_key(lost, None);
                }
            }
            None => {
                fs.set_retired(entry.target, None);
                fs.targets.push(entry);
            }
        }
        fs.targets.sort_by_key(|t| t.target);
        assert!(fs.targets.is_sorted_by(|a, b| a.target < b.target), "a target is in the configuration once");
        assert!(fs.server_key().is_some(), "the servers of a file system know each other");
        if known != Some(&fs) {
            txn.put(fs_key(fsname), encode(&fs));
            self.file_systems.insert(fsname.to_string(), fs);
            assert!(self.file_systems.len() <= FILE_SYSTEMS_MAX, "an MGS manages so many file systems");
        }
        Ok(())
    }

    /// How the registration of a target stands, a line for each thing.
    pub(crate) fn registration(&self, label: &str) -> Result<String, Refused> {
        let (fsname, target) = self.find(label)?;
        let fs = &self.file_systems[&fsname];
        let t = fs.targets.iter().find(|t| t.target == target).expect("found above");
        let nids: Vec<String> = t.nids.iter().map(ToString::to_string).collect();
        let uuid: String = t.target_uuid.iter().map(|b| format!("{b:02x}")).collect();
        let mut s = format!("target: {label}\nuuid: {uuid}\nepoch: {}\nnids: {}\n", t.epoch, nids.join(","));
        let yes = |b: bool| if b { "yes" } else { "no" };
        let _ =
            writeln!(s, "active: {}\nkey known: {}", yes(t.active), yes(fs.key_of(t.target_uuid).is_some()));
        let _ = writeln!(s, "domain: {}", domain::text(&domain::place(&t.domains, t.nids.first().copied())));
        let _ = writeln!(s, "may be replaced: {}", yes(fs.is_open(target)));
        Ok(s)
    }

    fn find(&self, label: &str) -> Result<(String, TargetId), Refused> {
        let found = self.file_systems.iter().find_map(|(name, fs)| {
            let t = fs.targets.iter().find(|t| t.target.label(name) == label)?;
            Some((name.clone(), t.target))
        });
        found.ok_or_else(|| {
            let words = if self.find_retired(label).is_some() {
                format!("{label} was removed from the file system for good")
            } else {
                format!("the MGS knows no target {label}: see lctl get_param mgs.MGS.live.*")
            };
            (Errno::ENODEV, words)
        })
    }

    /// Of a target that was taken out for good.
    fn find_retired(&self, label: &str) -> Option<TargetId> {
        let (fsname, _) = label.rsplit_once('-')?;
        self.file_systems.get(fsname)?.retired_targets().find(|t| t.label(fsname) == label)
    }

    /// Does what an administrator wants of the registration of `label`.
    pub(crate) fn administer(&mut self, label: &str, order: &Order, txn: &mut Txn) -> Result<(), Refused> {
        if *order == Order::Retire && self.find_retired(label).is_some() {
            return Ok(());
        }
        let (fsname, target) = self.find(label)?;
        let fs = self.file_systems.get_mut(&fsname).expect("found above");
        let at = fs.targets.iter().position(|t| t.target == target).expect("found above");
        match order {
            Order::Show => return Ok(()),
            Order::Open => fs.set_open(target, true),
            Order::Close => fs.set_open(target, false),
            Order::Epoch(n) if *n <= EPOCH_MAX => fs.targets[at].epoch = *n,
            Order::Epoch(n) => return Err((Errno::ERANGE, format!("epoch {n} is above {EPOCH_MAX}"))),
            Order::Nids(n) if (1..=NIDS_MAX).contains(&n.len()) => fs.targets[at].nids.clone_from(n),
            Order::Nids(n) => {
                return Err((Errno::EINVAL, format!("{} NIDs: 1 to {NIDS_MAX} are possible", n.len())));
            }
            Order::Remove | Order::Retire if fs.targets[at].active => {
                let layer = if target.kind == TargetKind::Ost { "osc" } else { "mdc" };
                let words = format!(
                    "{label} is in use: deactivate it first (lctl set_param -P {layer}.{label}*.active=0)"
                );
                return Err((Errno::EBUSY, words));
            }
            Order::NewKey => fs.set_key(fs.targets[at].target_uuid, None),
            Order::Retire if target.kind != TargetKind::Ost => {
                return Err((Errno::EINVAL, format!("{label} is no OST: only those are removed for good")));
            }
            Order::Retire if fs.extra.iter().filter(|(t, _)| *t == TAG_RETIRED).count() >= RETIRED_MAX => {
                return Err((Errno::ENOSPC, format!("{RETIRED_MAX} OSTs of it were removed already")));
            }
            Order::Remove | Order::Retire => {
                let gone = fs.targets.remove(at);
                assert!(!gone.active, "a target that is in use stays in the configuration");
                fs.set_key(gone.target_uuid, None);
                fs.set_open(target, false);
                fs.leave_pools(target);
                if *order == Order::Retire {
                    fs.set_retired(target, Some(gone.target_uuid));
                }
                // Whoever gets this index next begins without the settings of this one.
                let is_its = |k: &&String| match order {
                    Order::Retire => k.split('.').nth(1).is_some_and(|device| device.starts_with(label)),
                    _ => active_of(k) == Some((fsname.clone(), target)),
                };
                forget_params(&mut self.params, is_its, txn);
            }
        }
        txn.put(fs_key(&fsname), encode(&self.file_systems[&fsname]));
        Ok(())
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
pub(crate) mod tests;

//! The configuration: one record a file system, one for permanent parameters. Byte tables in
//! `docs/formats/mgt.md`.

use crate::book::Book;
use crate::history::{self, History};
use model::{Errno, TargetId, target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{StoreError, Txn};
use wire::msg::config::{ConfigReply, EXTRA_POOL, TargetEntry};

/// Key tag of the configuration.
pub const TAG: u8 = b'G';
/// Schema version of its values.
pub const RECORD_VERSION: u8 = 1;
/// File systems that one MGS manages.
pub(crate) const FILE_SYSTEMS_MAX: usize = 1000;
/// Permanent parameters.
const PARAMS_MAX: usize = 10_000;
/// Longest name or value of a permanent parameter.
const PARAM_MAX_BYTES: usize = 4096;
/// All permanent parameters together: they travel in one message.
const PARAMS_TOTAL_MAX_BYTES: usize = 1 << 20;

/// Entries of the history that are read: a later version may keep more of them.
const HISTORY_READ_MAX: usize = 1 << 20;

/// What is stored of one file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FsRecord {
    pub fs_uuid: [u8; 16],
    /// Sorted by target.
    pub targets: Vec<TargetEntry>,
    /// What else is known of its targets (`registration.rs`), and unknown extensions of later versions.
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// All of it, as kept in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MgsState {
    /// Grows with each change of anything.
    pub version: u64,
    pub file_systems: BTreeMap<String, FsRecord>,
    pub params: BTreeMap<String, String>,
    pub history: History,
}

pub(crate) fn fs_key(fsname: &str) -> Vec<u8> {
    [&[TAG, b'f'], fsname.as_bytes()].concat()
}

pub(crate) fn param_key(name: &str) -> Vec<u8> {
    [&[TAG, b'p'], name.as_bytes()].concat()
}

/// Permanent parameters that end with what they are of.
pub(crate) fn forget_params(
    params: &mut BTreeMap<String, String>,
    is_its: impl Fn(&&String) -> bool,
    txn: &mut Txn,
) {
    let its: Vec<String> = params.keys().filter(is_its).cloned().collect();
    for name in its {
        params.remove(&name);
        txn.delete(param_key(&name));
    }
}

const VERSION_KEY: [u8; 2] = [TAG, b'v'];

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![RECORD_VERSION]).expect("plain data encodes")
}

pub(crate) fn decode<T: for<'a> Deserialize<'a>>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    let damaged = |why: String| StoreError::Damaged { what: "configuration", path: what.to_string(), why };
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => {
            postcard::take_from_bytes(rest).map(|(v, _)| v).map_err(|e| damaged(e.to_string()))
        }
        Some((v, _)) => Err(damaged(format!("record version {v} is not known here: upgrade this server"))),
        None => Err(damaged("empty record".to_string())),
    }
}

fn name_of(key: &[u8]) -> Result<String, StoreError> {
    String::from_utf8(key[2..].to_vec()).map_err(|e| StoreError::Damaged {
        what: "configuration",
        path: String::from_utf8_lossy(key).into_owned(),
        why: e.to_string(),
    })
}

/// The configuration of one file system out of an MGT's database; `None` if it does not know that one.
pub fn load_config(db: &dyn Book, fsname: &str) -> Result<Option<ConfigReply>, StoreError> {
    Ok(read_configuration(db)?.config(fsname).ok())
}

/// Reads the configuration out of where an MGS keeps it.
pub fn read_configuration(db: &dyn Book) -> Result<MgsState, StoreError> {
    let mut s = MgsState::default();
    if let Some(v) = db.get(&VERSION_KEY)? {
        s.version = decode("version", &v)?;
    }
    for (k, v) in db.scan(&[TAG, b'f'], &[TAG, b'g'], FILE_SYSTEMS_MAX)? {
        let name = name_of(&k)?;
        let record: FsRecord = decode(&name, &v)?;
        if !record.targets.is_sorted_by(|a, b| a.target < b.target) {
            let why = "its targets are not in order, or there is one twice".to_string();
            return Err(StoreError::Damaged { what: "configuration", path: name, why });
        }
        s.file_systems.insert(name, record);
    }
    for (k, v) in db.scan(&[TAG, b'p'], &[TAG, b'q'], PARAMS_MAX)? {
        let name = name_of(&k)?;
        let value = decode(&name, &v)?;
        s.params.insert(name, value);
    }
    let (from, to) = history::KEYS;
    let covered = db.get(history::covered_key())?;
    s.history = History::read(s.version, covered.as_deref(), db.scan(&from, &to, HISTORY_READ_MAX)?);
    Ok(s)
}

impl MgsState {
    /// Everything anew, for another place to keep it in.
    pub fn all(&self) -> Txn {
        let mut txn = Txn::new();
        txn.put(VERSION_KEY, encode(&self.version));
        self.file_systems.iter().for_each(|(name, fs)| txn.put(fs_key(name), encode(fs)));
        self.params.iter().for_each(|(name, value)| txn.put(param_key(name), encode(value)));
        self.history.all(self.version, &mut txn);
        txn
    }

    /// A change was made: it gets a version of its own.
    pub fn next_version(&mut self, txn: &mut Txn) {
        self.version += 1;
        txn.put(VERSION_KEY, encode(&self.version));
    }

    /// What a node of `fsname` is told; `ENOENT` if the MGS knows no such file system.
    pub fn config(&self, fsname: &str) -> Result<ConfigReply, Errno> {
        let fs = self.file_systems.get(fsname).ok_or(Errno::ENOENT)?;
        Ok(ConfigReply {
            version: self.version,
            fsname: fsname.to_string(),
            fs_uuid: fs.fs_uuid,
            targets: fs.targets.clone(),
            params: self.params.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            extra: fs.pools().iter().map(|p| (EXTRA_POOL, p.encode())).chain(fs.retired_extras()).collect(),
        })
    }

    /// `set_param -P`, or with `delete` its end. `osc.FSNAME-OST0000*.active` also takes the target out of
    /// the configuration, or back in. `EINVAL`: the name is no parameter's; `ENOENT`: nothing to delete;
    /// `E2BIG`, `ENOSPC`: over the limits.
    pub fn set_param(&mut self, name: &str, value: &str, delete: bool, txn: &mut Txn) -> Result<(), Errno> {
        let plain = |c: u8| c.is_ascii_graphic() && c != b'=';
        let dotted = name.contains('.') && !name.starts_with('.') && !name.ends_with('.');
        if name.len() > PARAM_MAX_BYTES || !dotted || !name.bytes().all(plain) {
            return Err(Errno::EINVAL);
        }
        if value.len() > PARAM_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        if delete {
            self.params.remove(name).ok_or(Errno::ENOENT)?;
            txn.delete(param_key(name));
        } else {
            let total: usize = self.params.iter().map(|(k, v)| k.len() + v.len()).sum();
            let more = !self.params.contains_key(name);
            if (more && self.params.len() >= PARAMS_MAX)
                || total + name.len() + value.len() > PARAMS_TOTAL_MAX_BYTES
            {
                return Err(Errno::ENOSPC);
            }
            txn.put(param_key(name), encode(&value));
            self.params.insert(name.to_string(), value.to_string());
            assert!(self.params.len() <= PARAMS_MAX, "permanent parameters are bounded");
        }
        match active_of(name) {
            // What is said of a target that is not there any more can be taken back.
            Some((fsname, target)) if delete && !self.has_target(&fsname, target) => Ok(()),
            Some((fsname, target)) => self.set_active(&fsname, target, delete || value != "0", txn),
            None => Ok(()),
        }
    }

    pub(crate) fn has_target(&self, fsname: &str, target: TargetId) -> bool {
        self.file_systems.get(fsname).is_some_and(|fs| fs.targets.iter().any(|t| t.target == target))
    }

    /// `lctl deactivate` on the MGS, for good: nodes stop using the target, or use it again.
    pub(crate) fn set_active(
        &mut self,
        fsname: &str,
        target: TargetId,
        active: bool,
        txn: &mut Txn,
    ) -> Result<(), Errno> {
        let fs = self.file_systems.get_mut(fsname).ok_or(Errno::ENOENT)?;
        fs.targets.iter_mut().find(|t| t.target == target).ok_or(Errno::ENOENT)?.active = active;
        txn.put(fs_key(fsname), encode(fs));
        Ok(())
    }
}

/// The target that `osc.FSNAME-OST0000*.active` or `mdc.FSNAME-MDT0000*.active` is about.
pub(crate) fn active_of(name: &str) -> Option<(String, TargetId)> {
    let (layer, rest) = name.split_once('.')?;
    let device = rest.strip_suffix(".active")?;
    // What follows the label names the device on one node (`-osc-MDT0000`, `-osc-*`, `*`).
    let (fsname, label) = device.match_indices('-').find_map(|(i, _)| {
        let label = device[i + 1..].get(..7)?;
        let kind = if layer == "osc" { "OST" } else { "MDT" };
        (matches!(layer, "osc" | "mdc") && label.starts_with(kind)).then_some((&device[..i], label))
    })?;
    let index = u16::from_str_radix(&label[3..], 16).ok()?;
    let target = if layer == "osc" { TargetId::ost(index) } else { TargetId::mdt(index) };
    target::fsname_is_valid(fsname).then(|| (fsname.to_string(), target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::{Fresh, tests::claim_with_key};
    use crate::testing::entry;
    use model::TargetId;

    struct Try {
        s: MgsState,
    }

    impl Try {
        fn register(&mut self, fs: &str, entry: TargetEntry) {
            let fresh = Fresh { fs_uuid: [9; 16], server_key: [8; 32] };
            claim_with_key(fs, 0, entry, false, |c| self.s.register(c, &fresh, &mut Txn::new())).unwrap();
        }

        fn set(&mut self, name: &str, value: &str, delete: bool) -> Result<(), Errno> {
            self.s.set_param(name, value, delete, &mut Txn::new())
        }
    }

    #[test]
    fn permanent_parameters() {
        let mut t = Try { s: MgsState::default() };
        t.set("osc.*.max_rpcs_in_flight", "16", false).unwrap();
        assert_eq!(t.s.params["osc.*.max_rpcs_in_flight"], "16");
        for bad in ["", "nodots", ".x", "x.", "a.b=c", "a b.c"] {
            assert_eq!(t.set(bad, "1", false), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(t.set("a.b", "", true), Err(Errno::ENOENT));
        assert_eq!(t.set("a.b", &"x".repeat(5000), false), Err(Errno::E2BIG));
        t.set("osc.*.max_rpcs_in_flight", "", true).unwrap();
        assert!(t.s.params.is_empty());
        let full = (0..1000).find_map(|n| t.set(&format!("a.b{n}"), &"x".repeat(4000), false).err());
        assert_eq!(full, Some(Errno::ENOSPC), "they must fit into a message");
        t.register("demo", entry(TargetId::ost(0x1a), 1, 1));
    }

    #[test]
    fn a_target_is_taken_out_of_use() {
        let mut t = Try { s: MgsState::default() };
        t.register("my-fs", entry(TargetId::ost(0x1a), 1, 1));
        let active = |t: &Try| t.s.config("my-fs").unwrap().targets[0].active;
        t.set("osc.my-fs-OST001a-*.active", "0", false).unwrap();
        assert!(!active(&t));
        t.register("my-fs", entry(TargetId::ost(0x1a), 1, 2));
        assert!(!active(&t), "it stays so over restarts");
        t.set("osc.my-fs-OST001a*.active", "1", false).unwrap();
        assert!(active(&t));
        assert_eq!(t.set("osc.my-fs-OST001b*.active", "0", false), Err(Errno::ENOENT));
        assert_eq!(
            active_of("osc.my-fs-OST001a-osc-MDT0000.active"),
            Some(("my-fs".into(), TargetId::ost(0x1a)))
        );
        assert_eq!(active_of("osc.*.active"), None);
    }
}

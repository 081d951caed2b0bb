//! The configuration: one record a file system, one for permanent parameters. Byte tables in
//! `docs/formats/mgt.md`.

use model::{Errno, target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{Db, StoreError, Txn};
use wire::msg::config::{ConfigReply, TargetEntry};

/// Key tag of the configuration.
pub const TAG: u8 = b'G';
/// Schema version of its values.
pub const RECORD_VERSION: u8 = 1;
/// File systems that one MGS manages.
const FILE_SYSTEMS_MAX: usize = 1000;
/// Permanent parameters.
const PARAMS_MAX: usize = 10_000;
/// Longest name or value of a permanent parameter.
const PARAM_MAX_BYTES: usize = 4096;

/// What is stored of one file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FsRecord {
    pub fs_uuid: [u8; 16],
    /// Sorted by target.
    pub targets: Vec<TargetEntry>,
    /// Unknown extensions of later versions.
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// All of it, as kept in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Grows with each change of anything.
    pub version: u64,
    pub file_systems: BTreeMap<String, FsRecord>,
    pub params: BTreeMap<String, String>,
}

/// A change that was made in memory: the records to write.
pub struct Change {
    pub txn: Txn,
}

fn fs_key(fsname: &str) -> Vec<u8> {
    [&[TAG, b'f'], fsname.as_bytes()].concat()
}

fn param_key(name: &str) -> Vec<u8> {
    [&[TAG, b'p'], name.as_bytes()].concat()
}

const VERSION_KEY: [u8; 2] = [TAG, b'v'];

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![RECORD_VERSION]).expect("plain data encodes")
}

fn decode<T: for<'a> Deserialize<'a>>(what: &str, bytes: &[u8]) -> Result<T, StoreError> {
    let damaged = |why: String| StoreError::Damaged { what: "configuration", path: what.to_string(), why };
    match bytes.split_first() {
        Some((&RECORD_VERSION, rest)) => {
            postcard::take_from_bytes(rest).map(|(v, _)| v).map_err(|e| damaged(e.to_string()))
        }
        Some((v, _)) => Err(damaged(format!("record version {v} is not known here: upgrade this server"))),
        None => Err(damaged("empty record".to_string())),
    }
}

/// Reads the configuration out of an MGT's database.
pub fn read_configuration(db: &Db) -> Result<State, StoreError> {
    let mut s = State::default();
    if let Some(v) = db.get(&VERSION_KEY)? {
        s.version = decode("version", &v)?;
    }
    for (k, v) in db.scan(&[TAG, b'f'], &[TAG, b'g'], FILE_SYSTEMS_MAX)? {
        let name = String::from_utf8_lossy(&k[2..]).into_owned();
        let record = decode(&name, &v)?;
        s.file_systems.insert(name, record);
    }
    for (k, v) in db.scan(&[TAG, b'p'], &[TAG, b'q'], PARAMS_MAX)? {
        let name = String::from_utf8_lossy(&k[2..]).into_owned();
        let value = decode(&name, &v)?;
        s.params.insert(name, value);
    }
    Ok(s)
}

impl State {
    fn changed(&mut self, mut txn: Txn) -> Change {
        self.version += 1;
        txn.put(VERSION_KEY, encode(&self.version));
        Change { txn }
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
            extra: Vec::new(),
        })
    }

    /// Adds or renews a target. `new_fs_uuid` is used if this is the file system's first one.
    /// `EADDRINUSE`: another target has this index; `EINVAL`: it belongs to another file system, or its
    /// name is none; `ENOSPC`: too many. `None`: nothing changed.
    pub fn register(
        &mut self,
        fsname: &str,
        fs_uuid: [u8; 16],
        new_fs_uuid: [u8; 16],
        entry: TargetEntry,
        replace: bool,
    ) -> Result<Option<Change>, Errno> {
        if !target::fsname_is_valid(fsname) || entry.nids.is_empty() {
            return Err(Errno::EINVAL);
        }
        let known = self.file_systems.get(fsname);
        if known.is_none() && self.file_systems.len() >= FILE_SYSTEMS_MAX {
            return Err(Errno::ENOSPC);
        }
        // A target that knows its file system brings it to an MGS that lost its memory.
        let first = if fs_uuid == [0; 16] { new_fs_uuid } else { fs_uuid };
        let mut fs = known.cloned().unwrap_or(FsRecord { fs_uuid: first, targets: Vec::new(), extra: Vec::new() });
        if fs_uuid != [0; 16] && fs_uuid != fs.fs_uuid {
            return Err(Errno::EINVAL);
        }
        match fs.targets.iter_mut().find(|t| t.target == entry.target) {
            Some(t) if t.target_uuid != entry.target_uuid && !replace => return Err(Errno::EADDRINUSE),
            // an older epoch is a server that lost the target meanwhile
            Some(t) if t.target_uuid == entry.target_uuid && t.epoch > entry.epoch => return Err(Errno::ESTALE),
            Some(t) => {
                let active = t.active;
                *t = TargetEntry { active, ..entry };
            }
            None => fs.targets.push(entry),
        }
        fs.targets.sort_by_key(|t| t.target);
        if known == Some(&fs) {
            return Ok(None);
        }
        let mut txn = Txn::new();
        txn.put(fs_key(fsname), encode(&fs));
        self.file_systems.insert(fsname.to_string(), fs);
        Ok(Some(self.changed(txn)))
    }

    /// `set_param -P`, or with `delete` its end. `EINVAL`: the name is no parameter's; `ENOENT`: nothing to
    /// delete.
    pub fn set_param(&mut self, name: &str, value: &str, delete: bool) -> Result<Change, Errno> {
        let plain = |c: u8| c.is_ascii_graphic() && c != b'=';
        let dotted = name.contains('.') && !name.starts_with('.') && !name.ends_with('.');
        if name.len() > PARAM_MAX_BYTES || !dotted || !name.bytes().all(plain) {
            return Err(Errno::EINVAL);
        }
        if value.len() > PARAM_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let mut txn = Txn::new();
        if delete {
            self.params.remove(name).ok_or(Errno::ENOENT)?;
            txn.delete(param_key(name));
        } else {
            if !self.params.contains_key(name) && self.params.len() >= PARAMS_MAX {
                return Err(Errno::ENOSPC);
            }
            txn.put(param_key(name), encode(&value));
            self.params.insert(name.to_string(), value.to_string());
        }
        Ok(self.changed(txn))
    }

    /// `lctl deactivate` on the MGS, for good: nodes stop using the target.
    pub fn set_active(&mut self, fsname: &str, target: model::TargetId, active: bool) -> Result<Change, Errno> {
        let fs = self.file_systems.get_mut(fsname).ok_or(Errno::ENOENT)?;
        fs.targets.iter_mut().find(|t| t.target == target).ok_or(Errno::ENOENT)?.active = active;
        let mut txn = Txn::new();
        txn.put(fs_key(fsname), encode(fs));
        Ok(self.changed(txn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TargetId;

    fn entry(target: TargetId, uuid: u8, epoch: u32) -> TargetEntry {
        TargetEntry {
            target,
            target_uuid: [uuid; 16],
            nids: vec!["127.0.0.1@tcp".parse().unwrap()],
            epoch,
            active: true,
            domains: Vec::new(),
        }
    }

    #[test]
    fn an_index_belongs_to_one_target() {
        let mut s = State::default();
        let ost = TargetId::ost(1);
        assert!(s.register("demo", [0; 16], [9; 16], entry(ost, 1, 1), false).unwrap().is_some());
        assert!(s.register("demo", [9; 16], [8; 16], entry(ost, 1, 1), false).unwrap().is_none(), "nothing new");
        let v = s.version;
        assert!(s.register("demo", [9; 16], [8; 16], entry(ost, 1, 2), false).unwrap().is_some());
        assert!(s.version > v);
        assert_eq!(s.register("demo", [9; 16], [8; 16], entry(ost, 1, 1), false).err(), Some(Errno::ESTALE));
        assert_eq!(s.register("demo", [0; 16], [8; 16], entry(ost, 2, 1), false).err(), Some(Errno::EADDRINUSE));
        assert!(s.register("demo", [0; 16], [8; 16], entry(ost, 2, 1), true).is_ok(), "--replace");
        assert_eq!(s.register("demo", [7; 16], [8; 16], entry(TargetId::ost(2), 3, 1), false).err(), Some(Errno::EINVAL));
        assert_eq!(s.config("demo").unwrap().fs_uuid, [9; 16]);
        assert_eq!(s.config("other").err(), Some(Errno::ENOENT));
        assert_eq!(s.register("too-long-a-name", [0; 16], [8; 16], entry(ost, 2, 1), false).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn permanent_parameters() {
        let mut s = State::default();
        s.set_param("osc.*.max_rpcs_in_flight", "16", false).unwrap();
        assert_eq!(s.params["osc.*.max_rpcs_in_flight"], "16");
        for bad in ["", "nodots", ".x", "x.", "a.b=c", "a b.c"] {
            assert_eq!(s.set_param(bad, "1", false).err(), Some(Errno::EINVAL), "{bad}");
        }
        assert_eq!(s.set_param("a.b", "", true).err(), Some(Errno::ENOENT));
        s.set_param("osc.*.max_rpcs_in_flight", "", true).unwrap();
        assert!(s.params.is_empty());
    }
}

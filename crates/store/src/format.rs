//! The superblock: who a target is. Byte table in `docs/formats/superblock.md`.
//!
//! Kept in two copies that are written in turn (`superblock`, `superblock.1`), each crc-protected, so a torn
//! write leaves the older one.

use crate::StoreError;
use model::{Nid, TargetId};
use world::World;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// UUID of the file system; zero until the first registration with the MGS.
    pub fs_uuid: [u8; 16],
    pub target_uuid: [u8; 16],
    pub fsname: String,
    pub target: TargetId,
    /// An MDT's folder may also hold the MGT (`--mgs --mdt`).
    pub with_mgt: bool,
    /// Grows at each start; durable before the target serves.
    pub epoch: u32,
    /// ext4's rules: unknown compat bits are ignored, unknown ro-compat bits allow reading, unknown
    /// incompat bits refuse.
    pub compat: u64,
    pub ro_compat: u64,
    pub incompat: u64,
    pub checksum_type: u8,
    pub block_size: u32,
    /// Not yet registered with the MGS.
    pub first_time: bool,
    /// Takes over the index of a lost target.
    pub replace: bool,
    pub mgs_nids: Vec<Nid>,
    pub service_nids: Vec<Nid>,
    pub fail_nids: Vec<Nid>,
    pub params: Vec<(String, String)>,
    /// Cached configuration from the MGS, so that a target starts while the MGS is down.
    pub config: Vec<u8>,
}

/// Holds the target's folder for one server: a lock on the host until dropped.
pub struct TargetLock {
    _file: std::sync::Arc<dyn world::DiskFile>,
}

impl Superblock {
    pub fn read(_world: &World, _dir: &str) -> Result<Superblock, StoreError> {
        unimplemented!()
    }

    /// Durable when it returns.
    pub fn write(&self, _world: &World, _dir: &str) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Refused, with the holder's words, if a living server has the target.
    pub fn lock(_world: &World, _dir: &str) -> Result<TargetLock, StoreError> {
        unimplemented!()
    }
}

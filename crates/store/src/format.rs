//! The superblock: who a target is. Byte table in `docs/formats/superblock.md`.
//!
//! Kept in two copies that are written in turn (`superblock`, `superblock.1`), each crc-protected, so a torn
//! write leaves the older one.

use crate::bytes::{Reader, Writer};
use crate::{StoreError, medium};
use model::{HostNid, TargetId, domain};
use wire::frame::crc32c;
use world::{OpenMode, World};

pub const MAGIC: [u8; 8] = *b"NACRESB1";
pub const VERSION: u32 = 1;
/// Bytes before the tagged values.
pub const FIXED_BYTES: usize = 128;
/// Largest superblock; the cached configuration is most of it.
pub const SUPERBLOCK_MAX_BYTES: usize = 16 << 20;

/// Blocks of objects have checksums, which a writer must keep. Set at the first start of an OST by a Nacre
/// that keeps them; from then on an older one may only read.
pub const RO_COMPAT_BLOCK_SUMS: u64 = 1;
/// Feature bits this code knows.
pub const COMPAT_KNOWN: u64 = 0;
pub const RO_COMPAT_KNOWN: u64 = RO_COMPAT_BLOCK_SUMS;
pub const INCOMPAT_KNOWN: u64 =
    INCOMPAT_SUCCESSOR | INCOMPAT_COMPONENTS | INCOMPAT_CHANGELOG | INCOMPAT_NAMES | INCOMPAT_UNASSIGNED;
/// An OST that was made in the place of a lost one: objects of that one are lost, not empty (decision 0044).
pub const INCOMPAT_SUCCESSOR: u64 = 1;
/// An MDT whose files may have layouts in components, of which an older program would see the first only
/// (decision 0056).
pub const INCOMPAT_COMPONENTS: u64 = 2;
/// An MDT whose changelog has consumers, to whom an older program would not tell what it changes (decision
/// 0065).
pub const INCOMPAT_CHANGELOG: u64 = 4;
/// A NID in it has the name of a host, which an older program would pass over (decision 0076).
pub const INCOMPAT_NAMES: u64 = 8;
/// The target has no index yet, which an older program would take for one (decision 0076).
pub const INCOMPAT_UNASSIGNED: u64 = 16;
/// Bits that follow from what else the label says.
const INCOMPAT_DERIVED: u64 = INCOMPAT_NAMES | INCOMPAT_UNASSIGNED;
/// `checksum_type` of crc32c.
pub const CHECKSUM_CRC32C: u8 = 1;

const FLAG_WITH_MGT: u32 = 1;
const FLAG_FIRST_TIME: u32 = 2;
const FLAG_REPLACE: u32 = 4;
const FSNAME_FIELD_BYTES: usize = 16;

const TAG_MGS_NID: u16 = 1;
const TAG_SERVICE_NID: u16 = 2;
const TAG_FAIL_NID: u16 = 3;
const TAG_PARAM: u16 = 4;
const TAG_CONFIG: u16 = 5;
const TAG_KEY: u16 = 6;
const TAG_SERVER_KEY: u16 = 7;
const TAG_DOMAIN: u16 = 8;
/// Of a NID with the name of a host; as [`TAG_MGS_NID`] and so on in all else.
const TAG_MGS_NAME: u16 = 9;
const TAG_SERVICE_NAME: u16 = 10;
const TAG_FAIL_NAME: u16 = 11;

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
    /// Names of hosts among them are looked up when they are used.
    pub mgs_nids: Vec<HostNid>,
    pub service_nids: Vec<HostNid>,
    pub fail_nids: Vec<HostNid>,
    pub params: Vec<(String, String)>,
    /// Cached configuration from the MGS, so that a target starts while the MGS is down.
    pub config: Vec<u8>,
    /// By which the MGS knows the target again: random, made at `mkfs`, or at the first start by a version
    /// that knows it.
    pub key: Option<[u8; 32]>,
    /// By which servers of the file system know each other, as the MGS gave it.
    pub server_key: Option<[u8; 32]>,
    /// The failure domain that an administrator placed it in ([`model::domain`]); empty: nobody did.
    pub domain: Vec<String>,
}

/// Holds the target's folder for one server: a lock on the host until dropped.
pub struct TargetLock {
    _file: std::sync::Arc<dyn world::DiskFile>,
    /// Of the lock file: another one in its place has another.
    pub(crate) token: [u8; 16],
}

/// One copy as found on disk.
enum Copy {
    Absent,
    /// Something, but nothing that can be used; why not.
    Bad(String),
    /// A version that this code does not know.
    Version(u32),
    Good(Box<Found>),
}

struct Found {
    sb: Superblock,
    generation: u64,
    /// Tagged values of later versions, kept when the superblock is written again.
    unknown: Vec<(u16, Vec<u8>)>,
}

fn copy_path(dir: &str, which: usize) -> String {
    format!("{dir}/superblock{}", ["", ".1"][which])
}

impl Superblock {
    /// The label of a target that was just made: no features, not registered yet, never served.
    pub fn fresh(target: TargetId, fsname: String, target_uuid: [u8; 16]) -> Superblock {
        Superblock {
            fs_uuid: [0; 16],
            target_uuid,
            fsname,
            target,
            with_mgt: false,
            epoch: 0,
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            checksum_type: CHECKSUM_CRC32C,
            block_size: 4096,
            first_time: true,
            replace: false,
            mgs_nids: Vec::new(),
            service_nids: Vec::new(),
            fail_nids: Vec::new(),
            params: Vec::new(),
            config: Vec::new(),
            key: None,
            server_key: None,
            domain: Vec::new(),
        }
    }

    /// Refused with the remedy: not formatted, of another version, with unknown features.
    pub fn read(world: &World, dir: &str) -> Result<Superblock, StoreError> {
        let found = pick(dir, [read_copy(world, dir, 0)?, read_copy(world, dir, 1)?])?;
        let Some((_, found)) = found else {
            let journal = crate::journal::journal_dir(dir);
            let half = world.disk.exists(&journal).map_err(StoreError::io("cannot look at", &journal))?;
            let what = if half {
                "only half formatted (it has a journal but no superblock)"
            } else {
                "not formatted"
            };
            return Err(StoreError::Refused(format!("'{dir}' is {what}: run mkfs.nacre")));
        };
        let unknown = found.sb.incompat & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(StoreError::Refused(format!(
                "'{dir}' uses features that this Nacre does not know (incompat {unknown:#x}): upgrade"
            )));
        }
        Ok(found.sb)
    }

    /// Refuses to write to a target with unknown ro-compat features.
    pub fn check_writable(&self, dir: &str) -> Result<(), StoreError> {
        let unknown = self.ro_compat & !RO_COMPAT_KNOWN;
        if unknown == 0 {
            return Ok(());
        }
        Err(StoreError::Refused(format!(
            "'{dir}' uses features that this Nacre can only read (ro-compat {unknown:#x}): upgrade, or use it read-only"
        )))
    }

    /// Durable when it returns. The older of the two copies is replaced.
    pub fn write(&self, world: &World, dir: &str) -> Result<(), StoreError> {
        assert!(self.fsname.len() <= FSNAME_FIELD_BYTES, "checked by model::target::fsname_is_valid");
        // The one that stays must be on the disk, not only in the host's memory.
        for which in 0..2 {
            medium::show_path(world, &copy_path(dir, which))?;
        }
        let copies = [read_copy(world, dir, 0)?, read_copy(world, dir, 1)?];
        let found = pick(dir, copies).unwrap_or(None);
        let (which, generation, unknown) = match &found {
            Some((w, f)) => (1 - *w, f.generation + 1, f.unknown.as_slice()),
            None => (0, 1, [].as_slice()),
        };
        let bytes = self.encode(generation, unknown);
        if bytes.len() > SUPERBLOCK_MAX_BYTES {
            return Err(StoreError::Refused(format!(
                "superblock of '{dir}' would have {} bytes",
                bytes.len()
            )));
        }
        let path = copy_path(dir, which);
        let what = "cannot write superblock";
        let file = world.disk.open(&path, OpenMode::CREATE).map_err(StoreError::io(what, &path))?;
        file.write_at(&bytes, 0).map_err(StoreError::io(what, &path))?;
        file.set_len(bytes.len() as u64).map_err(StoreError::io(what, &path))?;
        file.sync_data().map_err(StoreError::io("cannot flush superblock", &path))?;
        world.disk.sync_dir(dir).map_err(StoreError::io("cannot flush the folder", dir))
    }

    /// Refused, with the holder's words, if a living server has the target.
    pub fn lock(world: &World, dir: &str) -> Result<TargetLock, StoreError> {
        let path = format!("{dir}/lock");
        let file = world
            .disk
            .open(&path, OpenMode::CREATE)
            .map_err(StoreError::io("cannot open lock file", &path))?;
        if !file.try_lock().map_err(StoreError::io("cannot lock", &path))? {
            let text = lock_text(file.as_ref());
            let holder = text.lines().next().unwrap_or("").trim().to_string();
            let holder = if holder.is_empty() { "another server".to_string() } else { holder };
            return Err(StoreError::Refused(format!(
                "'{dir}' is in use by {holder}: stop that server first"
            )));
        }
        let token = write_lock(world, dir, file.as_ref())?;
        Ok(TargetLock { _file: file, token })
    }

    /// What is in the folder: the labels of its targets.
    pub fn words(&self) -> String {
        let own = self.target.label(&self.fsname);
        if self.with_mgt { format!("{} {own}", TargetId::MGT.label("")) } else { own }
    }

    /// See [`INCOMPAT_DERIVED`].
    fn derived(&self) -> u64 {
        let mut all = self.mgs_nids.iter().chain(&self.service_nids).chain(&self.fail_nids);
        let names = if all.any(|n| n.address().is_none()) { INCOMPAT_NAMES } else { 0 };
        names | if self.target.is_assigned() { 0 } else { INCOMPAT_UNASSIGNED }
    }

    fn encode(&self, generation: u64, unknown: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u32(VERSION);
        w.u32(0); // crc, below
        w.u32(0); // length, below
        w.u32(self.epoch);
        w.u64(generation);
        w.u64(self.compat);
        w.u64(self.ro_compat);
        w.u64(self.incompat | self.derived());
        w.raw(&self.fs_uuid);
        w.raw(&self.target_uuid);
        w.u32(self.target.to_u32());
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        w.u32(
            flag(self.with_mgt, FLAG_WITH_MGT)
                | flag(self.first_time, FLAG_FIRST_TIME)
                | flag(self.replace, FLAG_REPLACE),
        );
        w.u32(self.block_size);
        w.u8(self.checksum_type);
        w.raw(&[0; 3]);
        let mut name = [0; FSNAME_FIELD_BYTES];
        name[..self.fsname.len()].copy_from_slice(self.fsname.as_bytes());
        w.raw(&name);
        w.raw(&[0; 8]);
        assert_eq!(w.0.len(), FIXED_BYTES);
        let mut tag = |t: u16, v: &[u8]| {
            w.u16(t);
            w.u16(0);
            w.bytes(v);
        };
        for (address, name, nids) in [
            (TAG_MGS_NID, TAG_MGS_NAME, &self.mgs_nids),
            (TAG_SERVICE_NID, TAG_SERVICE_NAME, &self.service_nids),
            (TAG_FAIL_NID, TAG_FAIL_NAME, &self.fail_nids),
        ] {
            for n in nids {
                tag(if n.address().is_some() { address } else { name }, n.to_string().as_bytes());
            }
        }
        for (k, v) in &self.params {
            tag(TAG_PARAM, format!("{k}\0{v}").as_bytes());
        }
        tag(TAG_CONFIG, &self.config);
        self.key.iter().for_each(|k| tag(TAG_KEY, k));
        self.server_key.iter().for_each(|k| tag(TAG_SERVER_KEY, k));
        if !self.domain.is_empty() {
            tag(TAG_DOMAIN, domain::text(&self.domain).as_bytes());
        }
        unknown.iter().for_each(|(t, v)| tag(*t, v));
        let len = u32::try_from(w.0.len()).expect("bounded by its parts");
        w.0[16..20].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c(&w.0[16..]);
        w.0[12..16].copy_from_slice(&crc.to_le_bytes());
        w.0
    }
}

/// Decodes a superblock of any bytes; what decodes must encode to the same again.
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Copy::Good(f) = decode(bytes) {
        let again = f.sb.encode(f.generation, &f.unknown);
        let Copy::Good(g) = decode(&again) else { panic!("what was encoded decodes") };
        assert!(g.sb == f.sb && g.generation == f.generation && g.unknown == f.unknown);
    }
}

/// A valid superblock to begin with.
pub(crate) fn fuzz_sample() -> Vec<u8> {
    let nid: HostNid = "10.0.0.1@tcp".parse().expect("a NID");
    let name: HostNid = "mds05@tcp1".parse().expect("a NID");
    let sb = Superblock {
        fs_uuid: [1; 16],
        target_uuid: [2; 16],
        fsname: "nacre".into(),
        target: TargetId::ost(7),
        with_mgt: false,
        epoch: 3,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        checksum_type: CHECKSUM_CRC32C,
        block_size: 4096,
        first_time: true,
        replace: false,
        mgs_nids: vec![nid.clone(), name],
        service_nids: vec![nid.clone()],
        fail_nids: vec![nid],
        params: vec![("name".into(), "value".into())],
        config: vec![1, 2, 3],
        key: Some([4; 32]),
        server_key: Some([5; 32]),
        domain: vec!["rack1".into(), "host3".into()],
    };
    sb.encode(5, &[(0x7777, vec![9])])
}

fn read_copy(world: &World, dir: &str, which: usize) -> Result<Copy, StoreError> {
    let path = copy_path(dir, which);
    if !world.disk.exists(&path).map_err(StoreError::io("cannot look at superblock", &path))? {
        return Ok(Copy::Absent);
    }
    let what = "cannot read superblock";
    let file = world.disk.open(&path, OpenMode::READ).map_err(StoreError::io(what, &path))?;
    let len = file.stat().map_err(StoreError::io(what, &path))?.len;
    if len > SUPERBLOCK_MAX_BYTES as u64 {
        return Ok(Copy::Bad(format!("it has {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    let n = file.read_at(&mut bytes, 0).map_err(StoreError::io(what, &path))?;
    bytes.truncate(n);
    Ok(decode(&bytes))
}

fn decode(bytes: &[u8]) -> Copy {
    if bytes.iter().all(|b| *b == 0) {
        return Copy::Bad("it is empty: writing it was interrupted".into());
    }
    if !bytes.starts_with(&MAGIC) {
        return Copy::Bad("it is not a Nacre superblock".into());
    }
    let mut head = Reader(&bytes[8..]);
    let (Some(version), Some(crc), Some(len)) = (head.u32(), head.u32(), head.u32()) else {
        return Copy::Bad("it is cut short: writing it was interrupted".into());
    };
    if version != VERSION {
        return Copy::Version(version);
    }
    let Some(whole) = bytes.get(..len as usize).filter(|b| b.len() >= FIXED_BYTES) else {
        return Copy::Bad("it is cut short: writing it was interrupted".into());
    };
    if crc32c(&whole[16..]) != crc {
        return Copy::Bad("its checksum differs: half written, or damaged".into());
    }
    match decode_fields(&whole[20..]) {
        Some(f) => Copy::Good(Box::new(f)),
        None => Copy::Bad("a field has no valid value".into()),
    }
}

fn decode_fields(bytes: &[u8]) -> Option<Found> {
    let mut r = Reader(bytes);
    let epoch = r.u32()?;
    let generation = r.u64()?;
    let (compat, ro_compat, incompat) = (r.u64()?, r.u64()?, r.u64()?);
    let (fs_uuid, target_uuid) = (r.array()?, r.array()?);
    let target = TargetId::from_u32(r.u32()?)?;
    let flags = r.u32()?;
    let block_size = r.u32()?;
    let checksum_type = r.u8()?;
    r.raw(3)?;
    let name: [u8; FSNAME_FIELD_BYTES] = r.array()?;
    let fsname = String::from_utf8(name.iter().copied().take_while(|b| *b != 0).collect()).ok()?;
    r.raw(8)?;
    let mut sb = Superblock {
        fs_uuid,
        target_uuid,
        fsname,
        target,
        with_mgt: flags & FLAG_WITH_MGT != 0,
        epoch,
        compat,
        ro_compat,
        incompat: incompat & !INCOMPAT_DERIVED,
        checksum_type,
        block_size,
        first_time: flags & FLAG_FIRST_TIME != 0,
        replace: flags & FLAG_REPLACE != 0,
        mgs_nids: Vec::new(),
        service_nids: Vec::new(),
        fail_nids: Vec::new(),
        params: Vec::new(),
        config: Vec::new(),
        key: None,
        server_key: None,
        domain: Vec::new(),
    };
    let mut unknown = Vec::new();
    while !r.0.is_empty() {
        let tag = r.u16()?;
        r.u16()?;
        let v = r.bytes()?;
        let nid = || {
            let read: HostNid = std::str::from_utf8(v).ok()?.parse().ok()?;
            (read.address().is_some() == (tag < TAG_MGS_NAME)).then_some(read)
        };
        match tag {
            TAG_MGS_NID | TAG_MGS_NAME => sb.mgs_nids.push(nid()?),
            TAG_SERVICE_NID | TAG_SERVICE_NAME => sb.service_nids.push(nid()?),
            TAG_FAIL_NID | TAG_FAIL_NAME => sb.fail_nids.push(nid()?),
            TAG_PARAM => {
                let (k, v) = std::str::from_utf8(v).ok()?.split_once('\0')?;
                sb.params.push((k.to_string(), v.to_string()));
            }
            TAG_CONFIG => sb.config = v.to_vec(),
            TAG_KEY => sb.key = Some(v.try_into().ok()?),
            TAG_SERVER_KEY => sb.server_key = Some(v.try_into().ok()?),
            TAG_DOMAIN => sb.domain = domain::parse(std::str::from_utf8(v).ok()?).ok()?,
            _ => unknown.push((tag, v.to_vec())),
        }
    }
    Some(Found { sb, generation, unknown })
}

/// The copy that counts and its number; `None` if there is none at all.
fn pick(dir: &str, copies: [Copy; 2]) -> Result<Option<(usize, Found)>, StoreError> {
    let mut best: Option<(usize, Found)> = None;
    let mut bad = None;
    for (i, c) in copies.into_iter().enumerate() {
        match c {
            Copy::Absent => {}
            Copy::Version(v) => {
                return Err(StoreError::Refused(format!(
                    "'{dir}' has format version {v}, this Nacre knows version {VERSION}: use a Nacre that knows it"
                )));
            }
            Copy::Bad(why) => bad = bad.or(Some((i, why))),
            Copy::Good(f) => {
                if best.as_ref().is_none_or(|(_, b)| f.generation > b.generation) {
                    best = Some((i, *f));
                }
            }
        }
    }
    match (best, bad) {
        (Some(b), _) => Ok(Some(b)),
        (None, Some((i, why))) => Err(StoreError::Damaged {
            what: "superblock",
            path: copy_path(dir, i),
            why: format!(
                "{why}; if formatting was interrupted, run mkfs.nacre again, else restore the folder"
            ),
        }),
        (None, None) => Ok(None),
    }
}

/// Who we are, for the one who finds the folder in use.
pub(crate) fn holder_words(world: &World) -> String {
    let pid =
        proc_word(world, "/proc/self/stat").map_or_else(|| "a server".to_string(), |p| format!("pid {p}"));
    let host = proc_word(world, "/proc/sys/kernel/hostname").unwrap_or_else(|| "an unknown host".to_string());
    format!("{pid} on host {host}")
}

/// Which file system of which running host a folder lies on: targets with the same number share their space.
/// 0: the host does not know.
pub fn disk_id(world: &World, dir: &str) -> u64 {
    let Some(device) = world.disk.device(dir) else { return 0 };
    let boot = proc_word(world, "/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let bytes = [boot.as_bytes(), &device.to_le_bytes()].concat();
    // Two sums over the same bytes in different order: no more than a number to compare.
    let back: Vec<u8> = bytes.iter().rev().copied().collect();
    (u64::from(crc32c(&bytes)) << 32 | u64::from(crc32c(&back))).max(1)
}

/// The first word of a small file.
pub(crate) fn proc_word(world: &World, path: &str) -> Option<String> {
    let mut buf = [0; 128];
    let n = world.disk.open(path, OpenMode::READ).ok()?.read_at(&mut buf, 0).ok()?;
    let text = String::from_utf8_lossy(&buf[..n]).into_owned();
    text.split_whitespace().next().map(str::to_string)
}

fn lock_text(file: &dyn world::DiskFile) -> String {
    let mut buf = [0; 256];
    let n = file.read_at(&mut buf, 0).unwrap_or(0);
    String::from_utf8_lossy(&buf[..n]).into_owned()
}

/// Says who holds the lock; returns the token of its file, which a new file gets.
pub(crate) fn write_lock(
    world: &World,
    dir: &str,
    file: &dyn world::DiskFile,
) -> Result<[u8; 16], StoreError> {
    let old = lock_token(file);
    let token = old.unwrap_or_else(|| world.random_uuid());
    let words = format!("{}\n{:032x}\n", holder_words(world), u128::from_be_bytes(token));
    let what = |what| StoreError::io(what, dir);
    file.write_at(words.as_bytes(), 0).map_err(what("cannot write the lock file in"))?;
    file.set_len(words.len() as u64).map_err(what("cannot write the lock file in"))?;
    if old.is_none() {
        // A power loss should not make the next server wait for a heartbeat.
        file.sync_data().map_err(what("cannot flush the lock file in"))?;
        world.disk.sync_dir(dir).map_err(what("cannot flush the folder"))?;
    }
    Ok(token)
}

/// The second line: 32 hexadecimal digits.
fn lock_token(file: &dyn world::DiskFile) -> Option<[u8; 16]> {
    let text = lock_text(file);
    let hex = text.lines().nth(1).filter(|l| l.len() == 32)?;
    u128::from_str_radix(hex, 16).ok().map(u128::to_be_bytes)
}

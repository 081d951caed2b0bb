//! The smaller values. Each starts with a version byte; bytes behind the known fields are later versions'.

use super::inode::DATA_BLOCK_BYTES;
use crate::MdsError;
use model::{Fid, FileType, ObjectId};
use rpc::Identity;
use serde::{Deserialize, Serialize};
use wire::msg::setowner::OwnerOf;

pub const VERSION: u8 = 1;

pub fn kind_to_u8(k: FileType) -> u8 {
    k.d_type()
}

pub fn kind_from_u8(n: u8) -> Option<FileType> {
    if n == 0 { None } else { FileType::from_mode(u32::from(n) << 12) }
}

fn damaged(what: &'static str, key: String, why: impl Into<String>) -> MdsError {
    MdsError::Damaged { what, key, why: why.into() }
}

fn body<'a>(what: &'static str, key: &[u8], v: &'a [u8]) -> Result<&'a [u8], MdsError> {
    match v.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((n, _)) => {
            Err(damaged(what, hex(key), format!("its version is {n}, this program knows {VERSION}")))
        }
        None => Err(damaged(what, hex(key), "it is empty")),
    }
}

/// A key for messages.
pub fn hex(key: &[u8]) -> String {
    use std::fmt::Write;
    let mut s = String::with_capacity(key.len() * 2);
    for b in key.iter().take(64) {
        let _ = write!(s, "{b:02x}");
    }
    s
}

pub(super) fn encode<T: Serialize>(v: &T) -> Vec<u8> {
    postcard::to_extend(v, vec![VERSION]).expect("plain data encodes")
}

pub(super) fn decode<T: for<'a> Deserialize<'a>>(
    what: &'static str,
    key: &[u8],
    v: &[u8],
) -> Result<T, MdsError> {
    let b = body(what, key, v)?;
    postcard::take_from_bytes(b).map(|(t, _)| t).map_err(|e| damaged(what, hex(key), e.to_string()))
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DentryValue {
    pub fid: Fid,
    pub kind: FileType,
}

impl DentryValue {
    pub fn encode(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(18);
        v.extend_from_slice(&[VERSION, kind_to_u8(self.kind)]);
        v.extend_from_slice(&self.fid.to_bytes());
        v
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<DentryValue, MdsError> {
        let b = body("directory entry", key, v)?;
        let bad = || damaged("directory entry", hex(key), "it is short or names no file type");
        let kind = b.first().and_then(|&k| kind_from_u8(k)).ok_or_else(bad)?;
        let fid: &[u8; 16] = b.get(1..17).and_then(|f| f.try_into().ok()).ok_or_else(bad)?;
        Ok(DentryValue { fid: Fid::from_bytes(fid), kind })
    }
}

/// A back-pointer's value: the name.
pub fn encode_name(name: &[u8]) -> Vec<u8> {
    let mut v = Vec::with_capacity(1 + name.len());
    v.push(VERSION);
    v.extend_from_slice(name);
    v
}

pub fn decode_name(key: &[u8], v: &[u8]) -> Result<Vec<u8>, MdsError> {
    Ok(body("back-pointer", key, v)?.to_vec())
}

/// A large extended attribute: the bytes as they are.
pub fn decode_xattr(key: &[u8], v: &[u8]) -> Result<Vec<u8>, MdsError> {
    Ok(body("extended attribute", key, v)?.to_vec())
}

/// A block of data (`M`): the bytes as they are.
pub fn encode_data(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() <= DATA_BLOCK_BYTES, "a block of data has its bounds");
    encode_name(bytes)
}

pub fn decode_data(key: &[u8], v: &[u8]) -> Result<Vec<u8>, MdsError> {
    let b = body("data of a file", key, v)?;
    if b.len() > DATA_BLOCK_BYTES {
        return Err(damaged("data of a file", hex(key), format!("a block has {} bytes", b.len())));
    }
    Ok(b.to_vec())
}

/// The file that an object belongs to (`T`).
pub fn encode_owner(fid: Fid) -> Vec<u8> {
    let mut v = vec![VERSION];
    v.extend_from_slice(&fid.to_bytes());
    v
}

pub fn decode_owner(key: &[u8], v: &[u8]) -> Result<Fid, MdsError> {
    let b = body("reverse index entry", key, v)?;
    let fid: &[u8; 16] = b
        .get(..16)
        .and_then(|f| f.try_into().ok())
        .ok_or_else(|| damaged("reverse index entry", hex(key), "it is short"))?;
    Ok(Fid::from_bytes(fid))
}

/// Why an inode has no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrphanKind {
    /// The last name went while it was open.
    Unlinked,
    /// O_TMPFILE: link(2) may name it.
    Tmpfile,
    /// O_TMPFILE | O_EXCL: nothing may name it.
    TmpfileExclusive,
}

impl OrphanKind {
    pub fn encode(self) -> Vec<u8> {
        let k = match self {
            OrphanKind::Unlinked => 1,
            OrphanKind::Tmpfile => 2,
            OrphanKind::TmpfileExclusive => 3,
        };
        vec![VERSION, k]
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<OrphanKind, MdsError> {
        match body("orphan record", key, v)?.first() {
            Some(1) => Ok(OrphanKind::Unlinked),
            Some(2) => Ok(OrphanKind::Tmpfile),
            Some(3) => Ok(OrphanKind::TmpfileExclusive),
            _ => Err(damaged("orphan record", hex(key), "it names no kind")),
        }
    }
}

/// A record of the trash (`G`): its key says all of it.
pub fn encode_trash() -> Vec<u8> {
    vec![VERSION]
}

/// What an OST is still to be told (`B`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutboxRecord {
    /// These objects are to be destroyed.
    Destroy(Vec<ObjectId>),
    /// A file has another owner.
    Owner(OwnerOf),
}

impl OutboxRecord {
    pub fn objects(&self) -> &[ObjectId] {
        match self {
            OutboxRecord::Destroy(objects) => objects,
            OutboxRecord::Owner(o) => &o.objects,
        }
    }
}

/// An owner's record has a version of its own: before 0.3 there were none.
const OUTBOX_OWNER_VERSION: u8 = 2;

pub fn encode_outbox(what: &OutboxRecord) -> Vec<u8> {
    assert!(!what.objects().is_empty(), "an outbox record names objects");
    match what {
        OutboxRecord::Destroy(objects) => encode(objects),
        OutboxRecord::Owner(o) => {
            let mut v = encode(&(o, o.owner().directory));
            v[0] = OUTBOX_OWNER_VERSION;
            v
        }
    }
}

pub fn decode_outbox(key: &[u8], v: &[u8]) -> Result<OutboxRecord, MdsError> {
    match v.split_first() {
        Some((&OUTBOX_OWNER_VERSION, rest)) => {
            let read = postcard::take_from_bytes::<OwnerOf>(rest);
            let (owner, rest) = read.map_err(|e| damaged("outbox record", hex(key), e.to_string()))?;
            // One of an earlier version ends here.
            let directory = postcard::from_bytes(rest).unwrap_or(0);
            Ok(OutboxRecord::Owner(owner.in_directory(directory)))
        }
        _ => decode("outbox record", key, v).map(OutboxRecord::Destroy),
    }
}

/// A sequence leased to a client (`F`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    pub client: [u8; 16],
    /// Object ids 1..=width belong to the client.
    pub width: u32,
}

impl Lease {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<Lease, MdsError> {
        decode("sequence lease", key, v)
    }
}

/// A client that this target knows (`N`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientRecord {
    pub name: String,
    pub address: String,
    /// Behind the rest; absent before version 0.2.
    #[serde(skip)]
    pub identity: Identity,
}

impl ClientRecord {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_extend(&self.identity, encode(self)).expect("plain data encodes")
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<ClientRecord, MdsError> {
        let bad = |why: String| damaged("client record", hex(key), why);
        let b = body("client record", key, v)?;
        let (mut r, rest) = postcard::take_from_bytes::<ClientRecord>(b).map_err(|e| bad(e.to_string()))?;
        r.identity = Identity::decode(rest).ok_or_else(|| bad("its identity is cut short".into()))?;
        Ok(r)
    }
}

pub fn encode_u64(n: u64) -> Vec<u8> {
    let mut v = vec![VERSION];
    v.extend_from_slice(&n.to_le_bytes());
    v
}

pub fn decode_u64(key: &[u8], v: &[u8]) -> Result<u64, MdsError> {
    let b = body("target state", key, v)?;
    let n: [u8; 8] = b
        .get(..8)
        .and_then(|b| b.try_into().ok())
        .ok_or_else(|| damaged("target state", hex(key), "it is short"))?;
    Ok(u64::from_le_bytes(n))
}

/// Until when modifications wait, and how long that was when it began; both in milliseconds (`Zbarrier`).
pub fn encode_barrier(until: u64, left: u64) -> Vec<u8> {
    encode(&(until, left))
}

pub fn decode_barrier(key: &[u8], v: &[u8]) -> Result<(u64, u64), MdsError> {
    decode("write barrier", key, v)
}

/// OSTs were told of the owners of files up to this one; `None`: of all (`Zowners`).
pub fn encode_owners_told(last: Option<Fid>) -> Vec<u8> {
    encode(&last)
}

pub fn decode_owners_told(key: &[u8], v: &[u8]) -> Result<Option<Fid>, MdsError> {
    decode("target state", key, v)
}

pub fn encode_hash_key(k: [u64; 2]) -> Vec<u8> {
    let mut v = encode_u64(k[0]);
    v.extend_from_slice(&k[1].to_le_bytes());
    v
}

pub fn decode_hash_key(key: &[u8], v: &[u8]) -> Result<[u64; 2], MdsError> {
    let first = decode_u64(key, v)?;
    let second: [u8; 8] = v
        .get(9..17)
        .and_then(|b| b.try_into().ok())
        .ok_or_else(|| damaged("target state", hex(key), "it is short"))?;
    Ok([first, u64::from_le_bytes(second)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use model::nodemap::Owner;
    use proptest::prelude::*;

    #[test]
    fn values_go_there_and_back() {
        let f = Fid::new(5, 6, 7);
        let d = DentryValue { fid: f, kind: FileType::Socket };
        assert_eq!(DentryValue::decode(b"", &d.encode()).unwrap(), d);
        assert_eq!(decode_name(b"", &encode_name(b"n")).unwrap(), b"n");
        assert_eq!(decode_owner(b"", &encode_owner(f)).unwrap(), f);
        for k in [OrphanKind::Unlinked, OrphanKind::Tmpfile, OrphanKind::TmpfileExclusive] {
            assert_eq!(OrphanKind::decode(b"", &k.encode()).unwrap(), k);
        }
        let o = vec![ObjectId { origin: f, component: 1, stripe: 0 }];
        let (destroy, owner) =
            (OutboxRecord::Destroy(o.clone()), Owner { directory: 4, ..Owner::new(1, 2, 3) });
        assert_eq!(decode_outbox(b"", &encode_outbox(&destroy)).unwrap(), destroy);
        let owner = OwnerOf::new(Fid::ROOT, owner, Timestamp::ZERO, o);
        let owner = OutboxRecord::Owner(owner);
        assert_eq!(decode_outbox(b"", &encode_outbox(&owner)).unwrap(), owner);
        assert_eq!(decode_u64(b"", &encode_u64(9)).unwrap(), 9);
        assert_eq!(decode_hash_key(b"", &encode_hash_key([1, 2])).unwrap(), [1, 2]);
        assert!(decode_u64(b"", &[2, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "another version");
    }

    proptest! {
        #[test]
        fn decoding_never_panics(v in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = DentryValue::decode(&v, &v);
            let _ = decode_outbox(&v, &v);
            let _ = ClientRecord::decode(&v, &v);
            let _ = Lease::decode(&v, &v);
            let _ = decode_hash_key(&v, &v);
            let _ = decode_data(&v, &v);
            let _ = decode_owner(&v, &v);
            let _ = OrphanKind::decode(&v, &v);
        }
    }
}

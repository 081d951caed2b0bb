//! Key builders and their inverses. Numbers are big-endian, so that keys sort like what they name.

use model::{Fid, ObjectId, Timestamp};

pub const INODE: u8 = b'I';
pub const DENTRY: u8 = b'D';
pub const BACKPTR: u8 = b'P';
pub const XATTR: u8 = b'X';
pub const REVERSE: u8 = b'T';
pub const DATA: u8 = b'M';
pub const REPLY: u8 = b'R';
pub const CLIENT: u8 = b'N';
pub const ORPHAN: u8 = b'O';
pub const OUTBOX: u8 = b'B';
pub const LEASE: u8 = b'F';
pub const STATE: u8 = b'Z';
pub const CHANGELOG: u8 = b'C';
pub const LIMITS: u8 = b'L';
/// Directories with a quota.
pub const DIRECTORY: u8 = b'W';
/// Trees that are not counted to the right directory throughout.
pub const UNSETTLED: u8 = b'V';
/// What lies in the trash, the oldest first.
pub const TRASH: u8 = b'G';
/// Intents, shard maps: nothing is stored under these yet.
pub const RESERVED: [u8; 2] = [b'Y', b'S'];

/// Key of the directory hash.
pub const STATE_HASH_KEY: &[u8] = b"Zhash";
/// Next sequence to be leased to a client.
pub const STATE_NEXT_SEQ: &[u8] = b"Zseq";
/// Of a target in the place of a lost one: the first sequence that is its own. Those before it were handed
/// out by its predecessor.
pub const STATE_FIRST_SEQ: &[u8] = b"Zfirst";
/// Inodes in use.
pub const STATE_INODES: &[u8] = b"Zinodes";
/// Up to which file OSTs were told of owners.
pub const STATE_OWNERS: &[u8] = b"Zowners";
/// Id of the next directory that gets a quota.
pub const STATE_NEXT_DIRECTORY: &[u8] = b"Zdirectory";
/// Consumers of the changelog, and how far it was freed.
pub const STATE_CHANGELOG: &[u8] = b"Zchangelog";
/// Until when modifications wait.
pub const STATE_BARRIER: &[u8] = b"Zbarrier";
/// How a check of the whole file system stands.
pub const STATE_LFSCK: &[u8] = b"Zlfsck";

fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut k = Vec::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
    k.push(tag);
    for p in parts {
        k.extend_from_slice(p);
    }
    k
}

/// The first key behind every key that starts with `prefix`.
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut k = prefix.to_vec();
    while let Some(last) = k.pop() {
        if last < 0xff {
            k.push(last + 1);
            return k;
        }
    }
    vec![0xff; prefix.len() + 1]
}

pub fn inode(fid: Fid) -> Vec<u8> {
    tagged(INODE, &[&fid.to_bytes()])
}

pub fn dentry(dir: Fid, cookie: u64, name: &[u8]) -> Vec<u8> {
    tagged(DENTRY, &[&dir.to_bytes(), &cookie.to_be_bytes(), name])
}

/// Start of the entries of `dir` with at least this cookie.
pub fn dentry_from(dir: Fid, cookie: u64) -> Vec<u8> {
    dentry(dir, cookie, &[])
}

/// Behind all entries of `dir`.
pub fn dentry_end(dir: Fid) -> Vec<u8> {
    behind(&tagged(DENTRY, &[&dir.to_bytes()]))
}

pub fn backptr(fid: Fid, parent: Fid, cookie: u64) -> Vec<u8> {
    tagged(BACKPTR, &[&fid.to_bytes(), &parent.to_bytes(), &cookie.to_be_bytes()])
}

pub fn backptr_prefix(fid: Fid) -> Vec<u8> {
    tagged(BACKPTR, &[&fid.to_bytes()])
}

/// A file in the trash, by when it came there.
pub fn trash(when: Timestamp, fid: Fid) -> Vec<u8> {
    // So that times before 1970 come before those after it.
    let sec = (when.sec as u64) ^ (1 << 63);
    tagged(TRASH, &[&sec.to_be_bytes(), &when.nsec.to_be_bytes(), &fid.to_bytes()])
}

pub fn parse_trash(k: &[u8]) -> Option<(Timestamp, Fid)> {
    let rest = k.strip_prefix(&[TRASH])?;
    let (sec, rest) = rest.split_first_chunk::<8>()?;
    let (nsec, rest) = rest.split_first_chunk::<4>()?;
    let fid: &[u8; 16] = rest.try_into().ok()?;
    let sec = (u64::from_be_bytes(*sec) ^ (1 << 63)) as i64;
    Some((Timestamp { sec, nsec: u32::from_be_bytes(*nsec) }, Fid::from_bytes(fid)))
}

pub fn xattr(fid: Fid, name: &[u8]) -> Vec<u8> {
    tagged(XATTR, &[&fid.to_bytes(), name])
}

pub fn xattr_prefix(fid: Fid) -> Vec<u8> {
    tagged(XATTR, &[&fid.to_bytes()])
}

/// A block of the bytes that lie with an inode.
pub fn data(fid: Fid, block: u32) -> Vec<u8> {
    tagged(DATA, &[&fid.to_bytes(), &block.to_be_bytes()])
}

pub fn data_prefix(fid: Fid) -> Vec<u8> {
    tagged(DATA, &[&fid.to_bytes()])
}

pub fn reverse(ost: u16, object: ObjectId) -> Vec<u8> {
    tagged(REVERSE, &[&u32::from(ost).to_be_bytes(), &object.to_bytes()])
}

/// All objects of an OST.
pub fn reverse_prefix(ost: u16) -> Vec<u8> {
    tagged(REVERSE, &[&u32::from(ost).to_be_bytes()])
}

pub fn orphan(fid: Fid) -> Vec<u8> {
    tagged(ORPHAN, &[&fid.to_bytes()])
}

pub fn outbox(ost: u16, seq: u64) -> Vec<u8> {
    tagged(OUTBOX, &[&u32::from(ost).to_be_bytes(), &seq.to_be_bytes()])
}

pub fn outbox_prefix(ost: u16) -> Vec<u8> {
    tagged(OUTBOX, &[&u32::from(ost).to_be_bytes()])
}

pub fn client(uuid: &[u8; 16]) -> Vec<u8> {
    tagged(CLIENT, &[uuid])
}

pub fn lease(seq: u64) -> Vec<u8> {
    tagged(LEASE, &[&seq.to_be_bytes()])
}

/// A record of the changelog.
pub fn changelog(index: u64) -> Vec<u8> {
    tagged(CHANGELOG, &[&index.to_be_bytes()])
}

/// A directory with a quota.
pub fn directory(id: u32) -> Vec<u8> {
    tagged(DIRECTORY, &[&id.to_be_bytes()])
}

/// A tree that is not counted to the right directory throughout.
pub fn unsettled(dir: Fid) -> Vec<u8> {
    tagged(UNSETTLED, &[&dir.to_bytes()])
}

fn fid_at(k: &[u8], at: usize) -> Option<Fid> {
    Some(Fid::from_bytes(k.get(at..at + 16)?.try_into().ok()?))
}

fn u64_at(k: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(k.get(at..at + 8)?.try_into().ok()?))
}

/// The FID of an `I`, `O` or `V` key.
pub fn parse_fid(k: &[u8]) -> Option<Fid> {
    if k.len() == 17 { fid_at(k, 1) } else { None }
}

/// The file or directory that an `I`, `X`, `M`, `P` or `D` key, or a prefix of one, belongs to.
pub fn parse_file(k: &[u8]) -> Option<Fid> {
    fid_at(k, 1)
}

/// (directory, cookie, name) of a `D` key.
pub fn parse_dentry(k: &[u8]) -> Option<(Fid, u64, &[u8])> {
    Some((fid_at(k, 1)?, u64_at(k, 17)?, k.get(25..)?))
}

/// (file, parent, cookie) of a `P` key.
pub fn parse_backptr(k: &[u8]) -> Option<(Fid, Fid, u64)> {
    if k.len() == 41 { Some((fid_at(k, 1)?, fid_at(k, 17)?, u64_at(k, 33)?)) } else { None }
}

/// (file, name) of an `X` key.
pub fn parse_xattr(k: &[u8]) -> Option<(Fid, &[u8])> {
    Some((fid_at(k, 1)?, k.get(17..)?))
}

/// (file, block) of an `M` key.
pub fn parse_data(k: &[u8]) -> Option<(Fid, u32)> {
    let block: [u8; 4] = k.get(17..)?.try_into().ok()?;
    Some((fid_at(k, 1)?, u32::from_be_bytes(block)))
}

/// (OST, object) of a `T` key.
pub fn parse_reverse(k: &[u8]) -> Option<(u16, ObjectId)> {
    let ost = u32::from_be_bytes(k.get(1..5)?.try_into().ok()?);
    let object: &[u8; 24] = k.get(5..)?.try_into().ok()?;
    Some((u16::try_from(ost).ok()?, ObjectId::from_bytes(object)))
}

/// (OST, number) of a `B` key.
pub fn parse_outbox(k: &[u8]) -> Option<(u16, u64)> {
    if k.len() != 13 {
        return None;
    }
    let ost = u32::from_be_bytes(k.get(1..5)?.try_into().ok()?);
    Some((u16::try_from(ost).ok()?, u64_at(k, 5)?))
}

/// The client of an `N` key.
pub fn parse_client(k: &[u8]) -> Option<[u8; 16]> {
    k.get(1..)?.try_into().ok()
}

/// The index of a `C` key.
pub fn parse_changelog(k: &[u8]) -> Option<u64> {
    if k.len() == 9 { u64_at(k, 1) } else { None }
}

/// The id of a `W` key.
pub fn parse_directory(k: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(k.get(1..)?.try_into().ok()?))
}

/// The sequence of an `F` key.
pub fn parse_lease(k: &[u8]) -> Option<u64> {
    if k.len() == 9 { u64_at(k, 1) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_parse_back() {
        let (f, p) = (Fid::new(7, 8, 9), Fid::ROOT);
        let o = ObjectId { origin: f, component: 1, stripe: 2 };
        assert_eq!(parse_fid(&inode(f)), Some(f));
        assert_eq!(parse_dentry(&dentry(f, 77, b"name")), Some((f, 77, &b"name"[..])));
        assert_eq!(parse_backptr(&backptr(f, p, 5)), Some((f, p, 5)));
        assert_eq!(parse_xattr(&xattr(f, b"user.a")), Some((f, &b"user.a"[..])));
        assert_eq!(parse_reverse(&reverse(3, o)), Some((3, o)));
        assert_eq!(parse_data(&data(f, 7)), Some((f, 7)));
        assert_eq!(parse_data(&data(f, 7)[..20]), None);
        assert_eq!(parse_outbox(&outbox(3, 4)), Some((3, 4)));
        assert_eq!(parse_client(&client(&[1; 16])), Some([1; 16]));
        assert_eq!(parse_lease(&lease(99)), Some(99));
        assert_eq!(parse_changelog(&changelog(7)), Some(7));
        let (old, new) = (Timestamp { sec: -7, nsec: 9 }, Timestamp { sec: 7, nsec: 0 });
        assert_eq!(parse_trash(&trash(old, f)), Some((old, f)));
        assert!(trash(old, f) < trash(new, f), "the oldest first");
        assert_eq!(parse_trash(&trash(new, f)[..28]), None);
        for cut in 0..25 {
            assert_eq!(parse_dentry(&dentry(f, 77, b"")[..cut]), None);
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_behind_all_its_keys() {
        assert_eq!(behind(b"ab"), b"ac");
        assert_eq!(behind(&[1, 0xff]), [2]);
        assert!(behind(&[0xff, 0xff]) > vec![0xff, 0xff, 0xfe]);
        let d = Fid::new(1, u32::MAX, u32::MAX);
        assert!(dentry_end(d) > dentry(d, u64::MAX, &[0xff; 255]));
    }
}

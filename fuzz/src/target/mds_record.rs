//! Records of an MDT's table, by tag.

use super::Target;
use mds::schema::changelog::{LogEntry, LogState};
use mds::schema::{DentryValue, Inode, Lease, OrphanKind, key, value};
use model::acl::Acl;
use model::changelog::{Origin, Record, RecordKind, Source};
use model::{Fid, FileType, Layout, LayoutSpec, ObjectId, Timestamp};

pub const TARGET: Target = Target {
    name: "mds_record",
    what: "inodes, names, layouts and the other records of an MDT, and its keys",
    run,
    samples,
    fix: None,
    words: &[&[1, 0], &[2, 0], &[3, 0], &[4, 0], &[5, 0], &[6, 0], b"user.name"],
    max_bytes: 4096,
};

fn run(bytes: &[u8]) {
    let Some((&tag, v)) = bytes.split_first() else { return };
    match tag {
        key::INODE => {
            if let Ok(i) = Inode::decode(Fid::ROOT, v) {
                assert!(Inode::decode(Fid::ROOT, &i.encode()).is_ok_and(|again| again == i));
                let _ = i.attr(Fid::ROOT);
            }
        }
        key::DENTRY => drop(DentryValue::decode(v, v)),
        key::BACKPTR => drop(value::decode_name(v, v)),
        key::XATTR => drop(value::decode_xattr(v, v)),
        key::REVERSE => drop(value::decode_owner(v, v)),
        key::ORPHAN => drop(OrphanKind::decode(v, v)),
        key::OUTBOX => drop(value::decode_outbox(v, v)),
        key::LEASE => drop(Lease::decode(v, v)),
        key::CLIENT => {
            let _ = value::ClientRecord::decode(v, v);
        }
        key::STATE => {
            let _ = (value::decode_u64(v, v), value::decode_hash_key(v, v), LogState::decode(v, v));
        }
        key::CHANGELOG => {
            if let Ok(e) = LogEntry::decode(v, v) {
                let again = LogEntry::decode(v, &LogEntry::encode(&e.record, 7));
                assert!(again.is_ok_and(|a| a.record == e.record));
            }
        }
        _ => keys(bytes),
    }
}

fn keys(k: &[u8]) {
    let _ = (key::parse_fid(k), key::parse_dentry(k), key::parse_backptr(k), key::parse_xattr(k));
    let _ = (key::parse_reverse(k), key::parse_outbox(k), key::parse_client(k), key::parse_lease(k));
    let _ = key::parse_changelog(k);
    assert!(key::behind(k).as_slice() > k);
}

fn log_record(fid: Fid) -> Record {
    Record {
        index: 7,
        kind: RecordKind::Rename,
        flags: 1,
        time: Timestamp { sec: -5, nsec: 7 },
        fid,
        parent: Fid::ROOT,
        name: b"new".to_vec(),
        source: Some(Source { fid, parent: Fid::ROOT, name: b"old".to_vec() }),
        by: Origin { uid: 5, gid: 6, nid: "10.0.0.1@tcp".parse().ok(), jobid: "cp.5".into() },
        open_flags: 2,
        xattr: b"user.a".to_vec(),
    }
}

fn samples() -> Vec<Vec<u8>> {
    let fid = Fid::new(0x2_0000_0400, 7, 0);
    let object = ObjectId { origin: fid, component: 1, stripe: 2 };
    let mut inode = Inode::new(FileType::Regular, 0o640, 5, 6, Timestamp { sec: -5, nsec: 7 });
    inode.symlink = b"target".to_vec();
    inode.layout = Some(Layout::plain(fid, 65536, "pool", &[0, 3]));
    inode.xattrs = vec![(b"user.a".to_vec(), b"value".to_vec())];
    inode.default_layout = Some(LayoutSpec::builtin());
    inode.acl = Some(Acl::from_mode(0o640));
    inode.default_acl = Some(Acl::from_mode(0o755));
    inode.extra = vec![(77, vec![1, 2])];
    let with = |tag: u8, v: Vec<u8>| [vec![tag], v].concat();
    vec![
        with(key::INODE, inode.encode()),
        with(key::DENTRY, DentryValue { fid, kind: FileType::Socket }.encode()),
        with(key::BACKPTR, value::encode_name(b"name")),
        with(key::REVERSE, value::encode_owner(fid)),
        with(key::ORPHAN, OrphanKind::Tmpfile.encode()),
        with(key::OUTBOX, value::encode_outbox(&value::OutboxRecord::Destroy(vec![object, object]))),
        with(key::LEASE, Lease { client: [3; 16], width: 9 }.encode()),
        with(
            key::CLIENT,
            value::ClientRecord { name: "n".into(), address: "a".into(), identity: Default::default() }
                .encode(),
        ),
        with(key::STATE, value::encode_hash_key([1, 2])),
        with(key::STATE, LogState::default().encode()),
        with(key::CHANGELOG, LogEntry::encode(&log_record(fid), 9)),
        with(b'?', key::dentry(fid, 99, b"name")),
        with(b'?', key::reverse(3, object)),
    ]
}

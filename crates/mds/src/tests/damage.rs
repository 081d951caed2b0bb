//! What the checker must see: each rule broken once, by hand.

use super::*;
use crate::check::Rule;
use crate::schema::changelog::{Consumer, LogEntry, LogState};
use crate::schema::value::{self, ClientRecord, OrphanKind};
use crate::schema::{DentryValue, Inode, Lease, key};
use crate::tx::Found;
use ::model::Layout;
use ::model::changelog::{Origin, Record, RecordKind};
use store::Txn;

const R: Fid = Fid::ROOT;

/// A small tree: a directory with a file that has a second name, and a large attribute.
pub(super) struct Tree {
    pub(super) rig: Rig,
    pub(super) dir: Fid,
    /// With one object.
    pub(super) file: Fid,
    /// With two blocks of data beside its inode.
    pub(super) small: Fid,
}

pub(super) fn tree() -> Tree {
    let rig = Rig::new();
    let dir = rig.mkdir(R, "d");
    let file = rig.create_striped(dir, "f", 1);
    rig.link(file, R, "g").unwrap();
    let small = rig.create(dir, "small");
    rig.write(small, 0, &[7; 5000]).unwrap();
    let big = msg::setxattr::Setxattr {
        fid: file,
        name: b"user.big".to_vec(),
        value: vec![0; 5000],
        flags: 0,
        kill_sgid: false,
    };
    rig.root(big).unwrap();
    rig.assert_clean();
    Tree { rig, dir, file, small }
}

impl Tree {
    pub(super) fn cookie(&self, dir: Fid, name: &str) -> u64 {
        let mut cookie = 0;
        let done = block_on(self.rig.mdt.transactions.transact(None, |tx| {
            match tx.find(dir, name.as_bytes())? {
                Found::Entry(d) => cookie = d.cookie,
                Found::Free(_) => panic!("no {name}"),
            }
            Ok(Vec::new())
        }));
        done.result.unwrap();
        cookie
    }

    pub(super) fn inode(&self, fid: Fid, f: impl FnOnce(&mut Inode)) -> (Vec<u8>, Option<Vec<u8>>) {
        let k = key::inode(fid);
        let mut i = Inode::decode(fid, &self.rig.mdt.db.get(&k).unwrap().unwrap()).unwrap();
        f(&mut i);
        (k, Some(i.encode()))
    }

    /// Writes this over what is there; returns the rules that the checker finds broken.
    pub(super) fn broken(&self, writes: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Vec<Rule> {
        let mut txn = Txn::new();
        txn.writes = writes;
        self.rig.mdt.db.submit(txn).unwrap();
        let mut rules: Vec<_> =
            check::check(&self.rig.mdt.db).unwrap().findings.into_iter().map(|f| f.rule).collect();
        rules.sort();
        rules.dedup();
        rules
    }
}

fn log_record(index: u64) -> Record {
    Record {
        index,
        kind: RecordKind::Create,
        flags: 0,
        time: Timestamp::ZERO,
        fid: R,
        parent: R,
        name: b"f".to_vec(),
        source: None,
        by: Origin::default(),
        open_flags: 0,
        xattr: Vec::new(),
    }
}

pub(super) type Case = (&'static str, fn(&Tree) -> Vec<(Vec<u8>, Option<Vec<u8>>)>, &'static [Rule]);

pub(super) const CASES: &[Case] = &[
    (
        "a name without its back-pointer",
        |t| vec![(key::backptr(t.file, R, t.cookie(R, "g")), None)],
        &[Rule::Name, Rule::Count],
    ),
    (
        "a back-pointer without its name",
        |t| vec![(key::dentry(R, t.cookie(R, "g"), b"g"), None)],
        &[Rule::Backpointer, Rule::Count],
    ),
    (
        "a name of a file that is gone",
        |t| vec![(key::inode(t.file), None)],
        &[Rule::Name, Rule::Layout, Rule::State, Rule::Xattr],
    ),
    (
        "a name of the wrong type",
        |t| {
            let v = DentryValue { fid: t.file, kind: FileType::Fifo };
            vec![(key::dentry(R, t.cookie(R, "g"), b"g"), Some(v.encode()))]
        },
        &[Rule::Name],
    ),
    ("nlink", |t| vec![t.inode(t.file, |i| i.nlink = 3)], &[Rule::Count]),
    ("entries", |t| vec![t.inode(t.dir, |i| i.entries = 7)], &[Rule::Count]),
    ("dot-dot", |t| vec![t.inode(t.dir, |i| i.parent = Fid::new(9, 9, 9))], &[Rule::Parent]),
    ("a loop", |t| vec![t.inode(t.dir, |i| i.parent = t.dir)], &[Rule::Parent]),
    ("no links and no orphan", |t| vec![t.inode(t.file, |i| i.nlink = 0)], &[Rule::Count, Rule::Orphan]),
    (
        "an orphan with links",
        |t| vec![(key::orphan(t.file), Some(OrphanKind::Unlinked.encode()))],
        &[Rule::Orphan],
    ),
    (
        "an orphan that does not exist",
        |_| vec![(key::orphan(Fid::new(1, 1, 0)), Some(OrphanKind::Unlinked.encode()))],
        &[Rule::Orphan],
    ),
    (
        "an object without its reverse index",
        |t| {
            let o = t.rig.lookup(R, "g").unwrap().layout.unwrap().components[0].objects[0];
            vec![(key::reverse(o.ost, o.id), None)]
        },
        &[Rule::Layout],
    ),
    ("a reverse index without its object", |t| vec![t.inode(t.file, |i| i.layout = None)], &[Rule::Layout]),
    (
        "a living object to be destroyed",
        |t| {
            let o = t.rig.lookup(R, "g").unwrap().layout.unwrap().components[0].objects[0];
            vec![(
                key::outbox(o.ost, 77),
                Some(value::encode_outbox(&value::OutboxRecord::Destroy(vec![o.id]))),
            )]
        },
        &[Rule::Outbox],
    ),
    (
        "a sequence that was not handed out",
        |_| vec![(key::lease(1 << 60), Some(Lease { client: [1; 16], width: 5 }.encode()))],
        &[Rule::Sequence],
    ),
    (
        "the sequence went back",
        |_| vec![(key::STATE_NEXT_SEQ.to_vec(), Some(value::encode_u64(1)))],
        &[Rule::Sequence],
    ),
    (
        "the count of inodes",
        |_| vec![(key::STATE_INODES.to_vec(), Some(value::encode_u64(99)))],
        &[Rule::State],
    ),
    ("no hash key", |_| vec![(key::STATE_HASH_KEY.to_vec(), None)], &[Rule::State]),
    ("a large attribute is gone", |t| vec![(key::xattr(t.file, b"user.big"), None)], &[Rule::Xattr]),
    (
        "a large attribute too many",
        |t| vec![(key::xattr(t.file, b"user.more"), Some(vec![1]))],
        &[Rule::Xattr],
    ),
    (
        "an inode that does not decode",
        |t| vec![(key::inode(t.file), Some(vec![9, 9]))],
        &[Rule::Damaged, Rule::Name, Rule::Layout, Rule::Xattr],
    ),
    (
        "a client record that does not decode",
        |_| vec![(key::client(&[3; 16]), Some(vec![1, 200]))],
        &[Rule::Damaged],
    ),
    (
        "mode and access list",
        |t| {
            let a = ::model::acl::Acl::from_mode(0o777);
            vec![t.inode(t.file, |i| i.acl = Some(a))]
        },
        &[Rule::Count],
    ),
    ("data of no file", |_| vec![(key::data(Fid::new(1, 1, 0), 0), Some(vec![1]))], &[Rule::Data]),
    ("data beside objects", |t| vec![(key::data(t.file, 0), Some(vec![1]))], &[Rule::Data]),
    ("a block of data is gone", |t| vec![(key::data(t.small, 1), None)], &[Rule::Data]),
    ("data behind the end", |t| vec![t.inode(t.small, |i| i.data.size = 4100)], &[Rule::Data]),
    ("more data than room", |t| vec![t.inode(t.small, |i| i.data.size = 1 << 20)], &[Rule::Data]),
    ("data that is no block", |t| vec![(key::data(t.small, 1), Some(vec![1; 5000]))], &[Rule::Damaged]),
    (
        "an object of a growth without its reverse index",
        |t| {
            let target = Layout::striped((t.small, 2), 1, 65536, "", &[1]);
            vec![t.inode(t.small, |i| i.growth.target = Some(target))]
        },
        &[Rule::Layout],
    ),
    (
        "a record of the changelog for nobody",
        |_| vec![(key::changelog(1), Some(LogEntry::encode(&log_record(1), 0)))],
        &[Rule::Changelog],
    ),
    (
        "a record of the changelog that is missing",
        |_| {
            let state = LogState::default().encode();
            let (first, third) = (LogEntry::encode(&log_record(1), 0), LogEntry::encode(&log_record(3), 90));
            vec![
                (key::STATE_CHANGELOG.to_vec(), Some(state)),
                (key::changelog(1), Some(first)),
                (key::changelog(3), Some(third)),
            ]
        },
        &[Rule::Changelog],
    ),
    (
        "a consumer of records that never were",
        |_| {
            let c = Consumer { id: 1, name: String::new(), mask: None, cleared: 9, heard: 0 };
            let state = LogState { last_id: 1, consumers: vec![c], ..LogState::default() };
            vec![(key::STATE_CHANGELOG.to_vec(), Some(state.encode()))]
        },
        &[Rule::Changelog],
    ),
    (
        "a record of the changelog that does not decode",
        |_| vec![(key::changelog(1), Some(vec![1; 12]))],
        &[Rule::Damaged],
    ),
    ("no root", |_| vec![(key::inode(R), None)], &[Rule::Name, Rule::Parent, Rule::State]),
];

#[test]
fn every_rule_is_checked() {
    let mut seen = Vec::new();
    for (what, harm, want) in CASES {
        let t = tree();
        let got = t.broken(harm(&t));
        for rule in *want {
            assert!(got.contains(rule), "{what}: found {got:?}, not {rule:?}");
            seen.push(*rule);
        }
    }
    for rule in [
        Rule::Damaged,
        Rule::Name,
        Rule::Backpointer,
        Rule::Count,
        Rule::Parent,
        Rule::Orphan,
        Rule::Layout,
        Rule::Outbox,
        Rule::Sequence,
        Rule::State,
        Rule::Xattr,
        Rule::Data,
        Rule::Changelog,
    ] {
        assert!(seen.contains(&rule), "no case breaks {rule:?}");
    }
}

#[test]
fn harmless_records_are_no_findings() {
    let t = tree();
    let rec = ClientRecord { name: "x".into(), address: "y".into(), identity: rpc::Identity::default() };
    assert_eq!(t.broken(vec![(key::client(&[3; 16]), Some(rec.encode()))]), []);
    let mut objects = 0;
    check::expected_objects(&t.rig.mdt.db, |_, o, file| {
        assert_eq!((o.origin, file), (t.file, t.file));
        objects += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(objects, 1);
    t.rig.unlink(R, "g").unwrap();
    t.rig.unlink(t.dir, "f").unwrap();
    let mut doomed = 0;
    check::doomed_objects(&t.rig.mdt.db, |_, _| doomed += 1).unwrap();
    assert_eq!(doomed, 1);
}

#[test]
fn a_file_with_data_under_a_damaged_key_can_be_removed() {
    let t = tree();
    let mut long = key::data(t.small, 1);
    long.push(9);
    let rules = t.broken(vec![(long.clone(), Some(value::encode_data(b"x")))]);
    assert!(rules.contains(&Rule::Damaged), "{rules:?}");
    t.rig.unlink(t.dir, "small").unwrap();
    assert_eq!(t.rig.mdt.db.get(&long).unwrap(), None, "it goes with the file");
}

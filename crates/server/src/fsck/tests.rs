//! A small file system in memory, broken in one way at a time.
use model::nodemap::Owner;

use super::*;
use bytes::Bytes;
use mds::schema::{DentryValue, Inode, key, value};
use model::{Fid, FileType, Layout, ObjectId, TargetId, Timestamp};
use std::sync::Arc;
use store::format::Superblock;
use store::object::location::{ObjectRecord, object_key, own_path};
use store::object::{ObjectMeta, Objects};
use store::{Db, DbOptions, Txn};
use world::OpenMode;
use world::mem::MemDisk;
use world::real::Runtime;

const ROOT: &str = "/fs";
const SEQ: u64 = model::fid::SEQ_NORMAL;

struct Bed {
    world: World,
    disk: MemDisk,
    rt: Runtime,
}

fn superblock(target: TargetId) -> Superblock {
    let uuid = [target.index as u8 + 2; 16];
    Superblock {
        fs_uuid: [1; 16],
        epoch: 1,
        first_time: false,
        ..Superblock::fresh(target, "demo".into(), uuid)
    }
}

fn fid(n: u32) -> Fid {
    Fid::new(SEQ, n, 0)
}

fn object(n: u32, stripe: u32) -> ObjectId {
    ObjectId { origin: fid(n), component: 1, stripe }
}

impl Bed {
    /// One MDT with /dir/file and /dir/big on two OSTs.
    fn new() -> Bed {
        let disk = MemDisk::new();
        let (mut world, rt) = world::real::start(2).unwrap();
        world.disk = Arc::new(disk.clone());
        let bed = Bed { world, disk, rt };
        bed.world.disk.mkdir(ROOT).unwrap();
        for target in [TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)] {
            let dir = bed.dir(target);
            bed.world.disk.mkdir(&dir).unwrap();
            superblock(target).write(&bed.world, &dir).unwrap();
            Db::create(&bed.world, &dir).unwrap();
            if target.kind == model::TargetKind::Ost {
                Objects::create(&bed.world, &dir).unwrap();
            }
        }
        bed.names();
        bed.data();
        bed
    }

    fn dir(&self, t: TargetId) -> String {
        format!("{ROOT}/{t}")
    }

    /// Opens a target's database, lets `f` change it, and closes it in an orderly way.
    fn with_db(&self, t: TargetId, f: impl FnOnce(&Arc<Db>) -> Txn) {
        let dir = self.dir(t);
        let mut sb = Superblock::read(&self.world, &dir).unwrap();
        sb.epoch += 1;
        sb.write(&self.world, &dir).unwrap();
        let db = Db::open(&self.world, &dir, sb.epoch, DbOptions::default()).unwrap();
        let txn = f(&db);
        self.rt.block_on(async {
            let lsn = db.submit(txn).unwrap();
            db.durable(lsn).await.unwrap();
            db.close().await.unwrap();
        });
    }

    fn change(&self, t: TargetId, f: impl FnOnce(&mut Txn)) {
        self.with_db(t, |_| {
            let mut txn = Txn::new();
            f(&mut txn);
            txn
        });
    }

    fn names(&self) {
        self.with_db(TargetId::mdt(0), |db| {
            mds::Mdt::format(&self.world, db).unwrap();
            let mut txn = Txn::new();
            let now = Timestamp { sec: 1, nsec: 0 };
            let mut root = Inode::new(FileType::Directory, 0o755, 0, 0, now);
            (root.parent, root.entries, root.nlink) = (Fid::ROOT, 1, 3);
            txn.put(key::inode(Fid::ROOT), root.encode());
            let mut dir = Inode::new(FileType::Directory, 0o755, 0, 0, now);
            (dir.parent, dir.entries) = (Fid::ROOT, 2);
            txn.put(key::inode(fid(1)), dir.encode());
            name(&mut txn, Fid::ROOT, 100, b"dir", fid(1), FileType::Directory);
            for (n, text, osts) in [(2, b"file".as_slice(), &[1u16][..]), (3, b"big", &[0, 1])] {
                let mut f = Inode::new(FileType::Regular, 0o644, 5, 5, now);
                let layout = Layout::plain(fid(n), 65536, "", osts);
                layout
                    .objects()
                    .for_each(|o| txn.put(key::reverse(o.ost, o.id), value::encode_owner(fid(n))));
                f.layout = Some(layout);
                txn.put(key::inode(fid(n)), f.encode());
                name(&mut txn, fid(1), 100 + u64::from(n), text, fid(n), FileType::Regular);
            }
            txn.put(key::STATE_NEXT_SEQ, value::encode_u64(SEQ + 1));
            txn.put(key::STATE_INODES, value::encode_u64(4));
            txn
        });
    }

    fn data(&self) {
        self.put_object(0, object(3, 0), fid(3), 200_000);
        self.put_object(1, object(3, 1), fid(3), 9000);
    }

    fn put_object(&self, ost: u16, id: ObjectId, file: Fid, bytes: usize) {
        let t = TargetId::ost(ost);
        self.with_db(t, |db| {
            let objects = Objects::open(db.clone()).unwrap();
            let meta = ObjectMeta {
                file,
                owner: Owner::new(0, 0, 0),
                owner_as_of: None,
                time: None,
                data_version: None,
                label: None,
            };
            let write = objects.write(id, Some(0), Bytes::from(vec![3; bytes]), meta, Box::new(|_, _, _| {}));
            self.rt.block_on(async { db.durable(write.await.unwrap().2).await.unwrap() });
            Txn::new()
        });
    }

    /// Checks; (exit status, text).
    fn fsck(&self, opts: &[&str]) -> (i32, String) {
        let mut args: Vec<OsString> = opts.iter().map(OsString::from).collect();
        args.push(ROOT.into());
        let o = FsckOptions::parse(&args).unwrap();
        let mut out = Vec::new();
        let status = self.rt.block_on(check(&self.world, &o, &mut out));
        (status, String::from_utf8(out).unwrap())
    }

    /// It is wrong, stays so, is repaired if it can be, and then clean.
    fn broken(&self, word: &str, repairable: bool) {
        for opts in [&[][..], &["--read-data"]] {
            let (status, text) = self.fsck(opts);
            assert_eq!(status, EXIT_ERRORS_LEFT, "{text}");
            assert!(text.contains(word), "no '{word}' in {text}");
        }
        let (status, text) = self.fsck(&["--repair"]);
        assert_eq!(status, if repairable { EXIT_CORRECTED } else { EXIT_ERRORS_LEFT }, "{text}");
        let (status, text) = self.fsck(&["-q"]);
        assert_eq!(status, if repairable { EXIT_CLEAN } else { EXIT_ERRORS_LEFT }, "{text}");
    }
}

fn name(txn: &mut Txn, dir: Fid, cookie: u64, text: &[u8], fid: Fid, kind: FileType) {
    txn.put(key::dentry(dir, cookie, text), DentryValue { fid, kind }.encode());
    txn.put(key::backptr(fid, dir, cookie), value::encode_name(text));
}

#[test]
fn a_good_file_system_is_clean_and_untouched() {
    let bed = Bed::new();
    let before = bed.disk.counters().flushes;
    let (status, text) = bed.fsck(&["--read-data"]);
    assert_eq!(status, EXIT_CLEAN, "{text}");
    assert!(
        text.ends_with("nacre fsck: 3 targets, 4 inodes, 3 names, 2 objects with 209000 bytes: clean\n"),
        "{text}"
    );
    assert_eq!(bed.disk.counters().flushes, before, "nothing was flushed");
    assert_eq!(bed.fsck(&["--repair"]).0, EXIT_CLEAN);
    let (status, json) = bed.fsck(&["--json"]);
    let doc: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &doc["clean"], &doc["totals"]["objects"]), (0, &true.into(), &2.into()), "{json}");
}

#[test]
fn what_the_journal_holds_counts() {
    let bed = Bed::new();
    let t = TargetId::ost(0);
    let dir = bed.dir(t);
    let db = Db::open(&bed.world, &dir, 50, DbOptions::default()).unwrap();
    let mut sb = Superblock::read(&bed.world, &dir).unwrap();
    sb.epoch = 50;
    sb.write(&bed.world, &dir).unwrap();
    let objects = Objects::open(db.clone()).unwrap();
    let meta = ObjectMeta {
        file: fid(9),
        owner: Owner::new(0, 0, 0),
        owner_as_of: None,
        time: None,
        data_version: None,
        label: None,
    };
    let leak = objects.write(object(9, 0), Some(0), Bytes::from_static(b"x"), meta, Box::new(|_, _, _| {}));
    bed.rt.block_on(async { db.durable(leak.await.unwrap().2).await.unwrap() });
    let (status, text) = bed.fsck(&[]);
    assert_eq!(status, EXIT_OPERATIONAL, "the table is in use: {text}");
    bed.disk.kill();
    drop((objects, db));
    bed.broken("leaked object of 1 bytes", true);
}

#[test]
fn counts_and_pointers_are_mended() {
    let bed = Bed::new();
    bed.change(TargetId::mdt(0), |txn| {
        let mut f = Inode::new(FileType::Regular, 0o644, 5, 5, Timestamp::ZERO);
        f.nlink = 7;
        txn.put(key::inode(fid(4)), f.encode());
        name(txn, Fid::ROOT, 500, b"counted", fid(4), FileType::Regular);
        txn.delete(key::backptr(fid(2), fid(1), 102));
        txn.delete(key::reverse(1, object(2, 0)));
        txn.put(key::reverse(1, object(8, 0)), value::encode_owner(fid(2)));
    });
    bed.broken("nlink is 7", true);
}

#[test]
fn objects_are_compared_with_layouts() {
    let bed = Bed::new();
    bed.put_object(1, object(77, 0), fid(77), 12);
    bed.broken("leaked object of 12 bytes", true);
    bed.put_object(1, object(2, 0), fid(99), 12);
    bed.broken("path /dir/file", true);
    // The outbox accounts for an object that no layout names.
    bed.put_object(0, object(78, 0), fid(78), 12);
    let destroyed = value::OutboxRecord::Destroy(vec![object(78, 0)]);
    bed.change(TargetId::mdt(0), |txn| txn.put(key::outbox(0, 1), value::encode_outbox(&destroyed)));
    let (status, text) = bed.fsck(&[]);
    assert_eq!(status, EXIT_CLEAN, "{text}");
}

#[test]
fn lost_and_destroyed_data_is_reported_and_left() {
    let bed = Bed::new();
    let ost = TargetId::ost(0);
    let path = own_path(&bed.dir(ost), object(3, 0));
    let file = bed.world.disk.open(&path, OpenMode::WRITE).unwrap();
    file.set_len(1000).unwrap();
    bed.broken("has 1000 bytes, its record says 200000", false);
    bed.broken("path /dir/big", false);
    file.set_len(200_000).unwrap();
    bed.with_db(ost, |db| {
        let objects = Objects::open(db.clone()).unwrap();
        let gone = objects.destroy(vec![object(3, 0)], Box::new(|_, _, _| {}));
        bed.rt.block_on(async { db.durable(gone.await.unwrap()).await.unwrap() });
        Txn::new()
    });
    bed.broken("destroyed, but a file's layout names it", false);
}

/// Each bad block is named, and the walk goes on behind it: it read the first one again and again.
#[test]
fn bad_blocks_are_named_and_the_rest_is_read() {
    let bed = Bed::new();
    let path = own_path(&bed.dir(TargetId::ost(0)), object(3, 0));
    for at in [0, 70_000, 199_999] {
        bed.disk.corrupt(&path, at, 1).unwrap();
    }
    assert_eq!(bed.fsck(&[]).0, EXIT_CLEAN, "nothing is read without being asked");
    let (status, text) = bed.fsck(&["--read-data"]);
    assert_eq!(status, EXIT_ERRORS_LEFT, "{text}");
    for block in [0, 69_632, 196_608] {
        assert!(text.contains(&format!("the block at byte {block} is not what was written")), "{text}");
    }
    assert_eq!(text.matches("is not what was written").count(), 3, "{text}");
}

#[test]
fn data_with_inodes_is_counted_anew_or_goes_with_its_file() {
    let bed = Bed::new();
    let mdt = TargetId::mdt(0);
    bed.change(mdt, |txn| txn.put(key::data(fid(9), 0), value::encode_data(b"nobody's")));
    bed.broken("it has data but does not exist", true);
    let small = |bed: &Bed, blocks| {
        bed.change(mdt, |txn| {
            let mut f = Inode::new(FileType::Regular, 0o644, 5, 5, Timestamp { sec: 1, nsec: 0 });
            f.layout = Some(Layout::on_mdt(65536));
            (f.data.size, f.data.blocks) = (5, blocks);
            txn.put(key::inode(fid(2)), f.encode());
            txn.put(key::data(fid(2), 0), value::encode_data(b"small"));
            txn.delete(key::reverse(1, object(2, 0)));
        });
    };
    small(&bed, 1);
    assert_eq!(bed.fsck(&[]).0, EXIT_CLEAN, "a small file");
    small(&bed, 3);
    bed.broken("it counts 3 blocks of data, but has 1", true);
    bed.change(mdt, |txn| txn.put(key::data(fid(3), 0), value::encode_data(b"beside objects")));
    bed.broken("it counts no data, but has some", false);
}

#[test]
fn the_trash_and_its_records_agree_again() {
    let bed = Bed::new();
    let when = model::Timestamp { sec: 5, nsec: 6 };
    bed.change(TargetId::mdt(0), |txn| txn.put(key::trash(when, fid(99)), value::encode_trash()));
    bed.broken("is in the trash but does not exist", true);
}

#[test]
fn damaged_records_are_found() {
    let bed = Bed::new();
    bed.change(TargetId::ost(1), |txn| {
        txn.put(object_key(object(3, 1)), b"garbage".to_vec());
        let shared = ObjectRecord {
            location: store::object::location::Location::Own,
            attr: model::ObjectAttr { size: 5, ..model::ObjectAttr::default() },
            ..ObjectRecord::empty()
        };
        txn.put(object_key(object(2, 0)), shared.encode());
    });
    bed.broken("does not decode", false);
}

#[test]
fn what_cannot_be_checked_is_said() {
    let bed = Bed::new();
    let held = Superblock::lock(&bed.world, &bed.dir(TargetId::mdt(0))).unwrap();
    let (status, text) = bed.fsck(&[]);
    assert!(status == EXIT_OPERATIONAL && text.contains("in use"), "{text}");
    drop(held);
    let other = Superblock { fsname: "other".into(), ..superblock(TargetId::ost(1)) };
    other.write(&bed.world, &bed.dir(TargetId::ost(1))).unwrap();
    let (status, text) = bed.fsck(&[]);
    assert!(status == EXIT_OPERATIONAL && text.contains("different file systems"), "{text}");
    let empty = FsckOptions { paths: vec!["/nowhere".into()], ..FsckOptions::default() };
    let mut out = Vec::new();
    assert_eq!(bed.rt.block_on(check(&bed.world, &empty, &mut out)), EXIT_OPERATIONAL);
    assert!(FsckOptions::parse(&[]).is_err());
    assert!(FsckOptions::parse(&["--nonsense".into(), "/x".into()]).is_err());
}

/// The journal of a killed target, with the damage of a torn record that newer ones say was durable.
fn damage_journal(bed: &Bed, t: TargetId) -> String {
    let dir = bed.dir(t);
    let mut sb = Superblock::read(&bed.world, &dir).unwrap();
    sb.epoch += 1;
    sb.write(&bed.world, &dir).unwrap();
    let db = Db::open(&bed.world, &dir, sb.epoch, DbOptions::default()).unwrap();
    for n in 0..4u8 {
        let mut txn = Txn::new();
        txn.put(key::xattr(fid(2), b"user.n"), vec![1, n]);
        txn.put_reply(&[9; 16], 0, &store::ReplyRecord { xid: u64::from(n), status: 0, body: Vec::new() });
        let lsn = db.submit(txn).unwrap();
        bed.rt.block_on(db.durable(lsn)).unwrap();
    }
    bed.disk.kill();
    drop(db);
    let logs = bed.world.disk.list(&format!("{dir}/journal")).unwrap();
    let log = format!("{dir}/journal/{}", logs.iter().find(|l| l.ends_with(".log")).unwrap());
    // Within the first record.
    bed.disk.corrupt(&log, 64 + 50, 1).unwrap();
    dir
}

#[test]
fn a_damaged_journal_is_cut_when_told_so_and_the_target_starts() {
    for t in [TargetId::mdt(0), TargetId::ost(0)] {
        let bed = Bed::new();
        let dir = damage_journal(&bed, t);
        let client = format!("{:032x}", u128::from_be_bytes([9; 16]));
        for opts in [&[][..], &["--repair"], &["-p"]] {
            let (status, text) = bed.fsck(opts);
            assert_eq!(status, EXIT_OPERATIONAL, "{text}");
            for word in ["is damaged", "nacre fsck --repair --cut-journal", "are lost", &client, &dir] {
                assert!(text.contains(word), "no '{word}' in {text}");
            }
        }
        // What would be left.
        let (status, text) = bed.fsck(&["--cut-journal"]);
        assert!(status == EXIT_ERRORS_LEFT && text.contains("are lost"), "{text}");
        assert_eq!(bed.fsck(&[]).0, EXIT_OPERATIONAL, "nothing was changed");
        let (status, text) = bed.fsck(&["--repair", "--cut-journal"]);
        assert!(status == EXIT_CORRECTED && text.contains("[repaired]"), "{text}");
        let (status, text) = bed.fsck(&[]);
        assert_eq!(status, EXIT_CLEAN, "{text}");
        bed.with_db(t, |db| {
            if t.kind == model::TargetKind::Mdt {
                // Four transactions were lost.
                let next = db.get(key::STATE_NEXT_SEQ).unwrap().unwrap();
                assert_eq!(value::decode_u64(key::STATE_NEXT_SEQ, &next).unwrap(), SEQ + 1 + 4);
            }
            Txn::new()
        });
    }
}

#[test]
fn the_options_of_fsck_8_mean_what_they_say() {
    let parse = |args: &[&str]| {
        let all: Vec<OsString> = args.iter().chain(&["/x"]).map(OsString::from).collect();
        FsckOptions::parse(&all)
    };
    assert!(
        parse(&["-p"]).unwrap().repair && parse(&["-a"]).unwrap().repair && parse(&["-y"]).unwrap().repair
    );
    assert!(!parse(&["-n"]).unwrap().repair && !parse(&["-f", "-v"]).unwrap().repair);
    assert!(parse(&["-p", "--cut-journal"]).unwrap_err().contains("safe repairs only"));
    assert!(parse(&["-A"]).unwrap_err().contains("unknown option"));
    // Leaked objects go without a question.
    let bed = Bed::new();
    bed.put_object(1, object(77, 0), fid(77), 12);
    let (status, text) = bed.fsck(&["-p"]);
    assert_eq!(status, EXIT_CORRECTED, "{text}");
    assert_eq!(bed.fsck(&[]).0, EXIT_CLEAN);
}

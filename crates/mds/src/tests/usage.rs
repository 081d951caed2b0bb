//! What owners use of a metadata target.

use super::{A, B, Rig};
use crate::schema::key;
use crate::schema::value::{self, OutboxRecord};
use ::model::usage::{QuotaId, QuotaType, Usage};
use ::model::{Cred, Errno, Fid, SetAttr};
use wire::msg::quotactl::{QuotaAsk, Quotactl};
use wire::msg::setowner::OwnerOf;

const R: Fid = Fid::ROOT;

fn id(of: QuotaType, id: u32) -> QuotaId {
    QuotaId { of, id }
}

/// (inodes, blocks) of a user.
fn of_user(rig: &Rig, uid: u32) -> (u64, u64) {
    let u = rig.mdt.shared.usage.get(id(QuotaType::User, uid));
    (u.inodes, u.blocks)
}

fn create(rig: &Rig, uid: u32, name: &str) -> Fid {
    rig.create_as(&Cred::new(uid, uid), R, name, 0o644).unwrap().entry.attr.fid
}

/// What OSTs are to be told of owners.
pub fn owners_told(rig: &Rig) -> Vec<OwnerOf> {
    let mut told = Vec::new();
    crate::walk::walk(&*rig.mdt.db, &[key::OUTBOX], &[key::OUTBOX + 1], |k, v| {
        if let OutboxRecord::Owner(o) = value::decode_outbox(k, v)? {
            told.push(o);
        }
        Ok(())
    })
    .unwrap();
    told
}

#[test]
fn inodes_and_blocks_follow_their_owners() {
    let mut rig = Rig::new();
    rig.chmod(R, 0o777);
    let root = of_user(&rig, 0);
    let f = create(&rig, 7, "f");
    assert_eq!((of_user(&rig, 7), of_user(&rig, 0)), ((1, 0), root));
    rig.write(f, 0, &[1; 5000]).unwrap();
    assert_eq!(of_user(&rig, 7), (1, 16), "two blocks of 4 KiB");
    rig.link(f, R, "g").unwrap();
    assert_eq!(of_user(&rig, 7), (1, 16), "a second name is no second file");
    rig.chown(f, 8, 9);
    assert_eq!((of_user(&rig, 7), of_user(&rig, 8)), ((0, 0), (1, 16)));
    assert_eq!(rig.mdt.shared.usage.get(id(QuotaType::Group, 9)), Usage { inodes: 1, blocks: 16 });
    let set = SetAttr { projid: Some(77), ..SetAttr::default() };
    rig.setattr(&Cred::root(), f, set).unwrap();
    assert_eq!(rig.mdt.shared.usage.get(id(QuotaType::Project, 77)), Usage { inodes: 1, blocks: 16 });
    rig.assert_clean();
    rig.crash(1);
    assert_eq!(of_user(&rig, 8), (1, 16), "after a crash as well");
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    let handle = rig.open(f, 0);
    rig.unlink(R, "f").unwrap();
    rig.unlink(R, "g").unwrap();
    assert_eq!(of_user(&rig, 8), (1, 16), "it is open");
    rig.close(f, handle);
    assert_eq!((of_user(&rig, 8), of_user(&rig, 0)), ((0, 0), root));
    rig.assert_clean();
}

#[test]
fn directories_and_what_is_replaced_are_counted() {
    let rig = Rig::new();
    rig.chmod(R, 0o777);
    let d = rig.mkdir_as(&Cred::new(5, 5), R, "d", 0o755).unwrap().attr;
    assert_eq!(of_user(&rig, 5), (1, d.blocks));
    let (a, b) = (create(&rig, 5, "a"), create(&rig, 6, "b"));
    rig.write(a, 0, &[1; 100]).unwrap();
    rig.write(b, 0, &[1; 100]).unwrap();
    rig.rename((R, "a"), (R, "b"), 0).unwrap();
    assert_eq!((of_user(&rig, 5), of_user(&rig, 6)), ((2, d.blocks + 8), (0, 0)));
    rig.rmdir(R, "d").unwrap();
    assert_eq!(of_user(&rig, 5), (1, 8));
    rig.assert_clean();
}

#[test]
fn osts_are_told_of_the_new_owner_of_a_file_with_objects() {
    let rig = Rig::new();
    let f = rig.create_striped(R, "f", 2);
    let before = rig.attr(f).ctime;
    rig.chown(f, 7, 8);
    rig.chmod(f, 0o600);
    let told = owners_told(&rig);
    assert_eq!(told.len(), 2, "once each, and not for a chmod");
    for o in &told {
        assert_eq!((o.file, o.owner().uid, o.owner().gid, o.objects.len()), (f, 7, 8, 1));
        assert!(o.as_of > before, "later than what clients say who did not know");
    }
    rig.assert_clean();
}

#[test]
fn whoever_asks_is_told_of_himself_and_root_of_everybody() {
    let rig = Rig::new();
    rig.chmod(R, 0o777);
    create(&rig, 7, "f");
    create(&rig, 8, "g");
    let ask = |cred: &Cred, ask| rig.call(A, cred, Quotactl { ask });
    let (own, other) = (id(QuotaType::User, 7), id(QuotaType::User, 8));
    let one = Usage { inodes: 1, blocks: 0 };
    let user = Cred::new(7, 7);
    assert_eq!(ask(&user, QuotaAsk::Of(vec![own])).unwrap().usage, [(own, one)]);
    assert_eq!(ask(&user, QuotaAsk::Of(vec![own, other])).err(), Some(Errno::EPERM));
    assert_eq!(ask(&user, QuotaAsk::Of(vec![id(QuotaType::Group, 8)])).err(), Some(Errno::EPERM));
    for all in [QuotaAsk::All { of: QuotaType::User, after: None }, QuotaAsk::Verify] {
        assert_eq!(ask(&user, all).err(), Some(Errno::EPERM));
    }
    let behind = QuotaAsk::All { of: QuotaType::User, after: Some(0) };
    let r = ask(&Cred::root(), behind).unwrap();
    assert_eq!((r.usage, r.next), (vec![(own, one), (other, one)], None));
    assert_eq!(ask(&Cred::root(), QuotaAsk::Verify).unwrap().differed, []);
}

#[test]
fn what_was_counted_wrong_is_found_told_and_set_right() {
    let mut rig = Rig::new();
    rig.chmod(R, 0o777);
    create(&rig, 7, "f");
    // As if somebody had written it to the table.
    let mut txn = store::Txn::new();
    txn.put(store::usage::usage_key(id(QuotaType::User, 7)), [&[1][..], &[9; 16]].concat());
    let lsn = rig.mdt.db.submit(txn).unwrap();
    world::block_on(rig.mdt.db.durable(lsn)).unwrap();
    let s = crate::check::check(&rig.mdt.db).unwrap();
    assert_eq!(s.findings.len(), 1, "{:?}", s.findings);
    assert!(s.findings[0].what.contains("usr 7"), "{:?}", s.findings);
    rig.crash(2);
    assert_ne!(of_user(&rig, 7), (1, 0));
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    let found = rig.root(Quotactl { ask: QuotaAsk::Verify }).unwrap().differed;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].2, Usage { inodes: 1, blocks: 0 });
    assert_eq!(of_user(&rig, 7), (1, 0));
    rig.assert_clean();
}

#[test]
fn a_table_that_an_older_program_wrote_is_counted_at_the_start_and_osts_are_told_of_owners() {
    let mut rig = Rig::new();
    rig.chmod(R, 0o777);
    create(&rig, 7, "f");
    let striped = rig.create_striped(R, "s", 2);
    let mut txn = store::Txn::new();
    for (k, _) in rig.mdt.db.scan(b"Q", b"R", 100).unwrap() {
        txn.delete(k);
    }
    txn.delete(key::STATE_OWNERS);
    let lsn = rig.mdt.db.submit(txn).unwrap();
    world::block_on(rig.mdt.db.durable(lsn)).unwrap();
    rig.assert_clean();
    rig.crash(3);
    assert_eq!(of_user(&rig, 7), (1, 0));
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    for _ in 0..1000 {
        if owners_told(&rig).len() == 2 {
            break;
        }
        world::block_on(rig.world.sleep(std::time::Duration::from_millis(10)));
    }
    assert!(owners_told(&rig).iter().all(|o| o.file == striped));
    assert_eq!(owners_told(&rig).len(), 2, "each of its OSTs, once");
    rig.assert_clean();
}

//! Objects are compared with layouts while the file system is used: each kind of damage is found and mended.

use crate::data::{read, write};
use crate::harness::{Cluster, O_RDWR, at, call, user};
use bytes::Bytes;
use client::{Admin, Fs, OpenHandle};
use model::nodemap::Owner;
use model::usage::{QuotaId, QuotaType};
use model::{Fid, LayoutSpec, ObjectId};
use std::sync::Arc;
use store::object::ObjectMeta;
use store::object::location::{ObjectRecord, object_key};
use store::{Db, Txn};

async fn create(fs: &Arc<Fs>, name: &str) -> (Arc<OpenHandle>, ObjectId) {
    let spec = LayoutSpec { stripe_count: 1, osts: vec![0], ..LayoutSpec::default() };
    let made = fs.clone().create(call(), fs.root(), name.into(), 0o644, O_RDWR, Some(spec)).await;
    let file = Arc::new(made.unwrap().1);
    write(fs, &file, 0, vec![5; 100_000]).await;
    fs.clone().fsync(call(), file.fid).await.unwrap();
    let l = Admin(fs).getlayout(call(), file.fid).await.unwrap().unwrap();
    let object = l.objects().next().unwrap();
    assert_eq!(object.ost, 0);
    (file, object.id)
}

pub fn changed(db: &Arc<Db>, id: ObjectId, f: impl FnOnce(&mut ObjectRecord)) -> (Vec<u8>, Vec<u8>) {
    let k = object_key(id);
    let mut r = ObjectRecord::decode(id, &db.get(&k).unwrap().unwrap()).unwrap();
    f(&mut r);
    (k, r.encode())
}

pub fn field(c: &Cluster, name: &str) -> String {
    let text = c.mdt().get_params("mdd.*.lfsck_layout").pop().unwrap().1;
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_string()
}

pub async fn checked(c: &Cluster, order: &str) {
    c.set_mdt_param("mdd.*.lfsck", order).await;
    c.until("it is over", || async { field(c, "status") == "completed" || field(c, "status") == "partial" })
        .await;
    let problems = c.mdt().get_params("mdd.*.lfsck").pop().unwrap().1;
    assert_eq!(field(c, "status"), "completed", "{problems}");
}

#[test]
fn damage_of_objects_is_found_and_mended_while_they_are_used() {
    let c = Cluster::start(2);
    c.run(async {
        let fs = c.mount().await;
        let (good, _) = create(&fs, "good").await;
        let (labelled, wrong_label) = create(&fs, "labelled").await;
        let (owned, wrong_owner) = create(&fs, "owned").await;
        let (gone, destroyed) = create(&fs, "gone").await;
        checked(&c, "start layout orphan create_ostobj").await;
        assert_eq!(field(&c, "found"), "0");

        let nobody = Fid::new(model::fid::SEQ_NORMAL, 0x1fff0, 0);
        let orphan = |component| ObjectId { origin: nobody, component, stripe: 0 };
        c.harm_ost(0, |db, objects| async move {
            let owner = Owner::new(7, 8, 0);
            let meta = ObjectMeta {
                file: nobody,
                owner,
                owner_as_of: None,
                time: None,
                data_version: None,
                label: None,
            };
            objects.destroy(vec![destroyed], Box::new(|_, _, _| {})).await.unwrap();
            let bytes = Bytes::from(vec![9; 70_000]);
            objects.write(orphan(1), Some(0), bytes, meta.clone(), Box::new(|_, _, _| {})).await.unwrap();
            let named = ObjectMeta { owner_as_of: Some(at(1)), data_version: Some(0), ..meta };
            objects.set_owner(orphan(2), named, Box::new(|_, _, _| {})).await.unwrap();
            let mut txn = Txn::new();
            let (k, v) = changed(&db, wrong_label, |r| r.file = nobody);
            txn.put(k, v);
            let (k, v) = changed(&db, wrong_owner, |r| r.owner = Owner::new(77, 0, 0));
            txn.put(k, v);
            let key = |id| store::usage::usage_key(QuotaId { of: QuotaType::User, id });
            let of_root = db.get(&key(0)).unwrap().unwrap();
            txn.put(key(99), of_root);
            txn
        })
        .await;

        write(&fs, &good, 0, vec![6; 100]).await;
        checked(&c, "start layout dryrun").await;
        for kind in
            ["unmatched_object", "inconsistent_owner", "orphan_object", "empty_orphan", "dangling_object"]
        {
            assert_eq!(field(&c, &format!("found_{kind}")), "1", "{kind}");
            assert_eq!(field(&c, &format!("repaired_{kind}")), "0", "{kind}");
        }
        checked(&c, "start layout orphan create_ostobj").await;
        for kind in
            ["unmatched_object", "inconsistent_owner", "orphan_object", "empty_orphan", "dangling_object"]
        {
            assert_eq!(field(&c, &format!("repaired_{kind}")), "1", "{kind}");
        }
        assert_ne!(field(&c, "repaired_ost_usage"), "0");
        assert_eq!(field(&c, "left"), "0");

        // What OSTs are to be told reaches them a little later.
        c.until("all is well", || async {
            c.set_mdt_param("mdd.*.lfsck", "start layout").await;
            c.until("it is over", || async { field(&c, "status") == "completed" }).await;
            field(&c, "found") == "0"
        })
        .await;
        for f in [&labelled, &owned] {
            assert_eq!(read(&fs, f, 0, 1 << 20).await, vec![5; 100_000]);
        }
        assert_eq!(fs.clone().getattr(call(), gone.fid).await.unwrap().size, 0, "its data is lost");
        write(&fs, &gone, 0, vec![4; 10]).await;
        assert_eq!(read(&fs, &gone, 0, 100).await, vec![4; 10]);
        let seen = fs.clone().lookup(user(5), Fid::LOST_FOUND, format!("{nobody}-O-0").into()).await;
        assert_eq!(seen.err(), Some(model::Errno::EACCES), "root alone looks into it");
        let found = fs.clone().lookup(call(), Fid::LOST_FOUND, format!("{nobody}-O-0").into()).await.unwrap();
        assert_eq!((found.uid, found.gid), (7, 8));
        let file = Arc::new(fs.clone().open(call(), found.fid, O_RDWR).await.unwrap());
        assert_eq!(read(&fs, &file, 0, 1 << 20).await, vec![9; 70_000]);
        let ost = c.ost_params("obdfilter.*.lfsck_layout");
        assert!(ost.iter().all(|(_, v)| v.contains("status: completed")), "{ost:?}");
    });
}

#[test]
fn an_ost_that_is_away_is_left_out_and_said() {
    let c = Cluster::start(2);
    c.run(async {
        let _fs = c.mount().await;
        c.set_mdt_param("osp.*OST0001*.active", "0").await;
        c.set_mdt_param("mdd.*.lfsck", "start layout").await;
        c.until("it is over", || async { field(&c, "status") == "partial" }).await;
        assert_eq!((field(&c, "flags"), field(&c, "success_count")), ("incomplete".into(), "0".into()));
        c.set_mdt_param("osp.*OST0001*.active", "1").await;
        checked(&c, "start layout").await;
    });
}

//! Layouts: inheritance, what users ask for, objects and their reverse index.

use super::*;
use crate::schema::{Inode, key};
use ::model::LayoutSpec;
use ::model::param::testing::every_declaration_holds;
use wire::msg::getxattr::{DEFAULT_LAYOUT, Getxattr};
use wire::msg::setlayout::Setlayout;

const R: Fid = Fid::ROOT;

fn spec(count: i32, size: u64) -> LayoutSpec {
    LayoutSpec { stripe_count: count, stripe_size: size, ..LayoutSpec::default() }
}

fn shape(e: &Entry) -> (usize, u32) {
    let c = e.layout.as_ref().unwrap().shown();
    (c.objects.len(), c.stripe_size)
}

/// Of a file whose data lies with its inode.
const SMALL: (usize, u32) = (0, 65536);

#[test]
fn defaults_are_inherited_from_the_directory_and_the_root() {
    let rig = Rig::new();
    let file = |dir, name: &str| {
        shape(
            &rig.lookup(dir, name)
                .or_else(|_| rig.create_as(&Cred::root(), dir, name, 0o644).map(|r| r.entry))
                .unwrap(),
        )
    };
    assert_eq!(file(R, "builtin"), SMALL);
    rig.root(Setlayout { fid: R, spec: Some(spec(2, 0)) }).unwrap();
    assert_eq!(file(R, "root"), (2, 4 << 20), "at once, for the whole file system");
    let d = rig.mkdir(R, "d");
    assert_eq!(file(d, "below"), (2, 4 << 20));
    let own = Getxattr { fid: d, name: DEFAULT_LAYOUT.to_vec() };
    assert_eq!(rig.root(own.clone()).unwrap_err(), Errno::ENODATA, "the root's default is not copied");
    rig.root(Setlayout { fid: d, spec: Some(spec(3, 65536)) }).unwrap();
    let got: LayoutSpec = postcard::from_bytes(&rig.root(own).unwrap().value).unwrap();
    assert_eq!(got, spec(3, 65536));
    assert_eq!(file(d, "three"), (3, 65536));
    let sub = rig.mkdir(d, "sub");
    assert_eq!(file(sub, "copied"), (3, 65536));
    let m = Create { layout: Some(spec(-1, 0)), ..create_msg(sub, "all", rig.fid(), 0o644) };
    assert_eq!(shape(&rig.root(m).unwrap().entry), (4, 65536));
    rig.root(Setlayout { fid: d, spec: None }).unwrap();
    assert_eq!(file(d, "again"), (2, 4 << 20));
    assert_eq!(rig.assert_clean().objects, 2 + 2 + 3 + 3 + 4 + 2);
}

#[test]
fn the_root_default_survives_a_restart() {
    let mut rig = Rig::new();
    rig.root(Setlayout { fid: R, spec: Some(spec(4, 65536)) }).unwrap();
    rig.crash(1);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    let e = rig.create_as(&Cred::root(), R, "f", 0o644).unwrap().entry;
    assert_eq!(shape(&e), (4, 65536));
}

#[test]
fn a_file_gets_its_objects_once() {
    let rig = Rig::new();
    let small = rig.create(R, "small");
    rig.write(small, 0, b"x").unwrap();
    for f in [small, rig.create_striped(R, "f", 1)] {
        assert_eq!(rig.root(Setlayout { fid: f, spec: Some(spec(2, 0)) }).unwrap_err(), Errno::EEXIST);
    }
    let bare = |name: &str, layout| {
        let m = Create { no_objects: true, layout, ..create_msg(R, name, rig.fid(), 0o644) };
        rig.root(m).unwrap().entry
    };
    let g = bare("g", None);
    assert_eq!(g.layout, None);
    let e = rig.root(Setlayout { fid: g.attr.fid, spec: Some(spec(2, 65536)) }).unwrap();
    assert_eq!(shape(&e), (2, 65536));
    let h = bare("h", Some(spec(3, 65536))).attr.fid;
    rig.open(h, 0);
    assert_eq!(rig.lookup(R, "h").unwrap().layout, None, "reading makes no objects");
    rig.open(h, 1);
    assert_eq!(shape(&rig.lookup(R, "h").unwrap()), (3, 65536));
    let i = bare("i", None).attr.fid;
    let e = rig.setattr(&Cred::root(), i, SetAttr { size: Some(5), ..SetAttr::default() }).unwrap();
    assert_eq!((shape(&e), e.attr.size), (SMALL, 5), "nothing was said of objects");
    assert_eq!(rig.assert_clean().objects, 1 + 2 + 3);
}

#[test]
fn impossible_settings_are_refused() {
    let rig = Rig::new();
    let (f, d) = (rig.create(R, "f"), rig.mkdir(R, "d"));
    for bad in [
        spec(1, 65537),
        spec(-2, 0),
        LayoutSpec { stripe_start: 9, ..spec(1, 0) },
        LayoutSpec { osts: vec![1, 9], ..LayoutSpec::default() },
        LayoutSpec { osts: vec![1, 1], ..LayoutSpec::default() },
        LayoutSpec { pool: "none".into(), ..spec(1, 0) },
    ] {
        assert_eq!(
            rig.root(Setlayout { fid: d, spec: Some(bad.clone()) }).unwrap_err(),
            Errno::EINVAL,
            "{bad:?}"
        );
        let m = Create { layout: Some(bad), ..create_msg(R, "x", rig.fid(), 0o644) };
        assert_eq!(rig.root(m).unwrap_err(), Errno::EINVAL);
    }
    rig.chown(d, 5, 5);
    let m = Setlayout { fid: d, spec: Some(spec(1, 0)) };
    assert_eq!(rig.call(A, &user(6), m.clone()).unwrap_err(), Errno::EPERM);
    rig.call(A, &user(5), m).unwrap();
    assert_eq!(rig.root(Setlayout { fid: f, spec: None }).unwrap_err(), Errno::EINVAL);
    for i in 0..4 {
        rig.mdt.set_ost_enabled(i, false);
    }
    let m = Create { layout: Some(spec(1, 0)), ..create_msg(R, "y", rig.fid(), 0o644) };
    assert_eq!(rig.root(m).unwrap_err(), Errno::ENOSPC);
    rig.create(R, "small files need no OST");
    rig.mkdir(R, "directories need none");
    rig.assert_clean();
}

#[test]
fn every_parameter_begins_with_its_default_and_keeps_its_bounds() {
    let rig = Rig::new();
    // The rig set it before.
    rig.mdt.params("mdt.*.ack").set("exec").unwrap();
    every_declaration_holds(&rig.mdt.params("*.*.*"));
    // Of those at the address from which this came.
    rig.root(msg::statfs::Statfs { flags: 0 }).unwrap();
    every_declaration_holds(&rig.mdt.params("mdt.*.exports.*.*"));
    // The order of requests, by Lustre's names.
    every_declaration_holds(&rig.mdt.params("mds.*.*.nrs_*"));
    let set = |name: &str, value: &str| rig.mdt.params(name).set(value);
    let rule = "mds.MDS.mdt.nrs_tbf_rule";
    assert_eq!(set(rule, "start slow uid={500}&opcode={mds_create mds_batch} rate=7"), Ok(()));
    assert_eq!(
        (set(rule, "stop other"), set(rule, "start slow uid={501} rate=7")),
        (Err(Errno::EINVAL), Err(Errno::EEXIST))
    );
    let shown = "regular_requests:\nCPT 0:\nslow uid={500}&opcode={mds_create mds_batch} 7, ref 0";
    assert_eq!(rig.mdt.get_params(rule)[0].1, shown);
    let stripes = "lod.*.stripecount";
    assert_eq!((set(stripes, "-1"), set(stripes, " 2000 ")), (Ok(()), Ok(())));
    assert_eq!((set(stripes, "0"), set(stripes, "2001")), (Err(Errno::ERANGE), Err(Errno::ERANGE)));
    assert_eq!(set(stripes, "many"), Err(Errno::EINVAL));
    assert_eq!(rig.mdt.get_params(stripes)[0].1, "2000");
    assert_eq!(
        (set("lod.*.stripesize", "65537"), set("mdt.*.dom_stripesize", "2M")),
        (Err(Errno::EINVAL), Err(Errno::ERANGE))
    );
    assert_eq!(
        (set("mdt.*.root_squash", "99"), set("mdt.*.nosquash_nids", "x")),
        (Err(Errno::EINVAL), Err(Errno::EINVAL))
    );
    assert_eq!((set("mdt.*.root_squash", "99:99"), set("mdt.*.ack", "soon")), (Ok(()), Err(Errno::EINVAL)));
    assert_eq!(rig.mdt.get_params("mdt.*.root_squash")[0].1, "99:99");
}

#[test]
fn parameters_are_shown_and_set() {
    let rig = Rig::new();
    let get = |p: &str| rig.root(msg::param::GetParam { pattern: p.into() }).unwrap().values;
    let set = |name: &str, value: &str| {
        rig.root(msg::param::SetParam {
            name: name.into(),
            value: value.into(),
            permanent: false,
            delete: false,
        })
    };
    assert_eq!(get("lod.*.stripesize"), [("lod.test-MDT0000-mdtlov.stripesize".into(), "4194304".into())]);
    assert_eq!(get("mdt.*.num_exports")[0].1, "2");
    assert_eq!(get("mdt.*.recovery_status")[0].1, "status: INACTIVE\n");
    set("lod.*.stripesize", "1M").unwrap();
    set("lod.*.stripecount", "2").unwrap();
    let file = |name: &str| rig.create_as(&Cred::root(), R, name, 0o644).unwrap().entry;
    set("mdt.*.dom_stripesize", "128K").unwrap();
    assert_eq!(shape(&file("small")), (0, 131_072));
    assert_eq!(set("mdt.*.dom_stripesize", "100").unwrap_err(), Errno::EINVAL);
    set("mdt.*.dom_stripesize", "0").unwrap();
    assert_eq!(shape(&file("f")), (2, 1 << 20));
    assert_eq!(set("lod.*.stripesize", "7").unwrap_err(), Errno::ERANGE);
    assert_eq!(set("mdt.*.num_exports", "7").unwrap_err(), Errno::EACCES);
    assert_eq!(set("none.*.x", "7").unwrap_err(), Errno::ENOENT);
    assert!(get("mdt.*.md_stats")[0].1.contains("create "));
    set("mdt.*.md_stats", "clear").unwrap();
    set("osp.test-OST0001-osc-MDT0000.active", "0").unwrap();
    assert_eq!(get("lod.*.activeobd")[0].1, "3");
    let f = rig.root(msg::statfs::Statfs { flags: 0 }).unwrap();
    assert!(f.total > 0 && f.files > f.files_free);
}

#[test]
fn a_move_that_comes_to_nothing_leaves_the_data_and_a_newer_layout() {
    let mut rig = Rig::new();
    let fid = rig.create_striped(R, "f", 2);
    let layout = |rig: &Rig| rig.root(msg::layout::Layout { fid }).unwrap().layout.unwrap();
    let old = layout(&rig);
    let moved = |rig: &Rig| {
        let spec = LayoutSpec { stripe_count: 1, ..LayoutSpec::default() };
        rig.root(migrate_msg(fid, spec)).map(|e| e.layout)
    };
    // There are no object servers behind these OSTs.
    assert_eq!(moved(&rig), Err(Errno::EIO));
    let kept = layout(&rig);
    assert!(kept.objects().eq(old.objects()), "the data is where it was");
    assert_eq!(kept.generation, old.generation + 3, "its objects may be fenced, by each of three attempts");
    let s = rig.assert_clean();
    assert_eq!((s.objects, s.outbox), (2, 3), "what was tried is to be destroyed");
    rig.crash(4);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    assert_eq!(layout(&rig), kept);
    rig.assert_clean();
}

#[test]
fn a_move_that_a_crash_ended_is_settled_for_who_asks() {
    let mut rig = Rig::new();
    let fid = rig.create_striped(R, "f", 2);
    let k = key::inode(fid);
    let mut i = Inode::decode(fid, &rig.mdt.db.get(&k).unwrap().unwrap()).unwrap();
    let target =
        ::model::Layout::striped((fid, 2), i.layout.as_ref().unwrap().generation + 1, 65536, "", &[1]);
    (i.growth.attempts, i.growth.target) = (1, Some(target.clone()));
    let mut txn = store::Txn::new();
    txn.put(k, i.encode());
    let o = target.objects().next().unwrap();
    txn.put(key::reverse(o.ost, o.id), crate::schema::value::encode_owner(fid));
    let lsn = rig.mdt.db.submit(txn).unwrap();
    block_on(rig.mdt.db.durable(lsn)).unwrap();
    rig.crash(5);
    rig.reclaim(A, &[]);
    rig.reclaim(B, &[]);
    let kept = rig.root(msg::layout::Layout { fid }).unwrap().layout.unwrap();
    assert_eq!((kept.generation, kept.stripe_count()), (target.generation, 2));
    assert_eq!(rig.assert_clean().outbox, 1);
}

fn migrate_msg(fid: Fid, spec: LayoutSpec) -> msg::migrate::Migrate {
    msg::migrate::Migrate { fid, spec, ticket: 7, pace: msg::migrate::Pace::default() }
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let rig = Rig::new();
    let f = rig.create_striped(R, "f", 1);
    let d = rig.mkdir(R, "d");
    let spec = LayoutSpec { stripe_count: 2, ..LayoutSpec::default() };
    let try_as =
        |cred: &Cred, fid, spec: &LayoutSpec| rig.call(A, cred, migrate_msg(fid, spec.clone())).unwrap_err();
    let root = Cred::root();
    assert_eq!(try_as(&user(7), f, &spec), Errno::EPERM);
    assert_eq!(try_as(&root, d, &spec), Errno::EINVAL);
    assert_eq!(try_as(&root, Fid::new(9, 9, 0), &spec), Errno::ESTALE);
    let mut on_mdt = spec.clone();
    on_mdt.set_mdt_bytes(65537);
    assert_eq!(try_as(&root, f, &on_mdt), Errno::EINVAL, "no room is like that");
    assert_eq!(try_as(&root, f, &LayoutSpec { osts: vec![99], ..spec }), Errno::EINVAL);
    rig.assert_clean();
}

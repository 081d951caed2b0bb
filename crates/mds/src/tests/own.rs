//! Directories that are one client's alone, and what it tells afterwards.

use super::*;
use ::model::Timestamp;
use wire::msg::batch::{Batch, BatchOp, BatchReply};
use wire::msg::lookup::{Grant, Lookup, bits};
use wire::msg::notify::{LeaseItem, Notice};
use wire::msg::own::{Own, OwnReply};
use wire::msg::unlink::Unlink;

const R: Fid = Fid::ROOT;

fn own(rig: &Rig, dir: Fid, children: bool) -> OwnReply {
    rig.root(Own { dir, cookie: 0, max_bytes: 1 << 16, children, knows_limits: true.into() }).unwrap()
}

fn alone(g: Option<Grant>, bits: u8) -> bool {
    g.is_some_and(|g| g.exclusive && g.bits == bits)
}

fn op<M: Message>(m: &M, bulk: usize) -> BatchOp {
    BatchOp { bulk: bulk as u32, ..BatchOp::plain(M::OP as u16, postcard::to_stdvec(m).unwrap()) }
}

fn told(rig: &Rig, ops: Vec<BatchOp>, bulk: &[u8]) -> BatchReply {
    let batch = Batch { ops, owned: true, creds: vec![Cred::root()] };
    rig.call_bulk(&batch, Bytes::copy_from_slice(bulk)).unwrap().0
}

#[test]
fn an_owner_has_the_directory_its_names_and_what_is_in_it() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let f = rig.create(d, "f");
    let r = own(&rig, d, true);
    assert!(alone(r.dir.grant, bits::DIRECTORY) && r.end);
    assert_eq!(r.entries.iter().map(|e| e.fid).collect::<Vec<_>>(), [f]);
    assert!(alone(r.entries[0].entry.as_ref().unwrap().grant, bits::UPDATE));
    assert!(r.file_layout.is_some_and(|l| l.mdt_component().is_some()));
    let names = own(&rig, d, false);
    assert!(names.entries[0].entry.is_none(), "only what was asked for");
    // It keeps what it has when it is shown the directory once more.
    let again = rig.root(Lookup { parent: d, name: "f".into(), data: 0 }).unwrap();
    assert!(alone(again.dir_grant, bits::LOOKUP) && alone(again.entry.unwrap().grant, bits::UPDATE));
    rig.unlink(d, "f").unwrap();
    rig.rmdir(R, "d").unwrap();
    assert_eq!(
        rig.root(Own { dir: d, cookie: 0, max_bytes: 0, children: false, knows_limits: true.into() }),
        Err(Errno::ENOENT)
    );
    assert!(!rig.mdt.shared.leases.is_owner(A), "of what is gone it has nothing");
}

#[test]
fn a_directory_whose_files_get_objects_says_so() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let layout = Some(LayoutSpec { stripe_count: 2, ..LayoutSpec::default() });
    rig.root(msg::setlayout::Setlayout { fid: d, spec: layout }).unwrap();
    assert_eq!(own(&rig, d, false).file_layout, None);
}

#[test]
fn what_an_owner_tells_is_done_in_order_at_its_times_and_its_alone() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    own(&rig, d, false);
    let (sub, f, gone) = (rig.fid(), rig.fid(), rig.fid());
    let at = Timestamp::from_nanos(rig.world.wall().as_nanos() - 5_000_000);
    let mkdir = msg::mkdir::Mkdir { parent: d, name: b"s".to_vec(), fid: sub, mode: 0o755, umask: 0 };
    let create = |fid, parent, name: &str| Create { open: None, ..create_msg(parent, name, fid, 0o644) };
    let write = write_msg(f, Some(0));
    let ops = vec![
        BatchOp { time: at, ..op(&mkdir, 0) },
        op(&create(f, sub, "f"), 0),
        op(&write, 5),
        op(&create(gone, sub, "g"), 0),
        op(&Unlink { parent: sub, name: b"never".to_vec() }, 0),
        op(&Unlink { parent: sub, name: b"g".to_vec() }, 0),
    ];
    let r = told(&rig, ops, b"hello");
    let status: Vec<u16> = r.results.iter().map(|(s, _)| *s).collect();
    assert_eq!(status, [0, 0, 0, 0, Errno::ENOENT.0 as u16, 0], "one that fails does not stop the others");
    assert!(r.results.iter().all(|(_, body)| body.is_empty()));
    let mut grants = r.grants.clone();
    grants.sort_by_key(|g| g.0);
    let mut want = vec![(sub, bits::DIRECTORY), (f, bits::UPDATE)];
    want.sort();
    assert_eq!(grants.iter().map(|(fid, g)| (*fid, g.bits)).collect::<Vec<_>>(), want);
    assert!(grants.iter().all(|(_, g)| g.exclusive));
    assert_eq!(rig.attr(sub).btime, at);
    assert_eq!((rig.attr(f).size, rig.names(sub)), (5, vec!["f".to_string()]));
    rig.assert_clean();
}

#[test]
fn data_that_does_not_add_up_is_refused() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let batch = |n| Batch { ops: vec![op(&write_msg(f, Some(0)), n)], owned: true, creds: Vec::new() };
    for n in [4, 6] {
        assert_eq!(rig.call_bulk(&batch(n), Bytes::from_static(b"hello")).unwrap_err(), Errno::EPROTO);
    }
    rig.call_bulk(&batch(5), Bytes::from_static(b"hello")).unwrap();
    assert_eq!(rig.attr(f).size, 5);
}

#[test]
fn a_look_wants_the_lease_down_and_a_change_wants_it_gone() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let seq = own(&rig, d, false).dir.grant.unwrap().seq;
    let leases = &rig.mdt.shared.leases;
    assert!(leases.is_owner(A) && leases.promised_bytes(None) > 0);
    rig.mdt
        .notice(A, Notice::Cancelled { items: vec![LeaseItem { fid: d, bits: bits::ALL, seq, look: true }] });
    assert!(!leases.is_owner(A), "it is shared now");
    let total = leases.total();
    assert!(
        rig.call(B, &Cred::root(), Lookup { parent: d, name: "f".into(), data: 0 })
            .unwrap()
            .dir_grant
            .is_some()
    );
    assert_eq!(leases.total(), total + 1, "next to A's");
    // A's session is not there in this rig: what it owns is in nobody's way, neither for looks nor for
    // changes.
    own(&rig, d, false);
    assert!(
        rig.call(B, &Cred::root(), Lookup { parent: d, name: "f".into(), data: 0 })
            .unwrap()
            .dir_grant
            .is_some()
    );
    assert!(!leases.is_owner(A));
}

#[test]
fn what_was_owned_is_owned_again_after_a_restart() {
    let mut rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let g = own(&rig, d, false).dir.grant.unwrap();
    rig.crash(1);
    assert!(!rig.mdt.shared.leases.is_owner(A));
    rig.connect(A);
    let owned = vec![LeaseItem { fid: d, bits: bits::ALL, seq: g.seq, look: false }];
    let m = msg::reclaim::Reclaim { owned: owned.clone(), last: true, ..Default::default() };
    rig.root(m).unwrap();
    assert!(rig.mdt.shared.leases.is_owner(A));
    rig.mdt.notice(A, Notice::Cancelled { items: owned });
    assert!(!rig.mdt.shared.leases.is_owner(A));
}

#[test]
fn a_file_whose_data_is_on_its_way_is_nobodys_alone_until_it_is_there() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let f = rig.create(d, "f");
    let growing = &rig.mdt.shared.growing;
    let of_f = || own(&rig, d, true).entries[0].entry.as_ref().unwrap().grant;
    crate::growing::Freeze::new(f).0.begin(growing);
    assert!(!of_f().is_some_and(|g| g.exclusive), "what it wrote by itself would wait for the move");
    growing.end(f);
    assert!(alone(of_f(), bits::UPDATE));
}

//! What answers grant, and what a change does to it.

use super::*;
use wire::msg::lookup::{Grant, Lookup, LookupReply, bits};
use wire::msg::readdir::Readdir;

const R: Fid = Fid::ROOT;

fn look(rig: &Rig, client: ClientId, dir: Fid, name: &str) -> LookupReply {
    rig.call(client, &Cred::root(), Lookup { parent: dir, name: name.into(), data: 0 }).unwrap()
}

fn seq(g: Option<Grant>, bits: u8) -> u64 {
    let g = g.expect("a lease is granted");
    assert_eq!(g.bits, bits);
    g.seq
}

#[test]
fn answers_grant_what_they_show() {
    let rig = Rig::new();
    let d = rig.mkdir_as(&Cred::root(), R, "d", 0o755).unwrap();
    let made = seq(d.grant, bits::DIRECTORY);
    assert_eq!(made >> 40, 1, "the epoch comes first");
    assert_eq!(seq(d.dir_grant, bits::LOOKUP), made, "one number an answer");
    let d = d.attr.fid;
    let absent = look(&rig, B, d, "f");
    assert!(absent.entry.is_none() && seq(absent.dir_grant, bits::LOOKUP) > made);
    let f = rig.create(d, "f");
    let there = look(&rig, B, d, "f");
    let e = there.entry.unwrap();
    assert_eq!((e.attr.fid, e.parent, e.plain), (f, Fid::NONE, true));
    assert_eq!(seq(e.grant, bits::INODE), seq(there.dir_grant, bits::LOOKUP));
    let page = rig
        .root(Readdir { fid: R, cookie: 0, max_bytes: 4096, plus: true, grows_into: Trailing(None) })
        .unwrap();
    seq(page.grant, bits::LOOKUP);
    let e = page.entries[0].entry.clone().unwrap();
    assert_eq!((seq(e.grant, bits::UPDATE) > 0, e.parent), (true, R));
    // What was only counted for an operation that failed is not granted.
    let before = rig.mdt.shared.leases.total();
    assert!(rig.mkdir_as(&Cred::root(), d, "f", 0o755).is_err());
    assert_eq!(rig.mdt.shared.leases.total(), before);
}

#[test]
fn removals_say_what_they_changed_and_leave_no_lease_on_what_is_gone() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    let f = rig.create(d, "f");
    rig.link(f, R, "g").unwrap();
    let unlink = |parent, name: &str| rig.root(msg::unlink::Unlink { parent, name: name.into() }).unwrap();
    let c = unlink(d, "f");
    let links = |fid| c.entries.iter().find(|e| e.attr.fid == fid).map(|e| e.attr.nlink);
    assert_eq!((links(f), links(d), c.gone.len()), (Some(1), Some(2), 0));
    let h = rig.open(f, 0);
    rig.close(f, h);
    let c = unlink(R, "g");
    assert_eq!(c.gone, [f]);
    let held = rig.mdt.shared.leases.total();
    let back: Vec<_> = [R, d, f].into_iter().map(|fid| item(fid, u64::MAX)).collect();
    rig.mdt.notice(A, wire::msg::notify::Notice::Cancelled { items: back });
    assert_eq!(rig.mdt.shared.leases.total(), held - 2, "{f} had none any more");
}

fn item(fid: Fid, seq: u64) -> wire::msg::notify::LeaseItem {
    wire::msg::notify::LeaseItem { fid, bits: bits::ALL, seq, look: false }
}

#[test]
fn a_change_takes_leases_of_others_and_leaves_its_own() {
    let rig = Rig::new();
    let d = rig.mkdir(R, "d");
    rig.attr(d);
    look(&rig, B, R, "d");
    let leases = &rig.mdt.shared.leases;
    let both = leases.total();
    // B has no session, so that nobody is there who could use what it holds: the change does not wait for it.
    rig.chmod(d, 0o700);
    assert_eq!(leases.total(), both - 2, "everything of B's");
    look(&rig, B, R, "d");
    assert_eq!(leases.total(), both);
    leases.client_gone(B, true);
    assert_eq!(leases.total(), both - 2);
    block_on(rig.mdt.clone().departed(B, Departure::Evicted));
    assert_eq!(look(&rig, B, R, "d").dir_grant, None, "not for who is not known");
    assert_eq!(leases.total(), both - 2);
}

#[test]
fn a_file_open_under_a_lease_lives_on_once_that_is_said() {
    let rig = Rig::new();
    let f = rig.create(R, "f");
    let open = |handle| {
        let open = OpenSpec { handle, flags: 0, lease: true };
        rig.root(msg::open::Open { fid: f, open, data: 0 }).unwrap()
    };
    assert!(open(70).grant.is_some());
    assert_eq!(rig.mdt.core.read().opens.count(f), 0, "the lease is enough");
    let opens = vec![msg::reclaim::OpenRecord { fid: f, handle: 70, flags: 0 }];
    for _ in 0..2 {
        rig.mdt.notice(A, wire::msg::notify::Notice::Opened { opens: opens.clone() });
    }
    assert_eq!(rig.mdt.core.read().opens.count(f), 1);
    let nowhere = msg::reclaim::OpenRecord { fid: Fid::new(9, 9, 0), handle: 71, flags: 0 };
    rig.mdt.notice(A, wire::msg::notify::Notice::Opened { opens: vec![nowhere] });
    assert_eq!(rig.mdt.core.read().opens.total(), 1);
    rig.unlink(R, "f").unwrap();
    assert_eq!(rig.attr(f).nlink, 0);
    rig.close(f, 70);
    assert!(rig.mdt.db.get(&crate::schema::key::inode(f)).unwrap().is_none());
    rig.assert_clean();
}

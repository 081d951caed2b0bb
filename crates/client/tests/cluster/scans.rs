//! Scans of inodes by one mount while another works.

use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, call, user};
use client::Admin;
use model::{Errno, Fid, LayoutSpec};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::msg::scan::{Condition, Found, Number, ROOT_PLACE, ScanReply, Test};

fn path(r: &ScanReply, place: u32, name: &[u8]) -> String {
    let name = String::from_utf8(name.to_vec()).unwrap();
    match r.dirs.get(place as usize) {
        Some(d) if place != ROOT_PLACE => format!("{}/{name}", path(r, d.parent, &d.name)),
        _ => name,
    }
}

fn paths(r: &ScanReply) -> BTreeSet<String> {
    let of = |f: &Found| f.names.iter().map(|n| path(r, n.parent, &n.name)).collect::<Vec<_>>();
    r.files.iter().flat_map(of).collect()
}

fn all(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|n| n.to_string()).collect()
}

#[test]
fn a_scan_sees_what_its_own_and_other_mounts_have_done_and_not_told() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let d = a.clone().mkdir(call(), root, b"d".to_vec(), 0o700).await.unwrap().fid;
        for name in ["f", "g"] {
            let flags = O_RDWR | O_CREAT | O_EXCL;
            let (_, f) = a.clone().create(call(), d, name.into(), 0o640, flags, None).await.unwrap();
            crate::data::write(&a, &Arc::new(f), 0, vec![7; 3000]).await;
        }
        assert!(a.pending_state().0 >= 4, "the mount executed them");
        let tests = vec![Test { negated: false, condition: Condition::Within(Number::Size, 2000, 4000) }];
        let seen = Admin(&b).scan(call(), root, None, tests.clone()).await.unwrap();
        assert_eq!(paths(&seen), all(&["d/f", "d/g"]));
        a.clone().unlink(call(), d, b"f".to_vec()).await.unwrap();
        let below = Admin(&a).scan(call(), d, None, tests).await.unwrap();
        assert_eq!(paths(&below), all(&["g"]), "names below the directory that was asked about");
        let others = Admin(&a).scan(user(5), root, None, Vec::new()).await.unwrap();
        assert_eq!(paths(&others), all(&["d"]));
        assert_eq!(others.closed.len(), 1, "it is said that more may be there");
        assert_eq!(Admin(&a).scan(user(5), d, None, Vec::new()).await.err(), Some(Errno::EACCES));
        let spec = Some(LayoutSpec { stripe_count: 1, ..LayoutSpec::default() });
        let flags = O_RDWR | O_CREAT | O_EXCL;
        a.clone().create(call(), root, b"striped".to_vec(), 0o640, flags, spec).await.unwrap();
        let tests =
            vec![Test { negated: false, condition: Condition::Within(Number::Size, 1 << 30, i64::MAX) }];
        let large = Admin(&b).scan(call(), root, None, tests).await.unwrap();
        assert_eq!(paths(&large), all(&["striped"]), "its size is its objects' business");
        assert!(large.files[0].attr.fid != Fid::NONE && large.next.is_none());
    });
}

//! Scans of inodes by one mount while another works.

use crate::cache::number;
use crate::data::{striped, write};
use crate::harness::{Cluster, O_CREAT, O_EXCL, O_RDWR, call, user};
use client::control::{OfObjects, Reply, Request};
use client::{Admin, Fs};
use model::layout::{ComponentSpec, EOF};
use model::{Attr, Errno, Fid, LayoutSpec};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::msg::scan::{Condition, Found, Number, ROOT_PLACE, Scan, ScanReply, Test};

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

#[test]
fn a_completed_scan_knows_what_every_mount_has_written_and_leaves_out_what_does_not_fit() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let completed = async |at: &Arc<Fs>, from: i64, to: i64, after| {
            let within = Condition::Within(Number::Size, from, to);
            let tests = vec![Test { negated: false, condition: within }];
            let scan = Scan { root, after, tests };
            Admin(at).scan_completed(call(), scan, OfObjects::Sizes).await.unwrap()
        };
        for (name, count, bytes) in
            [("one", 1, 3000), ("two", 2, 200_000), ("none", 1, 0), ("small", 0, 5000)]
        {
            let f = striped(&a, name, count).await;
            if bytes > 0 {
                write(&a, &f, bytes - 1, vec![7; 1]).await;
            }
        }
        // In two parts, of which only the first has objects.
        let part =
            |end| ComponentSpec { end, stripe_count: 1, stripe_size: 65536, ..ComponentSpec::default() };
        let mut spec = LayoutSpec::default();
        spec.set_components(&[part(1 << 20), part(EOF)]);
        let flags = O_RDWR | O_CREAT;
        let (_, parts) =
            a.clone().create(call(), root, b"parts".to_vec(), 0o644, flags, Some(spec)).await.unwrap();
        write(&a, &parts, 0, vec![7; 4000]).await;
        for mount in [&a, &b] {
            let found = completed(mount, 1, 10_000, None).await;
            assert_eq!(paths(&found.page), all(&["one", "small", "parts"]));
            assert!(found.left.is_empty() && found.page.next.is_none() && found.page.looked >= 5);
            let sizes: BTreeSet<u64> = found.page.files.iter().map(|f| f.attr.size).collect();
            assert_eq!(sizes, BTreeSet::from([3000, 4000, 5000]));
            assert_eq!(paths(&completed(mount, 200_000, 200_000, None).await.page), all(&["two"]));
            assert_eq!(paths(&completed(mount, 0, 0, None).await.page), all(&["none"]));
        }
        let dirty = number(&a, "osc.*.cur_dirty_bytes");
        assert!(dirty > 0, "nobody had to write anything back");
        let times = completed(&b, 1, i64::MAX, None).await.page;
        for f in &times.files {
            let attr = b.clone().getattr(call(), f.attr.fid).await.unwrap();
            let of = |a: &Attr| (a.size, a.mtime, a.ctime, a.blocks);
            assert_eq!(of(&f.attr), of(&attr), "as if it was asked for by itself");
        }
    });
}

/// Of what a mount made and did not tell yet, and of what another one made, as of each file asked by itself.
#[test]
fn a_page_of_a_directory_has_the_layouts_of_its_files() {
    let c = Cluster::start(2);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let root = a.root();
        let flags = O_RDWR | O_CREAT | O_EXCL;
        for (name, count) in [("one", 1), ("two", 2)] {
            striped(&a, name, count).await;
        }
        let mut spec = LayoutSpec { stripe_count: 2, stripe_size: 131_072, ..LayoutSpec::default() };
        spec.set_mdt_bytes(65_536);
        for n in 0..300 {
            let of = (n % 3 == 0).then(|| spec.clone());
            let name = format!("small{n}").into_bytes();
            a.clone().create(call(), root, name, 0o640, flags, of).await.unwrap();
        }
        a.clone().mkdir(call(), root, b"d".to_vec(), 0o755).await.unwrap();
        for mount in [&a, &b] {
            let ask = async |request| client::admin::answer(mount, call(), root, request).await.unwrap();
            let (mut met, mut cookie) = (0, 0);
            loop {
                let wanted = Request::Listing { cookie, inodes: true, grows_into: true };
                let Reply::Layouts(page) = ask(wanted).await else { panic!("no page of layouts") };
                let page = page.open().unwrap();
                let said = page.grows_into.0.unwrap();
                for (place, d) in (0u32..).zip(&page.entries) {
                    met += 1;
                    let name = Some(d.name.clone().into());
                    let Reply::Stripe(alone) = ask(Request::Getstripe { name }).await else { panic!() };
                    let spec = said.of.iter().find(|(entry, _)| *entry == place).map(|(_, spec)| *spec);
                    let entry = d.entry.as_ref().unwrap();
                    let got = (&entry.layout, spec.map(|s| said.specs[s as usize].clone()));
                    assert_eq!(
                        got,
                        (&alone.layout, alone.grows_into),
                        "{:?}",
                        String::from_utf8_lossy(&d.name)
                    );
                    assert_eq!((d.fid, d.kind, entry.grant), (alone.fid, alone.kind, None));
                }
                if page.end {
                    break;
                }
                cookie = page.entries.last().unwrap().cookie;
            }
            assert_eq!(met, 303);
        }
        let closed = a.clone().mkdir(call(), root, b"closed".to_vec(), 0o744).await.unwrap().fid;
        let wanted = Request::Listing { cookie: 0, inodes: true, grows_into: true };
        let refused = client::admin::answer(&a, user(5), closed, wanted).await.err();
        assert_eq!(refused.map(|e| e.errno), Some(Errno::EACCES.0), "who may not search it");
    });
}

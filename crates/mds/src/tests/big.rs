//! A large directory, listed while it changes.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::batch::{Batch, BatchOp};
use wire::msg::readdir::{Dirent, Readdir};

const FILES: usize = 100_000;

fn batch<M: Message>(rig: &Rig, ops: impl Iterator<Item = M>) {
    let ops: Vec<_> = ops.map(|m| BatchOp::plain(M::OP as u16, postcard::to_stdvec(&m).unwrap())).collect();
    let n = ops.len();
    let r = rig.root(Batch::plain(ops)).unwrap();
    assert_eq!(r.results.iter().filter(|r| r.0 == 0).count(), n);
}

fn page(rig: &Rig, fid: Fid, cookie: u64, max_bytes: u32) -> (Vec<Dirent>, bool) {
    let r = rig.root(Readdir { fid, cookie, max_bytes, plus: false, grows_into: Trailing(None) }).unwrap();
    (r.entries, r.end)
}

#[test]
fn cookies_stay_while_entries_go() {
    let rig = Rig::new();
    let d = rig.mkdir(Fid::ROOT, "d");
    let names: Vec<String> = (0..FILES).map(|i| format!("file-{i}")).collect();
    for part in names.chunks(1000) {
        batch(
            &rig,
            part.iter().map(|n| msg::mknod::Mknod {
                parent: d,
                name: n.as_bytes().to_vec(),
                fid: rig.fid(),
                kind: FileType::Fifo,
                mode: 0o644,
                umask: 0,
                rdev: 0,
            }),
        );
    }
    let (mut seen, mut cookies) = (BTreeSet::new(), BTreeMap::new());
    let (mut cookie, mut removed) = (0, BTreeSet::new());
    let mut pages = 0;
    loop {
        let (entries, end) = page(&rig, d, cookie, 64 << 10);
        for e in &entries {
            assert!(e.cookie > cookie && e.cookie <= i64::MAX as u64, "in order");
            cookie = e.cookie;
            let name = String::from_utf8(e.name.clone()).unwrap();
            assert!(!removed.contains(&name), "{name} was removed before");
            assert!(seen.insert(name.clone()), "{name} twice");
            cookies.insert(name, e.cookie);
        }
        if end {
            break;
        }
        pages += 1;
        // Meanwhile others remove: some that were listed, some that were not.
        let victims: Vec<String> = (0..20).map(|i| names[(pages * 977 + i * 4999) % FILES].clone()).collect();
        for v in victims {
            if removed.insert(v.clone()) {
                rig.unlink(d, &v).unwrap();
            }
        }
    }
    assert!(pages > 20);
    assert!(names.iter().all(|n| seen.contains(n) || removed.contains(n)), "nothing that stayed was missed");
    let (again, _) = page(&rig, d, 0, 1 << 20);
    for e in again {
        assert_eq!(cookies[std::str::from_utf8(&e.name).unwrap()], e.cookie, "cookies are stable");
    }
    assert_eq!(page(&rig, d, i64::MAX as u64, 100), (Vec::new(), true));
    assert_eq!(page(&rig, d, u64::MAX, 100), (Vec::new(), true));
    assert_eq!(page(&rig, d, 0, 0).0.len(), 1, "at least one entry");
    let s = rig.assert_clean();
    assert_eq!(s.names, 1 + (FILES - removed.len()) as u64);
}

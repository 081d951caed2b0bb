//! After the loss of the metadata target's table files come back from what their objects know.

use crate::data::{read, write};
use crate::harness::{Cluster, O_RDWR, call};
use crate::lfsck::{changed, checked, field};
use client::{Admin, Fs};
use model::layout::{ComponentSpec, EOF};
use model::planted::{self, Bug};
use model::{Fid, Layout, LayoutSpec, ObjectId, SetAttr};
use rpc::testing::finds;
use std::sync::Arc;
use store::Txn;

const K: u64 = 1 << 10;

/// A file that is lost.
struct Made {
    fid: Fid,
    bytes: Vec<u8>,
    layout: Layout,
}

fn plain(count: i32, size: u64) -> LayoutSpec {
    LayoutSpec { stripe_count: count, stripe_size: size, ..LayoutSpec::default() }
}

fn three_components() -> LayoutSpec {
    let of = |(end, stripe_count)| ComponentSpec {
        end,
        stripe_count,
        stripe_size: 64 * K,
        ..ComponentSpec::default()
    };
    let mut s = LayoutSpec::default();
    s.set_components(&[of((128 * K, 1)), of((1024 * K, 2)), of((EOF, 3))]);
    s
}

/// With bytes at these places, and the rest a hole.
async fn made(fs: &Arc<Fs>, name: &str, layout: LayoutSpec, runs: &[(u64, usize)], uid: u32) -> Made {
    let made = fs.clone().create(call(), fs.root(), name.into(), 0o640, O_RDWR, Some(layout)).await;
    let file = Arc::new(made.unwrap().1);
    let mut bytes = Vec::new();
    for &(off, len) in runs {
        let part: Vec<u8> = (0..len).map(|i| (i as u64 * 31 + off + 7) as u8).collect();
        bytes.resize(bytes.len().max(off as usize + len), 0);
        bytes[off as usize..][..len].copy_from_slice(&part);
        write(fs, &file, off, part).await;
    }
    let set = SetAttr { uid: Some(uid), gid: Some(uid + 1), ..SetAttr::default() };
    fs.clone().setattr(call(), file.fid, set).await.unwrap();
    fs.clone().fsync(call(), file.fid).await.unwrap();
    let layout = Admin(fs).getlayout(call(), file.fid).await.unwrap().unwrap();
    Made { fid: file.fid, bytes, layout }
}

async fn came_back(fs: &Arc<Fs>, f: &Made, uid: u32) {
    let name = format!("{}-R-0", f.fid);
    let found = fs.clone().lookup(call(), Fid::LOST_FOUND, name.into()).await.unwrap();
    assert_eq!((found.fid, found.uid, found.gid), (f.fid, uid, uid + 1));
    let size = fs.clone().getattr(call(), f.fid).await.unwrap().size;
    assert_eq!(size, f.bytes.len() as u64, "{}", f.fid);
    let file = Arc::new(fs.clone().open(call(), f.fid, O_RDWR).await.unwrap());
    let mut off = 0;
    while off < size {
        let got = read(fs, &file, off, 1 << 20).await;
        assert!(!got.is_empty(), "{} ends at {off}", f.fid);
        assert!(f.bytes[off as usize..].starts_with(&got), "{} differs from {off} on", f.fid);
        off += got.len() as u64;
    }
    let now = Admin(fs).getlayout(call(), f.fid).await.unwrap().unwrap();
    let is_old = |o| f.layout.objects().any(|n| n == o);
    assert!(now.has_objects() && now.objects().all(is_old), "objects are where they were");
    fs.clone().close(file).await.unwrap();
}

async fn destroy(c: &Cluster, id: ObjectId, ost: u16) {
    c.harm_ost(ost, |_, objects| async move {
        objects.destroy(vec![id], Box::new(|_, _, _| {})).await.unwrap();
        Txn::new()
    })
    .await;
}

#[test]
fn files_of_several_layouts_come_back_and_what_contradicts_is_told() {
    lose_and_rebuild();
}

#[test]
#[ignore = "the switch is everybody's: run by the next one, in a process of its own"]
fn planted_rebuilt_from_remains() {
    planted::plant(Some(Bug::RebuiltFromRemains));
    lose_and_rebuild();
}

#[test]
fn a_file_that_is_put_together_from_remains_is_found() {
    finds("rebuild::planted_rebuilt_from_remains", "files that can be put together");
}

fn lose_and_rebuild() {
    let c = Cluster::start(4);
    c.run(async {
        let fs = c.mount().await;
        let mut all = Vec::new();
        all.push(made(&fs, "one", plain(1, 64 * K), &[(0, 300_000)], 11).await);
        all.push(made(&fs, "four", plain(4, 192 * K), &[(0, 2_500_001)], 12).await);
        // One of four stripes has something, the others were never written.
        all.push(made(&fs, "little", plain(4, 64 * K), &[(130 * K, 9)], 13).await);
        all.push(made(&fs, "parts", three_components(), &[(0, 700_001), (3 << 20, 500_000)], 14).await);
        // Nothing in the first component.
        all.push(made(&fs, "hole", three_components(), &[(400 * K, 100)], 15).await);
        let half = made(&fs, "half", plain(2, 64 * K), &[(0, 200_000)], 16).await;
        let bare = made(&fs, "bare", plain(1, 64 * K), &[(0, 70_000)], 17).await;
        let small = made(&fs, "small", LayoutSpec::default(), &[(0, 100)], 18).await;
        fs.unmount().await;

        let gone = half.layout.objects().nth(1).unwrap();
        destroy(&c, gone.id, gone.ost).await;
        let o = *bare.layout.objects().next().unwrap();
        c.harm_ost(o.ost, |db, _| async move {
            let mut txn = Txn::new();
            let (k, v) = changed(&db, o.id, |r| r.label.clear());
            txn.put(k, v);
            txn
        })
        .await;
        c.replace_mdt().await;

        checked(&c, "start layout orphan dryrun").await;
        assert_eq!(field(&c, "found_lost_file"), "4", "files that can be put together");
        assert_eq!(field(&c, "found_lost_component"), "3", "components behind the first");
        assert_eq!(field(&c, "found_contradictory_label"), "1");
        // Of the component in which nothing was written; others are parts of files that would be there.
        assert_eq!(field(&c, "found_empty_orphan"), "1");
        assert_eq!((field(&c, "repaired"), field(&c, "quarantined")), ("0".into(), "0".into()));
        checked(&c, "start layout orphan").await;
        assert_eq!(
            (field(&c, "repaired_lost_file"), field(&c, "repaired_empty_orphan")),
            ("5".into(), "1".into())
        );
        assert_eq!(field(&c, "found_contradictory_label"), "1");
        // As a file of its own each: the object without a label, and what is left of the file that was being
        // removed.
        assert_eq!(field(&c, "repaired_orphan_object"), "2");
        let flagged = field(&c, "flags");
        assert!(flagged.contains("scanned-once"), "{flagged}");

        let fs = c.mount().await;
        for (uid, f) in (11..).zip(&all) {
            came_back(&fs, f, uid).await;
        }
        let root = fs.root();
        let lookup = |dir, name: String| fs.clone().lookup(call(), dir, name.into());
        assert!(lookup(root, "one".into()).await.is_err(), "names are gone");
        for f in [&half, &bare] {
            assert!(lookup(Fid::LOST_FOUND, format!("{}-R-0", f.fid)).await.is_err());
            assert!(lookup(Fid::LOST_FOUND, format!("{}-O-0", f.fid)).await.is_ok());
        }
        assert!(fs.clone().getattr(call(), small.fid).await.is_err(), "data of the metadata target is lost");

        // They are files as any other, beside those of the new target.
        let again = made(&fs, "one", plain(4, 64 * K), &[(0, 400_000)], 20).await;
        assert!(again.fid.seq > all.iter().map(|f| f.fid.seq).max().unwrap() + 1000, "no FID is given twice");
        let file = Arc::new(fs.clone().open(call(), all[4].fid, O_RDWR).await.unwrap());
        write(&fs, &file, 0, vec![3; 1000]).await;
        write(&fs, &file, 5 << 20, vec![4; 1000]).await;
        fs.clone().fsync(call(), file.fid).await.unwrap();
        assert_eq!(read(&fs, &file, 0, 1001).await[..1000], [3; 1000]);
        assert_eq!(read(&fs, &file, 5 << 20, 5000).await, vec![4; 1000]);
        fs.clone().close(file).await.unwrap();
        c.stop_mdt().await;
        c.start_mdt().await;
        checked(&c, "start").await;
        assert_eq!(field(&c, "found"), "0");
        for (uid, f) in (11..).zip(&all[..4]) {
            came_back(&fs, f, uid).await;
        }
    });
}

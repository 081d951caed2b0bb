//! The metadata server keeps OSTs even by itself.

use crate::data::{read, write};
use crate::harness::{Cluster, O_CREAT, O_RDWR, call};
use client::{Fs, OpenHandle};
use model::{Layout, LayoutSpec, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;

const MIB: usize = 1 << 20;

async fn said(fs: &Arc<Fs>) -> BTreeMap<String, String> {
    let of = client::Admin(fs).target_params(TargetId::mdt(0), "mdt.*.rebalance".into()).await.unwrap();
    let pairs = of[0].1.lines().filter_map(|l| l.split_once(": "));
    pairs.map(|(name, v)| (name.to_string(), v.to_string())).collect()
}

fn bytes(n: usize) -> Vec<u8> {
    (0..MIB).map(|i| (i * 7 + n) as u8 | 1).collect()
}

/// A file of 1 MiB that lies where `spec` says.
async fn file(fs: &Arc<Fs>, name: &str, n: usize, spec: LayoutSpec) -> Arc<OpenHandle> {
    let flags = O_RDWR | O_CREAT;
    let made = fs.clone().create(call(), fs.root(), name.into(), 0o644, flags, Some(spec)).await;
    let f = Arc::new(made.unwrap().1);
    write(fs, &f, 0, bytes(n)).await;
    fs.clone().fsync(call(), f.fid).await.unwrap();
    f
}

fn one() -> LayoutSpec {
    LayoutSpec { stripe_count: 1, stripe_size: 65536, ..LayoutSpec::default() }
}

async fn layout(fs: &Arc<Fs>, f: &OpenHandle) -> Layout {
    client::Admin(fs).getlayout(call(), f.fid).await.unwrap().unwrap()
}

async fn lies_on(fs: &Arc<Fs>, f: &OpenHandle) -> Vec<u16> {
    layout(fs, f).await.objects().map(|o| o.ost).collect()
}

#[test]
fn files_go_to_emptier_osts_but_for_those_that_are_bound_or_used() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        (0..3).for_each(|ost| c.size_ost_disk(ost, 64 << 20));
        let creates = async |n: &str| {
            for ost in [1, 2] {
                c.set_mdt_param(&format!("osp.*OST000{ost}*.max_create_count"), n).await;
            }
        };
        c.set_mdt_param("mdt.*.rebalance_threshold", "0").await;
        c.set_mdt_param("lod.*.qos_maxage", "1").await;
        creates("0").await;
        let named = file(&a, "named", 99, LayoutSpec { osts: vec![0], ..one() }).await;
        let mut files = Vec::new();
        for n in 0..24 {
            files.push(file(&a, &format!("f{n}"), n, one()).await);
        }
        assert_eq!(lies_on(&b, &files[3]).await, [0]);
        creates("20000").await;
        assert_eq!(said(&b).await["state"], "off");
        c.set_mdt_param("mdt.*.rebalance_threshold", "10").await;
        c.until("they are even", async || {
            let s = said(&b).await;
            s["state"] == "even" && s["files_moved"].parse::<u64>().unwrap() >= 8
        })
        .await;
        let mut of = BTreeMap::<u16, usize>::new();
        for (n, f) in files.iter().enumerate() {
            assert_eq!(read(&b, f, 0, 2 << 20).await, bytes(n), "file {n}");
            for ost in lies_on(&a, f).await {
                *of.entry(ost).or_default() += 1;
            }
        }
        assert!((0..3).all(|ost| (4..=14).contains(&of[&ost])), "{of:?}");
        assert_eq!(lies_on(&b, &named).await, [0], "somebody said where it lies");
        assert!(said(&b).await["files_bound"] != "0");
        assert!(!layout(&b, &files[0]).await.components[0].is_named(), "nobody said it of this one");
        c.set_mdt_param("mdt.*.rebalance_threshold", "0").await;
        c.until("it has stopped", async || said(&b).await["state"] == "off").await;
    });
}

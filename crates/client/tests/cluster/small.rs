//! Files about the size up to which data lies with the inode: before they grow each mount asks the metadata
//! server, afterwards it keeps data under locks of the OSTs. Nobody may notice.

use crate::data::{read, striped, write};
use crate::harness::{Cluster, O_RDWR, call};
use bytes::Bytes;
use client::{Fs, OpenHandle};
use model::SetAttr;
use std::sync::Arc;
use world::rng::Rng;

const ROOM: u64 = 65_536;

fn dirty(fs: &Arc<Fs>) -> u64 {
    fs.get_param("osc.*.cur_dirty_bytes").iter().map(|p| p.1.parse::<u64>().unwrap()).sum()
}

async fn cut(fs: &Arc<Fs>, f: &OpenHandle, size: u64) -> u64 {
    let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
    fs.clone().setattr(call(), f.fid, set).await.unwrap().size
}

async fn size_of(fs: &Arc<Fs>, f: &OpenHandle) -> u64 {
    fs.clone().getattr(call(), f.fid).await.unwrap().size
}

#[test]
fn what_a_mount_writes_after_growth_is_kept_and_gets_out() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 0).await;
        let theirs = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
        write(&a, &f, 0, vec![1; 60_000]).await;
        assert_eq!(dirty(&a), 0, "what lies with the inode is with the server");
        assert_eq!(read(&b, &theirs, 59_990, 100).await, vec![1; 10]);
        // The write that makes it grow, and those after it, stay here for a moment.
        write(&a, &f, 60_000, vec![2; 40_000]).await;
        assert_eq!(dirty(&a), 40_000);
        assert_eq!(size_of(&b, &theirs).await, 100_000);
        assert_eq!(read(&a, &f, 59_999, 2).await[..], [1, 2]);
        let got = read(&b, &theirs, 0, 1 << 20).await;
        assert_eq!(got.len(), 100_000);
        assert!(got[..60_000].iter().all(|&x| x == 1) && got[60_000..].iter().all(|&x| x == 2));
        assert_eq!(dirty(&a), 0);
        // Both keep what they read; a change by either is seen by the other.
        write(&b, &theirs, 10, vec![3; 10]).await;
        assert_eq!(read(&a, &f, 9, 3).await[..], [1, 3, 3]);
        assert_eq!(cut(&a, &f, 15).await, 15);
        assert_eq!(read(&b, &theirs, 9, 100).await[..], [1, 3, 3, 3, 3, 3]);
        write(&b, &theirs, 100, vec![4; 1]).await;
        b.clone().fsync(call(), f.fid).await.unwrap();
        assert_eq!(dirty(&b), 0);
        assert_eq!(read(&a, &f, 14, 100).await.len(), 87);
        for fs in [&a, &b] {
            assert_eq!(fs.get_param("llite.*.write_errors")[0].1, "total: 0");
        }
    });
}

/// A file as it must be, and the mounts that have it open.
struct Border {
    mounts: Vec<(Arc<Fs>, Arc<OpenHandle>)>,
    bytes: Vec<u8>,
}

impl Border {
    fn put(&mut self, at: usize, data: &[u8]) {
        if self.bytes.len() < at + data.len() {
            self.bytes.resize(at + data.len(), 0);
        }
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    async fn step(&mut self, rng: &mut Rng, what: &str) {
        let (fs, f) = self.mounts[rng.index(self.mounts.len())].clone();
        // Most of it near the border, and never far behind it.
        let near = |rng: &mut Rng| match rng.below(3) {
            0 => rng.below(ROOM),
            1 => ROOM - 5_000 + rng.below(10_000),
            _ => rng.below(ROOM / 8),
        };
        let mut data = vec![0; 1 + rng.index(6_000)];
        data.fill_with(|| rng.below(256) as u8);
        match rng.below(9) {
            0..3 => {
                let at = near(rng);
                write(&fs, &f, at, data.clone()).await;
                self.put(at as usize, &data);
            }
            3 => {
                let at = self.bytes.len();
                let work = fs.clone().write(call(), f.fid, 0, true, false, Bytes::from(data.clone()));
                assert_eq!(work.await, Ok(at as u64), "{what}");
                self.put(at, &data);
            }
            4 => {
                let size = near(rng);
                assert_eq!(cut(&fs, &f, size).await, size, "{what}");
                self.bytes.resize(size as usize, 0);
            }
            5 => {
                let (at, punch) = (near(rng), rng.coin());
                let mode = if punch { 3 } else { 0 };
                fs.clone().fallocate(call(), f.fid, mode, at, data.len() as u64).await.unwrap();
                let end = at as usize + data.len();
                if !punch && self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                if punch {
                    let (from, to) = ((at as usize).min(self.bytes.len()), end.min(self.bytes.len()));
                    self.bytes[from..to].fill(0);
                }
            }
            6 => fs.clone().fsync(call(), f.fid).await.unwrap(),
            _ => {}
        }
        let (fs, f) = &self.mounts[rng.index(self.mounts.len())];
        assert_eq!(size_of(fs, f).await, self.bytes.len() as u64, "{what}");
        let from = near(rng).min(self.bytes.len() as u64);
        let to = (from as usize + 20_000).min(self.bytes.len());
        assert!(read(fs, f, from, 20_000).await == self.bytes[from as usize..to], "{what}: read at {from}");
    }
}

#[test]
fn two_mounts_work_on_one_file_about_the_border() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for seed in 0..60u64 {
            let mut rng = Rng::new(seed);
            let f = striped(&a, &format!("f{seed}"), 0).await;
            let theirs = Arc::new(b.clone().open(call(), f.fid, O_RDWR).await.unwrap());
            let mounts = vec![(a.clone(), f), (b.clone(), theirs)];
            let mut file = Border { mounts, bytes: Vec::new() };
            for i in 0..25 {
                file.step(&mut rng, &format!("seed {seed} step {i}")).await;
            }
            for (fs, f) in &file.mounts {
                assert!(read(fs, f, 0, 1 << 20).await == file.bytes, "seed {seed}: the end");
                fs.clone().close(f.clone()).await.unwrap();
            }
        }
    });
}

/// Both write at once, each its own records, over the border and back: none is lost, whoever makes it grow.
#[test]
fn records_written_at_once_survive_the_growth() {
    const RECORD: usize = 3_000;
    const RECORDS: usize = 44; // twice the room
    let c = Cluster::start(3);
    c.run(async {
        let mounts = [c.mount().await, c.mount().await, c.mount().await];
        for round in 0..8usize {
            let f = striped(&mounts[0], &format!("records{round}"), 0).await;
            let tasks: Vec<_> = mounts
                .iter()
                .cloned()
                .enumerate()
                .map(|(n, fs)| {
                    let fid = f.fid;
                    c.spawn(async move {
                        for k in (n..RECORDS).step_by(3) {
                            let i = if round % 2 == 0 { k } else { RECORDS - 1 - k };
                            let data = Bytes::from(vec![i as u8 + 1; RECORD]);
                            let at = (i * RECORD) as u64;
                            fs.clone().write(call(), fid, at, false, false, data).await.unwrap();
                            if k % 5 == n {
                                fs.clone().fsync(call(), fid).await.unwrap();
                            }
                        }
                    })
                })
                .collect();
            for t in tasks {
                t.await.unwrap();
            }
            for fs in &mounts {
                let got = read(fs, &f, 0, 1 << 20).await;
                assert_eq!(got.len(), RECORD * RECORDS);
                for (i, r) in got.chunks(RECORD).enumerate() {
                    assert!(r.iter().all(|x| *x == i as u8 + 1), "round {round} record {i}");
                }
            }
        }
    });
}

/// Answered requests to the metadata server so far.
fn requests(fs: &Fs) -> u64 {
    requests_of(fs, "mds_")
}

/// Those whose kinds begin like this.
pub fn requests_of(fs: &Fs, kind: &str) -> u64 {
    let stats = fs.get_param("mdc.*.stats").remove(0).1;
    let of = |l: &str| l.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    stats.lines().filter(|l| l.starts_with(kind)).filter_map(of).sum()
}

async fn read_by_name(fs: &Arc<Fs>, name: &str) -> Vec<u8> {
    let fid = fs.clone().lookup(call(), fs.root(), name.into()).await.unwrap().fid;
    let f = Arc::new(fs.clone().open(call(), fid, 0o1_000_000).await.unwrap());
    let data = fs.clone().read(call(), f.clone(), 0, 1 << 20).await.unwrap();
    fs.clone().close(f).await.unwrap();
    data.to_vec()
}

/// Lookup, open, read and close of a small file are one request; again, they are none; a change by another
/// mount is seen; and what a mount writes itself it knows.
#[test]
fn small_files_are_kept_under_the_lease_on_their_inode() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 0).await;
        write(&a, &f, 0, vec![1; 3000]).await;
        let n = requests(&a);
        assert_eq!(read(&a, &f, 0, 9999).await, vec![1; 3000]);
        assert_eq!(read_by_name(&a, "f").await, vec![1; 3000]);
        assert_eq!(requests(&a), n, "its own write is known");
        let n = requests(&b);
        assert_eq!(read_by_name(&b, "f").await, vec![1; 3000]);
        assert_eq!(requests(&b), n + 1);
        assert_eq!(read_by_name(&b, "f").await, vec![1; 3000]);
        assert_eq!(requests(&b), n + 1);
        for round in 2..6u8 {
            write(&a, &f, 100, vec![round; 10]).await;
            assert_eq!(read_by_name(&b, "f").await[99..111], [&[1][..], &[round; 10], &[1]].concat());
            assert_eq!(cut(&b, &f, 2000 + u64::from(round)).await, 2000 + u64::from(round));
            assert_eq!(read(&a, &f, 0, 9999).await.len(), 2000 + usize::from(round));
            let mode = SetAttr { mode: Some(0o600 + u32::from(round)), ..SetAttr::default() };
            a.clone().setattr(call(), f.fid, mode).await.unwrap();
            let n = requests(&a);
            assert_eq!(read_by_name(&a, "f").await.len(), 2000 + usize::from(round));
            assert_eq!(requests(&a), n, "its mode is none of the data");
        }
        let kept = a.get_param("llite.*.small_files")[0].1.clone();
        assert!(kept.contains("hits: ") && !kept.contains("bytes: 0"), "{kept}");
        a.set_param("ldlm.namespaces.*.lru_size", "clear").unwrap();
        assert!(a.get_param("llite.*.small_files")[0].1.ends_with("bytes: 0"));
    });
}

/// Files of a directory that are read in the order of its listing come in a few requests.
#[test]
fn small_files_that_are_read_one_after_the_other_are_fetched_ahead() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        for i in 0..200u32 {
            let f = striped(&a, &format!("f{i}"), 0).await;
            write(&a, &f, 0, i.to_le_bytes().repeat(500)).await;
        }
        let (page, _, end) = b.clone().readdir(call(), b.root(), 0, 1 << 20, true).await.unwrap();
        assert!(end && page.len() == 200);
        let n = requests(&b);
        for d in &page {
            let i: u32 = std::str::from_utf8(&d.name[1..]).unwrap().parse().unwrap();
            b.clone().lookup(call(), b.root(), d.name.clone()).await.unwrap();
            let f = Arc::new(b.clone().open(call(), d.fid, 0o1_000_000).await.unwrap());
            let data = b.clone().read(call(), f.clone(), 0, 1 << 20).await.unwrap();
            assert_eq!(data, i.to_le_bytes().repeat(500));
            b.clone().close(f).await.unwrap();
        }
        assert!(requests(&b) - n < 12, "{} requests for 200 files", requests(&b) - n);
    });
}

/// Extended attributes are asked for once.
#[test]
fn extended_attributes_are_kept_under_the_lease() {
    let c = Cluster::start(1);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = striped(&a, "f", 0).await.fid;
        let set = async |fs: &Arc<Fs>, v: &[u8]| {
            fs.clone().setxattr(call(), f, b"user.a".to_vec(), v.to_vec(), 0, false).await.unwrap();
        };
        let get = async |fs: &Arc<Fs>, n: &str| fs.clone().getxattr(call(), f, n.into()).await;
        for v in [b"one", b"two"] {
            set(&a, v).await;
            for fs in [&b, &a] {
                fs.clone().getattr(call(), f).await.unwrap();
                assert_eq!(get(fs, "user.a").await.unwrap(), v);
                assert!(get(fs, "user.b").await.is_err());
                assert_eq!(fs.clone().listxattr(call(), f).await.unwrap(), [b"user.a"]);
                let n = requests(fs);
                assert_eq!(get(fs, "user.a").await.unwrap(), v);
                assert!(get(fs, "user.b").await.is_err());
                assert_eq!(fs.clone().listxattr(call(), f).await.unwrap(), [b"user.a"]);
                assert_eq!(requests(fs), n);
            }
        }
    });
}

//! Files with layouts in components, used by two mounts while components get their objects.

use crate::data::{read, write};
use crate::harness::{Cluster, O_RDWR, call};
use client::{Fs, OpenHandle};
use model::layout::{ComponentChange, ComponentFilter, ComponentSpec, EOF};
use model::{Errno, Fid, LayoutSpec, SetAttr};
use std::sync::Arc;

const K: u64 = 1 << 10;

fn spec(parts: &[(u64, i32, u64)]) -> LayoutSpec {
    let of = |&(end, stripe_count, extension_bytes): &(u64, i32, u64)| ComponentSpec {
        end,
        stripe_count,
        stripe_size: 65536,
        extension_bytes,
        ..ComponentSpec::default()
    };
    let mut s = LayoutSpec::default();
    s.set_components(&parts.iter().map(of).collect::<Vec<_>>());
    s
}

/// 64 KiB on one object, then up to 256 KiB on two, then three.
fn three() -> LayoutSpec {
    spec(&[(64 * K, 1, 0), (256 * K, 2, 0), (EOF, 3, 0)])
}

async fn create(fs: &Arc<Fs>, name: &str, layout: LayoutSpec) -> Arc<OpenHandle> {
    let created = fs.clone().create(call(), fs.root(), name.into(), 0o644, O_RDWR, Some(layout)).await;
    Arc::new(created.unwrap().1)
}

async fn open(fs: &Arc<Fs>, fid: Fid) -> Arc<OpenHandle> {
    Arc::new(fs.clone().open(call(), fid, O_RDWR).await.unwrap())
}

async fn cut(fs: &Arc<Fs>, fid: Fid, size: u64) -> Result<u64, Errno> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.clone().setattr(call(), fid, set).await.map(|a| a.size)
}

async fn size(fs: &Arc<Fs>, fid: Fid) -> u64 {
    fs.clone().getattr(call(), fid).await.unwrap().size
}

/// Objects of each component.
async fn objects(fs: &Arc<Fs>, fid: Fid) -> Vec<usize> {
    let l = client::Admin(fs).getlayout(call(), fid).await.unwrap().unwrap();
    l.components.iter().map(|c| c.objects.len()).collect()
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u64 * 7 + n) as u8).collect()
}

#[test]
fn what_one_mount_writes_beyond_the_first_component_the_other_sees() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        write(&a, &fa, 0, bytes(1, 1000)).await;
        assert_eq!((objects(&a, fid).await, size(&b, fid).await), (vec![1, 0, 0], 1000));
        assert_eq!(read(&b, &fb, 0, 1 << 20).await, bytes(1, 1000));
        // The other mount knows the layout and that there is nothing.
        write(&a, &fa, 300 * K, bytes(2, 5000)).await;
        assert_eq!(objects(&b, fid).await, [1, 0, 3], "what is left out has no objects");
        assert_eq!(size(&b, fid).await, 300 * K + 5000);
        let mut want = vec![0; 300 * 1024 + 5000];
        want[..1000].copy_from_slice(&bytes(1, 1000));
        want[300 * 1024..].copy_from_slice(&bytes(2, 5000));
        assert!(read(&b, &fb, 0, 1 << 20).await == want);
        assert!(read(&b, &fb, 100 * K, 4096).await == vec![0; 4096], "a hole without objects");
        // Across two borders, and back.
        let long = bytes(3, 250 * 1024);
        write(&b, &fb, 60 * K, long.clone()).await;
        want.resize(310 * 1024, 0);
        want[60 * 1024..].copy_from_slice(&long);
        assert_eq!(objects(&a, fid).await, [1, 2, 3]);
        assert!(read(&a, &fa, 0, 1 << 20).await == want);
        a.clone().fsync(call(), fid).await.unwrap();
    });
}

#[test]
fn appends_and_truncates_find_the_end_wherever_it_is() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let fid = fa.fid;
        let mut want = Vec::new();
        for n in 0..80 {
            let fs = if n % 3 == 0 { &b } else { &a };
            let part = bytes(n, 5000);
            fs.clone().write(call(), fid, 0, true, false, part.clone().into()).await.unwrap();
            want.extend_from_slice(&part);
        }
        assert_eq!(objects(&b, fid).await, [1, 2, 3]);
        let fb = open(&b, fid).await;
        assert!(read(&b, &fb, 0, 1 << 20).await == want);
        for to in [260 * K, 100 * K, 64 * K, 200 * K, 64 * K + 1, 10, 0, 300 * K] {
            let fs = if to % 3 == 0 { &a } else { &b };
            assert_eq!(cut(fs, fid, to).await, Ok(to));
            want.resize(to as usize, 0);
            assert_eq!((size(&a, fid).await, size(&b, fid).await), (to, to));
            assert!(read(&a, &fa, 0, 1 << 20).await == want, "cut to {to}");
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "cut to {to}, the other mount");
        }
        let sparse = create(&b, "sparse", three()).await;
        assert_eq!(cut(&a, sparse.fid, 100 * K).await, Ok(100 * K));
        assert_eq!((size(&b, sparse.fid).await, objects(&b, sparse.fid).await), (100 * K, vec![1, 2, 0]));
        write(&b, &sparse, 400 * K, bytes(4, 10)).await;
        let find = |hole, off| a.clone().seek(call(), sparse.fid, off, hole);
        assert_eq!((find(false, 0).await, find(true, 0).await), (Ok(400 * K), Ok(0)));
        assert_eq!(
            (find(true, 400 * K).await, find(false, 400 * K + 10).await),
            (Ok(400 * K + 10), Err(Errno::ENXIO))
        );
        assert_eq!(cut(&a, sparse.fid, 200 * K).await, Ok(200 * K));
        assert_eq!(find(false, 0).await, Err(Errno::ENXIO));
    });
}

#[test]
fn a_file_whose_layout_ends_does_not_grow_beyond() {
    let c = Cluster::start(2);
    c.run(async {
        let a = c.mount().await;
        let f = create(&a, "f", spec(&[(128 * K, 1, 0)])).await;
        write(&a, &f, 0, bytes(1, 128 * 1024)).await;
        let more = |off, append| a.clone().write(call(), f.fid, off, append, false, vec![1].into());
        assert_eq!(more(128 * K, false).await.unwrap_err(), Errno::ENODATA);
        assert_eq!(more(0, true).await.unwrap_err(), Errno::ENODATA);
        assert_eq!(cut(&a, f.fid, 128 * K + 1).await.unwrap_err(), Errno::ENODATA);
        let room = a.clone().fallocate(call(), f.fid, 0, 64 * K, 128 * K).await;
        assert_eq!(room.unwrap_err(), Errno::ENODATA);
        assert!(read(&a, &f, 0, 1 << 20).await == bytes(1, 128 * 1024));
    });
}

#[test]
fn room_is_reserved_where_there_were_no_objects() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = create(&a, "f", three()).await;
        a.clone().fallocate(call(), f.fid, 0, 0, 300 * K).await.unwrap();
        assert_eq!((size(&b, f.fid).await, objects(&b, f.fid).await), (300 * K, vec![1, 2, 3]));
        let g = create(&a, "g", three()).await;
        write(&a, &g, 0, bytes(1, 70 * 1024)).await;
        let punch = 3;
        b.clone().fallocate(call(), g.fid, punch, 4 * K, 400 * K).await.unwrap();
        let mut want = vec![0; 70 * 1024];
        want[..4096].copy_from_slice(&bytes(1, 4096));
        assert!(read(&a, &g, 0, 1 << 20).await == want);
        assert_eq!(objects(&a, g.fid).await, [1, 2, 0], "a hole needs no object");
    });
}

#[test]
fn a_component_that_grows_takes_what_comes() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = create(&a, "f", spec(&[(256 * K, 1, 64 * K), (EOF, 2, 128 * K)])).await;
        let mut want = Vec::new();
        for n in 0..60 {
            let part = bytes(n, 9000);
            let fs = if n % 2 == 0 { &a } else { &b };
            fs.clone()
                .write(call(), f.fid, want.len() as u64, false, false, part.clone().into())
                .await
                .unwrap();
            want.extend_from_slice(&part);
        }
        let fb = open(&b, f.fid).await;
        assert!(read(&a, &f, 0, 1 << 20).await == want);
        assert!(read(&b, &fb, 0, 1 << 20).await == want);
        let l = client::Admin(&b).getlayout(call(), f.fid).await.unwrap().unwrap();
        let shape: Vec<_> = l.components.iter().map(|c| (c.end, c.objects.len())).collect();
        assert_eq!(shape, [(256 * K, 1), (640 * K, 2), (EOF, 0)]);
    });
}

#[test]
fn files_move_between_plain_layouts_and_components() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let f = create(&a, "f", three()).await;
        write(&a, &f, 0, bytes(1, 100 * 1024)).await;
        write(&a, &f, 300 * K, bytes(2, 100 * 1024)).await;
        let mut want = vec![0; 400 * 1024];
        want[..100 * 1024].copy_from_slice(&bytes(1, 100 * 1024));
        want[300 * 1024..].copy_from_slice(&bytes(2, 100 * 1024));
        let fb = open(&b, f.fid).await;
        let plain = LayoutSpec { stripe_count: 2, stripe_size: 65536, ..LayoutSpec::default() };
        let grows = spec(&[(128 * K, 1, 64 * K), (EOF, 2, 0)]);
        for (n, to) in [plain.clone(), three(), grows, three(), plain].into_iter().enumerate() {
            let fs = if n % 2 == 0 { &a } else { &b };
            client::Admin(fs).migrate(call(), f.fid, to).await.unwrap();
            assert!(read(&a, &f, 0, 1 << 20).await == want, "after move {n}");
            assert!(read(&b, &fb, 0, 1 << 20).await == want, "after move {n}, the other mount");
            let part = bytes(n as u64, 3000);
            write(&b, &fb, n as u64 * 62 * K, part.clone()).await;
            want[n * 62 * 1024..n * 62 * 1024 + 3000].copy_from_slice(&part);
        }
        assert!(read(&a, &f, 0, 1 << 20).await == want);
    });
}

#[test]
fn a_group_locks_what_the_file_is_ever_to_have() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let fb = open(&b, fa.fid).await;
        a.clone().group_lock(fa.clone(), 7, true).await.unwrap();
        assert_eq!(objects(&a, fa.fid).await, [1, 2, 3]);
        b.clone().group_lock(fb.clone(), 7, true).await.unwrap();
        write(&a, &fa, 0, bytes(1, 4096)).await;
        write(&b, &fb, 300 * K, bytes(2, 4096)).await;
        a.clone().group_unlock(fa.clone(), 7).await.unwrap();
        b.clone().group_unlock(fb.clone(), 7).await.unwrap();
        assert_eq!(read(&a, &fa, 300 * K, 4096).await, bytes(2, 4096));
    });
}

async fn change(fs: &Arc<Fs>, fid: Fid, change: ComponentChange) -> Result<Vec<(u64, usize)>, Errno> {
    let l = client::Admin(fs).change_components(call(), fid, change).await?;
    Ok(l.components.iter().map(|c| (c.end, c.objects.len())).collect())
}

async fn add(fs: &Arc<Fs>, fid: Fid, parts: &[(u64, i32, u64)]) -> Result<Vec<(u64, usize)>, Errno> {
    change(fs, fid, ComponentChange::Add(spec(parts))).await
}

/// The last component goes.
async fn delete(fs: &Arc<Fs>, fid: Fid) -> Result<Vec<(u64, usize)>, Errno> {
    let l = client::Admin(fs).getlayout(call(), fid).await.unwrap().unwrap();
    let last = l.components.last().unwrap().id;
    change(fs, fid, ComponentChange::Delete(ComponentFilter::Id(last))).await
}

async fn write_at(fs: &Arc<Fs>, fid: Fid, off: u64, data: Vec<u8>) -> Result<(), Errno> {
    fs.clone().write(call(), fid, off, false, false, data.into()).await.map(|_| ())
}

#[test]
fn what_is_added_every_open_file_can_use() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", spec(&[(64 * K, 1, 0)])).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        write(&a, &fa, 0, bytes(1, 1000)).await;
        for fs in [&a, &b] {
            assert_eq!(write_at(fs, fid, 64 * K, vec![1]).await, Err(Errno::ENODATA));
        }
        assert_eq!(add(&a, fid, &[(128 * K, 2, 0)]).await, Ok(vec![(64 * K, 1), (128 * K, 0)]));
        write(&b, &fb, 100 * K, bytes(2, 1000)).await;
        assert_eq!(size(&a, fid).await, 100 * K + 1000);
        assert_eq!(add(&b, fid, &[(EOF, 1, 64 * K)]).await.unwrap().len(), 4, "with room to grow into");
        write(&a, &fa, 200 * K, bytes(3, 1000)).await;
        assert_eq!(read(&b, &fb, 200 * K, 2000).await, bytes(3, 1000));
        assert_eq!(read(&a, &fa, 0, 1000).await, bytes(1, 1000));
        assert_eq!(add(&a, fid, &[(EOF, 1, 0)]).await, Err(Errno::EINVAL));
    });
}

#[test]
fn a_component_that_goes_takes_its_bytes_along_wherever_they_are() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", three()).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        write(&a, &fa, 0, bytes(1, 250_000)).await;
        // Kept by one, and not sent yet; read and kept by the other.
        write(&b, &fb, 300 * K, bytes(2, 100_000)).await;
        assert_eq!(read(&a, &fa, 300 * K, 100_000).await, bytes(2, 100_000));
        write(&b, &fb, 310 * K, bytes(3, 100_000)).await;
        let before = a.clone().getattr(call(), fid).await.unwrap();
        assert_eq!(delete(&a, fid).await, Ok(vec![(64 * K, 1), (256 * K, 2)]));
        for (fs, f) in [(&a, &fa), (&b, &fb)] {
            let after = fs.clone().getattr(call(), fid).await.unwrap();
            assert_eq!(after.size, 250_000);
            assert!(after.ctime >= before.ctime);
            assert!(read(fs, f, 0, 1 << 20).await == bytes(1, 250_000));
            assert!(read(fs, f, 300 * K, 1000).await.is_empty());
            assert_eq!(write_at(fs, fid, 300 * K, vec![1]).await, Err(Errno::ENODATA));
            assert_eq!(cut(fs, fid, 300 * K).await, Err(Errno::ENODATA));
        }
        // The same range again: what was there is not.
        assert_eq!(add(&b, fid, &[(EOF, 3, 0)]).await, Ok(vec![(64 * K, 1), (256 * K, 2), (EOF, 0)]));
        write(&a, &fa, 500 * K, bytes(4, 10)).await;
        for (fs, f) in [(&a, &fa), (&b, &fb)] {
            assert!(read(fs, f, 300 * K, 100_000).await.iter().all(|x| *x == 0));
            assert_eq!(size(fs, fid).await, 500 * K + 10);
        }
        a.clone().fsync(call(), fid).await.unwrap();
        b.clone().fsync(call(), fid).await.unwrap();
    });
}

#[test]
fn a_group_keeps_what_is_to_go_and_takes_what_comes() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", spec(&[(64 * K, 1, 0), (256 * K, 2, 0)])).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        a.clone().group_lock(fa.clone(), 7, true).await.unwrap();
        write(&a, &fa, 100 * K, bytes(1, 1000)).await;
        assert_eq!(c.within_secs(60, delete(&b, fid)).await, Err(Errno::EBUSY));
        assert_eq!(add(&b, fid, &[(EOF, 1, 0)]).await.unwrap().len(), 3);
        write(&a, &fa, 120 * K, bytes(2, 1000)).await;
        write(&a, &fa, 300 * K, bytes(3, 1000)).await;
        assert!(a.clone().group_lock(fa.clone(), 7, true).await.is_err(), "it has it");
        a.clone().group_unlock(fa.clone(), 7).await.unwrap();
        for (off, n) in [(100, 1), (120, 2), (300, 3)] {
            assert_eq!(read(&b, &fb, off * K, 1000).await, bytes(n, 1000));
        }
        assert_eq!(delete(&b, fid).await.unwrap().len(), 2);
        assert_eq!(size(&a, fid).await, 121 * K - K + 1000);
    });
}

/// A file whose components come and go, as it must look: bytes, and of each component its range and where
/// what was written into it ends.
struct Expected {
    data: Vec<u8>,
    parts: Vec<(u64, u64, u64)>,
}

impl Expected {
    fn end(&self) -> u64 {
        self.parts.last().unwrap().1
    }

    fn size(&self) -> u64 {
        self.parts.iter().map(|p| p.2).max().unwrap()
    }

    fn put(&mut self, off: u64, bytes: &[u8]) {
        let end = off + bytes.len() as u64;
        if self.data.len() < end as usize {
            self.data.resize(end as usize, 0);
        }
        self.data[off as usize..end as usize].copy_from_slice(bytes);
        for (start, to, high) in &mut self.parts {
            if off < *to && end > *start {
                *high = (*high).max(end.min(*to));
            }
        }
    }

    fn cut(&mut self, size: u64) {
        self.data.resize((self.data.len() as u64).min(size) as usize, 0);
        for (start, to, high) in &mut self.parts {
            if size <= *start {
                *high = 0;
            } else if size <= *to {
                *high = size;
            }
        }
    }

    fn drop_last(&mut self) {
        let (start, ..) = self.parts.pop().unwrap();
        self.data.truncate(start as usize);
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all = self.data.clone();
        all.resize(self.size() as usize, 0);
        all
    }
}

#[test]
fn two_mounts_see_one_file_whatever_becomes_of_its_components() {
    let c = Cluster::start(3);
    c.run(async {
        let (a, b) = (c.mount().await, c.mount().await);
        let fa = create(&a, "f", spec(&[(64 * K, 1, 0)])).await;
        let (fid, fb) = (fa.fid, open(&b, fa.fid).await);
        let mut want = Expected { data: Vec::new(), parts: vec![(0, 64 * K, 0)] };
        let mut seed = 7u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for step in 0..300 {
            let (fs, f) = if below(2) == 0 { (&a, &fa) } else { (&b, &fb) };
            match below(8) {
                0 if want.end() < EOF => {
                    let start = want.end();
                    let end = if below(4) == 0 { EOF } else { start + (1 + below(4)) * 64 * K };
                    add(fs, fid, &[(end, 1 + below(3) as i32, 0)]).await.unwrap();
                    want.parts.push((start, end, 0));
                }
                1 if want.parts.len() > 1 => {
                    delete(fs, fid).await.unwrap();
                    want.drop_last();
                }
                2 => {
                    let to = below(600 * K);
                    let r = cut(fs, fid, to).await;
                    if to > want.end() {
                        assert_eq!(r, Err(Errno::ENODATA), "step {step}");
                    } else {
                        assert_eq!(r, Ok(to), "step {step}");
                        want.cut(to);
                    }
                }
                3 | 4 => {
                    let got = read(fs, f, 0, 2 << 20).await;
                    assert!(got == want.bytes(), "step {step}: {} of {}", got.len(), want.size());
                }
                _ => {
                    let (off, data) = (below(600 * K), bytes(step, 1 + below(70_000) as usize));
                    let end = off + data.len() as u64;
                    let r = write_at(fs, fid, off, data.clone()).await;
                    if end > want.end() {
                        assert_eq!(r, Err(Errno::ENODATA), "step {step}");
                    } else {
                        assert_eq!(r, Ok(()), "step {step}");
                        want.put(off, &data);
                    }
                }
            }
            assert_eq!(size(fs, fid).await, want.size(), "step {step}");
        }
    });
}

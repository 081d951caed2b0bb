//! The disk in memory against the host's: the same operations, the same results. That is what makes the
//! simulator's word about disks worth something.

use std::io;
use std::sync::Arc;
use world::mem::MemDisk;
use world::real::RealDisk;
use world::rng::Rng;
use world::{Disk, DiskFile, OpenMode};

const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "d/e/a"];
const DIRS: [&str; 3] = ["d", "d/e", "c"];

struct Pair {
    disks: [Box<dyn Disk>; 2],
    roots: [String; 2],
    files: Vec<(String, [Arc<dyn DiskFile>; 2])>,
    /// With fallocate, which blocks count as data is the host's affair.
    with_allocate: bool,
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, r: [io::Result<T>; 2]) -> Option<T> {
    let [host, mem] = r.map(|r| r.map_err(|e| e.raw_os_error()));
    assert_eq!(host, mem, "{what}: host on the left, memory on the right");
    host.ok()
}

fn ignore<T>(_: Option<T>) {}

impl Pair {
    fn both<T>(&self, f: impl Fn(&dyn Disk, &dyn Fn(&str) -> String) -> io::Result<T>) -> [io::Result<T>; 2] {
        std::array::from_fn(|i| f(&*self.disks[i], &|p| format!("{}/{p}", self.roots[i])))
    }

    fn names_op(&mut self, rng: &mut Rng) {
        let (name, other, dir) = (*rng.pick(&NAMES), *rng.pick(&NAMES), *rng.pick(&DIRS));
        match rng.below(9) {
            0..3 => {
                let mode = OpenMode {
                    write: true,
                    create: rng.below(4) > 0,
                    exclusive: rng.below(4) == 0,
                    truncate: rng.below(4) == 0,
                };
                let [a, b] = self.both(|d, p| d.open(&p(name), mode));
                let ok = [a.as_ref().map(|_| ()).map_err(clone), b.as_ref().map(|_| ()).map_err(clone)];
                same(&format!("open {name} {mode:?}"), ok);
                if let (Ok(a), Ok(b)) = (a, b) {
                    self.files.push((name.to_string(), [a, b]));
                }
            }
            3 => ignore(same(&format!("mkdir {dir}"), self.both(|d, p| d.mkdir(&p(dir))))),
            4 => ignore(same(
                &format!("rename {name} {other}"),
                self.both(|d, p| d.rename(&p(name), &p(other))),
            )),
            5 => {
                ignore(same(&format!("rename {dir} {other}"), self.both(|d, p| d.rename(&p(dir), &p(other)))))
            }
            6 => ignore(same(&format!("unlink {name}"), self.both(|d, p| d.unlink(&p(name))))),
            7 => ignore(same(&format!("rmdir {dir}"), self.both(|d, p| d.rmdir(&p(dir))))),
            _ => {
                same(&format!("list {dir}"), self.both(|d, p| d.list(&p(dir))));
                same(&format!("exists {name}"), self.both(|d, p| d.exists(&p(name))));
                same(&format!("sync_dir {dir}"), self.both(|d, p| d.sync_dir(&p(dir))));
            }
        }
    }

    fn file_op(&mut self, rng: &mut Rng) {
        if self.files.is_empty() {
            return;
        }
        let at = rng.index(self.files.len());
        let (name, f) = &self.files[at];
        let off = match rng.below(3) {
            0 => rng.below(1 << 17),
            1 => rng.below(32) * 4096,
            _ => rng.below(6000),
        };
        let len = [rng.below(100), rng.below(20_000), 4096, 0][rng.index(4)];
        let what = format!("{name} {off}+{len}");
        match rng.below(13) {
            0..4 => {
                let mut data = vec![0; len as usize];
                rng.fill(&mut data);
                same(&format!("write {what}"), f.each_ref().map(|f| f.write_at(&data, off)));
            }
            4..6 => {
                let read = |f: &Arc<dyn DiskFile>| {
                    let mut buf = vec![7; len as usize];
                    f.read_at(&mut buf, off).map(|n| (n, buf))
                };
                same(&format!("read {what}"), f.each_ref().map(read));
            }
            6 => ignore(same(&format!("set_len {what}"), f.each_ref().map(|f| f.set_len(off)))),
            7 => ignore(same(&format!("sync {what}"), f.each_ref().map(|f| f.sync_data()))),
            8 if self.with_allocate => {
                let mode = [0, 1, 3, 0x10, 0x11, 2, 0x12][rng.index(7)];
                same(&format!("allocate {mode:#x} {what}"), f.each_ref().map(|f| f.allocate(mode, off, len)));
            }
            9 if !self.with_allocate => {
                same(&format!("seek_data {what}"), f.each_ref().map(|f| f.seek_data(off)));
                same(&format!("seek_hole {what}"), f.each_ref().map(|f| f.seek_hole(off)));
            }
            9 => {
                for f in f {
                    assert_holes_are_zero(&**f, name);
                }
            }
            10 => ignore(same(&format!("stat {what}"), f.each_ref().map(|f| f.stat().map(|s| s.len)))),
            11 => ignore(same(&format!("drop {what}"), f.each_ref().map(|f| f.drop_cached()))),
            _ => drop(self.files.swap_remove(at)),
        }
    }
}

fn clone(e: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(e.raw_os_error().expect("an errno"))
}

fn assert_holes_are_zero(f: &dyn DiskFile, name: &str) {
    let len = f.stat().unwrap().len;
    let mut at = 0;
    while at < len {
        let data = f.seek_data(at).unwrap().unwrap_or(len);
        let mut hole = vec![1; (data - at) as usize];
        assert_eq!(f.read_at(&mut hole, at).unwrap(), hole.len());
        assert!(hole.iter().all(|b| *b == 0), "{name}: a hole at {at} is not empty");
        if data == len {
            break;
        }
        at = f.seek_hole(data).unwrap().unwrap();
        assert!(at > data, "{name}: no progress at {data}");
    }
    assert_eq!(f.seek_data(len).unwrap(), None);
    assert_eq!(f.seek_hole(len).unwrap(), None);
}

fn run(seed: u64, ops: usize) {
    let base = std::env::temp_dir().join(format!("nacre-disk-{}-{seed}", std::process::id()));
    let base = base.to_str().unwrap().to_string();
    RealDisk.mkdir(&base).unwrap();
    let mem = MemDisk::new();
    mem.mkdir("/t").unwrap();
    let mut p = Pair {
        disks: [Box::new(RealDisk), Box::new(mem.clone())],
        roots: [base.clone(), "/t".into()],
        files: vec![],
        with_allocate: seed.is_multiple_of(2),
    };
    let mut rng = Rng::new(seed);
    for _ in 0..ops {
        if rng.below(3) == 0 { p.names_op(&mut rng) } else { p.file_op(&mut rng) }
    }
    p.files.clear();
    remove_tree(&RealDisk, &base);
    remove_tree(&mem, "/t");
    assert_eq!(mem.used_bytes(), 0, "space is given back");
}

fn remove_tree(d: &dyn Disk, dir: &str) {
    for name in d.list(dir).unwrap() {
        let path = format!("{dir}/{name}");
        if d.unlink(&path).is_err() {
            remove_tree(d, &path);
        }
    }
    d.rmdir(dir).unwrap();
}

#[test]
fn memory_and_host_agree() {
    for seed in 0..40 {
        run(seed, 400);
    }
}

#[test]
fn locks_space_and_missing_names_agree() {
    let base = std::env::temp_dir().join(format!("nacre-lock-{}", std::process::id()));
    let base = base.to_str().unwrap().to_string();
    RealDisk.mkdir(&base).unwrap();
    let mem = MemDisk::new();
    mem.mkdir("/t").unwrap();
    for (d, root) in [(&RealDisk as &dyn Disk, base.as_str()), (&mem, "/t")] {
        let path = format!("{root}/lock");
        let a = d.open(&path, OpenMode::CREATE).unwrap();
        let b = d.open(&path, OpenMode::WRITE).unwrap();
        assert!(a.try_lock().unwrap() && a.try_lock().unwrap());
        assert!(!b.try_lock().unwrap());
        b.unlock().unwrap();
        assert!(!b.try_lock().unwrap(), "it was not this one's");
        a.unlock().unwrap();
        assert!(b.try_lock().unwrap() && !a.try_lock().unwrap());
        b.unlock().unwrap();
        assert!(a.try_lock().unwrap());
        drop(a);
        assert!(b.try_lock().unwrap());
        let r = d.open(&path, OpenMode::READ).unwrap();
        assert_eq!(r.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(9), "EBADF");
        let s = d.space(root).unwrap();
        assert!(s.total >= s.free && s.free >= s.available && s.files > 0);
        assert_eq!(
            d.open(&format!("{root}/no/file"), OpenMode::CREATE).err().unwrap().kind(),
            io::ErrorKind::NotFound
        );
        let long = format!("{root}/{}", "n".repeat(256));
        assert_eq!(d.mkdir(&long).unwrap_err().raw_os_error(), Some(36), "ENAMETOOLONG");
        drop((b, r));
        remove_tree(d, root);
    }
}

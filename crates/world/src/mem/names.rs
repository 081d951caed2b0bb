//! Directories: names now, names on disk, and the operations in between.

use super::file::FileNode;
use super::{CrashMode, DiskCounters, errno};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

pub(super) const ROOT: u64 = 1;

#[derive(Clone)]
pub(super) enum Kind {
    File(FileNode),
    Dir { now: BTreeMap<String, u64>, disk: BTreeMap<String, u64> },
}

#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// Names now and on disk (0 or 1 each), and open handles.
    links: u32,
    disk_links: u32,
    pub(super) opens: u32,
}

/// One operation on names: it reaches the disk as a whole or not at all.
#[derive(Clone)]
struct NameOp {
    /// (directory, name, what it names afterwards).
    sets: Vec<(u64, String, Option<u64>)>,
    makes_dir: Option<u64>,
    removes_dir: Option<u64>,
}

/// Everything a disk holds. A copy is cheap: nodes are shared until they change.
#[derive(Clone)]
pub(super) struct State {
    nodes: BTreeMap<u64, Arc<Node>>,
    next: u64,
    pending: Vec<NameOp>,
    /// Nodes without a name or a handle: to be forgotten once the disk forgets them too.
    dead: BTreeSet<u64>,
    /// Pages of files that have a name or a handle.
    pub(super) used_pages: u64,
}

impl State {
    pub(super) fn new() -> State {
        let root = Node { kind: new_dir(), links: 1, disk_links: 1, opens: 0 };
        State {
            nodes: BTreeMap::from([(ROOT, Arc::new(root))]),
            next: ROOT + 1,
            pending: Vec::new(),
            dead: BTreeSet::new(),
            used_pages: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(super) fn node(&self, ino: u64) -> &Node {
        self.nodes.get(&ino).expect("a named or open node exists")
    }

    pub(super) fn node_mut(&mut self, ino: u64) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&ino).expect("a named or open node exists"))
    }

    pub(super) fn file(&self, ino: u64) -> io::Result<&FileNode> {
        match &self.node(ino).kind {
            Kind::File(f) => Ok(f),
            Kind::Dir { .. } => Err(errno(libc::EISDIR)),
        }
    }

    /// Runs `f` on a file and keeps the space it uses in the books.
    pub(super) fn with_file<T>(&mut self, ino: u64, f: impl FnOnce(&mut FileNode) -> T) -> io::Result<T> {
        let Kind::File(file) = &mut self.node_mut(ino).kind else {
            return Err(errno(libc::EISDIR));
        };
        let before = file.now.allocated_pages();
        let out = f(file);
        let after = file.now.allocated_pages();
        assert!(self.used_pages >= before, "the pages of a file are counted while it has a name or a handle");
        self.used_pages = self.used_pages + after - before;
        Ok(out)
    }

    pub(super) fn entries(&self, dir: u64) -> io::Result<&BTreeMap<String, u64>> {
        match &self.node(dir).kind {
            Kind::Dir { now, .. } => Ok(now),
            Kind::File(_) => Err(errno(libc::ENOTDIR)),
        }
    }

    pub(super) fn resolve(&self, path: &str) -> io::Result<u64> {
        if !path.starts_with('/') {
            return Err(errno(libc::EINVAL));
        }
        let mut at = ROOT;
        for part in path.split('/').filter(|p| !p.is_empty()) {
            at = *self.entries(at)?.get(part).ok_or_else(|| errno(libc::ENOENT))?;
        }
        Ok(at)
    }

    /// The directory and the last name of a path; the name need not exist.
    pub(super) fn parent<'a>(&self, path: &'a str) -> io::Result<(u64, &'a str)> {
        let path = path.trim_end_matches('/');
        let (dir, name) = path.rsplit_once('/').ok_or_else(|| errno(libc::EINVAL))?;
        if name.len() > model::limits::NAME_MAX_BYTES {
            return Err(errno(libc::ENAMETOOLONG));
        }
        let dir = self.resolve(if dir.is_empty() { "/" } else { dir })?;
        self.entries(dir)?;
        Ok((dir, name))
    }

    pub(super) fn lookup(&self, dir: u64, name: &str) -> io::Result<Option<u64>> {
        Ok(self.entries(dir)?.get(name).copied())
    }

    pub(super) fn create(&mut self, dir: u64, name: &str, is_dir: bool) -> u64 {
        let ino = self.next;
        self.next += 1;
        let kind = if is_dir { new_dir() } else { Kind::File(FileNode::default()) };
        let other = self.nodes.insert(ino, Arc::new(Node { kind, links: 0, disk_links: 0, opens: 0 }));
        assert!(other.is_none(), "numbers of nodes are never reused");
        self.apply_now(NameOp {
            sets: vec![(dir, name.to_string(), Some(ino))],
            makes_dir: is_dir.then_some(ino),
            removes_dir: None,
        });
        ino
    }

    pub(super) fn unlink(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let ino = self.lookup(dir, name)?.ok_or_else(|| errno(libc::ENOENT))?;
        self.file(ino)?;
        self.apply_now(NameOp {
            sets: vec![(dir, name.to_string(), None)],
            makes_dir: None,
            removes_dir: None,
        });
        Ok(())
    }

    pub(super) fn rmdir(&mut self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let ino = self.lookup(dir, name)?.ok_or_else(|| errno(libc::ENOENT))?;
        if !self.entries(ino)?.is_empty() {
            return Err(errno(libc::ENOTEMPTY));
        }
        self.apply_now(NameOp {
            sets: vec![(dir, name.to_string(), None)],
            makes_dir: None,
            removes_dir: Some(ino),
        });
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let ino = self.lookup(from_dir, from_name)?.ok_or_else(|| errno(libc::ENOENT))?;
        let is_dir = self.entries(ino).is_ok();
        if is_dir && self.inside(to_dir, ino) {
            return Err(errno(libc::EINVAL));
        }
        let mut removes_dir = None;
        if let Some(old) = self.lookup(to_dir, to_name)? {
            if old == ino {
                return Ok(());
            }
            match (is_dir, self.entries(old).map(BTreeMap::is_empty)) {
                (true, Err(_)) => return Err(errno(libc::ENOTDIR)),
                (false, Ok(_)) => return Err(errno(libc::EISDIR)),
                (true, Ok(false)) => return Err(errno(libc::ENOTEMPTY)),
                (true, Ok(true)) => removes_dir = Some(old),
                (false, Err(_)) => {}
            }
        }
        self.apply_now(NameOp {
            // The new name first: the node is never without one.
            sets: vec![(to_dir, to_name.to_string(), Some(ino)), (from_dir, from_name.to_string(), None)],
            makes_dir: None,
            removes_dir,
        });
        Ok(())
    }

    /// Whether directory `dir` is `top` or below it.
    fn inside(&self, dir: u64, top: u64) -> bool {
        dir == top || self.entries(top).is_ok_and(|e| e.values().any(|&c| self.inside(dir, c)))
    }

    fn apply_now(&mut self, op: NameOp) {
        self.pending.push(op.clone());
        for (dir, name, ino) in &op.sets {
            let Kind::Dir { now, .. } = &mut self.node_mut(*dir).kind else {
                unreachable!("checked by the caller: {dir} is a directory");
            };
            let old = match ino {
                Some(i) => now.insert(name.clone(), *i),
                None => now.remove(name),
            };
            if let Some(i) = ino {
                let n = self.node_mut(*i);
                n.links += 1;
                if n.links == 1 && n.opens == 0 {
                    self.revive(*i);
                }
            }
            if let Some(o) = old {
                let n = self.node_mut(o);
                assert!(n.links > 0, "a node has a link for each of its names");
                n.links -= 1;
                self.bury(o);
            }
        }
    }

    /// A node got its first name or handle: its space counts.
    fn revive(&mut self, ino: u64) {
        self.dead.remove(&ino);
        if let Kind::File(f) = &self.node(ino).kind {
            self.used_pages += f.now.allocated_pages();
        }
    }

    /// A node may have lost its last name or handle: its space is free.
    fn bury(&mut self, ino: u64) {
        let n = self.node(ino);
        if n.links == 0 && n.opens == 0 {
            assert_ne!(ino, ROOT, "the root directory never goes");
            if let Kind::File(f) = &n.kind {
                let pages = f.now.allocated_pages();
                assert!(self.used_pages >= pages, "no more pages come free than are in use");
                self.used_pages -= pages;
            }
            self.dead.insert(ino);
            self.forget_dead();
        }
    }

    /// Drops nodes that neither names, handles, the disk nor a pending operation know.
    fn forget_dead(&mut self) {
        let dead: Vec<u64> = self.dead.iter().copied().filter(|i| self.node(*i).disk_links == 0).collect();
        for ino in dead {
            let wanted = |op: &NameOp| {
                op.removes_dir == Some(ino)
                    || op.makes_dir == Some(ino)
                    || op.sets.iter().any(|(d, _, to)| *to == Some(ino) || *d == ino)
            };
            if !self.pending.iter().any(wanted) {
                self.nodes.remove(&ino);
                self.dead.remove(&ino);
            }
        }
    }

    pub(super) fn opened(&mut self, ino: u64) {
        self.node_mut(ino).opens += 1;
    }

    pub(super) fn released(&mut self, ino: u64) {
        let n = self.node_mut(ino);
        assert!(n.opens > 0, "only a file that is open is closed");
        n.opens -= 1;
        self.bury(ino);
    }

    fn apply_disk(&mut self, op: NameOp) {
        for (dir, name, ino) in op.sets {
            // A directory that is long gone has nothing to keep.
            let Some(node) = self.nodes.get_mut(&dir) else { continue };
            let Kind::Dir { disk, .. } = &mut Arc::make_mut(node).kind else {
                unreachable!("{dir} is a directory");
            };
            let old = match ino {
                Some(i) => disk.insert(name, i),
                None => disk.remove(&name),
            };
            if let Some(i) = ino {
                self.node_mut(i).disk_links += 1;
            }
            if let Some(o) = old {
                let n = self.node_mut(o);
                assert!(n.disk_links > 0, "a node has a link for each of its names on disk");
                n.disk_links -= 1;
            }
        }
    }

    /// Makes the names of a directory durable, and whatever they build on.
    pub(super) fn sync_dir(&mut self, dir: u64) {
        let mut needed_names = BTreeSet::new();
        let mut needed_dirs = BTreeSet::new();
        let mut emptied = BTreeSet::from([dir]);
        let mut take = vec![false; self.pending.len()];
        for (i, op) in self.pending.iter().enumerate().rev() {
            let wanted = op
                .sets
                .iter()
                .any(|(d, n, _)| emptied.contains(d) || needed_names.contains(&(*d, n.clone())))
                || op.makes_dir.is_some_and(|d| needed_dirs.contains(&d));
            if wanted {
                take[i] = true;
                emptied.extend(op.removes_dir);
                for (d, n, _) in &op.sets {
                    needed_names.insert((*d, n.clone()));
                    needed_dirs.insert(*d);
                }
            }
        }
        let ops = std::mem::take(&mut self.pending);
        for (op, take) in ops.into_iter().zip(take) {
            if take { self.apply_disk(op) } else { self.pending.push(op) }
        }
        self.forget_dead();
    }

    /// The power fails: see [`super::MemDisk::crash`].
    pub(super) fn power_loss(
        &mut self,
        mode: CrashMode,
        rng: &mut Rng,
        count: &mut DiskCounters,
        open: &BTreeMap<u64, u32>,
    ) {
        let mut lost_names: BTreeSet<(u64, String)> = BTreeSet::new();
        let mut lost_dirs = BTreeSet::new();
        let mut touched = BTreeSet::new();
        for op in std::mem::take(&mut self.pending) {
            let builds_on_lost = op
                .sets
                .iter()
                .any(|(d, n, _)| lost_dirs.contains(d) || lost_names.contains(&(*d, n.clone())))
                || op.removes_dir.is_some_and(|d| touched.contains(&d));
            let keep = !builds_on_lost
                && match mode {
                    CrashMode::Random => rng.coin(),
                    CrashMode::LoseAll => false,
                    CrashMode::KeepAll => true,
                };
            if keep {
                count.kept_names += 1;
                self.apply_disk(op);
            } else {
                count.lost_names += 1;
                lost_dirs.extend(op.makes_dir);
                for (d, n, _) in op.sets {
                    touched.insert(d);
                    lost_names.insert((d, n));
                }
            }
        }
        for node in self.nodes.values_mut() {
            match &mut Arc::make_mut(node).kind {
                Kind::File(f) => {
                    f.lose_pending(mode, rng, count);
                    f.reload();
                }
                Kind::Dir { now, disk } => now.clone_from(disk),
            }
        }
        self.restart(open);
    }

    /// Only these handles are left (by file): drops what has no name, and does the books afresh.
    pub(super) fn restart(&mut self, open: &BTreeMap<u64, u32>) {
        let mut reached = BTreeSet::from([ROOT]);
        reached.extend(open.keys());
        for op in &self.pending {
            reached.extend(op.sets.iter().flat_map(|(d, _, to)| [Some(*d), *to]).flatten());
            reached.extend(op.makes_dir.into_iter().chain(op.removes_dir));
        }
        let mut todo: Vec<u64> = reached.iter().copied().collect();
        let (mut links, mut disk_links) = (BTreeMap::new(), BTreeMap::new());
        while let Some(ino) = todo.pop() {
            if let Some(Kind::Dir { now, disk }) = self.nodes.get(&ino).map(|n| &n.kind) {
                for (entries, count) in [(now, &mut links), (disk, &mut disk_links)] {
                    for &child in entries.values() {
                        *count.entry(child).or_insert(0) += 1;
                        if reached.insert(child) {
                            todo.push(child);
                        }
                    }
                }
            }
        }
        self.nodes.retain(|i, _| reached.contains(i));
        assert!(self.nodes.contains_key(&ROOT), "there is always a root directory");
        self.used_pages = 0;
        self.dead.clear();
        for (&ino, node) in &mut self.nodes {
            let node = Arc::make_mut(node);
            node.opens = open.get(&ino).copied().unwrap_or(0);
            node.links = links.get(&ino).copied().unwrap_or(0);
            node.disk_links = disk_links.get(&ino).copied().unwrap_or(0);
            if node.links == 0 && node.opens == 0 && ino != ROOT {
                self.dead.insert(ino);
            } else if let Kind::File(f) = &node.kind {
                self.used_pages += f.now.allocated_pages();
            }
        }
    }
}

fn new_dir() -> Kind {
    Kind::Dir { now: BTreeMap::new(), disk: BTreeMap::new() }
}

//! The reference model: a file system in a few hundred lines, one operation after the other.
//!
//! Each actor of the workload owns a subtree and a [`Tree`] of it. [`Tree::apply`] says what an operation
//! must give and does it; what the cluster gave is compared with that, error numbers included.

use crate::components::{self, Change};
use model::{Errno, Fid, FileType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub type Id = u32;
pub const ROOT: Id = 0;

/// Largest file of the workload, so that contents can be compared as a whole.
pub const FILE_MAX_BYTES: u64 = 400 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Dir(BTreeMap<Vec<u8>, Id>),
    File(Arc<Vec<u8>>),
    Symlink(Vec<u8>),
    Fifo,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// As the cluster told it; unknown only after an operation without an answer.
    pub fid: Option<Fid>,
    pub body: Body,
    pub mode: u32,
    pub nlink: u32,
    pub parent: Id,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub opens: u32,
    /// O_TMPFILE: not linked yet.
    pub unnamed: bool,
    /// Number of objects the file was asked to have.
    pub stripes: u32,
    /// Mounts, each in one of its lives, that may keep written bytes for themselves.
    pub kept_by: Vec<(usize, u64)>,
    /// What the file held at times since everything was with the servers.
    pub versions: Vec<Arc<Vec<u8>>>,
    /// Where the changes since then began and ended.
    pub cuts: BTreeSet<u64>,
    /// Its layout may end here, and nobody writes behind that.
    pub end: Option<u64>,
    /// Components were deleted: it ends where an object of what is left does, anywhere.
    pub pruned: bool,
}

impl Node {
    /// A file's bytes.
    pub fn content(&self) -> Option<Arc<Vec<u8>>> {
        match &self.body {
            Body::File(d) => Some(d.clone()),
            _ => None,
        }
    }

    pub fn kind(&self) -> FileType {
        match self.body {
            Body::Dir(_) => FileType::Directory,
            Body::File(_) => FileType::Regular,
            Body::Symlink(_) => FileType::Symlink,
            Body::Fifo => FileType::Fifo,
        }
    }

    pub fn data(&self) -> &[u8] {
        match &self.body {
            Body::File(d) => d.as_slice(),
            _ => &[],
        }
    }
}

/// One operation, on nodes of the model.
#[derive(Clone, Debug)]
pub enum Op {
    /// Makes a file and opens it; without `exclusive` an existing one is opened.
    Create {
        dir: Id,
        name: Vec<u8>,
        mode: u32,
        stripes: u32,
        exclusive: bool,
    },
    Tmpfile {
        dir: Id,
        mode: u32,
    },
    Mkdir {
        dir: Id,
        name: Vec<u8>,
        mode: u32,
    },
    Symlink {
        dir: Id,
        name: Vec<u8>,
        target: Vec<u8>,
    },
    Fifo {
        dir: Id,
        name: Vec<u8>,
        mode: u32,
    },
    Link {
        node: Id,
        dir: Id,
        name: Vec<u8>,
    },
    Unlink {
        dir: Id,
        name: Vec<u8>,
    },
    Rmdir {
        dir: Id,
        name: Vec<u8>,
    },
    Rename {
        dir: Id,
        name: Vec<u8>,
        to: Id,
        to_name: Vec<u8>,
        flags: u32,
    },
    Open {
        node: Id,
    },
    Close {
        node: Id,
        handle: usize,
    },
    Write {
        node: Id,
        off: u64,
        data: Vec<u8>,
    },
    Append {
        node: Id,
        data: Vec<u8>,
    },
    Read {
        node: Id,
        off: u64,
        len: u32,
    },
    Truncate {
        node: Id,
        size: u64,
    },
    Fallocate {
        node: Id,
        mode: u32,
        off: u64,
        len: u64,
    },
    Copy {
        from: Id,
        from_off: u64,
        to: Id,
        to_off: u64,
        len: u64,
    },
    Seek {
        node: Id,
        off: u64,
        hole: bool,
    },
    Chmod {
        node: Id,
        mode: u32,
    },
    Getattr {
        node: Id,
    },
    Lookup {
        dir: Id,
        name: Vec<u8>,
    },
    Readdir {
        dir: Id,
        max_bytes: u32,
        plus: bool,
    },
    Readlink {
        node: Id,
    },
    Setxattr {
        node: Id,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    },
    Getxattr {
        node: Id,
        name: Vec<u8>,
    },
    Removexattr {
        node: Id,
        name: Vec<u8>,
    },
    Listxattr {
        node: Id,
    },
    Getpath {
        node: Id,
    },
    Fsync {
        node: Id,
    },
    /// `lfs setstripe` on a file with components.
    Components {
        node: Id,
        change: Change,
    },
}

impl Op {
    /// The file whose bytes it changes.
    pub fn written(&self) -> Option<Id> {
        match self {
            Op::Write { node, .. }
            | Op::Append { node, .. }
            | Op::Truncate { node, .. }
            | Op::Fallocate { node, .. } => Some(*node),
            Op::Copy { to, .. } => Some(*to),
            Op::Components { node, change: Change::Delete { .. } } => Some(*node),
            _ => None,
        }
    }

    /// The nodes it names.
    pub fn nodes(&self) -> [Id; 2] {
        match *self {
            Op::Components { node, .. } => [node, node],
            Op::Link { node, dir, .. } => [node, dir],
            Op::Rename { dir, to, .. } => [dir, to],
            Op::Copy { from, to, .. } => [from, to],
            Op::Create { dir, .. }
            | Op::Tmpfile { dir, .. }
            | Op::Mkdir { dir, .. }
            | Op::Symlink { dir, .. }
            | Op::Fifo { dir, .. }
            | Op::Unlink { dir, .. }
            | Op::Rmdir { dir, .. }
            | Op::Lookup { dir, .. }
            | Op::Readdir { dir, .. } => [dir, dir],
            Op::Open { node }
            | Op::Close { node, .. }
            | Op::Write { node, .. }
            | Op::Append { node, .. }
            | Op::Read { node, .. }
            | Op::Truncate { node, .. }
            | Op::Fallocate { node, .. }
            | Op::Seek { node, .. }
            | Op::Chmod { node, .. }
            | Op::Getattr { node }
            | Op::Readlink { node }
            | Op::Setxattr { node, .. }
            | Op::Getxattr { node, .. }
            | Op::Removexattr { node, .. }
            | Op::Listxattr { node }
            | Op::Getpath { node }
            | Op::Fsync { node } => [node, node],
        }
    }
}

/// What of a file's attributes the model knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub fid: Option<Fid>,
    pub kind: FileType,
    pub mode: u32,
    pub nlink: u32,
    /// Not of directories.
    pub size: Option<u64>,
}

/// What an operation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    Unit,
    /// The node that the result names, and its attributes.
    Node(Id, Shape),
    Bytes(Vec<u8>),
    Number(u64),
    /// Any of the range.
    Between(u64, u64),
    Entries(Vec<(Vec<u8>, Option<Fid>, FileType)>),
    Names(BTreeSet<Vec<u8>>),
}

pub const NOREPLACE: u32 = 1;
pub const EXCHANGE: u32 = 2;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
pub const KEEP_SIZE: u32 = 1;
pub const PUNCH_HOLE: u32 = 2;
pub const ZERO_RANGE: u32 = 0x10;

#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Id, Node>,
    next: Id,
    /// Path of the tree's root from the mount's.
    prefix: Vec<u8>,
    /// Nothing is forgotten, open or not.
    hold: bool,
}

type R<T> = Result<T, Errno>;

impl Tree {
    pub fn new(root: Fid, mode: u32, prefix: &[u8]) -> Tree {
        let node = Node {
            fid: Some(root),
            body: Body::Dir(BTreeMap::new()),
            mode,
            nlink: 2,
            parent: ROOT,
            xattrs: BTreeMap::new(),
            opens: 0,
            unnamed: false,
            stripes: 0,
            kept_by: Vec::new(),
            versions: Vec::new(),
            cuts: BTreeSet::new(),
            end: None,
            pruned: false,
        };
        Tree { nodes: BTreeMap::from([(ROOT, node)]), next: ROOT + 1, prefix: prefix.to_vec(), hold: false }
    }

    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    pub fn get(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub(crate) fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of the model")
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id, &Node)> {
        self.nodes.iter().map(|(i, n)| (*i, n))
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// After a change that may have happened in part: what the file holds now.
    pub fn adopt(&mut self, id: Id, data: Vec<u8>) {
        *self.bytes(id) = data;
    }

    /// The number of the next node.
    pub fn next_id(&self) -> Id {
        self.next
    }

    /// Keeps nodes that nothing refers to, or not any more.
    pub fn hold(&mut self, on: bool) {
        self.hold = on;
    }

    /// Whether the nodes that `op` names are there.
    pub fn has(&self, op: &Op) -> bool {
        op.nodes().iter().all(|n| self.nodes.contains_key(n))
    }

    /// Does `op` again (`done`), or only takes the numbers that it took the first time.
    pub fn redo(&mut self, op: &Op, ids: Id, done: bool) {
        let next = self.next + ids;
        if done && self.has(op) {
            // What it relied on may be lost: then so is this.
            let _ = self.apply(op);
        }
        self.next = next;
    }

    /// Only these are open; what nothing refers to is forgotten.
    pub fn release(&mut self, opens: &BTreeMap<Id, u32>) {
        self.hold = false;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.node_mut(id).opens = opens.get(&id).copied().unwrap_or(0);
            if !self.is_dir(id) {
                self.forget_if_gone(id);
            }
        }
    }

    /// A file was changed by a mount that may keep the change for itself (`by`), or by the servers.
    pub fn changed(&mut self, id: Id, before: Arc<Vec<u8>>, op: &Op, by: Option<(usize, u64)>) {
        let after = self.get(id).map_or(0, |n| n.data().len() as u64);
        if let Op::Components { change: Change::Delete { start, .. }, .. } = op {
            return components::forget_behind(self, id, *start, after);
        }
        let bounds = bounds(self, op, before.len() as u64, after);
        let Some(n) = self.nodes.get_mut(&id) else { return };
        if by.is_some() || !n.kept_by.is_empty() {
            n.cuts.extend(bounds);
            n.versions.push(before);
        }
        if let Some(m) = by
            && !n.kept_by.contains(&m)
        {
            n.kept_by.push(m);
        }
    }

    /// Everything that a mount wrote to a file is with the servers.
    pub fn flushed(&mut self, id: Id, by: (usize, u64)) {
        let Some(n) = self.nodes.get_mut(&id) else { return };
        n.kept_by.retain(|m| *m != by);
        if n.kept_by.is_empty() {
            n.versions.clear();
            n.cuts.clear();
        }
    }

    /// Files of which a dead mount may have taken bytes along.
    pub fn lossy(&self, dead: impl Fn(usize, u64) -> bool) -> Vec<Id> {
        let of = |n: &Node| n.kept_by.iter().any(|(m, l)| dead(*m, *l));
        self.nodes.iter().filter(|(_, n)| of(n)).map(|(id, _)| *id).collect()
    }

    /// Whether what a file holds can have become of its versions when some of the newest writes were lost:
    /// see [`pieces_fit`]. `also`: an operation that may have happened, and the file after it.
    pub fn plausible(&self, id: Id, seen: &[u8], also: Option<(&Op, &[u8])>) -> bool {
        let n = self.node(id);
        let mut all: Vec<&[u8]> = n.versions.iter().map(|v| v.as_slice()).chain([n.data()]).collect();
        let mut cuts = n.cuts.clone();
        if let Some((op, after)) = also {
            cuts.extend(bounds(self, op, n.data().len() as u64, after.len() as u64));
            all.push(after);
        }
        if n.pruned || also.is_some_and(|(op, _)| matches!(op, Op::Components { .. })) {
            cuts.insert(seen.len() as u64);
        }
        pieces_fit(seen, cuts, &all)
    }

    /// What a file holds after the loss.
    pub fn lost(&mut self, id: Id, seen: Vec<u8>, dead: impl Fn(usize, u64) -> bool) {
        *self.bytes(id) = seen;
        let n = self.node_mut(id);
        n.kept_by.retain(|(m, l)| !dead(*m, *l));
        n.versions = if n.kept_by.is_empty() { Vec::new() } else { n.content().into_iter().collect() };
        n.cuts.clear();
    }

    pub fn fid(&self, id: Id) -> Fid {
        self.node(id).fid.unwrap_or(Fid::NONE)
    }

    pub fn set_fid(&mut self, id: Id, fid: Fid) {
        self.node_mut(id).fid = Some(fid);
    }

    pub fn entries(&self, dir: Id) -> &BTreeMap<Vec<u8>, Id> {
        match &self.node(dir).body {
            Body::Dir(e) => e,
            _ => unreachable!("only directories are listed"),
        }
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.node_mut(dir).body {
            Body::Dir(e) => e,
            _ => unreachable!("only directories are changed"),
        }
    }

    fn is_dir(&self, id: Id) -> bool {
        matches!(self.node(id).body, Body::Dir(_))
    }

    /// Whether `id` is `top` or below it.
    pub fn inside(&self, mut id: Id, top: Id) -> bool {
        loop {
            if id == top {
                return true;
            }
            if id == ROOT {
                return false;
            }
            id = self.node(id).parent;
        }
    }

    /// Some name of a file, and the directory that it is in.
    pub fn a_name_of(&self, id: Id) -> Option<(Id, Vec<u8>)> {
        self.nodes.iter().find_map(|(dir, n)| match &n.body {
            Body::Dir(names) => names.iter().find(|(_, to)| **to == id).map(|(name, _)| (*dir, name.clone())),
            _ => None,
        })
    }

    pub fn depth(&self, mut id: Id) -> usize {
        let mut n = 0;
        while id != ROOT {
            id = self.node(id).parent;
            n += 1;
        }
        n
    }

    pub fn shape(&self, id: Id) -> Shape {
        let n = self.node(id);
        let size = match &n.body {
            Body::Dir(_) => None,
            Body::File(d) => Some(d.len() as u64),
            Body::Symlink(t) => Some(t.len() as u64),
            Body::Fifo => Some(0),
        };
        Shape { fid: n.fid, kind: n.kind(), mode: n.mode, nlink: n.nlink, size }
    }

    fn named(&self, id: Id) -> Out {
        Out::Node(id, self.shape(id))
    }

    fn add(&mut self, dir: Id, name: &[u8], body: Body, mode: u32) -> R<Id> {
        if self.entries(dir).contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let id = self.new_node(dir, body, mode);
        self.entries_mut(dir).insert(name.to_vec(), id);
        if self.is_dir(id) {
            self.node_mut(dir).nlink += 1;
        }
        Ok(id)
    }

    fn new_node(&mut self, dir: Id, body: Body, mode: u32) -> Id {
        let id = self.next;
        self.next += 1;
        let nlink = if matches!(body, Body::Dir(_)) { 2 } else { 1 };
        let node = Node {
            fid: None,
            body,
            mode,
            nlink,
            parent: dir,
            xattrs: BTreeMap::new(),
            opens: 0,
            unnamed: false,
            stripes: 0,
            kept_by: Vec::new(),
            versions: Vec::new(),
            cuts: BTreeSet::new(),
            end: None,
            pruned: false,
        };
        self.nodes.insert(id, node);
        id
    }

    fn drop_link(&mut self, id: Id) {
        if self.is_dir(id) {
            self.nodes.remove(&id);
            return;
        }
        let n = self.node_mut(id);
        n.nlink -= 1;
        self.forget_if_gone(id);
    }

    fn forget_if_gone(&mut self, id: Id) {
        let n = self.node(id);
        if !self.hold && n.opens == 0 && (n.nlink == 0 || n.unnamed) {
            self.nodes.remove(&id);
        }
    }

    pub fn opened(&mut self, id: Id) {
        self.node_mut(id).opens += 1;
    }

    pub fn closed(&mut self, id: Id) {
        self.node_mut(id).opens -= 1;
        self.forget_if_gone(id);
    }

    /// Does `op` and says what it gives.
    pub fn apply(&mut self, op: &Op) -> R<Out> {
        match op {
            Op::Create { dir, name, mode, stripes, exclusive } => {
                self.create(*dir, name, *mode, *stripes, *exclusive)
            }
            Op::Tmpfile { dir, mode } => {
                let id = self.new_node(*dir, Body::File(Arc::default()), *mode);
                let n = self.node_mut(id);
                (n.unnamed, n.nlink, n.opens) = (true, 0, 1);
                Ok(self.named(id))
            }
            Op::Mkdir { dir, name, mode } => {
                let id = self.add(*dir, name, Body::Dir(BTreeMap::new()), *mode)?;
                Ok(self.named(id))
            }
            Op::Symlink { dir, name, target } => {
                let id = self.add(*dir, name, Body::Symlink(target.clone()), 0o777)?;
                Ok(self.named(id))
            }
            Op::Fifo { dir, name, mode } => {
                let id = self.add(*dir, name, Body::Fifo, *mode)?;
                Ok(self.named(id))
            }
            Op::Link { node, dir, name } => self.link(*node, *dir, name),
            Op::Unlink { dir, name } => self.unlink(*dir, name),
            Op::Rmdir { dir, name } => self.rmdir(*dir, name),
            Op::Rename { dir, name, to, to_name, flags } => self.rename(*dir, name, *to, to_name, *flags),
            Op::Open { node } => {
                self.opened(*node);
                Ok(Out::Unit)
            }
            Op::Close { node, .. } => {
                self.closed(*node);
                Ok(Out::Unit)
            }
            Op::Lookup { dir, name } => {
                let id = *self.entries(*dir).get(name).ok_or(Errno::ENOENT)?;
                Ok(self.named(id))
            }
            Op::Getattr { node } => Ok(self.named(*node)),
            Op::Fsync { .. } => Ok(Out::Unit),
            Op::Chmod { node, mode } => {
                self.node_mut(*node).mode = *mode;
                Ok(self.named(*node))
            }
            Op::Readdir { dir, .. } => {
                let of =
                    |(name, &id): (&Vec<u8>, &Id)| (name.clone(), self.node(id).fid, self.node(id).kind());
                Ok(Out::Entries(self.entries(*dir).iter().map(of).collect()))
            }
            Op::Readlink { node } => match &self.node(*node).body {
                Body::Symlink(t) => Ok(Out::Bytes(t.clone())),
                _ => Err(Errno::EINVAL),
            },
            Op::Getpath { node } => Ok(Out::Names(self.paths(*node))),
            Op::Components { node, change } => Ok(components::apply(self, *node, *change)),
            Op::Setxattr { .. } | Op::Getxattr { .. } | Op::Removexattr { .. } | Op::Listxattr { .. } => {
                self.xattr(op)
            }
            _ => self.data(op),
        }
    }

    fn create(&mut self, dir: Id, name: &[u8], mode: u32, stripes: u32, exclusive: bool) -> R<Out> {
        if let Some(&id) = self.entries(dir).get(name) {
            return match &self.node(id).body {
                _ if exclusive => Err(Errno::EEXIST),
                Body::File(_) => {
                    self.opened(id);
                    Ok(self.named(id))
                }
                // The kernel opens what is no regular file by itself; the workload asks for files only.
                Body::Dir(_) => Err(Errno::EISDIR),
                _ => Err(Errno::EEXIST),
            };
        }
        let id = self.add(dir, name, Body::File(Arc::default()), mode)?;
        let n = self.node_mut(id);
        n.stripes = stripes;
        n.opens = 1;
        Ok(self.named(id))
    }

    fn link(&mut self, id: Id, dir: Id, name: &[u8]) -> R<Out> {
        // The kernel looks at the new name first.
        if self.entries(dir).contains_key(name) {
            return Err(Errno::EEXIST);
        }
        if self.is_dir(id) {
            return Err(Errno::EPERM);
        }
        if self.node(id).nlink == 0 && !self.node(id).unnamed {
            return Err(Errno::ENOENT);
        }
        self.entries_mut(dir).insert(name.to_vec(), id);
        let n = self.node_mut(id);
        n.nlink += 1;
        n.unnamed = false;
        Ok(self.named(id))
    }

    fn unlink(&mut self, dir: Id, name: &[u8]) -> R<Out> {
        let id = *self.entries(dir).get(name).ok_or(Errno::ENOENT)?;
        if self.is_dir(id) {
            return Err(Errno::EISDIR);
        }
        self.entries_mut(dir).remove(name);
        self.drop_link(id);
        Ok(Out::Unit)
    }

    fn rmdir(&mut self, dir: Id, name: &[u8]) -> R<Out> {
        let id = *self.entries(dir).get(name).ok_or(Errno::ENOENT)?;
        if !self.is_dir(id) {
            return Err(Errno::ENOTDIR);
        }
        if !self.entries(id).is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.entries_mut(dir).remove(name);
        self.node_mut(dir).nlink -= 1;
        self.drop_link(id);
        Ok(Out::Unit)
    }

    fn rename(&mut self, dir: Id, name: &[u8], to: Id, to_name: &[u8], flags: u32) -> R<Out> {
        let id = *self.entries(dir).get(name).ok_or(Errno::ENOENT)?;
        let old = self.entries(to).get(to_name).copied();
        if flags & NOREPLACE != 0 && old.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags & EXCHANGE != 0 {
            let other = old.ok_or(Errno::ENOENT)?;
            return self.exchange((dir, name, id), (to, to_name, other));
        }
        if self.is_dir(id) && self.inside(to, id) {
            return Err(Errno::EINVAL);
        }
        if let Some(old) = old {
            if self.is_dir(old) && self.inside(dir, old) {
                return Err(Errno::ENOTEMPTY);
            }
            if old == id {
                return Ok(Out::Unit);
            }
            match (self.is_dir(id), self.is_dir(old)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if !self.entries(old).is_empty() => return Err(Errno::ENOTEMPTY),
                (true, true) => self.node_mut(to).nlink -= 1,
                (false, false) => {}
            }
        }
        self.entries_mut(dir).remove(name);
        self.entries_mut(to).insert(to_name.to_vec(), id);
        if let Some(old) = old {
            self.drop_link(old);
        }
        self.move_dir(id, dir, to);
        Ok(Out::Unit)
    }

    fn move_dir(&mut self, id: Id, from: Id, to: Id) {
        if self.is_dir(id) {
            self.node_mut(from).nlink -= 1;
            self.node_mut(to).nlink += 1;
            self.node_mut(id).parent = to;
        }
    }

    fn exchange(&mut self, a: (Id, &[u8], Id), b: (Id, &[u8], Id)) -> R<Out> {
        if (self.is_dir(a.2) && self.inside(b.0, a.2)) || (self.is_dir(b.2) && self.inside(a.0, b.2)) {
            return Err(Errno::EINVAL);
        }
        self.entries_mut(a.0).insert(a.1.to_vec(), b.2);
        self.entries_mut(b.0).insert(b.1.to_vec(), a.2);
        self.move_dir(a.2, a.0, b.0);
        self.move_dir(b.2, b.0, a.0);
        Ok(Out::Unit)
    }

    /// Paths from the mount's root.
    fn paths(&self, id: Id) -> BTreeSet<Vec<u8>> {
        let mut out = BTreeSet::new();
        let mut todo = vec![(ROOT, self.prefix.clone())];
        while let Some((dir, path)) = todo.pop() {
            if dir == id {
                out.insert(path.clone());
            }
            for (name, &child) in self.entries(dir) {
                let mut p: Vec<u8> = path.clone();
                p.push(b'/');
                p.extend_from_slice(name);
                if self.is_dir(child) {
                    todo.push((child, p));
                } else if child == id {
                    out.insert(p);
                }
            }
        }
        out
    }

    fn xattr(&mut self, op: &Op) -> R<Out> {
        match op {
            Op::Setxattr { node, name, value, flags } => {
                let x = &mut self.node_mut(*node).xattrs;
                if *flags == XATTR_CREATE && x.contains_key(name) {
                    return Err(Errno::EEXIST);
                }
                if *flags == XATTR_REPLACE && !x.contains_key(name) {
                    return Err(Errno::ENODATA);
                }
                x.insert(name.clone(), value.clone());
                Ok(Out::Unit)
            }
            Op::Getxattr { node, name } => {
                Ok(Out::Bytes(self.node(*node).xattrs.get(name).ok_or(Errno::ENODATA)?.clone()))
            }
            Op::Removexattr { node, name } => {
                self.node_mut(*node).xattrs.remove(name).ok_or(Errno::ENODATA)?;
                Ok(Out::Unit)
            }
            Op::Listxattr { node } => Ok(Out::Names(self.node(*node).xattrs.keys().cloned().collect())),
            _ => unreachable!("{op:?} is no operation on attributes"),
        }
    }

    pub(crate) fn bytes(&mut self, id: Id) -> &mut Vec<u8> {
        match &mut self.node_mut(id).body {
            Body::File(d) => Arc::make_mut(d),
            _ => unreachable!("the workload writes to files only"),
        }
    }

    fn data(&mut self, op: &Op) -> R<Out> {
        match op {
            Op::Write { node, off, data } => {
                put(self.bytes(*node), *off, data);
                Ok(Out::Number(*off))
            }
            Op::Append { node, data } => {
                let off = self.bytes(*node).len() as u64;
                put(self.bytes(*node), off, data);
                Ok(Out::Number(off))
            }
            Op::Read { node, off, len } => {
                let d = self.bytes(*node);
                let from = (*off as usize).min(d.len());
                let to = (from + *len as usize).min(d.len());
                Ok(Out::Bytes(d[from..to].to_vec()))
            }
            Op::Truncate { node, size } => {
                self.bytes(*node).resize(*size as usize, 0);
                Ok(self.named(*node))
            }
            Op::Fallocate { node, mode, off, len } => {
                let d = self.bytes(*node);
                let end = (*off + *len) as usize;
                if mode & KEEP_SIZE == 0 && d.len() < end {
                    d.resize(end, 0);
                }
                if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                    let (from, to) = ((*off as usize).min(d.len()), end.min(d.len()));
                    d[from..to].fill(0);
                }
                Ok(Out::Unit)
            }
            Op::Copy { from, from_off, to, to_off, len } => {
                let d = self.bytes(*from);
                let a = (*from_off as usize).min(d.len());
                let b = (a + *len as usize).min(d.len());
                let part = d[a..b].to_vec();
                put(self.bytes(*to), *to_off, &part);
                Ok(Out::Number(part.len() as u64))
            }
            Op::Seek { node, off, hole } => self.seek(*node, *off, *hole),
            _ => unreachable!("{op:?} is no operation on data"),
        }
    }

    /// Where data may begin and holes may end is the servers' affair, but no byte of data may be called a
    /// hole.
    fn seek(&mut self, id: Id, off: u64, hole: bool) -> R<Out> {
        let d = self.bytes(id);
        let len = d.len() as u64;
        if off >= len {
            return Err(Errno::ENXIO);
        }
        let rest = &d[off as usize..];
        if hole {
            let first_zero = rest.iter().position(|b| *b == 0).map_or(len, |p| off + p as u64);
            return Ok(Out::Between(first_zero, len));
        }
        match rest.iter().position(|b| *b != 0) {
            Some(p) => Ok(Out::Between(off, off + p as u64)),
            // Zeros may be data or not: both answers are right.
            None => Ok(Out::Between(off, u64::MAX)),
        }
    }
}

fn put(d: &mut Vec<u8>, off: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let (off, end) = (off as usize, off as usize + data.len());
    if d.len() < end {
        d.resize(end, 0);
    }
    d[off..end].copy_from_slice(data);
}

/// A request's bytes are lost or kept by pieces of this size at least, or by what it has of one: it is sent
/// in several, one for each object and none too large, and those are cut between such blocks.
pub const PIECE_BYTES: usize = 4096;

/// Where a change of a file begins and ends, and the file before and after it. `tree` has what a copy was
/// made of, which may end before what was asked for.
pub fn bounds(tree: &Tree, op: &Op, before: u64, after: u64) -> impl Iterator<Item = u64> + use<> {
    let (from, to) = match op {
        Op::Write { off, data, .. } => (*off, *off + data.len() as u64),
        Op::Fallocate { off, len, .. } => (*off, *off + *len),
        Op::Copy { from, from_off, to_off, len, .. } => {
            let there = tree.get(*from).map_or(0, |n| n.data().len() as u64);
            (*to_off, *to_off + (*len).min(there.saturating_sub(*from_off)))
        }
        // What it changes is between the two ends of the file.
        _ => (before, after),
    };
    [from, to, before, after].into_iter()
}

/// Whether what was seen of a file is made of pieces of its versions. A version is zeros behind its end. A
/// piece is what lies between two places of `cuts` in one block, and is of one version as a whole; the file
/// ends where a version or a piece does.
pub fn pieces_fit(seen: &[u8], mut cuts: BTreeSet<u64>, versions: &[&[u8]]) -> bool {
    let longest = versions.iter().map(|v| v.len()).max().unwrap_or(0);
    cuts.extend(versions.iter().map(|v| v.len() as u64));
    let len = seen.len();
    if len > longest || !(len.is_multiple_of(PIECE_BYTES) || cuts.contains(&(len as u64))) {
        return false;
    }
    cuts.extend((0..len).step_by(PIECE_BYTES).map(|at| at as u64));
    let places: Vec<usize> = cuts.range(..len as u64).map(|c| *c as usize).chain([len]).collect();
    let of = |v: &[u8], from: usize, to: usize| {
        let has = &v[from.min(v.len())..to.min(v.len())];
        seen[from..to].starts_with(has) && seen[from + has.len()..to].iter().all(|b| *b == 0)
    };
    places.windows(2).all(|p| versions.iter().any(|v| of(v, p[0], p[1])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_not_mixed_within_a_piece() {
        let (old, new) = ([1u8; 10_000], [2u8; 10_000]);
        let with = |from: usize, to: usize| {
            let mut d = old;
            d[from..to].fill(2);
            pieces_fit(&d, BTreeSet::from([3000, 9000]), &[&old, &new])
        };
        assert!(with(3000, 9000) && with(3000, 4096) && with(4096, 8192) && with(0, 0));
        assert!(!with(3000, 4000) && !with(3001, 9000) && !with(5000, 8192));
    }

    #[test]
    fn a_file_ends_where_something_ended() {
        let (old, new) = ([1u8; 5000], [1u8; 9000]);
        let ends = |at: usize| pieces_fit(&new[..at], BTreeSet::from([5500]), &[&old, &new]);
        assert!(ends(5000) && ends(5500) && ends(8192) && ends(9000) && ends(4096));
        assert!(!ends(4999) && !ends(7000));
    }
}

//! Random operations against a tree in memory, with crashes in between: every answer is the model's, every
//! acknowledged operation is there afterwards, and the checker finds nothing.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::msg::rename::{RENAME_EXCHANGE, RENAME_NOREPLACE};

/// What a name leads to: index into `Model::nodes`.
type Id = usize;

struct Node {
    fid: Fid,
    kind: FileType,
    nlink: u32,
    opens: Vec<u64>,
    children: BTreeMap<String, Id>,
    parent: Id,
    tmpfile: bool,
}

/// The reference: a tree of directories, files counted by links.
struct Model {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8),
    Mkdir(usize, u8),
    Symlink(usize, u8),
    Link(usize, usize, u8),
    Unlink(usize, u8),
    Rmdir(usize, u8),
    Rename(usize, u8, usize, u8, u8),
    Open(usize),
    Close(usize),
    Tmpfile(usize),
    Xattr(usize, u8, u16),
    Crash(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0usize..40;
    let name = || 0u8..6;
    prop_oneof![
        4 => (n(), name()).prop_map(|(d, a)| Step::Create(d, a)),
        4 => (n(), name()).prop_map(|(d, a)| Step::Mkdir(d, a)),
        1 => (n(), name()).prop_map(|(d, a)| Step::Symlink(d, a)),
        3 => (n(), n(), name()).prop_map(|(f, d, a)| Step::Link(f, d, a)),
        3 => (n(), name()).prop_map(|(d, a)| Step::Unlink(d, a)),
        2 => (n(), name()).prop_map(|(d, a)| Step::Rmdir(d, a)),
        6 => (n(), name(), n(), name(), 0u8..4).prop_map(|(d, a, e, b, f)| Step::Rename(d, a, e, b, f)),
        2 => n().prop_map(Step::Open),
        2 => n().prop_map(Step::Close),
        1 => n().prop_map(Step::Tmpfile),
        1 => (n(), 0u8..3, 0u16..2000).prop_map(|(f, a, s)| Step::Xattr(f, a, s)),
        1 => any::<u64>().prop_map(Step::Crash),
    ]
}

fn name(n: u8) -> String {
    format!("n{n}")
}

impl Model {
    fn new() -> Model {
        let root = Node {
            fid: Fid::ROOT,
            kind: FileType::Directory,
            nlink: 2,
            opens: Vec::new(),
            children: BTreeMap::new(),
            parent: 0,
            tmpfile: false,
        };
        Model { nodes: vec![root] }
    }

    /// One of the nodes, dead ones included.
    fn pick(&self, n: usize) -> Id {
        n % self.nodes.len()
    }

    fn exists(&self, i: Id) -> bool {
        self.nodes[i].nlink > 0 || !self.nodes[i].opens.is_empty()
    }

    /// What stands in the way of using `d` as a directory.
    fn dir(&self, d: Id) -> Result<(), Errno> {
        if !self.exists(d) {
            return Err(Errno::ENOENT);
        }
        if self.nodes[d].kind != FileType::Directory { Err(Errno::ENOTDIR) } else { Ok(()) }
    }

    fn vacant(&self, d: Id, n: &str) -> Result<(), Errno> {
        self.dir(d)?;
        if self.nodes[d].children.contains_key(n) {
            return Err(Errno::EEXIST);
        }
        if self.nodes[d].nlink == 0 { Err(Errno::ENOENT) } else { Ok(()) }
    }

    fn child(&self, d: Id, n: &str) -> Result<Id, Errno> {
        self.dir(d)?;
        self.nodes[d].children.get(n).copied().ok_or(Errno::ENOENT)
    }

    fn add(&mut self, d: Id, n: &str, fid: Fid, kind: FileType) {
        let id = self.nodes.len();
        let dir = kind == FileType::Directory;
        let nlink = if dir { 2 } else { 1 };
        self.nodes.push(Node {
            fid,
            kind,
            nlink,
            opens: Vec::new(),
            children: BTreeMap::new(),
            parent: d,
            tmpfile: false,
        });
        self.nodes[d].children.insert(n.into(), id);
        self.nodes[d].nlink += u32::from(dir);
    }

    fn is_dir(&self, i: Id) -> bool {
        self.nodes[i].kind == FileType::Directory
    }

    fn above(&self, anc: Id, mut d: Id) -> bool {
        loop {
            if d == anc {
                return true;
            }
            if d == 0 {
                return false;
            }
            d = self.nodes[d].parent;
        }
    }

    fn drop_link(&mut self, i: Id) {
        let n = &mut self.nodes[i];
        n.nlink = if n.kind == FileType::Directory { 0 } else { n.nlink - 1 };
    }

    fn rename(&mut self, (a, an): (Id, &str), (b, bn): (Id, &str), flags: u32) -> Result<(), Errno> {
        if flags == RENAME_EXCHANGE | RENAME_NOREPLACE {
            return Err(Errno::EINVAL);
        }
        self.dir(a)?;
        self.dir(b)?;
        let src = self.child(a, an)?;
        let dst = self.nodes[b].children.get(bn).copied();
        match dst {
            Some(_) if flags == RENAME_NOREPLACE => return Err(Errno::EEXIST),
            None if flags == RENAME_EXCHANGE => return Err(Errno::ENOENT),
            _ => {}
        }
        if self.is_dir(src) && self.above(src, b) {
            return Err(Errno::EINVAL);
        }
        if let Some(d) = dst {
            if self.is_dir(d) && self.above(d, a) {
                return Err(if flags == RENAME_EXCHANGE { Errno::EINVAL } else { Errno::ENOTEMPTY });
            }
            if d == src {
                return Ok(());
            }
        } else if self.nodes[b].nlink == 0 {
            return Err(Errno::ENOENT);
        }
        if flags == RENAME_EXCHANGE {
            let d = dst.expect("checked");
            self.nodes[a].children.insert(an.into(), d);
            self.nodes[b].children.insert(bn.into(), src);
            for (i, from, to) in [(src, a, b), (d, b, a)] {
                if self.is_dir(i) {
                    self.nodes[i].parent = to;
                    self.nodes[from].nlink -= 1;
                    self.nodes[to].nlink += 1;
                }
            }
            return Ok(());
        }
        if let Some(d) = dst {
            match (self.is_dir(src), self.is_dir(d)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                _ => {}
            }
            if !self.nodes[d].children.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
            if self.is_dir(d) {
                self.nodes[b].nlink -= 1;
            }
            self.drop_link(d);
        }
        self.nodes[a].children.remove(an);
        self.nodes[b].children.insert(bn.into(), src);
        if self.is_dir(src) {
            self.nodes[src].parent = b;
            self.nodes[a].nlink -= 1;
            self.nodes[b].nlink += 1;
        }
        Ok(())
    }
}

fn ok<T>(r: Result<T, Errno>) -> Result<(), Errno> {
    r.map(|_| ())
}

/// The target's answer and the model's.
type Both = (Result<(), Errno>, Result<(), Errno>);

/// A new file, directory or symbolic link.
fn make(rig: &Rig, m: &mut Model, s: &Step, d: usize, n: u8) -> Both {
    let (d, n) = (m.pick(d), name(n));
    let (fid, parent) = (rig.fid(), m.nodes[d].fid);
    let (got, kind) = match s {
        Step::Create(..) => (ok(rig.root(create_msg(parent, &n, fid, 0o644))), FileType::Regular),
        Step::Mkdir(..) => {
            let r = msg::mkdir::Mkdir { parent, name: n.clone().into(), fid, mode: 0o755, umask: 0 };
            (ok(rig.root(r)), FileType::Directory)
        }
        _ => {
            let r = msg::symlink::Symlink { parent, name: n.clone().into(), fid, target: b"t".to_vec() };
            (ok(rig.root(r)), FileType::Symlink)
        }
    };
    let want = m.vacant(d, &n);
    if want.is_ok() {
        m.add(d, &n, fid, kind);
    }
    (got, want)
}

/// An unnamed file.
fn tmpfile(rig: &Rig, m: &mut Model, d: usize) -> Both {
    let d = m.pick(d);
    let (fid, handle) = (rig.fid(), rig.handle());
    let open = Some(OpenSpec { handle, flags: 2, lease: false });
    let got = ok(rig.root(Create { exclusive: false, open, ..create_msg(m.nodes[d].fid, "", fid, 0o600) }));
    let want = m.dir(d).and(if m.nodes[d].nlink == 0 { Err(Errno::ENOENT) } else { Ok(()) });
    if want.is_ok() {
        let kind = FileType::Regular;
        let opens = vec![handle];
        m.nodes.push(Node {
            fid,
            kind,
            nlink: 0,
            opens,
            children: BTreeMap::new(),
            parent: d,
            tmpfile: true,
        });
    }
    (got, want)
}

/// Runs one step on both sides.
fn run(rig: &mut Rig, m: &mut Model, s: &Step) -> Both {
    let root = Cred::root();
    match *s {
        Step::Create(d, n) | Step::Mkdir(d, n) | Step::Symlink(d, n) => make(rig, m, s, d, n),
        Step::Link(f, d, n) => {
            let (f, d, n) = (m.pick(f), m.pick(d), name(n));
            let got = ok(rig.link(m.nodes[f].fid, m.nodes[d].fid, &n));
            let want = link(m, f, d, &n);
            (got, want)
        }
        Step::Unlink(d, n) => {
            let (d, n) = (m.pick(d), name(n));
            let got = rig.unlink(m.nodes[d].fid, &n);
            let want = m.child(d, &n).and_then(|c| if m.is_dir(c) { Err(Errno::EISDIR) } else { Ok(c) });
            if let Ok(c) = want {
                m.nodes[d].children.remove(&n);
                m.drop_link(c);
            }
            (got, ok(want))
        }
        Step::Rmdir(d, n) => {
            let (d, n) = (m.pick(d), name(n));
            let got = rig.rmdir(m.nodes[d].fid, &n);
            let want = m.child(d, &n).and_then(|c| match (m.is_dir(c), m.nodes[c].children.is_empty()) {
                (false, _) => Err(Errno::ENOTDIR),
                (true, false) => Err(Errno::ENOTEMPTY),
                _ => Ok(c),
            });
            if let Ok(c) = want {
                m.nodes[d].children.remove(&n);
                m.nodes[d].nlink -= 1;
                m.drop_link(c);
            }
            (got, ok(want))
        }
        Step::Rename(a, an, b, bn, flags) => {
            let (a, b, flags) = (m.pick(a), m.pick(b), u32::from(flags));
            let got = rig.rename((m.nodes[a].fid, &name(an)), (m.nodes[b].fid, &name(bn)), flags);
            let want = m.rename((a, &name(an)), (b, &name(bn)), flags);
            (got, want)
        }
        Step::Open(f) => {
            let f = m.pick(f);
            let handle = rig.handle();
            let open = OpenSpec { handle, flags: 0, lease: false };
            let got = ok(rig.root(msg::open::Open { fid: m.nodes[f].fid, open, data: 0 }));
            let want = match m.nodes[f].kind {
                _ if !m.exists(f) => Err(Errno::ENOENT),
                FileType::Symlink => Err(Errno::ELOOP),
                _ => Ok(()),
            };
            if want.is_ok() {
                m.nodes[f].opens.push(handle);
            }
            (got, want)
        }
        Step::Close(f) => {
            let f = m.pick(f);
            if let Some(handle) = m.nodes[f].opens.pop() {
                rig.close(m.nodes[f].fid, handle);
            }
            (Ok(()), Ok(()))
        }
        Step::Tmpfile(d) => tmpfile(rig, m, d),
        Step::Xattr(f, a, size) => {
            let f = m.pick(f);
            let x = msg::setxattr::Setxattr {
                fid: m.nodes[f].fid,
                name: format!("trusted.{a}").into(),
                value: vec![a; usize::from(size)],
                flags: 0,
                kill_sgid: false,
            };
            let want = if m.exists(f) { Ok(()) } else { Err(Errno::ENOENT) };
            (rig.call(A, &root, x), want)
        }
        Step::Crash(seed) => {
            rig.crash(seed);
            let opens: Vec<_> = m.nodes.iter().flat_map(|n| n.opens.iter().map(|&h| (n.fid, h))).collect();
            let lost = rig.reclaim(A, &opens);
            assert!(lost.lost_opens.is_empty(), "open files survive");
            rig.reclaim(B, &[]);
            (Ok(()), Ok(()))
        }
    }
}

fn link(m: &mut Model, f: Id, d: Id, n: &str) -> Result<(), Errno> {
    if !m.exists(f) {
        return Err(Errno::ENOENT);
    }
    m.vacant(d, n)?;
    if m.is_dir(f) {
        return Err(Errno::EPERM);
    }
    if m.nodes[f].nlink == 0 && !m.nodes[f].tmpfile {
        return Err(Errno::ENOENT);
    }
    m.nodes[f].tmpfile = false;
    m.nodes[f].nlink += 1;
    m.nodes[d].children.insert(n.into(), f);
    Ok(())
}

fn compare(rig: &Rig, m: &Model) {
    for (i, n) in m.nodes.iter().enumerate() {
        let got = rig.root(msg::getattr::Getattr { fid: n.fid });
        if !m.exists(i) {
            assert_eq!(ok(got), Err(Errno::ENOENT), "{}", n.fid);
            continue;
        }
        let a = got.unwrap().attr;
        assert_eq!((a.kind, a.nlink), (n.kind, n.nlink), "{}", n.fid);
        if n.kind == FileType::Directory {
            let want: Vec<_> = n.children.keys().cloned().collect();
            assert_eq!(rig.names(n.fid), want);
            for (name, c) in &n.children {
                assert_eq!(rig.lookup(n.fid, name).unwrap().attr.fid, m.nodes[*c].fid);
            }
            if n.nlink > 0 {
                assert_eq!(rig.lookup(n.fid, "..").unwrap().attr.fid, m.nodes[n.parent].fid);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_answer_is_the_models(steps in prop::collection::vec(step(), 1..120)) {
        let mut rig = Rig::new();
        let mut m = Model::new();
        for s in &steps {
            let (got, want) = run(&mut rig, &mut m, s);
            prop_assert_eq!(got, want, "{:?}", s);
        }
        compare(&rig, &m);
        rig.crash(1);
        let opens: Vec<_> = m.nodes.iter().flat_map(|n| n.opens.iter().map(|&h| (n.fid, h))).collect();
        prop_assert!(rig.reclaim(A, &opens).lost_opens.is_empty());
        rig.reclaim(B, &[]);
        compare(&rig, &m);
        rig.assert_clean();
    }
}

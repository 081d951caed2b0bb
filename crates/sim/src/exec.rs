//! Operations of the model, done on a mount; and whether what they gave is what the model says.

use crate::components::{self, Changed};
use crate::oracle::{Body, Id, Node, Op, Out, Shape, Tree};
use bytes::Bytes;
use client::{Call, Fs, OpenHandle};
use model::layout::{ComponentSpec, EOF};
use model::{Attr, Errno, Fid, FileType, LayoutSpec, SetAttr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const O_RDWR: u32 = 2;
pub const O_EXCL: u32 = 0o200;
/// Of files that are striped.
pub const STRIPE_BYTES: u64 = 65536;

/// What the cluster gave.
pub enum Got {
    Unit,
    Attr(Attr),
    Opened(Attr, Arc<OpenHandle>),
    Handle(Arc<OpenHandle>),
    Bytes(Vec<u8>),
    Number(u64),
    Entries(Vec<(Vec<u8>, Option<Fid>, FileType)>),
    Names(BTreeSet<Vec<u8>>),
    Changed(Changed),
    /// So much was copied; what was asked for after that was refused.
    CopiedUntilRefused(u64),
}

impl std::fmt::Debug for Got {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Got::Unit | Got::Handle(_) => f.write_str("Ok"),
            Got::Attr(a) | Got::Opened(a, _) => {
                write!(f, "Attr({} {:?} mode {:o} nlink {} size {})", a.fid, a.kind, a.mode, a.nlink, a.size)
            }
            Got::Bytes(b) => write!(f, "{} bytes", b.len()),
            Got::Number(n) => write!(f, "{n}"),
            Got::Entries(e) => write!(f, "{e:?}"),
            Got::Names(n) => write!(f, "{n:?}"),
            Got::Changed(c) => write!(f, "{c:?}"),
            Got::CopiedUntilRefused(n) => write!(f, "{n} until changes were refused"),
        }
    }
}

type R<T> = Result<T, Errno>;

pub fn call() -> Call {
    Call::default()
}

/// Makes a directory that everybody may write.
pub async fn public_dir(fs: &Arc<Fs>, parent: Fid, name: Vec<u8>) -> Result<Fid, Errno> {
    let fid = fs.clone().mkdir(call(), parent, name, 0o777).await?.fid;
    let all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    fs.clone().setattr(call(), fid, all).await.map(|_| fid)
}

/// In place of a number of stripes: the first of [`COMPOSITES`], and so on.
pub const COMPOSITE: u32 = 1000;
/// Layouts in components: of each its end in stripes (0: the end of the file), its stripes, and in how many
/// stripes' steps it grows (0: it does not). The first is on the MDT if it has no stripes.
const COMPOSITES: [&[(u64, i32, u64)]; 4] = [
    &[(1, 1, 0), (0, 2, 0)],
    &[(1, 2, 0), (2, 1, 0), (4, 3, 0), (0, 1, 0)],
    &[(2, 1, 1), (0, 2, 2)],
    &[(1, 0, 0), (2, 1, 0), (0, 2, 0)],
];

/// One of [`COMPOSITES`].
fn composite(kind: u32) -> LayoutSpec {
    let mut spec = LayoutSpec { stripe_size: STRIPE_BYTES, ..LayoutSpec::default() };
    let mut parts = Vec::new();
    for &(end, stripe_count, grows) in COMPOSITES[kind as usize % COMPOSITES.len()] {
        let end = if end == 0 { EOF } else { end * STRIPE_BYTES };
        if stripe_count == 0 {
            spec.set_mdt_bytes(end);
            continue;
        }
        let extension_bytes = grows * STRIPE_BYTES;
        parts.push(ComponentSpec { end, stripe_count, extension_bytes, ..ComponentSpec::default() });
    }
    spec.set_components(&parts);
    spec
}

/// 0: nothing is said, so that the data lies with the inode at first.
pub fn layout(stripes: u32) -> Option<LayoutSpec> {
    match stripes {
        0 => None,
        COMPOSITE.. => Some(composite(stripes - COMPOSITE)),
        n => Some(LayoutSpec { stripe_count: n as i32, stripe_size: STRIPE_BYTES, ..LayoutSpec::default() }),
    }
}

/// Does `op` on a mount. `handle`: the open file that a close is about.
pub async fn run(fs: Arc<Fs>, f: Resolved) -> R<Got> {
    let Resolved { op, a, b, handle } = f;
    match op {
        Op::Create { name, mode, stripes, exclusive, .. } => {
            let flags = O_RDWR | if exclusive { O_EXCL } else { 0 };
            let (attr, file) = fs.create(call(), a, name, mode, flags, layout(stripes)).await?;
            Ok(Got::Opened(attr, Arc::new(file)))
        }
        Op::Tmpfile { mode, .. } => {
            let (attr, file) = fs.tmpfile(call(), a, mode, O_RDWR).await?;
            Ok(Got::Opened(attr, Arc::new(file)))
        }
        Op::Mkdir { name, mode, .. } => fs.mkdir(call(), a, name, mode).await.map(Got::Attr),
        Op::Symlink { name, target, .. } => fs.symlink(call(), a, name, target).await.map(Got::Attr),
        Op::Fifo { name, mode, .. } => fs.mknod(call(), a, name, 0o010000 | mode, 0).await.map(Got::Attr),
        Op::Link { name, .. } => fs.link(call(), a, b, name).await.map(Got::Attr),
        Op::Unlink { name, .. } => fs.unlink(call(), a, name).await.map(|()| Got::Unit),
        Op::Rmdir { name, .. } => fs.rmdir(call(), a, name).await.map(|()| Got::Unit),
        Op::Rename { name, to_name, flags, .. } => {
            fs.rename(call(), a, name, b, to_name, flags).await.map(|()| Got::Unit)
        }
        Op::Open { .. } => fs.open(call(), a, O_RDWR).await.map(|f| Got::Handle(Arc::new(f))),
        Op::Close { .. } => fs.close(handle.expect("a close has a handle")).await.map(|()| Got::Unit),
        Op::Write { off, data, .. } => {
            fs.write(call(), a, off, false, false, Bytes::from(data)).await.map(Got::Number)
        }
        Op::Append { data, .. } => {
            fs.write(call(), a, 0, true, false, Bytes::from(data)).await.map(Got::Number)
        }
        Op::Read { off, len, .. } => read(fs, a, handle, off, len).await,
        Op::Truncate { size, .. } => {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(call(), a, set).await.map(Got::Attr)
        }
        Op::Fallocate { mode, off, len, .. } => {
            fs.fallocate(call(), a, mode, off, len).await.map(|()| Got::Unit)
        }
        Op::Copy { from_off, to_off, len, .. } => copy(fs, a, from_off, b, to_off, len).await,
        Op::Seek { off, hole, .. } => fs.seek(call(), a, off, hole).await.map(Got::Number),
        Op::Chmod { mode, .. } => {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            fs.setattr(call(), a, set).await.map(Got::Attr)
        }
        Op::Getattr { .. } => fs.getattr(call(), a).await.map(Got::Attr),
        Op::Lookup { name, .. } => fs.lookup(call(), a, name).await.map(Got::Attr),
        Op::Readdir { max_bytes, plus, .. } => list(&fs, a, max_bytes, plus).await.map(Got::Entries),
        Op::Readlink { .. } => fs.readlink(call(), a).await.map(Got::Bytes),
        Op::Setxattr { name, value, flags, .. } => {
            fs.setxattr(call(), a, name, value, flags, false).await.map(|()| Got::Unit)
        }
        Op::Getxattr { name, .. } => fs.getxattr(call(), a, name).await.map(Got::Bytes),
        Op::Removexattr { name, .. } => fs.removexattr(call(), a, name).await.map(|()| Got::Unit),
        Op::Listxattr { .. } => fs.listxattr(call(), a).await.map(|n| Got::Names(n.into_iter().collect())),
        Op::Fsync { .. } => fs.fsync(call(), a).await.map(|()| Got::Unit),
        Op::Components { change, .. } => components::run(&fs, a, change).await.map(Got::Changed),
        Op::Getpath { .. } => {
            client::Admin(&fs).getpath(call(), a).await.map(|(p, _)| Got::Names(p.into_iter().collect()))
        }
    }
}

/// An operation with FIDs in place of the model's numbers.
pub struct Resolved {
    pub op: Op,
    a: Fid,
    b: Fid,
    handle: Option<Arc<OpenHandle>>,
}

impl Resolved {
    pub fn new(tree: &Tree, op: Op, handle: Option<Arc<OpenHandle>>) -> Resolved {
        let [a, b] = op.nodes();
        // A close may be of a file that the model has forgotten.
        let fid = |id: Id| tree.get(id).and_then(|n| n.fid).unwrap_or(Fid::NONE);
        Resolved { a: fid(a), b: fid(b), op, handle }
    }
}

/// Reads through an open file: the given one, or one opened for it.
async fn read(fs: Arc<Fs>, fid: Fid, handle: Option<Arc<OpenHandle>>, off: u64, len: u32) -> R<Got> {
    let (file, own) = match handle {
        Some(f) => (f, false),
        None => (Arc::new(fs.clone().open(call(), fid, 0).await?), true),
    };
    let r = fs.clone().read(call(), file.clone(), off, len).await;
    if own {
        fs.close(file).await?;
    }
    r.map(|b| Got::Bytes(b.to_vec()))
}

/// Copies until it is done: one call may copy less, and changes may be refused from one call to the next.
async fn copy(fs: Arc<Fs>, from: Fid, from_off: u64, to: Fid, to_off: u64, len: u64) -> R<Got> {
    let mut done = 0;
    while done < len {
        match fs.clone().copy_file_range(call(), from, from_off + done, to, to_off + done, len - done).await {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::EROFS) if done > 0 => return Ok(Got::CopiedUntilRefused(done)),
            Err(e) => return Err(e),
        }
    }
    Ok(Got::Number(done))
}

/// All entries, page by page; cookies must grow.
pub async fn list(
    fs: &Arc<Fs>,
    dir: Fid,
    max_bytes: u32,
    plus: bool,
) -> R<Vec<(Vec<u8>, Option<Fid>, FileType)>> {
    let (mut out, mut cookie) = (Vec::new(), 0);
    loop {
        let (page, _, end) = fs.clone().readdir(call(), dir, cookie, max_bytes, plus).await?;
        if page.is_empty() && !end {
            return Err(Errno::EOVERFLOW);
        }
        for d in page {
            if d.cookie <= cookie {
                return Err(Errno::ELOOP);
            }
            cookie = d.cookie;
            out.push((d.name, Some(d.fid), d.kind));
        }
        if end {
            out.sort();
            return Ok(out);
        }
    }
}

/// Makes a file of so many objects, or with one of the composite layouts ([`COMPOSITE`]); 0: its data lies
/// with the inode at first.
pub async fn file(fs: &Arc<Fs>, dir: Fid, name: &str, stripes: i32) -> Result<Fid, Errno> {
    let (a, f) =
        fs.clone().create(call(), dir, name.into(), 0o666, O_RDWR | O_EXCL, layout(stripes as u32)).await?;
    fs.clone().close(Arc::new(f)).await?;
    Ok(a.fid)
}

/// What a file holds from `at` on, as far as one read gives it.
pub async fn read_at(fs: &Arc<Fs>, fid: Fid, at: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let file = Arc::new(fs.clone().open(call(), fid, 0).await?);
    let data = fs.clone().read(call(), file.clone(), at, len as u32).await;
    fs.clone().close(file).await?;
    Ok(data?.to_vec())
}

/// What differs, in words.
pub fn compare(want: &R<Out>, got: &R<Got>) -> Result<(), String> {
    let differ = || Err(format!("gave {} where the model says {}", brief(got), brief(want)));
    match (want, got) {
        (Err(a), Err(b)) if a == b => Ok(()),
        (Ok(w), Ok(g)) => match (w, g) {
            (Out::Unit, Got::Unit | Got::Handle(_)) => Ok(()),
            (Out::Node(_, s), Got::Attr(a) | Got::Opened(a, _)) => {
                if same_shape(s, a) {
                    Ok(())
                } else {
                    differ()
                }
            }
            (Out::Bytes(a), Got::Bytes(b)) => {
                if a == b {
                    Ok(())
                } else {
                    Err(first_difference(a, b))
                }
            }
            (Out::Number(a), Got::Number(b)) if a == b => Ok(()),
            (Out::Between(a, b), Got::Number(n)) if (a..=b).contains(&n) => Ok(()),
            (Out::Entries(a), Got::Entries(b)) if same_entries(a, b) => Ok(()),
            (Out::Names(a), Got::Names(b)) if a == b => Ok(()),
            _ => differ(),
        },
        // Zeros only, from there on: no data is a right answer too.
        (Ok(Out::Between(_, u64::MAX)), Err(Errno::ENXIO)) => Ok(()),
        _ => differ(),
    }
}

fn same_entries(a: &[(Vec<u8>, Option<Fid>, FileType)], b: &[(Vec<u8>, Option<Fid>, FileType)]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| x.0 == y.0 && x.2 == y.2 && (x.1.is_none() || x.1 == y.1))
}

fn same_shape(s: &Shape, a: &Attr) -> bool {
    s.fid.is_none_or(|f| f == a.fid)
        && s.kind == a.kind
        && s.mode == a.mode
        && s.nlink == a.nlink
        && s.size.is_none_or(|n| n == a.size)
}

fn first_difference(want: &[u8], got: &[u8]) -> String {
    let at = want.iter().zip(got).position(|(a, b)| a != b).unwrap_or(want.len().min(got.len()));
    let show = |d: &[u8]| d.get(at..(at + 16).min(d.len())).unwrap_or_default().to_vec();
    format!(
        "gave {} bytes where the model says {}; at {at}: {:?} instead of {:?}",
        got.len(),
        want.len(),
        show(got),
        show(want)
    )
}

fn brief<T: std::fmt::Debug>(v: &R<T>) -> String {
    let mut s = format!("{v:?}");
    if s.len() > 600 {
        s.truncate(s.floor_char_boundary(600));
        s.push('…');
    }
    s
}

/// Everything below a directory as a mount shows it: path → (fid, kind, mode, nlink, content).
pub type Snapshot = BTreeMap<Vec<u8>, Seen>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub fid: Fid,
    pub kind: FileType,
    pub mode: u32,
    pub nlink: u32,
    /// Of a file its bytes, of a symbolic link its target.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Reads a whole tree.
pub async fn snapshot(fs: &Arc<Fs>, root: Fid) -> R<Snapshot> {
    let mut out = Snapshot::new();
    let mut todo = vec![(Vec::new(), root)];
    while let Some((path, fid)) = todo.pop() {
        let attr = fs.clone().getattr(call(), fid).await?;
        let mut xattrs = BTreeMap::new();
        for name in fs.clone().listxattr(call(), fid).await? {
            let v = fs.clone().getxattr(call(), fid, name.clone()).await?;
            xattrs.insert(name, v);
        }
        let content = match attr.kind {
            FileType::Regular => {
                let Got::Bytes(b) = read(fs.clone(), fid, None, 0, attr.size as u32 + 1).await? else {
                    unreachable!("read gives bytes")
                };
                b
            }
            FileType::Symlink => fs.clone().readlink(call(), fid).await?,
            _ => Vec::new(),
        };
        if attr.kind == FileType::Directory {
            for (name, child, _) in list(fs, fid, 4096, false).await? {
                let mut p = path.clone();
                p.push(b'/');
                p.extend_from_slice(&name);
                todo.push((p, child.expect("entries name files")));
            }
        }
        out.insert(path, Seen { fid, kind: attr.kind, mode: attr.mode, nlink: attr.nlink, content, xattrs });
    }
    Ok(out)
}

/// How the model and a snapshot differ; what is equal teaches the model FIDs that it did not know.
pub fn match_tree(tree: &mut Tree, snap: &Snapshot) -> Result<(), String> {
    let mut learn = Vec::new();
    let mut count = 0;
    let mut todo = vec![(Vec::new(), crate::oracle::ROOT)];
    while let Some((path, id)) = todo.pop() {
        count += 1;
        let n = tree.node(id);
        let name = String::from_utf8_lossy(&path).into_owned();
        let seen = snap.get(&path).ok_or_else(|| format!("'{name}' is missing"))?;
        same_node(n, seen).map_err(|e| format!("'{name}' {}: {e}", seen.fid))?;
        if n.fid.is_none() {
            learn.push((id, seen.fid));
        }
        if let Body::Dir(entries) = &n.body {
            for (name, &child) in entries {
                let mut p = path.clone();
                p.push(b'/');
                p.extend_from_slice(name);
                todo.push((p, child));
            }
        }
    }
    if count != snap.len() {
        return Err(format!("there are {} files where the model has {count}", snap.len()));
    }
    for (id, fid) in learn {
        tree.set_fid(id, fid);
    }
    Ok(())
}

fn same_node(n: &Node, seen: &Seen) -> Result<(), String> {
    let want = (n.fid.unwrap_or(seen.fid), n.kind(), n.mode, n.nlink);
    let got = (seen.fid, seen.kind, seen.mode, seen.nlink);
    if want != got {
        return Err(format!("(fid, kind, mode, nlink) is {got:?}, the model says {want:?}"));
    }
    let content: &[u8] = match &n.body {
        Body::File(d) => d.as_slice(),
        Body::Symlink(t) => t,
        _ => &[],
    };
    if content != seen.content {
        return Err(first_difference(content, &seen.content));
    }
    if n.xattrs != seen.xattrs {
        return Err(format!(
            "its attributes are {:?}, the model says {:?}",
            seen.xattrs.keys(),
            n.xattrs.keys()
        ));
    }
    Ok(())
}

//! Ordinary users: what permission forbids them is refused with the right error, what it allows is done;
//! owners, modes, access lists and times are what was set. One actor plays a few users in a directory of his
//! own, through any of the mounts. The rules are written down here once more: the servers' own would hide
//! their mistakes.

use crate::exec::call;
use crate::run::{Gone, Run, Violation, alive};
use ::world::rng::Rng;
use client::{Call, Fs};
use model::{Attr, Cred, Errno, Fid, SetAttr, SetTime, Timestamp};
use std::sync::Arc;

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;
const STICKY: u32 = 0o1000;
/// A user that access lists name.
const NAMED: u32 = 1003;
/// A group of two of the users.
const GROUP: u32 = 500;
const STEPS: usize = 14;
const WRITE_STEP: usize = STEPS - 2;
const CHOWN_STEP: usize = STEPS - 1;
/// Bytes of a write, and where writes begin at most.
const PIECE: usize = 3000;
const WRITTEN_MAX: u64 = 200_000;
const ACL: &[u8] = b"system.posix_acl_access";

/// Root, two of a group, and a stranger.
fn users() -> [Cred; 4] {
    let member = |uid| Cred { uid, gid: uid, groups: vec![GROUP] };
    [Cred::root(), member(1001), member(1002), Cred::new(NAMED, NAMED)]
}

fn by(who: &Cred) -> Call {
    Call { cred: who.clone(), pid: 0, ..Call::default() }
}

/// What a named user, and the owning group, may do, as far as the mode's group bits, which are the list's
/// mask, let them.
#[derive(Clone, Copy, Debug)]
struct List {
    named: u32,
    group: u32,
}

#[derive(Clone, Debug)]
struct Node {
    fid: Fid,
    /// Number of its directory; the first is its own.
    dir: usize,
    name: Vec<u8>,
    is_dir: bool,
    mode: u32,
    uid: u32,
    gid: u32,
    list: Option<List>,
    mtime: Option<Timestamp>,
    gone: bool,
}

impl Node {
    fn owned(&self, who: &Cred) -> bool {
        who.uid == 0 || who.uid == self.uid
    }

    fn lets(&self, who: &Cred, want: u32) -> bool {
        let mask = self.mode >> 3 & 7;
        let bits = match self.list {
            _ if who.uid == 0 => 7,
            _ if who.uid == self.uid => self.mode >> 6 & 7,
            // Linux looks at no list whose mask takes everything.
            Some(l) if mask > 0 && who.uid == NAMED => l.named & mask,
            Some(l) if who.gid == self.gid || who.groups.contains(&self.gid) => l.group & mask,
            None if who.gid == self.gid || who.groups.contains(&self.gid) => mask,
            _ => self.mode & 7,
        };
        bits & want == want
    }

    fn differs(&self, a: &Attr) -> bool {
        (self.mode, self.uid, self.gid) != (a.mode, a.uid, a.gid) || self.mtime.is_some_and(|t| t != a.mtime)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Create {
        dir: usize,
        mode: u32,
        is_dir: bool,
    },
    /// Who may write does so, at `at`: a chown finds objects that were written.
    Open {
        node: usize,
        flags: u32,
        at: u64,
    },
    Lookup {
        node: usize,
    },
    Cut {
        node: usize,
        size: u64,
    },
    Chmod {
        node: usize,
        mode: u32,
    },
    Chown {
        node: usize,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Times {
        node: usize,
        at: Option<Timestamp>,
    },
    List {
        node: usize,
        list: List,
        mask: u32,
    },
    Unlink {
        node: usize,
    },
    Rename {
        node: usize,
        to: usize,
    },
}

/// An access list as the kernel passes it on.
fn encoded(n: &Node, l: &List, mask: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (0x01u16, n.mode >> 6 & 7, none),
        (0x02, l.named, NAMED),
        (0x04, l.group, none),
        (0x10, mask, none),
        (0x20, n.mode & 7, none),
    ];
    let mut v = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        v.extend_from_slice(&tag.to_le_bytes());
        v.extend_from_slice(&(bits as u16).to_le_bytes());
        v.extend_from_slice(&id.to_le_bytes());
    }
    v
}

/// The files of an episode; those that are gone stay, so that numbers stay.
struct Files {
    nodes: Vec<Node>,
    count: usize,
}

impl Files {
    fn pick(&self, rng: &mut Rng, dirs: bool) -> Option<usize> {
        let all: Vec<usize> =
            (0..self.nodes.len()).filter(|i| !self.nodes[*i].gone && self.nodes[*i].is_dir == dirs).collect();
        if all.is_empty() { None } else { Some(*rng.pick(&all)) }
    }

    fn next_name(&mut self) -> Vec<u8> {
        self.count += 1;
        format!("n{}", self.count).into_bytes()
    }

    fn choose(&self, rng: &mut Rng) -> Option<Op> {
        let mode = *rng.pick(&[0o777, 0o755, 0o750, 0o700, 0o644, 0o640, 0o600, 0o604, 0o070, 0o000, 0o1777]);
        let (dir, any) = (self.pick(rng, true)?, rng.below(3) == 0);
        let node = self.pick(rng, any).unwrap_or(dir);
        let file = self.pick(rng, false);
        let uid = users()[rng.index(4)].uid;
        let file_mode = mode & 0o777;
        let node_mode = if self.nodes[node].is_dir { mode } else { file_mode };
        Some(match rng.below(11) {
            0 | 1 => {
                let is_dir = rng.below(4) == 0;
                Op::Create { dir, mode: if is_dir { mode } else { file_mode }, is_dir }
            }
            2 => Op::Open { node: file?, flags: rng.below(3) as u32, at: rng.below(WRITTEN_MAX) },
            3 => Op::Lookup { node: file? },
            4 => Op::Cut { node: file?, size: rng.below(2000) },
            5 => Op::Chmod { node, mode: node_mode },
            6 if rng.coin() => Op::Chown { node, uid: Some(uid), gid: None },
            6 => Op::Chown { node, uid: None, gid: Some(*rng.pick(&[GROUP, 1001, NAMED])) },
            7 => {
                let at =
                    Timestamp { sec: 1_000_000 + rng.below(1_000_000) as i64, nsec: rng.below(1000) as u32 };
                Op::Times { node, at: rng.coin().then_some(at) }
            }
            8 => {
                let bits = |rng: &mut Rng| rng.below(8) as u32;
                Op::List { node, list: List { named: bits(rng), group: bits(rng) }, mask: bits(rng) }
            }
            9 => Op::Unlink { node: file? },
            _ => Op::Rename { node: file?, to: dir },
        })
    }

    /// The errors that are right; none if it must succeed.
    fn errors(&self, who: &Cred, op: &Op) -> Vec<Errno> {
        let mut out = Vec::new();
        let mut needs = |yes: bool, e| {
            if !yes {
                out.push(e);
            }
        };
        let n = |i: usize| &self.nodes[i];
        match op {
            Op::Create { dir, .. } => needs(n(*dir).lets(who, WRITE | SEARCH), Errno::EACCES),
            Op::Open { node, flags, .. } => {
                let want = [READ, WRITE, READ | WRITE][*flags as usize];
                needs(n(*node).lets(who, want), Errno::EACCES);
            }
            Op::Lookup { node } => needs(n(n(*node).dir).lets(who, SEARCH), Errno::EACCES),
            Op::Cut { node, .. } => needs(n(*node).lets(who, WRITE), Errno::EACCES),
            Op::Chmod { node, .. } | Op::List { node, .. } | Op::Times { node, at: Some(_) } => {
                needs(n(*node).owned(who), Errno::EPERM);
            }
            Op::Times { node, at: None } => {
                needs(n(*node).owned(who) || n(*node).lets(who, WRITE), Errno::EACCES);
            }
            Op::Chown { node, uid, gid } => {
                let of_it = |g: u32| who.gid == g || who.groups.contains(&g);
                let same = uid.is_none_or(|u| u == n(*node).uid);
                let own = n(*node).owned(who) && same && gid.is_none_or(|g| g == n(*node).gid || of_it(g));
                needs(who.uid == 0 || own, Errno::EPERM);
            }
            Op::Unlink { node } | Op::Rename { node, .. } => {
                let dir = n(n(*node).dir);
                needs(dir.lets(who, WRITE | SEARCH), Errno::EACCES);
                let sticky = dir.mode & STICKY != 0 && !n(*node).owned(who) && !dir.owned(who);
                needs(!sticky, Errno::EPERM);
                if let Op::Rename { to, .. } = op {
                    needs(n(*to).lets(who, WRITE | SEARCH), Errno::EACCES);
                }
            }
        }
        out
    }

    /// Does it on a mount, and here if it was done there.
    async fn perform(&mut self, fs: &Arc<Fs>, who: &Cred, op: &Op) -> Result<(), Errno> {
        let (call, fs) = (by(who), fs.clone());
        match *op {
            Op::Create { dir, mode, is_dir } => {
                let (name, parent) = (self.next_name(), self.nodes[dir].fid);
                let a = if is_dir {
                    fs.mkdir(call, parent, name.clone(), mode).await?
                } else {
                    let made = fs.clone().create(call, parent, name.clone(), mode, 0o202, None).await?;
                    fs.close(Arc::new(made.1)).await?;
                    made.0
                };
                let (uid, gid) = (who.uid, who.gid);
                let (list, mtime, gone) = (None, None, false);
                self.nodes.push(Node { fid: a.fid, dir, name, is_dir, mode, uid, gid, list, mtime, gone });
                self.nodes[dir].mtime = None;
            }
            Op::Open { node, flags, at } => {
                let fid = self.nodes[node].fid;
                let file = fs.clone().open(call.clone(), fid, flags).await?;
                if flags != 0 {
                    fs.clone().write(call, fid, at, false, false, vec![1; PIECE].into()).await?;
                    self.nodes[node].mtime = None;
                }
                fs.close(Arc::new(file)).await?;
            }
            Op::Lookup { node } => {
                let n = &self.nodes[node];
                fs.lookup(call, self.nodes[n.dir].fid, n.name.clone()).await?;
            }
            Op::Cut { node, size } => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(call, self.nodes[node].fid, set).await?;
                self.nodes[node].mtime = None;
            }
            Op::Chmod { node, mode } => {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                fs.setattr(call, self.nodes[node].fid, set).await?;
                self.nodes[node].mode = mode;
            }
            Op::Chown { node, uid, gid } => {
                let set = SetAttr { uid, gid, ..SetAttr::default() };
                fs.setattr(call, self.nodes[node].fid, set).await?;
                let n = &mut self.nodes[node];
                (n.uid, n.gid) = (uid.unwrap_or(n.uid), gid.unwrap_or(n.gid));
            }
            Op::Times { node, at } => {
                let t = Some(at.map_or(SetTime::Now, SetTime::At));
                let set = SetAttr { atime: t, mtime: t, ..SetAttr::default() };
                fs.setattr(call, self.nodes[node].fid, set).await?;
                self.nodes[node].mtime = at;
            }
            Op::List { node, list, mask } => {
                let n = &self.nodes[node];
                fs.setxattr(call, n.fid, ACL.to_vec(), encoded(n, &list, mask), 0, false).await?;
                let n = &mut self.nodes[node];
                (n.list, n.mode) = (Some(list), n.mode & !0o070 | mask << 3);
            }
            Op::Unlink { node } => {
                let n = &self.nodes[node];
                fs.unlink(call, self.nodes[n.dir].fid, n.name.clone()).await?;
                let dir = n.dir;
                self.nodes[node].gone = true;
                self.nodes[dir].mtime = None;
            }
            Op::Rename { node, to } => {
                let new = self.next_name();
                let n = &self.nodes[node];
                let (from, target) = (self.nodes[n.dir].fid, self.nodes[to].fid);
                fs.rename(call, from, n.name.clone(), target, new.clone(), 0).await?;
                let dir = n.dir;
                (self.nodes[dir].mtime, self.nodes[to].mtime) = (None, None);
                (self.nodes[node].dir, self.nodes[node].name) = (to, new);
            }
        }
        Ok(())
    }
}

/// A few operations of several users. It is broken off when a client dies: what that had done for somebody is
/// the affair of others.
pub async fn episode(run: &Run, parent: Fid, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
    let lives = || run.cluster.mounts.iter().map(|m| *m.life.borrow()).collect::<Vec<_>>();
    let before = lives();
    let work = run_episode(run, parent, actor, rng);
    match run.bounded("an episode of users", work).await? {
        Err(e) if lives() == before => Err(e),
        _ => Ok(()),
    }
}

async fn on_mount<T: Send>(
    run: &Run,
    (mount, life): (usize, u64),
    f: impl Future<Output = Result<T, Errno>> + Send,
) -> Result<Result<T, Errno>, Violation> {
    let died = |_: Gone| "a client died".to_string();
    alive(&run.cluster.mounts[mount], life, f).await.map_err(died)
}

async fn run_episode(run: &Run, parent: Fid, actor: usize, rng: &mut Rng) -> Result<(), Violation> {
    let (mount, fs, life) = run.mount(actor, rng).await;
    let name = format!("users{}", rng.below(u64::MAX)).into_bytes();
    let mode = *rng.pick(&[0o777, 0o1777, 0o755]);
    let made = on_mount(run, (mount, life), fs.mkdir(call(), parent, name.clone(), mode)).await?;
    let top = made.map_err(|e| format!("the directory of users: {e}"))?;
    let (list, mtime) = (None, None);
    let top =
        Node { fid: top.fid, dir: 0, name, is_dir: true, mode, uid: 0, gid: 0, list, mtime, gone: false };
    let mut files = Files { nodes: vec![top], count: 0 };
    for step in 0..STEPS {
        // At last a file that was written gets another owner, whom its objects follow.
        let (who, op) = match (step, files.pick(rng, false)) {
            (WRITE_STEP, Some(node)) => {
                (Cred::root(), Op::Open { node, flags: 1, at: rng.below(WRITTEN_MAX) })
            }
            (CHOWN_STEP, Some(node)) => (Cred::root(), Op::Chown { node, uid: Some(NAMED), gid: None }),
            _ => {
                let Some(op) = files.choose(rng) else { continue };
                (users()[rng.index(4)].clone(), op)
            }
        };
        let (mount, fs, life) = run.mount(actor, rng).await;
        run.cluster.sim.log(|| format!("actor {actor} mount {mount} user {} {op:?}", who.uid));
        let errors = files.errors(&who, &op);
        let got = on_mount(run, (mount, life), files.perform(&fs, &who, &op)).await?;
        let right = match got {
            // Who knows the name asks nobody: the kernel has looked whether the directory may be searched.
            Ok(()) => errors.is_empty() || matches!(op, Op::Lookup { .. }),
            Err(e) => errors.contains(&e),
        };
        if !right {
            let nodes: Vec<&Node> = files.nodes.iter().filter(|n| !n.gone).collect();
            return Err(format!(
                "user {} on mount {mount}: {op:?} gave {got:?} where {errors:?} would be right: {nodes:?}",
                who.uid
            ));
        }
        run.cluster.sim.count(if got.is_ok() { "allowed" } else { "forbidden" });
        let (mount, fs, life) = run.mount(actor + 1, rng).await;
        for n in files.nodes.iter().filter(|n| !n.gone) {
            let a = on_mount(run, (mount, life), fs.clone().getattr(call(), n.fid)).await?;
            let a = a.map_err(|e| format!("{n:?} on mount {mount} cannot be looked at: {e}"))?;
            if n.differs(&a) {
                return Err(format!(
                    "user {}: {op:?} gave {got:?}, and mount {mount} shows {a:?}, not {n:?}",
                    who.uid
                ));
            }
        }
    }
    // What stays is looked at with everything else, when the seed is over: its objects follow its owners.
    if rng.below(3) == 0 { Ok(()) } else { clear(run, parent, actor, rng, files).await }
}

/// Root takes everything away, the last made first.
async fn clear(run: &Run, parent: Fid, actor: usize, rng: &mut Rng, files: Files) -> Result<(), Violation> {
    let (mount, fs, life) = run.mount(actor, rng).await;
    let mut left: Vec<usize> = (0..files.nodes.len()).filter(|i| !files.nodes[*i].gone).collect();
    // Files may have moved into directories that were made later.
    left.sort_by_key(|i| (files.nodes[*i].is_dir, std::cmp::Reverse(*i)));
    for i in left {
        let n = &files.nodes[i];
        let dir = if i == 0 { parent } else { files.nodes[n.dir].fid };
        let work = async {
            if n.is_dir {
                fs.clone().rmdir(call(), dir, n.name.clone()).await
            } else {
                fs.clone().unlink(call(), dir, n.name.clone()).await
            }
        };
        on_mount(run, (mount, life), work).await?.map_err(|e| format!("{n:?} cannot be removed: {e}"))?;
    }
    Ok(())
}

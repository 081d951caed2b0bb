//! What may be lost. A client keeps what it was answered until it is durable, and has it done again after a crash:
//! nothing is lost while it lives. If it dies, and then a server loses power, a tail of its operations on that
//! server may be gone: those that it did not know to be durable and that nobody else was shown.
//!
//! [`Witness`] is what is known of an answer's durability, [`Tail`] an actor's latest changes, from which the states
//! are made that the files may be in afterwards.

use crate::cluster::Cluster;
use crate::exec::{Snapshot, match_tree};
use crate::executor::lock;
use crate::oracle::{Id, Op, Tree};
use client::Fs;
use model::{Fid, TargetId, TargetKind};
use std::collections::{BTreeMap, BTreeSet};

/// Combinations of tails that are tried.
const CUTS_MAX: usize = 4000;

/// Newest transaction answered, everything durable up to, and how many answers are kept, for each target.
pub type CommitState = BTreeMap<TargetId, (u64, u64, usize)>;

/// What was known when an answer came.
#[derive(Clone, Debug)]
pub struct Witness {
    mount: usize,
    life: u64,
    /// Newest transaction that the mount had been answered, by target.
    newest: CommitState,
    /// When.
    at: u64,
}

/// After so much virtual time a server has committed what a client that died had done there, if it runs at all.
const COMMIT_PATIENCE_NS: u64 = 60_000_000_000;

/// Which part of an operation is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// On the metadata target.
    Names,
    /// On object targets.
    Data,
}

fn server_of(t: TargetId) -> Option<usize> {
    match t.kind {
        TargetKind::Mdt => Some(0),
        TargetKind::Ost => Some(usize::from(t.index) + 1),
        TargetKind::Mgt => None,
    }
}

impl Witness {
    pub fn new(c: &Cluster, fs: &Fs, mount: usize, life: u64) -> Witness {
        Witness { mount, life, newest: fs.commit_state(), at: c.sim.now() }
    }

    fn targets(&self, part: Part) -> impl Iterator<Item = (TargetId, u64)> {
        let kind = if part == Part::Names { TargetKind::Mdt } else { TargetKind::Ost };
        self.newest.iter().filter(move |(t, _)| t.kind == kind).map(|(t, (n, _, _))| (*t, *n))
    }

    /// The client knew on that target that all it was answered until then is durable.
    fn known_durable(&self, state: &CommitState, t: TargetId, newest: u64) -> bool {
        let Some((_, committed, kept)) = state.get(&t) else { return newest == 0 };
        // Numbers of an earlier epoch are below all of a later one, whatever became of them.
        newest <= *committed && (newest >> 40 == committed >> 40 || *kept == 0)
    }

    /// Whether the client knows, or knew when it died, that this part is durable.
    pub fn durable(&self, c: &Cluster, part: Part) -> bool {
        let m = &c.mounts[self.mount];
        let state = match m.get() {
            Some((fs, life)) if life == self.life => Some(fs.commit_state()),
            _ => lock(&m.graves).get(&self.life).map(|(_, s)| s.clone()),
        };
        state.is_some_and(|s| self.targets(part).all(|(t, n)| self.known_durable(&s, t, n)))
    }

    /// Whether the client is dead.
    pub fn dead(&self, c: &Cluster) -> bool {
        *c.mounts[self.mount].life.borrow() != self.life
    }

    /// Whether this part may be lost: the client died without knowing that it is durable, and a server that it
    /// concerns lost power since.
    pub fn doubtful(&self, c: &Cluster, part: Part) -> bool {
        let died = lock(&c.mounts[self.mount].graves).get(&self.life).map_or(u64::MAX, |(at, _)| *at);
        let during = self.at..died.saturating_add(COMMIT_PATIENCE_NS);
        let hit = |t: TargetId| {
            server_of(t)
                .is_some_and(|s| lock(&c.servers[s].power_losses).iter().any(|at| during.contains(at)))
        };
        self.dead(c) && !self.durable(c, part) && self.targets(part).any(|(t, _)| hit(t))
    }
}

/// A change that was answered.
struct Answered {
    op: Op,
    /// Nodes that it made or named.
    touched: BTreeSet<Id>,
    /// Numbers that the model gave out for it.
    ids: Id,
    witness: Witness,
    /// Shown to somebody else, or flushed.
    names_pinned: bool,
    data_pinned: bool,
}

impl Answered {
    fn open(&self, part: Part) -> bool {
        match part {
            Part::Names => is_names(&self.op) && !self.names_pinned,
            Part::Data => is_data(&self.op) && !self.data_pinned,
        }
    }

    fn settled(&self, c: &Cluster) -> bool {
        [Part::Names, Part::Data].into_iter().all(|p| !self.open(p) || self.witness.durable(c, p))
    }

    fn doubtful(&self, c: &Cluster, part: Part) -> bool {
        self.open(part) && self.witness.doubtful(c, part)
    }
}

fn is_data(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::Truncate { .. } | Op::Fallocate { .. })
}

fn is_names(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::Tmpfile { .. }
            | Op::Mkdir { .. }
            | Op::Symlink { .. }
            | Op::Fifo { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Chmod { .. }
            | Op::Setxattr { .. }
            | Op::Removexattr { .. }
    )
}

/// Its answer shows the attributes of the nodes it names, as the metadata target has them.
fn shows_names(op: &Op) -> bool {
    (is_names(op) && !matches!(op, Op::Tmpfile { .. }))
        || matches!(op, Op::Getattr { .. } | Op::Lookup { .. })
}

/// An actor's changes since a state of which everything is durable.
#[derive(Default)]
pub struct Tail {
    base: Option<Tree>,
    ops: Vec<Answered>,
    /// Files that operations made.
    fids: BTreeMap<Id, Fid>,
}

/// An operation with what it found out in place of what it asked for: it does the same on any state.
pub fn settled_op(tree: &Tree, op: &Op) -> Op {
    match op {
        Op::Append { node, data } => {
            Op::Write { node: *node, off: tree.node(*node).data().len() as u64, data: data.clone() }
        }
        Op::Copy { from, from_off, to, to_off, len } => {
            let d = tree.node(*from).data();
            let a = (*from_off as usize).min(d.len());
            let b = (a + *len as usize).min(d.len());
            Op::Write { node: *to, off: *to_off, data: d[a..b].to_vec() }
        }
        other => other.clone(),
    }
}

impl Tail {
    /// A change was answered; `before` is the state it was made on, `node` what its answer names.
    pub fn add(&mut self, before: Tree, op: Op, node: Option<Id>, after: &Tree, witness: Witness) {
        if !is_names(&op) && !is_data(&op) {
            return;
        }
        let ids = after.next_id() - before.next_id();
        if self.ops.is_empty() {
            let mut base = before;
            base.hold(true);
            self.base = Some(base);
        }
        let touched = op.nodes().into_iter().chain(node).collect();
        self.ops.push(Answered { op, touched, ids, witness, names_pinned: false, data_pinned: false });
    }

    /// An answer of another mount (or after the death of the first) shows what was changed: that is durable.
    pub fn shown(&mut self, op: &Op, node: Option<Id>, mount: usize, life: u64) {
        let nodes: BTreeSet<Id> = op.nodes().into_iter().chain(node).collect();
        let fsync = matches!(op, Op::Fsync { .. });
        let mut names_upto = 0;
        for (i, a) in self.ops.iter_mut().enumerate() {
            let same = (a.witness.mount, a.witness.life) == (mount, life);
            let common = a.touched.iter().any(|n| nodes.contains(n));
            if (fsync && same) || (!same && common && shows_names(op) && is_names(&a.op)) {
                names_upto = i + 1;
            }
            if fsync && common {
                a.data_pinned = true;
            }
        }
        // The journal is in order.
        self.ops[..names_upto].iter_mut().for_each(|a| a.names_pinned = true);
    }

    /// The cluster told which file a node is.
    pub fn learn(&mut self, node: Id, fid: Fid) {
        self.fids.insert(node, fid);
    }

    /// Files that operations made and that this state does not have.
    pub fn made_without<'a>(&'a self, t: &'a Tree) -> impl Iterator<Item = Fid> + 'a {
        self.fids.iter().filter(|(id, _)| t.get(**id).is_none()).map(|(_, fid)| *fid)
    }

    /// Forgets what is durable by now.
    pub fn compact(&mut self, c: &Cluster) {
        let n = self.ops.iter().take_while(|a| a.settled(c)).count();
        for a in self.ops.drain(..n) {
            self.base.as_mut().expect("made with the first operation").redo(&a.op, a.ids, true);
        }
        if self.ops.is_empty() {
            self.clear();
        }
    }

    pub fn clear(&mut self) {
        *self = Tail::default();
    }

    /// Whether changes of living clients may not be durable yet, as far as those know.
    pub fn pending(&self, c: &Cluster) -> bool {
        self.ops.iter().any(|a| !a.witness.dead(c) && !a.settled(c))
    }

    /// Whether anything may have been lost.
    pub fn doubtful(&self, c: &Cluster) -> bool {
        self.ops.iter().any(|a| a.doubtful(c, Part::Names) || a.doubtful(c, Part::Data))
    }

    fn groups(&self, c: &Cluster, part: Part) -> Vec<Vec<usize>> {
        let mut by_client: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
        for (i, a) in self.ops.iter().enumerate().filter(|(_, a)| a.doubtful(c, part)) {
            by_client.entry((a.witness.mount, a.witness.life)).or_default().push(i);
        }
        by_client.into_values().collect()
    }

    /// Every choice of a tail of each group.
    fn cuts(groups: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
        let mut out = vec![BTreeSet::new()];
        for g in groups {
            let before = std::mem::take(&mut out);
            for kept in (0..=g.len()).rev() {
                out.extend(before.iter().map(|b| b.iter().chain(&g[kept..]).copied().collect()));
            }
            // Several clients that died at once: beyond this many combinations the search gives up.
            out.truncate(CUTS_MAX);
        }
        out
    }

    fn build(
        &self,
        names_lost: &BTreeSet<usize>,
        data_lost: &BTreeSet<usize>,
        opens: &BTreeMap<Id, u32>,
    ) -> Tree {
        let mut t = self.base.clone().expect("made with the first operation");
        for (i, a) in self.ops.iter().enumerate() {
            let lost = if is_names(&a.op) { names_lost } else { data_lost };
            t.redo(&a.op, a.ids, !lost.contains(&i));
        }
        for (id, fid) in &self.fids {
            if t.get(*id).is_some() {
                t.set_fid(*id, *fid);
            }
        }
        t.release(opens);
        t
    }

    /// The states that the files may be in, as far as they fit what was seen: the one that does, taught by it.
    pub fn find(
        &self,
        c: &Cluster,
        opens: &BTreeMap<Id, u32>,
        snap: &Snapshot,
        mut fits: impl FnMut(Tree) -> Option<Tree>,
    ) -> Option<Tree> {
        // What files hold does not depend on which names are there.
        let none = BTreeSet::new();
        let data_cuts = Tail::cuts(&self.groups(c, Part::Data));
        let versions: Vec<Tree> = data_cuts.iter().map(|d| self.build(&none, d, opens)).collect();
        for names_lost in Tail::cuts(&self.groups(c, Part::Names)) {
            let mut t = self.build(&names_lost, &none, opens);
            let files: Vec<(Id, Fid, u32)> =
                t.iter().filter_map(|(id, n)| Some((id, n.fid?, n.stripes))).collect();
            for (id, fid, stripes) in files {
                if let Some(seen) = snap.values().find(|s| s.fid == fid)
                    && seen.content != t.node(id).data()
                    && mixed(&versions, id, stripes, &seen.content)
                {
                    t.adopt(id, seen.content.clone());
                }
            }
            if let Some(t) = fits(t) {
                return Some(t);
            }
        }
        None
    }

    /// As [`Tail::find`], without an operation in question.
    pub fn find_plain(&self, c: &Cluster, opens: &BTreeMap<Id, u32>, snap: &Snapshot) -> Option<Tree> {
        self.find(c, opens, snap, |mut t| match_tree(&mut t, snap).is_ok().then_some(t))
    }
}

/// Whether a file's bytes are those of one version, or, over several objects, of several.
fn mixed(versions: &[Tree], id: Id, stripes: u32, content: &[u8]) -> bool {
    let of: Vec<&[u8]> = versions.iter().filter_map(|t| t.get(id)).map(|n| n.data()).collect();
    if stripes <= 1 {
        return of.contains(&content);
    }
    let longest = of.iter().map(|d| d.len()).max().unwrap_or(0);
    let at = |d: &[u8], i: usize| d.get(i).copied().unwrap_or(0);
    content.len() <= longest
        && content.iter().enumerate().all(|(i, b)| *b == 0 || of.iter().any(|d| at(d, i) == *b))
}

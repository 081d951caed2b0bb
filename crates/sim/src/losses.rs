//! What may be lost. A client keeps what it was answered until it is durable, and has it done again after a
//! crash: nothing is lost while it lives. If it dies, and then a server loses power, a tail of its operations
//! on that server may be gone: those that it did not know to be durable and that nobody else was shown.
//!
//! What a client executed by itself, in directories that it owns, is not with the server when it is answered:
//! a tail of that dies with it alone, unless somebody looked at it or it was fsynced.
//!
//! What `write` was answered is with the client first: bytes that were not fsynced may die with it, whatever
//! the servers do.
//!
//! [`Witness`] is what is known of an answer's durability, [`Tail`] an actor's latest changes, from which the
//! states are made that the names may be in afterwards, [`Look`] what is accepted of files' bytes.

use crate::cluster::Cluster;
use crate::exec::{Snapshot, match_tree};
use crate::executor::lock;
use crate::known::{COMMIT_PATIENCE, CommitState, Known};
use crate::oracle::{Id, Op, Tree};
use client::Fs;
use model::{Fid, TargetId, TargetKind};
use std::collections::{BTreeMap, BTreeSet};

/// Combinations of tails that are tried.
const CUTS_MAX: usize = 4000;

/// What was known when an answer came.
#[derive(Clone, Debug)]
pub struct Witness {
    mount: usize,
    life: u64,
    /// Newest transaction that the mount had been answered, by target.
    newest: CommitState,
    /// Operations that the mount had executed by itself.
    executed: u64,
    /// When.
    at: u64,
}

/// Which part of an operation is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// On the metadata target.
    Names,
    /// On object targets.
    Data,
    /// The data of a file that begins with its inode: there, or on object targets once it has grown.
    SmallData,
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
        let k = Known::of(fs);
        Witness { mount, life, newest: k.commit, executed: k.pending.0, at: c.sim.now() }
    }

    fn targets(&self, part: Part) -> impl Iterator<Item = (TargetId, u64)> {
        let of = move |t: &TargetId| match t.kind {
            TargetKind::Mdt => part != Part::Data,
            TargetKind::Ost => part != Part::Names,
            TargetKind::Mgt => false,
        };
        self.newest.iter().filter(move |(t, _)| of(t)).map(|(t, (n, _, _))| (*t, *n))
    }

    /// The client knew on that target that all it was answered until then is durable.
    fn known_durable(&self, state: &CommitState, t: TargetId, newest: u64) -> bool {
        let Some((_, committed, kept)) = state.get(&t) else { return newest == 0 };
        // Numbers of an earlier epoch are below all of a later one, whatever became of them.
        newest <= *committed && (newest >> 40 == committed >> 40 || *kept == 0)
    }

    /// Whether the client knows, or knew when it died, that this part is durable.
    pub fn durable(&self, c: &Cluster, part: Part) -> bool {
        self.known(c).is_some_and(|k| {
            let told = part == Part::Data || self.executed <= k.pending.2;
            told && self.targets(part).all(|(t, n)| self.known_durable(&k.commit, t, n))
        })
    }

    /// What the client knows, or knew when it died.
    fn known(&self, c: &Cluster) -> Option<Known> {
        let m = &c.mounts[self.mount];
        match m.get() {
            Some((fs, life)) if life == self.life => Some(Known::of(&fs)),
            _ => lock(&m.graves).get(&self.life).map(|(_, k)| k.clone()),
        }
    }

    /// The client died and had not been answered what it executed by itself.
    pub fn untold(&self, c: &Cluster, part: Part) -> bool {
        let unanswered = |k: Known| self.executed > k.pending.1;
        self.dead(c) && part != Part::Data && self.known(c).is_none_or(unanswered)
    }

    /// The servers have answered all that the client had executed by itself until then.
    fn told(&self, c: &Cluster) -> bool {
        self.known(c).is_some_and(|k| self.executed <= k.pending.1)
    }

    /// The same client, in the same of its lives.
    pub fn same_client(&self, other: &Witness) -> bool {
        (self.mount, self.life) == (other.mount, other.life)
    }

    /// Whether the client is dead.
    pub fn dead(&self, c: &Cluster) -> bool {
        *c.mounts[self.mount].life.borrow() != self.life
    }

    /// Whether this part may be lost: the client died before it told the server, or without knowing that it
    /// is durable, and a server that it concerns lost power since.
    pub fn doubtful(&self, c: &Cluster, part: Part) -> bool {
        let died = lock(&c.mounts[self.mount].graves).get(&self.life).map_or(u64::MAX, |(at, _)| *at);
        let hit = |t: TargetId| {
            server_of(t).is_some_and(|s| c.servers[s].lost_power_soon(self.at, died, COMMIT_PATIENCE))
        };
        let forgotten = || !self.durable(c, part) && self.targets(part).any(|(t, _)| hit(t));
        self.dead(c) && (self.untold(c, part) || forgotten())
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
    /// The actor's changes are counted; from this one on, the journal has them behind this one. `None`: it
    /// may not have it yet.
    before: Option<u64>,
    number: u64,
    /// Shown to somebody else, or flushed.
    names_pinned: bool,
    /// Its client fsynced the file since.
    data_pinned: bool,
}

impl Answered {
    fn open(&self) -> bool {
        is_names(&self.op) && !self.names_pinned
    }

    /// A create that found its file there changed nothing: that it is shown says nothing of what came before.
    fn changes_names(&self) -> bool {
        is_names(&self.op) && !(matches!(self.op, Op::Create { .. }) && self.ids == 0)
    }

    /// Whether an answer to `op` that names the node can show this change of it. Looking a name up in a
    /// directory shows what the name stands for, and nothing of the directory's own extended attributes:
    /// nobody has to be asked for it who knows the name.
    fn is_shown_by(&self, op: &Op, node: Id) -> bool {
        let of_xattrs = matches!(self.op, Op::Setxattr { .. } | Op::Removexattr { .. });
        !(of_xattrs && matches!(op, Op::Lookup { dir, .. } if *dir == node))
    }

    fn same_client(&self, other: &Answered) -> bool {
        self.witness.same_client(&other.witness)
    }

    fn settled(&self, c: &Cluster) -> bool {
        !self.open() || self.witness.durable(c, Part::Names)
    }

    fn doubtful(&self, c: &Cluster) -> bool {
        self.open() && self.witness.doubtful(c, Part::Names)
    }

    /// Does it again on a state, or only takes its numbers. Bytes are never left out: what a dead client may
    /// have taken along is the node's to know ([`Tree::lossy`]).
    fn redo(&self, t: &mut Tree, done: bool) {
        let id = self.op.written();
        let before = id.and_then(|id| t.get(id)?.content());
        t.redo(&self.op, self.ids, done);
        if let (Some(id), Some(before)) = (id, before) {
            let by = (self.witness.mount, self.witness.life);
            t.changed(id, before, &self.op, (!self.data_pinned).then_some(by));
        }
    }
}

fn is_data(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::Truncate { .. } | Op::Fallocate { .. } | Op::Components { .. })
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
    /// Changes so far.
    count: u64,
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
        // Bytes alone are in the tree that the next change of names starts from.
        if !is_names(&op) && (!is_data(&op) || self.ops.is_empty()) {
            return;
        }
        let ids = after.next_id() - before.next_id();
        if self.ops.is_empty() {
            let mut base = before;
            base.hold(true);
            self.base = Some(base);
        }
        // A file without a name leaves its directory as it was.
        let named = !matches!(op, Op::Tmpfile { .. });
        let touched = op.nodes().into_iter().filter(|_| named).chain(node).collect();
        self.count += 1;
        self.ops.push(Answered {
            op,
            touched,
            ids,
            witness,
            before: None,
            number: self.count,
            names_pinned: false,
            data_pinned: false,
        });
    }

    /// An answer of another mount (or after the death of the first) shows what was changed: that is durable.
    pub fn shown(&mut self, op: &Op, node: Option<Id>, mount: usize, life: u64) {
        let nodes: BTreeSet<Id> = op.nodes().into_iter().chain(node).collect();
        let fsync = matches!(op, Op::Fsync { .. });
        let mut shown = Vec::new();
        for (i, a) in self.ops.iter_mut().enumerate() {
            let same = (a.witness.mount, a.witness.life) == (mount, life);
            let common = a.touched.iter().any(|n| nodes.contains(n) && a.is_shown_by(op, *n));
            if (fsync && same) || (!same && common && shows_names(op) && a.changes_names()) {
                shown.push(i);
            }
            if fsync && same && common {
                a.data_pinned = true;
            }
        }
        if let (Op::Fsync { node }, Some(base)) = (op, &mut self.base) {
            base.flushed(*node, (mount, life));
        }
        // The journal is in order, and so is what a client sends. What another client executed by itself came
        // to the journal later than it was answered: perhaps behind what is shown here.
        for i in shown {
            let (earlier, rest) = self.ops.split_at_mut(i);
            let last = &mut rest[0];
            last.names_pinned = true;
            // Bytes are in an OST's journal, which says nothing of the MDT's.
            let names = is_names(&last.op);
            for a in earlier {
                let before = names && a.before.is_some_and(|n| n <= last.number);
                a.names_pinned |= a.same_client(last) || before;
            }
        }
    }

    /// Before the next change: what the servers have by now is before it in their journals.
    pub fn ordered(&mut self, c: &Cluster) {
        let next = self.count + 1;
        for a in self.ops.iter_mut().filter(|a| a.before.is_none() && a.witness.told(c)) {
            a.before = Some(next);
        }
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
            a.redo(self.base.as_mut().expect("made with the first operation"), true);
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

    /// Whether anything was not told when its client died: some of it may still be on its way.
    pub fn untold(&self, c: &Cluster) -> bool {
        self.ops.iter().any(|a| a.open() && a.witness.untold(c, Part::Names))
    }

    /// Whether anything may have been lost.
    pub fn doubtful(&self, c: &Cluster) -> bool {
        self.ops.iter().any(|a| a.doubtful(c))
    }

    fn groups(&self, c: &Cluster) -> Vec<Vec<usize>> {
        let mut by_client: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
        for (i, a) in self.ops.iter().enumerate().filter(|(_, a)| a.doubtful(c)) {
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

    fn build(&self, lost: &BTreeSet<usize>, opens: &BTreeMap<Id, u32>) -> Tree {
        let mut t = self.base.clone().expect("made with the first operation");
        for (i, a) in self.ops.iter().enumerate() {
            a.redo(&mut t, !lost.contains(&i));
        }
        for (id, fid) in &self.fids {
            if t.get(*id).is_some() {
                t.set_fid(*id, *fid);
            }
        }
        t.release(opens);
        t
    }

    /// The states that the names may be in: the one that fits what was seen, taught by it.
    pub fn find(
        &self,
        c: &Cluster,
        opens: &BTreeMap<Id, u32>,
        mut fits: impl FnMut(Tree) -> Option<Tree>,
    ) -> Option<Tree> {
        Tail::cuts(&self.groups(c)).iter().find_map(|lost| fits(self.build(lost, opens)))
    }
}

/// A look at the files after a client's death.
pub struct Look<'a> {
    pub snap: &'a Snapshot,
    /// The mounts' lives before the look: who died later may have died after it.
    pub lives: &'a [u64],
    /// Files of which nobody knows what was put into them, or where: copied from bytes that were being lost,
    /// or appended to them.
    pub unsure: &'a BTreeSet<Id>,
}

impl Look<'_> {
    pub fn dead(&self, mount: usize, life: u64) -> bool {
        self.lives[mount] != life
    }

    /// Files of which a dead client may have taken bytes along that nobody else had hold what was seen, if
    /// that can be: each piece one that was written there, or by `op`, of which nobody knows whether it
    /// happened.
    pub fn take_losses(&self, t: &mut Tree, op: Option<&Op>) -> Result<(), String> {
        let also = op.filter(|op| op.nodes().iter().all(|n| t.get(*n).is_some())).map(|op| {
            let mut after = t.clone();
            let _ = after.apply(op);
            after
        });
        let lossy = t.lossy(|m, l| self.dead(m, l));
        let ids: BTreeSet<Id> = lossy.into_iter().chain(self.unsure.iter().copied()).collect();
        for id in ids {
            let Some(fid) = t.get(id).and_then(|n| n.fid) else { continue };
            let Some(seen) = self.snap.values().find(|s| s.fid == fid) else { continue };
            let also = also.as_ref().and_then(|a| a.get(id)?.content());
            let also = op.zip(also.as_ref().map(|v| v.as_slice()));
            if !self.unsure.contains(&id) && !t.plausible(id, &seen.content, also) {
                return Err(format!("file {fid} holds what was never written, after its writer died"));
            }
            t.lost(id, seen.content.clone(), |m, l| self.dead(m, l));
        }
        Ok(())
    }

    /// Whether a state is what was seen, but for bytes that may be lost. Teaches it what was.
    pub fn fits(&self, t: &mut Tree, op: Option<&Op>) -> bool {
        self.take_losses(t, op).is_ok() && match_tree(t, self.snap).is_ok()
    }
}

//! Actors: each works on a subtree of its own, one operation after the other, through any of the mounts, and
//! checks every answer against the model. Actors run at the same time.

use crate::components::{Change, Components};
use crate::exec::{self, Got, Resolved};
use crate::executor::lock;
use crate::generate;
use crate::known::DEAD_CLIENT_PATIENCE;
use crate::losses::{self, Look, Tail, Witness};
use crate::maintained::Kind;
use crate::oracle::{self, Id, Op, Out, Tree};
use crate::run::{Gone, Run, Violation, alive};
use crate::shared::Shared;
use ::world::rng::Rng;
use client::OpenHandle;
use model::{Errno, Fid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Open files an actor keeps at most.
const HANDLES_MAX: usize = 12;
struct Handle {
    node: Id,
    mount: usize,
    life: u64,
    file: Arc<OpenHandle>,
}

pub struct Actor {
    pub id: usize,
    pub run: Arc<Run>,
    /// `None`: everybody works by himself.
    shared: Option<Arc<Shared>>,
    pub tree: Tree,
    rng: Rng,
    handles: Vec<Handle>,
    number: u64,
    /// Files that one mount made: another finds them by their names before it works on them.
    made: BTreeMap<Id, usize>,
    /// What may be lost if clients die.
    tail: Tail,
    /// Files that were changed by what other files hold, or by their end, while a client that kept parts of
    /// those died.
    unsure: BTreeSet<Id>,
    /// It changes components of its files, if it does.
    components: Option<Components>,
}

/// An operation, and what it gave.
type Answer = (Op, Result<Got, Errno>);

/// Whether an answer may differ from what was expected because bytes went with a dead client: also by saying
/// that a file ends before where something was looked for.
fn may_differ<T>(op: &Op, want: &Result<T, Errno>, got: &Result<Got, Errno>) -> bool {
    let beyond = matches!(op, Op::Seek { .. }) && matches!(got, Err(Errno::ENXIO));
    want.is_ok() && (got.is_ok() || beyond)
}

/// Whether what it changes depends on what is in a file: then it says nothing where that may be lost.
fn depends_on_bytes(op: &Op) -> bool {
    matches!(op, Op::Append { .. } | Op::Copy { .. })
}

impl Actor {
    pub fn new(
        id: usize,
        run: Arc<Run>,
        shared: Option<Arc<Shared>>,
        root: Fid,
        name: &[u8],
        rng: Rng,
    ) -> Actor {
        Actor {
            id,
            run,
            shared,
            tree: Tree::new(root, 0o755, name),
            rng,
            handles: Vec::new(),
            number: 0,
            made: BTreeMap::new(),
            tail: Tail::default(),
            unsure: BTreeSet::new(),
            components: None,
        }
    }

    /// It also changes components of its files.
    pub fn with_components(mut self, rng: Option<Rng>) -> Actor {
        self.components = rng.map(Components::new);
        self
    }

    pub async fn work(&mut self, ops: u64) -> Result<(), Violation> {
        while self.number < ops {
            let run = self.run.clone();
            if self.rng.below(run.shared_one_in) == 0
                && let Some(shared) = self.shared.clone()
            {
                shared.step(&run, self.id, &mut self.rng).await.map_err(|e| self.tell(&e))?;
            } else if !self.step().await? {
                continue;
            }
            self.number += 1;
            self.run.ops.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn tell(&self, what: &str) -> Violation {
        format!("actor {} operation {}: {what}", self.id, self.number)
    }

    /// Files whose client died are closed, by the server.
    fn drop_dead_handles(&mut self) {
        for node in self.dead_handles() {
            self.tree.closed(node);
        }
    }

    fn dead_handles(&mut self) -> Vec<Id> {
        let mounts = &self.run.cluster.mounts;
        let mut dead = Vec::new();
        self.handles.retain(|h| {
            let lives = *mounts[h.mount].life.borrow() == h.life;
            if !lives {
                dead.push(h.node);
            }
            lives
        });
        dead
    }

    /// False: nothing to do this time.
    async fn step(&mut self) -> Result<bool, Violation> {
        self.drop_dead_handles();
        self.settle_losses().await?;
        let close =
            self.handles.len() >= HANDLES_MAX || (!self.handles.is_empty() && self.rng.below(20) == 0);
        if close {
            return self.close_one().await.map(|()| true);
        }
        let run = self.run.clone();
        if let Some(op) = self.choose_change().await? {
            return self.perform(op).await;
        }
        match generate::next(&self.tree, &run.mix, &mut self.rng) {
            Some(op) => self.perform(op).await,
            None => Ok(false),
        }
    }

    /// At times a change of the components of a file, by the layout that a mount shows.
    async fn choose_change(&mut self) -> Result<Option<Op>, Violation> {
        let run = self.run.clone();
        let Some(node) = self.components.as_mut().and_then(|c| c.file(&self.tree)) else { return Ok(None) };
        let (mount, fs, life) = run.mount(self.id, &mut self.rng).await;
        let look = crate::components::layout(&fs, self.tree.fid(node));
        let look = run.bounded("asking for a layout", alive(&run.cluster.mounts[mount], life, look)).await;
        let Ok(Some(layout)) = look.map_err(|e| self.tell(&e))? else { return Ok(None) };
        let Some(parts) = &mut self.components else { return Ok(None) };
        parts.marked_as_said((node, &layout)).map_err(|e| format!("actor {}: {e}", self.id))?;
        Ok(parts.change(node, &layout).map(|change| Op::Components { node, change }))
    }

    /// One operation, checked. False: it cannot be done now.
    pub async fn perform(&mut self, op: Op) -> Result<bool, Violation> {
        let run = self.run.clone();
        let (mount, fs, life) = run.mount(self.id, &mut self.rng).await;
        // Clients may have died meanwhile.
        self.drop_dead_handles();
        self.settle_losses().await?;
        if !self.tree.has(&op) {
            return Ok(false);
        }
        let handle = match op {
            Op::Read { node, .. } => self.handle_of(node, mount),
            _ => None,
        };
        // A file without a name lives as long as the clients that have it open: only they work on it.
        let nameless = |id: &Id| self.tree.node(*id).nlink == 0;
        if op.nodes().iter().any(|id| nameless(id) && self.handle_of(*id, mount).is_none()) {
            return Ok(false);
        }
        if crate::components::is_behind(&self.tree, &op) {
            return Ok(false);
        }
        run.cluster.sim.log(|| format!("actor {} mount {mount} {}", self.id, short(&op)));
        // Files can be named by their FIDs alone, too.
        let way = if self.rng.below(2) == 0 { self.way_to(&op, mount) } else { Vec::new() };
        let resolved = Resolved::new(&self.tree, op.clone(), handle);
        if let Some(id) = op.written() {
            run.cluster.writes(self.tree.fid(id), mount, life);
        }
        let before = (run.maintenance.may_refuse(mount), run.maintenance.firm(mount));
        let done = async {
            for (dir, name) in way {
                // What is not there any more the operation finds out.
                let _ = fs.clone().lookup(exec::call(), dir, name).await;
            }
            exec::run(fs.clone(), resolved).await
        };
        let done = run.bounded(&short(&op), alive(&run.cluster.mounts[mount], life, done)).await;
        match done.map_err(|e| self.tell(&e))? {
            Ok(got) => {
                let answer = match &got {
                    Ok(Got::Changed(how)) => how.result.as_ref().map(drop).map_err(|e| *e),
                    got => got.as_ref().map(drop).map_err(|e| *e),
                };
                let wrong = run.maintenance.judge(mount, before.1, kind(&op), answer.is_ok());
                wrong.map_err(|e| self.tell(&format!("{} on mount {mount} {e}", short(&op))))?;
                let after = run.maintenance.may_refuse(mount);
                let may_refuse = before.0.0 || after.0 || after.1 != before.0.1;
                if answer == Err(Errno::EROFS) && may_refuse {
                    // What was refused did not happen: the model stays as it is.
                    run.cluster.sim.count("maintenance_refused");
                    return Ok(true);
                }
                let witness = Witness::new(&run.cluster, &fs, mount, life);
                let (op, got) = match (op, got) {
                    // Several calls, of which the later ones were refused: the earlier ones happened.
                    (Op::Copy { from, from_off, to, to_off, .. }, Ok(Got::CopiedUntilRefused(len)))
                        if may_refuse =>
                    {
                        run.cluster.sim.count("maintenance_refused");
                        (Op::Copy { from, from_off, to, to_off, len }, Ok(Got::Number(len)))
                    }
                    (op, got) => self.settle_change(op, got)?,
                };
                self.check(&op, got, mount, life, witness).await?;
            }
            Err(Gone) => {
                self.find_out(&op).await?;
                if let (Op::Components { node, change }, Some(parts)) = (op, &mut self.components) {
                    parts.unanswered(&mut self.tree, node, change);
                }
            }
        }
        Ok(true)
    }

    /// A change of components as its answer says that it went.
    fn settle_change(&mut self, op: Op, got: Result<Got, Errno>) -> Result<Answer, Violation> {
        let (Op::Components { node, change }, Some(parts)) = (&op, &mut self.components) else {
            return Ok((op, got));
        };
        let Ok(Got::Changed(how)) = got else { return Ok((op, got)) };
        let had = self.tree.node(*node).data().len() as u64;
        match parts.settle(&self.run.cluster.sim, (*node, had), *change, how) {
            Ok((change, got)) => Ok((Op::Components { node: *node, change }, Ok(got))),
            Err(e) => Err(self.tell(&format!("{} {e}", short(&op)))),
        }
    }

    /// The names by which a mount finds what others made.
    fn way_to(&mut self, op: &Op, mount: usize) -> Vec<(Fid, Vec<u8>)> {
        let mut way = Vec::new();
        for id in op.nodes() {
            let (mut at, mut names, mut strange) = (id, Vec::new(), false);
            while at != crate::oracle::ROOT {
                strange |= self.made.get(&at).is_some_and(|m| *m != mount);
                let Some((dir, name)) = self.tree.a_name_of(at) else { break };
                names.push((self.tree.fid(dir), name));
                at = dir;
            }
            if strange {
                way.extend(names.into_iter().rev());
            }
        }
        way
    }

    fn handle_of(&self, node: Id, mount: usize) -> Option<Arc<OpenHandle>> {
        self.handles.iter().find(|h| h.node == node && h.mount == mount).map(|h| h.file.clone())
    }

    async fn close_one(&mut self) -> Result<(), Violation> {
        let i = self.rng.index(self.handles.len());
        let h = self.handles.swap_remove(i);
        self.tree.closed(h.node);
        self.close_handle(h).await
    }

    async fn close_handle(&self, h: Handle) -> Result<(), Violation> {
        let run = self.run.clone();
        let m = &run.cluster.mounts[h.mount];
        let Some((fs, _)) = m.get().filter(|(_, l)| *l == h.life) else { return Ok(()) };
        let closed =
            run.bounded("close", alive(m, h.life, fs.close(h.file))).await.map_err(|e| self.tell(&e))?;
        match closed {
            Ok(Err(e)) => Err(self.tell(&format!("close gave {e}"))),
            _ => Ok(()),
        }
    }

    async fn check(
        &mut self,
        op: &Op,
        got: Result<Got, Errno>,
        mount: usize,
        life: u64,
        witness: Witness,
    ) -> Result<(), Violation> {
        let mut before = self.tree.clone();
        let mut want = self.tree.apply(op);
        // What another mount took along when it died in this moment may show, or not.
        let unsure = !self.lossy().is_empty();
        if let Err(e) = exec::compare(&want, &got) {
            self.tree = before.clone();
            let e = self.tell(&format!("{} on mount {mount} {e}", short(op)));
            match self.explain(op, &got, unsure).await? {
                Some(t) => {
                    before = t.clone();
                    self.adopt(t);
                    if op.nodes().iter().any(|n| self.tree.get(*n).is_none()) {
                        return Ok(());
                    }
                }
                None if unsure && may_differ(op, &want, &got) => {}
                None => return Err(e),
            }
            want = self.tree.apply(op);
        }
        if want.is_ok() {
            self.note_bytes(op, &before, mount, life, unsure);
        }
        let node = match (&want, op) {
            (Ok(Out::Node(id, _)), _) => Some(*id),
            (Ok(_), Op::Open { node }) => Some(*node),
            _ => None,
        };
        if want.is_ok() {
            // If something may be lost already, the answer may be from after that.
            if !self.tail.doubtful(&self.run.cluster) {
                self.tail.shown(op, node, mount, life);
            }
            let settled = losses::settled_op(&before, op);
            self.tail.add(before, settled, node, &self.tree, witness);
        }
        let (Some(node), Ok(got)) = (node, got) else { return Ok(()) };
        self.made.entry(node).or_insert(mount);
        match got {
            Got::Attr(a) => self.learn(node, a.fid),
            Got::Opened(a, file) => {
                self.learn(node, a.fid);
                self.handles.push(Handle { node, mount, life, file });
            }
            Got::Handle(file) => self.handles.push(Handle { node, mount, life, file }),
            _ => {}
        }
        Ok(())
    }

    fn lossy(&self) -> Vec<Id> {
        let mounts = &self.run.cluster.mounts;
        self.tree.lossy(|m, l| *mounts[m].life.borrow() != l)
    }

    /// Remembers what the mount may keep for itself of what it changed.
    fn note_bytes(&mut self, op: &Op, before: &Tree, mount: usize, life: u64, unsure: bool) {
        if let Op::Fsync { node } = op {
            self.tree.flushed(*node, (mount, life));
        }
        let id = op.written();
        let Some((id, before)) = id.and_then(|id| Some((id, before.get(id)?.content()?))) else { return };
        self.tree.changed(id, before, op, Some((mount, life)));
        if unsure {
            // As if a life that is over had written it: looked at before the next step.
            let now = self.tree.node(id).content().unwrap_or_default();
            self.tree.changed(id, now, op, Some((mount, u64::MAX)));
            if depends_on_bytes(op) {
                self.unsure.insert(id);
            }
        }
    }

    fn lives(&self) -> Vec<u64> {
        self.run.cluster.mounts.iter().map(|m| *m.life.borrow()).collect()
    }

    /// Nobody can look a file without a name up: closes it.
    async fn give_up_nameless(&mut self, id: Id) -> Result<(), Violation> {
        while let Some(i) = self.handles.iter().position(|h| h.node == id) {
            let h = self.handles.swap_remove(i);
            self.tree.closed(h.node);
            self.close_handle(h).await?;
        }
        Ok(())
    }

    fn learn(&mut self, node: Id, fid: Fid) {
        if self.tree.get(node).is_some() {
            self.tree.set_fid(node, fid);
        }
        self.tail.learn(node, fid);
    }

    /// How often the files are open whose clients live.
    fn opens(&self) -> BTreeMap<Id, u32> {
        let mut n = BTreeMap::new();
        for h in &self.handles {
            *n.entry(h.node).or_default() += 1;
        }
        n
    }

    /// Finds out what a dead client's changes came to: those of names if a server lost power since and they
    /// may be lost, and bytes that only it had.
    async fn settle_losses(&mut self) -> Result<(), Violation> {
        let run = self.run.clone();
        self.tail.compact(&run.cluster);
        self.tail.ordered(&run.cluster);
        let bytes = !self.lossy().is_empty();
        if !bytes && !self.tail.doubtful(&run.cluster) {
            return Ok(());
        }
        let (snap, lives) = self.look_after_death(bytes).await?;
        // Clients may have died meanwhile.
        self.drop_dead_handles();
        for id in self.tree.lossy(|m, l| lives[m] != l) {
            if self.tree.node(id).nlink == 0 {
                self.give_up_nameless(id).await?;
            }
        }
        let unsure = std::mem::take(&mut self.unsure);
        let look = Look { snap: &snap, lives: &lives, unsure: &unsure };
        if !self.tail.doubtful(&run.cluster) {
            return look.take_losses(&mut self.tree, None).map_err(|e| self.tell(&e));
        }
        let fits = |mut t: Tree| look.fits(&mut t, None).then_some(t);
        match self.tail.find(&run.cluster, &self.opens(), fits) {
            Some(t) => self.adopt(t),
            None => {
                let why = exec::match_tree(&mut self.tree, &snap);
                return Err(self.tell(&format!(
                    "after a client's and a server's death {why:?}, and no tail that may be lost explains it"
                )));
            }
        }
        Ok(())
    }

    /// The tree as it is when nothing that a dead client sent can still happen, and the lives before the
    /// look. What this shows is durable, because others look; what it does not show never comes back.
    async fn look_after_death(&mut self, bytes: bool) -> Result<(exec::Snapshot, Vec<u64>), Violation> {
        if self.tail.doubtful(&self.run.cluster) {
            self.run.cluster.sim.count("doubtful_tail");
        }
        let untold = self.tail.untold(&self.run.cluster);
        if bytes {
            self.run.cluster.sim.count("unwritten_bytes_lost");
        }
        if untold {
            self.run.cluster.sim.count("untold_operations_lost");
        }
        if bytes || untold {
            self.run.cluster.sim.sleep(DEAD_CLIENT_PATIENCE).await;
        }
        self.wait_for_the_living().await;
        let lives = self.lives();
        Ok((self.snapshot().await?, lives))
    }

    /// While an operation was under way, a client and a server may have died, and with them what it should
    /// have seen: the state before it that its answer fits.
    async fn explain(
        &mut self,
        op: &Op,
        got: &Result<Got, Errno>,
        unsure: bool,
    ) -> Result<Option<Tree>, Violation> {
        let run = self.run.clone();
        self.drop_dead_handles();
        if !self.tail.doubtful(&run.cluster) {
            return Ok(None);
        }
        let (snap, lives) = self.look_after_death(unsure).await?;
        self.drop_dead_handles();
        let mut unknown = self.unsure.clone();
        unknown.extend(op.written().filter(|_| unsure && depends_on_bytes(op)));
        let look = Look { snap: &snap, lives: &lives, unsure: &unknown };
        let fits = |mut t: Tree| {
            let before = t.clone();
            if !op.nodes().iter().all(|n| t.get(*n).is_some()) {
                // What it was to work on went with its dead maker, and that is what it says.
                let says = matches!(got, Err(Errno::ENOENT | Errno::ESTALE));
                return (says && look.fits(&mut t, None)).then_some(t);
            }
            let want = t.apply(op);
            let same = exec::compare(&want, got).is_ok() || (unsure && may_differ(op, &want, got));
            (same && look.fits(&mut t, None)).then_some(before)
        };
        Ok(self.tail.find(&run.cluster, &self.opens(), fits))
    }

    /// What living clients changed becomes durable soon: then only the dead ones' changes are in question.
    async fn wait_for_the_living(&self) {
        while self.tail.pending(&self.run.cluster) {
            self.run.cluster.sim.sleep(Duration::from_millis(20)).await;
        }
    }

    /// The state that turned out to be.
    fn adopt(&mut self, t: Tree) {
        let gone = self.tree.iter().filter(|(id, _)| t.get(*id).is_none()).filter_map(|(_, n)| n.fid);
        // Made and removed again, both lost: what was written meanwhile is still there.
        let gone: Vec<Fid> = gone.chain(self.tail.made_without(&t)).collect();
        if !gone.is_empty() {
            self.run.cluster.sim.count("lost_creation");
        }
        lock(&self.run.lost).extend(gone);
        self.tree = t;
        self.tail.clear();
    }

    /// The client died during `op`: it happened or not. Looks which, once it can happen no more.
    async fn find_out(&mut self, op: &Op) -> Result<(), Violation> {
        self.run.cluster.sim.count("unanswered_operation");
        self.run.cluster.sim.sleep(DEAD_CLIENT_PATIENCE).await;
        // With and without the operation; its file may have died with the client, in either.
        let mut after = self.tree.clone();
        let done = after.apply(op);
        match (&done, op) {
            (Ok(Out::Node(id, _)), Op::Create { .. } | Op::Tmpfile { .. }) => after.closed(*id),
            (Ok(_), Op::Open { node }) => after.closed(*node),
            _ => {}
        }
        for node in self.dead_handles() {
            self.tree.closed(node);
            after.closed(node);
        }
        // Nobody can look a file without a name up, to see what it holds now: give it up.
        let mut unsure = Vec::new();
        for i in (0..self.handles.len()).rev() {
            let node = self.handles[i].node;
            if op.nodes().contains(&node) && self.tree.node(node).nlink == 0 {
                unsure.push(self.handles.swap_remove(i));
            }
        }
        for h in unsure {
            self.tree.closed(h.node);
            after.closed(h.node);
            self.close_handle(h).await?;
        }
        self.wait_for_the_living().await;
        let lives = self.lives();
        let snap = self.snapshot().await?;
        let unsure = std::mem::take(&mut self.unsure);
        let look = Look { snap: &snap, lives: &lives, unsure: &unsure };
        let lossy = self.tree.lossy(|m, l| look.dead(m, l));
        look.take_losses(&mut self.tree, Some(op)).map_err(|e| self.tell(&e))?;
        for id in lossy.into_iter().chain(unsure.iter().copied()) {
            // One whose name this operation took away could not be looked at: it is given up at the next
            // step.
            let seen = self.tree.get(id).is_some_and(|n| snap.values().any(|s| n.fid == Some(s.fid)));
            if let (Some(_), Some(n), true) = (after.get(id), self.tree.get(id), seen) {
                after.lost(id, n.data().to_vec(), |m, l| look.dead(m, l));
            }
        }
        // A file that has its only name by this operation is in the state with it alone: its bytes may be
        // lost as well.
        look.take_losses(&mut after, None).map_err(|e| self.tell(&e))?;
        let without = exec::match_tree(&mut self.tree, &snap);
        if without.is_ok() {
            self.tail.clear();
            return Ok(());
        }
        let with = exec::match_tree(&mut after, &snap);
        if with.is_ok() {
            self.tree = after;
            self.tail.clear();
            return Ok(());
        }
        if let Some(t) = done_in_part(self.tree.clone(), &after, op, &snap) {
            self.tree = t;
            self.tail.clear();
            return Ok(());
        }
        let c = self.run.cluster.clone();
        if self.tail.doubtful(&c) {
            let opens = self.opens();
            let found = self.tail.find(&c, &opens, |t| with_or_without(t, op, &opens, &look));
            if let Some(t) = found {
                self.adopt(t);
                return Ok(());
            }
        }
        Err(self.tell(&format!(
            "{} was cut short by its client's death and neither happened ({with:?}) nor not ({without:?})",
            short(op)
        )))
    }

    /// The tree as some mount shows it.
    pub async fn snapshot(&mut self) -> Result<exec::Snapshot, Violation> {
        let run = self.run.clone();
        loop {
            let (mount, fs, life) = run.mount(self.id + 1, &mut self.rng).await;
            run.cluster.sim.log(|| format!("actor {} mount {mount} looks at everything", self.id));
            let snap = exec::snapshot(&fs, self.tree.fid(crate::oracle::ROOT));
            match run
                .bounded("walk", alive(&run.cluster.mounts[mount], life, snap))
                .await
                .map_err(|e| self.tell(&e))?
            {
                Ok(Ok(s)) => return Ok(s),
                Ok(Err(e)) => return Err(self.tell(&format!("the walk over the tree ended with {e}"))),
                Err(Gone) => {}
            }
        }
    }

    /// Closes everything.
    pub async fn finish(&mut self) -> Result<(), Violation> {
        self.drop_dead_handles();
        self.settle_losses().await?;
        while !self.handles.is_empty() {
            self.close_one().await?;
        }
        Ok(())
    }

    /// Everything acknowledged is there, and nothing else.
    pub async fn verify(&mut self) -> Result<(), Violation> {
        let snap = self.snapshot().await?;
        exec::match_tree(&mut self.tree, &snap).map_err(|e| format!("actor {}: in the end {e}", self.id))?;
        self.verify_marks().await
    }

    /// Components have the flags that they were given, and no others.
    async fn verify_marks(&mut self) -> Result<(), Violation> {
        let run = self.run.clone();
        let Some(parts) = &self.components else { return Ok(()) };
        for node in parts.marked() {
            let Some(fid) = self.tree.get(node).and_then(|n| n.fid) else { continue };
            let (mount, fs, life) = run.mount(self.id, &mut self.rng).await;
            let look = alive(&run.cluster.mounts[mount], life, crate::components::layout(&fs, fid));
            if let Ok(Some(layout)) = run.bounded("asking for a layout", look).await? {
                parts.marked_as_said((node, &layout)).map_err(|e| format!("in the end {e}"))?;
            }
        }
        Ok(())
    }
}

/// A state with `op` in part.
fn done_in_part(mut t: Tree, after: &Tree, op: &Op, snap: &exec::Snapshot) -> Option<Tree> {
    let data = partly_done(&t, after, op, snap)?;
    t.adopt(op.written()?, data);
    if let Op::Components { node, change } = op {
        crate::components::may_end(&mut t, *node, *change);
    }
    exec::match_tree(&mut t, snap).is_ok().then_some(t)
}

/// A state without `op`, with it, or with a part of it, whichever was seen. Its client is dead.
fn with_or_without(mut t: Tree, op: &Op, opens: &BTreeMap<Id, u32>, look: &Look) -> Option<Tree> {
    if look.take_losses(&mut t, Some(op)).is_err() {
        return None;
    }
    if exec::match_tree(&mut t, look.snap).is_ok() {
        return Some(t);
    }
    if !op.nodes().iter().all(|n| t.get(*n).is_some()) {
        return None;
    }
    let mut after = t.clone();
    let _ = after.apply(op);
    after.release(opens);
    if look.fits(&mut after, None) {
        return Some(after);
    }
    done_in_part(t, &after, op, look.snap)
}

/// A change of bytes that a dying client made in part: what the file holds, if each piece is an old or a new
/// one.
fn partly_done(before: &Tree, after: &Tree, op: &Op, snap: &exec::Snapshot) -> Option<Vec<u8>> {
    let id = op.written()?;
    let (old, new) = (before.get(id)?.data(), after.get(id)?.data());
    let fid = before.get(id)?.fid?;
    let seen = snap.values().find(|s| s.fid == fid)?;
    let len = seen.content.len();
    if len > old.len().max(new.len()) {
        return None;
    }
    let at = |d: &[u8], i: usize| d.get(i).copied().unwrap_or(0);
    // A cut of several objects may so far have taken a tail of zeros away that another object was to hold.
    if (len..old.len().min(new.len())).any(|i| at(old, i) != 0 || at(new, i) != 0) {
        return None;
    }
    let mut cuts: BTreeSet<u64> = oracle::bounds(before, op, old.len() as u64, new.len() as u64).collect();
    if matches!(op, Op::Components { .. }) {
        cuts.insert(len as u64);
    }
    oracle::pieces_fit(&seen.content, cuts, &[old, new]).then(|| seen.content.clone())
}

fn kind(op: &Op) -> Kind {
    match op {
        Op::Close { .. } | Op::Fsync { .. } => Kind::GoesOn,
        Op::Read { .. }
        | Op::Seek { .. }
        | Op::Getattr { .. }
        | Op::Lookup { .. }
        | Op::Readdir { .. }
        | Op::Readlink { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Getpath { .. }
        | Op::Components { change: Change::Nothing, .. } => Kind::Looks,
        _ => Kind::Changes,
    }
}

/// An operation without its bytes.
pub fn short(op: &Op) -> String {
    match op {
        Op::Write { node, off, data } => {
            format!("Write {{ node: {node}, off: {off}, {} bytes }}", data.len())
        }
        Op::Append { node, data } => format!("Append {{ node: {node}, {} bytes }}", data.len()),
        Op::Setxattr { node, name, value, flags } => {
            format!(
                "Setxattr {{ node: {node}, {}, {} bytes, flags: {flags} }}",
                String::from_utf8_lossy(name),
                value.len()
            )
        }
        Op::Symlink { dir, name, target } => {
            format!(
                "Symlink {{ dir: {dir}, name: {}, {} bytes }}",
                String::from_utf8_lossy(name),
                target.len()
            )
        }
        other => format!("{other:?}"),
    }
}

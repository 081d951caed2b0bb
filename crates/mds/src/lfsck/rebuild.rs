//! Files of which nothing is left but their objects, as after the loss of this target's table. Each object
//! knows the component that it is part of, with all of its objects (decision 0087): of the first one that is
//! found a file of that FID is made in lost+found, with that component; labels of others add theirs. What was
//! destroyed, or says otherwise, is told and not put together.

use super::found::Why;
use super::mend::Mend;
use super::objects::{AT_ONCE, Missed, PATIENCE, ask, session, these, waiting};
use super::outcome::Action;
use super::walk::{Stopped, Walk};
use crate::MdsError;
use crate::schema::{Inode, key, value};
use model::fid::{SEQ_NORMAL, SEQ_WIDTH};
use model::layout::{Joined, LayoutObject, ObjectLabel};
use model::planted::{self, Bug};
use model::{Errno, Fid, FileType, Layout, ObjectId};
use rpc::Import;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::msg::objectlist::{ListedObject, OBJECTS_MAX, ObjectlistReply};

/// Component ids that the file's next ones lie behind those that are known: others may have been used.
const ATTEMPTS_BEHIND: u32 = 1 << 16;
/// Sequences that inode numbers have room for.
const SEQUENCES: u64 = 1 << 47;
/// Objects that a dry run remembers, so that it does not count them twice.
const CLAIMED_MAX: usize = 1 << 20;

/// An object and what it knows.
#[derive(Clone)]
struct Labelled {
    ost: u16,
    o: ListedObject,
    label: Option<ObjectLabel>,
}

const NEVER_GIVEN: &str = "no target has handed out its FID yet: a metadata target in the place of a lost one is \
     made with mkfs.nacre --replace";

/// Objects by where they are.
type Found = BTreeMap<(u16, ObjectId), Labelled>;

/// One walk over all OSTs for the labels of objects.
#[derive(Default)]
pub(super) struct Rebuild {
    /// OSTs that did not answer: they are not asked for each page.
    silent: BTreeSet<u16>,
}

fn labelled(ost: u16, page: ObjectlistReply) -> Vec<Labelled> {
    let labels: BTreeMap<u32, Vec<u8>> = page.labels.0.unwrap_or_default().into_iter().collect();
    let label = |n: u32| labels.get(&n).and_then(|b| ObjectLabel::decode(b));
    (0u32..).zip(page.objects).map(|(n, o)| Labelled { ost, o, label: label(n) }).collect()
}

/// Whether it says of which file it is, and of which part: a file can be made of it.
fn says_enough(l: &Labelled) -> bool {
    let (fid, label) = (l.o.file, l.label.as_ref());
    let is_normal = (SEQ_NORMAL..SEQUENCES).contains(&fid.seq) && fid.oid < SEQ_WIDTH && fid.oid > 0;
    is_normal && !l.o.destroyed && l.o.size > 0 && label.is_some_and(|c| c.names(l.ost, l.o.id))
}

/// By what the table has now: no file has it, its file is gone, and nobody makes files of that sequence.
fn seems_lost(w: &Walk<'_>, l: &Labelled) -> Result<bool, MdsError> {
    let db = &w.mdt.db;
    let fid = l.o.file;
    if !says_enough(l) || db.get(&key::reverse(l.ost, l.o.id))?.is_some() {
        return Ok(false);
    }
    if db.get(&key::lease(fid.seq))?.is_some() {
        return Ok(false);
    }
    let Some(v) = db.get(&key::inode(fid))? else { return Ok(true) };
    Ok(Inode::decode(fid, &v).is_ok_and(|i| is_rebuilt(&i)))
}

/// It was put together here.
fn is_rebuilt(i: &Inode) -> bool {
    i.kind == FileType::Regular
        && i.layout.as_ref().is_some_and(|l| l.components.iter().any(|c| c.rebuilt().is_some()))
}

/// In a dry run: those of a page that would have a file by now.
pub(super) fn would_have_files(
    w: &Walk<'_>,
    ost: u16,
    page: &ObjectlistReply,
) -> Result<BTreeSet<ObjectId>, MdsError> {
    let mut theirs = BTreeSet::new();
    for l in labelled(ost, page.clone()) {
        if w.claimed.contains(&(ost, l.o.id)) || seems_lost(w, &l)? {
            theirs.insert(l.o.id);
        }
    }
    assert!(theirs.len() <= page.objects.len(), "they are of the page");
    Ok(theirs)
}

impl Rebuild {
    /// A page of one OST's objects.
    pub async fn page(
        &mut self,
        w: &mut Walk<'_>,
        (ost, import): (u16, &Arc<Import>),
        page: ObjectlistReply,
    ) -> Result<(), Missed> {
        let mut lost = Vec::new();
        for l in labelled(ost, page) {
            if seems_lost(w, &l).map_err(|e| Stopped::Failed(e.to_string()))? {
                lost.push(l.o.id);
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        // It may have changed since, as when everything is compared.
        let _ = w.mdt.transactions.all_told(ost).await;
        let again = labelled(ost, ask(w, import, these(lost, true), PATIENCE).await?);
        let again: Vec<Labelled> = again.into_iter().filter(says_enough).collect();
        let others = self.others(w, &again).await?;
        let dry = w.options.dry_run;
        for some in again.chunks(AT_ONCE) {
            let mut claimed = Vec::new();
            let work = |m: &mut Mend| {
                claimed.clear();
                let told = waiting(m, ost)?;
                for l in some.iter().filter(|l| !told.contains(&l.o.id)) {
                    if (Lost { l, others: &others, dry }).put_together(m)? {
                        claimed.extend(l.label.iter().flat_map(|c| &c.component.objects).copied());
                    }
                }
                Ok(())
            };
            let done = w.mend(work).await?;
            w.note_all(done)?;
            if dry && w.claimed.len() < CLAIMED_MAX {
                w.claimed.extend(claimed.into_iter().map(|o| (o.ost, o.id)));
            }
        }
        Ok(())
    }

    /// Those, and what their labels say are other parts of their components, as far as OSTs answer: of what
    /// is not known nothing is said.
    async fn others(&mut self, w: &Walk<'_>, these_ones: &[Labelled]) -> Result<Found, Missed> {
        let mut found: Found = these_ones.iter().map(|l| ((l.ost, l.o.id), l.clone())).collect();
        let mut wanted: BTreeMap<u16, BTreeSet<ObjectId>> = BTreeMap::new();
        for o in these_ones.iter().filter_map(|l| l.label.as_ref()).flat_map(|c| &c.component.objects) {
            if !found.contains_key(&(o.ost, o.id)) {
                wanted.entry(o.ost).or_default().insert(o.id);
            }
        }
        wanted.retain(|ost, _| !self.silent.contains(ost));
        for (ost, ids) in wanted {
            let Some(import) = w.mdt.shared.osts.get(ost).and_then(|o| session(&o).ok()) else { continue };
            let ids: Vec<ObjectId> = ids.into_iter().collect();
            for some in ids.chunks(OBJECTS_MAX as usize) {
                match ask(w, &import, these(some.to_vec(), true), PATIENCE).await {
                    Ok(page) => {
                        found.extend(labelled(ost, page).into_iter().map(|l| ((ost, l.o.id), l)));
                    }
                    Err(Missed::Stopped(s)) => return Err(s.into()),
                    Err(_) => {
                        self.silent.insert(ost);
                        break;
                    }
                }
            }
        }
        Ok(found)
    }
}

/// An object whose file is gone.
struct Lost<'a> {
    l: &'a Labelled,
    others: &'a Found,
    dry: bool,
}

impl Lost<'_> {
    /// In a transaction. False: it is not put together.
    fn put_together(&self, m: &mut Mend) -> Result<bool, Errno> {
        let (fid, id, ost) = (self.l.o.file, self.l.o.id, self.l.ost);
        if m.is_there(&key::reverse(ost, id))? || m.is_there(&key::lease(fid.seq))? {
            return Ok(false);
        }
        for f in [id.origin, fid].into_iter().filter(|f| *f != Fid::NONE) {
            if m.inode(f)?.is_some_and(|i| i.has_object(ost, id)) {
                return Ok(false);
            }
        }
        let old = m.inode(fid)?;
        // The file is there, or cannot be read: its object is another check's.
        if old.as_ref().map_or(m.is_there(&key::inode(fid))?, |i| !is_rebuilt(i)) {
            return Ok(false);
        }
        let joined = match self.label() {
            _ if fid.seq >= next_sequence(m)? => Joined::Contradicts(NEVER_GIVEN),
            Ok(label) => label.join(old.as_ref().and_then(|i| i.layout.as_ref()), self.l.o.generation),
            Err(why) => Joined::Contradicts(why),
        };
        match joined {
            Joined::Known => Ok(true),
            Joined::New(layout) if self.dry => {
                self.say(m, layout.components.first().is_some_and(|c| !c.objects.is_empty()));
                Ok(true)
            }
            Joined::New(layout) => {
                match old {
                    Some(i) => self.add(m, i, layout),
                    None => self.make(m, layout)?,
                }
                Ok(true)
            }
            Joined::Contradicts(why) => {
                let what = format!("object {id} on OST{ost:04x} cannot be put together with its file: {why}");
                m.note("contradictory_label", fid, Action::Left, what);
                Ok(false)
            }
        }
    }

    /// The latest that is known of its component. `Err`: why there is none that it can be believed.
    fn label(&self) -> Result<&ObjectLabel, &'static str> {
        let own = self.l.label.as_ref().ok_or("it has no label")?;
        let mut latest = own;
        for o in &own.component.objects {
            let Some(other) = self.others.get(&(o.ost, o.id)) else { continue };
            if other.o.destroyed && !planted::on(Bug::RebuiltFromRemains) {
                return Err("another object of it is destroyed: it was being removed, or moved");
            }
            if other.o.file != self.l.o.file && other.o.file != Fid::NONE {
                return Err("an object that it names says that it is another file's");
            }
            let later = other.label.as_ref().filter(|l| l.generation > latest.generation);
            latest = later.filter(|l| l.component.start == own.component.start).unwrap_or(latest);
        }
        if latest.names(self.l.ost, self.l.o.id) {
            Ok(latest)
        } else {
            Err("another object of it knows of a later layout, which has not this one")
        }
    }

    /// Of several objects of a component a dry run counts the first that has something.
    fn say(&self, m: &mut Mend, first: bool) {
        let before = |o: &&LayoutObject| (o.ost, o.id) != (self.l.ost, self.l.o.id);
        let objects = self.l.label.iter().flat_map(|c| &c.component.objects);
        let counted =
            objects.take_while(before).any(|o| self.others.get(&(o.ost, o.id)).is_some_and(says_enough));
        if !counted {
            let kind = if first { "lost_file" } else { "lost_component" };
            let what = "its inode is gone, its objects can be put together".to_string();
            m.note(kind, self.l.o.file, Action::Quarantined, what);
        }
    }

    fn make(&self, m: &mut Mend, layout: Layout) -> Result<(), Errno> {
        let (fid, owner) = (self.l.o.file, self.l.o.counted_to());
        let mut i = Inode::new(FileType::Regular, 0o600, owner.uid, owner.gid, m.now);
        i.projid = owner.projid;
        i.layout = Some(layout);
        i.growth.attempts = ATTEMPTS_BEHIND;
        assert!(is_rebuilt(&i), "it shows what it was made from");
        let name = m.attach(fid, &mut i, (fid, Why::Rebuilt))?;
        m.tx.add_inode(fid, &mut i);
        m.tx.tell_owner(fid, &i);
        let what = format!("its inode was gone: its objects are put together in lost+found as '{name}'");
        m.note("lost_file", fid, Action::Quarantined, what);
        Ok(())
    }

    /// Another component of a file that was made.
    fn add(&self, m: &mut Mend, mut i: Inode, layout: Layout) {
        let fid = self.l.o.file;
        assert!(i.layout.as_ref().is_none_or(|l| l.generation < layout.generation), "layouts go forward");
        for o in i.objects().filter(|o| layout.objects().all(|n| n != *o)) {
            m.tx.delete(key::reverse(o.ost, o.id));
        }
        i.layout = Some(layout);
        i.touch_ctime(m.now);
        m.tx.change_layout(fid);
        m.tx.index_objects(fid, &i);
        m.tx.put_inode(fid, &mut i);
        m.tx.tell_owner(fid, &i);
        let what = "objects of another part of it were found and put to it".to_string();
        m.note("lost_component", fid, Action::Quarantined, what);
    }
}

/// Of the next sequence that is handed out; those before it may have been.
fn next_sequence(m: &mut Mend) -> Result<u64, Errno> {
    let k = key::STATE_NEXT_SEQ;
    Ok(m.tx.get(k)?.and_then(|v| value::decode_u64(k, &v).ok()).unwrap_or(0))
}

//! Object targets against layouts. Each OST shows what it has, a page at a time; what seems wrong is asked
//! for once more, and then looked at in a transaction: an object has its file, or waits in the outbox for its
//! end, or belongs to a layout in change, or nobody has it. All layouts are written before their objects are,
//! and no id is given twice, so an object that no layout names at that moment is never named again.

use super::found::Why;
use super::mend::Mend;
use super::outcome::{Action, Mended};
use super::rebuild::{self, Rebuild};
use super::state::Status;
use super::walk::{Stopped, Walk};
use crate::osts::Ost;
use crate::relayout;
use crate::schema::value;
use crate::schema::{Inode, key};
use bytes::Bytes;
use model::layout::LayoutObject;
use model::planted::{self, Bug};
use model::{Errno, Fid, FileType, Layout, ObjectId, inode_rules, limits};
use rpc::Import;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::objectlist::{ListedObject, OBJECTS_MAX, Objectlist, ObjectlistReply};
use wire::msg::quotactl::{QuotaAsk, Quotactl};
use wire::trailing::Trailing;
use wire::{Message, RequestContext};
use world::{Either, select};

/// How long an OST may take for an answer before the check goes on without it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// To count what all of its objects have.
const PATIENCE_TO_COUNT: Duration = Duration::from_secs(600);
/// Objects that one transaction looks at.
pub(super) const AT_ONCE: usize = 128;

/// Compares all OSTs, after files were put together that nothing but objects is left of, if objects of nobody
/// are to be looked after. False if some did not answer.
pub(super) async fn compare(w: &mut Walk<'_>) -> Result<bool, Stopped> {
    let mut whole = true;
    if w.state()?.reads_labels() {
        whole = all(w, Some(Rebuild::default())).await?;
        w.state()?.objects_from_the_beginning(true);
    }
    if w.options.orphans {
        let mut s = w.state()?;
        let p = s.part(w.component);
        if !p.status.is_under_way() {
            return Err(Stopped::Told);
        }
        p.status = Status::Phase2;
    }
    Ok(all(w, None).await? && whole)
}

/// Goes through the objects of all OSTs.
async fn all(w: &mut Walk<'_>, mut rebuild: Option<Rebuild>) -> Result<bool, Stopped> {
    let mut osts = w.mdt.shared.osts.list();
    osts.sort_by_key(|(index, _)| *index);
    let first = w.state()?.ost;
    let mut whole = true;
    for (index, ost) in osts.into_iter().filter(|(index, _)| *index >= first) {
        {
            let mut s = w.state()?;
            if s.ost != index {
                (s.ost, s.object) = (index, None);
            }
        }
        match one(w, index, &ost, rebuild.as_mut()).await {
            Ok(()) => {}
            Err(Missed::Stopped(s)) => return Err(s),
            Err(Missed::Silent(why)) => {
                tracing::warn!("lfsck: OST{index:04x} is not compared: {why}");
                whole = false;
            }
            Err(Missed::Refused(e)) => {
                let why = if e == Errno::ENOSYS { "its version cannot tell what it has" } else { e.text() };
                tracing::warn!("lfsck: OST{index:04x} is not compared: {why}");
                whole = false;
            }
        }
    }
    Ok(whole)
}

pub(super) enum Missed {
    Stopped(Stopped),
    /// The OST did not answer.
    Silent(String),
    Refused(Errno),
}

impl From<Stopped> for Missed {
    fn from(s: Stopped) -> Missed {
        Missed::Stopped(s)
    }
}

/// Who is asked for an OST's objects.
pub(super) fn session(ost: &Ost) -> Result<Arc<Import>, Missed> {
    let session = ost.import.clone().filter(|_| ost.configured && ost.enabled);
    session.ok_or_else(|| Missed::Silent("it is not in use".into()))
}

async fn one(
    w: &mut Walk<'_>,
    index: u16,
    ost: &Ost,
    mut rebuild: Option<&mut Rebuild>,
) -> Result<(), Missed> {
    let import = session(ost)?;
    // Of a dry run's objects it is asked for once more which would have a file by now.
    let labels = Trailing(Some(rebuild.is_some() || w.options.dry_run && w.options.orphans));
    loop {
        let after = w.state()?.object;
        let started = w.mdt.world.now();
        let limit = match w.speed() {
            0 => OBJECTS_MAX,
            n => n.clamp(1, OBJECTS_MAX.into()) as u32,
        };
        let page = Objectlist { after, limit, only: Vec::new(), labels };
        let page = ask(w, &import, page, PATIENCE).await?;
        let (looked, next) = (page.objects.len() as u64, page.next);
        match &mut rebuild {
            Some(r) => r.page(w, (index, &import), page).await?,
            None => page_of(w, (index, &import), page).await?,
        }
        w.count_looked(usize::from(rebuild.is_none() && w.options.orphans), looked);
        w.state()?.object = next;
        w.step(started, looked.max(1)).await?;
        if next.is_none() {
            break;
        }
    }
    if rebuild.is_some() { Ok(()) } else { usage(w, index, &import).await }
}

/// Compares a page of objects with layouts.
async fn page_of(
    w: &mut Walk<'_>,
    (index, import): (u16, &Arc<Import>),
    page: ObjectlistReply,
) -> Result<(), Missed> {
    let mut suspects: Vec<ObjectId> = Vec::new();
    for o in &page.objects {
        if seems_wrong(w, index, o).map_err(|e| Stopped::Failed(e.to_string()))? {
            suspects.push(o.id);
        }
    }
    if w.options.dry_run {
        let theirs =
            rebuild::would_have_files(w, index, &page).map_err(|e| Stopped::Failed(e.to_string()))?;
        suspects.retain(|id| !theirs.contains(id));
    }
    assert!(suspects.len() <= page.objects.len(), "what seems wrong was shown");
    if suspects.is_empty() {
        return Ok(());
    }
    // What waits for the OST now is no damage. It may have changed since: what is said now is compared.
    let again = if planted::on(Bug::CheckedByOldWord) {
        page.objects.into_iter().filter(|o| suspects.contains(&o.id)).collect()
    } else {
        let _ = w.mdt.transactions.all_told(index).await;
        ask(w, import, these(suspects, false), PATIENCE).await?.objects
    };
    let orphans_and_create = (w.options.orphans, w.options.create_objects);
    for some in again.chunks(AT_ONCE) {
        let done = w.mend(|m| mend_some(m, index, some, orphans_and_create)).await?;
        w.note_all(done)?;
    }
    Ok(())
}

/// Asks for some objects.
pub(super) fn these(only: Vec<ObjectId>, labels: bool) -> Objectlist {
    Objectlist { after: None, limit: OBJECTS_MAX, only, labels: Trailing(Some(labels)) }
}

pub(super) async fn ask<M: Message + Send + 'static>(
    w: &Walk<'_>,
    import: &Arc<Import>,
    m: M,
    patience: Duration,
) -> Result<M::Reply, Missed> {
    let call = import.call(RequestContext::default(), m, Bytes::new());
    match select(Box::pin(call), w.mdt.stop.pause(patience)).await {
        Either::Left(Ok(r)) => Ok(r.reply),
        Either::Left(Err(e)) => Err(Missed::Refused(e)),
        Either::Right(true) => Err(Stopped::Told.into()),
        Either::Right(false) => Err(Missed::Silent(format!("no answer for {} s", patience.as_secs()))),
    }
}

/// What an OST counts of owners.
async fn usage(w: &mut Walk<'_>, index: u16, import: &Arc<Import>) -> Result<(), Missed> {
    if w.options.dry_run {
        return Ok(());
    }
    let r = match ask(w, import, Quotactl { ask: QuotaAsk::Verify }, PATIENCE_TO_COUNT).await {
        // Somebody else counts and corrects it now.
        Err(Missed::Refused(Errno::EBUSY)) => return Ok(()),
        r => r?,
    };
    for (id, was, is) in r.differed {
        let what = format!("OST{index:04x} counted {} blocks for {id}, there are {}", was.blocks, is.blocks);
        w.note(Mended { kind: "ost_usage", fid: Fid::NONE, action: Action::Repaired, what });
    }
    Ok(())
}

/// By what the table has now, whatever clients have not told.
fn seems_wrong(w: &Walk<'_>, index: u16, o: &ListedObject) -> Result<bool, crate::MdsError> {
    let db = &w.mdt.db;
    let k = key::reverse(index, o.id);
    let Some(v) = db.get(&k)? else { return Ok(!o.destroyed) };
    let Ok(fid) = value::decode_owner(&k, &v) else { return Ok(false) };
    if o.destroyed || (o.file != fid && o.file != Fid::NONE) {
        return Ok(true);
    }
    let inode = db.get(&key::inode(fid))?.and_then(|v| Inode::decode_shown(fid, &v).ok());
    Ok(inode.is_some_and(|i| i.owner() != o.counted_to()))
}

/// Some objects, in a transaction; not those of which something waits in the outbox that says what becomes of
/// them.
fn mend_some(
    m: &mut Mend,
    index: u16,
    some: &[ListedObject],
    (orphans, create): (bool, bool),
) -> Result<(), Errno> {
    let told = waiting(m, index)?;
    for o in some.iter().filter(|o| !told.contains(&o.id)) {
        Compared { m: &mut *m, index, o, orphans, create }.mend()?;
    }
    Ok(())
}

/// Objects of an OST that something waits for in the outbox.
pub(super) fn waiting(m: &mut Mend, index: u16) -> Result<BTreeSet<ObjectId>, Errno> {
    let mut told = BTreeSet::new();
    m.each(&key::outbox_prefix(index), |k, v| {
        if let Ok(r) = value::decode_outbox(k, v)
            && !planted::on(Bug::CheckedByOldWord)
        {
            told.extend(r.objects().iter().copied());
        }
    })?;
    Ok(told)
}

/// One object, in a transaction.
struct Compared<'m, 't, 'a> {
    m: &'m mut Mend<'t, 'a>,
    index: u16,
    o: &'m ListedObject,
    orphans: bool,
    create: bool,
}

impl Compared<'_, '_, '_> {
    fn mend(&mut self) -> Result<(), Errno> {
        let k = key::reverse(self.index, self.o.id);
        let owner = self.m.tx.get(&k)?.map(|v| value::decode_owner(&k, &v));
        match owner {
            // A record that cannot be read is the other check's.
            Some(Err(_)) => Ok(()),
            Some(Ok(fid)) => self.of_file(fid),
            None => self.of_nobody(),
        }
    }

    fn of_file(&mut self, fid: Fid) -> Result<(), Errno> {
        let (o, index) = (self.o, self.index);
        let Some(mut i) = self.m.inode(fid)? else { return Ok(()) };
        // A layout in change, or an index that is wrong, says nothing of its objects yet.
        let changing = i.growth.target.is_some() || self.m.tx.shared.growing.contains(fid);
        if changing || !i.has_object(index, o.id) {
            return Ok(());
        }
        if o.destroyed {
            return self.dangling(fid, i);
        }
        let unmatched = o.file != fid && o.file != Fid::NONE;
        if !unmatched && i.owner() == o.counted_to() {
            return Ok(());
        }
        // As of a moment that none said before knows.
        i.touch_ctime(self.m.now);
        self.m.tx.put_inode(fid, &mut i);
        self.m.tx.tell_owner(fid, &i);
        let (kind, what) = if unmatched {
            (
                "unmatched_object",
                format!("its object {} on OST{index:04x} said it belonged to {}", o.id, o.file),
            )
        } else {
            let (was, is) = (o.counted_to(), i.owner());
            (
                "inconsistent_owner",
                format!("its object {} on OST{index:04x} was counted to {was:?}, not {is:?}", o.id),
            )
        };
        self.m.repaired(kind, fid, what);
        Ok(())
    }

    /// A file's object was destroyed.
    fn dangling(&mut self, fid: Fid, mut i: Inode) -> Result<(), Errno> {
        let what = format!(
            "its object {} on OST{:04x} was destroyed: what lay there is lost",
            self.o.id, self.index
        );
        if !self.create {
            self.m.note("dangling_object", fid, Action::Left, what);
            return Ok(());
        }
        assert!(self.o.destroyed, "only what was destroyed is made anew");
        let old = i.layout.clone().ok_or(Errno::ESTALE)?;
        let lost = LayoutObject { ost: self.index, id: self.o.id };
        relayout::put_elsewhere(self.m.tx, fid, &mut i, &old, &[lost])?;
        inode_rules::touch_mtime(&mut i, self.m.now);
        self.m.tx.put_inode(fid, &mut i);
        self.m.repaired("dangling_object", fid, format!("{what}; an empty one is in its place"));
        Ok(())
    }

    fn of_nobody(&mut self) -> Result<(), Errno> {
        let (o, index) = (self.o, self.index);
        if o.destroyed {
            return Ok(());
        }
        // The file it was made for, and that which it says it belongs to: their layouts count, whatever the
        // index lacks.
        for fid in [o.id.origin, o.file].into_iter().filter(|f| *f != Fid::NONE) {
            if self.m.inode(fid)?.is_some_and(|i| i.has_object(index, o.id)) {
                return Ok(());
            }
        }
        let of = if o.file == Fid::NONE { o.id.origin } else { o.file };
        let kind = if o.size == 0 { "empty_orphan" } else { "orphan_object" };
        let what = format!("object {} on OST{index:04x} with {} bytes is no file's", o.id, o.size);
        if !self.orphans {
            self.m.note(kind, of, Action::Left, what);
        } else if o.size == 0 {
            self.m.tx.give_up_objects(&[LayoutObject { ost: index, id: o.id }]);
            self.m.repaired(kind, of, format!("{what}: it is destroyed"));
        } else {
            let name = self.adopt(of)?;
            self.m.note(kind, of, Action::Quarantined, format!("{what}: it is in lost+found as '{name}'"));
        }
        Ok(())
    }

    /// A file of its own for an object.
    fn adopt(&mut self, of: Fid) -> Result<String, Errno> {
        let (o, owner) = (self.o, self.o.counted_to());
        let fid = self.m.new_fid()?;
        let mut i = Inode::new(FileType::Regular, 0o600, owner.uid, owner.gid, self.m.now);
        i.projid = owner.projid;
        let stripe = limits::STRIPE_SIZE_DEFAULT_BYTES as u32;
        let mut layout = Layout::striped((fid, 1), o.generation, stripe, "", &[self.index]);
        assert_eq!(layout.object_count(), 1, "an object is a file of one stripe");
        layout.components[0].objects[0].id = o.id;
        assert!(layout.has_objects(), "a file that is made for an object has it");
        i.layout = Some(layout);
        let name = self.m.attach(fid, &mut i, (of, Why::Object))?;
        self.m.tx.add_inode(fid, &mut i);
        self.m.tx.tell_owner(fid, &i);
        Ok(name)
    }
}

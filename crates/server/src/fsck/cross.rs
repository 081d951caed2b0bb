//! Objects against layouts: what an object target holds, a layout must name (through the reverse index,
//! which `names` compares with the layouts), or the outbox must be about to destroy.

use super::report::{Problem, Report};
use super::targets::{Role, Target, for_each};
use mds::schema::value::OutboxRecord;
use mds::schema::{inode::Inode, key, value};
use model::fid::SEQ_NORMAL;
use model::{Fid, ObjectId};
use std::collections::BTreeSet;
use store::object::location::{ObjectRecord, TAG_OBJECT, id_of_key, object_key, tombstone_key};
use store::{Read, Txn};

/// Longest chain of folders followed for a path.
const DEPTH_MAX: usize = 4096;
/// Objects destroyed in one transaction.
const DESTROY_MAX: usize = 256;

/// What the metadata target says about objects.
pub struct Names<'a> {
    mdt: &'a Target,
    /// (OST, object) still to be destroyed.
    outbox: BTreeSet<(u16, ObjectId)>,
    /// FIDs of sequences before this one were handed out by a target that is lost, whose place it has.
    first_sequence: u64,
}

impl<'a> Names<'a> {
    pub fn load(mdt: &'a Target) -> Result<Names<'a>, String> {
        let mut outbox = BTreeSet::new();
        for_each(mdt, key::OUTBOX, |k, v| {
            // Records that do not decode are reported by `names`.
            if let (Some((ost, _)), Ok(what)) = (key::parse_outbox(k), value::decode_outbox(k, v))
                && let OutboxRecord::Destroy(objects) = what
            {
                outbox.extend(objects.into_iter().map(|o| (ost, o)));
            }
            Ok(())
        })?;
        let first = mdt.db.get(key::STATE_FIRST_SEQ).map_err(|e| format!("{}: {e}", mdt.label))?;
        let first = first.and_then(|v| value::decode_u64(key::STATE_FIRST_SEQ, &v).ok());
        Ok(Names { mdt, outbox, first_sequence: first.unwrap_or(SEQ_NORMAL) })
    }

    /// An object of a file that the target in whose place this one is had. One without bytes may be a part of
    /// it.
    fn is_predecessors(&self, r: &ObjectRecord) -> bool {
        (SEQ_NORMAL..self.first_sequence).contains(&r.file.seq)
    }

    fn get(&self, k: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.mdt.db.get(k).map_err(|e| format!("{}: {e}", self.mdt.label))
    }

    /// The file whose layout names the object.
    fn owner(&self, ost: u16, id: ObjectId) -> Result<Option<Fid>, String> {
        let k = key::reverse(ost, id);
        let listed = self.get(&k)?.and_then(|v| value::decode_owner(&k, &v).ok());
        if listed.is_some() {
            return Ok(listed);
        }
        // The index may lack it: layouts of the file it was made for count too.
        let fid = id.origin;
        let inode = self.get(&key::inode(fid))?.and_then(|v| Inode::decode(fid, &v).ok());
        let names = inode.is_some_and(|i| i.has_object(ost, id));
        Ok(names.then_some(fid))
    }

    /// One of the file's paths.
    pub fn path(&self, fid: Fid) -> Option<String> {
        path_of(&self.mdt.db, fid)
    }

    /// Says which OSTs hold files but were not among the folders.
    pub fn note_missing_osts(&self, given: &BTreeSet<u16>, report: &mut Report<'_>) -> Result<(), String> {
        let mut from = key::reverse(0, ObjectId { origin: Fid::NONE, component: 0, stripe: 0 });
        let end = [key::REVERSE + 1];
        // One look for each OST: the next key behind all of the last one's.
        while let Some((k, _)) =
            self.mdt.db.scan(&from, &end, 1).map_err(|e| format!("{}: {e}", self.mdt.label))?.first()
        {
            let Some((ost, _)) = key::parse_reverse(k) else { return Ok(()) };
            if !given.contains(&ost) {
                let label = model::TargetId::ost(ost).label(&self.mdt.sb.fsname);
                report.note(&format!(
                    "{label} holds files, but its folder is not among those given: not checked"
                ));
            }
            let Some(next) = ost.checked_add(1) else { return Ok(()) };
            from = key::reverse(next, ObjectId { origin: Fid::NONE, component: 0, stripe: 0 });
        }
        Ok(())
    }
}

/// One of a file's paths, from its back-pointers.
pub fn path_of(db: &dyn Read, fid: Fid) -> Option<String> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut at = fid;
    while at != Fid::ROOT {
        if at == Fid::LOST_FOUND {
            parts.push(b".lustre/lost+found/MDT0000".to_vec());
            break;
        }
        let prefix = key::backptr_prefix(at);
        let found = db.scan(&prefix, &key::behind(&prefix), 1).ok()?;
        let (k, v) = found.first()?;
        let (_, parent, _) = key::parse_backptr(k)?;
        parts.push(value::decode_name(k, v).ok()?);
        at = parent;
        if parts.len() > DEPTH_MAX {
            return None;
        }
    }
    let names: Vec<String> = parts.iter().rev().map(|p| String::from_utf8_lossy(p).into_owned()).collect();
    Some(format!("/{}", names.join("/")))
}

/// Compares one object target with the metadata target.
pub async fn check(
    t: &Target,
    names: &Names<'_>,
    repair: bool,
    report: &mut Report<'_>,
) -> Result<(), String> {
    assert_eq!(t.role, Role::Ost, "objects lie on object targets");
    let ost = t.sb.target.index;
    let mut leaked: Vec<(ObjectId, Problem)> = Vec::new();
    let mut wrong_file: Vec<(ObjectId, ObjectRecord, Problem)> = Vec::new();
    let mut lost: Vec<Problem> = Vec::new();
    for_each(t, TAG_OBJECT, |k, v| {
        let Some((id, record)) = id_of_key(k).and_then(|id| Some((id, ObjectRecord::decode(id, v).ok()?)))
        else {
            return Ok(());
        };
        match names.owner(ost, id)? {
            None if names.outbox.contains(&(ost, id)) => {}
            None if names.is_predecessors(&record) => {
                let what = format!(
                    "object of {} bytes of a file that was lost with its metadata target: lctl lfsck_start -o puts it together",
                    record.attr.size
                );
                lost.push(Problem::new(&t.label, "lost-file", what).object(id).file(record.file, None));
            }
            None => {
                let what = format!("leaked object of {} bytes: no layout names it", record.attr.size);
                let p = Problem::new(&t.label, "leaked-object", what).object(id).file(record.file, None);
                leaked.push((id, p));
            }
            Some(fid) if fid != record.file && record.file != Fid::NONE => {
                let what = format!("the object says it belongs to file {}", record.file);
                let p = Problem::new(&t.label, "wrong-back-pointer", what).object(id);
                wrong_file.push((id, ObjectRecord { file: fid, ..record }, p.file(fid, names.path(fid))));
            }
            Some(_) => {}
        }
        Ok(())
    })?;
    destroyed_but_named(t, names, report)?;
    mend_back_pointers(t, wrong_file, repair, report).await?;
    let removed = repair && remove(t, &leaked, report).await?;
    leaked.into_iter().for_each(|(_, p)| report.problem(p.repaired(removed)));
    lost.into_iter().for_each(|p| report.problem(p));
    Ok(())
}

/// Destroys leaked objects; false if that is not possible.
async fn remove(t: &Target, leaked: &[(ObjectId, Problem)], report: &mut Report<'_>) -> Result<bool, String> {
    if leaked.is_empty() {
        return Ok(true);
    }
    let objects = match t.objects() {
        Ok(o) => o,
        Err(e) => {
            report.note(&format!("{}: leaked objects cannot be removed: {e}", t.label));
            return Ok(false);
        }
    };
    for chunk in leaked.chunks(DESTROY_MAX) {
        let ids: Vec<ObjectId> = chunk.iter().map(|(id, _)| *id).collect();
        let lsn = objects.destroy(ids, Box::new(|_, _, _| {})).await;
        let lsn = lsn.map_err(|e| format!("{}: cannot remove leaked objects: {e}", t.label))?;
        t.db.durable(lsn).await.map_err(|e| format!("{}: {e}", t.label))?;
    }
    Ok(true)
}

/// A file that still names an object with a tombstone has lost its data.
fn destroyed_but_named(t: &Target, names: &Names<'_>, report: &mut Report<'_>) -> Result<(), String> {
    let ost = t.sb.target.index;
    for_each(t, store::object::location::TAG_TOMBSTONE, |k, _| {
        let Some(id) = id_of_key(k) else { return Ok(()) };
        let lost = names.owner(ost, id)?.filter(|_| !names.outbox.contains(&(ost, id)));
        if let Some(fid) = lost
            && is_destroyed(t, id)?
        {
            let p = Problem::new(
                &t.label,
                "lost-object",
                "the object was destroyed, but a file's layout names it",
            );
            report.problem(p.object(id).file(fid, names.path(fid)));
        }
        Ok(())
    })
}

/// Whether the object has a tombstone.
fn is_destroyed(t: &Target, id: ObjectId) -> Result<bool, String> {
    t.db.get(&tombstone_key(id)).map(|v| v.is_some()).map_err(|e| format!("{}: {e}", t.label))
}

async fn mend_back_pointers(
    t: &Target,
    wrong: Vec<(ObjectId, ObjectRecord, Problem)>,
    repair: bool,
    report: &mut Report<'_>,
) -> Result<(), String> {
    for (id, record, p) in wrong {
        if repair {
            let mut txn = Txn::new();
            txn.put(object_key(id), record.encode());
            let lsn = t.db.submit(txn).map_err(|e| format!("{}: {e}", t.label))?;
            t.db.durable(lsn).await.map_err(|e| format!("{}: {e}", t.label))?;
        }
        report.problem(p.repaired(repair));
    }
    Ok(())
}

//! What must hold of the targets' tables once everything is quiet.

use crate::changelog;
use crate::cluster::Cluster;
use crate::executor::lock;
use crate::run::Violation;
use mds::schema::{Inode, key};
use model::{Fid, ObjectAttr, ObjectId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use store::object::Objects;

/// Waits until nothing is left to clean up: no orphans, nothing to destroy.
pub async fn settled(c: &Cluster) -> Result<(), Violation> {
    loop {
        c.sim.sleep(Duration::from_secs(5)).await;
        if let Some(why) = c.stopped() {
            return Err(why);
        }
        let up = (0..c.servers.len()).all(|i| c.is_up(i));
        if let Some(db) = c.mdt_db().filter(|_| up) {
            let s =
                mds::check::check(&db).map_err(|e| format!("the metadata target cannot be checked: {e}"))?;
            if s.orphans == 0 && s.outbox == 0 {
                return Ok(());
            }
        }
    }
}

/// Why [`settled`] does not end.
pub fn unsettled(c: &Cluster) -> String {
    let down: Vec<usize> = (0..c.servers.len()).filter(|i| !c.is_up(*i)).collect();
    match c.mdt_db().map(|db| mds::check::check(&db)) {
        Some(Ok(s)) => format!("{} orphans, {} outbox records, servers down: {down:?}", s.orphans, s.outbox),
        Some(Err(e)) => e.to_string(),
        None => format!("servers down: {down:?}"),
    }
}

/// A file without data grew, and the client that wrote to it died before that was durable: the object is what
/// it wrote already. It is found by name, because no growth of a later epoch of the metadata target has
/// objects of that name.
fn growth_lost(c: &Cluster, db: &store::Db, file: Fid, object: ObjectId) -> bool {
    let epoch = object.component.checked_sub(mds::GROWN_WITHOUT_DATA);
    c.lost_with_a_writer(file) && epoch.is_some_and(|e| e < db.epoch())
}

/// Names, inodes, back-pointers, link counts, reverse index; and that the object targets hold nothing else.
/// `lost`: files whose creation was lost with their client; what it wrote to them already is still there.
pub fn everything(c: &Cluster, lost: &BTreeSet<Fid>) -> Result<(), Violation> {
    let db = c.mdt_db().ok_or("the metadata target is down")?;
    let told = |e: mds::MdsError| format!("the metadata target cannot be checked: {e}");
    let s = mds::check::check(&db).map_err(told)?;
    if let Some(f) = s.findings.first() {
        return Err(format!(
            "check of the metadata target, {} findings, the first: {:?} {f}",
            s.findings.len(),
            f.rule
        ));
    }
    changelog::agrees(&db, &lock(&c.shown))?;
    let mut expected: BTreeMap<(u16, ObjectId), Fid> = BTreeMap::new();
    mds::check::expected_objects(&db, |ost, object, fid| {
        expected.insert((ost, object), fid);
        Ok(())
    })
    .map_err(told)?;
    for ost in 0..c.servers.len() - 1 {
        let objects = c.objects(ost).ok_or_else(|| format!("OST {ost} is down"))?;
        let mut after = None;
        loop {
            let page = objects.list(after, 500).map_err(|e| format!("OST {ost} cannot be listed: {e}"))?;
            let Some(last) = page.last() else { break };
            after = Some(last.0);
            for (object, file, attr) in page {
                counted(c, &objects, ost, (object, attr))?;
                match expected.get(&(ost as u16, object)) {
                    None if lost.contains(&file) => {}
                    None if growth_lost(c, &db, file, object) => c.sim.count("lost_growth"),
                    None => return Err(format!("OST {ost} holds {object} of {file}, which no file has")),
                    Some(owner) if *owner != file => {
                        return Err(format!(
                            "OST {ost}: {object} says it belongs to {file}, the metadata server says {owner}"
                        ));
                    }
                    Some(_) => same_owner(&db, &objects, (ost, object), file)?,
                }
            }
        }
        let differs = objects.usage_difference().map_err(|e| format!("OST {ost} cannot be counted: {e}"))?;
        if let Some(what) = differs {
            return Err(format!("OST {ost}: {what}"));
        }
    }
    Ok(())
}

/// An object is counted with the blocks that it has.
fn counted(
    c: &Cluster,
    objects: &Arc<Objects>,
    ost: usize,
    (object, written): (ObjectId, ObjectAttr),
) -> Result<(), Violation> {
    let said = |e: StoreError| format!("OST {ost}: {object} cannot be looked at: {e}");
    let there = objects.attr(object).map_err(said)?.0.blocks;
    if there == written.blocks {
        c.sim.count("blocks_counted");
        return Ok(());
    }
    Err(format!("OST {ost}: {object} is counted with {} blocks, and has {there}", written.blocks))
}

/// An object is counted to its file's owner.
fn same_owner(
    db: &store::Db,
    objects: &Arc<Objects>,
    (ost, object): (usize, ObjectId),
    file: Fid,
) -> Result<(), Violation> {
    let said = |e: &dyn std::fmt::Display| format!("the owner of {object} cannot be looked at: {e}");
    let inode = db.get(&key::inode(file)).map_err(|e| said(&e))?;
    let inode = inode.map(|v| Inode::decode(file, &v)).transpose().map_err(|e| said(&e))?;
    let owner = objects.owner(object).map_err(|e| said(&e))?;
    match inode.map(|i| i.owner()).zip(owner) {
        Some((file_is, object_is)) if file_is != object_is => {
            Err(format!("OST {ost}: {object} is counted to {object_is:?}, its file {file} is of {file_is:?}"))
        }
        _ => Ok(()),
    }
}

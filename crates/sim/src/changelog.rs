//! A consumer of the changelog in some runs: done again in their order, the records of a metadata target must
//! come to the names that it has in the end, whatever crashed meanwhile. A record that is missing, or there
//! twice, comes to others.

use crate::cluster::Cluster;
use crate::run::Violation;
use mds::MdsError;
use mds::schema::changelog::LogEntry;
use mds::schema::{DentryValue, key};
use model::changelog::{Order, Record, RecordKind};
use model::{Errno, Fid};
use std::collections::BTreeMap;
use std::time::Duration;

/// One seed in so many has a consumer.
const ONE_IN: u64 = 20;
/// Which: none of those that found other things before.
const THIS_ONE: u64 = 15;
/// Records or names that are read at a time.
const PAGE: usize = 1000;

/// What a name of a directory stands for.
type Names = BTreeMap<(Fid, Vec<u8>), Fid>;

/// Registers a consumer, if this seed has one. Before the first name is made.
pub async fn begin(c: &Cluster, seed: u64) -> Result<(), Violation> {
    if seed % ONE_IN != THIS_ONE {
        return Ok(());
    }
    for _ in 0..600 {
        if let Some(mdt) = c.mdt() {
            let order = Order::Register { name: "sim".into(), mask: None };
            match mds::changelog_order(&mdt, &order).await {
                Ok(_) => {
                    c.sim.count("changelog");
                    return Ok(());
                }
                Err((Errno::EEXIST, _)) => return Ok(()),
                Err((Errno::ESHUTDOWN | Errno::EIO, _)) => {}
                Err((e, why)) => return Err(format!("a consumer cannot be registered: {e}: {why}")),
            }
        }
        c.sim.sleep(Duration::from_millis(500)).await;
    }
    Err("no consumer could be registered within five minutes".into())
}

/// Whether the records come to the names that are there.
pub fn agrees(db: &store::Db) -> Result<(), Violation> {
    let told = |e: MdsError| format!("the changelog cannot be checked: {e}");
    if db.get(key::STATE_CHANGELOG).map_err(|e| told(e.into()))?.is_none() {
        return Ok(());
    }
    let (mut names, mut wrong) = (Names::new(), None);
    each(db, key::CHANGELOG, |k, v| {
        let record = LogEntry::decode(k, v)?.record;
        if let Err(what) = apply(&mut names, &record)
            && wrong.is_none()
        {
            wrong = Some(format!("record {} of the changelog ({record:?}): {what}", record.index));
        }
        Ok(())
    })
    .map_err(told)?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let mut there = Names::new();
    each(db, key::DENTRY, |k, v| {
        if let Some((dir, _, name)) = key::parse_dentry(k) {
            there.insert((dir, name.to_vec()), DentryValue::decode(k, v)?.fid);
        }
        Ok(())
    })
    .map_err(told)?;
    match names.iter().find(|(k, v)| there.get(k) != Some(v)) {
        Some(((dir, name), fid)) => {
            return Err(format!("by the changelog {dir} has {:?} ({fid})", String::from_utf8_lossy(name)));
        }
        None => assert!(names.len() <= there.len(), "each of them is there"),
    }
    match there.iter().find(|(k, _)| !names.contains_key(k)) {
        Some(((dir, name), fid)) => {
            Err(format!("the changelog does not know {:?} ({fid}) in {dir}", String::from_utf8_lossy(name)))
        }
        None => Ok(()),
    }
}

fn each(
    db: &store::Db,
    tag: u8,
    mut f: impl FnMut(&[u8], &[u8]) -> Result<(), MdsError>,
) -> Result<(), MdsError> {
    let mut from = vec![tag];
    loop {
        let page = db.scan(&from, &[tag + 1], PAGE)?;
        for (k, v) in &page {
            f(k, v)?;
        }
        match page.last() {
            Some((k, _)) if page.len() == PAGE => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(()),
        }
    }
}

/// What a record says, done. What it says must be possible.
fn apply(names: &mut Names, r: &Record) -> Result<(), &'static str> {
    let place = (r.parent, r.name.clone());
    match r.kind {
        RecordKind::Create
        | RecordKind::Mkdir
        | RecordKind::Symlink
        | RecordKind::Mknod
        | RecordKind::Hardlink => match names.insert(place, r.fid) {
            None => Ok(()),
            Some(_) => Err("that name was there"),
        },
        RecordKind::Unlink | RecordKind::Rmdir => match names.remove(&place) {
            Some(fid) if fid == r.fid => Ok(()),
            _ => Err("that name was not there, or another file's"),
        },
        RecordKind::Rename => {
            let from = r.source.as_ref().ok_or("a rename from nowhere")?;
            let old = (from.parent, from.name.clone());
            // Of an exchange the first record has taken the name already.
            if names.get(&old) == Some(&from.fid) {
                names.remove(&old);
            }
            match names.insert(place, from.fid) {
                Some(over) if r.fid != Fid::NONE && over != r.fid => Err("it took another file's name"),
                None if r.fid != Fid::NONE => Err("the name that it took was not there"),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

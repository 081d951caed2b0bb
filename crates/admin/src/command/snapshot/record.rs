//! What is known of snapshots: in each of their folders, and whether they are whole and mounted.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::orders::{Place, Site, strange};
use model::snapshot::{Listing, SnapshotAnswer, SnapshotOrder};
use model::{Errno, Nid};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use store::snapshot;

/// Of the record.
pub const FORMAT: u32 = 1;
/// The MGT's name among targets.
pub const MGS: &str = "MGS";

/// What a snapshot says of itself, in the folder of each of its targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub format: u32,
    /// The same in all its targets, and in no other snapshot.
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub comment: String,
    pub fsname: String,
    /// The name of the file system that it is when it is mounted.
    pub snapshot_fsname: String,
    /// Seconds since 1970.
    pub created: i64,
    pub modified: i64,
    /// Under a write barrier.
    pub barrier: bool,
    /// The one whose folder this is.
    pub target: String,
    /// All of them.
    pub targets: Vec<String>,
}

impl Record {
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("plain data encodes");
        text.push(b'\n');
        text
    }

    pub fn of(&self, target: &str) -> Record {
        Record { target: target.to_string(), ..self.clone() }
    }
}

/// A file system with all targets that a snapshot of it has.
#[derive(Clone)]
pub struct Here {
    pub site: Site,
    pub places: Vec<Place>,
    /// Of the daemon with the MGS.
    pub nids: Vec<Nid>,
    pub port: u16,
}

impl Here {
    pub fn fsname(&self) -> &str {
        &self.site.fsname
    }

    /// The same order for all.
    pub fn orders(&self, order: impl Fn(&Place) -> SnapshotOrder) -> Vec<(&Place, SnapshotOrder)> {
        self.places.iter().map(|p| (p, order(p))).collect()
    }
}

/// The file system of this name, or the only one that the MGS of this host has.
pub fn here(what: &str, fsname: Option<&str>) -> Result<Here, Failure> {
    let site = Site::find(what, fsname)?;
    let status = site.daemon.status().ok_or_else(|| Failure::op(what, &site.fsname, Errno::ECONNREFUSED))?;
    let mgt = status.targets.iter().find(|t| t.label == MGS);
    let mgt = mgt.ok_or_else(|| Failure::op(what, MGS, Errno::ENODEV))?;
    if !mgt.dir.starts_with('/') {
        let why = format!("its MGS is over '{}', which is in no folder: use nacre backup", mgt.dir);
        return Err(Failure::explained(what, &site.fsname, Errno::EOPNOTSUPP, &why));
    }
    let mut places = site.targets.clone();
    // The MGT of an MDT's folder is cloned with that.
    if !status.targets.iter().any(|t| mgt.dir.starts_with(&format!("{}/", t.dir))) {
        places.push(Place { label: MGS.into(), nids: status.nids.join(", ") });
    }
    if site.targets.is_empty() {
        return Err(Failure::explained(what, &site.fsname, Errno::ENODEV, "it has no targets yet"));
    }
    let nids = status.nids.iter().filter_map(|n| n.parse().ok()).collect();
    Ok(Here { site, places, nids, port: status.port })
}

/// A snapshot's part in one target.
#[derive(Clone)]
pub struct Part {
    pub place: Place,
    /// The snapshot's name there.
    pub name: String,
    pub folder: String,
    /// Number and addresses of the daemon that serves the target.
    pub server: u64,
    pub nids: Vec<Nid>,
    /// The process that serves the snapshot's.
    pub pid: Option<u32>,
    pub up: bool,
}

/// A snapshot as it is found.
#[derive(Clone)]
pub struct Snapshot {
    pub record: Record,
    pub parts: Vec<Part>,
    /// Targets whose servers do not answer.
    pub unknown: BTreeSet<String>,
}

impl Snapshot {
    /// Those that are not there: it is being made or removed, or somebody removed them.
    pub fn missing(&self) -> Vec<String> {
        let there: BTreeSet<&String> = self.parts.iter().map(|p| &p.place.label).collect();
        let away = |t: &&String| !there.contains(t) && !self.unknown.contains(*t);
        self.record.targets.iter().filter(away).cloned().collect()
    }

    /// Of the daemon that serves it, or of one of them.
    pub fn mounted(&self) -> Option<u32> {
        self.parts.iter().find_map(|p| p.pid)
    }

    /// `mounted`, `not mount` as Lustre has it, `incomplete`, or `unknown` while a server does not answer.
    pub fn status(&self) -> &'static str {
        match (self.mounted(), self.missing().is_empty(), self.unknown.is_empty()) {
            (Some(_), true, true) if self.parts.iter().all(|p| p.pid.is_some()) => "mounted",
            (Some(_), ..) => "partly mounted",
            (None, false, _) => "incomplete",
            (None, true, true) => "not mount",
            (None, true, false) => "unknown",
        }
    }

    /// The order for each of its parts.
    pub fn orders(&self, order: impl Fn(&Part) -> SnapshotOrder) -> Vec<(&Place, SnapshotOrder)> {
        self.parts.iter().map(|p| (&p.place, order(p))).collect()
    }
}

/// What targets say, and why others say nothing.
struct Told {
    listings: Vec<(Place, Listing)>,
    failed: Vec<Failure>,
}

fn listings(here: &Here) -> Result<Told, Failure> {
    let what = "cannot list snapshots of";
    let said = here.site.ask_snapshots(what, here.orders(|_| SnapshotOrder::List))?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for (p, (said, _)) in here.places.iter().zip(said) {
        match said {
            Ok(SnapshotAnswer::Listing(l)) => all.push((p.clone(), l)),
            Ok(_) => failed.push(strange(what, p)),
            Err(e) => failed.push(e),
        }
    }
    Ok(Told { listings: all, failed })
}

/// The snapshots that these targets have, the oldest first, and why some targets say nothing.
pub fn all(here: &Here) -> Result<(Vec<Snapshot>, Vec<Failure>), Failure> {
    let Told { listings, failed } = listings(here)?;
    let told: BTreeSet<&String> = listings.iter().map(|(p, _)| &p.label).collect();
    let silent = |t: &String| !told.contains(t);
    let mut found: BTreeMap<String, Snapshot> = BTreeMap::new();
    for (p, l) in &listings {
        for s in &l.snapshots {
            let folder = snapshot::place(&l.folder, &s.name);
            let record: Record = serde_json::from_slice(&s.record).map_err(|e| {
                Failure::explained("cannot read the record of", &folder, Errno::EIO, &e.to_string())
            })?;
            if record.format != FORMAT {
                let why = format!("it is of format {}: a later Nacre made it", record.format);
                return Err(Failure::explained("cannot read the record of", &folder, Errno::EINVAL, &why));
            }
            if record.fsname != here.fsname() {
                continue;
            }
            let unknown = record.targets.iter().filter(|t| silent(t)).cloned().collect();
            let one = || Snapshot { record: record.clone(), parts: Vec::new(), unknown };
            found.entry(record.id.clone()).or_insert_with(one).parts.push(Part {
                place: p.clone(),
                name: s.name.clone(),
                folder,
                server: l.server,
                nids: l.nids.clone(),
                pid: s.pid,
                up: s.up,
            });
        }
    }
    let mut all: Vec<Snapshot> = found.into_values().collect();
    all.sort_by(|a, b| (a.record.created, &a.record.name).cmp(&(b.record.created, &b.record.name)));
    Ok((all, failed))
}

/// As [`all`], where all targets have to answer.
pub fn whole(here: &Here) -> Result<Vec<Snapshot>, Failure> {
    let (all, failed) = all(here)?;
    failed.into_iter().next().map_or(Ok(all), Err)
}

fn is_called(s: &Snapshot, name: &str) -> bool {
    s.record.name == name || s.parts.iter().any(|p| p.name == name)
}

/// The one of this name, of those.
pub fn of_name(all: Vec<Snapshot>, here: &Here, what: &str, name: &str) -> Result<Snapshot, Failure> {
    all.into_iter().find(|s| is_called(s, name)).ok_or_else(|| {
        let why = format!("{} has no snapshot of this name: see nacre snapshot list", here.fsname());
        Failure::explained(what, name, Errno::ENOENT, &why)
    })
}

/// The one of this name, of which all targets say what they have. `ENOENT`.
pub fn named(here: &Here, what: &str, name: &str) -> Result<Snapshot, Failure> {
    of_name(whole(here)?, here, what, name)
}

/// How many bytes each part has for itself, as far as that can be told.
pub fn sizes(
    here: &Here,
    s: &Snapshot,
    i: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Option<u64>>, Failure> {
    let orders = s.orders(|p| SnapshotOrder::Size { name: p.name.clone() });
    let said = here.site.all("cannot measure snapshot in", orders, i, progress)?;
    let one = |(p, a): (&Part, SnapshotAnswer)| match a {
        SnapshotAnswer::Size(n) => Ok(n),
        _ => Err(strange("cannot measure snapshot in", &p.place)),
    };
    s.parts.iter().zip(said).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the golden images (docs/formats/versions.md).
    #[test]
    fn records_that_were_kept_are_read() {
        let contents = include_str!("../../../../sim/golden/2026-11-29/contents.txt");
        let texts = contents.lines().filter_map(|l| l.trim().strip_prefix("snapshot before: "));
        let records: Vec<Record> = texts.map(|t| serde_json::from_str(t).unwrap()).collect();
        assert_eq!(records.len(), 3);
        for r in &records {
            assert_eq!(r, &records[0].of(&r.target), "all of one snapshot");
            assert!(r.targets.contains(&r.target) && r.targets.len() == 3, "{r:?}");
        }
        let r = &records[0];
        assert_eq!((r.format, r.name.as_str(), r.comment.as_str()), (1, "before", "for later versions"));
        assert_eq!((r.fsname.as_str(), r.snapshot_fsname.as_str(), r.barrier), ("sim", "0123abcd", true));
    }
}

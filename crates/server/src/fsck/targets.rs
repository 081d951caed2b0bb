//! The targets in some folders: found, locked, opened.

use super::overlay::Overlay;
use admin::command::mkfs::MGT_SUBDIR;
use model::TargetKind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::format::{Superblock, TargetLock};
use store::object::Objects;
use store::{Damage, Db, DbOptions, StoreError};
use world::World;

/// Folders are searched so deep for targets.
const DEPTH_MAX: usize = 3;
/// Folders looked into at most, so that a mistyped path does not walk a whole disk.
const FOLDERS_MAX: usize = 10_000;
const CACHE_BYTES: usize = 64 << 20;
/// Keys looked at in one step.
const PAGE: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Mgt,
    Mdt,
    Ost,
}

/// A target that is ours while this lives.
pub struct Target {
    pub dir: String,
    pub label: String,
    pub role: Role,
    pub sb: Superblock,
    /// The host, or the host with changes kept in memory.
    pub world: World,
    pub db: Arc<Db>,
    /// The management target's: of its own folder, or within a metadata target's.
    pub mgt: Option<Arc<Db>>,
    /// Its journals that end where they are damaged.
    pub cut: Vec<Damage>,
    overlay: Option<Arc<Overlay>>,
    _lock: TargetLock,
}

impl Target {
    /// The object store of an OST. Refused when a record does not decode.
    pub fn objects(&self) -> Result<Arc<Objects>, store::StoreError> {
        Objects::open(self.db.clone())
    }

    pub fn ost_index(&self) -> Option<u16> {
        (self.role == Role::Ost).then_some(self.sb.target.index)
    }

    /// Ends all background work and gives the table back; what a repair changed goes into it.
    pub async fn close(self) -> Result<(), String> {
        // In a management target's own folder both are one.
        let mgt = self.mgt.iter().filter(|m| !Arc::ptr_eq(m, &self.db));
        for db in mgt.chain([&self.db]) {
            db.close().await.map_err(|e| e.to_string())?;
        }
        if let Some(o) = &self.overlay {
            o.release();
        }
        Ok(())
    }
}

/// Calls `each` for every key that starts with `tag`.
pub fn for_each(
    t: &Target,
    tag: u8,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let (mut from, to) = (vec![tag], [tag + 1]);
    loop {
        let page = t.db.scan(&from, &to, PAGE).map_err(|e| format!("{}: {e}", t.label))?;
        assert!(page.len() <= PAGE, "a page has no more keys than were asked for");
        for (k, v) in &page {
            each(k, v)?;
        }
        match page.last() {
            Some((k, _)) if page.len() == PAGE => {
                from = k.clone();
                from.push(0);
            }
            _ => return Ok(()),
        }
    }
}

/// Folders with a superblock in or below `paths`, sorted.
pub fn discover(world: &World, paths: &[String]) -> Result<Vec<String>, String> {
    let mut found = BTreeSet::new();
    for p in paths {
        let p = if p.len() > 1 { p.trim_end_matches('/') } else { p };
        let there = world.disk.exists(p).map_err(|e| format!("cannot look at '{p}': {e}"))?;
        if !there {
            return Err(format!("'{p}' does not exist"));
        }
        let before = found.len();
        let mut seen = 0;
        search(world, p, 0, &mut seen, &mut found);
        if found.len() == before {
            return Err(format!("no target in '{p}': a target's folder holds a file named superblock"));
        }
    }
    assert!(found.len() >= paths.len().min(1), "each path leads to a target");
    Ok(found.into_iter().collect())
}

fn search(world: &World, dir: &str, depth: usize, seen: &mut usize, found: &mut BTreeSet<String>) {
    assert!(depth <= DEPTH_MAX, "folders are searched so deep");
    *seen += 1;
    let has = |name: &str| world.disk.exists(&format!("{dir}/{name}")).unwrap_or(false);
    if has("superblock") || has("superblock.1") {
        found.insert(dir.to_string());
        return;
    }
    if depth == DEPTH_MAX || *seen > FOLDERS_MAX {
        return;
    }
    // Files give an error here and are passed over.
    for name in world.disk.list(dir).unwrap_or_default() {
        search(world, &format!("{dir}/{name}"), depth + 1, seen, found);
    }
}

/// What a journal loses that ends where it is damaged.
pub fn cut_words(d: &Damage) -> String {
    let Damage { path, why, from, to, readable, clients } = d;
    let clients: Vec<String> = clients.iter().map(|c| format!("{:032x}", u128::from_be_bytes(*c))).collect();
    let whose = match clients.len() {
        0 => "no client's answers among those that can be read".into(),
        n => format!("answers to {n} clients among them: {}", clients.join(", ")),
    };
    format!(
        "journal segment '{path}' is damaged: {why}. Cut there, transactions {from} to {to} are lost ({readable} of them can be \
         read, but build on what cannot), {whose}. Everything before stays"
    )
}

/// Opens a database of a target; where its journal is damaged, `cut` ends it there, and `found` gets what
/// that loses.
fn open_db(w: &World, dir: &str, epoch: u32, cut: bool, found: &mut Vec<Damage>) -> Result<Arc<Db>, String> {
    let options = DbOptions { table_cache_bytes: CACHE_BYTES, ..DbOptions::default() };
    let refused = match Db::open(w, dir, epoch, options.clone()) {
        Ok(db) => return Ok(db),
        Err(e @ StoreError::Damaged { .. }) => e,
        Err(e) => return Err(e.to_string()),
    };
    let Ok(Some(d)) = Db::journal_damage(w, dir) else {
        return Err(format!(
            "{refused}; no repair is known for that: see \"A target does not start\" in docs/recovery.md"
        ));
    };
    if !cut {
        return Err(format!(
            "{}. If there is no better copy of '{dir}': nacre fsck --repair --cut-journal (without --repair it shows what is \
             left)",
            cut_words(&d)
        ));
    }
    found.push(d);
    Db::open(w, dir, epoch, DbOptions { cut_damaged_journal: true, ..options }).map_err(|e| e.to_string())
}

/// Locks and opens one target. Changes go to memory unless `repair`. `cut`: damaged journals end where the
/// damage is.
pub fn open(world: &World, dir: &str, repair: bool, cut: bool) -> Result<Target, String> {
    let says = |e: store::StoreError| e.to_string();
    Superblock::read(world, dir).map_err(says)?;
    let mut w = world.clone();
    let overlay = (!repair).then(|| Arc::new(Overlay::new(world.disk.clone())));
    if let Some(o) = &overlay {
        w.disk = o.clone();
    }
    let lock = Superblock::lock(&w, dir).map_err(says)?;
    store::mmp::wait_idle(world, dir, &lock, world::sys::sleep).map_err(says)?;
    // Read again: the holder before us may have changed it until it let go.
    let mut sb = Superblock::read(world, dir).map_err(says)?;
    sb.epoch = sb.epoch.checked_add(1).ok_or_else(|| format!("'{dir}' used up its epochs"))?;
    if repair {
        // As a server would: nobody with an older epoch may write after us.
        sb.check_writable(dir).map_err(says)?;
        sb.write(&w, dir).map_err(says)?;
    }
    let mut damaged = Vec::new();
    let mut open_db = |dir: &str| open_db(&w, dir, sb.epoch, cut, &mut damaged);
    let db = open_db(dir)?;
    assert_eq!(db.epoch(), sb.epoch, "a target's database and its label are of the same start");
    let role = match sb.target.kind {
        TargetKind::Mgt => Role::Mgt,
        TargetKind::Mdt => Role::Mdt,
        TargetKind::Ost => Role::Ost,
    };
    let mgt = match role {
        Role::Mgt => Some(db.clone()),
        _ if sb.with_mgt => Some(open_db(&format!("{dir}/{MGT_SUBDIR}"))?),
        _ => None,
    };
    let label = match role {
        Role::Mgt => "MGS".to_string(),
        _ => sb.target.label(&sb.fsname),
    };
    Ok(Target {
        dir: dir.to_string(),
        label,
        role,
        sb,
        world: w,
        db,
        mgt,
        cut: damaged,
        overlay,
        _lock: lock,
    })
}

/// All of one file system, and none twice.
pub fn same_file_system(open: &[Target]) -> Result<(), String> {
    let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
    let mut first: Option<&Target> = None;
    for t in open.iter().filter(|t| t.role != Role::Mgt) {
        if let Some(other) = labels.insert(&t.label, &t.dir) {
            return Err(format!("'{}' and '{other}' both are {}: give one of them", t.dir, t.label));
        }
        let f = *first.get_or_insert(t);
        // A target that was never started has no UUID of the file system yet.
        let known = t.sb.fs_uuid != [0; 16] && f.sb.fs_uuid != [0; 16];
        if t.sb.fsname != f.sb.fsname || (known && t.sb.fs_uuid != f.sb.fs_uuid) {
            return Err(format!(
                "'{}' ({}) and '{}' ({}) belong to different file systems: check one at a time",
                f.dir, f.label, t.dir, t.label
            ));
        }
    }
    Ok(())
}

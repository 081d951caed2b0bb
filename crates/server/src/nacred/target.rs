//! One target: its label, its lock, its database and the service over them.

use super::check::Checks;
use super::ended::{StartError, Why};
use super::history::History;
use super::views::Views;
use admin::command::mkfs::MGT_SUBDIR;
use mgs::Mgs;
use model::changelog::Order;
use model::maintenance::Maintenance;
use model::mutex::Mutex;
use model::param::ParamInfo;
use model::{Errno, Nid, TargetId, TargetKind, TargetMark};
use oss::{Ost, OstConfig};
use rpc::nrs::Nrs;
use rpc::server::recovery::Recovery;
use rpc::{Peers, Service};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::format::{INCOMPAT_CHANGELOG, INCOMPAT_COMPONENTS, RO_COMPAT_BLOCK_SUMS, Superblock, TargetLock};
use store::mmp::{Heartbeat, Times, Who};
use store::object::Objects;
use store::{Db, DbOptions, StoreError};
use wire::msg::config::ConfigReply;
use wire::proof::Key;
use world::faulty::DiskFaults;
use world::future::join_all;
use world::gate::GatedDisk;
use world::pause::DiskPause;
use world::sync::Notify;
use world::sys::{self, files, mounts};
use world::{BoxFuture, World};

/// How long a killed server may take to let go of its target.
const DYING: Duration = Duration::from_secs(10);

/// A target's folder whose label was read and whose lock is held.
pub struct Label {
    pub dir: String,
    pub superblock: Superblock,
    lock: TargetLock,
}

/// With a disk of which an administrator may order errors, and that he may stop for a moment.
fn with_gates(world: &World) -> (World, Arc<DiskFaults>, Arc<DiskPause>) {
    let (faults, pause) = (Arc::new(DiskFaults::default()), Arc::new(DiskPause::default()));
    let paused = Arc::new(GatedDisk::new(world.disk.clone(), pause.clone()));
    let disk = Arc::new(GatedDisk::new(paused, faults.clone()));
    (World { disk, ..world.clone() }, faults, pause)
}

impl Label {
    pub fn has_mgt(&self) -> bool {
        self.superblock.with_mgt || self.is_mgt_only()
    }

    pub fn is_mgt_only(&self) -> bool {
        self.superblock.target.kind == TargetKind::Mgt
    }
}

/// The right to serve what is in a folder.
struct Hold {
    heartbeat: Heartbeat,
    faults: Arc<DiskFaults>,
    pause: Arc<DiskPause>,
    /// `None`: it was let go.
    lock: Mutex<Option<TargetLock>>,
}

/// A folder that nobody else can be using.
pub struct Held {
    dir: String,
    superblock: Superblock,
    /// With the target's disk.
    world: World,
    /// With the host's.
    host: World,
    hold: Hold,
}

/// What a target is given when it registers.
#[derive(Clone, Copy)]
pub struct Given {
    pub fs_uuid: [u8; 16],
    /// `None`: the MGS is too old to have one.
    pub server_key: Option<Key>,
}

/// What serves.
pub enum Role {
    Mgs(Arc<Mgs>),
    Mdt(Arc<mds::Mdt>),
    Ost(Arc<Ost>),
}

impl Role {
    pub fn as_service(&self) -> Arc<dyn Service> {
        match self {
            Role::Mgs(s) => s.clone(),
            Role::Mdt(s) => s.clone(),
            Role::Ost(s) => s.clone(),
        }
    }
}

/// Why the MGS does not want a target.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// In words for its administrator.
    pub text: String,
    /// It was taken out of the file system for good.
    pub removed: bool,
}

/// A served target.
pub struct Target {
    pub dir: String,
    pub service: Role,
    pub peers: Peers,
    pub db: Arc<Db>,
    /// The label as it is on disk; written only under this lock.
    pub superblock: Mutex<Superblock>,
    /// The MGS knows it (always, of the MGS itself).
    pub registered: AtomicBool,
    /// Set when the target may not go on (its index is somebody else's).
    pub refused: Mutex<Option<Refusal>>,
    /// It is served no more, though its process goes on with others.
    pub taken_out: AtomicBool,
    /// Wakes who follows the configuration for it.
    pub follower: OnceLock<Arc<Notify>>,
    /// `nacre fsck --online`.
    pub checks: Checks,
    /// `nacre backup`.
    pub views: Views,
    /// `nacre history`.
    pub history: History,
    /// Errors of its disk that were ordered.
    pub faults: Arc<DiskFaults>,
    /// Its disk, stopped for a moment (`nacre snapshot`). Of the folder, as the lock is.
    pub pause: Arc<DiskPause>,
    /// Shared by an MDT and the MGT in its folder, as the lock is.
    hold: Arc<Hold>,
}

fn words(dir: &str, e: &StoreError) -> StartError {
    match e {
        StoreError::Refused(text) => StartError::new(text.clone()),
        StoreError::Io { errno: Errno::EIO, .. } => {
            StartError::disk(format!("cannot use target '{dir}': {e}"))
        }
        other => StartError::new(format!("cannot use target '{dir}': {other}")),
    }
}

/// A server that was killed a moment ago may still be on its way out (waiting for a flush, say) and hold its
/// lock: that is waited for. A living holder is an error, after `patience`.
async fn take_lock(world: &World, dir: &str, patience: Duration) -> Result<TargetLock, StoreError> {
    let (dying, living) = (sys::Deadline::after(DYING.max(patience)), sys::Deadline::after(patience));
    loop {
        match Superblock::lock(world, dir) {
            Err(StoreError::Refused(text))
                if !living.passed() || !dying.passed() && holder_is_dead(&text) =>
            {
                world.sleep(Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}

/// The refusal names a process of this host that has ended, or been killed; or it names none, because the
/// holder's word went with what was not flushed.
fn holder_is_dead(refusal: &str) -> bool {
    let pid = refusal.split("pid ").nth(1).and_then(|r| r.split(' ').next()?.parse::<u32>().ok());
    let ends = |p| !sys::process::alive(p) || world::host::fatal_signal_pending(p) || world::host::exits(p);
    pid.is_none_or(ends)
}

/// Reads and locks all folders, or none: the first obstacle is the error. Who holds one has `patience` to
/// end. `served`: the folders that the daemon has already.
pub async fn read_labels(
    world: &World,
    dirs: &[String],
    served: &[(String, Superblock)],
    patience: Duration,
) -> Result<Vec<Label>, StartError> {
    let mut out: Vec<Label> = Vec::new();
    for d in dirs {
        let dir =
            files::canonical(d).map_err(|e| StartError::new(format!("cannot use target '{d}': {e}")))?;
        let dir = dir
            .to_str()
            .ok_or_else(|| StartError::new(format!("cannot use target '{d}': its path is not UTF-8")))?;
        let superblock = Superblock::read(world, dir).map_err(|e| words(dir, &e))?;
        superblock.check_writable(dir).map_err(|e| words(dir, &e))?;
        let others = out.iter().map(|l| (&l.dir, &l.superblock));
        let others = || others.clone().chain(served.iter().map(|(dir, s)| (dir, s)));
        if let Some((other, _)) = others().find(|(_, s)| clash(s, &superblock)) {
            return Err(StartError::new(format!(
                "targets '{other}' and '{dir}' are both {} of file system '{}': one daemon serves one of each",
                superblock.target, superblock.fsname
            )));
        }
        if let Some((other, s)) = others().find(|(_, s)| other_fs(s, &superblock)) {
            return Err(StartError::new(format!(
                "target '{dir}' belongs to file system '{}', '{other}' to '{}': serve them with a nacred each, at an address of its own (--nid, mount -o nid=)",
                superblock.fsname, s.fsname
            )));
        }
        let lock = take_lock(world, dir, patience).await.map_err(|e| words(dir, &e))?;
        // Read again: an earlier holder may have changed it until it let go.
        let superblock = Superblock::read(world, dir).map_err(|e| words(dir, &e))?;
        out.push(Label { dir: dir.to_string(), superblock, lock });
    }
    Ok(out)
}

fn clash(a: &Superblock, b: &Superblock) -> bool {
    if !a.target.is_assigned() {
        return false;
    }
    let mgs = |s: &Superblock| s.with_mgt || s.target.kind == TargetKind::Mgt;
    a.target == b.target || (mgs(a) && mgs(b))
}

/// Two file systems, or two with the same name.
fn other_fs(a: &Superblock, b: &Superblock) -> bool {
    if a.fsname.is_empty() || b.fsname.is_empty() {
        return false;
    }
    let known = a.fs_uuid != [0; 16] && b.fs_uuid != [0; 16];
    a.fsname != b.fsname || (known && a.fs_uuid != b.fs_uuid)
}

/// Begins the heartbeats of all folders at the same time, or of none: another host may have to be waited for.
pub async fn hold(
    world: &World,
    labels: Vec<Label>,
    times: Times,
    patience: Duration,
) -> Result<Vec<Held>, StartError> {
    let wanted = labels.len();
    let taken = labels.into_iter().map(|l| -> BoxFuture<Result<Held, StartError>> {
        let (host, (w, faults, pause)) = (world.clone(), with_gates(world));
        Box::pin(async move {
            let who = Who::holding(&w, &l.lock);
            let heartbeat = Heartbeat::take_within(&w, &l.dir, who, times, patience).await;
            let heartbeat = heartbeat.map_err(|e| words(&l.dir, &e))?;
            // Whoever was waited for may have raised the epoch meanwhile.
            let superblock = Superblock::read(&w, &l.dir).map_err(|e| words(&l.dir, &e))?;
            let hold = Hold { heartbeat, faults, pause, lock: Mutex::new(Some(l.lock)) };
            Ok(Held { dir: l.dir, superblock, world: w, host, hold })
        })
    });
    let taken = join_all(taken.collect()).await;
    let (held, refused): (Vec<_>, Vec<_>) = taken.into_iter().partition(Result::is_ok);
    let held: Vec<Held> = held.into_iter().flatten().collect();
    let Some(Err(first)) = refused.into_iter().next() else {
        assert_eq!(held.len(), wanted, "all folders are held, or none");
        return Ok(held);
    };
    for h in &held {
        h.hold.heartbeat.leave().await;
    }
    Err(first)
}

impl Held {
    pub fn label(&self) -> &Superblock {
        &self.superblock
    }

    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// The MGS gave it an index.
    pub fn assign(&mut self, target: TargetId) -> Result<(), StartError> {
        assert!(!self.superblock.target.is_assigned() && target.is_assigned(), "an index is given once");
        self.superblock.target = target;
        self.superblock.write(&self.world, &self.dir).map_err(|e| words(&self.dir, &e))
    }
}

/// Raises the epoch, recovers the database and makes the service; two of them for an MDT's folder with an
/// MGT.
pub async fn open(held: Held, nids: &[Nid], port: u16) -> Result<Vec<Arc<Target>>, StartError> {
    let Held { dir, mut superblock, world, host, hold } = held;
    let world = &world;
    let hold = Arc::new(hold);
    superblock.epoch = superblock
        .epoch
        .checked_add(1)
        .ok_or_else(|| StartError::new(format!("target '{dir}': its epoch is used up")))?;
    if superblock.target.kind == TargetKind::Ost {
        superblock.ro_compat |= RO_COMPAT_BLOCK_SUMS;
    }
    if superblock.target.kind == TargetKind::Mdt {
        superblock.incompat |= INCOMPAT_COMPONENTS;
    }
    if superblock.key.is_none() {
        // Made by a version that knew no keys.
        superblock.key = Some(world.random_key());
    }
    assert!(superblock.epoch > 0, "a target that serves was started");
    let two = superblock.with_mgt;
    superblock.write(world, &dir).map_err(|e| words(&dir, &e))?;
    let mut out = Vec::new();
    if superblock.with_mgt {
        let sub = format!("{dir}/{MGT_SUBDIR}");
        out.push(open_mgt(world, &sub, &superblock, &hold).await?);
    }
    let t = match superblock.target.kind {
        TargetKind::Mgt => open_mgt(world, &dir, &superblock, &hold).await?,
        TargetKind::Mdt => open_mdt(world, &dir, superblock, &hold, nids, port).await?,
        TargetKind::Ost => open_ost(world, &host, &dir, superblock, &hold).await?,
    };
    out.push(t);
    assert_eq!(out.len(), 1 + usize::from(two), "a folder holds one target, or an MGT beside it");
    Ok(out)
}

async fn open_db(world: &World, dir: &str, epoch: u32, hold: &Hold) -> Result<Arc<Db>, StartError> {
    let (w, d) = (world.clone(), dir.to_string());
    let options = DbOptions { lease: hold.heartbeat.lease(), ..DbOptions::default() };
    let opened = world.blocking(move || Db::open(&w, &d, epoch, options)).await;
    opened.map_err(|e| words(dir, &e))
}

fn target(
    dir: &str,
    service: Role,
    peers: Peers,
    db: Arc<Db>,
    s: Superblock,
    hold: &Arc<Hold>,
) -> Arc<Target> {
    assert_eq!(db.epoch(), s.epoch, "a target's database and its label are of the same start");
    Arc::new(Target {
        dir: dir.to_string(),
        registered: AtomicBool::new(matches!(service, Role::Mgs(_))),
        service,
        peers,
        db,
        superblock: Mutex::new(s),
        refused: Mutex::new(None),
        taken_out: AtomicBool::new(false),
        follower: OnceLock::new(),
        checks: Checks::default(),
        views: Views::default(),
        history: History::default(),
        faults: hold.faults.clone(),
        pause: hold.pause.clone(),
        hold: hold.clone(),
    })
}

async fn open_mgt(
    world: &World,
    dir: &str,
    s: &Superblock,
    hold: &Arc<Hold>,
) -> Result<Arc<Target>, StartError> {
    let db = open_db(world, dir, s.epoch, hold).await?;
    let peers = Peers::new();
    let mgs = Mgs::open(world, db.clone(), peers.clone()).map_err(|e| words(dir, &e))?;
    Ok(target(dir, Role::Mgs(mgs), peers, db, s.clone(), hold))
}

async fn open_mdt(
    world: &World,
    dir: &str,
    s: Superblock,
    hold: &Arc<Hold>,
    nids: &[Nid],
    port: u16,
) -> Result<Arc<Target>, StartError> {
    let db = open_db(world, dir, s.epoch, hold).await?;
    let peers = Peers::sharing(&MDT_ORDER);
    let cfg = mds::MdtConfig {
        fsname: s.fsname.clone(),
        index: s.target.index,
        dir: dir.to_string(),
        port,
        bind: super::bind(nids),
        networks: super::networks(nids),
    };
    if s.replace {
        let made = mds::format_successor(world, &db);
        made.map_err(|e| StartError::new(format!("cannot use target '{dir}': {e}")))?;
    }
    let mdt = mds::Mdt::open(world.clone(), db.clone(), peers.clone(), cfg)
        .map_err(|e| StartError::new(format!("cannot use target '{dir}': {e}")))?;
    let t = target(dir, Role::Mdt(mdt), peers, db, s, hold);
    t.use_cached_config();
    Ok(t)
}

/// Targets of one kind in one process share processors, and so the order of their requests.
static MDT_ORDER: std::sync::LazyLock<Arc<Nrs>> = std::sync::LazyLock::new(order);
static OST_ORDER: std::sync::LazyLock<Arc<Nrs>> = std::sync::LazyLock::new(order);

fn order() -> Arc<Nrs> {
    let nrs = Nrs::default();
    nrs.set_processors(sys::idle::processors());
    Arc::new(nrs)
}

/// Object targets on one file system must not promise its room twice.
static BOOKS: std::sync::LazyLock<oss::DiskBooks> = std::sync::LazyLock::new(oss::DiskBooks::default);

/// Nor must those of several servers on this host: they find each other in a folder of the run directory.
fn book(host: &World, disk: u64) -> Arc<oss::DiskBook> {
    let shared = || {
        let run_dir = sys::control::run_dir();
        // If it cannot be made, what lies in it says so.
        let _ = files::create_dir_all(&run_dir);
        oss::DiskBook::shared(host, &run_dir.join(format!("space-{disk:016x}")).to_string_lossy())
    };
    BOOKS.of(disk, shared)
}

/// Whether the file system takes more room for a file that grows than it has bytes, up to gigabytes.
fn takes_room_ahead(m: &mounts::Mount) -> bool {
    m.fstype == "xfs" && !m.options.split(',').any(|o| o.starts_with("allocsize="))
}

async fn open_ost(
    world: &World,
    host: &World,
    dir: &str,
    s: Superblock,
    hold: &Arc<Hold>,
) -> Result<Arc<Target>, StartError> {
    if let Ok(Some(m)) = files::canonical(dir).and_then(|d| mounts::containing(&d))
        && takes_room_ahead(&m)
    {
        tracing::warn!(
            "target '{dir}' lies on XFS, which takes room ahead of files that grow, and may take what was promised to clients: data that write(2) accepted can get ENOSPC at fsync when the disk is nearly full; mount '{}' with -o allocsize=64k",
            m.dir.display()
        );
    }
    let db = open_db(world, dir, s.epoch, hold).await?;
    let of = db.clone();
    let objects = world.blocking(move || Objects::open(of)).await.map_err(|e| words(dir, &e))?;
    let peers = Peers::sharing(&OST_ORDER);
    let birth = oss::Birth {
        mark: TargetMark::of(&s.target_uuid),
        successor: s.incompat & store::format::INCOMPAT_SUCCESSOR != 0,
    };
    let book = book(host, store::format::disk_id(world, dir));
    let cfg =
        OstConfig { fsname: s.fsname.clone(), index: s.target.index, dir: dir.to_string(), birth, book };
    let ost = Ost::open(world, db.clone(), objects, peers.clone(), cfg).map_err(|e| words(dir, &e))?;
    let t = target(dir, Role::Ost(ost), peers, db, s, hold);
    t.use_cached_config();
    Ok(t)
}

impl Target {
    /// `fsname-OST0000`, `MGS`.
    pub fn label(&self) -> String {
        let s = self.label_on_disk();
        self.service.as_service().target().label(&s.fsname)
    }

    pub fn label_on_disk(&self) -> Superblock {
        self.superblock.lock().clone()
    }

    /// Why the target cannot go on.
    pub fn failure(&self) -> Option<String> {
        let stopped = if self.read_only().is_some() { None } else { self.db.stopped() };
        stopped.or_else(|| self.refused.lock().as_ref().map(|r| r.text.clone()))
    }

    /// Whether it was taken out of the file system for good.
    pub fn is_removed(&self) -> bool {
        self.refused.lock().as_ref().is_some_and(|r| r.removed)
    }

    /// What [`Target::failure`] means.
    pub fn why_failed(&self) -> Why {
        let refused = self.refused.lock().is_some();
        match self.db.stopped() {
            _ if self.is_removed() => Why::Removed,
            Some(_) if !self.db.is_out_of_time() => Why::Disk,
            _ if refused => Why::Refused,
            _ => Why::OutOfTime,
        }
    }

    /// See [`Heartbeat::is_still_own`].
    pub async fn is_still_own(&self) -> Result<bool, StoreError> {
        self.hold.heartbeat.is_still_own().await
    }

    /// An OST whose disk failed goes on without changes, as long as nobody else can have it: what it has can
    /// be read.
    pub fn read_only(&self) -> Option<String> {
        match &self.service {
            Role::Ost(_) if self.db.is_held() => self.db.stopped(),
            _ => None,
        }
    }

    /// `None`: of an MGS, which waits for nobody.
    pub fn recovery(&self) -> Option<&Recovery> {
        match &self.service {
            Role::Mgs(_) => None,
            Role::Mdt(m) => Some(m.recovery()),
            Role::Ost(o) => Some(o.recovery()),
        }
    }

    /// `up`, `recovering`, `starting` (the MGS does not know it yet), `read-only`, `stopped`, `removed`.
    pub fn state(&self) -> &'static str {
        if self.is_removed() {
            return "removed";
        }
        if self.failure().is_some() {
            return "stopped";
        }
        if self.read_only().is_some() {
            return "read-only";
        }
        match self.recovery() {
            Some(r) if r.recovering() => "recovering",
            _ if !self.registered.load(Relaxed) => "starting",
            _ => "up",
        }
    }

    /// So that a target serves while the MGS is down.
    fn use_cached_config(&self) {
        self.label_on_disk().server_key.iter().for_each(|k| self.use_server_key(*k));
        let raw = self.label_on_disk().config;
        if raw.is_empty() {
            return;
        }
        match postcard::from_bytes::<ConfigReply>(&raw) {
            Ok(c) => self.apply(&c),
            Err(e) => tracing::warn!(
                "{}: its cached configuration is unreadable ({e}): waiting for the MGS",
                self.dir
            ),
        }
    }

    fn use_server_key(&self, key: Key) {
        match &self.service {
            Role::Mgs(_) => {}
            Role::Mdt(m) => m.set_server_key(key),
            Role::Ost(o) => o.set_server_key(key),
        }
    }

    /// Hands a configuration to the service: the targets of the file system, permanent parameters.
    pub fn apply(&self, c: &ConfigReply) {
        let o = match &self.service {
            Role::Mgs(_) => return,
            // It takes the parameters from the configuration itself.
            Role::Mdt(m) => return m.set_config(c.clone()),
            Role::Ost(o) => o,
        };
        o.set_maintenance(Maintenance::of(&c.params, &c.fsname), Some(c.version));
        for (name, value) in &c.params {
            let done = match self.set_lasting_osd_params(name, value) {
                Err(Errno::ENOENT) => o.set_params(name, value).map(drop),
                done => done,
            };
            if let Err(e) = done
                && e != Errno::ENOENT
            {
                tracing::warn!("{}: permanent parameter {name}={value}: {e}", self.label());
            }
        }
    }

    /// Keeps a configuration on disk, and what registering gave.
    pub fn remember(&self, world: &World, given: Option<Given>, c: &ConfigReply) -> Result<(), StoreError> {
        let mut s = self.superblock.lock();
        let mut new = s.clone();
        new.config = postcard::to_stdvec(c).unwrap_or_default();
        if let Some(g) = given {
            new.fs_uuid = g.fs_uuid;
            new.server_key = g.server_key.or(new.server_key);
            g.server_key.iter().for_each(|k| self.use_server_key(*k));
            new.first_time = false;
            new.replace = false;
        }
        self.relabel(world, &mut s, new)
    }

    /// Writes the label anew, if it differs.
    fn relabel(&self, world: &World, s: &mut Superblock, new: Superblock) -> Result<(), StoreError> {
        if new == *s {
            return Ok(());
        }
        // A server that slept while its target was taken must not put its old label over the new one: the
        // epoch is in there.
        let there = Superblock::read(world, &self.dir)?;
        if !self.db.is_held() || there.epoch != s.epoch {
            return Err(StoreError::Refused(format!("'{}' was taken over by another server", self.dir)));
        }
        assert_eq!(new.epoch, s.epoch, "only a start raises the epoch");
        let who = |s: &Superblock| (s.target, s.target_uuid, s.key);
        assert_eq!(who(&new), who(s), "who a target is nobody tells it");
        new.write(world, &self.dir)?;
        *s = new;
        Ok(())
    }

    /// An order about the changelog of an MDT; the consumer's name. While there are consumers an older
    /// program must not serve it, which would change files without a record: the label says so from before
    /// the first one is there until the last one is gone.
    pub fn changelog(&self, world: &World, order: &Order) -> Result<String, (Errno, String)> {
        let Role::Mdt(mdt) = &self.service else {
            return Err((
                Errno::EINVAL,
                format!("{} has no changelog: name a metadata target", self.label()),
            ));
        };
        let mark = |is: bool| self.mark_incompat(world, INCOMPAT_CHANGELOG, is);
        let failed = |e: StoreError| (e.errno(), e.to_string());
        if matches!(order, Order::Register { .. }) {
            mark(true).map_err(failed)?;
        }
        let consumer = world::block_on(mds::changelog_order(mdt, order))?;
        if !mds::has_changelog(mdt) {
            mark(false).map_err(failed)?;
        }
        Ok(consumer)
    }

    /// Sets or clears a bit of the label.
    fn mark_incompat(&self, world: &World, bit: u64, is: bool) -> Result<(), StoreError> {
        let mut s = self.superblock.lock();
        let mut new = s.clone();
        new.incompat = if is { s.incompat | bit } else { s.incompat & !bit };
        self.relabel(world, &mut s, new)
    }

    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        let mut all = match &self.service {
            Role::Mgs(m) => m.get_params(pattern),
            Role::Mdt(m) => m.get_params(pattern),
            Role::Ost(o) => o.get_params(pattern),
        };
        all.extend(self.get_osd_params(pattern));
        all
    }

    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        let mut all = match &self.service {
            Role::Mgs(m) => m.help_params(pattern),
            Role::Mdt(m) => m.help_params(pattern),
            Role::Ost(o) => o.help_params(pattern),
        };
        all.extend(self.help_osd_params(pattern));
        all
    }

    /// `ENOENT`: this target has no such parameter.
    pub async fn set_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        match self.set_osd_params(pattern, value) {
            Err(Errno::ENOENT) => {}
            done => return done,
        }
        match &self.service {
            Role::Mgs(_) => Err(Errno::ENOENT),
            Role::Mdt(m) => m.set_params(pattern, value).await,
            Role::Ost(o) => o.set_params(pattern, value),
        }
    }

    /// Finishes requests, then closes the database with an empty journal.
    pub async fn stop(&self) {
        match &self.service {
            Role::Mgs(_) => {}
            Role::Mdt(m) => m.stop().await,
            Role::Ost(o) => o.stop().await,
        }
        if let Err(e) = self.db.close().await {
            tracing::error!("{}: cannot close its database: {e}; the journal has everything", self.label());
        }
    }

    /// After all targets of its folder stopped: the next server need not wait.
    pub async fn leave(&self) {
        self.hold.heartbeat.leave().await;
    }

    /// After that: whoever wants the folder has it.
    pub fn let_go(&self) {
        self.hold.lock.lock().take();
    }

    /// Whether it lies in this folder: the MGT of an MDT's lies below it.
    pub fn is_in(&self, folder: &str) -> bool {
        self.dir == folder || self.dir.strip_prefix(folder) == Some(&format!("/{MGT_SUBDIR}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_xfs_without_a_bound_takes_room_ahead() {
        let on = |fstype: &str, options: &str| {
            let (source, dir) = ("/dev/sdb".into(), "/ost".into());
            takes_room_ahead(&mounts::Mount { source, dir, fstype: fstype.into(), options: options.into() })
        };
        assert!(on("xfs", "rw,relatime,attr2,inode64"));
        assert!(!on("xfs", "rw,allocsize=64k,inode64") && !on("ext4", "rw,relatime"));
    }
}

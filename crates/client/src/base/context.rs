//! What all layers of a mount share: the world, the settings, who it is, what went wrong. Nothing here sends
//! anything.

use super::cache_holder::CacheHolderSlot;
use super::errors::WriteErrors;
use super::errseq::ErrorBook;
use super::jobid::{JobId, JobIds};
use super::maintenance::Hold;
use super::shares::ShareSourceSlot;
use crate::{Call, R};
use model::planted::{self, Bug};
use model::{Cred, Errno, Fid, Nid, ObjectId};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use wire::RequestContext;
use world::World;

/// `llite.*.max_read_ahead_mb` unless set otherwise.
pub(crate) const READ_AHEAD_DEFAULT_MB: u64 = 256;

/// What was asked for at mount.
pub(crate) struct Settings {
    pub fsname: String,
    pub port: u16,
    pub bind: Option<IpAddr>,
    pub networks: rpc::Networks,
    pub client_name: String,
    pub soft_timeout: Option<Duration>,
}

pub(crate) struct Context {
    pub world: World,
    pub opt: Settings,
    /// Random: under it the servers keep what this mount has.
    pub uuid: [u8; 16],
    pub jobids: JobIds,
    /// How long requests may take before the server is asked about them.
    pub adaptive: Arc<rpc::AdaptiveLimits>,
    /// What went wrong in the background, and who was told.
    pub told: Arc<ErrorBook>,
    /// The same as a list for the operator.
    pub errors: WriteErrors,
    /// `llite.*.max_read_ahead_mb`, in bytes: of the whole mount, under way at a time.
    pub max_read_ahead: AtomicU64,
    /// Who keeps copies of what this mount knows.
    pub cache_holder: CacheHolderSlot,
    /// Who asks for more of what owners may have.
    pub shares: ShareSourceSlot,
    /// Changes of directories are durable when they return.
    pub dirsync: AtomicBool,
    pub read_only: AtomicBool,
    /// The file system is maintained.
    pub hold: Hold,
    /// Reads leave access times as they are.
    pub noatime: AtomicBool,
    closed: AtomicBool,
    next_trace: AtomicU64,
    /// Of locks, ranges in flight, reads: never reused.
    next_number: AtomicU64,
}

impl Context {
    /// `first`: numbers of locks and handles count up from here.
    pub(crate) fn new(world: World, opt: Settings, read_only: bool, first: u64) -> Context {
        Context {
            uuid: world.random_uuid(),
            opt,
            jobids: JobIds::new(),
            adaptive: Arc::default(),
            told: Arc::default(),
            errors: WriteErrors::default(),
            max_read_ahead: AtomicU64::new(READ_AHEAD_DEFAULT_MB << 20),
            cache_holder: CacheHolderSlot::default(),
            shares: ShareSourceSlot::default(),
            dirsync: AtomicBool::new(false),
            read_only: AtomicBool::new(read_only),
            hold: Hold::default(),
            noatime: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            next_trace: AtomicU64::new(world.random_u64()),
            next_number: AtomicU64::new(first),
            world,
        }
    }

    pub(crate) fn is_dirsync(&self) -> bool {
        self.dirsync.load(Relaxed)
    }

    pub(crate) fn is_noatime(&self) -> bool {
        self.noatime.load(Relaxed)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Relaxed) || self.hold.is_read_only() && !planted::on(Bug::MaintenanceUnheld)
    }

    /// `EROFS` on a read-only mount, and while changes are refused to all.
    pub(crate) fn writable(&self) -> R<()> {
        if self.is_read_only() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// As [`Context::writable`], of what was stored into pages, perhaps before changes were refused.
    pub(crate) fn pages_writable(&self) -> R<()> {
        let may = !self.read_only.load(Relaxed) && self.hold.takes_pages();
        if may { Ok(()) } else { Err(Errno::EROFS) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Returns whether it was open until now.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Relaxed)
    }

    /// A number that never was.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Relaxed)
    }

    /// For which job this caller does what it does.
    pub(crate) fn job_of(&self, call: &Call) -> JobId {
        self.jobids.of(call, || self.world.now())
    }

    /// What a request says of its caller.
    pub(crate) fn of(&self, call: &Call) -> RequestContext {
        self.about(call.cred.clone(), &self.job_of(call))
    }

    fn about(&self, cred: Cred, job: &JobId) -> RequestContext {
        let ctx = RequestContext {
            cred,
            jobid: job.as_deref().unwrap_or_default().to_string(),
            client_nid: self.opt.bind.map_or(String::new(), |addr| Nid { addr, net: 0 }.to_string()),
            deadline_ms: self
                .opt
                .soft_timeout
                .map_or(0, |d| u32::try_from(d.as_millis()).unwrap_or(u32::MAX)),
            trace_id: self.next_trace.fetch_add(1, Relaxed),
            client_time: self.world.wall(),
            ..RequestContext::default()
        };
        match self.hold.told_version() {
            Some(_) if planted::on(Bug::MaintenanceUnsaid) => ctx,
            Some(_) if self.hold.is_on() => ctx.knowing_maintenance(),
            Some(version) => ctx.maintained_by(version),
            None => ctx,
        }
    }

    /// As [`Context::of`], of the client itself: cleaning up, and what was permitted when a file was opened.
    pub(crate) fn own(&self) -> RequestContext {
        self.about(Cred::default(), &self.jobids.of_mount())
    }

    /// As [`Context::own`], for a job.
    pub(crate) fn own_for(&self, job: &JobId) -> RequestContext {
        match job {
            Some(_) => self.about(Cred::default(), job),
            None => self.own(),
        }
    }

    /// Bytes of a file were lost: remembered until everybody was told who must know. Called before the
    /// object's lock is let go under which they went: whoever finds nothing left to write finds the error.
    pub(crate) fn write_lost(&self, file: Fid, object: ObjectId, range: (u64, u64), e: Errno) {
        self.told.add(file, e);
        self.errors.add(self.world.wall(), file, object.to_string(), range, e);
    }
}

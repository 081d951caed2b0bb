//! What a target says of its disk: `osd-nacre.LABEL.*`.

use super::history::{HasHistory, History, Room};
use super::target::{Role, Target};
use mds::Mdt;
use model::Errno;
use model::param::{Decl, Param, ParamInfo, Registry, Scope, Table, Tree, Value};
use model::quota::Enforced;
use oss::Ost;
use std::sync::Arc;
use world::faulty::DiskFaults;

/// Of every target.
static TABLE: Table<Target> = Table {
    scopes: &[Scope::OsdNacre],
    params: &[
        Param::settable(
            Decl::words(
                "disk_fault",
                "none",
                |text| DiskFaults::default().set(text),
                "For drills: calls to the disk that shall fail or take long, as OP=ERROR[:COUNT][@PART,...]; OP is read, write, flush, name or all, \
                 ERROR is EIO, ENOSPC, EROFS or a time as 2000ms, PART is part of a path. 'none' ends it, and so does a restart.",
            )
            .until_restart(),
            |t, ()| t.faults.text().into(),
            |t, (), v| {
                t.faults.set(v.text)?;
                tracing::warn!("{}: disk_fault is '{}' now", t.label(), t.faults.text());
                Ok(())
            },
        ),
        Param::shown(
            Decl::counter("disk_faults_fired", "", "Calls to the disk that failed or took long because of disk_fault."),
            |t, ()| t.faults.fired().into(),
        ),
        Param::shown(
            Decl::text(
                "disk_state",
                "ok, or what ended the target's taking of changes: the disk's first error.",
            ),
            |t, ()| t.db.stopped().unwrap_or_else(|| "ok".into()).into(),
        ),
    ],
};

/// Of targets that hold data.
static DATA: Table<Ost> = Table {
    scopes: &[Scope::OsdNacre],
    params: &[Param::shown(
        Decl::gauge(
            "nonrotational",
            "",
            "0: the host says that the disk has heads to move (hosts say so of virtual disks, too). If it has, read_cache_enable=1 and writethrough_cache_enable=1 are worth a trial.",
        ),
        |o, ()| (!o.cache_use().rotational).into(),
    )],
};

/// Of targets that have names.
static NAMES: Table<Arc<Mdt>> = Table {
    scopes: &[Scope::OsdNacre],
    params: &[Param::settable(
        Decl::words(
            "quota_slave.enabled",
            "ugp",
            |text| Enforced::parse(text).map(drop).ok_or(Errno::EINVAL),
            "Whose limits are enforced: some of the letters u (users), g (groups) and p (projects), or none. What they use is counted in any case.",
        ),
        |m, ()| mds::enforced_limits(m).to_string().as_str().into(),
        |m, (), v| {
            mds::enforce_limits(m, Enforced::parse(v.text).ok_or(Errno::EINVAL)?);
            Ok(())
        },
    )],
};

/// What `lctl` can ask of the disks of targets.
pub(super) fn declare(to: &mut Registry) {
    to.add(&TABLE);
    to.add(&NAMES);
    to.add(&DATA);
}

impl HasHistory for Target {
    fn name(&self) -> String {
        self.label()
    }

    fn folder(&self) -> &str {
        &self.dir
    }

    fn history(&self) -> &History {
        &self.history
    }

    fn room(&self) -> Option<Room> {
        match &self.service {
            Role::Mgs(_) => None,
            Role::Mdt(m) => {
                let s = mds::space(m);
                Some(Room { files: s.files, files_free: s.files_free, bytes: s.total, bytes_free: s.free })
            }
            Role::Ost(o) => {
                let s = o.disk_space();
                Some(Room { files: s.files, files_free: s.files_free, bytes: s.total, bytes_free: s.free })
            }
        }
    }

    fn served(&self) -> (u64, u64) {
        let label = self.label();
        let name = match &self.service {
            Role::Mgs(_) => return (0, 0),
            Role::Mdt(_) => format!("mdt.{label}.md_stats"),
            Role::Ost(_) => format!("obdfilter.{label}.stats"),
        };
        let tree = match &self.service {
            Role::Mgs(_) => return (0, 0),
            Role::Mdt(m) => m.params(&name),
            Role::Ost(o) => o.params(&name),
        };
        let mut total = (0u64, 0u64);
        for (_, _, value) in tree.values() {
            let Value::Counters(c) = value else { continue };
            for (_, s) in c.all().filter(|(d, _)| d.unit == "usecs" && !d.name.contains("enqueue")) {
                total = (total.0.saturating_add(s.samples), total.1.saturating_add(s.sum));
            }
        }
        total
    }
}

impl Target {
    pub(super) fn osd_params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let device = format!("osd-nacre.{}", self.label());
        let mut tree = Tree::matching(pattern);
        tree.add(&device, &TABLE, self);
        match &self.service {
            Role::Ost(o) => {
                tree.add(&device, &DATA, &**o);
                tree.add(&device, &oss::CACHES, &**o);
            }
            Role::Mdt(m) => tree.add(&device, &NAMES, m),
            _ => {}
        }
        tree
    }

    pub(super) fn get_osd_params(&self, pattern: &str) -> Vec<(String, String)> {
        self.osd_params(pattern).texts()
    }

    pub(super) fn help_osd_params(&self, pattern: &str) -> Vec<ParamInfo> {
        self.osd_params(pattern).infos()
    }

    /// `ENOENT`: there is none; `EACCES`: it cannot be set; `EINVAL`: not to this value. Nothing is set then.
    pub(super) fn set_osd_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        let chosen = self.osd_params(pattern);
        chosen.set(value)?;
        Ok(chosen.texts())
    }

    /// As [`Target::set_osd_params`], of those that may be set for good.
    pub(super) fn set_lasting_osd_params(&self, pattern: &str, value: &str) -> Result<(), Errno> {
        let mut chosen = self.osd_params(pattern);
        chosen.items.retain(|i| i.decl.lasting);
        chosen.set(value)
    }
}

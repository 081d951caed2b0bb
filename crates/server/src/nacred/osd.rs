//! What a target says of its disk: `osd-nacre.LABEL.*`.

use super::target::{Role, Target};
use mds::Mdt;
use model::Errno;
use model::param::{Decl, Param, ParamInfo, Registry, Scope, Table, Tree};
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
                "For drills: calls to the disk that shall fail, as OP=ERROR[:COUNT][@PART,...]; OP is read, write, flush, name or all, \
                 ERROR is EIO, ENOSPC or EROFS, PART is part of a path. 'none' ends it, and so does a restart.",
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
            Decl::counter("disk_faults_fired", "", "Calls to the disk that failed because of disk_fault."),
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
    params: &[
        Param::shown(
            Decl::gauge(
                "nonrotational",
                "",
                "0: the host says that the disk has heads to move (hosts say so of virtual disks, too). If it has, read_cache_enable=1 and writethrough_cache_enable=1 are worth a trial.",
            ),
            |o, ()| (!o.cache_use().rotational).into(),
        ),
        Param::atomic_flag(
            Decl::flag(
                "read_cache_enable",
                false,
                "1: what is read in pieces of 2 MiB and more stays in the host's memory from its first read on; 0: from its second. What is there is read from there in any case.",
            ),
            |o, ()| &o.cache_use().reads,
        ),
        Param::atomic_flag(
            Decl::flag(
                "writethrough_cache_enable",
                false,
                "1: what is written in pieces of 2 MiB and more stays in the host's memory for readers on other clients; 0: it goes to the disk directly.",
            ),
            |o, ()| &o.cache_use().writes,
        ),
    ],
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

impl Target {
    fn osd_params<'a>(&'a self, pattern: &'a str) -> Tree<'a> {
        let device = format!("osd-nacre.{}", self.label());
        let mut tree = Tree::matching(pattern);
        tree.add(&device, &TABLE, self);
        match &self.service {
            Role::Ost(o) => tree.add(&device, &DATA, &**o),
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

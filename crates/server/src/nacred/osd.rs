//! What a target says of its disk: `osd-nacre.LABEL.*`.

use super::target::{Role, Target};
use model::Errno;
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamInfo, ParamValue, glob_match};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use store::object::CacheUse;

type Set = fn(&Target, ParamValue<'_>) -> Result<(), Errno>;

/// An entry of the table: declaration, how to get it, how to set it.
struct Param {
    decl: ParamDecl,
    /// `None`: this target has no such parameter.
    get: fn(&Target) -> Option<String>,
    set: Option<Set>,
    /// It may be set for good (`lctl set_param -P`).
    lasts: bool,
}

const fn shown(decl: ParamDecl, get: fn(&Target) -> Option<String>) -> Param {
    Param { decl, get, set: None, lasts: false }
}

const TABLE: &[Param] = &[
    Param {
        decl: ParamDecl::text(
            "disk_fault",
            "none",
            "For drills: calls to the disk that shall fail, as OP=ERROR[:COUNT][@PART,...]; OP is read, write, flush, name or all, \
             ERROR is EIO, ENOSPC or EROFS, PART is part of a path. 'none' ends it, and so does a restart.",
        ),
        get: |t| Some(t.faults.text()),
        set: Some(|t, v| {
            t.faults.set(v.text)?;
            tracing::warn!("{}: disk_fault is '{}' now", t.label(), t.faults.text());
            Ok(())
        }),
        lasts: false,
    },
    shown(
        ParamDecl::shown("disk_faults_fired", "", "Calls to the disk that failed because of disk_fault."),
        |t| Some(t.faults.fired().to_string()),
    ),
    shown(
        ParamDecl::shown(
            "disk_state",
            "",
            "ok, or what ended the target's taking of changes: the disk's first error.",
        ),
        |t| Some(t.db.stopped().unwrap_or_else(|| "ok".into())),
    ),
    shown(
        ParamDecl::shown(
            "nonrotational",
            "",
            "0: the host says that the disk has heads to move (hosts say so of virtual disks, too). If it has, read_cache_enable=1 and writethrough_cache_enable=1 are worth a trial.",
        ),
        |t| cache_use(t).map(|c| u8::from(!c.rotational).to_string()),
    ),
    Param {
        decl: ParamDecl::flag(
            "read_cache_enable",
            "0",
            "1: what is read in pieces of 2 MiB and more stays in the host's memory from its first read on; 0: from its second. What is there is read from there in any case.",
        ),
        get: |t| cache_use(t).map(|c| flag(&c.reads)),
        set: Some(|t, v| switch(t, |c| &c.reads, v)),
        lasts: true,
    },
    Param {
        decl: ParamDecl::flag(
            "writethrough_cache_enable",
            "0",
            "1: what is written in pieces of 2 MiB and more stays in the host's memory for readers on other clients; 0: it goes to the disk directly.",
        ),
        get: |t| cache_use(t).map(|c| flag(&c.writes)),
        set: Some(|t, v| switch(t, |c| &c.writes, v)),
        lasts: true,
    },
];

/// Of a target that holds data.
fn cache_use(t: &Target) -> Option<&CacheUse> {
    match &t.service {
        Role::Ost(o) => Some(o.cache_use()),
        _ => None,
    }
}

fn flag(b: &AtomicBool) -> String {
    u8::from(b.load(Relaxed)).to_string()
}

fn switch(t: &Target, which: fn(&CacheUse) -> &AtomicBool, v: ParamValue<'_>) -> Result<(), Errno> {
    assert!(v.number <= 1, "a flag is on or off");
    let c = cache_use(t).ok_or(Errno::ENOENT)?;
    which(c).store(v.number == 1, Relaxed);
    Ok(())
}

impl Target {
    fn osd_params(&self, pattern: &str) -> impl Iterator<Item = (String, &'static Param)> {
        assert!(TABLE.is_sorted_by(|a, b| a.decl.name < b.decl.name), "parameters have one name each");
        let prefix = format!("osd-nacre.{}", self.label());
        let named = TABLE.iter().map(move |p| (format!("{prefix}.{}", p.decl.name), p));
        let pattern = pattern.to_string();
        named.filter(move |(n, p)| glob_match(&pattern, n) && (p.get)(self).is_some())
    }

    pub(super) fn get_osd_params(&self, pattern: &str) -> impl Iterator<Item = (String, String)> {
        self.osd_params(pattern).filter_map(|(n, p)| Some((n, (p.get)(self)?)))
    }

    pub(super) fn help_osd_params(&self, pattern: &str) -> impl Iterator<Item = ParamInfo> {
        self.osd_params(pattern).map(|(n, p)| p.decl.info(n))
    }

    /// `ENOENT`: there is none; `EACCES`: it cannot be set; `EINVAL`: not to this value. Nothing is set then.
    pub(super) fn set_osd_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        self.set_chosen(self.osd_params(pattern).collect(), value)
    }

    /// As [`Target::set_osd_params`], of those that may be set for good.
    pub(super) fn set_lasting_osd_params(&self, pattern: &str, value: &str) -> Result<(), Errno> {
        self.set_chosen(self.osd_params(pattern).filter(|(_, p)| p.lasts).collect(), value).map(drop)
    }

    fn set_chosen(
        &self,
        chosen: Vec<(String, &'static Param)>,
        value: &str,
    ) -> Result<Vec<(String, String)>, Errno> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        if chosen.is_empty() {
            return Err(Errno::ENOENT);
        }
        for (_, p) in &chosen {
            p.decl.check(value)?;
        }
        let mut out = Vec::new();
        for (name, p) in chosen {
            (p.set.expect("declared writable"))(self, p.decl.check(value)?)?;
            out.push((name, (p.get)(self).unwrap_or_default()));
        }
        Ok(out)
    }
}

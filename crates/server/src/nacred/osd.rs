//! What a target says of its disk: `osd-nacre.LABEL.*`.

use super::target::Target;
use model::Errno;
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamInfo, glob_match};

/// An entry of the table: declaration, how to get it.
struct Param {
    decl: ParamDecl,
    get: fn(&Target) -> String,
}

const TABLE: &[Param] = &[
    Param {
        decl: ParamDecl::text(
            "disk_fault",
            "none",
            "For drills: calls to the disk that shall fail, as OP=ERROR[:COUNT][@PART,...]; OP is read, write, flush, name or all, \
             ERROR is EIO, ENOSPC or EROFS, PART is part of a path. 'none' ends it, and so does a restart.",
        ),
        get: |t| t.faults.text(),
    },
    Param {
        decl: ParamDecl::shown(
            "disk_faults_fired",
            "",
            "Calls to the disk that failed because of disk_fault.",
        ),
        get: |t| t.faults.fired().to_string(),
    },
    Param {
        decl: ParamDecl::shown(
            "disk_state",
            "",
            "ok, or what ended the target's taking of changes: the disk's first error.",
        ),
        get: |t| t.db.stopped().unwrap_or_else(|| "ok".into()),
    },
];

impl Target {
    fn osd_params(&self, pattern: &str) -> impl Iterator<Item = (String, &'static Param)> {
        let prefix = format!("osd-nacre.{}", self.label());
        let named = TABLE.iter().map(move |p| (format!("{prefix}.{}", p.decl.name), p));
        let pattern = pattern.to_string();
        named.filter(move |(n, _)| glob_match(&pattern, n))
    }

    pub(super) fn get_osd_params(&self, pattern: &str) -> impl Iterator<Item = (String, String)> {
        self.osd_params(pattern).map(|(n, p)| (n, (p.get)(self)))
    }

    pub(super) fn help_osd_params(&self, pattern: &str) -> impl Iterator<Item = ParamInfo> {
        self.osd_params(pattern).map(|(n, p)| p.decl.info(n))
    }

    /// `ENOENT`: there is none; `EACCES`: it cannot be set; `EINVAL`: not to this value.
    pub(super) fn set_osd_params(&self, pattern: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let mut out = Vec::new();
        for (name, p) in self.osd_params(pattern) {
            // The only one that can be set.
            self.faults.set(p.decl.check(value)?.text)?;
            tracing::warn!("{}: disk_fault is '{}' now", self.label(), self.faults.text());
            out.push((name, (p.get)(self)));
        }
        if out.is_empty() { Err(Errno::ENOENT) } else { Ok(out) }
    }
}

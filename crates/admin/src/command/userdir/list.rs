//! What directories there are, whose they are, and what their owners may have.

use super::make::NEW;
use super::remove::GONE;
use crate::command::osts::mount_of;
use crate::command::quota::{directory, standings, words};
use crate::failure::{Failure, FirstError};
use crate::local::{self, LocalMount};
use crate::names;
use crate::size::human;
use crate::walk::{Mounted, Tree};
use client::control::Listed;
use model::quota::{Limit, Standings};
use model::usage::{QuotaId, QuotaType, Usage};
use model::{Errno, Fid, FileType};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Owners that are asked about at once.
const ASKED_AT_ONCE: usize = 500;

/// One directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub path: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub project: u32,
    /// If it has a quota of its own.
    pub quota: Option<QuotaId>,
    pub state: &'static str,
    pub usage: Usage,
    pub limits: Standings,
}

impl Row {
    /// Whose limits are those of the directory.
    pub fn limited(&self) -> QuotaId {
        let of = |of, id| QuotaId { of, id };
        match (self.quota, self.project, self.uid) {
            (Some(own), ..) => own,
            (None, 0, 0) => of(QuotaType::Group, self.gid),
            (None, 0, uid) => of(QuotaType::User, uid),
            (None, project, _) => of(QuotaType::Project, project),
        }
    }

    fn new(under: &Path, l: &Listed, quotas: &BTreeMap<Fid, QuotaId>) -> Option<Row> {
        let attr = &l.inode.as_ref()?.attr;
        if l.kind != FileType::Directory {
            return None;
        }
        let name = l.name.lossy();
        let (state, shown) = match (name.strip_prefix(NEW), name.strip_prefix(GONE)) {
            (Some(of), _) => ("half-made", of),
            (_, Some(of)) => ("half-removed", of),
            _ => ("ready", name.as_str()),
        };
        Some(Row {
            path: under.join(shown),
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode,
            project: attr.projid,
            quota: quotas.get(&l.fid).copied(),
            state,
            usage: Usage::default(),
            limits: Standings::default(),
        })
    }

    fn json(&self) -> Value {
        let limit = |l: Limit| json!({"soft": l.soft, "hard": l.hard});
        let q = self.limited();
        json!({"path": self.path, "user": names::user(self.uid), "uid": self.uid,
               "group": names::group(self.gid), "gid": self.gid, "mode": format!("{:04o}", self.mode),
               "project": self.project, "state": self.state, "limits_of": words(q.of).0, "limits_id": q.id,
               "bytes": self.usage.bytes(), "inodes": self.usage.inodes,
               "bytes_limit": limit(self.limits.space.limit), "inodes_limit": limit(self.limits.inodes.limit)})
    }
}

/// All directories in one.
fn rows_of(under: &Path, quotas: &BTreeMap<Fid, QuotaId>) -> Result<Vec<Row>, Failure> {
    let shown = under.display().to_string();
    local::mount_point(under)?;
    let dir = Mounted::new(under)?.open(under)?;
    let dir = dir.ok_or_else(|| Failure::op("cannot list", &shown, Errno::ENOENT))?;
    let (mut rows, mut cookie) = (Vec::new(), 0);
    loop {
        let page = dir.page(cookie, true)?;
        rows.extend(page.entries.iter().filter_map(|l| Row::new(under, l, quotas)));
        match page.next {
            Some(next) => cookie = next,
            None => break,
        }
    }
    rows.sort_by(|a, b| (&a.path, a.state).cmp(&(&b.path, b.state)));
    Ok(rows)
}

/// Directories with a quota of their own; a server of a version that knows none has none.
fn quotas_of(m: &LocalMount) -> Result<BTreeMap<Fid, QuotaId>, Failure> {
    match directory::all(m) {
        Ok(all) => Ok(all.iter().map(|d| (d.fid, directory::id_of(d))).collect()),
        Err(f) if Errno(f.exit_code()) == Errno::EOPNOTSUPP => Ok(BTreeMap::new()),
        Err(f) => Err(f),
    }
}

/// All directories in these, with what their owners have and may have.
pub fn rows(unders: &[PathBuf], errors: &mut FirstError) -> Result<Vec<Row>, Failure> {
    let mut all = Vec::new();
    for under in unders {
        let m = mount_of(under)?;
        let mut rows = rows_of(under, &quotas_of(&m)?)?;
        for chunk in rows.chunks_mut(ASKED_AT_ONCE) {
            let ids = chunk.iter().map(Row::limited).collect();
            let told = standings(&m, ids, "nacre userdir", errors)?;
            for (row, (usage, limits)) in chunk.iter_mut().zip(told) {
                (row.usage, row.limits) = (usage, limits);
            }
        }
        all.append(&mut rows);
    }
    Ok(all)
}

fn limit(l: Limit, show: impl Fn(u64) -> String) -> String {
    match l.hard.max(l.soft) {
        0 => "-".into(),
        n => show(n),
    }
}

pub fn text(rows: &[Row]) -> String {
    let mut out = format!(
        "{:<16} {:<12} {:>4} {:>8} {:>8} {:>8} {:>8} {:>8} {:<12} {}\n",
        "User", "Group", "Mode", "Project", "Used", "Limit", "Inodes", "Limit", "State", "Directory"
    );
    for r in rows {
        out.push_str(&format!(
            "{:<16} {:<12} {:04o} {:>8} {:>8} {:>8} {:>8} {:>8} {:<12} {}\n",
            names::user(r.uid),
            names::group(r.gid),
            r.mode,
            r.project,
            human(r.usage.bytes(), 1024),
            limit(r.limits.space.limit, |n| human(n, 1024)),
            r.usage.inodes,
            limit(r.limits.inodes.limit, |n| n.to_string()),
            r.state,
            r.path.display()
        ));
    }
    out
}

pub fn json(rows: &[Row]) -> Value {
    json!({"directories": rows.iter().map(Row::json).collect::<Vec<_>>()})
}

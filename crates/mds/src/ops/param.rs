//! get_param and set_param of a metadata target.

use crate::mdt::Mdt;
use crate::params::{EXPORT, LOD, MDT};
use crate::recovery;
use model::exports::Export;
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamInfo, glob_match};
use model::{Errno, TargetId};
use std::fmt::Write;
use std::sync::Arc;
use wire::msg::param::{GetParam, GetParamReply, SetParam};
use wire::msg::statfs::Statfs;

/// Parameters of the session with an OST: `osp.FSNAME-OST0000-osc-MDT0000`.
const OSP: &[ParamDecl] = &[
    ParamDecl::flag("active", "1", "0: no new objects on this OST"),
    ParamDecl::shown("state", "", "state of the session with the OST"),
    ParamDecl::shown("destroys_pending", "objects", "removed objects that the OST has not been told of yet"),
];

pub fn get(mdt: &Mdt, m: GetParam) -> Result<GetParamReply, Errno> {
    if m.pattern.len() > PARAM_TEXT_MAX_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut values = Vec::new();
    for (name, get) in names(mdt) {
        if glob_match(&m.pattern, &name) {
            values.push((name, get.value(mdt)));
        }
    }
    Ok(GetParamReply { values })
}

/// Sets every parameter that the glob names, and waits until owners of directories know if it is about new files'
/// layouts. `ENOENT` if there is none, `EACCES` for those that are only shown, `EINVAL` or `ERANGE` for values that
/// cannot be, `ESHUTDOWN` when the target stops meanwhile.
pub async fn set(mdt: &Mdt, m: SetParam) -> Result<GetParamReply, Errno> {
    let (about, r) = set_now(mdt, m)?;
    mdt.settings_changed(about).await?;
    Ok(r)
}

/// What clients must know of before a setting counts as made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct About {
    /// Layouts of new files.
    pub layouts: bool,
    /// Whose root is root.
    pub squash: bool,
}

impl About {
    fn add(&mut self, p: &Param) {
        self.layouts |= p.is_default();
        self.squash |= matches!(p.decl().name, "root_squash" | "nosquash_nids");
    }
}

/// As [`set`], without waiting: what it is about.
fn set_now(mdt: &Mdt, m: SetParam) -> Result<(About, GetParamReply), Errno> {
    if m.name.len() > PARAM_TEXT_MAX_BYTES || m.value.len() > PARAM_TEXT_MAX_BYTES {
        return Err(Errno::EINVAL);
    }
    if m.permanent || m.delete {
        // Permanent settings are the management server's, which sends them here with the configuration.
        return Err(Errno::EINVAL);
    }
    let hits: Vec<_> = names(mdt).into_iter().filter(|(n, _)| glob_match(&m.name, n)).collect();
    if hits.is_empty() {
        return Err(Errno::ENOENT);
    }
    let (mut values, mut about) = (Vec::new(), About::default());
    for (name, p) in hits {
        p.set(mdt, &m.value)?;
        about.add(&p);
        values.push((name, p.value(mdt)));
    }
    Ok((about, GetParamReply { values }))
}

/// One parameter of this target.
enum Param {
    Lod(&'static ParamDecl),
    Mdt(&'static ParamDecl),
    Osp(u16, &'static ParamDecl),
    Export(Arc<Export>, &'static ParamDecl),
}

fn names(mdt: &Mdt) -> Vec<(String, Param)> {
    let fs = &mdt.cfg.fsname;
    let me = TargetId::mdt(mdt.cfg.index);
    let mut v = Vec::new();
    v.extend(LOD.iter().map(|d| (format!("lod.{fs}-{me}-mdtlov.{}", d.name), Param::Lod(d))));
    v.extend(MDT.iter().map(|d| (format!("mdt.{fs}-{me}.{}", d.name), Param::Mdt(d))));
    for (i, _) in mdt.shared.osts.list() {
        let ost = TargetId::ost(i);
        v.extend(OSP.iter().map(|d| (format!("osp.{fs}-{ost}-osc-{me}.{}", d.name), Param::Osp(i, d))));
    }
    for (nid, e) in mdt.stats.exports.list() {
        let name = |d: &ParamDecl| format!("mdt.{fs}-{me}.exports.{nid}.{}", d.name);
        v.extend(EXPORT.iter().map(|d| (name(d), Param::Export(e.clone(), d))));
    }
    v
}

impl Param {
    fn value(&self, mdt: &Mdt) -> String {
        match self {
            Param::Lod(d) => lod_value(mdt, d.name),
            Param::Mdt(d) => mdt_value(mdt, d.name),
            Param::Osp(i, d) => osp_value(mdt, *i, d.name),
            Param::Export(e, d) if d.name == "stats" => e.stats.text(mdt.world.wall()),
            Param::Export(e, _) => uuids_at(mdt, e),
        }
    }

    fn decl(&self) -> &'static ParamDecl {
        match self {
            Param::Lod(d) | Param::Mdt(d) | Param::Osp(_, d) | Param::Export(_, d) => d,
        }
    }

    /// Whether it says what layout new files get.
    fn is_default(&self) -> bool {
        matches!(self, Param::Lod(_)) || self.decl().name == "dom_stripesize"
    }

    fn set(&self, mdt: &Mdt, value: &str) -> Result<(), Errno> {
        match self {
            p if !p.decl().writable => Err(Errno::EACCES),
            Param::Mdt(d) if matches!(d.name, "md_stats" | "stats") => {
                mdt.stats.all.clear(mdt.world.wall());
                Ok(())
            }
            Param::Export(e, _) => {
                e.stats.clear(mdt.world.wall());
                Ok(())
            }
            Param::Lod(d) | Param::Mdt(d) => mdt.shared.params.set(d, value),
            Param::Osp(i, d) => {
                mdt.set_ost_enabled(*i, d.parse(value)? == 1);
                Ok(())
            }
        }
    }
}

fn lod_value(mdt: &Mdt, name: &str) -> String {
    let osts = || mdt.shared.osts.list().into_iter();
    match name {
        "numobd" => osts().count().to_string(),
        "activeobd" => osts().filter(|(_, o)| o.configured && o.enabled).count().to_string(),
        "target_obd" => {
            let mut s = String::new();
            for (i, o) in osts() {
                let state = if o.configured && o.enabled { "ACTIVE" } else { "INACTIVE" };
                let _ = writeln!(s, "{i}: {}_UUID {state}", TargetId::ost(i).label(&mdt.cfg.fsname));
            }
            s
        }
        _ => mdt.shared.params.get(name).unwrap_or_default(),
    }
}

fn mdt_value(mdt: &Mdt, name: &str) -> String {
    let files = || super::statfs::run(mdt, Statfs { flags: 0 }).unwrap_or_default();
    match name {
        "recovery_status" => recovery::status(mdt),
        "num_exports" => mdt.core_read().clients.len().to_string(),
        "instance" => mdt.shared.epoch.to_string(),
        "uuid" => format!("{}_UUID", TargetId::mdt(mdt.cfg.index).label(&mdt.cfg.fsname)),
        "lease_count" => mdt.shared.leases.total().to_string(),
        "open_files" => mdt.core_read().opens.total().to_string(),
        "filestotal" => files().files.to_string(),
        "filesfree" => files().files_free.to_string(),
        "md_stats" | "stats" => mdt.stats.all.text(mdt.world.wall()),
        _ => mdt.shared.params.get(name).unwrap_or_default(),
    }
}

fn osp_value(mdt: &Mdt, index: u16, name: &str) -> String {
    let Some(o) = mdt.shared.osts.get(index) else { return String::new() };
    match name {
        "active" => u8::from(o.configured && o.enabled).to_string(),
        "state" => o.import.map_or_else(|| "NEW".into(), |i| format!("{:?}", i.state()).to_uppercase()),
        _ => mdt.outbox_pending(index).to_string(),
    }
}

/// A permanent setting from the configuration; names of other targets are none of our business. What it is about.
pub fn apply_permanent(mdt: &Mdt, name: &str, value: &str, about: &mut About) {
    for (n, p) in names(mdt) {
        if glob_match(name, &n) {
            about.add(&p);
            if let Err(e) = p.set(mdt, value) {
                tracing::warn!("permanent parameter {name}={value} was not applied to {n}: {e}");
            }
        }
    }
}

/// Clients that first came from this address, a line each.
fn uuids_at(mdt: &Mdt, e: &Export) -> String {
    let here = e.addr.to_string();
    let core = mdt.core_read();
    let all = core.clients.iter().filter(|(_, c)| c.address == here);
    all.map(|(id, _)| id.to_string()).collect::<Vec<_>>().join("\n")
}

/// For `lctl` on the server's own host: the daemon asks without a session.
impl Mdt {
    /// Waits until no client goes by what was set before.
    pub(crate) async fn settings_changed(&self, about: About) -> Result<(), Errno> {
        if about.layouts {
            self.defaults_changed().await?;
        }
        if about.squash {
            self.squash_changed().await?;
        }
        Ok(())
    }

    pub fn get_params(&self, pattern: &str) -> Vec<(String, String)> {
        get(self, GetParam { pattern: pattern.to_string() }).map(|r| r.values).unwrap_or_default()
    }

    /// What they mean, and what can be set.
    pub fn help_params(&self, pattern: &str) -> Vec<ParamInfo> {
        let hits = names(self).into_iter().filter(|(n, _)| glob_match(pattern, n));
        hits.map(|(n, p)| p.decl().info(n)).collect()
    }

    /// As [`set`].
    pub async fn set_params(&self, name: &str, value: &str) -> Result<Vec<(String, String)>, Errno> {
        let m =
            SetParam { name: name.to_string(), value: value.to_string(), permanent: false, delete: false };
        set(self, m).await.map(|r| r.values)
    }
}

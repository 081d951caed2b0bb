//! The mount's part of the parameter tree: `osc.*`, `mdc.*`, `llite.*` and so on, under Lustre's names.
//!
//! Each parameter is declared once, in [`DECLARED`]; documentation and completion are made from it.

use crate::targets::{PAGE_BYTES, Target, state_name};
use crate::{Fs, R};
use model::limits::{JOBID_MAX_BYTES, LEASES_PER_CLIENT_MAX_FILES, RPC_BULK_MAX_BYTES, SLOTS_PER_SESSION};
use model::param::{PARAM_TEXT_MAX_BYTES, ParamDecl, ParamKind, glob_match};
use model::{Errno, TargetId, TargetKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Whose parameter it is: the part of the name before the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// No device: `version`.
    Global,
    /// `llite.FS-INSTANCE`: the mount.
    Llite,
    /// `lov.FS-clilov-INSTANCE`: the object targets together.
    Lov,
    /// `lmv.FS-clilmv-INSTANCE`: the metadata targets together.
    Lmv,
    /// `mgc.MGCNID`.
    Mgc,
    /// `ldlm.namespaces.FS-MDT0000-mdc-INSTANCE`: leases on names and attributes.
    Ldlm,
    /// `osc.FS-OSTxxxx-osc-INSTANCE`, `mdc.FS-MDTxxxx-mdc-INSTANCE`, one for each target.
    Osc,
    Mdc,
}

const TEXT: ParamKind = ParamKind::Text;
const RPCS: ParamKind = ParamKind::Number { min: 1, max: SLOTS_PER_SESSION as u64 };
const PAGES: ParamKind = ParamKind::Number { min: 1, max: (RPC_BULK_MAX_BYTES / PAGE_BYTES) as u64 };

const fn read(name: &'static str, description: &'static str) -> ParamDecl {
    ParamDecl { name, kind: TEXT, unit: "", default: "", writable: false, description }
}

const fn number(
    name: &'static str,
    kind: ParamKind,
    unit: &'static str,
    default: &'static str,
    description: &'static str,
) -> ParamDecl {
    ParamDecl { name, kind, unit, default, writable: true, description }
}

const fn text(name: &'static str, default: &'static str, description: &'static str) -> ParamDecl {
    ParamDecl { name, kind: TEXT, unit: "", default, writable: true, description }
}

/// Every parameter of a mount.
pub const DECLARED: &[(Owner, ParamDecl)] = &[
    (Owner::Global, read("version", "Version of this program.")),
    (
        Owner::Global,
        text("jobid_var", "disable", "Where the job id of requests comes from: disable or nodelocal."),
    ),
    (
        Owner::Global,
        text(
            "jobid_name",
            "%u",
            "Job id with jobid_var=nodelocal: %u user, %g group, %p process, %% a percent sign.",
        ),
    ),
    (Owner::Llite, read("uuid", "UUID under which the servers know this mount.")),
    (Owner::Llite, read("fstype", "Type of the file system.")),
    (Owner::Llite, read("client_type", "Always local client.")),
    (
        Owner::Llite,
        text("stats", "", "Calls by kind with their times in microseconds; writing anything clears them."),
    ),
    (
        Owner::Llite,
        read(
            "meta_cache",
            "Names and attributes kept: answers from the cache and not, leases given back, fetched ahead.",
        ),
    ),
    (
        Owner::Llite,
        number(
            "statahead_max",
            ParamKind::Number { min: 0, max: 1 << 20 },
            "entries",
            "8192",
            "Entries of a directory fetched at most at a time because its names are looked up one by one; 0: none.",
        ),
    ),
    (
        Owner::Ldlm,
        text(
            "lru_size",
            "131072",
            "Files of which names and attributes are kept; 'clear' gives all leases back now.",
        ),
    ),
    (
        Owner::Ldlm,
        number(
            "lru_max_age",
            ParamKind::Number { min: 1, max: u64::MAX },
            "ms",
            "3900000",
            "Leases that were not used for so long are given back.",
        ),
    ),
    (Owner::Ldlm, read("lock_count", "Files on which this mount has a lease.")),
    (Owner::Llite, read("open_files", "Files that are open on this mount.")),
    (Owner::Lov, read("numobd", "Object targets in the target map.")),
    (Owner::Lov, read("activeobd", "Object targets that are not deactivated.")),
    (Owner::Lov, read("target_obd", "The object targets with index, UUID and whether they are active.")),
    (Owner::Lmv, read("numobd", "Metadata targets in the target map.")),
    (Owner::Lmv, read("activeobd", "Metadata targets that are not deactivated.")),
    (Owner::Lmv, read("target_obd", "The metadata targets with index, UUID and whether they are active.")),
    (Owner::Mgc, read("state", "State of the session with the MGS.")),
    (Owner::Mgc, read("import", "The session with the MGS.")),
    (Owner::Osc, read("state", "State of the session.")),
    (Owner::Osc, read("import", "The session: target, state, addresses.")),
    (Owner::Osc, read("ost_server_uuid", "UUID of the target and state of the session.")),
    (Owner::Osc, read("ost_conn_uuid", "NID the target is reached at.")),
    (
        Owner::Osc,
        number("active", ParamKind::Flag, "", "1", "0: calls to this target fail with EIO at once."),
    ),
    (
        Owner::Osc,
        number(
            "max_rpcs_in_flight",
            RPCS,
            "requests",
            "32",
            "Requests to this target that are under way at a time.",
        ),
    ),
    (Owner::Osc, number("max_pages_per_rpc", PAGES, "pages of 4 KiB", "1024", "Most data in one request.")),
    (Owner::Mdc, read("state", "State of the session.")),
    (Owner::Mdc, read("import", "The session: target, state, addresses.")),
    (Owner::Mdc, read("mds_server_uuid", "UUID of the target and state of the session.")),
    (Owner::Mdc, read("mds_conn_uuid", "NID the target is reached at.")),
    (
        Owner::Mdc,
        number("active", ParamKind::Flag, "", "1", "0: calls to this target fail with EIO at once."),
    ),
    (
        Owner::Mdc,
        number(
            "max_rpcs_in_flight",
            RPCS,
            "requests",
            "32",
            "Requests to this target that are under way at a time.",
        ),
    ),
];

/// Settings that belong to the mount as a whole.
pub(crate) struct Params {
    jobid: Mutex<(String, String)>,
}

impl Params {
    pub(crate) fn new() -> Params {
        Params { jobid: Mutex::new(("disable".to_string(), "%u".to_string())) }
    }

    /// The job id that requests of this caller carry.
    pub(crate) fn jobid(&self, call: &crate::Call) -> String {
        let j = self.jobid.lock().expect("no panic while locked");
        if j.0 == "nodelocal" { expand_jobid(&j.1, call) } else { String::new() }
    }
}

fn expand_jobid(format: &str, call: &crate::Call) -> String {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('u')) => out.push_str(&call.cred.uid.to_string()),
            ('%', Some('g')) => out.push_str(&call.cred.gid.to_string()),
            ('%', Some('p')) => out.push_str(&call.pid.to_string()),
            ('%', Some(x)) => out.push(x),
            (c, _) => out.push(c),
        }
    }
    let mut end = out.len().min(JOBID_MAX_BYTES);
    while !out.is_char_boundary(end) {
        end -= 1;
    }
    out.truncate(end);
    out
}

/// One parameter of one device.
struct Item {
    name: String,
    owner: Owner,
    decl: ParamDecl,
    target: Option<Arc<Target>>,
}

impl Fs {
    /// Every parameter this mount has now.
    fn param_items(&self) -> Vec<Item> {
        let (fs, inst) = (&self.opt.fsname, self.instance());
        let mut devices: Vec<(Owner, String, Option<Arc<Target>>)> = vec![
            (Owner::Global, String::new(), None),
            (Owner::Llite, format!("llite.{fs}-{inst}."), None),
            (Owner::Lov, format!("lov.{fs}-clilov-{inst}."), None),
            (Owner::Lmv, format!("lmv.{fs}-clilmv-{inst}."), None),
        ];
        let mdt = TargetId::mdt(crate::locate::ROOT_MDT).label(fs);
        devices.push((Owner::Ldlm, format!("ldlm.namespaces.{mdt}-mdc-{inst}."), None));
        if let Some(m) = self.mgs.get() {
            devices.push((Owner::Mgc, format!("mgc.MGC{}.", m.import.current_nid()), Some(m.clone())));
        }
        for t in self.targets.all() {
            let (owner, kind) =
                if t.id.kind == TargetKind::Ost { (Owner::Osc, "osc") } else { (Owner::Mdc, "mdc") };
            devices.push((owner, format!("{kind}.{}-{kind}-{inst}.", t.id.label(fs)), Some(t)));
        }
        let mut out = Vec::new();
        for (owner, prefix, target) in devices {
            for (_, decl) in DECLARED.iter().filter(|d| d.0 == owner) {
                out.push(Item {
                    name: format!("{prefix}{}", decl.name),
                    owner,
                    decl: *decl,
                    target: target.clone(),
                });
            }
        }
        out
    }

    fn param_value(&self, i: &Item) -> String {
        match (&i.target, i.decl.name) {
            (Some(t), name) => self.target_param(t, name),
            (None, "version") => env!("CARGO_PKG_VERSION").to_string(),
            (None, "jobid_var") => self.params.jobid.lock().expect("no panic while locked").0.clone(),
            (None, "jobid_name") => self.params.jobid.lock().expect("no panic while locked").1.clone(),
            (None, "uuid") => uuid_text(&self.uuid),
            (None, "fstype") => "nacre".to_string(),
            (None, "client_type") => "local client".to_string(),
            (None, "stats") => self.stats.text(self.world.wall()),
            (None, "meta_cache") => {
                let m = &self.meta;
                let n = |c: &AtomicU64| c.load(Relaxed);
                format!(
                    "hits: {}\nmisses: {}\nrevoked: {}\nfetched_ahead: {}",
                    n(&m.hits),
                    n(&m.misses),
                    n(&m.revoked),
                    n(&m.fetched_ahead)
                )
            }
            (None, "statahead_max") => self.meta.statahead_max.load(Relaxed).to_string(),
            (None, "lru_max_age") => self.meta.max_age.load(Relaxed).to_string(),
            (None, "lru_size") => self.meta.max_files().to_string(),
            (None, "lock_count") => self.meta.lease_count().to_string(),
            (None, "open_files") => self.opens.records().len().to_string(),
            (None, name) => {
                let kind = if i.owner == Owner::Lov { TargetKind::Ost } else { TargetKind::Mdt };
                let all = self.targets.of_kind(kind);
                match name {
                    "numobd" => all.len().to_string(),
                    "activeobd" => all.iter().filter(|t| t.is_active()).count().to_string(),
                    _ => {
                        let line = |t: &Arc<Target>| {
                            let state = if t.is_active() { "ACTIVE" } else { "INACTIVE" };
                            format!("{}: {}_UUID {state}", t.id.index, t.id.label(&self.opt.fsname))
                        };
                        all.iter().map(line).collect::<Vec<_>>().join("\n")
                    }
                }
            }
        }
    }

    fn target_param(&self, t: &Target, name: &str) -> String {
        let state = state_name(t.import.state());
        let label = t.id.label(&self.opt.fsname);
        match name {
            "active" => u8::from(t.is_active()).to_string(),
            "max_rpcs_in_flight" => t.rpcs_in_flight().to_string(),
            "max_pages_per_rpc" => (t.bulk_bytes() / PAGE_BYTES).to_string(),
            "state" => format!("current_state: {state}"),
            "ost_server_uuid" | "mds_server_uuid" => format!("{label}_UUID\t{state}"),
            "ost_conn_uuid" | "mds_conn_uuid" => t.import.current_nid().to_string(),
            _ => {
                let nids: Vec<String> = t.nids().iter().map(ToString::to_string).collect();
                format!(
                    "import:\n    name: {label}\n    target: {label}_UUID\n    state: {state}\n    connection:\n       \
                     failover_nids: [ {} ]\n       current_connection: {}\n    recoveries: {}",
                    nids.join(", "),
                    t.import.current_nid(),
                    t.recoveries.load(Relaxed)
                )
            }
        }
    }

    /// Parameters whose dotted names match the glob, with their values, in the tree's order.
    pub fn get_param(&self, pattern: &str) -> Vec<(String, String)> {
        let hits = self.param_items().into_iter().filter(|i| glob_match(pattern, &i.name));
        hits.map(|i| (i.name.clone(), self.param_value(&i))).collect()
    }

    /// Sets a parameter, or all whose names match a glob. `ENOENT`: there is none; `EACCES`: it is read-only;
    /// `EINVAL`, `ERANGE`: not that value.
    pub fn set_param(&self, name: &str, value: &str) -> R<()> {
        if value.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::EINVAL);
        }
        let hits: Vec<Item> = self.param_items().into_iter().filter(|i| glob_match(name, &i.name)).collect();
        if hits.is_empty() {
            return Err(Errno::ENOENT);
        }
        for i in &hits {
            self.set_item(i, value.trim())?;
        }
        Ok(())
    }

    fn set_item(&self, i: &Item, value: &str) -> R<()> {
        if !i.decl.writable {
            return Err(Errno::EACCES);
        }
        match (&i.target, i.decl.name) {
            (Some(t), "active") => t.set_active(i.decl.parse(value)? == 1),
            (Some(t), "max_rpcs_in_flight") => t.set_rpcs_in_flight(i.decl.parse(value)? as usize, self),
            (Some(t), "max_pages_per_rpc") => t.set_bulk_bytes(parse_pages(&i.decl, value)? * PAGE_BYTES),
            (None, "statahead_max") => {
                self.meta.statahead_max.store(i.decl.parse(value)?, Relaxed);
            }
            (None, "lru_max_age") => {
                self.meta.max_age.store(i.decl.parse(value)?, Relaxed);
            }
            (None, "lru_size") if value == "clear" => self.drop_leases(),
            (None, "lru_size") => {
                let files: usize = value.parse().map_err(|_| Errno::EINVAL)?;
                if files > LEASES_PER_CLIENT_MAX_FILES / 2 {
                    return Err(Errno::ERANGE);
                }
                self.set_lru_files(files);
            }
            (None, "stats") => self.stats.clear(self.world.wall()),
            (None, "jobid_var") if matches!(value, "disable" | "nodelocal") => {
                self.params.jobid.lock().expect("no panic while locked").0 = value.to_string();
            }
            (None, "jobid_name") if (1..=JOBID_MAX_BYTES).contains(&value.len()) => {
                self.params.jobid.lock().expect("no panic while locked").1 = value.to_string();
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// A setting that `set_param -P` stored on the MGS, for all it names or `only` for some targets. It is for every
    /// node, so names that are not a mount's are passed over; a value that cannot be had is logged and does not fail
    /// a mount.
    pub(crate) fn apply_permanent_param(&self, name: &str, value: &str, only: Option<&Vec<TargetId>>) {
        let wanted = |i: &Item| only.is_none_or(|o| i.target.as_ref().is_some_and(|t| o.contains(&t.id)));
        let hits = self.param_items().into_iter().filter(|i| glob_match(name, &i.name) && wanted(i));
        for i in hits {
            match self.set_item(&i, value.trim()) {
                Ok(()) => tracing::info!("permanent parameter {}={value}", i.name),
                Err(e) => tracing::warn!("permanent parameter {}={value} is ignored: {e}", i.name),
            }
        }
    }
}

/// Pages, or a size with K or M as Lustre takes it.
fn parse_pages(decl: &ParamDecl, value: &str) -> R<usize> {
    let shift = match value.bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        _ => return Ok(decl.parse(value)? as usize),
    };
    let n: u64 = value[..value.len() - 1].parse().map_err(|_| Errno::EINVAL)?;
    let bytes = n.checked_mul(1 << shift).ok_or(Errno::ERANGE)?;
    if bytes % PAGE_BYTES as u64 != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(decl.parse(&(bytes / PAGE_BYTES as u64).to_string())? as usize)
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
pub(crate) fn uuid_text(u: &[u8; 16]) -> String {
    let hex: String = u.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_pages() {
        let d = DECLARED.iter().find(|d| d.1.name == "max_pages_per_rpc").unwrap().1;
        assert_eq!(parse_pages(&d, "4M"), Ok(1024));
        assert_eq!(parse_pages(&d, "256"), Ok(256));
        assert_eq!(parse_pages(&d, "64K"), Ok(16));
        assert_eq!(parse_pages(&d, "64M"), Err(Errno::ERANGE));
        assert_eq!(parse_pages(&d, "3K"), Err(Errno::EINVAL));
        assert_eq!(parse_pages(&d, "M"), Err(Errno::EINVAL));
        assert_eq!(parse_pages(&d, "0"), Err(Errno::ERANGE));
    }

    #[test]
    fn job_ids_are_bounded() {
        let call = crate::Call { cred: model::Cred::new(7, 8), pid: 9, umask: 0 };
        assert_eq!(expand_jobid("a%u.%g.%p%%", &call), "a7.8.9%");
        assert_eq!(expand_jobid(&"ä".repeat(100), &call).len(), 30);
    }
}

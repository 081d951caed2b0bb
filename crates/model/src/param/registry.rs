//! All declarations in one place: which names there are, and what may be set for good.

use super::decl::Decl;
use super::glob::{glob_match, parts_of};
use super::table::Table;
use crate::Errno;

/// Whose a parameter is: the kinds of devices, by the first part of the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// A mount, without a device: `at_min`.
    Mount,
    /// A daemon, without a device: `health_check`.
    Daemon,
    /// `llite.FS-INSTANCE`: the mount.
    Llite,
    /// `lov.FS-clilov-INSTANCE`: the object targets together.
    Lov,
    /// `lmv.FS-clilmv-INSTANCE`: the metadata targets together.
    Lmv,
    /// `mgc.MGCNID`.
    Mgc,
    /// `osc.FS-OSTxxxx-osc-INSTANCE`, one for each object target.
    Osc,
    /// `mdc.FS-MDTxxxx-mdc-INSTANCE`, one for each metadata target.
    Mdc,
    /// `ldlm.namespaces.FS-MDT0000-mdc-INSTANCE`: leases on names and attributes.
    Ldlm,
    /// `ldlm.namespaces.FS-OSTxxxx-osc-INSTANCE`: locks on data, one for each object target.
    LdlmOsc,
    /// `ldlm.namespaces.mdt-FS-MDTxxxx_UUID`: what clients hold at a metadata target.
    LdlmMdt,
    /// `ldlm.namespaces.filter-FS-OSTxxxx_UUID`: at an object target.
    LdlmOst,
    /// `lod.FS-MDTxxxx-mdtlov`: where new objects go.
    Lod,
    /// `lod.FS-MDTxxxx-mdtlov.pool.POOL`.
    LodPool,
    /// `mdt.FS-MDTxxxx`.
    Mdt,
    /// `mdd.FS-MDTxxxx`: its changelog.
    Mdd,
    /// `mdt.FS-MDTxxxx.exports.NID`.
    MdtExport,
    /// `osp.FS-OSTxxxx-osc-MDTxxxx`: an MDT's session with an OST.
    Osp,
    /// `obdfilter.FS-OSTxxxx`.
    Obdfilter,
    /// `obdfilter.FS-OSTxxxx.exports.NID`.
    ObdfilterExport,
    /// `osd-nacre.LABEL`: a target's disk.
    OsdNacre,
    /// `mgs.MGS`.
    Mgs,
    /// `ost.OSS.ost_io`: requests of all object targets of a daemon.
    OstIo,
    /// `mds.MDS.mdt`: of its metadata targets.
    MdsMdt,
}

impl Scope {
    /// The parts before the last one; a star stands for what differs by device. Empty: it has no device.
    pub const fn parts(self) -> &'static [&'static str] {
        match self {
            Scope::Mount | Scope::Daemon => &[],
            Scope::Llite => &["llite", "*"],
            Scope::Lov => &["lov", "*"],
            Scope::Lmv => &["lmv", "*"],
            Scope::Mgc => &["mgc", "*"],
            Scope::Osc => &["osc", "*"],
            Scope::Mdc => &["mdc", "*"],
            Scope::Ldlm => &["ldlm", "namespaces", "*-mdc-*"],
            Scope::LdlmOsc => &["ldlm", "namespaces", "*-osc-*"],
            Scope::LdlmMdt => &["ldlm", "namespaces", "mdt-*"],
            Scope::LdlmOst => &["ldlm", "namespaces", "filter-*"],
            Scope::Lod => &["lod", "*"],
            Scope::LodPool => &["lod", "*", "pool", "*"],
            Scope::Mdt => &["mdt", "*"],
            Scope::Mdd => &["mdd", "*"],
            Scope::MdtExport => &["mdt", "*", "exports", "*"],
            Scope::Osp => &["osp", "*"],
            Scope::Obdfilter => &["obdfilter", "*"],
            Scope::ObdfilterExport => &["obdfilter", "*", "exports", "*"],
            Scope::OsdNacre => &["osd-nacre", "*"],
            Scope::Mgs => &["mgs", "MGS"],
            Scope::OstIo => &["ost", "OSS", "ost_io"],
            Scope::MdsMdt => &["mds", "MDS", "mdt"],
        }
    }

    /// `osc.*.NAME`.
    fn name_of(self, name: &str) -> String {
        let mut all = self.parts().to_vec();
        all.push(name);
        all.join(".")
    }

    /// Whether devices of this kind can have what is before the last part of a pattern.
    fn takes(self, device: &[String]) -> bool {
        let mine = self.parts();
        let same = |(own, given): (&&str, &String)| part_takes(own, given);
        mine.len() == device.len() && mine.iter().zip(device).all(same)
    }
}

/// Whether a part of a device's name may be what a part of a pattern says: whether some name is of both. Sets
/// and alternatives of the pattern may be anything here.
fn part_takes(own: &str, given: &str) -> bool {
    if !own.contains('*') {
        return glob_match(given, own);
    }
    let (mut plain, mut depth) = (Vec::new(), 0u32);
    for c in given.chars() {
        match c {
            '[' | '{' => {
                depth = depth.saturating_add(1);
                plain.push('*');
            }
            ']' | '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let own: Vec<char> = own.chars().collect();
    assert!(own.iter().filter(|c| **c == '*').count() <= 2, "parts of devices are simple: this stays cheap");
    // Whether the rest of one and the rest of the other have a name in common, from their ends on.
    let mut behind = vec![false; plain.len() + 1];
    for i in (0..=own.len()).rev() {
        let mut here = vec![false; plain.len() + 1];
        for j in (0..=plain.len()).rev() {
            let (a, b) = (own.get(i), plain.get(j));
            let is_end = a.is_none() && b.is_none();
            // A star is nothing, or takes one more of the other.
            let by_own = a == Some(&'*') && (behind[j] || b.is_some() && here[j + 1]);
            let by_given = b == Some(&'*') && (here[j + 1] || a.is_some() && behind[j]);
            let same = a.is_some() && b.is_some() && (a == b || b == Some(&'?')) && behind[j + 1];
            here[j] = is_end || by_own || by_given || same;
        }
        behind = here;
    }
    behind[0]
}

/// Parameters that Lustre has and that mean nothing here, and what there is instead.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    pub pattern: &'static str,
    pub instead: &'static str,
}

const PLACES: &str = "requests have no threads of their own: how many run at a time is threads_max of ost.OSS.ost_io and \
     mds.MDS.mdt (nrs_places there), how many do is threads_started";
const KEPT_BY_MOUNTS: &str = "servers keep no locks that nobody uses: what a mount keeps is lru_size, lru_max_age and lock_count \
     of ldlm.namespaces there, what clients hold here is lock_count";

/// All of them. What is declared goes before.
pub static FOREIGN: &[Foreign] = &[
    Foreign { pattern: "ost.OSS.*.threads_*", instead: PLACES },
    Foreign { pattern: "mds.MDS.*.threads_*", instead: PLACES },
    Foreign { pattern: "ldlm.services.*.threads_*", instead: PLACES },
    Foreign { pattern: "mgs.MGS.*.threads_*", instead: PLACES },
    Foreign { pattern: "ldlm.namespaces.mdt-*.lock_unused_count", instead: KEPT_BY_MOUNTS },
    Foreign { pattern: "ldlm.namespaces.filter-*.lock_unused_count", instead: KEPT_BY_MOUNTS },
    Foreign { pattern: "ldlm.namespaces.mdt-*.lru_*", instead: KEPT_BY_MOUNTS },
    Foreign { pattern: "ldlm.namespaces.filter-*.lru_*", instead: KEPT_BY_MOUNTS },
];

/// What there is instead of a parameter that no device here has.
pub fn foreign(pattern: &str) -> Option<&'static str> {
    let dotted: String = pattern.chars().map(|c| if c == '/' { '.' } else { c }).collect();
    // A pattern of somebody may say less than ours: `ost.OSS.*.threads_min`.
    let is_it = |f: &&Foreign| glob_match(f.pattern, &dotted);
    FOREIGN.iter().find(is_it).map(|f| f.instead)
}

/// A declaration and the kind of device that has it.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    pub scope: Scope,
    pub decl: &'static Decl,
}

impl Declared {
    /// `osc.*.max_dirty_mb`.
    pub fn name(&self) -> String {
        self.scope.name_of(self.decl.name)
    }
}

/// Why something cannot be set for good, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub errno: Errno,
    pub why: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

/// Every declaration of every component that was added.
#[derive(Default)]
pub struct Registry {
    all: Vec<Declared>,
}

/// A pattern as it is matched with declarations: the parts before the last, and that one. The dots of an
/// address are inside their part.
fn split(pattern: &str) -> (Vec<String>, String) {
    let dotted: String = pattern.chars().map(|c| if c == '/' { '.' } else { c }).collect();
    let whole: String = parts_of(&dotted).into_iter().collect();
    let mut parts: Vec<String> = whole.split('.').map(ToString::to_string).collect();
    let last = parts.pop().unwrap_or_default();
    (parts, last)
}

impl Registry {
    pub fn add<A, B>(&mut self, table: &'static Table<A, B>) {
        for scope in table.scopes.iter().copied() {
            for p in table.params {
                let twin = self.all.iter().any(|d| d.scope == scope && d.decl.name == p.decl.name);
                assert!(!twin, "{} is declared once", scope.name_of(p.decl.name));
                self.all.push(Declared { scope, decl: &p.decl });
            }
        }
    }

    pub fn all(&self) -> &[Declared] {
        &self.all
    }

    /// The declarations that a pattern may select on some node.
    pub fn known(&self, pattern: &str) -> Vec<Declared> {
        let (device, last) = split(pattern);
        let fits = |d: &&Declared| d.scope.takes(&device) && glob_match(&last, d.decl.name);
        self.all.iter().filter(fits).copied().collect()
    }

    /// The name that is nearest to one that is not known, with the pattern's own device if it has such a
    /// parameter.
    pub fn nearest(&self, pattern: &str) -> Option<String> {
        let (device, last) = split(pattern);
        // A name that another kind of device has is nearer than one that two changes make of this.
        let far = |d: &Declared| {
            let takes = d.scope.takes(&device);
            (distance(&last, d.decl.name) + usize::from(!takes), device_distance(d.scope, &device))
        };
        let best = self.all.iter().min_by_key(|d| far(d))?;
        if distance(&last, best.decl.name) > 2.max(last.len() / 3) {
            return None;
        }
        if !best.scope.takes(&device) {
            return Some(best.name());
        }
        let (head, _) = pattern.rsplit_once(['.', '/']).unwrap_or_default();
        let dot = if head.is_empty() { "" } else { "." };
        Some(format!("{head}{dot}{}", best.decl.name))
    }

    /// Whether a pattern may be set to this value for good: the name is known, it can be set and lasts, and
    /// each that it selects takes the value.
    pub fn check_lasting(&self, pattern: &str, value: &str) -> Result<(), Refusal> {
        let all = self.known(pattern);
        if all.is_empty() {
            if let Some(instead) = foreign(pattern) {
                return Err(Refusal { errno: Errno::EOPNOTSUPP, why: instead.to_string() });
            }
            let hint = self.nearest(pattern).map_or_else(String::new, |n| format!("; is it {n}?"));
            let why = format!("there is no parameter of this name{hint}");
            return Err(Refusal { errno: Errno::ENOENT, why });
        }
        let can: Vec<&Declared> = all.iter().filter(|d| d.decl.writable && d.decl.lasting).collect();
        for d in &can {
            let refused = |e| Refusal { errno: e, why: format!("{}: {}", d.name(), d.decl.why(e)) };
            d.decl.check(value).map_err(refused)?;
        }
        let first = all[0];
        let why = match (can.is_empty(), all.iter().any(|d| d.decl.writable)) {
            (false, _) => return Ok(()),
            (true, true) => "it lasts until the next start only",
            (true, false) => "it is only shown",
        };
        Err(Refusal { errno: Errno::EACCES, why: format!("{}: {why}", first.name()) })
    }
}

/// Between the parts of a scope and those of a pattern; the parts of a pattern that fit cost nothing.
fn device_distance(scope: Scope, device: &[String]) -> usize {
    let one = |(own, given): (&&str, &String)| match part_takes(own, given) {
        true => 0,
        false => distance(own, given),
    };
    let mine = scope.parts();
    mine.len().abs_diff(device.len()) + mine.iter().zip(device).map(one).sum::<usize>()
}

/// How many characters have to be put in, left out or changed to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::Param;

    static OSC: Table<()> = Table {
        scopes: &[Scope::Osc],
        params: &[
            Param::settable(
                Decl::number("max_rpcs_in_flight", (1, 256), "requests", 32, "Requests."),
                |(), ()| 32u64.into(),
                |(), (), _| Ok(()),
            ),
            Param::shown(Decl::text("state", "State."), |(), ()| "FULL".into()),
        ],
    };

    static SERVERS: Table<()> = Table {
        scopes: &[Scope::OsdNacre, Scope::ObdfilterExport],
        params: &[Param::settable(
            Decl::flag("fault", false, "Fault.").until_restart(),
            |(), ()| false.into(),
            |(), (), _| Ok(()),
        )],
    };

    fn registry() -> Registry {
        let mut r = Registry::default();
        r.add(&OSC);
        r.add(&SERVERS);
        r
    }

    #[test]
    fn names_are_known_by_kind_of_device_and_last_part() {
        let r = registry();
        for (pattern, n) in [
            ("osc.*.max_rpcs_in_flight", 1),
            ("osc/demo-OST0000*/max_rpcs_in_flight", 1),
            ("*.*.max_*", 1),
            ("osc.*.*", 2),
            ("obdfilter.*.exports.10.0.0.1@tcp.fault", 1),
            ("osc.max_rpcs_in_flight", 0),
            ("mdc.*.max_rpcs_in_flight", 0),
            ("osc.*.max_rpc_in_flight", 0),
            ("max_rpcs_in_flight", 0),
            ("", 0),
        ] {
            assert_eq!(r.known(pattern).len(), n, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_known_has_a_name_nearby() {
        let r = registry();
        for (wrong, right) in [
            ("osc.demo-OST0000*.max_rpc_in_flight", Some("osc.demo-OST0000*.max_rpcs_in_flight")),
            ("osd.*.max_rpcs_in_flight", Some("osc.*.max_rpcs_in_flight")),
            ("osc.max_rpcs_in_flight", Some("osc.*.max_rpcs_in_flight")),
            ("osc.*.stats", Some("osc.*.state")),
            ("osc.*.something_else", None),
        ] {
            assert_eq!(r.nearest(wrong).as_deref(), right, "{wrong}");
        }
    }

    #[test]
    fn only_what_lasts_and_fits_is_set_for_good() {
        let r = registry();
        let e = |pattern, value| r.check_lasting(pattern, value).map_err(|e| (e.errno, e.why));
        assert_eq!(e("osc.*.max_rpcs_in_flight", "16"), Ok(()));
        assert_eq!(e("osc.*.*", "16"), Ok(()), "what is only shown is passed over");
        for (pattern, value, errno, why) in [
            (
                "osc.*.max_rpcs_in_flight",
                "0",
                Errno::ERANGE,
                "osc.*.max_rpcs_in_flight: it takes 1 to 256 requests",
            ),
            (
                "osc.*.max_rpcs_in_flight",
                "x",
                Errno::EINVAL,
                "osc.*.max_rpcs_in_flight: it takes a whole number",
            ),
            ("osc.*.state", "x", Errno::EACCES, "osc.*.state: it is only shown"),
            (
                "osd-nacre.*.fault",
                "1",
                Errno::EACCES,
                "osd-nacre.*.fault: it lasts until the next start only",
            ),
            ("osc.*.stats", "1", Errno::ENOENT, "there is no parameter of this name; is it osc.*.state?"),
        ] {
            assert_eq!(e(pattern, value), Err((errno, why.to_string())));
        }
    }
}

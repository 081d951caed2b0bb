//! Whose a parameter is, as labels; and how families are called.

use super::Labels;
use crate::param::{Decl, directories};

/// A device of the tree: the first part of its families' names, and its labels.
pub(super) struct Place {
    /// `obdfilter`, `mdt_exports`.
    pub prefix: &'static str,
    /// The label of the target that it is of or about; empty: none.
    pub target: String,
    /// The address of exports.
    pub nid: Option<String>,
    /// With all that tells it from others.
    pub labels: Labels,
    /// The same as the field's exporters have it: component (`ost`, `mdt`, `mgt`, `client`) and target first.
    pub field: Labels,
}

impl Place {
    fn of(prefix: &'static str, component: &'static str, target: &str, base: &Labels) -> Place {
        let labels = if target.is_empty() { base.clone() } else { base.with("target", target) };
        let first = Labels::of(&[("component", component), ("target", target)]);
        let field = base.pairs().iter().fold(first, |all, (name, value)| all.with(name, value));
        Place { prefix, target: target.to_string(), nid: None, labels, field }
    }

    fn and(mut self, name: &str, value: &str) -> Place {
        self.labels = self.labels.with(name, value);
        self.field = self.field.with(name, value);
        self
    }

    fn at(self, nid: &str) -> Place {
        let mut p = self.and("nid", nid);
        p.nid = Some(nid.to_string());
        p
    }
}

/// The parts of a dotted name; the dots of an address belong to theirs.
fn parts(name: &str) -> Vec<&str> {
    let (mut out, mut from) = (Vec::new(), 0);
    for d in directories(name) {
        out.push(&name[from..d.len()]);
        from = d.len() + 1;
    }
    out.push(&name[from..]);
    out
}

/// The device of a parameter of this name; `None`: its name is another than its declaration's, or no device
/// of a kind that has metrics. `alone` is the prefix of what has no device.
pub(super) fn place(name: &str, decl: &Decl, alone: &'static str, base: &Labels) -> Option<Place> {
    let device = name.strip_suffix(decl.name)?;
    let Some(device) = device.strip_suffix('.') else {
        return device.is_empty().then(|| Place::of(alone, alone, "", base));
    };
    let of = |prefix, component, target: &str| Place::of(prefix, component, target, base);
    let before = |text: &'_ str, middle: &str| text.rsplit_once(middle).map_or(text, |(t, _)| t).to_string();
    Some(match parts(device)[..] {
        ["obdfilter", t] => of("obdfilter", "ost", t),
        ["obdfilter", t, "exports", nid] => of("obdfilter_exports", "ost", t).at(nid),
        ["mdt", t] => of("mdt", "mdt", t),
        ["mdt", t, "exports", nid] => of("mdt_exports", "mdt", t).at(nid),
        ["mdd", t] => of("mdd", "mdt", t),
        ["osd-nacre", t] => of("osd", component_of(t), t),
        ["lod", d] => of("lod", "mdt", &before(d, "-mdtlov")),
        ["lod", d, "pool", pool] => of("lod_pool", "mdt", &before(d, "-mdtlov")).and("pool", pool),
        ["osp", d] => {
            let (ost, mdt) = d.rsplit_once("-osc-")?;
            let (fs, _) = ost.rsplit_once('-')?;
            of("osp", "mdt", &format!("{fs}-{mdt}")).and("ost", ost)
        }
        ["mgs", "MGS"] => of("mgs", "mgt", "MGS"),
        ["ost", "OSS", "ost_io"] => of("ost_io", "ost", ""),
        ["mds", "MDS", "mdt"] => of("mds_mdt", "mdt", ""),
        ["osc", d] => of("osc", "client", &before(d, "-osc-")),
        ["mdc", d] => of("mdc", "client", &before(d, "-mdc-")),
        ["mgc", _] => of("mgc", "client", "MGS"),
        ["ldlm", "namespaces", d] if d.contains("-mdc-") => of("ldlm", "client", &before(d, "-mdc-")),
        ["ldlm", "namespaces", d] if d.starts_with("mdt-") => of("ldlm_mdt", "mdt", served(d, "mdt-")),
        ["ldlm", "namespaces", d] if d.starts_with("filter-") => of("ldlm_ost", "ost", served(d, "filter-")),
        ["ldlm", "namespaces", d] => of("ldlm_osc", "client", &before(d, "-osc-")),
        ["llite", d] => of("llite", "client", &before(d, "-")),
        ["lov", d] => of("lov", "client", &before(d, "-clilov-")),
        ["lmv", d] => of("lmv", "client", &before(d, "-clilmv-")),
        _ => return None,
    })
}

/// The label of the target that a server's lock namespace is called after.
fn served<'a>(device: &'a str, kind: &str) -> &'a str {
    let named = device.strip_prefix(kind).unwrap_or(device);
    named.strip_suffix("_UUID").unwrap_or(named)
}

/// Of a target's label.
pub(super) fn component_of(label: &str) -> &'static str {
    let index = label.rsplit_once('-').map_or(label, |(_, i)| i);
    match index.get(..3) {
        Some("OST") => "ost",
        Some("MDT") => "mdt",
        _ => "mgt",
    }
}

/// How a family of the registry is called.
pub(super) struct Named {
    pub name: String,
    /// Empty: none.
    pub unit: &'static str,
    /// A value of the registry times this is one in that unit.
    pub factor: f64,
}

/// Endings that say a unit in the names that Lustre gave; the unit itself is said behind them.
const UNIT_ENDINGS: &[&str] =
    &["_bytes", "_mb", "_kb", "_seconds", "_usec", "_ms", "_percent", "_ratio", "_s"];

/// The base unit and the factor of a declaration's.
fn base_unit(unit: &str) -> (&'static str, f64) {
    match unit {
        "bytes" => ("bytes", 1.0),
        "KiB" => ("bytes", 1024.0),
        "MiB" => ("bytes", 1_048_576.0),
        "MiB/s" => ("bytes_per_second", 1_048_576.0),
        "s" => ("seconds", 1.0),
        "ms" => ("seconds", 1e-3),
        "usec" | "us" | "usecs" => ("seconds", 1e-6),
        "%" => ("ratio", 0.01),
        _ => ("", 1.0),
    }
}

/// `nacre_` + prefix + the parameter's name, in base units and without endings that mean something else in
/// a metric's name.
pub(super) fn named(prefix: &str, param: &str, unit: &str) -> Named {
    let plain: String =
        param.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let (mut unit, factor) = base_unit(unit);
    let mut base = plain.trim_matches('_').to_string();
    if let Some(what) = base.strip_prefix("kbytes") {
        base = what.to_string();
    }
    if let Some(what) = base.strip_suffix("_count") {
        base = format!("{what}s");
    }
    if let Some(what) = base.strip_suffix("_total") {
        base = what.to_string();
    }
    if unit.is_empty() && base.ends_with("_bytes") {
        unit = "bytes";
    }
    if !unit.is_empty() {
        let ending = UNIT_ENDINGS.iter().find(|e| base.ends_with(**e));
        base.truncate(base.len() - ending.map_or(0, |e| e.len()));
        base.push('_');
        base.push_str(unit);
    }
    Named { name: format!("nacre_{prefix}_{base}"), unit, factor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_base_units_and_end_as_metrics_do() {
        for (prefix, param, unit, name, factor) in [
            ("obdfilter", "kbytestotal", "KiB", "nacre_obdfilter_total_bytes", 1024.0),
            ("llite", "max_cached_mb", "MiB", "nacre_llite_max_cached_bytes", 1_048_576.0),
            ("mdt", "recovery_time_soft", "s", "nacre_mdt_recovery_time_soft_seconds", 1.0),
            ("ldlm", "lru_max_age", "ms", "nacre_ldlm_lru_max_age_seconds", 1e-3),
            ("ldlm", "lock_count", "", "nacre_ldlm_locks", 1.0),
            ("osc", "cur_dirty_bytes", "", "nacre_osc_cur_dirty_bytes", 1.0),
            ("lod", "qos_prio_free", "%", "nacre_lod_qos_prio_free_ratio", 0.01),
            ("llite", "statahead_stats_statahead total", "", "nacre_llite_statahead_stats_statahead", 1.0),
        ] {
            let n = named(prefix, param, unit);
            assert_eq!((n.name.as_str(), n.factor), (name, factor));
            assert!(n.unit.is_empty() || n.name.ends_with(n.unit), "{name} in {}", n.unit);
        }
    }

    #[test]
    fn devices_are_known_by_their_labels() {
        let d = Decl::gauge("x", "", "X.");
        let of = |name: &str| {
            let p = place(name, &d, "daemon", &Labels::default())?;
            Some((p.prefix, p.field.pairs().swap_remove(0).1, p.labels.pairs()))
        };
        let pairs = |all: &[(&str, &str)]| Labels::of(all).pairs();
        assert_eq!(of("x"), Some(("daemon", "daemon".to_string(), Vec::new())));
        for (name, prefix, component, labels) in [
            ("obdfilter.demo-OST0000.x", "obdfilter", "ost", &[("target", "demo-OST0000")][..]),
            (
                "mdt.a-b-MDT0000.exports.10.0.0.1@tcp.x",
                "mdt_exports",
                "mdt",
                &[("target", "a-b-MDT0000"), ("nid", "10.0.0.1@tcp")],
            ),
            (
                "osp.a-b-OST0001-osc-MDT0000.x",
                "osp",
                "mdt",
                &[("target", "a-b-MDT0000"), ("ost", "a-b-OST0001")],
            ),
            ("osc.a-osc-OST0001-osc-00ff.x", "osc", "client", &[("target", "a-osc-OST0001")]),
            ("llite.a-b-00ff.x", "llite", "client", &[("target", "a-b")]),
            (
                "lod.a-MDT0000-mdtlov.pool.fast.x",
                "lod_pool",
                "mdt",
                &[("target", "a-MDT0000"), ("pool", "fast")],
            ),
            ("ost.OSS.ost_io.x", "ost_io", "ost", &[]),
        ] {
            assert_eq!(of(name), Some((prefix, component.to_string(), pairs(labels))), "{name}");
        }
        for other in ["mgs.MGS.live.demo", "obdfilter.demo-OST0000.y", "yx", "a.b.c.d.x"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

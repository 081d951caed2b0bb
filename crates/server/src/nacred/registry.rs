//! Every parameter and statistic of every component, in one place.

use super::{control, osd};
use model::param::Registry;

/// All declarations.
pub(crate) fn all() -> Registry {
    let mut all = Registry::default();
    client::declare(&mut all);
    mds::declare(&mut all);
    oss::declare(&mut all);
    rpc::nrs::declare(&mut all);
    mgs::declare(&mut all);
    osd::declare(&mut all);
    control::declare(&mut all);
    all.add(&model::debug::TABLE);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Errno;
    use model::metrics::{Names, names_of};
    use model::param::{Declared, Preset};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn each_name_is_declared_once() {
        let all = all();
        let mut names: BTreeMap<String, u32> = BTreeMap::new();
        all.all().iter().for_each(|d: &Declared| *names.entry(d.name()).or_default() += 1);
        // A mount and a daemon each say of which version they are.
        let twice: Vec<&String> = names.iter().filter(|(_, n)| **n > 1).map(|(name, _)| name).collect();
        assert_eq!(twice, ["version"]);
        assert!(names.len() > 100, "{} names", names.len());
        assert!(all.all().iter().all(|d| !d.decl.help.is_empty()));
    }

    /// Names of metrics in a text.
    fn metrics_in(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|w| w.starts_with("nacre_")).collect()
    }

    #[test]
    fn each_number_has_a_metric_of_its_own() {
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for d in all().all() {
            let Some(Names::One(name)) = names_of(d) else { continue };
            let other = names.insert(name.clone(), d.name());
            assert_eq!(other, None, "{name} is of {} as well", d.name());
        }
        assert!(names.len() > 60 && names.contains_key("nacre_osc_checksum_errors_total"), "{names:?}");
    }

    #[test]
    fn dashboards_and_rules_ask_for_what_the_registry_has() {
        let known: Vec<Names> = all().all().iter().filter_map(names_of).collect();
        let is_known = |w: &str| {
            known.iter().any(|n| match n {
                Names::One(name) => name == w,
                Names::Beginning(begin) => w.starts_with(begin.as_str()),
            })
        };
        // Of no parameter, and told by what was counted.
        let others = ["nacre_target_", "nacre_healthy", "nacre_metrics_left_out"];
        let texts = [
            include_str!("../../../../deploy/prometheus/nacre-rules.yml"),
            include_str!("../../../../deploy/prometheus/nacre-rules-test.yml"),
            include_str!("../../../../deploy/grafana/overview.json"),
            include_str!("../../../../deploy/grafana/mdt.json"),
            include_str!("../../../../deploy/grafana/ost.json"),
            include_str!("../../../../deploy/grafana/client.json"),
            include_str!("../../../../deploy/grafana/job.json"),
            include_str!("../../../../deploy/grafana/recovery.json"),
        ];
        let asked: BTreeSet<&str> = texts.iter().flat_map(|t| metrics_in(t)).collect();
        assert!(asked.len() > 40, "{asked:?}");
        for w in asked {
            let told = w.ends_with("_bucket") || others.iter().any(|o| w.starts_with(o));
            assert!(told || is_known(w), "nothing tells {w}");
        }
    }

    #[test]
    fn defaults_can_be_set_for_good() {
        let all = all();
        // What a host decides is no value of its own.
        let is_value = |d: &Declared| !matches!(d.decl.default, Preset::Host(_));
        let can_be = |d: &&Declared| d.decl.lasting && d.decl.range().is_some() && is_value(d);
        for d in all.all().iter().filter(can_be) {
            assert_eq!(all.check_lasting(&d.name(), &d.decl.default.to_string()), Ok(()), "{}", d.name());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let all = all();
        for good in [
            ("osc.demo-OST0007*.active", "0"),
            ("lod.demo-*.qos_prio_free", "70"),
            ("mdt.demo-MDT0000.root_squash", "97:96"),
            ("llite.demo-*.max_cached_mb", "2G"),
            ("osd-nacre.*.read_cache_enable", "1"),
            ("ldlm.namespaces.*.lru_size", "clear"),
            ("ldlm.namespaces.*osc*.lru_size", "100"),
            ("ldlm.namespaces.demo-MDT0000-mdc-[0-9a-f]*.lru_size", "100"),
            ("*.*.ack", "durable"),
            ("obdfilter/*/brw_size", "16"),
            ("ost.OSS.ost_io.nrs_policies", "tbf jobid"),
            ("mds.MDS.mdt.nrs_tbf_rule", "start slow uid={500}&nid={10.0.0.*@tcp} rate=100"),
            ("*.*.*.nrs_places", "64"),
            ("ost.OSS.ost_io.threads_max", "64"),
        ] {
            assert_eq!(all.check_lasting(good.0, good.1), Ok(()), "{good:?}");
        }
        for (name, value, errno, why) in [
            ("osc.*.max_dirty", "1", Errno::ENOENT, "is it osc.*.max_dirty_mb?"),
            ("obdfilter.demo-OST0000.brwsize", "1", Errno::ENOENT, "is it obdfilter.demo-OST0000.brw_size?"),
            ("ost.*.brw_size", "1", Errno::ENOENT, "is it obdfilter.*.brw_size?"),
            ("a.b", "1", Errno::ENOENT, "no parameter of this name"),
            ("mdt.*.dom_stripesize", "2M", Errno::ERANGE, "it takes 0 to 1048576 bytes"),
            ("lod.*.stripesize", "65537", Errno::EINVAL, "it takes multiples of 65536"),
            ("mdt.*.ack", "soon", Errno::EINVAL, "mdt.*.ack"),
            ("ost.OSS.ost_io.nrs_policies", "orr", Errno::EINVAL, "it does not take that: In which order"),
            ("mds.MDS.mdt.nrs_tbf_rule", "start x uid=5 rate=1", Errno::EINVAL, "uid={500 600-610}"),
            ("mds.MDS.mdt.nrs_tbf_rules", "stop x", Errno::ENOENT, "is it mds.MDS.mdt.nrs_tbf_rule?"),
            ("ost.OSS.ost_io.nrs_stats", "0", Errno::EACCES, "it is only shown"),
            ("ost.OSS.ost_io.threads_min", "8", Errno::EOPNOTSUPP, "no threads of their own"),
            ("mds/MDS/mdt_readpage/threads_max", "64", Errno::EOPNOTSUPP, "threads_max of ost.OSS.ost_io"),
            ("ost.OSS.ost_io.threads_started", "8", Errno::EACCES, "it is only shown"),
            (
                "ldlm.namespaces.mdt-demo-MDT0000_UUID.lock_unused_count",
                "0",
                Errno::EOPNOTSUPP,
                "what a mount keeps",
            ),
            ("ldlm.namespaces.filter-demo-OST0000_UUID.lock_count", "0", Errno::EACCES, "it is only shown"),
            ("mdt.*.uuid", "x", Errno::EACCES, "it is only shown"),
            ("osd-nacre.*.disk_fault", "none", Errno::EACCES, "until the next start only"),
            ("*.*.max_rpcs_in_flight", "1", Errno::ERANGE, "mdc.*.max_rpcs_in_flight: it takes 2 to"),
        ] {
            let refused = all.check_lasting(name, value).unwrap_err();
            assert_eq!(refused.errno, errno, "{name}={value}: {refused}");
            assert!(refused.why.contains(why), "{name}={value}: {refused}");
        }
    }
}

use super::*;
use crate::Timestamp;
use crate::counters::Counters;
use crate::exports::Exports;
use crate::histogram::{Histogram, Histograms, Scale, Shape, Sides, Table as Rows};
use crate::jobs::{Jobs, stats_decl};
use crate::param::{Decl, EVERYTHING, Field, Param, Scope, Table, Tree, Value};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NOW: Timestamp = Timestamp { sec: 1000, nsec: 0 };

crate::counters! {
    enum What { ReadBytes = "read_bytes" in "bytes", Read = "read" in "usecs", Connect = "connect" in "reqs", }
}

struct Ost {
    stats: Counters<What>,
    jobs: Jobs<What>,
    exports: Exports<What>,
    io: Histogram,
    /// How often a number was read.
    read: AtomicU64,
}

fn said(o: &Ost, v: Value) -> Value {
    o.read.fetch_add(1, Relaxed);
    v
}

static OST: Table<Ost> = Table {
    scopes: &[Scope::Obdfilter],
    params: &[
        Param::shown(Decl::gauge("kbytestotal", "KiB", "Size of the disk."), |o, ()| said(o, 4u64.into())),
        Param::shown(Decl::counter("eviction_count", "clients", "clients that were evicted"), |o, ()| {
            said(o, 2u64.into())
        }),
        Param::settable(
            Decl::counters("stats", "Operations."),
            |o, ()| said(o, Value::Counters(o.stats.read(NOW))),
            |_, (), _| Ok(()),
        ),
        Param::settable(
            stats_decl(),
            |o, ()| said(o, Value::Jobs(o.jobs.read(NOW))),
            |o, (), v| o.jobs.forget(v.text),
        ),
        Param::settable(
            Decl::histogram("brw_stats", "Sizes \"of\" I/O."),
            |o, ()| {
                let sides = Sides::ReadWrite(Box::new([o.io.read(), Histogram::default().read()]));
                let t = Rows { what: "disk I/O size", unit: "ios", scale: Scale::Log2, sides };
                let (under_way, tables) = (Vec::new(), vec![t]);
                said(
                    o,
                    Value::Histograms(Histograms {
                        now: NOW,
                        since: NOW,
                        shape: Shape::Brw,
                        under_way,
                        tables,
                    }),
                )
            },
            |_, (), _| Ok(()),
        ),
        Param::shown(Decl::fields("memory", "Memory."), |o, ()| {
            said(o, Value::Fields(vec![Field::counter("put_off", 3), Field::gauge("used_bytes", 7)]))
        }),
        Param::shown(Decl::text("objects", "Takes long."), |_, ()| panic!("words are not read")),
    ],
};

static SHARED: Table<Ost> = Table {
    scopes: &[Scope::OstIo],
    params: &[Param::shown(Decl::gauge("slots", "", "Slots."), |_, ()| 5u64.into())],
};

static EXPORT: Table<Ost, Arc<crate::exports::Export<What>>> = Table {
    scopes: &[Scope::ObdfilterExport],
    params: &[Param::settable(
        Decl::counters("stats", "Of a client."),
        |_, e| Value::Counters(e.stats.read(NOW)),
        |_, _, _| Ok(()),
    )],
};

impl Ost {
    fn new() -> Ost {
        let (jobs, exports) = (Jobs::of_set(), Exports::of_set());
        let (io, read) = (Histogram::default(), AtomicU64::new(0));
        Ost { stats: Counters::of_set(NOW), jobs, exports, io, read }
    }

    fn tree(&self, index: usize) -> Tree<'_> {
        let (label, mut t) = (format!("obdfilter.demo-OST{index:04x}"), Tree::matching(EVERYTHING));
        t.add(&label, &OST, self);
        t.add("ost.OSS.ost_io", &SHARED, self);
        for (nid, e) in self.exports.list() {
            t.add_of(&format!("{label}.exports.{nid}"), &EXPORT, self, &e);
        }
        t
    }

    fn export(&self, i: u32) {
        let made = self.exports.of(IpAddr::from(i.to_be_bytes()), || NOW);
        made.expect("there is room").stats.add(What::Read, 3000);
    }
}

/// Without what every page has.
fn rows(text: &str) -> Vec<&str> {
    let common = |l: &&str| !l.starts_with('#') && !l.contains("nacre_build") && !l.contains("left_out");
    text.lines().filter(common).collect()
}

#[test]
fn a_page_is_made_from_the_registry_under_both_names() {
    let o = Ost::new();
    o.stats.add(What::ReadBytes, 4096);
    o.stats.add(What::ReadBytes, 100);
    o.stats.add(What::Read, 1_500_000);
    o.stats.add(What::Connect, 1);
    o.jobs.of("dd \"x\"", || NOW).unwrap().stats.add(What::ReadBytes, 5);
    o.io.add_log2(4096);
    o.io.add_log2(u64::MAX);
    o.export(7);
    let mut s = Scrape::new(Side::Server, "1.2");
    s.add(&o.tree(0));
    s.add(&o.tree(0));
    let once = {
        let mut s = Scrape::new(Side::Server, "1.2");
        s.add(&o.tree(0));
        s.finish()
    };
    let text = once.text(Format::OpenMetrics);
    let l = "component=\"ost\",target=\"demo-OST0000\"";
    for row in [
        "nacre_build_info{program=\"daemon\",version=\"1.2\"} 1".to_string(),
        "nacre_obdfilter_total_bytes{target=\"demo-OST0000\"} 4096".into(),
        format!("lustre_capacity_kilobytes{{{l}}} 4"),
        "nacre_obdfilter_evictions_total{target=\"demo-OST0000\"} 2".into(),
        "nacre_obdfilter_operation_seconds_sum{target=\"demo-OST0000\",operation=\"read\"} 1.5".into(),
        "nacre_obdfilter_operation_bytes_count{target=\"demo-OST0000\",operation=\"read_bytes\"} 2".into(),
        "nacre_obdfilter_operations_total{target=\"demo-OST0000\",operation=\"connect\"} 1".into(),
        format!("lustre_read_bytes_total{{{l},operation=\"read\"}} 4196"),
        format!("lustre_read_maximum_size_bytes{{{l},operation=\"read\"}} 4096"),
        format!("lustre_stats_time_total{{{l},operation=\"read\"}} 1500000"),
        format!("lustre_job_read_bytes_total{{{l},jobid=\"dd \\\"x\\\"\",operation=\"read\"}} 5"),
        format!("lustre_client_export_milliseconds_total{{{l},nid=\"0.0.0.7@tcp\",operation=\"read\"}} 3"),
        format!("lustre_disk_io_total{{{l},operation=\"read\",size=\"4096\"}} 1"),
        "nacre_obdfilter_io_size_bytes_bucket{target=\"demo-OST0000\",operation=\"read\",le=\"4096.0\"} 1"
            .into(),
        "nacre_obdfilter_io_size_bytes_bucket{target=\"demo-OST0000\",operation=\"read\",le=\"+Inf\"} 2"
            .into(),
        "nacre_obdfilter_memory_put_off_total{target=\"demo-OST0000\"} 3".into(),
        "nacre_obdfilter_memory_used_bytes{target=\"demo-OST0000\"} 7".into(),
        "nacre_ost_io_slots 5".into(),
        "# UNIT nacre_obdfilter_total_bytes bytes".into(),
        "# TYPE nacre_obdfilter_evictions counter".into(),
        "# HELP nacre_obdfilter_evictions Clients that were evicted.".into(),
        "# HELP nacre_obdfilter_io_size_bytes Sizes \\\"of\\\" I/O.".into(),
    ] {
        assert!(text.lines().any(|line| line == row), "{row} is not in\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
    let older = once.text(Format::Text);
    assert!(older.contains("# TYPE nacre_obdfilter_evictions_total counter\n"), "{older}");
    assert!(older.contains("# HELP nacre_obdfilter_io_size_bytes Sizes \"of\" I/O.\n"), "{older}");
    assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
    assert_eq!(rows(&older), rows(&text), "both have the same rows");
}

#[test]
fn what_targets_share_is_said_once() {
    let (a, b) = (Ost::new(), Ost::new());
    let mut s = Scrape::new(Side::Server, "");
    s.add(&a.tree(0));
    s.add(&b.tree(1));
    let text = s.finish().text(Format::Text);
    assert_eq!(text.matches("\nnacre_ost_io_slots 5").count(), 1);
    assert_eq!(text.matches("\nnacre_obdfilter_total_bytes{").count(), 2);
}

#[test]
fn a_hundred_targets_and_a_thousand_jobs_are_bounded_work() {
    let all: Vec<Ost> = (0..100).map(|_| Ost::new()).collect();
    for (i, o) in all.iter().enumerate() {
        for j in 0..40 {
            let now = || Timestamp { sec: 900 + j, nsec: 0 };
            o.jobs.of(&format!("job{j}"), now).unwrap().stats.add(What::ReadBytes, 1 << 20);
        }
        (0..20).for_each(|e| o.export(e << 16 | i as u32));
        o.stats.add(What::Read, 1);
    }
    let mut s = Scrape::new(Side::Server, "");
    for (i, o) in all.iter().enumerate() {
        s.add(&o.tree(i));
    }
    let page = s.finish();
    let reads: u64 = all.iter().map(|o| o.read.load(Relaxed)).sum();
    assert_eq!(reads, 600, "each number is read once");
    assert_eq!(page.families["lustre_job_read_bytes"].rows.len(), 2000);
    assert_eq!(page.families["lustre_client_export_stats"].rows.len(), 1000);
    assert_eq!(page.left_out, BTreeMap::from([("exports".to_string(), 1000), ("jobs".to_string(), 2000)]));
    let shown = &page.families["lustre_job_read_bytes"].rows;
    let recent =
        |r: &Row| r.labels.pairs().iter().any(|(n, v)| n == "jobid" && v[3..].parse::<u32>().unwrap() >= 20);
    assert!(shown.iter().all(recent), "those of late are shown");
    assert!(page.len() < 15_000, "{} rows", page.len());
    let text = page.text(Format::OpenMetrics);
    assert!(text.contains("nacre_metrics_left_out{what=\"jobs\"} 2000\n"));
}

#[test]
fn jobs_are_counted_by_their_ids() {
    let o = Ost::new();
    o.jobs.cleanup_s.store(0, Relaxed);
    for j in 0..1000 {
        o.jobs.of(&format!("job{j}"), || NOW).unwrap().stats.add(What::Read, 1);
    }
    let more = Ost::new();
    more.jobs.of("old", || Timestamp { sec: 999, nsec: 0 }).unwrap().stats.add(What::Read, 1);
    more.jobs.of("job7", || NOW).unwrap().stats.add(What::Read, 1);
    let mut s = Scrape::new(Side::Server, "");
    s.add(&o.tree(0));
    s.add(&more.tree(1));
    let page = s.finish();
    assert_eq!(page.families["lustre_job_stats"].rows.len(), JOBS_SHOWN_MAX + 1);
    assert_eq!(page.left_out, BTreeMap::from([("jobs".to_string(), 1)]));
}

#[test]
fn rows_have_a_bound() {
    let mut p = Page::default();
    for i in 0..ROWS_MAX + 5 {
        p.gauge("a", "A.", Labels::of(&[("i", &i.to_string())]), 0.0);
    }
    p.gauge("b", "B.", Labels::default(), 0.0);
    p.counter("a", "Another kind.", Labels::default(), 0.0);
    assert_eq!((p.len(), p.left_out["rows"]), (ROWS_MAX, 7));
}

#[test]
fn pages_of_several_daemons_become_one() {
    let page = |target: &str, shared: f64| {
        let mut p = Page::default();
        p.gauge("up", "Up.", Labels::of(&[("target", target)]), 1.0);
        p.gauge("shared", "Of all.", Labels::default(), shared);
        p
    };
    let mut all = page("a", 1.0);
    all.merge(page("b", 2.0));
    let text = all.text(Format::Text);
    assert_eq!(rows(&text), ["shared 1", "up{target=\"a\"} 1", "up{target=\"b\"} 1"]);
    assert_eq!(text.matches("# TYPE up gauge").count(), 1);
}

#[test]
fn labels_may_be_anything() {
    let odd = "a\\b\"c\nd,e=\"f";
    let l = Labels::of(&[("x", odd), ("y", "")]).with("z", "}");
    assert_eq!(l.0, "x=\"a\\\\b\\\"c\\nd,e=\\\"f\",y=\"\",z=\"}\"");
    let back = [("x", odd), ("y", ""), ("z", "}")].map(|(n, v)| (n.to_string(), v.to_string()));
    assert_eq!(l.pairs(), back);
}

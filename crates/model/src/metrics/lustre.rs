//! The families that the field's two exporters have, under their names and labels, so that dashboards made
//! for them show something: `lustre_*`.

use super::place::Place;
use super::{Labels, Page};
use crate::counters::{Sample, Samples};
use crate::histogram::{Histograms, Sides};
use crate::param::{Decl, Value};

/// Single numbers: prefix of the device and parameter, the family.
const NUMBERS: &[(&str, &str, &str)] = &[
    ("obdfilter", "kbytesavail", "lustre_available_kilobytes"),
    ("obdfilter", "kbytestotal", "lustre_capacity_kilobytes"),
    ("obdfilter", "kbytesfree", "lustre_free_kilobytes"),
    ("obdfilter", "filesfree", "lustre_inodes_free"),
    ("obdfilter", "filestotal", "lustre_inodes_maximum"),
    ("obdfilter", "blocksize", "lustre_blocksize_bytes"),
    ("obdfilter", "num_exports", "lustre_exports_total"),
    ("obdfilter", "tot_granted", "lustre_exports_granted_total"),
    ("obdfilter", "tot_pending", "lustre_exports_pending_total"),
    ("obdfilter", "recovery_time_hard", "lustre_recovery_time_hard_seconds"),
    ("obdfilter", "recovery_time_soft", "lustre_recovery_time_soft_seconds"),
    ("obdfilter", "job_cleanup_interval", "lustre_job_cleanup_interval_seconds"),
    ("mdt", "filesfree", "lustre_inodes_free"),
    ("mdt", "filestotal", "lustre_inodes_maximum"),
    ("mdt", "num_exports", "lustre_connected_clients"),
    ("mdt", "num_exports", "lustre_exports_total"),
    ("mdt", "lease_count", "lustre_lock_count_total"),
    ("mdt", "recovery_time_hard", "lustre_recovery_time_hard_seconds"),
    ("mdt", "recovery_time_soft", "lustre_recovery_time_soft_seconds"),
    ("mdt", "job_cleanup_interval", "lustre_job_cleanup_interval_seconds"),
    ("mgs", "num_exports", "lustre_exports_total"),
    ("osp", "active", "lustre_osp_active"),
    ("osp", "max_create_count", "lustre_osp_max_create_count"),
    ("ldlm", "lock_count", "lustre_lock_count_total"),
    ("llite", "lazystatfs", "lustre_lazystatfs_enabled"),
    ("llite", "statahead_max", "lustre_statahead_maximum"),
    ("osc", "checksums", "lustre_checksum_pages_enabled"),
];

/// The families that a parameter is in.
pub(super) fn add(page: &mut Page, p: &Place, decl: &Decl, value: &Value) {
    match value {
        Value::Counters(s) => add_counters(page, p, decl, s),
        Value::Histograms(h) if p.prefix == "obdfilter" => add_brw(page, p, decl, h),
        Value::Histograms(h) if p.prefix == "osc" => add_rpc(page, p, decl, h),
        Value::Number(_) | Value::Flag(_) => {
            let number = match value {
                Value::Number(n) => *n as f64,
                _ => f64::from(u8::from(*value == Value::Flag(true))),
            };
            for (_, _, name) in NUMBERS.iter().filter(|(of, n, _)| *of == p.prefix && *n == decl.name) {
                page.gauge(name, decl.help, p.field.clone(), number);
            }
        }
        _ => {}
    }
}

fn add_counters(page: &mut Page, p: &Place, decl: &Decl, s: &Samples) {
    let target = &p.field;
    match (p.prefix, decl.name) {
        ("obdfilter", "stats") => {
            for (c, v) in s.counted() {
                match c.name.strip_suffix("_bytes") {
                    Some(side @ ("read" | "write")) => {
                        add_bytes(page, &format!("lustre_{side}"), &target.with("operation", side), v);
                    }
                    _ => add_stats(page, &target.with("operation", &c.name), c.unit, v),
                }
            }
        }
        ("mdt", "md_stats") => {
            s.counted().for_each(|(c, v)| add_stats(page, &target.with("operation", &c.name), c.unit, v));
        }
        ("obdfilter_exports" | "mdt_exports", "stats") => {
            for (c, v) in s.counted() {
                let l = target.with("operation", &c.name);
                let help = "Operations of the clients at an address.";
                page.counter("lustre_client_export_stats", help, l.clone(), v.samples as f64);
                let help = "What these operations moved or took.";
                match c.unit {
                    "bytes" => page.counter("lustre_client_export_bytes", help, l, v.sum as f64),
                    "usecs" => {
                        page.counter("lustre_client_export_milliseconds", help, l, v.sum as f64 / 1000.0);
                    }
                    _ => {}
                }
            }
        }
        ("llite", "stats") => {
            for (c, v) in s.counted() {
                match c.name.strip_suffix("_bytes") {
                    Some(side @ ("read" | "write")) => {
                        add_bytes(page, &format!("lustre_{side}"), &target.with("operation", side), v);
                    }
                    _ => {
                        let l = target.with("operation", &c.name);
                        page.counter("lustre_client_stats", "Calls on a mount.", l, v.samples as f64);
                    }
                }
            }
        }
        _ => {}
    }
}

/// How many operations, and their times in microseconds.
fn add_stats(page: &mut Page, labels: &Labels, unit: &str, v: &Sample) {
    page.counter("lustre_stats", "Operations on a target.", labels.clone(), v.samples as f64);
    if unit == "usecs" {
        let help = "Times of operations, microseconds.";
        page.gauge("lustre_stats_time_min", help, labels.clone(), v.min as f64);
        page.gauge("lustre_stats_time_max", help, labels.clone(), v.max as f64);
        page.counter("lustre_stats_time", help, labels.clone(), v.sum as f64);
    }
}

/// Bytes, how often, the least and the most at a time.
fn add_bytes(page: &mut Page, base: &str, labels: &Labels, v: &Sample) {
    page.counter(&format!("{base}_bytes"), "Bytes moved.", labels.clone(), v.sum as f64);
    page.counter(&format!("{base}_samples"), "How often.", labels.clone(), v.samples as f64);
    let least = "The fewest bytes at a time.";
    page.gauge(&format!("{base}_minimum_size_bytes"), least, labels.clone(), v.min as f64);
    let most = "The most bytes at a time.";
    page.gauge(&format!("{base}_maximum_size_bytes"), most, labels.clone(), v.max as f64);
}

/// One job on one target.
pub(super) fn add_job(page: &mut Page, target: &Labels, id: &str, s: &Samples) {
    let job = target.with("jobid", id);
    for (c, v) in s.counted() {
        match c.name.strip_suffix("_bytes") {
            Some(side @ ("read" | "write")) => {
                add_bytes(page, &format!("lustre_job_{side}"), &job.with("operation", side), v);
            }
            _ => {
                let l = job.with("operation", &c.name);
                page.counter("lustre_job_stats", "Operations of a job.", l, v.samples as f64);
            }
        }
    }
}

/// Counts by size, each a row with its size.
fn add_sizes(page: &mut Page, p: &Place, h: &Histograms, names: &[(&str, &str)], help: &str) {
    for t in &h.tables {
        let Some((_, name)) = names.iter().find(|(what, _)| *what == t.what) else { continue };
        let Sides::ReadWrite(rw) = &t.sides else { continue };
        for (side, b) in ["read", "write"].iter().zip(rw.iter()) {
            for (size, n) in b.counts(t.scale).filter(|(_, n)| *n > 0) {
                let l = p.field.with("operation", side).with("size", &size.to_string());
                page.counter(name, help, l, n as f64);
            }
        }
    }
}

fn add_brw(page: &mut Page, p: &Place, decl: &Decl, h: &Histograms) {
    let names = [
        ("pages per bulk r/w", "lustre_pages_per_bulk_rw"),
        ("I/O time (1/1000s)", "lustre_io_time_milliseconds"),
        ("disk I/O size", "lustre_disk_io"),
    ];
    add_sizes(page, p, h, &names, decl.help);
}

fn add_rpc(page: &mut Page, p: &Place, decl: &Decl, h: &Histograms) {
    add_sizes(page, p, h, &[("pages per rpc", "lustre_pages_per_rpc")], decl.help);
}

//! What is printed: IOR's and mdtest's tables, as their users' scripts expect them, and JSON.

use crate::args::{Common, Io500Args, IorArgs, IozoneArgs, MdtestArgs};
use crate::io500::Score;
use crate::run::Row;
use admin::{output, say};
use serde::Serialize;
use serde_json::{Value, json};

const KIB: f64 = 1024.0;

/// A line at once, for it may be long until the next.
fn line(c: &Common, text: &str) {
    if !c.json {
        say!("{text}");
        output::flush();
    }
}

/// `47008 bytes`, `1 MiB`.
pub fn size(n: u64) -> String {
    for (unit, bits) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if n >= 1 << bits && n.is_multiple_of(1 << bits) {
            return format!("{} {unit}", n >> bits);
        }
    }
    if n == 1 { "1 byte".into() } else { format!("{n} bytes") }
}

pub fn ior_head(a: &IorArgs) {
    let kind = if a.file_per_process { "a file for each" } else { "one shared file" };
    let total = a.layout().total();
    let segments = if a.segments == 1 { "segment" } else { "segments" };
    line(
        &a.common,
        &format!(
            "nacre bench ior: {} processes, {kind}, {} {segments} of {} blocks in {} transfers, {} in all\n",
            a.common.procs,
            a.segments,
            size(a.block),
            size(a.transfer),
            size(total),
        ),
    );
    line(
        &a.common,
        "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   \
         total(s)   p50(us)    p99(us)    iter\n\
         ------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   \
         --------   -------    -------    ----",
    );
}

pub fn ior_row(a: &IorArgs, r: &Row) {
    let iops = if r.move_seconds > 0.0 { r.steps as f64 / r.move_seconds } else { 0.0 };
    let text = format!(
        "{:<9} {:<10.2} {:<10.2} {:<11.6} {:<10.2} {:<10.2} {:<10.6} {:<10.6} {:<10.6} {:<10.6} {:<10.1} {:<10.1} {}",
        r.phase,
        r.rate,
        iops,
        r.latency_us.mean / 1e6,
        a.block as f64 / KIB,
        a.transfer as f64 / KIB,
        r.open_seconds,
        r.move_seconds,
        r.close_seconds,
        r.seconds,
        r.latency_us.p50,
        r.latency_us.p99,
        r.iteration,
    );
    line(&a.common, &text);
}

/// Largest, smallest, mean and standard deviation.
fn spread(values: &[f64]) -> (f64, f64, f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let var = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let max = values.iter().copied().fold(0.0, f64::max);
    (max, values.iter().copied().fold(f64::INFINITY, f64::min).min(max), mean, var.sqrt())
}

/// Phases by name in the order of their first run, with their rates.
fn by_phase(rows: &[Row]) -> Vec<(String, Vec<f64>)> {
    let mut out: Vec<(String, Vec<f64>)> = Vec::new();
    for r in rows {
        match out.iter_mut().find(|(n, _)| *n == r.phase) {
            Some((_, v)) => v.push(r.rate),
            None => out.push((r.phase.clone(), vec![r.rate])),
        }
    }
    out
}

pub fn ior_summary(a: &IorArgs, rows: &[Row]) {
    line(&a.common, "");
    for (name, rates) in by_phase(rows) {
        let (max, min, mean, dev) = spread(&rates);
        let name = if name == "write" { "Write" } else { "Read" };
        let mb = max * KIB * KIB / 1e6;
        let text = format!(
            "Max {name}: {max:.2} MiB/sec ({mb:.2} MB/sec); min {min:.2}, mean {mean:.2}, standard deviation {dev:.2}, median {:.2}",
            median(&rates)
        );
        line(&a.common, &text);
    }
}

/// Lines that belong together, at once.
pub fn paragraph(c: &Common, text: &str) {
    line(c, text);
}

pub fn iozone_head(a: &IozoneArgs) {
    let text = format!(
        "nacre bench iozone: {} processes, a file of {} for each, records of {}\n",
        a.common.procs,
        size(a.size),
        size(a.record),
    );
    line(&a.common, &text);
}

/// The middle of values; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => f64::midpoint(v[n / 2 - 1], v[n / 2]),
    }
}

pub fn mdtest_head(a: &MdtestArgs) {
    let kind = if a.unique { "a tree for each" } else { "one shared tree" };
    let text = format!(
        "nacre bench mdtest: {} processes, {kind}, {} items for each, {} written, {} read\n",
        a.common.procs,
        a.items,
        size(a.write_bytes),
        size(a.read_bytes),
    );
    line(&a.common, &text);
}

pub fn mdtest_progress(a: &MdtestArgs, r: &Row) {
    let l = &r.latency_us;
    let text = format!(
        "iteration {}: {:<20} {:>9} in {:>8.3} s, {:>12.3} ops/sec, p50 {:.1} us, p99 {:.1} us",
        r.iteration, r.phase, r.steps, r.seconds, r.rate, l.p50, l.p99
    );
    line(&a.common, &text);
}

pub fn mdtest_summary(a: &MdtestArgs, rows: &[Row]) {
    line(&a.common, &format!("\nSUMMARY rate (in ops/sec): (of {} iterations)", a.iterations));
    line(
        &a.common,
        "   Operation                     Max            Min           Mean        Std Dev\n   \
         ---------                     ---            ---           ----        -------",
    );
    for (name, rates) in by_phase(rows) {
        let (max, min, mean, dev) = spread(&rates);
        line(&a.common, &format!("   {name:<20} {max:>14.3} {min:>14.3} {mean:>14.3} {dev:>14.3}"));
    }
}

pub fn io500_head(a: &Io500Args) {
    let text = format!(
        "nacre bench io500: {} processes, {} s for each phase that writes\n",
        a.common.procs, a.seconds
    );
    line(&a.common, &text);
}

pub fn io500_row(c: &Common, r: &Row) {
    let (value, unit) = if r.unit == "MiB/s" { (r.rate / KIB, "GiB/s") } else { (r.rate / 1000.0, "kIOPS") };
    line(c, &format!("[RESULT] {:>20} {value:>15.6} {unit} : time {:.3} seconds", r.phase, r.seconds));
}

pub fn io500_score(a: &Io500Args, s: &Score) {
    let text = format!(
        "[SCORE ] Bandwidth {:.6} GiB/s : IOPS {:.6} kiops : TOTAL {:.6}",
        s.bandwidth, s.metadata, s.total
    );
    line(&a.common, &text);
}

/// The document of `--json`.
pub fn document(benchmark: &str, options: &impl Serialize, rows: &[Row], score: Option<Score>) -> Value {
    let summary: Vec<Value> = by_phase(rows)
        .into_iter()
        .map(|(phase, rates)| {
            let (max, min, mean, dev) = spread(&rates);
            let middle = median(&rates);
            let spread = if middle > 0.0 { (max - min) / middle } else { 0.0 };
            json!({"phase": phase, "max": max, "min": min, "mean": mean, "stddev": dev,
                   "median": middle, "spread": spread})
        })
        .collect();
    let mut doc = json!({
        "benchmark": benchmark,
        "version": admin::VERSION,
        "host": world::sys::hostname(),
        "inventory": crate::inventory::here(),
        "time": world::sys::wall_seconds(),
        "options": options,
        "rows": rows,
        "summary": summary,
    });
    if let Some(s) = score {
        doc["score"] =
            json!({"bandwidth_gib_s": s.bandwidth, "metadata_kiops": s.metadata, "total": s.total});
    }
    doc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spreads() {
        assert_eq!(size(47_008), "47008 bytes");
        assert_eq!(size(1 << 20), "1 MiB");
        assert_eq!(size(1536), "1536 bytes");
        assert_eq!(size(0), "0 bytes");
        assert_eq!(spread(&[2.0, 4.0]), (4.0, 2.0, 3.0, 1.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0, 0.0));
    }
}

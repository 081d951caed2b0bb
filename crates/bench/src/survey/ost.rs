//! `ost-survey`: every OST of a mounted file system written and read alone, and which of them is not like the
//! others.

use super::{Asked, Output};
use crate::args::Common;
use crate::crew::Stop;
use crate::layout::FileLayout;
use crate::link::{DataOrder, Order, Pace};
use crate::pattern;
use crate::plot::{Chart, Series};
use crate::report::median;
use crate::run::{Phase, Unit};
use admin::command::osts;
use admin::command::setstripe;
use anyhow::{Context, Result, bail};
use model::{LayoutSpec, TargetKind};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use world::sys::files;

pub const VARIABLES: &[&str] = &["size", "rslt"];

const MIB: u64 = 1 << 20;
/// As the classical script: a file of so many MiB.
const DEFAULT_MB: u64 = 30;
/// Further from the median of its equals than this share of it is an outlier.
const OUTLIER_SHARE: f64 = 0.25;
/// Fewer are no group that one could fall out of.
const EQUALS_MIN: usize = 3;

/// One OST, measured. Rates in MB/s, where a MB is a MiB, as the script has it.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    pub index: u16,
    pub nid: String,
    pub read: f64,
    pub write: f64,
    pub read_seconds: f64,
    pub write_seconds: f64,
}

/// Mean and standard deviation.
pub fn average(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
}

/// What marks a value among its equals: `slow`, `fast`, or nothing.
pub fn mark(value: f64, all: &[f64]) -> &'static str {
    let middle = median(all);
    match value {
        _ if all.len() < EQUALS_MIN => "",
        v if v < middle * (1.0 - OUTLIER_SHARE) => "slow",
        v if v > middle * (1.0 + OUTLIER_SHARE) => "fast",
        _ => "",
    }
}

/// A file that is gone with the survey.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(e) = files::remove_file(&self.0) {
            eprintln!("ost-survey: cannot remove '{}': {e}", self.0.display());
        }
    }
}

fn measure(asked: &Asked, stop: &Stop, dir: &Path, target: (u16, String), bytes: u64) -> Result<Speed> {
    let (index, nid) = target;
    let path = dir.join(format!("ost_survey.{}.{index}", std::process::id()));
    let spec = LayoutSpec { stripe_count: 1, stripe_size: MIB, osts: vec![index], ..LayoutSpec::default() };
    setstripe::create(&path, 0o600, &spec).map_err(|e| anyhow::anyhow!("{e}"))?;
    let made = Made(path);
    let common = Common { procs: 1, threads: true, quiet: asked.flags.quiet, ..Common::default() };
    let layout = FileLayout { procs: 1, block: MIB, transfer: MIB, segments: bytes / MIB, shared: true };
    let one = |name: &str, write: bool| -> Result<(f64, f64)> {
        let order = Order::Data(DataOrder {
            path: made.0.clone(),
            write,
            layout,
            base: 0,
            rank: 0,
            key: pattern::key(u64::from(index)),
            pace: Pace { count: layout.transfers(), seconds: 0.0, wear_out: false },
            shuffle: None,
            walk: crate::layout::Walk::Forward,
            // not what a client or this host keeps
            direct: true,
            fsync: true,
            fsync_each: false,
            verify: true,
        });
        let name = format!("OST{index:04x} {name}");
        let phase = Phase { name: &name, unit: Unit::MibPerSecond, cold: false, goal: layout.transfers() };
        let row = super::phase(&common, stop, &phase, &[(0, order)])?;
        if row.wrong > 0 {
            bail!("OST{index:04x}: what was read is not what was written; nacre scrub looks at the target");
        }
        Ok((row.rate, row.seconds))
    };
    let (write, write_seconds) = one("write", true)?;
    super::forget("ost-survey", dir);
    let (read, read_seconds) = one("read", false)?;
    Ok(Speed { index, nid, read, write, read_seconds, write_seconds })
}

/// Worst, best and average of one direction, as the script words them.
fn extremes(o: &mut String, word: &str, speeds: &[Speed], of: impl Fn(&Speed) -> f64) {
    let by = |a: &&Speed, b: &&Speed| of(a).total_cmp(&of(b));
    for (kind, found) in [("Worst ", speeds.iter().min_by(by)), ("Best  ", speeds.iter().max_by(by))] {
        if let Some(s) = found {
            // writing to a String cannot fail
            let _ = writeln!(o, "{kind} {word} OST indx: {} speed: {:.6}", s.index, of(s));
        }
    }
    let (mean, deviation) = average(&speeds.iter().map(of).collect::<Vec<_>>());
    let _ = writeln!(o, "{} Average: {mean:.6} +/- {deviation:.6} MB/s", word.trim_start());
}

fn table(speeds: &[Speed], inactive: usize) -> String {
    let mut o = String::new();
    extremes(&mut o, " Read", speeds, |s| s.read);
    extremes(&mut o, "Write", speeds, |s| s.write);
    let _ = writeln!(o, "Ost#  Read(MB/s)  Write(MB/s)  Read-time  Write-time");
    let _ = writeln!(o, "----------------------------------------------------");
    let reads: Vec<f64> = speeds.iter().map(|s| s.read).collect();
    let writes: Vec<f64> = speeds.iter().map(|s| s.write).collect();
    for s in speeds {
        let marks = [("read", mark(s.read, &reads)), ("write", mark(s.write, &writes))];
        let marks: Vec<String> =
            marks.iter().filter(|(_, m)| !m.is_empty()).map(|(w, m)| format!("{w} {m}")).collect();
        let line = format!(
            "{:<5} {:<11.3} {:<12.3} {:<10.3} {:<10.3} {}",
            s.index,
            s.read,
            s.write,
            s.read_seconds,
            s.write_seconds,
            marks.join(", ")
        );
        let _ = writeln!(o, "{}", line.trim_end());
    }
    if inactive > 0 {
        let _ = writeln!(o, "{inactive} Inactive ost");
    }
    o
}

/// The mount that the operand names, or the only one here.
pub fn mount_of(asked: &Asked) -> Result<PathBuf> {
    match asked.knobs.operands.as_slice() {
        [dir] => files::absolute(dir).with_context(|| format!("'{dir}'")),
        [] => match admin::local::mounts(true).as_slice() {
            [only] => Ok(only.dir.clone()),
            [] => bail!("which mount? No file system is mounted here"),
            several => bail!("which mount? {} are mounted here; name one", several.len()),
        },
        more => bail!("one mount at a time, not {}", more.len()),
    }
}

pub fn run(asked: &Asked, stop: &Stop) -> Result<bool> {
    let dir = mount_of(asked)?;
    let megabytes = match asked.flags.megabytes {
        Some(n) => n,
        None => asked.knobs.number("size", DEFAULT_MB, 1..=1 << 20)?,
    };
    let all = osts::targets(&dir).map_err(|e| anyhow::anyhow!("{e}"))?;
    let (active, inactive): (Vec<_>, Vec<_>) =
        all.into_iter().filter(|t| t.target.kind == TargetKind::Ost).partition(|t| t.active);
    if active.is_empty() {
        bail!("'{}' has no active OST", dir.display());
    }
    let out = Output::begin("ost-survey", asked, &format!("OST speed survey on {}", dir.display()));
    out.line(&format!("Number of Active OST devices : {}", active.len()));
    let mut speeds = Vec::new();
    for t in &active {
        speeds.push(measure(asked, stop, &dir, (t.target.index, t.nid.clone()), megabytes * MIB)?);
    }
    out.line(table(&speeds, inactive.len()).trim_end());
    let reads: Vec<f64> = speeds.iter().map(|s| s.read).collect();
    let writes: Vec<f64> = speeds.iter().map(|s| s.write).collect();
    let rows: Vec<_> = speeds
        .iter()
        .map(|s| {
            json!({"index": s.index, "nid": s.nid, "read": s.read, "write": s.write,
                   "read_seconds": s.read_seconds, "write_seconds": s.write_seconds,
                   "read_mark": mark(s.read, &reads), "write_mark": mark(s.write, &writes)})
        })
        .collect();
    let document = json!({
        "survey": "ost-survey", "version": admin::VERSION, "time": world::sys::wall_seconds(),
        "inventory": crate::inventory::here(), "mount": dir, "megabytes": megabytes, "unit": "MiB/s",
        "osts": rows, "inactive": inactive.len(),
        "read": {"mean": average(&reads).0, "stddev": average(&reads).1, "median": median(&reads)},
        "write": {"mean": average(&writes).0, "stddev": average(&writes).1, "median": median(&writes)},
    });
    let mut csv = "ost,read_mib_s,write_mib_s,read_seconds,write_seconds\n".to_string();
    for s in &speeds {
        let _ = writeln!(
            csv,
            "{},{:.3},{:.3},{:.3},{:.3}",
            s.index, s.read, s.write, s.read_seconds, s.write_seconds
        );
    }
    out.finish(&document, &csv, || crate::plot::svg(&chart(&speeds)))?;
    Ok(true)
}

fn chart(speeds: &[Speed]) -> Chart {
    let series = |name: &str, of: fn(&Speed) -> f64| Series {
        name: name.to_string(),
        points: speeds.iter().map(|s| (f64::from(s.index), of(s))).collect(),
    };
    Chart {
        title: "ost-survey".into(),
        x_label: "OST".into(),
        y_label: "MiB/s".into(),
        log_x: false,
        x_is_size: false,
        series: vec![series("read", |s| s.read), series("write", |s| s.write)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(index: u16, read: f64, write: f64) -> Speed {
        Speed { index, nid: "x@tcp".into(), read, write, read_seconds: 0.5, write_seconds: 1.0 }
    }

    #[test]
    fn the_table_names_extremes_and_outliers() {
        let t = table(&[speed(0, 100.0, 50.0), speed(1, 104.0, 20.0), speed(7, 96.0, 52.0)], 2);
        for line in [
            "Worst   Read OST indx: 7 speed: 96.000000",
            "Best    Read OST indx: 1 speed: 104.000000",
            "Read Average: 100.000000 +/- 3.265986 MB/s",
            "Worst  Write OST indx: 1 speed: 20.000000",
            "Ost#  Read(MB/s)  Write(MB/s)  Read-time  Write-time",
            "1     104.000     20.000       0.500      1.000      write slow",
            "7     96.000      52.000       0.500      1.000",
            "2 Inactive ost",
        ] {
            assert!(t.lines().any(|l| l == line), "'{line}' in\n{t}");
        }
    }

    #[test]
    fn two_have_no_outlier() {
        assert_eq!(mark(1.0, &[1.0, 100.0]), "");
        assert_eq!(mark(1.0, &[1.0, 100.0, 101.0]), "slow");
        assert_eq!(mark(200.0, &[100.0, 101.0, 200.0]), "fast");
        assert_eq!((median(&[]), median(&[3.0, 1.0]), median(&[5.0, 1.0, 3.0])), (0.0, 2.0, 3.0));
        assert_eq!(average(&[]), (0.0, 0.0));
    }
}

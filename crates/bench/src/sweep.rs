//! Several runs that differ in one number, and the picture of them.

use crate::args::{Common, IorArgs, MdtestArgs, PROCS_MAX};
use crate::plot::{Chart, Series};
use crate::run::Row;
use anyhow::{Context, Result, bail};

/// Runs of a sweep at most.
const POINTS_MAX: usize = 64;

fn values(text: &str) -> Result<(&str, Vec<u64>)> {
    let (what, list) = text.split_once('=').context("--sweep wants WHAT=LIST, as in procs=1,2,4")?;
    let mut out = Vec::new();
    for v in list.split(',') {
        out.push(
            admin::size::parse_bytes(v, 1).with_context(|| format!("--sweep {what}: '{v}' is no number"))?,
        );
    }
    if out.len() > POINTS_MAX {
        bail!("--sweep: at most {POINTS_MAX} values");
    }
    Ok((what, out))
}

fn procs(v: u64) -> Result<usize> {
    let n = usize::try_from(v).unwrap_or(usize::MAX);
    if !(1..=PROCS_MAX).contains(&n) {
        bail!("--sweep procs: 1 to {PROCS_MAX}");
    }
    Ok(n)
}

type Sweep<A> = Vec<(Option<String>, A)>;

/// The runs of a command, each with its place in the sweep; `set` gives one of them its number.
fn runs<A: Clone>(
    a: &A,
    sweep: Option<&str>,
    set: impl Fn(&mut A, &str, u64) -> Result<()>,
) -> Result<Sweep<A>> {
    let Some(text) = sweep else { return Ok(vec![(None, a.clone())]) };
    let (what, list) = values(text)?;
    let mut out = Vec::new();
    for v in list {
        let mut one = a.clone();
        set(&mut one, what, v)?;
        out.push((Some(format!("{what}={v}")), one));
    }
    Ok(out)
}

/// The runs of an ior command.
pub fn ior(a: &IorArgs) -> Result<Sweep<IorArgs>> {
    runs(a, a.common.sweep.as_deref(), |one, what, v| {
        match what {
            "procs" => one.common.procs = procs(v)?,
            "transfer" => {
                if v == 0 {
                    bail!("--sweep transfer: more than 0");
                }
                one.transfer = v;
                // the block keeps its size as far as whole transfers allow
                one.block = (one.block / v).max(1) * v;
            }
            _ => bail!("--sweep {what}: ior can vary procs and transfer"),
        }
        Ok(())
    })
}

/// The runs of an mdtest command.
pub fn mdtest(a: &MdtestArgs) -> Result<Sweep<MdtestArgs>> {
    runs(a, a.common.sweep.as_deref(), |one, what, v| {
        match what {
            "procs" => one.common.procs = procs(v)?,
            "items" if v > 0 => one.items = v,
            _ => bail!("--sweep {what}: mdtest can vary procs and items"),
        }
        Ok(())
    })
}

/// Throughput against what was varied (the best of each point's iterations), or against time.
pub fn chart(title: &str, c: &Common, rows: &[Row]) -> Chart {
    let swept = c.sweep.as_ref().and_then(|s| s.split_once('=')).map(|(what, _)| what);
    let mut series: Vec<Series> = Vec::new();
    for r in rows {
        // trees are made by one process and are no load
        if r.phase.starts_with("Tree ") {
            continue;
        }
        let i = series.iter().position(|s| s.name == r.phase).unwrap_or_else(|| {
            series.push(Series { name: r.phase.clone(), points: Vec::new() });
            series.len() - 1
        });
        let points = &mut series[i].points;
        match r.sweep.as_ref().and_then(|s| s.split_once('=')).and_then(|(_, v)| v.parse::<f64>().ok()) {
            None if r.iteration == 0 => points.extend(&r.samples),
            None => {}
            Some(x) => match points.iter_mut().find(|p| p.0 == x) {
                Some(p) => p.1 = p.1.max(r.rate),
                None => points.push((x, r.rate)),
            },
        }
    }
    for s in &mut series {
        s.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let mut units: Vec<&str> = rows.iter().map(|r| r.unit).collect();
    units.dedup();
    units.sort_unstable();
    units.dedup();
    Chart {
        title: title.to_string(),
        x_label: match swept {
            Some("procs") => "processes".into(),
            Some("transfer") => "transfer size (bytes)".into(),
            Some(other) => other.to_string(),
            None => "seconds since the phase began".into(),
        },
        y_label: units.join(", "),
        log_x: swept.is_some(),
        x_is_size: swept == Some("transfer"),
        series,
    }
}

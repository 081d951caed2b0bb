//! `nacre metrics`: what all daemons and mounts of this host tell in numbers, once.

use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, flag, value};
use crate::glob::matches;
use crate::{local, output};
use model::metrics::{Format, Page, Row, suffix};
use serde_json::{Value, json};
use std::ffi::OsString;

const USAGE: &str = "\
usage: nacre metrics [--target PATTERN] [--text|--json]

Prints the metrics of all daemons and mounts of this host that answer, as one
page of OpenMetrics: for the textfile collector of Prometheus's node exporter,
or to look. Daemons and mounts tell them over HTTP as well (nacred --metrics,
mount option metrics=). Root's.

  -t, --target PATTERN      only what is of or about these targets, by a shell
                            pattern of their names: 'demo-OST*'
      --text                Prometheus's text format 0.0.4 (*.prom files)
      --json                one JSON document: name, labels, value

exit status: 0, or the errno of the first failure, 4 wrong usage
";

/// Only rows with a target that fits.
fn only(page: &mut Page, pattern: &str) {
    let fits = |r: &Row| {
        r.labels.pairs().iter().any(|(n, v)| n == "target" && matches(pattern.as_bytes(), v.as_bytes()))
    };
    page.families.values_mut().for_each(|f| f.rows.retain(fits));
    page.families.retain(|_, f| !f.rows.is_empty());
}

fn document(page: &Page) -> Value {
    let mut rows = Vec::new();
    for (name, f) in &page.families {
        for r in &f.rows {
            let labels: serde_json::Map<String, Value> =
                r.labels.pairs().into_iter().map(|(n, v)| (n, json!(v))).collect();
            let name = format!("{name}{}", suffix(f.kind, r.part));
            rows.push(json!({"name": name, "labels": labels, "value": r.value}));
        }
    }
    json!({"metrics": rows, "left_out": page.left_out})
}

fn run(args: &[OsString]) -> Result<i32, Failure> {
    let p = getopt::parse(args, &[value('t', "target"), flag('\0', "text"), flag('\0', "json")])?;
    if let Some(more) = p.operands.first() {
        return Err(Failure::usage(format!("what is '{}' for?", local::show(more))));
    }
    if p.has("text") && p.has("json") {
        return Err(Failure::usage("--text or --json, not both"));
    }
    let (mut page, failed) = local::metrics();
    if page.is_empty() && failed.is_empty() {
        let why = "no daemon or mount of this host answers: run it as root, where some are";
        return Err(Failure::explained("cannot find", "metrics", model::Errno::ENODEV, why));
    }
    if let Some(pattern) = p.value("target") {
        only(&mut page, pattern);
        if page.families.is_empty() {
            let why = "no daemon or mount of this host has such a target";
            return Err(Failure::explained("cannot find", pattern, model::Errno::ENODEV, why));
        }
    }
    match (p.has("json"), p.has("text")) {
        (true, _) => output::json(&document(&page)),
        (false, true) => output::bytes(page.text(Format::Text).as_bytes()),
        (false, false) => output::bytes(page.text(Format::OpenMetrics).as_bytes()),
    }
    failed.iter().for_each(|f| eprintln!("nacre metrics: {f}"));
    Ok(failed.first().map_or(0, Failure::exit_code))
}

/// The command: arguments behind `metrics`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre metrics", USAGE), args, Failure::exit_code, run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::metrics::Labels;

    #[test]
    fn a_target_is_picked_and_everything_is_json() {
        let mut p = Page::default();
        p.counter("a", "A.", Labels::of(&[("target", "demo-OST0000")]), 2.0);
        p.gauge("b", "B.", Labels::of(&[("target", "demo-MDT0000")]), 3.0);
        p.gauge("c", "C.", Labels::default(), 4.0);
        only(&mut p, "demo-OST*");
        let row = json!({"name": "a_total", "labels": {"target": "demo-OST0000"}, "value": 2.0});
        assert_eq!(document(&p), json!({"metrics": [row], "left_out": {}}));
    }
}

//! Pages of metrics, as OpenMetrics and Prometheus read them: families of rows, bounded, and their text in
//! both formats. [`scrape`] makes one from the tree of parameters and statistics.

mod lustre;
mod place;
mod scrape;

pub use scrape::{JOBS_SHOWN_MAX, Names, Scrape, Side, names_of};

use crate::Set;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Rows of a page: what would be more is counted and left out.
pub const ROWS_MAX: usize = 40_000;

/// Where `nacre up` puts its metrics, at each daemon's own address: the port of the field's older exporter.
pub const PORT_DEFAULT: u16 = 9169;

/// Where a daemon's or mount's metrics are to be: `ADDRESS:PORT`, `[ADDRESS]:PORT`. The error is what a text
/// is not: all addresses at once are none, so that nobody shows them to the world by mistake.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let all: Option<SocketAddr> = text.parse().ok();
    let one = all.filter(|a| !a.ip().is_unspecified() && a.port() != 0);
    one.ok_or("an address of this host and a port, as 127.0.0.1:9169")
}

/// What a family is, by OpenMetrics' types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MetricKind {
    /// Goes up and down.
    Gauge,
    /// Only grows, until its program starts anew or somebody clears it.
    Counter,
    /// How often, and the sum of sizes or times.
    Summary,
    /// Counts of all up to a bound.
    Histogram,
    /// Words in labels; its value is 1.
    Info,
}

impl MetricKind {
    const fn word(self) -> &'static str {
        match self {
            MetricKind::Gauge => "gauge",
            MetricKind::Counter => "counter",
            MetricKind::Summary => "summary",
            MetricKind::Histogram => "histogram",
            MetricKind::Info => "info",
        }
    }
}

/// What is behind the family's name in the name of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Part {
    /// The value itself: nothing of a gauge, `_total` of a counter, `_info` of an info.
    Value,
    /// `_count` of a summary or histogram.
    Count,
    /// `_sum` of a summary.
    Sum,
    /// `_bucket` of a histogram.
    Bucket,
}

/// One line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub part: Part,
    /// As they stand between the braces.
    pub labels: Labels,
    pub value: f64,
}

/// Labels of a row, as they are written.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Labels(String);

impl Labels {
    pub fn of(all: &[(&str, &str)]) -> Labels {
        let mut out = Labels::default();
        all.iter().for_each(|(name, value)| out.push(name, value));
        out
    }

    /// With one more.
    pub fn with(&self, name: &str, value: &str) -> Labels {
        let mut out = Labels(String::with_capacity(self.0.len() + name.len() + value.len() + 4));
        out.0.push_str(&self.0);
        out.push(name, value);
        out
    }

    fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        escape(&mut self.0, value);
        self.0.push('"');
    }

    /// Names and values.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let (mut out, mut chars) = (Vec::new(), self.0.chars());
        loop {
            let name: String = chars.by_ref().take_while(|c| *c != '=').filter(|c| *c != ',').collect();
            if name.is_empty() || chars.next() != Some('"') {
                return out;
            }
            let mut value = String::new();
            while let Some(c) = chars.next().filter(|c| *c != '"') {
                value.push(match c {
                    '\\' => chars.next().map_or('\\', |c| if c == 'n' { '\n' } else { c }),
                    c => c,
                });
            }
            out.push((name, value));
        }
    }
}

/// A value of a label, or a help in OpenMetrics.
fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// What belongs together under one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Family {
    pub kind: MetricKind,
    /// The last part of the name, if that is a unit; empty: it has none.
    pub unit: String,
    pub help: String,
    pub rows: Vec<Row>,
}

/// What a family is, for the one that adds rows to it.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub name: &'a str,
    pub kind: MetricKind,
    pub unit: &'a str,
    pub help: &'a str,
}

/// How a page is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Text,
}

impl Format {
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// All families, by name.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Page {
    pub families: BTreeMap<String, Family>,
    rows: usize,
    /// What there was no room for, by what it is: `rows`, `jobs`, `exports`, `pools`.
    pub left_out: BTreeMap<String, u64>,
}

impl Page {
    /// One row more, if there is room. A name that is another kind of family already is left out: two
    /// daemons of different versions may differ in that.
    pub fn add(&mut self, about: &About<'_>, part: Part, labels: Labels, value: f64) {
        if self.rows >= ROWS_MAX {
            self.leave_out("rows", 1);
            return;
        }
        if let Some(f) = self.families.get_mut(about.name) {
            if f.kind != about.kind {
                self.leave_out("rows", 1);
                return;
            }
            f.rows.push(Row { part, labels, value });
        } else {
            assert!(is_name(about.name), "'{}' is the name of a metric", about.name);
            let (unit, help) = (about.unit.to_string(), sentence(about.help));
            let rows = vec![Row { part, labels, value }];
            self.families.insert(about.name.to_string(), Family { kind: about.kind, unit, help, rows });
        }
        self.rows += 1;
        assert!(self.rows <= ROWS_MAX, "a page has so many rows and no more");
    }

    pub fn gauge(&mut self, name: &str, help: &str, labels: Labels, value: f64) {
        self.add(&About { name, kind: MetricKind::Gauge, unit: "", help }, Part::Value, labels, value);
    }

    pub fn counter(&mut self, name: &str, help: &str, labels: Labels, value: f64) {
        self.add(&About { name, kind: MetricKind::Counter, unit: "", help }, Part::Value, labels, value);
    }

    /// Words about something.
    pub fn info(&mut self, name: &str, help: &str, labels: Labels) {
        self.add(&About { name, kind: MetricKind::Info, unit: "", help }, Part::Value, labels, 1.0);
    }

    pub fn leave_out(&mut self, what: &str, n: u64) {
        *self.left_out.entry(what.to_string()).or_default() += n;
    }

    /// Rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// What another one has, as well. What both say in the same words is said once.
    pub fn merge(&mut self, other: Page) {
        for (name, f) in other.families {
            let mine = self.families.get(&name).map_or(&[][..], |f| &f.rows);
            let known: Set<(Part, Labels)> = mine.iter().map(|r| (r.part, r.labels.clone())).collect();
            let about = About { name: &name, kind: f.kind, unit: &f.unit, help: &f.help };
            for row in f.rows {
                if !known.contains(&(row.part, row.labels.clone())) {
                    self.add(&about, row.part, row.labels, row.value);
                }
            }
        }
        other.left_out.iter().for_each(|(what, n)| self.leave_out(what, *n));
    }

    /// The whole text.
    pub fn text(&self, format: Format) -> String {
        let mut out = String::with_capacity(128 * self.rows + 64);
        for (name, f) in &self.families {
            head(&mut out, name, f, format);
            for r in &f.rows {
                out.push_str(name);
                out.push_str(suffix(f.kind, r.part));
                if !r.labels.0.is_empty() {
                    out.push('{');
                    out.push_str(&r.labels.0);
                    out.push('}');
                }
                let _ = writeln!(out, " {}", r.value);
            }
        }
        let name = "nacre_metrics_left_out";
        let _ = writeln!(out, "# HELP {name} What found no room on this page.\n# TYPE {name} gauge");
        for what in ["exports", "jobs", "pools", "rows"] {
            let n = self.left_out.get(what).copied().unwrap_or_default();
            let _ = writeln!(out, "{name}{{what=\"{what}\"}} {n}");
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }
}

fn head(out: &mut String, name: &str, f: &Family, format: Format) {
    // The older format knows the names of rows only, and no infos.
    let (shown, kind) = match (format, f.kind) {
        (Format::Text, MetricKind::Counter) => (format!("{name}_total"), "counter"),
        (Format::Text, MetricKind::Info) => (format!("{name}_info"), "gauge"),
        (_, kind) => (name.to_string(), kind.word()),
    };
    let _ = write!(out, "# HELP {shown} ");
    match format {
        Format::OpenMetrics => escape(out, &f.help),
        Format::Text => out.push_str(&f.help.replace('\\', "\\\\").replace('\n', "\\n")),
    }
    let _ = writeln!(out, "\n# TYPE {shown} {kind}");
    if format == Format::OpenMetrics && !f.unit.is_empty() {
        let _ = writeln!(out, "# UNIT {shown} {}", f.unit);
    }
}

/// What is behind the family's name in a row's.
pub const fn suffix(kind: MetricKind, part: Part) -> &'static str {
    match (part, kind) {
        (Part::Value, MetricKind::Counter) => "_total",
        (Part::Value, MetricKind::Info) => "_info",
        (Part::Value, _) => "",
        (Part::Count, _) => "_count",
        (Part::Sum, _) => "_sum",
        (Part::Bucket, _) => "_bucket",
    }
}

fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// With a large letter before and a full stop behind.
fn sentence(help: &str) -> String {
    let help = help.trim_end_matches('.');
    let mut chars = help.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).chain(['.']).collect()
}

#[cfg(test)]
mod tests;

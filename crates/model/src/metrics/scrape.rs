//! From the tree of parameters and statistics to a page.

use super::place::{Place, component_of, named, place};
use super::{About, Labels, MetricKind, Page, Part, lustre};
use crate::Set;
use crate::Timestamp;
use crate::counters::Samples;
use crate::histogram::{Histograms, Scale, Sides};
use crate::jobs::JobOf;
use crate::param::{Decl, Declared, Field, Kind, Scope, Tree, Value};
use std::sync::Arc;

/// Jobs of a page, over all its targets: those with the latest requests.
pub const JOBS_SHOWN_MAX: usize = 1000;
/// What these did on a target each, all together.
const JOB_TARGETS_MAX: usize = 2000;
/// Addresses of clients, over all targets.
const EXPORTS_SHOWN_MAX: usize = 1000;
/// Devices of pools.
const POOLS_SHOWN_MAX: usize = 200;

/// Names of rows that a declaration makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Names {
    One(String),
    /// All that begin so: one for each field, or for each unit of operations.
    Beginning(String),
}

/// The rows of a declaration, for who has no daemon to ask: checks of dashboards and rules. `None`: it has
/// none, or they are told by what was counted (histograms, jobs).
pub fn names_of(d: &Declared) -> Option<Names> {
    // A name that every kind of device can be read from.
    let name = d.name().replace('*', "demo-OST0000-osc-MDT0000");
    let p =
        place(&name, d.decl, if d.scope == Scope::Mount { "mount" } else { "daemon" }, &Labels::default())?;
    let whole = |total: &str| Names::One(named(p.prefix, d.decl.name, d.decl.unit).name + total);
    Some(match d.decl.kind {
        Kind::Flag | Kind::Number { .. } | Kind::Gauge => whole(""),
        Kind::Counter => whole("_total"),
        Kind::Fields => {
            let of = d.decl.name.strip_suffix("_mb").unwrap_or(d.decl.name);
            Names::Beginning(format!("{}_", named(p.prefix, of, "").name))
        }
        Kind::Counters => Names::Beginning(operations(p.prefix, d.decl.name)),
        Kind::Histogram | Kind::Jobs | Kind::Text | Kind::Words(_) => return None,
    })
}

/// What families of operations begin with.
fn operations(prefix: &str, param: &str) -> String {
    let base = param.trim_start_matches("md_").trim_end_matches("stats").trim_end_matches('_');
    let dot = if base.is_empty() { "" } else { "_" };
    format!("nacre_{prefix}{dot}{base}_operation")
}

/// Whose page it is.
#[derive(Clone, Copy, Debug)]
pub enum Side<'a> {
    Server,
    /// The mount at this place.
    Mount(&'a str),
}

/// A page in the making.
pub struct Scrape {
    page: Page,
    /// Labels of everything on it.
    base: Labels,
    /// Prefix of what has no device.
    alone: &'static str,
    /// Of what targets share (`ost.OSS.ost_io`) and each of them says.
    shared: Set<String>,
    jobs: Vec<(Arc<Labels>, Timestamp, JobOf)>,
    exports: Set<String>,
    pools: Set<String>,
    /// The device that was looked at last, and its place: the parameters of one come together.
    last: (String, Option<Place>),
}

/// Whether another one of this name has a place.
fn has_room(known: &mut Set<String>, name: &str, most: usize) -> bool {
    if known.contains(name) {
        return true;
    }
    if known.len() >= most {
        return false;
    }
    known.insert(name.to_string())
}

impl Scrape {
    /// `version`: of the program.
    pub fn new(side: Side<'_>, version: &str) -> Scrape {
        let (base, alone) = match side {
            Side::Server => (Labels::default(), "daemon"),
            Side::Mount(at) => (Labels::of(&[("mount", at)]), "mount"),
        };
        let mut page = Page::default();
        let said = base.with("program", alone).with("version", version);
        page.info("nacre_build", "Version of the program.", said);
        let (shared, exports, pools) = Default::default();
        let last = (String::new(), None);
        Scrape { page, base, alone, shared, jobs: Vec::new(), exports, pools, last }
    }

    /// For what no parameter says.
    pub fn page(&mut self) -> &mut Page {
        &mut self.page
    }

    /// Labels of what no parameter says.
    pub fn labels(&self) -> &Labels {
        &self.base
    }

    /// What a tree has in numbers.
    pub fn add(&mut self, tree: &Tree<'_>) {
        for i in &tree.items {
            // Words are not read: some of them take long to make.
            if matches!(i.decl.kind, Kind::Text | Kind::Words(_)) {
                continue;
            }
            let Some(device) = i.name.strip_suffix(i.decl.name) else { continue };
            let known = std::mem::take(&mut self.last);
            let p = match known {
                (of, Some(p)) if of == device => p,
                _ => match place(&i.name, i.decl, self.alone, &self.base) {
                    Some(p) => p,
                    None => continue,
                },
            };
            if self.is_wanted(&p, &i.name, i.decl) {
                let value = i.value();
                lustre::add(&mut self.page, &p, i.decl, &value);
                self.add_own(&p, i.decl, value);
            }
            self.last = (device.to_string(), Some(p));
        }
    }

    /// Whether there is room for the device, and it was not said yet.
    fn is_wanted(&mut self, p: &Place, name: &str, decl: &Decl) -> bool {
        if p.target.is_empty() && !self.shared.insert(name.to_string()) {
            return false;
        }
        let device = || name[..name.len() - decl.name.len()].to_string();
        let (what, has_room) = match (&p.nid, p.prefix) {
            (Some(_), _) => ("exports", has_room(&mut self.exports, &device(), EXPORTS_SHOWN_MAX)),
            (None, "lod_pool") => ("pools", has_room(&mut self.pools, &device(), POOLS_SHOWN_MAX)),
            _ => return true,
        };
        // Each device is counted once: all have one of these.
        if !has_room && matches!(decl.kind, Kind::Counters | Kind::Number { .. }) {
            self.page.leave_out(what, 1);
        }
        has_room
    }

    fn add_own(&mut self, p: &Place, decl: &Decl, value: Value) {
        let number = match value {
            Value::Number(n) => n as f64,
            Value::Signed(n) => n as f64,
            Value::Flag(on) => f64::from(u8::from(on)),
            Value::Fields(all) => return self.add_fields(p, decl, &all),
            // The field's families have these already, with a label for each.
            Value::Counters(_) if p.nid.is_some() => return,
            // Lustre's two names for one thing.
            Value::Counters(_) if p.prefix == "mdt" && decl.name == "stats" => return,
            Value::Counters(s) => return self.add_counters(p, decl, &s),
            Value::Histograms(h) => return self.add_histograms(p, decl, &h),
            Value::Jobs(j) => {
                let labels = Arc::new(p.field.clone());
                return self.jobs.extend(j.jobs.into_iter().map(|job| (labels.clone(), j.now, job)));
            }
            Value::Text(_) => return,
        };
        let n = named(p.prefix, decl.name, decl.unit);
        let kind = if matches!(decl.kind, Kind::Counter) { MetricKind::Counter } else { MetricKind::Gauge };
        let about = About { name: &n.name, kind, unit: n.unit, help: decl.help };
        self.page.add(&about, Part::Value, p.labels.clone(), number * n.factor);
    }

    fn add_fields(&mut self, p: &Place, decl: &Decl, all: &[Field]) {
        for f in all {
            // `used_mb` has megabytes in each of its fields.
            let (of, unit) = match decl.name.strip_suffix("_mb") {
                Some(of) => (of, "MiB"),
                None => (decl.name, ""),
            };
            let n = named(p.prefix, &format!("{of}_{}", f.name), unit);
            let kind = if f.grows { MetricKind::Counter } else { MetricKind::Gauge };
            let about = About { name: &n.name, kind, unit: n.unit, help: decl.help };
            self.page.add(&about, Part::Value, p.labels.clone(), f.value as f64 * n.factor);
        }
    }

    /// Operations: times and sizes as sums with how many they are of, others as counters.
    fn add_counters(&mut self, p: &Place, decl: &Decl, s: &Samples) {
        let base = operations(p.prefix, decl.name);
        for (c, sample) in s.counted() {
            let labels = p.labels.with("operation", &c.name);
            let (what, factor) = match c.unit {
                "usecs" => ("seconds", 1e-6),
                "bytes" => ("bytes", 1.0),
                _ => {
                    let name = format!("{base}s");
                    self.page.counter(&name, decl.help, labels, sample.samples as f64);
                    continue;
                }
            };
            let name = format!("{base}_{what}");
            let about = About { name: &name, kind: MetricKind::Summary, unit: what, help: decl.help };
            self.page.add(&about, Part::Count, labels.clone(), sample.samples as f64);
            self.page.add(&about, Part::Sum, labels, sample.sum as f64 * factor);
        }
    }

    fn add_histograms(&mut self, p: &Place, decl: &Decl, h: &Histograms) {
        for t in h.tables.iter().filter(|t| t.scale != Scale::Log2FromZero) {
            let (what, unit, factor) = match t.what {
                "I/O time (1/1000s)" => ("io_time", "ms", 1e-3),
                "disk I/O size" => ("io_size", "bytes", 1.0),
                // Counted in pieces of 4 KiB.
                "extents" => ("io_size", "bytes", 4096.0),
                other => (other, "", 1.0),
            };
            let what = what.trim_end_matches("r/w").replace("I/Os", "ios").replace("bulk ", "bulk_rw");
            let n = named(p.prefix, &what, unit);
            let about = About { name: &n.name, kind: MetricKind::Histogram, unit: n.unit, help: decl.help };
            let sides = match &t.sides {
                Sides::ReadWrite(rw) => vec![("read", &rw[0]), ("write", &rw[1])],
                Sides::Modify(m) => vec![("modify", &**m)],
            };
            for (side, b) in sides.into_iter().filter(|(_, b)| b.total() > 0) {
                let labels = p.labels.with("operation", side);
                let mut sum = 0;
                for (bound, n) in b.counts(t.scale).take(b.bounded()) {
                    sum += n;
                    let le = format!("{:?}", bound as f64 * factor);
                    self.page.add(&about, Part::Bucket, labels.with("le", &le), sum as f64);
                }
                self.page.add(&about, Part::Bucket, labels.with("le", "+Inf"), b.total() as f64);
                self.page.add(&about, Part::Count, labels, b.total() as f64);
            }
        }
    }

    /// Whether a target serves, in words of `nacre status`, and how far its recovery is.
    pub fn add_target(&mut self, target: &str, state: &str, recovery: Option<(usize, u64)>) {
        let labels = self.base.with("component", component_of(target)).with("target", target);
        let is = |word: &str| f64::from(u8::from(state == word));
        let up = "1: the target serves and the MGS knows it.";
        self.page.gauge("nacre_target_up", up, labels.clone(), is("up"));
        let recovering = "1: the target waits for clients of before its restart.";
        self.page.gauge("nacre_target_recovering", recovering, labels.clone(), is("recovering"));
        let read_only = "1: its disk failed, it shows what it has and takes no changes.";
        self.page.gauge("nacre_target_read_only", read_only, labels.clone(), is("read-only"));
        let (missing, left_s) = recovery.unwrap_or((0, 0));
        let help = "Clients that recovery waits for.";
        self.page.gauge("nacre_target_recovery_missing", help, labels.clone(), missing as f64);
        let (name, help) = ("nacre_target_recovery_left_seconds", "How long missing clients are awaited.");
        let about = About { name, kind: MetricKind::Gauge, unit: "seconds", help };
        self.page.add(&about, Part::Value, labels, left_s as f64);
    }

    /// Whether the daemon or mount is healthy.
    pub fn add_health(&mut self, healthy: bool) {
        let value = f64::from(u8::from(healthy));
        let help = "1: healthy, as /health and health_check say.";
        let labels = self.base.with("program", self.alone);
        self.page.gauge("nacre_healthy", help, labels, value);
        let names = ["lustre_health_healthy", "lustre_health_check"];
        names.iter().for_each(|n| self.page.gauge(n, help, self.base.clone(), value));
    }

    /// The page, with those jobs that there is room for.
    pub fn finish(mut self) -> Page {
        self.jobs.sort_by(|(_, _, a), (_, _, b)| b.last.cmp(&a.last).then_with(|| a.id.cmp(&b.id)));
        let (mut ids, mut shown, mut more) = (Set::default(), 0, 0);
        for (labels, now, job) in &self.jobs {
            if shown >= JOB_TARGETS_MAX || !has_room(&mut ids, &job.id, JOBS_SHOWN_MAX) {
                more += 1;
                continue;
            }
            shown += 1;
            lustre::add_job(&mut self.page, labels, &job.id, &job.counters.samples(*now));
        }
        if more > 0 {
            self.page.leave_out("jobs", more);
        }
        self.page
    }
}

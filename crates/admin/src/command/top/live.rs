//! `nacre top`: what happens now, again and again; on a screen with keys, or as text or JSON.

use super::gather;
use super::rows::{Between, Look, Order, View, as_json, chosen};
use super::screen;
use super::text::{PLAIN_WIDTH, rate, table};
use crate::failure::Failure;
use crate::getopt::{self, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::size::human;
use crate::{output, say};
use model::Errno;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::time::Duration;
use world::sys;

const INTERVAL_DEFAULT_S: f64 = 2.0;
/// Shorter ones would show what the looking does.
pub const INTERVAL_MIN_S: f64 = 0.5;
pub const INTERVAL_MAX_S: f64 = 3600.0;

#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// `None`: all of them in JSON, and targets elsewhere.
    pub view: Option<View>,
    /// By the view's own order without one.
    pub sort: Option<(String, bool)>,
    pub filter: String,
    pub interval: Duration,
    /// `None`: until it is interrupted.
    pub looks: Option<u64>,
    batch: bool,
    json: bool,
}

/// The view of which a key orders; with `-` before it in the other direction.
pub fn order(view: View, sort: Option<&(String, bool)>) -> Option<Order> {
    let Some((key, reversed)) = sort else { return Some(view.order()) };
    let column = view.columns().iter().position(|c| c.key == key)?;
    Some(Order { column, reversed: *reversed })
}

fn sort_of(text: &str, view: Option<View>) -> Result<(String, bool), Failure> {
    let sort = match text.strip_prefix('-') {
        Some(key) => (key.to_string(), true),
        None => (text.to_string(), false),
    };
    let views = view.map_or(View::ALL.to_vec(), |v| vec![v]);
    if views.iter().any(|v| order(*v, Some(&sort)).is_some()) {
        return Ok(sort);
    }
    let keys = |v: &View| v.columns().iter().map(|c| c.key).collect::<Vec<_>>().join(", ");
    let all: Vec<String> = views.iter().map(|v| format!("{}: {}", v.name(), keys(v))).collect();
    Err(Failure::usage(format!("'{}' is no column to sort by. There are, of {}", sort.0, all.join("; of "))))
}

fn interval_of(text: &str) -> Result<Duration, Failure> {
    let s: Option<f64> = text.parse().ok().filter(|s| (INTERVAL_MIN_S..=INTERVAL_MAX_S).contains(s));
    let bad = || {
        Failure::usage(format!("bad value '{text}' of --interval: {INTERVAL_MIN_S} to {INTERVAL_MAX_S} s"))
    };
    s.map(Duration::from_secs_f64).ok_or_else(bad)
}

fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let options = [
        value('v', "view"),
        value('s', "sort"),
        value('f', "filter"),
        value('i', "interval"),
        value('n', "looks"),
        flag('b', "batch"),
        flag('\0', "json"),
    ];
    let p = getopt::parse(args, &options)?;
    if let Some(o) = p.operands.first() {
        let o = o.to_string_lossy();
        return Err(Failure::usage(format!(
            "'{o}' is nothing that it shows: nacre top jobs|users|groups|projects|dirs, or options only"
        )));
    }
    let view = p.value("view").map(|text| {
        let bad = || Failure::usage(format!("'{text}' is no view: targets, jobs, clients, latencies"));
        View::parse(text).ok_or_else(bad)
    });
    let view = view.transpose()?;
    let of = view.or((!p.has("json")).then_some(View::Targets));
    Ok(Options {
        view,
        sort: p.value("sort").map(|s| sort_of(s, of)).transpose()?,
        filter: p.value("filter").unwrap_or_default().to_string(),
        interval: p.value("interval").map_or(Ok(Duration::from_secs_f64(INTERVAL_DEFAULT_S)), interval_of)?,
        looks: p.number("looks", u64::MAX)?,
        batch: p.has("batch") || p.has("json") || !sys::terminal::is_there(),
        json: p.has("json"),
    })
}

/// `14:02:33`, in the host's time.
pub fn clock(wall_s: i64) -> String {
    match sys::local_time(wall_s) {
        Some(t) => format!("{:02}:{:02}:{:02}", t.hour, t.minute, t.second),
        None => wall_s.to_string(),
    }
}

/// What all targets do together, in a line; and who says nothing, in another.
pub fn summary(b: &Between<'_>, now: &Look) -> Vec<String> {
    let (t, per) = (b.together(), |n: u64| n as f64 / b.seconds);
    let bytes = |n: u64| human(per(n) as u64, 1024);
    let mut out = vec![format!(
        "{} targets: read {}/s, written {}/s; reads {}/s, writes {}/s, metadata {}/s",
        now.totals.len(),
        bytes(t.read_bytes),
        bytes(t.write_bytes),
        rate(per(t.reads.count)),
        rate(per(t.writes.count)),
        rate(per(t.metadata_all().count))
    )];
    if !now.missing.is_empty() {
        out.push(format!("no answer: {}", now.missing.join(", ")));
    }
    out
}

fn document(o: &Options, before: &Look, now: &Look) -> Value {
    let b = Between::new(before, now);
    let rows = |v: View| {
        let order = order(v, o.sort.as_ref()).unwrap_or(v.order());
        chosen(b.rows(v), order, &o.filter).iter().map(|r| as_json(v, r)).collect::<Vec<_>>()
    };
    let mut doc = Map::new();
    doc.insert("timestamp".into(), json!(now.wall_s));
    doc.insert("interval_s".into(), json!((b.seconds * 1000.0).round() / 1000.0));
    for v in views(o) {
        doc.insert(v.name().into(), json!(rows(v)));
    }
    doc.insert("missing".into(), json!(now.missing));
    Value::Object(doc)
}

fn print(o: &Options, before: &Look, now: &Look) {
    let b = Between::new(before, now);
    let view = o.view.unwrap_or(View::Targets);
    let order = order(view, o.sort.as_ref()).unwrap_or(view.order());
    say!("nacre top, {}: {}, the last {:.1} s", view.name(), clock(now.wall_s), b.seconds);
    summary(&b, now).iter().for_each(|l| say!("{l}"));
    say!("");
    table(view, &chosen(b.rows(view), order, &o.filter), order, PLAIN_WIDTH).iter().for_each(|l| say!("{l}"));
    say!("");
}

fn views(o: &Options) -> Vec<View> {
    match o.view {
        Some(v) => vec![v],
        None if o.json => View::ALL.to_vec(),
        None => vec![View::Targets],
    }
}

/// Nothing to look at is said; what comes later is shown when it is there.
fn first_look(views: &[View]) -> Result<Look, Failure> {
    let first = gather::look(views);
    if first.totals.is_empty() && first.facts.is_empty() && first.missing.is_empty() {
        let text = "no target is served on this host, and no Nacre file system is mounted here: run it on a \
                    server or where the file system is mounted";
        return Err(Failure::Op { text: text.into(), errno: Errno::ENOENT });
    }
    Ok(first)
}

fn watch(o: &Options, interrupt: &Interrupt) -> Result<(), Failure> {
    let views = views(o);
    let (mut before, mut done) = (first_look(&views)?, 0u64);
    while o.looks.is_none_or(|n| done < n) {
        interrupt.pause(o.interval);
        if interrupt.stopped() {
            break;
        }
        let now = gather::look(&views);
        if o.json {
            output::json(&document(o, &before, &now));
        } else {
            print(o, &before, &now);
        }
        output::flush();
        (before, done) = (now, done + 1);
    }
    Ok(())
}

/// The command: arguments behind `top` that name nothing else. Returns the exit status.
pub fn run(args: &[OsString]) -> Result<i32, Failure> {
    let o = parse(args)?;
    if sys::euid() != 0 {
        let text = "daemons and mounts answer root only: run it as root".to_string();
        return Err(Failure::Op { text, errno: Errno::EPERM });
    }
    if o.batch {
        let (r, signalled) = interrupt::guarded(|| {}, |i| watch(&o, i));
        return r.map(|()| signalled.unwrap_or(0));
    }
    let first = first_look(&[View::Targets])?;
    let (r, signalled) = interrupt::guarded(|| {}, |i| screen::run(&o, first, i));
    r.map(|()| signalled.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, Failure> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn refused(args: &[&str]) -> String {
        options(args).expect_err("it is wrong").to_string()
    }

    #[test]
    fn options_are_those_of_top_and_what_is_wrong_is_named() {
        let o = options(&["-b", "-n", "2", "--json", "-i", "0.5"]).unwrap();
        assert_eq!((o.looks, o.json, o.batch, o.interval), (Some(2), true, true, Duration::from_millis(500)));
        assert_eq!(views(&o), View::ALL);
        let o = options(&["--view", "jobs", "--sort=-read_bytes_per_s", "-f", "dd"]).unwrap();
        assert_eq!((views(&o), o.filter.as_str()), (vec![View::Jobs], "dd"));
        assert_eq!(order(View::Jobs, o.sort.as_ref()), Some(Order { column: 3, reversed: true }));
        assert_eq!(views(&options(&["-b"]).unwrap()), [View::Targets]);
        assert_eq!(refused(&["--view", "osts"]), "'osts' is no view: targets, jobs, clients, latencies");
        assert_eq!(refused(&["-i", "0.1"]), "bad value '0.1' of --interval: 0.5 to 3600 s");
        assert!(refused(&["-i", "nan"]).starts_with("bad value"));
        assert!(refused(&["nothing"]).starts_with("'nothing' is nothing that it shows"));
        assert_eq!(
            refused(&["-v", "jobs", "-s", "state"]),
            "'state' is no column to sort by. There are, of jobs: job_id, fsname, ops_per_s, read_bytes_per_s, \
             write_bytes_per_s, operations_per_s"
        );
        assert!(options(&["--json", "-s", "p99_us"]).is_ok(), "a column of one of the views");
    }

    #[test]
    fn a_document_has_all_views_and_who_said_nothing() {
        let look = |at_ns| Look { at_ns, wall_s: 7, missing: vec!["d-OST0001".into()], ..Look::default() };
        let o = options(&["--json"]).unwrap();
        assert_eq!(
            document(&o, &look(0), &look(2_000_000_000)),
            json!({"timestamp": 7, "interval_s": 2.0, "targets": [], "jobs": [], "clients": [],
                   "latencies": [], "missing": ["d-OST0001"]})
        );
        let (a, b) = (look(0), look(1_000_000_000));
        assert_eq!(
            summary(&Between::new(&a, &b), &b),
            ["0 targets: read 0/s, written 0/s; reads 0/s, writes 0/s, metadata 0/s", "no answer: d-OST0001"]
        );
    }
}

//! `nacre param`: what parameters mean, out of the one registry. Nobody is asked, so nothing has to run.

use crate::nacred::registry;
use admin::command::with_page;
use admin::failure::{Failure, FirstError};
use admin::getopt::{self, Parsed, flag};
use admin::{output, say};
use model::Errno;
use model::param::{Declared, Kind, Registry};
use serde_json::{Value, json};
use std::ffi::OsString;

const USAGE: &str = "\
usage: nacre param help NAME... [--json]
       nacre param list [PATTERN]... [--json]

What parameters and statistics mean that lctl get_param shows, on whatever
node. A star stands for a device: osc.*.max_dirty_mb. Nothing has to run.

help: meaning, unit, range, default, whether it can be set, and for good
(lctl set_param -P). NAME is whole, or its last part, and may be a pattern.
list: names, a line each; of all, or of those that fit.

      --json    one JSON document

exit status: 0, 2 no parameter has this name, 4 wrong usage
";

/// What a declaration is, in a word.
fn kind(k: &Kind) -> &'static str {
    match k {
        Kind::Flag => "flag",
        Kind::Number { .. } => "number",
        Kind::Words(_) => "words",
        Kind::Text => "text",
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Fields => "fields",
        Kind::Counters => "counters",
        Kind::Histogram => "histogram",
        Kind::Jobs => "jobs",
    }
}

fn row(d: &Declared) -> Value {
    let mut row = json!(d.decl.info(d.name()));
    row["kind"] = json!(kind(&d.decl.kind));
    row
}

/// What is known of one, a line each.
fn text(d: &Declared) -> String {
    let i = d.decl.info(d.name());
    let mut s = format!("{}\n  {}\n  kind: {}\n", i.name, i.help, kind(&d.decl.kind));
    let mut line = |what: &str, value: &str| {
        if !value.is_empty() {
            s += &format!("  {what}: {value}\n");
        }
    };
    line("unit", &i.unit);
    if let Some((min, max)) = i.range.filter(|r| *r != (0, u64::MAX)) {
        line("range", &format!("{min} to {max}"));
    }
    if let Kind::Number { step, .. } = d.decl.kind
        && step > 1
    {
        line("in steps of", &step.to_string());
    }
    line("default", &i.default);
    line(
        "can be set",
        match (i.writable, i.lasting) {
            (true, true) => "yes, with set_param -P for good",
            (true, false) => "yes, until the next start",
            (false, _) => "no",
        },
    );
    s
}

/// Those that a name selects: a whole one, or the last part of one. `ENOENT`: none; the nearest is named.
fn found(all: &Registry, name: &str) -> Result<Vec<Declared>, Failure> {
    let dotted = admin::command::get_param::dotted(name);
    let mut hits = all.known(&dotted);
    if !dotted.contains('.') {
        let last = |d: &&Declared| model::param::glob_match(&dotted, d.decl.name);
        hits = all.all().iter().filter(last).copied().collect();
    }
    hits.sort_by_key(Declared::name);
    if hits.is_empty() {
        if let Some(instead) = model::param::foreign(&dotted) {
            return Err(Failure::explained("cannot explain", name, Errno::EOPNOTSUPP, instead));
        }
        let hint = all.nearest(&dotted).map_or_else(String::new, |n| format!(": is it {n}?"));
        let why = format!("there is no parameter of this name{hint}");
        return Err(Failure::explained("cannot explain", name, Errno::ENOENT, &why));
    }
    Ok(hits)
}

fn show(verb: &str, p: &Parsed) -> Result<FirstError, Failure> {
    let all = registry::all();
    let (mut errors, mut hits) = (FirstError::default(), Vec::new());
    let names: Vec<String> = p.operands.iter().map(|o| o.to_string_lossy().into_owned()).collect();
    if names.is_empty() {
        hits = all.all().to_vec();
        hits.sort_by_key(Declared::name);
    }
    for n in &names {
        match found(&all, n) {
            Ok(some) => hits.extend(some),
            Err(f) => errors.report("nacre param", &f),
        }
    }
    match (p.has("json"), verb) {
        (true, _) => output::json(&hits.iter().map(row).collect()),
        (false, "list") => hits.iter().for_each(|d| say!("{}", d.name())),
        (false, _) => output::bytes(hits.iter().map(text).collect::<Vec<_>>().join("\n").as_bytes()),
    }
    Ok(errors)
}

fn command(args: &[OsString]) -> Result<FirstError, Failure> {
    let Some((verb, rest)) = args.split_first() else {
        return Err(Failure::usage("say what: nacre param help|list"));
    };
    let verb = verb.to_string_lossy();
    let p = getopt::parse(rest, &[flag('\0', "json")])?;
    match &*verb {
        "help" if p.operands.is_empty() => Err(Failure::usage("no parameter given: nacre param help NAME")),
        "help" | "list" => show(&verb, &p),
        other => Err(Failure::usage(format!("'{other}' is none: nacre param help|list"))),
    }
}

/// The command: arguments behind `param`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre param", USAGE), args, Failure::exit_code, |args| Ok(command(args)?.exit_code()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_explained_by_its_whole_name_or_its_last_part() {
        let all = registry::all();
        let one = found(&all, "osc.demo-OST0003*.max_rpcs_in_flight").unwrap();
        assert_eq!(one.iter().map(Declared::name).collect::<Vec<_>>(), ["osc.*.max_rpcs_in_flight"]);
        let text = text(&one[0]);
        for part in
            ["osc.*.max_rpcs_in_flight\n  ", "kind: number", "unit: requests", "range: 1 to ", "for good"]
        {
            assert!(text.contains(part), "'{part}' is not in\n{text}");
        }
        let last = found(&all, "max_rpcs_in_flight").unwrap();
        assert!(last.len() > 1 && last.iter().all(|d| d.decl.name == "max_rpcs_in_flight"));
        assert_eq!(found(&all, "osc/*/state").unwrap().len(), 1);
        let e = found(&all, "osc.*.max_rpc_in_flight").unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains("is it osc.*.max_rpcs_in_flight?"), "{e}");
    }

    #[test]
    fn every_parameter_has_a_row() {
        let all = registry::all();
        for d in all.all() {
            let row = row(d);
            let name = row["name"].as_str().unwrap();
            assert!(!row["help"].as_str().unwrap().is_empty() && row["kind"].is_string(), "{name}");
            assert!(row["writable"] == true || row["lasting"] == false, "{name} lasts only if it can be set");
            assert!(!text(d).is_empty());
        }
        let fault = found(&all, "jobid_this_session").unwrap();
        assert!(text(&fault[0]).contains("yes, until the next start"));
    }

    #[test]
    fn wrong_usage_is_said() {
        for wrong in [&[][..], &["help"], &["explain", "x"], &["list", "--yaml"]] {
            let words: Vec<OsString> = wrong.iter().map(OsString::from).collect();
            assert_eq!(main(&words), admin::EXIT_USAGE, "{wrong:?}");
        }
    }
}

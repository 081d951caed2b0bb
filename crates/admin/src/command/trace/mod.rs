//! `nacre trace`: what this host's daemons and mounts do, as it happens.

mod collector;
mod otlp;

use super::debug::{Line, read, sort};
use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Parsed, flag, value};
use crate::interrupt::{Interrupt, guarded};
use crate::local::{Process, show};
use crate::output;
use collector::Collector;
use model::Errno;
use model::debug::{SPANS, parse_mask, type_names};
use model::span::Finished;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use world::sys::{self, Deadline, files};

const USAGE: &str = "\
usage: nacre trace [-t TYPES] [-s SECONDS] [-o FILE] [--json] [TEXT]...
       nacre trace --otlp [-s SECONDS] [-o FILE | -u URL] [TEXT]...

Follows what the daemons and mounts of this host do until it is interrupted:
a line each for operations of programs, requests between mounts and servers,
locks, read-ahead and so on, with results and times. Only lines with one of
the TEXTs in them are shown (a FID, a name, an operation, a process id, ...).
Nothing is kept switched on behind it.

With --otlp each operation is a trace of OpenTelemetry: the operation of a
program, its requests, what servers do about these and their calls to disks, as
spans within each other, a document a line in the JSON form of its protocol.
Servers of other hosts have theirs there, under the same trace id. Only traces
with one of the TEXTs in a name of a span are shown. With --url they are sent
to a collector, by HTTP: http://HOST[:4318][/v1/traces].

  -t, --types TYPES      vfstrace rpctrace (the default), or others that
                         lctl debug_list types names, separated by commas; all
  -s, --seconds SECONDS  end after so long
  -o, --output FILE      added to this file
      --json             a document a line
      --otlp             traces of OpenTelemetry, a document a line
  -u, --url URL          traces are sent to the collector there

exit status: 0, or the errno of the first failure, 4 wrong usage
";

const DEFAULT: &str = "vfstrace rpctrace";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// What is younger waits for the next look: another process may still say what came before it.
const SETTLE: Duration = Duration::from_millis(100);

/// What is made of messages.
enum Form {
    Text,
    Json,
    Otlp(otlp::Traces),
}

/// Where it goes.
enum Sink {
    Screen,
    File(String, Box<dyn Write>),
    Collector(Collector),
}

impl Sink {
    fn of(p: &Parsed) -> Result<Sink, Failure> {
        if let Some(url) = p.value("url") {
            return Ok(Sink::Collector(Collector::parse(url)?));
        }
        let Some(f) = p.value("output") else { return Ok(Sink::Screen) };
        let file = files::open_log(Path::new(f)).map_err(|e| Failure::io("cannot open", f, e))?;
        Ok(Sink::File(f.into(), Box::new(file)))
    }

    fn take(&mut self, lines: &[String], i: &Interrupt) -> Result<(), Failure> {
        let text = || lines.iter().map(|l| format!("{l}\n")).collect::<String>();
        match self {
            Sink::Screen => {
                output::bytes(text().as_bytes());
                output::flush();
                Ok(())
            }
            Sink::File(f, file) => {
                file.write_all(text().as_bytes()).map_err(|e| Failure::io("cannot write", f, e))
            }
            Sink::Collector(c) => c.send(lines, i),
        }
    }
}

struct Follow {
    types: u32,
    texts: Vec<String>,
    form: Form,
    /// Number of the last message of each process.
    last: BTreeMap<String, u64>,
    /// Read, and not shown yet.
    waiting: Vec<Line>,
}

impl Follow {
    fn is_wanted(&self, text: &str) -> bool {
        self.texts.is_empty() || self.texts.iter().any(|t| text.contains(t))
    }

    /// Asks all; those that came since the last time are asked for what they do from now on.
    fn look(&mut self, all: &[Process]) -> u64 {
        let first = self.last.is_empty();
        let asked: Vec<(&Process, Option<u64>)> =
            all.iter().map(|l| (l, self.last.get(&l.name).copied())).collect();
        let answers = sys::at_once(&asked, |(l, after)| read(l, after.unwrap_or(0), self.types));
        let mut gone = 0;
        for ((l, after), answer) in asked.into_iter().zip(answers) {
            // One that ended is not there at the next look.
            let Ok((lines, lost)) = answer else { continue };
            gone += lost;
            self.last.insert(l.name.clone(), lines.last().map_or(after.unwrap_or(0), |x| x.record.seq));
            if after.is_some() || !first {
                self.waiting.extend(lines);
            }
        }
        gone
    }

    /// The lines that are to be shown by now.
    fn due(&mut self, all: bool) -> Vec<String> {
        sort(&mut self.waiting);
        let now = sys::wall_nanos();
        let old = now.saturating_sub(SETTLE.as_nanos());
        let age =
            |l: &Line| u128::try_from(l.record.at.0).unwrap_or(0) * 1_000_000_000 + u128::from(l.record.at.1);
        let n = if all { self.waiting.len() } else { self.waiting.partition_point(|l| age(l) <= old) };
        let due: Vec<Line> = self.waiting.drain(..n).collect();
        if let Form::Otlp(traces) = &mut self.form {
            for l in due {
                // What was said with the types that are always kept is none.
                if let Some(span) = Finished::parse(&l.record.text) {
                    traces.add(otlp::Told { process: l.process, span });
                }
            }
            let whole = traces.due(now, all);
            let shown = whole.iter().filter(|spans| spans.iter().any(|t| self.is_wanted(&t.span.name)));
            let host = sys::hostname();
            return shown.map(|spans| otlp::document(spans, &host).to_string()).collect();
        }
        let as_json = matches!(self.form, Form::Json);
        let shown = due.iter().filter(|l| self.is_wanted(&l.text()));
        shown.map(|l| if as_json { l.json().to_string() } else { l.text() }).collect()
    }
}

fn follow(p: &Parsed, types: u32, form: Form, i: &Interrupt) -> Result<(), Failure> {
    let end = p.number("seconds", 1 << 20)?.map(|s| Deadline::after(Duration::from_secs(s)));
    let mut sink = Sink::of(p)?;
    let texts = p.operands.iter().map(|o| self::show(o)).collect();
    let mut f = Follow { types, texts, form, last: BTreeMap::new(), waiting: Vec::new() };
    f.look(&Process::require("cannot follow", "debug log")?);
    loop {
        i.pause(LOOK);
        let over = i.stopped() || end.as_ref().is_some_and(Deadline::passed);
        let lost = f.look(&Process::all());
        if lost > 0 {
            eprintln!(
                "nacre trace: {lost} messages were dropped before they were read (lctl set_param debug_mb=)"
            );
        }
        sink.take(&f.due(over), i)?;
        if over {
            if let Form::Otlp(t) = &f.form
                && t.dropped > 0
            {
                eprintln!("nacre trace: {} spans had no room: say which operations with TEXT", t.dropped);
            }
            return Ok(());
        }
    }
}

fn command(args: &[OsString]) -> Result<i32, Failure> {
    let opts = [
        value('t', "types"),
        value('s', "seconds"),
        value('o', "output"),
        flag('\0', "json"),
        flag('\0', "otlp"),
        value('u', "url"),
    ];
    let p = getopt::parse(args, &opts)?;
    if p.has("otlp") {
        p.only(&["otlp", "seconds", "output", "url"], "--otlp")?;
        if p.has("url") && p.has("output") {
            return Err(Failure::usage("either --output or --url: traces go to one place"));
        }
        let types = parse_mask(SPANS, type_names(), 0).map_err(|e| Failure::usage(e.to_string()))?;
        let form = Form::Otlp(otlp::Traces::default());
        let (done, _) = guarded(|| {}, |i| follow(&p, types, form, i));
        return done.map(|()| 0);
    }
    if p.has("url") {
        return Err(Failure::usage("--url is for traces of OpenTelemetry: with --otlp"));
    }
    let wanted = p.value("types").unwrap_or(DEFAULT);
    let types = parse_mask(wanted, type_names(), 0).map_err(|_| {
        let known: Vec<&str> = type_names().collect();
        Failure::usage(format!("'{wanted}': there are {}", known.join(" ")))
    })?;
    if types == 0 {
        return Err(Failure::explained(
            "cannot follow",
            wanted,
            Errno::EINVAL,
            "these say nothing by themselves",
        ));
    }
    let form = if p.has("json") { Form::Json } else { Form::Text };
    let (done, _) = guarded(|| {}, |i| follow(&p, types, form, i));
    done.map(|()| 0)
}

/// The command: arguments behind `trace`.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre trace", USAGE), args, Failure::exit_code, command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing;

    fn refused(args: &[&str]) -> String {
        testing::refused(command, args)
    }

    #[test]
    fn what_is_typed_wrongly_is_refused_with_what_there_is() {
        assert!(refused(&["-t", "rpc"]).contains("net rpctrace dlmtrace"), "{}", refused(&["-t", "rpc"]));
        assert!(refused(&["-t", "warning"]).contains("say nothing by themselves"));
        assert!(refused(&["--for", "3"]).contains("--for"));
        assert!(refused(&["--url", "http://h"]).contains("with --otlp"));
        assert!(refused(&["--otlp", "-u", "http://h", "-o", "f"]).contains("one place"));
    }
}

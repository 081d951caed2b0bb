//! `nacre bench`: the load generators that sites use, built in, for any mounted directory of any file system.
//! Plain system calls by processes of their own; nothing here knows the client.
//!
//! `survey` measures a new installation from its disks upwards (`nacre survey`).
//! `args` reads options, `ior`, `mdtest` and `io500` plan phases, `crew` runs them with the processes of
//! `worker/`, `report` and `plot` show what was measured.

mod args;
mod bars;
mod crew;
mod heat;
mod hist;
mod inventory;
mod io500;
mod ior;
mod iozone;
mod layout;
mod link;
mod mdtest;
mod pattern;
mod plot;
mod report;
mod run;
pub mod survey;
mod sweep;
mod worker;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use args::{Common, Io500Args, IorArgs, IozoneArgs, MdtestArgs};
use clap::Parser;
use crew::Stop;
use run::Row;
use std::ffi::OsString;
use std::time::Duration;
use world::sys::load;
use world::sys::process::{self, SIGHUP, SIGINT, SIGTERM};

const EXIT_USAGE: i32 = 2;
const EXIT_INTERRUPTED: i32 = 130;

const HELP: &str = "\
Measures any mounted directory of any file system.

usage: nacre bench [-np N] COMMAND OPTIONS

  ior        large files: one for each process or one for all, streams, records, random
  iozone     large files record by record: write, rewrite, read, reread, random, backward, stride, mixed
  mdtest     many small files and directories: create, stat, read, remove
  io500      a sequence like that of IO500, with its score

'nacre bench COMMAND --help' lists options. Those of IOR, IOzone and mdtest have the same letters and meaning here, and
-np N stands where mpirun has it: where a script runs 'mpirun -np 4 ior ...', 'nacre bench -np 4 ior ...' does.
";

/// Lets Ctrl-C end a run in order: processes killed, files removed. A second one ends this program at once.
fn handle_signals(stop: &Stop) -> Result<()> {
    let signals = [SIGINT, SIGTERM, SIGHUP];
    process::block_signals(&signals);
    let stop = stop.clone();
    world::sys::thread("signals", move || {
        loop {
            if process::wait_signal(&signals, Duration::from_secs(3600)).is_none() {
                continue;
            }
            if stop.wanted() {
                eprintln!("nacre bench: ended at once; files may be left behind");
                load::exit(EXIT_INTERRUPTED);
            }
            eprintln!("nacre bench: interrupted; cleaning up (once more: end at once)");
            stop.now();
        }
    })?;
    Ok(())
}

/// `mpirun`'s way to say how many, before the command.
fn split_procs(args: &[OsString]) -> (Vec<OsString>, &[OsString]) {
    let mut rest = args;
    let mut procs = Vec::new();
    while let Some(first) = rest.first().and_then(|a| a.to_str()) {
        match first {
            "-np" | "--np" | "-n" if rest.len() > 1 => {
                procs = vec![OsString::from("--procs"), rest[1].clone()];
                rest = &rest[2..];
            }
            "--oversubscribe" | "--allow-run-as-root" => rest = &rest[1..],
            _ => break,
        }
    }
    (procs, rest)
}

/// The command: arguments behind `bench`, exit status.
pub fn main(args: &[OsString]) -> i32 {
    let (procs, rest) = split_procs(args);
    let Some(command) = rest.first().map(|a| a.to_string_lossy().into_owned()) else {
        eprint!("{HELP}");
        return EXIT_USAGE;
    };
    let args: Vec<OsString> = procs.into_iter().chain(rest[1..].iter().cloned()).collect();
    match command.as_str() {
        "ior" | "IOR" => with(&args, ior_command),
        "iozone" => with(&args, iozone_command),
        "mdtest" => with(&args, mdtest_command),
        "io500" => with(&args, io500_command),
        "worker" => worker::main(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            0
        }
        other => {
            eprintln!("nacre bench: unknown command '{other}'\n\n{HELP}");
            EXIT_USAGE
        }
    }
}

fn with<A: Parser>(args: &[OsString], command: fn(A, &Stop) -> Result<Vec<Row>>) -> i32 {
    let all = std::iter::once(OsString::from("nacre bench")).chain(args.iter().cloned());
    let parsed = match A::try_parse_from(all) {
        Ok(a) => a,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    let stop = Stop::default();
    let done = handle_signals(&stop).and_then(|()| command(parsed, &stop));
    admin::output::flush();
    match done {
        Ok(rows) => i32::from(rows.iter().any(|r| r.wrong > 0)),
        Err(_) if stop.wanted() => EXIT_INTERRUPTED,
        Err(e) => {
            eprintln!("nacre bench: {e:#}");
            1
        }
    }
}

/// The document and the plot, when they are wanted.
fn finish(
    name: &str,
    c: &Common,
    options: &impl serde::Serialize,
    rows: &[Row],
    score: Option<io500::Score>,
) -> Result<()> {
    if c.json {
        admin::output::json(&report::document(name, options, rows, score));
    }
    if let Some(p) = &c.plot {
        let chart = sweep::chart(&format!("nacre bench {name}"), c, rows);
        let written = world::sys::files::replace(p, plot::svg(&chart).as_bytes());
        written.with_context(|| format!("write '{}'", p.display()))?;
    }
    Ok(())
}

fn ior_command(a: IorArgs, stop: &Stop) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (label, one) in sweep::ior(&a)? {
        let one = one.settle()?;
        let got = ior::run(&one, stop, label)?;
        report::ior_summary(&one, &got);
        rows.extend(got);
    }
    finish("ior", &a.common, &a, &rows, None)?;
    Ok(rows)
}

fn iozone_command(a: IozoneArgs, stop: &Stop) -> Result<Vec<Row>> {
    if a.common.sweep.is_some() {
        anyhow::bail!("--sweep is for ior and mdtest");
    }
    let a = a.settle()?;
    let rows = iozone::run(&a, stop)?;
    finish("iozone", &a.common, &a, &rows, None)?;
    Ok(rows)
}

fn mdtest_command(a: MdtestArgs, stop: &Stop) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (label, one) in sweep::mdtest(&a)? {
        rows.extend(mdtest::run(&one.settle()?, stop, label)?);
    }
    finish("mdtest", &a.common, &a, &rows, None)?;
    Ok(rows)
}

fn io500_command(a: Io500Args, stop: &Stop) -> Result<Vec<Row>> {
    if a.common.sweep.is_some() {
        anyhow::bail!("--sweep is for ior and mdtest");
    }
    let a = a.settle()?;
    let rows = io500::run(&a, stop)?;
    finish("io500", &a.common, &a, &rows, Some(io500::score(&rows)))?;
    Ok(rows)
}

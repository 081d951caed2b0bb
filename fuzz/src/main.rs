//! Fuzzers, one target a decoder: bytes from the network, the disk, the kernel and the user.
//!
//! `main` starts one process a target and watches it; a process (`engine`) mutates inputs (`mutate`) and
//! keeps those that reach new code (`coverage`). A panic, an allocation beyond all bounds (`alloc`), a hang
//! or a killed process is a crash; the input is kept in `artifacts/`. The same seed makes the same inputs.
//! This program is no part of the file system, so the `world` boundary does not hold here.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod alloc;
mod coverage;
mod engine;
mod mutate;
mod target;
mod watch;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// What the command line asks for.
pub struct Options {
    /// For each target.
    pub seconds: u64,
    pub seed: u64,
    /// Only this target.
    pub only: Option<String>,
    /// Runs one input instead.
    pub replay: Option<String>,
    /// Where `corpus/` and `artifacts/` lie.
    pub folder: String,
    /// Processes at a time.
    pub jobs: usize,
    /// This is the process of one target.
    pub child: bool,
}

const USAGE: &str =
    "usage: fuzz [--seconds N] [--seed N] [--only TARGET] [--replay FILE] [--folder DIR] [--jobs N] [--list]";

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1).collect()) {
        Ok(Some(o)) => o,
        Ok(None) => return ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fuzz: {e}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let run =
        if options.child || options.replay.is_some() { engine::run(&options) } else { watch::run(&options) };
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("fuzz: {e}");
            ExitCode::from(2)
        }
    }
}

fn parse(args: Vec<String>) -> Result<Option<Options>, String> {
    let mut o = Options {
        seconds: 60,
        seed: 1,
        only: None,
        replay: None,
        folder: ".".into(),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        child: false,
    };
    let mut args = args.into_iter();
    while let Some(a) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{a} needs a value"));
        let number = |v: String| v.parse::<u64>().map_err(|_| format!("'{v}' is no number"));
        match a.as_str() {
            "--seconds" => o.seconds = number(value()?)?,
            "--seed" => o.seed = number(value()?)?,
            "--jobs" => o.jobs = number(value()?)?.max(1) as usize,
            "--only" => o.only = Some(value()?),
            "--replay" => o.replay = Some(value()?),
            "--folder" => o.folder = value()?,
            "--child" => o.child = true,
            "--list" => {
                for t in target::ALL {
                    println!("{:<20} {}", t.name, t.what);
                }
                return Ok(None);
            }
            _ => return Err(format!("unknown option '{a}'")),
        }
    }
    if let Some(only) = &o.only
        && target::find(only).is_none()
    {
        return Err(format!("no target '{only}' (--list shows them)"));
    }
    if (o.child || o.replay.is_some()) && o.only.is_none() {
        return Err("--replay needs --only TARGET".into());
    }
    Ok(Some(o))
}

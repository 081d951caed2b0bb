//! Runs seeds of the cluster simulation; the last line sums up. A seed that finds something prints the command
//! that runs it again.

use model::planted::{self, Bug};
use sim::scenario::{Options, Report, run};
use std::collections::BTreeMap;
use std::process::ExitCode;

const USAGE: &str = "usage: nacre-sim [--seeds N] [--first X] [--ops N] [--crashes N] [--actors N] [--mounts N] [--log] [--json] [--keep-going] [--hashes] [--plant BUG]
  --seeds N    seeds to run (default 20)         --first X   the first one (default 1)
  --ops N      operations of a seed (2000)       --crashes N crashes of servers, at least (5)
  --actors N   concurrent actors (3)             --mounts N  clients (3)
  --log        what happened, if a seed fails    --json      the summary as JSON
  --keep-going also after a violation              --hashes    the trace hash of each seed
  --plant BUG  switches a bug on, to see it found";

struct Args {
    seeds: u64,
    first: u64,
    opt: Options,
    json: bool,
    keep_going: bool,
    hashes: bool,
}

fn parse() -> Result<Args, String> {
    let mut a =
        Args { seeds: 20, first: 1, opt: Options::new(0), json: false, keep_going: false, hashes: false };
    let mut it = std::env::args().skip(1);
    while let Some(arg) = it.next() {
        let mut number = || {
            let v = it.next().ok_or_else(|| format!("{arg} wants a number"))?;
            v.parse::<u64>().map_err(|_| format!("{arg} {v}: not a number"))
        };
        match arg.as_str() {
            "--seeds" => a.seeds = number()?,
            "--first" => a.first = number()?,
            "--ops" => a.opt.ops = number()?.max(1),
            "--crashes" => a.opt.crashes = number()? as usize,
            "--actors" => a.opt.actors = (number()? as usize).max(1),
            "--mounts" => a.opt.mounts = number()?.clamp(1, 200) as u8,
            "--log" => a.opt.log = true,
            "--json" => a.json = true,
            "--keep-going" => a.keep_going = true,
            "--hashes" => a.hashes = true,
            "--plant" => {
                let name = it.next().unwrap_or_default();
                let bug = Bug::ALL.iter().find(|b| format!("{b:?}") == name);
                planted::plant(Some(*bug.ok_or_else(|| format!("--plant {name}: one of {:?}", Bug::ALL))?));
            }
            _ => return Err(USAGE.to_string()),
        }
    }
    Ok(a)
}

fn again(o: &Options) -> String {
    format!(
        "nacre-sim --first {} --seeds 1 --ops {} --crashes {} --actors {} --mounts {} --log",
        o.seed, o.ops, o.crashes, o.actors, o.mounts
    )
}

/// One seed; a panic in it is a violation like any other.
fn run_one(o: &Options) -> Result<Report, String> {
    std::panic::catch_unwind(|| run(o)).map_err(|p| {
        let text = p
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| p.downcast_ref::<&str>().map(|s| (*s).to_string()));
        format!("panic: {}", text.unwrap_or_default())
    })
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(a) => a,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    let (mut seeds, mut ops, mut steps, mut violations) = (0u64, 0u64, 0u64, 0u64);
    let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in args.first..args.first + args.seeds {
        let o = Options { seed, ..args.opt.clone() };
        seeds += 1;
        let (violation, log) = match run_one(&o) {
            Ok(r) => {
                ops += r.ops;
                if args.hashes {
                    println!(
                        "seed {seed}: trace {:016x}, {} steps, {} s",
                        r.trace_hash,
                        r.steps,
                        r.virtual_ns / 1_000_000_000
                    );
                }
                steps += r.steps;
                for (k, v) in &r.faults {
                    *faults.entry(k).or_insert(0) += v;
                }
                (r.violation, r.log)
            }
            Err(p) => (Some(p), Vec::new()),
        };
        if let Some(v) = violation {
            violations += 1;
            for line in log {
                println!("{line}");
            }
            println!("seed {seed}: VIOLATION: {v}");
            println!("seed {seed}: again with: {}", again(&o));
            if !args.keep_going {
                break;
            }
        }
    }
    let list = |sep: &str, quote: &str, eq: &str| {
        faults.iter().map(|(k, v)| format!("{quote}{k}{quote}{eq}{v}")).collect::<Vec<_>>().join(sep)
    };
    if args.json {
        println!(
            "{{\"seeds\":{seeds},\"operations\":{ops},\"steps\":{steps},\"violations\":{violations},\"faults\":{{{}}}}}",
            list(",", "\"", ":")
        );
    } else {
        println!(
            "{seeds} seeds, {ops} operations, {steps} steps, faults: {}; {violations} violations",
            list(" ", "", "=")
        );
    }
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

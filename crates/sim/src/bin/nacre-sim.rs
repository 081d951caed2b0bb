//! Runs seeds of the cluster simulation, or walks over the crash points of small workloads; the last lines
//! sum up. A seed that finds something is run again with fewer faults and operations, and the command that
//! repeats the smallest failure is printed.

use model::planted::{self, Bug};
use sim::faults::{CAMPAIGN_MIN_SEEDS, FAULTS};
use sim::golden;
use sim::hostile;
use sim::minimise::{command, minimise, run_caught};
use sim::points::{self, Plan};
use sim::scenario::Options;
use sim::shared::{HISTORIES, UNDECIDED};
use std::collections::BTreeMap;
use std::process::ExitCode;
use world::real::Runtime;
use world::sys::files;
use world::{Instant, World};

const USAGE: &str = "\
nacre-sim runs a whole file system in one thread on virtual time, with faults, and compares it with a model.

usage: nacre-sim [OPTIONS]
       nacre-sim --golden DIR
       nacre-sim --hostile [--seeds N] [--first X] [--seconds S] [--ops N] [--stop N] [--log]
       nacre-sim --crash-points [--length N] [--one-in A,B,C] [--stride N] [--variants N] [--part I/N]

Seeds:
  --seeds N       seeds to run (default 20)        --first X     the first one (default 1)
  --ops N         operations of a seed (2000)      --crashes N   crashes of servers, at least (5)
  --actors N      concurrent actors (3)            --mounts N    clients (3)
  --skip A,B,...  faults of the plan that do not happen, by number
  --stop N        ends after so many operations; the plan is made for --ops
  --seconds S     no further seed after so much time
  --keep-going    also after a violation           --no-minimise a violation as it is
  --log           what happened, if a seed fails   --hashes      the trace hash of each seed
  --plant BUG     switches a bug on, to see it found
  --once N        the planted bug happens once, the N-th time its place is passed
  --json          the summary as JSON

From 100 seeds on every fault of the list must have fired at least once, and at most 5,000 in a million histories may be undecided.

Hostile peers: arbitrary messages of every kind with arbitrary flags on sessions with every target, an honest client beside them.
  --ops N         frames of a seed (600)           --stop N      ends the hostile part after so many
  --seconds S     no further seed after so much time

Crash points: a node ends at every await point of every workload of one and two operations, and of a sample of three.
  --length N      operations of a workload at most (default 2)
  --one-in A,B,C  of the workloads of one, two and three operations one in so many (1,1,1)
  --stride N      of their points every so many-th (1)
  --variants N    orders of events, and so images, of each (1)
  --part I/N      the I-th of N equal parts, for several processes (0/1)

Golden images (docs/formats/versions.md):
  --golden DIR    makes the images of the present formats in DIR, and writes down what is in them

Exit: 0 nothing found, 1 a violation or a fault that never fired, 2 wrong usage.";

struct Args {
    seeds: u64,
    first: u64,
    opt: Options,
    json: bool,
    keep_going: bool,
    minimise: bool,
    hashes: bool,
    points: Option<Plan>,
    golden: Option<String>,
    hostile: bool,
    seconds: Option<u64>,
    frames: u64,
    plant: Option<(Bug, u64)>,
}

/// Histories of a campaign, of a million, that may have more orders than can be tried.
const UNDECIDED_MAX_PPM: u64 = 5000;

/// Numbers between commas, or another sign.
fn numbers(text: &str, sign: char) -> Result<Vec<u64>, String> {
    let one = |s: &str| s.parse::<u64>().map_err(|_| format!("'{text}': '{s}' is not a number"));
    text.split(sign).map(one).collect()
}

/// `None`: only the words of `--help` are wanted.
fn parse() -> Result<Option<Args>, String> {
    let mut a = Args {
        seeds: 20,
        first: 1,
        opt: Options::new(0),
        json: false,
        keep_going: false,
        minimise: true,
        hashes: false,
        points: None,
        golden: None,
        hostile: false,
        seconds: None,
        frames: 600,
        plant: None,
    };
    let mut plan = Plan { length: 2, one_in: [1; 3], stride: 1, variants: 1, part: (0, 1) };
    let mut it = std::env::args().skip(1);
    while let Some(arg) = it.next() {
        let mut word = || it.next().ok_or_else(|| format!("{arg} wants a value; see --help"));
        let mut number = || {
            let v = word()?;
            v.parse::<u64>().map_err(|_| format!("{arg} {v}: not a number"))
        };
        match arg.as_str() {
            "--seeds" => a.seeds = number()?,
            "--first" => a.first = number()?,
            "--ops" => {
                a.opt.ops = number()?.max(1);
                a.frames = a.opt.ops;
            }
            "--hostile" => a.hostile = true,
            "--seconds" => a.seconds = Some(number()?),
            "--crashes" => a.opt.crashes = number()? as usize,
            "--actors" => a.opt.actors = (number()? as usize).max(1),
            "--mounts" => a.opt.mounts = number()?.clamp(1, 200) as u8,
            "--stop" => a.opt.stop = Some(number()?),
            "--skip" => a.opt.skip = numbers(&word()?, ',')?.into_iter().map(|n| n as usize).collect(),
            "--log" => a.opt.log = true,
            "--json" => a.json = true,
            "--keep-going" => a.keep_going = true,
            "--no-minimise" => a.minimise = false,
            "--hashes" => a.hashes = true,
            "--golden" => a.golden = Some(word()?),
            "--crash-points" => a.points = Some(plan.clone()),
            "--length" => plan.length = number()?.clamp(1, 3) as usize,
            "--stride" => plan.stride = number()?.max(1),
            "--variants" => plan.variants = number()?.max(1),
            "--one-in" => {
                let n = numbers(&word()?, ',')?;
                plan.one_in = [0, 1, 2].map(|i| n.get(i).copied().unwrap_or(1).max(1));
            }
            "--part" => {
                let text = word()?;
                let n = numbers(&text, '/')?;
                let [i, of] = n[..] else { return Err(format!("--part {text}: want I/N")) };
                plan.part = (i, of.max(1));
            }
            "--plant" => {
                let name = word()?;
                let bug = Bug::ALL.iter().find(|b| format!("{b:?}") == name);
                let bug = *bug.ok_or_else(|| format!("--plant {name}: one of {:?}", Bug::ALL))?;
                a.plant = Some((bug, a.plant.map_or(0, |p| p.1)));
            }
            "--once" => {
                let nth = number()?.max(1);
                a.plant = Some((a.plant.ok_or("--once: of which bug? --plant comes first")?.0, nth));
            }
            "--help" | "-h" => {
                return Ok(None);
            }
            _ => return Err(format!("unknown option {arg}\n\n{USAGE}")),
        }
    }
    a.points = a.points.map(|_| plan);
    Ok(Some(a))
}

/// What all seeds came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    ops: u64,
    steps: u64,
    virtual_ns: u64,
    violations: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl Sum {
    fn fired(&self, fault: &str) -> u64 {
        self.faults.get(fault).copied().unwrap_or(0)
    }

    fn hours(&self) -> f64 {
        self.virtual_ns as f64 / 3.6e12
    }

    /// Faults that a campaign of this size should have met and did not.
    fn never_fired(&self) -> Vec<&'static str> {
        let campaign = self.seeds >= CAMPAIGN_MIN_SEEDS;
        FAULTS.iter().map(|f| f.0).filter(|f| campaign && self.fired(f) == 0).collect()
    }

    /// How many histories in a million were not decided, if those are too many.
    fn undecided(&self) -> Option<u64> {
        let (all, undecided) = (self.fired(HISTORIES), self.fired(UNDECIDED));
        let ppm = undecided * 1_000_000 / all.max(1);
        (self.seeds >= CAMPAIGN_MIN_SEEDS && ppm > UNDECIDED_MAX_PPM).then_some(ppm)
    }

    fn print_json(&self, never: &[&str]) {
        let faults: Vec<String> = self.faults.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
        let never: Vec<String> = never.iter().map(|n| format!("\"{n}\"")).collect();
        println!(
            "{{\"seeds\":{},\"operations\":{},\"steps\":{},\"cluster_hours\":{:.3},\"violations\":{},\"faults\":{{{}}},\"never_fired\":[{}]}}",
            self.seeds,
            self.ops,
            self.steps,
            self.hours(),
            self.violations,
            faults.join(","),
            never.join(",")
        );
    }

    fn print(&self, never: &[&str]) {
        println!("{:<28}{:>9}  what it is", "fault", "fired");
        for (name, what) in FAULTS {
            println!("{name:<28}{:>9}  {what}", self.fired(name));
        }
        let other = self.faults.iter().filter(|(k, _)| !FAULTS.iter().any(|f| f.0 == **k));
        let other: Vec<String> = other.map(|(k, v)| format!("{k}={v}")).collect();
        println!("beside these: {}", other.join(" "));
        for n in never {
            println!("NEVER FIRED: {n}");
        }
        println!(
            "{} seeds, {} operations, {} steps, {:.2} cluster-hours simulated, {} faults never fired; {} violations",
            self.seeds,
            self.ops,
            self.steps,
            self.hours(),
            never.len(),
            self.violations
        );
    }
}

fn run_seeds(args: &Args, enough: &Enough) -> ExitCode {
    let mut sum = Sum::default();
    for seed in args.first..args.first.saturating_add(args.seeds) {
        if enough.reached() {
            if !args.json {
                println!("The time is over: {} of {} seeds.", sum.seeds, args.seeds);
            }
            break;
        }
        let o = Options { seed, ..args.opt.clone() };
        sum.seeds += 1;
        if let Some((bug, nth)) = args.plant {
            planted::plant_once(bug, nth);
        }
        let (violation, log, planned) = match run_caught(&o) {
            Ok(r) => {
                sum.ops += r.ops;
                sum.steps += r.steps;
                sum.virtual_ns += r.virtual_ns;
                if args.hashes {
                    let seconds = r.virtual_ns / 1_000_000_000;
                    println!("seed {seed}: trace {:016x}, {} steps, {seconds} s", r.trace_hash, r.steps);
                }
                for (k, v) in &r.faults {
                    *sum.faults.entry(k).or_insert(0) += v;
                }
                (r.violation, r.log, r.planned)
            }
            Err(p) => (Some(p), Vec::new(), 64),
        };
        let Some(v) = violation else { continue };
        sum.violations += 1;
        log.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: VIOLATION: {v}");
        println!("seed {seed}: again with: {}", command(&o));
        if args.minimise && !o.log {
            let (small, how) = minimise(&o, planned, v);
            println!("seed {seed}: the smallest run that fails: {how}");
            println!("seed {seed}: again with: {}", command(&small));
        }
        if !args.keep_going {
            break;
        }
    }
    let never = sum.never_fired();
    let undecided = sum.undecided();
    if let Some(ppm) = undecided {
        println!("UNDECIDED: {ppm} of a million histories, at most {UNDECIDED_MAX_PPM} may be");
    }
    if args.json {
        sum.print_json(&never)
    } else {
        sum.print(&never)
    }
    if sum.violations == 0 && never.is_empty() && undecided.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// When no further seed is begun: after `--seconds`.
struct Enough(Option<(u64, Instant, World, Runtime)>);

impl Enough {
    fn after(seconds: Option<u64>) -> std::io::Result<Enough> {
        let Some(seconds) = seconds else { return Ok(Enough(None)) };
        let (clock, runtime) = world::real::start(1)?;
        Ok(Enough(Some((seconds, clock.now(), clock, runtime))))
    }

    fn reached(&self) -> bool {
        let Enough(Some((seconds, start, clock, _))) = self else { return false };
        clock.now().since(*start).as_secs() >= *seconds
    }
}

fn run_hostile(args: &Args, enough: &Enough) -> ExitCode {
    let (mut seeds, mut bad, mut sum) = (0, 0, hostile::Sum::default());
    for seed in args.first..args.first.saturating_add(args.seeds) {
        if enough.reached() {
            break;
        }
        seeds += 1;
        let o = hostile::Options { seed, frames: args.frames, stop: args.opt.stop, log: args.opt.log };
        let found = match hostile::run(&o) {
            Ok(s) => {
                sum.done += s.done;
                sum.refused += s.refused;
                sum.honest += s.honest;
                continue;
            }
            Err(f) => f,
        };
        bad += 1;
        println!("seed {seed}: FOUND: {}", found.what);
        println!("seed {seed}: again with: {}", hostile::command(&o));
        let (small, found) = if args.minimise { hostile::minimise(&o, found) } else { (o, found) };
        found.log.iter().for_each(|l| println!("{l}"));
        found.frames.iter().for_each(|f| println!("  {f}"));
        println!("seed {seed}: the shortest run that finds something: {}", found.what);
        println!("seed {seed}: again with: {}", hostile::command(&small));
        if !args.keep_going {
            break;
        }
    }
    println!(
        "{seeds} seeds of {} hostile frames: {} requests were done, {} refused; {} operations of honest clients beside them; {bad} seeds found something",
        args.frames, sum.done, sum.refused, sum.honest
    );
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_points(plan: &Plan, json: bool) -> ExitCode {
    let s = points::walk(plan, |s| {
        if !json && s.workloads % 50 == 0 {
            println!("{}", points::line(s));
        }
    });
    s.violations.iter().for_each(|v| println!("VIOLATION: {v}"));
    if json {
        println!(
            "{{\"workloads\":{},\"points\":{},\"images\":{},\"cluster_hours\":{:.3},\"violations\":{}}}",
            s.workloads,
            s.points,
            s.images,
            s.virtual_ns as f64 / 3.6e12,
            s.violations.len()
        );
    } else {
        println!("{:.2} cluster-hours simulated", s.virtual_ns as f64 / 3.6e12);
        println!("{}", points::line(&s));
    }
    if s.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn make_golden(dir: &str) -> anyhow::Result<()> {
    let images = golden::make()?;
    files::create_dir_all(dir)?;
    for (name, image) in golden::NAMES.iter().zip(&images) {
        files::replace(format!("{dir}/{name}"), image)?;
    }
    Ok(files::replace(format!("{dir}/contents.txt"), golden::describe(&images)?.as_bytes())?)
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(Some(a)) => a,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    if let Some(dir) = &args.golden {
        return match make_golden(dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e:#}");
                ExitCode::FAILURE
            }
        };
    }
    let enough = match Enough::after(args.seconds) {
        Ok(e) => e,
        Err(e) => {
            eprintln!("nacre-sim: no clock: {e}");
            return ExitCode::FAILURE;
        }
    };
    match &args.points {
        _ if args.hostile => run_hostile(&args, &enough),
        Some(plan) => run_points(plan, args.json),
        None => run_seeds(&args, &enough),
    }
}

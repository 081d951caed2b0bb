//! `nacre ha`: what a cluster engine asks of a host: serve these targets, stop, is all well. The resource agent in
//! `deploy/ocf/` translates its words; exit statuses are OCF's.

mod agent;

use clap::{Args, Parser, Subcommand};
use model::{Nid, limits};
use std::ffi::OsString;
use std::path::PathBuf;

/// OCF_SUCCESS, OCF_ERR_GENERIC, OCF_ERR_ARGS, OCF_NOT_RUNNING.
const OK: i32 = 0;
const FAILED: i32 = 1;
const WRONG_ARGS: i32 = 2;
const NOT_RUNNING: i32 = 7;

#[derive(Parser)]
#[command(
    name = "nacre ha",
    about = "Serves targets on behalf of a cluster engine. Exit statuses are those of OCF."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Starts a nacred for the targets, unless one serves them; returns when it does
    Start(StartArgs),
    /// Ends it, by force if it must be; returns when it is gone
    Stop(StopArgs),
    /// 0: served and well; 7: not served here; 1: in trouble
    Monitor(MonitorArgs),
}

#[derive(Args)]
struct StartArgs {
    /// Address to serve at, for example 10.0.0.1@tcp [default: as nacred chooses]
    #[arg(long)]
    nid: Option<Nid>,
    #[arg(long, default_value_t = limits::PORT)]
    port: u16,
    /// Further options of nacred, in one word
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
    /// Its log
    #[arg(long, default_value = "/var/log/nacre/nacred.log")]
    log: PathBuf,
    /// Folders of the targets
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
}

#[derive(Args)]
struct StopArgs {
    /// Seconds for an orderly end
    #[arg(long, default_value_t = 25)]
    patience: u64,
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
}

#[derive(Args)]
struct MonitorArgs {
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
}

/// The command: arguments behind `ha`.
pub fn main(args: &[OsString]) -> i32 {
    let all = std::iter::once(OsString::from("nacre ha")).chain(args.iter().cloned());
    let cli = match Cli::try_parse_from(all) {
        Ok(c) => c,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { WRONG_ARGS } else { OK };
        }
    };
    let done = match cli.verb {
        Verb::Start(a) => agent::start(&a),
        Verb::Stop(a) => agent::stop(&a),
        Verb::Monitor(a) => agent::monitor(&a.dirs),
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("nacre ha: {why}");
            FAILED
        }
    }
}

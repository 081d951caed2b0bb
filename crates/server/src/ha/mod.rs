//! `nacre ha`: what a cluster engine asks of a host: serve these targets, stop, is all well. The resource
//! agent in `deploy/ocf/` translates its words; exit statuses are OCF's. And what an administrator asks of
//! the engine.

mod agent;
mod diff;
mod etcd;
mod inventory;
mod pacemaker;
mod plan;
mod scope;
mod shown;

use clap::{Args, Parser, Subcommand};
use model::{Nid, limits};
use std::ffi::OsString;
use std::path::PathBuf;

pub use shown::places;

/// OCF_SUCCESS, OCF_ERR_GENERIC, OCF_ERR_ARGS, OCF_NOT_RUNNING.
const OK: i32 = 0;
const FAILED: i32 = 1;
const WRONG_ARGS: i32 = 2;
const NOT_RUNNING: i32 = 7;

#[derive(Parser)]
#[command(
    name = "nacre ha",
    about = "Targets under a cluster manager; exit statuses of start, stop and monitor are those of OCF. See nacre-ha(8)"
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
    /// Prints the pcs commands that make a Pacemaker configuration
    Plan(PlanArgs),
    /// Says in what the hosts differ that should be alike, and what mends it; status 1 if they do
    Diff(diff::DiffArgs),
    /// Says what this host has, for `diff` on another one
    Inventory(inventory::InventoryArgs),
    /// Moves a target, or several, to this host, by Pacemaker or etcd
    Takeover(TakeoverArgs),
    /// Moves a target back to its home, or several away from this host, by Pacemaker or etcd
    Giveback(GivebackArgs),
    /// Says where Pacemaker has the targets
    Where(WhereArgs),
    /// Serves the targets that are this host's, as etcd says (one on each server host)
    Controller(etcd::ControllerArgs),
    /// Makes a target known to the controllers
    Define(etcd::DefineArgs),
    /// Has the controllers forget a target
    Undefine(etcd::TargetArgs),
    /// Says which host has what by etcd, and where controllers run
    Status(etcd::StatusArgs),
}

#[derive(Args)]
struct PlanArgs {
    /// File that the commands change
    #[arg(long, default_value = "nacre-cib.xml")]
    cib: String,
    /// Targets that start together start one after the other: MGT, MDTs, OSTs. None needs it, and it takes
    /// longer
    #[arg(long)]
    ordered: bool,
    #[arg(long)]
    json: bool,
    /// Description of servers, targets and fences: see nacre-ha(8)
    file: PathBuf,
}

#[derive(Args)]
struct TakeoverArgs {
    /// The controllers on this etcd move it, not Pacemaker
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Option<::etcd::Url>,
    /// Another host than this one
    #[arg(long)]
    to: Option<String>,
    /// Its label, for example demo-OST0000; or of the targets that this host may have and has not: all,
    /// foreign (whose home is another host), local or failback (whose home is this one)
    #[arg(value_name = "TARGET|SCOPE")]
    target: String,
}

#[derive(Args)]
struct GivebackArgs {
    /// The controllers on this etcd move it, not Pacemaker
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Option<::etcd::Url>,
    /// Another host than this one, for a scope
    #[arg(long)]
    from: Option<String>,
    /// Its label, which goes home; or of the targets that this host has: all, foreign or failback (whose home
    /// is another host, where they go), local (whose home is this one; they go to the next of their list)
    #[arg(value_name = "TARGET|SCOPE")]
    target: String,
}

#[derive(Args)]
struct WhereArgs {
    /// First wait until nothing is under way in the cluster
    #[arg(long)]
    wait: bool,
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct StartArgs {
    /// Address to serve at, for example 10.0.0.1@tcp [default: as nacred chooses]
    #[arg(long)]
    nid: Option<Nid>,
    #[arg(long, default_value_t = limits::PORT)]
    port: u16,
    /// Seconds for another server that has one of the targets to end, fenced or not
    #[arg(long, default_value_t = agent::START_PATIENCE)]
    patience: u64,
    /// Seconds for a folder to be there: its disk may be mounted later than this
    #[arg(long, default_value_t = agent::FOLDER_PATIENCE, value_parser = clap::value_parser!(u32).range(..=86_400))]
    folder_patience: u32,
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
    /// 10: also over the network, as a client would ask
    #[arg(long, default_value_t = 0)]
    depth: u32,
    #[arg(long)]
    json: bool,
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
        Verb::Monitor(a) => agent::monitor(&a),
        Verb::Plan(a) => plan::print(&a.file, &a.cib, a.ordered, a.json).map(|()| OK),
        Verb::Diff(a) => diff::main(&a),
        Verb::Inventory(a) => inventory::print(&a).map(|()| OK),
        Verb::Takeover(a) => match &a.etcd {
            Some(url) => etcd::takeover(url, &a.target, a.to.as_deref()).map(|()| OK),
            None => pacemaker::takeover(&a.target, a.to.as_deref()).map(|()| OK),
        },
        Verb::Giveback(a) => match &a.etcd {
            Some(url) => etcd::giveback(url, &a.target, a.from.as_deref()).map(|()| OK),
            None => pacemaker::giveback(&a.target, a.from.as_deref()).map(|()| OK),
        },
        Verb::Where(a) => pacemaker::places(a.json, a.wait).map(|()| OK),
        Verb::Controller(a) => etcd::controller(a),
        Verb::Define(a) => etcd::define(&a).map(|()| OK),
        Verb::Undefine(a) => etcd::undefine(&a).map(|()| OK),
        Verb::Status(a) => etcd::status(&a).map(|()| OK),
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("nacre ha: {why}");
            FAILED
        }
    }
}

//! `nacre up`, `down`, `status`, `shell`, `wipe`: a whole file system on this machine, from the same parts
//! and over the same sockets as on many.

mod address;
mod cluster;
mod dashboard;
mod down;
pub mod probe;
mod rootless;
mod start;
mod status;
mod watch;

use clap::Parser;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `model::metrics::PORT_DEFAULT`, as clap wants it.
const METRICS_PORT: &str = "9169";

/// The same of the console's.
const DASHBOARD_PORT: &str = "9170";

/// What a command could not do, in words for its user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UpError(pub String);

impl UpError {
    fn new(text: impl Into<String>) -> UpError {
        UpError(text.into())
    }

    fn io(what: &str, path: &std::path::Path, e: &std::io::Error) -> UpError {
        UpError(format!("{what} '{}': {e}", path.display()))
    }
}

pub use probe::answers;

type Result<T> = std::result::Result<T, UpError>;

/// Starts a file system on this machine, made at the first time; what runs already is left alone
#[derive(Parser, Debug)]
#[command(name = "nacre up", bin_name = "nacre up")]
pub struct UpArgs {
    /// Folder for everything: targets, logs, the address
    #[arg(long)]
    pub dir: PathBuf,
    /// Where to mount; may be repeated [default: the mounts of last time]
    #[arg(long)]
    pub mount: Vec<PathBuf>,
    /// Object targets; more than there are adds some
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub osts: Option<u16>,
    /// Metadata targets: one in this release
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1))]
    pub mdts: u16,
    /// Name of the file system, up to 8 characters [default: nacre]
    #[arg(long)]
    pub fsname: Option<String>,
    /// Mount options, as for mount.nacre
    #[arg(short = 'o', long)]
    pub options: Option<String>,
    /// Each server that it starts tells its metrics at its own loopback address, each mount at one of its
    /// own, at this port (9169); DIR/metrics.json names them for Prometheus. 0: not any more. What runs
    /// already does so from its next start on
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = METRICS_PORT)]
    pub metrics: Option<u16>,
    /// Starts the console in the browser as well (nacre-dashboard(8)), at the first server's loopback address
    /// and this port (9170), with a token for whoever may read DIR/dashboard/operator.token. 0: not any more
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = DASHBOARD_PORT)]
    pub dashboard: Option<u16>,
    /// Leaves nothing behind that starts again what was killed
    #[arg(long)]
    pub no_watch: bool,
    /// Says only what went wrong
    #[arg(long, short)]
    pub quiet: bool,
}

/// Unmounts and stops a file system that `nacre up` started; the files stay
#[derive(Parser, Debug)]
#[command(name = "nacre down", bin_name = "nacre down")]
pub struct DownArgs {
    /// Folder that was given to `nacre up`
    #[arg(long)]
    pub dir: PathBuf,
    /// Unmount although processes use the mount, kill daemons that do not end
    #[arg(long)]
    pub force: bool,
}

/// Shows every process of the file systems on this machine
#[derive(Parser, Debug)]
#[command(name = "nacre status", bin_name = "nacre status")]
pub struct StatusArgs {
    /// Folder that was given to `nacre up` [default: every server and mount of this host]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    #[arg(long)]
    pub json: bool,
}

/// Starts again what 'nacre up' started and was killed; 'nacre up' leaves it behind, 'nacre down' ends it
#[derive(Parser, Debug)]
#[command(name = "nacre watch", bin_name = "nacre watch")]
pub struct WatchArgs {
    /// Folder that was given to `nacre up`
    #[arg(long)]
    pub dir: PathBuf,
}

/// Runs a command, or a shell, where a file system of 'nacre up' is seen; without root its mounts are seen
/// nowhere else
#[derive(Parser, Debug)]
#[command(name = "nacre shell", bin_name = "nacre shell")]
pub struct ShellArgs {
    /// Folder that was given to `nacre up` [default: the one of yours that is up]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// What to run, behind '--' if it has options [default: $SHELL]
    #[arg(trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Removes a file system with all its files
#[derive(Parser, Debug)]
#[command(name = "nacre wipe", bin_name = "nacre wipe")]
pub struct WipeArgs {
    /// Folder that was given to `nacre up`
    #[arg(long)]
    pub dir: PathBuf,
}

/// Parses with clap and runs; exit status.
fn command<A: Parser>(name: &str, args: &[OsString], run: impl FnOnce(A) -> Result<i32>) -> i32 {
    let all = std::iter::once(OsString::from(name)).chain(args.iter().cloned());
    let parsed = match A::try_parse_from(all) {
        Ok(a) => a,
        Err(e) => {
            let _ = e.print();
            return e.exit_code();
        }
    };
    match run(parsed) {
        Ok(code) => code,
        Err(UpError(e)) => {
            eprintln!("{name}: {e}");
            1
        }
    }
}

/// The command as it is given to this program once more.
fn again(command: &str, args: &[OsString]) -> Vec<OsString> {
    std::iter::once(command.into()).chain(args.iter().cloned()).collect()
}

/// Does a command on a folder where its file system runs.
fn there(dir: &Path, words: &[OsString], make: bool, here: impl FnOnce() -> Result<i32>) -> Result<i32> {
    match rootless::instead(dir, words, make)? {
        Some(code) => Ok(code),
        None => here(),
    }
}

pub fn main_up(args: &[OsString]) -> i32 {
    let words = again("up", args);
    command("nacre up", args, |a: UpArgs| there(&a.dir.clone(), &words, true, || start::up(a)))
}

pub fn main_down(args: &[OsString]) -> i32 {
    let words = again("down", args);
    let run = |a: DownArgs| there(&a.dir, &words, false, || down::down(&a.dir, a.force, true));
    command("nacre down", args, run)
}

pub fn main_status(args: &[OsString]) -> i32 {
    let words = again("status", args);
    let run = |a: StatusArgs| match a.dir.as_deref() {
        Some(dir) => there(dir, &words, false, || status::status(Some(dir), a.json)),
        None => status::status(None, a.json),
    };
    command("nacre status", args, run)
}

pub fn main_shell(args: &[OsString]) -> i32 {
    command("nacre shell", args, |a: ShellArgs| rootless::shell(a.dir.as_deref(), &a.command))
}

pub fn main_watch(args: &[OsString]) -> i32 {
    command("nacre watch", args, |a: WatchArgs| watch::run(&a.dir))
}

pub fn main_wipe(args: &[OsString]) -> i32 {
    let words = again("wipe", args);
    command("nacre wipe", args, |a: WipeArgs| there(&a.dir, &words, false, || down::wipe(&a.dir)))
}

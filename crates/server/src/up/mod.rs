//! `nacre up`, `down`, `status`, `wipe`: a whole file system on this machine, from the same parts and over
//! the same sockets as on many.

mod address;
mod cluster;
mod down;
pub mod probe;
mod start;
mod status;
mod watch;

use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

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

pub fn main_up(args: &[OsString]) -> i32 {
    command("nacre up", args, start::up)
}

pub fn main_down(args: &[OsString]) -> i32 {
    command("nacre down", args, |a: DownArgs| down::down(&a.dir, a.force, true))
}

pub fn main_status(args: &[OsString]) -> i32 {
    command("nacre status", args, |a: StatusArgs| status::status(a.dir.as_deref(), a.json))
}

pub fn main_watch(args: &[OsString]) -> i32 {
    command("nacre watch", args, |a: WatchArgs| watch::run(&a.dir))
}

pub fn main_wipe(args: &[OsString]) -> i32 {
    command("nacre wipe", args, |a: WipeArgs| down::wipe(&a.dir))
}

//! `nacre deploy`: a cluster from one file. What is to be done is planned from the file and from what hosts
//! say ([`steps`], [`wipe`]), and done by lines that an operator could type ([`host`], [`run`]).

mod agree;
mod apply;
mod checks;
mod erase;
mod facts;
mod file;
mod gather;
mod host;
mod inventory;
mod plan;
mod preset;
mod read;
mod run;
mod service;
mod status;
mod steps;
#[cfg(test)]
mod tests;
mod wipe;
mod words;

use super::with_page;
use crate::failure::Failure;
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::local;
use file::Cluster;
use gather::Found;
use host::Hosts;
use model::Errno;
use std::ffi::OsString;
use std::path::Path;
use steps::Wishes;
use world::sys::files;

const USAGE: &str = "\
usage: nacre deploy plan [--commands|--json] [--replace HOST]... [--without HOST]... [--facts FACTS] FILE
       nacre deploy apply [--replace HOST]... [--without HOST]... [--json] [-q] FILE
       nacre deploy status [--json] [--facts FACTS] FILE
       nacre deploy wipe [--yes] [--commands] [--json] [-q] FILE
       nacre deploy inventory FILE
       nacre deploy preset [NAME]
       nacre deploy facts|erase ...     on a host; the others call them

A cluster from one file (TOML): hosts, addresses, targets, pairs of servers,
mounts, pools, parameters. See nacre-deploy(8).

plan: looks at all hosts and says what is wrong and what apply would do.
apply: does it. A second one does nothing; one that was stopped goes on.
status: compares the file with what runs.
wipe: unmounts, ends servers, removes the targets with all files.
inventory: the hosts, for Ansible.
preset: a file to begin with; without NAME their names.

      --commands      the lines, as they could be typed here, and nothing else
      --replace HOST  it came back empty: its OSTs are made anew, what was on
                      them is lost
      --without HOST  it is away: nothing is asked of it or done there
      --facts FACTS   what hosts said, gathered by somebody else (JSON by host)
      --yes           of wipe: does not ask
      --fsname NAME   of erase: whose target is in the folder
      --dir DIR, --device DEVICE, --file FILE, --reach ADDRESS:PORT
                      of facts: what is looked at
      --json          one JSON document; -q, --quiet: no progress

exit status: 0 done, or as the file says; 1 something is wrong, failed or differs; 2 wrong usage, or a
file that makes no sense; 130 interrupted
";

/// Something is wrong, failed or differs.
const EXIT_WRONG: i32 = 1;
/// Wrong usage, or a file that makes no sense.
const EXIT_USAGE: i32 = 2;
/// A file is not larger than that.
const FILE_MAX_BYTES: u64 = 4 << 20;

const JSON: Opt = flag('\0', "json");
const QUIET: Opt = flag('q', "quiet");
const COMMANDS: Opt = flag('\0', "commands");
const REPLACE: Opt = value('\0', "replace");
const WITHOUT: Opt = value('\0', "without");
const FACTS: Opt = value('\0', "facts");

type Run = fn(&Parsed) -> Result<i32, Failure>;

/// Each verb with its options.
const VERBS: &[(&str, &[Opt], Run)] = &[
    ("plan", &[COMMANDS, JSON, REPLACE, WITHOUT, FACTS], plan::run),
    ("apply", &[REPLACE, WITHOUT, JSON, QUIET], apply::run),
    ("status", &[JSON, FACTS], status::run),
    ("wipe", &[flag('\0', "yes"), COMMANDS, JSON, QUIET], wipe::run),
    ("inventory", &[JSON], inventory::run),
    ("preset", &[], preset::run),
    ("facts", facts::OPTS, facts::run),
    ("erase", &[value('\0', "fsname")], erase::run),
];

/// The one file that a verb is given.
fn cluster(p: &Parsed) -> Result<Cluster, Failure> {
    let [name] = p.operands.as_slice() else { return Err(Failure::usage("name one file: cluster.toml")) };
    let is_input = name == "-";
    let shown = if is_input { "standard input".into() } else { local::show(name) };
    let path = if is_input { Path::new("/dev/stdin") } else { Path::new(name) };
    let size = files::stat(path, true).map_err(|e| Failure::io("cannot read", &shown, e))?.size;
    if size > FILE_MAX_BYTES {
        let why = format!("it has {size} bytes, and {FILE_MAX_BYTES} are possible");
        return Err(Failure::explained("cannot use", &shown, Errno::EFBIG, &why));
    }
    let text = files::read_to_string(path).map_err(|e| Failure::io("cannot read", &shown, e))?;
    let wrong = |w: read::Wrong| Failure::Op { text: format!("{shown}, {w}"), errno: Errno::EINVAL };
    read::read(&text).map_err(wrong)
}

/// What hosts have: asked, or as `--facts` says.
fn found(p: &Parsed, c: &Cluster, hosts: &dyn Hosts) -> Result<Found, Failure> {
    let Some(name) = p.value("facts") else { return Ok(gather::ask(c, hosts)) };
    let path = if name == "-" { "/dev/stdin" } else { name };
    let text = files::read_to_string(path).map_err(|e| Failure::io("cannot read", name, e))?;
    gather::from_document(c, &text).map_err(|e| Failure::explained("cannot use", name, Errno::EINVAL, &e))
}

fn wishes(p: &Parsed) -> Wishes {
    let all = |o: &str| p.values(o).map(String::from).collect();
    Wishes { replace: all("replace"), without: all("without") }
}

/// A host that a user named and the file has not.
fn no_host(why: String) -> Failure {
    Failure::usage(why)
}

fn run(args: &[OsString]) -> Result<i32, Failure> {
    let Some((verb, rest)) = args.split_first() else { return Err(Failure::usage("say what to do")) };
    let verb = local::show(verb);
    let Some((_, opts, run)) = VERBS.iter().find(|(n, ..)| *n == verb) else {
        let all: Vec<&str> = VERBS.iter().map(|(n, ..)| *n).collect();
        return Err(Failure::usage(format!("'{verb}' is none of {}", all.join(", "))));
    };
    run(&getopt::parse(rest, opts)?)
}

/// The command: arguments behind `deploy`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    let code = |f: &Failure| match f {
        Failure::Usage(_) | Failure::Op { errno: Errno::EINVAL, .. } => EXIT_USAGE,
        Failure::Op { .. } => EXIT_WRONG,
    };
    with_page(("nacre deploy", USAGE), args, code, run)
}

//! `nacre top`: what happens now; and who does most, and who has most, on the mounted file systems.

mod gather;
mod live;
mod rows;
mod screen;
mod text;

use super::{jobs, quota, report, with_page};
use crate::failure::Failure;
use std::ffi::OsString;

const USAGE: &str = "\
usage: nacre top [-v VIEW] [-s COLUMN] [-f WORDS] [-i SECONDS] [-n LOOKS] [-b]
                 [--json]
       nacre top jobs [-n COUNT] [--interval SECONDS] [--json] [MOUNT...]
       nacre top users|groups|projects [-n COUNT] [--by space|files] [--json]
                                       [MOUNT...]
       nacre top dirs [-n COUNT] [--by space|files] [--depth N] [--json] DIR...

Without a word behind it: what happens now on the targets of this host and of
the file systems that are mounted here, as rates between two looks. On a
terminal it has the screen, and keys: h names them, q ends. Elsewhere it prints.
Clients are those of targets of this host. P99 is of reads and writes of OSTs: a
bound in whole milliseconds (brw_stats). Root's.

  -v, --view VIEW           targets, jobs, clients, latencies (targets; all of
                            them with --json)
  -s, --sort COLUMN         by a column, as JSON names it (p99_us); with - before
                            it the other way round
  -f, --filter WORDS        rows with these words in a name only
  -i, --interval SECONDS    between two looks, 0.5 to 3600 (2)
  -n, --looks LOOKS         so many, then it ends
  -b, --batch               prints, on a terminal as well
      --json                one JSON document for each look

Of the file systems that are mounted at these places (of all that are mounted
here without any), asked on all their targets. Root's.

jobs: those with the most operations: operations, bytes read and written, and
which operations. Clients send job ids if jobid_var says from where (lctl
set_param jobid_var=procname_uid).
users, groups, projects: those who use most, with their share of all that is
used. It is counted when it changes: nothing is walked.
dirs: the directories below DIR with most in them, by a look through the
metadata server's inodes; anybody's. What lies deeper is counted for the
directory N levels below DIR, what lies higher for its own.

  -n, --count COUNT         so many of each file system (10)
  -i, --interval SECONDS    shows what jobs did in each so many seconds, a
                            second, until it is interrupted; without it, what
                            they did since they are counted
      --depth N             levels below DIR (1)
      --by space|files      who uses most space, or has most files (space)
      --json                one JSON document for each look

exit status: 0, or the errno of the first failure, 4 wrong usage, 130 interrupted
";

/// How many are shown, unless it is said, and at most.
pub const COUNT_DEFAULT: u64 = 10;
pub const COUNT_MAX: u64 = 100_000;

fn run(args: &[OsString]) -> Result<i32, Failure> {
    // Options only: what happens now.
    let Some((what, rest)) = args.split_first().filter(|(w, _)| !w.to_string_lossy().starts_with('-')) else {
        return live::run(args);
    };
    let what = what.to_string_lossy();
    match (&*what, quota::top::type_of(&what)) {
        ("jobs", _) => jobs::top::run(rest),
        ("dirs", _) => report::dirs::run(rest),
        (_, Some(of)) => quota::top::run(of, rest),
        _ => Err(Failure::usage(format!(
            "'{what}' is nothing that it shows: nacre top jobs|users|groups|projects|dirs"
        ))),
    }
}

/// The command: arguments behind `top`. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    with_page(("nacre top", USAGE), args, Failure::exit_code, run)
}

//! `lfs_migrate`: the script of that name as a program. It moves the files that it is given, and those below
//! directories that it is given, and says of each what came of it.

use super::names::Names;
use super::{Options, has_objects, one};
use crate::command::with_page;
use crate::failure::{Failure, FirstError};
use crate::getopt::{self, Opt, Parsed, flag, value};
use crate::interrupt::{self, Interrupt};
use crate::walk::{self, Mounted, Place, Run, Visitor};
use crate::{local, output, say};
use client::control::Listed;
use model::{Errno, FileType};
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use world::sys::files;

const USAGE: &str = "\
usage: lfs_migrate [-c N | -C N | -A | -R] [-S SIZE] [-o OSTS] [-p POOL] [-n] [-y] [-q | -v] [-0]
                   [-b | --non-block] [-W MIB] [FILE|DIR...]

Moves files, and the files below directories, to new objects while they are in
use, and says of each: done, failed or skipped (there is nothing to move).
Without arguments it reads names from standard input.

  -n   only say which files would be moved     -y   do not ask first
  -q   say nothing of files that were moved    -v   say why one was skipped
  -0   names on standard input end with a zero byte
  -A   as many stripes as suit the size        -R   what the directory gives new files
  others as those of lfs migrate

exit status: 0, the errno of the first failure, 4 wrong usage, 130 interrupted
";

const OPTS: &[Opt] = &[
    flag('n', "dry-run"),
    flag('y', "yes"),
    flag('q', "quiet"),
    flag('v', "verbose"),
    flag('0', "null"),
    flag('A', "auto-stripe"),
    flag('R', "restripe"),
    flag('b', "block"),
    flag('\0', "non-block"),
    value('W', "bandwidth"),
    value('c', "stripe-count"),
    value('C', "overstripe-count"),
    value('S', "stripe-size"),
    value('o', "ost"),
    value('p', "pool"),
    // Refused by name.
    flag('D', "non-direct"),
    flag('\0', "rsync"),
    flag('\0', "no-rsync"),
];

struct Script {
    options: Options,
    dry_run: bool,
    quiet: bool,
    verbose: bool,
}

fn parse(p: &Parsed) -> Result<Script, Failure> {
    if p.has("rsync") {
        let why = "the servers copy, while programs use the file: leave it out";
        return Err(Failure::explained("cannot use option", "--rsync", Errno::EOPNOTSUPP, why));
    }
    if p.has("quiet") && p.has("verbose") {
        return Err(Failure::usage("-q and -v exclude each other"));
    }
    let options = super::options(p)?;
    Ok(Script { options, dry_run: p.has("dry-run"), quiet: p.has("quiet"), verbose: p.has("verbose") })
}

impl Script {
    /// One file: moved, or skipped if it has nothing to move.
    fn file(&self, path: &Path, run: &Run<'_>) {
        let shown = path.display();
        match has_objects(path) {
            Ok(true) if self.dry_run => return say!("{shown}: dry run, would be moved"),
            Ok(true) => {}
            // It goes to objects if that is asked for.
            Ok(false) if self.options.given && self.dry_run => {
                return say!("{shown}: dry run, would be moved");
            }
            Ok(false) if self.options.given => {}
            Ok(false) => {
                let why = if self.verbose { ": its data lies with its inode" } else { "" };
                return say!("{shown}: skipped{why}");
            }
            Err(f) => return self.failed(path, &f, run),
        }
        match one(path, &self.options) {
            Ok(()) if self.quiet => {}
            Ok(()) => say!("{shown}: done"),
            Err(f) => self.failed(path, &f, run),
        }
        output::flush();
    }

    fn failed(&self, path: &Path, f: &Failure, run: &Run<'_>) {
        say!("{}: failed", path.display());
        run.report(f);
    }

    /// What is named: a file, or all below a directory.
    fn named(&self, path: &Path, run: &Run<'_>) -> Result<(), Failure> {
        let shown = path.display().to_string();
        let stat = files::stat(path, false).map_err(|e| Failure::io("cannot migrate", &shown, e))?;
        if stat.is_dir() {
            local::mount_point(path)?;
            walk::walk(&Mounted::new(path)?, path, 1, self, run);
        } else if stat.is_file() {
            self.file(path, run);
        } else {
            say!("{shown}: skipped{}", if self.verbose { ": it is no regular file" } else { "" });
        }
        Ok(())
    }

    fn all(&self, names: Names, interrupt: &Interrupt) -> FirstError {
        let seen = AtomicU64::new(0);
        let run = Run::new("lfs_migrate", interrupt, &seen);
        for name in names {
            if interrupt.stopped() {
                break;
            }
            if let Err(f) = name.and_then(|path| self.named(&path, &run)) {
                run.report(&f);
            }
        }
        run.finish()
    }
}

impl Visitor for Script {
    fn wants_inodes(&self) -> bool {
        false
    }

    fn max_depth(&self) -> u32 {
        u32::MAX
    }

    fn visit(&self, at: &Place<'_>, entries: Vec<Listed>, run: &Run<'_>) {
        for l in entries.iter().filter(|l| l.kind == FileType::Regular) {
            if run.interrupt.stopped() {
                break;
            }
            self.file(&at.of(&l.name), run);
        }
    }
}

/// Whether the user at a terminal says yes.
fn agreed() -> bool {
    put_question();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}

fn put_question() {
    eprint!("lfs_migrate: move these files to new objects? They stay in use. [y/N] ");
    let _ = std::io::stderr().flush();
}

fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, OPTS)?;
    let script = parse(&p)?;
    if p.has("null") && !p.operands.is_empty() {
        return Err(Failure::usage("-0 is about names on standard input"));
    }
    let from_list = p.operands.is_empty();
    let names = if from_list {
        Names::listed(None, p.has("null"))?
    } else {
        Names::given(p.operands.iter().cloned())
    };
    let asks = !from_list && !p.has("yes") && !script.dry_run && std::io::stdin().is_terminal();
    if asks && !agreed() {
        return Ok(FirstError::default());
    }
    let (mut errors, signalled) = interrupt::guarded(|| {}, |i| script.all(names, i));
    if let Some(code) = signalled {
        errors.interrupted("lfs_migrate", code);
    }
    Ok(errors)
}

/// The program. Returns the exit status.
pub fn main(args: &[OsString]) -> i32 {
    let run = |args: &[OsString]| run(args).map(|errors| errors.exit_code());
    with_page(("lfs_migrate", USAGE), args, Failure::exit_code, run)
}

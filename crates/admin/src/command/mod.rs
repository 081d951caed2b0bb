//! One module a command.

pub mod barrier;
pub mod changelog;
pub mod check;
pub mod checksum;
pub mod config;
pub mod copy;
pub mod data_version;
pub mod debug;
pub mod deploy;
pub mod df;
pub mod dl;
pub mod doctor;
pub mod domains;
pub mod drain;
pub mod events;
pub mod fid2path;
pub mod find;
pub mod get_param;
pub mod getname;
pub mod getstripe;
pub mod history;
pub mod jobs;
pub mod ladvise;
pub mod lfsck;
pub mod list_nids;
pub mod lost;
pub mod maintenance;
pub mod metrics;
pub mod migrate;
pub mod mkfs;
pub mod movements;
pub mod osts;
pub mod path2fid;
pub mod ping;
pub mod plan;
pub mod policy;
pub mod pool;
pub mod project;
pub mod quota;
pub mod rebalance;
pub mod recovery;
pub mod registration;
pub mod remove;
pub mod replace;
pub mod report;
pub mod set_param;
pub mod setstripe;
pub mod snapshot;
pub mod status;
pub mod swap_layouts;
pub mod sync;
pub mod top;
pub mod trace;
pub mod trash;
pub mod tune;
pub mod tunefs;
pub mod userdir;

use crate::failure::Failure;
use crate::{output, say};
use std::ffi::OsString;

/// A command that has a page of its own for `--help` and wrong usage: runs it, and returns the exit status.
/// `code`: that of a failure.
pub fn with_page(
    (name, page): (&str, &str),
    args: &[OsString],
    code: impl Fn(&Failure) -> i32,
    run: impl FnOnce(&[OsString]) -> Result<i32, Failure>,
) -> i32 {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        say!("{}", page.trim_end());
        output::flush();
        return 0;
    }
    let status = run(args).unwrap_or_else(|f| {
        match f {
            Failure::Usage(_) => eprintln!("{name}: {f}\n\n{page}"),
            Failure::Op { .. } => eprintln!("{name}: {f}"),
        }
        code(&f)
    });
    output::flush();
    status
}

/// What tests of commands have in common.
#[cfg(test)]
mod testing {
    use super::*;

    /// Why a command does not take these arguments.
    pub fn refused(command: fn(&[OsString]) -> Result<i32, Failure>, args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        match command(&args) {
            Err(f) => f.to_string(),
            Ok(code) => panic!("{args:?}: {code}"),
        }
    }
}

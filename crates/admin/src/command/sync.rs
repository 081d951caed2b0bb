//! `lfs sync`: what was done through a mount becomes durable. sync(2) does not reach a FUSE daemon.

use crate::command::osts::chosen_mounts;
use crate::failure::{Failure, FirstError};
use crate::getopt;
use crate::local;
use client::control::Request;
use std::ffi::OsString;

pub const USAGE: &str = "[PATH...]";

/// Of the mounts that the paths lie on; of all mounts of this host if there are none.
pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[])?;
    let mut errors = FirstError::default();
    for m in chosen_mounts(&p.operands)? {
        if let Err(f) = local::ask(&m.dir, &Request::Sync) {
            errors.report("error: sync", &f);
        }
    }
    Ok(errors)
}

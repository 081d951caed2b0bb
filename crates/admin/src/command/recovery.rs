//! `lctl abort_recovery` of a target that this host serves, and `lctl recover` of a connection that a mount
//! has.

use crate::command::check::import_name;
use crate::command::osts::targets;
use crate::failure::{Failure, FirstError};
use crate::local::{self, Daemon, DaemonReply, DaemonRequest};
use client::control::Request;
use model::Errno;
use std::ffi::OsString;

pub const USAGE_ABORT: &str = "TARGET   (or: lctl --device TARGET abort_recovery)";
pub const USAGE_RECOVER: &str = "DEVICE   (or: lctl --device DEVICE recover)";

/// The window of a target that waits for clients of before its restart is closed.
pub fn run_abort(args: &[OsString]) -> Result<FirstError, Failure> {
    abort(local::device(args)?).map(|()| FirstError::default())
}

/// The same of a target by its label.
pub fn abort(target: String) -> Result<(), Failure> {
    let Some((d, _)) = Daemon::served().into_iter().find(|(_, t)| t.label == target) else {
        let why = "no nacred of this host serves it";
        return Err(Failure::explained("cannot end the recovery of", &target, Errno::ENODEV, why));
    };
    match d.ask(&DaemonRequest::AbortRecovery { target: target.clone() })? {
        DaemonReply::Error { errno, message } => {
            Err(Failure::explained("cannot end the recovery of", &target, Errno(errno), &message))
        }
        _ => Ok(()),
    }
}

/// A mount's connection is given up and made anew at once.
pub fn run_recover(args: &[OsString]) -> Result<FirstError, Failure> {
    let device = local::device(args)?;
    for m in local::mounts(true) {
        for t in targets(&m.dir)? {
            if import_name(&m.name.fsname, &t, &m.name.instance) != device {
                continue;
            }
            local::ask(&m.dir, &Request::Recover { target: t.target })?;
            return Ok(FirstError::default());
        }
    }
    let why = "no mount of this host has such a connection: lctl dl lists them";
    Err(Failure::explained("cannot reconnect", &device, Errno::ENODEV, why))
}

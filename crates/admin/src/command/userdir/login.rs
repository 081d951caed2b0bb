//! `nacre userdir login`: what pam_exec(8) runs when somebody logs in. The work is done by a child, so that a
//! server that does not answer holds up nobody for longer than was said: whoever waits in the kernel for an
//! answer cannot be ended, but can be left.

use super::account::{Account, Of};
use super::make::{Came, MountSite, make};
use super::rules::{self, Rule};
use crate::failure::{Failure, FirstError};
use model::Errno;
use std::ffi::OsString;
use std::time::Duration;
use world::sys::process;

/// A login waits no longer than this, unless it is said, and at most.
pub const TIMEOUT_DEFAULT_S: u64 = 10;
pub const TIMEOUT_MAX_S: u64 = 300;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// Who logs in; `None`: this is no begin of a session, and nothing is to be done.
pub fn who(pam_type: Option<&str>, pam_user: Option<&str>) -> Result<Option<String>, Failure> {
    match (pam_type, pam_user) {
        (Some("open_session"), Some(user)) => Ok(Some(user.to_string())),
        (Some("open_session"), None) => Err(Failure::usage("PAM_USER is not set")),
        (Some(_), _) => Ok(None),
        (None, _) => {
            Err(Failure::usage("PAM_TYPE is not set: pam_exec(8) runs this, as nacre-userdir(8) says"))
        }
    }
}

/// Makes the directories of somebody by rules. Who is at work beside it does no harm.
pub fn work(rules: &[Rule], user: &str, errors: &mut FirstError) -> Result<(), Failure> {
    let mut account = Account::find(Of::User, user)?;
    if account.id == 0 {
        return Ok(());
    }
    for rule in rules::fitting(rules, &mut account) {
        let one = || -> Result<Came, Failure> {
            let plan = rule.settings.plan(&account)?;
            make(&plan, &MountSite::open(&plan.under)?, true)
        };
        if let Err(f) = one() {
            errors.report(&format!("nacre userdir: rule '{}'", rule.name), &f);
        }
    }
    Ok(())
}

/// Runs the work in a child for so long. Returns the exit status.
pub fn watched(args: &[OsString], seconds: u64) -> Result<i32, Failure> {
    let Some(user) = who(variable("PAM_TYPE").as_deref(), variable("PAM_USER").as_deref())? else {
        return Ok(0);
    };
    let failed = |e| Failure::io("cannot start", "nacre userdir login", e);
    let exe = process::own_executable().map_err(failed)?;
    let all = ["userdir", "login", "--worker"].iter().map(OsString::from).chain(args.iter().cloned());
    let all: Vec<OsString> = all.collect();
    match process::run_for(&exe, "nacre", &all, Duration::from_secs(seconds)).map_err(failed)? {
        Some(ended) => Ok(ended.status.unwrap_or(Errno::EIO.0)),
        None => {
            let why = format!(
                "it took longer than {seconds} s: does the file system answer? The next login goes on"
            );
            Err(Failure::explained("cannot make the directories of", &user, Errno::ETIMEDOUT, &why))
        }
    }
}

/// Whoever the environment says.
pub fn user() -> Result<Option<String>, Failure> {
    who(variable("PAM_TYPE").as_deref(), variable("PAM_USER").as_deref())
}

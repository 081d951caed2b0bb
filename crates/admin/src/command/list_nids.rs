//! `lctl list_nids`: the network identifiers of this host's daemons, or of its addresses if it runs none.

use crate::failure::{Failure, FirstError};
use crate::getopt::{self, flag};
use crate::local::Daemon;
use crate::{output, say};
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;

pub const USAGE: &str = "[--json]";

pub fn local_nids() -> Result<BTreeSet<String>, Failure> {
    let of_daemons: BTreeSet<String> = Daemon::statuses().into_iter().flat_map(|s| s.nids).collect();
    if !of_daemons.is_empty() {
        return Ok(of_daemons);
    }
    let addresses = world::sys::host_addresses()
        .map_err(|e| Failure::io("cannot list addresses of", &world::sys::hostname(), e))?;
    Ok(addresses.iter().filter(|a| !a.is_loopback()).map(|a| format!("{a}@tcp")).collect())
}

pub fn run(args: &[OsString]) -> Result<FirstError, Failure> {
    let p = getopt::parse(args, &[flag('\0', "json"), flag('\0', "all")])?;
    let all = local_nids()?;
    if p.has("json") {
        output::json(&json!(all));
    } else {
        for n in all {
            say!("{n}");
        }
    }
    Ok(FirstError::default())
}

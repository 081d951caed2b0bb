//! `nacre ha plan`: servers, targets and fences in, the commands that make a Pacemaker configuration of them
//! out.
//!
//! A target is a group: the file system on its device (if it has one), its address, its `nacred`. The address
//! goes with it (docs/decisions/0023-addresses-move.md), so a host serves any number of targets beside its
//! own.

mod commands;
mod read;

pub(super) use admin::shell::quoted;
pub(super) use read::Plan;
use serde::Serialize;
use std::path::Path;
use world::sys::files;

/// Larger descriptions are refused: nobody wrote them.
const MAX_BYTES: usize = 1 << 20;

/// A plan as `--json` prints it.
#[derive(Serialize)]
struct Report<'a> {
    /// Each a program and its arguments.
    commands: &'a [Vec<String>],
    /// What is said to Corosync besides, a line each.
    corosync: &'a [String],
}

/// The description in `file`.
pub(super) fn read_plan(file: &Path) -> Result<Plan, String> {
    let shown = file.display();
    let bytes = files::read(file).map_err(|e| format!("cannot read '{shown}': {e}"))?;
    if bytes.len() > MAX_BYTES {
        return Err(format!("'{shown}' is longer than {MAX_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("'{shown}' is no text"))?;
    text.parse::<Plan>().map_err(|e| format!("'{shown}', {e}"))
}

/// Prints the commands for the description in `file`, which work on the configuration in `cib`.
pub fn print(file: &Path, cib: &str, ordered: bool, json: bool) -> Result<(), String> {
    let plan = read_plan(file)?;
    let (commands, corosync) = (plan.commands(cib, ordered), plan.corosync());
    assert!(!commands.is_empty(), "a plan that was read has targets, which are made");
    if json {
        let text = serde_json::to_string_pretty(&Report { commands: &commands, corosync: &corosync });
        println!("{}", text.expect("plain data encodes"));
        return Ok(());
    }
    println!("# Made by nacre ha plan. Run as root on one node: each line changes the file {}.", quoted(cib));
    for line in &corosync {
        println!("# Besides, once on one node, for Corosync: {line}");
    }
    println!("set -e");
    for c in &commands {
        println!("{}", c.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

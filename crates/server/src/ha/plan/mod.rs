//! `nacre ha plan`: servers, targets and fences in, the commands that make a Pacemaker configuration of them
//! out.
//!
//! A target is a group: the file system on its device (if it has one), its address, its `nacred`. The address
//! goes with it (docs/decisions/0023-addresses-move.md), so a host serves any number of targets beside its
//! own.

mod commands;
mod read;

use read::Plan;
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
}

/// Characters that a shell leaves alone.
fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c)
}

/// `word` as a shell reads it back.
fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    let quoted = format!("'{}'", word.replace('\'', r"'\''"));
    assert!(quoted.len() >= 2 && !quoted.contains('\0'), "a shell reads the word back");
    quoted
}

/// Prints the commands for the description in `file`, which work on the configuration in `cib`.
pub fn print(file: &Path, cib: &str, ordered: bool, json: bool) -> Result<(), String> {
    let shown = file.display();
    let bytes = files::read(file).map_err(|e| format!("cannot read '{shown}': {e}"))?;
    if bytes.len() > MAX_BYTES {
        return Err(format!("'{shown}' is longer than {MAX_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("'{shown}' is no text"))?;
    let plan = text.parse::<Plan>().map_err(|e| format!("'{shown}', {e}"))?;
    let commands = plan.commands(cib, ordered);
    if json {
        let text = serde_json::to_string_pretty(&Report { commands: &commands });
        println!("{}", text.expect("plain data encodes"));
        return Ok(());
    }
    println!("# Made by nacre ha plan. Run as root on one node: each line changes the file {}.", quoted(cib));
    println!("set -e");
    for c in &commands {
        println!("{}", c.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("ip=10.0.0.1"), "ip=10.0.0.1");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("x;y"), "'x;y'");
    }
}

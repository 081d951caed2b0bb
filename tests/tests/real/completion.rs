//! What shells complete: made from one table, which knows what the program knows.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tests::cluster::{bin_dir, kit, ok_within, run_within, tool};

const LIMIT: Duration = Duration::from_secs(120);

fn tree() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the tree of this test")
}

/// Words of each command of `nacre` in the table, with its options.
fn table() -> Result<BTreeMap<Vec<String>, BTreeSet<String>>> {
    let text = std::fs::read_to_string(tree().join("deploy/completion/commands"))?;
    let mut out = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with("nacre ")) {
        let command = line.split('|').next().context("a command")?;
        let options = line.rsplit('|').next().context("options")?;
        let name = |o: &str| o.split('=').next().unwrap_or_default().to_string();
        let words = command.split_whitespace().skip(1).map(String::from).collect();
        out.insert(words, options.split_whitespace().map(name).collect());
    }
    Ok(out)
}

/// The long options that a text names.
fn options_in(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let starts = text.match_indices("--").filter(|(i, _)| !text[..*i].ends_with(word));
    let all = starts.map(|(i, _)| text[i..].split(|c| !word(c)).next().unwrap_or_default());
    all.filter(|o| o.len() > 2).map(String::from).collect()
}

fn help(words: &[String]) -> Result<String> {
    let o = run_within(tool("nacre").args(words).arg("--help"), LIMIT)?;
    Ok(String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr))
}

#[test]
fn shells_complete_what_the_program_takes() -> Result<()> {
    ok_within(Command::new("python3").arg(tree().join("scripts/completion.py")).arg("--check"), LIMIT)?;
    let table = table()?;
    let first: BTreeSet<&str> = table.keys().map(|w| w[0].as_str()).collect();
    let all = ok_within(tool("nacre").arg("--help"), LIMIT)?;
    // Two blanks, and the commands of a line behind a comma.
    let named: BTreeSet<&str> = all
        .lines()
        .filter_map(|l| l.strip_prefix("  ").filter(|l| !l.starts_with(' ')))
        .filter_map(|l| l.split_whitespace().next())
        .filter(|w| !w.contains('.') && !matches!(*w, "nacred" | "lfs,"))
        .collect();
    ensure!(first == named, "of one only: {:?}", first.symmetric_difference(&named).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    // Texts of several commands name the options of all of them.
    let mut together: BTreeMap<&str, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
    for (words, options) in &table {
        let said = options_in(&help(words)?);
        wrong.extend(
            options.iter().filter(|o| o.starts_with("--") && !said.contains(*o)).map(|o| (words, o.clone())),
        );
        let (known, told) = together.entry(&words[0]).or_default();
        known.extend(options.iter().cloned());
        told.extend(said);
    }
    ensure!(wrong.is_empty(), "no help of theirs names: {wrong:?}");
    // Those of these two are words of other programs, and of tables of their own.
    for (command, (known, told)) in together.iter().filter(|(c, _)| !matches!(**c, "bench" | "lst")) {
        let other = |o: &&String| !known.contains(*o) && !matches!(o.as_str(), "--help" | "--version");
        // Options of other commands, which the text names.
        let of_others =
            [("remove", "--replace"), ("metrics", "--metrics"), ("domains", "--domain"), ("mgt", "--mgs")];
        let elsewhere = |o: &&String| !of_others.contains(&(*command, o.as_str()));
        let missing: Vec<_> = told.iter().filter(other).filter(elsewhere).collect();
        ensure!(missing.is_empty(), "'nacre {command}' has {missing:?}, which nothing completes");
    }
    Ok(())
}

/// What each shell makes of a line, sorted.
fn completed(shell: &str, words: &[&str]) -> Result<Vec<String>> {
    let files = tree().join("deploy/completion");
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    let line = match shell {
        "bash" => format!(
            ". {}/nacre; COMP_WORDS=({}); COMP_CWORD={}; _nacre; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            files.display(),
            quoted.join(" "),
            words.len() - 1
        ),
        // What zsh's own machinery would do with the words is played.
        "zsh" => format!(
            "compadd() {{ shift; for w; do [[ $w == $PREFIX* ]] && print -r -- $w; done; }}
             _files() {{ print -r -- files \"$@\"; }}
             words=({}); CURRENT={}; PREFIX='{}'; . {}/_nacre; true",
            quoted.join(" "),
            words.len(),
            words.last().context("a word")?,
            files.display()
        ),
        _ => format!("source {}/nacre.fish; complete -C '{}'", files.display(), words.join(" ")),
    };
    let mut c = Command::new(kit(shell));
    match shell {
        "bash" => c.args(["--norc", "-c"]),
        "zsh" => c.args(["-f", "-c"]),
        _ => c.args(["--no-config", "-c"]),
    };
    let path = std::env::var("PATH")?;
    let out = ok_within(c.arg(line).env("PATH", format!("{}:{path}", bin_dir().display())), LIMIT)?;
    let mut all: Vec<String> = out.lines().map(|l| l.split('\t').next().unwrap_or(l).to_string()).collect();
    all.retain(|l| !l.is_empty());
    all.sort();
    Ok(all)
}

#[test]
fn bash_zsh_and_fish_complete_the_same() -> Result<()> {
    for (words, expected) in [
        (&["nacre", "ba"][..], &["backup"][..]),
        (&["nacre", "backup", ""], &["list", "mdt", "mgt", "ost-labels", "verify"]),
        (&["nacre", "maintenance", "on", "--re"], &["--read-only", "--reason"]),
        (&["nacre", "snapshot", "create", "--barrier", ""], &["off", "on"]),
        (&["nacre", "ha", "takeover", "fo"], &["foreign"]),
        (&["nacre", "param", "help", "osc.*.max_dirty"], &["osc.*.max_dirty_mb"]),
        (&["lctl", "lfsck_start", "--type", "l"], &["layout"]),
        (&["lctl", "lfsck_st"], &["lfsck_start", "lfsck_stop"]),
        (&["lfs", "getst"], &["getstripe"]),
    ] {
        for shell in ["bash", "zsh", "fish"] {
            let all = completed(shell, words)?;
            ensure!(all == expected, "{shell} completes {words:?} as {all:?}, not {expected:?}");
        }
    }
    Ok(())
}

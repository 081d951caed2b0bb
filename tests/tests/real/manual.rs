//! The manual: each block marked `sh,run` is run, chapter by chapter, in a home of its own, and what a block
//! `text` behind it shows must be on the screen, but for numbers.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::cluster::{Scratch, ok_within, tool};
use tests::page::{fenced, shown};

const LIMIT: Duration = Duration::from_secs(300);
/// What a chapter's end does if the chapter did not come to it.
const LEAVE: &str = "set +e
[ ! -e ~/fs/cluster.json ] || nacre down --force --dir ~/fs >/dev/null
[ -d ~/mdt ] || return 0
umount -fl ~/lab 2>/dev/null
kill -9 $(jobs -p) 2>/dev/null
for h in mds oss1 oss2 client; do [ ! -e /run/netns/$h ] || ip netns del $h; done
ip link del nacre0 2>/dev/null
true";
/// Ahead of what a block printed.
const MARK: &str = "@@ block";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manual/src")
}

/// Commands, and what shall be seen of them.
fn blocks(text: &str) -> Vec<(String, Vec<String>)> {
    let mut out: Vec<(String, Vec<String>)> = Vec::new();
    let mut last_ran = false;
    for (kind, body) in fenced(text) {
        match (kind, out.last_mut()) {
            ("sh,run", _) => out.push((body.join("\n"), Vec::new())),
            ("text", Some((_, screens))) if last_ran => screens.push(body.join("\n")),
            _ => {}
        }
        last_ran = kind == "sh,run" || (kind == "text" && last_ran);
    }
    out
}

/// A chapter is one shell's work, from an empty home on.
fn follow(name: &str, all: &[(String, Vec<String>)]) -> Result<()> {
    let s = Scratch::new(&format!("manual-{name}"));
    let bin = s.path().join("bin");
    std::fs::create_dir(&bin)?;
    ok_within(tool("nacre").arg("install-links").arg(&bin), LIMIT)?;
    let home = s.path().join("home");
    std::fs::create_dir(&home)?;
    // Whatever happens, nothing of it stays.
    let mut script = format!("set -eu\nexec 2>&1\ncd\nleave() {{\n{LEAVE}\n}}\ntrap leave EXIT\n");
    for (n, (commands, _)) in all.iter().enumerate() {
        script += &format!("echo '{MARK} {n}'\n{commands}\n");
    }
    let file = s.path().join("typed");
    std::fs::write(&file, script)?;
    let path = std::env::var("PATH")?;
    let mut c = Command::new("bash");
    // The program itself is called nacre; install-links makes the others.
    let program = tool("nacre").get_program().to_owned();
    std::os::unix::fs::symlink(program, bin.join("nacre"))?;
    c.arg(&file).env("HOME", &home).env("PATH", format!("{}:{path}", bin.display()));
    let said = ok_within(&mut c, LIMIT).with_context(|| format!("chapter {name}"))?;
    let mut parts = said.split(MARK).skip(1);
    for (commands, screens) in all {
        let screen = parts.next().context("a block printed its mark")?;
        for text in screens {
            shown(text, screen).with_context(|| format!("chapter {name}, behind\n{commands}"))?;
        }
    }
    Ok(())
}

#[test]
fn what_the_manual_has_one_type_does_what_it_says() -> Result<()> {
    let summary = std::fs::read_to_string(sources().join("SUMMARY.md"))?;
    let mut chapters: Vec<String> = std::fs::read_dir(sources())?
        .filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|n| n.ends_with(".md") && n != "SUMMARY.md")
        .collect();
    chapters.sort();
    let mut ran = 0;
    for file in &chapters {
        ensure!(summary.contains(&format!("({file})")), "SUMMARY.md does not name {file}");
        let text = std::fs::read_to_string(sources().join(file))?;
        let all = blocks(&text);
        if !all.is_empty() {
            follow(file.trim_end_matches(".md"), &all)?;
            ran += all.len();
        }
    }
    for named in summary.match_indices("](").filter_map(|(i, _)| summary[i + 2..].split(')').next()) {
        ensure!(sources().join(named).exists(), "SUMMARY.md names {named}, which is not there");
    }
    ensure!(ran >= 10, "only {ran} blocks of the manual are run");
    Ok(())
}

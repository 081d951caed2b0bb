//! Pages of the documentation, followed to the letter: their blocks of commands are run on the hosts that
//! their first lines name, and what they show of the screen must be on the screen, but for numbers.
//! Namespaces have no disks and no power controllers: those commands and words are left out, see [`here`].

use crate::cluster::{Scratch, bin_dir, ok_within, run_within, tool};
use crate::machines::{Machines, Power, Shared, lock, on};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);
/// A block of the page.
enum Block {
    /// The first line's words behind `# `, the other lines.
    Commands(String, String),
    Screen(String),
}

/// The blocks of a page: what stands behind the fence of each, and its lines.
pub fn fenced(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut out = Vec::new();
    let mut lines = text.lines();
    while let Some(l) = lines.next() {
        let Some(kind) = l.strip_prefix("```") else { continue };
        out.push((kind, lines.by_ref().take_while(|l| *l != "```").collect()));
    }
    out
}

fn blocks(text: &str) -> Vec<Block> {
    let block = |(kind, all): (&str, Vec<&str>)| match kind {
        "sh" => {
            let place = all[0].strip_prefix("# ").expect("each block says where").to_string();
            Some(Block::Commands(place, all[1..].join("\n")))
        }
        "text" => Some(Block::Screen(all.join("\n"))),
        _ => None,
    };
    fenced(text).into_iter().filter_map(block).collect()
}

/// The commands as they can be run here.
fn here(commands: &str, site: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").display();
    let no_such_thing = ["apt-get ", "install target/", "mkfs.xfs ", "umount /srv"];
    let kept = commands.lines().filter(|l| !no_such_thing.iter().any(|n| l.starts_with(n)));
    let line = |l: &str| {
        let l = match l.split_once("fence_ipmilan") {
            Some((before, after)) if after.contains("$1") => {
                format!("{before}fence_netns -o off -n \"$1\" -s {site}")
            }
            Some((before, _)) => format!("{before}fence_netns site={site}"),
            None => l.to_string(),
        };
        let l = l.replace("deploy/", &format!("{root}/deploy/"));
        l.split_once(" device=").map_or(l.clone(), |(before, _)| before.to_string())
    };
    kept.map(line).collect::<Vec<_>>().join("\n")
}

/// `2.1ms`, `2.603946228s`: how long it takes differs, and the unit with it.
fn is_duration(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    unit.len() < word.len() && ["ns", "µs", "ms", "s"].contains(&unit)
}

/// A line without what differs from day to day.
fn shape(line: &str) -> String {
    let words = line.split_whitespace().map(|w| if is_duration(w) { "#s" } else { w });
    let words: Vec<&str> = words.collect();
    let known: String = words.join(" ").chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    let mut out = String::new();
    for c in known.chars() {
        if !(c == '#' && out.ends_with('#')) {
            out.push(c);
        }
    }
    // Days and months.
    let dated = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    match dated.iter().find_map(|d| out.find(&format!("at {d} "))) {
        Some(at) => out[..at].to_string(),
        None => out,
    }
}

/// The hosts of a page.
pub struct Page {
    /// 1 to n; who else is named is behind them, and has a network only.
    names: &'static [&'static str],
    _power: Power,
    pub machines: Shared,
    mount: PathBuf,
    scratch: Scratch,
}

impl Page {
    pub fn boot(names: &'static [&'static str]) -> Result<Page> {
        let scratch = Scratch::new("page");
        let mount = scratch.path().join("mnt");
        std::fs::create_dir(&mount)?;
        let links = scratch.path().join("bin");
        std::fs::create_dir(&links)?;
        ok_within(tool("nacre").arg("install-links").arg(&links), LIMIT)?;
        let machines = Machines::boot_all(names, 1, scratch.path(), std::slice::from_ref(&mount))?;
        let machines = Arc::new(Mutex::new(machines));
        Ok(Page { names, _power: Power::new(&machines, scratch.path()), machines, mount, scratch })
    }

    fn host(&self, name: &str) -> Option<u32> {
        (1..).zip(self.names).find(|(_, n)| **n == name).map(|(i, _)| i)
    }

    /// What came by `scp`.
    fn deliver(&self) -> Result<()> {
        for (host, name) in (1..).zip(self.names) {
            let mail = self.scratch.path().join("mail").join(name);
            if mail.exists() {
                on(&self.machines, host, &format!("cp -a {}/. / && rm -r {0}", mail.display()), LIMIT)?;
            }
        }
        Ok(())
    }

    fn run(&self, place: &str, commands: &str) -> Result<String> {
        let site = self.scratch.path().display().to_string();
        let line = format!("set -e\n{}", here(commands, &site));
        let mut said = String::new();
        if let Some(name) = place.strip_prefix("power off ") {
            lock(&self.machines).power_off(self.host(name).context("a host")?)?;
            return Ok(said);
        }
        if let Some(name) = place.strip_prefix("power on ") {
            lock(&self.machines).boot(self.host(name).context("a host")?)?;
            return Ok(said);
        }
        for name in place.strip_prefix("on ").context("a place")?.split(" and ") {
            match self.host(name) {
                Some(host) => {
                    // As typed: no process has all of it in its command line.
                    let script = self.scratch.path().join("typed");
                    std::fs::write(&script, &line)?;
                    said += &on(&self.machines, host, &format!("sh {} 2>&1", script.display()), LIMIT)?;
                }
                None => said += &self.login(&line)?,
            }
        }
        self.deliver()?;
        Ok(said)
    }

    fn login(&self, line: &str) -> Result<String> {
        let line = line.replace("/mnt", &self.mount.display().to_string());
        let line = line.replace("/usr/bin/nacre", &bin_dir().join("nacre").display().to_string());
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", lock(&self.machines).hosts.network(self.names.len() as u32 + 1)));
        let path = std::env::var("PATH").unwrap_or_default();
        c.env("PATH", format!("{}:{path}", self.scratch.path().join("bin").display()));
        ok_within(c.args(["bash", "-c", &line]), LIMIT)
    }

    /// Every block; after each of commands `then` may do what else is needed here, and put something else on
    /// the screen.
    pub fn follow(
        &self,
        text: &str,
        mut then: impl FnMut(&Page, &str, &mut String) -> Result<()>,
    ) -> Result<()> {
        let mut screen = String::new();
        for b in blocks(text) {
            match b {
                Block::Commands(place, commands) => {
                    screen = self.run(&place, &commands).with_context(|| {
                        format!("on the page: {place}:\n{commands}\n{}", lock(&self.machines).all_said())
                    })?;
                    then(self, &commands, &mut screen)?;
                }
                Block::Screen(text) => {
                    shown(&text, &screen).with_context(|| lock(&self.machines).all_said())?;
                }
            }
        }
        run_within(Command::new("umount").arg(&self.mount), LIMIT)?;
        Ok(())
    }
}

/// Each line of `text` is on the screen, but for numbers and durations.
pub fn shown(text: &str, screen: &str) -> Result<()> {
    let seen: Vec<String> = screen.lines().map(shape).collect();
    for line in text.lines() {
        let want = shape(line);
        ensure!(
            seen.iter().any(|s| s.contains(&want)),
            "the page shows\n{line}\nand the screen had\n{screen}"
        );
    }
    Ok(())
}

//! docs/ha.md, followed to the letter: its blocks of commands are run on the hosts that their first lines name, and what it
//! shows of the screen must be on the screen, but for numbers. Namespaces have no disks and no power controllers: those
//! commands and words are left out, see [`here`].

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tests::cluster::{Scratch, bin_dir, ok_within, run_within, tool, wait_until};
use tests::machines::{Machines, Power, Shared, lock, on};

const LIMIT: Duration = Duration::from_secs(180);
const PAGE: &str = include_str!("../../../docs/ha.md");
const HOSTS: [&str; 2] = ["oss1", "oss2"];
const LOGIN: u32 = 3;

/// A block of the page.
enum Block {
    /// The first line's words behind `# `, the other lines.
    Commands(String, String),
    Screen(String),
}

/// Up to the block's end.
fn body<'a>(lines: &mut std::str::Lines<'a>) -> Vec<&'a str> {
    lines.take_while(|l| *l != "```").collect()
}

fn blocks() -> Vec<Block> {
    let mut out = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(l) = lines.next() {
        match l {
            "```sh" => {
                let all = body(&mut lines);
                let place = all[0].strip_prefix("# ").expect("each block says where").to_string();
                out.push(Block::Commands(place, all[1..].join("\n")));
            }
            "```text" => out.push(Block::Screen(body(&mut lines).join("\n"))),
            _ => {}
        }
    }
    out
}

/// The commands as they can be run here.
fn here(commands: &str, site: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").display();
    let no_such_thing = ["apt-get ", "install target/", "mkfs.xfs ", "umount "];
    let kept = commands.lines().filter(|l| !no_such_thing.iter().any(|n| l.starts_with(n)));
    let line = |l: &str| {
        let l = match l.split_once("fence_ipmilan") {
            Some((before, _)) => format!("{before}fence_netns site={site}"),
            None => l.to_string(),
        };
        let l = l.replace("deploy/ocf", &format!("{root}/deploy/ocf"));
        l.split_once(" device=").map_or(l.clone(), |(before, _)| before.to_string())
    };
    kept.map(line).collect::<Vec<_>>().join("\n")
}

/// A line without what differs from day to day.
fn shape(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
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

struct Page {
    _power: Power,
    machines: Shared,
    mount: PathBuf,
    scratch: Scratch,
}

impl Page {
    /// What came by `scp`.
    fn deliver(&self) -> Result<()> {
        for (host, name) in (1..).zip(HOSTS) {
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
            let host = 1 + HOSTS.iter().position(|h| *h == name).context("a host")? as u32;
            lock(&self.machines).power_off(host)?;
            return Ok(said);
        }
        for name in place.strip_prefix("on ").context("a place")?.split(" and ") {
            match HOSTS.iter().position(|h| *h == name) {
                Some(i) => {
                    // As typed: no process has all of it in its command line.
                    let script = self.scratch.path().join("typed");
                    std::fs::write(&script, &line)?;
                    said +=
                        &on(&self.machines, i as u32 + 1, &format!("sh {} 2>&1", script.display()), LIMIT)?;
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
        c.arg(format!("--net={}", lock(&self.machines).hosts.network(LOGIN)));
        let path = std::env::var("PATH").unwrap_or_default();
        c.env("PATH", format!("{}:{path}", self.scratch.path().join("bin").display()));
        ok_within(c.args(["bash", "-c", &line]), LIMIT)
    }
}

#[test]
fn the_page_on_high_availability_is_true() -> Result<()> {
    let scratch = Scratch::new("page");
    let mount = scratch.path().join("mnt");
    std::fs::create_dir(&mount)?;
    let links = scratch.path().join("bin");
    std::fs::create_dir(&links)?;
    ok_within(tool("nacre").arg("install-links").arg(&links), LIMIT)?;
    let machines = Machines::boot_all(&HOSTS, 1, scratch.path(), std::slice::from_ref(&mount))?;
    let machines = Arc::new(Mutex::new(machines));
    let page = Page { _power: Power::new(&machines, scratch.path()), machines, mount, scratch };
    let mut screen = String::new();
    for b in blocks() {
        match b {
            Block::Commands(place, commands) => {
                screen = page.run(&place, &commands).with_context(|| {
                    format!("on the page: {place}:\n{commands}\n{}", lock(&page.machines).all_said())
                })?;
                if commands.contains("cib-push") {
                    // This machine is two hosts and whatever else it does: Pacemaker would wait for it to calm down.
                    on(&page.machines, 1, "pcs property set load-threshold=1000%", LIMIT)?;
                }
                if commands.contains("enable --now") {
                    wait_until("both hosts are members", LIMIT, || {
                        screen = on(&page.machines, 1, "crm_mon -1", LIMIT).unwrap_or_default();
                        screen.contains("Online: [ oss1 oss2 ]")
                    })?;
                }
            }
            Block::Screen(text) => {
                let seen: Vec<String> = screen.lines().map(shape).collect();
                for line in text.lines() {
                    let want = shape(line);
                    ensure!(
                        seen.iter().any(|s| s.contains(&want)),
                        "the page shows\n{line}\nand the screen had\n{screen}"
                    );
                }
            }
        }
    }
    run_within(Command::new("umount").arg(&page.mount), LIMIT)?;
    Ok(())
}

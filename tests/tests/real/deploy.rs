//! A cluster from one file: hosts are namespaces, each with a network, mounts and control sockets of its own.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tests::cluster::{Running, Scratch, kill, ok_within, run_within, tool, wait_until};
use tests::hosts::Hosts;
use tests::sshd::Sshd;

const LIMIT: Duration = Duration::from_secs(300);

/// A file's hosts. A script takes commands there, or ssh(1) where a test is about that.
struct Site {
    names: Vec<String>,
    holders: Vec<Option<Running>>,
    hosts: Hosts,
    sshd: Option<Sshd>,
    file: PathBuf,
    scratch: Scratch,
}

/// Values of a key of each `[[host]]`, in their order.
fn of_hosts(text: &str, key: &str) -> Vec<String> {
    let start = format!("{key} = \"");
    let parts = text.split("[[host]]").skip(1);
    let line = |p: &str| p.lines().find_map(|l| l.strip_prefix(&start)).map(String::from);
    parts.filter_map(line).map(|l| l.trim_end_matches('"').to_string()).collect()
}

impl Site {
    /// Of a file for real hosts: with the addresses of namespaces, the way to them, and folders of the test.
    fn new(name: &str, text: &str) -> Result<Site> {
        Site::reached(name, text, false)
    }

    /// `ssh`: the file's way to the hosts is kept; nobody has looked at their keys yet.
    fn reached(name: &str, text: &str, ssh: bool) -> Result<Site> {
        let scratch = Scratch::new(name);
        let names = of_hosts(text, "name");
        let hosts = Hosts::new(names.len() as u32, &[])?;
        let bin = scratch.path().join("bin");
        fs::create_dir(&bin)?;
        ok_within(tool("nacre").arg("install-links").arg(&bin), LIMIT)?;
        std::os::unix::fs::symlink(tool("nacre").get_program(), bin.join("nacre"))?;
        let on = "#!/bin/sh\nh=$(dirname \"$0\")/$1; shift\nexec nsenter -t \"$(cat \"$h/pid\")\" --mount --net --uts \"$@\"\n";
        fs::write(scratch.path().join("on"), on)?;
        ok_within(Command::new("chmod").arg("755").arg(scratch.path().join("on")), LIMIT)?;
        let sshd = match ssh {
            true => Some(Sshd::new(&scratch.path().join("ssh"), &bin, &hosts.network(1))?),
            false => None,
        };
        let mut here = text.replace("/srv/nacre", &scratch.path().join("srv").display().to_string());
        here = here.replace("/mnt/", &format!("{}/mnt-", scratch.path().display()));
        if !here.contains("service = ") {
            here = here.replacen("\n\n", "\nservice = \"process\"\n\n", 1);
        }
        for (i, (name, nid)) in (1u32..).zip(names.iter().zip(of_hosts(text, "nids"))) {
            let on = format!("exec = \"{} {name}\"", scratch.path().join("on").display());
            here = here.replace(&format!("\"{nid}\""), &format!("\"{}\"", Hosts::nid(i)));
            if let Some(s) = &sshd {
                s.named(name, i)?;
            } else {
                here = here.replace(&format!("ssh = \"root@{name}\""), &on);
            }
        }
        let file = scratch.path().join("cluster.toml");
        fs::write(&file, here)?;
        let holders = names.iter().map(|_| None).collect();
        let mut site = Site { names, holders, hosts, sshd, file, scratch };
        (0..site.names.len()).try_for_each(|i| site.boot(i))?;
        Ok(site)
    }

    fn boot(&mut self, i: usize) -> Result<()> {
        let home = self.scratch.path().join(&self.names[i]);
        let number = i as u32 + 1;
        let sshd = match &self.sshd {
            Some(s) => s.started(number, &self.scratch.path().join("bin"))?,
            None => String::new(),
        };
        for d in ["etc", "log"] {
            fs::create_dir_all(home.join(d))?;
        }
        let (home_text, name) = (home.display(), &self.names[i]);
        let script = format!(
            "hostname {name}; mkdir -p /etc/nacre /var/log/nacre /run/nacre
             mount -t tmpfs none /run/nacre
             mount --bind {home_text}/etc /etc/nacre; mount --bind {home_text}/log /var/log/nacre
             {sshd}
             echo $$ >{home_text}/pid.new; mv {home_text}/pid.new {home_text}/pid; exec sleep infinity"
        );
        let _ = fs::remove_file(home.join("pid"));
        let mut c = Command::new("nsenter");
        c.arg(format!("--net={}", self.hosts.network(number)));
        c.args(["unshare", "--mount", "--uts", "sh", "-euc", &script]).stdin(Stdio::null());
        self.holders[i] = Some(Running(c.spawn()?));
        wait_until("the host is there", LIMIT, || home.join("pid").exists())
    }

    fn number(&self, name: &str) -> usize {
        self.names.iter().position(|n| n == name).expect("a host of the file")
    }

    /// Everything that runs there ends at once.
    fn power_off(&mut self, name: &str) -> Result<()> {
        let i = self.number(name);
        let holder = self.holders[i].take().context("it is on")?;
        let own = fs::read_link(format!("/proc/{}/ns/mnt", holder.0.id()))?;
        let here = || {
            let all = fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
            pids.filter(|p| fs::read_link(format!("/proc/{p}/ns/mnt")).is_ok_and(|l| l == own))
                .collect::<Vec<_>>()
        };
        for pid in here() {
            kill(pid, Signal::KILL)?;
        }
        drop(holder);
        wait_until("the host is off", LIMIT, || here().is_empty())
    }

    fn deploy(&self, args: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.scratch.path().join("bin");
        let mut c = Command::new(bin.join("nacre"));
        c.env("PATH", format!("{}:{path}", bin.display()));
        c.arg("deploy").args(args).arg(&self.file);
        c
    }

    fn says(&self, args: &[&str]) -> Result<String> {
        ok_within(&mut self.deploy(args), LIMIT).with_context(|| self.logs())
    }

    fn json(&self, args: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.says(&[args, &["--json"]].concat())?)?)
    }

    /// It ends with this status and says this.
    fn fails(&self, args: &[&str], status: i32, part: &str) -> Result<()> {
        let o = run_within(&mut self.deploy(args), LIMIT)?;
        let said = format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        ensure!(o.status.code() == Some(status) && said.contains(part), "{args:?}: {}: {said}", o.status);
        Ok(())
    }

    /// A shell line on a host.
    fn on(&self, name: &str, line: &str) -> Result<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut c = Command::new(self.scratch.path().join("on"));
        c.env("PATH", format!("{}:{path}", self.scratch.path().join("bin").display()));
        ok_within(c.args([name, "bash", "-euc", line]), LIMIT).with_context(|| self.logs())
    }

    fn mount(&self, name: &str) -> String {
        format!("{}/mnt-{name}", self.scratch.path().display())
    }

    fn logs(&self) -> String {
        let mut out = String::new();
        for n in &self.names {
            let dir = self.scratch.path().join(n).join("log");
            for f in fs::read_dir(dir).into_iter().flatten().flatten() {
                let text = fs::read_to_string(f.path()).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(8).collect();
                let lines: Vec<&str> = lines.into_iter().rev().collect();
                out += &format!("-- {n} {}:\n{}\n", f.file_name().to_string_lossy(), lines.join("\n"));
            }
        }
        out.chars().take(12_000).collect()
    }

    /// All of a file is made, made once, as it says, used, and gone again.
    fn made_used_and_wiped(&self, client: &str, mount: &str, osts: usize) -> Result<()> {
        let began = Instant::now();
        let r = self.json(&["apply"])?;
        ensure!(r["ok"] == true, "{r:#}");
        let (steps, took) = (r["done"].as_array().map_or(0, Vec::len), began.elapsed());
        let again = self.json(&["apply"])?;
        ensure!(again["ok"] == true && again["done"] == serde_json::json!([]), "{again:#}");
        ensure!(self.says(&["plan"])?.contains("nothing to do"));
        let s = self.json(&["status"])?;
        ensure!(s["ok"] == true && s["differences"] == serde_json::json!([]), "{s:#}");
        let at = self.mount(mount);
        self.knows(client, &at, osts)?;
        let began = Instant::now();
        let df = self.on(client, &format!("lfs df {at}"))?;
        let df_took = began.elapsed();
        ensure!(df.matches("[OST:").count() == osts, "{df}");
        self.on(
            client,
            &format!("lfs setstripe -c {} {at}/all; cp /bin/ls {at}/all; cmp /bin/ls {at}/all", osts.min(6)),
        )?;
        println!("{osts} OSTs: {steps} steps in {took:?}, lfs df in {df_took:?}");
        self.wiped()
    }

    /// The mount has heard of all.
    fn knows(&self, client: &str, at: &str, osts: usize) -> Result<()> {
        wait_until("all OSTs are known", LIMIT, || {
            self.on(client, &format!("lfs osts {at}")).is_ok_and(|t| t.matches(" ACTIVE").count() == osts)
        })
    }

    fn wiped(&self) -> Result<()> {
        self.fails(&["wipe"], 1, "say --yes")?;
        self.says(&["wipe", "--yes"])?;
        let left = self.json(&["wipe", "--yes"])?;
        ensure!(left["done"] == serde_json::json!([]), "{left:#}");
        let srv = self.scratch.path().join("srv");
        let mut found = Vec::new();
        for t in fs::read_dir(srv).into_iter().flatten().flatten() {
            found.extend(fs::read_dir(t.path()).into_iter().flatten().flatten().map(|e| e.path()));
        }
        ensure!(found.is_empty(), "left behind: {found:?}");
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for n in self.names.clone() {
            let _ = self.power_off(&n);
        }
    }
}

fn preset(name: &str) -> Result<String> {
    ok_within(tool("nacre").args(["deploy", "preset", name]), LIMIT)
}

const SMALL: &str = r#"fsname = "small"
at_once = 1

[[host]]
name = "mds"
nids = "10.0.0.1@tcp"
roles = ["mgs", "mdt", "client"]
ssh = "root@mds"

[[host]]
name = "oss1"
nids = "10.0.0.2@tcp"
roles = ["ost"]
ssh = "root@oss1"
location = "rack 7"

[[host]]
name = "oss2"
nids = "10.0.0.3@tcp"
roles = ["ost"]
ssh = "root@oss2"

[[mdt]]
host = "mds"
dir = "/srv/nacre/mdt0/target"

[[ost]]
index = "0-1"
host = "oss1"
dir = "/srv/nacre/ost{index}/target"

[[ost]]
index = "2-3"
host = "oss2"
dir = "/srv/nacre/ost{index}/target"

[[mount]]
dir = "/mnt/small"

[pools]
second = "2-3"

[params]
"osc.small-OST*.max_rpcs_in_flight" = 12
"#;

#[test]
fn a_brick_of_two_servers_is_made_from_its_preset_and_wiped() -> Result<()> {
    let text = preset("brick")?;
    let site = Site::new("brick", &text)?;
    // The bridge of the test has small packets.
    site.fails(&["plan"], 1, ", and [network.tcp] says 9000")?;
    let here = fs::read_to_string(&site.file)?;
    fs::write(&site.file, here.replace("mtu = 9000\n", ""))?;
    site.made_used_and_wiped("login", "brick", 6)
}

#[test]
fn a_site_of_twenty_unequal_servers_is_made_from_its_preset_and_wiped() -> Result<()> {
    // Fewer targets, as unequal: what is made is the same, the machine is smaller.
    let mut text = String::new();
    for line in preset("grid-site")?.lines() {
        let line = match line.strip_prefix("index = \"").and_then(|l| l.trim_end_matches('"').split_once('-'))
        {
            Some((a, b)) => {
                let (a, b): (u32, u32) = (a.parse()?, b.parse()?);
                format!("index = \"{a}-{}\"", a + (b - a).div_ceil(2) - 1)
            }
            None => line.to_string(),
        };
        let pool = ["old = ", "mid = ", "new = "].iter().any(|p| line.starts_with(p));
        if !pool {
            text += &format!("{line}\n");
        }
    }
    text = text.replace("[pools]\n", "[pools]\nmid = \"16-17,20-21\"\n");
    let site = Site::new("grid", &text)?;
    let told = site.scratch.path().join("worker/etc/grid-metrics.json");
    site.made_used_and_wiped("worker", "grid", 40)?;
    ensure!(!told.exists(), "the addresses of metrics went as well");
    Ok(())
}

#[test]
fn what_plan_prints_can_be_typed_and_makes_a_laptop_of_its_preset() -> Result<()> {
    let scratch = Scratch::new("laptop");
    let bin = scratch.path().join("bin");
    fs::create_dir(&bin)?;
    ok_within(tool("nacre").arg("install-links").arg(&bin), LIMIT)?;
    std::os::unix::fs::symlink(tool("nacre").get_program(), bin.join("nacre"))?;
    let base = scratch.path().display().to_string();
    let text =
        preset("laptop")?.replace("/var/lib/nacre", &base).replace("/mnt/laptop", &format!("{base}/mnt"));
    let file = scratch.path().join("laptop.toml");
    fs::write(&file, text)?;
    let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
    let typed = |line: &str| {
        let mut c = Command::new("bash");
        ok_within(c.args(["-euc", line]).env("PATH", &path).env("FILE", &file), LIMIT)
    };
    let printed = typed("nacre deploy plan --commands $FILE >$FILE.sh; cat $FILE.sh; sh -e $FILE.sh")?;
    ensure!(printed.contains("\nmkfs.nacre --quiet --mgs --mdt --fsname=laptop"), "{printed}");
    ensure!(printed.contains("\nnacre ha start --log /var/log/nacre/laptop.log"), "{printed}");
    let used =
        typed(&format!("nacre deploy status $FILE; cp /bin/ls {base}/mnt/; nacre deploy apply $FILE"))?;
    ensure!(used.contains("laptop is as the file says: nothing was done"), "{used}");
    typed("nacre deploy wipe --commands $FILE >$FILE.sh; sh -e $FILE.sh")?;
    ensure!(!scratch.path().join("laptop/mdt0").exists(), "it is gone");
    Ok(())
}

#[test]
fn an_object_server_that_came_back_empty_is_replaced_from_the_file() -> Result<()> {
    let mut site = Site::reached("lost", SMALL, true)?;
    // A newcomer's first try: ssh(1) would ask whether the key is the host's.
    site.fails(&["plan"], 1, "mds: it cannot be asked: Host key verification failed")?;
    let sshd = site.sshd.as_ref().context("by ssh")?;
    (1..=3).try_for_each(|host| sshd.trust(host))?;
    site.says(&["apply"])?;
    let at = site.mount("small");
    site.knows("mds", &at, 4)?;
    site.on("mds", &format!("for i in 0 1 2 3; do lfs setstripe -o $i {at}/f$i; head -c 300000 /bin/bash >{at}/f$i; done; sync"))?;
    let params = site.on("mds", "nacre config show; lctl pool_list small.second")?;
    ensure!(params.contains("osc.small-OST*.max_rpcs_in_flight=12"), "{params}");
    ensure!(params.contains("small-OST0002_UUID") && params.contains("small-OST0003_UUID"), "{params}");

    site.power_off("oss1")?;
    site.fails(&["status"], 1, "oss1: it cannot be asked")?;
    site.fails(&["apply"], 1, "rack 7")?;
    site.says(&["apply", "--without", "oss1"])?;
    for i in [0, 1] {
        fs::remove_dir_all(site.scratch.path().join(format!("srv/ost{i}")))?;
    }
    let i = site.number("oss1");
    site.boot(i)?;
    site.fails(&["apply"], 1, "nacre deploy apply --replace oss1 puts an empty one in its place")?;
    let r = site.json(&["apply", "--replace", "oss1"])?;
    ensure!(r["ok"] == true && r["notes"].to_string().contains("nacre lost small-OST0001"), "{r:#}");
    site.says(&["status"])?;
    let lost = site.on(
        "mds",
        &format!(
            "cat {at}/f1 >/dev/null 2>&1 && echo read; cmp {at}/f2 <(head -c 300000 /bin/bash) && echo whole"
        ),
    )?;
    ensure!(lost == "whole\n", "{lost}");
    site.on("mds", &format!("lfs setstripe -o 1 {at}/new; cp /bin/ls {at}/new; cmp /bin/ls {at}/new"))?;
    site.wiped()
}

#[test]
fn apply_that_was_stopped_goes_on_and_what_differs_is_told() -> Result<()> {
    let site = Site::new("stopped", SMALL)?;
    let mut first = Running(site.deploy(&["apply"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn()?);
    let made = || site.scratch.path().join("srv/ost1/target/superblock").exists();
    wait_until("some targets are made", LIMIT, made)?;
    kill(first.0.id() as i32, Signal::INT)?;
    wait_until("it ends", LIMIT, || first.0.try_wait().is_ok_and(|s| s.is_some()))?;
    let status = first.0.wait()?;
    ensure!(status.code() == Some(130), "{status}");
    let before: BTreeSet<String> = uuids(&site)?;
    ensure!(!before.is_empty());
    let r = site.json(&["apply"])?;
    ensure!(r["ok"] == true, "{r:#}");
    ensure!(before.is_subset(&uuids(&site)?), "what was made is not made again");

    // Something else than the file: another mount, a pool, a server that ended, a target less in the file.
    let extra = format!("{}/extra", site.scratch.path().display());
    site.on(
        "mds",
        &format!("mkdir {extra}; mount.nacre 10.77.0.1@tcp:/small {extra}; lctl pool_new small.other"),
    )?;
    site.on(
        "oss2",
        &format!("nacre ha stop {0}/srv/ost2/target {0}/srv/ost3/target", site.scratch.path().display()),
    )?;
    let o = run_within(&mut site.deploy(&["status", "--json"]), LIMIT)?;
    let s: Value = serde_json::from_slice(&o.stdout)?;
    let said = s["differences"].to_string();
    ensure!(o.status.code() == Some(1), "{s:#}");
    for part in ["is mounted at", "the pool small.other is there", "small-OST0003 is not served"] {
        ensure!(said.contains(part), "{part}: {said}");
    }
    let text = fs::read_to_string(&site.file)?.replace("index = \"0-1\"", "index = \"0\"");
    let whole = fs::read_to_string(&site.file)?;
    fs::write(&site.file, text)?;
    site.fails(&["status"], 1, "small-OST0001 is served from")?;
    fs::write(&site.file, whole)?;
    site.on("mds", &format!("umount {extra}; lctl pool_destroy small.other"))?;
    let r = site.json(&["apply"])?;
    ensure!(r["done"].as_array().map(Vec::len) == Some(1), "the server that ended is started: {r:#}");
    site.wiped()
}

/// UUIDs of the targets that are made.
fn uuids(site: &Site) -> Result<BTreeSet<String>> {
    let mut out = BTreeSet::new();
    for t in fs::read_dir(site.scratch.path().join("srv"))?.flatten() {
        let dir: PathBuf = t.path().join("target");
        if !Path::new(&dir).join("superblock").exists() {
            continue;
        }
        let all = site.on("mds", &format!("nacre deploy facts --json --dir={}", dir.display()))?;
        let v: Value = serde_json::from_str(&all)?;
        out.insert(v["folders"][dir.to_str().context("text")?]["holds"]["target"]["uuid"].to_string());
    }
    Ok(out)
}

/// A program of PATH.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|d| d.join(program)).find(|p| p.exists())
}

/// With Ansible the role makes the cluster; without it, its files are read as YAML, which is said.
#[test]
fn the_role_for_ansible_makes_the_same_from_the_same_file() -> Result<()> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/ansible").canonicalize()?;
    let Some(ansible) = found("ansible-playbook") else {
        println!("no ansible-playbook here: its files are only read as YAML");
        let read = "import sys, yaml; [yaml.safe_load(open(f)) for f in sys.argv[1:]]";
        let all = ok_within(Command::new("find").arg(&tree).args(["-name", "*.yml"]), LIMIT)?;
        ensure!(all.lines().count() >= 5, "{all}");
        return ok_within(Command::new("python3").args(["-c", read]).args(all.lines()), LIMIT).map(drop);
    };
    let site = Site::new("ansible", SMALL)?;
    let inventory = site.scratch.path().join("inventory.json");
    fs::write(&inventory, site.says(&["inventory"])?)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let played = |args: &[&str]| {
        let mut c = Command::new(&ansible);
        c.arg("-i").arg(&inventory).arg(tree.join("site.yml")).args(args);
        c.args(["-e", &format!("nacre_cluster={}", site.file.display()), "-e", "ansible_become=false"]);
        let python = found("python3").context("Ansible has one")?;
        c.args(["-e", &format!("ansible_python_interpreter={}", python.display())]);
        c.env("PATH", format!("{}:{path}", site.scratch.path().join("bin").display()));
        c.env("HOME", site.scratch.path()).env("ANSIBLE_LOCALHOST_WARNING", "False");
        ok_within(&mut c, LIMIT).with_context(|| site.logs())
    };
    played(&["--syntax-check"])?;
    played(&[])?;
    ensure!(site.json(&["status"])?["ok"] == true);
    let again = played(&[])?;
    ensure!(
        again.lines().filter(|l| l.contains(" changed=0 ")).count() >= 3,
        "a second time nothing is changed: {again}"
    );
    site.wiped()
}

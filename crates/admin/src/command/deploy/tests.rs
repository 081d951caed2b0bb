//! Files that are wrong, plans of what was found, and `apply` on hosts that are only played.

use super::apply::{self, End};
use super::facts::{Facts, Folder, FolderFact, Interface, Label, MountFact};
use super::file::{Cluster, Host, Role};
use super::gather::{Answer, Found};
use super::host::Hosts;
use super::steps::{self, Stage, Wishes};
use super::{host, inventory, preset, read, service, status, wipe};
use crate::interrupt::Interrupt;
use crate::local::{DaemonStatus, DaemonTarget};
use mgs::restore::{Shown, ShownFs, ShownTarget};
use model::mutex::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use world::sys::process::Finished;

const FILE: &str = r#"fsname = "demo"
service = "process"

[[host]]
name = "m"
nids = "10.0.0.1@tcp"
roles = ["mgs", "mdt"]
exec = "on m"

[[host]]
name = "a"
nids = ["10.0.0.2@tcp"]
roles = ["ost"]
exec = "on a"
domain = "rack1/a"

[[host]]
name = "b"
nids = "10.0.0.3@tcp"
roles = ["ost", "client"]
exec = "on b"

[[mdt]]
host = "m"
dir = "/srv/mdt0"

[[ost]]
index = "0-1"
host = "a"
dir = "/srv/ost{index}"

[[ost]]
index = 2
hosts = ["b", "a"]
dir = "/srv/ost2"

[[mount]]
dir = "/mnt/demo"

[pools]
fast = "0,2"

[params]
"osc.demo-OST*.max_dirty_mb" = 64
"#;

fn demo() -> Cluster {
    read::read(FILE).expect("it makes sense")
}

/// Says what is wrong with the file after a change.
fn wrong(old: &str, new: &str) -> String {
    assert!(FILE.contains(old), "{old}");
    read::read(&FILE.replacen(old, new, 1)).expect_err(new).to_string()
}

#[test]
fn what_a_file_says_is_read() {
    let c = demo();
    let labels: Vec<&str> = c.targets.iter().map(|t| t.label.as_str()).collect();
    assert_eq!(labels, ["demo-MDT0000", "demo-OST0000", "demo-OST0001", "demo-OST0002"]);
    assert!(c.targets[0].with_mgt, "nobody else has the MGT");
    assert_eq!((c.mgs_nids().as_str(), c.targets[2].dir.as_str()), ("10.0.0.1@tcp", "/srv/ost1"));
    assert_eq!(c.mounts[0].hosts, ["b"], "those with the role");
    assert_eq!(c.pools["fast"], [0, 2]);
    assert_eq!(c.params["osc.demo-OST*.max_dirty_mb"], "64");
    assert!(c.host("b").has(Role::Client) && !c.host("a").has(Role::Client));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_to_write() {
    for (old, new, line, part) in [
        ("fsname = \"demo\"", "fsname = \"demo\"\nfsnam = 1", 2, "no key 'fsnam': is 'fsname' meant?"),
        ("fsname = \"demo\"", "fsname = \"demonstration\"", 1, "1 to 8 of"),
        ("fsname = \"demo\"", "fsname = demo", 1, "this is no TOML"),
        ("service = \"process\"", "service = \"upstart\"", 2, "systemd (units), or process"),
        ("nids = \"10.0.0.1@tcp\"", "nids = \"10.0.0.1@o2ib\"", 6, "TCP only"),
        ("nids = \"10.0.0.1@tcp\"", "adress = \"x\"", 4, "nids is missing"),
        ("exec = \"on m\"", "exec = \"on m\"\nssh = \"m\"", 4, "'ssh' and 'exec' exclude each other"),
        ("exec = \"on m\"", "transport = \"local\"\nexec = \"on m\"", 4, "exclude each other"),
        ("roles = [\"mgs\", \"mdt\"]", "roles = [\"mdt\"]", 23, "lack 'mgs'"),
        ("roles = [\"mgs\", \"mdt\"]", "roles = [\"mgs\", \"mds\"]", 7, "no role 'mds'"),
        ("roles = [\"ost\", \"client\"]", "roles = [\"ost\"]", 37, "nobody mounts /mnt/demo"),
        ("roles = [\"ost\"]", "roles = [\"ost\", \"mdt\"]", 10, "the role 'mdt', and no [[mdt]] names it"),
        ("roles = [\"ost\"]", "roles = [\"ost\", \"monitor\"]", 10, "add metrics = 9169"),
        ("nids = [\"10.0.0.2@tcp\"]", "nids = [\"10.0.0.1@tcp\"]", 10, "which is host 'm''s"),
        ("dir = \"/srv/ost{index}\"", "dir = \"/srv/ost\"", 30, "write {index} in it"),
        ("dir = \"/srv/ost2\"", "dir = \"/srv/ost1\"", 32, "have the folder '/srv/ost1' of host 'a'"),
        ("dir = \"/srv/ost2\"", "dir = \"srv/ost2\"", 35, "an absolute path"),
        ("index = 2", "index = 1", 32, "demo-OST0001 is there already, in line 27"),
        ("hosts = [\"b\", \"a\"]", "hosts = [\"b\", \"c\"]", 32, "no host 'c'"),
        ("hosts = [\"b\", \"a\"]", "hosts = [\"b\"]\nhost = \"a\"", 32, "exclude each other"),
        ("dir = \"/mnt/demo\"", "dir = \"/srv\"", 37, "hides the folder of demo-OST0002"),
        ("fast = \"0,2\"", "fast = \"0,7\"", 40, "no [[ost]] with index 7"),
        ("fast = \"0,2\"", "fast = \"2-0\"", 41, "numbers of targets"),
        ("index = 2", "index = 2\nfstype = \"ext4\"", 32, "add device"),
        ("index = 2", "index = 2\ndevice = \"/dev/sdb\"\nmount = \"/other\"", 34, "is not below '/other'"),
    ] {
        let said = wrong(old, new);
        assert!(said.starts_with(&format!("line {line}: ")) && said.contains(part), "{new}: {said}");
    }
    let nothing = read::read("fsname = \"demo\"").unwrap_err();
    assert!(nothing.text.contains("no hosts"), "{nothing}");
}

/// Hosts that are played: what they have changes by the lines that they are given.
#[derive(Default)]
struct Fake {
    state: Mutex<State>,
    /// Steps that contain this fail.
    refuse: Option<&'static str>,
}

#[derive(Default)]
struct State {
    /// By host: folders with their labels.
    folders: BTreeMap<(String, String), Label>,
    /// By host: served labels and folders.
    served: BTreeMap<String, Vec<(String, String)>>,
    mounts: BTreeMap<String, Vec<MountFact>>,
    known: BTreeMap<String, ShownTarget>,
    pools: BTreeMap<String, Vec<u16>>,
    params: BTreeMap<String, String>,
    /// Lines that changed something.
    lines: Vec<String>,
    /// Hosts that say nothing.
    silent: Vec<String>,
}

impl State {
    fn config(&self) -> Shown {
        let fs = ShownFs {
            fsname: "demo".into(),
            uuid: "00".into(),
            targets: self.known.values().cloned().collect(),
            removed: Vec::new(),
            pools: self.pools.clone(),
        };
        let param = |(name, value): (&String, &String)| mgs::restore::ShownParam {
            name: name.clone(),
            value: value.clone(),
            version: None,
            time: None,
            by: None,
        };
        let params = self.params.iter().map(param).collect();
        Shown { version: 1, first_kept: None, kept: 0, file_systems: vec![fs], params }
    }

    fn facts(&self, h: &Host, line: &str) -> Facts {
        let asked = |o: &str| {
            let prefix = format!("--{o}=");
            line.split(' ').filter_map(|w| w.strip_prefix(&prefix).map(String::from)).collect::<Vec<_>>()
        };
        let folder = |dir: String| {
            // Both servers of a target reach it.
            let label = self.folders.iter().find(|((_, d), _)| *d == dir).map(|(_, l)| l.clone());
            let holds = label.map_or(Folder::Missing, Folder::Target);
            (dir, FolderFact { holds, available_bytes: 1 << 40 })
        };
        let target = |(label, dir): &(String, String)| DaemonTarget {
            label: label.clone(),
            dir: dir.clone(),
            state: "up".into(),
            uuid: String::new(),
            epoch: 1,
            registered: true,
            clients: 0,
            recovery: None,
        };
        let served = self.served.get(&h.name).map_or(&[][..], |s| s);
        let daemon = DaemonStatus {
            pid: 7,
            started_again: 0,
            nids: h.nids.clone(),
            port: 988,
            targets: served.iter().map(target).collect(),
            leaving: Vec::new(),
        };
        let has_mgs = served.iter().any(|(l, _)| l == "MGS");
        let interface = |a| Interface { name: "eth0".into(), address: a, mtu: Some(1500) };
        Facts {
            version: crate::VERSION.into(),
            clock_us: i64::try_from(world::sys::wall_nanos() / 1000).unwrap(),
            interfaces: h.addresses().into_iter().map(interface).collect(),
            folders: asked("dir").into_iter().map(folder).collect(),
            daemons: if served.is_empty() { Vec::new() } else { vec![daemon] },
            mounts: self.mounts.get(&h.name).cloned().unwrap_or_default(),
            config: has_mgs.then(|| self.config()),
            ..Facts::default()
        }
    }

    fn start(&mut self, h: &Host, dirs: &[&str]) {
        for d in dirs {
            let Some(l) = self.folders.get_mut(&(h.name.clone(), d.to_string())) else { continue };
            l.first_time = false;
            let (label, with_mgt) = (l.label.clone(), l.with_mgt);
            let (here, at) = (self.served.entry(h.name.clone()).or_default(), d.to_string());
            here.push((label.clone(), at));
            if with_mgt {
                here.push(("MGS".into(), format!("{d}/mgt")));
            }
            let entry = ShownTarget {
                target: label.clone(),
                uuid: "00".into(),
                nids: h.nids.clone(),
                epoch: 1,
                active: true,
                domain: String::new(),
                may_be_replaced: false,
            };
            self.known.insert(label, entry);
        }
    }

    fn mkfs(&mut self, h: &Host, words: &[&str]) {
        let value = |o: &str| words.iter().find_map(|w| w.strip_prefix(&format!("--{o}="))).unwrap_or("");
        let dir = words[words.len() - 1].to_string();
        let kind = if words.contains(&"--ost") { "OST" } else { "MDT" };
        let index: u16 = value("index").parse().unwrap();
        let split = |t: &str| t.split(':').filter(|w| !w.is_empty()).map(String::from).collect();
        let label = Label {
            label: format!("{}-{kind}{index:04x}", value("fsname")),
            fsname: value("fsname").into(),
            uuid: "00".into(),
            with_mgt: words.contains(&"--mgs"),
            first_time: true,
            mgs_nids: split(value("mgsnode")),
            service_nids: split(value("servicenode")),
            domain: value("domain").into(),
        };
        if let Some(k) = self.known.get(&label.label) {
            assert!(k.may_be_replaced && words.contains(&"--replace"), "the index is taken");
        }
        let old = self.folders.insert((h.name.clone(), dir), label);
        assert!(old.is_none(), "nothing is formatted twice");
    }

    fn change(&mut self, h: &Host, line: &str) {
        let words: Vec<&str> = line.split(' ').map(|w| w.trim_matches('\'')).collect();
        let dirs: Vec<&str> = words.iter().copied().filter(|w| w.starts_with("/srv/")).collect();
        match words[..] {
            ["mkfs.nacre", ..] => self.mkfs(h, &words),
            ["nacre", "ha", "start", ..] => self.start(h, &dirs),
            ["nacre", "ha", "stop", ..] => {
                self.served.remove(&h.name);
                if line.contains("ha start") {
                    let behind: Vec<&str> = line.split("ha start").nth(1).unwrap().split(' ').collect();
                    let again: Vec<&str> = behind.into_iter().filter(|w| w.starts_with("/srv/")).collect();
                    self.start(h, &again);
                }
            }
            ["nacre", "replace", _, label] => self.known.get_mut(label).unwrap().may_be_replaced = true,
            ["nacre", "deploy", "erase", _, dir] => {
                self.folders.remove(&(h.name.clone(), dir.to_string()));
            }
            ["mkdir", "-p", dir, "&&", "mount.nacre", source, ..] => {
                let fact = MountFact { source: source.into(), dir: dir.into(), state: "up".into() };
                self.mounts.entry(h.name.clone()).or_default().push(fact);
            }
            ["umount", dir] => self.mounts.get_mut(&h.name).unwrap().retain(|m| m.dir != dir),
            ["lctl", "pool_new", ..] => drop(self.pools.insert("fast".into(), vec![0, 2])),
            ["lctl", "set_param", "-P", setting] => {
                let (name, value) = setting.split_once('=').unwrap();
                self.params.insert(name.into(), value.into());
            }
            _ => panic!("nobody types that: {line}"),
        }
    }
}

impl Hosts for Fake {
    fn run(&self, host: &Host, line: &str, _: Duration) -> Result<Finished, String> {
        let mut s = self.state.lock();
        if s.silent.contains(&host.name) {
            return Err("no route to host".into());
        }
        let said =
            |status, out: String, err: &str| Ok(Finished { status: Some(status), out, err: err.into() });
        if line.starts_with("nacre deploy facts") {
            let facts = s.facts(host, line);
            return said(0, serde_json::to_string(&facts).unwrap(), "");
        }
        if self.refuse.is_some_and(|r| line.contains(r)) {
            return said(5, String::new(), "the disk says no\n");
        }
        s.lines.push(format!("{}: {line}", host.name));
        s.change(host, line);
        said(0, String::new(), "")
    }
}

fn applied(c: &Cluster, f: &Fake, wishes: &Wishes) -> apply::Report {
    apply::apply(c, f, wishes, &Interrupt::default(), &|_, _, _| {}).expect("hosts of the file")
}

#[test]
fn an_empty_cluster_is_made_once_in_order() {
    let (c, f) = (demo(), Fake::default());
    let r = applied(&c, &f, &Wishes::default());
    assert!(matches!(r.end, End::AsTheFileSays), "{r:?}");
    let lines = std::mem::take(&mut f.state.lock().lines);
    let mdt = "m: mkfs.nacre --quiet --mgs --mdt --fsname=demo --index=0 /srv/mdt0";
    assert!(lines.contains(&mdt.to_string()), "{lines:?}");
    let pair = "b: mkfs.nacre --quiet --ost --fsname=demo --index=2 --mgsnode=10.0.0.1@tcp \
                --servicenode=10.0.0.3@tcp:10.0.0.2@tcp /srv/ost2";
    assert!(lines.contains(&pair.to_string()), "{lines:?}");
    let at = |part: &str| {
        lines.iter().position(|l| l.contains(part)).unwrap_or_else(|| panic!("{part}: {lines:?}"))
    };
    assert!(at("mkfs") < at("m: nacre ha start") && at("m: nacre ha start") < at("a: nacre ha start"));
    assert!(at("b: nacre ha start") < at("mount.nacre") && at("mount.nacre") < at("pool_new"));
    assert!(at("pool_new") < at("set_param -P 'osc.demo-OST*.max_dirty_mb=64'"));
    assert_eq!(lines.len(), 4 + 3 + 1 + 1 + 1);
    let again = applied(&c, &f, &Wishes::default());
    assert!(matches!(again.end, End::AsTheFileSays) && again.done.is_empty(), "{again:?}");
    let s = status::compare(&c, &super::gather::ask(&c, &f)).unwrap();
    assert_eq!(s.differences, [], "it is as the file says");
}

#[test]
fn a_step_that_fails_ends_it_after_its_stage_and_the_next_one_goes_on() {
    let (c, mut f) = (demo(), Fake { refuse: Some("index=1 "), ..Fake::default() });
    let r = applied(&c, &f, &Wishes::default());
    assert!(matches!(r.end, End::Failed));
    let failed: Vec<_> = r.done.iter().filter_map(|d| d.error.as_deref()).collect();
    assert_eq!(failed, ["the disk says no"]);
    assert_eq!(r.done.len(), 4, "the others of the stage were made, and nothing after it");
    f.refuse = None;
    let r = applied(&c, &f, &Wishes::default());
    assert!(matches!(r.end, End::AsTheFileSays));
    let made = f.state.lock().lines.iter().filter(|l| l.contains("mkfs")).count();
    assert_eq!(made, 4, "each once");
}

#[test]
fn stopped_between_two_steps_it_goes_on_with_the_others() {
    let (c, f) = (demo(), Fake::default());
    let stop = Interrupt::default();
    let told = |_: &super::run::Done, n: usize, _: usize| {
        if n == 2 {
            stop.stop();
        }
    };
    let mut one_at_a_time = c.clone();
    one_at_a_time.at_once = 1;
    let r = apply::apply(&one_at_a_time, &f, &Wishes::default(), &stop, &told).unwrap();
    assert!(matches!(r.end, End::Interrupted) && r.done.len() == 2, "{r:?}");
    assert!(matches!(applied(&c, &f, &Wishes::default()).end, End::AsTheFileSays));
}

/// A cluster whose MGS's folder is made and not served: it is not known which targets it knows.
#[test]
fn nothing_is_formatted_before_the_mgs_says_what_it_knows() {
    let (c, f) = (demo(), Fake::default());
    applied(&c, &f, &Wishes::default());
    {
        let mut s = f.state.lock();
        s.served.clear();
        s.mounts.clear();
        s.folders.retain(|(host, _), _| host != "a");
    }
    let plan = steps::plan(&c, &super::gather::ask(&c, &f), &Wishes::default()).unwrap();
    assert!(plan.partial && plan.steps.iter().all(|s| s.stage != Stage::Format), "{plan:?}");
    let r = applied(&c, &f, &Wishes::default());
    assert!(matches!(r.end, End::Wrong), "the MGS knows OSTs whose folders are empty: {r:?}");
    assert!(r.plan.problems.iter().any(|p| p.help.contains("--replace a")), "{:?}", r.plan.problems);
}

#[test]
fn a_lost_host_is_replaced_when_somebody_asks_for_it_and_not_before() {
    let (c, f) = (demo(), Fake::default());
    applied(&c, &f, &Wishes::default());
    {
        let mut s = f.state.lock();
        s.served.remove("a");
        s.folders.retain(|(host, _), _| host != "a");
        s.lines.clear();
    }
    assert!(matches!(applied(&c, &f, &Wishes::default()).end, End::Wrong));
    assert!(f.state.lock().lines.is_empty(), "nothing was touched");
    let wishes = Wishes { replace: ["a".to_string()].into(), ..Wishes::default() };
    let r = applied(&c, &f, &wishes);
    assert!(matches!(r.end, End::AsTheFileSays), "{r:?}");
    assert!(r.notes.iter().any(|n| n.contains("nacre lost demo-OST0001")), "{:?}", r.notes);
    let lines = std::mem::take(&mut f.state.lock().lines);
    assert_eq!(lines.iter().filter(|l| l.starts_with("m: nacre replace --no-wait demo-OST000")).count(), 2);
    assert_eq!(lines.iter().filter(|l| l.contains("--replace /srv/ost")).count(), 2, "{lines:?}");
    let no_host = Wishes { replace: ["z".to_string()].into(), ..Wishes::default() };
    assert!(steps::plan(&c, &Found::default(), &no_host).unwrap_err().contains("no host 'z'"));
    let no_mgs = Wishes { without: ["m".to_string()].into(), ..Wishes::default() };
    assert!(steps::plan(&c, &Found::default(), &no_mgs).unwrap_err().contains("has the MGS"));
}

#[test]
fn a_host_that_is_away_is_an_error_or_left_out() {
    let (c, f) = (demo(), Fake::default());
    f.state.lock().silent.push("b".into());
    let r = applied(&c, &f, &Wishes::default());
    assert!(matches!(r.end, End::Wrong) && r.plan.problems[0].what.contains("no route to host"), "{r:?}");
    let wishes = Wishes { without: ["b".to_string()].into(), ..Wishes::default() };
    let r = applied(&c, &f, &wishes);
    // The pool wants an OST of the host that is away: the fake takes it.
    assert!(matches!(r.end, End::AsTheFileSays), "{r:?}");
    assert!(!f.state.lock().lines.iter().any(|l| l.starts_with("b: ")));
    let s = status::compare(&c, &super::gather::ask(&c, &f)).unwrap();
    assert!(s.targets.iter().any(|r| r.name == "demo-OST0002" && r.state == "unknown"), "{s:?}");
}

#[test]
fn wipe_takes_away_what_apply_made_and_nothing_of_others() {
    let (c, f) = (demo(), Fake::default());
    applied(&c, &f, &Wishes::default());
    let foreign = Label { label: "other-OST0000".into(), fsname: "other".into(), ..Label::default() };
    let key = ("a".to_string(), "/srv/ost0".to_string());
    let own = f.state.lock().folders.insert(key.clone(), foreign).unwrap();
    let plan = wipe::plan(&c, &super::gather::ask(&c, &f));
    assert!(plan.has_errors() && plan.problems[0].what.contains("holds other-OST0000"), "{plan:?}");
    f.state.lock().folders.insert(key, own);
    let plan = wipe::plan(&c, &super::gather::ask(&c, &f));
    assert!(!plan.has_errors(), "{plan:?}");
    let stages: Vec<Stage> = plan.steps.iter().map(|s| s.stage).collect();
    assert_eq!(stages[..4], [Stage::Unmount, Stage::StopMdts, Stage::StopOsts, Stage::StopOsts]);
    let done = super::run::all(&c, &f, &plan.steps, &Interrupt::default(), &|_, _, _| {});
    assert!(done.iter().all(|d| d.error.is_none()));
    let s = f.state.lock();
    assert!(s.folders.is_empty() && s.served.is_empty() && s.mounts.values().all(Vec::is_empty));
}

fn asked(c: &Cluster, change: impl Fn(&str, &mut Facts, &mut Option<i64>)) -> Found {
    let s = State::default();
    let one = |h: &Host| {
        let (mut facts, mut ahead_us) = (s.facts(h, &host::facts_line(c, h)), Some(0));
        change(&h.name, &mut facts, &mut ahead_us);
        (h.name.clone(), Ok(Answer { facts, ahead_us }))
    };
    Found(c.hosts.iter().map(one).collect())
}

#[test]
fn what_is_wrong_with_hosts_is_found_before_anything_is_done() {
    let networks = FILE.replace("service", "network.tcp.mtu = 9000\nservice");
    let c = read::read(&networks).unwrap();
    let set = |f: &mut Facts, dir: &str, holds: Folder, room: u64| {
        f.folders.insert(dir.into(), FolderFact { holds, available_bytes: room });
    };
    let found = asked(&c, |name, f, ahead| match name {
        "m" => {
            f.version = "0.0.9".into();
            *ahead = Some(-40_000_000);
            set(f, "/srv/mdt0", Folder::Missing, 1 << 20);
        }
        "a" => {
            f.interfaces[0].mtu = Some(9000);
            f.reach.insert("10.0.0.1:988".into(), Some("timed out".into()));
            set(f, "/srv/ost0", Folder::Foreign("mail".into()), 1 << 40);
        }
        _ => f.interfaces.clear(),
    });
    let plan = steps::plan(&c, &found, &Wishes::default()).unwrap();
    let said: Vec<String> = plan.problems.iter().map(|p| format!("{}: {}", p.host, p.what)).collect();
    for part in [
        "m: Nacre 0.0.9 there",
        "m: its clock is 40.0 s behind",
        "m: its interface on tcp has an MTU of 1500, and [network.tcp] says 9000",
        "m: demo-MDT0000: 1 MiB are free",
        "a: 10.0.0.1:988 is not reached: timed out",
        "a: demo-OST0000: /srv/ost0 holds 'mail'",
        "b: no interface that is up has the address 10.0.0.3",
    ] {
        assert!(said.iter().any(|s| s.starts_with(part)), "{part}: {said:#?}");
    }
    assert!(plan.has_errors());
}

#[test]
fn disks_are_made_and_mounted_and_what_holds_data_is_refused() {
    let with_disk = FILE
        .replace("index = 2", "index = 2\ndevice = \"/dev/sdb\"")
        .replace("/srv/ost2", "/srv/ost2/target");
    let c = read::read(&with_disk).unwrap();
    let device = |holds: &str, mounted: bool| {
        asked(&c, |name, f, _| {
            let at = (mounted && name == "b").then(|| "/srv/ost2".to_string());
            let fact = super::facts::DeviceFact { is_there: true, holds: holds.into(), mounted_at: at };
            f.devices.insert("/dev/sdb".into(), fact);
        })
    };
    let of = |found: &Found| steps::plan(&c, found, &Wishes::default()).unwrap();
    let empty = of(&device("", false));
    let line = "mkfs.xfs -q /dev/sdb && mkdir -p /srv/ost2 && mount -t xfs -o noatime /dev/sdb /srv/ost2";
    assert!(empty.steps.iter().any(|s| s.stage == Stage::Disks && s.command == line), "{empty:?}");
    let away = of(&device("xfs", false));
    assert!(
        away.partial && away.steps.iter().any(|s| s.command.starts_with("mkdir -p /srv/ost2 && mount")),
        "{away:?}"
    );
    assert!(!away.steps.iter().any(|s| s.what.contains("OST0002")), "what is on it is not known yet");
    let foreign = of(&device("ntfs", false));
    assert!(foreign.problems.iter().any(|p| p.what.contains("holds 'ntfs'")), "{foreign:?}");
    assert!(of(&device("xfs", true)).steps.iter().all(|s| s.stage != Stage::Disks));
}

#[test]
fn units_are_written_for_systemd() {
    let c = read::read(&FILE.replace("\"process\"", "\"systemd\"")).unwrap();
    let plan = steps::plan(&c, &asked(&c, |_, _, _| {}), &Wishes::default()).unwrap();
    let line = |part: &str| plan.steps.iter().find(|s| s.command.contains(part)).map(|s| s.command.clone());
    assert_eq!(
        line("ost0 /srv/ost1").unwrap(),
        "printf '%s\\n' 'TARGETS=\"/srv/ost0 /srv/ost1\"' 'OPTIONS=\"--nid 10.0.0.2@tcp\"' | \
         install -D -m 644 /dev/stdin /etc/nacre/demo && systemctl enable --now nacre-target@demo"
    );
    let mount = line("mnt-demo.mount").unwrap();
    assert!(
        mount.contains("What=10.0.0.1@tcp:/demo") && mount.ends_with("systemctl enable --now mnt-demo.mount")
    );
    let files: Vec<String> = service::files_of(&c, c.host("b")).into_iter().map(|f| f.path).collect();
    assert_eq!(files, ["/etc/systemd/system/mnt-demo.mount", "/etc/nacre/demo"]);
}

#[test]
fn presets_make_sense_and_are_as_large_as_they_say() {
    for (name, osts, hosts) in [("laptop", 2, 1), ("brick", 6, 3), ("grid-site", 80, 23), ("wide", 336, 16)] {
        let (.., text) = preset::ALL.iter().find(|(n, ..)| *n == name).expect("it is there");
        let c = read::read(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let n = c.targets.iter().filter(|t| t.id.kind == model::TargetKind::Ost).count();
        assert_eq!((n, c.hosts.len()), (osts, hosts), "{name}");
    }
}

#[test]
fn an_inventory_has_hosts_by_role_and_how_they_are_asked() {
    let d = inventory::document(&demo());
    let all = &d["all"];
    assert_eq!(all["children"]["nacre_ost"]["hosts"], serde_json::json!({"a": {}, "b": {}}));
    let b = &all["hosts"]["b"];
    assert_eq!(b["nacre_exec"], "on b");
    let asks = b["nacre_facts_command"].as_str().unwrap();
    assert!(asks.starts_with("nacre deploy facts --json --dir=/srv/ost2 --reach=10.0.0.1:988"), "{asks}");
}

#[test]
fn metrics_are_told_to_who_watches() {
    let c = read::read(
        &FILE
            .replace("service = ", "metrics = 9169\nservice = ")
            .replace("roles = [\"ost\", \"client\"]", "roles = [\"ost\", \"client\", \"monitor\"]"),
    )
    .unwrap();
    let file = service::monitor_file(&c);
    let all: Vec<serde_json::Value> = serde_json::from_str(&file.text).unwrap();
    let at: Vec<&str> = all.iter().map(|t| t["targets"][0].as_str().unwrap()).collect();
    assert_eq!(at, ["10.0.0.1:9169", "10.0.0.2:9169", "10.0.0.3:9169", "10.0.0.3:9170"]);
    let plan = steps::plan(&c, &asked(&c, |_, _, _| {}), &Wishes::default()).unwrap();
    assert!(plan.steps.iter().any(|s| s.command.contains("metrics=10.0.0.3:9170")));
    assert!(plan.steps.iter().any(|s| s.stage == Stage::Monitor && s.host == "b"));
}

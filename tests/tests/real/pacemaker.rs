//! Corosync and Pacemaker move targets between three servers while applications on three clients work: the
//! configuration is what `nacre ha plan` printed, word for word, the agent is ours, and so is the finger on
//! the power switch, which lies at times. No application may notice anything.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tests::cluster::{Scratch, fsck_when_free, kill, ok_within, tool, wait_until};
use tests::hosts::{self, Hosts};
use tests::machines::{Machines, Power, Serving, Shared, lock, on};
use tests::rng::Rng;
use tests::thrash::{self, Site as _};

const LIMIT: Duration = Duration::from_secs(120);
const SERVERS: [&str; 3] = ["meta", "oss1", "oss2"];
const CLIENTS: [u32; 3] = [4, 5, 6];
const MGS: &str = "10.77.0.100@tcp";
/// So many of them are in `make test`, which is not for hours.
const SHORT: usize = 4;

/// What happens to the server of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fault {
    /// Its process is killed; its host is well.
    Killed,
    /// Its host loses power.
    HostDead,
    /// An administrator wants its host empty.
    Standby,
    /// Its host sleeps, the fence only says that it has ended it, and it wakes up when another one serves.
    LyingFence,
    /// Its process sleeps for longer than its heartbeat counts, and wakes up.
    Asleep,
    /// Its host's cable is pulled.
    Unplugged,
    /// So it is, and the fence lies.
    LyingFenceCut,
    /// `nacre ha takeover`, and back.
    Takeover,
}

/// What is switched on for the description's targets: heartbeats that count for five seconds.
fn description(site: &str, dir: impl Fn(&str) -> PathBuf) -> String {
    let mut text = String::new();
    for (i, name) in (1..).zip(SERVERS) {
        text += &format!("server {name} {}\nfence {name} fence_netns site={site}\n", Hosts::address(i));
    }
    let homes = [
        ("MDT0000", "mdt0", "meta,oss1,oss2"),
        ("OST0000", "ost0", "oss1,oss2"),
        ("OST0001", "ost1", "oss2,oss1"),
    ];
    for (i, (label, folder, servers)) in homes.iter().enumerate() {
        text += &format!(
            "target demo-{label} dir={} address=10.77.0.{}/24 servers={servers} options=\"--mmp-interval 500\"\n",
            dir(folder).display(),
            100 + i
        );
    }
    text
}

struct Target {
    label: &'static str,
    dir: PathBuf,
}

struct Site {
    _power: Power,
    machines: Shared,
    scratch: Scratch,
    mounts: Vec<PathBuf>,
    targets: Vec<Target>,
    /// What is put right before the next fault: its host, and the process that must notice.
    zombie: Option<Serving>,
    standby: Option<u32>,
}

impl Site {
    fn up() -> Result<Site> {
        let scratch = Scratch::new("pacemaker");
        let dir = |n: &str| scratch.path().join(n);
        let mounts: Vec<PathBuf> = CLIENTS.iter().map(|c| dir(&format!("mnt{c}"))).collect();
        let machines = Machines::boot_all(&SERVERS, CLIENTS.len() as u32, scratch.path(), &mounts)?;
        let machines = Arc::new(Mutex::new(machines));
        let mkfs = |args: &[&str], d: &str| ok_within(tool("mkfs.nacre").args(args).arg(dir(d)), LIMIT);
        mkfs(&["--mgs", "--mdt", "--fsname=demo", "--index=0"], "mdt0")?;
        let mgs = format!("--mgsnode={MGS}");
        for i in ["0", "1"] {
            mkfs(&["--ost", "--fsname=demo", &format!("--index={i}"), &mgs], &format!("ost{i}"))?;
        }
        std::fs::write(dir("demo.plan"), description(&scratch.path().display().to_string(), dir))?;
        let named = [("demo-MDT0000", "mdt0"), ("demo-OST0000", "ost0"), ("demo-OST0001", "ost1")];
        let site = Site {
            _power: Power::new(&machines, scratch.path()),
            targets: named.map(|(label, d)| Target { label, dir: dir(d) }).into(),
            machines,
            mounts,
            zombie: None,
            standby: None,
            scratch,
        };
        site.cluster()?;
        site.mount()?;
        Ok(site)
    }

    /// Corosync, Pacemaker and what the plan says.
    fn cluster(&self) -> Result<()> {
        let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/ocf/target");
        let nodes: Vec<String> =
            (1..).zip(SERVERS).map(|(i, n)| format!("{n} addr={}", Hosts::address(i))).collect();
        let setup = format!(
            "pcs cluster setup demo {} transport knet crypto cipher=none hash=none --corosync_conf {}",
            nodes.join(" "),
            self.scratch.path().join("corosync.conf").display()
        );
        on(&self.machines, 1, &setup, LIMIT)?;
        for i in 1..=3 {
            let folder = "/usr/lib/ocf/resource.d/nacre";
            let conf = self.scratch.path().join("corosync.conf");
            let line = format!(
                "mkdir -p {folder} && cp {agent} {folder}/target && cp {} /etc/corosync/corosync.conf
                 systemctl enable --now corosync pacemaker",
                conf.display()
            );
            on(&self.machines, i, &line, LIMIT)?;
        }
        // They find each other meanwhile.
        let file = |n: &str| self.scratch.path().join(n).display().to_string();
        let (plan, cib, commands) = (file("demo.plan"), file("nacre-cib.xml"), file("plan.sh"));
        on(&self.machines, 1, &format!("cibadmin --empty >{cib}"), LIMIT)?;
        on(&self.machines, 1, &format!("nacre ha plan --cib {cib} {plan} >{commands}"), LIMIT)?;
        on(&self.machines, 1, &format!("sh {commands}"), LIMIT)?;
        self.all_online()?;
        // This machine is three hosts and a load: Pacemaker would wait for it to calm down.
        on(&self.machines, 1, &format!("pcs -f {cib} property set load-threshold=1000%"), LIMIT)?;
        on(&self.machines, 1, &format!("cibadmin --replace --scope configuration --xml-file {cib}"), LIMIT)?;
        self.served(&[])
    }

    fn mount(&self) -> Result<()> {
        let source = format!("{MGS}:/demo");
        CLIENTS.iter().zip(&self.mounts).try_for_each(|(client, mount)| {
            let mounter = || lock(&self.machines).hosts.on(*client, "mount.nacre");
            hosts::mount(mounter, &source, mount, LIMIT)
        })
    }

    /// A host of the cluster that is well.
    fn witness(&self, besides: u32) -> u32 {
        let m = lock(&self.machines);
        (1..=3).find(|h| *h != besides && m.is_on(*h) && !m.is_spared(*h)).expect("one of three is well")
    }

    fn all_online(&self) -> Result<()> {
        wait_until("all servers are members", LIMIT, || {
            lock(&self.machines).revive().expect("hosts boot again");
            let seen =
                on(&self.machines, self.witness(0), "crm_mon -1 2>/dev/null", LIMIT).unwrap_or_default();
            seen.contains("Online: [ meta oss1 oss2 ]")
        })
        .with_context(|| self.said())
    }

    /// Every target has a server that is awake and none of `old`.
    fn served(&self, old: &[Serving]) -> Result<()> {
        wait_until("every target is served", LIMIT, || {
            let m = lock(&self.machines);
            self.targets.iter().all(|t| m.servers_of(&t.dir).iter().any(|s| !old.contains(s)))
        })
        .with_context(|| self.said())
    }

    /// Returns servers that must be replaced before the load can go on.
    fn strike(&mut self, fault: Fault, target: usize) -> Result<Vec<Serving>> {
        let machines = self.machines.clone();
        let dir = self.targets[target].dir.clone();
        let old = *lock(&machines).servers_of(&dir).first().context("nobody serves it")?;
        let on_host = {
            let m = lock(&machines);
            let all = self.targets.iter().flat_map(|t| m.servers_of(&t.dir));
            all.filter(|s| s.host == old.host).collect::<Vec<_>>()
        };
        let label = self.targets[target].label;
        match fault {
            Fault::Killed => {
                kill(old.pid, Signal::KILL)?;
                return Ok(vec![old]);
            }
            Fault::Asleep => {
                kill(old.pid, Signal::STOP)?;
                std::thread::sleep(Duration::from_secs(6));
                let _ = kill(old.pid, Signal::CONT);
                // If Pacemaker has not noticed, it starts again by itself, as the same process.
                return Ok(Vec::new());
            }
            Fault::HostDead => lock(&machines).power_off(old.host)?,
            Fault::Unplugged => lock(&machines).hosts.link(old.host, false)?,
            Fault::LyingFenceCut => {
                let mut m = lock(&machines);
                m.spare(old.host, true);
                m.hosts.link(old.host, false)?;
                self.zombie = Some(old);
            }
            Fault::LyingFence => {
                let mut m = lock(&machines);
                m.spare(old.host, true);
                m.freeze(old.host, true);
                self.zombie = Some(old);
            }
            Fault::Standby => {
                let name = lock(&machines).name(old.host).to_string();
                on(&machines, self.witness(old.host), &format!("pcs node standby {name}"), LIMIT)?;
                self.standby = Some(old.host);
            }
            Fault::Takeover => {
                let to = if label == "demo-MDT0000" { old.host % 3 + 1 } else { 5 - old.host };
                let said = on(&machines, to, &format!("nacre ha takeover {label}"), LIMIT)?;
                let name = lock(&machines).name(to).to_string();
                ensure!(said.contains(&format!("{label} is on {name}, after")), "takeover said:\n{said}");
                let said =
                    on(&machines, old.host, &format!("nacre ha giveback {label} && nacre ha where"), LIMIT)?;
                ensure!(said.contains("HOME"), "where said:\n{said}");
                return Ok(vec![old]);
            }
        }
        Ok(on_host)
    }

    /// Nothing is served any more, and all is well on the disks.
    fn down(self) -> Result<()> {
        for m in &self.mounts {
            ok_within(Command::new("umount").arg(m), LIMIT)?;
        }
        on(&self.machines, 1, "pcs property set stop-all-resources=true", LIMIT)?;
        wait_until("all targets are stopped", LIMIT, || {
            let m = lock(&self.machines);
            self.targets.iter().all(|t| m.servers_of(&t.dir).is_empty())
        })?;
        fsck_when_free(self.targets.iter().map(|t| &t.dir))
    }
}

impl thrash::Site for Site {
    type Fault = Fault;
    const FAULTS: &'static [Fault] = &[
        Fault::Killed,
        Fault::HostDead,
        Fault::Standby,
        Fault::LyingFence,
        Fault::Asleep,
        Fault::Unplugged,
        Fault::LyingFenceCut,
        Fault::Takeover,
    ];
    const LIMIT: Duration = LIMIT;

    fn happens(&mut self, fault: Fault, rng: &mut Rng) -> Result<u64> {
        let old = self.strike(fault, rng.below(3) as usize)?;
        self.served(&old)?;
        Ok(old.len() as u64)
    }

    fn put_right(&mut self) -> Result<()> {
        let machines = self.machines.clone();
        if let Some(z) = self.zombie.take() {
            let m = lock(&machines);
            m.freeze(z.host, false);
            m.hosts.link(z.host, true)?;
            drop(m);
            wait_until("the old server ends", LIMIT, || {
                !self.targets.iter().any(|t| lock(&machines).servers_of(&t.dir).contains(&z))
            })
            .with_context(|| self.said())?;
            lock(&machines).spare(z.host, false);
        }
        if let Some(host) = self.standby.take() {
            let name = lock(&machines).name(host).to_string();
            on(&machines, self.witness(host), &format!("pcs node unstandby {name}"), LIMIT)?;
        }
        self.all_online()?;
        // Not before nothing is under way: a start whose history is cleaned up meanwhile has no outcome, and
        // Pacemaker waits three minutes for it (its time-out and the cluster's delay) before it does anything
        // else.
        let rest = "nacre ha where --wait";
        on(&machines, 1, &format!("{rest} && {{ crm_resource --cleanup >/dev/null 2>&1; {rest}; }}"), LIMIT)?;
        self.served(&[])
    }

    fn said(&self) -> String {
        let m = &self.machines;
        let status = on(m, self.witness(0), "crm_mon -1rf", LIMIT).unwrap_or_default();
        format!("{status}\n{}", lock(m).all_said())
    }
}

/// The first faults of the list in `make test`.
#[test]
fn pacemaker_moves_targets_and_no_application_notices() -> Result<()> {
    let began = Instant::now();
    let mut site = Site::up()?;
    println!("the cluster serves after {:.1} s", began.elapsed().as_secs_f64());
    let mounts = site.mounts.clone();
    let scratch = site.scratch.path().to_path_buf();
    thrash::run("Pacemaker", &mut site, &mounts, &scratch, SHORT)?;
    site.down()
}

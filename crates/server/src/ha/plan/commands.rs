//! A plan as `pcs` commands.

use super::read::{Fence, Kind, Plan, PlannedTarget};

/// Seconds for starting: a heartbeat of another host is watched for 22 before anything else happens.
const START: &str = "timeout=180";
/// The agent kills what takes longer than two thirds of it.
const STOP: &str = "timeout=90";

/// The second asks over the network, too.
const MONITOR: &str =
    "op monitor interval=10s timeout=30s op monitor interval=31s timeout=40s OCF_CHECK_LEVEL=10";

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

impl Plan {
    /// Programs and their arguments, in the order in which they are to be run; they change the configuration
    /// in `cib`. `ordered`: targets that start together start one after the other.
    pub fn commands(&self, cib: &str, ordered: bool) -> Vec<Vec<String>> {
        let mut all = vec![
            // A host that was fenced and hears of it lives although it should not: it resets itself.
            words("property set stonith-enabled=true fence-reaction=panic"),
            // What moved stays: giving it back is a second interruption, and somebody's decision; unless the
            // plan says otherwise.
            words(&format!(
                "resource defaults update resource-stickiness={} migration-threshold=3 failure-timeout=60s",
                if self.timing.auto_failback { "0" } else { "INFINITY" }
            )),
        ];
        if let Some(s) = self.timing.initdead {
            all.push(words(&format!("property set dc-deadtime={s}s")));
        }
        for (i, f) in self.fences.iter().enumerate() {
            all.extend(self.fence(i, f));
        }
        for t in &self.targets {
            all.extend(self.target(t));
        }
        if ordered {
            all.extend(self.order());
        }
        assert!(all.iter().all(|c| !c.is_empty()), "a command has words");
        let pcs = ["pcs", "-f", cib].map(str::to_string);
        all.into_iter().map(|c| pcs.iter().cloned().chain(c).collect()).collect()
    }

    /// What is said to Corosync, which knows when a host is dead: commands, which change its configuration
    /// and not `cib`, and a line of its file that no command of `pcs` writes.
    pub fn corosync(&self) -> Vec<String> {
        let t = &self.timing;
        let mut out = Vec::new();
        if let Some(s) = t.deadtime {
            out.push(format!("pcs cluster config update totem token={}", u64::from(s) * 1000));
        }
        if let (Some(warn), Some(dead)) = (t.warntime, t.deadtime) {
            let percent = u64::from(warn) * 100 / u64::from(dead);
            assert!(percent < 100, "a warning comes before the death");
            out.push(format!("in corosync.conf, section totem: token_warning: {percent}"));
        }
        if let Some(s) = t.keepalive {
            let (every, twice) = (u64::from(s) * 1000, u64::from(s) * 2000);
            out.push(format!("pcs cluster link update 0 options ping_interval={every} ping_timeout={twice}"));
        }
        out
    }

    fn fence(&self, index: usize, f: &Fence) -> Vec<Vec<String>> {
        let mut options = f.options.clone();
        let id = match &f.server {
            Some(s) => format!("fence-{s}"),
            None => format!("{}-{index}", f.agent.replace('_', "-")),
        };
        let all = || self.servers.iter().map(|s| s.name.as_str());
        let plug = options.get("plug").cloned();
        let hosts = match (&f.server, plug) {
            (Some(s), Some(p)) => {
                options.remove("plug");
                format!("pcmk_host_map={s}:{p}")
            }
            (Some(s), None) => format!("pcmk_host_list={s}"),
            (None, _) if f.agent == "fence_mpath" => {
                // A key each, by the server's place in the list.
                let keys: Vec<String> =
                    all().enumerate().map(|(i, s)| format!("{s}:{:x}", i as u64 + 1)).collect();
                format!("pcmk_host_map={}", keys.join(";"))
            }
            (None, _) => format!("pcmk_host_list={}", all().collect::<Vec<_>>().join(" ")),
        };
        let mut c = vec!["stonith".to_string(), "create".into(), id.clone(), f.agent.clone()];
        if f.agent == "fence_ipmilan" {
            options.entry("lanplus".into()).or_insert_with(|| "1".into());
        }
        c.extend(options.iter().map(|(k, v)| format!("{k}={v}")));
        c.push(hosts);
        // Of two hosts that lost sight of each other, and each would fence the other, the first wins.
        if self.servers.len() == 2 && f.server.as_ref() == Some(&self.servers[0].name) {
            c.push("pcmk_delay_base=5s".into());
        }
        match f.agent.as_str() {
            "fence_scsi" => c.extend(words("pcmk_reboot_action=off meta provides=unfencing")),
            "fence_mpath" => {
                c.extend(words("pcmk_host_argument=key pcmk_reboot_action=off meta provides=unfencing"));
            }
            _ => {}
        }
        // Nobody has the device that ends itself.
        let avoids = f.server.iter().map(|s| words(&format!("constraint location {id} avoids {s}=INFINITY")));
        std::iter::once(c).chain(avoids).collect()
    }

    fn target(&self, t: &PlannedTarget) -> Vec<Vec<String>> {
        let name = &t.name;
        let group = || words(&format!("--group {name}"));
        let mut out = Vec::new();
        if let Some(d) = &t.device {
            let mut c = words(&format!("resource create {name}-disk ocf:heartbeat:Filesystem"));
            c.push(format!("device={}", d.path));
            c.push(format!("directory={}", d.mount));
            c.push(format!("fstype={}", d.fstype));
            c.extend(group());
            out.push(c);
        }
        let mut c = words(&format!("resource create {name}-address ocf:heartbeat:IPaddr2"));
        c.push(format!("ip={}", t.address));
        c.push(format!("cidr_netmask={}", t.prefix));
        c.extend(words("op monitor interval=10s"));
        c.extend(group());
        out.push(c);
        let mut c = words(&format!("resource create {name}-server ocf:nacre:target"));
        c.push(format!("targets={}", t.dir));
        c.push(format!("nid={}@tcp", t.address));
        c.extend(t.port.map(|p| format!("port={p}")));
        c.extend(t.options.as_ref().map(|o| format!("options={o}")));
        c.extend(words(&format!("op start {START} op stop {STOP} {MONITOR}")));
        c.extend(group());
        out.push(c);
        let mut c = words(&format!("constraint location {name} prefers"));
        c.extend(t.servers.iter().enumerate().map(|(i, s)| format!("{s}={}", (t.servers.len() - i) * 100)));
        let others = self.servers.iter().filter(|s| !t.servers.contains(&s.name));
        c.extend(others.map(|s| format!("{}=-INFINITY", s.name)));
        out.push(c);
        out
    }

    /// MGT before MDTs before OSTs where they start together; one that starts alone waits for nobody. No
    /// target needs it, and after the loss of a host each would watch its heartbeats only when the one before
    /// it serves.
    fn order(&self) -> Vec<Vec<String>> {
        let of = |k: Kind| self.targets.iter().filter(move |t| t.kind == k);
        let mut out = Vec::new();
        let mut before = |first: &PlannedTarget, then: &PlannedTarget| {
            out.push(words(&format!("constraint order {} then {} kind=Optional", first.name, then.name)));
        };
        let mgs = of(Kind::Mgs).next();
        let mdt = of(Kind::Mdt).next();
        if let Some(m) = mgs {
            of(Kind::Mdt).for_each(|t| before(m, t));
        }
        if let Some(m) = mdt.or(mgs) {
            of(Kind::Ost).for_each(|t| before(m, t));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.parse::<Plan>().unwrap().commands("c", true).iter().map(|c| c.join(" ")).collect()
    }

    #[test]
    fn a_pair_becomes_groups_that_prefer_their_homes() {
        let got = lines(
            "server a 10.0.0.1\nserver b 10.0.0.2\nserver c 10.0.0.3\n\
             fence a fence_ipmilan ip=10.1.0.1 username=u password=p\n\
             fence b fence_apc ip=10.1.0.9 username=u password=p plug=7\n\
             fence c fence_virsh ip=10.1.0.9 username=u identity_file=/k\n\
             target MGS dir=/m/t address=10.0.0.10/24 servers=a,b device=/dev/sdb\n\
             target d-MDT0000 dir=/n address=10.0.0.11/24 servers=b,a\n\
             target d-OST0000 dir=/o address=10.0.0.12/24 servers=a,b",
        );
        let want = [
            "stonith create fence-a fence_ipmilan ip=10.1.0.1 lanplus=1 password=p username=u pcmk_host_list=a",
            "constraint location fence-a avoids a=INFINITY",
            "stonith create fence-b fence_apc ip=10.1.0.9 password=p username=u pcmk_host_map=b:7",
            "resource create MGS-disk ocf:heartbeat:Filesystem device=/dev/sdb directory=/m fstype=xfs --group MGS",
            "resource create MGS-address ocf:heartbeat:IPaddr2 ip=10.0.0.10 cidr_netmask=24 op monitor interval=10s --group MGS",
            "constraint location MGS prefers a=200 b=100 c=-INFINITY",
            "constraint order MGS then d-MDT0000 kind=Optional",
            "constraint order d-MDT0000 then d-OST0000 kind=Optional",
        ];
        for w in want {
            assert!(
                got.iter().any(|g| *g == format!("pcs -f c {w}")),
                "{w} is missing in\n{}",
                got.join("\n")
            );
        }
        assert!(!got.iter().any(|g| g.contains("pcmk_delay_base")));
    }

    #[test]
    fn the_numbers_of_ha_cf_mean_what_they_mean_there() {
        let pair = "server a 10.0.0.1\nserver b 10.0.0.2\ntarget MGS dir=/m address=10.0.0.9 servers=a\n\
                    fence a fence_x\nfence b fence_x\n";
        let numbers = "auto_failback on\nkeepalive 2\ndeadtime 60\nwarntime 10\ninitdead 180\n";
        let plan: Plan = format!("{pair}{numbers}").parse().unwrap();
        let got: Vec<String> = plan.commands("c", false).iter().map(|c| c.join(" ")).collect();
        assert!(got.contains(&"pcs -f c property set dc-deadtime=180s".to_string()));
        assert!(got.iter().any(|g| g.contains("resource-stickiness=0 ")), "{got:?}");
        assert_eq!(
            plan.corosync(),
            [
                "pcs cluster config update totem token=60000",
                "in corosync.conf, section totem: token_warning: 16",
                "pcs cluster link update 0 options ping_interval=2000 ping_timeout=4000",
            ]
        );
        let off: Plan = format!("{pair}auto_failback off\n").parse().unwrap();
        assert!(off.commands("c", false).iter().any(|c| c.contains(&"resource-stickiness=INFINITY".into())));
        assert!(off.corosync().is_empty());
        for (wrong, why) in [
            ("deadtime 5\nkeepalive 9\n", "keepalive (9 s) must be shorter than deadtime (5 s)"),
            ("warntime 5\n", "'warntime' is a part of 'deadtime'"),
            ("auto_failback legacy\n", "on or off"),
            ("keepalive 200ms\n", "whole seconds, 1 to 3600"),
            ("deadtime 5\ndeadtime 5\n", "'deadtime' is given twice"),
        ] {
            let said = format!("{pair}{wrong}").parse::<Plan>().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn reservations_are_one_device_and_two_hosts_do_not_shoot_each_other() {
        let pair = "server a 10.0.0.1\nserver b 10.0.0.2\ntarget MGS dir=/m address=10.0.0.9 servers=a\n";
        let got = lines(&format!("{pair}fence all fence_mpath devices=/dev/mapper/x"));
        assert!(
            got.iter().any(|g| g.contains("pcmk_host_map=a:1;b:2") && g.ends_with("meta provides=unfencing"))
        );
        let got = lines(&format!("{pair}fence a fence_x\nfence b fence_x"));
        assert_eq!(got.iter().filter(|g| g.ends_with("pcmk_delay_base=5s")).count(), 1);
    }
}

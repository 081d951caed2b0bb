//! The resource agent as Pacemaker calls it: verbs in, OCF's exit statuses out.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tests::cluster::{Scratch, bin_dir, kill, ok_within, run_within, tool};

const LIMIT: Duration = Duration::from_secs(60);

struct Agent {
    targets: String,
    nid: String,
    log: PathBuf,
}

impl Agent {
    fn script() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/ocf/target")
    }

    fn call(&self, verb: &str) -> Result<Output> {
        run_within(
            Command::new(Agent::script())
                .arg(verb)
                .env("OCF_RESKEY_nacre", bin_dir().join("nacre"))
                .env("OCF_RESKEY_targets", &self.targets)
                .env("OCF_RESKEY_nid", &self.nid)
                .env("OCF_RESKEY_log", &self.log)
                .env("OCF_RESKEY_CRM_meta_timeout", "30000"),
            LIMIT,
        )
    }

    fn gives(&self, verb: &str, status: i32) -> Result<String> {
        let o = self.call(verb)?;
        let said = String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr);
        ensure!(
            o.status.code() == Some(status),
            "{verb} ended with {} instead of {status}: {said}",
            o.status
        );
        Ok(said)
    }

    fn pid(&self) -> Result<i32> {
        let all =
            ok_within(Command::new("pgrep").args(["-f", &format!("nacred .*{}", self.targets)]), LIMIT)?;
        Ok(all.trim().parse()?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.call("stop");
    }
}

#[test]
fn the_resource_agent_speaks_ocf() -> Result<()> {
    let s = Scratch::new("ocf");
    let dir = |n: &str| s.path().join(n).display().to_string();
    // An address of its own on the loopback, by this process.
    let [a, b] = (std::process::id() as u16).to_be_bytes();
    let nid = format!("127.201.{a}.{}@tcp", b.max(1));
    let mdt = dir("mdt0");
    ok_within(tool("mkfs.nacre").args(["--mgs", "--mdt", "--fsname=ocf", "--index=0", &mdt]), LIMIT)?;
    let agent = Agent { targets: mdt.clone(), nid, log: s.path().join("log") };

    let xml = agent.gives("meta-data", 0)?;
    for part in
        ["<resource-agent name=\"target\"", "name=\"targets\"", "<action name=\"stop\"", "</resource-agent>"]
    {
        ensure!(xml.contains(part), "{part} is missing:\n{xml}");
    }
    agent.gives("validate-all", 0)?;
    agent.gives("nonsense", 3)?;
    agent.gives("monitor", 7)?;
    agent.gives("stop", 0)?;

    agent.gives("start", 0)?;
    agent.gives("monitor", 0)?;
    let deep = |depth: &str| {
        let args = ["ha", "monitor", "--json", "--depth", depth, &agent.targets];
        let said = ok_within(tool("nacre").args(args), LIMIT)?;
        let v: serde_json::Value = serde_json::from_str(&said)?;
        ensure!(v["served"] == true && v["targets"].as_array().is_some_and(|t| t.len() == 2), "{said}");
        Ok(())
    };
    deep("0").and_then(|()| deep("10"))?;
    let first = agent.pid()?;
    agent.gives("start", 0)?;
    ensure!(agent.pid()? == first, "a second start changes nothing");

    kill(first, Signal::STOP)?;
    let said = agent.gives("monitor", 1)?;
    ensure!(said.contains("is stopped by a signal"), "{said}");
    agent.gives("stop", 0)?;
    agent.gives("monitor", 7)?;
    agent.gives("stop", 0)?;

    agent.gives("start", 0)?;
    kill(agent.pid()?, Signal::KILL)?;
    agent.gives("stop", 0)?;
    agent.gives("monitor", 7)?;
    agent.gives("start", 0)?;
    agent.gives("monitor", 0)?;
    agent.gives("stop", 0)?;

    let nobody = Agent { targets: dir("nothing"), nid: agent.nid.clone(), log: s.path().join("log2") };
    let said = nobody.gives("start", 1)?;
    ensure!(said.contains("nacred ended") && said.contains("nothing"), "{said}");
    nobody.gives("monitor", 7)?;
    nobody.gives("stop", 0)?;
    let unset = Agent { targets: String::new(), nid: String::new(), log: s.path().join("log3") };
    let said = unset.gives("start", 6)?;
    ensure!(said.contains("parameter 'targets' is missing"), "{said}");
    Ok(())
}

/// What the cluster's own test of resource agents says: the DTD, starting twice, stopping twice, and so on.
#[test]
fn ocf_tester_is_content() -> Result<()> {
    let s = Scratch::new("ocftester");
    let [a, b] = (std::process::id() as u16).to_be_bytes();
    let mdt = s.path().join("mdt0");
    ok_within(tool("mkfs.nacre").args(["--mgs", "--mdt", "--fsname=ocft", "--index=0"]).arg(&mdt), LIMIT)?;
    let nid = format!("127.202.{a}.{}@tcp", b.max(1));
    let agent = Agent { targets: mdt.display().to_string(), nid, log: s.path().join("log") };
    let mut c = Command::new("ocf-tester");
    let options = [
        format!("targets={}", agent.targets),
        format!("nid={}", agent.nid),
        format!("nacre={}", bin_dir().join("nacre").display()),
        format!("log={}", agent.log.display()),
    ];
    c.args(["-n", "tested"]);
    c.args(options.iter().flat_map(|o| ["-o", o.as_str()]));
    let said = ok_within(c.arg(Agent::script()), LIMIT)?;
    ensure!(said.contains("passed all tests"), "ocf-tester said:\n{said}");
    Ok(())
}

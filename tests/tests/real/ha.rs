//! The resource agent as Pacemaker calls it: verbs in, OCF's exit statuses out.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tests::cluster::{Scratch, bin_dir, kill, ok_within, run_within, tool, wait_until};

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

fn executable(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    Ok(std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?)
}

/// Both streams of a command and its exit status.
fn said(c: &mut Command) -> Result<(Option<i32>, String)> {
    let o = run_within(c, LIMIT)?;
    Ok((
        o.status.code(),
        String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr),
    ))
}

/// At boot: the mount point is there, its disk is not yet.
#[test]
fn a_server_waits_for_a_folder_that_comes_later_and_says_so() -> Result<()> {
    let s = Scratch::new("later");
    let dir = |n: &str| s.path().join(n);
    let [a, b] = (std::process::id() as u16).to_be_bytes();
    let nid = format!("127.203.{a}.{}@tcp", b.max(1));
    ok_within(
        tool("mkfs.nacre").args(["--mgs", "--mdt", "--fsname=lat", "--index=0"]).arg(dir("disk")),
        LIMIT,
    )?;
    std::fs::create_dir(dir("mdt0"))?;
    let log = dir("log");
    let agent = Agent { targets: dir("mdt0").display().to_string(), nid, log: log.clone() };
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    std::thread::scope(|scope| -> Result<()> {
        let start = scope.spawn(|| agent.gives("start", 0));
        wait_until("nacred says that it waits", LIMIT, || {
            text().contains(
                "mdt0' is empty, as a mount point without its disk: waiting for it, for 20 s at most",
            )
        })?;
        // What looks at a mount point sees the disk in it all at once.
        std::fs::remove_dir(dir("mdt0"))?;
        wait_until("nacred goes on waiting", LIMIT, || text().matches("waiting for it").count() == 1)?;
        std::fs::rename(dir("disk"), dir("mdt0"))?;
        start.join().expect("the start")?;
        Ok(())
    })?;
    ensure!(text().contains("mdt0' is there, after "), "{}", text());
    agent.gives("monitor", 0)?;
    agent.gives("stop", 0)?;

    // Without patience it is a mistake at once; with it in the end.
    let gone = dir("gone");
    let (status, words) = said(tool("nacred").args(["--nid", &agent.nid]).arg(&gone))?;
    ensure!(status == Some(1) && words.contains("cannot use target"), "{status:?}: {words}");
    let mut c = tool("nacred");
    let (status, words) = said(c.args(["--nid", &agent.nid, "--folder-patience", "1"]).arg(&gone))?;
    ensure!(
        status == Some(1) && words.contains("is not there; it was waited for, for 1 s (--folder-patience)"),
        "{status:?}: {words}"
    );
    Ok(())
}

/// Pacemaker's programs, as far as they are asked: a file for each target says where it is.
const CRM: &str = r#"#!/bin/sh
state=$(dirname "$0")
case $(basename "$0") in
cibadmin) cat "$state/cib" ;;
crm_node) case $1 in --name) echo b ;; *) echo "a b" ;; esac ;;
crmadmin) case $2 in --dc_lookup) echo a ;; *) echo "Status: S_IDLE (ok)" ;; esac ;;
crm_resource)
	shift; name=${1%-server}; shift
	case $1 in
	--locate) cat "$state/$name" ;;
	--move) [ "$name" = demo-OST0002 ] || echo "$3" >"$state/$name" ;;
	--clear) echo "$name" >>"$state/cleared" ;;
	esac ;;
esac
"#;

fn group(name: &str, home: &str, other: &str) -> (String, String) {
    let resource = format!(
        r#"<group id="{name}"><primitive id="{name}-server" class="ocf" provider="nacre" type="target"/></group>"#
    );
    let at = |host: &str, score: u32| {
        format!(r#"<rsc_location id="{name}-{host}" node="{host}" rsc="{name}" score="{score}"/>"#)
    };
    (resource, at(home, 200) + &at(other, 100))
}

/// On host b, of a and b: MDT0000 and OST0000 are a's, the others b's.
#[test]
fn pacemakers_targets_move_by_the_words_of_heartbeat() -> Result<()> {
    let s = Scratch::new("scopes");
    let dir = |n: &str| s.path().join(n);
    for program in ["cibadmin", "crm_node", "crmadmin", "crm_resource"] {
        executable(&dir(program), CRM)?;
    }
    let homes = [("demo-MDT0000", "a"), ("demo-OST0000", "a"), ("demo-OST0001", "b"), ("demo-OST0002", "b")];
    let all = homes.map(|(n, home)| group(n, home, if home == "a" { "b" } else { "a" }));
    let cib = format!(
        r#"<cib><nodes><node uname="a"/><node uname="b"/></nodes>{}{}</cib>"#,
        all.clone().map(|g| g.0).concat(),
        all.map(|g| g.1).concat()
    );
    std::fs::write(dir("cib"), cib)?;
    let put = |hosts: [&str; 4]| -> Result<()> {
        homes.iter().zip(hosts).try_for_each(|((n, _), h)| Ok(std::fs::write(dir(n), format!("{h}\n"))?))
    };
    let is_at = |hosts: [&str; 4], after: &str| -> Result<()> {
        let now = homes.map(|(n, _)| std::fs::read_to_string(dir(n)).unwrap_or_default().trim().to_string());
        ensure!(now == hosts.map(String::from), "after {after}: {now:?} instead of {hosts:?}");
        Ok(())
    };
    let path = format!("{}:{}", s.path().display(), std::env::var("PATH")?);
    let ha = |args: &[&str]| said(tool("nacre").arg("ha").args(args).env("PATH", &path));

    put(["a", "a", "b", "b"])?;
    let (status, words) = ha(&["takeover", "foreign"])?;
    ensure!(status == Some(0), "{words}");
    for line in [
        "1 of 2: demo-MDT0000",
        "demo-MDT0000 moves from a to b; applications wait meanwhile",
        "demo-MDT0000 is on b, after ",
        "2 of 2: demo-OST0000",
    ] {
        ensure!(words.contains(line), "'{line}' is missing in {words}");
    }
    is_at(["b", "b", "b", "b"], "takeover foreign")?;
    ha(&["giveback", "failback"])?;
    is_at(["a", "a", "b", "b"], "giveback failback")?;
    // One of them does not go: the others do, and it is named.
    let (status, words) = ha(&["giveback", "local"])?;
    ensure!(status == Some(1), "{words}");
    ensure!(words.contains("demo-OST0002 is on b: a cannot take it"), "{words}");
    ensure!(words.contains("nacre ha: 1 of 2 targets did not move: demo-OST0002"), "{words}");
    is_at(["a", "a", "a", "b"], "giveback local")?;
    ha(&["takeover", "local"])?;
    is_at(["a", "a", "b", "b"], "takeover local")?;
    put(["b", "a", "a", "b"])?;
    ha(&["giveback", "foreign", "--from", "a"])?;
    is_at(["b", "a", "b", "b"], "giveback foreign --from a")?;
    ha(&["takeover", "all", "--to", "a"])?;
    is_at(["a", "a", "a", "b"], "takeover all --to a")?;
    ensure!(std::fs::read_to_string(dir("cleared"))?.lines().count() >= 9, "every wish is taken back");

    let (status, words) = ha(&["takeover", "foreign", "--to", "a"])?;
    ensure!(status == Some(1) && words.contains("did not move: demo-OST0002"), "{words}");
    let (status, words) = ha(&["takeover", "local", "--to", "a"])?;
    ensure!(status == Some(0) && words == "no target is to move\n", "{words}");
    let (status, words) = ha(&["takeover", "all", "--to", "z"])?;
    ensure!(status == Some(1) && words.contains("host z is no member of the cluster now (a, b)"), "{words}");
    let (status, words) = ha(&["giveback", "--from", "a", "demo-OST0000"])?;
    ensure!(status == Some(1) && words.contains("--from is for all, foreign, local and failback"), "{words}");
    let (status, words) = ha(&["takeover", "alien"])?;
    ensure!(
        status == Some(1) && words.contains("the cluster has no target 'alien'; it has demo-MDT0000"),
        "{words}"
    );
    Ok(())
}

/// Hosts are mount namespaces with names and files of their own; the command that asks them goes there.
#[test]
fn what_hosts_have_is_compared_and_each_difference_is_named() -> Result<()> {
    let s = Scratch::new("hadiff");
    let dir = |n: &str| s.path().join(n);
    let plan = "server a 10.0.0.1\nserver b 10.0.0.2\nserver c 10.0.0.3\n\
                fence a fence_none x=1\nfence b fence_none x=1\nfence c fence_none x=1\n\
                target MGS dir=/m address=10.0.0.9 servers=a,b\n";
    for h in ["a", "b"] {
        std::fs::create_dir_all(dir(h).join("ocf"))?;
        std::fs::create_dir_all(dir(h).join("units/multi-user.target.wants"))?;
        std::fs::copy(Agent::script(), dir(h).join("ocf/target"))?;
        std::fs::write(dir(h).join("units/nacre-mgs.service"), "[Unit]\n")?;
        std::fs::write(dir(h).join("plan"), plan)?;
        std::os::unix::fs::symlink(
            "../nacre-mgs.service",
            dir(h).join("units/multi-user.target.wants/nacre-mgs.service"),
        )?;
    }
    // c never answers.
    let enter = |host: &str| {
        format!(
            "mount --make-rprivate / && mkdir -p /usr/lib/ocf/resource.d/nacre /etc/systemd/system && hostname {host} &&
             mount --bind {0}/ocf /usr/lib/ocf/resource.d/nacre && mount --bind {0}/units /etc/systemd/system &&
             mount --bind {0}/plan {1}/plan && exec \"$@\"",
            dir(host).display(),
            s.path().display()
        )
    };
    std::fs::write(dir("plan"), "")?;
    executable(
        &dir("remote"),
        &format!(
            "#!/bin/sh\n[ $1 = b ] || {{ echo \"ssh: no route to $1\" >&2; exit 255; }}\nshift 2\n\
             exec unshare --mount --uts sh -c '{}' sh {} \"$@\"\n",
            enter("b"),
            bin_dir().join("nacre").display()
        ),
    )?;
    let diff = |args: &[&str]| -> Result<(Option<i32>, String)> {
        let mut c = Command::new("unshare");
        c.args(["--mount", "--uts", "sh", "-c", &enter("a"), "sh"]).arg(bin_dir().join("nacre"));
        c.args(["ha", "diff", "--plan"]).arg(dir("plan")).arg("--remote").arg(dir("remote")).args(args);
        said(&mut c)
    };
    std::fs::write(dir("a/plan"), plan.replace("fence_none", "true"))?;
    std::fs::write(dir("b/plan"), plan.replace("fence_none", "true"))?;
    let (status, words) = diff(&["b"])?;
    ensure!(status == Some(0) && words == "a, b have the same program, agent, plan and units\n", "{words}");

    std::fs::write(dir("b/plan"), plan)?;
    std::fs::write(dir("b/units/nacre-mgs.service"), "[Unit]\n# edited\n")?;
    std::fs::remove_file(dir("b/units/multi-user.target.wants/nacre-mgs.service"))?;
    std::fs::remove_file(dir("b/ocf/target"))?;
    let (status, words) = diff(&[])?;
    ensure!(status == Some(1), "{words}");
    let plan_path = dir("plan").display().to_string();
    for line in [
        "b: agent: '/usr/lib/ocf/resource.d/nacre/target' is missing there".to_string(),
        "    mend: ssh b mkdir -p /usr/lib/ocf/resource.d/nacre && scp /usr/lib/ocf/resource.d/nacre/target b:".into(),
        format!("b: plan: '{plan_path}' has crc32c "),
        format!("    mend: scp {plan_path} b:{plan_path}"),
        "b: unit nacre-mgs.service: '/etc/systemd/system/nacre-mgs.service' has crc32c ".into(),
        "b: unit nacre-mgs.service: is disabled there and enabled here".into(),
        "    mend: ssh b systemctl enable nacre-mgs.service".into(),
        "b: fence agent fence_none: is not installed".into(),
        "c: host: cannot be asked: ssh: no route to c".into(),
    ] {
        ensure!(words.contains(&line), "'{line}' is missing in\n{words}");
    }
    let (status, words) = diff(&["--json"])?;
    let v: serde_json::Value = serde_json::from_str(&words)?;
    ensure!(
        status == Some(1) && v["reference"] == "a" && v["hosts"].as_array().is_some_and(|h| h.len() == 3),
        "{words}"
    );
    ensure!(v["differences"].as_array().is_some_and(|d| d.len() == 6), "{words}");
    let (status, words) = diff(&["a"])?;
    ensure!(status == Some(1) && words.contains("no host besides a"), "{words}");
    let (status, words) = said(tool("nacre").args(["ha", "diff", "--plan"]).arg(dir("none")))?;
    ensure!(
        status == Some(1) && words.contains("is not there: name the hosts, or say --plan FILE"),
        "{words}"
    );
    Ok(())
}

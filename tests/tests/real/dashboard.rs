//! The console over a running file system: who may look and who may act, and what its pages say while an OST
//! is dead and comes back.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tests::cluster::{Running, TestFs, kill, kit, nacre_json, ok_within, run_within, tool, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// A console as a browser or a program meets it.
struct Console {
    at: SocketAddr,
    token: String,
}

/// Status, headers, body.
type Answer = (u16, String, String);

impl Console {
    /// The one that `nacre up --dashboard` started, with its token.
    fn of(fs: &TestFs) -> Result<Console> {
        let doc: Value = serde_json::from_str(&fs::read_to_string(fs.dir().join("cluster.json"))?)?;
        let block: std::net::Ipv4Addr = doc["block"].as_str().context("a block")?.parse()?;
        let port = doc["dashboard"].as_u64().context("a port")?;
        let at = SocketAddr::new(std::net::Ipv4Addr::from(u32::from(block) + 1).into(), u16::try_from(port)?);
        let file = fs.dir().join("dashboard/operator.token");
        ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600, "root's alone");
        Ok(Console { at, token: fs::read_to_string(file)?.trim().to_string() })
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Result<Answer> {
        let mut s = TcpStream::connect_timeout(&self.at, Duration::from_secs(5))?;
        s.set_read_timeout(Some(Duration::from_secs(20)))?;
        let (at, len) = (self.at, body.len());
        write!(
            s,
            "{method} {path} HTTP/1.1\r\nHost: {at}\r\n{headers}Content-Length: {len}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}"
        )?;
        let mut all = String::new();
        s.read_to_string(&mut all)?;
        let (head, body) = all.split_once("\r\n\r\n").with_context(|| format!("no answer: {all}"))?;
        let status = head.split(' ').nth(1).context("a status")?.parse()?;
        Ok((status, head.to_string(), body.to_string()))
    }

    /// A document, as a program asks for it.
    fn json(&self, name: &str) -> Result<Value> {
        let bearer = format!("Authorization: Bearer {}\r\n", self.token);
        let (status, _, body) = self.ask("GET", &format!("/api/{name}"), &bearer, "")?;
        ensure!(status == 200, "{name}: {status} {body}");
        Ok(serde_json::from_str(&body)?)
    }

    /// The header of a browser that logged in, and the proof that its forms carry.
    fn log_in(&self, token: &str) -> Result<(String, String)> {
        let (status, head, _) = self.ask("POST", "/login", "", &format!("token={token}&next=overview"))?;
        ensure!(status == 303, "{head}");
        let cookie = head.lines().find_map(|l| l.strip_prefix("set-cookie: ")).context("no cookie")?;
        let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
        let (_, _, page) = self.ask("GET", "/overview", &cookie, "")?;
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).context("no form")?;
        Ok((cookie, csrf.split('"').next().unwrap_or_default().to_string()))
    }

    /// The state of a target on the first page's document.
    fn target(&self, label: &str) -> Option<Value> {
        let doc = self.json("overview").ok()?;
        let all = doc["overview"][0]["targets"].as_array()?.clone();
        all.into_iter().find(|t| t["label"] == label)
    }
}

/// Writes and reads again and again, until it is dropped.
fn load(fs: &TestFs) -> Result<Running> {
    let script = "while :; do dd if=/dev/zero of=data bs=1M count=4 conv=fsync; cat data; ls -l; \
                  touch a; mv a b; rm b; sleep 0.05; done";
    let mut c = Command::new("sh");
    c.args(["-c", script]).current_dir(fs.mount(0)).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running(c.spawn()?))
}

fn audit(fs: &TestFs) -> String {
    fs::read_to_string(fs.dir().join("dashboard/audit.log")).unwrap_or_default()
}

#[test]
fn the_console_says_that_an_ost_is_dead_and_that_it_is_back() -> Result<()> {
    let fs = TestFs::up_as("console", 3, 1, vec!["--dashboard"])?;
    let (console, name) = (Console::of(&fs)?, fs.fsname().to_string());
    let ost = format!("{name}-OST0001");
    let load = load(&fs)?;
    let doc = console.json("overview")?;
    ensure!(doc["overview"][0]["status"] == "well" && doc["overview"][0]["fsname"] == name.as_str(), "{doc}");
    ensure!(console.target(&ost).is_some_and(|t| t["errno"].is_null() && t["connection"] == "FULL"));
    // Rates of the load, by the servers' own counters.
    wait_until("the load is seen", LIMIT, || {
        let Ok(doc) = console.json("history") else { return false };
        let has = |n: &str| {
            let all = doc["series"][n].as_array();
            all.is_some_and(|a| a.iter().any(|v| v.as_f64().is_some_and(|v| v > 0.0)))
        };
        has("write_bytes_per_s") && has("metadata_ops_per_s") && has("write_us")
    })?;
    // Every document and page is there.
    let (cookie, _) = console.log_in(&console.token)?;
    let (_, _, list) = console.ask("GET", "/api", &cookie, "")?;
    let list: Value = serde_json::from_str(&list)?;
    let addresses = list["documents"].as_array().context("no list")?;
    let names = addresses.iter().filter_map(|d| d["address"].as_str()?.strip_prefix("/api/"));
    for n in names.filter(|n| !n.starts_with("act/") && !n.contains('?') && *n != "audit") {
        let doc = console.json(n)?;
        for (topic, v) in doc.as_object().context("a document")? {
            ensure!(v["error"].is_null(), "{n}: {topic}: {v}");
        }
        let (status, _, page) = console.ask("GET", &format!("/{n}"), &cookie, "")?;
        ensure!(status == 200 && page.contains("</html>"), "{n}: {status}");
    }
    let doc = console.json("topology")?;
    ensure!(doc["servers"].as_array().is_some_and(|s| s.len() == 4), "{doc}");
    ensure!(doc["config"]["config"]["file_systems"][0]["fsname"] == name.as_str(), "{doc}");

    // It has a row of its own, and is no server.
    let console_row = || -> Result<Value> {
        let s = fs.status()?;
        let all = s["processes"].as_array().context("no processes")?;
        all.iter().find(|r| r["role"] == "console").cloned().with_context(|| format!("no console: {s}"))
    };
    let row = console_row()?;
    ensure!(row["state"] == "up" && row["reachable"] == true && row["beside_mgs"] == true, "{row}");
    ensure!(row["address"] == console.at.to_string(), "{row}");
    let pid = row["pid"].as_i64().context("a pid")? as i32;
    ensure!(!fs.servers()?.contains(&pid), "{row}");
    let text = ok_within(tool("nacre").args(["status", "--dir"]).arg(fs.dir()), LIMIT)?;
    ensure!(text.contains(&format!("http://{}/", console.at)) && !text.contains("no console"), "{text}");
    kill(pid, Signal::STOP)?;
    let row = console_row()?;
    ensure!(row["state"] == "waiting" && row["reachable"] == false, "{row}");
    kill(pid, Signal::CONT)?;
    wait_until("the console answers again", LIMIT, || console_row().is_ok_and(|r| r["state"] == "up"))?;
    // Directories with a quota, by what lies in them.
    let heavy = fs.mount(0).join("heavy");
    fs::create_dir(&heavy)?;
    ok_within(tool("lfs").args(["setquota", "-B", "1G", "-d"]).arg(&heavy), LIMIT)?;
    fs::write(heavy.join("f"), vec![7; 3 << 20])?;
    ok_within(Command::new("sync").arg(heavy.join("f")), LIMIT)?;
    wait_until("the directory is counted", LIMIT, || {
        let Ok(doc) = console.json("directories") else { return false };
        let row = &doc["directories"]["file_systems"][0]["directories"][0];
        row["path"] == heavy.to_str().unwrap_or_default() && row["bytes"].as_u64() >= Some(3 << 20)
    })?;
    let (_, _, page) = console.ask("GET", "/directories", &cookie, "")?;
    ensure!(page.contains("/heavy") && page.contains("1.0G"), "{page}");

    kill(fs.oss(1)?, Signal::KILL)?;
    wait_until("the console says who is dead", LIMIT, || {
        console.ask("GET", "/overview", &cookie, "").is_ok_and(|(_, _, page)| {
            page.contains("OST0001</strong>") && page.contains("degraded") && page.contains("does not answer")
        })
    })?;
    ensure!(console.target(&ost).is_some_and(|t| !t["errno"].is_null()));
    // An answer of the doctor's serves for some seconds.
    wait_until("the doctor says it as well", LIMIT, || {
        let Ok(doc) = console.json("doctor") else { return false };
        let found = doc["doctor"]["findings"].as_array();
        found.is_some_and(|f| f.iter().any(|f| f["check"] == "targets" && f["severity"] == "error"))
    })?;
    fs.up_again()?;
    wait_until("the console says that all is well", LIMIT, || {
        console.json("overview").is_ok_and(|d| d["overview"][0]["status"] == "well")
    })?;
    ensure!(console.target(&ost).is_some_and(|t| t["errno"].is_null()));
    drop(load);
    wait_until("nobody uses the mount", LIMIT, || fs.down().is_ok())?;
    let gone = TcpStream::connect_timeout(&console.at, Duration::from_secs(5));
    ensure!(gone.is_err(), "nacre down ends the console");
    Ok(())
}

#[test]
fn an_operator_acts_a_viewer_does_not_and_both_are_written_down() -> Result<()> {
    let fs = TestFs::up_as("consact", 2, 1, vec!["--dashboard"])?;
    let (console, name) = (Console::of(&fs)?, fs.fsname().to_string());
    let state = fs.dir().join("dashboard");
    let state = state.to_str().context("a path")?;
    let add = ["dashboard", "token", "add", "victor", "--role", "viewer", "--state", state, "--json"];
    let viewer = nacre_json(&add)?["token"].as_str().context("a token")?.to_string();
    let all = nacre_json(&["dashboard", "token", "list", "--state", state, "--json"])?;
    ensure!(all["tokens"].as_array().is_some_and(|t| t.len() == 2) && !all.to_string().contains("sha256"));

    let (status, ..) = console.ask("GET", "/overview", "", "")?;
    ensure!(status == 303, "nobody looks without a token");
    let form = format!("target={name}-MDT0000&dry_run=on");
    let (cookie, csrf) = console.log_in(&viewer)?;
    let (status, ..) = console.ask("POST", "/act/lfsck-start", &cookie, &format!("{form}&csrf={csrf}"))?;
    ensure!(status == 403 && audit(&fs).contains("refused: a viewer"), "{}", audit(&fs));

    let (cookie, csrf) = console.log_in(&console.token)?;
    let (status, _, page) = console.ask("POST", "/act/lfsck-start", &cookie, &form)?;
    ensure!(status == 403 && page.contains("not of this session"), "{status} {page}");
    let foreign = format!("{cookie}Origin: http://evil.example\r\n");
    let (status, ..) = console.ask("POST", "/act/lfsck-start", &foreign, &format!("{form}&csrf={csrf}"))?;
    ensure!(status == 403, "{status}");
    let asked = || ok_within(tool("lctl").args(["lfsck_query", "-w"]), LIMIT);
    ensure!(asked()?.contains("namespace_mdts_init: 1"), "nothing was started so far");
    let (status, _, page) =
        console.ask("POST", "/act/lfsck-start", &cookie, &format!("{form}&csrf={csrf}"))?;
    ensure!(status == 200, "{status} {page}");
    ensure!(asked()?.contains("namespace_mdts_completed: 1"), "{}", asked()?);
    let lines = audit(&fs);
    let last: Value = serde_json::from_str(lines.lines().last().context("no line")?)?;
    ensure!(last["name"] == "up" && last["role"] == "operator" && last["action"] == "lfsck-start", "{last}");
    ensure!(last["result"] == "done" && !lines.contains(&csrf), "{last}");

    // The OST gets no new objects, and then it does.
    let active = || ok_within(tool("lctl").args(["get_param", "-n", "osp.*OST0001*.active"]), LIMIT);
    for (action, value) in [("deactivate", "0"), ("activate", "1")] {
        let bearer = format!("Authorization: Bearer {}\r\n", console.token);
        let path = format!("/api/act/{action}");
        let (status, _, body) = console.ask("POST", &path, &bearer, &format!("target={name}-OST0001"))?;
        ensure!(status == 200 && active()?.trim() == value, "{action}: {status} {body}");
    }
    let (status, _, page) =
        console.ask("POST", "/act/set-param", &cookie, &format!("name=no.such&value=1&csrf={csrf}"))?;
    ensure!(status == 409 && page.contains("no.such"), "{status} {page}");

    // A token that is removed is of no use from then on.
    ok_within(tool("nacre").args(["dashboard", "token", "remove", "up", "--state", state]), LIMIT)?;
    let (status, ..) = console.ask("GET", "/overview", &cookie, "")?;
    ensure!(status == 303, "{status}");
    for (args, part) in [
        (vec!["--listen", "0.0.0.0:9171"], "cannot listen at '0.0.0.0:9171': without certificates"),
        (vec!["--listen", "10.0.0.1:9171"], "loopback addresses only"),
        (vec!["--listen", "nonsense"], "no address"),
        (vec!["--interval", "0"], "bad value '0' of --interval"),
        (vec!["token", "add", "x y", "--role", "viewer"], "no name of a token"),
        (vec!["token", "add", "x", "--role", "king"], "no role"),
    ] {
        let o = run_within(tool("nacre").arg("dashboard").args(&args), LIMIT)?;
        let said = String::from_utf8_lossy(&o.stderr).into_owned();
        ensure!(!o.status.success() && said.contains(part), "{args:?}: {said}");
    }
    fs.down()
}

/// Chromium goes through every page at three sizes, light and dark, does something, and looks on while an OST
/// dies and comes back. `NACRE_SCREENSHOTS`: a folder for what it saw.
#[test]
fn a_browser_goes_through_the_console_while_an_ost_dies_and_comes_back() -> Result<()> {
    let fs = TestFs::up_as("browser", 4, 1, vec!["--dashboard"])?;
    let console = Console::of(&fs)?;
    ok_within(tool("lctl").args(["set_param", "jobid_var=procname_uid"]), LIMIT)?;
    let load = load(&fs)?;
    let shots = match std::env::var_os("NACRE_SCREENSHOTS") {
        Some(dir) => dir.into(),
        None => fs.scratch().join("shots"),
    };
    fs::create_dir_all(&shots)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/console.js");
    let mut node = Command::new("node");
    node.arg(script).arg(format!("http://{}", console.at)).arg(&console.token).arg(&shots);
    node.env("NODE_PATH", kit("..").join("browser/node_modules")).env("HOME", fs.scratch());
    let log = fs.scratch().join("browser.log");
    node.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log)?);
    let mut node = Running(node.spawn()?);
    let said = BufReader::new(node.0.stdout.take().context("no output")?);
    let mut last = String::new();
    for line in said.lines() {
        last = line?;
        match last.as_str() {
            "open" => kill(fs.oss(1)?, Signal::KILL)?,
            "dead" => fs.up_again()?,
            _ => {}
        }
    }
    ensure!(last == "passed", "{last}: {}", fs::read_to_string(&log)?);
    drop(load);
    wait_until("nobody uses the mount", LIMIT, || fs.down().is_ok())
}

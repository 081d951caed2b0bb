//! Pages and addresses over a source that says what it is told to.

use crate::act::Order;
use crate::app::{Console, router};
use crate::history::History;
use crate::source::{Source, Topic};
use crate::subject::SUBJECTS;
use crate::token::{Role, Tokens};
use admin::query::Stats;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use model::mutex::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use world::sys::files;

/// A folder of its own for a test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("nacre-dashboard-{}-{name}", std::process::id()));
        let _ = files::remove_tree(&dir);
        files::create_private_dir(&dir).unwrap();
        Scratch(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.0);
    }
}

/// Text of others that would do harm if a page had it as it is.
const EVIL: &str = "<script>alert(\"x\")</script>&'";

/// Says the same of everything, and keeps what it was told to do.
#[derive(Default)]
struct Fake {
    done: Mutex<Vec<Order>>,
    is_broken: bool,
}

fn documents(topic: Topic) -> Value {
    let target = json!({"target": "OST0001", "label": "demo-OST0001", "uuid": "demo-OST0001_UUID", "kind": "Ost",
        "index": 1, "nid": "10.0.0.4@tcp", "host": EVIL, "connection": "DISCONN", "active": true, "errno": 110,
        "state": "", "total_bytes": 0, "used_bytes": 0, "available_bytes": 0, "domain": ["rack1", EVIL]});
    let well = json!({"target": "MDT0000", "label": "demo-MDT0000", "kind": "Mdt", "index": 0, "nid": "10.0.0.3@tcp",
        "host": "mds1", "connection": "FULL", "active": true, "errno": null, "state": "", "total_bytes": 1u64 << 40,
        "used_bytes": 1u64 << 39, "available_bytes": 1u64 << 39, "domain": []});
    match topic {
        Topic::Overview => json!([{"fsname": "demo", "mount": "/mnt/demo", "source": "10.0.0.3@tcp:/demo",
            "status": "degraded", "error": null, "maintenance": null, "total_bytes": 1u64 << 42,
            "used_bytes": 1u64 << 41, "available_bytes": 1u64 << 41, "targets": [well, target],
            "troubles": [{"object": "OST0001", "place": EVIL, "what": "does not answer", "since": 1000,
                "seconds": 60, "severity": "error", "consequence": "reads wait"}]}]),
        Topic::Servers => json!([{"pid": 7, "nids": ["10.0.0.3@tcp"], "port": 988, "started_again": 1,
            "targets": [{"label": "demo-MDT0000", "dir": "/d/mdt0", "state": "recovering", "uuid": "x", "epoch": 4,
                "registered": true, "clients": 3, "recovery": {"clients": 4, "connected": 3, "completed": 1,
                "seconds_left": 40}}]}]),
        Topic::Doctor => {
            json!({"errors": 1, "warnings": 0, "findings": [{"check": "targets", "severity": "error",
            "object": EVIL, "what": EVIL, "help": "lfs status"}], "not_looked_at": [{"check": "quota", "why": EVIL}]})
        }
        Topic::Requests => json!({"requests": [{"mount": "/m", "target": "demo-OST0001", "verb": "write",
            "age_s": 75, "job": EVIL, "file": "[0x1:0x2:0x0]", "waits_for": "server"}]}),
        Topic::Jobs => {
            json!({"timestamp": 5, "missing": [EVIL], "file_systems": [{"fsname": "demo", "jobs": [
            {"job_id": EVIL, "ops": 9, "read_bytes": 1, "write_bytes": 2, "operations": {"open": 9}}]}]})
        }
        Topic::Owners => {
            json!({"file_systems": [{"fsname": "demo", "type": "user", "number": 1, "bytes": 4096,
            "inodes": 2, "complete": true, "owners": [{"id": 0, "name": EVIL, "bytes": 4096, "inodes": 2}]}],
            "missing": []})
        }
        Topic::Directories => {
            json!({"file_systems": [{"fsname": "demo", "mount": "/m", "number": 2, "bytes": 8192, "inodes": 9,
            "complete": false, "directories": [{"id": 7, "path": EVIL, "bytes": 4096, "inodes": 2,
            "limits": {"bytes": {"soft": 0, "hard": 4096}, "inodes": {"soft": 1, "hard": 0}}}]}], "missing": [EVIL]})
        }
        Topic::Clients => json!({"clients": [{"target": "demo-OST0001", "nid": "10.0.0.9@tcp",
            "operations": {"read": 4}, "uuids": ["ab"]}]}),
        Topic::Movements => {
            json!({"missing": [], "movements": [{"fsname": "demo", "target": "demo-MDT0000_UUID",
            "fid": "[0x1:0x2:0x0]", "state": "copying", "from": [1], "to": [2], "done_bytes": 5, "total_bytes": 10,
            "since": 1000, "client": EVIL}]})
        }
        Topic::Checks => {
            json!({"checks": [{"target": "demo-MDT0000", "type": "layout", "status": "completed",
            "fields": {"name": EVIL, "repaired": "3"}}], "scrubs": [{"target": "demo-OST0001",
            "fields": {"status": "scanning", "bad_blocks": "2"}}]})
        }
        Topic::Policies => json!({"running": true, "runs": [{"rule": EVIL, "action": "purge", "began": 5,
            "running": true, "files": 10, "bytes": 100, "over": 5, "result": {}}],
            "ended": [{"rule": "old", "action": "purge", "ended": 9, "result": "complete",
            "tally": {"done": 3, "bytes": 10}}]}),
        Topic::Config => {
            json!({"config": {"version": 7, "first_kept": 1, "kept": 7, "params": [{"name": EVIL,
            "value": EVIL, "version": 3, "time": 1000, "by": EVIL}], "file_systems": [{"fsname": "demo", "uuid": "x",
            "removed": [], "pools": {"flash": [1]}, "targets": [{"target": "demo-OST0001", "uuid": "x", "nids": ["a"],
            "epoch": 3, "active": true, "domain": EVIL, "may_be_replaced": false}]}]},
            "versions": [{"version": 7, "time": 1000, "by": EVIL, "changes": [EVIL]}]})
        }
        Topic::Ha => json!({"resources": [{"id": "t", "host": EVIL, "label": "demo-OST0001"}]}),
    }
}

impl Source for Fake {
    fn ask(&self, topic: Topic) -> Result<Value, String> {
        if self.is_broken { Err(format!("cannot ask {EVIL}")) } else { Ok(documents(topic)) }
    }

    fn act(&self, order: &Order) -> Result<String, String> {
        self.done.lock().push(order.clone());
        if self.is_broken { Err("it is broken".into()) } else { Ok(EVIL.into()) }
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

struct Rig {
    app: Router,
    fake: Arc<Fake>,
    dir: Scratch,
    runtime: world::real::Runtime,
    operator: String,
    viewer: String,
}

struct Said {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    text: String,
}

impl Said {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

impl Rig {
    fn new(name: &str, is_broken: bool) -> Rig {
        let dir = Scratch::new(name);
        let (world, runtime) = world::real::start(1).unwrap();
        let fake = Arc::new(Fake { is_broken, ..Fake::default() });
        let history = Arc::new(History::new(Duration::from_secs(5)));
        let app = router(Arc::new(Console::new(&world, fake.clone(), history, dir.path())));
        let tokens = Tokens::of(dir.path());
        let operator = tokens.add("olga", Role::Operator, &world.random_key(), 1).unwrap();
        let viewer = tokens.add("victor", Role::Viewer, &world.random_key(), 1).unwrap();
        Rig { app, fake, dir, runtime, operator, viewer }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Said {
        let mut r = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(n, _)| *n == "host") {
            r = r.header("host", "localhost:9170");
        }
        for (n, v) in headers {
            r = r.header(*n, *v);
        }
        if method == "POST" {
            r = r.header("content-type", "application/x-www-form-urlencoded");
        }
        let r = r.body(Body::from(body.to_string())).unwrap();
        let app = self.app.clone();
        self.runtime.block_on(async move {
            let answer = app.oneshot(r).await.unwrap();
            let (head, body) = answer.into_parts();
            let text = to_bytes(body, 1 << 20).await.unwrap();
            Said { status: head.status, headers: head.headers, text: String::from_utf8_lossy(&text).into() }
        })
    }

    fn bearer(token: &str) -> String {
        format!("Bearer {token}")
    }

    /// Cookie and CSRF token.
    fn log_in(&self, token: &str) -> (String, String) {
        let s = self.ask("POST", "/login", &[], &format!("token={token}&next=overview"));
        assert_eq!((s.status, s.header("location")), (StatusCode::SEE_OTHER, "/overview"), "{}", s.text);
        let cookie = s.header("set-cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_string();
        let page = self.ask("GET", "/overview", &[("cookie", &cookie)], "").text;
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        (cookie, csrf.to_string())
    }

    fn audit(&self) -> String {
        files::read_to_string(self.dir.path().join("audit.log")).unwrap_or_default()
    }
}

/// Whether every element is closed in its order, and no attribute or text ends it early.
fn check_well_formed(page: &str) {
    const EMPTY: [&str; 6] = ["meta", "link", "input", "img", "br", "hr"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("it says what it is");
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "a stray > in {}", &rest[..at]);
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "quotes of <{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "in {page}");
        } else if !EMPTY.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn every_page_is_well_formed_and_escapes_what_others_said() {
    for is_broken in [false, true] {
        let rig = Rig::new(&format!("pages{is_broken}"), is_broken);
        let (cookie, _) = rig.log_in(&rig.viewer);
        for s in SUBJECTS {
            let said = rig.ask("GET", &format!("/{}", s.name), &[("cookie", &cookie)], "");
            assert_eq!(said.status, StatusCode::OK, "{}: {}", s.name, said.text);
            check_well_formed(&said.text);
            assert!(!said.text.contains("<script>alert"), "{}", s.name);
            assert!(said.text.contains("<h1>") && said.text.contains("aria-current=\"page\""), "{}", s.name);
            assert!(!said.text.contains(" style=") && !said.text.contains(" onclick="), "{}", s.name);
            let policy = said.header("content-security-policy");
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
            let bearer = Rig::bearer(&rig.viewer);
            let json = rig.ask("GET", &format!("/api/{}", s.name), &[("authorization", &bearer)], "");
            assert_eq!((json.status, json.header("content-type")), (StatusCode::OK, "application/json"));
            let v: Value = serde_json::from_str(&json.text).unwrap();
            assert!(v["time"].is_i64(), "{v}");
            for t in s.topics {
                assert!(!v[t.name()].is_null(), "{}: {v}", s.name);
            }
        }
        rig.runtime.shutdown();
    }
}

#[test]
fn the_overview_names_who_does_not_answer_and_since_when() {
    let rig = Rig::new("overview", false);
    let (cookie, _) = rig.log_in(&rig.viewer);
    let page = rig.ask("GET", "/overview", &[("cookie", &cookie)], "").text;
    for want in
        ["demo-OST0001", "does not answer", "reads wait", "degraded", "2.0T of 4.0T", "1 of 2 up", "50%"]
    {
        assert!(page.contains(want), "{want}: {page}");
    }
    rig.runtime.shutdown();
}

#[test]
fn nobody_sees_anything_without_a_token_and_nothing_by_another_name() {
    let rig = Rig::new("strangers", false);
    for s in SUBJECTS {
        let said = rig.ask("GET", &format!("/{}", s.name), &[("cookie", "nacre_session=00")], "");
        assert_eq!((said.status, said.text.as_str()), (StatusCode::SEE_OTHER, ""), "{}", s.name);
        assert_eq!(said.header("location"), format!("/login?next={}", s.name));
    }
    let part = rig.ask("GET", "/overview", &[("hx-request", "true")], "");
    assert_eq!((part.status, part.header("hx-redirect")), (StatusCode::UNAUTHORIZED, "/login?next=overview"));
    for path in ["/api", "/api/overview", "/api/history", "/api/audit"] {
        let said = rig.ask("GET", path, &[("authorization", "Bearer nacre_00")], "");
        assert_eq!(
            (said.status, said.header("www-authenticate")),
            (StatusCode::UNAUTHORIZED, "Bearer"),
            "{path}"
        );
    }
    let wrong = rig.ask("POST", "/login", &[], "token=nacre_guess&next=%2F%2Fevil.example");
    assert_eq!(wrong.status, StatusCode::FORBIDDEN);
    assert!(wrong.text.contains("There is no such token.") && rig.audit().contains("no such token"));
    check_well_formed(&wrong.text);
    let token = &rig.viewer;
    let led = rig.ask("POST", "/login", &[], &format!("token={token}&next=%2F%2Fevil.example"));
    assert_eq!(led.header("location"), "/overview", "nobody is led elsewhere");
    // By a name that somebody else made to lead here.
    let (cookie, _) = rig.log_in(token);
    let said = rig.ask("GET", "/overview", &[("cookie", &cookie), ("host", "evil.example:9170")], "");
    assert_eq!(said.status, StatusCode::MISDIRECTED_REQUEST);
    let big = "x".repeat(20 << 10);
    let said = rig.ask("POST", "/login", &[], &format!("token={big}"));
    assert_eq!(said.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(rig.ask("GET", "/nothing", &[("cookie", &cookie)], "").status, StatusCode::NOT_FOUND);
    assert_eq!(rig.ask("GET", "/health", &[], "").text, "healthy\n");
    let script = rig.ask("GET", "/static/htmx.js", &[], "");
    assert!(script.status == StatusCode::OK && script.header("content-type").starts_with("text/javascript"));
    assert!(rig.ask("GET", "/static/..%2Ftokens.json", &[], "").status == StatusCode::NOT_FOUND);
    rig.runtime.shutdown();
}

#[test]
fn only_an_operators_own_form_does_something_and_all_of_it_is_written_down() {
    let rig = Rig::new("acts", false);
    let (path, form) = ("/act/lfsck-start", "target=demo-MDT0000&dry_run=on");
    let done = || rig.fake.done.lock().len();
    let (cookie, csrf) = rig.log_in(&rig.viewer);
    let page = rig.ask("GET", path, &[("cookie", &cookie)], "");
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    check_well_formed(&page.text);
    let said = rig.ask("POST", path, &[("cookie", &cookie)], &format!("{form}&csrf={csrf}"));
    assert_eq!((said.status, done()), (StatusCode::FORBIDDEN, 0), "a viewer");
    assert!(rig.audit().contains("\"name\":\"victor\"") && rig.audit().contains("refused: a viewer"));

    let (cookie, csrf) = rig.log_in(&rig.operator);
    let page = rig.ask("GET", &format!("{path}?target=demo-MDT0000"), &[("cookie", &cookie)], "");
    assert!(page.status == StatusCode::OK && page.text.contains("value=\"demo-MDT0000\""), "{}", page.text);
    assert!(page.text.contains("lctl lfsck_start") && page.text.contains(&csrf));
    check_well_formed(&page.text);
    let said = rig.ask("POST", path, &[("cookie", &cookie)], form);
    assert_eq!((said.status, done()), (StatusCode::FORBIDDEN, 0), "without the proof of its form");
    let other = rig.log_in(&rig.operator).1;
    let said = rig.ask("POST", path, &[("cookie", &cookie)], &format!("{form}&csrf={other}"));
    assert_eq!((said.status, done()), (StatusCode::FORBIDDEN, 0), "of another session");
    let foreign = [("cookie", cookie.as_str()), ("origin", "http://evil.example")];
    let said = rig.ask("POST", path, &foreign, &format!("{form}&csrf={csrf}"));
    assert_eq!((said.status, done()), (StatusCode::FORBIDDEN, 0), "from another page");
    let said = rig.ask("POST", path, &[("cookie", &cookie)], &format!("target=x&csrf={csrf}"));
    assert_eq!((said.status, done()), (StatusCode::BAD_REQUEST, 0));
    check_well_formed(&said.text);

    let own = [("cookie", cookie.as_str()), ("origin", "http://localhost:9170")];
    let said = rig.ask("POST", path, &own, &format!("{form}&csrf={csrf}"));
    assert_eq!(said.status, StatusCode::OK, "{}", said.text);
    check_well_formed(&said.text);
    let want = Order::LfsckStart { target: "demo-MDT0000".into(), dry_run: true };
    assert_eq!(rig.fake.done.lock().last(), Some(&want));
    let line = rig.audit().lines().last().unwrap().to_string();
    for want in [
        "\"name\":\"olga\"",
        "\"role\":\"operator\"",
        "target=demo-MDT0000 dry_run=on",
        "\"result\":\"done\"",
    ] {
        assert!(line.contains(want), "{line}");
    }
    assert!(!rig.audit().contains(&csrf), "no secret is written down");

    // A program sends its token each time; no other page can have a browser do that.
    let bearer = Rig::bearer(&rig.operator);
    let api = "/api/act/lfsck-stop";
    let said = rig.ask("POST", api, &[("authorization", &bearer)], "target=demo-MDT0000");
    assert_eq!((said.status, done()), (StatusCode::OK, 2), "{}", said.text);
    let said = rig.ask("POST", api, &[("authorization", &Rig::bearer(&rig.viewer))], "target=demo-MDT0000");
    assert_eq!((said.status, done()), (StatusCode::FORBIDDEN, 2));
    assert_eq!(rig.ask("GET", api, &[("authorization", &bearer)], "").status, StatusCode::METHOD_NOT_ALLOWED);
    // Who logs out is out.
    rig.ask("POST", "/logout", &[("cookie", &cookie)], &format!("csrf={csrf}"));
    assert_eq!(rig.ask("GET", "/overview", &[("cookie", &cookie)], "").status, StatusCode::SEE_OTHER);
    rig.runtime.shutdown();
}

#[test]
fn what_fails_is_told_and_written_down() {
    let rig = Rig::new("fails", true);
    let (cookie, csrf) = rig.log_in(&rig.operator);
    let form = format!("target=demo-OST0001&client=nid:10.0.0.9@tcp&csrf={csrf}");
    let said = rig.ask("POST", "/act/evict", &[("cookie", &cookie)], &form);
    assert!(said.status == StatusCode::CONFLICT && said.text.contains("it is broken"), "{}", said.text);
    assert!(rig.audit().lines().last().unwrap().contains("it is broken"));
    rig.runtime.shutdown();
}

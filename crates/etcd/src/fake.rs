//! An etcd in memory, down to the bytes of its answers, for tests: members that are down, dumb, or lose their
//! answers.

use crate::proto::b64;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use model::mutex::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use world::{BoxFuture, Conn, Instant, Listener, Net, Stream, World};

/// What a member does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member {
    Up,
    /// Connections are refused.
    Down,
    /// It takes requests and never answers.
    Dumb,
    /// It does what it is asked and closes the connection without an answer.
    Forgetful,
    /// It has no majority behind it.
    NoLeader,
}

#[derive(Clone, Default)]
struct Entry {
    value: Vec<u8>,
    created: i64,
    modified: i64,
    lease: i64,
}

struct FakeState {
    members: Vec<Member>,
    revision: i64,
    keys: BTreeMap<Vec<u8>, Entry>,
    /// End of each.
    leases: BTreeMap<i64, (Instant, u64)>,
    next_lease: i64,
    /// (revision, event)
    events: Vec<(i64, Value)>,
    asked: Vec<u64>,
}

/// The cluster; member `i` has the address `10.9.0.i+1`.
#[derive(Clone)]
pub struct Fake {
    world: World,
    state: Arc<Mutex<FakeState>>,
}

fn number(v: &Value) -> i64 {
    v.as_str().and_then(|s| s.parse().ok()).or(v.as_i64()).unwrap_or(0)
}

fn raw(v: &Value) -> Vec<u8> {
    STANDARD.decode(v.as_str().unwrap_or_default()).expect("clients send base64")
}

impl Fake {
    pub fn new(world: &World, members: usize) -> Fake {
        let state = FakeState {
            members: vec![Member::Up; members],
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 100,
            events: Vec::new(),
            asked: vec![0; members],
        };
        Fake { world: world.clone(), state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock()
    }

    /// `etcd://…`
    pub fn url(&self) -> String {
        let n = self.lock().members.len();
        let all: Vec<String> = (1..=n).map(|i| format!("10.9.0.{i}")).collect();
        format!("etcd://{}/test", all.join(","))
    }

    /// The same world, with a way to this etcd.
    pub fn reach(&self, world: &World) -> World {
        let net = Arc::new(FakeNet { inner: world.net.clone(), fake: self.clone() });
        World { net, ..world.clone() }
    }

    pub fn set(&self, member: usize, what: Member) {
        self.lock().members[member] = what;
    }

    pub fn set_all(&self, what: Member) {
        self.lock().members.fill(what);
    }

    /// Requests that reached each member.
    pub fn asked(&self) -> Vec<u64> {
        self.lock().asked.clone()
    }

    /// All keys and values, as text.
    pub fn dump(&self) -> Vec<(String, String)> {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        self.lock().keys.iter().map(|(k, e)| (text(k), text(&e.value))).collect()
    }

    /// A lease ends before its time.
    pub fn end_lease(&self, id: i64) {
        self.lock().revoke(id);
    }

    fn answer(&self, member: usize, path: &str, body: &Value) -> (u16, Value) {
        let mut s = self.lock();
        s.asked[member] += 1;
        if s.members[member] == Member::NoLeader {
            return (503, json!({"error": "etcdserver: no leader", "code": 14}));
        }
        s.expire(self.world.now());
        let now = self.world.now();
        match path {
            "/v3/kv/range" => (200, s.range(body)),
            "/v3/kv/txn" => s.txn(body),
            "/v3/lease/grant" => (200, s.grant(now, number(&body["TTL"]) as u64)),
            "/v3/lease/keepalive" => (200, s.keep_alive(now, number(&body["ID"]))),
            "/v3/lease/revoke" => {
                s.revoke(number(&body["ID"]));
                (200, json!({}))
            }
            _ => (404, json!({"error": "Not Found", "code": 5})),
        }
    }

    fn events(&self, body: &Value) -> Vec<Value> {
        let mut s = self.lock();
        s.expire(self.world.now());
        let c = &body["create_request"];
        let (from, key, end) = (number(&c["start_revision"]), raw(&c["key"]), raw(&c["range_end"]));
        let hit = |e: &&(i64, Value)| {
            let k = raw(&e.1["kv"]["key"]);
            e.0 >= from && k >= key && k < end
        };
        s.events.iter().filter(hit).map(|e| e.1.clone()).collect()
    }
}

impl FakeState {
    fn expire(&mut self, now: Instant) {
        let over: Vec<i64> = self.leases.iter().filter(|(_, l)| l.0 <= now).map(|(i, _)| *i).collect();
        over.into_iter().for_each(|id| self.revoke(id));
    }

    fn revoke(&mut self, id: i64) {
        self.leases.remove(&id);
        let gone: Vec<Vec<u8>> =
            self.keys.iter().filter(|(_, e)| e.lease == id).map(|(k, _)| k.clone()).collect();
        if !gone.is_empty() {
            self.revision += 1;
        }
        gone.iter().for_each(|k| self.delete(k));
    }

    fn delete(&mut self, key: &[u8]) {
        if self.keys.remove(key).is_some() {
            let event =
                json!({"type": "DELETE", "kv": {"key": b64(key), "mod_revision": self.revision.to_string()}});
            self.events.push((self.revision, event));
        }
    }

    fn kv(key: &[u8], e: &Entry) -> Value {
        json!({"key": b64(key), "value": b64(&e.value), "create_revision": e.created.to_string(),
            "mod_revision": e.modified.to_string(), "lease": e.lease.to_string(), "version": "1"})
    }

    fn range(&self, body: &Value) -> Value {
        let (key, end) = (raw(&body["key"]), raw(&body["range_end"]));
        let limit = match number(&body["limit"]) {
            0 => usize::MAX,
            n => n as usize,
        };
        let hit = |k: &Vec<u8>| if end.is_empty() { *k == key } else { *k >= key && *k < end };
        let all: Vec<Value> =
            self.keys.iter().filter(|(k, _)| hit(k)).map(|(k, e)| FakeState::kv(k, e)).collect();
        let mut out = json!({"header": {"revision": self.revision.to_string()}});
        if all.len() > limit {
            out["more"] = json!(true);
        }
        if !all.is_empty() {
            out["kvs"] = all.into_iter().take(limit).collect();
        }
        out
    }

    fn holds(&self, c: &Value) -> bool {
        let e = self.keys.get(&raw(&c["key"])).cloned();
        match c["target"].as_str() {
            Some("CREATE") => e.unwrap_or_default().created == number(&c["create_revision"]),
            Some("MOD") => e.unwrap_or_default().modified == number(&c["mod_revision"]),
            _ => e.is_some_and(|e| e.value == raw(&c["value"])),
        }
    }

    fn txn(&mut self, body: &Value) -> (u16, Value) {
        let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
        let succeeded = list(&body["compare"]).iter().all(|c| self.holds(c));
        let ops = list(&body[if succeeded { "success" } else { "failure" }]);
        let lease = |o: &Value| number(&o["request_put"]["lease"]);
        if ops.iter().any(|o| lease(o) != 0 && !self.leases.contains_key(&lease(o))) {
            return (404, json!({"error": "etcdserver: requested lease not found", "code": 5}));
        }
        if ops.iter().any(|o| o.get("request_range").is_none()) {
            self.revision += 1;
        }
        let responses: Vec<Value> = ops.iter().map(|o| self.op(o)).collect();
        let mut out = json!({"header": {"revision": self.revision.to_string()}, "responses": responses});
        if succeeded {
            out["succeeded"] = json!(true);
        }
        (200, out)
    }

    fn op(&mut self, o: &Value) -> Value {
        if let Some(p) = o.get("request_put") {
            let key = raw(&p["key"]);
            let created = self.keys.get(&key).map_or(self.revision, |e| e.created);
            let e = Entry {
                value: raw(&p["value"]),
                created,
                modified: self.revision,
                lease: number(&p["lease"]),
            };
            self.events.push((self.revision, json!({"kv": FakeState::kv(&key, &e)})));
            self.keys.insert(key, e);
            return json!({"response_put": {}});
        }
        if let Some(d) = o.get("request_delete_range") {
            let (key, end) = (raw(&d["key"]), d.get("range_end").map(raw).unwrap_or_default());
            let hit = |k: &&Vec<u8>| if end.is_empty() { **k == key } else { **k >= key && **k < end };
            let gone: Vec<Vec<u8>> = self.keys.keys().filter(hit).cloned().collect();
            gone.iter().for_each(|k| self.delete(k));
            return json!({"response_delete_range": {}});
        }
        json!({"response_range": self.range(&o["request_range"])})
    }

    fn grant(&mut self, now: Instant, ttl: u64) -> Value {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, (now.plus(Duration::from_secs(ttl)), ttl));
        json!({"ID": self.next_lease.to_string(), "TTL": ttl.to_string()})
    }

    fn keep_alive(&mut self, now: Instant, id: i64) -> Value {
        match self.leases.get_mut(&id) {
            Some((end, ttl)) => {
                *end = now.plus(Duration::from_secs(*ttl));
                json!({"result": {"ID": id.to_string(), "TTL": ttl.to_string()}})
            }
            None => json!({"result": {"ID": id.to_string()}}),
        }
    }
}

struct FakeNet {
    inner: Arc<dyn Net>,
    fake: Fake,
}

impl Net for FakeNet {
    fn listen(&self, at: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Listener>>> {
        self.inner.listen(at)
    }

    fn connect(&self, from: Option<IpAddr>, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Conn>>> {
        self.inner.connect(from, to)
    }

    fn stream(&self, to: SocketAddr) -> BoxFuture<io::Result<Arc<dyn Stream>>> {
        let fake = self.fake.clone();
        Box::pin(async move {
            let IpAddr::V4(ip) = to.ip() else { return Err(io::ErrorKind::ConnectionRefused.into()) };
            let member = usize::from(ip.octets()[3]) - 1;
            if fake.lock().members[member] == Member::Down {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let pipe = Mutex::new(Pipe::default());
            Ok(Arc::new(FakeStream { fake, member, pipe: Arc::new(pipe) }) as Arc<dyn Stream>)
        })
    }
}

#[derive(Default)]
struct Pipe {
    request: Vec<u8>,
    /// Small pieces, as a network may cut them.
    answer: VecDeque<Bytes>,
    closed: bool,
    watching: Option<Value>,
}

struct FakeStream {
    fake: Fake,
    member: usize,
    pipe: Arc<Mutex<Pipe>>,
}

/// Path and body of a request that is complete.
fn request(raw: &[u8]) -> Option<(String, Value)> {
    let text = std::str::from_utf8(raw).expect("requests are text");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: "))?;
    if body.len() < length.parse().expect("a number") {
        return None;
    }
    let path = head.split(' ').nth(1)?.to_string();
    Some((path, serde_json::from_str(body).expect("bodies are JSON")))
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn pieces(bytes: &[u8]) -> VecDeque<Bytes> {
    bytes.chunks(23).map(Bytes::copy_from_slice).collect()
}

impl Stream for FakeStream {
    fn send(&self, bytes: Bytes) -> BoxFuture<io::Result<()>> {
        let mut p = self.pipe.lock();
        p.request.extend_from_slice(&bytes);
        let what = self.fake.lock().members[self.member];
        if let Some((path, body)) = request(&p.request)
            && what != Member::Dumb
        {
            let head = "Content-Type: application/json\r\n";
            if path == "/v3/watch" {
                let created = chunk("{\"result\":{\"created\":true}}\n");
                let all = format!("HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n");
                p.answer = pieces(&[all.into_bytes(), created].concat());
                p.watching = Some(body);
            } else {
                let (status, answer) = self.fake.answer(self.member, &path, &body);
                let text = answer.to_string();
                let all = if path == "/v3/lease/keepalive" {
                    let head = format!("HTTP/1.1 200 OK\r\n{head}Transfer-Encoding: chunked\r\n\r\n");
                    [head.into_bytes(), chunk(&format!("{text}\n")), b"0\r\n\r\n".to_vec()].concat()
                } else {
                    format!("HTTP/1.1 {status} X\r\n{head}Content-Length: {}\r\n\r\n{text}", text.len())
                        .into_bytes()
                };
                if what != Member::Forgetful {
                    p.answer = pieces(&all);
                }
                p.closed = true;
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn recv(&self, _limit: usize) -> BoxFuture<io::Result<Bytes>> {
        let (pipe, fake) = (self.pipe.clone(), self.fake.clone());
        Box::pin(async move {
            loop {
                {
                    let mut p = pipe.lock();
                    if let Some(b) = p.answer.pop_front() {
                        return Ok(b);
                    }
                    if p.closed {
                        return Ok(Bytes::new());
                    }
                    if let Some(w) = &p.watching {
                        let events = fake.events(w);
                        if !events.is_empty() {
                            let line = format!("{}\n", json!({"result": {"events": events}}));
                            p.answer = pieces(&chunk(&line));
                            p.watching = None;
                            continue;
                        }
                    }
                }
                fake.world.sleep(Duration::from_millis(10)).await;
            }
        })
    }
}

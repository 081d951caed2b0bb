//! Requests, tried at one member after the other.

use crate::http::{self, Answer};
use crate::proto::{Event, Kv, LeaseReply, Range, Refusal, Streamed, Token, TxnReply, WatchReply, b64};
use crate::url::{Member, Url};
use model::mutex::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use world::World;

/// One try at one member, the connection included.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// Between rounds over all members.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a request is tried unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(6);
/// Keys of one answer.
const PAGE: i64 = 1000;

/// gRPC's codes that the gateway passes on.
const UNKNOWN: i64 = 2;
const DEADLINE_EXCEEDED: i64 = 4;
const NOT_FOUND: i64 = 5;
const ABORTED: i64 = 10;
const UNAVAILABLE: i64 = 14;
const UNAUTHENTICATED: i64 = 16;

/// Why a request came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Nobody answered in time; a change may have been made all the same.
    #[error(
        "no member of etcd answers ({tried}): see that a majority of its members runs and can be reached"
    )]
    Unreachable { tried: String },
    /// etcd answered that it will not.
    #[error("etcd at {member} refuses {what}: {why}")]
    Refused { member: String, what: String, why: String, code: i64 },
    /// What came is no answer of etcd.
    #[error(
        "{member} does not answer as etcd does ({why}): see that the address is that of an etcd 3.4 or newer"
    )]
    Strange { member: String, why: String },
}

impl Error {
    fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused { code: NOT_FOUND, .. })
    }
}

/// A condition of a transaction.
#[derive(Clone, Debug)]
pub enum Compare {
    /// The key was made by this revision; 0: it is not there.
    Created(String, i64),
    /// The key was last changed by this revision; 0: it is not there.
    Modified(String, i64),
    Value(String, Vec<u8>),
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub enum Op {
    /// Key, value, lease with which it goes (0: none).
    Put(String, Vec<u8>, i64),
    Delete(String),
    DeletePrefix(String),
    Get(String),
}

/// What a transaction did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The conditions held.
    pub succeeded: bool,
    pub revision: i64,
    /// What each [`Op::Get`] of the side that was taken found.
    pub found: Vec<Option<Kv>>,
}

/// A connection to an etcd.
pub struct Etcd {
    pub world: World,
    url: Url,
    /// The member that answered last.
    at: AtomicUsize,
    token: Mutex<Option<String>>,
}

/// Why one try failed.
enum Fault {
    /// Another member may do better.
    Passing(String),
    /// The token is too old, or there was none.
    Token,
    Final(Error),
}

/// The key behind all that begin with `prefix`.
fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().expect("prefixes are not empty") += 1;
    end
}

fn compare(c: &Compare) -> Value {
    match c {
        Compare::Created(key, r) => {
            json!({"key": b64(key.as_bytes()), "target": "CREATE", "result": "EQUAL", "create_revision": r.to_string()})
        }
        Compare::Modified(key, r) => {
            json!({"key": b64(key.as_bytes()), "target": "MOD", "result": "EQUAL", "mod_revision": r.to_string()})
        }
        Compare::Value(key, v) => {
            json!({"key": b64(key.as_bytes()), "target": "VALUE", "result": "EQUAL", "value": b64(v)})
        }
    }
}

fn op(o: &Op) -> Value {
    match o {
        Op::Put(key, value, lease) => json!({"request_put":
            {"key": b64(key.as_bytes()), "value": b64(value), "lease": lease.to_string()}}),
        Op::Delete(key) => json!({"request_delete_range": {"key": b64(key.as_bytes())}}),
        Op::DeletePrefix(p) => {
            json!({"request_delete_range": {"key": b64(p.as_bytes()), "range_end": b64(&after(p))}})
        }
        Op::Get(key) => json!({"request_range": {"key": b64(key.as_bytes())}}),
    }
}

fn refused(member: &Member, path: &str, status: u16, body: &[u8]) -> Fault {
    let Ok(r) = serde_json::from_slice::<Refusal>(body) else {
        return Fault::Passing(format!("{member}: HTTP status {status}"));
    };
    let why = if r.error.is_empty() { r.message } else { r.error };
    match r.code {
        UNAUTHENTICATED => Fault::Token,
        UNAVAILABLE | DEADLINE_EXCEEDED | ABORTED | UNKNOWN => Fault::Passing(format!("{member}: {why}")),
        code => {
            Fault::Final(Error::Refused { member: member.to_string(), what: path.to_string(), why, code })
        }
    }
}

impl Etcd {
    pub fn new(world: &World, url: &Url) -> Arc<Etcd> {
        Arc::new(Etcd {
            world: world.clone(),
            url: url.clone(),
            at: AtomicUsize::new(0),
            token: Mutex::new(None),
        })
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The full name of a key of ours.
    pub fn key(&self, name: &str) -> String {
        format!("/{}/{name}", self.url.prefix)
    }

    fn token(&self) -> Option<String> {
        self.token.lock().clone()
    }

    async fn connect(&self, m: &Member) -> std::io::Result<Arc<dyn world::Stream>> {
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for ip in self.world.net.resolve(&m.host).await? {
            match self.world.net.stream(SocketAddr::new(ip, m.port)).await {
                Ok(s) => return Ok(s),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// One request to one member, up to the head of its answer.
    async fn ask(&self, m: &Member, path: &str, body: &[u8]) -> Result<Answer, Fault> {
        let passing = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::InvalidData => {
                Fault::Final(Error::Strange { member: m.to_string(), why: e.to_string() })
            }
            _ => Fault::Passing(format!("{m}: {e}")),
        };
        let token = match &self.url.user {
            Some(_) if path != "/v3/auth/authenticate" => Some(self.token().ok_or(Fault::Token)?),
            _ => None,
        };
        let stream = self.connect(m).await.map_err(passing)?;
        let answer =
            http::post(stream, &m.to_string(), path, token.as_deref(), body).await.map_err(passing)?;
        if answer.status == 200 {
            return Ok(answer);
        }
        let status = answer.status;
        let body = answer.body().await.map_err(passing)?;
        Err(refused(m, path, status, &body))
    }

    async fn ask_whole(&self, m: &Member, path: &str, body: &[u8], stream: bool) -> Result<Vec<u8>, Fault> {
        let passing = |e: std::io::Error| Fault::Passing(format!("{m}: {e}"));
        let mut answer = self.ask(m, path, body).await?;
        if stream {
            let line = answer.line().await.map_err(passing)?;
            let line = line.ok_or_else(|| Fault::Passing(format!("{m}: an empty answer")))?;
            return streamed::<Value>(m, &line).map(|v| v.to_string().into_bytes());
        }
        answer.body().await.map_err(passing)
    }

    async fn authenticate(&self, m: &Member) -> Result<(), Fault> {
        let Some((name, password)) = &self.url.user else {
            let why = format!("it wants a user: give etcd://USER@...; {}", crate::url::PASSWORD_FROM);
            let what = "everything".to_string();
            return Err(Fault::Final(Error::Refused {
                member: m.to_string(),
                what,
                why,
                code: UNAUTHENTICATED,
            }));
        };
        let body = json!({"name": name, "password": password}).to_string();
        let raw = self.ask_whole(m, "/v3/auth/authenticate", body.as_bytes(), false).await?;
        let t: Token = parse(m, &raw)?;
        *self.token.lock() = Some(t.token);
        Ok(())
    }

    /// Tries at each member in turn, the one that answered last first, until `patience` is over.
    async fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        stream: bool,
        patience: Duration,
    ) -> Result<T, Error> {
        let body = body.to_string();
        let (start, n) = (self.world.now(), self.url.members.len());
        let mut tried = vec![String::new(); n];
        loop {
            for _ in 0..n {
                let at = self.at.load(Relaxed) % n;
                let m = &self.url.members[at];
                let left = patience.saturating_sub(self.world.now().since(start));
                let once = async {
                    match self.ask_whole(m, path, body.as_bytes(), stream).await {
                        Err(Fault::Token) => {
                            self.authenticate(m).await?;
                            self.ask_whole(m, path, body.as_bytes(), stream).await
                        }
                        other => other,
                    }
                };
                let fault = match self.world.timeout(ATTEMPT.min(left), once).await {
                    Some(Ok(raw)) => match parse(m, &raw) {
                        Ok(v) => return Ok(v),
                        Err(f) => f,
                    },
                    Some(Err(f)) => f,
                    None => Fault::Passing(format!("{m}: no answer")),
                };
                match fault {
                    Fault::Final(e) => return Err(e),
                    Fault::Passing(why) => tried[at] = why,
                    Fault::Token => tried[at] = format!("{m}: it does not accept the user"),
                }
                // Whoever was faster may have found a better one already.
                let _ = self.at.compare_exchange(at, (at + 1) % n, Relaxed, Relaxed);
                if self.world.now().since(start) >= patience {
                    tried.retain(|t| !t.is_empty());
                    return Err(Error::Unreachable { tried: tried.join("; ") });
                }
            }
            self.world.sleep(PAUSE).await;
        }
    }

    /// What a key holds.
    pub async fn get(&self, key: &str) -> Result<Option<Kv>, Error> {
        let body = json!({"key": b64(key.as_bytes())});
        let r: Range = self.call("/v3/kv/range", &body, false, PATIENCE).await?;
        Ok(r.kvs.into_iter().next())
    }

    /// All keys that begin with `prefix`, in order, as they were at one revision, which is returned.
    pub async fn list(&self, prefix: &str) -> Result<(i64, Vec<Kv>), Error> {
        let (mut revision, mut out, mut from) = (0, Vec::new(), prefix.as_bytes().to_vec());
        loop {
            let body = json!({"key": b64(&from), "range_end": b64(&after(prefix)), "limit": PAGE.to_string(),
                "revision": revision.to_string()});
            let r: Range = self.call("/v3/kv/range", &body, false, PATIENCE).await?;
            if revision == 0 {
                revision = r.header.revision;
            }
            let more = r.more;
            out.extend(r.kvs);
            match out.last() {
                Some(last) if more => {
                    from = last.key.clone();
                    from.push(0);
                }
                _ => return Ok((revision, out)),
            }
        }
    }

    /// Sets a key, without conditions; `lease` 0: it stays.
    pub async fn put(&self, key: &str, value: &[u8], lease: i64) -> Result<(), Error> {
        self.txn(&[], &[Op::Put(key.into(), value.to_vec(), lease)], &[]).await.map(drop)
    }

    /// `then` if all conditions hold, else `otherwise`; all of it or nothing. It may be tried again after its
    /// answer was lost: conditions must tell that it was made already.
    pub async fn txn(&self, conditions: &[Compare], then: &[Op], otherwise: &[Op]) -> Result<Outcome, Error> {
        self.txn_within(conditions, then, otherwise, PATIENCE).await
    }

    /// As [`Etcd::txn`], with a time of its own.
    pub async fn txn_within(
        &self,
        conditions: &[Compare],
        then: &[Op],
        otherwise: &[Op],
        patience: Duration,
    ) -> Result<Outcome, Error> {
        let body = json!({"compare": conditions.iter().map(compare).collect::<Vec<_>>(),
            "success": then.iter().map(op).collect::<Vec<_>>(), "failure": otherwise.iter().map(op).collect::<Vec<_>>()});
        let r: TxnReply = self.call("/v3/kv/txn", &body, false, patience).await?;
        let found = r.responses.into_iter().filter_map(|r| r.response_range);
        Ok(Outcome {
            succeeded: r.succeeded,
            revision: r.header.revision,
            found: found.map(|f| f.kvs.into_iter().next()).collect(),
        })
    }

    /// A new lease.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, Error> {
        let body = json!({"TTL": ttl.as_secs().max(1).to_string()});
        let r: LeaseReply = self.call("/v3/lease/grant", &body, false, PATIENCE).await?;
        Ok(r.id)
    }

    /// Renews a lease; false: there is none of this number any more.
    pub async fn keep_alive(&self, lease: i64, patience: Duration) -> Result<bool, Error> {
        let body = json!({"ID": lease.to_string()});
        let r: LeaseReply = self.call("/v3/lease/keepalive", &body, true, patience).await?;
        Ok(r.ttl > 0)
    }

    /// Ends a lease: its keys are gone. One that is over already is no error.
    pub async fn revoke(&self, lease: i64) -> Result<(), Error> {
        let body = json!({"ID": lease.to_string()});
        match self.call::<Value>("/v3/lease/revoke", &body, false, PATIENCE).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    /// Changes of keys that begin with `prefix`, from `revision` on: the first that come, or none within
    /// `patience`. The member that answers may lag behind: whoever must not miss one takes the next revision
    /// from the list it began with. None are told either if etcd forgot them (compaction): read anew after a
    /// while in any case.
    pub async fn watch(&self, prefix: &str, revision: i64, patience: Duration) -> Result<Vec<Event>, Error> {
        let body = json!({"create_request": {"key": b64(prefix.as_bytes()), "range_end": b64(&after(prefix)),
            "start_revision": revision.to_string()}});
        let body = body.to_string();
        let n = self.url.members.len();
        let mut tried = Vec::new();
        for _ in 0..n {
            let at = self.at.load(Relaxed) % n;
            let m = &self.url.members[at];
            let fault = match self.watch_at(m, body.as_bytes(), patience).await {
                Ok(events) => return Ok(events),
                Err(f) => f,
            };
            match fault {
                Fault::Final(e) => return Err(e),
                Fault::Passing(why) => tried.push(why),
                Fault::Token => match self.world.timeout(ATTEMPT, self.authenticate(m)).await {
                    Some(Err(Fault::Final(e))) => return Err(e),
                    _ => tried.push(format!("{m}: a user was wanted")),
                },
            }
            let _ = self.at.compare_exchange(at, (at + 1) % n, Relaxed, Relaxed);
        }
        Err(Error::Unreachable { tried: tried.join("; ") })
    }

    async fn watch_at(&self, m: &Member, body: &[u8], patience: Duration) -> Result<Vec<Event>, Fault> {
        let asked = self.world.timeout(ATTEMPT, self.ask(m, "/v3/watch", body)).await;
        let mut answer = asked.unwrap_or_else(|| Err(Fault::Passing(format!("{m}: no answer"))))?;
        let events = async {
            loop {
                let line = answer.line().await.map_err(|e| Fault::Passing(format!("{m}: {e}")))?;
                let line = line.ok_or_else(|| Fault::Passing(format!("{m}: the watch ended")))?;
                let r: WatchReply = streamed(m, &line)?;
                if !r.events.is_empty() || r.canceled {
                    return Ok(r.events);
                }
            }
        };
        self.world.timeout(patience, events).await.unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// One message of a stream, which may be an error.
fn streamed<T: DeserializeOwned>(m: &Member, line: &[u8]) -> Result<T, Fault> {
    let s: Streamed<T> = parse(m, line)?;
    let why = s.error.map_or_else(|| "an empty answer".to_string(), |e| e.to_string());
    s.result.ok_or_else(|| Fault::Passing(format!("{m}: {why}")))
}

fn parse<T: DeserializeOwned>(m: &Member, raw: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(raw).map_err(|e| {
        let shown = String::from_utf8_lossy(&raw[..raw.len().min(80)]).into_owned();
        Fault::Final(Error::Strange { member: m.to_string(), why: format!("{e}: '{shown}'") })
    })
}

//! The controller of a host: as long as its lease in etcd is good it serves the targets that are this host's,
//! and takes those that nobody has. When the lease is not good any more it ends their servers at once, before
//! anybody else may start them.

use super::keys::{self, Alive, Owner, Snapshot, is_name};
use super::local::{Local, News, State};
use ::etcd::{Compare, Error, Etcd, Lease, Op, Outcome, Url};
use clap::Args;
use model::mutex::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use world::sys::process::{self, SIGINT, SIGTERM};
use world::sys::{Deadline, files};
use world::{Either, World, select, sync};

/// How often everything is looked at, unless something is heard.
const TICK: Duration = Duration::from_millis(250);
/// How often etcd is read although it says nothing.
const READ_EVERY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(2);
const WRITE_PATIENCE: Duration = Duration::from_secs(3);
/// A host that is further down a target's list waits so much longer for each one above it that lives and does
/// nothing.
const AFTER_YOU: Duration = Duration::from_secs(10);
/// How long others are preferred to a host that could not serve a target.
const REFUSED_FOR: Duration = Duration::from_secs(30);

#[derive(Args)]
pub struct ControllerArgs {
    /// For example etcd://10.0.0.1,10.0.0.2,10.0.0.3/nacre
    #[arg(long, value_parser = crate::etcd_url::parse)]
    etcd: Url,
    /// Name of this host in the targets' lists [default: hostname]
    #[arg(long)]
    host: Option<String>,
    /// Seconds after which others take the targets of a host that is not heard of; it ends its servers after
    /// half of it
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(5..=600))]
    term: u32,
    /// Command that makes certain that a host is dead (its name is added): must succeed before its targets
    /// are started here [default: none; the targets' heartbeats are watched in any case]
    #[arg(long)]
    fence: Option<String>,
    /// Seconds for a target's folders to be there before another host is left to serve it: at boot its disk
    /// may be mounted later than this starts
    #[arg(long, default_value_t = crate::ha::agent::FOLDER_PATIENCE, value_parser = clap::value_parser!(u32).range(..=86_400))]
    folder_patience: u32,
    /// Folder for the logs of the servers
    #[arg(long, default_value = "/var/log/nacre")]
    log_dir: PathBuf,
}

/// Why a term of office is over.
enum End {
    Lost,
    Asked,
}

/// What the one that reads etcd tells the others.
#[derive(Default)]
struct Shared {
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    changed: sync::Notify,
    ending: AtomicBool,
    over: AtomicBool,
}

struct Controller {
    world: World,
    etcd: Arc<Etcd>,
    host: String,
    me: Alive,
    args: ControllerArgs,
    shared: Arc<Shared>,
    locals: BTreeMap<String, Local>,
    /// Of this process, whose servers it has ended.
    old_lease: i64,
    /// Those servers' targets, and what made them this host's.
    ended: Vec<(String, i64)>,
}

/// Runs until SIGTERM.
pub fn main(args: ControllerArgs) -> Result<i32, String> {
    let host = args.host.clone().unwrap_or_else(world::sys::hostname);
    if !is_name(&host) {
        return Err(format!("'{host}' is no name of a host: give --host with letters, digits, - _ . only"));
    }
    process::block_signals(&[SIGTERM, SIGINT]);
    crate::log::start();
    files::create_dir_all(&args.log_dir)
        .map_err(|e| format!("cannot make '{}': {e}", args.log_dir.display()))?;
    let (world, runtime) = world::real::start(1).map_err(|e| format!("cannot start threads: {e}"))?;
    runtime.end_on_panic(&[]);
    let boot = files::read(std::path::Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let boot = String::from_utf8_lossy(&boot).trim().to_string();
    let shared = Arc::new(Shared::default());
    let controller = Controller {
        etcd: Etcd::new(&world, &args.etcd),
        me: Alive { pid: std::process::id(), boot, term: args.term },
        world: world.clone(),
        host,
        args,
        shared: shared.clone(),
        locals: BTreeMap::new(),
        old_lease: 0,
        ended: Vec::new(),
    };
    let failed = Arc::new(Mutex::new(None));
    let told = failed.clone();
    let over = shared.clone();
    world.spawn("ha-controller", async move {
        if let Err(e) = controller.run().await {
            *told.lock() = Some(e);
        }
        over.over.store(true, Relaxed);
    });
    while !shared.over.load(Relaxed) {
        if process::wait_signal(&[SIGTERM, SIGINT], Duration::from_millis(100)).is_some() {
            shared.ending.store(true, Relaxed);
            shared.changed.notify_one();
        }
    }
    drop(runtime);
    let failed = failed.lock().take();
    failed.map_or(Ok(0), Err)
}

/// Keeps the snapshot fresh.
async fn observe(etcd: Arc<Etcd>, shared: Arc<Shared>) {
    let prefix = keys::prefix(&etcd);
    let mut said = String::new();
    while !shared.over.load(Relaxed) {
        let read = Snapshot::take(&etcd).await;
        let seen = match read {
            Ok(s) => {
                for w in s.strange.iter().filter(|w| !said.contains(*w)) {
                    tracing::warn!("{w}: left alone");
                }
                said = s.strange.join("\n");
                let revision = s.revision;
                *shared.snapshot.lock() = Some(Arc::new(s));
                shared.changed.notify_one();
                etcd.watch(&prefix, revision + 1, READ_EVERY).await.map(drop)
            }
            Err(e) => Err(e),
        };
        if let Err(e) = seen {
            // The lease says what follows.
            tracing::debug!("{e}");
            etcd.world.sleep(TICK).await;
        }
    }
}

impl Controller {
    fn key(&self, kind: &str, name: &str) -> String {
        keys::key(&self.etcd, kind, name)
    }

    fn ending(&self) -> bool {
        self.shared.ending.load(Relaxed)
    }

    async fn run(mut self) -> Result<(), String> {
        tracing::info!(
            "controller of host {} over {}, term {} s",
            self.host,
            self.etcd.url(),
            self.args.term
        );
        self.world.spawn("ha-observe", observe(self.etcd.clone(), self.shared.clone()));
        let mut said = String::new();
        loop {
            if self.ending() {
                return Ok(());
            }
            let lease = match self.enter().await {
                Ok(l) => l,
                Err(e) => {
                    if e != said {
                        tracing::warn!("{e}; trying again");
                        said = e;
                    }
                    select(self.world.sleep(RETRY), self.shared.changed.notified()).await;
                    continue;
                }
            };
            said.clear();
            tracing::info!("host {} takes part", self.host);
            match self.office(&lease).await {
                End::Lost => {
                    self.old_lease = lease.id();
                    tracing::error!(
                        "the lease in etcd is not good any more: all servers of this host were ended; clients wait until another host has their targets, or this one again"
                    );
                }
                End::Asked => {
                    if let Err(e) = lease.end().await {
                        tracing::warn!("others have to wait for the end of this host's lease: {e}");
                    }
                    tracing::info!("stopped");
                    return Ok(());
                }
            }
        }
    }

    /// Makes this host one of those that take part.
    async fn enter(&self) -> Result<Lease, String> {
        let words = |e: Error| e.to_string();
        let (key, term) = (self.key("hosts", &self.host), Duration::from_secs(self.args.term.into()));
        let value = serde_json::to_vec(&self.me).expect("plain data encodes");
        if let Some(kv) = self.etcd.get(&key).await.map_err(words)? {
            if kv.lease == self.old_lease {
                self.acquit().await.map_err(words)?;
                self.etcd.revoke(kv.lease).await.map_err(words)?;
                return Err("the last lease of this host was given back".into());
            }
            let there: Alive =
                serde_json::from_slice(&kv.value).map_err(|e| format!("key '{key}' in etcd: {e}"))?;
            let lives = there.boot == self.me.boot && is_controller(there.pid);
            if lives && there.pid != self.me.pid {
                return Err(format!(
                    "another controller runs on this host, pid {}: stop one of them",
                    there.pid
                ));
            }
            if there.term != self.me.term {
                return Err(
                    "the controller before this one had another --term: its lease has to end first".into()
                );
            }
            // Its servers may be well: they are looked after from here on.
            let lease = Lease::adopt(&self.etcd, kv.lease, term).await.map_err(words)?;
            let lease = lease.ok_or("the lease of the controller before this one just ended")?;
            let same = [Compare::Created(key.clone(), kv.create_revision)];
            let done = self.etcd.txn(&same, &[Op::Put(key, value, lease.id())], &[]).await.map_err(words)?;
            return if done.succeeded { Ok(lease) } else { Err("this host's key in etcd changed".into()) };
        }
        let lease = Lease::take(&self.etcd, term).await.map_err(words)?;
        let new = [Compare::Created(key.clone(), 0)];
        match self.etcd.txn(&new, &[Op::Put(key, value, lease.id())], &[]).await {
            Ok(o) if o.succeeded => Ok(lease),
            // If it is this one's (the answer was lost), it is found at the next try.
            Ok(_) => Err("another controller has this host's name".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// This host lives, and has ended its servers: whoever takes their targets need not fence it. (etcd lost
    /// its majority for a while, and every host is in this position.)
    async fn acquit(&self) -> Result<(), Error> {
        for (name, owned) in &self.ended {
            let (owner, last) = (self.key("owners", name), self.key("last", name));
            let own = self.etcd.get(&last).await?.is_some_and(|kv| kv.text().1 == self.host);
            if own && self.locals.get(name).is_some_and(Local::is_gone) {
                let still = [Compare::Created(owner, *owned)];
                if self.etcd.txn(&still, &[Op::Delete(last)], &[]).await?.succeeded {
                    tracing::info!("{name}: was ended here, nobody needs to fence this host for it");
                }
            }
        }
        Ok(())
    }

    async fn office(&mut self, lease: &Lease) -> End {
        let mut left = false;
        loop {
            if !lease.held() {
                self.ended = self.kill_all();
                return End::Lost;
            }
            if self.ending() {
                if !left {
                    left = true;
                    tracing::info!("stopping: targets are handed over");
                    let gone = [Op::Delete(self.key("hosts", &self.host))];
                    let _ = self.write(lease, &[], &gone, &[]).await;
                }
                if self.locals.values().all(|l| matches!(l.state, State::Idle) && l.owned == 0) {
                    return End::Asked;
                }
            }
            let snapshot = self.shared.snapshot.lock().clone();
            if let Some(s) = snapshot {
                self.step_all(&s, lease).await;
            }
            let wait = select(self.shared.changed.notified(), self.world.sleep(TICK));
            select(wait, lease.lost()).await;
        }
    }

    /// The targets that were served here, and what made them this host's.
    fn kill_all(&mut self) -> Vec<(String, i64)> {
        let mut served = Vec::new();
        for l in self.locals.values_mut().filter(|l| l.owned != 0 || !matches!(l.state, State::Idle)) {
            if l.owned != 0 && l.was_started() {
                served.push((l.name.clone(), l.owned));
            }
            l.kill();
        }
        let ended = |l: &Local| l.owned == 0 && matches!(l.state, State::Idle);
        assert!(self.locals.values().all(ended), "a host without a lease serves nothing");
        served
    }

    /// A transaction; given up when the lease is lost.
    async fn write(&self, lease: &Lease, when: &[Compare], then: &[Op], otherwise: &[Op]) -> Option<Outcome> {
        let written = self.etcd.txn_within(when, then, otherwise, WRITE_PATIENCE);
        match select(written, lease.lost()).await {
            Either::Left(Ok(o)) => Some(o),
            Either::Left(Err(e)) => {
                tracing::warn!("{e}");
                None
            }
            Either::Right(()) => None,
        }
    }

    async fn step_all(&mut self, s: &Snapshot, lease: &Lease) {
        for (name, d) in &s.targets {
            let mine = d.places.iter().any(|p| p.host == self.host);
            match self.locals.get_mut(name) {
                // What runs goes on as it was started until it is moved.
                Some(l) if matches!(l.state, State::Idle) => l.defined = d.clone(),
                Some(_) => {}
                None if mine => {
                    let log = self.args.log_dir.join(format!("{name}.log"));
                    self.locals.insert(name.clone(), Local::new(name, d, log, self.args.folder_patience));
                }
                None => {}
            }
        }
        for name in self.locals.keys().cloned().collect::<Vec<_>>() {
            let mut l = self.locals.remove(&name).expect("it is one of the keys");
            assert_eq!(l.name, name, "a target stands under its name");
            if lease.held() {
                self.step(&mut l, s, lease).await;
            }
            let gone = !s.targets.contains_key(&name) && l.owned == 0 && matches!(l.state, State::Idle);
            if !gone {
                self.locals.insert(name, l);
            }
        }
    }

    async fn step(&mut self, l: &mut Local, s: &Snapshot, lease: &Lease) {
        let owner = s.owners.get(&l.name);
        let mine = owner.filter(|o| o.lease == lease.id() && o.value.host == self.host);
        if l.owned == 0 {
            if !matches!(l.state, State::Idle) {
                return;
            }
            match (mine, owner) {
                (Some(o), _) => {
                    tracing::info!("{}: is this host's", l.name);
                    (l.owned, l.state) = (o.created, State::Owned);
                }
                (None, None) => self.claim(l, s, lease).await,
                (None, Some(_)) => l.free_since = None,
            }
            return;
        }
        // The snapshot may be older than what was done here.
        if mine.is_none_or(|o| o.created != l.owned) && s.revision >= l.owned {
            let killed = l.kill();
            let what = if killed { ": its server is ended" } else { "" };
            tracing::warn!("{}: is not this host's any more{what}", l.name);
            return;
        }
        self.tend(l, s, lease).await;
        let word = l.state.word();
        if l.owned != 0 && word != "idle" && word != l.shown {
            let value = Owner { host: self.host.clone(), state: word.into() };
            let value = serde_json::to_vec(&value).expect("plain data encodes");
            let key = self.key("owners", &l.name);
            let still = [Compare::Created(key.clone(), l.owned)];
            if self.write(lease, &still, &[Op::Put(key, value, lease.id())], &[]).await.is_some() {
                l.shown = word;
            }
        }
    }

    /// Takes a target that nobody has, if it is this host's turn.
    async fn claim(&mut self, l: &mut Local, s: &Snapshot, lease: &Lease) {
        assert!(l.owned == 0 && matches!(l.state, State::Idle), "what is claimed is not this host's yet");
        let candidates = s.candidates(&l.name);
        let Some(turn) = candidates.iter().position(|h| *h == self.host) else { return };
        let patience = AFTER_YOU * u32::try_from(turn).unwrap_or(u32::MAX);
        let since = l.free_since.get_or_insert_with(|| Deadline::after(patience));
        if self.ending() || (turn > 0 && !since.passed()) {
            return;
        }
        let (key, last) = (self.key("owners", &l.name), self.key("last", &l.name));
        let value = Owner { host: self.host.clone(), state: "fencing".into() };
        let value = serde_json::to_vec(&value).expect("plain data encodes");
        let mut then = vec![Op::Put(key.clone(), value, lease.id()), Op::Get(last)];
        if s.wishes.get(&l.name) == Some(&self.host) {
            then.push(Op::Delete(self.key("wishes", &l.name)));
        }
        if let Some(o) = self.write(lease, &[Compare::Created(key, 0)], &then, &[]).await
            && o.succeeded
        {
            let last = o.found.into_iter().next().flatten().map(|kv| kv.text().1);
            let from = last.filter(|h| *h != self.host).map_or(String::new(), |h| format!(" from host {h}"));
            model::event!(INFO, TargetTaken, l.name, "{}: taken{from}", l.name);
            (l.owned, l.state, l.free_since, l.shown) = (o.revision, State::Owned, None, "fencing");
        }
    }

    /// A target that is this host's.
    async fn tend(&mut self, l: &mut Local, s: &Snapshot, lease: &Lease) {
        assert_ne!(l.owned, 0, "only what is this host's is looked after");
        let elsewhere = s.wishes.get(&l.name).filter(|h| **h != self.host && s.hosts.contains_key(*h));
        let undefined = !s.targets.contains_key(&l.name);
        let away = self.ending() || undefined || elsewhere.is_some();
        if away && !matches!(l.state, State::Stopping(_) | State::Fencing { .. } | State::Idle) {
            let to = elsewhere.map_or(String::new(), |h| format!(", host {h} shall have it"));
            model::event!(INFO, TargetTaken, l.name, "{}: is being stopped{to}", l.name);
            l.stop(&self.world);
            return;
        }
        match l.state {
            State::Owned => self.before_start(l, s, lease).await,
            State::Fencing { .. } => match l.fenced() {
                Some(Err(e)) => {
                    tracing::error!("{}: {e}; it is not started before", l.name);
                    l.free_since = Some(Deadline::after(RETRY));
                }
                Some(Ok(())) => tracing::info!("{}: the host before was fenced", l.name),
                None => {}
            },
            State::Fenced => self.start(l, lease).await,
            State::Idle => self.release(l, lease, &[]).await,
            State::Starting | State::Serving | State::Stopping(_) => {
                let news = l.poll(&self.world);
                self.hear(l, s, lease, news).await;
            }
        }
    }

    async fn before_start(&mut self, l: &mut Local, s: &Snapshot, lease: &Lease) {
        assert!(matches!(l.state, State::Owned), "fencing comes after the taking, and before all else");
        // A pause after a fence command that failed.
        if l.free_since.is_some_and(|d| !d.passed()) {
            return;
        }
        let last = match self.write(lease, &[], &[Op::Get(self.key("last", &l.name))], &[]).await {
            Some(o) => o.found.into_iter().next().flatten().map(|kv| kv.text().1),
            None => return,
        };
        match (last.filter(|h| *h != self.host), &self.args.fence) {
            (Some(host), Some(command)) => {
                let known = if s.hosts.contains_key(&host) { ", whose controller lives" } else { "" };
                tracing::info!("{}: fencing host {host}{known}", l.name);
                if let Err(e) = l.fence(&command.clone(), &host) {
                    tracing::error!("{}: {e}", l.name);
                    l.free_since = Some(Deadline::after(RETRY));
                }
            }
            _ => l.state = State::Fenced,
        }
    }

    async fn start(&mut self, l: &mut Local, lease: &Lease) {
        assert!(matches!(l.state, State::Fenced), "nothing is started before the host that had it is fenced");
        let still = [Compare::Created(self.key("owners", &l.name), l.owned)];
        let mark = [Op::Put(self.key("last", &l.name), self.host.clone().into_bytes(), 0)];
        let marked = self.write(lease, &still, &mark, &[]).await;
        if !marked.is_some_and(|o| o.succeeded) || !lease.held() {
            return;
        }
        match l.start(&self.host) {
            Ok(()) => tracing::info!("{}: its server starts", l.name),
            Err(e) => self.failed(l, &e, lease).await,
        }
    }

    async fn hear(&mut self, l: &mut Local, s: &Snapshot, lease: &Lease, news: News) {
        match news {
            News::None => {}
            News::Serves => tracing::info!("{}: is served", l.name),
            News::Stopped => {
                tracing::info!("{}: stopped", l.name);
                self.release(l, lease, &[]).await;
            }
            News::CannotStop(why) => {
                tracing::error!("{}: {why}", l.name);
                l.stop(&self.world);
            }
            News::Failed(why) => {
                let again = l.failed();
                let others = s.candidates(&l.name).iter().any(|h| *h != self.host);
                if again >= 2 && others {
                    return self.failed(l, &why, lease).await;
                }
                tracing::warn!("{}: {why}; starting it again", l.name);
                l.free_since = (again > 1).then(|| Deadline::after(RETRY));
                l.state = State::Owned;
            }
        }
    }

    /// Leaves a target to the others, because it does not do here.
    async fn failed(&mut self, l: &mut Local, why: &str, lease: &Lease) {
        tracing::error!("{}: {why}; left to another host", l.name);
        l.state = State::Idle;
        let key = self.key("refused", &format!("{}/{}", l.name, self.host));
        let note: String = why.chars().take(500).collect();
        let refused = match self.etcd.grant(REFUSED_FOR).await {
            Ok(id) => vec![Op::Put(key, note.into_bytes(), id)],
            Err(_) => Vec::new(),
        };
        self.release(l, lease, &refused).await;
    }

    /// Nothing of it runs here: others may have it.
    async fn release(&mut self, l: &mut Local, lease: &Lease, more: &[Op]) {
        assert_ne!(l.owned, 0, "only what is this host's is given up");
        assert!(!l.was_started(), "what others may have does not run here");
        let key = self.key("owners", &l.name);
        let still = [Compare::Created(key.clone(), l.owned)];
        let mut then = vec![Op::Delete(key), Op::Delete(self.key("last", &l.name))];
        then.extend_from_slice(more);
        if self.write(lease, &still, &then, &[]).await.is_some() {
            (l.owned, l.shown, l.free_since) = (0, "", None);
        }
    }
}

/// Whether a process of this host is a controller.
fn is_controller(pid: u32) -> bool {
    process::alive(pid) && process::arguments(pid).iter().any(|a| a == "controller")
}

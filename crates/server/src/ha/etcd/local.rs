//! One defined target on this host: its nacred, and what is going on with it. Nothing here waits: long things
//! run beside.

use super::keys::Defined;
use crate::ha::StartArgs;
use crate::ha::agent::{self, Look};
use model::mutex::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use world::World;
use world::sys::Deadline;
use world::sys::process::{self, Detached, SIGKILL};

/// How long a fence command may take.
const FENCE_PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at a server.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks in a row that find a server in trouble before it is ended.
const TROUBLES: u32 = 4;
/// Seconds for an orderly end.
const STOP_PATIENCE: u64 = 25;
/// Failures of so long ago are forgotten.
const FAILURES_COUNT_FOR: Duration = Duration::from_secs(60);

/// What came out of something that ran beside.
type Slot<T> = Arc<Mutex<Option<T>>>;

fn fill<T>(slot: &Slot<T>, value: T) {
    let other = slot.lock().replace(value);
    assert!(other.is_none(), "what ran beside has one outcome");
}

/// Where a target stands on this host.
pub enum State {
    /// Nothing of it is here.
    Idle,
    /// It is this host's, and nothing runs yet.
    Owned,
    /// The host that had it before is being fenced.
    Fencing {
        host: String,
        child: Detached,
        end: Deadline,
    },
    /// It may be started.
    Fenced,
    Starting,
    Serving,
    /// In order; what came of it.
    Stopping(Slot<Result<i32, String>>),
}

impl State {
    pub fn word(&self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Owned | State::Fencing { .. } => "fencing",
            State::Fenced | State::Starting => "starting",
            State::Serving => "serving",
            State::Stopping(_) => "stopping",
        }
    }
}

/// What happened since the last look.
#[derive(PartialEq, Eq, Debug)]
pub enum News {
    None,
    Serves,
    /// It does not run any more, and did not end in order.
    Failed(String),
    Stopped,
    /// It cannot be ended: the host's own fault.
    CannotStop(String),
}

pub struct Local {
    pub name: String,
    pub state: State,
    /// Revision that made the key of the owner.
    pub owned: i64,
    /// What the owner's record says.
    pub shown: &'static str,
    /// Since when nobody has it, as far as is seen here.
    pub free_since: Option<Deadline>,
    pub defined: Defined,
    log: PathBuf,
    /// Seconds for its folders to be there.
    folder_patience: u32,
    child: Option<Detached>,
    look: Option<Slot<Look>>,
    next_look: Option<Deadline>,
    troubles: u32,
    failures: Vec<Deadline>,
}

impl Local {
    pub fn new(name: &str, defined: &Defined, log: PathBuf, folder_patience: u32) -> Local {
        Local {
            name: name.to_string(),
            state: State::Idle,
            owned: 0,
            shown: "",
            free_since: None,
            defined: defined.clone(),
            log,
            folder_patience,
            child: None,
            look: None,
            next_look: None,
            troubles: 0,
            failures: Vec::new(),
        }
    }

    pub fn dirs(&self) -> Vec<PathBuf> {
        self.defined.dirs.iter().map(PathBuf::from).collect()
    }

    /// Runs `command HOST`.
    pub fn fence(&mut self, command: &str, host: &str) -> Result<(), String> {
        assert!(matches!(self.state, State::Owned), "a host is fenced before anything is started here");
        let args = ["-c".into(), format!("{command} \"$1\"").into(), "fence".into(), host.into()];
        let d =
            process::Daemon { exe: "/bin/sh".as_ref(), arg0: "sh", args: &args, env: &[], log: &self.log };
        let child = process::spawn_detached(&d).map_err(|e| format!("cannot run the fence command: {e}"))?;
        self.state = State::Fencing { host: host.to_string(), child, end: Deadline::after(FENCE_PATIENCE) };
        Ok(())
    }

    /// How fencing went, if it is over.
    pub fn fenced(&mut self) -> Option<Result<(), String>> {
        let State::Fencing { host, child, end } = &mut self.state else { return None };
        let done = match child.ended() {
            Ok(Some(how)) if how.status == Some(0) => Ok(()),
            Ok(Some(how)) => {
                Err(format!("the fence command for {host} ended with {how}: see {}", self.log.display()))
            }
            Ok(None) if end.passed() => {
                let _ = process::kill(child.pid(), SIGKILL);
                Err(format!("the fence command for {host} took longer than {FENCE_PATIENCE:?}"))
            }
            Ok(None) => return None,
            Err(e) => Err(format!("the fence command for {host}: {e}")),
        };
        self.state = if done.is_ok() { State::Fenced } else { State::Owned };
        Some(done)
    }

    /// Starts its server, or takes the one that runs already.
    pub fn start(&mut self, host: &str) -> Result<(), String> {
        assert!(!self.was_started(), "a server is started once");
        (self.child, self.look, self.next_look, self.troubles) = (None, None, None, 0);
        if agent::look(&self.dirs()) == Look::NotRunning {
            let nid = self.defined.places.iter().find(|p| p.host == host).and_then(|p| p.nid);
            let args = StartArgs {
                nid,
                port: self.defined.port,
                patience: agent::START_PATIENCE,
                folder_patience: self.folder_patience,
                options: self.defined.options.clone(),
                log: self.log.clone(),
                dirs: self.dirs(),
            };
            self.child = Some(agent::spawn(&args, &self.dirs())?);
        }
        self.state = State::Starting;
        Ok(())
    }

    pub fn stop(&mut self, world: &World) {
        let slot: Slot<Result<i32, String>> = Slot::default();
        let (told, dirs) = (slot.clone(), self.dirs());
        let ended =
            world.blocking(move || agent::stop(&crate::ha::StopArgs { patience: STOP_PATIENCE, dirs }));
        world.spawn("ha-stop", async move { fill(&told, ended.await) });
        self.state = State::Stopping(slot);
    }

    /// A server of it was started here.
    pub fn was_started(&self) -> bool {
        matches!(self.state, State::Starting | State::Serving | State::Stopping(_))
    }

    /// Nothing of it runs on this host.
    pub fn is_gone(&self) -> bool {
        agent::look(&self.dirs()) == Look::NotRunning
    }

    /// Ends its server by force, at once. Whether there was one.
    pub fn kill(&mut self) -> bool {
        if let Some(c) = &mut self.child
            && let Ok(None) = c.ended()
        {
            let _ = process::kill(c.pid(), SIGKILL);
        }
        self.state = State::Idle;
        self.owned = 0;
        agent::kill(&self.dirs())
    }

    /// Notes a failure; how many there were lately.
    pub fn failed(&mut self) -> usize {
        self.failures.retain(|d| !d.passed());
        self.failures.push(Deadline::after(FAILURES_COUNT_FOR));
        self.failures.len()
    }

    /// What became of its server.
    pub fn poll(&mut self, world: &World) -> News {
        if let State::Stopping(slot) = &self.state {
            let Some(done) = slot.lock().take() else { return News::None };
            self.state = State::Idle;
            return match done {
                Ok(0) => News::Stopped,
                Ok(_) => News::CannotStop("its nacred cannot be killed: it waits for its disk".into()),
                Err(e) => News::CannotStop(e),
            };
        }
        if !matches!(self.state, State::Starting | State::Serving) {
            return News::None;
        }
        if let Some(c) = &mut self.child
            && let Ok(Some(how)) = c.ended()
        {
            let log = self.log.display();
            return News::Failed(format!(
                "nacred ended with {how}. The last lines of {log}:{}",
                agent::said(&self.log)
            ));
        }
        let look = self.look.as_ref().and_then(|l| l.lock().take());
        let Some(look) = look else {
            self.look_beside(world);
            return News::None;
        };
        self.look = None;
        self.weigh(look)
    }

    fn weigh(&mut self, look: Look) -> News {
        match look {
            Look::Well => {
                self.troubles = 0;
                if matches!(self.state, State::Starting) {
                    self.state = State::Serving;
                    return News::Serves;
                }
                News::None
            }
            // Its first steps: nothing listens yet, another host's heartbeat may be watched for long.
            Look::Trouble(why)
                if matches!(self.state, State::Starting) && why.contains("does not answer") =>
            {
                News::None
            }
            Look::Trouble(why) => {
                self.troubles += 1;
                assert!(self.troubles <= TROUBLES, "a server in trouble is ended in time");
                if self.troubles < TROUBLES {
                    return News::None;
                }
                agent::kill(&self.dirs());
                News::Failed(why)
            }
            // A child is heard of when it ends.
            Look::NotRunning if self.child.is_some() => News::None,
            Look::NotRunning => News::Failed("its nacred is gone".into()),
        }
    }

    fn look_beside(&mut self, world: &World) {
        assert!(self.was_started(), "only what runs is looked at");
        if self.look.is_some() || self.next_look.is_some_and(|d| !d.passed()) {
            return;
        }
        self.next_look = Some(Deadline::after(LOOK_EVERY));
        let slot: Slot<Look> = Slot::default();
        let (told, dirs) = (slot.clone(), self.dirs());
        let looked = world.blocking(move || agent::look(&dirs));
        world.spawn("ha-look", async move { fill(&told, looked.await) });
        self.look = Some(slot);
    }
}

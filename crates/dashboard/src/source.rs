//! Where what the console shows comes from, and who does what it is told.

use crate::act::Order;
use admin::command::{lfsck, recovery, set_param};
use admin::failure::Failure;
use admin::query::{self, Stats};
use model::mutex::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use world::World;

/// What can be asked for. Each is one document, which pages and their JSON addresses share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Topic {
    /// The mounted file systems: verdict, troubles, targets with their space.
    Overview,
    /// The daemons of this host with their targets: states, epochs, recovery.
    Servers,
    Doctor,
    /// Requests that wait.
    Requests,
    Jobs,
    /// Users, groups, projects: what they use.
    Owners,
    /// Directories with a quota: what lies in them.
    Directories,
    Clients,
    Movements,
    Checks,
    Policies,
    Config,
    /// Targets under a cluster manager.
    Ha,
}

impl Topic {
    pub const ALL: [Topic; 13] = [
        Topic::Overview,
        Topic::Servers,
        Topic::Doctor,
        Topic::Requests,
        Topic::Jobs,
        Topic::Owners,
        Topic::Directories,
        Topic::Clients,
        Topic::Movements,
        Topic::Checks,
        Topic::Policies,
        Topic::Config,
        Topic::Ha,
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Topic::Overview => "overview",
            Topic::Servers => "servers",
            Topic::Doctor => "doctor",
            Topic::Requests => "requests",
            Topic::Jobs => "jobs",
            Topic::Owners => "owners",
            Topic::Directories => "directories",
            Topic::Clients => "clients",
            Topic::Movements => "movements",
            Topic::Checks => "checks",
            Topic::Policies => "policies",
            Topic::Config => "config",
            Topic::Ha => "ha",
        }
    }

    /// How long an answer is shown again, whoever asks: what asks every target is asked more rarely.
    fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Topic::Doctor | Topic::Jobs | Topic::Owners | Topic::Directories | Topic::Clients | Topic::Ha => {
                10
            }
            _ => 2,
        })
    }
}

/// Rows of busiest jobs, users and so on, and of histories.
const ROWS: usize = 20;

/// Whoever knows. Calls block, as long as the commands would.
pub trait Source: Send + Sync + 'static {
    /// The error is a sentence.
    fn ask(&self, topic: Topic) -> Result<Value, String>;
    /// Does something; what came of it.
    fn act(&self, order: &Order) -> Result<String, String>;
    /// What every target counts.
    fn stats(&self) -> Stats;
}

/// This host, as the commands ask it.
pub struct Host {
    /// What the cluster manager of this host says of its targets, which the programs above this one know.
    pub ha: fn() -> Result<Value, String>,
}

impl Source for Host {
    fn ask(&self, topic: Topic) -> Result<Value, String> {
        let said = match topic {
            Topic::Overview => query::overview(),
            Topic::Servers => Ok(query::servers()),
            Topic::Doctor => query::doctor(),
            Topic::Requests => Ok(query::requests()),
            Topic::Jobs => query::jobs(ROWS),
            Topic::Owners => query::owners(ROWS),
            Topic::Directories => query::directories(ROWS),
            Topic::Clients => Ok(query::clients()),
            Topic::Movements => query::movements(),
            Topic::Checks => Ok(query::checks()),
            Topic::Policies => query::policies(ROWS),
            Topic::Config => query::config(ROWS),
            Topic::Ha => return (self.ha)(),
        };
        said.map_err(|f: Failure| f.to_string())
    }

    fn act(&self, order: &Order) -> Result<String, String> {
        act(order).map_err(|f| f.to_string())
    }

    fn stats(&self) -> Stats {
        query::stats()
    }
}

fn act(order: &Order) -> Result<String, Failure> {
    let set = |name: &str, value: &str| {
        let names = set_param::set_until_restart(name, value)?;
        Ok(names.iter().map(|n| format!("{n}={value}")).collect::<Vec<_>>().join("\n"))
    };
    match order {
        Order::LfsckStart { target, dry_run } => {
            lfsck::start(target, *dry_run)?;
            Ok(format!("A check by {target} is under way."))
        }
        Order::LfsckStop { target } => {
            lfsck::stop(target)?;
            Ok(format!("The check by {target} was stopped."))
        }
        Order::SetActive { target, active } => {
            set(&format!("osp.{target}-osc-MDT*.active"), if *active { "1" } else { "0" })
        }
        Order::AbortRecovery { target } => {
            recovery::abort(target.clone())?;
            Ok(format!("{target} waits for no client any more."))
        }
        Order::Evict { target, client } => {
            let kind = if target.contains("-MDT") { "mdt" } else { "obdfilter" };
            set(&format!("{kind}.{target}.evict_client"), client)
        }
        Order::SetParam { name, value, for_good: false } => set(name, value),
        Order::SetParam { name, value, for_good: true } => {
            set_param::set_for_good(name, value)?;
            Ok(format!("{name}={value} for good"))
        }
    }
}

type Kept = Option<(world::Instant, Arc<Value>)>;

/// Answers that are a moment old serve everybody who asks meanwhile: however many look on, the daemons are
/// asked as often as for one.
pub struct Answers {
    world: World,
    source: Arc<dyn Source>,
    kept: [Mutex<Kept>; Topic::ALL.len()],
}

impl Answers {
    pub fn new(world: &World, source: Arc<dyn Source>) -> Answers {
        Answers { world: world.clone(), source, kept: std::array::from_fn(|_| Mutex::new(None)) }
    }

    /// The document of a topic; one with `error` if it could not be had. Blocks; of those who want the same
    /// at the same time one asks.
    pub fn of(&self, topic: Topic) -> Arc<Value> {
        let place = Topic::ALL.iter().position(|t| *t == topic).expect("all are there");
        let mut kept = self.kept[place].lock();
        let now = self.world.now();
        if let Some((at, v)) = &*kept
            && now.since(*at) < topic.lasts()
        {
            return v.clone();
        }
        let answer = self.source.ask(topic).unwrap_or_else(|e| json!({"error": e}));
        let answer = Arc::new(answer);
        *kept = Some((self.world.now(), answer.clone()));
        answer
    }

    /// What was done may show at once.
    pub fn forget(&self) {
        self.kept.iter().for_each(|k| *k.lock() = None);
    }
}

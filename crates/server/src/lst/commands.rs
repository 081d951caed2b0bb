//! The console's commands, one function each.

use super::console::{self, Batch, Console, Group, Test};
use super::proto::{Answer, Ask, Check, Counted, Kind, Load, NodeState, Session, call, dial};
use super::stat::{self, Shown};
use super::{failed, node};
use admin::failure::Failure;
use admin::getopt::{self, Opt, Parsed, flag, value};
use admin::{output, say};
use bytes::Bytes;
use model::Nid;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use world::future::join_all;
use world::sys;
use world::{Conn, World};

const TIMEOUT_DEFAULT_S: u64 = 300;
const DELAY_DEFAULT_S: u64 = 5;
const CONCURRENCY_MAX: u64 = 1024;
/// Each request of a load holds one transfer.
const DISTRIBUTE_MAX: usize = 1024;
const DEFAULT_BATCH: &str = "batch";
/// How long a batch may take to come to its end after it was told to.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const STOP_TICK: Duration = Duration::from_millis(50);

type Done = Result<(), Failure>;

fn key() -> Result<String, Failure> {
    console::key(std::env::var("LST_SESSION").ok()).map_err(failed)
}

fn open(key: &str) -> Result<Console, Failure> {
    let found = Console::load(key).map_err(failed)?;
    found.ok_or_else(|| failed("no session: lst new_session NAME"))
}

fn words(p: &Parsed) -> Vec<String> {
    p.operands.iter().map(|o| o.to_string_lossy().into_owned()).collect()
}

fn parse(args: &[OsString], opts: &[Opt]) -> Result<(Parsed, Vec<String>), Failure> {
    let p = getopt::parse(args, opts)?;
    let w = words(&p);
    Ok((p, w))
}

pub fn run(command: &str, args: &[OsString]) -> Done {
    match command {
        "new_session" => new_session(args),
        "end_session" => end_session(args),
        "show_session" => show_session(args),
        "add_group" => add_group(args),
        "update_group" => update_group(args),
        "list_group" => list_group(args),
        "del_group" => del_group(args),
        "add_batch" => add_batch(args),
        "list_batch" => list_batch(args),
        "del_batch" => del_batch(args),
        "add_test" => add_test(args),
        "run" => run_batch(args),
        "stop" => stop_batch(args),
        "query" => query(args),
        "stat" => show_stat(args),
        "ping" => ping(args),
        "show_error" => show_error(args),
        _ => Err(Failure::usage("no such command")),
    }
}

/// A node with the connection to it, as long as it is good.
struct Peer {
    nid: Nid,
    port: u16,
    conn: Option<Arc<dyn Conn>>,
}

impl Peer {
    async fn ask(&mut self, world: &World, ask: &Ask) -> Result<Answer, String> {
        let conn = match &self.conn {
            Some(c) => c.clone(),
            None => self.conn.insert(dial(world, console::address(self.nid, self.port)).await?).clone(),
        };
        let got = call(world, &conn, ask, Bytes::new()).await;
        if got.is_err() {
            self.conn = None;
        }
        got.map(|(answer, _)| answer)
    }
}

type BoxedAnswer<'a> = Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>>;

fn peers(nids: &[Nid]) -> Result<Vec<Peer>, Failure> {
    let port = console::port_here().map_err(failed)?;
    Ok(nids.iter().map(|nid| Peer { nid: *nid, port, conn: None }).collect())
}

/// What each node says to its own question, in order.
async fn all(world: &World, peers: &mut [Peer], ask: impl Fn(Nid) -> Ask) -> Vec<Result<Answer, String>> {
    let asked = peers.iter_mut().map(|p| -> BoxedAnswer<'_> {
        let a = ask(p.nid);
        Box::pin(async move { p.ask(world, &a).await })
    });
    join_all(asked.collect()).await
}

fn ask_once(nids: &[Nid], ask: impl Fn(Nid) -> Ask) -> Result<Vec<Result<Answer, String>>, Failure> {
    let mut peers = peers(nids)?;
    let answers = crate::in_real_world(|world| async move { Ok(all(&world, &mut peers, ask).await) });
    answers.map_err(failed)
}

/// Says of each node what it refused or why it does not answer; an error if any did.
fn well(nids: &[Nid], answers: &[Result<Answer, String>], what: &str) -> Done {
    assert_eq!(nids.len(), answers.len(), "each node has its answer");
    let mut bad = 0;
    for (nid, a) in nids.iter().zip(answers) {
        let why = match a {
            Ok(Answer::Refused { why, .. }) | Err(why) => why,
            Ok(_) => continue,
        };
        bad += 1;
        eprintln!("lst: {nid}: cannot {what}: {why}");
    }
    if bad == 0 { Ok(()) } else { Err(failed(format!("{bad} of {} nodes cannot {what}", nids.len()))) }
}

fn one_name(words: &[String], what: &str) -> Result<String, Failure> {
    match words {
        [name] => Ok(name.clone()),
        _ => Err(Failure::usage(format!("one {what} is expected"))),
    }
}

fn new_session(args: &[OsString]) -> Done {
    let (p, w) = parse(args, &[value('t', "timeout"), flag('f', "force")])?;
    let (key, name) = (key()?, one_name(&w, "name")?);
    console::check_name("session", &name).map_err(failed)?;
    if let Some(c) = Console::load(&key).map_err(failed)?
        && !p.has("force")
    {
        return Err(failed(format!("session '{}' is open: lst end_session, or --force", c.session.name)));
    }
    let timeout = p.number("timeout", 1 << 20)?.unwrap_or(TIMEOUT_DEFAULT_S);
    let id = crate::in_real_world(|world| async move { Ok(world.random_u64() >> 11) }).map_err(failed)?;
    let session = Session { id, name: name.clone(), console: sys::hostname(), timeout };
    let c = Console { session, force: p.has("force"), groups: Vec::new(), batches: Vec::new() };
    c.save(&key).map_err(failed)?;
    let force = if c.force { "Yes" } else { "No" };
    say!("SESSION: {name} FEATURES: 1 TIMEOUT: {timeout} FORCE: {force}");
    Ok(())
}

fn end_session(args: &[OsString]) -> Done {
    parse(args, &[])?;
    let key = key()?;
    let c = open(&key)?;
    let nodes = c.nodes();
    // a node that is gone forgets the session by itself
    let answers = ask_once(&nodes, |_| Ask::Close { session: c.session.id })?;
    for (nid, a) in nodes.iter().zip(&answers) {
        if let Err(why) = a {
            eprintln!("lst: {nid}: {why}; it forgets the session after {} s", c.session.timeout);
        }
    }
    Console::remove(&key).map_err(failed)?;
    say!("session is ended");
    Ok(())
}

fn show_session(args: &[OsString]) -> Done {
    parse(args, &[])?;
    let c = open(&key()?)?;
    let s = &c.session;
    say!("{} ID: {}@{}, KEY: {}, FEATURES: 1 NODES: {}", s.name, s.id, s.console, key()?, c.nodes().len());
    Ok(())
}

fn expand(text: &str) -> Result<Vec<Nid>, Failure> {
    let hosts = console::expand(text).map_err(failed)?;
    crate::in_real_world(|world| async move { console::resolve(&world, &hosts).await }).map_err(failed)
}

fn take_in(c: &Console, nids: &[Nid]) -> Done {
    let ask = |_| Ask::Open { session: c.session.clone(), force: c.force };
    well(nids, &ask_once(nids, ask)?, "be taken in")
}

fn add_group(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[])?;
    let [name, patterns @ ..] = w.as_slice() else { return Err(Failure::usage("which group?")) };
    if patterns.is_empty() {
        return Err(Failure::usage("which nodes? NIDs such as 192.168.1.[1-10]@tcp"));
    }
    console::check_name("group", name).map_err(failed)?;
    let key = key()?;
    let mut c = open(&key)?;
    if c.groups.iter().any(|g| g.name == *name) {
        return Err(failed(format!("group '{name}' exists: lst del_group {name}")));
    }
    let mut group = Group { name: name.clone(), members: Vec::new() };
    for text in patterns {
        let mut nids = expand(text)?;
        nids.retain(|n| !group.members.contains(n));
        if group.members.len() + nids.len() > console::NODES_MAX {
            return Err(failed(format!("more than {} nodes", console::NODES_MAX)));
        }
        take_in(&c, &nids)?;
        group.members.extend(nids);
        say!("{text} are added to session");
    }
    c.groups.push(group);
    c.save(&key).map_err(failed)
}

fn update_group(args: &[OsString]) -> Done {
    let (p, w) = parse(args, &[flag('\0', "refresh"), value('r', "remove"), value('c', "clean")])?;
    if p.has("clean") {
        return Err(Failure::usage("--clean is not known here: --remove NIDS takes nodes out"));
    }
    let (key, name) = (key()?, one_name(&w, "group")?);
    let mut c = open(&key)?;
    c.group(&name).map_err(failed)?;
    let gone = p.value("remove").map(expand).transpose()?.unwrap_or_default();
    let at = c.groups.iter().position(|g| g.name == name).expect("it was found");
    c.groups[at].members.retain(|nid| !gone.contains(nid));
    if p.has("refresh") {
        take_in(&c, &c.groups[at].members)?;
    }
    c.save(&key).map_err(failed)?;
    say!("Group is updated");
    Ok(())
}

/// A node as lists have it.
fn word(a: &Result<Answer, String>) -> &'static str {
    match a {
        Ok(Answer::State(_) | Answer::Done) => "Active",
        Ok(Answer::Refused { busy: true, .. }) => "Busy",
        Ok(Answer::Refused { .. }) => "Unknown",
        Err(_) => "Down",
    }
}

fn list_group(args: &[OsString]) -> Done {
    let states = ["active", "busy", "down", "unknown"];
    let mut opts: Vec<Opt> = states.iter().map(|s| flag('\0', s)).collect();
    opts.push(flag('\0', "all"));
    let (p, w) = parse(args, &opts)?;
    let c = open(&key()?)?;
    if w.is_empty() {
        for (i, g) in c.groups.iter().enumerate() {
            say!("{}) {}", i + 1, g.name);
        }
        say!("Total {} groups", c.groups.len());
        return Ok(());
    }
    for name in &w {
        let g = c.group(name).map_err(failed)?;
        let nids = &g.members;
        let answers = ask_once(nids, |_| Ask::Look { session: c.session.id })?;
        let count = |s: &str| answers.iter().filter(|a| word(a) == s).count();
        say!("\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL");
        let (a, b, d, u) = (count("Active"), count("Busy"), count("Down"), count("Unknown"));
        say!("{name}\t{a}\t{b}\t{d}\t{u}\t{}", nids.len());
        for (nid, answer) in nids.iter().zip(&answers) {
            let state = word(answer);
            if p.has("all") || states.iter().any(|s| p.has(s) && state.eq_ignore_ascii_case(s)) {
                say!("{nid}: {state}");
            }
        }
    }
    Ok(())
}

fn del_group(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[])?;
    let (key, name) = (key()?, one_name(&w, "group")?);
    let mut c = open(&key)?;
    c.group(&name).map_err(failed)?;
    if let Some(b) = c.batches.iter().find(|b| b.tests.iter().any(|t| t.from == name || t.to == name)) {
        return Err(failed(format!("batch '{}' has tests of group '{name}': lst del_batch first", b.name)));
    }
    c.groups.retain(|g| g.name != name);
    c.save(&key).map_err(failed)?;
    say!("Group is deleted");
    Ok(())
}

fn add_batch(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[])?;
    let name = w.first().map_or(DEFAULT_BATCH, String::as_str);
    console::check_name("batch", name).map_err(failed)?;
    let key = key()?;
    let mut c = open(&key)?;
    if c.batch(name).is_ok() {
        return Err(failed(format!("batch '{name}' exists")));
    }
    c.batches.push(Batch { name: name.to_string(), tests: Vec::new() });
    c.save(&key).map_err(failed)
}

fn list_batch(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[])?;
    let c = open(&key()?)?;
    for (i, b) in c.batches.iter().enumerate().filter(|(_, b)| w.is_empty() || w.contains(&b.name)) {
        say!("{}) {}", i + 1, b.name);
        for t in b.tests.iter().filter(|_| !w.is_empty()) {
            say!("\t{:?} from {} to {}, concurrency {}", t.kind, t.from, t.to, t.concurrency);
        }
    }
    say!("Total {} batches", c.batches.len());
    Ok(())
}

fn del_batch(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[])?;
    let (key, name) = (key()?, one_name(&w, "batch")?);
    let mut c = open(&key)?;
    c.batch(&name).map_err(failed)?;
    let nodes = c.nodes();
    let answers = ask_once(&nodes, |_| Ask::Stop { session: c.session.id, batch: name.clone() })?;
    well(&nodes, &answers, "stop the batch")?;
    c.batches.retain(|b| b.name != name);
    c.save(&key).map_err(failed)?;
    say!("Batch is deleted");
    Ok(())
}

/// `brw read size=1M`, `ping`.
fn kind(words: &[String]) -> Result<Kind, String> {
    match words {
        [ping] if ping == "ping" => Ok(Kind::Ping),
        [brw, rest @ ..] if brw == "brw" => {
            let (mut write, mut size, mut check) = (false, 4096, Check::None);
            for w in rest {
                match (w.as_str(), w.split_once('=')) {
                    ("read" | "r", _) => write = false,
                    ("write" | "w", _) => write = true,
                    (_, Some(("size", v))) => {
                        let bytes = admin::size::parse_bytes(v, 1).and_then(|n| u32::try_from(n).ok());
                        size = bytes.ok_or_else(|| format!("size={v} is no size such as 4k or 1M"))?;
                    }
                    (_, Some(("check", v))) => {
                        check = match v {
                            "none" => Check::None,
                            "simple" => Check::Simple,
                            "full" => Check::Full,
                            _ => return Err(format!("check={v}: none, simple or full")),
                        };
                    }
                    (_, Some(("off", "0"))) => {}
                    _ => return Err(format!("'{w}' is nothing of brw: read, write, size=, check=")),
                }
            }
            Ok(Kind::Brw { write, size, check })
        }
        _ => Err("which test? ping, or brw [read|write] [check=none|simple|full] [size=1M]".into()),
    }
}

fn distribution(text: &str) -> Result<(usize, usize), String> {
    let bad = || format!("--distribute {text}: S:D, as in 4:1");
    let (s, d) = text.split_once(':').ok_or_else(bad)?;
    let number =
        |t: &str| t.parse::<usize>().ok().filter(|n| (1..=DISTRIBUTE_MAX).contains(n)).ok_or_else(bad);
    Ok((number(s)?, number(d)?))
}

fn add_test(args: &[OsString]) -> Done {
    let opts = [
        value('b', "batch"),
        value('l', "loop"),
        value('c', "concurrency"),
        value('d', "distribute"),
        value('f', "from"),
        value('t', "to"),
    ];
    let (p, w) = parse(args, &opts)?;
    let key = key()?;
    let mut c = open(&key)?;
    let need = |name: &str| p.value(name).ok_or_else(|| Failure::usage(format!("--{name} GROUP is missing")));
    let loops = match p.value("loop").map(|t| (t, t.parse::<i64>())) {
        None | Some((_, Ok(-1))) => None,
        Some((_, Ok(n))) if n > 0 => Some(n as u64),
        Some((t, _)) => return Err(Failure::usage(format!("--loop {t}: a number, -1 for without end"))),
    };
    let concurrency = p.number("concurrency", CONCURRENCY_MAX)?.unwrap_or(1);
    let test = Test {
        kind: kind(&w).map_err(Failure::usage)?,
        from: need("from")?.to_string(),
        to: need("to")?.to_string(),
        distribute: distribution(p.value("distribute").unwrap_or("1:1")).map_err(Failure::usage)?,
        concurrency: u32::try_from(concurrency).expect("within its bound"),
        loops,
    };
    node::fits(test.kind).map_err(Failure::usage)?;
    c.group(&test.from).map_err(failed)?;
    c.group(&test.to).map_err(failed)?;
    let name = p.value("batch").unwrap_or(DEFAULT_BATCH).to_string();
    c.batch(&name).map_err(failed)?;
    let at = c.batches.iter().position(|b| b.name == name).expect("it was found");
    c.batches[at].tests.push(test);
    c.save(&key).map_err(failed)?;
    say!("Test was added successfully");
    Ok(())
}

/// What each node has to do in a batch.
fn loads(c: &Console, b: &Batch, port: u16) -> Result<BTreeMap<Nid, Vec<Load>>, String> {
    let mut out: BTreeMap<Nid, Vec<Load>> = BTreeMap::new();
    for t in &b.tests {
        let (from, to) = (c.group(&t.from)?, c.group(&t.to)?);
        for (n, m) in from.members.iter().enumerate() {
            let with = console::partners(n, t.distribute, to.members.len());
            assert!(with.iter().all(|i| *i < to.members.len()), "a partner is in its group");
            let to = with.iter().map(|i| console::address(to.members[*i], port)).collect();
            let load = Load { kind: t.kind, to, concurrency: t.concurrency, loops: t.loops };
            out.entry(*m).or_default().push(load);
        }
    }
    Ok(out)
}

fn batch_name(w: &[String]) -> Result<String, Failure> {
    match w {
        [] => Ok(DEFAULT_BATCH.into()),
        [name] => Ok(name.clone()),
        _ => Err(Failure::usage("one batch at a time")),
    }
}

fn run_batch(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[value('\0', "timeout")])?;
    let c = open(&key()?)?;
    let name = batch_name(&w)?;
    let port = console::port_here().map_err(failed)?;
    let all = loads(&c, c.batch(&name).map_err(failed)?, port).map_err(failed)?;
    if all.is_empty() {
        return Err(failed(format!("batch '{name}' has no test: lst add_test --batch {name} ...")));
    }
    let nids: Vec<Nid> = all.keys().copied().collect();
    let ask = |nid: Nid| Ask::Run { session: c.session.id, batch: name.clone(), loads: all[&nid].clone() };
    let answers = ask_once(&nids, ask)?;
    well(&nids, &answers, "run the batch")?;
    say!("{name} is running now");
    Ok(())
}

/// Concurrent requests of a batch on all nodes that answer.
fn under_way(answers: &[Result<Answer, String>], batch: &str) -> Vec<u64> {
    let of = |s: &NodeState| s.running.iter().find(|(n, _)| n == batch).map_or(0, |(_, n)| *n);
    answers.iter().map(|a| if let Ok(Answer::State(s)) = a { of(s) } else { 0 }).collect()
}

fn stop_batch(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[flag('f', "force")])?;
    let c = open(&key()?)?;
    let name = batch_name(&w)?;
    c.batch(&name).map_err(failed)?;
    let nids = c.nodes();
    let mut links = peers(&nids)?;
    let (session, batch) = (c.session.id, name.clone());
    let answers = crate::in_real_world(|world| async move {
        let told = all(&world, &mut links, |_| Ask::Stop { session, batch: batch.clone() }).await;
        let end = world.now().plus(STOP_PATIENCE);
        // requests under way come to their end
        loop {
            let states = all(&world, &mut links, |_| Ask::Look { session }).await;
            if under_way(&states, &batch).iter().all(|n| *n == 0) || world.now() >= end {
                return Ok(told);
            }
            world.sleep(STOP_TICK).await;
        }
    });
    well(&nids, &answers.map_err(failed)?, "stop the batch")?;
    say!("Batch is stopped");
    Ok(())
}

fn query(args: &[OsString]) -> Done {
    let opts = [value('\0', "test"), value('\0', "delay"), value('\0', "loop"), flag('\0', "all")];
    let (p, w) = parse(args, &opts)?;
    let c = open(&key()?)?;
    let name = batch_name(&w)?;
    let b = c.batch(&name).map_err(failed)?;
    let nids = c.nodes();
    let delay = Duration::from_secs(p.number("delay", 86_400)?.unwrap_or(DELAY_DEFAULT_S));
    for n in 0..p.number("loop", 1 << 30)?.unwrap_or(1) {
        if n > 0 {
            sys::sleep(delay);
        }
        let answers = ask_once(&nids, |_| Ask::Look { session: c.session.id })?;
        let running = under_way(&answers, &name);
        let state = u8::from(running.iter().any(|n| *n > 0));
        say!("Batch: {name} Tests: {} State: {state}", b.tests.len());
        for ((nid, a), n) in nids.iter().zip(&answers).zip(&running).filter(|_| p.has("all")) {
            let word = if a.is_err() {
                "Down"
            } else if *n > 0 {
                "Running"
            } else {
                "Idle"
            };
            say!("[{nid}] : {word}");
        }
        output::flush();
    }
    Ok(())
}

/// Groups, or NIDs, by their names.
fn chosen(c: &Console, names: &[String]) -> Result<Vec<(String, Vec<Nid>)>, Failure> {
    if names.is_empty() {
        return Err(Failure::usage("which groups or nodes?"));
    }
    let one = |name: &String| match c.group(name) {
        Ok(g) => Ok((name.clone(), g.members.clone())),
        Err(why) if !name.contains(['@', '.', ':']) => Err(failed(why)),
        Err(_) => Ok((name.clone(), expand(name)?)),
    };
    names.iter().map(one).collect()
}

fn counted(a: &Result<Answer, String>) -> Option<Counted> {
    if let Ok(Answer::State(s)) = a { Some(s.counted) } else { None }
}

fn show_stat(args: &[OsString]) -> Done {
    let flags = ["bw", "rate", "read", "write", "max", "min", "avg", "mbs"];
    let mut opts: Vec<Opt> = flags.iter().map(|f| flag('\0', f)).collect();
    opts.extend([value('\0', "delay"), value('\0', "count"), value('\0', "timeout")]);
    let (p, w) = parse(args, &opts)?;
    let key = key()?;
    let c = open(&key)?;
    let groups = chosen(&c, &w)?;
    let shown = Shown {
        rate: p.has("rate"),
        bandwidth: p.has("bw") || p.has("mbs"),
        read: p.has("read"),
        write: p.has("write"),
        average: p.has("avg"),
        least: p.has("min"),
        most: p.has("max"),
    };
    let delay = Duration::from_secs(p.number("delay", 86_400)?.unwrap_or(DELAY_DEFAULT_S));
    let count = p.number("count", 1 << 40)?;
    let nids: Vec<Nid> = groups.iter().flat_map(|(_, n)| n.iter().copied()).collect();
    let mut links = peers(&nids)?;
    let session = c.session.id;
    crate::in_real_world(|world| async move {
        let look = |_| Ask::Look { session };
        let mut before = (world.now(), all(&world, &mut links, look).await);
        for (nid, a) in nids.iter().zip(&before.1) {
            match a {
                Ok(Answer::Refused { why, .. }) | Err(why) => eprintln!("lst: {nid}: {why}"),
                Ok(_) => {}
            }
        }
        let mut shows = 0;
        while count.is_none_or(|n| shows < n) {
            world.sleep(delay).await;
            // the session may be ended meanwhile by another command of the same script
            if Console::load(&key)?.is_none_or(|c| c.session.id != session) {
                return Ok(());
            }
            let now = (world.now(), all(&world, &mut links, look).await);
            let seconds = now.0.since(before.0).as_secs_f64().max(0.001);
            let mut at = 0;
            for (name, members) in &groups {
                let range = at..at + members.len();
                at = range.end;
                let pairs = range.filter_map(|i| Some((counted(&before.1[i])?, counted(&now.1[i])?)));
                let rates: Vec<_> = pairs.map(|(a, b)| stat::rates(a, b, seconds)).collect();
                assert!(rates.len() <= members.len(), "a node has one rate");
                output::bytes(stat::block(name, &rates, shown).as_bytes());
            }
            output::flush();
            before = now;
            shows += 1;
        }
        Ok(())
    })
    .map_err(failed)
}

fn ping(args: &[OsString]) -> Done {
    let opts = [
        flag('\0', "session"),
        value('\0', "group"),
        value('\0', "nodes"),
        value('\0', "batch"),
        flag('\0', "server"),
    ];
    let (p, _) = parse(args, &opts)?;
    let c = open(&key()?)?;
    let nids = match (p.value("group"), p.value("nodes")) {
        (Some(g), _) => c.group(g).map_err(failed)?.members.clone(),
        (None, Some(n)) => expand(n)?,
        (None, None) => c.nodes(),
    };
    let answers = ask_once(&nids, |_| Ask::Look { session: c.session.id })?;
    for (nid, a) in nids.iter().zip(&answers) {
        let session = match a {
            Ok(Answer::State(NodeState { session: Some(s), .. })) => {
                format!("{} id: {}@{}", s.name, s.id, s.console)
            }
            Ok(Answer::Refused { why, .. }) | Err(why) => why.clone(),
            Ok(_) => "<NULL>".into(),
        };
        say!("{nid}: {} [session: {session}]", word(a));
    }
    Ok(())
}

fn show_error(args: &[OsString]) -> Done {
    let (_, w) = parse(args, &[flag('\0', "session")])?;
    let c = open(&key()?)?;
    for (name, nids) in chosen(&c, &w)? {
        let answers = ask_once(&nids, |_| Ask::Look { session: c.session.id })?;
        let mut bad = 0;
        for (nid, a) in nids.iter().zip(&answers) {
            let Ok(Answer::State(s)) = a else {
                bad += 1;
                say!("{nid}: {}", word(a));
                continue;
            };
            let n = s.counted;
            if n.rpc_errors + n.rpc_dropped > 0 {
                bad += 1;
                say!(
                    "{nid}: [RPC: {} errors, {} dropped, BRW: {} errors, ping: {} errors] {}",
                    n.rpc_errors,
                    n.rpc_dropped,
                    n.brw_errors,
                    n.ping_errors,
                    s.last_error.as_deref().unwrap_or("")
                );
            }
        }
        say!("Total {bad} error nodes in {name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_said_as_in_notes() {
        let k = |s: &str| kind(&s.split(' ').map(str::to_string).collect::<Vec<_>>());
        assert_eq!(k("ping"), Ok(Kind::Ping));
        let read = Kind::Brw { write: false, size: 1 << 20, check: Check::None };
        assert_eq!(k("brw read size=1M"), Ok(read));
        let write = Kind::Brw { write: true, size: 4096, check: Check::Full };
        assert_eq!(k("brw write check=full size=4K"), Ok(write));
        for (bad, part) in
            [("brw size=x", "no size"), ("brw check=some", "none, simple"), ("what", "which test")]
        {
            assert!(k(bad).unwrap_err().contains(part), "{bad}");
        }
        assert!(node::fits(Kind::Brw { write: true, size: 2 << 20, check: Check::None }).is_err());
        assert!(node::fits(read).is_ok());
        assert_eq!(distribution("4:1"), Ok((4, 1)));
        for bad in ["4", "0:1", "1:x"] {
            assert!(distribution(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_batch_gives_each_source_its_sinks() {
        let group = |name: &str, from: u8, n: u8| Group {
            name: name.into(),
            members: (from..from + n).map(|i| format!("10.0.0.{i}@tcp").parse().unwrap()).collect(),
        };
        let session = Session { id: 1, name: "rw".into(), console: "c".into(), timeout: 300 };
        let test = |kind| Test {
            kind,
            from: "clients".into(),
            to: "servers".into(),
            distribute: (4, 1),
            concurrency: 8,
            loops: None,
        };
        let batch = Batch { name: "b".into(), tests: vec![test(Kind::Ping)] };
        let c = Console {
            session,
            force: false,
            groups: vec![group("clients", 1, 5), group("servers", 20, 2)],
            batches: vec![batch.clone()],
        };
        let all = loads(&c, &batch, 488).unwrap();
        let to: Vec<String> = all.values().map(|l| l[0].to[0].to_string()).collect();
        assert_eq!(to, ["10.0.0.20:488", "10.0.0.20:488", "10.0.0.20:488", "10.0.0.20:488", "10.0.0.21:488"]);
        assert!(all.values().all(|l| l[0].concurrency == 8));
        assert_eq!(c.nodes().len(), 7);
    }
}

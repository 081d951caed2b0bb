//! How a check of the whole file system stands: kept in the table (`Zlfsck`), so that it goes on after a
//! crash of the server.

use super::outcome::{Action, Mended};
use crate::MdsError;
use model::mutex::{Mutex, MutexGuard};
use model::{Fid, ObjectId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::trailing::Trailing;
use world::sync::watch;

const VERSION: u8 = 1;
/// Problems that are remembered; the log file has all.
const RECENT_MAX: usize = 1000;
/// Largest `lfsck_speed_limit`, records a second.
pub const SPEED_MAX: u64 = 10_000_000;

/// What is found, by the names under which it is counted: of names and inodes, and of objects.
pub const KINDS: [&[&str]; 2] = [
    &[
        "acl_mode",
        "bad_cookie",
        "damaged_backpointer",
        "damaged_client",
        "damaged_data",
        "damaged_inode",
        "damaged_key",
        "damaged_lease",
        "damaged_name",
        "damaged_orphan",
        "damaged_outbox",
        "damaged_xattr",
        "dangling_name",
        "data_behind_end",
        "data_beside_objects",
        "data_beyond_room",
        "data_blocks",
        "data_of_nothing",
        "directory_loop",
        "directory_names",
        "entries",
        "hash_key",
        "inode_count",
        "living_destroyed",
        "log_for_nobody",
        "missing_backpointer",
        "missing_directory",
        "missing_orphan",
        "missing_reverse",
        "name_in_file",
        "named_orphan",
        "nameless_directory",
        "nameless_inode",
        "next_sequence",
        "nlink",
        "orphan_links",
        "other",
        "parent",
        "shared_object",
        "stale_backpointer",
        "stale_reverse",
        "trash",
        "usage",
        "wrong_directory",
        "wrong_reverse",
        "wrong_type",
        "xattr_count",
        "xattr_of_nothing",
    ],
    &[
        "contradictory_label",
        "dangling_object",
        "empty_orphan",
        "inconsistent_owner",
        "lost_component",
        "lost_file",
        "ost_usage",
        "orphan_object",
        "unmatched_object",
    ],
];

/// What is checked: an index of [`State::parts`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Component {
    Namespace,
    Layout,
}

impl Component {
    pub const ALL: [Component; 2] = [Component::Namespace, Component::Layout];

    pub fn word(self) -> &'static str {
        match self {
            Component::Namespace => "namespace",
            Component::Layout => "layout",
        }
    }
}

/// What was ordered.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Options {
    pub components: Vec<Component>,
    /// Nothing is changed.
    pub dry_run: bool,
    /// Objects that no file has get one in lost+found, or are destroyed if there is nothing in them.
    pub orphans: bool,
    /// Objects that are missing are made anew, empty.
    pub create_objects: bool,
    /// Files that are missing under a name are made anew, empty.
    pub create_files: bool,
    /// It ends at the first thing that cannot be mended.
    pub fail_out: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Status {
    #[default]
    Init,
    Phase1,
    Phase2,
    Completed,
    Failed,
    Stopped,
    /// The target stopped, or was moved; it goes on by itself.
    Paused,
    /// Some targets did not answer.
    Partial,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Init => "init",
            Status::Phase1 => "scanning-phase1",
            Status::Phase2 => "scanning-phase2",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Stopped => "stopped",
            Status::Paused => "paused",
            Status::Partial => "partial",
        }
    }

    pub fn is_under_way(self) -> bool {
        matches!(self, Status::Phase1 | Status::Phase2 | Status::Paused)
    }
}

/// Found, repaired, put into lost+found, left.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counts {
    pub found: u64,
    pub repaired: u64,
    pub quarantined: u64,
    pub left: u64,
}

/// How one component stands.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Progress {
    pub status: Status,
    pub started: i64,
    pub checkpoint: i64,
    pub completed: i64,
    /// Records or objects looked at in the first phase, and in the second.
    pub checked: [u64; 2],
    /// Inodes and names that the first phase saw.
    pub inodes: u64,
    pub names: u64,
    /// Milliseconds of work in each.
    pub run_ms: [u64; 2],
    pub counts: BTreeMap<String, Counts>,
    pub success: u64,
    /// Something was left as it is, at the last time.
    pub inconsistent: bool,
}

/// All that is kept.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct State {
    pub options: Option<Options>,
    pub parts: [Progress; 2],
    /// Where the walk over the table goes on.
    pub at: Vec<u8>,
    /// Walks over the table that are over.
    pub walks: u32,
    /// What this walk found.
    pub found_in_walk: u64,
    /// Which OST is compared, and behind which object that goes on.
    pub ost: u16,
    pub object: Option<ObjectId>,
    /// Records a second that this check looks at, at most, on a server that is started again as well.
    pub speed: u64,
    /// All OSTs were gone through for what the labels of objects say of lost files; now everything else is
    /// compared.
    pub labels_read: Trailing<bool>,
}

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let mut v = vec![VERSION];
        v.extend(postcard::to_allocvec(self).expect("plain data encodes"));
        v
    }

    pub fn decode(k: &[u8], v: &[u8]) -> Result<State, MdsError> {
        let damaged = |why: String| MdsError::Damaged {
            what: "state of lfsck",
            key: crate::schema::value::hex(k),
            why,
        };
        match v.split_first() {
            Some((&VERSION, rest)) => {
                postcard::take_from_bytes(rest).map(|(s, _)| s).map_err(|e| damaged(e.to_string()))
            }
            _ => Err(damaged("its version is unknown".into())),
        }
    }

    pub fn part(&mut self, c: Component) -> &mut Progress {
        &mut self.parts[c as usize]
    }

    /// Whether files are being put together from what their objects know, before anything is compared.
    pub fn reads_labels(&self) -> bool {
        self.options.as_ref().is_some_and(|o| o.orphans) && self.labels_read.0 != Some(true)
    }

    /// Objects are gone through from the first one on: for their labels, or once more.
    pub fn objects_from_the_beginning(&mut self, labels_read: bool) {
        (self.ost, self.object, self.labels_read) = (0, None, labels_read.into());
    }

    /// What is to be done next.
    pub fn next(&self) -> Option<Component> {
        let o = self.options.as_ref()?;
        Component::ALL
            .into_iter()
            .find(|c| o.components.contains(c) && self.parts[*c as usize].status.is_under_way())
    }

    pub fn is_under_way(&self) -> bool {
        self.next().is_some()
    }
}

/// An order of an administrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    Start { options: Options, speed: Option<u64>, reset: bool },
    Stop,
}

impl Order {
    /// `start [namespace] [layout] [dryrun] [orphan] [create_ostobj] [create_mdtobj] [failout] [reset]
    /// [speed=N]`, or `stop`.
    pub fn parse(text: &str) -> Option<Order> {
        let mut words = text.split_whitespace();
        match words.next()? {
            "stop" => return words.next().is_none().then_some(Order::Stop),
            "start" => {}
            _ => return None,
        }
        let mut o = Options::default();
        let (mut speed, mut reset) = (None, false);
        for w in words {
            match w {
                "namespace" => o.components.push(Component::Namespace),
                "layout" => o.components.push(Component::Layout),
                "dryrun" => o.dry_run = true,
                "orphan" => o.orphans = true,
                "create_ostobj" => o.create_objects = true,
                "create_mdtobj" => o.create_files = true,
                "failout" => o.fail_out = true,
                "reset" => reset = true,
                _ => speed = Some(w.strip_prefix("speed=")?.parse().ok().filter(|n| *n <= SPEED_MAX)?),
            }
        }
        o.components.sort_unstable();
        o.components.dedup();
        if o.components.is_empty() {
            o.components = Component::ALL.to_vec();
        }
        Some(Order::Start { options: o, speed, reset })
    }
}

/// The check of one metadata target.
pub struct Lfsck {
    state: Mutex<State>,
    recent: Mutex<VecDeque<Mended>>,
    /// `lfsck_speed_limit`, records a second; 0: no bound.
    pub speed: AtomicU64,
    /// Counts checks that were ordered, so that whoever walks sees a new one; told at each order.
    orders: watch::Sender<u64>,
}

impl Lfsck {
    pub fn new(state: State) -> Lfsck {
        let speed = if state.is_under_way() { state.speed } else { 0 };
        Lfsck {
            state: Mutex::new(state),
            recent: Mutex::default(),
            speed: AtomicU64::new(speed),
            orders: watch::Sender::new(0),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub fn orders(&self) -> watch::Receiver<u64> {
        self.orders.subscribe()
    }

    /// The state, with the number of the check that it is of. Both change together.
    pub fn state_and_check(&self) -> (MutexGuard<'_, State>, u64) {
        let s = self.state.lock();
        let check = *self.orders.borrow();
        (s, check)
    }

    /// Carries an order out. `EALREADY` if one is under way, or none is that could be stopped.
    pub fn order(&self, order: Order, now: Timestamp) -> Result<(), model::Errno> {
        let mut s = self.state.lock();
        let starts = u64::from(order != Order::Stop);
        match order {
            Order::Stop => {
                if !s.is_under_way() {
                    return Err(model::Errno::EALREADY);
                }
                for p in s.parts.iter_mut().filter(|p| p.status.is_under_way()) {
                    p.status = Status::Stopped;
                }
            }
            Order::Start { options, speed, reset } => {
                if s.is_under_way() {
                    return Err(model::Errno::EALREADY);
                }
                if let Some(n) = speed {
                    self.speed.store(n, Relaxed);
                }
                s.begin(options, reset, now);
                self.recent.lock().clear();
            }
        }
        assert!(s.options.is_some(), "what is ordered has its options");
        self.orders.send_modify(|checks| *checks += starts);
        drop(s);
        Ok(())
    }

    /// What was found lately, a line of JSON each.
    pub fn problems(&self) -> String {
        let recent = self.recent.lock();
        recent.iter().map(json_line).collect::<Vec<_>>().join("\n")
    }

    pub fn remember(&self, m: &Mended) {
        let mut recent = self.recent.lock();
        recent.push_back(m.clone());
        if recent.len() > RECENT_MAX {
            recent.pop_front();
        }
        assert!(recent.len() <= RECENT_MAX, "what is remembered is bounded");
    }
}

/// What was found and done, as a line of the log.
pub fn json_line(m: &Mended) -> String {
    let fid = if m.fid == Fid::NONE { None } else { Some(m.fid.to_string()) };
    serde_json::json!({
        "kind": m.kind,
        "fid": fid,
        "action": format!("{:?}", m.action).to_lowercase(),
        "what": m.what,
    })
    .to_string()
}

impl State {
    /// From the beginning; where it was stopped, unless that is over, with the same options.
    fn begin(&mut self, options: Options, reset: bool, now: Timestamp) {
        let stopped = |p: &Progress| matches!(p.status, Status::Stopped | Status::Failed | Status::Partial);
        let resumes = !reset
            && self.options.as_ref() == Some(&options)
            && options.components.iter().any(|c| stopped(&self.parts[*c as usize]));
        if !resumes {
            (self.at, self.walks, self.found_in_walk) = (Vec::new(), 0, 0);
            self.objects_from_the_beginning(false);
        }
        for c in &options.components {
            let p = self.part(*c);
            if resumes && p.status == Status::Completed {
                continue;
            }
            if !resumes {
                *p = Progress { completed: p.completed, success: p.success, ..Progress::default() };
                p.started = now.sec;
            }
            p.status = Status::Phase1;
        }
        self.options = Some(options);
        assert!(self.is_under_way(), "what was ordered is under way");
    }

    /// Counts what was found.
    pub fn count(&mut self, c: Component, m: &Mended) {
        let dry = self.options.as_ref().is_some_and(|o| o.dry_run);
        // What is left is found by each walk.
        self.found_in_walk += u64::from(m.action != Action::Left);
        let n = self.part(c).counts.entry(m.kind.to_string()).or_default();
        n.found += 1;
        match m.action {
            Action::Left => n.left += 1,
            _ if dry => n.left += 1,
            Action::Repaired => n.repaired += 1,
            Action::Quarantined => n.quarantined += 1,
        }
        assert_eq!(n.found, n.repaired + n.quarantined + n.left, "each thing that is found comes to one end");
        assert!(!dry || n.repaired + n.quarantined == 0, "a dry run changes nothing");
    }

    /// `lfsck_namespace` and `lfsck_layout`: `name: value` lines.
    pub fn text(&self, c: Component, now: i64) -> String {
        let p = &self.parts[c as usize];
        let mut out = String::new();
        let mut line = |name: &str, v: &dyn std::fmt::Display| {
            let _ = writeln!(out, "{name}: {v}");
        };
        line("name", &format!("lfsck_{}", c.word()));
        line("magic", &if c == Component::Namespace { "0xA0629D03" } else { "0xB17371B9" });
        line("version", &VERSION);
        line("status", &p.status.word());
        line("flags", &self.flags(p));
        line("param", &self.params(c));
        let ago = |t: i64| if t == 0 { "N/A".into() } else { format!("{} seconds", (now - t).max(0)) };
        let at = |t: i64| if t == 0 { "N/A".into() } else { t.to_string() };
        line("last_completed_time", &at(p.completed));
        line("time_since_last_completed", &ago(p.completed));
        line("latest_start_time", &at(p.started));
        line("time_since_latest_start", &ago(p.started));
        line("last_checkpoint_time", &at(p.checkpoint));
        line("time_since_last_checkpoint", &ago(p.checkpoint));
        line("last_checkpoint_position", &self.position(c));
        line("checked_phase1", &p.checked[0]);
        line("checked_phase2", &p.checked[1]);
        if c == Component::Namespace {
            line("inodes", &p.inodes);
            line("names", &p.names);
        }
        let sum = |f: fn(&Counts) -> u64| p.counts.values().map(f).sum::<u64>();
        line("found", &sum(|n| n.found));
        line("repaired", &sum(|n| n.repaired));
        line("quarantined", &sum(|n| n.quarantined));
        line("left", &sum(|n| n.left));
        for kind in KINDS[c as usize] {
            let n = p.counts.get(*kind).copied().unwrap_or_default();
            line(&format!("found_{kind}"), &n.found);
            line(&format!("repaired_{kind}"), &(n.repaired + n.quarantined));
        }
        line("success_count", &p.success);
        for (i, name) in ["phase1", "phase2"].into_iter().enumerate() {
            line(&format!("run_time_{name}"), &format!("{} seconds", p.run_ms[i] / 1000));
            let speed = p.checked[i].saturating_mul(1000).checked_div(p.run_ms[i]).unwrap_or(0);
            line(&format!("average_speed_{name}"), &format!("{speed} items/sec"));
        }
        out.truncate(out.trim_end().len());
        out
    }

    fn flags(&self, p: &Progress) -> String {
        let mut flags = Vec::new();
        if p.checked[1] > 0 || p.status == Status::Phase2 {
            flags.push("scanned-once");
        }
        if p.inconsistent {
            flags.push("inconsistent");
        }
        if p.status == Status::Partial {
            flags.push("incomplete");
        }
        flags.join(",")
    }

    fn params(&self, c: Component) -> String {
        let Some(o) = self.options.as_ref().filter(|o| o.components.contains(&c)) else {
            return String::new();
        };
        let all = [
            ("dryrun", o.dry_run),
            ("failout", o.fail_out),
            ("orphan", o.orphans),
            ("create_ostobj", o.create_objects),
            ("create_mdtobj", o.create_files),
        ];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }

    fn position(&self, c: Component) -> String {
        if self.parts[c as usize].status == Status::Completed {
            return "N/A".into();
        }
        match (c, &self.object) {
            (Component::Namespace, _) if self.at.is_empty() => "N/A".into(),
            (Component::Namespace, _) => crate::schema::value::hex(&self.at),
            (Component::Layout, None) => format!("OST{:04x}", self.ost),
            (Component::Layout, Some(o)) => format!("OST{:04x} {o}", self.ost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_others_refused() {
        let Some(Order::Start { options, speed, reset }) = Order::parse("start layout dryrun speed=7 reset")
        else {
            panic!("it is an order")
        };
        assert_eq!(
            (options.components, options.dry_run, speed, reset),
            (vec![Component::Layout], true, Some(7), true)
        );
        assert_eq!(Order::parse("stop"), Some(Order::Stop));
        for bad in ["", "go", "stop now", "start speed=x", "start all", "start speed=99999999999"] {
            assert_eq!(Order::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn it_goes_there_and_back_and_goes_on_where_it_was_stopped() {
        let start = |text: &str| Order::parse(text).unwrap();
        let l = Lfsck::new(State::default());
        assert_eq!(l.order(Order::Stop, Timestamp::ZERO), Err(model::Errno::EALREADY));
        l.order(start("start"), Timestamp { sec: 5, nsec: 0 }).unwrap();
        assert_eq!(l.order(start("start"), Timestamp::ZERO), Err(model::Errno::EALREADY));
        l.state().at = vec![7];
        l.order(Order::Stop, Timestamp::ZERO).unwrap();
        let place = || {
            let s = l.state();
            (s.at.clone(), s.parts[0].started)
        };
        let now = l.state().clone();
        assert_eq!(State::decode(b"Zlfsck", &now.encode()).unwrap(), now);
        l.order(start("start"), Timestamp { sec: 9, nsec: 0 }).unwrap();
        assert_eq!(place(), (vec![7], 5));
        l.order(Order::Stop, Timestamp::ZERO).unwrap();
        l.order(start("start reset"), Timestamp { sec: 9, nsec: 0 }).unwrap();
        assert_eq!(place(), (Vec::new(), 9));
        assert!(State::decode(b"Zlfsck", &[9, 9]).is_err());
    }
}

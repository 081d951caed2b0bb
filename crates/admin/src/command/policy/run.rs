//! A run of a rule: whether it is due, what it takes, and what is done about it, one file after the other.

use super::actor::{Actor, shown};
use super::gather::Taken;
use super::rules::{Action, Entry, Rule, When};
use super::select::{Due, due_by_space};
use super::state::{FinishedRun, Outcome, Plan, PlanHeader, Step, Store, Tally, append, json_line};
use crate::command::df::Numbers;
use crate::command::find::moment;
use crate::failure::{Failure, FirstError};
use crate::interrupt::Interrupt;
use crate::names;
use crate::size::human;
use model::Errno;
use model::mutex::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use world::sys::{Deadline, files};

/// How often a file is looked at anew that changes between the look and the deletion.
const LOOKS: usize = 2;
/// A run ends after so many failures one after the other: more than a file is wrong.
const FAILURES_MAX: u32 = 20;
/// How long the space of what was deleted may take to be free, and that of what others deleted before.
const FREED_PATIENCE: Duration = Duration::from_secs(60);
const EARLIER_PATIENCE: Duration = Duration::from_secs(10);
/// Files that one user is told.
const TOLD_MAX: usize = 1000;

/// What a run asks and does: a mount's file system, or a test's tree.
pub trait PolicyContext: Actor {
    /// Of what a rule's `when space` is about.
    fn space(&self, rule: &Rule) -> Result<Numbers, Failure>;
    /// Users who use more bytes than that.
    fn users_above(&self, rule: &Rule, bytes: u64) -> Result<BTreeSet<u32>, Failure>;
    /// What it takes. `when`: from when ages are counted, and whether all that fit are to be counted.
    fn gather(&self, rule: &Rule, due: &Due, when: (i64, bool)) -> Result<(Taken, FirstError), Failure>;
    /// Waits until the space of deleted files is free, but not longer than this.
    fn settle(&self, rule: &Rule, patience: Duration);
    /// Seconds since 1970.
    fn now(&self) -> i64;
}

/// How far a run is, for who looks at it.
#[derive(Default)]
pub struct Progress {
    /// Files that were looked at.
    pub seen: AtomicU64,
    /// Of the list of a rule so many of so many are over.
    pub done: AtomicU64,
    pub of: AtomicU64,
}

/// What came of one rule.
#[derive(Default)]
pub struct Came {
    pub rule: String,
    pub action: &'static str,
    /// Why nothing is done, if it is not due.
    pub not_due: Option<String>,
    /// All that fit, and their space; `None`: nobody counted those that it does not take.
    pub fitting: Option<(u64, u64)>,
    /// What it takes, or what a report shows.
    pub entries: Vec<Entry>,
    pub has_more: bool,
    pub tally: Tally,
    /// Those who were told, or would be: files, bytes.
    pub told: Vec<(u32, u64, u64)>,
    /// It went on with the list of an earlier run.
    pub is_resumed: bool,
    pub is_interrupted: bool,
}

impl Came {
    fn of(rule: &Rule) -> Came {
        Came { rule: rule.name.clone(), action: rule.action.name(), ..Came::default() }
    }
}

/// Those who run have this in common.
pub struct Worker<'a> {
    pub context: &'a dyn PolicyContext,
    pub store: &'a Store,
    pub interrupt: &'a Interrupt,
    pub progress: &'a Progress,
    pub errors: &'a Mutex<FirstError>,
}

impl Worker<'_> {
    fn report(&self, f: &Failure) {
        self.errors.lock().report("nacre policy", f);
    }

    fn due(&self, rule: &Rule) -> Result<Due, Failure> {
        Ok(match &rule.when {
            When::Always => Due::All,
            When::Space { .. } => {
                // What was deleted a moment ago counts as used until its objects are gone.
                self.context.settle(rule, EARLIER_PATIENCE);
                due_by_space(rule, self.context.space(rule)?)
            }
            When::Usage { above } => {
                let users = self.context.users_above(rule, *above)?;
                match users.is_empty() {
                    true => Due::Not(format!("no user uses more than {}", human(*above, 1024))),
                    false => Due::Users(users),
                }
            }
        })
    }

    /// What a rule takes that is due, for what, and from when its ages are counted.
    /// What fits and is not taken is counted only if it is to be shown.
    fn taken(
        &self,
        rule: &Rule,
        came: &mut Came,
        is_dry: bool,
    ) -> Result<Option<(Taken, Due, i64)>, Failure> {
        let due = self.due(rule)?;
        if let Due::Not(why) = due {
            came.not_due = Some(why);
            return Ok(None);
        }
        let now = self.context.now();
        let counts_all = is_dry || matches!(rule.action, Action::Report | Action::Notify { .. });
        let (taken, first) = self.context.gather(rule, &due, (now, counts_all))?;
        if first.exit_code() != 0 {
            self.errors.lock().ended(first.exit_code());
        }
        (came.fitting, came.has_more) = (taken.fitting, taken.has_more);
        came.is_interrupted = self.interrupt.stopped();
        Ok(Some((taken, due, now)))
    }

    /// What a rule would do: nothing is done, and nothing is remembered.
    pub fn dry(&self, rule: &Rule) -> Result<Came, Failure> {
        let mut came = Came::of(rule);
        let Some((taken, _, now)) = self.taken(rule, &mut came, true)? else { return Ok(came) };
        if let Action::Notify { users, remind, .. } = &rule.action {
            came.told = self.to_tell(rule, &taken, (*users, *remind), now)?;
        }
        came.entries = taken.entries;
        Ok(came)
    }

    pub fn run(&self, rule: &Rule) -> Result<Came, Failure> {
        if let Some(plan) = self.store.unfinished(rule)? {
            return self.go_on(rule, plan);
        }
        let mut came = Came::of(rule);
        let Some((taken, due, now)) = self.taken(rule, &mut came, false)? else { return Ok(came) };
        if came.is_interrupted {
            return Ok(came);
        }
        match &rule.action {
            Action::Report => {
                came.entries = taken.entries;
                came.tally.done = came.entries.len() as u64;
            }
            Action::Archive { list } => {
                let lines = taken.entries.iter().flat_map(|e| json_line(&row(rule, e)));
                let text: Vec<u8> = lines.collect();
                let shown = list.display().to_string();
                files::replace(list, &text).map_err(|e| Failure::io("cannot write", &shown, e))?;
                came.tally.done = taken.entries.len() as u64;
                came.tally.bytes = taken.entries.iter().map(|e| e.space).sum();
            }
            Action::Notify { command, users, remind } => {
                self.notify(rule, &taken, (command, *users, *remind), now, &mut came)?;
            }
            Action::Purge | Action::Migrate { .. } if taken.entries.is_empty() => return Ok(came),
            Action::Purge | Action::Migrate { .. } => {
                let head = PlanHeader {
                    rule: rule.name.clone(),
                    text: rule.text.clone(),
                    action: rule.action.name().to_string(),
                    now,
                    files: taken.entries.len() as u64,
                    bytes: taken.entries.iter().map(|e| e.space).sum(),
                    needed: if let Due::Bytes(n) = due { Some(n) } else { None },
                    has_more: taken.has_more,
                };
                let fitting = came.fitting;
                let plan = self.store.begin(head, taken.entries)?;
                return Ok(Came { fitting, ..self.go_on(rule, plan)? });
            }
        }
        self.remember(&came, now)?;
        Ok(came)
    }

    fn remember(&self, came: &Came, began: i64) -> Result<(), Failure> {
        self.store.remember(&FinishedRun {
            rule: came.rule.clone(),
            action: came.action.to_string(),
            began,
            ended: self.context.now(),
            result: if came.is_interrupted { "interrupted" } else { "complete" }.to_string(),
            tally: came.tally.clone(),
            has_more: came.has_more,
        })
    }

    /// Does what is left of a list.
    fn go_on(&self, rule: &Rule, mut plan: Plan) -> Result<Came, Failure> {
        let mut came = Came::of(rule);
        (came.is_resumed, came.has_more) = (plan.is_resumed, plan.head.has_more);
        let before = plan.tally.clone();
        let mut result = "complete";
        if plan.is_resumed && self.is_enough(rule)? {
            result = "complete: the space is free by now";
        } else {
            came.is_interrupted = !self.work(rule, &mut plan)?;
        }
        came.tally = since(&plan.tally, &before);
        if !came.is_interrupted {
            self.store.end(&plan, self.context.now(), result)?;
            if matches!(rule.when, When::Space { .. }) && rule.action == Action::Purge {
                self.context.settle(rule, FREED_PATIENCE);
            }
        }
        Ok(came)
    }

    /// What an earlier run began to free is free.
    fn is_enough(&self, rule: &Rule) -> Result<bool, Failure> {
        let When::Space { of, until, .. } = &rule.when else { return Ok(false) };
        let when = When::Space { of: of.clone(), above: *until, until: *until };
        let due = due_by_space(&Rule { when, ..rule.clone() }, self.context.space(rule)?);
        Ok(matches!(due, Due::Not(_)))
    }

    /// False if it was told to stop.
    fn work(&self, rule: &Rule, plan: &mut Plan) -> Result<bool, Failure> {
        let (mut failures, mut may_have_happened) = (0, plan.is_resumed);
        self.progress.of.store(plan.entries.len() as u64, Relaxed);
        loop {
            let at = plan.tally.steps();
            self.progress.done.store(at, Relaxed);
            let Some(e) = usize::try_from(at).ok().and_then(|n| plan.entries.get(n)).cloned() else {
                return Ok(true);
            };
            if self.interrupt.stopped() {
                return Ok(false);
            }
            let turn = rule.rate.map(|n| Deadline::after(Duration::from_secs(1) / n));
            let outcome = match self.one(rule, &e, plan.head.now) {
                Ok(outcome) => outcome,
                Err(f) => {
                    self.report(&f);
                    Outcome::Failed
                }
            };
            failures = if outcome == Outcome::Failed { failures + 1 } else { 0 };
            if failures == FAILURES_MAX {
                let why = format!("{failures} files failed one after the other: run it again to go on");
                return Err(Failure::explained("cannot go on with", &rule.name, Errno::EIO, &why));
            }
            if rule.action == Action::Purge {
                match outcome {
                    Outcome::Done => self.list(rule, &e, true)?,
                    // The run that was ended may have deleted it and not come to say so.
                    Outcome::Gone if may_have_happened => self.list(rule, &e, false)?,
                    _ => {}
                }
            }
            may_have_happened = false;
            self.store.step(plan, &Step { outcome, bytes: e.space })?;
            if let Some(turn) = turn {
                self.interrupt.pause(turn.left());
            }
        }
    }

    /// Does it to one file, if the rule is still about it.
    fn one(&self, rule: &Rule, e: &Entry, now: i64) -> Result<Outcome, Failure> {
        for _ in 0..LOOKS {
            let Some(fresh) = self.context.look(rule, e)? else { return Ok(Outcome::Gone) };
            if !rule.fits(&fresh, now) {
                return Ok(Outcome::Changed);
            }
            let done = match &rule.action {
                Action::Migrate { pool } => self.context.migrate(rule, &fresh, pool),
                _ => self.context.purge(rule, &fresh, now),
            };
            match done {
                Ok(()) => return Ok(Outcome::Done),
                Err(Failure::Op { errno: Errno::ECANCELED, .. }) => {}
                Err(Failure::Op { errno: Errno::EBUSY, .. }) => return Ok(Outcome::Open),
                Err(Failure::Op { errno: Errno::ENOENT | Errno::ESTALE, .. }) => return Ok(Outcome::Gone),
                Err(f) => return Err(f),
            }
        }
        Ok(Outcome::Changed)
    }

    fn list(&self, rule: &Rule, e: &Entry, is_certain: bool) -> Result<(), Failure> {
        let mut line = row(rule, e);
        line["rule"] = json!(rule.name);
        line["when"] = json!(moment::iso(self.context.now()));
        line["certain"] = json!(is_certain);
        append(&self.store.list_of(rule), &json_line(&line))
    }

    /// The heaviest users who are to be told now: uid, files, bytes.
    fn to_tell(
        &self,
        rule: &Rule,
        taken: &Taken,
        (count, remind): (usize, i64),
        now: i64,
    ) -> Result<Vec<(u32, u64, u64)>, Failure> {
        let told = self.store.told(&rule.name)?;
        let mut users: Vec<_> = taken.users.iter().map(|(u, (files, bytes))| (*u, *files, *bytes)).collect();
        users.sort_by_key(|(uid, files, bytes)| (std::cmp::Reverse((*bytes, *files)), *uid));
        users.truncate(count);
        users.retain(|(uid, ..)| told.get(uid).is_none_or(|t| now.saturating_sub(*t) >= remind));
        Ok(users)
    }

    fn notify(
        &self,
        rule: &Rule,
        taken: &Taken,
        (command, count, remind): (&[String], usize, i64),
        now: i64,
        came: &mut Came,
    ) -> Result<(), Failure> {
        let mut told = self.store.told(&rule.name)?;
        told.retain(|_, t| now.saturating_sub(*t) < remind);
        for (uid, files, bytes) in self.to_tell(rule, taken, (count, remind), now)? {
            if self.interrupt.stopped() {
                came.is_interrupted = true;
                break;
            }
            let of_user = taken.entries.iter().filter(|e| e.uid == uid);
            let text = letter(rule, uid, (files, bytes), of_user);
            match self.context.tell(command, &names::user(uid), &text) {
                Ok(()) => {
                    came.told.push((uid, files, bytes));
                    came.tally.done += 1;
                    told.insert(uid, now);
                    // At once: nobody is told twice because a run was ended.
                    self.store.set_told(&rule.name, &told)?;
                }
                Err(f) => {
                    came.tally.failed += 1;
                    self.report(&f);
                }
            }
        }
        Ok(())
    }
}

fn since(now: &Tally, before: &Tally) -> Tally {
    Tally {
        done: now.done - before.done,
        bytes: now.bytes.saturating_sub(before.bytes),
        changed: now.changed - before.changed,
        open: now.open - before.open,
        gone: now.gone - before.gone,
        failed: now.failed - before.failed,
    }
}

/// What a user is told.
fn letter<'a>(
    rule: &Rule,
    uid: u32,
    (files, bytes): (u64, u64),
    entries: impl Iterator<Item = &'a Entry>,
) -> String {
    let (user, place) = (names::user(uid), rule.directory.display());
    let mut out =
        format!("{user}: {files} files of {} below {place} (rule {})\n", human(bytes, 1024), rule.name);
    let mut listed = 0;
    for e in entries.take(TOLD_MAX) {
        listed += 1;
        let (size, read) = (human(e.size, 1024), moment::iso(e.atime.sec));
        let _ = writeln!(out, "{} {size} last accessed {read}", shown(rule, e));
    }
    if listed < files {
        let _ = writeln!(out, "and {} more", files - listed);
    }
    out
}

/// A file as lists have it.
pub fn row(rule: &Rule, e: &Entry) -> Value {
    json!({"path": shown(rule, e), "fid": e.fid.to_string(), "uid": e.uid, "user": names::user(e.uid),
        "gid": e.gid, "group": names::group(e.gid), "projid": e.projid, "size": e.size, "space": e.space,
        "atime": e.atime.sec, "mtime": e.mtime.sec, "ctime": e.ctime.sec, "pool": e.pool, "osts": e.osts})
}

//! `nacre fsck --online`: what a target holds at one moment is looked at while it is served.

use super::target::{Role, Target};
use crate::fsck::{cross, names};
use admin::local::{CheckOrder, CheckProblem, CheckState};
use mds::check::{Summary, Watch, check_watched};
use model::mutex::Mutex;
use model::{Fid, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::object::location::{
    Location, ObjectRecord, Place, TAG_OBJECT, TAG_TOMBSTONE, id_of_key, object_key,
};
use store::{FrozenView, Read};
use world::World;

/// Problems that are told; more are counted.
const PROBLEMS_MAX: usize = 1000;
const PAGE: usize = 1000;

/// The newest check of a target.
#[derive(Default)]
pub struct Checks(Mutex<Option<Check>>);

struct Check {
    watch: Arc<Watch>,
    /// Set at its end.
    result: Arc<Mutex<Option<CheckState>>>,
}

impl Target {
    /// Starts a check, stops it, or says how it stands. The error is for the administrator.
    pub fn check(&self, world: &World, order: CheckOrder) -> Result<CheckState, String> {
        let mut newest = self.checks.0.lock();
        if order == CheckOrder::Start && newest.as_ref().is_none_or(|c| !c.state().running) {
            *newest = Some(self.start_check(world)?);
        }
        let Some(c) = newest.as_ref() else { return Err(format!("{} was not checked yet", self.label())) };
        if order == CheckOrder::Stop {
            c.watch.stop.store(true, Relaxed);
        }
        Ok(c.state())
    }

    fn start_check(&self, world: &World) -> Result<Check, String> {
        let still = self.db.still().map_err(|e| e.to_string())?;
        let (watch, result) = (Arc::new(Watch::default()), Arc::new(Mutex::new(None)));
        let look = match &self.service {
            Role::Mdt(_) => look_at_mdt,
            Role::Ost(_) => look_at_ost,
            Role::Mgs(_) => {
                let bad = mgs::read_configuration(&*self.db)
                    .err()
                    .map(|e| problem("bad-configuration", e.to_string()));
                let problems: Vec<CheckProblem> = bad.into_iter().collect();
                let end = CheckState { errors: problems.len() as u64, problems, ..CheckState::default() };
                return Ok(Check { watch, result: Arc::new(Mutex::new(Some(end))) });
            }
        };
        let (w, r) = (watch.clone(), result.clone());
        let work = world.blocking(move || {
            let end =
                look(&still, &w).unwrap_or_else(|e| CheckState { failed: Some(e), ..CheckState::default() });
            let end = CheckState { looked: w.looked.load(Relaxed), ..end };
            *r.lock() = Some(end);
        });
        world.spawn("check", work);
        Ok(Check { watch, result })
    }
}

impl Check {
    fn state(&self) -> CheckState {
        let end = self.result.lock().clone();
        assert!(end.as_ref().is_none_or(|e| !e.running), "a check that is over does not run");
        let looked = self.watch.looked.load(Relaxed);
        end.unwrap_or(CheckState { running: true, looked, ..CheckState::default() })
    }
}

fn problem(kind: &str, what: String) -> CheckProblem {
    CheckProblem { kind: kind.into(), fid: None, path: None, what }
}

fn look_at_mdt(still: &FrozenView, watch: &Watch) -> Result<CheckState, String> {
    let s: Summary = check_watched(still, watch).map_err(|e| e.to_string())?;
    let told = s.findings.iter().take(PROBLEMS_MAX).map(|f| {
        let about = (f.fid != Fid::NONE).then_some(f.fid);
        CheckProblem {
            fid: about.map(|f| f.to_string()),
            path: about.and_then(|f| cross::path_of(still, f)),
            ..problem(names::kind(f.rule), f.what.clone())
        }
    });
    Ok(CheckState {
        inodes: s.inodes,
        names: s.names,
        problems: told.collect(),
        errors: s.findings.len() as u64 + s.more,
        ..CheckState::default()
    })
}

/// Records of objects; their bytes are what `nacre scrub` reads.
fn look_at_ost(still: &FrozenView, watch: &Watch) -> Result<CheckState, String> {
    let mut out = CheckState::default();
    let mut slots: BTreeMap<Place, ObjectId> = BTreeMap::new();
    each(still, TAG_OBJECT, watch, |k, v| {
        out.objects += 1;
        let Some(id) = id_of_key(k) else {
            note(&mut out, problem("bad-key", format!("key {k:02x?} names no object")));
            return;
        };
        match ObjectRecord::decode(id, v) {
            Err(e) => note(&mut out, problem("bad-record", format!("object {id}: {e}"))),
            Ok(ObjectRecord { location: Location::Packed(p), .. }) => {
                if let Some(other) = slots.insert(p, id) {
                    note(
                        &mut out,
                        problem(
                            "shared-slot",
                            format!("objects {other} and {id} lie in the same place {p:?}"),
                        ),
                    );
                }
            }
            Ok(_) => {}
        }
    })?;
    each(still, TAG_TOMBSTONE, watch, |k, _| {
        let there = |id: &ObjectId| still.get(&object_key(*id)).is_ok_and(|v| v.is_some());
        if let Some(id) = id_of_key(k).filter(there) {
            note(&mut out, problem("undead-object", format!("object {id} is there and destroyed at once")));
        }
    })?;
    Ok(out)
}

fn note(out: &mut CheckState, p: CheckProblem) {
    out.errors += 1;
    if out.problems.len() < PROBLEMS_MAX {
        out.problems.push(p);
    }
    let told = out.problems.len();
    assert!(told <= PROBLEMS_MAX && told as u64 <= out.errors, "each problem that is told is counted");
}

fn each(still: &FrozenView, tag: u8, watch: &Watch, mut f: impl FnMut(&[u8], &[u8])) -> Result<(), String> {
    let (mut from, to) = (vec![tag], [tag + 1]);
    loop {
        if watch.stop.load(Relaxed) {
            return Err("the check was stopped".into());
        }
        let page = still.scan(&from, &to, PAGE).map_err(|e| e.to_string())?;
        assert!(page.len() <= PAGE, "a page has no more keys than were asked for");
        page.iter().for_each(|(k, v)| f(k, v));
        watch.looked.fetch_add(page.len() as u64, Relaxed);
        match page.last() {
            Some((k, _)) if page.len() == PAGE => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(()),
        }
    }
}

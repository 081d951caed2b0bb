//! What `nacre tune --apply` changed, so that `--undo` finds what was there before: a file that is durable
//! before anything is set.

use super::host::{Host, Item, Place};
use crate::failure::Failure;
use model::Errno;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use world::sys::files;

const FILE: &str = "applied.json";
/// Another form has another number.
const VERSION: u32 = 1;

/// One value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    pub place: Place,
    pub before: String,
    pub set: String,
}

/// All that was changed since the last undo, in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    pub profile: String,
    pub changes: Vec<Change>,
}

/// What came of one change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// It is something else now, which somebody else made it: left.
    Left {
        now: String,
    },
    /// It is not there any more: a mount that ended, a disk that was taken out.
    Gone,
    Failed {
        why: String,
        errno: Errno,
    },
}

pub fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// `None`: nothing was applied.
pub fn load(folder: &Path) -> Result<Option<Saved>, Failure> {
    let at = path(folder);
    let shown = at.display().to_string();
    let bytes = match files::read(&at) {
        Ok(b) => b,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::io("cannot read", &shown, e)),
    };
    let bad = |why: &str| Failure::explained("cannot read", &shown, Errno::EINVAL, why);
    let saved: Saved = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
    if saved.version != VERSION {
        return Err(bad("it was written by another version of this program"));
    }
    Ok(Some(saved))
}

fn save(folder: &Path, s: &Saved) -> Result<(), Failure> {
    let shown = path(folder).display().to_string();
    let text = serde_json::to_vec_pretty(s).expect("plain data encodes");
    files::create_private_dir(folder)
        .and_then(|()| files::replace_private(path(folder), &text))
        .map_err(|e| Failure::io("cannot write", &shown, e))
}

/// Sets what is not as wanted. What was there before the first of several times is what is kept.
pub fn apply(host: &Host, folder: &Path, profile: &str, items: &[Item]) -> Result<Vec<Outcome>, Failure> {
    let empty = Saved { version: VERSION, profile: profile.into(), changes: Vec::new() };
    let mut saved = load(folder)?.unwrap_or(empty);
    saved.profile = profile.to_string();
    let wanted: Vec<(&Item, &String)> = items.iter().filter_map(|i| Some((i, i.better.as_ref()?))).collect();
    for (i, set) in &wanted {
        match saved.changes.iter_mut().find(|c| c.place == i.place) {
            Some(c) => c.set.clone_from(set),
            None => saved.changes.push(Change {
                place: i.place.clone(),
                before: i.now.clone(),
                set: (*set).clone(),
            }),
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    // Whatever happens from here on, it can be undone.
    save(folder, &saved)?;
    let mut out = Vec::new();
    for (i, set) in &wanted {
        out.push(match host.set(&i.place, set) {
            Ok(()) => Outcome::Done,
            Err(f) => Outcome::Failed { why: f.to_string(), errno: errno_of(&f) },
        });
    }
    assert!(out.len() == wanted.len(), "each has an outcome");
    Ok(out)
}

fn errno_of(f: &Failure) -> Errno {
    if let Failure::Op { errno, .. } = f { *errno } else { Errno::EINVAL }
}

/// Spaces between numbers do not make a value another one.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// Puts back what was there, the last change first. What fails is kept, to be tried again.
pub fn undo(host: &Host, folder: &Path) -> Result<Vec<(Change, Outcome)>, Failure> {
    let Some(mut saved) = load(folder)? else {
        let shown = path(folder).display().to_string();
        return Err(Failure::explained(
            "cannot undo",
            &shown,
            Errno::ENOENT,
            "nothing was applied, or all of it is undone",
        ));
    };
    let mut out = Vec::new();
    let mut left = Vec::new();
    for c in saved.changes.iter().rev() {
        let outcome = match host.value(&c.place) {
            None => Outcome::Gone,
            Some(now) if same(&now, &c.before) => Outcome::Done,
            Some(now) if !same(&now, &c.set) => Outcome::Left { now },
            Some(_) => match host.set(&c.place, &c.before) {
                Ok(()) => Outcome::Done,
                Err(f) => Outcome::Failed { why: f.to_string(), errno: errno_of(&f) },
            },
        };
        if matches!(outcome, Outcome::Failed { .. }) {
            left.push(c.clone());
        }
        out.push((c.clone(), outcome));
    }
    left.reverse();
    if left.is_empty() {
        let shown = path(folder).display().to_string();
        files::remove_file(path(folder)).map_err(|e| Failure::io("cannot remove", &shown, e))?;
    } else {
        saved.changes = left;
        save(folder, &saved)?;
    }
    Ok(out)
}

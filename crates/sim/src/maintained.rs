//! What actors know of a maintenance that goes on, and what may be answered meanwhile.

use crate::executor::lock;
use ::world::sync;
use model::maintenance::Mode;
use model::mutex::Mutex;

/// What actors know of it.
#[derive(Default)]
pub struct Told {
    /// How it stands, and how often that changed.
    state: Mutex<(State, u64)>,
    /// One at a time: a maintenance, or somebody who cannot do with one.
    gate: sync::Mutex<()>,
}

/// How it stands.
#[derive(Clone, Default)]
pub struct State {
    /// Something is ordered, or some mounts may not know yet that it is over.
    pub ordered: bool,
    /// The mount that is left alone.
    pub except: Option<usize>,
    /// All mounts hold this, and the operator was told so. Counts them, so that two are told from each other.
    pub firm: Option<(Mode, u64)>,
}

/// What an operation does, as a maintenance sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Looks,
    Changes,
    /// It ends something, or shows nothing of files.
    GoesOn,
}

impl Told {
    pub fn set(&self, now: State) {
        let mut s = lock(&self.state);
        *s = (now, s.1 + 1);
    }

    /// Whether a mount may refuse changes, and how often that changed so far.
    pub fn may_refuse(&self, mount: usize) -> (bool, u64) {
        let (s, changes) = &*lock(&self.state);
        (s.ordered && s.except != Some(mount), *changes)
    }

    /// What all mounts but those that are left alone hold.
    pub fn firm(&self, mount: usize) -> Option<(Mode, u64)> {
        let (s, _) = &*lock(&self.state);
        s.firm.filter(|_| s.except != Some(mount))
    }

    /// What is wrong with an answer, if an operation was begun when all mounts held `before`.
    pub fn judge(
        &self,
        mount: usize,
        before: Option<(Mode, u64)>,
        op: Kind,
        done: bool,
    ) -> Result<(), String> {
        let Some((mode, _)) = before.filter(|b| self.firm(mount) == Some(*b)) else { return Ok(()) };
        match mode {
            Mode::ReadOnly if done && op == Kind::Changes => {
                Err("was executed though all mounts had said that changes are refused".into())
            }
            Mode::Closed if op != Kind::GoesOn => {
                Err("was answered though all mounts had said that operations wait".into())
            }
            _ => Ok(()),
        }
    }

    /// Nothing is maintained until what this gives is dropped.
    pub async fn nothing_ordered(&self) -> sync::MutexGuard<'_, ()> {
        self.gate.lock().await
    }
}

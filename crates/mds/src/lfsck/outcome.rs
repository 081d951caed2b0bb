//! What a check found, and what became of it.

use model::Fid;

/// What became of something that was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Repaired,
    /// What is left of it lies in lost+found.
    Quarantined,
    /// It is as it was.
    Left,
}

/// Something that was wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mended {
    /// A short name, one of [`super::state::KINDS`].
    pub kind: &'static str,
    pub fid: Fid,
    pub action: Action,
    /// What was wrong and what was done, for people.
    pub what: String,
}

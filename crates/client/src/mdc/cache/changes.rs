//! When parts of files changed, as far as it matters to answers that are under way: what this mount changes
//! now, and what it changed, or was asked for, since a request started.

use model::planted::{self, Bug};
use model::{Fid, Map};
use std::collections::VecDeque;
use wire::msg::lookup::bits;

/// Changes and revocations remembered; what was asked for before the oldest is not kept.
const MARKS_MAX: usize = 16_384;

/// When a request started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Token(pub(super) u64);

/// A part of a file that changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Part {
    /// Everything in the inode.
    Attr,
    /// One name of a directory, by its hash.
    Name(u64),
    /// The order of a directory's names.
    List,
}

/// The part of a directory that is this name.
pub(crate) fn name_part(name: &[u8]) -> Part {
    use std::hash::BuildHasher;
    Part::Name(Map::<(), ()>::default().hasher().hash_one(name))
}

#[derive(Clone, Copy)]
pub(super) enum Cause {
    /// A change of this mount's own ended.
    Own(Fid, Part),
    /// A change of this mount's own ended that may have been of any inode.
    OwnAnyInode,
    /// These bits were asked for back.
    Revoked(Fid, u8),
    /// All of the file was given back unasked: what older answers grant may be gone with it.
    GivenBack(Fid),
}

struct Mark {
    at: u64,
    cause: Cause,
}

/// What happened, in order.
pub(super) struct Changes {
    count: u64,
    marks: VecDeque<Mark>,
    /// What was asked for before this is not kept.
    floor: u64,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes { count: 1, marks: VecDeque::new(), floor: 1 }
    }

    /// Nothing that was asked for until now is kept.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.count += 1;
        self.floor = self.count;
    }

    pub(super) fn token(&self) -> Token {
        Token(self.count)
    }

    /// The count of now.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Counts on: what was asked for before is older than what happens now.
    pub(super) fn next(&mut self) -> u64 {
        self.count += 1;
        assert!(self.count > self.floor, "what is asked for from now on may be kept");
        self.count
    }

    /// It is not remembered what happened since then.
    pub(super) fn is_forgotten(&self, token: Token) -> bool {
        token.0 < self.floor
    }

    /// It happens now.
    pub(super) fn mark(&mut self, cause: Cause) {
        self.count += 1;
        self.marks.push_back(Mark { at: self.count, cause });
        if self.marks.len() > MARKS_MAX
            && let Some(m) = self.marks.pop_front()
        {
            self.floor = self.floor.max(m.at);
        }
        assert!(
            self.floor <= self.count && self.marks.len() <= MARKS_MAX,
            "what is remembered ends with now"
        );
    }

    /// Why a part of a file that was asked for at `token` may not be kept.
    pub(super) fn overtaken(&self, token: Token, fid: Fid, part: Part) -> Option<Cause> {
        let bit = if part == Part::Attr { bits::UPDATE } else { bits::LOOKUP };
        let newer = self.marks.iter().rev().take_while(|m| m.at > token.0);
        let hit = |m: &&Mark| match m.cause {
            Cause::Own(f, p) => f == fid && p == part,
            Cause::OwnAnyInode => part == Part::Attr,
            Cause::GivenBack(f) => f == fid,
            Cause::Revoked(f, b) => f == fid && b & bit != 0 && !planted::on(Bug::RaceRuleIgnored),
        };
        let mut own = None;
        for m in newer.filter(hit) {
            if let Cause::Revoked(..) | Cause::GivenBack(_) = m.cause {
                return Some(m.cause);
            }
            own = Some(m.cause);
        }
        own
    }
}

/// What this mount changes at this moment.
#[derive(Default)]
pub(crate) struct Busy {
    parts: Map<(Fid, Part), u32>,
    any_inode: u32,
}

impl Busy {
    /// How many changes of this part are under way.
    pub(super) fn times(&self, fid: Fid, part: Part) -> u32 {
        self.parts.get(&(fid, part)).copied().unwrap_or(0)
    }

    /// Whether this part is changed at this moment.
    pub(super) fn part(&self, fid: Fid, part: Part) -> bool {
        self.parts.contains_key(&(fid, part))
    }

    /// Whether any part of this file is, as far as is known.
    pub(super) fn file(&self, fid: Fid) -> bool {
        self.parts.keys().any(|(f, _)| *f == fid)
    }

    /// Whether this mount changes the inode at this moment, or may.
    pub(in crate::mdc) fn inode(&self, fid: Fid) -> bool {
        self.any_inode > 0 || self.part(fid, Part::Attr)
    }

    /// How many changes are under way that may be of any inode.
    pub(super) fn any_inode(&self) -> u32 {
        self.any_inode
    }

    /// A change starts; [`Busy::end`] must follow.
    pub(super) fn begin(&mut self, parts: &[(Fid, Part)], any_inode: bool) {
        for part in parts {
            *self.parts.entry(*part).or_default() += 1;
        }
        self.any_inode += u32::from(any_inode);
    }

    pub(super) fn end(&mut self, parts: &[(Fid, Part)], any_inode: bool) {
        for part in parts {
            let n = self.parts.get_mut(part).expect("begun before");
            assert!(*n > 0, "a part that changes is counted");
            *n -= 1;
            if *n == 0 {
                self.parts.remove(part);
            }
        }
        assert!(self.any_inode >= u32::from(any_inode), "a change ends once");
        self.any_inode -= u32::from(any_inode);
    }
}

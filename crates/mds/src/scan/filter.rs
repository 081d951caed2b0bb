//! Conditions on a file, as far as its inode tells.
//!
//! A file that fits must never be left out: what only object servers know counts as fitting, whether it was
//! asked for or for its opposite.

use crate::schema::Inode;
use model::layout::Component;
use model::{Errno, FileType};
use wire::msg::scan::{Condition, Number, OSTS_MAX, TESTS_MAX, Test};

/// Conditions that must all hold.
pub struct Filter<'a> {
    /// On the fixed part of an inode.
    fixed: Vec<&'a Test>,
    /// On the rest.
    rest: Vec<&'a Test>,
}

/// What an inode says of a number.
enum Known {
    Just(i64),
    /// Object servers may know a larger one.
    AtLeast(i64),
    /// Object servers know it, or the question is not answered here.
    Unknown,
    /// The file has no such thing.
    Nothing,
}

impl<'a> Filter<'a> {
    /// `E2BIG` for more conditions than there can be.
    pub fn new(tests: &'a [Test]) -> Result<Filter<'a>, Errno> {
        let is_long = |t: &Test| match &t.condition {
            Condition::Osts(l) | Condition::FirstOst(l) => l.len() > OSTS_MAX,
            _ => false,
        };
        if tests.len() > TESTS_MAX || tests.iter().any(is_long) {
            return Err(Errno::E2BIG);
        }
        let (fixed, rest) = tests.iter().partition(|t| is_fixed(&t.condition));
        Ok(Filter { fixed, rest })
    }

    /// Whether a file may fit, by the fixed part of its inode.
    pub fn may_fit_by_fixed(&self, i: &Inode) -> bool {
        self.fixed.iter().all(|t| holds(t, i))
    }

    /// Whether a file fits whatever object servers know of it.
    pub fn certainly_fits(&self, i: &Inode) -> bool {
        let certainly = |t: &&Test| tell(&t.condition, i).is_some_and(|fits| fits != t.negated);
        self.fixed.iter().chain(&self.rest).all(certainly)
    }

    /// Whether a file may fit whose fixed part does.
    pub fn may_fit(&self, i: &Inode) -> bool {
        self.rest.iter().all(|t| holds(t, i))
    }
}

/// Whether nothing behind the fixed part is needed. That of times is: a file with objects has others'.
fn is_fixed(c: &Condition) -> bool {
    match c {
        Condition::Types(_) | Condition::Flags { .. } | Condition::Mode { .. } => true,
        Condition::Within(of, ..) => matches!(
            of,
            Number::Uid | Number::Gid | Number::Project | Number::Links | Number::Atime | Number::Btime
        ),
        Condition::Osts(_) | Condition::FirstOst(_) | Condition::Pool(_) => false,
    }
}

fn holds(t: &Test, i: &Inode) -> bool {
    tell(&t.condition, i).is_none_or(|fits| fits != t.negated)
}

/// `None`: the inode does not say.
fn tell(c: &Condition, i: &Inode) -> Option<bool> {
    Some(match c {
        Condition::Types(bits) => u32::from(*bits) >> i.kind.d_type() & 1 == 1,
        Condition::Flags { with, without } => i.flags & with == *with && i.flags & without == 0,
        Condition::Mode { mask, bits } => i.mode & mask == *bits,
        Condition::Within(of, from, to) => match number(*of, i) {
            Known::Just(n) => (*from..=*to).contains(&n),
            Known::AtLeast(n) if n > *to => false,
            Known::AtLeast(_) | Known::Unknown => return None,
            Known::Nothing => false,
        },
        Condition::Osts(list) => {
            i.kind == FileType::Regular
                && i.layout.iter().flat_map(|l| l.objects()).any(|o| list.contains(&o.ost))
        }
        Condition::FirstOst(list) => {
            telling(i).and_then(|c| c.objects.first()).is_some_and(|o| list.contains(&o.ost))
        }
        // Of a directory its default tells, which may be that of one above it.
        Condition::Pool(_) if i.is_dir() => return None,
        Condition::Pool(name) => telling(i).is_some_and(|c| c.pool.as_bytes() == name),
    })
}

fn number(of: Number, i: &Inode) -> Known {
    let has_objects =
        i.kind == FileType::Regular && i.layout.as_ref().is_some_and(|l| l.objects().next().is_some());
    let just = |n: u64| Known::Just(i64::try_from(n).unwrap_or(i64::MAX));
    let of_layout = |n: fn(&Component) -> u64| match telling(i) {
        _ if i.is_dir() => Known::Unknown,
        Some(c) => just(n(c)),
        None => Known::Nothing,
    };
    match of {
        Number::Uid => just(u64::from(i.uid)),
        Number::Gid => just(u64::from(i.gid)),
        Number::Project => just(u64::from(i.projid)),
        Number::Links => just(u64::from(i.nlink)),
        Number::Size | Number::Space | Number::Mtime if has_objects => Known::Unknown,
        Number::Size => just(i.size()),
        Number::Space => just(i.blocks().saturating_mul(512)),
        Number::Atime => Known::Just(i.atime.sec),
        Number::Mtime => Known::Just(i.mtime.sec),
        // Objects make it later, and nothing earlier.
        Number::Ctime if has_objects => Known::AtLeast(i.ctime.sec),
        Number::Ctime => Known::Just(i.ctime.sec),
        Number::Btime => Known::Just(i.btime.sec),
        Number::StripeCount => of_layout(|c| c.objects.len() as u64),
        Number::StripeSize => of_layout(|c| u64::from(c.stripe_size)),
    }
}

/// The component that says how a file is striped: the last that has objects, or else the last.
fn telling(i: &Inode) -> Option<&Component> {
    let all = &i.layout.as_ref().filter(|_| i.kind == FileType::Regular)?.components;
    all.iter().rev().find(|c| !c.objects.is_empty()).or(all.last())
}

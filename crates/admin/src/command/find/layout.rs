//! What is asked of layouts.
//!
//! What no file here has (mirrors, foreign layouts, files released to an archive, directories on several
//! metadata targets) can be asked for: the answer is known.

use super::candidate::Candidate;
use super::range::Range;
use crate::command::getstripe::pattern_word;
use crate::failure::Failure;
use crate::glob;
use model::layout::{COMPONENT_FLAGS, COMPONENT_INIT, Component, component_flag};
use model::{FileType, Layout};
use wire::msg::scan::{Condition, Number};

/// One predicate about a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LayoutTest {
    /// Of the last component that has objects; of a directory: what its default says.
    StripeCount(Range),
    StripeSize(Range),
    Pool(Vec<u8>),
    /// The OST of the first object of that component.
    StripeIndex(Vec<u16>),
    /// OSTs of which one has an object of the file.
    Ost(Vec<u16>),
    /// Some component has one of these patterns.
    Layout(Vec<&'static str>),
    ComponentCount(Range),
    /// Bytes by which some component grows at a time.
    ExtensionSize(Range),
    /// One component fits all of these; `true`: those it must not fit.
    Component(Vec<(bool, ComponentTest)>),
    MirrorCount(Range),
    /// No file has mirrors: whether a file without is meant.
    MirrorState(bool),
}

/// What is asked of one component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ComponentTest {
    Start(Range),
    End(Range),
    /// All of the first, none of the second.
    Flags(u32, u32),
}

const PATTERNS: [&str; 6] = ["raid0", "mdt", "released", "overstriped", "foreign", "parity"];

/// The flag of parity (LCME_FL_PARITY), which no component has here.
const PARITY: u32 = 0x80;

const MIRROR_STATES: [&str; 3] = ["ro", "wp", "sp"];

/// `raid0,mdt`.
pub fn patterns(s: &str) -> Result<Vec<&'static str>, Failure> {
    let one = |w: &str| PATTERNS.iter().find(|p| **p == w).copied();
    let bad = || Failure::usage(format!("bad layout '{s}': of {}", PATTERNS.join(", ")));
    s.split(',').map(one).collect::<Option<_>>().ok_or_else(bad)
}

/// `init,^stale`.
pub fn flags(s: &str) -> Result<ComponentTest, Failure> {
    let (mut with, mut without) = (0, 0);
    for word in s.split(',') {
        let name = word.strip_prefix('^').unwrap_or(word);
        let Some(bit) = component_flag(name).or((name == "parity").then_some(PARITY)) else {
            let all: Vec<&str> =
                COMPONENT_FLAGS.iter().map(|(n, _)| *n).chain(["prefer", "parity"]).collect();
            return Err(Failure::usage(format!("bad component flag '{name}': of {}", all.join(", "))));
        };
        *(if name == word { &mut with } else { &mut without }) |= bit;
    }
    Ok(ComponentTest::Flags(with, without))
}

/// `[^]ro|wp|sp`.
pub fn mirror_state(s: &str) -> Result<LayoutTest, Failure> {
    let state = s.strip_prefix('^').unwrap_or(s);
    if !MIRROR_STATES.contains(&state) {
        return Err(Failure::usage(format!("bad mirror state '{s}': of {}", MIRROR_STATES.join(", "))));
    }
    Ok(LayoutTest::MirrorState(state != s))
}

impl LayoutTest {
    /// Whether a directory may fit, by its default layout.
    pub fn concerns_directories(&self) -> bool {
        matches!(self, LayoutTest::StripeCount(_) | LayoutTest::StripeSize(_) | LayoutTest::Pool(_))
    }

    /// What a metadata server can tell of it.
    pub fn condition(&self) -> Option<Condition> {
        let within = |of, (from, to)| Condition::Within(of, from, to);
        Some(match self {
            LayoutTest::StripeCount(r) => within(Number::StripeCount, r.bounds()),
            LayoutTest::StripeSize(r) => within(Number::StripeSize, r.bounds()),
            LayoutTest::Pool(g) if !glob::is_pattern(g) => Condition::Pool(g.clone()),
            LayoutTest::StripeIndex(list) => Condition::FirstOst(list.clone()),
            LayoutTest::Ost(list) => Condition::Osts(list.clone()),
            _ => return None,
        })
    }

    pub fn fits(&self, c: &Candidate) -> bool {
        match c.kind() {
            FileType::Directory => self.fits_default(c),
            FileType::Regular => {
                c.layout().zip(c.component()).is_some_and(|(l, main)| self.fits_file(l, main))
            }
            _ => false,
        }
    }

    fn fits_default(&self, c: &Candidate) -> bool {
        let Some(d) = c.defaults.as_ref().and_then(|s| s.default.as_ref()) else { return false };
        match self {
            LayoutTest::StripeCount(r) => r.fits(u64::try_from(d.stripe_count).unwrap_or(0)),
            LayoutTest::StripeSize(r) => r.fits(d.stripe_size),
            LayoutTest::Pool(g) => glob::matches(g, d.pool.as_bytes()),
            _ => false,
        }
    }

    fn fits_file(&self, l: &Layout, main: &Component) -> bool {
        match self {
            LayoutTest::StripeCount(r) => r.fits(main.objects.len() as u64),
            LayoutTest::StripeSize(r) => r.fits(u64::from(main.stripe_size)),
            LayoutTest::Pool(g) => glob::matches(g, main.pool.as_bytes()),
            LayoutTest::StripeIndex(list) => main.objects.first().is_some_and(|o| list.contains(&o.ost)),
            LayoutTest::Ost(list) => l.objects().any(|o| list.contains(&o.ost)),
            LayoutTest::Layout(words) => l.components.iter().any(|c| has_pattern(c, words)),
            LayoutTest::ComponentCount(r) => r.fits(l.components.len() as u64),
            LayoutTest::ExtensionSize(r) => {
                let room = l.components.iter().filter(|c| c.is_extension()).filter_map(Component::wanted);
                room.map(|w| w.extension_bytes).any(|n| r.fits(n))
            }
            LayoutTest::Component(all) => {
                l.components.iter().any(|c| all.iter().all(|(not, t)| t.fits(c) != *not))
            }
            LayoutTest::MirrorCount(r) => r.fits(1),
            LayoutTest::MirrorState(without) => *without,
        }
    }
}

fn has_pattern(c: &Component, words: &[&str]) -> bool {
    let overstriped = c.is_overstriped() && words.contains(&"overstriped");
    overstriped || pattern_word(c.pattern).split(',').any(|p| words.contains(&p))
}

impl ComponentTest {
    fn fits(&self, c: &Component) -> bool {
        match self {
            ComponentTest::Start(r) => r.fits(c.start),
            ComponentTest::End(r) => r.fits(c.end),
            ComponentTest::Flags(with, without) => {
                let flags = c.flags & !COMPONENT_INIT | if c.is_instantiated() { COMPONENT_INIT } else { 0 };
                flags & with == *with && flags & without == 0
            }
        }
    }
}

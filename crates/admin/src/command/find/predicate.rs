//! What `lfs find` looks for, one predicate at a time.

use super::candidate::{Candidate, Stage, Time};
use super::layout::LayoutTest;
use super::mode::{self, Compare};
use super::range::Range;
use crate::failure::Failure;
use crate::glob;
use crate::walk::Directory;
use model::FileType;
use model::perm::{FLAG_APPEND, FLAG_IMMUTABLE, FLAG_NOATIME, FLAG_NODUMP, FLAG_SYNC};
use regex::bytes::{Regex, RegexBuilder};
use std::ffi::OsString;
use wire::msg::scan::{Condition, Number, Test};

/// Most bytes that a pattern becomes.
const PATTERN_BYTES: usize = 1 << 20;

/// One predicate.
#[derive(Debug)]
pub enum Predicate {
    Name(Vec<u8>),
    Type(Vec<FileType>),
    /// Metadata targets; every file is on the first.
    Mdt(Vec<u16>),
    /// So many metadata targets hold a directory's names.
    MdtCount(Range),
    /// Kinds of hash by which names are spread over these; `true`: directories that are not spread are meant.
    DirHash(bool),
    /// What no file here is.
    Nothing,
    Size(Range),
    Blocks(Range),
    Age(Time, Range),
    /// Later than this.
    Newer(Time, (i64, u32)),
    Uid(Range),
    Gid(Range),
    Project(Range),
    Perm(Compare, u32),
    Links(Range),
    Attributes(Attributes),
    Xattr(XattrTest),
    Layout(LayoutTest),
}

impl Predicate {
    /// What must be known of a file of this type before it can be told.
    pub fn stage(&self, kind: FileType) -> Stage {
        match self {
            Predicate::Name(_)
            | Predicate::Type(_)
            | Predicate::Mdt(_)
            | Predicate::MdtCount(_)
            | Predicate::DirHash(_)
            | Predicate::Nothing => Stage::Name,
            Predicate::Size(_) | Predicate::Blocks(_) => Stage::Objects,
            Predicate::Age(t, _) | Predicate::Newer(t, _) => t.stage(),
            Predicate::Uid(_)
            | Predicate::Gid(_)
            | Predicate::Project(_)
            | Predicate::Perm(..)
            | Predicate::Links(_)
            | Predicate::Attributes(_) => Stage::Inode,
            Predicate::Xattr(_) => Stage::Question,
            Predicate::Layout(t) if kind == FileType::Directory && t.concerns_directories() => {
                Stage::Question
            }
            Predicate::Layout(_) if kind == FileType::Regular => Stage::Inode,
            Predicate::Layout(_) => Stage::Name,
        }
    }

    /// Whether the answer is the name's, so that few files of a directory may be left.
    pub fn picks_names(&self) -> bool {
        matches!(self, Predicate::Name(_))
    }

    /// What a metadata server can tell of it: where that does not hold, the predicate does not. `now` as in
    /// [`Predicate::fits`].
    pub fn test(&self, negated: bool, now: i64) -> Option<Test> {
        let within = |of, (from, to)| Condition::Within(of, from, to);
        let condition = match self {
            Predicate::Type(list) => Condition::Types(list.iter().fold(0, |bits, t| bits | 1 << t.d_type())),
            Predicate::Nothing => Condition::Types(0),
            Predicate::Size(r) => within(Number::Size, r.bounds()),
            Predicate::Blocks(r) => within(Number::Space, r.bounds()),
            Predicate::Age(t, r) => {
                let (youngest, oldest) = r.age_bounds();
                within(t.number(), (now.saturating_sub(oldest), now.saturating_sub(youngest)))
            }
            Predicate::Newer(t, than) => {
                // To the second, either way.
                let seconds = if negated { (i64::MIN, than.0) } else { (than.0, i64::MAX) };
                return Some(Test { negated: false, condition: within(t.number(), seconds) });
            }
            Predicate::Uid(r) => within(Number::Uid, r.bounds()),
            Predicate::Gid(r) => within(Number::Gid, r.bounds()),
            Predicate::Project(r) => within(Number::Project, r.bounds()),
            Predicate::Links(r) => within(Number::Links, r.bounds()),
            Predicate::Perm(Compare::Exactly, bits) => Condition::Mode { mask: 0o7777, bits: *bits },
            Predicate::Perm(Compare::All, bits) => Condition::Mode { mask: *bits, bits: *bits },
            Predicate::Perm(Compare::Any, 0) => return None,
            Predicate::Perm(Compare::Any, bits) => {
                let none = Condition::Mode { mask: *bits, bits: 0 };
                return Some(Test { negated: !negated, condition: none });
            }
            Predicate::Attributes(a) => Condition::Flags { with: a.with, without: a.without },
            Predicate::Layout(t) => t.condition()?,
            Predicate::Name(_)
            | Predicate::Mdt(_)
            | Predicate::MdtCount(_)
            | Predicate::DirHash(_)
            | Predicate::Xattr(_) => return None,
        };
        Some(Test { negated, condition })
    }

    /// `now`: seconds since 1970. Fails if the file had to be asked and could not be.
    pub fn fits(&self, c: &Candidate, dir: &dyn Directory, now: i64) -> Result<bool, Failure> {
        let attr = || &c.inode().attr;
        Ok(match self {
            Predicate::Name(g) => glob::matches(g, c.shown_name()),
            Predicate::Type(t) => t.contains(&c.kind()),
            Predicate::Mdt(list) => list.contains(&0),
            Predicate::MdtCount(r) => c.is_dir() && r.fits(1),
            Predicate::DirHash(unspread) => c.is_dir() && *unspread,
            Predicate::Nothing => false,
            Predicate::Size(r) => r.fits(c.size()),
            Predicate::Blocks(r) => r.fits(c.blocks().saturating_mul(512)),
            Predicate::Age(t, r) => r.fits_age(now.saturating_sub(c.time(*t).0)),
            Predicate::Newer(t, than) => c.time(*t) > *than,
            Predicate::Uid(r) => r.fits(u64::from(attr().uid)),
            Predicate::Gid(r) => r.fits(u64::from(attr().gid)),
            Predicate::Project(r) => r.fits(u64::from(attr().projid)),
            Predicate::Perm(how, bits) => mode::fits(*how, *bits, attr().mode),
            Predicate::Links(r) => r.fits(u64::from(attr().nlink)),
            Predicate::Attributes(a) => a.fits(attr().flags),
            Predicate::Xattr(x) => x.fits(dir.xattr(c.name(), &x.name)?.as_deref()),
            Predicate::Layout(t) => t.fits(c),
        })
    }
}

/// `-type`: letters, with commas between them or not.
pub fn types(s: &str) -> Result<Vec<FileType>, Failure> {
    let one = |c| {
        Some(match c {
            'b' => FileType::BlockDevice,
            'c' => FileType::CharDevice,
            'd' => FileType::Directory,
            'f' => FileType::Regular,
            'l' => FileType::Symlink,
            'p' => FileType::Fifo,
            's' => FileType::Socket,
            _ => return None,
        })
    };
    let parsed: Option<Vec<FileType>> = s.chars().filter(|c| *c != ',').map(one).collect();
    parsed
        .filter(|v| !v.is_empty())
        .ok_or_else(|| Failure::usage(format!("bad type '{s}': of b c d f l p s")))
}

/// `-H`: `none` is how directories are here; the others, with `^` too, are known names.
pub fn dir_hash(s: &str) -> Result<Predicate, Failure> {
    const KNOWN: [&str; 5] = ["none", "all_char", "fnv_1a_64", "crush", "crush2"];
    let mut unspread = false;
    for word in s.split(',') {
        let name = word.strip_prefix('^').unwrap_or(word);
        if !KNOWN.contains(&name) {
            return Err(Failure::usage(format!("bad hash '{name}': of {}", KNOWN.join(", "))));
        }
        unspread |= (name == "none") == (name == word);
    }
    Ok(Predicate::DirHash(unspread))
}

/// Flags that files have, by their names and the letters of lsattr(1).
pub const ATTRIBUTES: [(&str, char, u32); 8] = [
    ("Sync", 'S', FLAG_SYNC),
    ("Immutable", 'i', FLAG_IMMUTABLE),
    ("Append_Only", 'a', FLAG_APPEND),
    ("No_Dump", 'd', FLAG_NODUMP),
    ("No_Atime", 'A', FLAG_NOATIME),
    ("Project_Inherit", 'P', model::inode_rules::FLAG_PROJINHERIT),
    // Kept by no file here.
    ("Compressed", 'c', 0x4),
    ("Encrypted", 'E', 0x800),
];

/// Flags that a file must have, and must not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    with: u32,
    without: u32,
}

impl Attributes {
    /// `Immutable,^No_Dump`: names, however capitals are used, or letters.
    pub fn parse(s: &str) -> Result<Attributes, Failure> {
        let mut out = Attributes { with: 0, without: 0 };
        for word in s.split(',') {
            let name = word.strip_prefix('^').unwrap_or(word);
            let is = |(n, letter, _): &&(&str, char, u32)| {
                n.eq_ignore_ascii_case(name) || name.strip_prefix(*letter).is_some_and(str::is_empty)
            };
            let Some((.., bit)) = ATTRIBUTES.iter().find(is) else {
                let all: Vec<&str> = ATTRIBUTES.iter().map(|(n, ..)| *n).collect();
                return Err(Failure::usage(format!("bad attribute '{name}': of {}", all.join(", "))));
            };
            *(if name == word { &mut out.with } else { &mut out.without }) |= bit;
        }
        Ok(out)
    }

    fn fits(self, flags: u32) -> bool {
        flags & self.with == self.with && flags & self.without == 0
    }
}

/// An extended attribute, and what the whole of its value must match.
#[derive(Debug)]
pub struct XattrTest {
    absent: bool,
    name: OsString,
    value: Option<Regex>,
}

impl XattrTest {
    /// `[^]NAME[=REGEX]`.
    pub fn parse(s: &str) -> Result<XattrTest, Failure> {
        let (absent, rest) = s.strip_prefix('^').map_or((false, s), |r| (true, r));
        let (name, value) = rest.split_once('=').map_or((rest, None), |(n, v)| (n, Some(v)));
        if name.is_empty() {
            return Err(Failure::usage(format!("bad extended attribute '{s}': expected NAME[=REGEX]")));
        }
        let value = value.map(|v| pattern(s, v)).transpose()?;
        Ok(XattrTest { absent, name: name.into(), value })
    }

    fn fits(&self, value: Option<&[u8]>) -> bool {
        let hit = match (&self.value, value) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(r), Some(v)) => r.is_match(v),
        };
        hit != self.absent
    }
}

fn pattern(shown: &str, regex: &str) -> Result<Regex, Failure> {
    let whole = format!(r"\A(?:{regex})\z");
    let built =
        RegexBuilder::new(&whole).unicode(false).dot_matches_new_line(true).size_limit(PATTERN_BYTES).build();
    built.map_err(|e| Failure::usage(format!("bad regular expression in '{shown}': {e}")))
}

//! What `lfs find` looks for.

use super::Output;
use crate::failure::Failure;
use crate::getopt::Takes;
use crate::size::{parse_bytes, parse_index_list, parse_int};
use crate::{glob, names};
use client::control::Stripe;
use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use world::sys::files::{self, NameStat};

/// A file whose layout can be asked for.
pub trait Seen {
    fn stripe(&mut self) -> Option<&Stripe>;
}

/// `+N`, `-N` or `N`, with what one unit of N is worth: `N` means within that unit.
#[derive(Clone, Copy, Debug)]
struct Range {
    sign: Ordering,
    n: i128,
    unit: i128,
}

impl Range {
    /// `value` counted in units, rounded up, compared with N (as find(1) does for sizes).
    fn fits_rounded_up(&self, value: u64) -> bool {
        let units = (i128::from(value) + self.unit - 1).div_euclid(self.unit);
        units.cmp(&self.n) == self.sign
    }

    /// Ages are rounded down.
    fn fits_age(&self, seconds: i64) -> bool {
        i128::from(seconds).div_euclid(self.unit).cmp(&self.n) == self.sign
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Access,
    Modify,
    Change,
}

#[derive(Debug)]
enum Test {
    Name(Vec<u8>),
    Type(Vec<u32>),
    Size(Range),
    Blocks(Range),
    Age(Time, Range),
    Newer(i64),
    User(u32),
    Group(u32),
    /// `/`: any bit, `-`: all bits, else exactly.
    Perm(char, u32),
    Links(Range),
    StripeCount(Range),
    StripeSize(Range),
    StripeIndex(Vec<u16>),
    Ost(Vec<u16>),
    Layout(String),
    Pool(Vec<u8>),
    Mdt(Vec<u16>),
}

#[derive(Debug, Default)]
pub struct Query {
    tests: Vec<(bool, Test)>,
    pub max_depth: u32,
    pub min_depth: u32,
    pub output: Output,
    now: i64,
}

/// (names, argument); long names also with two dashes, any unambiguous beginning of four letters or more.
const OPTIONS: &[(&[&str], Takes)] = &[
    (&["name", "n"], Takes::Value),
    (&["type", "t"], Takes::Value),
    (&["size", "s"], Takes::Value),
    (&["blocks", "b"], Takes::Value),
    (&["atime", "A"], Takes::Value),
    (&["mtime", "M"], Takes::Value),
    (&["ctime", "C"], Takes::Value),
    (&["newer"], Takes::Value),
    (&["user", "u", "uid", "U"], Takes::Value),
    (&["group", "g", "gid", "G"], Takes::Value),
    (&["perm"], Takes::Value),
    (&["links"], Takes::Value),
    (&["maxdepth", "D"], Takes::Value),
    (&["mindepth", "d"], Takes::Value),
    (&["stripe-count", "c"], Takes::Value),
    (&["stripe-size", "S"], Takes::Value),
    (&["stripe-index", "i", "stripe_index"], Takes::Value),
    (&["ost", "O", "obd"], Takes::Value),
    (&["layout", "L"], Takes::Value),
    (&["pool"], Takes::Value),
    (&["mdt", "m", "mdt-index"], Takes::Value),
    (&["printf"], Takes::Value),
    (&["print0", "0"], Takes::Nothing),
    (&["print", "P"], Takes::Nothing),
    (&["ls"], Takes::Nothing),
    (&["lazy"], Takes::Nothing),
    (&["json"], Takes::Nothing),
];

fn option(word: &str) -> Result<(&'static str, Takes), Failure> {
    let name = word.trim_start_matches('-');
    let exact = OPTIONS.iter().find(|(names, _)| names.contains(&name));
    if let Some((names, takes)) = exact {
        return Ok((names[0], *takes));
    }
    let hits: Vec<_> = OPTIONS.iter().filter(|(n, _)| name.len() >= 4 && n[0].starts_with(name)).collect();
    match hits.as_slice() {
        [(names, takes)] => Ok((names[0], *takes)),
        _ => Err(Failure::usage(format!("unknown predicate '{word}'"))),
    }
}

fn range(s: &str, parse: impl Fn(&str) -> Option<(i128, i128)>) -> Result<Range, Failure> {
    let (sign, rest) = match s.as_bytes().first() {
        Some(b'+') => (Ordering::Greater, &s[1..]),
        Some(b'-') => (Ordering::Less, &s[1..]),
        _ => (Ordering::Equal, s),
    };
    let (n, unit) = parse(rest).ok_or_else(|| Failure::usage(format!("bad number '{s}'")))?;
    Ok(Range { sign, n, unit })
}

/// A count of units: `3M` is 3 units of 1 MiB.
fn sized(s: &str, default_unit: u64) -> Option<(i128, i128)> {
    let digits = s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: i128 = s[..digits].parse().ok()?;
    let unit = parse_bytes(&format!("1{}", &s[digits..]), default_unit)?;
    Some((n, i128::from(unit)))
}

fn exact_bytes(s: &str) -> Option<(i128, i128)> {
    parse_bytes(s, 1).map(|n| (i128::from(n), 1))
}

fn counted(s: &str) -> Option<(i128, i128)> {
    parse_int(s).map(|n| (i128::from(n), 1))
}

fn aged(s: &str) -> Option<(i128, i128)> {
    let digits = s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: i128 = s[..digits].parse().ok()?;
    let unit = match &s[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "" | "d" => 86400,
        "w" => 7 * 86400,
        "y" => 365 * 86400,
        _ => return None,
    };
    Some((n, unit))
}

fn types(s: &str) -> Result<Vec<u32>, Failure> {
    let one = |c| match c {
        'b' => Some(0o060000),
        'c' => Some(0o020000),
        'd' => Some(0o040000),
        'f' => Some(0o100000),
        'l' => Some(0o120000),
        'p' => Some(0o010000),
        's' => Some(0o140000),
        _ => None,
    };
    let parsed: Option<Vec<u32>> = s.chars().filter(|c| *c != ',').map(one).collect();
    parsed
        .filter(|v| !v.is_empty())
        .ok_or_else(|| Failure::usage(format!("bad type '{s}': of b c d f l p s")))
}

fn perm(s: &str) -> Result<Test, Failure> {
    let (how, digits) = match s.chars().next() {
        Some(c @ ('/' | '-')) => (c, &s[1..]),
        _ => ('=', s),
    };
    let bits = u32::from_str_radix(digits, 8).ok().filter(|m| *m <= 0o7777);
    bits.map(|b| Test::Perm(how, b))
        .ok_or_else(|| Failure::usage(format!("bad mode '{s}': expected octal digits")))
}

fn id(s: &str, find: fn(&str) -> Option<u32>, what: &str) -> Result<u32, Failure> {
    find(s).ok_or_else(|| Failure::usage(format!("unknown {what} '{s}'")))
}

impl Query {
    /// Paths first, then predicates (or mixed).
    pub fn parse(args: &[OsString]) -> Result<(Vec<PathBuf>, Query), Failure> {
        let mut q = Query { max_depth: u32::MAX, now: world::sys::wall_seconds(), ..Query::default() };
        let (mut roots, mut negate) = (Vec::new(), false);
        let mut it = args.iter();
        while let Some(a) = it.next() {
            let word = a.to_string_lossy();
            if word == "!" || word == "-not" {
                negate = !negate;
                continue;
            }
            if !word.starts_with('-') || word.len() < 2 {
                roots.push(PathBuf::from(a));
                continue;
            }
            let (word, inline) = match word.split_once('=') {
                Some((w, v)) if word.starts_with("--") => (w.to_string(), Some(v.to_string())),
                _ => (word.to_string(), None),
            };
            let (name, takes) = option(&word)?;
            let value = match (takes, inline) {
                (Takes::Value, Some(v)) => v,
                (Takes::Value, None) => {
                    let v =
                        it.next().ok_or_else(|| Failure::usage(format!("'{word}' requires an argument")))?;
                    v.to_string_lossy().into_owned()
                }
                _ => String::new(),
            };
            q.add(name, &value, negate)?;
            negate = false;
        }
        Ok((roots, q))
    }

    fn add(&mut self, name: &str, v: &str, negate: bool) -> Result<(), Failure> {
        let depth = || v.parse::<u32>().map_err(|_| Failure::usage(format!("bad depth '{v}'")));
        let test = match name {
            "name" => Test::Name(v.as_bytes().to_vec()),
            "type" => Test::Type(types(v)?),
            "size" => Test::Size(range(v, |s| sized(s, 512))?),
            "blocks" => Test::Blocks(range(v, |s| sized(s, 512))?),
            "atime" => Test::Age(Time::Access, range(v, aged)?),
            "mtime" => Test::Age(Time::Modify, range(v, aged)?),
            "ctime" => Test::Age(Time::Change, range(v, aged)?),
            "newer" => {
                let st = files::stat(Path::new(v), true).map_err(|e| Failure::io("cannot stat", v, e))?;
                Test::Newer(st.mtime)
            }
            "user" => Test::User(id(v, names::uid, "user")?),
            "group" => Test::Group(id(v, names::gid, "group")?),
            "perm" => perm(v)?,
            "links" => Test::Links(range(v, counted)?),
            "stripe-count" => Test::StripeCount(range(v, counted)?),
            "stripe-size" => Test::StripeSize(range(v, exact_bytes)?),
            "stripe-index" => Test::StripeIndex(parse_index_list(v)?),
            "ost" => Test::Ost(parse_index_list(v)?),
            "layout" => Test::Layout(v.to_string()),
            "pool" => Test::Pool(v.as_bytes().to_vec()),
            "mdt" => Test::Mdt(parse_index_list(v)?),
            "maxdepth" => {
                self.max_depth = depth()?;
                return Ok(());
            }
            "mindepth" => {
                self.min_depth = depth()?;
                return Ok(());
            }
            "printf" => {
                self.output = Output::Format(v.to_string());
                return Ok(());
            }
            other => {
                self.output = match other {
                    "print0" => Output::Zeros,
                    "ls" => Output::Long,
                    "json" => Output::Json,
                    "print" => Output::Lines,
                    _ => return Ok(()),
                };
                return Ok(());
            }
        };
        // Layout predicates cost a question to the servers: they come last.
        let costly = matches!(
            test,
            Test::StripeCount(_)
                | Test::StripeSize(_)
                | Test::StripeIndex(_)
                | Test::Ost(_)
                | Test::Layout(_)
                | Test::Pool(_)
        );
        if costly {
            self.tests.push((negate, test));
        } else {
            self.tests.insert(0, (negate, test));
        }
        Ok(())
    }

    /// The OSTs of which a file must have one, if the query says so: the metadata servers have an index by
    /// them.
    pub fn osts(&self) -> Option<&[u16]> {
        let one = |(negate, t): &'_ (bool, Test)| matches!(t, Test::Ost(_)) && !*negate;
        match &self.tests.iter().find(|t| one(t))?.1 {
            Test::Ost(list) => Some(list),
            _ => None,
        }
    }

    /// Whether a path of the index says everything: nothing needs a look at the file, which may have to wait
    /// for an OST.
    pub fn needs_no_look(&self) -> bool {
        let osts = self.tests.iter().filter(|(_, t)| matches!(t, Test::Ost(_))).count();
        let plain = |(_, t): &(bool, Test)| matches!(t, Test::Name(_) | Test::Ost(_) | Test::Mdt(_));
        osts == 1 && self.tests.iter().all(plain) && matches!(self.output, Output::Lines | Output::Zeros)
    }

    /// [`Query::matches`] of a file of the index, for a query that needs no look.
    pub fn matches_indexed(&self, path: &Path) -> bool {
        self.tests.iter().all(|(negate, t)| match t {
            Test::Name(g) => {
                glob::matches(g, path.file_name().unwrap_or(path.as_os_str()).as_bytes()) != *negate
            }
            Test::Mdt(list) => list.contains(&0) != *negate,
            _ => true,
        })
    }

    pub fn matches(&self, path: &Path, st: &NameStat, seen: &mut dyn Seen) -> bool {
        self.tests.iter().all(|(negate, t)| t.fits(path, st, seen, self.now) != *negate)
    }
}

impl Test {
    fn fits(&self, path: &Path, st: &NameStat, seen: &mut dyn Seen, now: i64) -> bool {
        match self {
            Test::Name(g) => {
                let shown = path.file_name().unwrap_or(path.as_os_str());
                glob::matches(g, shown.as_bytes())
            }
            Test::Type(t) => t.contains(&(st.mode & 0o170000)),
            Test::Size(r) => r.fits_rounded_up(st.size),
            Test::Blocks(r) => r.fits_rounded_up(st.blocks.saturating_mul(512)),
            Test::Age(which, r) => {
                let t = match which {
                    Time::Access => st.atime,
                    Time::Modify => st.mtime,
                    Time::Change => st.ctime,
                };
                r.fits_age(now.saturating_sub(t))
            }
            Test::Newer(t) => st.mtime > *t,
            Test::User(u) => st.uid == *u,
            Test::Group(g) => st.gid == *g,
            Test::Perm('/', bits) => *bits == 0 || st.mode & bits != 0,
            Test::Perm('-', bits) => st.mode & bits == *bits,
            Test::Perm(_, bits) => st.mode & 0o7777 == *bits,
            Test::Links(r) => r.fits_rounded_up(st.nlink),
            Test::Mdt(list) => list.contains(&0),
            _ => seen.stripe().is_some_and(|s| self.fits_layout(s)),
        }
    }

    fn fits_layout(&self, s: &Stripe) -> bool {
        let (layout, default) = (s.layout.as_ref(), s.default.as_ref());
        let count = layout.map(|l| l.stripe_count() as u64).or(default.map(|d| d.stripe_count.max(0) as u64));
        let size = layout.map(|l| u64::from(l.shown().stripe_size)).or(default.map(|d| d.stripe_size));
        match self {
            Test::StripeCount(r) => count.is_some_and(|c| r.fits_rounded_up(c)),
            Test::StripeSize(r) => size.is_some_and(|n| r.fits_rounded_up(n)),
            Test::StripeIndex(list) => {
                layout.and_then(|l| l.objects().next()).is_some_and(|o| list.contains(&o.ost))
            }
            Test::Ost(list) => layout.is_some_and(|l| l.objects().any(|o| list.contains(&o.ost))),
            Test::Layout(w) => layout.is_some_and(|l| {
                crate::command::getstripe::pattern_word(l.shown().pattern).split(',').any(|p| p == w)
            }),
            Test::Pool(g) => layout.is_some_and(|l| glob::matches(g, l.shown().pool.as_bytes())),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Seen for Nothing {
        fn stripe(&mut self) -> Option<&Stripe> {
            None
        }
    }

    fn q(args: &[&str]) -> Query {
        Query::parse(&args.iter().map(OsString::from).collect::<Vec<_>>()).unwrap().1
    }

    fn st(size: u64, mtime: i64) -> NameStat {
        let (mode, ino) = (0o100644, 1);
        NameStat { mode, ino, nlink: 1, uid: 0, gid: 0, size, blocks: 8, atime: 0, mtime, ctime: 0, dev: 0 }
    }

    #[test]
    fn predicates_select() {
        let now = world::sys::wall_seconds();
        let hit =
            |args: &[&str], size, mtime| q(args).matches(Path::new("/m/abc"), &st(size, mtime), &mut Nothing);
        assert!(hit(&["/m", "-name", "a*"], 0, now));
        assert!(!hit(&["/m", "!", "-name", "a*"], 0, now));
        assert!(hit(&["/m", "--size", "+1M"], (2 << 20) + 1, now));
        assert!(!hit(&["/m", "-size", "+2M"], 2 << 20, now));
        assert!(hit(&["/m", "-size", "100c"], 100, now));
        assert!(hit(&["/m", "-mtime", "-1"], 0, now));
        assert!(hit(&["/m", "-mtime", "+1h"], 0, now - 3 * 3600));
        assert!(hit(&["/m", "-type", "f", "-perm", "-600", "-user", "0"], 0, now));
        assert!(!hit(&["/m", "-type", "d,l"], 0, now));
        assert!(!hit(&["/m", "-stripe-count", "1"], 0, now));
        assert_eq!(q(&["/m", "-maxd", "2"]).max_depth, 2);
        for bad in [&["/m", "-nope"][..], &["/m", "-size", "x"], &["/m", "-type", "z"], &["/m", "-name"]] {
            assert!(Query::parse(&bad.iter().map(OsString::from).collect::<Vec<_>>()).is_err());
        }
    }
}

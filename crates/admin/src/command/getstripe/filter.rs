//! Which components are shown, and which of their values.

use super::part::{Part, Parts};
use crate::failure::Failure;
use crate::getopt::Parsed;
use crate::size::{parse_bytes, parse_int};
use model::layout::{EOF, component_flag};
use std::cmp::Ordering;

/// A number that was given as `n`, `+n` (more) or `-n` (less), perhaps behind `!`.
struct Compared {
    order: Ordering,
    value: u64,
    negated: bool,
}

impl Compared {
    fn parse(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Compared> {
        let of = |order, t| number(t).map(|value| Compared { order, value, negated: false });
        match text.split_at_checked(1) {
            _ if matches!(text, "-1" | "eof" | "EOF") => of(Ordering::Equal, text),
            Some(("+", rest)) => of(Ordering::Greater, rest),
            Some(("-", rest)) => of(Ordering::Less, rest),
            _ => of(Ordering::Equal, text),
        }
    }

    fn fits(&self, n: u64) -> bool {
        (n.cmp(&self.value) == self.order) != self.negated
    }
}

/// What a component must be like.
#[derive(Default)]
pub struct Filter {
    id: Option<u32>,
    start: Option<Compared>,
    end: Option<Compared>,
    /// Bits that it has, bits that it has not.
    flags: Option<(u32, u32)>,
    mirror_index: Vec<Compared>,
    mirror_id: Vec<Compared>,
}

/// The words of a list of flags: those to be set, those behind `^`. A usage failure for unknown ones.
pub fn parse_flags(list: &str) -> Result<(u32, u32), Failure> {
    let (mut with, mut without) = (0, 0);
    for w in list.split(',') {
        let (word, set) = match w.strip_prefix('^') {
            Some(word) => (word, &mut without),
            None => (w, &mut with),
        };
        *set |=
            component_flag(word).ok_or_else(|| Failure::usage(format!("unknown component flag '{word}'")))?;
    }
    Ok((with, without))
}

/// Bytes; the end of the file as `-1` or `eof`.
fn offset(s: &str) -> Option<u64> {
    if matches!(s, "-1" | "eof" | "EOF") { Some(EOF) } else { parse_bytes(s, 1) }
}

impl Filter {
    pub fn new(p: &Parsed) -> Result<Filter, Failure> {
        let bad = |option: &str, v: &str| Failure::usage(format!("bad value '{v}' of --{option}"));
        let count = |s: &str| parse_int(s).and_then(|n| u64::try_from(n).ok());
        let one = |option: &str, number: &dyn Fn(&str) -> Option<u64>| match p.value(option) {
            None => Ok(None),
            Some(v) => Compared::parse(v, number).map(Some).ok_or_else(|| bad(option, v)),
        };
        let mut f = Filter {
            start: one("component-start", &offset)?,
            end: one("component-end", &offset)?,
            ..Filter::default()
        };
        if let Some(v) = p.value("component-id") {
            let id = count(v).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
            f.id = Some(id.ok_or_else(|| bad("component-id", v))?);
        }
        f.flags = p.value("component-flags").map(parse_flags).transpose()?;
        for (option, v) in &p.options {
            let (name, negated) = match option.strip_prefix("not-") {
                Some(name) => (name, true),
                None => (*option, false),
            };
            let list = match name {
                "mirror-index" => &mut f.mirror_index,
                "mirror-id" => &mut f.mirror_id,
                _ => continue,
            };
            let v = v.as_deref().unwrap_or_default();
            let c = Compared::parse(v, count).ok_or_else(|| bad(name, v))?;
            list.push(Compared { negated, ..c });
        }
        Ok(f)
    }

    /// Whether it says anything.
    pub fn is_given(&self) -> bool {
        let one = self.id.is_some() || self.start.is_some() || self.end.is_some() || self.flags.is_some();
        one || !self.mirror_index.is_empty() || !self.mirror_id.is_empty()
    }

    fn fits(&self, p: &Part) -> bool {
        // A file without mirrors is its first and only one, which has no id.
        let index = u64::from(p.mirror.max(1));
        self.id.is_none_or(|id| id == p.id)
            && self.start.as_ref().is_none_or(|c| c.fits(p.start))
            && self.end.as_ref().is_none_or(|c| c.fits(p.end))
            && self.flags.is_none_or(|(with, without)| p.flags & with == with && p.flags & without == 0)
            && self.mirror_index.iter().all(|c| c.fits(index))
            && self.mirror_id.iter().all(|c| c.fits(p.mirror.into()))
    }

    /// Those of a layout that fit, in its order.
    pub fn select<'a>(&self, l: &'a Parts) -> Vec<&'a Part> {
        l.parts.iter().filter(|p| self.fits(p)).collect()
    }

    /// Those whose single values are shown: all that fit, or the main one if nothing is said of them.
    pub fn of_values<'a>(&self, l: &'a Parts) -> Vec<&'a Part> {
        if self.is_given() { self.select(l) } else { vec![l.main()] }
    }
}

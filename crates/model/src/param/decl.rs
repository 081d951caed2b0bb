//! The one declaration of a parameter or statistic.

use super::PARAM_TEXT_MAX_BYTES;
use super::value::Value;
use crate::Errno;
use serde::{Deserialize, Serialize};

/// Checks words that somebody wants to set: `EINVAL` or `ERANGE` for what cannot be.
pub type WordsCheck = fn(&str) -> Result<(), Errno>;

/// What a parameter or statistic is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A setting: 0 or 1.
    Flag,
    /// A setting: a whole number of the unit within these bounds, a multiple of `step`.
    Number { min: u64, max: u64, step: u64 },
    /// A setting of words.
    Words(WordsCheck),
    /// Words that are shown.
    Text,
    /// A number that goes up and down.
    Gauge,
    /// A number that only grows, until the start of its program or until somebody clears it.
    Counter,
    /// Several of the two, each under its name.
    Fields,
    /// Operations by kind: how often, and what sizes or times ([`crate::counters`]).
    Counters,
    /// Counts by size ([`crate::histogram`]).
    Histogram,
    /// What each job did ([`crate::jobs`]).
    Jobs,
}

/// What a setting is unless somebody sets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// It has none, or nothing can be set.
    None,
    Number(u64),
    Words(&'static str),
    /// It depends on the host, as these words say.
    Host(&'static str),
}

impl std::fmt::Display for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Preset::None => Ok(()),
            Preset::Number(n) => n.fmt(f),
            Preset::Words(w) | Preset::Host(w) => f.write_str(w),
        }
    }
}

/// The declaration; what is shown, asked and checked is made from it.
#[derive(Clone, Copy, Debug)]
pub struct Decl {
    /// The last part of the dotted name.
    pub name: &'static str,
    pub kind: Kind,
    /// `KiB`, `MiB`, `ms`, `files`; empty for flags and words.
    pub unit: &'static str,
    pub default: Preset,
    /// It can be set. Statistics that can are cleared by that.
    pub writable: bool,
    /// `lctl set_param -P` may set it for good.
    pub lasting: bool,
    pub help: &'static str,
}

/// A value for a parameter, checked against its declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting<'a> {
    /// Of flags and numbers, in the parameter's unit; 0 of words.
    pub number: u64,
    /// As it was given, without blanks around it.
    pub text: &'a str,
}

impl Setting<'_> {
    pub fn is_on(&self) -> bool {
        self.number == 1
    }
}

impl Decl {
    const fn shown(name: &'static str, kind: Kind, unit: &'static str, help: &'static str) -> Decl {
        Decl { name, kind, unit, default: Preset::None, writable: false, lasting: false, help }
    }

    const fn set(name: &'static str, kind: Kind, default: Preset, help: &'static str) -> Decl {
        Decl { name, kind, unit: "", default, writable: true, lasting: true, help }
    }

    /// A number that can be set.
    pub const fn number(
        name: &'static str,
        (min, max): (u64, u64),
        unit: &'static str,
        default: u64,
        help: &'static str,
    ) -> Decl {
        assert!(min <= default && default <= max, "a default is within the bounds");
        let kind = Kind::Number { min, max, step: 1 };
        Decl { unit, ..Decl::set(name, kind, Preset::Number(default), help) }
    }

    /// 0 or 1, to be set.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> Decl {
        Decl::set(name, Kind::Flag, Preset::Number(default as u64), help)
    }

    /// Words that can be set.
    pub const fn words(
        name: &'static str,
        default: &'static str,
        check: WordsCheck,
        help: &'static str,
    ) -> Decl {
        Decl::set(name, Kind::Words(check), Preset::Words(default), help)
    }

    /// An order: what it shows is how that stands.
    pub const fn order(name: &'static str, check: WordsCheck, help: &'static str) -> Decl {
        Decl::set(name, Kind::Words(check), Preset::None, help)
    }

    /// Words that are shown.
    pub const fn text(name: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Text, "", help)
    }

    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Gauge, unit, help)
    }

    pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Counter, unit, help)
    }

    pub const fn fields(name: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Fields, "", help)
    }

    pub const fn counters(name: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Counters, "", help).cleared()
    }

    pub const fn histogram(name: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Histogram, "", help).cleared()
    }

    pub const fn jobs(name: &'static str, help: &'static str) -> Decl {
        Decl::shown(name, Kind::Jobs, "", help).cleared()
    }

    /// Whatever is written clears it.
    pub const fn cleared(self) -> Decl {
        Decl { writable: true, lasting: true, ..self }
    }

    /// Only multiples of this.
    pub const fn in_steps(self, step: u64) -> Decl {
        match self.kind {
            Kind::Number { min, max, .. } => {
                assert!(step > 0 && min % step == 0 && max % step == 0, "the bounds are steps themselves");
                Decl { kind: Kind::Number { min, max, step }, ..self }
            }
            _ => self,
        }
    }

    pub const fn in_unit(self, unit: &'static str) -> Decl {
        Decl { unit, ..self }
    }

    pub const fn by_default(self, default: Preset) -> Decl {
        Decl { default, ..self }
    }

    /// What is set ends with its program: `set_param -P` has no use for it.
    pub const fn until_restart(self) -> Decl {
        Decl { lasting: false, ..self }
    }

    /// Bytes that one of its unit has, if it counts memory or space.
    fn unit_bytes(&self) -> Option<u64> {
        match self.unit {
            "bytes" => Some(1),
            "KiB" => Some(1 << 10),
            "pages" => Some(4096),
            "MiB" => Some(1 << 20),
            _ => None,
        }
    }

    /// A whole number, in decimal or with 0x; sizes may have K, M, G or T behind them.
    fn count(&self, text: &str) -> Result<u64, Errno> {
        if let Some(hex) = text.strip_prefix("0x") {
            return u64::from_str_radix(hex, 16).map_err(|_| Errno::EINVAL);
        }
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let n: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
        let shift = match (text[digits.len()..].to_ascii_lowercase().as_str(), self.unit_bytes()) {
            ("", _) => return Ok(n),
            ("k" | "kb" | "kib", Some(_)) => 10,
            ("m" | "mb" | "mib", Some(_)) => 20,
            ("g" | "gb" | "gib", Some(_)) => 30,
            ("t" | "tb" | "tib", Some(_)) => 40,
            _ => return Err(Errno::EINVAL),
        };
        let bytes = n.checked_mul(1 << shift).ok_or(Errno::ERANGE)?;
        let unit = self.unit_bytes().unwrap_or(1);
        if bytes.is_multiple_of(unit) { Ok(bytes / unit) } else { Err(Errno::EINVAL) }
    }

    /// Checks a value that somebody wants to set: `EACCES` if it is only shown, `E2BIG` if it is too long,
    /// `EINVAL` if it is no number or not a word that it takes, `ERANGE` if it is out of bounds.
    pub fn check<'a>(&self, given: &'a str) -> Result<Setting<'a>, Errno> {
        if !self.writable {
            return Err(Errno::EACCES);
        }
        if given.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let text = given.trim();
        let number = match self.kind {
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "y" | "yes" | "on" => 1,
                "n" | "no" | "off" => 0,
                _ => self.count(text)?,
            },
            Kind::Number { .. } => self.count(text)?,
            Kind::Words(check) => check(text).map(|()| 0)?,
            _ => 0,
        };
        if let Some((min, max)) = self.range()
            && !(min..=max).contains(&number)
        {
            return Err(Errno::ERANGE);
        }
        match self.kind {
            Kind::Number { step, .. } if !number.is_multiple_of(step) => Err(Errno::EINVAL),
            _ => Ok(Setting { number, text }),
        }
    }

    /// The bounds of a number or flag that can be set.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self.kind {
            Kind::Flag => Some((0, 1)),
            Kind::Number { min, max, .. } => Some((min, max)),
            _ => None,
        }
    }

    /// Why [`Decl::check`] refused a value, in words for who gave it.
    pub fn why(&self, e: Errno) -> String {
        match (e, self.kind) {
            (Errno::EACCES, _) => "it is only shown".into(),
            (Errno::EINVAL, Kind::Flag) => "it takes 0 or 1".into(),
            (Errno::EINVAL, Kind::Number { step: 1, .. }) => "it takes a whole number".into(),
            (Errno::EINVAL, Kind::Number { step, .. }) => format!("it takes multiples of {step}"),
            (Errno::ERANGE, Kind::Flag) => "it takes 0 or 1".into(),
            (Errno::ERANGE, Kind::Number { min, max, .. }) => {
                let unit = if self.unit.is_empty() { "" } else { " " };
                format!("it takes {min} to {max}{unit}{}", self.unit)
            }
            (Errno::EINVAL, _) => format!("it does not take that: {}", self.help.trim_end_matches('.')),
            _ => e.text().into(),
        }
    }

    /// Whether a value is of this kind.
    pub fn fits(&self, v: &Value) -> bool {
        match self.kind {
            Kind::Flag => matches!(v, Value::Flag(_)),
            Kind::Number { .. } | Kind::Counter => matches!(v, Value::Number(_)),
            Kind::Gauge => matches!(v, Value::Number(_) | Value::Signed(_) | Value::Flag(_)),
            Kind::Words(_) => matches!(v, Value::Text(_) | Value::Number(_) | Value::Signed(_)),
            Kind::Text => matches!(v, Value::Text(_)),
            Kind::Fields => matches!(v, Value::Fields(_)),
            Kind::Counters => matches!(v, Value::Counters(_)),
            Kind::Histogram => matches!(v, Value::Histograms(_) | Value::Text(_)),
            Kind::Jobs => matches!(v, Value::Jobs(_)),
        }
    }

    /// Everything `lctl help_param` shows.
    pub fn info(&self, full_name: String) -> ParamInfo {
        ParamInfo {
            name: full_name,
            writable: self.writable,
            lasting: self.writable && self.lasting,
            unit: self.unit.to_string(),
            range: self.range(),
            default: self.default.to_string(),
            help: self.help.to_string(),
        }
    }
}

/// A parameter as its users are told of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamInfo {
    /// The whole dotted name.
    pub name: String,
    pub writable: bool,
    /// `lctl set_param -P` takes it.
    #[serde(default)]
    pub lasting: bool,
    pub unit: String,
    /// Of a number or flag that can be set.
    pub range: Option<(u64, u64)>,
    pub default: String,
    pub help: String,
}

impl std::fmt::Display for ParamInfo {
    /// One line: meaning, unit, bounds, default.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.help.trim_end_matches('.'))?;
        let mut notes = Vec::new();
        if !self.unit.is_empty() {
            notes.push(self.unit.clone());
        }
        match self.range.filter(|_| self.writable) {
            Some((0, u64::MAX)) | None => {}
            Some((min, max)) => notes.push(format!("{min} to {max}")),
        }
        if self.writable && !self.default.is_empty() {
            notes.push(format!("default {}", self.default));
        }
        if !self.writable {
            notes.push("read only".into());
        }
        if notes.is_empty() { Ok(()) } else { write!(f, " ({})", notes.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(d: &Decl, text: &str) -> Result<u64, Errno> {
        d.check(text).map(|s| s.number)
    }

    #[test]
    fn values_are_bounded() {
        let d = Decl::number("x", (1, 16), "MiB", 4, "How much.");
        assert_eq!(number(&d, " 4\n"), Ok(4));
        assert_eq!((number(&d, "0x10"), number(&d, "16M"), number(&d, "2048K")), (Ok(16), Ok(16), Ok(2)));
        assert_eq!((number(&d, "17"), number(&d, "1G")), (Err(Errno::ERANGE), Err(Errno::ERANGE)));
        for bad in ["-1", "", "M", "1025K", "4x", "4 M", "é4", "4é"] {
            assert_eq!(number(&d, bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(number(&d, "99999999T"), Err(Errno::ERANGE));
        assert_eq!(number(&d.in_unit("files"), "1K"), Err(Errno::EINVAL), "only sizes have suffixes");
        let pages = Decl::number("p", (1, 4096), "pages", 1, "");
        assert_eq!((number(&pages, "4M"), number(&pages, "64M")), (Ok(1024), Err(Errno::ERANGE)));
        let steps = Decl::number("s", (0, 256), "bytes", 64, "").in_steps(64);
        assert_eq!((number(&steps, "128"), number(&steps, "100")), (Ok(128), Err(Errno::EINVAL)));
        let flag = Decl::flag("f", false, "");
        assert_eq!((number(&flag, "on"), number(&flag, "N")), (Ok(1), Ok(0)));
        assert_eq!(number(&flag, "2"), Err(Errno::ERANGE));
        assert_eq!(Decl::gauge("s", "files", "Shown.").check("1"), Err(Errno::EACCES));
        let words = Decl::words("t", "", |_| Ok(()), "");
        assert_eq!(words.check(" a b\n"), Ok(Setting { number: 0, text: "a b" }));
        assert_eq!(words.check(&"a".repeat(5000)), Err(Errno::E2BIG));
    }

    #[test]
    fn help_says_what_it_is_and_takes() {
        let d = Decl::number("x", (1, 16), "MiB", 4, "How much.");
        assert_eq!(d.info("a.x".into()).to_string(), "How much (MiB, 1 to 16, default 4)");
        let shown = Decl::gauge("s", "files", "Shown.");
        assert_eq!(shown.info("a.s".into()).to_string(), "Shown (files, read only)");
        assert_eq!(Decl::counters("c", "All.").info("c".into()).to_string(), "All");
        assert_eq!(d.why(Errno::ERANGE), "it takes 1 to 16 MiB");
        assert_eq!(shown.why(Errno::EACCES), "it is only shown");
    }
}

//! Parameters of the tree that `lctl get_param` walks: how one is declared, and the glob that selects some.

use crate::Errno;
use serde::{Deserialize, Serialize};

/// Longest pattern or value taken from outside.
pub const PARAM_TEXT_MAX_BYTES: usize = 4096;

/// What values a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// 0 or 1.
    Flag,
    /// A whole number of `unit` within these bounds.
    Number { min: u64, max: u64 },
    /// Words, possibly several lines.
    Text,
}

/// The one declaration of a parameter; documentation and completion are made from it.
#[derive(Clone, Copy, Debug)]
pub struct ParamDecl {
    /// The last part of the dotted name.
    pub name: &'static str,
    pub kind: ParamKind,
    /// `KiB`, `MiB`, `ms`, `files`; empty for flags and words.
    pub unit: &'static str,
    pub default: &'static str,
    pub writable: bool,
    pub description: &'static str,
}

/// A value for a parameter, checked against its declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamValue<'a> {
    /// Of flags and numbers, in the parameter's unit; 0 of words.
    pub number: u64,
    /// As it was given, without blanks around it.
    pub text: &'a str,
}

/// Whether a value of a target's `ack` says `durable`; `EINVAL` if it is neither that nor `exec`.
pub fn ack_is_durable(text: &str) -> Result<bool, Errno> {
    match text.trim() {
        "exec" => Ok(false),
        "durable" => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

impl ParamDecl {
    /// A number that can be set.
    pub const fn number(
        name: &'static str,
        (min, max): (u64, u64),
        unit: &'static str,
        default: &'static str,
        description: &'static str,
    ) -> ParamDecl {
        ParamDecl { name, kind: ParamKind::Number { min, max }, unit, default, writable: true, description }
    }

    /// 0 or 1, to be set.
    pub const fn flag(name: &'static str, default: &'static str, description: &'static str) -> ParamDecl {
        ParamDecl { name, kind: ParamKind::Flag, unit: "", default, writable: true, description }
    }

    /// Words that can be set.
    pub const fn text(name: &'static str, default: &'static str, description: &'static str) -> ParamDecl {
        ParamDecl { name, kind: ParamKind::Text, unit: "", default, writable: true, description }
    }

    /// What is only shown.
    pub const fn shown(name: &'static str, unit: &'static str, description: &'static str) -> ParamDecl {
        ParamDecl { name, kind: ParamKind::Text, unit, default: "", writable: false, description }
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

    /// Checks a value for a flag or number: `EINVAL` if it is no number, `ERANGE` if it is out of bounds.
    pub fn parse(&self, text: &str) -> Result<u64, Errno> {
        let text = text.trim();
        let (n, min, max) = match (self.kind, text.to_ascii_lowercase().as_str()) {
            (ParamKind::Flag, "y" | "yes" | "on") => (1, 0, 1),
            (ParamKind::Flag, "n" | "no" | "off") => (0, 0, 1),
            (ParamKind::Flag, _) => (self.count(text)?, 0, 1),
            (ParamKind::Number { min, max }, _) => (self.count(text)?, min, max),
            (ParamKind::Text, _) => return Err(Errno::EINVAL),
        };
        if (min..=max).contains(&n) { Ok(n) } else { Err(Errno::ERANGE) }
    }

    /// Checks any value that somebody wants to set: `EACCES` if it is only shown, `E2BIG` if it is too long,
    /// otherwise as [`ParamDecl::parse`] for those that are no words.
    pub fn check<'a>(&self, text: &'a str) -> Result<ParamValue<'a>, Errno> {
        if !self.writable {
            return Err(Errno::EACCES);
        }
        if text.len() > PARAM_TEXT_MAX_BYTES {
            return Err(Errno::E2BIG);
        }
        let number = if self.kind == ParamKind::Text { 0 } else { self.parse(text)? };
        Ok(ParamValue { number, text: text.trim() })
    }

    /// Everything `lctl help_param` shows.
    pub fn info(&self, full_name: String) -> ParamInfo {
        let range = match self.kind {
            ParamKind::Flag => Some((0, 1)),
            ParamKind::Number { min, max } => Some((min, max)),
            ParamKind::Text => None,
        };
        ParamInfo {
            name: full_name,
            writable: self.writable,
            unit: self.unit.to_string(),
            range,
            default: self.default.to_string(),
            help: self.description.to_string(),
        }
    }
}

/// A parameter as its users are told of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamInfo {
    /// The whole dotted name.
    pub name: String,
    pub writable: bool,
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

/// Stands for a dot that separates nothing.
const INNER_DOT: char = '\0';

/// The characters of a name; the dots of an IPv4 address before a `@` belong to their part.
fn parts_of(name: &str) -> Vec<char> {
    let mut s: Vec<char> = name.chars().collect();
    for at in (0..s.len()).filter(|i| s[*i] == '@').collect::<Vec<_>>() {
        let from = s[..at].iter().rposition(|c| !c.is_ascii_digit() && *c != '.').map_or(0, |i| i + 1);
        let dots: Vec<usize> = (from..at).filter(|i| s[*i] == '.').collect();
        for i in dots.iter().rev().take(3) {
            s[*i] = INNER_DOT;
        }
    }
    s
}

/// Shell glob over a dotted name: `*`, `?` and `[a-z]` match within one part, never a dot, but for the dots of
/// a NID. A `/` in the pattern stands for a dot, as lctl has it.
pub fn glob_match(pattern: &str, name: &str) -> bool {
    if pattern.len() > PARAM_TEXT_MAX_BYTES {
        return false;
    }
    let p: Vec<char> = pattern.chars().map(|c| if c == '/' { '.' } else { c }).collect();
    let s = parts_of(name);
    // Every place in the pattern that what was read so far may have led to: a dot of a NID makes more than one.
    let mut here = vec![false; p.len() + 1];
    let behind_stars = |at: &mut Vec<bool>| {
        for i in 0..p.len() {
            at[i + 1] |= at[i] && p[i] == '*';
        }
    };
    here[0] = true;
    behind_stars(&mut here);
    for c in s {
        let mut next = vec![false; p.len() + 1];
        for i in (0..p.len()).filter(|i| here[*i]) {
            if p[i] == '*' {
                next[i] |= c != '.';
            } else if let Some(behind) = match_one(&p, i, c) {
                next[behind] = true;
            }
        }
        behind_stars(&mut next);
        here = next;
    }
    here[p.len()]
}

/// Index behind the pattern element at `i` if it matches `c`.
fn match_one(p: &[char], i: usize, c: char) -> Option<usize> {
    match *p.get(i)? {
        '?' if c != '.' => Some(i + 1),
        '[' => {
            let negated = matches!(p.get(i + 1), Some('!' | '^'));
            let first = i + 1 + usize::from(negated);
            let close = (first + 1..p.len()).find(|&k| p[k] == ']')?;
            let (mut k, mut hit) = (first, false);
            while k < close {
                if k + 2 < close && p[k + 1] == '-' {
                    hit |= (p[k]..=p[k + 2]).contains(&c);
                    k += 3;
                } else {
                    hit |= p[k] == c;
                    k += 1;
                }
            }
            (hit != negated && c != '.').then_some(close + 1)
        }
        '.' if c == INNER_DOT => Some(i + 1),
        x if x == c => Some(i + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_stay_within_a_part() {
        let n = "obdfilter.demo-OST0000.kbytesfree";
        for yes in [
            "obdfilter.*.kbytes*",
            "obdfilter/*/kbytesfree",
            "*.*.*",
            "obdfilter.demo-OST000[0-3].k?ytesfree",
            n,
        ] {
            assert!(glob_match(yes, n), "{yes}");
        }
        for no in [
            "obdfilter.*",
            "*",
            "*.kbytesfree",
            "obdfilter.*.kbytes",
            "obdfilter.demo-OST000[!0].*",
            "",
            "[",
            "obdfilter?demo-OST0000.kbytesfree",
        ] {
            assert!(!glob_match(no, n), "{no}");
        }
        let nid = "obdfilter.demo-OST0000.exports.10.0.0.1@tcp.stats";
        for yes in ["obdfilter.*.exports.*.stats", "obdfilter.*.exports.10.0.0.1@tcp.*", "*.*.*.*.*", nid] {
            assert!(glob_match(yes, nid), "{yes}");
        }
        assert!(!glob_match("obdfilter.*.stats", nid));
        assert!(glob_match("mgc.*.state", "mgc.MGC127.0.0.1@tcp.state"));
        assert!(glob_match("", ""));
        assert!(!glob_match(&"*a".repeat(2000), &"a".repeat(1000)));
    }

    #[test]
    fn values_are_bounded() {
        let d = ParamDecl::number("x", (1, 16), "MiB", "4", "How much.");
        assert_eq!(d.parse(" 4\n"), Ok(4));
        assert_eq!((d.parse("0x10"), d.parse("16M"), d.parse("2048K")), (Ok(16), Ok(16), Ok(2)));
        assert_eq!((d.parse("17"), d.parse("1G")), (Err(Errno::ERANGE), Err(Errno::ERANGE)));
        for bad in ["-1", "", "M", "1025K", "4x", "4 M", "é4", "4é"] {
            assert_eq!(d.parse(bad), Err(Errno::EINVAL), "{bad}");
        }
        assert_eq!(d.parse("99999999T"), Err(Errno::ERANGE));
        let plain = ParamDecl { unit: "files", ..d };
        assert_eq!(plain.parse("1K"), Err(Errno::EINVAL), "only sizes have suffixes");
        let pages = ParamDecl { unit: "pages", kind: ParamKind::Number { min: 1, max: 4096 }, ..d };
        assert_eq!((pages.parse("4M"), pages.parse("64M")), (Ok(1024), Err(Errno::ERANGE)));
        let flag = ParamDecl::flag("f", "0", "");
        assert_eq!((flag.parse("on"), flag.parse("N"), flag.parse("2")), (Ok(1), Ok(0), Err(Errno::ERANGE)));
        let shown = ParamDecl::shown("s", "files", "Shown.");
        assert_eq!(shown.check("1"), Err(Errno::EACCES));
        let text = ParamDecl::text("t", "", "");
        assert_eq!(text.check(" a b\n"), Ok(ParamValue { number: 0, text: "a b" }));
        assert_eq!(text.check(&"a".repeat(5000)), Err(Errno::E2BIG));
        assert_eq!(d.info("a.x".into()).to_string(), "How much (MiB, 1 to 16, default 4)");
        assert_eq!(shown.info("a.s".into()).to_string(), "Shown (files, read only)");
    }
}

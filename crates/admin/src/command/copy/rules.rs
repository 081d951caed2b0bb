//! `--layout RULE`: which layout a new file gets.

use crate::command::setstripe;
use crate::failure::Failure;
use crate::size::parse_bytes;
use crate::{getopt, glob};
use model::LayoutSpec;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compare {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Condition {
    /// Of the source file, in bytes.
    Size(Compare, u64),
    /// The last part of the path, as a shell pattern.
    Name(Vec<u8>),
}

impl Condition {
    fn parse(text: &str) -> Result<Condition, Failure> {
        let bad = || {
            let known = "size>=N, size>N, size<N, size<=N, size=N, name=PATTERN";
            Failure::usage(format!("bad condition '{text}' of --layout: {known}"))
        };
        if let Some(pattern) = text.strip_prefix("name=") {
            return Ok(Condition::Name(pattern.as_bytes().to_vec()));
        }
        let rest = text.strip_prefix("size").ok_or_else(bad)?;
        let operators = [
            (">=", Compare::AtLeast),
            ("<=", Compare::AtMost),
            (">", Compare::More),
            ("<", Compare::Less),
            ("=", Compare::Equal),
        ];
        let found = operators.iter().find_map(|(o, c)| Some((*c, rest.strip_prefix(o)?)));
        let (compare, number) = found.ok_or_else(bad)?;
        Ok(Condition::Size(compare, parse_bytes(number, 1).ok_or_else(bad)?))
    }

    fn holds(&self, name: &OsStr, size: u64) -> bool {
        match self {
            Condition::Size(Compare::Less, n) => size < *n,
            Condition::Size(Compare::AtMost, n) => size <= *n,
            Condition::Size(Compare::Equal, n) => size == *n,
            Condition::Size(Compare::AtLeast, n) => size >= *n,
            Condition::Size(Compare::More, n) => size > *n,
            Condition::Name(pattern) => glob::matches(pattern, name.as_bytes()),
        }
    }
}

/// `CONDITIONS:OPTIONS`: files that fulfil all conditions (separated by commas) get the layout of these
/// options of `lfs setstripe`.
#[derive(Clone, Debug)]
pub struct LayoutRule {
    conditions: Vec<Condition>,
    spec: LayoutSpec,
}

impl LayoutRule {
    pub fn parse(text: &str) -> Result<LayoutRule, Failure> {
        let Some((conditions, options)) = text.split_once(':') else {
            let why = "expected CONDITIONS:OPTIONS, as in 'size>=1G:-c 4 -S 16M'";
            return Err(Failure::usage(format!("bad --layout '{text}': {why}")));
        };
        let words: Vec<OsString> = options.split_whitespace().map(OsString::from).collect();
        let parsed = getopt::parse(&words, setstripe::OPTS)?;
        if let Some(extra) = parsed.operands.first() {
            let extra = extra.to_string_lossy();
            return Err(Failure::usage(format!("'{extra}' in --layout '{text}' is no option")));
        }
        if parsed.options.is_empty() || parsed.has("delete") || parsed.has("mode") {
            let why = "it needs options of lfs setstripe that say a layout";
            return Err(Failure::usage(format!("bad --layout '{text}': {why}")));
        }
        let spec = setstripe::spec(&parsed)?;
        let conditions = match conditions.trim() {
            "" | "*" => Vec::new(),
            some => some.split(',').map(|c| Condition::parse(c.trim())).collect::<Result<_, _>>()?,
        };
        Ok(LayoutRule { conditions, spec })
    }
}

/// The layout of the first rule that fits.
pub fn layout_of<'a>(rules: &'a [LayoutRule], name: &OsStr, size: u64) -> Option<&'a LayoutSpec> {
    let fits = |r: &&LayoutRule| r.conditions.iter().all(|c| c.holds(name, size));
    rules.iter().find(fits).map(|r| &r.spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = ["name=*.log:-c 1", "size>=1G,size<4G:-c 4 -S 16M", "size>=4G:-c -1"];
        let rules: Vec<_> = rules.iter().map(|r| LayoutRule::parse(r).unwrap()).collect();
        let count = |name: &str, size| layout_of(&rules, OsStr::new(name), size).map(|s| s.stripe_count);
        assert_eq!(count("a.log", 5 << 30), Some(1));
        assert_eq!(count("a", 1 << 30), Some(4));
        assert_eq!(count("a", 4 << 30), Some(-1));
        assert_eq!(count("a", (1 << 30) - 1), None);
        let all = [LayoutRule::parse("*:-c 2").unwrap()];
        assert_eq!(layout_of(&all, OsStr::new("x"), 0).map(|s| s.stripe_count), Some(2));
    }

    #[test]
    fn wrong_rules_are_named() {
        for bad in ["size>=1G", "size~1:-c 1", "size>=x:-c 1", "owner=me:-c 1", "*:", "*:-c 1 f", "*:-d"] {
            assert_eq!(LayoutRule::parse(bad).unwrap_err().exit_code(), crate::EXIT_USAGE, "{bad}");
        }
        assert_eq!(LayoutRule::parse("*:-c 2001").unwrap_err().exit_code(), 34);
    }
}

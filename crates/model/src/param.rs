//! Parameters of the tree that `lctl get_param` walks: how one is declared, and the glob that selects some.

use crate::Errno;

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

impl ParamDecl {
    /// Checks a value for a flag or number: `EINVAL` if it is no number, `ERANGE` if it is out of bounds.
    pub fn parse(&self, text: &str) -> Result<u64, Errno> {
        let n: u64 = text.trim().parse().map_err(|_| Errno::EINVAL)?;
        let (min, max) = match self.kind {
            ParamKind::Flag => (0, 1),
            ParamKind::Number { min, max } => (min, max),
            ParamKind::Text => return Err(Errno::EINVAL),
        };
        if (min..=max).contains(&n) { Ok(n) } else { Err(Errno::ERANGE) }
    }
}

/// Shell glob over a dotted name: `*`, `?` and `[a-z]` match within one part, never a dot. A `/` in the
/// pattern stands for a dot, as lctl has it.
pub fn glob_match(pattern: &str, name: &str) -> bool {
    if pattern.len() > PARAM_TEXT_MAX_BYTES {
        return false;
    }
    let p: Vec<char> = pattern.chars().map(|c| if c == '/' { '.' } else { c }).collect();
    let s: Vec<char> = name.chars().collect();
    let (mut i, mut j) = (0, 0);
    // Where to go on when a match behind the last star fails: (behind the star, next character for it).
    let mut star: Option<(usize, usize)> = None;
    loop {
        if i < p.len() && p[i] == '*' {
            i += 1;
            star = Some((i, j));
            continue;
        }
        if j < s.len() {
            if let Some(next) = match_one(&p, i, s[j]) {
                (i, j) = (next, j + 1);
                continue;
            }
        } else if i == p.len() {
            return true;
        }
        match star {
            Some((pi, sj)) if sj < s.len() && s[sj] != '.' => {
                (i, j) = (pi, sj + 1);
                star = Some((pi, sj + 1));
            }
            _ => return false,
        }
    }
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
        assert!(glob_match("", ""));
        assert!(!glob_match(&"*a".repeat(2000), &"a".repeat(1000)));
    }

    #[test]
    fn values_are_bounded() {
        let d = ParamDecl {
            name: "x",
            kind: ParamKind::Number { min: 1, max: 16 },
            unit: "MiB",
            default: "4",
            writable: true,
            description: "",
        };
        assert_eq!(d.parse(" 4\n"), Ok(4));
        assert_eq!(d.parse("17"), Err(Errno::ERANGE));
        assert_eq!(d.parse("-1"), Err(Errno::EINVAL));
        assert_eq!(ParamDecl { kind: ParamKind::Flag, ..d }.parse("2"), Err(Errno::ERANGE));
    }
}

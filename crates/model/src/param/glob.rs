//! The glob that selects parameters by their dotted names.

use super::PARAM_TEXT_MAX_BYTES;

/// Stands for a dot that separates nothing.
pub(super) const INNER_DOT: char = '\0';

/// The characters of a name; the dots of an IPv4 address before a `@` belong to their part.
pub(super) fn parts_of(name: &str) -> Vec<char> {
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

/// A name's directories, the outermost first: what is before each of its dots, but for those of a NID.
pub fn directories(name: &str) -> Vec<&str> {
    let inner = parts_of(name);
    let is_dot = |((at, c), inner): &((usize, char), char)| (*c == '.' && *inner == '.').then_some(*at);
    name.char_indices().zip(inner).filter_map(|i| is_dot(&i)).map(|at| &name[..at]).collect()
}

/// Shell glob over a dotted name: `*`, `?` and `[a-z]` match within one part, never a dot, but for the dots
/// of a NID. A `/` in the pattern stands for a dot, as lctl has it.
pub fn glob_match(pattern: &str, name: &str) -> bool {
    if pattern.len() > PARAM_TEXT_MAX_BYTES {
        return false;
    }
    let p: Vec<char> = pattern.chars().map(|c| if c == '/' { '.' } else { c }).collect();
    let s = parts_of(name);
    // Every place in the pattern that what was read so far may have led to: a dot of a NID makes more than
    // one.
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
    fn directories_end_before_the_dots_that_separate() {
        assert_eq!(directories("osc.demo-OST0000-osc-1.stats"), ["osc", "osc.demo-OST0000-osc-1"]);
        let nid = "obdfilter.demo-OST0000.exports.10.0.0.1@tcp.stats";
        let all = directories(nid);
        assert_eq!(
            all[2..],
            ["obdfilter.demo-OST0000.exports", "obdfilter.demo-OST0000.exports.10.0.0.1@tcp"]
        );
        assert!(directories("timeout").is_empty());
    }

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
}

//! Shell patterns: `* ? [a-z] [!a] {a,b}` and backslash.

/// Whether it may fit another name than itself.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern.iter().any(|c| b"*?[{\\".contains(c))
}

/// Whether the whole of `name` fits `pattern`. `*` also fits dots and slashes.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    expand(pattern).iter().any(|p| fits(p, name))
}

/// `{a,b}` written out; at most 1,024 patterns.
pub fn expand(p: &[u8]) -> Vec<Vec<u8>> {
    let mut todo = vec![p.to_vec()];
    let mut done = Vec::new();
    while let Some(p) = todo.pop() {
        match braces(&p) {
            Some((open, close)) if todo.len() + done.len() < 1024 => {
                for alt in alternatives(&p[open + 1..close]) {
                    todo.push([&p[..open], alt, &p[close + 1..]].concat());
                }
            }
            _ => done.push(p),
        }
    }
    done
}

/// The first outermost pair of braces with a comma.
fn braces(p: &[u8]) -> Option<(usize, usize)> {
    let open = p.iter().position(|c| *c == b'{')?;
    let mut depth = 0;
    for (i, c) in p.iter().enumerate().skip(open) {
        match c {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return alternatives(&p[open + 1..i]).get(1).map(|_| (open, i));
        }
    }
    None
}

fn alternatives(inner: &[u8]) -> Vec<&[u8]> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, c) in inner.iter().enumerate() {
        match c {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                out.push(&inner[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&inner[start..]);
    out
}

/// The set `[…]` at the start of `p`: whether `c` is in it, and its length. `None`: no set, a plain bracket.
fn set(p: &[u8], c: u8) -> Option<(bool, usize)> {
    let mut i = 1;
    let negated = matches!(p.get(1), Some(b'!' | b'^'));
    if negated {
        i += 1;
    }
    let (first, mut hit) = (i, false);
    loop {
        let lo = *p.get(i)?;
        if lo == b']' && i > first {
            return Some((hit != negated, i + 1));
        }
        if p.get(i + 1) == Some(&b'-') && p.get(i + 2).is_some_and(|h| *h != b']') {
            hit |= (lo..=p[i + 2]).contains(&c);
            i += 3;
        } else {
            hit |= lo == c;
            i += 1;
        }
    }
}

/// Without braces; the last star is remembered, so time is at most |pattern| × |name|.
fn fits(p: &[u8], name: &[u8]) -> bool {
    let (mut i, mut j) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match (p.get(i), name.get(j)) {
            (Some(b'*'), _) => {
                star = Some((i + 1, j));
                i += 1;
                continue;
            }
            (None, None) => return true,
            (Some(b'?'), Some(_)) => Some(1),
            (Some(b'['), Some(c)) => match set(&p[i..], *c) {
                Some((true, len)) => Some(len),
                Some((false, _)) => None,
                None => (*c == b'[').then_some(1),
            },
            (Some(b'\\'), Some(c)) => (p.get(i + 1) == Some(c)).then_some(2),
            (Some(a), Some(b)) => (a == b).then_some(1),
            _ => None,
        };
        match (step, &mut star) {
            (Some(n), _) => {
                i += n;
                j += 1;
            }
            (None, Some((after, from))) if *from < name.len() => {
                *from += 1;
                (i, j) = (*after, *from);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_match_as_in_a_shell() {
        let m = |p: &str, n: &str| super::matches(p.as_bytes(), n.as_bytes());
        for (p, n) in [
            ("*", ""),
            ("osc.*.max_rpcs", "osc.fs-OST0000.max_rpcs"),
            ("a?c", "abc"),
            ("[a-c]x[!0-9]", "bxz"),
            ("{ab,c{d,e}}*", "ceq"),
            ("\\*", "*"),
            ("a[", "a["),
            ("*a*b*", "xxaxxbxx"),
            ("[]]", "]"),
        ] {
            assert!(m(p, n), "{p} fits {n}");
        }
        for (p, n) in [("a?c", "ac"), ("[!a]", "a"), ("\\*", "x"), ("*.b", "a.c"), ("{a,b}", "c"), ("", "a")]
        {
            assert!(!m(p, n), "{p} does not fit {n}");
        }
    }
}

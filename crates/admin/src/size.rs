//! Numbers with units, in and out.

use crate::failure::Failure;

/// Seconds of a unit of time, by its letter.
pub fn time_unit(letter: char) -> Option<u32> {
    const DAY: u32 = 86_400;
    Some(match letter {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'w' => 7 * DAY,
        'y' => 365 * DAY,
        _ => return None,
    })
}

/// `30d`, `12h`, or a bare number of seconds; in seconds.
pub fn parse_age(text: &str) -> Option<i64> {
    let unit = text.chars().last()?;
    let (digits, unit) = match unit.is_ascii_digit() {
        true => (text, 1),
        false => (&text[..text.len() - unit.len_utf8()], time_unit(unit)?),
    };
    digits.parse::<u32>().ok().and_then(|n| i64::from(n).checked_mul(unit.into()))
}

/// `64k`, `1M`, `4G` … in powers of two; `default_unit` is what a bare number counts.
pub fn parse_bytes(s: &str, default_unit: u64) -> Option<u64> {
    let t = s.trim();
    let digits = t.len() - t.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: u64 = t[..digits].parse().ok()?;
    let unit = match t[digits..].to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" if t.len() == digits => default_unit,
        "" if t[digits..].eq_ignore_ascii_case("b") => 512,
        "c" => 1,
        "w" => 2,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        "e" => 1 << 60,
        _ => return None,
    };
    n.checked_mul(unit)
}

/// A stripe size: bare values below 4096 count KiB.
pub fn parse_stripe_size(s: &str) -> Result<u64, Failure> {
    let bad = || Failure::usage(format!("bad stripe size '{s}': expected a number with k, M or G behind it"));
    let bare = s.bytes().all(|c| c.is_ascii_digit());
    let n = parse_bytes(s, 1).ok_or_else(bad)?;
    Ok(if bare && n < 4096 { n << 10 } else { n })
}

/// A whole number in decimal or with 0x, negative allowed.
pub fn parse_int(s: &str) -> Option<i64> {
    let (neg, t) = match s.strip_prefix('-') {
        Some(t) => (true, t),
        None => (false, s),
    };
    let n = match t.strip_prefix("0x").or_else(|| t.strip_prefix("0X")) {
        Some(h) => i64::from_str_radix(h, 16).ok()?,
        None if t.bytes().all(|c| c.is_ascii_digit()) => t.parse().ok()?,
        None => return None,
    };
    Some(if neg { -n } else { n })
}

/// One OST or MDT index: a number or a target's name (`fs-OST0003_UUID`, `OST0003`).
pub fn parse_index(s: &str) -> Option<u16> {
    let t = s.strip_suffix("_UUID").unwrap_or(s);
    if let Some(i) = t.rfind("OST").or_else(|| t.rfind("MDT")) {
        let file_system = &t[..i];
        let named = file_system.is_empty() || file_system.ends_with('-');
        return u16::from_str_radix(&t[i + 3..], 16).ok().filter(|_| named);
    }
    u16::try_from(parse_int(t)?).ok()
}

/// `1-3`, `OST0001-OST0003`, `fs-OST0001-fs-OST0003_UUID`: the name of a file system may have dashes itself.
fn parse_index_range(s: &str) -> Option<(u16, u16)> {
    let is_number = |t: &str| t.starts_with(|c: char| c.is_ascii_digit()) && parse_int(t).is_some();
    s.match_indices('-').find_map(|(i, _)| {
        let (a, b) = (&s[..i], &s[i + 1..]);
        (is_number(a) == is_number(b)).then(|| parse_index(a).zip(parse_index(b)))?
    })
}

/// `1,2-4,0x7`, and names of targets.
pub fn parse_index_list(s: &str) -> Result<Vec<u16>, Failure> {
    let bad = |p: &str| Failure::usage(format!("bad target index '{p}' in '{s}'"));
    let indices = usize::from(u16::MAX) + 1;
    let mut out = Vec::new();
    for p in s.split(',') {
        match parse_index_range(p) {
            Some((a, b)) if a <= b => out.extend(a..=b),
            Some(_) => return Err(bad(p)),
            None => out.push(parse_index(p).ok_or_else(|| bad(p))?),
        }
        if out.len() > indices {
            return Err(Failure::usage("the list names more targets than there can be: some repeat"));
        }
    }
    Ok(out)
}

/// `13.0G`; `base` is 1024 or 1000.
pub fn human(bytes: u64, base: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let (mut v, mut u) = (bytes as f64, 0);
    while v >= base as f64 && u + 1 < units.len() {
        v /= base as f64;
        u += 1;
    }
    if u == 0 { format!("{bytes}") } else { format!("{v:.1}{}", units[u]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_numbers_with_a_unit() {
        let known = [Some(30 * 86_400), Some(43_200), Some(7), Some(0)];
        assert_eq!(["30d", "12h", "7", "0s"].map(parse_age), known);
        assert_eq!(["", "d", "3x", "-1d", "3dd", "1é", "99999999999d"].map(parse_age), [None; 7]);
    }

    #[test]
    fn sizes_and_indices() {
        assert_eq!(parse_bytes("64k", 1), Some(65536));
        assert_eq!(parse_bytes("3", 512), Some(1536));
        assert_eq!(parse_bytes("3c", 512), Some(3));
        assert_eq!(parse_bytes("1MiB", 1), Some(1 << 20));
        for bad in ["", "k", "1x", "-1", "99999999999E", "1é"] {
            assert_eq!(parse_bytes(bad, 1), None, "{bad}");
        }
        assert_eq!(parse_stripe_size("64").unwrap(), 65536);
        assert_eq!(parse_stripe_size("65536").unwrap(), 65536);
        assert_eq!(parse_index_list("0,2-4,0x10,fs-OST000a_UUID").unwrap(), [0, 2, 3, 4, 16, 10]);
        let named = "OST0001-OST0003,a-b-OST0005_UUID-a-b-OST0006_UUID,1-OST0009";
        assert_eq!(parse_index_list(named).unwrap(), [1, 2, 3, 5, 6, 9]);
        for bad in ["4-2", "", "1-", "-1", "1-OSTx", "xOST0001", "1,,2", "70000", "0-65535,0"] {
            assert!(parse_index_list(bad).is_err(), "{bad}");
        }
        assert_eq!(human(13 << 30, 1024), "13.0G");
        assert_eq!(human(512, 1024), "512");
    }
}

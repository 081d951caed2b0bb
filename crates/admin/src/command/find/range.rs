//! Numbers and times to compare with: `+N` more, `-N` less, `N` just so many of a unit.

use crate::failure::Failure;
use crate::size::{parse_bytes, parse_int, parse_stripe_size, time_unit};
use std::cmp::Ordering;

/// `+N`, `-N` or `N`, with what one unit of N is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    sign: Ordering,
    n: i128,
    unit: i128,
}

impl Range {
    /// `value` counted in units, rounded up, compared with N (as find(1) does for sizes).
    pub fn fits(&self, value: u64) -> bool {
        let units = (i128::from(value) + self.unit - 1).div_euclid(self.unit);
        units.cmp(&self.n) == self.sign
    }

    /// Ages in seconds are rounded down to units.
    pub fn fits_age(&self, seconds: i64) -> bool {
        i128::from(seconds).div_euclid(self.unit).cmp(&self.n) == self.sign
    }

    /// The first and the last value that fit.
    pub fn bounds(&self) -> (i64, i64) {
        let (n, unit) = (self.n, self.unit);
        let last = |n: i128| n.saturating_mul(unit);
        match self.sign {
            Ordering::Less => (i64::MIN, clamp(last(n.saturating_sub(1)))),
            Ordering::Equal => (clamp(last(n.saturating_sub(1)).saturating_add(1)), clamp(last(n))),
            Ordering::Greater => (clamp(last(n).saturating_add(1)), i64::MAX),
        }
    }

    /// The first and the last age in seconds that fit.
    pub fn age_bounds(&self) -> (i64, i64) {
        let (n, unit) = (self.n, self.unit);
        let first = |n: i128| n.saturating_mul(unit);
        match self.sign {
            Ordering::Less => (i64::MIN, clamp(first(n).saturating_sub(1))),
            Ordering::Equal => (clamp(first(n)), clamp(first(n.saturating_add(1)).saturating_sub(1))),
            Ordering::Greater => (clamp(first(n.saturating_add(1))), i64::MAX),
        }
    }

    /// Reads `s`, whose number behind the sign `parse` turns into N and its unit.
    fn read(s: &str, parse: impl Fn(&str) -> Option<(i128, i128)>) -> Result<Range, Failure> {
        let (sign, rest) = match s.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, &s[1..]),
            Some(b'-') => (Ordering::Less, &s[1..]),
            _ => (Ordering::Equal, s),
        };
        let (n, unit) = parse(rest).ok_or_else(|| Failure::usage(format!("bad number '{s}'")))?;
        Ok(Range { sign, n, unit })
    }

    /// A size by units: `3M` is three units of 1 MiB, a bare number counts units of 512 bytes.
    pub fn of_size(s: &str) -> Result<Range, Failure> {
        Range::read(s, |s| {
            let (n, unit) = number(s)?;
            Some((n, i128::from(parse_bytes(&format!("1{unit}"), 512)?)))
        })
    }

    /// A count, decimal or with 0x.
    pub fn of_count(s: &str) -> Result<Range, Failure> {
        Range::read(s, |s| parse_int(s).filter(|n| *n >= 0).map(|n| (i128::from(n), 1)))
    }

    /// Bytes, compared exactly; a bare number counts them.
    pub fn of_bytes(s: &str) -> Result<Range, Failure> {
        Range::read(s, |s| parse_bytes(s, 1).map(|n| (i128::from(n), 1)))
    }

    /// A stripe size: bare values below 4096 count KiB.
    pub fn of_stripe_size(s: &str) -> Result<Range, Failure> {
        Range::read(s, |s| parse_stripe_size(s).ok().map(|n| (i128::from(n), 1)))
    }

    /// Where a component ends: as a stripe size, or `eof`, `-1`.
    pub fn of_end(s: &str) -> Result<Range, Failure> {
        if s.eq_ignore_ascii_case("eof") || s == "-1" {
            return Ok(Range { sign: Ordering::Equal, n: i128::from(model::layout::EOF), unit: 1 });
        }
        Range::of_stripe_size(s)
    }

    /// An age, `1w2d`; a bare number counts days. What is smaller than the smallest unit does not count.
    pub fn of_age(s: &str) -> Result<Range, Failure> {
        Range::read(s, |s| {
            let (mut rest, mut total, mut smallest) = (s, 0i128, i128::MAX);
            while !rest.is_empty() {
                let (n, behind) = number(rest)?;
                let unit = i128::from(time_unit(behind.chars().next().unwrap_or('d'))?);
                total = total.checked_add(n.checked_mul(unit)?)?;
                smallest = smallest.min(unit);
                rest = behind.get(1..).unwrap_or_default();
            }
            (smallest < i128::MAX).then(|| (total / smallest, smallest))
        })
    }
}

fn clamp(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

/// Digits and what stands behind them.
fn number(s: &str) -> Option<(i128, &str)> {
    let digits = s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some((s[..digits].parse().ok()?, &s[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_units_and_ages_down() {
        let size = |s| Range::of_size(s).unwrap();
        assert!(size("1M").fits(1) && size("1M").fits(1 << 20) && !size("1M").fits((1 << 20) + 1));
        assert!(size("+1M").fits((1 << 20) + 1) && !size("+1M").fits(1 << 20));
        assert!(size("-2k").fits(1024) && !size("-2k").fits(1025) && size("-1M").fits(0));
        assert!(size("2").fits(1024) && size("100c").fits(100) && !size("100c").fits(99));
        let age = |s| Range::of_age(s).unwrap();
        assert!(age("1").fits_age(86400) && age("1").fits_age(2 * 86400 - 1) && !age("1").fits_age(86399));
        assert!(age("+1").fits_age(2 * 86400) && !age("+1").fits_age(2 * 86400 - 1));
        assert!(age("-1h").fits_age(3599) && !age("-1h").fits_age(3600) && age("-1").fits_age(-5));
        assert!(age("1d12h").fits_age(36 * 3600 + 3599) && !age("1d12h").fits_age(37 * 3600));
        assert!(age("2w").fits_age(20 * 86400) && age("1y").fits_age(400 * 86400) && age("5m").fits_age(301));
    }

    #[test]
    fn what_fits_lies_within_the_bounds_and_nothing_else_does() {
        for s in ["0", "+0", "-0", "1", "-1", "+1", "3k", "+3k", "-3k", "2c", "+2c", "-2c", "1M"] {
            let size = Range::of_size(s).unwrap();
            let (from, to) = size.bounds();
            for n in (0..5000).chain((1 << 20) - 2..(1 << 20) + 3) {
                assert_eq!(size.fits(n as u64), (from..=to).contains(&n), "{n} of -size {s}");
            }
        }
        for s in ["0", "+0", "-0", "5s", "+5s", "-5s", "2m", "+2m", "-2m", "1h30s"] {
            let age = Range::of_age(s).unwrap();
            let (from, to) = age.age_bounds();
            for n in (-300..4000).chain([i64::MIN, i64::MAX]) {
                assert_eq!(age.fits_age(n), (from..=to).contains(&n), "{n} of -mtime {s}");
            }
        }
        let huge = Range::of_size("+9999999999999999999999E").unwrap_or(Range::of_size("+8E").unwrap());
        assert!(!huge.fits(u64::MAX / 2) && huge.bounds().0 == i64::MAX);
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for bad in ["", "+", "x", "1x", "M", "--1"] {
            assert!(Range::of_size(bad).is_err(), "{bad}");
            assert!(Range::of_age(bad).is_err(), "{bad}");
        }
        assert!(Range::of_count("-1").is_ok() && Range::of_count("--1").is_err());
        assert!(Range::of_stripe_size("64").unwrap().fits(65536));
        assert!(Range::of_end("eof").unwrap().fits(u64::MAX) && !Range::of_end("-1").unwrap().fits(5));
        assert!(Range::of_end("+1M").unwrap().fits(u64::MAX));
    }
}

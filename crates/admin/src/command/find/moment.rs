//! Times as text, in UTC.

use crate::failure::Failure;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Days since 1970 of a date of the civil calendar (Hinnant's algorithm: years begin in March, eras of 400
/// years).
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let y = year - i64::from(month <= 2);
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// Its inverse: (year, month, day).
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// `07:46:04`.
pub fn time_of_day(sec: i64) -> String {
    let rest = sec.rem_euclid(86400);
    format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// `Thu Jan  1 00:00:00 1970`, as ctime(3) has it.
pub fn text(sec: i64) -> String {
    let days = sec.div_euclid(86400);
    let (year, month, day) = date_of(days);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[(month - 1) as usize];
    format!("{weekday} {month} {day:>2} {} {year}", time_of_day(sec))
}

/// `2026-11-26T07:46:04Z`.
pub fn iso(sec: i64) -> String {
    let (year, month, day) = date_of(sec.div_euclid(86400));
    format!("{year}-{month:02}-{day:02}T{}Z", time_of_day(sec))
}

/// `2026-11-26`, with ` 07:46` or `T07:46:04Z` behind it if wanted, or `@SECONDS`.
pub fn parse(s: &str) -> Result<i64, Failure> {
    read(s).ok_or_else(|| {
        Failure::usage(format!("bad time '{s}': expected YYYY-MM-DD [HH:MM[:SS]] in UTC, or @SECONDS"))
    })
}

fn read(s: &str) -> Option<i64> {
    if let Some(n) = s.strip_prefix('@') {
        return n.parse().ok();
    }
    let (date, time) = s.split_once([' ', 'T']).unwrap_or((s, "00:00"));
    let numbers = |t: &str, sep: char| -> Option<Vec<i64>> {
        let one = |n: &str| n.bytes().all(|c| c.is_ascii_digit()).then(|| n.parse().ok())?;
        t.split(sep).map(one).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time.trim_end_matches('Z'), ':')?);
    let &[year, month, day] = date.as_slice() else { return None };
    let (hour, minute, second) = match *time.as_slice() {
        [h, m] => (h, m, 0),
        [h, m, s] => (h, m, s),
        _ => return None,
    };
    let days = (year < 10_000 && (1..=12).contains(&month)).then(|| days_of(year, month, day))?;
    let ok = date_of(days) == (year, month, day) && hour < 24 && minute < 60 && second < 60;
    ok.then(|| days * 86400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_and_read_back() {
        assert_eq!(text(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(text(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(text(-1), "Wed Dec 31 23:59:59 1969");
        assert_eq!(parse("2000-02-29").unwrap(), 951_782_400);
        assert_eq!(parse("2000-02-29 01:00").unwrap(), 951_786_000);
        assert_eq!(parse("1969-12-31T23:59:59Z").unwrap(), -1);
        assert_eq!(parse("@-7").unwrap(), -7);
        assert_eq!(iso(951_786_001), "2000-02-29T01:00:01Z");
        assert_eq!(parse(&iso(-1)).unwrap(), -1);
        for bad in ["", "2001-02-29", "2000-13-01", "2000-1", "2000-01-01 24:00", "yesterday", "2000-01-+1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

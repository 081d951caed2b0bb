//! What a target records of itself each hour, for a year: files, space, how long requests took. And which
//! of that is a jump: more than the hours before make likely.

use crate::planted::{self, Bug};
use serde::{Deserialize, Serialize};

/// Default of `history_interval`, seconds.
pub const INTERVAL_DEFAULT_S: u64 = 3600;
/// Records that are kept: a year of hours, with a leap day.
pub const KEPT_MAX: usize = 366 * 24;
/// Records that a new one is compared with: a week of hours.
pub const COMPARED: usize = 7 * 24;
/// Records in one answer.
pub const ANSWER_MAX: usize = 1000;

/// Fewer records than these say nothing of what is usual.
const COMPARED_MIN: usize = 12;
/// A change of files or space is a jump if it is so many times the usual one of an hour, …
const CHANGE_TIMES: u64 = 8;
/// … and at least one in so many of all that fits.
const CHANGE_PART: u64 = 50;
/// A response time is a jump if it is so many times the usual one, …
const RESPONSE_TIMES: u64 = 4;
/// … of so many requests at least, …
const REQUESTS_MIN: u64 = 100;
/// … and longer than this: what is faster nobody feels.
const RESPONSE_MIN_US: u64 = 2000;

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// When it was made: seconds since 1970.
    pub at: i64,
    /// Of an MDT inodes, of an OST objects.
    pub files_used: u64,
    pub files_total: u64,
    pub bytes_used: u64,
    pub bytes_total: u64,
    /// Requests that were served since the record before, or since the server started.
    pub requests: u64,
    /// What these took, on an average.
    pub response_us: u64,
}

/// What changed more than usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jump {
    Files,
    Space,
    Response,
}

impl Jump {
    /// As commands print it.
    pub fn name(self) -> &'static str {
        match self {
            Jump::Files => "files",
            Jump::Space => "space",
            Jump::Response => "response",
        }
    }
}

/// Records of a target behind a time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Records {
    /// With what jumped then.
    pub records: Vec<(Record, Vec<Jump>)>,
    /// There are later ones.
    pub more: bool,
}

/// The one in the middle; 0 of none.
fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

fn changed(earlier: &[Record], now: &Record, used: fn(&Record) -> u64, total: u64) -> bool {
    let Some(last) = earlier.last() else { return false };
    let by = used(now).abs_diff(used(last));
    let usual = median(earlier.windows(2).map(|w| used(&w[1]).abs_diff(used(&w[0]))).collect());
    by > 0 && by >= usual.saturating_mul(CHANGE_TIMES) && by >= total / CHANGE_PART
}

fn slower(earlier: &[Record], now: &Record) -> bool {
    let counts = |r: &&Record| r.requests >= REQUESTS_MIN;
    let before: Vec<u64> = earlier.iter().filter(counts).map(|r| r.response_us).collect();
    let known = before.len() >= COMPARED_MIN;
    let least = median(before).saturating_mul(RESPONSE_TIMES).max(RESPONSE_MIN_US);
    known && counts(&now) && now.response_us >= least
}

/// What jumped, by the records before it in the order of their times, of which the last [`COMPARED`] count.
pub fn jumps(earlier: &[Record], now: &Record) -> Vec<Jump> {
    let earlier = &earlier[earlier.len().saturating_sub(COMPARED)..];
    if earlier.len() < COMPARED_MIN {
        return Vec::new();
    }
    [
        (Jump::Files, changed(earlier, now, |r| r.files_used, now.files_total)),
        (Jump::Space, changed(earlier, now, |r| r.bytes_used, now.bytes_total)),
        (Jump::Response, slower(earlier, now)),
    ]
    .into_iter()
    .filter_map(|(jump, is)| is.then_some(jump))
    .collect()
}

/// All with what jumped, of those younger than `since`; as many as fit into an answer.
pub fn answer(all: &[Record], since: i64) -> Records {
    let from = all.partition_point(|r| r.at <= since);
    let to = all.len().min(from + ANSWER_MAX);
    let first = if planted::on(Bug::HistoryJudgedByPage) { from } else { 0 };
    let one = |i: usize| (all[i], jumps(&all[first..i], &all[i]));
    Records { records: (from..to).map(one).collect(), more: to < all.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u64 = 1000;

    /// `n` hours in which every use grows by one, and requests take a millisecond.
    fn usual(n: usize) -> Vec<Record> {
        let one = |i: u64| Record {
            at: 3600 * i as i64,
            files_used: i,
            files_total: TOTAL,
            bytes_used: i,
            bytes_total: TOTAL,
            requests: 1000,
            response_us: 1000,
        };
        (1..=n as u64).map(one).collect()
    }

    #[test]
    fn what_is_as_in_the_hours_before_is_no_jump_and_what_is_far_from_it_is_one() {
        let all = usual(40);
        let next = Record { at: 3600 * 41, files_used: 41, bytes_used: 41, ..all[39] };
        assert_eq!(jumps(&all, &next), []);
        assert_eq!(jumps(&all, &Record { bytes_used: 40 + 19, ..next }), [], "less than a fiftieth");
        assert_eq!(jumps(&all, &Record { bytes_used: 40 + 20, ..next }), [Jump::Space]);
        assert_eq!(jumps(&all, &Record { files_used: 0, ..next }), [Jump::Files], "also what goes");
        assert_eq!(jumps(&all, &Record { response_us: 3999, ..next }), []);
        assert_eq!(jumps(&all, &Record { response_us: 4000, ..next }), [Jump::Response]);
        assert_eq!(jumps(&all, &Record { response_us: 4000, requests: 99, ..next }), [], "too few");
        let fast: Vec<Record> = all.iter().map(|r| Record { response_us: 10, ..*r }).collect();
        assert_eq!(jumps(&fast, &Record { response_us: 1999, ..next }), [], "nobody feels it");
    }

    #[test]
    fn nothing_is_usual_before_there_are_records_enough() {
        let all = usual(COMPARED_MIN - 1);
        let next = Record { bytes_used: TOTAL, response_us: 1 << 40, ..all[0] };
        assert_eq!(jumps(&all, &next), []);
        assert_eq!(jumps(&[], &next), []);
        assert_eq!(jumps(&usual(COMPARED_MIN), &next), [Jump::Space, Jump::Response]);
    }

    #[test]
    fn an_answer_is_bounded_and_goes_on_behind_its_last_record() {
        let all = usual(ANSWER_MAX + 10);
        let first = answer(&all, 0);
        assert!(first.more && first.records.len() == ANSWER_MAX);
        let rest = answer(&all, first.records[ANSWER_MAX - 1].0.at);
        assert!(!rest.more && rest.records.len() == 10);
        assert_eq!(rest.records[9].0, all[ANSWER_MAX + 9]);
        assert_eq!(answer(&all, i64::MAX), Records::default());
    }

    proptest::proptest! {
        #[test]
        fn no_numbers_make_it_panic(used in proptest::collection::vec(0u64.., 0..30), total in 0u64..) {
            let all: Vec<Record> = used.iter().map(|u| Record {
                files_used: *u, bytes_used: *u, bytes_total: total, requests: *u, response_us: *u, ..Record::default()
            }).collect();
            for i in 0..all.len() {
                jumps(&all[..i], &all[i]);
            }
        }
    }
}

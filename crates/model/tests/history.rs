//! What jumped is the same whoever asks: all at once, page by page, or from some hour on. And the planted bug
//! of this crate that its own tests find. A process of its own: the switch is global.

use model::history::{ANSWER_MAX, Jump, Record, answer, jumps};
use model::planted::{self, Bug};

/// Hours in which little happens, and now and then much.
fn hours(seed: u64, n: usize) -> Vec<Record> {
    let mut x = seed;
    let mut next = |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    };
    let mut used = 1000;
    let mut one = |i: usize| {
        used += if next(40) == 0 { 5000 } else { next(10) };
        let response_us = if next(50) == 0 { 90_000 } else { 800 + next(400) };
        Record {
            at: 3600 * (i as i64 + 1),
            files_used: used,
            files_total: 100_000,
            bytes_used: used * 4096,
            bytes_total: 100_000 * 4096,
            requests: 1000,
            response_us,
        }
    };
    (0..n).map(&mut one).collect()
}

/// All that is told to somebody who reads on from `since` until there is no more.
fn told(all: &[Record], mut since: i64) -> Vec<(Record, Vec<Jump>)> {
    let mut out = Vec::new();
    loop {
        let page = answer(all, since);
        assert!(page.records.len() <= ANSWER_MAX, "an answer is bounded");
        out.extend(page.records);
        match out.last() {
            Some((r, _)) if page.more => since = r.at,
            _ => return out,
        }
    }
}

/// What is wrong with what is told.
fn wrong(seed: u64) -> Option<String> {
    let all = hours(seed, 2 * ANSWER_MAX + 100);
    // As it was said when each was recorded.
    let recorded: Vec<(Record, Vec<Jump>)> =
        (0..all.len()).map(|i| (all[i], jumps(&all[..i], &all[i]))).collect();
    assert!(recorded.iter().filter(|(_, j)| !j.is_empty()).count() > 20, "the test shows something");
    for from in [0, 1, 13, 500, ANSWER_MAX, ANSWER_MAX + 7, all.len() - 1] {
        let since = if from == 0 { 0 } else { all[from - 1].at };
        let got = told(&all, since);
        if got.len() != all.len() - from {
            return Some(format!("from {from}: {} records of {}", got.len(), all.len() - from));
        }
        if let Some((got, want)) = got.iter().zip(&recorded[from..]).find(|(got, want)| got != want) {
            return Some(format!("from {from}: {got:?}, and when it was recorded {want:?}"));
        }
    }
    None
}

#[test]
fn a_jump_is_one_whatever_was_asked_for_and_a_judgement_by_the_page_is_found() {
    for seed in 1..=5 {
        assert_eq!(wrong(seed), None, "seed {seed}");
        planted::plant(Some(Bug::HistoryJudgedByPage));
        let found = wrong(seed);
        planted::plant(None);
        assert!(found.as_ref().is_some_and(|w| w.contains("when it was recorded")), "seed {seed}: {found:?}");
    }
}

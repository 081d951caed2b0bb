//! Counters of `model` under several threads, which `model` itself cannot start.

use model::Timestamp;
use model::counters::Counters;
use model::histogram::{Histogram, Scale};

model::counters! {
    enum What { Open = "open" in "usecs", }
}

/// Nothing that is counted at the same time is lost.
#[test]
fn many_count_at_a_time() {
    const EACH: u64 = 20_000;
    let (c, h) = (Counters::of_set(Timestamp::ZERO), Histogram::default());
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let (c, h) = (&c, &h);
            s.spawn(move || {
                for n in 1..=EACH {
                    c.add(What::Open, n * 4 - t);
                    h.add(n % 2);
                }
            });
        }
    });
    let all = c.read(Timestamp::ZERO);
    let (d, open) = all.counted().next().unwrap();
    let n = u128::from(EACH * 4);
    assert_eq!(d.name, "open");
    assert_eq!((open.samples, open.min, open.max), (EACH * 4, 1, EACH * 4));
    assert_eq!(u128::from(open.sum), n * (n + 1) / 2);
    assert_eq!(open.squares, n * (n + 1) * (2 * n + 1) / 6);
    let halves: Vec<_> = h.read().counts(Scale::Plain).collect();
    assert_eq!(halves, [(0, EACH * 2), (1, EACH * 2)]);
}

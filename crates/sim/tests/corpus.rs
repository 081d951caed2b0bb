//! Seeds that once found a bug do not find it again.

use sim::scenario::{Options, run};

#[test]
fn old_failures_stay_away() {
    let mut seeds = 0;
    for line in
        include_str!("../corpus/seeds.txt").lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty())
    {
        let mut numbers = line.split_whitespace();
        let mut next = || {
            numbers.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or_else(|| panic!("bad line: {line}"))
        };
        let (seed, ops, crashes, actors, mounts) = (next(), next(), next(), next(), next());
        let opt = Options {
            ops,
            crashes: crashes as usize,
            actors: actors as usize,
            mounts: u8::try_from(mounts).expect("few mounts"),
            ..Options::new(seed)
        };
        assert_eq!(run(&opt).violation, None, "{line}");
        seeds += 1;
    }
    assert!(seeds > 0, "an empty corpus");
}

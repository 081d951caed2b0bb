//! Peers that lie end no server and change nothing for an honest client.

use sim::hostile::{Options, command, run};
use sim::worlds;

/// Seeds that once found something come first.
const CORPUS: &[(u64, u64)] = &[(27, 600), (356, 600)];

#[test]
fn nothing_a_peer_sends_stops_a_server() {
    let some = (1..=4).map(|seed| (seed, 500));
    let (mut seeds, mut done, mut refused) = (0, 0, 0);
    for (seed, frames) in CORPUS.iter().copied().chain(some) {
        let o = Options { seed, frames, stop: None, log: false };
        match run(&o) {
            Ok(s) => {
                assert!(s.done > 0 && s.refused > 20 && s.honest > 20, "{}: {s:?}", command(&o));
                (seeds, done, refused) = (seeds + 1, done + s.done, refused + s.refused);
            }
            Err(f) => panic!("{}: {}\n{}", command(&o), f.what, f.frames.join("\n")),
        }
        assert_eq!(worlds(), 0, "{}: what the world took is given back", command(&o));
    }
    // A single seed's few frames may mostly end their own connections; all together do not.
    assert!(done > 30 * seeds && refused > 60 * seeds, "{seeds} seeds: {done} done, {refused} refused");
}

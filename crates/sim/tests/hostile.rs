//! Peers that lie end no server and change nothing for an honest client.

use sim::hostile::{Options, command, run};
use sim::worlds;

/// Seeds that once found something come first.
const CORPUS: &[(u64, u64)] = &[(27, 600), (356, 600)];

#[test]
fn nothing_a_peer_sends_stops_a_server() {
    let some = (1..=4).map(|seed| (seed, 500));
    for (seed, frames) in CORPUS.iter().copied().chain(some) {
        let o = Options { seed, frames, stop: None, log: false };
        match run(&o) {
            Ok(s) => assert!(s.done > 20 && s.refused > 20 && s.honest > 20, "{}: {s:?}", command(&o)),
            Err(f) => panic!("{}: {}\n{}", command(&o), f.what, f.frames.join("\n")),
        }
        assert_eq!(worlds(), 0, "{}: what the world took is given back", command(&o));
    }
}

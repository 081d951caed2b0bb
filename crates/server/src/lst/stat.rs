//! `lst stat`: rates of groups from what nodes counted, in Lustre's shape.

use super::proto::Counted;
use std::fmt::Write;

const MIB: f64 = (1 << 20) as f64;

/// What is shown; nothing asked for: all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    pub rate: bool,
    pub bandwidth: bool,
    pub read: bool,
    pub write: bool,
    pub average: bool,
    pub least: bool,
    pub most: bool,
}

impl Shown {
    /// What is left out means all of its kind.
    pub fn settled(self) -> Shown {
        let all = |a: bool, b: bool, c: bool| if a || b || c { (a, b, c) } else { (true, true, true) };
        let (rate, bandwidth, _) = all(self.rate, self.bandwidth, false);
        let (read, write, _) = all(self.read, self.write, false);
        let (average, least, most) = all(self.average, self.least, self.most);
        Shown { rate, bandwidth, read, write, average, least, most }
    }
}

/// A node's rates in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub rpcs_in: f64,
    pub rpcs_out: f64,
    pub mib_in: f64,
    pub mib_out: f64,
}

/// A session that was opened anew in between counts from nothing.
pub fn rates(before: Counted, now: Counted, seconds: f64) -> Rates {
    assert!(seconds > 0.0, "rates are of an interval");
    let per = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
    Rates {
        rpcs_in: per(before.rpcs_received, now.rpcs_received),
        rpcs_out: per(before.rpcs_sent, now.rpcs_sent),
        mib_in: per(before.bytes_received, now.bytes_received) / MIB,
        mib_out: per(before.bytes_sent, now.bytes_sent) / MIB,
    }
}

fn row(o: &mut String, letter: char, values: &[f64], unit: &str, digits: usize, s: Shown) {
    let n = values.len().max(1) as f64;
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min).min(most);
    let _ = write!(o, "[{letter}]");
    for (on, word, v) in
        [(s.average, "Avg", values.iter().sum::<f64>() / n), (s.least, "Min", least), (s.most, "Max", most)]
    {
        if on {
            // writing to a String cannot fail
            let _ = write!(o, " {word}: {:<8} {unit}", format!("{v:.digits$}"));
        }
    }
    o.push('\n');
}

/// One block for a group.
pub fn block(group: &str, all: &[Rates], shown: Shown) -> String {
    let s = shown.settled();
    assert!((s.rate || s.bandwidth) && (s.read || s.write), "something is shown");
    let mut o = String::new();
    let of = |f: fn(&Rates) -> f64| all.iter().map(f).collect::<Vec<f64>>();
    if s.rate {
        let _ = writeln!(o, "[LNet Rates of {group}]");
        if s.read {
            row(&mut o, 'R', &of(|r| r.rpcs_in), "RPC/s", 0, s);
        }
        if s.write {
            row(&mut o, 'W', &of(|r| r.rpcs_out), "RPC/s", 0, s);
        }
    }
    if s.bandwidth {
        let _ = writeln!(o, "[LNet Bandwidth of {group}]");
        if s.read {
            row(&mut o, 'R', &of(|r| r.mib_in), "MiB/s", 2, s);
        }
        if s.write {
            row(&mut o, 'W', &of(|r| r.mib_out), "MiB/s", 2, s);
        }
    }
    o
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_shape_that_scripts_read() {
        let now = Counted { rpcs_received: 20, rpcs_sent: 20, bytes_received: 4 << 20, ..Counted::default() };
        let r = rates(Counted::default(), now, 2.0);
        assert_eq!(r, Rates { rpcs_in: 10.0, rpcs_out: 10.0, mib_in: 2.0, mib_out: 0.0 });
        let other = Rates { rpcs_in: 30.0, mib_in: 4.0, ..r };
        let text = block("servers", &[r, other], Shown::default());
        assert_eq!(
            text,
            "[LNet Rates of servers]\n\
             [R] Avg: 20       RPC/s Min: 10       RPC/s Max: 30       RPC/s\n\
             [W] Avg: 10       RPC/s Min: 10       RPC/s Max: 10       RPC/s\n\
             [LNet Bandwidth of servers]\n\
             [R] Avg: 3.00     MiB/s Min: 2.00     MiB/s Max: 4.00     MiB/s\n\
             [W] Avg: 0.00     MiB/s Min: 0.00     MiB/s Max: 0.00     MiB/s\n"
        );
        let only = Shown { bandwidth: true, read: true, average: true, ..Shown::default() };
        assert_eq!(block("g", &[r], only), "[LNet Bandwidth of g]\n[R] Avg: 2.00     MiB/s\n");
        assert!(!block("g", &[], Shown::default()).contains("inf"));
        // a node that began again
        assert_eq!(rates(now, Counted::default(), 1.0).rpcs_in, 0.0);
    }
}

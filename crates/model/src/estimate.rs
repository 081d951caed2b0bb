//! How long something takes at worst, lately: Lustre's adaptive estimates (`at_history`), which look back 600
//! s in four bins.

use std::time::Duration;

const BINS: usize = 4;
/// Seconds that one bin covers.
const BIN_S: u64 = 150;

/// Worst times of the last ten minutes, and of all. Times of day are seconds of any clock that does not go
/// back.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// The newest first.
    bins: [Duration; BINS],
    /// Of the newest, in bins since the clock's zero.
    newest: u64,
    worst: Duration,
    worst_at: u64,
}

impl Estimate {
    pub fn add(&mut self, took: Duration, now_s: u64) {
        self.turn(now_s);
        self.bins[0] = self.bins[0].max(took);
        if took >= self.worst {
            (self.worst, self.worst_at) = (took, now_s);
        }
        assert!(self.bins.iter().all(|b| *b <= self.worst), "nothing lately was worse than the worst of all");
    }

    fn turn(&mut self, now_s: u64) {
        let passed = (now_s / BIN_S).saturating_sub(self.newest).min(BINS as u64) as usize;
        self.newest = self.newest.max(now_s / BIN_S);
        self.bins.rotate_right(passed);
        self.bins[..passed].fill(Duration::ZERO);
    }

    /// The worst of the last ten minutes.
    pub fn current(&self, now_s: u64) -> Duration {
        let mut e = self.clone();
        e.turn(now_s);
        e.bins.into_iter().max().unwrap_or_default()
    }

    /// As a line of `timeouts`, in seconds. `wall_s`: the time of day at `now_s`.
    pub fn line(&self, name: &str, now_s: u64, wall_s: u64) -> String {
        let mut e = self.clone();
        e.turn(now_s);
        let ago = now_s.saturating_sub(e.worst_at);
        let history: String = e.bins.iter().map(|b| format!(" {:>8.3}", b.as_secs_f64())).collect();
        format!(
            "{name:<10} : cur {:>8.3}  worst {:>8.3} (at {}, {} ago) {history}\n",
            e.current(now_s).as_secs_f64(),
            e.worst.as_secs_f64(),
            wall_s.saturating_sub(ago),
            ago_text(ago)
        )
    }
}

/// `0d0h0m5s`.
pub fn ago_text(s: u64) -> String {
    format!("{}d{}h{}m{}s", s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_ten_minutes_counts() {
        let ms = Duration::from_millis;
        let mut e = Estimate::default();
        assert_eq!(e.current(5), Duration::ZERO);
        e.add(ms(40), 1000);
        e.add(ms(10), 1100);
        e.add(ms(20), 1300);
        assert_eq!(e.current(1300), ms(40));
        let bin = 1000 / BIN_S * BIN_S;
        assert_eq!(e.current(bin + 4 * BIN_S - 1), ms(40));
        assert_eq!(e.current(bin + 4 * BIN_S), ms(20), "forgotten");
        assert_eq!(e.current(1 << 40), Duration::ZERO);
        let line = e.line("network", 1310, 2_000_310);
        assert_eq!(
            line,
            "network    : cur    0.040  worst    0.040 (at 2000000, 0d0h5m10s ago)     0.020    0.010    0.040    0.000\n"
        );
        assert_eq!(ago_text(90_061), "1d1h1m1s");
    }
}

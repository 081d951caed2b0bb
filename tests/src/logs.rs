//! What hosts logged in a run: how much, and whether the story of it can be told from that.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A host's logs.
pub struct HostLog {
    pub host: String,
    pub path: PathBuf,
}

/// Something that happened, and what its logs must say of it.
pub struct Happened {
    /// For messages: `Killed: mdt0 moved to host 3`.
    pub what: String,
    pub at: SystemTime,
    /// (host, words that one of its lines has together), from then on.
    pub told: Vec<(String, Vec<String>)>,
}

/// Seconds since 1970 of a line, by the time that it begins with; `None`: a line without one.
fn seconds(line: &str) -> Option<f64> {
    let time = line.split(' ').next()?.strip_suffix('Z')?;
    let (date, clock) = time.split_once('T')?;
    let numbers =
        |text: &str, by: char| text.split(by).map(|n| n.parse::<f64>().ok()).collect::<Option<Vec<f64>>>();
    let (d, c) = (numbers(date, '-')?, numbers(clock, ':')?);
    let ([year, month, day], [hour, minute, second]) = (d.as_slice(), c.as_slice()) else { return None };
    // Days since 1970 of the proleptic calendar, with years that begin in March.
    let (y, m) = if *month <= 2.0 { (year - 1.0, month + 9.0) } else { (*year, month - 3.0) };
    let days = 365.0 * y + (y / 4.0).floor() - (y / 100.0).floor()
        + (y / 400.0).floor()
        + ((153.0 * m + 2.0) / 5.0).floor()
        + day
        - 719_469.0;
    Some(days * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

/// Lines of each host, printed; the most of one.
pub fn volume(name: &str, logs: &[HostLog]) -> Result<usize> {
    let mut most = 0;
    let mut all = Vec::new();
    for l in logs {
        let text = std::fs::read_to_string(&l.path).with_context(|| l.path.display().to_string())?;
        let n = text.lines().count();
        all.push(format!("{} {n}", l.host));
        most = most.max(n);
    }
    println!("{name}: lines of logs: {}; {most} of one host at most", all.join(", "));
    Ok(most)
}

/// Each thing that happened is told within `limit` by every host that has to know of it.
pub fn story(logs: &[HostLog], all: &[Happened], limit: Duration) -> Result<()> {
    for h in all {
        let from = h.at.duration_since(UNIX_EPOCH)?.as_secs_f64();
        let to = from + limit.as_secs_f64();
        for (host, words) in &h.told {
            let log = logs.iter().find(|l| l.host == *host).with_context(|| format!("no log of {host}"))?;
            let text = std::fs::read_to_string(&log.path)?;
            let then = |l: &&str| seconds(l).is_some_and(|t| t >= from - 0.01 && t <= to);
            let told = text.lines().filter(then).any(|l| words.iter().all(|w| l.contains(w.as_str())));
            ensure!(
                told,
                "{}: the log of {host} has no line with {words:?} within {limit:?} behind it",
                h.what
            );
        }
    }
    println!("{} moves can be told from the logs of the hosts that took part", all.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_lines_are_read() {
        assert_eq!(seconds("1970-01-01T00:00:01.500000Z  INFO x"), Some(1.5));
        assert_eq!(seconds("2026-11-28T20:40:53.250000Z  INFO x"), Some(1_795_898_453.25));
        assert_eq!(seconds("    a line that goes on"), None);
    }
}

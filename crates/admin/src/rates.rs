//! What targets count since they started, and what they did between two looks: the console's curves and
//! `nacre top`. Pure.

use std::collections::BTreeMap;

/// Operations with the time that they took together, in microseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Timed {
    pub count: u64,
    pub us: u64,
}

impl Timed {
    pub fn add(&mut self, more: Timed) {
        self.count = self.count.saturating_add(more.count);
        self.us = self.us.saturating_add(more.us);
    }

    fn since(self, before: Timed) -> Option<Timed> {
        Some(Timed { count: self.count.checked_sub(before.count)?, us: self.us.checked_sub(before.us)? })
    }

    /// Microseconds of one of them; not known if there was none.
    pub fn mean_us(self) -> Option<f64> {
        (self.count > 0).then(|| self.us as f64 / self.count as f64)
    }
}

/// What a target, or somebody on it, counted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub reads: Timed,
    pub writes: Timed,
    /// The other operations of a metadata target, by their names.
    pub metadata: BTreeMap<String, Timed>,
    /// The other operations of an OST.
    pub other: BTreeMap<String, Timed>,
}

/// One line of statistics: `read 12 samples [usecs] 1 5 30 90`.
fn line(l: &str) -> Option<(&str, u64, &str, u64)> {
    let words: Vec<&str> = l.split_whitespace().collect();
    let [name, samples, "samples", unit, ..] = words[..] else { return None };
    let sum = words.get(6).and_then(|s| s.parse().ok()).unwrap_or(0);
    Some((name, samples.parse().ok()?, unit, sum))
}

/// What was done of each, if nothing of it began anew. What was done not at all is left out.
fn since(now: &BTreeMap<String, Timed>, before: &BTreeMap<String, Timed>) -> Option<BTreeMap<String, Timed>> {
    let none = Timed::default();
    let one =
        |(name, n): (&String, &Timed)| Some((name.clone(), n.since(*before.get(name).unwrap_or(&none))?));
    let all: Option<BTreeMap<_, _>> = now.iter().map(one).collect();
    all.map(|mut all| {
        all.retain(|_, t| t.count > 0);
        all
    })
}

fn add(at: &mut BTreeMap<String, Timed>, more: &BTreeMap<String, Timed>) {
    more.iter().for_each(|(name, t)| at.entry(name.clone()).or_default().add(*t));
}

/// Together.
pub fn sum<'a>(all: impl IntoIterator<Item = &'a Timed>) -> Timed {
    let mut out = Timed::default();
    all.into_iter().for_each(|t| out.add(*t));
    out
}

impl Totals {
    /// What statistics of a target say (`obdfilter.*.stats`, `mdt.*.md_stats`, `*.exports.*.stats`), by its
    /// label. Lines that are none are left out.
    pub fn of(label: &str, text: &str) -> Totals {
        let mut t = Totals::default();
        let is_mdt = label.contains("-MDT");
        for (name, count, unit, sum) in text.lines().filter_map(line) {
            let timed = Timed { count, us: sum };
            match (name, unit) {
                ("read_bytes", _) => t.read_bytes = sum,
                ("write_bytes", _) => t.write_bytes = sum,
                ("read", "[usecs]") => t.reads = timed,
                ("write", "[usecs]") => t.writes = timed,
                (_, "[usecs]") if is_mdt => drop(t.metadata.insert(name.to_string(), timed)),
                (_, "[usecs]") => drop(t.other.insert(name.to_string(), timed)),
                _ => {}
            }
        }
        t
    }

    /// What was done since `before`. `None`: it began anew meanwhile, or somebody cleared it.
    pub fn since(&self, before: &Totals) -> Option<Totals> {
        // What was counted and is not any more was cleared as well.
        let is_gone = |all: &BTreeMap<String, Timed>, before: &BTreeMap<String, Timed>| {
            before.iter().any(|(name, t)| t.count > 0 && !all.contains_key(name))
        };
        if is_gone(&self.metadata, &before.metadata) || is_gone(&self.other, &before.other) {
            return None;
        }
        Some(Totals {
            read_bytes: self.read_bytes.checked_sub(before.read_bytes)?,
            write_bytes: self.write_bytes.checked_sub(before.write_bytes)?,
            reads: self.reads.since(before.reads)?,
            writes: self.writes.since(before.writes)?,
            metadata: since(&self.metadata, &before.metadata)?,
            other: since(&self.other, &before.other)?,
        })
    }

    pub fn add(&mut self, more: &Totals) {
        self.read_bytes = self.read_bytes.saturating_add(more.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(more.write_bytes);
        self.reads.add(more.reads);
        self.writes.add(more.writes);
        add(&mut self.metadata, &more.metadata);
        add(&mut self.other, &more.other);
    }

    /// All operations on metadata together.
    pub fn metadata_all(&self) -> Timed {
        sum(self.metadata.values())
    }

    /// All operations together.
    pub fn all(&self) -> Timed {
        let mut out = sum(self.metadata.values().chain(self.other.values()));
        out.add(self.reads);
        out.add(self.writes);
        out
    }

    /// Each operation that was done, by its name.
    pub fn by_name(&self) -> BTreeMap<&str, Timed> {
        let mut out: BTreeMap<&str, Timed> =
            self.metadata.iter().chain(&self.other).map(|(n, t)| (n.as_str(), *t)).collect();
        out.insert("read", self.reads);
        out.insert("write", self.writes);
        out.retain(|_, t| t.count > 0);
        out
    }
}

/// How many took at most so many milliseconds and more than half of that, by the bound.
pub type Times = BTreeMap<u64, u64>;

/// `16`, `4K`, `1M`.
fn bound(text: &str) -> Option<u64> {
    match text.strip_suffix(['K', 'M']) {
        Some(n) => Some(n.parse::<u64>().ok()? << if text.ends_with('K') { 10 } else { 20 }),
        None => text.parse().ok(),
    }
}

/// The times of reads and of writes in `obdfilter.*.brw_stats`.
pub fn io_times(brw_stats: &str) -> [Times; 2] {
    let mut out = [Times::new(), Times::new()];
    let table = brw_stats.lines().skip_while(|l| !l.starts_with("I/O time (1/1000s)")).skip(1);
    for l in table.take_while(|l| !l.trim().is_empty()) {
        let Some((label, rest)) = l.split_once(':') else { continue };
        let sides = rest.split('|').map(|s| s.split_whitespace().next().and_then(|n| n.parse().ok()));
        let Some(ms) = bound(label.trim()) else { continue };
        for (side, n) in out.iter_mut().zip(sides) {
            side.insert(ms, n.unwrap_or(0));
        }
    }
    out
}

/// The bound, in microseconds, below which 99 of 100 of those between two looks were. Not known if there were
/// none, or somebody cleared them.
pub fn p99_us(now: &Times, before: &Times) -> Option<f64> {
    let one = |(ms, n): (&u64, &u64)| Some((*ms, n.checked_sub(*before.get(ms).unwrap_or(&0))?));
    let done: Times = now.iter().map(one).collect::<Option<_>>()?;
    let all: u64 = done.values().fold(0, |a, n| a.saturating_add(*n));
    let wanted = (u128::from(all) * 99).div_ceil(100);
    let mut met = 0u128;
    done.into_iter().filter(|_| all > 0).find_map(|(ms, n)| {
        met += u128::from(n);
        (met >= wanted).then_some(ms as f64 * 1000.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MDT: &str = "snapshot_time 1.5 secs.nsecs\nopen 12 samples [usecs] 1 9 120 0\nping 3 samples [reqs]\n\
                       create 2 samples [usecs] 1 9 50 0\nread 1 samples [usecs] 7 7 7 0\nrubbish\n";

    #[test]
    fn a_target_did_what_it_counts_more_than_before() {
        let before = Totals::of("d-MDT0000", MDT);
        assert_eq!(before.metadata_all(), Timed { count: 14, us: 170 });
        assert_eq!((before.reads.count, before.all().count), (1, 15));
        let now = Totals::of("d-MDT0000", &MDT.replace("open 12", "open 20").replace("120 0", "200 0"));
        let done = now.since(&before).unwrap();
        assert_eq!(done.by_name(), BTreeMap::from([("open", Timed { count: 8, us: 80 })]));
        assert_eq!(done.metadata_all().mean_us(), Some(10.0));
        assert_eq!((before.since(&now), done.reads.mean_us()), (None, None), "it began anew");
        assert_eq!(Totals::default().since(&before), None, "it was cleared");
        let mut twice = done.clone();
        twice.add(&done);
        assert_eq!(twice.all(), Timed { count: 16, us: 160 });
        let ost = Totals::of(
            "d-OST0000",
            "sync 4 samples [usecs] 1 9 40 0\nwrite_bytes 2 samples [bytes] 1 9 10 0\n",
        );
        assert_eq!((ost.metadata_all().count, ost.all().count, ost.write_bytes), (0, 4, 10));
    }

    #[test]
    fn ninety_nine_of_a_hundred_were_below_a_bound() {
        let text = |a: u64, b: u64| {
            format!(
                "snapshot_time 1\n\n  read | write\ndisk I/Os in flight    ios   % cum % |  ios  % cum %\n\
                 1:\t\t 5 1 1 | 5 1 1\n\n   read  |  write\n\
                 I/O time (1/1000s)     ios   % cum % |  ios         % cum %\n\
                 1:\t\t         {a}  50  50   |    0   0   0\n4K:\t\t {b} 50 100 | 3 100 100\n\n  read | write\n\
                 disk I/O size          ios   % cum % |  ios         % cum %\n1:\t\t 9 1 1 | 9 1 1\n"
            )
        };
        let [before, _] = io_times(&text(10, 0));
        let [now, writes] = io_times(&text(109, 1));
        assert_eq!(now, Times::from([(1, 109), (4096, 1)]));
        assert_eq!(p99_us(&now, &before), Some(1000.0), "one of a hundred was slower");
        assert_eq!(p99_us(&io_times(&text(109, 2))[0], &before), Some(4_096_000.0));
        assert_eq!(p99_us(&writes, &Times::new()), Some(4_096_000.0));
        assert_eq!(p99_us(&before, &now), None, "it was cleared");
        assert_eq!(p99_us(&now, &now), None, "there were none");
        assert_eq!(io_times("rubbish"), [Times::new(), Times::new()]);
    }
}

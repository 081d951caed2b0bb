//! A disk whose errors and stalls are switched on while it works: how an administrator or a test sees what a
//! failing disk does.
//!
//! Off, it costs one relaxed load a call.

use crate::gate::{Gate, Kind};
use crate::lock;
use crate::sys;
use model::Errno;
use model::mutex::Mutex;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Rules of one disk.
const RULES_MAX: usize = 16;

/// What rules are about; `None`: everything.
const KINDS: [(&str, Option<Kind>); 5] = [
    ("read", Some(Kind::Read)),
    ("write", Some(Kind::Write)),
    ("flush", Some(Kind::Flush)),
    ("name", Some(Kind::Name)),
    ("all", None),
];

const ERRORS: [Errno; 3] = [Errno::EIO, Errno::ENOSPC, Errno::EROFS];

/// The longest that a call is held up, milliseconds.
const STALL_MAX_MS: u64 = 600_000;

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Error(Errno),
    /// It is made so many milliseconds late.
    Stall(u64),
}

impl Outcome {
    fn parse(text: &str) -> Option<Outcome> {
        if let Some(ms) = text.strip_suffix("ms") {
            return ms.parse().ok().filter(|ms| (1..=STALL_MAX_MS).contains(ms)).map(Outcome::Stall);
        }
        ERRORS.into_iter().find(|e| e.name() == text).map(Outcome::Error)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Error(e) => f.write_str(e.name()),
            Outcome::Stall(ms) => write!(f, "{ms}ms"),
        }
    }
}

/// One kind of calls fails, or takes long.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    kind: Option<Kind>,
    outcome: Outcome,
    /// Calls that it is about before the rule is spent; 0: all.
    left: u64,
    /// Only paths with this in them; empty: all.
    part: String,
}

impl Rule {
    fn parse(text: &str) -> Option<Rule> {
        let (text, part) = text.split_once('@').unwrap_or((text, ""));
        let (kind, outcome) = text.split_once('=')?;
        let (outcome, left) = match outcome.split_once(':') {
            Some((o, n)) => (o, n.parse().ok().filter(|n| *n > 0)?),
            None => (outcome, 0),
        };
        let kind = KINDS.iter().find(|(n, _)| *n == kind)?.1;
        Some(Rule { kind, outcome: Outcome::parse(outcome)?, left, part: part.to_string() })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = KINDS.iter().find(|(_, k)| *k == self.kind).map_or("", |(n, _)| n);
        write!(f, "{kind}={}", self.outcome)?;
        if self.left > 0 {
            write!(f, ":{}", self.left)?;
        }
        if !self.part.is_empty() {
            write!(f, "@{}", self.part)?;
        }
        Ok(())
    }
}

/// The switch: the gate of a [`crate::gate::GatedDisk`].
#[derive(Default, Debug)]
pub struct DiskFaults {
    on: AtomicBool,
    rules: Mutex<Vec<Rule>>,
    fired: AtomicU64,
}

impl DiskFaults {
    /// `none`, or rules with commas between them: `OP=ERROR[:COUNT][@PART]`, where OP is `read`, `write`,
    /// `flush`, `name` or `all`, ERROR is `EIO`, `ENOSPC` or `EROFS`, or a time as `2000ms` by which calls
    /// are late, COUNT how many calls fail or are late before the rule is spent, PART what a path must have
    /// in it. `EINVAL` for anything else; then nothing changes.
    pub fn set(&self, text: &str) -> Result<(), Errno> {
        let rules: Option<Vec<Rule>> = match text.trim() {
            "none" | "" => Some(Vec::new()),
            t => t.split(',').map(Rule::parse).collect(),
        };
        let rules = rules.filter(|r| r.len() <= RULES_MAX).ok_or(Errno::EINVAL)?;
        let mut held = lock(&self.rules);
        self.on.store(!rules.is_empty(), Relaxed);
        *held = rules;
        Ok(())
    }

    /// What is left of the rules, as they are set.
    pub fn text(&self) -> String {
        let rules = lock(&self.rules);
        if rules.is_empty() {
            return "none".into();
        }
        rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(",")
    }

    /// Calls that failed or were late so far.
    pub fn fired(&self) -> u64 {
        self.fired.load(Relaxed)
    }
}

impl Gate for DiskFaults {
    fn pass(&self, kind: Kind, path: &str) -> io::Result<()> {
        if !self.on.load(Relaxed) {
            return Ok(());
        }
        let mut rules = lock(&self.rules);
        let fits = |r: &Rule| r.kind.is_none_or(|k| k == kind) && path.contains(&r.part);
        let Some(at) = rules.iter().position(fits) else { return Ok(()) };
        let outcome = rules[at].outcome;
        match rules[at].left {
            0 => {}
            1 => drop(rules.remove(at)),
            _ => rules[at].left -= 1,
        }
        self.on.store(!rules.is_empty(), Relaxed);
        self.fired.fetch_add(1, Relaxed);
        drop(rules);
        match outcome {
            Outcome::Error(e) => Err(io::Error::from_raw_os_error(e.0)),
            Outcome::Stall(ms) => {
                sys::sleep(Duration::from_millis(ms));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::GatedDisk;
    use crate::mem::MemDisk;
    use crate::{Disk, OpenMode};
    use std::sync::Arc;

    #[test]
    fn rules_say_which_calls_fail_and_how_often() {
        let faults = Arc::new(DiskFaults::default());
        let disk = GatedDisk::new(Arc::new(MemDisk::new()), faults.clone());
        disk.mkdir("/t").unwrap();
        let f = disk.open("/t/a", OpenMode::CREATE).unwrap();
        faults.set("write=EIO:2@/a,flush=ENOSPC").unwrap();
        let code = |r: io::Result<()>| r.unwrap_err().raw_os_error().unwrap();
        assert_eq!(code(f.write_at(b"x", 0)), Errno::EIO.0);
        assert_eq!(faults.text(), "write=EIO:1@/a,flush=ENOSPC");
        assert_eq!(code(f.set_len(0)), Errno::EIO.0);
        f.write_at(b"x", 0).unwrap();
        assert_eq!(code(f.sync_data()), Errno::ENOSPC.0);
        assert_eq!(code(disk.sync_dir("/t")), Errno::ENOSPC.0);
        assert_eq!(f.read_at(&mut [0], 0).unwrap(), 1);
        assert_eq!(faults.fired(), 4);
        for wrong in ["write", "write=EPERM", "sync=EIO", "read=EIO:0", "read=EIO,"] {
            assert_eq!(faults.set(wrong), Err(Errno::EINVAL), "{wrong}");
        }
        faults.set("flush=50ms:1@/a").unwrap();
        assert_eq!(faults.text(), "flush=50ms:1@/a");
        let end = sys::Deadline::after(Duration::from_millis(50));
        f.sync_data().unwrap();
        assert!(end.passed() && faults.text() == "none");
        for wrong in ["flush=0ms", "flush=600001ms", "flush=ms", "flush=5s", "flush=-1ms"] {
            assert_eq!(faults.set(wrong), Err(Errno::EINVAL), "{wrong}");
        }
        faults.set("none").unwrap();
        f.sync_data().unwrap();
        assert_eq!(faults.text(), "none");
    }
}

//! A request that a target executes, as it is told of when the target hangs.

use std::net::IpAddr;
use std::time::Duration;
use wire::Op;

/// Of a name that a client gave itself, or a job.
const NAME_MAX_CHARS: usize = 48;

/// A request that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtWork {
    pub age: Duration,
    pub op: Op,
    /// Empty: its sender did not say.
    pub jobid: String,
    /// What its client calls itself.
    pub name: String,
    pub address: IpAddr,
}

impl std::fmt::Display for AtWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Clients give these names, and lines of logs end with a line.
        let plain = |c: char| if c.is_control() { '_' } else { c };
        let cut = |text: &str| text.chars().take(NAME_MAX_CHARS).map(plain).collect::<String>();
        write!(f, "{:?} of {} at {}", self.op, cut(&self.name), self.address)?;
        if !self.jobid.is_empty() {
            write!(f, " for job {}", cut(&self.jobid))?;
        }
        write!(f, " since {:.1} s", self.age.as_secs_f64())
    }
}

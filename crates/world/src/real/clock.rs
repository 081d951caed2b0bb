//! The host's clocks.

use super::Entered;
use crate::{BoxFuture, Clock, Instant};
use std::time::Duration;
use tokio::runtime::Handle;

pub(super) struct RealClock {
    handle: Handle,
    start: std::time::Instant,
}

#[allow(clippy::disallowed_methods)] // the production side of the boundary
impl RealClock {
    pub(super) fn new(handle: Handle) -> RealClock {
        RealClock { handle, start: std::time::Instant::now() }
    }
}

#[allow(clippy::disallowed_methods)] // as above
impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> model::Timestamp {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => model::Timestamp { sec: d.as_secs() as i64, nsec: d.subsec_nanos() },
            Err(e) => {
                let d = e.duration();
                model::Timestamp::from_nanos(-(d.as_nanos() as i128))
            }
        }
    }

    fn sleep(&self, d: Duration) -> BoxFuture<()> {
        let handle = self.handle.clone();
        // The deadline counts from the call, not from the first poll.
        let until = tokio::time::Instant::now() + d.min(Duration::from_secs(86_400 * 365));
        Box::pin(Entered::new(handle, async move { tokio::time::sleep_until(until).await }))
    }
}

//! Times of the whole daemon that an administrator may change while it runs: `timeout`, `ping_interval`,
//! `ldlm_timeout`.

use super::Node;
use model::Errno;
use rpc::server::PING_DEFAULT_MS;

/// `ping_interval` unless set otherwise, seconds.
pub(super) const PING_DEFAULT_S: u64 = PING_DEFAULT_MS as u64 / 1000;
/// Mounts look at their sessions at least as often, seconds.
pub(super) const PING_MAX_S: u64 = 60;
/// What `ldlm_timeout` shows of targets for which nobody has set anything, seconds.
pub(super) const CALLBACK_DEFAULT_S: u64 = 20;

/// `lock_callback_timeout` of every target.
const CALLBACK: &str = "*.*.lock_callback_timeout";

impl Node {
    /// Seconds.
    pub(super) fn ping_interval_s(&self) -> u64 {
        let ms = self.server.ping_interval().as_millis();
        u64::try_from(ms.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// `ERANGE`: mounts would look later than that.
    pub(super) fn change_ping_interval(&self, ms: u64) -> Result<(), Errno> {
        if ms > PING_MAX_S * 1000 {
            return Err(Errno::ERANGE);
        }
        self.server.set_ping_interval(u32::try_from(ms).map_err(|_| Errno::ERANGE)?);
        Ok(())
    }

    /// The longest of its targets, seconds: at least four intervals, for which leases are relied on.
    pub(super) fn callback_timeout_s(&self) -> u64 {
        let shown = self.targets().into_iter().flat_map(|t| t.get_params(CALLBACK));
        let set = shown.filter_map(|(_, v)| v.parse().ok()).max();
        // An OST for which nobody said anything goes by its leases.
        set.map_or(CALLBACK_DEFAULT_S, |s: u64| s.max(4 * self.ping_interval_s()))
    }

    /// Of all its targets.
    pub(super) fn set_callback_timeout(&self, seconds: &str) -> Result<(), Errno> {
        for t in self.targets() {
            match world::block_on(t.set_params(CALLBACK, seconds)) {
                // An MGT has none.
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

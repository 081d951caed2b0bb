//! ping: the session is alive.

use model::Errno;
use wire::msg::ping::Ping;

pub fn run(_m: Ping) -> Result<(), Errno> {
    Ok(())
}

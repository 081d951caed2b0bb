//! disconnect: the client leaves for good. The session layer answers it, after `Service::departed` dropped
//! the client's opens, locks and record; nothing is left to do here.

use model::Errno;
use wire::msg::disconnect::Disconnect;

pub fn run(_m: Disconnect) -> Result<(), Errno> {
    Ok(())
}

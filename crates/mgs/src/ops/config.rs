//! config: the targets and parameters of a file system.

use super::{Done, done};
use crate::service::Mgs;
use model::Errno;
use wire::msg::config::Config;

pub fn run(mgs: &Mgs, m: &Config) -> Result<Done, Errno> {
    Ok(done(&mgs.state(|s| s.config(&m.fsname))?, mgs.seen(), false))
}

//! config: the targets and parameters of a file system.

use super::{Done, done};
use crate::mounts;
use crate::service::Mgs;
use model::Errno;
use rpc::Incoming;
use wire::msg::config::Config;

pub fn run(mgs: &Mgs, req: &Incoming, m: &Config) -> Result<Done, Errno> {
    let config = mgs.state(|s| s.config(&m.fsname))?;
    mounts::asked(mgs, req, &m.fsname);
    Ok(done(&config, mgs.seen(), false))
}

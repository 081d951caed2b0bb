//! changelogclear: a consumer of the changelog needs records up to one no more. They are freed in the
//! background when no other consumer does.

use crate::changelog;
use crate::names::OpContext;
use crate::tx::Tx;
use model::Errno;
use wire::msg::changelogclear::Changelogclear;

/// `EPERM` for anybody but root, `ENOENT` if there is no such consumer, `EINVAL` for a record that is not
/// there yet.
pub fn run(tx: &mut Tx, ctx: &OpContext, m: Changelogclear) -> Result<(), Errno> {
    if !ctx.cred.is_root() {
        return Err(Errno::EPERM);
    }
    changelog::clear(tx, &m.consumer, m.end)
}

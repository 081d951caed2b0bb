//! makeroom: the trash gives way on an object target that has no room for what somebody writes.

use crate::mdt::Mdt;
use crate::trash::room;
use model::Errno;
use std::sync::Arc;
use wire::msg::makeroom::Makeroom;

/// `ENOSPC`: nothing there lies in the trash.
pub async fn run(mdt: &Arc<Mdt>, m: &Makeroom) -> Result<(), Errno> {
    if room::make(mdt, m.ost, m.bytes).await? { Ok(()) } else { Err(Errno::ENOSPC) }
}

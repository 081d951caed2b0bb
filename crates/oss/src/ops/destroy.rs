//! destroy: removes objects and leaves tombstones. Objects that are not there are no error: a destroy may
//! come twice, and an object that was never written never was.

use super::{Cx, Done, check_object};
use model::planted::{self, Bug};
use model::{Errno, limits};
use wire::msg::destroy::Destroy;

pub async fn run(cx: &Cx, m: Destroy) -> Result<Done, Errno> {
    cx.ost.writable()?;
    if m.objects.len() > limits::OBJECTS_PER_RPC_MAX {
        return Err(Errno::EMSGSIZE);
    }
    for &id in &m.objects {
        check_object(id)?;
    }
    let objects = m.objects.clone();
    let finish = cx.slot.clone().finish(|_, _| ());
    let lsn = cx.ost.objects.destroy(m.objects, finish).await.map_err(|e| e.errno())?;
    // The metadata server forgets what it had to say once it has the answer, and does not say it again.
    cx.ost.db.durable_in_time(lsn).await.map_err(|e| e.errno())?;
    if !planted::on(Bug::MappingOfOldObjects) && !planted::on(Bug::GoneBesideLocks) {
        objects.into_iter().for_each(|id| cx.ost.locks.block_holders(id));
    }
    Ok(Done::changed(&(), lsn))
}

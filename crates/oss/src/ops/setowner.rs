//! setowner: objects are counted to the new owners of their files. Those that were destroyed are no error.

use super::{Cx, Done, check_object};
use model::{Errno, limits};
use store::object::ObjectMeta;
use store::{StoreError, Txn};
use wire::msg::setowner::Setowner;

pub async fn run(cx: &Cx, m: Setowner) -> Result<Done, Errno> {
    cx.ost.writable()?;
    let files = m.into_files();
    let objects = || files.iter().flat_map(|f| &f.objects);
    if objects().count() > limits::OBJECTS_PER_RPC_MAX {
        return Err(Errno::EMSGSIZE);
    }
    objects().try_for_each(|id| check_object(*id))?;
    for f in &files {
        let meta = ObjectMeta {
            file: f.file,
            owner: cx.map.owner(f.owner()),
            owner_as_of: Some(f.as_of),
            time: None,
            // No byte changes: the version stays what it is.
            data_version: Some(0),
            label: None,
        };
        for id in &f.objects {
            // An object of a target that was replaced is nobody's.
            if cx.ost.is_lost(*id)? {
                continue;
            }
            match cx.ost.objects.set_owner(*id, meta.clone(), Box::new(|_, _, _| {})).await {
                Ok(_) | Err(StoreError::Errno(Errno::ESTALE)) => {}
                Err(e) => return Err(e.errno()),
            }
        }
    }
    // Behind all of them: after a crash in between all is done again, which does no harm.
    let mut txn = Txn::new();
    cx.slot.clone().put(&mut txn, &());
    let lsn = cx.ost.db.submit(txn).map_err(|e| e.errno())?;
    // The metadata server forgets what it had to say once it has the answer.
    cx.ost.db.durable_in_time(lsn).await.map_err(|e| e.errno())?;
    Ok(Done::changed(&(), lsn))
}

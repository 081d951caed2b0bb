//! What must hold of the trash: what lies in it has no names and is no orphan, and its record and its inode
//! say the same.

use crate::MdsError;
use crate::schema::{Inode, key};
use model::Fid;
use model::usage::TRASH_LABEL;
use store::Read;

/// What is wrong with what a file says of itself and the trash.
pub fn of_inode(db: &dyn Read, fid: Fid, i: &Inode) -> Result<Option<&'static str>, MdsError> {
    let Some(r) = &i.removed else {
        let stray = i.directory == TRASH_LABEL && i.nlink > 0;
        return Ok(stray.then_some("is counted to the trash, but not in it"));
    };
    let recorded = db.get(&key::trash(r.when, fid))?.is_some();
    Ok(match (i.nlink, recorded, i.directory == TRASH_LABEL) {
        (0, true, true) => None,
        (0, true, false) => Some("lies in the trash, but is not counted to it"),
        (0, false, _) => Some("lies in the trash, which does not know it"),
        _ => Some("lies in the trash but has links"),
    })
}

/// What is wrong with a record of the trash.
pub fn of_record(db: &dyn Read, k: &[u8]) -> Result<Option<(Fid, &'static str)>, MdsError> {
    let Some((when, fid)) = key::parse_trash(k) else {
        return Ok(Some((Fid::NONE, "has a record in the trash whose key is of no known form")));
    };
    let Some(v) = db.get(&key::inode(fid))? else {
        return Ok(Some((fid, "is in the trash but does not exist")));
    };
    let same = Inode::decode(fid, &v).map_or(true, |i| i.removed.is_some_and(|r| r.when == when));
    Ok((!same).then_some((fid, "is in the trash by its record, but not by its inode")))
}

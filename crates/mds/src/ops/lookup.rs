//! lookup: a name in a directory.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use wire::msg::lookup::{Entry, Lookup};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Lookup) -> Result<Entry, Errno> {
    if m.name.is_empty() {
        let i = tx.dir(m.parent)?;
        return Ok(names::entry(m.parent, &i));
    }
    names::check_name(&m.name)?;
    let dir = names::searched(tx, ctx, m.parent)?;
    let fid = match m.name.as_slice() {
        b"." => m.parent,
        b".." => dir.parent,
        name => tx.entry(m.parent, name)?.fid,
    };
    let i = tx.promised(fid)?;
    Ok(names::entry(fid, &i))
}

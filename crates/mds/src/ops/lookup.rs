//! lookup: a name in a directory.

use crate::names::{self, OpContext};
use crate::tx::{Found, Tx};
use model::{Errno, Fid, inode_rules};
use wire::msg::lookup::{Lookup, LookupReply, bits};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Lookup) -> Result<LookupReply, Errno> {
    if m.name.is_empty() {
        let i = tx.dir(m.parent)?;
        return Ok(LookupReply { entry: Some(names::entry(tx, m.parent, &i)), dir_grant: None });
    }
    inode_rules::check_name(&m.name)?;
    let dir = names::searched(tx, ctx, m.parent)?;
    match m.name.as_slice() {
        b"." => there(tx, m.parent, 0),
        b".." => there(tx, dir.parent, 0),
        name => {
            let found = tx.find(m.parent, name)?;
            let dir_grant = tx.offer(m.parent, bits::LOOKUP);
            match found {
                Found::Entry(d) => Ok(LookupReply { dir_grant, ..there(tx, d.fid, m.data)? }),
                Found::Free(_) => Ok(LookupReply { entry: None, dir_grant }),
            }
        }
    }
}

fn there(tx: &mut Tx, fid: Fid, data: u32) -> Result<LookupReply, Errno> {
    let i = tx.promised(fid)?;
    let e = names::entry(tx, fid, &i);
    Ok(LookupReply { entry: Some(names::with_content(tx, e, &i, data)?), dir_grant: None })
}

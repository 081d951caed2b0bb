//! trashlist: what lies in the trash.

use crate::names::OpContext;
use crate::trash::list;
use crate::tx::Tx;
use model::Errno;
use wire::msg::trashlist::{Trashlist, TrashlistReply};

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Trashlist) -> Result<TrashlistReply, Errno> {
    list::page(tx, ctx, &m)
}

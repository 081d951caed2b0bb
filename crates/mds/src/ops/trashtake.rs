//! trashtake: files get out of the trash: back to a directory, or for good.

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::trash;
use crate::tx::Tx;
use model::Errno;
use wire::encode_message;
use wire::msg::trashtake::{FILES_MAX, Trashtake, TrashtakeReply};

/// One transaction for all of them. What the caller's mount keeps of the files and directories it gives back
/// like all others: it takes no part in the change, as a mount does that removes a name.
pub async fn run(mdt: &Mdt, to: &ReplyTo, ctx: &OpContext, m: &Trashtake) -> Done {
    if m.files.len() > FILES_MAX {
        return Done::error(Errno::E2BIG);
    }
    mdt.transactions.within_shares_by(None, to, |tx| take(tx, ctx, m)).await
}

fn take(tx: &mut Tx, ctx: &OpContext, m: &Trashtake) -> Result<Vec<u8>, Errno> {
    let mut results = Vec::with_capacity(m.files.len());
    for (fid, how) in &m.files {
        let start = tx.savepoint();
        let done = trash::take_out(tx, ctx, *fid, how);
        results.push(match done.and_then(|()| tx.check_limits(ctx.cred.is_root(), ctx.wall)) {
            Ok(()) => 0,
            // Others' shares are looked at, or data moves: all of it waits.
            Err(e @ (Errno::EGROWING | Errno::EDEEP | Errno::ESHARE)) => return Err(e),
            Err(e) => {
                tx.rollback(start);
                u16::try_from(e.0).unwrap_or(Errno::EIO.0 as u16)
            }
        });
    }
    assert_eq!(results.len(), m.files.len(), "of each file it is said what became of it");
    Ok(encode_message(&TrashtakeReply { results }))
}

//! layout: a file's layout for who was refused by an object server. An attempt to move the file's data
//! (`relayout`) that is under way is waited for; one that a crash ended is settled first, because its fences
//! stand.

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::tx::Tx;
use crate::{names, relayout};
use model::Errno;
use wire::encode_message;
use wire::msg::layout::Layout;

pub async fn run(mdt: &Mdt, to: &ReplyTo, m: &Layout) -> Done {
    loop {
        let mut ends = mdt.shared.growing.ends();
        let mut abandoned = false;
        let look = |tx: &mut Tx| {
            let i = tx.try_inode(m.fid)?.ok_or(Errno::ESTALE)?;
            abandoned = relayout::is_abandoned(tx, m.fid, &i);
            if abandoned || tx.shared.growing.contains(m.fid) {
                return Err(Errno::EGROWING);
            }
            Ok(encode_message(&names::entry(tx, m.fid, &i)))
        };
        let done = mdt.transactions.read(to, look).await;
        match done.result {
            Err(Errno::EGROWING) if abandoned => {
                let settle = |tx: &mut Tx| relayout::settle_abandoned(tx, m.fid).map(|()| Vec::new());
                match mdt.transactions.transact(None, settle).await.result {
                    Ok(_) | Err(Errno::EGROWING) => {}
                    Err(e) => return Done::error(e),
                }
            }
            Err(Errno::EGROWING) => {
                let _ = ends.changed().await;
            }
            _ => return done,
        }
    }
}

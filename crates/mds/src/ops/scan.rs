//! scan: a page of the files below a directory that may fit some conditions (`lfs find`, `nacre report`).
//!
//! Before the first page owners tell what they have done, so that what was done before the scan began is
//! seen. Later pages wait for nobody.

use crate::done::{Done, ReplyTo};
use crate::mdt::Mdt;
use crate::names::OpContext;
use crate::scan;
use model::Errno;
use store::Seen;
use wire::encode_message;
use wire::msg::scan::{Scan, ScanReply};
use world::future::give_way;

/// Pages that a request looks at while they hold nothing; between them others have their turn.
const PAGES_MAX: usize = 16;

pub async fn run(mdt: &Mdt, ctx: &OpContext, to: &ReplyTo, m: &Scan) -> Done {
    if m.after.is_none()
        && let Err(e) = mdt.transactions.owners_told(Some(to.client)).await
    {
        return Done::error(e);
    }
    let (mut m, mut looked, mut seen) = (m.clone(), 0u32, Seen::default());
    for _ in 1..PAGES_MAX {
        let (page, depends) = look(mdt, ctx, to, &m);
        seen.merge(depends);
        match page {
            Ok(p) if p.holds_nothing() && p.next.is_some() => {
                looked = looked.saturating_add(p.looked);
                m.after = p.next;
            }
            page => return answer(page, looked, seen),
        }
        give_way().await;
    }
    let (page, depends) = look(mdt, ctx, to, &m);
    seen.merge(depends);
    answer(page, looked, seen)
}

fn look(mdt: &Mdt, ctx: &OpContext, to: &ReplyTo, m: &Scan) -> (Result<ScanReply, Errno>, Seen) {
    mdt.transactions.peek(to, |tx| scan::page(tx, &ctx.cred, m, scan::BOUNDS))
}

/// `looked`: files of the pages before, which held nothing.
fn answer(page: Result<ScanReply, Errno>, looked: u32, seen: Seen) -> Done {
    let whole = |p: ScanReply| encode_message(&ScanReply { looked: p.looked.saturating_add(looked), ..p });
    Done::looked(page.map(whole), seen)
}

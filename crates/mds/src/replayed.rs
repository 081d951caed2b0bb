//! Whether a request that was done again after a restart came to what it came to the first time.

use crate::dispatch::decode;
use model::Fid;
use std::collections::BTreeMap;
use wire::Op;
use wire::msg::close::CloseReply;
use wire::msg::create::CreateReply;
use wire::msg::lookup::Entry;
use wire::msg::unlink::Changed;
use wire::msg::write::WriteReply;
use wire::verb::Answer;

/// Leases were granted for a moment that is over.
fn bare(e: Entry) -> Entry {
    Entry { grant: None, dir_grant: None, content: None, ..e }
}

/// A file without names is gone, or will be when recovery is over.
fn named(c: Changed) -> BTreeMap<Fid, Option<Entry>> {
    let gone = c.gone.into_iter().map(|f| (f, None));
    let there = c.entries.into_iter().map(|e| (e.attr.fid, (e.attr.nlink > 0).then(|| bare(e))));
    there.chain(gone).collect()
}

/// Whether two replies of one message say the same.
pub fn same(op: Op, first: &[u8], now: &[u8]) -> bool {
    match op.verb().answer {
        Answer::Created => {
            let of = |b| decode::<CreateReply>(b).map(|r| (r.created, bare(r.entry)));
            matches!((of(first), of(now)), (Ok(a), Ok(b)) if a == b)
        }
        Answer::Entry => {
            let of = |b| decode::<Entry>(b).map(bare);
            matches!((of(first), of(now)), (Ok(a), Ok(b)) if a == b)
        }
        Answer::Written => {
            let of = |b| decode::<WriteReply>(b).map(|r| (r.offset, r.attr, r.entry.map(|e| bare(*e))));
            matches!((of(first), of(now)), (Ok(a), Ok(b)) if a == b)
        }
        Answer::Closed => {
            // A file without names is gone, or will be when recovery is over.
            let there = |r: CloseReply| r.entry.filter(|e| e.attr.nlink > 0).map(|e| bare(*e));
            let of = |b| decode::<CloseReply>(b).map(there);
            matches!((of(first), of(now)), (Ok(a), Ok(b)) if a == b)
        }
        Answer::Changed => {
            let of = |b| decode::<Changed>(b).map(named);
            matches!((of(first), of(now)), (Ok(a), Ok(b)) if a == b)
        }
        Answer::Plain => first == now,
    }
}

//! Whether a request that was done again after a restart came to what it came to the first time.

use model::Fid;
use std::collections::BTreeMap;
use wire::msg::close::CloseReply;
use wire::msg::create::CreateReply;
use wire::msg::lookup::Entry;
use wire::msg::unlink::Changed;
use wire::msg::write::WriteReply;
use wire::verb::Answer;
use wire::{CodecError, Op, decode_message};

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

/// Whether two replies are equal in what `of` takes of them.
fn agree<T: PartialEq>(first: &[u8], now: &[u8], of: impl Fn(&[u8]) -> Result<T, CodecError>) -> bool {
    matches!((of(first), of(now)), (Ok(a), Ok(b)) if a == b)
}

/// Whether two replies of one message say the same.
pub fn same(op: Op, first: &[u8], now: &[u8]) -> bool {
    match op.verb().answer {
        Answer::Created => {
            agree(first, now, |b| decode_message::<CreateReply>(b).map(|r| (r.created, bare(r.entry))))
        }
        Answer::Entry => agree(first, now, |b| decode_message::<Entry>(b).map(bare)),
        Answer::Written => agree(first, now, |b| {
            decode_message::<WriteReply>(b).map(|r| (r.offset, r.attr, r.entry.map(|e| bare(*e))))
        }),
        // A file without names is gone, or will be when recovery is over.
        Answer::Closed => agree(first, now, |b| {
            decode_message::<CloseReply>(b).map(|r| r.entry.filter(|e| e.attr.nlink > 0).map(|e| bare(*e)))
        }),
        Answer::Changed => agree(first, now, |b| decode_message::<Changed>(b).map(named)),
        Answer::Plain => first == now,
    }
}

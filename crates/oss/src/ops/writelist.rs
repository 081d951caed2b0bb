//! writelist: bytes into several ranges of an object, one after the other, each in a transaction of its own.
//! The answer is in the last one's: after a crash between two the request is unanswered, and its client sends
//! it again.

use super::write::{admitted, compared, meta_of, owner_of, reply_of, within_share};
use super::{Cx, Done, check_object, check_range, last_byte, same_blocks};
use bytes::Bytes;
use model::{Errno, limits};
use store::object::{ListPart, ObjectMeta};
use wire::msg::write::WriteReply;
use wire::msg::writelist::{RANGES_MAX, WriteRange, Writelist};
use wire::trailing::Trailing;

pub async fn run(cx: &Cx, m: Writelist, data: Bytes) -> Result<Done, Errno> {
    let ost = &cx.ost;
    let Writelist { write: m, ranges } = m;
    ost.writable()?;
    check_object(m.object)?;
    if data.len() > limits::RPC_BULK_MAX_BYTES || ranges.len() > RANGES_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let (start, end) = hull(&ranges, data.len()).filter(|_| !m.append).ok_or(Errno::EPROTO)?;
    let hull = end.saturating_sub(start);
    check_range(start, hull)?;
    let sums = wire::checksum::sums_of_ranges(&m.block_crcs, &ranges);
    let (mut parts, mut rest) = (Vec::with_capacity(ranges.len()), data.clone());
    for (r, sums) in ranges.iter().zip(sums) {
        // No more than there is: the hull was as long as the data.
        let data = rest.split_to(rest.len().min(r.len as usize));
        let crcs = compared(cx, &m, r.offset, &data, sums)?.map(<[u32]>::to_vec);
        parts.push(ListPart { off: r.offset, data, crcs });
    }
    assert!(rest.is_empty(), "the ranges take all of the data");
    let _lock = cx.guard(m.object, m.lock, true, (start, last_byte(start, hull))).await?;
    cx.check_not_lost(m.object)?;
    let len = data.len() as u64;
    let _space = admitted(cx, &m, len, end)?;
    let share = within_share(cx, &m, len, end).await?;
    let first = cx.first_reply::<WriteReply>().map(|r| r.attr);
    let same = same_blocks(first.as_ref());
    // Done again, it may be in more or fewer transactions: some were durable, or the object lies elsewhere by
    // now.
    let meta = ObjectMeta { data_version: first.map(|a| a.data_version), ..meta_of(cx, &m) };
    let author = cx.slot.author.clone();
    let each = move || -> store::object::FinishTxn {
        let author = author.clone();
        Box::new(move |txn, _, _| txn.set_author(&author, true))
    };
    // Where the last transaction began is nobody's business: done again, that may be elsewhere.
    let finish = cx.slot.clone().finish(move |_, attr| reply_of(start, same(attr), Trailing(None)));
    let owner = owner_of(cx, &m);
    let done = ost.objects.write_list(m.object, parts, meta, each, finish);
    let (_, attr, lsn) = done.await.map_err(|e| e.errno())?;
    assert!(end <= attr.size, "what was written lies within the object");
    if let Some(share) = share {
        share.written(attr.blocks);
    }
    let reply = reply_of(start, same(&attr), cx.may_keep(owner));
    Ok(Done { bytes: len, ..Done::changed(&reply, lsn) })
}

/// From the first byte to behind the last one; `None` unless the ranges are in order, apart, and as long as
/// the data.
fn hull(ranges: &[WriteRange], len: usize) -> Option<(u64, u64)> {
    let start = ranges.first()?.offset;
    let (mut end, mut left) = (start, len as u64);
    for r in ranges {
        if r.len == 0 || r.offset < end {
            return None;
        }
        left = left.checked_sub(u64::from(r.len))?;
        end = r.offset.checked_add(u64::from(r.len))?;
    }
    (left == 0).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_order_and_fit_the_data() {
        let list =
            |l: &[(u64, u32)]| l.iter().map(|&(offset, len)| WriteRange { offset, len }).collect::<Vec<_>>();
        assert_eq!(hull(&list(&[(10, 5)]), 5), Some((10, 15)));
        assert_eq!(hull(&list(&[(10, 5), (15, 1), (100, 4)]), 10), Some((10, 104)));
        for (bad, len) in [
            (&[][..], 0),
            (&[(10, 5)], 4),
            (&[(10, 5)], 6),
            (&[(10, 0)], 0),
            (&[(10, 5), (14, 1)], 6),
            (&[(10, 5), (0, 1)], 6),
            (&[(u64::MAX, 1)], 1),
            (&[(0, u32::MAX), (u64::MAX - 1, 1)], 5),
        ] {
            assert_eq!(hull(&list(bad), len), None, "{bad:?}");
        }
    }
}

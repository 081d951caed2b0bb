//! Some records, for who reads them.

use super::find;
use crate::MdsError;
use crate::schema::changelog::LogEntry;
use crate::schema::{key, value};
use crate::tx::Tx;
use model::Errno;
use model::changelog::Mask;
use wire::msg::changelog::{Changelog, ChangelogReply};

/// Records that one answer looks at: others wait while it is made.
const LOOKED_MAX: usize = 2000;
/// Bytes of one answer, about.
const PAGE_MAX_BYTES: usize = 512 << 10;

/// `ENOENT` if there is no such consumer.
pub fn page(tx: &mut Tx, m: &Changelog) -> Result<ChangelogReply, Errno> {
    let (first, newest) = tx.shared.changelog.ends();
    let (mut start, mut mask) = (m.start.max(first), m.mask);
    if !m.consumer.is_empty() {
        let state = tx.shared.changelog.state();
        let c = state.consumers.get(find(&state, &m.consumer)?).ok_or(Errno::ENOENT)?;
        start = start.max(c.cleared.saturating_add(1));
        if mask == Mask::NONE {
            mask = c.mask.unwrap_or(Mask::ALL);
        }
    }
    let wanted = if m.end == 0 { newest } else { m.end.min(newest) };
    let mut reply = ChangelogReply { records: Vec::new(), next: start, end: start > wanted };
    if reply.end {
        return Ok(reply);
    }
    let behind = key::changelog(wanted.saturating_add(1));
    let some = tx.scan(&key::changelog(start), &behind, LOOKED_MAX)?;
    let (mut bytes, mut whole) = (0usize, some.len() < LOOKED_MAX);
    for (k, v) in some {
        if bytes > PAGE_MAX_BYTES {
            whole = false;
            break;
        }
        let index = key::parse_changelog(&k).ok_or_else(|| MdsError::Damaged {
            what: "changelog record",
            key: value::hex(&k),
            why: "its key is of no known form".into(),
        })?;
        assert!((start..=wanted).contains(&index), "only what was asked for is read");
        reply.next = index.saturating_add(1);
        let record = LogEntry::decode(&k, &v)?.record;
        if mask == Mask::NONE || mask.has(record.kind) {
            bytes = bytes.saturating_add(v.len());
            reply.records.push(record);
        }
    }
    if whole {
        reply.next = wanted.saturating_add(1);
    }
    assert!(reply.next > start, "a page that is not the last goes on");
    reply.end = reply.next > wanted;
    Ok(reply)
}

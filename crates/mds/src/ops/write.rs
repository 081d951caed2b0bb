//! write: bytes that lie with their inode, in place or at the end, as long as the file stays small.

use crate::changelog::Change;
use crate::data;
use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::Errno;
use model::changelog::RecordKind;
use wire::msg::write::{Write, WriteReply};
use wire::trailing::Trailing;

pub fn run(tx: &mut Tx, ctx: &OpContext, m: Write) -> Result<WriteReply, Errno> {
    let bytes = std::mem::take(&mut tx.bulk);
    if bytes.is_empty() {
        return Err(Errno::EPROTO);
    }
    let sent_at = if m.append { 0 } else { m.offset };
    data::end_of(sent_at, bytes.len() as u64)?;
    if let Some(at) = m.checksum.differs_in_write(sent_at, &bytes, &m.block_crcs) {
        model::event!(
            WARN,
            ChangedOnTheWay,
            m.file,
            "write to file {} at {at}: the data changed on the way from the client",
            m.file
        );
        return Err(Errno::EBADMSG);
    }
    let mut i = data::of(tx, m.object)?;
    // Done again, an append goes where it went, and finds the room that it had.
    let append = if m.append { Some(tx.first_offset().unwrap_or(i.data.size)) } else { None };
    let offset = append.unwrap_or(m.offset);
    data::check_change(tx, m.object.origin, &i, data::end_of(offset, bytes.len() as u64)?)?;
    tx.check_space()?;
    data::write(tx, m.object.origin, &mut i, offset, &bytes, ctx.now)?;
    assert!(
        offset.saturating_add(bytes.len() as u64) <= i.data.size,
        "what was written lies within the file"
    );
    tx.put_inode(m.object.origin, &mut i);
    tx.notes.add(ctx.now, Change::of(RecordKind::Mtime, m.object.origin));
    let entry = Some(Box::new(names::entry(tx, m.object.origin, &i)));
    Ok(WriteReply { offset, attr: data::attr(&i), entry, may_keep: Trailing(None) })
}

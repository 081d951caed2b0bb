//! fetch: files by FID with their data, as far as that lies with their inodes.

use crate::names::{self, OpContext};
use crate::tx::Tx;
use model::limits::{FETCH_FILES_MAX, FETCH_MAX_BYTES};
use model::{Errno, Fid};
use wire::msg::fetch::{Fetch, FetchReply};
use wire::msg::lookup::Entry;

pub fn run(tx: &mut Tx, _ctx: &OpContext, m: Fetch) -> Result<FetchReply, Errno> {
    if m.fids.is_empty() {
        return Err(Errno::EINVAL);
    }
    if m.fids.len() > FETCH_FILES_MAX {
        return Err(Errno::E2BIG);
    }
    let before = tx.reply_data.len();
    let room = (m.max_bytes as usize).min(FETCH_MAX_BYTES);
    let mut entries = Vec::with_capacity(m.fids.len());
    for fid in m.fids {
        entries.push(one(tx, fid, m.data)?);
        if tx.reply_data.len() >= room {
            break;
        }
    }
    let (added, most) = (tx.reply_data.len().saturating_sub(before), room.saturating_add(m.data as usize));
    assert!(added <= most, "an answer is longer than asked for by one file at most");
    Ok(FetchReply { entries })
}

fn one(tx: &mut Tx, fid: Fid, data: u32) -> Result<Option<Entry>, Errno> {
    let Some(i) = tx.try_inode(fid)? else { return Ok(None) };
    let e = names::entry(tx, fid, &i);
    names::with_content(tx, e, &i, data).map(Some)
}

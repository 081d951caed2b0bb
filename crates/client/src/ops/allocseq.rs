//! allocseq: one more FID sequence for new files.

use crate::{Fs, R};
use model::Errno;
use std::sync::Arc;
use wire::msg::allocseq::{Allocseq, AllocseqReply};

impl Fs {
    pub(crate) async fn allocseq(self: &Arc<Self>, mdt: u16) -> R<AllocseqReply> {
        let r = self.mdt(mdt).await?.call(self.cx.own(), Allocseq { kind: 0 }).await?;
        if r.width == 0 || r.seq < model::fid::SEQ_NORMAL || r.width > model::fid::SEQ_WIDTH {
            tracing::error!("MDT{mdt:04x} leased an impossible FID sequence {:#x} of {} ids", r.seq, r.width);
            return Err(Errno::EPROTO);
        }
        Ok(r)
    }
}

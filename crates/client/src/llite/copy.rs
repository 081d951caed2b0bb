//! copy_file_range: read and write in turns. No message of its own.

use super::Data;
use super::privileges::Change;
use crate::stats::Verb;
use crate::{Call, Fs, R};
use model::limits::{FILE_SIZE_MAX_BYTES, RPC_BULK_DEFAULT_BYTES};
use model::perm::FLAG_IMMUTABLE;
use model::{Errno, Fid};
use std::sync::Arc;
use world::BoxFuture;

/// Bytes of one call; the caller asks again for more.
const CALL_MAX_BYTES: u64 = 16 << 20;

impl Fs {
    /// Bytes copied; may be fewer than asked for. `EINVAL` for overlapping ranges of one file.
    #[allow(clippy::too_many_arguments)]
    pub fn copy_file_range(
        self: Arc<Self>,
        call: Call,
        from: Fid,
        from_off: u64,
        to: Fid,
        to_off: u64,
        len: u64,
    ) -> BoxFuture<R<u64>> {
        Box::pin(async move {
            let work = async {
                // A file that became immutable after it was opened takes no copy, as on local file systems.
                if self.lmv.getattr_entry(self.cx.of(&call), to).await?.attr.flags & FLAG_IMMUTABLE != 0 {
                    return Err(Errno::EPERM);
                }
                let wanted = len.min(FILE_SIZE_MAX_BYTES.saturating_sub(from_off));
                if from == to
                    && from_off < to_off.saturating_add(wanted)
                    && to_off < from_off.saturating_add(wanted)
                {
                    return Err(Errno::EINVAL);
                }
                if wanted > 0 && to_off >= FILE_SIZE_MAX_BYTES {
                    return Err(Errno::EFBIG);
                }
                let wanted =
                    wanted.min(CALL_MAX_BYTES).min(FILE_SIZE_MAX_BYTES - to_off.min(FILE_SIZE_MAX_BYTES));
                if wanted > 0 {
                    self.data.drop_privileges(to, Change::Write, !call.cred.is_root()).await?;
                }
                let mut done = 0;
                while done < wanted {
                    let n = (wanted - done).min(RPC_BULK_DEFAULT_BYTES as u64) as usize;
                    match self.data.copy_part(&call, (from, from_off + done), (to, to_off + done), n).await {
                        Ok(0) => break,
                        Ok(k) => done += k,
                        Err(e) if done == 0 => return Err(e),
                        Err(_) => break,
                    }
                }
                Ok(done)
            };
            self.run(Verb::CopyFileRange, work).await
        })
    }
}

impl Data {
    async fn copy_part(
        self: &Arc<Self>,
        call: &Call,
        from: (Fid, u64),
        to: (Fid, u64),
        len: usize,
    ) -> R<u64> {
        let data = self.read_data(call, from.0, from.1, len).await?;
        let n = data.len() as u64;
        if n > 0 {
            self.write_data(call, to.0, to.1, false, data).await?;
        }
        Ok(n)
    }
}

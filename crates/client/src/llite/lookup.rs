//! lookup: a name in a directory.

use super::Names;
use crate::mdc::{Came, Found, brought};
use crate::stats::Verb;
use crate::{Call, Fs, R};
use bytes::Bytes;
use model::{Attr, Errno, Fid};
use std::sync::Arc;
use wire::msg::lookup::{Entry, Lookup};
use world::BoxFuture;

/// How often a name is looked up again whose file was removed meanwhile.
const TRIES: u32 = 3;

impl Fs {
    /// `..` of the mount's root is the root: a subdirectory mount shows nothing above it.
    pub fn lookup(self: Arc<Self>, call: Call, parent: Fid, name: Vec<u8>) -> BoxFuture<R<Attr>> {
        Box::pin(async move {
            if parent == self.root() && name == b".." {
                return self.getattr(call, parent).await;
            }
            let work = async {
                let mut tries = 0;
                loop {
                    let e = self.names.lookup_entry(&call, parent, &name).await?;
                    match self.data.attr_for_name(&e).await {
                        // It was removed while its objects were asked: the name leads elsewhere by now.
                        Err(Errno::ESTALE) if tries < TRIES => tries += 1,
                        r => return r,
                    }
                }
            };
            self.run(Verb::Lookup, work).await
        })
    }
}

impl Names {
    /// From the cache, or the metadata server.
    pub(crate) async fn lookup_entry(
        self: &Arc<Self>,
        call: &Call,
        parent: Fid,
        name: &[u8],
    ) -> R<Arc<Entry>> {
        let mdc = self.lmv.mdc_of(parent).await?;
        // What `.` and `..` lead to is no entry of the directory.
        let named = !name.is_empty() && name != b"." && name != b"..";
        if named {
            match mdc.meta.known_name(parent, name) {
                Found::There(e) => return Ok(e),
                Found::Absent => return Err(Errno::ENOENT),
                Found::Unknown => {}
            }
        }
        let t = mdc.meta.token();
        let data = if named { mdc.small.lookup_data() } else { 0 };
        let msg = Lookup { parent, name: name.to_vec(), data };
        let r = mdc.target.call_bulk(self.cx.of(call), msg, Bytes::new()).await?;
        let (mut r, bulk) = (r.reply, r.bulk);
        if let Some(e) = &mut r.entry {
            mdc.with_atime(&mut e.attr);
        }
        if named {
            let data = brought(r.entry.as_ref(), &bulk, Came::Lookup);
            mdc.meta.keep_lookup(t, parent, name, &r, data);
        } else if let Some(e) = &r.entry {
            mdc.meta.keep_entry(t, e);
        }
        let e = r.entry.ok_or(Errno::ENOENT)?;
        self.meta.opens.learn(&e);
        Ok(Arc::new(e))
    }
}

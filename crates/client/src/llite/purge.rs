//! purge: removes a name that is no directory, if its file is still what it was when a rule was looked at.
//!
//! The metadata server looks again inside its transaction, at what it knows. Size, space and times of objects
//! it does not know: those are asked for here, right before.

use super::Admin;
use crate::control::Seen;
use crate::stats::Verb;
use crate::{Call, R};
use model::{Attr, Errno, Fid};
use std::sync::Arc;
use wire::msg::purge::Purge;
use wire::msg::scan::Test;
use world::BoxFuture;

/// A file that may go, and what must hold.
pub struct Victim {
    pub parent: Fid,
    pub name: Vec<u8>,
    /// As it was when the rule was looked at.
    pub seen: Seen,
    pub tests: Vec<Test>,
    pub unless: Vec<Vec<Test>>,
}

impl Seen {
    fn is(&self, a: &Attr) -> bool {
        let owners = (self.uid, self.gid, self.projid) == (a.uid, a.gid, a.projid);
        let times = (self.atime, self.mtime, self.ctime) == (a.atime, a.mtime, a.ctime);
        self.fid == a.fid && owners && times && self.size == a.size
    }
}

impl Admin<'_> {
    /// `ECANCELED` if it is not what it was, `EBUSY` while somebody has it open.
    pub fn purge(self, call: Call, d: Victim) -> BoxFuture<R<()>> {
        let fs = self.0.clone();
        Box::pin(async move {
            let work = async {
                let e = fs.names.lookup_entry(&call, d.parent, &d.name).await?;
                let attr = fs.data.full_attr(&e).await?;
                if !d.seen.is(&attr) {
                    return Err(Errno::ECANCELED);
                }
                let Victim { parent, name, seen, tests, unless } = d;
                let msg =
                    Purge { parent, name: name.clone(), fid: seen.fid, seen: seen.ctime, tests, unless };
                let names = Arc::clone(&fs.names);
                names.remove_name(&call, parent, name, msg).await
            };
            fs.run(Verb::Unlink, work).await
        })
    }
}

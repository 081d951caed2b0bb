//! ostfiles: the files that have objects on an OST, with their names, from the reverse index (`lfs find
//! --ost`).

use super::getpath;
use crate::MdsError;
use crate::names::OpContext;
use crate::schema::{key, value};
use crate::tx::Tx;
use model::{Errno, limits};
use wire::msg::getpath::Getpath;
use wire::msg::ostfiles::{Ostfiles, OstfilesReply};

/// Objects of one page: others wait while it is made.
const OBJECTS_MAX: usize = 500;
/// Names of one file that are told.
const NAMES_MAX: u32 = 16;
/// Paths of one page together, about.
const PAGE_MAX_BYTES: usize = 512 << 10;

/// `EPERM` for anybody but root: names are told whatever the directories above them let the caller list.
pub fn run(tx: &mut Tx, ctx: &OpContext, m: Ostfiles) -> Result<OstfilesReply, Errno> {
    if !ctx.cred.is_root() {
        return Err(Errno::EPERM);
    }
    let from = match m.after {
        Some(object) => key::behind(&key::reverse(m.ost, object)),
        None => key::reverse_prefix(m.ost),
    };
    let page = tx.scan(&from, &key::behind(&key::reverse_prefix(m.ost)), OBJECTS_MAX)?;
    let mut reply = OstfilesReply { files: Vec::new(), next: None };
    let (mut bytes, whole) = (0, page.len() < OBJECTS_MAX);
    let last = page.len().saturating_sub(1);
    for (n, (k, v)) in page.into_iter().enumerate() {
        let (_, object) = key::parse_reverse(&k).ok_or_else(|| MdsError::Damaged {
            what: "reverse index entry",
            key: value::hex(&k),
            why: "its key is short".into(),
        })?;
        let fid = value::decode_owner(&k, &v)?;
        if reply.files.last().is_none_or(|(f, _)| *f != fid) {
            match getpath::run(tx, ctx, Getpath { fid, root: m.root, max_paths: NAMES_MAX }) {
                Ok(r) => {
                    let each = |p: &Vec<u8>| p.len().saturating_add(limits::NAME_MAX_BYTES / 8);
                    bytes = r.paths.iter().map(each).fold(bytes, usize::saturating_add);
                    reply.files.push((fid, r.paths));
                }
                // Open without a name, or outside the root; or its path is longer than any program could use.
                Err(Errno::ENOENT | Errno::ENAMETOOLONG) => {}
                Err(e) => return Err(e),
            }
        }
        if bytes > PAGE_MAX_BYTES || (n == last && !whole) {
            reply.next = Some(object);
            break;
        }
    }
    Ok(reply)
}

//! quotadir: directories with a quota: what lies below one is counted, and may be limited (`setquota`, by its
//! id).

use model::Fid;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Quotadir {
    /// Those that a file lies in, the innermost first; a directory with a quota lies in itself.
    Around(Fid),
    /// A directory gets a quota, if it has none. Answered with that. Root only; `ENOTDIR`, `ENOSPC` if there
    /// are as many as there can be.
    Add(Fid),
    /// It has none any more: what lies below is counted to the next one around it, or to none. Root only;
    /// `ENOENT`.
    Remove(Fid),
    /// All, behind this id. Root only.
    List { after: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QuotadirEntry {
    pub id: u32,
    pub fid: Fid,
    /// Id of the next one around it; 0: there is none.
    pub parent: u32,
}

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QuotadirReply {
    pub directories: Vec<QuotadirEntry>,
    /// Ask again, behind this; `None`: that was all.
    pub next: Option<u32>,
    /// Files are being counted to other directories than before: what these have changes still.
    pub unsettled: bool,
}
message!(Quotadir, Quotadir, QuotadirReply);

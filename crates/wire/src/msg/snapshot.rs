//! snapshot: what the server of a target is to do about snapshots of it. Not the target is asked but the
//! program that serves it: on behalf of the administrator of the MGS's host, by its daemon, which shows that
//! it is a server of the file system (decision 0088).

use model::snapshot::{SnapshotAnswer, SnapshotOrder};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub order: SnapshotOrder,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotReply {
    pub answer: SnapshotAnswer,
}
message!(Snapshot, Snapshot, SnapshotReply);

//! configview: what the MGS keeps and how it came to be, for administrators on any host; a piece at a time
//! (decision 0097).

use serde::{Deserialize, Serialize};

/// Of one piece: well below what a message may have.
pub const PIECE_MAX_BYTES: usize = 256 << 10;

/// What is to be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum View {
    Show,
    /// The last so many versions before this one; `before` 0: the last of all.
    History {
        before: u64,
        count: u32,
    },
    /// From one version to another; `None`: to what is in force.
    Diff {
        from: u64,
        to: Option<u64>,
    },
    Export,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Configview {
    pub view: View,
    /// Bytes of the answer that the sender has.
    pub from: u64,
    /// Of the configuration that they tell of; 0 with the first piece.
    pub version: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Of the configuration that is told of.
    pub version: u64,
    /// Bytes of the whole answer.
    pub total: u64,
    /// JSON, as the daemon's control socket has it; at most [`PIECE_MAX_BYTES`].
    pub text: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigviewReply {
    /// Or an errno, and words. `ESTALE`: the configuration is another than that of the pieces before.
    pub said: Result<Piece, (i32, String)>,
}
message!(Configview, Configview, ConfigviewReply);

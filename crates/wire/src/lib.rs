//! Bytes on the network: frame header, message bodies, versions. No I/O; every decoder is fuzzed.
//!
//! `frame` is the 64-byte header and what follows it, `context` what every request says about its caller,
//! `checksum` the sums of data, `msg/VERB.rs` one file for each message, `verb` how each is treated. Byte
//! tables: `docs/formats/wire.md`.

pub mod bulk;
pub mod checksum;
pub mod context;
pub mod frame;
pub mod message;
pub mod msg;
pub mod proof;
pub mod replay;
pub mod trailing;
pub mod under_way;
pub mod verb;

pub use bulk::Bulk;
pub use context::{ReplyContext, RequestContext};
pub use frame::{Frame, FrameError, FrameKind, Header};
pub use message::{
    CodecError, Message, decode_body, decode_context, decode_message, decode_request, encode_body,
    encode_message,
};
pub use verb::{Op, Sender};

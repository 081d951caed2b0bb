//! The link between an opcode and the types of its bodies.

use crate::verb::Op;
use model::Errno;
use serde::{Serialize, de::DeserializeOwned};

/// A request type. The reply's type belongs to it; an error reply has an empty body.
pub trait Message: Serialize + DeserializeOwned + Send + Sync + Clone + std::fmt::Debug + 'static {
    const OP: Op;
    type Reply: Serialize + DeserializeOwned + Send + Sync + Clone + std::fmt::Debug + 'static;
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CodecError {
    #[error("message body does not decode as {what}: {why}")]
    Body { what: &'static str, why: String },
    #[error("unknown opcode {0}")]
    Opcode(u16),
}

/// context ‖ message, both postcard.
pub fn encode_body<C: Serialize, M: Serialize>(ctx: &C, msg: &M) -> Vec<u8> {
    let v = postcard::to_stdvec(ctx).expect("plain data encodes");
    postcard::to_extend(msg, v).expect("plain data encodes")
}

/// The inverse of [`encode_body`]. Bytes after the message are ignored: later versions append fields.
pub fn decode_body<C: DeserializeOwned, M: DeserializeOwned>(body: &[u8]) -> Result<(C, M), CodecError> {
    let bad = |e: postcard::Error| CodecError::Body { what: std::any::type_name::<M>(), why: e.to_string() };
    let (ctx, rest) = postcard::take_from_bytes(body).map_err(bad)?;
    let (msg, _) = postcard::take_from_bytes(rest).map_err(bad)?;
    Ok((ctx, msg))
}

/// Splits a body into its context and the bytes of the message behind it.
pub fn decode_context<C: DeserializeOwned>(body: &bytes::Bytes) -> Result<(C, bytes::Bytes), CodecError> {
    let (ctx, rest) = postcard::take_from_bytes(body)
        .map_err(|e| CodecError::Body { what: std::any::type_name::<C>(), why: e.to_string() })?;
    assert!(rest.len() <= body.len(), "what stands behind the context is the end of the body");
    Ok((ctx, body.slice(body.len() - rest.len()..)))
}

/// A message that stands alone, as in a batch.
pub fn encode_message<M: Serialize>(msg: &M) -> Vec<u8> {
    postcard::to_stdvec(msg).expect("plain data encodes")
}

/// Decodes a message that stands alone (behind a split-off context, or in a batch). Bytes after it are
/// ignored.
pub fn decode_message<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, CodecError> {
    let (msg, _) = postcard::take_from_bytes(bytes)
        .map_err(|e| CodecError::Body { what: std::any::type_name::<M>(), why: e.to_string() })?;
    Ok(msg)
}

/// As [`decode_message`], for a server: `EPROTO` if a request does not decode, and the log says why.
pub fn decode_request<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, Errno> {
    decode_message(bytes).map_err(|e| {
        tracing::warn!("a request was refused: {e}");
        Errno::EPROTO
    })
}

/// Gives the kind and the type of every message to a macro of the caller, `Ping => wire::msg::ping::Ping, …`:
/// for who has to have one of each. That none is missing the compiler sees where it matches on [`Op`].
#[macro_export]
macro_rules! for_each_message {
    ($then:ident) => {
        $then! {
            Ping => $crate::msg::ping::Ping, Disconnect => $crate::msg::disconnect::Disconnect,
            Batch => $crate::msg::batch::Batch, Statfs => $crate::msg::statfs::Statfs,
            GetParam => $crate::msg::param::GetParam, SetParam => $crate::msg::param::SetParam,
            Lookup => $crate::msg::lookup::Lookup, Getattr => $crate::msg::getattr::Getattr,
            Setattr => $crate::msg::setattr::Setattr, Create => $crate::msg::create::Create,
            Mkdir => $crate::msg::mkdir::Mkdir, Mknod => $crate::msg::mknod::Mknod,
            Symlink => $crate::msg::symlink::Symlink, Readlink => $crate::msg::readlink::Readlink,
            Link => $crate::msg::link::Link, Unlink => $crate::msg::unlink::Unlink,
            Rmdir => $crate::msg::rmdir::Rmdir, Rename => $crate::msg::rename::Rename,
            Open => $crate::msg::open::Open, Close => $crate::msg::close::Close,
            Readdir => $crate::msg::readdir::Readdir, Getxattr => $crate::msg::getxattr::Getxattr,
            Setxattr => $crate::msg::setxattr::Setxattr, Listxattr => $crate::msg::listxattr::Listxattr,
            Removexattr => $crate::msg::removexattr::Removexattr,
            Setlayout => $crate::msg::setlayout::Setlayout, Getpath => $crate::msg::getpath::Getpath,
            Allocseq => $crate::msg::allocseq::Allocseq, Grow => $crate::msg::grow::Grow,
            Own => $crate::msg::own::Own, Fetch => $crate::msg::fetch::Fetch,
            Ostfiles => $crate::msg::ostfiles::Ostfiles, Scan => $crate::msg::scan::Scan,
            Enqueue => $crate::msg::enqueue::Enqueue,
            Cancel => $crate::msg::cancel::Cancel, Getlock => $crate::msg::getlock::Getlock,
            Reclaim => $crate::msg::reclaim::Reclaim, Read => $crate::msg::read::Read,
            Write => $crate::msg::write::Write, Writelist => $crate::msg::writelist::Writelist,
            Truncate => $crate::msg::truncate::Truncate, Fallocate => $crate::msg::fallocate::Fallocate,
            Seek => $crate::msg::seek::Seek, Glimpse => $crate::msg::glimpse::Glimpse,
            Glimpselist => $crate::msg::glimpselist::Glimpselist,
            Objectlist => $crate::msg::objectlist::Objectlist,
            Barrier => $crate::msg::barrier::Barrier, Snapshot => $crate::msg::snapshot::Snapshot,
            Destroy => $crate::msg::destroy::Destroy, Sync => $crate::msg::sync::Sync,
            Extent => $crate::msg::extent::Extent, Grant => $crate::msg::grant::Grant,
            Layout => $crate::msg::layout::Layout, Migrate => $crate::msg::migrate::Migrate,
            Instantiate => $crate::msg::instantiate::Instantiate,
            Components => $crate::msg::components::Components,
            Recreate => $crate::msg::recreate::Recreate,
            Swap => $crate::msg::swap::Swap,
            Changelog => $crate::msg::changelog::Changelog,
            Changelogclear => $crate::msg::changelogclear::Changelogclear,
            Withdraw => $crate::msg::withdraw::Withdraw, Fence => $crate::msg::fence::Fence,
            Setowner => $crate::msg::setowner::Setowner, Setquota => $crate::msg::setquota::Setquota,
            Quotadir => $crate::msg::quotadir::Quotadir,
            Trashdir => $crate::msg::trashdir::Trashdir, Trashlist => $crate::msg::trashlist::Trashlist,
            Trashtake => $crate::msg::trashtake::Trashtake,
            Quotactl => $crate::msg::quotactl::Quotactl, Quotashare => $crate::msg::quotashare::Quotashare,
            Acquire => $crate::msg::acquire::Acquire, Makeroom => $crate::msg::makeroom::Makeroom, Purge => $crate::msg::purge::Purge,
            Register => $crate::msg::register::Register, Config => $crate::msg::config::Config,
            Configview => $crate::msg::configview::Configview,
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::getattr::Getattr;

    #[test]
    fn a_request_that_is_cut_short_is_a_protocol_error_and_one_with_more_behind_it_is_not() {
        let m = Getattr { fid: model::Fid::new(0x1_0000_0007, 300, 0) };
        let mut bytes = encode_message(&m);
        for len in 0..bytes.len() {
            assert_eq!(decode_request::<Getattr>(&bytes[..len]).err(), Some(Errno::EPROTO));
        }
        bytes.extend_from_slice(b"of a later version");
        assert_eq!(decode_request::<Getattr>(&bytes).map(|g| g.fid), Ok(m.fid));
    }
}

//! The frame: a 64-byte header, a body, raw bulk bytes.
//!
//! crc32c (Castagnoli) protects header, body and, by default, bulk. Lengths are bounded before anything
//! is allocated. All numbers are little-endian.

use crate::Bulk;
use bytes::Bytes;
use model::limits::{RPC_BODY_MAX_BYTES, RPC_BULK_MAX_BYTES};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const MAGIC: u32 = 0x4e43_5231; // "NCR1"
pub const VERSION: u16 = 1;
pub const HEADER_BYTES: usize = 64;

/// The request was sent before and may have been executed.
pub const FLAG_RESENT: u8 = 0x01;
/// The request was answered before, and its effect may be lost with the server's restart: the client sends it
/// again in the order of the transaction numbers (`transno` of the header). Behind the message stands a tail
/// ([`crate::replay`]).
pub const FLAG_REPLAY: u8 = 0x04;
/// Of a ping: answer when everything this target executed so far is durable.
pub const FLAG_COMMIT: u8 = 0x08;
/// Of a request: answer when its change, and with it everything that the target executed before, is durable.
/// Whoever sends it sees by `last_committed` of the answer whether that was so.
pub const FLAG_DURABLE: u8 = 0x10;
/// Of a ping: say which requests of this session are under way ([`crate::under_way`]).
pub const FLAG_UNDER_WAY: u8 = 0x20;
/// Behind the bulk stands its crc32c. Data that the message itself has checksums of goes without
/// ([`Bulk::summed`]).
pub const FLAG_BULK_CRC: u8 = 0x02;

/// Of a request: others may wait for it, and it waits for none of them. A server that has no memory left for
/// requests keeps some for these ([`STATUS_LATER`]).
pub const FLAG_WAITED_FOR: u8 = 0x40;
/// Status of a reply, to clients with [`crate::msg::connect::FEATURE_LATER`]: the server had no memory for
/// the request and has not looked at it. It is to be sent again after a while. No errno.
pub const STATUS_LATER: u16 = 0xfffe;
/// Slot number of frames that need none (pings).
pub const NO_SLOT: u16 = u16::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    Request,
    Reply,
    /// One way, either direction: lock callbacks, configuration changes.
    Notify,
    /// First frame of a connection, each way ([`crate::msg::connect`]).
    Connect,
    ConnectReply,
}

/// The header as it lies on the wire.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    kind: u8,
    flags: u8,
    target: U32,
    opcode: U16,
    status: U16,
    session: U64,
    xid: U64,
    transno: U64,
    slot: U16,
    reserved: U16,
    epoch: U32,
    body_len: U32,
    bulk_len: U32,
    body_crc: U32,
    header_crc: U32,
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// Decoded header fields (lengths and checksums are the frame's business).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: FrameKind,
    pub flags: u8,
    /// [`model::TargetId::to_u32`].
    pub target: u32,
    pub opcode: u16,
    /// errno of a reply, 0 for success.
    pub status: u16,
    /// Given by the server at connect; 0 before.
    pub session: u64,
    /// Grows within a client's slot.
    pub xid: u64,
    /// Reply: transaction number of the operation, 0 if it changed nothing.
    pub transno: u64,
    pub slot: u16,
    /// Epoch of the target as the sender knows it; others are refused.
    pub epoch: u32,
}

impl Header {
    pub fn new(kind: FrameKind) -> Header {
        Header {
            kind,
            flags: FLAG_BULK_CRC,
            target: 0,
            opcode: 0,
            status: 0,
            session: 0,
            xid: 0,
            transno: 0,
            slot: 0,
            epoch: 0,
        }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("not a Nacre peer: frame starts with {0:#010x}")]
    Magic(u32),
    #[error("peer speaks protocol version {theirs}, this side version {VERSION}: upgrade the older one")]
    Version { theirs: u16 },
    #[error("header checksum differs")]
    HeaderCrc,
    #[error("body checksum differs")]
    BodyCrc,
    #[error("bulk checksum differs")]
    BulkCrc,
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("{what} of {len} bytes is over the limit of {max}")]
    TooLong { what: &'static str, len: usize, max: usize },
    #[error("frame is cut short: {have} of {want} bytes")]
    Short { have: usize, want: usize },
}

/// crc32c of `data`, as used everywhere in Nacre.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// crc32c of some pieces as if they were one.
fn crc32c_of<'a>(parts: impl Iterator<Item = &'a Bytes>) -> u32 {
    let mut d = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.for_each(|p| d.update(p));
    d.finalize() as u32
}

/// Sizes that a checked header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    pub body: usize,
    /// Raw bulk bytes, followed by 4 bytes of their crc32c if the header's flags have [`FLAG_BULK_CRC`]
    /// and `bulk` is not 0.
    pub bulk: usize,
    pub bulk_crc: bool,
    body_crc: u32,
}

impl Lengths {
    /// Bytes that follow the header.
    pub fn total(&self) -> usize {
        // Whoever asks is about to make room for so many.
        let bounded = self.body <= RPC_BODY_MAX_BYTES && self.bulk <= RPC_BULK_MAX_BYTES;
        assert!(bounded, "no length is believed before it was looked at");
        self.body + self.behind()
    }

    /// Bytes that follow the body.
    pub fn behind(&self) -> usize {
        self.bulk + self.trailer()
    }

    /// Bytes of the checksum behind the bulk.
    pub fn trailer(&self) -> usize {
        if self.bulk_crc { 4 } else { 0 }
    }
}

/// One message with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub header: Header,
    pub body: Bytes,
    pub bulk: Bulk,
}

impl Frame {
    pub fn new(header: Header, body: Vec<u8>, bulk: impl Into<Bulk>) -> Frame {
        Frame { header, body: Bytes::from(body), bulk: bulk.into() }
    }

    /// Header bytes, and the 4 trailing checksum bytes of the bulk if it has one. What goes on the wire is
    /// header, body, bulk, trailer.
    pub fn encode_parts(&self) -> ([u8; HEADER_BYTES], Option<[u8; 4]>) {
        assert!(self.body.len() <= RPC_BODY_MAX_BYTES, "body of {} bytes", self.body.len());
        assert!(self.bulk.len() <= RPC_BULK_MAX_BYTES, "bulk of {} bytes", self.bulk.len());
        let h = &self.header;
        let flags = if self.bulk.is_summed() { h.flags & !FLAG_BULK_CRC } else { h.flags };
        let mut raw = RawHeader {
            magic: MAGIC.into(),
            version: VERSION.into(),
            kind: h.kind as u8 + 1,
            flags,
            target: h.target.into(),
            opcode: h.opcode.into(),
            status: h.status.into(),
            session: h.session.into(),
            xid: h.xid.into(),
            transno: h.transno.into(),
            slot: h.slot.into(),
            reserved: 0.into(),
            epoch: h.epoch.into(),
            body_len: (self.body.len() as u32).into(),
            bulk_len: (self.bulk.len() as u32).into(),
            body_crc: crc32c(&self.body).into(),
            header_crc: 0.into(),
        };
        raw.header_crc = crc32c(&raw.as_bytes()[..HEADER_BYTES - 4]).into();
        let mut out = [0; HEADER_BYTES];
        out.copy_from_slice(raw.as_bytes());
        let has_trailer = flags & FLAG_BULK_CRC != 0 && !self.bulk.is_empty();
        let trailer = has_trailer.then(|| crc32c_of(self.bulk.parts()).to_le_bytes());
        (out, trailer)
    }

    /// The whole frame as one buffer.
    pub fn encode(&self) -> Vec<u8> {
        let (head, trailer) = self.encode_parts();
        let mut v = Vec::with_capacity(HEADER_BYTES + self.body.len() + self.bulk.len() + 4);
        v.extend_from_slice(&head);
        v.extend_from_slice(&self.body);
        self.bulk.parts().for_each(|p| v.extend_from_slice(p));
        let said = HEADER_BYTES + self.body.len() + self.bulk.len();
        assert_eq!(v.len(), said, "a frame is as long as its header says");
        if let Some(t) = trailer {
            v.extend_from_slice(&t);
        }
        v
    }

    /// Checks a header: magic, version, checksum, kind, bounds. Nothing may be allocated before this.
    pub fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<(Header, Lengths), FrameError> {
        let raw = RawHeader::read_from_bytes(bytes).expect("size is asserted");
        if raw.magic.get() != MAGIC {
            return Err(FrameError::Magic(raw.magic.get()));
        }
        if raw.version.get() != VERSION {
            return Err(FrameError::Version { theirs: raw.version.get() });
        }
        if crc32c(&bytes[..HEADER_BYTES - 4]) != raw.header_crc.get() {
            return Err(FrameError::HeaderCrc);
        }
        let kind = match raw.kind {
            1 => FrameKind::Request,
            2 => FrameKind::Reply,
            3 => FrameKind::Notify,
            4 => FrameKind::Connect,
            5 => FrameKind::ConnectReply,
            k => return Err(FrameError::Kind(k)),
        };
        let (body, bulk) = (raw.body_len.get() as usize, raw.bulk_len.get() as usize);
        if body > RPC_BODY_MAX_BYTES {
            return Err(FrameError::TooLong { what: "body", len: body, max: RPC_BODY_MAX_BYTES });
        }
        if bulk > RPC_BULK_MAX_BYTES {
            return Err(FrameError::TooLong { what: "bulk", len: bulk, max: RPC_BULK_MAX_BYTES });
        }
        let header = Header {
            kind,
            flags: raw.flags,
            target: raw.target.get(),
            opcode: raw.opcode.get(),
            status: raw.status.get(),
            session: raw.session.get(),
            xid: raw.xid.get(),
            transno: raw.transno.get(),
            slot: raw.slot.get(),
            epoch: raw.epoch.get(),
        };
        let bulk_crc = raw.flags & FLAG_BULK_CRC != 0 && bulk > 0;
        Ok((header, Lengths { body, bulk, bulk_crc, body_crc: raw.body_crc.get() }))
    }

    /// Builds the frame from what followed its header (`rest.len()` must be `lengths.total()`).
    pub fn decode_rest(header: Header, lengths: Lengths, rest: Bytes) -> Result<Frame, FrameError> {
        if rest.len() != lengths.total() {
            return Err(FrameError::Short { have: rest.len(), want: lengths.total() });
        }
        let behind = rest.slice(lengths.body..);
        let (bulk, trailer) = (behind.slice(..lengths.bulk), &behind[lengths.bulk..]);
        Frame::decode_apart(header, lengths, rest.slice(..lengths.body), bulk, trailer)
    }

    /// The same with the bulk apart from the checksum behind it (empty if there is none).
    pub fn decode_apart(
        header: Header,
        lengths: Lengths,
        body: Bytes,
        bulk: Bytes,
        trailer: &[u8],
    ) -> Result<Frame, FrameError> {
        let have = body.len() + bulk.len() + trailer.len();
        let behind = bulk.len() + trailer.len();
        if (body.len(), bulk.len(), behind) != (lengths.body, lengths.bulk, lengths.behind()) {
            return Err(FrameError::Short { have, want: lengths.total() });
        }
        if crc32c(&body) != lengths.body_crc {
            return Err(FrameError::BodyCrc);
        }
        if lengths.bulk_crc && crc32c(&bulk).to_le_bytes() != trailer {
            return Err(FrameError::BulkCrc);
        }
        Ok(Frame { header, body, bulk: bulk.into() })
    }

    /// Decodes one frame at the start of `bytes`; returns it and its length.
    pub fn decode(bytes: &[u8]) -> Result<(Frame, usize), FrameError> {
        let head: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or(FrameError::Short { have: bytes.len(), want: HEADER_BYTES })?;
        let (header, lengths) = Frame::decode_header(head)?;
        let want = HEADER_BYTES + lengths.total();
        let rest = bytes.get(HEADER_BYTES..want).ok_or(FrameError::Short { have: bytes.len(), want })?;
        Ok((Frame::decode_rest(header, lengths, Bytes::copy_from_slice(rest))?, want))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Frame {
        let mut h = Header::new(FrameKind::Request);
        (h.target, h.opcode, h.session, h.xid, h.slot, h.epoch) = (0x2_0000, 7, 9, 11, 3, 5);
        Frame::new(h, b"body".to_vec(), Bytes::from_static(b"bulk bytes"))
    }

    #[test]
    fn goes_there_and_back() {
        let f = sample();
        let bytes = f.encode();
        assert_eq!(Frame::decode(&bytes).unwrap(), (f, bytes.len()));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = sample().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&bad).is_err(), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert!(Frame::decode(&good[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn data_with_checksums_of_its_own_goes_without() {
        let plain = sample();
        let summed = Frame { bulk: plain.bulk.clone().summed(true), ..plain.clone() };
        let bytes = summed.encode();
        assert_eq!(bytes.len(), plain.encode().len() - 4);
        let (back, len) = Frame::decode(&bytes).unwrap();
        assert_eq!((&back.bulk, len), (&plain.bulk, bytes.len()));
        assert_eq!(back.header.flags, plain.header.flags & !FLAG_BULK_CRC);
        // Of pieces the checksum is that of the whole.
        let cut = Bulk::of_parts([
            plain.bulk.clone().into_bytes().slice(..3),
            plain.bulk.clone().into_bytes().slice(3..),
        ]);
        assert_eq!(Frame { bulk: cut, ..plain.clone() }.encode(), plain.encode());
    }
}

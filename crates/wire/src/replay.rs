//! The tail of a replayed request: what the server made of it the first time, so that it makes the same of it
//! again.
//!
//! `message ++ postcard(Tail) ++ length of that, u32 little-endian`. The choices of a server (layouts,
//! offsets of appends) are in its reply; its clock is said beside it.

use crate::msg::write::WriteReply;
use crate::trailing::Trailing;
use crate::verb::Answer;
use crate::{CodecError, Op};
use bytes::Bytes;
use model::Timestamp;
use serde::{Deserialize, Serialize};

/// [`crate::ReplyContext::extra`] of a modifying reply: the server's wall clock when it executed the request,
/// i64 seconds and u32 nanoseconds, little-endian.
pub const EXTRA_WALL: u16 = 1;

/// Length of its value.
const WALL_BYTES: usize = 12;

/// What a replayed request carries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tail {
    /// The server's wall clock at the first execution.
    pub wall: Timestamp,
    /// The reply message, without its context; empty if it would not fit.
    pub reply: Vec<u8>,
}

/// Appends a tail to an encoded request.
pub fn append(body: &[u8], tail: &Tail) -> Vec<u8> {
    let t = postcard::to_stdvec(tail).expect("plain data encodes");
    let mut v = Vec::with_capacity(body.len() + t.len() + 4);
    v.extend_from_slice(body);
    v.extend_from_slice(&t);
    v.extend_from_slice(&u32::try_from(t.len()).expect("bounded by the frame").to_le_bytes());
    v
}

/// Whether a request that was done again came to what its sender was told the first time.
///
/// All bytes of the answer count. Only if the sender has a list of writes that is done again later
/// (`list_follows`) the attributes of an object that was written do not: such a list is several transactions,
/// and is done again at the place of its last one, so a write that lay between them sees the object before
/// the whole list now. The offset counts: the user was told where an append landed.
pub fn told_the_same(op: Op, first: &[u8], again: &[u8], list_follows: impl FnOnce() -> bool) -> bool {
    if first == again {
        return true;
    }
    if op.verb().answer != Answer::Written {
        return false;
    }
    // What a client may keep is said of the moment.
    let written = |b: &[u8]| postcard::from_bytes::<WriteReply>(b).ok();
    let decode = |b: &[u8]| written(b).map(|r| WriteReply { may_keep: Trailing(None), ..r });
    let Some((a, b)) = decode(first).zip(decode(again)) else { return false };
    a == b || a.entry.is_none() && b.entry.is_none() && a.offset == b.offset && list_follows()
}

fn malformed() -> CodecError {
    CodecError::Body { what: "replay tail", why: "it is cut short".into() }
}

/// Takes the tail off a request's body.
pub fn split(body: &Bytes) -> Result<(Bytes, Tail), CodecError> {
    let at = body.len().checked_sub(4).ok_or_else(malformed)?;
    let len: [u8; 4] = body[at..].try_into().expect("four bytes");
    let start = at.checked_sub(u32::from_le_bytes(len) as usize).ok_or_else(malformed)?;
    let tail = postcard::from_bytes(&body[start..at]).map_err(|_| malformed())?;
    Ok((body.slice(..start), tail))
}

/// The value of [`EXTRA_WALL`].
pub fn encode_wall(t: Timestamp) -> Vec<u8> {
    let mut v = t.sec.to_le_bytes().to_vec();
    v.extend_from_slice(&t.nsec.to_le_bytes());
    assert_eq!(v.len(), WALL_BYTES, "a time is as long as its reader expects");
    v
}

/// What a reply says of the server's clock; zero if it says nothing.
pub fn wall_of(extra: &[(u16, Vec<u8>)]) -> Timestamp {
    let Some((_, v)) = extra.iter().find(|(t, v)| *t == EXTRA_WALL && v.len() == WALL_BYTES) else {
        return Timestamp::ZERO;
    };
    let sec = i64::from_le_bytes(v[..8].try_into().expect("eight bytes"));
    Timestamp { sec, nsec: u32::from_le_bytes(v[8..].try_into().expect("four bytes")).min(999_999_999) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_come_off_as_they_were_put_on() {
        let tail = Tail { wall: Timestamp { sec: -5, nsec: 7 }, reply: vec![1, 2, 3] };
        let whole = Bytes::from(append(b"message", &tail));
        let (body, back) = split(&whole).unwrap();
        assert_eq!((&body[..], back), (&b"message"[..], tail.clone()));
        for cut in 0..whole.len() {
            let _ = split(&whole.slice(..cut));
        }
        assert!(split(&Bytes::from_static(b"\xff\xff\xff\xff")).is_err());
        let extra = [(EXTRA_WALL, encode_wall(tail.wall))];
        assert_eq!(wall_of(&extra), tail.wall);
        assert_eq!(wall_of(&[(EXTRA_WALL, vec![1])]), Timestamp::ZERO);
    }

    #[test]
    fn only_a_look_at_an_object_may_differ() {
        let reply = |offset, size| {
            let attr = model::ObjectAttr { size, ..model::ObjectAttr::default() };
            let may_keep = Trailing(None);
            postcard::to_stdvec(&WriteReply { offset, attr, entry: None, may_keep }).unwrap()
        };
        for op in [Op::Write, Op::Writelist] {
            assert!(told_the_same(op, &reply(0, 7864), &reply(0, 68), || true));
            assert!(
                !told_the_same(op, &reply(0, 7864), &reply(0, 68), || false),
                "nothing can have come between"
            );
            assert!(
                !told_the_same(op, &reply(4096, 7864), &reply(0, 7864), || true),
                "an append landed elsewhere"
            );
            assert!(!told_the_same(op, b"", &reply(0, 1), || true));
        }
        let mut keeping: WriteReply = postcard::from_bytes(&reply(0, 1)).unwrap();
        keeping.may_keep = Trailing(Some(7));
        assert!(told_the_same(Op::Write, &postcard::to_stdvec(&keeping).unwrap(), &reply(0, 1), || false));
        assert!(!told_the_same(Op::Create, &reply(0, 7864), &reply(0, 68), || true));
        assert!(told_the_same(Op::Create, &reply(0, 7864), &reply(0, 7864), || false));
    }
}

//! A transaction, and the reply slots that go with one: what [`crate::Db::submit`] takes.

use crate::author::Author;
use crate::bytes::{Reader, Writer};
use crate::journal::record;
use crate::object::Redo;
use std::sync::Arc;

/// Key tag of reply slots.
pub const TAG_REPLY: u8 = b'R';
const REPLY_VERSION: u8 = 1;

/// A reply slot's new contents, encoded when the transaction gets its position.
#[derive(Clone, Debug)]
pub(crate) struct PendingReply {
    pub client: [u8; 16],
    pub slot: u16,
    pub reply: ReplyRecord,
}

/// One transaction: absolute writes, in order. Nothing of it or all of it survives a crash.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What to do again with the files of data objects after a crash (design.md §7); filled by `object`.
    pub redo: Vec<Redo>,
    pub(crate) replies: Vec<PendingReply>,
    /// Bytes in other files that are flushed before the record is.
    pub(crate) outside: usize,
    /// Whose it is, and whether it depends on what its keys held before.
    pub(crate) author: Option<(Arc<Author>, bool)>,
}

impl Txn {
    pub fn new() -> Txn {
        Txn::default()
    }

    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.writes.push((key.into(), Some(value.into())));
    }

    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.writes.push((key.into(), None));
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.redo.is_empty() && self.replies.is_empty()
    }

    /// The reply slot (client, slot) → xid, result: exactly once (design.md §6). Key tag `R`.
    pub fn put_reply(&mut self, client: &[u8; 16], slot: u16, reply: &ReplyRecord) {
        self.replies.push(PendingReply { client: *client, slot, reply: reply.clone() });
    }

    /// Says for whose request this is; without it is the server's own. `overwrites`: it depends on whatever
    /// its keys held before (to be said where they are not read through [`crate::Db::view_for`]).
    pub fn set_author(&mut self, author: &Arc<Author>, overwrites: bool) {
        self.author = Some((author.clone(), overwrites));
    }

    /// What is to be written, for a store of another kind, which calls the transaction `transno`. Later
    /// writes of a key stand behind earlier ones.
    ///
    /// # Panics
    /// If it has work for the files of data objects: those are on a disk.
    pub fn into_writes(mut self, transno: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        assert!(self.redo.is_empty(), "a transaction with objects belongs to a disk");
        self.place_replies(transno);
        self.writes
    }

    /// Bytes that a record must carry for it, at most.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let replies: usize = self.replies.iter().map(|r| 64 + r.reply.body.len()).sum();
        record::encoded_bytes(&self.writes, &self.redo) + replies
    }

    /// Turns the replies into plain writes, now that the transaction number is known.
    pub(crate) fn place_replies(&mut self, transno: u64) {
        for p in std::mem::take(&mut self.replies) {
            self.put(reply_key(&p.client, p.slot), encode_reply(&p.reply, transno));
        }
    }
}

pub(crate) fn reply_key(client: &[u8; 16], slot: u16) -> Vec<u8> {
    let mut k = Vec::with_capacity(19);
    k.push(TAG_REPLY);
    k.extend_from_slice(client);
    k.extend_from_slice(&slot.to_be_bytes());
    k
}

/// Whose reply slot a key is.
pub(crate) fn client_of_reply_key(key: &[u8]) -> Option<[u8; 16]> {
    let rest = key.strip_prefix(&[TAG_REPLY]).filter(|r| r.len() == 18)?;
    rest[..16].try_into().ok()
}

pub(crate) fn encode_reply(r: &ReplyRecord, transno: u64) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(23 + r.body.len()));
    w.u8(REPLY_VERSION);
    w.u64(transno);
    w.u64(r.xid);
    w.u16(r.status);
    w.bytes(&r.body);
    w.0
}

pub(crate) fn decode_reply(v: &[u8]) -> Option<StoredReply> {
    let mut r = Reader(v);
    if r.u8()? != REPLY_VERSION {
        return None;
    }
    let (transno, xid, status) = (r.u64()?, r.u64()?, r.u16()?);
    Some(StoredReply { xid, transno, status, body: r.bytes()?.to_vec() })
}

/// What a reply slot holds. The transaction number is not here: it is known only once the record has its
/// place in the journal, and is stored then ([`StoredReply`]).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReplyRecord {
    pub xid: u64,
    pub status: u16,
    pub body: Vec<u8>,
}

/// A reply slot as read back: the record, and the transaction number it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReply {
    pub xid: u64,
    /// [`crate::Db::transno`] of the transaction that stored it.
    pub transno: u64,
    pub status: u16,
    pub body: Vec<u8>,
}

impl StoredReply {
    /// The key of a reply slot.
    pub fn key(client: &[u8; 16], slot: u16) -> Vec<u8> {
        reply_key(client, slot)
    }

    /// What a reply slot's value says; `None` if it does not decode.
    pub fn decode(value: &[u8]) -> Option<StoredReply> {
        decode_reply(value)
    }
}

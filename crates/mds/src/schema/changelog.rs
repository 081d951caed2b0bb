//! Records of the changelog (`C`), and who reads them (`Zchangelog`).

use super::value::{VERSION, decode, encode, hex};
use crate::MdsError;
use model::changelog::{CONSUMERS_MAX, Mask, Record, consumer_label};
use model::planted::{self, Bug};
use serde::{Deserialize, Serialize};

/// Bytes of a value before the record itself: version and [`LogEntry::total`].
const HEADER_BYTES: usize = 9;
const WHAT: &str = "changelog record";

/// A record as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Bytes of this value and of those of all records before it, cleared ones too: so the size of what is
    /// there is known without a look at all of it.
    pub total: u64,
    pub record: Record,
}

impl LogEntry {
    /// The value of a record that stands behind `before` bytes of others.
    pub fn encode(record: &Record, before: u64) -> Vec<u8> {
        let mut v = vec![VERSION];
        v.extend_from_slice(&[0; 8]);
        let mut v = postcard::to_extend(record, v).expect("plain data encodes");
        let total = before.saturating_add(v.len() as u64);
        v[1..HEADER_BYTES].copy_from_slice(&total.to_le_bytes());
        v
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<LogEntry, MdsError> {
        let bad = |why: &str| MdsError::Damaged { what: WHAT, key: hex(key), why: why.into() };
        let total = v.get(1..HEADER_BYTES).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let total = total.ok_or_else(|| bad("it is short"))?;
        if v.first() != Some(&VERSION) {
            return Err(bad("its version is not known"));
        }
        let (record, _) = postcard::take_from_bytes(&v[HEADER_BYTES..]).map_err(|e| bad(&e.to_string()))?;
        Ok(LogEntry { total, record })
    }
}

/// Somebody who reads the changelog and says what he needs no more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Consumer {
    pub id: u32,
    /// May be empty.
    pub name: String,
    /// What is recorded for him; `None`: what the target records by default.
    pub mask: Option<Mask>,
    /// The last record that he needs no more.
    pub cleared: u64,
    /// When he last said that, or was registered: seconds since 1970.
    pub heard: i64,
}

impl Consumer {
    pub fn label(&self) -> String {
        consumer_label(self.id, &self.name)
    }
}

/// Who reads the changelog, and where it begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogState {
    /// All records below this one are freed.
    pub first: u64,
    /// [`LogEntry::total`] of the last one that was.
    pub freed_bytes: u64,
    /// Numbers up to this one were given to consumers.
    pub last_id: u32,
    pub consumers: Vec<Consumer>,
}

impl Default for LogState {
    fn default() -> LogState {
        LogState { first: 1, freed_bytes: 0, last_id: 0, consumers: Vec::new() }
    }
}

impl LogState {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.consumers.len() <= CONSUMERS_MAX, "consumers are counted before one is added");
        encode(self)
    }

    pub fn decode(key: &[u8], v: &[u8]) -> Result<LogState, MdsError> {
        decode("state of the changelog", key, v)
    }

    /// The last record that nobody needs any more, of those up to `newest`.
    pub fn cleared_by_all(&self, newest: u64) -> u64 {
        let all = self.consumers.iter().map(|c| c.cleared);
        let upto = if planted::on(Bug::ClearedForAll) { all.max() } else { all.min() };
        upto.unwrap_or(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::changelog::{Origin, RecordKind, Source};
    use model::{Fid, Timestamp};
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            index: 7,
            kind: RecordKind::Rename,
            flags: 1,
            time: Timestamp { sec: 5, nsec: 6 },
            fid: Fid::NONE,
            parent: Fid::ROOT,
            name: b"new".to_vec(),
            source: Some(Source { fid: Fid::new(9, 1, 0), parent: Fid::ROOT, name: b"old".to_vec() }),
            by: Origin { uid: 5, gid: 6, nid: "10.0.0.1@tcp".parse().ok(), jobid: "cp.5".into() },
            open_flags: 0,
            xattr: Vec::new(),
        }
    }

    #[test]
    fn a_record_goes_there_and_back_and_counts_its_bytes() {
        let v = LogEntry::encode(&record(), 1000);
        let back = LogEntry::decode(b"", &v).unwrap();
        assert_eq!((back.total, back.record), (1000 + v.len() as u64, record()));
        assert!(LogEntry::decode(b"", &v[..8]).is_err());
        assert!(LogEntry::decode(b"", &[&[2], &v[1..]].concat()).is_err(), "another version");
    }

    #[test]
    fn the_state_goes_there_and_back() {
        let c = Consumer { id: 3, name: "robin".into(), mask: Some(Mask::ALL), cleared: 9, heard: -1 };
        let s = LogState { first: 5, freed_bytes: 77, last_id: 3, consumers: vec![c] };
        assert_eq!(LogState::decode(b"", &s.encode()).unwrap(), s);
    }

    proptest! {
        #[test]
        fn decoding_never_panics(v in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = LogEntry::decode(&v, &v);
            let _ = LogState::decode(&v, &v);
        }
    }
}

//! The clients this target knows, durably: without a record a client is new, and what it may have sent
//! before is lost.

use model::mutex::Mutex;
use model::{Errno, Timestamp, limits};
use rpc::{ClientId, Identity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Db, StoreError, Txn};

/// First byte of a client record's key; the 16 bytes of its UUID follow.
pub const CLIENT_TAG: u8 = b'N';
/// Schema version of the record.
pub const CLIENT_RECORD_VERSION: u8 = 2;
/// Longest name kept for a client; longer ones are cut.
const NAME_MAX_BYTES: usize = 256;
const SCAN_PAGE: usize = 1000;

/// What is stored of a client. Byte table: `docs/formats/ost.md`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientRecord {
    /// As the client called itself, for messages.
    pub name: String,
    /// Its address at the first connect.
    pub address: String,
    /// First connect, by the server's clock.
    pub since: Timestamp,
    /// Epoch of the target at the first connect.
    pub epoch: u32,
    /// Reply slots it asked for.
    pub slots: u16,
    /// It keeps locks or requests over a restart of this target, which therefore waits for it.
    pub awaited: bool,
    /// Behind the rest; absent before version 0.2.
    #[serde(skip)]
    pub identity: Identity,
}

impl ClientRecord {
    pub fn encode(&self) -> Vec<u8> {
        let v = postcard::to_extend(self, vec![CLIENT_RECORD_VERSION]).expect("plain data encodes");
        postcard::to_extend(&self.identity, v).expect("plain data encodes")
    }

    /// `None` if the bytes are no record of a version known here.
    pub fn decode(bytes: &[u8]) -> Option<ClientRecord> {
        let (&version, rest) = bytes.split_first()?;
        if version != CLIENT_RECORD_VERSION {
            return None;
        }
        let (mut r, rest) = postcard::take_from_bytes::<ClientRecord>(rest).ok()?;
        r.identity = Identity::decode(rest)?;
        Some(r)
    }
}

pub fn key(client: ClientId) -> Vec<u8> {
    let mut k = vec![CLIENT_TAG];
    k.extend_from_slice(&client.0);
    k
}

/// Cuts a name from outside at a character boundary.
pub fn bounded_name(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_MAX_BYTES)].to_string()
}

/// The records in memory; the table has the same.
pub struct Clients {
    known: Mutex<BTreeMap<ClientId, ClientRecord>>,
}

impl Clients {
    /// Reads all records.
    pub fn load(db: &Db) -> Result<Clients, StoreError> {
        let mut known = BTreeMap::new();
        let mut from = vec![CLIENT_TAG];
        let to = [CLIENT_TAG + 1];
        loop {
            let page = db.scan(&from, &to, SCAN_PAGE)?;
            let full = page.len() == SCAN_PAGE;
            for (k, v) in page {
                let damaged = |why: &str| StoreError::Damaged {
                    what: "client record",
                    path: model::hex(&k),
                    why: format!("{why}; run nacre fsck on the target's folder"),
                };
                let uuid: [u8; 16] = k[1..].try_into().map_err(|_| damaged("the key is not a UUID"))?;
                let r = ClientRecord::decode(&v).ok_or_else(|| damaged("unknown version or cut short"))?;
                known.insert(ClientId(uuid), r);
                from = k;
                from.push(0);
            }
            if !full {
                return Ok(Clients { known: Mutex::new(known) });
            }
        }
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn knows(&self, client: ClientId) -> bool {
        self.lock().contains_key(&client)
    }

    /// Looks at a client's identity, and may change it: what `f` says, and the record then, if the client is
    /// known.
    pub fn identity<T>(
        &self,
        client: ClientId,
        f: impl FnOnce(&mut Identity) -> T,
    ) -> Option<(T, ClientRecord)> {
        let mut known = self.lock();
        let r = known.get_mut(&client)?;
        Some((f(&mut r.identity), r.clone()))
    }

    pub fn list(&self) -> Vec<(ClientId, ClientRecord)> {
        self.lock().iter().map(|(c, r)| (*c, r.clone())).collect()
    }

    /// `EBUSY` if the target knows as many clients as it can.
    pub fn room(&self) -> Result<(), Errno> {
        if self.len() < limits::CLIENTS_MAX { Ok(()) } else { Err(Errno::EBUSY) }
    }

    /// Of a client that is not known; there is [`Clients::room`] for it.
    pub fn insert(&self, client: ClientId, record: ClientRecord) {
        let mut known = self.lock();
        assert!(known.len() < limits::CLIENTS_MAX, "a target knows a bounded number of clients");
        let other = known.insert(client, record);
        assert!(other.is_none(), "a client has one record");
    }

    /// Forgets the client and adds the removal of its record and reply slots to `txn`; false if it was
    /// not known.
    pub fn remove(&self, db: &Arc<Db>, client: ClientId, txn: &mut Txn) -> Result<bool, StoreError> {
        if self.lock().remove(&client).is_none() {
            return Ok(false);
        }
        txn.delete(key(client));
        db.delete_replies(&client.0, txn)?;
        Ok(true)
    }

    fn lock(&self) -> model::mutex::MutexGuard<'_, BTreeMap<ClientId, ClientRecord>> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_there_and_back_and_other_versions_are_refused() {
        let r = ClientRecord {
            name: "n".into(),
            address: "127.0.0.1".into(),
            since: Timestamp { sec: 5, nsec: 6 },
            epoch: 7,
            slots: 8,
            awaited: true,
            identity: Identity { digest: Some([3; 32]), new_since: (4, 5) },
        };
        let mut b = r.encode();
        assert_eq!(ClientRecord::decode(&b), Some(r.clone()));
        // Records of before version 0.2 end where the identity begins.
        let old = ClientRecord { identity: Identity::default(), ..r };
        let end = postcard::to_extend(&old, vec![CLIENT_RECORD_VERSION]).unwrap().len();
        for cut in 0..b.len() {
            assert_eq!(ClientRecord::decode(&b[..cut]), (cut == end).then(|| old.clone()), "cut at {cut}");
        }
        b[0] = 9;
        assert_eq!(ClientRecord::decode(&b), None);
    }

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(bounded_name("short"), "short");
        assert_eq!(bounded_name(&"ä".repeat(200)).len(), 256);
        assert_eq!(bounded_name(&format!("x{}", "ä".repeat(200))).len(), 255);
    }
}

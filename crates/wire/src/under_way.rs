//! Reply extra [`EXTRA_UNDER_WAY`]: the requests that a server is at work on, in answer to a ping with
//! [`crate::frame::FLAG_UNDER_WAY`].

use model::limits::SLOTS_PER_SESSION;

/// Tag in a reply context: for each slot with a request under way its number (u16) and the request's xid
/// (u64), little-endian.
pub const EXTRA_UNDER_WAY: u16 = 2;
const ENTRY_BYTES: usize = 10;

/// Slots and xids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnderWay(Vec<(u16, u64)>);

impl UnderWay {
    /// By slot.
    pub fn new(all: Vec<(u16, u64)>) -> UnderWay {
        assert!(all.is_sorted_by(|a, b| a.0 < b.0), "a slot has one request under way");
        assert!(all.iter().all(|(s, _)| *s < SLOTS_PER_SESSION), "requests have slots of their session");
        UnderWay(all)
    }

    pub fn has(&self, slot: u16, xid: u64) -> bool {
        self.0.contains(&(slot, xid))
    }

    pub fn encode(&self) -> (u16, Vec<u8>) {
        let entry = |(slot, xid): &(u16, u64)| [&slot.to_le_bytes()[..], &xid.to_le_bytes()].concat();
        let value: Vec<u8> = self.0.iter().flat_map(entry).collect();
        assert_eq!(value.len(), self.0.len() * ENTRY_BYTES, "entries are as long as their reader expects");
        (EXTRA_UNDER_WAY, value)
    }

    /// `None`: the server did not say, or what it said makes no sense.
    pub fn of(extra: &[(u16, Vec<u8>)]) -> Option<UnderWay> {
        let (_, v) = extra.iter().find(|(tag, v)| *tag == EXTRA_UNDER_WAY && v.len() % ENTRY_BYTES == 0)?;
        let entry = |e: &[u8]| {
            let (slot, xid) = e.split_at(2);
            let whole = "entries have their length";
            (
                u16::from_le_bytes(slot.try_into().expect(whole)),
                u64::from_le_bytes(xid.try_into().expect(whole)),
            )
        };
        Some(UnderWay(v.chunks_exact(ENTRY_BYTES).map(entry).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read() {
        for all in [vec![], vec![(0, 1)], vec![(1, u64::MAX), (63, 7)]] {
            let u = UnderWay::new(all.clone());
            assert_eq!(UnderWay::of(&[(1, vec![0]), u.encode()]), Some(u.clone()));
            assert!(all.iter().all(|(s, x)| u.has(*s, *x) && !u.has(*s, x.wrapping_sub(1))));
        }
        assert_eq!(UnderWay::of(&[]), None);
        assert_eq!(UnderWay::of(&[(EXTRA_UNDER_WAY, vec![0; 11])]), None);
    }
}

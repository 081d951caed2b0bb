//! What must hold of the changelog's records: they follow each other without gaps from the first one that is
//! not freed, count their bytes, and are behind what consumers cleared.

use crate::MdsError;
use crate::schema::changelog::{LogEntry, LogState};
use crate::schema::key;
use store::Read;

/// Looks at the records as they come, in the order of their keys.
pub struct LogCheck {
    state: LogState,
    /// There is a record of the log's state.
    known: bool,
    last: Option<(u64, u64)>,
    pub count: u64,
}

impl LogCheck {
    pub fn new(db: &dyn Read) -> Result<LogCheck, MdsError> {
        let k = key::STATE_CHANGELOG;
        let stored = db.get(k)?.map(|v| LogState::decode(k, &v)).transpose()?;
        let known = stored.is_some();
        Ok(LogCheck { state: stored.unwrap_or_default(), known, last: None, count: 0 })
    }

    /// The next one; what is wrong with it.
    pub fn next(&mut self, index: u64, k: &[u8], v: &[u8]) -> Result<Option<String>, MdsError> {
        self.count += 1;
        let entry = LogEntry::decode(k, v)?;
        let before = self.last.map_or(self.state.freed_bytes, |(_, total)| total);
        let due = self.last.map_or(self.state.first, |(last, _)| last.saturating_add(1));
        self.last = Some((index, entry.total));
        Ok(if !self.known {
            Some(format!("the changelog has record {index}, but never had a consumer"))
        } else if index < self.state.first {
            Some(format!("the changelog has record {index}, which was freed"))
        } else if index != due {
            Some(format!("the changelog has record {index} where record {due} should be"))
        } else if entry.record.index != index {
            Some(format!("record {index} of the changelog says that it is {}", entry.record.index))
        } else if entry.total != before.saturating_add(v.len() as u64) {
            Some(format!("record {index} of the changelog miscounts the bytes of the log"))
        } else {
            None
        })
    }

    /// Behind the last one: what is wrong with consumers.
    pub fn end(&self) -> Vec<String> {
        let newest = self.last.map_or(self.state.first.saturating_sub(1), |(last, _)| last);
        let mut out = Vec::new();
        for c in &self.state.consumers {
            if c.cleared > newest {
                out.push(format!(
                    "consumer {} cleared record {}, the newest is {newest}",
                    c.label(),
                    c.cleared
                ));
            }
            if c.cleared.saturating_add(1) < self.state.first {
                out.push(format!("records that consumer {} did not clear were freed", c.label()));
            }
            if c.id > self.state.last_id {
                out.push(format!("consumer {} has a number that was not given yet", c.label()));
            }
        }
        out
    }
}

//! How a database is opened.

use crate::lease::Lease;

#[derive(Clone, Debug)]
pub struct DbOptions {
    /// Bytes of one journal segment.
    pub segment_bytes: u64,
    /// Checkpoint when the overlay holds so many transactions …
    pub checkpoint_txns: usize,
    /// … or so many bytes.
    pub checkpoint_bytes: usize,
    /// False: only when it is closed, or no segment can be had. For measurements, and for tests of what
    /// follows.
    pub checkpoints: bool,
    pub table_cache_bytes: usize,
    /// A damaged journal ends where the damage is, and what was behind is lost; else it is not opened. An
    /// administrator's decision (`nacre fsck --repair --cut-journal`).
    pub cut_damaged_journal: bool,
    /// Nothing is written once it is over.
    pub lease: Lease,
}

impl Default for DbOptions {
    fn default() -> DbOptions {
        DbOptions {
            segment_bytes: 64 << 20,
            checkpoint_txns: 20_000,
            checkpoint_bytes: 32 << 20,
            checkpoints: true,
            table_cache_bytes: 128 << 20,
            cut_damaged_journal: false,
            lease: Lease::default(),
        }
    }
}

//! How a command copies the table of a target that a daemon of this host serves: as it was at one moment,
//! page by page (`nacre backup`).

use client::control::Packed;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::{Read, StoreError};

/// Moments of one target that a daemon keeps at a time.
pub const VIEWS_MAX: usize = 2;
/// So long is one kept that nobody asks for: an interrupted copy may go on within that.
pub const VIEW_LIFE: Duration = Duration::from_secs(600);
/// Pairs that are looked at for one page.
const PAGE_PAIRS: usize = 1000;
/// Bytes of one page; a pair that has more goes by itself.
const PAGE_BYTES: usize = 2 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableOrder {
    /// Keep it as it is now: [`TableAnswer::Opened`]. `EBUSY`.
    Open,
    /// Whether it is kept still; `ENOENT`.
    Look { view: u64 },
    /// Pairs behind a key: [`TableAnswer::Page`].
    Page { view: u64, after: Option<Packed<Vec<u8>>> },
    /// It is needed no more.
    Close { view: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableAnswer {
    /// The start of the target, and its last transaction that is in it; which is durable.
    Opened {
        view: u64,
        epoch: u32,
        lsn: u64,
    },
    Page(Packed<TablePage>),
    Closed,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TablePage {
    /// Key and value, in order.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    pub end: bool,
}

/// Pairs of a table behind a key.
pub fn page(of: &impl Read, after: Option<Vec<u8>>) -> Result<TablePage, StoreError> {
    let from = after.map_or_else(Vec::new, |mut k| {
        k.push(0);
        k
    });
    let mut pairs = of.scan(&from, &[0xff], PAGE_PAIRS)?;
    let mut bytes = 0;
    let fits = |p: &&(Vec<u8>, Vec<u8>)| {
        bytes += p.0.len() + p.1.len() + 16;
        bytes <= PAGE_BYTES
    };
    let n = pairs.iter().take_while(fits).count().max(1);
    let end = pairs.len() < PAGE_PAIRS && n >= pairs.len();
    pairs.truncate(n);
    assert!(end || !pairs.is_empty(), "a page has a pair, or is the last one");
    Ok(TablePage { pairs, end })
}

//! Looking at many keys of the table, a page at a time.

use crate::MdsError;

/// Keys read at a time when something walks the table.
pub const PAGE: usize = 1000;

/// Walks `from..to` in pages.
pub fn walk(
    db: &dyn store::Read,
    from: &[u8],
    to: &[u8],
    mut f: impl FnMut(&[u8], &[u8]) -> Result<(), MdsError>,
) -> Result<(), MdsError> {
    let mut from = from.to_vec();
    loop {
        let page = db.scan(&from, to, PAGE)?;
        let next = page.first().is_none_or(|(k, _)| *k >= from);
        assert!(next && page.len() <= PAGE, "a page goes on where the last one ended");
        for (k, v) in &page {
            f(k, v)?;
        }
        match page.last() {
            Some((k, _)) if page.len() == PAGE => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(()),
        }
    }
}

//! Looking at many keys of the table, a page at a time.

use crate::MdsError;

/// Keys read at a time when something walks the table.
pub const PAGE: usize = 1000;

/// Walks `from..to` in pages.
pub fn walk(
    db: &dyn store::Read,
    from: &[u8],
    to: &[u8],
    f: impl FnMut(&[u8], &[u8]) -> Result<(), MdsError>,
) -> Result<(), MdsError> {
    walk_some(db, from, to, usize::MAX, f).map(drop)
}

/// As [`walk`], so many keys at most. Where to go on, if there may be more.
pub fn walk_some(
    db: &dyn store::Read,
    from: &[u8],
    to: &[u8],
    mut most: usize,
    mut f: impl FnMut(&[u8], &[u8]) -> Result<(), MdsError>,
) -> Result<Option<Vec<u8>>, MdsError> {
    let mut from = from.to_vec();
    loop {
        let wanted = most.min(PAGE);
        let page = db.scan(&from, to, wanted)?;
        let next = page.first().is_none_or(|(k, _)| *k >= from);
        assert!(next && page.len() <= wanted, "a page goes on where the last one ended");
        for (k, v) in &page {
            f(k, v)?;
        }
        most -= page.len();
        match page.last() {
            Some((k, _)) if page.len() == wanted => {
                from.clone_from(k);
                from.push(0);
            }
            _ => return Ok(None),
        }
        if most == 0 {
            return Ok(Some(from));
        }
    }
}

//! POSIX ranges of one owner: setting and clearing parts, splitting what lies across.

use wire::msg::enqueue::LockSpec;

/// Whether the byte ranges `a..=b` and `c..=d` have a byte in common.
pub(crate) fn overlap(a: &LockSpec, start: u64, end: u64) -> bool {
    a.start <= end && start <= a.end
}

/// Cuts `start..=end` out of `pieces` (those that `mine` names): pieces inside go, pieces across are
/// shortened or split. Returns whether anything changed.
pub(crate) fn carve<T: Clone>(
    pieces: &mut Vec<T>,
    start: u64,
    end: u64,
    mine: impl Fn(&T) -> bool,
    spec: impl Fn(&mut T) -> &mut LockSpec,
) -> bool {
    let mut tails = Vec::new();
    let mut changed = false;
    pieces.retain_mut(|p| {
        if !mine(p) {
            return true;
        }
        let (a, b) = {
            let s = spec(p);
            (s.start, s.end)
        };
        if a > end || start > b {
            return true;
        }
        changed = true;
        if b > end {
            let mut tail = p.clone();
            spec(&mut tail).start = end + 1;
            tails.push(tail);
        }
        if a < start {
            spec(p).end = start - 1;
            return true;
        }
        false
    });
    pieces.extend(tails);
    changed
}

/// How many more pieces there are after cutting `start..=end` out: 1 if one piece lies across both ends.
pub(crate) fn splits(p: &LockSpec, start: u64, end: u64) -> bool {
    p.start < start && p.end > end
}

/// Adjacent or overlapping pieces of the same mode as one: the view that fcntl(F_GETLK) gives. `around` is
/// grown over its neighbours.
pub(crate) fn coalesce<'a>(
    around: &LockSpec,
    same_owner: impl Iterator<Item = &'a LockSpec> + Clone,
) -> LockSpec {
    let mut out = around.clone();
    loop {
        let mut grown = false;
        for p in same_owner.clone().filter(|p| p.mode == out.mode) {
            let touches = p.start <= out.end.saturating_add(1) && out.start <= p.end.saturating_add(1);
            if touches && (p.start < out.start || p.end > out.end) {
                out.start = out.start.min(p.start);
                out.end = out.end.max(p.end);
                grown = true;
            }
        }
        if !grown {
            return out;
        }
    }
}

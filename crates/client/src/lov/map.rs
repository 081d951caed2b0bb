//! Between a file's bytes and its objects': which pieces of a request go to which object, and what the
//! objects' answers mean for the file.

use bytes::{Bytes, BytesMut};
use model::layout::{Component, EOF, Pattern};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::{Errno, Fid, Layout, ObjectAttr, ObjectId};

/// Who serves an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    Ost(u16),
    /// The metadata target of the file: the data lies with the inode.
    Mdt,
}

/// One object of a file and where to ask for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub home: Home,
    pub id: ObjectId,
}

/// The objects of a file by their numbers, each with its component and its stripe there. Data with the inode
/// counts as one.
pub(crate) fn parts(l: &Layout) -> impl Iterator<Item = (usize, &Component, usize)> {
    let with_inode = l.mdt_component().map(|c| (0, c, 0));
    let striped = |(first, c): (usize, &Component)| (0..c.objects.len()).map(move |s| (first + s, s));
    let on_osts =
        l.instantiated().flat_map(move |(first, c)| striped((first, c)).map(move |(n, s)| (n, c, s)));
    with_inode.into_iter().chain(on_osts)
}

/// Where each object is, by its number.
pub(crate) fn places(l: &Layout, fid: Fid) -> Vec<Place> {
    let place = |(_, c, stripe): (usize, &Component, usize)| match c.objects.get(stripe) {
        Some(o) => Place { home: Home::Ost(o.ost), id: o.id },
        None => Place { home: Home::Mdt, id: ObjectId { origin: fid, component: c.id, stripe: 0 } },
    };
    parts(l).map(place).collect()
}

/// A run of one object that one message reads or writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The object's, in the layout.
    pub number: usize,
    pub object: Place,
    pub object_offset: u64,
    pub len: usize,
    /// Where its bytes lie in the caller's buffer, in object order: (position, length).
    pub segments: Vec<(usize, usize)>,
}

/// Whether this version can serve the layout: components one behind the other from the beginning of the file
/// on, striped over objects, or one with the inode. Files of later versions give `EOPNOTSUPP` rather than
/// wrong data.
pub(crate) fn supported(l: &Layout) -> Result<(), Errno> {
    let mut start = 0;
    let mut known = |c: &Component| {
        let pattern = match c.pattern {
            Pattern::Raid0 => true,
            Pattern::Mdt => c.objects.is_empty() && l.components.len() == 1,
            Pattern::Parity { .. } => false,
        };
        let in_order = c.start == start && c.end >= start;
        start = c.end;
        pattern && in_order && c.mirror == 0 && c.stripe_size > 0
    };
    if !l.components.is_empty() && l.components.iter().all(&mut known) {
        return Ok(());
    }
    tracing::error!("layout of {} components is of a later version: upgrade this client", l.components.len());
    Err(Errno::EOPNOTSUPP)
}

/// Whether all of the file is one object's, or lies with the inode: each request is one step of its server.
pub(crate) fn is_one(l: &Layout) -> bool {
    matches!(l.components.as_slice(), [c] if c.stripes() == 1 && c.end == EOF)
}

/// Splits `off..off+len` into runs of at most `max` bytes of one object each. RAID0 maps a contiguous range
/// of the file to a contiguous range of each object, so that small stripes do not make many messages.
pub(crate) fn pieces(l: &Layout, fid: Fid, off: u64, len: usize, max: usize) -> Vec<Piece> {
    assert!(max > 0, "messages carry data");
    let places = places(l, fid);
    if l.mdt_component().is_some() {
        // All of it is one object's, however much that has room for.
        assert!(len <= max, "one message holds it");
        let segments = vec![(0, len)];
        return vec![Piece { number: 0, object: places[0], object_offset: off, len, segments }];
    }
    let mut out: Vec<Piece> = Vec::new();
    // Index in `out` of the piece of each object that may still grow.
    let mut open: Vec<Option<usize>> = vec![None; l.object_count()];
    for e in l.extents(off, len as u64) {
        let mut at = (e.file_offset - off) as usize;
        let mut object_offset = e.object_offset;
        let mut left = e.len as usize;
        while left > 0 {
            let grow = open[e.number].filter(|&i| out[i].len < max);
            let i = grow.unwrap_or_else(|| {
                out.push(Piece {
                    number: e.number,
                    object: places[e.number],
                    object_offset,
                    len: 0,
                    segments: Vec::new(),
                });
                out.len() - 1
            });
            open[e.number] = Some(i);
            let p = &mut out[i];
            assert!(p.object_offset + p.len as u64 == object_offset, "pieces of an object are contiguous");
            let n = left.min(max - p.len);
            match p.segments.last_mut() {
                Some((a, l)) if *a + *l == at => *l += n,
                _ => p.segments.push((at, n)),
            }
            p.len += n;
            at += n;
            object_offset += n as u64;
            left -= n;
        }
    }
    out
}

/// The bytes of a piece, taken from the caller's buffer; no copy if they lie together.
pub(crate) fn gather(data: &Bytes, p: &Piece) -> Bytes {
    if let [(at, len)] = p.segments[..] {
        return data.slice(at..at + len);
    }
    let mut b = BytesMut::with_capacity(p.len);
    for &(at, len) in &p.segments {
        b.extend_from_slice(&data[at..at + len]);
    }
    b.freeze()
}

/// Puts the bytes that came for a piece (perhaps fewer than asked for) where they belong in the caller's
/// buffer.
pub(crate) fn scatter(buf: &mut [u8], p: &Piece, got: &[u8]) {
    let mut rest = got;
    for &(at, len) in &p.segments {
        let n = len.min(rest.len());
        buf[at..at + n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
    }
}

/// The component of an object, and its stripe there.
fn part(l: &Layout, number: usize) -> (&Component, usize) {
    match l.mdt_component() {
        Some(c) => (c, 0),
        None => l.stripe_of(number),
    }
}

/// Size of the file if an object has `size` bytes; an impossible size is an answer that cannot be believed:
/// `EPROTO`.
pub(crate) fn file_size_of(l: &Layout, number: usize, size: u64) -> Result<u64, Errno> {
    let (c, stripe) = part(l, number);
    if size > FILE_SIZE_MAX_BYTES / c.stripes() as u64 + u64::from(c.stripe_size) {
        tracing::error!("object {number} of a file claims to have {size} bytes");
        return Err(Errno::EPROTO);
    }
    Ok(c.file_size_from(stripe, size).min(FILE_SIZE_MAX_BYTES))
}

/// Size of the file whose objects, by their numbers, have these attributes.
pub(crate) fn file_size(l: &Layout, attrs: &[ObjectAttr]) -> Result<u64, Errno> {
    let mut size = 0;
    for (number, a) in attrs.iter().enumerate() {
        size = size.max(file_size_of(l, number, a.size)?);
    }
    Ok(size)
}

/// Ranges of the file that stand for ranges of one object; one around each of these beyond.
const FILE_RANGES_MAX: u64 = 256;

/// The parts of the file that lie in these ranges of an object, or a little more; ends are exclusive.
pub(crate) fn file_ranges(l: &Layout, number: usize, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (c, stripe) = part(l, number);
    let unit = u64::from(c.stripe_size);
    let whole = |s: u64, e: u64| {
        let end = c.file_offset(stripe, e - 1).saturating_add(1);
        (c.file_offset(stripe, s), end.min(c.end))
    };
    let units = |(s, e): &(u64, u64)| (e - s) / unit + 2;
    if c.stripes() == 1 || ranges.iter().map(units).fold(0, u64::saturating_add) > FILE_RANGES_MAX {
        return ranges.iter().map(|(s, e)| whole(*s, *e)).collect();
    }
    let mut out = Vec::new();
    for &(mut s, e) in ranges {
        while s < e {
            let to = e.min((s / unit + 1) * unit);
            out.push(whole(s, to));
            s = to;
        }
    }
    out
}

/// What one object answered when asked for the next data or hole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub offset: Option<u64>,
    pub object_size: u64,
}

/// Next data (or hole) of the file at or after `off`, from all objects' answers by their numbers. The mapping
/// of each object grows with the offset, so the first of the file is the first of the objects' firsts. What
/// has no objects is a hole.
pub(crate) fn merge_seek(l: &Layout, off: u64, hole: bool, found: &[Found]) -> Result<u64, Errno> {
    let mut size = 0;
    for (number, f) in found.iter().enumerate() {
        size = size.max(file_size_of(l, number, f.object_size)?);
    }
    if off >= size {
        return Err(Errno::ENXIO);
    }
    let bare = |c: &&Component| hole && !c.is_instantiated() && off < c.end && c.start < c.end;
    let mut first = l.components.iter().find(bare).map(|c| c.start.max(off));
    for ((_, c, stripe), f) in parts(l).zip(found) {
        let from = c.object_size_for(stripe, off);
        let at = match f.offset {
            Some(o) if o >= from && o <= f.object_size => o,
            Some(_) => return Err(Errno::EPROTO),
            // Behind its end an object is one hole.
            None if hole => from.max(f.object_size),
            None => continue,
        };
        // Behind the component its objects have nothing, not even a hole.
        let at = c.file_offset(stripe, at);
        if off < c.end && at < c.end {
            first = Some(first.map_or(at, |x| x.min(at)));
        }
    }
    match first {
        Some(x) if hole => Ok(x.min(size)),
        None if hole => Ok(size),
        Some(x) if x < size => Ok(x),
        _ => Err(Errno::ENXIO),
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;

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

/// The objects of a component of file `fid`, in stripe order.
pub(crate) fn places(c: &Component, fid: Fid) -> Vec<Place> {
    if c.pattern == Pattern::Mdt {
        let id = ObjectId { origin: fid, component: c.id, stripe: 0 };
        return vec![Place { home: Home::Mdt, id }];
    }
    c.objects.iter().map(|o| Place { home: Home::Ost(o.ost), id: o.id }).collect()
}

/// A run of one object that one message reads or writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub stripe: usize,
    pub object: Place,
    pub object_offset: u64,
    pub len: usize,
    /// Where its bytes lie in the caller's buffer, in object order: (position, length).
    pub segments: Vec<(usize, usize)>,
}

/// The component that holds the data, if this version can serve the layout: one of the whole file, striped
/// over objects or with the inode. Files of later versions give `EOPNOTSUPP` rather than wrong data.
pub(crate) fn component(l: &Layout) -> Result<&Component, Errno> {
    let known = |c: &Component| match c.pattern {
        Pattern::Raid0 => !c.objects.is_empty(),
        Pattern::Mdt => c.objects.is_empty(),
        Pattern::Parity { .. } => false,
    };
    match l.components.as_slice() {
        [c] if c.start == 0 && c.end == EOF && c.stripe_size > 0 && known(c) => Ok(c),
        _ => {
            tracing::error!(
                "layout with {} components is of a later version: upgrade this client",
                l.components.len()
            );
            Err(Errno::EOPNOTSUPP)
        }
    }
}

/// Splits `off..off+len` into runs of at most `max` bytes of one object each. RAID0 maps a contiguous range
/// of the file to a contiguous range of each object, so that small stripes do not make many messages.
pub(crate) fn pieces(l: &Layout, fid: Fid, off: u64, len: usize, max: usize) -> Vec<Piece> {
    assert!(max > 0, "messages carry data");
    let places = places(l.component(), fid);
    if l.mdt_component().is_some() {
        // All of it is one object's, however much that has room for.
        assert!(len <= max, "one message holds it");
        let segments = vec![(0, len)];
        return vec![Piece { stripe: 0, object: places[0], object_offset: off, len, segments }];
    }
    let mut out: Vec<Piece> = Vec::new();
    // Index in `out` of the piece of each stripe that may still grow.
    let mut open: Vec<Option<usize>> = vec![None; l.stripe_count()];
    for e in l.extents(off, len as u64) {
        let mut at = (e.file_offset - off) as usize;
        let mut object_offset = e.object_offset;
        let mut left = e.len as usize;
        while left > 0 {
            let grow = open[e.stripe].filter(|&i| out[i].len < max);
            let i = grow.unwrap_or_else(|| {
                out.push(Piece {
                    stripe: e.stripe,
                    object: places[e.stripe],
                    object_offset,
                    len: 0,
                    segments: Vec::new(),
                });
                out.len() - 1
            });
            open[e.stripe] = Some(i);
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

/// Size of the file if the object of `stripe` has `size` bytes; an impossible size is an answer that cannot
/// be believed: `EPROTO`.
pub(crate) fn file_size_of(c: &Component, stripe: usize, size: u64) -> Result<u64, Errno> {
    if size > FILE_SIZE_MAX_BYTES / c.stripes() as u64 + u64::from(c.stripe_size) {
        tracing::error!("stripe {stripe} claims to have {size} bytes");
        return Err(Errno::EPROTO);
    }
    Ok(c.file_size_from(stripe, size).min(FILE_SIZE_MAX_BYTES))
}

/// Size of the file whose objects, in stripe order, have these attributes.
pub(crate) fn file_size(c: &Component, attrs: &[ObjectAttr]) -> Result<u64, Errno> {
    let mut size = 0;
    for (stripe, a) in attrs.iter().enumerate() {
        size = size.max(file_size_of(c, stripe, a.size)?);
    }
    Ok(size)
}

/// The bytes of the object of `stripe` that belong to the file's `off..off+len`, as (offset, length).
pub(crate) fn object_range(c: &Component, stripe: usize, off: u64, len: u64) -> (u64, u64) {
    let start = c.object_size_for(stripe, off);
    (start, c.object_size_for(stripe, off.saturating_add(len)) - start)
}

/// Ranges of the file that stand for ranges of one object; one around each of these beyond.
const FILE_RANGES_MAX: u64 = 256;

/// The parts of the file that lie in these ranges of the object of `stripe`, or a little more; ends are
/// exclusive.
pub(crate) fn file_ranges(c: &Component, stripe: usize, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    if c.objects.len() == 1 {
        return ranges.to_vec();
    }
    let unit = u64::from(c.stripe_size);
    let units: u64 = ranges.iter().map(|(s, e)| (e - s) / unit + 2).sum();
    let whole = |s: u64, e: u64| (c.file_offset(stripe, s), c.file_offset(stripe, e - 1) + 1);
    if units > FILE_RANGES_MAX {
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

/// Next data (or hole) of the file at or after `off`, from all objects' answers in stripe order. The mapping
/// of each object grows with the offset, so the first of the file is the first of the objects' firsts.
pub(crate) fn merge_seek(c: &Component, off: u64, hole: bool, found: &[Found]) -> Result<u64, Errno> {
    let mut size = 0;
    for (stripe, f) in found.iter().enumerate() {
        size = size.max(file_size_of(c, stripe, f.object_size)?);
    }
    if off >= size {
        return Err(Errno::ENXIO);
    }
    let mut first: Option<u64> = None;
    for (stripe, f) in found.iter().enumerate() {
        let from = c.object_size_for(stripe, off);
        let at = match f.offset {
            Some(o) if o >= from && o <= f.object_size => o,
            Some(_) => return Err(Errno::EPROTO),
            // Behind its end an object is one hole.
            None if hole => from.max(f.object_size),
            None => continue,
        };
        let at = c.file_offset(stripe, at);
        first = Some(first.map_or(at, |x| x.min(at)));
    }
    match first {
        Some(x) if hole => Ok(x.min(size)),
        Some(x) if x < size => Ok(x),
        _ => Err(Errno::ENXIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fid;
    use proptest::prelude::*;

    const SS: u32 = 16;
    const FID: Fid = Fid::new(1, 2, 0);

    fn layout(count: u16) -> Layout {
        Layout::plain(FID, SS, "", &(0..count).collect::<Vec<_>>())
    }

    /// Objects in memory: bytes and, of each, whether it was written.
    struct Objects(Vec<(Vec<u8>, Vec<bool>)>);

    impl Objects {
        fn write(&mut self, l: &Layout, off: u64, data: &Bytes, max: usize) {
            for p in pieces(l, FID, off, data.len(), max) {
                assert!(p.len <= max && p.len == p.segments.iter().map(|s| s.1).sum::<usize>());
                let (bytes, set) = &mut self.0[p.stripe];
                let end = p.object_offset as usize + p.len;
                if bytes.len() < end {
                    bytes.resize(end, 0);
                    set.resize(end, false);
                }
                bytes[p.object_offset as usize..end].copy_from_slice(&gather(data, &p));
                set[p.object_offset as usize..end].fill(true);
            }
        }

        fn attrs(&self) -> Vec<ObjectAttr> {
            self.0.iter().map(|o| ObjectAttr { size: o.0.len() as u64, ..ObjectAttr::default() }).collect()
        }

        fn read(&self, l: &Layout, off: u64, len: usize, max: usize) -> Vec<u8> {
            let mut buf = vec![0; len];
            for p in pieces(l, FID, off, len, max) {
                let o = &self.0[p.stripe].0;
                let from = (p.object_offset as usize).min(o.len());
                let to = (p.object_offset as usize + p.len).min(o.len());
                scatter(&mut buf, &p, &o[from..to]);
            }
            buf
        }

        fn find(&self, c: &Component, off: u64, hole: bool) -> Vec<Found> {
            let one = |(stripe, o): (usize, &(Vec<u8>, Vec<bool>))| {
                let from = c.object_size_for(stripe, off) as usize;
                let n = o.1.len();
                let hit = (from..n).find(|&i| o.1[i] != hole).or((hole && from <= n).then_some(n));
                Found { offset: hit.map(|x| x as u64), object_size: n as u64 }
            };
            self.0.iter().enumerate().map(one).collect()
        }
    }

    proptest! {
        #[test]
        fn striped_files_behave_as_one_array(
            count in 1u16..5,
            max in 1usize..40,
            writes in prop::collection::vec((0u64..300, 1usize..90, any::<u8>()), 1..8),
            probe in 0u64..420,
        ) {
            let l = layout(count);
            let c = component(&l).unwrap();
            let mut objects = Objects(vec![Default::default(); count as usize]);
            let (mut bytes, mut set) = (Vec::new(), Vec::new());
            for (off, len, b) in writes {
                let data = Bytes::from((0..len).map(|i| b.wrapping_add(i as u8)).collect::<Vec<_>>());
                objects.write(&l, off, &data, max);
                let end = off as usize + len;
                if bytes.len() < end {
                    bytes.resize(end, 0);
                    set.resize(end, false);
                }
                bytes[off as usize..end].copy_from_slice(&data);
                set[off as usize..end].fill(true);
            }
            prop_assert_eq!(file_size(c, &objects.attrs()).unwrap(), bytes.len() as u64);
            prop_assert_eq!(&objects.read(&l, 0, bytes.len(), max), &bytes);
            let n = set.len();
            let next = |hole: bool| (probe as usize..n).find(|&i| set[i] != hole).or((hole && (probe as usize) < n).then_some(n));
            for hole in [false, true] {
                let got = merge_seek(c, probe, hole, &objects.find(c, probe, hole));
                prop_assert_eq!(got, next(hole).map(|x| x as u64).ok_or(Errno::ENXIO), "hole {}", hole);
            }
        }

        #[test]
        fn object_ranges_cover_what_extents_cover(count in 1u16..6, off in 0u64..5000, len in 0u64..5000) {
            let l = layout(count);
            let c = component(&l).unwrap();
            for s in 0..count as usize {
                let of_s: Vec<_> = l.extents(off, len).into_iter().filter(|e| e.stripe == s).collect();
                let (start, n) = object_range(c, s, off, len);
                prop_assert_eq!(n, of_s.iter().map(|e| e.len).sum::<u64>());
                if let Some(e) = of_s.first() {
                    prop_assert_eq!(start, e.object_offset);
                }
            }
        }
    }

    #[test]
    fn ranges_of_an_object_are_pieces_of_the_file() {
        let of = |n: u16, stripe, ranges: &[(u64, u64)]| {
            let l = Layout::plain(FID, 65536, "", &(0..n).collect::<Vec<_>>());
            file_ranges(component(&l).unwrap(), stripe, ranges)
        };
        assert_eq!(of(1, 0, &[(5, 70000)]), [(5, 70000)]);
        let parts = [(65536 + 4096, 131_072), (196_608, 196_608 + 4096)];
        assert_eq!(of(2, 1, &[(4096, 65536 + 4096)]), parts);
        assert_eq!(of(2, 0, &[(0, 65536 * 1000)]), [(0, 65536 * 1999)]);
    }

    #[test]
    fn unbelievable_sizes_are_refused() {
        let l = layout(3);
        let c = component(&l).unwrap();
        assert_eq!(file_size_of(c, 1, u64::MAX), Err(Errno::EPROTO));
        assert_eq!(
            merge_seek(c, 0, true, &[Found { offset: Some(9), object_size: 3 }; 3]),
            Err(Errno::EPROTO)
        );
    }

    #[test]
    fn data_with_the_inode_is_one_piece_of_the_metadata_target() {
        let l = Layout::on_mdt(65536);
        let c = component(&l).unwrap();
        let p = pieces(&l, FID, 70_000, 10, 100).pop().unwrap();
        let id = ObjectId { origin: FID, component: 1, stripe: 0 };
        assert_eq!((p.object, p.object_offset, p.len), (Place { home: Home::Mdt, id }, 70_000, 10));
        assert_eq!(object_range(c, 0, 5, 10), (5, 10));
        assert_eq!(file_size_of(c, 0, 65536), Ok(65536));
    }

    #[test]
    fn layouts_of_later_versions_are_refused() {
        let mut l = layout(1);
        l.components.push(l.components[0].clone());
        assert_eq!(component(&l).unwrap_err(), Errno::EOPNOTSUPP);
    }
}

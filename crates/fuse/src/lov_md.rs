//! Layouts as Lustre's user tools read them from `lustre.lov`: `struct lov_user_md_v1` and `_v3` (with a
//! pool), `lov_comp_md_v1` of composite ones, little-endian.

use model::layout::{Component, ComponentSpec, EOF, LayoutObject, Pattern};
use model::{Fid, Layout};

const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
const MAGIC_COMPOSITE: u32 = 0x0bd6_0bd0;
const PATTERN_RAID0: u32 = 1;
const PATTERN_MDT: u32 = 0x100;
const PATTERN_OVERSTRIPED: u32 = 0x200;
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;
/// A pool's name with its zero byte.
const POOL_BYTES: usize = 16;
/// In which the size of a step of growth is told.
const EXTENSION_UNIT: u64 = 1024;

/// A layout's bytes. Components that have no objects yet tell what is wanted.
pub fn encode(l: &Layout) -> Vec<u8> {
    match l.components.as_slice() {
        [c] if c.end == EOF => striping(c, l.generation as u16),
        parts => composite(parts, l.generation),
    }
}

fn composite(parts: &[Component], generation: u32) -> Vec<u8> {
    // What a component without objects says there is no generation but the first OST: none is chosen.
    let bodies: Vec<Vec<u8>> =
        parts.iter().map(|c| striping(c, if c.objects.is_empty() { u16::MAX } else { 0 })).collect();
    let mut offset = HEADER_BYTES + ENTRY_BYTES * parts.len();
    let size = offset + bodies.iter().map(Vec::len).sum::<usize>();
    let mut out = Vec::with_capacity(size);
    out.extend(MAGIC_COMPOSITE.to_le_bytes());
    out.extend((size as u32).to_le_bytes());
    out.extend(generation.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend((parts.len() as u16).to_le_bytes());
    // Mirrors but the first: none.
    out.resize(HEADER_BYTES, 0);
    for (c, body) in parts.iter().zip(&bodies) {
        out.extend(c.id.to_le_bytes());
        out.extend(c.flags.to_le_bytes());
        out.extend(c.start.to_le_bytes());
        out.extend(c.end.to_le_bytes());
        out.extend((offset as u32).to_le_bytes());
        out.extend((body.len() as u32).to_le_bytes());
        out.extend([0; 16]);
        offset += body.len();
    }
    bodies.iter().for_each(|b| out.extend(b));
    assert_eq!(out.len(), size, "as long as it says");
    out
}

/// How one component is striped. `last`: generation, or the first OST of one without objects.
fn striping(c: &Component, last: u16) -> Vec<u8> {
    let wanted = c.wanted();
    let mut out = Vec::with_capacity(HEADER_BYTES + POOL_BYTES + 24 * c.objects.len());
    out.extend(if c.pool.is_empty() { MAGIC_V1 } else { MAGIC_V3 }.to_le_bytes());
    out.extend(pattern(c, wanted.as_ref()).to_le_bytes());
    id(&mut out, c.objects.first().map_or(Fid::NONE, |o| o.id.origin));
    let (size, count) = match wanted.filter(|_| c.objects.is_empty()) {
        Some(w) if c.is_extension() => (w.extension_bytes / EXTENSION_UNIT, 0),
        // A negative count has 16 bits as well.
        Some(w) => (w.stripe_size, w.stripe_count as u16),
        None => (u64::from(c.stripe_size), c.objects.len() as u16),
    };
    out.extend(u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(last.to_le_bytes());
    if !c.pool.is_empty() {
        let name = &c.pool.as_bytes()[..c.pool.len().min(POOL_BYTES - 1)];
        out.extend(name);
        out.extend(&[0; POOL_BYTES][name.len()..]);
    }
    c.objects.iter().for_each(|o| object(&mut out, o));
    out
}

fn pattern(c: &Component, wanted: Option<&ComponentSpec>) -> u32 {
    let overstriped = match wanted {
        Some(w) if c.objects.is_empty() => w.overstriped && !c.is_extension(),
        _ => c.is_overstriped(),
    };
    match c.pattern {
        Pattern::Mdt => PATTERN_MDT,
        _ if overstriped => PATTERN_RAID0 | PATTERN_OVERSTRIPED,
        _ => PATTERN_RAID0,
    }
}

fn id(out: &mut Vec<u8>, f: Fid) {
    out.extend(u64::from(f.oid).to_le_bytes());
    out.extend(f.seq.to_le_bytes());
}

fn object(out: &mut Vec<u8>, o: &LayoutObject) {
    id(out, o.id.origin);
    out.extend(0u32.to_le_bytes());
    out.extend(u32::from(o.ost).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid::new(0x2_0000_0401, 3, 0);

    fn u32_at(b: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn plain_layouts_have_their_objects_behind_32_bytes() {
        let b = encode(&Layout::plain(FID, 65536, "", &[2, 5]));
        assert_eq!((b.len(), u32_at(&b, 0), u32_at(&b, 4)), (32 + 2 * 24, MAGIC_V1, PATTERN_RAID0));
        assert_eq!((u32_at(&b, 24), b[28], u32_at(&b, 32 + 20)), (65536, 2, 2));
        let b = encode(&Layout::plain(FID, 65536, "flash", &[2]));
        assert_eq!((b.len(), u32_at(&b, 0), &b[32..38]), (48 + 24, MAGIC_V3, &b"flash\0"[..]));
        let b = encode(&Layout::on_mdt(65536));
        assert_eq!((b.len(), u32_at(&b, 4)), (32, PATTERN_MDT));
    }

    #[test]
    fn composite_layouts_have_an_entry_for_each_component() {
        let part = |end, stripe_count| ComponentSpec {
            end,
            stripe_count,
            stripe_size: 65536,
            ..ComponentSpec::default()
        };
        let many = ComponentSpec { overstriped: true, extension_bytes: 64 << 20, ..part(EOF, -2) };
        let mut l = Layout::composite(1, 7, &[part(1 << 20, 1), many]);
        l.instantiate(0, FID, ("", &[4]));
        let b = encode(&l);
        assert_eq!((u32_at(&b, 0), u32_at(&b, 4) as usize, u32_at(&b, 8)), (MAGIC_COMPOSITE, b.len(), 7));
        assert_eq!((u16::from_le_bytes([b[14], b[15]]), b.len()), (3, 32 + 3 * 48 + 32 + 24 + 32 + 32));
        let entry = |n: usize| 32 + 48 * n;
        let body = |n: usize| u32_at(&b, entry(n) + 24) as usize;
        // id, flags; end of the first
        assert_eq!(
            [0, 1, 2].map(|n| (u32_at(&b, entry(n)), u32_at(&b, entry(n) + 4))),
            [(1, 0x10), (2, 0), (3, 0x40)]
        );
        assert_eq!(u32_at(&b, entry(0) + 16), 1 << 20);
        assert_eq!(b[entry(2) + 16..entry(2) + 24], [0xff; 8]);
        assert_eq!([0, 1, 2].map(|n| u32_at(&b, entry(n) + 28)), [32 + 24, 32, 32]);
        assert_eq!([0, 1, 2].map(|n| u32_at(&b, body(n) + 4)), [1, 0x201, 1]);
        assert_eq!(u32_at(&b, body(0) + 32 + 20), 4);
        assert_eq!(b[body(1) + 28..body(1) + 32], [0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(u32_at(&b, body(2) + 24), (64 << 20) / 1024);
    }
}

//! Layouts of files, and what directories ask for, as bytes.

use super::*;
use model::layout::{COMPONENT_EXTENSION, Component, ComponentSpec, EOF, LayoutObject, Pattern};
use model::{Fid, Layout, LayoutSpec};

/// A layout's bytes. Components that have no objects yet tell what is wanted.
pub fn encode(l: &Layout) -> Vec<u8> {
    match l.components.as_slice() {
        [c] if c.end == EOF => striping(c),
        parts => {
            let entry = |c: &Component| Entry {
                id: c.id,
                flags: c.flags,
                range: (c.start, c.end),
                body: striping(c),
            };
            composite(l.generation, &parts.iter().map(entry).collect::<Vec<_>>())
        }
    }
}

/// What a directory asks of new files: entries without ids. A spec that is none is told without components.
pub fn encode_spec(s: &LayoutSpec) -> Vec<u8> {
    let parts = s.components().unwrap_or_default();
    let as_one = ComponentSpec {
        stripe_count: s.stripe_count,
        stripe_size: s.stripe_size,
        stripe_start: s.stripe_start,
        osts: s.osts.clone(),
        pool: s.pool.clone(),
        overstriped: s.is_overstriped(),
        ..ComponentSpec::default()
    };
    let whole = Asked::of(&as_one);
    if parts.is_empty() && s.mdt_bytes().is_none() {
        return whole.bytes();
    }
    let mut entries = Vec::new();
    let mut start = 0;
    if let Some(n) = s.mdt_bytes() {
        let size = u32::try_from(n).unwrap_or(u32::MAX);
        let on_mdt = Asked { pattern: PATTERN_MDT, size, ..Asked::default() };
        entries.push(Entry::asked((0, n), 0, on_mdt.bytes()));
        start = n;
    }
    if parts.is_empty() && s.names_objects() {
        entries.push(Entry::asked((start, EOF), 0, whole.bytes()));
    }
    for c in &parts {
        let asked = Asked::of(c);
        if c.extension_bytes > 0 {
            let step = u32::try_from(c.extension_bytes / EXTENSION_UNIT).unwrap_or(u32::MAX);
            let room = Asked { size: step, count: 0, pattern: PATTERN_RAID0, osts: &[], ..asked };
            entries.push(Entry::asked((start, start), 0, asked.bytes()));
            entries.push(Entry::asked((start, c.end), COMPONENT_EXTENSION, room.bytes()));
        } else {
            entries.push(Entry::asked((start, c.end), 0, asked.bytes()));
        }
        start = c.end;
    }
    composite(0, &entries)
}

/// One component of a composite layout.
struct Entry {
    id: u32,
    flags: u32,
    range: (u64, u64),
    body: Vec<u8>,
}

impl Entry {
    fn asked(range: (u64, u64), flags: u32, body: Vec<u8>) -> Entry {
        Entry { id: 0, flags, range, body }
    }
}

fn composite(generation: u32, entries: &[Entry]) -> Vec<u8> {
    let mut offset = HEADER_BYTES + ENTRY_BYTES * entries.len();
    let size = offset + entries.iter().map(|e| e.body.len()).sum::<usize>();
    let mut out = Vec::with_capacity(size);
    out.extend(MAGIC_COMPOSITE.to_le_bytes());
    out.extend((size as u32).to_le_bytes());
    out.extend(generation.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    out.extend((entries.len() as u16).to_le_bytes());
    // Mirrors but the first: none.
    out.resize(HEADER_BYTES, 0);
    for e in entries {
        out.extend(e.id.to_le_bytes());
        out.extend(e.flags.to_le_bytes());
        out.extend(e.range.0.to_le_bytes());
        out.extend(e.range.1.to_le_bytes());
        out.extend((offset as u32).to_le_bytes());
        out.extend((e.body.len() as u32).to_le_bytes());
        out.extend([0; 16]);
        offset += e.body.len();
    }
    entries.iter().for_each(|e| out.extend(&e.body));
    assert_eq!(out.len(), size, "as long as it says");
    out
}

/// How one component of a file is striped.
fn striping(c: &Component) -> Vec<u8> {
    let wanted = c.wanted().filter(|_| c.objects.is_empty());
    let (size, count) = match &wanted {
        Some(w) if c.is_extension() => (w.extension_bytes / EXTENSION_UNIT, 0),
        // A negative count has 16 bits as well.
        Some(w) => (w.stripe_size, w.stripe_count as u16),
        None => (u64::from(c.stripe_size), c.objects.len() as u16),
    };
    let overstriped = match &wanted {
        Some(w) => w.overstriped && !c.is_extension(),
        None => c.is_overstriped(),
    };
    let pattern = match c.pattern {
        Pattern::Mdt => PATTERN_MDT,
        _ => raid0(overstriped),
    };
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let first = c.objects.first().map_or(Fid::NONE, |o| o.id.origin);
    // In the place of the first OST the layout's generation stood once: who restores a file from this must
    // not take it for one.
    let start = if c.objects.is_empty() { ANY_OST } else { 0 };
    let magic = if c.pool.is_empty() { MAGIC_V1 } else { MAGIC_V3 };
    let mut out = header(magic, pattern, first, size, (count, start));
    if magic == MAGIC_V3 {
        pool(&mut out, &c.pool);
    }
    c.objects.iter().for_each(|o| object(&mut out, o));
    out
}

/// How a component is asked for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    pattern: u32,
    size: u32,
    count: u16,
    start: u16,
    pool: &'a str,
    osts: &'a [u16],
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Asked { pattern: PATTERN_RAID0, size: 0, count: 0, start: ANY_OST, pool: "", osts: &[] }
    }
}

impl Asked<'_> {
    fn of(c: &ComponentSpec) -> Asked<'_> {
        let count = if c.osts.is_empty() { c.stripe_count as u16 } else { c.osts.len() as u16 };
        Asked {
            pattern: raid0(c.overstriped),
            size: u32::try_from(c.stripe_size).unwrap_or(u32::MAX),
            count,
            start: u16::try_from(c.stripe_start).unwrap_or(ANY_OST),
            pool: &c.pool,
            osts: &c.osts,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let magic = match (self.osts, self.pool) {
            ([], "") => MAGIC_V1,
            ([], _) => MAGIC_V3,
            _ => MAGIC_SPECIFIC,
        };
        let mut out = header(magic, self.pattern, Fid::NONE, self.size, (self.count, self.start));
        if magic != MAGIC_V1 {
            pool(&mut out, self.pool);
        }
        for &ost in self.osts {
            ost_entry(&mut out, Fid::NONE, ost);
        }
        out
    }
}

fn header(magic: u32, pattern: u32, first: Fid, size: u32, (count, start): (u16, u16)) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + POOL_BYTES);
    out.extend(magic.to_le_bytes());
    out.extend(pattern.to_le_bytes());
    id(&mut out, first);
    out.extend(size.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(start.to_le_bytes());
    assert_eq!(out.len(), HEADER_BYTES, "as tools expect it");
    out
}

fn raid0(overstriped: bool) -> u32 {
    if overstriped { PATTERN_RAID0 | PATTERN_OVERSTRIPED } else { PATTERN_RAID0 }
}

fn pool(out: &mut Vec<u8>, name: &str) {
    let name = &name.as_bytes()[..name.len().min(POOL_BYTES - 1)];
    out.extend(name);
    out.extend(&[0; POOL_BYTES][name.len()..]);
}

fn id(out: &mut Vec<u8>, f: Fid) {
    out.extend(u64::from(f.oid).to_le_bytes());
    out.extend(f.seq.to_le_bytes());
}

fn object(out: &mut Vec<u8>, o: &LayoutObject) {
    ost_entry(out, o.id.origin, o.ost);
}

fn ost_entry(out: &mut Vec<u8>, of: Fid, ost: u16) {
    id(out, of);
    out.extend(0u32.to_le_bytes());
    out.extend(u32::from(ost).to_le_bytes());
}

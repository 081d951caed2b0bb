//! What bytes of a layout ask for. They are users': read from a file here or on Lustre, perhaps long ago and
//! cut short on the way.

use super::*;
use model::layout::{COMPONENT_EXTENSION, COMPONENT_INIT, ComponentSpec, EOF};
use model::{Errno, LayoutSpec, limits, pool};

/// Entries of a composite layout: each component may have room to grow into behind it, and one more with the
/// inode before all.
const ENTRIES_MAX: usize = 2 * limits::COMPONENTS_MAX + 1;

/// What to ask for. `ERANGE` for bytes that end too early, `EINVAL` for what is no layout or one that cannot
/// be, `EOPNOTSUPP` for mirrors, parity and whatever else is none of this version.
pub fn decode(bytes: &[u8]) -> Result<LayoutSpec, Errno> {
    let spec = match u32_at(bytes, 0)? {
        MAGIC_COMPOSITE => composite(bytes)?,
        _ => whole(&Striping::read(bytes)?)?,
    };
    spec.check()?;
    Ok(spec)
}

fn take<const N: usize>(b: &[u8], at: usize) -> Result<[u8; N], Errno> {
    let rest = b.get(at..).ok_or(Errno::ERANGE)?;
    rest.first_chunk::<N>().copied().ok_or(Errno::ERANGE)
}

fn u16_at(b: &[u8], at: usize) -> Result<u16, Errno> {
    take(b, at).map(u16::from_le_bytes)
}

fn u32_at(b: &[u8], at: usize) -> Result<u32, Errno> {
    take(b, at).map(u32::from_le_bytes)
}

fn u64_at(b: &[u8], at: usize) -> Result<u64, Errno> {
    take(b, at).map(u64::from_le_bytes)
}

/// How a component, or a whole file, is to be striped.
struct Striping {
    is_on_mdt: bool,
    overstriped: bool,
    /// Bytes; of room to grow into in units of [`EXTENSION_UNIT`].
    size: u32,
    count: u16,
    start: u16,
    pool: String,
    osts: Vec<u16>,
}

impl Striping {
    fn read(b: &[u8]) -> Result<Striping, Errno> {
        let (magic, pattern) = (u32_at(b, 0)?, u32_at(b, 4)? & !PATTERN_RELEASED);
        let (size, count, start) = (u32_at(b, 24)?, u16_at(b, 28)?, u16_at(b, 30)?);
        if !matches!(magic, MAGIC_V1 | MAGIC_V3 | MAGIC_SPECIFIC) {
            return Err(Errno::EINVAL);
        }
        if pattern & !(PATTERN_RAID0 | PATTERN_MDT | PATTERN_OVERSTRIPED) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_on_mdt = pattern & PATTERN_MDT != 0;
        if is_on_mdt && pattern != PATTERN_MDT {
            return Err(Errno::EINVAL);
        }
        let mut s = Striping {
            is_on_mdt,
            overstriped: pattern & PATTERN_OVERSTRIPED != 0,
            size,
            count,
            start,
            pool: String::new(),
            osts: Vec::new(),
        };
        if magic != MAGIC_V1 {
            s.pool = pool_name(&take::<POOL_BYTES>(b, HEADER_BYTES)?)?;
        }
        if magic == MAGIC_SPECIFIC {
            if u32::from(count) > limits::STRIPE_COUNT_MAX {
                return Err(Errno::EINVAL);
            }
            let entry = |n: usize| HEADER_BYTES + POOL_BYTES + OBJECT_BYTES * n;
            for n in 0..usize::from(count) {
                let ost = u32_at(b, entry(n) + OBJECT_BYTES - 4)?;
                s.osts.push(u16::try_from(ost).map_err(|_| Errno::EINVAL)?);
            }
        }
        Ok(s)
    }

    /// As a component of objects that ends there.
    fn component(&self, end: u64) -> ComponentSpec {
        let negative = -limits::OVERSTRIPED_PER_OST_MAX;
        // A negative count has 16 bits as well.
        let count = match i32::from(self.count as i16) {
            n if n >= negative && n < 0 => n,
            _ => i32::from(self.count),
        };
        ComponentSpec {
            end,
            stripe_count: if self.osts.is_empty() { count } else { 0 },
            stripe_size: u64::from(self.size),
            stripe_start: if self.start == ANY_OST { -1 } else { i32::from(self.start) },
            osts: self.osts.clone(),
            pool: self.pool.clone(),
            overstriped: self.overstriped,
            extension_bytes: 0,
        }
    }
}

fn pool_name(b: &[u8; POOL_BYTES]) -> Result<String, Errno> {
    let len = b.iter().position(|c| *c == 0).ok_or(Errno::EINVAL)?;
    let name = std::str::from_utf8(&b[..len]).map_err(|_| Errno::EINVAL)?;
    let known = name.is_empty() || name == pool::IGNORE || pool::name_is_valid(name);
    if known { Ok(name.to_string()) } else { Err(Errno::EINVAL) }
}

/// A file of one component.
fn whole(s: &Striping) -> Result<LayoutSpec, Errno> {
    if s.is_on_mdt {
        let mut spec = LayoutSpec::default();
        spec.set_mdt_bytes(u64::from(s.size));
        return Ok(spec);
    }
    let mut c = s.component(EOF);
    // Of a file that has its objects 0 stands here, whatever its first OST.
    if c.stripe_start == 0 {
        c.stripe_start = -1;
    }
    Ok(c.as_spec())
}

fn composite(b: &[u8]) -> Result<LayoutSpec, Errno> {
    let (size, entries, mirrors) = (u32_at(b, 4)? as usize, u16_at(b, 14)?, u16_at(b, 16)?);
    let b = b.get(..size).ok_or(Errno::ERANGE)?;
    if mirrors > 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if entries == 0 || usize::from(entries) > ENTRIES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut out = LayoutSpec::default();
    let mut parts: Vec<ComponentSpec> = Vec::new();
    let mut at = 0;
    // The last component holds nothing: only room to grow into may follow.
    let mut is_empty = false;
    for n in 0..usize::from(entries) {
        let e = Entry::read(b, HEADER_BYTES + ENTRY_BYTES * n)?;
        let holds = e.start < e.end;
        if e.start != at || e.end < e.start || (is_empty && !e.is_extension) {
            return Err(Errno::EINVAL);
        }
        at = e.end;
        if e.is_extension {
            let step = u64::from(e.striping.size) * EXTENSION_UNIT;
            let grows = parts.last_mut().filter(|c| c.extension_bytes == 0 && holds && step > 0);
            let grows = grows.ok_or(Errno::EINVAL)?;
            (grows.end, grows.extension_bytes) = (e.end, step);
        } else if e.striping.is_on_mdt {
            if n > 0 {
                return Err(Errno::EINVAL);
            }
            out.set_mdt_bytes(e.end);
        } else {
            parts.push(e.striping.component(e.end));
        }
        is_empty = !holds;
    }
    if is_empty {
        return Err(Errno::EINVAL);
    }
    assert!(at > 0, "the last component ends behind a byte");
    match parts.as_slice() {
        [one] if one.end == EOF && one.extension_bytes == 0 => {
            let on_mdt = out.mdt_bytes();
            out = one.as_spec();
            on_mdt.into_iter().for_each(|n| out.set_mdt_bytes(n));
        }
        parts => out.set_components(parts),
    }
    Ok(out)
}

/// One component of a composite layout.
struct Entry {
    is_extension: bool,
    start: u64,
    end: u64,
    striping: Striping,
}

impl Entry {
    fn read(b: &[u8], at: usize) -> Result<Entry, Errno> {
        let (id, flags) = (u32_at(b, at)?, u32_at(b, at + 4)?);
        let (offset, size) = (u32_at(b, at + 32 - 8)? as usize, u32_at(b, at + 32 - 4)? as usize);
        // The upper half of an id is the mirror's.
        if id >> 16 != 0 && !is_of_a_file_without_data(id) {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = offset.checked_add(size).ok_or(Errno::ERANGE)?;
        let mut striping = Striping::read(b.get(offset..end).ok_or(Errno::ERANGE)?)?;
        // Where it lies, or a generation: nothing that somebody asked for.
        if flags & COMPONENT_INIT != 0 {
            striping.start = ANY_OST;
        }
        Ok(Entry {
            is_extension: flags & COMPONENT_EXTENSION != 0,
            start: u64_at(b, at + 8)?,
            end: u64_at(b, at + 16)?,
            striping,
        })
    }
}

/// Whether an id is one that a metadata server here gives to the first component of a file that had no data
/// when it got its objects: the highest bit, and a small number.
fn is_of_a_file_without_data(id: u32) -> bool {
    id & 1 << 31 != 0
}

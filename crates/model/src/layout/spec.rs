//! What a user asks for with `lfs setstripe`, and what a directory or the file system has as its default.

use super::EOF;
use crate::{Errno, limits};
use serde::{Deserialize, Serialize};

/// What is asked for of a file's layout. Zero (count, size) and −1 (start) mean "as inherited".
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutSpec {
    /// −1: all usable OSTs; 0: inherited.
    pub stripe_count: i32,
    /// Bytes; 0: inherited.
    pub stripe_size: u64,
    /// First OST; −1: the server chooses.
    pub stripe_start: i32,
    /// Exact OSTs in order; empty: the server chooses.
    pub osts: Vec<u16>,
    pub pool: String,
    /// Tagged values: [`LayoutSpec::mdt_bytes`], [`LayoutSpec::components`], [`LayoutSpec::is_overstriped`]
    /// and those of later versions, which are kept as they are.
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// Tag in [`LayoutSpec::extra`]: bytes of a file that are to lie with its inode (u64, little-endian).
const SPEC_MDT_BYTES: u16 = 1;
/// Tag in [`LayoutSpec::extra`], once for each component in their order: [`ComponentSpec::encode`].
const SPEC_COMPONENT: u16 = 2;
/// Tag in [`LayoutSpec::extra`]: an OST may get several objects.
const SPEC_OVERSTRIPED: u16 = 3;
/// Tag in [`LayoutSpec::extra`]: the OSTs that it names were chosen for the user, not by him.
const SPEC_PLACED: u16 = 4;

/// What is asked for of one component. What it leaves open is as in the one before it, of the first one as in
/// the rest of its [`LayoutSpec`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComponentSpec {
    /// Where it ends in the file, exclusive; [`EOF`]: with the file.
    pub end: u64,
    /// −1: all usable OSTs; 0: as before.
    pub stripe_count: i32,
    /// Bytes; 0: as before.
    pub stripe_size: u64,
    /// First OST; −1: the server chooses.
    pub stripe_start: i32,
    /// Exact OSTs in order; empty: the server chooses.
    pub osts: Vec<u16>,
    pub pool: String,
    /// An OST may get several objects; with a negative count −n, n for each.
    pub overstriped: bool,
    /// `-z`: it begins with so many bytes and grows by as many at a time, up to its end, while its OSTs have
    /// room; 0: it has all of its range from the beginning.
    pub extension_bytes: u64,
}

/// Components of a file for which nothing is said: where each ends, and on how many OSTs it lies at most.
pub const BUILTIN_COMPONENTS: &[(u64, i32)] = &[(1 << 30, 1), (32 << 30, 4), (EOF, 16)];

/// First byte of an encoded [`ComponentSpec`].
const COMPONENT_SPEC_VERSION: u8 = 1;
const OVERSTRIPED: u8 = 1;

impl Default for ComponentSpec {
    fn default() -> ComponentSpec {
        ComponentSpec {
            end: EOF,
            stripe_count: 0,
            stripe_size: 0,
            stripe_start: -1,
            osts: Vec::new(),
            pool: String::new(),
            overstriped: false,
            extension_bytes: 0,
        }
    }
}

impl ComponentSpec {
    /// Version u8, flags u8, end u64, extension u64, stripe size u64, count i32, start i32, length of the
    /// pool's name u8, the name, OSTs u16 each; little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![COMPONENT_SPEC_VERSION, if self.overstriped { OVERSTRIPED } else { 0 }];
        b.extend(self.end.to_le_bytes());
        b.extend(self.extension_bytes.to_le_bytes());
        b.extend(self.stripe_size.to_le_bytes());
        b.extend(self.stripe_count.to_le_bytes());
        b.extend(self.stripe_start.to_le_bytes());
        let pool = &self.pool.as_bytes()[..self.pool.len().min(limits::POOL_NAME_MAX_BYTES)];
        b.push(pool.len() as u8);
        b.extend(pool);
        b.extend(self.osts.iter().flat_map(|o| o.to_le_bytes()));
        b
    }

    /// `None` for bytes that are none, or of a later version.
    pub fn decode(bytes: &[u8]) -> Option<ComponentSpec> {
        fn take<const N: usize>(b: &mut &[u8]) -> Option<[u8; N]> {
            let (first, rest) = b.split_first_chunk::<N>()?;
            *b = rest;
            Some(*first)
        }
        let mut b = bytes;
        let [version, flags] = take(&mut b)?;
        if version != COMPONENT_SPEC_VERSION || flags & !OVERSTRIPED != 0 {
            return None;
        }
        let (end, extension_bytes) = (u64::from_le_bytes(take(&mut b)?), u64::from_le_bytes(take(&mut b)?));
        let stripe_size = u64::from_le_bytes(take(&mut b)?);
        let (stripe_count, stripe_start) =
            (i32::from_le_bytes(take(&mut b)?), i32::from_le_bytes(take(&mut b)?));
        let [len] = take(&mut b)?;
        let (pool, osts) = b.split_at_checked(len as usize)?;
        if !osts.len().is_multiple_of(2) {
            return None;
        }
        let osts = osts.chunks_exact(2).map(|o| u16::from_le_bytes([o[0], o[1]])).collect();
        let pool = String::from_utf8(pool.to_vec()).ok()?;
        let overstriped = flags & OVERSTRIPED != 0;
        Some(ComponentSpec {
            end,
            stripe_count,
            stripe_size,
            stripe_start,
            osts,
            pool,
            overstriped,
            extension_bytes,
        })
    }

    /// What the allocator is asked for.
    pub fn as_spec(&self) -> LayoutSpec {
        let mut s = LayoutSpec {
            stripe_count: self.stripe_count,
            stripe_size: self.stripe_size,
            stripe_start: self.stripe_start,
            osts: self.osts.clone(),
            pool: self.pool.clone(),
            extra: Vec::new(),
        };
        s.set_overstriped(self.overstriped);
        s
    }

    /// Fields that are not given here are as in `before`. An OST list, or a first OST, is one component's.
    fn follow(&mut self, before: &ComponentSpec) {
        if self.stripe_count == 0 && self.osts.is_empty() {
            (self.stripe_count, self.overstriped) = (before.stripe_count, before.overstriped);
        }
        if self.stripe_size == 0 {
            self.stripe_size = before.stripe_size;
        }
        if self.pool.is_empty() {
            self.pool.clone_from(&before.pool);
        }
    }
}

impl Default for LayoutSpec {
    fn default() -> LayoutSpec {
        LayoutSpec {
            stripe_count: 0,
            stripe_size: 0,
            stripe_start: -1,
            osts: Vec::new(),
            pool: String::new(),
            extra: Vec::new(),
        }
    }
}

impl LayoutSpec {
    /// What a file gets when nothing else is said: stripes of 4 MiB, on one object as far as 1 GiB, on more
    /// the larger it is ([`BUILTIN_COMPONENTS`]), so that small files cost one object and large ones have the
    /// speed of many.
    pub fn builtin() -> LayoutSpec {
        let mut spec = LayoutSpec {
            stripe_count: limits::STRIPE_COUNT_DEFAULT,
            stripe_size: limits::STRIPE_SIZE_DEFAULT_BYTES,
            ..LayoutSpec::default()
        };
        let part = |&(end, stripe_count): &(u64, i32)| ComponentSpec {
            end,
            stripe_count,
            ..ComponentSpec::default()
        };
        spec.set_components(&BUILTIN_COMPONENTS.iter().map(part).collect::<Vec<_>>());
        spec
    }

    /// `-L mdt`: so many bytes of a file lie with its inode before it grows onto what the rest says. `None`
    /// if nothing is said.
    pub fn mdt_bytes(&self) -> Option<u64> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == SPEC_MDT_BYTES)?;
        Some(u64::from_le_bytes(v.as_slice().try_into().ok()?))
    }

    pub fn set_mdt_bytes(&mut self, n: u64) {
        self.extra.retain(|(tag, _)| *tag != SPEC_MDT_BYTES);
        self.extra.push((SPEC_MDT_BYTES, n.to_le_bytes().to_vec()));
    }

    /// `-C`: an OST may get several objects; with a negative count −n, n for each.
    pub fn is_overstriped(&self) -> bool {
        self.extra.iter().any(|(tag, _)| *tag == SPEC_OVERSTRIPED)
    }

    pub fn set_overstriped(&mut self, yes: bool) {
        self.extra.retain(|(tag, _)| *tag != SPEC_OVERSTRIPED);
        if yes {
            self.extra.push((SPEC_OVERSTRIPED, Vec::new()));
        }
    }

    /// Whether components are asked for.
    pub fn is_composite(&self) -> bool {
        self.extra.iter().any(|(tag, _)| *tag == SPEC_COMPONENT)
    }

    /// The components that are asked for, as they are written; none of a plain layout. `EINVAL` for what is
    /// no component.
    pub fn components(&self) -> Result<Vec<ComponentSpec>, Errno> {
        let of = self.extra.iter().filter(|(tag, _)| *tag == SPEC_COMPONENT);
        of.map(|(_, v)| ComponentSpec::decode(v).ok_or(Errno::EINVAL)).collect()
    }

    pub fn set_components(&mut self, components: &[ComponentSpec]) {
        self.extra.retain(|(tag, _)| *tag != SPEC_COMPONENT);
        self.extra.extend(components.iter().map(|c| (SPEC_COMPONENT, c.encode())));
    }

    /// The components with what each takes from the one before, the first from the rest of this. Of a spec to
    /// which nothing is inherited any more nothing is left open.
    pub fn full_components(&self) -> Result<Vec<ComponentSpec>, Errno> {
        let mut before = ComponentSpec {
            end: 0,
            stripe_count: self.stripe_count,
            stripe_size: self.stripe_size,
            pool: self.pool.clone(),
            overstriped: self.is_overstriped(),
            ..ComponentSpec::default()
        };
        let mut out = self.components()?;
        for c in &mut out {
            c.follow(&before);
            before = c.clone();
        }
        Ok(out)
    }

    /// The OSTs that it names are where a server, or who acts for it, puts a file that is bound to none.
    pub fn is_placed_by_server(&self) -> bool {
        self.extra.iter().any(|(tag, _)| *tag == SPEC_PLACED)
    }

    pub fn set_placed_by_server(&mut self) {
        if !self.is_placed_by_server() {
            self.extra.push((SPEC_PLACED, Vec::new()));
        }
    }

    /// Somebody says on which OSTs objects are to lie, or on which the first of them.
    pub fn names_osts(&self) -> bool {
        (!self.osts.is_empty() || self.stripe_start >= 0) && !self.is_placed_by_server()
    }

    /// Says something about objects (how many, how large, where) rather than leaving it to the defaults.
    pub fn names_objects(&self) -> bool {
        self.stripe_count != 0
            || self.stripe_size != 0
            || self.stripe_start != -1
            || !self.osts.is_empty()
            || !self.pool.is_empty()
            || self.is_composite()
    }

    /// Fields not given here are taken from `parent`.
    pub fn inherit(mut self, parent: &LayoutSpec) -> LayoutSpec {
        // Who asks for objects gets them at once, and as one component, whatever the parent says of data on
        // the MDT and of components.
        if !self.names_objects() {
            if self.mdt_bytes().is_none()
                && let Some(n) = parent.mdt_bytes()
            {
                self.set_mdt_bytes(n);
            }
            let components = parent.extra.iter().filter(|(tag, _)| *tag == SPEC_COMPONENT);
            self.extra.extend(components.cloned());
        }
        if self.stripe_count == 0 && self.osts.is_empty() {
            self.stripe_count = parent.stripe_count;
            self.set_overstriped(parent.is_overstriped());
        }
        if self.stripe_size == 0 {
            self.stripe_size = parent.stripe_size;
        }
        // Where the parent's pool is says nothing of another one.
        let same_pool = self.pool.is_empty() || self.pool == parent.pool;
        if self.osts.is_empty() && self.stripe_start == -1 && same_pool {
            self.stripe_start = parent.stripe_start;
            if self.stripe_count == parent.stripe_count {
                self.osts.clone_from(&parent.osts);
            }
        }
        if self.pool.is_empty() {
            self.pool.clone_from(&parent.pool);
        }
        self
    }

    /// `EINVAL` for settings that no file system could satisfy.
    pub fn check(&self) -> Result<(), Errno> {
        let overstriped = self.is_overstriped();
        check_striping(
            (self.stripe_count, self.stripe_size, self.stripe_start),
            &self.osts,
            &self.pool,
            overstriped,
        )?;
        let mdt_ok = self.mdt_bytes().is_none_or(|n| {
            n > 0 && n.is_multiple_of(limits::STRIPE_SIZE_MIN_BYTES) && n <= limits::MDT_DATA_MAX_BYTES
        });
        if !mdt_ok {
            return Err(Errno::EINVAL);
        }
        check_components(self.mdt_bytes().unwrap_or(0), &self.components()?)
    }
}

/// Components in order, each with an end behind the one before it.
fn check_components(mut start: u64, components: &[ComponentSpec]) -> Result<(), Errno> {
    if components.len() > limits::COMPONENTS_MAX {
        return Err(Errno::EINVAL);
    }
    let unit = limits::STRIPE_SIZE_MIN_BYTES;
    for c in components {
        check_striping((c.stripe_count, c.stripe_size, c.stripe_start), &c.osts, &c.pool, c.overstriped)?;
        let end_ok = c.end > start && (c.end == EOF || c.end.is_multiple_of(unit));
        if !end_ok || !c.extension_bytes.is_multiple_of(unit) {
            return Err(Errno::EINVAL);
        }
        start = c.end;
    }
    Ok(())
}

fn check_striping(
    (count, size, start): (i32, u64, i32),
    osts: &[u16],
    pool: &str,
    overstriped: bool,
) -> Result<(), Errno> {
    let size_ok = size == 0
        || (size.is_multiple_of(limits::STRIPE_SIZE_MIN_BYTES) && size <= limits::STRIPE_SIZE_MAX_BYTES);
    let least = if overstriped { -limits::OVERSTRIPED_PER_OST_MAX } else { -1 };
    let count_ok = (least..=limits::STRIPE_COUNT_MAX as i32).contains(&count);
    let start_ok = start >= -1 && start <= limits::OST_INDEX_MAX as i32;
    let mut sorted = osts.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let osts_ok = (overstriped || sorted.len() == osts.len())
        && osts.len() <= limits::STRIPE_COUNT_MAX as usize
        && (osts.is_empty()
            || ((count <= 0 || count as usize == osts.len())
                && (start == -1 || osts.contains(&(start as u16)))));
    let ok = size_ok && count_ok && start_ok && osts_ok && pool.len() <= limits::POOL_NAME_MAX_BYTES;
    if ok { Ok(()) } else { Err(Errno::EINVAL) }
}

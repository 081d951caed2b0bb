//! Where a file's bytes lie: components, stripes, objects (design.md §4, §8).
//!
//! Today's files have one component that reaches to the end: `Mdt` while they are small, `Raid0` otherwise;
//! the stored form already has several components, mirrors and parity (see `docs/formats/layout.md`).

use crate::planted::{self, Bug};
use crate::{Errno, Fid, ObjectId, TargetMark, limits};
use serde::{Deserialize, Serialize};

/// End of file as a component's end.
pub const EOF: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Pattern {
    Raid0,
    /// Data with the inode, on the MDT: up to `stripe_size` bytes, without objects.
    Mdt,
    Parity {
        data: u8,
        parity: u8,
    },
}

/// One data object of a component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutObject {
    /// Index of the OST.
    pub ost: u16,
    pub id: ObjectId,
}

/// A byte range of the file and the objects that hold it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Component {
    /// Never reused within a file; 1 for the first.
    pub id: u32,
    pub mirror: u16,
    /// LCME_FL_* bits of Lustre (stale 1, prefrd 2, prefwr 4, offline 8, init 0x10, nosync 0x20, …).
    pub flags: u32,
    /// Absolute file offsets `start..end`; `end` may be [`EOF`].
    pub start: u64,
    pub end: u64,
    pub pattern: Pattern,
    /// Bytes.
    pub stripe_size: u32,
    pub pool: String,
    /// One per stripe, in stripe order; empty while the component is not instantiated.
    pub objects: Vec<LayoutObject>,
    /// Unknown extensions of later versions: kept as they are.
    pub extra: Vec<(u16, Vec<u8>)>,
}

pub const COMPONENT_INIT: u32 = 0x10;

/// The layout of one regular file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// Grows with each change of the layout; data requests carry it.
    pub generation: u32,
    pub flags: u32,
    pub components: Vec<Component>,
}

/// A piece of a file range that lies contiguously in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Index into the component's `objects`.
    pub stripe: usize,
    pub object: LayoutObject,
    pub object_offset: u64,
    pub file_offset: u64,
    pub len: u64,
}

impl Component {
    /// Stores that the bytes are spread over: data with the inode counts as one.
    pub fn stripes(&self) -> usize {
        if self.pattern == Pattern::Mdt { 1 } else { self.objects.len() }
    }

    fn width(&self) -> u64 {
        u64::from(self.stripe_size) * self.stripes() as u64
    }

    /// RAID0: stripe number = (off / ssize) mod count; object offset = (off / (ssize·count))·ssize + off mod
    /// ssize.
    fn place(&self, off: u64) -> (usize, u64) {
        let ss = u64::from(self.stripe_size);
        let stripe = (off / ss) % self.stripes() as u64;
        let wrong = stripe == 1 && planted::on(Bug::WrongStripe);
        (stripe as usize, (off / self.width()) * ss + off % ss + if wrong { 4096 } else { 0 })
    }

    /// File offset of byte `off` of the object of stripe `stripe`: the inverse of the mapping above.
    pub fn file_offset(&self, stripe: usize, off: u64) -> u64 {
        let ss = u64::from(self.stripe_size);
        (off / ss) * self.width() + stripe as u64 * ss + off % ss
    }

    /// Size the file has if the object of `stripe` holds `object_size` bytes (0 for an empty object).
    pub fn file_size_from(&self, stripe: usize, object_size: u64) -> u64 {
        if object_size == 0 { 0 } else { self.file_offset(stripe, object_size - 1).saturating_add(1) }
    }

    /// Size that the object of `stripe` has when the file is cut to `file_size` bytes.
    pub fn object_size_for(&self, stripe: usize, file_size: u64) -> u64 {
        let ss = u64::from(self.stripe_size);
        let (full, rest) = (file_size / self.width(), file_size % self.width());
        full * ss + rest.saturating_sub(stripe as u64 * ss).min(ss)
    }
}

impl Layout {
    /// A plain striped layout of one component.
    pub fn plain(fid: Fid, stripe_size: u32, pool: &str, osts: &[u16]) -> Layout {
        Layout::striped((fid, 1), 0, stripe_size, pool, osts)
    }

    /// Data with the inode, as long as the file has at most `size` bytes.
    pub fn on_mdt(size: u32) -> Layout {
        assert!(size > 0, "room for data");
        Layout::of_one(0, Layout::whole_file(1, Pattern::Mdt, size, "", Vec::new()))
    }

    /// What the layout of a file becomes whose data goes to new objects: of a component that was never there
    /// before, one generation later.
    pub fn moved(&self, (fid, component): (Fid, u32), stripe_size: u32, pool: &str, osts: &[u16]) -> Layout {
        assert!(
            component > 1 && self.components.iter().all(|c| c.id != component),
            "component ids are never reused"
        );
        Layout::striped((fid, component), self.generation + 1, stripe_size, pool, osts)
    }

    /// The objects' ids say for which targets they are: `mark` of each index, if it is known.
    pub fn marked(mut self, mark: impl Fn(u16) -> TargetMark) -> Layout {
        for o in self.components.iter_mut().flat_map(|c| &mut c.objects) {
            o.id = o.id.marked(mark(o.ost));
        }
        self
    }

    fn striped(
        (fid, component): (Fid, u32),
        generation: u32,
        stripe_size: u32,
        pool: &str,
        osts: &[u16],
    ) -> Layout {
        assert!(!osts.is_empty() && stripe_size > 0, "a layout needs objects");
        let objects = osts
            .iter()
            .enumerate()
            .map(|(i, &ost)| LayoutObject { ost, id: ObjectId { origin: fid, component, stripe: i as u32 } })
            .collect();
        Layout::of_one(generation, Layout::whole_file(component, Pattern::Raid0, stripe_size, pool, objects))
    }

    fn of_one(generation: u32, c: Component) -> Layout {
        Layout { generation, flags: 0, components: vec![c] }
    }

    fn whole_file(
        id: u32,
        pattern: Pattern,
        stripe_size: u32,
        pool: &str,
        objects: Vec<LayoutObject>,
    ) -> Component {
        Component {
            id,
            mirror: 0,
            flags: COMPONENT_INIT,
            start: 0,
            end: EOF,
            pattern,
            stripe_size,
            pool: pool.to_string(),
            objects,
            extra: Vec::new(),
        }
    }

    /// The component of a file whose data lies with its inode.
    pub fn mdt_component(&self) -> Option<&Component> {
        match self.components.as_slice() {
            [c] if c.pattern == Pattern::Mdt => Some(c),
            _ => None,
        }
    }

    /// Bytes that may lie with the inode; `None` if the file's data does not.
    pub fn data_room(&self) -> Option<u64> {
        self.mdt_component().map(|c| u64::from(c.stripe_size))
    }

    /// The single component of a plain layout.
    pub fn component(&self) -> &Component {
        &self.components[0]
    }

    pub fn stripe_count(&self) -> usize {
        self.components.iter().map(|c| c.objects.len()).max().unwrap_or(0)
    }

    pub fn objects(&self) -> impl Iterator<Item = &LayoutObject> {
        self.components.iter().flat_map(|c| c.objects.iter())
    }

    /// The pieces of `off..off+len`, in file order, one for each run within a stripe.
    pub fn extents(&self, off: u64, len: u64) -> Vec<Extent> {
        let mut out = Vec::new();
        let end = off.saturating_add(len);
        let mut pos = off;
        while pos < end {
            let Some(c) =
                self.components.iter().find(|c| c.start <= pos && pos < c.end && !c.objects.is_empty())
            else {
                break;
            };
            let (stripe, object_offset) = c.place(pos);
            let ss = u64::from(c.stripe_size);
            let stop = if c.objects.len() == 1 { end } else { (pos / ss + 1).saturating_mul(ss) };
            let stop = stop.min(end).min(c.end);
            assert!(stop > pos, "each piece of a range has bytes");
            out.push(Extent {
                stripe,
                object: c.objects[stripe],
                object_offset,
                file_offset: pos,
                len: stop - pos,
            });
            pos = stop;
        }
        out
    }
}

/// What a user asks for with `lfs setstripe`, and what a directory or the file system has as its default.
/// Zero (count, size) and −1 (start) mean "as inherited".
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
    /// Tagged values: [`LayoutSpec::mdt_bytes`] and those of later versions, which are kept as they are.
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// Tag in [`LayoutSpec::extra`]: bytes of a file that are to lie with its inode (u64, little-endian).
const SPEC_MDT_BYTES: u16 = 1;

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
    /// The values that a file gets when nothing else is said: 1 stripe of 4 MiB.
    pub fn builtin() -> LayoutSpec {
        LayoutSpec {
            stripe_count: limits::STRIPE_COUNT_DEFAULT,
            stripe_size: limits::STRIPE_SIZE_DEFAULT_BYTES,
            ..LayoutSpec::default()
        }
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

    /// Says something about objects (how many, how large, where) rather than leaving it to the defaults.
    pub fn names_objects(&self) -> bool {
        self.stripe_count != 0
            || self.stripe_size != 0
            || self.stripe_start != -1
            || !self.osts.is_empty()
            || !self.pool.is_empty()
    }

    /// Fields not given here are taken from `parent`.
    pub fn inherit(mut self, parent: &LayoutSpec) -> LayoutSpec {
        // Who asks for objects gets them at once, whatever the parent says of data on the MDT.
        if self.mdt_bytes().is_none()
            && !self.names_objects()
            && let Some(n) = parent.mdt_bytes()
        {
            self.set_mdt_bytes(n);
        }
        if self.stripe_count == 0 && self.osts.is_empty() {
            self.stripe_count = parent.stripe_count;
        }
        if self.stripe_size == 0 {
            self.stripe_size = parent.stripe_size;
        }
        if self.osts.is_empty() && self.stripe_start == -1 {
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
        let size_ok = self.stripe_size == 0
            || (self.stripe_size.is_multiple_of(limits::STRIPE_SIZE_MIN_BYTES)
                && self.stripe_size <= limits::STRIPE_SIZE_MAX_BYTES);
        let count_ok = self.stripe_count >= -1 && self.stripe_count <= limits::STRIPE_COUNT_MAX as i32;
        let start_ok = self.stripe_start >= -1 && self.stripe_start <= limits::OST_INDEX_MAX as i32;
        let mut sorted = self.osts.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let osts_ok = sorted.len() == self.osts.len()
            && self.osts.len() <= limits::STRIPE_COUNT_MAX as usize
            && (self.osts.is_empty()
                || ((self.stripe_count <= 0 || self.stripe_count as usize == self.osts.len())
                    && (self.stripe_start == -1 || self.osts.contains(&(self.stripe_start as u16)))));
        let pool_ok = self.pool.len() <= limits::POOL_NAME_MAX_BYTES;
        let mdt_ok = self.mdt_bytes().is_none_or(|n| {
            n > 0 && n.is_multiple_of(limits::STRIPE_SIZE_MIN_BYTES) && n <= limits::MDT_DATA_MAX_BYTES
        });
        let ok = size_ok && count_ok && start_ok && osts_ok && pool_ok && mdt_ok;
        if ok { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(count: u16, ss: u32) -> Layout {
        Layout::plain(Fid::new(1, 2, 0), ss, "", &(0..count).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn extents_cover_the_range_and_map_back(count in 1u16..9, off in 0u64..50_000_000, len in 1u64..5_000_000) {
            let l = layout(count, 65536);
            let c = l.component();
            let mut pos = off;
            for e in l.extents(off, len) {
                prop_assert_eq!(e.file_offset, pos);
                prop_assert_eq!(c.file_offset(e.stripe, e.object_offset), pos);
                prop_assert_eq!(c.file_offset(e.stripe, e.object_offset + e.len - 1), pos + e.len - 1);
                pos += e.len;
            }
            prop_assert_eq!(pos, off + len);
        }

        #[test]
        fn cutting_objects_gives_the_file_size_back(count in 1u16..9, size in 0u64..50_000_000) {
            let l = layout(count, 65536);
            let c = l.component();
            let got = (0..count as usize).map(|s| c.file_size_from(s, c.object_size_for(s, size))).max().unwrap();
            prop_assert_eq!(got, size);
        }
    }

    #[test]
    fn data_on_the_mdt_maps_to_itself_and_grows_into_a_new_component() {
        let l = Layout::on_mdt(65536);
        let c = l.mdt_component().unwrap();
        assert_eq!((c.stripes(), l.stripe_count()), (1, 0));
        assert_eq!(
            (c.object_size_for(0, 99), c.file_size_from(0, 99), c.file_offset(0, 70_000)),
            (99, 99, 70_000)
        );
        let g = l.moved((Fid::new(1, 2, 0), 2), 1 << 20, "", &[3, 1]);
        assert_eq!((g.generation, g.component().id, g.stripe_count()), (1, 2, 2));
        assert!(g.objects().all(|o| o.id.component == 2) && g.mdt_component().is_none());
    }

    #[test]
    fn data_on_the_mdt_is_inherited_by_those_who_ask_for_nothing() {
        let mut dir = LayoutSpec { stripe_count: 2, ..LayoutSpec::default() };
        dir.set_mdt_bytes(131_072);
        let file = LayoutSpec::default().inherit(&dir);
        assert_eq!((file.mdt_bytes(), file.stripe_count), (Some(131_072), 2));
        let striped = LayoutSpec { stripe_size: 65536, ..LayoutSpec::default() }.inherit(&dir);
        assert_eq!((striped.mdt_bytes(), striped.stripe_count), (None, 2));
        for bad in [0, 65537, limits::MDT_DATA_MAX_BYTES + 65536] {
            dir.set_mdt_bytes(bad);
            assert_eq!(dir.check(), Err(Errno::EINVAL), "{bad}");
        }
    }

    #[test]
    fn impossible_settings_are_refused() {
        let ok = LayoutSpec { stripe_count: 2, osts: vec![3, 1], ..LayoutSpec::default() };
        assert!(ok.check().is_ok());
        for bad in [
            LayoutSpec { stripe_size: 65537, ..LayoutSpec::default() },
            LayoutSpec { stripe_size: 1 << 32, ..LayoutSpec::default() },
            LayoutSpec { stripe_count: 2001, ..LayoutSpec::default() },
            LayoutSpec { stripe_count: -2, ..LayoutSpec::default() },
            LayoutSpec { osts: vec![1, 1], ..LayoutSpec::default() },
            LayoutSpec { stripe_count: 3, osts: vec![1, 2], ..LayoutSpec::default() },
            LayoutSpec { stripe_start: 5, osts: vec![1, 2], ..LayoutSpec::default() },
        ] {
            assert_eq!(bad.check(), Err(Errno::EINVAL), "{bad:?}");
        }
    }
}

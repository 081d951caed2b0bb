//! Where a file's bytes lie: components, stripes, objects (design.md §4, §8).
//!
//! A file that nobody asked objects for begins with one component of pattern `Mdt`; a plain striped one has
//! one of `Raid0` that reaches to the end. A composite one has several, one behind the other; the first has
//! its objects from the beginning, each other one when somebody writes there first (decision 0056). The
//! stored form has mirrors and parity as well (see `docs/formats/layout.md`).

mod change;
mod component;
mod label;
mod spec;

pub use change::{COMPONENT_USER_FLAGS, ComponentChange, ComponentFilter};
pub use component::{
    COMPONENT_EXTENSION, COMPONENT_FLAGS, COMPONENT_INIT, COMPONENT_NOSYNC, COMPONENT_OFFLINE,
    COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE, COMPONENT_STALE, Component, component_flag,
};
pub use label::{Joined, LABEL_MAX_BYTES, LABELLED_OBJECTS_MAX, ObjectLabel};
pub use spec::{BUILTIN_COMPONENTS, ComponentSpec, LayoutSpec};

use crate::{Errno, Fid, ObjectId, TargetMark};
use component::objects_of;
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

/// The layout of one regular file. Its objects are numbered through all components, in the order of the
/// layout.
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
    /// Number of the object among the layout's.
    pub number: usize,
    pub object: LayoutObject,
    pub object_offset: u64,
    pub file_offset: u64,
    pub len: u64,
}

impl Layout {
    /// A plain striped layout of one component.
    pub fn plain(fid: Fid, stripe_size: u32, pool: &str, osts: &[u16]) -> Layout {
        Layout::striped((fid, 1), 0, stripe_size, pool, osts)
    }

    /// Data with the inode, as long as the file has at most `size` bytes.
    pub fn on_mdt(size: u32) -> Layout {
        assert!(size > 0, "room for data");
        Layout::of_one(0, Component::whole_file(1, Pattern::Mdt, size, "", Vec::new()))
    }

    /// The same, its components numbered from `first` on.
    pub fn numbered(mut self, first: u32) -> Layout {
        assert!(first > 0, "ids of components begin with 1");
        self.components.iter_mut().zip(first..).for_each(|(c, id)| c.id = id);
        self
    }

    /// One striped component that reaches to the end.
    pub fn striped(
        (fid, component): (Fid, u32),
        generation: u32,
        stripe_size: u32,
        pool: &str,
        osts: &[u16],
    ) -> Layout {
        assert!(!osts.is_empty() && stripe_size > 0, "a layout needs objects");
        let objects = objects_of(fid, component, osts);
        Layout::of_one(
            generation,
            Component::whole_file(component, Pattern::Raid0, stripe_size, pool, objects),
        )
    }

    fn of_one(generation: u32, c: Component) -> Layout {
        Layout { generation, flags: 0, components: vec![c] }
    }

    /// Components as `specs` have them, to which nothing is inherited any more: one behind the other, with
    /// ids from `first_id` on, none with objects yet.
    pub fn composite(first_id: u32, generation: u32, specs: &[ComponentSpec]) -> Layout {
        assert!(first_id > 0 && !specs.is_empty(), "a composite layout has components with ids");
        let mut l = Layout { generation, flags: 0, components: Vec::new() };
        l.add(first_id, 0, specs);
        l
    }

    fn add(&mut self, mut id: u32, mut start: u64, specs: &[ComponentSpec]) {
        for spec in specs {
            assert!(start < spec.end, "components lie one behind the other");
            let end = match spec.extension_bytes {
                0 => spec.end,
                // The first one has objects from the beginning.
                n if start == 0 => n.min(spec.end),
                _ => start,
            };
            self.components.push(Component::bare(id, (start, end), spec));
            id += 1;
            if end < spec.end {
                self.components.push(Component::extension(id, (end, spec.end), spec));
                id += 1;
            }
            start = spec.end;
        }
    }

    /// Component `n` of file `fid` gets its objects, on OSTs of a pool.
    pub fn instantiate(&mut self, n: usize, fid: Fid, (pool, osts): (&str, &[u16])) {
        self.components[n].instantiate(fid, pool, osts);
    }

    /// The component before `n`, which is room for it, grows by so many bytes.
    pub fn grow(&mut self, n: usize, by: u64) {
        let room = &mut self.components[n];
        assert!(room.is_extension() && by <= room.end - room.start, "it grows within its room");
        room.start += by;
        let (start, is_used_up) = (room.start, room.start == room.end);
        let grows = &mut self.components[n - 1];
        assert!(!grows.is_extension() && grows.end + by == start, "what grows lies before its room");
        grows.end = start;
        if is_used_up {
            self.components.remove(n);
        }
    }

    /// The component behind `n`, which is room for the one before, takes that range.
    pub fn spill(&mut self, n: usize) {
        let room = self.components.remove(n);
        assert!(room.is_extension(), "only room to grow into is given away");
        let behind = &mut self.components[n];
        assert!(behind.objects.is_empty(), "bytes of a component that has objects keep their places");
        let grows = behind.start == behind.end;
        behind.start = room.start;
        if grows {
            // It has nothing yet, and its own room behind it.
            behind.end = room.start;
            self.components[n + 1].start = room.start;
            assert!(self.components[n + 1].is_extension(), "who has nothing grows");
        }
    }

    /// A component like the one that `n` is room for, without objects, takes its place before that room.
    pub fn repeat(&mut self, n: usize, id: u32) {
        assert!(self.components.iter().all(|c| c.id != id), "component ids are never reused");
        let room = &self.components[n];
        let spec = room.wanted().expect("room to grow into knows what the one before is like");
        let new = Component::bare(id, (room.start, room.start), &spec);
        self.components.insert(n, new);
    }

    /// The objects' ids say for which targets they are: `mark` of each index, if it is known.
    pub fn marked(mut self, mark: impl Fn(u16) -> TargetMark) -> Layout {
        for o in self.components.iter_mut().flat_map(|c| &mut c.objects) {
            if o.id.mark() == TargetMark::NONE {
                o.id = o.id.marked(mark(o.ost));
            }
        }
        self
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

    /// The component that commands speak of where they show one: the last that has objects, or the first.
    pub fn shown(&self) -> &Component {
        self.components.iter().rev().find(|c| !c.objects.is_empty()).unwrap_or(&self.components[0])
    }

    /// Stripes of the component that is shown.
    pub fn stripe_count(&self) -> usize {
        self.shown().objects.len()
    }

    pub fn has_objects(&self) -> bool {
        self.components.iter().any(|c| !c.objects.is_empty())
    }

    /// Of all components, in their order.
    pub fn objects(&self) -> impl Iterator<Item = &LayoutObject> {
        self.components.iter().flat_map(|c| c.objects.iter())
    }

    pub fn object_count(&self) -> usize {
        self.components.iter().map(|c| c.objects.len()).sum()
    }

    /// The components with objects, each with the number of its first one.
    pub fn instantiated(&self) -> impl Iterator<Item = (usize, &Component)> {
        let mut first = 0;
        self.components.iter().filter_map(move |c| {
            let at = first;
            first += c.objects.len();
            (!c.objects.is_empty()).then_some((at, c))
        })
    }

    /// The component of an object, and the object's stripe there.
    pub fn stripe_of(&self, number: usize) -> (&Component, usize) {
        let found = self.instantiated().find(|(first, c)| number < first + c.objects.len());
        let (first, c) = found.expect("an object's number is of its layout");
        (c, number - first)
    }

    /// Every byte that the layout covers has an object.
    pub fn is_complete(&self) -> bool {
        self.components.iter().all(|c| c.is_instantiated() || c.start == c.end)
    }

    /// Every byte that the file can have has an object: no newer layout can give it one here.
    pub fn covers_file(&self) -> bool {
        self.is_complete() && self.end() == EOF
    }

    /// Where the last component ends: what lies behind has no place.
    pub fn end(&self) -> u64 {
        self.components.last().map_or(0, |c| c.end)
    }

    /// The place of the first component without objects that holds a byte of `start..end`.
    pub fn uninstantiated(&self, start: u64, end: u64) -> Option<usize> {
        self.components.iter().position(|c| !c.is_instantiated() && start.max(c.start) < end.min(c.end))
    }

    /// `ENODATA` for a range behind the last component, `EUNINIT` for one that has no objects yet.
    pub fn check_range(&self, start: u64, end: u64) -> Result<(), Errno> {
        if end > self.end() {
            return Err(Errno::ENODATA);
        }
        if self.uninstantiated(start, end).is_some() { Err(Errno::EUNINIT) } else { Ok(()) }
    }

    /// File offset of byte `off` of an object.
    pub fn file_offset(&self, number: usize, off: u64) -> u64 {
        let (c, stripe) = self.stripe_of(number);
        c.file_offset(stripe, off)
    }

    /// Size the file has at least if an object holds `object_size` bytes.
    pub fn file_size_from(&self, number: usize, object_size: u64) -> u64 {
        let (c, stripe) = self.stripe_of(number);
        c.file_size_from(stripe, object_size)
    }

    /// Size that an object has when the file is cut to `file_size` bytes.
    pub fn object_size_for(&self, number: usize, file_size: u64) -> u64 {
        let (c, stripe) = self.stripe_of(number);
        c.object_size_for(stripe, file_size)
    }

    /// The pieces of `off..off+len` that have objects, in file order, one for each run within a stripe.
    pub fn extents(&self, off: u64, len: u64) -> Vec<Extent> {
        let end = off.saturating_add(len);
        let mut out = Vec::new();
        for (first, c) in self.instantiated() {
            let ss = u64::from(c.stripe_size);
            let (mut pos, end) = (off.max(c.start), end.min(c.end));
            while pos < end {
                let (stripe, object_offset) = c.place(pos);
                let left = if c.objects.len() == 1 { end - pos } else { ss - (pos - c.start) % ss };
                let len = left.min(end - pos);
                assert!(len > 0, "each piece of a range has bytes");
                let (number, object) = (first + stripe, c.objects[stripe]);
                out.push(Extent { number, object, object_offset, file_offset: pos, len });
                pos += len;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;

//! One component of a layout: a range of the file, and how it is spread over objects.

use super::spec::ComponentSpec;
use super::{EOF, LayoutObject, Pattern};
use crate::planted::{self, Bug};
use crate::{Fid, ObjectId, pool};
use serde::{Deserialize, Serialize};

/// A byte range of the file and the objects that hold it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Component {
    /// Never reused within a file; 1 for the first.
    pub id: u32,
    pub mirror: u16,
    /// LCME_FL_* bits of Lustre ([`COMPONENT_INIT`], …).
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
    /// Tagged values: [`Component::wanted`] and those of later versions, which are kept as they are.
    pub extra: Vec<(u16, Vec<u8>)>,
}

/// LCME_FL_*: the copy is out of date.
pub const COMPONENT_STALE: u32 = 1;
/// LCME_FL_*: preferred for reads, for writes.
pub const COMPONENT_PREFER_READ: u32 = 2;
pub const COMPONENT_PREFER_WRITE: u32 = 4;
/// LCME_FL_*: not to be used.
pub const COMPONENT_OFFLINE: u32 = 8;
/// LCME_FL_*: it has its objects.
pub const COMPONENT_INIT: u32 = 0x10;
/// LCME_FL_*: left out when copies are brought up to date.
pub const COMPONENT_NOSYNC: u32 = 0x20;
/// LCME_FL_*: room for the component before it to grow into; never has objects.
pub const COMPONENT_EXTENSION: u32 = 0x40;

/// The flags by the words that commands use for them.
pub const COMPONENT_FLAGS: &[(&str, u32)] = &[
    ("init", COMPONENT_INIT),
    ("stale", COMPONENT_STALE),
    ("prefrd", COMPONENT_PREFER_READ),
    ("prefwr", COMPONENT_PREFER_WRITE),
    ("offline", COMPONENT_OFFLINE),
    ("nosync", COMPONENT_NOSYNC),
    ("extension", COMPONENT_EXTENSION),
];

/// The bits of a flag by its word; `prefer` is both of its kind.
pub fn component_flag(word: &str) -> Option<u32> {
    let known = COMPONENT_FLAGS.iter().find(|(name, _)| *name == word).map(|(_, bit)| *bit);
    known.or((word == "prefer").then_some(COMPONENT_PREFER_READ | COMPONENT_PREFER_WRITE))
}

/// Tag in [`Component::extra`]: the encoded [`ComponentSpec`] of one that has no objects yet.
const WANTED: u16 = 1;
/// Tag in [`Component::extra`]: somebody said on which OSTs its objects lie, or on which the first of them.
const NAMED: u16 = 2;
/// Tag in [`Component::extra`]: it was put together from what its objects know, of a layout of this
/// generation (u32, little-endian).
const REBUILT: u16 = 3;

impl Component {
    /// The whole file, with its objects.
    pub(super) fn whole_file(
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

    /// `start..end` as `spec` has it, without objects.
    pub(super) fn bare(id: u32, (start, end): (u64, u64), spec: &ComponentSpec) -> Component {
        assert!(start <= end && end <= spec.end, "a component lies within what is asked for");
        let size = u32::try_from(spec.stripe_size).expect("a checked stripe size has 32 bits");
        assert!(size > 0, "what is not said is inherited by now");
        let pool = if spec.pool == pool::IGNORE { "" } else { &spec.pool };
        Component {
            flags: 0,
            start,
            end,
            extra: vec![(WANTED, spec.encode())],
            ..Component::whole_file(id, Pattern::Raid0, size, pool, Vec::new())
        }
    }

    /// Room for the one before it to grow into, which is as `spec` has it.
    pub(super) fn extension(id: u32, range: (u64, u64), spec: &ComponentSpec) -> Component {
        assert!(spec.extension_bytes > 0, "it says how far the one before grows at a time");
        Component { flags: COMPONENT_EXTENSION, ..Component::bare(id, range, spec) }
    }

    /// What its objects are to be like, of one that has none yet; of room to grow into what the one before is
    /// like.
    pub fn wanted(&self) -> Option<ComponentSpec> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == WANTED)?;
        ComponentSpec::decode(v)
    }

    /// Gets its objects, on these OSTs in stripe order, which are of this pool.
    pub(super) fn instantiate(&mut self, fid: Fid, pool: &str, osts: &[u16]) {
        assert!(!osts.is_empty() && self.objects.is_empty(), "a component gets its objects once");
        assert!(self.pattern == Pattern::Raid0 && !self.is_extension(), "this one never has objects");
        self.objects = objects_of(fid, self.id, osts);
        self.flags |= COMPONENT_INIT;
        self.pool = pool.to_string();
        self.extra.retain(|(tag, _)| *tag != WANTED);
    }

    /// Somebody said on which OSTs its objects lie: they are not moved to others unasked.
    pub fn is_named(&self) -> bool {
        self.extra.iter().any(|(tag, _)| *tag == NAMED)
    }

    pub fn set_named(&mut self, yes: bool) {
        self.extra.retain(|(tag, _)| *tag != NAMED);
        if yes {
            self.extra.push((NAMED, Vec::new()));
        }
    }

    /// The generation of the label that it was put together from, if it was.
    pub fn rebuilt(&self) -> Option<u32> {
        let (_, v) = self.extra.iter().find(|(tag, _)| *tag == REBUILT)?;
        Some(u32::from_le_bytes(v.as_slice().try_into().ok()?))
    }

    pub(super) fn set_rebuilt(&mut self, generation: u32) {
        self.extra.retain(|(tag, _)| *tag != REBUILT);
        self.extra.push((REBUILT, generation.to_le_bytes().to_vec()));
    }

    pub fn is_extension(&self) -> bool {
        self.flags & COMPONENT_EXTENSION != 0
    }

    /// Has objects, or its data with the inode.
    pub fn is_instantiated(&self) -> bool {
        self.pattern == Pattern::Mdt || !self.objects.is_empty()
    }

    /// Several of its objects lie on one OST.
    pub fn is_overstriped(&self) -> bool {
        let mut osts: Vec<u16> = self.objects.iter().map(|o| o.ost).collect();
        osts.sort_unstable();
        osts.windows(2).any(|w| w[0] == w[1])
    }

    /// Stores that the bytes are spread over: data with the inode counts as one.
    pub fn stripes(&self) -> usize {
        if self.pattern == Pattern::Mdt { 1 } else { self.objects.len() }
    }

    fn width(&self) -> u64 {
        u64::from(self.stripe_size) * self.stripes() as u64
    }

    /// RAID0 from the component's start on: stripe number = (off / ssize) mod count; object offset = (off /
    /// (ssize·count))·ssize + off mod ssize.
    pub(super) fn place(&self, off: u64) -> (usize, u64) {
        assert!(self.start <= off && off < self.end, "a byte is looked for in its component");
        let (ss, off) = (u64::from(self.stripe_size), off - self.start);
        let stripe = (off / ss) % self.stripes() as u64;
        let wrong = stripe == 1 && planted::on(Bug::WrongStripe);
        (stripe as usize, (off / self.width()) * ss + off % ss + if wrong { 4096 } else { 0 })
    }

    /// File offset of byte `off` of the object of stripe `stripe`: the inverse of the mapping above.
    pub fn file_offset(&self, stripe: usize, off: u64) -> u64 {
        let ss = u64::from(self.stripe_size);
        let within = (off / ss).saturating_mul(self.width()).saturating_add(stripe as u64 * ss + off % ss);
        self.start.saturating_add(within)
    }

    /// Size the file has if the object of `stripe` holds `object_size` bytes (0 for an empty object).
    pub fn file_size_from(&self, stripe: usize, object_size: u64) -> u64 {
        if object_size == 0 { 0 } else { self.file_offset(stripe, object_size - 1).saturating_add(1) }
    }

    /// Size that the object of `stripe` has when the file is cut to `file_size` bytes.
    pub fn object_size_for(&self, stripe: usize, file_size: u64) -> u64 {
        let ss = u64::from(self.stripe_size);
        let size = file_size.clamp(self.start, self.end) - self.start;
        let (full, rest) = (size / self.width(), size % self.width());
        full * ss + rest.saturating_sub(stripe as u64 * ss).min(ss)
    }

    /// The bytes of the object of `stripe` that belong to the file's `off..off+len`, as (offset, length).
    pub fn object_range(&self, stripe: usize, off: u64, len: u64) -> (u64, u64) {
        let start = self.object_size_for(stripe, off);
        (start, self.object_size_for(stripe, off.saturating_add(len)) - start)
    }
}

/// The objects of a component on these OSTs.
pub(super) fn objects_of(fid: Fid, component: u32, osts: &[u16]) -> Vec<LayoutObject> {
    let object = |(i, &ost): (usize, &u16)| LayoutObject {
        ost,
        id: ObjectId { origin: fid, component, stripe: i as u32 },
    };
    osts.iter().enumerate().map(object).collect()
}

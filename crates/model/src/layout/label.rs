//! What an object knows of the component that it is part of, so that a file can be put together again without
//! the metadata target (decision 0087): the component itself, and the generation of the layout that had it.

use super::{COMPONENT_EXTENSION, COMPONENT_INIT, Component, ComponentSpec, EOF, Layout, Pattern};
use crate::{ObjectId, limits};

/// Objects of a component, at most, if they are to know of each other. Wider ones have no labels: a record
/// would be mostly label.
pub const LABELLED_OBJECTS_MAX: usize = 32;
/// Longest encoded label.
pub const LABEL_MAX_BYTES: usize = 1024;

const VERSION: u8 = 1;
/// Version and generation, which are read without the rest.
const HEAD_BYTES: usize = 5;
/// Generations that a layout which is put together lies behind its labels: objects may have been fenced by
/// later ones, and refuse requests by older ones.
const GENERATIONS_BEHIND: u32 = 1 << 16;
/// How far the ids of components that are made to fill gaps lie behind others: those may have been given to
/// components of which nothing is left.
const IDS_BEHIND: u32 = 1 << 16;
/// Labels of later generations are of nobody.
const GENERATION_MAX: u32 = u32::MAX / 2;
/// Ids that are counted on from.
const ID_MAX: u32 = 1 << 24;

/// A component as of a generation of its file's layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectLabel {
    pub generation: u32,
    pub component: Component,
}

/// What a label makes of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Joined {
    /// The layout has it already.
    Known,
    /// The file's layout from now on.
    New(Layout),
    /// It cannot be of the same file as what is there.
    Contradicts(&'static str),
}

impl ObjectLabel {
    /// What the objects of a component are told: version (1), generation (u32, little-endian), the component.
    /// `None`: they are told nothing.
    pub fn encoded_of(l: &Layout, c: &Component) -> Option<Vec<u8>> {
        let told = c.pattern == Pattern::Raid0 && (1..=LABELLED_OBJECTS_MAX).contains(&c.objects.len());
        let label = ObjectLabel { generation: l.generation, component: c.clone() };
        told.then(|| label.encode()).filter(|b| b.len() <= LABEL_MAX_BYTES)
    }

    fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(96);
        b.push(VERSION);
        b.extend(self.generation.to_le_bytes());
        postcard::to_extend(&self.component, b).expect("plain data encodes")
    }

    /// `None` for bytes that are no label of a component with objects, or one of a later version.
    pub fn decode(bytes: &[u8]) -> Option<ObjectLabel> {
        let generation = ObjectLabel::generation_of(bytes)?;
        let (component, _) = postcard::take_from_bytes(bytes.get(HEAD_BYTES..)?).ok()?;
        Some(ObjectLabel { generation, component }).filter(ObjectLabel::holds)
    }

    /// Of an encoded one.
    pub fn generation_of(bytes: &[u8]) -> Option<u32> {
        let (&version, rest) = bytes.split_first()?;
        let (generation, _) = rest.split_first_chunk::<4>()?;
        (version == VERSION && bytes.len() <= LABEL_MAX_BYTES).then(|| u32::from_le_bytes(*generation))
    }

    /// Everything that puts files together relies on this.
    fn holds(&self) -> bool {
        let (c, unit) = (&self.component, limits::STRIPE_SIZE_MIN_BYTES);
        let size = u64::from(c.stripe_size);
        let mut ids: Vec<ObjectId> = c.objects.iter().map(|o| o.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let one_copy = c.mirror == 0 && c.pattern == Pattern::Raid0 && c.flags & COMPONENT_EXTENSION == 0;
        let ends = c.start < c.end && c.start.is_multiple_of(unit);
        let striped = size > 0 && size.is_multiple_of(unit) && c.pool.len() <= limits::POOL_NAME_MAX_BYTES;
        let objects = (1..=LABELLED_OBJECTS_MAX).contains(&c.objects.len()) && ids.len() == c.objects.len();
        one_copy && ends && striped && objects && c.id > 0 && self.generation <= GENERATION_MAX
    }

    /// Whether this object is one of the component's.
    pub fn names(&self, ost: u16, id: ObjectId) -> bool {
        self.component.objects.iter().any(|o| (o.ost, o.id) == (ost, id))
    }

    /// The layout of a file of which this is known, besides what `old` has: `None` if that is nothing. Where
    /// no component is known there is one without objects, which reads as zeros. `fence`: generation by which
    /// the object was reached last.
    pub fn join(&self, old: Option<&Layout>, fence: u32) -> Joined {
        assert!(self.holds(), "only what was looked at is put together");
        let mut new = self.component.clone();
        new.flags = COMPONENT_INIT;
        new.set_rebuilt(self.generation);
        let mut all = vec![new];
        for c in old.iter().flat_map(|l| &l.components).filter(|c| c.is_instantiated()) {
            let new = &all[0];
            if c.end <= new.start || new.end <= c.start {
                all.push(c.clone());
                continue;
            }
            match c.rebuilt() {
                None => return Joined::Contradicts("the file has another component there"),
                Some(g) if g >= self.generation && c.objects == new.objects && c.start == new.start => {
                    return Joined::Known;
                }
                Some(g) if g >= self.generation => {
                    return Joined::Contradicts(
                        "the label of another object is not older, and says otherwise",
                    );
                }
                // What this label says came later.
                Some(_) => {}
            }
        }
        if fence > GENERATION_MAX {
            return Joined::Contradicts("its generation is none that a file had");
        }
        let behind = self.generation.max(fence) + GENERATIONS_BEHIND;
        let generation = old.map_or(behind, |l| l.generation.saturating_add(1).max(behind));
        match filled(all) {
            Some(components) => Joined::New(Layout { generation, flags: 0, components }),
            None => Joined::Contradicts("the file would have too many components"),
        }
    }
}

/// Components one behind the other from 0 to the end, with some that have no objects in the gaps.
fn filled(mut known: Vec<Component>) -> Option<Vec<Component>> {
    known.sort_unstable_by_key(|c| c.start);
    let last_id = known.iter().map(|c| c.id).filter(|id| *id < ID_MAX).max().unwrap_or(0);
    let mut free = last_id + IDS_BEHIND..;
    let mut out: Vec<Component> = Vec::new();
    let mut bare = |range: (u64, u64), like: &Component| -> Option<Component> {
        let spec = ComponentSpec {
            end: range.1,
            stripe_count: i32::try_from(like.objects.len()).ok()?,
            stripe_size: u64::from(like.stripe_size),
            pool: like.pool.clone(),
            overstriped: like.is_overstriped(),
            ..ComponentSpec::default()
        };
        Some(Component::bare(free.next()?, range, &spec))
    };
    for c in known {
        let end = out.last().map_or(0, |before| before.end);
        assert!(end <= c.start, "what overlaps was left out");
        if end < c.start {
            out.push(bare((end, c.start), &c)?);
        }
        out.push(c);
    }
    let last = out.last()?;
    if last.end < EOF {
        let rest = bare((last.end, EOF), last)?;
        out.push(rest);
    }
    (out.len() <= limits::COMPONENTS_MAX).then_some(out)
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;

//! Components of a file that has some: added behind the last one, removed from the last one on, marked.

use super::{
    COMPONENT_INIT, COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE, Component, ComponentSpec, EOF, Layout,
    LayoutObject, LayoutSpec, Pattern,
};
use crate::planted::{self, Bug};
use crate::{Errno, limits};
use serde::{Deserialize, Serialize};

/// Flags that say something of a component that users know better: which of several copies they prefer.
pub const COMPONENT_USER_FLAGS: u32 = COMPONENT_PREFER_READ | COMPONENT_PREFER_WRITE;

/// What is to become of the components of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ComponentChange {
    /// Those of the spec come behind the last one.
    Add(LayoutSpec),
    /// These go, and what lies in them.
    Delete(ComponentFilter),
    /// Component `id` gets the flags `set` and loses the flags `clear`.
    Flags { id: u32, set: u32, clear: u32 },
}

/// Some of a file's components.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ComponentFilter {
    Id(u32),
    /// Those with one of the flags `with`, if that names any, and with none of `without`.
    Flags {
        with: u32,
        without: u32,
    },
}

impl ComponentFilter {
    pub fn has(&self, c: &Component) -> bool {
        match *self {
            ComponentFilter::Id(id) => c.id == id,
            ComponentFilter::Flags { with, without } => {
                (with == 0 || c.flags & with != 0) && c.flags & without == 0
            }
        }
    }

    /// `EINVAL` for one that names nothing.
    fn check(&self) -> Result<(), Errno> {
        let says = !matches!(self, ComponentFilter::Id(0) | ComponentFilter::Flags { with: 0, without: 0 });
        if says { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl ComponentChange {
    /// `EINVAL` for what can be done to no file, `EOPNOTSUPP` for flags that mean nothing while files have
    /// one copy.
    pub fn check(&self) -> Result<(), Errno> {
        match self {
            ComponentChange::Add(spec) => {
                spec.check()?;
                let alone = spec.mdt_bytes().is_none() && spec.is_composite();
                if alone { Ok(()) } else { Err(Errno::EINVAL) }
            }
            ComponentChange::Delete(choice) => choice.check(),
            ComponentChange::Flags { id, set, clear } => {
                if *id == 0 || set | clear == 0 || set & clear != 0 {
                    return Err(Errno::EINVAL);
                }
                if (set | clear) & !COMPONENT_USER_FLAGS == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
            }
        }
    }
}

impl LayoutSpec {
    /// Components behind those of a file that will get its objects when it outgrows its inode. `EINVAL` if
    /// what it is to get reaches to the end, or the new ones do not lie behind.
    pub fn append(&mut self, more: &LayoutSpec) -> Result<(), Errno> {
        let mut parts = self.components()?;
        if parts.last().is_none_or(|c| c.end == EOF) {
            return Err(Errno::EINVAL);
        }
        parts.extend(more.components()?);
        self.set_components(&parts);
        self.check()
    }
}

impl Layout {
    /// Components behind the last one, as `spec` has them; what it leaves open is as in the last one. The new
    /// ones have ids from `first_id` on. `EINVAL` if the last one reaches to the end, the new ones do not end
    /// behind it, or there would be more than a file may have.
    pub fn append(&mut self, first_id: u32, spec: &LayoutSpec) -> Result<(), Errno> {
        let last = self.components.last().ok_or(Errno::EINVAL)?;
        let start = last.end;
        let specs = last.followed_by(spec)?;
        if start == EOF || specs.first().is_none_or(|c| c.end <= start) {
            return Err(Errno::EINVAL);
        }
        let before = self.components.len();
        self.add(first_id, start, &specs);
        let (had, new) = self.components.split_at(before);
        let reused = |c: &Component| had.iter().any(|h| h.id == c.id);
        assert!(!new.iter().any(reused), "component ids are never reused");
        if self.components.len() > limits::COMPONENTS_MAX {
            self.components.truncate(before);
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// The chosen components go; what had nothing but the room that goes with them goes as well. `EINVAL` if
    /// none is chosen, or one that lies before one that stays; `EOPNOTSUPP` if the first one would go.
    pub fn remove(&mut self, choice: &ComponentFilter) -> Result<(), Errno> {
        let chosen = |c: &Component| choice.has(c);
        let Some(last) = self.components.iter().rposition(|c| !chosen(c)) else {
            return Err(Errno::EOPNOTSUPP);
        };
        let mut keep = last + 1;
        if keep == self.components.len() || self.components[..keep].iter().any(chosen) {
            return Err(Errno::EINVAL);
        }
        let has_nothing = |c: &Component| c.start == c.end && c.objects.is_empty();
        while has_nothing(&self.components[keep - 1]) {
            keep -= 1;
            assert!(keep > 0, "the first component holds bytes");
        }
        self.components.truncate(keep);
        Ok(())
    }

    /// `EINVAL` if there is no such component. Whether that is a change.
    pub fn mark(&mut self, id: u32, set: u32, clear: u32) -> Result<bool, Errno> {
        assert!((set | clear) & COMPONENT_INIT == 0, "objects say whether there are objects");
        let n = self.components.iter().position(|c| c.id == id).ok_or(Errno::EINVAL)?;
        let other = if planted::on(Bug::OtherComponentMarked) { 1 } else { 0 };
        let c = &mut self.components[n.saturating_sub(other)];
        let before = c.flags;
        c.flags = (c.flags | set) & !clear;
        Ok(c.flags != before)
    }

    /// Objects of the components that `other` does not have.
    pub fn objects_beside<'a>(&'a self, other: Option<&'a Layout>) -> impl Iterator<Item = &'a LayoutObject> {
        let has = move |c: &Component| other.is_some_and(|l| l.components.iter().any(|o| o.id == c.id));
        self.components.iter().filter(move |c| !has(c)).flat_map(|c| &c.objects)
    }
}

impl Component {
    /// The components of `spec`, which take from this one what they leave open.
    fn followed_by(&self, spec: &LayoutSpec) -> Result<Vec<ComponentSpec>, Errno> {
        if self.pattern != Pattern::Raid0 {
            return Err(Errno::EINVAL);
        }
        let (stripe_count, overstriped) = match self.wanted() {
            // Exact OSTs are one component's; their number is not.
            Some(w) if w.stripe_count == 0 => (w.osts.len() as i32, w.overstriped),
            Some(w) => (w.stripe_count, w.overstriped),
            None => (self.objects.len() as i32, self.is_overstriped()),
        };
        let mut as_this = LayoutSpec {
            stripe_count,
            stripe_size: u64::from(self.stripe_size),
            pool: self.pool.clone(),
            ..LayoutSpec::default()
        };
        as_this.set_overstriped(overstriped);
        as_this.set_components(&spec.components()?);
        as_this.check()?;
        as_this.full_components()
    }
}

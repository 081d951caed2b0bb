//! Which layout a file gets: what is asked for, completed by defaults, with objects where there is or will
//! soon be data.

use crate::alloc::{Policy, RESERVE_BYTES};
use crate::settings::seconds;
use crate::shared::Shared;
use model::layout::ComponentSpec;
use model::{Errno, Fid, Layout, LayoutSpec, limits};
use std::sync::atomic::Ordering::Relaxed;

/// Ids for the components of a layout.
#[derive(Clone, Copy, Debug)]
pub struct ComponentIds {
    pub first: u32,
    /// Of the second, and from there on.
    pub next: u32,
}

impl ComponentIds {
    /// From this one on.
    pub fn from(first: u32) -> ComponentIds {
        ComponentIds { first, next: first + 1 }
    }
}

impl Shared {
    /// `spec` completed by the directory's default and the file system's.
    pub fn resolve(&self, spec: Option<&LayoutSpec>, dir_default: Option<&LayoutSpec>) -> LayoutSpec {
        let mut s = spec.cloned().unwrap_or_default();
        if let Some(d) = dir_default {
            s = s.inherit(d);
        }
        if let Some(r) = self.root_default.lock().as_ref() {
            s = s.inherit(r);
        }
        s
    }

    /// As [`Shared::resolve`], completed by the built-in one: nothing is inherited any more.
    pub fn wanted(&self, spec: Option<&LayoutSpec>, dir_default: Option<&LayoutSpec>) -> LayoutSpec {
        self.resolve(spec, dir_default).inherit(&self.settings.builtin_layout())
    }

    /// The layout of a new file, and what it is to get when it outgrows the metadata server. Chooses OSTs for
    /// a file that asks for objects. `EINVAL` for settings that cannot be, `ENOSPC` if no OST takes objects.
    pub fn allocate(
        &self,
        fid: Fid,
        spec: Option<&LayoutSpec>,
        dir_default: Option<&LayoutSpec>,
    ) -> Result<(Layout, Option<LayoutSpec>), Errno> {
        self.allocate_as(fid, ComponentIds::from(1), 0, self.resolve(spec, dir_default))
    }

    /// As [`Shared::allocate`], of what is asked for and inherited, with these ids and this generation.
    pub fn allocate_as(
        &self,
        fid: Fid,
        ids: ComponentIds,
        generation: u32,
        asked: LayoutSpec,
    ) -> Result<(Layout, Option<LayoutSpec>), Errno> {
        let room = self.room(&asked)?;
        let s = asked.inherit(&self.settings.builtin_layout());
        s.check()?;
        if room > 0 {
            return Ok((Layout { generation, ..Layout::on_mdt(room) }, Some(s)));
        }
        Ok((self.layout_for(fid, ids, generation, &s, 0)?, None))
    }

    /// Bytes that may lie with the inode of a file that asks for this.
    fn room(&self, asked: &LayoutSpec) -> Result<u32, Errno> {
        let room = match asked.mdt_bytes() {
            Some(n) => n,
            None if asked.names_objects() => 0,
            None => self.settings.dom_stripesize.load(Relaxed),
        };
        u32::try_from(room).map_err(|_| Errno::EINVAL)
    }

    /// The layout of a new file that asks for nothing special, if it is no choice: its data lies with its
    /// inode.
    pub fn plain_layout(&self, dir_default: Option<&LayoutSpec>) -> Option<Layout> {
        let asked = self.resolve(None, dir_default);
        let fits = asked.clone().inherit(&self.settings.builtin_layout()).check().is_ok();
        self.room(&asked).ok().filter(|room| fits && *room > 0).map(Layout::on_mdt)
    }

    /// A layout for settings to which nothing is inherited any more. Of its components the first has objects,
    /// and each that holds a byte before `upto`.
    pub fn layout_for(
        &self,
        fid: Fid,
        ids: ComponentIds,
        generation: u32,
        s: &LayoutSpec,
        upto: u64,
    ) -> Result<Layout, Errno> {
        let specs = s.full_components()?;
        let mut l = if specs.is_empty() {
            let (pool, osts) = self.choose(s, RESERVE_BYTES)?;
            let size = u32::try_from(s.stripe_size).map_err(|_| Errno::EINVAL)?;
            let mut l = Layout::striped((fid, ids.first), generation, size, &pool, &osts);
            l.components[0].set_named(s.names_osts());
            l
        } else {
            let mut l = Layout::composite(ids.first, generation, &specs);
            for (c, id) in l.components.iter_mut().skip(1).zip(ids.next..) {
                c.id = id;
            }
            let last = l.end();
            let mut next = ids.next + l.components.len() as u32 - 1;
            self.cover(&mut l, fid, (0, upto.max(1).min(last)), &mut next)?;
            if s.is_placed_by_server() {
                l.components.iter_mut().for_each(|c| c.set_named(false));
            }
            l
        };
        l = l.marked(|i| self.osts.mark(i));
        assert!(l.has_objects(), "a layout that is no place with the inode begins with objects");
        Ok(l)
    }

    /// Gives objects to the components that hold a byte of a range. `next`: the first id that is free.
    /// `ENOSPC` if no OST takes objects.
    pub fn cover(
        &self,
        l: &mut Layout,
        fid: Fid,
        (start, end): (u64, u64),
        next: &mut u32,
    ) -> Result<(), Errno> {
        while let Some(n) = l.uninstantiated(start, end) {
            if l.components[n].is_extension() {
                self.extend(l, fid, n, end, next)?;
                continue;
            }
            let wanted = l.components[n].wanted().ok_or(Errno::EIO)?;
            let wanted = wanted.as_spec();
            let (pool, osts) = self.choose(&wanted, RESERVE_BYTES)?;
            l.instantiate(n, fid, (&pool, &osts));
            l.components[n].set_named(wanted.names_osts());
        }
        assert!(l.check_range(start, end).is_ok(), "{fid}: every byte of {start}..{end} has an object now");
        Ok(())
    }

    /// The component before `n`, which is room for it to grow into, grows so that it reaches to `end` or the
    /// end of that room, or, where its OSTs have none left, the range goes to others: to the component
    /// behind, or to a new one of the same kind.
    fn extend(&self, l: &mut Layout, fid: Fid, n: usize, end: u64, next: &mut u32) -> Result<(), Errno> {
        assert!(n > 0, "room to grow into lies behind what grows");
        let wanted = l.components[n].wanted().ok_or(Errno::EIO)?;
        let grows = &l.components[n - 1];
        let by = grown_by(&l.components[n], &wanted, end);
        let full = |o: &model::layout::LayoutObject| !self.osts.has_room(o.ost, wanted.extension_bytes);
        // Where there are as many components as there may be, what little room there is must do.
        let many = l.components.len() >= limits::COMPONENTS_MAX;
        if grows.is_instantiated() && (many || !grows.objects.iter().any(full)) {
            l.grow(n, by);
            return Ok(());
        }
        let behind = l.components.get(n + 1).is_some_and(|c| c.objects.is_empty());
        let (pool, osts) = match self.choose(&wanted.as_spec(), wanted.extension_bytes) {
            Ok(chosen) => chosen,
            Err(Errno::ENOSPC) if behind => {
                l.spill(n);
                return Ok(());
            }
            // What little there is must do.
            Err(Errno::ENOSPC) => self.choose(&wanted.as_spec(), RESERVE_BYTES)?,
            Err(e) => return Err(e),
        };
        if !l.components[n - 1].is_instantiated() {
            l.grow(n, by);
            l.instantiate(n - 1, fid, (&pool, &osts));
        } else if behind {
            l.spill(n);
        } else {
            l.repeat(n, *next);
            *next += 1;
            l.grow(n + 1, by);
            l.instantiate(n, fid, (&pool, &osts));
        }
        Ok(())
    }

    /// OSTs for settings to which nothing is inherited any more, and the pool that they are of; one with less
    /// room than `reserve` bytes takes nothing.
    fn choose(&self, s: &LayoutSpec, reserve: u64) -> Result<(String, Vec<u16>), Errno> {
        let s = self.osts.placed(s.clone());
        let policy = Policy {
            threshold_rr: self.settings.qos_threshold_rr.load(Relaxed),
            prio_free: self.settings.qos_prio_free.load(Relaxed),
            reserve_bytes: reserve.max(RESERVE_BYTES),
            full_too: false,
        };
        let max_age = seconds(&self.settings.qos_maxage_s);
        let osts = match self.osts.choose(&s, policy, max_age, &self.world) {
            // Whoever writes there has trash make room.
            Err(Errno::ENOSPC) if self.has_trash() => {
                let policy = Policy { full_too: true, ..policy };
                self.osts.choose(&s, policy, max_age, &self.world)?
            }
            chosen => chosen?,
        };
        assert!(!osts.is_empty(), "a file with objects has one at least");
        Ok((s.pool, osts))
    }
}

/// Bytes by which a component grows into `room` so that it reaches to `end`, or as far as that goes: a
/// multiple of what it grows by at a time.
fn grown_by(room: &model::layout::Component, wanted: &ComponentSpec, end: u64) -> u64 {
    let missing = end.min(room.end) - room.start;
    let by = missing.checked_next_multiple_of(wanted.extension_bytes).unwrap_or(u64::MAX);
    by.min(room.end - room.start)
}

//! A layout as commands show it and take it: the components of a file, of what a file is to grow into, or of
//! a directory's default, with the same fields for each.

use client::control::Stripe;
use model::layout::{
    COMPONENT_EXTENSION, COMPONENT_INIT, COMPONENT_PREFER_READ, COMPONENT_PREFER_WRITE, Component,
    ComponentSpec, EOF, Pattern,
};
use model::{Errno, Fid, LayoutSpec, layout};

/// One component.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// 0: it has none, as in a default.
    pub id: u32,
    pub mirror: u16,
    /// LCME_FL_* bits.
    pub flags: u32,
    pub start: u64,
    /// [`EOF`]: with the file.
    pub end: u64,
    pub is_on_mdt: bool,
    pub is_overstriped: bool,
    /// −1: all OSTs; 0: none, or as inherited.
    pub stripe_count: i64,
    /// Bytes; of room to grow into, the bytes of one step.
    pub stripe_size: u64,
    /// First OST, of data with the inode that inode's MDT; −1: none yet.
    pub offset: i64,
    pub pool: String,
    /// (OST, FID that the object is of) in stripe order; without objects the OSTs that were asked for.
    pub objects: Vec<(u16, Fid)>,
}

impl Default for Part {
    fn default() -> Part {
        Part {
            id: 0,
            mirror: 0,
            flags: 0,
            start: 0,
            end: EOF,
            is_on_mdt: false,
            is_overstriped: false,
            stripe_count: 0,
            stripe_size: 0,
            offset: -1,
            pool: String::new(),
            objects: Vec::new(),
        }
    }
}

impl Part {
    fn of(c: &Component) -> Part {
        let mut p = Part {
            id: c.id,
            mirror: c.mirror,
            flags: c.flags,
            start: c.start,
            end: c.end,
            ..Part::default()
        };
        p.stripe_size = c.stripe_size.into();
        p.pool.clone_from(&c.pool);
        p.objects = c.objects.iter().map(|o| (o.ost, o.id.origin)).collect();
        p.stripe_count = c.objects.len() as i64;
        p.is_overstriped = c.is_overstriped();
        match (c.pattern, c.wanted()) {
            (Pattern::Mdt, _) => {
                (p.is_on_mdt, p.offset) = (true, 0);
                p.flags |= COMPONENT_INIT;
            }
            (_, Some(wanted)) if c.is_extension() => p.stripe_size = wanted.extension_bytes,
            (_, Some(wanted)) if c.objects.is_empty() => p.want(&wanted),
            _ => p.offset = c.objects.first().map_or(-1, |o| i64::from(o.ost)),
        }
        p
    }

    /// As a component without objects is asked for.
    fn want(&mut self, c: &ComponentSpec) {
        self.stripe_count = match c.stripe_count {
            0 => c.osts.len() as i64,
            n => i64::from(n),
        };
        self.stripe_size = c.stripe_size;
        self.is_overstriped = c.overstriped;
        self.pool.clone_from(&c.pool);
        self.objects = c.osts.iter().map(|&i| (i, Fid::NONE)).collect();
        self.offset = c.osts.first().map_or(i64::from(c.stripe_start), |&i| i64::from(i));
    }

    pub fn is_extension(&self) -> bool {
        self.flags & COMPONENT_EXTENSION != 0
    }

    pub fn is_instantiated(&self) -> bool {
        self.flags & COMPONENT_INIT != 0
    }

    /// `raid0`, `mdt`, `raid0,overstriped`.
    pub fn pattern_words(&self) -> &'static str {
        match (self.is_on_mdt, self.is_overstriped) {
            (true, _) => "mdt",
            (false, true) => "raid0,overstriped",
            (false, false) => "raid0",
        }
    }

    /// `init,extension`; `0` for none.
    pub fn flag_words(&self) -> String {
        const PREFER: u32 = COMPONENT_PREFER_READ | COMPONENT_PREFER_WRITE;
        let both = self.flags & PREFER == PREFER;
        let mut words = Vec::new();
        for (word, bit) in layout::COMPONENT_FLAGS.iter().filter(|(_, bit)| self.flags & bit != 0) {
            match *bit {
                COMPONENT_PREFER_READ if both => words.push("prefer"),
                COMPONENT_PREFER_WRITE if both => {}
                _ => words.push(word),
            }
        }
        if words.is_empty() { "0".to_string() } else { words.join(",") }
    }

    /// What is asked for with it.
    fn spec(&self) -> ComponentSpec {
        ComponentSpec {
            end: self.end,
            stripe_count: i32::try_from(self.stripe_count).unwrap_or(i32::MAX),
            stripe_size: self.stripe_size,
            stripe_start: if self.objects.is_empty() {
                i32::try_from(self.offset).unwrap_or(i32::MAX)
            } else {
                -1
            },
            osts: self.objects.iter().map(|(ost, _)| *ost).collect(),
            pool: self.pool.clone(),
            overstriped: self.is_overstriped,
            extension_bytes: 0,
        }
    }
}

/// A layout: its generation and its components.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    pub generation: u32,
    pub parts: Vec<Part>,
}

impl Parts {
    /// Of a regular file, with what it is to grow into if its data lies with its inode. `None`: it has no
    /// layout yet.
    pub fn of_file(s: &Stripe) -> Option<Parts> {
        let l = s.layout.as_ref()?;
        let mut parts: Vec<Part> = l.components.iter().map(Part::of).collect();
        if let (Some(room), Some(later)) = (l.data_room(), &s.grows_into) {
            parts[0].end = room;
            let behind = asked_for(later, room);
            parts.extend((parts[0].id + 1..).zip(behind).map(|(id, p)| Part { id, ..p }));
        }
        Some(Parts { generation: l.generation, parts })
    }

    /// Of a default.
    pub fn of_spec(s: &LayoutSpec) -> Parts {
        let mut parts = Vec::new();
        let room = s.mdt_bytes().unwrap_or(0);
        if room > 0 {
            parts.push(Part { end: room, is_on_mdt: true, stripe_size: room, ..Part::default() });
        }
        parts.extend(asked_for(s, room));
        Parts { generation: 0, parts }
    }

    /// Shown as a plain layout is: one component for all of the file.
    pub fn is_plain(&self) -> bool {
        matches!(self.parts.as_slice(), [one] if one.start == 0 && one.end == EOF)
    }

    /// The one that single values are of: the last that is initialised, or, of a default, the first, with
    /// which new files begin.
    pub fn main(&self) -> &Part {
        let main = self.parts.iter().rev().find(|p| p.is_instantiated()).or(self.parts.first());
        main.expect("a layout has a component")
    }

    /// Of a default that begins on the MDT: what a file's first objects are like, which values of striping
    /// are of.
    pub fn striping_of<'a>(&'a self, p: &'a Part) -> &'a Part {
        let default = p.is_on_mdt && !p.is_instantiated();
        self.parts.get(1).filter(|_| default).unwrap_or(p)
    }

    /// The bytes by which a component grows at a time; 0: it does not.
    pub fn extension_of(&self, p: &Part) -> u64 {
        let room = std::iter::once(p).chain(self.parts.iter().filter(|r| r.start == p.end));
        room.filter(|r| r.is_extension()).map(|r| r.stripe_size).next().unwrap_or(0)
    }

    /// A layout without objects: how each component is to be, not where.
    pub fn without_places(mut self) -> Parts {
        for p in &mut self.parts {
            if p.objects.iter().any(|(_, fid)| *fid != Fid::NONE) {
                (p.offset, p.objects) = (-1, Vec::new());
            }
        }
        self
    }

    /// What asks for a file with this layout. `EINVAL` for components that are none together, or more on the
    /// MDT than the first.
    pub fn spec(&self) -> Result<LayoutSpec, Errno> {
        let mut s = LayoutSpec::default();
        let mut rest = self.parts.as_slice();
        if let Some((first, behind)) = rest.split_first().filter(|(p, _)| p.is_on_mdt) {
            s.set_mdt_bytes(if first.end == EOF { first.stripe_size } else { first.end });
            rest = behind;
        }
        if rest.iter().any(|p| p.is_on_mdt) {
            return Err(Errno::EINVAL);
        }
        match rest {
            [] if self.parts.is_empty() => return Err(Errno::EINVAL),
            [] => {}
            [one] if one.end == EOF && !one.is_extension() => {
                let mdt_bytes = s.mdt_bytes();
                s = one.spec().as_spec();
                if let Some(n) = mdt_bytes {
                    s.set_mdt_bytes(n);
                }
            }
            many => s.set_components(&component_specs(many)?),
        }
        s.check().map(|()| s)
    }
}

/// The components behind byte `start` that a spec asks for: of a plain one the one that reaches to the end.
fn asked_for(s: &LayoutSpec, start: u64) -> Vec<Part> {
    let specs = s.full_components().unwrap_or_default();
    let whole = || {
        let mut c = ComponentSpec {
            stripe_count: s.stripe_count,
            stripe_size: s.stripe_size,
            ..ComponentSpec::default()
        };
        (c.stripe_start, c.osts, c.pool) = (s.stripe_start, s.osts.clone(), s.pool.clone());
        c.overstriped = s.is_overstriped();
        vec![c]
    };
    let specs = if specs.is_empty() { whole() } else { specs };
    let (mut out, mut start) = (Vec::new(), start);
    for c in &specs {
        // As the metadata server lays it out: the first one begins with one step, the others with none.
        let end = match (c.extension_bytes, start) {
            (0, _) => c.end,
            (n, 0) => n.min(c.end),
            (_, start) => start,
        };
        let mut p = Part { start, end, ..Part::default() };
        p.want(c);
        let pool = p.pool.clone();
        out.push(p);
        if end < c.end {
            let room = Part { start: end, end: c.end, flags: COMPONENT_EXTENSION, pool, ..Part::default() };
            out.push(Part { stripe_size: c.extension_bytes, ..room });
        }
        start = c.end;
    }
    out
}

/// Room to grow into is a property of the component before it; of a component that has nothing yet, and no
/// room, nothing is left.
fn component_specs(parts: &[Part]) -> Result<Vec<ComponentSpec>, Errno> {
    let mut out: Vec<ComponentSpec> = Vec::new();
    let mut it = parts.iter().peekable();
    while let Some(p) = it.next() {
        if p.is_extension() {
            return Err(Errno::EINVAL);
        }
        let mut c = p.spec();
        if let Some(room) = it.next_if(|r| r.is_extension()) {
            (c.end, c.extension_bytes) = (room.end, room.stripe_size);
        } else if p.start == p.end {
            continue;
        }
        out.push(c);
    }
    Ok(out)
}

/// What a directory's new files get, and whether the directory says so itself.
pub fn effective(s: &Stripe) -> (LayoutSpec, bool) {
    let fs = s.fs_default.clone().unwrap_or_else(LayoutSpec::builtin).inherit(&LayoutSpec::builtin());
    let (mut d, own) = match &s.default {
        Some(d) => (d.clone().inherit(&fs), true),
        None => (fs, false),
    };
    // Unless somebody asks for objects, files begin on the metadata server.
    let asks = [&s.default, &s.fs_default].into_iter().flatten().any(LayoutSpec::names_objects);
    if let Some(n) = s.mdt_bytes.filter(|n| *n > 0 && !asks && d.mdt_bytes().is_none()) {
        d.set_mdt_bytes(n);
    }
    (d, own)
}

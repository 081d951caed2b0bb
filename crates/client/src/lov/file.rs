//! One file with objects, as this mount has it open or cached: its layout and the objects that its bytes lie
//! in.

use super::ReadAhead;
use super::map;
use super::pin::HOLD_MAX;
use super::streams::Streams;
use crate::base::Context;
use crate::base::jobid::JobId;
use crate::osc::{Label, Object, ObjectCache, ObjectHolder, ObjectState, Osc};
use crate::{BoxFutureOf, R};
use model::layout::{Component, LayoutObject, ObjectLabel};
use model::mutex::{Mutex, MutexGuard};
use model::planted::{self, Bug};
use model::{Errno, Fid, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use wire::msg::extent::ExtentMode;
use world::{Either, select, sync};

/// What is known of the pages of a kernel, whatever the layout.
#[derive(Default)]
pub(crate) struct PageState {
    /// Pages filled under locks that were lost are being given up: so often at the moment.
    pub invalidations: AtomicUsize,
    /// Pages are being given up because a server was not heard from.
    pub revalidating: AtomicBool,
    /// For which job pages were filled last: nobody tells who stores into them.
    pub job: Mutex<JobId>,
}

/// A file of which something is, or may be, kept, by one of its layouts. When the layout changes another one
/// takes its place ([`super::Lov::open`]): what goes on with this one ends with it, or is refused by the
/// object servers and begins anew.
pub(crate) struct File {
    pub cx: Arc<Context>,
    pub read_ahead: Arc<ReadAhead>,
    pub fid: Fid,
    pub layout: Arc<Layout>,
    /// In the order of the layout.
    pub objects: Vec<Arc<Object>>,
    /// Something happened that somebody may wait for. The same for all layouts, as objects may be.
    pub changed: Arc<sync::Notify>,
    /// Appends through this mount come one after the other.
    pub appends: Arc<sync::Mutex<()>>,
    pub streams: Mutex<Streams>,
    /// The group whose lock this mount has or asks for, and how many open files have it.
    pub group: Arc<Mutex<Option<(u64, usize)>>>,
    pub page_state: Arc<PageState>,
    holder: Arc<dyn LayoutHolder>,
}

/// Who knows whether a layout is still a file's.
pub(crate) trait LayoutHolder: Send + Sync {
    /// `ERELAYOUT` unless at some moment of the call the file has this layout.
    fn confirm<'a>(&'a self, fid: Fid, layout: &'a Layout) -> BoxFutureOf<'a, R<()>>;
}

/// The states of all objects of a file, locked in the order of the layout.
pub(crate) type Locked<'a> = Vec<MutexGuard<'a, ObjectState>>;

/// What each object of a layout is to remember, in the order of the layout.
fn labels(l: &Layout) -> Vec<Label> {
    let of = |c: &Component| -> Label { ObjectLabel::encoded_of(l, c).map(Arc::from) };
    let labels: Vec<Label> =
        l.components.iter().flat_map(|c| std::iter::repeat_n(of(c), c.objects.len())).collect();
    assert_eq!(labels.len(), l.object_count(), "each object has its own");
    labels
}

impl File {
    /// `oscs`: of each object the OST, in the order of the layout. Of `old`, the file by an older layout,
    /// stays what both have.
    pub fn new(
        (cx, read_ahead, holder): (Arc<Context>, Arc<ReadAhead>, Arc<dyn LayoutHolder>),
        fid: Fid,
        layout: Arc<Layout>,
        oscs: Vec<Arc<Osc>>,
        old: Option<&File>,
    ) -> Arc<File> {
        assert!(layout.objects().count() == oscs.len(), "each object lies on an OST");
        assert!(!oscs.is_empty(), "a file that is opened here has objects");
        assert!(old.is_none_or(|f| f.layout.generation < layout.generation), "{fid}: layouts go forward");
        let changed = old.map_or_else(|| Arc::new(sync::Notify::new()), |f| f.changed.clone());
        let page_state = old.map_or_else(Arc::default, |f| f.page_state.clone());
        let labels = labels(&layout);
        Arc::new_cyclic(|me: &Weak<File>| {
            let open = |((o, label), osc): ((&LayoutObject, Label), Arc<Osc>)| {
                let known = (layout.generation, label);
                match old.and_then(|f| f.objects.iter().find(|x| x.id == o.id)) {
                    Some(same) => {
                        same.carry_over(known, me.clone());
                        same.clone()
                    }
                    None => Object::new((o.id, fid), known, osc, changed.clone(), me.clone()),
                }
            };
            let objects = layout.objects().zip(labels).zip(oscs).map(open).collect();
            File {
                cx,
                read_ahead,
                fid,
                objects,
                layout,
                changed,
                // Two appends must not find one end by two layouts.
                appends: old.map_or_else(Arc::default, |f| f.appends.clone()),
                holder,
                streams: Mutex::default(),
                // Who has a group's lock has it whatever becomes of the layout.
                group: old.map_or_else(Arc::default, |f| f.group.clone()),
                page_state,
            }
        })
    }

    pub fn lock(&self) -> Locked<'_> {
        self.objects.iter().map(|o| o.lock()).collect()
    }

    /// Notes a use; `tick` grows.
    pub fn touch(&self, tick: u64) {
        self.objects.iter().for_each(|o| o.used.store(tick, Ordering::Relaxed));
    }

    /// Where its bytes are kept: files without objects are not opened.
    pub fn cache(&self) -> &Arc<ObjectCache> {
        &self.objects[0].osc.cache
    }

    pub fn used(&self) -> u64 {
        self.objects.first().map_or(0, |o| o.used.load(Ordering::Relaxed))
    }

    /// Whether nothing is kept of it, and nothing goes on with a server. Whoever works on an object has it as
    /// well; objects of `newer`, which took its place, do not count.
    pub fn is_idle(&self, newer: Option<&File>) -> bool {
        let gone = |o: &Arc<Object>| Arc::strong_count(o) == 1 && o.lock().is_idle();
        self.objects.iter().all(|o| newer.is_some_and(|f| f.has(o)) || gone(o))
    }

    /// Whether it has this object.
    pub fn has(&self, o: &Arc<Object>) -> bool {
        self.objects.iter().any(|x| Arc::ptr_eq(x, o))
    }

    /// Size of the file, if it is known here and nobody else can change it, unless by objects of which this
    /// layout does not know ([`File::confirm`]).
    pub fn size_known(&self, objs: &Locked) -> Option<u64> {
        let mut size = 0;
        for (i, o) in objs.iter().enumerate() {
            if !o.size_known() {
                return None;
            }
            size = size.max(map::file_size_of(&self.layout, i, o.size).ok()?);
        }
        Some(size)
    }

    /// The file has at least this size.
    pub fn size_at_least(&self, objs: &Locked) -> u64 {
        let mut least = 0;
        for (i, o) in objs.iter().enumerate() {
            least = least.max(map::file_size_of(&self.layout, i, o.size_at_least()).unwrap_or(0));
        }
        least
    }

    /// The parts of the file that lie in these ranges of an object, or a little more; ends are exclusive.
    pub fn ranges_of(&self, number: usize, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        map::file_ranges(&self.layout, number, ranges)
    }

    /// That up to this moment no part of the file got objects of which its layout here does not know:
    /// `ERELAYOUT` if one may have. For whoever relies on there being none, with the locks on all others, so
    /// that what he sees of them and of the rest is of one moment.
    pub(crate) async fn confirm(&self) -> R<()> {
        if self.layout.covers_file() || planted::on(Bug::HolesUnconfirmed) {
            return Ok(());
        }
        match select(self.holder.confirm(self.fid, &self.layout), self.cx.world.sleep(HOLD_MAX)).await {
            Either::Left(r) => r,
            // The metadata server must not make this mount keep the object servers' locks.
            Either::Right(()) => Err(Errno::ERELAYOUT),
        }
    }

    fn number_of(&self, o: &Object) -> usize {
        self.objects.iter().position(|x| x.id == o.id).expect("an object is held by its file's newest layout")
    }
}

/// Pages of a file that are void are being given up; over when this goes.
struct Invalidation(Arc<File>);

impl Invalidation {
    fn new(file: Arc<File>) -> Invalidation {
        file.page_state.invalidations.fetch_add(1, Ordering::SeqCst);
        Invalidation(file)
    }
}

impl Drop for Invalidation {
    fn drop(&mut self) {
        let was = self.0.page_state.invalidations.fetch_sub(1, Ordering::SeqCst);
        assert!(was > 0, "each begins before it ends");
    }
}

impl ObjectHolder for File {
    fn pages_given_up<'a>(&'a self, o: &'a Object, ranges: Vec<(u64, u64)>) -> BoxFutureOf<'a, ()> {
        let parts = self.ranges_of(self.number_of(o), &ranges);
        Box::pin(async move { self.cx.cache_holder.pages_given_up(self.fid, parts).await })
    }

    fn pages_void(self: Arc<Self>, o: &Object, ranges: Vec<(u64, u64)>) {
        let parts = self.ranges_of(self.number_of(o), &ranges);
        let void = Invalidation::new(self.clone());
        self.cx.cache_holder.forget_pages(self.fid, parts, crate::CancelOnDrop::new(move || drop(void)));
    }

    fn is_grouped(&self, mode: ExtentMode) -> bool {
        let group = self.group.lock();
        matches!((mode, *group), (ExtentMode::Group(a), Some((b, _))) if a == b)
    }
}

//! Objects that come to be counted to somebody else: files get another group or project, or move to another
//! directory with a quota. What they have on object targets is looked at before (`shares`), and counted to
//! whoever gets it until the object targets do that.

use model::Fid;
use model::layout::LayoutObject;
use model::mutex::Mutex;
use model::usage::QuotaId;
use std::collections::{BTreeMap, BTreeSet};

/// What somebody would get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The file, or the directory with a quota.
    pub fid: Fid,
    /// Whose space is limited of those who get it, and did not have it before.
    pub ids: BTreeSet<QuotaId>,
    pub what: ArrivalOf,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrivalOf {
    /// Objects of a file, and the generation of its layout.
    Objects(Vec<LayoutObject>, u32),
    /// All that is counted to a directory with a quota.
    Below(u32),
}

/// On one object target.
struct Coming {
    ids: BTreeSet<QuotaId>,
    bytes: u64,
    is_tree: bool,
    /// It is theirs, and the object target is yet to be told.
    is_done: bool,
}

/// What object targets have not been told.
#[derive(Default)]
pub struct ArrivalBook {
    coming: Mutex<BTreeMap<(u16, Fid), Coming>>,
}

impl ArrivalBook {
    /// Bytes that will be counted to somebody there.
    pub fn coming(&self, of: QuotaId, ost: u16) -> u64 {
        let coming = self.coming.lock();
        let there = coming.range((ost, Fid::NONE)..).take_while(|((o, _), _)| *o == ost);
        there.filter(|(_, c)| c.ids.contains(&of)).fold(0, |sum, (_, c)| sum.saturating_add(c.bytes))
    }

    /// Whether the object target is about to be told of anything.
    pub fn is_behind(&self, ost: u16) -> bool {
        let coming = self.coming.lock();
        coming.range((ost, Fid::NONE)..).take_while(|((o, _), _)| *o == ost).any(|(_, c)| c.is_done)
    }

    /// An object target was told to whom these are counted.
    pub fn told(&self, ost: u16, files: impl Iterator<Item = Fid>) {
        let mut coming = self.coming.lock();
        for fid in files {
            coming.remove(&(ost, fid));
        }
    }

    /// Directories with a quota that lie in others since.
    pub fn trees(&self) -> Vec<(u16, Fid)> {
        let coming = self.coming.lock();
        coming.iter().filter(|(_, c)| c.is_tree && c.is_done).map(|(k, _)| *k).collect()
    }
}

/// What one request may do: who cannot have more here, and what was looked at.
pub struct Admission<'a> {
    book: &'a ArrivalBook,
    admitted: Admitted,
    entered: BTreeSet<(u16, Fid)>,
}

/// The part of it that a transaction is told.
#[derive(Clone, Default)]
pub struct Admitted {
    pub denied: BTreeSet<QuotaId>,
    arrived: BTreeMap<Fid, BTreeSet<QuotaId>>,
}

impl Admitted {
    pub fn has(&self, a: &Arrival) -> bool {
        self.arrived.get(&a.fid).is_some_and(|ids| a.ids.is_subset(ids))
    }
}

impl<'a> Admission<'a> {
    pub fn new(book: &'a ArrivalBook) -> Admission<'a> {
        Admission { book, admitted: Admitted::default(), entered: BTreeSet::new() }
    }

    /// What a transaction is told of it.
    pub fn known(&self) -> Admitted {
        self.admitted.clone()
    }

    /// They cannot have more here.
    pub fn deny(&mut self, ids: &BTreeSet<QuotaId>) {
        self.admitted.denied.extend(ids);
    }

    /// So many bytes of an arrival lie on an object target.
    pub fn enter(&mut self, ost: u16, a: &Arrival, bytes: u64) {
        let is_tree = matches!(a.what, ArrivalOf::Below(_));
        let coming = Coming { ids: a.ids.clone(), bytes, is_tree, is_done: false };
        self.book.coming.lock().insert((ost, a.fid), coming);
        self.entered.insert((ost, a.fid));
    }

    /// They may all have it.
    pub fn arrived(&mut self, all: &[Arrival]) {
        for a in all {
            self.admitted.arrived.entry(a.fid).or_default().extend(&a.ids);
        }
    }

    /// A transaction has given them that.
    pub fn done(self, all: &[Arrival]) {
        if self.entered.is_empty() {
            return;
        }
        let given: BTreeSet<Fid> = all.iter().map(|a| a.fid).collect();
        let mut coming = self.book.coming.lock();
        for k in self.entered.iter().filter(|(_, fid)| given.contains(fid)) {
            if let Some(c) = coming.get_mut(k) {
                c.is_done = true;
            }
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        // As nearly always: no operation takes a lock for this.
        if self.entered.is_empty() {
            return;
        }
        let mut coming = self.book.coming.lock();
        for k in &self.entered {
            if coming.get(k).is_some_and(|c| !c.is_done) {
                coming.remove(k);
            }
        }
    }
}

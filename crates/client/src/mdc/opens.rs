//! Open files: what a restarted metadata server is told about, and what reads and writes need to know of a
//! file without asking for it again each time.
//!
//! A file that is opened under this mount's lease on its inode costs no request, and neither does its close
//! (decision 0013). The server hears of it before the lease goes.

use super::privileges;
use crate::base::Context;
use crate::base::jobid::JobId;
use crate::session::Target;
use crate::{BoxFutureOf, R};
use model::limits::OPENS_PER_CLIENT_MAX;
use model::mutex::{Mutex, MutexGuard};
use model::nodemap::Owner;
use model::{Attr, Cred, Errno, Fid, Layout, Timestamp, perm};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::context::FileOwner;
use wire::msg::close::Close;
use wire::msg::create::OpenSpec;
use wire::msg::lookup::Entry;
use wire::msg::open::Open;
use wire::msg::reclaim::OpenRecord;
use world::future::join_all;

const O_RDWR: u32 = 2;

/// With such a file there can be mappings that are stored into.
pub(crate) fn is_read_write(flags: u32) -> bool {
    flags & perm::O_ACCMODE == O_RDWR
}

/// Opens that are registered at a time.
const REGISTER_AT_ONCE: usize = 16;

/// The layout, if it says where data is.
fn usable(e: &Entry) -> Option<&Layout> {
    e.layout.as_ref().filter(|l| l.has_objects() || l.mdt_component().is_some())
}

/// What data requests of a file carry.
#[derive(Clone, Debug)]
pub(crate) struct FileState {
    pub layout: Option<Arc<Layout>>,
    pub owner: Owner,
    /// The latest ctime this client knows of the inode.
    pub ctime: Timestamp,
    /// A change of its data might have to take something away, or be refused (`llite/privileges.rs`).
    pub privileged: bool,
}

impl FileState {
    pub(crate) fn of(e: &Entry) -> FileState {
        FileState {
            layout: usable(e).cloned().map(Arc::new),
            owner: e.attr.owner(),
            ctime: e.attr.ctime,
            privileged: !privileges::is_plain(e),
        }
    }

    /// What requests for data say of the owner.
    pub(crate) fn named_owner(&self) -> FileOwner {
        FileOwner { owner: self.owner, as_of: self.ctime }
    }
}

/// As [`FileState::named_owner`].
pub(crate) fn owner_of(a: &Attr) -> FileOwner {
    FileOwner { owner: a.owner(), as_of: a.ctime }
}

/// Times of a file when it was opened, and of the last read: relatime is decided at close.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct ReadTimes {
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub last_read: Option<Timestamp>,
}

/// Whether the metadata server notes an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Noted {
    /// It does not: this mount's lease on the inode keeps the file, because nobody can remove it without
    /// asking for the lease. So it is, too, while the server is being asked.
    No,
    /// It was told, one way ([`Notice::Opened`]); it has heard that if it heard what was sent after it.
    Told,
    Yes,
}

struct Handle {
    record: OpenRecord,
    noted: Noted,
    /// Opened by the superuser.
    root: bool,
    /// For which job it was opened, and is closed.
    job: JobId,
}

#[derive(Default)]
struct OfFile {
    handles: BTreeSet<u64>,
    state: Option<FileState>,
}

#[derive(Default)]
struct OpenTable {
    handles: BTreeMap<u64, Handle>,
    files: BTreeMap<Fid, OfFile>,
}

impl OpenTable {
    fn forget(&mut self, handle: u64) -> Option<Handle> {
        let h = self.handles.remove(&handle)?;
        if let Some(f) = self.files.get_mut(&h.record.fid) {
            let was = f.handles.remove(&handle);
            assert!(was, "both tables hold the same handles");
            if f.handles.is_empty() {
                self.files.remove(&h.record.fid);
            }
        }
        Some(h)
    }

    fn remember(&mut self, h: Handle) {
        assert!(self.handles.len() < OPENS_PER_CLIENT_MAX, "open files are bounded");
        self.files.entry(h.record.fid).or_default().handles.insert(h.record.handle);
        let old = self.handles.insert(h.record.handle, h);
        assert!(old.is_none(), "handles are never reused");
    }

    /// Opens of these files that the server may not know of; it is being told.
    fn tell(&mut self, fids: impl Iterator<Item = Fid>) -> Vec<OpenRecord> {
        let mut out = Vec::new();
        for fid in fids {
            let Some(f) = self.files.get(&fid) else { continue };
            for h in &f.handles {
                let h = self.handles.get_mut(h).expect("a file's handles are in the table");
                if h.noted != Noted::Yes {
                    h.noted = Noted::Told;
                    out.push(h.record.clone());
                }
            }
        }
        out
    }
}

/// All open files of a mount.
pub(crate) struct Opens {
    next: AtomicU64,
    state: Mutex<OpenTable>,
}

impl Opens {
    /// Handles count up from `first`.
    pub(crate) fn new(first: u64) -> Opens {
        Opens { next: AtomicU64::new(first), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, OpenTable> {
        self.state.lock()
    }

    /// A new handle, in the table before the server hears of it: a reclaim that comes between the open and
    /// its reply must name it.
    pub(crate) fn reserve(&self, fid: Fid, flags: u32, cred: &Cred, job: JobId) -> R<u64> {
        let mut s = self.lock();
        if s.handles.len() >= OPENS_PER_CLIENT_MAX {
            return Err(ENFILE);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        s.remember(Handle {
            record: OpenRecord { fid, handle, flags },
            noted: Noted::No,
            root: cred.is_root(),
            job,
        });
        Ok(handle)
    }

    /// The open succeeded, perhaps on another file than the one that would have been created. With `leased`
    /// the server does not note it.
    pub(crate) fn opened(&self, handle: u64, e: &Entry, leased: bool) {
        let mut s = self.lock();
        let mut h = s.forget(handle).expect("reserved before the open was sent");
        h.record.fid = e.attr.fid;
        if !leased {
            h.noted = Noted::Yes;
        }
        let before = s.files.get(&e.attr.fid).and_then(|f| f.state.as_ref().map(|s| s.ctime));
        s.remember(h);
        let state = FileState::of(e);
        let ctime = before.map_or(state.ctime, |c| c.max(state.ctime));
        s.files.get_mut(&e.attr.fid).expect("just remembered").state = Some(FileState { ctime, ..state });
    }

    /// The open failed, or the handle is closed. If the server may have noted it: for which job it was.
    pub(crate) fn forget(&self, handle: u64) -> Option<JobId> {
        self.lock().forget(handle).filter(|h| h.noted != Noted::No).map(|h| h.job)
    }

    /// Has `say` tell the server which of these files are open without its knowing: before the leases that
    /// keep them are given back. Nothing is closed in between, so that no close can overtake it.
    pub(crate) fn tell(&self, fids: impl Iterator<Item = Fid>, say: impl FnOnce(Vec<OpenRecord>)) {
        let mut s = self.lock();
        let opens = s.tell(fids);
        if !opens.is_empty() {
            say(opens);
        }
    }

    /// The opens of these files (`None`: of all on the target) of which the server does not know for sure.
    fn unsure(&self, fids: Option<&[Fid]>, of_target: impl Fn(Fid) -> bool) -> Vec<OpenRecord> {
        let mut s = self.lock();
        match fids {
            Some(f) => s.tell(f.iter().copied()),
            None => {
                let all: Vec<Fid> = s.files.keys().copied().filter(|f| of_target(*f)).collect();
                s.tell(all.into_iter())
            }
        }
    }

    /// The server answered that it noted this open. False if it was closed meanwhile.
    fn noted(&self, handle: u64) -> bool {
        let mut s = self.lock();
        let h = s.handles.get_mut(&handle);
        let there = h.is_some();
        if let Some(h) = h {
            h.noted = Noted::Yes;
        }
        there
    }

    /// It is asked for before it is used again.
    pub(crate) fn forget_layout(&self, fid: Fid) {
        if let Some(s) = self.lock().files.get_mut(&fid).and_then(|f| f.state.as_mut()) {
            s.layout = None;
        }
    }

    /// What is known of an open file.
    pub(crate) fn file(&self, fid: Fid) -> Option<FileState> {
        self.lock().files.get(&fid).and_then(|f| f.state.clone())
    }

    /// Newer knowledge of a file, kept if it is open.
    pub(crate) fn learn(&self, e: &Entry) {
        if let Some(f) = self.lock().files.get_mut(&e.attr.fid) {
            let ctime = f.state.as_ref().map_or(e.attr.ctime, |s| s.ctime.max(e.attr.ctime));
            let new = FileState { ctime, ..FileState::of(e) };
            // An answer from before the file grew may arrive late.
            let known = f.state.take().and_then(|s| s.layout);
            let newer = |l: &Arc<Layout>| new.layout.as_ref().is_none_or(|n| n.generation < l.generation);
            f.state = Some(match known.filter(newer) {
                Some(layout) => FileState { layout: Some(layout), ..new },
                None => new,
            });
        }
    }

    /// The layout that a file has after a change of it. An error says nothing of it: perhaps the change was
    /// made all the same.
    pub(crate) fn learn_layout(&self, fid: Fid, r: R<Entry>) -> R<Layout> {
        match &r {
            Ok(e) => self.learn(e),
            Err(_) => self.forget_layout(fid),
        }
        r?.layout.ok_or(Errno::EIO)
    }

    /// Whether a mapping could be stored into: it takes a file that is open for reading and writing.
    pub(crate) fn is_read_write(&self, fid: Fid) -> bool {
        let s = self.lock();
        let of = |h: &u64| s.handles.get(h).is_some_and(|h| is_read_write(h.record.flags));
        s.files.get(&fid).is_some_and(|f| f.handles.iter().any(of))
    }

    /// Whether somebody other than the superuser may have stored into a mapping: nobody tells who did, but
    /// only who could.
    pub(crate) fn is_stored_by_users(&self, fid: Fid) -> bool {
        let s = self.lock();
        let by_user = |h: &u64| s.handles.get(h).is_some_and(|h| is_read_write(h.record.flags) && !h.root);
        s.files.get(&fid).is_some_and(|f| f.handles.iter().any(by_user))
    }

    /// Whether somebody may store anywhere into a mapping: who has the file open for more than appending.
    pub(crate) fn is_stored_over(&self, fid: Fid) -> bool {
        let s = self.lock();
        let over = |r: &OpenRecord| is_read_write(r.flags) && r.flags & perm::O_APPEND == 0;
        let of = |h: &u64| s.handles.get(h).is_some_and(|h| over(&h.record));
        s.files.get(&fid).is_some_and(|f| f.handles.iter().any(of))
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.lock().files.contains_key(&fid)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().handles.len()
    }

    /// What a restarted server is told about: after that it notes them.
    pub(crate) fn reclaim(&self, of_target: impl Fn(Fid) -> bool) -> Vec<OpenRecord> {
        let mut s = self.lock();
        let mine = s.handles.values_mut().filter(|h| of_target(h.record.fid));
        mine.map(|h| {
            if h.noted == Noted::No {
                h.noted = Noted::Told;
            }
            h.record.clone()
        })
        .collect()
    }

    /// Before this mount itself removes names: opens of what they lead to (`None`: of anything) must be known
    /// to the server, which does not ask this mount for its own leases then.
    pub(super) async fn register(
        &self,
        cx: &Context,
        mdt: &Target,
        fids: Option<&[Fid]>,
        of_target: impl Fn(Fid) -> bool,
    ) -> R<()> {
        let opens = self.unsure(fids, of_target);
        for some in opens.chunks(REGISTER_AT_ONCE) {
            let calls =
                some.iter().map(|o| -> BoxFutureOf<'_, R<()>> { Box::pin(self.register_one(cx, mdt, o)) });
            join_all(calls.collect()).await.into_iter().collect::<R<()>>()?;
        }
        Ok(())
    }

    async fn register_one(&self, cx: &Context, mdt: &Target, o: &OpenRecord) -> R<()> {
        let open = OpenSpec { handle: o.handle, flags: o.flags, lease: false };
        match mdt.call(cx.own(), Open { fid: o.fid, open, data: 0 }).await {
            // Its close may have overtaken this.
            Ok(_) if !self.noted(o.handle) => {
                let close = Close { fid: o.fid, handle: o.handle, atime: None };
                mdt.call(cx.own(), close).await.map(drop)
            }
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

const ENFILE: Errno = Errno(23);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use model::{Attr, FileType};

    fn entry(oid: u32) -> Entry {
        let attr = testing::attr(Fid::new(9, oid, 0), FileType::Regular);
        testing::entry(Attr { uid: 5, gid: 6, ..attr })
    }

    #[test]
    fn an_answer_from_before_the_file_grew_does_not_bring_the_old_layout_back() {
        let o = Opens::new(1);
        let h = o.reserve(Fid::new(9, 1, 0), 2, &Cred::root(), None).unwrap();
        let old = Entry { layout: Some(Layout::on_mdt(65536)), ..entry(1) };
        let grown = Layout::striped(
            (Fid::new(9, 1, 0), 2),
            old.layout.as_ref().unwrap().generation + 1,
            65536,
            "",
            &[1],
        );
        o.opened(h, &old, false);
        assert!(o.file(Fid::new(9, 1, 0)).unwrap().layout.unwrap().mdt_component().is_some());
        o.learn(&Entry { layout: Some(grown.clone()), ..entry(1) });
        o.learn(&old);
        assert_eq!(*o.file(Fid::new(9, 1, 0)).unwrap().layout.unwrap(), grown);
    }

    #[test]
    fn a_create_that_opened_another_file_is_recorded_under_that_one() {
        let o = Opens::new(40);
        let h = o.reserve(Fid::new(9, 1, 0), 2, &Cred::root(), None).unwrap();
        assert_eq!(o.reclaim(|_| true)[0].fid, Fid::new(9, 1, 0));
        o.opened(h, &entry(2), false);
        assert_eq!(o.reclaim(|_| true), vec![OpenRecord { fid: Fid::new(9, 2, 0), handle: 40, flags: 2 }]);
        assert!(o.file(Fid::new(9, 1, 0)).is_none());
        assert_eq!(o.file(Fid::new(9, 2, 0)).unwrap().owner.uid, 5);
        let second = o.reserve(Fid::new(9, 2, 0), 0, &Cred::root(), None).unwrap();
        assert!(o.forget(h).is_some(), "the server has it open");
        assert!(o.file(Fid::new(9, 2, 0)).is_some(), "still open once");
        assert!(o.forget(second).is_none(), "the server never heard of it");
        assert!(o.len() == 0 && o.file(Fid::new(9, 2, 0)).is_none());
    }

    #[test]
    fn what_is_open_under_a_lease_is_told_before_the_lease_goes_and_closed_after() {
        let o = Opens::new(40);
        let (f, other) = (Fid::new(9, 2, 0), Fid::new(9, 3, 0));
        let told = |fid: Fid| {
            let mut all = Vec::new();
            o.tell([fid].into_iter(), |r| all = r);
            all.iter().map(|r| r.handle).collect::<Vec<_>>()
        };
        let asked = o.reserve(f, 0, &Cred::root(), None).unwrap();
        assert_eq!(told(f), [asked], "while it is asked for, too");
        o.opened(asked, &entry(2), true);
        let leased = o.reserve(f, 0, &Cred::root(), None).unwrap();
        o.opened(leased, &entry(2), true);
        let registered = o.reserve(f, 0, &Cred::root(), None).unwrap();
        o.opened(registered, &entry(2), false);
        assert!(told(other).is_empty());
        assert_eq!(told(f), [asked, leased], "again, should the first word have been lost");
        assert!([asked, leased, registered].into_iter().all(|h| o.forget(h).is_some()));
    }
}

//! Open files: what a restarted metadata server is told about, and what reads and writes need to know of a file
//! without asking for it again each time.
//!
//! The layout of a file with objects does not change while this version has it open (there is no migration yet);
//! when layouts can change, the generation that data requests carry is checked by the OSTs.

use crate::{Fs, OpenFile, R};
use model::limits::OPENS_PER_CLIENT_MAX;
use model::{Errno, Fid, Layout, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use wire::msg::lookup::Entry;
use wire::msg::reclaim::OpenRecord;

/// What data requests of a file carry.
#[derive(Clone, Debug)]
pub(crate) struct FileState {
    pub layout: Option<Arc<Layout>>,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// The latest ctime this client knows of the inode.
    pub ctime: Timestamp,
}

impl FileState {
    pub(crate) fn of(e: &Entry) -> FileState {
        FileState {
            layout: e.layout.clone().filter(|l| l.stripe_count() > 0).map(Arc::new),
            uid: e.attr.uid,
            gid: e.attr.gid,
            projid: e.attr.projid,
            ctime: e.attr.ctime,
        }
    }
}

/// Times of a file when it was opened, and of the last read: relatime is decided at close.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct ReadTimes {
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub last_read: Option<Timestamp>,
}

struct OfFile {
    opens: usize,
    state: Option<FileState>,
}

#[derive(Default)]
struct State {
    handles: BTreeMap<u64, OpenRecord>,
    files: BTreeMap<Fid, OfFile>,
}

impl State {
    fn forget(&mut self, handle: u64) {
        let Some(r) = self.handles.remove(&handle) else { return };
        if let Some(f) = self.files.get_mut(&r.fid) {
            f.opens -= 1;
            if f.opens == 0 {
                self.files.remove(&r.fid);
            }
        }
    }

    fn remember(&mut self, r: OpenRecord) {
        self.files.entry(r.fid).or_insert(OfFile { opens: 0, state: None }).opens += 1;
        let old = self.handles.insert(r.handle, r);
        assert!(old.is_none(), "handles are never reused");
    }
}

/// All open files of a mount.
pub(crate) struct Opens {
    next: AtomicU64,
    state: Mutex<State>,
}

impl Opens {
    /// Handles count up from `first`.
    pub(crate) fn new(first: u64) -> Opens {
        Opens { next: AtomicU64::new(first), state: Mutex::default() }
    }

    /// A new handle, in the table before the server hears of it: a reclaim that comes between the open and its
    /// reply must name it.
    pub(crate) fn reserve(&self, fid: Fid, flags: u32) -> R<u64> {
        let mut s = self.state.lock().expect("no panic while locked");
        if s.handles.len() >= OPENS_PER_CLIENT_MAX {
            return Err(ENFILE);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        s.remember(OpenRecord { fid, handle, flags });
        Ok(handle)
    }

    /// The open succeeded, perhaps on another file than the one that would have been created.
    pub(crate) fn opened(&self, handle: u64, e: &Entry) {
        let mut s = self.state.lock().expect("no panic while locked");
        let r = s.handles.get(&handle).cloned().expect("reserved before the open was sent");
        if r.fid != e.attr.fid {
            s.forget(handle);
            s.remember(OpenRecord { fid: e.attr.fid, ..r });
        }
        if let Some(f) = s.files.get_mut(&e.attr.fid) {
            f.state = Some(FileState::of(e));
        }
    }

    /// The open failed, or the handle is closed.
    pub(crate) fn forget(&self, handle: u64) {
        self.state.lock().expect("no panic while locked").forget(handle);
    }

    /// What is known of an open file.
    pub(crate) fn file(&self, fid: Fid) -> Option<FileState> {
        self.state.lock().expect("no panic while locked").files.get(&fid).and_then(|f| f.state.clone())
    }

    /// Newer knowledge of a file, kept if it is open.
    pub(crate) fn learn(&self, e: &Entry) {
        if let Some(f) = self.state.lock().expect("no panic while locked").files.get_mut(&e.attr.fid) {
            let ctime = f.state.as_ref().map_or(e.attr.ctime, |s| s.ctime.max(e.attr.ctime));
            f.state = Some(FileState { ctime, ..FileState::of(e) });
        }
    }

    pub(crate) fn records(&self) -> Vec<OpenRecord> {
        self.state.lock().expect("no panic while locked").handles.values().cloned().collect()
    }
}

const ENFILE: Errno = Errno(23);

impl Fs {
    /// Layout and owner of a file: as known since its open, otherwise asked for.
    pub(crate) async fn file_state(self: &Arc<Self>, fid: Fid) -> R<FileState> {
        if let Some(s) = self.opens.file(fid).filter(|s| s.layout.is_some()) {
            return Ok(s);
        }
        // Not open here, or without objects when it was opened: another mount may have given it some since.
        let e = self.getattr_entry(self.own_ctx(), fid).await?;
        Ok(FileState::of(&e))
    }

    /// As [`Fs::file_state`]; a file without objects (O_LOV_DELAY_CREATE, mknod) gets them now. Whether the caller
    /// may write was decided when the file was opened, so this is asked in the client's own name.
    pub(crate) async fn file_state_for_write(self: &Arc<Self>, fid: Fid) -> R<(FileState, Arc<Layout>)> {
        let mut s = self.file_state(fid).await?;
        if s.layout.is_none() {
            let msg = wire::msg::setlayout::Setlayout { fid, spec: Some(model::LayoutSpec::default()) };
            let e = match self.setlayout_entry(self.own_ctx(), msg).await {
                Ok(e) => e,
                // Another mount was faster.
                Err(Errno::EEXIST | Errno::EALREADY | Errno::EBUSY) => {
                    (*self.getattr_entry(self.own_ctx(), fid).await?).clone()
                }
                Err(e) => return Err(e),
            };
            s = FileState::of(&e);
        }
        let layout = s.layout.clone().ok_or_else(|| {
            tracing::error!("the metadata server gave {fid} no objects");
            Errno::EIO
        })?;
        Ok((s, layout))
    }

    /// An open file from the metadata server's answer.
    pub(crate) fn open_file(&self, handle: u64, flags: u32, e: &Entry) -> OpenFile {
        let times =
            ReadTimes { atime: e.attr.atime, mtime: e.attr.mtime, ctime: e.attr.ctime, last_read: None };
        OpenFile { fid: e.attr.fid, handle, flags, times: Mutex::new(times) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Attr, FileType};

    fn entry(oid: u32) -> Entry {
        let t = Timestamp::ZERO;
        let attr = Attr {
            fid: Fid::new(9, oid, 0),
            kind: FileType::Regular,
            mode: 0,
            nlink: 1,
            uid: 5,
            gid: 6,
            projid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
            btime: t,
            mtime_stamp: t,
            flags: 0,
            version: 0,
        };
        Entry {
            attr,
            layout: None,
            grant: None,
            dir_grant: None,
            parent: Fid::NONE,
            symlink: Vec::new(),
            plain: true,
        }
    }

    #[test]
    fn a_create_that_opened_another_file_is_recorded_under_that_one() {
        let o = Opens::new(40);
        let h = o.reserve(Fid::new(9, 1, 0), 2).unwrap();
        assert_eq!(o.records()[0].fid, Fid::new(9, 1, 0));
        o.opened(h, &entry(2));
        assert_eq!(o.records(), vec![OpenRecord { fid: Fid::new(9, 2, 0), handle: 40, flags: 2 }]);
        assert!(o.file(Fid::new(9, 1, 0)).is_none());
        assert_eq!(o.file(Fid::new(9, 2, 0)).unwrap().uid, 5);
        let second = o.reserve(Fid::new(9, 2, 0), 0).unwrap();
        o.forget(h);
        assert!(o.file(Fid::new(9, 2, 0)).is_some(), "still open once");
        o.forget(second);
        assert!(o.records().is_empty() && o.file(Fid::new(9, 2, 0)).is_none());
    }
}

//! Open files as their users have them, and what reads and writes know of them.
//!
//! A file's layout is used while this mount has a lease on it: the metadata server asks before it changes.
//! Whoever uses an older one all the same is refused: by the metadata server if the data does not lie with
//! the inode any more ([`Data::relayout`]), by an object server if it lies on other objects
//! ([`Data::follow_layout`]); either makes the caller go on with the new one.

use super::Data;
use super::Names;
use crate::base::errseq::{ErrorCursor, ErrorMark};
use crate::mdc::{FileState, ReadTimes};
use crate::{Call, Fs, OpenHandle, R};
use model::mutex::Mutex;
use model::planted::{self, Bug};
use model::{Errno, Fid, FileType, Layout, perm};
use std::sync::Arc;
use wire::msg::lookup::Entry;

/// More refusals than these of one operation are no race any more.
const RELAYOUT_TRIES: u32 = 8;

impl Names {
    /// What the cache knows of a file that may be opened without asking, under this mount's lease on its
    /// inode: until it is asked for the lease nobody can remove the file. The handle is in the table already,
    /// so that whoever gives the lease back meanwhile finds it.
    ///
    /// `None` if the server must be asked: nothing is known, an access list decides, or it would have to give
    /// the file objects.
    pub(crate) fn opened_under_lease(&self, call: &Call, fid: Fid, flags: u32) -> Option<R<Arc<Entry>>> {
        let e = self.lmv.known_entry(fid)?;
        let a = &e.attr;
        let objects = e.layout.is_some() || flags & perm::O_ACCMODE == 0;
        if a.kind != FileType::Regular || a.nlink == 0 || !e.plain || !objects {
            return None;
        }
        let subject =
            perm::Subject { kind: a.kind, mode: a.mode, uid: a.uid, gid: a.gid, flags: a.flags, acl: None };
        Some(perm::may_open(&call.cred, &subject, flags).map(|()| e))
    }

    /// An open file from the metadata server's answer.
    pub(crate) fn open_file(&self, handle: u64, flags: u32, e: &Entry) -> OpenHandle {
        let times =
            ReadTimes { atime: e.attr.atime, mtime: e.attr.mtime, ctime: e.attr.ctime, last_read: None };
        let fid = e.attr.fid;
        let errors = self.cx.told.open(fid);
        let sync = e.attr.flags & perm::FLAG_SYNC != 0;
        OpenHandle { fid, handle, flags, sync, errors, times: Mutex::new(times), group: Mutex::new(None) }
    }
}

/// `$work`, by the layout that is known and by newer ones as often as object servers refuse it. (As a
/// function, its future would not be found to be `Send`.)
macro_rules! following_layout {
    ($data:expr, $fid:expr, $work:expr) => {{
        let mut tries = 0;
        loop {
            match $work.await {
                Err(e) => drop($data.follow_layout($fid, e, &mut tries).await?),
                done => break done,
            }
        }
    }};
}
pub(crate) use following_layout;

impl Data {
    /// Layout and owner of a file: as known since its open, otherwise asked for.
    pub(crate) async fn file_state(self: &Arc<Self>, fid: Fid) -> R<FileState> {
        if let Some(s) = self.meta.opens.file(fid)
            && let Some(l) = &s.layout
            && self.lmv.mdc_of(fid).await?.meta.layout_is_leased(fid, l.generation)
        {
            return Ok(s);
        }
        // Not open here, or without a layout when it was opened: another mount may have given it one since.
        let e = self.lmv.getattr_entry(self.cx.own(), fid).await?;
        self.meta.opens.learn(&e); // also when the cache knew it
        Ok(FileState::of(&e))
    }

    /// As [`Data::file_state`]; a file without a layout (O_LOV_DELAY_CREATE, mknod) gets one now. Whether the
    /// caller may write was decided when the file was opened, so this is asked in the client's own name.
    pub(crate) async fn file_state_for_write(self: &Arc<Self>, fid: Fid) -> R<(FileState, Arc<Layout>)> {
        let mut s = self.file_state(fid).await?;
        if s.layout.is_none() {
            let msg = wire::msg::setlayout::Setlayout { fid, spec: Some(model::LayoutSpec::default()) };
            let e = match self.setlayout_entry(self.cx.own(), msg).await {
                Ok(e) => e,
                // Another mount was faster.
                Err(Errno::EEXIST | Errno::EALREADY | Errno::EBUSY) => {
                    (*self.lmv.getattr_entry(self.cx.own(), fid).await?).clone()
                }
                Err(e) => return Err(e),
            };
            s = FileState::of(&e);
        }
        let layout = s.layout.clone().ok_or_else(|| {
            tracing::error!("the metadata server gave {fid} no layout");
            Errno::EIO
        })?;
        Ok((s, layout))
    }

    /// After the refusal of a data operation: brings the file's layout up to date, or makes the file grow, so
    /// that the caller can try again. Any other error, and one refusal too many, is the caller's.
    pub(crate) async fn relayout(self: &Arc<Self>, fid: Fid, refusal: Errno, tries: &mut u32) -> R<()> {
        if !matches!(refusal, Errno::EGROW | Errno::ERELAYOUT) {
            return Err(refusal);
        }
        if *tries >= RELAYOUT_TRIES {
            // Not the refusal itself: callers that follow object servers would begin all tries anew.
            tracing::error!("{fid}: the metadata server refuses the layout that it gives");
            return Err(Errno::EIO);
        }
        *tries += 1;
        if refusal == Errno::EGROW {
            return self.grow(fid).await;
        }
        let e = self.lmv.getattr_entry(self.cx.own(), fid).await?;
        self.meta.opens.learn(&e); // also when the cache knew it
        Ok(())
    }

    /// After an object server's refusal of a layout: the file with its layout as it is now, so that the
    /// caller can try again. Any other error, and one refusal too many, is the caller's.
    pub(crate) async fn follow_layout(
        self: &Arc<Self>,
        fid: Fid,
        refusal: Errno,
        tries: &mut u32,
    ) -> R<Entry> {
        if !matches!(refusal, Errno::ERELAYOUT | Errno::ESTALE) {
            return Err(refusal);
        }
        if *tries >= RELAYOUT_TRIES {
            tracing::error!("{fid}: its object servers refuse the layout that the metadata server gives");
            return Err(if refusal == Errno::ERELAYOUT { Errno::EIO } else { refusal });
        }
        *tries += 1;
        self.lmv.mdc_of(fid).await?.ask_layout(fid).await
    }
}

impl OpenHandle {
    /// What the close of a descriptor of this file says: an error that its next fsync will tell, which stays
    /// untold. Nothing to who only reads.
    pub fn error_at_close(&self) -> R<()> {
        if planted::on(Bug::ErrorTakenByClose) {
            return self.errors.advance();
        }
        if self.flags & perm::O_ACCMODE == 0 { Ok(()) } else { self.errors.check() }
    }
}

impl Fs {
    /// For whoever opens a directory, or otherwise wants to be told what goes wrong with a file from now on.
    pub fn watch_errors(&self, fid: Fid) -> ErrorCursor {
        self.cx.told.open(fid)
    }

    /// The errors so far.
    pub fn error_mark(&self) -> ErrorMark {
        self.cx.told.mark()
    }
}

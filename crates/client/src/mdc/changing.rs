//! Changes of this mount's own: what they may touch is not used from before a request is sent until it is
//! answered.

use super::Mdc;
use super::cache::{Change, Outcome, Part, name_part};
use super::content::Edit;
use crate::R;
use model::{Errno, Fid};
use std::sync::Arc;
use wire::msg::lookup::Entry;
use wire::msg::unlink::Changed;

/// A change of this mount's own, from before it is sent until it is answered. Dropped without
/// [`Changing::done`] (its caller was interrupted) it lasts until the request can have no effect any more.
pub(crate) struct Changing {
    mdc: Arc<Mdc>,
    change: Option<Change>,
    touched: Vec<(Fid, Vec<u8>)>,
    /// The files that names lead to which it may remove; `None`: any.
    victims: Option<Vec<Fid>>,
    /// The inode, if it is one alone: the cache holder may not know that it changes.
    inode: Option<Fid>,
}

impl Changing {
    /// Before a request that may remove the last name of a file that is open here.
    pub(crate) async fn register_opens(&self) -> R<()> {
        let (mdc, victims) = (&self.mdc, self.victims.as_deref());
        mdc.shared.opens.register(&mdc.cx, &mdc.target, victims, |fid| mdc.is_home_of(fid)).await
    }

    /// The answer is here.
    pub(crate) fn done(mut self, mut outcome: Outcome, error: Option<Errno>) {
        for (dir, name) in std::mem::take(&mut self.touched) {
            let gone = outcome.removed.as_ref() == Some(&name);
            outcome.touched.push((dir, name, gone));
        }
        outcome.unknown = matches!(
            error,
            Some(Errno::EIO | Errno::EPROTO | Errno::ENOTCONN | Errno::ESHUTDOWN | Errno::ETIMEDOUT)
        );
        let change = self.change.take().expect("it ends once");
        self.mdc.end_change(change, &outcome, self.inode);
    }

    /// As [`Changing::done`], for a change of one inode.
    pub(crate) fn done_with(self, r: &R<Entry>) {
        let entries = r.iter().cloned().collect();
        self.done(Outcome { entries, ..Outcome::default() }, r.as_ref().err().copied());
    }

    /// As [`Changing::done_with`], which did this to the file's data if it lies with the inode.
    pub(crate) fn done_edit(self, r: &R<Entry>, edit: Edit) {
        let entries = r.iter().cloned().collect();
        self.done(Outcome { entries, edit, ..Outcome::default() }, r.as_ref().err().copied());
    }

    /// As [`Changing::done`], for a change of names.
    pub(crate) fn done_names(self, r: &R<Changed>, mut outcome: Outcome) {
        outcome.edit = Edit::Nothing;
        match (r, self.touched.as_slice()) {
            (Ok(c), _) => {
                outcome.entries.clone_from(&c.entries);
                outcome.gone.clone_from(&c.gone);
            }
            // Of two names (a rename) that does not say which one is not there, and of a name that is made it
            // says that something else is not: the directory, or the file that is linked.
            (Err(Errno::ENOENT), [(_, name)]) => outcome.removed = Some(name.clone()),
            (Err(_), _) => {}
        }
        self.done(outcome, r.as_ref().err().copied());
    }

    /// As [`Changing::done`], for a file that got a name.
    pub(crate) fn done_named(self, dir: Fid, name: &[u8], r: &R<Entry>) {
        let mut o = Outcome { edit: Edit::Nothing, ..Outcome::default() };
        if let Ok(e) = r {
            o.entries.push(e.clone());
            o.names.push((dir, name.to_vec(), Some(e.attr.fid), e.dir_grant));
        }
        self.done(o, r.as_ref().err().copied());
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let Some(change) = self.change.take() else { return };
        let touched = self.touched.drain(..).map(|(d, n)| (d, n, false)).collect();
        let (mdc, inode, drained) = (self.mdc.clone(), self.inode, self.mdc.target.import.drained());
        self.mdc.cx.world.spawn("client-change-lost", async move {
            drained.await;
            mdc.end_change(change, &Outcome { touched, unknown: true, ..Outcome::default() }, inode);
        });
    }
}

impl Mdc {
    /// Before a request goes out that changes `parts`, among them the inodes of what `names` lead to.
    /// Only the inodes that `parts` and `names` say may change.
    pub(crate) fn changing(
        self: &Arc<Self>,
        mut parts: Vec<(Fid, Part)>,
        names: &[(Fid, &[u8])],
    ) -> Changing {
        let (good, now) = (self.meta.leases_good(), self.cx.world.now());
        let mut c = self.meta.lock();
        // A name that is not known leads to an inode that is not known.
        let mut any = !good;
        let mut victims = Vec::new();
        for (dir, name) in names {
            match c.name(*dir, name, now).filter(|_| good) {
                Some(Some(fid)) => victims.push(fid),
                Some(None) => {}
                None => any = true,
            }
        }
        drop(c);
        parts.extend(victims.iter().map(|fid| (*fid, Part::Attr)));
        let mut change = self.changing_parts(parts, names, any);
        change.victims = (!any).then_some(victims);
        change
    }

    /// As [`Mdc::changing`], for names that are made: what they lead to is not changed.
    pub(crate) fn making(self: &Arc<Self>, dir: Fid, name: &[u8]) -> Changing {
        let parts = vec![(dir, Part::Attr), (dir, Part::List)];
        self.changing_parts(parts, &[(dir, name)], false)
    }

    /// As [`Mdc::making`], for one more name of a file.
    pub(crate) fn linking(self: &Arc<Self>, fid: Fid, dir: Fid, name: &[u8]) -> Changing {
        let parts = vec![(dir, Part::Attr), (dir, Part::List), (fid, Part::Attr)];
        self.changing_parts(parts, &[(dir, name)], false)
    }

    /// As [`Mdc::changing`], for one inode.
    pub(crate) fn changing_inode(self: &Arc<Self>, fid: Fid) -> Changing {
        let mut c = self.changing_parts(vec![(fid, Part::Attr)], &[], false);
        c.inode = Some(fid);
        c
    }

    fn changing_parts(
        self: &Arc<Self>,
        mut parts: Vec<(Fid, Part)>,
        names: &[(Fid, &[u8])],
        any: bool,
    ) -> Changing {
        parts.extend(names.iter().map(|(d, n)| (*d, name_part(n))));
        parts.sort_unstable();
        parts.dedup();
        assert!(!parts.is_empty(), "a change changes something");
        let change = Some(self.meta.lock().begin(parts, any));
        let touched = names.iter().map(|(d, n)| (*d, n.to_vec())).collect();
        Changing { mdc: self.clone(), change, touched, victims: Some(Vec::new()), inode: None }
    }

    fn end_change(&self, change: Change, outcome: &Outcome, inode: Option<Fid>) {
        self.meta.with_cache(|c, now| c.end(change, now, outcome));
        if let Some(fid) = inode {
            self.cx.cache_holder.changed(fid);
        }
    }
}

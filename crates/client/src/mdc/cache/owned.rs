//! What this mount holds exclusively, and operations that are executed on it here.
//!
//! *The rule*: an operation that is executed here touches only what this mount holds exclusively, or made
//! itself since; so nobody can have seen what was there before, and nobody sees what comes of it before the
//! server has heard of it. Whoever is asked for an exclusive lease marks it ([`Cache::leave`]), has
//! everything sent that was executed until then, and only then gives it back. What was made and is not
//! answered yet is as safe as the directory it is in: when any exclusive lease goes, nothing more is executed
//! on it until the server has granted a lease of its own.
//!
//! All functions that execute something return `None` if it must be asked of the server: because something is
//! not held or not known, or because it is not permitted. Then nothing was changed.

use super::{Cache, Cause, Dir, Known, NewFiles, Node, Part, Token, name_part};
use crate::base::jobid::JobId;
use crate::mdc::content::{Came, Edit};
use crate::mdc::listing::Listing;
use crate::mdc::log::{Queued, TOUCHED_MAX};
use crate::mdc::rules::{self, New};
use bytes::Bytes;
use model::inode_rules::{self, FLAG_TRASH, NamesChange};
use model::planted::{self, Bug};
use model::{Cred, Fid, FileType, SetAttr, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use wire::Message;
use wire::msg::create::Create;
use wire::msg::lookup::{Entry, Grant, bits};
use wire::msg::mkdir::Mkdir;
use wire::msg::notify::LeaseItem;
use wire::msg::own::OwnReply;
use wire::msg::readdir::ReaddirReply;
use wire::msg::rename::Rename;
use wire::msg::rmdir::Rmdir;
use wire::msg::setattr::Setattr;
use wire::msg::symlink::Symlink;
use wire::msg::unlink::Unlink;
use wire::msg::write::Write;
use wire::trailing::Trailing;
use world::Instant;

/// Entries of a directory that is worth owning.
const ENTRIES_MAX: u64 = 65_536;
/// A directory of so many bytes has more.
const SIZE_MAX: u64 = inode_rules::dir_size(ENTRIES_MAX);
/// How long a directory is left alone that another client looked at, or that it changed.
const AFTER_LOOK: Duration = Duration::from_millis(100);
const AFTER_CHANGE: Duration = Duration::from_secs(2);

/// On whose behalf an operation is executed, and when.
pub(crate) struct Who<'a> {
    pub cred: &'a Cred,
    pub job: JobId,
    pub time: Timestamp,
    pub now: Instant,
}

/// What stands between a directory and executing operations in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// Nothing that is known: an operation may be tried.
    Nothing,
    /// Its inode is not known.
    Inode,
    /// The lease, and, if `names`, the names.
    Lease { names: bool },
    /// It is not to be had at the moment, or too large.
    Never,
}

/// What became of a part of the answer to [`wire::msg::own::Own`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owned {
    /// The lease is here; the names are asked for behind this cookie.
    More(u64),
    Done,
    Refused,
}

impl Cache {
    // leases

    /// What is to be done before operations can be executed in a directory. `children`: on what is in it,
    /// too.
    pub(crate) fn wants(&mut self, dir: Fid, now: Instant) -> Wants {
        let too_large = |e: &Entry| e.attr.size > SIZE_MAX;
        let Some(n) = self.nodes.map.get(&dir) else { return self.left_alone.wants_lease(dir, true, now) };
        // Names that go into the trash are removed by the server.
        let trash = |e: &Entry| e.attr.flags & FLAG_TRASH != 0;
        let plain = |e: &Entry| e.plain && e.attr.kind == FileType::Directory && !trash(e);
        if n.entry.as_ref().is_some_and(|e| too_large(e) || !plain(e)) {
            return Wants::Never;
        }
        let known = |d: &Dir| d.is_known() || planted::on(Bug::AbsenceAssumed);
        let names = !n.dir.as_deref().is_some_and(known);
        let (leaving, ours, inode) = (n.leaving, n.may_execute(bits::DIRECTORY), n.entry.is_some());
        if leaving {
            Wants::Never
        } else if names || !ours || self.nodes.new_files(dir).is_none() {
            self.left_alone.wants_lease(dir, names, now)
        } else if !inode {
            Wants::Inode
        } else {
            if let Some(n) = self.nodes.map.get_mut(&Fid::DEFAULTS) {
                n.used = now;
            }
            Wants::Nothing
        }
    }

    /// This mount has changed what new files of a directory get; of the root: of all.
    pub(crate) fn forget_new_files(&mut self, dir: Fid) {
        if let Some(d) = self.nodes.dir_mut(dir) {
            d.files = None;
        }
        if dir == Fid::ROOT {
            let back = self.give_up(Fid::DEFAULTS);
            self.unwanted.extend(back);
        }
    }

    /// Whether the inodes in a directory may be asked for; once.
    pub(crate) fn ask_children(&mut self, dir: Fid, now: Instant) -> bool {
        let worth = matches!(self.left_alone.wants_lease(dir, true, now), Wants::Lease { .. });
        worth && self.nodes.dir_mut(dir).is_some_and(|d| !std::mem::replace(&mut d.children_asked, true))
    }

    /// An answer to a request for a directory. `names` were asked for behind `cookie`.
    pub(crate) fn put_own(
        &mut self,
        token: Token,
        r: OwnReply,
        cookie: u64,
        names: bool,
        now: Instant,
    ) -> Owned {
        let dir = r.dir.attr.fid;
        let last = r.entries.last().map(|e| e.cookie).filter(|_| names && !r.end);
        // Only the inode: that names come with a new directory's lease means that it has none.
        let inode = |g: Grant| (g.bits & bits::UPDATE != 0).then_some(Grant { bits: bits::UPDATE, ..g });
        self.put_entry(token, &Entry { grant: r.dir.grant.and_then(inode), ..r.dir.clone() }, now);
        let whole = |g: &Grant| g.exclusive && g.bits & bits::DIRECTORY == bits::DIRECTORY;
        if !r.dir.grant.as_ref().is_some_and(whole) {
            self.left_alone.refused(dir, now);
            return Owned::Refused;
        }
        if !self.hold(token, dir, bits::LOOKUP, r.dir.grant, now) || r.dir.attr.size > SIZE_MAX {
            self.left_alone.refused(dir, now);
            return Owned::Refused;
        }
        if names && cookie == 0 && !self.nodes.names_newer(dir, token) {
            let d = self.nodes.dir_mut(dir).expect("held a moment ago");
            let forgotten = d.names.len();
            let (ahead, children_asked) = (std::mem::take(&mut d.ahead), d.children_asked);
            *d = Dir { ahead, children_asked, ..Dir::default() };
            self.nodes.names -= forgotten;
        }
        if names {
            let page = ReaddirReply {
                entries: r.entries,
                parent: r.dir.parent,
                end: r.end,
                grant: r.dir.grant,
                grows_into: Trailing(None),
            };
            self.put_page(token, dir, cookie, &page, now);
        }
        // Settings of the directory may have changed since they were asked for, or those of the file system.
        let overtaken = self.busy.inode(dir) || self.changes.overtaken(token, dir, Part::Attr).is_some();
        let said = !overtaken && self.hold(token, Fid::DEFAULTS, bits::UPDATE, r.defaults, now);
        let since = self.nodes.map.get(&Fid::DEFAULTS).map_or(0, |n| n.inode_since);
        let layout = r.file_layout.map(Arc::new);
        let Some(d) = self.nodes.dir_mut(dir) else { return Owned::Refused };
        let limited = r.limited.0 == Some(true);
        d.files = said.then_some(NewFiles { layout, since, limited });
        match last {
            Some(cookie) => Owned::More(cookie),
            None if said && (d.complete || planted::on(Bug::AbsenceAssumed)) => {
                d.complete = true;
                Owned::Done
            }
            None => {
                self.left_alone.refused(dir, now);
                Owned::Refused
            }
        }
    }

    /// Whether anything is held exclusively that the server asks for, or may be because its grant is under
    /// way.
    pub(crate) fn is_exclusive(&self, item: &LeaseItem) -> bool {
        self.nodes.map.get(&item.fid).is_some_and(|n| n.made_here || n.exclusive & item.bits != 0)
    }

    /// The server asks for an exclusive lease: from here on nothing is executed on it, nor on what was made
    /// and has no lease of its own yet.
    pub(crate) fn leave(&mut self, item: &LeaseItem, now: Instant) {
        let Some(n) = self.nodes.map.get_mut(&item.fid) else { return };
        let first = !n.leaving;
        n.leaving = true;
        if n.dir.is_some() {
            self.left_alone.leave(item.fid, now, if item.look { AFTER_LOOK } else { AFTER_CHANGE });
        }
        let made: Vec<Fid> = if first { self.log.made().collect() } else { Vec::new() };
        for fid in made {
            if let Some(n) = self.nodes.map.get_mut(&fid) {
                n.leaving = true;
            }
        }
    }

    /// Gives an exclusive lease down to a shared one. False if it is none.
    pub(crate) fn give_down(&mut self, item: &LeaseItem) -> bool {
        self.changes.mark(Cause::Revoked(item.fid, item.bits));
        let Some(n) = self.nodes.map.get_mut(&item.fid) else { return false };
        let whole = n.exclusive & item.bits == item.bits && !n.made_here;
        if whole {
            n.exclusive &= !item.bits;
            n.leaving = false;
        }
        whole
    }

    /// Must not be given back unasked at this moment.
    pub(super) fn is_pinned(&self, fid: Fid) -> bool {
        let dir = |n: &Node| n.exclusive & bits::LOOKUP != 0 && !self.log.is_empty();
        self.log.touches(fid) || self.nodes.map.get(&fid).is_some_and(|n| n.made_here || n.leaving || dir(n))
    }

    /// As [`Cache::clear`], but for the exclusive leases under which there are operations of which the server
    /// does not know: these are to be had again from the restarted server. Nothing more is known of what they
    /// cover.
    pub(crate) fn clear_for_reclaim(&mut self) -> Vec<LeaseItem> {
        let mut owned: Vec<LeaseItem> = Vec::new();
        for fid in self.log.touched().filter(|f| !self.log.makes(*f)) {
            if let Some(n) = self.nodes.map.get(&fid).filter(|n| n.exclusive != 0) {
                owned.push(LeaseItem { fid, bits: n.exclusive, seq: n.seq, look: false });
            }
        }
        owned.sort_by_key(|i| i.fid);
        self.clear();
        let at = self.changes.count();
        for i in &owned {
            assert!(i.bits & !bits::ALL == 0 && i.bits != 0, "what is reclaimed was held");
            let n = Node {
                bits: i.bits,
                exclusive: i.bits,
                seq: i.seq,
                inode_at: at,
                names_at: at,
                listed_since: at,
                inode_since: at,
                dir: (i.bits & bits::LOOKUP != 0).then(Box::default),
                ..Node::default()
            };
            self.nodes.map.insert(i.fid, n);
            self.nodes.queue.push_back(i.fid);
        }
        owned
    }

    /// A batch was answered: (files made in it, leases granted on some of them). Returns the files that were
    /// made and on which there is no lease.
    pub(crate) fn granted_after_create(
        &mut self,
        token: Token,
        made: &[Fid],
        grants: &[(Fid, Grant)],
        now: Instant,
    ) -> Vec<Fid> {
        let mut bare = Vec::new();
        for fid in made {
            let Some(n) = self.nodes.map.get_mut(fid) else { continue };
            n.made_here = false;
            n.leaving = false;
        }
        for (fid, g) in grants {
            for bit in [bits::UPDATE, bits::LOOKUP] {
                self.hold(token, *fid, bit, Some(*g), now);
            }
        }
        for fid in made {
            let Some(n) = self.nodes.map.get_mut(fid) else {
                bare.push(*fid);
                continue;
            };
            let granted = grants.iter().any(|(f, _)| f == fid);
            if !granted || n.exclusive & n.bits != n.bits {
                // What was known of it cannot be relied upon without a lease.
                self.drop_node(*fid);
                bare.push(*fid);
            }
        }
        bare
    }

    /// Operations of a batch were refused: nothing that is known of what they touched is right.
    pub(crate) fn invalidate(&mut self, fids: impl Iterator<Item = Fid>) {
        fids.for_each(|fid| self.forget_all_of(fid));
    }

    /// Nothing that was known or asked for before is right. Its lease stays.
    fn forget_all_of(&mut self, fid: Fid) {
        let at = self.changes.next();
        self.contents.remove(fid);
        let Some(n) = self.nodes.map.get_mut(&fid) else { return };
        (n.inode_at, n.names_at) = (at, at);
        n.forget_entry();
        if let Some(d) = n.dir.as_deref_mut() {
            self.nodes.names -= d.names.len();
            *d = Dir::default();
        }
    }

    // executing

    /// A directory in which `name` may be made or removed: its inode.
    fn owned_dir(&mut self, w: &Who, dir: Fid, name: &[u8]) -> Option<Arc<Entry>> {
        let busy = [Part::Attr, Part::List, name_part(name)].into_iter().any(|p| self.busy.part(dir, p));
        if busy || self.busy.any_inode() > 0 || !rules::is_name(name) {
            return None;
        }
        self.nodes.new_files(dir)?;
        let n = self.nodes.map.get_mut(&dir)?;
        n.dir.as_ref().filter(|d| d.is_known())?;
        let ours = n.bits & bits::DIRECTORY == bits::DIRECTORY && n.may_execute(bits::DIRECTORY);
        let e = n.entry.as_ref().filter(|e| ours && e.plain && e.attr.kind == FileType::Directory)?;
        n.used = w.now;
        Some(e.clone())
    }

    /// An inode that may be changed here.
    fn owned_inode(&mut self, w: &Who, fid: Fid) -> Option<Arc<Entry>> {
        if self.busy.inode(fid) {
            return None;
        }
        let n = self.nodes.map.get_mut(&fid)?;
        if !n.may_execute(bits::UPDATE) {
            return None;
        }
        n.used = w.now;
        n.entry.clone()
    }

    /// What an operation made of an inode that is here, and of the data that is kept of it.
    fn changed(&mut self, fid: Fid, mut e: Entry, edit: &Edit) -> Arc<Entry> {
        let at = self.changes.next();
        inode_rules::written(&mut e.attr);
        self.contents.changed(fid, e.attr.version, edit);
        let e = Arc::new(e);
        let n = self.nodes.map.get_mut(&fid).expect("an operation is executed on what is here");
        n.inode_at = at;
        n.entry = Some(e.clone());
        e
    }

    /// The file is no more. Its lease stays for a while: older answers find out that they are old.
    fn gone(&mut self, fid: Fid) {
        assert!(self.nodes.map.contains_key(&fid), "an operation is executed on what is here");
        self.forget_all_of(fid);
    }

    /// A name of a directory leads there now, or nowhere.
    fn rename_in(&mut self, dir: Fid, name: &[u8], known: Known, change: NamesChange, time: Timestamp) {
        self.nodes.know(dir, name, known);
        let at = self.changes.next();
        let n = self.nodes.map.get_mut(&dir).expect("it is owned");
        n.names_at = at;
        let d = n.dir.as_deref_mut().expect("it is owned");
        let kept = match (known, d.listing.as_mut()) {
            (Known::Absent, Some(l)) => l.remove(name),
            _ => false,
        };
        if !kept {
            d.listing = None;
        }
        let present = d.present as u64;
        let mut e = (**n.entry.as_ref().expect("it is owned")).clone();
        inode_rules::names_changed(&mut e.attr, present, change.dirs, time);
        self.changed(dir, e, &Edit::Nothing);
    }

    fn queue<M: Message>(&mut self, w: &Who, m: &M, bulk: Bytes, touched: &[Fid], made: Fid) {
        let mut all = [Fid::NONE; TOUCHED_MAX];
        all[..touched.len()].copy_from_slice(touched);
        for fid in touched {
            let held = self
                .nodes
                .map
                .get(fid)
                .is_some_and(|n| !n.leaving && (n.made_here || n.exclusive & bits::UPDATE != 0));
            assert!(held, "{:?} touches {fid}, which is not held exclusively", M::OP);
        }
        let q = Queued {
            op: M::OP,
            body: wire::encode_message(m),
            bulk,
            cred: w.cred.clone(),
            job: w.job.clone(),
            time: w.time,
            touched: all,
            made,
        };
        self.log.push(q, w.now);
    }

    /// A new file that nobody else knows of.
    fn insert_new(&mut self, fid: Fid, e: Entry, files: Option<NewFiles>, now: Instant) -> Arc<Entry> {
        let dir = e.attr.kind == FileType::Directory;
        let at = self.changes.next();
        let e = Arc::new(e);
        let n = Node {
            bits: if dir { bits::DIRECTORY } else { bits::UPDATE },
            made_here: true,
            inode_at: at,
            names_at: at,
            listed_since: at,
            blocks: Some(0),
            entry: Some(e.clone()),
            dir: dir.then(|| {
                Box::new(Dir { complete: true, listing: Some(Listing::empty()), files, ..Dir::default() })
            }),
            ..Node::new(now)
        };
        let old = self.nodes.map.insert(fid, n);
        assert!(old.is_none(), "{fid} was never used before");
        self.nodes.queue.push_back(fid);
        e
    }

    /// A new file under its name, as `msg` will tell the server.
    fn link_new<M: Message>(
        &mut self,
        w: &Who,
        msg: &M,
        (dir, name): (Fid, &[u8]),
        e: Entry,
        files: Option<NewFiles>,
    ) -> Arc<Entry> {
        let (fid, change) = (e.attr.fid, NamesChange::added(e.attr.kind));
        let e = self.insert_new(fid, e, files, w.now);
        self.rename_in(dir, name, Known::Is(fid), change, w.time);
        self.queue(w, msg, Bytes::new(), &[dir, fid], fid);
        e
    }

    fn may_make(&mut self, w: &Who, dir: Fid, name: &[u8]) -> Option<Arc<Entry>> {
        let d = self.owned_dir(w, dir, name)?;
        // There is room in the limits of whose directory it is; of others' only the server knows.
        if self.nodes.new_files(dir)?.limited && !rules::is_counted_as(w.cred, &d) {
            return None;
        }
        (!self.log.is_full() && self.nodes.absent(dir, name) && rules::may_add(w.cred, &d)).then_some(d)
    }

    /// As `msg` says; its FID comes from `fid` once it is certain to be used, its layout from the directory.
    pub(crate) fn create(
        &mut self,
        w: &Who,
        mut msg: Create,
        fid: impl FnOnce() -> Option<Fid>,
    ) -> Option<Arc<Entry>> {
        let dir = self.may_make(w, msg.parent, &msg.name)?;
        let layout = self.nodes.new_files(msg.parent)?.layout.clone()?;
        let room = layout.data_room()?;
        msg.fid = fid()?;
        let mut spec = msg.layout.take().unwrap_or_default();
        spec.set_mdt_bytes(room);
        (msg.layout, msg.open) = (Some(spec), None);
        let n = New {
            fid: msg.fid,
            kind: FileType::Regular,
            mode: msg.mode,
            umask: msg.umask,
            cred: w.cred,
            now: w.time,
            symlink: Vec::new(),
            layout: Some((*layout).clone()),
        };
        let e = self.link_new(w, &msg, (msg.parent, &msg.name), rules::new_entry(&dir, n), None);
        self.contents.put(msg.fid, e.attr.version, Bytes::new(), Came::Asked);
        Some(e)
    }

    pub(crate) fn mkdir(
        &mut self,
        w: &Who,
        mut msg: Mkdir,
        fid: impl FnOnce() -> Option<Fid>,
    ) -> Option<Arc<Entry>> {
        let dir = self.may_make(w, msg.parent, &msg.name)?;
        let files = Some(self.nodes.new_files(msg.parent)?.clone());
        msg.fid = fid()?;
        let n = New {
            fid: msg.fid,
            kind: FileType::Directory,
            mode: msg.mode,
            umask: msg.umask,
            cred: w.cred,
            now: w.time,
            symlink: Vec::new(),
            layout: None,
        };
        Some(self.link_new(w, &msg, (msg.parent, &msg.name), rules::new_entry(&dir, n), files))
    }

    pub(crate) fn symlink(
        &mut self,
        w: &Who,
        mut msg: Symlink,
        fid: impl FnOnce() -> Option<Fid>,
    ) -> Option<Arc<Entry>> {
        let dir = self.may_make(w, msg.parent, &msg.name)?;
        let target = &msg.target;
        if target.is_empty() || target.len() > model::limits::SYMLINK_MAX_BYTES || target.contains(&0) {
            return None;
        }
        msg.fid = fid()?;
        let n = New {
            fid: msg.fid,
            kind: FileType::Symlink,
            mode: 0o777,
            umask: 0,
            cred: w.cred,
            now: w.time,
            symlink: msg.target.clone(),
            layout: None,
        };
        Some(self.link_new(w, &msg, (msg.parent, &msg.name), rules::new_entry(&dir, n), None))
    }

    /// `is_open`: a file that is open here must outlive its name, which the server sees to.
    pub(crate) fn unlink(&mut self, w: &Who, msg: &Unlink, is_open: impl Fn(Fid) -> bool) -> Option<()> {
        let dir = self.owned_dir(w, msg.parent, &msg.name)?;
        let fid = self.nodes.named(msg.parent, &msg.name)?;
        let victim = self.owned_inode(w, fid)?;
        let dirs = victim.attr.kind == FileType::Directory;
        if self.log.is_full() || dirs || is_open(fid) || !rules::may_remove(w.cred, &dir, &victim) {
            return None;
        }
        self.queue(w, msg, Bytes::new(), &[msg.parent, fid], Fid::NONE);
        self.rename_in(msg.parent, &msg.name, Known::Absent, NamesChange::removed(victim.attr.kind), w.time);
        self.drop_link(fid, &victim, w.time);
        Some(())
    }

    fn drop_link(&mut self, fid: Fid, victim: &Entry, time: Timestamp) {
        let mut e = victim.clone();
        if inode_rules::unlinked(&mut e.attr, time) {
            self.gone(fid);
        } else {
            self.changed(fid, e, &Edit::Nothing);
        }
    }

    pub(crate) fn rmdir(&mut self, w: &Who, msg: &Rmdir, is_open: impl Fn(Fid) -> bool) -> Option<()> {
        let dir = self.owned_dir(w, msg.parent, &msg.name)?;
        let fid = self.nodes.named(msg.parent, &msg.name)?;
        let victim = self.owned_inode(w, fid)?;
        let busy = self.busy.file(fid);
        let removable =
            victim.attr.kind == FileType::Directory && self.nodes.is_empty_dir(fid) && !busy && !is_open(fid);
        if self.log.is_full() || !removable || !rules::may_remove(w.cred, &dir, &victim) {
            return None;
        }
        self.queue(w, msg, Bytes::new(), &[msg.parent, fid], Fid::NONE);
        self.rename_in(msg.parent, &msg.name, Known::Absent, NamesChange::removed(victim.attr.kind), w.time);
        self.gone(fid);
        Some(())
    }

    /// Only without flags, and not of a directory to another parent.
    pub(crate) fn rename(&mut self, w: &Who, msg: &Rename, is_open: impl Fn(Fid) -> bool) -> Option<()> {
        let from = self.owned_dir(w, msg.parent, &msg.name)?;
        let to = self.owned_dir(w, msg.new_parent, &msg.new_name)?;
        let fid = self.nodes.named(msg.parent, &msg.name)?;
        let src = self.owned_inode(w, fid)?;
        let same = msg.parent == msg.new_parent;
        let dir = src.attr.kind == FileType::Directory;
        if self.log.is_full() || msg.flags != 0 || (dir && !same) {
            return None;
        }
        let victim = match self.nodes.named(msg.new_parent, &msg.new_name) {
            None => None,
            Some(v) => {
                let e = self.owned_inode(w, v)?;
                let file = e.attr.kind != FileType::Directory && !dir;
                if v == fid || !file || is_open(v) {
                    return None;
                }
                Some((v, e))
            }
        };
        if !rules::may_rename(w.cred, [&from, &to], &src, victim.as_ref().map(|v| &*v.1)) {
            return None;
        }
        let mut touched = vec![msg.parent, msg.new_parent, fid];
        touched.extend(victim.as_ref().map(|v| v.0));
        self.queue(w, msg, Bytes::new(), &touched, Fid::NONE);
        let kind = src.attr.kind;
        self.rename_in(msg.parent, &msg.name, Known::Absent, NamesChange::removed(kind), w.time);
        let over = victim.as_ref().map(|(_, v)| NamesChange::replaced(v.attr.kind, kind));
        let change = over.unwrap_or(NamesChange::added(kind));
        self.rename_in(msg.new_parent, &msg.new_name, Known::Is(fid), change, w.time);
        let mut e = (*src).clone();
        inode_rules::moved(&mut e.attr, w.time);
        self.changed(fid, e, &Edit::Nothing);
        if let Some((v, e)) = victim {
            self.drop_link(v, &e, w.time);
        }
        Some(())
    }

    /// Attributes, and the size of a file whose data lies with its inode.
    pub(crate) fn setattr(&mut self, w: &Who, fid: Fid, set: &SetAttr) -> Option<Arc<Entry>> {
        let e = self.owned_inode(w, fid)?;
        // Objects have times of their own.
        let objects = e.attr.kind == FileType::Regular && rules::room(&e).is_none();
        if self.log.is_full() || objects || e.attr.nlink == 0 || !rules::may_give(w.cred, &e, set) {
            return None;
        }
        let mut blocks = self.nodes.map.get(&fid)?.blocks;
        let attr = rules::set(&e, set, blocks.as_mut(), w.cred, w.time)?;
        self.nodes.map.get_mut(&fid)?.blocks = blocks;
        self.queue(w, &Setattr { fid, set: set.clone() }, Bytes::new(), &[fid], Fid::NONE);
        let edit = set.size.map_or(Edit::Nothing, Edit::Size);
        Some(self.changed(fid, Entry { attr, ..(*e).clone() }, &edit))
    }

    /// Data that has room with its inode. `msg` says where, unless it appends; returns where it went.
    pub(crate) fn write(&mut self, w: &Who, mut msg: Write, data: Bytes) -> Option<(u64, Arc<Entry>)> {
        let fid = msg.file;
        let mut e = (*self.owned_inode(w, fid)?).clone();
        let (room, mut blocks) = (rules::room(&e)?, self.nodes.map.get(&fid)?.blocks?);
        if msg.append {
            (msg.append, msg.offset) = (false, e.attr.size);
        }
        let end = msg.offset.checked_add(data.len() as u64)?;
        if self.log.is_full() || e.attr.kind != FileType::Regular || e.attr.nlink == 0 || end > room {
            return None;
        }
        rules::wrote(&mut e.attr, &mut blocks, msg.offset, data.len() as u64, w.time);
        let at = msg.offset;
        self.nodes.map.get_mut(&fid)?.blocks = Some(blocks);
        let edit = Edit::Write { off: at, data: data.clone() };
        self.queue(w, &msg, data, &[fid], Fid::NONE);
        Some((at, self.changed(fid, e, &edit)))
    }
}

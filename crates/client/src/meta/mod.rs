//! The metadata cache of a mount: `cache` holds what is known and by which rules, this file joins it with the
//! sessions.
//!
//! Nothing is used longer than the server may be sure of: a target that was not heard of for the life of a
//! lease ([`rpc::lease_life`]) may have given this client up and let others change what it keeps. A session
//! with a restarted target, or one that evicted this client, begins with an empty cache.
//!
//! Permission is not checked on what is answered from here. A name's answer needs search permission on its
//! directory, which the kernel checks (`default_permissions`) with attributes that are under a lease too; other
//! callers of this library act with one credential.

mod ahead;
mod cache;
mod content;
mod follow;
mod listing;
mod mapped;
mod small;

pub(crate) use cache::{Cache, Outcome, Owned, Part, Token, Wants, Who, name_part};
pub(crate) use content::{CONTENT_MAX_BYTES, Came, Edit};
pub(crate) use small::brought;

use crate::base::Context;
use crate::base::keeper::{Lapsed, Leave};
use crate::opens::Opens;
use crate::pending::Queued;
use crate::session::Target;
use crate::{Fs, R};
use cache::{Brought, Change};
use content::Contents;
use model::limits::LEASES_PER_CLIENT_MAX_FILES;
use model::planted::{self, Bug};
use model::{Errno, Fid, TargetId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use wire::msg::lookup::{Entry, LookupReply, bits};
use wire::msg::notify::{LEASE_ITEMS_MAX, LeaseItem, Notice};
use wire::msg::readdir::{Dirent, ReaddirReply};
use wire::msg::unlink::Changed;

/// `lru_size`: files with leases.
pub(crate) const LRU_FILES_DEFAULT: usize = 131_072;
/// `lru_max_age`, as Lustre has it.
pub(crate) const LRU_AGE_DEFAULT: Duration = Duration::from_secs(3900);
/// `statahead_max`: entries of a directory fetched at a time because they may be asked for next.
pub(crate) const STATAHEAD_DEFAULT: usize = 8192;
/// About what an entry takes in the kernel's buffer, with its attributes, besides its name.
const ENTRY_BYTES: usize = 32;
const PLUS_BYTES: usize = 128;

/// The cache and what is counted about it.
pub(crate) struct Meta {
    cache: Mutex<Cache>,
    cx: Arc<Context>,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub revoked: AtomicU64,
    pub fetched_ahead: AtomicU64,
    /// Runs of stat-ahead, and those that were in vain because others change the directory.
    pub ahead_runs: AtomicU64,
    pub ahead_in_vain: AtomicU64,
    /// Milliseconds.
    pub max_age: AtomicU64,
    pub statahead_max: AtomicU64,
    /// What small files' data and extended attributes take that are kept.
    pub content_bytes: Arc<AtomicU64>,
    pub content_hits: AtomicU64,
    pub content_misses: AtomicU64,
    pub content_ahead: AtomicU64,
    fetching: small::Fetches,
    mapped: Arc<mapped::Mapped>,
}

impl Meta {
    /// `content_max`: bytes of small files that may be kept.
    pub(crate) fn new(cx: Arc<Context>, content_max: u64) -> Meta {
        let content_bytes = Arc::new(AtomicU64::new(0));
        let contents = Contents::new(content_max as usize, content_bytes.clone());
        Meta {
            cache: Mutex::new(Cache::new(LRU_FILES_DEFAULT, contents)),
            content_bytes,
            content_hits: AtomicU64::new(0),
            content_misses: AtomicU64::new(0),
            content_ahead: AtomicU64::new(0),
            fetching: small::Fetches::default(),
            mapped: Arc::default(),
            cx,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            fetched_ahead: AtomicU64::new(0),
            ahead_runs: AtomicU64::new(0),
            ahead_in_vain: AtomicU64::new(0),
            max_age: AtomicU64::new(LRU_AGE_DEFAULT.as_millis() as u64),
            statahead_max: AtomicU64::new(STATAHEAD_DEFAULT as u64),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("no panic while locked")
    }

    /// When a request starts.
    pub(crate) fn token(&self) -> Token {
        self.lock().token()
    }

    /// The leases are gone because the server gave this client up, and with them what was executed under them and not
    /// sent: `report` is told what, before anybody can find that nothing waits any more.
    pub(crate) fn clear(&self, life: u64, report: impl FnOnce(&[Queued])) {
        {
            let mut c = self.lock();
            c.clear();
            report(&c.log.lose_all(life));
        }
        self.forget_all();
    }

    /// The leases are gone with the server that granted them, but for those that are returned.
    pub(crate) fn clear_for_reclaim(&self) -> Vec<LeaseItem> {
        let owned = self.lock().clear_for_reclaim();
        self.forget_all();
        owned
    }

    /// Whether the server may not know of this file yet.
    pub(crate) fn is_made_here(&self, fid: Fid) -> bool {
        self.lock().log.makes(fid)
    }

    fn forget_all(&self) {
        if let Some(k) = self.cx.keeper.get() {
            for fid in self.mapped.take() {
                k.forget_pages(fid, vec![(0, u64::MAX)], Leave::new(|| {}));
            }
            k.forget_all();
        }
    }

    pub(crate) fn lease_count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn max_files(&self) -> usize {
        self.lock().max_files
    }

    fn count(&self, hit: bool) {
        if hit { &self.hits } else { &self.misses }.fetch_add(1, Relaxed);
    }
}

/// What the cache says of a name.
pub(crate) enum Found {
    There(Arc<Entry>),
    Absent,
    /// The server must be asked.
    Unknown,
}

/// A change of this mount's own, from before it is sent until it is answered. Dropped without
/// [`Changing::done`] (its caller was interrupted) it lasts until the request can have no effect any more.
pub(crate) struct Changing {
    fs: Arc<Fs>,
    mdt: Arc<Target>,
    change: Option<Change>,
    touched: Vec<(Fid, Vec<u8>)>,
    /// The files that names lead to which it may remove; `None`: any.
    victims: Option<Vec<Fid>>,
    /// The inode, if it is one alone: the keeper may not know that it changes.
    inode: Option<Fid>,
}

impl Changing {
    /// Before a request that may remove the last name of a file that is open here.
    pub(crate) async fn register_opens(&self) -> R<()> {
        self.fs.register_opens(&self.mdt, self.victims.as_deref()).await
    }

    /// The answer is here.
    pub(crate) fn done(mut self, mut outcome: Outcome, error: Option<Errno>) {
        // Of two names (a rename) that does not say which one is not there.
        let absent = error == Some(Errno::ENOENT) && self.touched.len() == 1;
        for (dir, name) in std::mem::take(&mut self.touched) {
            let gone = absent || outcome.removed.as_ref() == Some(&name);
            outcome.touched.push((dir, name, gone));
        }
        outcome.unknown = matches!(
            error,
            Some(Errno::EIO | Errno::EPROTO | Errno::ENOTCONN | Errno::ESHUTDOWN | Errno::ETIMEDOUT)
        );
        let change = self.change.take().expect("it ends once");
        self.fs.end_change(change, &outcome, self.inode);
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
        if let Ok(c) = r {
            outcome.entries.clone_from(&c.entries);
            outcome.gone.clone_from(&c.gone);
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
        let (fs, inode, drained) = (self.fs.clone(), self.inode, self.mdt.import.drained());
        self.fs.cx.world.spawn("client-change-lost", async move {
            drained.await;
            fs.end_change(change, &Outcome { touched, unknown: true, ..Outcome::default() }, inode);
        });
    }
}

impl Fs {
    pub(crate) fn meta_target(&self, fid: Fid) -> Option<Arc<Target>> {
        self.targets.get(TargetId::mdt(self.locate.mdt_of(fid)))
    }

    /// Whether leases on this file are good at this moment.
    pub(crate) fn leases_good(&self, fid: Fid) -> bool {
        self.meta_target(fid).is_some_and(|t| self.cx.world.now() < t.import.leases_until())
    }

    /// A file's inode, if it is known; the objects' part is not in it.
    pub(crate) fn known_entry(&self, fid: Fid) -> Option<Arc<Entry>> {
        let e = if self.leases_good(fid) { self.meta.lock().entry(fid, self.cx.world.now()) } else { None };
        self.meta.count(e.is_some());
        e
    }

    /// As [`Fs::known_entry`], not counted: nobody asked for it.
    pub(crate) fn inode_at_hand(&self, fid: Fid) -> Option<Arc<Entry>> {
        if self.leases_good(fid) { self.meta.lock().entry(fid, self.cx.world.now()) } else { None }
    }

    pub(crate) fn known_name(&self, dir: Fid, name: &[u8]) -> Found {
        let mut found = Found::Unknown;
        if self.leases_good(dir) {
            let (now, mut c) = (self.cx.world.now(), self.meta.lock());
            match c.name(dir, name, now) {
                Some(None) => found = Found::Absent,
                Some(Some(fid)) => {
                    if let Some(e) = c.entry(fid, now) {
                        found = Found::There(e);
                    }
                }
                None => {}
            }
        }
        self.meta.count(!matches!(found, Found::Unknown));
        found
    }

    /// Entries of a directory behind `cookie`, about `max_bytes` of them, with what is known of their inodes if
    /// `plus`; (entries, parent, end). `None` if the server must be asked, also when of too many the inode is not
    /// known.
    pub(crate) fn known_page(
        &self,
        dir: Fid,
        cookie: u64,
        max_bytes: usize,
        plus: bool,
    ) -> Option<(Vec<Dirent>, Fid, bool)> {
        if !self.leases_good(dir) {
            return None;
        }
        let (now, mut c) = (self.cx.world.now(), self.meta.lock());
        let parent = c.entry(dir, now)?.parent;
        let (mut page, end) = c.listing(dir, now, |l| {
            let (items, end) = l.behind(cookie)?;
            let (mut page, mut used) = (Vec::new(), 0);
            for i in items {
                used += entry_bytes(&i.name, plus);
                if !page.is_empty() && used > max_bytes {
                    return Some((page, false));
                }
                let (cookie, fid, kind, name) = (i.cookie, i.fid, i.kind, i.name.to_vec());
                page.push(Dirent { cookie, fid, kind, name, entry: None });
            }
            Some((page, end))
        })??;
        if plus {
            let mut unknown = 0;
            for d in &mut page {
                d.entry = c.entry(d.fid, now).map(|e| (*e).clone());
                unknown += usize::from(d.entry.is_none());
            }
            if unknown * 4 > page.len() {
                return None;
            }
        }
        // A listing that goes on is known up to its last page: an empty one would say that it ends.
        if page.is_empty() && !end { None } else { Some((page, parent, end)) }
    }

    pub(crate) fn is_contended(&self, dir: Fid) -> bool {
        self.meta.lock().is_contended(dir)
    }

    // what answers showed

    pub(crate) fn keep_entry(self: &Arc<Self>, t: Token, e: &Entry) {
        if e.grant.is_some() {
            self.with_cache(|c, now| c.put_entry(t, e, now));
        }
    }

    /// As [`Fs::keep_entry`], with the file's data if the answer brought it.
    pub(crate) fn keep_file(self: &Arc<Self>, t: Token, e: &Entry, data: Brought) {
        if e.grant.is_some() {
            self.with_cache(|c, now| c.put_file(t, e, data, now));
        }
    }

    pub(crate) fn keep_lookup(
        self: &Arc<Self>,
        t: Token,
        dir: Fid,
        name: &[u8],
        r: &LookupReply,
        data: Brought,
    ) {
        self.with_cache(|c, now| {
            if let Some(e) = &r.entry {
                c.put_file(t, e, data, now);
            }
            c.put_name(t, dir, name, r.entry.as_ref().map(|e| e.attr.fid), r.dir_grant, now);
        });
        if r.entry.is_some() {
            self.consider_fetching_ahead(dir);
        }
    }

    pub(crate) fn keep_page(self: &Arc<Self>, t: Token, dir: Fid, cookie: u64, r: &ReaddirReply) {
        self.with_cache(|c, now| c.put_page(t, dir, cookie, r, now));
    }

    /// What there is too much of afterwards goes back.
    pub(crate) fn with_cache<T>(&self, f: impl FnOnce(&mut Cache, world::Instant) -> T) -> T {
        let now = self.cx.world.now();
        let (out, back) = {
            let mut c = self.meta.lock();
            let out = f(&mut c, now);
            let mut back = c.take_unwanted();
            back.extend(c.shrink(now));
            (out, back)
        };
        self.give_back(back);
        out
    }

    // this mount's changes

    /// Before a request goes out that changes `parts`, among them the inodes of what `names` lead to.
    /// Only the inodes that `parts` and `names` say may change.
    pub(crate) fn changing(
        self: &Arc<Self>,
        mdt: &Arc<Target>,
        mut parts: Vec<(Fid, Part)>,
        names: &[(Fid, &[u8])],
    ) -> Changing {
        let (good, now) = (names.iter().all(|n| self.leases_good(n.0)), self.cx.world.now());
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
        let mut change = self.changing_parts(mdt, parts, names, any);
        change.victims = (!any).then_some(victims);
        change
    }

    /// As [`Fs::changing`], for names that are made: what they lead to is not changed.
    pub(crate) fn making(self: &Arc<Self>, mdt: &Arc<Target>, dir: Fid, name: &[u8]) -> Changing {
        let parts = vec![(dir, Part::Attr), (dir, Part::List)];
        self.changing_parts(mdt, parts, &[(dir, name)], false)
    }

    /// As [`Fs::making`], for one more name of a file.
    pub(crate) fn linking(self: &Arc<Self>, mdt: &Arc<Target>, fid: Fid, dir: Fid, name: &[u8]) -> Changing {
        let parts = vec![(dir, Part::Attr), (dir, Part::List), (fid, Part::Attr)];
        self.changing_parts(mdt, parts, &[(dir, name)], false)
    }

    /// As [`Fs::changing`], for one inode.
    pub(crate) fn changing_inode(self: &Arc<Self>, mdt: &Arc<Target>, fid: Fid) -> Changing {
        let mut c = self.changing_parts(mdt, vec![(fid, Part::Attr)], &[], false);
        c.inode = Some(fid);
        c
    }

    fn changing_parts(
        self: &Arc<Self>,
        mdt: &Arc<Target>,
        mut parts: Vec<(Fid, Part)>,
        names: &[(Fid, &[u8])],
        any: bool,
    ) -> Changing {
        parts.extend(names.iter().map(|(d, n)| (*d, name_part(n))));
        parts.sort_unstable();
        parts.dedup();
        let change = Some(self.meta.lock().begin(parts, any));
        let touched = names.iter().map(|(d, n)| (*d, n.to_vec())).collect();
        Changing {
            fs: self.clone(),
            mdt: mdt.clone(),
            change,
            touched,
            victims: Some(Vec::new()),
            inode: None,
        }
    }

    fn end_change(&self, change: Change, outcome: &Outcome, inode: Option<Fid>) {
        self.with_cache(|c, now| c.end(change, now, outcome));
        if let Some(fid) = inode {
            self.keeper_changed(fid);
        }
    }

    /// This mount changed an inode in a way that the keeper may not know of.
    pub(crate) fn keeper_changed(&self, fid: Fid) {
        self.cx.keeper.changed(fid);
    }

    // leases that go

    /// The server needs these leases for another client.
    pub(crate) fn leases_revoked(self: &Arc<Self>, mdt: TargetId, items: &[LeaseItem]) {
        self.meta.revoked.fetch_add(items.len() as u64, Relaxed);
        if planted::on(Bug::CancelBeforeInvalidate) {
            self.cancel_leases(mdt, items);
            let (fs, items) = (self.clone(), items.to_vec());
            self.cx.world.spawn("client-late", async move {
                fs.cx.world.sleep(Duration::from_millis(3)).await;
                items.iter().for_each(|i| fs.meta.lock().revoke(i));
            });
            return;
        }
        let (mut at_once, mut later) = (Vec::new(), Vec::new());
        let end = {
            let (now, mut c) = (self.cx.world.now(), self.meta.lock());
            let early = planted::on(Bug::LeaseBeforePending);
            for i in items {
                if c.is_exclusive(i) {
                    c.leave(i, now);
                    if c.log.is_empty() || early { &mut at_once } else { &mut later }.push(*i);
                } else {
                    at_once.push(*i);
                }
            }
            c.log.end()
        };
        self.let_go_of(mdt, &at_once);
        if !later.is_empty() {
            let fs = self.clone();
            self.cx.world.spawn("client-tell-and-leave", async move {
                fs.pending_over(end).await;
                fs.let_go_of(mdt, &later);
            });
        }
    }

    /// What the server asked for, everything that was executed under it being told: goes, or becomes shared.
    fn let_go_of(&self, mdt: TargetId, items: &[LeaseItem]) {
        let (mut down, mut gone) = (Vec::new(), Vec::new());
        {
            let mut c = self.meta.lock();
            for i in items {
                if i.look && c.give_down(i) {
                    down.push(*i);
                } else {
                    c.revoke(i);
                    gone.push(LeaseItem { look: false, ..*i });
                }
            }
        }
        if !down.is_empty() {
            self.cancel_leases(mdt, &down);
        }
        if !gone.is_empty() {
            self.let_go(mdt, gone);
        }
    }

    fn cancel_leases(&self, mdt: TargetId, items: &[LeaseItem]) {
        if let Some(t) = self.targets.get(mdt) {
            cancel(&self.opens, &t, items);
        }
    }

    /// Tells the server that these are not used any more, when the keeper does not use them either.
    fn let_go(&self, mdt: TargetId, items: Vec<LeaseItem>) {
        let (Some(t), Some(k)) = (self.targets.get(mdt), self.cx.keeper.get()) else {
            return self.cancel_leases(mdt, &items);
        };
        let opens = self.opens.clone();
        let of = |i: &LeaseItem| Lapsed {
            fid: i.fid,
            names: i.bits & bits::LOOKUP != 0,
            inode: i.bits & bits::UPDATE != 0,
        };
        let inodes = items.iter().filter(|i| i.bits & bits::UPDATE != 0).map(|i| i.fid);
        let sweeps = self.sweep_leases(inodes);
        let lapsed = items.iter().map(of).collect();
        let leave = Leave::new(move || cancel(&opens, &t, &items));
        if sweeps.is_empty() {
            return k.lapsed(lapsed, leave);
        }
        let k = k.clone();
        self.cx.world.spawn("client-leave", async move {
            mapped::swept(sweeps).await;
            k.lapsed(lapsed, leave);
        });
    }

    /// Leases that this mount does not use any more.
    pub(crate) fn give_back(&self, items: Vec<LeaseItem>) {
        let mut items = items;
        items.sort_by_key(|i| self.locate.mdt_of(i.fid));
        for part in items.chunk_by(|a, b| self.locate.mdt_of(a.fid) == self.locate.mdt_of(b.fid)) {
            self.let_go(TargetId::mdt(self.locate.mdt_of(part[0].fid)), part.to_vec());
        }
    }

    /// `lru_size`: how many files are kept. 0: none but what is in use at the moment.
    pub(crate) fn set_lru_files(&self, files: usize) {
        self.with_cache(|c, _| c.max_files = files.min(LEASES_PER_CLIENT_MAX_FILES / 2));
    }

    /// Gives every lease back, those under which something was executed that is not sent as soon as it is.
    pub(crate) fn drop_leases(&self) {
        let now = self.cx.world.now();
        let back = {
            let mut c = self.meta.lock();
            // In one step: what is told in between would keep its lease for good.
            self.pending.drop_once_told(&c.log);
            c.expire(now, Duration::ZERO)
        };
        self.give_back(back);
    }

    /// Gives leases back that were not used for `lru_max_age`, until the mount ends.
    pub(crate) fn watch_lease_age(self: &Arc<Self>) {
        const LOOK_EVERY: Duration = Duration::from_secs(60);
        let weak = Arc::downgrade(self);
        let world = self.cx.world.clone();
        self.cx.world.spawn("client-lease-age", async move {
            loop {
                world.sleep(LOOK_EVERY).await;
                let Some(fs) = weak.upgrade().filter(|fs| !fs.cx.is_closed()) else { return };
                let age = Duration::from_millis(fs.meta.max_age.load(Relaxed));
                let back = fs.meta.lock().expire(fs.cx.world.now(), age);
                fs.give_back(back);
            }
        });
    }
}

/// Gives leases back, and says before that what is open under them.
fn cancel(opens: &Opens, mdt: &Target, items: &[LeaseItem]) {
    for part in items.chunks(LEASE_ITEMS_MAX) {
        // A shared lease keeps an open file, too.
        let inodes = part.iter().filter(|i| i.bits & bits::UPDATE != 0 && !i.look).map(|i| i.fid);
        tell_opens(opens, mdt, inodes);
        mdt.import.notice(&Notice::Cancelled { items: part.to_vec() });
    }
}

/// Says what is open of files whose leases do not say so any more.
pub(crate) fn tell_opens(opens: &Opens, mdt: &Target, fids: impl Iterator<Item = Fid>) {
    opens.tell(fids, |all| {
        let all = if planted::on(Bug::OpenNotTold) { &[][..] } else { &all[..] };
        for some in all.chunks(LEASE_ITEMS_MAX) {
            mdt.import.notice(&Notice::Opened { opens: some.to_vec() });
        }
    });
}

fn entry_bytes(name: &[u8], plus: bool) -> usize {
    ENTRY_BYTES + name.len() + if plus { PLUS_BYTES } else { 0 }
}

/// How many of the entries fit into about `room` bytes; at least one.
pub(crate) fn fitting(entries: &[Dirent], room: usize, plus: bool) -> usize {
    let mut used = 0;
    let over = entries.iter().position(|d| {
        used += entry_bytes(&d.name, plus);
        used > room
    });
    over.map_or(entries.len(), |n| n.max(1))
}

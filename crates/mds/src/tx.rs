//! One transaction in the making: reads see the table and the transaction's own writes, so that several
//! operations of a batch follow each other in one record. Nothing is shared before `transact` submits it.

use crate::changelog::Notes;
use crate::growing::Freeze;
use crate::leases::{self, Touched};
use crate::opens::{Open, OpenChange, Opens};
use crate::quotas::{Admitted, Arrival, ArrivalOf, ShareNeeds};
use crate::schema::inode::CountedAs;
use crate::schema::value::{self, OrphanKind, OutboxRecord};
use crate::schema::{DentryValue, Inode, Lease, key};
use crate::shared::Shared;
use crate::ways::Ways;
use crate::{MdsError, namehash};
use bytes::Bytes;
use ldlm::Mode;
use model::changelog::Record;
use model::inode_rules::{self, NamesChange};
use model::layout::LayoutObject;
use model::nodemap::Owner;
use model::planted::{self, Bug};
use model::usage::{QuotaId, Usage, UsageChange};
use model::{Errno, Fid, FileType, Layout, LayoutSpec, ObjectId, Timestamp, limits};
use rpc::ClientId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::View;
use wire::msg::create::CreateReply;
use wire::msg::lookup::{Entry, Grant, bits};
use wire::msg::setowner::OwnerOf;
use wire::msg::write::WriteReply;
use wire::verb::Answer;
use wire::{Op, decode_message};

/// Objects in one outbox record.
const OUTBOX_OBJECTS_MAX: usize = 256;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// `None`: deleted.
type Value = Option<Vec<u8>>;
type WriteSet = BTreeMap<Vec<u8>, Value>;

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dentry {
    pub cookie: u64,
    pub fid: Fid,
    pub kind: FileType,
}

/// What a directory says about a name: its entry, or the cookie that a new one would get.
pub enum Found {
    Entry(Dentry),
    Free(u64),
}

/// How far a transaction had come, to go back to.
#[derive(Clone, Copy)]
pub struct Savepoint {
    undo: usize,
    opens: usize,
    inodes: i64,
    counted: usize,
    arriving: usize,
    records: usize,
}

pub struct Tx<'a> {
    view: View,
    pending: WriteSet,
    /// What each write found in `pending`.
    undo: Vec<(Vec<u8>, Option<Value>)>,
    changes: Vec<OpenChange>,
    /// What the changes come to: each handle they touch, and by how much each file's opens differ.
    handles: BTreeMap<(ClientId, u64), Option<Open>>,
    counts: BTreeMap<Fid, i64>,
    /// Inodes made less inodes removed.
    inodes: i64,
    /// What each inode that was written was counted as, before and after.
    counted: Vec<(CountedAs, CountedAs)>,
    opens: &'a Opens,
    pub shared: &'a Shared,
    /// Whom the answer goes to: it may be granted leases on what it shows.
    client: Option<ClientId>,
    offers: Vec<(Fid, Grant)>,
    /// Of the leases that this answer grants; 0 before the first.
    seq: u64,
    /// What was read, if other clients may have changed some of it and not told.
    looked: Option<Touched>,
    /// What the client asks to have alone.
    claims: Touched,
    /// The operations are an owner's: their space was promised, and what they make is its alone.
    owned: Option<Owned>,
    /// The request's bulk: what a write writes.
    pub bulk: Bytes,
    /// The reply's: what a read read.
    pub reply_data: Vec<u8>,
    replay: Option<Replay>,
    /// Of directories up to the root.
    pub ways: Ways,
    freezes: Vec<Freeze>,
    /// For the changelog.
    pub notes: Notes<'a>,
    /// Who cannot have more space, and whose share of this target would be exceeded.
    pub admitted: Admitted,
    pub needs: ShareNeeds,
    /// Objects that somebody gets whose space is limited.
    pub arriving: Vec<Arrival>,
    /// A tree that has to be counted to this directory with a quota before it moves.
    pub relabel: Option<(Fid, u32)>,
    /// The tree that is counted elsewhere by this transaction before it moves, and what it takes from where.
    pub mover: Option<Fid>,
    pub left: Vec<(u32, Usage)>,
    /// Directories that are counted elsewhere from now on. Whoever has one for himself may make files there
    /// by what was his before: he is asked to tell first.
    pub recounted: Vec<Fid>,
}

/// A request is done again after a restart, to the end it had the first time.
struct Replay {
    /// What was chosen then.
    layout: Option<Layout>,
    /// Where an append went.
    offset: Option<u64>,
    /// Recovery is going on: what clients have open is not known yet, so files without names stay.
    recovering: bool,
}

/// What an owner's operations made: bits of each new inode.
#[derive(Default)]
struct Owned {
    promised: bool,
    made: Touched,
}

/// A finished transaction.
pub struct Outcome {
    pub pending: WriteSet,
    pub changes: Vec<OpenChange>,
    pub inodes: i64,
    pub usage: UsageChange,
    /// Leases that the answer speaks of.
    pub offers: Vec<(Fid, Grant)>,
    pub bulk: Bytes,
    /// The newest transaction that anything read here depends on.
    pub seen: store::Seen,
    /// What was looked at, and what is to be the client's alone.
    pub looked: Touched,
    pub claims: Touched,
    /// Directories that got another parent.
    pub moved: Vec<Fid>,
    /// Directories that are counted elsewhere from now on.
    pub recounted: Vec<Fid>,
    /// Files whose data is frozen from now on.
    pub freezes: Vec<Freeze>,
    /// For the changelog.
    pub records: Vec<Record>,
    /// An owner did all of it already.
    pub owned: bool,
}

impl Outcome {
    /// It only looked.
    pub fn is_nothing(&self) -> bool {
        self.pending.is_empty() && self.changes.is_empty() && self.records.is_empty()
    }
}

impl<'a> Tx<'a> {
    pub fn new(view: View, opens: &'a Opens, shared: &'a Shared) -> Tx<'a> {
        Tx {
            view,
            pending: WriteSet::new(),
            undo: Vec::new(),
            changes: Vec::new(),
            handles: BTreeMap::new(),
            counts: BTreeMap::new(),
            inodes: 0,
            counted: Vec::new(),
            opens,
            shared,
            client: None,
            offers: Vec::new(),
            seq: 0,
            looked: None,
            claims: Touched::new(),
            owned: None,
            bulk: Bytes::new(),
            reply_data: Vec::new(),
            replay: None,
            ways: Ways::default(),
            freezes: Vec::new(),
            notes: Notes::new(&shared.changelog),
            admitted: Admitted::default(),
            arriving: Vec::new(),
            needs: ShareNeeds::default(),
            relabel: None,
            mover: None,
            left: Vec::new(),
            recounted: Vec::new(),
        }
    }

    /// What comes next is done again: `reply` is what `op` came to the first time, and holds the server's
    /// choices.
    pub fn replay(&mut self, op: Op, reply: &[u8], recovering: bool) {
        let mut offset = None;
        let layout = match op.verb().answer {
            Answer::Created => decode_message::<CreateReply>(reply).ok().and_then(|r| r.entry.layout),
            Answer::Entry => decode_message::<Entry>(reply).ok().and_then(|e| e.layout),
            Answer::Written => {
                offset = decode_message::<WriteReply>(reply).ok().map(|r| r.offset);
                None
            }
            _ => None,
        };
        self.replay = Some(Replay { layout, offset, recovering });
    }

    /// Its operations are an owner's.
    pub fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// Something was read of these inodes, not through this transaction.
    pub fn look_at_inodes(&mut self, fids: &BTreeSet<Fid>) {
        if let Some(l) = &mut self.looked {
            for fid in fids {
                *l.entry(*fid).or_default() |= bits::UPDATE;
            }
        }
    }

    pub fn is_replay(&self) -> bool {
        self.replay.is_some()
    }

    /// As [`Shared::check_space`]; what is done again had its room, and so has what an owner was promised.
    pub fn check_space(&self) -> Result<(), Errno> {
        let promised = self.owned.as_ref().is_some_and(|o| o.promised);
        if self.is_replay() || promised { Ok(()) } else { self.shared.check_space() }
    }

    /// `EDQUOT` if somebody would have more than he may. Root may give more to anybody; what was done already
    /// was allowed then. `ESHARE`: what there is of others' shares has to be looked at first.
    pub fn check_limits(&mut self, root: bool, wall: Timestamp) -> Result<(), Errno> {
        let quotas = &self.shared.quotas;
        let done = self.is_replay() || self.owned.as_ref().is_some_and(|o| o.promised);
        let nothing = self.counted.is_empty() && self.arriving.is_empty();
        if done || root || nothing || !quotas.is_active() {
            return Ok(());
        }
        let Shared { usage, directories, .. } = self.shared;
        let change = usage.concerns(&self.usage_change());
        if directories.is_settling() && quotas.limits_directory(&change) {
            return Err(Errno::EGROWING);
        }
        quotas.check(usage, &change, &directories.held(self.mover, usage), wall.sec)?;
        let needs = quotas.short_of_space(usage, &change);
        if needs.ids.iter().any(|id| self.admitted.denied.contains(id)) {
            return Err(Errno::EDQUOT);
        }
        let arrivals: Vec<Arrival> =
            self.arriving.iter().filter(|a| !self.admitted.has(a)).cloned().collect();
        if needs.ids.is_empty() && arrivals.is_empty() {
            return Ok(());
        }
        self.needs = ShareNeeds { arrivals, ..needs };
        Err(Errno::ESHARE)
    }

    /// What a file has on object targets comes to be counted to somebody else.
    fn arrives(&mut self, fid: Fid, i: &Inode, from: Owner, to: Owner) {
        let Shared { usage, quotas, .. } = self.shared;
        if from == to || !quotas.is_active() || i.objects().next().is_none() {
            return;
        }
        let had = usage.quota_ids(from);
        let new = usage.quota_ids(to).into_iter().filter(|id| !had.contains(id));
        let ids: BTreeSet<QuotaId> = new.filter(|id| quotas.is_space_limited(*id)).collect();
        if !ids.is_empty() {
            let generation = i.layout.as_ref().map_or(0, |l| l.generation);
            let what = ArrivalOf::Objects(i.objects().copied().collect(), generation);
            self.arriving.push(Arrival { fid, ids, what });
        }
    }

    /// What the transaction does to what owners use.
    pub fn usage_change(&self) -> UsageChange {
        assert!(self.counted.iter().all(|(was, is)| was.0 != is.0), "what changes nothing is not counted");
        let mut usage = UsageChange::default();
        self.counted.iter().for_each(|(was, is)| usage.changed(was.0, is.0));
        usage
    }

    /// The layout that a replayed request came to the first time.
    pub fn first_layout(&self) -> Option<&Layout> {
        self.replay.as_ref()?.layout.as_ref()
    }

    /// Where a replayed write went the first time.
    pub fn first_offset(&self) -> Option<u64> {
        self.replay.as_ref()?.offset
    }

    /// As [`Shared::allocate`]; a replayed request gets the layout that it had.
    pub fn allocate(
        &self,
        fid: Fid,
        spec: Option<&LayoutSpec>,
        dir_default: Option<&LayoutSpec>,
    ) -> Result<(Layout, Option<LayoutSpec>), Errno> {
        match self.first_layout() {
            Some(l) => {
                let later = l.mdt_component().map(|_| self.shared.wanted(spec, dir_default));
                Ok((l.clone(), later))
            }
            None => self.shared.allocate(fid, spec, dir_default),
        }
    }

    /// As [`Tx::new`], with an answer that may grant leases to `client`.
    pub fn answering(self, client: ClientId) -> Tx<'a> {
        assert!(
            self.client.is_none() && self.pending.is_empty(),
            "a transaction is one client's from its beginning"
        );
        Tx { client: Some(client), ..self }
    }

    /// Remembers what is read from here on: others own something.
    pub fn watching(self) -> Tx<'a> {
        assert!(self.pending.is_empty(), "what is read is remembered from the first read on");
        Tx { looked: Some(Touched::new()), ..self }
    }

    /// What follows are operations of an owner, which has told its applications already that they are done.
    pub fn own(&mut self) {
        assert!(
            self.owned.is_none() && self.pending.is_empty(),
            "a batch is an owner's from its first operation"
        );
        let promised = self.client.is_some_and(|c| self.shared.leases.is_owner(c));
        self.owned = Some(Owned { promised, made: Touched::new() });
    }

    /// Changes of a file's data wait when this transaction is through. Says later whether it is.
    pub fn freeze(&mut self, fid: Fid) -> Arc<AtomicBool> {
        let (freeze, in_force) = Freeze::new(fid);
        self.freezes.push(freeze);
        in_force
    }

    /// An exclusive lease on a file, if it can be had at this moment. Others that are in the way are asked
    /// for what they have, and the transaction runs again. Not while its data is frozen: what its owner wrote
    /// would wait for the end of that, which waits for what its owner wrote.
    pub fn claim(&mut self, fid: Fid, bits: u8) -> Option<Grant> {
        self.client?;
        if self.shared.growing.contains(fid) {
            return None;
        }
        assert!(bits != 0, "a claim is of something");
        *self.claims.entry(fid).or_default() |= bits;
        self.offer_as(fid, bits, Mode::Exclusive)
    }

    /// A layout that belongs to the whole file system changes: owners of directories must know before it
    /// does.
    pub fn change_defaults(&mut self) {
        *self.claims.entry(Fid::DEFAULTS).or_default() |= bits::UPDATE;
    }

    /// Where a file's data lies changes: whoever has its layout must know before it does.
    pub fn change_layout(&mut self, fid: Fid) {
        *self.claims.entry(fid).or_default() |= bits::LAYOUT;
    }

    /// Names in a directory are removed otherwise from now on: nobody has it for himself before it is so.
    pub fn withdraw_directory(&mut self, fid: Fid) {
        *self.claims.entry(fid).or_default() |= bits::DIRECTORY;
    }

    /// Exclusive leases on what an owner's operations made and left.
    pub fn grant_made(&mut self) -> Result<Vec<(Fid, Grant)>, Errno> {
        assert!(self.owned.is_some(), "only an owner is granted what its operations made");
        let made = self.owned.as_mut().map(|o| std::mem::take(&mut o.made)).unwrap_or_default();
        let mut out = Vec::new();
        for (fid, bits) in made {
            if self.try_inode(fid)?.is_some()
                && let Some(g) = self.offer_as(fid, bits, Mode::Exclusive)
            {
                out.push((fid, g));
            }
        }
        Ok(out)
    }

    pub fn finish(self) -> Outcome {
        assert!(self.pending.len() <= self.undo.len(), "each write can be taken back");
        assert!(self.offers.is_empty() || self.client.is_some(), "leases are granted to a client");
        let touched = self.pending.keys().filter(|k| k[0] == key::INODE).count() as u64;
        assert!(self.inodes.unsigned_abs() <= touched, "inodes that are counted were made or removed");
        let usage = self.usage_change();
        Outcome {
            pending: self.pending,
            changes: self.changes,
            inodes: self.inodes,
            usage,
            offers: self.offers,
            bulk: self.reply_data.into(),
            seen: self.view.dependencies(),
            looked: self.looked.unwrap_or_default(),
            claims: self.claims,
            moved: self.ways.moved,
            recounted: self.recounted,
            freezes: self.freezes,
            records: self.notes.records,
            owned: self.owned.is_some(),
        }
    }

    /// A lease on what the answer shows of a file, if one can be had at this moment.
    pub fn offer(&mut self, fid: Fid, bits: u8) -> Option<Grant> {
        if self.owned.is_some() {
            return None; // what its operations answer is not sent
        }
        self.offer_as(fid, bits, Mode::Shared)
    }

    fn offer_as(&mut self, fid: Fid, bits: u8, mode: Mode) -> Option<Grant> {
        if self.shared.changelog.audits() {
            return None; // who looks at what is to be known: everybody asks each time
        }
        let g = self.shared.leases.offer(self.client?, fid, bits, mode, &mut self.seq)?;
        assert_eq!(g.bits & !bits, 0, "no more is offered than is shown");
        self.offers.push((fid, g));
        Some(g)
    }

    /// Whether it changes anything so far.
    pub fn writes(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The files whose inodes it wrote or removed so far.
    pub fn changed_files(&self) -> Vec<Fid> {
        self.pending.keys().filter(|k| k[0] == key::INODE).filter_map(|k| key::parse_fid(k)).collect()
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            undo: self.undo.len(),
            opens: self.changes.len(),
            inodes: self.inodes,
            counted: self.counted.len(),
            arriving: self.arriving.len(),
            records: self.notes.records.len(),
        }
    }

    /// Takes back everything since `s`.
    pub fn rollback(&mut self, s: Savepoint) {
        let behind = s.undo <= self.undo.len() && s.opens <= self.changes.len();
        assert!(behind, "a transaction goes back to where it was");
        for (k, old) in self.undo.drain(s.undo..).rev() {
            match old {
                Some(v) => self.pending.insert(k, v),
                None => self.pending.remove(&k),
            };
        }
        self.inodes = s.inodes;
        self.counted.truncate(s.counted);
        self.arriving.truncate(s.arriving);
        self.notes.records.truncate(s.records);
        let kept: Vec<_> = self.changes.drain(..).take(s.opens).collect();
        self.handles.clear();
        self.counts.clear();
        for c in kept {
            self.change_open(c);
        }
        assert_eq!(self.changes.len(), s.opens, "opens from before the savepoint stay");
    }

    // raw keys

    pub fn get(&mut self, k: &[u8]) -> Result<Option<Vec<u8>>, MdsError> {
        if let Some(v) = self.pending.get(k) {
            return Ok(v.clone());
        }
        if let Some(l) = &mut self.looked {
            leases::add_to_read_set(l, k);
        }
        Ok(self.view.get(k)?)
    }

    fn write(&mut self, k: Vec<u8>, v: Option<Vec<u8>>) {
        let old = self.pending.insert(k.clone(), v);
        self.undo.push((k, old));
    }

    pub fn put(&mut self, k: Vec<u8>, v: Vec<u8>) {
        self.write(k, Some(v));
    }

    pub fn delete(&mut self, k: Vec<u8>) {
        self.write(k, None);
    }

    /// Keys `from..to` in order, at most `limit`.
    pub fn scan(&mut self, from: &[u8], to: &[u8], limit: usize) -> Result<Pairs, MdsError> {
        if from >= to {
            return Ok(Vec::new());
        }
        if let Some(l) = &mut self.looked {
            leases::add_to_read_set(l, from);
        }
        let own: Vec<_> = self.pending.range(from.to_vec()..to.to_vec()).collect();
        if own.is_empty() {
            return Ok(self.view.scan(from, to, limit)?);
        }
        // Own deletions may hide as many stored keys.
        let want = limit.saturating_add(own.len());
        let stored = self.view.scan(from, to, want)?;
        // Behind a page that is not the last, own keys are not known to be next.
        let bound = if stored.len() == want { stored.last().map(|(k, _)| k.clone()) } else { None };
        let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = stored.into_iter().collect();
        for (k, v) in own {
            match v {
                Some(v) if bound.as_ref().is_none_or(|b| k <= b) => merged.insert(k.clone(), v.clone()),
                Some(_) => None,
                None => merged.remove(k),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }

    // inodes

    pub fn try_inode(&mut self, fid: Fid) -> Result<Option<Inode>, MdsError> {
        let k = key::inode(fid);
        let found = self.get(&k)?.map(|v| Inode::decode(fid, &v)).transpose()?;
        // What this transaction removed is known to be gone; an owner's batch waits for nobody.
        let missing_unexplained = found.is_none() && self.owned.is_none() && !self.pending.contains_key(&k);
        if missing_unexplained && self.looked.is_some() {
            self.look_for_maker(fid)?;
        }
        Ok(found)
    }

    /// A file that is not there may have been made by a client that did not tell yet, and named to another by
    /// its FID alone: that looks at everything that the maker owns.
    fn look_for_maker(&mut self, fid: Fid) -> Result<(), MdsError> {
        let k = key::lease(fid.seq);
        let Some(lease) = self.get(&k)?.map(|v| Lease::decode(&k, &v)).transpose()? else { return Ok(()) };
        if self.client.is_some_and(|c| c.0 == lease.client) {
            return Ok(());
        }
        let owned = self.shared.leases.owned_by(lease.client);
        if let Some(l) = &mut self.looked {
            for (fid, bits) in owned {
                *l.entry(fid).or_default() |= bits;
            }
        }
        Ok(())
    }

    /// `ENOENT` if there is no such file (any more).
    pub fn inode(&mut self, fid: Fid) -> Result<Inode, Errno> {
        self.try_inode(fid)?.ok_or(Errno::ENOENT)
    }

    /// `ENOTDIR` if it is no directory.
    pub fn dir(&mut self, fid: Fid) -> Result<Inode, Errno> {
        let i = self.inode(fid)?;
        if i.is_dir() { Ok(i) } else { Err(Errno::ENOTDIR) }
    }

    /// An inode that a name or pointer promises.
    pub fn promised(&mut self, fid: Fid) -> Result<Inode, Errno> {
        match self.try_inode(fid)? {
            Some(i) => Ok(i),
            None => Err(MdsError::Missing { what: "inode", fid }.into()),
        }
    }

    pub fn put_inode(&mut self, fid: Fid, i: &mut Inode) {
        inode_rules::written(i);
        let is = CountedAs(Some(i.usage()));
        let was = std::mem::replace(&mut i.counted, is);
        if let (Some((from, _)), Some((to, _))) = (was.0, is.0) {
            self.arrives(fid, i, from, to);
        }
        self.count(was, is);
        self.put(key::inode(fid), i.encode());
    }

    /// What an inode was counted as, and is from now on.
    fn count(&mut self, was: CountedAs, is: CountedAs) {
        if was.0 != is.0 && !planted::on(Bug::UsageForgotten) {
            self.counted.push((was, is));
        }
    }

    /// The file has another owner: its objects are counted to that one. OSTs are told when this is durable.
    pub fn tell_owner(&mut self, fid: Fid, i: &Inode) {
        if planted::on(Bug::ChownUncounted) {
            return;
        }
        let (owner, as_of) = (i.owner(), i.ctime);
        let objects: Vec<_> = i.objects().copied().collect();
        self.tell_osts(&objects, |objects| OutboxRecord::Owner(OwnerOf::new(fid, owner, as_of, objects)));
    }

    /// A new inode with its objects' reverse index.
    pub fn add_inode(&mut self, fid: Fid, i: &mut Inode) {
        let other = self.pending.get(&key::inode(fid)).is_some_and(Option::is_some);
        assert!(!other, "{fid} is made twice");
        self.put_inode(fid, i);
        self.index_objects(fid, i);
        self.inodes += 1;
        if let Some(o) = &mut self.owned {
            o.made.insert(fid, if i.is_dir() { bits::DIRECTORY } else { bits::UPDATE });
        }
    }

    /// Writes the reverse index for the layout.
    pub fn index_objects(&mut self, fid: Fid, i: &Inode) {
        if planted::on(Bug::ForgottenReverseIndex) {
            return;
        }
        for o in i.objects() {
            self.put(key::reverse(o.ost, o.id), value::encode_owner(fid));
        }
    }

    /// Objects that no file has any more: out of the reverse index, into the outbox.
    pub fn give_up_objects(&mut self, objects: &[LayoutObject]) {
        for o in objects {
            self.delete(key::reverse(o.ost, o.id));
        }
        if !planted::on(Bug::ForgottenDestroy) {
            self.tell_osts(objects, OutboxRecord::Destroy);
        }
    }

    /// Records in the outbox of each OST that has some of the objects.
    fn tell_osts(&mut self, objects: &[LayoutObject], record: impl Fn(Vec<ObjectId>) -> OutboxRecord) {
        let mut by_ost: BTreeMap<u16, Vec<ObjectId>> = BTreeMap::new();
        for o in objects {
            by_ost.entry(o.ost).or_default().push(o.id);
        }
        for (ost, objects) in by_ost {
            for part in objects.chunks(OUTBOX_OBJECTS_MAX) {
                let seq = self.shared.next_outbox_seq();
                self.put(key::outbox(ost, seq), value::encode_outbox(&record(part.to_vec())));
            }
        }
    }

    // names

    /// Looks a name up.
    pub fn find(&mut self, dir: Fid, name: &[u8]) -> Result<Found, MdsError> {
        let first = namehash::first_cookie(self.shared.hash_key, name);
        let (from, to) = (key::dentry_from(dir, first), key::dentry_from(dir, first + namehash::SLOTS));
        let mut free = first;
        for (k, v) in self.scan(&from, &to, namehash::SLOTS as usize)? {
            let (_, cookie, n) = key::parse_dentry(&k).ok_or_else(|| MdsError::Damaged {
                what: "directory entry",
                key: value::hex(&k),
                why: "its key is short".into(),
            })?;
            if n == name {
                let d = DentryValue::decode(&k, &v)?;
                return Ok(Found::Entry(Dentry { cookie, fid: d.fid, kind: d.kind }));
            }
            if cookie == free {
                free += 1;
            }
        }
        if free == first + namehash::SLOTS {
            return Err(MdsError::Refused(format!(
                "directory {dir}: {} names have the same hash",
                namehash::SLOTS
            )));
        }
        Ok(Found::Free(free))
    }

    /// `ENOENT` if the directory has no such name.
    pub fn entry(&mut self, dir: Fid, name: &[u8]) -> Result<Dentry, Errno> {
        match self.find(dir, name)? {
            Found::Entry(d) => Ok(d),
            Found::Free(_) => Err(Errno::ENOENT),
        }
    }

    /// Writes a directory entry and its back-pointer, over an older entry of that name if there is one
    /// (whose back-pointer is the caller's business).
    pub fn put_name(&mut self, dir: Fid, cookie: u64, name: &[u8], fid: Fid, kind: FileType) {
        let bounded = !name.is_empty() && name.len() <= limits::NAME_MAX_BYTES;
        assert!(bounded, "a name is looked at before it is written");
        assert!((namehash::SLOTS..i64::MAX as u64).contains(&cookie), "cookie {cookie} means something else");
        self.put(key::dentry(dir, cookie, name), DentryValue { fid, kind }.encode());
        self.put(key::backptr(fid, dir, cookie), value::encode_name(name));
    }

    /// Removes a directory entry and its back-pointer.
    pub fn delete_name(&mut self, dir: Fid, cookie: u64, name: &[u8], fid: Fid) {
        self.delete(key::dentry(dir, cookie, name));
        self.delete(key::backptr(fid, dir, cookie));
    }

    // opens and orphans

    /// How often a file is open, this transaction's own opens and closes included.
    pub fn open_count(&self, fid: Fid) -> u32 {
        let n = i64::from(self.opens.count(fid)) + self.counts.get(&fid).copied().unwrap_or(0);
        u32::try_from(n).expect("no more closes than opens")
    }

    /// What a handle stands for.
    pub fn open_of(&self, client: ClientId, handle: u64) -> Option<Open> {
        match self.handles.get(&(client, handle)) {
            Some(o) => *o,
            None => self.opens.get(client, handle),
        }
    }

    fn change_open(&mut self, change: OpenChange) {
        let (client, handle, new) = match change {
            OpenChange::Add { client, handle, open } => (client, handle, Some(open)),
            OpenChange::Remove { client, handle } => (client, handle, None),
        };
        let old = self.open_of(client, handle);
        assert!(old.is_some() || new.is_some(), "only what is open is closed");
        if let Some(old) = old {
            *self.counts.entry(old.fid).or_default() -= 1;
        }
        if let Some(new) = new {
            *self.counts.entry(new.fid).or_default() += 1;
        }
        self.handles.insert((client, handle), new);
        self.changes.push(change);
    }

    /// Registers an open. Repeating one is harmless; `EINVAL` if the handle stands for another file.
    pub fn add_open(&mut self, client: ClientId, handle: u64, open: Open) -> Result<(), Errno> {
        if self.is_replay() {
            // The client said before what it has open; if this is not among it, it was closed since.
            return Ok(());
        }
        match self.open_of(client, handle) {
            Some(o) if o.fid == open.fid => return Ok(()),
            Some(_) => return Err(Errno::EINVAL),
            None => {}
        }
        self.opens.check_room(client)?;
        self.change_open(OpenChange::Add { client, handle, open });
        Ok(())
    }

    /// Ends an open; the last one of an orphan removes the file.
    pub fn remove_open(&mut self, client: ClientId, handle: u64) -> Result<(), Errno> {
        let Some(open) = self.open_of(client, handle) else { return Ok(()) };
        self.change_open(OpenChange::Remove { client, handle });
        let recovering = self.replay.as_ref().is_some_and(|r| r.recovering);
        let last = self.open_count(open.fid) == 0 && !recovering && !planted::on(Bug::OrphanPurgeSkipped);
        if last && self.orphan(open.fid)?.is_some() {
            self.purge(open.fid)?;
        }
        Ok(())
    }

    pub fn orphan(&mut self, fid: Fid) -> Result<Option<OrphanKind>, MdsError> {
        let k = key::orphan(fid);
        self.get(&k)?.map(|v| OrphanKind::decode(&k, &v)).transpose()
    }

    /// The last name of a file went: it stays as an orphan while it is open, otherwise it goes too. `i` has
    /// nlink 0 already.
    pub fn unlinked(&mut self, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
        assert_eq!(i.nlink, 0, "{fid} still has names");
        self.put_inode(fid, i);
        if self.open_count(fid) > 0 || self.replay.as_ref().is_some_and(|r| r.recovering) {
            self.put(key::orphan(fid), OrphanKind::Unlinked.encode());
            Ok(())
        } else {
            self.purge(fid)
        }
    }

    /// Removes a file without names: inode, attributes, data, reverse index; its objects go to the outbox.
    pub fn purge(&mut self, fid: Fid) -> Result<(), Errno> {
        let Some(i) = self.try_inode(fid)? else {
            self.delete(key::orphan(fid));
            return Ok(());
        };
        assert_eq!(i.nlink, 0, "{fid} is removed but has names");
        assert_eq!(self.open_count(fid), 0, "{fid} is removed but open");
        let prefix = key::xattr_prefix(fid);
        if i.large_xattrs > 0 {
            for (k, _) in self.scan(&prefix, &key::behind(&prefix), usize::MAX)? {
                self.delete(k);
            }
        }
        self.remove_data(fid, &i)?;
        let objects: Vec<_> = i.objects().copied().collect();
        self.give_up_objects(&objects);
        if !(planted::on(Bug::OrphanUncounted) && self.orphan(fid)?.is_some()) {
            self.count(i.counted, CountedAs(None));
        }
        self.delete(key::inode(fid));
        self.delete(key::orphan(fid));
        self.inodes -= 1;
        Ok(())
    }

    /// Removes the bytes that lie with the inode, which is the caller's to write or remove.
    pub fn remove_data(&mut self, fid: Fid, i: &Inode) -> Result<(), MdsError> {
        if i.data.blocks > 0 {
            let prefix = key::data_prefix(fid);
            for (k, _) in self.scan(&prefix, &key::behind(&prefix), usize::MAX)? {
                self.delete(k);
            }
        }
        Ok(())
    }

    /// A directory's names changed.
    pub fn names_changed(&mut self, fid: Fid, dir: &mut Inode, change: NamesChange, now: Timestamp) {
        assert!(dir.is_dir(), "{fid} has entries but is no directory");
        let entries = dir.entries.saturating_add_signed(change.names);
        inode_rules::names_changed(dir, entries, change.dirs, now);
        self.put_inode(fid, dir);
    }
}

//! One record that seemed wrong, looked at again in a transaction and mended there if it is. What is mended
//! follows from what is not: names lead to back-pointers and counts, layouts to the reverse index.

use super::found::Why;
use super::outcome::{Action, Mended};
use crate::schema::inode::DATA_BLOCK_BYTES;
use crate::schema::value::{self, ClientRecord, OrphanKind, OutboxRecord};
use crate::schema::{DentryValue, Inode, Lease, key};
use crate::tx::{Found, Tx};
use crate::walk::PAGE;
use model::inode_rules::NamesChange;
use model::{Errno, Fid, FileType, Layout, Timestamp, limits};

/// A transaction that mends.
pub struct Mend<'t, 'a> {
    pub tx: &'t mut Tx<'a>,
    pub now: Timestamp,
    /// A name without a file gets an empty one.
    pub create: bool,
    pub done: Vec<Mended>,
}

/// Whether a record's key is one that its kind has. Others are no transaction's.
pub fn is_well_formed(k: &[u8]) -> bool {
    match k.first() {
        Some(&(key::INODE | key::ORPHAN)) => key::parse_fid(k).is_some(),
        Some(&key::DENTRY) => {
            key::parse_dentry(k).is_some_and(|(_, _, n)| !n.is_empty() && n.len() <= limits::NAME_MAX_BYTES)
        }
        Some(&key::BACKPTR) => key::parse_backptr(k).is_some(),
        Some(&key::REVERSE) => key::parse_reverse(k).is_some(),
        Some(&key::TRASH) => key::parse_trash(k).is_some(),
        Some(&key::OUTBOX) => key::parse_outbox(k).is_some(),
        Some(&key::XATTR) => key::parse_xattr(k).is_some(),
        Some(&key::DATA) => key::parse_data(k).is_some(),
        Some(&key::LEASE) => key::parse_lease(k).is_some(),
        Some(&key::CLIENT) => key::parse_client(k).is_some(),
        Some(&key::CHANGELOG) => key::parse_changelog(k).is_some(),
        _ => true,
    }
}

impl<'t, 'a> Mend<'t, 'a> {
    pub fn new(tx: &'t mut Tx<'a>, now: Timestamp, create: bool) -> Mend<'t, 'a> {
        Mend { tx, now, create, done: Vec::new() }
    }

    pub fn note(&mut self, kind: &'static str, fid: Fid, action: Action, what: impl Into<String>) {
        self.done.push(Mended { kind, fid, action, what: what.into() });
    }

    pub fn repaired(&mut self, kind: &'static str, fid: Fid, what: impl Into<String>) {
        self.note(kind, fid, Action::Repaired, what);
    }

    /// The inode; `None` if there is none, or none that can be read.
    pub fn inode(&mut self, fid: Fid) -> Result<Option<Inode>, Errno> {
        let k = key::inode(fid);
        match self.tx.get(&k)? {
            Some(v) => Ok(Inode::decode(fid, &v).ok()),
            // Whoever made it and did not tell is waited for.
            None => Ok(self.tx.try_inode(fid)?),
        }
    }

    pub(super) fn is_there(&mut self, k: &[u8]) -> Result<bool, Errno> {
        Ok(self.tx.get(k)?.is_some())
    }

    /// Pairs whose key begins with `prefix`, a page at a time.
    pub fn each(&mut self, prefix: &[u8], mut f: impl FnMut(&[u8], &[u8])) -> Result<(), Errno> {
        let (mut from, to) = (prefix.to_vec(), key::behind(prefix));
        loop {
            let page = self.tx.scan(&from, &to, PAGE)?;
            page.iter().for_each(|(k, v)| f(k, v));
            match page.last() {
                Some((k, _)) if page.len() == PAGE => {
                    from.clone_from(k);
                    from.push(0);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Names of a directory came or went. What it had counted wrongly is counted with its inode.
    pub(super) fn renamed(&mut self, dir: Fid, change: NamesChange) -> Result<(), Errno> {
        if let Some(mut i) = self.inode(dir)?.filter(Inode::is_dir) {
            self.tx.names_changed(dir, &mut i, change, self.now);
        }
        Ok(())
    }

    /// Looks at a record again and mends what belongs to it.
    pub fn record(&mut self, k: &[u8]) -> Result<(), Errno> {
        assert!(is_well_formed(k), "a record with another key is no transaction's");
        let Some(v) = self.tx.get(k)? else { return Ok(()) };
        match k[0] {
            key::DENTRY => self.name(k, &v),
            key::BACKPTR => self.back_pointer(k, &v),
            key::INODE => self.whole_inode(key::parse_fid(k).unwrap_or(Fid::NONE), &v),
            key::REVERSE => self.reverse(k, &v),
            key::ORPHAN => self.orphan(k, &v),
            key::TRASH => self.trash_record(k),
            key::OUTBOX => self.outbox(k, &v),
            key::XATTR => self.xattr(k, &v),
            key::DATA => self.data(k, &v),
            key::LEASE => self.lease(k, &v),
            key::CLIENT => self.client(k, &v),
            key::CHANGELOG => self.log_record(k),
            _ => Ok(()),
        }
    }

    /// Takes a record out that cannot be read.
    fn quarantine(&mut self, kind: &'static str, k: &[u8], v: &[u8], why: &str) -> Result<(), Errno> {
        let of = key::parse_file(k)
            .filter(|_| !matches!(k[0], key::REVERSE | key::OUTBOX | key::LEASE | key::CLIENT));
        let of = of.unwrap_or(Fid::NONE);
        let name = self.keep_record(of, k, v)?;
        self.tx.delete(k.to_vec());
        self.note(kind, of, Action::Quarantined, format!("{why}: its bytes are in lost+found as '{name}'"));
        Ok(())
    }

    /// A name: what it is in, what it leads to, its back-pointer.
    fn name(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some((dir, cookie, name)) = key::parse_dentry(k) else { return Ok(()) };
        let shown = String::from_utf8_lossy(name).into_owned();
        let d = match DentryValue::decode(k, v) {
            Ok(d) => d,
            Err(e) => {
                self.quarantine("damaged_name", k, v, &format!("the name '{shown}': {e}"))?;
                // Whether it was a directory's is counted with its directory.
                return self.renamed(dir, NamesChange { names: -1, dirs: 0 });
            }
        };
        if !self.directory_of(dir, k, cookie, &d, &shown)? {
            return Ok(());
        }
        let there = self.is_there(&key::inode(d.fid))?;
        let Some(i) = self.inode(d.fid)? else {
            // What cannot be read is its own record's business.
            return if there { Ok(()) } else { self.dangling(dir, (cookie, name), &d, &shown) };
        };
        if i.kind != d.kind {
            self.tx.put(k.to_vec(), DentryValue { fid: d.fid, kind: i.kind }.encode());
            self.repaired(
                "wrong_type",
                d.fid,
                format!("'{shown}' in {dir} said {:?}, it is {:?}", d.kind, i.kind),
            );
            self.renamed(dir, NamesChange::replaced(d.kind, i.kind))?;
        }
        let b = key::backptr(d.fid, dir, cookie);
        let wanted = value::encode_name(name);
        if self.tx.get(&b)?.as_ref() != Some(&wanted) {
            self.tx.put(b, wanted);
            self.repaired(
                "missing_backpointer",
                d.fid,
                format!("its name '{shown}' in {dir} had no back-pointer"),
            );
            // Its links are counted when all its names have been looked at: with fewer, who removes a name
            // would remove the file.
        }
        self.cookie(dir, (cookie, name), d.fid, i.kind, &shown)?;
        self.label(dir, d.fid)
    }

    /// Whether the name is in a directory; one that is missing is made.
    fn directory_of(
        &mut self,
        dir: Fid,
        k: &[u8],
        cookie: u64,
        d: &DentryValue,
        shown: &str,
    ) -> Result<bool, Errno> {
        let there = self.is_there(&key::inode(dir))?;
        match self.inode(dir)? {
            Some(i) if i.is_dir() => Ok(true),
            Some(_) => {
                self.tx.delete(k.to_vec());
                self.tx.delete(key::backptr(d.fid, dir, cookie));
                self.repaired(
                    "name_in_file",
                    dir,
                    format!("it is no directory, but had the entry '{shown}'"),
                );
                Ok(false)
            }
            None if there => Ok(false),
            None => {
                let mode = if dir == Fid::ROOT { 0o755 } else { 0o700 };
                let mut i = Inode::new(FileType::Directory, mode, 0, 0, self.now);
                if dir == Fid::ROOT || dir == Fid::LOST_FOUND {
                    i.parent = Fid::ROOT;
                    self.repaired("missing_directory", dir, "it was gone and is made anew");
                } else {
                    let name = self.attach(dir, &mut i, (dir, Why::Nameless))?;
                    let what = format!(
                        "the directory of '{shown}' was gone: it is made anew in lost+found as '{name}'"
                    );
                    self.note("missing_directory", dir, Action::Quarantined, what);
                }
                self.tx.add_inode(dir, &mut i);
                self.recount(dir)?;
                Ok(true)
            }
        }
    }

    /// A name that leads to nothing.
    fn dangling(
        &mut self,
        dir: Fid,
        (cookie, name): (u64, &[u8]),
        d: &DentryValue,
        shown: &str,
    ) -> Result<(), Errno> {
        let is_plain = matches!(d.kind, FileType::Regular | FileType::Directory);
        if self.create && is_plain {
            let mode = if d.kind == FileType::Directory { 0o700 } else { 0o600 };
            let mut i = Inode::new(d.kind, mode, 0, 0, self.now);
            i.parent = if d.kind == FileType::Directory { dir } else { Fid::NONE };
            self.tx.put_name(dir, cookie, name, d.fid, d.kind);
            self.tx.add_inode(d.fid, &mut i);
            self.repaired(
                "dangling_name",
                d.fid,
                format!("'{shown}' in {dir} led to no file: an empty one is made"),
            );
            return self.counts(d.fid);
        }
        self.tx.delete_name(dir, cookie, name, d.fid);
        self.repaired(
            "dangling_name",
            d.fid,
            format!("'{shown}' in {dir} led to no file: the name is taken out"),
        );
        self.renamed(dir, NamesChange::removed(d.kind))
    }

    /// A cookie that the name cannot have.
    fn cookie(
        &mut self,
        dir: Fid,
        (cookie, name): (u64, &[u8]),
        fid: Fid,
        kind: FileType,
        shown: &str,
    ) -> Result<(), Errno> {
        let found = self.tx.find(dir, name)?;
        let new = match found {
            Found::Entry(e) if e.cookie == cookie => return Ok(()),
            Found::Free(new) => Some(new),
            // The same name with the right cookie is there.
            Found::Entry(_) => None,
        };
        self.tx.delete_name(dir, cookie, name, fid);
        if let Some(new) = new {
            self.tx.put_name(dir, new, name, fid, kind);
        }
        self.repaired("bad_cookie", fid, format!("'{shown}' in {dir} stood where nobody finds it"));
        if new.is_some() { Ok(()) } else { self.renamed(dir, NamesChange::removed(kind)) }
    }

    /// To which directory with a quota it is counted.
    fn label(&mut self, dir: Fid, fid: Fid) -> Result<(), Errno> {
        let settling = !self.tx.scan(&[key::UNSETTLED], &[key::UNSETTLED + 1], 1)?.is_empty();
        let (Some(at), Some(mut i)) = (self.inode(dir)?, self.inode(fid)?) else { return Ok(()) };
        let shared = !i.is_dir() && i.nlink > 1;
        if settling || shared || i.directory == at.directory || self.tx.shared.directories.of(fid).is_some() {
            return Ok(());
        }
        let was = i.directory;
        i.directory = at.directory;
        i.touch_ctime(self.now);
        self.tx.put_inode(fid, &mut i);
        self.tx.tell_owner(fid, &i);
        self.repaired(
            "wrong_directory",
            fid,
            format!("it was counted to quota {was}, its directory to {}", at.directory),
        );
        Ok(())
    }

    fn back_pointer(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some((fid, parent, cookie)) = key::parse_backptr(k) else { return Ok(()) };
        let Ok(name) = value::decode_name(k, v) else {
            self.tx.delete(k.to_vec());
            self.repaired(
                "damaged_backpointer",
                fid,
                format!("a back-pointer to {parent} could not be read"),
            );
            return Ok(());
        };
        let d = key::dentry(parent, cookie, &name);
        let agrees =
            self.tx.get(&d)?.is_some_and(|v| DentryValue::decode(&d, &v).is_ok_and(|d| d.fid == fid));
        if agrees {
            return Ok(());
        }
        self.tx.delete(k.to_vec());
        let shown = String::from_utf8_lossy(&name).into_owned();
        self.repaired(
            "stale_backpointer",
            fid,
            format!("it pointed back to '{shown}' in {parent}, which is not it"),
        );
        Ok(())
    }

    fn reverse(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some((ost, object)) = key::parse_reverse(k) else { return Ok(()) };
        let owner = value::decode_owner(k, v).ok();
        let owns = match owner {
            Some(fid) => self.inode(fid)?.is_some_and(|i| i.has_object(ost, object)),
            None => false,
        };
        if owns {
            return Ok(());
        }
        // The file it was made for, whatever the entry says.
        let made_for = self.inode(object.origin)?;
        if made_for.is_some_and(|i| i.has_object(ost, object)) {
            self.tx.put(k.to_vec(), value::encode_owner(object.origin));
            self.repaired(
                "wrong_reverse",
                object.origin,
                format!("the reverse index gave its object {object} away"),
            );
            return Ok(());
        }
        self.tx.delete(k.to_vec());
        let fid = owner.unwrap_or(object.origin);
        self.repaired(
            "stale_reverse",
            fid,
            format!("the reverse index named object {object} on OST {ost:04x}, no layout does"),
        );
        Ok(())
    }

    fn orphan(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some(fid) = key::parse_fid(k) else { return Ok(()) };
        if !self.is_there(&key::inode(fid))? {
            self.tx.delete(k.to_vec());
            self.repaired("missing_orphan", fid, "it was listed as an orphan but does not exist");
            return Ok(());
        }
        if OrphanKind::decode(k, v).is_err() {
            let nameless = self.inode(fid)?.is_some_and(|i| i.nlink == 0);
            if nameless {
                self.tx.put(k.to_vec(), OrphanKind::Unlinked.encode());
            } else {
                self.tx.delete(k.to_vec());
            }
            self.repaired("damaged_orphan", fid, "its record as an orphan could not be read");
        }
        Ok(())
    }

    /// A record of the trash whose file is not in it, or not since then. A file that is and has none gets it
    /// with its inode.
    fn trash_record(&mut self, k: &[u8]) -> Result<(), Errno> {
        let Some((when, fid)) = key::parse_trash(k) else { return Ok(()) };
        let unreadable = self.is_there(&key::inode(fid))? && self.inode(fid)?.is_none();
        let is_in = self.inode(fid)?.is_some_and(|i| i.removed.is_some_and(|r| r.when == when));
        if !is_in && !unreadable {
            self.tx.delete(k.to_vec());
            self.repaired("trash", fid, "it was listed in the trash, but is not there");
        }
        Ok(())
    }

    fn outbox(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some((ost, _)) = key::parse_outbox(k) else { return Ok(()) };
        let objects = match value::decode_outbox(k, v) {
            Ok(OutboxRecord::Destroy(objects)) => objects,
            Ok(_) => return Ok(()),
            Err(e) => {
                return self.quarantine("damaged_outbox", k, v, &format!("a message to OST {ost:04x}: {e}"));
            }
        };
        let mut rest = Vec::new();
        for o in &objects {
            if !self.is_there(&key::reverse(ost, *o))? {
                rest.push(*o);
            }
        }
        if rest.len() == objects.len() {
            return Ok(());
        }
        let kept = objects.len() - rest.len();
        if rest.is_empty() {
            self.tx.delete(k.to_vec());
        } else {
            self.tx.put(k.to_vec(), value::encode_outbox(&OutboxRecord::Destroy(rest)));
        }
        let fid = objects[0].origin;
        self.repaired(
            "living_destroyed",
            fid,
            format!("{kept} objects on OST {ost:04x} in use were to be destroyed"),
        );
        Ok(())
    }

    fn xattr(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some((fid, name)) = key::parse_xattr(k) else { return Ok(()) };
        let shown = String::from_utf8_lossy(name).into_owned();
        if value::decode_xattr(k, v).is_err() {
            self.quarantine("damaged_xattr", k, v, &format!("the attribute '{shown}' could not be read"))?;
            return self.counts(fid);
        }
        if self.is_there(&key::inode(fid))? {
            return self.counts(fid);
        }
        let mut keys = Vec::new();
        self.each(&key::xattr_prefix(fid), |k, _| keys.push(k.to_vec()))?;
        keys.into_iter().for_each(|k| self.tx.delete(k));
        self.repaired("xattr_of_nothing", fid, "it had extended attributes but does not exist");
        Ok(())
    }

    fn data(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        let Some((fid, block)) = key::parse_data(k) else { return Ok(()) };
        if value::decode_data(k, v).is_err() {
            self.quarantine("damaged_data", k, v, &format!("block {block} of its data could not be read"))?;
            return self.counts(fid);
        }
        if self.is_there(&key::inode(fid))? {
            return self.counts(fid);
        }
        let (mut blocks, mut end) = (0u32, 0u64);
        self.each(&key::data_prefix(fid), |k, v| {
            blocks += 1;
            if let (Some((_, b)), Ok(bytes)) = (key::parse_data(k), value::decode_data(k, v)) {
                end = end.max(u64::from(b) * DATA_BLOCK_BYTES as u64 + bytes.len() as u64);
            }
        })?;
        if end > limits::MDT_DATA_MAX_BYTES {
            self.note(
                "data_of_nothing",
                fid,
                Action::Left,
                format!("it does not exist, but has {end} bytes of data"),
            );
            return Ok(());
        }
        let mut i = Inode::new(FileType::Regular, 0o600, 0, 0, self.now);
        i.layout = Some(Layout::on_mdt(limits::MDT_DATA_MAX_BYTES as u32));
        (i.data.size, i.data.blocks) = (end, blocks);
        let name = self.attach(fid, &mut i, (fid, Why::Data))?;
        self.tx.add_inode(fid, &mut i);
        let what = format!("its inode was gone, its data is in lost+found as '{name}'");
        self.note("data_of_nothing", fid, Action::Quarantined, what);
        Ok(())
    }

    /// No sequence that was handed out is handed out again.
    pub fn sequence(&mut self, seq: u64, fid: Fid) -> Result<(), Errno> {
        let k = key::STATE_NEXT_SEQ;
        let next = self.tx.get(k)?.and_then(|v| value::decode_u64(k, &v).ok()).unwrap_or(0);
        let Some(behind) = seq.checked_add(1).filter(|n| *n > next) else { return Ok(()) };
        self.tx.put(k.to_vec(), value::encode_u64(behind));
        self.repaired(
            "next_sequence",
            fid,
            format!("sequence {seq:#x} is in use, {next:#x} was to be leased next"),
        );
        Ok(())
    }

    fn lease(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        if let Err(e) = Lease::decode(k, v) {
            return self.quarantine("damaged_lease", k, v, &format!("a leased sequence: {e}"));
        }
        self.sequence(key::parse_lease(k).unwrap_or(0), Fid::NONE)
    }

    fn client(&mut self, k: &[u8], v: &[u8]) -> Result<(), Errno> {
        match ClientRecord::decode(k, v) {
            Err(e) => self.quarantine("damaged_client", k, v, &format!("a client's record: {e}")),
            Ok(_) => Ok(()),
        }
    }

    /// A record of the changelog where nobody reads one. Gaps between records are left: a consumer has to
    /// know.
    fn log_record(&mut self, k: &[u8]) -> Result<(), Errno> {
        if self.is_there(key::STATE_CHANGELOG)? {
            return Ok(());
        }
        self.tx.delete(k.to_vec());
        let index = key::parse_changelog(k).unwrap_or(0);
        self.repaired(
            "log_for_nobody",
            Fid::NONE,
            format!("record {index} of the changelog was there for nobody"),
        );
        Ok(())
    }

    /// What the target has beside its files.
    pub fn target(&mut self) -> Result<(), Errno> {
        if !self.is_there(key::STATE_HASH_KEY)? {
            let hash_key = self.tx.shared.hash_key;
            self.tx.put(key::STATE_HASH_KEY.to_vec(), value::encode_hash_key(hash_key));
            self.repaired(
                "hash_key",
                Fid::NONE,
                "the directory hash key was gone, the running server knew it",
            );
        }
        if !self.is_there(&key::inode(Fid::ROOT))? {
            let mut i = Inode::new(FileType::Directory, 0o755, 0, 0, self.now);
            i.parent = Fid::ROOT;
            self.tx.add_inode(Fid::ROOT, &mut i);
            self.repaired("missing_directory", Fid::ROOT, "the root directory was gone and is made anew");
            self.recount(Fid::ROOT)?;
        } else if let Some(mut i) = self.inode(Fid::ROOT)?.filter(|i| i.is_dir() && i.parent != Fid::ROOT) {
            self.place(Fid::ROOT, &mut i)?;
            self.tx.put_inode(Fid::ROOT, &mut i);
        }
        Ok(())
    }
}

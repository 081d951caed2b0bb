//! Everything that is counted in an inode, or follows from it, made what it is counted as.

use super::found::Why;
use super::mend::Mend;
use super::outcome::Action;
use crate::schema::inode::{DATA_BLOCK_BYTES, DataState};
use crate::schema::{DentryValue, Inode, key, value};
use model::inode_rules::NamesChange;
use model::usage::TRASH_LABEL;
use model::{Errno, Fid, FileType};

/// Steps towards the root before a loop is assumed.
const DEPTH_MAX: usize = 1 << 16;

impl Mend<'_, '_> {
    /// What an inode counts, if it can be read.
    pub fn counts(&mut self, fid: Fid) -> Result<(), Errno> {
        match self.tx.get(&key::inode(fid))? {
            Some(v) if Inode::decode(fid, &v).is_ok() => self.whole_inode(fid, &v),
            _ => Ok(()),
        }
    }

    /// A directory's entries changed by a repair, or nobody knows whether.
    pub fn recount(&mut self, dir: Fid) -> Result<(), Errno> {
        let Some(mut i) = self.inode(dir)?.filter(Inode::is_dir) else { return Ok(()) };
        if self.directory(dir, &mut i)? {
            self.tx.put_inode(dir, &mut i);
        }
        Ok(())
    }

    /// One inode with all that belongs to it; `v`: as it is stored.
    pub fn whole_inode(&mut self, fid: Fid, v: &[u8]) -> Result<(), Errno> {
        let mut i = match Inode::decode(fid, v) {
            Ok(i) => i,
            Err(e) => return self.unreadable(fid, v, &e.to_string()),
        };
        if fid.seq >= model::fid::SEQ_NORMAL {
            self.sequence(fid.seq, fid)?;
        }
        let before = i.encode();
        if i.is_dir() {
            self.place(fid, &mut i)?;
            self.directory(fid, &mut i)?;
        } else {
            self.names(fid, &mut i)?;
        }
        if let Some(a) = i.acl.as_mut().filter(|a| a.mode_bits() != i.mode & 0o777) {
            // What both allow.
            let both = a.mode_bits() & i.mode & 0o777;
            a.chmod(both);
            i.mode = i.mode & !0o777 | a.mode_bits();
            self.repaired("acl_mode", fid, "its access list and its mode differed: what both allow is left");
        }
        self.large_xattrs(fid, &mut i)?;
        self.data_of(fid, &mut i)?;
        if i.encode() != before {
            self.tx.put_inode(fid, &mut i);
        }
        self.layout(fid, &i)
    }

    /// An inode that cannot be read: kept as it is for people. A directory goes on with what can be read.
    fn unreadable(&mut self, fid: Fid, v: &[u8], why: &str) -> Result<(), Errno> {
        let name = self.keep_record(fid, &key::inode(fid), v)?;
        let what = format!("{why}: its bytes are in lost+found as '{name}'");
        self.note("damaged_inode", fid, Action::Quarantined, what);
        let entries = !self.tx.scan(&key::dentry_from(fid, 0), &key::dentry_end(fid), 1)?.is_empty();
        if entries || fid == Fid::ROOT {
            let known = Inode::decode_fixed(fid, v).ok().filter(Inode::is_dir);
            let mut i = known.unwrap_or_else(|| Inode::new(FileType::Directory, 0o700, 0, 0, self.now));
            self.place(fid, &mut i)?;
            self.directory(fid, &mut i)?;
            self.tx.put_inode(fid, &mut i);
        } else {
            // Its names are taken out, its data and objects go to lost+found, when they are looked at again.
            self.tx.delete(key::inode(fid));
        }
        Ok(())
    }

    /// Where a file's names are: (directory, cookie, name).
    fn back_pointers(&mut self, fid: Fid) -> Result<Vec<(Fid, u64, Vec<u8>)>, Errno> {
        let mut all = Vec::new();
        self.each(&key::backptr_prefix(fid), |k, v| {
            if let (Some((_, parent, cookie)), Ok(name)) = (key::parse_backptr(k), value::decode_name(k, v)) {
                all.push((parent, cookie, name));
            }
        })?;
        let mut good = Vec::new();
        for (parent, cookie, name) in all {
            let d = key::dentry(parent, cookie, &name);
            if self.tx.get(&d)?.is_some_and(|v| DentryValue::decode(&d, &v).is_ok_and(|d| d.fid == fid)) {
                good.push((parent, cookie, name));
            }
        }
        Ok(good)
    }

    /// Whether it lies in the trash: with a record there, counted to it, without names and links.
    fn in_trash(&mut self, fid: Fid, i: &mut Inode, named: bool) -> Result<bool, Errno> {
        let Some(when) = i.removed.as_ref().map(|r| r.when) else { return Ok(false) };
        let record = key::trash(when, fid);
        if named {
            i.removed = None;
            self.tx.delete(record);
            self.repaired("trash", fid, "it lay in the trash but has a name");
            return Ok(false);
        }
        if self.tx.get(&key::orphan(fid))?.is_some() {
            self.tx.delete(key::orphan(fid));
            self.repaired("trash", fid, "it was listed as an orphan but lies in the trash");
        }
        if self.tx.get(&record)?.is_none() {
            self.tx.put(record, value::encode_trash());
            self.repaired("trash", fid, "it lay in the trash, which did not know it");
        }
        if i.directory != TRASH_LABEL {
            i.directory = TRASH_LABEL;
            self.tx.tell_owner(fid, i);
            self.repaired("trash", fid, "it lay in the trash, but was not counted to it");
        }
        if i.nlink != 0 {
            self.repaired("trash", fid, format!("it lay in the trash and had {} links", i.nlink));
            i.nlink = 0;
        }
        assert!(i.removed.is_some() && i.nlink == 0, "{fid} lies in the trash");
        Ok(true)
    }

    /// Links of what is no directory.
    fn names(&mut self, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
        assert!(!i.is_dir(), "{fid} is a directory, whose links are its subdirectories'");
        let names = self.back_pointers(fid)?.len() as u32;
        if self.in_trash(fid, i, names > 0)? {
            return Ok(());
        }
        let orphan = self.tx.get(&key::orphan(fid))?.is_some();
        if names == 0 && orphan {
            if i.nlink != 0 {
                self.repaired("orphan_links", fid, format!("it has no name and {} links", i.nlink));
                i.nlink = 0;
            }
            return Ok(());
        }
        if names == 0 {
            let name = self.attach(fid, i, (fid, Why::Nameless))?;
            i.nlink = 1;
            let what = format!("it had no name, and has '{name}' in lost+found");
            self.note("nameless_inode", fid, Action::Quarantined, what);
            return Ok(());
        }
        if orphan {
            self.tx.delete(key::orphan(fid));
            self.repaired("named_orphan", fid, "it was listed as an orphan but has names");
        }
        if i.nlink != names {
            self.repaired("nlink", fid, format!("nlink was {}, but it has {names} names", i.nlink));
            i.nlink = names;
        }
        Ok(())
    }

    /// Where a directory lies.
    pub(super) fn place(&mut self, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
        assert!(i.is_dir(), "{fid} is no directory");
        if fid == Fid::ROOT || fid == Fid::LOST_FOUND {
            if i.parent != Fid::ROOT {
                self.repaired("parent", fid, format!("its '..' was {}", i.parent));
                i.parent = Fid::ROOT;
            }
            return Ok(());
        }
        let mut names = self.back_pointers(fid)?;
        if self.in_trash(fid, i, !names.is_empty())? {
            return Ok(());
        }
        let orphan = self.tx.get(&key::orphan(fid))?.is_some();
        if names.is_empty() && orphan {
            return Ok(());
        }
        if orphan {
            self.tx.delete(key::orphan(fid));
            self.repaired("named_orphan", fid, "it was listed as an orphan but has a name");
        }
        if names.len() > 1 {
            // One place; that which `..` says, if it is one.
            let keep = names.iter().position(|(p, ..)| *p == i.parent).unwrap_or(0);
            let kept = names.swap_remove(keep);
            self.take_out(fid, names)?;
            self.repaired("directory_names", fid, "it was in several directories");
            names = vec![kept];
        }
        if let Some((parent, ..)) = names.first()
            && i.parent != *parent
        {
            self.repaired("parent", fid, format!("its '..' was {}, its name is in {parent}", i.parent));
            i.parent = *parent;
        }
        if !names.is_empty() && self.reaches_root(fid, i.parent)? {
            return Ok(());
        }
        let kind = if names.is_empty() { "nameless_directory" } else { "directory_loop" };
        self.take_out(fid, names)?;
        let name = self.attach(fid, i, (fid, Why::Nameless))?;
        let what = format!("no way led to it from the root; it is '{name}' in lost+found");
        self.note(kind, fid, Action::Quarantined, what);
        Ok(())
    }

    fn take_out(&mut self, fid: Fid, names: Vec<(Fid, u64, Vec<u8>)>) -> Result<(), Errno> {
        assert!(fid != Fid::ROOT && fid != Fid::LOST_FOUND, "{fid} has no name that could be taken out");
        for (parent, cookie, name) in names {
            self.tx.delete_name(parent, cookie, &name, fid);
            if parent != fid {
                self.renamed(parent, NamesChange::removed(FileType::Directory))?;
            }
        }
        Ok(())
    }

    fn reaches_root(&mut self, fid: Fid, parent: Fid) -> Result<bool, Errno> {
        let mut at = parent;
        for _ in 0..DEPTH_MAX {
            if at == Fid::ROOT || at == Fid::LOST_FOUND {
                return Ok(true);
            }
            match self.inode(at)? {
                Some(i) if at != fid => at = i.parent,
                Some(_) => return Ok(false),
                // What cannot be read is its own record's business.
                None => return self.is_there(&key::inode(at)),
            }
        }
        Ok(false)
    }

    /// What a directory counts. Whether anything was wrong.
    fn directory(&mut self, fid: Fid, i: &mut Inode) -> Result<bool, Errno> {
        let (mut entries, mut dirs) = (0u64, 0u32);
        self.each(&key::dentry_from(fid, 0)[..17], |k, v| {
            entries += 1;
            dirs += u32::from(DentryValue::decode(k, v).is_ok_and(|d| d.kind == FileType::Directory));
        })?;
        let orphan = self.tx.get(&key::orphan(fid))?.is_some();
        let nlink = if orphan || i.removed.is_some() { 0 } else { 2 + dirs };
        let wrong = (i.entries != entries, i.nlink != nlink);
        if wrong.0 {
            self.repaired("entries", fid, format!("it counted {} entries, but has {entries}", i.entries));
            i.entries = entries;
        }
        if wrong.1 {
            self.repaired("nlink", fid, format!("nlink was {}, but it has {dirs} subdirectories", i.nlink));
            i.nlink = nlink;
        }
        Ok(wrong.0 || wrong.1)
    }

    fn large_xattrs(&mut self, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
        let mut count = 0u32;
        self.each(&key::xattr_prefix(fid), |_, _| count += 1)?;
        if i.large_xattrs != count {
            let what = format!("it counted {} large attributes, but has {count}", i.large_xattrs);
            self.repaired("xattr_count", fid, what);
            i.large_xattrs = count;
        }
        Ok(())
    }

    /// Data that lies with the inode.
    fn data_of(&mut self, fid: Fid, i: &mut Inode) -> Result<(), Errno> {
        let (mut blocks, mut end) = (Vec::new(), 0u64);
        self.each(&key::data_prefix(fid), |k, v| {
            if let (Some((_, block)), Ok(bytes)) = (key::parse_data(k), value::decode_data(k, v)) {
                let start = u64::from(block) * DATA_BLOCK_BYTES as u64;
                if !bytes.is_empty() {
                    end = end.max(start + bytes.len() as u64);
                }
            }
            blocks.push(k.to_vec());
        })?;
        let Some(room) = i.data_room() else {
            if !blocks.is_empty() || i.data != DataState::default() {
                return self.beside_objects(fid, i, (blocks, end));
            }
            return Ok(());
        };
        if i.data.blocks as usize != blocks.len() {
            let what = format!("it counted {} blocks of data, but has {}", i.data.blocks, blocks.len());
            self.repaired("data_blocks", fid, what);
            i.data.blocks = blocks.len() as u32;
        }
        if end > room {
            self.note(
                "data_beyond_room",
                fid,
                Action::Left,
                format!("it has {end} bytes of data, with room for {room}"),
            );
        } else if end > i.data.size {
            let what = format!("its size was {}, but it has data up to {end}", i.data.size);
            self.repaired("data_behind_end", fid, what);
            i.data.size = end;
        } else if i.data.size > room {
            let what =
                format!("its size was {}, but there is room for {room} bytes with its inode", i.data.size);
            self.repaired("data_beyond_room", fid, what);
            i.data.size = end;
        }
        Ok(())
    }

    /// Bytes with an inode whose file lies elsewhere: they get a file of their own.
    fn beside_objects(
        &mut self,
        fid: Fid,
        i: &mut Inode,
        (blocks, end): (Vec<Vec<u8>>, u64),
    ) -> Result<(), Errno> {
        if end > model::limits::MDT_DATA_MAX_BYTES {
            self.note("data_beside_objects", fid, Action::Left, format!("{end} bytes of data are too many"));
            return Ok(());
        }
        let mut bytes = vec![0; end as usize];
        for k in blocks {
            if let (Some((_, block)), Some(v)) = (key::parse_data(&k), self.tx.get(&k)?)
                && let Ok(part) = value::decode_data(&k, &v)
            {
                let start = block as usize * DATA_BLOCK_BYTES;
                if let Some(room) = bytes.get_mut(start..start + part.len()) {
                    room.copy_from_slice(&part);
                }
            }
            self.tx.delete(k);
        }
        let name = if bytes.is_empty() { None } else { Some(self.keep_bytes((fid, Why::Data), &bytes)?) };
        i.data = DataState::default();
        let where_to = name.map_or("nothing in it".into(), |n| format!("it is in lost+found as '{n}'"));
        let what = format!("it had data with its inode, for which its layout has no room: {where_to}");
        self.note("data_beside_objects", fid, Action::Quarantined, what);
        Ok(())
    }

    /// The reverse index of its objects.
    fn layout(&mut self, fid: Fid, i: &Inode) -> Result<(), Errno> {
        for o in i.objects() {
            let k = key::reverse(o.ost, o.id);
            let owner = self.tx.get(&k)?.map(|v| value::decode_owner(&k, &v).ok());
            match owner {
                Some(Some(owner)) if owner == fid => continue,
                Some(Some(other)) if self.inode(other)?.is_some_and(|i| i.has_object(o.ost, o.id)) => {
                    let what = format!("its object {} on OST {:04x} is {other}'s as well", o.id, o.ost);
                    self.note("shared_object", fid, Action::Left, what);
                    continue;
                }
                _ => {}
            }
            self.tx.put(k, value::encode_owner(fid));
            let what =
                format!("its object {} on OST {:04x} was not in the reverse index as its own", o.id, o.ost);
            self.repaired("missing_reverse", fid, what);
        }
        Ok(())
    }
}

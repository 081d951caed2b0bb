//! What an operation says of the change that it made: it becomes a record in the same transaction, if any
//! consumer wants one.

use super::Changelog;
use model::changelog::{Origin, Record, RecordKind, Source, flags};
use model::perm::{O_ACCMODE, O_APPEND, O_TRUNC};
use model::{Cred, Fid, FileType, SetAttr, Timestamp};
use std::sync::Arc;

/// One change.
pub struct Change<'a> {
    kind: RecordKind,
    flags: u16,
    fid: Fid,
    parent: Fid,
    name: &'a [u8],
    source: Option<(Fid, Fid, &'a [u8])>,
    open_flags: u32,
    xattr: &'a [u8],
}

impl<'a> Change<'a> {
    pub fn of(kind: RecordKind, fid: Fid) -> Change<'a> {
        let (parent, name) = (Fid::NONE, &b""[..]);
        Change { kind, flags: 0, fid, parent, name, source: None, open_flags: 0, xattr: b"" }
    }

    /// A file of this kind was made.
    pub fn made(kind: FileType, fid: Fid) -> Change<'a> {
        let kind = match kind {
            FileType::Regular => RecordKind::Create,
            FileType::Directory => RecordKind::Mkdir,
            FileType::Symlink => RecordKind::Symlink,
            _ => RecordKind::Mknod,
        };
        Change::of(kind, fid)
    }

    /// The name that it is about.
    #[must_use]
    pub fn named(self, parent: Fid, name: &'a [u8]) -> Change<'a> {
        Change { parent, name, ..self }
    }

    /// Of a rename: which file, and what it was called.
    #[must_use]
    pub fn renamed(self, fid: Fid, parent: Fid, name: &'a [u8]) -> Change<'a> {
        Change { source: Some((fid, parent, name)), ..self }
    }

    /// A file's last name went with it, or not.
    #[must_use]
    pub fn last_name(self, last: bool) -> Change<'a> {
        Change { flags: if last { flags::LAST_NAME } else { 0 }, ..self }
    }

    #[must_use]
    pub fn flagged(self, flags: u16) -> Change<'a> {
        Change { flags, ..self }
    }

    #[must_use]
    pub fn xattr(self, name: &'a [u8]) -> Change<'a> {
        Change { xattr: name, ..self }
    }

    fn open(kind: RecordKind, fid: Fid, open_flags: u32) -> Change<'a> {
        let shown = open_flags & u32::from(flags::SHOWN);
        let flags = u16::try_from(shown).expect("cut to twelve bits");
        Change { flags, open_flags, ..Change::of(kind, fid) }
    }
}

/// The changes of a transaction, for the changelog.
pub struct Notes<'a> {
    log: &'a Changelog,
    pub records: Vec<Record>,
    /// Who makes them.
    by: Arc<Origin>,
}

impl<'a> Notes<'a> {
    /// Of the server itself, unless it is said otherwise.
    pub fn new(log: &'a Changelog) -> Notes<'a> {
        Notes { log, records: Vec::new(), by: Arc::default() }
    }

    /// Whose changes follow.
    pub fn set_origin(&mut self, by: &Arc<Origin>) {
        assert!(self.records.is_empty(), "who makes changes is known before the first one");
        self.by = by.clone();
    }

    /// On whose behalf, and for which job, the next operations of a batch are.
    pub fn on_behalf(&mut self, cred: &Cred, jobid: &str) {
        Arc::make_mut(&mut self.by).becomes(cred.uid, cred.gid, jobid);
    }

    /// Notes a change, if some consumer wants to know of it.
    pub fn add(&mut self, now: Timestamp, c: Change<'_>) {
        if self.log.wants(c.kind) {
            self.add_at_any_rate(now, c);
        }
    }

    /// Notes it, whoever wants to know.
    pub(super) fn add_at_any_rate(&mut self, now: Timestamp, c: Change<'_>) {
        assert_eq!(
            c.name.is_empty(),
            c.parent == Fid::NONE && c.kind != RecordKind::Mark,
            "a name has a place"
        );
        let source = |(fid, parent, name): (Fid, Fid, &[u8])| Source { fid, parent, name: name.to_vec() };
        self.records.push(Record {
            index: 0, // given when it is known that the transaction is submitted
            kind: c.kind,
            flags: c.flags,
            time: now,
            fid: c.fid,
            parent: c.parent,
            name: c.name.to_vec(),
            source: c.source.map(source),
            by: (*self.by).clone(),
            open_flags: c.open_flags,
            xattr: c.xattr.to_vec(),
        });
    }

    /// A file's data lies elsewhere, or will.
    pub fn add_layout(&mut self, now: Timestamp, fid: Fid) {
        self.add(now, Change::of(RecordKind::Layout, fid));
    }

    pub fn add_open(&mut self, now: Timestamp, fid: Fid, flags: u32) {
        self.add(now, Change::open(RecordKind::Open, fid, flags));
    }

    /// An open that only read is told of if its beginning was.
    pub fn add_close(&mut self, now: Timestamp, fid: Fid, flags: u32) {
        let wrote = flags & (O_ACCMODE | O_TRUNC | O_APPEND) != 0;
        if wrote || self.log.wants(RecordKind::Open) {
            self.add(now, Change { open_flags: 0, ..Change::open(RecordKind::Close, fid, flags) });
        }
    }

    pub fn add_denied_open(&mut self, now: Timestamp, fid: Fid, flags: u32) {
        self.add(now, Change::open(RecordKind::DeniedOpen, fid, flags));
    }

    /// Attributes were set: the first of the types that fit and are wanted.
    pub fn add_attributes(&mut self, now: Timestamp, fid: Fid, set: &SetAttr) {
        let other = [set.mode, set.uid, set.gid, set.projid, set.flags].iter().any(Option::is_some);
        let kinds = [
            (set.size.is_some(), RecordKind::Truncate),
            (other || set.kill_suid_sgid, RecordKind::Setattr),
            (set.mtime.is_some(), RecordKind::Mtime),
            (true, RecordKind::Ctime),
            (set.atime.is_some(), RecordKind::Atime),
        ];
        let wanted = |(fits, kind): &&(bool, RecordKind)| *fits && self.log.wants(*kind);
        if let Some((_, kind)) = kinds.iter().find(wanted) {
            self.add(now, Change { flags: bits_of(set), ..Change::of(*kind, fid) });
        }
    }
}

/// Which attributes were set.
fn bits_of(set: &SetAttr) -> u16 {
    let bit = |is: bool, bit: u16| if is { bit } else { 0 };
    flags::CTIME
        | bit(set.atime.is_some(), flags::ATIME)
        | bit(set.mtime.is_some(), flags::MTIME)
        | bit(set.size.is_some(), flags::SIZE)
        | bit(set.mode.is_some(), flags::MODE)
        | bit(set.uid.is_some(), flags::UID)
        | bit(set.gid.is_some(), flags::GID)
        | bit(set.flags.is_some(), flags::FLAGS)
}

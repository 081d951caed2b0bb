//! What a changelog says: types of records, masks of types, consumers' names, and a record itself. Numbers
//! and words are Lustre's.

use crate::{Errno, Fid, Nid, Timestamp};
use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $num:literal, $word:literal;)*) => {
        /// What a record tells of.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum RecordKind { $($(#[$doc])* $name = $num,)* }

        impl RecordKind {
            pub const ALL: &'static [RecordKind] = &[$(RecordKind::$name,)*];

            /// As masks and `lfs changelog` have it.
            pub fn word(self) -> &'static str {
                match self { $(RecordKind::$name => $word,)* }
            }
        }
    };
}

// The order is part of the stored form.
kinds! {
    /// Recording begins.
    Mark = 0, "MARK";
    Create = 1, "CREAT";
    Mkdir = 2, "MKDIR";
    /// One more name for a file.
    Hardlink = 3, "HLINK";
    Symlink = 4, "SLINK";
    Mknod = 5, "MKNOD";
    Unlink = 6, "UNLNK";
    Rmdir = 7, "RMDIR";
    Rename = 8, "RENME";
    /// Of Lustre before version 2.4, which had two records for a rename.
    RenameTo = 9, "RNMTO";
    Open = 10, "OPEN";
    Close = 11, "CLOSE";
    Layout = 12, "LYOUT";
    Truncate = 13, "TRUNC";
    /// Mode, owner, group, project or flags.
    Setattr = 14, "SATTR";
    Setxattr = 15, "XATTR";
    Hsm = 16, "HSM";
    /// The time of the last change was set, or data that lies with the inode changed.
    Mtime = 17, "MTIME";
    Ctime = 18, "CTIME";
    Atime = 19, "ATIME";
    Migrate = 20, "MIGRT";
    MirrorWrite = 21, "FLRW";
    Resync = 22, "RESYNC";
    Getxattr = 23, "GXATR";
    /// An open that was denied.
    DeniedOpen = 24, "NOPEN";
}

/// A set of types.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Mask(pub u32);

impl Mask {
    pub const NONE: Mask = Mask(0);
    pub const ALL: Mask = Mask((1 << 25) - 1);
    /// What is recorded unless somebody says more or less: all but what only reads.
    pub const DEFAULT: Mask = Mask(
        Mask::ALL.0
            & !(RecordKind::Atime.bit()
                | RecordKind::Open.bit()
                | RecordKind::Getxattr.bit()
                | RecordKind::DeniedOpen.bit()),
    );
    /// [`Mask::DEFAULT`] in words.
    pub const DEFAULT_WORDS: &'static str = "MARK CREAT MKDIR HLINK SLINK MKNOD UNLNK RMDIR RENME RNMTO CLOSE LYOUT TRUNC SATTR XATTR HSM MTIME CTIME MIGRT FLRW RESYNC";

    pub fn has(self, kind: RecordKind) -> bool {
        self.0 & kind.bit() != 0
    }

    #[must_use]
    pub fn with(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }

    /// Words, apart by blanks, commas or bars: the types themselves, or `+TYPE` and `-TYPE`, which change
    /// `base`; `ALL`. `EINVAL` for other words.
    pub fn parse(text: &str, base: Mask) -> Result<Mask, Errno> {
        let words = |c: char| c.is_whitespace() || c == ',' || c == '|';
        let mut out: Option<Mask> = None;
        for word in text.split(words).filter(|w| !w.is_empty()) {
            let (sign, name) = match word.as_bytes().first() {
                Some(b'+') => (Some(true), &word[1..]),
                Some(b'-') => (Some(false), &word[1..]),
                _ => (None, word),
            };
            let bits = Mask::of_word(name)?;
            let before = out.unwrap_or(if sign.is_some() { base } else { Mask::NONE });
            out = Some(if sign == Some(false) { Mask(before.0 & !bits.0) } else { before.with(bits) });
        }
        out.ok_or(Errno::EINVAL)
    }

    fn of_word(word: &str) -> Result<Mask, Errno> {
        if word.eq_ignore_ascii_case("all") {
            return Ok(Mask::ALL);
        }
        let named = RecordKind::ALL.iter().find(|k| k.word().eq_ignore_ascii_case(word));
        named.map(|k| Mask(k.bit())).ok_or(Errno::EINVAL)
    }
}

impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<&str> = RecordKind::ALL.iter().filter(|k| self.has(**k)).map(|k| k.word()).collect();
        f.write_str(&words.join(" "))
    }
}

impl RecordKind {
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }

    pub fn number(self) -> u8 {
        self as u8
    }
}

/// Bits of [`Record::flags`]. Of attributes they say which were set; of an open they are its flags.
pub mod flags {
    /// Of `UNLNK`: that was the last name. Of `RENME`: so it was of the file that the new name had.
    pub const LAST_NAME: u16 = 1;
    /// Of `MARK`: recording begins.
    pub const START: u16 = 1;
    /// Only these are shown.
    pub const SHOWN: u16 = 0xfff;
    pub const ATIME: u16 = 1;
    pub const MTIME: u16 = 2;
    pub const CTIME: u16 = 4;
    pub const SIZE: u16 = 8;
    pub const MODE: u16 = 0x10;
    pub const UID: u16 = 0x20;
    pub const GID: u16 = 0x40;
    /// The inode's flags (FS_*_FL).
    pub const FLAGS: u16 = 0x800;
}

/// Bytes of a job id that are kept.
pub const JOBID_MAX_BYTES: usize = 63;

/// As much of a job id as is kept.
fn kept(jobid: &str) -> &str {
    &jobid[..jobid.floor_char_boundary(JOBID_MAX_BYTES)]
}

/// Who made a change.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Origin {
    pub uid: u32,
    pub gid: u32,
    /// `None`: the server itself.
    pub nid: Option<Nid>,
    pub jobid: String,
}

impl Origin {
    /// The job id is cut to its bound.
    pub fn new(uid: u32, gid: u32, nid: Nid, jobid: &str) -> Origin {
        Origin { uid, gid, nid: Some(nid), jobid: kept(jobid).to_string() }
    }

    /// The same host's, for another user and job.
    pub fn becomes(&mut self, uid: u32, gid: u32, jobid: &str) {
        (self.uid, self.gid) = (uid, gid);
        if self.jobid != kept(jobid) {
            self.jobid = kept(jobid).to_string();
        }
    }
}

/// What a file was called before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    pub fid: Fid,
    pub parent: Fid,
    pub name: Vec<u8>,
}

/// One change of one metadata target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Grows by one from record to record of a target.
    pub index: u64,
    pub kind: RecordKind,
    pub flags: u16,
    pub time: Timestamp,
    /// The file; of a rename the one that the new name had before, [`Fid::NONE`] if none.
    pub fid: Fid,
    /// The directory of `name`; [`Fid::NONE`]: it is not about a name.
    pub parent: Fid,
    pub name: Vec<u8>,
    /// Of a rename: which file, and what it was called.
    pub source: Option<Source>,
    pub by: Origin,
    /// Flags of an open, as open(2) has them.
    pub open_flags: u32,
    /// Name of an extended attribute.
    pub xattr: Vec<u8>,
}

/// Consumers of one target.
pub const CONSUMERS_MAX: usize = 64;
/// Bytes of a consumer's own name.
pub const CONSUMER_NAME_MAX_BYTES: usize = 15;

/// Whether a consumer can be called that: `EINVAL`, `ENAMETOOLONG`.
pub fn check_consumer_name(name: &str) -> Result<(), Errno> {
    if name.len() > CONSUMER_NAME_MAX_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    let word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if word && name.starts_with(|c: char| c.is_ascii_alphabetic()) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// What a consumer is called by everybody: `cl3`, or `cl3-NAME`.
pub fn consumer_label(id: u32, name: &str) -> String {
    if name.is_empty() { format!("cl{id}") } else { format!("cl{id}-{name}") }
}

/// The number in [`consumer_label`], and the name if it has one. `EINVAL` for what is none.
pub fn parse_consumer(label: &str) -> Result<(u32, Option<&str>), Errno> {
    let rest = label.strip_prefix("cl").ok_or(Errno::EINVAL)?;
    let (id, name) = match rest.split_once('-') {
        Some((id, name)) => (id, Some(name)),
        None => (rest, None),
    };
    let digits = id.bytes().all(|b| b.is_ascii_digit());
    let id = id.parse().ok().filter(|id| *id > 0 && digits).ok_or(Errno::EINVAL)?;
    Ok((id, name))
}

/// What an administrator orders on the host of the metadata target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// `mask`: in words; `None`: what the target records by default.
    Register {
        name: String,
        mask: Option<String>,
    },
    Deregister {
        consumer: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_and_changes_of_a_base() {
        assert_eq!(Mask::DEFAULT.to_string(), Mask::DEFAULT_WORDS);
        assert_eq!(Mask::parse(Mask::DEFAULT_WORDS, Mask::NONE), Ok(Mask::DEFAULT));
        assert_eq!(Mask::parse("ALL", Mask::NONE), Ok(Mask::ALL));
        let two = Mask(RecordKind::Create.bit() | RecordKind::Unlink.bit());
        assert_eq!(Mask::parse("creat,UNLNK", Mask::DEFAULT), Ok(two));
        assert_eq!(Mask::parse("+open,-creat", two).unwrap().to_string(), "UNLNK OPEN");
        for wrong in ["", " , ", "CREATE", "+", "-nothing"] {
            assert_eq!(Mask::parse(wrong, Mask::DEFAULT), Err(Errno::EINVAL), "{wrong}");
        }
        assert!(RecordKind::ALL.iter().enumerate().all(|(i, k)| usize::from(k.number()) == i));
    }

    #[test]
    fn consumers_have_labels() {
        assert_eq!(consumer_label(3, ""), "cl3");
        assert_eq!(consumer_label(3, "robin"), "cl3-robin");
        assert_eq!(parse_consumer("cl3"), Ok((3, None)));
        assert_eq!(parse_consumer("cl12-ro-bin"), Ok((12, Some("ro-bin"))));
        for wrong in ["", "cl", "cl0", "3", "clx", "cl-1", "cl3x", "cl+3"] {
            assert_eq!(parse_consumer(wrong), Err(Errno::EINVAL), "{wrong}");
        }
        assert_eq!(check_consumer_name("robin_1"), Ok(()));
        assert_eq!(check_consumer_name("1robin"), Err(Errno::EINVAL));
        assert_eq!(check_consumer_name(""), Err(Errno::EINVAL));
        assert_eq!(check_consumer_name("abcdefghijklmnop"), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn a_long_job_id_is_cut_between_characters() {
        let nid: Nid = "10.0.0.1@tcp".parse().unwrap();
        let o = Origin::new(1, 2, nid, &"é".repeat(40));
        assert_eq!(o.jobid, "é".repeat(31));
    }
}

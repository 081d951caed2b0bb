//! What `lfs` and `lctl` ask a mount: requests and replies as JSON through one ioctl.
//!
//! The caller opens any file or directory of the mount ([`open`]: read-only, never blocks on a FIFO) and uses
//! [`call`]:
//!
//! ```ignore
//! let dir = client::control::open("/mnt/nacre/dir")?;
//! let reply = client::control::call(&dir, &Request::Getstripe { name: Some("file".into()) })?;
//! ```
//!
//! An object without a way to be opened (a FIFO, a file without read permission, a symbolic link) is named by
//! its directory and `name`. An ordinary user may do everything but what is said to be
//! root's; the servers check permissions as for any other call. A path that is not on a Nacre
//! mount gives `ENOTTY` (or `EINVAL` from some file systems).
//!
//! The ioctl ([`IOCTL_CALL`], `_IOWR('N', 1, 12288 bytes)`) takes and fills one buffer of [`BUFFER_BYTES`]:
//!
//! | bytes | in the request | in the reply |
//! |---|---|---|
//! | 0..4 | bytes of JSON that follow at 16 | bytes of JSON in this buffer |
//! | 4..8 | 0 | bytes of the whole reply |
//! | 8..16 | 0, or a reply's token to fetch more | token to fetch more with |
//! | 16.. | a [`Request`]; with a token: nothing, and bytes 4..8 hold the offset | a part of a [`Response`] |
//!
//! Numbers are little-endian. A reply larger than one buffer is fetched in parts: [`call`] does that.

use crate::TargetState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use model::layout::ComponentChange;
use model::param::ParamInfo;
use model::quota::{LimitOrder, PoolStanding, Standings};
use model::usage::{QuotaId, Usage};
use model::{
    Attr, Errno, Fid, FileType, Layout, LayoutSpec, ObjectAttr, ObjectId, Pool, TargetId, Timestamp,
};
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use wire::msg::changelog::{Changelog, ChangelogReply};
use wire::msg::quotactl::{QuotaAsk, TypeLimits};
use wire::msg::quotadir::QuotadirReply;
use wire::msg::readdir::{Dirent, ReaddirReply};
use wire::msg::scan::{Cursor, ScanReply, Test};
use wire::msg::trashlist::TrashlistReply;
use wire::msg::trashtake::Trashtake;
use wire::{decode_message, encode_message};

/// Bytes of the ioctl's buffer.
pub const BUFFER_BYTES: usize = 12288;
/// Bytes before the JSON.
pub const HEADER_BYTES: usize = 16;
/// `_IOWR('N', 1, [u8; BUFFER_BYTES])`.
pub const IOCTL_CALL: u32 = 3 << 30 | (BUFFER_BYTES as u32) << 16 | (b'N' as u32) << 8 | 1;
/// A name for [`Request::SetParam`] that is no parameter: the mount became read-only ("1") or not ("0").
pub const READ_ONLY: &str = "mount.read_only";
/// Another: access times stay as they are ("1") or not ("0").
pub const NOATIME: &str = "mount.noatime";
/// Longest reply.
pub const REPLY_MAX_BYTES: usize = 4 << 20;

/// A file name or path: any bytes. A string in JSON when it is UTF-8, a list of numbers otherwise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Name(pub Vec<u8>);

impl Name {
    /// For people: what is not UTF-8 is replaced.
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<&str> for Name {
    fn from(s: &str) -> Name {
        Name(s.as_bytes().to_vec())
    }
}

impl From<String> for Name {
    fn from(s: String) -> Name {
        Name(s.into_bytes())
    }
}

impl From<&[u8]> for Name {
    fn from(s: &[u8]) -> Name {
        Name(s.to_vec())
    }
}

impl From<Vec<u8>> for Name {
    fn from(s: Vec<u8>) -> Name {
        Name(s)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lossy())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => s.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Name, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name: a string or a list of bytes")
            }
            fn visit_str<E>(self, s: &str) -> Result<Name, E> {
                Ok(Name(s.as_bytes().to_vec()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Name, A::Error> {
                let mut out = Vec::new();
                while let Some(b) = seq.next_element()? {
                    out.push(b);
                }
                Ok(Name(out))
            }
        }
        d.deserialize_any(V)
    }
}

/// A message of the network within JSON, as base64 text: many records, which would be four times as long
/// written out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed<T> {
    bytes: Vec<u8>,
    what: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    pub fn of(message: &T) -> Packed<T> {
        Packed { bytes: encode_message(message), what: PhantomData }
    }

    /// `EPROTO` if the other end is of another kind.
    pub fn open(&self) -> Result<T, Errno> {
        decode_message(&self.bytes).map_err(|_| Errno::EPROTO)
    }
}

impl<T> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD_NO_PAD.encode(&self.bytes))
    }
}

impl<'de, T> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Packed<T>, D::Error> {
        let text = String::deserialize(d)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
        Ok(Packed { bytes, what: PhantomData })
    }
}

/// What mounts keep of the file is looked after first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flush {
    /// The servers say what they have.
    Nothing,
    /// What was written is written back.
    Written,
    /// All of it is written back and given up.
    Everything,
}

/// What a file was when somebody looked at it, its objects' part included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub fid: Fid,
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// Bytes.
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// What is wanted of what only objects know of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfObjects {
    /// Its size and times; the space that it takes may be what it took when it was written.
    Sizes,
    /// Those, and its space as it is.
    Space,
}

/// Some files that a scan found, with what objects know of them.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Completed {
    /// One page of the metadata server, or several together.
    pub page: ScanReply,
    /// Files by their places in [`ScanReply::files`] of which that could not be had, one by one it may: of
    /// these there is what the metadata server knows.
    pub left: Vec<u32>,
}

/// A request. `name: None` means the opened file itself, `Some` an entry of the opened directory (a symbolic
/// link is not followed).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Which file system and which mount this is: [`Reply::Mount`].
    Getname,
    /// [`Reply::Fid`].
    Path2fid { name: Option<Name> },
    /// [`Reply::Paths`]. `ENOENT` for a file that does not exist or lies outside the mount's root.
    Fid2path { fid: Fid },
    /// [`Reply::Stripe`].
    Getstripe { name: Option<Name> },
    /// Layout of an empty file, default of a directory; `spec: None` removes the directory's default.
    /// [`Reply::Done`]. `EEXIST` for a file that has data already.
    Setstripe { name: Option<Name>, spec: Option<LayoutSpec> },
    /// Creates a regular file with a layout in the opened directory; `EEXIST` if the name is there.
    /// `mode`: permission bits before the caller's umask, which the caller passes along. [`Reply::Fid`].
    Create { name: Name, mode: u32, umask: u32, spec: LayoutSpec },
    /// Size, blocks and times of each object of a file: [`Reply::Objects`].
    Glimpse { name: Option<Name> },
    /// All targets with their connection's state: `lfs osts`, `mdts`, `check`, `lctl dl`. [`Reply::Targets`].
    Targets,
    /// What was done through this mount so far becomes durable, data and names, on every target.
    /// [`Reply::Done`]. `EIO` if something that was answered is lost, which the fsync of whoever did it tells
    /// as well.
    Sync,
    /// All targets with their space: [`Reply::Space`]. Never waits longer than about a second for a dead one.
    Df,
    /// Parameters of this client daemon whose names match the shell glob: [`Reply::Params`].
    GetParam { pattern: String },
    /// Names only: [`Reply::Params`] with empty values.
    ListParam { pattern: String },
    /// Sets one parameter of this client daemon (exact name). Root only. [`Reply::Done`].
    SetParam { name: String, value: String },
    /// Gives a connection up and makes it anew. Root only. [`Reply::Done`]; `ENODEV`: there is no such
    /// target.
    Recover { target: TargetId },
    /// What the parameters mean whose names match the shell glob: [`Reply::ParamInfos`].
    HelpParam { pattern: String },
    /// Some files that have objects on an OST, from the metadata servers' reverse index, behind object
    /// `after`. Root only. [`Reply::OstFiles`].
    OstFiles { ost: u16, after: Option<ObjectId> },
    /// Some files below the opened directory that may fit all `tests`, in the order of their FIDs: from the
    /// metadata server's inodes, no directory is read. As far as the caller could find them by walking.
    /// With `objects` what OSTs know of files is added, and they are left out that do not fit by that:
    /// [`Reply::Completed`]. Otherwise, and from a mount of an earlier version, [`Reply::Scanned`]. `EACCES`
    /// if the caller may not read and search the directory.
    Scan {
        after: Option<Cursor>,
        tests: Vec<Test>,
        #[serde(default)]
        objects: Option<OfObjects>,
    },
    /// The same with what each file has there (`nacre lost`). Root only. [`Reply::HeldFiles`].
    HeldFiles { ost: u16, after: Option<ObjectId> },
    /// The objects of a file that are lost with an OST become new, empty ones on others. Root only.
    /// [`Reply::Done`]. `EBUSY`: the OST is in use; `ENOSPC`: no other one takes them.
    Recreate { fid: Fid, ost: u16 },
    /// Some entries of the opened directory, behind `cookie` (0: from the first), with what the metadata
    /// server knows of their inodes if wanted; no object server is asked. [`Reply::Listing`].
    /// With `grows_into` inodes come, and what files are to get that outgrow them: [`Reply::Layouts`], from a
    /// mount of an earlier version [`Reply::Listing`].
    Listing {
        cookie: u64,
        inodes: bool,
        #[serde(default)]
        grows_into: bool,
    },
    /// The same of one file. [`Reply::Listing`] with one entry, whose name is empty if none was given.
    Inode { name: Option<Name> },
    /// Moves a file's data to new objects while it is in use. [`Reply::Done`]. `ENODATA` for a file without
    /// objects, `EBUSY` if others do not let go of it or, with `non_block`, use it. `bandwidth_bytes`: that
    /// it copies in a second, at most; 0: no bound of its own.
    Migrate {
        name: Option<Name>,
        spec: LayoutSpec,
        #[serde(default)]
        non_block: bool,
        #[serde(default)]
        bandwidth_bytes: u64,
    },
    /// Removes an entry of the opened directory that is no directory, if its file is still what it was and
    /// the conditions hold. [`Reply::Done`]. `ECANCELED` if not, `EBUSY` while somebody has it open.
    Purge { name: Name, seen: Seen, tests: Vec<Test>, unless: Vec<Vec<Test>> },
    /// How far the movement of a file is, as a line of `mdt.*.movements`: [`Reply::Params`] by the file's
    /// FID; empty if it is not moved.
    Movement { name: Option<Name> },
    /// Parameters of a metadata or object target whose names match the shell glob. Root only.
    /// [`Reply::Params`]; `ENODEV`: there is no such target, `ETIMEDOUT`: it does not answer.
    TargetParams { target: TargetId, pattern: String },
    /// The locks of `start..=end` before it is read or written. [`Reply::Done`].
    LockAhead { name: Option<Name>, write: bool, start: u64, end: u64 },
    /// [`Reply::Version`].
    DataVersion { name: Option<Name>, flush: Flush },
    /// Components of a file come, go or get flags while it is in use. [`Reply::Done`]. `ENODATA` for a file
    /// without a layout, `EBUSY` if others do not let go of what is to go.
    Components { name: Option<Name>, change: ComponentChange },
    /// The file and this other one get each other's data. [`Reply::Done`]. `EINVAL` for the same twice,
    /// `EPERM` for who may not change both or if their owners differ, `EBUSY` if others do not let go.
    SwapLayouts { name: Option<Name>, other: Fid, keep_times: bool },
    /// The file system's OST pools, as this mount was told: [`Reply::Pools`].
    Pools,
    /// The project of a file, and whether what comes into being in a directory belongs to it.
    /// [`Reply::Done`].
    /// `EPERM` for who may not (`mdt.*.enable_chprojid_gid`), `EOPNOTSUPP` to inherit from what is no
    /// directory.
    SetProject { name: Option<Name>, projid: Option<u32>, inherit: Option<bool> },
    /// What users, groups and projects use of each target, and, for root, whether that is right:
    /// [`Reply::Quota`]. `EPERM` for a question about others.
    Quota { ask: QuotaAsk },
    /// Directories with a quota that a file lies in, or, with `change`, whether this one has a quota from now
    /// on (root only): [`Reply::Directories`]. `ENOTDIR`; `ENOENT` to take away what is not there.
    QuotaDirectory { name: Option<Name>, change: Option<bool> },
    /// All directories with a quota behind this id. Root only. [`Reply::Directories`].
    QuotaDirectories { after: u32 },
    /// What they may use. Root only. [`Reply::Done`].
    SetQuota { order: LimitOrder },
    /// What loses its last name in a directory goes into the trash from now on, or does not any more.
    /// [`Reply::Done`]. `ENOTDIR`; `EPERM` for whoever is neither its owner nor root.
    TrashSet { on: bool },
    /// What lies in the trash and was removed below the opened directory, behind a place; `sizes`: with those
    /// that object servers know: [`Reply::Trashed`].
    TrashList { after: Option<(Timestamp, Fid)>, sizes: bool },
    /// Files get out of the trash: [`Reply::Results`].
    TrashTake { files: Packed<Trashtake> },
    /// Records of a metadata target's changelog. Root only. [`Reply::Changelog`]; `ENODEV`: there is no such
    /// target, `ENOENT`: no such consumer.
    Changelog { target: TargetId, wanted: Changelog },
    /// A consumer needs records up to `end` no more (0: all up to now). Root only. [`Reply::Done`];
    /// `ENOENT`: there is no such consumer, `EINVAL`: no such record yet.
    ChangelogClear { target: TargetId, consumer: String, end: u64 },
}

impl Request {
    /// About the mount itself, whatever file it was asked through.
    pub fn is_of_mount(&self) -> bool {
        use Request::{
            Df, GetParam, Getname, HelpParam, ListParam, Pools, Recover, SetParam, Sync, TargetParams,
            Targets,
        };
        matches!(
            self,
            Getname
                | Targets
                | Df
                | Pools
                | Sync
                | GetParam { .. }
                | ListParam { .. }
                | HelpParam { .. }
                | SetParam { .. }
                | Recover { .. }
                | TargetParams { .. }
        )
    }
}

/// What came of a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Ok(Reply),
    Error(ControlError),
}

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// Never zero: the exit status of `lfs`.
    pub errno: i32,
    /// strerror's text, or more where there is more to say.
    pub message: String,
}

impl From<Errno> for ControlError {
    fn from(e: Errno) -> ControlError {
        ControlError { errno: e.0, message: e.text().to_string() }
    }
}

impl From<std::io::Error> for ControlError {
    fn from(e: std::io::Error) -> ControlError {
        Errno::from(e).into()
    }
}

/// A mount and its file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountName {
    pub fsname: String,
    /// 16 hex digits: `lfs getname` prints `FSNAME-INSTANCE`.
    pub instance: String,
    /// 32 hex digits.
    pub fs_uuid: String,
    /// FID of the mount's root directory.
    pub root: Fid,
}

/// The answer to [`Request::Getstripe`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stripe {
    pub fid: Fid,
    pub kind: FileType,
    /// Of a regular file; `None` if it has no layout yet.
    pub layout: Option<Layout>,
    /// A directory's own default, `None` if it has none of its own.
    pub default: Option<LayoutSpec>,
    /// The file system's default (the root directory's), `None` if it was never set.
    pub fs_default: Option<LayoutSpec>,
    /// Of a directory: so many bytes of a new file lie with its inode if nobody says anything about its
    /// objects (`mdt.*.dom_stripesize`); `None` if the metadata server does not say.
    #[serde(default)]
    pub mdt_bytes: Option<u64>,
    /// Of a file whose data lies with its inode: what it is to get when it outgrows that; `None` if the
    /// metadata server does not say.
    #[serde(default)]
    pub grows_into: Option<LayoutSpec>,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    pub name: Name,
    pub kind: FileType,
    pub fid: Fid,
    /// If it was asked for and the file has not gone meanwhile.
    pub inode: Option<Inode>,
}

impl From<Dirent> for Listed {
    fn from(d: Dirent) -> Listed {
        let inode = d.entry.map(|e| Inode::new(e.attr, e.layout));
        Listed { name: Name(d.name), kind: d.kind, fid: d.fid, inode }
    }
}

/// A file as its metadata server knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inode {
    /// Of a regular file with objects size, space and times are incomplete: its object servers have them.
    pub attr: Attr,
    /// Of a regular file.
    pub layout: Option<Layout>,
    /// What object servers have was added.
    #[serde(default)]
    pub is_complete: bool,
    /// Of a file whose data lies with its inode: what it is to get when it outgrows that, if it was asked for
    /// and the server knows the question. It comes with [`Reply::Layouts`] alone.
    #[serde(skip)]
    pub grows_into: Option<Arc<LayoutSpec>>,
}

impl Inode {
    /// Of which objects are not asked.
    pub fn new(attr: Attr, layout: Option<Layout>) -> Inode {
        Inode { attr, layout, is_complete: false, grows_into: None }
    }
}

/// What a file has on one OST.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldFile {
    pub fid: Fid,
    /// Below the mount's root; a file of many names may have some of them only.
    pub paths: Vec<Name>,
    pub uid: u32,
    pub gid: u32,
    /// When it was made.
    pub born: Timestamp,
    /// When its data was changed, as far as the metadata server knows: what was written since is known to the
    /// objects alone.
    pub changed: Timestamp,
    pub parts: Vec<HeldPart>,
}

/// One object there: of the bytes `start..end` of the file, cut into pieces of `stripe_size`, those whose
/// number modulo `stripes` is `stripe`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldPart {
    pub start: u64,
    /// [`model::layout::EOF`]: to the end of the file.
    pub end: u64,
    pub stripe: usize,
    pub stripes: usize,
    /// Bytes.
    pub stripe_size: u32,
    /// It was laid out for another target than the one that has the index now, which has nothing of it.
    pub of_another: bool,
}

/// One target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    pub target: TargetId,
    /// `fsname-OST0000_UUID`.
    pub uuid: String,
    /// NID it is reached at.
    pub nid: String,
    /// `FULL`, `CONNECTING` …
    pub state: String,
    pub active: bool,
    /// What its server calls itself; empty: it was never reached.
    #[serde(default)]
    pub server: String,
    /// When it said something last; 0: not known.
    #[serde(default)]
    pub heard: Timestamp,
    /// Since when the connection is not up.
    #[serde(default)]
    pub away: Option<Timestamp>,
    /// Why it lets this client not in.
    #[serde(default)]
    pub refusal: Option<String>,
    /// The failure domain that it was placed in, outermost first; empty: in none but its server.
    #[serde(default)]
    pub domain: Vec<String>,
}

impl Target {
    /// `fsname-OST0003`.
    pub fn label(&self) -> &str {
        self.uuid.trim_end_matches("_UUID")
    }
}

impl From<&TargetState> for Target {
    fn from(t: &TargetState) -> Target {
        Target {
            target: t.target,
            uuid: t.uuid.clone(),
            nid: t.nid.to_string(),
            state: t.state.clone(),
            active: t.active,
            server: t.server.clone(),
            heard: t.heard,
            away: t.away,
            refusal: t.refusal.clone(),
            domain: t.domain.clone(),
        }
    }
}

/// Space of one target: bytes and inodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetSpace {
    pub target: Target,
    /// Set when it could not be asked; the numbers are zero then.
    pub errno: Option<i32>,
    pub total: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    /// Targets with the same number share a disk; 0: not known.
    #[serde(default)]
    pub disk: u64,
    /// Bits of `lfs df -v`: 1 degraded, 2 read-only, 4 no-create, 8 no space, 16 no inodes.
    pub flags: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done,
    /// Of a file's data.
    Version(u64),
    Mount(MountName),
    Fid(Fid),
    Paths {
        /// Relative to the mount's root, without a leading slash; `/` for the root itself.
        paths: Vec<Name>,
        /// (parent, name) of each link.
        links: Vec<(Fid, Name)>,
    },
    Stripe(Box<Stripe>),
    /// In the order of the layout's objects.
    Objects(Vec<ObjectAttr>),
    Targets(Vec<Target>),
    Space(Vec<TargetSpace>),
    Params(Vec<(String, String)>),
    ParamInfos(Vec<ParamInfo>),
    /// Files with their paths below the mount's root; `next`: ask again behind it.
    OstFiles {
        files: Vec<(Fid, Vec<Name>)>,
        next: Option<ObjectId>,
    },
    /// `next`: ask again behind it.
    HeldFiles {
        files: Vec<HeldFile>,
        next: Option<ObjectId>,
    },
    /// By name; `version`: of the configuration that says so.
    Pools {
        version: u64,
        pools: Vec<Pool>,
    },
    /// A page of a scan.
    Scanned(Packed<ScanReply>),
    /// The same, with what objects know.
    Completed(Packed<Completed>),
    /// `next`: ask again behind this owner.
    Quota {
        targets: Vec<TargetUsage>,
        next: Option<u32>,
    },
    Directories(QuotadirReply),
    /// `unknown`: the places of files whose size could not be had.
    Trashed {
        page: Packed<TrashlistReply>,
        unknown: Vec<u32>,
    },
    /// Of each of several files 0, or why not.
    Results(Vec<u16>),
    Changelog(Packed<ChangelogReply>),
    /// Entries of a directory; `next`: ask again behind this cookie.
    Listing {
        entries: Vec<Listed>,
        next: Option<u64>,
    },
    /// The same, as the metadata server says it, with what files are to get that outgrow their inodes.
    Layouts(Packed<ReaddirReply>),
}

/// What one target said of usage.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetUsage {
    pub target: Target,
    /// Why it said nothing.
    pub errno: Option<i32>,
    pub usage: Vec<(QuotaId, Usage)>,
    /// What it had counted wrong: whose, what it was, what there is. That was set right.
    pub differed: Vec<(QuotaId, Usage, Usage)>,
    /// Of everybody asked for who has any, from the metadata target, which keeps them.
    #[serde(default)]
    pub limits: Vec<(QuotaId, Standings)>,
    /// What holds for whole types, from the same.
    #[serde(default)]
    pub types: Vec<TypeLimits>,
    /// Bytes that those whose space is limited may have there without asking.
    #[serde(default)]
    pub shares: Vec<(QuotaId, u64)>,
    /// What those may have on the OSTs of pools who are limited so, from the metadata target.
    #[serde(default)]
    pub pools: Vec<PoolStanding>,
}

/// Opens a file or directory for [`call`]. Does not follow a final symbolic link that points nowhere, does
/// not wait for a FIFO's writer.
pub fn open(path: impl AsRef<std::path::Path>) -> Result<OwnedFd, ControlError> {
    Ok(world::ioctl::open_for_call(path.as_ref())?)
}

/// Asks the mount that `fd` lies on. `errno` of the error is `ENOTTY` if that is no Nacre mount.
pub fn call(fd: impl AsFd, request: &Request) -> Result<Reply, ControlError> {
    let json = serde_json::to_vec(request).map_err(|e| ControlError {
        errno: Errno::EINVAL.0,
        message: format!("request cannot be encoded: {e}"),
    })?;
    if json.len() > BUFFER_BYTES - HEADER_BYTES {
        return Err(Errno::E2BIG.into());
    }
    let mut buf = vec![0u8; BUFFER_BYTES];
    put(&mut buf, json.len() as u32, 0, 0);
    buf[HEADER_BYTES..HEADER_BYTES + json.len()].copy_from_slice(&json);
    let mut reply = Vec::new();
    loop {
        world::ioctl::ioctl_call(fd.as_fd(), IOCTL_CALL, &mut buf)?;
        let (len, total, token) = header(&buf);
        let (len, total) = (len as usize, total as usize);
        if len > BUFFER_BYTES - HEADER_BYTES || total > REPLY_MAX_BYTES || reply.len() + len > total {
            return Err(Errno::EPROTO.into());
        }
        reply.extend_from_slice(&buf[HEADER_BYTES..HEADER_BYTES + len]);
        if reply.len() == total {
            break;
        }
        if len == 0 || token == 0 {
            return Err(Errno::EPROTO.into());
        }
        put(&mut buf, 0, reply.len() as u32, token);
    }
    match serde_json::from_slice(&reply) {
        Ok(Response::Ok(r)) => Ok(r),
        Ok(Response::Error(e)) => Err(e),
        Err(e) => Err(ControlError {
            errno: Errno::EPROTO.0,
            message: format!("unreadable reply of the mount: {e}"),
        }),
    }
}

/// Writes the header of a control buffer (see the table above).
pub fn put(buf: &mut [u8], len: u32, total_or_offset: u32, token: u64) {
    buf[..4].copy_from_slice(&len.to_le_bytes());
    buf[4..8].copy_from_slice(&total_or_offset.to_le_bytes());
    buf[8..16].copy_from_slice(&token.to_le_bytes());
}

/// Reads the header of a control buffer of at least [`HEADER_BYTES`]: (length, total or offset, token).
pub fn header(buf: &[u8]) -> (u32, u32, u64) {
    let mut a = [0; 4];
    let mut b = [0; 4];
    let mut c = [0; 8];
    a.copy_from_slice(&buf[..4]);
    b.copy_from_slice(&buf[4..8]);
    c.copy_from_slice(&buf[8..16]);
    (u32::from_le_bytes(a), u32::from_le_bytes(b), u64::from_le_bytes(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_there_and_back_and_what_is_none_is_refused() {
        let p = Packed::of(&vec![1u32, 77, u32::MAX]);
        let json = serde_json::to_string(&p).unwrap();
        let back: Packed<Vec<u32>> = serde_json::from_str(&json).unwrap();
        assert_eq!((back.open(), &back), (Ok(vec![1, 77, u32::MAX]), &p));
        assert!(serde_json::from_str::<Packed<Vec<u32>>>("\"?\"").is_err());
        let short: Packed<Vec<u32>> = serde_json::from_str("\"CQ\"").unwrap();
        assert_eq!(short.open(), Err(Errno::EPROTO));
    }

    #[test]
    fn names_of_any_bytes_go_there_and_back() {
        for n in [Name::from("plain"), Name(vec![0xff, 0x2f, 0])] {
            let r = Request::Path2fid { name: Some(n) };
            let json = serde_json::to_string(&r).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&json).unwrap(), r, "{json}");
        }
    }

    #[test]
    fn the_ioctl_number_says_size_and_direction() {
        assert_eq!(IOCTL_CALL, 0xf000_4e01);
        let mut b = [0; HEADER_BYTES];
        put(&mut b, 1, 2, 3);
        assert_eq!(header(&b), (1, 2, 3));
    }
}

//! Where an object's bytes are, and its record in the table. Byte table: `docs/formats/objects.md`.

use super::sums::Group;
use crate::StoreError;
use crate::bytes::{Reader, Writer};
use bytes::Bytes;
use model::layout::{LABEL_MAX_BYTES, ObjectLabel};
use model::limits::FILE_SIZE_MAX_BYTES;
use model::nodemap::Owner;
use model::usage::Usage;
use model::{Fid, ObjectAttr, ObjectId, Timestamp};
use wire::frame::crc32c;

/// Key tag of objects.
pub const TAG_OBJECT: u8 = b'J';
/// Key tag of tombstones.
pub const TAG_TOMBSTONE: u8 = b'K';
const RECORD_VERSION: u8 = 1;
const TOMBSTONE_VERSION: u8 = 1;
/// Flag of a record: every block without a checksum is zeros. Objects that an older Nacre made lack it.
const FLAG_SUMMED: u16 = 1;
/// Tagged value: checksums of an object that is not in a file of its own.
const EXTRA_SUMS: u16 = 1;
/// Tagged value: groups of checksums that are out of date and being dropped.
const EXTRA_STALE: u16 = 2;
const EXTRA_OWNER_AS_OF: u16 = 3;
/// Tagged value: the directory with a quota that it is counted to.
const EXTRA_DIRECTORY: u16 = 4;
/// Tagged value: what it knows of its component.
const EXTRA_LABEL: u16 = 5;

/// Objects up to this size lie in their table record.
pub const INLINE_MAX_BYTES: u64 = 4096;
/// Objects up to this size lie in a slot of a container file; also the longest payload in a journal record.
pub const PACKED_MAX_BYTES: u64 = 65536;
/// Slot sizes, by class.
pub const CLASS_BYTES: [u64; 4] = [8192, 16384, 32768, 65536];
/// Slots of one container file.
pub const CONTAINER_SLOTS: u32 = 1024;

/// A slot of a container file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Index into [`CLASS_BYTES`].
    pub class: u8,
    pub container: u32,
    pub slot: u32,
}

impl Place {
    pub fn slot_bytes(&self) -> u64 {
        CLASS_BYTES[usize::from(self.class)]
    }

    /// Where the slot begins in its container.
    pub fn start(&self) -> u64 {
        u64::from(self.slot) * self.slot_bytes()
    }

    fn is_valid(&self) -> bool {
        usize::from(self.class) < CLASS_BYTES.len() && self.slot < CONTAINER_SLOTS
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u8(self.class);
        w.raw(&[0; 3]);
        w.u32(self.container);
        w.u32(self.slot);
    }

    pub(crate) fn decode(r: &mut Reader) -> Option<Place> {
        let class = r.u8()?;
        r.raw(3)?;
        Some(Place { class, container: r.u32()?, slot: r.u32()? }).filter(Place::is_valid)
    }
}

/// The smallest class whose slots hold `size` bytes.
pub fn class_for(size: u64) -> Option<u8> {
    CLASS_BYTES.iter().position(|c| size <= *c).map(|i| i as u8)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// The bytes; those missing up to the object's size are zeros.
    Inline(Bytes),
    Packed(Place),
    /// A file of its own.
    Own,
}

impl Location {
    /// Whether an object of this size can lie here.
    pub fn holds(&self, size: u64) -> bool {
        match self {
            Location::Inline(b) => size <= INLINE_MAX_BYTES && b.len() as u64 <= size,
            Location::Packed(p) => size <= p.slot_bytes(),
            Location::Own => size <= FILE_SIZE_MAX_BYTES,
        }
    }
}

/// An object's record: value of key `J` ‖ object id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectRecord {
    pub location: Location,
    pub attr: ObjectAttr,
    pub file: Fid,
    /// To whom it is counted.
    pub owner: Owner,
    pub layout_generation: u32,
    /// The inode's ctime as of which the metadata target named the owner; zero if it never did. What clients
    /// say does not count from then on.
    pub owner_as_of: Timestamp,
    /// Every block without a checksum is zeros.
    pub summed: bool,
    /// Checksums of blocks while the object is not in a file of its own; later they have keys of their own.
    pub sums: Group,
    /// Groups of checksums (from, to) that say nothing any more and are being dropped.
    pub stale: Option<(u64, u64)>,
    /// What it knows of the component that it is part of ([`model::layout::ObjectLabel`], encoded); empty:
    /// nothing. It counts for nothing while the metadata target has the file's layout.
    pub label: Vec<u8>,
    /// Tagged values of later versions (dirty extents, snapshots), kept as they are.
    pub extra: Vec<(u16, Vec<u8>)>,
}

impl ObjectRecord {
    /// An object that was never written.
    pub fn empty() -> ObjectRecord {
        ObjectRecord {
            location: Location::Inline(Bytes::new()),
            attr: ObjectAttr::default(),
            file: Fid::NONE,
            owner: Owner::default(),
            layout_generation: 0,
            owner_as_of: Timestamp::ZERO,
            summed: true,
            sums: Group::default(),
            stale: None,
            label: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Takes what the sender of a change says of the component; not what is older than what is known.
    pub fn relabel(&mut self, label: &[u8]) {
        let Some(new) = ObjectLabel::generation_of(label) else { return };
        if self.label != label && ObjectLabel::generation_of(&self.label).is_none_or(|known| known <= new) {
            self.label = label.to_vec();
        }
        assert!(self.label.len() <= LABEL_MAX_BYTES, "a label is bounded");
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(112));
        let (kind, inline): (u8, &[u8]) = match &self.location {
            Location::Inline(b) => (0, b),
            Location::Packed(_) => (1, &[]),
            Location::Own => (2, &[]),
        };
        w.u8(RECORD_VERSION);
        w.u8(kind);
        w.u16(if self.summed { FLAG_SUMMED } else { 0 });
        w.u32(self.layout_generation);
        w.u64(self.attr.size);
        w.u64(self.attr.blocks);
        put_time(&mut w, self.attr.mtime);
        put_time(&mut w, self.attr.ctime);
        w.u64(self.attr.data_version);
        w.raw(&self.file.to_bytes());
        w.u32(self.owner.uid);
        w.u32(self.owner.gid);
        w.u32(self.owner.projid);
        w.u32(0);
        match &self.location {
            Location::Packed(p) => p.encode(&mut w),
            _ => w.raw(&[0; 12]),
        }
        let own_tags = usize::from(!self.sums.is_empty()) + usize::from(self.stale.is_some());
        let own_tags = own_tags + usize::from(self.owner_as_of != Timestamp::ZERO);
        let own_tags = own_tags + usize::from(self.owner.directory != 0);
        let own_tags = own_tags + usize::from(!self.label.is_empty());
        w.u16(u16::try_from(self.extra.len() + own_tags).expect("few tags"));
        w.u16(0);
        if !self.sums.is_empty() {
            w.u16(EXTRA_SUMS);
            w.bytes(&self.sums.encode());
        }
        if let Some((from, to)) = self.stale {
            w.u16(EXTRA_STALE);
            w.bytes(&[from.to_le_bytes(), to.to_le_bytes()].concat());
        }
        if self.owner_as_of != Timestamp::ZERO {
            w.u16(EXTRA_OWNER_AS_OF);
            let mut v = Writer(Vec::with_capacity(12));
            put_time(&mut v, self.owner_as_of);
            w.bytes(&v.0);
        }
        if self.owner.directory != 0 {
            w.u16(EXTRA_DIRECTORY);
            w.bytes(&self.owner.directory.to_le_bytes());
        }
        if !self.label.is_empty() {
            w.u16(EXTRA_LABEL);
            w.bytes(&self.label);
        }
        for (tag, v) in &self.extra {
            w.u16(*tag);
            w.bytes(v);
        }
        w.bytes(inline);
        w.0
    }

    fn decode_parts(bytes: &[u8]) -> Option<ObjectRecord> {
        let mut r = Reader(bytes);
        if r.u8()? != RECORD_VERSION {
            return None;
        }
        let kind = r.u8()?;
        let summed = r.u16()? & FLAG_SUMMED != 0;
        let layout_generation = r.u32()?;
        let (size, blocks) = (r.u64()?, r.u64()?);
        let (mtime, ctime) = (get_time(&mut r)?, get_time(&mut r)?);
        let data_version = r.u64()?;
        let file = Fid::from_bytes(&r.array()?);
        let mut owner = Owner::new(r.u32()?, r.u32()?, r.u32()?);
        r.u32()?;
        let place = r.raw(12)?;
        let tags = r.u16()?;
        r.u16()?;
        let (mut extra, mut sums, mut stale) = (Vec::new(), Group::default(), None);
        let (mut owner_as_of, mut label) = (Timestamp::ZERO, Vec::new());
        for _ in 0..tags {
            match (r.u16()?, r.bytes()?) {
                (EXTRA_SUMS, v) => sums = Group::decode(v)?,
                (EXTRA_STALE, v) => {
                    let mut r = Reader(v);
                    stale = Some((r.u64()?, r.u64()?));
                }
                (EXTRA_OWNER_AS_OF, v) => owner_as_of = get_time(&mut Reader(v))?,
                (EXTRA_DIRECTORY, v) => owner.directory = Reader(v).u32()?,
                // It counts for little: what cannot be one is dropped, and the object stays.
                (EXTRA_LABEL, v) if v.len() <= LABEL_MAX_BYTES => label = v.to_vec(),
                (EXTRA_LABEL, _) => {}
                (tag, v) => extra.push((tag, v.to_vec())),
            }
        }
        let inline = r.bytes()?;
        let location = match kind {
            0 => Location::Inline(Bytes::copy_from_slice(inline)),
            1 => Location::Packed(Place::decode(&mut Reader(place))?),
            2 => Location::Own,
            _ => return None,
        };
        // Everything that reads or changes the object relies on this.
        if !location.holds(size) {
            return None;
        }
        let attr = ObjectAttr { size, blocks, mtime, ctime, data_version };
        Some(ObjectRecord {
            location,
            attr,
            file,
            owner,
            layout_generation,
            owner_as_of,
            summed,
            sums,
            stale,
            label,
            extra,
        })
    }

    /// What it takes of its owner's usage: inodes are counted at the metadata target.
    pub fn usage(&self) -> (Owner, Usage) {
        (self.owner, Usage { inodes: 0, blocks: self.attr.blocks })
    }

    pub fn decode(id: ObjectId, bytes: &[u8]) -> Result<ObjectRecord, StoreError> {
        ObjectRecord::decode_parts(bytes).ok_or_else(|| {
            StoreError::damaged(
                "object",
                &id.to_string(),
                "its record does not decode (or is of a later version)",
            )
        })
    }
}

fn put_time(w: &mut Writer, t: Timestamp) {
    w.i64(t.sec);
    w.u32(t.nsec);
}

fn get_time(r: &mut Reader) -> Option<Timestamp> {
    Some(Timestamp { sec: r.i64()?, nsec: r.u32()? })
}

pub fn object_key(id: ObjectId) -> Vec<u8> {
    tagged(TAG_OBJECT, id)
}

pub fn tombstone_key(id: ObjectId) -> Vec<u8> {
    tagged(TAG_TOMBSTONE, id)
}

fn tagged(tag: u8, id: ObjectId) -> Vec<u8> {
    let mut k = Vec::with_capacity(25);
    k.push(tag);
    k.extend_from_slice(&id.to_bytes());
    k
}

/// The object of a `J` or `K` key.
pub fn id_of_key(key: &[u8]) -> Option<ObjectId> {
    Some(ObjectId::from_bytes(key.get(1..)?.try_into().ok()?))
}

pub fn encode_tombstone(at: Timestamp) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(13));
    w.u8(TOMBSTONE_VERSION);
    put_time(&mut w, at);
    w.0
}

/// When the object was destroyed; `None` if the value is of another version.
pub fn decode_tombstone(v: &[u8]) -> Option<Timestamp> {
    let mut r = Reader(v);
    if r.u8()? != TOMBSTONE_VERSION {
        return None;
    }
    get_time(&mut r)
}

pub fn objects_dir(dir: &str) -> String {
    format!("{dir}/objects")
}

pub fn packed_dir(dir: &str) -> String {
    format!("{dir}/objects/packed")
}

pub fn own_root(dir: &str) -> String {
    format!("{dir}/objects/own")
}

pub fn container_path(dir: &str, class: u8, container: u32) -> String {
    format!("{dir}/objects/packed/{}k.{container:08x}", CLASS_BYTES[usize::from(class)] >> 10)
}

/// The folder of an object's own file: one of 256, by hash.
pub fn own_dir(dir: &str, id: ObjectId) -> String {
    format!("{dir}/objects/own/{:02x}", crc32c(&id.to_bytes()) & 0xff)
}

/// The object's own file: named by its id's bytes, so that a folder can be read back.
pub fn own_path(dir: &str, id: ObjectId) -> String {
    let name: String = id.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    format!("{}/{name}", own_dir(dir, id))
}

/// The inverse of the name in [`own_path`].
pub fn id_of_name(name: &str) -> Option<ObjectId> {
    if name.len() != 48 || !name.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut b = [0; 24];
    for (i, x) in b.iter_mut().enumerate() {
        *x = u8::from_str_radix(&name[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(ObjectId::from_bytes(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_there_and_back_and_cut_ones_are_refused() {
        let id = ObjectId { origin: Fid::new(7, 8, 9), component: 1, stripe: 2 };
        for location in [
            Location::Inline(Bytes::from_static(b"hello")),
            Location::Packed(Place { class: 2, container: 77, slot: 1023 }),
            Location::Own,
        ] {
            let attr = ObjectAttr {
                size: 5,
                blocks: 8,
                mtime: Timestamp { sec: -3, nsec: 4 },
                ctime: Timestamp { sec: 9, nsec: 999_999_999 },
                data_version: 12,
            };
            let r = ObjectRecord {
                location,
                attr,
                file: Fid::new(1, 2, 3),
                owner: Owner { directory: 9, ..Owner::new(4, 5, 6) },
                layout_generation: 7,
                owner_as_of: Timestamp { sec: 5, nsec: 6 },
                summed: true,
                sums: Group::of(&[Some(5), None, Some(0)]),
                stale: Some((3, u64::MAX)),
                label: vec![1, 4, 0, 0, 0, 77],
                extra: vec![(9, vec![1, 2, 3])],
            };
            let b = r.encode();
            assert_eq!(ObjectRecord::decode(id, &b).unwrap(), r);
            for n in 0..b.len() {
                assert!(ObjectRecord::decode(id, &b[..n]).is_err(), "{n}");
            }
        }
        assert_eq!(id_of_name(own_path("/x", id).rsplit('/').next().unwrap()), Some(id));
        assert_eq!(id_of_key(&object_key(id)), Some(id));
    }

    #[test]
    fn records_without_a_label_are_as_they_were_and_later_labels_win() {
        let id = ObjectId { origin: Fid::new(7, 8, 9), component: 1, stripe: 2 };
        let mut r = ObjectRecord::empty();
        let without = r.encode();
        assert!(ObjectRecord::decode(id, &without).unwrap().label.is_empty());
        let label = |generation: u32, rest: u8| {
            let mut l = vec![1];
            l.extend(generation.to_le_bytes());
            l.push(rest);
            l
        };
        r.relabel(b"no label");
        assert_eq!(r.encode(), without, "what is none changes nothing");
        r.relabel(&label(5, 1));
        assert_eq!(ObjectRecord::decode(id, &r.encode()).unwrap().label, label(5, 1));
        r.relabel(&label(4, 9));
        assert_eq!(r.label, label(5, 1), "an earlier layout's");
        r.relabel(&label(5, 2));
        r.relabel(&label(6, 3));
        assert_eq!(r.label, label(6, 3));
        r.relabel(&[1; 5000]);
        assert_eq!(r.label, label(6, 3), "it is bounded");
    }
}

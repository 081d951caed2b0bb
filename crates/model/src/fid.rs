//! File and object identities (design.md §4).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Number of object ids in one sequence leased to a client: 2^17, as in Lustre's metadata sequences.
pub const SEQ_WIDTH: u32 = 0x20000;
/// First sequence handed out to clients; lower ones are reserved (Lustre's FID_SEQ_NORMAL).
pub const SEQ_NORMAL: u64 = 0x2_0000_0400;

/// File identifier `[seq:oid:ver]`, 64:32:32 bits. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Fid {
    pub seq: u64,
    pub oid: u32,
    pub ver: u32,
}

impl Fid {
    /// The root directory, on MDT0000.
    pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
    /// No file, but something leases can be had on: the settings from which new files' layouts come that
    /// belong to the whole file system (the root directory's default, parameters of the metadata target).
    pub const DEFAULTS: Fid = Fid { seq: 0x2_0000_0007, oid: 2, ver: 0 };
    /// The directory of what a check found and could not put back (`.lustre/lost+found/MDT0000`). It has no
    /// name in the root, which is its parent all the same.
    pub const LOST_FOUND: Fid = Fid { seq: 0x2_0000_0002, oid: 3, ver: 0 };
    /// No file.
    pub const NONE: Fid = Fid { seq: 0, oid: 0, ver: 0 };

    pub const fn new(seq: u64, oid: u32, ver: u32) -> Fid {
        Fid { seq, oid, ver }
    }

    /// `st_ino`: seq << 17 | oid, unique for seq < 2^47 because oid < 2^17.
    pub fn ino(self) -> u64 {
        if self == Fid::ROOT {
            return 1;
        }
        (self.seq << 17) | u64::from(self.oid)
    }

    /// 16 big-endian bytes: sorts like the number, used in table keys.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.seq.to_be_bytes());
        b[8..12].copy_from_slice(&self.oid.to_be_bytes());
        b[12..].copy_from_slice(&self.ver.to_be_bytes());
        b
    }

    pub fn from_bytes(b: &[u8; 16]) -> Fid {
        let (mut s, mut o, mut v) = ([0; 8], [0; 4], [0; 4]);
        s.copy_from_slice(&b[..8]);
        o.copy_from_slice(&b[8..12]);
        v.copy_from_slice(&b[12..]);
        Fid { seq: u64::from_be_bytes(s), oid: u32::from_be_bytes(o), ver: u32::from_be_bytes(v) }
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not `[0xSEQ:0xOID:0xVER]`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid FID '{0}': expected [0xSEQ:0xOID:0xVER]")]
pub struct FidParseError(pub String);

impl FromStr for Fid {
    type Err = FidParseError;

    /// Accepts the form that `Display` prints, brackets optional, `0x` required or not.
    fn from_str(s: &str) -> Result<Fid, FidParseError> {
        let bad = || FidParseError(s.to_string());
        let t = s.trim();
        let inner = match (t.strip_prefix('['), t.ends_with(']')) {
            (Some(rest), true) => rest.strip_suffix(']').ok_or_else(bad)?,
            (None, false) => t,
            _ => return Err(bad()),
        };
        let mut parts = inner.split(':');
        let mut next = || -> Result<u64, FidParseError> {
            let p = parts.next().ok_or_else(bad)?;
            let hex = p.strip_prefix("0x").or_else(|| p.strip_prefix("0X")).unwrap_or(p);
            if hex.is_empty() || !hex.bytes().all(|c| c.is_ascii_hexdigit()) {
                return Err(bad());
            }
            u64::from_str_radix(hex, 16).map_err(|_| bad())
        };
        let (seq, oid, ver) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(bad());
        }
        let oid = u32::try_from(oid).map_err(|_| bad())?;
        let ver = u32::try_from(ver).map_err(|_| bad())?;
        Ok(Fid { seq, oid, ver })
    }
}

/// A data object on an OST: (origin file, component id, stripe). Stored in the layout, because
/// migration, swap, mirror and split move objects between files. Component ids are never reused within
/// a file, so an object id is never reused either.
///
/// `stripe` has the number of the stripe in its low bits and the mark of the target that the object was laid
/// out for in the others: a target that took the place of a lost one knows by it what lay on that one
/// (decision 0044).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
pub struct ObjectId {
    pub origin: Fid,
    pub component: u32,
    pub stripe: u32,
}

/// Bits of [`ObjectId::stripe`] that are the stripe's number.
const STRIPE_BITS: u32 = 12;
const _: () =
    assert!(crate::limits::STRIPE_COUNT_MAX <= 1 << STRIPE_BITS, "stripes are numbered in so many bits");

/// What tells targets of one index from each other, of 20 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TargetMark(u32);

impl TargetMark {
    /// Of objects that were laid out before there were marks.
    pub const NONE: TargetMark = TargetMark(0);

    pub fn of(target_uuid: &[u8; 16]) -> TargetMark {
        let [a, b, c, d, ..] = *target_uuid;
        TargetMark((u32::from_be_bytes([a, b, c, d]) >> STRIPE_BITS).max(1))
    }
}

impl ObjectId {
    /// Which stripe of its component it holds.
    pub fn stripe_number(self) -> u32 {
        self.stripe & ((1 << STRIPE_BITS) - 1)
    }

    /// The target that it was laid out for.
    pub fn mark(self) -> TargetMark {
        TargetMark(self.stripe >> STRIPE_BITS)
    }

    pub fn marked(self, mark: TargetMark) -> ObjectId {
        let marked = ObjectId { stripe: self.stripe_number() | (mark.0 << STRIPE_BITS), ..self };
        assert_eq!(marked.mark(), mark, "a mark fits into its bits");
        marked
    }

    /// 24 big-endian bytes, used in table keys and file names.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut b = [0; 24];
        b[..16].copy_from_slice(&self.origin.to_bytes());
        b[16..20].copy_from_slice(&self.component.to_be_bytes());
        b[20..].copy_from_slice(&self.stripe.to_be_bytes());
        b
    }

    pub fn from_bytes(b: &[u8; 24]) -> ObjectId {
        let (mut f, mut c, mut s) = ([0; 16], [0; 4], [0; 4]);
        f.copy_from_slice(&b[..16]);
        c.copy_from_slice(&b[16..20]);
        s.copy_from_slice(&b[20..]);
        ObjectId {
            origin: Fid::from_bytes(&f),
            component: u32::from_be_bytes(c),
            stripe: u32::from_be_bytes(s),
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.origin, self.component, self.stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_goes_there_and_back() {
        let f = Fid::new(0x2_0000_0401, 7, 0);
        assert_eq!(f.to_string(), "[0x200000401:0x7:0x0]");
        assert_eq!("[0x200000401:0x7:0x0]".parse::<Fid>().unwrap(), f);
        assert_eq!("0x200000401:0x7:0x0".parse::<Fid>().unwrap(), f);
        for bad in
            ["", "[", "[]", "[0x1:0x2]", "[0x1:0x2:0x3:0x4]", "[0x1:0x2:0x1ffffffff]", "x:y:z", "[+1:2:3]"]
        {
            assert!(bad.parse::<Fid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn key_bytes_sort_like_the_numbers() {
        let (a, b) = (Fid::new(1, u32::MAX, 0), Fid::new(2, 0, 0));
        assert!(a.to_bytes() < b.to_bytes());
        assert_eq!(Fid::from_bytes(&a.to_bytes()), a);
        let o = ObjectId { origin: b, component: 3, stripe: 9 };
        assert_eq!(ObjectId::from_bytes(&o.to_bytes()), o);
        let mark = TargetMark::of(&[0xab; 16]);
        let last = ObjectId { stripe: crate::limits::STRIPE_COUNT_MAX - 1, ..o };
        for o in [o, last] {
            assert_eq!((o.marked(mark).mark(), o.marked(mark).stripe_number()), (mark, o.stripe));
            assert_eq!((o.mark(), o.marked(mark).marked(TargetMark::NONE)), (TargetMark::NONE, o));
        }
        assert_ne!(TargetMark::of(&[0; 16]), TargetMark::NONE);
    }
}

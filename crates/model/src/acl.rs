//! POSIX access control lists: rules and the xattr form (`posix_acl_xattr` version 2, as the kernel and
//! libacl exchange it). Pure.

use crate::{Cred, Errno, limits};

pub const XATTR_ACCESS: &[u8] = b"system.posix_acl_access";
pub const XATTR_DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries that name nobody.
const NO_ID: u32 = u32::MAX;

/// Who an entry speaks of. The order is the order in which entries are stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    UserObj,
    User(u32),
    GroupObj,
    Group(u32),
    Mask,
    Other,
}

impl Who {
    fn tag(self) -> (u16, u32) {
        match self {
            Who::UserObj => (0x01, NO_ID),
            Who::User(id) => (0x02, id),
            Who::GroupObj => (0x04, NO_ID),
            Who::Group(id) => (0x08, id),
            Who::Mask => (0x10, NO_ID),
            Who::Other => (0x20, NO_ID),
        }
    }

    /// Position of the entry's kind; named entries of one kind stand together.
    fn rank(self) -> u8 {
        match self {
            Who::UserObj => 0,
            Who::User(_) => 1,
            Who::GroupObj => 2,
            Who::Group(_) => 3,
            Who::Mask => 4,
            Who::Other => 5,
        }
    }
}

/// One entry: `perm` is 0..=7 (read 4, write 2, execute 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub who: Who,
    pub perm: u8,
}

/// A valid list: exactly one owner, owning-group and other entry, a mask if anybody is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Checks and keeps `entries`. `EINVAL` if they are no valid list, `E2BIG` above
    /// [`limits::ACL_ENTRIES_MAX`].
    pub fn new(entries: Vec<Entry>) -> Result<Acl, Errno> {
        if entries.len() > limits::ACL_ENTRIES_MAX {
            return Err(Errno::E2BIG);
        }
        let count = |rank: u8| entries.iter().filter(|e| e.who.rank() == rank).count();
        let ordered = entries.windows(2).all(|w| w[0].who.rank() <= w[1].who.rank());
        let named = count(1) + count(3) > 0;
        let ids =
            entries.iter().all(|e| e.perm <= 7 && !matches!(e.who, Who::User(NO_ID) | Who::Group(NO_ID)));
        let shape =
            count(0) == 1 && count(2) == 1 && count(5) == 1 && count(4) <= 1 && (!named || count(4) == 1);
        if ordered && ids && shape { Ok(Acl { entries }) } else { Err(Errno::EINVAL) }
    }

    /// The list that says the same as permission bits.
    pub fn from_mode(mode: u32) -> Acl {
        let e = |who, shift: u32| Entry { who, perm: ((mode >> shift) & 7) as u8 };
        Acl { entries: vec![e(Who::UserObj, 6), e(Who::GroupObj, 3), e(Who::Other, 0)] }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Decodes the xattr value. `Ok(None)` for a list without entries (which removes an ACL);
    /// `EOPNOTSUPP` for another version, `EINVAL` for anything malformed.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let (head, rest) = value.split_first_chunk::<HEADER_BYTES>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*head) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if rest.len() % ENTRY_BYTES != 0 {
            return Err(Errno::EINVAL);
        }
        if rest.len() / ENTRY_BYTES > limits::ACL_ENTRIES_MAX {
            return Err(Errno::E2BIG);
        }
        let mut entries = Vec::with_capacity(rest.len() / ENTRY_BYTES);
        for e in rest.chunks_exact(ENTRY_BYTES) {
            let tag = u16::from_le_bytes([e[0], e[1]]);
            let perm = u16::from_le_bytes([e[2], e[3]]);
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            let who = match tag {
                0x01 => Who::UserObj,
                0x02 => Who::User(id),
                0x04 => Who::GroupObj,
                0x08 => Who::Group(id),
                0x10 => Who::Mask,
                0x20 => Who::Other,
                _ => return Err(Errno::EINVAL),
            };
            if perm > 7 {
                return Err(Errno::EINVAL);
            }
            entries.push(Entry { who, perm: perm as u8 });
        }
        if entries.is_empty() { Ok(None) } else { Acl::new(entries).map(Some) }
    }

    pub fn to_xattr(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES);
        v.extend_from_slice(&VERSION.to_le_bytes());
        for e in &self.entries {
            let (tag, id) = e.who.tag();
            v.extend_from_slice(&tag.to_le_bytes());
            v.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            v.extend_from_slice(&id.to_le_bytes());
        }
        v
    }

    fn perm_of(&self, who: Who) -> Option<u8> {
        self.entries.iter().find(|e| e.who == who).map(|e| e.perm)
    }

    fn set(&mut self, who: Who, perm: u32) {
        if let Some(e) = self.entries.iter_mut().find(|e| e.who == who) {
            e.perm = (perm & 7) as u8;
        }
    }

    /// Which entry the group bits of the mode stand for.
    fn group_class(&self) -> Who {
        if self.perm_of(Who::Mask).is_some() { Who::Mask } else { Who::GroupObj }
    }

    /// The nine permission bits that a mode shows for this list.
    pub fn mode_bits(&self) -> u32 {
        let p = |who| u32::from(self.perm_of(who).unwrap_or(0));
        p(Who::UserObj) << 6 | p(self.group_class()) << 3 | p(Who::Other)
    }

    /// Says nothing that permission bits do not say: need not be stored.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// chmod(2) on a file with this access list.
    pub fn chmod(&mut self, mode: u32) {
        let group = self.group_class();
        self.set(Who::UserObj, mode >> 6);
        self.set(group, mode >> 3);
        self.set(Who::Other, mode);
        assert_eq!(self.mode_bits(), mode & 0o777, "a list shows the mode that was set");
    }

    /// What a new file gets from its directory's default list, asked for with `mode`: its access list
    /// (`None` if the bits say it all) and its permission bits. The umask plays no part.
    pub fn inherit(&self, mode: u32) -> (Option<Acl>, u32) {
        let mut acl = self.clone();
        let group = acl.group_class();
        for (who, shift) in [(Who::UserObj, 6), (group, 3), (Who::Other, 0)] {
            let kept = u32::from(acl.perm_of(who).unwrap_or(0)) & (mode >> shift);
            acl.set(who, kept);
        }
        assert_eq!(acl.mode_bits() & !mode, 0, "a new file gets no more than was asked for");
        let bits = (mode & !0o777) | acl.mode_bits();
        if acl.is_minimal() { (None, bits) } else { (Some(acl), bits) }
    }

    /// Whether the list grants `want` (read 4, write 2, execute 1) to somebody who is not privileged.
    pub fn grants(&self, cred: &Cred, owner: u32, group: u32, want: u8) -> bool {
        let mask = self.perm_of(Who::Mask).unwrap_or(7);
        if cred.uid == owner {
            return self.perm_of(Who::UserObj).unwrap_or(0) & want == want;
        }
        if let Some(p) = self.perm_of(Who::User(cred.uid)) {
            return p & mask & want == want;
        }
        let mut in_a_group = false;
        for e in &self.entries {
            let member = match e.who {
                Who::GroupObj => cred.in_group(group),
                Who::Group(g) => cred.in_group(g),
                _ => false,
            };
            if member {
                in_a_group = true;
                if e.perm & mask & want == want {
                    return true;
                }
            }
        }
        !in_a_group && self.perm_of(Who::Other).unwrap_or(0) & want == want
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn e(who: Who, perm: u8) -> Entry {
        Entry { who, perm }
    }

    fn full() -> Acl {
        Acl::new(vec![
            e(Who::UserObj, 7),
            e(Who::User(10), 6),
            e(Who::User(11), 7),
            e(Who::GroupObj, 5),
            e(Who::Group(20), 2),
            e(Who::Mask, 6),
            e(Who::Other, 1),
        ])
        .unwrap()
    }

    #[test]
    fn xattr_form_goes_there_and_back() {
        for a in [full(), Acl::from_mode(0o640)] {
            assert_eq!(Acl::from_xattr(&a.to_xattr()).unwrap().unwrap(), a);
        }
        assert_eq!(Acl::from_xattr(&2u32.to_le_bytes()), Ok(None));
        assert_eq!(Acl::from_xattr(&1u32.to_le_bytes()), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::from_xattr(&[2, 0]), Err(Errno::EINVAL));
        let good = full().to_xattr();
        assert_eq!(Acl::from_xattr(&good[..good.len() - 1]), Err(Errno::EINVAL));
        assert_eq!(Acl::from_xattr(&good[..good.len() - 8]), Err(Errno::EINVAL), "no entry for others");
    }

    proptest! {
        #[test]
        fn decoding_never_panics(v in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Acl::from_xattr(&v);
        }

        #[test]
        fn bits_and_minimal_list_say_the_same(mode in 0u32..0o1000) {
            let a = Acl::from_mode(mode);
            prop_assert!(a.is_minimal());
            prop_assert_eq!(a.mode_bits(), mode);
        }
    }

    #[test]
    fn invalid_lists_are_refused() {
        for bad in [
            vec![e(Who::UserObj, 7)],
            vec![e(Who::UserObj, 7), e(Who::User(1), 7), e(Who::GroupObj, 5), e(Who::Other, 0)],
            vec![e(Who::GroupObj, 5), e(Who::UserObj, 7), e(Who::Other, 0)],
            vec![e(Who::UserObj, 7), e(Who::GroupObj, 5), e(Who::Mask, 5), e(Who::Mask, 5), e(Who::Other, 0)],
            vec![e(Who::UserObj, 8), e(Who::GroupObj, 5), e(Who::Other, 0)],
        ] {
            assert_eq!(Acl::new(bad), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn entries_are_consulted_in_posix_order() {
        let a = full();
        let (owner, group) = (1, 2);
        let can = |c: &Cred, w| a.grants(c, owner, group, w);
        assert!(can(&Cred::new(1, 99), 7), "the owner is not masked");
        assert!(can(&Cred::new(10, 99), 6));
        assert!(can(&Cred::new(11, 99), 6) && !can(&Cred::new(11, 99), 1), "the mask cuts a named user");
        assert!(!can(&Cred::new(10, 2), 1), "a named user is not asked as a group member");
        assert!(can(&Cred::new(50, 2), 4) && !can(&Cred::new(50, 2), 2));
        let both = Cred { uid: 50, gid: 2, groups: vec![20] };
        assert!(can(&both, 2) && can(&both, 4) && !can(&both, 6), "one entry must grant everything");
        assert!(!can(&Cred::new(50, 20), 1), "a group member is not asked as other");
        assert!(can(&Cred::new(50, 50), 1) && !can(&Cred::new(50, 50), 4));
    }

    #[test]
    fn chmod_moves_the_mask() {
        let mut a = full();
        a.chmod(0o640);
        assert_eq!(a.mode_bits(), 0o640);
        assert_eq!(a.perm_of(Who::GroupObj), Some(5));
        let mut m = Acl::from_mode(0o777);
        m.chmod(0o123);
        assert_eq!(m, Acl::from_mode(0o123));
    }

    #[test]
    fn default_lists_are_inherited_under_the_mode() {
        let (acl, mode) = full().inherit(0o4644);
        assert_eq!(mode, 0o4640, "owner rw of rwx, mask r of rw, other none of x");
        let acl = acl.unwrap();
        assert_eq!(acl.perm_of(Who::UserObj), Some(6));
        assert_eq!(acl.perm_of(Who::Mask), Some(4));
        assert_eq!(acl.perm_of(Who::GroupObj), Some(5));
        assert_eq!(Acl::from_mode(0o750).inherit(0o666), (None, 0o640));
    }
}

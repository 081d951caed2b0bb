//! What owners use: inodes and blocks by user, group, project and directory. A target keeps the totals of
//! what it has; those of the file system are their sums.

use crate::Cred;
use crate::limits::DIRECTORY_DEPTH_MAX;
use crate::nodemap::Owner;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Whose usage is counted: quota types, in the order of quotactl(2), and directories with a quota.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum QuotaType {
    User,
    Group,
    Project,
    /// What lies below a directory that has a quota. Its id is the one that it got with the quota.
    Directory,
}

impl QuotaType {
    pub const ALL: [QuotaType; 4] =
        [QuotaType::User, QuotaType::Group, QuotaType::Project, QuotaType::Directory];

    /// As commands write it.
    pub fn name(self) -> &'static str {
        match self {
            QuotaType::User => "usr",
            QuotaType::Group => "grp",
            QuotaType::Project => "prj",
            QuotaType::Directory => "dir",
        }
    }

    /// Its number in stored keys, which is that of quotactl(2) where that has one.
    pub const fn number(self) -> u8 {
        self as u8
    }

    pub fn from_number(n: u8) -> Option<QuotaType> {
        QuotaType::ALL.into_iter().find(|t| t.number() == n)
    }
}

/// One user, group, project or directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct QuotaId {
    pub of: QuotaType,
    pub id: u32,
}

impl fmt::Display for QuotaId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.of.name(), self.id)
    }
}

/// The directory that what lies in the trash is counted to: none that has a quota.
pub const TRASH_LABEL: u32 = u32::MAX;
/// The same, as somebody to whom something is counted.
pub const TRASH: QuotaId = QuotaId { of: QuotaType::Directory, id: TRASH_LABEL };

/// What somebody has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Usage {
    pub inodes: u64,
    /// Of 512 bytes, as stat(2) counts them.
    pub blocks: u64,
}

impl Usage {
    pub fn is_nothing(&self) -> bool {
        *self == Usage::default()
    }

    /// Bytes of the blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(512)
    }

    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            inodes: self.inodes.saturating_add(other.inodes),
            blocks: self.blocks.saturating_add(other.blocks),
        }
    }
}

impl Owner {
    /// To whom it is counted: of directories the innermost, which counts for those around it as well
    /// ([`DirectoryTree`]). Project 0 is no project, directory 0 none.
    pub fn quota_ids(&self) -> impl Iterator<Item = QuotaId> + use<> {
        let all = [
            (QuotaType::User, self.uid),
            (QuotaType::Group, self.gid),
            (QuotaType::Project, self.projid),
            (QuotaType::Directory, self.directory),
        ];
        all.into_iter()
            .filter(|(of, id)| matches!(of, QuotaType::User | QuotaType::Group) || *id != 0)
            .map(|(of, id)| QuotaId { of, id })
    }
}

/// Who may know what somebody uses: everybody about himself, his groups and projects.
pub fn may_see(cred: &Cred, id: QuotaId) -> bool {
    match id.of {
        _ if cred.is_root() => true,
        QuotaType::User => cred.uid == id.id,
        QuotaType::Group => cred.gid == id.id || cred.groups.contains(&id.id),
        QuotaType::Project | QuotaType::Directory => true,
    }
}

/// Which directories with a quota lie in which: what is counted to one is counted to all around it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DirectoryTree(BTreeMap<u32, u32>);

impl DirectoryTree {
    /// `id` lies in `parent` from now on; 0: in none.
    pub fn set(&mut self, id: u32, parent: u32) {
        assert!(id != 0 && id != parent, "a directory does not lie in itself");
        if parent == 0 {
            self.0.remove(&id)
        } else {
            self.0.insert(id, parent)
        };
    }

    /// The next one around it; 0: there is none.
    pub fn parent(&self, id: u32) -> u32 {
        self.0.get(&id).copied().unwrap_or(0)
    }

    /// Itself and all that lie around it, the innermost first; of 0 none.
    pub fn chain(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        let up = |id: &u32| Some(self.parent(*id)).filter(|p| *p != 0);
        std::iter::successors(Some(id).filter(|id| *id != 0), up).take(DIRECTORY_DEPTH_MAX)
    }

    /// All that lie in another, each with that.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|(id, parent)| (*id, *parent))
    }

    /// To whom something of an owner is counted, with the directories around his.
    pub fn quota_ids(&self, owner: Owner) -> Vec<QuotaId> {
        let plain = Owner { directory: 0, ..owner };
        let directory = |id| QuotaId { of: QuotaType::Directory, id };
        plain.quota_ids().chain(self.chain(owner.directory).map(directory)).collect()
    }
}

/// By how much the usage of each owner differs after a transaction.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct UsageChange(BTreeMap<QuotaId, (i64, i64)>);

impl UsageChange {
    /// An object or inode was `was` of its owner and is `is`; `None`: there was, or is, none.
    pub fn changed(&mut self, was: Option<(Owner, Usage)>, is: Option<(Owner, Usage)>) {
        if was != is {
            was.into_iter().for_each(|(o, u)| self.add(o, u, -1));
            is.into_iter().for_each(|(o, u)| self.add(o, u, 1));
        }
    }

    fn add(&mut self, owner: Owner, u: Usage, sign: i64) {
        if u.is_nothing() {
            return;
        }
        for id in owner.quota_ids() {
            let d = self.0.entry(id).or_default();
            d.0 = d.0.saturating_add(sign.saturating_mul(signed(u.inodes)));
            d.1 = d.1.saturating_add(sign.saturating_mul(signed(u.blocks)));
            if *d == (0, 0) {
                self.0.remove(&id);
            }
        }
    }

    /// Somebody has `is` where `was` was counted.
    pub fn corrected(&mut self, id: QuotaId, was: Usage, is: Usage) {
        let d = self.0.entry(id).or_default();
        d.0 = d.0.saturating_add(signed(is.inodes).saturating_sub(signed(was.inodes)));
        d.1 = d.1.saturating_add(signed(is.blocks).saturating_sub(signed(was.blocks)));
    }

    pub fn is_nothing(&self) -> bool {
        self.0.is_empty()
    }

    /// What it does to directories around those that it names as well.
    pub fn around(&self, tree: &DirectoryTree) -> UsageChange {
        let mut all = self.clone();
        for (id, inodes, blocks) in self.iter().filter(|(id, _, _)| id.of == QuotaType::Directory) {
            for outer in tree.chain(id.id).skip(1) {
                let d = all.0.entry(QuotaId { of: QuotaType::Directory, id: outer }).or_default();
                *d = (d.0.saturating_add(inodes), d.1.saturating_add(blocks));
            }
        }
        all.0.retain(|_, d| *d != (0, 0));
        all
    }

    /// (Whose, inodes more, blocks more).
    pub fn iter(&self) -> impl Iterator<Item = (QuotaId, i64, i64)> + '_ {
        self.0.iter().map(|(id, (i, b))| (*id, *i, *b))
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: u32, gid: u32, projid: u32) -> Owner {
        Owner::new(uid, gid, projid)
    }

    fn of(d: &UsageChange) -> Vec<(QuotaType, u32, i64, i64)> {
        d.iter().map(|(q, i, b)| (q.of, q.id, i, b)).collect()
    }

    #[test]
    fn what_changes_hands_is_taken_from_one_and_given_to_the_other() {
        let mut d = UsageChange::default();
        let u = Usage { inodes: 1, blocks: 8 };
        d.changed(None, Some((owner(5, 6, 0), u)));
        assert_eq!(of(&d), [(QuotaType::User, 5, 1, 8), (QuotaType::Group, 6, 1, 8)], "project 0 is none");
        d.changed(Some((owner(5, 6, 0), u)), Some((owner(7, 6, 9), Usage { inodes: 1, blocks: 24 })));
        let moved =
            [(QuotaType::User, 7, 1, 24), (QuotaType::Group, 6, 1, 24), (QuotaType::Project, 9, 1, 24)];
        assert_eq!(of(&d), moved);
        d.changed(Some((owner(7, 6, 9), Usage { inodes: 1, blocks: 24 })), None);
        assert!(d.is_nothing(), "{d:?}");
    }

    #[test]
    fn what_lies_in_a_directory_lies_in_those_around_it() {
        let mut tree = DirectoryTree::default();
        for (id, parent) in [(2, 1), (3, 2), (4, 1)] {
            tree.set(id, parent);
        }
        assert_eq!(tree.chain(3).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!((tree.chain(0).count(), tree.chain(1).count(), tree.parent(1)), (0, 1, 0));
        let lies_in = |directory| Owner { directory, ..owner(5, 6, 0) };
        let of_3: Vec<(QuotaType, u32)> =
            tree.quota_ids(lies_in(3)).into_iter().map(|q| (q.of, q.id)).collect();
        let dir = QuotaType::Directory;
        assert_eq!(of_3, [(QuotaType::User, 5), (QuotaType::Group, 6), (dir, 3), (dir, 2), (dir, 1)]);
        let mut d = UsageChange::default();
        let u = Usage { inodes: 1, blocks: 8 };
        d.changed(Some((lies_in(3), u)), Some((lies_in(4), u)));
        assert_eq!(of(&d), [(dir, 3, -1, -8), (dir, 4, 1, 8)]);
        assert_eq!(of(&d.around(&tree)), [(dir, 2, -1, -8), (dir, 3, -1, -8), (dir, 4, 1, 8)]);
        tree.set(2, 0);
        assert_eq!(of(&d.around(&tree)).len(), 4, "it left one as well");
    }

    #[test]
    fn types_have_the_numbers_of_quotactl() {
        let numbers: Vec<u8> = QuotaType::ALL.iter().map(|t| t.number()).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert!(QuotaType::ALL.iter().all(|t| QuotaType::from_number(t.number()) == Some(*t)));
        assert_eq!(QuotaType::from_number(4), None);
    }
}

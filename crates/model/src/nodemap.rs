//! Whom the users of a client's host are here. Lustre's nodemap; so far it maps root alone (`root_squash`).
//!
//! Everybody whom a message names passes a [`Nodemap`], wherever he stands in it: as its sender, as one of
//! those for whom a batch acts, as the owner to whom data is charged.

use crate::Cred;
use serde::{Deserialize, Serialize};

/// To whom bytes of a file are charged. In messages and tables it is the three numbers of the first version;
/// whoever sends or stores an owner says the directory beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
    pub projid: u32,
    /// Innermost directory with a quota that the file lies in ([`crate::usage::QuotaType::Directory`]); 0:
    /// none.
    #[serde(skip)]
    pub directory: u32,
}

impl Owner {
    /// Without a directory that counts.
    pub fn new(uid: u32, gid: u32, projid: u32) -> Owner {
        Owner { uid, gid, projid, directory: 0 }
    }
}

/// Whom the users of one client's host are here.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Nodemap {
    root: Option<Cred>,
}

impl Nodemap {
    /// Everybody is himself.
    pub const IDENTITY: Nodemap = Nodemap { root: None };

    /// Root is `cred`; everybody else is himself.
    pub fn squashing_root(cred: Cred) -> Nodemap {
        Nodemap { root: Some(cred) }
    }

    /// Whether root of that host is not root here.
    pub fn squashes_root(&self) -> bool {
        self.root.is_some()
    }

    /// Who somebody is for whom a message acts.
    pub fn cred(&self, claimed: &Cred) -> Cred {
        self.root.as_ref().filter(|_| claimed.is_root()).unwrap_or(claimed).clone()
    }

    /// Who an owner is to whom a message charges data. Owners stay who they are: a client knows them from the
    /// metadata target, which has mapped whoever made the file; a file of root does not change hands when its
    /// data is written from a host whose root is squashed.
    pub fn owner(&self, claimed: Owner) -> Owner {
        claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_is_squashed_and_owners_stay() {
        let (root, user) = (Cred::root(), Cred::new(5, 0));
        let map = Nodemap::squashing_root(Cred::new(99, 98));
        assert!(map.squashes_root() && !Nodemap::IDENTITY.squashes_root());
        assert_eq!((map.cred(&root), map.cred(&user)), (Cred::new(99, 98), user.clone()));
        assert_eq!((Nodemap::IDENTITY.cred(&root), Nodemap::IDENTITY.cred(&user)), (root, user));
        let owner = Owner::new(0, 0, 7);
        assert_eq!(map.owner(owner), owner);
    }
}

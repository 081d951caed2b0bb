//! Whether files are counted to the directory with a quota that they lie in, for whoever looks at the whole
//! table.

use super::NAMES_LOOKED_AT;
use crate::MdsError;
use crate::schema::directories::DirectoryQuota;
use crate::schema::{Inode, key};
use crate::walk::walk;
use model::Fid;
use std::collections::BTreeMap;
use store::Read;

/// All directories with a quota.
#[derive(Default)]
pub struct LabelCheck {
    quotas: BTreeMap<Fid, (u32, u32)>,
    /// Some trees are being counted to another one: nothing can be said.
    unsettled: bool,
}

impl LabelCheck {
    /// What is wrong with a record goes to `found`: (file, what).
    pub fn new(db: &dyn Read, mut found: impl FnMut(Fid, String)) -> Result<LabelCheck, MdsError> {
        let (mut c, mut ended) = (LabelCheck::default(), Vec::new());
        walk(db, &[key::UNSETTLED], &[key::UNSETTLED + 1], |_, _| {
            c.unsettled = true;
            Ok(())
        })?;
        walk(db, &[key::DIRECTORY], &[key::DIRECTORY + 1], |k, v| {
            let (id, q) = match (key::parse_directory(k), DirectoryQuota::decode(k, v)) {
                (Some(id), Ok(q)) => (id, q),
                (_, Err(e)) => {
                    found(Fid::NONE, e.to_string());
                    return Ok(());
                }
                (None, Ok(q)) => {
                    found(q.fid, "its quota has no id".into());
                    return Ok(());
                }
            };
            if q.ended {
                ended.push((q.fid, id));
                return Ok(());
            }
            let dir = db.get(&key::inode(q.fid))?.and_then(|v| Inode::decode(q.fid, &v).ok());
            if !dir.is_some_and(|i| i.is_dir() && i.directory == id) {
                found(q.fid, format!("it has quota {id}, but is no directory that is counted to that"));
            }
            if let Some((other, _)) = c.quotas.insert(q.fid, (id, q.parent)) {
                found(q.fid, format!("it has two quotas, {other} and {id}"));
            }
            Ok(())
        })?;
        for (fid, id) in ended.into_iter().filter(|_| !c.unsettled) {
            found(fid, format!("its quota {id} was taken away, and nobody forgets it"));
        }
        Ok(c)
    }

    /// What is wrong with how a file with several names is counted: names that are older than the quota
    /// between them may lie in several directories with one, and it is counted to one of those.
    pub fn of_links(&self, db: &dyn Read, fid: Fid, i: &Inode) -> Result<Option<String>, MdsError> {
        assert!(!i.is_dir(), "a directory has one name");
        if self.unsettled || self.quotas.is_empty() || !(2..=NAMES_LOOKED_AT).contains(&(i.nlink as usize)) {
            return Ok(None);
        }
        let mut is_right = false;
        let prefix = key::backptr_prefix(fid);
        walk(db, &prefix, &key::behind(&prefix), |k, _| {
            let Some((_, parent, _)) = key::parse_backptr(k) else { return Ok(()) };
            let dir = db.get(&key::inode(parent))?.and_then(|v| Inode::decode(parent, &v).ok());
            is_right |= dir.is_some_and(|dir| dir.directory == i.directory);
            Ok(())
        })?;
        Ok((!is_right).then(|| format!("it is counted to quota {}, and has no name there", i.directory)))
    }

    /// What is wrong with how a file in `dir` is counted. One with several names may lie in several.
    pub fn in_place(&self, dir: &Inode, fid: Fid, i: &Inode) -> Option<String> {
        if self.unsettled || (!i.is_dir() && i.nlink > 1) {
            return None;
        }
        match self.quotas.get(&fid) {
            Some((id, parent)) => (*parent != dir.directory).then(|| {
                format!("its quota {id} lies in quota {parent}, the directory around it in {}", dir.directory)
            }),
            None => (i.directory != dir.directory).then(|| {
                format!("it is counted to quota {}, its directory to {}", i.directory, dir.directory)
            }),
        }
    }
}

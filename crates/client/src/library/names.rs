//! Names that come, go and move, and extended attributes.

use super::error::{Failed, Result};
use super::user::User;
use super::walk::Last;
use crate::llite::{is_virtual_xattr, permission};
use crate::stats::Verb;
use model::limits::SYMLINK_MAX_BYTES;
use model::{Errno, FileType};
use wire::msg::rename::RENAME_EXCHANGE;

impl User {
    /// mkdir(2): `mode` before the umask.
    pub async fn mkdir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let work = async {
            let place = self.walk().place(path).await?;
            let name = place.name(Errno::EEXIST)?.to_vec();
            self.fs.clone().mkdir(self.call(), place.dir.attr.fid, name, mode & 0o7777).await?;
            Ok(())
        };
        self.told("make directory", path, work).await
    }

    /// symlink(2): a link at `path` that leads to `target`, which need not exist.
    pub async fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        let (target, path) = (target.as_ref(), path.as_ref());
        let work = async {
            match target.len() {
                0 => return Err(Errno::ENOENT.into()),
                n if n > SYMLINK_MAX_BYTES => return Err(Errno::ENAMETOOLONG.into()),
                _ => {}
            }
            let (dir, name) = self.vacant(path).await?;
            self.fs.clone().symlink(self.call(), dir, name, target.to_vec()).await?;
            Ok(())
        };
        self.told("make symbolic link", path, work).await
    }

    /// link(2): one more name for a file; a symbolic link is not followed.
    pub async fn link(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let work = async {
            let e = self.walk().file(from, false).await?;
            let (dir, name) = self.vacant(to).await?;
            self.fs.clone().link(self.call(), e.attr.fid, dir, name).await?;
            Ok(())
        };
        self.told("make link", to, work).await
    }

    /// The place of a name that is no directory's: a slash behind it makes it one that cannot be.
    async fn vacant(&self, path: &[u8]) -> std::result::Result<(model::Fid, Vec<u8>), Failed> {
        let walk = &mut self.walk();
        let place = walk.place(path).await?;
        let name = place.name(Errno::EEXIST)?;
        if place.slash {
            walk.lookup(&place.dir, name).await?;
            return Err(Errno::EEXIST.into());
        }
        Ok((place.dir.attr.fid, name.to_vec()))
    }

    /// unlink(2): a name that is no directory goes.
    pub async fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let work = async {
            let walk = &mut self.walk();
            let place = walk.place(path).await?;
            let name = place.name(Errno::EISDIR)?;
            if place.slash {
                let dir = walk.lookup(&place.dir, name).await?.attr.kind == FileType::Directory;
                return Err(if dir { Errno::EISDIR } else { Errno::ENOTDIR }.into());
            }
            Ok(self.fs.clone().unlink(self.call(), place.dir.attr.fid, name.to_vec()).await?)
        };
        self.told("remove", path, work).await
    }

    /// rmdir(2): an empty directory goes.
    pub async fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let work = async {
            let place = self.walk().place(path).await?;
            let name = place.name(match place.last {
                Last::Root => Errno::EBUSY,
                Last::DotDot => Errno::ENOTEMPTY,
                Last::Dot | Last::Name(_) => Errno::EINVAL,
            })?;
            Ok(self.fs.clone().rmdir(self.call(), place.dir.attr.fid, name.to_vec()).await?)
        };
        self.told("remove directory", path, work).await
    }

    /// renameat2(2): `flags` are 0, RENAME_NOREPLACE (1) or RENAME_EXCHANGE (2).
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>, flags: u32) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let work = async {
            let walk = &mut self.walk();
            let old = walk.place(from).await?;
            let new = self.walk().place(to).await?;
            let (name, new_name) = (old.name(Errno::EBUSY)?, new.name(Errno::EBUSY)?);
            if old.slash || (new.slash && flags & RENAME_EXCHANGE == 0) {
                let e = walk.lookup(&old.dir, name).await?;
                if e.attr.kind != FileType::Directory {
                    return Err(Errno::ENOTDIR.into());
                }
            }
            let (parent, new_parent) = (old.dir.attr.fid, new.dir.attr.fid);
            let (name, new_name) = (name.to_vec(), new_name.to_vec());
            Ok(self.fs.clone().rename(self.call(), parent, name, new_parent, new_name, flags).await?)
        };
        self.told("rename", from, work).await
    }

    /// getxattr(2), access lists (`system.posix_acl_access`, `system.posix_acl_default`) included. `ENODATA`:
    /// it has none of this name. A symbolic link is followed, here and below.
    pub async fn getxattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), name.as_ref());
        let work = async {
            let e = self.walk().file(path, true).await?;
            let may = permission::getxattr(&self.fs, &self.call, &e, name);
            self.fs.run(Verb::Getxattr, may).await?;
            Ok(self.fs.clone().getxattr(self.call(), e.attr.fid, name.to_vec()).await?)
        };
        self.told("read an extended attribute of", path, work).await
    }

    /// setxattr(2): `flags` are 0, XATTR_CREATE (1) or XATTR_REPLACE (2). Access lists are the owner's,
    /// `user.*` is for who may write, anything else root's.
    pub async fn setxattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        flags: u32,
    ) -> Result<()> {
        let (path, name, value) = (path.as_ref(), name.as_ref().to_vec(), value.as_ref().to_vec());
        let work = async {
            let e = self.walk().file(path, true).await?;
            if is_virtual_xattr(&name) {
                return Err(Errno::EPERM.into());
            }
            // Who sets an access list from outside the group loses the set-gid bit: the server sees to it.
            let set = self.fs.clone().setxattr(self.call(), e.attr.fid, name, value, flags, false);
            Ok(set.await?)
        };
        self.told("set an extended attribute of", path, work).await
    }

    /// Names of extended attributes; those of `trusted.*` are shown to root only.
    pub async fn listxattr(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        let path = path.as_ref();
        let work = async {
            let e = self.walk().file(path, true).await?;
            Ok(self.fs.clone().listxattr(self.call(), e.attr.fid).await?)
        };
        self.told("list the extended attributes of", path, work).await
    }

    /// removexattr(2).
    pub async fn removexattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        let (path, name) = (path.as_ref(), name.as_ref().to_vec());
        let work = async {
            let e = self.walk().file(path, true).await?;
            if is_virtual_xattr(&name) {
                return Err(Errno::EPERM.into());
            }
            Ok(self.fs.clone().removexattr(self.call(), e.attr.fid, name).await?)
        };
        self.told("remove an extended attribute of", path, work).await
    }
}

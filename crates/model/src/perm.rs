//! Who may do what: the permission rules of POSIX as Linux reads them. Pure; the metadata server asks them
//! for each request, the kernel having asked its own before.

use crate::acl::Acl;
use crate::attr::{S_ISGID, S_ISUID, S_ISVTX};
use crate::planted::{self, Bug};
use crate::{Cred, Errno, FileType};

pub const MAY_EXEC: u8 = 1;
pub const MAY_WRITE: u8 = 2;
pub const MAY_READ: u8 = 4;

/// FS_*_FL bits of an inode's flags that concern permissions.
pub const FLAG_IMMUTABLE: u32 = 0x10;
pub const FLAG_APPEND: u32 = 0x20;
/// Others, not about permissions. Writes are durable when they return.
pub const FLAG_SYNC: u32 = 0x8;
/// Backups leave it out.
pub const FLAG_NODUMP: u32 = 0x40;
/// Reads leave the time of access as it is.
pub const FLAG_NOATIME: u32 = 0x80;

/// O_* bits of open(2) that permission depends on (Linux, x86-64).
pub const O_ACCMODE: u32 = 0o3;
pub const O_WRONLY: u32 = 0o1;
pub const O_RDWR: u32 = 0o2;
pub const O_TRUNC: u32 = 0o1000;
pub const O_APPEND: u32 = 0o2000;
/// The kernel opens it to execute it (`__FMODE_EXEC`): execute permission instead of read permission.
pub const FMODE_EXEC: u32 = 0x20;

/// What the rules need to know of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub kind: FileType,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// FS_*_FL flags.
    pub flags: u32,
    /// The access list, if there is more than the bits say.
    pub acl: Option<&'a Acl>,
}

/// Access check: `EACCES` unless all of `want` ([`MAY_READ`] …) is granted; `EPERM` for writing to an
/// immutable file.
pub fn access(cred: &Cred, s: &Subject, want: u8) -> Result<(), Errno> {
    if want & MAY_WRITE != 0 && s.flags & FLAG_IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    if cred.is_root() {
        // The superuser executes a file only if somebody may.
        let runs = s.kind == FileType::Directory || s.mode & 0o111 != 0;
        return if want & MAY_EXEC == 0 || runs { Ok(()) } else { Err(Errno::EACCES) };
    }
    // A list whose mask takes everything is not looked at by Linux: with it, who is named in it is anybody
    // else.
    let granted = match s.acl.filter(|_| s.mode & 0o070 != 0) {
        Some(acl) => acl.grants(cred, s.uid, s.gid, want),
        None => {
            let shift = if cred.uid == s.uid {
                6
            } else if cred.in_group(s.gid) {
                3
            } else {
                0
            };
            (s.mode >> shift) & u32::from(want) == u32::from(want)
        }
    };
    if granted || planted::on(Bug::PermissionSkipped) { Ok(()) } else { Err(Errno::EACCES) }
}

/// open(2)'s check of an existing file; `flags` are O_* bits.
///
/// `EISDIR` for writing to a directory, `ELOOP` for a symbolic link, `EPERM` for writing to an immutable file
/// or anything but appending to an append-only one, otherwise as [`access`].
pub fn may_open(cred: &Cred, s: &Subject, flags: u32) -> Result<(), Errno> {
    let mut want = match flags & O_ACCMODE {
        _ if flags & FMODE_EXEC != 0 => MAY_EXEC,
        O_WRONLY => MAY_WRITE,
        O_RDWR => MAY_READ | MAY_WRITE,
        _ => MAY_READ,
    };
    if flags & O_TRUNC != 0 {
        want |= MAY_WRITE;
    }
    match s.kind {
        FileType::Directory if want & MAY_WRITE != 0 => return Err(Errno::EISDIR),
        FileType::Symlink => return Err(Errno::ELOOP),
        _ => {}
    }
    access(cred, s, want)?;
    let appends = flags & O_APPEND != 0 && flags & O_TRUNC == 0;
    if s.flags & FLAG_APPEND != 0 && want & MAY_WRITE != 0 && !appends {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// Whether a file's data may be changed by who opened it before it became immutable or append-only: not of an
/// immutable one, and nothing of an append-only one goes (`removes`). Written it may be, anywhere: it was
/// opened for that.
pub fn may_change_data(flags: u32, removes: bool) -> Result<(), Errno> {
    let kept = FLAG_IMMUTABLE | if removes { FLAG_APPEND } else { 0 };
    if flags & kept != 0 { Err(Errno::EPERM) } else { Ok(()) }
}

/// The caller owns the file or is the superuser.
pub fn owns(cred: &Cred, uid: u32) -> bool {
    cred.is_root() || cred.uid == uid
}

/// A name may be added to the directory: write and search permission.
pub fn may_create(cred: &Cred, dir: &Subject) -> Result<(), Errno> {
    access(cred, dir, MAY_WRITE | MAY_EXEC)
}

/// The name of `victim` may be taken out of `dir`: write and search permission, the sticky bit, flags.
pub fn may_delete(cred: &Cred, dir: &Subject, victim: &Subject) -> Result<(), Errno> {
    access(cred, dir, MAY_WRITE | MAY_EXEC)?;
    if dir.flags & FLAG_APPEND != 0 || victim.flags & (FLAG_APPEND | FLAG_IMMUTABLE) != 0 {
        return Err(Errno::EPERM);
    }
    let sticky = dir.mode & S_ISVTX != 0 && !owns(cred, victim.uid) && !owns(cred, dir.uid);
    if sticky { Err(Errno::EPERM) } else { Ok(()) }
}

/// Group and mode of a new file in `dir` (set-gid directories hand on their group, and to directories the
/// bit itself). `mode` is as asked for, the umask and default lists not yet applied.
pub fn inherit_group(cred: &Cred, dir: &Subject, kind: FileType, mode: u32) -> (u32, u32) {
    if dir.mode & S_ISGID == 0 {
        return (cred.gid, mode);
    }
    let mut mode = mode;
    if kind == FileType::Directory {
        mode |= S_ISGID;
    } else if mode & (S_ISGID | 0o010) == (S_ISGID | 0o010) && !cred.is_root() && !cred.in_group(dir.gid) {
        mode &= !S_ISGID;
    }
    (dir.gid, mode)
}

/// Flags of a new file in a directory with these, as ext4 has it.
pub fn inherit_flags(dir: u32, kind: FileType) -> u32 {
    let sync = if matches!(kind, FileType::Regular | FileType::Directory) { FLAG_SYNC } else { 0 };
    dir & (FLAG_NODUMP | FLAG_NOATIME | sync)
}

/// The mode after chmod(2) to `mode` of a file whose group is `gid`: somebody outside the group cannot set
/// set-gid.
pub fn chmod_mode(cred: &Cred, gid: u32, mode: u32) -> u32 {
    let mode = mode & 0o7777;
    if cred.is_root() || cred.in_group(gid) { mode } else { mode & !S_ISGID }
}

/// chown(2): the superuser may do everything; an owner may keep the uid and choose among their groups.
pub fn may_chown(cred: &Cred, s: &Subject, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    if cred.is_root() {
        return Ok(());
    }
    let uid_ok = uid.is_none_or(|u| cred.uid == s.uid && u == s.uid);
    let gid_ok = gid.is_none_or(|g| cred.uid == s.uid && (g == s.gid || cred.in_group(g)));
    if uid_ok && gid_ok { Ok(()) } else { Err(Errno::EPERM) }
}

/// The mode after writing, truncation or a change of owner: without set-uid, and without set-gid if the
/// group may execute (otherwise that bit means mandatory locking, not identity). Directories keep theirs.
pub fn kill_suid_sgid(kind: FileType, mode: u32) -> u32 {
    if kind == FileType::Directory {
        return mode;
    }
    let sgid = if mode & 0o010 != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | sgid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{Entry, Who};

    fn file(mode: u32, uid: u32, gid: u32) -> Subject<'static> {
        Subject { kind: FileType::Regular, mode, uid, gid, flags: 0, acl: None }
    }

    fn dir(mode: u32, uid: u32, gid: u32) -> Subject<'static> {
        Subject { kind: FileType::Directory, ..file(mode, uid, gid) }
    }

    #[test]
    fn only_the_first_matching_class_counts() {
        let f = file(0o074, 1, 2);
        assert_eq!(
            access(&Cred::new(1, 2), &f, MAY_READ),
            Err(Errno::EACCES),
            "the owner is no group member"
        );
        assert_eq!(access(&Cred::new(5, 2), &f, 7), Ok(()));
        let member = Cred { uid: 5, gid: 9, groups: vec![1, 2] };
        assert_eq!(access(&member, &f, 7), Ok(()));
        assert_eq!(access(&Cred::new(5, 9), &f, MAY_READ), Ok(()));
        assert_eq!(access(&Cred::new(5, 9), &f, MAY_WRITE), Err(Errno::EACCES));
    }

    /// As `acl_permission_check` of Linux has it, so that all file systems of a host agree.
    #[test]
    fn a_list_whose_mask_takes_everything_leaves_the_bits_to_decide() {
        let e = |who, perm| Entry { who, perm };
        let acl = Acl::new(vec![
            e(Who::UserObj, 6),
            e(Who::User(10), 6),
            e(Who::GroupObj, 6),
            e(Who::Mask, 0),
            e(Who::Other, 4),
        ]);
        let acl = acl.unwrap();
        let f = Subject { acl: Some(&acl), ..file(0o604, 1, 2) };
        assert_eq!(access(&Cred::new(10, 10), &f, MAY_READ), Ok(()), "named, and so anybody else");
        assert_eq!(access(&Cred::new(10, 10), &f, MAY_WRITE), Err(Errno::EACCES));
        assert_eq!(
            access(&Cred::new(10, 2), &f, MAY_READ),
            Err(Errno::EACCES),
            "of the group, which has no bits"
        );
        assert_eq!(access(&Cred::new(1, 9), &f, MAY_READ | MAY_WRITE), Ok(()));
    }

    #[test]
    fn flags_of_a_directory_are_those_of_new_files_in_it() {
        let all = FLAG_SYNC | FLAG_NODUMP | FLAG_NOATIME | FLAG_APPEND | FLAG_IMMUTABLE;
        assert_eq!(inherit_flags(all, FileType::Directory), FLAG_SYNC | FLAG_NODUMP | FLAG_NOATIME);
        assert_eq!(inherit_flags(all, FileType::Regular), FLAG_SYNC | FLAG_NODUMP | FLAG_NOATIME);
        assert_eq!(inherit_flags(all, FileType::Symlink), FLAG_NODUMP | FLAG_NOATIME);
        assert_eq!(inherit_flags(0, FileType::Regular), 0);
    }

    #[test]
    fn root_executes_only_what_somebody_may() {
        let root = Cred::root();
        assert_eq!(access(&root, &file(0, 1, 1), MAY_READ | MAY_WRITE), Ok(()));
        assert_eq!(access(&root, &file(0o666, 1, 1), MAY_EXEC), Err(Errno::EACCES));
        assert_eq!(access(&root, &file(0o001, 1, 1), MAY_EXEC), Ok(()));
        assert_eq!(access(&root, &dir(0, 1, 1), 7), Ok(()));
    }

    #[test]
    fn sticky_directories_protect_others_files() {
        let tmp = dir(0o1777, 0, 0);
        let c = Cred::new(7, 7);
        assert_eq!(may_delete(&c, &tmp, &file(0o644, 8, 8)), Err(Errno::EPERM));
        assert_eq!(may_delete(&c, &tmp, &file(0o644, 7, 8)), Ok(()));
        assert_eq!(may_delete(&Cred::root(), &tmp, &file(0o644, 8, 8)), Ok(()));
        assert_eq!(may_delete(&c, &dir(0o1777, 7, 0), &file(0o644, 8, 8)), Ok(()), "owner of the directory");
        assert_eq!(may_delete(&c, &dir(0o1755, 0, 0), &file(0o644, 7, 8)), Err(Errno::EACCES));
    }

    #[test]
    fn set_gid_directories_hand_on_their_group() {
        let d = dir(0o2775, 0, 50);
        let c = Cred::new(7, 7);
        assert_eq!(inherit_group(&c, &d, FileType::Directory, 0o755), (50, 0o2755));
        assert_eq!(inherit_group(&c, &d, FileType::Regular, 0o2755), (50, 0o755));
        assert_eq!(inherit_group(&c, &d, FileType::Regular, 0o2745), (50, 0o2745));
        assert_eq!(inherit_group(&c, &dir(0o755, 0, 50), FileType::Directory, 0o755), (7, 0o755));
    }

    #[test]
    fn owners_change_groups_only_to_their_own() {
        let f = file(0o644, 7, 7);
        let c = Cred { uid: 7, gid: 7, groups: vec![20] };
        assert_eq!(may_chown(&c, &f, None, Some(20)), Ok(()));
        assert_eq!(may_chown(&c, &f, Some(7), Some(7)), Ok(()));
        assert_eq!(may_chown(&c, &f, None, Some(21)), Err(Errno::EPERM));
        assert_eq!(may_chown(&c, &f, Some(8), None), Err(Errno::EPERM));
        assert_eq!(may_chown(&Cred::new(8, 7), &f, None, Some(7)), Err(Errno::EPERM));
    }

    #[test]
    fn set_id_bits_go() {
        assert_eq!(kill_suid_sgid(FileType::Regular, 0o6755), 0o755);
        assert_eq!(kill_suid_sgid(FileType::Regular, 0o6745), 0o2745);
        assert_eq!(kill_suid_sgid(FileType::Directory, 0o6755), 0o6755);
        assert_eq!(chmod_mode(&Cred::new(7, 7), 8, 0o2755), 0o755);
        assert_eq!(chmod_mode(&Cred::new(7, 7), 7, 0o2755), 0o2755);
    }
}

//! Operations that were answered and are lost: whose files they were, so that those are told who must know
//! ([`crate::base::errseq`]).

use super::context::Context;
use model::{Errno, Fid};
use std::collections::BTreeSet;
use wire::msg::{
    batch, components, create, fallocate, grow, instantiate, link, migrate, mkdir, mknod, purge, recreate,
    removexattr, rename, rmdir, setattr, setlayout, setxattr, swap, symlink, trashdir, trashtake, truncate,
    unlink, write, writelist,
};
use wire::{CodecError, Op, RequestContext};

/// What an operation, or several, did.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    /// Files and directories that it changed, and that were there before.
    pub files: BTreeSet<Fid>,
    /// Those that it made.
    pub made: BTreeSet<Fid>,
}

/// The files and directories that a request changed, by its message and its answer. Empty: it changed nothing
/// that an fsync promises, such as what is open, a lock, a time of access.
fn changed(op: Op, message: &[u8], reply: &[u8]) -> Result<Changed, CodecError> {
    use wire::decode_message as of;
    let m = message;
    let mut made = Fid::NONE;
    let mut new = |parent: Fid, fid: Fid| {
        made = fid;
        vec![parent]
    };
    let fids: Vec<Fid> = match op {
        Op::Create => of(m).map(|m: create::Create| new(m.parent, m.fid))?,
        Op::Mkdir => of(m).map(|m: mkdir::Mkdir| new(m.parent, m.fid))?,
        Op::Mknod => of(m).map(|m: mknod::Mknod| new(m.parent, m.fid))?,
        Op::Symlink => of(m).map(|m: symlink::Symlink| new(m.parent, m.fid))?,
        Op::Link => of(m).map(|m: link::Link| vec![m.parent, m.fid])?,
        Op::Unlink => named(of(m).map(|m: unlink::Unlink| vec![m.parent])?, reply),
        Op::Trashdir => of(m).map(|m: trashdir::Trashdir| vec![m.fid])?,
        Op::Trashtake => of(m).map(|m: trashtake::Trashtake| taken(&m))?,
        Op::Purge => named(of(m).map(|m: purge::Purge| vec![m.parent])?, reply),
        Op::Rmdir => named(of(m).map(|m: rmdir::Rmdir| vec![m.parent])?, reply),
        Op::Rename => named(of(m).map(|m: rename::Rename| vec![m.parent, m.new_parent])?, reply),
        Op::Setattr => of(m).map(|m: setattr::Setattr| vec![m.fid])?,
        Op::Setxattr => of(m).map(|m: setxattr::Setxattr| vec![m.fid])?,
        Op::Removexattr => of(m).map(|m: removexattr::Removexattr| vec![m.fid])?,
        Op::Setlayout => of(m).map(|m: setlayout::Setlayout| vec![m.fid])?,
        Op::Grow => of(m).map(|m: grow::Grow| vec![m.fid])?,
        Op::Instantiate => of(m).map(|m: instantiate::Instantiate| vec![m.fid])?,
        Op::Components => of(m).map(|m: components::Components| vec![m.fid])?,
        Op::Recreate => of(m).map(|m: recreate::Recreate| vec![m.fid])?,
        Op::Swap => of(m).map(|m: swap::Swap| vec![m.fid, m.other])?,
        Op::Migrate => of(m).map(|m: migrate::Migrate| vec![m.fid])?,
        Op::Write => of(m).map(|m: write::Write| vec![m.file])?,
        Op::Writelist => of(m).map(|m: writelist::Writelist| vec![m.write.file])?,
        Op::Truncate => of(m).map(|m: truncate::Truncate| vec![m.file])?,
        Op::Fallocate => of(m).map(|m: fallocate::Fallocate| vec![m.file])?,
        Op::Batch => {
            let b: batch::Batch = of(m)?;
            let mut all = Changed::default();
            for o in b.ops {
                let one = changed(Op::from_u16(o.opcode)?, &o.body, &[])?;
                all.files.extend(one.files);
                all.made.extend(one.made);
            }
            return Ok(all);
        }
        Op::Open
        | Op::Close
        | Op::Own
        | Op::Allocseq
        | Op::Enqueue
        | Op::Cancel
        | Op::Reclaim
        | Op::Changelogclear
        | Op::Setquota
        | Op::Quotadir
        | Op::Extent => vec![],
        Op::Ping | Op::Disconnect | Op::Statfs | Op::Quotactl | Op::GetParam | Op::SetParam => vec![],
        Op::Grant | Op::Sync | Op::Acquire | Op::Makeroom => vec![],
        Op::Lookup
        | Op::Getattr
        | Op::Layout
        | Op::Readlink
        | Op::Readdir
        | Op::Getxattr
        | Op::Listxattr
        | Op::Getpath => vec![],
        Op::Fetch | Op::Ostfiles | Op::Scan | Op::Trashlist | Op::Withdraw | Op::Changelog => vec![],
        Op::Getlock | Op::Read | Op::Seek | Op::Glimpse | Op::Glimpselist => vec![],
        // Not sent by mounts.
        Op::Destroy
        | Op::Fence
        | Op::Setowner
        | Op::Quotashare
        | Op::Objectlist
        | Op::Barrier
        | Op::Snapshot
        | Op::Register
        | Op::Config
        | Op::Configview => vec![],
    };
    let some = |f: &Fid| *f != Fid::NONE;
    Ok(Changed {
        files: fids.into_iter().filter(some).collect(),
        made: Some(made).into_iter().filter(some).collect(),
    })
}

/// The file or directory that a request changes, for messages.
pub(crate) fn first_changed(op: Op, message: &[u8]) -> Option<Fid> {
    changed(op, message, &[]).ok()?.files.first().copied()
}

/// What gets out of the trash, and the directories that are named for it.
fn taken(m: &trashtake::Trashtake) -> Vec<Fid> {
    let to = |how: &trashtake::Takeout| match how {
        trashtake::Takeout::To(parent, _) => *parent,
        _ => Fid::NONE,
    };
    m.files.iter().flat_map(|(fid, how)| [*fid, to(how)]).collect()
}

/// With the files that the names led to: only the answer says which they were. Operations of a batch have
/// none of their own.
fn named(mut dirs: Vec<Fid>, reply: &[u8]) -> Vec<Fid> {
    if let Ok(c) = wire::decode_message::<unlink::Changed>(reply) {
        dirs.extend(c.entries.iter().map(|e| e.attr.fid).chain(c.gone));
    }
    dirs
}

impl Context {
    /// Changes that had been answered are lost. Of a file that was to be made nobody but who has it open can
    /// ever ask.
    pub(crate) fn changes_lost(&self, c: &Changed, why: Errno) {
        c.files.difference(&c.made).for_each(|f| self.told.add(*f, why));
        c.made.iter().for_each(|f| self.told.add_if_open(*f, why));
    }

    /// A server lost what it had answered, and it could not be done again.
    pub(crate) fn request_lost(&self, op: Op, body: &bytes::Bytes, reply: &[u8]) {
        let found = wire::decode_context::<RequestContext>(body).and_then(|(_, m)| changed(op, &m, reply));
        match found {
            Ok(c) => {
                if let Some(first) = c.files.first() {
                    let what = format!("{op:?}").to_lowercase();
                    self.errors.add_operation(self.world.wall(), *first, what, Errno::EIO);
                }
                self.changes_lost(&c, Errno::EIO);
            }
            Err(e) => {
                tracing::error!("{op:?} is lost, and it cannot be said whose it was: {e}");
                self.told.add_anywhere(Errno::EIO);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::encode_message;

    fn fid(oid: u32) -> Fid {
        Fid::new(9, oid, 0)
    }

    #[test]
    fn a_request_says_whose_files_it_changed() {
        let mkdir = mkdir::Mkdir { parent: fid(1), name: b"d".to_vec(), fid: fid(2), mode: 0o755, umask: 0 };
        let body = encode_message(&mkdir);
        let want = |files: &[u32], made: &[u32]| Changed {
            files: files.iter().copied().map(fid).collect(),
            made: made.iter().copied().map(fid).collect(),
        };
        assert_eq!(changed(Op::Mkdir, &body, &[]).unwrap(), want(&[1], &[2]));
        let grow = encode_message(&grow::Grow { fid: fid(7) });
        let ops =
            vec![batch::BatchOp::plain(Op::Mkdir as u16, body), batch::BatchOp::plain(Op::Grow as u16, grow)];
        let body = encode_message(&batch::Batch::plain(ops));
        assert_eq!(changed(Op::Batch, &body, &[]).unwrap(), want(&[1, 7], &[2]));
        assert!(changed(Op::Mkdir, b"", &[]).is_err());
    }

    #[test]
    fn the_answer_says_what_a_name_led_to() {
        let body = encode_message(&unlink::Unlink { parent: fid(1), name: b"f".to_vec() });
        let reply = encode_message(&unlink::Changed { entries: Vec::new(), gone: vec![fid(3)] });
        let files = |reply: &[u8]| changed(Op::Unlink, &body, reply).unwrap().files;
        assert_eq!(files(&reply), BTreeSet::from([fid(1), fid(3)]));
        assert_eq!(files(&[]), BTreeSet::from([fid(1)]));
    }
}

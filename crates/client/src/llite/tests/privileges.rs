//! Set-id bits and capabilities fall before data changes; what is immutable does not change.

use super::*;
use model::attr::XATTR_CAPABILITY;
use model::perm::{FLAG_APPEND, FLAG_IMMUTABLE};
use wire::Op;
use wire::msg::fallocate::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE};
use wire::msg::setattr::Setattr;

impl Rig {
    /// As who may not keep set-id bits.
    async fn write_as_user(&self, fid: Fid, data: &'static [u8]) -> R<u64> {
        let data = Bytes::from_static(data);
        self.fs.clone().write(user(), fid, 0, false, true, data).await
    }
}

#[test]
fn a_write_takes_set_id_bits_before_anything_else_and_asks_nothing_where_there_are_none() {
    run(1, |r| async move {
        let (plain, program) = (r.small(1, b""), r.small(2, b""));
        r.mdt().script().inode(program).unwrap().attr.mode = 0o4755;
        let (_p, _q) = (r.open(plain, O_RDWR).await, r.open(program, O_RDWR).await);
        let before = r.mdt().seen().len();
        r.write_as_user(plain, b"x").await.unwrap();
        r.write(program, 0, *b"as root").await.unwrap();
        assert_eq!(
            r.mdt().seen()[before..],
            [Op::Write, Op::Write],
            "nothing to take, and who may keep them"
        );
        r.write_as_user(program, b"y").await.unwrap();
        r.write_as_user(program, b"z").await.unwrap();
        assert_eq!(r.mdt().seen()[before + 2..], [Op::Setattr, Op::Write, Op::Write], "once, and first");
        assert!(r.mdt().asked::<Setattr>()[0].set.kill_suid_sgid);
        assert_eq!(r.mdt().script().inode(program).unwrap().attr.mode, 0o755);
    });
}

#[test]
fn a_write_takes_file_capabilities_also_if_root_writes_and_looks_for_them_once() {
    run(2, |r| async move {
        let (program, other) = (r.small(1, b""), r.small(2, b""));
        let add = |fid, name: &[u8]| {
            r.mdt().script().inode(fid).unwrap().xattrs.insert(name.to_vec(), vec![1]);
        };
        add(program, XATTR_CAPABILITY);
        add(other, b"user.note");
        let (_p, _o) = (r.open(program, O_RDWR).await, r.open(other, O_RDWR).await);
        for _ in 0..3 {
            r.write(program, 0, *b"x").await.unwrap();
        }
        assert_eq!((r.mdt().count(Op::Getxattr), r.mdt().count(Op::Removexattr)), (1, 1));
        assert!(r.mdt().script().inode(program).unwrap().xattrs.is_empty());
        for _ in 0..3 {
            r.write(other, 0, *b"x").await.unwrap();
        }
        assert_eq!((r.mdt().count(Op::Getxattr), r.mdt().count(Op::Removexattr)), (2, 1));
    });
}

#[test]
fn a_program_keeps_its_bits_if_they_cannot_be_taken_and_then_its_data_as_well() {
    run(3, |r| async move {
        let program = r.small(1, b"code");
        r.mdt().script().inode(program).unwrap().attr.mode = 0o4755;
        let _p = r.open(program, O_RDWR).await;
        r.mdt().refuse(Op::Setattr, Errno::ENOSPC, 1);
        assert_eq!(r.write_as_user(program, b"evil").await, Err(Errno::ENOSPC));
        assert_eq!(r.mdt().script().inode(program).unwrap().data, b"code");
    });
}

#[test]
fn a_file_that_became_immutable_or_append_only_while_it_was_open_is_kept_from_what_that_forbids() {
    run(4, |r| async move {
        let (fixed, log) = (r.small(1, b"data"), r.small(2, b"data"));
        r.mdt().script().inode(fixed).unwrap().attr.flags = FLAG_IMMUTABLE;
        r.mdt().script().inode(log).unwrap().attr.flags = FLAG_APPEND;
        let (_f, _l) = (r.open(fixed, O_RDWR).await, r.open(log, O_RDWR).await);
        let before = r.c.requests();
        let hole = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
        let fallocate = |fid, mode| r.fs.clone().fallocate(Call::default(), fid, mode, 0, 2);
        let refused = [
            r.write(fixed, 0, *b"x").await.map(drop),
            fallocate(fixed, 0).await,
            r.fs.clone().copy_file_range(Call::default(), log, 0, fixed, 0, 1).await.map(drop),
            fallocate(log, hole).await,
        ];
        assert_eq!((refused, r.c.requests()), ([Err(Errno::EPERM); 4], before), "and nothing was sent");
        assert_eq!((r.append(log, *b"more").await, fallocate(log, 0).await), (Ok(4), Ok(())));
    });
}

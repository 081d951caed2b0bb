//! Operations on names and files, which run within a transaction: which they are, and which of them change
//! something.

use crate::names::OpContext;
use crate::ops;
use crate::tx::Tx;
use model::Errno;
use wire::{Message, Op, decode_request, encode_message, msg};

macro_rules! transactional {
    ($($op:ident: $msg:ty => $run:path;)*) => {
        /// Runs one operation on names or files within a transaction. `EOPNOTSUPP` for other messages,
        /// `EDQUOT` if somebody would have more than he may.
        pub fn execute(tx: &mut Tx, ctx: &OpContext, op: Op, body: &[u8]) -> Result<Vec<u8>, Errno> {
            let reply = execute_unlimited(tx, ctx, op, body)?;
            tx.check_limits(ctx.cred.is_root(), ctx.wall)?;
            Ok(reply)
        }

        fn execute_unlimited(tx: &mut Tx, ctx: &OpContext, op: Op, body: &[u8]) -> Result<Vec<u8>, Errno> {
            match op {
                $(Op::$op => {
                    let m: $msg = decode_request(body)?;
                    let r: <$msg as Message>::Reply = $run(tx, ctx, m)?;
                    Ok(encode_message(&r))
                })*
                _ => Err(Errno::EOPNOTSUPP),
            }
        }

        /// Whether an operation that [`execute`] knows changes anything; `None` if it does not know it.
        pub fn modifies(op: Op) -> Option<bool> {
            match op {
                $(Op::$op)|* => Some(op.verb().modifies),
                _ => None,
            }
        }
    };
}

transactional! {
    Lookup: msg::lookup::Lookup => ops::lookup::run;
    Getattr: msg::getattr::Getattr => ops::getattr::run;
    Setattr: msg::setattr::Setattr => ops::setattr::run;
    Create: msg::create::Create => ops::create::run;
    Mkdir: msg::mkdir::Mkdir => ops::mkdir::run;
    Mknod: msg::mknod::Mknod => ops::mknod::run;
    Symlink: msg::symlink::Symlink => ops::symlink::run;
    Readlink: msg::readlink::Readlink => ops::readlink::run;
    Link: msg::link::Link => ops::link::run;
    Unlink: msg::unlink::Unlink => ops::unlink::run;
    Purge: msg::purge::Purge => ops::purge::run;
    Rmdir: msg::rmdir::Rmdir => ops::rmdir::run;
    Rename: msg::rename::Rename => ops::rename::run;
    Open: msg::open::Open => ops::open::run;
    Close: msg::close::Close => ops::close::run;
    Readdir: msg::readdir::Readdir => ops::readdir::run;
    Getxattr: msg::getxattr::Getxattr => ops::getxattr::run;
    Setxattr: msg::setxattr::Setxattr => ops::setxattr::run;
    Listxattr: msg::listxattr::Listxattr => ops::listxattr::run;
    Removexattr: msg::removexattr::Removexattr => ops::removexattr::run;
    Setlayout: msg::setlayout::Setlayout => ops::setlayout::run;
    Getpath: msg::getpath::Getpath => ops::getpath::run;
    Allocseq: msg::allocseq::Allocseq => ops::allocseq::run;
    Read: msg::read::Read => ops::read::run;
    Write: msg::write::Write => ops::write::run;
    Seek: msg::seek::Seek => ops::seek::run;
    Fetch: msg::fetch::Fetch => ops::fetch::run;
    Ostfiles: msg::ostfiles::Ostfiles => ops::ostfiles::run;
    Changelogclear: msg::changelogclear::Changelogclear => ops::changelogclear::run;
    Trashlist: msg::trashlist::Trashlist => ops::trashlist::run;
    Fallocate: msg::fallocate::Fallocate => ops::fallocate::run;
}

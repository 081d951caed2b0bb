//! What can go wrong on disk.

use model::{Errno, Fid, ObjectId};
use std::io;

const ENFILE: Errno = Errno(23);
const EMFILE: Errno = Errno(24);

#[derive(Debug, thiserror::Error, Clone)]
pub enum StoreError {
    /// The host's disk said so.
    #[error("{what} '{path}': {errno}")]
    Io { what: &'static str, path: String, errno: Errno },
    /// What is on disk is not what was written.
    #[error("{what} '{path}' is damaged: {why}")]
    Damaged { what: &'static str, path: String, why: String },
    /// A block is not what was written: its checksum differs.
    #[error(
        "object {object} of file {file}: block at offset {offset} in '{path}' has checksum {got:08x}, not {want:08x}: \
         the disk changed it"
    )]
    Checksum { object: ObjectId, file: Fid, offset: u64, path: String, want: u32, got: u32 },
    /// The target stopped after an earlier error and serves nothing any more.
    #[error("target stopped: {0}")]
    Stopped(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Errno(Errno),
}

impl StoreError {
    /// The one mapping to errno of this crate.
    pub fn errno(&self) -> Errno {
        match self {
            StoreError::Io { errno, .. } | StoreError::Errno(errno) => *errno,
            StoreError::Damaged { .. } | StoreError::Checksum { .. } => Errno::EIO,
            StoreError::Stopped(_) => Errno::EROFS,
            StoreError::Refused(_) => Errno::EINVAL,
        }
    }

    /// Turns the host's error into one that says what was tried on which file; one of ours stays what it is.
    pub(crate) fn io(what: &'static str, path: &str) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_string();
        move |e| match e.downcast::<StoreError>() {
            Ok(ours) => ours,
            Err(e) => StoreError::Io { what, path, errno: Errno::from(e) },
        }
    }

    pub fn damaged(what: &'static str, path: &str, why: impl Into<String>) -> StoreError {
        StoreError::Damaged { what, path: path.to_string(), why: why.into() }
    }

    /// Errors that say something about the request or the free space, not about the health of the disk:
    /// the target goes on after them.
    pub(crate) fn is_harmless(&self) -> bool {
        match self {
            StoreError::Io { errno, .. } | StoreError::Errno(errno) => {
                matches!(
                    *errno,
                    Errno::ENOSPC
                        | Errno::EFBIG
                        | Errno::EDQUOT
                        | Errno::EINVAL
                        | Errno::EOPNOTSUPP
                        | Errno::E2BIG
                        | Errno::ENOMEM
                        | ENFILE
                        | EMFILE
                )
            }
            _ => false,
        }
    }
}

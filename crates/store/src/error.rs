//! What can go wrong on disk.

use model::Errno;

#[derive(Debug, thiserror::Error, Clone)]
pub enum StoreError {
    /// The host's disk said so.
    #[error("{what} '{path}': {errno}")]
    Io { what: &'static str, path: String, errno: Errno },
    /// What is on disk is not what was written.
    #[error("{what} '{path}' is damaged: {why}")]
    Damaged { what: &'static str, path: String, why: String },
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
            StoreError::Damaged { .. } => Errno::EIO,
            StoreError::Stopped(_) => Errno::EROFS,
            StoreError::Refused(_) => Errno::EINVAL,
        }
    }
}

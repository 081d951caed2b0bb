//! What can go wrong in a metadata target.

use model::{Errno, Fid};
use store::StoreError;

#[derive(Debug, thiserror::Error, Clone)]
pub enum MdsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored value does not decode.
    #[error("{what} {key} is damaged: {why}; run 'nacre fsck' on the target's folder")]
    Damaged { what: &'static str, key: String, why: String },
    /// A record that must be there is not.
    #[error("{what} of {fid} is missing; run 'nacre fsck' on the target's folder")]
    Missing { what: &'static str, fid: Fid },
    #[error("{0}")]
    Refused(String),
}

impl MdsError {
    /// The one mapping to errno of this crate.
    pub fn errno(&self) -> Errno {
        match self {
            MdsError::Store(e) => e.errno(),
            MdsError::Damaged { .. } | MdsError::Missing { .. } => Errno::EIO,
            MdsError::Refused(_) => Errno::EINVAL,
        }
    }
}

impl From<MdsError> for Errno {
    /// For operations: what it was goes to the log, the caller gets the number.
    fn from(e: MdsError) -> Errno {
        tracing::error!("metadata operation failed: {e}");
        e.errno()
    }
}

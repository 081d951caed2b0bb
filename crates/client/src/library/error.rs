//! What went wrong, in words for whoever asked: what failed, on which object, what to do.

use crate::MountError;
use model::Errno;

/// A failed call of the library.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// As POSIX says it.
    pub errno: Errno,
    /// Whole: what failed, on which object, why, and what to do about it if that is known.
    pub message: String,
}

/// What the library's calls give.
pub type Result<T> = std::result::Result<T, Error>;

impl From<MountError> for Error {
    fn from(e: MountError) -> Error {
        Error { errno: e.errno, message: e.message }
    }
}

/// An error on its way up: not yet with the call that it ends.
#[derive(Debug)]
pub(super) struct Failed {
    pub errno: Errno,
    /// More than the errno says, as the end of a sentence.
    pub why: Option<String>,
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed { errno, why: None }
    }
}

impl Failed {
    pub(super) fn because(errno: Errno, why: String) -> Failed {
        Failed { errno, why: Some(why) }
    }

    /// `what` is a verb, `object` what it was to be done to.
    pub(super) fn of(self, what: &str, object: &[u8]) -> Error {
        let errno = self.errno.public();
        let object = String::from_utf8_lossy(object);
        let mut message = format!("cannot {what} '{object}': {}", errno.text());
        if let Some(more) = self.why.as_deref().or_else(|| advice(errno)) {
            message.push_str(": ");
            message.push_str(more);
        }
        Error { errno, message }
    }
}

/// What to do, where that can be said without knowing more.
fn advice(e: Errno) -> Option<&'static str> {
    Some(match e {
        Errno::EACCES => "mode or access list do not allow it: ask the owner",
        Errno::EPERM => {
            "only the owner or root may, and nobody while the file is immutable or append-only (lsattr shows it)"
        }
        Errno::ENAMETOOLONG => "a name has at most 255 bytes, a path 4095",
        Errno::ELOOP => "a symbolic link leads to itself, or was not to be followed",
        Errno::EROFS => "mount it without read_only",
        Errno::ENOSPC => "'lfs df' shows which target is full",
        Errno::EIO => "a server lost data or refuses it: the servers' logs say which",
        Errno::ESTALE => "it was removed meanwhile: look for it again",
        Errno::EBADF => "the file is not open for that",
        Errno::ETIMEDOUT => "a server does not answer: 'lfs check servers' shows which",
        Errno::ENOTCONN | Errno::ESHUTDOWN => "the file system is unmounted",
        Errno::EAGAIN => "somebody else has a lock on it",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_and_what_to_do() {
        let e = Failed::from(Errno::ENOSPC).of("write", b"a/b");
        assert_eq!(e.errno, Errno::ENOSPC);
        assert_eq!(
            e.to_string(),
            "cannot write 'a/b': No space left on device: 'lfs df' shows which target is full"
        );
        let e = Failed::because(Errno::EACCES, "user 7 may not search '/a'".into()).of("open", b"/a/b");
        assert_eq!(e.to_string(), "cannot open '/a/b': Permission denied: user 7 may not search '/a'");
        assert_eq!(
            Failed::from(Errno::ELOST).of("read", b"x").errno,
            Errno::EIO,
            "applications know no other"
        );
        assert_eq!(
            Failed::from(Errno::ENOENT).of("open", &[0xff]).message,
            "cannot open '\u{fffd}': No such file or directory"
        );
    }
}

//! The one place where meanings become errno numbers (Linux, x86-64 and arm64 agree on these).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A POSIX error number as an application sees it. Never zero. Numbers from [`Errno::PRIVATE`] on are said
/// between servers and clients only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $num:literal, $text:literal;)*) => {
        impl Errno {
            $(pub const $name: Errno = Errno($num);)*

            /// The symbol, `E?` if it has none here.
            pub fn name(self) -> &'static str {
                match self.0 { $($num => stringify!($name),)* _ => "E?" }
            }

            /// strerror(3)'s text.
            pub fn text(self) -> &'static str {
                match self.0 { $($num => $text,)* _ => "Unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available";
    EPROTO = 71, "Protocol error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    EMSGSIZE = 90, "Message too long";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    EOPNOTSUPP = 95, "Operation not supported";
    EADDRINUSE = 98, "Address already in use";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    ESTALE = 116, "Stale file handle";
    EDQUOT = 122, "Disk quota exceeded";
    ECANCELED = 125, "Operation canceled";
    ENOKEY = 126, "Required key not available";
    EKEYREJECTED = 129, "Key was rejected by service";
    // Between servers and clients.
    EGROW = 1001, "Data outgrows the metadata server";
    ERELAYOUT = 1002, "Layout of the file has changed";
    EGROWING = 1003, "File is growing onto object servers";
    ELOST = 1004, "Object was lost with the target that this one replaced";
    ESHARE = 1007, "This target's share of a limit is used up";
    // Within a client.
    EUNINIT = 1006, "Range of the file has no objects yet";
    // Within a metadata target.
    ERELABEL = 1008, "Tree has to be counted to another directory before it moves";
    EDEEP = 1005, "Directory lies deep, its parents have to be looked up";
}

impl Errno {
    /// From here on applications must never see a number; Linux's own end at 133.
    pub const PRIVATE: i32 = 512;

    /// As an application may see it: private numbers are `EIO`.
    pub fn public(self) -> Errno {
        if self.0 < Errno::PRIVATE { self } else { Errno::EIO }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    /// The error's own number; `EIO` for errors that the standard library made up.
    fn from(e: std::io::Error) -> Errno {
        match e.raw_os_error() {
            Some(n) if n > 0 => Errno(n),
            _ => match e.kind() {
                std::io::ErrorKind::NotFound => Errno::ENOENT,
                std::io::ErrorKind::AlreadyExists => Errno::EEXIST,
                std::io::ErrorKind::StorageFull => Errno::ENOSPC,
                std::io::ErrorKind::InvalidInput => Errno::EINVAL,
                std::io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
                _ => Errno::EIO,
            },
        }
    }
}

impl From<Errno> for std::io::Error {
    fn from(e: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(e.0)
    }
}

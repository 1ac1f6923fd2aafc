//! Error numbers, the only errors that a file system returns to its clients.

use std::fmt;
use std::io;
use std::num::NonZeroU16;

/// An error number as Linux defines it (`errno(3)`), never zero.
///
/// The reply to a failed request carries its negative value. Numbers outside 1..=511 are never
/// sent (the kernel treats them as a protocol violation); [`Errno::from_raw`] folds them to `EIO`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(NonZeroU16);

/// Result of the file system's methods.
pub type Result<T> = std::result::Result<T, Errno>;

const LARGEST_SENDABLE: i32 = 511;

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`, see `errno(3)`.")]
                pub const $name: Errno = Errno::constant(libc::$name);
            )*
        }

        const NAMES: &[(Errno, &str)] = &[$((Errno::$name, stringify!($name)),)*];
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV
    ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE
    ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EOPNOTSUPP
    ESTALE EDQUOT ECANCELED ENOTCONN ETIMEDOUT
}

impl Errno {
    /// No error for a client: "call again on a thread that may sleep".
    ///
    /// A method returns it, before it has changed anything, when it would have to wait and
    /// [`Context::may_block`](crate::Context::may_block) is false. The transport calls the method again with a
    /// context that may block; returned from that call, it becomes `EIO`.
    pub const DEFER: Errno = Errno::constant(u16::MAX as i32);

    /// No error for a client: "the answer comes later".
    ///
    /// A method returns it after it has taken the request with
    /// [`Context::answer_later`](crate::Context::answer_later). Without that, it becomes `EIO`.
    pub const LATER: Errno = Errno::constant(u16::MAX as i32 - 1);

    const fn constant(number: i32) -> Errno {
        match NonZeroU16::new(number as u16) {
            Some(number) => Errno(number),
            None => panic!("an error number is never zero"),
        }
    }

    /// The error with this number (positive). Numbers that may not be sent become `EIO`.
    pub const fn from_raw(number: i32) -> Errno {
        if number >= 1 && number <= LARGEST_SENDABLE {
            Errno::constant(number)
        } else {
            Errno::EIO
        }
    }

    /// The positive number.
    pub const fn raw(self) -> i32 {
        self.0.get() as i32
    }

    /// The last error of the calling thread's C library, as `io::Error::last_os_error` sees it.
    pub fn last() -> Errno {
        Errno::from(io::Error::last_os_error())
    }

    fn name(self) -> Option<&'static str> {
        if self == Errno::DEFER {
            return Some("DEFER");
        }
        if self == Errno::LATER {
            return Some("LATER");
        }
        NAMES
            .iter()
            .find(|(errno, _)| *errno == self)
            .map(|(_, name)| *name)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.raw()),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&io::Error::from_raw_os_error(self.raw()), f)
    }
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno::from_raw(errno.raw_os_error())
    }
}

/// The number of the system, or that of an error's kind; `EIO` for kinds that have none.
impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        let number = error.raw_os_error();
        number.map_or_else(|| Errno::from(error.kind()), Errno::from_raw)
    }
}

/// The number that the standard library makes this kind of; `EIO` where there is none.
impl From<io::ErrorKind> for Errno {
    fn from(kind: io::ErrorKind) -> Errno {
        use io::ErrorKind as Kind;
        match kind {
            Kind::NotFound => Errno::ENOENT,
            Kind::PermissionDenied => Errno::EACCES,
            Kind::AlreadyExists => Errno::EEXIST,
            Kind::WouldBlock => Errno::EAGAIN,
            Kind::NotADirectory => Errno::ENOTDIR,
            Kind::IsADirectory => Errno::EISDIR,
            Kind::DirectoryNotEmpty => Errno::ENOTEMPTY,
            Kind::ReadOnlyFilesystem => Errno::EROFS,
            Kind::StaleNetworkFileHandle => Errno::ESTALE,
            Kind::InvalidInput => Errno::EINVAL,
            Kind::InvalidFilename => Errno::ENAMETOOLONG,
            Kind::TimedOut => Errno::ETIMEDOUT,
            Kind::StorageFull => Errno::ENOSPC,
            Kind::NotSeekable => Errno::ESPIPE,
            Kind::QuotaExceeded => Errno::EDQUOT,
            Kind::FileTooLarge => Errno::EFBIG,
            Kind::ResourceBusy => Errno::EBUSY,
            Kind::ExecutableFileBusy => Errno::ETXTBSY,
            Kind::Deadlock => Errno::EDEADLK,
            Kind::CrossesDevices => Errno::EXDEV,
            Kind::TooManyLinks => Errno::EMLINK,
            Kind::ArgumentListTooLong => Errno::E2BIG,
            Kind::Interrupted => Errno::EINTR,
            Kind::Unsupported => Errno::EOPNOTSUPP,
            Kind::OutOfMemory => Errno::ENOMEM,
            Kind::BrokenPipe => Errno::EPIPE,
            Kind::NotConnected => Errno::ENOTCONN,
            _ => Errno::EIO,
        }
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_may_not_be_sent_become_eio() {
        for number in [0, -2, 512, 4095, 65535, i32::MAX, i32::MIN] {
            assert_eq!(Errno::from_raw(number), Errno::EIO, "{number}");
        }
        assert_eq!(Errno::from_raw(libc::ENOENT), Errno::ENOENT);
        assert_eq!(Errno::from(io::Error::other("no number")), Errno::EIO);
    }

    /// The standard library's own table says which kind a number is.
    #[test]
    fn a_kind_becomes_a_number_of_that_kind() {
        for number in 1..=LARGEST_SENDABLE {
            let kind = io::Error::from_raw_os_error(number).kind();
            let errno = Errno::from(io::Error::from(kind));
            if errno != Errno::EIO {
                let back = io::Error::from(errno).kind();
                assert_eq!(back, kind, "{number} became {errno:?}");
            }
        }
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::Unsupported];
        let numbers = kinds.map(|kind| Errno::from(io::Error::new(kind, "in words")));
        assert_eq!(numbers, [Errno::ENOENT, Errno::EOPNOTSUPP]);
    }

    #[test]
    fn names_are_printed() {
        let names = format!("{:?} {:?}", Errno::ESTALE, Errno::from_raw(300));
        assert_eq!(names, "ESTALE errno 300");
    }
}

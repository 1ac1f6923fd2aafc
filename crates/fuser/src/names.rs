//! Numbers, errors and attributes, as fuser names them, and what they are in the library.

use std::fmt;
use std::num::NonZeroI32;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs::Timestamp;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(
            /// The number.
            pub u64,
        );

        impl From<$name> for u64 {
            fn from(number: $name) -> u64 {
                number.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }
    )*};
}

numbers! {
    /// An inode: [`thrufs::NodeId`].
    INodeNo
    /// An open file: [`thrufs::FileHandle`].
    FileHandle
    /// The owner of a lock: [`thrufs::LockOwner`].
    LockOwner
    /// With an inode, never used twice: [`thrufs::Generation`].
    Generation
    /// A request: [`thrufs::Unique`].
    RequestId
}

impl INodeNo {
    /// The root of the file system.
    pub const ROOT: INodeNo = INodeNo(1);
}

/// Major and minor version of the kernel's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub struct Version(
    /// Major.
    pub u32,
    /// Minor.
    pub u32,
);

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}

/// An error number (`errno(3)`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Errno(NonZeroI32);

macro_rules! errnos {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, see `errno(3)`.")]
        pub const $name: Errno = Errno::constant(libc::$name);
    )*};
}

impl Errno {
    errnos! {
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY
        EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK
        EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP EWOULDBLOCK ENOMSG EIDRM EREMOTE
        ENOLINK EPROTO EMULTIHOP EBADMSG EOVERFLOW EILSEQ EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE
        ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
        EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN
        ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EDQUOT ECANCELED
        EOWNERDEAD ENOTRECOVERABLE ENOTSUP ENODATA
    }
    /// There is no such extended attribute.
    pub const NO_XATTR: Errno = Errno::ENODATA;

    const fn constant(number: i32) -> Errno {
        match NonZeroI32::new(number) {
            Some(number) => Errno(number),
            None => panic!("an error number is never zero"),
        }
    }

    /// The error with this number; `EIO` for what is no error number.
    pub fn from_i32(number: i32) -> Errno {
        let number = NonZeroI32::new(number).filter(|number| number.get() > 0);
        number.map_or(Errno::EIO, Errno)
    }

    /// The positive number.
    pub fn code(self) -> i32 {
        self.0.get()
    }
}

/// The number of the system, or that of an error's kind.
impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        thrufs::Errno::from(error).into()
    }
}

impl From<std::io::ErrorKind> for Errno {
    fn from(kind: std::io::ErrorKind) -> Errno {
        thrufs::Errno::from(kind).into()
    }
}

impl From<thrufs::Errno> for Errno {
    fn from(errno: thrufs::Errno) -> Errno {
        Errno::from_i32(errno.raw())
    }
}

impl From<Errno> for thrufs::Errno {
    fn from(errno: Errno) -> thrufs::Errno {
        thrufs::Errno::from_raw(errno.code())
    }
}

impl From<Errno> for i32 {
    fn from(errno: Errno) -> i32 {
        errno.code()
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TimeOrNow {
    /// This one.
    SpecificTime(SystemTime),
    /// That of the server's clock.
    Now,
}

impl From<thrufs::SetTime> for TimeOrNow {
    fn from(time: thrufs::SetTime) -> TimeOrNow {
        match time {
            thrufs::SetTime::Now => TimeOrNow::Now,
            thrufs::SetTime::At(time) => TimeOrNow::SpecificTime(system_time(time)),
        }
    }
}

pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    let time = second.and_then(|second| second.checked_add(nanoseconds));
    time.unwrap_or(UNIX_EPOCH)
}

/// Seconds as the wire has them (two's complement before the epoch), and nanoseconds after that.
fn wire_time(time: SystemTime) -> (u64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs(), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let borrowed = u64::from(before.subsec_nanos() > 0);
            let nanoseconds = (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000;
            ((before.as_secs() + borrowed).wrapping_neg(), nanoseconds)
        }
    }
}

/// The kind of an inode.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub enum FileType {
    /// A fifo.
    NamedPipe,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A directory.
    Directory,
    /// A file.
    RegularFile,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileType {
    /// What the standard library's type is; `None` for none of these.
    pub fn from_std(kind: std::fs::FileType) -> Option<FileType> {
        let kinds = [
            (kind.is_file(), FileType::RegularFile),
            (kind.is_dir(), FileType::Directory),
            (kind.is_symlink(), FileType::Symlink),
            (kind.is_fifo(), FileType::NamedPipe),
            (kind.is_socket(), FileType::Socket),
            (kind.is_char_device(), FileType::CharDevice),
            (kind.is_block_device(), FileType::BlockDevice),
        ];
        kinds.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
    }

    fn mode(self) -> u32 {
        match self {
            FileType::NamedPipe => libc::S_IFIFO,
            FileType::CharDevice => libc::S_IFCHR,
            FileType::BlockDevice => libc::S_IFBLK,
            FileType::Directory => libc::S_IFDIR,
            FileType::RegularFile => libc::S_IFREG,
            FileType::Symlink => libc::S_IFLNK,
            FileType::Socket => libc::S_IFSOCK,
        }
    }

    /// The `DT_*` value of `readdir(3)`.
    pub(crate) fn entry_kind(self) -> u8 {
        (self.mode() >> 12) as u8
    }
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub struct FileAttr {
    /// The inode.
    pub ino: INodeNo,
    /// In bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Time of last access.
    pub atime: SystemTime,
    /// Time of last modification.
    pub mtime: SystemTime,
    /// Time of last status change.
    pub ctime: SystemTime,
    /// Time of birth; not used on Linux.
    pub crtime: SystemTime,
    /// The kind.
    pub kind: FileType,
    /// Permission and set-id bits.
    pub perm: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, of a device node.
    pub rdev: u32,
    /// The block size that `stat(2)` shows.
    pub blksize: u32,
    /// Of `chflags(2)`; not used on Linux.
    pub flags: u32,
}

impl From<&FileAttr> for thrufs::Attr {
    fn from(attr: &FileAttr) -> thrufs::Attr {
        let [atime, mtime, ctime] = [attr.atime, attr.mtime, attr.ctime].map(wire_time);
        thrufs::Attr {
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: atime.0,
            mtime: mtime.0,
            ctime: ctime.0,
            atimensec: atime.1,
            mtimensec: mtime.1,
            ctimensec: ctime.1,
            mode: attr.kind.mode() | u32::from(attr.perm),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            blksize: attr.blksize,
            flags: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_keep_their_nanoseconds() {
        for (seconds, nanoseconds) in [(0, 0), (7, 5), (-1, 0), (-1, 999_999_999), (-2, 1)] {
            let there = system_time(Timestamp {
                seconds,
                nanoseconds,
            });
            assert_eq!(wire_time(there), (seconds as u64, nanoseconds), "{seconds}");
        }
        let hostile = Timestamp {
            seconds: i64::MIN,
            nanoseconds: u32::MAX,
        };
        let _ = system_time(hostile);
    }

    #[test]
    fn an_error_that_is_none_is_eio() {
        for number in [0, -2, i32::MIN] {
            assert_eq!(Errno::from_i32(number), Errno::EIO);
        }
        assert_eq!(
            thrufs::Errno::from(Errno::from_i32(5000)),
            thrufs::Errno::EIO
        );
        assert_eq!(Errno::from(std::io::ErrorKind::NotFound), Errno::ENOENT);
        let missing = std::io::Error::from_raw_os_error(libc::ENODATA);
        assert_eq!(Errno::from(missing), Errno::NO_XATTR);
    }
}

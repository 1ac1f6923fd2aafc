//! Attributes that most file systems begin with.

use crate::layout::Attr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

const BLOCK_BYTES: u64 = 512;

impl Attr {
    /// A regular file of `size` bytes, `rw-r--r--`, of root's, with one name.
    #[must_use]
    pub const fn file(ino: u64, size: u64) -> Attr {
        Attr {
            size,
            blocks: size.div_ceil(BLOCK_BYTES),
            ..Attr::of(ino, 0o100_644, 1)
        }
    }

    /// A directory, `rwxr-xr-x`, of root's.
    #[must_use]
    pub const fn directory(ino: u64) -> Attr {
        Attr::of(ino, 0o040_755, 2)
    }

    /// The same with these permissions, set-id bits and sticky bit.
    #[must_use]
    pub const fn permissions(self, bits: u32) -> Attr {
        let mode = self.mode & !0o7777 | bits & 0o7777;
        Attr { mode, ..self }
    }

    const fn of(ino: u64, mode: u32, nlink: u32) -> Attr {
        Attr {
            ino,
            size: 0,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            atimensec: 0,
            mtimensec: 0,
            ctimensec: 0,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
            flags: 0,
        }
    }
}

/// What `stat(2)` said of a file, with its inode number.
impl From<&Metadata> for Attr {
    fn from(metadata: &Metadata) -> Attr {
        // Device numbers of stat(2) begin with the 32 bits of the wire (`new_encode_dev` of the kernel).
        Attr {
            ino: metadata.ino(),
            size: metadata.size(),
            blocks: metadata.blocks(),
            atime: metadata.atime().cast_unsigned(),
            mtime: metadata.mtime().cast_unsigned(),
            ctime: metadata.ctime().cast_unsigned(),
            atimensec: metadata.atime_nsec() as u32,
            mtimensec: metadata.mtime_nsec() as u32,
            ctimensec: metadata.ctime_nsec() as u32,
            mode: metadata.mode(),
            nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: metadata.rdev() as u32,
            blksize: u32::try_from(metadata.blksize()).unwrap_or(0),
            flags: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_say_what_a_file_is() {
        let file = Attr::file(7, 1025).permissions(0o4_755);
        assert_eq!((file.ino, file.mode, file.blocks), (7, 0o104_755, 3));
        assert_eq!((file.size, file.nlink), (1025, 1));
        let directory = Attr::directory(1);
        assert_eq!((directory.mode, directory.nlink), (0o040_755, 2));
    }

    #[test]
    fn metadata_of_the_system_become_attributes() {
        let null = Attr::from(&std::fs::metadata("/dev/null").unwrap());
        // 1:3, as `new_encode_dev` has it.
        assert_eq!((null.rdev, null.mode & 0o170_000), (0x103, 0o020_000));
        let program = std::fs::metadata(std::env::current_exe().unwrap()).unwrap();
        let attr = Attr::from(&program);
        assert_eq!((attr.size, attr.ino), (program.len(), program.ino()));
        let modified = program.modified().unwrap();
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), attr.mtime);
        assert_eq!(since.subsec_nanos(), attr.mtimensec);
    }
}

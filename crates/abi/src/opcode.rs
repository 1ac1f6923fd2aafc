//! The table of operations: number, name and first structure of each. What follows that structure is parsed
//! in [`request`](crate::request).

use crate::layout::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, CuseInitIn, FallocateIn, FlushIn,
    ForgetIn, FsyncIn, GetattrIn, GetxattrIn, InterruptIn, IoctlIn, LinkIn, LkIn, LseekIn, MkdirIn,
    MknodIn, NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn, RemovemappingIn, Rename2In,
    RenameIn, SetattrIn, SetupmappingIn, SetxattrIn, StatxIn, SyncfsIn, WriteIn,
};

macro_rules! opcodes {
    ($($name:ident = $number:literal, $text:literal, $structure:ty;)*) => {
        /// The operations of protocol 7.45 (`enum fuse_opcode`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode {
            $(
                #[doc = concat!("`", $text, "`.")]
                $name = $number,
            )*
        }

        impl Opcode {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// How many there are.
            pub const COUNT: usize = Opcode::ALL.len();

            /// The operation with this number.
            #[must_use]
            pub const fn from_u32(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }

            /// Its name in the kernel's header, without the prefix.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Opcode::$name => $text,)*
                }
            }

            /// Size of the structure at the start of its arguments, in its longest form, in bytes; 0 for none.
            pub(crate) const fn structure_bytes(self) -> usize {
                match self {
                    $(Opcode::$name => size_of::<$structure>(),)*
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "LOOKUP", ();
    Forget = 2, "FORGET", ForgetIn;
    Getattr = 3, "GETATTR", GetattrIn;
    Setattr = 4, "SETATTR", SetattrIn;
    Readlink = 5, "READLINK", ();
    Symlink = 6, "SYMLINK", ();
    Mknod = 8, "MKNOD", MknodIn;
    Mkdir = 9, "MKDIR", MkdirIn;
    Unlink = 10, "UNLINK", ();
    Rmdir = 11, "RMDIR", ();
    Rename = 12, "RENAME", RenameIn;
    Link = 13, "LINK", LinkIn;
    Open = 14, "OPEN", OpenIn;
    Read = 15, "READ", ReadIn;
    Write = 16, "WRITE", WriteIn;
    Statfs = 17, "STATFS", ();
    Release = 18, "RELEASE", ReleaseIn;
    Fsync = 20, "FSYNC", FsyncIn;
    Setxattr = 21, "SETXATTR", SetxattrIn;
    Getxattr = 22, "GETXATTR", GetxattrIn;
    Listxattr = 23, "LISTXATTR", GetxattrIn;
    Removexattr = 24, "REMOVEXATTR", ();
    Flush = 25, "FLUSH", FlushIn;
    // The form up to 7.35, without `flags2`.
    Init = 26, "INIT", [u32; 4];
    Opendir = 27, "OPENDIR", OpenIn;
    Readdir = 28, "READDIR", ReadIn;
    Releasedir = 29, "RELEASEDIR", ReleaseIn;
    Fsyncdir = 30, "FSYNCDIR", FsyncIn;
    Getlk = 31, "GETLK", LkIn;
    Setlk = 32, "SETLK", LkIn;
    Setlkw = 33, "SETLKW", LkIn;
    Access = 34, "ACCESS", AccessIn;
    Create = 35, "CREATE", CreateIn;
    Interrupt = 36, "INTERRUPT", InterruptIn;
    Bmap = 37, "BMAP", BmapIn;
    Destroy = 38, "DESTROY", ();
    Ioctl = 39, "IOCTL", IoctlIn;
    Poll = 40, "POLL", PollIn;
    NotifyReply = 41, "NOTIFY_REPLY", NotifyRetrieveIn;
    BatchForget = 42, "BATCH_FORGET", BatchForgetIn;
    Fallocate = 43, "FALLOCATE", FallocateIn;
    Readdirplus = 44, "READDIRPLUS", ReadIn;
    Rename2 = 45, "RENAME2", Rename2In;
    Lseek = 46, "LSEEK", LseekIn;
    CopyFileRange = 47, "COPY_FILE_RANGE", CopyFileRangeIn;
    SetupMapping = 48, "SETUPMAPPING", SetupmappingIn;
    RemoveMapping = 49, "REMOVEMAPPING", RemovemappingIn;
    Syncfs = 50, "SYNCFS", SyncfsIn;
    Tmpfile = 51, "TMPFILE", CreateIn;
    Statx = 52, "STATX", StatxIn;
    CopyFileRange64 = 53, "COPY_FILE_RANGE_64", CopyFileRangeIn;
    CuseInit = 4096, "CUSE_INIT", CuseInitIn;
}

impl Opcode {
    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Its index in [`Opcode::ALL`], for tables with a row for each.
    #[must_use]
    pub fn index(self) -> usize {
        // Numbers grow along the list, so binary search finds them.
        Opcode::ALL
            .binary_search_by_key(&self.number(), |opcode| opcode.number())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_found_by_number_and_index() {
        for (index, &opcode) in Opcode::ALL.iter().enumerate() {
            assert_eq!(Opcode::from_u32(opcode.number()), Some(opcode));
            assert_eq!(opcode.index(), index);
        }
        for unknown in [0, 7, 19, 54, 4095, 1 << 20, u32::MAX] {
            assert_eq!(Opcode::from_u32(unknown), None);
        }
    }
}

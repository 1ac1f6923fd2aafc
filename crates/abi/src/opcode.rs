//! What a request asks for.

macro_rules! opcodes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
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

            /// The operation with this number, if there is one.
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
        }
    };
}

opcodes! {
    Lookup = 1, "LOOKUP";
    Forget = 2, "FORGET";
    Getattr = 3, "GETATTR";
    Setattr = 4, "SETATTR";
    Readlink = 5, "READLINK";
    Symlink = 6, "SYMLINK";
    Mknod = 8, "MKNOD";
    Mkdir = 9, "MKDIR";
    Unlink = 10, "UNLINK";
    Rmdir = 11, "RMDIR";
    Rename = 12, "RENAME";
    Link = 13, "LINK";
    Open = 14, "OPEN";
    Read = 15, "READ";
    Write = 16, "WRITE";
    Statfs = 17, "STATFS";
    Release = 18, "RELEASE";
    Fsync = 20, "FSYNC";
    Setxattr = 21, "SETXATTR";
    Getxattr = 22, "GETXATTR";
    Listxattr = 23, "LISTXATTR";
    Removexattr = 24, "REMOVEXATTR";
    Flush = 25, "FLUSH";
    Init = 26, "INIT";
    Opendir = 27, "OPENDIR";
    Readdir = 28, "READDIR";
    Releasedir = 29, "RELEASEDIR";
    Fsyncdir = 30, "FSYNCDIR";
    Getlk = 31, "GETLK";
    Setlk = 32, "SETLK";
    Setlkw = 33, "SETLKW";
    Access = 34, "ACCESS";
    Create = 35, "CREATE";
    Interrupt = 36, "INTERRUPT";
    Bmap = 37, "BMAP";
    Destroy = 38, "DESTROY";
    Ioctl = 39, "IOCTL";
    Poll = 40, "POLL";
    NotifyReply = 41, "NOTIFY_REPLY";
    BatchForget = 42, "BATCH_FORGET";
    Fallocate = 43, "FALLOCATE";
    Readdirplus = 44, "READDIRPLUS";
    Rename2 = 45, "RENAME2";
    Lseek = 46, "LSEEK";
    CopyFileRange = 47, "COPY_FILE_RANGE";
    SetupMapping = 48, "SETUPMAPPING";
    RemoveMapping = 49, "REMOVEMAPPING";
    Syncfs = 50, "SYNCFS";
    Tmpfile = 51, "TMPFILE";
    Statx = 52, "STATX";
    CopyFileRange64 = 53, "COPY_FILE_RANGE_64";
    CuseInit = 4096, "CUSE_INIT";
}

impl Opcode {
    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Its place in [`Opcode::ALL`], for tables with a row for each.
    #[must_use]
    pub fn index(self) -> usize {
        // Numbers grow along the list, so that a search by halves finds them.
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

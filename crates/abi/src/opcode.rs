//! The table of operations: what a request and its reply consist of, and how a server has to treat them.

use crate::layout::{
    AccessIn, AttrOut, BatchForgetIn, BmapIn, BmapOut, CopyFileRangeIn, CopyFileRangeOut, CreateIn,
    FallocateIn, FlushIn, ForgetIn, FsyncIn, GetattrIn, GetxattrIn, InitOut, InterruptIn, IoctlIn,
    LinkIn, LkIn, LkOut, LseekIn, LseekOut, MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, PollIn,
    PollOut, ReadIn, ReleaseIn, RemovemappingIn, Rename2In, RenameIn, SetattrIn, SetupmappingIn,
    SetxattrIn, StatfsOut, StatxIn, StatxOut, SyncfsIn, WriteIn, WriteOut,
};

/// What follows the structure at the start of an operation's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trailing {
    /// Nothing.
    Nothing,
    /// A name.
    Name,
    /// Two names, or a name and the target of a symbolic link.
    Names,
    /// The name of an extended attribute and its value.
    Value,
    /// Bulk data, which a transport may leave where they are ([`Payload::External`](crate::Payload)).
    Data,
    /// Bytes, which are always copied.
    Bytes,
    /// Records of one size.
    Records,
    /// Fields that later versions of the protocol have added to the structure.
    Fields,
}

/// The body of the reply to an operation that succeeded. An error has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// There is no reply, not even with an error: the kernel takes one for a violation of the protocol.
    Silent,
    /// Nothing but the header.
    Empty,
    /// A structure of this many bytes.
    Fixed(usize),
    /// `EntryOut`: unless its node is 0, the kernel counts a lookup.
    Entry,
    /// `OpenOut`, to be released.
    Open,
    /// `OpenOut`, to be released by RELEASEDIR.
    OpenDirectory,
    /// `EntryOut` and `OpenOut`, with both effects.
    EntryOpen,
    /// As many bytes as `ReadIn` asks for, or fewer.
    Data,
    /// The same, with an `EntryOut` for each entry of the directory.
    Entries,
    /// `GetxattrOut` when `GetxattrIn` has room for 0 bytes, or no more bytes than it has room for.
    Value,
    /// The target of a symbolic link.
    Target,
    /// `IoctlOut` and no more bytes than `IoctlIn` has room for.
    Ioctl,
}

/// What happens when a request is carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The same as once.
    Harmless,
    /// It may fail, or do more. Its begin has to be recorded, so that a second attempt can tell what the
    /// first has done.
    Noted,
    /// More than once. Its begin has to be recorded, and it is not repeated: rather never than twice.
    Never,
}

/// Whether a request may sleep for long, and what it then waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Rarely: it is carried out where it arrives, unless the file system defers it.
    Rare,
    /// For data that are not in memory.
    Data,
    /// For a device or a network, by its nature.
    Usual,
    /// For another holder of a lock, perhaps for ever.
    Lock,
}

/// Who checks that a caller may make a request, on a mount with `default_permissions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The kernel, all that is checked natively.
    Kernel,
    /// The kernel, and the server what the kernel does not know.
    Both,
    /// The server: the request asks whether something is permitted.
    Server,
    /// The kernel sends it for itself.
    Sender,
}

/// What the table says of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name in the kernel's header, without the prefix.
    pub name: &'static str,
    /// Size of the structure at the start of its arguments, in its longest form, in bytes; 0 for none.
    pub structure_bytes: usize,
    /// The arguments after that.
    pub trailing: Trailing,
    /// Its reply.
    pub reply: ReplyBody,
    /// Whether it may be repeated after the death of a server.
    pub repeat: Repeat,
    /// Whether it may sleep.
    pub sleep: Sleep,
    /// Who checks it.
    pub permission: Permission,
}

macro_rules! opcodes {
    ($($name:ident = $number:literal $text:literal: $structure:ty, $trailing:ident =>
        $reply:ident $(($reply_structure:ty))?, $repeat:ident $sleep:ident $permission:ident;)*) => {
        /// The operations of protocol 7.45 on a mount (`enum fuse_opcode`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode {
            $(
                #[doc = concat!(
                    "`", $text, "`: `", stringify!($structure), "`, `", stringify!($trailing), "`; reply `",
                    stringify!($reply), $("`, `", stringify!($reply_structure),)? "`; repeat `",
                    stringify!($repeat), "`; sleep `", stringify!($sleep), "`; permission `",
                    stringify!($permission), "`.",
                )]
                $name = $number,
            )*
        }

        impl Opcode {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// The operation with this number.
            #[must_use]
            pub const fn from_u32(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$name),)*
                    _ => None,
                }
            }
        }

        /// In the order of [`Opcode::ALL`].
        const LIST: &[Row] = &[$(
            Row {
                name: $text,
                structure_bytes: size_of::<$structure>(),
                trailing: Trailing::$trailing,
                reply: ReplyBody::$reply $((size_of::<$reply_structure>()))?,
                repeat: Repeat::$repeat,
                sleep: Sleep::$sleep,
                permission: Permission::$permission,
            },
        )*];
    };
}

opcodes! {
    // Number and name; structure and what follows it => reply; repeat, sleep, permission.
    Lookup          =    1 "LOOKUP":             (),               Name    => Entry,            Harmless Rare  Kernel;
    Forget          =    2 "FORGET":             ForgetIn,         Nothing => Silent,           Never    Rare  Sender;
    Getattr         =    3 "GETATTR":            GetattrIn,        Nothing => Fixed(AttrOut),   Harmless Rare  Kernel;
    Setattr         =    4 "SETATTR":            SetattrIn,        Nothing => Fixed(AttrOut),   Harmless Rare  Both;
    Readlink        =    5 "READLINK":           (),               Nothing => Target,           Harmless Rare  Kernel;
    Symlink         =    6 "SYMLINK":            (),               Names   => Entry,            Noted    Rare  Both;
    Mknod           =    8 "MKNOD":              MknodIn,          Name    => Entry,            Noted    Rare  Both;
    Mkdir           =    9 "MKDIR":              MkdirIn,          Name    => Entry,            Noted    Rare  Both;
    Unlink          =   10 "UNLINK":             (),               Name    => Empty,            Noted    Rare  Both;
    Rmdir           =   11 "RMDIR":              (),               Name    => Empty,            Noted    Rare  Both;
    Rename          =   12 "RENAME":             RenameIn,         Names   => Empty,            Noted    Rare  Both;
    Link            =   13 "LINK":               LinkIn,           Name    => Entry,            Noted    Rare  Both;
    Open            =   14 "OPEN":               OpenIn,           Nothing => Open,             Harmless Rare  Both;
    Read            =   15 "READ":               ReadIn,           Nothing => Data,             Harmless Data  Both;
    Write           =   16 "WRITE":              WriteIn,          Data    => Fixed(WriteOut),  Harmless Rare  Both;
    Statfs          =   17 "STATFS":             (),               Nothing => Fixed(StatfsOut), Harmless Rare  Kernel;
    Release         =   18 "RELEASE":            ReleaseIn,        Nothing => Empty,            Noted    Rare  Kernel;
    Fsync           =   20 "FSYNC":              FsyncIn,          Nothing => Empty,            Harmless Usual Kernel;
    Setxattr        =   21 "SETXATTR":           SetxattrIn,       Value   => Empty,            Noted    Rare  Both;
    Getxattr        =   22 "GETXATTR":           GetxattrIn,       Name    => Value,            Harmless Rare  Both;
    Listxattr       =   23 "LISTXATTR":          GetxattrIn,       Nothing => Value,            Harmless Rare  Both;
    Removexattr     =   24 "REMOVEXATTR":        (),               Name    => Empty,            Noted    Rare  Both;
    Flush           =   25 "FLUSH":              FlushIn,          Nothing => Empty,            Harmless Rare  Kernel;
    // The structure up to 7.35, without `flags2`.
    Init            =   26 "INIT":               [u32; 4],         Fields  => Fixed(InitOut),   Harmless Rare  Sender;
    Opendir         =   27 "OPENDIR":            OpenIn,           Nothing => OpenDirectory,    Harmless Rare  Both;
    Readdir         =   28 "READDIR":            ReadIn,           Nothing => Data,             Harmless Rare  Both;
    Releasedir      =   29 "RELEASEDIR":         ReleaseIn,        Nothing => Empty,            Noted    Rare  Kernel;
    Fsyncdir        =   30 "FSYNCDIR":           FsyncIn,          Nothing => Empty,            Harmless Usual Kernel;
    Getlk           =   31 "GETLK":              LkIn,             Nothing => Fixed(LkOut),     Harmless Rare  Kernel;
    Setlk           =   32 "SETLK":              LkIn,             Nothing => Empty,            Harmless Rare  Kernel;
    Setlkw          =   33 "SETLKW":             LkIn,             Nothing => Empty,            Harmless Lock  Both;
    Access          =   34 "ACCESS":             AccessIn,         Nothing => Empty,            Harmless Rare  Server;
    Create          =   35 "CREATE":             CreateIn,         Name    => EntryOpen,        Noted    Rare  Both;
    Interrupt       =   36 "INTERRUPT":          InterruptIn,      Nothing => Silent,           Harmless Rare  Sender;
    Bmap            =   37 "BMAP":               BmapIn,           Nothing => Fixed(BmapOut),   Harmless Rare  Kernel;
    Destroy         =   38 "DESTROY":            (),               Nothing => Empty,            Harmless Rare  Sender;
    Ioctl           =   39 "IOCTL":              IoctlIn,          Bytes   => Ioctl,            Harmless Rare  Both;
    Poll            =   40 "POLL":               PollIn,           Nothing => Fixed(PollOut),   Harmless Rare  Kernel;
    NotifyReply     =   41 "NOTIFY_REPLY":       NotifyRetrieveIn, Data    => Silent,           Harmless Rare  Sender;
    BatchForget     =   42 "BATCH_FORGET":       BatchForgetIn,    Records => Silent,           Never    Rare  Sender;
    Fallocate       =   43 "FALLOCATE":          FallocateIn,      Nothing => Empty,            Harmless Usual Both;
    Readdirplus     =   44 "READDIRPLUS":        ReadIn,           Nothing => Entries,          Harmless Rare  Both;
    Rename2         =   45 "RENAME2":            Rename2In,        Names   => Empty,            Noted    Rare  Both;
    Lseek           =   46 "LSEEK":              LseekIn,          Nothing => Fixed(LseekOut),  Harmless Rare  Kernel;
    CopyFileRange   =   47 "COPY_FILE_RANGE":    CopyFileRangeIn,  Nothing => Fixed(WriteOut),  Harmless Usual Both;
    SetupMapping    =   48 "SETUPMAPPING":       SetupmappingIn,   Nothing => Empty,            Harmless Rare  Both;
    RemoveMapping   =   49 "REMOVEMAPPING":      RemovemappingIn,  Records => Empty,            Harmless Rare  Both;
    Syncfs          =   50 "SYNCFS":             SyncfsIn,         Nothing => Empty,            Harmless Usual Kernel;
    // The kernel sends a name without a meaning.
    Tmpfile         =   51 "TMPFILE":            CreateIn,         Name    => EntryOpen,        Harmless Rare  Both;
    Statx           =   52 "STATX":              StatxIn,          Nothing => Fixed(StatxOut),  Harmless Rare  Kernel;
    CopyFileRange64 =   53 "COPY_FILE_RANGE_64": CopyFileRangeIn,  Nothing => Fixed(CopyFileRangeOut), Harmless Usual Both;
}

const BY_INDEX: &[Row; Opcode::ROWS] = &{
    let mut rows = [LIST[0]; Opcode::ROWS];
    let mut at = 0;
    while at < LIST.len() {
        rows[Opcode::ALL[at].index()] = LIST[at];
        at += 1;
    }
    rows
};

impl Opcode {
    /// Rows of a table with one for each, at its number.
    pub const ROWS: usize = Opcode::ALL[Opcode::ALL.len() - 1].index() + 1;

    /// Its number, as the index of a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its row of the table.
    #[must_use]
    pub const fn row(self) -> &'static Row {
        &BY_INDEX[self.index()]
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Its name in the kernel's header, without the prefix.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_found_by_its_number_and_has_its_row() {
        for (&opcode, row) in Opcode::ALL.iter().zip(LIST) {
            assert_eq!(Opcode::from_u32(opcode.number()), Some(opcode));
            assert_eq!(opcode.row(), row);
        }
        for unknown in [0, 7, 19, 54, 4095, 1 << 20, u32::MAX] {
            assert_eq!(Opcode::from_u32(unknown), None);
        }
    }
}

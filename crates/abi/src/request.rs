//! Parses requests: any bytes give a typed operation or an error.

use crate::arguments::Arguments;
use crate::extensions::Extensions;
use crate::flags::{GetattrFlags, InitFlags};
use crate::ids::{FileHandle, LockOwner, NodeId, Unique};
use crate::layout::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn,
    ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InHeader, InitIn, InterruptIn, IoctlIn, LinkIn,
    LkIn, LseekIn, MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn,
    RemovemappingIn, RemovemappingOne, Rename2In, RenameIn, SetattrIn, SetupmappingIn, SetxattrIn,
    StatxIn, SyncfsIn, WriteIn,
};
use crate::name::Name;
use crate::opcode::{Opcode, Trailing};
use crate::parse_error::{ParseError, ParseErrorKind};
use std::ffi::CStr;
use zerocopy::FromBytes;

/// What INIT negotiated about the format of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Minor version of protocol 7.
    pub minor: u32,
    /// SETXATTR has its long form (`FUSE_SETXATTR_EXT`).
    pub setxattr_ext: bool,
}

impl Dialect {
    /// The format up to INIT.
    pub const INITIAL: Dialect = Dialect {
        minor: crate::version::KERNEL_MINOR,
        setxattr_ext: false,
    };
}

/// Where the bulk data of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Behind the arguments.
    Inline,
    /// Elsewhere: the bytes do not include the data of WRITE and NOTIFY_REPLY.
    External,
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request's number.
    pub unique: Unique,
    /// The operation.
    pub opcode: Opcode,
    /// Its inode.
    pub nodeid: NodeId,
    /// The caller's file-system user id; all ones for none.
    pub uid: u32,
    /// The caller's file-system group id; all ones for none.
    pub gid: u32,
    /// The caller's thread id, in the server's namespace; 0 for none.
    pub pid: u32,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operation's number, its inode and its caller.
    pub header: Header,
    /// The operation with its arguments.
    pub operation: Operation<'a>,
    /// Extensions of the arguments.
    pub extensions: Extensions<'a>,
}

/// The nodes of a BATCH_FORGET.
#[derive(Clone, Copy, Debug)]
pub struct Forgets<'a>(&'a [u8]);

impl Forgets<'_> {
    /// Each node with the lookups to subtract.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.0
            .chunks_exact(size_of::<ForgetOne>())
            .filter_map(|bytes| {
                let one = ForgetOne::read_from_bytes(bytes).ok()?;
                Some((NodeId(one.nodeid), one.nlookup))
            })
    }
}

/// The ranges of a REMOVEMAPPING.
#[derive(Clone, Copy, Debug)]
pub struct Mappings<'a>(&'a [u8]);

impl Mappings<'_> {
    /// Each range.
    pub fn iter(&self) -> impl Iterator<Item = RemovemappingOne> {
        self.0
            .chunks_exact(size_of::<RemovemappingOne>())
            .filter_map(|bytes| RemovemappingOne::read_from_bytes(bytes).ok())
    }
}

/// An operation with its arguments.
#[derive(Clone, Copy, Debug)]
#[expect(
    missing_docs,
    reason = "operations and fields have the header's own names and meanings"
)]
#[rustfmt::skip]
pub enum Operation<'a> {
    Lookup { name: Name<'a> },
    /// `FORGET`; no reply.
    Forget { nlookup: u64 },
    /// `BATCH_FORGET`; no reply.
    BatchForget { forgets: Forgets<'a> },
    Getattr { fh: Option<FileHandle> },
    Setattr(SetattrIn),
    Readlink,
    Symlink { name: Name<'a>, target: &'a CStr },
    Mknod { arg: MknodIn, name: Name<'a> },
    Mkdir { arg: MkdirIn, name: Name<'a> },
    Unlink { name: Name<'a> },
    Rmdir { name: Name<'a> },
    /// `RENAME` (flags 0) and `RENAME2`.
    Rename {
        new_parent: NodeId,
        flags: u32,
        name: Name<'a>,
        new_name: Name<'a>,
    },
    Link { old_node: NodeId, name: Name<'a> },
    Open(OpenIn),
    Read(ReadIn),
    /// `WRITE`; `data` is empty when they are elsewhere ([`Payload::External`]).
    Write { arg: WriteIn, data: &'a [u8] },
    Statfs,
    Release(ReleaseIn),
    Fsync(FsyncIn),
    Setxattr {
        name: &'a CStr,
        value: &'a [u8],
        flags: u32,
        setxattr_flags: u32,
    },
    Getxattr { name: &'a CStr, size: u32 },
    Listxattr { size: u32 },
    Removexattr { name: &'a CStr },
    Flush {
        fh: FileHandle,
        lock_owner: LockOwner,
    },
    Init { arg: InitIn, flags: InitFlags },
    Opendir(OpenIn),
    Readdir(ReadIn),
    Readdirplus(ReadIn),
    Releasedir(ReleaseIn),
    Fsyncdir(FsyncIn),
    Getlk(LkIn),
    Setlk(LkIn),
    Setlkw(LkIn),
    Access { mask: u32 },
    Create { arg: CreateIn, name: Name<'a> },
    /// `INTERRUPT` of the request `unique`; no reply.
    Interrupt { unique: Unique },
    Bmap(BmapIn),
    Destroy,
    Ioctl { arg: IoctlIn, data: &'a [u8] },
    Poll(PollIn),
    /// `NOTIFY_REPLY`: what the notification RETRIEVE asked for; no reply.
    NotifyReply {
        arg: NotifyRetrieveIn,
        data: &'a [u8],
    },
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    /// `COPY_FILE_RANGE`, and with `wide` `COPY_FILE_RANGE_64`, whose reply counts in 64 bits.
    CopyFileRange { arg: CopyFileRangeIn, wide: bool },
    SetupMapping(SetupmappingIn),
    RemoveMapping { mappings: Mappings<'a> },
    Syncfs,
    Tmpfile { arg: CreateIn },
    Statx {
        fh: Option<FileHandle>,
        flags: u32,
        mask: u32,
    },
}

/// Size of the structure that an operation's arguments start with, in bytes; 0 for none.
#[must_use]
pub const fn op_struct_size(opcode: Opcode, dialect: Dialect) -> usize {
    match opcode {
        // `FUSE_COMPAT_SETXATTR_IN_SIZE`.
        Opcode::Setxattr if !dialect.setxattr_ext => size_of::<[u32; 2]>(),
        _ => opcode.row().structure_bytes,
    }
}

type Parsed<T> = Result<T, ParseErrorKind>;

impl<'a> Request<'a> {
    /// Parses a whole message in one piece, as a read of `/dev/fuse` returns it.
    ///
    /// # Errors
    /// The first error in the bytes.
    pub fn parse(
        message: &'a [u8],
        dialect: Dialect,
        payload: Payload,
    ) -> Result<Request<'a>, ParseError> {
        let (header, in_header) = parse_header(message)?;
        let fail = |kind| failed(&in_header, kind);
        let elsewhere =
            bytes_elsewhere(header.opcode, &in_header, message.len(), payload).map_err(fail)?;
        let body = &message[size_of::<InHeader>()..];
        let need = op_struct_size(header.opcode, dialect);
        let (structure, rest) =
            body.split_at_checked(need)
                .ok_or(fail(ParseErrorKind::TooShort {
                    need,
                    got: body.len(),
                }))?;
        finish(header, &in_header, structure, rest, dialect, elsewhere)
    }

    /// Parses a message in the three pieces of io_uring: the header, the structure of the operation
    /// (followed by anything), and exactly the rest of the arguments.
    ///
    /// The kernel does not use the second piece for `NOTIFY_REPLY` and `REMOVEMAPPING`: their structure
    /// then leads the rest (`fuse_set_zero_arg0`), which the header's length shows.
    ///
    /// # Errors
    /// The first error in the bytes.
    pub fn parse_split(
        header: &'a [u8],
        structure: &'a [u8],
        rest: &'a [u8],
        dialect: Dialect,
        payload: Payload,
    ) -> Result<Request<'a>, ParseError> {
        let (header, in_header) = parse_header(header)?;
        let fail = |kind| failed(&in_header, kind);
        let need = op_struct_size(header.opcode, dialect);
        let led_by_rest = matches!(header.opcode, Opcode::NotifyReply | Opcode::RemoveMapping)
            && in_header.len as usize == size_of::<InHeader>().saturating_add(rest.len());
        let from = if led_by_rest { rest } else { structure };
        let (structure, after) = from.split_at_checked(need).ok_or_else(|| {
            let got = from.len();
            fail(ParseErrorKind::TooShort { need, got })
        })?;
        let rest = if led_by_rest { after } else { rest };
        let got = (size_of::<InHeader>() + need).saturating_add(rest.len());
        let elsewhere = bytes_elsewhere(header.opcode, &in_header, got, payload).map_err(fail)?;
        finish(header, &in_header, structure, rest, dialect, elsewhere)
    }
}

/// How many of the bytes that the header counts are missing in the `got` bytes; `None` where none may be.
/// Only bulk data can be elsewhere.
fn bytes_elsewhere(
    opcode: Opcode,
    header: &InHeader,
    got: usize,
    payload: Payload,
) -> Parsed<Option<usize>> {
    let missing = (header.len as usize).checked_sub(got);
    let has_data = opcode.row().trailing == Trailing::Data;
    match (missing, payload) {
        (Some(missing), Payload::External) if has_data => Ok(Some(missing)),
        (Some(0), _) => Ok(None),
        _ => Err(ParseErrorKind::LengthMismatch {
            header: header.len,
            got,
        }),
    }
}

fn failed(header: &InHeader, kind: ParseErrorKind) -> ParseError {
    ParseError {
        unique: Some(Unique(header.unique)),
        opcode: Some(header.opcode),
        kind,
    }
}

fn parse_header(bytes: &[u8]) -> Result<(Header, InHeader), ParseError> {
    let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| ParseError {
        unique: None,
        opcode: None,
        kind: ParseErrorKind::TooShort {
            need: size_of::<InHeader>(),
            got: bytes.len(),
        },
    })?;
    let opcode = Opcode::from_u32(header.opcode)
        .ok_or_else(|| failed(&header, ParseErrorKind::UnknownOpcode(header.opcode)))?;
    let parsed = Header {
        unique: Unique(header.unique),
        opcode,
        nodeid: NodeId(header.nodeid),
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
    };
    Ok((parsed, header))
}

fn finish<'a>(
    header: Header,
    in_header: &InHeader,
    structure: &'a [u8],
    rest: &'a [u8],
    dialect: Dialect,
    elsewhere: Option<usize>,
) -> Result<Request<'a>, ParseError> {
    let fail = |kind| failed(in_header, kind);
    let extension_bytes = usize::from(in_header.total_extlen) * 8;
    let start = rest
        .len()
        .checked_sub(extension_bytes)
        .ok_or(fail(ParseErrorKind::BadExtension))?;
    let (rest, extensions) = rest.split_at(start);
    let extensions = Extensions::parse(extensions).map_err(fail)?;
    let mut arguments = Arguments::new(structure, rest);
    let operation =
        parse_operation(header.opcode, &mut arguments, dialect, elsewhere).map_err(fail)?;
    arguments.end().map_err(fail)?;
    Ok(Request {
        header,
        operation,
        extensions,
    })
}

#[rustfmt::skip]
fn parse_operation<'a>(
    opcode: Opcode,
    arguments: &mut Arguments<'a>,
    dialect: Dialect,
    elsewhere: Option<usize>,
) -> Parsed<Operation<'a>> {
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup { name: arguments.name()? },
        Opcode::Forget => Operation::Forget { nlookup: arguments.structure::<ForgetIn>()?.nlookup },
        Opcode::Getattr => {
            let arg: GetattrIn = arguments.structure()?;
            Operation::Getattr { fh: handle(arg.getattr_flags, arg.fh) }
        }
        Opcode::Setattr => Operation::Setattr(arguments.structure()?),
        Opcode::Readlink => Operation::Readlink,
        Opcode::Symlink => Operation::Symlink { name: arguments.name()?, target: arguments.string()? },
        Opcode::Mknod => Operation::Mknod { arg: arguments.structure()?, name: arguments.name()? },
        Opcode::Mkdir => Operation::Mkdir { arg: arguments.structure()?, name: arguments.name()? },
        Opcode::Unlink => Operation::Unlink { name: arguments.name()? },
        Opcode::Rmdir => Operation::Rmdir { name: arguments.name()? },
        Opcode::Rename => {
            let arg: RenameIn = arguments.structure()?;
            parse_rename(arg.newdir, 0, arguments)?
        }
        Opcode::Rename2 => {
            let arg: Rename2In = arguments.structure()?;
            parse_rename(arg.newdir, arg.flags, arguments)?
        }
        Opcode::Link => {
            let old_node = NodeId(arguments.structure::<LinkIn>()?.oldnodeid);
            Operation::Link { old_node, name: arguments.name()? }
        }
        Opcode::Open => Operation::Open(arguments.structure()?),
        Opcode::Read => Operation::Read(arguments.structure()?),
        Opcode::Write => {
            let arg: WriteIn = arguments.structure()?;
            Operation::Write { arg, data: data(arguments, arg.size, elsewhere)? }
        }
        Opcode::Statfs => Operation::Statfs,
        Opcode::Release => Operation::Release(arguments.structure()?),
        Opcode::Fsync => Operation::Fsync(arguments.structure()?),
        Opcode::Setxattr => parse_setxattr(arguments, dialect)?,
        Opcode::Getxattr => {
            let size = arguments.structure::<GetxattrIn>()?.size;
            Operation::Getxattr { name: attribute_name(arguments)?, size }
        }
        Opcode::Listxattr => Operation::Listxattr { size: arguments.structure::<GetxattrIn>()?.size },
        Opcode::Removexattr => Operation::Removexattr { name: attribute_name(arguments)? },
        Opcode::Flush => {
            let arg: FlushIn = arguments.structure()?;
            Operation::Flush { fh: FileHandle(arg.fh), lock_owner: LockOwner(arg.lock_owner) }
        }
        Opcode::Init => parse_init(arguments)?,
        Opcode::Opendir => Operation::Opendir(arguments.structure()?),
        Opcode::Readdir => Operation::Readdir(arguments.structure()?),
        Opcode::Readdirplus => Operation::Readdirplus(arguments.structure()?),
        Opcode::Releasedir => Operation::Releasedir(arguments.structure()?),
        Opcode::Fsyncdir => Operation::Fsyncdir(arguments.structure()?),
        Opcode::Getlk => Operation::Getlk(arguments.structure()?),
        Opcode::Setlk => Operation::Setlk(arguments.structure()?),
        Opcode::Setlkw => Operation::Setlkw(arguments.structure()?),
        Opcode::Access => Operation::Access { mask: arguments.structure::<AccessIn>()?.mask },
        Opcode::Create => Operation::Create { arg: arguments.structure()?, name: arguments.name()? },
        Opcode::Interrupt => {
            Operation::Interrupt { unique: Unique(arguments.structure::<InterruptIn>()?.unique) }
        }
        Opcode::Bmap => Operation::Bmap(arguments.structure()?),
        Opcode::Destroy => Operation::Destroy,
        Opcode::Ioctl => {
            let arg: IoctlIn = arguments.structure()?;
            Operation::Ioctl { arg, data: arguments.bytes(arg.in_size)? }
        }
        Opcode::Poll => Operation::Poll(arguments.structure()?),
        Opcode::NotifyReply => {
            let arg: NotifyRetrieveIn = arguments.structure()?;
            Operation::NotifyReply { arg, data: data(arguments, arg.size, elsewhere)? }
        }
        Opcode::BatchForget => {
            let count = arguments.structure::<BatchForgetIn>()?.count;
            Operation::BatchForget { forgets: Forgets(records::<ForgetOne>(arguments, count)?) }
        }
        Opcode::Fallocate => Operation::Fallocate(arguments.structure()?),
        Opcode::Lseek => Operation::Lseek(arguments.structure()?),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let wide = matches!(opcode, Opcode::CopyFileRange64);
            Operation::CopyFileRange { arg: arguments.structure()?, wide }
        }
        Opcode::SetupMapping => Operation::SetupMapping(arguments.structure()?),
        Opcode::RemoveMapping => {
            let count = arguments.structure::<RemovemappingIn>()?.count;
            let mappings = Mappings(records::<RemovemappingOne>(arguments, count)?);
            Operation::RemoveMapping { mappings }
        }
        Opcode::Syncfs => {
            arguments.structure::<SyncfsIn>()?;
            Operation::Syncfs
        }
        Opcode::Tmpfile => {
            let arg = arguments.structure()?;
            arguments.remainder();
            Operation::Tmpfile { arg }
        }
        Opcode::Statx => {
            let arg: StatxIn = arguments.structure()?;
            let fh = handle(arg.getattr_flags, arg.fh);
            Operation::Statx { fh, flags: arg.sx_flags, mask: arg.sx_mask }
        }
    })
}

fn handle(flags: u32, fh: u64) -> Option<FileHandle> {
    GetattrFlags::from_bits_retain(flags)
        .contains(GetattrFlags::FH)
        .then_some(FileHandle(fh))
}

fn data<'a>(
    arguments: &mut Arguments<'a>,
    size: u32,
    elsewhere: Option<usize>,
) -> Parsed<&'a [u8]> {
    match elsewhere {
        None => arguments.bytes(size),
        Some(missing) if missing == size as usize => Ok(&[]),
        Some(_) => Err(ParseErrorKind::BadCount),
    }
}

fn attribute_name<'a>(arguments: &mut Arguments<'a>) -> Parsed<&'a CStr> {
    let name = arguments.string()?;
    if name.is_empty() {
        Err(ParseErrorKind::BadName)
    } else {
        Ok(name)
    }
}

fn records<'a, T>(arguments: &mut Arguments<'a>, count: u32) -> Parsed<&'a [u8]> {
    let bytes = (count as usize)
        .checked_mul(size_of::<T>())
        .ok_or(ParseErrorKind::BadCount)?;
    let bytes = u32::try_from(bytes).map_err(|_| ParseErrorKind::BadCount)?;
    arguments.bytes(bytes)
}

fn parse_rename<'a>(
    new_parent: u64,
    flags: u32,
    arguments: &mut Arguments<'a>,
) -> Parsed<Operation<'a>> {
    let (name, new_name) = (arguments.name()?, arguments.name()?);
    Ok(Operation::Rename {
        new_parent: NodeId(new_parent),
        flags,
        name,
        new_name,
    })
}

fn parse_setxattr<'a>(arguments: &mut Arguments<'a>, dialect: Dialect) -> Parsed<Operation<'a>> {
    let (size, flags, setxattr_flags) = if dialect.setxattr_ext {
        let arg: SetxattrIn = arguments.structure()?;
        (arg.size, arg.flags, arg.setxattr_flags)
    } else {
        let [size, flags]: [u32; 2] = arguments.structure()?;
        (size, flags, 0)
    };
    let name = attribute_name(arguments)?;
    let value = arguments.bytes(size)?;
    Ok(Operation::Setxattr {
        name,
        value,
        flags,
        setxattr_flags,
    })
}

fn parse_init<'a>(arguments: &mut Arguments<'a>) -> Parsed<Operation<'a>> {
    let [major, minor, max_readahead, flags]: [u32; 4] = arguments.structure()?;
    let mut arg = InitIn {
        major,
        minor,
        max_readahead,
        flags,
        ..InitIn::default()
    };
    // From 7.36 on more fields follow, and later versions may add further ones.
    let more = arguments.remainder();
    if InitFlags::from_bits_retain(u64::from(flags)).contains(InitFlags::INIT_EXT) {
        let (flags2, _) = u32::read_from_prefix(more).map_err(|_| ParseErrorKind::TooShort {
            need: size_of::<u32>(),
            got: more.len(),
        })?;
        arg.flags2 = flags2;
    }
    let flags = InitFlags::from_bits_retain(u64::from(arg.flags) | u64::from(arg.flags2) << 32);
    Ok(Operation::Init { arg, flags })
}

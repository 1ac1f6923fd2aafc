//! What the floor answers: constants, by operation, and by name where a name is asked for. It
//! remembers nothing: a node id is made of the ids and names above it and says what kind it is of.
//!
//! Capabilities, timeouts and flags are those of `thrufs mount -o cache=always`, as far as they
//! decide which requests the kernel sends.

use rustix::io::Errno;
use thrufs::layout::{
    Attr, AttrOut, EntryOut, GetxattrOut, InitIn, InitOut, OpenOut, StatfsOut, Statx, StatxOut,
    WriteOut,
};
use thrufs_abi::version::{KERNEL_MINOR, KERNEL_VERSION};
use thrufs_abi::{Dialect, InitFlags, Name, NodeId, OpenReplyFlags, Operation, Request};
use zerocopy::{Immutable, IntoBytes};

/// What comes of a request. The transport adds the header.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// So many bytes at the start of the place for the body.
    Body(usize),
    Failed(Errno),
    /// The kernel waits for no reply.
    Nothing,
}

/// What is spoken, by INIT too.
pub(super) const DIALECT: Dialect = Dialect {
    minor: KERNEL_MINOR,
    setxattr_ext: true,
};

/// What is asked for at INIT, where the kernel offers it. A transport may have more to ask for.
pub(super) const WANTED: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::ABORT_ERROR)
    .union(InitFlags::INIT_EXT)
    .union(InitFlags::ATOMIC_O_TRUNC)
    .union(InitFlags::DO_READDIRPLUS)
    .union(InitFlags::READDIRPLUS_AUTO)
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::HAS_EXPIRE_ONLY)
    .union(InitFlags::NO_EXPORT_SUPPORT)
    .union(InitFlags::EXPLICIT_INVAL_DATA)
    .union(InitFlags::CACHE_SYMLINKS);

/// Most bytes in a READ or WRITE.
const DATA_BYTES_MAX: u32 = 1 << 20;
const BACKGROUND_REQUESTS_MAX: u16 = 256;
/// A day: `cache=always`.
const VALID_SECONDS: u64 = 86_400;
/// Size of every file: as much as any row reads.
pub(super) const FILE_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: u32 = 4096;
const DIRECTORY_MODE: u32 = 0o40_755;
const FILE_MODE: u32 = 0o100_644;
/// In a node id: it is a directory's. The root is one without it.
const DIRECTORY: u64 = 1 << 62;
/// In every node id but the root's, so that none is 0 or 1.
const NOT_ROOT: u64 = 1 << 63;

/// Writes the body of the answer to the start of `out`. `wanted` is what INIT asks for.
pub(super) fn answer(request: &Request<'_>, wanted: InitFlags, out: &mut [u8]) -> Answer {
    let node = request.header.nodeid;
    match request.operation {
        Operation::Init { arg, flags } => put(out, &init(&arg, flags & wanted)),
        Operation::Forget { .. } | Operation::BatchForget { .. } | Operation::Interrupt { .. } => {
            Answer::Nothing
        }
        Operation::Lookup { name } => put(out, &found(node, name)),
        Operation::Mkdir { name, .. } => put(out, &entry(child(node, name) | DIRECTORY)),
        Operation::Create { name, .. } => created(child(node, name), out),
        Operation::Getattr { .. } | Operation::Setattr(_) => put(out, &attributes_out(node)),
        Operation::Statx { .. } => put(out, &extended(node)),
        Operation::Open(_) => put(out, &opened(FILE_OPEN)),
        Operation::Opendir(_) => put(out, &opened(DIRECTORY_OPEN)),
        // What lies there, zeros but for the head: no reader looks at it, and filling it would take time.
        Operation::Read(arg) => Answer::Body(out.len().min(arg.size as usize)),
        Operation::Write { arg, .. } => {
            let size = arg.size;
            put(out, &WriteOut { size, padding: 0 })
        }
        Operation::Statfs => put(out, &StatfsOut::default()),
        Operation::Getxattr { .. } => Answer::Failed(Errno::NODATA),
        Operation::Listxattr { size: 0 } => put(out, &GetxattrOut::default()),
        Operation::Readdir(_)
        | Operation::Readdirplus(_)
        | Operation::Listxattr { .. }
        | Operation::Unlink { .. }
        | Operation::Rmdir { .. }
        | Operation::Rename { .. }
        | Operation::Release(_)
        | Operation::Releasedir(_)
        | Operation::Flush { .. }
        | Operation::Fsync(_)
        | Operation::Fsyncdir(_)
        | Operation::Access { .. }
        | Operation::Destroy => Answer::Body(0),
        Operation::Readlink => Answer::Failed(Errno::INVAL),
        _ => Answer::Failed(Errno::NOSYS),
    }
}

const FILE_OPEN: OpenReplyFlags = OpenReplyFlags::KEEP_CACHE.union(OpenReplyFlags::NOFLUSH);
const DIRECTORY_OPEN: OpenReplyFlags = OpenReplyFlags::CACHE_DIR.union(OpenReplyFlags::KEEP_CACHE);

fn put(out: &mut [u8], body: &(impl IntoBytes + Immutable + ?Sized)) -> Answer {
    let bytes = body.as_bytes();
    match out.get_mut(..bytes.len()) {
        Some(place) => {
            place.copy_from_slice(bytes);
            Answer::Body(bytes.len())
        }
        None => Answer::Failed(Errno::IO),
    }
}

/// The entry and the open file.
fn created(node: u64, out: &mut [u8]) -> Answer {
    let Some((first, second)) = out.split_at_mut_checked(size_of::<EntryOut>()) else {
        return Answer::Failed(Errno::IO);
    };
    match (put(first, &entry(node)), put(second, &opened(FILE_OPEN))) {
        (Answer::Body(one), Answer::Body(two)) => Answer::Body(one + two),
        (failed, _) => failed,
    }
}

fn init(asked: &InitIn, flags: InitFlags) -> InitOut {
    InitOut {
        major: KERNEL_VERSION,
        minor: asked.minor.min(KERNEL_MINOR),
        max_readahead: asked.max_readahead,
        flags: flags.bits() as u32,
        flags2: (flags.bits() >> 32) as u32,
        max_background: BACKGROUND_REQUESTS_MAX,
        congestion_threshold: BACKGROUND_REQUESTS_MAX / 4 * 3,
        max_write: DATA_BYTES_MAX,
        time_gran: 1,
        max_pages: (DATA_BYTES_MAX / BLOCK_BYTES) as u16,
        ..InitOut::default()
    }
}

/// A name is a file's, a directory's, or missing, by the habits of [`workload`](thrufs_bench::workload):
/// `file` is there, `made` and `new` are not yet, what ends in `renamed` is where something goes, and
/// everything else is a directory.
fn found(parent: NodeId, name: Name<'_>) -> EntryOut {
    let bytes = name.as_bytes();
    let missing =
        bytes.starts_with(b"made") || bytes.starts_with(b"new") || bytes.ends_with(b"renamed");
    if missing {
        EntryOut {
            entry_valid: VALID_SECONDS,
            ..EntryOut::default()
        }
    } else if bytes.starts_with(b"file") {
        entry(child(parent, name))
    } else {
        entry(child(parent, name) | DIRECTORY)
    }
}

/// A file's node id, by the hash of Fowler, Noll and Vo.
fn child(parent: NodeId, name: Name<'_>) -> u64 {
    let hash = name
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ parent.0, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    (hash | NOT_ROOT) & !DIRECTORY
}

fn is_directory(node: u64) -> bool {
    node == NodeId::ROOT.0 || node & DIRECTORY != 0
}

fn entry(node: u64) -> EntryOut {
    EntryOut {
        nodeid: node,
        entry_valid: VALID_SECONDS,
        attr_valid: VALID_SECONDS,
        attr: attributes(node),
        ..EntryOut::default()
    }
}

fn attributes_out(node: NodeId) -> AttrOut {
    AttrOut {
        attr_valid: VALID_SECONDS,
        attr: attributes(node.0),
        ..AttrOut::default()
    }
}

fn attributes(node: u64) -> Attr {
    let directory = is_directory(node);
    Attr {
        ino: node,
        size: if directory { 0 } else { FILE_BYTES },
        mode: if directory { DIRECTORY_MODE } else { FILE_MODE },
        nlink: if directory { 2 } else { 1 },
        blksize: BLOCK_BYTES,
        ..Attr::default()
    }
}

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_ALL: u32 = 0xfff;

fn extended(node: NodeId) -> StatxOut {
    let basic = attributes(node.0);
    StatxOut {
        attr_valid: VALID_SECONDS,
        stat: Statx {
            mask: STATX_ALL,
            blksize: basic.blksize,
            nlink: basic.nlink,
            mode: basic.mode as u16,
            ino: basic.ino,
            size: basic.size,
            ..Statx::default()
        },
        ..StatxOut::default()
    }
}

fn opened(flags: OpenReplyFlags) -> OpenOut {
    OpenOut {
        open_flags: flags.bits(),
        ..OpenOut::default()
    }
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;

//! What is done to the file.

use crate::callers::{Caller, GROUP, OWNER};
use rustix::fs::{AtFlags, FallocateFlags, Gid, Uid, removexattr};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io::IoSlice;
use thrufs_testing::fence::truncate::truncate;
use thrufs_tests::prelude::*;

/// What a file holds at first, so that a block can be overwritten.
pub const CONTENT: [u8; 8192] = [b'o'; 8192];

/// The source of copies. Also a block.
pub const BLOCK: [u8; 4096] = [b'n'; 4096];

macro_rules! operations {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        /// A change of a file, or a call that looks like one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Operation {
            $($(#[$attribute])* $name,)*
        }

        impl Operation {
            pub const ALL: &[Operation] = &[$(Operation::$name,)*];
        }
    };
}

operations! {
    Write,
    PositionedWrite,
    VectoredWrite,
    Append,
    /// With `O_DIRECT`.
    DirectWrite,
    /// A store through a shared map, and msync(2).
    MapStore,
    SpliceInto,
    SendfileInto,
    CopyFileRange,
    /// truncate(2), by path.
    Truncate,
    TruncateOpen,
    TruncateToSameSize,
    OpenTruncating,
    Fallocate,
    FallocateKeepSize,
    PunchHole,
    /// To the present owner.
    ChownToSame,
    ChownToOther,
    /// Neither owner nor group: chown(2) of -1 and -1.
    ChownToNone,
    /// To the caller's group.
    Chgrp,
    /// An ACL with an entry for another user.
    SetAcl,
    /// The same, taken away again.
    RemoveAcl,
    WriteOfNothing,
    Read,
}

/// What an operation works on.
pub struct Target<'a> {
    pub path: &'a Path,
    /// The same file, opened by the caller.
    pub file: &'a File,
    /// A file with [`BLOCK`] in it, opened for reading.
    pub source: &'a File,
    pub caller: Caller,
}

type Outcome = Result<(), Errno>;

impl Operation {
    /// How the file must be open.
    pub fn flags(self) -> OFlags {
        let extra = match self {
            Operation::Append => OFlags::APPEND,
            Operation::DirectWrite => OFlags::DIRECT,
            _ => OFlags::empty(),
        };
        OFlags::RDWR | OFlags::CLOEXEC | extra
    }

    pub fn run(self, target: &Target<'_>) -> Outcome {
        let Target { path, file, .. } = *target;
        let done = |_: usize| ();
        match self {
            Operation::Write | Operation::Append => rustix::io::write(file, b"x").map(done),
            Operation::PositionedWrite => rustix::io::pwrite(file, b"x", 7).map(done),
            Operation::VectoredWrite => {
                let parts = [IoSlice::new(b"x"), IoSlice::new(b"y")];
                rustix::io::pwritev2(file, &parts, 0, ReadWriteFlags::empty()).map(done)
            }
            Operation::DirectWrite => write_aligned(file),
            Operation::MapStore => store(file),
            Operation::SpliceInto => splice_into(file),
            Operation::SendfileInto => {
                rustix::fs::sendfile(file, target.source, Some(&mut 0), BLOCK.len()).map(done)
            }
            Operation::CopyFileRange => copy_into(target),
            Operation::Truncate => truncate_path(path, 10),
            Operation::TruncateOpen => rustix::fs::ftruncate(file, 10),
            Operation::TruncateToSameSize => rustix::fs::ftruncate(file, CONTENT.len() as u64),
            Operation::OpenTruncating => {
                let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
                rustix::fs::open(path, flags, Mode::empty()).map(drop)
            }
            Operation::Fallocate => allocate(file, FallocateFlags::empty()),
            Operation::FallocateKeepSize => allocate(file, FallocateFlags::KEEP_SIZE),
            Operation::PunchHole => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, 0, 4096)
            }
            Operation::ChownToSame => chown(path, Some(OWNER), Some(GROUP)),
            Operation::ChownToOther => chown(path, Some(BOB.uid), Some(BOB.gid)),
            Operation::ChownToNone => chown(path, None, None),
            Operation::Chgrp => chown(path, None, Some(target.caller.gid())),
            Operation::SetAcl => set_acl(path),
            Operation::RemoveAcl => set_acl(path).and_then(|()| removexattr(path, acl::NAME)),
            Operation::WriteOfNothing => rustix::io::pwrite(file, b"", 0).map(done),
            Operation::Read => rustix::io::pread(file, &mut [0u8; 16], 0).map(done),
        }
    }
}

/// A block, aligned for `O_DIRECT`.
pub fn write_aligned(file: &File) -> Outcome {
    let memory = [b'd'; 8192];
    let start = memory.as_ptr().align_offset(4096);
    rustix::io::pwrite(file, &memory[start..start + 4096], 0).map(|_| ())
}

fn store(file: &File) -> Outcome {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap();
    let mut map = Mapping::new(file, 4096, Sharing::Shared).map_err(errno)?;
    map.store(0, b"mapped");
    map.sync().map_err(errno)
}

fn splice_into(file: &File) -> Outcome {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::write(&writer, &BLOCK)?;
    let flags = SpliceFlags::empty();
    rustix::pipe::splice(&reader, None, file, Some(&mut 0), BLOCK.len(), flags).map(|_| ())
}

fn copy_into(target: &Target<'_>) -> Outcome {
    let (mut from, mut to) = (0, 0);
    let (source, file) = (target.source, target.file);
    rustix::fs::copy_file_range(source, Some(&mut from), file, Some(&mut to), BLOCK.len())
        .map(|_| ())
}

fn truncate_path(path: &Path, size: i64) -> Outcome {
    truncate(path, size).map_err(|error| Errno::from_io_error(&error).unwrap())
}

fn allocate(file: &File, flags: FallocateFlags) -> Outcome {
    rustix::fs::fallocate(file, flags, 0, 20_000)
}

fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Outcome {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::empty())
}

/// All may still read and write; one user is named.
fn set_acl(path: &Path) -> Outcome {
    let list = acl::List {
        mask: Some(7),
        user: Some((BOB.uid, 6)),
        ..acl::List::ALL
    };
    rustix::fs::setxattr(path, acl::NAME, &list.value_with(&[]), XattrFlags::empty())
}

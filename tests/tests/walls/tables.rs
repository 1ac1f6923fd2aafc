//! The first table of `docs/security/requests.md` has one row for every request of a client's kernel.

use std::collections::BTreeSet;

use rustix::fs::{FallocateFlags, RenameFlags};
use thrufs_abi::{
    FsyncFlags, GetattrFlags, IoctlFlags, LkFlags, Opcode, OpenInFlags, PollFlags, ReadFlags,
    ReleaseFlags, SetattrValid, SetxattrFlags, WriteFlags,
};
use thrufs_sys::ioctl::COMMANDS;

const PAGE: &str = include_str!("../../../docs/security/requests.md");

/// The heading above the table with a request's row.
fn heading(opcode: Opcode) -> &'static str {
    use Opcode as It;
    match opcode {
        It::Lookup
        | It::Getattr
        | It::Statx
        | It::Setattr
        | It::Readlink
        | It::Symlink
        | It::Mknod
        | It::Mkdir
        | It::Unlink
        | It::Rmdir
        | It::Rename
        | It::Rename2
        | It::Link
        | It::Open
        | It::Opendir
        | It::Create
        | It::Tmpfile
        | It::Read
        | It::Write
        | It::Flush
        | It::Release
        | It::Fsync
        | It::Releasedir
        | It::Fsyncdir
        | It::Readdir
        | It::Readdirplus
        | It::Statfs
        | It::Syncfs
        | It::Setxattr
        | It::Getxattr
        | It::Listxattr
        | It::Removexattr
        | It::Getlk
        | It::Setlk
        | It::Setlkw
        | It::Fallocate
        | It::CopyFileRange
        | It::CopyFileRange64
        | It::Lseek
        | It::Ioctl => "### Asked for callers",
        It::Init | It::Destroy | It::Forget | It::BatchForget | It::Interrupt | It::NotifyReply => {
            "### Sent without a caller"
        }
        It::Access | It::Bmap | It::Poll | It::SetupMapping | It::RemoveMapping | It::CuseInit => {
            "### Not answered"
        }
    }
}

/// What the rows of the table under a heading are about, in their order.
fn rows(heading: &str) -> Vec<String> {
    let lines = PAGE.lines().skip_while(|line| *line != heading).skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    let rows = section.filter(|line| line.starts_with('|')).skip(2);
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let names = first.flat_map(|cell| cell.split(", "));
    names
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect()
}

#[track_caller]
fn are_the_rows_of(heading: &str, wanted: impl IntoIterator<Item = String>) {
    let rows = rows(heading);
    let found: BTreeSet<_> = rows.iter().cloned().collect();
    assert_eq!(found.len(), rows.len(), "two rows of one under {heading}");
    assert_eq!(found, wanted.into_iter().collect(), "{heading}");
}

#[test]
fn every_request_has_a_row() {
    let headings: BTreeSet<_> = Opcode::ALL.iter().map(|&opcode| heading(opcode)).collect();
    for under in headings {
        let here = Opcode::ALL
            .iter()
            .filter(|&&opcode| heading(opcode) == under);
        are_the_rows_of(under, here.map(|opcode| opcode.name().to_owned()));
    }
}

#[test]
fn every_command_has_a_row() {
    let names = COMMANDS.iter().map(|(_, name)| *name);
    are_the_rows_of(
        "### ioctls",
        names.chain(["every other"]).map(str::to_owned),
    );
}

/// Prefixes of `linux/xattr.h`, and the names that the kernel knows.
#[test]
fn every_kind_of_extended_attribute_has_a_row() {
    let names = [
        "user.",
        "trusted.",
        "security.",
        "security.capability",
        "system.",
        "system.posix_acl_access",
        "system.posix_acl_default",
        "any other",
    ];
    are_the_rows_of("### Extended attributes", names.map(str::to_owned));
}

#[test]
fn every_flag_has_a_row() {
    let of_calls = [
        "O_RDONLY",
        "O_WRONLY",
        "O_RDWR",
        "O_TRUNC",
        "O_APPEND",
        "O_NOATIME",
        "O_DIRECT",
        "O_SYNC",
        "O_DSYNC",
        "O_CREAT",
        "O_EXCL",
        "O_NONBLOCK",
        "SEEK_DATA",
        "SEEK_HOLE",
    ];
    let mut wanted: Vec<String> = of_calls.map(str::to_owned).to_vec();
    macro_rules! all_of {
        ($($flags:ty: $prefix:literal),*) => {
            $(wanted.extend(<$flags>::all().iter_names().map(|(name, _)| format!($prefix, name.trim_start_matches("IN_"))));)*
        };
    }
    all_of!(
        SetattrValid: "FATTR_{}",
        OpenInFlags: "FUSE_OPEN_{}",
        ReadFlags: "FUSE_READ_{}",
        WriteFlags: "FUSE_WRITE_{}",
        ReleaseFlags: "FUSE_RELEASE_{}",
        GetattrFlags: "FUSE_GETATTR_{}",
        LkFlags: "FUSE_LK_{}",
        IoctlFlags: "FUSE_IOCTL_{}",
        PollFlags: "FUSE_POLL_{}",
        FsyncFlags: "FUSE_FSYNC_{}",
        SetxattrFlags: "FUSE_SETXATTR_{}",
        RenameFlags: "RENAME_{}",
        FallocateFlags: "FALLOC_FL_{}"
    );
    are_the_rows_of("### Flags", wanted);
}

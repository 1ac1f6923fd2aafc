//! The kinds of descriptors that a front end may send. Others are refused before a worker has them: each call of a
//! file of FUSE takes as long as its server likes, and so does the end of a process that has it open.

use crate::wire::VhostMessage;
use rustix::fs::{CWD, FileType, readlinkat};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use vhost::vhost_user::message::FrontendReq;

/// File systems in memory, and of disks of this machine (`linux/magic.h`): tmpfs (of memfd_create(2), too), hugetlbfs,
/// ramfs; ext4, XFS, btrfs, F2FS, ZFS, bcachefs.
const FILE_SYSTEMS: [i64; 9] = [
    0x0102_1994,
    0x9584_58f6,
    0x8584_58f6,
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Eventfd,
    /// A regular file of one of the known file systems.
    Memory,
    Pipe,
    /// Of the domain of Unix.
    Socket,
    Unknown,
}

/// The first descriptor that a message may not have: what it is.
pub(super) fn unknown(message: &VhostMessage) -> Option<String> {
    let known = of_request(message.request());
    let mut files = message.files.iter();
    let file = files.find(|file| !known.contains(&kind(file)))?;
    Some(name(file).unwrap_or_default())
}

/// As the specification of vhost-user has them; User-Mode Linux has a pair of sockets for a call.
fn of_request(request: Option<FrontendReq>) -> &'static [Kind] {
    match request {
        Some(
            FrontendReq::SET_VRING_KICK | FrontendReq::SET_VRING_CALL | FrontendReq::SET_VRING_ERR,
        ) => &[Kind::Eventfd, Kind::Pipe, Kind::Socket],
        Some(FrontendReq::SET_LOG_FD) => &[Kind::Eventfd],
        Some(
            FrontendReq::SET_MEM_TABLE
            | FrontendReq::ADD_MEM_REG
            | FrontendReq::SET_LOG_BASE
            | FrontendReq::SET_INFLIGHT_FD,
        ) => &[Kind::Memory],
        Some(FrontendReq::SET_BACKEND_REQ_FD) => &[Kind::Socket],
        Some(FrontendReq::SET_DEVICE_STATE_FD) => &[Kind::Pipe, Kind::Socket, Kind::Memory],
        _ => &[],
    }
}

/// The kernel names what has no path; a path begins with a slash.
fn kind(file: &OwnedFd) -> Kind {
    let Some(name) = name(file) else {
        return Kind::Unknown;
    };
    match name.as_str() {
        "anon_inode:[eventfd]" => Kind::Eventfd,
        name if name.starts_with("pipe:") => Kind::Pipe,
        name if name.starts_with("socket:") && is_unix(file) => Kind::Socket,
        name if name.starts_with('/') && is_memory(file) => Kind::Memory,
        _ => Kind::Unknown,
    }
}

fn name(file: &OwnedFd) -> Option<String> {
    let link = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let name = readlinkat(CWD, link, Vec::new()).ok()?;
    Some(name.to_string_lossy().into_owned())
}

fn is_unix(file: impl AsFd) -> bool {
    socket_domain(file) == Ok(AddressFamily::UNIX)
}

fn is_memory(file: impl AsFd) -> bool {
    // First: an attribute of FUSE is its server's.
    let known = rustix::fs::fstatfs(&file).is_ok_and(|it| FILE_SYSTEMS.contains(&it.f_type));
    let is_regular = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    known && rustix::fs::fstat(file).is_ok_and(|stat| is_regular(stat.st_mode))
}

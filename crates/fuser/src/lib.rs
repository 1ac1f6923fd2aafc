#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adapter;
mod answer;
mod config;
mod filesystem;
mod flags;
mod names;
mod notify;
mod reply;
mod session;

pub use config::{Config, KernelConfig, MountOption, SessionACL};
pub use filesystem::{Filesystem, ForgetOne, Request};
pub use flags::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FopenFlags, InitFlags, IoctlFlags, OpenAccMode,
    OpenFlags, PollEvents, PollFlags, RenameFlags, WriteFlags, consts,
};
pub use names::{
    Errno, FileAttr, FileHandle, FileType, Generation, INodeNo, LockOwner, RequestId, TimeOrNow,
    Version,
};
pub use notify::{BackingId, Notifier, PollHandle, PollNotifier};
pub use reply::{
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr,
};
pub use session::{BackgroundSession, Session, SessionUnmounter};

use std::io;
use std::path::Path;

/// Mounts, and serves until it is unmounted.
///
/// # Errors
/// As [`Session::new`] and [`Session::run`].
pub fn mount<FS: Filesystem, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &Config,
) -> io::Result<()> {
    Session::new(filesystem, mountpoint, options)?.run()
}

/// Mounts, and serves in the background until that is dropped.
///
/// # Errors
/// As [`Session::new`].
pub fn spawn_mount<FS: Filesystem, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &Config,
) -> io::Result<BackgroundSession> {
    Session::new(filesystem, mountpoint, options)?.spawn()
}

pub use mount as mount2;
pub use spawn_mount as spawn_mount2;

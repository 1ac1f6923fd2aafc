//! The layer of a draft, mounted over the view of the tree: an overlay of the kernel's (Linux 5.11 for ordinary users).
//!
//! Overlayfs checks what the caller may do by the attributes that the view shows, and then opens files as whoever
//! mounted it. As root, that is the command's user with root's capabilities: the server decides by the user, whose
//! requests they are, and the capabilities write to the layer.

use super::error::{Failure, failed_to};
use super::user::RunUser;
use crate::draft::layer_directory;
use crate::lookup;
use crate::task::start_thread;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
    move_mount,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use thrufs_sys::cred;

/// How long overlayfs keeps the names of files that the host replaces, as long as the view does.
const NAMES_TIMEOUT: Duration = Duration::from_secs(1);

/// The draft's directory as this mount namespace has it: overlayfs takes no other.
pub(super) fn find(path: &Path, directory: &OwnedFd) -> Result<OwnedFd, Failure> {
    let find = || -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let found = lookup::without_links(path, flags, Mode::empty())?;
        match lookup::is_same(fstat(&found)?, fstat(directory)?) {
            true => Ok(found),
            false => Err(io::Error::other("it was moved meanwhile")),
        }
    };
    find().map_err(failed_to(format!("find the draft {}", path.display())))
}

/// Mounts it on `view`, which is the lower layer.
pub(super) fn mount(view: OwnedFd, draft: OwnedFd, user: &RunUser) -> Result<(), Failure> {
    let groups = user.change.as_ref().map(|it| it.groups.clone());
    let (uid, gid) = (user.uid, user.gid);
    let mount = move || -> io::Result<()> {
        if let Some(groups) = groups {
            cred::keep_capabilities_on_setuid()?;
            cred::set_groups(&groups)?;
            cred::set_fsgid(gid)?;
            cred::set_fsuid(uid)?;
        }
        let mount = overlay(&view, &draft)?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&mount, "", &view, "", flags)?)
    };
    // The credentials of this thread are the overlay's.
    let mounted = start_thread("thrufs-overlay", mount).map(JoinHandle::join);
    match mounted {
        Ok(Ok(mounted)) => mounted.map_err(failed_to(
            "mount an overlay of the draft (--draft-dir DIR puts drafts on another file system)",
        )),
        Ok(Err(_)) => Err(failed_to("mount the overlay")(io::Error::other(
            "a thread panicked",
        ))),
        Err(error) => Err(failed_to("start a thread")(error)),
    }
}

/// Has overlayfs forget the names that are not in use, on a thread, until this process ends. It returns ESTALE for those
/// that lead to another file of the view since. To be called before this process has another PID namespace for its
/// children: it could start no thread any more.
pub(super) fn look_again(tree: &Path) -> io::Result<()> {
    let top = lookup::open_resolved(tree)?;
    let flags = FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC;
    // A reconfiguration that changes nothing drops them (shrink_dcache_sb).
    let forget = move || fspick(&top, "", flags).and_then(|context| fsconfig_reconfigure(&context));
    let look = move || {
        while forget().is_ok() {
            std::thread::sleep(NAMES_TIMEOUT);
        }
    };
    start_thread("thrufs-overlay", look).map(drop)
}

fn overlay(view: &OwnedFd, draft: &OwnedFd) -> io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let [upper, work] = ["upper", "work"].map(|name| layer_directory(draft, name));
    let set = || -> rustix::io::Result<()> {
        for (key, directory) in [
            ("lowerdir", view),
            ("upperdir", &upper?),
            ("workdir", &work?),
        ] {
            fsconfig_set_string(&context, key, lookup::descriptor_path(directory))?;
        }
        // One device number, and inode numbers that stay as they are when a file is copied.
        fsconfig_set_string(&context, "xino", "on")?;
        // Ordinary users cannot set those of the name space `trusted`.
        fsconfig_set_flag(&context, "userxattr")?;
        fsconfig_create(&context)
    };
    set().map_err(|errno| explained(errno, &context))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// With the last that the kernel says of it (`e overlay: …`).
fn explained(errno: Errno, context: &OwnedFd) -> io::Error {
    let (mut line, mut said) = ([0; 1024], String::new());
    while let Ok(length @ 1..) = rustix::io::read(context, &mut line) {
        said = String::from_utf8_lossy(&line[..length])
            .trim_end()
            .to_owned();
    }
    match said.is_empty() {
        true => errno.into(),
        false => io::Error::other(format!("{errno} ({said})")),
    }
}

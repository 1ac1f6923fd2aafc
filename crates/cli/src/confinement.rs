//! What the worker gives up before it looks at the first request.
//!
//! As root: every capability that serving a directory does not need, new privileges, and the tree:
//! the process moves to a mount namespace of its own that holds `/dev/fuse`, the source, and nothing
//! else. The mounts of that namespace follow those of the host: what is mounted on the source later is
//! seen, and what is unmounted there is gone, where the mount that the source lies on propagates
//! (mount_namespaces(7)). No device node is opened by them, but on what is mounted later, which keeps its
//! own flags.
//!
//! An ordinary user's worker keeps its view: it has no privilege to begin with.
//!
//! The worker of a share reads what a guest writes, and gives up more ([`share`]).
//!
//! Whoever the user is, the threads that serve may make no system calls but those that serving needs
//! ([`seccomp`]).

mod seccomp;
mod share;

pub(crate) use seccomp::Duty;
pub(crate) use share::shut_in;

use crate::config::FilterAction;
use crate::task::start_thread;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    mount, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{Resource, Rlimit, getrlimit, pivot_root, setrlimit};
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use thrufs_hostdir::FileHandles;
use thrufs_sys::proc_fd::Detached;
use thrufs_sys::{cred, sched};

/// What serving needs: to act as the caller, to reach every file, to keep owners, modes, devices,
/// attributes and leases as they are, `trusted.*` and passthrough.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::LEASE);

/// Raises the soft limit on descriptors to the hard one.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        tracing::debug!("cannot raise RLIMIT_NOFILE, it stays {:?}", limit.current);
    }
}

/// What is kept where files are found so. Who overrides modes can read and search: the other one opens, by
/// a guessed handle, every file of a file system.
fn needed(file_handles: FileHandles) -> CapabilitySet {
    match file_handles {
        FileHandles::Never => KEPT - CapabilitySet::DAC_READ_SEARCH,
        FileHandles::Prefer | FileHandles::Mandatory => KEPT,
    }
}

/// Drops the capabilities that serving does not need, for good. With `pairing`, threads can come back
/// from the idle class afterwards ([`Threads::pair`](thrufs::session::Threads::pair)): by a limit,
/// or where that cannot be raised (a container without CAP_SYS_RESOURCE), by CAP_SYS_NICE.
///
/// # Errors
///
/// None that a root process is known to get.
pub(crate) fn drop_privileges(pairing: bool, file_handles: FileHandles) -> io::Result<()> {
    let mut kept = needed(file_handles);
    if pairing && sched::allow_leaving_idle().is_err() {
        kept |= CapabilitySet::SYS_NICE;
    }
    // The bit that says so can be set with a capability that goes, and the file system relies on it.
    cred::keep_capabilities_on_setuid()?;
    // The lower file system would leave the set-group-ID bit of these groups to everybody.
    let _ = cred::set_groups(&[]);
    // Setting the bounding set needs one of those that go: it goes in the same call, last.
    cred::drop_from_all_sets(CapabilitySet::all().difference(kept))?;
    cred::no_new_privs()?;
    Ok(())
}

/// Takes the source out of the tree of the host: gives it in a copy of its mounts, from which `..` does not
/// lead out, and that copy, for [`leave_the_tree`] and to be kept meanwhile. Where that cannot be had,
/// the source alone, as it is.
pub(crate) fn take_source(source: OwnedFd) -> (OwnedFd, Option<OwnedFd>) {
    match copy_of(&source) {
        Ok((inside, tree)) => (inside, Some(tree)),
        Err(errno) => {
            tracing::warn!(
                "the worker can leave the source by its descriptors: cannot clone the mounts: \
                            {errno}"
            );
            (source, None)
        }
    }
}

fn copy_of(source: &OwnedFd) -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    // AT_EMPTY_PATH and AT_RECURSIVE, which rustix has not among these.
    let whole = thrufs_sys::mount::AT_EMPTY_PATH | thrufs_sys::mount::AT_RECURSIVE;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::from_bits_retain(whole);
    let tree = open_tree(source, "", flags)?;
    // The worker makes device nodes for others. Clients' kernels open them, it does not.
    let (set, clear) = (MountAttrFlags::MOUNT_ATTR_NODEV, MountAttrFlags::empty());
    let follow = MountPropagationFlags::DOWNSTREAM;
    thrufs_sys::mount::mount_setattr(&tree, c"", whole, set, clear, follow)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = rustix::fs::openat(&tree, ".", flags, Mode::empty())?;
    Ok((inside, tree))
}

/// Moves the calling thread, and the threads that it starts from now on, to a tree that holds `/dev/fuse`
/// and this one, if any. Where that cannot be had (on the initial RAM disk, under a container's filter),
/// the old one stays.
pub(crate) fn leave_the_tree(source: Option<&OwnedFd>) {
    match try_to_leave(source) {
        Ok(()) => tracing::debug!("the worker is confined to the source"),
        Err((step, error)) => {
            tracing::warn!("the worker sees all files of the host: {step}: {error}")
        }
    }
}

fn try_to_leave(source: Option<&OwnedFd>) -> Result<(), (&'static str, io::Error)> {
    let tell = |step| move |errno: rustix::io::Errno| (step, io::Error::from(errno));
    let file = |step| move |error: io::Error| (step, error);
    let place = ["/run", "/tmp", "/mnt", "/dev"]
        .map(Path::new)
        .into_iter()
        .find(|p| p.is_dir());
    let place = place.ok_or_else(|| {
        (
            "find a directory to mount on",
            io::ErrorKind::NotFound.into(),
        )
    })?;
    cred::unshare_mount_namespace().map_err(tell("unshare"))?;
    // Nothing of what follows may reach the host, and nothing of the host is wanted here.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(tell("make private"))?;
    let links = Detached::take().map_err(tell("clone the mount of /proc/self/fd"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    // The device is opened once more for each thread; a bind mount keeps its own flags.
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let device = open_tree(CWD, "/dev/fuse", clone).map_err(tell("clone /dev/fuse"))?;
    mount("tmpfs", place, "tmpfs", flags, c"size=64k,mode=755").map_err(tell("mount a tmpfs"))?;
    std::fs::create_dir(place.join("dev")).map_err(file("mkdir /dev"))?;
    std::fs::write(place.join("dev/fuse"), "").map_err(file("create /dev/fuse"))?;
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(device, "", CWD, place.join("dev/fuse"), empty).map_err(tell("bind /dev/fuse"))?;
    if let Some(source) = source {
        std::fs::create_dir(place.join("source")).map_err(file("mkdir /source"))?;
        move_mount(source, "", CWD, place.join("source"), empty)
            .map_err(tell("mount the source"))?;
    }
    std::env::set_current_dir(place).map_err(file("enter the new root"))?;
    // With both the same, the old root ends up on top of the new one (pivot_root(2), NOTES).
    pivot_root(".", ".").map_err(tell("pivot_root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(tell("unmount the old root"))?;
    std::env::set_current_dir("/").map_err(file("enter the new root"))?;
    links.work_in().map_err(tell("enter /proc/self/fd"))
}

/// Whether system calls could be filtered: tried on a thread made for it.
///
/// # Errors
///
/// Why not, in words.
pub(crate) fn try_filter() -> Result<(), String> {
    try_on_a_thread(|| {
        seccomp::filter_this_thread(Duty::Serving, FileHandles::Prefer, FilterAction::Fail)
            .map_err(|error| error.to_string())
    })
}

/// Whether a worker of root's could be shut in with this directory: tried on a thread made for it.
///
/// # Errors
///
/// What it could reach, and why, in words.
pub(crate) fn try_walls(source: OwnedFd) -> Result<(), String> {
    try_on_a_thread(move || {
        copy_of(&source).map_err(|errno| {
            format!(
                "a worker can leave it by its descriptors: cannot clone the mounts: \
                                      {errno}"
            )
        })?;
        cred::unshare_mount_namespace()
            .map_err(|errno| format!("a worker sees all files of the host: {errno}"))
    })
}

fn try_on_a_thread(
    tried: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let thread = start_thread("thrufs-probe", tried).map_err(|error| error.to_string())?;
    let tried = thread.join();
    tried.unwrap_or_else(|_| Err("the probe thread panicked".to_owned()))
}

/// Filters the system calls of the calling thread and of those that it starts from now on. Where
/// that cannot be had, they stay as they are.
pub(crate) fn filter_system_calls(duty: Duty, file_handles: FileHandles) {
    let filtered = seccomp::filter_this_thread(duty, file_handles, FilterAction::Fail);
    match (filtered, duty) {
        (Ok(()), _) => tracing::debug!(?duty, "system calls are filtered"),
        (Err(error), Duty::Serving) => tracing::warn!("system calls are not filtered: {error}"),
        // The main thread says so for both.
        (Err(error), other) => tracing::debug!(
            ?other,
            "system calls of another thread are not filtered: \
                                                        {error}"
        ),
    }
}

/// Filters the system calls of the calling thread of a share's worker, and of those that it starts from
/// now on. Where that cannot be had, they stay as they are.
pub(crate) fn filter_system_calls_of_share(file_handles: FileHandles, action: FilterAction) {
    let filtered = seccomp::filter_this_thread(Duty::Sharing, file_handles, action);
    match (action, filtered) {
        (FilterAction::Allow, _) => {}
        (_, Ok(())) => tracing::debug!(?action, "system calls are filtered"),
        (_, Err(error)) => tracing::warn!("system calls are not filtered: {error}"),
    }
}

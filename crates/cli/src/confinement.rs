//! What the worker gives up before it parses the first request, in [`stages`].
//!
//! As root: the capabilities that serving does not need, new privileges, and the file tree: the process
//! enters a mount namespace that holds only `/dev/fuse` and the source. Its mounts follow those of the
//! host where the mount of the source propagates (mount_namespaces(7)). They are nodev, but for later
//! ones, which keep their own flags.
//!
//! An ordinary user's worker keeps its file tree, and no capability.
//!
//! The worker of a share parses what a guest writes, and gives up more ([`share`]).
//!
//! For every user, the serving threads may only make the system calls that serving needs ([`seccomp`]).

mod seccomp;
mod share;
mod stages;

pub(crate) use seccomp::Duty;
pub(crate) use stages::{Inherited, Outcome, Serving, run};

use crate::config::FilterAction;
use crate::task::start_thread;
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    mount, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{Resource, Rlimit, getrlimit, pivot_root, setrlimit};
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thrufs_hostdir::{FileHandles, MountTable};
use thrufs_sys::mount::{AT_EMPTY_PATH, AT_RECURSIVE, mount_setattr};
use thrufs_sys::proc_fd::Links;
use thrufs_sys::{cred, sched};

/// For acting as the caller, reaching every file, keeping owners, modes, devices, attributes and leases,
/// `trusted.*` and passthrough.
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

/// Raises the soft RLIMIT_NOFILE to the hard one.
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

/// CAP_DAC_OVERRIDE covers reading and searching; with CAP_DAC_READ_SEARCH, a guessed handle opens every
/// file of a file system.
fn needed(file_handles: FileHandles) -> CapabilitySet {
    match file_handles {
        FileHandles::Never => KEPT - CapabilitySet::DAC_READ_SEARCH,
        FileHandles::Prefer | FileHandles::Mandatory => KEPT,
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Drops all capabilities but `kept`, or an ordinary user's all, for good. With `pairing`, threads must be able
/// to leave SCHED_IDLE ([`Threads::pair`](thrufs::session::Threads::pair)): by RLIMIT_NICE, or where that
/// cannot be raised (a container without CAP_SYS_RESOURCE), by CAP_SYS_NICE.
fn drop_privileges(mut kept: CapabilitySet, pairing: bool) -> io::Result<()> {
    if !is_root() {
        kept = CapabilitySet::empty();
    } else {
        // Groups of the starter must not grant access to clients, nor keep set-group-ID bits of files.
        let _ = cred::set_groups(&[]);
        if pairing && sched::allow_leaving_idle().is_err() {
            kept |= CapabilitySet::SYS_NICE;
        }
    }
    match cred::drop_from_all_sets(CapabilitySet::all().difference(kept)) {
        // The bounding set may stay: no programs are executed.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if !kept.contains(cred::thread_sets()?.permitted) {
        return Err(Errno::PERM.into());
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Clones the mount that a directory is on, and those beneath it.
pub(crate) fn clone_tree(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    // rustix has no AT_EMPTY_PATH and AT_RECURSIVE for open_tree(2).
    let whole = OpenTreeFlags::from_bits_retain(AT_EMPTY_PATH | AT_RECURSIVE);
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(directory, "", clone | whole)
}

/// Sets attributes of a mount and those beneath it, and their propagation unless that is empty.
pub(crate) fn set_attributes(
    tree: impl AsFd,
    set: MountAttrFlags,
    propagation: MountPropagationFlags,
) -> Result<(), Errno> {
    let (whole, clear) = (AT_EMPTY_PATH | AT_RECURSIVE, MountAttrFlags::empty());
    mount_setattr(tree, c"", whole, set, clear, propagation)
}

/// Has times of access kept in another way on a mount and those beneath it: attributes to set, and to clear.
fn set_atime(tree: impl AsFd, [set, clear]: [MountAttrFlags; 2]) -> Result<(), Errno> {
    let (whole, unchanged) = (AT_EMPTY_PATH | AT_RECURSIVE, MountPropagationFlags::empty());
    mount_setattr(tree, c"", whole, set, clear, unchanged)
}

/// Makes the working directory the root directory, and unmounts the old one.
fn enter_as_root() -> Result<(), Failure> {
    // With the same path twice, the old root is stacked on the new one (pivot_root(2), NOTES).
    pivot_root(".", ".").map_err(failed_to("pivot_root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(failed_to("unmount the old root"))
}

/// Clones the mounts of the source, so that `..` does not lead out of it. Returns the source within the
/// clone, and the clone, which is gone when it is closed and mounted nowhere.
pub(crate) fn clone_mounts(
    source: &OwnedFd,
    propagation: MountPropagationFlags,
) -> Result<(OwnedFd, OwnedFd), Errno> {
    let tree = clone_tree(source)?;
    // Device nodes that the worker creates are opened by the clients' kernels only.
    set_attributes(&tree, MountAttrFlags::MOUNT_ATTR_NODEV, propagation)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = openat(&tree, ".", flags, Mode::empty())?;
    Ok((inside, tree))
}

/// The failed step.
type Failure = (&'static str, io::Error);

fn failed_to<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| (step, error.into())
}

/// Where [`enter_private_tree`] mounts the source.
const PRIVATE_SOURCE: &str = "/source";

/// `/proc/self`, to open files there when `/proc` is out of reach.
fn own_process() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open("/proc/self", flags, Mode::empty())
}

/// The mounts that this process sees from now on, and no others, by its [directory](own_process).
fn mount_table(process: &OwnedFd, source: &Path) -> Result<MountTable, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(process, "mountinfo", flags, Mode::empty())?;
    Ok(MountTable::new(file, source))
}

/// Moves the calling thread, and threads it starts later, to a tree of `/dev/fuse` and the clone, if any.
fn enter_private_tree(source: Option<&OwnedFd>) -> Result<(), Failure> {
    let places = ["/run", "/tmp", "/mnt", "/dev"].map(Path::new);
    let place = places.into_iter().find(|place| place.is_dir());
    let place = place
        .ok_or(io::ErrorKind::NotFound)
        .map_err(failed_to("find a directory to mount on"))?;
    cred::unshare_mount_namespace().map_err(failed_to("unshare"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(failed_to("make private"))?;
    let links = Links::detached().map_err(failed_to("clone the mount of /proc/self/fd"))?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    // /dev/fuse is opened for each thread; a bind mount keeps its own flags.
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let device = open_tree(CWD, "/dev/fuse", clone).map_err(failed_to("clone /dev/fuse"))?;
    mount("tmpfs", place, "tmpfs", flags, c"size=64k,mode=755")
        .map_err(failed_to("mount a tmpfs"))?;
    std::fs::create_dir(place.join("dev")).map_err(failed_to("mkdir /dev"))?;
    std::fs::write(place.join("dev/fuse"), "").map_err(failed_to("create /dev/fuse"))?;
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(device, "", CWD, place.join("dev/fuse"), empty)
        .map_err(failed_to("bind /dev/fuse"))?;
    if let Some(source) = source {
        let place = place.join(PRIVATE_SOURCE.trim_start_matches('/'));
        std::fs::create_dir(&place).map_err(failed_to("mkdir /source"))?;
        move_mount(source, "", CWD, place, empty).map_err(failed_to("mount the source"))?;
    }
    std::env::set_current_dir(place).map_err(failed_to("enter the new root"))?;
    enter_as_root()?;
    std::env::set_current_dir("/").map_err(failed_to("enter the new root"))?;
    links.work_in().map_err(failed_to("enter /proc/self/fd"))?;
    tracing::debug!("the worker is confined to the source");
    Ok(())
}

/// Whether a seccomp filter can be installed, tried on a thread.
pub(crate) fn try_filter() -> Result<(), String> {
    try_on_a_thread(|| {
        seccomp::filter_this_thread(Duty::Serving, FileHandles::Prefer, FilterAction::Fail)
            .map_err(|error| error.to_string())
    })
}

/// Whether a worker of root can be confined to this directory, tried on a thread.
pub(crate) fn try_confinement(source: OwnedFd) -> Result<(), String> {
    try_on_a_thread(move || {
        clone_mounts(&source, MountPropagationFlags::DOWNSTREAM).map_err(|errno| {
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

/// Installs the filter for the calling thread and threads it starts later, if possible.
fn filter_system_calls(duty: Duty, file_handles: FileHandles, action: FilterAction) {
    let filtered = seccomp::filter_this_thread(duty, file_handles, action);
    match (filtered, duty) {
        (Ok(()), _) if action == FilterAction::Allow => {}
        (Ok(()), _) => tracing::debug!(?duty, ?action, "system calls are filtered"),
        (Err(error), Duty::Serving | Duty::Sharing) => {
            tracing::warn!("system calls are not filtered: {error}");
        }
        // The main thread has logged it.
        (Err(error), _) => tracing::debug!(?duty, "system calls are not filtered: {error}"),
    }
}

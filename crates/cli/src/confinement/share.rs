//! What the worker of a share gives up: a process that reads what a guest writes.
//!
//! It happens before there is a second thread, so it holds for the whole process, and in this order:
//! the tree, the capabilities, new system calls. Nothing that the worker does later needs more: who
//! asks for it is connected, and policies are opened by the supervisor.
//!
//! Ids of the user namespace of an ordinary user's worker can be asked for
//! (`namespace_uidmap`); it is then root there, and gives up what root's gives up.
//!
//! | | root | an ordinary user |
//! |---|---|---|
//! | the tree | a mount namespace whose root is the source; else a root directory | the same, in a user namespace that knows one user; else nothing |
//! | capabilities | those that serving needs, and without changes fewer | none |
//!
//! `/proc/self/fd`, by which descriptors are opened again, it takes along as a mount of which that is
//! the root: nothing is above it.
//!
//! The mounts of that namespace follow those of the host: what is mounted on the source later is seen,
//! with its own flags, and what is unmounted there is gone. Those that it begins with are nodev; in a root
//! directory alone, device nodes can be opened.

use super::raise_descriptor_limit;
use crate::config::{Sandbox, ShareConfig};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{Resource, Rlimit, chroot, fchdir, getrlimit, pivot_root, setrlimit};
use rustix::thread::{CapabilitySet, set_thread_res_gid, set_thread_res_uid};
use std::io;
use std::os::fd::OwnedFd;
use thrufs_hostdir::IdMap;
use thrufs_sys::mount::{AT_EMPTY_PATH, AT_RECURSIVE, mount_setattr};
use thrufs_sys::proc_fd::{self, Detached};
use thrufs_sys::{cred, sched};

/// What only those need who change something.
const FOR_CHANGES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::LINUX_IMMUTABLE);

/// A sandbox that was asked for and cannot be had, or a limit.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShareConfinementError {
    #[error(
        "cannot use sandbox=namespace: cannot {step}: {source}; use sandbox=chroot or sandbox=none"
    )]
    Namespace {
        step: &'static str,
        source: io::Error,
    },
    #[error("cannot use sandbox=chroot: {0} (requires CAP_SYS_CHROOT); use sandbox=none")]
    Chroot(io::Error),
    #[error("cannot set the limit on open files to {0}: {1}")]
    Limit(u64, io::Error),
    #[error("cannot open /proc/self/fd: {0} (is /proc mounted?)")]
    Links(io::Error),
    #[error("cannot drop privileges: {0}")]
    Privileges(io::Error),
}

/// A step of shutting oneself in that failed.
type Failure = (&'static str, io::Error);

fn tell(step: &'static str) -> impl Fn(Errno) -> Failure {
    move |errno| (step, errno.into())
}

/// Has somebody outside map the ids of the user namespace that this process is in.
pub(crate) type MapIds<'a> = dyn Fn() -> io::Result<()> + 'a;

/// Shuts this process in and gives up capabilities; gives the source, as it is seen from within. To be
/// called while there is one thread.
///
/// # Errors
///
/// See [`ShareConfinementError`].
pub(crate) fn shut_in(
    source: OwnedFd,
    config: &ShareConfig,
    map_ids: &MapIds<'_>,
) -> Result<OwnedFd, ShareConfinementError> {
    limit_descriptors(config.descriptor_limit)?;
    let source = enter(source, config, map_ids)?;
    // What leads to its own descriptors alone has taken its place by now, where that could be had.
    proc_fd::prepare().map_err(|errno| ShareConfinementError::Links(errno.into()))?;
    // Who was an ordinary user may be root in its own namespace now.
    give_up_capabilities(config, is_root())?;
    Ok(source)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn limit_descriptors(wanted: Option<u64>) -> Result<(), ShareConfinementError> {
    let wanted = match wanted {
        None => {
            raise_descriptor_limit();
            return Ok(());
        }
        Some(0) => return Ok(()),
        Some(wanted) => wanted,
    };
    let now = getrlimit(Resource::Nofile);
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    let limit = Rlimit {
        current: Some(wanted),
        maximum,
    };
    setrlimit(Resource::Nofile, limit)
        .map_err(|errno| ShareConfinementError::Limit(wanted, errno.into()))
}

fn enter(
    source: OwnedFd,
    config: &ShareConfig,
    map_ids: &MapIds<'_>,
) -> Result<OwnedFd, ShareConfinementError> {
    let into_namespace = |source: &OwnedFd| {
        if !is_root() {
            into_user_namespace(config, map_ids)?;
        }
        into_mount_namespace(source)
    };
    match config.sandbox {
        Sandbox::None => return Ok(source),
        Sandbox::Chroot => return into_root(&source).map_err(ShareConfinementError::Chroot),
        Sandbox::Namespace | Sandbox::Best => {}
    }
    let (step, error) = match into_namespace(&source) {
        Ok(root) => return Ok(root),
        Err(failure) => failure,
    };
    if config.sandbox == Sandbox::Namespace || config.maps_namespace() {
        let source = error;
        return Err(ShareConfinementError::Namespace { step, source });
    }
    match into_root(&source) {
        Ok(root) => {
            tracing::info!("sandbox: chroot (no mount namespace: cannot {step}: {error})");
            Ok(root)
        }
        Err(_) => {
            tracing::warn!(
                "sandbox: none, the worker sees all files of the host (cannot {step}: \
                            {error})"
            );
            let _ = std::env::set_current_dir("/");
            Ok(source)
        }
    }
}

/// In it, this process has every capability over itself. Unless more are asked for, one user and one
/// group are known.
fn into_user_namespace(config: &ShareConfig, map_ids: &MapIds<'_>) -> Result<(), Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    cred::unshare_user_namespace().map_err(tell("create a user namespace"))?;
    let inside = own_alone(&config.namespace_uids, uid).zip(own_alone(&config.namespace_gids, gid));
    let Some((inside_uid, inside_gid)) = inside else {
        map_ids().map_err(|error| ("map its ids", error))?;
        return become_root_inside();
    };
    // Who may not set groups may map its own (user_namespaces(7)).
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{inside_uid} {uid} 1")),
        ("gid_map", format!("{inside_gid} {gid} 1")),
    ] {
        std::fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| ("map its ids", error))?;
    }
    Ok(())
}

/// What this one id is to be inside, if no other is wanted there.
fn own_alone(map: &IdMap, own: u32) -> Option<u32> {
    match map {
        IdMap::Ranges(ranges) => match ranges[..] {
            [range] if range.host == own && range.count == 1 => Some(range.client),
            _ => None,
        },
        _ => Some(own),
    }
}

/// As whoever is root there, if there is one: who serves acts for others.
fn become_root_inside() -> Result<(), Failure> {
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    let failed = tell("become root of its user namespace");
    set_thread_res_gid(group, group, group).map_err(&failed)?;
    set_thread_res_uid(user, user, user).map_err(&failed)
}

/// Moves this process to a mount namespace whose root is `source`, and gives that as it is opened from
/// within.
pub(super) fn into_mount_namespace(source: &OwnedFd) -> Result<OwnedFd, Failure> {
    fchdir(source).map_err(tell("enter the source"))?;
    // The working directory is the same one afterwards, in the copy of its mount.
    cred::unshare_mount_namespace().map_err(tell("create a mount namespace"))?;
    let follow = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", follow).map_err(tell("set the propagation of its mounts"))?;
    let links = Detached::take().map_err(tell("clone the mount of /proc/self/fd"))?;
    // AT_RECURSIVE, which rustix has not among these.
    let recursive = OpenTreeFlags::from_bits_retain(AT_RECURSIVE);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | recursive;
    let tree = open_tree(CWD, ".", flags).map_err(tell("clone the mounts of the source"))?;
    let whole = AT_EMPTY_PATH | AT_RECURSIVE;
    let (set, clear) = (MountAttrFlags::MOUNT_ATTR_NODEV, MountAttrFlags::empty());
    let same = MountPropagationFlags::empty();
    // The worker makes device nodes for guests. Their kernels open them, it does not.
    if let Err(errno) = mount_setattr(&tree, c"", whole, set, clear, same) {
        tracing::warn!("the worker can open device nodes: cannot set nodev on its mounts: {errno}");
    }
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tree, "", CWD, ".", empty).map_err(tell("mount the source on itself"))?;
    fchdir(&tree).map_err(tell("enter the cloned mount"))?;
    // With both the same, the old root ends up on top of the new one (pivot_root(2), NOTES).
    pivot_root(".", ".").map_err(tell("pivot_root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(tell("unmount the old root"))?;
    let root = root().map_err(tell("open the new root"))?;
    links.work_in().map_err(tell("enter /proc/self/fd"))?;
    Ok(root)
}

fn into_root(source: &OwnedFd) -> io::Result<OwnedFd> {
    let links = Detached::take();
    if let Err(errno) = &links {
        tracing::warn!(
            "sandbox=chroot does not confine the worker: it can leave by `..` from /proc/self/fd, which \
             cannot be mounted separately ({errno}; requires CAP_SYS_ADMIN)"
        );
        // While it is there to be seen.
        proc_fd::prepare()?;
    }
    fchdir(source)?;
    chroot(".")?;
    let root = root()?;
    if let Ok(links) = links {
        links.work_in()?;
    }
    Ok(root)
}

fn root() -> Result<OwnedFd, Errno> {
    rustix::process::chdir("/")?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, "/", flags, Mode::empty())
}

/// What root's worker keeps.
fn needed(config: &ShareConfig) -> CapabilitySet {
    let mut needed = super::needed(config.serving.file_handles) - CapabilitySet::SYS_ADMIN;
    if config.serving.read_only {
        needed -= FOR_CHANGES;
    }
    needed
        .union(config.capabilities.kept)
        .difference(config.capabilities.dropped)
}

fn give_up_capabilities(config: &ShareConfig, is_root: bool) -> Result<(), ShareConfinementError> {
    let kept = if is_root {
        // The bit that says so can be set with a capability that goes, and the file system relies on
        // it; where it cannot be set, that says what it goes without.
        let _ = cred::keep_capabilities_on_setuid();
        // Groups open files to whoever started the server, and to no guest.
        let _ = cred::set_groups(&[]);
        // As for mounts: a limit will do, or else a capability.
        let nice = config.pairing && sched::allow_leaving_idle().is_err();
        let nice = nice.then_some(CapabilitySet::SYS_NICE);
        needed(config) | nice.unwrap_or(CapabilitySet::empty())
    } else {
        CapabilitySet::empty()
    };
    let failed = |errno: Errno| ShareConfinementError::Privileges(errno.into());
    match cred::drop_from_all_sets(CapabilitySet::all().difference(kept)) {
        // The bounding set stays, which counts for programs that are executed: none are.
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(failed(errno)),
    }
    match cred::thread_permitted() {
        Ok(left) if (left - kept).is_empty() => {}
        _ => return Err(failed(Errno::PERM)),
    }
    cred::no_new_privs().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn config(list: &str) -> ShareConfig {
        let settings = options::parse(list).unwrap();
        ShareConfig::resolve("/src".into(), "/run/s".into(), &settings).unwrap()
    }

    #[test]
    fn capabilities_follow_the_options() {
        let usual = needed(&config(""));
        assert!(usual.contains(CapabilitySet::MKNOD | CapabilitySet::DAC_OVERRIDE));
        assert!(!usual.contains(CapabilitySet::DAC_READ_SEARCH));
        for handles in ["inode_file_handles=prefer", "migration_mode=file-handles"] {
            assert!(needed(&config(handles)).contains(CapabilitySet::DAC_READ_SEARCH));
        }
        assert!(!usual.contains(CapabilitySet::SYS_ADMIN));
        assert!(!usual.contains(CapabilitySet::SETPCAP));
        let reading = needed(&config("ro"));
        assert!(!reading.intersects(FOR_CHANGES));
        assert!(reading.contains(CapabilitySet::DAC_OVERRIDE));
        let changed = needed(&config("modcaps=+sys_admin:-mknod"));
        assert!(changed.contains(CapabilitySet::SYS_ADMIN));
        assert!(!changed.contains(CapabilitySet::MKNOD));
        assert!(changed.contains(CapabilitySet::CHOWN));
    }
}

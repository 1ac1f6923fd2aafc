//! The confinement of a share's worker, which parses what a guest writes.
//!
//! It happens before there is a second thread, so it holds for the whole process, in this order: file
//! tree, capabilities, system calls. Nothing that the worker does later needs more: the connection and
//! policies are opened by the supervisor.
//!
//! With `namespace_uidmap`, an ordinary user's worker is root in its user namespace, and drops what a
//! worker of root drops.
//!
//! | | root | an ordinary user |
//! |---|---|---|
//! | file tree | a mount namespace with the source as root; else chroot | the same, in a user namespace with one user; else nothing |
//! | capabilities | those that serving needs, fewer for `ro` | none |
//!
//! `/proc/self/fd`, by which descriptors are reopened, is cloned as a detached mount of which it is the
//! root, so that `..` does not lead out.
//!
//! The mounts of that namespace follow those of the host: later mounts on the source are seen, with their
//! own flags. The initial ones are nodev; with chroot alone, device nodes can be opened.

use super::{Failure, clone_tree, drop_privileges, enter_as_root, failed_to, is_root};
use super::{raise_descriptor_limit, set_attributes};
use crate::channel::{Notice, Order, ToParent};
use crate::config::{Sandbox, ShareConfig};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, mount_change, move_mount,
};
use rustix::process::{Resource, Rlimit, chroot, fchdir, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, set_thread_res_gid, set_thread_res_uid};
use std::io;
use std::os::fd::OwnedFd;
use thrufs_hostdir::IdMap;
use thrufs_sys::cred;
use thrufs_sys::proc_fd::{self, Links};

/// Needed only for changes.
const FOR_CHANGES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::LINUX_IMMUTABLE);

/// A requested sandbox or limit that is not available.
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

/// Confines this process; returns the source as seen from within.
pub(super) fn confine_worker(
    source: OwnedFd,
    config: &ShareConfig,
    supervisor: &ToParent,
) -> Result<OwnedFd, ShareConfinementError> {
    match config.descriptor_limit {
        None => raise_descriptor_limit(),
        Some(0) => {}
        Some(wanted) => limit_descriptors(wanted)?,
    }
    let source = enter(source, config, supervisor)?;
    // Works in its detached clone by now, where available.
    proc_fd::enter().map_err(|errno| ShareConfinementError::Links(errno.into()))?;
    if is_root() {
        // On failure, the file system logs what it cannot do.
        let _ = cred::keep_capabilities_on_setuid();
    }
    // An ordinary user may be root in its own namespace now.
    drop_privileges(needed(config), config.server.pairing)
        .map_err(ShareConfinementError::Privileges)?;
    Ok(source)
}

fn limit_descriptors(wanted: u64) -> Result<(), ShareConfinementError> {
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
    supervisor: &ToParent,
) -> Result<OwnedFd, ShareConfinementError> {
    let into_namespace = |source: &OwnedFd| {
        if !is_root() {
            into_user_namespace(config, supervisor)?;
        }
        into_mount_namespace(source)
    };
    match config.sandbox {
        Sandbox::None => return Ok(source),
        Sandbox::Chroot => return into_chroot(&source).map_err(ShareConfinementError::Chroot),
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
    match into_chroot(&source) {
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

/// Within it, this process has all capabilities. Unless more are requested, one user and one group are
/// mapped.
fn into_user_namespace(config: &ShareConfig, supervisor: &ToParent) -> Result<(), Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    cred::unshare_user_namespace().map_err(failed_to("create a user namespace"))?;
    let inside = own_alone(&config.namespace_uids, uid).zip(own_alone(&config.namespace_gids, gid));
    let Some((inside_uid, inside_gid)) = inside else {
        map_ids(supervisor).map_err(failed_to("map its ids"))?;
        return become_root_inside();
    };
    cred::map_own_ids((inside_uid, uid), (inside_gid, gid)).map_err(failed_to("map its ids"))
}

/// Requests it from the supervisor.
fn map_ids(supervisor: &ToParent) -> io::Result<()> {
    supervisor.send(&Notice::MapIds)?;
    match supervisor.receive()? {
        Some(Order::IdsMapped(mapped)) => mapped.map_err(io::Error::other),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The id inside, if only the own id is mapped.
fn own_alone(map: &IdMap, own: u32) -> Option<u32> {
    match map {
        IdMap::Ranges(ranges) => match ranges[..] {
            [range] if range.host == own && range.count == 1 => Some(range.client),
            _ => None,
        },
        _ => Some(own),
    }
}

/// Serving changes ids, which root of the namespace may.
fn become_root_inside() -> Result<(), Failure> {
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    let failed = failed_to("become root of its user namespace");
    set_thread_res_gid(group, group, group).map_err(&failed)?;
    set_thread_res_uid(user, user, user).map_err(&failed)
}

/// Enters a mount namespace whose root is `source`, and returns that root.
fn into_mount_namespace(source: &OwnedFd) -> Result<OwnedFd, Failure> {
    fchdir(source).map_err(failed_to("enter the source"))?;
    // The working directory moves to the clone of its mount.
    cred::unshare_mount_namespace().map_err(failed_to("create a mount namespace"))?;
    let follow = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", follow).map_err(failed_to("set the propagation of its mounts"))?;
    let links = Links::detached().map_err(failed_to("clone the mount of /proc/self/fd"))?;
    let tree = clone_tree(CWD).map_err(failed_to("clone the mounts of the source"))?;
    let (nodev, same) = (
        MountAttrFlags::MOUNT_ATTR_NODEV,
        MountPropagationFlags::empty(),
    );
    // Device nodes that the worker creates are opened by the guests' kernels only.
    if let Err(errno) = set_attributes(&tree, nodev, same) {
        tracing::warn!("the worker can open device nodes: cannot set nodev on its mounts: {errno}");
    }
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tree, "", CWD, ".", empty).map_err(failed_to("mount the source on itself"))?;
    fchdir(&tree).map_err(failed_to("enter the cloned mount"))?;
    enter_as_root()?;
    let root = root().map_err(failed_to("open the new root"))?;
    links.work_in().map_err(failed_to("enter /proc/self/fd"))?;
    Ok(root)
}

fn into_chroot(source: &OwnedFd) -> io::Result<OwnedFd> {
    let links = Links::detached().or_else(|errno| {
        tracing::warn!(
            "sandbox=chroot does not confine the worker: it can leave by `..` from /proc/self/fd, which \
             cannot be mounted separately ({errno}; requires CAP_SYS_ADMIN)"
        );
        Links::visible()
    })?;
    fchdir(source)?;
    chroot(".")?;
    let root = root()?;
    links.work_in()?;
    Ok(root)
}

fn root() -> Result<OwnedFd, Errno> {
    rustix::process::chdir("/")?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, "/", flags, Mode::empty())
}

fn needed(config: &ShareConfig) -> CapabilitySet {
    let mut needed = super::needed(config.serving.file_handles) - CapabilitySet::SYS_ADMIN;
    if config.serving.read_only {
        needed -= FOR_CHANGES;
    }
    needed
        .union(config.capabilities.kept)
        .difference(config.capabilities.dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn config(list: &str) -> ShareConfig {
        let settings = options::parse(list).unwrap();
        options::resolve_share(&settings).unwrap()
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

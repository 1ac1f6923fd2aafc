//! What the first process inside does before anything else.

use super::tree;
use crate::outcome::Outcome;
use crate::plan::Plan;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use std::ffi::CStr;
use std::path::PathBuf;
use thrufs_sys::cred;

/// Enters a mount namespace of its own, where process numbers mean what they mean in its process namespace.
pub(crate) fn enter(plan: &Plan) -> Outcome<()> {
    // Signals that the front waits for were blocked in it.
    let _ = thrufs_sys::signal::unblock(&super::front::ENDING);
    // With its parent gone, no process waits for this one.
    let _ = cred::die_with_parent();
    if !super::is_root() {
        return Ok(());
    }
    let made = || -> std::io::Result<()> {
        cred::unshare_mount_namespace()?;
        // What is unmounted outside is unmounted here, and nothing the other way.
        let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", downstream)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        Ok(mount("proc", "/proc", "proc", flags, None::<&CStr>)?)
    };
    made().map_err(refused)?;
    drop_unused_mounts(plan);
    Ok(())
}

pub(super) fn refused(error: impl Into<std::io::Error>) -> String {
    format!(
        "cannot make namespaces: {}; in a container, let it have CAP_SYS_ADMIN, or run outside",
        error.into()
    )
}

/// Takes away, here, the FUSE mounts that the run does not use. Where mounts are private (containers, systems
/// without systemd), one that is unmounted outside would go on here, and its server for as long as the run.
fn drop_unused_mounts(plan: &Plan) {
    let mut used = vec![plan.directory.clone(), std::env::temp_dir()];
    // The report is not there yet.
    used.extend(plan.out.parent().map(PathBuf::from));
    used.extend(plan.mounts_of_others().map(PathBuf::from));
    used.extend(std::env::current_dir());
    used.extend(std::env::current_exe());
    for (point, kind) in tree::mounts() {
        let is_fuse = kind == "fuse" || kind.starts_with("fuse.");
        if is_fuse && !used.iter().any(|path| path.starts_with(&point)) {
            let _ = unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}

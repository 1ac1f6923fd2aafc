//! The namespaces process, between clean-up and run: makes the namespaces, and starts the first process
//! inside.

use super::cleanup::NO_PRIVILEGES;
use super::{Privileges, tree};
use crate::counting::outside::Offer;
use crate::plan::Plan;
use crate::{Outcome, programs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use std::ffi::CStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use thrufs_sys::cred;

/// `namespaces PRIVILEGES PLAN`, with the parent pipe for standard input.
pub(crate) fn run(arguments: &[String]) -> Outcome<ExitCode> {
    let [word, plan] = arguments else {
        return Err("namespaces PRIVILEGES PLAN".to_owned());
    };
    // Signals that the front waits for were blocked in it.
    let _ = thrufs_sys::signal::unblock(&[1, 2, 15]);
    // With its parent gone, no process waits for this one.
    let _ = cred::die_with_parent();
    let privileges = Privileges::named(word)?;
    let mut inside = programs::again("inside");
    inside.arg(word).arg(plan);
    if privileges == Privileges::Plain {
        return Err(format!("cannot start again: {}", inside.exec()));
    }
    // Before there are namespaces, for a thread that stays outside; a user namespace is for processes of one
    // thread, and does not count.
    if privileges == Privileges::Root
        && let Ok(offer) = Offer::make()
        && offer.give(&mut inside).is_ok()
    {
        return go_in(privileges, plan, inside, Some(offer));
    }
    go_in(privileges, plan, inside, None)
}

/// Starts the run in its namespaces, and waits for it.
fn go_in(
    privileges: Privileges,
    plan: &str,
    mut inside: Command,
    offer: Option<Offer>,
) -> Outcome<ExitCode> {
    if let Err(error) = namespaces(privileges) {
        return refused(privileges, &error);
    }
    drop_unused_mounts(&Plan::parse(plan)?);
    let status = inside.spawn().and_then(|mut child| {
        // From now on the run has it alone.
        drop(offer);
        child.wait()
    });
    let status = status.map_err(|error| format!("cannot start again: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// An ordinary user has another way; root has none.
///
/// # Errors
///
/// What root can do about it.
pub(crate) fn refused(privileges: Privileges, error: &std::io::Error) -> Outcome<ExitCode> {
    match privileges {
        Privileges::Root => Err(format!(
            "cannot make a mount namespace: {error}; in a container, let it have CAP_SYS_ADMIN, or run \
             outside"
        )),
        _ => Ok(ExitCode::from(NO_PRIVILEGES)),
    }
}

fn namespaces(privileges: Privileges) -> std::io::Result<()> {
    if privileges == Privileges::UserNamespace {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        cred::unshare_user_namespace()?;
        // user_namespaces(7): without privileges outside, setgroups(2) has to be denied first.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
        fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    }
    cred::unshare_mount_namespace()?;
    // What is unmounted outside is unmounted here, and nothing the other way.
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )?;
    cred::unshare_process_namespace()?;
    Ok(())
}

/// Takes away, here, the FUSE mounts that the run does not use. Where mounts are private (containers, systems
/// without systemd), one that is unmounted outside would go on here, and its server for as long as the run.
/// In a user namespace it cannot be done, and is not.
fn drop_unused_mounts(plan: &Plan) {
    let mut used = vec![plan.directory.clone()];
    // The report is not there yet.
    used.extend(plan.out.parent().map(PathBuf::from));
    used.extend(plan.mounts_of_others().map(PathBuf::from));
    used.extend(std::env::current_dir());
    used.extend(std::env::current_exe());
    // Programs that measure or are measured, and what they need for a while.
    used.extend(
        std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths),
    );
    used.push(std::env::temp_dir());
    let used: Vec<PathBuf> = used
        .into_iter()
        .map(|path| fs::canonicalize(&path).unwrap_or(path))
        .collect();
    for point in tree::fuse_mount_points() {
        if !used.iter().any(|path| path.starts_with(&point)) {
            let _ = unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}

/// What the first process inside does before anything else: process numbers are to mean what they mean
/// here.
///
/// # Errors
///
/// As of mount(2): some containers forbid it.
pub(crate) fn settle(privileges: Privileges) -> std::io::Result<()> {
    let _ = cred::die_with_parent();
    if privileges == Privileges::Plain {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None::<&CStr>)?;
    Ok(())
}

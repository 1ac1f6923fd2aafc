//! Process 1 of the sandbox (see [`Role::SandboxInit`](crate::process::Role::SandboxInit)): starts the command,
//! reaps orphans, and ends with the command; the kernel kills what is left in the PID namespace.
//!
//! The command can see this process and runs as the same user. So it is not dumpable (its descriptors
//! cannot be reached), and holds nothing but the channel on which it reports.

use super::error::{Failure, failed_to};
use super::plan::SandboxPlan;
use super::restrictions;
use super::runner::SIGNALS;
use super::sandbox::perform;
use super::user::RunUser;
use crate::channel::{Notice, ToParent};
use rustix::mount::{MountFlags, mount};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, WaitOptions, pidfd_open, set_dumpable_behavior, wait,
};
use rustix::thread::{CapabilitySet, set_thread_res_gid, set_thread_res_uid};
use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};
use thrufs_sys::cred;

/// Exit statuses of a command that was not executed, as of env(1).
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    perform(arguments, run)
}

fn run(runner: &ToParent, command: &[OsString]) -> Result<(), Failure> {
    // Blocked by the runner. Their default actions do not apply to process 1 (pid_namespaces(7)).
    thrufs_sys::signal::unblock(&SIGNALS).map_err(failed_to("unblock signals"))?;
    let follow = cred::die_with_parent;
    follow().map_err(failed_to("follow the runner"))?;
    let gone = io::Error::from(io::ErrorKind::BrokenPipe);
    let plan = super::receive_plan(runner).ok_or(("receive from the runner".to_owned(), gone))?;
    confine(&plan.user)?;
    // A change of user has cleared it.
    follow().map_err(failed_to("follow the runner"))?;
    let child = match start(&plan, command) {
        Ok(child) => child,
        Err(error) => {
            let status = match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
            let program = command[0].to_string_lossy();
            let why = format!("cannot execute {program}: {error}");
            let _ = runner.send(&Notice::NotExecuted(status, why));
            return Ok(());
        }
    };
    let opened = pidfd_open(child, PidfdFlags::empty());
    let sent = opened
        .map_err(io::Error::from)
        .and_then(|it| runner.send(&Notice::Started(vec![it])));
    // Without the runner, all ends.
    sent.map_err(failed_to("report to the runner"))?;
    let status = reap(runner, child)?;
    let _ = runner.send(&Notice::Ended(status));
    Ok(())
}

/// Gives up, for this process and the command, all that leads out.
fn confine(user: &RunUser) -> Result<(), Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, c"").map_err(failed_to("mount /proc"))?;
    if let Some(change) = &user.change {
        let (uid, gid) = (
            rustix::process::Uid::from_raw(user.uid),
            rustix::process::Gid::from_raw(user.gid),
        );
        cred::set_groups(&change.groups).map_err(failed_to("set the groups"))?;
        set_thread_res_gid(gid, gid, gid).map_err(failed_to("set the group"))?;
        set_thread_res_uid(uid, uid, uid).map_err(failed_to("set the user"))?;
        // Otherwise /proc/self belongs to root, and the ids cannot be mapped.
        set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(failed_to("map the ids"))?;
    }
    cred::unshare_user_namespace().map_err(failed_to("create the second user namespace"))?;
    cred::map_own_ids((user.shown_uid, user.uid), (user.shown_gid, user.gid))
        .map_err(failed_to("map the ids of the second user namespace"))?;
    cred::unshare_mount_namespace().map_err(failed_to("create the second mount namespace"))?;
    forbid_cgroup_namespaces().map_err(failed_to("forbid cgroup namespaces"))?;
    cred::unshare_ipc_namespace().map_err(failed_to("create an IPC namespace"))?;
    // The filter keeps keys away; `/proc/keys` would list those of the session. Without support, there are none.
    let _ = thrufs_sys::process::new_session_keyring();
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed_to("hide process 1"))?;
    cred::drop_from_all_sets(CapabilitySet::all()).map_err(failed_to("drop capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed_to("give up new privileges"))?;
    restrictions::scope().map_err(failed_to("restrict signals and sockets"))?;
    restrictions::filter_calls().map_err(failed_to("filter system calls"))
}

/// With one of its own the command could mount its cgroup, which the runner shares, and write to
/// `cgroup.kill`.
fn forbid_cgroup_namespaces() -> io::Result<()> {
    match std::fs::write("/proc/sys/user/max_cgroup_namespaces", "0") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

fn start(plan: &SandboxPlan, command: &[OsString]) -> io::Result<Pid> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    if let Some(change) = &plan.user.change {
        if let Some(home) = &plan.user.home {
            child.env("HOME", home);
        }
        if let Some(name) = &change.name {
            child.env("USER", name).env("LOGNAME", name);
        }
    }
    Ok(Pid::from_child(&child.spawn()?))
}

/// Waits for all children until the command has ended; returns its status as of [`Notice::Ended`].
fn reap(runner: &ToParent, command: Pid) -> Result<i32, Failure> {
    loop {
        let (child, status) = match wait(WaitOptions::UNTRACED) {
            Ok(Some(changed)) => changed,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(failed_to("wait for the command")(errno)),
        };
        if child != command {
            continue;
        }
        if status.stopped() {
            let _ = runner.send(&Notice::Stopped);
            continue;
        }
        let signal = || -status.terminating_signal().unwrap_or(libc::SIGKILL);
        return Ok(status.exit_status().unwrap_or_else(signal));
    }
}

//! Credentials of one thread.
//!
//! The kernel keeps credentials per thread; the C library makes them the process's by signalling every
//! thread. A server that acts for many callers at once needs them per thread, so these are raw system
//! calls. A new thread inherits its creator's credentials.
//!
//! # Safety
//! Credentials decide what calls are allowed, not what memory means. The one pointer passed is a
//! slice of group ids with its length. `unshare` is called with flags that touch the working
//! directory, root, umask, mounts and users, never the descriptor table (which I/O safety rests on;
//! [`apart`](crate::apart) does).

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::fs::Mode;
use rustix::io::{Errno, Result};
use rustix::process::Signal;
use rustix::thread::{CapabilitiesSecureBits, UnshareFlags};

/// A set of capabilities, 64 bits with a constant for each (`Capabilities::FSETID`, ...).
pub use rustix::thread::CapabilitySet as Capabilities;
pub use rustix::thread::CapabilitySets;

/// −1, which is no id: the kernel's calls take it for "no change".
const NO_ID: u32 = u32::MAX;

/// Sets the file-system user id of the calling thread, with which its file operations act. One system
/// call; a refusal (no CAP_SETUID) is **silent**, as in `setfsuid(2)`: read it by [`current_fsuid`].
/// Leaving or reaching id zero drops or grants capabilities, unless [`keep_capabilities_on_setuid`] was
/// called.
///
/// # Errors
/// EINVAL for `u32::MAX`.
pub fn set_fsuid(uid: u32) -> Result<()> {
    if uid == NO_ID {
        return Err(Errno::INVAL);
    }
    swap_fsuid(uid);
    Ok(())
}

/// Sets the file-system group id of the calling thread, as [`set_fsuid`] does the user id.
///
/// # Errors
/// EINVAL for `u32::MAX`.
pub fn set_fsgid(gid: u32) -> Result<()> {
    if gid == NO_ID {
        return Err(Errno::INVAL);
    }
    swap_fsgid(gid);
    Ok(())
}

/// The file-system user id of the calling thread.
#[must_use]
pub fn current_fsuid() -> u32 {
    swap_fsuid(NO_ID)
}

/// The file-system group id of the calling thread.
#[must_use]
pub fn current_fsgid() -> u32 {
    swap_fsgid(NO_ID)
}

/// Returns the id from before. There is no error: −1 as an id changes nothing.
fn swap_fsuid(uid: u32) -> u32 {
    // SAFETY: takes and returns numbers only.
    let before = unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    before as u32
}

fn swap_fsgid(gid: u32) -> u32 {
    // SAFETY: takes and returns numbers only.
    let before = unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    before as u32
}

/// Sets the supplementary groups of the calling thread.
///
/// # Errors
/// EPERM without CAP_SETGID, EINVAL above 65,536 groups or for an id without mapping.
pub fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: pointer and count of one slice, which is only read.
    let answer = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    check(answer).map(drop)
}

/// Makes the calling thread's capabilities independent of its user ids (SECBIT_NO_SETUID_FIXUP, not
/// locked): otherwise setfsuid drops CAP_DAC_OVERRIDE and the other file-system capabilities.
///
/// # Errors
/// EPERM without CAP_SETPCAP.
pub fn keep_capabilities_on_setuid() -> Result<()> {
    let bits = rustix::thread::capabilities_secure_bits()?;
    if bits.contains(CapabilitiesSecureBits::NO_SETUID_FIXUP) {
        return Ok(());
    }
    let bits = bits | CapabilitiesSecureBits::NO_SETUID_FIXUP;
    rustix::thread::set_capabilities_secure_bits(bits)
}

/// The effective capabilities of the calling thread.
pub fn thread_effective() -> Result<Capabilities> {
    Ok(thread_sets()?.effective)
}

/// All sets of capabilities of the calling thread, with which [`set_effective`] leaves the others unchanged.
pub fn thread_sets() -> Result<CapabilitySets> {
    rustix::thread::capabilities(None)
}

/// Makes exactly `wanted` effective for the calling thread, which has these `sets`; its permitted and
/// inheritable sets are unchanged, so a dropped capability can be made effective again.
///
/// # Errors
/// EPERM when `wanted` is not within the permitted set.
pub fn set_effective(sets: CapabilitySets, wanted: Capabilities) -> Result<()> {
    let effective = wanted;
    rustix::thread::set_capabilities(None, CapabilitySets { effective, ..sets })
}

/// Drops `unwanted` from every set of the calling thread (bounding, ambient, effective, permitted,
/// inheritable), for good: not even a set-user-id program regains them. Other threads keep theirs, so call
/// it before starting any.
///
/// Drops all that it can; the first error is returned then.
///
/// # Errors
/// EPERM when the bounding set cannot be changed (no CAP_SETPCAP).
pub fn drop_from_all_sets(unwanted: Capabilities) -> Result<()> {
    let mut outcome = Ok(());
    // The bounding set first: it needs CAP_SETPCAP, which may be among the unwanted.
    for number in 0..u64::BITS {
        let one = Capabilities::from_bits_retain(1 << number);
        // EINVAL: above the last capability that this kernel knows.
        if unwanted.contains(one)
            && let Ok(true) = rustix::thread::capability_is_in_bounding_set(one)
        {
            outcome = outcome.and(rustix::thread::remove_capability_from_bounding_set(one));
        }
    }
    let lowered = rustix::thread::capabilities(None).and_then(|mut sets| {
        sets.effective.remove(unwanted);
        sets.permitted.remove(unwanted);
        // The kernel lowers the ambient set with these two.
        sets.inheritable.remove(unwanted);
        rustix::thread::set_capabilities(None, sets)
    });
    outcome.and(lowered)
}

/// Keeps these capabilities, which the calling thread must have, in programs that it executes as another user
/// than root (the ambient set, capabilities(7)).
///
/// # Errors
/// EPERM for what it does not have.
pub fn keep_on_exec(kept: Capabilities) -> Result<()> {
    let mut sets = thread_sets()?;
    sets.inheritable |= kept;
    rustix::thread::set_capabilities(None, sets)?;
    kept.iter()
        .try_for_each(|one| rustix::thread::configure_capability_in_ambient_set(one, true))
}

/// Unshares the calling thread's umask, working directory and root (`CLONE_FS`) from other threads.
///
/// # Errors
/// ENOMEM; EPERM under a filter.
pub fn unshare_fs_attributes() -> Result<()> {
    // SAFETY: FS alone; the descriptor table stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}

/// Moves the calling thread into a copy of its mount namespace (and unshares as
/// [`unshare_fs_attributes`]). Mounts may still propagate: make them private or slaves next, with
/// `rustix::mount::mount_change`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOSPC at the limit of namespaces.
pub fn unshare_mount_namespace() -> Result<()> {
    // SAFETY: NEWNS implies FS; the descriptor table stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Moves the process, which must be single-threaded, into a new user namespace. There it has every
/// capability, until it drops them, and no ids before `/proc/self/uid_map` and `gid_map` are written
/// (user_namespaces(7)).
///
/// # Errors
/// EINVAL with other threads, EPERM or ENOSPC where users may not make any.
pub fn unshare_user_namespace() -> Result<()> {
    // SAFETY: NEWUSER implies FS; the descriptor table stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
}

/// Maps one user and one group of this process's user namespace: each the id inside, and outside, where it is
/// the process's own. The namespace has no setgroups(2) then (user_namespaces(7)).
///
/// # Errors
/// EPERM for other ids, or when they are mapped; those of `open(2)`, without `/proc`.
pub fn map_own_ids(user: (u32, u32), group: (u32, u32)) -> std::io::Result<()> {
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{} {} 1", user.0, user.1)),
        ("gid_map", format!("{} {} 1", group.0, group.1)),
    ] {
        std::fs::write(format!("/proc/self/{file}"), text)?;
    }
    Ok(())
}

/// Puts later children of the calling thread into a new pid namespace: the first of them is its process 1,
/// and all end with it (pid_namespaces(7)). The thread can start no threads afterwards.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOSPC at the limit of namespaces, EINVAL when it was done before.
pub fn unshare_process_namespace() -> Result<()> {
    // SAFETY: NEWPID concerns children alone; the descriptor table stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }
}

/// Moves the calling thread into a new IPC namespace: it has System V objects and POSIX message queues of
/// its own.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOSPC at the limit of namespaces.
pub fn unshare_ipc_namespace() -> Result<()> {
    // SAFETY: NEWIPC leaves the descriptor table shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWIPC) }
}

/// Moves the calling thread into a new network namespace, which has a loopback interface that is
/// [down](crate::socket::set_loopback_up).
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOSPC at the limit of namespaces.
pub fn unshare_network_namespace() -> Result<()> {
    // SAFETY: NEWNET leaves the descriptor table shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Sets the umask (0777) and returns the one from before. It is the thread's own only after
/// [`unshare_fs_attributes`].
pub fn set_umask(mask: u32) -> u32 {
    rustix::process::umask(Mode::from_raw_mode(mask & 0o777)).as_raw_mode()
}

/// Kills this process when the *thread* that started it ends. Set-user-id programs and changes of credentials
/// clear that: call it after those. A parent that ended before the call is not noticed: check `getppid`
/// afterwards.
pub fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{in_a_thread, root, thread_status};

    const CALLER: u32 = 54321;

    #[test]
    fn a_refusal_is_visible_in_the_current_id() {
        let Some(()) = root() else { return };
        in_a_thread(|| {
            set_fsuid(CALLER).unwrap();
            assert_eq!(current_fsuid(), CALLER);
            set_fsuid(0).unwrap();
            let unwanted = Capabilities::SETUID | Capabilities::SETGID;
            set_effective(
                thread_sets().unwrap(),
                thread_effective().unwrap() - unwanted,
            )
            .unwrap();
            assert_eq!(set_fsuid(CALLER), Ok(()));
            assert_eq!(set_fsgid(CALLER), Ok(()));
            assert_eq!((current_fsuid(), current_fsgid()), (0, 0));
        });
    }

    #[test]
    fn minus_one_as_an_id_is_refused() {
        let before = (current_fsuid(), current_fsgid());
        assert_eq!(set_fsuid(u32::MAX), Err(Errno::INVAL));
        assert_eq!(set_fsgid(u32::MAX), Err(Errno::INVAL));
        assert_eq!((current_fsuid(), current_fsgid()), before);
    }

    #[test]
    fn groups_belong_to_the_thread() {
        let Some(()) = root() else { return };
        let before = thread_status("Groups");
        in_a_thread(|| {
            set_groups(&[7, 70_000]).unwrap();
            assert_eq!(thread_status("Groups"), "7 70000");
            set_groups(&[]).unwrap();
            assert_eq!(thread_status("Groups"), "");
        });
        assert_eq!(thread_status("Groups"), before);
    }

    #[test]
    fn process_dies_with_its_parent() {
        in_a_thread(|| {
            die_with_parent().unwrap();
            let set = rustix::process::parent_process_death_signal();
            assert_eq!(set, Ok(Some(Signal::KILL)));
            rustix::process::set_parent_process_death_signal(None).unwrap();
        });
    }
}

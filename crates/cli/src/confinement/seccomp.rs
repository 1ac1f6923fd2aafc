//! The seccomp filters of the worker's threads.
//!
//! An allow list: every other call fails with EPERM, so that a forgotten one is an error of one request
//! and not the end of the mount. A mount's worker keeps CAP_SYS_ADMIN; without mount(2), execve(2),
//! ptrace(2), sockets and new namespaces, it is worth less to an attacker. A filter sees numbers and no
//! paths: which files can be opened is decided by the mount namespace.
//!
//! A filter belongs to a thread and the threads it starts. The main thread installs it last, before the
//! session starts its threads. The watcher, started before, may also receive from the supervisor; the
//! thread of the control socket may also accept and reply. In the worker of a share, all threads but that
//! one share a filter, which allows the front end's socket, its eventfds and the supervisor's messages.
//!
//! **Cost.** For calls that are allowed whatever their arguments, the kernel precomputes the result when
//! the filter is installed (Linux 5.11): one bit is tested. A call with conditions runs the whole filter
//! each time, so no frequent call of a request may have any.

use crate::config::FilterAction;
use rustix::process::getpid;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use thrufs_hostdir::FileHandles;
use thrufs_sys::{fuse_dev, ioctl};

/// Allowed fcntl(2) commands: duplication, range locks, leases, pipe sizes, memfd seals. Neither F_SETOWN
/// nor F_SETSIG: the kernel sends these signals, to any process, with the credentials of the process that
/// set the owner. (F_SETLEASE makes the caller the owner.)
const FCNTL: &[c_int] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_SETLEASE,
    libc::F_GETPIPE_SZ,
    libc::F_SETPIPE_SZ,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// The main thread and the session's threads.
    Serving,
    Controlling,
    Watching,
    /// All threads of a share's worker but the control socket's.
    Sharing,
}

/// For every thread, with any arguments. Includes calls of older C libraries and kernels, so that the
/// filter does not depend on them.
const ALLOWED: &[(&str, &[c_long])] = &[
    (
        "requests and answers, contents of files",
        &[
            libc::SYS_read,
            libc::SYS_write,
            libc::SYS_readv,
            libc::SYS_writev,
            libc::SYS_pread64,
            libc::SYS_pwrite64,
            libc::SYS_preadv,
            libc::SYS_pwritev,
            libc::SYS_preadv2,
            libc::SYS_pwritev2,
            libc::SYS_lseek,
            libc::SYS_copy_file_range,
            libc::SYS_splice,
            libc::SYS_pipe2,
            CACHESTAT,
            libc::SYS_fallocate,
            libc::SYS_truncate,
            libc::SYS_ftruncate,
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_syncfs,
            libc::SYS_flock,
        ],
    ),
    (
        "finding and opening",
        &[
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_close,
            libc::SYS_name_to_handle_at,
            libc::SYS_getdents64,
            libc::SYS_readlinkat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open,
        ],
    ),
    (
        "attributes",
        &[
            libc::SYS_statx,
            libc::SYS_fstat,
            libc::SYS_newfstatat,
            libc::SYS_statfs,
            libc::SYS_fstatfs,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            FCHMODAT2,
            libc::SYS_fchownat,
            libc::SYS_utimensat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lstat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod,
        ],
    ),
    (
        "extended attributes",
        &[
            libc::SYS_getxattr,
            libc::SYS_fgetxattr,
            libc::SYS_setxattr,
            libc::SYS_fsetxattr,
            libc::SYS_listxattr,
            libc::SYS_flistxattr,
            libc::SYS_removexattr,
            libc::SYS_fremovexattr,
        ],
    ),
    (
        "creating, renaming, removing",
        &[
            libc::SYS_mkdirat,
            libc::SYS_mknodat,
            libc::SYS_symlinkat,
            libc::SYS_linkat,
            libc::SYS_unlinkat,
            libc::SYS_renameat,
            libc::SYS_renameat2,
        ],
    ),
    (
        "credentials of one thread",
        &[
            libc::SYS_setfsuid,
            libc::SYS_setfsgid,
            libc::SYS_umask,
            libc::SYS_capget,
            libc::SYS_capset,
            libc::SYS_getuid,
            libc::SYS_geteuid,
            libc::SYS_getgid,
            libc::SYS_getegid,
        ],
    ),
    (
        "threads, their signals and their CPUs",
        &[
            libc::SYS_futex,
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_rt_sigaction,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
            libc::SYS_sigaltstack,
            libc::SYS_rseq,
            libc::SYS_set_robust_list,
            // Usually by the vDSO, but for the first call of a thread.
            libc::SYS_getcpu,
            libc::SYS_sched_getaffinity,
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_yield,
            // A reader paired with its caller changes its scheduling class. The class is in memory, which
            // a filter cannot read.
            libc::SYS_sched_getattr,
            libc::SYS_sched_setattr,
            // Seeds of hash maps.
            libc::SYS_getrandom,
        ],
    ),
    (
        "memory",
        &[
            libc::SYS_brk,
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_madvise,
        ],
    ),
    (
        "waiting and time",
        &[
            libc::SYS_ppoll,
            libc::SYS_clock_gettime,
            libc::SYS_clock_getres,
            libc::SYS_clock_nanosleep,
            libc::SYS_nanosleep,
            libc::SYS_gettimeofday,
            // How the kernel resumes a wait after a stop.
            libc::SYS_restart_syscall,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll,
        ],
    ),
    ("the channel to the supervisor", &[libc::SYS_sendmsg]),
    ("ends", &[libc::SYS_exit, libc::SYS_exit_group]),
    (
        // Operations of a ring bypass the filter. Rings are created before it is installed, restricted to
        // what the transport needs.
        "rings",
        &[libc::SYS_io_uring_enter],
    ),
];

/// In addition, for the threads that serve a mount.
const SERVING: &[(&str, &[c_long])] = &[(
    "changes beneath",
    &[libc::SYS_fanotify_init, libc::SYS_fanotify_mark],
)];

/// In addition, for the thread of the control socket. No socket(2) and no connect(2): it only accepts.
const CONTROLLING: &[(&str, &[c_long])] = &[(
    "clients of the control socket",
    &[libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_getsockopt],
)];

/// In addition, for a share's threads. No socket(2): the connection comes from the supervisor.
const SHARING: &[(&str, &[c_long])] = &[
    (
        "the front end and the supervisor",
        &[
            libc::SYS_recvmsg,
            libc::SYS_recvfrom,
            libc::SYS_shutdown,
            libc::SYS_getsockopt,
        ],
    ),
    (
        "the calls of its queues, and memory for those in flight",
        &[
            libc::SYS_eventfd2,
            libc::SYS_epoll_create1,
            libc::SYS_epoll_ctl,
            libc::SYS_epoll_pwait,
            libc::SYS_epoll_pwait2,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait,
            libc::SYS_memfd_create,
        ],
    ),
];

/// In addition, for the watcher.
const WATCHING: &[(&str, &[c_long])] = &[("the channel to the supervisor", &[libc::SYS_recvmsg])];

/// `asm-generic/ioctls.h`
const FIONBIO: u32 = 0x5421;

// Missing in libc for some architectures; the same number on all that this crate supports.
const CACHESTAT: c_long = 451;
const FCHMODAT2: c_long = 452;

fn allowed_with_conditions() -> Result<Vec<(c_long, Vec<SeccompRule>)>, BackendError> {
    const THREAD: i32 = libc::CLONE_VM | libc::CLONE_THREAD;
    const NAMESPACES: i32 = libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWUTS;
    const EXECUTABLE: u32 = libc::PROT_EXEC.cast_unsigned();
    let of_device = [
        fuse_dev::CLONE,
        fuse_dev::BACKING_OPEN,
        fuse_dev::BACKING_CLOSE,
    ];
    let of_files = ioctl::COMMANDS.map(|(command, _)| command);
    let commands = [&of_device[..], &of_files].concat();
    let own = getpid().as_raw_nonzero().get().cast_unsigned();
    Ok(vec![
        (
            libc::SYS_clone,
            bits(
                0,
                (THREAD | NAMESPACES).cast_unsigned(),
                THREAD.cast_unsigned(),
            )?,
        ),
        // For a thread's own umask.
        (
            libc::SYS_unshare,
            one_of(0, &[libc::CLONE_FS.cast_unsigned()])?,
        ),
        (
            libc::SYS_prctl,
            one_of(
                0,
                &[
                    libc::PR_SET_NAME.cast_unsigned(),
                    libc::PR_GET_SECUREBITS.cast_unsigned(),
                ],
            )?,
        ),
        // No new executable mappings.
        (libc::SYS_mmap, bits(2, EXECUTABLE, 0)?),
        (libc::SYS_mprotect, bits(2, EXECUTABLE, 0)?),
        // IORING_REGISTER_ENABLE_RINGS binds a ring to its thread.
        (
            libc::SYS_io_uring_register,
            one_of(1, &[thrufs_sys::fuse_ring::ENABLE])?,
        ),
        (libc::SYS_fcntl, fcntl()?),
        // Starting a thread reads a limit.
        (libc::SYS_prlimit64, null(2)?),
        // For interrupting a blocked thread, and abort(3).
        (libc::SYS_tgkill, one_of(0, &[own])?),
        (libc::SYS_ioctl, one_of(1, &commands)?),
    ])
}

/// [`FCNTL`], and F_SETFL without O_ASYNC, which would send signals.
fn fcntl() -> Result<Vec<SeccompRule>, BackendError> {
    let commands: Vec<u32> = FCNTL
        .iter()
        .map(|command| command.cast_unsigned())
        .collect();
    let mut rules = one_of(1, &commands)?;
    let asynchronous = SeccompCmpOp::MaskedEq(u64::from(libc::O_ASYNC.cast_unsigned()));
    let sets_flags = SeccompCmpOp::Eq;
    let flags = libc::F_SETFL.cast_unsigned();
    rules.push(SeccompRule::new(vec![
        condition(1, sets_flags, flags.into())?,
        condition(2, asynchronous, 0)?,
    ])?);
    Ok(rules)
}

/// The argument is one of these; the kernel ignores its upper half.
fn one_of(argument: u8, values: &[u32]) -> Result<Vec<SeccompRule>, BackendError> {
    let is = |value: &u32| rule(argument, SeccompCmpOp::Eq, (*value).into());
    values.iter().map(is).collect()
}

/// The argument, masked, equals `value`.
fn bits(argument: u8, mask: u32, value: u32) -> Result<Vec<SeccompRule>, BackendError> {
    let operation = SeccompCmpOp::MaskedEq(mask.into());
    Ok(vec![rule(argument, operation, value.into())?])
}

fn null(argument: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let whole = SeccompCmpArgLen::Qword;
    let condition = SeccompCondition::new(argument, whole, SeccompCmpOp::Eq, 0)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

fn rule(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, operation, value)?])
}

fn condition(
    argument: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

fn list(
    duty: Duty,
    file_handles: FileHandles,
    action: FilterAction,
) -> Result<BpfProgram, BackendError> {
    let own = match duty {
        Duty::Serving => SERVING,
        Duty::Controlling => CONTROLLING,
        Duty::Watching => WATCHING,
        Duty::Sharing => SHARING,
    };
    let groups = ALLOWED.iter().chain(own);
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = groups
        .flat_map(|(_purpose, calls)| *calls)
        .map(|call| (*call, Vec::new()))
        .collect();
    rules.extend(allowed_with_conditions()?);
    if duty == Duty::Controlling {
        // Without an address: only connected sockets.
        rules.insert(libc::SYS_sendto, null(4)?);
    }
    if file_handles != FileHandles::Never {
        // A guessed handle opens any file of a file system.
        rules.insert(libc::SYS_open_by_handle_at, Vec::new());
    }
    if duty == Duty::Sharing {
        // Non-blocking sockets and eventfds.
        let rules = rules.entry(libc::SYS_ioctl).or_default();
        rules.extend(one_of(1, &[FIONBIO])?);
    }
    // Decided by [`without_clone3`].
    rules.insert(libc::SYS_clone3, Vec::new());
    let refused = match action {
        FilterAction::Fail => SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        FilterAction::Kill => SeccompAction::KillProcess,
        FilterAction::Log => SeccompAction::Log,
        FilterAction::Trap => SeccompAction::Trap,
        // Empty: not installed.
        FilterAction::Allow => return Ok(BpfProgram::new()),
    };
    program(rules, refused, SeccompAction::Allow)
}

/// clone3(2) has its flags in memory, which a filter cannot read. On ENOSYS the C library falls back to
/// clone(2), whose flags are an argument. A filter has one action for what it refuses, so this is a
/// second one; the kernel applies the strictest result.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    program(rules, SeccompAction::Allow, unknown)
}

fn program(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, listed, architecture)?.try_into()
}

/// Installs the filter for the calling thread and threads it starts later, and sets no_new_privs, which a
/// filter requires.
///
/// # Errors
///
/// No seccomp support (or an installed filter that refuses another), or an unsupported architecture.
pub(super) fn filter_this_thread(
    duty: Duty,
    file_handles: FileHandles,
    action: FilterAction,
) -> Result<(), seccompiler::Error> {
    let list = list(duty, file_handles, action)?;
    if list.is_empty() {
        return Ok(());
    }
    let without_clone3 = without_clone3()?;
    // The allow list last: it forbids further filters.
    apply_filter(&without_clone3)?;
    apply_filter(&list)
}

#[cfg(test)]
mod tests;

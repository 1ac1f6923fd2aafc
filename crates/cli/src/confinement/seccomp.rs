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

/// The C library's constants of these names.
macro_rules! calls {
    ($($(#[$attribute:meta])? $name:ident)*) => {
        &[$($(#[$attribute])? libc::$name),*]
    };
}

/// Allowed fcntl(2) commands: duplication, range locks, leases, pipe sizes, memfd seals. Neither F_SETOWN
/// nor F_SETSIG: the kernel sends these signals, to any process, with the credentials of the process that
/// set the owner. (F_SETLEASE makes the caller the owner.)
const FCNTL: &[c_int] = calls! {
    F_DUPFD F_DUPFD_CLOEXEC F_GETFD F_SETFD F_GETFL F_GETLK F_SETLK F_SETLKW F_OFD_GETLK F_OFD_SETLK
    F_OFD_SETLKW F_SETLEASE F_GETPIPE_SZ F_SETPIPE_SZ F_ADD_SEALS F_GET_SEALS
};

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
const ALLOWED: &[c_long] = calls! {
    // Requests and answers, contents of files.
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev
    SYS_preadv2 SYS_pwritev2 SYS_lseek SYS_copy_file_range SYS_splice SYS_pipe2
    SYS_fallocate SYS_truncate SYS_ftruncate SYS_fsync SYS_fdatasync SYS_syncfs SYS_flock
    // Finding and opening.
    SYS_openat SYS_openat2 SYS_close SYS_name_to_handle_at SYS_getdents64 SYS_readlinkat
    #[cfg(target_arch = "x86_64")] SYS_open
    // Attributes.
    SYS_statx SYS_fstat SYS_newfstatat SYS_statfs SYS_fstatfs SYS_fchmod SYS_fchmodat SYS_fchownat
    SYS_utimensat
    #[cfg(target_arch = "x86_64")] SYS_stat
    #[cfg(target_arch = "x86_64")] SYS_lstat
    #[cfg(target_arch = "x86_64")] SYS_chmod
    // Extended attributes.
    SYS_getxattr SYS_fgetxattr SYS_setxattr SYS_fsetxattr SYS_listxattr SYS_flistxattr
    SYS_removexattr SYS_fremovexattr
    // Creating, renaming, removing.
    SYS_mkdirat SYS_mknodat SYS_symlinkat SYS_linkat SYS_unlinkat SYS_renameat SYS_renameat2
    // Credentials of one thread.
    SYS_setfsuid SYS_setfsgid SYS_umask SYS_capget SYS_capset SYS_getuid SYS_geteuid SYS_getgid
    SYS_getegid
    // Threads, their signals and their CPUs.
    SYS_futex SYS_getpid SYS_gettid SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn
    SYS_sigaltstack SYS_rseq SYS_set_robust_list
    // getcpu: usually by the vDSO, but for the first call of a thread.
    SYS_getcpu SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_yield
    // A reader paired with its caller changes its scheduling class. The class is in memory, which a
    // filter cannot read.
    SYS_sched_getattr SYS_sched_setattr
    // Seeds of hash maps.
    SYS_getrandom
    // Memory.
    SYS_brk SYS_munmap SYS_mremap SYS_madvise
    // Waiting and time; restart_syscall is how the kernel resumes a wait after a stop.
    SYS_ppoll SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday
    SYS_restart_syscall
    #[cfg(target_arch = "x86_64")] SYS_poll
    // The channel to the supervisor.
    SYS_sendmsg
    // Ends.
    SYS_exit SYS_exit_group
    // Operations of a ring bypass the filter. Rings are created before it is installed, restricted to
    // what the transport needs.
    SYS_io_uring_enter
};

/// Of [`ALLOWED`] too: cachestat(2) and fchmodat2(2), which libc lacks for some architectures. The same numbers
/// on all that this crate supports.
const NEWER: &[c_long] = &[451, 452];

/// In addition, for the threads that serve a mount: changes beneath.
const SERVING: &[c_long] = calls! { SYS_fanotify_init SYS_fanotify_mark };

/// In addition, for the thread of the control socket. No socket(2) and no connect(2): it only accepts.
const CONTROLLING: &[c_long] = calls! { SYS_accept4 SYS_recvfrom SYS_getsockopt };

/// In addition, for a share's threads. No socket(2): the connection comes from the supervisor.
const SHARING: &[c_long] = calls! {
    // The front end and the supervisor.
    SYS_recvmsg SYS_recvfrom SYS_shutdown SYS_getsockopt
    // The calls of its queues, and memory for those in flight.
    SYS_eventfd2 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_memfd_create
    #[cfg(target_arch = "x86_64")] SYS_epoll_wait
};

/// In addition, for the watcher: the channel to the supervisor.
const WATCHING: &[c_long] = calls! { SYS_recvmsg };

/// `asm-generic/ioctls.h`
const FIONBIO: u32 = 0x5421;

fn allowed_with_conditions() -> Result<Vec<(c_long, Vec<SeccompRule>)>, BackendError> {
    const THREAD: i32 = libc::CLONE_VM | libc::CLONE_THREAD;
    const NAMESPACES: &[i32] = calls! {
        CLONE_NEWCGROUP CLONE_NEWIPC CLONE_NEWNET CLONE_NEWNS CLONE_NEWPID CLONE_NEWUSER CLONE_NEWUTS
    };
    const EXECUTABLE: u32 = libc::PROT_EXEC.cast_unsigned();
    let of_device = [
        fuse_dev::CLONE,
        fuse_dev::BACKING_OPEN,
        fuse_dev::BACKING_CLOSE,
    ];
    let of_files = ioctl::COMMANDS.map(|(command, _)| command);
    let commands = [&of_device[..], &of_files].concat();
    let own = getpid().as_raw_nonzero().get().cast_unsigned();
    let of_clone = NAMESPACES.iter().fold(THREAD, |all, one| all | one);
    let of_prctl = [libc::PR_SET_NAME, libc::PR_GET_SECUREBITS].map(i32::cast_unsigned);
    let own_umask = [libc::CLONE_FS.cast_unsigned()];
    let enable_ring = [thrufs_sys::fuse_ring::ENABLE];
    let of_clone = bits(0, of_clone.cast_unsigned(), THREAD.cast_unsigned())?;
    Ok(vec![
        (libc::SYS_clone, of_clone),
        (libc::SYS_unshare, one_of(0, &own_umask)?),
        (libc::SYS_prctl, one_of(0, &of_prctl)?),
        // No new executable mappings.
        (libc::SYS_mmap, bits(2, EXECUTABLE, 0)?),
        (libc::SYS_mprotect, bits(2, EXECUTABLE, 0)?),
        // IORING_REGISTER_ENABLE_RINGS binds a ring to its thread.
        (libc::SYS_io_uring_register, one_of(1, &enable_ring)?),
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
    let commands: Vec<u32> = FCNTL.iter().map(|it| it.cast_unsigned()).collect();
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
    let calls = ALLOWED.iter().chain(NEWER).chain(own);
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        calls.map(|call| (*call, Vec::new())).collect();
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

use super::*;
use rustix::io::Errno;
use thrufs_sys::cred;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Allowed before any argument is read, which the kernel precomputes.
    AtOnce,
    Allowed,
    Fails(i32),
    Killed,
}

const DUTIES: [Duty; 4] = [
    Duty::Serving,
    Duty::Controlling,
    Duty::Watching,
    Duty::Sharing,
];

fn list(duty: Duty) -> Result<BpfProgram, BackendError> {
    super::list(duty, FileHandles::Prefer, FilterAction::Fail)
}

const NOT_PERMITTED: Answer = Answer::Fails(libc::EPERM);

/// Interprets a filter as the kernel does (`seccomp_is_const_allow`, `bpf_prog_run` of Linux), for the
/// instructions that seccompiler emits.
fn run(program: &BpfProgram, call: c_long, arguments: [u64; 6]) -> Answer {
    const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
        0xc000_003e
    } else {
        0xc000_00b7
    };
    let mut words = vec![u32::try_from(call).unwrap(), ARCHITECTURE, 0, 0];
    for argument in arguments {
        words.extend([argument as u32, (argument >> 32) as u32]);
    }
    let (mut at, mut accumulator, mut looked) = (0, 0, false);
    loop {
        let step = &program[at];
        at += 1;
        let mut jump = |taken: bool| at += usize::from(if taken { step.jt } else { step.jf });
        match step.code {
            // BPF_LD | BPF_W | BPF_ABS
            0x20 => {
                accumulator = words[step.k as usize / 4];
                looked |= step.k >= 16;
            }
            // BPF_ALU | BPF_AND
            0x54 => accumulator &= step.k,
            // BPF_JMP: JA, JEQ, JGT, JGE
            0x05 => at += step.k as usize,
            0x15 => jump(accumulator == step.k),
            0x25 => jump(accumulator > step.k),
            0x35 => jump(accumulator >= step.k),
            // BPF_RET
            0x06 => {
                return match step.k & libc::SECCOMP_RET_ACTION_FULL {
                    libc::SECCOMP_RET_ALLOW if looked => Answer::Allowed,
                    libc::SECCOMP_RET_ALLOW => Answer::AtOnce,
                    libc::SECCOMP_RET_ERRNO => {
                        Answer::Fails((step.k & libc::SECCOMP_RET_DATA) as i32)
                    }
                    _ => Answer::Killed,
                };
            }
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn serving(call: c_long, arguments: [u64; 6]) -> Answer {
    run(&list(Duty::Serving).unwrap(), call, arguments)
}

#[test]
fn frequent_calls_are_allowed_without_conditions() {
    let list = list(Duty::Serving).unwrap();
    for call in [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_close,
        libc::SYS_statx,
        libc::SYS_newfstatat,
        libc::SYS_fgetxattr,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_getdents64,
        libc::SYS_futex,
        libc::SYS_ppoll,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_capset,
        libc::SYS_umask,
        libc::SYS_clock_gettime,
        libc::SYS_getcpu,
        libc::SYS_io_uring_enter,
    ] {
        let answer = run(&list, call, [u64::MAX; 6]);
        assert_eq!(answer, Answer::AtOnce, "call {call}");
        let other = run(&without_clone3().unwrap(), call, [u64::MAX; 6]);
        assert_eq!(other, Answer::AtOnce, "call {call}");
    }
}

#[test]
fn calls_that_escape_are_refused_with_any_arguments() {
    let both = DUTIES.map(|duty| list(duty).unwrap());
    for call in [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_mount_setattr,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_setns,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_kill,
        libc::SYS_pidfd_send_signal,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_socket,
        libc::SYS_connect,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_setuid,
        libc::SYS_setresuid,
        libc::SYS_personality,
        libc::SYS_seccomp,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
        // Unknown to every kernel.
        4000,
    ] {
        for (list, arguments) in both.iter().flat_map(|list| [(list, 0), (list, u64::MAX)]) {
            let answer = run(list, call, [arguments; 6]);
            assert_eq!(answer, NOT_PERMITTED, "call {call}");
        }
    }
}

#[test]
fn only_the_control_thread_may_accept() {
    let controlling = list(Duty::Controlling).unwrap();
    let watching = list(Duty::Watching).unwrap();
    for call in [libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_getsockopt] {
        assert_eq!(run(&controlling, call, [0; 6]), Answer::AtOnce);
        assert_eq!(serving(call, [0; 6]), NOT_PERMITTED, "call {call}");
        assert_eq!(run(&watching, call, [0; 6]), NOT_PERMITTED, "call {call}");
    }
    let to = |address: u64| [3, 0, 0, 0, address, 0];
    assert_eq!(run(&controlling, libc::SYS_sendto, to(0)), Answer::Allowed);
    assert_eq!(
        run(&controlling, libc::SYS_sendto, to(1 << 40)),
        NOT_PERMITTED
    );
    assert_eq!(serving(libc::SYS_sendto, to(0)), NOT_PERMITTED);
    for call in [libc::SYS_bind, libc::SYS_listen, libc::SYS_recvmsg] {
        let answer = run(&controlling, call, [0; 6]);
        assert_eq!(answer, NOT_PERMITTED, "call {call}");
    }
}

#[test]
fn share_sends_only_to_connected_sockets() {
    let sharing = list(Duty::Sharing).unwrap();
    for call in [
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_eventfd2,
        libc::SYS_epoll_ctl,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
    ] {
        assert_eq!(run(&sharing, call, [0; 6]), Answer::AtOnce, "call {call}");
    }
    for call in [
        libc::SYS_accept4,
        libc::SYS_bind,
        libc::SYS_listen,
        libc::SYS_sendto,
    ] {
        assert_eq!(run(&sharing, call, [0; 6]), NOT_PERMITTED, "call {call}");
    }
    let asked = |command: u32| run(&sharing, libc::SYS_ioctl, [3, command.into(), 0, 0, 0, 0]);
    assert_eq!(asked(FIONBIO), Answer::Allowed);
    assert_eq!(asked(ioctl::FS_IOC_GETFLAGS), Answer::Allowed);
    assert_eq!(asked(libc::TIOCSTI as u32), NOT_PERMITTED);
    assert_eq!(
        serving(libc::SYS_ioctl, [3, FIONBIO.into(), 0, 0, 0, 0]),
        NOT_PERMITTED
    );
    let executable = u64::from(libc::PROT_EXEC.cast_unsigned());
    let mapped = run(&sharing, libc::SYS_mmap, [0, 0, executable, 0, 0, 0]);
    assert_eq!(mapped, NOT_PERMITTED);
}

#[test]
fn open_by_handle_is_refused_without_file_handles() {
    for duty in DUTIES {
        let opens = |handles| {
            let list = super::list(duty, handles, FilterAction::Fail).unwrap();
            run(&list, libc::SYS_open_by_handle_at, [0; 6])
        };
        assert_eq!(opens(FileHandles::Never), NOT_PERMITTED, "{duty:?}");
        for handles in [FileHandles::Prefer, FileHandles::Mandatory] {
            assert_eq!(opens(handles), Answer::AtOnce, "{duty:?}");
        }
    }
}

#[test]
fn fcntl_cannot_set_signal_owners() {
    for list in DUTIES.map(|duty| list(duty).unwrap()) {
        let fcntl = |command: c_int, value: i32| {
            let [command, value] = [command, value].map(|it| u64::from(it.cast_unsigned()));
            run(&list, libc::SYS_fcntl, [3, command, value, 0, 0, 0])
        };
        for command in FCNTL {
            assert_eq!(fcntl(*command, -1), Answer::Allowed, "{command}");
        }
        assert_eq!(fcntl(libc::F_SETFL, libc::O_NONBLOCK), Answer::Allowed);
        let asynchronous = libc::O_NONBLOCK | libc::O_ASYNC;
        assert_eq!(fcntl(libc::F_SETFL, asynchronous), NOT_PERMITTED);
        for command in [
            libc::F_SETOWN,
            libc::F_NOTIFY,
            // F_SETSIG and F_SETOWN_EX, which libc lacks for some architectures.
            10,
            15,
        ] {
            assert_eq!(fcntl(command, 1), NOT_PERMITTED, "{command}");
        }
    }
}

#[test]
fn default_action_is_the_configured_one() {
    let answer = |action| {
        let list = super::list(Duty::Sharing, FileHandles::Never, action).unwrap();
        run(&list, libc::SYS_execve, [0; 6])
    };
    assert_eq!(answer(FilterAction::Fail), NOT_PERMITTED);
    assert_eq!(answer(FilterAction::Kill), Answer::Killed);
    let list = |action| super::list(Duty::Sharing, FileHandles::Never, action).unwrap();
    // The last instruction is the default action.
    let returned = |action| list(action).last().unwrap().k;
    assert_eq!(returned(FilterAction::Log), libc::SECCOMP_RET_LOG);
    assert_eq!(returned(FilterAction::Trap), libc::SECCOMP_RET_TRAP);
    assert!(list(FilterAction::Allow).is_empty());
}

#[test]
fn clone_permits_threads_and_no_processes() {
    let clone = |flags: i32| {
        let flags = u64::from(flags.cast_unsigned());
        serving(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])
    };
    let thread = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    assert_eq!(clone(thread), Answer::Allowed);
    assert_eq!(clone(thread | libc::CLONE_NEWNS), NOT_PERMITTED);
    assert_eq!(clone(thread | libc::CLONE_NEWUSER), NOT_PERMITTED);
    assert_eq!(clone(libc::SIGCHLD), NOT_PERMITTED);
    let spawn = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    assert_eq!(clone(spawn), NOT_PERMITTED);
    let without = run(&without_clone3().unwrap(), libc::SYS_clone3, [0; 6]);
    assert_eq!(without, Answer::Fails(libc::ENOSYS));
}

#[test]
fn rings_can_only_be_enabled() {
    use thrufs_sys::fuse_ring::ENABLE;
    let register = |list: &BpfProgram, operation: u32| {
        let arguments = [3, operation.into(), 0, 0, 0, 0];
        run(list, libc::SYS_io_uring_register, arguments)
    };
    // For a registered ring, with an index instead of a descriptor (IORING_REGISTER_USE_REGISTERED_RING).
    const BY_NUMBER: u32 = 1 << 31;
    for list in DUTIES.map(|duty| list(duty).unwrap()) {
        assert_eq!(register(&list, ENABLE), Answer::Allowed);
        assert_eq!(register(&list, ENABLE | BY_NUMBER), NOT_PERMITTED);
        for other in (0..256).filter(|operation| *operation != ENABLE) {
            assert_eq!(register(&list, other), NOT_PERMITTED, "operation {other}");
        }
    }
}

#[test]
fn conditions_on_arguments_are_checked() {
    let second = |value: u32| [0, value.into(), 0, 0, 0, 0];
    let third = |value: i32| [0, 0, u64::from(value.cast_unsigned()), 0, 0, 0];
    let first = |value: u32| [value.into(), 0, 0, 0, 0, 0];
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let own = getpid().as_raw_nonzero().get().cast_unsigned();
    let signed = |value: i32| value.cast_unsigned();
    for (call, right, wrong) in [
        (
            libc::SYS_mmap,
            third(writable),
            third(writable | libc::PROT_EXEC),
        ),
        (libc::SYS_mprotect, third(writable), third(libc::PROT_EXEC)),
        (
            libc::SYS_ioctl,
            second(ioctl::FS_IOC_GETFLAGS),
            second(libc::TIOCSTI as u32),
        ),
        (libc::SYS_tgkill, first(own), first(own + 1)),
        (
            libc::SYS_unshare,
            first(signed(libc::CLONE_FS)),
            first(signed(libc::CLONE_FS | libc::CLONE_NEWNS)),
        ),
        (
            libc::SYS_prctl,
            first(signed(libc::PR_SET_NAME)),
            first(signed(libc::PR_SET_MM)),
        ),
        (libc::SYS_prlimit64, [0; 6], [0, 0, 1 << 32, 0, 0, 0]),
    ] {
        assert_eq!(serving(call, right), Answer::Allowed, "call {call}");
        assert_eq!(serving(call, wrong), NOT_PERMITTED, "call {call}");
    }
}

#[test]
fn filtered_thread_can_serve_and_nothing_else() {
    let no_new_privileges = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.contains("\nNoNewPrivs:\t1\n")
    };
    let before = no_new_privileges();
    let work = || {
        if let Err(error) =
            filter_this_thread(Duty::Serving, FileHandles::Prefer, FilterAction::Fail)
        {
            return thrufs_test_report::skipped(format!("no filter here: {error}"));
        }
        assert_eq!(cred::unshare_mount_namespace(), Err(Errno::PERM));
        let signal = rustix::process::test_kill_process(getpid());
        assert_eq!(signal, Err(Errno::PERM));
        cred::unshare_fs_attributes().unwrap();
        let started = std::thread::Builder::new()
            .name("filtered".to_owned())
            .spawn(|| {
                let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
                let memory = vec![1_u8; 64 << 20];
                (status, memory.iter().map(|byte| u64::from(*byte)).sum())
            });
        let (status, sum): (String, u64) = started.unwrap().join().unwrap();
        assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        assert_eq!(sum, 64 << 20);
        let caught = std::thread::spawn(|| panic!("that a panic unwinds")).join();
        assert!(caught.is_err());
    };
    std::thread::spawn(work).join().unwrap();
    assert_eq!(no_new_privileges(), before, "another thread's");
}

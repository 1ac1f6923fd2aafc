//! System calls that fail with ENOSYS for one thread.
#![allow(unsafe_code)]

use std::io;

/// Makes these system calls fail with ENOSYS in this thread and in its children, for ever. Needs
/// CAP_SYS_ADMIN.
pub fn take_away(calls: &[libc::c_long]) -> io::Result<()> {
    // The number of the call is the first field of `struct seccomp_data`, at offset zero.
    let statement = |code: u32, k: u32| instruction(code, 0, k);
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in calls {
        let number = u32::try_from(*call).expect("numbers of calls are small");
        // If it is another, the next instruction is skipped.
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(instruction(equal, 1, number));
        let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        program.push(statement(libc::BPF_RET | libc::BPF_K, refuse));
    }
    let allow = libc::SECCOMP_RET_ALLOW;
    program.push(statement(libc::BPF_RET | libc::BPF_K, allow));
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("a short program"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` gives the place and the length of `program`; both outlive the call, which
    // only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const filter,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn instruction(code: u32, skipped_if_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).expect("codes have 16 bits"),
        jt: 0,
        jf: skipped_if_false,
        k,
    }
}

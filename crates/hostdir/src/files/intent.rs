//! What an open wants to do with a file, by the flags of its OPEN.

/// Made by execve(2), for the program or its interpreter. It is the kernel's `FMODE_EXEC`, a bit that
/// `asm-generic/fcntl.h` reserves; open(2) drops it.
pub(crate) const EXECUTES: i32 = 0x20;

pub(crate) fn executes(flags: i32) -> bool {
    flags & EXECUTES != 0
}

pub(super) fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Whether the kernel above sends OPEN, which truncates, before it looks whether the file is a running
/// program. It looks earlier for `O_WRONLY` and `O_RDWR` alone (`do_dentry_open` in `fs/open.c`), for
/// others in `handle_truncate` (`fs/namei.c`).
pub(super) fn truncates_unchecked(flags: i32) -> bool {
    let access = flags & libc::O_ACCMODE;
    flags & libc::O_TRUNC != 0 && !matches!(access, libc::O_WRONLY | libc::O_RDWR)
}

//! What the command's process gives up, besides its capabilities.

use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated, Scope};
use seccompiler::{BpfProgram, apply_filter, sock_filter};
use std::io;

/// Denies connecting to abstract Unix sockets, and signals, to all outside (landlock(7), Linux 6.12), where the
/// kernel can.
pub(super) fn scope() -> io::Result<()> {
    let Ok(ruleset) = scopes() else {
        return Ok(());
    };
    ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(())
}

pub(crate) fn can_scope() -> bool {
    scopes().is_ok()
}

fn scopes() -> Result<RulesetCreated, landlock::RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()
}

/// The numbers of ioctl(2) and add_key(2), by the architecture that programs are compiled for
/// (`linux/audit.h`). request_key(2) and keyctl(2) follow add_key(2).
#[cfg(target_arch = "x86_64")]
const CALLS: &[(u32, u32, u32)] = &[(0xc000_003e, 16, 248), (0x4000_0003, 54, 286)];
#[cfg(target_arch = "aarch64")]
const CALLS: &[(u32, u32, u32)] = &[(0xc000_00b7, 29, 217), (0x4000_0028, 54, 309)];
#[cfg(target_arch = "riscv64")]
const CALLS: &[(u32, u32, u32)] = &[(0xc000_00f3, 29, 217)];

/// On all architectures. It starts processes in other cgroups, which their owner may, also where cgroups cannot be
/// written.
const CLONE3: u32 = 435;

/// Of x86-64, the bit of the calls of the x32 ABI, which has further numbers of its own: none is let through.
const X32: u32 = 0x4000_0000;

/// The requests of ioctl(2) that are refused: typing into the terminal and, on a virtual console, pasting;
/// snapshots of btrfs, which owners of a subvolume may make, and which contain what is beneath the tree.
const REFUSED: [u32; 4] = [
    libc::TIOCSTI as u32,
    libc::TIOCLINUX as u32,
    // `linux/btrfs.h`: BTRFS_IOC_SNAP_CREATE, BTRFS_IOC_SNAP_CREATE_V2.
    0x5000_9401,
    0x5000_9417,
];

/// Keeps this process and its children from [`REFUSED`] requests: EPERM; and from the kernel's keys, of which
/// a user namespace does not take away those in the user's keyring, and from clone3(2): ENOSYS, for which C libraries
/// have clone(2). Requires no_new_privs.
///
/// Programs of 32 bits are filtered too, not killed.
pub(super) fn filter_calls() -> io::Result<()> {
    let filter = filter();
    apply_filter(&filter).map_err(io::Error::other)
}

fn filter() -> BpfProgram {
    // `linux/bpf_common.h`, `linux/seccomp.h`: the fields of struct seccomp_data, little endian.
    const LOAD: u16 = 0x20;
    const JUMP: u16 = 0x05;
    const JUMP_IF_SET: u16 = 0x45;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const REQUEST: u32 = 24;
    const ALLOW: u32 = 0x7fff_0000;
    const FAIL: u32 = 0x0005_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let count = REFUSED.len() as u8;
    let mut program = Vec::new();
    for (architecture, ioctl, add_key) in CALLS {
        // A block that does not apply jumps over its rest.
        program.extend([
            step(LOAD, 0, 0, ARCHITECTURE),
            step(JUMP_IF_EQUAL, 0, count + 11, *architecture),
            step(LOAD, 0, 0, NUMBER),
            step(JUMP_IF_SET, count + 7, 0, X32),
            step(JUMP_IF_EQUAL, count + 7, 0, CLONE3),
            step(JUMP_IF_EQUAL, count + 6, 0, *add_key),
            step(JUMP_IF_EQUAL, count + 5, 0, add_key + 1),
            step(JUMP_IF_EQUAL, count + 4, 0, add_key + 2),
            step(JUMP_IF_EQUAL, 0, count + 4, *ioctl),
            step(LOAD, 0, 0, REQUEST),
        ]);
        let left = (0..count).rev();
        program.extend(
            left.zip(REFUSED)
                .map(|(left, request)| step(JUMP_IF_EQUAL, left + 1, 0, request)),
        );
        program.extend([
            // To the end of the block, whatever the request is.
            step(JUMP, 0, 0, 2),
            step(RETURN, 0, 0, FAIL | libc::EPERM as u32),
            step(RETURN, 0, 0, FAIL | libc::ENOSYS as u32),
        ]);
    }
    program.push(step(RETURN, 0, 0, ALLOW));
    program
}

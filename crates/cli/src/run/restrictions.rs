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

/// The numbers of calls, by the architecture that programs are compiled for (`linux/audit.h`).
struct Calls {
    architecture: u32,
    ioctl: u32,
    /// request_key(2) and keyctl(2) follow it.
    add_key: u32,
    socket: u32,
    /// Its arguments, an address family too, are in memory, which a filter cannot see.
    socketcall: Option<u32>,
}

#[rustfmt::skip]
#[cfg(target_arch = "x86_64")]
const CALLS: &[Calls] = &[
    Calls { architecture: 0xc000_003e, ioctl: 16, add_key: 248, socket: 41, socketcall: None },
    Calls { architecture: 0x4000_0003, ioctl: 54, add_key: 286, socket: 359, socketcall: Some(102) },
];
#[rustfmt::skip]
#[cfg(target_arch = "aarch64")]
const CALLS: &[Calls] = &[
    Calls { architecture: 0xc000_00b7, ioctl: 29, add_key: 217, socket: 198, socketcall: None },
    Calls { architecture: 0x4000_0028, ioctl: 54, add_key: 309, socket: 281, socketcall: None },
];
#[rustfmt::skip]
#[cfg(target_arch = "riscv64")]
const CALLS: &[Calls] = &[
    Calls { architecture: 0xc000_00f3, ioctl: 29, add_key: 217, socket: 198, socketcall: None },
];

/// On all architectures. It starts processes in other cgroups, which their owner may, also where cgroups cannot be
/// written.
const CLONE3: u32 = 435;

/// On all architectures. Rings make sockets without a call that is filtered.
const IO_URING_SETUP: u32 = 425;

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

/// What a network namespace contains. AF_VSOCK leads to the host of a virtual machine from each.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Keeps this process and its children from [`REFUSED`] requests: EPERM; and from the kernel's keys, of which
/// a user namespace does not take away those in the user's keyring, and from clone3(2): ENOSYS, for which C libraries
/// have clone(2). Without a network, also from sockets of other families than [`FAMILIES`]: EAFNOSUPPORT, and from
/// io_uring: ENOSYS. Requires no_new_privs.
///
/// Programs of 32 bits are filtered too, not killed.
pub(super) fn filter_calls(has_network: bool) -> io::Result<()> {
    apply_filter(&filter(has_network)).map_err(io::Error::other)
}

// `linux/bpf_common.h`, `linux/seccomp.h`: the fields of struct seccomp_data, little endian.
const LOAD: u16 = 0x20;
const JUMP_IF_SET: u16 = 0x45;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const ALLOW: u32 = 0x7fff_0000;

fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn fail(errno: i32) -> sock_filter {
    step(RETURN, 0, 0, 0x0005_0000 | errno as u32)
}

/// Executes `block`, which returns, if what was loaded is `value`.
fn when(value: u32, block: BpfProgram) -> BpfProgram {
    let mut program = vec![step(JUMP_IF_EQUAL, 0, block.len() as u8, value)];
    program.extend(block);
    program
}

/// Returns `listed` if this argument is one of `values`, and `other` otherwise.
fn by_argument(
    place: u32,
    values: impl IntoIterator<Item = u32>,
    listed: sock_filter,
    other: sock_filter,
) -> BpfProgram {
    let tests = values
        .into_iter()
        .flat_map(|it| when(it, vec![listed.clone()]));
    let load = [step(LOAD, 0, 0, place)];
    load.into_iter().chain(tests).chain([other]).collect()
}

fn filter(has_network: bool) -> BpfProgram {
    let allow = || step(RETURN, 0, 0, ALLOW);
    let mut program = vec![step(LOAD, 0, 0, ARCHITECTURE)];
    for calls in CALLS {
        let mut block = vec![
            step(LOAD, 0, 0, NUMBER),
            step(JUMP_IF_SET, 0, 1, X32),
            fail(libc::EPERM),
        ];
        let keys = calls.add_key..calls.add_key + 3;
        let without_network = [Some(IO_URING_SETUP), calls.socketcall];
        let without_network = without_network
            .into_iter()
            .flatten()
            .filter(|_| !has_network);
        for call in keys.chain([CLONE3]).chain(without_network) {
            block.extend(when(call, vec![fail(libc::ENOSYS)]));
        }
        let requests = by_argument(SECOND_ARGUMENT, REFUSED, fail(libc::EPERM), allow());
        block.extend(when(calls.ioctl, requests));
        if !has_network {
            let families = FAMILIES.map(|it| it as u32);
            let no_family = fail(libc::EAFNOSUPPORT);
            let families = by_argument(FIRST_ARGUMENT, families, allow(), no_family);
            block.extend(when(calls.socket, families));
        }
        block.push(allow());
        program.extend(when(calls.architecture, block));
    }
    program.push(allow());
    program
}

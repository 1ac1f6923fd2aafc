//! Steps of the start that can fail, taken before INIT is answered.

use super::plan::{Group, count_cpus, groups};
use super::worker_pool::Ring;
use crate::serving::config::{SessionConfig, Transport};
use crate::transport::UringRefusal;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CpuSet;
use std::os::fd::{AsFd, BorrowedFd};
use thrufs_sys::fuse_dev;
use thrufs_sys::fuse_ring::FuseRing;

/// Rings for substitutes of threads that sleep, and one for giving up. A confined process cannot make
/// any later.
const RESERVE: usize = 17;

/// Entries of a ring that are submitted together.
const ENTRIES: u16 = 15;

/// Descriptors that are left for everything else.
const OTHER_DESCRIPTORS: usize = 64;

/// Most serving threads, unless `queues_per_thread` asks for fewer.
const THREADS_MAX: usize = 64;

/// Whether the kernel offers it to new mounts. Absent in kernels without it.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Rings, and the queues that they will serve.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) groups: Vec<Group>,
    pub(super) rings: Vec<Ring>,
}

/// Makes rings on `device`, as many as the threads need. `None` when none are wanted.
pub(crate) fn prepare(
    device: BorrowedFd<'_>,
    config: &SessionConfig,
    allowed: &CpuSet,
) -> Option<Result<Prepared, UringRefusal>> {
    match config.transport {
        Transport::Dev => None,
        Transport::Auto if allowed.count() == 1 => Some(Err(UringRefusal::OneCpu)),
        Transport::Auto | Transport::Uring => Some(make(device, config, allowed)),
    }
}

/// The number of queues that a session with `config`, started now by this process, would serve by
/// io_uring; 0 with [`Transport::Dev`]. Leaves nothing behind.
///
/// # Errors
/// The reason that such a session would give ([`Carrier::Dev`](crate::Carrier::Dev)), in the same order;
/// and [`UringRefusal::NoRing`] where `/dev/fuse` cannot be opened.
pub fn ring_availability(config: &SessionConfig) -> Result<usize, UringRefusal> {
    let device = fuse_dev::open().map_err(UringRefusal::NoRing)?;
    let allowed = crate::serving::allowed_cpus();
    let prepared = prepare(device.as_fd(), config, &allowed);
    let Some(prepared) = prepared.transpose()? else {
        return Ok(0);
    };
    // Opening the device has loaded the module.
    let parameter = std::fs::read_to_string(PARAMETER).unwrap_or_default();
    if parameter.trim() != "Y" {
        return Err(UringRefusal::NotOffered);
    }
    Ok(prepared.groups.iter().map(|group| group.queues.len()).sum())
}

fn make(
    device: BorrowedFd<'_>,
    config: &SessionConfig,
    allowed: &CpuSet,
) -> Result<Prepared, UringRefusal> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    let possible = list.ok().and_then(|list| count_cpus(&list));
    let possible = possible.ok_or(UringRefusal::NoCpuCount)?;
    let groups = groups(
        possible,
        allowed,
        config.ring.queues_per_thread,
        threads_max(),
    );
    // Two descriptors each.
    let most = descriptors().saturating_sub(OTHER_DESCRIPTORS) / 2;
    let least = groups.len() * 2 + 1;
    if most < least {
        return Err(UringRefusal::NoRing(Errno::MFILE));
    }
    let count = (groups.len() * 2 + RESERVE).min(most);
    let rings = make_rings(device, count)?;
    Ok(Prepared { groups, rings })
}

/// Makes rings on a thread that ends at once. The kernel tears a ring down only when its creating thread
/// has released it too. The calling thread is the program's, and may wait for an answer of the very
/// mount whose connection ends with its rings.
fn make_rings(device: BorrowedFd<'_>, count: usize) -> Result<Vec<Ring>, UringRefusal> {
    std::thread::scope(|scope| {
        let maker = std::thread::Builder::new()
            .name("thrufs-rings".to_owned())
            .spawn_scoped(scope, || {
                (0..count)
                    .map(|_| FuseRing::new(device, ENTRIES))
                    .collect::<Result<Vec<Ring>, Errno>>()
            })
            .map_err(|_| UringRefusal::NoThread(Errno::AGAIN))?;
        let made = maker.join().unwrap_or(Err(Errno::AGAIN));
        made.map_err(UringRefusal::of_setup)
    })
}

/// A thread and its substitute cost two descriptors each: together at most a quarter of the limit.
fn threads_max() -> usize {
    (descriptors() / 16).clamp(1, THREADS_MAX)
}

fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(1 << 20, |limit| usize::try_from(limit).unwrap_or(1 << 20))
}

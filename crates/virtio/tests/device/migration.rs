//! Live migration, message by message: what a front end may ask for and what is refused.

use crate::ground::{
    ALL_FEATURES, GUEST, Guest, SLOW, Serving, count, end, memory, serve, sessions,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thrufs_testing::memory::Files;
use thrufs_testing::wait_until;
use thrufs_virtio::memory::LOG_PAGE_BYTES;
use thrufs_virtio::{DeviceConfig, DeviceError, device_state};
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::{VhostTransferStateDirection, VhostTransferStatePhase};
use vhost::{VhostBackend, VhostUserDirtyLogRegion};

const LOG_ALL: u64 = 1 << 26;
const STOPPED: VhostTransferStatePhase = VhostTransferStatePhase::STOPPED;
const SAVE: VhostTransferStateDirection = VhostTransferStateDirection::SAVE;
const LOAD: VhostTransferStateDirection = VhostTransferStateDirection::LOAD;

const LOG_AT: u64 = 4096;

fn begin() -> (Arc<Files>, Serving, Guest) {
    let files = memory(|_| ());
    let (_, serving, mut guest) = serve(sessions(&files), DeviceConfig::default(), ALL_FEATURES);
    guest.init().unwrap();
    (files, serving, guest)
}

fn getattr(guest: &mut Guest) {
    let request = guest.getattr(1);
    guest.tell_any(request);
}

struct Log(OwnedFd);

impl Log {
    fn of(bytes: u64) -> Log {
        let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, LOG_AT + bytes).unwrap();
        Log(file)
    }

    fn region(&self, bytes: u64) -> Option<VhostUserDirtyLogRegion> {
        Some(VhostUserDirtyLogRegion {
            mmap_size: bytes,
            mmap_offset: LOG_AT,
            mmap_handle: self.0.as_raw_fd(),
        })
    }

    /// Takes the guest addresses of logged pages.
    fn take(&self) -> Vec<u64> {
        let length = rustix::fs::fstat(&self.0).unwrap().st_size as usize;
        let mut bytes = vec![0; length];
        rustix::io::pread(&self.0, &mut bytes, 0).unwrap();
        rustix::io::pwrite(&self.0, &vec![0; length], 0).unwrap();
        let (before, log) = bytes.split_at(LOG_AT as usize);
        assert!(before.iter().all(|&byte| byte == 0), "before the log");
        let bits = (0..log.len() * 8).filter(|bit| log[bit / 8] >> (bit % 8) & 1 != 0);
        bits.map(|bit| bit as u64 * LOG_PAGE_BYTES).collect()
    }
}

/// Bytes of a log that covers the guest's memory.
fn log_bytes(guest: &Guest) -> u64 {
    let end = GUEST + guest.region().memory_size;
    end.div_ceil(LOG_PAGE_BYTES).div_ceil(8)
}

/// Exactly the pages of the reply, and on request those of the used ring.
#[test]
fn replies_and_used_rings_are_logged_while_logging_is_negotiated() {
    let (_files, serving, mut guest) = begin();
    let bytes = log_bytes(&guest);
    let log = Log::of(bytes);
    guest.front_end.set_log_base(0, log.region(bytes)).unwrap();
    getattr(&mut guest);
    assert_eq!(log.take(), [0; 0], "not agreed on");
    guest
        .front_end
        .set_features(ALL_FEATURES | LOG_ALL)
        .unwrap();
    let reply = |guest: &Guest| {
        let head = guest.next_head(1);
        guest.guest_address(1, Guest::reply_at(head))
    };
    let page = |address: u64| address / LOG_PAGE_BYTES * LOG_PAGE_BYTES;
    let expected = page(reply(&guest));
    getattr(&mut guest);
    let logged = log.take();
    assert_eq!(logged[0], expected);
    assert!(logged.len() <= 2, "a reply of a page: {logged:x?}");
    // The used ring too.
    let used = guest.guest_address(1, 0x2000);
    guest.place_queue(1, Some(used));
    let expected = page(reply(&guest));
    getattr(&mut guest);
    let mut logged = log.take();
    assert_eq!(logged.remove(0), used);
    assert_eq!(logged[0], expected);
    guest.place_queue(1, None);
    // Drops writes to the used ring after the last reply, such as the event index.
    log.take();
    getattr(&mut guest);
    assert!(!log.take().contains(&used));
    guest.front_end.set_features(ALL_FEATURES).unwrap();
    getattr(&mut guest);
    assert_eq!(log.take(), [0; 0]);
    end(serving, guest);
}

/// A request in progress would write its reply unlogged. So the message is acknowledged after it.
#[test]
fn a_log_is_acknowledged_after_requests_in_progress() {
    let files = memory(|_| ());
    let config = DeviceConfig {
        // The queue's own thread blocks.
        blocked_max: 0,
        ..DeviceConfig::default()
    };
    let (device, serving, mut guest) = serve(sessions(&files), config, ALL_FEATURES);
    guest.init().unwrap();
    let bytes = log_bytes(&guest);
    let log = Log::of(bytes);
    guest.front_end.set_log_base(0, log.region(bytes)).unwrap();
    let request = guest.read_request(1, SLOW.0, 0, 64);
    let head = guest.submit(1, &request, 4096);
    let handle = device.handle();
    wait_until("it is in progress", || handle.metrics().blocked_inline > 0);
    let gate = Arc::clone(&files);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        gate.gate.open();
    });
    let in_force = guest.front_end.set_features(ALL_FEATURES | LOG_ALL);
    let answered = guest.next_used_within(1, Duration::ZERO);
    opener.join().unwrap();
    in_force.unwrap();
    // Not logged, so it was written before the acknowledgement.
    assert_eq!(answered.map(|(head, _)| head), Some(head));
    assert_eq!(log.take(), [0; 0]);
    end(serving, guest);
}

#[test]
fn a_log_that_is_too_small_is_refused() {
    let (_files, serving, guest) = begin();
    let bytes = log_bytes(&guest);
    let log = Log::of(bytes - 1);
    assert!(
        guest
            .front_end
            .set_log_base(0, log.region(bytes - 1))
            .is_err()
    );
    drop(guest);
    assert!(matches!(
        serving.join().unwrap(),
        Err(DeviceError::Protocol(_))
    ));
    // A file shorter than announced.
    let (_files, serving, guest) = begin();
    assert!(guest.front_end.set_log_base(0, log.region(bytes)).is_err());
    drop(guest);
    assert!(serving.join().unwrap().is_err());
}

#[test]
fn later_regions_and_rings_beyond_the_log_are_refused() {
    type Change = fn(&mut Guest, u64) -> bool;
    let changes: [Change; 3] = [
        |guest, beyond| guest.try_to_place_queue(1, Some(beyond)).is_err(),
        |guest, _| guest.try_to_place_queue(1, Some(u64::MAX)).is_err(),
        |guest, beyond| {
            let other = vhost::VhostUserMemoryRegionInfo {
                guest_phys_addr: beyond,
                memory_size: 4096,
                userspace_addr: 0x1000,
                ..guest.region()
            };
            guest.front_end.add_mem_region(&other).is_err()
        },
    ];
    for change in changes {
        let (_files, serving, mut guest) = begin();
        let bytes = log_bytes(&guest);
        let log = Log::of(bytes);
        guest.front_end.set_log_base(0, log.region(bytes)).unwrap();
        assert!(change(&mut guest, bytes * 8 * LOG_PAGE_BYTES));
        drop(guest);
        assert!(serving.join().unwrap().is_err());
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).unwrap()
}

fn stop(guest: &Guest) {
    for queue in 0..guest.queues.len() {
        guest.front_end.get_vring_base(queue).unwrap();
    }
}

fn save(guest: &Guest) -> Vec<u8> {
    let (ours, theirs) = pipe();
    let other = guest.front_end.set_device_state_fd(SAVE, STOPPED, theirs);
    assert!(other.unwrap().is_none());
    let mut state = Vec::new();
    std::fs::File::from(ours).read_to_end(&mut state).unwrap();
    guest.front_end.check_device_state().unwrap();
    state
}

/// Whether CHECK_DEVICE_STATE succeeds.
fn load(guest: &Guest, state: &[u8]) -> bool {
    let (theirs, ours) = pipe();
    let other = guest.front_end.set_device_state_fd(LOAD, STOPPED, theirs);
    assert!(other.unwrap().is_none());
    // Fails when the device has found an error and stopped reading.
    let _ = std::fs::File::from(ours).write_all(state);
    guest.front_end.check_device_state().is_ok()
}

#[test]
fn the_state_is_transferred_while_all_queues_are_stopped() {
    let (_files, serving, mut guest) = begin();
    let refused = |guest: &Guest, direction| {
        let (_ours, theirs) = pipe();
        guest
            .front_end
            .set_device_state_fd(direction, STOPPED, theirs)
            .is_err()
    };
    assert!(refused(&guest, SAVE) && refused(&guest, LOAD));
    assert!(guest.front_end.check_device_state().is_err(), "of none");
    stop(&guest);
    let state = save(&guest);
    assert!(guest.front_end.check_device_state().is_err(), "only once");
    assert!(load(&guest, &state));
    // The loaded session is in use.
    for queue in 0..guest.queues.len() {
        let base = guest.queues[queue].available;
        guest.start_queue(queue, base);
    }
    getattr(&mut guest);
    end(serving, guest);
}

#[test]
fn a_malformed_state_is_refused_and_the_device_stays_usable() {
    // Some sessions never begin, and need not be destroyed.
    let files = memory(|_| ());
    let make = move || Ok(Arc::new(files.serve()));
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    guest.init().unwrap();
    stop(&guest);
    let state = save(&guest);
    for length in 0..state.len() {
        assert!(!load(&guest, &state[..length]), "cut to {length}");
    }
    for at in 0..state.len() {
        let mut changed = state.clone();
        changed[at] ^= 0x80;
        // Some bytes are not checked.
        let _ = load(&guest, &changed);
    }
    assert!(!load(&guest, &[state.as_slice(), &[0]].concat()), "goes on");
    assert!(!load(&guest, &vec![0xff; 1 << 20]));
    let queues = vec![vec![]; guest.queues.len()];
    let mut beyond = Vec::new();
    device_state::write(&mut beyond, &[queues, vec![vec![1]]].concat(), None).unwrap();
    assert!(
        !load(&guest, &beyond),
        "a request of a queue that is not here"
    );
    // A state without a session is valid, and the guest can begin one.
    let mut empty = Vec::new();
    let again = vec![vec![], vec![40_000, 1, 1]];
    device_state::write(&mut empty, &again, None).unwrap();
    assert!(load(&guest, &empty));
    for queue in 0..guest.queues.len() {
        let base = guest.queues[queue].available;
        guest.start_queue(queue, base);
    }
    guest.init().unwrap();
    getattr(&mut guest);
    end(serving, guest);
}

#[test]
fn a_queue_started_during_a_transfer_waits_for_it() {
    let (_files, serving, mut guest) = begin();
    stop(&guest);
    let state = save(&guest);
    let (theirs, ours) = pipe();
    let begun = guest.front_end.set_device_state_fd(LOAD, STOPPED, theirs);
    begun.unwrap();
    let comes = Arc::new(AtomicBool::new(false));
    let coming = Arc::clone(&comes);
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        coming.store(true, Ordering::SeqCst);
        std::fs::File::from(ours).write_all(&state).unwrap();
    });
    for queue in 0..guest.queues.len() {
        let base = guest.queues[queue].available;
        guest.start_queue(queue, base);
    }
    assert!(comes.load(Ordering::SeqCst), "started without the state");
    getattr(&mut guest);
    writer.join().unwrap();
    guest.front_end.check_device_state().unwrap();
    end(serving, guest);
}

#[test]
fn the_end_of_the_connection_ends_a_transfer() {
    for direction in [SAVE, LOAD] {
        let (files, serving, guest) = begin();
        stop(&guest);
        let (ours, theirs) = pipe();
        let (given, kept) = match direction {
            SAVE => (theirs, ours),
            _ => (ours, theirs),
        };
        guest
            .front_end
            .set_device_state_fd(direction, STOPPED, given)
            .unwrap();
        end(serving, guest);
        assert_eq!(count(&files.made), count(&files.destroyed));
        drop(kept);
    }
}

//! The DAX window, with a front end that is played by the test: what is asked of it, and when.

use crate::ground::{ALL_FEATURES, Guest, SIZE, Serving, USER, end, serve, until};
use rustix::net::RecvFlags;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use thrufs::{
    Attributes, Context, Entry, Errno, FileHandle, FileSystem, InitFlags, MapArgs, MappedFile,
    Name, Negotiation, NodeId, Opcode,
};
use thrufs_abi::Reply;
use thrufs_abi::layout::{GetattrIn, InitOut, RemovemappingIn, RemovemappingOne, SetupmappingIn};
use thrufs_sys::fd_passing;
use thrufs_virtio::{DeviceConfig, DeviceHandle};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

const RANGE: u64 = 2 << 20;
const WINDOW: u64 = 4 * RANGE;
/// How long a queue that stops waits for requests that end by themselves; others must not be waited for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(40);
const MAP: u32 = 9;
const UNMAP: u32 = 10;

/// Maps the file `1` for all nodes; node 7 may only be read.
struct Mapped(OwnedFd);

impl FileSystem for Mapped {
    fn init(&self, negotiation: &mut Negotiation) -> thrufs::Result<()> {
        negotiation.want(InitFlags::MAP_ALIGNMENT);
        Ok(())
    }

    fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> thrufs::Result<Entry> {
        Err(Errno::ENOENT)
    }

    fn getattr(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: Option<FileHandle>,
    ) -> thrufs::Result<Attributes> {
        Err(Errno::EACCES)
    }

    fn map(&self, _: &Context<'_>, node: NodeId, _: &MapArgs) -> thrufs::Result<MappedFile> {
        if node == NodeId(9) {
            return Err(Errno::EBADF);
        }
        Ok(MappedFile {
            file: self.0.try_clone().map_err(|_| Errno::EMFILE)?,
            writable: node != NodeId(7),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    code: u32,
    offset: u64,
    at: u64,
    length: u64,
    writable: bool,
}

/// The front end's side of the channel: maps what does not overlap, as the specification says.
struct Monitor {
    state: Arc<(Mutex<MonitorState>, Condvar)>,
}

#[derive(Default)]
struct MonitorState {
    asked: Vec<Asked>,
    live: BTreeSet<(u64, u64)>,
    holds: bool,
    /// Refuses what reaches beyond the end of a file.
    is_strict: bool,
    refuses: bool,
    /// The last that it has mapped.
    file: Option<OwnedFd>,
    /// Where it announces what it has mapped, as QEMU after its reply.
    announces_to: Option<Frontend>,
    holds_announcements: bool,
}

impl MonitorState {
    fn carry_out(&mut self, asked: &Asked, files: &[OwnedFd]) -> bool {
        let end = asked.at + asked.length;
        if asked.code == UNMAP {
            return self.live.remove(&(asked.at, asked.length));
        }
        let [file] = files else {
            return false;
        };
        let size = rustix::fs::fstat(file).unwrap().st_size as u64;
        let overlaps = |&(at, length): &(u64, u64)| at < end && asked.at < at + length;
        if self.refuses
            || end > WINDOW
            || self.live.iter().any(overlaps)
            || self.is_strict && asked.offset + asked.length > size
        {
            return false;
        }
        self.file = Some(file.try_clone().unwrap());
        self.live.insert((asked.at, asked.length))
    }
}

impl Monitor {
    /// Plays it at one end of the channel, whose other end is returned.
    fn start(is_strict: bool) -> (Monitor, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let state = MonitorState {
            is_strict,
            ..MonitorState::default()
        };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let monitor = Monitor {
            state: Arc::clone(&state),
        };
        std::thread::spawn(move || {
            let mut bytes = [0; 52];
            while let Ok(received) =
                fd_passing::receive(ours.as_fd(), &mut bytes, RecvFlags::WAITALL)
            {
                if received.bytes < bytes.len() {
                    return;
                }
                let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
                let asked = Asked {
                    code: bytes[0].into(),
                    offset: word(20),
                    at: word(28),
                    length: word(36),
                    writable: word(44) & 1 != 0,
                };
                let (state, changed) = &*state;
                let mut state = state.lock().unwrap();
                state.asked.push(asked);
                changed.notify_all();
                while state.holds {
                    state = changed.wait(state).unwrap();
                }
                let value = u64::from(!state.carry_out(&asked, &received.descriptors));
                let header = [asked.code, 1 | 4, 8].map(u32::to_ne_bytes).concat();
                let reply = [&header[..], &value.to_ne_bytes()].concat();
                let _ = fd_passing::send(ours.as_fd(), &reply, &[]);
                while state.holds_announcements {
                    state = changed.wait(state).unwrap();
                }
                let announces_to = state.announces_to.clone();
                drop(state);
                if let Some(mut front_end) = announces_to.filter(|_| value == 0) {
                    announce(&mut front_end, &asked, &received.descriptors);
                }
            }
        });
        (monitor, theirs)
    }

    fn change(&self, change: impl FnOnce(&mut MonitorState)) {
        change(&mut self.state.0.lock().unwrap());
        self.state.1.notify_all();
    }

    /// What it was asked since the last call.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.0.lock().unwrap().asked)
    }

    fn live(&self) -> Vec<(u64, u64)> {
        self.state.0.lock().unwrap().live.iter().copied().collect()
    }

    fn wait_for_question(&self) {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap();
        while state.asked.is_empty() {
            state = changed.wait(state).unwrap();
        }
    }
}

/// Adds a part of the window to the guest's memory, or removes it.
fn announce(front_end: &mut Frontend, asked: &Asked, files: &[OwnedFd]) {
    let file = files.first().map_or(-1, AsRawFd::as_raw_fd);
    let region = region(asked.at, asked.length, file);
    let announced = match asked.code {
        MAP => front_end.add_mem_region(&region).map(drop),
        _ => front_end.remove_mem_region(&region),
    };
    announced.unwrap();
}

/// The memory of a part of the window.
fn region(at: u64, length: u64, file: RawFd) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: (1 << 32) + at,
        memory_size: length,
        userspace_addr: USER + (1 << 32) + at,
        mmap_offset: 0,
        mmap_handle: file,
    }
}

struct Ground {
    monitor: Monitor,
    serving: Serving,
    guest: Guest,
    device: DeviceHandle,
}

/// A guest before INIT, with a file of one and a half ranges.
fn connect(is_strict: bool) -> Ground {
    let file = tempfile::tempfile().unwrap();
    file.set_len(RANGE + RANGE / 2).unwrap();
    let file = OwnedFd::from(file);
    let make = move || Ok(Arc::new(Mapped(file.try_clone()?)));
    let config = DeviceConfig {
        window_bytes: NonZeroU64::new(WINDOW),
        drain_timeout: DRAIN_TIMEOUT,
        ..DeviceConfig::default()
    };
    let (device, serving, mut guest) = serve(make, config, ALL_FEATURES);
    let (monitor, channel) = Monitor::start(is_strict);
    assert_eq!({ guest.front_end.get_shmem_config().unwrap().nregions }, 1);
    guest.front_end.set_backend_request_fd(&channel).unwrap();
    Ground {
        monitor,
        serving,
        guest,
        device: device.handle(),
    }
}

fn begin(is_strict: bool) -> Ground {
    let mut ground = connect(is_strict);
    let out = ground.guest.init().unwrap();
    assert_eq!(out.map_alignment, 12);
    assert_eq!(ground.monitor.live(), [], "what was tried is unmapped");
    ground.monitor.asked();
    ground
}

/// Stops the queue for requests, which waits for no answer of the monitor's.
fn stop(guest: &Guest) -> u16 {
    let begun = Instant::now();
    let base = guest.front_end.get_vring_base(1).unwrap() as u16;
    assert!(begun.elapsed() < DRAIN_TIMEOUT / 2);
    base
}

fn set_up(guest: &mut Guest, node: u64, file_offset: u64, at: u64, flags: u64) -> Vec<u8> {
    let arg = SetupmappingIn {
        fh: u64::MAX,
        foffset: file_offset,
        len: RANGE,
        flags,
        moffset: at,
    };
    guest.request(Opcode::SetupMapping, node).arg(&arg).finish()
}

fn map(guest: &mut Guest, node: u64, file_offset: u64, at: u64, flags: u64) -> i32 {
    let request = set_up(guest, node, file_offset, at, flags);
    crate::ground::error_of(&guest.transact(1, &request, 16))
}

fn unmap(guest: &mut Guest, ranges: &[(u64, u64)]) -> i32 {
    let arg = RemovemappingIn {
        count: ranges.len() as u32,
    };
    let mut request = guest.request(Opcode::RemoveMapping, 5).arg(&arg);
    for &(moffset, len) in ranges {
        request = request.arg(&RemovemappingOne { moffset, len });
    }
    let reply = guest.transact(1, &request.finish(), 16);
    crate::ground::error_of(&reply)
}

fn asked(code: u32, offset: u64, at: u64, length: u64) -> Asked {
    Asked {
        code,
        offset,
        at,
        length,
        writable: code == MAP,
    }
}

#[test]
fn a_file_is_mapped_and_unmapped_at_the_guest_s_request() {
    let Ground {
        monitor,
        serving,
        mut guest,
        device,
    } = begin(false);
    assert_eq!(map(&mut guest, 5, 0, RANGE, 2), 0);
    assert_eq!(map(&mut guest, 5, RANGE, 0, 3), 0);
    // To be written, too: it is mapped so already.
    assert_eq!(map(&mut guest, 5, 0, RANGE, 3), 0);
    let expected = [asked(MAP, 0, RANGE, RANGE), asked(MAP, RANGE, 0, RANGE)];
    assert_eq!(monitor.asked(), expected);
    assert_eq!(device.metrics().window_mappings, 2);
    assert_eq!(unmap(&mut guest, &[(0, RANGE), (RANGE, RANGE)]), 0);
    assert_eq!(monitor.live(), []);
    let metrics = device.metrics();
    assert_eq!(
        (
            metrics.window_mappings,
            metrics.window_maps,
            metrics.window_unmaps
        ),
        (0, 2, 2)
    );
    end(serving, guest);
}

#[test]
fn a_front_end_that_does_not_map_beyond_the_end_is_asked_for_whole_pages() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = begin(true);
    assert_eq!(map(&mut guest, 5, RANGE, 0, 3), 0);
    assert_eq!(map(&mut guest, 5, 2 * RANGE, RANGE, 3), 0);
    assert_eq!(monitor.asked(), [asked(MAP, RANGE, 0, RANGE / 2)]);
    assert_eq!(unmap(&mut guest, &[(0, RANGE), (RANGE, RANGE)]), 0);
    assert_eq!(monitor.asked(), [asked(UNMAP, 0, 0, RANGE / 2)]);
    end(serving, guest);
}

#[test]
fn invalid_requests_reach_no_front_end() {
    let Ground {
        monitor,
        serving,
        mut guest,
        device,
    } = begin(false);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 0);
    monitor.asked();
    let (inval, acces, badf) = (22, 13, 9);
    let invalid = [
        (5, 0, WINDOW, 3, inval),
        (5, 0, u64::MAX - 4095, 3, inval),
        (5, 0, 4096, 3, inval),
        (5, 0, RANGE - 4096, 3, inval),
        (5, 1, RANGE, 3, inval),
        (5, RANGE, 0, 3, inval),
        (6, 0, 0, 3, inval),
        (5, 0, RANGE + 1, 3, inval),
        (5, u64::MAX - RANGE + 1, RANGE, 3, inval),
        (5, 0, RANGE, 4, inval),
        (7, 0, RANGE, 1, acces),
        (9, 0, RANGE, 2, badf),
    ];
    for (node, offset, at, flags, errno) in invalid {
        let error = map(&mut guest, node, offset, at, flags);
        assert_eq!(error, errno, "node {node}, {offset} at {at}, flags {flags}");
    }
    for range in [
        (RANGE, RANGE),
        (0, 4096),
        (4096, RANGE),
        (0, 0),
        (1, RANGE),
        (0, u64::MAX),
    ] {
        assert_eq!(unmap(&mut guest, &[range]), inval, "{range:?}");
    }
    assert_eq!(monitor.asked(), []);
    assert!(device.metrics().window_invalid > 10);
    assert_eq!(unmap(&mut guest, &[(0, WINDOW)]), 0, "all that is there");
    assert_eq!(unmap(&mut guest, &[(0, RANGE)]), inval, "twice");
    end(serving, guest);
}

#[test]
fn ten_thousand_set_ups_leave_no_descriptor_and_few_mappings() {
    let Ground {
        monitor,
        serving,
        mut guest,
        device,
    } = begin(false);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for number in 0..10_000_u64 {
        let at = number * 4096 % (WINDOW + RANGE);
        let flags = 1 + number % 3;
        map(&mut guest, 5 + number % 5, number % 7 * 4096, at, flags);
    }
    let mappings = monitor.live().len() as u64;
    assert!(mappings <= WINDOW / RANGE, "{mappings}");
    assert_eq!(device.metrics().window_mappings, mappings);
    assert!(
        descriptors() < before + 50,
        "other tests of this process have some"
    );
    end(serving, guest);
}

#[test]
fn there_are_no_more_mappings_than_ranges() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = begin(false);
    let mut small = |page: u64| {
        let arg = SetupmappingIn {
            len: 4096,
            flags: 3,
            moffset: page * 4096,
            ..SetupmappingIn::default()
        };
        let request = guest.request(Opcode::SetupMapping, 5).arg(&arg).finish();
        crate::ground::error_of(&guest.transact(1, &request, 16))
    };
    for page in 0..WINDOW / 4096 {
        assert_eq!(small(page), if page < WINDOW / RANGE { 0 } else { 22 });
    }
    assert_eq!(monitor.live().len() as u64, WINDOW / RANGE);
    end(serving, guest);
}

#[test]
fn what_the_front_end_refuses_fails_and_can_be_tried_again() {
    let Ground {
        monitor,
        serving,
        mut guest,
        device,
    } = begin(false);
    monitor.change(|state| state.refuses = true);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 5);
    let metrics = device.metrics();
    assert_eq!((metrics.window_failed, metrics.window_mappings), (1, 0));
    monitor.change(|state| state.refuses = false);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 0);
    assert_eq!(monitor.live(), [(0, RANGE)]);
    end(serving, guest);
}

#[test]
fn a_front_end_that_does_not_answer_holds_up_no_other_request() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = begin(false);
    monitor.change(|state| state.holds = true);
    let request = set_up(&mut guest, 5, 0, 0, 3);
    let head = guest.submit(1, &request, 16);
    monitor.wait_for_question();
    let getattr = guest.request(Opcode::Getattr, 1).arg(&GetattrIn::default());
    assert_eq!(guest.tell(getattr), Err(13), "another request is answered");
    // A stop of the queue does not wait for it, and it is not lost.
    let base = stop(&guest);
    guest.start_queue(1, base);
    assert_eq!(guest.next_used_within(1, Duration::from_millis(50)), None);
    monitor.change(|state| state.holds = false);
    let (used, length) = guest.next_used(1);
    assert_eq!(used, head);
    assert_eq!(crate::ground::error_of(&guest.reply(1, head, length)), 0);
    assert_eq!(monitor.asked(), [asked(MAP, 0, 0, RANGE)], "once");
    end(serving, guest);
}

#[test]
fn a_connection_ends_while_the_front_end_does_not_answer() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = begin(false);
    monitor.change(|state| state.holds = true);
    let request = set_up(&mut guest, 5, 0, 0, 3);
    guest.submit(1, &request, 16);
    monitor.wait_for_question();
    end(serving, guest);
}

#[test]
fn a_session_begins_with_an_empty_window() {
    let Ground {
        monitor,
        serving,
        mut guest,
        device,
    } = begin(false);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 0);
    // A guest that is reset says nothing.
    guest.init().unwrap();
    assert_eq!(monitor.live(), []);
    assert_eq!(map(&mut guest, 5, RANGE, 0, 3), 0, "the place is free");
    let destroy = guest.request(Opcode::Destroy, 0).finish();
    monitor.asked();
    monitor.change(|state| state.holds = true);
    let head = guest.submit(1, &destroy, 16);
    monitor.wait_for_question();
    // Before the answer: then the guest may stop the device.
    assert_eq!(guest.next_used_within(1, Duration::from_millis(50)), None);
    monitor.change(|state| state.holds = false);
    assert_eq!(guest.next_used(1).0, head);
    assert_eq!(monitor.live(), []);
    assert_eq!(device.metrics().window_mappings, 0);
    guest.init().unwrap();
    assert_eq!(map(&mut guest, 5, RANGE, 0, 3), 0);
    end(serving, guest);
}

#[test]
fn destroy_does_not_wait_for_a_front_end_that_stops_the_queue() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = begin(false);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 0);
    monitor.asked();
    monitor.change(|state| state.holds = true);
    let destroy = guest.request(Opcode::Destroy, 0).finish();
    let head = guest.submit(1, &destroy, 16);
    monitor.wait_for_question();
    let base = stop(&guest);
    monitor.change(|state| state.holds = false);
    guest.start_queue(1, base);
    assert_eq!(guest.next_used(1).0, head);
    until("unmapped", || monitor.live().is_empty());
    end(serving, guest);
}

/// A monitor that stops the queue answers nothing until that is done.
#[test]
fn init_is_carried_out_again_when_the_queue_is_stopped_meanwhile() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = connect(false);
    monitor.change(|state| state.holds = true);
    let init = guest.init_request();
    let head = guest.submit(1, &init, 4096);
    monitor.wait_for_question();
    let base = stop(&guest);
    monitor.change(|state| state.holds = false);
    guest.start_queue(1, base);
    let (used, length) = guest.next_used(1);
    assert_eq!(used, head);
    let reply = guest.reply(1, head, length);
    let reply = Reply::parse(&reply).unwrap();
    assert_eq!(reply.error, 0);
    let out: InitOut = reply.structure().unwrap();
    assert_eq!(out.map_alignment, 12, "with the window");
    end(serving, guest);
}

#[test]
fn without_a_channel_there_is_no_window() {
    let (_, serving, mut guest) = {
        let make = || Ok(Arc::new(Mapped(tempfile::tempfile()?.into())));
        let config = DeviceConfig {
            window_bytes: NonZeroU64::new(WINDOW),
            ..DeviceConfig::default()
        };
        serve(make, config, ALL_FEATURES)
    };
    assert_eq!(guest.init().unwrap().map_alignment, 0);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 38, "ENOSYS");
    end(serving, guest);
}

#[test]
fn a_mapping_is_confirmed_to_the_guest_once_it_is_announced() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = connect(true);
    let front_end = guest.front_end.clone();
    monitor.change(|state| state.announces_to = Some(front_end));
    guest.init().unwrap();
    monitor.asked();
    monitor.change(|state| state.holds_announcements = true);
    let request = set_up(&mut guest, 5, 0, 0, 3);
    let head = guest.submit(1, &request, 16);
    monitor.wait_for_question();
    assert_eq!(guest.next_used_within(1, Duration::from_millis(50)), None);
    monitor.change(|state| state.holds_announcements = false);
    assert_eq!(guest.next_used(1).0, head);
    monitor.change(|state| state.announces_to = None);
    end(serving, guest);
}

/// Its file may be truncated on the host at any time.
#[test]
fn a_part_of_the_window_that_is_announced_holds_no_ring() {
    let Ground {
        monitor,
        serving,
        mut guest,
        ..
    } = begin(false);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 0);
    let file = monitor.state.0.lock().unwrap().file.take().unwrap();
    let announced = |number: u64| region(number * RANGE, RANGE, file.as_raw_fd());
    guest.front_end.add_mem_region(&announced(0)).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    guest.front_end.add_mem_region(&announced(1)).unwrap();
    rustix::fs::ftruncate(&file, RANGE).unwrap();
    guest.front_end.get_vring_base(1).unwrap();
    let at = announced(0).userspace_addr;
    let layout = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: at,
        avail_ring_addr: at + 0x1000,
        used_ring_addr: at + 0x2000,
        log_addr: None,
    };
    guest.front_end.set_vring_addr(1, &layout).unwrap();
    let started = guest.front_end.set_vring_kick(1, &guest.queues[1].kick);
    assert!(started.is_err(), "the queue is served");
    drop(guest);
    assert!(serving.join().unwrap().is_err());
}

/// It would take the message for an error.
#[test]
fn a_front_end_that_has_not_agreed_on_it_is_asked_for_nothing() {
    let mut ground = connect(false);
    let features = ground.guest.front_end.get_protocol_features().unwrap();
    let without = features - VhostUserProtocolFeatures::SHMEM;
    ground
        .guest
        .front_end
        .set_protocol_features(without)
        .unwrap();
    let (monitor, channel) = Monitor::start(false);
    ground
        .guest
        .front_end
        .set_backend_request_fd(&channel)
        .unwrap();
    ground.monitor.asked();
    ground.guest.init().unwrap();
    assert_eq!(monitor.asked(), []);
    end(ground.serving, ground.guest);
}

#[test]
fn a_device_without_a_window_offers_none() {
    let make = || Ok(Arc::new(Mapped(tempfile::tempfile()?.into())));
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    let offered = guest.front_end.get_protocol_features().unwrap();
    assert!(!offered.contains(VhostUserProtocolFeatures::SHMEM));
    assert_eq!(guest.init().unwrap().map_alignment, 0);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 38, "ENOSYS");
    end(serving, guest);
}

//! A guest of a device with a window, the front end's side of the channel, and the file system beneath.

use crate::ground::{ALL_FEATURES, Guest, PATIENCE, Serving, USER, end, error_of, serve, sessions};
use rustix::net::RecvFlags;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use thrufs::{Errno, InitFlags, MappedFile, NodeId, Opcode};
use thrufs_abi::layout::{RemovemappingIn, RemovemappingOne, SetupmappingIn};
use thrufs_sys::fd_passing;
use thrufs_testing::memory::{Files, Settings};
use thrufs_virtio::{DeviceConfig, DeviceHandle};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

pub const RANGE: u64 = 2 << 20;
pub const WINDOW: u64 = 4 * RANGE;
/// How long a queue that stops waits for requests that end by themselves; others must not be waited for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(40);
pub const MAP: u32 = 9;
pub const UNMAP: u32 = 10;

/// Sessions that map one file for all nodes; node 7 may only be read, node 9 is not open.
pub fn mapped(file: impl Into<OwnedFd>, meeting: &Arc<Meeting>) -> Arc<Files> {
    let (file, meeting) = (file.into(), Arc::clone(meeting));
    let map = move |node| {
        meeting.attend();
        if node == NodeId(9) {
            return Err(Errno::EBADF);
        }
        Ok(MappedFile {
            file: file.try_clone().map_err(|_| Errno::EMFILE)?,
            writable: node != NodeId(7),
        })
    };
    Files::new(Settings {
        wants: InitFlags::MAP_ALIGNMENT,
        map: Some(Box::new(map)),
        ..Settings::default()
    })
}

/// Has a helper take a request that the queue's thread might take: until then, that thread is held up in one.
#[derive(Default)]
pub struct Meeting {
    state: Mutex<MeetingState>,
    changed: Condvar,
}

#[derive(Default)]
struct MeetingState {
    is_wanted: bool,
    has_helper: bool,
}

impl Meeting {
    /// Until [`end`](Self::end), helpers are held up in their first request.
    pub fn begin(&self) {
        self.state.lock().unwrap().is_wanted = true;
    }

    /// Waits until a helper has a request.
    pub fn wait_for_helper(&self) {
        let state = self.state.lock().unwrap();
        let misses = |state: &mut MeetingState| !state.has_helper;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, misses);
        assert!(!waited.unwrap().1.timed_out(), "no helper takes a request");
    }

    pub fn end(&self) {
        self.state.lock().unwrap().is_wanted = false;
        self.changed.notify_all();
    }

    fn attend(&self) {
        let is_helper = std::thread::current().name() == Some("thrufs-helper");
        let mut state = self.state.lock().unwrap();
        state.has_helper |= is_helper;
        self.changed.notify_all();
        let waits = |state: &mut MeetingState| state.is_wanted && (is_helper || !state.has_helper);
        drop(self.changed.wait_timeout_while(state, PATIENCE, waits));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub code: u32,
    pub offset: u64,
    pub at: u64,
    pub length: u64,
    pub writable: bool,
}

/// The front end's side of the channel: maps what does not overlap, as the specification says.
pub struct Monitor {
    state: Arc<(Mutex<MonitorState>, Condvar)>,
}

#[derive(Default)]
pub struct MonitorState {
    asked: Vec<Asked>,
    live: BTreeSet<(u64, u64)>,
    holds: bool,
    /// Refuses what reaches beyond the end of a file.
    is_strict: bool,
    pub refuses: bool,
    /// The last that it has mapped.
    file: Option<OwnedFd>,
    /// Where it announces what it has mapped, as QEMU after its reply.
    pub announces_to: Option<Frontend>,
    pub holds_announcements: bool,
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
    pub fn start(is_strict: bool) -> (Monitor, UnixStream) {
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

    pub fn change(&self, change: impl FnOnce(&mut MonitorState)) {
        change(&mut self.state.0.lock().unwrap());
        self.state.1.notify_all();
    }

    /// Answers nothing, until [`release`](Self::release).
    pub fn hold(&self) {
        self.change(|state| state.holds = true);
    }

    pub fn release(&self) {
        self.change(|state| state.holds = false);
    }

    /// What it was asked since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.0.lock().unwrap().asked)
    }

    /// The file that it has mapped last.
    pub fn take_file(&self) -> OwnedFd {
        self.state.0.lock().unwrap().file.take().unwrap()
    }

    pub fn live(&self) -> Vec<(u64, u64)> {
        self.state.0.lock().unwrap().live.iter().copied().collect()
    }

    pub fn wait_for_question(&self) {
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
pub fn region(at: u64, length: u64, file: RawFd) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: (1 << 32) + at,
        memory_size: length,
        userspace_addr: USER + (1 << 32) + at,
        mmap_offset: 0,
        mmap_handle: file,
    }
}

pub struct Ground {
    pub monitor: Monitor,
    pub meeting: Arc<Meeting>,
    serving: Serving,
    pub guest: Guest,
    pub device: DeviceHandle,
}

/// A guest before INIT, with a file of one and a half ranges, and a byte, whose page is cut.
pub fn connect(is_strict: bool) -> Ground {
    connect_with(is_strict, DeviceConfig::default())
}

fn connect_with(is_strict: bool, config: DeviceConfig) -> Ground {
    let file = tempfile::tempfile().unwrap();
    file.set_len(RANGE + RANGE / 2 + 1).unwrap();
    let meeting = Arc::<Meeting>::default();
    let files = mapped(file, &meeting);
    let config = DeviceConfig {
        window_bytes: NonZeroU64::new(WINDOW),
        drain_timeout: DRAIN_TIMEOUT,
        ..config
    };
    let (device, serving, mut guest) = serve(sessions(&files), config, ALL_FEATURES);
    let (monitor, channel) = Monitor::start(is_strict);
    assert_eq!({ guest.front_end.get_shmem_config().unwrap().nregions }, 1);
    guest.front_end.set_backend_request_fd(&channel).unwrap();
    Ground {
        monitor,
        meeting,
        serving,
        guest,
        device: device.handle(),
    }
}

/// The same after INIT.
pub fn begin(is_strict: bool) -> Ground {
    begin_with(is_strict, DeviceConfig::default())
}

pub fn begin_with(is_strict: bool, config: DeviceConfig) -> Ground {
    let mut ground = connect_with(is_strict, config);
    let out = ground.guest.init().unwrap();
    assert_eq!(out.map_alignment, 12);
    assert_eq!(ground.monitor.live(), [], "what was tried is unmapped");
    ground.monitor.asked();
    ground
}

impl Ground {
    /// Stops the queue for requests, which waits for no answer of the monitor's.
    pub fn stop(&self) -> u16 {
        let begun = Instant::now();
        let base = self.guest.front_end.get_vring_base(1).unwrap() as u16;
        assert!(begun.elapsed() < DRAIN_TIMEOUT / 2);
        base
    }

    /// Submits SETUPMAPPING, and returns its head.
    pub fn submit_map(&mut self, node: u64, file_offset: u64, at: u64, flags: u64) -> u16 {
        let request = set_up(&mut self.guest, node, file_offset, at, flags);
        self.guest.submit(1, &request, 16)
    }

    /// The error of the next answer, which is the one to `head`.
    pub fn answer_to(&mut self, head: u16) -> i32 {
        let (used, length) = self.guest.next_used(1);
        assert_eq!(used, head);
        error_of(&self.guest.reply(1, head, length))
    }

    /// Whether nothing is answered for a while.
    pub fn is_silent(&mut self) -> bool {
        let a_while = Duration::from_millis(50);
        self.guest.next_used_within(1, a_while).is_none()
    }

    pub fn map(&mut self, node: u64, file_offset: u64, at: u64, flags: u64) -> i32 {
        map(&mut self.guest, node, file_offset, at, flags)
    }

    /// Submits REMOVEMAPPING, and returns its head.
    pub fn submit_unmap(&mut self, ranges: &[(u64, u64)]) -> u16 {
        let arg = RemovemappingIn {
            count: ranges.len() as u32,
        };
        let mut request = self.guest.request(Opcode::RemoveMapping, 5).arg(&arg);
        for &(moffset, len) in ranges {
            request = request.arg(&RemovemappingOne { moffset, len });
        }
        self.guest.submit(1, &request.finish(), 16)
    }

    pub fn unmap(&mut self, ranges: &[(u64, u64)]) -> i32 {
        let head = self.submit_unmap(ranges);
        self.answer_to(head)
    }

    pub fn end(self) {
        end(self.serving, self.guest);
    }

    /// Disconnects the guest of a device that has failed.
    pub fn end_failed(self) {
        drop(self.guest);
        assert!(self.serving.join().unwrap().is_err());
    }
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

pub fn map(guest: &mut Guest, node: u64, file_offset: u64, at: u64, flags: u64) -> i32 {
    let request = set_up(guest, node, file_offset, at, flags);
    error_of(&guest.transact(1, &request, 16))
}

pub fn asked(code: u32, offset: u64, at: u64, length: u64) -> Asked {
    Asked {
        code,
        offset,
        at,
        length,
        writable: code == MAP,
    }
}

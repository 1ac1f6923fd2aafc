//! The floor over io_uring: one thread has the queues of all processors.

use super::answers::{Answer, DIALECT, WANTED, answer};
use super::dev::answer_init;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use thrufs::layout::OutHeader;
use thrufs_abi::{InitFlags, Payload, Request};
use thrufs_sys::fuse_ring::{Event, FuseRing, QueueIndex, RingRequest, Slot};
use zerocopy::IntoBytes;

/// Requests of one queue at once: the one that the client waits for, and what the kernel asks besides.
const DEPTH: usize = 4;
const PAYLOAD_BYTES: usize = 1 << 20;

/// Answers until it is unmounted.
pub(super) fn answer_all(device: &OwnedFd) -> io::Result<()> {
    let mut ring: FuseRing<()> = FuseRing::new(device.as_fd(), 64)?;
    answer_init(device, WANTED | InitFlags::OVER_IO_URING)?;
    ring.enable()?;
    ring.await_init()?;
    for queue in 0..possible_processors()? {
        for _ in 0..DEPTH {
            let slot = ring.slot(QueueIndex(queue), PAYLOAD_BYTES)?;
            ring.register(slot)?;
        }
    }
    let device = device.try_clone()?;
    // Requests without a reply come there only.
    std::thread::spawn(move || while forget(&device) {});
    let mut slots = usize::from(possible_processors()?) * DEPTH;
    while slots > 0 {
        ring.wait(None)?;
        while let Some(event) = ring.next_event() {
            match event {
                Event::Request(mut slot) => {
                    let length = reply_to(&mut slot)?;
                    ring.commit(slot, length)?;
                }
                Event::Gone(..) => slots -= 1,
                Event::Read(..) | Event::Woken => {}
            }
        }
    }
    Ok(())
}

fn forget(device: &OwnedFd) -> bool {
    let mut request = vec![0; 256 << 10];
    loop {
        match rustix::io::read(device, &mut request) {
            Ok(_) | Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
            Err(_) => return false,
        }
    }
}

fn possible_processors() -> io::Result<u16> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = list.trim().rsplit(['-', ',']).next().unwrap_or_default();
    let last: u16 = last.parse().map_err(io::Error::other)?;
    Ok(last + 1)
}

/// Writes the whole reply and gives its length.
fn reply_to(slot: &mut Slot) -> io::Result<usize> {
    let RingRequest {
        header,
        structure,
        rest,
        reply,
    } = slot.request();
    let request = Request::parse_split(header, structure, rest, DIALECT, Payload::Inline)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let (head, body) = reply.split_at_mut(size_of::<OutHeader>());
    let (bytes, error) = match answer(&request, WANTED, body) {
        Answer::Body(bytes) => (bytes, 0),
        Answer::Failed(errno) => (0, -errno.raw_os_error()),
        Answer::Nothing => (0, 0),
    };
    let length = head.len() + bytes;
    let header = OutHeader {
        len: length as u32,
        error,
        unique: request.header.unique.0,
    };
    head.copy_from_slice(header.as_bytes());
    Ok(length)
}

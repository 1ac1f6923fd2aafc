//! The in-flight table of a front end (INFLIGHT_SHMFD), passed from one server to the next.

use crate::ground::{self, ALL_FEATURES, Guest, Serving, end, error_of, memory, serve, sessions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use thrufs::Errno;
use thrufs_virtio::{ConnectionOptions, Device, DeviceConfig, Journal, MakeFileSystem, Served};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;

fn wanted(guest: &Guest) -> VhostUserInflight {
    VhostUserInflight {
        num_queues: guest.queues.len() as u16,
        queue_size: ground::SIZE,
        ..VhostUserInflight::default()
    }
}

fn stop(guest: &mut Guest) -> Vec<u16> {
    let queues = 0..guest.queues.len();
    let stop = |queue| guest.front_end.get_vring_base(queue);
    queues.map(stop).map(|base| base.unwrap() as u16).collect()
}

fn device() -> Device<impl MakeFileSystem> {
    Device::new(sessions(&memory(|_| ())), DeviceConfig::default()).unwrap()
}

fn begin() -> (Serving, Guest) {
    let make = sessions(&memory(|_| ()));
    let (_, serving, guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    (serving, guest)
}

#[test]
fn requests_left_in_flight_are_answered_by_the_next_server() {
    let (serving, mut guest) = begin();
    let bases = stop(&mut guest);
    let (given, file) = guest.front_end.get_inflight_fd(&wanted(&guest)).unwrap();
    guest
        .front_end
        .set_inflight_fd(&given, file.as_raw_fd())
        .unwrap();
    for (queue, base) in bases.into_iter().enumerate() {
        guest.start_queue(queue, base);
    }
    let request = guest.getattr(1).finish();
    let head = guest.submit(1, &request, 4096);
    let (used, _) = guest.next_used(1);
    assert_eq!(used, head);
    stop(&mut guest);
    // The table of queue 1: version, size, and nothing in flight.
    let at = given.mmap_size / u64::from(given.num_queues);
    let word = |at: u64| {
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, at).unwrap();
        u16::from_le_bytes(bytes)
    };
    let entry = at + 16 + 16 * u64::from(head);
    assert_eq!((word(at + 8), word(at + 10)), (1, ground::SIZE));
    assert_eq!((word(at + 14), word(entry)), (1, 0));
    // As if the server died after it took the next request.
    let request = guest.getattr(1).finish();
    let lost = guest.submit(1, &request, 4096);
    let entry = at + 16 + 16 * u64::from(lost);
    file.write_all_at(&[1], entry).unwrap();
    file.write_all_at(&9_u64.to_le_bytes(), entry + 8).unwrap();
    let Guest {
        front_end,
        memory,
        queues,
        ..
    } = guest;
    drop(front_end);
    assert_eq!(serving.join().unwrap().unwrap(), Served::Disconnected);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let device = device();
    let serving = std::thread::spawn(move || device.serve(theirs));
    let mut next = Guest::new(ours, queues.len() as u64, ALL_FEATURES);
    (next.memory, next.queues) = (memory, queues);
    next.negotiate();
    next.front_end
        .set_inflight_fd(&given, file.as_raw_fd())
        .unwrap();
    for queue in 0..next.queues.len() {
        next.start_queue(queue, 0);
    }
    let (used, length) = next.next_used(1);
    assert_eq!(used, lost);
    // The next server has no session.
    assert_eq!(error_of(&next.reply(1, used, length)), Errno::EIO.raw());
    end(serving, next);
}

#[test]
fn invalid_tables_are_refused() {
    let (serving, mut guest) = begin();
    let good = wanted(&guest);
    // A refused query ends the connection.
    let bad = VhostUserInflight {
        queue_size: 2048,
        ..good
    };
    assert!(guest.front_end.get_inflight_fd(&bad).is_err());
    drop(guest);
    assert!(serving.join().unwrap().is_err());
    let (serving, mut guest) = begin();
    stop(&mut guest);
    let short = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let bad = VhostUserInflight {
        mmap_size: 1 << 20,
        ..good
    };
    let set = guest.front_end.set_inflight_fd(&bad, short.as_raw_fd());
    assert!(set.is_err());
    drop(guest);
    assert!(serving.join().unwrap().is_err());
}

/// Offsets of the table and the progress records of queue 1 in the journal: see its module.
const TABLE: u64 = 4096 + 45_056;
const NOTES: u64 = TABLE + 16_448;

/// Begins a device with a journal in which a request of queue 1 was answered with 77 bytes. Returns its head.
fn begin_with_an_answered_request(device: Device<impl MakeFileSystem>) -> (Serving, Guest, u16) {
    let journal = Journal::new().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut guest = Guest::new(ours, 2, ALL_FEATURES);
    let request = guest.getattr(1).finish();
    let head = guest.submit(1, &request, 4096);
    let note = |at: u64, bytes: &[u8]| {
        assert_eq!(
            rustix::io::pwrite(&journal, bytes, at).unwrap(),
            bytes.len()
        );
    };
    note(TABLE + 8, &1_u16.to_ne_bytes());
    note(TABLE + 10, &ground::SIZE.to_ne_bytes());
    let entry = TABLE + 16 + 16 * u64::from(head);
    note(entry, &1_u64.to_ne_bytes());
    note(entry + 8, &5_u64.to_ne_bytes());
    let answered = 5_u64 << 34 | 2 << 32 | 77;
    note(NOTES + 24 * u64::from(head), &answered.to_ne_bytes());
    let serving = std::thread::spawn(move || {
        let options = ConnectionOptions {
            journal: Some(journal),
            ..ConnectionOptions::default()
        };
        device.serve_with(theirs, options)
    });
    guest.negotiate();
    (serving, guest, head)
}

#[test]
fn an_answered_request_is_returned_and_not_executed_again() {
    let device = device();
    let handle = device.handle();
    let (serving, mut guest, head) = begin_with_an_answered_request(device);
    for queue in 0..2 {
        guest.start_queue(queue, 0);
    }
    assert_eq!(guest.next_used(1), (head, 77));
    // The next request is executed.
    let request = guest.getattr(1).finish();
    let reply = guest.transact(1, &request, 4096);
    assert_eq!(error_of(&reply), Errno::EIO.raw());
    assert_eq!(handle.metrics().malformed, 1, "one request before INIT");
    end(serving, guest);
}

#[test]
fn requests_left_in_flight_survive_a_stop_before_the_queue_is_enabled() {
    let device = device();
    let (serving, mut guest, head) = begin_with_an_answered_request(device);
    guest.front_end.set_vring_num(1, ground::SIZE).unwrap();
    guest.front_end.set_vring_base(1, 0).unwrap();
    guest.place_queue(1, None);
    let kick = &guest.queues[1].kick;
    guest.front_end.set_vring_kick(1, kick).unwrap();
    let base = guest.front_end.get_vring_base(1).unwrap();
    guest.start_queue(1, base as u16);
    assert_eq!(guest.next_used(1), (head, 77));
    end(serving, guest);
}

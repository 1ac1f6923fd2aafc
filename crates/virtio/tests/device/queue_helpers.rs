//! A queue served with helper threads: parallel requests, and among them those that only the queue's own
//! thread executes.

use crate::ground::{
    ALL_FEATURES, Guest, PATIENCE, SIZE, SLOW, Serving, count, end, error_of, memory, serve,
    sessions,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thrufs::Opcode;
use thrufs_abi::Reply;
use thrufs_abi::layout::LkIn;
use thrufs_testing::memory::Files;
use thrufs_testing::wait_until;
use thrufs_virtio::{DeviceConfig, DeviceHandle};
use vhost::VhostBackend;

/// One less than the queue holds.
const MANY: usize = SIZE as usize - 1;
const PIECE_BYTES: usize = 4096;

/// Names of the threads that have read.
type Readers = Arc<Mutex<BTreeSet<String>>>;

fn begin(config: DeviceConfig) -> (Arc<Files>, DeviceHandle, Serving, Guest, Readers) {
    let config = DeviceConfig {
        queue_helpers_max: config.queue_helpers_max.or(Some(2)),
        ..config
    };
    let readers = Readers::default();
    let noted = Arc::clone(&readers);
    let files = memory(move |asked| {
        if asked.opcode == Opcode::Read {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            noted.lock().unwrap().insert(name);
        }
    });
    let (device, serving, mut guest) = serve(sessions(&files), config, ALL_FEATURES);
    guest.init().unwrap();
    (files, device.handle(), serving, guest, readers)
}

/// A file with a different piece for each of the parallel requests.
fn create(guest: &mut Guest) -> u64 {
    let (node, _) = guest.create("file");
    for number in 0..MANY {
        let at = (number * PIECE_BYTES) as u64;
        let request = guest.write_request(node, node, at, &[number as u8; PIECE_BYTES]);
        guest.tell_any(request);
    }
    node
}

fn read_piece(guest: &mut Guest, node: u64, fh: u64, number: usize) -> Vec<u8> {
    let at = (number * PIECE_BYTES) as u64;
    guest.read_request(node, fh, at, PIECE_BYTES as u32)
}

fn submit_reads(guest: &mut Guest, node: u64, count: usize) -> Vec<(u16, usize)> {
    let submit = |number| {
        let request = read_piece(guest, node, node, number);
        (guest.submit(1, &request, 16 + PIECE_BYTES), number)
    };
    (0..count).map(submit).collect()
}

/// Takes the answers to these reads, in any order.
fn take_reads(guest: &mut Guest, mut reads: Vec<(u16, usize)>) {
    while !reads.is_empty() {
        let (head, length) = guest.next_used(1);
        let position = reads.iter().position(|read| read.0 == head);
        let (_, number) = reads.swap_remove(position.expect("an answer to one of them"));
        let reply = guest.reply(1, head, length);
        let reply = Reply::parse(&reply).unwrap();
        assert_eq!(reply.error, 0);
        assert!(reply.body[..PIECE_BYTES] == [number as u8; PIECE_BYTES]);
    }
}

#[test]
fn helpers_serve_parallel_requests() {
    let (_, _, serving, mut guest, readers) = begin(DeviceConfig::default());
    let node = create(&mut guest);
    let deadline = Instant::now() + PATIENCE;
    let has_helped = || readers.lock().unwrap().contains("thrufs-helper");
    while !has_helped() {
        assert!(Instant::now() < deadline, "no helper has served");
        let reads = guest.at_once(|guest| submit_reads(guest, node, MANY));
        take_reads(&mut guest, reads);
    }
    assert_eq!(guest.next_used_within(1, Duration::from_millis(20)), None);
    end(serving, guest);
}

#[test]
fn without_helpers_the_queue_s_thread_serves_alone() {
    let config = DeviceConfig {
        queue_helpers_max: Some(0),
        ..DeviceConfig::default()
    };
    let (_, _, serving, mut guest, readers) = begin(config);
    let node = create(&mut guest);
    for _ in 0..20 {
        let reads = guest.at_once(|guest| submit_reads(guest, node, MANY));
        take_reads(&mut guest, reads);
    }
    let readers = readers.lock().unwrap();
    assert_eq!(*readers, BTreeSet::from(["thrufs-queue-1".to_owned()]));
    end(serving, guest);
}

#[test]
fn blocked_requests_delay_no_others() {
    let (files, _, serving, mut guest, _) = begin(DeviceConfig::default());
    let node = create(&mut guest);
    let (mut slow, mut reads) = (Vec::new(), Vec::new());
    guest.at_once(|guest| {
        for number in 0..6 {
            let request = read_piece(guest, node, SLOW.0, number);
            slow.push((guest.submit(1, &request, 16 + PIECE_BYTES), number));
        }
        reads = submit_reads(guest, node, MANY - 6);
    });
    take_reads(&mut guest, reads);
    assert_eq!(guest.next_used_within(1, Duration::from_millis(50)), None);
    files.gate.open();
    take_reads(&mut guest, slow);
    end(serving, guest);
}

#[test]
fn lock_waits_and_session_ends_among_parallel_requests() {
    let (files, device, serving, mut guest, _) = begin(DeviceConfig::default());
    for round in 1..=30 {
        let node = create(&mut guest);
        let (mut reads, mut locks) = (Vec::new(), Vec::new());
        guest.at_once(|guest| {
            reads = submit_reads(guest, node, 5);
            for _ in 0..3 {
                let request = guest.request(Opcode::Setlkw, node).arg(&LkIn::default());
                locks.push(guest.submit(1, &request.finish(), 16));
            }
            reads.extend(submit_reads(guest, node, 5));
        });
        take_reads(&mut guest, reads);
        wait_until("three wait", || device.metrics().lock_waiters >= 3);
        // The session ends among requests; each is answered, by either session. Heads of lock waits are
        // not reused.
        let mut others = Vec::new();
        guest.at_once(|guest| {
            for number in 0..7 {
                let request = match number {
                    4 => guest.request(Opcode::Destroy, 0),
                    _ => guest.getattr(node),
                };
                others.push(guest.submit(1, &request.finish(), 4096));
            }
        });
        for _ in 0..others.len() + locks.len() {
            let (head, length) = guest.next_used(1);
            if locks.contains(&head) {
                assert_eq!(error_of(&guest.reply(1, head, length)), 107, "ENOTCONN");
                locks.retain(|lock| *lock != head);
            } else {
                assert!(others.contains(&head), "an answer to one of them");
                others.retain(|other| *other != head);
            }
        }
        guest.init().unwrap();
        assert_eq!(count(&files.destroyed), round);
    }
    end(serving, guest);
}

#[test]
fn a_queue_that_breaks_during_a_lease_stops_without_delay() {
    // Far longer than this test takes.
    const DRAIN: Duration = Duration::from_secs(40);
    let config = DeviceConfig {
        drain_timeout: DRAIN,
        ..DeviceConfig::default()
    };
    let (_, _, serving, mut guest, _) = begin(config);
    let node = create(&mut guest);
    for _ in 0..30 {
        guest.at_once(|guest| {
            submit_reads(guest, node, 9);
            guest.offer(1, SIZE);
            guest.offer(1, 0);
        });
        wait_until("the error eventfd is signalled", || guest.error_reported(1));
        let begun = Instant::now();
        let base = guest.front_end.get_vring_base(1).unwrap() as u16;
        assert!(begun.elapsed() < DRAIN, "it waits for lost requests");
        guest.queues[1].available = base;
        guest.set_available(1, base);
        while guest.next_used_within(1, Duration::ZERO).is_some() {}
        guest.start_queue(1, base);
        let reads = submit_reads(&mut guest, node, MANY);
        take_reads(&mut guest, reads);
    }
    end(serving, guest);
}

#[test]
fn a_queue_stopped_during_a_lease_continues_where_it_was() {
    let (_, _, serving, mut guest, _) = begin(DeviceConfig::default());
    let node = create(&mut guest);
    for _ in 0..50 {
        let reads = guest.at_once(|guest| submit_reads(guest, node, MANY));
        let base = guest.front_end.get_vring_base(1).unwrap() as u16;
        guest.start_queue(1, base);
        take_reads(&mut guest, reads);
        assert_eq!(guest.next_used_within(1, Duration::ZERO), None);
    }
    end(serving, guest);
}

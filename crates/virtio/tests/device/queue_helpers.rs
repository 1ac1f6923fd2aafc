//! A queue served with helper threads: parallel requests, and among them those that only the queue's own
//! thread executes.

use crate::ground::memory::{Journal, Memory};
use crate::ground::{ALL_FEATURES, Guest, PATIENCE, SIZE, Serving, end, error_of, serve, until};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::Opcode;
use thrufs_abi::layout::{CreateIn, EntryOut, GetattrIn, LkIn, ReadIn, WriteIn};
use thrufs_abi::{Reply, RequestBuilder};
use thrufs_virtio::{DeviceConfig, DeviceHandle};
use vhost::VhostBackend;
use zerocopy::FromBytes;

/// One less than the queue holds.
const MANY: usize = SIZE as usize - 1;
const PIECE_BYTES: usize = 4096;

fn begin(config: DeviceConfig) -> (Arc<Journal>, DeviceHandle, Serving, Guest) {
    let journal = Arc::<Journal>::default();
    let config = DeviceConfig {
        queue_helpers_max: Some(2),
        ..config
    };
    let (device, serving, mut guest) = serve(Memory::make(&journal), config, ALL_FEATURES);
    guest.init().unwrap();
    (journal, device.handle(), serving, guest)
}

/// A file with a different piece for each of the parallel requests.
fn create(guest: &mut Guest) -> u64 {
    let arg = CreateIn {
        flags: 2,
        mode: 0o100_644,
        ..CreateIn::default()
    };
    let request = guest.request(Opcode::Create, 1).arg(&arg).name(b"file");
    let reply = guest.transact(1, &request.finish(), 4096);
    let (entry, _) = EntryOut::read_from_prefix(Reply::parse(&reply).unwrap().body).unwrap();
    for number in 0..MANY {
        let request = write_piece(guest, entry.nodeid, number);
        let reply = guest.transact(1, &request.finish(), 24);
        assert_eq!(Reply::parse(&reply).unwrap().error, 0);
    }
    entry.nodeid
}

fn write_piece(guest: &mut Guest, node: u64, number: usize) -> RequestBuilder {
    let arg = WriteIn {
        fh: node,
        offset: (number * PIECE_BYTES) as u64,
        size: PIECE_BYTES as u32,
        ..WriteIn::default()
    };
    let request = guest.request(Opcode::Write, node).arg(&arg);
    request.bytes(&[number as u8; PIECE_BYTES])
}

fn read_piece(guest: &mut Guest, node: u64, fh: u64, number: usize) -> RequestBuilder {
    let arg = ReadIn {
        fh,
        offset: (number * PIECE_BYTES) as u64,
        size: PIECE_BYTES as u32,
        ..ReadIn::default()
    };
    guest.request(Opcode::Read, node).arg(&arg)
}

fn submit_reads(guest: &mut Guest, node: u64, count: usize) -> Vec<(u16, usize)> {
    let submit = |number| {
        let request = read_piece(guest, node, node, number).finish();
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
    let (journal, _, serving, mut guest) = begin(DeviceConfig::default());
    let node = create(&mut guest);
    let deadline = Instant::now() + PATIENCE;
    let has_helped = || journal.readers.lock().unwrap().contains("thrufs-helper");
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
    let journal = Arc::<Journal>::default();
    let config = DeviceConfig {
        queue_helpers_max: Some(0),
        ..DeviceConfig::default()
    };
    let (_, serving, mut guest) = serve(Memory::make(&journal), config, ALL_FEATURES);
    guest.init().unwrap();
    let node = create(&mut guest);
    for _ in 0..20 {
        let reads = guest.at_once(|guest| submit_reads(guest, node, MANY));
        take_reads(&mut guest, reads);
    }
    let readers = journal.readers.lock().unwrap().clone();
    assert_eq!(readers, BTreeSet::from(["thrufs-queue-1".to_owned()]));
    end(serving, guest);
}

#[test]
fn blocked_requests_delay_no_others() {
    let (journal, _, serving, mut guest) = begin(DeviceConfig::default());
    let node = create(&mut guest);
    let (mut slow, mut reads) = (Vec::new(), Vec::new());
    guest.at_once(|guest| {
        for number in 0..6 {
            let request = read_piece(guest, node, 99, number).finish();
            slow.push((guest.submit(1, &request, 16 + PIECE_BYTES), number));
        }
        reads = submit_reads(guest, node, MANY - 6);
    });
    take_reads(&mut guest, reads);
    assert_eq!(guest.next_used_within(1, Duration::from_millis(50)), None);
    journal.gate.open();
    take_reads(&mut guest, slow);
    end(serving, guest);
}

#[test]
fn lock_waits_and_session_ends_among_parallel_requests() {
    let (journal, device, serving, mut guest) = begin(DeviceConfig::default());
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
        until("three wait", || device.metrics().lock_waiters >= 3);
        // The session ends among requests; each is answered, by either session. Heads of lock waits are
        // not reused.
        let mut others = Vec::new();
        guest.at_once(|guest| {
            for number in 0..7 {
                let request = match number {
                    4 => guest.request(Opcode::Destroy, 0),
                    _ => guest
                        .request(Opcode::Getattr, node)
                        .arg(&GetattrIn::default()),
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
        assert_eq!(Journal::count(&journal.destroyed), round);
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
    let (_, _, serving, mut guest) = begin(config);
    let node = create(&mut guest);
    for _ in 0..30 {
        guest.at_once(|guest| {
            submit_reads(guest, node, 9);
            guest.offer(1, SIZE);
            guest.offer(1, 0);
        });
        until("the error eventfd is signalled", || guest.error_reported(1));
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
    let (_, _, serving, mut guest) = begin(DeviceConfig::default());
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

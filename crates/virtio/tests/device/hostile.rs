//! Guests and front ends that send arbitrary bytes: the device answers or refuses, and serves the next as if
//! nothing had happened.

use crate::ground::{
    self, ALL_FEATURES, Guest, SIZE, connect, count, end, memory, serve, sessions,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use thrufs::Opcode;
use thrufs_abi::{Dialect, op_struct_size};
use thrufs_testing::Random;
use thrufs_virtio::{Device, DeviceConfig, DeviceError, Served};
use vhost::VhostBackend;

fn config() -> DeviceConfig {
    DeviceConfig {
        // Small limits, so that they are reached.
        blocked_max: 2,
        lock_waiters_max: 2,
        queue_helpers_max: Some(2),
        drain_timeout: Duration::from_secs(10),
        ..DeviceConfig::default()
    }
}

/// A descriptor that is mostly plausible.
fn put_descriptor(guest: &Guest, numbers: &mut Random, queue: usize, at: u64) {
    let address = match numbers.below(8) {
        0 => numbers.number(),
        1 => u64::MAX - numbers.below(32) as u64,
        _ => guest.guest_address(queue, 0x8000 + numbers.below(0x800) as u64),
    };
    let length = match numbers.below(8) {
        0 => numbers.number() as u32,
        1 => 16 * numbers.below(8) as u32,
        2 => 0,
        _ => numbers.below(300) as u32,
    };
    let flags = match numbers.below(8) {
        0 => numbers.number() as u16,
        1 => 4,
        _ => numbers.below(4) as u16,
    };
    let next = numbers.below(usize::from(SIZE) + 1) as u16;
    guest.descriptor(queue, at, address, length, flags, next);
}

/// A request of any operation but INIT and DESTROY, with arbitrary arguments.
fn any_request(numbers: &mut Random) -> Vec<u8> {
    let opcode = numbers.pick(Opcode::ALL);
    let opcode = match opcode {
        Opcode::Init | Opcode::Destroy => Opcode::Write,
        other => other,
    };
    let structure = op_struct_size(opcode, Dialect::INITIAL);
    let rest: &[u8] = numbers.pick(&[&b""[..], b"", b"file\0", b"a\0b\0"]);
    let length = match numbers.below(4) {
        0 => 40 + numbers.below(160),
        _ => 40 + structure,
    };
    let small = numbers.below(2) == 0;
    let byte = |_| (numbers.number() % if small { 4 } else { 256 }) as u8;
    let mut bytes: Vec<u8> = (0..length).map(byte).collect();
    bytes.extend(rest);
    let length = bytes.len();
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&opcode.number().to_le_bytes());
    bytes[16..24].copy_from_slice(&(numbers.number() % 4).to_le_bytes());
    bytes[36..40].fill(0);
    bytes
}

#[test]
fn arbitrary_descriptors_and_requests_are_survived() {
    let files = memory(|_| ());
    files.gate.open();
    let (device, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
    guest.init().unwrap();
    let mut numbers = Random(thrufs_test_report::seed());
    for _ in 0..200 {
        for queue in 0..2 {
            for _ in 0..8 {
                let at = 16 * (numbers.number() % u64::from(SIZE));
                put_descriptor(&guest, &mut numbers, queue, at);
                let at = 0x8000 + 16 * (numbers.number() % 0x80);
                match numbers.below(2) {
                    0 => put_descriptor(&guest, &mut numbers, queue, at),
                    _ => guest.put(queue, at, &any_request(&mut numbers)),
                }
                if numbers.below(2) == 0 {
                    let room = numbers.pick(&[0, 8, 16, 100, 5000]);
                    guest.submit(queue, &any_request(&mut numbers), room);
                    continue;
                }
                let head = numbers.below(usize::from(SIZE) + 1) as u16;
                // Seldom one beyond the table, which breaks the queue.
                let head = head.min(SIZE - u16::from(!numbers.once_in(50)));
                guest.offer(queue, head);
            }
            if numbers.below(10) == 0 {
                guest.set_available(queue, numbers.number() as u16);
            }
        }
        // Resets broken queues.
        for queue in 0..2 {
            let base = guest.front_end.get_vring_base(queue).unwrap();
            guest.queues[queue].available = base as u16;
            guest.set_available(queue, base as u16);
            guest.start_queue(queue, base as u16);
        }
    }
    end(serving, guest);
    let counts = device.handle().metrics();
    assert!(
        counts.malformed > 100 && counts.requests() > 100,
        "{counts}"
    );
    assert_eq!(counts.panics, 0);
    assert_eq!(
        (counts.blocked, counts.lock_waiters),
        (0, 0),
        "none is left blocked"
    );
    let destroyed = count(&files.destroyed);
    assert_eq!(count(&files.made), destroyed);
    let (serving, mut guest) = connect(&device, &config(), ALL_FEATURES);
    guest.init().unwrap();
    end(serving, guest);
}

/// The device copies a request before it writes the reply where the request was.
#[test]
fn a_reply_may_overwrite_its_request() {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    let files = memory(|_| ());
    files.gate.open();
    let (_device, serving, mut guest) = serve(sessions(&files), config(), ALL_FEATURES);
    guest.init().unwrap();
    for overlap in [0, 8, 40] {
        let request = guest.getattr(1).finish();
        let expected = guest.transact(1, &request, 4096);
        let (at, reply_at) = (0x8000, 0x8000 + overlap);
        guest.put(1, at, &request);
        let address = |at| guest.guest_address(1, at);
        guest.descriptor(1, 0, address(at), request.len() as u32, NEXT, 1);
        guest.descriptor(1, 16, address(reply_at), 4096, WRITE, 0);
        guest.offer(1, 0);
        let (head, length) = guest.next_used(1);
        assert_eq!((head, length as usize), (0, expected.len()));
        assert_eq!(guest.bytes(1, reply_at, length), expected);
    }
    end(serving, guest);
}

#[test]
fn arbitrary_vhost_user_messages_are_survived() {
    let files = memory(|_| ());
    let device = Arc::new(Device::new(sessions(&files), config()).unwrap());
    let mut numbers = Random(thrufs_test_report::seed());
    for round in 0..300 {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let serving = {
            let device = Arc::clone(&device);
            std::thread::spawn(move || device.serve(theirs))
        };
        for _ in 0..numbers.below(6) {
            let size = match numbers.below(4) {
                0 => numbers.number() as u32,
                _ => 8 * numbers.below(8) as u32,
            };
            let mut message = Vec::new();
            message.extend((1 + numbers.below(44) as u32).to_le_bytes());
            message.extend((1 | (8 * numbers.below(2) as u32)).to_le_bytes());
            message.extend(size.to_le_bytes());
            // Sometimes fewer bytes than announced.
            let sent = size.min(256).saturating_sub(numbers.once_in(9).into());
            message.extend((0..sent).map(|_| numbers.below(3) as u8));
            if ours.write_all(&message).is_err() {
                break;
            }
        }
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        ours.set_read_timeout(Some(ground::PATIENCE)).unwrap();
        let mut answers = Vec::new();
        let _ = ours.take(1 << 20).read_to_end(&mut answers);
        let served = serving.join().unwrap();
        let expected = matches!(
            served,
            Ok(Served::Disconnected) | Err(DeviceError::Protocol(_))
        );
        assert!(expected, "{round}: {served:?}");
    }
    assert_eq!(count(&files.made), 0);
}

//! Requests of a guest that the file system answers later, by a thread of its own.

use crate::ground::{
    ALL_FEATURES, Guest, SIZE, SLOW, Serving, count, end, error_of, serve, sessions,
};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;
use thrufs::{Errno, Opcode};
use thrufs_abi::Reply;
use thrufs_testing::memory::{Asked, Files, Settings};
use thrufs_testing::{When, wait_until};
use thrufs_virtio::{DeviceConfig, DeviceHandle};
use vhost::VhostBackend;

/// More requests than threads may sleep.
const MANY: usize = 14;

const DATA: &[u8] = b"what comes later";

fn begin(
    when: impl Fn(&Asked<'_>) -> When + Send + Sync + 'static,
) -> (Arc<Files>, Serving, Guest, DeviceHandle) {
    let files = Files::new(Settings {
        when: Some(Box::new(when)),
        ..Settings::default()
    });
    let config = DeviceConfig {
        request_queues: NonZeroU16::new(2).unwrap(),
        drain_timeout: Duration::from_secs(5),
        blocked_max: 1,
        ..DeviceConfig::default()
    };
    let (device, serving, mut guest) = serve(sessions(&files), config, ALL_FEATURES);
    guest.init().unwrap();
    (files, serving, guest, device.handle())
}

/// Reads by a handle that no file has.
fn slow_reads() -> (Arc<Files>, Serving, Guest, DeviceHandle, u64) {
    let (files, serving, mut guest, device) = begin(|asked| match asked.handle {
        SLOW => When::Later,
        _ => When::Now,
    });
    let (node, handle) = guest.create("file");
    let write = guest.write_request(node, handle, 0, DATA);
    guest.tell_any(write);
    (files, serving, guest, device, node)
}

fn submit_slow(guest: &mut Guest, queue: usize, node: u64) -> u16 {
    let request = guest.read_request(node, SLOW.0, 0, 100);
    guest.submit(queue, &request, 116)
}

fn is_served(guest: &mut Guest, node: u64) {
    let request = guest.getattr(node);
    guest.tell_any(request);
}

#[test]
fn more_are_out_than_threads_may_sleep_and_others_are_served() {
    let (files, serving, mut guest, device, node) = slow_reads();
    assert!(MANY < usize::from(SIZE));
    // One after the other, and at once: then helpers take some.
    for at_once in [false, true] {
        let submit = |guest: &mut Guest| -> Vec<u16> {
            let submit = |_| submit_slow(guest, 1, node);
            (0..MANY).map(submit).collect()
        };
        let mut heads = if at_once {
            guest.at_once(submit)
        } else {
            submit(&mut guest)
        };
        let calls = files.late.take(MANY);
        is_served(&mut guest, node);
        let snapshot = device.metrics();
        assert_eq!(
            (snapshot.late, snapshot.blocked),
            (MANY as u64, 0),
            "{snapshot}"
        );
        let giver = std::thread::spawn(|| calls.into_iter().for_each(|call| call.give(Ok(()))));
        giver.join().unwrap();
        let mut used: Vec<u16> = (0..MANY)
            .map(|_| {
                let (head, length) = guest.next_used(1);
                let reply = guest.reply(1, head, length);
                assert_eq!(Reply::parse(&reply).unwrap().body, DATA);
                head
            })
            .collect();
        used.sort_unstable();
        heads.sort_unstable();
        assert_eq!(used, heads);
    }
    wait_until("none is out", || device.metrics().late == 0);
    end(serving, guest);
}

#[test]
fn answers_before_the_method_returns_errors_and_none_at_all() {
    for (when, expected) in [
        (When::Before, 0),
        (When::Dropped, Errno::EIO.raw()),
        (When::Later, Errno::EDQUOT.raw()),
    ] {
        let (files, serving, mut guest, _) = begin(move |asked| match asked.opcode {
            Opcode::Getattr => when,
            _ => When::Now,
        });
        let (node, _) = guest.create("file");
        let request = guest.getattr(node).finish();
        let head = guest.submit(2, &request, 4096);
        if when == When::Later {
            files.late.take(1).remove(0).give(Err(Errno::EDQUOT));
        }
        let (_, length) = guest.next_used(2);
        let reply = guest.reply(2, head, length);
        assert_eq!(-Reply::parse(&reply).unwrap().error, expected);
        end(serving, guest);
    }
}

#[test]
fn a_queue_that_is_stopped_waits_for_the_answer() {
    let (files, serving, mut guest, _, node) = slow_reads();
    let head = submit_slow(&mut guest, 1, node);
    let mut calls = files.late.take(1);
    let giver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        calls.remove(0).give(Ok(()));
    });
    guest.front_end.get_vring_base(1).unwrap();
    let used = guest.next_used_within(1, Duration::ZERO);
    assert_eq!(used, Some((head, 16 + DATA.len() as u32)));
    giver.join().unwrap();
    end(serving, guest);
}

/// DESTROY, the next INIT, and a guest that is gone.
#[test]
fn the_end_of_a_session_answers_what_is_out_and_leaves_nothing() {
    let (files, serving, mut guest, _, node) = slow_reads();
    for opcode in [Opcode::Destroy, Opcode::Init] {
        let head = submit_slow(&mut guest, 1, node);
        let calls = files.late.take(1);
        let request = match opcode {
            Opcode::Init => guest.init_request(),
            opcode => guest.request(opcode, 0).finish(),
        };
        guest.transact(2, &request, 4096);
        let (used, length) = guest.next_used(1);
        assert_eq!(used, head);
        let error = error_of(&guest.reply(1, head, length));
        assert_eq!(error, Errno::ENOTCONN.raw());
        assert!(calls[0].is_interrupted());
        calls.into_iter().for_each(|call| call.give(Ok(())));
        let ended = count(&files.made) - usize::from(opcode == Opcode::Init);
        wait_until("it is over", || count(&files.dropped) == ended);
        if opcode == Opcode::Destroy {
            guest.init().unwrap();
        }
        guest.create("file");
    }
    submit_slow(&mut guest, 1, node);
    let calls = files.late.take(1);
    end(serving, guest);
    assert_eq!(count(&files.dropped), count(&files.made));
    calls.into_iter().for_each(|call| call.give(Ok(())));
}

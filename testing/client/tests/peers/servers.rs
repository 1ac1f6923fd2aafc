//! The front end against real servers.

use crate::ground::{Ground, grounds};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use thrufs::Errno;
use thrufs_abi::layout::GetattrIn;
use thrufs_abi::{NodeId, Opcode};
use thrufs_client::misbehave::{leave_after, steps};
use thrufs_client::{Client, FIRST_REQUEST_QUEUE, FrontEnd, FrontEndConfig, SubmitError};

const ROOT: NodeId = NodeId::ROOT;
/// `O_RDWR`.
const READ_WRITE: i32 = 2;

fn mount(ground: &Ground, config: &FrontEndConfig) -> Client<FrontEnd> {
    Client::mount(FrontEnd::connect(ground.socket(), config).unwrap()).unwrap()
}

/// Bytes that are nowhere the same for long.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn a_file_is_made_written_read_and_removed() {
    for ground in grounds() {
        let client = mount(&ground, &FrontEndConfig::default());
        let root = client.root();
        let (entry, open) = root.create(ROOT, b"file", READ_WRITE, 0o644).unwrap();
        let node = NodeId(entry.nodeid);
        let bytes = pattern(1 << 20);
        assert_eq!(root.write(node, open.fh, 10, &bytes, 0), Ok(1 << 20));
        assert_eq!(root.read(node, open.fh, 10, 1 << 20).unwrap(), bytes);
        assert_eq!(root.read(node, open.fh, 0, 12).unwrap()[10..], bytes[..2]);
        let on_disk = std::fs::read(ground.shared().join("file")).unwrap();
        assert_eq!(on_disk[10..], bytes);
        let size = root.lookup(ROOT, b"file").unwrap().attr.size;
        assert_eq!(size, (1 << 20) + 10);
        assert_eq!(root.walk("none"), Err(Errno::ENOENT));
        root.release(node, open.fh).unwrap();
        root.unlink(ROOT, b"file").unwrap();
        root.forget(node, 2);
        assert!(!ground.shared().join("file").exists());
        client.unmount();
    }
}

#[test]
fn it_is_mounted_again_on_the_same_connection() {
    for ground in grounds() {
        std::fs::write(ground.shared().join("file"), b"12345").unwrap();
        let client = mount(&ground, &FrontEndConfig::default());
        let before = client.root().walk("file").unwrap();
        let front_end = client.unmount();
        let client = Client::mount(front_end).unwrap();
        let known = client.root().getattr(before);
        assert!(known.is_err(), "nodes end with the session that saw them");
        let entry = client.root().lookup(ROOT, b"file").unwrap();
        assert_eq!(entry.attr.size, 5);
    }
}

/// Small queues, direct descriptors, no event index: what a Linux guest does is not all there is.
#[test]
fn every_way_of_using_a_queue_works() {
    for ground in grounds() {
        let config = FrontEndConfig {
            queue_size: 16,
            requests_max: 4,
            segment_bytes: 64 * 1024,
            indirect_descriptors: false,
            event_index: false,
            ..FrontEndConfig::default()
        };
        let client = mount(&ground, &config);
        let root = client.root();
        let (entry, open) = root.create(ROOT, b"file", READ_WRITE, 0o644).unwrap();
        let node = NodeId(entry.nodeid);
        let bytes = pattern(300_000);
        assert_eq!(root.write(node, open.fh, 0, &bytes, 0), Ok(300_000));
        assert_eq!(root.read(node, open.fh, 0, 300_000).unwrap(), bytes);
        for _ in 0..1000 {
            assert_eq!(root.getattr(node).unwrap().attr.size, 300_000);
        }
    }
}

#[test]
fn threads_share_one_queue_and_each_gets_its_own_reply() {
    for ground in grounds() {
        let config = FrontEndConfig {
            // Fewer buffers than threads: some have to wait for one.
            requests_max: 3,
            ..FrontEndConfig::default()
        };
        let client = mount(&ground, &config);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let root = client.root();
                scope.spawn(move || {
                    let name = format!("file-{thread}");
                    let created = root.create(ROOT, name.as_bytes(), READ_WRITE, 0o644);
                    let (entry, open) = created.unwrap();
                    let node = NodeId(entry.nodeid);
                    for round in 0..200_u64 {
                        let bytes = [thread, round].map(u64::to_ne_bytes).concat();
                        root.write(node, open.fh, round * 16, &bytes, 0).unwrap();
                        let back = root.read(node, open.fh, round * 16, 16).unwrap();
                        assert_eq!(back, bytes);
                    }
                });
            }
        });
    }
}

#[test]
fn many_requests_are_in_flight_at_once() {
    for ground in grounds() {
        let client = mount(&ground, &FrontEndConfig::default());
        let mut queue = client.carrier().queue(FIRST_REQUEST_QUEUE).unwrap();
        let mut sent = HashSet::new();
        let refused = loop {
            let request = client.root().request(Opcode::Getattr, ROOT);
            match queue.submit_request(&request.arg(&GetattrIn::default()).finish()) {
                Ok(token) => assert!(sent.insert(token)),
                Err(error) => break error,
            }
        };
        assert_eq!((refused, sent.len()), (SubmitError::Full, 128));
        assert_eq!(queue.in_flight(), 128);
        queue.notify().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while queue.in_flight() > 0 {
            assert!(queue.wait(Some(deadline)).unwrap(), "some are not answered");
            while let Some(completion) = queue.poll().unwrap() {
                assert!(sent.remove(&completion.token()));
                assert_eq!(queue.reply_header(&completion).unwrap().error, 0);
                queue.free(completion);
            }
        }
        assert!(sent.is_empty());
    }
}

#[test]
fn a_server_that_dies_leaves_nobody_waiting() {
    for ground in grounds() {
        let client = mount(&ground, &FrontEndConfig::default());
        assert!(client.root().getattr(ROOT).is_ok());
        drop(ground);
        let start = Instant::now();
        assert!(client.root().getattr(ROOT).is_err());
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn what_the_server_offers_is_known() {
    for ground in grounds() {
        let config = FrontEndConfig {
            request_queues: 4,
            ..FrontEndConfig::default()
        };
        let front_end = FrontEnd::connect(ground.socket(), &config).unwrap();
        assert_eq!(front_end.tag(), Some(&b"peer"[..]));
        let queues = ground.server.request_queues.min(4);
        assert_eq!(front_end.request_queues(), queues);
        assert!(front_end.agreed().queues_max > queues.into());
        assert!(front_end.queue(queues).is_some());
        assert!(front_end.queue(queues + 1).is_none());
    }
}

#[test]
fn a_handshake_is_left_anywhere() {
    for step in steps(1) {
        for ground in grounds() {
            let stream = std::os::unix::net::UnixStream::connect(ground.socket()).unwrap();
            assert!(leave_after(stream, &FrontEndConfig::default(), step).unwrap());
            if ground.server.serves_again {
                let client = mount(&ground, &FrontEndConfig::default());
                assert!(client.root().getattr(ROOT).is_ok(), "after {step:?}");
            }
        }
    }
}

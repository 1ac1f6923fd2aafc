//! The front end against real servers.

use crate::ground::{Ground, grounds};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use thrufs_abi::layout::GetattrIn;
use thrufs_abi::{NodeId, Opcode};
use thrufs_client::{Client, FIRST_REQUEST_QUEUE, FrontEnd, FrontEndConfig, SubmitError};

const ROOT: NodeId = NodeId::ROOT;
/// `O_RDWR`.
const READ_WRITE: i32 = 2;

fn mount(ground: &Ground, config: &FrontEndConfig) -> Client<FrontEnd> {
    Client::mount(FrontEnd::connect(ground.socket(), config).unwrap()).unwrap()
}

/// Bytes without repetition.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// Small queues, direct descriptors, no event index: other than Linux.
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
fn requests_fail_when_the_server_dies() {
    for ground in grounds() {
        let client = mount(&ground, &FrontEndConfig::default());
        assert!(client.root().getattr(ROOT).is_ok());
        drop(ground);
        let start = Instant::now();
        assert!(client.root().getattr(ROOT).is_err());
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

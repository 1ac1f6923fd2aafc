//! The client, with the test as its server: files by node, mapped into the window of a front end.

use super::*;
use crate::Client;
use crate::front_end::window_tests::back_end::{LIMIT, Sent, WINDOW_BYTES};
use crate::front_end::window_tests::common::{Ground, file};
use crate::front_end::{FrontEnd, WindowConfig};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use thrufs_abi::layout::{InHeader, InitOut, OutHeader};
use thrufs_abi::{InitFlags, Opcode, Reply};
use zerocopy::{FromBytes, IntoBytes};

/// Ranges in the window of the tests.
const RANGES: u64 = WINDOW_BYTES / DAX_RANGE_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Init(InitFlags),
    /// Node, range of the file, range of the window, flags.
    SetUp(u64, u64, u64, u64),
    /// Node and ranges of the window.
    Remove(u64, usize),
}

/// A server of the files 1, 2, and so on.
struct Server {
    ground: Ground,
    files: Vec<File>,
    asked: Mutex<Vec<Asked>>,
    /// Places of the window.
    mapped: Mutex<HashSet<u64>>,
}

impl Server {
    fn new(files: Vec<File>, window_bytes: u64) -> Server {
        Server {
            ground: Ground::with_window(WindowConfig::as_specified(), window_bytes),
            files,
            asked: Mutex::default(),
            mapped: Mutex::default(),
        }
    }

    fn front_end(&self) -> &FrontEnd {
        &self.ground.front_end
    }

    fn note(&self, asked: Asked) {
        self.asked.lock().unwrap().push(asked);
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn set_up(&self, node: u64, body: &[u8]) -> i32 {
        let arg = SetupmappingIn::read_from_bytes(body).unwrap();
        assert_eq!((arg.fh, arg.len), (u64::MAX, DAX_RANGE_BYTES));
        let place = arg.moffset / DAX_RANGE_BYTES;
        self.note(Asked::SetUp(
            node,
            arg.foffset / DAX_RANGE_BYTES,
            place,
            arg.flags,
        ));
        let Some(file) = self.files.get(node as usize - 1) else {
            return -Errno::ENOENT.raw();
        };
        // For writing at once, so that an upgrade needs no other mapping.
        if self.mapped.lock().unwrap().insert(place) {
            let sent = Sent {
                file_offset: arg.foffset,
                ..Sent::at(arg.moffset, arg.len)
            };
            assert_eq!(self.ground.channel.map(sent, file), 0);
        }
        0
    }

    fn remove(&self, node: u64, body: &[u8]) -> i32 {
        let (count, list) = body.split_first_chunk().unwrap();
        let (one, _) = list.as_chunks::<16>();
        assert_eq!(u32::from_ne_bytes(*count) as usize, one.len());
        self.note(Asked::Remove(node, one.len()));
        for one in one {
            let one = RemovemappingOne::read_from_bytes(one).unwrap();
            assert_eq!(self.ground.channel.unmap(Sent::at(one.moffset, one.len)), 0);
            let place = one.moffset / DAX_RANGE_BYTES;
            assert!(self.mapped.lock().unwrap().remove(&place));
        }
        0
    }

    fn init(&self, body: &[u8]) -> InitOut {
        let word = |at: usize| u64::from(u32::from_ne_bytes(*body[at..].first_chunk().unwrap()));
        self.note(Asked::Init(InitFlags::from_bits_retain(
            word(12) | word(16) << 32,
        )));
        InitOut {
            major: 7,
            minor: 45,
            ..InitOut::default()
        }
    }
}

impl Carrier for Server {
    fn transact(&self, request: &[u8], _: usize) -> Vec<u8> {
        let (header, body) = InHeader::read_from_prefix(request).unwrap();
        let mut answer = Vec::new();
        let error = if header.opcode == Opcode::SetupMapping.number() {
            self.set_up(header.nodeid, body)
        } else if header.opcode == Opcode::RemoveMapping.number() {
            self.remove(header.nodeid, body)
        } else {
            answer.extend(self.init(body).as_bytes());
            0
        };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + answer.len()) as u32,
            error,
            unique: header.unique,
        };
        let reply = [header.as_bytes(), &answer].concat();
        assert!(Reply::parse(&reply).is_some());
        reply
    }
}

/// Calls `test` with a client of a server of `files`.
fn with(files: Vec<File>, test: impl FnOnce(&Server, &DaxClient<'_, &Server>)) {
    let server = Server::new(files, WINDOW_BYTES);
    let client = Client::mount_with_window(&server).unwrap();
    let window = server.front_end().window().unwrap();
    let dax = DaxClient::new(client.root(), window);
    let [Asked::Init(offered)] = server.asked()[..] else {
        panic!("INIT is first");
    };
    assert!(offered.contains(InitFlags::MAP_ALIGNMENT | InitFlags::HAS_INODE_DAX));
    test(&server, &dax);
}

const READ: u64 = SETUPMAPPING_READ;
const BOTH: u64 = SETUPMAPPING_READ | SETUPMAPPING_WRITE;
const FIRST: NodeId = NodeId(1);

#[test]
fn a_range_is_set_up_once_and_upgraded_for_a_store() {
    let served = file(3 << 20);
    let beneath = served.try_clone().unwrap();
    with(vec![served], |server, dax| {
        let mut seen = [9; 4];
        dax.read(FIRST, 4094, &mut seen).unwrap();
        assert_eq!(seen, [0, 0, 1, 1]);
        dax.load(FIRST, 8190, &mut seen).unwrap();
        assert_eq!(seen, [1, 1, 2, 2]);
        assert_eq!(server.asked(), [Asked::SetUp(1, 0, 0, READ)]);
        dax.write(FIRST, 100, b"first").unwrap();
        dax.write(FIRST, 200, b"second").unwrap();
        dax.read(FIRST, 100, &mut seen).unwrap();
        assert_eq!(&seen, b"firs");
        assert_eq!(server.asked(), [Asked::SetUp(1, 0, 0, BOTH)]);
        dax.write(FIRST, DAX_RANGE_BYTES - 2, b"over").unwrap();
        assert_eq!(server.asked(), [Asked::SetUp(1, 1, 1, BOTH)]);
        let mut bytes = [0; 4];
        beneath
            .read_exact_at(&mut bytes, DAX_RANGE_BYTES - 2)
            .unwrap();
        assert_eq!(&bytes, b"over");
        let counts = dax.counts();
        assert_eq!((counts.set_ups, counts.upgrades, counts.removed), (2, 1, 0));
    });
}

#[test]
fn a_full_window_takes_the_ranges_that_were_not_used_for_longest() {
    let big = File::from(rustix::fs::memfd_create("big", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    big.set_len((RANGES + 4) * DAX_RANGE_BYTES).unwrap();
    with(vec![big, file(4096)], |server, dax| {
        let mut byte = [9];
        for range in 0..RANGES {
            dax.read(FIRST, range * DAX_RANGE_BYTES, &mut byte).unwrap();
        }
        assert_eq!(
            server.asked().len() as u64,
            RANGES,
            "all of them are free at first"
        );
        // The fifth part of eight ranges is one: reclaimed when none is free.
        let second = NodeId(2);
        dax.read(second, 0, &mut byte).unwrap();
        let asked = server.asked();
        let removed = asked.iter().filter(|one| **one == Asked::Remove(1, 1));
        assert_eq!(removed.count(), RANGES as usize, "ten at a time, or all");
        assert_eq!(asked.last(), Some(&Asked::SetUp(2, 0, 7, READ)));
        let window = server.front_end().window().unwrap();
        assert_eq!(window.mappings().len(), 1);
        assert_eq!(window.counts().live_max as u64, RANGES);
    });
}

#[test]
fn a_range_that_was_used_is_reclaimed_last() {
    let ranges = 16;
    let big = File::from(rustix::fs::memfd_create("big", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    big.set_len(ranges * DAX_RANGE_BYTES).unwrap();
    let server = Server::new(vec![big], ranges * DAX_RANGE_BYTES);
    let client = Client::mount_with_window(&server).unwrap();
    let dax = DaxClient::new(client.root(), server.front_end().window().unwrap());
    let mut byte = [9];
    // A fifth of sixteen is three: the fifteenth range is set up when two are free.
    for range in 0..14 {
        dax.read(FIRST, range * DAX_RANGE_BYTES, &mut byte).unwrap();
    }
    dax.read(FIRST, 0, &mut byte).unwrap();
    assert_eq!(dax.counts().removed, 0);
    server.asked();
    dax.read(FIRST, 14 * DAX_RANGE_BYTES, &mut byte).unwrap();
    assert_eq!(dax.counts().removed, 10);
    server.asked();
    for range in [0, 11, 12, 13] {
        dax.read(FIRST, range * DAX_RANGE_BYTES, &mut byte).unwrap();
    }
    assert_eq!(server.asked(), [], "they are still there");
    dax.read(FIRST, DAX_RANGE_BYTES, &mut byte).unwrap();
    assert_eq!(server.asked().len(), 1, "it was removed");
}

#[test]
fn a_forgotten_node_loses_its_ranges_by_one_request() {
    with(vec![file(5 << 20), file(4096)], |server, dax| {
        let mut byte = [9];
        for range in 0..3 {
            dax.read(FIRST, range * DAX_RANGE_BYTES, &mut byte).unwrap();
        }
        dax.read(NodeId(2), 0, &mut byte).unwrap();
        server.asked();
        dax.remove(FIRST).unwrap();
        assert_eq!(server.asked(), [Asked::Remove(1, 3)]);
        dax.remove(FIRST).unwrap();
        assert_eq!(server.asked(), []);
        assert_eq!(server.front_end().window().unwrap().mappings().len(), 1);
    });
}

#[test]
fn errors_of_the_server_and_of_the_window_are_told_apart() {
    with(vec![file(5000)], |_, dax| {
        let mut seen = [9; 4];
        let refused = dax.read(NodeId(7), 0, &mut seen);
        assert_eq!(refused, Err(DaxError::Request(Errno::ENOENT)));
        dax.read(FIRST, 4998, &mut seen).unwrap();
        assert_eq!(seen, [1, 1, 0, 0]);
        let beyond = dax.read(FIRST, 8192, &mut seen);
        assert!(matches!(
            beyond,
            Err(DaxError::Window(WindowError::Failed(8192, _)))
        ));
        let counts = dax.counts();
        assert_eq!(counts.set_ups, 1, "the refused one gave its place back");
    });
}

#[test]
fn reading_goes_on_beside_upgrades_and_reclaim() {
    let big = file(24 << 20);
    with(vec![big], |server, dax| {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut seen = [0];
                    for round in 0..400_u64 {
                        let page = (round * 97 + thread * 31) % (24 << 8);
                        dax.read(FIRST, page * 4096, &mut seen).unwrap();
                        assert_eq!(seen[0], page as u8);
                        dax.write(FIRST, page * 4096 + 1 + thread, &[1]).unwrap();
                    }
                });
            }
        });
        let counts = dax.counts();
        assert!(counts.removed > 0 && counts.upgrades > 0, "{counts:?}");
        let window = server.front_end().window().unwrap();
        assert!(window.wait_until(LIMIT, |now| now.maps == counts.set_ups));
        assert!(window.counts().live_max as u64 <= RANGES);
    });
}

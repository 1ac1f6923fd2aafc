//! Plausible requests with random arguments.

#[allow(clippy::unwrap_used, reason = "its tests are those of thrufs-abi")]
#[path = "../../../../../crates/abi/tests/wire/samples.rs"]
mod samples;

use crate::front_end::{FrontEnd, Parts};
use std::time::{Duration, Instant};
use thrufs_abi::layout::{EntryOut, InHeader, OpenOut};
use thrufs_abi::{NodeId, Opcode, Reply, RequestBuilder, Unique};
use thrufs_testing::{Random, ReplyLayout, Shape};

/// How long to wait for the replies to many requests.
const PATIENCE: Duration = Duration::from_millis(100);

const KNOWN_MAX: usize = 64;

/// File names of requests, used by no other test.
const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"dir",
    b"",
    b".",
    b"..",
    b"a/b",
    b"/",
    b"../outside",
    b"user.x",
    b"trusted.y",
    b"system.posix_acl_access",
    b"\xff\xfe",
    &[b'n'; 255],
    &[b'n'; 256],
    &[b'p'; 5000],
];

/// A number at some boundary.
pub(super) fn number(random: &mut Random, known: &[u64]) -> u64 {
    match random.below(8) {
        0 => random.number(),
        1 => random.pick(&[
            u64::MAX,
            1 << 63,
            1 << 32,
            u64::from(u32::MAX),
            1 << 31,
            0x7fff_ffff_ffff_ffff,
        ]),
        2 | 3 if !known.is_empty() => random.pick(known),
        4 => random.number() % (1 << 21),
        _ => random.number() % 16,
    }
}

/// Nodes and handles of a session, for its next requests.
#[derive(Debug, Default)]
pub struct Session {
    nodes: Vec<u64>,
    handles: Vec<u64>,
    unique: u64,
    /// It has sent DESTROY: only errors follow.
    pub has_ended: bool,
    /// Replies received.
    pub answered: u64,
    /// Replies without an error.
    pub succeeded: u64,
}

impl Session {
    /// A session that has recorded the root.
    #[must_use]
    pub fn new() -> Session {
        Session {
            nodes: vec![1],
            ..Session::default()
        }
    }

    /// A request, mostly invalid.
    pub fn request(&mut self, random: &mut Random) -> Vec<u8> {
        let mut opcode = random.pick(Opcode::ALL);
        if matches!(opcode, Opcode::Init | Opcode::Destroy) {
            if random.once_in(64) {
                self.has_ended = true;
            } else {
                opcode = Opcode::Lookup;
            }
        }
        self.unique += 2;
        let number_of = if random.once_in(50) {
            random.number() as u32
        } else {
            opcode.number()
        };
        let node = match random.below(10) {
            0 => number(random, &self.handles),
            _ => random.pick(&self.nodes),
        };
        let user = random.pick(&[0, 0, 0, 1000, u32::MAX]);
        let mut bytes = if random.once_in(4) {
            let builder = RequestBuilder::from_number(number_of, Unique(0), NodeId(0));
            self.with_arguments(builder, random).finish()
        } else {
            self.sample(opcode, random)
        };
        bytes[4..8].copy_from_slice(&number_of.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.unique.to_ne_bytes());
        bytes[16..24].copy_from_slice(&node.to_ne_bytes());
        bytes[24..32].copy_from_slice(&[user; 2].map(u32::to_ne_bytes).concat());
        if random.once_in(20) {
            let length = random.number() as u32;
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
        }
        if random.once_in(20) {
            bytes.truncate(random.below(bytes.len() + 1));
        }
        bytes
    }

    /// The usual arguments of the operation, of a known handle, sometimes with other numbers.
    fn sample(&self, opcode: Opcode, random: &mut Random) -> Vec<u8> {
        let mut bytes = samples::sample(opcode).finish();
        let words = opcode.row().structure_bytes / size_of::<u64>();
        let arguments = bytes[size_of::<InHeader>()..].chunks_exact_mut(size_of::<u64>());
        for (at, word) in arguments.take(words).enumerate() {
            let number = match random.below(12) {
                0 => number(random, &self.nodes),
                1..=4 => random.number() % 8,
                // Most structures begin with a handle.
                _ if at == 0 && !self.handles.is_empty() => random.pick(&self.handles),
                _ => continue,
            };
            word.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// Random numbers, names and bytes.
    fn with_arguments(&self, mut builder: RequestBuilder, random: &mut Random) -> RequestBuilder {
        let words = random.pick(&[0, 1, 2, 3, 4, 5, 5, 6, 11, 16]);
        let known = [self.nodes.as_slice(), &self.handles].concat();
        for _ in 0..words {
            // Most structures begin with a handle.
            let word = if words < 6 && random.once_in(3) && !self.handles.is_empty() {
                random.pick(&self.handles)
            } else if random.once_in(2) {
                number(random, &known) & 0xffff_ffff | (number(random, &known) << 32)
            } else {
                number(random, &known)
            };
            builder = builder.arg(&word);
        }
        for _ in 0..random.pick(&[0, 1, 1, 1, 2, 2]) {
            builder = builder.name(random.pick(NAMES));
        }
        if random.once_in(4) {
            let length = random.below(5000);
            builder = builder.bytes(&random.bytes(length));
        }
        builder
    }

    /// Sends many requests at once and records their replies. `None` when the server has closed the connection.
    pub fn burst(&mut self, front_end: &FrontEnd, random: &mut Random) -> Option<()> {
        let index = 1 + random.below(usize::from(front_end.request_queues())) as u16;
        let mut queue = front_end.queue(index)?;
        for _ in 0..random.below(60) {
            let request = self.request(random);
            let shape = Shape::of(&request);
            let room = match random.below(10) {
                0 => None,
                1 => Some(ReplyLayout {
                    arguments: random.below(200),
                    data: random.below(9000),
                }),
                _ => shape.reply.map(|reply| ReplyLayout {
                    arguments: reply.arguments.min(65536),
                    data: reply.data.min(1 << 20),
                }),
            };
            if queue.submit(&Parts::of(&request, &shape), room).is_err() {
                break;
            }
        }
        queue.notify().ok()?;
        let deadline = Instant::now() + PATIENCE;
        let mut reply = Vec::new();
        while queue.in_flight() > 0 && queue.wait(Some(deadline)).ok()? {
            while let Some(completion) = queue.poll().ok()? {
                queue.copy_reply(&completion, &mut reply);
                queue.free(completion);
                self.learn(&reply);
            }
        }
        Some(())
    }

    /// Records the first number of a reply, often a node or a handle.
    fn learn(&mut self, reply: &[u8]) {
        let reply = Reply::parse(reply);
        self.answered += u64::from(reply.is_some());
        let Some(reply) = reply.filter(|reply| reply.error == 0) else {
            return;
        };
        self.succeeded += 1;
        let Some(first) = reply.structure::<u64>().filter(|first| *first != 0) else {
            return;
        };
        // A reply with an entry is longer, and one of CREATE longer still.
        if let Some(made) = reply.structure::<[u64; CREATE_WORDS]>() {
            remember(&mut self.handles, made[CREATE_WORDS - 2]);
        }
        if reply.structure::<[u64; ENTRY_WORDS]>().is_some() {
            remember(&mut self.nodes, first);
        } else {
            remember(&mut self.handles, first);
        }
    }
}

const ENTRY_WORDS: usize = size_of::<EntryOut>() / 8;
/// A node and its opening: the handle, then two fields in one word.
const CREATE_WORDS: usize = ENTRY_WORDS + size_of::<OpenOut>() / 8;

/// Drops the oldest beyond the limit, but not the first, the root.
fn remember(list: &mut Vec<u64>, number: u64) {
    if list.len() >= KNOWN_MAX {
        list.remove(1);
    }
    list.push(number);
}

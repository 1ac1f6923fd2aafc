//! The sequence of requests. A load has a lane for each operation in flight, which sends the requests of one
//! operation after another. Nothing here allocates per request.

use super::ground::{Ground, Lookups, file_name};
use super::row::Kind;
use crate::front_end::{Completion, HIGH_PRIORITY, Queue};
use thrufs_abi::layout::{
    AttrOut, CreateIn, EntryOut, ForgetIn, GetattrIn, InHeader, OpenIn, OpenOut, ReadIn, ReleaseIn,
    WriteIn, WriteOut,
};
use thrufs_abi::reply::DirectoryEntries;
use thrufs_abi::{NodeId, Opcode};
use thrufs_testing::ReplyLayout;
use zerocopy::{Immutable, IntoBytes};

/// The buffer size of a C library for listings.
const LISTING_BYTES: u32 = 32 << 10;

#[derive(Default)]
pub(crate) struct Request {
    pub(crate) header: InHeader,
    pub(crate) arguments: Vec<u8>,
    /// Bytes of data, of any content.
    pub(crate) data: usize,
    pub(crate) reply: ReplyLayout,
}

impl Request {
    fn begin(&mut self, opcode: Opcode, node: NodeId, reply: usize) {
        self.header.opcode = opcode.number();
        self.header.nodeid = node.0;
        self.arguments.clear();
        self.data = 0;
        self.reply = ReplyLayout {
            arguments: reply,
            data: 0,
        };
    }

    fn arg(&mut self, structure: &(impl IntoBytes + Immutable)) {
        self.arguments.extend_from_slice(structure.as_bytes());
    }

    fn name(&mut self, name: &[u8]) {
        self.arguments.extend_from_slice(name);
        self.arguments.push(0);
    }

    /// The header with the total length.
    pub(crate) fn finish(&mut self, unique: u64) {
        self.header.unique = unique;
        self.header.len = (size_of::<InHeader>() + self.arguments.len() + self.data) as u32;
    }
}

#[derive(Clone, Default)]
struct Lane {
    /// Index of the request within the operation.
    step: u32,
    node: u64,
    fh: u64,
    offset: u64,
    name: Vec<u8>,
    number: usize,
    entries: u64,
}

pub(crate) struct Load<'a> {
    ground: &'a Ground,
    kind: Kind,
    lanes: Vec<Lane>,
    random: u64,
    offset: u64,
    /// NUL-terminated names for LOOKUP.
    names: Vec<Vec<u8>>,
    next_name: usize,
    lookups: Lookups,
    heap: Vec<u8>,
}

impl<'a> Load<'a> {
    pub(crate) fn new(ground: &'a Ground, kind: Kind, depth: usize, queue: u16) -> Load<'a> {
        let lane = |number: usize| Lane {
            name: format!("new-{queue}-{number}").into_bytes(),
            ..Lane::default()
        };
        let names = ground.looked_up().len();
        Load {
            ground,
            kind,
            lanes: (0..depth).map(lane).collect(),
            random: 0x9e37_79b9_7f4a_7c15 ^ (u64::from(queue) << 32),
            // Each queue begins at another offset.
            offset: ground.file_bytes / 16 * u64::from(queue % 16),
            names: (0..names).map(|n| file_name(n).into_bytes()).collect(),
            next_name: 0,
            lookups: Lookups {
                by_name: vec![0; names],
                listings: 0,
            },
            heap: Vec::new(),
        }
    }

    pub(crate) fn into_lookups(self) -> Lookups {
        self.lookups
    }

    pub(crate) fn may_stop(&self, lane: usize) -> bool {
        self.lanes[lane].step == 0
    }

    pub(crate) fn next(&mut self, lane: usize, request: &mut Request) {
        match self.kind {
            Kind::Getattr => {
                request.begin(Opcode::Getattr, self.ground.data, size_of::<AttrOut>());
                request.arg(&GetattrIn::default());
            }
            Kind::Lookup => {
                let number = self.next_name;
                self.next_name = (number + 1) % self.names.len();
                self.lanes[lane].number = number;
                request.begin(Opcode::Lookup, self.ground.many, size_of::<EntryOut>());
                request.name(&self.names[number]);
            }
            Kind::OpenRelease => self.next_of_open(lane, request),
            Kind::CreateUnlink => self.next_of_create(lane, request),
            Kind::Readdirplus => self.next_of_listing(lane, request),
            Kind::RandomRead(bytes) | Kind::SequentialRead(bytes) => {
                let arg = ReadIn {
                    fh: self.ground.fh,
                    offset: self.next_offset(bytes),
                    size: bytes,
                    ..ReadIn::default()
                };
                request.begin(Opcode::Read, self.ground.data, 0);
                request.arg(&arg);
                request.reply.data = bytes as usize;
            }
            Kind::RandomWrite(bytes) | Kind::SequentialWrite(bytes) => {
                let arg = WriteIn {
                    fh: self.ground.fh,
                    offset: self.next_offset(bytes),
                    size: bytes,
                    ..WriteIn::default()
                };
                request.begin(Opcode::Write, self.ground.data, size_of::<WriteOut>());
                request.arg(&arg);
                request.data = bytes as usize;
            }
        }
    }

    fn next_offset(&mut self, bytes: u32) -> u64 {
        let places = self.ground.file_bytes / u64::from(bytes);
        if matches!(self.kind, Kind::RandomRead(_) | Kind::RandomWrite(_)) {
            // Marsaglia's xorshift: no pattern that readahead detects.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            return self.random % places * u64::from(bytes);
        }
        let place = self.offset / u64::from(bytes) % places;
        self.offset = (place + 1) * u64::from(bytes);
        place * u64::from(bytes)
    }

    fn next_of_open(&mut self, lane: usize, request: &mut Request) {
        let lane = &self.lanes[lane];
        if lane.step == 0 {
            request.begin(Opcode::Open, self.ground.data, size_of::<OpenOut>());
            request.arg(&OpenIn::default());
        } else {
            release(request, Opcode::Release, self.ground.data, lane.fh);
        }
    }

    fn next_of_create(&mut self, lane: usize, request: &mut Request) {
        let lane = &self.lanes[lane];
        match lane.step {
            0 => {
                let room = size_of::<EntryOut>() + size_of::<OpenOut>();
                request.begin(Opcode::Create, self.ground.top, room);
                // O_RDWR | O_CREAT | O_EXCL
                request.arg(&CreateIn {
                    flags: 0o302,
                    mode: 0o100_644,
                    umask: 0o022,
                    open_flags: 0,
                });
                request.name(&lane.name);
            }
            1 => release(request, Opcode::Release, NodeId(lane.node), lane.fh),
            _ => {
                request.begin(Opcode::Unlink, self.ground.top, 0);
                request.name(&lane.name);
            }
        }
    }

    fn next_of_listing(&mut self, lane: usize, request: &mut Request) {
        let lane = &self.lanes[lane];
        match lane.step {
            0 => {
                request.begin(Opcode::Opendir, self.ground.many, size_of::<OpenOut>());
                request.arg(&OpenIn::default());
            }
            1 => {
                request.begin(Opcode::Readdirplus, self.ground.many, 0);
                request.arg(&ReadIn {
                    fh: lane.fh,
                    offset: lane.offset,
                    size: LISTING_BYTES,
                    ..ReadIn::default()
                });
                request.reply.data = LISTING_BYTES as usize;
            }
            _ => release(request, Opcode::Releasedir, self.ground.many, lane.fh),
        }
    }

    /// Processes a successful reply. Returns the number of operations that it completed.
    pub(crate) fn done(
        &mut self,
        lane: usize,
        queue: &Queue,
        completion: &Completion,
    ) -> Result<u64, String> {
        match self.kind {
            Kind::Getattr => Ok(1),
            Kind::Lookup => {
                let node: Option<u64> = queue.reply_structure(completion);
                let number = self.lanes[lane].number;
                if node != Some(self.ground.looked_up()[number].0) {
                    return Err("LOOKUP gave another node than CREATE did".to_owned());
                }
                self.lookups.by_name[number] += 1;
                Ok(1)
            }
            Kind::OpenRelease => {
                let lane = &mut self.lanes[lane];
                if lane.step == 0 {
                    lane.fh = queue.reply_structure(completion).ok_or(SHORT)?;
                }
                Ok(step_to(lane, 2))
            }
            Kind::CreateUnlink => self.done_of_create(lane, queue, completion),
            Kind::Readdirplus => self.done_of_listing(lane, queue, completion),
            Kind::RandomRead(bytes) | Kind::SequentialRead(bytes) => {
                let whole = completion.used_bytes() == bytes + 16;
                whole.then_some(1).ok_or_else(|| SHORT.to_owned())
            }
            Kind::RandomWrite(bytes) | Kind::SequentialWrite(bytes) => {
                let written: Option<u32> = queue.reply_structure(completion);
                let whole = written == Some(bytes);
                whole.then_some(1).ok_or_else(|| SHORT.to_owned())
            }
        }
    }

    fn done_of_create(
        &mut self,
        lane: usize,
        queue: &Queue,
        completion: &Completion,
    ) -> Result<u64, String> {
        let lane = &mut self.lanes[lane];
        if lane.step == 0 {
            let created: Created = queue.reply_structure(completion).ok_or(SHORT)?;
            (lane.node, lane.fh) = (created.entry.nodeid, created.open.fh);
        }
        let node = lane.node;
        let ended = step_to(lane, 3);
        if ended == 1 {
            self.forget(node)?;
        }
        Ok(ended)
    }

    fn done_of_listing(
        &mut self,
        lane: usize,
        queue: &Queue,
        completion: &Completion,
    ) -> Result<u64, String> {
        let lane = &mut self.lanes[lane];
        match lane.step {
            0 => {
                lane.fh = queue.reply_structure(completion).ok_or(SHORT)?;
                (lane.offset, lane.entries) = (0, 0);
                lane.step = 1;
                Ok(0)
            }
            1 => {
                queue.copy_reply(completion, &mut self.heap);
                let body = self.heap.get(16..).unwrap_or_default();
                if body.is_empty() {
                    lane.step = 2;
                }
                for entry in DirectoryEntries::new(body, true) {
                    lane.offset = entry.off;
                    // `.` and `..` count no lookup.
                    if entry.entry.is_some_and(|entry| entry.nodeid != 0) {
                        lane.entries += 1;
                    }
                }
                Ok(0)
            }
            _ => {
                lane.step = 0;
                self.lookups.listings += 1;
                let expected = self.ground.files.len() as u64;
                if lane.entries == expected {
                    Ok(expected)
                } else {
                    Err(format!("{} entries of {expected} listed", lane.entries))
                }
            }
        }
    }

    /// FORGET of one lookup, on the high-priority queue, without waiting.
    fn forget(&mut self, node: u64) -> Result<(), String> {
        let front_end = self.ground.share().client().carrier();
        let queue = front_end.queue(HIGH_PRIORITY);
        let mut queue = queue.ok_or("there is no high-priority queue")?;
        let header = InHeader {
            len: (size_of::<InHeader>() + size_of::<ForgetIn>()) as u32,
            opcode: Opcode::Forget.number(),
            nodeid: node,
            unique: 2,
            ..InHeader::default()
        };
        let parts = crate::front_end::Parts {
            header: header.as_bytes(),
            arguments: ForgetIn { nlookup: 1 }.as_bytes(),
            data: crate::front_end::Data::AsItLies(0),
        };
        let problem = |error: crate::QueueError| error.to_string();
        loop {
            while let Some(completion) = queue.poll().map_err(problem)? {
                queue.free(completion);
            }
            match queue.submit(&parts, None) {
                Ok(_) => return queue.notify().map_err(problem),
                Err(crate::SubmitError::Full) => {
                    queue.wait(None).map_err(problem)?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

const SHORT: &str = "a reply is too short";

#[derive(zerocopy::FromBytes, zerocopy::IntoBytes)]
#[repr(C)]
struct Created {
    entry: EntryOut,
    open: OpenOut,
}

fn release(request: &mut Request, opcode: Opcode, node: NodeId, fh: u64) {
    request.begin(opcode, node, 0);
    request.arg(&ReleaseIn {
        fh,
        ..ReleaseIn::default()
    });
}

/// Advances to the next of `steps` steps. Returns 1 after the last.
fn step_to(lane: &mut Lane, steps: u32) -> u64 {
    lane.step = (lane.step + 1) % steps;
    u64::from(lane.step == 0)
}

//! A request in hand: its places in the guest's memory, and the private memory that it is copied to.
//!
//! The header, the arguments, names and values of attributes are copied once, and what is looked at is
//! the copy: the guest can change its own meanwhile, and it makes no difference. The data of a WRITE
//! stay where they are, and so does the room for those of a READ that a file answers: system calls move
//! them. All other answers are written to private memory and copied out.
//!
//! Slots are kept for further requests. Their memory is address space until it is touched.

use crate::frame::{HEADER_BYTES, Kind, opcode_of};
use crate::journal::{Intent, Tracker};
use crate::memory::{DirtyLog, Regions};
use crate::queue::{Chain, ChainFault, ChainTable};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::{
    Begun, Dispatcher, Errno, FileReply, FileSystem, Message, Opcode, Outcome, Repeat, WriteSource,
};
use thrufs_abi::layout::OutHeader;
use thrufs_sys::buffer::PageBuffer;
use thrufs_sys::clock::coarse_time;
use zerocopy::{FromBytes, IntoBytes};

/// Most bytes of a request without the data of a WRITE: the value of an extended attribute, 64 KiB, and
/// two names.
const REQUEST_BYTES_MAX: usize = (64 + 8) << 10;

const REPLY_HEADER_BYTES: usize = size_of::<OutHeader>();

/// The longest reply: the largest data that can be agreed on.
const REPLY_BYTES_MAX: usize = REPLY_HEADER_BYTES + (16 << 20);

/// What a dispatcher wants to have room for at least, whatever the guest gave.
const REPLY_BYTES_MIN: usize = REPLY_HEADER_BYTES + 512;

/// Memory that a slot keeps; what replies need beyond is given back after a while.
const KEPT_BYTES: usize = 128 << 10;

/// What it means to carry out twice what has this number; unknown operations have no effect.
pub(crate) fn repeat_of(opcode: u32) -> Repeat {
    Opcode::from_u32(opcode).map_or(Repeat::Harmless, Repeat::of)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The run of its queue in which the request was taken.
    pub(crate) run: u64,
    chain: Chain,
    /// What the chain was read with.
    regions: Arc<Regions>,
    request: PageBuffer,
    request_bytes: usize,
    kind: Kind,
    reply: PageBuffer,
    /// More of the reply's memory was touched than is kept.
    pub(crate) is_large: bool,
    /// Where to note how far it has come, for a successor; and under which number.
    intents: Option<Intent>,
    number: u64,
}

impl Slot {
    /// Memory for a request.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn new(regions: &Arc<Regions>) -> io::Result<Slot> {
        Ok(Slot {
            run: 0,
            chain: Chain::default(),
            regions: Arc::clone(regions),
            request: PageBuffer::new(REQUEST_BYTES_MAX)?,
            request_bytes: 0,
            kind: Kind::Plain,
            reply: PageBuffer::new(REPLY_BYTES_MAX)?,
            is_large: false,
            intents: None,
            number: 0,
        })
    }

    /// Makes it one for a chain that is to be read with `regions`.
    pub(crate) fn prepare(&mut self, run: u64, regions: &Arc<Regions>) {
        self.run = run;
        // The count is this queue's own, but even so it need not be touched for each request.
        if !self.is_of(regions) {
            self.regions = Arc::clone(regions);
        }
    }

    /// Whether it was prepared for these regions.
    pub(crate) fn is_of(&self, regions: &Arc<Regions>) -> bool {
        Arc::ptr_eq(&self.regions, regions)
    }

    /// Reads the chain of `head`, of a queue in the regions that it was prepared for; and copies the
    /// request.
    ///
    /// # Errors
    ///
    /// What is wrong with the chain.
    pub(crate) fn read(&mut self, head: u16, chains: &ChainTable) -> Result<Kind, ChainFault> {
        chains.read(&self.regions, head, &mut self.chain)?;
        Ok(self.fetch())
    }

    /// Copies the request, once its chain was read.
    fn fetch(&mut self) -> Kind {
        let header = self.chain.readable(&self.regions, 0);
        let first = header.copy_to(&mut self.request[..HEADER_BYTES]);
        self.kind = match Kind::of(&self.request[..first]) {
            Kind::Data(at) if self.chain.readable_bytes() < at => Kind::Plain,
            kind => kind,
        };
        let end = match self.kind {
            Kind::Data(at) => at,
            _ => REQUEST_BYTES_MAX,
        };
        let rest = self.chain.readable(&self.regions, first);
        self.request_bytes = first + rest.copy_to(&mut self.request[first..end]);
        self.kind
    }

    /// Has it noted how far the request comes that is in flight as `number`.
    pub(crate) fn note_by(&mut self, tracker: &Tracker, number: u64) {
        if self.intents.is_none() {
            self.intents = tracker.intents().cloned();
        }
        self.number = number;
    }

    /// The number of its operation.
    pub(crate) fn opcode(&self) -> u32 {
        opcode_of(&self.request[..self.request_bytes])
    }

    /// Notes that it is about to be carried out, by a thread that may block or not, if that must not
    /// happen twice.
    pub(crate) fn begin<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>, may_block: bool) {
        let opcode = self.opcode();
        if self.intents.is_none() || repeat_of(opcode) == Repeat::Harmless {
            return;
        }
        let before = self.with_message(|message, _| dispatcher.look_before(message, may_block));
        let begun = Begun {
            nanoseconds: coarse_time().as_nanos() as u64,
            before,
        };
        if let Some(intents) = &self.intents {
            intents.begin(self.chain.head(), self.number, opcode, begun);
        }
    }

    /// Notes that its answer of so many bytes is where the guest wants it.
    pub(crate) fn answered(&self, length: u32) {
        if let Some(intents) = &self.intents {
            intents.answer(self.chain.head(), self.number, length);
        }
    }

    /// Carries out to its end what `begun` says was begun by another process. Returns the bytes that
    /// were written for the guest.
    pub(crate) fn answer_again<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        begun: Begun,
    ) -> u32 {
        let again =
            |message: Message<'_>, reply: &mut [u8]| dispatcher.answer_again(message, reply, begun);
        match self.with_message(again) {
            0 => 0,
            length => self.send(dispatcher, length),
        }
    }

    pub(crate) fn head(&self) -> u16 {
        self.chain.head()
    }

    /// How many bytes the guest gave and wants, together.
    pub(crate) fn bytes(&self) -> usize {
        self.chain.readable_bytes() + self.chain.writable_bytes()
    }

    /// Calls `carry_out` with the request and as much room for a reply as the guest has, or more where
    /// that is too little for any.
    fn with_message<T>(&mut self, carry_out: impl FnOnce(Message<'_>, &mut [u8]) -> T) -> T {
        let room = self
            .chain
            .writable_bytes()
            .clamp(REPLY_BYTES_MIN, REPLY_BYTES_MAX);
        let reply = &mut self.reply[..room];
        let bytes = &self.request[..self.request_bytes];
        let Kind::Data(at) = self.kind else {
            return carry_out(Message::Whole(bytes), reply);
        };
        let data = self.chain.readable(&self.regions, at);
        let data = WriteSource::out_of_line(&data);
        carry_out(Message::OutOfLine { bytes, data }, reply)
    }

    /// Dispatches the request. A reply is to be [sent](Self::send).
    pub(crate) fn dispatch<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        may_block: bool,
    ) -> Outcome {
        self.with_message(|message, reply| dispatcher.dispatch(message, reply, may_block))
    }

    /// Carries the request out to its end, sleeping where needed. Returns the bytes that were written
    /// for the guest.
    pub(crate) fn answer<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>) -> u32 {
        match self.dispatch(dispatcher, true) {
            Outcome::Reply(length) => self.send(dispatcher, length),
            Outcome::File(file_reply) => {
                let sent = self.send_file(dispatcher, &file_reply, true);
                sent.unwrap_or(0)
            }
            Outcome::Silent | Outcome::Defer(_) => 0,
        }
    }

    /// Answers with an error instead of carrying it out. Returns the bytes that were written.
    pub(crate) fn refuse<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        errno: Errno,
    ) -> u32 {
        let refuse =
            |message: Message<'_>, reply: &mut [u8]| dispatcher.refuse(message, reply, errno);
        match self.with_message(refuse) {
            0 => 0,
            length => self.send(dispatcher, length),
        }
    }

    /// Copies `length` bytes of reply to the guest. Returns how many that were: fewer when it has no
    /// room for them, in which case what the reply gives is taken back.
    pub(crate) fn send<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>, length: usize) -> u32 {
        self.is_large |= length > KEPT_BYTES;
        if length <= self.chain.writable_bytes() {
            let place = self.chain.writable(&self.regions, 0, length);
            return place.copy_from(&self.reply[..length]) as u32;
        }
        let request = &self.request[..self.request_bytes];
        dispatcher.undelivered(request, &self.reply[..length]);
        self.send_error(Errno::EIO)
    }

    /// Turns the reply into an error, if the guest has room for one.
    fn send_error(&mut self, errno: Errno) -> u32 {
        let place = self.chain.writable(&self.regions, 0, REPLY_HEADER_BYTES);
        let header = OutHeader::read_from_prefix(&self.reply);
        let (REPLY_HEADER_BYTES, Ok((header, _))) = (place.len(), header) else {
            return 0;
        };
        let header = OutHeader {
            len: REPLY_HEADER_BYTES as u32,
            error: -errno.raw(),
            unique: header.unique,
        };
        place.copy_from(header.as_bytes()) as u32
    }

    /// Has the bytes of a file read to where the guest wants them, and completes the reply. Returns the
    /// bytes that were written.
    ///
    /// # Errors
    ///
    /// [`Errno::DEFER`] when they are not in memory and `may_block` is false.
    pub(crate) fn send_file<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        file_reply: &FileReply,
        may_block: bool,
    ) -> Result<u32, Errno> {
        let (file, length) = (file_reply.file(), file_reply.length());
        let place = self
            .chain
            .writable(&self.regions, REPLY_HEADER_BYTES, length);
        let result = file.read_by(place.len(), file_reply.offset(), may_block, |part| {
            place.read_from(part.filled, file.as_fd(), part.offset, part.no_wait)
        });
        if result == Err(Errno::DEFER) && !may_block {
            return Err(Errno::DEFER);
        }
        let length = dispatcher.finish_file_reply(file_reply, &mut self.reply, result);
        let header = self.chain.writable(&self.regions, 0, REPLY_HEADER_BYTES);
        if header.len() < REPLY_HEADER_BYTES {
            return Ok(0);
        }
        header.copy_from(&self.reply[..REPLY_HEADER_BYTES]);
        Ok(length as u32)
    }

    /// Notes the room for the reply as written, all of it: a read that failed has written to some.
    pub(crate) fn mark_written(&self, log: &DirtyLog) {
        let room = self.chain.writable(&self.regions, 0, usize::MAX);
        room.mark_written(log);
    }

    /// Gives memory back that a long reply needed.
    pub(crate) fn release_memory(&mut self) {
        if std::mem::take(&mut self.is_large) {
            // What is not given back is memory that stays.
            let _ = self.reply.release(KEPT_BYTES..REPLY_BYTES_MAX);
        }
    }
}

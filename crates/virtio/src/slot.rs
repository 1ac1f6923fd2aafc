//! A request: its extents in the guest's memory, and private buffers for request and reply.
//!
//! The header, arguments, names and xattr values are copied once, and only the copy is read, since the guest
//! may change its own at any time. System calls move the data of a WRITE, and of a READ that a file answers,
//! from and to the guest's memory. All other replies are built in private memory and copied out.
//!
//! Slots are reused. Their buffers are address space until they are touched.

use crate::frame::{HEADER_BYTES, Kind, opcode_of};
use crate::journal::Intent;
use crate::memory::{DirtyLog, Regions};
use crate::queue::{Chain, ChainFault, ChainTable, VirtqueueRing};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::{
    Begun, Dispatcher, Errno, FileReply, FileSystem, LateRequest, Message, Opcode, Outcome, Repeat,
    Wait, WindowReply, WriteSource,
};
use thrufs_abi::layout::OutHeader;
use thrufs_sys::buffer::PageBuffer;
use zerocopy::{FromBytes, IntoBytes};

/// Most bytes of a request without the data of a WRITE: an xattr value of 64 KiB and two names.
const REQUEST_BYTES_MAX: usize = (64 + 8) << 10;

const REPLY_HEADER_BYTES: usize = size_of::<OutHeader>();

/// The longest reply: the largest `max_pages`.
const REPLY_BYTES_MAX: usize = REPLY_HEADER_BYTES + (16 << 20);

/// The least room that a dispatcher needs, whatever the guest gave.
const REPLY_BYTES_MIN: usize = REPLY_HEADER_BYTES + 512;

/// Memory that a slot keeps; more is released while the queue is idle.
const KEPT_BYTES: usize = 128 << 10;

/// Whether a request with this opcode may be replayed; unknown ones have no effect.
pub(crate) fn repeat_of(opcode: u32) -> Repeat {
    Opcode::from_u32(opcode).map_or(Repeat::Harmless, |opcode| opcode.row().repeat)
}

/// A request that another thread executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away {
    pub(crate) head: u16,
    pub(crate) wait: Wait,
    /// The run of the queue that took it.
    pub(crate) run: u64,
}

#[derive(Debug)]
pub(crate) struct Slot {
    /// The run of the queue that took the request.
    pub(crate) run: u64,
    pub(crate) head: u16,
    chain: Chain,
    regions: Arc<Regions>,
    request: PageBuffer,
    request_bytes: usize,
    pub(crate) kind: Kind,
    reply: PageBuffer,
    /// More than [`KEPT_BYTES`] of `reply` were touched.
    pub(crate) is_large: bool,
    /// Bytes of the reply that were written for the guest.
    pub(crate) length: u32,
    /// Records progress under `number`, for the process that resumes the request.
    intents: Option<Intent>,
    number: u64,
}

impl Slot {
    pub(crate) fn new(regions: &Arc<Regions>) -> io::Result<Slot> {
        Ok(Slot {
            run: 0,
            head: 0,
            chain: Chain::default(),
            regions: Arc::clone(regions),
            request: PageBuffer::new(REQUEST_BYTES_MAX)?,
            request_bytes: 0,
            kind: Kind::Plain,
            reply: PageBuffer::new(REPLY_BYTES_MAX)?,
            is_large: false,
            length: 0,
            intents: None,
            number: 0,
        })
    }

    /// Prepares for the request that is in flight in `ring` as `head`.
    pub(crate) fn prepare(&mut self, run: u64, head: u16, ring: &VirtqueueRing) {
        let (regions, tracker) = (ring.regions(), ring.tracker());
        (self.run, self.head, self.length) = (run, head, 0);
        self.number = tracker.number_of(head);
        if self.intents.is_none() {
            self.intents = tracker.intents().cloned();
        }
        // Spares the reference count in the common case.
        if !self.is_of(regions) {
            self.regions = Arc::clone(regions);
        }
    }

    pub(crate) fn is_of(&self, regions: &Arc<Regions>) -> bool {
        Arc::ptr_eq(&self.regions, regions)
    }

    /// Reads the chain, in the regions that it was prepared for, and copies the request.
    pub(crate) fn read(&mut self, chains: &ChainTable) -> Result<(), ChainFault> {
        chains.read(&self.regions, self.head, &mut self.chain)?;
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
        Ok(())
    }

    pub(crate) fn opcode(&self) -> u32 {
        opcode_of(&self.request[..self.request_bytes])
    }

    /// Records that execution begins, if the request must not be executed twice. `may_block` as in
    /// [`dispatch`](Self::dispatch).
    pub(crate) fn begin<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>, may_block: bool) {
        let opcode = self.opcode();
        if self.intents.is_none() || repeat_of(opcode) == Repeat::Harmless {
            return;
        }
        let before = self.with_message(|message, _| dispatcher.look_before(message, may_block));
        let begun = Begun::now(before);
        if let Some(intents) = &self.intents {
            intents.begin(self.head, self.number, opcode, begun);
        }
    }

    /// Records that its reply is written.
    pub(crate) fn answered(&self) {
        if let Some(intents) = &self.intents {
            intents.answer(self.head, self.number, self.length);
        }
    }

    /// Completes a request that another process has `begun`.
    pub(crate) fn answer_again<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>, begun: Begun) {
        let length =
            self.with_message(|message, reply| dispatcher.answer_again(message, reply, begun));
        self.send(dispatcher, length);
    }

    /// Its entry in the list of requests that other threads execute.
    pub(crate) fn away(&self, wait: Wait) -> Away {
        Away {
            head: self.head,
            wait,
            run: self.run,
        }
    }

    /// Bytes of the request and of the room for its reply.
    pub(crate) fn bytes(&self) -> usize {
        self.chain.readable_bytes() + self.chain.writable_bytes()
    }

    /// Calls `carry_out` with the request and as much room as the guest has, but at least
    /// [`REPLY_BYTES_MIN`].
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

    /// Dispatches the request. The caller [sends](Self::send) a reply.
    pub(crate) fn dispatch<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        may_block: bool,
    ) -> Outcome {
        self.with_message(|message, reply| dispatcher.dispatch(message, reply, may_block))
    }

    /// Executes an INIT or DESTROY, which no file system answers later, or a request outside of a session.
    pub(crate) fn answer<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>) {
        let later = self.execute(dispatcher);
        debug_assert!(later.is_none(), "{later:?}");
    }

    /// Executes the request, blocking where needed, unless it is answered later.
    pub(crate) fn execute<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
    ) -> Option<LateRequest> {
        match self.dispatch(dispatcher, true) {
            Outcome::Reply(length) => self.send(dispatcher, length),
            Outcome::File(file_reply) => {
                self.send_file(dispatcher, &file_reply, true);
            }
            Outcome::Window(reply) => self.send_window(dispatcher, &reply, Err(Errno::EIO)),
            Outcome::Later(later) => return Some(later),
            Outcome::Silent | Outcome::Defer(_) => {}
        }
        None
    }

    /// Sends a reply that came later.
    pub(crate) fn send_later<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        head: &[u8],
        data: &[u8],
    ) {
        let length = head.len() + data.len();
        // The dispatcher gives no more data than a request may have: see `REPLY_BYTES_MAX`.
        self.reply[..head.len()].copy_from_slice(head);
        self.reply[head.len()..length].copy_from_slice(data);
        self.send(dispatcher, length);
    }

    /// Replies with an error instead.
    pub(crate) fn refuse<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>, errno: Errno) {
        let length = self.with_message(|message, reply| dispatcher.refuse(message, reply, errno));
        self.send(dispatcher, length);
    }

    /// Copies `length` bytes of reply to the guest. When the guest has less room, undoes the effects of the
    /// reply (a lookup count, a file handle) and sends an error, if that fits.
    pub(crate) fn send<F: FileSystem>(&mut self, dispatcher: &Dispatcher<F>, length: usize) {
        self.is_large |= length > KEPT_BYTES;
        if length <= self.chain.writable_bytes() {
            let place = self.chain.writable(&self.regions, 0, length);
            self.length = place.copy_from(&self.reply[..length]) as u32;
            return;
        }
        let request = &self.request[..self.request_bytes];
        dispatcher.undelivered(request, &self.reply[..length]);
        let place = self.chain.writable(&self.regions, 0, REPLY_HEADER_BYTES);
        let header = OutHeader::read_from_prefix(&self.reply);
        if let (REPLY_HEADER_BYTES, Ok((header, _))) = (place.len(), header) {
            let header = OutHeader {
                len: REPLY_HEADER_BYTES as u32,
                error: -Errno::EIO.raw(),
                unique: header.unique,
            };
            self.length = place.copy_from(header.as_bytes()) as u32;
        }
    }

    /// Reads a file into the guest's memory and completes the reply. False when the data are not cached, if
    /// it must not block.
    pub(crate) fn send_file<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        file_reply: &FileReply,
        may_block: bool,
    ) -> bool {
        let (file, length) = (file_reply.file(), file_reply.length());
        let place = self
            .chain
            .writable(&self.regions, REPLY_HEADER_BYTES, length);
        let result = file.read_by(place.len(), file_reply.offset(), may_block, |part| {
            place.read_from(part.filled, file.as_fd(), part.offset, part.no_wait)
        });
        if result == Err(Errno::DEFER) && !may_block {
            return false;
        }
        let length = dispatcher.finish_file_reply(file_reply, &mut self.reply, result);
        let header = self.chain.writable(&self.regions, 0, REPLY_HEADER_BYTES);
        if header.len() == REPLY_HEADER_BYTES {
            header.copy_from(&self.reply[..REPLY_HEADER_BYTES]);
            self.length = length as u32;
        }
        true
    }

    /// Replies after a change of the window.
    pub(crate) fn send_window<F: FileSystem>(
        &mut self,
        dispatcher: &Dispatcher<F>,
        window_reply: &WindowReply,
        result: Result<(), Errno>,
    ) {
        let length = dispatcher.finish_window_reply(window_reply, &mut self.reply, result);
        self.send(dispatcher, length);
    }

    /// Logs all the room for the reply as written: a failed read may have written to some.
    pub(crate) fn mark_written(&self, log: &DirtyLog) {
        let room = self.chain.writable(&self.regions, 0, usize::MAX);
        room.mark_written(log);
    }

    pub(crate) fn release_memory(&mut self) {
        if std::mem::take(&mut self.is_large) {
            // Failure only leaves it allocated.
            let _ = self.reply.release(KEPT_BYTES..REPLY_BYTES_MAX);
        }
    }
}

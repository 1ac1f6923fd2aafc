//! The only module that knows opcodes: parses a request, calls a [`FileSystem`] method, writes the reply.
//!
//! A transport owns the memory of both. It calls [`Dispatcher::dispatch`] and does with the reply what the
//! [`Outcome`] says. A request that succeeds allocates, waits for and logs nothing here.
//!
//! Requests are carried out where they arrive unless the file system defers them, which it does with those
//! that sleep ([`Sleep`]). A transport has a bounded number of threads for them, and others for waits for
//! locks. INIT is accepted once. DESTROY only has a reply: [`FileSystem::destroy`] is called when the session
//! ends.
//!
//! Errors stay here: malformed bytes, requests before INIT and panics of the file system are answered
//! with an error and counted.

mod again;
mod arguments;
mod init;
mod init_failure;
mod message;
mod operations;
mod succession;
mod undelivered;
mod window;

#[cfg(test)]
mod tests;

pub use again::Begun;
pub use init_failure::InitFailure;
pub use message::Message;

use crate::backing::Services;
use crate::context::Context;
use crate::data::{FileRange, LowerFile, WriteSource};
use crate::errno::{Errno, Result};
use crate::features::Features;
use crate::file_system::FileSystem;
use crate::interrupt::Interrupts;
use crate::late::{LateOffer, LateRequest, LateTarget};
use crate::metrics::{Metrics, bump};
use crate::reply::{HEADER_BYTES, put_header};
use crate::window::{WindowChange, WindowCoverage, WindowReply};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use thrufs_abi::Unique;
use thrufs_abi::opcode::{ReplyBody, Sleep};
use thrufs_abi::{Dialect, InitFlags, Opcode, Operation, ParseError, ParseErrorKind};

/// Answers the requests of one connection for a file system.
#[derive(Debug)]
pub struct Dispatcher<F> {
    fs: Arc<F>,
    agreed: OnceLock<Agreed>,
    /// Whether INIT is to agree on io_uring: rings are ready.
    wants_ring: AtomicBool,
    /// What INIT must not agree on.
    withheld: InitFlags,
    /// The DAX window of the transport, if it has one.
    window: Option<Arc<dyn WindowCoverage>>,
    init_failure: Mutex<Option<InitFailure>>,
    metrics: Arc<Metrics>,
    interrupts: Interrupts,
}

#[derive(Debug)]
struct Agreed {
    dialect: Dialect,
    features: Features,
    /// The INIT request, for a saved session.
    request: Box<[u8]>,
}

impl Agreed {
    fn has(&self, flags: InitFlags) -> bool {
        self.features.flags.contains(flags)
    }
}

/// What a transport does about a request.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// Send this many bytes of the reply buffer.
    Reply(usize),
    /// Read bytes of a file into the reply, behind its header, then call
    /// [`Dispatcher::finish_file_reply`].
    File(FileReply),
    /// Change the DAX window, then call [`Dispatcher::finish_window_reply`]. Only with
    /// [`Dispatcher::with_window`].
    Window(Box<WindowReply>),
    /// There is no reply.
    Silent,
    /// The reply comes later: call [`LateRequest::keep`] with what sends it.
    Later(LateRequest),
    /// Nothing was done: dispatch the same bytes again on a thread that may sleep.
    Defer(Wait),
}

/// What a deferred request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A device or a network: the wait ends by itself.
    Io,
    /// Another holder of a lock: the wait may never end.
    Lock {
        /// The caller's user id.
        uid: u32,
    },
    /// Another request that is answered later, because as many as may be are out: nothing says that the wait
    /// ends without another request.
    Late,
    /// The machine monitor, to change the DAX window. It may wait for this server meanwhile.
    Window,
}

impl Wait {
    /// The error of a request for which no thread may wait. `None`: the thread that has it carries it out.
    pub fn refusal(self) -> Option<Errno> {
        match self {
            // The holder may need this thread to unlock it.
            Wait::Lock { .. } => Some(Errno::ENOLCK),
            // INTERRUPT, or the end of the session, may be what it waits for.
            Wait::Late => Some(Errno::EAGAIN),
            Wait::Io | Wait::Window => None,
        }
    }

    /// Whether the wait may never end.
    pub fn is_for_lock(self) -> bool {
        matches!(self, Wait::Lock { .. })
    }

    /// Whether it ends by itself, so that a queue that is stopped can wait for it.
    pub fn ends_by_itself(self) -> bool {
        self == Wait::Io
    }
}

/// The reply to a READ from a file.
#[derive(Debug)]
pub struct FileReply {
    unique: Unique,
    started: Instant,
    range: FileRange,
}

impl FileReply {
    /// The file.
    pub fn file(&self) -> &Arc<LowerFile> {
        &self.range.file
    }

    /// Offset of the first byte in the file.
    pub fn offset(&self) -> u64 {
        self.range.offset
    }

    /// The most bytes.
    pub fn length(&self) -> usize {
        self.range.length
    }

    pub(crate) fn header(&self, bytes: usize) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        put_header(&mut header, self.unique, Ok(bytes));
        header
    }

    /// Reads them behind the header of `reply`, with one `preadv2(2)` if possible.
    ///
    /// # Errors
    /// As [`LowerFile::read_at`].
    pub fn read_into(&self, reply: &mut [u8], may_block: bool) -> Result<usize> {
        let end = HEADER_BYTES + self.length();
        let body = reply.get_mut(HEADER_BYTES..end).ok_or(Errno::EIO)?;
        self.file().read_at(body, self.offset(), may_block)
    }
}

enum Done {
    /// A body of this many bytes.
    Body(usize),
    /// The same, `moved` of which (or of the request) were data.
    Data { body: usize, moved: usize },
    /// A body to read from a file.
    File(FileRange),
    /// No body, after a change of the window.
    Window(Box<WindowChange>),
}

impl<F> Dispatcher<F> {
    /// The metrics that it counts into.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    pub(crate) fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Ends all waits for another process (locks), and those to come, and answers all requests that are to be
    /// answered later, with ENOTCONN. Called at the end of a connection.
    pub fn end_waits(&self) {
        self.interrupts.stop();
        self.interrupts.end_late();
    }

    /// Ends all waits for another process with EINTR, and not those to come. For a transport that will
    /// replay the requests.
    pub fn interrupt_waits(&self) {
        self.interrupts.interrupt_all();
    }
}

impl<F: FileSystem> Dispatcher<F> {
    /// A dispatcher before INIT.
    pub fn new(fs: Arc<F>) -> Dispatcher<F> {
        Dispatcher {
            fs,
            agreed: OnceLock::new(),
            wants_ring: AtomicBool::new(false),
            withheld: InitFlags::empty(),
            window: None,
            init_failure: Mutex::new(None),
            metrics: Arc::default(),
            interrupts: Interrupts::default(),
        }
    }

    /// Treats these capabilities as not offered: the transport cannot support them.
    #[must_use]
    pub fn withholding(mut self, flags: InitFlags) -> Dispatcher<F> {
        self.withheld |= flags;
        self
    }

    /// Carries out SETUPMAPPING and REMOVEMAPPING, by [`Outcome::Window`]. Without it they are ENOSYS.
    #[must_use]
    pub fn with_window(mut self, window: Option<Arc<dyn WindowCoverage>>) -> Dispatcher<F> {
        self.window = window;
        self
    }

    /// For [`FileSystem::started`], over a transport without notifications: the window, if there is one.
    pub fn services(&self) -> Services {
        Services::unavailable().with_window(self.window.clone())
    }

    /// Counts into `metrics`, which may be shared.
    #[must_use]
    pub fn counting_into(mut self, metrics: Arc<Metrics>) -> Dispatcher<F> {
        self.metrics = metrics;
        self
    }

    /// At most `late_max` requests are answered later at a time.
    #[must_use]
    pub fn with_late_max(mut self, late_max: usize) -> Dispatcher<F> {
        self.interrupts = Interrupts::new(late_max);
        self
    }

    /// The file system that answers.
    pub fn file_system(&self) -> &Arc<F> {
        &self.fs
    }

    /// The result of INIT; `None` before.
    pub fn features(&self) -> Option<&Features> {
        self.agreed.get().map(|agreed| &agreed.features)
    }

    pub(crate) fn want_ring(&self) {
        self.wants_ring.store(true, Ordering::Relaxed);
    }

    fn dialect(&self) -> Dialect {
        let agreed = self.agreed.get();
        agreed.map_or(Dialect::INITIAL, |agreed| agreed.dialect)
    }

    /// Carries out `request`, and writes the reply, header first, to `reply`.
    ///
    /// `reply` should have room for 16 bytes and the largest body: 64 KiB for extended attributes, or the
    /// negotiated size of data. With `may_block`, the outcome is never [`Outcome::Defer`].
    pub fn dispatch<'a>(
        &self,
        request: impl Into<Message<'a>>,
        reply: &mut [u8],
        may_block: bool,
    ) -> Outcome {
        let started = Instant::now();
        if reply.len() < HEADER_BYTES {
            bump(&self.metrics.figures.malformed);
            return Outcome::Silent;
        }
        let dialect = self.dialect();
        let message = request.into();
        let request = match message.parse(dialect) {
            Ok(request) => request,
            Err(error) => return self.malformed(&error, reply),
        };
        let (unique, opcode) = (request.header.unique, request.header.opcode);
        let body = &mut reply[HEADER_BYTES..];
        let agreed = self.agreed.get();
        let data_bytes_max = agreed.map_or(0, |agreed| agreed.features.write_bytes_max);
        let offer = LateOffer::new(&request, started, &self.metrics, data_bytes_max);
        let execute = || self.execute(&offer, message.data(), body, may_block);
        let done = catch_unwind(AssertUnwindSafe(execute)).unwrap_or_else(|_| {
            bump(&self.metrics.figures.panics);
            tracing::error!(opcode = opcode.name(), "the file system panicked");
            Err(Errno::EIO)
        });
        let is_full = offer.is_full();
        if let Some(later) = offer.settle(matches!(done, Err(Errno::LATER))) {
            return Outcome::Later(later);
        }
        let (result, moved) = match done {
            Ok(Done::Body(body)) => (Ok(body), 0),
            Ok(Done::Data { body, moved }) => (Ok(body), moved),
            Ok(Done::File(range)) => {
                return Outcome::File(FileReply {
                    unique,
                    started,
                    range,
                });
            }
            Ok(Done::Window(change)) => {
                return Outcome::Window(Box::new(WindowReply {
                    unique,
                    opcode,
                    started,
                    change: *change,
                }));
            }
            Err(Errno::DEFER) if !may_block => {
                bump(&self.metrics.figures.deferred);
                let uid = request.header.uid;
                return Outcome::Defer(match opcode.row().sleep {
                    _ if is_full => Wait::Late,
                    Sleep::Lock => Wait::Lock { uid },
                    Sleep::Rare | Sleep::Data | Sleep::Usual => Wait::Io,
                });
            }
            Err(errno) => (Err(errno), 0),
        };
        let (latency, error) = (started.elapsed(), result.err());
        self.metrics.record(opcode, latency, error, moved as u64);
        if is_silent(opcode) {
            return Outcome::Silent;
        }
        Outcome::Reply(put_header(reply, unique, result))
    }

    /// Completes the reply to a READ after its bytes were read, or could not be. Returns the bytes to send.
    pub fn finish_file_reply(
        &self,
        file_reply: &FileReply,
        reply: &mut [u8],
        result: Result<usize>,
    ) -> usize {
        let result = result.map(|bytes| bytes.min(file_reply.length()));
        self.count_file_reply(file_reply, result);
        put_header(reply, file_reply.unique, result)
    }

    /// Counts a READ that was answered from a file, or could not be.
    pub(crate) fn count_file_reply(&self, file_reply: &FileReply, result: Result<usize>) {
        let moved = result.unwrap_or(0) as u64;
        self.metrics.record(
            Opcode::Read,
            file_reply.started.elapsed(),
            result.err(),
            moved,
        );
    }

    /// Carries out a request to its end, sleeping where needed. Returns the bytes of the reply, 0 for none.
    /// For clients in the same process and for tests.
    pub fn answer<'a>(&self, request: impl Into<Message<'a>>, reply: &mut [u8]) -> usize {
        match self.dispatch(request, reply, true) {
            Outcome::Reply(length) => length,
            Outcome::File(file_reply) => {
                let result = file_reply.read_into(reply, true);
                self.finish_file_reply(&file_reply, reply, result)
            }
            Outcome::Window(window_reply) => {
                self.finish_window_reply(&window_reply, reply, Err(Errno::ENOSYS))
            }
            Outcome::Later(later) => {
                let (give, given) = sync_channel(1);
                later.keep(Box::new(Waiting(give)));
                // One is always given, if only at the end of the session.
                let answer = given.recv().unwrap_or_default();
                let length = answer.len().min(reply.len());
                reply[..length].copy_from_slice(&answer[..length]);
                length
            }
            Outcome::Silent | Outcome::Defer(_) => 0,
        }
    }

    /// Answers a request with `errno` instead of carrying it out. Returns the bytes to send.
    pub fn refuse<'a>(
        &self,
        request: impl Into<Message<'a>>,
        reply: &mut [u8],
        errno: Errno,
    ) -> usize {
        let dialect = self.dialect();
        match request.into().parse(dialect) {
            Ok(request) => {
                let header = request.header;
                let latency = std::time::Duration::ZERO;
                self.metrics.record(header.opcode, latency, Some(errno), 0);
                put_header(reply, header.unique, Err(errno))
            }
            Err(_) => 0,
        }
    }

    fn malformed(&self, error: &ParseError, reply: &mut [u8]) -> Outcome {
        let counter = match error.kind {
            ParseErrorKind::UnknownOpcode(_) => &self.metrics.figures.unknown,
            _ => &self.metrics.figures.malformed,
        };
        bump(counter);
        tracing::debug!(%error, "refused");
        let silent = error
            .opcode
            .and_then(Opcode::from_u32)
            .is_some_and(is_silent);
        match error.unique {
            Some(unique) if !silent => {
                let errno = Errno::from_raw(error.errno());
                Outcome::Reply(put_header(reply, unique, Err(errno)))
            }
            _ => Outcome::Silent,
        }
    }

    fn execute(
        &self,
        offer: &LateOffer<'_>,
        out_of_line: Option<WriteSource<'_>>,
        body: &mut [u8],
        may_block: bool,
    ) -> Result<Done> {
        let request = offer.request;
        let (header, extensions) = (&request.header, &request.extensions);
        let context = Context::new(header, extensions, &self.interrupts, may_block);
        let context = context.with_late(offer);
        match (&request.operation, self.agreed.get()) {
            (_, Some(agreed)) => self.carry_out(agreed, &context, request, out_of_line, body),
            (Operation::Init { arg, flags }, None) => {
                self.initialise(&request.header, arg, *flags, body)
            }
            (_, None) => Err(self.invalid(Errno::EIO)),
        }
    }

    /// Counts a malformed request.
    fn invalid(&self, errno: Errno) -> Errno {
        bump(&self.metrics.figures.malformed);
        errno
    }
}

/// A thread that waits for a late reply.
struct Waiting(SyncSender<Vec<u8>>);

impl LateTarget for Waiting {
    fn send(self: Box<Self>, head: &[u8], data: &[u8]) {
        let _ = self.0.send([head, data].concat());
    }
}

/// Whether the kernel expects no reply, and treats one as a protocol violation.
fn is_silent(opcode: Opcode) -> bool {
    opcode.row().reply == ReplyBody::Silent
}

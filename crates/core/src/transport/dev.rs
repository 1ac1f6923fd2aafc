//! The `/dev/fuse` transport.
//!
//! Each thread has a descriptor of its own, cloned from the session's, and two [`buffers`]. A reader
//! reads a request, has it dispatched, writes the reply to the same descriptor (the kernel looks for
//! the request there) and reads again: two system calls per request, no queue, no hand-over, no memory
//! that another thread writes to.
//!
//! **Requests that sleep** stay on their thread; the *role* of reader moves ([`reader_pool`]). The
//! thread hands its role to a standby worker, carries the request out where it lies, answers it, and
//! becomes a reader again if one is missing.
//!
//! **Requests that sleep unexpectedly** are found by the [`stall_monitor`], which takes the role from
//! a thread that has held it for milliseconds without reading.
//!
//! **CPUs.** A lone caller and its reader share a CPU ([`crate::serving::Pairing`]).
//!
//! **Memory.** Buffers are address space until they are touched. A standby worker releases all but
//! the first pages.

mod buffers;
mod late;
mod pipe;
mod reader_pool;
mod stall_monitor;

use super::{Connection, LARGE_BYTES};
use crate::dispatch::{Begun, FileReply, Outcome, Wait};
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::late::LateRequest;
use crate::metrics::bump;
use crate::serving::journal::{Left, Place, Writer, is_answer_noted, is_begin_noted};
use crate::serving::{End, count_refused};
use buffers::Buffers;
use late::{LateReply, log_refused};
use pipe::SPLICE_BYTES_MIN;
use reader_pool::{Blocking, Next, Worker};
pub(crate) use reader_pool::{Load, ReaderPool};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long FORGETs gather, where nothing else arrives. A wake-up for each one would cost their callers
/// more than the FORGETs themselves.
const FORGET_INTERVAL: Duration = Duration::from_millis(1);

/// Starts the threads that serve `connection`.
///
/// # Errors
/// The system's, when a thread or memory is not available.
pub(crate) fn start<F: FileSystem>(
    connection: &Arc<Connection<F>>,
    load: Load,
) -> io::Result<Arc<ReaderPool<F>>> {
    let pool = Arc::new(ReaderPool::new(connection, load, spawn));
    stall_monitor::start(&pool)?;
    pool.start().inspect_err(|_| {
        // The monitor's thread runs already.
        connection.control.stop(End::Failed(libc::EAGAIN));
        pool.wake();
    })?;
    Ok(pool)
}

/// Starts a thread for `worker`, which is a reader from the start.
fn spawn<F: FileSystem>(pool: &Arc<ReaderPool<F>>, worker: &Arc<Worker>) -> io::Result<()> {
    let connection = &pool.connection;
    // All that can fail comes before the thread counts as a reader.
    let data_bytes_max = connection
        .dispatcher
        .features()
        .map_or(crate::features::DATA_BYTES_MAX_DEFAULT, |features| {
            features.write_bytes_max
        });
    let buffers = Buffers::new(connection, data_bytes_max)?;
    let place = match &connection.writer {
        Some(writer) => {
            let place = writer.place();
            Some(place.ok_or_else(|| io::Error::other("no place in the journal is left"))?)
        }
        None => None,
    };
    let count = connection.control.thread();
    let (pool, worker) = (Arc::clone(pool), Arc::clone(worker));
    std::thread::Builder::new()
        .name(format!("thrufs-{}", worker.number()))
        .spawn(move || {
            // Dropped last, also when this thread panics: a count of zero means that all has been dropped.
            let _count = count;
            let leaving = Leaving { pool, worker };
            let (pool, worker) = (&leaving.pool, &leaving.worker);
            let _serving = pool.connection.threads.begin();
            worker.begin();
            WorkerThread {
                pool,
                worker,
                buffers,
                place,
                left: None,
            }
            .serve();
        })?;
    Ok(())
}

struct Leaving<F: FileSystem> {
    pool: Arc<ReaderPool<F>>,
    worker: Arc<Worker>,
}

impl<F: FileSystem> Drop for Leaving<F> {
    fn drop(&mut self) {
        self.pool.leave(&self.worker);
    }
}

/// A worker on its thread, with its buffers.
struct WorkerThread<'a, F> {
    pool: &'a Arc<ReaderPool<F>>,
    worker: &'a Arc<Worker>,
    buffers: Buffers,
    /// In the journal, if there is one.
    place: Option<Place>,
    /// What another process has left of the request that was read.
    left: Option<Left>,
}

impl<F: FileSystem> WorkerThread<'_, F> {
    fn serve(&mut self) {
        while !self.pool.connection.control.is_stopping() {
            let length = match self.read() {
                Ok(length) => length,
                Err(errno) => match self.read_failed(errno) {
                    Some(end) => return self.pool.connection.control.stop(end),
                    None if self.worker.is_reader() => continue,
                    // Interrupted: the reader's role was taken away.
                    None => 0,
                },
            };
            if length > 0 {
                self.worker
                    .begin_request(self.pool, self.buffers.caller(length));
                let silent = self.carry_out(length);
                if silent && self.pool.load == Load::Rest {
                    std::thread::sleep(FORGET_INTERVAL);
                }
                if self.worker.end_request() {
                    continue;
                }
            }
            match self
                .pool
                .rejoin(self.worker, || self.buffers.release_memory())
            {
                Next::Read => {}
                Next::Leave => return,
            }
        }
    }

    fn read(&mut self) -> rustix::io::Result<usize> {
        let writer = self.pool.connection.writer.as_deref();
        let Some(mut resuming) = writer.and_then(Writer::resuming) else {
            return self.buffers.read();
        };
        if self.pool.connection.control.is_stopping() || !self.worker.is_reader() {
            return Err(rustix::io::Errno::INTR);
        }
        let length = self.buffers.read()?;
        let (unique, opcode) = self.buffers.head(length);
        self.left = resuming.left(unique, opcode);
        Ok(length)
    }

    /// The end of the session that an error of reading means, if it means one.
    fn read_failed(&self, errno: rustix::io::Errno) -> Option<End> {
        use rustix::io::Errno;
        match errno {
            // A signal; another reader was faster; the request was withdrawn.
            Errno::INTR | Errno::AGAIN | Errno::NOENT => None,
            Errno::NODEV => Some(End::Unmounted),
            Errno::CONNABORTED => Some(End::Aborted),
            other => Some(End::Failed(other.raw_os_error())),
        }
    }

    /// Carries out the request of `length` bytes in the buffers, and answers it. True when it has no reply.
    fn carry_out(&mut self, length: usize) -> bool {
        if length >= LARGE_BYTES {
            self.worker.count_large();
        }
        let dispatcher = &self.pool.connection.dispatcher;
        if let Some(left) = self.left.take() {
            self.go_on(length, left);
            return false;
        }
        self.begin(length, false);
        let (request, reply) = self.buffers.split(length);
        match dispatcher.dispatch(request, reply, false) {
            Outcome::Reply(reply) => self.send(length, reply),
            Outcome::Silent => return true,
            Outcome::File(file_reply) => self.answer_from_file(length, &file_reply),
            Outcome::Window(_) => unreachable!("this transport has no window"),
            Outcome::Later(later) => self.answer_later(later),
            Outcome::Defer(wait) => self.carry_out_blocking(length, wait),
        }
        false
    }

    /// Answers the READ of `length` bytes in the buffers from a file.
    fn answer_from_file(&mut self, length: usize, file_reply: &FileReply) {
        let dispatcher = &self.pool.connection.dispatcher;
        if file_reply.length() >= SPLICE_BYTES_MIN {
            let (file, offset) = (file_reply.file(), file_reply.offset());
            let bytes = file.available(offset, file_reply.length());
            if bytes >= SPLICE_BYTES_MIN
                && file.is_in_memory(offset, bytes)
                && self.buffers.splice(file_reply, bytes)
            {
                self.worker.count_large();
                return dispatcher.count_file_reply(file_reply, Ok(bytes));
            }
        }
        let (_, reply) = self.buffers.split(length);
        let mut result = file_reply.read_into(reply, false);
        if result == Err(Errno::DEFER) {
            bump(&dispatcher.metrics().figures.deferred);
            // Whether admitted or refused, the bytes have to be waited for.
            let _ = self.pool.begin_blocking(self.worker, Wait::Io);
            result = file_reply.read_into(reply, true);
        }
        let reply = dispatcher.finish_file_reply(file_reply, reply, result);
        self.send(length, reply);
    }

    /// Goes on with a request of which another process has `left` something.
    fn go_on(&mut self, length: usize, left: Left) {
        let dispatcher = &self.pool.connection.dispatcher;
        // Whether admitted or refused.
        let _ = self.pool.begin_blocking(self.worker, Wait::Io);
        let (request, reply) = self.buffers.split(length);
        let (place, reply) = match left {
            Left::Begun(place, begun) => (place, dispatcher.answer_again(request, reply, begun)),
            Left::Answered(place, answer) => (place, dispatcher.repeat(request, reply, &answer)),
        };
        // The place of this thread stays free: noted is what the other process has begun.
        let own = self.place.replace(place);
        self.send(length, reply);
        self.place = own;
    }

    /// Notes that the request of `length` bytes begins, if it must not be carried out twice.
    fn begin(&mut self, length: usize, may_block: bool) {
        let Some(writer) = &self.pool.connection.writer else {
            return;
        };
        let (unique, opcode) = self.buffers.head(length);
        if !opcode.is_some_and(is_begin_noted) {
            return;
        }
        // Requests that are answered later may have had all.
        self.place = self.place.take().or_else(|| writer.place());
        if let Some(place) = &self.place {
            let dispatcher = &self.pool.connection.dispatcher;
            let (request, _) = self.buffers.split(length);
            let before = dispatcher.look_before(request, may_block);
            place.begin(unique, Begun::now(before));
        }
    }

    /// Carries out a deferred request, after the reader's role was handed on.
    fn carry_out_blocking(&mut self, length: usize, wait: Wait) {
        let dispatcher = &self.pool.connection.dispatcher;
        let blocking = self.pool.begin_blocking(self.worker, wait);
        // The attempt without blocking had no effect, and may have seen nothing.
        self.begin(length, true);
        let (request, reply) = self.buffers.split(length);
        if blocking == Blocking::Refused
            && let Some(errno) = wait.refusal()
        {
            count_refused(dispatcher.metrics(), wait);
            let reply = dispatcher.refuse(request, reply, errno);
            return self.send(length, reply);
        }
        match dispatcher.dispatch(request, reply, true) {
            Outcome::Reply(reply) => self.send(length, reply),
            Outcome::File(file_reply) => {
                let result = file_reply.read_into(reply, true);
                let reply = dispatcher.finish_file_reply(&file_reply, reply, result);
                self.send(length, reply);
            }
            Outcome::Later(later) => self.answer_later(later),
            Outcome::Window(_) => unreachable!("this transport has no window"),
            Outcome::Silent | Outcome::Defer(_) => {}
        }
    }

    /// The buffers are free for the next request: the reply needs the channel alone.
    fn answer_later(&mut self, later: LateRequest) {
        let connection = &self.pool.connection;
        // What is noted of the request stays until it is answered.
        let place = match &connection.writer {
            Some(writer) if is_answer_noted(later.header().opcode) => {
                std::mem::replace(&mut self.place, writer.place())
            }
            _ => None,
        };
        let reply = LateReply::new(self.buffers.channel(), connection, later.header(), place);
        later.keep(Box::new(reply));
    }

    fn send(&self, request: usize, reply: usize) {
        if reply >= LARGE_BYTES {
            self.worker.count_large();
        }
        let place = self.place.as_ref().filter(|place| {
            let (unique, opcode) = self.buffers.head(request);
            let is_noted = opcode.is_some_and(is_answer_noted);
            if is_noted {
                let (_, answer) = self.buffers.request_and_reply(request, reply);
                place.answer(unique, answer);
            }
            is_noted
        });
        let sent = self.buffers.write(reply);
        if let Some(place) = place {
            place.end();
        }
        let Err(errno) = sent else {
            return;
        };
        let (request, reply) = self.buffers.request_and_reply(request, reply);
        self.pool.connection.dispatcher.undelivered(request, reply);
        log_refused(errno);
    }
}

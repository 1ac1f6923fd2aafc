//! The `/dev/fuse` transport.
//!
//! Each thread has a seat: a descriptor of its own, cloned from the session's, and two buffers. A
//! reader reads a request into its seat, has it dispatched, writes the reply to the descriptor that
//! the request came from (the kernel looks for it there) and reads again: two system calls per
//! request, no queue, no hand-over, no memory that another thread writes to.
//!
//! **Who sleeps.** A request that would sleep does not move to another thread; the *role* of
//! reader does ([`crew`]). The thread with the request gives its role to one that stands by, carries
//! the request out where it lies, answers it, and becomes a reader again if one is missing.
//!
//! **Who gets stuck.** Requests that nobody expected to sleep, and that do, are found by the
//! [`steward`], which takes the role from a thread that has had it for milliseconds without reading.
//!
//! **Where readers run.** A caller that is alone and its reader share a CPU ([`super::pairing`]).
//!
//! **Memory.** Buffers are address space until they are touched. A seat that stands by gives back
//! what lies beyond the first pages.

mod crew;
mod pipe;
mod seat;
mod steward;

use super::{Connection, LARGE_BYTES, begin_serving_thread, scheduling};
use crate::dispatch::{FileReply, Outcome, Wait};
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::session::{End, SessionConfig};
use crew::{Aside, Crew, Member, Next};
use pipe::SPLICE_BYTES_MIN;
use seat::Seat;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thrufs_sys::signal::current_thread_id;

/// What comes by `/dev/fuse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Everything.
    All,
    /// What does not come by another transport: FORGETs, for which nobody waits, and now and then an
    /// INTERRUPT.
    Rest,
}

/// How long FORGETs are let gather, where nothing else comes. To be woken for each would cost those
/// who cause them more than the FORGETs do.
const FORGET_INTERVAL: Duration = Duration::from_millis(1);

/// The threads of a session on `/dev/fuse`.
#[derive(Debug)]
pub(crate) struct Dev<F> {
    crew: Arc<Crew<F>>,
}

impl<F: FileSystem> Dev<F> {
    /// Starts the threads that serve `connection` as `config` says.
    ///
    /// # Errors
    ///
    /// What the system says when there is no thread or memory to be had.
    pub(crate) fn start(
        connection: &Arc<Connection<F>>,
        config: SessionConfig,
        load: Load,
    ) -> io::Result<Dev<F>> {
        let crew = Arc::new(Crew::new(connection, config, load));
        steward::start(&crew)?;
        crew.start().inspect_err(|_| {
            // The steward is there already and has nobody to look after.
            connection.control.stop(End::Failed(libc::EAGAIN));
            crew.wake();
        })?;
        Ok(Dev { crew })
    }

    /// Wakes threads so that they see that they shall end. To be called again until they have.
    pub(crate) fn wake(&self) {
        self.crew.wake();
    }
}

/// Starts a thread for `member`, which is a reader from its first moment.
fn spawn<F: FileSystem>(crew: &Arc<Crew<F>>, member: &Arc<Member>) -> io::Result<()> {
    let connection = &crew.connection;
    // What can fail is done before anybody relies on the thread.
    let data_bytes_max = connection
        .dispatcher
        .features()
        .map_or(crate::features::DATA_BYTES_MAX_DEFAULT, |features| {
            features.write_bytes_max
        });
    let seat = Seat::new(connection, data_bytes_max)?;
    let count = connection.control.thread();
    let (crew, member) = (Arc::clone(crew), Arc::clone(member));
    std::thread::Builder::new()
        .name(format!("thrufs-{}", member.number()))
        .spawn(move || {
            begin_serving_thread();
            scheduling::release(current_thread_id(), &crew.connection.allowed);
            member.begin();
            // Last, also when this thread panics: whoever sees no thread left may rely on that.
            let _count = count;
            let leaving = Leaving { crew, member };
            let (crew, member) = (&leaving.crew, &leaving.member);
            Worker { crew, member, seat }.serve();
        })?;
    Ok(())
}

/// Takes a member off the roster at the end of its thread.
struct Leaving<F: FileSystem> {
    crew: Arc<Crew<F>>,
    member: Arc<Member>,
}

impl<F: FileSystem> Drop for Leaving<F> {
    fn drop(&mut self) {
        self.crew.leave(&self.member);
    }
}

/// One thread at its work.
struct Worker<'a, F> {
    crew: &'a Arc<Crew<F>>,
    member: &'a Arc<Member>,
    seat: Seat,
}

impl<F: FileSystem> Worker<'_, F> {
    fn serve(&mut self) {
        while !self.crew.connection.control.is_stopping() {
            let length = match self.seat.read() {
                Ok(length) => length,
                Err(errno) => match self.read_failed(errno) {
                    Some(end) => return self.crew.connection.control.stop(end),
                    None if self.member.is_reader() => continue,
                    // Called off.
                    None => 0,
                },
            };
            if length > 0 {
                self.member.take_up(self.crew, self.seat.caller(length));
                let silent = self.carry_out(length);
                if silent && self.crew.load == Load::Rest {
                    std::thread::sleep(FORGET_INTERVAL);
                }
                if self.member.put_down() {
                    continue;
                }
            }
            match self.crew.rejoin(self.member, || self.seat.release_memory()) {
                Next::Read => {}
                Next::Leave => return,
            }
        }
    }

    /// What an error of reading means: nothing, or the end of the session.
    fn read_failed(&self, errno: rustix::io::Errno) -> Option<End> {
        use rustix::io::Errno;
        match errno {
            // A signal; another reader was quicker; the request was withdrawn.
            Errno::INTR | Errno::AGAIN | Errno::NOENT => None,
            Errno::NODEV => Some(End::Unmounted),
            Errno::CONNABORTED => Some(End::Aborted),
            other => Some(End::Failed(other.raw_os_error())),
        }
    }

    /// Carries out the request of `length` bytes in the seat, and answers it. True when it wants no
    /// answer.
    fn carry_out(&mut self, length: usize) -> bool {
        if length >= LARGE_BYTES {
            self.member.count_large();
        }
        let dispatcher = &self.crew.connection.dispatcher;
        let (request, reply) = self.seat.buffers(length);
        match dispatcher.dispatch(request, reply, false) {
            Outcome::Reply(reply) => self.send(length, reply),
            Outcome::Silent => return true,
            Outcome::File(file_reply) => self.answer_from_file(length, &file_reply),
            Outcome::Defer(wait) => self.carry_out_aside(length, wait),
        }
        false
    }

    /// Answers the READ in the seat, of `length` bytes, with bytes of a file.
    fn answer_from_file(&mut self, length: usize, file_reply: &FileReply) {
        let dispatcher = &self.crew.connection.dispatcher;
        if file_reply.length() >= SPLICE_BYTES_MIN {
            let (file, offset) = (file_reply.file(), file_reply.offset());
            let bytes = file.available(offset, file_reply.length());
            if bytes >= SPLICE_BYTES_MIN
                && file.is_in_memory(offset, bytes)
                && self.seat.splice(file_reply, bytes)
            {
                self.member.count_large();
                return dispatcher.count_file_reply(file_reply, Ok(bytes));
            }
        }
        let (_, reply) = self.seat.buffers(length);
        let mut result = file_reply.read_into(reply, false);
        if result == Err(Errno::DEFER) {
            bump(&dispatcher.metrics().figures.deferred);
            // Refused or not: the bytes have to be waited for.
            let _ = self.crew.stand_aside(self.member, Wait::Io);
            result = file_reply.read_into(reply, true);
        }
        let reply = dispatcher.finish_file_reply(file_reply, reply, result);
        self.send(length, reply);
    }

    /// Carries out again what was deferred, having given the reader's role away.
    fn carry_out_aside(&mut self, length: usize, wait: Wait) {
        let dispatcher = &self.crew.connection.dispatcher;
        let aside = self.crew.stand_aside(self.member, wait);
        let (request, reply) = self.seat.buffers(length);
        let reply = if aside == Aside::Refused && wait.is_for_lock() {
            // The last reader must not wait for a lock, whose holder may need it to let go.
            bump(&dispatcher.metrics().figures.lock_waiters_refused);
            dispatcher.refuse(request, reply, Errno::ENOLCK)
        } else {
            dispatcher.answer(request, reply)
        };
        if reply > 0 {
            self.send(length, reply);
        }
    }

    fn send(&self, request: usize, reply: usize) {
        if reply >= LARGE_BYTES {
            self.member.count_large();
        }
        let Err(errno) = self.seat.write(reply) else {
            return;
        };
        let (request, reply) = self.seat.request_and_reply(request, reply);
        self.crew.connection.dispatcher.undelivered(request, reply);
        use rustix::io::Errno;
        // An aborted request and an ended connection are all in a day's work.
        if !matches!(errno, Errno::NOENT | Errno::NODEV) {
            tracing::warn!(error = %errno, "the kernel did not take a reply");
        }
    }
}

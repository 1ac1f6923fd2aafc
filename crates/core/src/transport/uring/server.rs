//! One thread: takes requests from its queues, and answers them.
//!
//! All that has come is carried out in a row, and the replies go out together with the next wait: one
//! system call for each request when they come one by one, fewer when they come faster. Replies with
//! much data go out at once, so that their callers go on meanwhile.

use super::kick::{found_file, is_about_file, is_answer, kick};
use super::member::Member;
use super::team::{Ring, Team};
use super::{Reading, Sleeping, answer, message};
use crate::dispatch::{FileReply, Outcome, Wait};
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::session::End;
use crate::transport::{Connection, LARGE_BYTES, scheduling};
use rustix::io::Errno as SystemErrno;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_abi::layout::InHeader;
use thrufs_sys::fuse_ring::{Event, QueueIndex, RingRequest, Slot};
use zerocopy::FromBytes;

/// How many reads of one queue may be with the kernel at once, and be replaced by memory for further
/// requests. Beyond, requests wait until one comes back. (Those with the pool, which may take for
/// ever, are always replaced; the pool has its own bounds.)
const READS_MAX: usize = 64;

/// How long memory stays after a request with much data.
const KEEP_MEMORY: Duration = Duration::from_secs(1);

/// The slots of one queue.
#[derive(Debug)]
struct Rotation {
    queue: QueueIndex,
    /// In the kernel, or in hand.
    here: usize,
    away: usize,
    /// Of those that are away: with the kernel.
    reading: usize,
}

/// See the module.
pub(super) struct Server<'a, F> {
    connection: &'a Arc<Connection<F>>,
    team: &'a Arc<Team<F>>,
    member: &'a Arc<Member>,
    ring: Ring,
    rotations: Vec<Rotation>,
    /// When much data was last moved, until memory was given back.
    large: Option<Instant>,
}

impl<'a, F: FileSystem> Server<'a, F> {
    pub(super) fn new(
        team: &'a Arc<Team<F>>,
        member: &'a Arc<Member>,
        ring: Ring,
    ) -> Server<'a, F> {
        let rotation = |queue: &QueueIndex| Rotation {
            queue: *queue,
            here: 0,
            away: 0,
            reading: 0,
        };
        Server {
            connection: &team.connection,
            team,
            member,
            ring,
            rotations: member.group.queues.iter().map(rotation).collect(),
            large: None,
        }
    }

    /// Puts the thread where it belongs, and its memory into the kernel's hands.
    pub(super) fn begin(&mut self) -> Result<(), SystemErrno> {
        if let Some(cpu) = self.member.group.cpu
            && let Err(error) = scheduling::move_to(thrufs_sys::signal::current_thread_id(), cpu)
        {
            tracing::debug!(%error, cpu, "cannot bind a thread to its CPU");
        }
        self.ring.enable()?;
        self.ring.await_init()?;
        for number in 0..self.rotations.len() {
            for _ in 0..self.team.depth {
                self.add_slot(number)?;
            }
        }
        self.member.serve();
        Ok(())
    }

    fn add_slot(&mut self, rotation: usize) -> Result<(), SystemErrno> {
        let queue = self.rotations[rotation].queue;
        let slot = self.ring.slot(queue, self.team.payload_bytes)?;
        self.ring.register(slot)?;
        self.rotations[rotation].here += 1;
        Ok(())
    }

    /// Serves until the connection or the session is over.
    pub(super) fn serve(&mut self) {
        loop {
            if let Err(errno) = self.wait() {
                tracing::error!(error = %errno, "a ring failed");
                return self
                    .connection
                    .control
                    .stop(End::Failed(errno.raw_os_error()));
            }
            self.handle_events();
            let (here, away) = self.count();
            if here + away == 0 {
                return;
            }
            if self.team.is_ending() && away == 0 {
                // The last replies go out. What comes in their place is not taken up.
                let _ = self.ring.flush();
                return;
            }
        }
    }

    fn count(&self) -> (usize, usize) {
        let sum = |part: fn(&Rotation) -> usize| self.rotations.iter().map(part).sum();
        (sum(|rotation| rotation.here), sum(|rotation| rotation.away))
    }

    fn wait(&mut self) -> Result<(), SystemErrno> {
        let due = |last: Instant| last.elapsed() >= KEEP_MEMORY;
        if self.large.is_some_and(due) {
            // What lies in that memory goes out first.
            self.ring.flush()?;
            if self.ring.release_memory() {
                self.large = None;
            }
        }
        let timeout = self.large.map(|_| KEEP_MEMORY);
        self.ring.wait(timeout).map(drop)
    }

    fn handle_events(&mut self) {
        let mut busy = false;
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Request(slot) => {
                    busy = true;
                    self.carry_out(slot);
                }
                Event::Read(slot, reading, result) => {
                    let number = self.come_back(slot.queue());
                    self.rotations[number].reading -= 1;
                    self.go_on_reading(slot, reading, result);
                }
                Event::Woken => self.take_returned(),
                Event::Gone(slot, errno) => self.lose(slot.queue(), errno),
            }
        }
        if busy {
            self.member.put_down();
        }
    }

    fn carry_out(&mut self, mut slot: Slot) {
        self.member.take_up();
        self.team.alarm.arm();
        let RingRequest { header, rest, .. } = slot.request();
        if let Ok((header, _)) = InHeader::ref_from_prefix(header) {
            if is_answer(header) {
                return self.send(slot, 0);
            }
            if is_about_file(header) {
                self.member.note_file(header.nodeid);
            }
        }
        if rest.len() >= LARGE_BYTES {
            self.note_large();
        }
        let (message, reply) = message(&mut slot);
        match self.connection.dispatcher.dispatch(message, reply, false) {
            Outcome::Reply(length) => {
                let RingRequest { header, reply, .. } = slot.request();
                let reply = reply.get(..length).unwrap_or_default();
                if let Some(file) = found_file(header, reply) {
                    self.member.note_file(file.0);
                }
                self.send(slot, length);
            }
            Outcome::Silent => self.send(slot, 0),
            Outcome::File(file_reply) => self.answer_from_file(slot, file_reply),
            Outcome::Defer(wait) => self.hand_over(slot, wait),
        }
    }

    fn note_large(&mut self) {
        self.member.count_large();
        self.large = Some(Instant::now());
    }

    /// Sends the reply of `length` bytes that is in the slot, 0 for none.
    fn send(&mut self, slot: Slot, length: usize) {
        let large = length >= LARGE_BYTES;
        if large {
            self.note_large();
        }
        let mut sent = self.ring.commit(slot, length);
        if large {
            sent = sent.and_then(|()| self.ring.flush());
        }
        if let Err(errno) = sent
            && !is_end(errno)
        {
            self.connection
                .control
                .stop(End::Failed(errno.raw_os_error()));
        }
    }

    /// Answers a READ with bytes of a file: at once when they are in memory.
    fn answer_from_file(&mut self, mut slot: Slot, file_reply: FileReply) {
        let result = file_reply.read_into(slot.request().reply, false);
        if result == Err(Errno::DEFER) {
            bump(&self.connection.metrics().figures.deferred);
            if self.may_sleep(Wait::Io) {
                let result = file_reply.read_into(slot.request().reply, true);
                self.team.pool.dismiss(Wait::Io);
                return self.finish_reading(slot, &file_reply, result);
            }
            let reading = Reading {
                file_reply,
                filled: 0,
            };
            return self.read_aside(slot, reading);
        }
        self.finish_reading(slot, &file_reply, result);
    }

    fn finish_reading(
        &mut self,
        mut slot: Slot,
        file_reply: &FileReply,
        result: Result<usize, Errno>,
    ) {
        let dispatcher = &self.connection.dispatcher;
        let length = dispatcher.finish_file_reply(file_reply, slot.request().reply, result);
        self.send(slot, length);
    }

    /// Has the kernel read what is missing, while this thread goes on.
    fn read_aside(&mut self, slot: Slot, reading: Reading) {
        let queue = slot.queue();
        let file = Arc::clone(reading.file_reply.file());
        let offset = reading.file_reply.offset() + reading.filled as u64;
        let left = reading.file_reply.length() - reading.filled;
        let part = (reading.filled, left);
        match self.ring.read(slot, file.as_fd(), offset, part, reading) {
            Ok(()) => {
                let number = self.rotation(queue);
                self.rotations[number].reading += 1;
                self.go_away(number);
            }
            Err(errno) => self
                .connection
                .control
                .stop(End::Failed(errno.raw_os_error())),
        }
    }

    /// A read has come to its end: of the file, of what was asked, or too early.
    fn go_on_reading(
        &mut self,
        slot: Slot,
        mut reading: Reading,
        result: Result<usize, SystemErrno>,
    ) {
        let length = reading.file_reply.length();
        let result = match result {
            Ok(0) => Ok(reading.filled),
            Ok(more) => {
                reading.filled += more;
                if reading.filled < length {
                    return self.read_aside(slot, reading);
                }
                Ok(length)
            }
            Err(SystemErrno::INTR | SystemErrno::AGAIN) => return self.read_aside(slot, reading),
            Err(_) if reading.filled > 0 => Ok(reading.filled),
            Err(errno) => Err(errno.into()),
        };
        self.finish_reading(slot, &reading.file_reply, result);
    }

    /// Whether this thread may sleep, because it has no other request, now or soon, and others have
    /// its queue.
    fn may_sleep(&self, wait: Wait) -> bool {
        let alone = match &self.rotations[..] {
            [only] => only.here == 1 && only.away == 0,
            _ => false,
        };
        if !alone || !self.team.pool.admit(wait) {
            return false;
        }
        let may = self.team.stands_in_for(self.member);
        if !may {
            self.team.pool.dismiss(wait);
        }
        may
    }

    /// Carries out a request that will sleep: here, or where others may.
    fn hand_over(&mut self, mut slot: Slot, wait: Wait) {
        if self.may_sleep(wait) {
            let length = answer(&self.connection.dispatcher, &mut slot);
            self.team.pool.dismiss(wait);
            return self.send(slot, length);
        }
        let queue = slot.queue();
        let sleeping = Sleeping {
            slot,
            wait,
            member: Arc::clone(self.member),
            connection: Arc::clone(self.connection),
        };
        let Err(Sleeping { mut slot, .. }) = self.team.pool.take(sleeping) else {
            let number = self.rotation(queue);
            return self.go_away(number);
        };
        let events = &self.connection.metrics().figures;
        let length = if wait.is_for_lock() {
            // A queue must not wait for a lock, whose holder may need it to let go.
            bump(&events.lock_waiters_refused);
            let (message, reply) = message(&mut slot);
            let dispatcher = &self.connection.dispatcher;
            dispatcher.refuse(message, reply, Errno::ENOLCK)
        } else {
            bump(&events.blocked_inline);
            answer(&self.connection.dispatcher, &mut slot)
        };
        self.send(slot, length);
    }

    fn take_returned(&mut self) {
        for (slot, length) in self.member.take_returned() {
            self.come_back(slot.queue());
            self.send(slot, length);
        }
    }

    fn rotation(&mut self, queue: QueueIndex) -> usize {
        let position = |rotation: &Rotation| rotation.queue == queue;
        self.rotations.iter().position(position).unwrap_or(0)
    }

    /// A slot is carried out elsewhere: another takes its place.
    fn go_away(&mut self, number: usize) {
        let rotation = &mut self.rotations[number];
        rotation.here -= 1;
        rotation.away += 1;
        let missing = rotation.here < usize::from(self.team.depth);
        if !missing || rotation.reading > READS_MAX || self.team.is_ending() {
            return;
        }
        let (last, queue) = (rotation.here == 0, rotation.queue);
        match self.add_slot(number) {
            Ok(()) if last => self.kick(queue),
            Ok(()) => {}
            // Requests wait until the slot is back.
            Err(error) => tracing::debug!(%error, "no further memory for requests"),
        }
    }

    /// Has the kernel hand over what came while there was no memory for it.
    fn kick(&self, queue: QueueIndex) {
        // The kernel may have forgotten some.
        let mut files = self.team.files().into_iter();
        let is_kicked = files.any(|file| {
            let kicked = kick(self.connection.device.as_fd(), file, queue);
            kicked.is_ok()
        });
        if !is_kicked {
            // Until the next request of this queue, which brings the others along.
            tracing::debug!(?queue, "requests may wait behind another");
        }
    }

    /// As [`kick`](Self::kick), for all queues.
    pub(super) fn kick_all(&self) {
        for rotation in &self.rotations {
            self.kick(rotation.queue);
        }
    }

    fn come_back(&mut self, queue: QueueIndex) -> usize {
        let number = self.rotation(queue);
        let rotation = &mut self.rotations[number];
        rotation.here += 1;
        rotation.away -= 1;
        number
    }

    /// The kernel has given up a slot: with the connection, or for a reason that nobody knows yet.
    fn lose(&mut self, queue: QueueIndex, errno: SystemErrno) {
        let number = self.rotation(queue);
        self.rotations[number].here -= 1;
        // Whether it was unmounted or aborted is told on /dev/fuse.
        if is_end(errno) || self.team.is_ending() {
            return;
        }
        bump(&self.connection.metrics().figures.replies_refused);
        tracing::warn!(error = %errno, "the kernel did not take a reply");
        if let Err(error) = self.add_slot(number)
            && self.rotations[number].here == 0
            && !is_end(error)
        {
            tracing::error!(%error, "a queue has no memory left");
            self.connection
                .control
                .stop(End::Failed(error.raw_os_error()));
        }
    }
}

/// Whether this is how the kernel says that the connection has ended. An abort comes by any of them,
/// depending on what the slot was at.
fn is_end(errno: SystemErrno) -> bool {
    matches!(
        errno,
        SystemErrno::NOTCONN | SystemErrno::CANCELED | SystemErrno::CONNABORTED
    )
}

//! A worker's thread: takes requests from its queues, and answers them.
//!
//! It carries out all that has arrived, and submits the replies with the next wait: one system call per
//! request when they arrive one by one, fewer when they arrive faster. Replies with much data are
//! submitted at once, so that their callers continue meanwhile.

use super::kick::{found_file, is_about_file, is_answer, kick};
use super::request::{Answered, Reading, Sleeping, answer, answer_later, message};
use super::worker::Worker;
use super::worker_pool::{Ring, WorkerPool};
use crate::dispatch::{FileReply, Outcome, Wait};
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::{End, move_to};
use crate::transport::{Connection, LARGE_BYTES};
use rustix::io::Errno as SystemErrno;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_abi::layout::InHeader;
use thrufs_sys::fuse_ring::{Event, QueueIndex, RingRequest, Slot};
use zerocopy::FromBytes;

/// Reads of one queue that the kernel may carry out at once while other slots take their place. Beyond,
/// requests wait until a read completes. (Requests in the blocking pool, perhaps for ever, are always
/// replaced; the pool has bounds of its own.)
const READS_MAX: usize = 64;

/// How long memory is kept after a request with much data.
const KEEP_MEMORY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct QueueSlots {
    queue: QueueIndex,
    /// Registered, or carried out on this thread.
    active: usize,
    detached: usize,
    /// Those of `detached` that the kernel reads into.
    reading: usize,
}

pub(super) struct WorkerThread<'a, F> {
    connection: &'a Arc<Connection<F>>,
    pool: &'a Arc<WorkerPool<F>>,
    worker: &'a Arc<Worker>,
    ring: Ring,
    queues: Vec<QueueSlots>,
    /// Those that were given a slot since the last wait.
    replenished: Vec<QueueIndex>,
    /// A queue may have had no free slot once: since then, requests may wait in the kernel, and each that is carried
    /// out elsewhere may be the one whose reply would have fetched the next.
    has_run_out: bool,
    /// When a request last carried much data; nothing once memory was released.
    large: Option<Instant>,
}

impl<'a, F: FileSystem> WorkerThread<'a, F> {
    pub(super) fn new(
        pool: &'a Arc<WorkerPool<F>>,
        worker: &'a Arc<Worker>,
        ring: Ring,
    ) -> WorkerThread<'a, F> {
        let slots = |queue: &QueueIndex| QueueSlots {
            queue: *queue,
            active: 0,
            detached: 0,
            reading: 0,
        };
        WorkerThread {
            connection: &pool.connection,
            pool,
            worker,
            ring,
            queues: worker.group.queues.iter().map(slots).collect(),
            replenished: Vec::new(),
            has_run_out: false,
            large: None,
        }
    }

    /// Binds the thread to its CPU, and registers its slots.
    pub(super) fn begin(&mut self) -> Result<(), SystemErrno> {
        if let Some(cpu) = self.worker.group.cpu
            && let Err(error) = move_to(thrufs_sys::signal::current_thread_id(), cpu)
        {
            tracing::debug!(%error, cpu, "cannot bind a thread to its CPU");
        }
        self.ring.enable()?;
        self.ring.await_init()?;
        for number in 0..self.queues.len() {
            for _ in 0..self.pool.depth {
                self.add_slot(number)?;
            }
        }
        self.worker.serve();
        Ok(())
    }

    fn add_slot(&mut self, number: usize) -> Result<(), SystemErrno> {
        let queue = self.queues[number].queue;
        let slot = self.ring.slot(queue, self.pool.payload_bytes)?;
        self.ring.register(slot)?;
        self.queues[number].active += 1;
        Ok(())
    }

    pub(super) fn serve(&mut self) {
        loop {
            if let Err(errno) = self.wait() {
                tracing::error!(error = %errno, "a ring failed");
                return self.fail(errno);
            }
            self.handle_events();
            let (active, detached) = self.count();
            if active + detached == 0 {
                return;
            }
            if self.pool.is_ending() && detached == 0 {
                // Requests that arrive with it are not carried out.
                let _ = self.ring.flush();
                return;
            }
        }
    }

    fn fail(&self, errno: SystemErrno) {
        let end = End::Failed(errno.raw_os_error());
        self.connection.control.stop(end);
    }

    fn count(&self) -> (usize, usize) {
        let sum = |part: fn(&QueueSlots) -> usize| self.queues.iter().map(part).sum();
        (sum(|slots| slots.active), sum(|slots| slots.detached))
    }

    fn wait(&mut self) -> Result<(), SystemErrno> {
        let due = |last: Instant| last.elapsed() >= KEEP_MEMORY;
        if self.large.is_some_and(due) {
            // Replies with data in that memory are submitted first.
            self.ring.flush()?;
            if self.ring.release_memory() {
                self.large = None;
            }
        }
        let timeout = self.large.map(|_| KEEP_MEMORY);
        self.ring.wait(timeout).map(drop)
    }

    fn handle_events(&mut self) {
        // Those that have arrived since nothing was left here: until then, each queue had `depth` free slots.
        let mut requests = 0;
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Request(slot) => {
                    requests += 1;
                    self.carry_out(slot);
                }
                Event::Read(slot, reading, result) => {
                    let number = self.reattach(slot.queue());
                    self.queues[number].reading -= 1;
                    self.continue_read(slot, reading, result);
                }
                Event::Woken => self.take_returned(),
                Event::Gone(slot, errno) => self.lose(slot.queue(), errno),
            }
        }
        if requests > 0 {
            self.worker.end_requests();
        }
        self.has_run_out |= requests >= usize::from(self.pool.depth);
        let replenished = std::mem::take(&mut self.replenished);
        if self.has_run_out {
            replenished.into_iter().for_each(|queue| self.kick(queue));
        }
    }

    fn carry_out(&mut self, mut slot: Slot) {
        self.worker.begin_request();
        self.pool.monitor_waker.arm();
        let RingRequest { header, rest, .. } = slot.request();
        if let Ok((header, _)) = InHeader::ref_from_prefix(header) {
            if is_answer(header) {
                return self.send(slot, 0);
            }
            if is_about_file(header) {
                self.worker.note_file(header.nodeid);
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
                    self.worker.note_file(file.0);
                }
                self.send(slot, length);
            }
            Outcome::Silent => self.send(slot, 0),
            Outcome::File(file_reply) => self.answer_from_file(slot, file_reply),
            Outcome::Window(_) => unreachable!("this transport has no window"),
            Outcome::Later(later) => {
                let number = self.position(slot.queue());
                answer_later(later, slot, self.worker);
                self.detach(number);
            }
            Outcome::Defer(wait) => self.carry_out_blocking(slot, wait),
        }
    }

    fn note_large(&mut self) {
        self.worker.count_large();
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
            self.fail(errno);
        }
    }

    /// Answers a READ from a file, at once when the bytes are in memory.
    fn answer_from_file(&mut self, mut slot: Slot, file_reply: FileReply) {
        let result = file_reply.read_into(slot.request().reply, false);
        if result == Err(Errno::DEFER) {
            bump(&self.connection.metrics().figures.deferred);
            if self.may_sleep(Wait::Io) {
                let result = file_reply.read_into(slot.request().reply, true);
                self.pool.blocking_pool.dismiss(Wait::Io);
                return self.finish_reading(slot, &file_reply, result);
            }
            let reading = Reading {
                file_reply,
                filled: 0,
            };
            return self.read_asynchronously(slot, reading);
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

    /// Submits a read of the missing bytes.
    fn read_asynchronously(&mut self, slot: Slot, reading: Reading) {
        let queue = slot.queue();
        let file = Arc::clone(reading.file_reply.file());
        let offset = reading.file_reply.offset() + reading.filled as u64;
        let left = reading.file_reply.length() - reading.filled;
        let part = (reading.filled, left);
        match self.ring.read(slot, file.as_fd(), offset, part, reading) {
            Ok(()) => {
                let number = self.position(queue);
                self.queues[number].reading += 1;
                self.detach(number);
            }
            Err(errno) => self.fail(errno),
        }
    }

    /// A read has completed: with all bytes, at the end of the file, or short.
    fn continue_read(
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
                    return self.read_asynchronously(slot, reading);
                }
                Ok(length)
            }
            Err(SystemErrno::INTR | SystemErrno::AGAIN) => {
                return self.read_asynchronously(slot, reading);
            }
            Err(_) if reading.filled > 0 => Ok(reading.filled),
            Err(errno) => Err(errno.into()),
        };
        self.finish_reading(slot, &reading.file_reply, result);
    }

    /// Whether this thread may sleep: it has no other request, and another thread serves its queue.
    fn may_sleep(&self, wait: Wait) -> bool {
        let alone = match &self.queues[..] {
            [only] => only.active == 1 && only.detached == 0,
            _ => false,
        };
        if !alone || !self.pool.blocking_pool.admit(wait) {
            return false;
        }
        let may = self.pool.has_substitute(self.worker);
        if !may {
            self.pool.blocking_pool.dismiss(wait);
        }
        may
    }

    /// Carries out a request that will sleep: here, or in the blocking pool.
    fn carry_out_blocking(&mut self, slot: Slot, wait: Wait) {
        let queue = slot.queue();
        if self.may_sleep(wait) {
            let answered = answer(&self.connection.dispatcher, slot, self.worker);
            self.pool.blocking_pool.dismiss(wait);
            return self.finish(queue, answered);
        }
        let sleeping = Sleeping {
            slot,
            wait,
            worker: Arc::clone(self.worker),
            connection: Arc::clone(self.connection),
        };
        let Err(Sleeping { mut slot, .. }) = self.pool.blocking_pool.take(sleeping) else {
            let number = self.position(queue);
            return self.detach(number);
        };
        let dispatcher = &self.connection.dispatcher;
        let answered = match wait.refusal() {
            Some(errno) => {
                let (message, reply) = message(&mut slot);
                let length = dispatcher.refuse(message, reply, errno);
                Answered::Now(slot, length)
            }
            None => answer(dispatcher, slot, self.worker),
        };
        self.finish(queue, answered);
    }

    fn finish(&mut self, queue: QueueIndex, answered: Answered) {
        match answered {
            Answered::Now(slot, length) => self.send(slot, length),
            Answered::Later => {
                let number = self.position(queue);
                self.detach(number);
            }
        }
    }

    fn take_returned(&mut self) {
        for (slot, length) in self.worker.take_returned() {
            self.reattach(slot.queue());
            self.send(slot, length);
        }
    }

    fn position(&self, queue: QueueIndex) -> usize {
        let position = |slots: &QueueSlots| slots.queue == queue;
        self.queues.iter().position(position).unwrap_or(0)
    }

    /// A slot's request is carried out elsewhere: another slot takes its place.
    fn detach(&mut self, number: usize) {
        let slots = &mut self.queues[number];
        slots.active -= 1;
        slots.detached += 1;
        let missing = slots.active < usize::from(self.pool.depth);
        if !missing || self.pool.is_ending() {
            return;
        }
        if slots.reading > READS_MAX {
            self.has_run_out = true;
            return;
        }
        let queue = slots.queue;
        match self.add_slot(number) {
            Ok(()) if !self.replenished.contains(&queue) => self.replenished.push(queue),
            Ok(()) => {}
            Err(error) => {
                // Requests wait until a slot is back.
                self.has_run_out = true;
                tracing::debug!(%error, "no further memory for requests");
            }
        }
    }

    /// Makes the kernel hand over requests that found no free slot.
    fn kick(&self, queue: QueueIndex) {
        // The kernel may have forgotten some of the files.
        let mut files = self.pool.files().into_iter();
        let is_kicked = files.any(|file| {
            let kicked = kick(self.connection.device.as_fd(), file, queue);
            kicked.is_ok()
        });
        if !is_kicked {
            // Until the next request of this queue brings them along.
            tracing::debug!(?queue, "requests may wait behind another");
        }
    }

    pub(super) fn kick_all(&self) {
        for slots in &self.queues {
            self.kick(slots.queue);
        }
    }

    fn reattach(&mut self, queue: QueueIndex) -> usize {
        let number = self.position(queue);
        let slots = &mut self.queues[number];
        slots.active += 1;
        slots.detached -= 1;
        number
    }

    /// The kernel has given up a slot: the connection has ended, or it refused a reply.
    fn lose(&mut self, queue: QueueIndex, errno: SystemErrno) {
        let number = self.position(queue);
        self.queues[number].active -= 1;
        // /dev/fuse reports whether it was unmounted or aborted.
        if is_end(errno) || self.pool.is_ending() {
            return;
        }
        bump(&self.connection.metrics().figures.replies_refused);
        tracing::warn!(error = %errno, "the kernel did not take a reply");
        if let Err(error) = self.add_slot(number)
            && self.queues[number].active == 0
            && !is_end(error)
        {
            tracing::error!(%error, "a queue has no memory left");
            self.fail(error);
        }
    }
}

/// Whether the kernel says so that the connection has ended. An abort gives any of them, depending on
/// the state of the slot.
fn is_end(errno: SystemErrno) -> bool {
    matches!(
        errno,
        SystemErrno::NOTCONN | SystemErrno::CANCELED | SystemErrno::CONNABORTED
    )
}

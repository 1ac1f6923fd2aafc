//! The io_uring transport (Linux 6.14).
//!
//! The kernel has a queue for each possible CPU and puts a request on the queue of the CPU where its
//! caller is. Each CPU has a thread here that is bound to it ([`plan`]), with a ring, and memory in
//! which requests come and replies go ([`thrufs_sys::fuse_ring`]). The thread carries a request out where
//! it lies ([`worker_thread`]): sending the reply and waiting for the next is one system call, and neither
//! the request nor its data cross to another CPU.
//!
//! **Who sleeps.** Requests that say so go to a [pool](crate::serving::BlockingPool), and reads of what is not in memory to the
//! kernel, by the same ring; each leaves room for another on its queue. What sleeps unexpectedly is
//! found by the [`stall_monitor`]. Where that can happen (that is for the file system to say,
//! [`Negotiation::set_prompt`](crate::Negotiation::set_prompt)) a thread takes one request at a time,
//! so that it keeps nobody else waiting, and each queue has a second thread from the start.
//!
//! **How it starts.** Once INIT was answered with `OVER_IO_URING`, every caller waits until each queue
//! has memory. So all that can fail is tried before: rings are made before INIT is read
//! ([`prepare`](mod@prepare)), and what fails after it is made known to the kernel, which falls back to `/dev/fuse`
//! when an entry is refused.
//!
//! **What stays on `/dev/fuse`.** FORGET, INTERRUPT, notifications, and the news of the connection's
//! end: [`super::dev`], with one reader.

mod kick;
mod plan;
mod prepare;
mod stall_monitor;
mod worker;
mod worker_pool;
mod worker_thread;

pub use prepare::ring_availability;
pub(crate) use prepare::{Prepared, prepare};

use super::Connection;
use super::choice::{Carrier, UringRefusal};
use crate::dispatch::{Dispatcher, FileReply, Message, Wait};
use crate::features::Features;
use crate::file_system::FileSystem;
use crate::serving::BlockingJob;
use crate::session::End;
use plan::Group;
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use thrufs_sys::fuse_ring::{QueueIndex, RingRequest, Slot};
use worker::Worker;
use worker_pool::{Ring, WorkerPool};
use worker_thread::WorkerThread;

/// How long threads have to start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests in hand at once where none sleeps unexpectedly.
const DEPTH_PROMPT: u16 = 8;

/// The longest reply without data: an extended attribute.
const BODY_BYTES_MIN: usize = 64 << 10;

/// A READ whose bytes are on their way from a file.
#[derive(Debug)]
pub(super) struct Reading {
    file_reply: FileReply,
    filled: usize,
}

/// The request in a slot, and the room for its reply.
fn message(slot: &mut Slot) -> (Message<'_>, &mut [u8]) {
    let RingRequest {
        header,
        structure,
        rest,
        reply,
    } = slot.request();
    let message = Message::Pieces {
        header,
        structure,
        rest,
    };
    (message, reply)
}

/// Where a thread says whether it serves; nothing for those that come later, to help.
type Report = Option<SyncSender<Result<(), Errno>>>;

/// A request that will sleep.
#[derive(Debug)]
struct Sleeping<F> {
    slot: Slot,
    wait: Wait,
    /// Whose it is.
    worker: Arc<Worker>,
    connection: Arc<Connection<F>>,
}

impl<F: FileSystem> BlockingJob for Sleeping<F> {
    fn wait(&self) -> Wait {
        self.wait
    }

    fn run(mut self) -> impl FnOnce() {
        let length = answer(&self.connection.dispatcher, &mut self.slot);
        move || self.worker.give_back(self.slot, length)
    }
}

/// Carries out a request to its end. Returns the length of the reply.
fn answer<F: FileSystem>(dispatcher: &Dispatcher<F>, slot: &mut Slot) -> usize {
    let (message, reply) = message(slot);
    dispatcher.answer(message, reply)
}

/// The threads of a session on io_uring.
#[derive(Debug)]
pub(crate) struct Uring<F> {
    pool: Arc<WorkerPool<F>>,
}

impl<F: FileSystem> Uring<F> {
    /// Starts serving, after INIT was answered. On an error, the kernel sends requests to `/dev/fuse`.
    ///
    /// # Errors
    ///
    /// Why there is no ring. If even that could not be made known to the kernel, the session is told
    /// to end.
    pub(crate) fn start(
        connection: &Arc<Connection<F>>,
        features: &Features,
        prepared: Prepared,
    ) -> Result<(Uring<F>, Carrier), UringRefusal> {
        let config = connection.config.ring;
        let default = if features.prompt { DEPTH_PROMPT } else { 1 };
        let depth = config.depth.map_or(default, NonZeroU16::get);
        let (groups, mut rings) = (prepared.groups, prepared.rings);
        let each = if features.prompt { 1 } else { 2 };
        let first = rings.split_off(rings.len().saturating_sub(groups.len() * each));
        let payload_bytes = BODY_BYTES_MIN.max(features.write_bytes_max as usize);
        let pool = Arc::new(WorkerPool::new(connection, depth, payload_bytes, rings));
        if let Err(refusal) = start_all(&pool, &groups, first) {
            give_up(&pool);
            return Err(refusal);
        }
        let carrier = Carrier::Uring {
            threads: pool.len(),
            queues: groups.iter().map(|group| group.queues.len()).sum(),
            depth,
        };
        Ok((Uring { pool }, carrier))
    }
}

impl<F> Uring<F> {
    /// Wakes threads so that they take_sample that they shall end. To be called again until they have.
    pub(crate) fn wake(&self) {
        self.pool.wake();
    }

    /// Ends the threads for requests that sleep, once all others have ended. Returns how many are left at
    /// `deadline`.
    pub(crate) fn end(&self, deadline: Instant) -> usize {
        self.pool.blocking_pool.end(deadline)
    }
}

fn start_all<F: FileSystem>(
    pool: &Arc<WorkerPool<F>>,
    groups: &[Group],
    rings: Vec<Ring>,
) -> Result<(), UringRefusal> {
    let no_thread = |error: io::Error| {
        UringRefusal::NoThread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
    };
    stall_monitor::start(pool).map_err(no_thread)?;
    let (report, reports) = sync_channel(rings.len());
    let count = rings.len();
    for (number, ring) in rings.into_iter().enumerate() {
        let number = number % groups.len();
        let added = pool.add(number, &groups[number], ring, Some(report.clone()));
        added.map_err(no_thread)?;
    }
    drop(report);
    await_reports(&reports, count)
}

fn await_reports(reports: &Receiver<Result<(), Errno>>, count: usize) -> Result<(), UringRefusal> {
    let deadline = Instant::now() + START_TIMEOUT;
    for _ in 0..count {
        let left = deadline.saturating_duration_since(Instant::now());
        match reports.recv_timeout(left) {
            Ok(started) => started.map_err(UringRefusal::Refused)?,
            Err(_) => return Err(UringRefusal::NoThread(Errno::TIMEDOUT)),
        }
    }
    Ok(())
}

/// Has the kernel use `/dev/fuse` after all: an entry that it must refuse makes it do so.
fn give_up<F>(pool: &WorkerPool<F>) {
    let refused = pool.take_ring().is_some_and(|mut ring| {
        let refused = ring.enable().and_then(|()| {
            let slot = ring.slot(QueueIndex(u16::MAX), pool.payload_bytes)?;
            ring.register(slot)
        });
        // Not agreed on any more: it has done so before.
        matches!(
            refused,
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTCONN)
        )
    });
    pool.abandon();
    if !refused {
        // Better no mount than one whose callers wait for ever.
        pool.connection.control.stop(End::Failed(libc::EIO));
    }
}

fn spawn<F: FileSystem>(
    pool: &Arc<WorkerPool<F>>,
    worker: Arc<Worker>,
    ring: Ring,
    report: Report,
) -> io::Result<()> {
    let count = pool.connection.control.thread();
    let pool = Arc::clone(pool);
    std::thread::Builder::new()
        .name(format!("thrufs-ring-{}", worker.group_number))
        .spawn(move || {
            // Last, also when this thread panics: whoever sees no thread left may rely on that.
            let _count = count;
            let _leaving = Leaving {
                pool: &pool,
                worker: &worker,
            };
            let _serving = pool.connection.threads.begin();
            worker.begin();
            let mut thread = WorkerThread::new(&pool, &worker, ring);
            let begun = thread.begin();
            let is_late = report.is_none();
            if let Some(report) = report {
                let _ = report.send(begun);
            }
            if begun.is_ok() {
                if is_late {
                    thread.kick_all();
                }
                thread.serve();
            }
        })
        .map(drop)
}

/// Takes a worker off the list at the end of its thread.
struct Leaving<'a, F> {
    pool: &'a WorkerPool<F>,
    worker: &'a Arc<Worker>,
}

impl<F> Drop for Leaving<'_, F> {
    fn drop(&mut self) {
        self.pool.leave(self.worker);
    }
}

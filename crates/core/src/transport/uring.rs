//! The io_uring transport (Linux 6.14).
//!
//! The kernel has a queue for each possible CPU and puts a request on the queue of its caller's CPU. Each
//! CPU has a thread that is bound to it ([`plan`]), with a ring, and with memory for requests and replies
//! ([`thrufs_sys::fuse_ring`]). The thread carries a request out where it lies ([`worker_thread`]): one
//! system call sends the reply and waits for the next, and neither the request nor its data cross to
//! another CPU.
//!
//! **Requests that sleep** go to a [pool](crate::serving::BlockingPool), and reads of uncached bytes to the
//! kernel, over the same ring; another slot takes their place on the queue. Requests that sleep
//! unexpectedly are found by the [`stall_monitor`]. A file system that has such requests says so
//! ([`Negotiation::set_prompt`](crate::Negotiation::set_prompt)): a thread then takes one request at a
//! time, so that none waits for it, and each queue has two threads.
//!
//! **Start.** Once INIT was answered with `OVER_IO_URING`, every caller waits until each queue has memory.
//! So what can fail is tried before INIT is read ([`prepare`](mod@prepare)). After a later failure, an entry
//! that the kernel refuses makes it fall back to `/dev/fuse`.
//!
//! **On `/dev/fuse`** stay FORGET, INTERRUPT, notifications and the end of the connection:
//! [`super::dev`], with one reader.

mod kick;
mod plan;
mod prepare;
mod request;
mod stall_monitor;
mod worker;
mod worker_pool;
mod worker_thread;

pub use prepare::ring_availability;
pub(crate) use prepare::{Prepared, prepare};

use super::{Carrier, Connection, UringRefusal};
use crate::features::Features;
use crate::file_system::FileSystem;
use crate::serving::End;
use plan::Group;
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use thrufs_sys::fuse_ring::QueueIndex;
use worker::Worker;
pub(crate) use worker_pool::WorkerPool;
use worker_pool::{Report, Ring};
use worker_thread::WorkerThread;

const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Slots of a queue where no request sleeps unexpectedly.
const DEPTH_PROMPT: u16 = 8;

/// The longest reply without data: an extended attribute.
const BODY_BYTES_MIN: usize = 64 << 10;

/// Starts serving, after INIT was answered. On an error, the kernel sends requests to `/dev/fuse`; if it
/// could not be made to, the session is ended.
///
/// # Errors
/// Why the session has no ring.
pub(crate) fn start<F: FileSystem>(
    connection: &Arc<Connection<F>>,
    features: &Features,
    prepared: Prepared,
) -> Result<(Arc<WorkerPool<F>>, Carrier), UringRefusal> {
    let config = connection.config.ring;
    let default = if features.prompt { DEPTH_PROMPT } else { 1 };
    let depth = config.depth.map_or(default, NonZeroU16::get);
    let (groups, mut rings) = (prepared.groups, prepared.rings);
    let each = if features.prompt { 1 } else { 2 };
    let first = rings.split_off(rings.len().saturating_sub(groups.len() * each));
    let payload_bytes = BODY_BYTES_MIN.max(features.write_bytes_max as usize);
    let pool = Arc::new(WorkerPool::new(
        connection,
        depth,
        payload_bytes,
        rings,
        spawn,
    ));
    if let Err(refusal) = start_all(&pool, &groups, first) {
        give_up(&pool);
        return Err(refusal);
    }
    let carrier = Carrier::Uring {
        threads: pool.len(),
        queues: groups.iter().map(|group| group.queues.len()).sum(),
        depth,
    };
    Ok((pool, carrier))
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

/// Makes the kernel fall back to `/dev/fuse`: it does when it refuses an entry.
fn give_up<F>(pool: &WorkerPool<F>) {
    let refused = pool.take_ring().is_some_and(|mut ring| {
        let refused = ring.enable().and_then(|()| {
            let slot = ring.slot(QueueIndex(u16::MAX), pool.payload_bytes)?;
            ring.register(slot)
        });
        // Or it has fallen back already, and refuses every entry.
        matches!(
            refused,
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTCONN)
        )
    });
    pool.abandon();
    if !refused {
        // A failed mount is better than callers that wait for ever.
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
            // Dropped last, also when this thread panics: a count of zero means that all has been dropped.
            let _count = count;
            let (pool, worker) = (pool, worker);
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

struct Leaving<'a, F> {
    pool: &'a WorkerPool<F>,
    worker: &'a Arc<Worker>,
}

impl<F> Drop for Leaving<'_, F> {
    fn drop(&mut self) {
        self.pool.leave(self.worker);
    }
}

//! A vhost-user proxy that keeps a front end's connection while its workers die and are replaced.
//!
//! To a front end the end of the connection is the end of the device. So the process that starts workers owns
//! it, forwards messages to the current worker and replies to the front end, and records the messages that
//! are still in effect, with their descriptors ([`kept`]). After a worker's death the next one gets all of
//! these, and then the message that was not answered. The front end sees a pause.
//!
//! A message is recorded when its reply shows success, or when it was sent if it has no reply. A message
//! without its reply is sent again. Requests do not pass here: they go through the guest's memory.

mod kept;
mod wire;

use crate::journal::Journal;
use crate::mailbox::signal;
use kept::{Kept, queue_of};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{NEED_REPLY, Parcel, Reader, code};

/// `VHOST_USER_PROTOCOL_F_REPLY_ACK`.
const REPLY_ACK: u64 = 1 << 3;
/// `VHOST_USER_PROTOCOL_F_LOG_SHMFD`.
const LOG_SHMFD: u64 = 1 << 1;

/// See the module. When this is dropped, the front end is disconnected.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    front_end: UnixStream,
}

#[derive(Debug)]
struct Shared {
    next: Mutex<Option<UnixStream>>,
    ends: AtomicBool,
    connected: AtomicBool,
    eventfd: OwnedFd,
}

impl Shared {
    fn next(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Starts a thread that proxies the front end at the other end of `front_end`. Its workers use `journal`.
    ///
    /// # Errors
    ///
    /// Without descriptors or threads.
    pub fn start(front_end: UnixStream, journal: Journal) -> io::Result<Keeper> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            next: Mutex::default(),
            ends: AtomicBool::new(false),
            connected: AtomicBool::new(true),
            eventfd: eventfd(0, flags)?,
        });
        let keeping = Keeping {
            shared: Arc::clone(&shared),
            front_end: front_end.try_clone()?,
            from_front_end: Reader::default(),
            worker: None,
            from_worker: Reader::default(),
            kept: Kept::default(),
            pending: None,
            journal,
        };
        std::thread::Builder::new()
            .name("thrufs-keeper".to_owned())
            .spawn(move || keeping.run())?;
        Ok(Keeper { shared, front_end })
    }

    /// Connects another worker, at the other end of `stream`. The last one must have ended: its later
    /// actions would mix with those of the new one.
    pub fn attach(&self, stream: UnixStream) {
        let mut next = self.shared.next();
        // Otherwise closed at once: the thread has ended, and the worker would wait for ever.
        if self.shared.connected.load(Ordering::SeqCst) {
            *next = Some(stream);
            signal(self.shared.eventfd.as_fd());
        }
    }

    /// Whether the front end is connected.
    pub fn is_connected(&self) -> bool {
        let mut polled = [PollFd::new(&self.front_end, PollFlags::RDHUP)];
        let now = rustix::event::Timespec::default();
        let hung_up = poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0);
        !hung_up && self.shared.connected.load(Ordering::SeqCst)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        let _ = self.front_end.shutdown(Shutdown::Both);
        signal(self.shared.eventfd.as_fd());
    }
}

struct Keeping {
    shared: Arc<Shared>,
    front_end: UnixStream,
    from_front_end: Reader,
    worker: Option<UnixStream>,
    from_worker: Reader,
    kept: Kept,
    /// The message that has no reply yet, or waits for a worker.
    pending: Option<Parcel>,
    journal: Journal,
}

/// The front end has disconnected or broken the protocol: the thread ends.
struct Over;

#[derive(Default)]
struct Ready {
    rung: bool,
    front_end: bool,
    hung_up: bool,
    worker: bool,
}

impl Keeping {
    fn run(mut self) {
        while self.turn().is_ok() {}
        let mut next = self.shared.next();
        self.shared.connected.store(false, Ordering::SeqCst);
        *next = None;
        drop(next);
        let _ = self.front_end.shutdown(Shutdown::Both);
    }

    fn turn(&mut self) -> Result<(), Over> {
        let ready = self.wait();
        if self.shared.ends.load(Ordering::SeqCst) {
            return Err(Over);
        }
        if ready.rung {
            let _ = rustix::io::read(&self.shared.eventfd, &mut [0_u8; 8]);
            let next = self.shared.next().take();
            if let Some(worker) = next {
                self.take_on(worker)?;
            }
        } else if ready.worker {
            self.hear_worker()?;
        } else if ready.front_end {
            self.hear_front_end()?;
        } else if ready.hung_up {
            return Err(Over);
        }
        Ok(())
    }

    /// Waits for an event. Messages stay in the socket while they cannot be forwarded.
    fn wait(&self) -> Ready {
        let listens = self.pending.is_none() && self.worker.is_some();
        let in_or_gone = if listens {
            PollFlags::IN | PollFlags::RDHUP
        } else {
            PollFlags::RDHUP
        };
        let mut polled = vec![
            PollFd::new(&self.shared.eventfd, PollFlags::IN),
            PollFd::new(&self.front_end, in_or_gone),
        ];
        if let Some(worker) = &self.worker {
            polled.push(PollFd::new(worker, PollFlags::IN));
        }
        if poll(&mut polled, None).is_err() {
            return Ready::default();
        }
        let front_end = polled[1].revents();
        Ready {
            rung: !polled[0].revents().is_empty(),
            front_end: listens && front_end.contains(PollFlags::IN),
            hung_up: front_end.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR),
            worker: polled.get(2).is_some_and(|it| !it.revents().is_empty()),
        }
    }

    fn hear_front_end(&mut self) -> Result<(), Over> {
        match self.from_front_end.read(&self.front_end) {
            Ok(Some(parcel)) => {
                self.pending = Some(parcel);
                self.pass_on();
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, "the front end failed");
                Err(Over)
            }
        }
    }

    fn pass_on(&mut self) {
        let (Some(parcel), Some(worker)) = (&self.pending, &self.worker) else {
            return;
        };
        if parcel.code == code::SET_VRING_BASE {
            self.journal.note_base(queue_of(parcel) as usize);
        }
        if parcel.send(worker, parcel.flags).is_err() {
            // The message waits for the next worker.
            self.worker = None;
            return;
        }
        if !self.brings_reply(parcel)
            && let Some(parcel) = self.pending.take()
        {
            self.kept.keep(parcel);
        }
    }

    fn brings_reply(&self, parcel: &Parcel) -> bool {
        let agreed = self.kept.protocol_features();
        match parcel.code {
            code::GET_FEATURES
            | code::GET_VRING_BASE
            | code::GET_PROTOCOL_FEATURES
            | code::GET_QUEUE_NUM
            | code::GET_CONFIG
            | code::GET_INFLIGHT_FD
            | code::GET_MAX_MEM_SLOTS
            | code::GET_STATUS
            | code::GET_SHARED_OBJECT
            | code::SET_DEVICE_STATE_FD
            | code::CHECK_DEVICE_STATE
            | code::GET_SHMEM_CONFIG => true,
            code::SET_LOG_BASE if agreed & LOG_SHMFD != 0 => true,
            // REPLY_ACK is negotiated by this message itself.
            code::SET_PROTOCOL_FEATURES => {
                let agreed = parcel.u64_at(0).unwrap_or(0);
                parcel.flags & NEED_REPLY != 0 && agreed & REPLY_ACK != 0
            }
            _ => parcel.flags & NEED_REPLY != 0 && agreed & REPLY_ACK != 0,
        }
    }

    fn hear_worker(&mut self) -> Result<(), Over> {
        let Some(worker) = &self.worker else {
            return Ok(());
        };
        match self.from_worker.read(worker) {
            Ok(Some(reply)) => self.answer(&reply),
            Ok(None) => Ok(()),
            Err(_) => {
                self.worker = None;
                Ok(())
            }
        }
    }

    fn answer(&mut self, reply: &Parcel) -> Result<(), Over> {
        if let Some(asked) = self.pending.take() {
            let done = reply.u64_at(0) == Some(0);
            match asked.code {
                code::GET_VRING_BASE => {
                    if let (Some(queue), Some(base)) = (reply.u32_at(0), reply.u32_at(4)) {
                        self.kept.stopped(queue, base);
                    }
                }
                code::SET_LOG_BASE => self.kept.keep(asked),
                _ if done => self.kept.keep(asked),
                _ => {}
            }
        }
        reply.send(&self.front_end, reply.flags).map_err(|_| Over)
    }

    fn take_on(&mut self, worker: UnixStream) -> Result<(), Over> {
        self.from_worker = Reader::default();
        let mut reader = Reader::default();
        let shared = &self.shared;
        let mut heard = |expected| loop {
            match reader.read(&worker)? {
                Some(reply) if reply.code == expected => return Ok(()),
                Some(_) => {}
                None => wait_for(&worker, shared)?,
            }
        };
        match self.kept.tell(worker.as_fd(), &mut heard) {
            Ok(()) => {
                self.worker = Some(worker);
                self.pass_on();
                Ok(())
            }
            // The next worker, or the end of the connection, follows.
            Err(error) => {
                tracing::debug!(%error, "the worker ended at once");
                self.worker = None;
                Ok(())
            }
        }
    }
}

/// Waits for a message of the worker; an error when another worker or the end came first.
fn wait_for(worker: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut polled = [
        PollFd::new(worker, PollFlags::IN),
        PollFd::new(&shared.eventfd, PollFlags::IN),
    ];
    poll(&mut polled, None)?;
    let rung = !polled[1].revents().is_empty();
    if polled[0].revents().is_empty() && rung {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;

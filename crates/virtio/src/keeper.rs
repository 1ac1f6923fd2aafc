//! Keeps a front end's connection while the processes that serve it come and go.
//!
//! A front end knows one connection: when that is gone, the device is. So it is not the worker who has
//! it but the process that starts workers. What the front end says is passed on to the worker of the
//! moment, and its answers back; and what still holds of it is kept, with the descriptors ([`kept`]).
//! When the worker has died, another is told all of it, and then what the dead one had not answered. The
//! front end notices a pause.
//!
//! A message is kept once it was carried out, if that can be seen, or when it was sent. One that was
//! begun and not answered is sent again.
//!
//! Only control messages come this way: requests go through the guest's memory.

mod kept;
mod wire;

use crate::journal::Journal;
use crate::post::ring;
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
    bell: OwnedFd,
}

impl Shared {
    fn next(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Keeps the front end at the other end of `front_end`, by a thread of its own, whose worker notes
    /// in `journal` what it does.
    ///
    /// # Errors
    ///
    /// No descriptors, no threads.
    pub fn start(front_end: UnixStream, journal: Journal) -> io::Result<Keeper> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(Shared {
            next: Mutex::default(),
            ends: AtomicBool::new(false),
            connected: AtomicBool::new(true),
            bell: eventfd(0, flags)?,
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

    /// Gives the connection to another worker, to which `stream` leads. Its predecessor must have
    /// ended: what that still did would come after what this one does.
    pub fn attach(&self, stream: UnixStream) {
        let mut next = self.shared.next();
        // Else it is closed at once: nobody would ever read from it, and the worker wait for ever.
        if self.shared.connected.load(Ordering::SeqCst) {
            *next = Some(stream);
            ring(self.shared.bell.as_fd());
        }
    }

    /// Whether the front end is there.
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
        ring(self.shared.bell.as_fd());
    }
}

/// The thread.
struct Keeping {
    shared: Arc<Shared>,
    front_end: UnixStream,
    from_front_end: Reader,
    worker: Option<UnixStream>,
    from_worker: Reader,
    kept: Kept,
    /// What was sent, or is to be sent, and waits for its reply.
    pending: Option<Parcel>,
    journal: Journal,
}

/// Why the thread ends: the front end has gone, or says what it must not.
struct Over;

/// What there is to do.
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
            let _ = rustix::io::read(&self.shared.bell, &mut [0_u8; 8]);
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

    /// Waits for something. What the front end says is left where it is while it cannot be passed on.
    fn wait(&self) -> Ready {
        let listens = self.pending.is_none() && self.worker.is_some();
        let in_or_gone = if listens {
            PollFlags::IN | PollFlags::RDHUP
        } else {
            PollFlags::RDHUP
        };
        let mut polled = vec![
            PollFd::new(&self.shared.bell, PollFlags::IN),
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

    /// Sends the worker what is pending.
    fn pass_on(&mut self) {
        let (Some(parcel), Some(worker)) = (&self.pending, &self.worker) else {
            return;
        };
        if parcel.code == code::SET_VRING_BASE {
            self.journal.note_base(queue_of(parcel) as usize);
        }
        if parcel.send(worker, parcel.flags).is_err() {
            // It waits for the next one.
            self.worker = None;
            return;
        }
        if !self.brings_reply(parcel)
            && let Some(parcel) = self.pending.take()
        {
            self.kept.keep(parcel);
        }
    }

    /// Whether there will be a reply.
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
            // Agreed on with this very message.
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

    /// Passes a reply on to the front end.
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

    /// Tells another worker all that it has to know.
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
            // Another will come, or it is over.
            Err(error) => {
                tracing::debug!(%error, "the worker ended at once");
                self.worker = None;
                Ok(())
            }
        }
    }
}

/// Waits until the worker says something; an error when there is nothing to be waited for any more.
fn wait_for(worker: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut polled = [
        PollFd::new(worker, PollFlags::IN),
        PollFd::new(&shared.bell, PollFlags::IN),
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

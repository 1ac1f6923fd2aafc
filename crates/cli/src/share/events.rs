//! What the supervisor of a share waits for, all in one place.

use super::supervisor::{Phase, Supervisor};
use crate::channel::Message;
use crate::waiting;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a worker has to end once its last thread has begun to.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    /// This process was sent a signal.
    Signal(i32),
    /// The worker says something.
    Worker(Message),
    /// The worker is gone.
    WorkerEnded,
    /// It is ending, and cannot.
    WorkerStuck,
    /// Somebody wants to be let in.
    Knock,
    /// Who was let in speaks.
    Speaks,
    /// Who was let in has gone again.
    Gone,
    /// Nothing of all that.
    Deadline,
}

impl Supervisor {
    /// Waits for the next event. What the worker has said is heard before its end is seen.
    pub(super) fn next_event(&mut self, deadline: Option<Instant>) -> Event {
        loop {
            let descriptors = [
                Some(self.signals.as_fd()),
                Some(self.worker.channel.as_fd()),
                Some(self.worker.ended()),
                self.worker.ending(),
                matches!(self.phase, Phase::Ready).then(|| self.door.as_fd()),
                match &self.phase {
                    Phase::LetIn(stream, _) => Some(stream.as_fd()),
                    _ => None,
                },
            ];
            let [signal, said, ended, ending, knock, stream] =
                waiting::readable(descriptors, deadline);
            if signal && let Ok(signal) = self.signals.read() {
                return Event::Signal(signal.number);
            }
            if said && let Ok(Some(message)) = self.worker.channel.receive() {
                match message {
                    Message::Watching(thread) => {
                        self.worker.watch(thread);
                        continue;
                    }
                    Message::MapIds => {
                        let mapped = super::id_maps::map(self.worker.id(), &self.config);
                        let answer = mapped.map_or_else(Message::Failed, |()| Message::Ready);
                        let _ = self.worker.channel.send(&answer);
                        continue;
                    }
                    Message::Stuck(requests) => {
                        tracing::debug!(requests, "the worker is stuck");
                        return self.end_of_worker();
                    }
                    message => return Event::Worker(message),
                }
            }
            if ended {
                return Event::WorkerEnded;
            }
            if ending {
                return self.end_of_worker();
            }
            if said {
                // It has closed its end and not ended yet, or talks nonsense: it will not be served
                // by again, so make sure that it ends.
                self.worker.kill();
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            if knock {
                return Event::Knock;
            }
            if stream && let Phase::LetIn(stream, _) = &self.phase {
                return if speaks(stream) {
                    Event::Speaks
                } else {
                    Event::Gone
                };
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Event::Deadline;
            }
        }
    }

    /// The worker ends, if the kernel lets it.
    fn end_of_worker(&mut self) -> Event {
        if self.worker.has_ended_within(END_TIMEOUT) {
            Event::WorkerEnded
        } else {
            Event::WorkerStuck
        }
    }
}

/// Whether there is something to be read, and not the end.
fn speaks(stream: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut byte, flags) {
        Ok((_, length)) => length > 0,
        Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

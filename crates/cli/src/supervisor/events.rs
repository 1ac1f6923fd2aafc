//! What a supervisor waits for, all in one place.

use super::Supervisor;
use crate::channel::Message;
use crate::waiting;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    /// This process was sent a signal.
    Signal(i32),
    /// The worker says something.
    Worker(Message),
    /// The worker is gone.
    WorkerEnded,
    /// It has requests that do not end, and perhaps cannot end itself.
    WorkerStuck,
    /// The task that was waited for is done.
    TaskDone,
    /// The launcher has waited for the mount to answer, in vain, or was ended while it was made.
    Unwanted,
    /// Nothing of all that.
    Deadline,
}

impl Supervisor {
    /// Waits for the next event. What the worker has said is heard before its end is seen.
    pub(super) fn next_event(
        &mut self,
        task: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Event {
        loop {
            let descriptors = [
                Some(self.signals.as_fd()),
                Some(self.worker.channel.as_fd()),
                task,
                Some(self.worker.ended()),
                self.worker.ending(),
                self.launcher.as_ref().map(AsFd::as_fd),
            ];
            let [signal, said, done, ended, ending, launcher] =
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
                    Message::Stuck(threads) => {
                        tracing::debug!(threads, "the worker is stuck");
                        self.stuck = true;
                        return Event::WorkerStuck;
                    }
                    message => return Event::Worker(message),
                }
            }
            if done {
                return Event::TaskDone;
            }
            if ended {
                return Event::WorkerEnded;
            }
            if ending {
                if self.ends() {
                    return Event::WorkerEnded;
                }
                self.stuck = true;
                return Event::WorkerStuck;
            }
            if launcher && let Some(channel) = self.launcher.take() {
                // After it was told, it is free to go.
                let stop = matches!(channel.receive(), Ok(Some(Message::Stop)));
                if stop || !self.announced {
                    return Event::Unwanted;
                }
            }
            if said {
                // It has closed its end and not ended yet, or talks nonsense: it will not be served
                // by again, so make sure that it ends.
                self.worker.kill();
                std::thread::sleep(Duration::from_millis(1));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Event::Deadline;
            }
        }
    }
}

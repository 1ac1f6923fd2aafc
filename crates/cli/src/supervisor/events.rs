//! The event loop of a mount's supervisor.

use super::MountSupervisor;
use crate::channel::Message;
use crate::waiting;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) enum MountEvent {
    Signal(i32),
    Worker(Message),
    WorkerEnded,
    /// It has requests that do not end, and perhaps cannot exit.
    WorkerStuck,
    TaskDone,
    /// The launcher got no reply from the mount, or died while mounting.
    Abandoned,
    Deadline,
}

impl MountSupervisor {
    /// Waits for the next event. Messages of the worker come before its exit.
    pub(super) fn next_event(
        &mut self,
        task: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> MountEvent {
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
                return MountEvent::Signal(signal.number);
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
                        return MountEvent::WorkerStuck;
                    }
                    message => return MountEvent::Worker(message),
                }
            }
            if done {
                return MountEvent::TaskDone;
            }
            if ended {
                return MountEvent::WorkerEnded;
            }
            if ending {
                if self.kill_worker() {
                    return MountEvent::WorkerEnded;
                }
                self.stuck = true;
                return MountEvent::WorkerStuck;
            }
            if launcher && let Some(channel) = self.launcher.take() {
                // After `Ready`, it may end.
                let stop = matches!(channel.receive(), Ok(Some(Message::Stop)));
                if stop || !self.announced {
                    return MountEvent::Abandoned;
                }
            }
            if said {
                // It has closed its end without exiting, or sends garbage: kill it, as it will not be
                // used again.
                self.worker.kill();
                std::thread::sleep(Duration::from_millis(1));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return MountEvent::Deadline;
            }
        }
    }
}

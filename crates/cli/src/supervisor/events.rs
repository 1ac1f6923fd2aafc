//! What a mount's supervisor waits for.

use crate::channel::{Channel, Message};
use crate::process::Process;
use crate::waiting;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thrufs_sys::signal::SignalFd;

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

pub(super) struct MountEventSources<'a> {
    pub(super) signals: &'a SignalFd,
    pub(super) worker: &'a mut Process,
    pub(super) launcher: &'a mut Option<Channel>,
    /// Whether `Ready` was sent to the launcher, which may end then.
    pub(super) announced: bool,
}

impl MountEventSources<'_> {
    /// Waits for the next event; `None` if the worker begins to exit. Its messages come before its exit.
    pub(super) fn next_event(
        &mut self,
        task: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Option<MountEvent> {
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
                return Some(MountEvent::Signal(signal.number));
            }
            if said && let Ok(Some(message)) = self.worker.channel.receive() {
                match message {
                    Message::Watching(thread) => {
                        self.worker.watch(thread);
                        continue;
                    }
                    Message::Stuck(threads) => {
                        tracing::debug!(threads, "the worker is stuck");
                        return Some(MountEvent::WorkerStuck);
                    }
                    message => return Some(MountEvent::Worker(message)),
                }
            }
            if done {
                return Some(MountEvent::TaskDone);
            }
            if ended {
                return Some(MountEvent::WorkerEnded);
            }
            if ending {
                return None;
            }
            if launcher && let Some(channel) = self.launcher.take() {
                let stop = matches!(channel.receive(), Ok(Some(Message::Stop)));
                if stop || !self.announced {
                    return Some(MountEvent::Abandoned);
                }
            }
            if said {
                // It has closed its end without exiting, or sends garbage: kill it, as it will not be
                // used again.
                self.worker.kill();
                std::thread::sleep(Duration::from_millis(1));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Some(MountEvent::Deadline);
            }
        }
    }
}

//! Waiting for the next event of a mount.

use super::{MountEvent, MountSupervisor};
use crate::channel::{Notice, Order};
use crate::process::ProcessEvent;
use crate::upgrade::request::Request;
use crate::waiting;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

impl MountSupervisor {
    /// Waits for the next event. Messages of the worker come before its exit.
    pub(super) fn next_event(
        &mut self,
        task: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> MountEvent {
        loop {
            let [exiting, ended, channel] = self.worker.sources();
            let descriptors = [
                Some(self.signals.as_fd()),
                task,
                exiting,
                ended,
                channel,
                self.launcher.as_ref().map(AsFd::as_fd),
                self.upgrades.as_ref().map(AsFd::as_fd),
            ];
            let [signal, done, exiting, ended, said, launcher, asked] =
                waiting::readable(descriptors, deadline);
            if signal && let Ok(signal) = self.signals.read() {
                return MountEvent::Signal(signal.number);
            }
            if done {
                return MountEvent::TaskDone;
            }
            if let Some(event) = self.worker.event([exiting, ended, said]) {
                return self.worker_event(event);
            }
            if launcher && let Some(channel) = self.launcher.take() {
                let stop = matches!(channel.receive(), Ok(Some(Order::Stop)));
                if stop || !self.announced {
                    return MountEvent::Abandoned;
                }
            }
            // In the others' time, because those are served at once.
            if asked && let Some(request) = self.upgrades.as_ref().and_then(Request::accept) {
                return MountEvent::Upgrade(request);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return MountEvent::Deadline;
            }
        }
    }

    fn worker_event(&mut self, event: ProcessEvent) -> MountEvent {
        match event {
            ProcessEvent::Message(Notice::Stuck(threads)) => {
                tracing::debug!(threads, "the worker is stuck");
            }
            ProcessEvent::Message(message) => return MountEvent::Worker(message),
            ProcessEvent::Ended => return MountEvent::WorkerEnded,
            ProcessEvent::Exiting if self.kill_worker() => return MountEvent::WorkerEnded,
            ProcessEvent::Exiting => {}
        }
        self.stuck = true;
        MountEvent::WorkerStuck
    }
}

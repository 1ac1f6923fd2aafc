//! Waiting for the next event of a share.

use super::{END_TIMEOUT, ShareEvent, ShareSupervisor};
use crate::channel::Message;
use crate::process::ProcessEvent;
use crate::share::id_maps;
use crate::share::workers::StandbyState;
use crate::waiting;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Descriptors that are not of a worker.
const OWN: usize = 3;

impl ShareSupervisor {
    /// Waits for the next event. Messages of a worker come before its exit.
    pub(super) fn next_event(&mut self, deadline: Option<Instant>) -> ShareEvent {
        loop {
            // So that a busy worker does not starve the others.
            let next = self.workers.len().min(1);
            self.workers.rotate_left(next);
            let ready = self.wait(deadline);
            let (own, workers) = ready.split_at(OWN);
            if own[0]
                && let Ok(signal) = self.signals.read()
            {
                return ShareEvent::Signal(signal.number);
            }
            for (index, ready) in workers.as_chunks().0.iter().enumerate() {
                if let Some(event) = self.worker_event(index, *ready) {
                    return event;
                }
            }
            if own[1] {
                return ShareEvent::Incoming;
            }
            if own[2]
                && let StandbyState::Accepted(stream, _) = &self.phase
            {
                return if speaks(stream) {
                    ShareEvent::FrontEndSent
                } else {
                    ShareEvent::FrontEndClosed
                };
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return ShareEvent::Deadline;
            }
        }
    }

    /// Which of the own descriptors, and of those of each worker, are readable.
    fn wait(&self, mut deadline: Option<Instant>) -> Vec<bool> {
        let (listener, stream) = match &self.phase {
            StandbyState::Ready => (Some(self.listener.as_fd()), None),
            StandbyState::Accepted(stream, _) => (None, Some(stream.as_fd())),
            StandbyState::Starting | StandbyState::Full => (None, None),
        };
        let own: [_; OWN] = [Some(self.signals.as_fd()), listener, stream];
        let mut descriptors = own.to_vec();
        for worker in &self.workers {
            descriptors.extend(worker.process.sources());
            let end = worker.process.end_deadline();
            deadline = deadline.into_iter().chain(end).min();
        }
        waiting::readable_of(&descriptors, deadline)
    }

    fn worker_event(&mut self, index: usize, ready: [bool; 3]) -> Option<ShareEvent> {
        let worker = &mut self.workers[index];
        match worker.process.event(ready) {
            // Only on standby: later, an attacker may control the worker.
            Some(ProcessEvent::Message(Message::MapIds)) if worker.kept.is_none() => {
                let mapped = id_maps::map(&mut self.apart, worker.process.id(), &self.config);
                let answer = mapped.map_or_else(Message::Failed, |()| Message::Ready);
                let _ = worker.process.channel.send(&answer);
            }
            Some(ProcessEvent::Message(Message::Stuck(requests))) => {
                tracing::debug!(requests, "the worker is stuck");
                worker.process.begin_to_end(END_TIMEOUT);
            }
            Some(ProcessEvent::Message(message)) => {
                return Some(ShareEvent::Worker(index, message));
            }
            Some(ProcessEvent::Ended) => return Some(ShareEvent::WorkerEnded(index)),
            // Others are served meanwhile.
            Some(ProcessEvent::Exiting) => worker.process.begin_to_end(END_TIMEOUT),
            None if worker.process.is_stuck() => return Some(ShareEvent::WorkerStuck(index)),
            None => {}
        }
        None
    }
}

/// Whether data, and not the end, can be read.
fn speaks(stream: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut byte, flags) {
        Ok((_, length)) => length > 0,
        Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

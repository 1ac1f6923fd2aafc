//! What a share's supervisor waits for.

use super::listener::ShareListener;
use super::workers::{StandbyState, WorkerSet};
use crate::channel::Message;
use crate::config::ShareConfig;
use crate::process::Process;
use crate::waiting;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thrufs_sys::signal::SignalFd;

/// For a worker to end after its last thread has; others are served meanwhile.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Workers are given by their index in the [`WorkerSet`].
#[derive(Debug)]
pub(super) enum ShareEvent {
    Signal(i32),
    Worker(usize, Message),
    WorkerEnded(usize),
    /// Its exit deadline has passed.
    WorkerStuck(usize),
    /// A front end connects.
    Incoming,
    /// The accepted front end has sent something.
    FrontEndSent,
    /// The accepted front end has disconnected.
    FrontEndClosed,
    Deadline,
}

/// Whether a worker has sent something, has ended, begins to exit.
type WorkerEvents = [bool; 3];

pub(super) struct ShareEventSources<'a> {
    pub(super) config: &'a ShareConfig,
    pub(super) signals: &'a SignalFd,
    pub(super) listener: &'a ShareListener,
    pub(super) workers: &'a mut WorkerSet,
    pub(super) standby: &'a StandbyState,
}

impl ShareEventSources<'_> {
    /// Waits for the next event. Messages of a worker come before its exit.
    pub(super) fn next_event(&mut self, deadline: Option<Instant>) -> ShareEvent {
        loop {
            let indices = self.workers.indices();
            let (own, events) = self.wait(&indices, deadline);
            let [signal, incoming, stream] = own;
            if signal && let Ok(signal) = self.signals.read() {
                return ShareEvent::Signal(signal.number);
            }
            for (index, events) in indices.iter().zip(events) {
                if let Some(event) = self.read_worker(*index, events) {
                    return event;
                }
            }
            for index in indices {
                let worker = self.workers.get_mut(index);
                if worker.is_some_and(|worker| worker.process.is_stuck()) {
                    return ShareEvent::WorkerStuck(index);
                }
            }
            if incoming {
                return ShareEvent::Incoming;
            }
            if stream && let StandbyState::Accepted(stream, _) = self.standby {
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

    fn wait(&self, indices: &[usize], deadline: Option<Instant>) -> ([bool; 3], Vec<WorkerEvents>) {
        let mut descriptors = vec![
            Some(self.signals.as_fd()),
            matches!(self.standby, StandbyState::Ready).then(|| self.listener.as_fd()),
            match self.standby {
                StandbyState::Accepted(stream, _) => Some(stream.as_fd()),
                _ => None,
            },
        ];
        let mut deadline = deadline;
        for index in indices {
            let worker = self.workers.get(*index);
            let process = worker.map(|worker| &worker.process);
            let end = process.and_then(Process::end_deadline);
            deadline = deadline.into_iter().chain(end).min();
            let speaks = worker.is_some_and(|worker| !worker.has_closed_channel);
            descriptors.extend([
                process
                    .filter(|_| speaks)
                    .map(|process| process.channel.as_fd()),
                process.map(|process| process.ended()),
                process.and_then(Process::ending),
            ]);
        }
        let ready = waiting::readable_of(&descriptors, deadline);
        let (own, workers) = ready.split_at(3);
        let (workers, _) = workers.as_chunks();
        ([own[0], own[1], own[2]], workers.to_vec())
    }

    /// Reads from a worker; returns an event, if any.
    fn read_worker(&mut self, index: usize, events: WorkerEvents) -> Option<ShareEvent> {
        let [said, ended, ending] = events;
        let worker = self.workers.get_mut(index)?;
        if said && let Ok(Some(message)) = worker.process.channel.receive() {
            return match message {
                Message::Watching(thread) => {
                    worker.process.watch(thread);
                    None
                }
                // Only on standby: later, an attacker may control the worker.
                Message::MapIds if worker.kept.is_none() => {
                    let mapped = super::id_maps::map(worker.process.id(), self.config);
                    let answer = mapped.map_or_else(Message::Failed, |()| Message::Ready);
                    let _ = worker.process.channel.send(&answer);
                    None
                }
                Message::Stuck(requests) => {
                    tracing::debug!(requests, "the worker is stuck");
                    worker.process.begin_to_end(END_TIMEOUT);
                    None
                }
                message => Some(ShareEvent::Worker(index, message)),
            };
        }
        if ended {
            return Some(ShareEvent::WorkerEnded(index));
        }
        if said {
            // It has closed its end without exiting, or sends garbage: kill it, as it will not be used
            // again.
            worker.has_closed_channel = true;
            worker.process.kill();
        }
        if ending || said {
            worker.process.begin_to_end(END_TIMEOUT);
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

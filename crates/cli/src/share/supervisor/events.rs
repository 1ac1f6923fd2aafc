//! Waiting for the next event of a share.

use super::{END_TIMEOUT, ShareEvent, ShareSupervisor};
use crate::channel::{Notice, Order};
use crate::process::{Process, ProcessEvent};
use crate::share::id_maps;
use crate::share::workers::StandbyState;
use crate::upgrade::check::Upgrade;
use crate::waiting;
use std::os::fd::AsFd;
use std::time::Instant;

impl ShareSupervisor {
    /// Waits for the next event. Messages of a worker come before its exit.
    pub(super) fn next_event(&mut self, deadline: Option<Instant>) -> ShareEvent {
        loop {
            // So that a busy worker does not starve the others.
            let next = self.workers.len().min(1);
            self.workers.rotate_left(next);
            let ready = self.wait(deadline);
            let ([signalled, reload, asked, checked, served], ready) = split(&ready);
            let (workers, peers) = ready.split_at(Process::SOURCES * self.workers.len());
            if signalled && let Ok(signal) = self.signals.read() {
                return ShareEvent::Signal(signal.number);
            }
            if reload && self.clients.takes_reload() {
                return ShareEvent::Reload;
            }
            for (index, ready) in workers.as_chunks().0.iter().enumerate() {
                if let Some(event) = self.worker_event(index, *ready) {
                    return event;
                }
            }
            match () {
                () if checked => return ShareEvent::Checked,
                () if served => return ShareEvent::Served,
                () if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return ShareEvent::Deadline;
                }
                () => {}
            }
            if asked && let Some(request) = self.clients.accept_upgrade() {
                return ShareEvent::Upgrade(request);
            }
            // In turn too, the listener with them.
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % peers.len();
            let (after, before) = (first..peers.len(), 0..first);
            let mut in_turn = after.chain(before);
            match in_turn.find(|index| peers[*index]) {
                Some(0) => return ShareEvent::Connecting,
                Some(index) if index <= self.closing.len() => {
                    self.closing.swap_remove(index - 1).finish();
                    return ShareEvent::Closed;
                }
                Some(index) => return ShareEvent::Incoming(index - 1 - self.closing.len()),
                None => {}
            }
        }
    }

    /// Which are readable: of the signals, of the control thread, of what an upgrade waits for, of the descriptors of each
    /// worker, of the listener, of what is being closed, and of the incoming connections.
    fn wait(&self, mut deadline: Option<Instant>) -> Vec<bool> {
        let is_ready = self.phase == StandbyState::Ready;
        let mut descriptors = vec![
            Some(self.signals.as_fd()),
            self.clients.reloads(),
            self.clients.upgrades(),
            self.upgrade.as_ref().and_then(Upgrade::waits_for),
            self.proving().map(|connection| connection.proxy().served()),
        ];
        for worker in &self.workers {
            descriptors.extend(worker.process.sources());
            let end = worker.process.end_deadline();
            deadline = deadline.into_iter().chain(end).min();
        }
        descriptors.push(is_ready.then(|| self.listener.as_fd()));
        descriptors.extend(self.closing.iter().map(|task| Some(task.as_fd())));
        let incoming = self.incoming.all().iter().filter(|_| is_ready);
        descriptors.extend(incoming.map(|one| Some(one.as_fd())));
        waiting::readable_of(&descriptors, deadline)
    }

    fn worker_event(&mut self, index: usize, ready: [bool; 3]) -> Option<ShareEvent> {
        let worker = &mut self.workers[index];
        match worker.process.event(ready) {
            // Only on standby: later, an attacker may control the worker.
            Some(ProcessEvent::Message(Notice::MapIds)) if worker.connection.is_none() => {
                let mapped = id_maps::map(&mut self.apart, worker.process.id(), &self.config);
                worker.process.tell(&Order::IdsMapped(mapped));
            }
            Some(ProcessEvent::Message(Notice::Stuck(requests))) => {
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

/// The first five, and the others.
fn split(ready: &[bool]) -> ([bool; 5], &[bool]) {
    let (first, others) = ready.split_first_chunk().expect("there are as many");
    (*first, others)
}

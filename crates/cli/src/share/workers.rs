//! The workers of a share: those that serve a machine, and the one on standby.

use super::figures::QueryChannel;
use super::keeping::Keeping;
use crate::channel::{Channel, Message};
use crate::config::ShareConfig;
use crate::error::{SetUpError, system};
use crate::policy_file::PolicyFiles;
use crate::process::{Process, Role};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct ShareWorker {
    pub(super) process: Process,
    /// The error it reported before its end.
    pub(super) exit_reason: Option<String>,
    pub(super) has_closed_channel: bool,
    /// The connection it serves.
    pub(super) kept: Option<Keeping>,
    /// For queries.
    pub(super) queries: Arc<QueryChannel>,
}

impl ShareWorker {
    /// Starts one; it sends `Ready` later.
    pub(super) fn start(
        config: &ShareConfig,
        policy: Option<&PolicyFiles>,
        source: &OwnedFd,
    ) -> Result<ShareWorker, SetUpError> {
        let process = Process::start(Role::ShareWorker, config.paths())
            .map_err(system("start the worker"))?;
        let send = |message: Message| send_setup(&process.channel, &message);
        let (queries, theirs) =
            QueryChannel::pair().map_err(system("create a socket for the worker"))?;
        send(Message::Control(theirs))?;
        if let Some(policy) = policy {
            send(policy.for_worker().map_err(system("start the audit log"))?)?;
        }
        let source = source.try_clone();
        let source = source.map_err(system("duplicate a descriptor"))?;
        send(Message::Share(Box::new(config.clone()), source))?;
        Ok(ShareWorker {
            process,
            exit_reason: None,
            has_closed_channel: false,
            kept: None,
            queries: Arc::new(queries),
        })
    }
}

/// Sends a message to a starting worker. A dead worker is no error here: its exit is handled next, and
/// decides about its connection.
fn send_setup(channel: &Channel, message: &Message) -> Result<(), SetUpError> {
    let sent = channel.send(message).or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    });
    sent.map_err(system("send to the worker"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerSlot {
    /// The one on standby.
    Standby,
    /// Index in the list of serving workers.
    Serving(usize),
}

/// The state of the standby worker.
#[derive(Debug)]
pub(super) enum StandbyState {
    Starting,
    /// It waits for a front end.
    Ready,
    /// A front end is connected since then, and has sent nothing.
    Accepted(OwnedFd, Instant),
    /// There is none: `machines` is reached, or the share ends. No front end is accepted.
    Full,
}

/// How a worker has ended.
#[derive(Debug)]
pub(super) enum WorkerEnd {
    Exited(ExitStatus),
    /// Its process remains, because its requests do not end.
    Stuck,
}

impl WorkerEnd {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, WorkerEnd::Exited(status) if status.success())
    }
}

impl fmt::Display for WorkerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerEnd::Exited(status) => status.fmt(f),
            WorkerEnd::Stuck => f.write_str("stuck"),
        }
    }
}

#[derive(Debug)]
pub(super) struct WorkerSet {
    standby: Option<ShareWorker>,
    serving: Vec<ShareWorker>,
    /// Rotates the order of events, so that a busy worker does not starve the others.
    turn: usize,
}

impl WorkerSet {
    pub(super) fn new(first: ShareWorker) -> WorkerSet {
        WorkerSet {
            standby: Some(first),
            serving: Vec::new(),
            turn: 0,
        }
    }

    pub(super) fn serving(&self) -> usize {
        self.serving.len()
    }

    /// All workers, in rotating order.
    pub(super) fn slots(&mut self) -> Vec<WorkerSlot> {
        let standby = self.standby.iter().map(|_| WorkerSlot::Standby);
        let mut all: Vec<WorkerSlot> = standby
            .chain((0..self.serving.len()).map(WorkerSlot::Serving))
            .collect();
        self.turn = self.turn.wrapping_add(1);
        if !all.is_empty() {
            let first = self.turn % all.len();
            all.rotate_left(first);
        }
        all
    }

    pub(super) fn get(&self, slot: WorkerSlot) -> Option<&ShareWorker> {
        match slot {
            WorkerSlot::Standby => self.standby.as_ref(),
            WorkerSlot::Serving(index) => self.serving.get(index),
        }
    }

    pub(super) fn get_mut(&mut self, slot: WorkerSlot) -> Option<&mut ShareWorker> {
        match slot {
            WorkerSlot::Standby => self.standby.as_mut(),
            WorkerSlot::Serving(index) => self.serving.get_mut(index),
        }
    }

    /// Removes one that has ended or is stuck.
    pub(super) fn take(&mut self, slot: WorkerSlot) -> Option<ShareWorker> {
        match slot {
            WorkerSlot::Standby => self.standby.take(),
            WorkerSlot::Serving(index) => {
                (index < self.serving.len()).then(|| self.serving.swap_remove(index))
            }
        }
    }

    /// Moves the standby worker to the serving ones.
    pub(super) fn promote_standby(&mut self) -> Option<&mut ShareWorker> {
        self.serving.push(self.standby.take()?);
        self.serving.last_mut()
    }

    pub(super) fn set_standby(&mut self, worker: ShareWorker) {
        self.standby = Some(worker);
    }

    pub(super) fn send_all(&self, message: &Message) {
        for worker in self.serving.iter().chain(&self.standby) {
            // The exit of a dead one is handled later.
            let _ = worker.process.channel.send(message);
        }
    }

    pub(super) fn send_policy(&self, policy: &PolicyFiles) -> io::Result<()> {
        let workers: Vec<_> = self.serving.iter().chain(&self.standby).collect();
        // All or none.
        let messages: io::Result<Vec<_>> = workers.iter().map(|_| policy.for_worker()).collect();
        for (worker, message) in workers.iter().zip(messages?) {
            let _ = worker.process.channel.send(&message);
        }
        Ok(())
    }

    pub(super) fn kill(&self) {
        for worker in self.serving.iter().chain(&self.standby) {
            worker.process.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_to_a_dead_worker_is_no_error() {
        for unread in [0, 1] {
            let (ours, theirs) = Channel::pair().unwrap();
            for _ in 0..unread {
                send_setup(&ours, &Message::Ready).unwrap();
            }
            drop(theirs);
            send_setup(&ours, &Message::Ready).unwrap();
            send_setup(&ours, &Message::Ready).unwrap();
        }
    }
}

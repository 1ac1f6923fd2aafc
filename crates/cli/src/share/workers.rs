//! The workers of a share: those that serve a machine, and the one on standby.

use super::figures::QueryChannel;
use super::keeping::Keeping;
use crate::channel::{Channel, Message};
use crate::config::ShareConfig;
use crate::error::{StartupError, system};
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
    /// The connection that it serves; on standby, none.
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
    ) -> Result<ShareWorker, StartupError> {
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
fn send_setup(channel: &Channel, message: &Message) -> Result<(), StartupError> {
    let sent = channel.send(message).or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    });
    sent.map_err(system("send to the worker"))
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
    workers: Vec<ShareWorker>,
    /// Rotates the order of events, so that a busy worker does not starve the others.
    turn: usize,
}

impl WorkerSet {
    pub(super) fn new(first: ShareWorker) -> WorkerSet {
        WorkerSet {
            workers: vec![first],
            turn: 0,
        }
    }

    /// The number of those that serve.
    pub(super) fn serving(&self) -> usize {
        let serving = self.workers.iter().filter(|worker| worker.kept.is_some());
        serving.count()
    }

    /// The indices of all workers, in rotating order. They are valid until one is taken.
    pub(super) fn indices(&mut self) -> Vec<usize> {
        let count = self.workers.len();
        self.turn = self.turn.wrapping_add(1);
        (0..count)
            .map(|index| (index + self.turn) % count)
            .collect()
    }

    pub(super) fn is_standby(&self, index: usize) -> bool {
        self.get(index).is_some_and(|worker| worker.kept.is_none())
    }

    pub(super) fn get(&self, index: usize) -> Option<&ShareWorker> {
        self.workers.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut ShareWorker> {
        self.workers.get_mut(index)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ShareWorker> {
        self.workers.iter_mut()
    }

    pub(super) fn standby(&mut self) -> Option<&mut ShareWorker> {
        self.iter_mut().find(|worker| worker.kept.is_none())
    }

    /// Removes one that has ended or is stuck.
    pub(super) fn take(&mut self, index: usize) -> ShareWorker {
        self.workers.swap_remove(index)
    }

    pub(super) fn add(&mut self, worker: ShareWorker) {
        self.workers.push(worker);
    }

    pub(super) fn send_all(&self, message: &Message) {
        for worker in &self.workers {
            // The exit of a dead one is handled later.
            let _ = worker.process.channel.send(message);
        }
    }

    pub(super) fn send_policy(&self, policy: &PolicyFiles) -> io::Result<()> {
        // All or none.
        let messages = self.workers.iter().map(|_| policy.for_worker());
        let messages: Vec<Message> = messages.collect::<io::Result<_>>()?;
        for (worker, message) in self.workers.iter().zip(messages) {
            let _ = worker.process.channel.send(&message);
        }
        Ok(())
    }

    pub(super) fn kill(&self) {
        for worker in &self.workers {
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

//! The workers of a share: those that serve a machine, and the one that waits for the next.

use super::figures::Questions;
use super::keeping::Keeping;
use crate::channel::{Channel, Message};
use crate::config::ShareConfig;
use crate::error::{CommandError, system};
use crate::policy_file::PolicyFiles;
use crate::process::{Process, Role};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One of them.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) process: Process,
    /// What it said before it ended with an error.
    pub(super) last_words: Option<String>,
    /// It has closed its end of the channel.
    pub(super) is_silent: bool,
    /// Whom it serves.
    pub(super) kept: Option<Keeping>,
    /// To ask it what it does.
    pub(super) questions: Arc<Questions>,
}

impl Worker {
    /// Starts one, which will say when it is ready.
    ///
    /// # Errors
    ///
    /// No descriptors, no processes.
    pub(super) fn start(
        config: &ShareConfig,
        policy: Option<&PolicyFiles>,
        source: &OwnedFd,
    ) -> Result<Worker, CommandError> {
        let process = Process::start(Role::ShareWorker, config.paths())
            .map_err(system("start the worker"))?;
        let say = |message: Message| say(&process.channel, &message);
        let (questions, theirs) =
            Questions::pair().map_err(system("create a socket for the worker"))?;
        say(Message::Control(theirs))?;
        if let Some(policy) = policy {
            say(policy.for_worker().map_err(system("start the audit log"))?)?;
        }
        let source = source.try_clone();
        let source = source.map_err(system("duplicate a descriptor"))?;
        say(Message::Share(Box::new(config.clone()), source))?;
        Ok(Worker {
            process,
            last_words: None,
            is_silent: false,
            kept: None,
            questions: Arc::new(questions),
        })
    }
}

/// Says something to a worker that is being started. That it is gone is no error here: its end is seen
/// next, and how it ended decides what becomes of whom it was to serve.
fn say(channel: &Channel, message: &Message) -> Result<(), CommandError> {
    let said = channel.send(message).or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
        _ => Err(error),
    });
    said.map_err(system("send to the worker"))
}

/// Which of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The one that serves nobody yet.
    Waiting,
    /// One that serves, by its place in the list.
    Serving(usize),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Crew {
    waiting: Option<Worker>,
    serving: Vec<Worker>,
    /// Who is heard first: another each time, so that one that talks much does not keep the others from
    /// being heard.
    turn: usize,
}

impl Crew {
    pub(super) fn new(first: Worker) -> Crew {
        Crew {
            waiting: Some(first),
            serving: Vec::new(),
            turn: 0,
        }
    }

    /// How many serve.
    pub(super) fn serving(&self) -> usize {
        self.serving.len()
    }

    /// All there are, another first each time.
    pub(super) fn everybody(&mut self) -> Vec<Who> {
        let waiting = self.waiting.iter().map(|_| Who::Waiting);
        let mut all: Vec<Who> = waiting
            .chain((0..self.serving.len()).map(Who::Serving))
            .collect();
        self.turn = self.turn.wrapping_add(1);
        if !all.is_empty() {
            let first = self.turn % all.len();
            all.rotate_left(first);
        }
        all
    }

    pub(super) fn get(&self, who: Who) -> Option<&Worker> {
        match who {
            Who::Waiting => self.waiting.as_ref(),
            Who::Serving(index) => self.serving.get(index),
        }
    }

    pub(super) fn get_mut(&mut self, who: Who) -> Option<&mut Worker> {
        match who {
            Who::Waiting => self.waiting.as_mut(),
            Who::Serving(index) => self.serving.get_mut(index),
        }
    }

    /// Takes one away that has ended, or does not.
    pub(super) fn take(&mut self, who: Who) -> Option<Worker> {
        match who {
            Who::Waiting => self.waiting.take(),
            Who::Serving(index) => {
                (index < self.serving.len()).then(|| self.serving.swap_remove(index))
            }
        }
    }

    /// The one that waits serves from now on.
    pub(super) fn begin(&mut self) -> Option<&mut Worker> {
        self.serving.push(self.waiting.take()?);
        self.serving.last_mut()
    }

    /// Another waits.
    pub(super) fn wait(&mut self, worker: Worker) {
        self.waiting = Some(worker);
    }

    /// Says something to all.
    pub(super) fn tell(&self, message: &Message) {
        for worker in self.serving.iter().chain(&self.waiting) {
            // One that has died is seen soon.
            let _ = worker.process.channel.send(message);
        }
    }

    /// Has all serve by another policy.
    pub(super) fn tell_policy(&self, policy: &PolicyFiles) -> io::Result<()> {
        let workers: Vec<_> = self.serving.iter().chain(&self.waiting).collect();
        // None, if not all can be told.
        let messages: io::Result<Vec<_>> = workers.iter().map(|_| policy.for_worker()).collect();
        for (worker, message) in workers.iter().zip(messages?) {
            let _ = worker.process.channel.send(&message);
        }
        Ok(())
    }

    /// Ends all by force.
    pub(super) fn kill(&self) {
        for worker in self.serving.iter().chain(&self.waiting) {
            worker.process.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_be_gone_before_it_is_told_anything() {
        for unread in [0, 1] {
            let (ours, theirs) = Channel::pair().unwrap();
            for _ in 0..unread {
                say(&ours, &Message::Ready).unwrap();
            }
            drop(theirs);
            say(&ours, &Message::Ready).unwrap();
            say(&ours, &Message::Ready).unwrap();
        }
    }
}

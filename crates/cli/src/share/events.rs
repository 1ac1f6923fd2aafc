//! What the supervisor of a share waits for, all in one place.

use super::crew::Who;
use super::supervisor::{Phase, Supervisor};
use crate::channel::Message;
use crate::process::Process;
use crate::waiting;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a worker has to end once its last thread has begun to. Others are served meanwhile.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    /// This process was sent a signal.
    Signal(i32),
    /// A worker says something.
    Worker(Who, Message),
    /// A worker is gone.
    WorkerEnded(Who),
    /// It is ending, and cannot.
    WorkerStuck(Who),
    /// Somebody wants to be let in.
    Knock,
    /// Who was let in speaks.
    Speaks,
    /// Who was let in has gone again.
    Gone,
    /// Nothing of all that.
    Deadline,
}

/// What there is of a worker.
#[derive(Clone, Copy)]
struct News {
    said: bool,
    ended: bool,
    ending: bool,
}

impl Supervisor {
    /// Waits for the next event. What a worker has said is heard before its end is seen.
    pub(super) fn next_event(&mut self, deadline: Option<Instant>) -> Event {
        loop {
            let everybody = self.crew.everybody();
            let (own, news) = self.wait(&everybody, deadline);
            let [signal, knock, stream] = own;
            if signal && let Ok(signal) = self.signals.read() {
                return Event::Signal(signal.number);
            }
            for (who, news) in everybody.iter().zip(news) {
                if let Some(event) = self.hear(*who, news) {
                    return event;
                }
            }
            for who in everybody {
                let worker = self.crew.get_mut(who);
                if worker.is_some_and(|worker| worker.process.is_stuck()) {
                    return Event::WorkerStuck(who);
                }
            }
            if knock {
                return Event::Knock;
            }
            if stream && let Phase::LetIn(stream, _) = &self.phase {
                return if speaks(stream) {
                    Event::Speaks
                } else {
                    Event::Gone
                };
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Event::Deadline;
            }
        }
    }

    fn wait(&self, everybody: &[Who], deadline: Option<Instant>) -> ([bool; 3], Vec<News>) {
        let mut descriptors = vec![
            Some(self.signals.as_fd()),
            matches!(self.phase, Phase::Ready).then(|| self.door.as_fd()),
            match &self.phase {
                Phase::LetIn(stream, _) => Some(stream.as_fd()),
                _ => None,
            },
        ];
        let mut deadline = deadline;
        for who in everybody {
            let worker = self.crew.get(*who);
            let process = worker.map(|worker| &worker.process);
            let end = process.and_then(Process::end_deadline);
            deadline = deadline.into_iter().chain(end).min();
            let speaks = worker.is_some_and(|worker| !worker.is_silent);
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
        let news = workers.chunks(3).map(|news| News {
            said: news[0],
            ended: news[1],
            ending: news[2],
        });
        ([own[0], own[1], own[2]], news.collect())
    }

    /// What a worker brings, if that is an event.
    fn hear(&mut self, who: Who, news: News) -> Option<Event> {
        let worker = self.crew.get_mut(who)?;
        if news.said
            && let Ok(Some(message)) = worker.process.channel.receive()
        {
            return match message {
                Message::Watching(thread) => {
                    worker.process.watch(thread);
                    None
                }
                // Later it is not the worker's wish any more, but perhaps its guest's.
                Message::MapIds if who == Who::Waiting => {
                    let mapped = super::id_maps::map(worker.process.id(), &self.config);
                    let answer = mapped.map_or_else(Message::Failed, |()| Message::Ready);
                    let _ = worker.process.channel.send(&answer);
                    None
                }
                Message::Stuck(requests) => {
                    tracing::debug!(requests, "the worker is stuck");
                    worker.process.begin_to_end(END_TIMEOUT);
                    None
                }
                message => Some(Event::Worker(who, message)),
            };
        }
        if news.ended {
            return Some(Event::WorkerEnded(who));
        }
        if news.said {
            // It has closed its end and not ended yet, or talks nonsense: it will not be served
            // by again, so make sure that it ends.
            worker.is_silent = true;
            worker.process.kill();
        }
        if news.ending || news.said {
            worker.process.begin_to_end(END_TIMEOUT);
        }
        None
    }
}

/// Whether there is something to be read, and not the end.
fn speaks(stream: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(stream, &mut byte, flags) {
        Ok((_, length)) => length > 0,
        Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

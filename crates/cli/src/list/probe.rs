//! Asking a server, for a limited time.
//!
//! Each is asked by a thread of its own: of the path of a socket, of a server and of a mount, any may leave its caller
//! without an answer. None is waited for longer than the others.

use crate::control::client::{Met, meet};
use crate::mounting::has_ended;
use crate::task::Task;
use rustix::io::Errno;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// For all servers together.
const TIMEOUT: Duration = Duration::from_secs(2);

/// For each: it leaves time to say which process was silent.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);

/// Between the two samples of a rate.
const SAMPLING: Duration = Duration::from_millis(500);

/// What is asked.
#[derive(Clone, Default)]
pub(super) struct Question {
    /// A control socket that is on no FUSE mount, and its user.
    pub(super) control: Option<(PathBuf, u32)>,
    /// A mount of this user's in this mount namespace, and its id.
    pub(super) mounted: Option<(PathBuf, u64)>,
    pub(super) with_rate: bool,
}

#[derive(Default)]
pub(super) struct Answer {
    pub(super) server: Option<i32>,
    pub(super) statistics: Option<Value>,
    /// Later ones, and how much later.
    pub(super) again: Option<(Duration, Value)>,
    /// A server listens.
    pub(super) is_connected: bool,
    /// None listens any more at a socket that is left.
    pub(super) is_left: bool,
    /// Whether the connection of the mount has ended, where that was found out.
    pub(super) is_dead: Option<bool>,
    /// It did not answer in time.
    pub(super) is_silent: bool,
}

impl Question {
    fn ask(self) -> Answer {
        let mut answer = Answer::default();
        if let Some((socket, user)) = &self.control {
            match meet(socket, *user, ANSWER_TIMEOUT) {
                Ok(Met {
                    process,
                    statistics,
                }) => {
                    answer.is_connected = true;
                    answer.server = process;
                    answer.is_silent = statistics.is_none();
                    answer.statistics = statistics;
                }
                Err(errno) => answer.is_left = errno == Errno::CONNREFUSED,
            }
            if self.with_rate && answer.statistics.is_some() {
                let sampled = Instant::now();
                std::thread::sleep(SAMPLING);
                let again = meet(socket, *user, ANSWER_TIMEOUT).ok();
                let again = again.and_then(|it| it.statistics);
                answer.again = again.map(|it| (sampled.elapsed(), it));
            }
        }
        if !answer.is_connected {
            answer.is_dead = self
                .mounted
                .and_then(|(path, id)| has_ended(&path, id).ok());
        }
        answer
    }
}

/// The answers to all questions, in their order.
pub(super) fn ask_all(questions: Vec<Question>) -> Vec<Answer> {
    let sampling = questions.iter().any(|it| it.with_rate).then_some(SAMPLING);
    let deadline = Instant::now() + TIMEOUT + sampling.unwrap_or_default();
    let begin = |question: Question| Task::start(move || question.ask()).ok();
    let asked: Vec<_> = questions.into_iter().map(begin).collect();
    let answers = asked.into_iter().map(|task| {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = task.and_then(|it| it.finish_within(left));
        answer.unwrap_or_else(|| Answer {
            is_silent: true,
            ..Answer::default()
        })
    });
    answers.collect()
}

//! What the workers of a share say of themselves, together.
//!
//! Whoever asks the share asks the supervisor, and that asks each worker over a socket that it shares
//! with it alone. What a worker says is bounded and waited for a moment only: a guest may have taken it
//! over.

use crate::control::client::exchange;
use crate::control::protocol::{Command, Refusal, Reply};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a worker has to answer. One that does not is not asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The supervisor's end of the socket.
#[derive(Debug)]
pub(super) struct Questions(Mutex<Option<UnixStream>>);

impl Questions {
    /// Ours, and the worker's.
    ///
    /// # Errors
    ///
    /// No descriptors.
    pub(super) fn pair() -> io::Result<(Questions, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        ours.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok((Questions(Mutex::new(Some(ours))), theirs.into()))
    }

    fn ask(&self, command: &Command) -> Option<Reply> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = exchange(stream.as_ref()?, command, ANSWER_TIMEOUT).ok();
        let reply = line.and_then(|line| Reply::decode(&line).ok());
        if reply.is_none() {
            // What comes later would be taken for the answer to another question.
            *stream = None;
        }
        reply
    }
}

/// The machines that are connected, and what is known of those that have left.
#[derive(Debug)]
pub(super) struct Machines {
    /// The socket of the share.
    place: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the process that serves it.
    connected: Vec<(u32, Arc<Questions>)>,
    /// How many have left.
    left: u64,
    /// What the worker of the last one said when it ended.
    last: Option<Value>,
}

impl Machines {
    pub(super) fn new(place: PathBuf) -> Machines {
        Machines {
            place,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, process: u32, questions: Arc<Questions>) {
        self.state().connected.push((process, questions));
    }

    pub(super) fn remove(&self, process: u32) {
        let mut state = self.state();
        state.connected.retain(|(other, _)| *other != process);
        state.left += 1;
    }

    /// Another process will serve whom this one has served.
    pub(super) fn forget(&self, process: u32) {
        self.state()
            .connected
            .retain(|(other, _)| *other != process);
    }

    /// What a worker says at its end.
    pub(super) fn last_words(&self, text: &str) {
        match Reply::decode(text.trim_end().as_bytes()) {
            Ok(Reply::Result(figures)) => self.state().last = Some(figures),
            _ => tracing::debug!("malformed figures from a worker"),
        }
    }

    /// Answers who asks at the control socket.
    pub(super) fn answer(&self, command: &Command) -> Reply {
        let connected = self.state().connected.clone();
        match command {
            Command::Explain { .. } => explain(&connected, command),
            Command::Statistics => self.statistics(&connected),
        }
    }

    fn statistics(&self, connected: &[(u32, Arc<Questions>)]) -> Reply {
        let mut text = self.heading();
        let mut machines = Vec::new();
        for (process, questions) in connected {
            let Some(Reply::Result(mut figures)) = questions.ask(&Command::Statistics) else {
                let _ = writeln!(text, "process {process} does not answer");
                continue;
            };
            let _ = writeln!(text, "process {process}:");
            text.push_str(&take_text(&mut figures));
            figures["process"] = (*process).into();
            machines.push(figures);
        }
        let (left, mut last) = {
            let state = self.state();
            (state.left, state.last.clone())
        };
        if let Some(figures) = &mut last {
            text.push_str("last disconnected:\n");
            text.push_str(&take_text(figures));
        }
        Reply::Result(json!({
            "machines": machines,
            "left": left,
            "last_left": last,
            "text": text,
        }))
    }

    /// The line that says how many there are.
    pub(super) fn heading(&self) -> String {
        let (connected, left) = {
            let state = self.state();
            (state.connected.len(), state.left)
        };
        let place = self.place.display();
        if (connected, left) == (0, 0) {
            return format!("thrufs: {place}: no requests yet: no virtual machine has connected\n");
        }
        format!("thrufs: {place}: virtual machines: {connected} connected, {left} disconnected\n")
    }
}

/// The first that knows it: all serve one directory.
fn explain(connected: &[(u32, Arc<Questions>)], command: &Command) -> Reply {
    let mut refusal = Refusal::failed(libc::ENOTCONN);
    for (_, questions) in connected {
        match questions.ask(command) {
            Some(Reply::Error(other)) => refusal = other,
            Some(result) => return result,
            None => {}
        }
    }
    Reply::Error(refusal)
}

fn take_text(figures: &mut Value) -> String {
    let text = figures
        .as_object_mut()
        .and_then(|fields| fields.remove("text"));
    let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write as _};
    use std::time::Instant;

    /// Answers one question with a line.
    fn worker(theirs: OwnedFd, line: &'static str) -> std::thread::JoinHandle<String> {
        let stream = UnixStream::from(theirs);
        std::thread::spawn(move || {
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            (&stream).write_all(line.as_bytes()).unwrap();
            asked
        })
    }

    fn result(reply: Reply) -> Value {
        match reply {
            Reply::Result(value) => value,
            Reply::Error(refusal) => panic!("{refusal:?}"),
        }
    }

    #[test]
    fn all_are_asked_and_the_last_that_left_is_remembered() {
        let machines = Machines::new("/run/s".into());
        let text = |machines: &Machines| {
            let all = result(machines.answer(&Command::Statistics));
            all["text"].as_str().unwrap().to_owned()
        };
        assert!(text(&machines).contains("no requests yet"));
        let (one, theirs) = Questions::pair().unwrap();
        machines.add(11, Arc::new(one));
        let first = worker(
            theirs,
            "{\"version\":1,\"result\":{\"text\":\"one\",\"a\":1}}\n",
        );
        let (two, theirs) = Questions::pair().unwrap();
        machines.add(22, Arc::new(two));
        let second = worker(theirs, "nonsense\n");
        let all = result(machines.answer(&Command::Statistics));
        assert_eq!(all["machines"], json!([{"process": 11, "a": 1}]));
        let shown = all["text"].as_str().unwrap();
        assert!(
            shown.contains("2 connected, 0 disconnected\nprocess 11:\none\n"),
            "{shown}"
        );
        assert!(shown.contains("process 22 does not answer"), "{shown}");
        assert!(first.join().unwrap().contains("statistics"));
        second.join().unwrap();
        machines.last_words("{\"version\":1,\"result\":{\"text\":\"bye\"}}\n");
        machines.last_words("{\"version\":1,\"error\":null}");
        machines.remove(11);
        machines.remove(22);
        let shown = text(&machines);
        assert!(
            shown.ends_with("0 connected, 2 disconnected\nlast disconnected:\nbye\n"),
            "{shown}"
        );
    }

    #[test]
    fn one_that_is_silent_is_not_waited_for_twice() {
        let machines = Machines::new("/run/s".into());
        let (silent, _theirs) = Questions::pair().unwrap();
        machines.add(11, Arc::new(silent));
        machines.answer(&Command::Statistics);
        let begun = Instant::now();
        machines.answer(&Command::Statistics);
        assert!(begun.elapsed() < ANSWER_TIMEOUT);
        let explained = machines.answer(&Command::Explain { components: vec![] });
        assert!(
            matches!(explained, Reply::Error(refusal) if refusal.errno == Some(libc::ENOTCONN))
        );
    }
}
